#include <algorithm>
#include <nlohmann/json.hpp>
#include <set>

#include "attend/checkpoint.h"
#include "attend/error.h"
#include "attend/safetensors.h"
#include "load/weights.h"
#include "model/json_fields.h"

namespace attend {
namespace {

using Json = nlohmann::json;

constexpr const char* layer_mark = "{layer}";

// One tensor of theirs, or rows of it.
struct Source {
  std::string tensor;
  bool transpose = false;
  std::int64_t begin = 0, end = -1;  // rows; -1: to the last
};

class Table {
 public:
  Table(const std::string& text, std::string source) : source_(std::move(source)) {
    check_json(text, source_);
    const Json json = Json::parse(text);
    if (!json.is_object()) refuse("expected an object with config and parameters");
    known_keys(json, "", {"config", "parameters", "ignore", "note"});
    if (!json.contains("config") || !json["config"].is_object()) refuse("expected an object under \"config\"");
    config = config_from_json(json["config"].dump(), source_ + ": config");
    if (!json.contains("parameters") || !json["parameters"].is_object())
      refuse("expected an object under \"parameters\"");
    for (const auto& [name, value] : json["parameters"].items()) {
      std::vector<Source> sources;
      if (!value.is_array()) sources.push_back(one(name, value));
      else
        for (const Json& each : value) sources.push_back(one(name, each));
      if (sources.empty()) refuse(join("parameter \"", name, "\" has an empty list"));
      parameters[name] = std::move(sources);
    }
    if (json.contains("ignore")) {
      if (!json["ignore"].is_array()) refuse("expected a list of names under \"ignore\"");
      for (const Json& each : json["ignore"]) {
        if (!each.is_string()) refuse("expected a list of names under \"ignore\"");
        ignored.push_back(each.get<std::string>());
      }
    }
  }

  [[noreturn]] void refuse(const std::string& what, const std::string& advice = {}) const {
    throw Error(ErrorKind::config, source_, what, advice);
  }

  TransformerConfig config;
  std::map<std::string, std::vector<Source>> parameters;
  std::vector<std::string> ignored;

 private:
  void known_keys(const Json& object, const std::string& where, const std::vector<std::string>& names) const {
    for (const auto& [key, value] : object.items()) {
      if (std::find(names.begin(), names.end(), key) != names.end()) continue;
      const std::string near = nearest_name(key, names);
      refuse(join("unknown key \"", key, "\"", where), near.empty() ? "" : join("did you mean \"", near, "\"?"));
    }
  }

  Source one(const std::string& name, const Json& value) const {
    const std::string where = join(" of parameter \"", name, "\"");
    if (value.is_string()) return {value.get<std::string>()};
    if (!value.is_object()) refuse("expected a name, an object or a list of these as the source" + where);
    known_keys(value, where, {"from", "transpose", "rows"});
    if (!value.contains("from") || !value["from"].is_string()) refuse("expected a name under \"from\"" + where);
    Source result{value["from"].get<std::string>()};
    if (value.contains("transpose")) {
      if (!value["transpose"].is_boolean()) refuse("expected true or false under \"transpose\"" + where);
      result.transpose = value["transpose"].get<bool>();
    }
    if (value.contains("rows")) {
      const Json& rows = value["rows"];
      const bool pair =
          rows.is_array() && rows.size() == 2 && rows[0].is_number_unsigned() && rows[1].is_number_unsigned();
      if (!pair || rows[0].get<std::uint64_t>() > rows[1].get<std::uint64_t>() ||
          rows[1].get<std::uint64_t>() > INT32_MAX)
        refuse("expected [begin, end] under \"rows\"" + where);
      result.begin = rows[0].get<std::int64_t>();
      result.end = rows[1].get<std::int64_t>();
    }
    return result;
  }

