// Edits as JSON, strict in both directions.
#include <algorithm>
#include <charconv>
#include <cmath>
#include <nlohmann/json.hpp>

#include "attend/edits.h"
#include "attend/error.h"
#include "core/file.h"
#include "core/names.h"
#include "inspect/edits/places.h"
#include "model/json_fields.h"

namespace attend {
namespace {

using Json = nlohmann::json;
using OrderedJson = nlohmann::ordered_json;

constexpr int format_version = 1;
constexpr std::int64_t most_bytes = std::int64_t{64} << 20;
constexpr const char* any_text = "any";

// ---- Writing --------------------------------------------------------------------------------------------------------

// The shortest decimal that reads back as the same float.
double shortest(float value) {
  char digits[64];
  const auto [end, error] = std::to_chars(digits, digits + sizeof(digits), value);
  double read = static_cast<double>(value);
  if (error == std::errc()) std::from_chars(digits, end, read);
  return read;
}

OrderedJson written(const std::vector<PositionRange>& ranges) {
  OrderedJson list = OrderedJson::array();
  for (const PositionRange& range : ranges) {
    if (range.end == 0) list.push_back(range.begin);
    else if (range.end == PositionRange::open_end) list.push_back({range.begin, nullptr});
    else list.push_back({range.begin, range.end});
  }
  return list;
}

OrderedJson written(const EditText& text) {
  OrderedJson object = OrderedJson::object();
  if (!text.source.empty()) object["source"] = text.source;
  else if (!text.source_text.empty()) object["source"] = text.source_text;
  if (!text.target.empty()) object["target"] = text.target;
  else if (!text.target_text.empty()) object["target"] = text.target_text;
  return object;
}

OrderedJson written(const Edit& edit) {
  OrderedJson object = OrderedJson::object();
  object["name"] = edit.name;
  object["kind"] = name_of(edit.kind);
  object["at"] = edit.at;
  const std::vector<std::string>& has = fields_of(edit.kind);
  const auto add = [&](const char* field, bool filled, OrderedJson value) {
    if (filled && std::find(has.begin(), has.end(), field) != has.end()) object[field] = std::move(value);
  };
  add("items", !edit.items.empty(), edit.items);
  add("heads", !edit.heads.empty(), edit.heads);
  add("positions", !edit.positions.empty(), written(edit.positions));
  add("keys", !edit.keys.empty(), written(edit.keys));
  add("value", true, shortest(edit.value));
  add("size", true, edit.size);
  add("seed", true, edit.seed);
  OrderedJson texts = OrderedJson::array();
  for (const EditText& text : edit.texts) texts.push_back(written(text));
  add("texts", !edit.texts.empty(), std::move(texts));
  add("by_position", edit.by_position, edit.by_position);
  add("model", !edit.model.empty(), edit.model);
  add("from_positions", !edit.from_positions.empty(), written(edit.from_positions));
  return object;
}

// ---- Reading --------------------------------------------------------------------------------------------------------

std::string shown(const Json& value) {
  return shortened(value.dump(-1, ' ', false, Json::error_handler_t::replace), 60);
}

class Reader {
 public:
  explicit Reader(const std::string& source) : source_(source) {}

  EditFile read(const Json& root) const {
    check_keys(root, "", {"version", "model", "text", "edits"});
    const Json& version = need(root, "", "version");
    if (!version.is_number_integer() || version != format_version)
      refuse("version", version, join(format_version), "another version of attend wrote the file");
    EditFile file;
    file.model = print(root, "model", false);
    file.text = print(root, "text", true);
    const Json& edits = need(root, "", "edits");
    if (!edits.is_array()) refuse("edits", edits, "a list of edits");
    for (std::size_t i = 0; i < edits.size(); ++i) {
      const std::string where = join("edits[", i, "]");
      Edit edit = read_edit(edits[i], where);
      try {
        file.edits.add(std::move(edit));
      } catch (const Error& error) {
        throw Error(ErrorKind::config, source_ + ": " + where, join(error.where(), ": ", error.what_happened()),
                    error.advice());
      }
    }
    if (file.text == any_text && file.edits.has_positions())
      throw Error(ErrorKind::config, source_ + ": text", "is \"any\", but some edit names items, positions or keys",
                  "these belong to one text: give its fingerprint");
    return file;
  }

 private:
  [[noreturn]] void refuse(const std::string& key, const Json& value, const std::string& expected,
                           const std::string& advice = {}) const {
    throw Error(ErrorKind::config, source_ + ": " + key, join("holds ", shown(value), ", expected ", expected), advice);
  }

