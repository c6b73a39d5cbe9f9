// The options of a command. CLI11 reads them, inside command_line.cc alone: it would cost every file that includes it five
// seconds of compiling.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <stdexcept>
#include <string>
#include <vector>

namespace CLI {
class App;
class Option;
}  // namespace CLI

namespace attend::cli {

// What a value may be: wrong() tells what is the matter with one, in words that a person can read; empty: nothing.
struct Check {
  std::function<std::string(const std::string&)> wrong;
  std::vector<std::string> choices = {};  // all values there are; none: not a list
};
Check one_of(std::vector<std::string> choices);
Check at_least(std::int64_t least);
Check between(double lowest, double highest);
Check above_zero();
// Whole numbers of 64 bits without sign: a seed that did not fit would otherwise silently become another one.
Check whole(std::uint64_t lowest, std::uint64_t highest);

// The program is called wrongly.
class WrongCall : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

// An option or a positional argument; lives as long as its command.
class Option {
 public:
  explicit Option(CLI::Option* option) : option_(option) {}

  Option* show_default();                      // in the help; none is shown otherwise
  Option* type_name(const std::string& name);  // what stands for the value in the help
  Option* check(const Check& check);
  Option* required();
  Option* expected(int values);
  Option* one_each();  // of a list: one value for each use of the option
  // Words that the values are of, for completion and for telling a list from what stands after it; they are not checked.
  Option* words(std::vector<std::string> choices);
  Option* needs(const std::string& other);
  Option* excludes(const std::string& other);

  bool given() const;
  bool takes_value() const;
  bool positional() const;   // can be given without its name
  std::string name() const;  // "--model"
  std::string description() const;
  std::vector<std::string> long_names() const, short_names() const;  // without dashes
  const std::vector<std::string>& choices() const { return choices_; }
  // Would this be a value of the list, were it behind a comma? Never of other options.
  bool takes_more(const std::string& text) const;

 private:
  friend class Command;
  CLI::Option* option_;
  std::vector<std::string> choices_;
  bool list_ = false, numbers_ = false;
};

// The program, a command, or one below a command.
class Command {
 public:
  explicit Command(CLI::App* app);
  Command(const Command&) = delete;
  ~Command();

  Command* add_command(const std::string& name, const std::string& description);
  // Names as CLI11 writes them: "files" (positional), "--model,-m". Value: a type that command_line.cc lists.
  template <typename Value>
  Option* add_option(const std::string& name, Value& value, const std::string& help);
  Option* add_flag(const std::string& name, bool& value, const std::string& help);
  // "0,3" or "-1": values with commas between them, in one argument; given again, the option adds to them. A value that
  // stands apart ("0 3") is told of, since it would be taken for a text or a file.
  template <typename Value>
  Option* add_list(const std::string& name, std::vector<Value>& values, const std::string& help);
  void group(const std::string& heading);  // of the options that are added from here on
  void require_command();                  // one of those below
  void callback(std::function<void()> run);
  void footer(const std::string& text);  // the end of its help

  std::string name() const, description() const, footer() const;
  std::string help(const std::string& before) const;  // before: names of the commands above it
  const std::vector<std::unique_ptr<Command>>& commands() const { return commands_; }
  const std::vector<std::unique_ptr<Option>>& options() const { return options_; }

 private:
  friend class Program;
  Option* keep(CLI::Option* option);
  CLI::App* app_;
  std::vector<std::unique_ptr<Command>> commands_;
  std::vector<std::unique_ptr<Option>> options_;
};

// What is called from the shell.
class Program {
 public:
  Program(const std::string& name, const std::string& description, const std::string& version);
  ~Program();
  Command& command() { return *command_; }

  // Reads the arguments, calls `ready` when they are understood, and runs the command. Returns the exit code; prints what
  // --help and --version ask for, and without a command the help. WrongCall: the arguments are wrong. What commands
  // throw passes through.
  int run(std::span<char*> arguments, const std::function<void()>& ready);
  // The command in use with those above it: "attend bench attention".
  std::string called() const;

 private:
  std::string unknown_word(std::span<char*> arguments) const;
  std::string value_apart(std::span<char*> arguments) const;
  std::unique_ptr<CLI::App> app_;
  std::unique_ptr<Command> command_;
};

}  // namespace attend::cli
