// The characters of golden/transliteration-ar-en, one a line of a file; a line's number is the character's id.
#pragma once

#include <algorithm>
#include <cstdint>
#include <fstream>
#include <string>
#include <vector>

#include "golden/load_models.h"

namespace attend {

class Characters {
 public:
  explicit Characters(const char* file) {
    std::ifstream in(golden_folder("transliteration-ar-en") / file);
    for (std::string line; std::getline(in, line);) lines_.push_back(line);
  }

  const std::string& operator[](std::int32_t id) const { return lines_.at(static_cast<std::size_t>(id)); }

  std::vector<std::int32_t> ids(const std::string& text) const {
    std::vector<std::int32_t> result;
    for (std::size_t begin = 0; begin < text.size();) {
      std::size_t end = begin + 1;
      while (end < text.size() && (static_cast<unsigned char>(text[end]) & 0xC0) == 0x80) ++end;
      const auto found = std::find(lines_.begin(), lines_.end(), text.substr(begin, end - begin));
      result.push_back(static_cast<std::int32_t>(found - lines_.begin()));  // one past the end is <unk>
      begin = end;
    }
    return result;
  }

 private:
  std::vector<std::string> lines_;
};

}  // namespace attend
