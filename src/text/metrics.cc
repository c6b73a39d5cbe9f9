#include "attend/metrics.h"

#include <utf8proc.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <unordered_map>

#include "attend/error.h"
#include "attend/unicode.h"
#include "text/utf8.h"

namespace attend {
namespace {

using Counts = std::unordered_map<std::string, std::int64_t>;

bool is_digit(char c) { return c >= '0' && c <= '9'; }

// ASCII punctuation and symbols except ' , - and . , and the blank: mteval-v13a puts each of them alone.
bool stands_alone(char c) {
  return (c >= '{' && c <= '~') || (c >= '[' && c <= '`') || (c >= ' ' && c <= '&') || (c >= '(' && c <= '+') ||
         (c >= ':' && c <= '@') || c == '/';
}

void replace_all(std::string& text, std::string_view from, std::string_view to) {
  std::size_t position = 0;
  while ((position = text.find(from, position)) != std::string::npos) {
    text.replace(position, from.size(), to);
    position += to.size();
  }
}

std::vector<std::string> words_of(std::string_view text) {
  std::vector<std::string> words;
  std::size_t position = 0, begin = 0;
  bool in_word = false;
  while (position < text.size()) {
    const Utf8Step step = utf8_step(text, position);
    const bool blank = is_white_space(step.character);
    if (blank && in_word) words.emplace_back(text.substr(begin, position - begin));
    if (!blank && !in_word) begin = position;
    in_word = !blank;
    position += step.length;
  }
  if (in_word) words.emplace_back(text.substr(begin));
  return words;
}

std::string joined(const std::vector<std::string>& words) {
  std::string text;
  for (const std::string& word : words) {
    if (!text.empty()) text += ' ';
    text += word;
  }
  return text;
}

std::string_view without_blanks_around(std::string_view text, bool front) {
  std::size_t begin = text.size(), end = 0, position = 0;
  while (position < text.size()) {
    const Utf8Step step = utf8_step(text, position);
    if (!is_white_space(step.character)) {
      begin = std::min(begin, position);
      end = position + step.length;
    }
    position += step.length;
  }
  if (end == 0) return {};
  return text.substr(front ? begin : 0, end - (front ? begin : 0));
}

// The four rewriting passes of mteval-v13a. Each consumes what it matched, as a regular expression does, so in ".,"
// after a letter only the first is taken by a pass. Bytes are enough: a byte of a longer character is "not a digit".
std::string mteval_words(std::string_view text) {
  std::string alone;
  for (const char c : text) {
    if (stands_alone(c)) alone += {' ', c, ' '};
    else alone += c;
  }
  std::string after_other;  // [.,] after a character that is not a digit
  for (std::size_t i = 0; i < alone.size(); ++i) {
    after_other += alone[i];
    if (!is_digit(alone[i]) && i + 1 < alone.size() && (alone[i + 1] == '.' || alone[i + 1] == ',')) {
      after_other += {' ', alone[i + 1], ' '};
      ++i;
    }
  }
  std::string before_other;  // [.,] before a character that is not a digit
  for (std::size_t i = 0; i < after_other.size(); ++i) {
    const char c = after_other[i];
    if ((c == '.' || c == ',') && i + 1 < after_other.size() && !is_digit(after_other[i + 1])) {
      before_other += {' ', c, ' ', after_other[i + 1]};
      ++i;
    } else {
      before_other += c;
    }
  }
  std::string result;  // - after a digit
  for (std::size_t i = 0; i < before_other.size(); ++i) {
    result += before_other[i];
    if (is_digit(before_other[i]) && i + 1 < before_other.size() && before_other[i + 1] == '-') {
      result += " - ";
      ++i;
    }
  }
  return joined(words_of(result));
}

std::string standard_words(std::string_view text) {
  std::string line(text);
  replace_all(line, "<skipped>", "");
  replace_all(line, "-\n", "");
  replace_all(line, "\n", " ");
  replace_all(line, "&quot;", "\"");
  replace_all(line, "&amp;", "&");
  replace_all(line, "&lt;", "<");
  replace_all(line, "&gt;", ">");
  return mteval_words(" " + line + " ");
}

// The ranges that sacreBLEU really tests. Two of its bounds are written with five hexadecimal digits where the language
// reads four, so "U+20000 to U+2A6D6" is U+2001 to U+2A6D (much punctuation and many symbols), and the ideographs
// beyond U+FFFF are not in; equal scores need the same.
bool is_chinese(char32_t c) {
  static constexpr char32_t ranges[][2] = {
      {0x3400, 0x4DB5}, {0x4E00, 0x9FA5}, {0x9FA6, 0x9FBB}, {0xF900, 0xFA2D}, {0xFA30, 0xFA6A}, {0xFA70, 0xFAD9},
      {0x2001, 0x2A6D}, {0x2F81, 0x2FA1}, {0xFF00, 0xFFEF}, {0x2E80, 0x2EFF}, {0x3000, 0x303F}, {0x31C0, 0x31EF},
      {0x2F00, 0x2FDF}, {0x2FF0, 0x2FFF}, {0x3100, 0x312F}, {0x31A0, 0x31BF}, {0xFE10, 0xFE1F}, {0xFE30, 0xFE4F},
      {0x2600, 0x26FF}, {0x2700, 0x27BF}, {0x3200, 0x32FF}, {0x3300, 0x33FF}};
  return std::any_of(std::begin(ranges), std::end(ranges),
                     [c](const char32_t(&range)[2]) { return c >= range[0] && c <= range[1]; });
}

std::string chinese_words(std::string_view text) {
  std::string apart;
  for (const char32_t character : characters_of(without_blanks_around(text, true))) {
    const bool chinese = is_chinese(character);
    if (chinese) apart += ' ';
    append_character(apart, character);
    if (chinese) apart += ' ';
  }
  return mteval_words(apart);
}

std::string character_words(std::string_view text) {
  std::string apart;
  for (const char32_t character : characters_of(text)) {
    append_character(apart, character);
    apart += ' ';
  }
  return joined(words_of(apart));
}

enum class CharacterClass { number, punctuation, symbol, other };

CharacterClass class_of(char32_t character) {
  switch (utf8proc_category(static_cast<utf8proc_int32_t>(character))) {
    case UTF8PROC_CATEGORY_ND:
    case UTF8PROC_CATEGORY_NL:
    case UTF8PROC_CATEGORY_NO:
      return CharacterClass::number;
    case UTF8PROC_CATEGORY_PC:
    case UTF8PROC_CATEGORY_PD:
    case UTF8PROC_CATEGORY_PS:
    case UTF8PROC_CATEGORY_PE:
    case UTF8PROC_CATEGORY_PI:
    case UTF8PROC_CATEGORY_PF:
    case UTF8PROC_CATEGORY_PO:
      return CharacterClass::punctuation;
    case UTF8PROC_CATEGORY_SM:
    case UTF8PROC_CATEGORY_SC:
    case UTF8PROC_CATEGORY_SK:
    case UTF8PROC_CATEGORY_SO:
      return CharacterClass::symbol;
    default:
      return CharacterClass::other;
  }
}

// mteval-v14: punctuation apart unless digits are on both sides, every symbol apart.
std::string international_words(std::string_view text) {
  const auto punctuation = [](char32_t c) { return class_of(c) == CharacterClass::punctuation; };
  const auto number = [](char32_t c) { return class_of(c) == CharacterClass::number; };
  const std::vector<char32_t> line = characters_of(text);
  std::vector<char32_t> after_other;
  for (std::size_t i = 0; i < line.size(); ++i) {
    after_other.push_back(line[i]);
    if (!number(line[i]) && i + 1 < line.size() && punctuation(line[i + 1])) {
      after_other.insert(after_other.end(), {U' ', line[i + 1], U' '});
      ++i;
    }
  }
  std::vector<char32_t> before_other;
  for (std::size_t i = 0; i < after_other.size(); ++i) {
    if (punctuation(after_other[i]) && i + 1 < after_other.size() && !number(after_other[i + 1])) {
      before_other.insert(before_other.end(), {U' ', after_other[i], U' ', after_other[i + 1]});
      ++i;
    } else {
      before_other.push_back(after_other[i]);
    }
  }
  std::string result;
  for (const char32_t character : before_other) {
    const bool symbol = class_of(character) == CharacterClass::symbol;
    if (symbol) result += ' ';
    append_character(result, character);
    if (symbol) result += ' ';
  }
  return joined(words_of(result));
}

std::string valid(std::string_view text, bool lower) {
  std::string result = replace_invalid_utf8(text);
  return lower ? lower_case(result) : result;
}

void check_sizes(const char* where, std::size_t hypotheses, std::size_t references) {
  if (hypotheses != references)
    throw Error(ErrorKind::argument, where,
                join("there are ", hypotheses, " hypotheses and ", references, " references"),
                "give one reference for each hypothesis, in the same order");
  if (hypotheses == 0)
    throw Error(ErrorKind::argument, where, "there are no sentences", "give at least one hypothesis and reference");
}

// n-grams of words, kept apart by the order they belong to; words hold no blanks, so a blank separates them.
Counts word_ngrams(const std::vector<std::string>& words, std::size_t order) {
  Counts counts;
  for (std::size_t i = 0; i + order <= words.size(); ++i) {
    std::string ngram = words[i];
    for (std::size_t j = 1; j < order; ++j) ngram += ' ' + words[i + j];
    ++counts[ngram];
  }
  return counts;
}

std::int64_t common(const Counts& hypothesis, const Counts& reference) {
  std::int64_t matches = 0;
  for (const auto& [ngram, count] : hypothesis) {
    const auto found = reference.find(ngram);
    if (found != reference.end()) matches += std::min(count, found->second);
  }
  return matches;
}

void add_sentence(BleuScore& sum, std::string_view hypothesis, std::string_view reference, const BleuOptions& options) {
  const auto words = [&](std::string_view text) {
    return words_of(
        tokenise_for_bleu(without_blanks_around(valid(text, options.lower_case), false), options.tokenizer));
  };
  const std::vector<std::string> hypothesis_words = words(hypothesis), reference_words = words(reference);
  sum.hypothesis_length += static_cast<std::int64_t>(hypothesis_words.size());
  sum.reference_length += static_cast<std::int64_t>(reference_words.size());
  for (std::size_t n = 0; n < bleu_order; ++n) {
    if (hypothesis_words.size() > n) sum.totals[n] += static_cast<std::int64_t>(hypothesis_words.size() - n);
    sum.matches[n] += common(word_ngrams(hypothesis_words, n + 1), word_ngrams(reference_words, n + 1));
  }
}

void finish(BleuScore& bleu, BleuSmoothing smoothing, bool effective_order) {
  const auto hypothesis = static_cast<double>(bleu.hypothesis_length);
  const auto reference = static_cast<double>(bleu.reference_length);
  bleu.brevity_penalty = 1.0;
  if (hypothesis < reference) bleu.brevity_penalty = hypothesis > 0 ? std::exp(1.0 - reference / hypothesis) : 0.0;
  bleu.score = 0;
  bleu.precisions.fill(0.0);
  if (std::all_of(bleu.matches.begin(), bleu.matches.end(), [](std::int64_t count) { return count == 0; })) return;
  std::size_t orders = bleu_order;
  double halving = 1.0;
  for (std::size_t n = 0; n < bleu_order; ++n) {
    const auto total = static_cast<double>(bleu.totals[n]);
    if (bleu.totals[n] == 0) break;
    if (effective_order) orders = n + 1;
    if (bleu.matches[n] > 0) {
      bleu.precisions[n] = 100.0 * static_cast<double>(bleu.matches[n]) / total;
    } else if (smoothing == BleuSmoothing::exponential) {
      halving *= 2.0;
      bleu.precisions[n] = 100.0 / (halving * total);
    }
  }
  double logarithms = 0;
  for (std::size_t n = 0; n < orders; ++n) {
    if (bleu.precisions[n] == 0.0) return;
    logarithms += std::log(bleu.precisions[n]);
  }
  bleu.score = bleu.brevity_penalty * std::exp(logarithms / static_cast<double>(orders));
}

struct ChrfCounts {
  std::int64_t hypothesis = 0, reference = 0, matches = 0;
};

// Words for chrF++: one punctuation mark at the end, or else one at the front, is a word of its own.
std::vector<std::string> chrf_words(std::string_view text) {
  const auto mark = [](char c) {
    return (c >= '!' && c <= '/') || (c >= ':' && c <= '@') || (c >= '[' && c <= '`') || (c >= '{' && c <= '~');
  };
  std::vector<std::string> words;
  for (const std::string& word : words_of(text)) {
    const bool single = utf8_step(word, 0).length == word.size();
    if (!single && mark(word.back())) {
      words.push_back(word.substr(0, word.size() - 1));
      words.push_back(word.substr(word.size() - 1));
    } else if (!single && mark(word.front())) {
      words.push_back(word.substr(0, 1));
      words.push_back(word.substr(1));
    } else {
      words.push_back(word);
    }
  }
  return words;
}

Counts character_ngrams(const std::string& text, const std::vector<std::size_t>& starts, std::size_t order) {
  Counts counts;
  for (std::size_t i = 0; i + order < starts.size(); ++i)
    ++counts[text.substr(starts[i], starts[i + order] - starts[i])];
  return counts;
}

void add_ngrams(ChrfCounts& sum, const Counts& hypothesis, const Counts& reference) {
  for (const auto& [ngram, count] : reference) sum.reference += count;
  // An order that the reference of this sentence is too short for does not count against the hypothesis.
  if (!reference.empty())
    for (const auto& [ngram, count] : hypothesis) sum.hypothesis += count;
  sum.matches += common(hypothesis, reference);
}

void add_sentence(std::vector<ChrfCounts>& sums, std::string_view hypothesis, std::string_view reference,
                  const ChrfOptions& options) {
  struct Side {
    std::vector<std::string> words;
    std::string letters;              // without blanks
    std::vector<std::size_t> starts;  // of each character, and the end
  };
  const auto side_of = [&](std::string_view text) {
    Side side;
    const std::string line = valid(text, options.lower_case);
    for (const std::string& word : words_of(line)) side.letters += word;
    for (std::size_t at = 0; at < side.letters.size(); at += utf8_step(side.letters, at).length)
      side.starts.push_back(at);
    side.starts.push_back(side.letters.size());
    if (options.word_order > 0) side.words = chrf_words(line);
    return side;
  };
  const Side left = side_of(hypothesis), right = side_of(reference);
  const auto characters = static_cast<std::size_t>(options.character_order);
  for (std::size_t n = 0; n < characters; ++n)
    add_ngrams(sums[n], character_ngrams(left.letters, left.starts, n + 1),
               character_ngrams(right.letters, right.starts, n + 1));
  for (std::size_t n = 0; n < static_cast<std::size_t>(options.word_order); ++n)
    add_ngrams(sums[characters + n], word_ngrams(left.words, n + 1), word_ngrams(right.words, n + 1));
}

double chrf_of(const std::vector<ChrfCounts>& sums, int beta) {
  double precision = 0, recall = 0;
  int orders = 0;
  for (const ChrfCounts& sum : sums) {
    if (sum.hypothesis == 0 || sum.reference == 0) continue;
    precision += static_cast<double>(sum.matches) / static_cast<double>(sum.hypothesis);
    recall += static_cast<double>(sum.matches) / static_cast<double>(sum.reference);
    ++orders;
  }
  if (orders == 0 || precision + recall == 0) return 0;
  precision /= orders;
  recall /= orders;
  const double factor = static_cast<double>(beta) * beta;
  return 100.0 * (1.0 + factor) * precision * recall / (factor * precision + recall);
}

void check(const ChrfOptions& options) {
  if (options.character_order < 1 || options.word_order < 0 || options.beta < 1 || options.character_order > 100 ||
      options.word_order > 100)
    throw Error(ErrorKind::argument, "chrF",
                join("character_order ", options.character_order, ", word_order ", options.word_order, ", beta ",
                     options.beta, " are not possible"),
                "use orders of 1 to 100 (word_order may be 0) and beta of at least 1");
}

}  // namespace

const char* name_of(BleuTokenizer tokenizer) {
  switch (tokenizer) {
    case BleuTokenizer::standard:
      return "13a";
    case BleuTokenizer::chinese:
      return "zh";
    case BleuTokenizer::character:
      return "char";
    case BleuTokenizer::intl:
      return "intl";
    case BleuTokenizer::none:
      return "none";
  }
  return "unknown";
}

BleuTokenizer bleu_tokenizer_named(std::string_view name) {
  for (const auto tokenizer : {BleuTokenizer::standard, BleuTokenizer::chinese, BleuTokenizer::character,
                               BleuTokenizer::intl, BleuTokenizer::none})
    if (name == name_of(tokenizer)) return tokenizer;
  throw Error(ErrorKind::argument, "BLEU tokenizer", join("\"", name, "\" is not known"),
              "use 13a, zh, char, intl or none");
}

std::string tokenise_for_bleu(std::string_view text, BleuTokenizer tokenizer) {
  const std::string line = replace_invalid_utf8(text);
  switch (tokenizer) {
    case BleuTokenizer::standard:
      return standard_words(line);
    case BleuTokenizer::chinese:
      return chinese_words(line);
    case BleuTokenizer::character:
      return character_words(line);
    case BleuTokenizer::intl:
      return international_words(line);
    case BleuTokenizer::none:
      break;
  }
  return joined(words_of(line));
}

BleuScore corpus_bleu(std::span<const std::string> hypotheses, std::span<const std::string> references,
                      const BleuOptions& options) {
  check_sizes("BLEU", hypotheses.size(), references.size());
  BleuScore bleu;
  for (std::size_t i = 0; i < hypotheses.size(); ++i) add_sentence(bleu, hypotheses[i], references[i], options);
  finish(bleu, options.smoothing, false);
  return bleu;
}

BleuScore sentence_bleu(std::string_view hypothesis, std::string_view reference, const BleuOptions& options) {
  BleuScore bleu;
  add_sentence(bleu, hypothesis, reference, options);
  finish(bleu, options.smoothing, true);
  return bleu;
}

double corpus_chrf(std::span<const std::string> hypotheses, std::span<const std::string> references,
                   const ChrfOptions& options) {
  check_sizes("chrF", hypotheses.size(), references.size());
  check(options);
  std::vector<ChrfCounts> sums(static_cast<std::size_t>(options.character_order + options.word_order));
  for (std::size_t i = 0; i < hypotheses.size(); ++i) add_sentence(sums, hypotheses[i], references[i], options);
  return chrf_of(sums, options.beta);
}

double sentence_chrf(std::string_view hypothesis, std::string_view reference, const ChrfOptions& options) {
  const std::string one[] = {std::string(hypothesis)}, other[] = {std::string(reference)};
  return corpus_chrf(one, other, options);
}

}  // namespace attend
