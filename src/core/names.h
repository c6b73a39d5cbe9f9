// How near names are to each other, and what the JSON library's exceptions say.
#pragma once

#include <exception>
#include <string>

#include "attend/names.h"

namespace attend {

// What an exception of the JSON library says, without the tag in square brackets that it begins with.
std::string json_reason(const std::exception& error);

}  // namespace attend
