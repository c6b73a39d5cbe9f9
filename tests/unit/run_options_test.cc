#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <limits>
#include <string>

#include "attend/error.h"
#include "attend/generate.h"
#include "unit/run_models.h"

namespace attend {
namespace {

using namespace attend::testing;

TEST(LengthScore, Formulas) {
  EXPECT_DOUBLE_EQ(length_score(LengthPenalty::none, 3, -8, 4), -8);
  EXPECT_DOUBLE_EQ(length_score(LengthPenalty::power, 1, -8, 4), -2);
  EXPECT_DOUBLE_EQ(length_score(LengthPenalty::power, 0.5, -8, 4), -4);
  EXPECT_DOUBLE_EQ(length_score(LengthPenalty::power, 0, -8, 4), -8);
  // Wu et al. 2016, equation 14: lp(Y) = (5 + |Y|)^alpha / (5 + 1)^alpha.
  EXPECT_DOUBLE_EQ(length_score(LengthPenalty::gnmt, 0.6, -8, 4), -8 / (std::pow(9, 0.6) / std::pow(6, 0.6)));
  EXPECT_DOUBLE_EQ(length_score(LengthPenalty::gnmt, 0.6, -8, 1), -8);
}

TEST(Names, ThereAndBack) {
  for (const Strategy strategy : {Strategy::greedy, Strategy::sample, Strategy::beam}) {
    EXPECT_EQ(strategy_named(name_of(strategy)), strategy);
  }
  for (const LengthPenalty penalty : {LengthPenalty::none, LengthPenalty::power, LengthPenalty::gnmt}) {
    EXPECT_EQ(length_penalty_named(name_of(penalty)), penalty);
  }
  try {
    strategy_named("beams");
    FAIL();
  } catch (const Error& error) {
    EXPECT_NE(std::string(error.what()).find("greedy, sample, beam"), std::string::npos) << error.what();
  }
}

TEST(BatchesByLength, LongestFirstAndStable) {
  const std::vector<std::int64_t> lengths{3, 9, 3, 1, 9};
  const std::vector<std::vector<std::int64_t>> expected{{1, 4}, {0, 2}, {3}};
  EXPECT_EQ(batches_by_length(lengths, 2), expected);
  EXPECT_TRUE(batches_by_length({}, 2).empty());
  EXPECT_THROW(batches_by_length(lengths, 0), Error);
}

class Refusals : public ::testing::Test {
 protected:
  // The error of generating with changed options and inputs.
  void expect(ErrorKind kind, const std::string& part, const std::function<void(DecodeOptions&, DecodeInput&)>& change,
              bool with_encoder = true) {
    const NamedConfig named = with_encoder ? encoder_decoder() : rotary_decoder();
    const Model model(named.config, 1);
    DecodeOptions options = usual_options();
    std::vector<DecodeInput> inputs = some_inputs(named.config, 3);
    change(options, inputs[1]);
    try {
      generate(model, inputs, options);
      FAIL() << "no error that speaks of " << part;
    } catch (const Error& error) {
      EXPECT_EQ(error.kind(), kind) << error.what();
      EXPECT_NE(std::string(error.what()).find(part), std::string::npos) << error.what();
    }
  }
};

TEST_F(Refusals, OptionsOutOfRange) {
  const auto kind = ErrorKind::argument;
  const double nan = std::numeric_limits<double>::quiet_NaN();
  expect(kind, "temperature is 0", [](auto& o, auto&) { o.temperature = 0; });
  expect(kind, "temperature is -1", [](auto& o, auto&) { o.temperature = -1; });
  expect(kind, "temperature", [&](auto& o, auto&) { o.temperature = nan; });
  expect(kind, "top_k is -1", [](auto& o, auto&) { o.top_k = -1; });
  expect(kind, "top_p is 0", [](auto& o, auto&) { o.top_p = 0; });
  expect(kind, "top_p is 1.5", [](auto& o, auto&) { o.top_p = 1.5; });
  expect(kind, "top_p", [&](auto& o, auto&) { o.top_p = nan; });
  expect(kind, "beam_size is 0", [](auto& o, auto&) { o.beam_size = 0; });
  expect(kind, "beam_size is 65", [](auto& o, auto&) { o.beam_size = 65; });
  expect(kind, "length_alpha", [&](auto& o, auto&) { o.length_alpha = nan; });
  expect(kind, "n_best is 0", [](auto& o, auto&) { o.n_best = 0; });
  expect(kind, "n_best is 65537", [](auto& o, auto&) { o.strategy = Strategy::sample, o.n_best = 65537; });
  expect(kind, "greedy choice has one result", [](auto& o, auto&) { o.n_best = 2; });
  expect(kind, "n_best is 5 and beam_size 4", [](auto& o, auto&) { o.strategy = Strategy::beam, o.n_best = 5; });
  expect(kind, "on_token",
         [](auto& o, auto&) { o.strategy = Strategy::beam, o.on_token = [](const TokenEvent&) { return true; }; });
  expect(kind, "max_length is -1", [](auto& o, auto&) { o.max_length = -1; });
  expect(kind, "above max_length 20", [](auto& o, auto&) { o.min_length = 21; });
  expect(kind, "batch_size is 0", [](auto& o, auto&) { o.batch_size = 0; });
  expect(kind, "end holds id 13", [](auto& o, auto&) { o.end = {13}; });
  expect(kind, "forbidden holds id -1", [](auto& o, auto&) { o.forbidden = {-1}; });
  expect(kind, "every token of the vocabulary is forbidden", [](auto& o, auto&) {
    for (std::int32_t id = 0; id < 13; ++id) o.forbidden.push_back(id);
  });
  expect(kind, "every token of the vocabulary is forbidden", [](auto& o, auto&) {
    o.min_length = 2;
    for (std::int32_t id = 0; id < 13; ++id) {
      if (id != eos) o.forbidden.push_back(id);
    }
  });
}

TEST_F(Refusals, InputsNamed) {
  const auto kind = ErrorKind::argument;
  expect(kind, "input 1: the prompt is empty", [](auto&, auto& i) { i.prompt.clear(); });
  expect(kind, "input 1: the source is empty", [](auto&, auto& i) { i.source.clear(); });
  expect(
      kind, "has no encoder", [](auto&, auto& i) { i.source = {4}; }, false);
  expect(kind, "source holds id 11 at 2, but the vocabulary has 11", [](auto&, auto& i) { i.source = {1, 2, 11}; });
  expect(kind, "prompt holds id -5 at 0", [](auto&, auto& i) { i.prompt = {-5}; });
  expect(kind, "prefix holds id 13", [](auto&, auto& i) { i.prefix = {4, 13}; });
  expect(kind, "97 tokens and the model 96 positions", [](auto&, auto& i) { i.source.assign(97, 4); });
  expect(
      kind, "97 tokens and the model 96 positions", [](auto&, auto& i) { i.prompt.assign(97, 4); }, false);
  expect(kind, "forced prefix holds the end token 3", [](auto&, auto& i) { i.prefix = {4, eos}; });
  expect(kind, "forced prefix has 21 tokens", [](auto&, auto& i) { i.prefix.assign(21, 4); });
  expect(
      kind, "forced prefix has 10 tokens after a prompt of 90",
      [](auto& o, auto& i) {
        o.max_length = 0;
        i.prompt.assign(90, 4);
        i.prefix.assign(10, 4);
      },
      false);
}

TEST_F(Refusals, ModelsWithoutDecoder) {
  TransformerConfig config = small_config();
  config.encoder = StackConfig{.layers = 1, .vocabulary = 11};
  const Model model(config, 1);
  const std::vector<DecodeInput> inputs{{{4}, {bos}, {}}};
  EXPECT_THROW(generate(model, inputs, usual_options()), Error);
  const std::vector<ScoreInput> scored{{{4}, {bos, 4}, 1}};
  EXPECT_THROW(score(model, scored), Error);
  EXPECT_THROW(Session(model, 1), Error);
}

TEST_F(Refusals, NumbersThatAreNone) {
  for (const Strategy strategy : {Strategy::greedy, Strategy::sample, Strategy::beam}) {
    Model model(encoder_decoder().config, 1);
    Parameter& weight = model.parameter("logits.weight");
    weight.value.data()[7 * weight.value.width()] = std::numeric_limits<float>::quiet_NaN();
    weight.changed();
    DecodeOptions options = usual_options();
    options.strategy = strategy;
    try {
      generate(model, some_inputs(model.config(), 2), options);
      FAIL();
    } catch (const Error& error) {
      EXPECT_EQ(error.kind(), ErrorKind::numeric) << error.what();
    }
    const std::vector<ScoreInput> scored{{{4}, {bos, 4}, 1}};
    EXPECT_THROW(score(model, scored), Error);
  }
}

TEST_F(Refusals, ScoreInputs) {
  const Model model(encoder_decoder().config, 1);
  const auto refused = [&](ScoreInput input) {
    EXPECT_THROW(score(model, std::vector<ScoreInput>{std::move(input)}), Error);
  };
  refused({{}, {bos, 4}, 1});
  refused({{4}, {}, 1});
  refused({{4}, {bos, 4}, 0});
  refused({{4}, {bos, 4}, 3});
  refused({{4}, {bos, 13}, 1});
  refused({{4}, std::vector<std::int32_t>(98, 4), 1});
  EXPECT_EQ(score(model, std::vector<ScoreInput>{{{4}, std::vector<std::int32_t>(97, 4), 1}})[0].size(), 96u);
  EXPECT_TRUE(score(model, std::vector<ScoreInput>{{{4}, {bos, 4}, 2}})[0].empty());
}

}  // namespace
}  // namespace attend
