#include <gtest/gtest.h>

#include "train/recipe_keys.h"
#include "train_fixture.h"

namespace attend {
namespace {

const std::string good = R"(title = "names"
[data]
task = "lines"
train = "names.txt"
valid_lines = 10

[tokenizer]
kind = "character"

[model]
decoder_layers = 2
width = 32
heads = 4
inner_width = 64

[train]
epochs = 1
batch_items = 8
rate = 0.001
)";

std::string with(const std::string& old_line, const std::string& new_line) {
  std::string text = good;
  const std::size_t at = text.find(old_line);
  EXPECT_NE(at, std::string::npos) << old_line;
  return text.replace(at, old_line.size(), new_line);
}

Error refusal(const std::string& text) {
  return error_of([&] { (void)parse_recipe(text, "some/recipe.toml"); });
}

TEST(TrainRecipe, ReadsValuesAndDefaults) {
  const Recipe recipe = parse_recipe(good, "some/recipe.toml");
  EXPECT_EQ(recipe.title, "names");
  EXPECT_EQ(recipe.data.task, RecipeTask::lines);
  EXPECT_EQ(recipe.data.train, std::vector<std::string>{"names.txt"});
  EXPECT_FALSE(recipe.model.encoder.has_value());
  ASSERT_TRUE(recipe.model.decoder.has_value());
  EXPECT_EQ(recipe.model.decoder->layers, 2);
  EXPECT_TRUE(recipe.model.decoder->causal);
  EXPECT_EQ(recipe.model.width, 32);
  EXPECT_DOUBLE_EQ(recipe.train.rate, 0.001);
  EXPECT_DOUBLE_EQ(recipe.train.beta2, 0.999);
  EXPECT_EQ(recipe.train.accumulate, 1);
}

TEST(TrainRecipe, UnknownKeyNamesLineAndNearest) {
  const Error error = refusal(with("batch_items = 8", "batch_itmes = 8"));
  EXPECT_EQ(error.kind(), ErrorKind::config);
  expect_in("some/recipe.toml:18", error.what());
  expect_in("train.batch_itmes", error.what());
  expect_in("did you mean batch_items?", error.what());
}

TEST(TrainRecipe, KeyOfAnotherSectionIsTold) {
  const Error error = refusal(with("width = 32", "width = 32\nrate = 0.1"));
  expect_in("model.rate", error.what());
  expect_in("[train]", error.what());
}

TEST(TrainRecipe, UnknownSectionNamesNearest) {
  expect_in("did you mean tokenizer?", refusal(with("[tokenizer]", "[tokeniser]")).what());
}

TEST(TrainRecipe, WrongTypeAndRangeNameTheLine) {
  const Error type = refusal(with("width = 32", "width = \"32\""));
  expect_in("some/recipe.toml:12", type.what());
  expect_in("model.width is a text; it must be an integer", type.what());
  expect_in("it must be an integer", refusal(with("width = 32", "width = 32.5")).what());
  expect_in("from 0 to 0.95", refusal(with("width = 32", "width = 32\ndropout = 1.5")).what());
  expect_in("it must be a finite number", refusal(with("rate = 0.001", "rate = nan")).what());
  expect_in("did you mean \"rotary\"?", refusal(with("width = 32", "width = 32\npositions = \"rotery\"")).what());
}

TEST(TrainRecipe, IntegerStandsForANumber) {
  EXPECT_DOUBLE_EQ(parse_recipe(with("rate = 0.001", "rate = 1"), "").train.rate, 1.0);
}

TEST(TrainRecipe, BrokenTomlNamesTheLine) {
  const Error error = refusal(with("heads = 4", "heads = = 4"));
  expect_in("some/recipe.toml:13", error.what());
  expect_in("is not TOML", error.what());
}

TEST(TrainRecipe, MissingAndMeaninglessKeys) {
  expect_in("model.width is missing", refusal(with("width = 32\n", "")).what());
  const Error error = refusal(with("width = 32", "width = 32\nencoder_layers = 2"));
  expect_in("model.encoder_layers has no meaning for task \"lines\"", error.what());
}

TEST(TrainRecipe, ContradictionsAreRefused) {
  expect_in("when the run ends", refusal(with("epochs = 1\n", "")).what());
  expect_in("size of a batch", refusal(with("batch_items = 8\n", "")).what());
  expect_in("keep one of the two", refusal(with("batch_items = 8", "batch_items = 8\nbatch_tokens = 9")).what());
  expect_in("nothing to validate on", refusal(with("valid_lines = 10\n", "")).what());
  expect_in("end of the warm-up", refusal(with("rate = 0.001", "rate = 0.001\nschedule = \"inverse_sqrt\"")).what());
  expect_in("nothing is decoded", refusal(good + "[validation]\nbest = \"bleu\"\n").what());
  expect_in("above train.rate", refusal(with("rate = 0.001", "rate = 0.001\nfloor = 0.01")).what());
}

// Before any data are read, with the line of the recipe's own key.
TEST(TrainRecipe, ContradictionsOfTheModelNameTheLine) {
  const Error heads = refusal(with("heads = 4", "heads = 5"));
  EXPECT_EQ(heads.kind(), ErrorKind::config);
  expect_in("some/recipe.toml:13: model.heads is 5", heads.what());
  const Error norm = refusal(with("heads = 4", "heads = 4\nnorm = \"rms\""));
  expect_in("some/recipe.toml:14: model.norm_bias is true", norm.what());
  const Error rotary = refusal(with("width = 32", "positions = \"rotary\"\nwidth = 36\nrotary_dim = 7"));
  expect_in("some/recipe.toml:14: model.rotary_dim is 7", rotary.what());
  const Error huge = refusal(with("width = 32", "width = 65536\nhead_dim = 65536"));
  expect_in("some/recipe.toml:12", huge.what());
}

TEST(TrainRecipe, OpenRangesLeaveTheirLimitsOut) {
  expect_in("above 0 and below 1", refusal(with("heads = 4", "heads = 4\nnorm_epsilon = 0")).what());
  expect_in("above 1 and below", refusal(with("heads = 4", "heads = 4\nposition_base = 1")).what());
  expect_in("from 0.98 to 1", refusal(with("kind = \"character\"", "kind = \"sentencepiece\"\ncoverage = 0.9")).what());
  EXPECT_NO_THROW((void)parse_recipe(with("heads = 4", "heads = 4\nnorm_epsilon = 1e-9\nposition_base = 1.5"), ""));
}

TEST(TrainRecipe, FinalWeightsAreFloat16UnlessAskedFor) {
  EXPECT_EQ(parse_recipe(good, "").train.weights, WeightType::float16);
  EXPECT_EQ(parse_recipe(with("epochs = 1", "epochs = 1\nweights = \"float32\""), "").train.weights,
            WeightType::float32);
  expect_in("did you mean \"float32\"?", refusal(with("epochs = 1", "epochs = 1\nweights = \"float23\"")).what());
}

// Keys, parsing and documentation come from one table; this holds it against the shipped recipes and the shipped page.
TEST(TrainRecipe, ShippedRecipesAreValid) {
  int count = 0;
  for (const auto& entry : std::filesystem::directory_iterator(std::filesystem::path(ATTEND_SOURCE_DIR) / "recipe")) {
    if (entry.path().extension() != ".toml") continue;
    ++count;
    EXPECT_NO_THROW((void)load_recipe(entry.path())) << entry.path();
    EXPECT_FALSE(load_recipe(entry.path()).title.empty()) << entry.path();
  }
  EXPECT_GE(count, 6);
}

TEST(TrainRecipe, DocumentationHoldsEveryKeyOnce) {
  const std::string page = read_file(std::filesystem::path(ATTEND_SOURCE_DIR) / "recipe" / "README.md");
  expect_in(describe_recipe_keys(), page);
  Recipe fresh;
  fresh.model.encoder.emplace();
  fresh.model.decoder.emplace();
  std::vector<std::string> paths;
  for (const RecipeKey& key : recipe_keys(fresh)) {
    EXPECT_FALSE(key.help.empty()) << key.path();
    paths.push_back(key.path());
    expect_in("| `" + key.name + "` |", page);
  }
  std::sort(paths.begin(), paths.end());
  EXPECT_EQ(std::adjacent_find(paths.begin(), paths.end()), paths.end());
}

}  // namespace
}  // namespace attend
