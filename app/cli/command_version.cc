#include "attend/threads.h"
#include "attend/version.h"
#include "commands.h"
#include "input_output.h"

namespace attend::cli {

void add_version(CLI::App& program, Globals& globals) {
  CLI::App* command = program.add_subcommand("version", "Print the version and what this machine offers");
  command->callback([&globals] {
    Output out;
    if (globals.json) {
      out.json({{"version", version()}, {"threads", threads()}, {"models", shipped_models()}});
    } else {
      out.line(std::string("attend ") + version());
      out.line("threads: " + std::to_string(threads()));
      std::string names;
      for (const std::string& name : shipped_models()) names += (names.empty() ? "" : ", ") + name;
      out.line("models that ship: " + (names.empty() ? "none found" : names));
    }
    out.flush();
  });
}

}  // namespace attend::cli
