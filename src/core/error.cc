#include "attend/error.h"

#include <utility>

namespace attend {
namespace {

// Bytes of the well-formed UTF-8 sequence that begins here; 0 where there is none. Overlong forms and surrogates count as
// well-formed: a terminal that shows them badly is not led astray by them.
std::size_t sequence_at(const std::string& text, std::size_t at) {
  const auto byte = static_cast<unsigned char>(text[at]);
  const std::size_t length = byte < 0x80   ? 1
                             : byte < 0xC2 ? 0
                             : byte < 0xE0 ? 2
                             : byte < 0xF0 ? 3
                             : byte < 0xF5 ? 4
                                           : 0;
  for (std::size_t i = 1; i < length; ++i)
    if (at + i >= text.size() || (static_cast<unsigned char>(text[at + i]) & 0xC0) != 0x80) return 0;
  return length;
}

// What a terminal should not be sent, by its bytes: control characters of ASCII and of Latin-1 (two bytes of UTF-8),
// except line ends and tabs, and what is no UTF-8.
std::string without_controls(const std::string& text) {
  static const char digits[] = "0123456789ABCDEF";
  std::string shown;
  for (std::size_t at = 0; at < text.size();) {
    const std::size_t length = sequence_at(text, at);
    auto byte = static_cast<unsigned char>(text[at]);
    bool control = length == 0 || (byte < 0x20 && byte != '\n' && byte != '\t') || byte == 0x7F;
    if (length == 2 && byte == 0xC2 && static_cast<unsigned char>(text[at + 1]) < 0xA0) {
      control = true;
      byte = static_cast<unsigned char>(text[at + 1]);
    }
    if (control) shown += std::string("\\x") + digits[byte >> 4] + digits[byte & 15];
    else shown.append(text, at, length);
    at += length == 0 ? 1 : length;
  }
  return shown;
}

}  // namespace

const char* name_of(ErrorKind kind) {
  switch (kind) {
    case ErrorKind::argument:
      return "argument";
    case ErrorKind::shape:
      return "shape";
    case ErrorKind::config:
      return "config";
    case ErrorKind::file:
      return "file";
    case ErrorKind::format:
      return "format";
    case ErrorKind::text:
      return "text";
    case ErrorKind::numeric:
      return "numeric";
    case ErrorKind::cancelled:
      return "cancelled";
  }
  return "unknown";
}

Error::Error(ErrorKind kind, std::string where, std::string what_happened, std::string advice)
    : std::runtime_error(without_controls(advice.empty() ? join(where, ": ", what_happened)
                                                         : join(where, ": ", what_happened, "; ", advice))),
      kind_(kind),
      where_(std::move(where)),
      what_happened_(std::move(what_happened)),
      advice_(std::move(advice)) {}

std::string counted(std::int64_t count, std::string_view noun) { return join(count, " ", noun, count == 1 ? "" : "s"); }

}  // namespace attend
