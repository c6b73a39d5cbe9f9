#include "attend/translate.h"

#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "attend/error.h"
#include "unit/run_models.h"

namespace attend {
namespace {

using namespace attend::testing;

// Bytes as tokens need no training; 256, 257, 258 are pad, bos, eos, the tags follow.
constexpr std::int32_t byte_pad = 256, byte_bos = 257, byte_eos = 258, to_zh = 259, to_en = 260;

std::shared_ptr<const Tokenizer> bytes_with_tags() { return byte_tokenizer(Normalisation::none, {"<2zh>", "<2en>"}); }

Task translate_task() {
  Task task;
  task.kind = Task::Kind::translate;
  task.languages = {"zh", "en"};
  task.target_tags = {{"zh", "<2zh>"}, {"en", "<2en>"}};
  return task;
}

void expect_error(ErrorKind kind, const std::string& part, const std::function<void()>& call) {
  try {
    call();
    FAIL() << "no error that speaks of " << part;
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), kind) << error.what();
    EXPECT_NE(std::string(error.what()).find(part), std::string::npos) << error.what();
  }
}

class Translating : public ::testing::Test {
 protected:
  static TransformerConfig config() {
    NamedConfig named = encoder_decoder(261);
    named.config.encoder->vocabulary = 261;
    named.config.encoder->layers = 1;
    named.config.decoder->layers = 3;
    return named.config;
  }
  Model model = lively_model(config(), 4);
  std::shared_ptr<const Tokenizer> tokenizer = bytes_with_tags();
  Translator translator{model, tokenizer, tokenizer, translate_task()};
  TranslateOptions quick() const {
    TranslateOptions options;
    options.decode.max_length = 12;
    return options;
  }
};

TEST_F(Translating, SourceIsTagTokensEnd) {
  Task task = translate_task();
  EXPECT_EQ(encode_source(task, *tokenizer, "ab", "en"), (std::vector<std::int32_t>{to_en, 'a', 'b', byte_eos}));
  task.source_begin = true;
  task.source_end = false;
  EXPECT_EQ(encode_source(task, *tokenizer, "ab", "zh"), (std::vector<std::int32_t>{byte_bos, to_zh, 'a', 'b'}));
  task.target_tags.clear();
  EXPECT_EQ(encode_source(task, *tokenizer, "", ""), (std::vector<std::int32_t>{byte_bos}));
  expect_error(ErrorKind::argument, "\"fr\"", [&] { encode_source(translate_task(), *tokenizer, "ab", "fr"); });
}

TEST_F(Translating, TokensComeFromTheTokenizerUnlessGiven) {
  EXPECT_EQ(first_token(*tokenizer), byte_bos);
  const DecodeOptions filled = with_tokens_of(*tokenizer, {});
  EXPECT_EQ(filled.end, (std::vector<std::int32_t>{byte_eos}));
  EXPECT_EQ(filled.forbidden, (std::vector<std::int32_t>{byte_pad, byte_bos}));
  DecodeOptions given;
  given.end = {'.'};
  given.forbidden = {'x'};
  EXPECT_EQ(with_tokens_of(*tokenizer, given).end, given.end);
  EXPECT_EQ(with_tokens_of(*tokenizer, given).forbidden, given.forbidden);
}

TEST_F(Translating, LinesKeepTheirOrderAndAreTranslatedAsAlone) {
  const std::vector<std::string> lines{
      "How are you?", "", "你好吗？", " \t\u3000", "I", "A rather longer line than the others.", "好"};
  for (const Strategy strategy : {Strategy::greedy, Strategy::beam, Strategy::sample}) {
    TranslateOptions options = quick();
    options.decode.strategy = strategy;
    options.decode.n_best = strategy == Strategy::greedy ? 1 : 3;
    options.align = true;
    const auto together = translator.translate(lines, options);
    ASSERT_EQ(together.size(), lines.size());
    for (std::size_t i = 0; i < lines.size(); ++i) {
      const bool blank = i == 1 || i == 3;
      EXPECT_EQ(together[i].hypotheses.size(), blank ? 1u : static_cast<std::size_t>(options.decode.n_best));
      TranslateOptions alone = options;
      alone.first_line = static_cast<std::int64_t>(i) + 1;
      const Translation one = translator.translate(lines[i], alone);
      EXPECT_EQ(one.text(), together[i].text());
      EXPECT_EQ(one.source_ids, together[i].source_ids);
      EXPECT_EQ(one.alignment, together[i].alignment);
      EXPECT_EQ(one.hypotheses.back().tokens.ids, together[i].hypotheses.back().tokens.ids);
      if (blank) {
        EXPECT_EQ(together[i].text(), "");
        EXPECT_TRUE(together[i].source_ids.empty() && together[i].hypotheses[0].tokens.ids.empty());
        continue;
      }
      const bool chinese = i == 2 || i == 6;
      EXPECT_EQ(together[i].from, chinese ? "zh" : "en");
      EXPECT_EQ(together[i].to, chinese ? "en" : "zh");
      EXPECT_EQ(together[i].source_ids, encode_source(translate_task(), *tokenizer, lines[i], together[i].to));
      EXPECT_EQ(together[i].text(), tokenizer->decode(together[i].hypotheses[0].tokens.ids));
    }
  }
}

