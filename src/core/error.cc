#include "attend/error.h"

#include <utility>

namespace attend {

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
    : std::runtime_error(advice.empty() ? join(where, ": ", what_happened)
                                        : join(where, ": ", what_happened, "; ", advice)),
      kind_(kind),
      where_(std::move(where)),
      what_happened_(std::move(what_happened)),
      advice_(std::move(advice)) {}

}  // namespace attend
