// Whole trainings on made-up data: they learn, they resume to the same bits, threads do not matter, kills leave whole
// checkpoints.
#include <sys/resource.h>

#include <atomic>
#include <chrono>
#include <cmath>
#include <csignal>
#include <thread>

#include <nlohmann/json.hpp>

#include "attend/threads.h"
#include "attend/translate.h"
#include "core/memory.h"
#include "train/data.h"
#include "train/learner.h"
#include "train_fixture.h"

namespace attend {
namespace {

namespace fs = std::filesystem;

// Copying short words: an encoder-decoder that has learnt it is exact.
const std::string copy_recipe = R"(title = "copy"
[data]
task = "translate"
train = ["train.txt", "train.txt"]
valid = ["valid.txt", "valid.txt"]
[tokenizer]
kind = "character"
[model]
encoder_layers = 1
decoder_layers = 1
width = 32
heads = 2
inner_width = 64
positions = "learned"
max_positions = 12
tied_logits = true
shared_embeddings = true
dropout = 0.02
[train]
seed = 3
batch_tokens = 200
rate = 8e-3
schedule = "cosine"
warmup = 20
clip = 1.0
label_smoothing = 0.02
)";

class TrainRunTest : public TrainTest {
 protected:
  void SetUp() override {
    TrainTest::SetUp();
    write_text(at("train.txt"), made_up_words(1200, 5, 5, 1));
    write_text(at("valid.txt"), made_up_words(60, 5, 5, 2));
    threads_ = threads();
  }
  void TearDown() override {
    set_threads(threads_);
    TrainTest::TearDown();
  }
  int threads_ = 1;
};

// Asks for a stop once it has seen a given step.
class StopAt : public TrainObserver {
 public:
  explicit StopAt(std::int64_t step) : step_(step) {}
  void on_step(const StepReport& report) override {
    if (report.step >= step_) stop = true;
  }
  std::atomic<bool> stop{false};

