// Where each target token read: cross-attention of one parallel pass over a finished translation.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "attend/translate.h"

namespace attend {

struct AlignmentInput {
  std::span<const std::int32_t> source;
  std::span<const std::int32_t> prompt;  // what the decoder read before the target
  std::span<const std::int32_t> target;  // at least one token
  std::int64_t item = 0;                 // what a probe knows it by
};

// For each input the weights [target, source], the mean over layers and heads. Error(argument): layers or heads the
// model does not have.
std::vector<std::vector<float>> align(const Model& model, std::span<const AlignmentInput> inputs,
                                      const AlignmentOptions& options, std::int64_t batch_size, Probe* probe = nullptr);

}  // namespace attend
