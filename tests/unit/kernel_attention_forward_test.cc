// Forward against the float64 textbook: every mask and score rule, on every target, over edge sizes.
#include "kernel_attention_case.h"

namespace attend {
namespace {

std::string name_of_case(const std::string& target, const CaseOptions& options) {
  return join(target, " masks '", options.masks, "' rules '", options.rules, "' seed ", options.seed);
}

void check(const CaseOptions& options, const std::string& target, double bound = 4e-6) {
  AttentionCase given(options);
  attention_forward(given.call);
  expect_forward(given, bound, name_of_case(target, options));
}

TEST(AttentionForward, EveryMaskWithEveryRule) {
  on_every_target([](const std::string& target) {
    std::uint64_t seed = 1;
    for (const std::string& masks : mask_sets())
      for (const std::string& rules : rule_sets()) {
        CaseOptions options;
        options.items = {{9, 21}, {1, 30}, {0, 4}, {3, 0}, {20, 17}};
        options.head_dim = 12;
        options.value_dim = 20;
        options.masks = masks;
        options.rules = rules;
        options.seed = seed++;
        options.gaps = seed % 2 == 0;
        options.listed_positions = seed % 3 == 0;
        check(options, target);
      }
  });
}

TEST(AttentionForward, SeveralBlocksOfRowsAndKeys) {
  on_every_target([](const std::string& target) {
    for (const std::string masks : {"", "c", "w", "cl", "d", "b"}) {
      CaseOptions options;
      options.items = {{130, 300}, {97, 513}};
      options.query_heads = 1;
      options.key_heads = 1;
      options.head_dim = 16;
      options.value_dim = 24;
      options.masks = masks;
      options.rules = std::string("sr");
      check(options, target, 3e-5);  // slopes bring scores of several hundred, known to 2^-16 of that
    }
  });
}

TEST(AttentionForward, EdgeSizes) {
  on_every_target([](const std::string& target) {
    Random random(3);
    const std::vector<std::int64_t> sizes = {1, 2, 3, 4, 5, 7, 8, 9, 15, 16, 17, 31, 32, 33, 47, 48, 49, 65};
    const auto pick = [&] { return sizes[index_of(static_cast<std::int64_t>(random.below(sizes.size())))]; };
    for (int round = 0; round < 60; ++round) {
      CaseOptions options;
      options.items = {{pick(), pick()}, {pick(), pick()}, {2, 255 + static_cast<std::int64_t>(random.below(4))}};
      options.key_heads = 1 + static_cast<std::int64_t>(random.below(3));
      options.query_heads = options.key_heads * (1 + static_cast<std::int64_t>(random.below(3)));
      options.head_dim = pick();
      options.value_dim = pick();
      options.masks = mask_sets()[random.below(mask_sets().size())];
      options.rules = rule_sets()[random.below(rule_sets().size())];
      options.gaps = random.below(2) == 0;
      options.pages = random.below(2) == 0;
      options.listed_positions = random.below(3) == 0;
      options.dropout = random.below(3) == 0 ? 0.3f : 0.0f;
      options.seed = 100 + static_cast<std::uint64_t>(round);
      check(options, target, 3e-5);
    }
  });
}

TEST(AttentionForward, LongDecodeInParts) {
  on_every_target([](const std::string& target) {
    for (const std::string masks : {"", "c", "l", "w", "m"}) {
      CaseOptions options;
      options.items = {{1, 1500}, {2, 513}, {1, 512}, {1, 3}};
      options.masks = masks;
      options.rules = std::string("k");
      options.pages = true;
      options.dropout = 0.2f;
      check(options, target, 1e-5);
    }
  });
}

TEST(AttentionForward, LargeScoresDoNotOverflow) {
  on_every_target([](const std::string& target) {
    CaseOptions options;
    options.items = {{20, 300}, {2, 40}};
    AttentionCase given(options);
    given.call.rules.scale = 60;
    attention_forward(given.call);
    expect_forward(given, 1e-4, target);
  });
}

TEST(AttentionForward, NoItems) {
  CaseOptions options;
  options.items = {};
  AttentionCase given(options);
  attention_forward(given.call);
  options.items = {{0, 5}, {0, 0}};
  AttentionCase empty(options);
  attention_forward(empty.call);
  EXPECT_EQ(explain(empty.call), "items 0 to 1: nothing (no queries)\n");
}

}  // namespace
}  // namespace attend
