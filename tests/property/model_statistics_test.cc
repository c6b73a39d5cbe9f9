// Statistics asked of a model's run are those of the matrices of the float64 Transformer of tests/reference, in every family,
// in one pass and step by step against caches; and what is kept of an attention rebuilds its matrices.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>

#include "attend/error.h"
#include "attend/model.h"
#include "attend/statistics.h"
#include "reference/random_models.h"
#include "reference/transformer_reference.h"

namespace attend {
namespace {

using reference::all_families;
using reference::NamedConfig;

class Statistics : public testing::TestWithParam<NamedConfig> {
 protected:
  Statistics() : model(GetParam().config, 7) { reference::randomise(model, 11); }

  const TransformerConfig& config() const { return model.config(); }
  TokenBatch source() const { return reference::random_tokens({5, 1, 9}, config().encoder->vocabulary, 1); }
  TokenBatch target() const { return reference::random_tokens({4, 7, 1}, config().decoder->vocabulary, 2); }
  bool reads_tokens() const { return !config().encoder || config().encoder->vocabulary > 0; }

  Tensor run(const RunOptions& options) const {
    std::optional<States> memory;
    if (config().encoder) memory = model.encode(source(), options);
    return config().decoder ? model.decode(target(), memory ? &*memory : nullptr, options).rows : memory->rows;
  }

  void run_textbook(reference::Transformer& textbook) const {
    reference::Matrix memory;
    if (config().encoder) memory = textbook.encode(source());
    if (config().decoder)
      textbook.decode(target(), memory.empty() ? nullptr : &memory,
                      config().encoder ? source().offsets : std::vector<std::int64_t>{});
  }

  std::vector<Site> attentions() const {
    std::vector<Site> sites;
    for (const Site& site : model.sites())
      if (site.point == Point::weights) sites.push_back(site);
    return sites;
  }

  Model model;
};

StatisticsRequest everything() {
  StatisticsRequest request;
  request.sink = true;
  request.top = 3;
  request.lists = 2;
  request.spans = {{0, -1, 0, 2}, {1, 1, 1, 4}};
  return request;
}

float at(const Tensor& values, std::int64_t row, std::int64_t column) { return values.at(row, column); }

// Rows of the textbook's matrices, from the scores that its masks let through: by attention, item, head and query.
class TextbookWeights {
 public:
  explicit TextbookWeights(reference::Transformer& textbook) {
    textbook.score = [this](const reference::ScorePlace& place, double score) {
      rows_[{place.attention, place.item, place.head, place.query}][place.key] = score;
      return score;
    };
  }

  // The first `keys` keys; those that the mask hides have 0.
  std::vector<double> row(const std::string& attention, std::int64_t item, std::int64_t head, std::int64_t query,
                          std::int64_t keys) const {
    const std::map<std::int64_t, double>& scores = rows_.at({attention, item, head, query});
    double largest = -std::numeric_limits<double>::infinity(), sum = 0;
    for (const auto& [key, score] : scores) largest = std::max(largest, score);
    for (const auto& [key, score] : scores) sum += std::exp(score - largest);
    std::vector<double> weights(static_cast<std::size_t>(keys));
    for (const auto& [key, score] : scores) weights.at(static_cast<std::size_t>(key)) = std::exp(score - largest) / sum;
    return weights;
  }

