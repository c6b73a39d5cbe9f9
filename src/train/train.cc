#include "attend/train.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <deque>
#include <new>
#include <nlohmann/json.hpp>
#include <utility>

#include "attend/error.h"
#include "attend/metrics.h"
#include "attend/threads.h"
#include "attend/translate.h"
#include "attend/version.h"
#include "core/memory.h"
#include "core/names.h"
#include "load/weights.h"
#include "train/data.h"
#include "train/learner.h"
#include "train/recipe_keys.h"
#include "train/run_folder.h"

namespace attend {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::ordered_json;
using Clock = std::chrono::steady_clock;

double seconds_since(Clock::time_point begin) { return std::chrono::duration<double>(Clock::now() - begin).count(); }

// What may differ between a run and its resumption: it changes when the run ends or what it keeps, not its bits on the
// way, or (files) is checked by the data's fingerprint.
constexpr const char* free_keys[] = {"title",          "data.train",    "data.valid",       "tokenizer.file",
                                     "train.epochs",   "train.steps",   "train.save_every", "train.log_every",
                                     "train.patience", "train.average", "train.weights"};

struct SettingText {
  std::string operator()(bool* value) const { return *value ? "true" : "false"; }
  std::string operator()(std::int64_t* value) const { return std::to_string(*value); }
  std::string operator()(std::uint64_t* value) const { return std::to_string(*value); }
  std::string operator()(double* value) const { return Json(*value).dump(); }
  std::string operator()(std::string* value) const { return *value; }
  std::string operator()(std::vector<std::string>* value) const {
    std::string text;
    for (const std::string& each : *value) text += each + "\n";
    return text;
  }
  std::string operator()(const Choice& choice) const {
    const std::size_t index = choice.get();
    return index < choice.names.size() ? choice.names[index] : "";
  }
};

std::map<std::string, std::string> settings_of(Recipe recipe) {
  if (!recipe.model.encoder) recipe.model.encoder.emplace();
  if (!recipe.model.decoder) recipe.model.decoder.emplace();
  std::map<std::string, std::string> settings;
  for (const RecipeKey& key : recipe_keys(recipe)) settings[key.path()] = std::visit(SettingText{}, key.target);
  return settings;
}

// run.json: where recipe and data of a run are, and what stands instead of the recipe's seed and limits.
struct RunRecord {
  std::string recipe_file, data_folder, start_from;  // start_from: for the record only
  std::optional<std::uint64_t> seed;
  std::optional<std::int64_t> epochs, steps;
};

void write_record(const fs::path& file, const RunRecord& record) {
  Json json{{"recipe_file", record.recipe_file}, {"data_folder", record.data_folder}};
  if (!record.start_from.empty()) json["start_from"] = record.start_from;
  if (record.seed) json["seed"] = *record.seed;
  if (record.epochs) json["epochs"] = *record.epochs;
  if (record.steps) json["steps"] = *record.steps;
  write_file(file, json.dump(2) + "\n");
}

RunRecord read_record(const fs::path& file) {
  try {
    const Json json = Json::parse(read_file(file, 1 << 20));
    RunRecord record;
    record.recipe_file = json.at("recipe_file").get<std::string>();
    record.data_folder = json.at("data_folder").get<std::string>();
    record.start_from = json.value("start_from", "");
    if (json.contains("seed")) record.seed = json["seed"].get<std::uint64_t>();
    if (json.contains("epochs")) record.epochs = json["epochs"].get<std::int64_t>();
    if (json.contains("steps")) record.steps = json["steps"].get<std::int64_t>();
    return record;
  } catch (const nlohmann::json::exception& error) {
    throw Error(ErrorKind::format, file.string(), join("cannot be read: ", json_reason(error)), "name the recipe");
  }
}

// A resumed run keeps what it was begun with unless that is given anew. Epochs and steps are one thing: when the run ends.
TrainOptions with_record(TrainOptions options) {
  const fs::path file = options.run_folder / "run.json";
  if (!options.resume || options.run_folder.empty() || !fs::exists(file)) return options;
  const RunRecord record = read_record(file);
  if (options.data_folder.empty()) options.data_folder = record.data_folder;
  options.start_from = record.start_from;
  if (!options.seed) options.seed = record.seed;
  if (!options.epochs && !options.steps) options.epochs = record.epochs, options.steps = record.steps;
  return options;
}

Recipe with_overrides(Recipe recipe, const TrainOptions& options) {
  if (options.seed) recipe.train.seed = *options.seed;
  if (options.epochs) {
    if (recipe.data.task == RecipeTask::blocks)
      throw Error(ErrorKind::argument, "epochs", "running text has no epochs", "give the number of steps");
    if (*options.epochs < 1)
      throw Error(ErrorKind::argument, "epochs", join(*options.epochs, " epochs asked for"), "give at least 1");
    recipe.train.epochs = *options.epochs;
    if (!options.steps) recipe.train.steps = 0;
  }
  if (options.steps) {
    if (*options.steps < 1)
      throw Error(ErrorKind::argument, "steps", join(*options.steps, " steps asked for"), "give at least 1");
    recipe.train.steps = *options.steps;
  }
  return recipe;
}

// "width is 64 and the recipe says 128", of the first field that differs.
std::string first_difference(const TransformerConfig& found, const TransformerConfig& wanted) {
  const Json one = Json::parse(to_json(found)).flatten(), other = Json::parse(to_json(wanted)).flatten();
  const auto text = [](const Json& fields, const std::string& key) {
    return fields.contains(key) ? fields[key].dump() : "absent";
  };
  for (const Json* fields : {&one, &other})
    for (const auto& [key, value] : fields->items())
      if (text(one, key) != text(other, key)) {
        std::string name = key.substr(1);
        std::replace(name.begin(), name.end(), '/', '.');
        return join(name, " is ", text(one, key), " and the recipe says ", text(other, key));
      }
  return "they differ";
}

void copy_parameters(const Model& from, Model& to) {
  for (std::size_t i = 0; i < to.parameters().size(); ++i) {
    const Tensor& source = from.parameters()[i].value;
    std::copy(source.data(), source.data() + source.elements(), to.parameters()[i].value.data());
  }
}

BleuTokenizer bleu_tokenizer_of(const std::string& language) {
  if (language.starts_with("zh") || language == "cmn") return BleuTokenizer::chinese;
  if (language.starts_with("ja") || language.starts_with("th")) return BleuTokenizer::character;
  return BleuTokenizer::standard;
}

// One run, from reading the data to the final model.
class Run {
 public:
  Run(const Recipe& recipe, const TrainOptions& options)
      : options_(with_record(options)), recipe_(with_overrides(recipe, options_)) {
    if (options.resume && !options.start_from.empty())
      throw Error(ErrorKind::argument, "train",
                  "a resumed run has weights to go on from, and others to start from are given",
                  "resume it without, or start a new run");
  }

