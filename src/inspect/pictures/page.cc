// The page that stands alone.
#include <cstring>
#include <string_view>

#include "attend/error.h"
#include "attend/version.h"
#include "inspect/pictures/colours.h"
#include "inspect/pictures/image.h"
#include "inspect/pictures/json_text.h"
#include "inspect/pictures/text.h"

namespace attend {

namespace pictures {
extern const std::string_view page_html, page_css, page_js;  // made from src/inspect/page
}

using namespace pictures;

namespace {

constexpr double most_bytes = 256e6;

std::string floats(const std::vector<float>& values) {
  return join("\"", base64({reinterpret_cast<const char*>(values.data()), values.size() * sizeof(float)}), "\"");
}

std::string ramp_text(Theme theme, bool is_signed) {
  std::string out = "\"";
  for (Colour colour : ramp(theme, is_signed)) out += hexadecimal(colour).substr(1);
  return out + "\"";
}

std::string properties(Theme theme) {
  const Palette& colours = palette(theme);
  return join("{color-scheme:", theme == Theme::light ? "light" : "dark", ";--paper:", hexadecimal(colours.paper),
              ";--ink:", hexadecimal(colours.ink), ";--soft:", hexadecimal(colours.soft),
              ";--rule:", hexadecimal(colours.rule), ";--hatch:", hexadecimal(colours.hatch),
              ";--query:", hexadecimal(colours.query), ";--key:", hexadecimal(colours.key),
              ";--edited:", hexadecimal(colours.edited), "}");
}

// A JSON string holds no bare "<", so none can open or close an element around it.
std::string inside_html(std::string json) {
  std::string out;
  out.reserve(json.size());
  for (char c : json) {
    if (c == '<') out += "\\u003c";
    else out += c;
  }
  return out;
}

std::string shown_fields(const ShownToken& token) { return json_token_fields(shown(token.text), token); }

std::string part_json(const std::string& name, const std::string& unit, const std::vector<float>& values,
                      const char* kind) {
  return join("{\"name\":", json_string(clean(name)), ",\"unit\":", json_string(clean(unit)),
              kind ? join(",\"kind\":\"", kind, "\"") : "", ",\"values\":", floats(values), "}");
}

std::string page_data(const Inspection& inspection, PictureLanguage language) {
  const auto text = [](const std::string& value) { return json_string(clean(value)); };
  const auto attention_json = [&](const ShownAttention& attention) {
    const auto number = [](int value) { return std::to_string(value); };
    std::string out = join("{\"name\":", text(attention.name), ",\"query_text\":", attention.query_text,
                           ",\"key_text\":", attention.key_text, ",\"layers\":", json_list(attention.layers, number),
                           ",\"heads\":", json_list(attention.heads, number), ",\"masked\":");
    out += attention.masked.empty()
               ? "null"
               : join("\"", base64({reinterpret_cast<const char*>(attention.masked.data()), attention.masked.size()}),
                      "\"");
    out.append(",\n\"measures\":").append(json_list(attention.measures, [](const Measure& measure) {
      return part_json(measure.name, measure.unit, measure.values, name_of(measure.kind));
    }));
    out.append(",\n\"statistics\":").append(json_list(attention.statistics, [](const RowStatistic& statistic) {
      return part_json(statistic.name, statistic.unit, statistic.values, nullptr);
    }));
    out.append(",\n\"metrics\":").append(json_list(attention.metrics, [](const HeadMetric& metric) {
      return part_json(metric.name, metric.unit, metric.values, nullptr);
    }));
    return out + "}";
  };
  std::string out = join("{\"language\":\"", language == PictureLanguage::chinese ? "zh" : "en",
                         "\",\"model\":", text(inspection.model), ",\"fingerprint\":", text(inspection.fingerprint),
                         ",\"target\":", text(inspection.target), ",\"edits\":", json_list(inspection.edits, text),
                         ",\"note\":", text(inspection.note), ",\"outcome_unit\":", text(inspection.outcome_unit));
  out.append(",\n\"texts\":").append(json_list(inspection.texts, [&](const ShownText& one) {
    return join("{\"name\":", text(one.name), ",\"tokens\":",
                json_list(one.tokens, [](const ShownToken& token) { return join("{", shown_fields(token), "}"); }),
                "}");
  }));
  out.append(",\n\"attentions\":").append(json_list(inspection.attentions, attention_json));
  out.append(",\n\"attributions\":").append(json_list(inspection.attributions, [](const TokenAttribution& attribution) {
    return json_attribution(attribution, json_list(attribution.values, [](const std::vector<float>& values) {
                              return values.empty() ? std::string("null") : floats(values);
                            }));
  }));
  out.append(",\n\"outcomes\":").append(json_list(inspection.outcomes, [](const Outcome& outcome) {
    return join("{", shown_fields(outcome.token), ",\"base\":", json_number(outcome.base),
                ",\"edited\":", json_number(outcome.edited), "}");
  }));
  return out + join(",\n\"ramps\":{\"light\":", ramp_text(Theme::light, false),
                    ",\"light_signed\":", ramp_text(Theme::light, true), ",\"dark\":", ramp_text(Theme::dark, false),
                    ",\"dark_signed\":", ramp_text(Theme::dark, true), "}}");
}

}  // namespace

std::string html_of(const Inspection& inspection, PictureLanguage language) {
  check(inspection);
  double bytes = 0;
  for (const ShownAttention& attention : inspection.attentions) {
    if (attention.measures.empty())
      throw Error(ErrorKind::argument, "HTML page", join(attention.name, " holds no measure"),
                  "give its weights, or leave it out");
    const auto add = [&](std::size_t count, std::size_t size) { bytes += static_cast<double>(count * size) * 4 / 3; };
    for (const Measure& measure : attention.measures) add(measure.values.size(), sizeof(float));
    for (const RowStatistic& statistic : attention.statistics) add(statistic.values.size(), sizeof(float));
    for (const HeadMetric& metric : attention.metrics) add(metric.values.size(), sizeof(float));
    add(attention.masked.size(), 1);
  }
  constexpr std::size_t token_fields = 45;  // {"text":"","special":false,"blank_before":false}
  for (const ShownText& text : inspection.texts)
    for (const ShownToken& token : text.tokens) bytes += static_cast<double>(token.text.size() + token_fields);
  if (inspection.attentions.empty())
    throw Error(ErrorKind::argument, "HTML page", "the inspection holds no attention", "give at least one");
  if (bytes > most_bytes)
    throw Error(ErrorKind::argument, "HTML page",
                join("the page would take ", static_cast<std::int64_t>(bytes / 1e6), " MB; browsers open up to ",
                     most_bytes / 1e6),
                "choose fewer layers, heads or measures, merge tokens to words, or write NPZ");

  // One walk over the template: what was put in is not looked at again, whatever it spells.
  std::string out;
  const std::string title = inspection.model.empty() ? "Attend" : join(clean(inspection.model), " \u00B7 Attend");
  std::string_view rest = page_html;
  for (std::size_t at = rest.find("{{"); at != std::string_view::npos; at = rest.find("{{")) {
    const std::size_t end = rest.find("}}", at);
    const std::string_view name = rest.substr(at + 2, end - at - 2);
    out += rest.substr(0, at);
    if (name == "title") out += escaped(title);
    else if (name == "language") out += language == PictureLanguage::chinese ? "zh-CN" : "en";
    else if (name == "version") out += escaped(version());
    else if (name == "palette")
      out += join(":root", properties(Theme::light), "\n:root[data-theme=dark]", properties(Theme::dark));
    else if (name == "style") out += page_css;
    else if (name == "script") out += page_js;
    else if (name == "data") out += inside_html(page_data(inspection, language));
    rest.remove_prefix(end + 2);
  }
  return out.append(rest);
}

}  // namespace attend
