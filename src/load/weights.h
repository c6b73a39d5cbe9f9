// Parameters of a model against the tensors of a file.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "attend/model.h"
#include "attend/safetensors.h"

namespace attend {

// Throws Error(config) if the config needs far more numbers than the file holds: before a hostile config makes a model
// that fills the memory.
void check_amount(const TransformerConfig& config, const SafetensorsFile& file, const std::string& config_source);

// Fills all parameters. Throws Error(config) for tensors missing, left over or of another shape, naming the config's
// field that decides, and Error(numeric) for NaN and infinity.
void read_weights(Model& model, const SafetensorsFile& file, const std::string& config_source);

// The config field that decides whether a parameter exists (axis -1) or how long an axis is, with what it holds:
// "decoder.vocabulary is 512".
std::string deciding_field(const TransformerConfig& config, const std::string& parameter, int axis);

// The mean of the parameters of models of one config. Sums in double, in the order given.
class ParameterMean {
 public:
  void add(const Model& model);
  void write_into(Model& model) const;  // of the same config

 private:
  std::vector<std::vector<double>> sums_;
  std::int64_t count_ = 0;
};

}  // namespace attend
