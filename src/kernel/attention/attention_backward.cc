// Gradients by recomputation: weights are rebuilt block by block from the log-sum-exp (Dao 2023, "FlashAttention-2").
// With P = weights, dropped and scaled as in forward, G = output gradient and D = rowsum(G * output):
//   dV = P^T G,   dP = G V^T,   dS = P * (dP - D),   dQ = scale * dS K,   dK = scale * dS^T Q.
// Keys are the outer loop, rows the inner one, so a key's sums run over rows in order and a row's sums over keys in order,
// whether one part computes both kinds or two parts one kind each.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernel/attention/attention_backward.cc"
#include "hwy/foreach_target.h"  // IWYU pragma: keep

#include "hwy/highway.h"
#include "kernel/attention/attention_plan.h"
#include "kernel/attention/attention_scores-inl.h"
#include "kernel/attention/attention_tile-inl.h"

HWY_BEFORE_NAMESPACE();
namespace attend {
namespace attention {
namespace HWY_NAMESPACE {

constexpr std::int64_t backward_keys = backward_block_keys;

struct Backward {
  ScoreContext context;
  const AttentionGradients* gradients;
  std::int64_t query_columns, value_columns;  // head_dim and value_dim up to whole vectors
  // Per row of the unit, from its first row on.
  float *log_sums, *deltas;
  // Per block of keys.
  float *keys_across, *values_across;  // panels [width, keys]
  float* keys_down;                    // panels [keys, head_dim]
  float *key_sums, *value_sums;        // [keys, columns]
  // Per block of rows.
  float *queries_across, *outputs_across;  // [width, block_rows]
  float *queries_down, *outputs_down;      // panels [rows, width]
  float *weights, *slopes, *cap_slopes;    // [block_rows, score_stride]; slopes hold dP and then dS
  float* query_sums;                       // [block_rows, query_columns]
  float* distances;                        // gradient of the relative bias by index difference
  std::uint32_t* words;
  const float* zeros;
  bool keys_healthy, queries_healthy, outputs_healthy;
  const float* key_pointers[backward_keys + 16];
  const float* value_pointers[backward_keys + 16];
  const float* query_pointers[block_rows + 16];
  const float* output_pointers[block_rows + 16];
};

std::int64_t BackwardScratch(const AttentionCall& call, std::int64_t most_rows) {
  const std::int64_t queries = rounded_up(call.head_dim, 16), values = rounded_up(call.value_dim, 16);
  return 2 * rounded_up(most_rows, 16) + backward_keys * (3 * queries + 2 * values) +
         block_rows * (3 * queries + 2 * values) + (3 * block_rows + 4) * score_stride + block_keys + queries + values +
         2 * relative_floats(call, most_rows) + static_cast<std::int64_t>(call.edits.size()) + 33 * 16;
}

HWY_INLINE float* target_row(const MutableHeadsView& view, std::int64_t row, std::int64_t head) {
  return view.data + row * view.row_stride + head * view.head_stride;
}

// to[x] += from[x] * factor
HWY_INLINE void add_row(const float* HWY_RESTRICT from, std::int64_t width, float factor, float* HWY_RESTRICT to) {
  const Tag d;
  const Vector factors = hn::Set(d, factor);
  std::int64_t x = 0;
  for (; x + lanes <= width; x += lanes)
    hn::StoreU(hn::MulAdd(factors, hn::LoadU(d, from + x), hn::LoadU(d, to + x)), d, to + x);
  for (; x < width; ++x) to[x] += from[x] * factor;
}

HWY_INLINE float dot(const float* a, const float* b, std::int64_t width) {
  const Tag d;
  Vector sums = hn::Zero(d);
  std::int64_t x = 0;
  for (; x + lanes <= width; x += lanes) sums = hn::MulAdd(hn::LoadU(d, a + x), hn::LoadU(d, b + x), sums);
  float sum = hn::GetLane(hn::SumOfLanes(d, sums));
  for (; x < width; ++x) sum += a[x] * b[x];
  return sum;
}

HWY_INLINE void fill(float* to, std::int64_t size, float value) {
  const Tag d;
  for (std::int64_t i = 0; i < size; i += lanes) hn::StoreU(hn::Set(d, value), d, to + i);
}

// What dropout makes of a locked weight.
HWY_INLINE float dropped_lock(const AttentionJob& job, const LockedScore& lock) {
  if (job.drop_below != 0 &&
      dropout_drops(job.call->dropout.seed, lock.item, lock.head, lock.query, lock.key, job.drop_below))
    return 0;
  return lock.weight * job.kept_factor;
}

// The other keys of a row with locks share s = 1 - sum of locks by a softmax of their own, P = s softmax(S), so that
// dS = P * (dP - D') with D' = (D - sum over locks of weight * dP) / s.
inline HWY_NOINLINE void take_out_locks(Backward& work, std::int64_t row, std::int64_t r) {
  const ScoreContext& context = work.context;
  const AttentionCall& call = *context.call;
  const std::int64_t head = context.head(row), query = context.query(row);
  const RowLocks locks = locks_of(*context.job, context.unit->item, head, query);
  if (locks.scores.empty()) return;
  const HeadsView& gradient = work.gradients->output_gradient;
  const float* from =
      gradient.data + (context.item->query_begin + query) * gradient.row_stride + head * gradient.head_stride;
  for (const LockedScore& lock : locks.scores) {
    const float weight = dropped_lock(*context.job, lock);
    if (weight == 0) continue;
    const float* value = nullptr;
    key_rows(context, call.value, nullptr, call.value_dim, lock.key, 1, nullptr, 0, &value);
    work.deltas[r] -= weight * dot(from, value, call.value_dim);
  }
  work.deltas[r] = locks.all() ? 0 : work.deltas[r] / static_cast<float>(1 - locks.sum);
}

void prepare(const AttentionJob& job, const AttentionGradients& gradients, const AttentionUnit& unit, float* scratch,
             Backward& work) {
  const AttentionCall& call = *job.call;
  ScoreContext& context = work.context;
  context.job = &job;
  context.call = &call;
  context.item = &call.items[static_cast<std::size_t>(unit.item)];
  context.unit = &unit;
  context.mask = ItemMask(call, unit.item);
  work.gradients = &gradients;
  work.query_columns = rounded_up(call.head_dim, lanes);
  work.value_columns = rounded_up(call.value_dim, lanes);
  const std::int64_t rows = unit.row_end - unit.row_begin;
  Carver carver{scratch};
  work.log_sums = carver.take(rows);
  work.deltas = carver.take(rows);
  work.keys_across = carver.take(backward_keys * call.head_dim);
  work.values_across = carver.take(backward_keys * call.value_dim);
  work.keys_down = carver.take(backward_keys * work.query_columns);
  work.key_sums = carver.take(backward_keys * work.query_columns);
  work.value_sums = carver.take(backward_keys * work.value_columns);
  work.queries_across = carver.take(block_rows * call.head_dim);
  work.outputs_across = carver.take(block_rows * call.value_dim);
  work.queries_down = carver.take(block_rows * work.query_columns);
  work.outputs_down = carver.take(block_rows * work.value_columns);
  work.query_sums = carver.take(block_rows * work.query_columns);
  work.weights = carver.take(block_rows * score_stride);
  work.slopes = carver.take(block_rows * score_stride);
  work.cap_slopes = call.rules.soft_cap > 0 ? carver.take(block_rows * score_stride) : nullptr;
  work.words = reinterpret_cast<std::uint32_t*>(carver.take(4 * score_stride));
  context.bytes = reinterpret_cast<std::uint8_t*>(carver.take(block_keys / 4));
  float* zeros = carver.take(larger(call.head_dim, call.value_dim));
  fill(zeros, larger(call.head_dim, call.value_dim), 0);
  work.zeros = zeros;
  float* edits = carver.take(static_cast<std::int64_t>(call.edits.size()));
  if (!call.edits.empty()) find_edits(context, edits);
  work.distances = nullptr;
  if (call.rules.relative.table != nullptr && consecutive(*context.item)) {
    float* table = carver.take(0);
    lay_out_relative(context, table, 0, context.item->keys);
    if (gradients.relative_table != nullptr) {
      work.distances = table + unit.head_count * context.relative_size;
      fill(work.distances, unit.head_count * context.relative_size, 0);
    }
  }
  for (std::int64_t r = 0; r < rows; ++r) {
    const std::int64_t head = context.head(unit.row_begin + r),
                       row = context.item->query_begin + context.query(unit.row_begin + r);
    const float log_sum = call.log_sum_exp[row * call.query_heads + head];
    // A row that saw nothing gets weights exp(-infinity) = 0 throughout.
    work.log_sums[r] = log_sum == minus_infinity ? -minus_infinity : log_sum * log2_e;
    work.deltas[r] = log_sum == minus_infinity
                         ? 0
                         : dot(gradients.output_gradient.data + row * gradients.output_gradient.row_stride +
                                   head * gradients.output_gradient.head_stride,
                               target_row(call.output, row, head), call.value_dim);
    if (context.locked) take_out_locks(work, unit.row_begin + r, r);
  }
}

void load_keys(Backward& work, std::int64_t first, std::int64_t count, bool want_query) {
  const ScoreContext& context = work.context;
  const AttentionCall& call = *context.call;
  const std::int64_t padding = rounded_up(count, lanes) - count;
  key_rows(context, call.key, nullptr, call.head_dim, first, count, work.zeros, padding, work.key_pointers);
  key_rows(context, call.value, nullptr, call.value_dim, first, count, work.zeros, padding, work.value_pointers);
  pack_transposed(work.key_pointers, count, call.head_dim, work.keys_across);
  pack_transposed(work.value_pointers, count, call.value_dim, work.values_across);
  if (!want_query) return;
  work.keys_healthy = pack_rows(work.key_pointers, count, call.head_dim, 1.0f, work.keys_down);
  if (!work.keys_healthy) clear_spoiled(work.keys_down, count * work.query_columns);
}

void load_rows(Backward& work, std::int64_t row, std::int64_t count, bool want_key) {
  const ScoreContext& context = work.context;
  const AttentionCall& call = *context.call;
  const HeadsView& gradient = work.gradients->output_gradient;
  const std::int64_t padded = rounded_up(count, lanes);
  for (std::int64_t r = 0; r < padded; ++r) {
    work.query_pointers[r] = r < count ? query_row(context, row + r) : work.zeros;
    work.output_pointers[r] =
        r < count ? gradient.data + (context.item->query_begin + context.query(row + r)) * gradient.row_stride +
                        context.head(row + r) * gradient.head_stride
                  : work.zeros;
  }
  for (std::int64_t r = 0; r < padded; r += lanes) {
    transpose_rows(work.query_pointers + r, call.head_dim, context.job->scale, work.queries_across + r, block_rows);
    transpose_rows(work.output_pointers + r, call.value_dim, 1.0f, work.outputs_across + r, block_rows);
  }
  if (!want_key) return;
  work.queries_healthy = pack_rows(work.query_pointers, count, call.head_dim, context.job->scale, work.queries_down);
  work.outputs_healthy = pack_rows(work.output_pointers, count, call.value_dim, 1.0f, work.outputs_down);
  if (!work.queries_healthy) clear_spoiled(work.queries_down, count * work.query_columns);
  if (!work.outputs_healthy) clear_spoiled(work.outputs_down, count * work.value_columns);
}

// weights: scores become P; slopes: dP becomes dS.
HWY_INLINE void differentiate_row(float* HWY_RESTRICT weights, float* HWY_RESTRICT slopes, std::int64_t begin,
                                  std::int64_t end, float log_sum, float delta) {
  const Tag d;
  const Vector log2 = hn::Set(d, log2_e), shift = hn::Set(d, log_sum), mean = hn::Set(d, delta), zero = hn::Zero(d);
  for (std::int64_t j = begin; j < end; j += lanes) {
    const Vector weight = exp2_of(hn::MulSub(hn::LoadU(d, weights + j), log2, shift));
    const Vector slope = hn::Mul(weight, hn::Sub(hn::LoadU(d, slopes + j), mean));
    hn::StoreU(weight, d, weights + j);
    hn::StoreU(hn::IfThenZeroElse(hn::Eq(weight, zero), slope), d, slopes + j);
  }
}

// The same with dropout, which forward applied to the weights after their sum.
HWY_INLINE void differentiate_dropped_row(float* HWY_RESTRICT weights, float* HWY_RESTRICT slopes, std::int64_t begin,
                                          std::int64_t end, float log_sum, float delta, const std::uint32_t* words,
                                          int bits, const AttentionJob& job) {
  const Tag d;
  const Vector log2 = hn::Set(d, log2_e), shift = hn::Set(d, log_sum), mean = hn::Set(d, delta), zero = hn::Zero(d);
  const Vector factor = hn::Set(d, job.kept_factor);
  for (std::int64_t j = begin; j < end; j += lanes) {
    const Vector weight = exp2_of(hn::MulSub(hn::LoadU(d, weights + j), log2, shift));
    const auto keep = kept(words + j, bits, job.drop_below);
    const Vector gradient = hn::IfThenElseZero(keep, hn::Mul(factor, hn::LoadU(d, slopes + j)));
    hn::StoreU(hn::IfThenElseZero(keep, hn::Mul(factor, weight)), d, weights + j);
    hn::StoreU(hn::IfThenZeroElse(hn::Eq(weight, zero), hn::Mul(weight, hn::Sub(gradient, mean))), d, slopes + j);
  }
}

// Gradients of the score rules of one row, and the way back through the soft cap and through edits.
void differentiate_rules(Backward& work, const Rectangle& at, std::int64_t r, bool want_key) {
  const ScoreContext& context = work.context;
  const AttentionCall& call = *context.call;
  const std::int64_t row = at.row + r, head = context.head(row), query = context.query(row),
                     end = smaller(at.end, at.keys);
  float* HWY_RESTRICT slopes = work.slopes + r * score_stride;
  for_edits(context, head, query, at.key, at.begin, end, [slopes](const ScoreEdit& edit, std::int64_t j) {
    if (edit.kind == ScoreEdit::Kind::set) slopes[j] = 0;
    if (edit.kind == ScoreEdit::Kind::scale) slopes[j] *= edit.value;
  });
  if (want_key && work.distances != nullptr) {
    float* HWY_RESTRICT distances = work.distances + (head - context.unit->head_begin) * context.relative_size +
                                    (at.key - query - context.relative_first);
    for (std::int64_t j = at.begin; j < end; ++j) distances[j] += slopes[j];
  } else if (want_key && work.gradients->relative_table != nullptr) {
    const RelativeBias& relative = call.rules.relative;
    const auto last = static_cast<std::int64_t>(relative.buckets.size()) - 1;
    for (std::int64_t j = at.begin; j < end; ++j) {
      std::int64_t step =
          key_position(*context.item, at.key + j) - query_position(*context.item, query) - relative.first_distance;
      step = step < 0 ? 0 : step > last ? last : step;
      work.gradients->relative_table[relative.buckets[static_cast<std::size_t>(step)] * call.query_heads + head] +=
          slopes[j];
    }
  }
  if (want_key && work.gradients->bias != nullptr) {
    const ScoreBias& bias = call.rules.bias;
    float* to = work.gradients->bias + context.unit->item * bias.item_stride + head * bias.head_stride +
                query * bias.query_stride + at.key * bias.key_stride;
    for (std::int64_t j = at.begin; j < end; ++j) to[j * bias.key_stride] += slopes[j];
  }
  if (work.cap_slopes != nullptr)
    for (std::int64_t j = at.begin; j < end; ++j) slopes[j] *= work.cap_slopes[r * score_stride + j];
}

// Scores and dP of a rectangle whose first row is row r of the block.
void rebuild(const Backward& work, const Rectangle& at, std::int64_t r) {
  const AttentionCall& call = *work.context.call;
  float* weights = work.weights + r * score_stride;
  multiply_columns(at.rows, at.begin, at.end, call.head_dim, work.queries_across + r, block_rows, work.keys_across,
                   rounded_up(at.keys, lanes), weights, score_stride);
  finish_scores(work.context, at, weights, work.cap_slopes == nullptr ? nullptr : work.cap_slopes + r * score_stride);
  multiply_columns(at.rows, at.begin, at.end, call.value_dim, work.outputs_across + r, block_rows, work.values_across,
                   rounded_up(at.keys, lanes), work.slopes + r * score_stride, score_stride);
}

// Adds to the sums of keys and values. Row r of the block sees columns [begins[r], ends[r]) and has zeros elsewhere; both
// ends never fall from row to row, so the rows that see a few keys are neighbours.
void add_to_keys(const Backward& work, const Rectangle& at, const std::int64_t* begins, const std::int64_t* ends,
                 bool split) {
  const AttentionCall& call = *work.context.call;
  const std::int64_t end = smaller(at.end, at.keys), step = split ? 2 * part_rows : end - at.begin;
  std::int64_t first = 0, last = 0;
  for (std::int64_t j = at.begin; j < end; j += step) {
    const std::int64_t keys = smaller(step, end - j);
    while (first < at.rows && ends[first] <= j) ++first;
    while (last < at.rows && begins[last] < j + keys) ++last;
    if (first >= last) continue;
    const std::int64_t from = first * score_stride + j;
    multiply<Left::columns, true>(keys, work.value_columns, last - first, work.weights + from, score_stride,
                                  work.outputs_down, at.rows, first, work.value_sums + j * work.value_columns,
                                  work.value_columns);
    multiply<Left::columns, true>(keys, work.query_columns, last - first, work.slopes + from, score_stride,
                                  work.queries_down, at.rows, first, work.key_sums + j * work.query_columns,
                                  work.query_columns);
  }
  if (!work.outputs_healthy)
    mend_spoiled<Left::columns>(end - at.begin, at.rows, work.weights + at.begin, score_stride, work.output_pointers,
                                call.value_dim, 1.0f, work.value_sums + at.begin * work.value_columns,
                                work.value_columns);
  if (!work.queries_healthy)
    mend_spoiled<Left::columns>(end - at.begin, at.rows, work.slopes + at.begin, score_stride, work.query_pointers,
                                call.head_dim, work.context.job->scale, work.key_sums + at.begin * work.query_columns,
                                work.query_columns);
}

// Adds dS K of a rectangle whose first row is row r of the block.
void add_to_queries(const Backward& work, const Rectangle& at, std::int64_t r) {
  const ScoreContext& context = work.context;
  const AttentionCall& call = *context.call;
  const std::int64_t keys = smaller(at.end, at.keys) - at.begin;
  const float* slopes = work.slopes + r * score_stride + at.begin;
  multiply<Left::score_rows, false>(at.rows, work.query_columns, keys, slopes, 0, work.keys_down, at.keys, at.begin,
                                    work.query_sums, work.query_columns);
  if (!work.keys_healthy)
    mend_spoiled<Left::score_rows>(at.rows, keys, slopes, 0, work.key_pointers + at.begin, call.head_dim, 1.0f,
                                   work.query_sums, work.query_columns);
  for (std::int64_t i = 0; i < at.rows; ++i)
    add_row(work.query_sums + i * work.query_columns, call.head_dim, context.job->scale,
            target_row(work.gradients->query, context.item->query_begin + context.query(at.row + i),
                       context.head(at.row + i)));
}

void run_block(Backward& work, const Rectangle& at, bool want_query, bool want_key) {
  const ScoreContext& context = work.context;
  const std::int64_t first = at.row - context.unit->row_begin;
  const bool split = splits(context, at);
  const std::int64_t step = split ? part_rows : at.rows;
  std::int64_t begins[block_rows], ends[block_rows];
  for (std::int64_t r = 0; r < at.rows; r += step) {
    const Rectangle part = split ? part_of(context, at, r) : at;
    if (part.begin < part.end) rebuild(work, part, r);
    for (std::int64_t i = r; i < r + part.rows; ++i) {
      begins[i] = part.begin;
      ends[i] = part.end;
    }
  }
  if (context.job->drop_below == 0) {
    for (std::int64_t r = 0; r < at.rows; ++r)
      differentiate_row(work.weights + r * score_stride, work.slopes + r * score_stride, begins[r], ends[r],
                        work.log_sums[first + r], work.deltas[first + r]);
  } else {
    for_dropped_rows(context, at, work.words, [&](std::int64_t r, const std::uint32_t* words, int bits) HWY_ATTR {
      differentiate_dropped_row(work.weights + r * score_stride, work.slopes + r * score_stride, begins[r], ends[r],
                                work.log_sums[first + r], work.deltas[first + r], words, bits, *context.job);
    });
  }
  for (std::int64_t r = 0; r < at.rows && split; ++r) {
    float* weights = work.weights + r * score_stride;
    float* slopes = work.slopes + r * score_stride;
    fill(weights + at.begin, begins[r] - at.begin, 0);
    fill(slopes + at.begin, begins[r] - at.begin, 0);
    fill(weights + ends[r], at.end - ends[r], 0);
    fill(slopes + ends[r], at.end - ends[r], 0);
  }
  for (std::int64_t r = 0; r < at.rows && context.locked; ++r) {
    // A locked weight carries gradient to its value only.
    const RowLocks locks =
        locks_of(*context.job, context.unit->item, context.head(at.row + r), context.query(at.row + r));
    for (const LockedScore& lock : locks.scores)
      if (lock.key >= at.key + begins[r] && lock.key < at.key + ends[r])
        work.weights[r * score_stride + lock.key - at.key] = dropped_lock(*context.job, lock);
  }
  if (!context.job->plain_scores)
    for (std::int64_t r = 0; r < at.rows; ++r) {
      Rectangle row = at;
      row.begin = begins[r];
      row.end = ends[r];
      differentiate_rules(work, row, r, want_key);
    }
  if (want_key) add_to_keys(work, at, begins, ends, split);
  for (std::int64_t r = 0; r < at.rows && want_query; r += step) {
    const Rectangle part = split ? part_of(context, at, r) : at;
    if (part.begin < part.end) add_to_queries(work, part, r);
  }
}

void BackwardPartOf(const AttentionJob& job, const AttentionGradients& gradients, const BackwardPart& part,
                    float* scratch) {
  const AttentionCall& call = *job.call;
  const bool want_query = part.want_query && gradients.query.data != nullptr;
  Backward work;
  prepare(job, gradients, part.unit, scratch, work);
  const ScoreContext& context = work.context;
  const std::int64_t key_head = part.unit.head_begin / job.group;
  for (std::int64_t key = part.key_begin; key < part.key_end; key += backward_keys) {
    const std::int64_t count = smaller(backward_keys, part.key_end - key);
    bool ready = false;
    for (std::int64_t row = part.unit.row_begin; row < part.unit.row_end; row += block_rows) {
      Rectangle at;
      if (!find_rectangle(context, row, smaller(block_rows, part.unit.row_end - row), key, count, at)) continue;
      if (!ready) {
        load_keys(work, key, count, want_query);
        if (part.want_key) {
          fill(work.key_sums, count * work.query_columns, 0);
          fill(work.value_sums, count * work.value_columns, 0);
        }
        ready = true;
      }
      load_rows(work, at.row, at.rows, part.want_key);
      run_block(work, at, want_query, part.want_key);
    }
    if (!ready || !part.want_key) continue;
    for (std::int64_t j = 0; j < count; ++j) {
      const std::int64_t row = context.item->key_begin + key + j;
      if (gradients.key.data != nullptr)
        add_row(work.key_sums + j * work.query_columns, call.head_dim, 1.0f, target_row(gradients.key, row, key_head));
      if (gradients.value.data != nullptr)
        add_row(work.value_sums + j * work.value_columns, call.value_dim, 1.0f,
                target_row(gradients.value, row, key_head));
    }
  }
  if (!part.want_key || work.distances == nullptr) return;
  const RelativeBias& relative = call.rules.relative;
  const std::int64_t shift = context.item->key_position - context.item->query_position - relative.first_distance;
  const auto last = static_cast<std::int64_t>(relative.buckets.size()) - 1;
  for (std::int64_t h = 0; h < part.unit.head_count; ++h)
    for (std::int64_t step = 0; step < context.relative_size; ++step) {
      std::int64_t at = step + context.relative_first + shift;
      at = at < 0 ? 0 : at > last ? last : at;
      gradients.relative_table[relative.buckets[static_cast<std::size_t>(at)] * call.query_heads +
                               part.unit.head_begin + h] += work.distances[h * context.relative_size + step];
    }
}

}  // namespace HWY_NAMESPACE
}  // namespace attention
}  // namespace attend
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace attend {
namespace attention {
HWY_EXPORT(BackwardScratch);
HWY_EXPORT(BackwardPartOf);
}  // namespace attention

std::int64_t backward_scratch(const AttentionCall& call, std::int64_t most_rows) {
  using namespace attention;
  return HWY_DYNAMIC_DISPATCH(BackwardScratch)(call, most_rows);
}
void backward_part(const AttentionJob& job, const AttentionGradients& gradients, const BackwardPart& part,
                   float* scratch) {
  using namespace attention;
  HWY_DYNAMIC_DISPATCH(BackwardPartOf)(job, gradients, part, scratch);
}
}  // namespace attend
#endif
