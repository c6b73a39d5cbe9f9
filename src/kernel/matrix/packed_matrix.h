// Products with a matrix that was laid out once. C = A * B^T + ends, where B holds a layer's weights [outputs, inputs].
//
// Order of summation is fixed: every element of C is one sequence of fused multiply-adds over the inputs from first to
// last, whatever the number of rows, the number of threads and the tile. So a row has the same bits alone or in a
// batch.
#pragma once

#include <cstdint>

#include "attend/activation.h"
#include "core/memory.h"

namespace attend {

// What happens to an element of C after its sum: in this order, and in the same pass.
struct ProductEnd {
  const float* bias = nullptr;  // [outputs], added
  Activation activation = Activation::none;
  float* before_activation = nullptr;  // when set, the value before the activation is stored here too (stride as C)
  bool accumulate = false;             // C += instead of C =; only without activation
};

// A weight matrix in panels for the product. Owns its copy.
class PackedMatrix {
 public:
  PackedMatrix() = default;

  // Lays out `matrix` [outputs, inputs] (row stride given). With transposed = true, `matrix` is [inputs, outputs].
  // Reuses the memory when the sizes did not change. Parallel.
  void pack(const float* matrix, std::int64_t outputs, std::int64_t inputs, std::int64_t row_stride,
            bool transposed = false);

  std::int64_t outputs() const { return outputs_; }
  std::int64_t inputs() const { return inputs_; }
  const float* panels() const { return panels_.data(); }

 private:
  Buffer panels_;
  std::int64_t outputs_ = 0, inputs_ = 0;
};

// c[rows, outputs] (=, +=) a[rows, inputs] * b^T, then the ends. Strides are of rows, in floats. Parallel over blocks
// of rows and columns. c must not overlap a.
void multiply(const float* a, std::int64_t a_stride, std::int64_t rows, const PackedMatrix& b, float* c,
              std::int64_t c_stride, const ProductEnd& end = {});

// Weight gradient: c[m, n] += a^T * b summed over rows, a[rows, m], b[rows, n]. For every element it is one sequence of
// multiply-adds that starts from what c holds and goes over the rows from first to last. Parallel over blocks of c.
void multiply_transposed(const float* a, std::int64_t a_stride, const float* b, std::int64_t b_stride,
                         std::int64_t rows, std::int64_t m, std::int64_t n, float* c, std::int64_t c_stride);

}  // namespace attend
