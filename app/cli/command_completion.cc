#include <memory>

#include "commands.h"
#include "input_output.h"

namespace attend::cli {
namespace {

std::string flags_of(const CLI::App& command) {
  std::string words;
  for (const CLI::Option* option : command.get_options())
    for (const std::string& name : option->get_lnames()) {
      words += words.empty() ? "--" : " --";
      words += name;
    }
  return words;
}

std::string bash(const CLI::App& program) {
  std::string commands, cases;
  for (const CLI::App* command : program.get_subcommands([](const CLI::App*) { return true; })) {
    if (!commands.empty()) commands += ' ';
    commands += command->get_name();
    cases += "    " + command->get_name() + ") words=\"" + flags_of(*command) + " " + flags_of(program) + "\" ;;\n";
  }
  return "_attend() {\n"
         "  local current=${COMP_WORDS[COMP_CWORD]} command= word words\n"
         "  for word in \"${COMP_WORDS[@]:1:COMP_CWORD-1}\"; do\n"
         "    case $word in -*) ;; *) command=$word; break ;; esac\n"
         "  done\n"
         "  case $command in\n" +
         cases + "    *) words=\"" + commands + " " + flags_of(program) +
         "\" ;;\n"
         "  esac\n"
         "  if [[ -z $command || $current == -* ]]; then COMPREPLY=($(compgen -W \"$words\" -- \"$current\"))\n"
         "  else COMPREPLY=($(compgen -f -- \"$current\")); fi\n"
         "}\n"
         "complete -o filenames -F _attend attend\n";
}

std::string fish(const CLI::App& program) {
  std::string text = "complete -c attend -n __fish_use_subcommand -f\n";
  for (const CLI::App* command : program.get_subcommands([](const CLI::App*) { return true; })) {
    std::string description = command->get_description();
    for (std::size_t at = 0; (at = description.find('\'', at)) != std::string::npos; at += 2) description.insert(at, "\\");
    text += "complete -c attend -n __fish_use_subcommand -a " + command->get_name() + " -d '" + description + "'\n";
    for (const CLI::Option* option : command->get_options())
      for (const std::string& name : option->get_lnames())
        text += "complete -c attend -n '__fish_seen_subcommand_from " + command->get_name() + "' -l " + name + "\n";
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
