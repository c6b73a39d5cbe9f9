#include "attend/error.h"

#include <utility>

namespace attend {
namespace {

// Control characters of ASCII and of Latin-1 (two bytes of UTF-8), except line ends and tabs.
std::string without_controls(std::string text) {
  static const char digits[] = "0123456789ABCDEF";
  std::string shown;
  for (std::size_t at = 0; at < text.size(); ++at) {
    auto byte = static_cast<unsigned char>(text[at]);
    bool control = (byte < 0x20 && byte != '\n' && byte != '\t') || byte == 0x7F;
    if (byte == 0xC2 && at + 1 < text.size() && static_cast<unsigned char>(text[at + 1]) - 0x80u < 0x20u) {
      control = true;
      byte = static_cast<unsigned char>(text[++at]);
    }
    if (control) shown += std::string("\\x") + digits[byte >> 4] + digits[byte & 15];
    else shown += static_cast<char>(byte);
  }
  return shown;
}

}  // namespace

const char* name_of(ErrorKind kind) {
  switch (kind) {
    case ErrorKind::argument: return "argument";
    case ErrorKind::shape: return "shape";
    case ErrorKind::config: return "config";
    case ErrorKind::file: return "file";
    case ErrorKind::format: return "format";
    case ErrorKind::text: return "text";
    case ErrorKind::numeric: return "numeric";
    case ErrorKind::cancelled: return "cancelled";
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
