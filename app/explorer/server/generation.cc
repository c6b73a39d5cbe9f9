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

namespace {

DecodeOptions options_of(const GenerationRequest& request, const StopSignal& stop) {
  DecodeOptions options;
  options.strategy = request.strategy;
  options.temperature = request.temperature;
  options.top_k = request.top_k;
  options.top_p = request.top_p;
  options.seed = request.seed;
  options.beam_size = request.beams;
  options.n_best = request.strategy == Strategy::beam ? request.n_best : 1;
  options.max_length = request.steps;
  options.cancelled = [&stop] { return stop.stopped(); };
  return options;
}

// Watches a generation: what was likely at every step, and for beam search the tree.
class Watcher {
 public:
  Watcher(const GenerationRequest& request, Generation& result)
      : request_(request), result_(result), forced_(static_cast<std::int64_t>(request.prefix.size())) {}

  void see_logits(const Tensor& rows, std::span<const std::int64_t> offsets) {
    if (!beam() || likely_.empty()) {
      // The first step has a row for every forced token and one more.
      for (std::int64_t row = 0; row < rows.rows(); ++row)
        likely_.push_back(likely_tokens(row_of(rows, row), request_.top));
      return;
    }
    for (std::size_t item = 0; item + 1 < offsets.size(); ++item) {
      const std::int64_t node = followed_[item];
      if (node >= 0) node_of(node).next = likely_tokens(row_of(rows, offsets[item + 1] - 1), request_.top);
    }
  }

  // Comes before the logits of its step.
  void see_weights(std::int64_t item, const Tensor& rows) {
    const std::int64_t queries = rows.shape()[1];
    if (followed_.empty()) {
      for (std::int64_t query = watched_.empty() ? queries - forced_ - 1 : 0; query < queries; ++query)
        watched_.push_back(watched_row(rows, query));
    } else if (const std::int64_t node = followed_[static_cast<std::size_t>(item)]; node >= 0) {
      node_of(node).watched = watched_row(rows, queries - 1);
    }
  }

  void see_beam(const BeamEvent& event) {
    if (followed_.empty()) {
      // The forced tokens are a stem; their probabilities are known when the search is done.
      std::int64_t parent = -1;
      for (std::int64_t step = 0; step < forced_; ++step)
        parent = add_node({parent, step, request_.prefix[static_cast<std::size_t>(step)], 0, false, false,
                           likely_[static_cast<std::size_t>(step + 1)],
                           watched_.empty() ? WatchedRow{} : watched_[static_cast<std::size_t>(step + 1)]});
      followed_.push_back(parent);
    }
    std::vector<std::int64_t> next;
    const auto add = [&](const BeamEvent::Extension& extension, bool ended) {
      return add_node({followed_[static_cast<std::size_t>(extension.parent)],
                       event.length - 1,
                       extension.id,
                       extension.log_probability,
                       ended,
                       false,
                       {},
                       {}});
    };
    for (const BeamEvent::Extension& extension : event.followed) next.push_back(add(extension, false));
    for (const BeamEvent::Extension& extension : event.ended) add(extension, true);
    followed_ = std::move(next);
  }

  // The best result first.
  void take(Hypothesis hypothesis) {
    const std::vector<std::int64_t> path = beam() ? path_of(hypothesis) : std::vector<std::int64_t>{};
    if (result_.results.empty()) take_steps(hypothesis, path);
    result_.results.push_back({path.empty() ? -1 : path.back(), std::move(hypothesis)});
  }

 private:
  bool beam() const { return request_.strategy == Strategy::beam; }
  GenerationNode& node_of(std::int64_t node) { return result_.nodes[static_cast<std::size_t>(node)]; }
  std::int64_t add_node(GenerationNode node) {
    result_.nodes.push_back(std::move(node));
    return static_cast<std::int64_t>(result_.nodes.size()) - 1;
  }

  // The way through the tree: no two beginnings are alike, so tokens lead it. Marks what it goes over.
  std::vector<std::int64_t> path_of(const Hypothesis& hypothesis) {
    std::vector<std::int64_t> path;
    std::int64_t node = -1;
    for (std::size_t step = 0; step < hypothesis.ids.size(); ++step) {
      const auto found = std::find_if(result_.nodes.begin(), result_.nodes.end(), [&](const GenerationNode& each) {
        return each.parent == node && each.token == hypothesis.ids[step];
      });
      if (found == result_.nodes.end()) break;
      node = found - result_.nodes.begin();
      found->kept = true;
      if (static_cast<std::int64_t>(step) < forced_) found->log_probability = hypothesis.log_probabilities[step];
      path.push_back(node);
    }
    return path;
  }

