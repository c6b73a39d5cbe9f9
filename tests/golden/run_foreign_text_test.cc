// Models that others trained, through generate() and TextGenerator: their own projects assert these outputs.
#include <gtest/gtest.h>

#include "attend/generate.h"
#include "attend/translate.h"
#include "golden/load_models.h"
#include "golden/transliteration_characters.h"

namespace attend {
namespace {

TEST(Stories260KText, GeneratedAndStreamedTextEqualsTheOneLlama2cAsserts) {
  const Model model = foreign_model("stories260K");
  const std::string expected = golden_json("stories260K")["greedy_text_200_steps"];
  Task task;
  task.kind = Task::Kind::generate;
  const TextGenerator generator(model, load_tokenizer(golden_folder("stories260K") / "tok512.bin"), task);
  GenerateOptions options;
  options.decode.max_length = 200;
  std::string streamed;
  options.on_text = [&](std::int64_t, std::int64_t, std::string_view text) {
    streamed += text;
    return true;
  };
  EXPECT_EQ(generator.generate("", options).hypotheses[0].text, expected);
  EXPECT_EQ(streamed, expected);
  // The text goes on the same from a beginning of its own.
  const std::string begun = "Once upon a time, there was a little girl";
  ASSERT_EQ(expected.substr(0, begun.size()), begun);
  options.decode.max_length = 20;
  const std::string rest = generator.generate(begun, options).hypotheses[0].text;
  EXPECT_EQ(expected.substr(begun.size(), rest.size()), rest);
  // Greedy is what the model finds likeliest: a story of its own beats a shuffled one by far.
  const std::vector<std::string> lines{"Once upon a time, there was a little girl named Lily.",
                                       "Lily named girl little a was there, time a upon Once."};
  const auto scores = generator.score(lines);
  EXPECT_LT(scores[0].perplexity, 5);
  EXPECT_GT(scores[1].perplexity, 30);
}

class TransliterationText : public ::testing::Test {
 protected:
  static constexpr std::int32_t bos = 1, eos = 2;
  const Model model_ = foreign_model("transliteration-ar-en");
  const nlohmann::json golden_ = golden_json("transliteration-ar-en");
  const Characters source_{"source_vocabulary.txt"}, target_{"target_vocabulary.txt"};

  std::string text_of(std::span<const std::int32_t> ids) const {
    std::string text;
    for (const std::int32_t id : ids) text += id == eos ? "" : target_[id];
    return text;
  }
  DecodeInput input(const std::string& source, const std::string& prefix = {}) const {
    return {source_.ids(source), {bos}, target_.ids(prefix)};
  }
  static DecodeOptions options() {
    DecodeOptions result;
    result.end = {eos};
    result.max_length = 50;
    return result;
  }
};

TEST_F(TransliterationText, GreedyForcedPrefixesAndProbabilities) {
  std::vector<DecodeInput> inputs;
  std::vector<std::string> expected;
  const nlohmann::json& upstream = golden_["upstream_expected"];
  for (const auto& [source, result] : upstream["greedy"].items()) {
    inputs.push_back(input(source));
    expected.push_back(result);
  }
  for (const nlohmann::json& each : upstream["with_forced_prefix"]) {
    inputs.push_back(input(each["source"], each["prefix"]));
    expected.push_back(each["result"]);
  }
  const std::size_t first_case = inputs.size();
  for (const nlohmann::json& each : golden_["cases"]) {
    inputs.push_back(input(each["source"]));
    expected.push_back(each["greedy"]);
  }
  ASSERT_EQ(inputs.size(), 2u + 3u + 10u);
  const auto results = generate(model_, inputs, options());
  for (std::size_t i = 0; i < inputs.size(); ++i) {
    EXPECT_EQ(text_of(results[i][0].ids), expected[i]) << i;
    EXPECT_TRUE(results[i][0].finished);
    if (i < first_case) continue;
    EXPECT_NEAR(results[i][0].total, golden_["cases"][i - first_case]["sum_log_prob"].get<double>(), 2e-4);
  }
}

TEST_F(TransliterationText, BeamsOfTwoAfterEachFirstCharacter) {
  // What CTranslate2 gives as alternatives for the first character: beams of two, each forced to begin with one.
  DecodeOptions beam = options();
  beam.strategy = Strategy::beam;
  beam.beam_size = 2;
  for (const auto& [source, results] : golden_["upstream_expected"]["beam_alternatives_at_position_0"].items()) {
    for (const nlohmann::json& expected : results) {
      const DecodeInput forced = input(source, expected.get<std::string>().substr(0, 1));
      EXPECT_EQ(text_of(generate(model_, std::span(&forced, 1), beam)[0][0].ids), expected.get<std::string>());
    }
  }
}

TEST_F(TransliterationText, BeamFindsNothingLessLikelyThanGreedy) {
  std::vector<DecodeInput> inputs;
  for (const nlohmann::json& each : golden_["cases"]) inputs.push_back(input(each["source"]));
  const auto greedy = generate(model_, inputs, options());
  DecodeOptions beam = options();
  beam.strategy = Strategy::beam;
  beam.n_best = 4;
  beam.length_penalty = LengthPenalty::none;
  beam.beam_stop = BeamStop::best;
  const auto results = generate(model_, inputs, beam);
  for (std::size_t i = 0; i < inputs.size(); ++i) {
    ASSERT_EQ(results[i].size(), 4u);
    EXPECT_GE(results[i][0].total, greedy[i][0].total - 1e-5) << i;
    for (std::size_t k = 1; k < 4; ++k) EXPECT_LE(results[i][k].score, results[i][k - 1].score);
  }
}

}  // namespace
}  // namespace attend
