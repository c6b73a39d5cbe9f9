// Whole inspections: what is asked reaches the right numbers, merged and named.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>
#include <map>
#include <numeric>
#include <set>
#include <span>

#include "attend/edits.h"
#include "attend/error.h"
#include "attend/attention.h"
#include "attend/inspect.h"
#include "attend/translate.h"
#include "core/memory.h"
#include "inspect_helpers.h"

namespace attend {
namespace {

TEST(Subject, PairIsReadAsTheTranslatorReadsIt) {
  const Subject subject = pair();
  const Translator translator_of_folder(translator());
  EXPECT_EQ(subject.texts.language, "en");
  EXPECT_EQ(subject.input.source, encode_source(translator().task, *translator().source, "我喜欢学习中文。", "en"));
  EXPECT_EQ(subject.input.ids.front(), first_token(*translator().target));
  EXPECT_EQ(subject.next.size(), subject.input.ids.size());
  EXPECT_EQ(std::vector<std::int32_t>(subject.input.ids.begin() + 1, subject.input.ids.end()),
            std::vector<std::int32_t>(subject.next.begin(), subject.next.end() - 1));
  EXPECT_EQ(subject.next.back(), translator().target->specials().eos);
  EXPECT_EQ(subject.source.size(), subject.input.source.size());
  EXPECT_EQ(subject.target.size(), subject.input.ids.size());
}

TEST(Subject, WithoutPiecesIsNotInspected) {
  SubjectTexts texts;
  texts.source = "我喜欢学习中文。";
  SubjectOptions options;
  options.pieces = false;
  const Subject subject = read_subject(translator(), texts, options);
  expect_error(ErrorKind::argument, {"inspect", "pieces"},
               [&] { inspect(translator(), "tatoeba-zh-en", subject, InspectOptions()); });
}

TEST(Subject, WhatTheModelWritesIsItsGreedyTranslation) {
  const Subject subject = pair("我喜欢学习中文。", nullptr);
  TranslateOptions greedy;
  greedy.decode.strategy = Strategy::greedy;
  const Translation expected = Translator(translator()).translate("我喜欢学习中文。", greedy);
  EXPECT_EQ(*subject.texts.target, expected.text());
  Recorder recorder({parse_site("decoder.1.cross.weights")});
  EXPECT_EQ(write_on(translator(), subject, &recorder), write_on(translator(), subject, nullptr))
      << "looking changes nothing";
  EXPECT_TRUE(recorder.has(parse_site("decoder.1.cross.weights"), 0));
}

TEST(Subject, EditsOfAPositionActAtItsStepOfWriting) {
  const Subject subject = pair();
  const std::vector<std::int32_t> base = write_on(translator(), subject, nullptr);
  for (std::int64_t position = 0; position < 4; ++position) {
    Edits edits;
    edits.add({.name = "mute", .kind = EditKind::zero, .at = "decoder.logits", .positions = {{position}}});
    EditProbe probe(translator().model, edits);
    SubjectOptions options;
    std::vector<std::int32_t> seen;
    options.on_token = [&](std::int32_t id) { seen.push_back(id); };
    const std::vector<std::int32_t> edited = write_on(translator(), subject, &probe, options);
    // Equal logits everywhere: the lowest id that may be written is the end.
    EXPECT_EQ(edited, std::vector<std::int32_t>(base.begin(), base.begin() + position));
    EXPECT_EQ(probe.report().edits.front().count, 1);
    EXPECT_EQ(seen, edited);
  }
}

TEST(Subject, WritingAsFarAsATranslation) {
  // A mute end lets the writing go on to its limit, the same as of any greedy translation.
  const Subject subject = pair("好", nullptr);
  class NoEnd : public Probe {
   public:
    bool wants(const Site& site) const override { return site.point == Point::logits; }
    void visit(const Visit&, Tensor& value) override {
      value = value.clone();
      for (std::int64_t row = 0; row < value.rows(); ++row) value.row(row)[translator().target->specials().eos] = -1e9f;
    }
  } probe;
  EXPECT_EQ(write_on(translator(), subject, &probe).size(), 4 * subject.input.source.size() + 32);
}

TEST(Subject, DecoderAloneReadsText) {
  SubjectTexts texts;
  texts.text = "床前明月光";
  const Subject subject = read_subject(poet(), texts);
  EXPECT_TRUE(subject.input.source.empty());
  EXPECT_EQ(subject.input.ids.size(), 6u);
  EXPECT_EQ(subject.next.back(), -1);
  GenerateOptions greedy;
  greedy.decode.strategy = Strategy::greedy;
  const Continuation expected = TextGenerator(poet()).generate("床前明月光", greedy);
  std::vector<std::int32_t> ids = expected.hypotheses.front().tokens.ids;
  if (expected.hypotheses.front().tokens.finished) ids.pop_back();
  EXPECT_EQ(write_on(poet(), subject, nullptr), ids);
}

TEST(Subject, IdsAreReadLikeTheTextTheyCameFrom) {
  const Subject text = pair();
  SubjectTexts ids;
  ids.source_ids = translator().source->encode("我喜欢学习中文。");
  ids.target_ids = translator().target->encode("I like learning Chinese.");
  expect_error(ErrorKind::argument, {"language", "ids do not tell it"}, [&] { read_subject(translator(), ids); });
  ids.language = "en";
  const Subject read = read_subject(translator(), ids);
  EXPECT_EQ(read.input.source, text.input.source);
  EXPECT_EQ(read.input.ids, text.input.ids);
  EXPECT_EQ(read.next, text.next);
  EXPECT_EQ(read.texts, ids) << "what was given is not changed";
  EXPECT_EQ(read.source.size(), read.input.source.size());
  ids.source_ids->push_back(translator().source->size());
  expect_error(ErrorKind::argument, {"source_ids", "ids 0 to"}, [&] { read_subject(translator(), ids); });
  ids.source_ids->back() = -1;
  expect_error(ErrorKind::argument, {"source_ids", "holds -1"}, [&] { read_subject(translator(), ids); });
  ids.source_ids->pop_back();
  ids.source = "我";
  expect_error(ErrorKind::argument, {"source", "as text and as ids"}, [&] { read_subject(translator(), ids); });
}

TEST(Subject, WithoutPiecesTheIdsAreTheSame) {
  SubjectTexts texts;
  texts.source = "我喜欢学习中文。";
  SubjectOptions options;
  options.pieces = options.write_target = false;
  const Subject subject = read_subject(translator(), texts, options);
  EXPECT_EQ(subject.input.source, pair().input.source);
  EXPECT_TRUE(subject.source.empty() && subject.input.ids.empty() && subject.next.empty());
}

TEST(Subject, SaysWhatIsWrongWithAText) {
  using Problem = SubjectError::Problem;
  const auto error_of = [](const SubjectTexts& texts, const SubjectOptions& options) -> SubjectError {
    try {
      read_subject(translator(), texts, options);
    } catch (const SubjectError& error) {
      return error;
    }
    ADD_FAILURE() << "nothing was thrown";
    return {Problem::empty, ErrorKind::text, "", "", ""};
  };
  SubjectTexts texts;
  SubjectOptions options;
  texts.source = "好";
  texts.target = std::string(600, 'x');
  const SubjectError longer = error_of(texts, options);
  EXPECT_EQ(longer.problem, Problem::too_long);
  EXPECT_EQ(longer.where(), "target");
  EXPECT_GT(longer.found, 256);
  EXPECT_EQ(longer.allowed, 256);
  options.most_tokens = 5;
  texts.target = "I like learning Chinese every day.";
  const SubjectError beyond = error_of(texts, options);
  EXPECT_EQ(beyond.problem, Problem::beyond_limit);
  EXPECT_EQ(beyond.found, static_cast<std::int64_t>(translator().target->encode(*texts.target).size()));
  EXPECT_EQ(beyond.allowed, 5);
  texts.target = "\xFF";
  EXPECT_EQ(error_of(texts, options).problem, Problem::not_text);
  texts = {};
  texts.source = "";
  texts.language = "en";
  EXPECT_EQ(error_of(texts, options).problem, Problem::empty);
  options.empty_source = true;
  options.write_target = false;
  EXPECT_EQ(read_subject(translator(), texts, options).input.source,
            encode_source(translator().task, *translator().source, "", "en"))
      << "its ends alone";
  texts.language = "fr";
  EXPECT_EQ(error_of(texts, options).problem, Problem::language);
}

// Without tags a model goes from its first language to its second, whatever else it names.
TEST(Subject, AModelWithoutTagsGoesOneWayOnly) {
  ModelFolder folder = load_model_folder(std::filesystem::path(ATTEND_SOURCE_DIR) / "weights/tatoeba-zh-en");
  folder.task.target_tags.clear();
  SubjectTexts texts;
  texts.source = "我喜欢学习中文。";
  texts.target = "I like learning Chinese.";
  const auto refuse = [&](const char* language) {
    texts.language = language;
    try {
      read_subject(folder, texts);
      ADD_FAILURE() << language;
    } catch (const SubjectError& error) {
      EXPECT_EQ(error.problem, SubjectError::Problem::language);
      EXPECT_EQ(error.where(), "language");
      EXPECT_EQ(error.what_happened(), "the model translates from zh to en only");
      TranslateOptions options;
      options.to = language;
      EXPECT_EQ(error.what_happened(), [&]() -> std::string {
        try {
          Translator(folder).translate(*texts.source, options);
        } catch (const Error& of_translation) {
          return of_translation.what_happened();
        }
        return "";
      }()) << "as translation refuses it";
    }
  };
  refuse("zh");
  folder.task.languages = {"zh", "en", "fr"};
  refuse("fr");
  SubjectTexts ids;
  ids.source_ids = folder.source->encode(*texts.source);
  for (const char* language : {"", "en"}) {
    texts.language = ids.language = language;
    EXPECT_EQ(read_subject(folder, texts).texts.language, "en");
    EXPECT_EQ(read_subject(folder, ids).texts.language, "en");
  }
}

TEST(Subject, TextsThatDoNotFit) {
  SubjectTexts texts;
  texts.text = "x";
  expect_error(ErrorKind::argument, {"no use for a text"}, [&] { read_subject(translator(), texts); });
  texts = {};
  expect_error(ErrorKind::argument, {"source", "missing"}, [&] { read_subject(translator(), texts); });
  texts.source = "";
  expect_error(ErrorKind::text, {"source", "empty"}, [&] { read_subject(translator(), texts); });
  texts.source = "你好";
  texts.language = "fr";
  expect_error(ErrorKind::argument, {"fr", "zh, en"}, [&] { read_subject(translator(), texts); });
  texts.language = "";
  texts.source = std::string(3000, 'x') + " y";
  for (int i = 0; i < 600; ++i) *texts.source += " word";
  expect_error(ErrorKind::text, {"source", "at most 256"}, [&] { read_subject(translator(), texts); });
  texts = {};
  texts.source = "\xFF";
  expect_error(ErrorKind::text, {"source"}, [&] { read_subject(translator(), texts); });
  texts = {};
  texts.source = "a";
  expect_error(ErrorKind::argument, {"no use for a source"}, [&] { read_subject(poet(), texts); });
}

TEST(Inspect, WeightsAreSharesOfWords) {
  const Subject subject = pair();
  const InspectReport report = inspect(translator(), "m", subject);
  ASSERT_EQ(report.inspection.attentions.size(), 3u);
  for (const ShownAttention& attention : report.inspection.attentions) {
    const std::size_t queries = report.inspection.texts[attention.query_text].tokens.size();
    const std::size_t keys = report.inspection.texts[attention.key_text].tokens.size();
    const Measure& weight = attention.measures.front();
    ASSERT_EQ(weight.values.size(), 4u * 4u * queries * keys);
    for (std::size_t row = 0; row < weight.values.size() / keys; ++row) {
      double sum = 0;
      for (std::size_t key = 0; key < keys; ++key) {
        const double value = static_cast<double>(weight.values[row * keys + key]);
        sum += value;
        if (!attention.masked.empty() && attention.masked[(row % queries) * keys + key]) {
          EXPECT_EQ(value, 0);
        }
      }
      EXPECT_NEAR(sum, 1, 1e-5);
    }
    EXPECT_EQ(attention.masked.empty(), attention.name != "decoder");
  }
}

TEST(Inspect, TokensAreTheWeightsOfTheModel) {
  const Subject subject = pair();
  InspectOptions options;
  options.group = GroupBy::token;
  options.attentions = {"cross"};
  options.layers = {-1};
  options.heads = {1, 3};
  const InspectReport report = inspect(translator(), "m", subject, options);
  const ShownAttention& attention = report.inspection.attentions.front();
  EXPECT_EQ(attention.layers, std::vector<int>{3});
  EXPECT_EQ(attention.heads, (std::vector<int>{1, 3}));

  Recorder recorder({parse_site("decoder.3.cross.weights")});
  RunOptions run;
  run.probe = &recorder;
  TokenBatch source, target;
  source.append(subject.input.source);
  target.append(subject.input.ids);
  const States memory = translator().model.encode(source);
  translator().model.decode(target, &memory, run);
  const Tensor& weights = recorder.value(parse_site("decoder.3.cross.weights"), 0);
  const std::size_t cells = subject.target.size() * subject.source.size();
  for (std::size_t head = 0; head < 2; ++head)
    for (std::size_t cell = 0; cell < cells; ++cell)
      EXPECT_NEAR(attention.measures.front().values[head * cells + cell],
                  weights.data()[(head == 0 ? 1 : 3) * cells + cell], 1e-6);
  // Entropy of every row, from the same weights in double.
  const RowStatistic& entropy = attention.statistics.front();
  ASSERT_EQ(entropy.name, "entropy");
  for (std::size_t query = 0; query < subject.target.size(); ++query) {
    double expected = 0;
    for (std::size_t key = 0; key < subject.source.size(); ++key) {
      const double w = static_cast<double>(weights.data()[cells + query * subject.source.size() + key]);
      if (w > 0) expected -= w * std::log(w);
    }
    EXPECT_NEAR(entropy.values[query], expected, 1e-5);
  }

  options.mean_heads = true;
  const InspectReport mean = inspect(translator(), "m", subject, options);
  EXPECT_EQ(mean.inspection.attentions.front().heads, std::vector<int>{mean_of_all});
  for (std::size_t cell = 0; cell < cells; ++cell)
    EXPECT_NEAR(mean.inspection.attentions.front().measures.front().values[cell],
                (attention.measures.front().values[cell] + attention.measures.front().values[cells + cell]) / 2, 1e-6);
}

TEST(Inspect, ExactEffectsStandBesideFirstOrderOnes) {
  const Subject subject = pair();
  InspectOptions options;
  options.target = logit_of(token_named(*translator().target,
                                        "\xE2\x96\x81"
                                        "Chinese"),
                            3);
  options.exact = 20;
  const InspectReport report = inspect(translator(), "m", subject, options);
  EXPECT_NEAR(report.target, target_value(translator().model, subject.input, *options.target), 1e-5);
  ASSERT_EQ(report.edges.size(), 20u);
  EXPECT_EQ(report.agreement.size(), 6u);
  std::vector<Edge> edges;
  for (const MeasuredEdge& edge : report.edges) edges.push_back(edge.edge);
  const std::vector<double> exact = exact_effects(translator().model, subject.input, *options.target, edges);
  for (std::size_t i = 0; i < edges.size(); ++i) {
    EXPECT_EQ(report.edges[i].exact, exact[i]);
    if (i > 0) {
      EXPECT_GE(std::abs(report.edges[i - 1].exact), std::abs(report.edges[i].exact));
    }
  }
  // Every edge that was cut stands in the picture's measure of tokens; nothing else does.
  options.group = GroupBy::token;
  const InspectReport tokens = inspect(translator(), "m", subject, options);
  double shown = 0, expected = 0;
  std::size_t cells = 0;
  for (const ShownAttention& attention : tokens.inspection.attentions)
    for (const float value : attention.measures.back().values)
      if (!std::isnan(value)) shown += static_cast<double>(value), ++cells;
  for (const double effect : exact) expected += effect;
  EXPECT_NEAR(shown, expected, 1e-4);
  EXPECT_EQ(cells, 20u);
  EXPECT_NE(report.inspection.target.find("Chinese"), std::string::npos);
}

// Rows tell the same with and without matrices, and readings are the mean of the matrices.
TEST(Inspect, RowsNeedNoMatrices) {
  const Subject subject = pair();
  InspectOptions options;
  options.least_share = 0.05;
  const InspectReport with = inspect(translator(), "m", subject, options);
  options.matrices = false;
  const InspectReport without = inspect(translator(), "m", subject, options);
  ASSERT_EQ(with.inspection.attentions.size(), without.inspection.attentions.size());
  for (std::size_t part = 0; part < with.inspection.attentions.size(); ++part) {
    const ShownAttention &full = with.inspection.attentions[part], &rows = without.inspection.attentions[part];
    EXPECT_TRUE(rows.measures.empty());
    EXPECT_TRUE(rows.masked.empty());
    ASSERT_EQ(full.statistics.size(), full.name == "cross" ? 2u : 5u);
    ASSERT_EQ(full.metrics.size(), full.statistics.size());
    for (std::size_t kind = 0; kind < full.statistics.size(); ++kind) {
      EXPECT_EQ(full.statistics[kind].name, rows.statistics[kind].name);
      EXPECT_EQ(full.statistics[kind].values, rows.statistics[kind].values);
      EXPECT_EQ(full.metrics[kind].values, rows.metrics[kind].values);
    }
    const std::size_t queries = with.inspection.texts[full.query_text].tokens.size(),
                      keys = with.inspection.texts[full.key_text].tokens.size();
    ASSERT_EQ(without.readings[part].size(), queries);
    const std::vector<float>& weights = full.measures.front().values;
    const std::size_t maps = weights.size() / (queries * keys);
    for (std::size_t query = 0; query < queries; ++query) {
      std::size_t listed = 0;
      for (std::size_t key = 0; key < keys; ++key) {
        double share = 0;
        for (std::size_t map = 0; map < maps; ++map)
          share += static_cast<double>(weights[(map * queries + query) * keys + key]) / static_cast<double>(maps);
        const auto& row = without.readings[part][query];
        const auto found =
            std::find_if(row.begin(), row.end(), [&](const Reading& reading) { return reading.key == key; });
        if (std::abs(share - 0.05) > 1e-6) {
          EXPECT_EQ(found != row.end(), share > 0.05);
        }
        if (found == row.end()) continue;
        EXPECT_NEAR(found->share, share, 1e-6);
        ++listed;
      }
      EXPECT_EQ(listed, without.readings[part][query].size());
    }
  }
}

// A decoder that reads 4,096 tokens: one matrix of one head would be 64 MiB. Everything but matrices is told with less, and
// twice the text takes about twice the memory.
TEST(Inspect, LongTextsTakeMemoryLinearInTheirLength) {
  const auto peak_of = [](std::int64_t length, bool effects) {
    TransformerConfig config;
    config.width = 16;
    config.heads = 2;
    config.inner_width = 16;
    config.max_positions = 4096;
    config.positions = PositionKind::rotary;
    config.tied_logits = false;
    config.decoder = StackConfig{.layers = 2, .vocabulary = 11, .causal = true};
    const ModelFolder folder{Model(config, 5), nullptr, nullptr, {}};
    Subject subject;
    for (std::int64_t i = 0; i < length; ++i) {
      subject.input.ids.push_back(static_cast<std::int32_t>(i * i % 11));
      subject.next.push_back(-1);
      Piece piece;
      piece.text = piece.raw = std::to_string(i * i % 11);
      subject.target.push_back(piece);
    }
    InspectOptions options;
    options.group = GroupBy::token;
    options.matrices = false;
    options.least_share = 0.05;
    if (effects) options.target = logit_of(3);
    options.top_keys = 8;
    options.regions = {{"start", "", {{0, 10}}}};
    release_kept_memory();
    reset_peak_memory();
    const std::int64_t before = memory_use().live_bytes;
    const InspectReport report = inspect(folder, "m", subject, options);
    EXPECT_EQ(report.inspection.attentions.front().statistics.size(), 6u);
    EXPECT_EQ(report.inspection.attentions.front().largest.keys.size(), static_cast<std::size_t>(2 * 2 * 8 * length));
    EXPECT_EQ(report.readings.front().size(), static_cast<std::size_t>(length));
    EXPECT_EQ(report.edges.size(), effects ? 1000u : 0u);
    return memory_use().peak_bytes - before;
  };
  constexpr std::int64_t matrix = std::int64_t{4096} * 4096 * 4;
  const std::int64_t half = peak_of(2048, false), whole = peak_of(4096, false);
  EXPECT_LT(whole, matrix / 4);
  EXPECT_LT(whole, half * 5 / 2);
  EXPECT_LT(peak_of(4096, true), matrix);
}

// Merged to words they are made of rebuilt rows, of tokens in the fused pass: both are what the whole matrix says.
TEST(Inspect, LargestKeysAndRegionsAreThoseOfTheMatrix) {
  const Subject subject = pair("我喜欢学习中文。", "I saw the beautifully decorated house.");
  for (const GroupBy by : {GroupBy::token, GroupBy::word})
    for (const bool mean : {false, true}) {
      InspectOptions options;
      options.group = by;
      options.mean_heads = mean;
      options.layers = {1, 3};
      options.heads = {0, 2, 3};
      options.write = false;
      options.top_keys = 3;
      options.regions = {{"middle", "", {{1, 3}, {2, 4}, {-1, KeyRegion::Span::to_end}}},
                         {"far", "target", {{5, 7}}},
                         {"tags", "source", {}, true}};
      const Inspection with = inspect(translator(), "m", subject, options).inspection;
      options.matrices = false;
      const Inspection without = inspect(translator(), "m", subject, options).inspection;
      for (std::size_t part = 0; part < with.attentions.size(); ++part) {
        const ShownAttention& attention = with.attentions[part];
        const auto& keys = with.texts[attention.key_text].tokens;
        const std::size_t queries = with.texts[attention.query_text].tokens.size();
        const std::size_t rows = attention.layers.size() * attention.heads.size() * queries;
        const std::vector<float>& weights = attention.measures.front().values;
        const LargestKeys& largest = attention.largest;
        ASSERT_EQ(largest.count, 3);
        ASSERT_EQ(largest.keys.size(), rows * 3);
        EXPECT_EQ(largest.keys, without.attentions[part].largest.keys);
        EXPECT_EQ(largest.weights, without.attentions[part].largest.weights);
        std::map<std::string, const RowStatistic*> statistics;
        for (const RowStatistic& statistic : attention.statistics) statistics[statistic.name] = &statistic;
        EXPECT_EQ(statistics.contains("on far"), attention.name == "decoder");
        EXPECT_EQ(statistics.contains("on tags"), attention.name != "decoder");
        ASSERT_TRUE(statistics.contains("on middle"));
        for (std::size_t row = 0; row < rows; ++row) {
          const auto weight = std::span(weights).subspan(row * keys.size(), keys.size());
          const auto mass = [&](const std::function<bool(std::size_t)>& within) {
            double sum = 0;
            for (std::size_t key = 0; key < keys.size(); ++key)
              if (within(key)) sum += static_cast<double>(weight[key]);
            return sum;
          };
          EXPECT_NEAR(statistics["on middle"]->values[row],
                      mass([&](std::size_t key) { return (key >= 1 && key < 4) || key + 1 == keys.size(); }), 1e-5);
          if (statistics.contains("on far")) {
            EXPECT_NEAR(statistics["on far"]->values[row], mass([](std::size_t key) { return key == 5 || key == 6; }),
                        1e-5);
          }
          if (statistics.contains("on tags")) {
            EXPECT_NEAR(statistics["on tags"]->values[row], mass([&](std::size_t key) { return keys[key].special; }),
                        1e-5);
          }
          std::vector<std::size_t> order(keys.size());
          std::iota(order.begin(), order.end(), std::size_t{0});
          std::stable_sort(order.begin(), order.end(),
                           [&](std::size_t a, std::size_t b) { return weight[a] > weight[b]; });
          for (std::size_t rank = 0; rank < 3; ++rank) {
            const std::int32_t key = largest.keys[row * 3 + rank];
            const double found = largest.weights[row * 3 + rank], expected = weight[order[rank]];
            EXPECT_NEAR(found, expected, 1e-6);
            if (expected < 1e-6) continue;
            ASSERT_GE(key, 0);
            EXPECT_NEAR(weight[static_cast<std::size_t>(key)], expected, 1e-6);
          }
        }
      }
    }
}

TEST(Inspect, LargestKeysAndRegionsThatCannotBeAreRefused) {
  const Subject subject = pair();
  const auto refused = [&](std::vector<KeyRegion> regions, const std::vector<std::string>& parts) {
    InspectOptions options;
    options.regions = std::move(regions);
    expect_error(ErrorKind::argument, parts, [&] { inspect(translator(), "m", subject, options); });
  };
  const KeyRegion::Span one{1, 2};
  refused({{"first", "", {one}}}, {"region \"first\"", "of this name already"});
  refused({{"a", "", {one}}, {"a", "", {one}}}, {"region \"a\"", "of this name already"});
  refused({{"", "", {one}}}, {"0 bytes"});
  refused({{"a\nb", "", {one}}}, {"no text"});
  refused({{"a", "", {}}}, {"no keys"});
  refused({{"a", "sauce", {one}}}, {"reads a text \"sauce\"", "source has keys 0 to 5", "target has keys 0 to 5"});
  refused({{"a", "", {{6, 7}}}}, {"no text has all of its keys", "source has keys 0 to 5"});
  refused({{"a", "source", {{2, 2}}}}, {"no text \"source\" has all"});
  refused({{"a", "", {{-7, 2}}}}, {"no text has all"});
  InspectOptions options;
  options.top_keys = most_top_keys + 1;
  expect_error(ErrorKind::argument, {"33 are asked for", "1 to 32"},
               [&] { inspect(translator(), "m", subject, options); });
  options = {};
  options.attentions = {"decoder"};
  options.regions = {{"a", "source", {one}}};
  expect_error(ErrorKind::argument, {"no attention chosen reads a text \"source\"", "target has keys"},
               [&] { inspect(translator(), "m", subject, options); });
}

TEST(Inspect, ExactEffectsOfWordsAreOfAllTheirEdges) {
  const Subject subject = pair("我喜欢学习中文。", "I saw the beautifully decorated house.");
  const std::vector<TokenGroup> words = group(subject.target, GroupBy::word),
                                signs = group(subject.source, GroupBy::word);
  ASSERT_LT(words.size(), subject.target.size()) << "some word has several tokens";
  InspectOptions options;
  options.attentions = {"cross"};
  options.layers = {2};
  options.target = logit_of(token_named(*translator().target,
                                        "\xE2\x96\x81"
                                        "house"),
                            static_cast<std::int64_t>(subject.target.size()) - 3);
  const auto values = [&](std::int64_t exact, bool mean) {
    options.exact = exact;
    options.mean_heads = mean;
    return inspect(translator(), "m", subject, options);
  };
  const auto all = static_cast<std::int64_t>(4 * subject.target.size() * subject.source.size());
  const InspectReport whole = values(all, false), part = values(all / 3, false), mean = values(all / 3, true);
  const std::vector<float>& of_whole = whole.inspection.attentions.front().measures.back().values;
  const std::vector<float>& of_part = part.inspection.attentions.front().measures.back().values;
  const std::vector<float>& of_mean = mean.inspection.attentions.front().measures.back().values;
  std::set<Edge> cut;
  for (const MeasuredEdge& edge : part.edges) cut.insert(edge.edge);
  std::map<Edge, double> effects;
  for (const MeasuredEdge& edge : whole.edges) effects[edge.edge] = edge.exact;
  int known = 0, partial = 0;
  const std::size_t cells = words.size() * signs.size();
  std::vector<std::size_t> heads_known(cells);
  for (int head = 0; head < 4; ++head)
    for (std::size_t word = 0; word < words.size(); ++word)
      for (std::size_t sign = 0; sign < signs.size(); ++sign) {
        double sum = 0;
        std::size_t edges = 0, made = 0;
        for (std::int64_t query = words[word].begin; query < words[word].end; ++query)
          for (std::int64_t key = signs[sign].begin; key < signs[sign].end; ++key) {
            const Edge edge{{StackKind::decoder, 2, Part::cross, head}, query, key};
            sum += effects.at(edge);
            ++edges;
            made += cut.contains(edge);
          }
        const std::size_t cell = word * signs.size() + sign, at = static_cast<std::size_t>(head) * cells + cell;
        EXPECT_NEAR(of_whole[at], sum, 1e-5);
        EXPECT_EQ(std::isnan(of_part[at]), made < edges);
        known += made == edges;
        partial += made > 0 && made < edges;
        heads_known[cell] += made == edges;
      }
  EXPECT_GT(known, 0);
  EXPECT_GT(partial, 0);
  for (std::size_t cell = 0; cell < cells; ++cell) EXPECT_EQ(std::isnan(of_mean[cell]), heads_known[cell] < 4);
}

TEST(Inspect, AgreementOverAllEdgesIsThatOfTheirList) {
  const Subject subject = pair();
  const Target target = logit_of(token_named(*translator().target,
                                             "\xE2\x96\x81"
                                             "Chinese"),
                                 3);
  const EdgeReport effects = edge_effects(translator().model, subject.input, target);
  std::vector<MeasuredEdge> edges = effects.largest(EdgeMeasure::weight, std::numeric_limits<std::int64_t>::max());
  std::sort(edges.begin(), edges.end(), [](const MeasuredEdge& a, const MeasuredEdge& b) { return a.edge < b.edge; });
  const std::vector<RankAgreement> listed = rank_agreement(edges), all = rank_agreement(effects);
  ASSERT_EQ(all.size(), 3u);
  ASSERT_EQ(listed.size(), 3u);
  for (std::size_t i = 0; i < 3; ++i) {
    EXPECT_EQ(all[i].edges, static_cast<std::int64_t>(edges.size()));
    EXPECT_EQ(all[i].second, listed[i].second);
    EXPECT_DOUBLE_EQ(all[i].rank_correlation, listed[i].rank_correlation);
    EXPECT_DOUBLE_EQ(all[i].shared_top, listed[i].shared_top);
  }
  InspectOptions options;
  options.target = target;
  const InspectReport report = inspect(translator(), "m", subject, options);
  EXPECT_EQ(report.edges.size(), 1000u);
  EXPECT_EQ(report.agreement.front().edges, static_cast<std::int64_t>(edges.size()));
}

TEST(Inspect, WhatDoesNotExistIsRefused) {
  const Subject subject = pair();
  InspectOptions options;
  options.attentions = {"self"};
  expect_error(ErrorKind::argument, {"\"self\"", "encoder, decoder, cross"},
               [&] { inspect(translator(), "m", subject, options); });
  options = {};
  options.layers = {4};
  expect_error(ErrorKind::argument, {"layer 4", "0 to 3"}, [&] { inspect(translator(), "m", subject, options); });
  options = {};
  options.heads = {-5};
  expect_error(ErrorKind::argument, {"head -5", "0 to 3"}, [&] { inspect(translator(), "m", subject, options); });
  options = {};
  options.most_bytes = 1000;
  expect_error(ErrorKind::argument, {}, [&] { inspect(translator(), "m", subject, options); });
  options = {};
  options.source_words = "我 喜欢 学习 英文 。";
  expect_error(ErrorKind::text, {}, [&] { inspect(translator(), "m", subject, options); });
}

}  // namespace
}  // namespace attend
