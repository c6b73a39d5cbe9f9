#include "attend/inspect.h"

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <initializer_list>
#include <functional>
#include <limits>
#include <numeric>
#include <optional>
#include <span>
#include <utility>

#include "attend/error.h"
#include "attend/statistics.h"
#include "attend/unicode.h"
#include "core/names.h"
#include "inspect/attribution/attributions.h"
#include "inspect/importance/target.h"

namespace attend {
namespace {

constexpr std::int64_t most_listed_edges = 1000;

// One attention of the model, with the layers and heads that were asked for.
struct AttentionPart {
  std::string name;
  StackKind stack = StackKind::decoder;
  Part part = Part::self;
};

std::vector<AttentionPart> parts_of(const TransformerConfig& config) {
  std::vector<AttentionPart> parts;
  if (config.encoder) parts.push_back({"encoder", StackKind::encoder, Part::self});
  if (config.decoder) parts.push_back({"decoder", StackKind::decoder, Part::self});
  if (config.encoder && config.decoder) parts.push_back({"cross", StackKind::decoder, Part::cross});
  return parts;
}

std::vector<AttentionPart> chosen_parts(const TransformerConfig& config, const std::vector<std::string>& names) {
  const std::vector<AttentionPart> all = parts_of(config);
  if (names.empty()) return all;
  std::vector<AttentionPart> chosen;
  for (const std::string& name : names) {
    const auto found =
        std::find_if(all.begin(), all.end(), [&](const AttentionPart& part) { return part.name == name; });
    if (found != all.end()) {
      if (std::none_of(chosen.begin(), chosen.end(), [&](const AttentionPart& part) { return part.name == name; }))
        chosen.push_back(*found);
      continue;
    }
    std::vector<std::string> known;
    for (const AttentionPart& part : all) known.push_back(part.name);
    const std::string near = nearest_name(name.substr(0, 40), known);
    throw Error(ErrorKind::argument, "attentions", join("the model has no attention \"", name.substr(0, 40), "\""),
                join(near.empty() ? "" : join("did you mean ", near, "? "), "it has ", listed(known)));
  }
  return chosen;
}

// Numbers from 0, negative ones from the end, each once and rising.
std::vector<int> chosen_numbers(const std::vector<int>& wanted, std::int64_t count, const std::string& what) {
  std::vector<int> numbers;
  if (wanted.empty())
    for (int i = 0; i < count; ++i) numbers.push_back(i);
  for (const int number : wanted) {
    const std::int64_t from_front = number < 0 ? count + number : number;
    if (from_front < 0 || from_front >= count)
      throw Error(ErrorKind::argument, what, join("there is no ", what, " ", number),
                  join("give 0 to ", count - 1, ", or -1 to ", -count, " counted from the end"));
    numbers.push_back(static_cast<int>(from_front));
  }
  std::sort(numbers.begin(), numbers.end());
  numbers.erase(std::unique(numbers.begin(), numbers.end()), numbers.end());
  return numbers;
}

// A stack's rows and how they are merged.
struct Side {
  std::vector<Piece> pieces;
  std::vector<TokenGroup> groups;
};

void check_pieces(const Subject& subject) {
  if (subject.source.size() != subject.input.source.size() || subject.target.size() != subject.input.ids.size())
    throw Error(ErrorKind::argument, "inspect", "the subject has other readable pieces than tokens",
                "read it with SubjectOptions::pieces");
}

Side side_of(const std::vector<Piece>& pieces, GroupBy by, const std::string& words, const Tokenizer* tokenizer) {
  if (words.empty()) return {pieces, group(pieces, by)};
  return {pieces, group_by_segmentation(pieces, words, tokenizer ? tokenizer->normalisation() : Normalisation::none)};
}

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

// Of one attention: what its rows tell, and the regions that its keys have.
struct Asked {
  StatisticsRequest request;
  std::vector<const KeyRegion*> regions;  // a list of spans each, in their order
  bool fused_top = false;                 // the request has the largest keys; else they are of merged weights
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

// Some attention has to have it.
[[noreturn]] void refuse_region(const KeyRegion& region, const Inspection& shown,
                                const std::vector<std::size_t>& key_texts) {
  std::string known;
  bool named = region.text.empty();
  for (std::size_t text = 0; text < shown.texts.size(); ++text) {
    if (std::find(key_texts.begin(), key_texts.end(), text) == key_texts.end()) continue;
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

Asked asked_of(const AttentionPart& part, const std::vector<int>& heads, const Side& queries, const Side& keys,
               const std::string& key_text, const InspectOptions& options) {
  Asked asked;
  asked.request.heads.assign(heads.begin(), heads.end());
  asked.request.entropy = asked.request.first = options.statistics;
  asked.request.distance = asked.request.self = asked.request.previous = options.statistics && part.part == Part::self;
  for (const KeyRegion& region : options.regions) {
    if (!region.text.empty() && region.text != key_text) continue;
    const std::optional<std::vector<KeySpan>> spans = spans_of(region, keys.groups);
    if (!spans) continue;
    for (KeySpan span : *spans) {
      span.list = static_cast<std::int64_t>(asked.regions.size());
      asked.request.spans.push_back(span);
    }
    asked.regions.push_back(&region);
  }
  asked.request.lists = static_cast<std::int64_t>(asked.regions.size());
  asked.fused_top =
      !options.mean_heads && queries.groups.size() == queries.pieces.size() && keys.groups.size() == keys.pieces.size();
  if (asked.fused_top) asked.request.top = options.top_keys;
  return asked;
}

// Calls `row` with the merged weights of every group of queries, mean over the layers and heads: a block of rows at a
// time, rebuilt from what the run left.
void for_merged_rows(const StatisticsRecorder& run, const AttentionPart& part, const std::vector<int>& layers,
                     const std::vector<int>& heads, const Side& queries, const Side& keys,
                     const std::function<void(std::span<const float>)>& row) {
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
            run.runs(part.stack, layer, part.part).back().record->weights(0, head, begin, begin + rows, 0, width);
        for (std::size_t cell = 0; cell < sum.size(); ++cell) sum[cell] += static_cast<double>(weights.data()[cell]);
      }
    for (std::size_t cell = 0; cell < sum.size(); ++cell) mean[cell] = static_cast<float>(sum[cell] / count);
    const std::vector<float> merged = merge(mean, block, keys.groups, Merge::weights);
    for (std::size_t query = 0; query < block.size(); ++query)
      row(std::span(merged).subspan(query * keys.groups.size(), keys.groups.size()));
  }
}

std::vector<std::vector<Reading>> readings_of(const StatisticsRecorder& run, const AttentionPart& part,
                                              const std::vector<int>& layers, const std::vector<int>& heads,
                                              const Side& queries, const Side& keys, double least) {
  std::vector<std::vector<Reading>> all;
  for_merged_rows(run, part, layers, heads, queries, keys, [&](std::span<const float> weights) {
    std::vector<Reading>& row = all.emplace_back();
    for (std::size_t key = 0; key < weights.size(); ++key)
      if (const double share = weights[key]; share >= least) row.push_back({key, share});
    std::stable_sort(row.begin(), row.end(), [](const Reading& a, const Reading& b) { return a.share > b.share; });
  });
  return all;
}

// Keys of weight 0 are none that are read.
LargestKeys largest_of(const StatisticsRecorder& run, const AttentionPart& part, const Asked& asked,
                       const std::vector<int>& layers, const std::vector<int>& heads, const Side& queries,
                       const Side& keys, const InspectOptions& options) {
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
  for (const int layer : layers) {
    if (options.mean_heads) {
      for_merged_rows(run, part, {layer}, heads, queries, keys, add_row);
      continue;
    }
    for (std::size_t head = 0; head < heads.size(); ++head) {
      if (!asked.fused_top) {
        for_merged_rows(run, part, {layer}, {heads[head]}, queries, keys, add_row);
        continue;
      }
      const StatisticsResult& result = run.result(part.stack, layer, part.part);
      for (std::size_t row = 0; row < queries.pieces.size(); ++row)
        for (std::size_t i = 0; i < count; ++i)
          add(result.top_keys[(row * heads.size() + head) * count + i],
              result.top_weights.at(static_cast<std::int64_t>(row), static_cast<std::int64_t>(head * count + i)));
    }
  }
  return largest;
}

void append_merged(const Tensor& values, const Side& queries, const Side& keys, Merge how, std::vector<float>& out) {
  const std::vector<float> merged = merge(values.to_vector(), queries.groups, keys.groups, how);
  out.insert(out.end(), merged.begin(), merged.end());
}

// 1 for pairs of groups of which no token may look at any of the other's.
void hide_groups(const TransformerConfig& config, const StackConfig& stack, const std::vector<TokenGroup>& groups,
                 std::vector<std::uint8_t>& masked) {
  if (!stack.causal && config.window == 0) return;
  const auto visible = [&](const TokenGroup& query, const TokenGroup& key) {
    for (std::int64_t q = query.begin; q < query.end; ++q)
      for (std::int64_t k = key.begin; k < key.end; ++k)
        if ((!stack.causal || k <= q) && (config.window == 0 || std::abs(q - k) < config.window)) return true;
    return false;
  };
  for (const TokenGroup& query : groups)
    for (const TokenGroup& key : groups) masked.push_back(visible(query, key) ? 0 : 1);
}

// values [layers, heads, cells] -> [layers, cells]; a cell that was not measured (NaN) in some head has no mean.
void mean_over_heads(std::vector<float>& values, std::size_t layers, std::size_t heads) {
  const std::size_t cells = values.size() / (layers * heads);
  std::vector<float> means(layers * cells);
  for (std::size_t layer = 0; layer < layers; ++layer)
    for (std::size_t cell = 0; cell < cells; ++cell) {
      double sum = 0;
      for (std::size_t head = 0; head < heads; ++head)
        sum += static_cast<double>(values[(layer * heads + head) * cells + cell]);
      means[layer * cells + cell] = static_cast<float>(sum / static_cast<double>(heads));
    }
  values = std::move(means);
}

void take_means(ShownAttention& attention, std::initializer_list<Measure*> measures, std::vector<RowStatistic>& rows,
                std::vector<HeadMetric>& metrics) {
  const std::size_t layers = attention.layers.size(), heads = attention.heads.size();
  for (Measure* measure : measures)
    if (!measure->values.empty()) mean_over_heads(measure->values, layers, heads);
  for (RowStatistic& row : rows) mean_over_heads(row.values, layers, heads);
  for (HeadMetric& metric : metrics) mean_over_heads(metric.values, layers, heads);
  attention.heads = {mean_of_all};
}

// [heads of the part in their order, query groups, key groups]. Exact effects are known of some edges only: a pair of
// groups has one, the sum over its edges, where every edge between them that the mask lets see was cut; else NaN.
std::vector<float> exact_of_groups(const EdgeReport& effects, const std::vector<MeasuredEdge>& measured,
                                   const AttentionPart& part, const Side& queries, const Side& keys) {
  const auto groups_of = [](const Side& side) {
    std::vector<std::size_t> of_token;
    for (std::size_t group = 0; group < side.groups.size(); ++group)
      of_token.insert(of_token.end(), static_cast<std::size_t>(side.groups[group].size()), group);
    return of_token;
  };
  const std::vector<std::size_t> query_group = groups_of(queries), key_group = groups_of(keys);
  const std::size_t cells = queries.groups.size() * keys.groups.size();
  std::vector<float> values;
  for (const HeadEdges& head : effects.heads) {
    if (head.head.stack != part.stack || head.head.part != part.part) continue;
    std::vector<double> sums(cells);
    std::vector<std::int64_t> seen(cells), cut(cells);
    const auto cell = [&](std::int64_t query, std::int64_t key) {
      return query_group[static_cast<std::size_t>(query)] * keys.groups.size() +
             key_group[static_cast<std::size_t>(key)];
    };
    for (std::int64_t query = 0; query < head.weight.rows(); ++query)
      for (std::int64_t key = 0; key < head.weight.width(); ++key)
        seen[cell(query, key)] += head.weight.at(query, key) != 0;
    for (const MeasuredEdge& edge : measured) {
      if (edge.edge.head != head.head) continue;
      const std::size_t at = cell(edge.edge.query, edge.edge.key);
      sums[at] += edge.exact;
      ++cut[at];
    }
    for (std::size_t at = 0; at < cells; ++at)
      values.push_back(cut[at] > 0 && cut[at] == seen[at] ? static_cast<float>(sums[at])
                                                          : std::numeric_limits<float>::quiet_NaN());
  }
  return values;
}

std::string unit_of(const Target& target) { return target.kind == Target::Kind::log_probability ? "nats" : "logit"; }

std::string token_text(std::int32_t token, const ModelFolder& folder) {
  const std::shared_ptr<const Tokenizer>& tokenizer = folder.target ? folder.target : folder.source;
  if (!tokenizer) return join("token ", token);
  // Most words of a vocabulary begin with their blank, which would stand twice in a sentence.
  const std::string text = tokenizer->readable(token);
  return text.size() > 1 && text.front() == ' ' ? text.substr(1) : text;
}

// A decoder's row gives the token after it, an encoder's the token it stands for.
std::string place_of(std::int64_t position, const Subject& subject) {
  const std::vector<Piece>& pieces = subject.target.empty() ? subject.source : subject.target;
  if (position < 0 || position >= static_cast<std::int64_t>(pieces.size())) return join("at position ", position);
  const Piece& piece = pieces[static_cast<std::size_t>(position)];
  return join(subject.target.empty() ? "at \"" : "after \"", piece.text.empty() ? piece.raw : piece.text,
              "\" (position ", position, ")");
}

}  // namespace

ShownText shown_text(const std::string& name, const std::vector<TokenGroup>& groups, const std::vector<Piece>& pieces) {
  ShownText text{name, {}};
  for (const TokenGroup& group : groups)
    text.tokens.push_back({group.text, group.special(), pieces[static_cast<std::size_t>(group.begin)].blank_before});
  return text;
}

std::string describe(const Target& target, const Subject& subject, const ModelFolder& folder) {
  const auto class_name = [&](std::int32_t label) {
    const auto& classes = folder.task.classes;
    return static_cast<std::size_t>(label) < classes.size() ? classes[static_cast<std::size_t>(label)]
                                                            : join("class ", label);
  };
  const std::size_t rows = subject.target.empty() ? subject.source.size() : subject.target.size();
  const std::int64_t position = target.position < 0 ? static_cast<std::int64_t>(rows) - 1 : target.position;
  switch (target.kind) {
    case Target::Kind::logit:
      return join("logit of ", token_text(target.token, folder), ' ', place_of(position, subject));
    case Target::Kind::difference:
      return join(token_text(target.token, folder), " rather than ", token_text(target.other, folder), ' ',
                  place_of(position, subject));
    case Target::Kind::log_probability:
      return "log-probability of the text";
    case Target::Kind::class_logit:
      return "logit of " + class_name(target.token);
    case Target::Kind::class_difference:
      return class_name(target.token) + " rather than " + class_name(target.other);
  }
  return "";
}

InspectReport inspect(const ModelFolder& folder, const std::string& model, const Subject& subject,
                      const InspectOptions& options) {
  const TransformerConfig& config = folder.model.config();
  const std::vector<AttentionPart> parts = chosen_parts(config, options.attentions);
  const std::vector<int> heads = chosen_numbers(options.heads, config.heads, "head");
  if (options.top_keys < 0 || options.top_keys > most_top_keys)
    throw Error(ErrorKind::argument, "largest keys", join(options.top_keys, " are asked for"),
                join("ask for 1 to ", most_top_keys));
  check_regions(options.regions);
  check_pieces(subject);

  const Side source = side_of(subject.source, options.group, options.source_words, folder.source.get());
  const Side target = side_of(subject.target, options.group, options.target_words, folder.target.get());

  InspectReport report;
  Inspection& shown = report.inspection;
  shown.model = model;
  shown.fingerprint = fingerprint(folder.model);
  if (options.target) {
    shown.target = describe(*options.target, subject, folder);
    const std::vector<TokenGroup>& rows = target.groups.empty() ? source.groups : target.groups;
    const std::int64_t row = options.target->position < 0 ? rows.back().end - 1 : options.target->position;
    for (std::size_t group = 0; group < rows.size(); ++group)
      if ((options.target->kind == Target::Kind::logit || options.target->kind == Target::Kind::difference) &&
          rows[group].begin <= row && row < rows[group].end)
        shown.target_query = static_cast<std::int64_t>(group);
  }
  const bool pair = config.encoder && config.decoder;
  if (!source.pieces.empty()) shown.texts.push_back(shown_text(pair ? "source" : "text", source.groups, source.pieces));
  if (!target.pieces.empty()) shown.texts.push_back(shown_text(pair ? "target" : "text", target.groups, target.pieces));
  const bool merged = source.groups.size() != source.pieces.size() || target.groups.size() != target.pieces.size();
  if (merged) shown.note = "tokens merged to words: weights by sum over keys and mean over queries, effects by sums";

  StatisticsRecorder run;
  EdgeOptions edges;
  const auto text_of = [&](bool source_side) { return source_side ? 0 : shown.texts.size() - 1; };
  std::vector<Asked> asked;
  std::vector<std::size_t> key_texts;
  for (const AttentionPart& part : parts) {
    const auto& stack = part.stack == StackKind::encoder ? config.encoder : config.decoder;
    const bool reads_source = part.part == Part::cross || part.stack == StackKind::encoder;
    key_texts.push_back(text_of(reads_source));
    asked.push_back(asked_of(part, heads, part.stack == StackKind::encoder ? source : target,
                             reads_source ? source : target, shown.texts[key_texts.back()].name, options));
    for (const int layer : chosen_numbers(options.layers, stack->layers, "layer")) {
      for (const int head : heads) edges.heads.push_back({part.stack, layer, part.part, head});
      run.ask(part.stack, layer, part.part, asked.back().request);
    }
  }
  for (const KeyRegion& region : options.regions)
    if (std::none_of(asked.begin(), asked.end(), [&](const Asked& one) {
          return std::find(one.regions.begin(), one.regions.end(), &region) != one.regions.end();
        }))
      refuse_region(region, shown, key_texts);
  const bool rebuilt = options.least_share > 0 ||
                       (options.top_keys > 0 &&
                        std::any_of(asked.begin(), asked.end(), [](const Asked& one) { return !one.fused_top; }));
  if (rebuilt) run.keep_records();
  const bool told = options.statistics || options.top_keys > 0 || !options.regions.empty() || rebuilt;
  edges.write = options.write;
  edges.first_order = options.target.has_value();
  edges.most_bytes = options.most_bytes;
  edges.probe = told ? &run : nullptr;
  EdgeReport effects;
  if (options.matrices || options.target) {
    if (!options.matrices) edges.top = std::max(options.exact, most_listed_edges);
    effects = edge_effects(folder.model, subject.input, options.target, edges);
    report.target = effects.target;
  } else if (told) {
    check_input(folder.model, subject.input, "inspect");
    RunOptions options_of_run;
    options_of_run.probe = &run;
    decode_input(folder.model, subject.input, encode_input(folder.model, subject.input, options_of_run),
                 options_of_run);
  }

  if (options.target) {
    const std::int64_t listed = options.exact > 0 ? options.exact : most_listed_edges;
    report.edges = options.matrices ? effects.largest(EdgeMeasure::first_order, listed) : std::move(effects.edges);
    if (static_cast<std::int64_t>(report.edges.size()) > listed) report.edges.resize(static_cast<std::size_t>(listed));
    if (options.exact > 0) {
      measure_exactly(folder.model, subject.input, *options.target, report.edges);
      std::stable_sort(report.edges.begin(), report.edges.end(), [](const MeasuredEdge& a, const MeasuredEdge& b) {
        return std::abs(a.exact) > std::abs(b.exact);
      });
    }
    report.agreement = options.matrices && options.exact == 0 ? rank_agreement(effects) : rank_agreement(report.edges);
  }

  for (std::size_t which = 0; which < parts.size(); ++which) {
    const AttentionPart& part = parts[which];
    const Side& queries = part.stack == StackKind::encoder ? source : target;
    const Side& keys = part.part == Part::cross || part.stack == StackKind::encoder ? source : target;
    const auto& stack = part.stack == StackKind::encoder ? config.encoder : config.decoder;
    ShownAttention attention;
    attention.name = part.name;
    attention.query_text = text_of(&queries == &source);
    attention.key_text = key_texts[which];
    attention.layers = chosen_numbers(options.layers, stack->layers, "layer");
    attention.heads = heads;

    Measure weight{"weight", "", MeasureKind::share, {}}, write{"write", "", MeasureKind::magnitude, {}};
    Measure first_order{"first_order", options.target ? unit_of(*options.target) : "", MeasureKind::effect, {}};
    Measure exact{"exact", first_order.unit, MeasureKind::effect, {}};
    std::vector<RowStatistic> rows;
    std::vector<HeadMetric> metrics;
    // Of every head, `lists` columns a head from this one on.
    const auto tell = [&](const std::string& name, const std::string& unit, Tensor StatisticsResult::*values,
                          std::int64_t first, std::int64_t lists) {
      RowStatistic& row = rows.emplace_back(RowStatistic{name, unit, {}});
      HeadMetric& metric = metrics.emplace_back(HeadMetric{name, unit, {}});
      for (const int layer : attention.layers) {
        const Tensor& all = run.result(part.stack, layer, part.part).*values;
        for (std::int64_t column = first; column < all.width(); column += lists) {
          append_means(all, column, queries.groups, row.values);
          metric.values.push_back(mean_of(all, column));
        }
      }
    };
    for (const RowKind& kind : row_kinds)
      if (options.statistics && !(kind.of_positions && part.part == Part::cross))
        tell(kind.name, kind.unit, kind.values, 0, 1);
    const auto lists = static_cast<std::int64_t>(asked[which].regions.size());
    for (std::int64_t list = 0; list < lists; ++list)
      tell("on " + asked[which].regions[static_cast<std::size_t>(list)]->name, "", &StatisticsResult::list_mass, list,
           lists);
    if (options.top_keys > 0)
      attention.largest = largest_of(run, part, asked[which], attention.layers, heads, queries, keys, options);
    if (options.matrices && options.exact > 0 && options.target)
      exact.values = exact_of_groups(effects, report.edges, part, queries, keys);
    for (HeadEdges& head : effects.heads) {
      if (head.head.stack != part.stack || head.head.part != part.part) continue;
      append_merged(head.weight, queries, keys, Merge::weights, weight.values);
      if (options.write) append_merged(head.write, queries, keys, Merge::weights, write.values);
      if (options.target) append_merged(head.first_order, queries, keys, Merge::effects, first_order.values);
      head = {head.head, {}, {}, {}};  // merged: not held twice
    }
    if (options.least_share > 0)
      report.readings.push_back(readings_of(run, part, attention.layers, heads, queries, keys, options.least_share));
    if (options.matrices && part.part == Part::self) hide_groups(config, *stack, queries.groups, attention.masked);
    if (options.mean_heads) take_means(attention, {&weight, &write, &first_order, &exact}, rows, metrics);
    if (options.matrices) {
      attention.measures.push_back(std::move(weight));
      if (options.write) attention.measures.push_back(std::move(write));
      if (options.target) attention.measures.push_back(std::move(first_order));
      if (options.target && options.exact > 0) attention.measures.push_back(std::move(exact));
    }
    attention.statistics = std::move(rows);
    attention.metrics = std::move(metrics);
    shown.attentions.push_back(std::move(attention));
  }
  add_attributions(folder, subject, options, source.groups, target.groups, shown);
  check(shown);
  return report;
}

}  // namespace attend
