// The reference backward against central differences of the reference forward, and the kernels against the reference.
#include "kernel_attention_edits.h"

namespace attend {
namespace {

double loss_of(const AttentionCase& given) {
  const ReferenceAttention result = reference_forward(given.call);
  double loss = 0;
  for (const AttentionItem& item : given.call.items)
    for (std::int64_t row = item.query_begin; row < item.query_begin + item.queries; ++row)
      for (std::int64_t head = 0; head < given.call.query_heads; ++head)
        for (std::int64_t x = 0; x < given.call.value_dim; ++x)
          loss += result.output[index_of((row * given.call.query_heads + head) * given.call.value_dim + x)] *
                  given.output_gradient[index_of(row * given.call.output.row_stride +
                                                 head * given.call.output.head_stride + x)];
  return loss;
}

// Numbers are multiples of 1/256, so a step of 1/256 is exact in float; Richardson's formula on two steps brings the
// error of the differences down to the fourth power.
void expect_differences(const AttentionCase& given, std::vector<float>& values, const std::vector<double>& gradient,
                        const std::string& what) {
  for (std::size_t i = 0; i < std::min(values.size(), gradient.size()); ++i) {
    const float kept = values[i];
    const auto slope = [&](float step) {
      values[i] = kept + step;
      const double above = loss_of(given);
      values[i] = kept - step;
      const double below = loss_of(given);
      values[i] = kept;
      return (above - below) / (2 * static_cast<double>(step));
    };
    const double estimate = (4 * slope(1 / 256.0f) - slope(1 / 128.0f)) / 3;
    ASSERT_NEAR(gradient[i], estimate, 1e-6 * std::max(1.0, std::abs(estimate))) << what << " element " << i;
  }
}

TEST(AttentionGradient, ReferenceAgreesWithDifferences) {
  std::uint64_t seed = 1;
  for (const std::string& masks : mask_sets())
    for (const std::string& rules : rule_sets()) {
      if (masks.size() > 1 && rules.size() == 1) continue;  // each pair of singles, and the combinations
      CaseOptions options;
      options.items = {{3, 4}, {2, 3}};
      options.query_heads = 2;
      options.key_heads = seed % 2 == 0 ? 1 : 2;
      options.head_dim = 3;
      options.value_dim = 2;
      options.masks = masks;
      options.rules = rules;
      options.broadcast_bias = seed % 2 == 0;
      options.listed_positions = seed % 5 == 0;
      options.dropout = seed % 3 == 0 ? 0.25f : 0.0f;
      options.seed = seed++;
      AttentionCase given(options);
      const std::string what = join("masks '", masks, "' rules '", rules, "'");
      const ReferenceGradients gradients = reference_backward(given.call, given.output_gradient_view());
      expect_differences(given, given.query, gradients.query, what + " query");
      expect_differences(given, given.key, gradients.key, what + " key");
      expect_differences(given, given.value, gradients.value, what + " value");
      if (!given.table.empty()) expect_differences(given, given.table, gradients.relative_table, what + " table");
      if (!given.bias.empty()) expect_differences(given, given.bias, gradients.bias, what + " bias");
      if (!given.sinks.empty()) expect_differences(given, given.sinks, gradients.sinks, what + " sinks");
    }
}

TEST(AttentionGradient, ReferenceThroughEdits) {
  int locked = 0;
  for (std::uint64_t seed = 1; seed <= 24; ++seed) {
    CaseOptions options;
    options.items = {{3, 4}, {2, 5}};
    options.query_heads = 2;
    options.key_heads = seed % 2 == 0 ? 1 : 2;
    options.head_dim = 3;
    options.value_dim = 2;
    options.masks = mask_sets()[seed % 5];
    options.rules = rule_sets()[seed % rule_sets().size()];
    options.listed_positions = seed % 5 == 0;
    options.dropout = seed % 3 == 0 ? 0.25f : 0.0f;
    options.seed = seed;
    AttentionCase given(options);
    std::vector<ScoreEdit> edits;
    locked += add_random_edits(given, edits, 6);
    const std::string what = join("seed ", seed);
    const ReferenceGradients gradients = reference_backward(given.call, given.output_gradient_view());
    expect_differences(given, given.query, gradients.query, what + " query");
    expect_differences(given, given.key, gradients.key, what + " key");
    expect_differences(given, given.value, gradients.value, what + " value");
    if (!given.table.empty()) expect_differences(given, given.table, gradients.relative_table, what + " table");
    if (!given.bias.empty()) expect_differences(given, given.bias, gradients.bias, what + " bias");
    if (!given.sinks.empty()) expect_differences(given, given.sinks, gradients.sinks, what + " sinks");
  }
  EXPECT_GT(locked, 5) << "too few of the random lists held locks";
}

void check(const CaseOptions& options, const std::string& target, double bound) {
  AttentionCase given(options);
  attention_forward(given.call);
  expect_backward(given, bound,
                  join(target, " masks '", options.masks, "' rules '", options.rules, "' seed ", options.seed));
}

TEST(AttentionGradient, EveryMaskWithEveryRule) {
  on_every_target([](const std::string& target) {
    std::uint64_t seed = 1;
    for (const std::string& masks : mask_sets())
      for (const std::string& rules : rule_sets()) {
        CaseOptions options;
        options.items = {{9, 21}, {1, 30}, {0, 4}, {3, 0}, {20, 17}};
        options.key_heads = seed % 2 == 0 ? 1 : 2;
        options.head_dim = 12;
        options.value_dim = 20;
        options.masks = masks;
        options.rules = rules;
        options.seed = seed++;
        options.gaps = seed % 2 == 0;
        options.broadcast_bias = seed % 4 == 0;
        options.listed_positions = seed % 3 == 0;
        options.dropout = seed % 4 == 1 ? 0.25f : 0.0f;
        check(options, target, 1e-5);
      }
  });
}

TEST(AttentionGradient, SeveralBlocks) {
  on_every_target([](const std::string& target) {
    for (const std::string masks : {"", "c", "w", "l", "m"}) {
      CaseOptions options;
      options.items = {{130, 300}, {97, 140}};
      options.query_heads = 3;
      options.key_heads = 1;
      options.head_dim = 33;
      options.value_dim = 17;
      options.masks = masks;
      if (masks == "w") options.rules = std::string("r");
      options.dropout = masks == "c" ? 0.1f : 0.0f;
      check(options, target, 2e-5);
    }
  });
}

TEST(AttentionGradient, ThroughEdits) {
  on_every_target([](const std::string& target) {
    int locked = 0;
    for (std::uint64_t seed = 1; seed <= 40; ++seed) {
      CaseOptions options;
      options.items = {{13, 24}, {70, 140}, {1, 9}};
      options.query_heads = 4;
      options.key_heads = seed % 2 == 0 ? 1 : 2;
      options.masks = mask_sets()[seed % mask_sets().size()];
      options.rules = rule_sets()[seed % rule_sets().size()];
      options.gaps = seed % 2 == 0;
      options.listed_positions = seed % 5 == 0;
      options.dropout = seed % 3 == 0 ? 0.25f : 0.0f;
      options.seed = seed;
      AttentionCase given(options);
      std::vector<ScoreEdit> edits;
      locked += add_random_edits(given, edits, 8);
      expect_backward(given, 2e-5, join(target, " seed ", seed));
    }
    EXPECT_GT(locked, 8) << "too few of the random lists held locks";
  });
}

TEST(AttentionGradient, ItemsMayShareKeys) {
  CaseOptions options;
  options.items = {{7, 30}, {9, 30}};
  options.key_heads = 1;
  AttentionCase given(options);
  given.items[1].key_begin = 5;
  given.items[1].keys = 20;
  given.call.items = given.items;
  attention_forward(given.call);
  expect_backward(given, 1e-5, "shared keys");
}

TEST(AttentionGradient, IsAddedToTheTargets) {
  CaseOptions options;
  AttentionCase given(options);
  attention_forward(given.call);
  const CaseGradients once = run_backward(given);
  std::vector<float> query(once.query.size(), 1.0f);
  AttentionGradients gradients;
  gradients.output_gradient = given.output_gradient_view();
  gradients.query = {query.data(), given.call.query_heads * given.call.head_dim, given.call.head_dim};
  attention_backward(given.call, gradients);
  for (std::size_t i = 0; i < query.size(); ++i) EXPECT_NEAR(query[i], 1 + once.query[i], 1e-6);
}

}  // namespace
}  // namespace attend
