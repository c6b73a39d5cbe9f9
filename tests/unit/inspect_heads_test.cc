#include "attend/heads.h"

#include <gtest/gtest.h>

#include <cmath>
#include <filesystem>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <tuple>
#include <vector>

#include "attend/error.h"
#include "attend/threads.h"
#include "core/memory.h"
#include "core/random.h"
#include "inspect_helpers.h"
#include "reference/planted_models.h"
#include "reference/random_models.h"

namespace attend {
namespace {

using reference::PlantedHead;

HeadPlace id_of(const PlantedHead& head) { return {head.stack, head.layer, head.part, head.head}; }

// The head is the first for a behaviour, by at least `margin` before the second.
void expect_first(const HeadReport& report, Behaviour behaviour, const PlantedHead& head, double margin) {
  const std::vector<RankedHead> ranked = rank_heads(report, behaviour);
  ASSERT_GE(ranked.size(), 2u);
  EXPECT_EQ(name_of(ranked[0].head), name_of(id_of(head))) << name_of(behaviour);
  EXPECT_GE(std::abs(ranked[0].value - ranked[1].value), margin)
      << name_of(behaviour) << ": " << ranked[0].value << " and then " << name_of(ranked[1].head) << " "
      << ranked[1].value;
}

std::vector<HeadItem> random_items(const TransformerConfig& config, std::int64_t count, std::uint64_t seed,
                                   std::int64_t longest = 12) {
  Random random(seed);
  std::vector<HeadItem> items(static_cast<std::size_t>(count));
  const auto draw = [&](std::int64_t vocabulary) {
    std::vector<std::int32_t> ids;
    const auto length = static_cast<std::int64_t>(1 + random.below(static_cast<std::uint64_t>(longest)));
    // Few distinct tokens, so that they come again.
    for (std::int64_t i = 0; i < length; ++i)
      ids.push_back(
          static_cast<std::int32_t>(random.below(static_cast<std::uint64_t>(std::min<std::int64_t>(vocabulary, 6)))));
    return ids;
  };
  for (HeadItem& item : items) {
    if (config.encoder) item.source = draw(config.encoder->vocabulary);
    if (config.decoder) item.target = draw(config.decoder->vocabulary);
  }
  return items;
}

// ---- Definitions, against sums over whole matrices ------------------------------------------------------------------

struct Whole {  // all rows of all items that a behaviour speaks of
  std::map<Behaviour, double> sums;
  std::map<Behaviour, std::int64_t> counts;
  void add(Behaviour behaviour, double value) {
    sums[behaviour] += value;
    counts[behaviour] += 1;
  }
  double mean(Behaviour behaviour) const {
    return counts.contains(behaviour) ? sums.at(behaviour) / static_cast<double>(counts.at(behaviour)) : std::nan("");
  }
};

// Scores of all heads from whole matrices, one item at a time, in plain loops over every query and key.
std::map<std::string, Whole> textbook(const Model& model, const std::vector<HeadItem>& items) {
  const TransformerConfig& config = model.config();
  std::map<std::string, Whole> all;
  for (const HeadItem& item : items) {
    std::vector<Site> sites;
    for (const Site& site : model.sites())
      if (site.point == Point::weights) sites.push_back(site);
    Recorder recorder(sites);
    RunOptions run;
    run.probe = &recorder;
    TokenBatch source, target;
    States memory;
    if (config.encoder) {
      source.append(item.source);
      memory = model.encode(source, run);
    }
    if (config.decoder) {
      target.append(item.target);
      model.decode(target, config.encoder ? &memory : nullptr, run);
    }
    for (const Site& site : sites) {
      const bool cross = site.part == Part::cross, causal = site.stack == StackKind::decoder;
      const auto& query_ids = site.stack == StackKind::encoder ? item.source : item.target;
      const auto& key_ids = site.stack == StackKind::encoder || cross ? item.source : item.target;
      const auto n = static_cast<std::int64_t>(query_ids.size()), m = static_cast<std::int64_t>(key_ids.size());
      const Tensor& weights = recorder.value(site, 0);
      for (int head = 0; head < config.heads; ++head) {
        Whole& whole = all[name_of(HeadPlace{site.stack, site.layer, site.part, head})];
        const auto w = [&](std::int64_t q, std::int64_t k) { return static_cast<double>(weights.at(head * n + q, k)); };
        const auto visible = [&](std::int64_t q, std::int64_t k) {
          return k >= 0 && k < m &&
                 (cross || ((!causal || k <= q) && (config.window == 0 || std::abs(q - k) < config.window)));
        };
        for (std::int64_t q = 0; q < n; ++q) {
          std::int64_t keys = 0;
          for (std::int64_t k = 0; k < m; ++k) keys += visible(q, k);
          if (keys < 2) continue;
          double entropy = 0, largest = 0, distance = 0, square = 0, offset = 0, diagonal = 0, same = 0, duplicate = 0,
                 induction = 0;
          bool any_same = false, any_duplicate = false, any_induction = false;
          for (std::int64_t k = 0; k < m; ++k) {
            if (!visible(q, k)) continue;
            const auto d = static_cast<double>(k - q);
            if (w(q, k) > 0) entropy -= w(q, k) * std::log(w(q, k));
            largest = std::max(largest, w(q, k));
            distance += w(q, k) * std::abs(d);
            square += w(q, k) * d * d;
            offset += w(q, k) * d;
            const double off = (static_cast<double>(q) + 0.5) / static_cast<double>(n) -
                               (static_cast<double>(k) + 0.5) / static_cast<double>(m);
            diagonal += w(q, k) * std::exp(-off * off / 0.08);
            const bool equal = key_ids[static_cast<std::size_t>(k)] == query_ids[static_cast<std::size_t>(q)];
            if (equal && (cross || k != q)) same += w(q, k), any_same = true;
            if (equal && !cross && k < q) duplicate += w(q, k), any_duplicate = true;
            if (!cross && k > 0 && k < q &&
                key_ids[static_cast<std::size_t>(k - 1)] == query_ids[static_cast<std::size_t>(q)])
              induction += w(q, k), any_induction = true;
          }
          whole.add(Behaviour::entropy, entropy);
          whole.add(Behaviour::normalised_entropy, entropy / std::log(static_cast<double>(keys)));
          whole.add(Behaviour::confidence, largest);
          if (visible(q, 0) && (cross || q > 0)) whole.add(Behaviour::first_token, w(q, 0));
          if (any_same && (!cross || config.shared_embeddings)) whole.add(Behaviour::same_token, same);
          if (cross) {
            whole.add(Behaviour::diagonal, diagonal);
            continue;
          }
          whole.add(Behaviour::self_token, w(q, q));
          if (visible(q, q - 1)) whole.add(Behaviour::previous_token, w(q, q - 1));
          if (visible(q, q + 1)) whole.add(Behaviour::next_token, w(q, q + 1));
          whole.add(Behaviour::distance, distance);
          whole.add(Behaviour::distance_deviation, square);
          whole.add(Behaviour::offset, offset);
          if (any_duplicate) whole.add(Behaviour::duplicate_token, duplicate);
          if (any_induction) whole.add(Behaviour::induction, induction);
        }
        for (std::int64_t k = 0; cross && m > 1 && k < m; ++k) {
          double read = 0;
          for (std::int64_t q = 0; q < n; ++q) read += w(q, k);
          whole.add(Behaviour::coverage, std::min(1.0, read));
        }
      }
    }
  }
  return all;
}

TEST(HeadFinder, EqualsSumsOverWholeMatrices) {
  for (const reference::NamedConfig& family : reference::all_families()) {
    SCOPED_TRACE(family.name);
    Model model(family.config, 5);
    reference::randomise(model, 6);
    const std::vector<HeadItem> items = random_items(family.config, 40, 7);
    const HeadReport report = find_heads(model, items_from(items), {.copying = false});
    const std::map<std::string, Whole> exact = textbook(model, items);
    ASSERT_EQ(report.heads.size(), exact.size());
    for (const HeadScores& one : report.heads) {
      const Whole& whole = exact.at(name_of(one.head));
      for (int i = 0; i < behaviour_count; ++i) {
        const auto behaviour = static_cast<Behaviour>(i);
        double expected = whole.mean(behaviour);
        if (behaviour == Behaviour::distance_deviation)
          expected = std::sqrt(expected - std::pow(whole.mean(Behaviour::offset), 2));
        if (std::isnan(expected)) {
          EXPECT_TRUE(std::isnan(one[behaviour]))
              << name_of(one.head) << " " << name_of(behaviour) << " " << one[behaviour];
        } else {
          EXPECT_NEAR(one[behaviour], expected, 1e-6) << name_of(one.head) << " " << name_of(behaviour);
        }
      }
    }
  }
}

void expect_same_bits(const HeadReport& a, const HeadReport& b) {
  EXPECT_EQ(a.corpus, b.corpus);
  EXPECT_EQ(a.sketches, b.sketches);
  ASSERT_EQ(a.heads.size(), b.heads.size());
  for (std::size_t i = 0; i < a.heads.size(); ++i)
    for (std::size_t j = 0; j < a.heads[i].values.size(); ++j) {
      const double x = a.heads[i].values[j], y = b.heads[i].values[j];
      EXPECT_TRUE((std::isnan(x) && std::isnan(y)) || x == y)
          << name_of(a.heads[i].head) << " " << name_of(static_cast<Behaviour>(j)) << " " << x << " " << y;
    }
}

TEST(HeadFinder, BitsDoNotDependOnThreadsOrBatches) {
  const reference::NamedConfig family = reference::all_families()[0];
  Model model(family.config, 5);
  reference::randomise(model, 6);
  const std::vector<HeadItem> items = random_items(family.config, 700, 8, 7);  // more than one window
  const int before = threads();
  set_threads(1);
  const HeadReport one = find_heads(model, items_from(items));
  set_threads(3);
  expect_same_bits(one, find_heads(model, items_from(items)));
  expect_same_bits(one, find_heads(model, items_from(items), {.batch_size = 1}));
  expect_same_bits(one, find_heads(model, items_from(items), {.batch_size = 600, .block_floats = 90}));
  set_threads(before);
}

TEST(HeadFinder, HoldsNoMatrixOfALongItem) {
  TransformerConfig config = reference::small_config();
  config.decoder = StackConfig{.layers = 2, .vocabulary = 19, .causal = true};
  config.max_positions = 4096;
  const Model model(config, 1);
  Random random(2);
  HeadItem item;
  for (int i = 0; i < 4096; ++i) item.target.push_back(static_cast<std::int32_t>(random.below(19)));
  reset_peak_memory();
  const std::int64_t before = memory_use().live_bytes;
  const HeadReport report = find_heads(model, items_from({item}), {.copying = false});
  // One matrix of one head would be 64 MB.
  EXPECT_LT(memory_use().peak_bytes - before, std::int64_t{16} << 20);
  EXPECT_NEAR(report.heads[0][Behaviour::normalised_entropy], 1, 0.1);  // fresh heads look nearly everywhere alike
}

// ---- Planted truth --------------------------------------------------------------------------------------------------

std::vector<HeadItem> decoder_items(std::int64_t vocabulary, std::int64_t period, std::int64_t length,
                                    std::int64_t count) {
  std::vector<HeadItem> items(static_cast<std::size_t>(count));
  for (std::size_t i = 0; i < items.size(); ++i)
    items[i].target = reference::repeated_tokens(vocabulary, period, length, i + 1);
  return items;
}

TEST(HeadFinder, RanksPlantedPreviousTokenAndInductionHeadsFirst) {
  const reference::InductionModel planted = reference::planted_induction();
  for (const bool drawn : {false, true}) {
    RepeatedOptions repeated;
    repeated.period = 15;
    repeated.repeats = 3;
    const HeadReport report = find_heads(
        planted.model,
        items_from(drawn ? repeated_items(planted.model, repeated) : decoder_items(planted.vocabulary, 10, 40, 20)));
    expect_first(report, Behaviour::previous_token, planted.previous, 0.8);
    expect_first(report, Behaviour::induction, planted.induction, 0.8);
    EXPECT_NEAR(report[id_of(planted.previous)][Behaviour::previous_token], 1, 1e-3);
    EXPECT_NEAR(report[id_of(planted.induction)][Behaviour::induction], 1, 1e-3);
    expect_first(report, Behaviour::self_token, planted.self, 0.3);
    expect_first(report, Behaviour::first_token, planted.first, 0.1);
    expect_first(report, Behaviour::duplicate_token, planted.same, 0.3);
    // Uniform weights: entropy ln(keys), so 1 when normalised.
    EXPECT_NEAR(report[id_of(planted.uniform)][Behaviour::normalised_entropy], 1, 1e-6);
    EXPECT_NEAR(report[id_of(planted.previous)][Behaviour::distance], 1, 1e-3);
    EXPECT_NEAR(report[id_of(planted.previous)][Behaviour::offset], -1, 1e-3);
    EXPECT_EQ(rank_heads_near(report, Behaviour::offset, -1)[0].head, id_of(planted.previous));
    EXPECT_NEAR(report[id_of(planted.previous)][Behaviour::distance_deviation], 0, 0.05);
    // The induction head alone carries tokens into their own logits.
    expect_first(report, Behaviour::copying, planted.induction, 0.3);
    EXPECT_NEAR(report[id_of(planted.induction)][Behaviour::copying], 1, 1e-9);
    EXPECT_NEAR(report[id_of(planted.induction)][Behaviour::copying_eigenvalues], 1, 1e-6);
  }
}

TEST(HeadFinder, TellsPlantedOffsetsApart) {
  const reference::OffsetsModel planted = reference::planted_offsets();
  std::vector<HeadItem> items = random_items(planted.model.config(), 30, 3, 30);
  const HeadReport report = find_heads(planted.model, items_from(items));
  expect_first(report, Behaviour::previous_token, planted.previous, 0.7);
  expect_first(report, Behaviour::next_token, planted.next, 0.7);
  expect_first(report, Behaviour::offset, planted.third, 0.3);
  // By nearness to a wanted one; and without a wish by size, either way.
  const std::vector<RankedHead> near = rank_heads_near(report, Behaviour::offset, -1);
  ASSERT_EQ(near.size(), rank_heads(report, Behaviour::offset).size());
  for (std::size_t i = 1; i < near.size(); ++i) EXPECT_LE(std::abs(near[i - 1].value + 1), std::abs(near[i].value + 1));
  EXPECT_EQ(rank_heads_near(report, Behaviour::offset, 1, 1).size(), 1u);
  HeadReport turned = report;
  for (HeadScores& head : turned.heads) head.values[static_cast<std::size_t>(Behaviour::offset)] *= -1;
  const std::vector<RankedHead> there = rank_heads(report, Behaviour::offset),
                                back = rank_heads(turned, Behaviour::offset);
  for (std::size_t i = 0; i < there.size(); ++i) {
    EXPECT_EQ(there[i].head, back[i].head);
    EXPECT_EQ(there[i].value, -back[i].value);
  }
}

// An alphabet of one punctuation mark, one letter and so on, to see which keys count as what.
TEST(HeadFinder, KnowsSeparatorsAndSpecialTokens) {
  const reference::OffsetsModel planted = reference::planted_offsets(12, 32);
  const auto tokenizer = train_character({}, ".abcdefg");  // ids 4.. in code point order: the full stop is 4
  ASSERT_EQ(tokenizer->size(), 12);
  ASSERT_EQ(tokenizer->id("."), 4);
  const std::vector<HeadItem> items{{{4, 5, 6}, {}, nullptr}, {{0, 5, 6, 7}, {}, nullptr}};
  const HeadReport report = find_heads(planted.model, items_from(items), {.source = tokenizer.get()});
  // The separator head looks at token 0, which is pad here; without one it looks at all alike.
  const HeadScores& scores = report[id_of(planted.separator)];
  EXPECT_NEAR(scores[Behaviour::special_token], 4.0 / 7, 1e-3);
  EXPECT_NEAR(scores[Behaviour::separator], (3 * 1.0 / 3) / 7, 1e-3);
  EXPECT_TRUE(std::isnan(find_heads(planted.model, items_from(items))[id_of(planted.separator)][Behaviour::separator]));
}

TEST(HeadFinder, SeparatorsCutIntoBytesCount) {
  TransformerConfig config = reference::small_config();
  config.encoder = StackConfig{.layers = 1, .vocabulary = 259};
  Model model(config);  // all zero: every head looks at all alike
  const auto tokenizer = byte_tokenizer();
  const HeadReport report = find_heads(model, items_from({{tokenizer->encode("a。b"), {}, nullptr}}),
                                       {.source = tokenizer.get(), .copying = false});
  EXPECT_NEAR(report.heads[0][Behaviour::separator], 3.0 / 5, 1e-6);
  EXPECT_NEAR(report.heads[0][Behaviour::special_token], 0, 1e-12);
}

// Items of the planted cross model: the target is the source again; words are tokens.
HeadItem copied_item(const std::vector<std::int32_t>& ids, bool mirrors) {
  HeadItem item;
  item.source = ids;
  item.target = {2};
  item.target.insert(item.target.end(), ids.begin(), ids.end() - 1);
  auto words = std::make_shared<ItemWords>();
  ReferenceAlignment reference;
  for (std::int64_t i = 0; i < static_cast<std::int64_t>(ids.size()); ++i) {
    words->source.push_back({i, i + 1, "w", TokenRole::text, i, i + 1});
    reference.sure.push_back({i, i});
  }
  reference.possible = reference.sure;
  words->target = words->source;
  words->reference = reference;
  words->mirrors = mirrors;
  item.words = words;
  return item;
}

TEST(HeadFinder, FindsThePlantedAlignmentHead) {
  const reference::CrossModel planted = reference::planted_cross();
  std::vector<HeadItem> items;
  Random random(4);
  for (int i = 0; i < 20; ++i) {
    std::vector<std::int32_t> ids;
    for (std::uint64_t length = 4 + random.below(10); ids.size() < length;)
      ids.push_back(static_cast<std::int32_t>(4 + random.below(8)));
    items.push_back(copied_item(ids, false));
    items.push_back(copied_item(ids, true));
  }
  const HeadReport report = find_heads(planted.model, items_from(items));
  expect_first(report, Behaviour::diagonal, planted.diagonal, 0.2);
  expect_first(report, Behaviour::alignment_error, planted.diagonal, 0.5);
  expect_first(report, Behaviour::agreement, planted.diagonal, 0.5);
  const HeadScores& scores = report[id_of(planted.diagonal)];
  EXPECT_DOUBLE_EQ(scores[Behaviour::alignment_error], 0);
  EXPECT_DOUBLE_EQ(scores[Behaviour::agreement], 1);
  EXPECT_GT(scores[Behaviour::alignment_error_after], 0.5);  // the row that reads a word looks one further
  EXPECT_NEAR(scores[Behaviour::coverage], 1, 1e-3);
  EXPECT_LT(report[id_of(planted.silent)][Behaviour::coverage], 0.9);
  const AlignmentOptions best = best_alignment_heads(report);
  EXPECT_EQ(best.chosen, (std::vector<LayerHead>{{0, planted.diagonal.head}}));
  EXPECT_FALSE(best.after);
  // The head that looks but has no values copies nothing.
  EXPECT_EQ(
      copying_through_values(
          planted.model, {.shared_vocabulary = true})[static_cast<std::size_t>(report.index_of(id_of(planted.silent)))]
          .share,
      0);
}

// ---- Copying --------------------------------------------------------------------------------------------------------

using Matrix = std::vector<std::vector<double>>;

Matrix matrix_of(Model& model, const std::string& name) {
  const Tensor& value = model.parameter(name).value;
  Matrix result;
  for (std::int64_t row = 0; row < value.rows(); ++row)
    result.emplace_back(value.row(row), value.row(row) + value.width());
  return result;
}

// LayerNorm without the division: centred, times gain.
std::vector<double> normed(Model& model, const std::string& norm, std::vector<double> x) {
  double mean = 0;
  for (const double value : x) mean += value / static_cast<double>(x.size());
  for (std::size_t i = 0; i < x.size(); ++i)
    x[i] = (x[i] - (model.config().norm == NormKind::layer ? mean : 0)) *
           static_cast<double>(model.parameter(norm + ".gain").value.data()[i]);
  return x;
}

// The whole circuit [token written][token read] of one head in double, and from its traces the eigenvalues of a head of
// two dimensions: trace = a + b, trace of the square = a^2 + b^2.
TEST(Copying, EqualsTheWholeVocabularyCircuit) {
  // Norm, where it stands, whether one follows the last block, whether one follows the embedding.
  using Case = std::tuple<NormKind, NormPlace, bool, bool>;
  for (const auto& [norm, place, final_norm, embedding_norm] :
       {Case{NormKind::layer, NormPlace::pre, true, false}, Case{NormKind::rms, NormPlace::pre, true, true},
        Case{NormKind::layer, NormPlace::pre, false, false}, Case{NormKind::layer, NormPlace::post, true, true},
        Case{NormKind::layer, NormPlace::post, false, false}, Case{NormKind::rms, NormPlace::post, true, false}}) {
    SCOPED_TRACE(testing::Message() << (place == NormPlace::pre ? "pre" : "post") << final_norm << embedding_norm);
    TransformerConfig config;
    config.width = 12;
    config.heads = 4;
    config.key_heads = 2;
    config.head_dim = 2;
    config.inner_width = 8;
    config.norm = norm;
    config.norm_bias = norm == NormKind::layer;
    config.tied_logits = false;
    config.norm_place = place;
    // More than one block of the vocabulary.
    config.decoder = StackConfig{
        .layers = 2, .vocabulary = 700, .causal = true, .embedding_norm = embedding_norm, .final_norm = final_norm};
    Model model(config, 3);
    reference::randomise(model, 4);
    const std::vector<Copying> found = copying_through_values(model, {.tokens = 0, .among = 40});
    ASSERT_EQ(found.size(), 8u);
    const Matrix embedding = matrix_of(model, "decoder.embedding.weight"),
                 unembedding = matrix_of(model, "logits.weight");
    for (const Copying& one : found) {
      const std::string self = "decoder." + std::to_string(one.head.layer) + ".self";
      const Matrix inputs = matrix_of(model, self + ".query_key_value.weight"),
                   output = matrix_of(model, self + ".output.weight");
      const std::size_t value_row = static_cast<std::size_t>(4 * 2 + 2 * 2 + one.head.head / 2 * 2),
                        column = static_cast<std::size_t>(one.head.head * 2);
      // The stream passes every norm that stands in it, in the order of a run.
      std::vector<std::string> before, after;
      if (embedding_norm) before.push_back("decoder.embedding_norm");
      if (place == NormPlace::pre) {
        before.push_back(self + ".norm");
      } else {
        for (int layer = 0; layer < 2; ++layer)
          for (const bool own : {true, false})
            (layer < one.head.layer ? before : after)
                .push_back("decoder." + std::to_string(layer) + (own ? ".self.norm" : ".feed_forward.norm"));
      }
      if (final_norm) after.push_back("decoder.norm");
      Matrix circuit(700, std::vector<double>(700));  // [read][written]
      std::int64_t copied = 0;
      for (std::size_t token = 0; token < 700; ++token) {
        std::vector<double> x = embedding[token];
        for (const std::string& each : before) x = normed(model, each, x);
        double carried[2] = {0, 0};
        for (std::size_t i = 0; i < 12; ++i)
          for (std::size_t d = 0; d < 2; ++d) carried[d] += inputs[value_row + d][i] * x[i];
        std::vector<double> written(12);
        for (std::size_t i = 0; i < 12; ++i)
          written[i] = output[i][column] * carried[0] + output[i][column + 1] * carried[1];
        for (const std::string& each : after) written = normed(model, each, written);
        double mean = 0;
        for (std::size_t u = 0; u < 700; ++u) {
          for (std::size_t i = 0; i < 12; ++i) circuit[token][u] += unembedding[u][i] * written[i];
          mean += circuit[token][u] / 700;
        }
        for (double& value : circuit[token]) value -= mean;
        std::int64_t above = 0;
        for (std::size_t u = 0; u < 700; ++u) above += circuit[token][u] > circuit[token][token];
        copied += above < 40 && circuit[token][token] > 0;
      }
      double trace = 0, trace_of_square = 0;
      for (std::size_t t = 0; t < 700; ++t) {
        trace += circuit[t][t];
        for (std::size_t u = 0; u < 700; ++u) trace_of_square += circuit[t][u] * circuit[u][t];
      }
      const double inside = 2 * trace_of_square - trace * trace;  // (a - b)^2
      const double sizes = inside >= 0
                               ? std::abs((trace + std::sqrt(inside)) / 2) + std::abs((trace - std::sqrt(inside)) / 2)
                               : std::sqrt(trace * trace - inside);
      EXPECT_NEAR(one.eigenvalues, trace / sizes, 1e-4) << name_of(one.head);
      EXPECT_NEAR(one.share, static_cast<double>(copied) / 700, 1.5 / 700) << name_of(one.head);
    }
  }
}

TEST(Copying, IsKnownOnlyBetweenTheSameVocabularies) {
  TransformerConfig config = reference::small_config();
  config.encoder = StackConfig{.layers = 1, .vocabulary = 9};
  config.decoder = StackConfig{.layers = 1, .vocabulary = 9, .causal = true};
  const Model model(config, 1);
  for (const Copying& one : copying_through_values(model)) {
    const bool known = one.head.stack == StackKind::decoder && one.head.part == Part::self;
    EXPECT_EQ(std::isnan(one.share), !known) << name_of(one.head);
  }
  for (const Copying& one : copying_through_values(model, {.shared_vocabulary = true}))
    EXPECT_EQ(std::isnan(one.share), one.head.stack == StackKind::encoder) << name_of(one.head);
  message_of([&] { copying_through_values(model, {.only = {9}}); }, ErrorKind::argument);
}

TEST(Items, PairsWithAnEmptySideAreRefused) {
  const ModelFolder folder = load_model_folder(std::filesystem::path(ATTEND_SOURCE_DIR) / "weights/tatoeba-zh-en");
  const Translator translator(folder);
  PairItemOptions options;
  options.to = "en";
  EXPECT_NE(message_of([&] { item_of(translator, "", "Good.", options); }, ErrorKind::text).find("the source is empty"),
            std::string::npos);
  EXPECT_NE(message_of([&] { item_of(translator, "好。", "", options); }, ErrorKind::text).find("the target is empty"),
            std::string::npos);
}

TEST(Items, AnEncoderAloneReadsLines) {
  TransformerConfig config = reference::small_config();
  config.encoder = StackConfig{.layers = 1, .vocabulary = 300};
  config.decoder.reset();
  const std::shared_ptr<const Tokenizer> bytes = byte_tokenizer();
  config.encoder->vocabulary = bytes->size();
  ModelFolder folder{Model(config, 1), bytes, nullptr, {}};
  folder.task.source_end = true;
  const HeadItem item = item_of(folder, "ab");
  EXPECT_TRUE(item.target.empty());
  EXPECT_EQ(item.source.back(), bytes->specials().eos);
  EXPECT_EQ(item.source.size(), 3u);
  EXPECT_EQ(find_heads(folder.model, items_from({item}), {.source = bytes.get()}).items, 1);
}

TEST(Links, AreCheckedBeforeAnythingRuns) {
  const reference::NamedConfig family = reference::all_families()[0];
  HeadOptions options;
  options.link.rule = LinkRule::threshold;
  options.link.threshold = 2;
  bool asked = false;
  message_of(
      [&] {
        find_heads(
            Model(family.config, 1), [&](HeadItem&) { return asked = true; }, options);
      },
      ErrorKind::argument);
  EXPECT_FALSE(asked);
}

// ---- Likeness, differences ------------------------------------------------------------------------------------------

TEST(Likeness, OfWeightsIsTheMeanAffinity) {
  const reference::NamedConfig family = reference::all_families()[3];
  Model model(family.config, 5);
  reference::randomise(model, 6);
  const std::vector<HeadItem> items = random_items(family.config, 60, 9, 20);
  const HeadReport report = find_heads(model, items_from(items), {.copying = false});
  std::vector<std::vector<double>> rows(report.heads.size());  // all weights of a head, one after the other
  std::int64_t count = 0;
  for (const HeadItem& item : items) {
    std::vector<Site> sites{parse_site("decoder.0.self.weights"), parse_site("decoder.1.self.weights")};
    Recorder recorder(sites);
    RunOptions run;
    run.probe = &recorder;
    TokenBatch target;
    target.append(item.target);
    model.decode(target, nullptr, run);
    const auto n = static_cast<std::int64_t>(item.target.size());
    count += n - 1;
    for (std::size_t layer = 0; layer < 2; ++layer)
      for (std::int64_t head = 0; head < 4; ++head)
        for (std::int64_t q = 1; q < n; ++q)
          for (std::int64_t k = 0; k <= q; ++k)
            rows[layer * 4 + static_cast<std::size_t>(head)].push_back(
                static_cast<double>(recorder.value(sites[layer], 0).at(head * n + q, k)));
  }
  for (std::size_t a = 0; a < rows.size(); ++a)
    for (std::size_t b = 0; b < rows.size(); ++b) {
      double affinity = 0;
      for (std::size_t i = 0; i < rows[a].size(); ++i) affinity += std::sqrt(rows[a][i] * rows[b][i]);
      affinity /= static_cast<double>(count);
      EXPECT_NEAR(likeness(report, report.heads[a].head, report.heads[b].head, Likeness::weights), affinity,
                  5 / std::sqrt(4096.0));
    }
}

TEST(Likeness, FindsTheLikeHeadFirst) {
  const reference::InductionModel planted = reference::planted_induction();
  const HeadReport report = find_heads(planted.model, items_from(decoder_items(planted.vocabulary, 10, 40, 20)));
  for (const Likeness by : {Likeness::scores, Likeness::weights}) {
    const std::vector<RankedHead> like = heads_like(report, id_of(planted.uniform), by);
    ASSERT_EQ(like.size(), 7u);
    // The noise heads look nearly everywhere alike.
    EXPECT_TRUE(like[0].head == id_of(planted.noise) || like[0].head == id_of(planted.other_noise))
        << name_of(like[0].head);
    EXPECT_NEAR(likeness(report, id_of(planted.self), id_of(planted.self), by), 1, 1e-12);
  }
  EXPECT_EQ(heads_like(report, id_of(planted.uniform), Likeness::weights, 2).size(), 2u);
  message_of(
      [&] {
        heads_like(report, {StackKind::encoder, 0, Part::self, 0}, Likeness::scores);
      },
      ErrorKind::argument);
  const HeadReport read = report_from_json(to_json(report), "x");
  message_of([&] { heads_like(read, id_of(planted.uniform), Likeness::weights); }, ErrorKind::argument);
}

TEST(Difference, OfARunWithItselfIsNothing) {
  const reference::NamedConfig family = reference::all_families()[3];
  Model model(family.config, 5), other(family.config, 50);
  reference::randomise(model, 6);
  const std::vector<HeadItem> items = random_items(family.config, 20, 9);
  const HeadReport report = find_heads(model, items_from(items)), changed = find_heads(other, items_from(items));
  const ReportDifference none = difference(report, report);
  ASSERT_EQ(none.likeness.size(), report.heads.size());
  for (std::size_t i = 0; i < none.heads.size(); ++i) {
    EXPECT_NEAR(none.likeness[i], 1, 1e-12);
    for (std::size_t j = 0; j < behaviour_count; ++j)
      EXPECT_TRUE(std::isnan(none.heads[i].values[j]) || none.heads[i].values[j] == 0);
  }
  const ReportDifference some = difference(report, changed);
  EXPECT_LT(some.likeness[0], 0.999);
  EXPECT_EQ(some.heads[2][Behaviour::entropy],
            changed.heads[2][Behaviour::entropy] - report.heads[2][Behaviour::entropy]);
  // Ranked by size, whatever the sign; written as what they are.
  const std::vector<RankedHead> ranked = rank_changes(some, Behaviour::entropy);
  for (std::size_t i = 1; i < ranked.size(); ++i) EXPECT_GE(std::abs(ranked[i - 1].value), std::abs(ranked[i].value));
  EXPECT_EQ(some.before.model, report.model);
  EXPECT_EQ(some.after.model, changed.model);
  EXPECT_NE(
      message_of([&] { report_from_json(to_json(some), "x"); }, ErrorKind::format).find("differences of two reports"),
      std::string::npos);
  // Another corpus: scores can be compared, weights cannot.
  EXPECT_TRUE(difference(report, find_heads(model, items_from(random_items(family.config, 20, 10)))).likeness.empty());
  const reference::NamedConfig bigger = reference::all_families()[0];
  const Model another(bigger.config, 1);
  message_of([&] { difference(report, find_heads(another, items_from(random_items(bigger.config, 2, 1)))); },
             ErrorKind::argument);
}

// ---- Names, files, refusals -----------------------------------------------------------------------------------------

TEST(BehaviourNames, ReadBack) {
  for (int i = 0; i < behaviour_count; ++i)
    EXPECT_EQ(behaviour_named(name_of(static_cast<Behaviour>(i))), static_cast<Behaviour>(i));
  EXPECT_NE(message_of([] { behaviour_named("inductoin"); }, ErrorKind::argument).find("did you mean induction"),
            std::string::npos);
}

TEST(HeadReports, ComeBackFromJson) {
  const reference::NamedConfig family = reference::all_families()[0];
  const Model model(family.config, 5);
  const HeadReport report = find_heads(model, items_from(random_items(family.config, 5, 9)));
  const HeadReport read = report_from_json(to_json(report), "report.json");
  EXPECT_EQ(read.model, report.model);
  EXPECT_EQ(read.items, 5);
  EXPECT_EQ(read.target_tokens, report.target_tokens);
  HeadReport bare = report;
  bare.sketches.clear();
  expect_same_bits(bare, read);
  const std::string csv = to_csv(report);
  EXPECT_EQ(static_cast<std::size_t>(std::count(csv.begin(), csv.end(), '\n')), report.heads.size() + 1);
  EXPECT_NE(csv.find("\nencoder.1.self.2,encoder,self,1,2,"), std::string::npos);

  const std::string json = to_json(report);
  const auto refused = [&](const std::string& from, const std::string& to) {
    std::string changed = json;
    const std::size_t at = changed.find(from);
    if (at == std::string::npos) {
      ADD_FAILURE() << from;
      return std::string();
    }
    changed.replace(at, from.size(), to);
    return message_of([&] { report_from_json(changed, "report.json"); }, ErrorKind::format);
  };
  EXPECT_NE(refused("\"attend heads\"", "\"attend\"").find("report.json"), std::string::npos);
  EXPECT_NE(refused("\"version\": 1", "\"version\": 2").find("version 2"), std::string::npos);
  EXPECT_NE(refused("encoder.0.self.1", "encoder.0.self.0").find("twice"), std::string::npos);
  EXPECT_NE(refused("\"encoder.0.self.1\"", "7").find("\"head\""), std::string::npos);
  EXPECT_NE(refused("\"entropy\"", "\"entropie\"").find("entropy"), std::string::npos);
  EXPECT_NE(refused("\"entropy\": ", "\"entropy\": \"x\", \"other\": ").find("entropy"), std::string::npos);
  for (const char* bad : {"", "encoder.0.self", "decoder.1.cross.2.3", "encoder.0.cross.1", "encoder.00.self.1",
                          "encoder.-1.self.0", "encoder.1.self.9999999", "encoder.1.feed_forward.0"})
    EXPECT_NE(refused("\"encoder.0.self.1\"", std::string("\"") + bad + "\"").find("names no head"), std::string::npos)
        << bad;
  refused("\"items\": 5", "\"items\": -5");
  refused("\"heads\": [", "\"heads\": [[[[[]]]], ");
  message_of([] { report_from_json("[", "x"); }, ErrorKind::format);
  message_of([] { report_from_json(std::string(100000, '['), "x"); }, ErrorKind::format);
}

TEST(HeadFinder, RefusesWhatDoesNotFit) {
  const reference::NamedConfig family = reference::all_families()[0];
  const Model model(family.config, 5);
  const auto refused = [&](std::vector<HeadItem> items, const HeadOptions& options = {}) {
    return message_of([&] { find_heads(model, items_from(std::move(items)), options); }, ErrorKind::argument);
  };
  EXPECT_NE(refused({}).find("no items"), std::string::npos);
  EXPECT_NE(refused({{{1}, {1}, nullptr}, {{1}, {}, nullptr}}).find("item 2"), std::string::npos);
  EXPECT_NE(refused({{{1}, {19}, nullptr}}).find("19"), std::string::npos);
  EXPECT_NE(refused({{std::vector<std::int32_t>(41, 1), {1}, nullptr}}).find("at most 40"), std::string::npos);
  const auto tokenizer = byte_tokenizer();
  EXPECT_NE(refused({{{1}, {1}, nullptr}}, {.source = tokenizer.get()}).find("259"), std::string::npos);
  auto words = std::make_shared<ItemWords>();
  words->source = {{0, 1, "a", TokenRole::text, 0, 1}};
  words->target = {{0, 3, "b", TokenRole::text, 0, 1}};
  EXPECT_NE(refused({{{1}, {1, 2}, words}}).find("hold 3 tokens of 2"), std::string::npos);
  words = std::make_shared<ItemWords>(*words);
  words->target[0].end = 2;
  words->reference = ReferenceAlignment{{{0, 1}}, {{0, 1}}};
  EXPECT_NE(refused({{{1}, {1, 2}, words}}).find("0-1"), std::string::npos);
  words = std::make_shared<ItemWords>(*words);
  words->reference.reset();
  words->mirrors = true;
  EXPECT_NE(refused({{{1}, {1, 2}, words}}).find("mirror"), std::string::npos);
}

TEST(HeadFinder, ReportsProgressAndStops) {
  const reference::NamedConfig family = reference::all_families()[3];
  const Model model(family.config, 5);
  std::vector<std::int64_t> seen;
  HeadOptions options;
  options.progress = [&](const HeadProgress& progress) { seen.push_back(progress.items); };
  find_heads(model, items_from(random_items(family.config, 1100, 1, 3)), options);
  EXPECT_EQ(seen, (std::vector<std::int64_t>{512, 1024, 1100}));
  int asked = 0;
  options.cancelled = [&] { return ++asked > 3; };
  message_of([&] { find_heads(model, items_from(random_items(family.config, 1100, 1, 3)), options); },
             ErrorKind::cancelled);
  EXPECT_EQ(asked, 4);
}

TEST(RepeatedItems, RepeatDistinctTokens) {
  const reference::NamedConfig family = reference::all_families()[1];  // encoder-decoder of two vocabularies
  const Model model(family.config, 5);
  RepeatedOptions options;
  options.items = 3;
  options.period = 9;
  options.repeats = 3;
  const std::vector<HeadItem> items = repeated_items(model, options);
  ASSERT_EQ(items.size(), 3u);
  for (const HeadItem& item : items) {
    ASSERT_EQ(item.source.size(), 27u);
    ASSERT_EQ(item.target.size(), 28u);
    EXPECT_EQ(item.target[0], 0);
    EXPECT_EQ(std::count(item.target.begin(), item.target.end(), 0), 1);
    for (std::size_t i = 10; i < 28; ++i) EXPECT_EQ(item.target[i], item.target[i - 9]);
    std::vector<std::int32_t> first(item.target.begin() + 1, item.target.begin() + 10);
    std::sort(first.begin(), first.end());
    EXPECT_EQ(std::unique(first.begin(), first.end()), first.end());
  }
  EXPECT_NE(items[0].target, items[1].target);
  EXPECT_EQ(repeated_items(model, options)[2].target, items[2].target);
  options.period = 14;
  message_of([&] { repeated_items(model, options); }, ErrorKind::argument);  // 43 tokens, 40 positions
  const reference::NamedConfig decoder = reference::all_families()[3];
  const Model small(decoder.config, 5);
  options.period = 19;  // of 19 tokens one is the first
  options.repeats = 2;
  EXPECT_NE(message_of([&] { repeated_items(small, options); }, ErrorKind::argument).find("19"), std::string::npos);
}

}  // namespace
}  // namespace attend
