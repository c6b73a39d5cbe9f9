#include "explorer/json_writer.h"

#include "attend/unicode.h"

namespace attend::explorer {

JsonWriter& JsonWriter::key(std::string_view name) {
  comma();
  quoted(name);
  text_ += ':';
  need_comma_ = false;
  return *this;
}

JsonWriter& JsonWriter::null() {
  comma();
  text_ += "null";
  return *this;
}

JsonWriter& JsonWriter::value(std::string_view text) {
  comma();
  if (find_invalid_utf8(text) == std::string_view::npos) quoted(text);
  else quoted(replace_invalid_utf8(text));
  return *this;
}

JsonWriter& JsonWriter::rows(const Tensor& tensor) {
  if (!tensor.defined()) return null();
  begin_array();
  for (std::int64_t row = 0; row < tensor.rows(); ++row)
    value(std::span<const float>(tensor.row(row), static_cast<std::size_t>(tensor.width())));
  return end_array();
}

JsonWriter& JsonWriter::raw(std::string_view json) {
  comma();
  text_ += json;
  return *this;
}

void JsonWriter::quoted(std::string_view text) {
  text_ += '"';
  for (const char character : text) {
    switch (character) {
      case '"':
        text_ += "\\\"";
        break;
      case '\\':
        text_ += "\\\\";
        break;
      case '\n':
        text_ += "\\n";
        break;
      case '\r':
        text_ += "\\r";
        break;
      case '\t':
        text_ += "\\t";
        break;
      default:
        if (static_cast<unsigned char>(character) < 0x20) {
          static constexpr char hexadecimal[] = "0123456789abcdef";
          const auto code = static_cast<unsigned char>(character);
          text_ += "\\u00";
          text_ += hexadecimal[code >> 4];
          text_ += hexadecimal[code & 15];
        } else {
          text_ += character;
        }
    }
  }
  text_ += '"';
}

}  // namespace attend::explorer
