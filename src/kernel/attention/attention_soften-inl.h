// From scores to weights relative to a row's running maximum (Milakov and Gimelshein 2018), block by block.
#if defined(ATTEND_ATTENTION_SOFTEN_INL_H) == defined(HWY_TARGET_TOGGLE)
#ifdef ATTEND_ATTENTION_SOFTEN_INL_H
#undef ATTEND_ATTENTION_SOFTEN_INL_H
#else
#define ATTEND_ATTENTION_SOFTEN_INL_H
#endif

#include <cstdint>

#include "hwy/highway.h"
#include "kernel/attention/attention_scores-inl.h"
#include "kernel/attention/attention_tile-inl.h"

HWY_BEFORE_NAMESPACE();
namespace attend {
namespace attention {
namespace HWY_NAMESPACE {

// A row between two blocks: its largest score so far, the sum of exp(score - largest), and the weighted values,
// `columns` of them. The difference comes before the factor log2(e): it is exact however large the scores are.
struct SoftRow {
  float* largest;
  float* sum;
  float* HWY_RESTRICT output;
  std::int64_t columns;
};

// The row r after one of a unit.
HWY_INLINE SoftRow row_after(const SoftRow& row, std::int64_t r) {
  return {row.largest + r, row.sum + r, row.output + r * row.columns, row.columns};
}

HWY_INLINE float largest_score(const float* HWY_RESTRICT s, std::int64_t begin, std::int64_t end) {
  const Tag d;
  Vector top = hn::LoadU(d, s + begin);
  for (std::int64_t j = begin + lanes; j < end; j += lanes) top = hn::Max(top, hn::LoadU(d, s + j));
  return hn::GetLane(hn::MaxOfLanes(d, top));
}

// A block in which the row sees nothing.
HWY_INLINE void soften_nothing(float* HWY_RESTRICT s, std::int64_t begin, std::int64_t end, bool fresh,
                               const SoftRow& row) {
  const Tag d;
  for (std::int64_t j = begin; j < end; j += lanes) hn::StoreU(hn::Zero(d), d, s + j);
  if (!fresh) return;
  *row.largest = minus_infinity;
  *row.sum = 0;
}

// Brings sum and output to a new maximum; returns the factor.
HWY_INLINE float raise_largest(float found, const SoftRow& row) {
  const Tag d;
  const float factor = exp2_of((*row.largest - found) * log2_e);
  *row.largest = found;
  *row.sum *= factor;
  const Vector factors = hn::Set(d, factor);
  for (std::int64_t x = 0; x < row.columns; x += lanes)
    hn::StoreU(hn::Mul(factors, hn::LoadU(d, row.output + x)), d, row.output + x);
  return factor;
}

// Scores become weights, and their sum is added.
HWY_INLINE void weigh_scores(float* HWY_RESTRICT s, std::int64_t begin, std::int64_t end, const SoftRow& row) {
  const Tag d;
  const Vector log2 = hn::Set(d, log2_e), shift = hn::Set(d, *row.largest);
  Vector total = hn::Zero(d);
  for (std::int64_t j = begin; j < end; j += lanes) {
    const Vector weight = exp2_of(hn::Mul(hn::Sub(hn::LoadU(d, s + j), shift), log2));
    total = hn::Add(total, weight);
    hn::StoreU(weight, d, s + j);
  }
  *row.sum += hn::GetLane(hn::SumOfLanes(d, total));
}

// One block of a row: columns [begin, end) of s.
HWY_INLINE void soften_row(float* HWY_RESTRICT s, std::int64_t begin, std::int64_t end, bool fresh,
                           const SoftRow& row) {
  const float found = largest_score(s, begin, end);
  if (found == minus_infinity) {
    soften_nothing(s, begin, end, fresh, row);
    return;
  }
  if (fresh) {
    *row.largest = found;
    *row.sum = 0;
  } else if (!(found <= *row.largest)) {
    raise_largest(found, row);
  }
  weigh_scores(s, begin, end, row);
}

}  // namespace HWY_NAMESPACE
}  // namespace attention
}  // namespace attend
HWY_AFTER_NAMESPACE();

#endif
