// JSON written piece by piece: for arrays too large to be held twice, with floats as floats.
#pragma once

#include <string>
#include <string_view>

#include "attend/pictures.h"

namespace attend::pictures {

// With quotes; ill-formed UTF-8 becomes U+FFFD.
std::string json_string(std::string_view text);

template <typename List, typename Each>
std::string json_list(const List& list, Each each) {
  std::string out = "[";
  for (const auto& element : list) out.append(out.size() > 1 ? "," : "").append(each(element));
  return out + "]";
}

// "text", "special" and "blank_before", without braces.
std::string json_token_fields(std::string_view text, const ShownToken& token);
// Shortest that reads back to the same double; null if not finite.
std::string json_number(double value);
// An attribution whose values, one entry a text, are written already.
std::string json_attribution(const TokenAttribution& attribution, const std::string& values);

}  // namespace attend::pictures
