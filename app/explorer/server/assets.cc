#include "explorer/assets.h"

#include <algorithm>
#include <cstdint>
#include <utility>

namespace attend::explorer {

const Asset* find_asset(std::string_view path) {
  for (const Asset& asset : assets())
    if (asset.path == path) return &asset;
  return nullptr;
}

const char* media_type(std::string_view path) {
  static constexpr std::pair<std::string_view, const char*> types[] = {{".html", "text/html; charset=utf-8"},
                                                                       {".js", "text/javascript; charset=utf-8"},
                                                                       {".mjs", "text/javascript; charset=utf-8"},
                                                                       {".css", "text/css; charset=utf-8"},
                                                                       {".json", "application/json"},
                                                                       {".map", "application/json"},
                                                                       {".webmanifest", "application/manifest+json"},
                                                                       {".svg", "image/svg+xml"},
                                                                       {".png", "image/png"},
                                                                       {".ico", "image/x-icon"},
                                                                       {".woff2", "font/woff2"},
                                                                       {".woff", "font/woff"},
                                                                       {".wasm", "application/wasm"},
                                                                       {".txt", "text/plain; charset=utf-8"}};
  for (const auto& [ending, type] : types)
    if (path.ends_with(ending)) return type;
  return "application/octet-stream";
}

std::string entity_tag(std::string_view bytes) {
  // FNV-1a: tells one build's file from another's; nobody is kept from making two alike.
  std::uint64_t hash = 14695981039346656037u;
  for (const char byte : bytes) hash = (hash ^ static_cast<unsigned char>(byte)) * 1099511628211u;
  std::string tag = "\"";
  for (int shift = 60; shift >= 0; shift -= 4) tag += "0123456789abcdef"[hash >> shift & 15];
  return tag + '"';
}

}  // namespace attend::explorer
