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
#include <type_traits>

#include "hwy/highway.h"
#include "kernel/attention/attention_tile-inl.h"

HWY_BEFORE_NAMESPACE();
namespace attend {
namespace attention {
namespace HWY_NAMESPACE {

using IntTag = hn::RebindToSigned<Tag>;
constexpr float lowest = -std::numeric_limits<float>::infinity();

// A new bound may leave this many candidates more than needed: near is found faster than exact.
constexpr std::int64_t spare_candidates(std::int64_t top) { return 4 + top * 3 / 8; }
// More candidates than this make the bound rise. Buffers have room for two vectors more.
constexpr std::int64_t candidate_limit(std::int64_t top) { return 16 + 2 * top + spare_candidates(top); }
constexpr std::int64_t candidate_capacity(std::int64_t top) { return candidate_limit(top) + 2 * lanes; }
// Candidates at the end, in whole vectors.
constexpr std::int64_t most_sorted = (most_top_keys + spare_candidates(most_top_keys) + lanes - 1) / lanes * lanes;

// A row's candidates, in buffers of that capacity.
struct Candidates {
  float* scores;
  std::int32_t* keys;
  std::int64_t count;
  float bound;
};

HWY_INLINE std::int64_t count_above(const float* HWY_RESTRICT values, std::int64_t size, float bound) {
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
HWY_INLINE Bound raise_bound(const float* values, std::int64_t size, Bound low, std::int64_t least, std::int64_t most,
                             int rounds) {
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
  std::int64_t begin = turn(std::bit_cast<std::int32_t>(low)),
               end = turn(std::bit_cast<std::int32_t>(std::numeric_limits<float>::infinity()));
  while (begin < end) {
    const std::int64_t middle = begin + (end - begin + 1) / 2;
    if (count_not_below(values, size, std::bit_cast<float>(turn(static_cast<std::int32_t>(middle)))) >= least)
      begin = middle;
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
  const std::int64_t most = top + spare_candidates(top);
  if (row.count <= most) return;
  hn::StoreU(hn::Set(d, lowest), d, row.scores + row.count);
  const std::int64_t size = rounded_up(row.count, lanes);
  const Bound bound = raise_bound(row.scores, size, {row.bound, row.count}, top, most, 6);
  row.bound = bound.value;
  std::int64_t equal = 0;
  if (bound.above > most) {  // many equal or very uneven scores
    row.bound = exact_bound(row.scores, size, bound.value, top);
    equal = top - count_above(row.scores, size, row.bound);
  }
  keep_above(row, equal);
}

// Vectors of scores in which some are above their row's bound, of a few rows. They become candidates together: how many
// there are is never foreseen by the processor, so it is wrong once for all rows and not once a row.
constexpr std::int64_t group_rows = 8;
struct Found {
  static constexpr std::int64_t most = group_rows * block_keys / HWY_LANES(float);
  HWY_ALIGN float scores[most * HWY_LANES(float) + 64];
  std::uint32_t places[most + 1];  // row of the group * 2^24 + column * 2^16 + a bit for every score that is above
  std::int64_t count = 0;
};

HWY_INLINE std::uint32_t bits_of(hn::Mask<Tag> mask) {
  std::conditional_t<(lanes > 8), std::uint16_t, std::uint8_t> bits = 0;
  hn::StoreMaskBits(Tag(), mask, reinterpret_cast<std::uint8_t*>(&bits));
  return bits;
}

// Lists a vector if a score is above the bound. No branch.
HWY_INLINE void list_scores(Vector scores, Vector bound, std::uint32_t place, Found& found, std::int64_t& listed) {
  const Tag d;
  const std::uint32_t bits = bits_of(hn::Gt(scores, bound));
  hn::Store(scores, d, found.scores + listed * lanes);
  found.places[listed] = place | bits;
  listed += bits != 0 ? 1 : 0;
}

// Candidates of the rows of a group, in buffers `capacity` apart.
struct CandidateRows {
  float* scores;
  std::int32_t* keys;
  std::int32_t* counts;
  float* bounds;
  std::int64_t capacity;
};

// The listed scores become candidates. Keys count from `key` on.
HWY_INLINE void gather_found(const Found& found, std::int64_t top, std::int64_t key, const CandidateRows& rows) {
  const Tag d;
  const IntTag di;
  const auto steps = hn::Add(hn::Iota(di, 0), hn::Set(di, static_cast<std::int32_t>(key)));
  const std::int64_t limit = candidate_limit(top);
  // The count of the row at hand stays in a register, and is not loaded from where it was just stored: that is a long way.
  std::int32_t counts[group_rows];
  for (std::int64_t row = 0; row < group_rows; ++row) counts[row] = rows.counts[row];
  std::int64_t last = -1, count = 0;
  for (std::int64_t i = 0; i < found.count; ++i) {
    const std::uint32_t place = found.places[i];
    const std::int64_t row = place >> 24, before = counts[row];
    count = row == last ? count : before;
    last = row;
    const auto keep = hn::LoadMaskBits(d, reinterpret_cast<const std::uint8_t*>(found.places + i));
    const auto keys = hn::Add(steps, hn::Set(di, static_cast<std::int32_t>(place >> 16 & 0xFF)));
    hn::StoreU(hn::Compress(hn::Load(d, found.scores + i * lanes), keep), d, rows.scores + row * rows.capacity + count);
    hn::StoreU(hn::Compress(keys, hn::RebindMask(di, keep)), di, rows.keys + row * rows.capacity + count);
    count += std::popcount(place & 0xFFFF);
    if (count > limit) {
      Candidates full{rows.scores + row * rows.capacity, rows.keys + row * rows.capacity, count, rows.bounds[row]};
      drop_candidates(full, top);
      count = full.count;
      rows.bounds[row] = full.bound;
    }
    rows.counts[row] = static_cast<std::int32_t>(count);
  }
}

// A bound for a row's first block, of which all keys would else become candidates: a lane's largest of every few vectors is
// the largest of a group of keys, and what `top` groups reach, `top` keys reach.
inline HWY_NOINLINE float first_bound(const float* HWY_RESTRICT s, std::int64_t begin, std::int64_t end,
                                      std::int64_t top) {
  const Tag d;
  constexpr std::int64_t vectors = lanes == 16 ? 4 : 8, size = vectors * lanes;
  static_assert(size >= most_top_keys && size <= block_keys / 2);
  if (end - begin < 2 * size) return lowest;
  HWY_ALIGN float maxima[size];
  for (std::int64_t v = 0; v < size; v += lanes) {
    Vector most = hn::LoadU(d, s + begin + v);
    for (std::int64_t j = begin + v + size; j < end; j += size) most = hn::Max(most, hn::LoadU(d, s + j));
    hn::Store(most, d, maxima + v);
  }
  const std::int64_t seen = count_above(maxima, size, lowest);
  return seen < top ? lowest : raise_bound(maxima, size, {lowest, seen}, top, top + 4, 4).value;
}

// Sorts the candidates that drop_candidates left by score, then by key, into arrays of most_sorted.
HWY_INLINE void sort_candidates(Candidates& row, float* HWY_RESTRICT scores, std::int32_t* HWY_RESTRICT keys) {
  static_assert(most_sorted < 64);
  const Tag d;
  HWY_ALIGN float values[most_sorted];
  for (std::int64_t i = 0; i < most_sorted; i += lanes) {
    const auto real = hn::FirstN(d, static_cast<std::size_t>(larger(smaller(row.count - i, lanes), 0)));
    hn::Store(hn::IfThenElse(real, hn::LoadU(d, row.scores + smaller(i, row.count)), hn::Set(d, lowest)), d,
              values + i);
  }
  std::uint64_t taken = 0;
  for (std::int64_t i = 0; i < row.count; ++i) {
    const std::int64_t place = count_above(values, most_sorted, values[i]);
    scores[place] = row.scores[i];
    keys[place] = row.keys[i];
    taken |= std::uint64_t{1} << place;
  }
  if (std::popcount(taken) == row.count) return;
  // Equal scores wanted the same place; candidates are in order of their keys, so each takes the next that is free.
  taken = 0;
  for (std::int64_t i = 0; i < row.count; ++i) {
    std::int64_t place = count_above(values, most_sorted, values[i]);
    place += std::countr_one(taken >> place);
    scores[place] = row.scores[i];
    keys[place] = row.keys[i];
    taken |= std::uint64_t{1} << place;
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace attention
}  // namespace attend
HWY_AFTER_NAMESPACE();

#endif