 private:
  std::int64_t step_;
};

TEST_F(TrainRunTest, LearnsToCopyExactly) {
  const Recipe made = recipe(copy_recipe + "epochs = 18\n[validation]\nbest = \"exact\"\ndecode = 60\nlongest = 12\n");
  const TrainResult result = train(made, options("run"));
  EXPECT_EQ(result.end, TrainEnd::finished);
  ASSERT_TRUE(result.best && result.best->exact && result.best->bleu && result.best->chrf);
  EXPECT_EQ(*result.best->exact, 1.0);
  EXPECT_GT(*result.best->chrf, 99.9);
  EXPECT_LT(result.best->loss, 0.1);
  // The final model is a model folder like any other.
  const ModelFolder folder = load_model_folder(result.final_folder);
  EXPECT_EQ(Translator(folder).translate("abcde").text(), "abcde");
  expect_in("</svg>", read_file(at("run") / "loss.svg"));
  EXPECT_EQ(read_file(at("run") / "recipe.toml"), made.text);
}

TEST_F(TrainRunTest, ResumedRunHasTheSameBits) {
  const Recipe made = recipe(copy_recipe + "epochs = 3\nlog_every = 4\naverage = 2\naccumulate = 2\n");
  const TrainResult whole = train(made, options("whole"));
  // Stopped in the middle of an epoch, twice, each time going on with another number of threads.
  int count = 1;
  TrainResult pieces;
  for (const std::int64_t step : {5, 31, 100000}) {
    set_threads(count++);
    StopAt observer(step);
    TrainOptions stopped = options("pieces");
    stopped.observer = &observer;
    stopped.stop = &observer.stop;
    stopped.resume = step != 5;
    pieces = train(made, stopped);
    if (step == 100000) break;
    EXPECT_EQ(pieces.end, TrainEnd::stopped);
    EXPECT_EQ(pieces.step, step);
  }
  EXPECT_EQ(pieces.end, TrainEnd::finished);
  EXPECT_EQ(pieces.step, whole.step);
  EXPECT_GT(whole.step, 40);
  EXPECT_EQ(weights_of(at("pieces") / "last"), weights_of(at("whole") / "last"));
  EXPECT_EQ(weights_of(at("pieces") / "best"), weights_of(at("whole") / "best"));
  EXPECT_EQ(weights_of(at("pieces") / "final"), weights_of(at("whole") / "final"));
  const SafetensorsFile state(at("pieces") / "last" / "state.safetensors"),
      whole_state(at("whole") / "last" / "state.safetensors");
  ASSERT_GT(state.entries().size(), 10u);
  for (const SafetensorsEntry& entry : whole_state.entries())
    EXPECT_EQ(state.tensor(entry.name).to_vector(), whole_state.tensor(entry.name).to_vector()) << entry.name;
  EXPECT_EQ(pieces.final_scores->loss, whole.final_scores->loss);
  // The log tells the same losses, once each.
  const auto losses = [&](const std::string& run) {
    std::vector<std::pair<std::int64_t, double>> found;
    std::istringstream log(read_file(at(run) / "train.jsonl"));
    for (std::string line; std::getline(log, line);) {
      const auto json = nlohmann::json::parse(line);
      if (json["event"] == "step" || json["event"] == "validation") found.emplace_back(json["step"], json["loss"]);
    }
    return found;
  };
  EXPECT_EQ(losses("pieces"), losses("whole"));
}

TEST_F(TrainRunTest, ThreadsDoNotMatter) {
  const Recipe made = recipe(copy_recipe + "steps = 25\n");
  set_threads(1);
  (void)train(made, options("one"));
  set_threads(3);
  (void)train(made, options("three"));
  EXPECT_EQ(weights_of(at("one") / "last"), weights_of(at("three") / "last"));
}

TEST_F(TrainRunTest, AccumulatedHalvesEqualTheWhole) {
  const Recipe made = recipe(copy_recipe + "steps = 30\n");
  const TrainData data = read_train_data(made, {}, nullptr, [](std::string_view) {});
  TransformerConfig config = model_config(made, data);
  config.dropout = 0;
  Model model(config, 1);
  Learner whole(model, made.train), halves(model, made.train);
  std::vector<std::int64_t> items(20);
  for (std::size_t i = 0; i < items.size(); ++i) items[i] = static_cast<std::int64_t>(i);
  const Batch all = make_batch(data.train, items, data.first, data.end);
  const float factor = 1.0f / static_cast<float>(all.tokens());
  whole.zero_gradients();
  const LossSums whole_sums = whole.backward(all, factor, 0);
  halves.zero_gradients();
  LossSums halves_sums;
  for (const std::size_t begin : {std::size_t{0}, std::size_t{7}}) {
    const std::size_t count = begin == 0 ? 7 : 13;
    halves_sums += halves.backward(make_batch(data.train, std::span(items).subspan(begin, count), data.first, data.end),
                                   factor, 0);
  }
  EXPECT_EQ(whole_sums.labels, halves_sums.labels);
  EXPECT_NEAR(whole_sums.smoothed, halves_sums.smoothed, 1e-3);
  EXPECT_GT(whole.gradient_norm(), 1e-3);
  double difference = 0;
  for (std::size_t i = 0; i < whole.gradients().size(); ++i)
    for (std::int64_t j = 0; j < whole.gradients()[i].elements(); ++j)
      difference =
          std::max(difference, std::abs(double{whole.gradients()[i].data()[j]} - halves.gradients()[i].data()[j]));
  EXPECT_LT(difference, 1e-6);
}

// One step of Adam and of clipping by hand, on the gradients that were really computed.
TEST_F(TrainRunTest, UpdateIsClippedAdamWithDecay) {
  Recipe made = recipe(copy_recipe + "steps = 30\nweight_decay = 0.1\nbeta2 = 0.98\n");
  made.train.clip = 0.01;
  const TrainData data = read_train_data(made, {}, nullptr, [](std::string_view) {});
  Model model(model_config(made, data), 1);
  Learner learner(model, made.train);
  const Batch batch = make_batch(data.train, std::vector<std::int64_t>{0, 1, 2}, data.first, data.end);
  std::vector<std::vector<float>> before;
  for (const Parameter& parameter : model.parameters()) before.push_back(parameter.value.to_vector());
  learner.zero_gradients();
  (void)learner.backward(batch, 1.0f / static_cast<float>(batch.tokens()), 5);
  const double norm = learner.gradient_norm();
  double sum = 0;
  for (const Tensor& gradient : learner.gradients())
    for (const float value : gradient.to_vector()) sum += double{value} * value;
  EXPECT_NEAR(norm, std::sqrt(sum), 1e-9 * norm);
  ASSERT_GT(norm, made.train.clip);
  learner.update(0.01, norm, 1);
  for (std::size_t i = 0; i < before.size(); ++i) {
    const Parameter& parameter = model.parameters()[i];
    const double decay = parameter.decays ? 0.1 : 0.0;
    for (std::size_t j = 0; j < before[i].size(); ++j) {
      const double g = double{learner.gradients()[i].data()[j]} * (0.01 / norm);
      // The first step's corrected moments are g and g^2.
      const double expected = before[i][j] - 0.01 * (decay * before[i][j] + g / (std::abs(g) + made.train.epsilon));
      ASSERT_NEAR(parameter.value.data()[j], expected, 1e-4) << parameter.name << " " << j;
    }
  }
}

TEST_F(TrainRunTest, LinesAndBlocksLearn) {
  // After every 'a' comes 'b', after 'b' 'c': half a nat is far above what remains to guess.
  std::string text;
  Random random(4);
  for (int i = 0; i < 400; ++i) text += random.below(2) ? "abcabc\n" : "bcabca\n";
  write_text(at("text"), text);
  const std::string model = R"(
[model]
decoder_layers = 1
width = 16
heads = 2
inner_width = 32
positions = "rotary"
max_positions = 16
[train]
rate = 1e-2
)";
  const TrainResult lines =
      train(recipe("[data]\ntask = \"lines\"\ntrain = \"text\"\nvalid_lines = 20\n[tokenizer]\nkind = \"character\"" +
                   model + "epochs = 4\nbatch_items = 16\n"),
            options("lines"));
  // One choice of two for 7 tokens.
  EXPECT_NEAR(lines.best->loss, std::log(2.0) / 7, 0.02);
  EXPECT_EQ(load_model_folder(lines.final_folder).task.lines, true);
  const TrainResult blocks = train(
      recipe(
          "[data]\ntask = \"blocks\"\ntrain = \"text\"\nvalid_share = 0.1\nblock = 14\n[tokenizer]\nkind = \"character\"\nspecials = false" +
          model + "steps = 120\nbatch_items = 8\nvalidate_every = 60\n"),
      options("blocks"));
  EXPECT_LT(blocks.best->loss, 0.35);
  EXPECT_EQ(load_model_folder(blocks.final_folder).task.lines, false);
}

