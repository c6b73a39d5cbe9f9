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

// The target and the token in it.
struct Asked {
  std::int64_t row = 0;
  std::int32_t token = 0;
  Target target;
};

Asked target_of(const Run& run, const ImportanceRequest& request) {
  Asked asked;
  asked.row = request.row.value_or(run.predictions() - 1);
  check_index("target.row", asked.row, run.predictions());
  const Tensor logits = run.logits(asked.row, asked.row + 1);
  asked.token = request.token.value_or(-1);
  if (asked.token < 0)
    asked.token =
        static_cast<std::int32_t>(std::max_element(logits.data(), logits.data() + logits.width()) - logits.data());
  check_index("target.token", asked.token, logits.width());
  if (request.versus) check_index("target.versus", *request.versus, logits.width());
  asked.target =
      request.versus ? difference_of(asked.token, *request.versus, asked.row) : logit_of(asked.token, asked.row);
  return asked;
}

// Cells of the matrices asked for; refuses a query that an attention does not have.
std::int64_t cells_of(const TransformerConfig& config, const StackRows& rows, const ImportanceRequest& request) {
  std::int64_t cells = 0;
  for (const AttentionPlace& place : attentions_of(config)) {
    if (request.place && place != *request.place) continue;
    const std::int64_t queries = rows.of(place.stack), keys = place.part == Part::cross ? rows.encoder : queries;
    if (request.query) check_index("query", *request.query, queries);
    cells += config.heads * queries * keys;
  }
  return cells;
}

EdgeOptions options_of(const Run& run, const ImportanceRequest& request) {
  const TransformerConfig& config = run.model().config();
  EdgeOptions options;
  if (request.place)
    options.heads.push_back(
        {request.place->stack, request.place->layer, request.place->part, static_cast<int>(request.head.value_or(-1))});
  if (request.head) check_index("head", *request.head, config.heads);
  options.weight = options.write = true;
  options.first_order = has(request.methods, EdgeMeasure::first_order);
  // What chooses the edges: the best of the methods that are cheap for all.
  options.by = options.first_order                        ? EdgeMeasure::first_order
               : has(request.methods, EdgeMeasure::write) ? EdgeMeasure::write
                                                          : EdgeMeasure::weight;
  // One row of one attention is small, however long the text.
  options.query = request.query;
  const std::int64_t cells = cells_of(config, rows_of(run.subject().input), request);
  if (!request.query && cells > most_matrix_cells) options.top = request.top;
  return options;
}

// Every edge of a report on one query.
std::vector<MeasuredEdge> edges_of_query(const EdgeReport& report) {
  std::vector<MeasuredEdge> edges;
  for (const HeadEdges& head : report.heads) {
    for (std::int64_t key = 0; key < head.weight.shape()[1]; ++key) {
      MeasuredEdge edge;
      edge.edge = {head.head, head.first_query, key};
      edge.weight = head.weight.at(0, key);
      if (edge.weight == 0) continue;  // the mask hides it
      edge.write = head.write.at(0, key);
      if (head.first_order.defined()) edge.first_order = head.first_order.at(0, key);
      edges.push_back(edge);
    }
  }
  return edges;
}

void measure_all(const Model& engine, const ModelInput& input, const Target& target, std::vector<MeasuredEdge>& edges,
                 const Limits& limits, const StopSignal& stop) {
  if (static_cast<std::int64_t>(edges.size()) > limits.exact_edges)
    throw over_limit("importance", "edges to cut", edges.size(), limits.exact_edges,
                     "narrow them by attention, head and query");
  // All in one call: what the cuts go on from is run once.
  measure_exactly(engine, input, target, edges, [&] {
    stop.check();
    return false;
  });
}

void write_edges(JsonWriter& out, const std::vector<MeasuredEdge>& edges, const std::vector<EdgeMeasure>& methods) {
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
      if (has(methods, method)) out.value(static_cast<float>(told(edge, method)));
      else out.null();
    }
    out.end_object();
  }
  out.end_array();
}

void write_agreement(JsonWriter& out, const std::vector<MeasuredEdge>& edges, const std::vector<EdgeMeasure>& methods) {
  out.key("agreement").begin_array();
  if (edges.size() > 1) {
    for (const RankAgreement& pair : rank_agreement(edges)) {
      if (!has(methods, pair.first) || !has(methods, pair.second)) continue;
      out.begin_object();
      out.key("methods").begin_array().value(name_of(pair.first)).value(name_of(pair.second)).end_array();
      out.field("rank_correlation", static_cast<float>(pair.rank_correlation));
      out.field("edges", pair.edges);
      out.end_object();
    }
  }
  out.end_array();
}

// Sums of the edges of each head, and the effects of cutting it whole where they were measured (else `effects` is empty).
void write_heads(JsonWriter& out, const std::vector<HeadEdges>& heads, const std::vector<HeadEffect>& effects) {
  const auto sum_of = [](const Tensor& matrix) {
    double sum = 0;
    for (std::int64_t i = 0; i < matrix.elements(); ++i) sum += matrix.data()[i];
    return sum;
  };
  for (std::size_t i = 0; i < heads.size(); ++i) {
    const HeadEdges& head = heads[i];
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

}  // namespace

void write_importance(JsonWriter& out, const Run& run, const ImportanceRequest& request, const Limits& limits,
                      const StopSignal& stop) {
  const Model& engine = run.model().folder.model;
  if (!run.predicts())
    throw Error(ErrorKind::argument, "target", join(run.model().name, " predicts no tokens"), "choose another model");
  if (!run.edits().key().empty())
    throw Error(ErrorKind::argument, "edits", "are not taken into account by this measure",
                "leave them out, or switch them off");
  const ModelInput& input = run.subject().input;
  const Asked asked = target_of(run, request);
  const EdgeOptions options = options_of(run, request);
  stop.check();
  const EdgeReport report = edge_effects(engine, input, asked.target, options);

  std::vector<MeasuredEdge> edges = request.query     ? edges_of_query(report)
                                    : options.top > 0 ? report.edges
                                                      : report.largest(options.by, request.top);
  const bool exact = has(request.methods, EdgeMeasure::exact);
  if (exact) measure_all(engine, input, asked.target, edges, limits, stop);
  const EdgeMeasure last = request.methods.back();
  std::stable_sort(edges.begin(), edges.end(), [&](const MeasuredEdge& a, const MeasuredEdge& b) {
    return std::abs(a.value(last)) > std::abs(b.value(last));
  });

  out.key("target").begin_object();
  out.field("row", asked.row);
  out.field("token", asked.token);
  out.key("versus");
  if (request.versus) out.value(*request.versus);
  else out.null();
  out.field("value", static_cast<float>(report.target));
  out.end_object();
  out.key("methods").begin_array();
  for (const EdgeMeasure method : request.methods) out.value(name_of(method));
  out.end_array();
  write_edges(out, edges, request.methods);
  write_agreement(out, edges, request.methods);

  out.key("heads").begin_array();
  if (!request.query && !report.heads.empty()) {
    std::vector<HeadEffect> effects;
    if (exact) {
      std::vector<HeadPlace> places;
      for (const HeadEdges& head : report.heads) places.push_back(head.head);
      stop.check();
      effects = head_effects(engine, input, asked.target, places);
    }
    write_heads(out, report.heads, effects);
  }
  out.end_array();
}

}  // namespace attend::explorer
