// What every implementation shares: a checked call with the numbers derived from it, and the units of work.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "attend/attention.h"

namespace attend {

struct StatisticsPlan;

// Rows of scores at a time, and keys at a time; blocks of keys start at multiples of their size.
inline constexpr std::int64_t block_rows = 48;
inline constexpr std::int64_t block_keys = 256;

// A call of at most this many query rows a key head is answered by the decode implementation.
inline constexpr std::int64_t decode_rows = 4;

// A visible score whose weight is locked; indices within the item.
struct LockedScore {
  std::int64_t item = 0, head = 0, query = 0, key = 0;
  float weight = 0;
};

// The locks of one row, by key, and their sum; a sum within lock_tolerance of 1 is 1.
inline constexpr double lock_tolerance = 1e-6;
struct RowLocks {
  std::span<const LockedScore> scores;
  double sum = 0;

  bool all() const { return sum >= 1; }  // nothing is left for the other keys
};

// A checked call and what follows from it.
struct AttentionJob {
  const AttentionCall* call = nullptr;
  std::int64_t group = 1;  // query heads a key head
  float scale = 0;
  bool plain_scores = true;      // no score rule beyond the scale and the sink
  std::uint32_t drop_below = 0;  // a weight is dropped when its 16 random bits are below this; 0: no dropout
  float kept_factor = 1;         // see kept_factor_of
  const StatisticsPlan* statistics = nullptr;  // null: none are asked for
  // Edits by item: list 0 is of those that name every item, list 1 + i of item i; each holds indices of call->edits in order.
  std::vector<std::int32_t> edit_order, edit_begins;
  std::vector<LockedScore> locks;  // by item, head, query, key

  std::span<const std::int32_t> edits_of(std::int64_t list) const {
    if (edit_begins.empty()) return {};
    const auto begin = static_cast<std::size_t>(edit_begins[static_cast<std::size_t>(list)]);
    return std::span(edit_order)
        .subspan(begin, static_cast<std::size_t>(edit_begins[static_cast<std::size_t>(list) + 1]) - begin);
  }
};

// Throws Error(argument) for locks that cannot be kept; see ScoreEdit.
AttentionJob make_job(const AttentionCall& call);
RowLocks locks_of(const AttentionJob& job, std::int64_t item, std::int64_t head, std::int64_t query);

enum class AttentionEntry { explicit_heads, decode, tiled };

// One task's smallest part: rows of one item asking with heads that share one key head. Row r of `head_count` heads is
// query r / head_count with head head_begin + r % head_count, so that neighbouring rows see almost the same keys.
struct AttentionUnit {
  AttentionEntry entry = AttentionEntry::tiled;
  std::int32_t item = 0;
  std::int32_t head_begin = 0, head_count = 1;
  std::int64_t row_begin = 0, row_end = 0;
};

// Whether scores of this item and head are asked for or edited.
bool asks_for_scores(const AttentionJob& job, std::int64_t item, std::int64_t head);
// Writes to `to` the indices of the edits, but locks, that may name a score of the unit, in order; returns how many.
std::int64_t edits_of_unit(const AttentionJob& job, const AttentionUnit& unit, std::int32_t* to);
// AttentionCall::edit_counts.
void count_edits(const AttentionCall& call, std::int64_t* counts);

// attention_check.cc: throw Error before anything is computed.
void check_forward(const AttentionCall& call);
void check_weights(const AttentionCall& forward, std::span<const WeightsTile> tiles);
void check_backward(const AttentionCall& forward, const AttentionGradients& gradients);

// The tiled, explicit and decode implementations. `scratch` holds at least the number of floats the first returns, is
// aligned to buffer_alignment and belongs to the calling worker.
std::int64_t tiled_scratch(const AttentionCall& call, std::int64_t most_rows);
void tiled_forward(const AttentionJob& job, const AttentionUnit& unit, float* scratch);
// Tiled, with edits, and then the matrices asked for, in a second pass over the same tiles.
void explicit_forward(const AttentionJob& job, const AttentionUnit& unit, float* scratch);

// Keys of a unit are split in parts of this many, whatever the machine and the threads; the parts are merged in order.
inline constexpr std::int64_t decode_part_keys = 512;
std::int64_t decode_scratch(const AttentionCall& call);
// Floats of one part's result for one row: value_dim sums, the largest score and the sum of weights; and the scores, when
// there are statistics to be made of them.
inline std::int64_t decode_part_floats(const AttentionCall& call) {
  return call.value_dim + 2 + (call.statistics != nullptr ? decode_part_keys : 0);
}
// Answers a unit whose keys fit one part.
void decode_forward(const AttentionJob& job, const AttentionUnit& unit, float* scratch);
// Answers part `part` of a longer unit into `parts` [parts, rows, decode_part_floats]; decode_merge joins them.
void decode_part(const AttentionJob& job, const AttentionUnit& unit, std::int64_t part, float* parts, float* scratch);
void decode_merge(const AttentionJob& job, const AttentionUnit& unit, std::int64_t part_count, float* parts,
                  float* scratch);

// Fills a tile of at most block_keys keys, row_stride given. `scratch` as above.
std::int64_t rebuild_scratch(const AttentionCall& call);
void rebuild_weights(const AttentionJob& job, const WeightsTile& tile, float* scratch);

// Backward of rows [unit.row_begin, unit.row_end) against keys [key_begin, key_end) of the unit's item. `want_query`
// adds to the query gradient, `want_key` to those of key, value, relative table and bias. Sums are taken in the same
// order whether one call does both or two calls do one each.
struct BackwardPart {
  AttentionUnit unit;
  std::int64_t key_begin = 0, key_end = 0;
  bool want_query = true, want_key = true;
};
// Keys of one backward block; BackwardPart::key_begin is a multiple of it.
inline constexpr std::int64_t backward_block_keys = 128;
std::int64_t backward_scratch(const AttentionCall& call, std::int64_t most_rows);
void backward_part(const AttentionJob& job, const AttentionGradients& gradients, const BackwardPart& part,
                   float* scratch);

}  // namespace attend
