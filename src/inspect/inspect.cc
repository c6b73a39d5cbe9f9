#include "attend/inspect.h"

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <initializer_list>
#include <limits>
#include <optional>
#include <utility>

#include "attend/error.h"
#include "attend/statistics.h"
#include "core/names.h"
#include "inspect/attribution/attributions.h"
#include "inspect/importance/target.h"
#include "inspect/rows.h"

namespace attend {
namespace {

constexpr std::int64_t most_listed_edges = 1000;

std::vector<AskedAttention> all_attentions(const TransformerConfig& config) {
  std::vector<AskedAttention> parts;
  if (config.encoder) parts.push_back({"encoder", StackKind::encoder, Part::self});
  if (config.decoder) parts.push_back({"decoder", StackKind::decoder, Part::self});
  if (config.encoder && config.decoder) parts.push_back({"cross", StackKind::decoder, Part::cross});
  return parts;
}

std::vector<AskedAttention> chosen_attentions(const TransformerConfig& config, const std::vector<std::string>& names) {
  const std::vector<AskedAttention> all = all_attentions(config);
  if (names.empty()) return all;
  std::vector<AskedAttention> chosen;
  for (const std::string& name : names) {
    const auto found =
        std::find_if(all.begin(), all.end(), [&](const AskedAttention& part) { return part.name == name; });
    if (found != all.end()) {
      if (std::none_of(chosen.begin(), chosen.end(), [&](const AskedAttention& part) { return part.name == name; }))
        chosen.push_back(*found);
      continue;
    }
    std::vector<std::string> known;
    for (const AskedAttention& part : all) known.push_back(part.name);
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

void check_pieces(const Subject& subject) {
  if (subject.source.size() != subject.input.source.size() || subject.target.size() != subject.input.ids.size())
    throw Error(ErrorKind::argument, "inspect", "the subject has other readable pieces than tokens",
                "read it with SubjectOptions::pieces");
}

GroupedText grouped(const std::vector<Piece>& pieces, GroupBy by, const std::string& words,
                    const Tokenizer* tokenizer) {
  if (words.empty()) return {pieces, group(pieces, by)};
  return {pieces, group_by_segmentation(pieces, words, tokenizer ? tokenizer->normalisation() : Normalisation::none)};
}

void append_merged(const Tensor& values, const GroupedText& queries, const GroupedText& keys, Merge how,
                   std::vector<float>& out) {
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

void take_means(ShownAttention& attention, std::initializer_list<Measure*> measures, RowsTold& rows) {
  const std::size_t layers = attention.layers.size(), heads = attention.heads.size();
  for (Measure* measure : measures)
    if (!measure->values.empty()) mean_over_heads(measure->values, layers, heads);
  for (RowStatistic& row : rows.statistics) mean_over_heads(row.values, layers, heads);
  for (HeadMetric& metric : rows.metrics) mean_over_heads(metric.values, layers, heads);
  attention.heads = {mean_of_all};
}

// [heads of the part in their order, query groups, key groups]. Exact effects are known of some edges only: a pair of
// groups has one, the sum over its edges, where every edge between them that the mask lets see was cut; else NaN.
std::vector<float> exact_of_groups(const EdgeReport& effects, const std::vector<MeasuredEdge>& measured,
                                   const AskedAttention& asked) {
  const GroupedText &queries = *asked.queries, &keys = *asked.keys;
  const auto groups_of = [](const GroupedText& text) {
    std::vector<std::size_t> of_token;
    for (std::size_t group = 0; group < text.groups.size(); ++group)
      of_token.insert(of_token.end(), static_cast<std::size_t>(text.groups[group].size()), group);
    return of_token;
  };
  const std::vector<std::size_t> query_group = groups_of(queries), key_group = groups_of(keys);
  const std::size_t cells = queries.groups.size() * keys.groups.size();
  std::vector<float> values;
  for (const HeadEdges& head : effects.heads) {
    if (head.head.stack != asked.stack || head.head.part != asked.part) continue;
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

// Which of the shown rows the target is of; nothing for one of all rows or of an item.
std::optional<std::int64_t> target_query_of(const Target& target, const std::vector<TokenGroup>& rows) {
  if (target.kind != Target::Kind::logit && target.kind != Target::Kind::difference) return std::nullopt;
  const std::int64_t row = target.position < 0 ? rows.back().end - 1 : target.position;
  std::optional<std::int64_t> query;
  for (std::size_t group = 0; group < rows.size(); ++group)
    if (rows[group].begin <= row && row < rows[group].end) query = static_cast<std::int64_t>(group);
  return query;
}

// Names, texts and the target of an inspection that has no attentions yet.
void begin_inspection(const ModelFolder& folder, const std::string& model, const Subject& subject,
                      const InspectOptions& options, const GroupedText& source, const GroupedText& target,
                      Inspection& shown) {
  const TransformerConfig& config = folder.model.config();
  shown.model = model;
  shown.fingerprint = fingerprint(folder.model);
  if (options.target) {
    shown.target = describe(*options.target, subject, folder);
    if (const auto query = target_query_of(*options.target, target.groups.empty() ? source.groups : target.groups))
      shown.target_query = *query;
  }
  const bool pair = config.encoder && config.decoder;
  if (!source.pieces.empty()) shown.texts.push_back(shown_text(pair ? "source" : "text", source.groups, source.pieces));
  if (!target.pieces.empty()) shown.texts.push_back(shown_text(pair ? "target" : "text", target.groups, target.pieces));
  if (source.groups.size() != source.pieces.size() || target.groups.size() != target.pieces.size())
    shown.note = "tokens merged to words: weights by sum over keys and mean over queries, effects by sums";
}

// Runs the model once, for rows and edges alike; then edges of the report, those that are cut among them.
EdgeReport measure(const ModelFolder& folder, const Subject& subject, const InspectOptions& options,
                   const std::vector<AskedAttention>& attentions, StatisticsRecorder& run, InspectReport& report) {
  EdgeOptions edges;
  for (const AskedAttention& asked : attentions)
    for (const int layer : asked.layers) {
      for (const int head : asked.heads) edges.heads.push_back({asked.stack, layer, asked.part, head});
      run.ask(asked.stack, layer, asked.part, asked.request);
    }
  const bool rebuilt =
      options.least_share > 0 ||
      (options.top_keys > 0 &&
       std::any_of(attentions.begin(), attentions.end(), [](const AskedAttention& asked) { return !asked.fused_top; }));
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
  if (!options.target) return effects;
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
  return effects;
}

// One attention as it is shown. Matrices of its heads leave `effects` as they are merged, so as not to be held twice.
ShownAttention shown_attention(const TransformerConfig& config, const AskedAttention& asked,
                               const InspectOptions& options, const StatisticsRecorder& run,
                               const std::vector<MeasuredEdge>& measured, EdgeReport& effects) {
  const GroupedText &queries = *asked.queries, &keys = *asked.keys;
  ShownAttention attention;
  attention.name = asked.name;
  attention.query_text = asked.query_text;
  attention.key_text = asked.key_text;
  attention.layers = asked.layers;
  attention.heads = asked.heads;

  Measure weight{"weight", "", MeasureKind::share, {}}, write{"write", "", MeasureKind::magnitude, {}};
  Measure first_order{"first_order", options.target ? unit_of(*options.target) : "", MeasureKind::effect, {}};
  Measure exact{"exact", first_order.unit, MeasureKind::effect, {}};
  RowsTold rows = rows_told(run, asked, options);
  if (options.top_keys > 0) attention.largest = largest_of(run, asked, options);
  if (options.matrices && options.exact > 0 && options.target) exact.values = exact_of_groups(effects, measured, asked);
  for (HeadEdges& head : effects.heads) {
    if (head.head.stack != asked.stack || head.head.part != asked.part) continue;
    append_merged(head.weight, queries, keys, Merge::weights, weight.values);
    if (options.write) append_merged(head.write, queries, keys, Merge::weights, write.values);
    if (options.target) append_merged(head.first_order, queries, keys, Merge::effects, first_order.values);
    head = {head.head, {}, {}, {}};
  }
  if (options.matrices && asked.part == Part::self)
    hide_groups(config, asked.stack == StackKind::encoder ? *config.encoder : *config.decoder, queries.groups,
                attention.masked);
  if (options.mean_heads) take_means(attention, {&weight, &write, &first_order, &exact}, rows);
  if (options.matrices) {
    attention.measures.push_back(std::move(weight));
    if (options.write) attention.measures.push_back(std::move(write));
    if (options.target) attention.measures.push_back(std::move(first_order));
    if (options.target && options.exact > 0) attention.measures.push_back(std::move(exact));
  }
  attention.statistics = std::move(rows.statistics);
  attention.metrics = std::move(rows.metrics);
  return attention;
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
  std::vector<AskedAttention> attentions = chosen_attentions(config, options.attentions);
  const std::vector<int> heads = chosen_numbers(options.heads, config.heads, "head");
  if (options.top_keys < 0 || options.top_keys > most_top_keys)
    throw Error(ErrorKind::argument, "largest keys", join(options.top_keys, " are asked for"),
                join("ask for 1 to ", most_top_keys));
  check_regions(options.regions);
  check_pieces(subject);
  const GroupedText source = grouped(subject.source, options.group, options.source_words, folder.source.get());
  const GroupedText target = grouped(subject.target, options.group, options.target_words, folder.target.get());

  InspectReport report;
  Inspection& shown = report.inspection;
  begin_inspection(folder, model, subject, options, source, target, shown);
  for (AskedAttention& asked : attentions) {
    const bool of_encoder = asked.stack == StackKind::encoder, reads_source = of_encoder || asked.part == Part::cross;
    const std::size_t last = shown.texts.size() - 1;
    asked.queries = of_encoder ? &source : &target;
    asked.keys = reads_source ? &source : &target;
    asked.query_text = of_encoder ? 0 : last;
    asked.key_text = reads_source ? 0 : last;
    asked.layers = chosen_numbers(options.layers, (of_encoder ? config.encoder : config.decoder)->layers, "layer");
    asked.heads = heads;
    ask_rows(shown.texts[asked.key_text].name, options, asked);
  }
  check_regions_found(options.regions, attentions, shown);

  StatisticsRecorder run;
  EdgeReport effects = measure(folder, subject, options, attentions, run, report);
  for (const AskedAttention& asked : attentions) {
    shown.attentions.push_back(shown_attention(config, asked, options, run, report.edges, effects));
    if (options.least_share > 0) report.readings.push_back(readings_of(run, asked, options.least_share));
  }
  add_attributions(folder, subject, options, source.groups, target.groups, shown);
  check(shown);
  return report;
}

}  // namespace attend
