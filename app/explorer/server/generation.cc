#include "explorer/generation.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <numeric>
#include <utility>

#include "attend/tape.h"
#include "attend/translate.h"

namespace attend::explorer {
namespace {

// Looks at the logits of every step as they are after the edits.
class LogitsProbe : public Probe {
 public:
  // Called with all rows of a step and the first row of each sequence.
  using Take = std::function<void(const Tensor& logits, std::span<const std::int64_t> offsets)>;
  explicit LogitsProbe(Take take) : take_(std::move(take)) {}
  bool wants(const Site& site) const override { return site.layer < 0 && site.point == Point::logits; }
  void visit(const Visit& visit, Tensor& value) override { take_(value, visit.offsets); }

 private:
  Take take_;
};

// Keeps the weights of one attention as the cached steps compute them.
class WeightsProbe : public Probe {
 public:
  using Take = std::function<void(std::int64_t item, const Tensor& weights)>;  // [heads, queries, keys]
  WeightsProbe(const AttentionPlace& place, Take take) : place_(place), take_(std::move(take)) {}
  bool wants(const Site& site) const override {
    return site.point == Point::weights && site.stack == place_.stack && site.layer == place_.layer &&
           site.part == place_.part;
  }
  void visit(const Visit& visit, Tensor& value) override { take_(visit.item, value); }

