// Adam, and the sums over all parameters that clipping needs.
#include <algorithm>
#include <atomic>
#include <cmath>
#include <vector>

#include "core/threads.h"
#include "kernel/rowwise/rowwise.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernel/rowwise/optimiser.cc"
#include "hwy/foreach_target.h"

#include "hwy/highway.h"
#include "kernel/rowwise/functions-inl.h"

#ifndef ATTEND_OPTIMISER_ONCE
#define ATTEND_OPTIMISER_ONCE
namespace attend {
namespace {

struct AdamFactors {
  float gradient_scale, beta1, beta2, one_minus_beta1, one_minus_beta2;
  float rate1;           // rate / (1 - beta1^step)
  float correction2;     // 1 / (1 - beta2^step)
  float epsilon, decay;  // decay: rate * decay
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

void adam_range(const AdamFactors& factors, std::int64_t size, float* value, const float* gradient, float* first,
                float* second) {
  const Tag d;
  const auto scale = hn::Set(d, factors.gradient_scale), beta1 = hn::Set(d, factors.beta1),
             beta2 = hn::Set(d, factors.beta2);
  const auto rest1 = hn::Set(d, factors.one_minus_beta1), rest2 = hn::Set(d, factors.one_minus_beta2);
  const auto rate1 = hn::Set(d, factors.rate1), correction2 = hn::Set(d, factors.correction2);
  const auto epsilon = hn::Set(d, factors.epsilon), decay = hn::Set(d, factors.decay);
  for_each_vector(d, size, [&](auto partial, std::int64_t i, std::size_t count) HWY_ATTR {
    const auto g = hn::Mul(load(d, partial, gradient + i, count), scale);
    const auto m = hn::MulAdd(load(d, partial, first + i, count), beta1, hn::Mul(g, rest1));
    const auto v = hn::MulAdd(load(d, partial, second + i, count), beta2, hn::Mul(hn::Mul(g, g), rest2));
    store(d, partial, m, first + i, count);
    store(d, partial, v, second + i, count);
    const auto direction = hn::Div(hn::Mul(m, rate1), hn::Add(hn::Sqrt(hn::Mul(v, correction2)), epsilon));
    const auto old = load(d, partial, value + i, count);
    // old * (1 - rate * decay) would round the small decay away in the factor.
    store(d, partial, hn::Sub(hn::NegMulAdd(old, decay, old), direction), value + i, count);
  });
}

double squares_of(const float* data, std::int64_t size) {
  const hn::ScalableTag<double> d;
  const hn::Rebind<float, hn::ScalableTag<double>> df;
  const auto lanes = static_cast<std::int64_t>(hn::Lanes(d));
  auto sum0 = hn::Zero(d), sum1 = hn::Zero(d);
  std::int64_t i = 0;
  for (; i + 2 * lanes <= size; i += 2 * lanes) {
    const auto x0 = hn::PromoteTo(d, hn::LoadU(df, data + i)), x1 = hn::PromoteTo(d, hn::LoadU(df, data + i + lanes));
    sum0 = hn::MulAdd(x0, x0, sum0);
    sum1 = hn::MulAdd(x1, x1, sum1);
  }
  double sum = hn::GetLane(hn::SumOfLanes(d, hn::Add(sum0, sum1)));
  for (; i < size; ++i) sum += static_cast<double>(data[i]) * data[i];
  return sum;
}

bool finite_range(const float* data, std::int64_t size) {
  const Tag d;
  const hn::RebindToSigned<Tag> di;
  // Without the sign, the bits of infinity and of every NaN are the largest integers.
  auto top = hn::Zero(di);
  for_each_vector(d, size, [&](auto partial, std::int64_t i, std::size_t count) HWY_ATTR {
    top = hn::Max(top, hn::BitCast(di, hn::Abs(load(d, partial, data + i, count))));
  });
  return hn::AllTrue(di, hn::Lt(top, hn::Set(di, 0x7F800000)));
}

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace attend
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace attend {
namespace {
HWY_EXPORT(adam_range);
HWY_EXPORT(squares_of);
HWY_EXPORT(finite_range);

// Fixed, so that the order of sums does not depend on the number of threads.
constexpr std::int64_t block_size = 16384;
}  // namespace

void adam_step(const AdamStep& step, std::int64_t size, float* value, const float* gradient, float* first,
               float* second) {
  const double beta1 = step.beta1, beta2 = step.beta2, count = static_cast<double>(step.step);
  AdamFactors factors{};
  factors.gradient_scale = step.gradient_scale;
  factors.beta1 = step.beta1;
  factors.beta2 = step.beta2;
  factors.one_minus_beta1 = static_cast<float>(1 - beta1);
  factors.one_minus_beta2 = static_cast<float>(1 - beta2);
  factors.rate1 = static_cast<float>(step.rate / (1 - std::pow(beta1, count)));
  factors.correction2 = static_cast<float>(1 / (1 - std::pow(beta2, count)));
  factors.epsilon = step.epsilon;
  factors.decay = static_cast<float>(static_cast<double>(step.rate) * step.decay);
  const auto function = HWY_DYNAMIC_DISPATCH(adam_range);
  parallel_ranges((size + 15) / 16, 512, [&](std::int64_t begin, std::int64_t end, int) {
    const std::int64_t from = begin * 16, to = std::min(size, end * 16);
    function(factors, to - from, value + from, gradient + from, first + from, second + from);
  });
}

double sum_of_squares(const float* data, std::int64_t size) {
  const auto function = HWY_DYNAMIC_DISPATCH(squares_of);
  const std::int64_t blocks = (size + block_size - 1) / block_size;
  if (blocks <= 1) return size <= 0 ? 0 : function(data, size);
  std::vector<double> sums(static_cast<std::size_t>(blocks));
  parallel_ranges(blocks, 2, [&](std::int64_t begin, std::int64_t end, int) {
    for (std::int64_t block = begin; block < end; ++block)
      sums[static_cast<std::size_t>(block)] =
          function(data + block * block_size, std::min(block_size, size - block * block_size));
  });
  double sum = 0;
  for (double part : sums) sum += part;
  return sum;
}

bool all_finite(const float* data, std::int64_t size) {
  const auto function = HWY_DYNAMIC_DISPATCH(finite_range);
  std::atomic<bool> finite{true};
  parallel_ranges((size + block_size - 1) / block_size, 2, [&](std::int64_t begin, std::int64_t end, int) {
    for (std::int64_t block = begin; block < end && finite.load(std::memory_order_relaxed); ++block)
      if (!function(data + block * block_size, std::min(block_size, size - block * block_size)))
        finite.store(false, std::memory_order_relaxed);
  });
  return finite.load();
}

}  // namespace attend
#endif
