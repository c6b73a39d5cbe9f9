// The arithmetic shared by the attention kernels, compiled once per target: small matrix products on tiles kept in
// registers, the packing that feeds them, and the exponential.
//
// Packed panels: a matrix [depth, columns] is stored as panels of two vectors of columns, each panel [depth, 2 * lanes];
// an odd last vector makes a panel of one. Column j (a multiple of 2 * lanes) starts at offset j * depth.
#if defined(ATTEND_ATTENTION_TILE_INL_H) == defined(HWY_TARGET_TOGGLE)
#ifdef ATTEND_ATTENTION_TILE_INL_H
#undef ATTEND_ATTENTION_TILE_INL_H
#else
#define ATTEND_ATTENTION_TILE_INL_H
#endif

#include <cstdint>

#include "hwy/highway.h"
#include "kernel/attention/attention_plan.h"

// GCC keeps an array of vectors in registers only if every loop over it is unrolled.
#ifndef ATTEND_UNROLL
#if defined(__clang__)
#define ATTEND_UNROLL _Pragma("clang loop unroll(full)")
#else
#define ATTEND_UNROLL _Pragma("GCC unroll 16")
#endif
#endif

HWY_BEFORE_NAMESPACE();
namespace attend {
namespace attention {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

using Tag = hn::ScalableTag<float>;
using Vector = hn::Vec<Tag>;
constexpr std::int64_t lanes = HWY_LANES(float);
constexpr std::int64_t panel = 2 * lanes;

// Floats from one row of scores to the next: not a power of two, which would send the rows of a tile to the same few sets
// of the first cache.
constexpr std::int64_t score_stride = block_keys + 16;

// Rows of a register tile two vectors wide: sums, two vectors of B and one of A fit the registers.
#if HWY_TARGET == HWY_AVX3
constexpr int tile_rows = 12;
#else
constexpr int tile_rows = 6;
#endif

HWY_INLINE std::int64_t rounded_up(std::int64_t value, std::int64_t step) { return (value + step - 1) / step * step; }
HWY_INLINE std::int64_t smaller(std::int64_t a, std::int64_t b) { return a < b ? a : b; }
HWY_INLINE std::int64_t larger(std::int64_t a, std::int64_t b) { return a > b ? a : b; }

// How the left matrix of a product lies in memory.
enum class Left {
  score_rows,  // element (i, k) at i * score_stride + k
  columns,     // element (i, k) at k * step + i
};

// c[rows, vectors * lanes] (=, +=) a * b. One sequence of multiply-adds over k for every element, whatever the tile.
template <int rows, int vectors, Left left, bool add>
HWY_INLINE void tile(const float* HWY_RESTRICT a, std::int64_t step, const float* HWY_RESTRICT b, std::int64_t b_step,
                     std::int64_t depth, float* HWY_RESTRICT c, std::int64_t c_stride) {
  const Tag d;
  Vector sums[rows][vectors];
  ATTEND_UNROLL
  for (int i = 0; i < rows; ++i) {
    ATTEND_UNROLL
    for (int v = 0; v < vectors; ++v) sums[i][v] = add ? hn::LoadU(d, c + i * c_stride + v * lanes) : hn::Zero(d);
  }
  for (std::int64_t k = 0; k < depth; ++k) {
    Vector right[vectors];
    ATTEND_UNROLL
    for (int v = 0; v < vectors; ++v) right[v] = hn::LoadU(d, b + v * lanes);
    ATTEND_UNROLL
    for (int i = 0; i < rows; ++i) {
      const Vector value = hn::Set(d, left == Left::score_rows ? a[i * score_stride] : a[i]);
      ATTEND_UNROLL
      for (int v = 0; v < vectors; ++v) sums[i][v] = hn::MulAdd(value, right[v], sums[i][v]);
    }
    a += left == Left::score_rows ? 1 : step;
    b += b_step;
  }
  ATTEND_UNROLL
  for (int i = 0; i < rows; ++i) {
    ATTEND_UNROLL
    for (int v = 0; v < vectors; ++v) hn::StoreU(sums[i][v], d, c + i * c_stride + v * lanes);
  }
}

template <int vectors, Left left, bool add>
inline HWY_NOINLINE void multiply_panel(std::int64_t rows, std::int64_t depth, const float* HWY_RESTRICT a,
                                        std::int64_t step, const float* HWY_RESTRICT b, std::int64_t b_step,
                                        float* HWY_RESTRICT c, std::int64_t c_stride) {
  constexpr std::int64_t row_step = left == Left::score_rows ? score_stride : 1;
  std::int64_t i = 0;
  for (; i + tile_rows <= rows; i += tile_rows)
    tile<tile_rows, vectors, left, add>(a + i * row_step, step, b, b_step, depth, c + i * c_stride, c_stride);
  if (tile_rows > 8 && i + 8 <= rows) {
    tile<8, vectors, left, add>(a + i * row_step, step, b, b_step, depth, c + i * c_stride, c_stride);
    i += 8;
  }
  if (i + 4 <= rows) {
    tile<4, vectors, left, add>(a + i * row_step, step, b, b_step, depth, c + i * c_stride, c_stride);
    i += 4;
  }
  if (i + 2 <= rows) {
    tile<2, vectors, left, add>(a + i * row_step, step, b, b_step, depth, c + i * c_stride, c_stride);
    i += 2;
  }
  if (i < rows) tile<1, vectors, left, add>(a + i * row_step, step, b, b_step, depth, c + i * c_stride, c_stride);
}

// c[rows, columns] (=, +=) a[rows, depth] * b[depth, columns], where b is rows [b_begin, b_begin + depth) of panels
// packed b_depth deep. columns is a multiple of lanes.
template <Left left, bool add>
HWY_INLINE void multiply(std::int64_t rows, std::int64_t columns, std::int64_t depth, const float* a, std::int64_t step,
                         const float* b, std::int64_t b_depth, std::int64_t b_begin, float* c, std::int64_t c_stride) {
  std::int64_t j = 0;
  for (; j + panel <= columns; j += panel)
    multiply_panel<2, left, add>(rows, depth, a, step, b + j * b_depth + b_begin * panel, panel, c + j, c_stride);
  if (j < columns)
    multiply_panel<1, left, add>(rows, depth, a, step, b + j * b_depth + b_begin * lanes, lanes, c + j, c_stride);
}

// c[rows, begin..end) = a[rows, depth] * b for columns of panels packed `b_columns` wide and depth deep. begin is a multiple
// of panel, end of lanes: the last vector may be the first half of a panel.
HWY_INLINE void multiply_columns(std::int64_t rows, std::int64_t begin, std::int64_t end, std::int64_t depth,
                                 const float* a, std::int64_t step, const float* b, std::int64_t b_columns, float* c,
                                 std::int64_t c_stride) {
  std::int64_t j = begin;
  for (; j + panel <= end; j += panel)
    multiply_panel<2, Left::columns, false>(rows, depth, a, step, b + j * depth, panel, c + j, c_stride);
  if (j < end)
    multiply_panel<1, Left::columns, false>(rows, depth, a, step, b + j * depth, j + panel <= b_columns ? panel : lanes,
                                            c + j, c_stride);
}

// ---- Packing ---------------------------------------------------------------------------------------------------

// Rows of one head lie a model width apart, which hardware prefetchers do not follow.
HWY_INLINE void prefetch_row(const float* row, std::int64_t width) {
  for (std::int64_t x = 0; x < width; x += 16) __builtin_prefetch(row + x);
}

// The vector whose 128-bit part b is the four floats at rows[4 * b] + offset.
template <class D>
HWY_INLINE hn::Vec<D> gather_quads(D d, const float* const* rows, std::int64_t offset) {
  if constexpr (hn::MaxLanes(D()) == 4) {
    return hn::LoadU(d, rows[0] + offset);
  } else {
    const hn::Half<D> half;
    return hn::Combine(d, gather_quads(half, rows + hn::MaxLanes(half), offset), gather_quads(half, rows, offset));
  }
}

// out[x * out_stride + r] = rows[r][x] * factor for r < lanes, x < width.
HWY_INLINE void transpose_rows(const float* const* rows, std::int64_t width, float factor, float* HWY_RESTRICT out,
                               std::int64_t out_stride) {
  const Tag d;
  const hn::Repartition<double, Tag> pairs;
  const Vector scale = hn::Set(d, factor);
  std::int64_t x = 0;
  for (; x + 4 <= width; x += 4) {
    const Vector r0 = gather_quads(d, rows + 0, x), r1 = gather_quads(d, rows + 1, x);
    const Vector r2 = gather_quads(d, rows + 2, x), r3 = gather_quads(d, rows + 3, x);
    const auto low01 = hn::BitCast(pairs, hn::InterleaveLower(d, r0, r1)),
               low23 = hn::BitCast(pairs, hn::InterleaveLower(d, r2, r3));
    const auto high01 = hn::BitCast(pairs, hn::InterleaveUpper(d, r0, r1)),
               high23 = hn::BitCast(pairs, hn::InterleaveUpper(d, r2, r3));
    float* HWY_RESTRICT to = out + x * out_stride;
    hn::StoreU(hn::Mul(scale, hn::BitCast(d, hn::InterleaveLower(pairs, low01, low23))), d, to);
    hn::StoreU(hn::Mul(scale, hn::BitCast(d, hn::InterleaveUpper(pairs, low01, low23))), d, to + out_stride);
    hn::StoreU(hn::Mul(scale, hn::BitCast(d, hn::InterleaveLower(pairs, high01, high23))), d, to + 2 * out_stride);
    hn::StoreU(hn::Mul(scale, hn::BitCast(d, hn::InterleaveUpper(pairs, high01, high23))), d, to + 3 * out_stride);
  }
  for (; x < width; ++x)
    for (std::int64_t r = 0; r < lanes; ++r) out[x * out_stride + r] = rows[r][x] * factor;
}

// Rows as columns of panels [width, panel]. `rows` is filled up to a multiple of lanes with rows of zeros.
HWY_INLINE void pack_transposed(const float* const* rows, std::int64_t count, std::int64_t width,
                                float* HWY_RESTRICT out) {
  const std::int64_t columns = rounded_up(count, lanes);
  for (std::int64_t j = 0; j < columns; j += lanes) {
    for (std::int64_t r = j + lanes; r < smaller(j + 2 * lanes, count); ++r) prefetch_row(rows[r], width);
    const std::int64_t first = j / panel * panel;  // column where this panel starts
    const std::int64_t stride = first + panel <= columns ? panel : lanes;
    transpose_rows(rows + j, width, 1.0f, out + first * width + (j - first), stride);
  }
}

// Rows as rows of panels [count, panel], filled with zeros up to a multiple of lanes columns. False when an element is
// not finite.
HWY_INLINE bool pack_rows(const float* const* rows, std::int64_t count, std::int64_t width, float factor,
                          float* HWY_RESTRICT out) {
  const Tag d;
  const std::int64_t columns = rounded_up(width, lanes), whole = width / lanes * lanes;
  const Vector zero = hn::Zero(d), scale = hn::Set(d, factor);
  Vector spoiled = zero;  // 0 * x is 0 unless x is infinite or NaN
  for (std::int64_t r = 0; r < count; ++r) {
    const float* HWY_RESTRICT row = rows[r];
    if (r + 8 < count) prefetch_row(rows[r + 8], width);
    std::int64_t x = 0;
    for (; x < whole; x += lanes) {
      const std::int64_t first = x / panel * panel;
      const std::int64_t stride = first + panel <= columns ? panel : lanes;
      const Vector value = hn::Mul(scale, hn::LoadU(d, row + x));
      spoiled = hn::MulAdd(value, zero, spoiled);
      hn::StoreU(value, d, out + first * count + r * stride + (x - first));
    }
    if (x < columns) {
      const std::int64_t first = x / panel * panel;
      const std::int64_t stride = first + panel <= columns ? panel : lanes;
      float* HWY_RESTRICT to = out + first * count + r * stride + (x - first);
      hn::StoreU(zero, d, to);
      for (std::int64_t y = x; y < width; ++y) to[y - x] = row[y] * factor;
      spoiled = hn::MulAdd(hn::LoadU(d, to), zero, spoiled);
    }
  }
  return hn::AllTrue(d, hn::Eq(spoiled, zero));
}

// ---- Numbers that are not finite --------------------------------------------------------------------------------
// A weight of 0 times a NaN is a NaN, yet a masked row must leave no trace. So products run on panels in which such
// elements are 0, and then the rows that do reach a spoiled one are mended. This never happens in healthy calls.

HWY_INLINE bool finite(float x) { return x - x == 0; }

HWY_INLINE void clear_spoiled(float* panels, std::int64_t size) {
  for (std::int64_t i = 0; i < size; ++i)
    if (!finite(panels[i])) panels[i] = 0;
}

// c[i, x] += left(i, k) * rows[k][x] * factor for the elements cleared above, where left(i, k) is not 0.
template <Left left>
inline HWY_NOINLINE void mend_spoiled(std::int64_t count, std::int64_t depth, const float* a, std::int64_t step,
                                      const float* const* rows, std::int64_t width, float factor, float* c,
                                      std::int64_t c_stride) {
  for (std::int64_t k = 0; k < depth; ++k)
    for (std::int64_t x = 0; x < width; ++x) {
      const float value = rows[k][x] * factor;
      if (finite(value)) continue;
      for (std::int64_t i = 0; i < count; ++i) {
        const float weight = left == Left::score_rows ? a[i * score_stride + k] : a[k * step + i];
        if (weight != 0) c[i * c_stride + x] += weight * value;
      }
    }
}

// ---- Exponential -------------------------------------------------------------------------------------------------

constexpr float log2_e = 1.44269504088896341f;
constexpr float ln_2 = 0.693147180559945309f;

// Keeps exponents where they can be summed: 2^x is 0 in float far above. In this order NaN stays NaN.
HWY_INLINE Vector clamp_exponent(Vector x) {
  const Tag d;
  return hn::Max(hn::Set(d, -200.0f), x);
}

// As exp2_of, for x not below -200 on AVX3.
HWY_INLINE Vector exp2_of_clamped(Vector x) {
  const Tag d;
  const Vector whole = hn::Round(x);
  const Vector r = hn::Sub(x, whole);
  Vector p = hn::Set(d, 0.00132647273f);
  p = hn::MulAdd(p, r, hn::Set(d, 0.00967151299f));
  p = hn::MulAdd(p, r, hn::Set(d, 0.0555073358f));
  p = hn::MulAdd(p, r, hn::Set(d, 0.240222424f));
  p = hn::MulAdd(p, r, hn::Set(d, 0.693147004f));
  p = hn::MulAdd(p, r, hn::Set(d, 1.0f));
#if HWY_TARGET == HWY_AVX3
  return Vector{_mm512_scalef_ps(p.raw, whole.raw)};
#else
  const hn::RebindToSigned<Tag> di;
  const auto power = hn::ShiftLeft<23>(hn::Add(hn::ConvertTo(di, whole), hn::Set(di, 127)));
  const Vector scaled = hn::Mul(p, hn::BitCast(d, power));  // a product, so that NaN stays NaN
  return hn::IfThenZeroElse(hn::Lt(x, hn::Set(d, -126.0f)), scaled);
#endif
}

// 2^x for x up to about 0; exactly 0 for minus infinity, NaN for NaN. Relative error below 2e-7: 2^fraction by a
// polynomial fitted on [-1/2, 1/2], its constant kept at 1.
HWY_INLINE Vector exp2_of(Vector x) {
#if HWY_TARGET == HWY_AVX3
  return exp2_of_clamped(clamp_exponent(x));
#else
  return exp2_of_clamped(x);
#endif
}

HWY_INLINE float exp2_of(float x) { return hn::GetLane(exp2_of(hn::Set(Tag(), x))); }

}  // namespace HWY_NAMESPACE
}  // namespace attention
}  // namespace attend
HWY_AFTER_NAMESPACE();

#endif
