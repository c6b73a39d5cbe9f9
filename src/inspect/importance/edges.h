// What one pass forward and back leaves of the attentions it met.
#pragma once

#include <cstdint>
#include <map>
#include <vector>

#include "attend/importance.h"
#include "inspect/parameters.h"

namespace attend {

struct AttentionTrace {
  Tensor query, key, value;  // as the scores were made of them: rotated, where positions are rotary
  Tensor output;             // head_output
  Tensor gradient;           // of the target at head_output; undefined without target
};

struct GradientRun {
  double target = 0;
  std::map<AttentionPlace, AttentionTrace> attentions;
  std::map<std::pair<StackKind, int>, std::pair<Tensor, Tensor>> inner;  // of feed-forward layers: value and gradient
};

// Runs the input and, with a target, its gradient down to the lowest of the places asked for. The tape holds nothing
// below, and no gradient of a parameter is computed. `probe`, if any, sees the run as well.
GradientRun run_with_gradient(const Model& model, const ModelInput& input, const std::optional<Target>& target,
                              const std::vector<AttentionPlace>& attentions,
                              const std::vector<std::pair<StackKind, int>>& feed_forwards, const char* operation,
                              Probe* probe = nullptr);

}  // namespace attend
