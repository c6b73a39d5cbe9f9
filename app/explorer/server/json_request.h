// Reading requests: hostile JSON in, checked values out. Everything wrong is an Error that names the place
// ("edits[2].head"), what was found and what is needed.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "attend/tensor.h"
#include "explorer/limits.h"

namespace attend::explorer {

using Json = nlohmann::json;

// Error(format): not JSON, not UTF-8, nested deeper than 16, a key twice in one object, a number no double can hold.
Json parse_json(std::string_view text);

// The fields of one object. Each is asked for by name; finish() refuses those that nobody asked for, so that a misspelt
// one is never ignored. A field that holds null counts as absent. `object` must outlive it.
class Fields {
 public:
  // Error(argument) unless `object` is one. `where` is its place in the request, "" for the whole.
  Fields(const Json& object, std::string where);

  const Json* find(const char* name);             // null when absent
  const Json& need(const char* name);             // Error(argument) when absent
  std::string path(std::string_view name) const;  // place of a field, for messages
  const std::string& where() const { return where_; }

  std::string text(const char* name);
  std::string text(const char* name, const std::string& otherwise);
  // Whole numbers in low..high.
  std::int64_t integer(const char* name, std::int64_t low, std::int64_t high);
  std::int64_t integer(const char* name, std::int64_t low, std::int64_t high, std::int64_t otherwise);
  // Finite as float32.
  float number(const char* name);
  float number(const char* name, float otherwise);
  bool flag(const char* name, bool otherwise);
  // One of `names`; the message lists them.
  std::string choice(const char* name, std::initializer_list<const char*> names);
  std::string choice(const char* name, std::initializer_list<const char*> names, const char* otherwise);
  // [begin, end) with 0 <= begin < end <= size; the whole when absent.
  std::pair<std::int64_t, std::int64_t> range(const char* name, std::int64_t size);
  // Rows of equal length, at least one number each; undefined when absent.
  Tensor matrix(const char* name, const Limits& limits);
  Tensor vector(const char* name, const Limits& limits);
  std::vector<std::int64_t> integers(const char* name, std::int64_t low, std::int64_t high, std::int64_t most);
  std::vector<std::string> texts(const char* name, std::int64_t most);

  void finish() const;

 private:
  const Json* object_;
  std::string where_;
  std::set<std::string> asked_;
};

// One value of an array that somebody walks through, as the methods above read fields.
std::int64_t integer_of(const Json& value, const std::string& where, std::int64_t low, std::int64_t high);
float number_of(const Json& value, const std::string& where);

}  // namespace attend::explorer
