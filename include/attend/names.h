// Names in messages, and which known name somebody may have meant.
#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace attend {

// Fewest insertions, deletions and replacements of a byte that turn a into b (Levenshtein 1966).
std::size_t edit_distance(std::string_view a, std::string_view b);

// The name with the smallest edit distance to `name`, the first of several; else the first that begins with it. "" if none
// is near enough to be a slip, or `name` has more than 100 bytes.
std::string nearest_name(const std::string& name, const std::vector<std::string>& names);

// The three names with the smallest edit distances to the beginning of `name`, however far: "a, b and c"; fewer if there
// are fewer, "" for none.
std::string nearest_three(std::string_view name, const std::vector<std::string>& names);

// "encoder, decoder, cross"
std::string listed(std::span<const std::string> names);
// At most so many bytes of a text and "..." for the rest; no character of UTF-8 is cut.
std::string shortened(std::string text, std::size_t bytes);
// A name from a file or a request as one line of a message: shortened, in double quotes, with control characters, quotes
// and backslashes as JSON escapes them.
std::string in_quotes(std::string_view name);

}  // namespace attend
