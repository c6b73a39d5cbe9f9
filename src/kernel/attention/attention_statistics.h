// A request for statistics, checked and laid out for the kernels: once a call, shared by all units of work.
#pragma once

#include <cstdint>
#include <vector>

#include "attend/attention.h"

namespace attend {

// Keys of a list within one block of keys: bit b is key 16 * group + b of the block.
struct ListPart {
  std::int32_t list = 0;
  std::uint16_t group = 0;
  std::uint16_t keys = 0;
};

struct StatisticsPlan {
  explicit StatisticsPlan(const AttentionCall& call);

  const AttentionStatistics* request = nullptr;
  std::int64_t chosen = 0;           // H
  std::vector<std::int32_t> places;  // [query_heads]: place among the chosen heads, -1 where not chosen
  bool sums = false;                 // entropy or distance are wanted
  bool points = false;               // first, self or previous
  std::int64_t lists = 0;            // 0 where no list mass is wanted
  std::int64_t top = 0;              // 0 where no keys are wanted

  // Parts of item `item` and block `block` of its keys, by list and then by group.
  std::span<const ListPart> parts_of(std::int64_t item, std::int64_t block) const {
    if (parts.empty()) return {};
    const auto at = static_cast<std::size_t>(first_block[static_cast<std::size_t>(item)] + block);
    return {parts.data() + part_begins[at], parts.data() + part_begins[at + 1]};
  }
  std::vector<ListPart> parts;
  std::vector<std::int64_t> part_begins;  // [blocks of all items + 1]
  std::vector<std::int64_t> first_block;  // [items]
};

// Throws Error: named in attention_check.cc, called by check_forward.
void check_statistics(const AttentionCall& call);

}  // namespace attend
