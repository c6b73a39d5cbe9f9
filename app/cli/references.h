// --reference FILE of heads and align: the word alignments that people made of a file's pairs.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "attend/alignments.h"

namespace attend::cli {

class References {
 public:
  References() = default;
  // "": none. Errors of read_pharaoh().
  explicit References(const std::string& path) : path_(path) {
    if (!path.empty()) lines_ = read_pharaoh(path);
  }

  bool given() const { return !path_.empty(); }
  // Of the pair in this line of its files, from 1. Error(argument): the file ends before.
  const ReferenceAlignment& of_line(std::int64_t line) const;

 private:
  std::string path_;
  std::vector<ReferenceAlignment> lines_;
};

}  // namespace attend::cli