  TrainPlan plan_only() {
    const auto phase = [this](std::string_view text) { observer().on_phase(text); };
    if (options_.resume) (void)read_checkpoint(phase);
    else (void)read_start(phase);
    lay_out(model_config(recipe_, data_));
    check_memory();
    plan_.resumed_at = state_.step;
    return plan_;
  }

  std::string memory_needed() const {
    if (plan_.parameters == 0) return "there is not enough for the data";
    return join("there is not enough: the run has ", plan_.parameters, " parameters and needs about ",
                plan_.process_bytes >> 20, " MiB");
  }

  TrainResult train() {
    begin_ = Clock::now();
    prepare();
    observer().on_start(plan_);
    log_start();
    begin_steps_ = Clock::now();
    const std::int64_t first_step = state_.step;
    TrainEnd end = TrainEnd::finished;
    while (!finished()) {
      if (out_of_patience()) {
        end = TrainEnd::early_stop;
        break;
      }
      if (options_.stop != nullptr && options_.stop->load()) {
        if (saved_step_ != state_.step) save();
        end = TrainEnd::stopped;
        break;
      }
      const std::int64_t epoch = state_.epoch;
      const bool epoch_ended = take_step(first_step);
      const std::int64_t every = recipe_.train.validate_every;
      if (finished() || (every > 0 ? state_.step % every == 0 : epoch_ended)) {
        validate(epoch);
        save();
      } else if (recipe_.train.save_every > 0 && state_.step % recipe_.train.save_every == 0) {
        save();
      }
    }
    return conclude(end);
  }

 private:
  TrainObserver& observer() {
    static TrainObserver nobody;
    return options_.observer != nullptr ? *options_.observer : nobody;
  }

  bool sequences() const {
    return recipe_.data.task == RecipeTask::translate || recipe_.data.task == RecipeTask::lines;
  }
  bool has_epochs() const { return recipe_.data.task != RecipeTask::blocks; }
  bool finished() const {
    const TrainRecipe& train = recipe_.train;
    return (train.steps > 0 && state_.step >= train.steps) ||
           (has_epochs() && train.epochs > 0 && state_.epoch > train.epochs);
  }
  bool out_of_patience() const { return recipe_.train.patience > 0 && state_.without_better >= recipe_.train.patience; }

  // ---- Before the first step --------------------------------------------------------------------------------------