TEST_F(Translating, DirectionsAreGivenOrTold) {
  using Pair = std::pair<std::string, std::string>;
  EXPECT_EQ(translator.direction("你好"), (Pair{"zh", "en"}));
  EXPECT_EQ(translator.direction("hello"), (Pair{"en", "zh"}));
  EXPECT_EQ(translator.direction("hello", "zh"), (Pair{"zh", "en"}));
  EXPECT_EQ(translator.direction("hello", "", "en"), (Pair{"zh", "en"}));
  expect_error(ErrorKind::argument, "\"fr\"", [&] { translator.direction("hello", "fr"); });
  expect_error(ErrorKind::argument, "both en", [&] { translator.direction("hello", "en", "en"); });

  Task two = translate_task();
  two.languages = {"de", "en"};
  two.target_tags = {{"de", "<2zh>"}, {"en", "<2en>"}};
  const Translator latin(model, tokenizer, tokenizer, two);
  expect_error(ErrorKind::argument, "de, en", [&] { latin.direction("hello"); });
  EXPECT_EQ(latin.direction("hello", "en"), (Pair{"en", "de"}));

  Task one_way = translate_task();
  one_way.target_tags.clear();
  const Translator fixed(model, tokenizer, tokenizer, one_way);
  EXPECT_EQ(fixed.direction("hello"), (Pair{"zh", "en"}));
  expect_error(ErrorKind::argument, "from zh to en only", [&] { fixed.direction("hello", "en"); });
  EXPECT_EQ(fixed.translate("ab", quick()).source_ids, (std::vector<std::int32_t>{'a', 'b', byte_eos}));

  Task three = translate_task();
  three.languages = {"zh", "en", "fr"};
  const Translator many(model, tokenizer, tokenizer, three);
  expect_error(ErrorKind::argument, "cannot be told", [&] { many.direction("hello"); });
  EXPECT_EQ(many.direction("hello", "", "en"), (Pair{"", "en"}));
}

TEST_F(Translating, PrefixIsForced) {
  TranslateOptions options = quick();
  options.prefix = "He ";
  for (const Strategy strategy : {Strategy::greedy, Strategy::beam}) {
    options.decode.strategy = strategy;
    EXPECT_EQ(translator.translate("你好", options).text().substr(0, 3), "He ");
  }
}

// Adds up weights that a recorder kept, independently of how the alignment is read.
std::vector<float> recorded_alignment(const Model& model, const Translation& translation, std::vector<int> layers,
                                      std::vector<std::int64_t> heads, bool after) {
  const std::vector<std::int32_t>& ids = translation.hypotheses[0].tokens.ids;
  TokenBatch source, target;
  source.append(translation.source_ids);
  std::vector<std::int32_t> reading{byte_bos};
  reading.insert(reading.end(), ids.begin(), ids.end() - 1);
  target.append(reading);
  std::vector<Site> sites;
  for (const int layer : layers) sites.push_back({StackKind::decoder, layer, Part::cross, Point::weights});
  Recorder recorder(sites);
  RunOptions run;
  run.probe = &recorder;
  const States memory = model.encode(source);
  model.decode(target, &memory, run);
  const auto keys = static_cast<std::int64_t>(translation.source_ids.size()),
             queries = static_cast<std::int64_t>(ids.size());
  std::vector<float> result;
  for (std::int64_t t = 0; t < queries; ++t) {
    const std::int64_t row = after && t + 1 < queries ? t + 1 : t;
    for (std::int64_t key = 0; key < keys; ++key) {
      double sum = 0;
      for (const Site& site : sites) {
        for (const std::int64_t head : heads) sum += recorder.value(site, 0).at(head * queries + row, key);
      }
      result.push_back(static_cast<float>(sum / static_cast<double>(layers.size() * heads.size())));
    }
  }
  return result;
}

