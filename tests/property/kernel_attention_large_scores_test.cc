// Scores far from 0, all of them exact in float: only their differences make weights, so weights, output, statistics and
// rebuilt tiles stay as near to the float64 reference as those of small scores.
#include "kernel_attention_case.h"

namespace attend {
namespace {

// Products of numbers on the grid of 1/256 with 16 columns and a scale of 1/4 are exact, whatever the power of two.
CaseOptions exact_scores(const std::string& rules) {
  CaseOptions options;
  options.items = {{9, 40}, {60, 300}, {1, 700}, {2, 90}};
  options.query_heads = 4;
  options.key_heads = 2;
  options.head_dim = options.value_dim = 16;
  options.masks = "c";
  options.rules = rules;
  return options;
}

void expect_exact(AttentionCase& given, const std::string& what) {
  constexpr std::int64_t top = 4;
  AttentionStatistics statistics;
  std::vector<float> entropy(index_of(given.query_rows * 4)), weights(index_of(given.query_rows * 4 * top));
  std::vector<std::int32_t> keys(weights.size());
  statistics.entropy = entropy.data();
  statistics.top = top;
  statistics.top_weights = weights.data();
  statistics.top_keys = keys.data();
  for (const bool observed : {false, true}) {
    given.call.statistics = observed ? &statistics : nullptr;
    attention_forward(given.call);
    for (std::int64_t index = 0; index < static_cast<std::int64_t>(given.items.size()); ++index)
      for (std::int64_t head = 0; head < 4; ++head) {
        const AttentionItem& item = given.items[index_of(index)];
        const std::vector<double> expected = reference_weights(given.call, index, head);
        std::vector<float> tile_weights(expected.size());
        WeightsTile tile;
        tile.item = index;
        tile.head = head;
        tile.query_end = item.queries;
        tile.key_end = item.keys;
        tile.weights = tile_weights.data();
        attention_weights(given.call, {&tile, 1});
        for (std::int64_t i = 0; i < item.queries; ++i) {
          const std::string row =
              join(what, observed ? ", observed" : "", ": item ", index, " head ", head, " query ", i);
          const double* w = expected.data() + i * item.keys;
          double right_entropy = 0;
          std::vector<double> output(16, 0.0);
          for (std::int64_t j = 0; j < item.keys; ++j) {
            ASSERT_NEAR(tile_weights[index_of(i * item.keys + j)], w[j], 1e-5) << row << " key " << j;
            if (w[j] > 0) right_entropy -= w[j] * std::log(w[j]);
            for (std::size_t x = 0; x < 16; ++x)
              output[x] +=
                  w[j] * given.call.value.data[(item.key_begin + j) * given.call.value.row_stride +
                                               head / 2 * given.call.value.head_stride + static_cast<std::int64_t>(x)];
          }
          const float* found = given.call.output.data + (item.query_begin + i) * given.call.output.row_stride +
                               head * given.call.output.head_stride;
          for (std::size_t x = 0; x < 16; ++x) ASSERT_NEAR(found[x], output[x], 1e-5) << row << " column " << x;
          if (!observed) continue;
          const std::size_t at = index_of((item.query_begin + i) * 4 + head);
          ASSERT_NEAR(entropy[at], right_entropy, 2e-5) << row;
          for (std::size_t t = 0; t < top; ++t) {
            const std::int32_t key = keys[at * top + t];
            ASSERT_NEAR(weights[at * top + t], key < 0 ? 0 : w[key], 1e-5) << row;
          }
        }
      }
  }
}

TEST(LargeScores, OfLargeQueries) {
  for (const int power : {10, 20, 30, 40}) {
    AttentionCase given(exact_scores(""));
    for (float& x : given.query) x = std::ldexp(x, power);
    on_every_target([&](const std::string& target) { expect_exact(given, join(target, ", queries times 2^", power)); });
  }
}

// Rows that share a large part and differ by little: as many keys as before have weight.
TEST(LargeScores, ThatDifferByLittle) {
  for (const float level : {4096.0f, -65536.0f, 1048576.0f}) {
    AttentionCase given(exact_scores("b"));
    for (float& x : given.query) x = 0;
    for (float& x : given.bias) x = level + std::round(x * 16) / 4;
    on_every_target([&](const std::string& target) { expect_exact(given, join(target, ", level ", level)); });
  }
}

}  // namespace
}  // namespace attend