  void prepare() {
    if (options_.run_folder.empty())
      throw Error(ErrorKind::argument, "train", "no run folder is given", "name a folder to write to");
    folder_.emplace(options_.run_folder);
    const auto phase = [this](std::string_view text) { observer().on_phase(text); };
    if (options_.resume) {
      resume(phase);
      return;
    }
    if (holds_run(options_.run_folder) && !options_.overwrite)
      throw Error(ErrorKind::argument, options_.run_folder.string(), "the folder already holds a run",
                  "resume it, choose another folder, or allow it to be overwritten");
    folder_->check_clearable();
    const std::optional<ModelFolder> start = read_start(phase);
    const TransformerConfig config = model_config(recipe_, data_);
    lay_out(config);
    check_memory();
    model_.emplace(config, stream_seed(recipe_.train.seed, Purpose::parameters));
    if (start) copy_parameters(start->model, *model_);
    learner_.emplace(*model_, recipe_.train);
    state_.data_fingerprint = data_.fingerprint();
    state_.settings = settings_of(recipe_);
    state_.total = plan_.steps;
    // The old run goes only now that recipe, data and tokenizer are known to be good.
    folder_->clear();
    record();
  }

  // The data of a fresh run, and the model whose weights it starts from, if there is one: its tokenizer is the run's, too,
  // since rows of its embeddings are pieces of that tokenizer. Writes nothing.
  template <typename Phase>
  std::optional<ModelFolder> read_start(const Phase& phase) {
    if (options_.start_from.empty()) {
      data_ = read_train_data(recipe_, options_.data_folder, nullptr, phase);
      return std::nullopt;
    }
    phase("reading the model to start from");
    std::optional<ModelFolder> start = load_model_folder(options_.start_from);
    data_ = read_train_data(recipe_, options_.data_folder, start->target, phase);
    // What is drawn in training is no part of the weights.
    TransformerConfig wanted = model_config(recipe_, data_), found = start->model.config();
    for (TransformerConfig* config : {&wanted, &found}) {
      config->dropout = config->attention_dropout = config->inner_dropout = 0;
      config->initialisation = Initialisation::xavier;
    }
    if (!(wanted == found))
      throw Error(ErrorKind::config, (options_.start_from / "config.json").string(),
                  join("the model to start from is not the recipe's: ", first_difference(found, wanted)),
                  "make the recipe's [model] like it, or start without it");
    return start;
  }

  // run.json first: it tells that what else lies in the folder is a run's.
  void record() {
    write_record(folder_->path("run.json"),
                 {fs::absolute(recipe_.file).string(),
                  options_.data_folder.empty() ? "" : fs::absolute(options_.data_folder).string(),
                  options_.start_from.empty() ? "" : fs::absolute(options_.start_from).string(), options_.seed,
                  options_.epochs, options_.steps});
    write_file(folder_->path("recipe.toml"), recipe_.text);
  }

  // State, data and model of the newest checkpoint. Writes nothing.
  template <typename Phase>
  ModelFolder read_checkpoint(const Phase& phase) {
    if (!fs::exists(options_.run_folder)) refuse_resume("there is no such folder", "start the run without resuming");
    const std::optional<fs::path> newest = newest_checkpoint(options_.run_folder);
    if (!newest && holds_run(options_.run_folder))
      refuse_resume("there is no checkpoint to resume from, only models without the state of a run",
                    "start a new run in another folder");
    if (!newest) refuse_resume("there is no checkpoint to resume from", "start the run without resuming");
    phase("reading the checkpoint");
    moments_.emplace(opened(*newest));
    const auto text = moments_->metadata().find("state");
    if (text == moments_->metadata().end())
      throw Error(ErrorKind::format, moments_->source(), "holds no state of a run", "start a new run");
    state_ = run_state_from_json(text->second, moments_->source());
    check_settings();
    ModelFolder checkpoint = loaded(*newest);
    data_ = read_train_data(recipe_, options_.data_folder, checkpoint.target, phase);
    if (data_.fingerprint() != state_.data_fingerprint)
      throw Error(ErrorKind::config, options_.run_folder.string(), "the data are not those that the run began with",
                  "put the old files back, or start a new run");
    const TransformerConfig wanted = model_config(recipe_, data_), &found = checkpoint.model.config();
    if (!(found == wanted))
      throw Error(ErrorKind::config, (*newest / "config.json").string(),
                  join("the checkpoint's model is not the recipe's: ", first_difference(found, wanted)),
                  "put the old recipe and data back, or start a new run");
    return checkpoint;
  }

  [[noreturn]] void refuse_resume(const std::string& what, const std::string& advice) const {
    throw Error(ErrorKind::file, options_.run_folder.string(), what, advice);
  }

