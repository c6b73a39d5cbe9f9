// Reading UTF-8 one character at a time, for the files of this room.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace attend {

struct Utf8Step {
  char32_t character = 0xFFFD;
  std::size_t length = 1;  // bytes; for ill-formed input the maximal ill-formed subsequence, at least 1
  bool valid = false;
  bool cut_short = false;  // ill-formed only because the bytes end: more bytes could complete the character
};

// The character at `position`, which must be below bytes.size(). Ranges of Unicode 15, table 3-7.
Utf8Step utf8_step(std::string_view bytes, std::size_t position);

// How many bytes at the end could still become a character, 0 to 3.
std::size_t unfinished_utf8(std::string_view bytes);

// What Python's str.split() and str.strip() call white space; the metrics are defined by it.
bool is_white_space(char32_t character);

// Only white space, also that of other scripts (U+3000), or nothing at all. Ill-formed UTF-8 is not blank.
bool is_blank(std::string_view line);

// Text as Tokenizer::readable() shows it: line ends and tabs as \n, \r and \t, other controls and bytes that are no
// character as <0xE4>.
std::string readable_text(std::string_view bytes);

}  // namespace attend