TEST_F(TrainRunTest, ImagesLearn) {
  // Bright upper half or lower half.
  std::string pixels, labels;
  Random random(5);
  for (int i = 0; i < 200; ++i) {
    const bool lower = random.below(2) == 1;
    labels += static_cast<char>(lower);
    for (int y = 0; y < 8; ++y)
      for (int x = 0; x < 8; ++x)
        pixels += static_cast<char>((y >= 4) == lower ? 100 + random.below(100) : random.below(60));
  }
  write_text(at("images"), std::string("\0\0\x08\x03\0\0\0\xc8\0\0\0\x08\0\0\0\x08", 16) + pixels);
  write_text(at("labels"), std::string("\0\0\x08\x01\0\0\0\xc8", 8) + labels);
  for (const std::string pooling : {"class_token", "mean"}) {
    const TrainResult result = train(
        recipe(
            "[data]\ntask = \"images\"\ntrain = [\"images\", \"labels\"]\nvalid_lines = 40\npatch = 4\nshift = 0.5\nrotation = 5\n"
            "[model]\nencoder_layers = 1\nwidth = 16\nheads = 2\ninner_width = 16\npositions = \"learned\"\nmax_positions = 5\n" +
            std::string(pooling == "class_token" ? "class_token = true\n" : "") + "pooling = \"" + pooling +
            "\"\n[train]\nepochs = 8\nbatch_items = 16\nrate = 1e-2\n[validation]\nbest = \"accuracy\"\n"),
        options(pooling));
    EXPECT_EQ(result.best->token_accuracy, 1.0) << pooling;
    EXPECT_EQ(load_model_folder(result.final_folder).task.classes.size(), 2u);
  }
}

TEST_F(TrainRunTest, EarlyStop) {
  // Nothing is exact so early: the validation after step 2 stays the best, and those after 4 and 6 use up the patience.
  const TrainResult result =
      train(recipe(copy_recipe +
                   "steps = 400\nvalidate_every = 2\npatience = 2\n[validation]\nbest = \"exact\"\ndecode = 3\n"),
            options("run"));
  EXPECT_EQ(result.end, TrainEnd::early_stop);
  EXPECT_EQ(result.step, 6);
  EXPECT_EQ(result.best->step, 2);
  EXPECT_TRUE(fs::exists(at("run") / "final" / "model.safetensors"));
}

