// The largest keys of a row, found while its scores pass by. A row keeps candidates, in order of their keys, and a bound
// that at least `top` keys so far are above (or equal, the equal ones being kept): a score that is not above the bound
// can never be among the largest, so most vectors are rejected by one comparison. When the candidates fill their buffer,
// the bound rises and those below leave.
#if defined(ATTEND_ATTENTION_TOP_INL_H) == defined(HWY_TARGET_TOGGLE)
#ifdef ATTEND_ATTENTION_TOP_INL_H
#undef ATTEND_ATTENTION_TOP_INL_H
#else
#define ATTEND_ATTENTION_TOP_INL_H
#endif

#include <bit>
#include <cstdint>
#include <limits>

#include "hwy/highway.h"
#include "kernel/attention/attention_tile-inl.h"

HWY_BEFORE_NAMESPACE();
namespace attend {
namespace attention {
namespace HWY_NAMESPACE {

using IntTag = hn::RebindToSigned<Tag>;
constexpr float lowest = -std::numeric_limits<float>::infinity();

// A new bound may leave this many candidates more than needed: close is found faster than exact.
constexpr std::int64_t spare_candidates = 16;
// Entries of a row's buffer: what a new bound leaves, and room for those that come.
constexpr std::int64_t candidate_capacity(std::int64_t top) { return (top + spare_candidates + 15) / 16 * 16 + 48; }
constexpr std::int64_t most_capacity = candidate_capacity(most_top_keys);

// A row's candidates. Whole vectors are stored, so the arrays have `lanes` entries of room behind the capacity.
struct Candidates {
  float* scores;
  std::int32_t* keys;
  std::int64_t count;
  float bound;
};

HWY_INLINE std::int64_t count_above(const float* values, std::int64_t size, float bound) {
  const Tag d;
  const Vector limit = hn::Set(d, bound);
  std::size_t count = 0;
  for (std::int64_t i = 0; i < size; i += lanes) count += hn::CountTrue(d, hn::Gt(hn::LoadU(d, values + i), limit));
  return static_cast<std::int64_t>(count);
}

HWY_INLINE std::int64_t count_not_below(const float* values, std::int64_t size, float bound) {
  const Tag d;
  const Vector limit = hn::Set(d, bound);
  std::size_t count = 0;
  for (std::int64_t i = 0; i < size; i += lanes) count += hn::CountTrue(d, hn::Ge(hn::LoadU(d, values + i), limit));
  return static_cast<std::int64_t>(count);
}

struct Bound {
  float value;
  std::int64_t above;  // how many values are above it
};

// Raises a bound that at least `least` of the values are above, until at most `most` are, or some rounds have passed.
// Values come in whole vectors, filled with minus infinity. The guess takes the tail for exponential, which is near
// enough for most scores; where it is not, the next guess is nearer.
HWY_INLINE Bound raise_bound(const float* values, std::int64_t size, Bound low, std::int64_t least, std::int64_t most, int rounds) {
  const Tag d;
  if (low.above <= most) return low;
  const Vector nothing = hn::Set(d, lowest);
  Vector sums = hn::Zero(d), tops = nothing;
  for (std::int64_t i = 0; i < size; i += lanes) {
    const Vector value = hn::LoadU(d, values + i);
    tops = hn::Max(tops, value);
    sums = hn::Add(sums, hn::IfThenElseZero(hn::Gt(value, nothing), value));
  }
  const float mean = hn::GetLane(hn::SumOfLanes(d, sums)) / static_cast<float>(low.above);
  float high = hn::GetLane(hn::MaxOfLanes(d, tops));
  const auto target = static_cast<float>(least + most) * 0.5f;
  const auto log_of = [](float x) { return 2 * (x - 1) / (x + 1); };  // near 1
  const bool open = low.value == lowest;
  const float scale = open ? (high - mean) * 0.4f : mean - low.value;
  float guess = open ? mean : low.value + scale * log_of(static_cast<float>(low.above) / target);
  for (int round = 0; round < rounds; ++round) {
    if (!(low.value < guess && guess < high)) {
      guess = low.value + (high - low.value) * 0.5f;
      if (!(low.value < guess && guess < high)) break;
    }
    const std::int64_t above = count_above(values, size, guess);
    if (above >= least) {
      low = {guess, above};
      if (above <= most) break;
    } else {
      high = guess;
    }
    guess += scale * log_of((static_cast<float>(above) + 0.5f) / target);
  }
  return low;
}

// The largest number that at least `least` values are not below. Any values, in at most 32 rounds: floats are ordered as
// the integers of their bits, once the negative ones are turned around.
inline HWY_NOINLINE float exact_bound(const float* values, std::int64_t size, float low, std::int64_t least) {
  const auto turn = [](std::int32_t bits) { return bits ^ (bits < 0 ? 0x7FFFFFFF : 0); };
  std::int64_t begin = turn(std::bit_cast<std::int32_t>(low)), end = turn(std::bit_cast<std::int32_t>(std::numeric_limits<float>::infinity()));
  while (begin < end) {
    const std::int64_t middle = begin + (end - begin + 1) / 2;
    if (count_not_below(values, size, std::bit_cast<float>(turn(static_cast<std::int32_t>(middle)))) >= least) begin = middle;
    else end = middle - 1;
  }
  return std::bit_cast<float>(turn(static_cast<std::int32_t>(begin)));
}

// Keeps the candidates above the bound, and the first `equal` of those that equal it.
HWY_INLINE void keep_above(Candidates& row, std::int64_t equal) {
  const Tag d;
  const IntTag di;
  const Vector limit = hn::Set(d, row.bound);
  const std::int64_t before = row.count;
  std::int64_t kept = 0;
  for (std::int64_t i = 0; i < before; i += lanes) {
    const Vector scores = hn::LoadU(d, row.scores + i);
    const auto keys = hn::LoadU(di, row.keys + i);
    auto keep = hn::Gt(scores, limit);
    if (equal > 0) {
      const auto same = hn::Eq(scores, limit);
      HWY_ALIGN float marks[HWY_LANES(float)];
      hn::Store(hn::IfThenElseZero(same, hn::Set(d, 1.0f)), d, marks);
      for (std::int64_t j = 0; j < lanes; ++j) {
        if (marks[j] == 0) continue;
        if (equal > 0) --equal;
        else marks[j] = 0;
      }
      keep = hn::Or(keep, hn::Gt(hn::Load(d, marks), hn::Zero(d)));
    }
    hn::StoreU(hn::Compress(scores, keep), d, row.scores + kept);
    hn::StoreU(hn::Compress(keys, hn::RebindMask(di, keep)), di, row.keys + kept);
    kept += static_cast<std::int64_t>(hn::CountTrue(d, keep));
  }
  row.count = kept;
}

// Leaves `top` candidates, or a few more.
inline HWY_NOINLINE void drop_candidates(Candidates& row, std::int64_t top) {
  const Tag d;
  if (row.count <= top + spare_candidates) return;
  hn::StoreU(hn::Set(d, lowest), d, row.scores + row.count);
  const std::int64_t size = rounded_up(row.count, lanes);
  const Bound bound = raise_bound(row.scores, size, {row.bound, row.count}, top, top + spare_candidates, 6);
  row.bound = bound.value;
  std::int64_t equal = 0;
  if (bound.above > top + spare_candidates) {  // many equal or very uneven scores
    row.bound = exact_bound(row.scores, size, bound.value, top);
    equal = top - count_above(row.scores, size, row.bound);
  }
  keep_above(row, equal);
}

// Adds the scores above the bound from the vectors listed in `active`: key i of the block has index key + i.
inline HWY_NOINLINE void add_candidates(Candidates& row, std::int64_t top, const float* HWY_RESTRICT s, std::int64_t key,
                                        const std::int32_t* active, std::int64_t count) {
  const Tag d;
  const IntTag di;
  const std::int64_t capacity = candidate_capacity(top);
  const auto steps = hn::Iota(di, 0);
  for (std::int64_t i = 0; i < count; ++i) {
    const Vector scores = hn::LoadU(d, s + active[i]);
    const auto keep = hn::Gt(scores, hn::Set(d, row.bound));
    const auto keys = hn::Add(steps, hn::Set(di, static_cast<std::int32_t>(key + active[i])));
    hn::StoreU(hn::Compress(scores, keep), d, row.scores + row.count);
    hn::StoreU(hn::Compress(keys, hn::RebindMask(di, keep)), di, row.keys + row.count);
    row.count += static_cast<std::int64_t>(hn::CountTrue(d, keep));
    if (row.count > capacity - lanes) drop_candidates(row, top);
  }
}

// Accumulators of a block's maxima: each lane of each is the largest of a group of keys, and the bound that `top` of the
// groups reach is one that `top` keys reach.
constexpr std::int64_t group_vectors = lanes == 16 ? 4 : 8;
static_assert(group_vectors * lanes >= most_top_keys);

// Raises the bound by the groups' maxima when most of a block would become candidates: in a row's first block, and where
// scores rise.
inline HWY_NOINLINE void raise_by_groups(Candidates& row, std::int64_t top, const float* maxima) {
  constexpr std::int64_t size = group_vectors * lanes;
  const std::int64_t above = count_above(maxima, size, row.bound);
  if (above < top) return;
  row.bound = raise_bound(maxima, size, {row.bound, above}, top, top + 4, 4).value;
}

// Sorts at most most_top_keys + spare_candidates candidates into arrays of that size; by score, then by key.
HWY_INLINE void sort_candidates(const Candidates& row, float* scores, std::int32_t* keys) {
  const Tag d;
  const IntTag di;
  constexpr std::int64_t most = most_top_keys + spare_candidates;
  HWY_ALIGN std::int32_t ranks[most + HWY_LANES(float)];
  const auto one = hn::Set(di, 1);
  const auto counted = [&](hn::Vec<IntTag> rank, hn::Mask<Tag> before) HWY_ATTR {
    return hn::IfThenElse(hn::RebindMask(di, before), hn::Add(rank, one), rank);
  };
  for (std::int64_t i = 0; i < row.count; i += lanes) {
    const Vector own = hn::LoadU(d, row.scores + i);
    auto rank = hn::Zero(di);
    const std::int64_t end = smaller(i + lanes, row.count);
    for (std::int64_t j = 0; j < i; ++j) rank = counted(rank, hn::Ge(hn::Set(d, row.scores[j]), own));
    for (std::int64_t j = i; j < end; ++j) {
      const Vector other = hn::Set(d, row.scores[j]);
      const auto later = hn::RebindMask(d, hn::Gt(hn::Iota(di, 0), hn::Set(di, static_cast<std::int32_t>(j - i))));
      rank = counted(rank, hn::Or(hn::Gt(other, own), hn::And(hn::Eq(other, own), later)));
    }
    for (std::int64_t j = end; j < row.count; ++j) rank = counted(rank, hn::Gt(hn::Set(d, row.scores[j]), own));
    hn::StoreU(rank, di, ranks + i);
  }
  for (std::int64_t i = 0; i < row.count; ++i) {
    scores[ranks[i]] = row.scores[i];
    keys[ranks[i]] = row.keys[i];
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace attention
}  // namespace attend
HWY_AFTER_NAMESPACE();

#endif
