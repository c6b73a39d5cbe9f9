// Training: from a recipe to a model folder, watched by an observer, stopped at any moment, resumed bit for bit.
#pragma once

#include <atomic>
#include <cstdint>
#include <filesystem>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "attend/recipe.h"

namespace attend {

// What a run is going to do, known before its first step.
struct TrainPlan {
  std::string title;
  std::int64_t train_items = 0,
               valid_items = 0;  // pairs (a pair in two directions counts twice), lines, tokens (blocks), images
  std::int64_t train_tokens = 0, valid_tokens = 0;  // of the target, eos included; of the text; patches
  std::int64_t left_out = 0;                        // training items that were too long
  std::int64_t skipped_empty = 0, replaced = 0;     // as in ReadReport
  std::int64_t source_vocabulary = 0, target_vocabulary = 0;
  std::int64_t parameters = 0;
  std::int64_t steps_an_epoch = 0;  // 0 for blocks
  std::int64_t steps = 0;           // of the whole run; more or less by a few when only epochs are given
  std::int64_t peak_bytes = 0;      // estimate: parameters, gradients, optimiser state, largest batch
  // Estimate for the whole process: the above beside what it holds now that the data are read and encoded, or what making
  // the tokenizer took, whichever is more.
  std::int64_t process_bytes = 0;
  std::int64_t resumed_at = 0;  // step of the checkpoint that the run goes on from; 0: a fresh run
};

struct StepReport {
  std::int64_t step = 0, steps = 0;      // from 1; of the whole run
  std::int64_t epoch = 0;                // from 1; 0 for blocks
  double loss = 0;                       // nats per target token of this step's batches, without label smoothing
  double smoothed = 0;                   // the same with label smoothing: what is minimised
  double smooth_loss = 0;                // running mean of loss, for display
  double rate = 0;                       // learning rate
  double gradient_norm = 0;              // before clipping
  std::int64_t tokens = 0;               // target tokens of this step
  double tokens_per_second = 0;          // over the last steps
  double seconds = 0, seconds_left = 0;  // of this process; estimate
};

struct ValidationReport {
  std::int64_t step = 0, epoch = 0;
  double loss = 0;                             // nats per target token (per image), without smoothing or dropout
  double token_accuracy = 0;                   // share of target tokens (images) whose largest logit is right
  std::optional<double> bleu, chrf;            // mean of the directions, 0 to 100
  std::optional<double> exact;                 // share of decoded items equal to their reference, 0 to 1
  std::map<std::string, double> by_direction;  // "bleu zh-en": ...
  bool best = false;                           // better than all before by the recipe's metric
  double seconds = 0;
};

// Called from the thread that runs train(), between steps. Exceptions thrown here end the run and pass through.
class TrainObserver {
 public:
  virtual ~TrainObserver() = default;
  virtual void on_phase(std::string_view) {
  }  // "reading data", "training the tokenizer", "averaging 5 checkpoints", ...
  virtual void on_start(const TrainPlan&) {}
  virtual void on_step(const StepReport&) {}
  virtual void on_validation(const ValidationReport&) {}
  virtual void on_save(const std::filesystem::path&, std::int64_t /*step*/) {}
};

struct TrainOptions {
  // Holds everything the run writes:
  //   recipe.toml     the recipe as it was given
  //   run.json        where recipe and data are, and the options below that stood instead of the recipe's
  //   train.jsonl     one JSON object a line: start, step, validation, save, end
  //   loss.svg        the loss curve
  //   checkpoints/step-00000123/ a model folder in float32, the newest one with state.safetensors
  //   last, best      links to two of them
  //   final           the model to use, a folder of its own made when the run ends: the average if the recipe asks for one,
  //                   else the best; its weights are of the type train.weights (float16 if the recipe says nothing)
  std::filesystem::path run_folder;
  std::filesystem::path data_folder;  // if given, data paths of the recipe are relative to it instead
  // If given, a fresh run starts from the weights of this model folder instead of random ones, with its tokenizer, and with
  // moments and schedule of its own (fine-tuning). Error(config) names what the recipe's model has different; dropout may be.
  std::filesystem::path start_from;
  bool resume = false;     // go on from the newest whole checkpoint; without one, an error
  bool overwrite = false;  // allow a run folder that already holds a run: it is removed, once the data are read
  TrainObserver* observer = nullptr;
  const std::atomic<bool>* stop = nullptr;  // polled before every step; when true the run saves and returns
  // These stand instead of the recipe's. A resumed run keeps those it was begun with, and its data folder, unless they are
  // given anew; a schedule that falls to the last step (cosine or linear without decay_steps) lets the end not move.
  std::optional<std::uint64_t> seed;
  std::optional<std::int64_t> epochs, steps;
};

enum class TrainEnd { finished, early_stop, stopped };

struct TrainResult {
  TrainEnd end = TrainEnd::finished;
  std::int64_t step = 0, epoch = 0;
  double train_loss = 0;  // running mean at the end
  std::optional<ValidationReport> last, best;
  std::optional<ValidationReport>
      final_scores;                    // of the final model, when the run finished and the final model is an average
  std::filesystem::path final_folder;  // the model to use; empty when stopped
  double seconds = 0;
};

// Runs the recipe. Results depend on recipe, data and seed only: not on threads, stops and resumes.
// Error(config): recipe and data or recipe and resumed run contradict each other. Error(file): another training holds the
// run folder, or it cannot be written. Error(text, format): data. Error(numeric): loss or gradient is not a number; names the
// step. The checkpoints on disk are whole after any error or kill.
TrainResult train(const Recipe& recipe, const TrainOptions& options);

// Reads the data and makes the tokenizer, but writes nothing and takes no step.
TrainPlan plan_training(const Recipe& recipe, const TrainOptions& options);

// True if there is something in the folder that a new run would remove: a checkpoint or a finished model.
bool holds_run(const std::filesystem::path& run_folder);

// The recipe and the data folder that a run folder was made with, for going on without naming them again.
// Error(file or config) if the folder holds no run.
struct RunSource {
  Recipe recipe;
  std::filesystem::path data_folder;
};
RunSource source_of_run(const std::filesystem::path& run_folder);

// Learning rate of a step (from 1) of a run that has `total` steps.
double learning_rate(const TrainRecipe& recipe, std::int64_t step, std::int64_t total);

// The loss curve as an SVG picture, from points (step, nats). Either line may be empty.
struct CurvePoint {
  double step = 0, value = 0;
};
std::string loss_curve_svg(const std::string& title, std::span<const CurvePoint> train,
                           std::span<const CurvePoint> valid);

}  // namespace attend
