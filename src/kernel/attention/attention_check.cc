#include <algorithm>
#include <cmath>

#include "attend/error.h"
#include "kernel/attention/attention_dropout.h"
#include "kernel/attention/attention_plan.h"

namespace attend {
namespace {

constexpr const char* here = "attention";

[[noreturn]] void refuse(ErrorKind kind, const std::string& what, const std::string& advice = {}) {
  throw Error(kind, here, what, advice);
}

void check_sizes(const AttentionCall& call) {
  if (call.query_heads <= 0 || call.key_heads <= 0 || call.head_dim <= 0 || call.value_dim <= 0)
    refuse(ErrorKind::shape,
           join("query_heads ", call.query_heads, ", key_heads ", call.key_heads, ", head_dim ", call.head_dim, ", value_dim ",
                call.value_dim, ", but all must be positive"));
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

void check_items(const AttentionCall& call) {
  bool some_queries = false, some_view_keys = false;
  for (std::size_t index = 0; index < call.items.size(); ++index) {
    const AttentionItem& item = call.items[index];
    if (item.query_begin < 0 || item.queries < 0 || item.key_begin < 0 || item.keys < 0)
      refuse(ErrorKind::shape, join("item ", index, " has query_begin ", item.query_begin, ", queries ", item.queries,
                                    ", key_begin ", item.key_begin, ", keys ", item.keys, ", but none may be negative"));
    if ((item.key_pages == nullptr) != (item.value_pages == nullptr))
      refuse(ErrorKind::argument, join("item ", index, " has pages for only one of key and value"), "set both or neither");
    if (item.key_pages != nullptr) {
      if (call.page_rows <= 0)
        refuse(ErrorKind::argument, join("item ", index, " has pages, but page_rows is ", call.page_rows));
      for (std::int64_t page = 0; page * call.page_rows < item.keys; ++page)
        if (item.key_pages[page] == nullptr || item.value_pages[page] == nullptr)
          refuse(ErrorKind::argument, join("item ", index, " page ", page, " of key or value is null"));
    }
    some_queries |= item.queries > 0;
    some_view_keys |= item.queries > 0 && item.keys > 0 && item.key_pages == nullptr;
  }
  if (some_queries && (call.query.data == nullptr || call.output.data == nullptr))
    refuse(ErrorKind::argument, "query or output has no data");
  if (some_view_keys && (call.key.data == nullptr || call.value.data == nullptr))
    refuse(ErrorKind::argument, "key or value has no data", "set the views, or pages for every item");
  if (overlap(call.items, [](const AttentionItem& item) { return item.query_begin; },
              [](const AttentionItem& item) { return item.queries; }))
    refuse(ErrorKind::argument, "two items share query rows", "give every item query rows of its own");
}

void check_mask_rule(const AttentionCall& call, const MaskRule& rule) {
  if (const auto* window = std::get_if<WindowRule>(&rule)) {
    if (window->before < 0 || window->after < 0)
      refuse(ErrorKind::argument, join("window before ", window->before, ", after ", window->after, ", but none may be negative"));
  } else if (const auto* lengths = std::get_if<KeyLengthsRule>(&rule)) {
    if (lengths->lengths.size() != call.items.size())
      refuse(ErrorKind::shape, join("key lengths has ", lengths->lengths.size(), " entries for ", call.items.size(), " items"));
  } else if (const auto* prefix = std::get_if<PrefixRule>(&rule)) {
    if (prefix->lengths.size() != call.items.size())
      refuse(ErrorKind::shape, join("prefix has ", prefix->lengths.size(), " entries for ", call.items.size(), " items"));
  } else if (const auto* documents = std::get_if<DocumentRule>(&rule)) {
    for (const AttentionItem& item : call.items) {
      const std::int64_t query_end = item.query_begin + item.queries;
      const std::int64_t key_end = item.key_pages != nullptr ? item.keys : item.key_begin + item.keys;
      if (static_cast<std::int64_t>(documents->query_documents.size()) < query_end ||
          static_cast<std::int64_t>(documents->key_documents.size()) < key_end)
        refuse(ErrorKind::shape, join("documents are given for ", documents->query_documents.size(), " queries and ",
                                      documents->key_documents.size(), " keys, but an item reaches to ", query_end, " and ", key_end));
    }
  } else if (const auto* blocks = std::get_if<BlockRule>(&rule)) {
    if (blocks->block <= 0 || blocks->columns <= 0 || blocks->allowed.size() % static_cast<std::size_t>(blocks->columns) != 0)
      refuse(ErrorKind::shape, join("block rule has block ", blocks->block, ", columns ", blocks->columns, " and ",
                                    blocks->allowed.size(), " cells"), "block and columns must be positive, cells rows * columns");
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
      refuse(ErrorKind::argument, join("a matrix is asked for item ", request.item, " head ", request.head, " of ", items,
                                       " items and ", call.query_heads, " heads"));
  for (const ScoreEdit& edit : call.edits) {
    if (edit.item < -1 || edit.item >= items || edit.head < -1 || edit.head >= call.query_heads || edit.query < -1 || edit.key < -1)
      refuse(ErrorKind::argument, join("an edit names item ", edit.item, " head ", edit.head, " query ", edit.query, " key ",
                                       edit.key, " of ", items, " items and ", call.query_heads, " heads"));
    if (edit.kind != ScoreEdit::Kind::forbid && std::isnan(edit.value))
      refuse(ErrorKind::numeric, "an edit has value NaN");
  }
}

}  // namespace

AttentionJob make_job(const AttentionCall& call) {
  AttentionJob job;
  job.call = &call;
  job.group = call.query_heads / call.key_heads;
  job.scale = call.rules.scale != 0 ? call.rules.scale : static_cast<float>(1 / std::sqrt(static_cast<double>(call.head_dim)));
  job.plain_scores = call.rules.soft_cap == 0 && call.rules.slopes.empty() && call.rules.relative.table == nullptr &&
                     call.rules.bias.data == nullptr && call.edits.empty();
  job.drop_below = static_cast<std::uint32_t>(std::lround(static_cast<double>(call.dropout.probability) * 65536));
  job.kept_factor = static_cast<float>(kept_factor_of(job.drop_below));
  return job;
}

bool asks_for_scores(const AttentionCall& call, std::int64_t item, std::int64_t head) {
  for (const MatrixRequest& request : call.matrices)
    if (request.item == item && request.head == head) return true;
  for (const ScoreEdit& edit : call.edits)
    if ((edit.item == -1 || edit.item == item) && (edit.head == -1 || edit.head == head)) return true;
  return false;
}

void check_forward(const AttentionCall& call) {
  check_sizes(call);
  check_items(call);
  for (const MaskRule& rule : call.mask) check_mask_rule(call, rule);
  check_rules(call);
  check_requests(call);
}

void check_backward(const AttentionCall& forward, const AttentionGradients& gradients) {
  check_forward(forward);
  for (std::size_t index = 0; index < forward.items.size(); ++index)
    if (forward.items[index].key_pages != nullptr)
      refuse(ErrorKind::argument, join("item ", index, " of a backward call has pages"), "train with keys and values in views");
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
