#include <algorithm>
#include <memory>
#include <set>
#include <sstream>
#include <utility>

#include "commands.h"
#include "input_output.h"

namespace attend::cli {
namespace {

// A command with what may follow it: "bench attention".
struct Completed {
  std::string name, description;
  const CLI::App* command = nullptr;
  std::vector<std::string> below;  // names of commands
};

void collect(const CLI::App& command, const std::string& name, std::vector<Completed>& all) {
  Completed entry{name, command.get_description(), &command, {}};
  const auto below = command.get_subcommands([](const CLI::App*) { return true; });
  for (const CLI::App* each : below) entry.below.push_back(each->get_name());
  all.push_back(std::move(entry));
  for (const CLI::App* each : below) collect(*each, name.empty() ? each->get_name() : name + " " + each->get_name(), all);
}

std::vector<Completed> all_commands(const CLI::App& program) {
  std::vector<Completed> all;
  collect(program, "", all);
  return all;
}

// "--model", "-m"
std::vector<std::string> names_of(const CLI::Option& option) {
  std::vector<std::string> names;
  for (const std::string& name : option.get_lnames()) names.push_back("--" + name);
  for (const std::string& name : option.get_snames()) names.push_back("-" + name);
  return names;
}

// The values that an option or a positional argument may have; none: anything.
std::vector<std::string> values_of(const CLI::Option& option) {
  if (option.check_lname("model") || option.check_name("model")) return shipped_models();
  std::vector<std::string> values;
  const std::string type = option.get_type_name();
  const std::size_t begin = type.find('{'), end = type.find('}');
  if (begin == std::string::npos || end == std::string::npos) return values;
  std::istringstream list(type.substr(begin + 1, end - begin - 1));
  for (std::string value; std::getline(list, value, ',');) values.push_back(value);
  return values;
}

std::string joined(const std::vector<std::string>& words) {
  std::string text;
  for (const std::string& word : words) text += (text.empty() ? "" : " ") + word;
  return text;
}

std::string bash(const CLI::App& program) {
  std::string commands, words, values, arguments, takers;
  std::set<std::string> nested;
  const auto taking = [](const CLI::Option& option) { return option.get_items_expected_max() > 0; };
  for (const CLI::Option* option : program.get_options())
    if (taking(*option))
      for (const std::string& name : names_of(*option)) takers += (takers.empty() ? "" : "|") + name;
  for (const Completed& entry : all_commands(program)) {
    std::vector<std::string> options;
    for (const CLI::App* app : {entry.command, &program})
      for (const CLI::Option* option : app->get_options())
        for (const std::string& name : names_of(*option))
          if (std::find(options.begin(), options.end(), name) == options.end()) options.push_back(name);
    words += "    '" + entry.name + "') words='" + joined(options) + "' ;;\n";
    if (!entry.below.empty()) {
      commands += "    '" + entry.name + "') words='" + joined(entry.below) + "' ;;\n";
      if (!entry.name.empty()) nested.insert(entry.name);
    }
    for (const CLI::Option* option : entry.command->get_options()) {
      if (!taking(*option)) continue;
      const std::string list = joined(values_of(*option));
      for (const std::string& name : names_of(*option)) values += "    '" + entry.name + " " + name + "') words='" + list + "'; valued=1 ;;\n";
      if (option->get_positional() && !list.empty()) arguments += "    '" + entry.name + "') words='" + list + "' ;;\n";
    }
  }
  for (const CLI::Option* option : program.get_options())
    if (taking(*option))
      for (const std::string& name : names_of(*option)) values += "    *' " + name + "') valued=1 ;;\n";
  std::string going_deeper;
  for (const std::string& name : nested) going_deeper += (going_deeper.empty() ? "" : "|") + ("'" + name + "'");
  return "_attend() {\n"
         "  local current=${COMP_WORDS[COMP_CWORD]} previous=${COMP_WORDS[COMP_CWORD-1]} command= word words= valued= skip=\n"
         "  for word in \"${COMP_WORDS[@]:1:COMP_CWORD-1}\"; do\n"
         "    if [[ $skip ]]; then skip=; continue; fi\n"
         "    case $word in\n"
         "      " + takers + ") skip=1 ;;\n"
         "      -*) ;;\n"
         "      *) case $command in\n"
         "           '') command=$word ;;\n"
         "           " + (going_deeper.empty() ? "'-'" : going_deeper) + ") command+=\" $word\" ;;\n"
         "         esac ;;\n"
         "    esac\n"
         "  done\n"
         "  # The value of an option: one of a few, or else a file.\n"
         "  case \"$command $previous\" in\n" + values +
         "  esac\n"
         "  if [[ $valued ]]; then COMPREPLY=($(compgen -W \"$words\" -- \"$current\")); [[ ${COMPREPLY[*]} ]] || COMPREPLY=($(compgen -f -- \"$current\")); return; fi\n"
         "  if [[ $current == -* ]]; then\n"
         "    case $command in\n" + words +
         "    esac\n"
         "    COMPREPLY=($(compgen -W \"$words\" -- \"$current\"))\n"
         "    return\n"
         "  fi\n"
         "  case $command in\n" + commands +
         "  esac\n"
         "  if [[ $words ]]; then COMPREPLY=($(compgen -W \"$words\" -- \"$current\")); return; fi\n"
         "  case $command in\n" + arguments +
         "  esac\n"
         "  COMPREPLY=($(compgen -W \"$words\" -- \"$current\")); [[ ${COMPREPLY[*]} ]] || COMPREPLY=($(compgen -f -- \"$current\"))\n"
         "}\n"
         "complete -o filenames -F _attend attend\n";
}

std::string quoted(std::string text) {
  for (std::size_t at = 0; (at = text.find('\'', at)) != std::string::npos; at += 2) text.insert(at, "\\");
  return "'" + text + "'";
}

std::string fish(const CLI::App& program) {
  std::string text;
  for (const Completed& entry : all_commands(program)) {
    std::string condition;
    std::istringstream names(entry.name);
    for (std::string name; names >> name;) condition += (condition.empty() ? "" : "; and ") + ("__fish_seen_subcommand_from " + name);
    const std::string line = "complete -c attend" + (condition.empty() ? "" : " -n " + quoted(condition));
    const std::string deeper = condition.empty() ? "__fish_use_subcommand" : condition + "; and not __fish_seen_subcommand_from " + joined(entry.below);
    for (const CLI::App* below : entry.command->get_subcommands([](const CLI::App*) { return true; }))
      text += "complete -c attend -f -n " + quoted(deeper) + " -a " + below->get_name() + " -d " + quoted(below->get_description()) + "\n";
    for (const CLI::Option* option : entry.command->get_options()) {
      const std::string values = joined(values_of(*option));
      if (!option->nonpositional()) {
        if (!values.empty()) text += line + " -a " + quoted(values) + "\n";
        continue;
      }
      std::string flags;
      for (const std::string& name : option->get_lnames()) flags += " -l " + name;
      for (const std::string& name : option->get_snames()) flags += " -s " + name;
      if (option->get_items_expected_max() > 0) flags += values.empty() ? " -r" : " -x -a " + quoted(values);
      text += line + flags + " -d " + quoted(option->get_description()) + "\n";
    }
  }
  return text;
}

}  // namespace

void add_completion(CLI::App& program, Globals&) {
  CLI::App* command = program.add_subcommand("completion", "Print the completion script of a shell");
  auto shell = std::make_shared<std::string>();
  command->add_option("shell", *shell, "bash, zsh or fish")->required()->check(CLI::IsMember({"bash", "zsh", "fish"}));
  command->footer(
      "Examples:\n"
      "  source <(attend completion bash)\n"
      "  attend completion fish > ~/.config/fish/completions/attend.fish");
  command->callback([shell, &program] {
    Output out;
    if (*shell == "zsh") out.text("autoload -U +X bashcompinit && bashcompinit\n");
    out.text(*shell == "fish" ? fish(program) : bash(program));
    out.flush();
  });
}

}  // namespace attend::cli
