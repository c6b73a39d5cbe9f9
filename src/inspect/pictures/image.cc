#include "inspect/pictures/image.h"

#include <zlib.h>

#include <vector>

#include "attend/error.h"

namespace attend::pictures {
namespace {

void append_number(std::string& out, std::uint32_t value) {
  for (int shift = 24; shift >= 0; shift -= 8) out += static_cast<char>(value >> shift);
}

void append_chunk(std::string& out, std::string_view type, std::string_view data) {
  append_number(out, static_cast<std::uint32_t>(data.size()));
  const std::size_t begin = out.size();
  out.append(type).append(data);
  append_number(out, static_cast<std::uint32_t>(crc32(0, reinterpret_cast<const Bytef*>(out.data() + begin),
                                                      static_cast<uInt>(4 + data.size()))));
}

}  // namespace

std::string png_bytes(int width, int height, std::span<const std::uint8_t> indices,
                      const std::array<Colour, 256>& colours) {
  const auto columns = static_cast<std::size_t>(width), rows = static_cast<std::size_t>(height);
  std::string raw;
  raw.reserve(rows * (columns + 1));
  for (std::size_t row = 0; row < rows; ++row) {
    raw += '\0';  // no filter: neighbours on a palette are no neighbours in value
    raw.append(reinterpret_cast<const char*>(indices.data()) + row * columns, columns);
  }
  std::vector<Bytef> packed(compressBound(static_cast<uLong>(raw.size())));
  uLongf size = static_cast<uLongf>(packed.size());
  if (compress2(packed.data(), &size, reinterpret_cast<const Bytef*>(raw.data()), static_cast<uLong>(raw.size()), 9) !=
      Z_OK)
    throw Error(ErrorKind::argument, "image of cells", "zlib could not compress it");

  std::string header, palette_bytes;
  append_number(header, static_cast<std::uint32_t>(width));
  append_number(header, static_cast<std::uint32_t>(height));
  header += {8, 3, 0, 0, 0};  // 8 bits an index, palette, deflate, standard filters, not interlaced
  for (Colour colour : colours)
    palette_bytes += {static_cast<char>(colour.red), static_cast<char>(colour.green), static_cast<char>(colour.blue)};

  std::string out = "\x89PNG\r\n\x1a\n";
  append_chunk(out, "IHDR", header);
  append_chunk(out, "PLTE", palette_bytes);
  append_chunk(out, "IDAT", {reinterpret_cast<const char*>(packed.data()), size});
  append_chunk(out, "IEND", {});
  return out;
}

std::string base64(std::string_view bytes) {
  constexpr char letters[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  std::string out;
  out.reserve((bytes.size() + 2) / 3 * 4);
  for (std::size_t i = 0; i < bytes.size(); i += 3) {
    std::uint32_t group = 0;
    for (std::size_t k = 0; k < 3; ++k)
      group = group << 8 | (i + k < bytes.size() ? static_cast<std::uint8_t>(bytes[i + k]) : 0);
    for (std::size_t k = 0; k < 4; ++k) out += i + k <= bytes.size() ? letters[group >> (18 - 6 * k) & 63] : '=';
  }
  return out;
}

}  // namespace attend::pictures
