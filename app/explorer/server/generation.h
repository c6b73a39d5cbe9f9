// Writing under glass (POST /generate): every step with what else was likely, what the cache holds, and for beam search
// the tree of all that stood on the beam.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "attend/generate.h"
#include "explorer/json_writer.h"
#include "explorer/model_input.h"
#include "explorer/run_edits.h"
#include "explorer/runs.h"
#include "explorer/work_queue.h"

namespace attend::explorer {

struct GenerationRequest {
  Strategy strategy = Strategy::greedy;
  std::int64_t steps = 32;  // tokens at most, the forced ones included
  std::int64_t beams = 4, n_best = 1;
  double temperature = 1, top_p = 1;
  std::int64_t top_k = 0;
  std::uint64_t seed = 1;
  std::vector<std::int32_t> prefix;
  std::int64_t top = 5;                 // tokens told of every step
  std::optional<AttentionPlace> watch;  // whose weights are told of every step
};

struct Likely {
  std::int32_t id = 0;
  float logit = 0, probability = 0;
};
// The tokens with the largest logits, equal ones by id.
std::vector<Likely> likely_tokens(std::span<const float> logits, std::int64_t top);
void write_likely(JsonWriter& out, const Tokenizer& tokenizer, std::span<const Likely> tokens);

// What one query of an attention of the decoder read, from the cache as it was then: [heads][keys].
struct WatchedRow {
  std::int64_t keys = 0;
  std::vector<float> weights;
};

struct GenerationStep {
  std::int32_t id = 0;
  float log_probability = 0;
  bool forced = false;
  std::vector<Likely> top;            // where this token was chosen
  WatchedRow watched;                 // the same place
  std::vector<std::int64_t> evicted;  // its keys that edits took out of the cache
};
struct GenerationNode {
  std::int64_t parent = -1, step = 0;
  std::int32_t token = 0;
  float log_probability = 0;
  bool ended = false, kept = false;
  std::vector<Likely> next;  // after it; empty where nothing was read after it
  WatchedRow watched;        // the same place
};
struct Generation {
  std::vector<GenerationStep> steps;  // of the best result
  std::vector<GenerationNode> nodes;  // of beam search
  struct Result {
    std::int64_t node = 0;
    Hypothesis hypothesis;
  };
  std::vector<Result> results;
  std::int64_t prompt = 0;  // tokens the decoder read first
};

// `input` without its target: that is what is written.
Generation generate_openly(const LoadedModel& model, const ModelInput& input, const RunEdits& edits,
                           const GenerationRequest& request, const StopSignal& stop);
void write_generation(JsonWriter& out, const LoadedModel& model, const ModelInput& input, const Generation& generation,
                      const GenerationRequest& request);

}  // namespace attend::explorer
