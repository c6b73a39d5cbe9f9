#include "explorer/json_request.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "attend/error.h"
#include "attend/names.h"
#include "explorer/api_error.h"

namespace attend::explorer {
namespace {

constexpr std::size_t most_depth = 16;

// What a message quotes of a value that somebody sent.
std::string shown(const Json& value) {
  switch (value.type()) {
    case Json::value_t::object:
      return "an object";
    case Json::value_t::array:
      return "an array";
    default:
      break;
  }
  return shortened(value.dump(-1, ' ', false, Json::error_handler_t::replace), 40);
}

[[noreturn]] void wrong_type(const std::string& where, const Json& value, const char* needed) {
  throw Error(ErrorKind::argument, where, join("is ", shown(value), ", and ", needed, " is needed"));
}

// Builds the value while it is read, so that depth and repeated keys are seen at once and nothing is built twice.
class Builder : public nlohmann::json_sax<Json> {
 public:
  Json result;

  bool null() override { return put(Json(nullptr)); }
  bool boolean(bool value) override { return put(Json(value)); }
  bool number_integer(number_integer_t value) override { return put(Json(value)); }
  bool number_unsigned(number_unsigned_t value) override { return put(Json(value)); }
  bool number_float(number_float_t value, const string_t&) override { return put(Json(value)); }
  bool string(string_t& value) override { return put(Json(std::move(value))); }
  bool binary(binary_t&) override { return false; }
  bool start_object(std::size_t) override { return open(Json::object()); }
  bool start_array(std::size_t) override { return open(Json::array()); }
  bool end_object() override { return close(); }
  bool end_array() override { return close(); }
  bool key(string_t& name) override {
    if (open_.back()->contains(name))
      throw Error(ErrorKind::format, "body", join("the field ", shown(Json(name)), " stands twice in one object"),
                  "leave one out");
    key_ = std::move(name);
    return true;
  }
  bool parse_error(std::size_t position, const std::string&, const nlohmann::detail::exception& error) override {
    // "[json.exception.parse_error.101] parse error at line 1, column 5: ..."
    std::string text = error.what();
    if (const std::size_t end = text.find("] "); end != std::string::npos) text.erase(0, end + 2);
    throw Error(ErrorKind::format, "body",
                join("is not JSON (byte ", position, "): ", shortened(std::move(text), 200)));
  }

 private:
  Json& place(Json&& value) {
    if (open_.empty()) {
      result = std::move(value);
      return result;
    }
    Json& parent = *open_.back();
    if (parent.is_array()) {
      parent.push_back(std::move(value));
      return parent.back();
    }
    return parent[key_] = std::move(value);
  }
  bool put(Json&& value) {
    place(std::move(value));
    return true;
  }
  bool open(Json&& value) {
    if (open_.size() == most_depth)
      throw Error(ErrorKind::format, "body", join("is nested deeper than ", most_depth), "no request needs that");
    open_.push_back(&place(std::move(value)));
    return true;
  }
  bool close() {
    open_.pop_back();
    return true;
  }

