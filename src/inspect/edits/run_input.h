// One run of a model over an EditInput, with what its sites held.
#pragma once

#include <cstdint>
#include <vector>

#include "attend/edits.h"

namespace attend {

struct RunRows {
  Recorder rows;
  std::vector<std::int64_t> source_offsets, target_offsets;  // of an encoder alone both are the encoder's
  std::vector<std::int64_t> class_offsets;                   // one row an item, where the model classifies
  Tensor logits;

  const std::vector<std::int64_t>& offsets_of(const Site& site) const;
};

// Error(argument) unless the input has what the model reads, and nothing else.
void check_input(const Model& model, const EditInput& input);

// Logits, or classes; the last states where the model predicts nothing. Fills the offsets of the record.
Tensor run_input(const Model& model, const EditInput& input, const RunOptions& options, RunRows& record);

// Records the sites, with `probe` acting before.
RunRows record_run(const Model& model, const EditInput& input, const std::vector<Site>& sites, Probe* probe = nullptr);

}  // namespace attend
