#include "attend/scripts.h"

#include <utf8proc.h>

#include "text/utf8.h"

namespace attend {
namespace {

bool is_han(char32_t c) {
  return (c >= 0x4E00 && c <= 0x9FFF) || (c >= 0x3400 && c <= 0x4DBF) || c == 0x3005 || c == 0x3007 ||
         (c >= 0xF900 && c <= 0xFAFF) || (c >= 0x20000 && c <= 0x2FA1F) || (c >= 0x30000 && c <= 0x323AF);
}

enum class Unit { other, letter, mark };

Unit unit_of(char32_t character) {
  switch (utf8proc_category(static_cast<utf8proc_int32_t>(character))) {
    case UTF8PROC_CATEGORY_LU:
    case UTF8PROC_CATEGORY_LL:
    case UTF8PROC_CATEGORY_LT:
    case UTF8PROC_CATEGORY_LM:
    case UTF8PROC_CATEGORY_LO:
      return Unit::letter;
    case UTF8PROC_CATEGORY_MN:
    case UTF8PROC_CATEGORY_MC:
    case UTF8PROC_CATEGORY_ME:
      return Unit::mark;
    default:
      return Unit::other;
  }
}

}  // namespace

double han_share(std::string_view text) {
  double han = 0, words = 0;
  bool in_word = false;
  std::size_t position = 0;
  while (position < text.size()) {
    const Utf8Step step = utf8_step(text, position);
    position += step.length;
    if (!step.valid) {
      in_word = false;
    } else if (is_han(step.character)) {
      han += 1;
      in_word = false;
    } else {
      const Unit unit = unit_of(step.character);
      if (unit == Unit::letter && !in_word) words += 1;
      in_word = unit == Unit::letter || (unit == Unit::mark && in_word);
    }
  }
  return han + words > 0 ? han / (han + words) : 0.0;
}

bool mostly_han(std::string_view text) { return han_share(text) >= 0.5; }

}  // namespace attend
