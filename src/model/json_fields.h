// Objects of JSON files as tables: each entry binds a key to a member, and the one table drives reading and writing, so
// that the two cannot diverge. Hostile text is refused: depth, duplicate and unknown keys, wrong types.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <initializer_list>
#include <map>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "core/names.h"

namespace attend {

// An enumeration written as one of `names`; get and set use indices into them.
struct Choice {
  std::vector<std::string> names;
  std::function<std::size_t()> get;
  std::function<void(std::size_t)> set;
};

// An object inside the object. Absent ones are not written; reading calls make() first.
struct Group {
  std::function<bool()> present;
  std::function<void()> make;
  std::function<std::vector<struct Field>()> fields;
};

using FieldTarget = std::variant<bool*, std::int64_t*, double*, std::string*, std::vector<std::string>*,
                                 std::map<std::string, std::string>*, Choice, Group>;

struct Field {
  std::string name;
  FieldTarget target;
  std::string meaning;  // a few words for people, printed when the value is wrong
};

template <typename Enum>
Choice choice(Enum& value, std::initializer_list<std::pair<Enum, const char*>> names) {
  std::vector<Enum> values;
  Choice result;
  for (const auto& [each, name] : names) values.push_back(each), result.names.push_back(name);
  result.get = [&value, values] {
    for (std::size_t i = 0; i < values.size(); ++i)
      if (values[i] == value) return i;
    return std::size_t{0};
  };
  result.set = [&value, values](std::size_t index) { value = values[index]; };
  return result;
}

// The fields in their order, two blanks of indentation, a line end at the end.
std::string write_fields(const std::vector<Field>& fields);

// Sets the fields that `text`, one JSON object, names; others keep what they hold. Throws Error(format) for text that
// is no such object, Error(config) for an unknown key (with the nearest known one) or a value of the wrong type;
// `source`, a file name, leads the message. On an error some fields may have been set.
void read_fields(const std::string& text, const std::string& source, const std::vector<Field>& fields);

// Throws Error(format) if `text` is not JSON, is nested deeper than `most_depth` or names a key twice in one object.
void check_json(std::string_view text, const std::string& source, int most_depth = 16);

}  // namespace attend