  void check_keys(const Json& object, const std::string& where, const std::vector<std::string>& known) const {
    if (!object.is_object()) refuse(where.empty() ? "the file" : where, object, "an object");
    std::string list;
    for (const std::string& name : known) list += (list.empty() ? "" : ", ") + name;
    for (const auto& [key, unused] : object.items()) {
      if (std::find(known.begin(), known.end(), key) != known.end()) continue;
      const std::string near = nearest_name(key, known);
      throw Error(ErrorKind::config, where.empty() ? source_ : source_ + ": " + where,
                  join("unknown key ", shown(Json(key))),
                  join(near.empty() ? "" : join("did you mean \"", near, "\"? "), "Known keys: ", list));
    }
  }

  const Json& need(const Json& object, const std::string& where, const char* key) const {
    const auto found = object.find(key);
    if (found == object.end())
      throw Error(ErrorKind::config, where.empty() ? source_ : source_ + ": " + where,
                  join("the key \"", key, "\" is missing"));
    return *found;
  }

  std::string print(const Json& root, const char* key, bool may_be_any) const {
    const Json& value = need(root, "", key);
    const std::string expected = join("16 hexadecimal digits", may_be_any ? " or \"any\"" : "");
    if (!value.is_string()) refuse(key, value, expected);
    const std::string text = value.get<std::string>();
    const bool digits = text.size() == 16 && text.find_first_not_of("0123456789abcdef") == std::string::npos;
    if (!digits && !(may_be_any && text == any_text)) refuse(key, value, expected);
    return text;
  }

  std::string text_of(const Json& value, const std::string& where) const {
    if (!value.is_string()) refuse(where, value, "a string");
    return value.get<std::string>();
  }

  std::int64_t number(const Json& value, const std::string& where, const char* expected = "an integer, 0 or more",
                      const char* advice = "") const {
    if (!value.is_number_integer() || value < 0 || value > std::int64_t{1} << 40)
      refuse(where, value, expected, advice);
    return value.get<std::int64_t>();
  }
  // Of a head, an item or a position.
  std::int64_t place(const Json& value, const std::string& where, const char* expected) const {
    const bool from_end = value.is_number_integer() && value < 0;
    return number(value, where, expected,
                  from_end ? "edits count from 0, in their text and in their model; none count from the end" : "");
  }

  void refuse_empty(const Json& list, const std::string& where) const {
    if (list.empty())
      throw Error(ErrorKind::config, source_ + ": " + where, "is an empty list",
                  "name at least one, or leave it out for all");
  }

  std::vector<std::int64_t> numbers(const Json& value, const std::string& where) const {
    if (!value.is_array()) refuse(where, value, "a list of integers");
    refuse_empty(value, where);
    std::vector<std::int64_t> list;
    for (const Json& each : value) list.push_back(place(each, where, "an integer, 0 or more"));
    return list;
  }

  std::vector<PositionRange> ranges(const Json& value, const std::string& where) const {
    const char* const expected = "a list of positions and ranges: 3, [5, 9] for 5 to 8, [5, null] for 5 and on";
    if (!value.is_array()) refuse(where, value, expected);
    refuse_empty(value, where);
    std::vector<PositionRange> list;
    for (const Json& each : value) {
      if (each.is_number_integer()) {
        list.push_back({place(each, where, expected), 0});
        continue;
      }
      if (!each.is_array() || each.size() != 2) refuse(where, each, expected);
      PositionRange range{place(each[0], where, expected), PositionRange::open_end};
      if (!each[1].is_null()) range.end = place(each[1], where, expected);
      if (range.end == 0) refuse(where, each, expected);
      list.push_back(range);
    }
    return list;
  }

  void read_words(const Json& value, const std::string& where, std::vector<std::int32_t>& ids,
                  std::string& text) const {
    if (value.is_string()) {
      text = value.get<std::string>();
      if (text.empty()) refuse(where, value, "text or a list of ids, not empty");
      return;
    }
    if (!value.is_array() || value.empty()) refuse(where, value, "text or a list of ids, not empty");
    for (const Json& each : value) {
      const std::int64_t id = number(each, where, "a list of token ids");
      if (id > INT32_MAX) refuse(where, each, "a token id");
      ids.push_back(static_cast<std::int32_t>(id));
    }
  }

  EditText read_text(const Json& value, const std::string& where) const {
    if (!value.is_object())
      refuse(where, value, "an object: {\"source\": \"...\", \"target\": \"...\"}, each as far as the model reads it");
    check_keys(value, where, {"source", "target"});
    EditText text;
    if (value.contains("source")) read_words(value["source"], where + ".source", text.source, text.source_text);
    if (value.contains("target")) read_words(value["target"], where + ".target", text.target, text.target_text);
    return text;
  }

