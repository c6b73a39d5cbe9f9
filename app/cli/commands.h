// One function a command: adds it to the program. What it does runs from its callback.
#pragma once

#include <cstdint>
#include <optional>

#include "command_line.h"

namespace attend::cli {

// Ends the program with this code, everything being said.
struct Exit {
  int code = 1;
};

// Options of the program itself.
struct Globals {
  std::optional<int> threads;
  std::optional<std::uint64_t> seed;
  bool json = false;
};

void add_align(Command& program, Globals& globals);
void add_bench(Command& program, Globals& globals);
void add_train(Command& program, Globals& globals);
void add_translate(Command& program, Globals& globals);
void add_generate(Command& program, Globals& globals);
void add_edit(Command& program, Globals& globals);
void add_heads(Command& program, Globals& globals);
void add_inspect(Command& program, Globals& globals);
void add_score(Command& program, Globals& globals);
void add_eval(Command& program, Globals& globals);
void add_tokenize(Command& program, Globals& globals);
void add_describe(Command& program, Globals& globals);
void add_explore(Command& program, Globals& globals);
void add_completion(Command& program, Globals& globals);
void add_version(Command& program, Globals& globals);
void add_help(Command& program, Globals& globals);

}  // namespace attend::cli
