// What the tape records, keeps and frees.
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <functional>
#include <span>

#include "attend/ops.h"
#include "core/memory.h"
#include "core/random.h"
#include "core/threads.h"

namespace attend {
namespace {

Tensor random_tensor(Shape shape, std::uint64_t seed) {
  Random random(seed);
  Tensor x = Tensor::empty(shape);
  for (std::int64_t i = 0; i < x.elements(); ++i) x.data()[i] = static_cast<float>(random.normal());
  return x;
}

std::string message_of(const std::function<void()>& action) {
  try {
    action();
  } catch (const Error& error) {
    return error.what();
  }
  return "nothing was thrown";
}

bool contains(const std::string& text, const char* part) { return text.find(part) != std::string::npos; }

constexpr std::int64_t big_bytes = 512 * 512 * 4;

TEST(Tape, InferenceRecordsNothingAndFreesAsItGoes) {
  Tensor x = random_tensor({512, 512}, 1);
  const Weight weight(random_tensor({512, 512}, 2));
  x = linear(x, weight);  // lays the weight out
  const std::int64_t before = memory_use().live_bytes;
  reset_peak_memory();
  for (int layer = 0; layer < 6; ++layer) x = scale(linear(x, weight, {}, Activation::gelu), 0.01f);
  // Half a tensor is left to the scratch memory that each thread of the product keeps.
  EXPECT_LE(memory_use().live_bytes, before + big_bytes / 2);
  EXPECT_LE(memory_use().peak_bytes, before + 2 * big_bytes + big_bytes / 2);
  EXPECT_EQ(Tape::recording(), nullptr);
}

TEST(Tape, NothingIsRecordedWithoutAWatchedLeaf) {
  Tape tape;
  const GradientScope scope(tape);
  const Tensor x = random_tensor({512, 512}, 1);
  const std::int64_t before = memory_use().live_bytes;
  Tensor y = x;
  for (int step = 0; step < 4; ++step) y = multiply(y, y);
  EXPECT_LE(memory_use().live_bytes, before + big_bytes);
  EXPECT_FALSE(tape.tracks(y));
}

TEST(Tape, KeepsOnlyTheValuesThatBackwardReads) {
  Tape tape;
  const Tensor x = random_tensor({512, 512}, 1);
  tape.watch(x);
  const std::int64_t before = memory_use().live_bytes;
  Tensor y = x;
  {
    const GradientScope scope(tape);
    for (int step = 0; step < 4; ++step) y = scale(y, 2);  // its backward needs no values
    EXPECT_LE(memory_use().live_bytes, before + big_bytes + 4096);
    for (int step = 0; step < 4; ++step) y = exp(scale(y, 0.001f));  // keeps its output
    EXPECT_GE(memory_use().live_bytes, before + 4 * big_bytes);
    y = sum(y);
  }
  reset_peak_memory();
  const std::int64_t recorded = memory_use().live_bytes;
  tape.backward(y);
  // Values go as gradients come: never more than two gradients beyond what was recorded.
  EXPECT_LE(memory_use().peak_bytes, recorded + 2 * big_bytes + 4096);
  y = {};
  // The leaf's gradient remains.
  EXPECT_LE(memory_use().live_bytes, before + big_bytes + 4096);
}

TEST(Tape, TwoBackwardPassesAccumulate) {
  const Tensor x = Tensor::from({2}, std::vector<float>{1, 2});
  Tensor gradient = Tensor::zeros({2});
  for (int pass = 0; pass < 2; ++pass) {
    Tape tape;
    tape.watch(x, gradient);
    Tensor loss;
    {
      const GradientScope scope(tape);
      loss = sum(multiply(x, x));
    }
    tape.backward(loss);
  }
  EXPECT_EQ(gradient.to_vector(), (std::vector<float>{4, 8}));

  // The same with one tape and a gradient of its own.
  Tape tape;
  tape.watch(x);
  for (int pass = 0; pass < 2; ++pass) {
    const GradientScope scope(tape);
    tape.backward(sum(multiply(x, x)));
  }
  EXPECT_EQ(tape.gradient(x).to_vector(), (std::vector<float>{4, 8}));
}

TEST(Tape, KeepGradient) {
  Tape tape;
  const Tensor x = Tensor::from({2}, std::vector<float>{1, 2});
  tape.watch(x);
  const GradientScope scope(tape);
  const Tensor y = scale(x, 3);
  const Tensor z = multiply(y, y);
  tape.keep_gradient(y);
  tape.backward(sum(z));
  EXPECT_EQ(tape.gradient(y).to_vector(), (std::vector<float>{6, 12}));
  EXPECT_EQ(tape.gradient(x).to_vector(), (std::vector<float>{18, 36}));
  EXPECT_TRUE(contains(message_of([&] { tape.gradient(z); }), "not kept"));
}

TEST(Tape, KeptGradientIsNotOverwrittenByTheStepsBelow) {
  Tape tape;
  const Tensor x = Tensor::from({1, 2}, std::vector<float>{-1, 2});
  const Weight weight(Tensor::from({2, 2}, std::vector<float>{1, 0, 0, 1}));
  tape.watch(x);
  const GradientScope scope(tape);
  const Tensor y = linear(x, weight, {}, Activation::relu);
  const Tensor z = add(y, Tensor::filled({1, 2}, 1));
  tape.keep_gradient(y);
  tape.keep_gradient(z);
  tape.backward(sum(z));
  EXPECT_EQ(tape.gradient(z).to_vector(), (std::vector<float>{1, 1}));
  EXPECT_EQ(tape.gradient(y).to_vector(), (std::vector<float>{1, 1}));
  EXPECT_EQ(tape.gradient(x).to_vector(), (std::vector<float>{0, 1}));
}

TEST(Tape, NoGradientScopeCutsTheRecord) {
  Tape tape;
  const Tensor x = Tensor::from({2}, std::vector<float>{1, 2});
  tape.watch(x);
  const GradientScope scope(tape);
  Tensor cut;
  {
    const NoGradientScope nothing;
    EXPECT_EQ(Tape::recording(), nullptr);
    cut = multiply(x, x);
  }
  EXPECT_EQ(Tape::recording(), &tape);
  EXPECT_FALSE(tape.tracks(cut));
  tape.backward(sum(multiply(cut, x)));
  EXPECT_EQ(tape.gradient(x).to_vector(), (std::vector<float>{1, 4}));
}

TEST(Tape, ScopesNest) {
  Tape outer, inner;
  const GradientScope outer_scope(outer);
  {
    const GradientScope inner_scope(inner);
    EXPECT_EQ(Tape::recording(), &inner);
  }
  EXPECT_EQ(Tape::recording(), &outer);
}

TEST(Tape, GradientIsZeroWhereTheLossDoesNotDepend) {
  Tape tape;
  const Tensor x = Tensor::filled({2}, 1), unused = Tensor::filled({3}, 1);
  tape.watch(x);
  tape.watch(unused);
  const GradientScope scope(tape);
  const Tensor beside = scale(unused, 2);  // its step is skipped
  tape.backward(sum(x));
  EXPECT_EQ(tape.gradient(unused).to_vector(), std::vector<float>(3, 0.0f));
}

TEST(Tape, GradientsInOneBlockLikeTheParameters) {
  const Tensor parameters = Tensor::from({6}, std::vector<float>{1, 2, 3, 4, 5, 6});
  Tensor gradients = Tensor::zeros({6});
  const Tensor first = parameters.columns(0, 2), second = parameters.columns(2, 4).reshaped({2, 2});
  Tape tape;
  tape.watch(first, gradients.columns(0, 2));
  tape.watch(second, gradients.columns(2, 4).reshaped({2, 2}));
  const GradientScope scope(tape);
  tape.backward(add(sum(multiply(first, first)), sum(scale(second, 3))));
  EXPECT_EQ(gradients.to_vector(), (std::vector<float>{2, 4, 3, 3, 3, 3}));
  EXPECT_TRUE(contains(message_of([&] { Tape().watch(first, gradients.columns(2, 2)); }), "same place"));
}

TEST(Tape, Errors) {
  Tape tape;
  const Tensor x = Tensor::filled({2}, 1);
  EXPECT_TRUE(contains(message_of([&] { tape.watch({}); }), "undefined"));
  EXPECT_TRUE(contains(message_of([&] { tape.watch(x, Tensor::zeros({3})); }), "[3]"));
  EXPECT_TRUE(contains(message_of([&] { tape.backward(x); }), "the loss is [2]"));
  EXPECT_TRUE(contains(message_of([&] { tape.backward(sum(x)); }), "watches"));
  EXPECT_TRUE(contains(message_of([&] { tape.keep_gradient(x); }), "[2]"));
  EXPECT_TRUE(contains(message_of([&] { tape.gradient(x); }), "not kept"));
  tape.watch(x, Tensor::zeros({2}));
  EXPECT_TRUE(contains(message_of([&] { tape.watch(x, Tensor::zeros({2})); }), "another gradient"));
  const GradientScope scope(tape);
  const Tensor loss = sum(x);
  tape.backward(loss);
  EXPECT_TRUE(contains(message_of([&] { tape.backward(loss); }), "once"));
  Tensor heads = Tensor::filled({1, 2}, 1);
  tape.watch(heads);
  const std::vector<std::int32_t> positions{0};
  EXPECT_TRUE(
      contains(message_of([&] { rotate_heads(heads, 1, 2, Pairing::halves, rotation_table(1, 2, 10), positions); }),
               "watched leaf"));
}

TEST(Tape, SurvivesAStepThatThrows) {
  Tape tape;
  const Tensor x = Tensor::filled({2}, 1);
  tape.watch(x);
  const GradientScope scope(tape);
  const Tensor y = scale(x, 2);
  const Tensor z = Tensor::filled({1}, 1);
  tape.record(z, [](Tape&) { throw Error(ErrorKind::numeric, "step", "broke"); });
  EXPECT_TRUE(contains(message_of([&] { tape.backward(z); }), "broke"));
  EXPECT_FALSE(tape.tracks(y));
  tape.backward(sum(scale(x, 2)));
  EXPECT_EQ(tape.gradient(x).to_vector(), (std::vector<float>{2, 2}));
}

TEST(Loss, ResultCounts) {
  const Tensor logits = Tensor::from({4, 3}, std::vector<float>{2, 1, 0, 0, 3, 1, 5, 1, 1, 0, 0, 1});
  const LossResult result = cross_entropy(logits, std::vector<std::int32_t>{0, 2, -1, 2}, 0.1f, 0.5f);
  EXPECT_EQ(result.labels, 3);
  EXPECT_EQ(result.correct, 2);
  const double plain = -std::log(std::exp(2) / (std::exp(2) + std::exp(1) + 1)) -
                       std::log(std::exp(1) / (1 + std::exp(3) + std::exp(1))) -
                       std::log(std::exp(1) / (2 + std::exp(1)));
  EXPECT_NEAR(result.plain, plain, 1e-5);
  EXPECT_GT(result.smoothed, 0);
  EXPECT_NEAR(result.total.item(), 0.5 * result.smoothed, 1e-6);
  EXPECT_EQ(logits.at(0, 0), 2);  // without a tape the logits stay as they are
}

TEST(Loss, CorrectLooksAtEveryLogit) {
  // The only larger logit far from the label, and none at all.
  Tensor logits = Tensor::zeros({3, 700});
  for (std::int64_t row = 0; row < 3; ++row) logits.row(row)[5] = 1;
  logits.row(0)[699] = 2;
  logits.row(1)[300] = 2;
  const std::vector<std::int32_t> labels{5, 5, 5};
  EXPECT_EQ(cross_entropy(logits, labels).correct, 1);
  EXPECT_EQ(cross_entropy(logits.row_range(0, 2), std::span(labels).first(2)).correct, 0);
}

TEST(Loss, LinearCrossEntropyEqualsItsTwoParts) {
  const Tensor x = random_tensor({600, 24}, 1), table = random_tensor({50, 24}, 2), bias = random_tensor({50}, 3);
  const Weight weight(table);
  std::vector<std::int32_t> labels;
  for (std::int32_t row = 0; row < 600; ++row) labels.push_back(row % 51 - 1);
  const auto run = [&](bool fused, std::vector<Tensor>& gradients) {
    Tape tape;
    for (const Tensor& leaf : {x, table, bias}) tape.watch(leaf);
    LossResult result;
    {
      const GradientScope scope(tape);
      result = fused ? linear_cross_entropy(x, weight, bias, labels, 0.1f, 0.01f)
                     : cross_entropy(linear(x, weight, bias), labels, 0.1f, 0.01f);
    }
    tape.backward(result.total);
    for (const Tensor& leaf : {x, table, bias}) gradients.push_back(tape.gradient(leaf));
    return result;
  };
  std::vector<Tensor> one, two;
  const LossResult fused = run(true, one), parts = run(false, two);
  EXPECT_EQ(fused.labels, parts.labels);
  EXPECT_EQ(fused.correct, parts.correct);
  EXPECT_NEAR(fused.smoothed, parts.smoothed, 1e-9 * parts.smoothed);
  EXPECT_NEAR(fused.plain, parts.plain, 1e-9 * parts.plain);
  for (std::size_t which = 0; which < one.size(); ++which)
    for (std::int64_t i = 0; i < one[which].elements(); ++i)
      ASSERT_NEAR(one[which].data()[i], two[which].data()[i], 1e-6) << which << " " << i;
  // Without a tape: the same numbers, no gradients.
  const LossResult evaluated = linear_cross_entropy(x, weight, bias, labels, 0.1f, 0.01f);
  EXPECT_EQ(evaluated.smoothed, fused.smoothed);
  EXPECT_EQ(evaluated.correct, fused.correct);
}

TEST(Loss, LinearCrossEntropyNeverHoldsAllLogits) {
  const Tensor x = random_tensor({4096, 8}, 1);
  const Weight weight(random_tensor({1000, 8}, 2));
  const std::vector<std::int32_t> labels(4096, 3);
  linear_cross_entropy(x.row_range(0, 1), weight, {}, std::span(labels).first(1));  // lays the weight out
  const std::int64_t before = memory_use().live_bytes;
  reset_peak_memory();
  linear_cross_entropy(x, weight, {}, labels);
  EXPECT_LE(memory_use().peak_bytes - before, 4096 * 1000 * 4 / 8);
}

// One pre-norm block of self-attention and feed-forward, and its loss.
std::vector<float> gradients_of_a_block() {
  constexpr std::int64_t rows = 150, width = 32, heads = 4, inner = 64, vocabulary = 300;
  std::vector<Tensor> leaves{
      random_tensor({vocabulary, width}, 1), Tensor::filled({width}, 1),      Tensor::zeros({width}),
      random_tensor({3 * width, width}, 2),  random_tensor({3 * width}, 3),   random_tensor({width, width}, 4),
      random_tensor({inner, width}, 5),      random_tensor({width, inner}, 6)};
  std::vector<std::int32_t> ids, labels;
  for (std::int32_t row = 0; row < rows; ++row) {
    ids.push_back(row * 7 % vocabulary);
    labels.push_back(row * 11 % vocabulary);
  }
  Tape tape;
  for (const Tensor& leaf : leaves) tape.watch(leaf);
  LossResult result;
  {
    const GradientScope scope(tape);
    Tensor x = embed(leaves[0], ids, 2);
    const Tensor qkv = linear(layer_norm(x, leaves[1], leaves[2], 1e-5f), Weight(leaves[3]), leaves[4]);
    AttentionInput input;
    input.query_heads = input.key_heads = heads;
    input.items = {{.query_begin = 0, .queries = 100, .key_begin = 0, .keys = 100},
                   {.query_begin = 100, .queries = 50, .key_begin = 100, .keys = 50}};
    input.mask = {CausalRule{}};
    input.dropout = {0.1f, 3};
    const Tensor heads_out =
        attention(qkv.columns(0, width), qkv.columns(width, width), qkv.columns(2 * width, width), input);
    x = add_dropped(x, linear(heads_out, Weight(leaves[5])), 0.1f, 5);
    const Tensor hidden = linear(rms_norm(x, leaves[1], 1e-5f), Weight(leaves[6]), {}, Activation::gelu);
    x = add_dropped(x, linear(hidden, Weight(leaves[7])), 0.1f, 6);
    result = linear_cross_entropy(x, Weight(leaves[0]), {}, labels, 0.1f, 1.0f / rows);
  }
  tape.backward(result.total);
  std::vector<float> all{result.total.item()};
  for (const Tensor& leaf : leaves) {
    const std::vector<float> gradient = tape.gradient(leaf).to_vector();
    all.insert(all.end(), gradient.begin(), gradient.end());
  }
  return all;
}

TEST(Threads, SameBitsForAnyNumber) {
  const int before = threads();
  set_threads(1);
  const std::vector<float> alone = gradients_of_a_block();
  float largest = 0;
  for (float value : alone) largest = std::max(largest, std::abs(value));
  EXPECT_GT(largest, 0);
  for (int count : {2, 3, 5}) {
    set_threads(count);
    const std::vector<float> together = gradients_of_a_block();
    ASSERT_EQ(together.size(), alone.size());
    EXPECT_EQ(std::memcmp(together.data(), alone.data(), alone.size() * sizeof(float)), 0) << count << " threads";
  }
  set_threads(before);
}

}  // namespace
}  // namespace attend
