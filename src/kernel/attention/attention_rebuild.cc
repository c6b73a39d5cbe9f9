// Parts of the matrix of scores or weights, rebuilt from query, key and log-sum-exp with the arithmetic of the tiled pass.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernel/attention/attention_rebuild.cc"
#include "hwy/foreach_target.h"  // IWYU pragma: keep

#include <cmath>

#include "hwy/highway.h"
#include "kernel/attention/attention_plan.h"
#include "kernel/attention/attention_scores-inl.h"
#include "kernel/attention/attention_tile-inl.h"

HWY_BEFORE_NAMESPACE();
namespace attend {
namespace attention {
namespace HWY_NAMESPACE {

std::int64_t RebuildScratch(const AttentionCall& call) {
  return (block_rows + block_keys + 1) * call.head_dim + block_rows * score_stride + block_keys + static_cast<std::int64_t>(call.edits.size()) +
         (call.rules.relative.table != nullptr ? rounded_up(block_keys + block_rows + 1, 16) : 0) + 16 * 16;
}

// weights[j] = exp(s[j] - log_sum), written where the row has keys; s has whole vectors.
void write_weights(float* HWY_RESTRICT s, std::int64_t begin, std::int64_t end, float log_sum, float* HWY_RESTRICT weights) {
  if (log_sum == minus_infinity) return;
  const Tag d;
  const Vector shift = hn::Set(d, log_sum), log2 = hn::Set(d, log2_e);
  for (std::int64_t j = begin; j < end; j += lanes)  // the difference first: it is exact where weights are large
    hn::StoreU(exp2_of(hn::Mul(hn::Sub(hn::LoadU(d, s + j), shift), log2)), d, s + j);
  for (std::int64_t j = begin; j < end; ++j) weights[j] = s[j];
}

void RebuildWeights(const AttentionJob& job, const WeightsTile& tile, float* scratch) {
  const AttentionCall& call = *job.call;
  ScoreContext context;
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
  float* queries = carver.take(block_rows * call.head_dim);
  float* packed = carver.take(block_keys * call.head_dim);
  float* scores = carver.take(block_rows * score_stride);
  context.bytes = reinterpret_cast<std::uint8_t*>(carver.take(block_keys / 4));
  float* zeros = carver.take(call.head_dim);
  for (std::int64_t x = 0; x < call.head_dim; ++x) zeros[x] = 0;
  float* edits = carver.take(static_cast<std::int64_t>(call.edits.size()));
  if (!call.edits.empty()) find_edits(context, edits);
  float* relative = carver.take(0);

  const std::int64_t keys = tile.key_end - tile.key_begin;
  bool ready = false;
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
    if (!ready) pack_keys(context, tile.key_begin, keys, zeros, packed);
    ready = true;
    if (call.rules.relative.table != nullptr && consecutive(*context.item)) lay_out_relative(context, relative, tile.key_begin, tile.key_end);
    pack_queries(context, query, rows, zeros, queries);
    block_of_scores(context, at, queries, packed, scores);
    for (std::int64_t r = 0; r < rows; ++r) {
      float* s = scores + r * score_stride;
      const std::int64_t end = smaller(at.end, keys);
      if (tile.scores != nullptr)
        for (std::int64_t j = at.begin; j < end; ++j) tile.scores[to + r * tile.row_stride + j] = s[j];
      const std::int64_t row = to + r * tile.row_stride;
      const float* log_sum = call.log_sum_exp + (context.item->query_begin + query + r) * call.query_heads + tile.head;
      if (tile.weights != nullptr) write_weights(s, at.begin, end, *log_sum, tile.weights + row);
      if (!context.locked) continue;
      for (const LockedScore& lock : locks_of(job, tile.item, tile.head, query + r).scores) {
        if (lock.key < tile.key_begin || lock.key >= tile.key_end) continue;
        if (tile.weights != nullptr) tile.weights[row + lock.key - tile.key_begin] = lock.weight;
        if (tile.scores != nullptr) tile.scores[row + lock.key - tile.key_begin] = std::log(lock.weight) + *log_sum;
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
