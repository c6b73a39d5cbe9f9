// Scores of translations against references: BLEU and chrF with the definitions and the figures of sacreBLEU
// (Post 2018), one reference for each hypothesis. Scores are 0 to 100.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace attend {

// How BLEU cuts text into words.
enum class BleuTokenizer {
  standard,   // "13a": mteval-v13a, for languages with blanks between words
  chinese,    // "zh": every Chinese character a word, the rest as 13a's mteval rules
  character,  // "char": every character a word
  intl,       // "intl": mteval-v14 with Unicode's punctuation and symbols
  none,       // "none": the text is cut at blanks only
};

const char* name_of(BleuTokenizer tokenizer);               // "13a", "zh", "char", "intl", "none"
BleuTokenizer bleu_tokenizer_named(std::string_view name);  // Error(argument) with the known names
// Words with single blanks between them.
std::string tokenise_for_bleu(std::string_view text, BleuTokenizer tokenizer);

enum class BleuSmoothing {
  exponential,  // "exp": the n-th order without a match counts as 1/2^n matches (Chen and Cherry 2014, method 3)
  none,
};

struct BleuOptions {
  BleuTokenizer tokenizer = BleuTokenizer::standard;
  BleuSmoothing smoothing = BleuSmoothing::exponential;
  bool lower_case = false;
};

constexpr int bleu_order = 4;

struct BleuScore {
  double score = 0;
  std::array<double, bleu_order> precisions{};     // 0 to 100, smoothed
  std::array<std::int64_t, bleu_order> matches{};  // n-grams of the hypotheses found in the references (clipped)
  std::array<std::int64_t, bleu_order> totals{};   // n-grams of the hypotheses
  double brevity_penalty = 0;                      // 0 to 1
  std::int64_t hypothesis_length = 0, reference_length = 0;  // words
};

// BLEU (Papineni, Roukos, Ward, Zhu 2002, section 2.3) of a whole corpus. Ill-formed UTF-8 is read as U+FFFD.
// Error(argument): no sentences, or not as many hypotheses as references.
BleuScore corpus_bleu(std::span<const std::string> hypotheses, std::span<const std::string> references,
                      const BleuOptions& options = {});
// BLEU of one sentence, over the orders that its length allows ("effective order").
BleuScore sentence_bleu(std::string_view hypothesis, std::string_view reference, const BleuOptions& options = {});

struct ChrfOptions {
  int word_order = 0;  // 0: chrF2 (Popovic 2015); 2: chrF2++ (Popovic 2017)
  int character_order = 6;
  int beta = 2;  // recall counts beta times as much as precision
  bool lower_case = false;
};

// chrF of a whole corpus: n-gram counts are summed over all sentences, then F-scores averaged over the orders.
// Error(argument) as corpus_bleu.
double corpus_chrf(std::span<const std::string> hypotheses, std::span<const std::string> references,
                   const ChrfOptions& options = {});
double sentence_chrf(std::string_view hypothesis, std::string_view reference, const ChrfOptions& options = {});

}  // namespace attend
