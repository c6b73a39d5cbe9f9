// One function a command: adds it to the program. What it does runs from its callback.
#pragma once

#include <CLI/CLI.hpp>
#include <cstdint>
#include <optional>

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

void add_align(CLI::App& program, Globals& globals);
void add_bench(CLI::App& program, Globals& globals);
void add_train(CLI::App& program, Globals& globals);
void add_translate(CLI::App& program, Globals& globals);
void add_generate(CLI::App& program, Globals& globals);
void add_edit(CLI::App& program, Globals& globals);
void add_heads(CLI::App& program, Globals& globals);
void add_inspect(CLI::App& program, Globals& globals);
void add_score(CLI::App& program, Globals& globals);
void add_eval(CLI::App& program, Globals& globals);
void add_tokenize(CLI::App& program, Globals& globals);
void add_describe(CLI::App& program, Globals& globals);
void add_explore(CLI::App& program, Globals& globals);
void add_completion(CLI::App& program, Globals& globals);
void add_version(CLI::App& program, Globals& globals);
void add_help(CLI::App& program, Globals& globals);

}  // namespace attend::cli
