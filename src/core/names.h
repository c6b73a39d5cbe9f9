// Words of dotted names, how near names are to each other, and what the JSON library's exceptions say.
#pragma once

#include <exception>
#include <string>
#include <string_view>
#include <vector>

#include "attend/names.h"

namespace attend {

// "decoder.3.cross" -> decoder, 3, cross: views into the name.
std::vector<std::string_view> name_words(std::string_view name);

// What an exception of the JSON library says, without the tag in square brackets that it begins with.
std::string json_reason(const std::exception& error);

}  // namespace attend
