#include "run/alignment.h"

#include <algorithm>

#include "attend/error.h"
#include "attend/tape.h"

namespace attend {
namespace {

// The layers chosen, counted from 0.
std::vector<int> chosen_layers(const TransformerConfig& config, const AlignmentOptions& options) {
  const int layers = static_cast<int>(config.decoder->layers);
  if (options.layers.empty()) return {std::max(layers - 2, 0)};
  std::vector<int> chosen;
  for (const int layer : options.layers) {
    if (layer < -layers || layer >= layers) {
      throw Error(ErrorKind::argument, "alignment", join("layer ", layer, " of a decoder of ", layers, " layers"),
                  join("use 0 to ", layers - 1, ", or -1 for the last"));
    }
    chosen.push_back(layer < 0 ? layer + layers : layer);
  }
  std::sort(chosen.begin(), chosen.end());
  chosen.erase(std::unique(chosen.begin(), chosen.end()), chosen.end());
  return chosen;
}

std::vector<std::int64_t> chosen_heads(const TransformerConfig& config, const AlignmentOptions& options) {
  std::vector<std::int64_t> chosen(options.heads.begin(), options.heads.end());
  for (const std::int64_t head : chosen) {
    if (head < 0 || head >= config.heads) {
      throw Error(ErrorKind::argument, "alignment", join("head ", head, " of ", config.heads, " heads"),
                  join("use 0 to ", config.heads - 1));
    }
  }
  if (chosen.empty()) {
    for (std::int64_t head = 0; head < config.heads; ++head) chosen.push_back(head);
  }
  std::sort(chosen.begin(), chosen.end());
  chosen.erase(std::unique(chosen.begin(), chosen.end()), chosen.end());
  return chosen;
}

// Sums the rows wanted as they come by, so that no weights are kept.
class AlignmentReader : public Probe {
 public:
  AlignmentReader(std::vector<int> layers, std::vector<std::int64_t> heads)
      : layers_(std::move(layers)), heads_(std::move(heads)) {
    for (const std::int64_t head : heads_) bits_ |= head < 64 ? std::uint64_t{1} << head : 0;
  }

  // Item i of the next pass adds into *targets[i], whose row t reads row rows[i][t] of the weights.
  void expect(std::vector<std::vector<float>*> targets, std::vector<std::vector<std::int64_t>> rows) {
    targets_ = std::move(targets);
    rows_ = std::move(rows);
  }

  bool wants(const Site& site) const override {
    return site.stack == StackKind::decoder && site.part == Part::cross && site.point == Point::weights &&
           std::binary_search(layers_.begin(), layers_.end(), site.layer);
  }
  std::uint64_t heads(const Site&) const override { return bits_; }

  void visit(const Visit& visit, Tensor& weights) override {
    const auto item = static_cast<std::size_t>(visit.item);
    const std::int64_t queries = weights.shape()[1], keys = weights.shape()[2];
    const float share = 1.0f / static_cast<float>(layers_.size() * heads_.size());
    std::vector<float>& target = *targets_[item];
    for (std::size_t t = 0; t < rows_[item].size(); ++t) {
      float* const sum = target.data() + t * static_cast<std::size_t>(keys);
      for (const std::int64_t head : heads_) {
        const float* const row = weights.row(head * queries + rows_[item][t]);
        for (std::int64_t key = 0; key < keys; ++key) sum[key] += share * row[key];
      }
    }
  }

 private:
  std::vector<int> layers_;
  std::vector<std::int64_t> heads_;
  std::uint64_t bits_ = 0;
  std::vector<std::vector<float>*> targets_;
  std::vector<std::vector<std::int64_t>> rows_;
};

}  // namespace

std::vector<std::vector<float>> align(const Model& model, std::span<const AlignmentInput> inputs,
                                      const AlignmentOptions& options, std::int64_t batch_size) {
  const NoGradientScope no_gradients;
  AlignmentReader reader(chosen_layers(model.config(), options), chosen_heads(model.config(), options));
  RunOptions run;
  run.probe = &reader;
  std::vector<std::vector<float>> results(inputs.size());
  std::vector<std::int64_t> lengths;
  for (const AlignmentInput& input : inputs) lengths.push_back(static_cast<std::int64_t>(input.target.size()));
  for (const auto& batch : batches_by_length(lengths, batch_size)) {
    TokenBatch sources, tokens;
    std::vector<std::vector<float>*> targets;
    std::vector<std::vector<std::int64_t>> rows;
    for (const std::int64_t i : batch) {
      const AlignmentInput& input = inputs[static_cast<std::size_t>(i)];
      sources.append(input.source);
      std::vector<std::int32_t> reading(input.prompt.begin(), input.prompt.end());
      reading.insert(reading.end(), input.target.begin(), input.target.end() - 1);
      tokens.append(reading);
      results[static_cast<std::size_t>(i)].assign(input.target.size() * input.source.size(), 0.0f);
      targets.push_back(&results[static_cast<std::size_t>(i)]);
      auto& row = rows.emplace_back();
      const auto before = static_cast<std::int64_t>(input.prompt.size()) - 1,
                 last = static_cast<std::int64_t>(reading.size()) - 1;
      for (std::int64_t t = 0; t <= last - before; ++t)
        row.push_back(std::min(before + t + (options.after ? 1 : 0), last));
    }
    reader.expect(std::move(targets), std::move(rows));
    const States memory = model.encode(sources);
    model.decode(tokens, &memory, run);
  }
  return results;
}

}  // namespace attend
