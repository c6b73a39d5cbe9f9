#include "model/positions.h"

#include <algorithm>
#include <cmath>

namespace attend {

Tensor sinusoid_table(const TransformerConfig& config) {
  const std::int64_t width = config.width, half = width / 2;
  Tensor table = Tensor::zeros({config.max_positions, width});
  for (std::int64_t row = 0; row < config.max_positions; ++row) {
    const double position = static_cast<double>(config.first_position + row);
    float* out = table.row(row);
    for (std::int64_t i = 0; i < half; ++i) {
      if (config.sinusoid_layout == SinusoidLayout::interleaved) {
        const double angle =
            position * std::pow(config.position_base, -2.0 * static_cast<double>(i) / static_cast<double>(width));
        out[2 * i] = static_cast<float>(std::sin(angle));
        out[2 * i + 1] = static_cast<float>(std::cos(angle));
      } else {
        const double step = std::log(config.position_base) / static_cast<double>(std::max<std::int64_t>(half - 1, 1));
        const double angle = position * std::exp(-static_cast<double>(i) * step);
        out[i] = static_cast<float>(std::sin(angle));
        out[half + i] = static_cast<float>(std::cos(angle));
      }
    }
  }
  return table;
}

std::vector<float> alibi_slopes(std::int64_t heads) {
  std::int64_t power = 1;
  while (power * 2 <= heads) power *= 2;
  const auto slope = [](std::int64_t index, std::int64_t count) {
    return static_cast<float>(std::exp2(-8.0 * static_cast<double>(index + 1) / static_cast<double>(count)));
  };
  std::vector<float> slopes;
  for (std::int64_t head = 0; head < power; ++head) slopes.push_back(slope(head, power));
  for (std::int64_t head = 0; head < heads - power; ++head) slopes.push_back(slope(2 * head, 2 * power));
  return slopes;
}

std::shared_ptr<const std::vector<std::int32_t>> relative_buckets(std::int64_t reach, std::int64_t buckets,
                                                                  std::int64_t max_distance, bool both_directions) {
  auto table = std::make_shared<std::vector<std::int32_t>>();
  const std::int64_t per_side = both_directions ? buckets / 2 : buckets;
  const std::int64_t exact = per_side / 2;
  for (std::int64_t offset = -(reach - 1); offset < reach; ++offset) {
    std::int64_t bucket = both_directions && offset > 0 ? per_side : 0;
    const std::int64_t distance = both_directions ? std::abs(offset) : std::max<std::int64_t>(-offset, 0);
    if (distance < exact) {
      bucket += distance;
    } else {
      const double steps = std::log(static_cast<double>(distance) / static_cast<double>(exact)) /
                           std::log(static_cast<double>(max_distance) / static_cast<double>(exact)) *
                           static_cast<double>(per_side - exact);
      bucket += std::min(exact + static_cast<std::int64_t>(steps), per_side - 1);
    }
    table->push_back(static_cast<std::int32_t>(bucket));
  }
  return table;
}

}  // namespace attend
