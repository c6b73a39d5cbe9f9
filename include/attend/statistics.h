// Statistics of attention, asked of a run by a probe: what the rows of chosen heads look at, gathered in the fused pass,
// with memory linear in rows and keys; and enough to rebuild any part of the matrices later.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <tuple>
#include <vector>

#include "attend/attention.h"
#include "attend/ops.h"
#include "attend/probe.h"
#include "attend/tensor.h"

namespace attend {

// What to tell of one attention; see AttentionStatistics for what each means.
struct StatisticsRequest {
  std::vector<std::int32_t> heads;  // query heads, rising; empty: all
  bool entropy = true, distance = true, first = true, self = true, previous = true, sink = false;
  std::int64_t top = 0;    // largest keys a row, at most most_top_keys
  std::int64_t lists = 0;  // of spans
  // KeySpan::item is an item's number (Visit::number); spans of numbers that are not in the batch count for nothing.
  std::vector<KeySpan> spans;
};

// Statistics of one attention in one run. Rows are those of the batch, or the new ones when a run goes on after a cache;
// H is the number of heads chosen. What was not asked for is undefined or empty.
struct StatisticsResult {
  std::vector<std::int32_t> heads;
  std::int64_t top = 0, lists = 0;
  Tensor entropy, distance, first, self, previous, sink;  // [rows, H]
  Tensor list_mass;                                       // [rows, H * lists]
  std::vector<std::int32_t> top_keys;                     // [rows, H, top]: indices of keys of the row's item, -1: none
  Tensor top_weights;                                     // [rows, H * top]
  Tensor log_sum_exp;                                     // [rows, query heads]
};

// What an attention was computed from. `weights` and `scores` rebuild any part of one item's and head's matrix
// [queries, keys], at a cost in proportion to it.
struct AttentionRecord {
  Tensor query, key, log_sum_exp;         // query and key as attention read them, rotated where positions are rotary
  AttentionInput input;                   // head sizes, items, mask, rules, edits
  std::shared_ptr<const void> positions;  // owns what the items of a copy point to

  Tensor weights(std::int64_t item, std::int64_t head, std::int64_t query_begin, std::int64_t query_end,
                 std::int64_t key_begin, std::int64_t key_end) const;
  Tensor scores(std::int64_t item, std::int64_t head, std::int64_t query_begin, std::int64_t query_end,
                std::int64_t key_begin, std::int64_t key_end) const;
  // A copy that outlives the run: with numbers of its own, its keys gathered from the cache's pages, if they were in pages. What
  // a mask rule or bias of the caller points to must outlive the copy.
  AttentionRecord kept() const;
};

// What a probe is shown. The record lives as long as the visit.
struct StatisticsVisit {
  Visit visit;  // its site's point is weights
  const StatisticsResult& result;
  const AttentionRecord& record;
};

// Keeps the statistics of attentions it was told to ask. One result a run: a decoding step against caches is a run of its
// own, with a row for each item.
class StatisticsRecorder : public Probe {
 public:
  // Asks this attention (part self or cross); or with `everywhere`, all that were not named.
  void ask(StackKind stack, int layer, Part part, StatisticsRequest request) {
    requests_[{stack, layer, part}] = std::move(request);
  }
  void ask_everywhere(StatisticsRequest request) { everywhere_ = std::move(request); }
  // Also keeps records, so that parts of the matrices can be rebuilt: query and key, and the keys of the cache at each step.
  void keep_records() { keeps_records_ = true; }

  struct Run {
    StatisticsResult result;
    std::optional<AttentionRecord> record;
    std::vector<std::int64_t> offsets, first_positions, item_numbers;  // as in Visit
  };
  // Runs of an attention, the first one first. Throws Error(argument) naming what was recorded.
  const std::vector<Run>& runs(StackKind stack, int layer, Part part) const;
  const StatisticsResult& result(StackKind stack, int layer, Part part) const {
    return runs(stack, layer, part).back().result;
  }
  bool has(StackKind stack, int layer, Part part) const { return runs_.contains({stack, layer, part}); }
  void clear() { runs_.clear(); }

  bool wants(const Site&) const override { return false; }
  void visit(const Visit&, Tensor&) override {}
  std::optional<StatisticsRequest> statistics(StackKind stack, int layer, Part part) const override;
  void visit_statistics(const StatisticsVisit& visit) override;

 private:
  using Place = std::tuple<StackKind, int, Part>;
  std::map<Place, StatisticsRequest> requests_;
  std::optional<StatisticsRequest> everywhere_;
  std::map<Place, std::vector<Run>> runs_;
  bool keeps_records_ = false;
};

// A request that covers several; what one of them asked for is taken from the result by part_of.
StatisticsRequest united(std::span<const StatisticsRequest> requests);
StatisticsResult part_of(const StatisticsResult& result, std::span<const StatisticsRequest> requests,
                         std::size_t index);

}  // namespace attend