TEST_F(TrainRunTest, KeepsBestLastAndThoseToAverage) {
  (void)train(recipe(copy_recipe + "epochs = 6\naverage = 3\n"), options("run"));
  int checkpoints = 0, states = 0;
  for (const auto& entry : fs::directory_iterator(at("run") / "checkpoints")) {
    ++checkpoints;
    states += fs::exists(entry.path() / "state.safetensors") ? 1 : 0;
  }
  EXPECT_GE(checkpoints, 3);
  EXPECT_LE(checkpoints, 4);
  EXPECT_EQ(states, 1);
  EXPECT_TRUE(fs::exists(at("run") / "last" / "state.safetensors"));
}

TEST_F(TrainRunTest, AverageIsTheMeanOfTheWeights) {
  (void)train(recipe(copy_recipe + "epochs = 3\naverage = 3\nweights = \"float32\"\n"), options("run"));
  std::vector<std::vector<float>> parts;
  for (const auto& entry : fs::directory_iterator(at("run") / "checkpoints")) parts.push_back(weights_of(entry.path()));
  ASSERT_EQ(parts.size(), 3u);
  const std::vector<float> mean = weights_of(at("run") / "final");
  for (std::size_t i = 0; i < mean.size(); ++i)
    ASSERT_NEAR(mean[i], (double{parts[0][i]} + parts[1][i] + parts[2][i]) / 3, 1e-6);
  EXPECT_NE(parts[0], parts[1]);
}

TEST_F(TrainRunTest, FinalModelIsAFolderOfItsOwnWithHalfTheBytes) {
  for (const std::string average : {"0", "1", "2"}) {
    const std::string run = "average" + average;
    const TrainResult result = train(recipe(copy_recipe + "epochs = 3\naverage = " + average + "\n"), options(run));
    EXPECT_EQ(result.final_folder, at(run) / "final");
    EXPECT_FALSE(fs::is_symlink(fs::symlink_status(result.final_folder)));
    EXPECT_FALSE(fs::exists(result.final_folder / "state.safetensors"));
    for (const SafetensorsEntry& entry : SafetensorsFile(result.final_folder / "model.safetensors").entries())
      EXPECT_EQ(entry.type, NumberType::float16);
    for (const SafetensorsEntry& entry : SafetensorsFile(at(run) / "last" / "model.safetensors").entries())
      EXPECT_EQ(entry.type, NumberType::float32);
    EXPECT_EQ(result.final_scores.has_value(), average != "0");
    if (average == "2") continue;
    const std::vector<float> full = weights_of(at(run) / (average == "0" ? "best" : "last")),
                             half = weights_of(result.final_folder);
    ASSERT_EQ(full.size(), half.size());
    bool rounded = false;
    for (std::size_t i = 0; i < full.size(); ++i) {
      ASSERT_NEAR(half[i], full[i], std::abs(full[i]) / 2048 + 1e-7);
      rounded = rounded || half[i] != full[i];
    }
    EXPECT_TRUE(rounded);
  }
  // The other type on request, also when a finished run is gone through again.
  TrainOptions again = options("average0");
  again.resume = true;
  (void)train(recipe(copy_recipe + "epochs = 3\nweights = \"float32\"\n"), again);
  EXPECT_EQ(weights_of(at("average0") / "final"), weights_of(at("average0") / "best"));
}

