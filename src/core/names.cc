#include "core/names.h"

#include <algorithm>
#include <utility>

namespace attend {

std::size_t edit_distance(std::string_view a, std::string_view b) {
  std::vector<std::size_t> row(b.size() + 1);
  for (std::size_t j = 0; j <= b.size(); ++j) row[j] = j;
  for (std::size_t i = 1; i <= a.size(); ++i) {
    std::size_t diagonal = row[0];
    row[0] = i;
    for (std::size_t j = 1; j <= b.size(); ++j) {
      const std::size_t replaced = diagonal + (a[i - 1] == b[j - 1] ? 0 : 1);
      diagonal = row[j];
      row[j] = std::min({replaced, row[j] + 1, row[j - 1] + 1});
    }
  }
  return row[b.size()];
}

std::string nearest_name(const std::string& name, const std::vector<std::string>& names) {
  if (name.size() > 100) return {};
  // A slip is at most two edits, or a third of a long name; more than that is another word.
  std::size_t best = std::max<std::size_t>(2, name.size() / 3) + 1;
  std::string nearest;
  for (const std::string& each : names) {
    const std::size_t distance = edit_distance(name, each);
    if (distance < best) best = distance, nearest = each;
  }
  // Or somebody stopped typing: "induct", "tatoeba".
  constexpr std::size_t least_beginning = 3;
  if (nearest.empty() && name.size() >= least_beginning)
    for (const std::string& each : names)
      if (each.starts_with(name)) return each;
  return nearest;
}

std::string nearest_three(std::string_view name, const std::vector<std::string>& names) {
  std::vector<std::pair<std::size_t, std::string>> near;
  for (const std::string& each : names) near.emplace_back(edit_distance(name.substr(0, 100), each), each);
  const std::size_t count = std::min<std::size_t>(3, near.size());
  std::partial_sort(near.begin(), near.begin() + static_cast<std::ptrdiff_t>(count), near.end());
  std::string text;
  for (std::size_t i = 0; i < count; ++i) text += (i == 0 ? "" : i + 1 == count ? " and " : ", ") + near[i].second;
  return text;
}

std::string listed(std::span<const std::string> names) {
  std::string text;
  for (const std::string& name : names) text += (text.empty() ? "" : ", ") + name;
  return text;
}

std::string shortened(std::string text, std::size_t bytes) {
  if (text.size() <= bytes) return text;
  while (bytes > 0 && (static_cast<unsigned char>(text[bytes]) & 0xC0) == 0x80) --bytes;
  text.resize(bytes);
  return text + "...";
}

std::string in_quotes(std::string_view name) {
  static constexpr char digits[] = "0123456789abcdef";
  constexpr std::size_t most_bytes = 100;
  std::string text = "\"";
  for (const char c : shortened(std::string(name.substr(0, most_bytes + 4)), most_bytes)) {
    const auto byte = static_cast<unsigned char>(c);
    if (c == '"' || c == '\\') text += {'\\', c};
    else if (c == '\n') text += "\\n";
    else if (c == '\t') text += "\\t";
    else if (c == '\r') text += "\\r";
    else if (byte < 0x20 || byte == 0x7F) text += {'\\', 'u', '0', '0', digits[byte >> 4], digits[byte & 15]};
    else text += c;
  }
  return text + '"';
}

std::vector<std::string_view> name_words(std::string_view name) {
  std::vector<std::string_view> words;
  for (std::size_t begin = 0; begin <= name.size();) {
    const std::size_t end = std::min(name.find('.', begin), name.size());
    words.push_back(name.substr(begin, end - begin));
    begin = end + 1;
  }
  return words;
}

std::string json_reason(const std::exception& error) {
  const std::string text = error.what();
  const std::size_t end = text.starts_with("[") ? text.find("] ") : std::string::npos;
  return end == std::string::npos ? text : text.substr(end + 2);
}

}  // namespace attend
