// Which script a line is written in: how `attend translate` tells the direction of each line.
#pragma once

#include <string_view>

namespace attend {

// The share of Han among the written units of the text, 0 to 1. One unit is one Han character, or one run of letters
// of any other script: "Python" weighs as much as one Han character, because it is one word (so three Han characters and
// "Python" give 0.75). Digits, punctuation and blanks do not count; they end a run. 0 for a text without letters.
double han_share(std::string_view text);

// True if at least half of the units are Han. A text without any letter is not mostly Han.
bool mostly_han(std::string_view text);

}  // namespace attend