TEST_F(TrainRunTest, StartsFromTheWeightsOfAModel) {
  (void)train(recipe(copy_recipe + "epochs = 2\nweights = \"float32\"\n"), options("first"));
  TrainOptions second = options("second");
  second.start_from = at("first") / "final";
  // A step that moves nothing leaves the weights as they came, whatever the seed; dropout may be another one.
  std::string still = copy_recipe;
  still.replace(still.find("rate = 8e-3"), 11, "rate = 1e-30");
  still.replace(still.find("seed = 3"), 8, "seed = 4");
  still.replace(still.find("dropout = 0.02"), 14, "dropout = 0.5");
  const TrainResult result = train(recipe(still + "steps = 21\naverage = 1\nweights = \"float32\"\n"), second);
  const std::vector<float> first = weights_of(at("first") / "final");
  EXPECT_EQ(weights_of(result.final_folder), first);
  EXPECT_EQ(load_model_folder(result.final_folder).target->fingerprint(),
            load_model_folder(at("first") / "final").target->fingerprint());
  // A run of its own: its steps are counted from the first, and it is resumed like any other.
  TrainOptions third = options("third");
  third.start_from = second.start_from;
  StopAt observer(3);
  third.observer = &observer;
  third.stop = &observer.stop;
  EXPECT_EQ(train(recipe(copy_recipe + "epochs = 2\n"), third).step, 3);
  third = options("third");
  third.resume = true;
  const TrainResult resumed = train(recipe(copy_recipe + "epochs = 2\n"), third);
  TrainOptions whole = options("whole");
  whole.start_from = second.start_from;
  EXPECT_EQ(resumed.last->loss, train(recipe(copy_recipe + "epochs = 2\n"), whole).last->loss);
  EXPECT_NE(weights_of(at("whole") / "last"), first);

  third.start_from = second.start_from;
  EXPECT_THROW((void)train(recipe(copy_recipe + "epochs = 2\n"), third), Error)
      << "resumed, and started from something else";
  std::string wider = copy_recipe;
  wider.replace(wider.find("inner_width = 64"), 16, "inner_width = 96");
  TrainOptions fourth = options("fourth");
  fourth.start_from = second.start_from;
  try {
    (void)train(recipe(wider + "epochs = 1\n"), fourth);
    FAIL() << "a model of another width was taken";
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::config);
    expect_in("inner_width is 64 and the recipe says 96", error.what());
  }
  EXPECT_FALSE(holds_run(at("fourth")));
}

TEST_F(TrainRunTest, TwoTrainingsInOneFolderAreRefused) {
  class Intruder : public TrainObserver {
   public:
    Intruder(const Recipe& recipe, TrainOptions options) : recipe_(recipe), options_(std::move(options)) {}
    void on_step(const StepReport& report) override {
      if (report.step != 2) return;
      for (const bool resume : {false, true}) {
        options_.resume = resume;
        kinds.push_back(error_of([&] { (void)train(recipe_, options_); }).kind());
      }
    }
    std::vector<ErrorKind> kinds;

   private:
    const Recipe& recipe_;
    TrainOptions options_;
  };
  Recipe made = recipe(copy_recipe + "steps = 30\n");
  made.train.steps = 4;
  Intruder intruder(made, options("run"));
  TrainOptions first = options("run");
  first.observer = &intruder;
  EXPECT_EQ(train(made, first).end, TrainEnd::finished);
  EXPECT_EQ(intruder.kinds, (std::vector<ErrorKind>{ErrorKind::file, ErrorKind::file}));
}

TEST_F(TrainRunTest, FoldersInUseAreNotOverwrittenByMistake) {
  Recipe made = recipe(copy_recipe + "steps = 30\n");
  made.train.steps = 2;
  (void)train(made, options("run"));
  expect_in("already holds a run", error_of([&] { (void)train(made, options("run")); }).what());
  TrainOptions again = options("run");
  again.overwrite = true;
  EXPECT_EQ(train(made, again).step, 2);
  // A folder with somebody's own recipe.toml is no run.
  write_text(at("mine") / "recipe.toml", "precious");
  TrainOptions mine = options("mine");
  mine.overwrite = true;
  expect_in("no training wrote it", error_of([&] { (void)train(made, mine); }).what());
  EXPECT_EQ(read_file(at("mine") / "recipe.toml"), "precious");
  TrainOptions nothing = options("nothing");
  nothing.resume = true;
  expect_in("no checkpoint to resume from", error_of([&] { (void)train(made, nothing); }).what());
}

TEST_F(TrainRunTest, OverwritingChecksTheNewRunFirst) {
  Recipe made = recipe(copy_recipe + "steps = 30\n");
  made.train.steps = 2;
  (void)train(made, options("run"));
  const std::vector<float> before = weights_of(at("run") / "last");
  TrainOptions again = options("run");
  again.overwrite = true;
  const std::string good = read_file(at("train.txt"));
  for (const std::string& bad : {std::string("abc\n\xff\xfe\n"), std::string("abc\n\n")}) {
    write_text(at("train.txt"), bad);
    EXPECT_EQ(error_of([&] { (void)train(made, again); }).kind(), ErrorKind::text);
    EXPECT_EQ(weights_of(at("run") / "last"), before);
    EXPECT_TRUE(fs::exists(at("run") / "final" / "model.safetensors"));
    EXPECT_EQ(read_file(at("run") / "recipe.toml"), made.text);
  }
  write_text(at("train.txt"), good);
  made.train.seed = 9;
  EXPECT_EQ(train(made, again).step, 2);
  EXPECT_NE(weights_of(at("run") / "last"), before);
}

