// --attribution of `attend inspect`: what is computed, and how the terminal shows it.
#pragma once

#include <string>
#include <vector>

#include "attend/inspect.h"
#include "command_line.h"
#include "input_output.h"

namespace attend::cli {

struct AttributionFlags {
  std::vector<std::string> methods;
  AttributionOptions options;

  void add_to(Command& command);
  // Error(argument): a method that does not exist, one that needs a target where there is none, options of no method.
  AttributionOptions chosen(bool has_target) const;
};

void print_attributions(Output& out, const Inspection& inspection, int columns, bool colour);

}  // namespace attend::cli
