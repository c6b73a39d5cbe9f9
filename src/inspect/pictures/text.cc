#include "inspect/pictures/text.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <utility>

#include "attend/error.h"
#include "attend/unicode.h"

namespace attend::pictures {
namespace {

// Advance widths of DejaVu Sans in hundredths of the font size, from U+0020 to U+007E.
constexpr std::array<unsigned char, 95> ascii_widths = {
    32, 40, 46, 84, 64, 95, 78, 27, 39,  39, 50, 84, 32, 36, 32, 34, 64, 64, 64, 64, 64, 64, 64, 64,
    64, 64, 34, 34, 84, 84, 84, 53, 100, 68, 69, 70, 77, 63, 58, 77, 75, 29, 29, 66, 56, 86, 75, 79,
    60, 79, 69, 63, 61, 73, 68, 99, 69,  61, 69, 39, 34, 39, 84, 50, 50, 61, 63, 55, 63, 62, 35, 63,
    63, 28, 28, 58, 28, 97, 63, 61, 63,  63, 41, 52, 39, 63, 59, 82, 59, 59, 52, 64, 34, 64, 84};

double width_of(char32_t character) {
  if (character >= 0x20 && character < 0x7F) return ascii_widths[character - 0x20] / 100.0;
  if (character == 0x2026 || character == 0xFFFD || character == 0x2423) return 1;
  std::string text;
  append_character(text, character);
  const int columns = display_width(text);
  return columns == 0 ? 0 : columns == 1 ? 0.66 : 1;
}

bool is_wide(char32_t character) {
  std::string text;
  append_character(text, character);
  return character >= 0x1100 && display_width(text) == 2;
}

bool is_blank(char32_t c) { return c == ' ' || c == '\t' || c == '\n' || c == '\r' || c == 0xA0 || c == 0x3000; }

// Not allowed in XML 1.0, or without a shape of its own.
bool is_unprintable(char32_t c) {
  return c < 0x20 || (c >= 0x7F && c < 0xA0) || (c & 0xFFFE) == 0xFFFE || (c >= 0xFDD0 && c <= 0xFDEF) || c == 0x200E ||
         c == 0x200F || (c >= 0x2028 && c <= 0x202E) || (c >= 0x2066 && c <= 0x2069) || c == 0xFEFF;
}

std::string hexadecimal(char32_t c) {
  constexpr char digits[] = "0123456789ABCDEF";
  const int places = c < 0x100 ? 2 : c < 0x10000 ? 4 : 6;
  std::string out = c < 0x100 ? "\\x" : "\\u";
  for (int shift = 4 * (places - 1); shift >= 0; shift -= 4) out += digits[(c >> shift) & 15];
  return out;
}

std::string printable(const std::vector<char32_t>& characters) {
  std::string out;
  for (char32_t c : characters) {
    if (c == '\n') out += "\\n";
    else if (c == '\t') out += "\\t";
    else if (c == '\r') out += "\\r";
    else if (is_unprintable(c)) out += hexadecimal(c);
    else append_character(out, c);
  }
  return out;
}

std::string fixed(double value, int digits) {
  std::array<char, 400> buffer;
  const auto end =
      std::to_chars(buffer.data(), buffer.data() + buffer.size(), value, std::chars_format::fixed, digits).ptr;
  return std::string(buffer.data(), end);
}

// A hyphen is too short before a number.
std::string with_minus(std::string text) { return text.starts_with('-') ? text.replace(0, 1, "\u2212") : text; }

}  // namespace

std::string clean(std::string_view text) { return printable(characters_of(replace_invalid_utf8(text))); }

std::string shown(std::string_view token) {
  std::vector<char32_t> characters = characters_of(replace_invalid_utf8(token));
  // A line end is worth seeing; blanks around a word are not.
  const auto is_space = [](char32_t c) { return is_blank(c) && c != '\n' && c != '\r' && c != '\t'; };
  while (!characters.empty() && is_space(characters.back())) characters.pop_back();
  characters.erase(characters.begin(), std::find_if_not(characters.begin(), characters.end(), is_space));
  if (characters.empty()) return "\u2423";
  return printable(characters);
}

std::string escaped(std::string_view text) {
  std::string out;
  out.reserve(text.size());
  for (char c : text) {
    if (c == '&') out += "&amp;";
    else if (c == '<') out += "&lt;";
    else if (c == '>') out += "&gt;";
    else if (c == '"') out += "&quot;";
    else if (c == '\'') out += "&#39;";
    else out += c;
  }
  return out;
}

double width_of(std::string_view text, double size) {
  double width = 0;
  for (char32_t c : characters_of(text)) width += width_of(c);
  return width * size;
}

std::string cut(const std::string& text, double size, double width) {
  if (width_of(text, size) <= width) return text;
  std::string out;
  double taken = width_of("\u2026", size);
  for (char32_t c : characters_of(text)) {
    taken += width_of(c) * size;
    if (taken > width) break;
    append_character(out, c);
  }
  return out + "\u2026";
}

std::vector<std::string> wrapped(const std::string& text, double size, double width) {
  std::vector<std::string> lines;
  std::string line, word;
  double line_width = 0, word_width = 0;
  const auto end_line = [&] {
    while (line.ends_with(' ')) line.pop_back();
    if (!line.empty()) lines.push_back(line);
    line.clear();
    line_width = 0;
  };
  const auto end_word = [&] {
    if (line_width + word_width > width) end_line();
    line += word;
    line_width += word_width;
    word.clear();
    word_width = 0;
  };
  bool after_wide = false, after_opening = false;
  for (char32_t c : characters_of(text)) {
    const double character_width = width_of(c) * size;
    if (c == ' ') {
      end_word();
      if (!line.empty()) line += ' ', line_width += character_width;
      after_wide = after_opening = false;
      continue;
    }
    // Chinese punctuation never begins a line, an opening bracket never ends one.
    const bool wide = is_wide(c),
               closing = std::u32string_view(U"，。；：、！？）》」』】").find(c) != std::u32string_view::npos;
    if ((!closing && !after_opening && (wide || after_wide)) || word_width + character_width > width) end_word();
    append_character(word, c);
    word_width += character_width;
    after_wide = wide;
    after_opening = std::u32string_view(U"（《「『【").find(c) != std::u32string_view::npos;
  }
  end_word();
  end_line();
  return lines;
}

std::string three_decimals(double value) {
  if (std::isnan(value)) return "\u2013";
  if (std::isinf(value)) return value > 0 ? "\u221E" : "\u2212\u221E";
  if (value == 0) return "0";
  const double size = std::abs(value);
  if (size >= 0.0005 && size < 1e5) return with_minus(fixed(value, 3));
  std::array<char, 40> buffer;
  const auto end =
      std::to_chars(buffer.data(), buffer.data() + buffer.size(), value, std::chars_format::scientific, 1).ptr;
  std::string text(buffer.data(), end);
  const std::size_t e = text.find('e');
  int exponent = 0;
  std::from_chars(text.data() + e + (text[e + 1] == '+' ? 2 : 1), text.data() + text.size(), exponent);
  return with_minus(text.substr(0, e)) + "e" + with_minus(std::to_string(exponent));
}

std::string in_place(double value) {
  if (!std::isfinite(value) || value == 0 || std::abs(value) >= 1e5) return three_decimals(value);
  return std::abs(value) < 0.0005 ? "0.000" : with_minus(fixed(value, 3));
}

std::string tick_text(double value) {
  const double size = std::abs(value);
  if (size < 1e-30) return "0";
  if (size < 1e-5 || size >= 1e6) return three_decimals(value);
  const int digits = std::max(0, 2 - static_cast<int>(std::floor(std::log10(size) + 1e-9)));
  std::string text = fixed(value, digits);
  if (digits > 0) {
    while (text.ends_with('0')) text.pop_back();
    if (text.ends_with('.')) text.pop_back();
  }
  return with_minus(text);
}

std::string shortest(float value) {
  if (std::isnan(value)) return "nan";
  if (std::isinf(value)) return value > 0 ? "inf" : "-inf";
  std::array<char, 40> buffer;
  return std::string(buffer.data(), std::to_chars(buffer.data(), buffer.data() + buffer.size(), value).ptr);
}

std::string pixels(double value) {
  std::string text = fixed(std::round(value * 100) / 100, 2);
  while (text.ends_with('0')) text.pop_back();
  if (text.ends_with('.')) text.pop_back();
  return text == "-0" ? "0" : text;
}

std::string say(PictureLanguage language, std::string_view english) {
  static constexpr std::pair<std::string_view, std::string_view> spelled_out[] = {
      {"write", "weight \u00D7 norm"},
      {"first_order", "first-order effect"},
      {"exact", "exact effect"},
      {"integrated_gradients", "integrated gradients"},
      {"gradient_input", "gradient \u00D7 input"},
      {"value_zeroing", "value zeroing"}};
  if (language == PictureLanguage::english) {
    for (const auto& [name, text] : spelled_out)
      if (name == english) return std::string(text);
    return std::string(english);
  }
  static constexpr std::pair<std::string_view, std::string_view> words[] = {
      {"weight", "权重"},
      {"write", "权重 × 范数"},
      {"first_order", "一阶效应"},
      {"exact", "精确效应"},
      {"integrated_gradients", "积分梯度"},
      {"gradient_input", "梯度 × 输入"},
      {"rollout", "注意力展开"},
      {"value_zeroing", "值置零"},
      {"looks at", "看向"},
      {"matters", "起作用"},
      {"source", "源文"},
      {"target", "译文"},
      {"text", "文本"},
      {"queries", "查询"},
      {"keys", "键"},
      {"query", "查询"},
      {"key", "键"},
      {"masked", "被掩码"},
      {"not measured", "未测量"},
      {"layer", "层"},
      {"head", "头"},
      {"entropy", "熵"},
      {"logit", "逻辑值"},
      {"cross-attention", "交叉注意力"},
      {"encoder self-attention", "编码器自注意力"},
      {"decoder self-attention", "解码器自注意力"},
      {"mean over layers", "各层平均"},
      {"mean over heads", "各头平均"},
      {"model", "模型"},
      {"fingerprint", "指纹"},

      {"edits", "编辑"},
      {"none", "无"},
      {"base", "原来"},
      {"edited", "编辑后"},
      {"change", "变化"},
      {"rank agreement with", "秩相关，对照"},
      {"opacity", "不透明度"},
      {"before and after the edits", "编辑前后"},
      {"one pixel shows the largest of", "每个像素取其中最大者："},
      {"cells", "格"},
      {"not drawn below", "低于此值不画："},
      {"position", "位置"},
      {"nats", "奈特"},
      {"first token", "首词元"},
      {"self", "自身"},
      {"previous token", "前一词元"},
      {"on first", "首词元占比"},
      {"on self", "自身占比"},
      {"on previous", "前一词元占比"},
      {"distance", "距离"},
      {"tokens", "词元"},
      {"mean", "平均"},
      {"logarithmic scale", "对数标度"}};
  for (const auto& [from, to] : words)
    if (from == english) return std::string(to);
  return std::string(english);
}

namespace {

// "cross rollout": an attention of all heads together, made by a method from the one of that name.
std::string_view method_of(std::string_view attention) {
  for (const std::string_view method : {std::string_view("rollout"), std::string_view("value zeroing")})
    if (attention.size() > method.size() && attention.ends_with(method) &&
        attention[attention.size() - method.size() - 1] == ' ')
      return method;
  return {};
}

}  // namespace

std::string attention_text(PictureLanguage language, std::string_view attention) {
  if (const std::string_view method = method_of(attention); !method.empty()) {
    const std::string name = attention_text(language, attention.substr(0, attention.size() - method.size() - 1));
    const std::string said = say(language, method == "rollout" ? "rollout" : "value_zeroing");
    return language == PictureLanguage::chinese ? join(name, "，", said) : join(name, ", ", said);
  }
  std::string name = attention == "cross" ? say(language, "cross-attention")
                     : attention == "encoder" || attention == "decoder"
                         ? say(language, std::string(attention) + " self-attention")
                         : clean(attention);
  if (name[0] >= 'a' && name[0] <= 'z') name[0] = static_cast<char>(name[0] - 'a' + 'A');
  return name;
}

std::string place_text(PictureLanguage language, std::string_view attention, int layer, int head) {
  const bool chinese = language == PictureLanguage::chinese;
  const auto part = [&](const char* word, int number) {
    if (number == mean_of_all) return say(language, join("mean over ", word, "s"));
    return chinese ? join(say(language, word), " ", number) : join(word, " ", number);
  };
  const char* comma = chinese ? "，" : ", ";
  const std::string_view method = method_of(attention);
  const std::string place = attention_text(language, attention) + comma;
  if (method.empty()) return place + part("layer", layer) + comma + part("head", head);
  if (method == "rollout" && layer != mean_of_all) return place + (chinese ? "至" : "up to ") + part("layer", layer);
  return place + part("layer", layer);
}

bool of_all_heads(std::string_view attention) { return !method_of(attention).empty(); }

std::string with_measure(PictureLanguage language, const std::string& place, std::string_view attention,
                         std::string_view measure) {
  if (of_all_heads(attention)) return place;
  return join(place, language == PictureLanguage::chinese ? "：" : ": ", say(language, clean(measure)));
}

}  // namespace attend::pictures
