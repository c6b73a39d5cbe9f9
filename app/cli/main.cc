// attend: the command line. Exit codes: 0 done, 1 failed, 2 called wrongly, 128 + N stopped by signal N.
#include <CLI/CLI.hpp>
#include <algorithm>
#include <charconv>
#include <csignal>
#include <cstdint>
#include <iostream>
#include <limits>
#include <new>
#include <span>
#include <string>
#include <vector>

#include "attend/error.h"
#include "attend/names.h"
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

// Whole numbers in words of their own: a seed that did not fit would otherwise silently become another one.
CLI::Validator whole(std::uint64_t lowest, std::uint64_t highest) {
  return CLI::Validator(
      [lowest, highest](std::string& text) {
        std::uint64_t value = 0;
        const auto [end, code] = std::from_chars(text.data(), text.data() + text.size(), value);
        if (code == std::errc() && end == text.data() + text.size() && value >= lowest && value <= highest) return std::string();
        return attend::join("'", text, "' is no whole number from ", lowest, " to ", highest);
      },
      "");
}

// The rest of every command's help, and of those below it.
void add_footers(CLI::App& command) {
  const std::string own = command.get_footer();
  command.footer("Options of every command: --threads N, --seed N, --json (see `attend --help`)." + (own.empty() ? "" : "\n\n" + own));
  for (CLI::App* below : command.get_subcommands({})) add_footers(*below);
}

// "unknown command 'translat'; did you mean translate?" where CLI11 only says that it did not expect the words.
std::string wrong_call(const CLI::App& program, const CLI::ParseError& wrong, std::span<char*> arguments) {
  const auto code = static_cast<CLI::ExitCodes>(wrong.get_exit_code());
  if (code != CLI::ExitCodes::ExtrasError && code != CLI::ExitCodes::RequiredError) return wrong.what();
  const CLI::App* command = &program;
  while (!command->get_subcommands().empty()) command = command->get_subcommands().front();
  std::vector<std::string> commands, options;
  for (const CLI::App* each : command->get_subcommands([](const CLI::App*) { return true; })) commands.push_back(each->get_name());
  for (const CLI::App* each : {command, &program})
    for (const CLI::Option* option : each->get_options())
      for (const std::string& name : option->get_lnames()) options.push_back("--" + name);
  // CLI11 keeps them in an order of its own.
  const std::vector<std::string> left = program.remaining(true);
  for (const std::string word : arguments.subspan(1)) {
    if (std::find(left.begin(), left.end(), word) == left.end()) continue;
    const bool option = word.starts_with("-");
    if (!option && commands.empty()) continue;
    const std::string near = attend::nearest_name(word.substr(0, word.find('=')), option ? options : commands);
    return std::string("unknown ") + (option ? "option" : "command") + " '" + word + "'" + (near.empty() ? "" : "; did you mean " + near + "?");
  }
  return wrong.what();
}

}  // namespace

int main(int count, char** arguments) {
  using namespace attend::cli;
  // Writing then fails with an error that is told, as on a full disk, instead of ending the program without a word.
  for (const int signal : {SIGPIPE, SIGXFSZ}) std::signal(signal, SIG_IGN);

  Globals globals;
  CLI::App program("Attend trains, runs and opens up Transformers.");
  program.name("attend");
  program.require_subcommand(0, 1);
  program.fallthrough();
  program.option_defaults()->group("Options of every command");
  program.add_option("--threads", globals.threads, "Threads to use (default: all processors); results do not depend on it")
      ->type_name("N")
      ->check(whole(1, 256));
  program.add_option("--seed", globals.seed, "Seed of everything random (default: 1, in training the recipe's)")
      ->type_name("N")
      ->check(whole(0, std::numeric_limits<std::uint64_t>::max()));
  program.add_flag("--json", globals.json, "Print results as JSON, one object a line");
  program.set_version_flag("--version", std::string("attend ") + attend::version(), "Print the version and end");
  // Children take over defaults and footer of their parent when they are made: the footer is set after them.
  program.option_defaults()->group("Options");
  const char* const footer =
      "Examples:\n"
      "  attend translate --show-attention sentences.txt\n"
      "  echo 我喜欢学习。 | attend translate\n"
      "  attend generate 春 --samples 3\n"
      "  attend train recipe/tatoeba-zh-en.toml --output runs/mine\n"
      "  attend eval --hypotheses mine.txt --references theirs.txt --json\n\n"
      "Exit codes: 0 done, 1 failed, 2 called wrongly, 130 stopped by Ctrl-C. `attend COMMAND --help` tells more.";

  const auto apply_threads = [&] {
    if (globals.threads) attend::set_threads(*globals.threads);
  };
  program.parse_complete_callback(apply_threads);
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
  for (CLI::App* command : program.get_subcommands({})) add_footers(*command);
  program.footer(footer);

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
    print_error(wrong_call(program, wrong, std::span(arguments, static_cast<std::size_t>(count))));
    std::cerr << "Run `attend";
    for (const CLI::App* command : program.get_subcommands()) std::cerr << ' ' << command->get_name();
    std::cerr << " --help` for what is possible.\n";
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
