// Scores of sacreBLEU for the same sentences.
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "attend/corpus.h"
#include "attend/metrics.h"
#include "attend/unicode.h"

namespace attend {
namespace {

using Json = nlohmann::json;
using Strings = std::vector<std::string>;
constexpr double tolerance = 1e-9;

Json read(const char* name) {
  return Json::parse(read_text(std::string(ATTEND_SOURCE_DIR) + "/tests/golden/metrics/" + name).text);
}

void expect_equal(const BleuScore& bleu, const Json& expected) {
  EXPECT_NEAR(bleu.score, expected["score"].get<double>(), tolerance);
  EXPECT_NEAR(bleu.brevity_penalty, expected["bp"].get<double>(), tolerance);
  EXPECT_EQ(bleu.hypothesis_length, expected["sys_len"].get<std::int64_t>());
  EXPECT_EQ(bleu.reference_length, expected["ref_len"].get<std::int64_t>());
  for (std::size_t n = 0; n < 4; ++n) {
    EXPECT_EQ(bleu.matches[n], expected["counts"][n].get<std::int64_t>());
    EXPECT_EQ(bleu.totals[n], expected["totals"][n].get<std::int64_t>());
    EXPECT_NEAR(bleu.precisions[n], expected["precisions"][n].get<double>(), tolerance);
  }
}

TEST(SacreBleu, TatoebaCases) {
  const Json cases = read("tatoeba.json");
  ASSERT_EQ(cases.size(), 2u);
  for (const Json& one : cases) {
    SCOPED_TRACE(one["name"].get<std::string>());
    const auto hypotheses = one["hypotheses"].get<Strings>(), references = one["references"].get<Strings>();
    int scores = 0;
    for (const auto& [name, expected] : one["scores"].items()) {
      SCOPED_TRACE(name);
      ++scores;
      if (name.substr(0, 4) == "chrf") {
        ChrfOptions options;
        options.word_order = name == "chrf2++" ? 2 : 0;
        EXPECT_NEAR(corpus_chrf(hypotheses, references, options), expected.get<double>(), tolerance);
      } else {
        BleuOptions options;
        std::string tokenizer = name.substr(5);
        options.lower_case = tokenizer.size() > 3 && tokenizer.substr(tokenizer.size() - 3) == "/lc";
        if (options.lower_case) tokenizer.resize(tokenizer.size() - 3);
        options.tokenizer = bleu_tokenizer_named(tokenizer);
        expect_equal(corpus_bleu(hypotheses, references, options), expected);
      }
    }
    EXPECT_EQ(scores, 8);
    BleuOptions options;
    if (one["name"] == "zh-short") options.tokenizer = BleuTokenizer::chinese;
    for (std::size_t i = 0; i < 10; ++i)
      EXPECT_NEAR(sentence_bleu(hypotheses[i], references[i], options).score,
                  one["sentence_bleu_first10"][i].get<double>(), tolerance);
  }
}

TEST(SacreBleu, QuirksOfTokenizersAndCase) {
  const Json quirks = read("quirks.json");
  const auto hypotheses = quirks["hypotheses"].get<Strings>(), references = quirks["references"].get<Strings>();
  for (std::size_t i = 0; i < hypotheses.size(); ++i) {
    EXPECT_EQ(lower_case(hypotheses[i]), quirks["lower"][i][0].get<std::string>());
    EXPECT_EQ(lower_case(references[i]), quirks["lower"][i][1].get<std::string>());
    for (const auto& [name, lines] : quirks["tokenised"].items()) {
      // The scores strip the end of the line before they cut it.
      EXPECT_EQ(tokenise_for_bleu(hypotheses[i], bleu_tokenizer_named(name)), lines[i].get<std::string>())
          << name << ": " << hypotheses[i];
    }
  }
  for (const Json& expected : quirks["corpus"]) {
    SCOPED_TRACE(expected.dump());
    if (expected["metric"] == "bleu") {
      BleuOptions options;
      options.tokenizer = bleu_tokenizer_named(expected["tokenizer"].get<std::string>());
      options.lower_case = expected["lower"].get<bool>();
      options.smoothing = expected["smoothing"] == "exp" ? BleuSmoothing::exponential : BleuSmoothing::none;
      expect_equal(corpus_bleu(hypotheses, references, options), expected);
    } else {
      ChrfOptions options;
      options.word_order = expected["word_order"].get<int>();
      options.lower_case = expected["lower"].get<bool>();
      options.beta = expected["beta"].get<int>();
      EXPECT_NEAR(corpus_chrf(hypotheses, references, options), expected["score"].get<double>(), tolerance);
    }
  }
  for (const Json& expected : quirks["sentences"]) {
    for (std::size_t i = 0; i < hypotheses.size(); ++i) {
      SCOPED_TRACE(expected.dump() + hypotheses[i]);
      double score;
      if (expected["metric"] == "bleu") {
        BleuOptions options;
        options.tokenizer = bleu_tokenizer_named(expected["tokenizer"].get<std::string>());
        options.lower_case = expected["lower"].get<bool>();
        score = sentence_bleu(hypotheses[i], references[i], options).score;
      } else {
        ChrfOptions options;
        options.word_order = expected["word_order"].get<int>();
        options.lower_case = expected["lower"].get<bool>();
        options.beta = expected["beta"].get<int>();
        score = sentence_chrf(hypotheses[i], references[i], options);
      }
      EXPECT_NEAR(score, expected["scores"][i].get<double>(), tolerance);
    }
  }
}

}  // namespace
}  // namespace attend
