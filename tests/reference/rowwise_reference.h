// Textbook forms in double of everything that treats one row at a time, for tests of the rowwise kernels.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <limits>
#include <numbers>
#include <vector>

#include "attend/activation.h"
#include "core/random.h"

namespace attend::reference {

using Row = std::vector<double>;

inline std::vector<float> random_floats(std::int64_t size, std::uint64_t seed, double scale = 1) {
  Random random(seed);
  std::vector<float> values(static_cast<std::size_t>(size));
  for (float& value : values) value = static_cast<float>(random.normal() * scale);
  return values;
}

// Row r of a float matrix.
inline Row row_of(const std::vector<float>& matrix, std::int64_t r, std::int64_t stride, std::int64_t width) {
  const auto begin = matrix.begin() + static_cast<std::ptrdiff_t>(r * stride);
  return Row(begin, begin + static_cast<std::ptrdiff_t>(width));
}

inline Row layer_norm(const Row& x, const Row& gain, const Row& bias, double epsilon) {
  double mean = 0, variance = 0;
  for (double value : x) mean += value / static_cast<double>(x.size());
  for (double value : x) variance += (value - mean) * (value - mean) / static_cast<double>(x.size());
  Row y(x.size());
  for (std::size_t j = 0; j < x.size(); ++j)
    y[j] = (x[j] - mean) / std::sqrt(variance + epsilon) * gain[j] + (bias.empty() ? 0 : bias[j]);
  return y;
}

inline Row rms_norm(const Row& x, const Row& gain, double epsilon) {
  double square = 0;
  for (double value : x) square += value * value / static_cast<double>(x.size());
  Row y(x.size());
  for (std::size_t j = 0; j < x.size(); ++j) y[j] = x[j] / std::sqrt(square + epsilon) * gain[j];
  return y;
}

inline double activated(Activation kind, double x) {
  switch (kind) {
    case Activation::none:
      return x;
    case Activation::relu:
      return x > 0 ? x : 0;
    case Activation::gelu:
      return 0.5 * x * std::erfc(-x / std::numbers::sqrt2);
    case Activation::gelu_tanh:
      return 0.5 * x * (1 + std::tanh(std::sqrt(2 / std::numbers::pi) * (x + 0.044715 * x * x * x)));
    case Activation::silu:
      return x / (1 + std::exp(-x));
  }
  return x;
}

inline constexpr Activation activations[] = {Activation::none, Activation::relu, Activation::gelu,
                                             Activation::gelu_tanh, Activation::silu};

inline Row log_softmax(const Row& x) {
  double top = -std::numeric_limits<double>::infinity(), sum = 0;
  for (double value : x) top = std::max(top, value);
  for (double value : x) sum += std::exp(value - top);
  Row y(x.size());
  for (std::size_t j = 0; j < x.size(); ++j) y[j] = x[j] - top - std::log(sum);
  return y;
}

// -sum of q log p, where q is 1 - smoothing on the label plus smoothing / width everywhere.
inline double cross_entropy(const Row& logits, std::size_t label, double smoothing) {
  const Row log_p = log_softmax(logits);
  double loss = -(1 - smoothing) * log_p[label];
  if (smoothing != 0)
    for (double value : log_p) loss -= smoothing / static_cast<double>(logits.size()) * value;
  return loss;
}

// d function / d x by central differences.
inline Row differences(const std::function<double(const Row&)>& function, Row x, double step = 1e-5) {
  Row gradient(x.size());
  for (std::size_t j = 0; j < x.size(); ++j) {
    const double kept = x[j];
    x[j] = kept + step;
    const double above = function(x);
    x[j] = kept - step;
    gradient[j] = (above - function(x)) / (2 * step);
    x[j] = kept;
  }
  return gradient;
}

inline double dot(const Row& a, const Row& b) {
  double sum = 0;
  for (std::size_t j = 0; j < a.size(); ++j) sum += a[j] * b[j];
  return sum;
}

}  // namespace attend::reference
