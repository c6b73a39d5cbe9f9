// What the parts of the inspect room ask of a model: its parameters by name.
#pragma once

#include <string>

#include "attend/model.h"

namespace attend {

// Null if the model has none of that name.
inline const Parameter* find_parameter(const Model& model, const std::string& name) {
  for (const Parameter& parameter : model.parameters())
    if (parameter.name == name) return &parameter;
  return nullptr;
}

}  // namespace attend
