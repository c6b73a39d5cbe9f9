// Characters: UTF-8, normalisation, lower case and the width of text on a terminal. A "character" here is one Unicode
// code point; a "byte" is one byte of UTF-8.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace attend {

enum class Normalisation {
  none,
  nfc,   // canonical composition: same text, one spelling
  nfkc,  // compatibility composition: also turns full-width letters and punctuation into half-width ones
};

const char* name_of(Normalisation normalisation);          // "none", "nfc", "nfkc"
Normalisation normalisation_named(std::string_view name);  // Error(argument) with the known names

// Position of the first byte that is not well-formed UTF-8 (overlong forms, surrogates, values above U+10FFFF and
// sequences cut short are not), or std::string_view::npos.
std::size_t find_invalid_utf8(std::string_view bytes);

// Every maximal ill-formed subsequence becomes one U+FFFD, as the Unicode standard (3.9, U+FFFD substitution)
// recommends. `replaced`, if given, grows by the number of replacements.
std::string replace_invalid_utf8(std::string_view bytes, std::int64_t* replaced = nullptr);

// The characters of well-formed UTF-8; Error(text) names the byte where it is not.
std::vector<char32_t> characters_of(std::string_view text);
void append_character(std::string& text, char32_t character);
std::string text_of(const std::vector<char32_t>& characters);

// Error(text) if `text` is not well-formed UTF-8.
std::string normalise(std::string_view text, Normalisation normalisation);
// As Python's str.lower(): one mapping for all languages, with the final form of the Greek sigma. Error(text) as above.
std::string lower_case(std::string_view text);

// Columns that the text takes on a terminal: 2 for a Chinese character, 0 for a combining mark. Ill-formed bytes
// sequences count as one column each.
int display_width(std::string_view text);

}  // namespace attend
