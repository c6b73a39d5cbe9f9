// generate() against plain loops that compute the whole sequence again for every token.
#include "attend/generate.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <limits>
#include <set>

#include "attend/error.h"
#include "attend/threads.h"
#include "unit/run_models.h"

namespace attend {
namespace {

using namespace attend::testing;

bool is_in(std::span<const std::int32_t> ids, std::int32_t id) {
  return std::find(ids.begin(), ids.end(), id) != ids.end();
}

Hypothesis plain_greedy(const Model& model, const DecodeInput& input, const DecodeOptions& options) {
  Hypothesis result;
  while (static_cast<std::int64_t>(result.ids.size()) < options.max_length) {
    const std::vector<double> next = next_log_probabilities(model, input.source, joined(input.prompt, result.ids));
    std::int32_t best = -1;
    const bool early = static_cast<std::int64_t>(result.ids.size()) + 1 < options.min_length;
    for (std::int32_t id = 0; id < static_cast<std::int32_t>(next.size()); ++id) {
      if (is_in(options.forbidden, id) || (early && is_in(options.end, id))) continue;
      if (best < 0 || next[static_cast<std::size_t>(id)] > next[static_cast<std::size_t>(best)]) best = id;
    }
    if (result.ids.size() < input.prefix.size()) best = input.prefix[result.ids.size()];
    result.ids.push_back(best);
    result.log_probabilities.push_back(static_cast<float>(next[static_cast<std::size_t>(best)]));
    result.total += next[static_cast<std::size_t>(best)];
    if (is_in(options.end, best)) {
      result.finished = true;
      break;
    }
  }
  result.score = length_score(options.length_penalty, options.length_alpha, result.total,
                              static_cast<std::int64_t>(result.ids.size()));
  return result;
}

void expect_close(const Hypothesis& a, const Hypothesis& b) {
  EXPECT_EQ(a.ids, b.ids);
  EXPECT_EQ(a.finished, b.finished);
  ASSERT_EQ(a.log_probabilities.size(), b.log_probabilities.size());
  for (std::size_t i = 0; i < a.log_probabilities.size(); ++i)
    EXPECT_NEAR(a.log_probabilities[i], b.log_probabilities[i], 2e-4);
  EXPECT_NEAR(a.total, b.total, 1e-3);
  EXPECT_NEAR(a.score, b.score, 1e-3);
}

void expect_same_bits(const std::vector<std::vector<Hypothesis>>& a, const std::vector<std::vector<Hypothesis>>& b) {
  ASSERT_EQ(a.size(), b.size());
  for (std::size_t i = 0; i < a.size(); ++i) {
    ASSERT_EQ(a[i].size(), b[i].size());
    for (std::size_t k = 0; k < a[i].size(); ++k) {
      EXPECT_EQ(a[i][k].ids, b[i][k].ids) << i << " " << k;
      EXPECT_EQ(a[i][k].log_probabilities, b[i][k].log_probabilities) << i << " " << k;
      EXPECT_EQ(a[i][k].total, b[i][k].total);
      EXPECT_EQ(a[i][k].score, b[i][k].score);
      EXPECT_EQ(a[i][k].finished, b[i][k].finished);
    }
  }
}

class Generate : public ::testing::TestWithParam<int> {
 protected:
  NamedConfig named = all_configs()[static_cast<std::size_t>(GetParam())];
  Model model = lively_model(named.config, 21);
};

TEST_P(Generate, GreedyEqualsTheUncachedLoop) {
  // Longer than a page of the cache, so that pages are crossed.
  const std::vector<DecodeInput> inputs = some_inputs(named.config, 9);
  for (const std::int64_t min_length : {0, 70}) {
    DecodeOptions options = usual_options(80);
    options.min_length = min_length;
    const auto results = generate(model, inputs, options);
    ASSERT_EQ(results.size(), inputs.size());
    std::set<std::vector<std::int32_t>> different;
    for (std::size_t i = 0; i < inputs.size(); ++i) {
      ASSERT_EQ(results[i].size(), 1u);
      expect_close(results[i][0], plain_greedy(model, inputs[i], options));
      different.insert(results[i][0].ids);
      if (min_length > 0) {
        EXPECT_GE(static_cast<std::int64_t>(results[i][0].ids.size()), min_length);
      }
    }
    EXPECT_GT(different.size(), 2u) << "a model this dull tests nothing";
  }
}

TEST_P(Generate, WithoutScoresTheTokensAreTheSame) {
  const std::vector<DecodeInput> inputs = some_inputs(named.config, 9);
  for (const Strategy strategy : {Strategy::greedy, Strategy::sample, Strategy::beam}) {
    DecodeOptions options = usual_options(30);
    options.strategy = strategy;
    const auto with = generate(model, inputs, options);
    options.scores = false;
    const auto without = generate(model, inputs, options);
    for (std::size_t i = 0; i < inputs.size(); ++i) {
      EXPECT_EQ(with[i][0].ids, without[i][0].ids);
      EXPECT_EQ(with[i][0].log_probabilities.size(), with[i][0].ids.size());
      EXPECT_TRUE(without[i][0].log_probabilities.empty());
    }
  }
}

TEST_P(Generate, SameBitsForAnyBatchSizeOrderAndThreads) {
  std::vector<DecodeInput> inputs = some_inputs(named.config, 13);
  for (std::size_t i = 0; i < inputs.size(); i += 3) inputs[i].prefix = {5, 6, 7};
  const int threads_before = threads();
  for (const Strategy strategy : {Strategy::greedy, Strategy::sample, Strategy::beam}) {
    DecodeOptions options = usual_options(16);
    options.strategy = strategy;
    options.n_best = strategy == Strategy::greedy ? 1 : 2;
    options.batch_size = 13;
    set_threads(1);
    const auto expected = generate(model, inputs, options);
    for (const std::int64_t batch_size : {1, 5, 48}) {
      for (const int team : {1, 3}) {
        set_threads(team);
        options.batch_size = batch_size;
        expect_same_bits(generate(model, inputs, options), expected);
      }
    }
    // One by one in calls of their own; samples need their number then.
    for (std::size_t i = 0; i < inputs.size(); ++i) {
      DecodeInput alone = inputs[i];
      alone.number = static_cast<std::int64_t>(i);
      const auto result = generate(model, std::span(&alone, 1), options);
      expect_same_bits({result[0]}, {expected[i]});
    }
  }
  set_threads(threads_before);
}

TEST_P(Generate, BeamOfOneIsGreedy) {
  const std::vector<DecodeInput> inputs = some_inputs(named.config, 12, 3);
  DecodeOptions options = usual_options(30);
  const auto greedy = generate(model, inputs, options);
  options.strategy = Strategy::beam;
  options.beam_size = 1;
  const auto beam = generate(model, inputs, options);
  for (std::size_t i = 0; i < inputs.size(); ++i) {
    EXPECT_EQ(greedy[i][0].ids, beam[i][0].ids);
    EXPECT_EQ(greedy[i][0].log_probabilities, beam[i][0].log_probabilities);
    EXPECT_EQ(greedy[i][0].finished, beam[i][0].finished);
  }
}

// Beam search by the book: every beginning computed whole, all extensions sorted.
std::vector<Hypothesis> plain_beam(const Model& model, const DecodeInput& input, const DecodeOptions& options) {
  struct Extension {
    double total;
    std::size_t beam;
    std::int32_t id;
    double log_probability;
  };
  std::vector<Hypothesis> beams(1), ended;
  for (const std::int32_t id : input.prefix) {
    const auto next = next_log_probabilities(model, input.source, joined(input.prompt, beams[0].ids));
    beams[0].ids.push_back(id);
    beams[0].log_probabilities.push_back(static_cast<float>(next[static_cast<std::size_t>(id)]));
    beams[0].total += next[static_cast<std::size_t>(id)];
  }
  const auto size = static_cast<std::size_t>(options.beam_size);
  while (!beams.empty() && static_cast<std::int64_t>(beams[0].ids.size()) < options.max_length) {
    std::vector<Extension> extensions;
    for (std::size_t b = 0; b < beams.size(); ++b) {
      const auto next = next_log_probabilities(model, input.source, joined(input.prompt, beams[b].ids));
      for (std::int32_t id = 0; id < static_cast<std::int32_t>(next.size()); ++id) {
        if (is_in(options.forbidden, id)) continue;
        const double log_probability = next[static_cast<std::size_t>(id)];
        extensions.push_back({beams[b].total + log_probability, b, id, log_probability});
      }
    }
    std::stable_sort(extensions.begin(), extensions.end(),
                     [](const auto& a, const auto& b) { return a.total > b.total; });
    std::vector<Hypothesis> followed;
    for (std::size_t rank = 0; rank < extensions.size() && followed.size() < size; ++rank) {
      const Extension& extension = extensions[rank];
      Hypothesis longer = beams[extension.beam];
      longer.ids.push_back(extension.id);
      longer.log_probabilities.push_back(static_cast<float>(extension.log_probability));
      longer.total = extension.total;
      if (!is_in(options.end, extension.id)) {
        followed.push_back(longer);
      } else if (rank < size) {
        longer.finished = true;
        ended.push_back(longer);
      }
    }
    beams = followed;
    if (ended.size() >= size) beams.clear();
  }
  ended.insert(ended.end(), beams.begin(), beams.end());
  for (Hypothesis& hypothesis : ended) {
    hypothesis.score = length_score(options.length_penalty, options.length_alpha, hypothesis.total,
                                    static_cast<std::int64_t>(hypothesis.ids.size()));
  }
  std::stable_sort(ended.begin(), ended.end(), [](const Hypothesis& a, const Hypothesis& b) {
    return a.finished != b.finished ? a.finished : a.score > b.score;
  });
  ended.resize(std::min(ended.size(), static_cast<std::size_t>(options.n_best)));
  return ended;
}

TEST_P(Generate, BeamEqualsTheSearchByTheBook) {
  std::vector<DecodeInput> inputs = some_inputs(named.config, 4, 4);
  inputs[2].prefix = {4, 9};
  for (const std::int64_t beam_size : {2, 5}) {
    for (const LengthPenalty penalty : {LengthPenalty::none, LengthPenalty::power, LengthPenalty::gnmt}) {
      DecodeOptions options = usual_options(10);
      options.strategy = Strategy::beam;
      options.beam_size = options.n_best = beam_size;
      options.length_penalty = penalty;
      options.length_alpha = 0.6;
      const auto results = generate(model, inputs, options);
      for (std::size_t i = 0; i < inputs.size(); ++i) {
        const std::vector<Hypothesis> expected = plain_beam(model, inputs[i], options);
        ASSERT_EQ(results[i].size(), expected.size());
        for (std::size_t k = 0; k < expected.size(); ++k) expect_close(results[i][k], expected[k]);
      }
    }
  }
}

TEST_P(Generate, BestIsSortedDistinctAndScoredAsTheWholePassScores) {
  const std::vector<DecodeInput> inputs = some_inputs(named.config, 10, 6);
  for (const BeamStop stop : {BeamStop::enough, BeamStop::best}) {
    DecodeOptions options = usual_options(12);
    options.strategy = Strategy::beam;
    options.beam_size = 6;
    options.n_best = 6;
    options.beam_stop = stop;
    const auto results = generate(model, inputs, options);
    for (std::size_t i = 0; i < inputs.size(); ++i) {
      std::set<std::vector<std::int32_t>> different;
      std::vector<ScoreInput> judged;
      for (std::size_t k = 0; k < results[i].size(); ++k) {
        const Hypothesis& one = results[i][k];
        different.insert(one.ids);
        judged.push_back(
            {inputs[i].source, joined(inputs[i].prompt, one.ids), static_cast<std::int64_t>(inputs[i].prompt.size())});
        for (const std::int32_t id : one.ids) EXPECT_FALSE(is_in(options.forbidden, id));
        EXPECT_EQ(one.finished, one.ids.back() == eos);
        if (k == 0) continue;
        const Hypothesis& before = results[i][k - 1];
        EXPECT_TRUE((before.finished && !one.finished) ||
                    (before.finished == one.finished && before.score >= one.score));
      }
      EXPECT_EQ(different.size(), results[i].size());
      const auto scores = score(model, judged, 3);
      for (std::size_t k = 0; k < results[i].size(); ++k) {
        ASSERT_EQ(scores[k].size(), results[i][k].log_probabilities.size());
        double total = 0;
        for (std::size_t t = 0; t < scores[k].size(); ++t) {
          EXPECT_NEAR(scores[k][t], results[i][k].log_probabilities[t], 2e-4);
          total += scores[k][t];
        }
        EXPECT_NEAR(total, results[i][k].total, 1e-3);
      }
    }
  }
}

TEST_P(Generate, ForcedPrefixIsKeptAndScored) {
  std::vector<DecodeInput> inputs = some_inputs(named.config, 6, 8);
  const std::vector<std::vector<std::int32_t>> prefixes{{5}, {6, 5, 4}, {}, {bos, 7}, {8, 8, 8, 8}, {9, 10}};
  for (std::size_t i = 0; i < inputs.size(); ++i) inputs[i].prefix = prefixes[i];
  for (const std::int64_t max_length : {4, 20}) {
    for (const Strategy strategy : {Strategy::greedy, Strategy::sample, Strategy::beam}) {
      DecodeOptions options = usual_options(max_length);
      options.strategy = strategy;
      options.n_best = strategy == Strategy::greedy ? 1 : 3;
      const auto results = generate(model, inputs, options);
      for (std::size_t i = 0; i < inputs.size(); ++i) {
        for (const Hypothesis& one : results[i]) {
          ASSERT_GE(one.ids.size(), prefixes[i].size());
          EXPECT_LE(static_cast<std::int64_t>(one.ids.size()), max_length);
          EXPECT_TRUE(std::equal(prefixes[i].begin(), prefixes[i].end(), one.ids.begin()));
          const auto given = static_cast<std::int64_t>(inputs[i].prompt.size());
          const auto scores =
              score(model, std::vector<ScoreInput>{{inputs[i].source, joined(inputs[i].prompt, one.ids), given}});
          ASSERT_EQ(scores[0].size(), one.log_probabilities.size());
          for (std::size_t t = 0; t < scores[0].size(); ++t) EXPECT_NEAR(scores[0][t], one.log_probabilities[t], 2e-4);
        }
        if (strategy == Strategy::greedy) expect_close(results[i][0], plain_greedy(model, inputs[i], options));
      }
    }
  }
}

TEST_P(Generate, LengthsEndWhereTheyShould) {
  const std::int64_t positions = named.config.max_positions;
  std::vector<DecodeInput> inputs = some_inputs(named.config, 2);
  inputs[0].prompt.assign(90, 4);
  DecodeOptions options = usual_options(0);
  options.end.clear();
  options.scores = false;
  auto results = generate(model, inputs, options);
  EXPECT_EQ(static_cast<std::int64_t>(results[0][0].ids.size()), named.config.encoder ? 7 : positions - 90 + 1);
  for (std::size_t i = 0; i < inputs.size(); ++i) {
    const std::int64_t fits = positions - static_cast<std::int64_t>(inputs[i].prompt.size()) + 1;
    const std::int64_t wanted =
        named.config.encoder ? 4 * static_cast<std::int64_t>(inputs[i].source.size()) + 32 : fits;
    EXPECT_EQ(static_cast<std::int64_t>(results[i][0].ids.size()), std::min(fits, wanted));
    EXPECT_FALSE(results[i][0].finished);
  }
  options.max_length = 1000;
  results = generate(model, inputs, options);
  EXPECT_EQ(results[0][0].ids.size(), 7u);
  options.max_length = 1;
  options.strategy = Strategy::beam;
  results = generate(model, inputs, options);
  EXPECT_EQ(results[0][0].ids.size(), 1u);
}

TEST_P(Generate, TokensAreToldAsTheyAreMadeAndCanEndTheirSequence) {
  const std::vector<DecodeInput> inputs = some_inputs(named.config, 5);
  for (const Strategy strategy : {Strategy::greedy, Strategy::sample}) {
    DecodeOptions options = usual_options(15);
    options.strategy = strategy;
    options.n_best = strategy == Strategy::greedy ? 1 : 3;
    const auto undisturbed = generate(model, inputs, options);
    std::vector<std::vector<Hypothesis>> told(inputs.size(),
                                              std::vector<Hypothesis>(static_cast<std::size_t>(options.n_best)));
    std::vector<int> lasts(inputs.size() * 3, 0);
    options.on_token = [&](const TokenEvent& event) {
      Hypothesis& one = told[static_cast<std::size_t>(event.input)][static_cast<std::size_t>(event.sample)];
      one.ids.push_back(event.id);
      one.log_probabilities.push_back(event.log_probability);
      lasts[static_cast<std::size_t>(event.input * 3 + event.sample)] += event.last;
      return true;
    };
    expect_same_bits(generate(model, inputs, options), undisturbed);
    for (std::size_t i = 0; i < inputs.size(); ++i) {
      for (std::size_t k = 0; k < undisturbed[i].size(); ++k) {
        EXPECT_EQ(told[i][k].ids, undisturbed[i][k].ids);
        EXPECT_EQ(told[i][k].log_probabilities, undisturbed[i][k].log_probabilities);
        EXPECT_EQ(lasts[i * 3 + k], 1);
      }
    }
    int seen = 0;
    options.on_token = [&](const TokenEvent& event) { return !(event.input == 2 && event.sample == 0 && ++seen == 2); };
    options.end.clear();
    const auto stopped = generate(model, inputs, options);
    EXPECT_EQ(stopped[2][0].ids.size(), 2u);
    EXPECT_FALSE(stopped[2][0].finished);
    EXPECT_EQ(stopped[1][0].ids.size(), 15u);
  }
  DecodeOptions options = usual_options(15);
  int asked = 0;
  options.cancelled = [&] { return ++asked > 3; };
  try {
    generate(model, inputs, options);
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::cancelled);
  }
}

TEST_P(Generate, SamplesFollowTheSeed) {
  const std::vector<DecodeInput> inputs = some_inputs(named.config, 6);
  DecodeOptions options = usual_options(12);
  options.strategy = Strategy::sample;
  options.temperature = 2;
  options.n_best = 4;
  options.seed = 42;
  const auto first = generate(model, inputs, options);
  expect_same_bits(generate(model, inputs, options), first);
  options.seed = 43;
  const auto other = generate(model, inputs, options);
  std::set<std::vector<std::int32_t>> different;
  for (std::size_t i = 0; i < inputs.size(); ++i) {
    for (std::size_t k = 0; k < 4; ++k) {
      different.insert(first[i][k].ids);
      different.insert(other[i][k].ids);
    }
  }
  EXPECT_GT(different.size(), 24u) << "most of 48 samples should differ";
}

INSTANTIATE_TEST_SUITE_P(Models, Generate, ::testing::Range(0, 4));

TEST(GenerateSamples, FirstTokenHasTheModelsDistribution) {
  const NamedConfig named = encoder_decoder();
  const Model model = lively_model(named.config, 12);
  const std::vector<DecodeInput> inputs = some_inputs(named.config, 1);
  DecodeOptions options;
  options.strategy = Strategy::sample;
  options.max_length = 1;
  options.n_best = 20000;
  const auto results = generate(model, inputs, options);
  const auto expected = next_log_probabilities(model, inputs[0].source, inputs[0].prompt);
  std::vector<double> counts(expected.size(), 0);
  for (const Hypothesis& one : results[0]) {
    ++counts[static_cast<std::size_t>(one.ids[0])];
    EXPECT_NEAR(one.log_probabilities[0], expected[static_cast<std::size_t>(one.ids[0])], 2e-4);
  }
  double chi_square = 0;
  for (std::size_t id = 0; id < counts.size(); ++id) {
    const double wanted = std::exp(expected[id]) * 20000;
    chi_square += (counts[id] - wanted) * (counts[id] - wanted) / wanted;
  }
  EXPECT_LT(chi_square, 39.2);  // 12 degrees of freedom, 1 - 1e-4
}

TEST(GenerateTies, TheLowerIdWins) {
  for (const NamedConfig& named : {encoder_decoder(), rotary_decoder()}) {
    Model model(named.config, 1);
    Parameter& weight = model.parameter("logits.weight");
    std::fill_n(weight.value.data(), weight.value.elements(), 0.0f);
    weight.changed();
    const std::vector<DecodeInput> inputs = some_inputs(named.config, 2);
    DecodeOptions options = usual_options(3);
    options.forbidden = {pad, bos, unknown, eos};
    options.end.clear();
    EXPECT_EQ(generate(model, inputs, options)[1][0].ids, (std::vector<std::int32_t>{4, 4, 4}));
    options.strategy = Strategy::beam;
    options.beam_size = options.n_best = 3;
    const auto beams = generate(model, inputs, options);
    EXPECT_EQ(beams[0][0].ids, (std::vector<std::int32_t>{4, 4, 4}));
    EXPECT_EQ(beams[0][1].ids, (std::vector<std::int32_t>{4, 4, 5}));
    EXPECT_EQ(beams[0][2].ids, (std::vector<std::int32_t>{4, 4, 6}));
  }
}

// All sequences up to max_length, by recursion.
void enumerate(const Model& model, const DecodeInput& input, const DecodeOptions& options, Hypothesis begun,
               std::vector<Hypothesis>& all) {
  if (begun.finished || static_cast<std::int64_t>(begun.ids.size()) == options.max_length) {
    begun.score = length_score(options.length_penalty, options.length_alpha, begun.total,
                               static_cast<std::int64_t>(begun.ids.size()));
    all.push_back(begun);
    return;
  }
  const auto next = next_log_probabilities(model, input.source, joined(input.prompt, begun.ids));
  for (std::int32_t id = 0; id < static_cast<std::int32_t>(next.size()); ++id) {
    if (is_in(options.forbidden, id)) continue;
    Hypothesis longer = begun;
    longer.ids.push_back(id);
    longer.log_probabilities.push_back(static_cast<float>(next[static_cast<std::size_t>(id)]));
    longer.total += next[static_cast<std::size_t>(id)];
    longer.finished = is_in(options.end, id);
    enumerate(model, input, options, longer, all);
  }
}

TEST(GenerateBeam, WideEnoughItFindsWhatEnumerationFinds) {
  for (const NamedConfig& named : {encoder_decoder(7), rotary_decoder(7)}) {
    for (const std::uint64_t seed : {1, 2, 3}) {
      const Model model = lively_model(named.config, seed);
      std::vector<DecodeInput> inputs = some_inputs(named.config, 3, static_cast<std::uint32_t>(seed));
      for (DecodeInput& input : inputs) {
        for (std::int32_t& id : input.prompt) id %= 7;
      }
      for (const LengthPenalty penalty : {LengthPenalty::none, LengthPenalty::power, LengthPenalty::gnmt}) {
        DecodeOptions options = usual_options(3);
        options.strategy = Strategy::beam;
        options.beam_size = 64;  // three tokens that go on: 27 beginnings of length 3, all followed
        options.n_best = 40;     // and 1 + 3 + 9 that end
        options.beam_stop = BeamStop::best;
        options.length_penalty = penalty;
        const auto results = generate(model, inputs, options);
        for (std::size_t i = 0; i < inputs.size(); ++i) {
          std::vector<Hypothesis> all;
          enumerate(model, inputs[i], options, {}, all);
          std::stable_sort(all.begin(), all.end(), [](const Hypothesis& a, const Hypothesis& b) {
            return a.finished != b.finished ? a.finished : a.score > b.score;
          });
          ASSERT_EQ(results[i].size(), 40u);
          for (std::size_t k = 0; k < results[i].size(); ++k) expect_close(results[i][k], all[k]);
        }
      }
    }
  }
}

TEST(GenerateBeam, StoppingAtTheBoundLosesNothing) {
  // With `best` a narrow beam may stop early only if going on to max_length would give the same best hypotheses.
  const NamedConfig named = encoder_decoder();
  for (const std::uint64_t seed : {1, 2, 3, 4}) {
    const Model model = lively_model(named.config, seed);
    const std::vector<DecodeInput> inputs = some_inputs(named.config, 6);
    for (const double alpha : {-0.5, 0.0, 0.6, 1.0}) {
      DecodeOptions options = usual_options(10);
      options.strategy = Strategy::beam;
      options.length_alpha = alpha;
      options.beam_stop = BeamStop::best;
      options.beam_size = options.n_best = 4;
      const auto complete = generate(model, inputs, options);
      options.n_best = 1;
      const auto one = generate(model, inputs, options);
      options.beam_stop = BeamStop::enough;
      const auto quick = generate(model, inputs, options);
      for (std::size_t i = 0; i < inputs.size(); ++i) {
        EXPECT_EQ(one[i][0].finished, complete[i][0].finished);
        if (complete[i][0].finished) {
          EXPECT_EQ(one[i][0].ids, complete[i][0].ids);
        }
        if (quick[i][0].finished && one[i][0].finished) {
          EXPECT_GE(one[i][0].score, quick[i][0].score);
        }
      }
    }
  }
}

TEST(GenerateNothing, NoInputsGiveNoResults) {
  const Model model(encoder_decoder().config, 1);
  for (const Strategy strategy : {Strategy::greedy, Strategy::sample, Strategy::beam}) {
    DecodeOptions options = usual_options();
    options.strategy = strategy;
    EXPECT_TRUE(generate(model, {}, options).empty());
  }
  EXPECT_TRUE(score(model, {}).empty());
}

}  // namespace
}  // namespace attend
