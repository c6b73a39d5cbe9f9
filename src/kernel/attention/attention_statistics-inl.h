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

#include "hwy/contrib/math/math-inl.h"
#include "hwy/highway.h"
#include "kernel/attention/attention_plan.h"
#include "kernel/attention/attention_scores-inl.h"
#include "kernel/attention/attention_soften-inl.h"
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
  std::int64_t mass_count = 0;  // first, self and previous, then the lists
  std::int64_t first_list = 0;
  std::int64_t capacity = 0;            // of candidates, with the room behind
  float *entropy_sums, *distance_sums;  // [rows]
  float* masses;                        // [rows, mass_count]
  float* bounds;                        // [rows]
  std::int32_t* counts;                 // [rows]
  float* scores;                        // [rows, capacity]
  std::int32_t* keys;                   // [rows, capacity]
  // Of a block of keys. Where positions are consecutive, column j is distances[most_step - step + j] away from the query
  // `step` after the unit's first one; else `distances` is filled for each row.
  float* distances;
  std::int64_t most_step = 0;
  std::span<const ListPart> parts;
};

// Steps between queries of a unit, and floats of the distances that its queries may have to a block of keys.
HWY_INLINE std::int64_t distance_floats(std::int64_t rows) { return rows + block_keys + 16; }

inline std::int64_t observed_floats(const AttentionCall& call, std::int64_t rows) {
  if (call.statistics == nullptr) return 0;
  const AttentionStatistics& wanted = *call.statistics;
  const std::int64_t capacity = wanted.top > 0 ? candidate_capacity(wanted.top) : 0;
  return rows * (4 + 3 + wanted.lists + 2 * capacity) + distance_floats(rows) + 16 * 16;
}

inline void start_observing(const StatisticsPlan& plan, std::int64_t rows, Carver& carver, Observed& seen) {
  seen.plan = &plan;
  seen.first_list = plan.points ? 3 : 0;
  seen.mass_count = seen.first_list + plan.lists;
  seen.capacity = plan.top > 0 ? candidate_capacity(plan.top) : 0;
  seen.entropy_sums = carver.take(rows);
  seen.distance_sums = carver.take(rows);
  seen.masses = carver.take(rows * seen.mass_count);
  seen.bounds = carver.take(rows);
  seen.counts = reinterpret_cast<std::int32_t*>(carver.take(rows));
  seen.scores = carver.take(rows * seen.capacity);
  seen.keys = reinterpret_cast<std::int32_t*>(carver.take(rows * seen.capacity));
  seen.distances = carver.take(distance_floats(rows));
  for (std::int64_t r = 0; r < rows; ++r) {
    seen.entropy_sums[r] = seen.distance_sums[r] = 0;
    seen.bounds[r] = lowest;
    seen.counts[r] = 0;
  }
  for (std::int64_t i = 0; i < rows * seen.mass_count; ++i) seen.masses[i] = 0;
}

HWY_INLINE std::int64_t step_of(const ScoreContext& context, std::int64_t query) {
  return query - context.query(context.unit->row_begin);
}

inline void enter_block(const ScoreContext& context, std::int64_t key, std::int64_t count, Observed& seen) {
  const AttentionItem& item = *context.item;
  seen.parts = seen.plan->parts_of(context.unit->item, key / block_keys);
  if (!seen.plan->sums || !consecutive(item)) return;
  const std::int64_t first = context.query(context.unit->row_begin);
  seen.most_step = step_of(context, context.query(context.unit->row_end - 1));
  const std::int64_t from = key_position(item, key) - query_position(item, first) - seen.most_step;
  for (std::int64_t i = 0; i < seen.most_step + rounded_up(count, lanes); ++i) {
    const std::int64_t distance = from + i;
    seen.distances[i] = static_cast<float>(distance < 0 ? -distance : distance);
  }
}

// Distances of a row's query to the keys of the block, whole vectors.
HWY_INLINE const float* distances_of(const Observed& seen, const ScoreContext& context, std::int64_t query,
                                     const Rectangle& at) {
  const AttentionItem& item = *context.item;
  if (consecutive(item)) return seen.distances + seen.most_step - step_of(context, query);
  const std::int64_t own = query_position(item, query);
  for (std::int64_t j = 0; j < at.keys; ++j) {
    const std::int64_t distance = key_position(item, at.key + j) - own;
    seen.distances[j] = static_cast<float>(distance < 0 ? -distance : distance);
  }
  for (std::int64_t j = at.keys; j < rounded_up(at.keys, lanes); ++j) seen.distances[j] = 0;
  return seen.distances;
}

