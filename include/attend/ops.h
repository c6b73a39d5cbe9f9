// Operations on tensors. Each checks its shapes (Error(shape) names the operation, what was found and expected), runs
// the kernel, and, while a GradientScope lives and an input is tracked, records its backward step.
// Shapes are written [rows, width]; leading axes count as rows.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "attend/activation.h"
#include "attend/attention.h"
#include "attend/tape.h"
#include "attend/tensor.h"

namespace attend {

class PackedMatrix;

// A layer's weights [outputs, inputs] with the copies laid out for the products. Copies of a Weight share everything.
// The layout is made on first use and is safe to use from several threads at once while the value does not change.
class Weight {
 public:
  Weight() = default;
  explicit Weight(Tensor value);  // two axes, contiguous

  bool defined() const { return state_ != nullptr; }
  const Tensor& value() const;
  std::int64_t outputs() const { return value().shape()[0]; }
  std::int64_t inputs() const { return value().shape()[1]; }
  // To be called after the value was written: by an optimiser step, say.
  void changed();

  const PackedMatrix& for_product() const;   // x * W^T
  const PackedMatrix& for_gradient() const;  // y_gradient * W

 private:
  struct State;
  std::shared_ptr<State> state_;
};

// ---- Products -------------------------------------------------------------------------------------------------------
// activation(x W^T + bias): x [rows, inputs] -> [rows, outputs]. bias [outputs] or undefined.
Tensor linear(const Tensor& x, const Weight& weight, const Tensor& bias = {}, Activation activation = Activation::none);
// a [m, k] times b [k, n], or b [n, k] transposed.
Tensor matrix_product(const Tensor& a, const Tensor& b, bool transpose_b = false);
Tensor transpose(const Tensor& x);  // [m, n] -> [n, m]

// ---- Element by element ---------------------------------------------------------------------------------------------
Tensor add(const Tensor& a, const Tensor& b);  // same shape
Tensor subtract(const Tensor& a, const Tensor& b);
Tensor multiply(const Tensor& a, const Tensor& b);
Tensor scale(const Tensor& x, float factor);
Tensor add_row(const Tensor& x, const Tensor& row);            // row [width] added to every row
Tensor scale_columns(const Tensor& x, const Tensor& factors);  // factors [width]
Tensor activate(const Tensor& x, Activation kind);
Tensor gate(const Tensor& gate_input, const Tensor& value, Activation kind);  // activation(gate_input) * value
Tensor tanh(const Tensor& x);
Tensor sigmoid(const Tensor& x);
Tensor exp(const Tensor& x);
Tensor log(const Tensor& x);
// other where the mask [elements, row by row] is not 0, x elsewhere: what is replaced leaves no trace, not even if NaN.
Tensor replace_where(const Tensor& x, const Tensor& other, std::shared_ptr<const std::vector<std::uint8_t>> mask);

// ---- Norms and softmax, row by row ------------------------------------------------------------------------------------
Tensor layer_norm(const Tensor& x, const Tensor& gain, const Tensor& bias, float epsilon);  // bias may be undefined
Tensor rms_norm(const Tensor& x, const Tensor& gain, float epsilon);
// What the norms divide a row by, [rows, 1]: sqrt(variance + epsilon), for RMSNorm sqrt(mean square + epsilon).
Tensor norm_deviations(const Tensor& x, bool centred, float epsilon);
// (x - mean) / deviation * gain + bias, for RMSNorm x / deviation * gain (centred false, no bias), with deviations
// [rows, 1] that are given: linear in x where they do not depend on it.
Tensor norm_by(const Tensor& x, const Tensor& deviations, const Tensor& gain, const Tensor& bias, bool centred);
Tensor softmax(const Tensor& x);
Tensor log_softmax(const Tensor& x);

// ---- Rows ---------------------------------------------------------------------------------------------------------------
// table[ids[r]] * factor. Throws Error(argument) for an id outside the table, naming row and id.
Tensor embed(const Tensor& table, std::span<const std::int32_t> ids, float factor = 1);
Tensor select_rows(const Tensor& x, std::span<const std::int64_t> rows);
Tensor join_rows(const Tensor& a, const Tensor& b);
Tensor join_columns(const Tensor& a, const Tensor& b);
// Mean of the rows offsets[i] .. offsets[i+1]-1 for every item i: [items, width]. An empty item gives 0.
Tensor mean_rows(const Tensor& x, std::span<const std::int64_t> offsets);
Tensor sum(const Tensor& x);   // one element
Tensor mean(const Tensor& x);  // one element

// ---- Positions, dropout, attention -----------------------------------------------------------------------------------
// A table of cosines and sines [positions, rotary_dim / 2, 2] for rotate_heads; base is usually 10000 (Su et al. 2021).
Tensor rotation_table(std::int64_t positions, std::int64_t rotary_dim, double base);
// Rotates the first rotary_dim elements of every head IN PLACE by its row's position; x is [rows, heads * head_dim], and
// no earlier reader of x may need its old value. Returns x.
Tensor rotate_heads(Tensor x, std::int64_t heads, std::int64_t rotary_dim, Pairing pairing, const Tensor& table,
                    std::span<const std::int32_t> positions);
// Zeroes elements with the given probability, rounded to 2^-16, and divides the others by the share kept; the choice depends only on
// (seed, row, column). Probability 0 returns x itself.
Tensor dropout(const Tensor& x, float probability, std::uint64_t seed);
// residual + dropout(x): the end of every sublayer, in one pass.
Tensor add_dropped(const Tensor& residual, const Tensor& x, float probability, std::uint64_t seed);

// What attention() needs beside query, key and value. The struct is copied; what its spans and pointers refer to (mask
// spans, position lists, bias, pages) must live until backward() when recording. Matrices are written at once.
struct AttentionInput {
  std::int64_t query_heads = 0, key_heads = 0;
  std::vector<AttentionItem> items;
  std::int64_t page_rows = 0;                // with pages, key and value may be undefined and head_dim, value_dim count
  std::int64_t head_dim = 0, value_dim = 0;  // 0: from the width of query and value
  Mask mask;
  float scale = 0, soft_cap = 0;
  std::vector<float> slopes;  // ALiBi, [query_heads]
  Tensor relative_table;      // [buckets, query_heads], differentiable
  std::shared_ptr<const std::vector<std::int32_t>> relative_buckets;
  std::int64_t relative_first_distance = 0;
  ScoreBias bias;  // not differentiable here; see attention.h for the gradient
  Tensor sinks;    // [query_heads], differentiable
  AttentionDropout dropout;
  std::vector<ScoreEdit> edits;
  std::int64_t* edit_counts = nullptr;  // as AttentionCall::edit_counts; written at once
  std::vector<MatrixRequest> matrices;
  const AttentionStatistics* statistics = nullptr;  // as AttentionCall::statistics; written at once
};
// query [query rows, query_heads * head_dim], key [key rows, key_heads * head_dim], value [key rows, key_heads * value_dim],
// views of wider tensors allowed -> [query rows, query_heads * value_dim]. log_sum_exp [query rows, query_heads] when asked.
Tensor attention(const Tensor& query, const Tensor& key, const Tensor& value, const AttentionInput& input,
                 Tensor* log_sum_exp = nullptr);
// Fills tiles of the matrices of an attention that was computed with this input, from its log-sum-exp (may be undefined
// where only scores are asked for); see attend/attention.h.
void attention_weights(const Tensor& query, const Tensor& key, const AttentionInput& input, const Tensor& log_sum_exp,
                       std::span<const WeightsTile> tiles);

// ---- Random numbers -----------------------------------------------------------------------------------------------------
// Normal numbers with mean 0, the same on every machine for the same seed; element i is the i-th of the seed's stream.
Tensor normal(Shape shape, float deviation, std::uint64_t seed);

// ---- Losses ------------------------------------------------------------------------------------------------------------
struct LossResult {
  Tensor total;              // one element: sum over rows of the (smoothed) loss in nats, times factor; differentiable
  double smoothed = 0;       // the same sum without factor
  double plain = 0;          // sum of -log p(label), without smoothing, in nats
  std::int64_t labels = 0;   // rows that counted (label >= 0)
  std::int64_t correct = 0;  // of these, rows whose largest logit is the label
};
// Cross-entropy of softmax(logits) against labels [rows] (-1: row counts nothing), with label smoothing.
LossResult cross_entropy(const Tensor& logits, std::span<const std::int32_t> labels, float smoothing = 0,
                         float factor = 1);
// The same on logits x W^T + bias, block of rows by block of rows: the logits [rows, vocabulary] never exist as a whole,
// and while recording the gradients are made on the way forward.
LossResult linear_cross_entropy(const Tensor& x, const Weight& weight, const Tensor& bias,
                                std::span<const std::int32_t> labels, float smoothing = 0, float factor = 1);
Tensor squared_error(const Tensor& x, const Tensor& target);  // mean of squared differences, one element

}  // namespace attend
