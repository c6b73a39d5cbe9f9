// Which known name somebody may have meant.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

namespace attend {

// Fewest insertions, deletions and replacements of a byte that turn a into b (Levenshtein 1966).
std::size_t edit_distance(std::string_view a, std::string_view b);

// The name with the smallest edit distance to `name`, the first of several; else the first that begins with it. "" if none
// is near enough to be a slip, or `name` has more than 100 bytes.
std::string nearest_name(const std::string& name, const std::vector<std::string>& names);

}  // namespace attend