 private:
  AttentionPlace place_;
  Take take_;
};

WatchedRow watched_row(const Tensor& weights, std::int64_t query) {
  const std::int64_t heads = weights.shape()[0], queries = weights.shape()[1], keys = weights.shape()[2];
  WatchedRow row{keys, {}};
  row.weights.reserve(static_cast<std::size_t>(heads * keys));
  for (std::int64_t head = 0; head < heads; ++head) {
    const float* from = weights.data() + (head * queries + query) * keys;
    row.weights.insert(row.weights.end(), from, from + keys);
  }
  return row;
}

std::span<const float> row_of(const Tensor& logits, std::int64_t row) {
  return {logits.row(row), static_cast<std::size_t>(logits.width())};
}

// The tokens with their blank in front, without control tokens.
std::string text_after(const Tokenizer& tokenizer, std::span<const std::int32_t> before,
                       std::span<const std::int32_t> ids) {
  StreamDecoder decoder(tokenizer);
  for (const std::int32_t id : before) decoder.push(id);
  std::string text;
  for (const std::int32_t id : ids) text += decoder.push(id);
  return text + decoder.finish();
}

}  // namespace

std::vector<Likely> likely_tokens(std::span<const float> logits, std::int64_t top) {
  const auto size = static_cast<std::int64_t>(logits.size());
  const Tensor logs = log_softmax(Tensor::from({1, size}, logits));
  std::vector<std::int32_t> order(logits.size());
  std::iota(order.begin(), order.end(), 0);
  const auto kept = static_cast<std::ptrdiff_t>(std::min(top, size));
  const auto logit = [&](std::int32_t id) { return logits[static_cast<std::size_t>(id)]; };
  std::partial_sort(order.begin(), order.begin() + kept, order.end(),
                    [&](std::int32_t a, std::int32_t b) { return logit(a) != logit(b) ? logit(a) > logit(b) : a < b; });
  std::vector<Likely> result;
  for (std::ptrdiff_t i = 0; i < kept; ++i) {
    const std::int32_t id = order[static_cast<std::size_t>(i)];
    result.push_back({id, logit(id), std::exp(logs.data()[id])});
  }
  return result;
}

void write_likely(JsonWriter& out, const Tokenizer& tokenizer, std::span<const Likely> tokens) {
  out.begin_array();
  for (const Likely& token : tokens) {
    out.begin_object();
    out.field("id", token.id);
    out.field("text", tokenizer.readable(token.id));
    out.field("logit", token.logit);
    out.field("probability", token.probability);
    out.end_object();
  }
  out.end_array();
}

Generation generate_openly(const LoadedModel& model, const PreparedInput& input, const RunEdits& edits,
                           const GenerationRequest& request, const StopSignal& stop) {
  const NoGradientScope no_gradients;
  const bool pair = !input.encoder.empty();
  const Tokenizer& tokenizer = *model.folder.target;
  Generation result;
  DecodeInput one;
  one.source = input.encoder;
  one.prompt = pair ? std::vector<std::int32_t>{first_token(tokenizer)} : input.decoder;
  one.prefix = request.prefix;
  result.prompt = static_cast<std::int64_t>(one.prompt.size());
  const auto forced = static_cast<std::int64_t>(request.prefix.size());

  DecodeOptions options;
  options.strategy = request.strategy;
  options.temperature = request.temperature;
  options.top_k = request.top_k;
  options.top_p = request.top_p;
  options.seed = request.seed;
  options.beam_size = request.beams;
  options.n_best = request.strategy == Strategy::beam ? request.n_best : 1;
  options.max_length = request.steps;
  options.cancelled = [&] { return stop.stopped(); };

  // What was likely where each token of the only sequence was chosen; of beam search after each beginning on the beam.
  std::vector<std::vector<Likely>> likely;
  std::vector<std::int64_t> followed;  // nodes that the next step reads, in its order; -1 before the first token
  LogitsProbe logits([&](const Tensor& rows, std::span<const std::int64_t> offsets) {
    if (request.strategy != Strategy::beam || likely.empty()) {
      // The first step has a row for every forced token and one more.
      for (std::int64_t row = 0; row < rows.rows(); ++row)
        likely.push_back(likely_tokens(row_of(rows, row), request.top));
      return;
    }
    for (std::size_t item = 0; item + 1 < offsets.size(); ++item) {
      const std::int64_t node = followed[item];
      if (node >= 0)
        result.nodes[static_cast<std::size_t>(node)].next =
            likely_tokens(row_of(rows, offsets[item + 1] - 1), request.top);
    }
  });
  std::vector<WatchedRow> watched;
  std::optional<WeightsProbe> weights;
  if (request.watch)
    weights.emplace(*request.watch, [&](std::int64_t item, const Tensor& rows) {
      const std::int64_t queries = rows.shape()[1];
      if (followed.empty()) {
        for (std::int64_t query = watched.empty() ? queries - forced - 1 : 0; query < queries; ++query)
          watched.push_back(watched_row(rows, query));
      } else if (const std::int64_t node = followed[static_cast<std::size_t>(item)]; node >= 0) {
        result.nodes[static_cast<std::size_t>(node)].watched = watched_row(rows, queries - 1);
      }
    });
  const std::unique_ptr<EditingProbe> editing = edits.probe(model);
  std::vector<Probe*> probes;
  if (editing) probes.push_back(editing.get());
  if (weights) probes.push_back(&*weights);
  probes.push_back(&logits);
  ProbeList list(std::move(probes));
  options.probe = &list;

  if (request.strategy == Strategy::beam) {
    options.on_beam = [&](const BeamEvent& event) {
      if (followed.empty()) {
        // The forced tokens are a stem; their probabilities are known when the search is done.
        std::int64_t parent = -1;
        for (std::int64_t step = 0; step < forced; ++step) {
          result.nodes.push_back({parent, step, request.prefix[static_cast<std::size_t>(step)], 0, false, false,
                                  likely[static_cast<std::size_t>(step + 1)],
                                  watched.empty() ? WatchedRow{} : watched[static_cast<std::size_t>(step + 1)]});
          parent = static_cast<std::int64_t>(result.nodes.size()) - 1;
        }
        followed.push_back(parent);
      }
      std::vector<std::int64_t> next;
      const auto add = [&](const BeamEvent::Extension& extension, bool ended) {
        result.nodes.push_back({followed[static_cast<std::size_t>(extension.parent)],
                                event.length - 1,
                                extension.id,
                                extension.log_probability,
                                ended,
                                false,
                                {},
                                {}});
        if (!ended) next.push_back(static_cast<std::int64_t>(result.nodes.size()) - 1);
      };
      for (const BeamEvent::Extension& extension : event.followed) add(extension, false);
      for (const BeamEvent::Extension& extension : event.ended) add(extension, true);
      followed = std::move(next);
    };
  }
  std::vector<Hypothesis> hypotheses =
      std::move(attend::generate(model.folder.model, std::span(&one, 1), with_tokens_of(tokenizer, options)).front());

  for (Hypothesis& hypothesis : hypotheses) {
    // The path through the tree: no two beginnings are alike, so tokens lead the way.
    std::int64_t node = -1;
    std::vector<std::int64_t> path;
    if (request.strategy == Strategy::beam) {
      for (std::size_t step = 0; step < hypothesis.ids.size(); ++step) {
        const auto found = std::find_if(result.nodes.begin(), result.nodes.end(), [&](const GenerationNode& each) {
          return each.parent == node && each.token == hypothesis.ids[step];
        });
        if (found == result.nodes.end()) break;
        node = found - result.nodes.begin();
        found->kept = true;
        if (static_cast<std::int64_t>(step) < forced) found->log_probability = hypothesis.log_probabilities[step];
        path.push_back(node);
      }
    }
    if (result.results.empty()) {
      for (std::size_t step = 0; step < hypothesis.ids.size(); ++step) {
        GenerationStep& place = result.steps.emplace_back();
        place.id = hypothesis.ids[step];
        place.log_probability = hypothesis.log_probabilities[step];
        place.forced = static_cast<std::int64_t>(step) < forced;
        if (request.strategy != Strategy::beam) place.top = likely[step];
        else if (step == 0) place.top = likely.front();
        else if (step - 1 < path.size()) place.top = result.nodes[static_cast<std::size_t>(path[step - 1])].next;
        if (!request.watch) continue;
        if (request.strategy != Strategy::beam) place.watched = watched[step];
        else if (step == 0) place.watched = watched.front();
        else if (step - 1 < path.size()) place.watched = result.nodes[static_cast<std::size_t>(path[step - 1])].watched;
      }
    }
    result.results.push_back({node, std::move(hypothesis)});
  }
  return result;
}

void write_generation(JsonWriter& out, const LoadedModel& model, const PreparedInput& input,
                      const Generation& generation, const GenerationRequest& request) {
  const Tokenizer& tokenizer = *model.folder.target;
  const TransformerConfig& config = model.config();
  const std::int64_t row_bytes = config.decoder->layers * 2 * config.key_head_count() * config.head_width() *
                                 static_cast<std::int64_t>(sizeof(float));
  const std::vector<std::int32_t> before = input.encoder.empty() ? input.decoder : std::vector<std::int32_t>{};
  out.key("steps").begin_array();
  for (std::size_t step = 0; step < generation.steps.size(); ++step) {
    const GenerationStep& one = generation.steps[step];
    out.begin_object();
    out.field("index", step);
    out.field("id", one.id);
    out.field("text", tokenizer.readable(one.id));
    out.field("log_probability", one.log_probability);
    out.field("forced", one.forced);
    out.key("top");
    write_likely(out, tokenizer, one.top);
    const std::int64_t tokens = generation.prompt + static_cast<std::int64_t>(step);
    if (request.watch) {
      out.key("weights").begin_array();
      for (std::size_t begin = 0; begin < one.watched.weights.size();
           begin += static_cast<std::size_t>(one.watched.keys))
        out.value(
            std::span<const float>(one.watched.weights).subspan(begin, static_cast<std::size_t>(one.watched.keys)));
      out.end_array();
    }
    out.key("cache").begin_object().field("tokens", tokens).field("bytes", tokens * row_bytes).end_object();
    out.end_object();
  }
  out.end_array();
  out.field("cross_cache_bytes", static_cast<std::int64_t>(input.encoder.size()) * row_bytes);
  const Hypothesis& best = generation.results.front().hypothesis;
  out.field("ended", best.finished);
  out.field("text", text_after(tokenizer, before, best.ids));
  if (request.watch) out.field("watch", name_of(*request.watch));
  if (request.strategy != Strategy::beam) return;
  out.key("tree").begin_object();
  out.key("nodes").begin_array();
  for (std::size_t id = 0; id < generation.nodes.size(); ++id) {
    const GenerationNode& node = generation.nodes[id];
    out.begin_object();
    out.field("id", id);
    out.field("parent", node.parent);
    out.field("step", node.step);
    out.field("token", node.token);
    out.field("text", tokenizer.readable(node.token));
    out.field("log_probability", node.log_probability);
    out.field("ended", node.ended);
    out.field("kept", node.kept);
    out.end_object();
  }
  out.end_array();
  out.key("hypotheses").begin_array();
  for (const Generation::Result& one : generation.results) {
    out.begin_object();
    out.field("node", one.node);
    out.field("text", text_after(tokenizer, before, one.hypothesis.ids));
    out.field("log_probability", one.hypothesis.total);
    out.field("score", one.hypothesis.score);
    out.field("ended", one.hypothesis.finished);
    out.end_object();
  }
  out.end_array();
  out.end_object();
}

}  // namespace attend::explorer