  // A damaged file of one's own run cannot be got again from anywhere.
  template <typename Read>
  auto told_as_own(const fs::path& checkpoint, Read&& read) const {
    try {
      return read();
    } catch (const Error& error) {
      if (error.kind() != ErrorKind::format && error.kind() != ErrorKind::config) throw;
      std::string others;
      std::error_code absent;
      for (const fs::directory_entry& entry : fs::directory_iterator(options_.run_folder / "checkpoints", absent))
        if (entry.path().filename() != fs::weakly_canonical(checkpoint).filename() &&
            fs::exists(entry.path() / "model.safetensors"))
          others += (others.empty() ? "" : ", ") + entry.path().string();
      throw Error(error.kind(), error.where(), error.what_happened(),
                  others.empty()
                      ? "the checkpoint is damaged, and there is no older one: start a new run"
                      : "the newest checkpoint is damaged; models of older ones can be used, not resumed: " + others);
    }
  }
  SafetensorsFile opened(const fs::path& checkpoint) const {
    return told_as_own(checkpoint, [&] { return SafetensorsFile(checkpoint / "state.safetensors"); });
  }
  ModelFolder loaded(const fs::path& checkpoint) const {
    return told_as_own(checkpoint, [&] { return load_model_folder(checkpoint); });
  }

  template <typename Phase>
  void resume(const Phase& phase) {
    ModelFolder checkpoint = read_checkpoint(phase);
    lay_out(checkpoint.model.config());
    check_memory();
    model_.emplace(std::move(checkpoint.model));
    learner_.emplace(*model_, recipe_.train);
    learner_->restore_moments(*moments_);
    moments_.reset();
    state_.settings = settings_of(recipe_);
    saved_step_ = state_.step;
    check_total();
    folder_->tidy(state_);
    record();
    plan_.resumed_at = state_.step;
    for (const std::string& line : folder_->cut_log(state_.step)) {
      const Json json = Json::parse(line);
      const std::string event = json.value("event", "");
      if (event == "step") train_curve_.push_back({json.value("step", 0.0), json.value("loss", 0.0)});
      if (event == "validation") valid_curve_.push_back({json.value("step", 0.0), json.value("loss", 0.0)});
    }
  }

  void check_settings() const {
    const auto now = settings_of(recipe_);
    for (const auto& [key, value] : now) {
      if (std::find(std::begin(free_keys), std::end(free_keys), key) != std::end(free_keys)) continue;
      const auto then = state_.settings.find(key);
      if (then != state_.settings.end() && then->second == value) continue;
      throw Error(ErrorKind::config, options_.run_folder.string(),
                  join("the run was begun with ", key, " = ",
                       then == state_.settings.end() ? "(unknown)" : then->second, ", and the recipe says ", value),
                  "set it back, or start a new run");
    }
  }

  // A rate that falls to the end of the run is another one at every step if the end moves.
  void check_total() {
    const TrainRecipe& train = recipe_.train;
    const bool counts =
        (train.schedule == Schedule::cosine || train.schedule == Schedule::linear) && train.decay_steps == 0;
    if (counts && state_.total > 0 && state_.total != plan_.steps)
      throw Error(ErrorKind::config, options_.run_folder.string(),
                  join("the run was begun for ", state_.total, " steps, and now has ", plan_.steps, "; its ",
                       name_of(train.schedule), " schedule falls to the last step"),
                  "set steps and epochs back, or start a new run (with train.decay_steps the end may move)");
    state_.total = plan_.steps;
  }

  // Items in batches, the number of steps, the memory.
  void lay_out(const TransformerConfig& config) {
    const TrainRecipe& train = recipe_.train;
    if (sequences()) {
      lengths_ = lengths_of(data_.train);
      valid_lengths_ = lengths_of(data_.valid);
    } else if (recipe_.data.task == RecipeTask::images) {
      const std::int64_t patches =
          (data_.train_images.height / recipe_.data.patch) * (data_.train_images.width / recipe_.data.patch);
      lengths_.assign(static_cast<std::size_t>(data_.train_images.size()), {static_cast<std::int32_t>(patches), 1});
      valid_lengths_.assign(static_cast<std::size_t>(data_.valid_images.size()),
                            {static_cast<std::int32_t>(patches), 1});
    }

    std::int64_t encoder_rows = 0, decoder_rows = 0;
    plan_ = {};
    plan_.title = recipe_.title.empty() ? recipe_.file.stem().string() : recipe_.title;
    if (has_epochs()) {
      for (const auto& batch : plan_epoch(lengths_, train, 1)) {
        std::int64_t sources = 0, targets = 0;
        for (std::int64_t item : batch)
          sources += lengths_[static_cast<std::size_t>(item)].source,
              targets += lengths_[static_cast<std::size_t>(item)].target;
        encoder_rows = std::max(encoder_rows, sources);
        decoder_rows = std::max(decoder_rows, targets);
      }
      if (recipe_.data.task == RecipeTask::images) encoder_rows += train.batch_items, decoder_rows = 0;
      plan_.steps_an_epoch = steps_of_epoch(1);
      count_steps();
      plan_.train_items = static_cast<std::int64_t>(lengths_.size());
      plan_.valid_items = static_cast<std::int64_t>(valid_lengths_.size());
      for (const ItemLength& length : lengths_) plan_.train_tokens += sequences() ? length.target : length.source;
      for (const ItemLength& length : valid_lengths_) plan_.valid_tokens += sequences() ? length.target : length.source;
    } else {
      decoder_rows = train.batch_items * recipe_.data.block;
      plan_.steps = train.steps;
      plan_.train_items = plan_.train_tokens = static_cast<std::int64_t>(data_.train_text.size());
      plan_.valid_items = plan_.valid_tokens = static_cast<std::int64_t>(data_.valid_text.size());
    }
    plan_.left_out = data_.left_out;
    plan_.skipped_empty = data_.skipped_empty;
    plan_.replaced = data_.replaced;
    if (data_.tokenizer) plan_.source_vocabulary = plan_.target_vocabulary = data_.tokenizer->size();
    plan_.parameters = parameter_count(config);
    // Value, gradient, two moments, and the two layouts of a matrix for its products.
    const std::int64_t parameters = plan_.parameters * 6 * static_cast<std::int64_t>(sizeof(float));
    const std::int64_t batch = training_memory(config, encoder_rows, decoder_rows);
    plan_.peak_bytes = parameters + batch;
    // Freed buffers are kept by size: where batches differ in size, about as much again lies ready (measured 1.7 times the
    // largest batch for the translator's recipe); where all are alike, only sizes are rounded up.
    const ResidentBytes resident = resident_bytes();
    plan_.process_bytes =
        std::max(resident.most, resident.now + parameters + (sequences() ? 2 * batch : batch + batch / 4));
  }

