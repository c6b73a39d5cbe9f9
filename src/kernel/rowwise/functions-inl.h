// Vector forms of exp, sigmoid, the normal distribution function and the activations, compiled once for every target.
// Bounds were measured against double over all sign, small, large and special arguments; see the unit tests.
#if defined(ATTEND_KERNEL_FUNCTIONS_INL_H) == defined(HWY_TARGET_TOGGLE)
#ifdef ATTEND_KERNEL_FUNCTIONS_INL_H
#undef ATTEND_KERNEL_FUNCTIONS_INL_H
#else
#define ATTEND_KERNEL_FUNCTIONS_INL_H
#endif

#include <cstddef>
#include <cstdint>
#include <type_traits>

#include "attend/activation.h"
#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace attend {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

// The first `count` lanes from memory, zeros above; touches nothing beyond them. Only AVX2 and AVX-512 have masked
// memory operations: Highway's versions for other targets read and write whole vectors.
template <class D>
HWY_INLINE hn::VFromD<D> load_first(D d, const float* from, std::size_t count) {
#if HWY_TARGET == HWY_AVX2 || HWY_TARGET == HWY_AVX3
  return hn::MaskedLoad(hn::FirstN(d, count), d, from);
#else
  HWY_ALIGN float lanes[hn::MaxLanes(D())] = {};
  for (std::size_t i = 0; i < count; ++i) lanes[i] = from[i];
  return hn::Load(d, lanes);
#endif
}

template <class D>
HWY_INLINE void store_first(D d, hn::VFromD<D> value, float* to, std::size_t count) {
#if HWY_TARGET == HWY_AVX2 || HWY_TARGET == HWY_AVX3
  hn::BlendedStore(value, hn::FirstN(d, count), d, to);
#else
  HWY_ALIGN float lanes[hn::MaxLanes(D())];
  hn::Store(value, d, lanes);
  for (std::size_t i = 0; i < count; ++i) to[i] = lanes[i];
#endif
}

// Runs body(partial, j, count) for every vector of a row: partial is false_type with all lanes, true_type for the last
// `count` columns.
template <class D, class Body>
HWY_INLINE void for_each_vector(D d, std::int64_t width, const Body& body) {
  const auto lanes = static_cast<std::int64_t>(hn::Lanes(d));
  std::int64_t j = 0;
  for (; j + lanes <= width; j += lanes) body(std::false_type{}, j, static_cast<std::size_t>(lanes));
  if (j < width) body(std::true_type{}, j, static_cast<std::size_t>(width - j));
}

template <class D, class Partial>
HWY_INLINE hn::VFromD<D> load(D d, Partial, const float* from, std::size_t count) {
  if constexpr (Partial::value) return load_first(d, from, count);
  else return hn::LoadU(d, from);
}
template <class D, class Partial>
HWY_INLINE void store(D d, Partial, hn::VFromD<D> value, float* to, std::size_t count) {
  if constexpr (Partial::value) store_first(d, value, to, count);
  else hn::StoreU(value, d, to);
}
// As load, with `filling` in the lanes beyond the row.
template <class D, class Partial>
HWY_INLINE hn::VFromD<D> load_or(D d, Partial partial, hn::VFromD<D> filling, const float* from, std::size_t count) {
  const auto value = load(d, partial, from, count);
  if constexpr (Partial::value) return hn::IfThenElse(hn::FirstN(d, count), value, filling);
  else return value;
}

template <class D>
HWY_INLINE float sum_of_lanes(D d, hn::VFromD<D> value) {
  return hn::GetLane(hn::SumOfLanes(d, value));
}

// max(low, x) and min(high, x) that keep a NaN in x. x86 returns the second operand when one is NaN.
template <class D>
HWY_INLINE hn::VFromD<D> at_least(D, hn::VFromD<D> low, hn::VFromD<D> x) {
#if HWY_TARGET == HWY_SCALAR || HWY_TARGET == HWY_EMU128
  return hn::IfThenElse(hn::Lt(x, low), low, x);
#else
  return hn::Max(low, x);
#endif
}
template <class D>
HWY_INLINE hn::VFromD<D> at_most(D, hn::VFromD<D> high, hn::VFromD<D> x) {
#if HWY_TARGET == HWY_SCALAR || HWY_TARGET == HWY_EMU128
  return hn::IfThenElse(hn::Gt(x, high), high, x);
#else
  return hn::Min(high, x);
#endif
}

