#include "kernel/attention/mask_blocks.h"

#include <algorithm>
#include <limits>

namespace attend {
namespace {

// Far enough to leave every key visible, near enough that adding an index cannot overflow.
constexpr std::int64_t far_away = std::numeric_limits<std::int64_t>::max() / 4;

struct Span {
  std::int64_t low, high;
};

Span query_span(const AttentionItem& item, const ScoreBlock& block) {
  if (item.query_positions == nullptr)
    return {item.query_position + block.query_begin, item.query_position + block.query_end - 1};
  const auto [low, high] =
      std::minmax_element(item.query_positions + block.query_begin, item.query_positions + block.query_end);
  return {*low, *high};
}

Span key_span(const AttentionItem& item, const ScoreBlock& block) {
  if (item.key_positions == nullptr)
    return {item.key_position + block.key_begin, item.key_position + block.key_end - 1};
  const auto [low, high] =
      std::minmax_element(item.key_positions + block.key_begin, item.key_positions + block.key_end);
  return {*low, *high};
}

// Each rule answers for a block. `item` is the item, `index` its number in the call.
struct Where {
  const AttentionItem& item;
  std::int64_t index;
};

BlockView between(bool nothing, bool everything) {
  return nothing ? BlockView::nothing : everything ? BlockView::everything : BlockView::inside;
}

BlockView view_of(const CausalRule&, const Where& where, const ScoreBlock& block) {
  const Span queries = query_span(where.item, block), keys = key_span(where.item, block);
  return between(keys.low > queries.high, keys.high <= queries.low);
}

BlockView view_of(const WindowRule& rule, const Where& where, const ScoreBlock& block) {
  const Span queries = query_span(where.item, block), keys = key_span(where.item, block);
  const std::int64_t before = std::min(rule.before, far_away), after = std::min(rule.after, far_away);
  return between(keys.high < queries.low - before || keys.low > queries.high + after,
                 keys.low >= queries.high - before && keys.high <= queries.low + after);
}

BlockView view_of(const KeyLengthsRule& rule, const Where& where, const ScoreBlock& block) {
  const std::int64_t length = rule.lengths[static_cast<std::size_t>(where.index)];
  return between(block.key_begin >= length, block.key_end <= length);
}

BlockView view_of(const PrefixRule& rule, const Where& where, const ScoreBlock& block) {
  const std::int64_t length = rule.lengths[static_cast<std::size_t>(where.index)];
  const Span queries = query_span(where.item, block), keys = key_span(where.item, block);
  return between(keys.low > queries.high && keys.low >= length, keys.high <= queries.low || keys.high < length);
}

std::int64_t document_row(const AttentionItem& item, std::int64_t key) {
  return item.key_pages != nullptr ? key : item.key_begin + key;
}

BlockView view_of(const DocumentRule& rule, const Where& where, const ScoreBlock& block) {
  const std::int32_t* queries = rule.query_documents.data() + where.item.query_begin;
  const std::int32_t* keys = rule.key_documents.data() + document_row(where.item, 0);
  const auto [query_low, query_high] = std::minmax_element(queries + block.query_begin, queries + block.query_end);
  const auto [key_low, key_high] = std::minmax_element(keys + block.key_begin, keys + block.key_end);
  return between(*query_high < *key_low || *key_high < *query_low,
                 *query_low == *query_high && *key_low == *key_high && *query_low == *key_low);
}

bool allows(const BlockRule& rule, std::int64_t query, std::int64_t key) {
  if (query < 0 || key < 0) return false;
  const std::int64_t row = query / rule.block, column = key / rule.block;
  const std::int64_t at = row * rule.columns + column;
  return column < rule.columns && at < static_cast<std::int64_t>(rule.allowed.size()) &&
         rule.allowed[static_cast<std::size_t>(at)] != 0;
}

BlockView view_of(const BlockRule& rule, const Where& where, const ScoreBlock& block) {
  const Span queries = query_span(where.item, block), keys = key_span(where.item, block);
  bool some = false, all = true;
  const auto next = [&](std::int64_t position) {  // first position of the next cell
    return position < 0 ? 0 : (position / rule.block + 1) * rule.block;
  };
  for (std::int64_t query = queries.low; query <= queries.high; query = next(query))
    for (std::int64_t key = keys.low; key <= keys.high; key = next(key)) {
      const bool seen = allows(rule, query, key);
      some |= seen;
      all &= seen;
      if (some && !all) return BlockView::inside;
    }
  return between(!some, all);
}

BlockView view_of(const DenseRule& rule, const Where& where, const ScoreBlock& block) {
  bool some = false, all = true;
  for (std::int64_t head = block.head_begin; head < block.head_end; ++head) {
    for (std::int64_t query = block.query_begin; query < block.query_end; ++query) {
      const std::uint8_t* row =
          rule.allowed + where.index * rule.item_stride + head * rule.head_stride + query * rule.query_stride;
      for (std::int64_t key = block.key_begin; key < block.key_end; ++key) {
        const bool seen = row[key * rule.key_stride] != 0;
        some |= seen;
        all &= seen;
      }
      if (some && !all) return BlockView::inside;
      if (rule.query_stride == 0) break;
    }
    if (rule.head_stride == 0) break;
  }
  return between(!some, all);
}

// Each rule answers for one score.
bool sees(const CausalRule&, const Where& where, std::int64_t, std::int64_t query, std::int64_t key) {
  return key_position(where.item, key) <= query_position(where.item, query);
}
bool sees(const WindowRule& rule, const Where& where, std::int64_t, std::int64_t query, std::int64_t key) {
  const std::int64_t distance = key_position(where.item, key) - query_position(where.item, query);
  return -rule.before <= distance && distance <= rule.after;
}
bool sees(const KeyLengthsRule& rule, const Where& where, std::int64_t, std::int64_t, std::int64_t key) {
  return key < rule.lengths[static_cast<std::size_t>(where.index)];
}
bool sees(const PrefixRule& rule, const Where& where, std::int64_t, std::int64_t query, std::int64_t key) {
  const std::int64_t position = key_position(where.item, key);
  return position <= query_position(where.item, query) ||
         position < rule.lengths[static_cast<std::size_t>(where.index)];
}
bool sees(const DocumentRule& rule, const Where& where, std::int64_t, std::int64_t query, std::int64_t key) {
  return rule.query_documents[static_cast<std::size_t>(where.item.query_begin + query)] ==
         rule.key_documents[static_cast<std::size_t>(document_row(where.item, key))];
}
bool sees(const BlockRule& rule, const Where& where, std::int64_t, std::int64_t query, std::int64_t key) {
  return allows(rule, query_position(where.item, query), key_position(where.item, key));
}
bool sees(const DenseRule& rule, const Where& where, std::int64_t head, std::int64_t query, std::int64_t key) {
  return rule.allowed[where.index * rule.item_stride + head * rule.head_stride + query * rule.query_stride +
                      key * rule.key_stride] != 0;
}

}  // namespace

bool ItemMask::folded(const MaskRule& rule) const {
  if (std::holds_alternative<KeyLengthsRule>(rule)) return true;
  if (!consecutive(*item_)) return false;
  if (std::holds_alternative<CausalRule>(rule) || std::holds_alternative<WindowRule>(rule)) return true;
  // The largest of two ends folds only when no other rule has set one of them.
  return std::holds_alternative<PrefixRule>(rule) && call_->mask.size() == 1;
}

ItemMask::ItemMask(const AttentionCall& call, std::int64_t item)
    : call_(&call), item_(&call.items[static_cast<std::size_t>(item)]), index_(item) {
  first_offset_ = -far_away;
  end_offset_ = far_away;
  key_end_ = item_->keys;
  for (const MaskRule& rule : call.mask) {
    if (!folded(rule)) {
      element_rules_ = true;
      continue;
    }
    // Key index - query index where both have the same position.
    const std::int64_t same = item_->query_position - item_->key_position;
    if (std::holds_alternative<CausalRule>(rule)) {
      end_offset_ = std::min(end_offset_, same + 1);
    } else if (const auto* window = std::get_if<WindowRule>(&rule)) {
      first_offset_ = std::max(first_offset_, same - std::min(window->before, far_away));
      end_offset_ = std::min(end_offset_, same + std::min(window->after, far_away) + 1);
    } else if (const auto* lengths = std::get_if<KeyLengthsRule>(&rule)) {
      key_end_ = std::min(key_end_, std::max<std::int64_t>(lengths->lengths[static_cast<std::size_t>(index_)], 0));
    } else if (const auto* prefix = std::get_if<PrefixRule>(&rule)) {
      end_offset_ = std::min(end_offset_, same + 1);
      prefix_end_ = prefix->lengths[static_cast<std::size_t>(index_)] - item_->key_position;
    }
  }
}

BlockView ItemMask::view(const ScoreBlock& block) const {
  const KeyRange first = interval(block.query_begin), last = interval(block.query_end - 1);
  if (block.key_begin >= last.end || block.key_end <= first.begin) return BlockView::nothing;
  bool all = block.key_end <= first.end && block.key_begin >= last.begin;
  if (element_rules_) {
    for (const MaskRule& rule : call_->mask) {
      if (folded(rule)) continue;
      const BlockView answer = std::visit(
          [&](const auto& known) {
            return view_of(known, Where{*item_, index_}, block);
          },
          rule);
      if (answer == BlockView::nothing) return BlockView::nothing;
      all &= answer == BlockView::everything;
    }
  }
  return all ? BlockView::everything : BlockView::inside;
}

void ItemMask::visible(std::int64_t head, std::int64_t query, std::int64_t key_begin, std::int64_t key_end,
                       std::uint8_t* out) const {
  std::fill(out, out + (key_end - key_begin), std::uint8_t{1});
  for (const MaskRule& rule : call_->mask) {
    if (folded(rule)) continue;
    std::visit(
        [&](const auto& known) {
          for (std::int64_t key = key_begin; key < key_end; ++key)
            out[key - key_begin] &= static_cast<std::uint8_t>(sees(known, Where{*item_, index_}, head, query, key));
        },
        rule);
  }
}

}  // namespace attend