TEST_F(TrainRunTest, StoppedBeforeTheFirstStepIsSaved) {
  const Recipe made = recipe(copy_recipe + "epochs = 1\n");
  const TrainResult whole = train(made, options("whole"));
  const std::atomic<bool> stop{true};
  TrainOptions stopped = options("run");
  stopped.stop = &stop;
  const TrainResult nothing = train(made, stopped);
  EXPECT_EQ(nothing.end, TrainEnd::stopped);
  EXPECT_EQ(nothing.step, 0);
  ASSERT_TRUE(fs::exists(at("run") / "last" / "state.safetensors"));
  TrainOptions resumed = options("run");
  resumed.resume = true;
  EXPECT_EQ(train(made, resumed).step, whole.step);
  EXPECT_EQ(weights_of(at("run") / "last"), weights_of(at("whole") / "last"));
}

// --seed, --epochs and --data of the first call hold for the second one, and its cosine falls to the same step.
TEST_F(TrainRunTest, ResumedRunKeepsWhatStoodInsteadOfTheRecipe) {
  fs::create_directories(at("data"));
  for (const char* name : {"train.txt", "valid.txt"}) fs::rename(at(name), at("data") / name);
  write_text(at("recipe.toml"), copy_recipe + "epochs = 40\n");
  const Recipe made = load_recipe(at("recipe.toml"));
  TrainOptions first = options("whole");
  first.seed = 77;
  first.epochs = 2;
  first.data_folder = at("data");
  const TrainResult whole = train(made, first);
  StopAt observer(7);
  first.run_folder = at("run");
  first.observer = &observer;
  first.stop = &observer.stop;
  EXPECT_EQ(train(made, first).end, TrainEnd::stopped);
  TrainOptions resumed = options("run");
  resumed.resume = true;
  const RunSource source = source_of_run(at("run"));
  EXPECT_EQ(source.data_folder, fs::absolute(at("data")));

  // Neither another seed nor another end under a cosine.
  TrainOptions other = resumed;
  other.seed = 78;
  expect_in("train.seed = 77", error_of([&] { (void)train(source.recipe, other); }).what());
  other = resumed;
  other.epochs = 3;
  const Error moved = error_of([&] { (void)train(source.recipe, other); });
  EXPECT_EQ(moved.kind(), ErrorKind::config);
  expect_in("cosine", moved.what());

  EXPECT_EQ(plan_training(source.recipe, resumed).steps, whole.step);
  EXPECT_EQ(train(source.recipe, resumed).step, whole.step);
  EXPECT_EQ(weights_of(at("run") / "last"), weights_of(at("whole") / "last"));
  EXPECT_EQ(weights_of(at("run") / "final"), weights_of(at("whole") / "final"));
}

TEST_F(TrainRunTest, ResumeRefusesAnotherRecipeAndOtherData) {
  Recipe made = recipe(copy_recipe + "steps = 30\n");
  made.train.schedule = Schedule::linear;
  made.train.decay_steps = 30;
  made.train.steps = 2;
  (void)train(made, options("run"));
  TrainOptions resumed = options("run");
  resumed.resume = true;
  Recipe other = made;
  other.train.rate = 0.5;
  const Error error = error_of([&] { (void)train(other, resumed); });
  EXPECT_EQ(error.kind(), ErrorKind::config);
  expect_in("train.rate", error.what());
  write_text(at("train.txt"), made_up_words(1200, 5, 5, 77));
  expect_in("data are not those", error_of([&] { (void)train(made, resumed); }).what());
  write_text(at("train.txt"), made_up_words(1200, 5, 5, 1));
  made.train.steps = 4;  // when it ends may change
  EXPECT_EQ(train(made, resumed).step, 4);
  made.train.steps = 30;
  made.train.decay_steps = 0;
  expect_in("decay_steps", error_of([&] { (void)train(made, resumed); }).what());
  made.train.decay_steps = 30;
  // A checkpoint whose model is not what recipe and data make of it.
  const std::filesystem::path config = at("run") / "last" / "config.json";
  std::string text = read_file(config);
  const std::string field = "\"norm_epsilon\": ";
  const std::size_t begin = text.find(field) + field.size();
  ASSERT_LT(begin, text.size());
  text.replace(begin, text.find_first_of(",}\n", begin) - begin, "0.25");
  write_text(config, text);
  const Error changed = error_of([&] { (void)train(made, resumed); });
  EXPECT_EQ(changed.kind(), ErrorKind::config);
  expect_in("norm_epsilon is 0.25 and the recipe says ", changed.what());
  const RunSource source = source_of_run(at("run"));
  EXPECT_EQ(source.recipe.text, made.text);
}

