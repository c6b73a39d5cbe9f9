// Attention of a few queries: keys and values are read where they lie, in views or pages, and used once, so packing them
// would cost more than it saves. Keys are taken in parts of a fixed length; parts are merged in order, so the result
// depends on the length alone. (Splitting keys: Dao et al. 2023, "Flash-Decoding".)
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernel/attention/attention_decode.cc"
#include "hwy/foreach_target.h"  // IWYU pragma: keep

#include <cmath>

#include "hwy/highway.h"
#include "kernel/attention/attention_plan.h"
#include "kernel/attention/attention_scores-inl.h"
#include "kernel/attention/attention_statistics-inl.h"
#include "kernel/attention/attention_tile-inl.h"

HWY_BEFORE_NAMESPACE();
namespace attend {
namespace attention {
namespace HWY_NAMESPACE {

constexpr std::int64_t part_stride = decode_part_keys + 16;

struct Decode {
  ScoreContext context;
  std::int64_t query_columns;  // head_dim up to whole vectors
  std::int64_t value_columns;
  float *queries, *scores, *outputs;  // [decode_rows, ...]
  std::uint32_t* words;
  const float** rows;
  float* kept = nullptr;  // [decode_rows, part_stride]: the scores, when there are statistics to be made of them
};

std::int64_t DecodeScratch(const AttentionCall& call) {
  return decode_rows * (rounded_up(call.head_dim, 16) + part_stride + rounded_up(call.value_dim, 16)) +
         4 * score_stride + block_keys + 2 * decode_part_keys + relative_floats(call, decode_rows) +
         (call.statistics != nullptr ? decode_rows * part_stride + observed_floats(call, 1) : 0) + 16 * 16;
}

void prepare_decode(const AttentionJob& job, const AttentionUnit& unit, float* scratch, Decode& work) {
  const AttentionCall& call = *job.call;
  ScoreContext& context = work.context;
  context.job = &job;
  context.call = &call;
  context.item = &call.items[static_cast<std::size_t>(unit.item)];
  context.unit = &unit;
  context.mask = ItemMask(call, unit.item);
  work.query_columns = rounded_up(call.head_dim, lanes);
  work.value_columns = rounded_up(call.value_dim, lanes);
  Carver carver{scratch};
  work.queries = carver.take(decode_rows * work.query_columns);
  work.scores = carver.take(decode_rows * part_stride);
  work.outputs = carver.take(decode_rows * work.value_columns);
  work.words = reinterpret_cast<std::uint32_t*>(carver.take(4 * score_stride));
  context.bytes = reinterpret_cast<std::uint8_t*>(carver.take(block_keys / 4));
  work.rows = reinterpret_cast<const float**>(carver.take(2 * decode_part_keys));
  if (job.statistics != nullptr) work.kept = carver.take(decode_rows * part_stride);
  if (call.rules.relative.table != nullptr && consecutive(*context.item))
    lay_out_relative(context, carver.take(0), 0, context.item->keys);
  for (std::int64_t r = 0; r < unit.row_end - unit.row_begin; ++r) {
    const float* from = query_row(context, unit.row_begin + r);
    float* to = work.queries + r * work.query_columns;
    for (std::int64_t x = 0; x < call.head_dim; ++x) to[x] = from[x] * job.scale;
    for (std::int64_t x = call.head_dim; x < work.query_columns; ++x) to[x] = 0;
  }
}

// The first `count` < lanes floats, then zeros, without touching what lies behind them.
HWY_INLINE Vector load_part(const float* from, std::int64_t count) {
  const Tag d;
#if HWY_MEM_OPS_MIGHT_FAULT
  HWY_ALIGN float buffer[HWY_LANES(float)] = {};
  for (std::int64_t x = 0; x < count; ++x) buffer[x] = from[x];
  return hn::Load(d, buffer);
#else
  return hn::MaskedLoad(hn::FirstN(d, static_cast<std::size_t>(count)), d, from);
#endif
}

// Lane 4 * b + t of the result is the sum over lanes of v_t within 128-bit part b; adding the parts gives four sums.
HWY_INLINE void sum_four(Vector v0, Vector v1, Vector v2, Vector v3, float* sums) {
  const Tag d;
  const hn::Repartition<double, Tag> pairs;
  const Vector a = hn::Add(hn::InterleaveLower(d, v0, v1), hn::InterleaveUpper(d, v0, v1));
  const Vector b = hn::Add(hn::InterleaveLower(d, v2, v3), hn::InterleaveUpper(d, v2, v3));
  const auto wide_a = hn::BitCast(pairs, a), wide_b = hn::BitCast(pairs, b);
  const Vector c = hn::Add(hn::BitCast(d, hn::InterleaveLower(pairs, wide_a, wide_b)),
                           hn::BitCast(d, hn::InterleaveUpper(pairs, wide_a, wide_b)));
  if constexpr (lanes == 4) {
    hn::StoreU(c, d, sums);
  } else {
    const hn::Half<Tag> half;
    const auto narrow = hn::Add(hn::LowerHalf(half, c), hn::UpperHalf(half, c));
    if constexpr (lanes == 8) {
      hn::StoreU(narrow, half, sums);
    } else {
      const hn::Half<hn::Half<Tag>> quarter;
      hn::StoreU(hn::Add(hn::LowerHalf(quarter, narrow), hn::UpperHalf(quarter, narrow)), quarter, sums);
    }
  }
}

// Four keys against `count` queries at queries + r * query_stride; scores go to out + r * out_stride.
template <int count>
HWY_INLINE void score_four(const float* queries, std::int64_t query_stride, const float* const* keys,
                           std::int64_t width, float* out, std::int64_t out_stride) {
  const Tag d;
  Vector sums[count][4];
  ATTEND_UNROLL
  for (int r = 0; r < count; ++r) {
    ATTEND_UNROLL
    for (int t = 0; t < 4; ++t) sums[r][t] = hn::Zero(d);
  }
  std::int64_t x = 0;
  for (; x + lanes <= width; x += lanes) {
    ATTEND_UNROLL
    for (int t = 0; t < 4; ++t) {
      const Vector key = hn::LoadU(d, keys[t] + x);
      ATTEND_UNROLL
      for (int r = 0; r < count; ++r)
        sums[r][t] = hn::MulAdd(key, hn::LoadU(d, queries + r * query_stride + x), sums[r][t]);
    }
  }
  if (x < width) {
    ATTEND_UNROLL
    for (int t = 0; t < 4; ++t) {
      const Vector key = load_part(keys[t] + x, width - x);
      ATTEND_UNROLL
      for (int r = 0; r < count; ++r)
        sums[r][t] = hn::MulAdd(key, hn::LoadU(d, queries + r * query_stride + x), sums[r][t]);
    }
  }
  ATTEND_UNROLL
  for (int r = 0; r < count; ++r) sum_four(sums[r][0], sums[r][1], sums[r][2], sums[r][3], out + r * out_stride);
}

// outputs[columns from x on] += sum over keys of weight * value, `vectors` vectors wide. Keys of weight 0 are not read.
template <int vectors, bool whole>
HWY_INLINE void add_values(const float* weights, const float* const* rows, std::int64_t count, std::int64_t x,
                           std::int64_t tail, std::int64_t width, float* output) {
  const Tag d;
  Vector sums[vectors];
  ATTEND_UNROLL
  for (int v = 0; v < vectors; ++v) sums[v] = hn::Zero(d);
  for (std::int64_t j = 0; j < count; ++j) {
    if (x == 0 && j + 12 < count) prefetch_row(rows[j + 12], width);
    if (weights[j] == 0) continue;
    const Vector weight = hn::Set(d, weights[j]);
    ATTEND_UNROLL
    for (int v = 0; v < vectors; ++v) {
      const float* from = rows[j] + x + v * lanes;
      sums[v] = hn::MulAdd(weight, whole ? hn::LoadU(d, from) : load_part(from, tail), sums[v]);
    }
  }
  ATTEND_UNROLL
  for (int v = 0; v < vectors; ++v) hn::StoreU(sums[v], d, output + x + v * lanes);
}

struct PartResult {
  float largest[decode_rows];
  float sum[decode_rows];
};

// Keys [first, first + count) of a unit: weights relative to the part's own maximum, their sum, and the weighted values.
void run_part(Decode& work, std::int64_t first, std::int64_t count, PartResult& result) {
  const Tag d;
  const ScoreContext& context = work.context;
  const AttentionCall& call = *context.call;
  const AttentionUnit& unit = *context.unit;
  const std::int64_t rows = unit.row_end - unit.row_begin;
  for (std::int64_t r = 0; r < rows; ++r) {
    result.largest[r] = minus_infinity;
    result.sum[r] = 0;
  }
  // Blocks of the size that masks and dropout work on; a part holds two.
  std::int64_t begin = count, end = 0;
  for (std::int64_t block = 0; block < count; block += block_keys) {
    Rectangle at;
    const std::int64_t block_count = smaller(block_keys, count - block);
    if (!find_rectangle(context, unit.row_begin, rows, first + block, block_count, at)) {
      for (std::int64_t r = 0; r < rows; ++r)
        for (std::int64_t j = 0; j < rounded_up(block_count, lanes); ++j)
          work.scores[r * part_stride + block + j] = minus_infinity;
      continue;
    }
    const std::int64_t last = smaller(at.end, block_count), padded = rounded_up(last - at.begin, 4) - (last - at.begin);
    const float** keys = work.rows;
    key_rows(context, call.key, context.item->key_pages, call.head_dim, first + block + at.begin, last - at.begin,
             nullptr, 0, keys);
    for (std::int64_t j = 0; j < padded; ++j) keys[last - at.begin + j] = keys[0];
    for (std::int64_t r = 0; r < rows; r += 2)
      for (std::int64_t j = at.begin; j < last; j += 4) {
        float* out = work.scores + r * part_stride + block + j;
        const float* queries = work.queries + r * work.query_columns;
        if (r == 0)
          for (std::int64_t t = j + 16; t < smaller(j + 20, last); ++t) prefetch_row(keys[t - at.begin], call.head_dim);
        if (r + 1 < rows)
          score_four<2>(queries, work.query_columns, keys + (j - at.begin), call.head_dim, out, part_stride);
        else score_four<1>(queries, work.query_columns, keys + (j - at.begin), call.head_dim, out, part_stride);
      }
    for (std::int64_t r = 0; r < rows; ++r) {
      float* s = work.scores + r * part_stride + block;
      for (std::int64_t j = 0; j < at.begin; ++j) s[j] = minus_infinity;
      for (std::int64_t j = at.end; j < rounded_up(block_count, lanes); ++j) s[j] = minus_infinity;
      if (!context.job->plain_scores) apply_rules(context, unit.row_begin + r, at, s, nullptr);
      if (at.masked || at.end > at.keys) hide(context, unit.row_begin + r, at, s);
    }
    begin = smaller(begin, block);
    end = larger(end, block + block_count);
  }
  const std::int64_t padded_end = rounded_up(end, lanes);
  for (std::int64_t r = 0; r < rows; ++r) {
    float* HWY_RESTRICT s = work.scores + r * part_stride;
    if (work.kept != nullptr)
      for (std::int64_t j = 0; j < rounded_up(count, lanes); ++j) work.kept[r * part_stride + j] = s[j];
    float* output = work.outputs + r * work.value_columns;
    Vector top = hn::Set(d, minus_infinity);
    for (std::int64_t j = begin; j < padded_end; j += lanes) top = hn::Max(top, hn::LoadU(d, s + j));
    const float largest = begin < end ? hn::GetLane(hn::MaxOfLanes(d, top)) : minus_infinity;
    result.largest[r] = largest;
    if (largest == minus_infinity) {
      for (std::int64_t x = 0; x < work.value_columns; ++x) output[x] = 0;
      continue;
    }
    const Vector log2 = hn::Set(d, log2_e), shift = hn::Set(d, largest);
    Vector total = hn::Zero(d);
    for (std::int64_t j = begin; j < padded_end; j += lanes) {
      const Vector weight = exp2_of(hn::Mul(hn::Sub(hn::LoadU(d, s + j), shift), log2));
      total = hn::Add(total, weight);
      hn::StoreU(weight, d, s + j);
    }
    result.sum[r] = hn::GetLane(hn::SumOfLanes(d, total));
    if (context.job->drop_below != 0) {
      const std::int64_t query = context.query(unit.row_begin + r), slot = query % dropout_queries;
      for (std::int64_t block = begin; block < end; block += block_keys) {
        const std::int64_t size = rounded_up(smaller(block_keys, end - block), lanes);
        draw_words(*context.job, unit.item, context.head(unit.row_begin + r), query / dropout_queries, first + block, 0,
                   size, work.words);
        for (std::int64_t j = 0; j < size; j += lanes) {
          const auto keep = kept(work.words + slot / 2 * score_stride + j, static_cast<int>(16 * (slot % 2)),
                                 context.job->drop_below);
          hn::StoreU(hn::IfThenElseZero(keep, hn::LoadU(d, s + block + j)), d, s + block + j);
        }
      }
    }
  }
  if (begin >= end) return;
  key_rows(context, call.value, context.item->value_pages, call.value_dim, first + begin, end - begin, nullptr, 0,
           work.rows);
  for (std::int64_t r = 0; r < rows; ++r) {
    if (result.largest[r] == minus_infinity) continue;
    const float* weights = work.scores + r * part_stride + begin;
    float* output = work.outputs + r * work.value_columns;
    std::int64_t x = 0;
    for (; x + 4 * lanes <= call.value_dim; x += 4 * lanes)
      add_values<4, true>(weights, work.rows, end - begin, x, 0, call.value_dim, output);
    for (; x + lanes <= call.value_dim; x += lanes)
      add_values<1, true>(weights, work.rows, end - begin, x, 0, call.value_dim, output);
    if (x < call.value_dim)
      add_values<1, false>(weights, work.rows, end - begin, x, call.value_dim - x, call.value_dim, output);
  }
}

void write_row(const ScoreContext& context, std::int64_t row, float largest, float sum, const float* from) {
  const AttentionCall& call = *context.call;
  const std::int64_t head = context.head(row), query = context.item->query_begin + context.query(row);
  float factor = 0, log_sum = minus_infinity;
  if (largest != minus_infinity) {
    const Denominator all = denominator_of(call, head, largest, sum);
    log_sum = all.largest + std::log(all.sum);
    factor = all.factor * (context.job->kept_factor / all.sum);
  }
  if (call.log_sum_exp != nullptr) call.log_sum_exp[query * call.query_heads + head] = log_sum;
  float* to = call.output.data + query * call.output.row_stride + head * call.output.head_stride;
  for (std::int64_t x = 0; x < call.value_dim; ++x) to[x] = factor == 0 ? 0 : from[x] * factor;
}

// Statistics of a row from its scores: those of part p are at scores + p * part_step, and are overwritten.
void observe_decoded(const ScoreContext& context, std::int64_t row, float* scores, std::int64_t part_step,
                     float largest, float sum, float* scratch) {
  Observed seen;
  Carver carver{scratch};
  start_observing(*context.job->statistics, 1, carver, seen);
  if (!observes(seen, context, row)) return;
  for (std::int64_t key = 0; key < context.item->keys; key += block_keys) {
    const std::int64_t count = smaller(block_keys, context.item->keys - key);
    enter_block(context, key, count, seen);
    float* s = scores + key / decode_part_keys * part_step + key % decode_part_keys;
    float most = largest, total = 0;
    soften_observed(seen, context, {row, 1, key, count, 0, rounded_up(count, lanes), false}, 0, s, false,
                    {&most, &total, nullptr, 0});
  }
  write_statistics(seen, context, row, 0, largest, sum);
}

void DecodeForward(const AttentionJob& job, const AttentionUnit& unit, float* scratch) {
  Decode work;
  prepare_decode(job, unit, scratch, work);
  PartResult result;
  run_part(work, 0, work.context.item->keys, result);
  for (std::int64_t r = 0; r < unit.row_end - unit.row_begin; ++r) {
    write_row(work.context, unit.row_begin + r, result.largest[r], result.sum[r],
              work.outputs + r * work.value_columns);
    if (job.statistics != nullptr)
      observe_decoded(work.context, unit.row_begin + r, work.kept + r * part_stride, 0, result.largest[r],
                      result.sum[r], work.kept + decode_rows * part_stride);
  }
}

void DecodePart(const AttentionJob& job, const AttentionUnit& unit, std::int64_t part, float* parts, float* scratch) {
  Decode work;
  prepare_decode(job, unit, scratch, work);
  PartResult result;
  const std::int64_t first = part * decode_part_keys, rows = unit.row_end - unit.row_begin;
  run_part(work, first, smaller(decode_part_keys, work.context.item->keys - first), result);
  for (std::int64_t r = 0; r < rows; ++r) {
    float* to = parts + (part * rows + r) * decode_part_floats(*job.call);
    for (std::int64_t x = 0; x < job.call->value_dim; ++x) to[x] = work.outputs[r * work.value_columns + x];
    to[job.call->value_dim] = result.largest[r];
    to[job.call->value_dim + 1] = result.sum[r];
    for (std::int64_t j = 0; work.kept != nullptr && j < decode_part_keys; ++j)
      to[job.call->value_dim + 2 + j] = work.kept[r * part_stride + j];
  }
}

void DecodeMerge(const AttentionJob& job, const AttentionUnit& unit, std::int64_t part_count, float* parts,
                 float* scratch) {
  const std::int64_t width = job.call->value_dim, rows = unit.row_end - unit.row_begin,
                     step = decode_part_floats(*job.call);
  ScoreContext context;
  context.job = &job;
  context.call = job.call;
  context.item = &job.call->items[static_cast<std::size_t>(unit.item)];
  context.unit = &unit;
  for (std::int64_t r = 0; r < rows; ++r) {
    float* all = parts + r * step;  // the first part's result receives the others
    for (std::int64_t part = 1; part < part_count; ++part) {
      const float* next = parts + (part * rows + r) * step;
      if (next[width] == minus_infinity) continue;
      const float largest = all[width] > next[width] ? all[width] : next[width];
      const float before = all[width] == minus_infinity ? 0 : exp2_of((all[width] - largest) * log2_e),
                  after = exp2_of((next[width] - largest) * log2_e);
      for (std::int64_t x = 0; x < width; ++x) all[x] = all[x] * before + next[x] * after;
      all[width + 1] = all[width + 1] * before + next[width + 1] * after;
      all[width] = largest;
    }
    write_row(context, unit.row_begin + r, all[width], all[width + 1], all);
    if (job.statistics != nullptr)
      observe_decoded(context, unit.row_begin + r, all + width + 2, rows * step, all[width], all[width + 1], scratch);
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace attention
}  // namespace attend
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace attend {
namespace attention {
HWY_EXPORT(DecodeScratch);
HWY_EXPORT(DecodeForward);
HWY_EXPORT(DecodePart);
HWY_EXPORT(DecodeMerge);
}  // namespace attention

std::int64_t decode_scratch(const AttentionCall& call) {
  using namespace attention;
  return HWY_DYNAMIC_DISPATCH(DecodeScratch)(call);
}
void decode_forward(const AttentionJob& job, const AttentionUnit& unit, float* scratch) {
  using namespace attention;
  HWY_DYNAMIC_DISPATCH(DecodeForward)(job, unit, scratch);
}
void decode_part(const AttentionJob& job, const AttentionUnit& unit, std::int64_t part, float* parts, float* scratch) {
  using namespace attention;
  HWY_DYNAMIC_DISPATCH(DecodePart)(job, unit, part, parts, scratch);
}
void decode_merge(const AttentionJob& job, const AttentionUnit& unit, std::int64_t part_count, float* parts,
                  float* scratch) {
  using namespace attention;
  HWY_DYNAMIC_DISPATCH(DecodeMerge)(job, unit, part_count, parts, scratch);
}
}  // namespace attend
#endif
