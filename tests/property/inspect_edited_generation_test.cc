// Edits through generation, scoring and sessions: what is written under edits is what an edited run over the finished text
// says, whatever the strategy, the batch and the steps in which it came about.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "attend/edits.h"
#include "attend/generate.h"
#include "reference/random_models.h"

namespace attend {
namespace {

using K = EditKind;

class EditedGeneration : public testing::TestWithParam<bool> {
 protected:
  EditedGeneration() : model(config(), 3) {
    reference::randomise(model, 5);
    Random random(9);
    for (std::int64_t i = 0; i < 5; ++i) {
      DecodeInput input;
      if (model.config().encoder) input.source = ids(random, 3 + i, 19);
      input.prompt = ids(random, 1 + i % 3, 23);
      if (i == 2) input.prefix = {5, 7};
      inputs.push_back(input);
    }
    edits.add({.name = "evict",
               .kind = K::evict,
               .at = "decoder.*.self",
               .positions = {{4, PositionRange::open_end}},
               .keys = {{1}}});
    edits.add({.name = "window", .kind = K::window, .at = "decoder.1.self", .heads = {1, 2}, .size = 3});
    edits.add({.name = "head", .kind = K::cut, .at = "decoder.0.self", .items = {1, 3}, .heads = {0}});
    edits.add({.name = "lock",
               .kind = K::lock,
               .at = "decoder.1.self",
               .heads = {3},
               .positions = {{2, PositionRange::open_end}},
               .keys = {{0}},
               .value = 0.25f});
    edits.add({.name = "row", .kind = K::zero, .at = "decoder.0.feed_forward.inner", .positions = {{3}}});
    edits.add({.name = "logits",
               .kind = K::noise,
               .at = "decoder.logits",
               .items = {4},
               .positions = {{2, 6}},
               .value = 0.5f});
    if (model.config().encoder) {
      edits.add({.name = "source", .kind = K::zero, .at = "encoder.1.output", .items = {0, 2}, .positions = {{1}}});
      edits.add({.name = "cross value", .kind = K::zero, .at = "decoder.*.cross.value", .heads = {1}});
      edits.add({.name = "deaf",
                 .kind = K::forbid,
                 .at = "decoder.0.cross",
                 .items = {4},
                 .keys = {{2, PositionRange::open_end}}});
    }
  }

  static TransformerConfig config() {
    TransformerConfig config = reference::small_config();
    if (GetParam()) config.encoder = StackConfig{.layers = 2, .vocabulary = 19};
    config.decoder = StackConfig{.layers = 2, .vocabulary = 23, .causal = true};
    config.positions = PositionKind::rotary;
    return config;
  }
  static std::vector<std::int32_t> ids(Random& random, std::int64_t count, std::uint64_t vocabulary) {
    std::vector<std::int32_t> list;
    for (std::int64_t i = 0; i < count; ++i) list.push_back(static_cast<std::int32_t>(random.below(vocabulary)));
    return list;
  }

  // Log-probabilities of every token of the texts by one edited run over all of them; [item][token].
  std::vector<std::vector<double>> judged(const std::vector<std::vector<std::int32_t>>& results) const {
    EditInput input;
    for (std::size_t i = 0; i < inputs.size(); ++i) {
      if (model.config().encoder) input.source.append(inputs[i].source);
      std::vector<std::int32_t> reading = inputs[i].prompt;
      reading.insert(reading.end(), results[i].begin(), results[i].end() - 1);
      input.target.append(reading);
    }
    EditRunOptions options;
    options.allow_untouched = true;
    const EditedRun run = run_edited(model, edits, input, options);
    std::vector<std::vector<double>> all;
    for (std::size_t i = 0; i < inputs.size(); ++i) {
      auto& list = all.emplace_back();
      for (std::size_t t = 0; t < results[i].size(); ++t) {
        const float* row = run.edited.row(run.offsets[i] + static_cast<std::int64_t>(inputs[i].prompt.size() + t) - 1);
        double sum = 0;
        for (std::int64_t id = 0; id < run.edited.width(); ++id) sum += std::exp(static_cast<double>(row[id]));
        list.push_back(static_cast<double>(row[results[i][t]]) - std::log(sum));
      }
    }
    return all;
  }

