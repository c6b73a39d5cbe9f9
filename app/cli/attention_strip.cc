#include "attention_strip.h"

#include <algorithm>
#include <cstdio>
#include <numeric>

#include "attend/unicode.h"
#include "terminal.h"

namespace attend::cli {
namespace {

bool is_han(char32_t c) { return (c >= 0x3400 && c <= 0x9FFF) || (c >= 0x20000 && c <= 0x3FFFF) || (c >= 0xF900 && c <= 0xFAFF); }

// Only letters (and apostrophes and hyphens between them) of scripts that put blanks between words can be joined.
bool joins(std::string_view text) {
  for (const char32_t c : characters_of(text)) {
    const bool letter = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '\'' || c == '-' || (c >= 0xC0 && c < 0x2E80);
    if (!letter || is_han(c)) return false;
  }
  return !text.empty();
}

std::string without_first_blank(const std::string& text) { return text.starts_with(' ') ? text.substr(1) : text; }

// 0 to 4 for a weight.
int level(float weight) { return weight < 0.05f ? 0 : weight < 0.15f ? 1 : weight < 0.35f ? 2 : weight < 0.6f ? 3 : 4; }

std::string cell(float weight, int width, bool colour) {
  static const char* const shades[] = {"·", "░", "▒", "▓", "█"};
  static const int violet[] = {-1, 60, 97, 134, 171};  // of the 256-colour palette, dark to light
  const int step = level(weight);
  std::string text;
  if (colour && step > 0) {
    char number[8];
    std::snprintf(number, sizeof(number), "%.2f", static_cast<double>(weight));
    const std::string digits = width >= 4 ? std::string(number) : width >= 2 ? std::string(number).substr(1, 2) : " ";
    text = "\033[48;5;" + std::to_string(violet[step]) + (step >= 3 ? ";30m" : ";97m") + padded(digits, width) + "\033[0m";
    return text;
  }
  if (step == 0) return "·" + std::string(static_cast<std::size_t>(width - 1), ' ');
  for (int i = 0; i < width; ++i) text += shades[step];
  return text;
}

std::string percent(float weight) {
  char text[16];
  std::snprintf(text, sizeof(text), "%3.0f%%", static_cast<double>(weight) * 100);
  return text;
}

}  // namespace

std::vector<Word> words_of(const Tokenizer& tokenizer, const std::vector<std::int32_t>& ids) {
  std::vector<Word> words;
  bool open = false;  // the last word can take another piece
  for (std::size_t i = 0; i < ids.size(); ++i) {
    const std::string raw = tokenizer.readable(ids[i]);
    const bool control = tokenizer.is_control(ids[i]);
    const std::string text = without_first_blank(raw);
    const bool joinable = !control && joins(text);
    if (open && joinable && !raw.starts_with(' ')) {
      words.back().text += text;
      words.back().last = i;
    } else if (!control && text.empty()) {
      // A lone blank belongs to the word that follows.
      words.push_back({"", i, i, false});
      open = true;
      continue;
    } else if (open && !words.empty() && words.back().text.empty() && !control) {
      words.back().text = text;
      words.back().last = i;
    } else {
      words.push_back({text, i, i, control});
    }
    open = joinable;
  }
  return words;
}

std::vector<std::vector<float>> word_weights(const Translation& translation, const std::vector<Word>& target,
                                             const std::vector<Word>& source) {
  std::vector<std::vector<float>> weights;
  for (const Word& asking : target) {
    std::vector<float> row(source.size(), 0);
    const auto queries = static_cast<float>(asking.last - asking.first + 1);
    for (std::size_t query = asking.first; query <= asking.last; ++query)
      for (std::size_t word = 0; word < source.size(); ++word)
        for (std::size_t key = source[word].first; key <= source[word].last; ++key)
          row[word] += translation.weight(static_cast<std::int64_t>(query), static_cast<std::int64_t>(key)) / queries;
    weights.push_back(std::move(row));
  }
  return weights;
}

std::vector<std::string> attention_strip(const Translator& translator, const Translation& translation, bool by_token, bool colour,
                                         int columns) {
  std::vector<std::string> lines;
  if (translation.alignment.empty()) return lines;
  const auto split = [&](const Tokenizer& tokenizer, const std::vector<std::int32_t>& ids) {
    if (!by_token) return words_of(tokenizer, ids);
    std::vector<Word> tokens;
    for (std::size_t i = 0; i < ids.size(); ++i) tokens.push_back({tokenizer.readable(ids[i]), i, i, tokenizer.is_control(ids[i])});
    return tokens;
  };
  const std::vector<Word> source = split(translator.source(), translation.source_ids);
  const std::vector<Word> target = split(translator.target(), translation.hypotheses.front().tokens.ids);
  const auto weights = word_weights(translation, target, source);

  int label = 4, total = 0;
  for (const Word& word : target) label = std::max(label, std::min(display_width(word.text), 20));
  std::vector<int> widths;
  for (const Word& word : source) {
    widths.push_back(std::max(4, display_width(word.text)));
    total += widths.back() + 1;
  }
  const auto dim = [&](const std::string& text) { return colour ? "\033[2m" + text + "\033[0m" : text; };
  const bool matrix = 2 + label + 2 + total + 16 <= columns;

  if (matrix) {
    std::string head = std::string(static_cast<std::size_t>(label + 4), ' ');
    for (std::size_t word = 0; word < source.size(); ++word) {
      const std::string text = padded(source[word].text, widths[word]);
      head += (source[word].special ? dim(text) : text) + " ";
    }
    lines.push_back(head);
  }
  for (std::size_t row = 0; row < target.size(); ++row) {
    std::vector<std::size_t> order(source.size());
    std::iota(order.begin(), order.end(), 0);
    std::stable_sort(order.begin(), order.end(), [&](std::size_t a, std::size_t b) { return weights[row][a] > weights[row][b]; });
    const std::string name = padded(target[row].text, label);
    std::string line = "  " + (target[row].special ? dim(name) : name) + "  ";
    if (matrix) {
      for (std::size_t word = 0; word < source.size(); ++word) line += cell(weights[row][word], widths[word], colour) + " ";
      line += dim(" " + percent(weights[row][order[0]]) + " " + source[order[0]].text);
    } else {
      line += "reads";
      for (std::size_t i = 0; i < std::min<std::size_t>(3, order.size()) && weights[row][order[i]] >= 0.05f; ++i)
        line += "  " + percent(weights[row][order[i]]) + " " + source[order[i]].text;
    }
    lines.push_back(line);
  }
  return lines;
}

}  // namespace attend::cli
