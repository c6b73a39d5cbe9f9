// CSV and JSON.
#include <algorithm>
#include <array>
#include <cmath>
#include <functional>
#include <nlohmann/json.hpp>
#include <set>

#include "attend/error.h"
#include "attend/unicode.h"
#include "inspect/pictures/json_text.h"
#include "inspect/pictures/text.h"

namespace attend {

namespace pictures {

// Strings are escaped by nlohmann; numbers are ours, so that a float is not written as the double it is near.
std::string json_string(std::string_view text) {
  return nlohmann::json(text).dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
}

std::string json_token_fields(std::string_view text, const ShownToken& token) {
  return join("\"text\":", json_string(text), ",\"special\":", token.special ? "true" : "false",
              ",\"blank_before\":", token.blank_before ? "true" : "false");
}

std::string json_number(double value) { return nlohmann::json(value).dump(); }

std::string json_attribution(const TokenAttribution& attribution, const std::string& values) {
  return join("{\"name\":", json_string(attribution.name), ",\"unit\":", json_string(attribution.unit),
              ",\"target\":", json_number(attribution.target), ",\"baseline\":", json_number(attribution.baseline),
              ",\"baseline_name\":", json_string(attribution.baseline_name),
              ",\"completeness_error\":", json_number(attribution.completeness_error), ",\"steps\":", attribution.steps,
              ",\n\"values\":", values, "}");
}

}  // namespace pictures

using namespace pictures;

namespace {

// RFC 4180: fields with a comma, quote or line end are quoted, quotes doubled. Tokens are always quoted, so that a
// blank or an empty one is seen.
std::string csv_quoted(std::string_view text) {
  std::string out = "\"";
  for (char c : replace_invalid_utf8(text)) out.append(c == '"' ? 2 : 1, c);
  return out + "\"";
}

std::string field(const std::string& text) {
  return text.find_first_of(",\"\r\n") == std::string::npos ? replace_invalid_utf8(text) : csv_quoted(text);
}

std::string number(float value) { return std::isnan(value) ? "" : shortest(value); }
std::string numbered(int layer_or_head) {
  return layer_or_head == mean_of_all ? "mean" : std::to_string(layer_or_head);
}

// Names in the order in which they first appear.
template <typename Part>
std::vector<std::string> names_of(const Inspection& inspection, std::vector<Part> ShownAttention::*parts) {
  std::vector<std::string> names;
  for (const ShownAttention& attention : inspection.attentions)
    for (const Part& part : attention.*parts)
      if (std::find(names.begin(), names.end(), part.name) == names.end()) names.push_back(part.name);
  return names;
}

// The columns of an attention, in the order of the names; null where it has none of that name.
template <typename Part>
std::vector<const Part*> columns_of(const std::vector<std::string>& names, const std::vector<Part>& parts) {
  std::vector<const Part*> columns;
  for (const std::string& name : names) {
    const auto at = std::find_if(parts.begin(), parts.end(), [&](const Part& part) { return part.name == name; });
    columns.push_back(at == parts.end() ? nullptr : &*at);
  }
  return columns;
}

std::string header(std::string fixed, const std::vector<std::string>& names) {
  for (const std::string& name : names) fixed.append(",").append(field(name));
  return fixed + "\r\n";
}

template <typename Part>
std::string cells(const std::vector<const Part*>& columns, std::size_t index) {
  std::string out;
  for (const Part* column : columns) out.append(",").append(column ? number(column->values[index]) : "");
  return out;
}

std::string head_fields(const ShownAttention& attention, std::size_t layer, std::size_t head) {
  return join(field(attention.name), ",", numbered(attention.layers[layer]), ",", numbered(attention.heads[head]));
}

std::string json_float(float value) {
  if (!std::isfinite(value)) return "null";
  const std::string digits = shortest(value);
  return digits == "-0" ? "-0.0" : digits;  // most readers take -0 for the integer 0
}

// [..[.., ..]..] of the shape, for values in C order.
std::string nested(std::span<const std::size_t> shape, std::size_t offset,
                   const std::function<std::string(std::size_t)>& value) {
  if (shape.empty()) return value(offset);
  std::size_t stride = 1;
  for (std::size_t size : shape.subspan(1)) stride *= size;
  std::string out = "[";
  for (std::size_t i = 0; i < shape[0]; ++i) {
    if (i) out += ",";
    out += nested(shape.subspan(1), offset + i * stride, value);
  }
  return out + "]";
}

std::string values_json(const std::vector<float>& values, std::vector<std::size_t> shape) {
  return nested(shape, 0, [&](std::size_t i) { return json_float(values[i]); });
}

std::string token_fields(const ShownToken& token) { return json_token_fields(token.text, token); }
std::string token_json(const ShownToken& token) { return join("{", token_fields(token), "}"); }

}  // namespace

std::string csv_of_cells(const Inspection& inspection) {
  check(inspection);
  const std::vector<std::string> names = names_of(inspection, &ShownAttention::measures);
  std::string out = header("attention,layer,head,query,query_token,key,key_token,masked", names);
  for (const ShownAttention& attention : inspection.attentions) {
    const auto columns = columns_of(names, attention.measures);
    const auto& queries = inspection.texts[attention.query_text].tokens;
    const auto& keys = inspection.texts[attention.key_text].tokens;
    std::vector<std::string> key_names;
    for (const ShownToken& key : keys) key_names.push_back(csv_quoted(key.text));
    std::size_t cell = 0;
    for (std::size_t layer = 0; layer < attention.layers.size(); ++layer)
      for (std::size_t head = 0; head < attention.heads.size(); ++head)
        for (std::size_t q = 0; q < queries.size(); ++q) {
          const std::string row =
              join(head_fields(attention, layer, head), ",", q, ",", csv_quoted(queries[q].text), ",");
          for (std::size_t k = 0; k < keys.size(); ++k, ++cell)
            out.append(row)
                .append(std::to_string(k))
                .append(",")
                .append(key_names[k])
                .append(!attention.masked.empty() && attention.masked[q * keys.size() + k] ? ",1" : ",0")
                .append(cells(columns, cell))
                .append("\r\n");
        }
  }
  return out;
}

std::string csv_of_rows(const Inspection& inspection) {
  check(inspection);
  const std::vector<std::string> names = names_of(inspection, &ShownAttention::statistics);
  std::string out = header("attention,layer,head,query,query_token", names);
  for (const ShownAttention& attention : inspection.attentions) {
    const auto columns = columns_of(names, attention.statistics);
    const auto& queries = inspection.texts[attention.query_text].tokens;
    std::size_t row = 0;
    for (std::size_t layer = 0; layer < attention.layers.size(); ++layer)
      for (std::size_t head = 0; head < attention.heads.size(); ++head)
        for (std::size_t q = 0; q < queries.size(); ++q, ++row)
          out += join(head_fields(attention, layer, head), ",", q, ",", csv_quoted(queries[q].text),
                      cells(columns, row), "\r\n");
  }
  return out;
}

std::string csv_of_largest(const Inspection& inspection) {
  check(inspection);
  std::string out = "attention,layer,head,query,query_token,rank,key,key_token,weight\r\n";
  for (const ShownAttention& attention : inspection.attentions) {
    const auto& queries = inspection.texts[attention.query_text].tokens;
    const auto& keys = inspection.texts[attention.key_text].tokens;
    const auto count = static_cast<std::size_t>(attention.largest.count);
    std::size_t at = 0;
    for (std::size_t layer = 0; layer < attention.layers.size(); ++layer)
      for (std::size_t head = 0; head < attention.heads.size(); ++head)
        for (std::size_t q = 0; q < queries.size(); ++q)
          for (std::size_t rank = 0; rank < count; ++rank, ++at) {
            const std::int32_t key = attention.largest.keys[at];
            if (key < 0) continue;
            out += join(head_fields(attention, layer, head), ",", q, ",", csv_quoted(queries[q].text), ",", rank + 1,
                        ",", key, ",", csv_quoted(keys[static_cast<std::size_t>(key)].text), ",",
                        number(attention.largest.weights[at]), "\r\n");
          }
  }
  return out;
}

std::string csv_of_heads(const Inspection& inspection) {
  check(inspection);
  const std::vector<std::string> names = names_of(inspection, &ShownAttention::metrics);
  std::string out = header("attention,layer,head", names);
  for (const ShownAttention& attention : inspection.attentions) {
    const auto columns = columns_of(names, attention.metrics);
    std::size_t index = 0;
    for (std::size_t layer = 0; layer < attention.layers.size(); ++layer)
      for (std::size_t head = 0; head < attention.heads.size(); ++head, ++index)
        out += head_fields(attention, layer, head) + cells(columns, index) + "\r\n";
  }
  return out;
}

std::string csv_of_tokens(const Inspection& inspection) {
  check(inspection);
  std::string out = "text,index,token";
  for (const TokenAttribution& attribution : inspection.attributions) out.append(",").append(field(attribution.name));
  out += "\r\n";
  for (std::size_t text = 0; text < inspection.texts.size(); ++text)
    for (std::size_t token = 0; token < inspection.texts[text].tokens.size(); ++token) {
      out += join(field(inspection.texts[text].name), ",", token, ",",
                  csv_quoted(inspection.texts[text].tokens[token].text));
      for (const TokenAttribution& attribution : inspection.attributions)
        out.append(",").append(attribution.values[text].empty() ? "" : number(attribution.values[text][token]));
      out += "\r\n";
    }
  return out;
}

std::string json_of(const Inspection& inspection) {
  check(inspection);
  const auto attention_json = [&](const ShownAttention& attention) {
    const std::size_t layers = attention.layers.size(), heads = attention.heads.size();
    const std::size_t queries = inspection.texts[attention.query_text].tokens.size(),
                      keys = inspection.texts[attention.key_text].tokens.size();
    const auto number_list = [](int value) {
      return value == mean_of_all ? std::string("\"mean\"") : std::to_string(value);
    };
    std::string out =
        join("{\"name\":", json_string(attention.name), ",\"query_text\":", attention.query_text,
             ",\"key_text\":", attention.key_text, ",\"layers\":", json_list(attention.layers, number_list),
             ",\"heads\":", json_list(attention.heads, number_list), ",\n\"masked\":");
    out += attention.masked.empty() ? "null" : nested(std::vector<std::size_t>{queries, keys}, 0, [&](std::size_t i) {
      return std::string(attention.masked[i] ? "1" : "0");
    });
    out.append(",\n\"measures\":").append(json_list(attention.measures, [&](const Measure& measure) {
      return join("{\"name\":", json_string(measure.name), ",\"unit\":", json_string(measure.unit), ",\"kind\":\"",
                  name_of(measure.kind),
                  "\",\n\"values\":", values_json(measure.values, {layers, heads, queries, keys}), "}");
    }));
    out.append(",\n\"statistics\":").append(json_list(attention.statistics, [&](const RowStatistic& statistic) {
      return join("{\"name\":", json_string(statistic.name), ",\"unit\":", json_string(statistic.unit),
                  ",\n\"values\":", values_json(statistic.values, {layers, heads, queries}), "}");
    }));
    out.append(",\n\"metrics\":").append(json_list(attention.metrics, [&](const HeadMetric& metric) {
      return join("{\"name\":", json_string(metric.name), ",\"unit\":", json_string(metric.unit),
                  ",\n\"values\":", values_json(metric.values, {layers, heads}), "}");
    }));
    const LargestKeys& largest = attention.largest;
    const std::array shape{layers, heads, queries, static_cast<std::size_t>(std::max<std::int64_t>(0, largest.count))};
    const auto where_read = [&](const auto& text) {
      return nested(shape, 0, [&](std::size_t i) { return largest.keys[i] < 0 ? std::string("null") : text(i); });
    };
    out += ",\n\"largest\":";
    out +=
        largest.count == 0
            ? "null"
            : join("{\"count\":", largest.count,
                   ",\n\"keys\":", where_read([&](std::size_t i) { return std::to_string(largest.keys[i]); }),
                   ",\n\"weights\":", where_read([&](std::size_t i) { return json_float(largest.weights[i]); }), "}");
    return out + "}";
  };
  std::string out = "{\"format\":\"attend inspection\",\"version\":1,\n";
  out += join("\"model\":", json_string(inspection.model), ",\"fingerprint\":", json_string(inspection.fingerprint),
              ",\"target\":", json_string(inspection.target),
              ",\n\"edits\":", json_list(inspection.edits, [](const std::string& edit) { return json_string(edit); }),
              ",\"note\":", json_string(inspection.note));
  out.append(",\n\"texts\":").append(json_list(inspection.texts, [](const ShownText& text) {
    return join("{\"name\":", json_string(text.name), ",\"tokens\":", json_list(text.tokens, token_json), "}");
  }));
  out.append(",\n\"attentions\":").append(json_list(inspection.attentions, attention_json));
  out.append(",\n\"attributions\":").append(json_list(inspection.attributions, [](const TokenAttribution& attribution) {
    return json_attribution(attribution, json_list(attribution.values, [](const std::vector<float>& values) {
                              return values.empty() ? std::string("null") : values_json(values, {values.size()});
                            }));
  }));
  out.append(",\n\"outcomes\":").append(json_list(inspection.outcomes, [](const Outcome& outcome) {
    return join("{", token_fields(outcome.token), ",\"base\":", json_number(outcome.base),
                ",\"edited\":", json_number(outcome.edited), "}");
  }));
  return out + join(",\"outcome_unit\":", json_string(inspection.outcome_unit), "}\n");
}

}  // namespace attend
