// Targets checked against a model and an input, and their values from states of the last stack.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "attend/importance.h"

namespace attend {

// The parts of a model that an input runs through, and its batches.
bool reads_tokens(const Model& model);  // the encoder, if any, reads tokens
void check_input(const Model& model, const ModelInput& input, const char* operation);
States encode_input(const Model& model, const ModelInput& input, const RunOptions& options = {});
// States of the last stack; `memory` is used where the decoder has an encoder.
States decode_input(const Model& model, const ModelInput& input, const States& memory, const RunOptions& options = {});
// `count` items of the same rows.
States repeated(const Tensor& rows, std::int64_t count);

// Of classes the target reads the encoder, otherwise the last stack.
bool of_classes(const Target& target);

class ResolvedTarget {
 public:
  // Checks the target; `rows` are those of the last stack.
  ResolvedTarget(const Model& model, const Target& target, std::int64_t rows);

  bool of_classes() const { return attend::of_classes(target_); }
  // The target reads rows [first_row, end_row) of the last stack.
  std::int64_t first_row() const { return first_row_; }
  std::int64_t end_row() const { return end_row_; }

  // One value an item. Item i has the rows firsts[i], firsts[i] + 1, ... of the last stack; what the target reads of other
  // rows is taken from `base`, the values_of_rows of the run without cuts. Of classes an item has all rows.
  std::vector<double> values(const States& states, std::span<const std::int64_t> firsts,
                             std::span<const double> base) const;
  // What each row adds to the target [end_row - first_row]; not for classes.
  std::vector<double> values_of_rows(const Tensor& rows) const;
  // For the tape, from items with all rows of the last stack: the sum over the items.
  Tensor differentiable(const States& states) const;

 private:
  std::vector<double> row_values(const Tensor& rows, std::span<const std::int64_t> positions) const;
  double class_value(const Tensor& logits, std::int64_t item) const;

  const Model& model_;
  Target target_;
  Tensor logit_weights_, logit_biases_;  // [vocabulary, width], [vocabulary] or undefined; not for classes
  std::int64_t first_row_ = 0, end_row_ = 0;
};

}  // namespace attend
