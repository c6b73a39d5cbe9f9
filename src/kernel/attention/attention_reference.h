// The textbook in double precision: loops written like the formulas, every rule honoured. Tests measure the fast
// implementations against it; it is for small sizes.
#pragma once

#include <cstdint>
#include <vector>

#include "attend/attention.h"

namespace attend {

struct ReferenceAttention {
  std::vector<double> output;       // [query rows, query_heads, value_dim]
  std::vector<double> log_sum_exp;  // [query rows, query_heads]
};

// Gradients, each laid out without gaps; rows as far as the items reach.
struct ReferenceGradients {
  std::vector<double> query;           // [query rows, query_heads, head_dim]
  std::vector<double> key;             // [key rows, key_heads, head_dim]
  std::vector<double> value;           // [key rows, key_heads, value_dim]
  std::vector<double> relative_table;  // [buckets, query_heads]
  std::vector<double> bias;            // as the bias of the call, up to the last element used
  std::vector<double> sinks;           // [query_heads]
};

// Scores of one item and head after rules, mask and edits [queries, keys]; minus infinity where not visible.
std::vector<double> reference_scores(const AttentionCall& call, std::int64_t item, std::int64_t head);
// Softmax of them, before dropout.
std::vector<double> reference_weights(const AttentionCall& call, std::int64_t item, std::int64_t head);

// As the outputs of AttentionStatistics, all of them; rows as far as the items reach.
struct ReferenceStatistics {
  std::vector<double> entropy, distance, first, self, previous, sink;  // [query rows, H]
  std::vector<double> list_mass;                                       // [query rows, H, lists]
  std::vector<std::int64_t> top_keys;                                  // [query rows, H, top]
  std::vector<double> top_weights;
};
ReferenceStatistics reference_statistics(const AttentionCall& call);

ReferenceAttention reference_forward(const AttentionCall& call);

// `output_gradient` is laid out as gradients.output_gradient would be.
ReferenceGradients reference_backward(const AttentionCall& call, HeadsView output_gradient);

}  // namespace attend