HWY_INLINE Candidates candidates_of(const Observed& seen, std::int64_t local) {
  return {seen.scores + local * seen.capacity, seen.keys + local * seen.capacity, seen.counts[local],
          seen.bounds[local]};
}

HWY_INLINE bool observes(const Observed& seen, const ScoreContext& context, std::int64_t row) {
  return seen.plan->places[static_cast<std::size_t>(context.head(row))] >= 0;
}

// The weight in s of the keys at position 0, the query's own and the one before; s starts at key `key`.
HWY_INLINE void add_points(const ScoreContext& context, std::int64_t query, std::int64_t key, std::int64_t begin,
                           std::int64_t end, const float* HWY_RESTRICT s, float* masses) {
  const AttentionItem& item = *context.item;
  const std::int64_t own = query_position(item, query);
  if (item.key_positions == nullptr) {
    const std::int64_t first = -item.key_position - key, self = own - item.key_position - key;
    if (first >= begin && first < end) masses[0] += s[first];
    if (self < begin || self > end) return;
    if (self < end) masses[1] += s[self];
    if (self > begin) masses[2] += s[self - 1];
    return;
  }
  for (std::int64_t j = begin; j < end; ++j) {
    const std::int64_t position = item.key_positions[key + j];
    if (position == 0) masses[0] += s[j];
    if (position == own) masses[1] += s[j];
    if (position == own - 1) masses[2] += s[j];
  }
}

