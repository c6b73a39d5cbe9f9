// What attention looks at, and what matters. An edge is one (query, key) pair of one head. Four numbers tell what it is
// worth for a target (a logit, a difference of logits, a log-probability):
//   weight       what the query looks at;
//   write        weight x norm of what the edge writes: |weight * W_O^h v_key| (Kobayashi et al. 2020);
//   first_order  the effect of cutting it, to first order in everything downstream, for all edges from one backward pass;
//   exact        the effect of cutting it, by cutting it.
// To cut an edge is to forbid the key: the other keys (and the sink) share its weight in proportion. To cut a head is to
// set what it gathers to 0, before W_O; biases stay. The EFFECT of a cut is the target after it minus the target before:
// negative where the edge speaks for the target.
#pragma once

#include <compare>
#include <cstdint>
#include <functional>
#include <limits>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "attend/model.h"
#include "attend/tokenizer.h"

namespace attend {

// ---- What is read and what is asked -----------------------------------------------------------------------------------

// One input as the model's stacks read it.
struct ModelInput {
  std::vector<std::int32_t> source;  // of the encoder, with its tags and eos; empty where there is none
  std::vector<std::int32_t> ids;     // of the decoder, with its bos; empty where there is none
  Tensor features;                   // instead of source, for encoders of features [rows, input_width]
};

// Positions are rows of the last stack: the decoder's row p predicts the token after position p, an encoder's the token
// at p. Error(argument) where a target does not exist names what does, with the nearest.
struct Target {
  enum class Kind { logit, difference, log_probability, class_logit, class_difference };
  Kind kind = Kind::logit;
  std::int64_t position = -1;         // of logit and difference; -1: the last
  std::int32_t token = 0, other = 0;  // why `token` rather than `other`; of classes their numbers
  std::vector<std::int32_t> labels;   // of log_probability: one a position, -1 where none is judged
};
Target logit_of(std::int32_t token, std::int64_t position = -1);
Target difference_of(std::int32_t token, std::int32_t other, std::int64_t position = -1);
// Sum of ln p(label) over the positions that have one; labels as in Model::loss.
Target log_probability_of(std::vector<std::int32_t> labels);
Target class_logit_of(std::int32_t label);
Target class_difference_of(std::int32_t label, std::int32_t other);

double target_value(const Model& model, const ModelInput& input, const Target& target);

// The token that an entry of the vocabulary, or a text that is one token, names. Error(argument) with the nearest
// entries, and with the tokens that the text is.
std::int32_t token_named(const Tokenizer& tokenizer, std::string_view text);

// ---- Places -----------------------------------------------------------------------------------------------------------

// A head; without number (-1) all heads of that attention. For effects of cuts part may also be feed_forward (its inner
// values) or block (every part of the layer), both without head.
struct HeadPlace {
  StackKind stack = StackKind::decoder;
  int layer = 0;
  Part part = Part::self;
  int head = -1;
  auto operator<=>(const HeadPlace&) const = default;
};
// "decoder.3.cross.2", "decoder.3.cross" for all heads, "decoder.3.feed_forward", "decoder.3"; parse_head is the reverse
// and throws Error(argument) with the nearest names that the model has.
std::string name_of(const HeadPlace& place);
HeadPlace parse_head(const Model& model, const std::string& name);
std::vector<HeadPlace> heads_of(const Model& model);  // every head, in the order of a run

// One attention (part self or cross): all of its heads.
struct AttentionPlace {
  StackKind stack = StackKind::decoder;
  int layer = 0;
  Part part = Part::self;
  auto operator<=>(const AttentionPlace&) const = default;
};
std::string name_of(const AttentionPlace& place);                            // "decoder.3.cross"
std::vector<AttentionPlace> attentions_of(const TransformerConfig& config);  // in the order of a run

// Rows of the attention's queries and keys: of a cross-attention the decoder's and the encoder's.
struct Edge {
  HeadPlace head;
  std::int64_t query = 0, key = 0;
  auto operator<=>(const Edge&) const = default;
};
std::string name_of(const Edge& edge);  // "decoder.3.cross.2 (5, 7)"

// ---- Edges ------------------------------------------------------------------------------------------------------------

enum class EdgeMeasure { weight, write, first_order, exact };
const char* name_of(EdgeMeasure measure);               // "weight", "write", "first_order", "exact"
EdgeMeasure edge_measure_named(std::string_view name);  // Error(argument) with the known names

struct EdgeOptions {
  std::vector<HeadPlace> heads;  // empty: all
  bool weight = true, write = true, first_order = true;
  // > 0: only so many edges, those of the largest `by` (absolute value), instead of matrices. Rows are then computed
  // block by block: memory is linear in the length.
  std::int64_t top = 0;
  // Only the edges of this query, in every head asked for: matrices have one row. Memory and time of the edges are then those
  // of one row; the run and its gradient stay whole. Error(argument) where an attention has no such query.
  std::optional<std::int64_t> query = {};
  EdgeMeasure by = EdgeMeasure::first_order;
  std::int64_t most_bytes = std::int64_t{1} << 30;  // for matrices; Error(argument) with the estimate beyond
  Probe* probe = nullptr;                           // sees the run as well (StatisticsRecorder, say)
};

// Of one head, [queries, keys], or [1, keys] with EdgeOptions::query; undefined where not asked for. An edge that the mask
// hides has 0 everywhere.
struct HeadEdges {
  HeadPlace head;
  Tensor weight, write, first_order;
  std::int64_t first_query = 0;  // whose edges the first row holds
};

// NaN where not measured.
struct MeasuredEdge {
  static constexpr double unknown = std::numeric_limits<double>::quiet_NaN();
  Edge edge;
  double weight = unknown, write = unknown, first_order = unknown, exact = unknown;

