// A whole inspection of one subject: what each head looks at, what it writes and what matters, merged to words and ready
// to be drawn or written to files (pictures.h). What rows and heads tell is gathered while the model runs; with `matrices`
// off nothing is held that grows with the square of the text.
#pragma once

#include <cstdint>
#include <limits>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "attend/importance.h"
#include "attend/pictures.h"
#include "attend/subject.h"
#include "attend/words.h"

namespace attend {

// What users of other tools look for (attribution.h). Integrated gradients and gradient x input explain the target, token
// by token (Inspection::attributions); rollout and value zeroing are attentions of their own in the inspection ("cross
// rollout", "encoder value zeroing"), of all heads together, with the layers chosen.
enum class AttributionMethod { integrated_gradients, gradient_input, rollout, value_zeroing };
const char* name_of(AttributionMethod method);                      // "integrated-gradients", ...
AttributionMethod attribution_method_named(std::string_view name);  // Error(argument) with the nearest name

struct AttributionOptions {
  std::vector<AttributionMethod> methods;
  // What the baseline of integrated gradients reads in place of every token that is text: an entry of the vocabulary, or
  // "zero", embeddings of 0. Empty: the pad token, else the unknown one, else zero.
  std::string baseline;
  // Points of the path. 0: doubled from 32 on until the completeness error is at most 1 % of what the input changes, up to
  // 512.
  std::int64_t steps = 0;
  double residual = 0.5;  // share of the residual stream in a rollout
};

// Keys whose weight every row tells as a whole, as the row statistic "on NAME".
struct KeyRegion {
  // Of the texts as they are shown (words, or what they are grouped by), from 0; negative numbers count from the end.
  struct Span {
    static constexpr std::int64_t to_end = std::numeric_limits<std::int64_t>::max();
    std::int64_t begin = 0, end = to_end;  // the end is not in it
  };
  std::string name;         // 1 to 40 bytes; not first, self or previous, which rows tell anyway
  std::string text;         // "source", "target", "text": its keys alone; empty: every text that has all of these keys
  std::vector<Span> spans;  // a key in several of them counts once
  bool special = false;     // instead of spans: the special tokens, tags and ends
};

struct InspectOptions {
  // Which attentions: "encoder", "decoder", "cross"; empty: all that the model has. Layers and heads from 0, negative
  // ones from the end; empty: all.
  std::vector<std::string> attentions;
  std::vector<int> layers, heads;
  bool mean_heads = false;  // one matrix a layer, the mean over the heads chosen (mean_of_all)

  GroupBy group = GroupBy::word;
  std::string source_words, target_words;  // the texts segmented by blanks, instead of `group`

  bool matrices = true;          // measures: weights and what the options below add, of every edge
  bool write = true;             // weight x norm of what it writes
  std::optional<Target> target;  // with it, first-order effects: of all edges, or without matrices of the largest
  std::int64_t exact = 0;        // so many edges with the largest first-order effects are cut and measured, too
  AttributionOptions attribution;
  bool statistics = true;     // rows: entropy, mean distance, weight on first, self and previous token
  std::int64_t top_keys = 0;  // so many largest keys of every row (ShownAttention::largest), at most most_top_keys
  std::vector<KeyRegion> regions;
  double least_share = 0;  // above 0: readings, of at least this share
  // For the matrices between tokens, each of which stays until those between groups are made of it; ranks of all edges take
  // at most 3 times as much beside.
  std::int64_t most_bytes = std::int64_t{1} << 30;
};

// A group of keys and the weight a group of queries gives it, mean over the layers and heads chosen.
struct Reading {
  std::size_t key = 0;
  double share = 0;
};

// How a target reads: "robots rather than machine after "love" (position 3)".
std::string describe(const Target& target, const Subject& subject, const ModelFolder& folder);

struct InspectReport {
  Inspection inspection;  // values between groups
  double target = 0;      // value of the target; 0 without one
  // Between tokens, with a target: those measured exactly, largest exact effect first; without any, the thousand of
  // the largest first-order effects.
  std::vector<MeasuredEdge> edges;
  // Over the edges measured exactly; without these over all edges, or without matrices over those listed.
  std::vector<RankAgreement> agreement;
  // [attentions of the inspection, groups of queries]: largest share first, equals in the order of the text.
  std::vector<std::vector<std::vector<Reading>>> readings;
};

// `model` is the name for captions. Weights are merged by sum over the keys and mean over the queries of a group, what is
// written likewise, effects by sums (see words.h); a pair of groups has an exact effect where every edge between them was
// cut, as has a mean over heads where every head has one. Statistics of rows are those of tokens, mean over the tokens of a
// group; the largest keys are those of the merged weights. Error(argument) for attentions, layers and heads that the model does
// not have (with those it has), for regions that no text has, and where the matrices would need more than most_bytes (with the estimate).
InspectReport inspect(const ModelFolder& folder, const std::string& model, const Subject& subject,
                      const InspectOptions& options = {});

// Entries of the shown texts, for callers that draw something else: one a group.
ShownText shown_text(const std::string& name, const std::vector<TokenGroup>& groups, const std::vector<Piece>& pieces);

}  // namespace attend