TEST_F(TrainRunTest, NumbersThatAreNoneNameTheStep) {
  Recipe made = recipe(copy_recipe + "steps = 60\n");
  made.train.rate = 1e30;
  made.train.clip = 0;
  made.train.warmup = 0;
  made.train.schedule = Schedule::constant;
  const Error error = error_of([&] { (void)train(made, options("run")); });
  EXPECT_EQ(error.kind(), ErrorKind::numeric);
  expect_in("training step 2", error.where());
  expect_in("lower train.rate", error.what());
}

// A file may not grow beyond `bytes` while this lives: what a full disk looks like to the writer.
class FileLimit {
 public:
  explicit FileLimit(rlim_t bytes) : handler_(std::signal(SIGXFSZ, SIG_IGN)) {
    ::getrlimit(RLIMIT_FSIZE, &before_);
    const rlimit now{bytes, before_.rlim_max};
    ::setrlimit(RLIMIT_FSIZE, &now);
  }
  ~FileLimit() {
    ::setrlimit(RLIMIT_FSIZE, &before_);
    std::signal(SIGXFSZ, handler_);
  }

 private:
  void (*handler_)(int);
  rlimit before_{};
};

TEST_F(TrainRunTest, FullDiskLeavesThePreviousCheckpoint) {
  class FillsUp : public TrainObserver {
   public:
    void on_step(const StepReport& report) override {
      if (report.step == 3) limit.emplace(16 << 10);
    }
    std::optional<FileLimit> limit;
  };
  Recipe made = recipe(copy_recipe + "steps = 30\nsave_every = 2\n");
  made.train.steps = 8;
  (void)train(made, options("whole"));
  FillsUp observer;
  TrainOptions first = options("run");
  first.observer = &observer;
  const Error error = error_of([&] { (void)train(made, first); });
  observer.limit.reset();
  EXPECT_EQ(error.kind(), ErrorKind::file);
  EXPECT_EQ(fs::read_symlink(at("run") / "last").filename(), "step-00000002");
  EXPECT_FALSE(weights_of(at("run") / "last").empty());
  for (const auto& entry : fs::recursive_directory_iterator(at("run")))
    EXPECT_NE(entry.path().extension(), ".partial") << entry.path();
  TrainOptions again = options("run");
  again.resume = true;
  EXPECT_EQ(train(made, again).step, 8);
  EXPECT_EQ(weights_of(at("run") / "last"), weights_of(at("whole") / "last"));
}

// The plan of a model that fits no machine is there at once, and training it is refused with figures, not tried.
TEST_F(TrainRunTest, HugeModelsAreRefusedBeforeTheyAreMade) {
  std::string text = copy_recipe;
  const auto set = [&](const std::string& key, const std::string& value) {
    const std::size_t begin = text.find(key + " = ");
    text.replace(begin, text.find('\n', begin) - begin, key + " = " + value);
  };
  set("width", "8192");
  set("inner_width", "1048576");
  const Recipe made = recipe(text + "steps = 30\n");
  for (const Error& error : {error_of([&] { (void)plan_training(made, options("run")); }),
                             error_of([&] { (void)train(made, options("run")); })}) {
    EXPECT_EQ(error.kind(), ErrorKind::config);
    expect_in("parameters", error.what());
    expect_in("MiB", error.what());
  }
  EXPECT_FALSE(fs::exists(at("run") / "run.json"));
}

TEST_F(TrainRunTest, PlanWritesNothing) {
  const Recipe made = recipe(copy_recipe + "epochs = 2\n");
  const TrainPlan plan = plan_training(made, options("run"));
  EXPECT_EQ(plan.train_items, 1200);
  EXPECT_EQ(plan.valid_items, 60);
  EXPECT_FALSE(fs::exists(at("run")));
  EXPECT_EQ(train(made, options("run")).step, plan.steps);
}