  std::string source_;
};

// "decoder.11.self.norm.gain" becomes "decoder.{layer}.self.norm.gain" and 11.
std::pair<std::string, std::string> split_layer(const std::string& name) {
  const std::size_t begin = name.find('.');
  if (begin == std::string::npos) return {name, ""};
  const std::size_t end = name.find_first_not_of("0123456789", begin + 1);
  if (end == begin + 1 || end == std::string::npos || name[end] != '.') return {name, ""};
  return {name.substr(0, begin + 1) + layer_mark + name.substr(end), name.substr(begin + 1, end - begin - 1)};
}

std::string with_layer(std::string name, const std::string& layer) {
  const std::string mark = layer_mark;
  for (std::size_t at = name.find(mark); at != std::string::npos; at = name.find(mark, at + layer.size()))
    name.replace(at, mark.size(), layer);
  return name;
}

bool is_ignored(const std::string& name, const std::vector<std::string>& patterns) {
  for (const std::string& pattern : patterns)
    if (pattern == name || (pattern.ends_with('*') && name.starts_with(pattern.substr(0, pattern.size() - 1))))
      return true;
  return false;
}

// A tensor of theirs as rows and columns, as our parameter has them.
struct Rows {
  std::int64_t rows = 0, columns = 0;
  std::vector<float> numbers;
};

Rows read_rows(const Table& table, const SafetensorsFile& file, const Source& source, const Parameter& parameter) {
  const SafetensorsEntry& entry = file.entry(source.tensor);
  std::vector<std::int64_t> shape = entry.shape;
  while (!shape.empty() && shape.front() == 1) shape.erase(shape.begin());
  Rows result;
  const bool vector = parameter.value.shape().axes() == 1;
  if (shape.size() > 2 || (vector && shape.size() > 1))
    table.refuse(join("tensor \"", entry.name, "\" has shape ", shape_text(entry.shape),
                      " and cannot become parameter \"", parameter.name, "\" ", parameter.value.shape()));
  if (shape.size() == 2) result.rows = shape[0], result.columns = shape[1];
  else if (vector) result.rows = entry.elements, result.columns = 1;
  else result.rows = 1, result.columns = entry.elements;
  result.numbers.resize(static_cast<std::size_t>(entry.elements));
  file.read(entry, result.numbers);
  if (source.transpose) {
    std::vector<float> turned(result.numbers.size());
    for (std::int64_t r = 0; r < result.rows; ++r)
      for (std::int64_t c = 0; c < result.columns; ++c)
        turned[static_cast<std::size_t>(c * result.rows + r)] =
            result.numbers[static_cast<std::size_t>(r * result.columns + c)];
    result.numbers = std::move(turned);
    std::swap(result.rows, result.columns);
  }
  if (source.end >= 0) {
    if (source.end > result.rows)
      table.refuse(join("rows ", source.begin, " to ", source.end, " of tensor \"", entry.name,
                        "\" are asked for, it has ", result.rows));
    const auto from = static_cast<std::ptrdiff_t>(source.begin * result.columns),
               to = static_cast<std::ptrdiff_t>(source.end * result.columns);
    result.numbers = std::vector<float>(result.numbers.begin() + from, result.numbers.begin() + to);
    result.rows = source.end - source.begin;
  }
  return result;
}

}  // namespace

Model import_model(const std::filesystem::path& weights, const std::string& table_text,
                   const std::string& table_source) {
  const Table table(table_text, table_source);
  const SafetensorsFile file(weights);
  check_amount(table.config, file, table_source);
  Model model(table.config);
  std::set<std::string> used_rows, used_tensors;

  for (Parameter& parameter : model.parameters()) {
    auto [key, layer] = split_layer(parameter.name);
    used_rows.insert(key);
    if (table.parameters.contains(parameter.name)) key = parameter.name;  // an exception for one layer
    const auto row = table.parameters.find(key);
    if (row == table.parameters.end()) {
      const std::string why = deciding_field(table.config, parameter.name, -1);
      table.refuse(join("has no row for parameter \"", key, "\"", why.empty() ? "" : join(" (", why, ")")));
    }
    used_rows.insert(key);

    const std::int64_t rows = parameter.value.shape()[0];
    const std::int64_t columns = parameter.value.shape().axes() > 1 ? parameter.value.shape()[1] : 1;
    std::int64_t filled = 0;
    std::string found;
    bool fit = true;
    for (Source source : row->second) {
      source.tensor = with_layer(source.tensor, layer);
      used_tensors.insert(source.tensor);
      const Rows part = read_rows(table, file, source, parameter);
      found += join(found.empty() ? "" : " and ", "\"", source.tensor, "\" [", part.rows, ", ", part.columns, "]");
      fit = fit && part.columns == columns && part.rows <= rows - filled;
      if (fit) std::copy(part.numbers.begin(), part.numbers.end(), parameter.value.data() + filled * columns);
      filled += part.rows;
    }
    if (!fit || filled != rows) {
      std::string why;
      for (int axis = 0; axis < parameter.value.shape().axes(); ++axis) {
        const std::string field = deciding_field(table.config, parameter.name, axis);
        if (!field.empty()) why += (why.empty() ? "" : ", ") + field;
      }
      table.refuse(join("parameter \"", parameter.name, "\" is [", rows, ", ", columns, "] (", why,
                        "), but is made of ", found));
    }
    require_finite(file.source(), parameter.name, parameter.value);
    parameter.changed();
  }

  std::vector<std::string> names;
  for (const Parameter& parameter : model.parameters()) names.push_back(split_layer(parameter.name).first);
  for (const auto& [name, sources] : table.parameters) {
    if (used_rows.contains(name)) continue;
    const std::string near = nearest_name(name, names);
    table.refuse(join("names the parameter \"", name, "\", which the model does not have"),
                 near.empty() ? "" : join("did you mean \"", near, "\"?"));
  }
  for (const SafetensorsEntry& entry : file.entries())
    if (!used_tensors.contains(entry.name) && !is_ignored(entry.name, table.ignored))
      table.refuse(join("has no use for tensor \"", entry.name, "\" ", shape_text(entry.shape), " of ", file.source()),
                   "give it a row, or name it under \"ignore\"");
  return model;
}

}  // namespace attend
