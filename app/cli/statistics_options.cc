#include "statistics_options.h"

#include <algorithm>
#include <charconv>
#include <cstdio>
#include <optional>
#include <string_view>

#include "attend/error.h"
#include "attend/statistics.h"
#include "attend/unicode.h"
#include "terminal.h"

namespace attend::cli {
namespace {

using Span = KeyRegion::Span;

[[noreturn]] void refuse(const std::string& what) {
  throw Error(ErrorKind::argument, "--span", what,
              "write NAME=3, NAME=3:7 (keys 3 to 6), NAME=0,5:, NAME=-2:, NAME=source:3:7, or special or last alone");
}

std::optional<std::int64_t> whole_number(std::string_view text) {
  std::int64_t number = 0;
  const auto [end, code] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (code != std::errc() || end != text.data() + text.size() || number == Span::to_end) return std::nullopt;
  return number;
}

// "3", "3:7", "3:", ":7", "-1"
Span span_of(std::string_view text, const std::string& all) {
  const std::size_t colon = text.find(':');
  const auto number = [&](std::string_view part) {
    const std::optional<std::int64_t> value = whole_number(part);
    if (!value) refuse(join("\"", part, "\" of \"", all, "\" is no number of a key"));
    return *value;
  };
  if (colon == std::string_view::npos) {
    const std::int64_t key = number(text);
    return {key, key == -1 ? Span::to_end : key + 1};
  }
  const std::string_view begin = text.substr(0, colon), end = text.substr(colon + 1);
  return {begin.empty() ? 0 : number(begin), end.empty() ? Span::to_end : number(end)};
}

KeyRegion region_of(const std::string& text) {
  KeyRegion region;
  const std::size_t equals = text.find('=');
  region.name = text.substr(0, equals);
  if (equals == std::string::npos) {
    // Where nothing is padded, the boundary to the padding is the last key.
    if (text == "last") region.spans = {{-1, Span::to_end}};
    else if (text == "special") region.special = true;
    else refuse(join("\"", text.substr(0, 60), "\" names no keys"));
    return region;
  }
  std::string_view keys = std::string_view(text).substr(equals + 1);
  if (const std::size_t colon = keys.find(':');
      colon != std::string_view::npos && colon > 0 &&
      keys.substr(0, colon).find_first_not_of("-0123456789,") != std::string_view::npos) {
    region.text = keys.substr(0, colon);
    keys.remove_prefix(colon + 1);
  }
  for (bool more = true; more;) {
    const std::size_t comma = keys.find(',');
    more = comma != std::string_view::npos;
    region.spans.push_back(span_of(keys.substr(0, comma), text.substr(0, 60)));
    if (more) keys.remove_prefix(comma + 1);
  }
  return region;
}

std::string number(float value) {
  char text[32];
  std::snprintf(text, sizeof(text), "%.3f", static_cast<double>(value));
  return text;
}

std::string right(const std::string& text, int width) {
  return std::string(static_cast<std::size_t>(std::max(0, width - display_width(text))), ' ') + text;
}

}  // namespace

void StatisticsFlags::add_to(Command& command) {
  command.add_flag(
      "--statistics", statistics,
      "Print what the rows of every head tell: entropy, mean distance, weight on first, self and previous");
  command.add_option("--top-k", top, "The N largest keys of every row of every head, and their weights")
      ->type_name("N")
      ->check(whole(1, most_top_keys));
  command
      .add_option(
          "--span", spans,
          "Weight of every row on these keys together: NAME=3:7 (keys 3 to 6, counted as shown), NAME=0,5:, "
          "NAME=-2: (the last two), NAME=source:3 (of that text only); or special (tags, ends), last (the key at "
          "the boundary to padding)")
      ->type_name("NAME=KEYS")
      ->one_each()
      ->words({"special", "last"});
}

void StatisticsFlags::choose(InspectOptions& options) const {
  options.top_keys = top;
  for (const std::string& span : spans) options.regions.push_back(region_of(span));
}

void print_statistics(Output& out, const Inspection& inspection, bool all, const std::vector<KeyRegion>& regions,
                      int columns) {
  for (const ShownAttention& attention : inspection.attentions) {
    std::vector<const RowStatistic*> statistics;
    for (const RowStatistic& one : attention.statistics)
      if (all || std::any_of(regions.begin(), regions.end(),
                             [&](const KeyRegion& region) { return one.name == "on " + region.name; }))
        statistics.push_back(&one);
    if (statistics.empty() && attention.largest.count == 0) continue;
    const auto& queries = inspection.texts[attention.query_text].tokens;
    const auto& keys = inspection.texts[attention.key_text].tokens;
    int widest = display_width("query");
    for (const ShownToken& token : queries) widest = std::max(widest, std::min(display_width(token.text), 16));
    std::string heading = "  " + padded("query", widest);
    std::vector<int> widths;
    for (const RowStatistic* statistic : statistics) {
      widths.push_back(std::max(display_width(statistic->name), 7) + 2);
      heading += right(statistic->name, widths.back());
    }
    const int before_keys = display_width(heading) + 3;
    if (attention.largest.count > 0) heading += "   largest keys";
    const auto count = static_cast<std::size_t>(attention.largest.count);
    std::size_t row = 0;
    for (const int layer : attention.layers)
      for (const int head : attention.heads) {
        out.line("");
        out.line(join(attention.name, ", layer ", layer, ", ",
                      head == mean_of_all ? "mean of the heads chosen" : join("head ", head)));
        out.line(heading);
        for (std::size_t query = 0; query < queries.size(); ++query, ++row) {
          std::string line = "  " + padded(queries[query].text, widest);
          for (std::size_t i = 0; i < widths.size(); ++i) line += right(number(statistics[i]->values[row]), widths[i]);
          int at = display_width(line);
          for (std::size_t rank = 0; rank < count; ++rank) {
            const std::int32_t key = attention.largest.keys[row * count + rank];
            if (key < 0) break;
            const std::string shown =
                keys[static_cast<std::size_t>(key)].text + " " + number(attention.largest.weights[row * count + rank]);
            if (at + 3 + display_width(shown) > columns && rank > 0) {
              out.line(line);
              line = std::string(static_cast<std::size_t>(before_keys - 3), ' ');
              at = before_keys - 3;
            }
            line += "   " + shown;
            at += 3 + display_width(shown);
          }
          out.line(line);
        }
      }
  }
}

}  // namespace attend::cli
