// What the terminal can show: width, colour, cursor.
#pragma once

#include <string>
#include <string_view>

namespace attend::cli {

bool is_terminal(int descriptor);
// Columns of the terminal behind the descriptor; 100 where there is none.
int terminal_columns(int descriptor);
// Colour on this descriptor: a terminal, NO_COLOR not set, TERM not "dumb".
bool colour_wanted(int descriptor);

// Text padded with blanks to a display width (Chinese characters take two columns); longer text is cut with an ellipsis.
std::string padded(std::string_view text, int width);

// Foreign text as it may go to this descriptor: control characters, which could steer a terminal, as <0x1B> there, and
// as they are into files and pipes.
std::string shown(std::string_view text, int descriptor = 1);

// "1.2 M", "930 k", "14"; "3 min 20 s".
std::string short_number(double value);
std::string short_time(double seconds);
std::string short_bytes(double bytes);

}  // namespace attend::cli
