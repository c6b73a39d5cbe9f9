// Integrated gradients, gradient x input, rollout and value zeroing inside an inspection: the library's own numbers, merged
// to words, of the attentions and layers that were chosen.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "attend/attribution.h"
#include "attend/error.h"
#include "attend/inspect.h"
#include "inspect_helpers.h"

namespace attend {
namespace {

std::int32_t chinese() {
  return token_named(*translator().target,
                     "\xE2\x96\x81"
                     "Chinese");
}

InspectOptions options_for(std::vector<AttributionMethod> methods) {
  InspectOptions options;
  options.write = false;
  options.attribution.methods = std::move(methods);
  return options;
}

// A group has the sum of its tokens: so the sums over the texts, target and baseline are those of the tokens.
TEST(Attributions, IntegratedGradientsOfWordsAreSumsOverTheirTokens) {
  const Subject subject = pair("I saw the beautifully decorated house.", "我看见了那座房子。");
  InspectOptions options = options_for({AttributionMethod::integrated_gradients, AttributionMethod::gradient_input});
  options.target = logit_of(static_cast<std::int32_t>(subject.input.ids[2]), 1);
  options.attribution.steps = 8;
  options.attribution.baseline = "zero";
  const Inspection shown = inspect(translator(), "m", subject, options).inspection;
  ASSERT_EQ(shown.attributions.size(), 2u);
  IntegratedGradientsOptions path;
  path.steps = 8;
  const IntegratedGradients expected = integrated_gradients(translator().model, subject.input, *options.target, path);
  const TokenAttribution& found = shown.attributions[0];
  EXPECT_EQ(found.name, "integrated_gradients");
  EXPECT_EQ(found.unit, "logit");
  EXPECT_EQ(found.baseline_name, "zero");
  EXPECT_EQ(found.steps, 8);
  EXPECT_EQ(found.target, expected.target);
  EXPECT_EQ(found.baseline, expected.baseline);
  EXPECT_EQ(found.completeness_error, expected.completeness_error);
  EXPECT_NEAR(found.sum(), expected.scores.sum(), 1e-5);
  ASSERT_EQ(found.values.size(), 2u);
  const std::vector<TokenGroup> words = group(subject.source, GroupBy::word);
  ASSERT_LT(words.size(), subject.source.size()) << "some word is of several tokens";
  ASSERT_EQ(found.values[0].size(), words.size());
  for (std::size_t word = 0; word < words.size(); ++word) {
    double sum = 0;
    for (std::int64_t token = words[word].begin; token < words[word].end; ++token)
      sum += expected.scores.source[static_cast<std::size_t>(token)];
    EXPECT_NEAR(found.values[0][word], sum, 1e-6);
  }
  const InputGradients gradients = input_gradients(translator().model, subject.input, *options.target);
  EXPECT_EQ(shown.attributions[1].name, "gradient_input");
  EXPECT_NEAR(shown.attributions[1].sum(), gradients.product.sum(), 1e-5);
  EXPECT_EQ(shown.attributions[1].steps, 0);
}

TEST(Attributions, BaselineOfATokenKeepsWhatIsNoText) {
  const Subject subject = pair();
  InspectOptions options = options_for({AttributionMethod::integrated_gradients});
  options.target = logit_of(chinese(), 3);
  const Inspection shown = inspect(translator(), "m", subject, options).inspection;
  const TokenAttribution& found = shown.attributions.at(0);
  const SpecialTokens& specials = translator().source->specials();
  EXPECT_EQ(found.baseline_name, translator().source->readable(specials.pad >= 0 ? specials.pad : specials.unknown));
  for (std::size_t text = 0; text < 2; ++text)
    for (std::size_t token = 0; token < shown.texts[text].tokens.size(); ++token)
      if (shown.texts[text].tokens[token].special) {
        EXPECT_EQ(found.values[text][token], 0) << text << ' ' << token;
      }
  // Tokens behind the one that is explained are not read.
  EXPECT_EQ(found.values[1].back(), 0);
  // As many steps as it takes, or the most there are.
  EXPECT_TRUE(found.steps == 512 ||
              std::abs(found.completeness_error) <= 0.01 * std::abs(found.target - found.baseline))
      << found.completeness_error << " with " << found.steps;
  EXPECT_NEAR(found.sum() - (found.target - found.baseline), found.completeness_error, 1e-4);

  options.attribution.baseline = "no such token";
  EXPECT_THROW(inspect(translator(), "m", subject, options), Error);
  options.attribution.baseline.clear();
  options.target.reset();
  EXPECT_THROW(inspect(translator(), "m", subject, options), Error) << "nothing to explain";
}

TEST(Attributions, RolloutAndValueZeroingStandBesideTheirAttentions) {
  const Subject subject = pair();
  InspectOptions options = options_for({AttributionMethod::rollout, AttributionMethod::value_zeroing});
  options.group = GroupBy::token;
  options.layers = {1, -1};
  options.attentions = {"decoder", "cross"};
  const Inspection shown = inspect(translator(), "m", subject, options).inspection;
  ASSERT_EQ(shown.attentions.size(), 6u);
  const char* names[] = {
      "decoder", "cross", "decoder rollout", "cross rollout", "decoder value zeroing", "cross value zeroing"};
  const RolloutLayers rollout = rollout_by_layer(translator().model, subject.input);
  const std::vector<ZeroedValues> zeroed = value_zeroing(translator().model, subject.input,
                                                         {{StackKind::decoder, 1, Part::self, -1},
                                                          {StackKind::decoder, 3, Part::self, -1},
                                                          {StackKind::decoder, 1, Part::cross, -1},
                                                          {StackKind::decoder, 3, Part::cross, -1}});
  const Tensor* expected[][2] = {{&rollout.decoder[1], &rollout.decoder[3]},
                                 {&rollout.cross[1], &rollout.cross[3]},
                                 {&zeroed[0].scores, &zeroed[1].scores},
                                 {&zeroed[2].scores, &zeroed[3].scores}};
  for (std::size_t i = 0; i < 6; ++i) {
    const ShownAttention& attention = shown.attentions[i];
    EXPECT_EQ(attention.name, names[i]);
    EXPECT_EQ(attention.layers, (std::vector<int>{1, 3}));
    if (i < 2) continue;
    EXPECT_EQ(attention.heads, std::vector<int>{mean_of_all});
    EXPECT_EQ(attention.masked, shown.attentions[i % 2].masked);
    ASSERT_EQ(attention.measures.size(), 1u);
    std::vector<float> values;
    for (const Tensor* one : expected[i - 2]) {
      const std::vector<float> matrix = one->to_vector();
      values.insert(values.end(), matrix.begin(), matrix.end());
    }
    EXPECT_EQ(attention.measures[0].values, values) << attention.name;
  }
  options.most_bytes = 3000;
  options.layers.clear();
  EXPECT_THROW(inspect(translator(), "m", subject, options), Error) << "too large";
}

TEST(Attributions, OfADecoderAlone) {
  SubjectTexts texts;
  texts.text = "床前明月光";
  const Subject subject = read_subject(poet(), texts);
  InspectOptions options = options_for(
      {AttributionMethod::rollout, AttributionMethod::value_zeroing, AttributionMethod::integrated_gradients});
  options.target = log_probability_of(subject.next);
  options.attribution.steps = 4;
  const Inspection shown = inspect(poet(), "m", subject, options).inspection;
  ASSERT_EQ(shown.attentions.size(), 3u);
  EXPECT_EQ(shown.attentions[1].name, "decoder rollout");
  EXPECT_EQ(shown.attributions.at(0).unit, "nats");
  EXPECT_EQ(shown.attributions[0].values.size(), 1u);
}

TEST(Attributions, MethodsHaveNames) {
  for (const AttributionMethod method : {AttributionMethod::integrated_gradients, AttributionMethod::gradient_input,
                                         AttributionMethod::rollout, AttributionMethod::value_zeroing})
    EXPECT_EQ(attribution_method_named(name_of(method)), method);
  try {
    attribution_method_named("rolout");
    ADD_FAILURE();
  } catch (const Error& error) {
    EXPECT_NE(std::string(error.what()).find("did you mean rollout"), std::string::npos) << error.what();
  }
}

}  // namespace
}  // namespace attend
