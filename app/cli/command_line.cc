#include "command_line.h"

#include <CLI/CLI.hpp>
#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstdlib>
#include <filesystem>
#include <iostream>
#include <optional>
#include <sstream>
#include <string_view>
#include <type_traits>
#include <utility>

#include "attend/error.h"
#include "attend/names.h"

namespace attend::cli {

Check one_of(std::vector<std::string> choices) {
  const auto wrong = [choices](const std::string& text) {
    if (std::find(choices.begin(), choices.end(), text) != choices.end()) return std::string();
    std::string list;
    for (const std::string& choice : choices) list += (list.empty() ? "" : ", ") + choice;
    return join("'", text, "' is none of ", list);
  };
  return {wrong, std::move(choices)};
}

Check at_least(std::int64_t least) {
  return {[least](const std::string& text) {
    std::int64_t value = 0;
    const auto [end, code] = std::from_chars(text.data(), text.data() + text.size(), value);
    if (code != std::errc() || end != text.data() + text.size()) return join("'", text, "' is no whole number");
    return value < least ? join("'", text, "' is too small: at least ", least) : std::string();
  }};
}

namespace {

// Not finite: no number that an option may have.
double number_of(const std::string& text) {
  char* end = nullptr;
  const double value = std::strtod(text.c_str(), &end);
  return text.empty() || *end != '\0' ? std::nan("") : value;
}

}  // namespace

Check between(double lowest, double highest) {
  return {[lowest, highest](const std::string& text) {
    const double value = number_of(text);
    if (!std::isfinite(value)) return join("'", text, "' is no number");
    return value >= lowest && value <= highest ? std::string()
                                               : join("'", text, "' is not from ", lowest, " to ", highest);
  }};
}

Check above_zero() {
  return {[](const std::string& text) {
    const double value = number_of(text);
    if (!std::isfinite(value)) return join("'", text, "' is no number");
    return value > 0 ? std::string() : join("'", text, "' is not above 0");
  }};
}

Check whole(std::uint64_t lowest, std::uint64_t highest) {
  return {[lowest, highest](const std::string& text) {
    std::uint64_t value = 0;
    const auto [end, code] = std::from_chars(text.data(), text.data() + text.size(), value);
    if (code == std::errc() && end == text.data() + text.size() && value >= lowest && value <= highest)
      return std::string();
    return join("'", text, "' is no whole number from ", lowest, " to ", highest);
  }};
}

Option* Option::show_default() {
  option_->capture_default_str();
  return this;
}

Option* Option::type_name(const std::string& name) {
  option_->type_name(name);
  return this;
}

Option* Option::check(const Check& check) {
  std::string shown;
  for (const std::string& choice : check.choices) shown += (shown.empty() ? "{" : ",") + choice;
  option_->check(CLI::Validator([wrong = check.wrong](std::string& text) { return wrong(text); },
                                shown.empty() ? shown : shown + "}"));
  if (!check.choices.empty()) choices_ = check.choices;
  return this;
}

Option* Option::required() {
  option_->required();
  return this;
}

Option* Option::expected(int values) {
  option_->expected(values);
  return this;
}

Option* Option::one_each() {
  option_->allow_extra_args(false);
  return this;
}

Option* Option::words(std::vector<std::string> choices) {
  choices_ = std::move(choices);
  return this;
}

bool Option::takes_more(const std::string& text) const {
  if (!list_ || text.empty()) return false;
  std::stringstream values(text);
  for (std::string value; std::getline(values, value, ',');) {
    std::int64_t number = 0;
    const auto [end, code] = std::from_chars(value.data(), value.data() + value.size(), number);
    if (numbers_ ? code != std::errc() || end != value.data() + value.size()
                 : std::find(choices_.begin(), choices_.end(), value) == choices_.end())
      return false;
  }
  return true;
}

Option* Option::needs(const std::string& other) {
  option_->needs(other);
  return this;
}

Option* Option::excludes(const std::string& other) {
  option_->excludes(other);
  return this;
}

bool Option::given() const { return option_->count() > 0; }
bool Option::takes_value() const { return option_->get_items_expected_max() > 0; }
bool Option::positional() const { return option_->get_positional(); }
std::string Option::name() const { return option_->get_name(); }
std::string Option::description() const { return option_->get_description(); }
std::vector<std::string> Option::long_names() const { return option_->get_lnames(); }
std::vector<std::string> Option::short_names() const { return option_->get_snames(); }

Command::Command(CLI::App* app) : app_(app) {
  for (CLI::Option* option : app->get_options()) keep(option);  // --help
}

Command::~Command() = default;

Option* Command::keep(CLI::Option* option) {
  options_.push_back(std::make_unique<Option>(option));
  return options_.back().get();
}

Command* Command::add_command(const std::string& name, const std::string& description) {
  commands_.push_back(std::make_unique<Command>(app_->add_subcommand(name, description)));
  return commands_.back().get();
}

namespace {

// What CLI11 says is "Could not convert: --top = x".
template <typename Number>
Check readable() {
  return {[](const std::string& text) {
    if constexpr (std::is_floating_point_v<Number>) {
      return std::isfinite(number_of(text)) ? std::string() : join("'", text, "' is no number");
    } else {
      Number value{};
      const auto [end, code] = std::from_chars(text.data(), text.data() + text.size(), value);
      if (code == std::errc() && end == text.data() + text.size()) return std::string();
      return join("'", text, code == std::errc::result_out_of_range ? "' is out of range" : "' is no whole number");
    }
  }};
}

}  // namespace

template <typename Value>
Option* Command::add_option(const std::string& name, Value& value, const std::string& help) {
  Option* const option = keep(app_->add_option(name, value, help));
  if constexpr (std::is_arithmetic_v<Value>) option->check(readable<Value>());
  return option;
}

template Option* Command::add_option(const std::string&, std::string&, const std::string&);
template Option* Command::add_option(const std::string&, std::vector<std::string>&, const std::string&);
template Option* Command::add_option(const std::string&, int&, const std::string&);
template Option* Command::add_option(const std::string&, std::uint16_t&, const std::string&);
template Option* Command::add_option(const std::string&, std::int64_t&, const std::string&);
template Option* Command::add_option(const std::string&, double&, const std::string&);
template Option* Command::add_option(const std::string&, std::optional<int>&, const std::string&);
template Option* Command::add_option(const std::string&, std::optional<double>&, const std::string&);
template Option* Command::add_option(const std::string&, std::optional<std::uint64_t>&, const std::string&);

Option* Command::add_flag(const std::string& name, bool& value, const std::string& help) {
  return keep(app_->add_flag(name, value, help));
}

template <typename Value>
Option* Command::add_list(const std::string& name, std::vector<Value>& values, const std::string& help) {
  // One argument of any number of values: fewer than CLI11's "unlimited", which its help would show as many arguments.
  Option* const option = keep(app_->add_option(name, values, help)
                                  ->delimiter(',')
                                  ->allow_extra_args(false)
                                  ->expected(1, CLI::detail::expected_max_vector_size / 16)
                                  ->type_name(std::is_same_v<Value, std::string> ? "NAME,NAME,..." : "N,N,..."));
  option->list_ = true;
  option->numbers_ = std::is_arithmetic_v<Value>;
  if constexpr (std::is_arithmetic_v<Value>) option->check(readable<Value>());
  return option;
}

template Option* Command::add_list(const std::string&, std::vector<int>&, const std::string&);
template Option* Command::add_list(const std::string&, std::vector<std::int64_t>&, const std::string&);
template Option* Command::add_list(const std::string&, std::vector<std::string>&, const std::string&);

void Command::group(const std::string& heading) { app_->option_defaults()->group(heading); }
void Command::require_command() { app_->require_subcommand(1); }
void Command::callback(std::function<void()> run) { app_->callback(std::move(run)); }
void Command::footer(const std::string& text) { app_->footer(text); }

std::string Command::name() const { return app_->get_name(); }
std::string Command::description() const { return app_->get_description(); }
std::string Command::footer() const { return app_->get_footer(); }

std::string Command::help(const std::string& before) const {
  // help() of the program would give that of the command in use.
  return app_->get_parent() ? app_->help(before)
                            : app_->get_formatter()->make_help(app_, app_->get_name(), CLI::AppFormatMode::Normal);
}

Program::Program(const std::string& name, const std::string& description, const std::string& version)
    : app_(std::make_unique<CLI::App>(description)) {
  app_->name(name);
  app_->require_subcommand(0, 1);
  app_->fallthrough();
  app_->set_version_flag("--version", name + " " + version, "Print the version and end");
  command_ = std::make_unique<Command>(app_.get());
}

Program::~Program() = default;

std::string Program::called() const {
  std::string names = app_->get_name();
  for (const CLI::App* app = app_.get(); !app->get_subcommands().empty();) {
    app = app->get_subcommands().front();
    names += " " + app->get_name();
  }
  return names;
}

// What CLI11 only says in words of its own; empty where they will do.
std::string Program::unknown_word(std::span<char*> arguments) const {
  const CLI::App* command = app_.get();
  while (!command->get_subcommands().empty()) command = command->get_subcommands().front();
  std::vector<std::string> commands, options;
  for (const CLI::App* each : command->get_subcommands([](const CLI::App*) { return true; }))
    commands.push_back(each->get_name());
  for (const CLI::App* each : {command, static_cast<const CLI::App*>(app_.get())})
    for (const CLI::Option* option : each->get_options())
      for (const std::string& name : option->get_lnames()) options.push_back("--" + name);
  // CLI11 keeps them in an order of its own.
  const std::vector<std::string> left = app_->remaining(true);
  for (const std::string word : arguments) {
    if (std::find(left.begin(), left.end(), word) == left.end()) continue;
    const bool option = word.starts_with("-");
    if (!option && commands.empty()) continue;
    const std::string near = nearest_name(word.substr(0, word.find('=')), option ? options : commands);
    return std::string("unknown ") + (option ? "option" : "command") + " '" + word + "'" +
           (near.empty() ? "" : "; did you mean " + near + "?");
  }
  if (commands.empty() || command == app_.get()) return "";
  std::string all;
  for (const std::string& name : commands) all += (all.empty() ? "" : ", ") + name;
  return called() + " does one of " + all + ": say which";
}

// "--layers 1 2": the 2 would become a text or a file. Empty: nothing of the kind.
std::string Program::value_apart(std::span<char*> arguments) const {
  const Command* command = command_.get();
  for (std::size_t i = 0; i < arguments.size() && std::string_view(arguments[i]) != "--"; ++i) {
    const std::string word = arguments[i];
    if (!word.starts_with("-")) {
      for (const auto& below : command->commands())
        if (below->name() == word) {
          command = below.get();
          break;
        }
      continue;
    }
    const std::size_t equals = word.find('=');
    for (const auto& option : command->options()) {
      if (word.substr(0, equals) != option->name()) continue;
      std::size_t next = i + (equals == std::string::npos ? 2 : 1);
      std::string all = equals != std::string::npos ? word.substr(equals + 1)
                        : next <= arguments.size()  ? arguments[i + 1]
                                                    : "",
                  apart;
      for (; next < arguments.size() && option->takes_more(arguments[next]); ++next) {
        if (apart.empty()) apart = arguments[next];
        all += join(",", arguments[next]);
      }
      if (!apart.empty())
        return join("'", apart, "' stands apart from the values of ", option->name(), ": write ", option->name(), " ",
                    all, "; if it is none of them, put it in front of the options or after --");
    }
  }
  return "";
}

int Program::run(std::span<char*> arguments, const std::function<void()>& ready) {
  app_->parse_complete_callback([&] {
    if (const std::string apart = value_apart(arguments.subspan(1)); !apart.empty()) throw WrongCall(apart);
    ready();
  });
  try {
    app_->parse(static_cast<int>(arguments.size()), arguments.data());
    if (!app_->get_subcommands().empty()) return 0;
    std::cout << app_->help();
    return arguments.size() > 1 ? 2 : 0;
  } catch (const CLI::Success& asked) {
    return app_->exit(asked);
  } catch (const CLI::ParseError& wrong) {
    if (const std::string apart = value_apart(arguments.subspan(1)); !apart.empty()) throw WrongCall(apart);
    const auto code = static_cast<CLI::ExitCodes>(wrong.get_exit_code());
    const bool left = code == CLI::ExitCodes::ExtrasError || code == CLI::ExitCodes::RequiredError;
    const std::string unknown = left ? unknown_word(arguments.subspan(1)) : "";
    throw WrongCall(unknown.empty() ? wrong.what() : unknown);
  }
}

}  // namespace attend::cli