// e^x within 1.1 ulp. 0 below -87.33 (no denormal results), e^88 above 88; NaN stays.
template <class D>
HWY_INLINE hn::VFromD<D> exponential(D d, hn::VFromD<D> x) {
  const hn::RebindToSigned<D> di;
  const auto lowest = hn::Set(d, -87.336f);
  const auto in_range = at_most(d, hn::Set(d, 88.0f), at_least(d, lowest, x));
  // Adding 1.5 * 2^23 rounds x / ln 2 to an integer and leaves it, plus the exponent's bias, in the low bits.
  const auto magic = hn::Set(d, 12582912.0f + 127.0f);
  const auto shifted = hn::MulAdd(in_range, hn::Set(d, 1.44269504f), magic);
  const auto power = hn::Sub(shifted, magic);
  const auto scale = hn::BitCast(d, hn::ShiftLeft<23>(hn::BitCast(di, shifted)));
  auto r = hn::NegMulAdd(power, hn::Set(d, 0.693359375f), in_range);
  r = hn::NegMulAdd(power, hn::Set(d, -2.12194440e-4f), r);
  auto p = hn::MulAdd(hn::Set(d, 1.392625083e-03f), r, hn::Set(d, 8.363232884e-03f));
  p = hn::MulAdd(p, r, hn::Set(d, 4.166655421e-02f));
  p = hn::MulAdd(p, r, hn::Set(d, 1.666657667e-01f));
  p = hn::MulAdd(p, r, hn::Set(d, 0.5f));
  p = hn::MulAdd(hn::Mul(r, r), p, r);
  return hn::IfThenZeroElse(hn::Lt(x, lowest), hn::MulAdd(p, scale, scale));
}

// 1 / (1 + e^-x) within 2.5 ulp where the result is above 1e-37. `rest` is 1 minus that, without cancellation.
template <class D>
HWY_INLINE hn::VFromD<D> sigmoid(D d, hn::VFromD<D> x, hn::VFromD<D>& rest) {
  const auto one = hn::Set(d, 1.0f);
  const auto e = exponential(d, hn::Neg(x));
  const auto s = hn::Div(one, hn::Add(one, e));
  rest = hn::Mul(s, e);
  return s;
}
template <class D>
HWY_INLINE hn::VFromD<D> sigmoid(D d, hn::VFromD<D> x) {
  auto rest = hn::Undefined(d);
  return sigmoid(d, x, rest);
}

// Phi(-|x|), the upper tail of the normal distribution, and e^(-x^2/2). Phi(-a) = e^(-a^2/2) g(s) with
// s = 0.3 a / (1 + 0.3 a), where g is a Chebyshev fit over a in [0, 15] with a relative error of 1.2e-8. Altogether
// within 6e-8, and within 12 ulp down to a = 5 (19 without fused multiply-add).
template <class D>
HWY_INLINE hn::VFromD<D> normal_tail(D d, hn::VFromD<D> x, hn::VFromD<D>& bell) {
  const auto one = hn::Set(d, 1.0f);
  // Beyond 15 both are 0 in float.
  const auto a = at_most(d, hn::Set(d, 15.0f), hn::Abs(x));
  const auto scaled = hn::Mul(a, hn::Set(d, 0.3f));
  const auto s = hn::Div(scaled, hn::Add(scaled, one));
  // e^-(q + r) = e^-q (1 - r), where r is what rounding left out of q = a^2 / 2.
  const auto half = hn::Mul(a, hn::Set(d, 0.5f)), square = hn::Mul(half, a);
  bell = exponential(d, hn::Neg(square));
  bell = hn::NegMulAdd(bell, hn::MulSub(half, a, square), bell);
  auto g = hn::MulAdd(hn::Set(d, -1.835170531e-02f), s, hn::Set(d, 8.423907570e-02f));
  g = hn::MulAdd(g, s, hn::Set(d, -1.271871944e-01f));
  g = hn::MulAdd(g, s, hn::Set(d, 4.392484869e-02f));
  g = hn::MulAdd(g, s, hn::Set(d, -2.856383578e-03f));
  g = hn::MulAdd(g, s, hn::Set(d, 1.591693484e-01f));
  g = hn::MulAdd(g, s, hn::Set(d, -5.780167695e-02f));
  g = hn::MulAdd(g, s, hn::Set(d, -6.992876303e-01f));
  g = hn::MulAdd(g, s, hn::Set(d, 1.447960857e+00f));
  g = hn::MulAdd(g, s, hn::Set(d, -1.329807411e+00f));
  g = hn::MulAdd(g, s, hn::Set(d, 0.5f));
  return hn::Mul(g, bell);
}

