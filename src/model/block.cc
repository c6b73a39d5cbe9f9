#include "model/block.h"

#include <algorithm>
#include <cmath>
#include <optional>
#include <utility>

#include "core/hash.h"
#include "model/kv_cache.h"
#include "tensor/asked_statistics.h"

namespace attend {
namespace {

std::uint64_t next_seed(StackRun& run) {
  const std::uint64_t stack = run.stack.kind == StackKind::encoder ? 0 : std::uint64_t{1} << 32;
  return mix_bits(run.options.dropout_seed ^ mix_bits(stack + run.dropouts++));
}

float probability(const StackRun& run, double of_config) {
  return run.options.dropout ? static_cast<float>(of_config) : 0.0f;
}

// A norm, and the site of its deviations. Where a probe left these alone, the norm is the plain one, to the bit and to the
// tape.
Tensor normalize(const StackRun& run, const Site& deviation, const NormParts& norm, const Tensor& x) {
  const TransformerConfig& config = run.parts.config;
  const auto epsilon = static_cast<float>(config.norm_epsilon);
  const bool rms = config.norm == NormKind::rms;
  if (run.options.probe && run.options.probe->wants(deviation)) {
    // Rows whose deviation is left as it was still depend on their own: the tape follows both ways.
    Tensor deviations = norm_deviations(x, !rms, epsilon);
    const std::uint64_t storage = deviations.storage_number();
    const std::vector<float> own = deviations.to_vector();
    visit_site(run.options, deviation, run.offsets, run.first_positions, deviations);
    const bool replaced = deviations.storage_number() != storage;
    if (replaced || deviations.to_vector() != own)
      return norm_by(x, replaced ? deviations : deviations.clone(), norm.gain, norm.bias, !rms);
  }
  return rms ? rms_norm(x, norm.gain, epsilon) : layer_norm(x, norm.gain, norm.bias, epsilon);
}

// One sublayer of one block: knows its place, so that sites need only a point.
struct Place {
  StackRun& run;
  int layer;
  Part part;

