#include <cmath>
#include <numeric>
#include <set>

#include "attend/tokenizer.h"
#include "train/batches.h"
#include "train_fixture.h"

namespace attend {
namespace {

// Worked example 7: target "I love robot"; the decoder reads <bos> I love robot and is to say I love robot <eos>.
TEST(TrainBatches, RightShift) {
  constexpr std::int32_t bos = 2, eos = 3, I = 10, love = 11, robot = 12;
  Batch batch;
  append_shifted(batch, bos, std::vector<std::int32_t>{I, love, robot}, eos);
  EXPECT_EQ(batch.input.ids, (std::vector<std::int32_t>{bos, I, love, robot}));
  EXPECT_EQ(batch.labels, (std::vector<std::int32_t>{I, love, robot, eos}));
  EXPECT_EQ(batch.input.offsets, (std::vector<std::int64_t>{0, 4}));
  // Position 2 has read <bos>, I, love and is to say robot.
  EXPECT_EQ(batch.labels[2], robot);
  EXPECT_EQ(std::vector<std::int32_t>(batch.input.ids.begin(), batch.input.ids.begin() + 3),
            (std::vector<std::int32_t>{bos, I, love}));
}

TEST(TrainBatches, NothingIsPadded) {
  const std::vector<SequenceItem> items{{{7, 3}, {5}, 0}, {{8, 8, 8, 3}, {5, 6, 7}, 0}, {{9, 3}, {}, 0}};
  const Batch batch = make_batch(items, std::vector<std::int64_t>{2, 0, 1}, 2, 3);
  EXPECT_EQ(batch.source.offsets, (std::vector<std::int64_t>{0, 2, 4, 8}));
  EXPECT_EQ(batch.source.ids, (std::vector<std::int32_t>{9, 3, 7, 3, 8, 8, 8, 3}));
  EXPECT_EQ(batch.input.offsets, (std::vector<std::int64_t>{0, 1, 3, 7}));
  EXPECT_EQ(batch.input.ids, (std::vector<std::int32_t>{2, 2, 5, 2, 5, 6, 7}));
  EXPECT_EQ(batch.labels, (std::vector<std::int32_t>{3, 5, 3, 5, 6, 7, 3}));
}

std::vector<ItemLength> random_lengths(int count, std::uint64_t seed) {
  Random random(seed);
  std::vector<ItemLength> lengths;
  for (int i = 0; i < count; ++i)
    lengths.push_back(
        {static_cast<std::int32_t>(1 + random.below(30)), static_cast<std::int32_t>(1 + random.below(40))});
  return lengths;
}

TEST(TrainBatches, EpochHoldsEveryItemOnceWithinTheBudget) {
  for (const int count : {1, 2, 97, 1000}) {
    const auto lengths = random_lengths(count, 5);
    TrainRecipe recipe;
    recipe.batch_tokens = 50;
    for (const std::int64_t bucket : {0, 1, 3, 100}) {
      recipe.bucket = bucket;
      std::vector<int> seen(lengths.size());
      for (const auto& batch : plan_epoch(lengths, recipe, 1)) {
        std::int64_t tokens = 0;
        for (std::int64_t item : batch)
          ++seen[static_cast<std::size_t>(item)], tokens += lengths[static_cast<std::size_t>(item)].target;
        EXPECT_LE(tokens, 50);
        EXPECT_FALSE(batch.empty());
      }
      EXPECT_TRUE(std::all_of(seen.begin(), seen.end(), [](int times) { return times == 1; }));
    }
  }
}

TEST(TrainBatches, AnItemLongerThanTheBudgetIsABatchOfItsOwn) {
  TrainRecipe recipe;
  recipe.batch_tokens = 10;
  const std::vector<ItemLength> lengths{{1, 4}, {1, 25}, {1, 5}};
  int found = 0;
  for (const auto& batch : plan_epoch(lengths, recipe, 1)) found += batch == std::vector<std::int64_t>{1} ? 1 : 0;
  EXPECT_EQ(found, 1);
}

TEST(TrainBatches, OrderDependsOnSeedAndEpochOnly) {
  const auto lengths = random_lengths(300, 6);
  TrainRecipe recipe;
  recipe.batch_items = 7;
  EXPECT_EQ(plan_epoch(lengths, recipe, 3), plan_epoch(lengths, recipe, 3));
  EXPECT_NE(plan_epoch(lengths, recipe, 3), plan_epoch(lengths, recipe, 4));
  TrainRecipe other = recipe;
  other.seed = 2;
  EXPECT_NE(plan_epoch(lengths, recipe, 3), plan_epoch(lengths, other, 3));
}

TEST(TrainBatches, BucketsGatherLikeLengths) {
  const auto lengths = random_lengths(2000, 7);
  TrainRecipe recipe;
  recipe.batch_items = 20;
  const auto spread = [&](std::int64_t bucket) {
    recipe.bucket = bucket;
    double sum = 0;
    const auto batches = plan_epoch(lengths, recipe, 1);
    for (const auto& batch : batches) {
      std::int32_t low = 1000, high = 0;
      for (std::int64_t item : batch) {
        low = std::min(low, lengths[static_cast<std::size_t>(item)].target);
        high = std::max(high, lengths[static_cast<std::size_t>(item)].target);
      }
      sum += high - low;
    }
    return sum / static_cast<double>(batches.size());
  };
  EXPECT_LT(spread(100), 3);
  EXPECT_GT(spread(0), 25);
}

TEST(TrainBatches, BlocksAreNextTokenPredictionAtAnyPlace) {
  std::vector<std::int32_t> text(40);
  std::iota(text.begin(), text.end(), 0);
  std::set<std::int32_t> begins;
  for (std::int64_t step = 0; step < 200; ++step) {
    const Batch batch = random_blocks(text, 3, 8, 1, step);
    EXPECT_EQ(batch.input.offsets, (std::vector<std::int64_t>{0, 8, 16, 24}));
    for (std::size_t row = 0; row < 24; ++row) EXPECT_EQ(batch.labels[row], batch.input.ids[row] + 1);
    for (std::size_t item = 0; item < 3; ++item) begins.insert(batch.input.ids[item * 8]);
  }
  // A block of 8 with its labels fits at 0..31.
  EXPECT_EQ(begins.size(), 32u);
  EXPECT_EQ(*begins.rbegin(), 31);
}

TEST(TrainBatches, StreamsOfOneSeedDiffer) {
  std::set<std::uint64_t> seeds;
  for (std::uint64_t seed : {1u, 2u})
    for (Purpose purpose : {Purpose::parameters, Purpose::held_out, Purpose::order, Purpose::blocks, Purpose::dropout,
                            Purpose::augmentation})
      for (std::uint64_t first : {0u, 1u, 2u})
        for (std::uint64_t second : {0u, 1u}) seeds.insert(stream_seed(seed, purpose, first, second));
  EXPECT_EQ(seeds.size(), 2u * 6 * 3 * 2);
}

TEST(TrainSchedule, Values) {
  TrainRecipe recipe;
  recipe.rate = 0.01;
  recipe.warmup = 100;
  recipe.floor = 0.001;
  recipe.schedule = Schedule::constant;
  EXPECT_DOUBLE_EQ(learning_rate(recipe, 1, 1000), 0.0001);
  EXPECT_DOUBLE_EQ(learning_rate(recipe, 50, 1000), 0.005);
  EXPECT_DOUBLE_EQ(learning_rate(recipe, 100, 1000), 0.01);
  EXPECT_DOUBLE_EQ(learning_rate(recipe, 900, 1000), 0.01);
  recipe.schedule = Schedule::inverse_sqrt;
  EXPECT_DOUBLE_EQ(learning_rate(recipe, 100, 1000), 0.01);
  EXPECT_DOUBLE_EQ(learning_rate(recipe, 400, 1000), 0.005);
  recipe.schedule = Schedule::cosine;
  EXPECT_NEAR(learning_rate(recipe, 550, 1000), 0.0055, 1e-15);
  EXPECT_NEAR(learning_rate(recipe, 325, 1000), 0.001 + 0.009 * 0.5 * (1 + std::sqrt(0.5)), 1e-15);
  EXPECT_NEAR(learning_rate(recipe, 1000, 1000), 0.001, 1e-15);
  EXPECT_NEAR(learning_rate(recipe, 2000, 1000), 0.001, 1e-15);
  recipe.schedule = Schedule::linear;
  EXPECT_NEAR(learning_rate(recipe, 550, 1000), 0.0055, 1e-15);
  recipe.decay_steps = 550;
  EXPECT_NEAR(learning_rate(recipe, 550, 1000), 0.001, 1e-15);
  recipe.warmup = 0;
  recipe.schedule = Schedule::constant;
  EXPECT_DOUBLE_EQ(learning_rate(recipe, 1, 1000), 0.01);
}

// Section 5.3 of Vaswani et al. 2017 with width 512 and 4,000 warm-up steps: the same curve with its peak as the rate.
TEST(TrainSchedule, EqualsThePaperFormula) {
  TrainRecipe recipe;
  recipe.schedule = Schedule::inverse_sqrt;
  recipe.warmup = 4000;
  recipe.rate = std::pow(512.0, -0.5) * std::pow(4000.0, -0.5);
  for (const double step : {1.0, 2000.0, 4000.0, 4001.0, 100000.0})
    EXPECT_NEAR(learning_rate(recipe, static_cast<std::int64_t>(step), 100000),
                std::pow(512.0, -0.5) * std::min(std::pow(step, -0.5), step * std::pow(4000.0, -1.5)), 1e-12);
}

}  // namespace
}  // namespace attend