// The estimate against what the buffers really took, where parameters count most and where rows do.
TEST_F(TrainRunTest, PlanFindsThePeakOfMemory) {
  class Peak : public TrainObserver {
   public:
    void on_start(const TrainPlan& plan) override {
      estimate = plan.peak_bytes;
      reset_peak_memory();
    }
    void on_step(const StepReport&) override { measured = memory_use().peak_bytes; }
    std::int64_t estimate = 0, measured = 0;
  };
  const auto changed = [](const std::string& old_line, const std::string& new_line) {
    std::string text = copy_recipe;
    return text.replace(text.find(old_line), old_line.size(), new_line);
  };
  for (const std::string& text :
       {changed("width = 32", "width = 256"), changed("batch_tokens = 200", "batch_tokens = 3000")}) {
    Peak peak;
    TrainOptions watched = options("run");
    watched.overwrite = true;
    watched.observer = &peak;
    (void)train(recipe(text + "epochs = 1\n"), watched);
    ASSERT_GT(peak.measured, 0);
    const double ratio = static_cast<double>(peak.estimate) / static_cast<double>(peak.measured);
    EXPECT_GT(ratio, 0.6) << peak.estimate << " estimated, " << peak.measured << " measured";
    EXPECT_LT(ratio, 1.6) << peak.estimate << " estimated, " << peak.measured << " measured";
  }
}

// ---- Killed at any time --------------------------------------------------------------------------------------------

// From a given step on, kills the process after some microseconds: while computing, validating, saving or moving links.
class KillAfter : public TrainObserver {
 public:
  KillAfter(std::int64_t step, int microseconds) : step_(step), microseconds_(microseconds) {}
  void on_step(const StepReport& report) override {
    if (report.step == step_ && !killer_.joinable())
      killer_ = std::thread([this] {
        std::this_thread::sleep_for(std::chrono::microseconds(microseconds_));
        std::raise(SIGKILL);
      });
  }
  ~KillAfter() override {
    if (killer_.joinable()) killer_.join();
  }

 private:
  std::int64_t step_;
  int microseconds_;
  std::thread killer_;
};

TEST(TrainKillDeathTest, LeavesAWholeCheckpointAndResumesToTheSameBits) {
  testing::FLAGS_gtest_death_test_style = "threadsafe";
  const fs::path folder = fs::path(testing::TempDir()) / "attend-train-kill";
  const bool child = testing::internal::InDeathTestChild();
  if (!child) {
    fs::remove_all(folder);
    write_text(folder / "train.txt", made_up_words(300, 5, 5, 1));
    write_text(folder / "valid.txt", made_up_words(20, 5, 5, 2));
  }
  // A checkpoint after every step, so that many kills fall into a save.
  Recipe made = parse_recipe(copy_recipe + "epochs = 4\nsave_every = 1\naverage = 2\n", folder / "recipe.toml");
  TrainOptions options;
  options.run_folder = folder / "run";
  if (!child) {
    TrainOptions whole = options;
    whole.run_folder = folder / "whole";
    (void)train(made, whole);
  }
  std::int64_t step = 2;
  for (const int microseconds : {0, 700, 1500, 2500, 4000, 6000, 9000, 15000}) {
    options.resume = fs::exists(folder / "run" / "last");
    EXPECT_EXIT(
        {
          KillAfter observer(step, microseconds);
          options.observer = &observer;
          (void)train(made, options);
        },
        testing::KilledBySignal(SIGKILL), "");
    step += 3;
    if (child) continue;  // it runs this test again up to its own place in the list
    for (const char* link : {"last", "best"}) {
      if (!fs::exists(fs::symlink_status(folder / "run" / link))) continue;
      EXPECT_NO_THROW((void)weights_of(folder / "run" / link)) << link << " after " << microseconds;
    }
  }
  options.observer = nullptr;
  options.resume = true;
  (void)train(made, options);
  EXPECT_EQ(weights_of(folder / "run" / "last"), weights_of(folder / "whole" / "last"));
  EXPECT_EQ(weights_of(folder / "run" / "final"), weights_of(folder / "whole" / "final"));
  for (const auto& entry : fs::recursive_directory_iterator(folder / "run"))
    EXPECT_NE(entry.path().extension(), ".partial") << entry.path();
  fs::remove_all(folder);
}

}  // namespace
}  // namespace attend
