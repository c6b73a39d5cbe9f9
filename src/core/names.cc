#include "core/names.h"

#include <algorithm>

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
