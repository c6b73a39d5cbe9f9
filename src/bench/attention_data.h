// Numbers for attention benchmarks, and what is compared with the reference.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <vector>

#include "core/memory.h"
#include "core/random.h"

namespace attend {

// In the memory that tensors use: aligned to cache lines.
inline Buffer normal_numbers(Random& random, std::int64_t size) {
  Buffer all(size);
  for (std::int64_t i = 0; i < size; ++i) all.data()[i] = static_cast<float>(random.normal());
  return all;
}

inline Buffer zeros(std::int64_t size) {
  Buffer all(size);
  std::fill(all.data(), all.data() + size, 0.0f);
  return all;
}

// The largest difference of all that was compared; NaN counts as the largest.
class Largest {
 public:
  // Rows `begin` to `end` of `width` numbers, without gaps.
  void compare(const std::vector<double>& expected, const Buffer& found, std::int64_t begin, std::int64_t end,
               std::int64_t width) {
    for (std::int64_t i = begin * width; i < end * width; ++i)
      compare(expected[static_cast<std::size_t>(i)], found.data()[i]);
  }
  void compare(double expected, float found) {
    const double difference = std::abs(expected - static_cast<double>(found));
    if (!(difference <= difference_)) difference_ = difference;
  }
  double difference() const { return difference_; }

 private:
  double difference_ = 0;
};

}  // namespace attend