// The weight in s of the keys of each list, where s was written: columns [begin, end).
HWY_INLINE void add_lists(const Observed& seen, std::int64_t begin, std::int64_t end, const float* HWY_RESTRICT s,
                          float* masses) {
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

// weigh_scores, and with it the sums for entropy and distance, and the scores that may be among the largest.
template <bool sums, bool top>
HWY_INLINE void weigh_observed(Observed& seen, const ScoreContext& context, const Rectangle& at, std::int64_t query,
                               std::int64_t local, std::int64_t in_group, float* HWY_RESTRICT s, const SoftRow& row,
                               Found& found) {
  const Tag d;
  const Vector log2 = hn::Set(d, log2_e), shift = hn::Set(d, *row.largest);
  const Vector bound = hn::Set(d, top ? seen.bounds[local] : 0.0f);
  const float* HWY_RESTRICT distances = sums ? distances_of(seen, context, query, at) : nullptr;
  const std::int64_t end = at.end;
  const std::uint32_t place = static_cast<std::uint32_t>(in_group) << 24;
  std::int64_t listed = found.count;
  Vector total = hn::Zero(d), entropy = hn::Zero(d), distance = hn::Zero(d);
  if (top) {
    const std::int64_t next = local * seen.capacity + seen.counts[local];
    __builtin_prefetch(seen.scores + next, 1);
    __builtin_prefetch(seen.scores + next + 15, 1);
    __builtin_prefetch(seen.keys + next, 1);
    __builtin_prefetch(seen.keys + next + 15, 1);
  }
  for (std::int64_t j = at.begin; j < end; j += lanes) {
    const Vector score = hn::LoadU(d, s + j);
    if (top) list_scores(score, bound, place | static_cast<std::uint32_t>(j) << 16, found, listed);
    const Vector x = clamp_exponent(hn::Mul(hn::Sub(score, shift), log2));
    const Vector weight = exp2_of_clamped(x);
    total = hn::Add(total, weight);
    if (sums) {
      entropy = hn::MulAdd(weight, x, entropy);
      distance = hn::MulAdd(weight, hn::LoadU(d, distances + j), distance);
    }
    hn::StoreU(weight, d, s + j);
    __builtin_prefetch(s + j + score_stride);  // the row after this
  }
  *row.sum += hn::GetLane(hn::SumOfLanes(d, total));
  if (sums) {
    seen.entropy_sums[local] += hn::GetLane(hn::SumOfLanes(d, entropy));
    seen.distance_sums[local] += hn::GetLane(hn::SumOfLanes(d, distance));
  }
  found.count = listed;
}

// soften_row for an observed row, number `in_group` of those whose candidates are gathered together: the same weights, sum
// and output, bit by bit.
HWY_INLINE void soften_observed_row(Observed& seen, const ScoreContext& context, const Rectangle& at,
                                    std::int64_t query, std::int64_t local, std::int64_t in_group,
                                    float* HWY_RESTRICT s, bool fresh, const SoftRow& row, Found& found) {
  const float largest = largest_score(s, at.begin, at.end);
  if (largest == minus_infinity) {
    soften_nothing(s, at.begin, at.end, fresh, row);
    return;
  }
  float* masses = seen.masses + local * seen.mass_count;
  if (fresh) {
    *row.largest = largest;
    *row.sum = 0;
    if (seen.plan->top > 0) seen.bounds[local] = first_bound(s, at.begin, at.end, seen.plan->top);
  } else if (!(largest <= *row.largest)) {
    const float before = *row.largest, sum = *row.sum, factor = raise_largest(largest, row);
    if (before != minus_infinity) {
      seen.entropy_sums[local] = factor * (seen.entropy_sums[local] + (before - largest) * log2_e * sum);
      seen.distance_sums[local] *= factor;
      for (std::int64_t i = 0; i < seen.mass_count; ++i) masses[i] *= factor;
    }
  }
  const bool sums = seen.plan->sums;
  if (seen.plan->top > 0) {
    if (sums) weigh_observed<true, true>(seen, context, at, query, local, in_group, s, row, found);
    else weigh_observed<false, true>(seen, context, at, query, local, in_group, s, row, found);
  } else if (sums) {
    weigh_observed<true, false>(seen, context, at, query, local, in_group, s, row, found);
  } else {
    weigh_scores(s, at.begin, at.end, row);
  }
  if (seen.plan->points) add_points(context, query, at.key, at.begin, smaller(at.end, at.keys), s, masses);
  if (!seen.parts.empty()) add_lists(seen, at.begin, at.end, s, masses + seen.first_list);
}

// soften_row for the rows of a rectangle, of which some or all are observed. `local` counts from the unit's first row; s and
// `first` are the rectangle's first row.
inline HWY_NOINLINE void soften_observed(Observed& seen, const ScoreContext& context, const Rectangle& at,
                                         std::int64_t local, float* s, bool fresh, const SoftRow& first) {
  Found found;
  const bool all = seen.plan->chosen == context.call->query_heads;
  for (std::int64_t begin = 0; begin < at.rows; begin += group_rows) {
    found.count = 0;
    const std::int64_t end = smaller(at.rows, begin + group_rows);
    for (std::int64_t r = begin; r < end; ++r) {
      if (all || observes(seen, context, at.row + r))
        soften_observed_row(seen, context, at, context.query(at.row + r), local + r, r - begin, s + r * score_stride,
                            fresh, row_after(first, r), found);
      else soften_row(s + r * score_stride, at.begin, at.end, fresh, row_after(first, r));
    }
    const std::int64_t buffer = (local + begin) * seen.capacity;
    gather_found(found, seen.plan->top, at.key,
                 {seen.scores + buffer, seen.keys + buffer, seen.counts + local + begin, seen.bounds + local + begin,
                  seen.capacity});
  }
}

// What the locked weights of a row tell; its other weights have been counted. Locks take part in the order of the largest
// by the scores they would have to have.
inline HWY_NOINLINE void add_locks(const Observed& seen, const ScoreContext& context, std::int64_t query,
                                   const RowLocks& locks, float log_sum, float& entropy, float& distance, float* masses,
                                   Candidates& candidates) {
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
      if (part.group == column / 16 && (part.keys >> column % 16 & 1) != 0)
        masses[seen.first_list + part.list] += lock.weight;
    const float score = std::log(lock.weight) + log_sum;
    if (top == 0 || !(score > candidates.bound)) continue;
    candidates.scores[candidates.count] = score;
    candidates.keys[candidates.count++] = static_cast<std::int32_t>(lock.key);
    if (candidates.count > candidate_limit(top)) drop_candidates(candidates, top);
  }
}

