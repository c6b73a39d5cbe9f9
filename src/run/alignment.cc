#include "run/alignment.h"

#include <algorithm>

#include "attend/error.h"
#include "attend/tape.h"

namespace attend {
namespace {

int checked_layer(const TransformerConfig& config, int layer) {
  const int layers = static_cast<int>(config.decoder->layers);
  if (layer < -layers || layer >= layers) {
    throw Error(ErrorKind::argument, "alignment", join("layer ", layer, " of a decoder of ", layers, " layers"),
                join("use 0 to ", layers - 1, ", or -1 for the last"));
  }
  return layer < 0 ? layer + layers : layer;
}

int checked_head(const TransformerConfig& config, int head) {
  const int heads = static_cast<int>(config.heads);
  if (head < -heads || head >= heads) {
    throw Error(ErrorKind::argument, "alignment", join("head ", head, " of ", heads, " heads"),
                join("use 0 to ", heads - 1, ", or -1 for the last"));
  }
  return head < 0 ? head + heads : head;
}

// The heads chosen, layers counted from 0, each once and in order.
std::vector<LayerHead> chosen_heads(const TransformerConfig& config, const AlignmentOptions& options) {
  if (!options.chosen.empty() && (!options.layers.empty() || !options.heads.empty())) {
    throw Error(ErrorKind::argument, "alignment", "single heads are chosen, and layers or heads beside them",
                "leave one of the two empty");
  }
  std::vector<LayerHead> result;
  for (const LayerHead& one : options.chosen)
    result.push_back({checked_layer(config, one.layer), checked_head(config, one.head)});
  if (result.empty()) {
    std::vector<int> layers = options.layers, heads = options.heads;
    if (layers.empty()) layers = {std::max(static_cast<int>(config.decoder->layers) - 2, 0)};
    for (int head = 0; options.heads.empty() && head < config.heads; ++head) heads.push_back(head);
    for (const int layer : layers)
      for (const int head : heads) result.push_back({checked_layer(config, layer), checked_head(config, head)});
  }
  std::sort(result.begin(), result.end());
  result.erase(std::unique(result.begin(), result.end()), result.end());
  return result;
}

// Sums the rows wanted as they come by, so that no weights are kept.
class AlignmentReader : public Probe {
 public:
  explicit AlignmentReader(std::vector<LayerHead> chosen) : chosen_(std::move(chosen)) {}

  // Item i of the next pass adds into *targets[i], whose row t reads row rows[i][t] of the weights.
  void expect(std::vector<std::vector<float>*> targets, std::vector<std::vector<std::int64_t>> rows) {
    targets_ = std::move(targets);
    rows_ = std::move(rows);
  }

  bool wants(const Site& site) const override {
    return site.stack == StackKind::decoder && site.part == Part::cross && site.point == Point::weights &&
           !heads_of(site.layer).empty();
  }
  std::uint64_t heads(const Site& site) const override {
    std::uint64_t bits = 0;
    for (const LayerHead& one : heads_of(site.layer)) bits |= one.head < 64 ? std::uint64_t{1} << one.head : 0;
    return bits;
  }

  void visit(const Visit& visit, Tensor& weights) override {
    const auto item = static_cast<std::size_t>(visit.item);
    const std::int64_t queries = weights.shape()[1], keys = weights.shape()[2];
    const float share = 1.0f / static_cast<float>(chosen_.size());
    std::vector<float>& target = *targets_[item];
    for (std::size_t t = 0; t < rows_[item].size(); ++t) {
      float* const sum = target.data() + t * static_cast<std::size_t>(keys);
      for (const LayerHead& one : heads_of(visit.site.layer)) {
        const float* const row = weights.row(one.head * queries + rows_[item][t]);
        for (std::int64_t key = 0; key < keys; ++key) sum[key] += share * row[key];
      }
    }
  }

 private:
  std::span<const LayerHead> heads_of(int layer) const {
    const auto begin = std::lower_bound(chosen_.begin(), chosen_.end(), LayerHead{layer, 0});
    const auto end = std::lower_bound(begin, chosen_.end(), LayerHead{layer + 1, 0});
    return {begin, end};
  }

  std::vector<LayerHead> chosen_;
  std::vector<std::vector<float>*> targets_;
  std::vector<std::vector<std::int64_t>> rows_;
};

}  // namespace

std::vector<std::vector<float>> align(const Model& model, std::span<const AlignmentInput> inputs,
                                      const AlignmentOptions& options, std::int64_t batch_size, Probe* probe) {
  const NoGradientScope no_gradients;
  AlignmentReader reader(chosen_heads(model.config(), options));
  ProbeList both({&reader});
  if (probe != nullptr) both = ProbeList({probe, &reader});
  RunOptions encoding, run;
  encoding.probe = probe;
  run.probe = &both;
  std::vector<std::vector<float>> results(inputs.size());
  std::vector<std::int64_t> lengths;
  for (const AlignmentInput& input : inputs) lengths.push_back(static_cast<std::int64_t>(input.target.size()));
  for (const auto& batch : batches_by_length(lengths, batch_size)) {
    TokenBatch sources, tokens;
    std::vector<std::int64_t> items;
    std::vector<std::vector<float>*> targets;
    std::vector<std::vector<std::int64_t>> rows;
    for (const std::int64_t i : batch) {
      const AlignmentInput& input = inputs[static_cast<std::size_t>(i)];
      sources.append(input.source);
      items.push_back(input.item);
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
    encoding.item_numbers = run.item_numbers = items;
    const States memory = model.encode(sources, encoding);
    model.decode(tokens, &memory, run);
  }
  return results;
}

}  // namespace attend
