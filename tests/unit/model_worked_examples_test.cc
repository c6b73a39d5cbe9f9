// Examples a reader can check by hand that go around attention: projections, heads put together, a block, its cost.
// Those of attention alone are in kernel_attention_worked_examples_test.cc, with the same tokens A, B, C.
#include <gtest/gtest.h>

#include <cmath>
#include <initializer_list>
#include <limits>
#include <vector>

#include "attend/config.h"
#include "attend/ops.h"

namespace attend {
namespace {

Tensor matrix(std::int64_t rows, std::initializer_list<float> values) {
  return Tensor::from({rows, static_cast<std::int64_t>(values.size()) / rows}, std::vector<float>(values));
}

// A matrix as books write it, for x W. A Weight is [outputs, inputs], the transpose.
Weight weight(std::int64_t rows, std::initializer_list<float> values) {
  return Weight(transpose(matrix(rows, values)));
}

void expect_rows(const Tensor& found, std::initializer_list<float> expected) {
  ASSERT_EQ(found.elements(), static_cast<std::int64_t>(expected.size()));
  const std::vector<float> values = found.to_vector();
  const std::vector<float> wanted(expected);
  for (std::size_t i = 0; i < wanted.size(); ++i) EXPECT_NEAR(values[i], wanted[i], 1e-6) << i;
}

TEST(WorkedExamples, OneInputThreeRoles) {
  const Tensor x = matrix(3, {1, 0, 0, 1, 1, 1});
  const Weight query = weight(2, {1, 0, 0, 1}), key = weight(2, {1, 1, 0, 1}), value = weight(2, {1, 0, 1, 2});
  const Tensor c = x.row_range(2, 1);
  expect_rows(linear(c, query), {1, 1});
  expect_rows(linear(c, key), {1, 2});
  expect_rows(linear(c, value), {2, 2});
  expect_rows(linear(x, key), {1, 1, 0, 1, 1, 2});
  expect_rows(linear(x, value), {1, 0, 1, 2, 2, 2});
}

TEST(WorkedExamples, TwoHeadsBackToModelWidth) {
  const Tensor joined = join_columns(matrix(1, {1.2f, -0.4f}), matrix(1, {0.5f, 2.0f}));
  expect_rows(joined, {1.2f, -0.4f, 0.5f, 2.0f});
  const Weight identity = weight(4, {1, 0, 0, 0, 0, 1, 0, 0, 0, 0, 1, 0, 0, 0, 0, 1});
  expect_rows(linear(joined, identity), {1.2f, -0.4f, 0.5f, 2.0f});
  const Weight half = weight(4, {0.5f, 0, 0, 0, 0, 0.5f, 0, 0, 0, 0, 0.5f, 0, 0, 0, 0, 0.5f});
  expect_rows(linear(joined, half), {0.6f, -0.2f, 0.25f, 1.0f});
}

TEST(WorkedExamples, PreNormBlockByHand) {
  expect_rows(add(matrix(1, {1, 2}), matrix(1, {0.5f, -0.5f})), {1.5f, 1.5f});
  // [1, 3] has mean 2 and variance 1; the epsilon is too small to be seen.
  expect_rows(layer_norm(matrix(1, {1, 3}), Tensor::filled({2}, 1), Tensor::zeros({2}), 1e-12f), {-1, 1});
  expect_rows(activate(matrix(1, {-1, 2, 1}), Activation::relu), {0, 2, 1});
  expect_rows(add(matrix(1, {1, 3}), matrix(1, {1, 0})), {2, 3});
}

// How many scores attention says a head has when it writes them all down.
std::int64_t scores_of_a_head(std::int64_t length) {
  AttentionInput input;
  input.query_heads = input.key_heads = 1;
  AttentionItem item;
  item.queries = item.keys = length;
  input.items = {item};
  std::vector<float> scores(static_cast<std::size_t>(length * length + 64), std::numeric_limits<float>::quiet_NaN());
  input.matrices = {{0, 0, scores.data(), nullptr}};
  const Tensor x = Tensor::filled({length, 1}, 0.5f);
  attention(x, x, x, input);
  std::int64_t count = 0;
  for (const float score : scores) count += std::isnan(score) ? 0 : 1;
  return count;
}

TEST(WorkedExamples, TwiceTheLengthFourTimesTheScores) {
  constexpr std::int64_t half_precision = 2, mebibyte = 1 << 20;
  EXPECT_EQ(scores_of_a_head(1024), 1'048'576);
  EXPECT_EQ(scores_of_a_head(2048), 4'194'304);
  EXPECT_EQ(scores_of_a_head(1024) * half_precision, 2 * mebibyte);
  EXPECT_EQ(scores_of_a_head(2048) * half_precision, 8 * mebibyte);
}

TEST(WorkedExamples, TwelveHeadsOf768AreDividedByEight) {
  TransformerConfig config;
  config.width = 768;
  config.heads = 12;
  ASSERT_EQ(config.head_width(), 64);
  AttentionInput input;
  input.query_heads = config.heads;
  input.key_heads = config.key_head_count();
  AttentionItem item;
  item.queries = item.keys = 1;
  input.items = {item};
  std::vector<float> scores(12);
  for (std::int64_t head = 0; head < 12; ++head)
    input.matrices.push_back({0, head, &scores[static_cast<std::size_t>(head)], nullptr});
  // Products of 64, one a dimension: 64 / 8 = 8 from the default scale.
  const Tensor ones = Tensor::filled({1, config.width}, 1);
  attention(ones, ones, ones, input);
  for (const float score : scores) EXPECT_NEAR(score, 8, 1e-5);
}

}  // namespace
}  // namespace attend