  void take_steps(const Hypothesis& hypothesis, const std::vector<std::int64_t>& path) {
    for (std::size_t step = 0; step < hypothesis.ids.size(); ++step) {
      GenerationStep& place = result_.steps.emplace_back();
      place.id = hypothesis.ids[step];
      place.log_probability = hypothesis.log_probabilities[step];
      place.forced = static_cast<std::int64_t>(step) < forced_;
      if (!beam()) place.top = likely_[step];
      else if (step == 0) place.top = likely_.front();
      else if (step - 1 < path.size()) place.top = node_of(path[step - 1]).next;
      if (!request_.watch) continue;
      if (!beam()) place.watched = watched_[step];
      else if (step == 0) place.watched = watched_.front();
      else if (step - 1 < path.size()) place.watched = node_of(path[step - 1]).watched;
    }
  }

  const GenerationRequest& request_;
  Generation& result_;
  const std::int64_t forced_;
  // What was likely where each token of the only sequence was chosen; of beam search after each beginning on the beam.
  std::vector<std::vector<Likely>> likely_;
  std::vector<WatchedRow> watched_;     // the same for what the watched attention read
  std::vector<std::int64_t> followed_;  // nodes that the next step reads, in its order; -1 before the first token
};

}  // namespace

Generation generate_openly(const LoadedModel& model, const ModelInput& input, const RunEdits& edits,
                           const GenerationRequest& request, const StopSignal& stop) {
  const NoGradientScope no_gradients;
  const Tokenizer& tokenizer = *model.folder.target;
  Generation result;
  DecodeInput one;
  one.source = input.source;
  one.prompt = input.source.empty() ? input.ids : std::vector<std::int32_t>{first_token(tokenizer)};
  one.prefix = request.prefix;
  result.prompt = static_cast<std::int64_t>(one.prompt.size());

  Watcher watcher(request, result);
  LogitsProbe logits(
      [&](const Tensor& rows, std::span<const std::int64_t> offsets) { watcher.see_logits(rows, offsets); });
  std::optional<WeightsProbe> weights;
  if (request.watch)
    weights.emplace(*request.watch, [&](std::int64_t item, const Tensor& rows) { watcher.see_weights(item, rows); });
  const std::unique_ptr<EditingProbe> editing = edits.probe(model);
  std::vector<Probe*> probes;
  if (editing) probes.push_back(editing.get());
  if (weights) probes.push_back(&*weights);
  probes.push_back(&logits);
  ProbeList list(std::move(probes));
  DecodeOptions options = options_of(request, stop);
  options.probe = &list;
  if (request.strategy == Strategy::beam) options.on_beam = [&](const BeamEvent& event) { watcher.see_beam(event); };
  std::vector<Hypothesis> hypotheses =
      std::move(attend::generate(model.folder.model, std::span(&one, 1), with_tokens_of(tokenizer, options)).front());
  for (Hypothesis& hypothesis : hypotheses) watcher.take(std::move(hypothesis));
  if (request.watch) {
    for (std::size_t step = 0; step < result.steps.size(); ++step)
      result.steps[step].evicted = edits.evicted(*request.watch, result.prompt + static_cast<std::int64_t>(step) - 1,
                                                 result.steps[step].watched.keys);
  }
  return result;
}

void write_generation(JsonWriter& out, const LoadedModel& model, const ModelInput& input, const Generation& generation,
                      const GenerationRequest& request) {
  const Tokenizer& tokenizer = *model.folder.target;
  const TransformerConfig& config = model.config();
  const std::int64_t row_bytes = config.decoder->layers * 2 * config.key_head_count() * config.head_width() *
                                 static_cast<std::int64_t>(sizeof(float));
  const std::vector<std::int32_t> before = input.source.empty() ? input.ids : std::vector<std::int32_t>{};
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
      out.field("evicted", one.evicted);
    }
    out.key("cache").begin_object().field("tokens", tokens).field("bytes", tokens * row_bytes).end_object();
    out.end_object();
  }
  out.end_array();
  out.field("cross_cache_bytes", static_cast<std::int64_t>(input.source.size()) * row_bytes);
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
