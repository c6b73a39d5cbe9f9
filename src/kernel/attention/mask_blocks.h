// What a mask says about a block of scores: nothing, everything, or look inside. Blocks answered "nothing" are skipped
// by every implementation, forward and backward; only "inside" blocks are looked at score by score.
#pragma once

#include <cstdint>

#include "attend/attention.h"

namespace attend {

enum class BlockView { nothing, everything, inside };

// Queries and keys are indices within the item; ends are exclusive.
struct ScoreBlock {
  std::int64_t head_begin, head_end;
  std::int64_t query_begin, query_end;
  std::int64_t key_begin, key_end;
};

struct KeyRange {
  std::int64_t begin, end;
};

// The mask of a call as one item sees it. Rules that leave a query an interval of keys (causal, window, lengths, prefix,
// with consecutive positions) are folded into four numbers; the others are asked element by element.
class ItemMask {
 public:
  ItemMask() = default;
  ItemMask(const AttentionCall& call, std::int64_t item);

  // May answer "inside" where a closer look would find one of the others; never the other way round.
  BlockView view(const ScoreBlock& block) const;

  // The keys left to a query by the folded rules, never outside 0..keys. Both ends never fall as the query grows.
  KeyRange interval(std::int64_t query) const {
    std::int64_t begin = query + first_offset_, end = query + end_offset_;
    if (end < prefix_end_) end = prefix_end_;
    if (end > key_end_) end = key_end_;
    if (begin < 0) begin = 0;
    if (begin > end) begin = end;
    return {begin, end};
  }

  // Whether some rule is not folded, so that visible() must be asked as well as interval().
  bool has_element_rules() const { return element_rules_; }

  // Writes 1 where every element rule lets `query` see keys [key_begin, key_end), else 0.
  void visible(std::int64_t head, std::int64_t query, std::int64_t key_begin, std::int64_t key_end,
               std::uint8_t* out) const;

 private:
  bool folded(const MaskRule& rule) const;

  const AttentionCall* call_ = nullptr;
  const AttentionItem* item_ = nullptr;
  std::int64_t index_ = 0;
  // Key range of query i: [i + first_offset_, min(key_end_, max(i + end_offset_, prefix_end_))).
  std::int64_t first_offset_ = 0, end_offset_ = 0, prefix_end_ = 0, key_end_ = 0;
  bool element_rules_ = false;
};

// The absolute positions of a query and a key of an item.
inline std::int64_t query_position(const AttentionItem& item, std::int64_t query) {
  return item.query_positions != nullptr ? item.query_positions[query] : item.query_position + query;
}
inline std::int64_t key_position(const AttentionItem& item, std::int64_t key) {
  return item.key_positions != nullptr ? item.key_positions[key] : item.key_position + key;
}
inline bool consecutive(const AttentionItem& item) {
  return item.query_positions == nullptr && item.key_positions == nullptr;
}

// ---- Edits: which queries and keys one names. ---------------------------------------------------------------------
inline bool names_position(std::int64_t first, std::int64_t end, std::int64_t position) {
  return first == -1 || (position >= first && position < (end == 0 ? first + 1 : end));
}
inline bool names_query(const ScoreEdit& edit, const AttentionItem& item, std::int64_t query) {
  return names_position(edit.query, edit.query_end, query_position(item, query));
}
inline bool names_key(const ScoreEdit& edit, const AttentionItem& item, std::int64_t query, std::int64_t key) {
  const std::int64_t at = key_position(item, key);
  return names_position(edit.key, edit.key_end, at) &&
         (edit.min_distance == ScoreEdit::any_distance || query_position(item, query) - at >= edit.min_distance);
}
// Of keys [begin, end), an interval outside which the edit names none; exact where key positions are consecutive.
inline KeyRange named_keys(const ScoreEdit& edit, const AttentionItem& item, std::int64_t query, std::int64_t begin,
                           std::int64_t end) {
  if (item.key_positions != nullptr) return {begin, end};
  if (edit.key != -1) {
    const std::int64_t first = edit.key - item.key_position;
    if (first > begin) begin = first;
    if (edit.key_end == 0 && first + 1 < end) end = first + 1;
    if (edit.key_end != 0 && edit.key_end - item.key_position < end) end = edit.key_end - item.key_position;
  }
  if (edit.min_distance != ScoreEdit::any_distance) {
    const std::int64_t last = query_position(item, query) - edit.min_distance - item.key_position;
    if (last + 1 < end) end = last + 1;
  }
  if (begin > end) begin = end;
  return {begin, end};
}

}  // namespace attend
