// The built page, as bytes inside the program.
#pragma once

#include <span>
#include <string>
#include <string_view>

namespace attend::explorer {

struct Asset {
  std::string_view path;  // "/index.html"
  std::string_view bytes;
};

// All files of the page, by path. Made by the build from app/explorer/page/dist (see embed.cmake).
std::span<const Asset> assets();

// By path; null if there is none.
const Asset* find_asset(std::string_view path);

const char* media_type(std::string_view path);
// A strong entity tag, with its quotation marks.
std::string entity_tag(std::string_view bytes);

}  // namespace attend::explorer
