// Looks-at against matters (POST /importance).
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "attend/importance.h"
#include "explorer/runs.h"

namespace attend::explorer {

struct ImportanceRequest {
  std::optional<std::int64_t> row;            // of the predictions; none: the last
  std::optional<std::int32_t> token, versus;  // no token: the most likely there
  std::vector<EdgeMeasure> methods{EdgeMeasure::weight, EdgeMeasure::write, EdgeMeasure::first_order,
                                   EdgeMeasure::exact};
  std::optional<AttentionPlace> place;
  std::optional<std::int64_t> head, query;
  std::int64_t top = 50;
};

// Methods, edges and agreement as doc/EXPLORER-API.md has them: an effect is told as how much the target falls.
void write_importance(JsonWriter& out, const Run& run, const ImportanceRequest& request, const Limits& limits,
                      const StopSignal& stop);

}  // namespace attend::explorer