 private:
  std::map<std::tuple<std::string, std::int64_t, std::int64_t, std::int64_t>, std::map<std::int64_t, double>> rows_;
};

std::string attention_of(const Site& site) {
  return join(name_of(site.stack), '.', site.layer, '.', name_of(site.part));
}

// What was told of a row of a head, whose query stands at `position`, against its weights.
void expect_row(const StatisticsResult& found, std::int64_t row, std::int64_t h, const std::vector<double>& weights,
                std::int64_t position, std::int64_t item, const std::string& what) {
  const auto keys = static_cast<std::int64_t>(weights.size());
  double entropy = 0, distance = 0, lists[2] = {};
  for (std::int64_t j = 0; j < keys; ++j) {
    const double weight = weights[static_cast<std::size_t>(j)];
    if (weight > 0) entropy -= weight * std::log(weight);
    distance += weight * std::fabs(static_cast<double>(position - j));
    if (j < 2) lists[0] += weight;
    if (item == 1 && j >= 1 && j < 4) lists[1] += weight;
  }
  const auto weight_of = [&](std::int64_t key) {
    return key >= 0 && key < keys ? weights[static_cast<std::size_t>(key)] : 0.0;
  };
  ASSERT_NEAR(at(found.entropy, row, h), entropy, 1e-5) << what;
  ASSERT_NEAR(at(found.distance, row, h), distance, 1e-5 * std::max(1.0, distance)) << what;
  ASSERT_NEAR(at(found.first, row, h), weight_of(0), 1e-5) << what;
  ASSERT_NEAR(at(found.self, row, h), weight_of(position), 1e-5) << what;
  ASSERT_NEAR(at(found.previous, row, h), weight_of(position - 1), 1e-5) << what;
  ASSERT_EQ(at(found.sink, row, h), 0) << what;
  for (std::int64_t list = 0; list < 2; ++list)
    ASSERT_NEAR(at(found.list_mass, row, h * 2 + list), lists[list], 1e-5) << what;
  std::vector<double> sorted = weights;
  std::sort(sorted.begin(), sorted.end(), std::greater<>());
  const std::int64_t visible = std::count_if(sorted.begin(), sorted.end(), [](double weight) { return weight > 0; });
  for (std::int64_t t = 0; t < 3; ++t) {
    const std::int32_t key =
        found.top_keys[static_cast<std::size_t>((row * static_cast<std::int64_t>(found.heads.size()) + h) * 3 + t)];
    const float weight = at(found.top_weights, row, h * 3 + t);
    ASSERT_EQ(key >= 0, t < visible) << what;
    ASSERT_NEAR(weight, t < visible ? sorted[static_cast<std::size_t>(t)] : 0, 1e-5) << what;
    ASSERT_NEAR(weight, weight_of(key), 1e-5) << what;
  }
}

TEST_P(Statistics, AreThoseOfTheMatrices) {
  if (!reads_tokens()) GTEST_SKIP();
  reference::Transformer textbook(model);
  const TextbookWeights expected(textbook);
  run_textbook(textbook);
  StatisticsRecorder statistics;
  statistics.ask_everywhere(everything());
  statistics.keep_records();
  RunOptions options;
  const std::vector<float> plain = run(options).to_vector();
  options.probe = &statistics;
  EXPECT_EQ(run(options).to_vector(), plain) << "asking must not change the result";
  for (const Site& site : attentions()) {
    const StatisticsRecorder::Run& found = statistics.runs(site.stack, site.layer, site.part).back();
    ASSERT_EQ(found.result.heads.size(), static_cast<std::size_t>(config().heads));
    for (std::int64_t item = 0; item < 3; ++item) {
      const AttentionItem& rows = found.record->input.items[static_cast<std::size_t>(item)];
      ASSERT_EQ(rows.queries,
                found.offsets[static_cast<std::size_t>(item) + 1] - found.offsets[static_cast<std::size_t>(item)]);
      for (std::int64_t h = 0; h < config().heads; ++h) {
        const Tensor rebuilt = found.record->weights(item, h, 0, rows.queries, 0, rows.keys);
        for (std::int64_t i = 0; i < rows.queries; ++i) {
          const std::string what = join(name_of(site), " item ", item, " head ", h, " query ", i);
          const std::vector<double> weights = expected.row(attention_of(site), item, h, i, rows.keys);
          ASSERT_NO_FATAL_FAILURE(
              expect_row(found.result, found.offsets[static_cast<std::size_t>(item)] + i, h, weights, i, item, what));
          for (std::int64_t j = 0; j < rows.keys; ++j)
            ASSERT_NEAR(rebuilt.at(i, j), weights[static_cast<std::size_t>(j)], 1e-5) << what;
        }
        if (rows.queries < 2 || rows.keys < 3) continue;
        const Tensor tile = found.record->weights(item, h, 1, 2, 1, 3);
        EXPECT_EQ(tile.at(0, 1), rebuilt.at(1, 2));
      }
    }
  }
}

TEST_P(Statistics, AreTheSameStepByStep) {
  if (!config().decoder || !reads_tokens()) return;
  reference::Transformer textbook(model);
  const TextbookWeights expected(textbook);
  run_textbook(textbook);
  StatisticsRecorder steps;
  steps.ask_everywhere(everything());
  steps.keep_records();
  RunOptions options;
  std::shared_ptr<const CrossMemory> shared;
  if (config().encoder) shared = model.share_memory(model.encode(source()));
  const TokenBatch targets = target();
  // Item 1 alone, whose number the spans name.
  KvCache cache = shared ? KvCache(model, shared, 1) : KvCache(model);
  KvCache* caches[] = {&cache};
  const std::vector<std::int64_t> numbers = {1};
  options.probe = &steps;
  options.item_numbers = numbers;
  for (std::int64_t position = 0; position < targets.length(1); ++position) {
    TokenBatch batch;
    batch.append(std::span(targets.ids).subspan(static_cast<std::size_t>(targets.offsets[1] + position), 1));
    model.decode_cached(batch, caches, options);
  }
  for (const Site& site : attentions()) {
    if (site.stack != StackKind::decoder) continue;
    const auto& runs = steps.runs(site.stack, site.layer, site.part);
    ASSERT_EQ(runs.size(), static_cast<std::size_t>(targets.length(1)));
    for (std::int64_t position = 0; position < targets.length(1); ++position) {
      const StatisticsRecorder::Run& found = runs[static_cast<std::size_t>(position)];
      ASSERT_EQ(found.first_positions, (std::vector<std::int64_t>{position}));
      const std::int64_t seen = found.record->input.items[0].keys;
      for (std::int64_t h = 0; h < config().heads; ++h) {
        const std::string what = join(name_of(site), " head ", h, " position ", position);
        const std::vector<double> weights = expected.row(attention_of(site), 1, h, position, seen);
        ASSERT_NO_FATAL_FAILURE(expect_row(found.result, 0, h, weights, position, 1, what));
        const Tensor rebuilt = found.record->weights(0, h, 0, 1, 0, seen);
        for (std::int64_t j = 0; j < seen; ++j)
          ASSERT_NEAR(rebuilt.at(0, j), weights[static_cast<std::size_t>(j)], 1e-5) << what;
      }
    }
  }
}

TEST_P(Statistics, LeaveGradientsAlone) {
  if (!reads_tokens()) return;
  const auto gradients = [&](Probe* probe) {
    Tape tape;
    for (Parameter& parameter : model.parameters()) tape.watch(parameter.value);
    RunOptions options;
    options.probe = probe;
    std::vector<std::vector<float>> all;
    {
      const GradientScope scope(tape);
      const Tensor rows = run(options);
      tape.backward(sum(multiply(rows, rows)));
    }
    for (Parameter& parameter : model.parameters())
      if (const Tensor gradient = tape.gradient(parameter.value); gradient.defined())
        all.push_back(gradient.to_vector());
    return all;
  };
  StatisticsRecorder statistics;
  statistics.ask_everywhere(everything());
  const auto found = gradients(&statistics);
  EXPECT_FALSE(found.empty());
  EXPECT_EQ(found, gradients(nullptr));
}

INSTANTIATE_TEST_SUITE_P(All, Statistics, testing::ValuesIn(all_families()), [](const auto& family) {
  std::string name = family.param.name.substr(0, family.param.name.find_first_of(":,"));
  std::replace_if(
      name.begin(), name.end(), [](char c) { return !std::isalnum(static_cast<unsigned char>(c)); }, '_');
  return name;
});

// Two probes with wishes of their own each get what they would get alone.
TEST(StatisticsProbes, ShareOneRun) {
  TransformerConfig config = reference::small_config();
  config.decoder = StackConfig{.layers = 2, .vocabulary = 19, .causal = true};
  Model model(config, 3);
  reference::randomise(model, 4);
  const TokenBatch tokens = reference::random_tokens({6, 5}, 19, 5);
  StatisticsRequest few, many;
  few.heads = {1};
  few.distance = few.self = false;
  few.top = 2;
  few.lists = 1;
  few.spans = {{0, -1, 1, 3}};
  many.entropy = false;
  many.heads = {0, 1};
  many.top = 4;
  many.lists = 2;
  many.spans = {{0, 0, 0, 1}, {1, -1, 2, 6}};
  const auto results = [&](std::vector<StatisticsRequest> requests) {
    std::vector<StatisticsRecorder> recorders(requests.size());
    std::vector<Probe*> probes;
    for (std::size_t i = 0; i < requests.size(); ++i) {
      recorders[i].ask(StackKind::decoder, 1, Part::self, requests[i]);
      probes.push_back(&recorders[i]);
    }
    ProbeList list(probes);
    RunOptions options;
    options.probe = &list;
    model.decode(tokens, nullptr, options);
    std::vector<StatisticsResult> found;
    for (const StatisticsRecorder& recorder : recorders) {
      EXPECT_FALSE(recorder.has(StackKind::decoder, 0, Part::self));
      found.push_back(recorder.result(StackKind::decoder, 1, Part::self));
    }
    return found;
  };
  const auto both = results({few, many, few});
  const StatisticsResult alone[] = {results({few})[0], results({many})[0], results({few})[0]};
  for (std::size_t i = 0; i < 3; ++i) {
    EXPECT_EQ(both[i].heads, alone[i].heads);
    EXPECT_EQ(both[i].top_keys, alone[i].top_keys);
    for (Tensor StatisticsResult::*values :
         {&StatisticsResult::entropy, &StatisticsResult::distance, &StatisticsResult::first, &StatisticsResult::self,
          &StatisticsResult::previous, &StatisticsResult::sink, &StatisticsResult::list_mass,
          &StatisticsResult::top_weights, &StatisticsResult::log_sum_exp}) {
      ASSERT_EQ((both[i].*values).defined(), (alone[i].*values).defined());
      if (!(alone[i].*values).defined()) continue;
      EXPECT_EQ((both[i].*values).to_vector(), (alone[i].*values).to_vector());
    }
  }
}

TEST(StatisticsProbes, NameWhatIsMissing) {
  TransformerConfig config = reference::small_config();
  config.decoder = StackConfig{.layers = 1, .vocabulary = 19, .causal = true};
  const Model model(config, 3);
  StatisticsRecorder recorder;
  StatisticsRequest wrong;
  wrong.heads = {7};
  recorder.ask(StackKind::decoder, 0, Part::self, wrong);
  RunOptions options;
  options.probe = &recorder;
  EXPECT_THROW(model.decode(reference::random_tokens({3}, 19, 1), nullptr, options), Error);
  recorder.ask(StackKind::decoder, 0, Part::self, {});
  model.decode(reference::random_tokens({3}, 19, 1), nullptr, options);
  try {
    recorder.result(StackKind::encoder, 2, Part::cross);
    FAIL();
  } catch (const Error& error) {
    EXPECT_NE(std::string(error.what()).find("encoder.2.cross was not recorded"), std::string::npos);
    EXPECT_NE(std::string(error.what()).find("decoder.0.self"), std::string::npos);
  }
}

}  // namespace
}  // namespace attend
