// Parts of the matrix of scores or weights, rebuilt from query, key and log-sum-exp with the arithmetic of the tiled pass.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernel/attention/attention_rebuild.cc"
#include "hwy/foreach_target.h"  // IWYU pragma: keep

#include <cmath>

#include "hwy/highway.h"
#include "kernel/attention/attention_plan.h"
#include "kernel/attention/attention_scores-inl.h"
#include "kernel/attention/attention_soften-inl.h"
#include "kernel/attention/attention_tile-inl.h"

HWY_BEFORE_NAMESPACE();
namespace attend {
namespace attention {
namespace HWY_NAMESPACE {

// A log-sum-exp beyond this is rounded by more than 1e-5: too coarse to give weights by itself.
constexpr float most_trusted = 128;

std::int64_t RebuildScratch(const AttentionCall& call) {
  return (block_rows + block_keys + 1) * call.head_dim + block_rows * score_stride + 2 * block_rows + block_keys +
         static_cast<std::int64_t>(call.edits.size()) +
         (call.rules.relative.table != nullptr ? rounded_up(block_keys + block_rows + 1, 16) : 0) + 16 * 16;
}

// weights[j] = exp(s[j] - log_sum), written where the row has keys; s has whole vectors.
void write_weights(float* HWY_RESTRICT s, std::int64_t begin, std::int64_t end, float log_sum,
                   float* HWY_RESTRICT weights) {
  if (log_sum == minus_infinity) return;
  const Tag d;
  const Vector shift = hn::Set(d, log_sum), log2 = hn::Set(d, log2_e);
  for (std::int64_t j = begin; j < end; j += lanes)  // the difference first: it is exact where weights are large
    hn::StoreU(exp2_of(hn::Mul(hn::Sub(hn::LoadU(d, s + j), shift), log2)), d, s + j);
  for (std::int64_t j = begin; j < end; ++j) weights[j] = s[j];
}

// Working memory of a tile.
struct Rebuild {
  ScoreContext context;
  float *queries, *packed, *scores, *relative, *largest, *sums;
  const float* zeros;
};

// Scores of the unit's rows to keys [key, key + keys), which are packed first unless they are the ones that lie there.
void lay_out_scores(Rebuild& work, const Rectangle& at, std::int64_t key, std::int64_t keys, bool packed) {
  if (!packed) pack_keys(work.context, key, keys, work.zeros, work.packed);
  if (work.context.call->rules.relative.table != nullptr && consecutive(*work.context.item))
    lay_out_relative(work.context, work.relative, key, key + keys);
  block_of_scores(work.context, at, work.queries, work.packed, work.scores);
}

bool is_trusted(float log_sum) { return !(std::abs(log_sum) > most_trusted) || std::isinf(log_sum); }

// The largest score of each row of the unit and the sum of exp(score - largest), from all keys.
void find_sums(Rebuild& work) {
  const AttentionUnit& unit = *work.context.unit;
  const std::int64_t rows = unit.row_end - unit.row_begin;
  for (std::int64_t r = 0; r < rows; ++r) {
    work.largest[r] = minus_infinity;
    work.sums[r] = 0;
  }
  for (std::int64_t key = 0; key < work.context.item->keys; key += block_keys) {
    const std::int64_t keys = smaller(block_keys, work.context.item->keys - key);
    Rectangle at;
    if (!find_rectangle(work.context, unit.row_begin, rows, key, keys, at)) continue;
    lay_out_scores(work, at, key, keys, false);
    for (std::int64_t r = 0; r < rows; ++r)
      soften_row(work.scores + r * score_stride, at.begin, at.end, false,
                 {work.largest + r, work.sums + r, nullptr, 0});
  }
}

// write_weights for a row whose log-sum-exp is not trusted.
void write_summed_weights(const Rebuild& work, const WeightsTile& tile, std::int64_t query, std::int64_t r,
                          const Rectangle& at, float* HWY_RESTRICT weights) {
  if (work.largest[r] == minus_infinity) return;
  const RowLocks locks = work.context.locked ? locks_of(*work.context.job, tile.item, tile.head, query) : RowLocks{};
  const Denominator all = denominator_of(*work.context.call, tile.head, work.largest[r], work.sums[r]);
  const float factor = all.factor * static_cast<float>(1 - locks.sum) / all.sum;
  const float* s = work.scores + r * score_stride;
  for (std::int64_t j = at.begin; j < smaller(at.end, at.keys); ++j)
    weights[j] = exp2_of((s[j] - work.largest[r]) * log2_e) * factor;
}

void RebuildWeights(const AttentionJob& job, const WeightsTile& tile, float* scratch) {
  const AttentionCall& call = *job.call;
  Rebuild work;
  ScoreContext& context = work.context;
  AttentionUnit unit;
  unit.item = static_cast<std::int32_t>(tile.item);
  unit.head_begin = static_cast<std::int32_t>(tile.head);
  unit.row_begin = tile.query_begin;
  unit.row_end = tile.query_end;
  context.job = &job;
  context.call = &call;
  context.item = &call.items[static_cast<std::size_t>(tile.item)];
  context.unit = &unit;
  context.mask = ItemMask(call, tile.item);
  Carver carver{scratch};
  work.queries = carver.take(block_rows * call.head_dim);
  work.packed = carver.take(block_keys * call.head_dim);
  work.scores = carver.take(block_rows * score_stride);
  work.largest = carver.take(block_rows);
  work.sums = carver.take(block_rows);
  context.bytes = reinterpret_cast<std::uint8_t*>(carver.take(block_keys / 4));
  float* zeros = carver.take(call.head_dim);
  for (std::int64_t x = 0; x < call.head_dim; ++x) zeros[x] = 0;
  work.zeros = zeros;
  float* edits = carver.take(static_cast<std::int64_t>(call.edits.size()));
  if (!call.edits.empty()) find_edits(context, edits);
  work.relative = carver.take(0);

  const std::int64_t keys = tile.key_end - tile.key_begin;
  bool packed = false;
  for (std::int64_t query = tile.query_begin; query < tile.query_end; query += block_rows) {
    const std::int64_t rows = smaller(block_rows, tile.query_end - query);
    const std::int64_t to = (query - tile.query_begin) * tile.row_stride;
    for (std::int64_t r = 0; r < rows; ++r)
      for (std::int64_t j = 0; j < keys; ++j) {
        if (tile.scores != nullptr) tile.scores[to + r * tile.row_stride + j] = minus_infinity;
        if (tile.weights != nullptr) tile.weights[to + r * tile.row_stride + j] = 0;
      }
    unit.row_begin = query;
    unit.row_end = query + rows;
    Rectangle at;
    if (!find_rectangle(context, query, rows, tile.key_begin, keys, at)) continue;
    pack_queries(context, query, rows, zeros, work.queries);
    const float* log_sums = call.log_sum_exp == nullptr
                                ? nullptr
                                : call.log_sum_exp + (context.item->query_begin + query) * call.query_heads + tile.head;
    bool summed = false;
    for (std::int64_t r = 0; tile.weights != nullptr && r < rows; ++r)
      summed = summed || !is_trusted(log_sums[r * call.query_heads]);
    if (summed) {
      find_sums(work);
      packed = false;
    }
    lay_out_scores(work, at, tile.key_begin, keys, packed);
    packed = true;
    for (std::int64_t r = 0; r < rows; ++r) {
      float* s = work.scores + r * score_stride;
      const std::int64_t end = smaller(at.end, keys);
      if (tile.scores != nullptr)
        for (std::int64_t j = at.begin; j < end; ++j) tile.scores[to + r * tile.row_stride + j] = s[j];
      const std::int64_t row = to + r * tile.row_stride;
      if (tile.weights != nullptr && is_trusted(log_sums[r * call.query_heads]))
        write_weights(s, at.begin, end, log_sums[r * call.query_heads], tile.weights + row);
      else if (tile.weights != nullptr) write_summed_weights(work, tile, query + r, r, at, tile.weights + row);
      if (!context.locked) continue;
      for (const LockedScore& lock : locks_of(job, tile.item, tile.head, query + r).scores) {
        if (lock.key < tile.key_begin || lock.key >= tile.key_end) continue;
        if (tile.weights != nullptr) tile.weights[row + lock.key - tile.key_begin] = lock.weight;
        if (tile.scores != nullptr)
          tile.scores[row + lock.key - tile.key_begin] = std::log(lock.weight) + log_sums[r * call.query_heads];
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
HWY_EXPORT(RebuildScratch);
HWY_EXPORT(RebuildWeights);
}  // namespace attention

std::int64_t rebuild_scratch(const AttentionCall& call) {
  using namespace attention;
  return HWY_DYNAMIC_DISPATCH(RebuildScratch)(call);
}
void rebuild_weights(const AttentionJob& job, const WeightsTile& tile, float* scratch) {
  using namespace attention;
  HWY_DYNAMIC_DISPATCH(RebuildWeights)(job, tile, scratch);
}
}  // namespace attend
#endif
