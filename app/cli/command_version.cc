#include <memory>
#include <nlohmann/json.hpp>

#include "attend/bench.h"
#include "attend/error.h"
#include "attend/names.h"
#include "attend/threads.h"
#include "attend/version.h"
#include "commands.h"
#include "input_output.h"

namespace attend::cli {

void add_version(Command& program, Globals& globals) {
  Command* command = program.add_command("version", "Print the version and what this machine offers");
  command->callback([&globals] {
    Output out;
    if (globals.json) {
      out.json({{"version", version()},
                {"threads", threads()},
                {"instruction_sets", instruction_sets()},
                {"models", shipped_models()}});
    } else {
      out.line(std::string("attend ") + version());
      out.line("threads: " + std::to_string(threads()));
      std::string sets;
      for (const std::string& name : instruction_sets()) sets += sets.empty() ? name + " (used)" : ", " + name;
      out.line("instruction sets: " + sets);
      std::string names;
      for (const std::string& name : shipped_models()) names += (names.empty() ? "" : ", ") + name;
      out.line("models that ship: " + (names.empty() ? "none found" : names));
    }
    out.flush();
  });
}

void add_help(Command& program, Globals&) {
  Command* command = program.add_command("help", "Help on a command");
  auto names = std::make_shared<std::vector<std::string>>();
  command->add_option("command", *names, "The command: translate, bench attention, ...")->type_name("COMMAND");
  command->callback([names, &program] {
    const Command* named = &program;
    std::string before;
    for (const std::string& name : *names) {
      before += (before.empty() ? "" : " ") + named->name();
      std::vector<std::string> known;
      const Command* next = nullptr;
      for (const auto& each : named->commands()) {
        known.push_back(each->name());
        if (each->name() == name) next = each.get();
      }
      const std::string near = nearest_name(name, known);
      if (next == nullptr)
        throw Error(ErrorKind::argument, "help", "there is no command '" + name + "'",
                    near.empty() ? "`attend --help` lists them" : "did you mean " + near + "?");
      named = next;
    }
    Output out;
    out.text(named->help(before));
    out.flush();
  });
}

}  // namespace attend::cli