  // A parent's vector or map does not move while a child is open, because only the innermost grows.
  std::vector<Json*> open_;
  std::string key_;
};

}  // namespace

Json parse_json(std::string_view text) {
  Builder builder;
  if (!Json::sax_parse(text.begin(), text.end(), &builder)) throw Error(ErrorKind::format, "body", "is not JSON");
  return std::move(builder.result);
}

std::int64_t integer_of(const Json& value, const std::string& where, std::int64_t low, std::int64_t high) {
  std::int64_t number = 0;
  bool whole = value.is_number_integer() && !(value.is_number_unsigned() && value.get<std::uint64_t>() > INT64_MAX);
  if (whole) {
    number = value.get<std::int64_t>();
  } else if (value.is_number_float()) {
    // 3.0 is a whole number, too: some writers know only one kind.
    const double real = value.get<double>();
    whole = std::abs(real) <= 9007199254740992.0 && real == std::trunc(real);
    if (whole) number = static_cast<std::int64_t>(real);
  }
  if (!whole || number < low || number > high) {
    const std::string what = join("is ", shown(value), ", and a whole number from ", low, " to ", high, " is needed");
    ErrorDetail found = detail("range", shown(value), std::vector<std::int64_t>{low, high});
    if (whole) found.found = as_json(number);
    throw RequestError(ErrorKind::argument, where, what, "", std::move(found));
  }
  return number;
}

float number_of(const Json& value, const std::string& where) {
  if (!value.is_number()) wrong_type(where, value, "a number");
  const auto number = static_cast<float>(value.get<double>());
  if (!std::isfinite(number))
    throw RequestError(ErrorKind::numeric, where, join("is ", shown(value), ", more than float32 can hold"), "",
                       detail("beyond_float32", shown(value)));
  return number;
}

Fields::Fields(const Json& object, std::string where) : object_(&object), where_(std::move(where)) {
  if (!object.is_object()) wrong_type(where_.empty() ? "body" : where_, object, "an object");
}

std::string Fields::path(std::string_view name) const {
  return where_.empty() ? std::string(name) : join(where_, '.', name);
}

const Json* Fields::find(const char* name) {
  asked_.insert(name);
  const auto found = object_->find(name);
  return found == object_->end() || found->is_null() ? nullptr : &*found;
}

const Json& Fields::need(const char* name) {
  const Json* found = find(name);
  if (!found) {
    // A field that nobody asks for, and whose name is nearly this one, is most likely it.
    std::vector<std::string> strangers;
    for (const auto& [stranger, value] : object_->items()) {
      if (!asked_.contains(stranger)) strangers.push_back(stranger);
    }
    const std::string slip = nearest_name(name, strangers);
    throw Error(ErrorKind::argument, path(name), "is missing",
                slip.empty() ? "" : join("rename ", in_quotes(slip), ", which is not a field of it"));
  }
  return *found;
}

std::string Fields::text(const char* name) {
  const Json& value = need(name);
  if (!value.is_string()) wrong_type(path(name), value, "a string");
  return value.get<std::string>();
}

std::string Fields::text(const char* name, const std::string& otherwise) { return find(name) ? text(name) : otherwise; }

std::int64_t Fields::integer(const char* name, std::int64_t low, std::int64_t high) {
  return integer_of(need(name), path(name), low, high);
}

std::int64_t Fields::integer(const char* name, std::int64_t low, std::int64_t high, std::int64_t otherwise) {
  return find(name) ? integer(name, low, high) : otherwise;
}

float Fields::number(const char* name) { return number_of(need(name), path(name)); }
float Fields::number(const char* name, float otherwise) { return find(name) ? number(name) : otherwise; }

bool Fields::flag(const char* name, bool otherwise) {
  const Json* value = find(name);
  if (!value) return otherwise;
  if (!value->is_boolean()) wrong_type(path(name), *value, "true or false");
  return value->get<bool>();
}

std::string Fields::choice(const char* name, std::initializer_list<const char*> names) {
  const std::string found = text(name);
  std::string known;
  for (const char* each : names) {
    if (found == each) return found;
    known += join(known.empty() ? "" : ", ", each);
  }
  throw Error(ErrorKind::argument, path(name), join("is ", shown(Json(found))), "use one of " + known);
}

std::string Fields::choice(const char* name, std::initializer_list<const char*> names, const char* otherwise) {
  return find(name) ? choice(name, names) : otherwise;
}

std::pair<std::int64_t, std::int64_t> Fields::range(const char* name, std::int64_t size) {
  const Json* value = find(name);
  if (!value) return {0, size};
  if (!value->is_array() || value->size() != 2) wrong_type(path(name), *value, "[begin, end]");
  const std::int64_t begin = integer_of((*value)[0], path(name) + "[0]", 0, size - 1);
  return {begin, integer_of((*value)[1], path(name) + "[1]", begin + 1, size)};
}

Tensor Fields::matrix(const char* name, const Limits& limits) {
  const Json* value = find(name);
  if (!value) return {};
  const std::string where = path(name);
  if (!value->is_array()) wrong_type(where, *value, "an array of rows");
  const auto rows = static_cast<std::int64_t>(value->size());
  if (rows == 0) throw Error(ErrorKind::shape, where, "has no rows");
  if (rows > limits.rows) throw over_limit(where, "rows", rows, limits.rows);
  std::int64_t columns = -1;
  Tensor result;
  for (std::int64_t row = 0; row < rows; ++row) {
    const Json& cells = (*value)[static_cast<std::size_t>(row)];
    const std::string row_where = join(where, '[', row, ']');
    if (!cells.is_array()) wrong_type(row_where, cells, "an array of numbers");
    const auto count = static_cast<std::int64_t>(cells.size());
    if (row == 0) {
      columns = count;
      if (columns == 0) throw Error(ErrorKind::shape, row_where, "is empty");
      if (columns > limits.rows) throw over_limit(where, "columns", columns, limits.rows);
      if (rows * columns > limits.cells) throw over_limit(where, "cells", rows * columns, limits.cells);
      result = Tensor::empty({rows, columns});
    } else if (count != columns) {
      throw RequestError(ErrorKind::shape, row_where, join("has ", count, " numbers and the rows before it ", columns),
                         "give every row as many", detail("row_length", count, columns));
    }
    float* out = result.row(row);
    for (std::int64_t column = 0; column < columns; ++column) {
      const Json& cell = cells[static_cast<std::size_t>(column)];
      // The place is spelt out only where something is wrong: most cells are fine.
      if (!cell.is_number() || !std::isfinite(out[column] = static_cast<float>(cell.get<double>())))
        number_of(cell, join(row_where, '[', column, ']'));
    }
  }
  return result;
}

Tensor Fields::vector(const char* name, const Limits& limits) {
  const Json* value = find(name);
  if (!value) return {};
  const std::string where = path(name);
  if (!value->is_array()) wrong_type(where, *value, "an array of numbers");
  const auto count = static_cast<std::int64_t>(value->size());
  if (count == 0) throw Error(ErrorKind::shape, where, "is empty");
  if (count > limits.rows) throw over_limit(where, "numbers", count, limits.rows);
  Tensor result = Tensor::empty({count});
  for (std::int64_t i = 0; i < count; ++i)
    result.data()[i] = number_of((*value)[static_cast<std::size_t>(i)], join(where, '[', i, ']'));
  return result;
}

std::vector<std::int64_t> Fields::integers(const char* name, std::int64_t low, std::int64_t high, std::int64_t most) {
  std::vector<std::int64_t> result;
  const Json* value = find(name);
  if (!value) return result;
  const std::string where = path(name);
  if (!value->is_array()) wrong_type(where, *value, "an array of whole numbers");
  if (static_cast<std::int64_t>(value->size()) > most) throw over_limit(where, "numbers", value->size(), most);
  for (std::size_t i = 0; i < value->size(); ++i)
    result.push_back(integer_of((*value)[i], join(where, '[', i, ']'), low, high));
  return result;
}

std::vector<std::string> Fields::texts(const char* name, std::int64_t most) {
  std::vector<std::string> result;
  const Json* value = find(name);
  if (!value) return result;
  const std::string where = path(name);
  if (!value->is_array()) wrong_type(where, *value, "an array of strings");
  if (static_cast<std::int64_t>(value->size()) > most) throw over_limit(where, "strings", value->size(), most);
  for (std::size_t i = 0; i < value->size(); ++i) {
    if (!(*value)[i].is_string()) wrong_type(join(where, '[', i, ']'), (*value)[i], "a string");
    result.push_back((*value)[i].get<std::string>());
  }
  return result;
}

void Fields::finish() const {
  for (const auto& [name, value] : object_->items()) {
    if (asked_.contains(name)) continue;
    const std::vector<std::string> known(asked_.begin(), asked_.end());
    throw Error(ErrorKind::argument, where_.empty() ? "body" : where_, join("has no field ", shown(Json(name))),
                "its fields are " + listed(known));
  }
}

}  // namespace attend::explorer
