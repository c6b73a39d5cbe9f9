// LayerNorm and RMSNorm. The gradients of gain and bias are sums over rows: blocks of a fixed number of rows are summed
// in parallel and their sums added in order, so the bits do not depend on the number of threads.
#include <algorithm>
#include <cmath>

#include "core/memory.h"
#include "core/threads.h"
#include "kernel/rowwise/grain.h"
#include "kernel/rowwise/rowwise.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernel/rowwise/norms.cc"
#include "hwy/foreach_target.h"

#include "hwy/highway.h"
#include "kernel/rowwise/functions-inl.h"

#ifndef ATTEND_NORMS_ONCE
#define ATTEND_NORMS_ONCE
namespace attend {
namespace {

// Both norms at once: RMSNorm has no mean and no bias.
struct Norm {
  Rows x;
  const float* gain;
  const float* bias;
  float epsilon;
  MutableRows y;
  float* statistics;
};
struct NormBackward {
  Rows x;
  const float* gain;
  const float* statistics;
  Rows y_gradient;
  MutableRows x_gradient;
};

}  // namespace
}  // namespace attend
#endif

HWY_BEFORE_NAMESPACE();
namespace attend {
namespace HWY_NAMESPACE {
namespace {
namespace hn = hwy::HWY_NAMESPACE;
using Tag = hn::ScalableTag<float>;

template <bool centred>
void norm_rows(const Norm& norm, std::int64_t begin, std::int64_t end) {
  const Tag d;
  const std::int64_t width = norm.x.width;
  const float inverse_width = 1.0f / static_cast<float>(width);
  for (std::int64_t r = begin; r < end; ++r) {
    const float* x = norm.x.data + r * norm.x.stride;
    float* y = norm.y.data + r * norm.y.stride;
    float mean = 0;
    if constexpr (centred) {
      auto sum = hn::Zero(d);
      for_each_vector(d, width, [&](auto partial, std::int64_t j, std::size_t count) HWY_ATTR {
        sum = hn::Add(sum, load(d, partial, x + j, count));
      });
      mean = sum_of_lanes(d, sum) * inverse_width;
    }
    const auto mean_lanes = hn::Set(d, mean);
    auto squares = hn::Zero(d);
    for_each_vector(d, width, [&](auto partial, std::int64_t j, std::size_t count) HWY_ATTR {
      const auto centre =
          centred ? hn::Sub(load_or(d, partial, mean_lanes, x + j, count), mean_lanes) : load(d, partial, x + j, count);
      squares = hn::MulAdd(centre, centre, squares);
    });
    const float inverse = 1.0f / std::sqrt(sum_of_lanes(d, squares) * inverse_width + norm.epsilon);
    const auto scale = hn::Set(d, inverse);
    for_each_vector(d, width, [&](auto partial, std::int64_t j, std::size_t count) HWY_ATTR {
      auto value = load(d, partial, x + j, count);
      if constexpr (centred) value = hn::Sub(value, mean_lanes);
      value = hn::Mul(hn::Mul(value, scale), load(d, partial, norm.gain + j, count));
      if (centred && norm.bias != nullptr) value = hn::Add(value, load(d, partial, norm.bias + j, count));
      store(d, partial, value, y + j, count);
    });
    if (norm.statistics == nullptr) continue;
    if constexpr (centred) {
      norm.statistics[2 * r] = mean;
      norm.statistics[2 * r + 1] = inverse;
    } else {
      norm.statistics[r] = inverse;
    }
  }
}

// Rows [begin, end). gain_sums and bias_sums, when not null, are the [width] sums of this block, zero at first.
template <bool centred>
void norm_backward_rows(const NormBackward& norm, std::int64_t begin, std::int64_t end, float* gain_sums,
                        float* bias_sums) {
  const Tag d;
  const std::int64_t width = norm.x.width;
  const float inverse_width = 1.0f / static_cast<float>(width);
  for (std::int64_t r = begin; r < end; ++r) {
    const float* x = norm.x.data + r * norm.x.stride;
    const float* dy = norm.y_gradient.data + r * norm.y_gradient.stride;
    const float mean = centred ? norm.statistics[2 * r] : 0.0f,
                inverse = centred ? norm.statistics[2 * r + 1] : norm.statistics[r];
    const auto mean_lanes = hn::Set(d, mean), scale = hn::Set(d, inverse);
    // With h = (x - mean) * inverse and t = dy * gain: dx = inverse * (t - average(t) - h * average(t * h)).
    auto sum = hn::Zero(d), sum_of_products = hn::Zero(d);
    for_each_vector(d, width, [&](auto partial, std::int64_t j, std::size_t count) HWY_ATTR {
      auto h = load(d, partial, x + j, count);
      if constexpr (centred) h = hn::Sub(h, mean_lanes);
      h = hn::Mul(h, scale);
      const auto gradient = load(d, partial, dy + j, count);
      if (gain_sums != nullptr)
        store(d, partial, hn::MulAdd(gradient, h, load(d, partial, gain_sums + j, count)), gain_sums + j, count);
      if (bias_sums != nullptr)
        store(d, partial, hn::Add(gradient, load(d, partial, bias_sums + j, count)), bias_sums + j, count);
      const auto t = hn::Mul(gradient, load(d, partial, norm.gain + j, count));
      if constexpr (centred) sum = hn::Add(sum, t);
      sum_of_products = hn::MulAdd(t, h, sum_of_products);
    });
    if (norm.x_gradient.data == nullptr) continue;
    float* dx = norm.x_gradient.data + r * norm.x_gradient.stride;
    const auto average = hn::Set(d, centred ? sum_of_lanes(d, sum) * inverse_width : 0.0f);
    const auto average_product = hn::Set(d, sum_of_lanes(d, sum_of_products) * inverse_width);
    for_each_vector(d, width, [&](auto partial, std::int64_t j, std::size_t count) HWY_ATTR {
      auto h = load(d, partial, x + j, count);
      if constexpr (centred) h = hn::Sub(h, mean_lanes);
      h = hn::Mul(h, scale);
      auto t = hn::Mul(load(d, partial, dy + j, count), load(d, partial, norm.gain + j, count));
      if constexpr (centred) t = hn::Sub(t, average);
      t = hn::NegMulAdd(h, average_product, t);
      store(d, partial, hn::MulAdd(t, scale, load(d, partial, dx + j, count)), dx + j, count);
    });
  }
}

void layer_norm_rows(const Norm& norm, std::int64_t begin, std::int64_t end) { norm_rows<true>(norm, begin, end); }
void rms_norm_rows(const Norm& norm, std::int64_t begin, std::int64_t end) { norm_rows<false>(norm, begin, end); }
void layer_norm_backward_rows(const NormBackward& norm, std::int64_t begin, std::int64_t end, float* gain_sums,
                              float* bias_sums) {
  norm_backward_rows<true>(norm, begin, end, gain_sums, bias_sums);
}
void rms_norm_backward_rows(const NormBackward& norm, std::int64_t begin, std::int64_t end, float* gain_sums,
                            float* bias_sums) {
  norm_backward_rows<false>(norm, begin, end, gain_sums, bias_sums);
}

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace attend
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace attend {
namespace {
HWY_EXPORT(layer_norm_rows);
HWY_EXPORT(rms_norm_rows);
HWY_EXPORT(layer_norm_backward_rows);
HWY_EXPORT(rms_norm_backward_rows);

constexpr std::int64_t block_rows = 64;

template <typename Function>
void backward(Function function, const NormBackward& norm, float* gain_gradient, float* bias_gradient) {
  const std::int64_t rows = norm.x.rows, width = norm.x.width;
  const std::int64_t blocks = (rows + block_rows - 1) / block_rows;
  const bool sums_wanted = gain_gradient != nullptr || bias_gradient != nullptr;
  Buffer sums(sums_wanted ? blocks * 2 * width : 0);
  parallel_ranges(blocks, rows_grain(width * block_rows), [&](std::int64_t begin, std::int64_t end, int) {
    for (std::int64_t block = begin; block < end; ++block) {
      float* block_sums = sums_wanted ? sums.data() + block * 2 * width : nullptr;
      if (sums_wanted) std::fill_n(block_sums, 2 * width, 0.0f);
      function(norm, block * block_rows, std::min(rows, (block + 1) * block_rows),
               gain_gradient == nullptr ? nullptr : block_sums,
               bias_gradient == nullptr ? nullptr : block_sums + width);
    }
  });
  if (!sums_wanted) return;
  const Rows block_sums{sums.data(), blocks, width, 2 * width};
  if (gain_gradient != nullptr) sum_over_rows(block_sums, gain_gradient);
  if (bias_gradient != nullptr) sum_over_rows({sums.data() + width, blocks, width, 2 * width}, bias_gradient);
}

}  // namespace

void layer_norm(Rows x, const float* gain, const float* bias, float epsilon, MutableRows y, float* statistics) {
  const Norm norm{x, gain, bias, epsilon, y, statistics};
  const auto function = HWY_DYNAMIC_DISPATCH(layer_norm_rows);
  parallel_ranges(x.rows, rows_grain(x.width),
                  [&](std::int64_t begin, std::int64_t end, int) { function(norm, begin, end); });
}

void layer_norm_backward(Rows x, const float* gain, const float* statistics, Rows y_gradient, MutableRows x_gradient,
                         float* gain_gradient, float* bias_gradient) {
  backward(HWY_DYNAMIC_DISPATCH(layer_norm_backward_rows), {x, gain, statistics, y_gradient, x_gradient}, gain_gradient,
           bias_gradient);
}

void rms_norm(Rows x, const float* gain, float epsilon, MutableRows y, float* statistics) {
  const Norm norm{x, gain, nullptr, epsilon, y, statistics};
  const auto function = HWY_DYNAMIC_DISPATCH(rms_norm_rows);
  parallel_ranges(x.rows, rows_grain(x.width),
                  [&](std::int64_t begin, std::int64_t end, int) { function(norm, begin, end); });
}

void rms_norm_backward(Rows x, const float* gain, const float* statistics, Rows y_gradient, MutableRows x_gradient,
                       float* gain_gradient) {
  backward(HWY_DYNAMIC_DISPATCH(rms_norm_backward_rows), {x, gain, statistics, y_gradient, x_gradient}, gain_gradient,
           nullptr);
}

}  // namespace attend
#endif