  // What can never fit is refused before minutes are spent on filling memory. Estimates are not enough for that: only
  // value, gradient and moments count, which are certain.
  void check_memory() const {
    const std::int64_t certain = plan_.parameters * 4 * static_cast<std::int64_t>(sizeof(float)), there = most_memory();
    if (certain > there)
      throw Error(ErrorKind::config, "memory",
                  join("training ", plan_.parameters, " parameters takes ", certain >> 20,
                       " MiB for them, their gradients and Adam's moments alone, and this process can have ",
                       there >> 20, " MiB"),
                  "make the model smaller");
  }

  std::int64_t steps_of_epoch(std::int64_t epoch) const {
    const TrainRecipe& train = recipe_.train;
    const auto items = static_cast<std::int64_t>(lengths_.size());
    const std::int64_t batches = train.batch_tokens > 0
                                     ? static_cast<std::int64_t>(plan_epoch(lengths_, train, epoch).size())
                                     : (items + train.batch_items - 1) / train.batch_items;
    return (batches + train.accumulate - 1) / train.accumulate;
  }

  // Batches cut by tokens differ in number from epoch to epoch; of very long runs only the first epochs are counted.
  void count_steps() {
    const TrainRecipe& train = recipe_.train;
    std::int64_t steps = 0;
    for (std::int64_t epoch = 1; epoch <= train.epochs && (train.steps == 0 || steps < train.steps); ++epoch)
      steps += epoch <= 64 ? steps_of_epoch(epoch) : plan_.steps_an_epoch;
    plan_.steps = train.epochs == 0 ? train.steps : train.steps > 0 ? std::min(steps, train.steps) : steps;
  }

  // ---- A step ---------------------------------------------------------------------------------------------------------

  Batch batch_of(std::span<const std::int64_t> items, std::int64_t epoch) const {
    if (recipe_.data.task == RecipeTask::images)
      return image_batch(data_.train_images, items, recipe_.data, true, recipe_.train.seed, epoch);
    return make_batch(data_.train, items, data_.first, data_.end);
  }

  // The batches of the next step; moves the place in the run on. True if an epoch ends with them.
  bool next_batches(std::vector<Batch>& batches) {
    const TrainRecipe& train = recipe_.train;
    if (!has_epochs()) {
      for (std::int64_t i = 0; i < train.accumulate; ++i)
        batches.push_back(random_blocks(data_.train_text, train.batch_items, recipe_.data.block, train.seed,
                                        state_.step * train.accumulate + i));
      return false;
    }
    if (planned_epoch_ != state_.epoch) {
      epoch_plan_ = plan_epoch(lengths_, train, state_.epoch);
      planned_epoch_ = state_.epoch;
    }
    const auto count = static_cast<std::int64_t>(epoch_plan_.size());
    if (state_.next_batch >= count)
      throw Error(ErrorKind::format, options_.run_folder.string(),
                  join("batch ", state_.next_batch, " of an epoch of ", count, " batches is asked for"),
                  "the state does not fit the data; start a new run");
    for (std::int64_t i = 0; i < train.accumulate && state_.next_batch < count; ++i)
      batches.push_back(batch_of(epoch_plan_[static_cast<std::size_t>(state_.next_batch++)], state_.epoch));
    if (state_.next_batch < count) return false;
    state_.next_batch = 0;
    ++state_.epoch;
    return true;
  }

