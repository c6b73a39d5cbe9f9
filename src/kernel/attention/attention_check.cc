#include <algorithm>
#include <cmath>
#include <utility>

#include "attend/error.h"
#include "kernel/attention/attention_dropout.h"
#include "kernel/attention/attention_plan.h"
#include "kernel/attention/attention_statistics.h"
#include "kernel/attention/mask_blocks.h"

namespace attend {
namespace {

constexpr const char* here = "attention";

[[noreturn]] void refuse(ErrorKind kind, const std::string& what, const std::string& advice = {}) {
  throw Error(kind, here, what, advice);
}

void check_sizes(const AttentionCall& call) {
  if (call.query_heads <= 0 || call.key_heads <= 0 || call.head_dim <= 0 || call.value_dim <= 0)
    refuse(ErrorKind::shape, join("query_heads ", call.query_heads, ", key_heads ", call.key_heads, ", head_dim ",
                                  call.head_dim, ", value_dim ", call.value_dim, ", but all must be positive"));
  if (call.query_heads % call.key_heads != 0)
    refuse(ErrorKind::shape, join("query has ", call.query_heads, " heads and key has ", call.key_heads),
           "query heads must be a multiple of key heads");
}

// Whether [begin, begin + count) of one item reaches into the one before. Items usually come in order, so this is one
// pass; otherwise the ranges are sorted.
template <typename Begin, typename Count>
bool overlap(std::span<const AttentionItem> items, Begin begin, Count count) {
  std::int64_t end = 0;
  bool ordered = true;
  for (const AttentionItem& item : items) {
    if (count(item) == 0) continue;
    if (begin(item) < end) ordered = false;
    end = begin(item) + count(item);
  }
  if (ordered) return false;
  std::vector<std::pair<std::int64_t, std::int64_t>> ranges;
  for (const AttentionItem& item : items)
    if (count(item) > 0) ranges.emplace_back(begin(item), begin(item) + count(item));
  std::sort(ranges.begin(), ranges.end());
  for (std::size_t i = 1; i < ranges.size(); ++i)
    if (ranges[i].first < ranges[i - 1].second) return true;
  return false;
}

// What a call is checked for: everything, or only what scores come from.
enum class Wanted { output, scores };

void check_items(const AttentionCall& call, Wanted wanted) {
  bool some_queries = false, some_view_keys = false;
  for (std::size_t index = 0; index < call.items.size(); ++index) {
    const AttentionItem& item = call.items[index];
    if (item.query_begin < 0 || item.queries < 0 || item.key_begin < 0 || item.keys < 0)
      refuse(ErrorKind::shape,
             join("item ", index, " has query_begin ", item.query_begin, ", queries ", item.queries, ", key_begin ",
                  item.key_begin, ", keys ", item.keys, ", but none may be negative"));
    if (wanted == Wanted::output && (item.key_pages == nullptr) != (item.value_pages == nullptr))
      refuse(ErrorKind::argument, join("item ", index, " has pages for only one of key and value"),
             "set both or neither");
    if (item.key_pages != nullptr) {
      if (call.page_rows <= 0)
        refuse(ErrorKind::argument, join("item ", index, " has pages, but page_rows is ", call.page_rows));
      for (std::int64_t page = 0; page * call.page_rows < item.keys; ++page)
        if (item.key_pages[page] == nullptr || (wanted == Wanted::output && item.value_pages[page] == nullptr))
          refuse(ErrorKind::argument, join("item ", index, " page ", page, " of key or value is null"));
    }
    some_queries |= item.queries > 0;
    some_view_keys |= item.queries > 0 && item.keys > 0 && item.key_pages == nullptr;
  }
  if (some_queries && (call.query.data == nullptr || (wanted == Wanted::output && call.output.data == nullptr)))
    refuse(ErrorKind::argument, "query or output has no data");
  if (some_view_keys && (call.key.data == nullptr || (wanted == Wanted::output && call.value.data == nullptr)))
    refuse(ErrorKind::argument, "key or value has no data", "set the views, or pages for every item");
  if (overlap(
          call.items, [](const AttentionItem& item) { return item.query_begin; },
          [](const AttentionItem& item) { return item.queries; }))
    refuse(ErrorKind::argument, "two items share query rows", "give every item query rows of its own");
}

void check_mask_rule(const AttentionCall& call, const MaskRule& rule) {
  if (const auto* window = std::get_if<WindowRule>(&rule)) {
    if (window->before < 0 || window->after < 0)
      refuse(ErrorKind::argument,
             join("window before ", window->before, ", after ", window->after, ", but none may be negative"));
  } else if (const auto* lengths = std::get_if<KeyLengthsRule>(&rule)) {
    if (lengths->lengths.size() != call.items.size())
      refuse(ErrorKind::shape,
             join("key lengths has ", lengths->lengths.size(), " entries for ", call.items.size(), " items"));
  } else if (const auto* prefix = std::get_if<PrefixRule>(&rule)) {
    if (prefix->lengths.size() != call.items.size())
      refuse(ErrorKind::shape,
             join("prefix has ", prefix->lengths.size(), " entries for ", call.items.size(), " items"));
  } else if (const auto* documents = std::get_if<DocumentRule>(&rule)) {
    for (const AttentionItem& item : call.items) {
      const std::int64_t query_end = item.query_begin + item.queries;
      const std::int64_t key_end = item.key_pages != nullptr ? item.keys : item.key_begin + item.keys;
      if (static_cast<std::int64_t>(documents->query_documents.size()) < query_end ||
          static_cast<std::int64_t>(documents->key_documents.size()) < key_end)
        refuse(ErrorKind::shape,
               join("documents are given for ", documents->query_documents.size(), " queries and ",
                    documents->key_documents.size(), " keys, but an item reaches to ", query_end, " and ", key_end));
    }
  } else if (const auto* blocks = std::get_if<BlockRule>(&rule)) {
    if (blocks->block <= 0 || blocks->columns <= 0 ||
        blocks->allowed.size() % static_cast<std::size_t>(blocks->columns) != 0)
      refuse(ErrorKind::shape,
             join("block rule has block ", blocks->block, ", columns ", blocks->columns, " and ",
                  blocks->allowed.size(), " cells"),
             "block and columns must be positive, cells rows * columns");
  } else if (const auto* dense = std::get_if<DenseRule>(&rule)) {
    if (dense->allowed == nullptr) refuse(ErrorKind::argument, "dense rule has no data");
  }
}

void check_rules(const AttentionCall& call) {
  const ScoreRules& rules = call.rules;
  if (!std::isfinite(rules.scale)) refuse(ErrorKind::numeric, join("scale is ", rules.scale));
  if (!std::isfinite(rules.soft_cap) || rules.soft_cap < 0)
    refuse(ErrorKind::argument, join("soft cap is ", rules.soft_cap), "0 for none, or a positive number");
  if (!rules.slopes.empty() && static_cast<std::int64_t>(rules.slopes.size()) != call.query_heads)
    refuse(ErrorKind::shape, join(rules.slopes.size(), " slopes for ", call.query_heads, " query heads"));
  if (!rules.sinks.empty() && static_cast<std::int64_t>(rules.sinks.size()) != call.query_heads)
    refuse(ErrorKind::shape, join(rules.sinks.size(), " sinks for ", call.query_heads, " query heads"));
  if (rules.relative.table != nullptr) {
    if (rules.relative.buckets.empty()) refuse(ErrorKind::argument, "relative bias has a table but no buckets");
    for (std::int32_t bucket : rules.relative.buckets)
      if (bucket < 0) refuse(ErrorKind::argument, join("relative bias has bucket ", bucket));
  }
  if (!(call.dropout.probability >= 0 && call.dropout.probability < 1))
    refuse(ErrorKind::argument, join("dropout probability is ", call.dropout.probability), "it must be in [0, 1)");
}

void check_requests(const AttentionCall& call) {
  const auto items = static_cast<std::int64_t>(call.items.size());
  for (const MatrixRequest& request : call.matrices)
    if (request.item < 0 || request.item >= items || request.head < 0 || request.head >= call.query_heads)
      refuse(ErrorKind::argument, join("a matrix is asked for item ", request.item, " head ", request.head, " of ",
                                       items, " items and ", call.query_heads, " heads"));
  for (const ScoreEdit& edit : call.edits) {
    if (edit.item < -1 || edit.item >= items || edit.head < -1 || edit.head >= call.query_heads || edit.query < -1 ||
        edit.key < -1)
      refuse(ErrorKind::argument, join("an edit names item ", edit.item, " head ", edit.head, " query ", edit.query,
                                       " key ", edit.key, " of ", items, " items and ", call.query_heads, " heads"));
    if ((edit.query_end != 0 && edit.query_end <= edit.query) || (edit.key_end != 0 && edit.key_end <= edit.key))
      refuse(ErrorKind::argument,
             join("an edit names queries ", edit.query, " to ", edit.query_end, " and keys ", edit.key, " to ",
                  edit.key_end, ", but an end lies before its begin"),
             "ends are exclusive; 0 is one alone");
    if (edit.kind != ScoreEdit::Kind::forbid && std::isnan(edit.value))
      refuse(ErrorKind::numeric, "an edit has value NaN");
    if (edit.kind == ScoreEdit::Kind::lock && !(edit.value >= 0 && edit.value <= 1))
      refuse(ErrorKind::argument, join("an edit locks a weight to ", edit.value), "weights lie between 0 and 1");
  }
}

// Edits that name an item, in the order of the call.
template <typename Use>
void for_edits_of_item(const AttentionJob& job, std::int64_t item, const Use& use) {
  const auto every = job.edits_of(0), own = job.edits_of(item + 1);
  std::size_t i = 0, j = 0;
  while (i < every.size() || j < own.size()) {
    const bool first = j == own.size() || (i < every.size() && every[i] < own[j]);
    const std::int32_t index = first ? every[i++] : own[j++];
    use(index, job.call->edits[static_cast<std::size_t>(index)]);
  }
}

void index_edits(AttentionJob& job) {
  const auto edits = job.call->edits;
  if (edits.empty()) return;
  job.edit_begins.assign(job.call->items.size() + 2, 0);
  for (const ScoreEdit& edit : edits) ++job.edit_begins[static_cast<std::size_t>(edit.item + 1)];
  std::int32_t sum = 0;
  for (std::int32_t& begin : job.edit_begins) begin = std::exchange(sum, sum + begin);
  job.edit_order.resize(edits.size());
  std::vector<std::int32_t> next = job.edit_begins;
  for (std::size_t i = 0; i < edits.size(); ++i)
    job.edit_order[static_cast<std::size_t>(next[static_cast<std::size_t>(edits[i].item + 1)]++)] =
        static_cast<std::int32_t>(i);
}

// What the mask lets each query of an item see, row by row.
class VisibleKeys {
 public:
  VisibleKeys(const AttentionCall& call, std::int64_t item)
      : mask_(call, item), keys_(call.items[static_cast<std::size_t>(item)].keys) {}

