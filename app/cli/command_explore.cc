#include <fcntl.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <iostream>
#include <memory>
#include <nlohmann/json.hpp>

#include "commands.h"
#include "explorer/explorer.h"
#include "input_output.h"
#include "terminal.h"

extern char** environ;

namespace attend::cli {
namespace {

struct Options {
  std::string model;
  std::vector<std::string> folders;
  std::string host = "127.0.0.1";
  std::uint16_t port = 8421;
  bool no_browser = false;
};

// Opens the address in the browser of the desktop, if there is one. What fails is no error: the address is printed. A shell
// starts the browser and ends, so that the browser is nobody's to wait for.
void open_browser(const std::string& url) {
  if (!std::getenv("DISPLAY") && !std::getenv("WAYLAND_DISPLAY")) return;
  posix_spawn_file_actions_t actions;
  if (posix_spawn_file_actions_init(&actions) != 0) return;
  for (const int descriptor : {STDIN_FILENO, STDOUT_FILENO, STDERR_FILENO})
    posix_spawn_file_actions_addopen(&actions, descriptor, "/dev/null", O_RDWR, 0);
  std::string shell = "sh", option = "-c", script = "xdg-open \"$0\" &", address = url;
  char* arguments[] = {shell.data(), option.data(), script.data(), address.data(), nullptr};
  pid_t child = 0;
  if (posix_spawnp(&child, shell.c_str(), &actions, nullptr, arguments, environ) == 0) waitpid(child, nullptr, 0);
  posix_spawn_file_actions_destroy(&actions);
}

// Folders that were looked into for models in vain.
void tell_skipped(const std::vector<std::filesystem::path>& folders) {
  constexpr std::size_t most = 20;
  if (folders.empty()) return;
  std::string list;
  for (std::size_t i = 0; i < std::min(most, folders.size()); ++i) list += (i == 0 ? "" : ", ") + folders[i].string();
  if (folders.size() > most) list += join(" and ", folders.size() - most, " more");
  std::cerr << "attend: no model (config.json and model.safetensors) in " << shown(list, STDERR_FILENO) << "\n";
}

void run(const Options& options, const Globals& globals) {
  explorer::ExplorerOptions explore;
  explore.host = options.host;
  explore.port = options.port;
  if (options.model.empty()) explore.preferred = "tatoeba-zh-en";
  else explore.models.push_back(find_model(options.model));
  for (const std::string& folder : options.folders) explore.models.emplace_back(folder);
  if (options.folders.empty())
    for (const std::string& name : shipped_models()) explore.models.push_back(find_model(name));
  explorer::explore(explore, [&](const explorer::ExplorerStart& start) {
    Output out;
    if (globals.json) out.json({{"url", start.url}});
    else out.line(start.url);
    out.flush();
    tell_skipped(start.skipped);
    if (!start.loopback)
      std::cerr << "attend: everybody who reaches this machine can use the explorer; it knows no passwords\n";
    if (!globals.json) std::cerr << "Ctrl-C ends.\n";
    if (!options.no_browser) open_browser(start.url);
  });
}

}  // namespace

void add_explore(Command& program, Globals& globals) {
  Command* command =
      program.add_command("explore", "Open a page on attention: lessons, a workbench, a model from inside");
  auto options = std::make_shared<Options>();
  command->add_option("model", options->model,
                      "Model folder, or the name of a model that ships (default: the translator)");
  command
      ->add_option("--models", options->folders,
                   "Folder of model folders to choose from, such as a run's (default: those that ship)")
      ->type_name("FOLDER")
      ->one_each();
  command->add_option("--port", options->port, "Port to listen at; 0: any that is free")->show_default();
  command->add_option("--host", options->host, "Address to listen at; others than 127.0.0.1 let other machines in")
      ->show_default();
  command->add_flag("--no-browser", options->no_browser, "Only print the address");
  command->footer(
      "Examples:\n"
      "  attend explore\n"
      "  attend explore runs/mine/best --no-browser\n"
      "  attend explore --models runs --port 0 --json");
  command->callback([options, &globals] { run(*options, globals); });
}

}  // namespace attend::cli