// The largest keys of a row. A weight is factor * exp(score - largest).
inline HWY_NOINLINE void write_top(const StatisticsPlan& plan, Candidates& candidates, const RowLocks& locks,
                                   float largest, float factor, std::int64_t to) {
  const Tag d;
  const AttentionStatistics& out = *plan.request;
  HWY_ALIGN float weights[most_sorted];
  std::int32_t keys[most_sorted];
  drop_candidates(candidates, plan.top);
  const std::int64_t count = smaller(candidates.count, plan.top);
  sort_candidates(candidates, weights, keys);
  if (out.top_keys != nullptr) {
    std::int32_t* row = out.top_keys + to * plan.top;
    for (std::int64_t i = 0; i < count; ++i) row[i] = keys[i];
    for (std::int64_t i = count; i < plan.top; ++i) row[i] = -1;
  }
  if (out.top_weights != nullptr) {
    float* row = out.top_weights + to * plan.top;
    const Vector shift = hn::Set(d, largest), factors = hn::Set(d, factor), log2 = hn::Set(d, log2_e);
    for (std::int64_t i = 0; i < count; i += lanes)
      hn::StoreU(hn::Mul(factors, exp2_of(hn::Mul(hn::Sub(hn::LoadU(d, weights + i), shift), log2))), d, weights + i);
    for (std::int64_t i = 0; i < count; ++i) row[i] = weights[i];
    for (std::int64_t i = count; i < plan.top; ++i) row[i] = 0;
    for (const LockedScore& lock : locks.scores)
      for (std::int64_t i = 0; i < count; ++i)
        if (keys[i] == lock.key) row[i] = lock.weight;
  }
}

// Writes the statistics of a row whose keys have all been seen. `largest` and `sum` are of the keys that are not locked,
// without the sink.
inline HWY_NOINLINE void write_statistics(Observed& seen, const ScoreContext& context, std::int64_t row,
                                          std::int64_t local, float largest, float sum) {
  const AttentionCall& call = *context.call;
  const StatisticsPlan& plan = *seen.plan;
  const AttentionStatistics& out = *plan.request;
  const std::int64_t head = context.head(row), query = context.query(row);
  const std::int64_t to =
      (context.item->query_begin + query) * plan.chosen + plan.places[static_cast<std::size_t>(head)];
  const RowLocks locks = context.locked ? locks_of(*context.job, context.unit->item, head, query) : RowLocks{};
  const bool none = largest == lowest;  // no key but locked ones
  const bool alone = none && (locks.scores.empty() || call.rules.sinks.empty());
  const Denominator all = alone ? Denominator{0, 1, 0, 0} : denominator_of(call, head, largest, sum);
  const float left = static_cast<float>(1 - locks.sum), factor = none ? 0 : left * all.factor / all.sum;
  float entropy = 0, distance = 0;
  float* masses = seen.masses + local * seen.mass_count;
  if (factor > 0) {
    const Tag d;
    const float own = hn::GetLane(hn::Log2(d, hn::Set(d, all.sum / left))) + (all.largest - largest) * log2_e;
    entropy = (factor * sum * own - factor * seen.entropy_sums[local]) * ln_2;
    distance = factor * seen.distance_sums[local];
  }
  for (std::int64_t i = 0; i < seen.mass_count; ++i) masses[i] = none ? 0 : masses[i] * factor;
  Candidates candidates = candidates_of(seen, local);
  if (!locks.scores.empty()) {
    const float log_sum = locks.all() ? 0 : all.largest + std::log(all.sum) - std::log(left);
    add_locks(seen, context, query, locks, log_sum, entropy, distance, masses, candidates);
  }
  if (out.entropy != nullptr) out.entropy[to] = entropy <= 0 ? 0 : entropy;
  if (out.distance != nullptr) out.distance[to] = distance;
  float* const points[3] = {out.first, out.self, out.previous};
  for (int point = 0; point < 3; ++point)
    if (points[point] != nullptr) points[point][to] = masses[point];
  if (out.sink != nullptr) out.sink[to] = left * all.sink / all.sum;
  for (std::int64_t list = 0; list < plan.lists; ++list)
    out.list_mass[to * plan.lists + list] = masses[seen.first_list + list];
  if (plan.top > 0) write_top(plan, candidates, locks, largest, factor, to);
}

}  // namespace HWY_NAMESPACE
}  // namespace attention
}  // namespace attend
HWY_AFTER_NAMESPACE();

#endif
