// attend: the command line. Exit codes: 0 done, 1 failed, 2 called wrongly, 128 + N stopped by signal N.
#include <csignal>
#include <cstdint>
#include <iostream>
#include <limits>
#include <new>
#include <span>
#include <string>

#include "attend/error.h"
#include "attend/threads.h"
#include "attend/version.h"
#include "commands.h"
#include "input_output.h"
#include "terminal.h"

namespace {

void print_error(const std::string& text) {
  const bool colour = attend::cli::colour_wanted(2);
  std::cerr << (colour ? "\033[31mattend:\033[0m " : "attend: ") << text << '\n';
}

// The rest of every command's help, and of those below it.
void add_footers(attend::cli::Command& command) {
  const std::string own = command.footer();
  command.footer("Options of every command: --threads N, --seed N, --json (see `attend --help`)." +
                 (own.empty() ? "" : "\n\n" + own));
  for (const auto& below : command.commands()) add_footers(*below);
}

}  // namespace

int main(int count, char** arguments) {
  using namespace attend::cli;
  // Writing then fails with an error that is told, as on a full disk, instead of ending the program without a word.
  for (const int signal : {SIGPIPE, SIGXFSZ}) std::signal(signal, SIG_IGN);

  Globals globals;
  Program command_line("attend", "Attend trains, runs and opens up Transformers.", attend::version());
  Command& program = command_line.command();
  program.group("Options of every command");
  program
      .add_option("--threads", globals.threads, "Threads to use (default: all processors); results do not depend on it")
      ->type_name("N")
      ->check(whole(1, 256));
  program.add_option("--seed", globals.seed, "Seed of everything random (default: 1, in training the recipe's)")
      ->type_name("N")
      ->check(whole(0, std::numeric_limits<std::uint64_t>::max()));
  program.add_flag("--json", globals.json, "Print results as JSON, one object a line");
  // Children take over defaults and footer of their parent when they are made: the footer is set after them.
  program.group("Options");
  const char* const footer =
      "Examples:\n"
      "  attend translate --show-attention sentences.txt\n"
      "  echo 我喜欢学习。 | attend translate\n"
      "  attend generate 春 --samples 3\n"
      "  attend train recipe/tatoeba-zh-en.toml --output runs/mine\n"
      "  attend eval --hypotheses mine.txt --references theirs.txt --json\n\n"
      "Exit codes: 0 done, 1 failed, 2 called wrongly, 130 stopped by Ctrl-C. `attend COMMAND --help` tells more.";

  add_train(program, globals);
  add_translate(program, globals);
  add_generate(program, globals);
  add_score(program, globals);
  add_inspect(program, globals);
  add_edit(program, globals);
  add_heads(program, globals);
  add_align(program, globals);
  add_eval(program, globals);
  add_tokenize(program, globals);
  add_describe(program, globals);
  add_explore(program, globals);
  add_bench(program, globals);
  add_completion(program, globals);
  add_version(program, globals);
  add_help(program, globals);
  for (const auto& command : program.commands()) add_footers(*command);
  program.footer(footer);

  try {
    return command_line.run(std::span(arguments, static_cast<std::size_t>(count)), [&] {
      if (globals.threads) attend::set_threads(*globals.threads);
    });
  } catch (const WrongCall& wrong) {
    print_error(wrong.what());
    std::cerr << "Run `" << command_line.called() << " --help` for what is possible.\n";
    return 2;
  } catch (const ClosedPipe&) {
    return 1;
  } catch (const Exit& exit) {
    return exit.code;
  } catch (const attend::Error& error) {
    print_error(error.what());
    return error.kind() == attend::ErrorKind::argument ? 2 : 1;
  } catch (const std::bad_alloc&) {
    print_error("out of memory; use a smaller batch or a shorter text");
    return 1;
  } catch (const std::exception& error) {
    print_error(error.what());
    return 1;
  }
}