TEST_F(Translating, AlignmentIsTheMeanOfTheCrossAttentionAsked) {
  const std::vector<std::string> lines{"How are you?", "你好吗？", "I"};
  struct Case {
    AlignmentOptions options;
    std::vector<int> layers;
    std::vector<std::int64_t> heads;
  };
  const std::vector<Case> cases{{{}, {1}, {0, 1, 2, 3}},
                                {{{-1}, {}, false}, {2}, {0, 1, 2, 3}},
                                {{{0, 2, 0}, {3, 1}, false}, {0, 2}, {1, 3}},
                                {{{}, {2}, true}, {1}, {2}}};
  for (const Case& one : cases) {
    TranslateOptions options = quick();
    options.align = true;
    options.alignment = one.options;
    const auto translations = translator.translate(lines, options);
    for (const Translation& translation : translations) {
      const auto expected = recorded_alignment(model, translation, one.layers, one.heads, one.options.after);
      ASSERT_EQ(translation.alignment.size(), expected.size());
      for (std::size_t i = 0; i < expected.size(); ++i) EXPECT_NEAR(translation.alignment[i], expected[i], 1e-6);
      for (std::size_t t = 0; t < translation.hypotheses[0].tokens.ids.size(); ++t) {
        double sum = 0;
        for (std::size_t s = 0; s < translation.source_ids.size(); ++s) {
          sum += translation.weight(static_cast<std::int64_t>(t), static_cast<std::int64_t>(s));
        }
        EXPECT_NEAR(sum, 1, 1e-5);
      }
    }
  }
  TranslateOptions options = quick();
  options.align = true;
  options.alignment.layers = {3};
  expect_error(ErrorKind::argument, "layer 3 of a decoder of 3", [&] { translator.translate("a", options); });
  options.alignment.layers = {-4};
  expect_error(ErrorKind::argument, "layer -4", [&] { translator.translate("a", options); });
  options.alignment = {};
  options.alignment.heads = {4};
  expect_error(ErrorKind::argument, "head 4 of 4", [&] { translator.translate("a", options); });
}

TEST_F(Translating, BadLinesAreNamed) {
  TranslateOptions options = quick();
  options.first_line = 41;
  const auto translate = [&](std::vector<std::string> lines) {
    return [&, lines] { translator.translate(lines, options); };
  };
  expect_error(ErrorKind::text, "line 42: has 102 tokens and the model reads at most 96",
               translate({"a", std::string(100, 'b')}));
  EXPECT_NO_THROW(translator.translate(std::string(94, 'b'), options));
  expect_error(ErrorKind::text, "line 43", translate({"a", "", "b\xff"}));
}

TEST_F(Translating, ScoresOfPairsAreThoseOfTheModel) {
  const std::vector<std::string> sources{"How are you?", "你好", "I"}, targets{"好", "Hi", ""};
  const auto scores = translator.score(sources, targets);
  ASSERT_EQ(scores.size(), 3u);
  for (std::size_t i = 0; i < 3; ++i) {
    const auto source = encode_source(translate_task(), *tokenizer, sources[i], i == 1 ? "en" : "zh");
    std::vector<std::int32_t> expected = tokenizer->encode(targets[i]);
    expected.push_back(byte_eos);
    EXPECT_EQ(scores[i].ids, expected);
    std::vector<std::int32_t> read{byte_bos};
    double total = 0;
    for (std::size_t t = 0; t < expected.size(); ++t) {
      const double log_probability = next_log_probabilities(model, source, read)[static_cast<std::size_t>(expected[t])];
      EXPECT_NEAR(scores[i].log_probabilities[t], log_probability, 2e-4);
      total += log_probability;
      read.push_back(expected[t]);
    }
    EXPECT_NEAR(scores[i].total, total, 1e-3);
    EXPECT_NEAR(std::log(scores[i].perplexity), -total / static_cast<double>(expected.size()), 1e-3);
  }
  expect_error(ErrorKind::argument, "3 sources and 2 targets",
               [&] { translator.score(sources, std::span(targets).first(2)); });
  expect_error(ErrorKind::text, "line 1: its target", [&] {
    translator.score(std::vector<std::string>{"a"}, std::vector<std::string>{std::string(96, 'x')});
  });
}

TEST_F(Translating, WhatDoesNotFitIsRefused) {
  const auto make = [&](std::shared_ptr<const Tokenizer> source, std::shared_ptr<const Tokenizer> target, Task task) {
    return [this, source, target, task] { Translator(model, source, target, task); };
  };
  expect_error(ErrorKind::config, "no tokenizer for the encoder", make(nullptr, tokenizer, translate_task()));
  expect_error(ErrorKind::config, "259 tokens and the decoder a vocabulary of 261",
               make(tokenizer, byte_tokenizer(), translate_task()));
  Task task = translate_task();
  task.target_tags["zh"] = "<2fr>";
  expect_error(ErrorKind::config, "\"<2fr>\"", make(tokenizer, tokenizer, task));
  const Model decoder(rotary_decoder(261).config, 1);
  expect_error(ErrorKind::config, "a decoder alone",
               [&] { Translator(decoder, tokenizer, tokenizer, translate_task()); });
  expect_error(ErrorKind::config, "not a decoder alone", [&] { TextGenerator(model, tokenizer, {}); });
  expect_error(ErrorKind::config, "259 tokens", [&] { TextGenerator(decoder, byte_tokenizer(), {}); });
}