  bool take_step(std::int64_t first_step) {
    const TrainRecipe& train = recipe_.train;
    const std::int64_t step = state_.step + 1, epoch = state_.epoch;
    std::vector<Batch> batches;
    const bool epoch_ended = next_batches(batches);
    std::int64_t labels = 0;
    for (const Batch& batch : batches) labels += batch.tokens();

    learner_->zero_gradients();
    LossSums sums;
    for (std::size_t i = 0; i < batches.size(); ++i)
      sums += learner_->backward(batches[i], 1.0f / static_cast<float>(labels),
                                 stream_seed(train.seed, Purpose::dropout, static_cast<std::uint64_t>(step), i));
    const double rate = learning_rate(train, step, plan_.steps);
    if (!std::isfinite(sums.smoothed))
      refuse_number(step, rate, std::isnan(sums.smoothed) ? "the loss is not a number" : "the loss is infinite");
    const double norm = learner_->gradient_norm();
    if (!std::isfinite(norm)) {
      const std::string name = learner_->broken_gradient();
      refuse_number(step, rate,
                    name.empty() ? std::string("the gradient's norm is too large for a number")
                                 : join("the gradient of ", name, " is not finite"));
    }
    learner_->update(rate, norm, step);

    state_.step = step;
    state_.interval += sums;
    state_.smooth_loss = running_decay * state_.smooth_loss + (1 - running_decay) * sums.mean();
    report_step(first_step, epoch, rate, norm, sums);
    return epoch_ended;
  }

  static constexpr double running_decay = 0.98;
  double running_loss() const {
    return state_.step > 0 ? state_.smooth_loss / (1 - std::pow(running_decay, static_cast<double>(state_.step))) : 0;
  }

  [[noreturn]] void refuse_number(std::int64_t step, double rate, const std::string& what) const {
    throw Error(ErrorKind::numeric, join("training step ", step), what,
                join("lower train.rate (", recipe_.train.rate,
                     rate == recipe_.train.rate ? "" : join("; ", rate, " at this step"),
                     "), lengthen train.warmup or lower train.clip",
                     saved_step_ >= 0 ? join("; the checkpoint of step ", saved_step_, " is whole") : std::string()));
  }

  void report_step(std::int64_t first_step, std::int64_t epoch, double rate, double norm, const LossSums& sums) {
    const double now = seconds_since(begin_steps_);
    recent_.push_back({now, sums.labels});
    if (recent_.size() > 50) recent_.pop_front();
    std::int64_t tokens = 0;
    for (std::size_t i = 1; i < recent_.size(); ++i) tokens += recent_[i].second;
    const double span = recent_.back().first - recent_.front().first;

    StepReport report;
    report.step = state_.step;
    report.steps = plan_.steps;
    report.epoch = has_epochs() ? epoch : 0;
    report.loss = sums.mean();
    report.smoothed = sums.mean_smoothed();
    report.smooth_loss = running_loss();
    report.rate = rate;
    report.gradient_norm = norm;
    report.tokens = sums.labels;
    report.tokens_per_second = recent_.size() > 1 && span > 0 ? static_cast<double>(tokens) / span
                                                              : static_cast<double>(sums.labels) / std::max(now, 1e-9);
    report.seconds = now;
    report.seconds_left = now / static_cast<double>(state_.step - first_step) *
                          static_cast<double>(std::max<std::int64_t>(0, plan_.steps - state_.step));

    if (state_.step % recipe_.train.log_every == 0) {
      folder_->append_log(Json{
          {"event", "step"},
          {"step", report.step},
          {"epoch", report.epoch},
          {"loss", state_.interval.mean()},
          {"smoothed", state_.interval.mean_smoothed()},
          {"rate", rate},
          {"gradient_norm", norm},
          {"tokens", state_.interval.labels},
          {"tokens_per_second", report.tokens_per_second},
          {"seconds", now}}.dump());
      train_curve_.push_back({static_cast<double>(report.step), state_.interval.mean()});
      state_.interval = {};
    }
    observer().on_step(report);
  }

  // ---- Validation -----------------------------------------------------------------------------------------------------

  LossSums validation_loss(const Model& model) const {
    LossSums sums;
    if (!has_epochs()) {
      // The whole text in blocks, the last one shorter.
      const std::int64_t block = recipe_.data.block, labels = static_cast<std::int64_t>(data_.valid_text.size()) - 1;
      const std::int64_t blocks_a_batch = std::max<std::int64_t>(1, 4096 / block);
      for (std::int64_t begin = 0; begin < labels;) {
        Batch batch;
        for (std::int64_t i = 0; i < blocks_a_batch && begin < labels; ++i) {
          const std::int64_t length = std::min(block, labels - begin);
          append_block(batch, data_.valid_text, begin, length);
          begin += length;
        }
        sums += evaluate(model, batch);
      }
      return sums;
    }
    for (const auto& items : batches_in_order(valid_lengths_, 4096))
      sums += evaluate(model, sequences() ? make_batch(data_.valid, items, data_.first, data_.end)
                                          : image_batch(data_.valid_images, items, recipe_.data, false, 0, 0));
    return sums;
  }

