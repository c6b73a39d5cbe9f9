// Which weights dropout removes: a pure function of (seed, item, head, query, key), so that backward draws it again.
//
// One Philox block (core/random.h) holds eight 16-bit numbers. They serve eight consecutive queries of one key and head:
// counter = {key, query / 8, head, item}, key = seed; query % 8 picks word (query % 8) / 2 and its low or high half.
// A weight is dropped when its number is below round(probability * 65536).
#pragma once

#include <cstdint>

#include "core/random.h"

namespace attend {

inline constexpr std::int64_t dropout_queries = 8;  // served by one Philox block

inline bool dropout_drops(std::uint64_t seed, std::int64_t item, std::int64_t head, std::int64_t query, std::int64_t key,
                          std::uint32_t drop_below) {
  const auto words = philox({static_cast<std::uint32_t>(seed), static_cast<std::uint32_t>(seed >> 32)},
                            {static_cast<std::uint32_t>(key), static_cast<std::uint32_t>(query / dropout_queries),
                             static_cast<std::uint32_t>(head), static_cast<std::uint32_t>(item)});
  const auto slot = static_cast<std::uint32_t>(query % dropout_queries);
  return ((words[slot / 2] >> (16 * (slot % 2))) & 0xFFFFu) < drop_below;
}

}  // namespace attend