class GeneratingText : public ::testing::Test {
 protected:
  static Task lines_task(bool lines) {
    Task task;
    task.kind = Task::Kind::generate;
    task.lines = lines;
    return task;
  }
  Model model = lively_model(rotary_decoder(261).config, 4);
  std::shared_ptr<const Tokenizer> tokenizer = bytes_with_tags();
  TextGenerator lines{model, tokenizer, lines_task(true)}, blocks{model, tokenizer, lines_task(false)};
};

TEST_F(GeneratingText, GoesOnFromPrompts) {
  GenerateOptions options;
  options.decode.max_length = 30;
  const std::vector<std::string> prompts{"Once", "", "床前"};
  const auto continuations = lines.generate(prompts, options);
  ASSERT_EQ(continuations.size(), 3u);
  for (std::size_t i = 0; i < 3; ++i) {
    EXPECT_EQ(continuations[i].prompt_ids, joined({byte_bos}, tokenizer->encode(prompts[i])));
    const std::vector<DecodeInput> inputs{{{}, continuations[i].prompt_ids, {}}};
    const auto expected = generate(model, inputs, with_tokens_of(*tokenizer, options.decode));
    EXPECT_EQ(continuations[i].hypotheses[0].tokens.ids, expected[0][0].ids);
    EXPECT_EQ(continuations[i].hypotheses[0].text, tokenizer->decode(expected[0][0].ids));
    EXPECT_EQ(lines.generate(prompts[i], options).hypotheses[0].text, continuations[i].hypotheses[0].text);
  }
  EXPECT_EQ(blocks.generate("Once", options).prompt_ids, tokenizer->encode("Once"));
  options.first_line = 7;
  expect_error(ErrorKind::text, "prompt 8: is empty", [&] {
    blocks.generate(std::vector<std::string>{"a", ""}, options);
  });
  expect_error(ErrorKind::text, "prompt 7: has 97 tokens", [&] { lines.generate(std::string(96, 'a'), options); });
  expect_error(ErrorKind::text, "prompt 7", [&] { lines.generate("\xc3", options); });
}

TEST_F(GeneratingText, StreamsWhatItReturns) {
  for (const Strategy strategy : {Strategy::greedy, Strategy::sample}) {
    GenerateOptions options;
    options.decode.strategy = strategy;
    options.decode.max_length = 40;
    options.decode.n_best = strategy == Strategy::greedy ? 1 : 2;
    const std::vector<std::string> prompts{"Once", "床前", ""};
    std::map<std::pair<std::int64_t, std::int64_t>, std::string> streamed;
    options.on_text = [&](std::int64_t prompt, std::int64_t sample, std::string_view text) {
      streamed[{prompt, sample}] += text;
      return true;
    };
    const auto continuations = lines.generate(prompts, options);
    for (std::size_t i = 0; i < prompts.size(); ++i) {
      for (std::size_t k = 0; k < continuations[i].hypotheses.size(); ++k) {
        const std::pair key{static_cast<std::int64_t>(i), static_cast<std::int64_t>(k)};
        EXPECT_EQ(streamed[key], continuations[i].hypotheses[k].text);
      }
    }
    int pieces = 0;
    options.on_text = [&](std::int64_t prompt, std::int64_t, std::string_view) { return prompt != 0 || ++pieces < 3; };
    const auto stopped = lines.generate(prompts, options);
    EXPECT_LT(stopped[0].hypotheses[0].tokens.ids.size(), 40u);
  }
}

TEST_F(GeneratingText, ScoresLines) {
  const std::vector<std::string> text{"ab", "", "床前明月光"};
  const auto scores = lines.score(text), running = blocks.score(text, 2);
  EXPECT_EQ(scores[0].ids, (std::vector<std::int32_t>{'a', 'b', byte_eos}));
  EXPECT_EQ(scores[1].ids, (std::vector<std::int32_t>{byte_eos}));
  EXPECT_EQ(running[0].ids, (std::vector<std::int32_t>{'b'}));
  EXPECT_TRUE(running[1].ids.empty());
  EXPECT_EQ(running[1].total, 0);
  EXPECT_EQ(running[1].perplexity, 1);
  const std::vector<std::int32_t> read{byte_bos, 'a'};
  EXPECT_NEAR(scores[0].log_probabilities[1], next_log_probabilities(model, {}, read)['b'], 2e-4);
  EXPECT_EQ(scores[2].ids.size(), 16u);
  expect_error(ErrorKind::text, "line 12", [&] {
    lines.score(std::vector<std::string>{"a", std::string(200, 'b')}, 4, 11);
  });
}

}  // namespace
}  // namespace attend