  Site site(Point point) const { return {run.stack.kind, layer, part, point}; }
  void visit(Point point, Tensor& value) const {
    if (run.options.probe) visit_site(run.options, site(point), run.offsets, run.first_positions, value);
  }
};

// Norm before, or residual addition and norm after: the frame of every sublayer.
Tensor enter(const Place& place, const NormParts& norm, const Tensor& x) {
  const TransformerConfig& config = place.run.parts.config;
  Tensor y = config.norm_place == NormPlace::pre ? normalize(place.run, place.site(Point::deviation), norm, x) : x;
  place.visit(Point::normed, y);
  return y;
}

Tensor leave(const Place& place, const NormParts& norm, const Tensor& x, Tensor y) {
  const TransformerConfig& config = place.run.parts.config;
  place.visit(Point::projected, y);
  const float drop = probability(place.run, config.dropout);
  y = drop > 0 ? add_dropped(x, y, drop, next_seed(place.run)) : add(x, y);
  if (config.norm_place == NormPlace::post) y = normalize(place.run, place.site(Point::deviation), norm, y);
  place.visit(Point::added, y);
  return y;
}

// Everything attention() needs apart from where keys and values come from.
AttentionInput attention_input(const Place& place) {
  AttentionInput input = attention_rules(place.run.parts, place.run.stack, place.part);
  if (place.part == Part::self && place.run.options.self_mask) input.mask = *place.run.options.self_mask;
  const float drop = probability(place.run, place.run.parts.config.attention_dropout);
  if (drop > 0) input.dropout = {drop, next_seed(place.run)};
  return input;
}

// The edits a probe wants of this attention, each item's number turned into the items of the batch that bear it.
struct PlacedEdits {
  std::vector<ScoreEdit> edits;
  std::vector<std::size_t> sources;  // index of each in what the probe gave
  std::size_t given = 0;
};

PlacedEdits place_edits(const Place& place, std::size_t items) {
  PlacedEdits placed;
  if (!place.run.options.probe) return placed;
  const std::span<const std::int64_t> numbers = place.run.options.item_numbers;
  const std::vector<ScoreEdit> given =
      place.run.options.probe->score_edits(place.run.stack.kind, place.layer, place.part);
  placed.given = given.size();
  const auto add = [&](std::size_t source, std::int64_t item) {
    placed.edits.push_back(given[source]);
    placed.edits.back().item = item;
    placed.sources.push_back(source);
  };
  for (std::size_t source = 0; source < given.size(); ++source) {
    const std::int64_t number = given[source].item;
    if (number < 0) {
      add(source, number);
      continue;
    }
    for (std::size_t item = 0; item < items; ++item)
      if ((numbers.empty() ? static_cast<std::int64_t>(item) : numbers[item]) == number)
        add(source, static_cast<std::int64_t>(item));
  }
  return placed;
}

// attention(), where an edit that cannot be made is refused with the name of the place.
Tensor attention_at(const Place& place, const Tensor& query, const Tensor& key, const Tensor& value,
                    const AttentionInput& input, Tensor* log_sum_exp) {
  try {
    return attention(query, key, value, input, log_sum_exp);
  } catch (const Error& error) {
    if (input.edits.empty() || error.kind() != ErrorKind::argument) throw;
    const std::string scores = name_of(place.site(Point::scores));
    throw Error(error.kind(), scores.substr(0, scores.rfind('.')), error.what_happened(), error.advice());
  }
}

// Runs attention and the sites around it: scores and weights of the heads asked for, head outputs, head factors.
Tensor attend_heads(const Place& place, const Tensor& query, const Tensor& key, const Tensor& value,
                    AttentionInput& input) {
  Probe* probe = place.run.options.probe;
  const Site scores_site = place.site(Point::scores), weights_site = place.site(Point::weights);
  const bool scores_wanted = probe && probe->wants(scores_site), weights_wanted = probe && probe->wants(weights_site);
  std::vector<Tensor> scores, weights;
  if (scores_wanted || weights_wanted) {
    const std::uint64_t heads =
        (scores_wanted ? probe->heads(scores_site) : 0) | (weights_wanted ? probe->heads(weights_site) : 0);
    for (std::size_t item = 0; item < input.items.size(); ++item) {
      const std::int64_t queries = input.items[item].queries, keys = input.items[item].keys;
      if (scores_wanted) scores.push_back(Tensor::zeros({input.query_heads, queries, keys}));
      if (weights_wanted) weights.push_back(Tensor::zeros({input.query_heads, queries, keys}));
      for (std::int64_t head = 0; head < input.query_heads; ++head) {
        if (head < 64 && !(heads >> head & 1)) continue;
        MatrixRequest request;
        request.item = static_cast<std::int64_t>(item);
        request.head = head;
        if (scores_wanted) request.scores = scores[item].data() + head * queries * keys;
        if (weights_wanted) request.weights = weights[item].data() + head * queries * keys;
        input.matrices.push_back(request);
      }
    }
  }

  PlacedEdits placed = place_edits(place, input.items.size());
  std::vector<std::int64_t> placed_counts(placed.edits.size());
  if (placed.given > 0) {
    input.edits = std::move(placed.edits);
    input.edit_counts = placed_counts.data();
  }

  std::optional<AskedStatistics> statistics;
  if (probe)
    if (const auto wanted = probe->statistics(place.run.stack.kind, place.layer, place.part))
      statistics.emplace(*wanted, query.rows(), input, place.run.options.item_numbers);
  if (statistics) input.statistics = statistics->outputs();

  Tensor output = attention_at(place, query, key, value, input, statistics ? statistics->log_sum_exp() : nullptr);

  if (statistics)
    probe->visit_statistics(
        {{weights_site, -1, place.run.offsets, place.run.first_positions, place.run.options.item_numbers},
         statistics->result(),
         {query, key, statistics->result().log_sum_exp, input, nullptr}});
  if (placed.given > 0) {
    std::vector<std::int64_t> counts(placed.given, 0);
    for (std::size_t i = 0; i < placed_counts.size(); ++i) counts[placed.sources[i]] += placed_counts[i];
    probe->scores_edited(place.run.stack.kind, place.layer, place.part, counts);
  }
  for (std::size_t item = 0; item < input.items.size(); ++item) {
    const auto visit_matrix = [&](const Site& site, Tensor& matrix) {
      probe->visit({site, static_cast<std::int64_t>(item), place.run.offsets, place.run.first_positions,
                    place.run.options.item_numbers},
                   matrix);
    };
    if (scores_wanted) visit_matrix(scores_site, scores[item]);
    if (weights_wanted) visit_matrix(weights_site, weights[item]);
  }
  if (probe) {
    const std::vector<float> factors = probe->head_factors(place.run.stack.kind, place.layer, place.part);
    if (!factors.empty()) {
      if (static_cast<std::int64_t>(factors.size()) != input.query_heads)
        throw Error(ErrorKind::argument, name_of(place.site(Point::head_output)),
                    join(factors.size(), " head factors given for ", input.query_heads, " heads"));
      Tensor columns = Tensor::empty({output.width()});
      for (std::int64_t column = 0; column < output.width(); ++column)
        columns.data()[column] = factors[static_cast<std::size_t>(column / input.value_dim)];
      output = scale_columns(output, columns);
    }
  }
  place.visit(Point::head_output, output);
  return output;
}

// Rotation is in place. A value that a probe put here may be somebody's tensor, so it is copied (on the tape) first.
// Scores depend on differences of positions only, so first_position has no part in it.
Tensor rotated(const Place& place, const Tensor& before_visit, Tensor x, std::int64_t heads, Point point) {
  const TransformerConfig& config = place.run.parts.config;
  if (x.storage_number() != before_visit.storage_number()) x = scale(x, 1);
  x = rotate_heads(x, heads, config.rotary_width(), config.rotary_pairing, place.run.parts.rotation,
                   place.run.positions);
  place.visit(point, x);
  return x;
}

// Consecutive rows of an item whose results are wanted.
struct AskedRows {
  std::size_t item;
  std::int64_t begin, count;
};

// What the range leaves of this layer's rows once keys and values of all are there; empty: all.
std::vector<AskedRows> asked_rows(const StackRun& run, int layer) {
  std::vector<AskedRows> asked;
  if (!run.range.queries.empty() && layer == run.range.first_layer) {
    for (const std::int64_t row : run.range.queries) asked.push_back({0, row, 1});
  } else if (run.range.last_rows > 0 && layer + 1 == static_cast<int>(run.stack.blocks.size())) {
    for (std::size_t item = 0; item + 1 < run.offsets.size(); ++item) {
      const std::int64_t length = run.offsets[item + 1] - run.offsets[item],
                         count = std::min(length, run.range.last_rows);
      asked.push_back({item, length - count, count});
    }
  }
  return asked;
}

// The first products of an attention: queries, keys and values side by side, or queries of another's keys.
Tensor project(const Place& place, const NormParts& norm, const LinearParts& weights, const Tensor& x) {
  const StackRange& range = place.run.range;
  if (!range.projected.defined() || place.layer != range.first_layer || place.part != range.first_part)
    return linear(enter(place, norm, x), weights.weight, weights.bias);
  Tensor all = range.projected;
  if (range.changed.empty()) return all;
  const Tensor fresh = linear(enter(place, norm, select_rows(x, range.changed)), weights.weight, weights.bias);
  for (std::size_t i = 0; i < range.changed.size(); ++i)
    std::copy_n(fresh.row(static_cast<std::int64_t>(i)), fresh.width(), all.row(range.changed[i]));
  return all;
}

Tensor self_attention(StackRun& run, int layer, const AttentionParts& parts, Tensor x) {
  const Place place{run, layer, Part::self};
  const TransformerConfig& config = run.parts.config;
  const std::int64_t query_width = config.heads * config.head_width(),
                     key_width = config.key_head_count() * config.head_width();

  const Tensor all = project(place, parts.norm, parts.query_key_value, x);
  const Tensor fused[3] = {all.columns(0, query_width), all.columns(query_width, key_width),
                           all.columns(query_width + key_width, key_width)};
  Tensor query = fused[0], key = fused[1], value = fused[2];
  place.visit(Point::query, query);
  place.visit(Point::key, key);
  place.visit(Point::value, value);
  if (config.positions == PositionKind::rotary) {
    query = rotated(place, fused[0], query, config.heads, Point::rotated_query);
    key = rotated(place, fused[1], key, config.key_head_count(), Point::rotated_key);
  }

  AttentionInput input = attention_input(place);
  std::vector<const float*> key_pages, value_pages;
  std::vector<std::size_t> first_page;
  const auto items = run.offsets.size() - 1;
  for (std::size_t item = 0; item < items && !run.caches.empty(); ++item) {
    KvAccess::write(*run.caches[item], static_cast<std::size_t>(layer), key, value, run.offsets[item],
                    run.offsets[item + 1] - run.offsets[item]);
    first_page.push_back(key_pages.size());
    KvAccess::self_pages(*run.caches[item], static_cast<std::size_t>(layer), key_pages, value_pages);
  }
  std::vector<AskedRows> asked = asked_rows(run, layer);
  const bool all_rows = asked.empty();
  for (std::size_t item = 0; item < items && all_rows; ++item)
    asked.push_back({item, 0, run.offsets[item + 1] - run.offsets[item]});
  std::vector<std::int64_t> rows, offsets{0};
  for (const auto& [item, begin, count] : asked) {
    AttentionItem one;
    one.query_begin = offsets.back();
    one.queries = count;
    one.query_position = begin;
    one.key_begin = run.offsets[item];
    one.keys = run.offsets[item + 1] - run.offsets[item];
    if (!run.caches.empty()) {
      one.query_position += run.caches[item]->length();
      one.keys += run.caches[item]->length();
      one.key_begin = 0;
      one.key_pages = key_pages.data() + first_page[item];
      one.value_pages = value_pages.data() + first_page[item];
    }
    input.items.push_back(one);
    offsets.push_back(offsets.back() + count);
    for (std::int64_t row = begin; row < begin + count && !all_rows; ++row) rows.push_back(run.offsets[item] + row);
  }
  if (!all_rows) {
    query = select_rows(query, rows);
    x = select_rows(x, rows);
    run.offsets = offsets;
    run.first_positions.clear();
    for (const AttentionItem& one : input.items) run.first_positions.push_back(one.query_position);
  }
  if (!run.caches.empty()) {
    input.page_rows = KvCache::page_rows;
    key = value = Tensor();
  }
  const Tensor heads = attend_heads(place, query, key, value, input);
  return leave(place, parts.norm, x, linear(heads, parts.output.weight, parts.output.bias));
}

Tensor cross_attention(StackRun& run, int layer, const AttentionParts& parts, const Tensor& x) {
  const Place place{run, layer, Part::cross};
  const TransformerConfig& config = run.parts.config;
  const std::int64_t key_width = config.key_head_count() * config.head_width();

  Tensor query = project(place, parts.norm, parts.query, x);
  place.visit(Point::query, query);
  AttentionInput input = attention_input(place);
  Tensor key, value;
  std::vector<const float*> key_pages, value_pages;
  std::vector<std::size_t> first_page;
  const auto items = run.offsets.size() - 1;
  if (run.caches.empty()) {
    const Tensor both = linear(run.memory->rows, parts.key_value.weight, parts.key_value.bias);
    key = both.columns(0, key_width);
    value = both.columns(key_width, key_width);
    if (run.options.probe) {
      visit_site(run.options, place.site(Point::key), run.memory->offsets, {}, key);
      visit_site(run.options, place.site(Point::value), run.memory->offsets, {}, value);
    }
  } else {
    for (std::size_t item = 0; item < items; ++item) {
      first_page.push_back(key_pages.size());
      KvAccess::cross_pages(*run.caches[item], static_cast<std::size_t>(layer), key_pages, value_pages);
    }
    input.page_rows = KvCache::page_rows;
  }
  for (std::size_t item = 0; item < items; ++item) {
    AttentionItem one;
    one.query_begin = run.offsets[item];
    one.queries = run.offsets[item + 1] - run.offsets[item];
    one.query_position = run.first_positions.empty() ? 0 : run.first_positions[item];
    if (run.caches.empty()) {
      const std::size_t memory_item = run.range.queries.empty() ? item : 0;  // all queries are of one sequence
      one.key_begin = run.memory->offsets[memory_item];
      one.keys = run.memory->offsets[memory_item + 1] - one.key_begin;
    } else {
      one.keys = KvAccess::cross_rows(*run.caches[item]);
      one.key_pages = key_pages.data() + first_page[item];
      one.value_pages = value_pages.data() + first_page[item];
    }
    input.items.push_back(one);
  }
  const Tensor heads = attend_heads(place, query, key, value, input);
  return leave(place, parts.norm, x, linear(heads, parts.output.weight, parts.output.bias));
}

Tensor feed_forward(StackRun& run, int layer, const FeedForwardParts& parts, const Tensor& x) {
  const Place place{run, layer, Part::feed_forward};
  const TransformerConfig& config = run.parts.config;
  const Tensor normed = enter(place, parts.norm, x);
  Tensor inner;
  if (config.gated)
    inner = gate(linear(normed, parts.gate.weight, parts.gate.bias),
                 linear(normed, parts.inner.weight, parts.inner.bias), config.activation);
  else inner = linear(normed, parts.inner.weight, parts.inner.bias, config.activation);
  place.visit(Point::inner, inner);
  if (const float drop = probability(run, config.inner_dropout); drop > 0) inner = dropout(inner, drop, next_seed(run));
  return leave(place, parts.norm, x, linear(inner, parts.output.weight, parts.output.bias));
}

// Adds positions, then the embedding's norm and dropout: common to tokens and features.
Tensor finish_embedding(StackRun& run, Tensor x) {
  const TransformerConfig& config = run.parts.config;
  check_item_numbers("embedding", run.options, static_cast<std::int64_t>(run.offsets.size()) - 1);
  if (run.stack.positions.defined()) x = add(x, embed(run.stack.positions, run.positions));
  if (run.stack.config.embedding_norm)
    x = normalize(run, {run.stack.kind, -1, Part::block, Point::embedding_deviation}, run.stack.embedding_norm, x);
  if (const float drop = probability(run, config.dropout); drop > 0) x = dropout(x, drop, next_seed(run));
  return x;
}

}  // namespace

AttentionInput attention_rules(const Model::Parts& parts, const StackParts& stack, Part part) {
  const TransformerConfig& config = parts.config;
  AttentionInput input;
  input.query_heads = config.heads;
  input.key_heads = config.key_head_count();
  input.head_dim = input.value_dim = config.head_width();
  input.scale = static_cast<float>(config.attention_scale);
  input.soft_cap = static_cast<float>(config.score_cap);
  if (part != Part::self) return input;
  const bool causal = stack.config.causal;
  if (causal) input.mask.push_back(CausalRule{});
  if (config.window > 0) input.mask.push_back(WindowRule{config.window - 1, causal ? 0 : config.window - 1});
  input.slopes = parts.slopes;
  if (stack.relative_table.defined()) {
    input.relative_table = stack.relative_table;
    input.relative_buckets = stack.relative_buckets;
    input.relative_first_distance = -(config.max_positions - 1);
  }
  return input;
}

void check_item_numbers(const char* operation, const RunOptions& options, std::int64_t items) {
  if (!options.item_numbers.empty() && static_cast<std::int64_t>(options.item_numbers.size()) != items)
    throw Error(ErrorKind::argument, operation,
                join(options.item_numbers.size(), " item numbers are given for ", items, " items"));
}

void visit_site(const RunOptions& options, const Site& site, std::span<const std::int64_t> offsets,
                std::span<const std::int64_t> first_positions, Tensor& value) {
  if (!options.probe || !options.probe->wants(site)) return;
  const Shape before = value.shape();
  options.probe->visit({site, -1, offsets, first_positions, options.item_numbers}, value);
  if (!(value.shape() == before))
    throw Error(ErrorKind::shape, name_of(site), join("a probe replaced ", before, " by ", value.shape()),
                "keep the shape");
}

Tensor embed_tokens(StackRun& run, std::span<const std::int32_t> ids) {
  return finish_embedding(
      run, embed(run.stack.embedding.value(), ids, static_cast<float>(run.parts.config.embedding_scale)));
}

Tensor embed_features(StackRun& run, const Tensor& features, std::span<const std::int64_t> offsets) {
  Tensor x = linear(features, run.stack.input.weight, run.stack.input.bias);
  if (run.stack.config.class_token) {
    // Rows of x followed by the class token, read in the order token, item 0, token, item 1, ...
    std::vector<std::int64_t> order;
    for (std::size_t item = 0; item + 1 < offsets.size(); ++item) {
      order.push_back(x.rows());
      for (std::int64_t row = offsets[item]; row < offsets[item + 1]; ++row) order.push_back(row);
    }
    x = select_rows(join_rows(x, run.stack.class_token), order);
  }
  return finish_embedding(run, x);
}

Tensor run_stack(StackRun& run, Tensor x) {
  const StackKind kind = run.stack.kind;
  check_item_numbers(kind == StackKind::encoder ? "encoder" : "decoder", run.options,
                     static_cast<std::int64_t>(run.offsets.size()) - 1);
  const StackRange& range = run.range;
  if (run.embeds)
    visit_site(run.options, {kind, -1, Part::block, Point::embedded}, run.offsets, run.first_positions, x);
  for (int layer = range.first_layer; layer < run.end_layer(); ++layer) {
    const BlockParts& block = run.stack.blocks[static_cast<std::size_t>(layer)];
    const Place place{run, layer, Part::block};
    const Part first = layer == range.first_layer ? range.first_part : Part::self;
    if (first == Part::self) {
      place.visit(Point::input, x);
      x = self_attention(run, layer, block.self, x);
    }
    if (block.cross && first != Part::feed_forward) x = cross_attention(run, layer, *block.cross, x);
    x = feed_forward(run, layer, block.feed_forward, x);
    place.visit(Point::output, x);
  }
  if (range.end_layer >= 0) return x;
  if (run.stack.config.final_norm)
    x = normalize(run, {kind, -1, Part::block, Point::final_deviation}, run.stack.final_norm, x);
  visit_site(run.options, {kind, -1, Part::block, Point::final_norm}, run.offsets, run.first_positions, x);
  return x;
}

}  // namespace attend
