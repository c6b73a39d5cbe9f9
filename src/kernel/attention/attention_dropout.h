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

// What the kept weights are multiplied by: 1 over the probability that the draws really have of keeping one, so that
// the mean stays what it was. 0 where all are dropped.
inline double kept_factor_of(std::uint32_t drop_below) {
  return drop_below < 65536 ? 65536.0 / (65536.0 - drop_below) : 0.0;
}

inline bool dropout_drops(std::uint64_t seed, std::int64_t item, std::int64_t head, std::int64_t query,
                          std::int64_t key, std::uint32_t drop_below) {
  const auto words = philox({static_cast<std::uint32_t>(seed), static_cast<std::uint32_t>(seed >> 32)},
                            {static_cast<std::uint32_t>(key), static_cast<std::uint32_t>(query / dropout_queries),
                             static_cast<std::uint32_t>(head), static_cast<std::uint32_t>(item)});
  const auto slot = static_cast<std::uint32_t>(query % dropout_queries);
  return ((words[slot / 2] >> (16 * (slot % 2))) & 0xFFFFu) < drop_below;
}

}  // namespace attend
