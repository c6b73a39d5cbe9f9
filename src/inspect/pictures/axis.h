// Axes of numbers.
#pragma once

#include <algorithm>
#include <cmath>
#include <string>
#include <vector>

#include "inspect/pictures/svg.h"
#include "inspect/pictures/text.h"

namespace attend::pictures {

// From `low` to `high`, which lie on ticks; ticks at 1, 2 or 5 times a power of ten.
struct Axis {
  double low = 0, high = 1, step = 1;

  double part(double value) const { return std::clamp((value - low) / (high - low), 0.0, 1.0); }
  std::vector<double> ticks() const {
    std::vector<double> all;
    for (int i = 0; low + i * step <= high + step / 2; ++i)
      all.push_back(std::abs(low + i * step) < step / 1e6 ? 0 : low + i * step);
    return all;
  }
};

// Over these numbers, about `count` ticks; with `zero`, 0 is on it. Numbers that are not finite do not count.
inline Axis axis_over(const std::vector<double>& values, int count, bool zero) {
  double low = zero ? 0 : INFINITY, high = zero ? 0 : -INFINITY;
  for (double value : values)
    if (std::isfinite(value)) low = std::min(low, value), high = std::max(high, value);
  if (!(low <= high)) low = 0, high = 1;
  if (!(high - low > 1e-12 * std::max(std::abs(high), std::abs(low)))) {
    const double room = std::max(std::abs(high) * 0.1, 1e-6);
    if (zero && high == 0) high = 1;
    else low -= zero ? 0 : room, high += room;
  }
  const double raw = (high - low) / count, power = std::pow(10.0, std::floor(std::log10(raw))), mantissa = raw / power;
  const double step = power * (mantissa < 1.5 ? 1 : mantissa < 3 ? 2 : mantissa < 7 ? 5 : 10);
  return {std::floor(low / step + 1e-9) * step, std::ceil(high / step - 1e-9) * step, step};
}

}  // namespace attend::pictures
