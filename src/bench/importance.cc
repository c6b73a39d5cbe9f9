#include <algorithm>
#include <cmath>
#include <vector>

#include "attend/bench.h"
#include "attend/error.h"
#include "attend/threads.h"
#include "bench/machine_peak.h"
#include "core/random.h"

namespace attend {
namespace {

// As somebody would run it who knows nothing of cuts: encode, decode, look at the target.
double whole_run(const Model& model, const ModelInput& input, const Target& target, const Edge* cut) {
  ScoreEditor editor;
  if (cut) {
    ScoreEdit edit;
    edit.head = cut->head.head;
    edit.query = cut->query;
    edit.key = cut->key;
    editor.add(cut->head.stack, cut->head.layer, cut->head.part, edit);
  }
  RunOptions options;
  if (cut) options.probe = &editor;
  States memory;
  if (model.config().encoder) {
    TokenBatch source;
    source.append(input.source);
    memory = model.encode(source, options);
  }
  TokenBatch ids;
  ids.append(input.ids);
  const Tensor states = model.decode(ids, model.config().encoder ? &memory : nullptr, options).rows;
  if (target.kind == Target::Kind::log_probability) return -model.loss(states, target.labels).plain;
  const std::int64_t row = target.position < 0 ? states.rows() - 1 : target.position;
  const Tensor logits = model.logits(states.row_range(row, 1));
  const double other = target.kind == Target::Kind::difference ? static_cast<double>(logits.at(0, target.other)) : 0.0;
  return static_cast<double>(logits.at(0, target.token)) - other;
}

// Every edge of the model once, in a random order.
std::vector<Edge> random_edges(const Model& model, const ModelInput& input, std::int64_t count) {
  std::vector<Edge> edges;
  const auto source = static_cast<std::int64_t>(input.source.size()), ids = static_cast<std::int64_t>(input.ids.size());
  for (const HeadPlace& head : heads_of(model)) {
    const bool encoder = head.stack == StackKind::encoder, cross = head.part == Part::cross;
    for (std::int64_t query = 0; query < (encoder ? source : ids); ++query)
      for (std::int64_t key = 0; key < (encoder || cross ? source : query + 1); ++key)
        edges.push_back({head, query, key});
  }
  Random random(1);
  const auto wanted = std::min(static_cast<std::size_t>(count), edges.size());
  for (std::size_t i = 0; i < wanted; ++i) std::swap(edges[i], edges[i + random.below(edges.size() - i)]);
  edges.resize(wanted);
  return edges;
}

struct CutSpeed {
  double exact_seconds = 0, whole_seconds = 0, speedup = 0, largest_effect = 0, largest_difference = 0;
};

CutSpeed bench_cuts(const Model& model, const ModelInput& input, const Target& target, std::span<const Edge> edges,
                    std::int64_t rounds) {
  CutSpeed speed;
  std::vector<double> exact, whole(edges.size()), exacts, wholes, speedups;
  for (std::int64_t round = 0; round < rounds; ++round) {
    double begin = seconds_now();
    exact = exact_effects(model, input, target, edges);
    const double fast = seconds_now() - begin;
    begin = seconds_now();
    const double base = whole_run(model, input, target, nullptr);
    for (std::size_t i = 0; i < edges.size(); ++i) whole[i] = whole_run(model, input, target, &edges[i]) - base;
    const double slow = seconds_now() - begin;
    exacts.push_back(fast);
    wholes.push_back(slow);
    speedups.push_back(slow / fast);
  }
  for (std::size_t i = 0; i < edges.size(); ++i) {
    speed.largest_effect = std::max(speed.largest_effect, std::fabs(whole[i]));
    speed.largest_difference = std::max(speed.largest_difference, std::fabs(whole[i] - exact[i]));
  }
  if (!(speed.largest_difference <= largest_cut_error * std::max(1.0, speed.largest_effect)))
    throw Error(ErrorKind::numeric, "bench importance",
                join("cuts differ from whole runs by ", speed.largest_difference, ", more than ", largest_cut_error),
                "cutting is wrong on this machine");
  speed.exact_seconds = median(exacts);
  speed.whole_seconds = median(wholes);
  speed.speedup = median(speedups);
  return speed;
}

}  // namespace

ImportanceSpeed bench_importance(const Model& model, const ModelInput& input, const Target& target, std::int64_t cuts,
                                 std::int64_t rounds) {
  if (!model.config().decoder || (model.config().encoder && model.config().encoder->vocabulary == 0))
    throw Error(ErrorKind::argument, "bench importance", "the model has no decoder of tokens",
                "give a translator or a language model");
  ImportanceSpeed speed;
  speed.source_tokens = static_cast<std::int64_t>(input.source.size());
  speed.target_tokens = static_cast<std::int64_t>(input.ids.size());
  speed.threads = threads();
  EdgeOptions options;
  options.weight = options.write = false;
  const auto first_order = [&] { return edge_effects(model, input, target, options); };
  for (const HeadEdges& head : first_order().heads) speed.edges += head.first_order.elements();

  // One after the other in turns, many times: a noisy neighbour slows both.
  std::vector<double> ratios, forwards, orders;
  for (std::int64_t turn = 0; turn < 40 * rounds; ++turn) {
    double begin = seconds_now();
    whole_run(model, input, target, nullptr);
    const double forward = seconds_now() - begin;
    begin = seconds_now();
    first_order();
    const double order = seconds_now() - begin;
    if (turn < 5) continue;
    forwards.push_back(1e3 * forward);
    orders.push_back(1e3 * order);
    ratios.push_back(order / forward);
  }
  speed.forward_milliseconds = median(forwards);
  speed.first_order_milliseconds = median(orders);
  speed.first_order_ratio = median(ratios);

  options.top = cuts;
  std::vector<Edge> largest;
  for (const MeasuredEdge& edge : edge_effects(model, input, target, options).edges) largest.push_back(edge.edge);
  speed.cuts = static_cast<std::int64_t>(largest.size());
  const CutSpeed of_largest = bench_cuts(model, input, target, largest, rounds);
  speed.exact_seconds = of_largest.exact_seconds;
  speed.whole_seconds = of_largest.whole_seconds;
  speed.exact_speedup = of_largest.speedup;
  const CutSpeed of_random = bench_cuts(model, input, target, random_edges(model, input, cuts), rounds);
  speed.random_exact_seconds = of_random.exact_seconds;
  speed.random_exact_speedup = of_random.speedup;
  speed.largest_effect = std::max(of_largest.largest_effect, of_random.largest_effect);
  speed.largest_difference = std::max(of_largest.largest_difference, of_random.largest_difference);
  return speed;
}

}  // namespace attend