// 2 u of gelu_tanh = x * sigmoid(2 u): 2 sqrt(2 / pi) (x + 0.044715 x^3).
template <class D>
HWY_INLINE hn::VFromD<D> gelu_tanh_inner(D d, hn::VFromD<D> x, hn::VFromD<D> square) {
  return hn::Mul(x, hn::MulAdd(square, hn::Set(d, 0.0713548162726f), hn::Set(d, 1.59576912161f)));
}

template <Activation kind, class D>
HWY_INLINE hn::VFromD<D> activated(D d, hn::VFromD<D> x) {
  if constexpr (kind == Activation::relu) {
    return at_least(d, hn::Zero(d), x);
  } else if constexpr (kind == Activation::gelu) {
    auto bell = hn::Undefined(d);
    const auto product = hn::Mul(x, normal_tail(d, x, bell));
    return hn::IfThenElse(hn::Lt(x, hn::Zero(d)), product, hn::Sub(x, product));
  } else if constexpr (kind == Activation::gelu_tanh) {
    return hn::Mul(x, sigmoid(d, gelu_tanh_inner(d, x, hn::Mul(x, x))));
  } else if constexpr (kind == Activation::silu) {
    return hn::Mul(x, sigmoid(d, x));
  } else {
    return x;
  }
}

// The derivative of the activation at x; the activation itself goes to `value`, where it costs nothing more.
template <Activation kind, class D>
HWY_INLINE hn::VFromD<D> slope(D d, hn::VFromD<D> x, hn::VFromD<D>& value) {
  [[maybe_unused]] const auto one = hn::Set(d, 1.0f);
  if constexpr (kind == Activation::relu) {
    value = at_least(d, hn::Zero(d), x);
    return hn::IfThenElseZero(hn::Gt(x, hn::Zero(d)), one);
  } else if constexpr (kind == Activation::gelu) {
    auto bell = hn::Undefined(d);
    const auto tail = normal_tail(d, x, bell);
    const auto below = hn::IfThenElse(hn::Lt(x, hn::Zero(d)), tail, hn::Sub(one, tail));
    value = hn::Mul(x, below);
    return hn::MulAdd(hn::Mul(x, hn::Set(d, 0.398942280401f)), bell, below);
  } else if constexpr (kind == Activation::gelu_tanh) {
    const auto square = hn::Mul(x, x);
    auto rest = hn::Undefined(d);
    const auto s = sigmoid(d, gelu_tanh_inner(d, x, square), rest);
    value = hn::Mul(x, s);
    const auto inner_slope = hn::MulAdd(square, hn::Set(d, 0.2140644488178f), hn::Set(d, 1.59576912161f));
    return hn::MulAdd(hn::Mul(value, rest), inner_slope, s);
  } else if constexpr (kind == Activation::silu) {
    auto rest = hn::Undefined(d);
    const auto s = sigmoid(d, x, rest);
    value = hn::Mul(x, s);
    return hn::MulAdd(value, rest, s);
  } else {
    value = x;
    return one;
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace attend
HWY_AFTER_NAMESPACE();

#endif  // ATTEND_KERNEL_FUNCTIONS_INL_H
