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
  const Command* command = nullptr;
  std::vector<std::string> below;  // names of commands
};

void collect(const Command& command, const std::string& name, std::vector<Completed>& all) {
  Completed entry{name, command.description(), &command, {}};
  for (const auto& each : command.commands()) entry.below.push_back(each->name());
  all.push_back(std::move(entry));
  for (const auto& each : command.commands())
    collect(*each, name.empty() ? each->name() : name + " " + each->name(), all);
}

std::vector<Completed> all_commands(const Command& program) {
  std::vector<Completed> all;
  collect(program, "", all);
  return all;
}

// "--model", "-m"
std::vector<std::string> names_of(const Option& option) {
  std::vector<std::string> names;
  for (const std::string& name : option.long_names()) names.push_back("--" + name);
  for (const std::string& name : option.short_names()) names.push_back("-" + name);
  return names;
}

// The values that an option or a positional argument may have; none: anything.
std::vector<std::string> values_of(const Option& option) {
  return option.name() == "--model" || option.name() == "model" ? shipped_models() : option.choices();
}

std::string joined(const std::vector<std::string>& words) {
  std::string text;
  for (const std::string& word : words) text += (text.empty() ? "" : " ") + word;
  return text;
}

std::string bash(const Command& program) {
  std::string commands, words, values, arguments, takers;
  std::set<std::string> nested;
  for (const auto& option : program.options())
    if (option->takes_value())
      for (const std::string& name : names_of(*option)) takers += (takers.empty() ? "" : "|") + name;
  for (const Completed& entry : all_commands(program)) {
    std::vector<std::string> options;
    for (const Command* command : {entry.command, &program})
      for (const auto& option : command->options())
        for (const std::string& name : names_of(*option))
          if (std::find(options.begin(), options.end(), name) == options.end()) options.push_back(name);
    words += "    '" + entry.name + "') words='" + joined(options) + "' ;;\n";
    if (!entry.below.empty()) {
      commands += "    '" + entry.name + "') words='" + joined(entry.below) + "' ;;\n";
      if (!entry.name.empty()) nested.insert(entry.name);
    }
    for (const auto& option : entry.command->options()) {
      if (!option->takes_value()) continue;
      const std::string list = joined(values_of(*option));
      for (const std::string& name : names_of(*option))
        values += "    '" + entry.name + " " + name + "') words='" + list + "'; valued=1 ;;\n";
      if (option->positional() && !list.empty()) arguments += "    '" + entry.name + "') words='" + list + "' ;;\n";
    }
  }
  for (const auto& option : program.options())
    if (option->takes_value())
      for (const std::string& name : names_of(*option)) values += "    *' " + name + "') valued=1 ;;\n";
  std::string going_deeper;
  for (const std::string& name : nested) going_deeper += (going_deeper.empty() ? "" : "|") + ("'" + name + "'");
  return "_attend() {\n"
         "  local current=${COMP_WORDS[COMP_CWORD]} previous=${COMP_WORDS[COMP_CWORD-1]} command= word words= valued= skip=\n"
         "  for word in \"${COMP_WORDS[@]:1:COMP_CWORD-1}\"; do\n"
         "    if [[ $skip ]]; then skip=; continue; fi\n"
         "    case $word in\n"
         "      " +
         takers +
         ") skip=1 ;;\n"
         "      -*) ;;\n"
         "      *) case $command in\n"
         "           '') command=$word ;;\n"
         "           " +
         (going_deeper.empty() ? "'-'" : going_deeper) +
         ") command+=\" $word\" ;;\n"
         "         esac ;;\n"
         "    esac\n"
         "  done\n"
         "  # The value of an option: one of a few, or else a file.\n"
         "  case \"$command $previous\" in\n" +
         values +
         "  esac\n"
         "  if [[ $valued ]]; then COMPREPLY=($(compgen -W \"$words\" -- \"$current\")); [[ ${COMPREPLY[*]} ]] || COMPREPLY=($(compgen -f -- \"$current\")); return; fi\n"
         "  if [[ $current == -* ]]; then\n"
         "    case $command in\n" +
         words +
         "    esac\n"
         "    COMPREPLY=($(compgen -W \"$words\" -- \"$current\"))\n"
         "    return\n"
         "  fi\n"
         "  case $command in\n" +
         commands +
         "  esac\n"
         "  if [[ $words ]]; then COMPREPLY=($(compgen -W \"$words\" -- \"$current\")); return; fi\n"
         "  case $command in\n" +
         arguments +
         "  esac\n"
         "  COMPREPLY=($(compgen -W \"$words\" -- \"$current\")); [[ ${COMPREPLY[*]} ]] || COMPREPLY=($(compgen -f -- \"$current\"))\n"
         "}\n"
         "complete -o filenames -F _attend attend\n";
}

std::string quoted(std::string text) {
  for (std::size_t at = 0; (at = text.find('\'', at)) != std::string::npos; at += 2) text.insert(at, "\\");
  return "'" + text + "'";
}

std::string fish(const Command& program) {
  std::string text;
  for (const Completed& entry : all_commands(program)) {
    std::string condition;
    std::istringstream names(entry.name);
    for (std::string name; names >> name;)
      condition += (condition.empty() ? "" : "; and ") + ("__fish_seen_subcommand_from " + name);
    const std::string line = "complete -c attend" + (condition.empty() ? "" : " -n " + quoted(condition));
    const std::string deeper = condition.empty()
                                   ? "__fish_use_subcommand"
                                   : condition + "; and not __fish_seen_subcommand_from " + joined(entry.below);
    for (const auto& below : entry.command->commands())
      text += "complete -c attend -f -n " + quoted(deeper) + " -a " + below->name() + " -d " +
              quoted(below->description()) + "\n";
    for (const auto& option : entry.command->options()) {
      const std::string values = joined(values_of(*option));
      if (names_of(*option).empty()) {
        if (!values.empty()) text += line + " -a " + quoted(values) + "\n";
        continue;
      }
      std::string flags;
      for (const std::string& name : option->long_names()) flags += " -l " + name;
      for (const std::string& name : option->short_names()) flags += " -s " + name;
      if (option->takes_value()) flags += values.empty() ? " -r" : " -x -a " + quoted(values);
      text += line + flags + " -d " + quoted(option->description()) + "\n";
    }
  }
  return text;
}

}  // namespace

void add_completion(Command& program, Globals&) {
  Command* command = program.add_command("completion", "Print the completion script of a shell");
  auto shell = std::make_shared<std::string>();
  command->add_option("shell", *shell, "bash, zsh or fish")->required()->check(one_of({"bash", "zsh", "fish"}));
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
