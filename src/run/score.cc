#include <algorithm>
#include <string>

#include "attend/error.h"
#include "attend/generate.h"
#include "attend/tape.h"
#include "kernel/rowwise/rowwise.h"
#include "run/options.h"
#include "run/steps.h"

namespace attend {
namespace {

constexpr std::int64_t block_rows = 256;  // logits of so many rows exist at a time

// The rows of an input that are judged stand one after the other, from `begin` of all judged rows on.
struct JudgedRows {
  std::int64_t item, begin, first_position;
};

// Logits of judged rows [begin, begin + rows), whose items and positions a probe is told.
Tensor judge(const Model& model, const Tensor& rows, std::span<const JudgedRows> judged, std::int64_t begin,
             Probe* probe) {
  if (probe == nullptr) return model.logits(rows);
  const std::int64_t end = begin + rows.rows();
  States states{rows, {0}};
  std::vector<std::int64_t> items, first_positions;
  for (std::size_t i = 0; i < judged.size(); ++i) {
    const std::int64_t first = std::max(begin, judged[i].begin);
    const std::int64_t last = i + 1 < judged.size() ? std::min(end, judged[i + 1].begin) : end;
    if (first >= last) continue;
    states.offsets.push_back(last - begin);
    items.push_back(judged[i].item);
    first_positions.push_back(judged[i].first_position + first - judged[i].begin);
  }
  RunOptions options;
  options.probe = probe;
  options.item_numbers = items;
  return model.logits(states, options, first_positions);
}

void check_inputs(const Model& model, std::span<const ScoreInput> inputs) {
  const std::int64_t positions = model.config().max_positions;
  for (std::size_t i = 0; i < inputs.size(); ++i) {
    const ScoreInput& input = inputs[i];
    const std::string where = join("input ", i);
    check_source(model, input.source, where);
    check_ids(input.ids, model.config().decoder->vocabulary, where, "the sequence");
    const auto length = static_cast<std::int64_t>(input.ids.size());
    if (input.given < 1 || input.given > length) {
      throw Error(ErrorKind::argument, where,
                  join(input.given, " of ", length, " tokens are given; at least the first must be"),
                  "begin with the token that begins sequences, usually bos");
    }
    if (length - 1 > positions) {
      throw Error(ErrorKind::argument, where,
                  join("the sequence has ", length, " tokens and the model ", positions, " positions"),
                  join("shorten it to ", positions + 1, " tokens"));
    }
  }
}

}  // namespace

std::vector<std::vector<float>> score(const Model& model, std::span<const ScoreInput> inputs, std::int64_t batch_size,
                                      Probe* probe) {
  if (!model.config().decoder || model.config().decoder->vocabulary == 0) {
    throw Error(ErrorKind::argument, "score", "the model has no decoder of tokens", "use a model that generates");
  }
  check_inputs(model, inputs);
  const NoGradientScope no_gradients;
  std::vector<std::vector<float>> results(inputs.size());
  std::vector<std::int64_t> lengths;
  for (const ScoreInput& input : inputs) lengths.push_back(static_cast<std::int64_t>(input.ids.size()));

  std::vector<std::int64_t> rows, items;
  std::vector<JudgedRows> judged;
  std::vector<std::int32_t> labels;
  std::vector<float> losses, block_losses;
  for (const auto& batch : batches_by_length(lengths, batch_size)) {
    TokenBatch sources, tokens;
    rows.clear();
    items.clear();
    judged.clear();
    labels.clear();
    for (const std::int64_t i : batch) {
      const ScoreInput& input = inputs[static_cast<std::size_t>(i)];
      if (input.given == static_cast<std::int64_t>(input.ids.size())) continue;  // nothing to judge
      if (!input.source.empty()) sources.append(input.source);
      const std::int64_t first = tokens.rows();
      items.push_back(i);
      judged.push_back({i, static_cast<std::int64_t>(rows.size()), input.given - 1});
      tokens.append(std::span(input.ids).first(input.ids.size() - 1));
      for (auto t = static_cast<std::size_t>(input.given); t < input.ids.size(); ++t) {
        rows.push_back(first + static_cast<std::int64_t>(t) - 1);
        labels.push_back(input.ids[t]);
      }
    }
    if (tokens.items() == 0) continue;
    RunOptions options;
    options.probe = probe;
    options.item_numbers = items;
    States memory;
    if (model.config().encoder) memory = model.encode(sources, options);
    const States states = model.decode(tokens, model.config().encoder ? &memory : nullptr, options);
    losses.clear();
    for (std::size_t begin = 0; begin < rows.size(); begin += block_rows) {
      const std::size_t count = std::min(rows.size() - begin, static_cast<std::size_t>(block_rows));
      Tensor logits = judge(model, select_rows(states.rows, std::span(rows).subspan(begin, count)), judged,
                            static_cast<std::int64_t>(begin), probe);
      label_losses(logits, std::span(labels).subspan(begin, count), block_losses);
      losses.insert(losses.end(), block_losses.begin(), block_losses.end());
    }
    std::size_t next = 0;
    for (const std::int64_t i : batch) {
      const ScoreInput& input = inputs[static_cast<std::size_t>(i)];
      for (auto t = static_cast<std::size_t>(input.given); t < input.ids.size(); ++t, ++next) {
        if (!(losses[next] - losses[next] == 0)) {
          throw Error(ErrorKind::numeric, join("input ", i),
                      join("the log-probability of token ", t, " is NaN or infinite"), "check the model's weights");
        }
        results[static_cast<std::size_t>(i)].push_back(-losses[next]);
      }
    }
  }
  return results;
}

}  // namespace attend
