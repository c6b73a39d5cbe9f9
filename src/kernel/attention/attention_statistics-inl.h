// What a row's weights tell, gathered block by block beside its running maximum and sum. With x = score - maximum in
// units of log2, a row keeps sum(2^x * x) for the entropy, sum(2^x * distance), the weight of chosen keys and lists, and
// candidates for the largest keys; all but the last follow the maximum when it rises.
#if defined(ATTEND_ATTENTION_STATISTICS_INL_H) == defined(HWY_TARGET_TOGGLE)
#ifdef ATTEND_ATTENTION_STATISTICS_INL_H
#undef ATTEND_ATTENTION_STATISTICS_INL_H
#else
#define ATTEND_ATTENTION_STATISTICS_INL_H
#endif

#include <cmath>
#include <cstdint>

#include "hwy/highway.h"
#include "kernel/attention/attention_plan.h"
#include "kernel/attention/attention_scores-inl.h"
#include "kernel/attention/attention_statistics.h"
#include "kernel/attention/attention_tile-inl.h"
#include "kernel/attention/attention_top-inl.h"

HWY_BEFORE_NAMESPACE();
namespace attend {
namespace attention {
namespace HWY_NAMESPACE {

// The state of all rows of a unit, and the block of keys at hand.
struct Observed {
  const StatisticsPlan* plan = nullptr;
  std::int64_t mass_count = 0;       // first, self and previous, then the lists
  std::int64_t first_list = 0;
  std::int64_t capacity = 0;         // of candidates, with the room behind
  float *entropies, *distances;      // [rows]
  float* masses;                     // [rows, mass_count]
  float* bounds;                     // [rows]
  std::int32_t* counts;              // [rows]
  float* scores;                     // [rows, capacity]
  std::int32_t* keys;                // [rows, capacity]
  // Of a block of keys.
  float* positions;                  // [block_keys], less base
  std::int64_t base = 0;
  std::span<const ListPart> parts;
};

inline std::int64_t observed_floats(const AttentionCall& call, std::int64_t rows) {
  if (call.statistics == nullptr) return 0;
  const AttentionStatistics& wanted = *call.statistics;
  const std::int64_t capacity = wanted.top > 0 ? candidate_capacity(wanted.top) + lanes : 0;
  return rows * (4 + 3 + wanted.lists + 2 * capacity) + block_keys + 16 * 16;
}

inline void start_observing(const StatisticsPlan& plan, std::int64_t rows, Carver& carver, Observed& seen) {
  seen.plan = &plan;
  seen.first_list = plan.points ? 3 : 0;
  seen.mass_count = seen.first_list + plan.lists;
  seen.capacity = plan.top > 0 ? candidate_capacity(plan.top) + lanes : 0;
  seen.entropies = carver.take(rows);
  seen.distances = carver.take(rows);
  seen.masses = carver.take(rows * seen.mass_count);
  seen.bounds = carver.take(rows);
  seen.counts = reinterpret_cast<std::int32_t*>(carver.take(rows));
  seen.scores = carver.take(rows * seen.capacity);
  seen.keys = reinterpret_cast<std::int32_t*>(carver.take(rows * seen.capacity));
  seen.positions = carver.take(block_keys);
  for (std::int64_t r = 0; r < rows; ++r) {
    seen.entropies[r] = seen.distances[r] = 0;
    seen.bounds[r] = lowest;
    seen.counts[r] = 0;
  }
  for (std::int64_t i = 0; i < rows * seen.mass_count; ++i) seen.masses[i] = 0;
}

// Positions count from the block's first key, so that differences are exact however far the item reaches.
inline void enter_block(const ScoreContext& context, std::int64_t key, std::int64_t count, Observed& seen) {
  const AttentionItem& item = *context.item;
  seen.base = key_position(item, key);
  for (std::int64_t j = 0; j < count; ++j) seen.positions[j] = static_cast<float>(key_position(item, key + j) - seen.base);
  for (std::int64_t j = count; j < rounded_up(count, lanes); ++j) seen.positions[j] = 0;
  seen.parts = seen.plan->parts_of(context.unit->item, key / block_keys);
}

HWY_INLINE bool observes(const Observed& seen, const ScoreContext& context, std::int64_t row) {
  return seen.plan->places[static_cast<std::size_t>(context.head(row))] >= 0;
}

// The largest score of columns [begin, end); scores that may be among the largest of the row become candidates.
HWY_INLINE float look_for_top(Observed& seen, std::int64_t local, const float* HWY_RESTRICT s, std::int64_t begin, std::int64_t end,
                              std::int64_t key) {
  const Tag d;
  const Vector limit = hn::Set(d, seen.bounds[local]);
  Vector tops[group_vectors];
  ATTEND_UNROLL
  for (std::int64_t g = 0; g < group_vectors; ++g) tops[g] = hn::Set(d, lowest);
  std::int32_t active[block_keys / HWY_LANES(float)];
  std::int64_t active_count = 0;
  std::int64_t j = begin;
  for (; j + group_vectors * lanes <= end; j += group_vectors * lanes) {
    ATTEND_UNROLL
    for (std::int64_t g = 0; g < group_vectors; ++g) {
      const Vector scores = hn::LoadU(d, s + j + g * lanes);
      tops[g] = hn::Max(tops[g], scores);
      active[active_count] = static_cast<std::int32_t>(j + g * lanes);
      active_count += hn::AllFalse(d, hn::Gt(scores, limit)) ? 0 : 1;
    }
  }
  for (; j < end; j += lanes) {
    const Vector scores = hn::LoadU(d, s + j);
    tops[0] = hn::Max(tops[0], scores);
    active[active_count] = static_cast<std::int32_t>(j);
    active_count += hn::AllFalse(d, hn::Gt(scores, limit)) ? 0 : 1;
  }
  if (active_count > 0) {
    const std::int64_t top = seen.plan->top;
    Candidates row{seen.scores + local * seen.capacity, seen.keys + local * seen.capacity, seen.counts[local], seen.bounds[local]};
    if (active_count * lanes > block_keys / 2) {
      HWY_ALIGN float maxima[group_vectors * HWY_LANES(float)];
      ATTEND_UNROLL
      for (std::int64_t g = 0; g < group_vectors; ++g) hn::Store(tops[g], d, maxima + g * lanes);
      raise_by_groups(row, top, maxima);
    }
    add_candidates(row, top, s, key, active, active_count);
    if (row.count > candidate_capacity(top) - 32) drop_candidates(row, top);
    seen.counts[local] = static_cast<std::int32_t>(row.count);
    seen.bounds[local] = row.bound;
  }
  Vector most = tops[0];
  ATTEND_UNROLL
  for (std::int64_t g = 1; g < group_vectors; ++g) most = hn::Max(most, tops[g]);
  return hn::GetLane(hn::MaxOfLanes(d, most));
}

// The weight in s of the keys at position 0, the query's own and the one before; s starts at key `key`.
HWY_INLINE void add_points(const ScoreContext& context, std::int64_t query, std::int64_t key, std::int64_t begin, std::int64_t end,
                           const float* HWY_RESTRICT s, float* masses) {
  const AttentionItem& item = *context.item;
  const std::int64_t at = query_position(item, query), wanted[3] = {0, at, at - 1};
  for (int point = 0; point < 3; ++point) {
    if (item.key_positions == nullptr) {
      const std::int64_t column = wanted[point] - item.key_position - key;
      if (column >= begin && column < end) masses[point] += s[column];
    } else {
      for (std::int64_t j = begin; j < end; ++j)
        if (item.key_positions[key + j] == wanted[point]) masses[point] += s[j];
    }
  }
}

// The weight in s of the keys of each list, where s was written: columns [begin, end).
HWY_INLINE void add_lists(const Observed& seen, std::int64_t begin, std::int64_t end, const float* HWY_RESTRICT s, float* masses) {
  const Tag d;
  std::int32_t list = -1;
  Vector sum = hn::Zero(d);
  for (const ListPart& part : seen.parts) {
    if (part.list != list) {
      if (list >= 0) masses[list] += hn::GetLane(hn::SumOfLanes(d, sum));
      list = part.list;
      sum = hn::Zero(d);
    }
    for (std::int64_t half = 0; half < 16; half += lanes) {
      const std::int64_t column = 16 * part.group + half;
      if (column < begin || column >= end) continue;
      const std::uint64_t bits = static_cast<std::uint64_t>(part.keys) >> half;
      const auto chosen = hn::LoadMaskBits(d, reinterpret_cast<const std::uint8_t*>(&bits));
      sum = hn::Add(sum, hn::IfThenElseZero(chosen, hn::LoadU(d, s + column)));
    }
  }
  if (list >= 0) masses[list] += hn::GetLane(hn::SumOfLanes(d, sum));
}

// soften_row of attention_tiled.cc for an observed row: the same weights, sum and output, bit by bit. Columns are those of
// `at`, and s starts at key at.key.
inline HWY_NOINLINE void soften_observed(Observed& seen, const ScoreContext& context, const Rectangle& at, std::int64_t row,
                                         std::int64_t local, float* HWY_RESTRICT s, bool fresh, float* largest, float* sum,
                                         float* HWY_RESTRICT output, std::int64_t columns) {
  const Tag d;
  const StatisticsPlan& plan = *seen.plan;
  float found;
  if (plan.top > 0) {
    found = look_for_top(seen, local, s, at.begin, at.end, at.key) * log2_e;
  } else {
    Vector top = hn::LoadU(d, s + at.begin);
    for (std::int64_t j = at.begin + lanes; j < at.end; j += lanes) top = hn::Max(top, hn::LoadU(d, s + j));
    found = hn::GetLane(hn::MaxOfLanes(d, top)) * log2_e;
  }
  if (found == lowest) {
    for (std::int64_t j = at.begin; j < at.end; j += lanes) hn::StoreU(hn::Zero(d), d, s + j);
    if (fresh) {
      *largest = lowest;
      *sum = 0;
    }
    return;
  }
  float* masses = seen.masses + local * seen.mass_count;
  if (fresh) {
    *largest = found;
    *sum = 0;
  } else if (!(found <= *largest)) {
    const float factor = exp2_of(*largest - found);
    if (*largest != lowest) {
      seen.entropies[local] = factor * (seen.entropies[local] + (*largest - found) * *sum);
      seen.distances[local] *= factor;
      for (std::int64_t i = 0; i < seen.mass_count; ++i) masses[i] *= factor;
    }
    *largest = found;
    *sum *= factor;
    const Vector factors = hn::Set(d, factor);
    for (std::int64_t x = 0; x < columns; x += lanes) hn::StoreU(hn::Mul(factors, hn::LoadU(d, output + x)), d, output + x);
  }
  const std::int64_t query = context.query(row);
  const Vector log2 = hn::Set(d, log2_e), shift = hn::Set(d, *largest);
  Vector total = hn::Zero(d);
  if (plan.sums) {
    const Vector own = hn::Set(d, static_cast<float>(query_position(*context.item, query) - seen.base));
    Vector entropy = hn::Zero(d), distance = hn::Zero(d);
    for (std::int64_t j = at.begin; j < at.end; j += lanes) {
      const Vector x = clamp_exponent(hn::MulSub(hn::LoadU(d, s + j), log2, shift));
      const Vector weight = exp2_of_clamped(x);
      total = hn::Add(total, weight);
      entropy = hn::MulAdd(weight, x, entropy);
      distance = hn::MulAdd(weight, hn::Abs(hn::Sub(hn::LoadU(d, seen.positions + j), own)), distance);
      hn::StoreU(weight, d, s + j);
    }
    seen.entropies[local] += hn::GetLane(hn::SumOfLanes(d, entropy));
    seen.distances[local] += hn::GetLane(hn::SumOfLanes(d, distance));
  } else {
    for (std::int64_t j = at.begin; j < at.end; j += lanes) {
      const Vector weight = exp2_of(hn::MulSub(hn::LoadU(d, s + j), log2, shift));
      total = hn::Add(total, weight);
      hn::StoreU(weight, d, s + j);
    }
  }
  *sum += hn::GetLane(hn::SumOfLanes(d, total));
  if (plan.points) add_points(context, query, at.key, at.begin, smaller(at.end, at.keys), s, masses);
  if (!seen.parts.empty()) add_lists(seen, at.begin, at.end, s, masses + seen.first_list);
}

// What the locked weights of a row tell; its other weights have been counted. Locks take part in the order of the largest
// by the scores they would have to have.
inline HWY_NOINLINE void add_locks(const Observed& seen, const ScoreContext& context, std::int64_t query, const RowLocks& locks,
                                   float log_sum, float& entropy, float& distance, float* masses, Candidates& candidates) {
  const AttentionItem& item = *context.item;
  const std::int64_t at = query_position(item, query), top = seen.plan->top;
  for (const LockedScore& lock : locks.scores) {
    if (lock.weight == 0) continue;
    const std::int64_t position = key_position(item, lock.key), column = lock.key % block_keys;
    entropy -= lock.weight * std::log(lock.weight);
    distance += lock.weight * static_cast<float>(position > at ? position - at : at - position);
    if (seen.plan->points) {
      if (position == 0) masses[0] += lock.weight;
      if (position == at) masses[1] += lock.weight;
      if (position == at - 1) masses[2] += lock.weight;
    }
    for (const ListPart& part : seen.plan->parts_of(context.unit->item, lock.key / block_keys))
      if (part.group == column / 16 && (part.keys >> column % 16 & 1) != 0) masses[seen.first_list + part.list] += lock.weight;
    const float score = std::log(lock.weight) + log_sum;
    if (top == 0 || !(score > candidates.bound)) continue;
    candidates.scores[candidates.count] = score;
    candidates.keys[candidates.count++] = static_cast<std::int32_t>(lock.key);
    if (candidates.count > candidate_capacity(top) - lanes) drop_candidates(candidates, top);
  }
}

// The largest keys of a row. A weight is factor * 2^(score * log2(e) - largest).
inline HWY_NOINLINE void write_top(const StatisticsPlan& plan, Candidates& candidates, const RowLocks& locks, float largest, float factor,
                                   std::int64_t to) {
  const Tag d;
  const AttentionStatistics& out = *plan.request;
  constexpr std::int64_t most = most_top_keys + spare_candidates;
  HWY_ALIGN float weights[most + HWY_LANES(float)];
  std::int32_t keys[most];
  drop_candidates(candidates, plan.top);
  const std::int64_t count = smaller(candidates.count, plan.top);
  if (count > 0) sort_candidates(candidates, weights, keys);
  if (out.top_keys != nullptr) {
    std::int32_t* row = out.top_keys + to * plan.top;
    for (std::int64_t i = 0; i < count; ++i) row[i] = keys[i];
    for (std::int64_t i = count; i < plan.top; ++i) row[i] = -1;
  }
  if (out.top_weights != nullptr) {
    float* row = out.top_weights + to * plan.top;
    const Vector shift = hn::Set(d, largest), factors = hn::Set(d, factor), log2 = hn::Set(d, log2_e);
    for (std::int64_t i = 0; i < count; i += lanes)
      hn::StoreU(hn::Mul(factors, exp2_of(hn::MulSub(hn::LoadU(d, weights + i), log2, shift))), d, weights + i);
    for (std::int64_t i = 0; i < count; ++i) row[i] = weights[i];
    for (std::int64_t i = count; i < plan.top; ++i) row[i] = 0;
    for (const LockedScore& lock : locks.scores)
      for (std::int64_t i = 0; i < count; ++i)
        if (keys[i] == lock.key) row[i] = lock.weight;
  }
}

// Writes the statistics of a row whose keys have all been seen. `largest` and `sum` are of the keys that are not locked,
// without the sink.
inline HWY_NOINLINE void write_statistics(Observed& seen, const ScoreContext& context, std::int64_t row, std::int64_t local, float largest,
                                          float sum) {
  const AttentionCall& call = *context.call;
  const StatisticsPlan& plan = *seen.plan;
  const AttentionStatistics& out = *plan.request;
  const std::int64_t head = context.head(row), query = context.query(row);
  const std::int64_t to = (context.item->query_begin + query) * plan.chosen + plan.places[static_cast<std::size_t>(head)];
  const RowLocks locks = context.locked ? locks_of(*context.job, context.unit->item, head, query) : RowLocks{};
  const bool none = largest == lowest;  // no key but locked ones
  const bool alone = none && (locks.scores.empty() || call.rules.sinks.empty());
  const Denominator all = alone ? Denominator{0, 1, 0, 0} : denominator_of(call, head, largest, sum);
  const float left = static_cast<float>(1 - locks.sum), factor = none ? 0 : left * all.factor / all.sum;
  float entropy = 0, distance = 0;
  float* masses = seen.masses + local * seen.mass_count;
  if (factor > 0) {
    const float own = std::log2(all.sum) + (all.largest - largest) - std::log2(left);
    entropy = (factor * sum * own - factor * seen.entropies[local]) * ln_2;
    distance = factor * seen.distances[local];
  }
  for (std::int64_t i = 0; i < seen.mass_count; ++i) masses[i] = none ? 0 : masses[i] * factor;
  Candidates candidates{seen.scores + local * seen.capacity, seen.keys + local * seen.capacity, seen.counts[local], seen.bounds[local]};
  if (!locks.scores.empty()) {
    const float log_sum = locks.all() ? 0 : (all.largest + std::log2(all.sum)) * ln_2 - std::log(left);
    add_locks(seen, context, query, locks, log_sum, entropy, distance, masses, candidates);
  }
  if (out.entropy != nullptr) out.entropy[to] = entropy <= 0 ? 0 : entropy;
  if (out.distance != nullptr) out.distance[to] = distance;
  float* const points[3] = {out.first, out.self, out.previous};
  for (int point = 0; point < 3; ++point)
    if (points[point] != nullptr) points[point][to] = masses[point];
  if (out.sink != nullptr) out.sink[to] = left * all.sink / all.sum;
  for (std::int64_t list = 0; list < plan.lists; ++list) out.list_mass[to * plan.lists + list] = masses[seen.first_list + list];
  if (plan.top > 0) write_top(plan, candidates, locks, largest, factor, to);
}

}  // namespace HWY_NAMESPACE
}  // namespace attention
}  // namespace attend
HWY_AFTER_NAMESPACE();

#endif
