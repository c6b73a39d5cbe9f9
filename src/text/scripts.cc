#include "attend/scripts.h"

#include <utf8proc.h>

#include "text/utf8.h"

namespace attend {
namespace {

bool is_han(char32_t c) {
  return (c >= 0x4E00 && c <= 0x9FFF) || (c >= 0x3400 && c <= 0x4DBF) || c == 0x3005 || c == 0x3007 ||
         (c >= 0xF900 && c <= 0xFAFF) || (c >= 0x20000 && c <= 0x2FA1F) || (c >= 0x30000 && c <= 0x323AF);
}

// Scripts whose words follow each other without blanks, beside Han.
bool is_unspaced(char32_t c) {
  return is_han(c) || (c >= 0x3040 && c <= 0x312F) || (c >= 0x31A0 && c <= 0x31BF) || (c >= 0x31F0 && c <= 0x31FF) ||
         (c >= 0xFF66 && c <= 0xFF9F) || (c >= 0x0E00 && c <= 0x0EFF) || (c >= 0x1000 && c <= 0x109F) ||
         (c >= 0x1780 && c <= 0x17FF);
}

}  // namespace

CharacterKind kind_of(char32_t character) {
  if (is_white_space(character)) {
    const bool ends_line = (character >= '\n' && character <= '\r') || (character >= 0x1C && character <= 0x1E) ||
                           character == 0x85 || character == 0x2028 || character == 0x2029;
    return ends_line ? CharacterKind::line_end : CharacterKind::blank;
  }
  if (is_han(character)) return CharacterKind::unspaced;  // U+3007 is a number by category
  switch (utf8proc_category(static_cast<utf8proc_int32_t>(character))) {
    case UTF8PROC_CATEGORY_LU:
    case UTF8PROC_CATEGORY_LL:
    case UTF8PROC_CATEGORY_LT:
    case UTF8PROC_CATEGORY_LM:
    case UTF8PROC_CATEGORY_LO:
      return is_unspaced(character) ? CharacterKind::unspaced : CharacterKind::letter;
    case UTF8PROC_CATEGORY_MN:
    case UTF8PROC_CATEGORY_MC:
    case UTF8PROC_CATEGORY_ME:
      return CharacterKind::mark;
    case UTF8PROC_CATEGORY_ND:
    case UTF8PROC_CATEGORY_NL:
    case UTF8PROC_CATEGORY_NO:
      return CharacterKind::number;
    case UTF8PROC_CATEGORY_PC:
    case UTF8PROC_CATEGORY_PD:
    case UTF8PROC_CATEGORY_PS:
    case UTF8PROC_CATEGORY_PE:
    case UTF8PROC_CATEGORY_PI:
    case UTF8PROC_CATEGORY_PF:
    case UTF8PROC_CATEGORY_PO:
      return CharacterKind::punctuation;
    case UTF8PROC_CATEGORY_SM:
    case UTF8PROC_CATEGORY_SC:
    case UTF8PROC_CATEGORY_SK:
    case UTF8PROC_CATEGORY_SO:
      return CharacterKind::symbol;
    default:
      return CharacterKind::other;
  }
}

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
      const CharacterKind kind = kind_of(step.character);
      const bool letter = kind == CharacterKind::letter || kind == CharacterKind::unspaced;
      if (letter && !in_word) words += 1;
      in_word = letter || (kind == CharacterKind::mark && in_word);
    }
  }
  return han + words > 0 ? han / (han + words) : 0.0;
}

bool mostly_han(std::string_view text) { return han_share(text) >= 0.5; }

}  // namespace attend
