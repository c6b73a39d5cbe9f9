// attend: the command line. Exit codes: 0 done, 1 failed, 2 called wrongly.
#include <CLI/CLI.hpp>
#include <csignal>
#include <iostream>
#include <new>

#include "attend/error.h"
#include "attend/threads.h"
#include "commands.h"
#include "input_output.h"
#include "terminal.h"

namespace {

void print_error(const char* text) {
  const bool colour = attend::cli::colour_wanted(2);
  std::cerr << (colour ? "\033[31mattend:\033[0m " : "attend: ") << text << '\n';
}

}  // namespace

int main(int count, char** arguments) {
  using namespace attend::cli;
  std::signal(SIGPIPE, SIG_IGN);

  Globals globals;
  CLI::App program("Attend trains, runs and opens up Transformers.");
  program.name("attend");
  program.require_subcommand(0, 1);
  program.fallthrough();
  program.option_defaults()->group("Options of every command");
  program.add_option("--threads", globals.threads, "Threads to use (default: all processors); results do not depend on it")
      ->type_name("N");
  program.add_option("--seed", globals.seed, "Seed of everything random")->type_name("N");
  program.add_flag("--json", globals.json, "Print results as JSON, one object a line");
  program.footer(
      "Examples:\n"
      "  attend translate --show-attention sentences.txt\n"
      "  echo 我喜欢学习。 | attend translate\n"
      "  attend generate 春 --samples 3\n"
      "  attend train recipe/tatoeba-zh-en.toml --output runs/mine\n"
      "  attend eval --hypotheses mine.txt --references theirs.txt --json\n\n"
      "Exit codes: 0 done, 1 failed, 2 called wrongly. `attend COMMAND --help` tells more.");

  const auto apply_threads = [&] {
    if (globals.threads) attend::set_threads(*globals.threads);
  };
  program.parse_complete_callback(apply_threads);
  add_train(program, globals);
  add_translate(program, globals);
  add_generate(program, globals);
  add_score(program, globals);
  add_inspect(program, globals);
  add_heads(program, globals);
  add_align(program, globals);
  add_eval(program, globals);
  add_tokenize(program, globals);
  add_describe(program, globals);
  add_explore(program, globals);
  add_bench(program, globals);
  add_completion(program, globals);
  add_version(program, globals);
  for (CLI::App* command : program.get_subcommands({}))
    command->footer("Options of every command: --threads N, --seed N, --json (see `attend --help`).\n\n" + command->get_footer());

  try {
    program.parse(count, arguments);
    if (program.get_subcommands().empty()) {
      std::cout << program.help();
      return count > 1 ? 2 : 0;
    }
    return 0;
  } catch (const CLI::Success& asked) {
    return program.exit(asked);
  } catch (const CLI::ParseError& wrong) {
    print_error(wrong.what());
    std::cerr << "Run `attend";
    for (const CLI::App* command : program.get_subcommands()) std::cerr << ' ' << command->get_name();
    std::cerr << " --help` for what is possible.\n";
    return 2;
  } catch (const ClosedPipe&) {
    return 1;
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
