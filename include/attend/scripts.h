// What characters are for: which script a line is written in (how `attend translate` tells the direction of each line),
// and where words end.
#pragma once

#include <string_view>

namespace attend {

enum class CharacterKind {
  letter,    // of a script that puts blanks between words
  unspaced,  // letter of a script that does not: Han, kana, bopomofo, Thai, Lao, Burmese, Khmer
  number,
  mark,  // belongs to the character before it
  punctuation,
  symbol,
  blank,  // white space within a line
  line_end,
  other,  // controls, private use, unassigned
};
// By Unicode's general category; white space as in Python's str.split().
CharacterKind kind_of(char32_t character);

// The share of Han among the written units of the text, 0 to 1. One unit is one Han character, or one run of letters
// of any other script: "Python" weighs as much as one Han character, because it is one word (so three Han characters and
// "Python" give 0.75). Digits, punctuation and blanks do not count; they end a run. 0 for a text without letters.
double han_share(std::string_view text);

// True if at least half of the units are Han. A text without any letter is not mostly Han.
bool mostly_han(std::string_view text);

}  // namespace attend
