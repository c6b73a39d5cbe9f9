// Every family against the float64 Transformer of tests/reference, and the promises that hold for all of them.
#include <gtest/gtest.h>

#include <cmath>
#include <map>
#include <set>
#include <tuple>

#include "attend/model.h"
#include "attend/threads.h"
#include "reference/random_models.h"
#include "reference/transformer_reference.h"

namespace attend {
namespace {

using reference::all_families;
using reference::Matrix;
using reference::NamedConfig;

class Family : public testing::TestWithParam<NamedConfig> {
 protected:
  Family() : model(GetParam().config, 7) { reference::randomise(model, 11); }

  const TransformerConfig& config() const { return model.config(); }
  TokenBatch source(std::uint64_t seed = 1) const {
    return reference::random_tokens({5, 1, 9}, config().encoder->vocabulary, seed);
  }
  TokenBatch target(std::uint64_t seed = 2) const {
    return reference::random_tokens({4, 7, 1}, config().decoder->vocabulary, seed);
  }

  // Logits of every position of a batch, by the library.
  Tensor run(const RunOptions& options = {}) const {
    if (!config().decoder) return model.logits(model.encode(source(), options).rows, options);
    if (!config().encoder) return model.logits(model.decode(target(), nullptr, options).rows, options);
    const States memory = model.encode(source(), options);
    return model.logits(model.decode(target(), &memory, options).rows, options);
  }
  Matrix run_reference(reference::Transformer& textbook) const {
    if (!config().decoder) return textbook.logits(textbook.encode(source()));
    if (!config().encoder) return textbook.logits(textbook.decode(target(), nullptr, {}));
    const Matrix memory = textbook.encode(source());
    return textbook.logits(textbook.decode(target(), &memory, source().offsets));
  }

  Model model;
};

void expect_close(const Tensor& found, const Matrix& expected, double tolerance) {
  ASSERT_EQ(found.rows(), static_cast<std::int64_t>(expected.size()));
  double largest = 1;
  for (const auto& row : expected)
    for (const double value : row) largest = std::max(largest, std::fabs(value));
  for (std::int64_t row = 0; row < found.rows(); ++row)
    for (std::int64_t column = 0; column < found.width(); ++column)
      ASSERT_NEAR(found.at(row, column), expected[static_cast<std::size_t>(row)][static_cast<std::size_t>(column)],
                  tolerance * largest)
          << "row " << row << " column " << column;
}

void expect_equal_bits(const Tensor& a, const Tensor& b) { ASSERT_EQ(a.to_vector(), b.to_vector()); }

TEST_P(Family, AgreesWithTheTextbook) {
  reference::Transformer textbook(model);
  expect_close(run(), run_reference(textbook), 1e-5);
}

TEST_P(Family, HasTheSameBitsForAnyNumberOfThreads) {
  const int before = threads();
  set_threads(1);
  const Tensor one = run();
  for (const int count : {2, 3}) {
    set_threads(count);
    expect_equal_bits(run(), one);
  }
  set_threads(before);
}

TEST_P(Family, GivesAnItemTheSameBitsAloneAndInABatch) {
  const TokenBatch sources = config().encoder ? source() : TokenBatch{},
                   targets = config().decoder ? target() : TokenBatch{};
  const auto single = [](const TokenBatch& batch, std::int64_t item) {
    TokenBatch one;
    one.append(std::span(batch.ids).subspan(static_cast<std::size_t>(batch.offsets[static_cast<std::size_t>(item)]),
                                            static_cast<std::size_t>(batch.length(item))));
    return one;
  };
  const Tensor together = run();
  const TokenBatch& rows = config().decoder ? targets : sources;
  for (std::int64_t item = 0; item < rows.items(); ++item) {
    Tensor alone;
    if (!config().decoder) {
      alone = model.logits(model.encode(single(sources, item)).rows);
    } else if (!config().encoder) {
      alone = model.logits(model.decode(single(targets, item), nullptr).rows);
    } else {
      const States memory = model.encode(single(sources, item));
      alone = model.logits(model.decode(single(targets, item), &memory).rows);
    }
    expect_equal_bits(alone, together.row_range(rows.offsets[static_cast<std::size_t>(item)], rows.length(item)));
  }
}

TEST_P(Family, VisitsExactlyItsSites) {
  class Visits : public Probe {
   public:
    bool wants(const Site& site) const override {
      asked.insert(site);
      return true;
    }
    void visit(const Visit& visit, Tensor& value) override {
      visited.insert(visit.site);
      EXPECT_TRUE(value.defined());
    }
    mutable std::set<Site> asked;
    std::set<Site> visited;
  };
  Visits visits;
  RunOptions options;
  options.probe = &visits;
  const Tensor probed = run(options);
  std::set<Site> expected;
  for (const Site& site : model.sites()) expected.insert(site);
  for (const Site& site : expected) EXPECT_TRUE(visits.visited.contains(site)) << name_of(site) << " was never visited";
  for (const Site& site : visits.visited) EXPECT_TRUE(expected.contains(site)) << name_of(site) << " is not listed";
  // Looking takes the heads off the fused path, so only to rounding.
  const Tensor plain = run();
  for (std::int64_t row = 0; row < plain.rows(); ++row)
    for (std::int64_t column = 0; column < plain.width(); ++column)
      ASSERT_NEAR(probed.at(row, column), plain.at(row, column), 2e-4);
}

// Deviations of norms: read without leaving a trace, replaced as the textbook would, and the norm linear from then on.
class Deviations : public Probe {
 public:
  explicit Deviations(bool replaces) : replaces_(replaces) {}
  bool wants(const Site& site) const override {
    return site.point == Point::deviation || site.point == Point::final_deviation ||
           site.point == Point::embedding_deviation;
  }
  void visit(const Visit& visit, Tensor& value) override {
    read[name_of(visit.site)] = value.clone();
    if (!replaces_) return;
    for (std::int64_t row = 0; row < value.rows(); ++row)
      value.row(row)[0] = changed(static_cast<double>(value.at(row, 0)), row);
  }
  template <typename Number>
  static Number changed(Number own, std::int64_t row) {
    return own * static_cast<Number>(row % 2 == 0 ? 0.75 : 1.5);
  }
  static float changed(double own, std::int64_t row) { return static_cast<float>(changed<double>(own, row)); }

