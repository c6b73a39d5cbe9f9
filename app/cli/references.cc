#include "references.h"

#include "attend/error.h"

namespace attend::cli {

const ReferenceAlignment& References::of_line(std::int64_t line) const {
  if (line > static_cast<std::int64_t>(lines_.size()))
    throw Error(
        ErrorKind::argument, path_,
        join("has ", counted(static_cast<std::int64_t>(lines_.size()), "line"), " and the pairs go on to line ", line),
        "give one line a pair, an empty one for a pair without links");
  return lines_[static_cast<std::size_t>(line) - 1];
}

}  // namespace attend::cli
