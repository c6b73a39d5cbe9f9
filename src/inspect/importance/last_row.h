// The last block of a decoder for one row of each item, without the keys and values of the others.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "attend/model.h"

namespace attend {

// Rows that somebody's queries read: rows [begin, begin + count) of a tensor.
struct RowSpan {
  std::int64_t begin = 0, count = 0;
};

// One attention asked by single rows. Of a head with query q, <q, W_K x> = <W_K^T q, x> and a sum of weighted W_V x is
// W_V of the weighted sum of x: with one query against n keys, the products with W_K and W_V are two, not 2 n, and the
// kernel reads the rows x themselves, as one key head of the model's width for all query heads. The key's bias moves all
// scores of a row alike; the value's is added whole, since weights sum to 1.
class OneRowAttention {
 public:
  OneRowAttention(const Model& model, int layer, Part part);

  // rows as the part reads them after its norm.
  Tensor normed(const Tensor& rows) const;
  // rows [items, width] of the residual stream, at `position` of their sequences, after this part: item i asks the rows
  // spans[i] of `keys`, which are normed where this is a self-attention.
  Tensor after(const Tensor& rows, std::int64_t position, const Tensor& keys, std::span<const RowSpan> spans) const;

 private:
  Tensor normalised(const Tensor& rows) const;

  const TransformerConfig& config_;
  AttentionInput rules_;
  Tensor gain_, norm_bias_;  // biases are undefined where the config has none
  Weight query_, output_;
  Tensor query_bias_, output_bias_;
  std::vector<Weight> keys_, values_;  // of every query head: W_K^T [width, head_dim] and W_V [head_dim, width]
  std::vector<Tensor> value_biases_;
};

class LastRow {
 public:
  // Rotated keys are no product of a matrix and the row alone, and a cap sees what moves all scores alike.
  static bool fits(const TransformerConfig& config);
  explicit LastRow(const Model& model);

  // What the self-attention reads of these rows of the residual stream.
  Tensor normed(const Tensor& rows) const { return self_.normed(rows); }
  // States after the final norm [items, width] of rows [items, width] that stand at `position`: what the block reads
  // (or, without its self-attention, what stands after it), the normed rows of the decoder, and the encoder's rows.
  Tensor states(Tensor rows, std::int64_t position, const Tensor& normed, std::span<const RowSpan> before,
                const Tensor& memory, std::span<const RowSpan> sources) const;
  Tensor states_after_self(Tensor rows, std::int64_t position, const Tensor& memory,
                           std::span<const RowSpan> sources) const;

 private:
  const Model& model_;
  const int layer_;
  const OneRowAttention self_;
  std::optional<OneRowAttention> cross_;
};

}  // namespace attend
