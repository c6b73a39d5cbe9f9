#include <gtest/gtest.h>

#include <cmath>

#include "attend/metrics.h"
#include "unit/text_files.h"

namespace attend {
namespace {

using Strings = std::vector<std::string>;

// Papineni et al. 2002, example 2: "the" seven times against "the cat is on the mat" has clipped unigram precision 2/7.
TEST(Bleu, ClipsAsThePaperSays) {
  const Strings hypothesis{"the the the the the the the"}, reference{"The cat is on the mat"};
  BleuOptions options;
  options.lower_case = true;
  const BleuScore bleu = corpus_bleu(hypothesis, reference, options);
  EXPECT_EQ(bleu.matches, (std::array<std::int64_t, 4>{2, 0, 0, 0}));
  EXPECT_EQ(bleu.totals, (std::array<std::int64_t, 4>{7, 6, 5, 4}));
  EXPECT_DOUBLE_EQ(bleu.precisions[0], 200.0 / 7.0);
  EXPECT_DOUBLE_EQ(bleu.brevity_penalty, 1.0);
  options.smoothing = BleuSmoothing::none;
  EXPECT_EQ(corpus_bleu(hypothesis, reference, options).score, 0.0);
}

TEST(Bleu, BrevityPenaltyAndSmoothingByHand) {
  // 5 words of 6; matches 5, 4, 3, 2 of 5, 4, 3, 2.
  const BleuScore shorter = sentence_bleu("a b c d e", "a b c d e f");
  EXPECT_DOUBLE_EQ(shorter.brevity_penalty, std::exp(1.0 - 6.0 / 5.0));
  EXPECT_NEAR(shorter.score, 100.0 * std::exp(-0.2), 1e-12);
  // No common 3-gram: of 3 and 2 that there are, 1/2 and 1/4 count.
  const BleuScore smoothed = sentence_bleu("a b x c d", "a b y c d");
  EXPECT_NEAR(smoothed.score, 100.0 * std::pow((4.0 / 5) * (2.0 / 4) * (0.5 / 3) * (0.25 / 2), 0.25), 1e-12);
  // Two words: only two orders count for a sentence, and a corpus of it has no score.
  EXPECT_NEAR(sentence_bleu("a b", "a b").score, 100.0, 1e-12);
  EXPECT_EQ(corpus_bleu(Strings{"a b"}, Strings{"a b"}).score, 0.0);
}

TEST(Bleu, CorpusIsNotTheMeanOfSentences) {
  const Strings hypotheses{"a b c d", "x"}, references{"a b c d", "y y y y"};
  const BleuScore bleu = corpus_bleu(hypotheses, references);
  EXPECT_EQ(bleu.hypothesis_length, 5);
  EXPECT_EQ(bleu.reference_length, 8);
  EXPECT_NEAR(bleu.score, 100.0 * std::exp(1.0 - 8.0 / 5.0) * std::pow(4.0 / 5.0, 0.25), 1e-12);
}

TEST(Chrf, ByHand) {
  EXPECT_NEAR(sentence_chrf("abcdef", "abcdef"), 100.0, 1e-12);
  EXPECT_EQ(sentence_chrf("abc", "xyz"), 0.0);
  EXPECT_EQ(sentence_chrf("", "xyz"), 0.0);
  ChrfOptions one;
  one.character_order = 1;
  // "ab" against "abcd": precision 1, recall 1/2, F2 = 5 * 0.5 / (4 * 1 + 0.5).
  EXPECT_NEAR(sentence_chrf("ab", "abcd", one), 100.0 * 2.5 / 4.5, 1e-12);
  EXPECT_NEAR(sentence_chrf("a b", "abcd", one), 100.0 * 2.5 / 4.5, 1e-12);  // blanks do not count
}

TEST(Metrics, BadArguments) {
  expect_error(ErrorKind::argument, {"2 hypotheses", "1 references"}, [] {
    corpus_bleu(Strings{"a", "b"}, Strings{"a"});
  });
  expect_error(ErrorKind::argument, {"no sentences"}, [] { corpus_bleu(Strings{}, Strings{}); });
  expect_error(ErrorKind::argument, {"0 hypotheses"}, [] { corpus_chrf(Strings{}, Strings{"a"}); });
  ChrfOptions options;
  options.character_order = 0;
  expect_error(ErrorKind::argument, {"character_order 0"}, [&] { sentence_chrf("a", "a", options); });
  expect_error(ErrorKind::argument, {"\"14\"", "13a"}, [] { bleu_tokenizer_named("14"); });
  for (const auto t : {BleuTokenizer::standard, BleuTokenizer::chinese, BleuTokenizer::character, BleuTokenizer::intl,
                       BleuTokenizer::none})
    EXPECT_EQ(bleu_tokenizer_named(name_of(t)), t);
}

TEST(Metrics, IllFormedTextIsScoredAsReplaced) {
  EXPECT_NEAR(sentence_bleu("a \xFF b c", "a \xEF\xBF\xBD b c").score, 100.0, 1e-12);
  EXPECT_NEAR(sentence_chrf("a\xFF", "a\xEF\xBF\xBD"), 100.0, 1e-12);
}

}  // namespace
}  // namespace attend
