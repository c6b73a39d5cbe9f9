// A look into a SentencePiece model before the library sees it. The library trusts some bytes of the file (the tables of
// its normaliser are walked without bounds, texts are read up to a NUL), and ends the process when some assumptions fail.
#pragma once

#include <cstdint>

#include <string>
#include <string_view>

namespace attend {

struct SentencePieceFile {
  std::int64_t pieces = 0;
  bool add_dummy_prefix = true;
  bool remove_extra_whitespaces = true;
  std::string unknown_surface = " \xE2\x81\x87 ";
};

// Checks everything and reads the few fields that the library does not give out. Error(format) names what is wrong.
SentencePieceFile read_sentencepiece_file(std::string_view bytes, const std::string& where);

}  // namespace attend
