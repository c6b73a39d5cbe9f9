// The texts that a command inspects: from the command line or a file, for one stack or two.
#pragma once

#include <string>
#include <vector>

#include "attend/corpus.h"
#include "attend/subject.h"
#include "command_line.h"

namespace attend::cli {

struct SubjectFlags {
  std::string model = "tatoeba-zh-en";
  std::vector<std::string> texts;
  std::string target, to, file;
  ReadOptions read_options;

  void add_to(Command& command);
  // At least one. Error(argument): none, or a target for several sources.
  std::vector<SubjectTexts> read(const ModelFolder& folder) const;
};

// Says on standard error how many tokens of a text the model does not know: whatever it makes of them says little.
void warn_of_unknown(const Subject& subject);

}  // namespace attend::cli
