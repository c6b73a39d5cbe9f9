// Examples a reader can check by hand, through the one attention. Tokens A, B, C have hidden states [1,0], [0,1], [1,1];
// W_Q = [[1,0],[0,1]], W_K = [[1,1],[0,1]], W_V = [[1,0],[1,2]].
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <vector>

#include "attend/attention.h"
#include "core/random.h"

namespace attend {
namespace {

constexpr float minus_infinity = -std::numeric_limits<float>::infinity();

struct Answer {
  std::vector<float> output, scores, weights;
};

// One head over plain rows of numbers.
Answer ask(const std::vector<float>& query, const std::vector<float>& key, const std::vector<float>& value,
           std::int64_t head_dim, float scale = 0, const Mask& mask = {}) {
  const auto queries = static_cast<std::int64_t>(query.size()) / head_dim,
             keys = static_cast<std::int64_t>(key.size()) / head_dim;
  AttentionCall call;
  call.query_heads = call.key_heads = 1;
  call.head_dim = head_dim;
  call.value_dim = static_cast<std::int64_t>(value.size()) / keys;
  call.query = {query.data(), head_dim, head_dim};
  call.key = {key.data(), head_dim, head_dim};
  call.value = {value.data(), call.value_dim, call.value_dim};
  AttentionItem item;
  item.queries = queries;
  item.keys = keys;
  const std::vector<AttentionItem> items = {item};
  call.items = items;
  call.rules.scale = scale;
  call.mask = mask;
  Answer answer;
  answer.output.resize(static_cast<std::size_t>(queries * call.value_dim));
  answer.scores.resize(static_cast<std::size_t>(queries * keys));
  answer.weights.resize(static_cast<std::size_t>(queries * keys));
  call.output = {answer.output.data(), call.value_dim, call.value_dim};
  const std::vector<MatrixRequest> requests = {{0, 0, answer.scores.data(), answer.weights.data()}};
  call.matrices = requests;
  attention_forward(call);

  // Without matrices the fused path answers: the same numbers.
  std::vector<float> fused(answer.output.size());
  call.matrices = {};
  call.output.data = fused.data();
  attention_forward(call);
  for (std::size_t i = 0; i < fused.size(); ++i) EXPECT_NEAR(fused[i], answer.output[i], 1e-6);
  return answer;
}

void expect_numbers(const std::vector<float>& found, const std::vector<float>& expected, float tolerance) {
  ASSERT_EQ(found.size(), expected.size());
  for (std::size_t i = 0; i < found.size(); ++i) {
    if (std::isinf(expected[i])) EXPECT_EQ(found[i], expected[i]) << i;
    else EXPECT_NEAR(found[i], expected[i], tolerance) << i;
  }
}

const std::vector<float> token_queries = {1, 0, 0, 1, 1, 1};
const std::vector<float> token_keys = {1, 1, 0, 1, 1, 2};
const std::vector<float> token_values = {1, 0, 1, 2, 2, 2};

TEST(AttentionWorkedExamples, OneQueryEndToEnd) {  // row 2
  const Answer raw = ask({1, 1}, token_keys, token_values, 2, 1);
  expect_numbers(raw.scores, {2, 1, 3}, 1e-6f);
  const Answer answer = ask({1, 1}, token_keys, token_values, 2);
  expect_numbers(answer.scores, {1.414f, 0.707f, 2.121f}, 5.1e-4f);
  expect_numbers(answer.weights, {0.284f, 0.140f, 0.576f}, 5.1e-4f);
  expect_numbers(answer.output, {1.576f, 1.432f}, 5.1e-4f);
}

TEST(AttentionWorkedExamples, WhyDivideByTheRootOfTheWidth) {  // row 3
  // A query of 64 numbers whose products with two keys are 8 and 0.
  std::vector<float> query(64, 0), keys(128, 0);
  query[0] = 8;
  keys[0] = 1;
  const Answer raw = ask(query, keys, {1, 0}, 64, 1), scaled = ask(query, keys, {1, 0}, 64);
  EXPECT_NEAR(raw.weights[0], 0.9997f, 5.1e-5f);
  EXPECT_NEAR(raw.weights[0] * (1 - raw.weights[0]), 0.0003f, 5.1e-5f);
  expect_numbers(scaled.scores, {1, 0}, 1e-6f);
  EXPECT_NEAR(scaled.weights[0], 0.731f, 5.1e-4f);
  EXPECT_NEAR(scaled.weights[0] * (1 - scaled.weights[0]), 0.197f, 5.1e-4f);

  // Products of random vectors of unit variance have variance 64, and 1 after scaling.
  Random random(5);
  std::vector<float> random_queries(64 * 64), random_keys(64 * 64), values(64, 0);
  for (float& x : random_queries) x = static_cast<float>(random.normal());
  for (float& x : random_keys) x = static_cast<float>(random.normal());
  const auto variance = [](const std::vector<float>& all) {
    double mean = 0, square = 0;
    for (float x : all) {
      mean += x;
      square += static_cast<double>(x) * x;
    }
    const auto size = static_cast<double>(all.size());
    return square / size - mean / size * mean / size;
  };
  EXPECT_NEAR(variance(ask(random_queries, random_keys, values, 64, 1).scores), 64, 8);
  EXPECT_NEAR(variance(ask(random_queries, random_keys, values, 64).scores), 1, 0.125);
}

TEST(AttentionWorkedExamples, FullScoreMatrix) {  // row 4: rows ask, columns are read
  expect_numbers(ask(token_queries, token_keys, token_values, 2, 1).scores, {1, 0, 1, 1, 1, 2, 2, 1, 3}, 1e-6f);
}

TEST(AttentionWorkedExamples, CrossAttention) {  // row 5
  const std::vector<float> keys = {1, 0, 0, 1, 1, 1}, values = {2, 0, 0, 4, 1, 1};
  expect_numbers(ask({1, 1}, keys, values, 2, 1).scores, {1, 1, 2}, 1e-6f);
  const Answer answer = ask({1, 1}, keys, values, 2);
  expect_numbers(answer.scores, {0.707f, 0.707f, 1.414f}, 5.1e-4f);
  expect_numbers(answer.weights, {0.248f, 0.248f, 0.503f}, 5.1e-4f);
  expect_numbers(answer.output, {1.000f, 1.497f}, 5.1e-4f);
}

TEST(AttentionWorkedExamples, Shapes) {  // row 6: 8 action queries read 196 visual tokens
  Random random(6);
  std::vector<float> queries(8 * 16), tokens(196 * 16);
  for (float& x : queries) x = static_cast<float>(random.normal());
  for (float& x : tokens) x = static_cast<float>(random.normal());
  const Answer cross = ask(queries, tokens, tokens, 16), self = ask(tokens, tokens, tokens, 16);
  EXPECT_EQ(cross.scores.size(), 8u * 196u);
  EXPECT_EQ(cross.output.size(), 8u * 16u);
  EXPECT_EQ(self.scores.size(), 196u * 196u);
  for (int i = 0; i < 8; ++i) {
    double sum = 0;
    for (int j = 0; j < 196; ++j) sum += cross.weights[static_cast<std::size_t>(i * 196 + j)];
    EXPECT_NEAR(sum, 1, 1e-6);
  }
}

TEST(AttentionWorkedExamples, MaskBeforeSoftmax) {  // row 8
  const Answer answer = ask(token_queries, token_keys, token_values, 2, 1, {CausalRule{}});
  expect_numbers(answer.scores, {1, minus_infinity, minus_infinity, 1, 1, minus_infinity, 2, 1, 3}, 1e-6f);
  EXPECT_FLOAT_EQ(answer.weights[3], 0.5f);
  EXPECT_FLOAT_EQ(answer.weights[4], 0.5f);
  EXPECT_EQ(answer.weights[5], 0.0f);
  // Masking after softmax instead leaves a row that does not sum to 1.
  const Answer open = ask(token_queries, token_keys, token_values, 2, 1);
  EXPECT_LT(open.weights[3] + open.weights[4], 0.5f);
}

TEST(AttentionWorkedExamples, SelfTests) {
  expect_numbers(ask({1, 2}, {1, 0, 0, 1}, {1, 1}, 2, 1).scores, {1, 2}, 1e-6f);  // row 12
  const Answer even = ask({0, 0}, {1, 0, 0, 1}, {2, 0, 0, 4}, 2);                 // row 13
  expect_numbers(even.weights, {0.5f, 0.5f}, 1e-7f);
  expect_numbers(even.output, {1, 2}, 1e-6f);
  const std::vector<float> rows = {1, 0, 0, 1, 1, 1, 1, 2};  // row 14
  const Answer causal = ask(rows, rows, rows, 2, 0, {CausalRule{}});
  for (std::size_t j = 0; j < 3; ++j) EXPECT_GT(causal.weights[8 + j], 0.0f);
  EXPECT_EQ(causal.scores[11], minus_infinity);
  EXPECT_EQ(causal.weights[11], 0.0f);
}

TEST(AttentionWorkedExamples,
     ScaleOfTwelveHeads) {  // row 15: model width 768 in 12 heads has head size 64 and divisor 8
  std::vector<float> query(768, 1), key(768, 1), value(768, 3), output(768);
  AttentionCall call;
  call.query_heads = call.key_heads = 12;
  call.head_dim = call.value_dim = 768 / 12;
  call.query = {query.data(), 768, 64};
  call.key = {key.data(), 768, 64};
  call.value = {value.data(), 768, 64};
  call.output = {output.data(), 768, 64};
  AttentionItem item;
  item.queries = item.keys = 1;
  const std::vector<AttentionItem> items = {item};
  call.items = items;
  float score = 0;
  const std::vector<MatrixRequest> requests = {{0, 11, &score, nullptr}};
  call.matrices = requests;
  attention_forward(call);
  EXPECT_FLOAT_EQ(score, 64.0f / 8);
  for (float x : output) EXPECT_FLOAT_EQ(x, 3.0f);
}

}  // namespace
}  // namespace attend
