#include "explorer/importance_answer.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "explorer/api_error.h"

namespace attend::explorer {
namespace {

// Weights, writes and first-order effects of so many edges at most are held as matrices.
constexpr std::int64_t most_matrix_cells = std::int64_t{8} << 20;

bool has(const std::vector<EdgeMeasure>& methods, EdgeMeasure method) {
  return std::find(methods.begin(), methods.end(), method) != methods.end();
}

AttentionPlace place_of(const HeadPlace& head) { return {head.stack, head.layer, head.part}; }

// What the contract tells: how much the target falls.
double told(const MeasuredEdge& edge, EdgeMeasure method) {
  const double value = edge.value(method);
  return method == EdgeMeasure::first_order || method == EdgeMeasure::exact ? -value : value;
}

void check_index(const char* name, std::int64_t index, std::int64_t size) {
  if (index >= size) throw Error(ErrorKind::argument, name, join("is ", index), join("there are 0 to ", size - 1));
}

}  // namespace

void write_importance(JsonWriter& out, const Run& run, const ImportanceRequest& request, const Limits& limits,
                      const StopSignal& stop) {
  const Model& engine = run.model().folder.model;
  const TransformerConfig& config = engine.config();
  if (!run.predicts())
    throw Error(ErrorKind::argument, "target", join(run.model().name, " predicts no tokens"), "choose another model");
  if (!run.edits().key().empty())
    throw Error(ErrorKind::argument, "edits", "are not taken into account by this measure",
                "leave them out, or switch them off");
  attend::ModelInput input;
  input.source = run.input().encoder;
  input.ids = run.input().decoder;

  const std::int64_t row = request.row.value_or(run.predictions() - 1);
  check_index("target.row", row, run.predictions());
  const Tensor logits = run.logits(row, row + 1);
  std::int32_t token = request.token.value_or(-1);
  if (token < 0)
    token = static_cast<std::int32_t>(std::max_element(logits.data(), logits.data() + logits.width()) - logits.data());
  check_index("target.token", token, logits.width());
  if (request.versus) check_index("target.versus", *request.versus, logits.width());
  const Target target = request.versus ? difference_of(token, *request.versus, row) : logit_of(token, row);

  EdgeOptions options;
  if (request.place)
    options.heads.push_back(
        {request.place->stack, request.place->layer, request.place->part, static_cast<int>(request.head.value_or(-1))});
  if (request.head) check_index("head", *request.head, config.heads);
  const std::int64_t encoder_rows = static_cast<std::int64_t>(input.source.size()),
                     decoder_rows = static_cast<std::int64_t>(input.ids.size());
  std::int64_t cells = 0;
  for (const AttentionPlace& place : attentions_of(config)) {
    if (request.place && place != *request.place) continue;
    const std::int64_t queries = place.stack == StackKind::encoder ? encoder_rows : decoder_rows;
    const std::int64_t keys = place.part == Part::cross ? encoder_rows : queries;
    if (request.query) check_index("query", *request.query, queries);
    cells += config.heads * queries * keys;
  }
  options.weight = options.write = true;
  options.first_order = has(request.methods, EdgeMeasure::first_order);
  // What chooses the edges: the best of the methods that are cheap for all.
  options.by = options.first_order                        ? EdgeMeasure::first_order
               : has(request.methods, EdgeMeasure::write) ? EdgeMeasure::write
                                                          : EdgeMeasure::weight;
  if (!request.query && cells > most_matrix_cells) options.top = request.top;
  stop.check();
  const EdgeReport report = edge_effects(engine, input, target, options);

  std::vector<MeasuredEdge> edges = report.edges;
  if (request.query) {
    for (const HeadEdges& head : report.heads) {
      for (std::int64_t key = 0; key < head.weight.shape()[1]; ++key) {
        MeasuredEdge edge;
        edge.edge = {head.head, *request.query, key};
        edge.weight = head.weight.at(*request.query, key);
        if (edge.weight == 0) continue;  // the mask hides it
        edge.write = head.write.at(*request.query, key);
        if (head.first_order.defined()) edge.first_order = head.first_order.at(*request.query, key);
        edges.push_back(edge);
      }
    }
  } else if (options.top == 0) {
    edges = report.largest(options.by, request.top);
  }
  if (has(request.methods, EdgeMeasure::exact)) {
    if (static_cast<std::int64_t>(edges.size()) > limits.exact_edges)
      throw over_limit("importance", "edges to cut", edges.size(), limits.exact_edges,
                       "narrow them by attention, head and query");
    // Some at a time, so that a newer request need not wait.
    constexpr std::size_t at_once = 256;
    for (std::size_t begin = 0; begin < edges.size(); begin += at_once) {
      stop.check();
      measure_exactly(engine, input, target, std::span(edges).subspan(begin, std::min(at_once, edges.size() - begin)));
    }
  }
  const EdgeMeasure last = request.methods.back();
  std::stable_sort(edges.begin(), edges.end(), [&](const MeasuredEdge& a, const MeasuredEdge& b) {
    const double x = std::abs(a.value(last)), y = std::abs(b.value(last));
    return x > y;
  });

  out.key("target").begin_object();
  out.field("row", row);
  out.field("token", token);
  out.key("versus");
  if (request.versus) out.value(*request.versus);
  else out.null();
  out.field("value", static_cast<float>(report.target));
  out.end_object();
  out.key("methods").begin_array();
  for (const EdgeMeasure method : request.methods) out.value(name_of(method));
  out.end_array();
  out.key("edges").begin_array();
  for (const MeasuredEdge& edge : edges) {
    out.begin_object();
    out.field("attention", name_of(place_of(edge.edge.head)));
    out.field("head", edge.edge.head.head);
    out.field("query", edge.edge.query);
    out.field("key", edge.edge.key);
    for (const EdgeMeasure method :
         {EdgeMeasure::weight, EdgeMeasure::write, EdgeMeasure::first_order, EdgeMeasure::exact}) {
      out.key(name_of(method));
      if (has(request.methods, method)) out.value(static_cast<float>(told(edge, method)));
      else out.null();
    }
    out.end_object();
  }
  out.end_array();
  out.key("agreement").begin_array();
  if (edges.size() > 1) {
    for (const RankAgreement& pair : rank_agreement(edges)) {
      if (!has(request.methods, pair.first) || !has(request.methods, pair.second)) continue;
      out.begin_object();
      out.key("methods").begin_array().value(name_of(pair.first)).value(name_of(pair.second)).end_array();
      out.field("rank_correlation", static_cast<float>(pair.rank_correlation));
      out.field("edges", pair.edges);
      out.end_object();
    }
  }
  out.end_array();

  out.key("heads").begin_array();
  if (!request.query && !report.heads.empty()) {
    std::vector<HeadEffect> effects;
    if (has(request.methods, EdgeMeasure::exact)) {
      std::vector<HeadPlace> places;
      for (const HeadEdges& head : report.heads) places.push_back(head.head);
      stop.check();
      effects = head_effects(engine, input, target, places);
    }
    const auto sum_of = [](const Tensor& matrix) {
      double sum = 0;
      for (std::int64_t i = 0; i < matrix.elements(); ++i) sum += matrix.data()[i];
      return sum;
    };
    for (std::size_t i = 0; i < report.heads.size(); ++i) {
      const HeadEdges& head = report.heads[i];
      out.begin_object();
      out.field("attention", name_of(place_of(head.head)));
      out.field("head", head.head.head);
      out.field("weight", static_cast<float>(sum_of(head.weight)));
      out.field("write", static_cast<float>(sum_of(head.write)));
      out.key("first_order");
      if (effects.empty()) out.null();
      else out.value(static_cast<float>(-effects[i].first_order));
      out.key("exact");
      if (effects.empty()) out.null();
      else out.value(static_cast<float>(-effects[i].exact));
      out.end_object();
    }
  }
  out.end_array();
}

}  // namespace attend::explorer
