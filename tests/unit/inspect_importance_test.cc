// Planted truth: what looks is told from what matters. And what happens to targets, edges and heads that do not exist,
// to long inputs, and to ranks with ties.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <set>

#include "attend/error.h"
#include "attend/importance.h"
#include "attend/memory.h"
#include "attend/ranks.h"
#include "inspect_helpers.h"
#include "reference/planted_models.h"
#include "reference/random_models.h"

namespace attend {
namespace {

using reference::PlantedHead;

HeadPlace place_of(const PlantedHead& head) { return {head.stack, head.layer, head.part, head.head}; }

const HeadEdges& of_head(const EdgeReport& report, const PlantedHead& head) {
  return *std::find_if(report.heads.begin(), report.heads.end(),
                       [&](const HeadEdges& of) { return of.head == place_of(head); });
}

// The silent head fools whoever looks at weights; the quiet head is found by every measure of what matters.
void check_looks_and_matters(const Model& model, const ModelInput& input, const Target& target,
                             const PlantedHead& silent, const PlantedHead& quiet, std::int64_t query,
                             std::int64_t cue) {
  const EdgeReport report = edge_effects(model, input, target);
  const Edge fooled{place_of(silent), query, cue}, found{place_of(quiet), query, cue};
  EXPECT_GT(of_head(report, silent).weight.at(query, cue), 0.99f);
  EXPECT_LT(of_head(report, quiet).weight.at(query, cue), 0.15f);
  const HeadEdges& of_silent = of_head(report, silent);
  for (std::int64_t i = 0; i < of_silent.weight.rows(); ++i)
    for (std::int64_t j = 0; j < of_silent.weight.width(); ++j) {
      EXPECT_EQ(of_silent.write.at(i, j), 0);
      EXPECT_EQ(of_silent.first_order.at(i, j), 0);
    }

  std::vector<MeasuredEdge> by_weight = report.largest(EdgeMeasure::weight, 40);
  const auto places = [](const std::vector<MeasuredEdge>& edges) {
    std::vector<Edge> all;
    for (const MeasuredEdge& edge : edges) all.push_back(edge.edge);
    return all;
  };
  const std::vector<Edge> looked_at = places(by_weight);
  EXPECT_NE(std::find(looked_at.begin(), looked_at.end(), fooled), looked_at.end());
  EXPECT_EQ(std::find(looked_at.begin(), looked_at.end(), found), looked_at.end())
      << "the quiet edge must not be bright";
  EXPECT_EQ(report.largest(EdgeMeasure::first_order, 1).front().edge, found);
  EXPECT_LT(report.largest(EdgeMeasure::first_order, 1).front().first_order, -0.5) << "it speaks for the answer";

  // Exactly: of the brightest edges and the candidates by first order, the quiet one comes first again.
  std::vector<MeasuredEdge> edges = report.largest(EdgeMeasure::first_order, 40);
  edges.insert(edges.end(), by_weight.begin(), by_weight.end());
  measure_exactly(model, input, target, edges);
  const auto strongest = std::max_element(edges.begin(), edges.end(), [](const MeasuredEdge& a, const MeasuredEdge& b) {
    return std::fabs(a.exact) < std::fabs(b.exact);
  });
  EXPECT_EQ(strongest->edge, found);
  for (const MeasuredEdge& edge : edges)
    if (edge.edge.head == place_of(silent)) {
      EXPECT_NEAR(edge.exact, 0, 2e-6) << name_of(edge.edge);
    }

  std::vector<HeadEffect> heads = head_effects(model, input, target);
  std::sort(heads.begin(), heads.end(),
            [](const HeadEffect& a, const HeadEffect& b) { return std::fabs(a.exact) > std::fabs(b.exact); });
  EXPECT_EQ(heads.front().place, place_of(quiet));
  for (const HeadEffect& head : heads)
    if (head.place == place_of(silent)) {
      EXPECT_EQ(head.first_order, 0);
      EXPECT_NEAR(head.exact, 0, 2e-6);
    }
}

// Of one query: the row of the whole matrices, in every family, from a run whose memory does not grow by them.
TEST(EdgesOfOneQuery, AreTheRowOfTheMatrices) {
  for (const reference::NamedConfig& named : reference::all_families()) {
    Model model(named.config, 3);
    reference::randomise(model, 11);
    ModelInput input;
    if (named.config.encoder) input.source = reference::random_tokens({9}, named.config.encoder->vocabulary, 5).ids;
    if (named.config.decoder) input.ids = reference::random_tokens({7}, named.config.decoder->vocabulary, 6).ids;
    if (!named.config.decoder && named.config.classes > 0) continue;
    const EdgeReport all = edge_effects(model, input, logit_of(1));
    EdgeOptions options;
    options.query = 4;
    const EdgeReport one = edge_effects(model, input, logit_of(1), options);
    ASSERT_EQ(one.heads.size(), all.heads.size()) << named.name;
    for (std::size_t h = 0; h < all.heads.size(); ++h) {
      EXPECT_EQ(one.heads[h].first_query, 4);
      for (const auto& [row, whole] :
           {std::pair(one.heads[h].weight, all.heads[h].weight), std::pair(one.heads[h].write, all.heads[h].write),
            std::pair(one.heads[h].first_order, all.heads[h].first_order)}) {
        ASSERT_EQ(row.rows(), 1);
        ASSERT_EQ(row.width(), whole.width());
        for (std::int64_t key = 0; key < row.width(); ++key)
          EXPECT_NEAR(row.at(0, key), whole.at(4, key), 1e-5) << named.name << ' ' << key;
      }
    }
    for (const MeasuredEdge& edge : one.largest(EdgeMeasure::first_order, 3)) EXPECT_EQ(edge.edge.query, 4);
    options.top = 3;
    for (const MeasuredEdge& edge : edge_effects(model, input, logit_of(1), options).edges)
      EXPECT_EQ(edge.edge.query, 4);
    for (const std::int64_t wrong : {-1, 9}) {
      options.query = wrong;
      expect_error([&] { edge_effects(model, input, logit_of(1), options); }, {join("has no query ", wrong), "0 to"});
    }
  }
}

// The edges of one row of a long text: of no size of the text squared, and no copy of what the text's run keeps for each cut.
TEST(EdgesOfOneQuery, TakeMemoryOfOneRow) {
  TransformerConfig config = reference::all_families()[3].config;
  ASSERT_TRUE(config.decoder && !config.encoder) << "the family of decoders";
  config.max_positions = 4096;
  Model model(config, 3);
  reference::randomise(model, 11);
  ModelInput input;
  input.ids = reference::random_tokens({4096}, config.decoder->vocabulary, 6).ids;
  EdgeOptions options;
  options.heads = {{StackKind::decoder, 0, Part::self, 1}};
  options.query = 4095;
  std::vector<Edge> edges;
  for (std::int64_t key = 0; key < 600; ++key) edges.push_back({options.heads.front(), 4095, key});
  const auto peak_of = [](const auto& call) {
    release_kept_memory();
    reset_peak_memory();
    const std::int64_t before = memory_use().live_bytes;
    call();
    return memory_use().peak_bytes - before;
  };
  // What a run with its gradient takes is linear in the text: some dozen values of a row in each layer.
  const std::int64_t linear = 4096 * (config.width + config.inner_width) * 4 * config.decoder->layers * 16;
  EXPECT_LT(peak_of([&] { edge_effects(model, input, logit_of(1), options); }), linear + (std::int64_t{16} << 20));
  EXPECT_LT(peak_of([&] { exact_effects(model, input, logit_of(1), edges); }), linear + (std::int64_t{40} << 20));
}

TEST(ExactEffects, EndWhenTheCallerStops) {
  const auto planted = reference::planted_quiet();
  ModelInput input;
  input.ids = {0, 1, 5, 3, 2, 9, 8, 4, 1, 3, 10, 2, 6, 9};
  const std::vector<Edge> edges{{place_of(planted.quiet), 13, 2}};
  try {
    exact_effects(planted.model, input, logit_of(1), edges, [] { return true; });
    ADD_FAILURE() << "it went on";
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::cancelled);
  }
}

TEST(LooksAgainstMatters, InADecoder) {
  const auto planted = reference::planted_quiet();
  ModelInput input;
  input.ids = {0, 1, 5, 3, 2, 9, 8, 4, 1, 3, 10, 2, 6, 9};
  const auto last = static_cast<std::int64_t>(input.ids.size()) - 1;
  check_looks_and_matters(planted.model, input, logit_of(planted.answer), planted.silent, planted.quiet, last, 2);
  check_looks_and_matters(planted.model, input, difference_of(planted.answer, 4), planted.silent, planted.quiet, last,
                          2);
}

TEST(LooksAgainstMatters, InCrossAttention) {
  const auto planted = reference::planted_cross();
  ModelInput input;
  input.source = {4, 9, 2, 8, 11, 5, 10, 1, 3, 2};
  input.ids = {0, 4, 9, 2, 8, 11, 3, 10};
  check_looks_and_matters(planted.model, input, logit_of(planted.answer, 3), planted.silent, planted.quiet, 3, 5);
}

TEST(LooksAgainstMatters, InductionRestsOnThePreviousTokenHead) {
  const auto planted = reference::planted_induction();
  ModelInput input;
  input.ids = reference::repeated_tokens(planted.vocabulary, 8, 15, 3);  // the second round lacks its last tokens
  const std::int64_t last = 14;
  const std::int32_t next = input.ids[7];
  ASSERT_EQ(input.ids[6], input.ids[static_cast<std::size_t>(last)]);
  const EdgeReport report = edge_effects(planted.model, input, logit_of(next));
  EXPECT_EQ(report.largest(EdgeMeasure::first_order, 1).front().edge, (Edge{place_of(planted.induction), last, 7}));
  const std::vector<HeadEffect> heads = head_effects(planted.model, input, logit_of(next));
  std::set<HeadPlace> strong;
  for (const HeadEffect& head : heads)
    if (head.exact < -1) strong.insert(head.place);
  EXPECT_EQ(strong, (std::set<HeadPlace>{place_of(planted.previous), place_of(planted.induction)}));
  // Cutting the one edge through which position 7 learns what stands before it breaks the chain.
  const Edge chain[] = {{place_of(planted.previous), 7, 6}, {place_of(planted.previous), 6, 5}};
  const std::vector<double> effects = exact_effects(planted.model, input, logit_of(next), chain);
  EXPECT_LT(effects[0], -1);
  EXPECT_GT(effects[1], -0.5);
}

// ---- Long inputs --------------------------------------------------------------------------------------------------------

TEST(LongInputs, TopEdgesAreComputedInBlocksOfRows) {
  TransformerConfig config = reference::small_config();
  config.decoder = StackConfig{.layers = 1, .vocabulary = 19, .causal = true};
  config.max_positions = 1200;
  Model model(config, 7);
  reference::randomise(model, 11);
  ModelInput input;
  input.ids = reference::random_tokens({1100}, 19, 2).ids;
  const EdgeReport whole = edge_effects(model, input, logit_of(3));
  EdgeOptions options;
  options.top = 100;
  options.most_bytes = 1;  // matrices are not made
  const EdgeReport top = edge_effects(model, input, logit_of(3), options);
  const std::vector<MeasuredEdge> expected = whole.largest(EdgeMeasure::first_order, 100);
  ASSERT_EQ(top.edges.size(), 100u);
  for (std::size_t i = 0; i < 100; ++i) {
    EXPECT_EQ(top.edges[i].edge, expected[i].edge);
    EXPECT_EQ(top.edges[i].first_order, expected[i].first_order);
  }
  options.top = 0;
  options.most_bytes = 16 << 20;
  expect_error([&] { edge_effects(model, input, logit_of(3), options); },
               {"4 heads", "55 MiB", "16 MiB allowed", "top edges"});
  options.write = false;
  options.heads = {{StackKind::decoder, 0, Part::self, 2}};
  options.most_bytes = 10 << 20;
  EXPECT_EQ(edge_effects(model, input, logit_of(3), options).heads.size(), 1u);
}

// ---- What does not exist ------------------------------------------------------------------------------------------------

class Missing : public testing::Test {
 protected:
  Missing() : model(reference::all_families()[0].config, 3) {
    input.source = {1, 2, 3, 4};
    input.ids = {5, 6, 7};
  }
  Model model;
  ModelInput input;
};

TEST_F(Missing, TargetsNameWhatThereIs) {
  expect_error([&] { target_value(model, input, logit_of(19)); },
               {"token 19 does not exist", "tokens 0 to 18", "nearest is 18"});
  expect_error([&] { target_value(model, input, logit_of(-2)); }, {"token -2 does not exist", "nearest is 0"});
  expect_error([&] { target_value(model, input, logit_of(1, 3)); },
               {"position 3 does not exist", "decoder has positions 0 to 2"});
  expect_error([&] { target_value(model, input, difference_of(1, 40)); }, {"token 40 does not exist"});
  expect_error([&] { target_value(model, input, difference_of(4, 4)); }, {"4 and itself"});
  expect_error([&] { edge_effects(model, input, log_probability_of({1, 2})); }, {"2 labels", "3 positions"});
  expect_error([&] { edge_effects(model, input, log_probability_of({-1, -1, -1})); }, {"no position has a label"});
  expect_error([&] { exact_effects(model, input, log_probability_of({1, 19, -1}), {}); }, {"token 19 does not exist"});
  expect_error([&] { head_effects(model, input, class_logit_of(0)); }, {"no classes", "vocabulary of 19"});
  input.source.clear();
  expect_error([&] { target_value(model, input, logit_of(1)); }, {"no source"});
}

TEST_F(Missing, EdgesAndHeadsNameWhatThereIs) {
  const auto cut = [&](Edge edge) { exact_effects(model, input, logit_of(1), std::vector{edge}); };
  expect_error(
      [&] {
        cut({{StackKind::decoder, 2, Part::cross, 1}, 0, 0});
      },
      {"no decoder.2.cross.1", "encoder has layers 0 to 1", "heads 0 to 3", "nearest is decoder.0.cross.1"});
  expect_error([&] { cut({{StackKind::decoder, 1, Part::cross, 4}, 0, 0}); }, {"no decoder.1.cross.4", "heads 0 to 3"});
  expect_error([&] { cut({{StackKind::decoder, 1, Part::cross, -1}, 0, 0}); }, {"names no head", "heads are 0 to 3"});
  expect_error([&] { cut({{StackKind::encoder, 1, Part::cross, 0}, 0, 0}); }, {"no encoder.1.cross.0"});
  expect_error(
      [&] {
        cut({{StackKind::decoder, 1, Part::cross, 0}, 3, 0});
      },
      {"query 3 does not exist", "queries are 0 to 2"});
  expect_error(
      [&] {
        cut({{StackKind::decoder, 1, Part::cross, 0}, 2, 4});
      },
      {"key 4 does not exist", "keys are 0 to 3"});
  expect_error(
      [&] {
        cut({{StackKind::decoder, 1, Part::self, 0}, 1, 2});
      },
      {"decoder.1.self.0 (1, 2)", "does not see the key", "nothing to cut"});
  EdgeOptions options;
  options.heads = {{StackKind::encoder, 5, Part::self, 0}};
  expect_error([&] { edge_effects(model, input, logit_of(1), options); }, {"no encoder.5.self.0"});
  options = {};
  options.top = 3;
  options.by = EdgeMeasure::exact;
  expect_error([&] { edge_effects(model, input, logit_of(1), options); }, {"ranked by exact", "measure_exactly"});
  expect_error([&] { edge_effects(model, input, std::nullopt); }, {"without a target"});
  expect_error([&] { edge_measure_named("first-order"); }, {"no measure 'first-order'", "did you mean 'first_order'"});
  const HeadPlace ghost[] = {{StackKind::decoder, 0, Part::feed_forward, 1}};
  expect_error([&] { head_effects(model, input, logit_of(1), ghost); }, {"no decoder.0.feed_forward.1"});
}

TEST_F(Missing, NamesOfHeadsAreReadBack) {
  for (const HeadPlace& head : heads_of(model)) EXPECT_EQ(parse_head(model, name_of(head)), head);
  EXPECT_EQ(heads_of(model).size(), 24u);
  EXPECT_EQ(parse_head(model, "decoder.1.cross"), (HeadPlace{StackKind::decoder, 1, Part::cross, -1}));
  EXPECT_EQ(parse_head(model, "decoder.1"), (HeadPlace{StackKind::decoder, 1, Part::block, -1}));
  EXPECT_EQ(name_of(HeadPlace{StackKind::encoder, 0, Part::feed_forward, -1}), "encoder.0.feed_forward");
  expect_error([&] { parse_head(model, "decoder.1.crss.3"); }, {"no head 'decoder.1.crss.3'", "decoder.1.cross.3"});
}

TEST_F(Missing, TokensByName) {
  const auto tokenizer = byte_tokenizer();
  EXPECT_EQ(token_named(*tokenizer, "a"), 97);
  expect_error([&] { token_named(*tokenizer, "ab"); }, {"no token 'ab'", "2 tokens 'a' 'b'", "nearest tokens are"});
}

TEST_F(Missing, WithoutTargetWeightsAndWritesAreThere) {
  EdgeOptions options;
  options.first_order = false;
  const EdgeReport report = edge_effects(model, input, std::nullopt, options);
  EXPECT_TRUE(std::isnan(report.target));
  ASSERT_EQ(report.heads.size(), 24u);
  EXPECT_TRUE(report.heads[0].write.defined());
  EXPECT_FALSE(report.heads[0].first_order.defined());
  expect_error([&] { report.largest(EdgeMeasure::first_order, 3); },
               {"first_order was not computed", "encoder.0.self.0"});
  // Without weights nothing tells what the mask hides.
  options.weight = false;
  expect_error([&] { edge_effects(model, input, std::nullopt, options).largest(EdgeMeasure::write, 3); },
               {"weights", "were not computed"});
}

// Nothing after the target's row can change it, and nothing in the last layer that it does not read.
TEST_F(Missing, WhatComesTooLateHasNoEffect) {
  const std::vector<Edge> late{{{StackKind::decoder, 0, Part::self, 1}, 2, 0},
                               {{StackKind::decoder, 1, Part::cross, 0}, 0, 1},
                               {{StackKind::decoder, 0, Part::cross, 0}, 0, 1}};
  const std::vector<double> effects = exact_effects(model, input, logit_of(4, 1), late);
  EXPECT_EQ(effects[0], 0);
  EXPECT_EQ(effects[1], 0);
  EXPECT_NE(effects[2], 0);
}

// ---- Agreement ----------------------------------------------------------------------------------------------------------

TEST(RankAgreement, WorkedExamples) {
  const std::vector<double> a{1, 2, 3, 4, 5}, b{2, 1, 4, 3, 5}, reversed{5, 4, 3, 2, 1};
  // 1 - 6 (1 + 1 + 1 + 1 + 0) / (5 * 24)
  EXPECT_NEAR(rank_correlation(a, b), 0.8, 1e-12);
  EXPECT_NEAR(rank_correlation(a, reversed), -1, 1e-12);
  EXPECT_NEAR(rank_correlation(a, std::vector<double>{10, 20, 300, 4000, 50000}), 1, 1e-12);
  // Ties share ranks: x has ranks 1.5 1.5 3 4 and y 1 2 3.5 3.5; Pearson of these ranks is 4 / 4.5.
  EXPECT_NEAR(rank_correlation(std::vector<double>{7, 7, 8, 9}, std::vector<double>{1, 2, 3, 3}), 4 / 4.5, 1e-12);
  EXPECT_TRUE(std::isnan(rank_correlation(a, std::vector<double>{1, 1, 1, 1, 1})));
  EXPECT_TRUE(std::isnan(rank_correlation({}, {})));
  EXPECT_NEAR(shared_top(a, b, 2), 0.5, 1e-12);  // {5, 4} and {5, 3rd place}
  EXPECT_NEAR(shared_top(a, reversed, 2), 0, 1e-12);
  EXPECT_NEAR(shared_top(a, reversed, 9), 1, 1e-12);
  expect_error([&] { rank_correlation(a, std::vector<double>{1}); }, {"5 and 1 values"});
  expect_error([&] { shared_top(a, b, 0); }, {"at least 1"});
}

TEST(RankAgreement, OnlyOfWhatIsMeasured) {
  std::vector<MeasuredEdge> edges(4);
  for (std::size_t i = 0; i < edges.size(); ++i) {
    edges[i].weight = static_cast<double>(i);
    edges[i].first_order = -static_cast<double>(i);  // its size counts, not its sign
  }
  const std::vector<RankAgreement> agreement = rank_agreement(edges, 2);
  ASSERT_EQ(agreement.size(), 1u);
  EXPECT_EQ(agreement[0].first, EdgeMeasure::weight);
  EXPECT_EQ(agreement[0].second, EdgeMeasure::first_order);
  EXPECT_NEAR(agreement[0].rank_correlation, 1, 1e-12);
  EXPECT_NEAR(agreement[0].shared_top, 1, 1e-12);
  EXPECT_EQ(agreement[0].edges, 4);
}

}  // namespace
}  // namespace attend
