// The makers of the kinds of tokenizer that live in several files of this room.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "attend/tokenizer.h"

namespace attend {

// `characters` must be sorted and distinct; `where` names their file in errors.
std::shared_ptr<const Tokenizer> character_tokenizer(const CharacterOptions& options, std::vector<char32_t> characters,
                                                     const std::string& where);

// Control symbols of every kind: distinct, well-formed UTF-8 of at least two characters without NUL and white space, not
// one of `taken`. Error(argument) names the bad one.
void check_symbols(const std::vector<std::string>& symbols, const std::vector<std::string>& taken,
                   const std::string& where);

// A byte as the pieces of byte tokens are written: <0x0A>.
std::string byte_piece(unsigned char byte);
// The inverse, or -1.
int byte_of_piece(std::string_view piece);

}  // namespace attend