  Edit read_edit(const Json& object, const std::string& where) const {
    if (!object.is_object()) refuse(where, object, "an object");
    Edit edit;
    const std::string kind = text_of(need(object, where, "kind"), where + ".kind");
    try {
      edit.kind = edit_kind_named(kind);
    } catch (const Error& error) {
      throw Error(ErrorKind::config, source_ + ": " + where + ".kind", error.what_happened(), error.advice());
    }
    std::vector<std::string> known{"name", "kind", "at"};
    known.insert(known.end(), fields_of(edit.kind).begin(), fields_of(edit.kind).end());
    check_keys(object, where, known);
    edit.name = text_of(need(object, where, "name"), where + ".name");
    edit.at = text_of(need(object, where, "at"), where + ".at");
    const auto is = [&](const char* key) { return object.contains(key); };
    const auto at = [&](const char* key) { return where + "." + key; };
    if (is("items")) edit.items = numbers(object["items"], at("items"));
    if (is("heads")) edit.heads = numbers(object["heads"], at("heads"));
    if (is("positions")) edit.positions = ranges(object["positions"], at("positions"));
    if (is("keys")) edit.keys = ranges(object["keys"], at("keys"));
    if (is("from_positions")) edit.from_positions = ranges(object["from_positions"], at("from_positions"));
    if (std::find(known.begin(), known.end(), "value") != known.end()) {
      const Json& value = need(object, where, "value");
      if (!value.is_number() || !std::isfinite(static_cast<float>(value.get<double>())))
        refuse(at("value"), value, "a finite number");
      edit.value = static_cast<float>(value.get<double>());
    }
    if (std::find(known.begin(), known.end(), "size") != known.end())
      edit.size = number(need(object, where, "size"), at("size"));
    if (is("seed")) {
      if (!object["seed"].is_number_unsigned()) refuse(at("seed"), object["seed"], "an integer, 0 or more");
      edit.seed = object["seed"].get<std::uint64_t>();
    }
    if (is("texts")) {
      const Json& texts = object["texts"];
      if (!texts.is_array() || texts.empty()) refuse(at("texts"), texts, "a list of objects with source and target");
      for (std::size_t i = 0; i < texts.size(); ++i)
        edit.texts.push_back(read_text(texts[i], join(at("texts"), "[", i, "]")));
    }
    if (is("by_position")) {
      if (!object["by_position"].is_boolean()) refuse(at("by_position"), object["by_position"], "true or false");
      edit.by_position = object["by_position"].get<bool>();
    }
    if (is("model")) edit.model = text_of(object["model"], at("model"));
    return edit;
  }

  const std::string& source_;
};

}  // namespace

std::string to_json(const EditFile& file) {
  OrderedJson root = OrderedJson::object();
  root["version"] = format_version;
  root["model"] = file.model;
  root["text"] = file.text;
  OrderedJson edits = OrderedJson::array();
  for (const Edit& edit : file.edits.list()) edits.push_back(written(edit));
  root["edits"] = std::move(edits);
  try {
    return root.dump(2) + "\n";
  } catch (const Json::exception&) {
    throw Error(ErrorKind::text, "edits", "a name, place, text or model is not well-formed UTF-8");
  }
}

EditFile edit_file_from_json(const std::string& text, const std::string& source) {
  check_json(text, source);
  return Reader(source).read(Json::parse(text));
}

EditFile load_edit_file(const std::filesystem::path& path) {
  return edit_file_from_json(read_file(path, most_bytes), path.string());
}

void save_edit_file(const std::filesystem::path& path, const EditFile& file) {
  const std::string text = to_json(file);
  if (text.size() > static_cast<std::size_t>(most_bytes))
    throw Error(ErrorKind::argument, path.string(),
                join("would have ", text.size(), " bytes, and edit files of at most ", most_bytes, " are read"),
                "name ranges of positions instead of each, or save the edits in two files");
  // Read before it is written: what reading refuses has its rules and its words in one place.
  try {
    edit_file_from_json(text, path.string());
  } catch (const Error& error) {
    throw Error(ErrorKind::argument, error.where(), join(error.what_happened(), ", and could not be read again"),
                error.advice());
  }
  write_file(path, text);
}

void EditFile::check_fits(const Model& of_model, const EditInput& input) const {
  if (const std::string found = fingerprint(of_model); found != model)
    throw Error(ErrorKind::argument, "edit file",
                join("it was made for the model of fingerprint ", model, ", this one has ", found),
                "use that model, or make the edits again for this one");
  if (text == any_text) {
    if (edits.has_positions())
      throw Error(ErrorKind::argument, "edit file", "it is for any text, but some edit names items, positions or keys",
                  "these belong to one text");
    return;
  }
  if (const std::string found = text_fingerprint(input); found != text)
    throw Error(ErrorKind::argument, "edit file",
                join("it was made for the text of fingerprint ", text, ", this one has ", found),
                "use that text, source and target (--target); edits without positions can be kept for \"any\" text");
}

}  // namespace attend