  Model model;
  std::vector<DecodeInput> inputs;
  Edits edits;
};

TEST_P(EditedGeneration, WritesWhatTheEditedRunSays) {
  for (const Strategy strategy : {Strategy::greedy, Strategy::sample, Strategy::beam})
    for (const std::int64_t batch_size : {1, 2, 48}) {
      EditProbe probe(model, edits);
      DecodeOptions options;
      options.strategy = strategy;
      options.max_length = 9;
      options.end = {0};
      options.batch_size = batch_size;
      options.probe = &probe;
      const auto results = generate(model, inputs, options);
      std::vector<std::vector<std::int32_t>> ids;
      for (const auto& list : results) ids.push_back(list.front().ids);
      const auto expected = judged(ids);
      for (std::size_t i = 0; i < inputs.size(); ++i) {
        ASSERT_EQ(results[i].front().log_probabilities.size(), expected[i].size());
        for (std::size_t t = 0; t < expected[i].size(); ++t)
          ASSERT_NEAR(results[i].front().log_probabilities[t], expected[i][t], 1e-4)
              << name_of(strategy) << " input " << i << " token " << t;
      }
      for (const EditReport::Touched& edit : probe.report().edits)
        EXPECT_GT(edit.count, 0) << edit.name << " " << name_of(strategy);
      // Without the probe other texts come out: the edits matter.
      options.probe = nullptr;
      const auto plain = generate(model, inputs, options);
      bool differs = false;
      for (std::size_t i = 0; i < inputs.size(); ++i)
        differs |= plain[i].front().log_probabilities != results[i].front().log_probabilities;
      EXPECT_TRUE(differs);
    }
}

TEST_P(EditedGeneration, AnEmptyListLeavesTheBitsOfEveryStrategy) {
  EditProbe nothing(model, {});
  for (const Strategy strategy : {Strategy::greedy, Strategy::sample, Strategy::beam}) {
    DecodeOptions options;
    options.strategy = strategy;
    options.max_length = 7;
    const auto plain = generate(model, inputs, options);
    options.probe = &nothing;
    const auto probed = generate(model, inputs, options);
    for (std::size_t i = 0; i < inputs.size(); ++i) {
      EXPECT_EQ(plain[i].front().ids, probed[i].front().ids);
      EXPECT_EQ(plain[i].front().log_probabilities, probed[i].front().log_probabilities);
    }
  }
}

TEST_P(EditedGeneration, ScoresAndSessionsAgreeWithTheEditedRun) {
  Random random(31);
  std::vector<std::vector<std::int32_t>> results;
  std::vector<ScoreInput> scored;
  for (const DecodeInput& input : inputs) {
    results.push_back(ids(random, 8, 23));
    std::vector<std::int32_t> all = input.prompt;
    all.insert(all.end(), results.back().begin(), results.back().end());
    scored.push_back({input.source, all, static_cast<std::int64_t>(input.prompt.size())});
  }
  const auto expected = judged(results);
  for (const std::int64_t batch_size : {2, 48}) {
    EditProbe probe(model, edits);
    const auto found = score(model, scored, batch_size, &probe);
    for (std::size_t i = 0; i < inputs.size(); ++i)
      for (std::size_t t = 0; t < expected[i].size(); ++t)
        ASSERT_NEAR(found[i][t], expected[i][t], 1e-4) << "input " << i << " token " << t;
  }
  for (std::size_t i = 0; i < inputs.size(); ++i) {
    EditProbe probe(model, edits);
    const std::vector<std::int64_t> number{static_cast<std::int64_t>(i)};
    RunOptions options;
    options.probe = &probe;
    options.item_numbers = number;
    Session session(model, inputs[i].source, 1, options);
    session.feed(inputs[i].prompt, options);
    for (std::size_t t = 0; t < results[i].size(); ++t) {
      const std::span<const float> logits = session.logits();
      double sum = 0;
      for (const float value : logits) sum += std::exp(static_cast<double>(value));
      ASSERT_NEAR(static_cast<double>(logits[static_cast<std::size_t>(results[i][t])]) - std::log(sum), expected[i][t],
                  1e-4)
          << "input " << i << " token " << t;
      session.feed(std::span(results[i]).subspan(t, 1), options);
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Models, EditedGeneration, testing::Bool(),
                         [](const auto& has_encoder) { return has_encoder.param ? "EncoderDecoder" : "Decoder"; });

}  // namespace
}  // namespace attend
