// What rows tell, asked of `attend inspect`: --statistics, --top-k and --span.
#pragma once

#include <string>
#include <vector>

#include "attend/inspect.h"
#include "command_line.h"
#include "input_output.h"

namespace attend::cli {

struct StatisticsFlags {
  bool statistics = false;
  int top = 0;
  std::vector<std::string> spans;  // "verb=3:5", "names=source:0,3:7", "special", "last"

  void add_to(Command& command);
  bool of_rows() const { return statistics || !spans.empty(); }
  // Into the options of an inspection. Error(argument): a span that is none.
  void choose(InspectOptions& options) const;
};

// A table for every layer and head: statistics and largest keys of its rows, keys wrapped to so many columns. all: every
// statistic of the inspection, else those on `regions` alone.
void print_statistics(Output& out, const Inspection& inspection, bool all, const std::vector<KeyRegion>& regions,
                      int columns);

}  // namespace attend::cli
