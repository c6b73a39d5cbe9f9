#include "kernel/attention/attention_statistics.h"

#include <algorithm>

#include "attend/error.h"
#include "kernel/attention/attention_plan.h"

namespace attend {
namespace {

constexpr std::int64_t group_keys = 16;

// A span cut to one block of one item.
struct Piece {
  std::int64_t block, list, begin, end;
};

// Sets the keys of pieces sorted by block and list in `parts`, and fills part_begins as far as the blocks reach.
void add_parts(const std::vector<Piece>& pieces, std::int64_t blocks, StatisticsPlan& plan) {
  std::size_t next = 0;
  for (std::int64_t block = 0; block < blocks; ++block) {
    plan.part_begins.push_back(static_cast<std::int64_t>(plan.parts.size()));
    while (next < pieces.size() && pieces[next].block == block) {
      const std::int64_t list = pieces[next].list;
      std::uint16_t keys[block_keys / group_keys] = {};
      for (; next < pieces.size() && pieces[next].block == block && pieces[next].list == list; ++next)
        for (std::int64_t key = pieces[next].begin; key < pieces[next].end; ++key)
          keys[key / group_keys] = static_cast<std::uint16_t>(keys[key / group_keys] | 1u << key % group_keys);
      for (std::int64_t group = 0; group < block_keys / group_keys; ++group)
        if (keys[group] != 0)
          plan.parts.push_back({static_cast<std::int32_t>(list), static_cast<std::uint16_t>(group), keys[group]});
    }
  }
}

}  // namespace

StatisticsPlan::StatisticsPlan(const AttentionCall& call) : request(call.statistics) {
  const AttentionStatistics& wanted = *request;
  if (wanted.heads.empty()) {
    for (std::int64_t head = 0; head < call.query_heads; ++head) places.push_back(static_cast<std::int32_t>(head));
    chosen = call.query_heads;
  } else {
    places.assign(static_cast<std::size_t>(call.query_heads), -1);
    for (const std::int32_t head : wanted.heads)
      places[static_cast<std::size_t>(head)] = static_cast<std::int32_t>(chosen++);
  }
  sums = wanted.entropy != nullptr || wanted.distance != nullptr;
  points = wanted.first != nullptr || wanted.self != nullptr || wanted.previous != nullptr;
  lists = wanted.list_mass != nullptr ? wanted.lists : 0;
  top = wanted.top_keys != nullptr || wanted.top_weights != nullptr ? wanted.top : 0;
  if (lists == 0 || wanted.spans.empty()) return;

  std::vector<Piece> pieces;
  for (std::size_t index = 0; index < call.items.size(); ++index) {
    const std::int64_t keys = call.items[index].keys, blocks = (keys + block_keys - 1) / block_keys;
    pieces.clear();
    for (const KeySpan& span : wanted.spans) {
      if (span.item != -1 && span.item != static_cast<std::int64_t>(index)) continue;
      const std::int64_t end = std::min(span.end, keys);
      for (std::int64_t begin = span.begin; begin < end;) {
        const std::int64_t block = begin / block_keys, stop = std::min(end, (block + 1) * block_keys);
        pieces.push_back({block, span.list, begin - block * block_keys, stop - block * block_keys});
        begin = stop;
      }
    }
    std::sort(pieces.begin(), pieces.end(),
              [](const Piece& a, const Piece& b) { return a.block != b.block ? a.block < b.block : a.list < b.list; });
    first_block.push_back(static_cast<std::int64_t>(part_begins.size()));
    add_parts(pieces, blocks, *this);
  }
  part_begins.push_back(static_cast<std::int64_t>(parts.size()));
}

void check_statistics(const AttentionCall& call) {
  if (call.statistics == nullptr) return;
  const AttentionStatistics& wanted = *call.statistics;
  const auto refuse = [](ErrorKind kind, const std::string& what, const std::string& advice) {
    throw Error(kind, "attention statistics", what, advice);
  };
  const auto items = static_cast<std::int64_t>(call.items.size());
  std::int64_t before = -1;
  for (const std::int32_t head : wanted.heads) {
    if (head <= before || head >= call.query_heads)
      refuse(ErrorKind::argument, join("head ", head, " follows head ", before),
             join("name heads from 0 to ", call.query_heads - 1, ", rising"));
    before = head;
  }
  if (wanted.top < 0 || wanted.top > most_top_keys)
    refuse(ErrorKind::argument, join("top is ", wanted.top), join("ask for 0 to ", most_top_keys, " keys a row"));
  if ((wanted.top_keys != nullptr || wanted.top_weights != nullptr) && wanted.top == 0)
    refuse(ErrorKind::argument, "the largest keys are asked for, but top is 0", "say how many");
  if (wanted.lists < 0) refuse(ErrorKind::argument, join("lists is ", wanted.lists), "count the lists of spans");
  for (const KeySpan& span : wanted.spans) {
    if (span.list < 0 || span.list >= wanted.lists || span.item < -1 || span.item >= items)
      refuse(ErrorKind::argument, join("a span names list ", span.list, " and item ", span.item),
             join("there are ", wanted.lists, " lists and ", items, " items"));
    if (span.begin < 0 || span.end < span.begin)
      refuse(ErrorKind::argument, join("a span has keys ", span.begin, " to ", span.end),
             "begin must not be negative, nor end before begin");
  }
}

}  // namespace attend
