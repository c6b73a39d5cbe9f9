#include <unistd.h>

#include <atomic>
#include <csignal>
#include <iostream>
#include <memory>
#include <nlohmann/json.hpp>
#include <string_view>

#include "attend/error.h"
#include "attend/train.h"
#include "commands.h"
#include "input_output.h"
#include "progress.h"
#include "terminal.h"

namespace attend::cli {
namespace {

std::atomic<bool> stop_asked{false};
std::atomic<int> stop_signal{SIGINT};

// The first Ctrl-C (or SIGTERM) saves and ends; a second one ends at once, and the last checkpoint stays whole. What is
// being done may take a while (a tokenizer is trained in one piece), so the answer comes from here.
void ask_to_stop(int signal) {
  if (stop_asked.exchange(true)) {
    std::signal(signal, SIG_DFL);
    std::raise(signal);
    return;
  }
  stop_signal = signal;
  static constexpr std::string_view text =
      "\nattend: stopping once this step is done and saved; Ctrl-C again ends at once\n";
  const std::string_view said = is_terminal(STDERR_FILENO) ? text : text.substr(1);
  if (::write(STDERR_FILENO, said.data(), said.size()) < 0) return;  // nobody reads, which does not matter here
}

struct Options {
  std::string recipe, output, data, start_from;
  bool resume = false, overwrite = false, plan = false;
  std::int64_t steps = 0, epochs = 0;
};

void run(const Options& options, const Globals& globals) {
  if (options.recipe.empty() && !options.resume) throw WrongCall("RECIPE is required");
  if (options.recipe.empty() && options.output.empty())
    throw WrongCall("--output, the folder of the run to resume, is required");
  const Recipe recipe = options.recipe.empty() ? source_of_run(options.output).recipe : load_recipe(options.recipe);
  TrainOptions train_options;
  train_options.run_folder =
      options.output.empty() ? "runs/" + std::filesystem::path(options.recipe).stem().string() : options.output;
  train_options.data_folder = options.data;
  if (!options.start_from.empty()) train_options.start_from = find_model(options.start_from);
  train_options.resume = options.resume;
  train_options.overwrite = options.overwrite;
  train_options.seed = globals.seed;
  if (options.steps) train_options.steps = options.steps;
  if (options.epochs) train_options.epochs = options.epochs;

  Output out;
  if (options.plan) {
    TrainProgress progress;
    train_options.observer = &progress;
    const TrainPlan plan = plan_training(recipe, train_options);
    if (globals.json) out.json(to_json(plan));
    else progress.on_start(plan);
    out.flush();
    return;
  }
  if (!options.resume && !options.overwrite && holds_run(train_options.run_folder))
    throw Error(ErrorKind::argument, train_options.run_folder.string(), "the folder already holds a run",
                "give --resume to go on with it, another --output, or --overwrite to remove it");
  TrainProgress progress;
  train_options.observer = &progress;
  train_options.stop = &stop_asked;
  std::signal(SIGINT, ask_to_stop);
  std::signal(SIGTERM, ask_to_stop);
  const TrainResult result = train(recipe, train_options);
  progress.end();

  static const char* const ends[] = {"finished", "early stop", "stopped"};
  const char* end = ends[static_cast<int>(result.end)];
  if (globals.json) {
    Json summary{{"end", end},
                 {"step", result.step},
                 {"epoch", result.epoch},
                 {"train_loss", result.train_loss},
                 {"seconds", result.seconds}};
    if (result.best) summary["best"] = to_json(*result.best);
    if (result.last) summary["last"] = to_json(*result.last);
    if (result.final_scores) summary["final"] = to_json(*result.final_scores);
    summary["model"] = result.final_folder.string();
    out.json(summary);
  } else {
    std::cerr << "attend: " << end << " at step " << result.step << " after " << short_time(result.seconds) << '\n';
    const std::string folder = train_options.run_folder.string();
    if (result.end == TrainEnd::stopped && std::filesystem::exists(train_options.run_folder / "last"))
      std::cerr << "attend: saved; go on with: attend train --resume --output " << folder << '\n';
    else if (result.end == TrainEnd::stopped) std::cerr << "attend: nothing was saved\n";
    else out.line(result.final_folder.string());
  }
  out.flush();
  // A script that would go on with the model must not go on: there is none.
  if (result.end == TrainEnd::stopped) throw Exit{128 + stop_signal};
}

}  // namespace

void add_train(Command& program, Globals& globals) {
  Command* command = program.add_command("train", "Train a model by a recipe");
  auto options = std::make_shared<Options>();
  command
      ->add_option("recipe", options->recipe,
                   "TOML file; `attend describe --recipe-keys` lists what it may say (with --resume: that of the run)")
      ->type_name("RECIPE");
  command
      ->add_option("--output,-o", options->output,
                   "Run folder for checkpoints, log and loss curve (default: runs/NAME)")
      ->type_name("FOLDER");
  command->add_option("--data", options->data, "Folder that the recipe's data paths are in")->type_name("FOLDER");
  command->add_flag("--resume", options->resume, "Go on from the last checkpoint, as if the run had never stopped");
  command
      ->add_option("--start-from", options->start_from,
                   "Start from the weights and the tokenizer of this model instead of random ones (fine-tuning)")
      ->type_name("MODEL")
      ->excludes("--resume");
  command->add_flag("--overwrite", options->overwrite, "Remove the run that is in the folder")->excludes("--resume");
  command->add_flag("--plan", options->plan, "Read the data, print what would be done, and end");
  command->add_option("--steps", options->steps, "Steps instead of the recipe's")->type_name("N")->check(at_least(1));
  command->add_option("--epochs", options->epochs, "Epochs instead of the recipe's")
      ->type_name("N")
      ->check(at_least(1));
  command->footer(
      "Ctrl-C saves and ends with exit code 130; --resume goes on bit by bit as if nothing had happened.\n"
      "Prints the folder of the finished model, for `attend translate --model`.\n"
      "Examples:\n"
      "  attend train recipe/tatoeba-zh-en.toml --output runs/translator\n"
      "  attend train --resume --output runs/translator\n"
      "  attend train mine.toml --start-from tatoeba-zh-en --epochs 3\n"
      "  attend train recipe/names.toml --data my-data --plan");
  command->callback([options, &globals] { run(*options, globals); });
}

}  // namespace attend::cli
