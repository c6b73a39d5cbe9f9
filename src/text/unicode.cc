#include "attend/unicode.h"

#include <utf8proc.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <memory>

#include "attend/error.h"
#include "text/utf8.h"

namespace attend {
namespace {

const utf8proc_property_t& property(char32_t character) {
  return *utf8proc_get_property(static_cast<utf8proc_int32_t>(character));
}

// The property Cased of Unicode, as far as general categories tell it.
bool is_cased(char32_t character) {
  switch (property(character).category) {
    case UTF8PROC_CATEGORY_LU:
    case UTF8PROC_CATEGORY_LL:
    case UTF8PROC_CATEGORY_LT:
      return true;
    default:
      return (character >= 0x2160 && character <= 0x217F) || (character >= 0x24B6 && character <= 0x24E9);
  }
}

// Case_Ignorable: marks, format characters, modifiers, and the punctuation that stands inside words.
bool is_case_ignorable(char32_t character) {
  switch (property(character).category) {
    case UTF8PROC_CATEGORY_MN:
    case UTF8PROC_CATEGORY_ME:
    case UTF8PROC_CATEGORY_CF:
    case UTF8PROC_CATEGORY_LM:
    case UTF8PROC_CATEGORY_SK:
      return true;
    default: {
      static constexpr char32_t inside_words[] = {0x27,   0x2E,   0x3A,   0xB7,   0x387,  0x55F,
                                                  0x5F4,  0x2018, 0x2019, 0x2024, 0x2027, 0xFE13,
                                                  0xFE52, 0xFE55, 0xFF07, 0xFF0E, 0xFF1A};
      return std::find(std::begin(inside_words), std::end(inside_words), character) != std::end(inside_words);
    }
  }
}

// Unicode's Final_Sigma: a capital sigma after a cased letter and not before one becomes the final form.
bool is_final_sigma(const std::vector<char32_t>& characters, std::size_t at) {
  std::size_t before = at;
  while (before > 0 && is_case_ignorable(characters[before - 1])) --before;
  if (before == 0 || !is_cased(characters[before - 1])) return false;
  std::size_t after = at + 1;
  while (after < characters.size() && is_case_ignorable(characters[after])) ++after;
  return after == characters.size() || !is_cased(characters[after]);
}

[[noreturn]] void refuse_invalid(std::string_view bytes, std::size_t position) {
  static const char digits[] = "0123456789ABCDEF";
  const auto byte = static_cast<unsigned char>(bytes[position]);
  throw Error(ErrorKind::text, "text",
              join("byte ", position + 1, " (0x", digits[byte >> 4], digits[byte & 15], ") is not valid UTF-8"),
              "convert the text to UTF-8");
}

}  // namespace

Utf8Step utf8_step(std::string_view bytes, std::size_t position) {
  const auto byte = [&](std::size_t offset) { return static_cast<unsigned char>(bytes[position + offset]); };
  Utf8Step step;
  const unsigned char lead = byte(0);
  if (lead < 0x80) {
    step.character = lead;
    step.valid = true;
    return step;
  }
  std::size_t length;
  unsigned char low = 0x80, high = 0xBF;  // of the second byte
  char32_t value;
  if (lead >= 0xC2 && lead <= 0xDF) {
    length = 2;
    value = lead & 0x1F;
  } else if (lead >= 0xE0 && lead <= 0xEF) {
    length = 3;
    value = lead & 0x0F;
    if (lead == 0xE0) low = 0xA0;
    if (lead == 0xED) high = 0x9F;
  } else if (lead >= 0xF0 && lead <= 0xF4) {
    length = 4;
    value = lead & 0x07;
    if (lead == 0xF0) low = 0x90;
    if (lead == 0xF4) high = 0x8F;
  } else {
    return step;
  }
  for (std::size_t i = 1; i < length; ++i) {
    if (position + i >= bytes.size()) {
      step.length = i;
      step.cut_short = true;
      return step;
    }
    if (byte(i) < low || byte(i) > high) {
      step.length = i;
      return step;
    }
    value = (value << 6) | (byte(i) & 0x3F);
    low = 0x80;
    high = 0xBF;
  }
  step.character = value;
  step.length = length;
  step.valid = true;
  return step;
}

std::size_t unfinished_utf8(std::string_view bytes) {
  for (std::size_t count = 1; count <= 3 && count <= bytes.size(); ++count) {
    const std::size_t position = bytes.size() - count;
    if ((static_cast<unsigned char>(bytes[position]) & 0xC0) == 0x80) continue;
    const Utf8Step step = utf8_step(bytes, position);
    return step.cut_short && step.length == count ? count : 0;
  }
  return 0;
}

bool is_white_space(char32_t character) {
  return (character >= 0x09 && character <= 0x0D) || (character >= 0x1C && character <= 0x20) || character == 0x85 ||
         character == 0xA0 || character == 0x1680 || (character >= 0x2000 && character <= 0x200A) ||
         character == 0x2028 || character == 0x2029 || character == 0x202F || character == 0x205F ||
         character == 0x3000;
}

bool is_blank(std::string_view line) {
  for (std::size_t position = 0; position < line.size();) {
    const Utf8Step step = utf8_step(line, position);
    if (!step.valid || !is_white_space(step.character)) return false;
    position += step.length;
  }
  return true;
}

const char* name_of(Normalisation normalisation) {
  switch (normalisation) {
    case Normalisation::none:
      return "none";
    case Normalisation::nfc:
      return "nfc";
    case Normalisation::nfkc:
      return "nfkc";
  }
  return "unknown";
}

Normalisation normalisation_named(std::string_view name) {
  for (const auto normalisation : {Normalisation::none, Normalisation::nfc, Normalisation::nfkc})
    if (name == name_of(normalisation)) return normalisation;
  throw Error(ErrorKind::argument, "normalisation", join("\"", name, "\" is not known"), "use none, nfc or nfkc");
}

std::size_t find_invalid_utf8(std::string_view bytes) {
  std::size_t position = 0;
  while (position < bytes.size()) {
    // Eight ASCII bytes at once: most of most texts.
    std::uint64_t eight;
    if (bytes.size() - position >= sizeof(eight)) {
      std::memcpy(&eight, bytes.data() + position, sizeof(eight));
      if ((eight & 0x8080808080808080u) == 0) {
        position += sizeof(eight);
        continue;
      }
    }
    const Utf8Step step = utf8_step(bytes, position);
    if (!step.valid) return position;
    position += step.length;
  }
  return std::string_view::npos;
}

std::string replace_invalid_utf8(std::string_view bytes, std::int64_t* replaced) {
  std::string text;
  text.reserve(bytes.size());
  std::size_t position = 0;
  while (position < bytes.size()) {
    const Utf8Step step = utf8_step(bytes, position);
    if (step.valid) {
      text.append(bytes.substr(position, step.length));
    } else {
      text += "\xEF\xBF\xBD";
      if (replaced != nullptr) ++*replaced;
    }
    position += step.length;
  }
  return text;
}

std::vector<char32_t> characters_of(std::string_view text) {
  std::vector<char32_t> characters;
  characters.reserve(text.size());
  std::size_t position = 0;
  while (position < text.size()) {
    const Utf8Step step = utf8_step(text, position);
    if (!step.valid) refuse_invalid(text, position);
    characters.push_back(step.character);
    position += step.length;
  }
  return characters;
}

void append_character(std::string& text, char32_t character) {
  if (character > 0x10FFFF || (character >= 0xD800 && character <= 0xDFFF)) character = 0xFFFD;
  const auto put = [&](char32_t value) { text.push_back(static_cast<char>(value)); };
  if (character < 0x80) {
    put(character);
  } else if (character < 0x800) {
    put(0xC0 | (character >> 6));
    put(0x80 | (character & 0x3F));
  } else if (character < 0x10000) {
    put(0xE0 | (character >> 12));
    put(0x80 | ((character >> 6) & 0x3F));
    put(0x80 | (character & 0x3F));
  } else {
    put(0xF0 | (character >> 18));
    put(0x80 | ((character >> 12) & 0x3F));
    put(0x80 | ((character >> 6) & 0x3F));
    put(0x80 | (character & 0x3F));
  }
}

std::string text_of(const std::vector<char32_t>& characters) {
  std::string text;
  text.reserve(characters.size());
  for (const char32_t character : characters) append_character(text, character);
  return text;
}

std::string normalise(std::string_view text, Normalisation normalisation) {
  const std::size_t invalid = find_invalid_utf8(text);
  if (invalid != std::string_view::npos) refuse_invalid(text, invalid);
  const bool ascii = std::all_of(text.begin(), text.end(), [](char c) { return static_cast<unsigned char>(c) < 0x80; });
  if (ascii || normalisation == Normalisation::none) return std::string(text);
  const auto options = static_cast<utf8proc_option_t>(UTF8PROC_STABLE | UTF8PROC_COMPOSE |
                                                      (normalisation == Normalisation::nfkc ? UTF8PROC_COMPAT : 0));
  utf8proc_uint8_t* result = nullptr;
  const utf8proc_ssize_t size = utf8proc_map(reinterpret_cast<const utf8proc_uint8_t*>(text.data()),
                                             static_cast<utf8proc_ssize_t>(text.size()), &result, options);
  const std::unique_ptr<utf8proc_uint8_t, decltype(&std::free)> owner(result, &std::free);
  if (size < 0) throw Error(ErrorKind::text, "text", join("cannot be normalised: ", utf8proc_errmsg(size)));
  return std::string(reinterpret_cast<const char*>(result), static_cast<std::size_t>(size));
}

std::string lower_case(std::string_view text) {
  const std::vector<char32_t> characters = characters_of(text);
  std::string lower;
  lower.reserve(text.size());
  for (std::size_t i = 0; i < characters.size(); ++i) {
    const char32_t character = characters[i];
    if (character == 0x130) {  // the one capital whose lower case is two characters in every language
      append_character(lower, U'i');
      append_character(lower, 0x307);
    } else if (character == 0x3A3) {
      append_character(lower, is_final_sigma(characters, i) ? 0x3C2 : 0x3C3);
    } else {
      append_character(lower, static_cast<char32_t>(utf8proc_tolower(static_cast<utf8proc_int32_t>(character))));
    }
  }
  return lower;
}

int display_width(std::string_view text) {
  int width = 0;
  std::size_t position = 0;
  while (position < text.size()) {
    const Utf8Step step = utf8_step(text, position);
    width += step.valid ? utf8proc_charwidth(static_cast<utf8proc_int32_t>(step.character)) : 1;
    position += step.length;
  }
  return width;
}

}  // namespace attend
