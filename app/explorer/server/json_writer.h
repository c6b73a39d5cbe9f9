// Writes JSON straight into a string. Numbers are written with the fewest digits that read back to the same bits, float
// as float and double as double; what is not finite becomes null, because JSON has no infinity.
#pragma once

#include <charconv>
#include <cmath>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

#include "attend/tensor.h"

namespace attend::explorer {

class JsonWriter {
 public:
  JsonWriter& begin_object() { return open('{'); }
  JsonWriter& end_object() { return close('}'); }
  JsonWriter& begin_array() { return open('['); }
  JsonWriter& end_array() { return close(']'); }

  JsonWriter& key(std::string_view name);
  JsonWriter& null();
  JsonWriter& value(std::string_view text);  // ill-formed UTF-8 becomes U+FFFD
  JsonWriter& value(const char* text) { return value(std::string_view(text)); }
  JsonWriter& value(const std::string& text) { return value(std::string_view(text)); }
  template <typename Number>
  requires std::is_arithmetic_v<Number> JsonWriter& value(Number number) {
    comma();
    if constexpr (std::is_same_v<Number, bool>) {
      text_ += number ? "true" : "false";
    } else {
      if constexpr (std::is_floating_point_v<Number>) {
        if (!std::isfinite(number)) {
          text_ += "null";
          return *this;
        }
      }
      char digits[32];
      const auto [end, code] = std::to_chars(digits, digits + sizeof(digits), number);
      text_.append(digits, code == std::errc() ? end : digits);
    }
    return *this;
  }
  template <typename Number>
  requires std::is_arithmetic_v<Number> JsonWriter& value(std::span<const Number> row) {
    begin_array();
    for (const Number number : row) value(number);
    return end_array();
  }
  template <typename Element>
  JsonWriter& value(const std::vector<Element>& list) {
    begin_array();
    for (const Element& element : list) value(element);
    return end_array();
  }
  // A tensor as rows of its last axis; an undefined one as null.
  JsonWriter& rows(const Tensor& tensor);
  // JSON text made elsewhere, as it is.
  JsonWriter& raw(std::string_view json);

  template <typename Value>
  JsonWriter& field(std::string_view name, const Value& content) {
    key(name);
    return value(content);
  }

  std::string take() { return std::move(text_); }
  std::size_t size() const { return text_.size(); }

 private:
  JsonWriter& open(char bracket) {
    comma();
    text_ += bracket;
    need_comma_ = false;
    return *this;
  }
  JsonWriter& close(char bracket) {
    text_ += bracket;
    need_comma_ = true;
    return *this;
  }
  void comma() {
    if (need_comma_) text_ += ',';
    need_comma_ = true;
  }
  void quoted(std::string_view text);

  std::string text_;
  bool need_comma_ = false;
};

}  // namespace attend::explorer
