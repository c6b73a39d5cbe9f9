#include "inspect/rows.h"

#include <algorithm>
#include <functional>
#include <numeric>
#include <optional>
#include <span>

#include "attend/error.h"
#include "attend/unicode.h"

namespace attend {
namespace {

// The mean over the tokens of every group.
void append_means(const Tensor& rows, std::int64_t column, const std::vector<TokenGroup>& groups,
                  std::vector<float>& out) {
  for (const TokenGroup& group : groups) {
    double sum = 0;
    for (std::int64_t row = group.begin; row < group.end; ++row) sum += static_cast<double>(rows.at(row, column));
    out.push_back(static_cast<float>(sum / static_cast<double>(group.size())));
  }
}

float mean_of(const Tensor& rows, std::int64_t column) {
  double sum = 0;
  for (std::int64_t row = 0; row < rows.rows(); ++row) sum += static_cast<double>(rows.at(row, column));
  return static_cast<float>(sum / static_cast<double>(rows.rows()));
}

struct RowKind {
  const char* name;
  const char* unit;
  bool of_positions;  // which two texts do not share
  Tensor StatisticsResult::*values;
};

constexpr RowKind row_kinds[] = {
    {"entropy", "nats", false, &StatisticsResult::entropy}, {"distance", "tokens", true, &StatisticsResult::distance},
    {"on first", "", false, &StatisticsResult::first},      {"on self", "", true, &StatisticsResult::self},
    {"on previous", "", true, &StatisticsResult::previous},
};

// The region's keys as spans of tokens; nothing where the text does not have them all.
std::optional<std::vector<KeySpan>> spans_of(const KeyRegion& region, const std::vector<TokenGroup>& groups) {
  std::vector<KeySpan> spans;
  const auto add = [&](const TokenGroup& first, const TokenGroup& last) {
    spans.push_back({0, -1, first.begin, last.end});
  };
  if (region.special) {
    for (const TokenGroup& group : groups)
      if (group.special()) add(group, group);
    return spans.empty() ? std::nullopt : std::optional(spans);
  }
  const auto count = static_cast<std::int64_t>(groups.size());
  for (const KeyRegion::Span& span : region.spans) {
    const std::int64_t begin = span.begin < 0 ? count + span.begin : span.begin;
    const std::int64_t end = span.end == KeyRegion::Span::to_end ? count : span.end < 0 ? count + span.end : span.end;
    if (begin < 0 || begin >= end || end > count) return std::nullopt;
    add(groups[static_cast<std::size_t>(begin)], groups[static_cast<std::size_t>(end - 1)]);
  }
  return spans;
}

[[noreturn]] void refuse_region(const KeyRegion& region, const Inspection& shown,
                                const std::vector<AskedAttention>& asked) {
  std::string known;
  bool named = region.text.empty();
  for (std::size_t text = 0; text < shown.texts.size(); ++text) {
    if (std::none_of(asked.begin(), asked.end(), [&](const AskedAttention& one) { return one.key_text == text; }))
      continue;
    const ShownText& one = shown.texts[text];
    named = named || one.name == region.text;
    known += join(known.empty() ? "" : ", ", one.name, " has keys 0 to ", one.tokens.size() - 1);
  }
  const std::string where = join("region \"", region.name, "\"");
  if (!named)
    throw Error(ErrorKind::argument, where,
                join("no attention chosen reads a text \"", replace_invalid_utf8(region.text.substr(0, 40)), "\""),
                known);
  throw Error(ErrorKind::argument, where,
              region.special
                  ? "there are no special tokens"
                  : join("no text", region.text.empty() ? "" : join(" \"", region.text, "\""), " has all of its keys"),
              join(known, ", and spans end behind their begin"));
}

// Calls `row` with the merged weights of every group of queries, mean over the layers and heads: a block of rows at a
// time, rebuilt from what the run left.
void for_merged_rows(const StatisticsRecorder& run, const AskedAttention& asked, const std::vector<int>& layers,
                     const std::vector<int>& heads, const std::function<void(std::span<const float>)>& row) {
  const GroupedText &queries = *asked.queries, &keys = *asked.keys;
  constexpr std::int64_t cells_at_once = 1 << 19;
  const auto width = static_cast<std::int64_t>(keys.pieces.size());
  const double count = static_cast<double>(layers.size() * heads.size());
  for (std::size_t first = 0; first < queries.groups.size();) {
    const std::int64_t begin = queries.groups[first].begin;
    std::vector<TokenGroup> block;
    while (first < queries.groups.size() &&
           (block.empty() || (queries.groups[first].end - begin) * width <= cells_at_once)) {
      block.push_back(queries.groups[first++]);
      block.back().begin -= begin;
      block.back().end -= begin;
    }
    const std::int64_t rows = block.back().end;
    std::vector<float> mean(static_cast<std::size_t>(rows * width));
    std::vector<double> sum(mean.size());
    for (const int layer : layers)
      for (const int head : heads) {
        const Tensor weights =
            run.runs(asked.stack, layer, asked.part).back().record->weights(0, head, begin, begin + rows, 0, width);
        for (std::size_t cell = 0; cell < sum.size(); ++cell) sum[cell] += static_cast<double>(weights.data()[cell]);
      }
    for (std::size_t cell = 0; cell < sum.size(); ++cell) mean[cell] = static_cast<float>(sum[cell] / count);
    const std::vector<float> merged = merge(mean, block, keys.groups, Merge::weights);
    for (std::size_t query = 0; query < block.size(); ++query)
      row(std::span(merged).subspan(query * keys.groups.size(), keys.groups.size()));
  }
}

}  // namespace

void check_regions(const std::vector<KeyRegion>& regions) {
  std::vector<std::string> names{"first", "self", "previous"};
  for (const KeyRegion& region : regions) {
    const std::string where = join("region \"", replace_invalid_utf8(region.name.substr(0, 40)), "\"");
    if (region.name.empty() || region.name.size() > 40 || find_invalid_utf8(region.name) != std::string::npos ||
        std::any_of(region.name.begin(), region.name.end(),
                    [](char c) { return static_cast<unsigned char>(c) < 32 || c == 127; }))
      throw Error(ErrorKind::argument, where, join("its name has ", region.name.size(), " bytes or is no text"),
                  "names are text of 1 to 40 bytes");
    if (std::find(names.begin(), names.end(), region.name) != names.end())
      throw Error(ErrorKind::argument, where, "there is one of this name already", "take another name");
    if (region.spans.empty() && !region.special)
      throw Error(ErrorKind::argument, where, "it has no keys", "give spans of keys, from 0");
    names.push_back(region.name);
  }
}

void ask_rows(const std::string& key_text, const InspectOptions& options, AskedAttention& asked) {
  asked.request.heads.assign(asked.heads.begin(), asked.heads.end());
  asked.request.entropy = asked.request.first = options.statistics;
  asked.request.distance = asked.request.self = asked.request.previous = options.statistics && asked.part == Part::self;
  for (const KeyRegion& region : options.regions) {
    if (!region.text.empty() && region.text != key_text) continue;
    const std::optional<std::vector<KeySpan>> spans = spans_of(region, asked.keys->groups);
    if (!spans) continue;
    for (KeySpan span : *spans) {
      span.list = static_cast<std::int64_t>(asked.regions.size());
      asked.request.spans.push_back(span);
    }
    asked.regions.push_back(&region);
  }
  asked.request.lists = static_cast<std::int64_t>(asked.regions.size());
  asked.fused_top = !options.mean_heads && asked.queries->groups.size() == asked.queries->pieces.size() &&
                    asked.keys->groups.size() == asked.keys->pieces.size();
  if (asked.fused_top) asked.request.top = options.top_keys;
}

void check_regions_found(const std::vector<KeyRegion>& regions, const std::vector<AskedAttention>& asked,
                         const Inspection& shown) {
  for (const KeyRegion& region : regions)
    if (std::none_of(asked.begin(), asked.end(), [&](const AskedAttention& one) {
          return std::find(one.regions.begin(), one.regions.end(), &region) != one.regions.end();
        }))
      refuse_region(region, shown, asked);
}

RowsTold rows_told(const StatisticsRecorder& run, const AskedAttention& asked, const InspectOptions& options) {
  RowsTold told;
  // Of every head, `lists` columns a head from this one on.
  const auto tell = [&](const std::string& name, const std::string& unit, Tensor StatisticsResult::*values,
                        std::int64_t first, std::int64_t lists) {
    RowStatistic& row = told.statistics.emplace_back(RowStatistic{name, unit, {}});
    HeadMetric& metric = told.metrics.emplace_back(HeadMetric{name, unit, {}});
    for (const int layer : asked.layers) {
      const Tensor& all = run.result(asked.stack, layer, asked.part).*values;
      for (std::int64_t column = first; column < all.width(); column += lists) {
        append_means(all, column, asked.queries->groups, row.values);
        metric.values.push_back(mean_of(all, column));
      }
    }
  };
  for (const RowKind& kind : row_kinds)
    if (options.statistics && !(kind.of_positions && asked.part == Part::cross))
      tell(kind.name, kind.unit, kind.values, 0, 1);
  const auto lists = static_cast<std::int64_t>(asked.regions.size());
  for (std::int64_t list = 0; list < lists; ++list)
    tell("on " + asked.regions[static_cast<std::size_t>(list)]->name, "", &StatisticsResult::list_mass, list, lists);
  return told;
}

std::vector<std::vector<Reading>> readings_of(const StatisticsRecorder& run, const AskedAttention& asked,
                                              double least) {
  std::vector<std::vector<Reading>> all;
  for_merged_rows(run, asked, asked.layers, asked.heads, [&](std::span<const float> weights) {
    std::vector<Reading>& row = all.emplace_back();
    for (std::size_t key = 0; key < weights.size(); ++key)
      if (const double share = weights[key]; share >= least) row.push_back({key, share});
    std::stable_sort(row.begin(), row.end(), [](const Reading& a, const Reading& b) { return a.share > b.share; });
  });
  return all;
}

LargestKeys largest_of(const StatisticsRecorder& run, const AskedAttention& asked, const InspectOptions& options) {
  LargestKeys largest;
  largest.count = options.top_keys;
  const auto count = static_cast<std::size_t>(options.top_keys);
  const auto add = [&](std::int32_t key, float weight) {
    largest.keys.push_back(weight > 0 ? key : -1);
    largest.weights.push_back(weight);
  };
  const auto add_row = [&](std::span<const float> weights) {
    std::vector<std::int32_t> order(weights.size());
    std::iota(order.begin(), order.end(), 0);
    const std::size_t most = std::min(count, order.size());
    std::partial_sort(order.begin(), order.begin() + static_cast<std::ptrdiff_t>(most), order.end(),
                      [&](std::int32_t a, std::int32_t b) {
                        const float in_a = weights[static_cast<std::size_t>(a)],
                                    in_b = weights[static_cast<std::size_t>(b)];
                        return in_a != in_b ? in_a > in_b : a < b;
                      });
    for (std::size_t i = 0; i < count; ++i)
      add(i < most ? order[i] : -1, i < most ? weights[static_cast<std::size_t>(order[i])] : 0);
  };
  for (const int layer : asked.layers) {
    if (options.mean_heads) {
      for_merged_rows(run, asked, {layer}, asked.heads, add_row);
      continue;
    }
    for (std::size_t head = 0; head < asked.heads.size(); ++head) {
      if (!asked.fused_top) {
        for_merged_rows(run, asked, {layer}, {asked.heads[head]}, add_row);
        continue;
      }
      const StatisticsResult& result = run.result(asked.stack, layer, asked.part);
      for (std::size_t row = 0; row < asked.queries->pieces.size(); ++row)
        for (std::size_t i = 0; i < count; ++i)
          add(result.top_keys[(row * asked.heads.size() + head) * count + i],
              result.top_weights.at(static_cast<std::int64_t>(row), static_cast<std::int64_t>(head * count + i)));
    }
  }
  return largest;
}

}  // namespace attend
