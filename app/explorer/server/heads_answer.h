// The head finder (POST /heads).
#pragma once

#include <vector>

#include "explorer/json_writer.h"
#include "explorer/limits.h"
#include "explorer/model_input.h"
#include "explorer/work_queue.h"

namespace attend::explorer {

// Scores every head over the inputs; over a small corpus that goes with every model of text where there are none.
void write_heads(JsonWriter& out, const LoadedModel& model, std::vector<SubjectTexts> inputs, const Limits& limits,
                 const StopSignal& stop);

}  // namespace attend::explorer
