// Cells as a small image inside an SVG.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "inspect/pictures/colours.h"

namespace attend::pictures {

// A PNG of indices into 256 colours, [height, width] row by row.
std::string png_bytes(int width, int height, std::span<const std::uint8_t> indices,
                      const std::array<Colour, 256>& colours);
std::string base64(std::string_view bytes);

}  // namespace attend::pictures
