// Fixed numbers that tell a model where a token stands.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "attend/config.h"
#include "attend/model.h"

namespace attend {

// Slopes of ALiBi, [heads] (Press et al. 2022): 2^(-8 (h + 1) / heads), and for a number of heads that is no power of
// two the slopes of the next lower power followed by every second one of the next higher.
std::vector<float> alibi_slopes(std::int64_t heads);

// T5's bucket of every distance key - query from -(reach - 1) to reach - 1 (Raffel et al. 2020): half of the buckets
// hold one distance each, the others grow in logarithmic steps up to max_distance.
std::shared_ptr<const std::vector<std::int32_t>> relative_buckets(std::int64_t reach, std::int64_t buckets,
                                                                  std::int64_t max_distance, bool both_directions);

}  // namespace attend