  ValidationReport scores_of(const Model& model, std::int64_t epoch, bool decode) const {
    const Clock::time_point begin = Clock::now();
    ValidationReport report;
    report.step = state_.step;
    report.epoch = has_epochs() ? epoch : 0;
    const LossSums sums = validation_loss(model);
    report.loss = sums.mean();
    report.token_accuracy =
        static_cast<double>(sums.correct) / static_cast<double>(std::max<std::int64_t>(1, sums.labels));
    if (!std::isfinite(report.loss))
      throw Error(ErrorKind::numeric, join("validation after step ", state_.step), "the loss is not a finite number",
                  "lower train.rate or lengthen train.warmup");
    if (decode) add_decoded(model, report);
    report.seconds = seconds_since(begin);
    return report;
  }

  void add_decoded(const Model& model, ValidationReport& report) const {
    const Translator translator(model, data_.tokenizer, data_.tokenizer, data_.task);
    double bleu = 0, chrf = 0;
    std::int64_t equal = 0, lines = 0;
    for (const DecodeSet& set : data_.decode) {
      TranslateOptions options;
      options.from = set.from;
      options.to = set.to;
      options.decode.max_length = recipe_.validation.longest;
      options.decode.scores = false;
      std::vector<std::string> hypotheses;
      for (const Translation& translation : translator.translate(set.sources, options))
        hypotheses.push_back(translation.text());
      BleuOptions bleu_options;
      bleu_options.tokenizer = bleu_tokenizer_of(set.to);
      const double set_bleu = corpus_bleu(hypotheses, set.references, bleu_options).score;
      const double set_chrf = corpus_chrf(hypotheses, set.references);
      bleu += set_bleu;
      chrf += set_chrf;
      for (std::size_t i = 0; i < hypotheses.size(); ++i)
        equal += hypotheses[i] == normalise(set.references[i], data_.tokenizer->normalisation()) ? 1 : 0;
      lines += static_cast<std::int64_t>(hypotheses.size());
      if (!set.to.empty()) {
        report.by_direction["bleu " + set.from + "-" + set.to] = set_bleu;
        report.by_direction["chrf " + set.from + "-" + set.to] = set_chrf;
      }
    }
    if (lines == 0) return;
    report.bleu = bleu / static_cast<double>(data_.decode.size());
    report.chrf = chrf / static_cast<double>(data_.decode.size());
    report.exact = static_cast<double>(equal) / static_cast<double>(lines);
  }

  // Larger is better.
  double merit(const ValidationReport& report) const {
    switch (recipe_.validation.best) {
      case Metric::loss:
        return -report.loss;
      case Metric::bleu:
        return report.bleu.value_or(0);
      case Metric::chrf:
        return report.chrf.value_or(0);
      case Metric::exact:
        return report.exact.value_or(0);
      case Metric::accuracy:
        return report.token_accuracy;
    }
    return 0;
  }

  static Json json_of(const ValidationReport& report, const char* event) {
    Json json{{"event", event},
              {"step", report.step},
              {"epoch", report.epoch},
              {"loss", report.loss},
              {"token_accuracy", report.token_accuracy}};
    if (report.bleu) json["bleu"] = *report.bleu;
    if (report.chrf) json["chrf"] = *report.chrf;
    if (report.exact) json["exact"] = *report.exact;
    for (const auto& [name, value] : report.by_direction) json[name] = value;
    json["best"] = report.best;
    json["seconds"] = report.seconds;
    return json;
  }

  void validate(std::int64_t epoch) {
    observer().on_phase("validating");
    const bool decode =
        !data_.decode.empty() && (finished() || state_.validations % recipe_.validation.decode_every == 0);
    ValidationReport report = scores_of(*model_, epoch, decode);
    ++state_.validations;
    report.best = !state_.best || merit(report) > merit(*state_.best);
    if (report.best) state_.best = report, state_.without_better = 0;
    else ++state_.without_better;
    state_.last = report;
    if (recipe_.train.average > 0) {
      state_.average_steps.push_back(state_.step);
      while (static_cast<std::int64_t>(state_.average_steps.size()) > recipe_.train.average)
        state_.average_steps.erase(state_.average_steps.begin());
    }
    folder_->append_log(json_of(report, "validation").dump());
    valid_curve_.push_back({static_cast<double>(report.step), report.loss});
    observer().on_validation(report);
  }

  void save() {
    folder_->save(*model_, data_.tokenizer.get(), data_.task, *learner_, state_);
    saved_step_ = state_.step;
    folder_->append_log(Json{{"event", "save"}, {"step", state_.step}}.dump());
    draw();
    observer().on_save(folder_->checkpoint(state_.step), state_.step);
  }

