#include "model/json_fields.h"

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>
#include <set>

#include "attend/error.h"

namespace attend {
namespace {

using Json = nlohmann::json;                 // for reading: finds a key fast however many a hostile file has
using OrderedJson = nlohmann::ordered_json;  // for writing: keeps the order of the table

// Long values are cut, so that a message stays one line whatever the file holds.
std::string shown(const Json& value) {
  return shortened(value.dump(-1, ' ', false, Json::error_handler_t::replace), 60);
}

OrderedJson written(const std::vector<Field>& fields) {
  OrderedJson object = OrderedJson::object();
  for (const Field& field : fields) {
    std::visit(
        [&](const auto& target) {
          using Target = std::decay_t<decltype(target)>;
          if constexpr (std::is_same_v<Target, Choice>) {
            object[field.name] = target.names[target.get()];
          } else if constexpr (std::is_same_v<Target, Group>) {
            if (target.present()) object[field.name] = written(target.fields());
          } else {
            object[field.name] = *target;
          }
        },
        field.target);
  }
  return object;
}

class Reader {
 public:
  explicit Reader(const std::string& source) : source_(source) {}

  void read(const Json& object, const std::string& prefix, const std::vector<Field>& fields) const {
    if (!object.is_object()) refuse(prefix, object, "an object", "");
    std::vector<std::string> names;
    for (const Field& field : fields) names.push_back(field.name);
    for (const auto& [key, value] : object.items()) {
      const auto found = std::find(names.begin(), names.end(), key);
      if (found == names.end()) {
        const std::string near = nearest_name(key, names);
        throw Error(
            ErrorKind::config, source_, join("unknown key ", in_quotes(prefix + key)),
            near.empty() ? "known keys: " + listed(names) : join("did you mean ", in_quotes(prefix + near), "?"));
      }
      set(fields[static_cast<std::size_t>(found - names.begin())], value, prefix + key);
    }
  }

 private:
  [[noreturn]] void refuse(const std::string& key, const Json& value, const std::string& expected,
                           const std::string& meaning) const {
    const std::string what = join("holds ", shown(value), ", expected ", expected);
    throw Error(ErrorKind::config, key.empty() ? source_ : source_ + ": " + key, what, meaning);
  }

  void set(const Field& field, const Json& value, const std::string& key) const {
    std::visit([&](const auto& target) { set(target, value, key, field.meaning); }, field.target);
  }
  void set(bool* target, const Json& value, const std::string& key, const std::string& meaning) const {
    if (!value.is_boolean()) refuse(key, value, "true or false", meaning);
    *target = value.get<bool>();
  }
  void set(std::int64_t* target, const Json& value, const std::string& key, const std::string& meaning) const {
    if (!value.is_number_integer() || (value.is_number_unsigned() && value.get<std::uint64_t>() > INT64_MAX))
      refuse(key, value, "an integer", meaning);
    *target = value.get<std::int64_t>();
  }
  void set(double* target, const Json& value, const std::string& key, const std::string& meaning) const {
    if (!value.is_number() || !std::isfinite(value.get<double>())) refuse(key, value, "a finite number", meaning);
    *target = value.get<double>();
  }
  void set(std::string* target, const Json& value, const std::string& key, const std::string& meaning) const {
    if (!value.is_string()) refuse(key, value, "a string", meaning);
    *target = value.get<std::string>();
  }
  void set(std::vector<std::string>* target, const Json& value, const std::string& key,
           const std::string& meaning) const {
    if (!value.is_array()) refuse(key, value, "a list of strings", meaning);
    target->clear();
    for (const Json& each : value) {
      if (!each.is_string()) refuse(key, value, "a list of strings", meaning);
      target->push_back(each.get<std::string>());
    }
  }
  void set(std::map<std::string, std::string>* target, const Json& value, const std::string& key,
           const std::string& meaning) const {
    if (!value.is_object()) refuse(key, value, "an object of strings", meaning);
    target->clear();
    for (const auto& [name, each] : value.items()) {
      if (!each.is_string()) refuse(key + "." + name, each, "a string", meaning);
      (*target)[name] = each.get<std::string>();
    }
  }
  void set(const Choice& target, const Json& value, const std::string& key, const std::string& meaning) const {
    const auto found = value.is_string() ? std::find(target.names.begin(), target.names.end(), value.get<std::string>())
                                         : target.names.end();
    if (found == target.names.end()) {
      const std::string near = value.is_string() ? nearest_name(value.get<std::string>(), target.names) : "";
      refuse(key, value, "one of " + listed(target.names),
             near.empty() ? meaning : join("did you mean ", in_quotes(near), "?"));
    }
    target.set(static_cast<std::size_t>(found - target.names.begin()));
  }
  void set(const Group& target, const Json& value, const std::string& key, const std::string&) const {
    if (value.is_null()) return;
    target.make();
    read(value, key + ".", target.fields());
  }

  const std::string& source_;
};

}  // namespace

std::string write_fields(const std::vector<Field>& fields) { return written(fields).dump(2) + "\n"; }

void check_json(std::string_view text, const std::string& source, int most_depth) {
  std::vector<std::set<std::string>> keys;  // of the objects that are open
  const auto watch = [&](int depth, Json::parse_event_t event, const Json& value) {
    switch (event) {
      case Json::parse_event_t::object_start:
        keys.emplace_back();
        [[fallthrough]];
      case Json::parse_event_t::array_start:
        if (depth >= most_depth)
          throw Error(ErrorKind::format, source, join("JSON is nested deeper than ", most_depth, " levels"));
        break;
      case Json::parse_event_t::key:
        if (!keys.back().insert(value.get<std::string>()).second)
          throw Error(ErrorKind::format, source, join("key ", in_quotes(value.get<std::string>()), " appears twice"),
                      "keep one of them");
        break;
      case Json::parse_event_t::object_end:
        keys.pop_back();
        break;
      default:
        break;
    }
    return event == Json::parse_event_t::key;  // the values themselves are not kept
  };
  try {
    static_cast<void>(Json::parse(text.begin(), text.end(), watch).size());
  } catch (const Json::exception& error) {
    throw Error(ErrorKind::format, source, join("is not JSON: ", json_reason(error)));
  }
}

void read_fields(const std::string& text, const std::string& source, const std::vector<Field>& fields) {
  check_json(text, source);
  Reader(source).read(Json::parse(text), "", fields);
}

}  // namespace attend