  KeyRange look(std::int64_t head, std::int64_t query) {
    const KeyRange seen = mask_.interval(query);
    bytes_.assign(static_cast<std::size_t>(keys_), 0);
    if (mask_.has_element_rules() && seen.begin < seen.end) {
      mask_.visible(head, query, seen.begin, seen.end, bytes_.data() + seen.begin);
    } else {
      std::fill(bytes_.begin() + seen.begin, bytes_.begin() + seen.end, std::uint8_t{1});
    }
    return seen;
  }
  bool by_element() const { return mask_.has_element_rules(); }
  KeyRange interval(std::int64_t query) const { return mask_.interval(query); }
  std::uint8_t& operator[](std::int64_t key) { return bytes_[static_cast<std::size_t>(key)]; }

 private:
  ItemMask mask_;
  std::int64_t keys_;
  std::vector<std::uint8_t> bytes_;
};

template <typename Use>
void for_named_keys(const ScoreEdit& edit, const AttentionItem& item, std::int64_t query, KeyRange within,
                    const Use& use) {
  const KeyRange range = named_keys(edit, item, query, within.begin, within.end);
  for (std::int64_t key = range.begin; key < range.end; ++key)
    if (item.key_positions == nullptr || names_key(edit, item, query, key)) use(key);
}

// The locks of one row; throws where they cannot be kept.
void lock_row(AttentionJob& job, std::int64_t item_index, std::int64_t head, std::int64_t query,
              const std::vector<const ScoreEdit*>& edits, VisibleKeys& visible) {
  const AttentionCall& call = *job.call;
  const AttentionItem& item = call.items[static_cast<std::size_t>(item_index)];
  const bool named = std::any_of(edits.begin(), edits.end(), [&](const ScoreEdit* edit) {
    return edit->kind == ScoreEdit::Kind::lock && names_query(*edit, item, query);
  });
  if (!named) return;
  const KeyRange seen = visible.look(head, query);
  for (const ScoreEdit* edit : edits)
    if (edit->kind == ScoreEdit::Kind::forbid && names_query(*edit, item, query))
      for_named_keys(*edit, item, query, seen, [&](std::int64_t key) { visible[key] = 0; });
  const std::size_t first = job.locks.size();
  for (const ScoreEdit* edit : edits)
    if (edit->kind == ScoreEdit::Kind::lock && names_query(*edit, item, query))
      for_named_keys(*edit, item, query, seen, [&](std::int64_t key) {
        if (visible[key]) job.locks.push_back({item_index, head, query, key, edit->value});
      });
  const auto begin = job.locks.begin() + static_cast<std::ptrdiff_t>(first);
  std::stable_sort(begin, job.locks.end(), [](const LockedScore& a, const LockedScore& b) { return a.key < b.key; });
  // Of several locks of a score the last stays.
  std::size_t kept = first;
  for (std::size_t i = first; i < job.locks.size(); ++i) {
    if (i + 1 < job.locks.size() && job.locks[i + 1].key == job.locks[i].key) continue;
    job.locks[kept++] = job.locks[i];
  }
  job.locks.resize(kept);
  if (kept == first) return;
  double sum = 0;
  for (std::size_t i = first; i < kept; ++i) sum += static_cast<double>(job.locks[i].weight);
  const auto where = [&] {
    return join("item ", item_index, " head ", head, " query position ", query_position(item, query));
  };
  if (sum > 1 + lock_tolerance) {
    std::string keys;
    const std::size_t listed_keys = std::min<std::size_t>(kept - first, 8);
    for (std::size_t i = first; i < first + listed_keys; ++i) keys += join(i == first ? "" : ", ", job.locks[i].key);
    if (listed_keys < kept - first) keys += ", ...";
    refuse(ErrorKind::argument, join(where(), ": the locked weights of keys ", keys, " sum to ", sum, ", more than 1"),
           "lock them to less");
  }
  std::int64_t left = -static_cast<std::int64_t>(kept - first);
  for (std::int64_t key = seen.begin; key < seen.end; ++key) left += visible[key];
  if (sum < 1 - lock_tolerance && left == 0 && call.rules.sinks.empty())
    refuse(ErrorKind::argument,
           join(where(), ": the locked weights sum to ", sum, " and there is no other key to share the rest with"),
           "leave this query out, or lock the weights to a sum of 1");
}

void find_locks(AttentionJob& job) {
  const AttentionCall& call = *job.call;
  if (std::none_of(call.edits.begin(), call.edits.end(),
                   [](const ScoreEdit& edit) { return edit.kind == ScoreEdit::Kind::lock; }))
    return;
  std::vector<const ScoreEdit*> edits;
  for (std::int64_t index = 0; index < static_cast<std::int64_t>(call.items.size()); ++index) {
    VisibleKeys visible(call, index);
    for (std::int64_t head = 0; head < call.query_heads; ++head) {
      edits.clear();
      bool locks = false;
      for_edits_of_item(job, index, [&](std::int32_t, const ScoreEdit& edit) {
        if ((edit.kind != ScoreEdit::Kind::lock && edit.kind != ScoreEdit::Kind::forbid) ||
            (edit.head != -1 && edit.head != head))
          return;
        edits.push_back(&edit);
        locks |= edit.kind == ScoreEdit::Kind::lock;
      });
      if (!locks) continue;
      for (std::int64_t query = 0; query < call.items[static_cast<std::size_t>(index)].queries; ++query)
        lock_row(job, index, head, query, edits, visible);
    }
  }
}

// Whether some query of the item is named by the edit.
bool names_some_query(const ScoreEdit& edit, const AttentionItem& item) {
  if (edit.query == -1) return item.queries > 0;
  if (item.query_positions == nullptr) {
    const std::int64_t end = edit.query_end == 0 ? edit.query + 1 : edit.query_end;
    return edit.query < item.query_position + item.queries && end > item.query_position;
  }
  for (std::int64_t query = 0; query < item.queries; ++query)
    if (names_query(edit, item, query)) return true;
  return false;
}

}  // namespace

AttentionJob make_job(const AttentionCall& call) {
  AttentionJob job;
  job.call = &call;
  job.group = call.query_heads / call.key_heads;
  job.scale =
      call.rules.scale != 0 ? call.rules.scale : static_cast<float>(1 / std::sqrt(static_cast<double>(call.head_dim)));
  job.plain_scores = call.rules.soft_cap == 0 && call.rules.slopes.empty() && call.rules.relative.table == nullptr &&
                     call.rules.bias.data == nullptr && call.edits.empty();
  job.drop_below = static_cast<std::uint32_t>(std::lround(static_cast<double>(call.dropout.probability) * 65536));
  job.kept_factor = static_cast<float>(kept_factor_of(job.drop_below));
  index_edits(job);
  find_locks(job);
  return job;
}

RowLocks locks_of(const AttentionJob& job, std::int64_t item, std::int64_t head, std::int64_t query) {
  if (job.locks.empty()) return {};
  const auto before = [](const LockedScore& a, const LockedScore& b) {
    return a.item != b.item ? a.item < b.item : a.head != b.head ? a.head < b.head : a.query < b.query;
  };
  const auto [first, last] =
      std::equal_range(job.locks.begin(), job.locks.end(), LockedScore{item, head, query, 0, 0}, before);
  RowLocks row{{first, last}, 0};
  for (const LockedScore& lock : row.scores) row.sum += static_cast<double>(lock.weight);
  if (row.sum > 1 - lock_tolerance) row.sum = 1;
  return row;
}

bool asks_for_scores(const AttentionJob& job, std::int64_t item, std::int64_t head) {
  for (const MatrixRequest& request : job.call->matrices)
    if (request.item == item && request.head == head) return true;
  for (const std::int64_t list : {std::int64_t{0}, item + 1})
    for (const std::int32_t index : job.edits_of(list)) {
      const ScoreEdit& edit = job.call->edits[static_cast<std::size_t>(index)];
      if ((edit.head == -1 || edit.head == head) &&
          names_some_query(edit, job.call->items[static_cast<std::size_t>(item)]))
        return true;
    }
  return false;
}

std::int64_t edits_of_unit(const AttentionJob& job, const AttentionUnit& unit, std::int32_t* to) {
  std::int64_t count = 0;
  for_edits_of_item(job, unit.item, [&](std::int32_t index, const ScoreEdit& edit) {
    if (edit.kind == ScoreEdit::Kind::lock) return;
    if (edit.head != -1 && (edit.head < unit.head_begin || edit.head >= unit.head_begin + unit.head_count)) return;
    if (names_some_query(edit, job.call->items[static_cast<std::size_t>(unit.item)])) to[count++] = index;
  });
  return count;
}

void count_edits(const AttentionCall& call, std::int64_t* counts) {
  std::fill(counts, counts + call.edits.size(), 0);
  const auto items = static_cast<std::int64_t>(call.items.size());
  for (std::int64_t index = 0; index < items; ++index) {
    const AttentionItem& item = call.items[static_cast<std::size_t>(index)];
    VisibleKeys visible(call, index);
    for (std::size_t e = 0; e < call.edits.size(); ++e) {
      const ScoreEdit& edit = call.edits[e];
      if ((edit.item != -1 && edit.item != index) || !names_some_query(edit, item)) continue;
      // Only rules by element can tell heads apart.
      const std::int64_t heads = edit.head == -1 ? call.query_heads : 1, looks = visible.by_element() ? heads : 1;
      for (std::int64_t look = 0; look < looks; ++look)
        for (std::int64_t query = 0; query < item.queries; ++query) {
          if (!names_query(edit, item, query)) continue;
          if (!visible.by_element() && item.key_positions == nullptr) {
            const KeyRange seen = visible.interval(query), named = named_keys(edit, item, query, seen.begin, seen.end);
            counts[e] += (named.end - named.begin) * heads;
            continue;
          }
          const KeyRange seen = visible.look(edit.head == -1 ? look : edit.head, query);
          std::int64_t found = 0;
          for_named_keys(edit, item, query, seen, [&](std::int64_t key) { found += visible[key]; });
          counts[e] += found * (heads / looks);
        }
    }
  }
}

void check_forward(const AttentionCall& call) {
  check_sizes(call);
  check_items(call, Wanted::output);
  for (const MaskRule& rule : call.mask) check_mask_rule(call, rule);
  check_rules(call);
  check_requests(call);
  check_statistics(call);
}

void check_weights(const AttentionCall& forward, std::span<const WeightsTile> tiles) {
  check_sizes(forward);
  check_items(forward, Wanted::scores);
  for (const MaskRule& rule : forward.mask) check_mask_rule(forward, rule);
  check_rules(forward);
  check_requests(forward);
  const auto items = static_cast<std::int64_t>(forward.items.size());
  for (const WeightsTile& tile : tiles) {
    if (tile.item < 0 || tile.item >= items || tile.head < 0 || tile.head >= forward.query_heads)
      refuse(ErrorKind::argument, join("a tile is asked for item ", tile.item, " head ", tile.head, " of ", items,
                                       " items and ", forward.query_heads, " heads"));
    const AttentionItem& item = forward.items[static_cast<std::size_t>(tile.item)];
    if (tile.query_begin < 0 || tile.query_end < tile.query_begin || tile.query_end > item.queries ||
        tile.key_begin < 0 || tile.key_end < tile.key_begin || tile.key_end > item.keys)
      refuse(ErrorKind::argument,
             join("a tile has queries ", tile.query_begin, " to ", tile.query_end, " and keys ", tile.key_begin, " to ",
                  tile.key_end),
             join("item ", tile.item, " has ", item.queries, " queries and ", item.keys, " keys"));
    if (tile.row_stride != 0 && tile.row_stride < tile.key_end - tile.key_begin)
      refuse(ErrorKind::argument,
             join("a tile of ", tile.key_end - tile.key_begin, " keys has row stride ", tile.row_stride),
             "0 for none, or at least its keys");
    const bool locks = std::any_of(forward.edits.begin(), forward.edits.end(),
                                   [](const ScoreEdit& edit) { return edit.kind == ScoreEdit::Kind::lock; });
    if ((tile.weights != nullptr || locks) && forward.log_sum_exp == nullptr)
      refuse(ErrorKind::argument, "weights are asked for, but log_sum_exp is missing", "set it in the forward call");
  }
}

void check_backward(const AttentionCall& forward, const AttentionGradients& gradients) {
  check_forward(forward);
  for (std::size_t index = 0; index < forward.items.size(); ++index)
    if (forward.items[index].key_pages != nullptr)
      refuse(ErrorKind::argument, join("item ", index, " of a backward call has pages"),
             "train with keys and values in views");
  if (forward.log_sum_exp == nullptr && !forward.items.empty())
    refuse(ErrorKind::argument, "log_sum_exp is missing in a backward call", "set it in the forward call");
  if (gradients.output_gradient.data == nullptr && !forward.items.empty())
    refuse(ErrorKind::argument, "the gradient of the output is missing");
  if (gradients.relative_table != nullptr && forward.rules.relative.table == nullptr)
    refuse(ErrorKind::argument, "a gradient of the relative bias is asked for, but the call has none");
  if (gradients.bias != nullptr && forward.rules.bias.data == nullptr)
    refuse(ErrorKind::argument, "a gradient of the bias is asked for, but the call has none");
  if (gradients.sinks != nullptr && forward.rules.sinks.empty())
    refuse(ErrorKind::argument, "a gradient of the sinks is asked for, but the call has none");
}

}  // namespace attend
