#include "attention_strip.h"

#include <algorithm>
#include <cstdio>
#include <numeric>

#include "attend/unicode.h"
#include "attend/words.h"
#include "terminal.h"

namespace attend::cli {
namespace {

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
    text =
        "\033[48;5;" + std::to_string(violet[step]) + (step >= 3 ? ";30m" : ";97m") + padded(digits, width) + "\033[0m";
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

std::vector<std::string> attention_strip(const Translator& translator, const Translation& translation, bool by_token,
                                         bool colour, int columns) {
  std::vector<std::string> lines;
  if (translation.alignment.empty()) return lines;
  const auto split = [&](const Tokenizer& tokenizer, const std::vector<std::int32_t>& ids) {
    const std::vector<Piece> pieces = pieces_of(tokenizer, ids);
    std::vector<TokenGroup> groups = group(pieces, by_token ? GroupBy::token : GroupBy::word);
    // A token that only goes on with a character has no text of its own.
    for (TokenGroup& one : groups)
      if (one.text.empty()) one.text = pieces[static_cast<std::size_t>(one.begin)].raw;
    return groups;
  };
  const std::vector<TokenGroup> source = split(translator.source(), translation.source_ids);
  const std::vector<TokenGroup> target = split(translator.target(), translation.hypotheses.front().tokens.ids);
  const std::vector<float> merged = merge(translation.alignment, target, source, Merge::weights);
  const auto weight = [&](std::size_t row, std::size_t word) { return merged[row * source.size() + word]; };

  int label = 4, total = 0;
  for (const TokenGroup& word : target) label = std::max(label, std::min(display_width(word.text), 20));
  std::vector<int> widths;
  for (const TokenGroup& word : source) {
    widths.push_back(std::max(4, display_width(word.text)));
    total += widths.back() + 1;
  }
  const auto dim = [&](const std::string& text) { return colour ? "\033[2m" + text + "\033[0m" : text; };
  const bool matrix = 2 + label + 2 + total + 16 <= columns;

  if (matrix) {
    std::string head = std::string(static_cast<std::size_t>(label + 4), ' ');
    for (std::size_t word = 0; word < source.size(); ++word) {
      const std::string text = padded(source[word].text, widths[word]);
      head += (source[word].special() ? dim(text) : text) + " ";
    }
    lines.push_back(head);
  }
  for (std::size_t row = 0; row < target.size(); ++row) {
    std::vector<std::size_t> order(source.size());
    std::iota(order.begin(), order.end(), 0);
    std::stable_sort(order.begin(), order.end(),
                     [&](std::size_t a, std::size_t b) { return weight(row, a) > weight(row, b); });
    const std::string name = padded(target[row].text, label);
    std::string line = "  " + (target[row].special() ? dim(name) : name) + "  ";
    if (matrix) {
      for (std::size_t word = 0; word < source.size(); ++word)
        line += cell(weight(row, word), widths[word], colour) + " ";
      line += dim(" " + percent(weight(row, order[0])) + " " + source[order[0]].text);
    } else {
      line += "reads";
      for (std::size_t i = 0; i < std::min<std::size_t>(3, order.size()) && weight(row, order[i]) >= 0.05f; ++i)
        line += "  " + percent(weight(row, order[i])) + " " + source[order[i]].text;
    }
    lines.push_back(line);
  }
  return lines;
}

}  // namespace attend::cli