  double value(EdgeMeasure measure) const;
};

struct EdgeReport {
  double target = 0;                // of the run without cuts
  std::vector<HeadEdges> heads;     // as asked; empty with `top`
  std::vector<MeasuredEdge> edges;  // with `top`: largest first, equals in the order of edges

  // Those of the matrices with a weight above 0, largest first. Error(argument) where `by` or the weights, which tell what
  // the mask hides, were not computed.
  std::vector<MeasuredEdge> largest(EdgeMeasure by, std::int64_t count) const;
};

// Weight, write and first-order effect of every edge. With p the weight of an edge, v its value row, o what its head
// gathers and g the target's gradient there, cutting it turns o into (o - p v) / (1 - p), so
//   first_order = p / (1 - p) * (g . o - g . v)
// and -g . o for the only key that a row sees. Without a first-order effect the target may be left out.
EdgeReport edge_effects(const Model& model, const ModelInput& input, const std::optional<Target>& target,
                        const EdgeOptions& options = {});

// The effects of cutting each edge alone. Cuts of one layer are items of one batch; only what can change is computed: the
// edge's row in its layer, and from there on all rows of an encoder, the later rows of a decoder, the target's rows of
// the last layer. Error(argument) for an edge that does not exist or that the mask hides. `cancelled` is asked before every
// batch; true ends with Error(cancelled).
std::vector<double> exact_effects(const Model& model, const ModelInput& input, const Target& target,
                                  std::span<const Edge> edges, const std::function<bool()>& cancelled = {});
void measure_exactly(const Model& model, const ModelInput& input, const Target& target, std::span<MeasuredEdge> edges,
                     const std::function<bool()>& cancelled = {});

// ---- Heads and layers -------------------------------------------------------------------------------------------------

struct HeadEffect {
  HeadPlace place;
  double first_order = 0;  // - g . o, summed over rows (and heads and parts)
  double exact = 0;
};
// Effects of cutting each place alone; without places every head.
std::vector<HeadEffect> head_effects(const Model& model, const ModelInput& input, const Target& target,
                                     std::span<const HeadPlace> places = {});

// ---- Do they agree? ---------------------------------------------------------------------------------------------------

// rank_correlation() and shared_top() of ranks.h for two measures.
struct RankAgreement {
  EdgeMeasure first = EdgeMeasure::weight, second = EdgeMeasure::exact;
  double rank_correlation = 0, shared_top = 0;
  std::int64_t edges = 0, top = 0;
};
// Every pair of measures that all given edges have, by absolute value.
std::vector<RankAgreement> rank_agreement(std::span<const MeasuredEdge> edges, std::int64_t top = 10);
// The same over every edge of the report's matrices that has a weight above 0; those of all heads, or none, have a measure.
std::vector<RankAgreement> rank_agreement(const EdgeReport& report, std::int64_t top = 10);

}  // namespace attend
