// How many rows one task should hold at least, so that waking the team pays.
#pragma once

#include <algorithm>
#include <cstdint>

namespace attend {

// For kernels of about one cycle an element; pass a smaller `elements` for costlier ones.
inline std::int64_t rows_grain(std::int64_t width, std::int64_t elements = 16384) {
  return std::max<std::int64_t>(1, elements / std::max<std::int64_t>(1, width));
}

}  // namespace attend
