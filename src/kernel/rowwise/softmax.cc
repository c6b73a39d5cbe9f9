// Softmax, its logarithm, and cross-entropy. A row is read for its maximum, then for the exponentials, then scaled; the
// second and third pass find it in the cache. Sums are taken over pieces in float and over the row in double.
#include <algorithm>
#include <cmath>
#include <limits>

#include "core/threads.h"
#include "kernel/rowwise/grain.h"
#include "kernel/rowwise/rowwise.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernel/rowwise/softmax.cc"
#include "hwy/foreach_target.h"

#include "hwy/highway.h"
#include "kernel/rowwise/functions-inl.h"

#ifndef ATTEND_SOFTMAX_ONCE
#define ATTEND_SOFTMAX_ONCE
namespace attend {
namespace {

constexpr float minus_infinity = -std::numeric_limits<float>::infinity();
constexpr std::int64_t piece = 1024;

struct CrossEntropy {
  MutableRows logits;
  const std::int32_t* labels;
  float smoothing, gradient_scale;
  float* losses;
  float* plain;
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

HWY_INLINE float largest(const float* x, std::int64_t width) {
  const Tag d;
  const auto lowest = hn::Set(d, minus_infinity);
  const auto lanes = static_cast<std::int64_t>(hn::Lanes(d));
  auto top = lowest, top1 = lowest, top2 = lowest, top3 = lowest;
  std::int64_t j = 0;
  for (; j + 4 * lanes <= width; j += 4 * lanes) {
    top = hn::Max(top, hn::LoadU(d, x + j));
    top1 = hn::Max(top1, hn::LoadU(d, x + j + lanes));
    top2 = hn::Max(top2, hn::LoadU(d, x + j + 2 * lanes));
    top3 = hn::Max(top3, hn::LoadU(d, x + j + 3 * lanes));
  }
  for_each_vector(d, width - j, [&](auto partial, std::int64_t k, std::size_t count) HWY_ATTR {
    top = hn::Max(top, load_or(d, partial, lowest, x + j + k, count));
  });
  return hn::GetLane(hn::MaxOfLanes(d, hn::Max(hn::Max(top, top1), hn::Max(top2, top3))));
}

HWY_INLINE double sum(const float* x, std::int64_t width) {
  const Tag d;
  double total = 0;
  for (std::int64_t begin = 0; begin < width; begin += piece) {
    auto part = hn::Zero(d);
    for_each_vector(d, std::min(piece, width - begin), [&](auto partial, std::int64_t j, std::size_t count) HWY_ATTR {
      part = hn::Add(part, load(d, partial, x + begin + j, count));
    });
    total += sum_of_lanes(d, part);
  }
  return total;
}

// Sum of e^(x - top); the terms go to y if it is not null.
HWY_INLINE double exponentials(const float* x, std::int64_t width, float top, float* y) {
  const Tag d;
  const auto top_lanes = hn::Set(d, top), lowest = hn::Set(d, minus_infinity);
  double total = 0;
  for (std::int64_t begin = 0; begin < width; begin += piece) {
    auto part = hn::Zero(d);
    for_each_vector(d, std::min(piece, width - begin), [&](auto partial, std::int64_t j, std::size_t count) HWY_ATTR {
      const auto term = exponential(d, hn::Sub(load_or(d, partial, lowest, x + begin + j, count), top_lanes));
      part = hn::Add(part, term);
      if (y != nullptr) store(d, partial, term, y + begin + j, count);
    });
    total += sum_of_lanes(d, part);
  }
  return total;
}

// x * scale - shift.
HWY_INLINE void scale_and_shift(float* x, std::int64_t width, float scale, float shift) {
  const Tag d;
  const auto by = hn::Set(d, scale), minus = hn::Set(d, shift);
  for_each_vector(d, width, [&](auto partial, std::int64_t j, std::size_t count) HWY_ATTR {
    store(d, partial, hn::MulSub(load(d, partial, x + j, count), by, minus), x + j, count);
  });
}

// Nothing but minus infinity in the row, since its maximum is that? The maximum may have lost a NaN.
HWY_INLINE bool has_nan(const float* x, std::int64_t width) {
  return std::any_of(x, x + width, [](float value) { return value != value; });
}

void softmax_rows(Rows x, MutableRows y, std::int64_t begin, std::int64_t end) {
  for (std::int64_t r = begin; r < end; ++r) {
    const float* from = x.data + r * x.stride;
    float* to = y.data + r * y.stride;
    const float top = largest(from, x.width);
    if (top == minus_infinity && !has_nan(from, x.width)) {
      std::fill_n(to, x.width, 0.0f);
      continue;
    }
    const double total = exponentials(from, x.width, top, to);
    scale_and_shift(to, x.width, static_cast<float>(1 / total), 0.0f);
  }
}

void log_softmax_rows(Rows x, MutableRows y, std::int64_t begin, std::int64_t end) {
  const Tag d;
  for (std::int64_t r = begin; r < end; ++r) {
    const float* from = x.data + r * x.stride;
    float* to = y.data + r * y.stride;
    const float top = largest(from, x.width);
    if (top == minus_infinity && !has_nan(from, x.width)) {
      std::fill_n(to, x.width, minus_infinity);
      continue;
    }
    const auto top_lanes = hn::Set(d, top);
    const auto log_sum = hn::Set(d, static_cast<float>(std::log(exponentials(from, x.width, top, nullptr))));
    for_each_vector(d, x.width, [&](auto partial, std::int64_t j, std::size_t count) HWY_ATTR {
      store(d, partial, hn::Sub(hn::Sub(load(d, partial, from + j, count), top_lanes), log_sum), to + j, count);
    });
  }
}

void cross_entropy_rows(const CrossEntropy& job, std::int64_t begin, std::int64_t end) {
  const std::int64_t width = job.logits.width;
  const double smoothing = job.smoothing;
  for (std::int64_t r = begin; r < end; ++r) {
    float* row = job.logits.data + r * job.logits.stride;
    const std::int32_t label = job.labels[r];
    if (label < 0) {
      job.losses[r] = 0;
      if (job.plain != nullptr) job.plain[r] = 0;
      if (job.gradient_scale != 0) std::fill_n(row, width, 0.0f);
      continue;
    }
    const float top = largest(row, width);
    const double of_label = row[label];
    // Without smoothing the other logits do not count, not even if one of them is minus infinity.
    const double average = smoothing != 0 ? sum(row, width) / static_cast<double>(width) : 0;
    const double total = exponentials(row, width, top, job.gradient_scale != 0 ? row : nullptr);
    const double log_sum = top + std::log(total);
    double loss = (1 - smoothing) * (log_sum - of_label);
    if (smoothing != 0) loss += smoothing * (log_sum - average);
    job.losses[r] = static_cast<float>(loss);
    if (job.plain != nullptr) job.plain[r] = static_cast<float>(log_sum - of_label);
    if (job.gradient_scale == 0) continue;
    scale_and_shift(row, width, static_cast<float>(job.gradient_scale / total),
                    static_cast<float>(job.gradient_scale * smoothing / static_cast<double>(width)));
    row[label] -= static_cast<float>(job.gradient_scale * (1 - smoothing));
  }
}

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace attend
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace attend {
namespace {
HWY_EXPORT(softmax_rows);
HWY_EXPORT(log_softmax_rows);
HWY_EXPORT(cross_entropy_rows);

constexpr std::int64_t elements_a_task = 4096;
}  // namespace

void softmax(Rows x, MutableRows y) {
  const auto function = HWY_DYNAMIC_DISPATCH(softmax_rows);
  parallel_ranges(x.rows, rows_grain(x.width, elements_a_task),
                  [&](std::int64_t begin, std::int64_t end, int) { function(x, y, begin, end); });
}

void log_softmax(Rows x, MutableRows y) {
  const auto function = HWY_DYNAMIC_DISPATCH(log_softmax_rows);
  parallel_ranges(x.rows, rows_grain(x.width, elements_a_task),
                  [&](std::int64_t begin, std::int64_t end, int) { function(x, y, begin, end); });
}

void cross_entropy(MutableRows logits, const std::int32_t* labels, float smoothing, float gradient_scale, float* losses,
                   float* plain) {
  const CrossEntropy job{logits, labels, smoothing, gradient_scale, losses, plain};
  const auto function = HWY_DYNAMIC_DISPATCH(cross_entropy_rows);
  parallel_ranges(logits.rows, rows_grain(logits.width, elements_a_task),
                  [&](std::int64_t begin, std::int64_t end, int) { function(job, begin, end); });
}

}  // namespace attend
#endif