  void draw() { write_file(folder_->path("loss.svg"), loss_curve_svg(plan_.title, train_curve_, valid_curve_)); }

  void log_start() {
    folder_->append_log(Json{{"event", "start"},
                             {"step", state_.step},
                             {"version", version()},
                             {"threads", threads()},
                             {"seed", recipe_.train.seed},
                             {"parameters", plan_.parameters},
                             {"train_items", plan_.train_items},
                             {"train_tokens", plan_.train_tokens},
                             {"valid_items", plan_.valid_items},
                             {"steps", plan_.steps},
                             {"peak_bytes", plan_.peak_bytes},
                             {"process_bytes", plan_.process_bytes}}
                            .dump());
  }

  // ---- The end -----------------------------------------------------------------------------------------------------------

  TrainResult conclude(TrainEnd end) {
    TrainResult result;
    result.end = end;
    result.step = state_.step;
    result.epoch = !has_epochs() ? 0 : state_.next_batch == 0 ? state_.epoch - 1 : state_.epoch;
    result.train_loss = running_loss();
    result.last = state_.last;
    result.best = state_.best;
    if (end != TrainEnd::stopped) {
      make_final(result);
      result.final_folder = folder_->path("final");
    }
    result.seconds = seconds_since(begin_);
    Json json{{"event", "end"},
              {"step", state_.step},
              {"how", end == TrainEnd::finished     ? "finished"
                      : end == TrainEnd::early_stop ? "early stop"
                                                    : "stopped"},
              {"seconds", result.seconds}};
    if (result.final_scores) json["final"] = json_of(*result.final_scores, "average");
    folder_->append_log(json.dump());
    draw();
    return result;
  }

  void make_final(TrainResult& result) {
    // A run whose end was moved to where it had been stopped may never have been validated.
    if (!state_.best) {
      validate(state_.epoch);
      save();
      result.last = state_.last;
      result.best = state_.best;
    }
    // Gradients and moments have done their work: what follows needs room for models beside that of the run.
    learner_.reset();
    release_kept_memory();
    const bool mean_wanted = recipe_.train.average > 0 && !state_.average_steps.empty();
    if (!mean_wanted) {
      save_final(load_model(folder_->checkpoint(state_.best->step)));
      return;
    }
    observer().on_phase(join("averaging ", state_.average_steps.size(),
                             state_.average_steps.size() == 1 ? " checkpoint" : " checkpoints"));
    ParameterMean mean;
    for (std::int64_t step : state_.average_steps) mean.add(load_model(folder_->checkpoint(step)));
    Model model(model_->config(), 0);
    mean.write_into(model);
    save_final(model);
    // The model that lies there, with its rounded weights.
    result.final_scores = scores_of(load_model(folder_->path("final")), result.epoch, !data_.decode.empty());
  }

  void save_final(const Model& model) {
    try {
      folder_->save_model("final", model, data_.tokenizer.get(), data_.task, recipe_.train.weights);
    } catch (const Error& error) {
      if (error.kind() != ErrorKind::numeric) throw;
      throw Error(ErrorKind::numeric, error.where(), error.what_happened(), "resume with train.weights = \"float32\"");
    }
  }

  const TrainOptions options_;
  const Recipe recipe_;
  std::optional<RunFolder> folder_;
  std::optional<SafetensorsFile> moments_;  // of the checkpoint, until the learner has them
  TrainData data_;
  std::optional<Model> model_;
  std::optional<Learner> learner_;
  RunState state_;
  TrainPlan plan_;
  std::vector<ItemLength> lengths_, valid_lengths_;
  std::vector<std::vector<std::int64_t>> epoch_plan_;
  std::int64_t planned_epoch_ = 0;
  std::int64_t saved_step_ = -1;  // none yet
  std::vector<CurvePoint> train_curve_, valid_curve_;
  std::deque<std::pair<double, std::int64_t>> recent_;  // seconds and tokens of the last steps
  Clock::time_point begin_, begin_steps_;
};

}  // namespace

TrainResult train(const Recipe& recipe, const TrainOptions& options) {
  Run run(recipe, options);
  try {
    return run.train();
  } catch (const std::bad_alloc&) {
    throw Error(ErrorKind::config, "memory", run.memory_needed(),
                "make the model or the batches smaller (train.batch_tokens, train.batch_items)");
  }
}

TrainPlan plan_training(const Recipe& recipe, const TrainOptions& options) { return Run(recipe, options).plan_only(); }

RunSource source_of_run(const fs::path& run_folder) {
  const RunRecord record = read_record(run_folder / "run.json");
  return {parse_recipe(read_file(run_folder / "recipe.toml", 1 << 20), record.recipe_file), record.data_folder};
}

}  // namespace attend