  std::map<std::string, Tensor> read;

 private:
  bool replaces_;
};

TEST_P(Family, NormsDivideByTheDeviationsAProbeReadsOrReplaces) {
  Deviations reader(false), writer(true);
  RunOptions options;
  options.probe = &reader;
  expect_equal_bits(run(options), run());
  reference::Transformer textbook(model);
  std::map<std::string, std::map<std::size_t, double>> own;
  textbook.deviation = [&](const std::string& site, std::size_t row, double value) { return own[site][row] = value; };
  run_reference(textbook);
  EXPECT_EQ(own.size(), reader.read.size());
  for (const auto& [site, rows] : own) {
    ASSERT_TRUE(reader.read.contains(site)) << site;
    for (const auto& [row, value] : rows)
      EXPECT_NEAR(reader.read.at(site).at(static_cast<std::int64_t>(row), 0), value, 1e-5 * std::max(1.0, value))
          << site;
  }
  options.probe = &writer;
  textbook.deviation = [&](const std::string&, std::size_t row, double value) {
    return Deviations::changed<double>(value, static_cast<std::int64_t>(row));
  };
  expect_close(run(options), run_reference(textbook), 2e-5);
}

TEST_P(Family, TellsAProbeWhoseRowsItVisits) {
  // Reads every row by item and position, in one pass and step by step.
  class Rows : public Probe {
   public:
    bool wants(const Site& site) const override { return site.point != Point::scores && site.point != Point::weights; }
    void visit(const Visit& visit, Tensor& value) override {
      for (std::int64_t item = 0; item < visit.items(); ++item)
        for (std::int64_t row = visit.offsets[static_cast<std::size_t>(item)];
             row < visit.offsets[static_cast<std::size_t>(item) + 1]; ++row) {
          std::vector<float>& read =
              rows[{visit.site, visit.number(item),
                    visit.first_position(item) + row - visit.offsets[static_cast<std::size_t>(item)]}];
          EXPECT_TRUE(read.empty()) << name_of(visit.site) << " is read twice";
          read.assign(value.row(row), value.row(row) + value.width());
        }
    }
    std::map<std::tuple<Site, std::int64_t, std::int64_t>, std::vector<float>> rows;
  };
  if (!config().decoder) return;
  const TokenBatch targets = target();
  Rows whole, steps;
  RunOptions options;
  options.probe = &whole;
  States memory;
  if (config().encoder) memory = model.encode(source());
  model.logits(model.decode(targets, config().encoder ? &memory : nullptr, options), options);
  // Items in reverse order, under their old numbers.
  options.probe = &steps;
  std::vector<std::int64_t> numbers{2, 1, 0};
  std::shared_ptr<const CrossMemory> shared;
  if (config().encoder) {
    TokenBatch turned;
    const TokenBatch sources = source();
    for (const std::int64_t item : numbers)
      turned.append(std::span(sources.ids)
                        .subspan(static_cast<std::size_t>(sources.offsets[static_cast<std::size_t>(item)]),
                                 static_cast<std::size_t>(sources.length(item))));
    options.item_numbers = numbers;
    shared = model.share_memory(model.encode(turned), options);
  }
  std::vector<KvCache> caches;
  for (std::int64_t item = 0; item < 3; ++item)
    caches.push_back(shared ? KvCache(model, shared, item) : KvCache(model));
  for (std::int64_t step = 0;; ++step) {
    TokenBatch batch;
    std::vector<KvCache*> active;
    std::vector<std::int64_t> active_numbers, first;
    for (std::size_t i = 0; i < caches.size(); ++i) {
      if (step >= targets.length(numbers[i])) continue;
      batch.append(
          std::span(targets.ids)
              .subspan(static_cast<std::size_t>(targets.offsets[static_cast<std::size_t>(numbers[i])] + step), 1));
      active.push_back(&caches[i]);
      active_numbers.push_back(numbers[i]);
      first.push_back(step);
    }
    if (active.empty()) break;
    options.item_numbers = active_numbers;
    model.logits(model.decode_cached(batch, active, options), options, first);
  }
  EXPECT_EQ(whole.rows.size(), steps.rows.size());
  for (const auto& [place, row] : whole.rows) {
    ASSERT_TRUE(steps.rows.contains(place)) << name_of(std::get<0>(place));
    const std::vector<float>& other = steps.rows.at(place);
    for (std::size_t i = 0; i < row.size(); ++i)
      ASSERT_NEAR(row[i], other[i], 1e-4 * std::max(1.0f, std::fabs(row[i]))) << name_of(std::get<0>(place));
  }
  const std::vector<std::int64_t> too_few{0};
  const States states = model.decode(targets, config().encoder ? &memory : nullptr);
  options.item_numbers = too_few;
  EXPECT_THROW(model.decode(targets, config().encoder ? &memory : nullptr, options), Error);
  if (config().encoder) {
    EXPECT_THROW(model.encode(source(), options), Error);
    EXPECT_THROW(model.share_memory(memory, options), Error);
  }
  EXPECT_THROW(model.logits(states, options), Error);
  EXPECT_THROW(model.logits(states, {}, too_few), Error);
  EXPECT_THROW(model.logits(States{states.rows, {0, 1}}), Error);
}

TEST_P(Family, DecodesStepByStepAsInOnePass) {
  if (!config().decoder) return;
  const TokenBatch targets = target();
  std::shared_ptr<const CrossMemory> shared;
  if (config().encoder) shared = model.share_memory(model.encode(source()));
  const Tensor whole = run();
  std::vector<KvCache> caches;
  for (std::int64_t item = 0; item < targets.items(); ++item)
    caches.push_back(shared ? KvCache(model, shared, item) : KvCache(model));
  // Portions of one, two and more tokens, items dropping out when they end.
  std::vector<std::int64_t> done(caches.size(), 0);
  for (std::int64_t portion = 1;; portion = portion % 3 + 1) {
    TokenBatch step;
    std::vector<KvCache*> active;
    std::vector<std::size_t> items;
    for (std::size_t item = 0; item < caches.size(); ++item) {
      const std::int64_t left = targets.length(static_cast<std::int64_t>(item)) - done[item];
      if (left == 0) continue;
      const std::int64_t count = std::min(left, portion);
      step.append(
          std::span(targets.ids)
              .subspan(static_cast<std::size_t>(targets.offsets[item] + done[item]), static_cast<std::size_t>(count)));
      active.push_back(&caches[item]);
      items.push_back(item);
    }
    if (active.empty()) break;
    const Tensor logits = model.logits(model.decode_cached(step, active).rows);
    for (std::size_t i = 0; i < items.size(); ++i)
      for (std::int64_t row = 0; row < step.length(static_cast<std::int64_t>(i)); ++row, ++done[items[i]])
        for (std::int64_t column = 0; column < logits.width(); ++column)
          ASSERT_NEAR(logits.at(step.offsets[i] + row, column),
                      whole.at(targets.offsets[items[i]] + done[items[i]], column), 1e-4);
  }
  for (std::size_t item = 0; item < caches.size(); ++item)
    EXPECT_EQ(caches[item].length(), targets.length(static_cast<std::int64_t>(item)));
}

TEST_P(Family, CacheForksAndTruncationsAreIndependent) {
  if (!config().decoder) return;
  std::shared_ptr<const CrossMemory> shared;
  if (config().encoder) shared = model.share_memory(model.encode(source()));
  const auto step = [&](KvCache& cache, std::vector<std::int32_t> ids) {
    TokenBatch batch;
    batch.append(ids);
    KvCache* one[] = {&cache};
    return model.logits(model.decode_cached(batch, one).rows).to_vector();
  };
  KvCache first = shared ? KvCache(model, shared, 0) : KvCache(model);
  step(first, {1, 2, 3});
  KvCache fork = first;
  const auto a = step(first, {4}), b = step(fork, {5});
  EXPECT_NE(a, b);
  fork.truncate(3);
  EXPECT_EQ(step(fork, {4}), a);
  first.truncate(3);
  EXPECT_EQ(step(first, {5}), b);
  EXPECT_THROW(first.truncate(9), Error);
}

TEST_P(Family, GradientOfTheLossAgreesWithCentralDifferences) {
  if (!config().decoder) return;
  const TokenBatch targets = target();
  std::vector<std::int32_t> labels;
  for (const std::int32_t id : targets.ids)
    labels.push_back(static_cast<std::int32_t>((id * 7 + 3) % config().decoder->vocabulary));
  Tape tape;
  for (Parameter& parameter : model.parameters()) tape.watch(parameter.value);
  {
    GradientScope scope(tape);
    States memory;
    if (config().encoder) memory = model.encode(source());
    const States states = model.decode(targets, config().encoder ? &memory : nullptr);
    const LossResult loss = model.loss(states.rows, labels, 0.1f);
    tape.backward(loss.total);
  }
  reference::Transformer textbook(model);
  Random random(5);
  for (const Parameter& parameter : model.parameters()) {
    const std::vector<float> gradient = tape.gradient(parameter.value).to_vector();
    double scale = 1e-3;
    for (const float value : gradient) scale = std::max(scale, std::fabs(static_cast<double>(value)));
    for (int sample = 0; sample < 2; ++sample) {
      const std::size_t index = random.below(gradient.size());
      double& value = textbook.values(parameter.name)[index];
      const double before = value, step = 1e-5;
      const auto loss = [&] { return textbook.loss(run_reference(textbook), labels, 0.1); };
      value = before + step;
      const double up = loss();
      value = before - step;
      const double down = loss();
      value = before;
      EXPECT_NEAR(gradient[index], (up - down) / (2 * step), 2e-4 * scale + 1e-5)
          << parameter.name << "[" << index << "]";
    }
  }
}

INSTANTIATE_TEST_SUITE_P(All, Family, testing::ValuesIn(all_families()), [](const auto& family) {
  std::string name = family.param.name.substr(0, family.param.name.find_first_of(":,"));
  std::replace_if(
      name.begin(), name.end(), [](char c) { return !std::isalnum(static_cast<unsigned char>(c)); }, '_');
  return name;
});

// ---- Features, class token, classifier -----------------------------------------------------------------------------
TEST(Features, ClassTokenAndClassifierAgreeWithTheTextbook) {
  TransformerConfig config = reference::small_config();
  config.encoder = StackConfig{.layers = 2, .input_width = 5, .class_token = true};
  config.positions = PositionKind::learned;
  config.activation = Activation::gelu;
  config.classes = 3;
  config.pooling = Pooling::class_token;
  Model model(config, 3);
  reference::randomise(model, 4);
  const std::vector<std::int64_t> offsets{0, 4, 5, 12};
  Tensor features = Tensor::empty({12, 5});
  Random random(8);
  Matrix rows(12, std::vector<double>(5));
  for (std::int64_t row = 0; row < 12; ++row)
    for (std::int64_t column = 0; column < 5; ++column)
      rows[static_cast<std::size_t>(row)][static_cast<std::size_t>(column)] = features.row(row)[column] =
          static_cast<float>(random.normal());
  const States states = model.encode_features(features, offsets);
  EXPECT_EQ(states.offsets, (std::vector<std::int64_t>{0, 5, 7, 15}));
  reference::Transformer textbook(model);
  std::vector<std::int64_t> starts;
  const Matrix expected = textbook.encode_features(rows, offsets, &starts);
  EXPECT_EQ(starts, states.offsets);
  expect_close(states.rows, expected, 1e-5);
  const Tensor logits = model.classify(states);
  const auto& weight = textbook.values("classifier.weight");
  const auto& bias = textbook.values("classifier.bias");
  for (std::int64_t item = 0; item < 3; ++item)
    for (std::int64_t label = 0; label < 3; ++label) {
      double sum = bias[static_cast<std::size_t>(label)];
      for (std::int64_t i = 0; i < config.width; ++i)
        sum += weight[static_cast<std::size_t>(label * config.width + i)] *
               expected[static_cast<std::size_t>(states.offsets[static_cast<std::size_t>(item)])]
                       [static_cast<std::size_t>(i)];
      EXPECT_NEAR(logits.at(item, label), sum, 1e-4);
    }
}

// ---- Seeing through ----------------------------------------------------------------------------------------------
TEST(Probes, HeadPartsAndBiasMakeTheAttentionOutput) {
  TransformerConfig config = reference::small_config();
  config.decoder = StackConfig{.layers = 1, .vocabulary = 19, .causal = true};
  Model model(config, 3);
  reference::randomise(model, 4);
  const TokenBatch tokens = reference::random_tokens({6, 3}, 19, 5);
  const Site projected{StackKind::decoder, 0, Part::self, Point::projected};
  const auto output_with = [&](std::vector<float> factors) {
    HeadMask mask;
    mask.set(StackKind::decoder, 0, Part::self, std::move(factors));
    Recorder recorder({projected});
    ProbeList probes({&mask, &recorder});
    RunOptions options;
    options.probe = &probes;
    model.decode(tokens, nullptr, options);
    return recorder.value(projected).to_vector();
  };
  const std::vector<float> whole = output_with({1, 1, 1, 1}), none = output_with({0, 0, 0, 0});
  const std::vector<float> bias = model.parameter("decoder.0.self.output.bias").value.to_vector();
  for (std::size_t i = 0; i < none.size(); ++i)
    EXPECT_EQ(none[i], bias[i % bias.size()]) << "all heads cut must leave the bias";
  std::vector<double> sum(none.begin(), none.end());
  for (std::size_t head = 0; head < 4; ++head) {
    std::vector<float> factors(4, 0);
    factors[head] = 1;
    const std::vector<float> part = output_with(factors);
    for (std::size_t i = 0; i < sum.size(); ++i) sum[i] += part[i] - none[i];
  }
  for (std::size_t i = 0; i < sum.size(); ++i) EXPECT_NEAR(sum[i], whole[i], 1e-5);
}

TEST(Probes, AForbiddenScoreActsAsTheTextbookWithoutThatEdge) {
  TransformerConfig config = reference::small_config();
  config.decoder = StackConfig{.layers = 1, .vocabulary = 19, .causal = true};
  Model model(config, 3);
  reference::randomise(model, 4);
  const TokenBatch tokens = reference::random_tokens({6, 5}, 19, 5);
  class CountingEditor : public ScoreEditor {
   public:
    void scores_edited(StackKind, int, Part, std::span<const std::int64_t> given) override {
      counts.assign(given.begin(), given.end());
    }
    std::vector<std::int64_t> counts;
  } editor;
  editor.add(StackKind::decoder, 0, Part::self, {.kind = ScoreEdit::Kind::forbid, .item = 1, .query = 3, .key = 2});
  RunOptions options;
  options.probe = &editor;
  reference::Transformer textbook(model);
  textbook.visible = [](std::int64_t item, std::int64_t query, std::int64_t key) {
    return key <= query && !(item == 1 && query == 3 && key == 2);
  };
  expect_close(model.decode(tokens, nullptr, options).rows, textbook.decode(tokens, nullptr, {}), 1e-5);
  EXPECT_EQ(editor.counts, std::vector<std::int64_t>{config.heads});
  // The same items under other numbers; one number may be several items, and one that is not there is left alone.
  editor.add(StackKind::decoder, 0, Part::self, {.kind = ScoreEdit::Kind::forbid, .item = 7, .query = 4, .key = 0});
  editor.add(StackKind::decoder, 0, Part::self, {.kind = ScoreEdit::Kind::add, .item = 9, .query = 4, .value = 1});
  const std::vector<std::int64_t> numbers{7, 1}, twice{7, 7};
  options.item_numbers = numbers;
  textbook.visible = [](std::int64_t item, std::int64_t query, std::int64_t key) {
    return key <= query && !(item == 1 && query == 3 && key == 2) && !(item == 0 && query == 4 && key == 0);
  };
  expect_close(model.decode(tokens, nullptr, options).rows, textbook.decode(tokens, nullptr, {}), 1e-5);
  EXPECT_EQ(editor.counts, (std::vector<std::int64_t>{config.heads, config.heads, 0}));
  options.item_numbers = twice;
  model.decode(tokens, nullptr, options);
  EXPECT_EQ(editor.counts, (std::vector<std::int64_t>{0, 2 * config.heads, 0}));
}

TEST(Probes, AReplacedValueIsWhatTheRunGoesOnWith) {
  TransformerConfig config = reference::small_config();
  config.decoder = StackConfig{.layers = 2, .vocabulary = 19, .causal = true};
  Model model(config, 3);
  reference::randomise(model, 4);
  const TokenBatch first = reference::random_tokens({6}, 19, 5), second = reference::random_tokens({6}, 19, 6);
  const Site site{StackKind::decoder, 0, Part::block, Point::output};
  Recorder recorder({site});
  RunOptions recording;
  recording.probe = &recorder;
  const Tensor expected = model.decode(second, nullptr, recording).rows;
  class Patch : public Probe {
   public:
    Patch(Site place, Tensor with) : place_(place), with_(std::move(with)) {}
    bool wants(const Site& asked) const override { return asked == place_; }
    void visit(const Visit&, Tensor& value) override { value = with_; }

   private:
    Site place_;
    Tensor with_;
  } patch(site, recorder.value(site));
  RunOptions patching;
  patching.probe = &patch;
  expect_equal_bits(model.decode(first, nullptr, patching).rows, expected);
}

// ---- Where information flows ---------------------------------------------------------------------------------------
TEST(Flow, AttentionMovesInformationForwardOnlyAndTheFeedForwardNotAtAll) {
  TransformerConfig config = reference::small_config();
  config.decoder = StackConfig{.layers = 2, .vocabulary = 19, .causal = true};
  const Model model(config, 3);
  TokenBatch tokens = reference::random_tokens({8}, 19, 5);
  const Tensor before = model.decode(tokens, nullptr).rows;
  tokens.ids[4] = (tokens.ids[4] + 1) % 19;
  const Tensor after = model.decode(tokens, nullptr).rows;
  for (std::int64_t row = 0; row < 4; ++row) expect_equal_bits(before.row_range(row, 1), after.row_range(row, 1));
  for (std::int64_t row = 4; row < 8; ++row)
    EXPECT_NE(before.row_range(row, 1).to_vector(), after.row_range(row, 1).to_vector());
  // A mask that lets every token see itself only: the blocks act within a token.
  const Mask alone{WindowRule{0, 0}};
  RunOptions options;
  options.self_mask = &alone;
  const Tensor isolated = model.decode(tokens, nullptr, options).rows;
  tokens.ids[4] = (tokens.ids[4] + 1) % 19;
  const Tensor changed = model.decode(tokens, nullptr, options).rows;
  for (std::int64_t row = 0; row < 8; ++row) {
    if (row == 4) EXPECT_NE(isolated.row_range(row, 1).to_vector(), changed.row_range(row, 1).to_vector());
    else expect_equal_bits(isolated.row_range(row, 1), changed.row_range(row, 1));
  }
}

TEST(Flow, WithoutPositionsAnEncoderFollowsAPermutationOfItsTokens) {
  TransformerConfig config = reference::small_config();
  config.encoder = StackConfig{.layers = 2, .vocabulary = 19};
  config.positions = PositionKind::none;
  const Model model(config, 3);
  const TokenBatch tokens = reference::random_tokens({7}, 19, 5);
  TokenBatch turned = tokens;
  std::reverse(turned.ids.begin(), turned.ids.end());
  const Tensor a = model.encode(tokens).rows, b = model.encode(turned).rows;
  for (std::int64_t row = 0; row < 7; ++row)
    for (std::int64_t column = 0; column < config.width; ++column)
      EXPECT_NEAR(a.at(row, column), b.at(6 - row, column), 1e-5);
}

TEST(Flow, RotaryScoresDependOnDifferencesOfPositionsOnly) {
  TransformerConfig config = reference::small_config();
  config.decoder = StackConfig{.layers = 1, .vocabulary = 19, .causal = true};
  config.positions = PositionKind::rotary;
  config.window = 3;  // the first tokens are out of sight of the last, so only their places could matter
  const Model model(config, 3);
  TokenBatch near, far;
  near.append(std::vector<std::int32_t>{3, 1, 4, 1, 5});
  far.append(std::vector<std::int32_t>{2, 2, 2, 2, 2, 2, 2, 3, 1, 4, 1, 5});
  const Site site{StackKind::decoder, 0, Part::self, Point::scores};
  Recorder recorder({site}), recorder_far({site});
  RunOptions options;
  options.probe = &recorder;
  model.decode(near, nullptr, options);
  options.probe = &recorder_far;
  model.decode(far, nullptr, options);
  const Tensor a = recorder.value(site, 0), b = recorder_far.value(site, 0);
  for (std::int64_t head = 0; head < config.heads; ++head)
    for (std::int64_t query = 2; query < 5; ++query)
      for (std::int64_t key = query - 2; key <= query; ++key)
        EXPECT_NEAR(a.at(head * 5 + query, key), b.at(head * 12 + query + 7, key + 7), 1e-5);
}

TEST(Dropout, IsTheSameForASeedAndDiffersForAnother) {
  TransformerConfig config = reference::small_config();
  config.decoder = StackConfig{.layers = 1, .vocabulary = 19, .causal = true};
  config.dropout = config.attention_dropout = config.inner_dropout = 0.3;
  const Model model(config, 3);
  const TokenBatch tokens = reference::random_tokens({8}, 19, 5);
  const auto run = [&](bool dropped, std::uint64_t seed) {
    RunOptions options;
    options.dropout = dropped;
    options.dropout_seed = seed;
    return model.decode(tokens, nullptr, options).rows.to_vector();
  };
  EXPECT_EQ(run(true, 1), run(true, 1));
  EXPECT_NE(run(true, 1), run(true, 2));
  EXPECT_NE(run(true, 1), run(false, 1));
  EXPECT_EQ(run(false, 1), run(false, 2));
}

// ---- What is refused ---------------------------------------------------------------------------------------------
void expect_error(const std::function<void()>& act, const std::vector<std::string>& parts) {
  try {
    act();
    ADD_FAILURE() << "nothing was thrown";
  } catch (const Error& error) {
    for (const std::string& part : parts)
      EXPECT_NE(std::string(error.what()).find(part), std::string::npos) << error.what();
  }
}

TEST(Refusals, NameWhatIsWrong) {
  TransformerConfig config = reference::small_config();
  config.decoder = StackConfig{.layers = 1, .vocabulary = 19, .causal = true};
  const Model model(config, 3);
  expect_error([&] { model.decode(reference::random_tokens({41}, 19, 1), nullptr); }, {"41 tokens", "40 positions"});
  TokenBatch outside;
  outside.append(std::vector<std::int32_t>{3, 19});
  expect_error([&] { model.decode(outside, nullptr); }, {"token id 19", "row 1", "0 to 18"});
  TokenBatch empty;
  empty.append(std::vector<std::int32_t>{});
  expect_error([&] { model.decode(empty, nullptr); }, {"item 0 is empty"});
  expect_error([&] { model.encode(outside); }, {"no encoder"});
  expect_error([&] { model.classify(States{Tensor::zeros({1, 16}), {0, 1}}); }, {"no classifier"});
  KvCache cache(model);
  KvCache* caches[] = {&cache};
  expect_error([&] { model.decode_cached(reference::random_tokens({1, 1}, 19, 1), caches); }, {"2 items", "1 caches"});
  model.decode_cached(reference::random_tokens({38}, 19, 1), caches);
  expect_error([&] { model.decode_cached(reference::random_tokens({3}, 19, 1), caches); },
               {"41 tokens", "40 positions"});
  EXPECT_EQ(cache.length(), 38);
  expect_error([&] { Model(config, 3).parameter("decoder.0.self.quer_key_value.weight"); },
               {"did you mean 'decoder.0.self.query_key_value.weight'"});
  expect_error([&] { Model(config, 3).parameter("x"); }, {"no parameter", "'decoder.embedding.weight'"});
}

TEST(Refusals, CachesThatAreNotOfThisModel) {
  TransformerConfig config = reference::small_config();
  config.decoder = StackConfig{.layers = 2, .vocabulary = 19, .causal = true};
  const Model model(config, 3);
  const auto run = [](const Model& with, std::vector<KvCache*> caches) {
    with.decode_cached(reference::random_tokens(std::vector<std::int64_t>(caches.size(), 1), 19, 1), caches);
  };
  KvCache cache(model);
  expect_error([&] { run(model, {&cache, nullptr}); }, {"item 1 is null"});
  expect_error([&] { run(model, {&cache, &cache}); }, {"items 0 and 1 have the same cache"});
  TransformerConfig other = config;
  other.decoder->layers = 3;
  expect_error([&] { run(Model(other, 3), {&cache}); }, {"item 0", "has 2 layers and the model 3"});
  other = config;
  other.key_heads = 2;
  expect_error([&] { run(Model(other, 3), {&cache}); }, {"item 0", "keys of 16 numbers", "have 8"});

  config.encoder = StackConfig{.layers = 1, .vocabulary = 19};
  const Model translator(config, 3);
  const auto memory = translator.share_memory(translator.encode(reference::random_tokens({4, 2}, 19, 1)));
  KvCache with_memory(translator, memory, 1), without(translator);
  expect_error([&] { run(model, {&with_memory}); }, {"encoder's memory", "no encoder"});
  expect_error([&] { run(translator, {&with_memory, &without}); }, {"item 1", "no encoder memory", "share_memory()"});
  expect_error([&] { KvCache(translator, nullptr, 0); }, {"memory is null", "share_memory()"});
  expect_error([&] { KvCache(translator, memory, 2); }, {"item 2 of a memory of 2 items"});
  other = config;
  other.decoder->layers = 1;
  const Model shallow(other, 3);
  expect_error(
      [&] {
        run(translator, {std::make_unique<KvCache>(
                             translator, shallow.share_memory(shallow.encode(reference::random_tokens({4}, 19, 1))), 0)
                             .get()});
      },
      {"encoder memory of 1 layers and the model 2"});
  other = config;
  other.key_heads = 1;
  const Model narrow(other, 3);
  expect_error(
      [&] {
        run(translator, {std::make_unique<KvCache>(
                             translator, narrow.share_memory(narrow.encode(reference::random_tokens({4}, 19, 1))), 0)
                             .get()});
      },
      {"encoder memory of keys of 4 numbers", "have 16"});
  run(translator, {&with_memory});
  EXPECT_EQ(with_memory.length(), 1);
  EXPECT_EQ(without.length(), 0);
  States broken = translator.encode(reference::random_tokens({4, 2}, 19, 1));
  broken.offsets.back() = 7;
  expect_error([&] { translator.share_memory(broken); }, {"0 to the number of rows, 6"});
}

TEST(Sites, AnEncoderOfFeaturesWithoutClassesHasNoLogits) {
  TransformerConfig config = reference::small_config();
  config.encoder = StackConfig{.layers = 1, .input_width = 6};
  for (const Site& site : Model(config, 3).sites()) EXPECT_NE(site.point, Point::logits);
  config.classes = 3;
  config.pooling = Pooling::mean;
  EXPECT_EQ(Model(config, 3).sites().back().point, Point::logits);
}

}  // namespace
}  // namespace attend
