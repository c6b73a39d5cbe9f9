#include "kernel/matrix/packed_matrix.h"

#include <cmath>

#include "core/threads.h"

namespace attend {
namespace {

constexpr std::int64_t panel_width = 16;

float activated(Activation kind, float x) {
  switch (kind) {
    case Activation::none: return x;
    case Activation::relu: return x > 0 ? x : 0;
    case Activation::gelu: return 0.5f * x * std::erfc(-x * 0.70710678f);
    case Activation::gelu_tanh: return x / (1 + std::exp(-2 * 0.79788456f * (x + 0.044715f * x * x * x)));
    case Activation::silu: return x / (1 + std::exp(-x));
  }
  return x;
}

}  // namespace

void PackedMatrix::pack(const float* matrix, std::int64_t outputs, std::int64_t inputs, std::int64_t row_stride, bool transposed) {
  const std::int64_t panels = (outputs + panel_width - 1) / panel_width;
  const std::int64_t size = panels * panel_width * inputs;
  if (panels_.size() != size) panels_ = Buffer(size);
  outputs_ = outputs;
  inputs_ = inputs;
  for (std::int64_t j = 0; j < panels * panel_width; ++j)
    for (std::int64_t k = 0; k < inputs; ++k)
      panels_.data()[(j / panel_width * inputs + k) * panel_width + j % panel_width] =
          j >= outputs ? 0 : transposed ? matrix[k * row_stride + j] : matrix[j * row_stride + k];
}

void multiply(const float* a, std::int64_t a_stride, std::int64_t rows, const PackedMatrix& b, float* c, std::int64_t c_stride,
              const ProductEnd& end) {
  parallel_for(rows, [&](std::int64_t i, int) {
    for (std::int64_t j = 0; j < b.outputs(); ++j) {
      float sum = 0;
      const float* panel = b.panels() + j / panel_width * panel_width * b.inputs() + j % panel_width;
      for (std::int64_t k = 0; k < b.inputs(); ++k) sum = std::fma(a[i * a_stride + k], panel[k * panel_width], sum);
      if (end.bias != nullptr) sum += end.bias[j];
      if (end.before_activation != nullptr) end.before_activation[i * c_stride + j] = sum;
      sum = activated(end.activation, sum);
      c[i * c_stride + j] = end.accumulate ? c[i * c_stride + j] + sum : sum;
    }
  });
}

void multiply_transposed(const float* a, std::int64_t a_stride, const float* b, std::int64_t b_stride, std::int64_t rows,
                         std::int64_t m, std::int64_t n, float* c, std::int64_t c_stride) {
  parallel_for(m, [&](std::int64_t i, int) {
    for (std::int64_t r = 0; r < rows; ++r)
      for (std::int64_t j = 0; j < n; ++j)
        c[i * c_stride + j] = std::fma(a[r * a_stride + i], b[r * b_stride + j], c[i * c_stride + j]);
  });
}

}  // namespace attend
