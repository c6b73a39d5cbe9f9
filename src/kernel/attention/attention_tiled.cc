// Attention of many queries: blocks of keys outside, blocks of rows inside, a running maximum and sum for every row
// (Milakov and Gimelshein 2018; Dao et al. 2022). A block of keys is packed once and used by all rows of the unit.
// The explicit implementation runs the same tiles with edits and writes the matrices asked for in a second pass.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernel/attention/attention_tiled.cc"
#include "hwy/foreach_target.h"  // IWYU pragma: keep

#include <cmath>

#include "hwy/highway.h"
#include "kernel/attention/attention_plan.h"
#include "kernel/attention/attention_scores-inl.h"
#include "kernel/attention/attention_soften-inl.h"
#include "kernel/attention/attention_statistics-inl.h"
#include "kernel/attention/attention_tile-inl.h"

HWY_BEFORE_NAMESPACE();
namespace attend {
namespace attention {
namespace HWY_NAMESPACE {

// Working memory of one unit.
struct Forward {
  ScoreContext context;
  std::int64_t value_columns;  // value_dim up to whole vectors
  float *queries, *outputs, *largest, *sums, *log_sums, *keys, *values, *scores;
  std::uint32_t* words;
  const float* zeros;
  Observed seen;
  const float* value_rows[block_keys + 16];
};

std::int64_t TiledScratch(const AttentionCall& call, std::int64_t most_rows) {
  const std::int64_t rows = rounded_up(most_rows, block_rows), values = rounded_up(call.value_dim, 16);
  return rows * (call.head_dim + values + 3) + block_keys * (call.head_dim + values) + (block_rows + 4) * score_stride +
         block_keys + call.head_dim + call.value_dim + relative_floats(call, most_rows) + observed_floats(call, rows) +
         static_cast<std::int64_t>(call.edits.size()) + 17 * 16;
}

void prepare(const AttentionJob& job, const AttentionUnit& unit, float* scratch, Forward& work) {
  const AttentionCall& call = *job.call;
  ScoreContext& context = work.context;
  context.job = &job;
  context.call = &call;
  context.item = &call.items[static_cast<std::size_t>(unit.item)];
  context.unit = &unit;
  context.mask = ItemMask(call, unit.item);
  const std::int64_t rows = rounded_up(unit.row_end - unit.row_begin, block_rows);
  work.value_columns = rounded_up(call.value_dim, lanes);
  Carver carver{scratch};
  work.queries = carver.take(rows * call.head_dim);
  work.outputs = carver.take(rows * work.value_columns);
  work.largest = carver.take(rows);
  work.sums = carver.take(rows);
  work.log_sums = carver.take(rows);
  work.keys = carver.take(block_keys * call.head_dim);
  work.values = carver.take(block_keys * work.value_columns);
  work.scores = carver.take(block_rows * score_stride);
  work.words = reinterpret_cast<std::uint32_t*>(carver.take(4 * score_stride));
  context.bytes = reinterpret_cast<std::uint8_t*>(carver.take(block_keys / 4));
  float* zeros = carver.take(larger(call.head_dim, call.value_dim));
  for (std::int64_t x = 0; x < larger(call.head_dim, call.value_dim); ++x) zeros[x] = 0;
  work.zeros = zeros;
  float* edits = carver.take(static_cast<std::int64_t>(call.edits.size()));
  if (unit.entry == AttentionEntry::explicit_heads && !call.edits.empty()) find_edits(context, edits);
  if (job.statistics != nullptr) start_observing(*job.statistics, rows, carver, work.seen);
  if (call.rules.relative.table != nullptr && consecutive(*context.item))
    lay_out_relative(context, carver.take(0), 0, context.item->keys);
}

bool pack_values(Forward& work, std::int64_t first, std::int64_t count) {
  const ScoreContext& context = work.context;
  key_rows(context, context.call->value, context.item->value_pages, context.call->value_dim, first, count, work.zeros,
           0, work.value_rows);
  const bool healthy = pack_rows(work.value_rows, count, context.call->value_dim, 1.0f, work.values);
  if (!healthy) clear_spoiled(work.values, count * work.value_columns);
  return healthy;
}

// The end of a row with locks: what they leave of 1 goes to `output`, the other keys' sum over their denominator; then
// the locked values are added.
inline HWY_NOINLINE void finish_locked_row(const Forward& work, const RowLocks& locks, std::int64_t head,
                                           std::int64_t query, float factor, float log_sum, std::int64_t local) {
  const ScoreContext& context = work.context;
  const AttentionCall& call = *context.call;
  const std::int64_t row = context.item->query_begin + query;
  const float* from = work.outputs + local * work.value_columns;
  float* to = call.output.data + row * call.output.row_stride + head * call.output.head_stride;
  const auto left = static_cast<float>(1 - locks.sum);
  const float share = locks.all() ? 0 : factor * left;
  for (std::int64_t x = 0; x < call.value_dim; ++x) to[x] = share == 0 ? 0 : from[x] * share;
  for (const LockedScore& lock : locks.scores) {
    const std::uint32_t below = context.job->drop_below;
    if (lock.weight == 0 || (below != 0 && dropout_drops(call.dropout.seed, lock.item, head, query, lock.key, below)))
      continue;
    const float weight = lock.weight * context.job->kept_factor;
    const float* value = nullptr;
    key_rows(context, call.value, context.item->value_pages, call.value_dim, lock.key, 1, nullptr, 0, &value);
    for (std::int64_t x = 0; x < call.value_dim; ++x) to[x] += weight * value[x];
  }
  work.log_sums[local] = locks.all() ? 0 : log_sum - std::log(left);
  if (call.log_sum_exp != nullptr) call.log_sum_exp[row * call.query_heads + head] = work.log_sums[local];
}

void finish_row(const Forward& work, std::int64_t row, std::int64_t local) {
  const AttentionCall& call = *work.context.call;
  const Tag d;
  const std::int64_t head = work.context.head(row), query = work.context.item->query_begin + work.context.query(row);
  float factor = 0, log_sum = minus_infinity;
  if (work.largest[local] != minus_infinity) {
    const Denominator all = denominator_of(call, head, work.largest[local], work.sums[local]);
    log_sum = all.largest + (call.rules.sinks.empty() ? work.log_sums[local] * ln_2 : std::log(all.sum));
    factor = all.factor * (work.context.job->kept_factor / all.sum);
  }
  if (work.context.locked) {
    const RowLocks locks = locks_of(*work.context.job, work.context.unit->item, head, work.context.query(row));
    if (!locks.scores.empty()) {
      // Where the sink alone shares with the locks, it is the denominator.
      if (work.largest[local] == minus_infinity && !call.rules.sinks.empty())
        log_sum = call.rules.sinks[static_cast<std::size_t>(head)];
      finish_locked_row(work, locks, head, work.context.query(row), factor, log_sum, local);
      return;
    }
  }
  if (call.log_sum_exp != nullptr) call.log_sum_exp[query * call.query_heads + head] = log_sum;
  const float* from = work.outputs + local * work.value_columns;
  float* to = call.output.data + query * call.output.row_stride + head * call.output.head_stride;
  if (factor == 0) {
    for (std::int64_t x = 0; x < call.value_dim; ++x) to[x] = 0;
    return;
  }
  const Vector factors = hn::Set(d, factor);
  std::int64_t x = 0;
  for (; x + lanes <= call.value_dim; x += lanes) hn::StoreU(hn::Mul(factors, hn::LoadU(d, from + x)), d, to + x);
  for (; x < call.value_dim; ++x) to[x] = from[x] * factor;
}

// Scores and weights of a rectangle; local is its first row counted from the unit's.
template <bool observed>
void weigh(Forward& work, const Rectangle& at, std::int64_t local, const float* queries, float* scores, bool fresh) {
  if (at.begin == at.end) {
    for (std::int64_t r = local; r < local + at.rows && fresh; ++r) {
      work.largest[r] = minus_infinity;
      work.sums[r] = 0;
    }
    return;
  }
  block_of_scores(work.context, at, queries, work.keys, scores);
  const SoftRow first{work.largest + local, work.sums + local, work.outputs + local * work.value_columns,
                      work.value_columns};
  if (observed) {
    soften_observed(work.seen, work.context, at, local, scores, fresh, first);
    return;
  }
  for (std::int64_t r = 0; r < at.rows; ++r)
    soften_row(scores + r * score_stride, at.begin, at.end, fresh, row_after(first, r));
}

void add_weighted(const Forward& work, const Rectangle& at, const float* weights, float* outputs, bool fresh,
                  bool healthy) {
  const std::int64_t depth = smaller(at.end, at.keys) - at.begin;
  if (fresh)
    multiply<Left::score_rows, false>(at.rows, work.value_columns, depth, weights + at.begin, 0, work.values, at.keys,
                                      at.begin, outputs, work.value_columns);
  else
    multiply<Left::score_rows, true>(at.rows, work.value_columns, depth, weights + at.begin, 0, work.values, at.keys,
                                     at.begin, outputs, work.value_columns);
  if (!healthy)
    mend_spoiled<Left::score_rows>(at.rows, depth, weights + at.begin, 0, work.value_rows + at.begin,
                                   work.context.call->value_dim, 1.0f, outputs, work.value_columns);
}

template <bool observed>
void run_blocks(Forward& work) {
  const AttentionUnit& unit = *work.context.unit;
  const AttentionCall& call = *work.context.call;
  const std::int64_t rows = unit.row_end - unit.row_begin, keys = work.context.item->keys;
  const std::int64_t blocks = (rows + block_rows - 1) / block_rows;
  // Bit b of packed and started: block b of rows. A unit never has more than 64 blocks.
  std::uint64_t packed = 0, started = 0;
  for (std::int64_t key = 0; key < keys; key += block_keys) {
    const std::int64_t count = smaller(block_keys, keys - key);
    bool ready = false, healthy = true;
    for (std::int64_t b = 0; b < blocks; ++b) {
      const std::int64_t local = b * block_rows;
      Rectangle at;
      if (!find_rectangle(work.context, unit.row_begin + local, smaller(block_rows, rows - local), key, count, at))
        continue;
      if (!ready) {
        pack_keys(work.context, key, count, work.zeros, work.keys);
        healthy = pack_values(work, key, count);
        if (observed) enter_block(work.context, key, count, work.seen);
        ready = true;
      }
      float* queries = work.queries + local * call.head_dim;
      if ((packed >> b & 1) == 0) pack_queries(work.context, at.row, at.rows, work.zeros, queries);
      packed |= std::uint64_t{1} << b;
      const bool fresh = (started >> b & 1) == 0, split = splits(work.context, at);
      started |= std::uint64_t{1} << b;
      const std::int64_t step = split ? part_rows : at.rows;
      for (std::int64_t r = 0; r < at.rows; r += step)
        weigh<observed>(work, split ? part_of(work.context, at, r) : at, local + r, queries + r,
                        work.scores + r * score_stride, fresh);
      if (work.context.job->drop_below != 0) drop_weights(work.context, at, work.words, work.scores);
      for (std::int64_t r = 0; r < at.rows; r += step)
        add_weighted(work, split ? part_of(work.context, at, r) : at, work.scores + r * score_stride,
                     work.outputs + (local + r) * work.value_columns, fresh, healthy);
    }
  }
  for (std::int64_t b = 0; b < blocks; ++b)
    for (std::int64_t r = b * block_rows; r < smaller(rows, (b + 1) * block_rows) && (started >> b & 1) == 0; ++r)
      work.largest[r] = minus_infinity;
  if (call.rules.sinks.empty()) {
    const Tag d;
    for (std::int64_t r = 0; r < rows; r += lanes)
      hn::StoreU(hn::Log2(d, hn::LoadU(d, work.sums + r)), d, work.log_sums + r);
  }
  for (std::int64_t r = 0; r < rows; ++r) {
    finish_row(work, unit.row_begin + r, r);
    if (observed && observes(work.seen, work.context, unit.row_begin + r))
      write_statistics(work.seen, work.context, unit.row_begin + r, r, work.largest[r], work.sums[r]);
  }
}

void run_unit(Forward& work) {
  if (work.context.job->statistics != nullptr) run_blocks<true>(work);
  else run_blocks<false>(work);
}

void TiledForward(const AttentionJob& job, const AttentionUnit& unit, float* scratch) {
  Forward work;
  prepare(job, unit, scratch, work);
  run_unit(work);
}

// One block of scores goes to the matrices asked for. The running maximum and sum are final by now.
void write_matrices(const Forward& work, const Rectangle& at, std::int64_t local, const MatrixRequest& request) {
  const AttentionCall& call = *work.context.call;
  const std::int64_t keys = work.context.item->keys, end = smaller(at.end, at.keys);
  for (std::int64_t r = 0; r < at.rows; ++r) {
    const float* s = work.scores + r * score_stride;
    const std::int64_t query = work.context.query(at.row + r), to = query * keys + at.key;
    if (request.scores != nullptr)
      for (std::int64_t j = at.begin; j < end; ++j) request.scores[to + j] = s[j];
    const RowLocks locks =
        work.context.locked ? locks_of(*work.context.job, request.item, request.head, query) : RowLocks{};
    if (request.weights != nullptr && work.largest[local + r] != minus_infinity) {
      const float largest = work.largest[local + r];
      const Denominator all = denominator_of(call, request.head, largest, work.sums[local + r]);
      const float left = locks.scores.empty() ? 1 : static_cast<float>(1 - locks.sum);
      const float factor = all.factor * left / all.sum;
      for (std::int64_t j = at.begin; j < end; ++j)
        request.weights[to + j] = exp2_of((s[j] - largest) * log2_e) * factor;
    }
    for (const LockedScore& lock : locks.scores) {
      if (lock.key < at.key || lock.key >= at.key + at.keys) continue;
      if (request.scores != nullptr)
        request.scores[query * keys + lock.key] = std::log(lock.weight) + work.log_sums[local + r];
      if (request.weights != nullptr) request.weights[query * keys + lock.key] = lock.weight;
    }
  }
}

void ExplicitForward(const AttentionJob& job, const AttentionUnit& unit, float* scratch) {
  Forward work;
  prepare(job, unit, scratch, work);
  run_unit(work);
  const std::int64_t rows = unit.row_end - unit.row_begin, keys = work.context.item->keys;
  for (const MatrixRequest& request : job.call->matrices) {
    if (request.item != unit.item || request.head != unit.head_begin) continue;
    const std::int64_t from = unit.row_begin * keys, to = unit.row_end * keys;
    for (std::int64_t i = from; i < to; ++i) {
      if (request.scores != nullptr) request.scores[i] = minus_infinity;
      if (request.weights != nullptr) request.weights[i] = 0;
    }
    for (std::int64_t key = 0; key < keys; key += block_keys) {
      const std::int64_t count = smaller(block_keys, keys - key);
      pack_keys(work.context, key, count, work.zeros, work.keys);
      for (std::int64_t local = 0; local < rows; local += block_rows) {
        Rectangle at;
        if (!find_rectangle(work.context, unit.row_begin + local, smaller(block_rows, rows - local), key, count, at))
          continue;
        pack_queries(work.context, at.row, at.rows, work.zeros, work.queries + local * job.call->head_dim);
        block_of_scores(work.context, at, work.queries + local * job.call->head_dim, work.keys, work.scores);
        write_matrices(work, at, local, request);
      }
    }
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace attention
}  // namespace attend
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace attend {
namespace attention {
HWY_EXPORT(TiledScratch);
HWY_EXPORT(TiledForward);
HWY_EXPORT(ExplicitForward);
}  // namespace attention

std::int64_t tiled_scratch(const AttentionCall& call, std::int64_t most_rows) {
  using namespace attention;
  return HWY_DYNAMIC_DISPATCH(TiledScratch)(call, most_rows);
}
void tiled_forward(const AttentionJob& job, const AttentionUnit& unit, float* scratch) {
  using namespace attention;
  HWY_DYNAMIC_DISPATCH(TiledForward)(job, unit, scratch);
}
void explicit_forward(const AttentionJob& job, const AttentionUnit& unit, float* scratch) {
  using namespace attention;
  HWY_DYNAMIC_DISPATCH(ExplicitForward)(job, unit, scratch);
}
}  // namespace attend
#endif
