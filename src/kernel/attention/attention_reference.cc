#include "kernel/attention/attention_reference.h"

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <limits>

#include "kernel/attention/attention_dropout.h"
#include "kernel/attention/attention_plan.h"

namespace attend {
namespace {

constexpr double minus_infinity = -std::numeric_limits<double>::infinity();

std::size_t at(std::int64_t index) { return static_cast<std::size_t>(index); }

// One item and one query head.
struct Place {
  const AttentionCall& call;
  const AttentionItem& item;
  std::int64_t index, head, key_head;

  Place(const AttentionCall& c, std::int64_t i, std::int64_t h)
      : call(c), item(c.items[at(i)]), index(i), head(h), key_head(h / (c.query_heads / c.key_heads)) {}

  const float* query(std::int64_t i) const {
    return call.query.data + (item.query_begin + i) * call.query.row_stride + head * call.query.head_stride;
  }
  const float* key(std::int64_t j) const {
    if (item.key_pages != nullptr)
      return item.key_pages[j / call.page_rows] + (j % call.page_rows * call.key_heads + key_head) * call.head_dim;
    return call.key.data + (item.key_begin + j) * call.key.row_stride + key_head * call.key.head_stride;
  }
  const float* value(std::int64_t j) const {
    if (item.value_pages != nullptr)
      return item.value_pages[j / call.page_rows] + (j % call.page_rows * call.key_heads + key_head) * call.value_dim;
    return call.value.data + (item.key_begin + j) * call.value.row_stride + key_head * call.value.head_stride;
  }
  std::int64_t query_position(std::int64_t i) const {
    return item.query_positions != nullptr ? item.query_positions[i] : item.query_position + i;
  }
  std::int64_t key_position(std::int64_t j) const {
    return item.key_positions != nullptr ? item.key_positions[j] : item.key_position + j;
  }
};

bool rule_allows(const MaskRule& rule, const Place& place, std::int64_t i, std::int64_t j) {
  const std::int64_t query = place.query_position(i), key = place.key_position(j);
  if (std::holds_alternative<CausalRule>(rule)) return key <= query;
  if (const auto* window = std::get_if<WindowRule>(&rule))
    return query - key <= window->before && key - query <= window->after;
  if (const auto* lengths = std::get_if<KeyLengthsRule>(&rule)) return j < lengths->lengths[at(place.index)];
  if (const auto* prefix = std::get_if<PrefixRule>(&rule))
    return key <= query || key < prefix->lengths[at(place.index)];
  if (const auto* documents = std::get_if<DocumentRule>(&rule)) {
    const std::int64_t row = place.item.key_pages != nullptr ? j : place.item.key_begin + j;
    return documents->query_documents[at(place.item.query_begin + i)] == documents->key_documents[at(row)];
  }
  if (const auto* blocks = std::get_if<BlockRule>(&rule)) {
    if (query < 0 || key < 0 || key / blocks->block >= blocks->columns) return false;
    const std::int64_t cell = query / blocks->block * blocks->columns + key / blocks->block;
    return cell < static_cast<std::int64_t>(blocks->allowed.size()) && blocks->allowed[at(cell)] != 0;
  }
  const auto& dense = std::get<DenseRule>(rule);
  return dense.allowed[place.index * dense.item_stride + place.head * dense.head_stride + i * dense.query_stride +
                       j * dense.key_stride] != 0;
}

bool edit_hits(const ScoreEdit& edit, const Place& place, std::int64_t i, std::int64_t j) {
  const auto fits = [](std::int64_t wanted, std::int64_t index) { return wanted == -1 || wanted == index; };
  const auto within = [](std::int64_t first, std::int64_t end, std::int64_t position) {
    return first == -1 || position == first || (end > first && first < position && position < end);
  };
  const std::int64_t query = place.query_position(i), key = place.key_position(j);
  if (!fits(edit.item, place.index) || !fits(edit.head, place.head)) return false;
  if (!within(edit.query, edit.query_end, query) || !within(edit.key, edit.key_end, key)) return false;
  return edit.min_distance == ScoreEdit::any_distance || query - key >= edit.min_distance;
}

std::int64_t relative_index(const ScoreRules& rules, const Place& place, std::int64_t i, std::int64_t j) {
  const std::int64_t last = static_cast<std::int64_t>(rules.relative.buckets.size()) - 1;
  const std::int64_t step = place.key_position(j) - place.query_position(i) - rules.relative.first_distance;
  return rules.relative.buckets[at(std::clamp<std::int64_t>(step, 0, last))] * place.call.query_heads + place.head;
}

std::int64_t bias_index(const ScoreBias& bias, const Place& place, std::int64_t i, std::int64_t j) {
  return place.index * bias.item_stride + place.head * bias.head_stride + i * bias.query_stride + j * bias.key_stride;
}

// A score, and what backward needs to know of how it came about.
struct Score {
  double value = minus_infinity;
  double slope = 0;        // d (score after the rules) / d (scaled dot product)
  double rules_slope = 1;  // d value / d (score after the rules)
  double lock = -1;        // weight it is locked to, if not negative
};

Score score_of(const Place& place, std::int64_t i, std::int64_t j, double scale) {
  for (const MaskRule& rule : place.call.mask)
    if (!rule_allows(rule, place, i, j)) return {};
  const ScoreRules& rules = place.call.rules;
  Score score{.value = 0, .slope = 1};
  for (std::int64_t x = 0; x < place.call.head_dim; ++x)
    score.value += static_cast<double>(place.query(i)[x]) * place.key(j)[x];
  score.value *= scale;
  if (rules.soft_cap > 0) {
    const double t = std::tanh(score.value / rules.soft_cap);
    score.value = rules.soft_cap * t;
    score.slope = 1 - t * t;
  }
  if (!rules.slopes.empty())
    score.value -= static_cast<double>(rules.slopes[at(place.head)]) *
                   static_cast<double>(std::llabs(place.query_position(i) - place.key_position(j)));
  if (rules.relative.table != nullptr) score.value += rules.relative.table[relative_index(rules, place, i, j)];
  if (rules.bias.data != nullptr) score.value += rules.bias.data[bias_index(rules.bias, place, i, j)];
  for (const ScoreEdit& edit : place.call.edits) {
    if (!edit_hits(edit, place, i, j)) continue;
    if (edit.kind == ScoreEdit::Kind::set) {
      score.value = edit.value;
      score.rules_slope = 0;
    }
    if (edit.kind == ScoreEdit::Kind::add) score.value += edit.value;
    if (edit.kind == ScoreEdit::Kind::scale) {
      score.value *= edit.value;
      score.rules_slope *= edit.value;
    }
    if (edit.kind == ScoreEdit::Kind::lock) score.lock = edit.value;
  }
  for (const ScoreEdit& edit : place.call.edits)
    if (edit.kind == ScoreEdit::Kind::forbid && edit_hits(edit, place, i, j)) return {};
  return score;
}

double scale_of(const AttentionCall& call) {
  return call.rules.scale != 0 ? static_cast<double>(call.rules.scale)
                               : 1 / std::sqrt(static_cast<double>(call.head_dim));
}

// Sum of the locked weights of a row; 0 without locks.
double locked_sum(const std::vector<Score>& scores) {
  double sum = 0;
  for (const Score& score : scores)
    if (score.lock >= 0) sum += score.lock;
  return sum;
}

// One row of weights: those locked as they are, the others by a softmax of their own over what is left of 1. Returns
// the log of the denominator that gives all of them.
double soften(const std::vector<Score>& scores, const float* sink, std::vector<double>& weights) {
  double largest = minus_infinity, denominator = minus_infinity;
  bool locks = false;
  for (const Score& score : scores)
    if (score.lock < 0) largest = std::max(largest, score.value);
    else locks = true;
  const double left = 1 - locked_sum(scores);
  weights.assign(scores.size(), 0.0);
  for (std::size_t j = 0; j < scores.size(); ++j)
    if (scores[j].lock >= 0) weights[j] = scores[j].lock;
  if (locks && left < 1e-6) return 0;
  if (largest != minus_infinity || (locks && sink != nullptr)) {
    if (sink != nullptr) largest = std::max(largest, static_cast<double>(*sink));
    double sum = sink != nullptr ? std::exp(*sink - largest) : 0;
    for (const Score& score : scores)
      if (score.lock < 0) sum += std::exp(score.value - largest);
    for (std::size_t j = 0; j < scores.size(); ++j)
      if (scores[j].lock < 0) weights[j] = left * std::exp(scores[j].value - largest) / sum;
    denominator = largest + std::log(sum) - std::log(left);
  }
  return denominator;
}

const float* sink_of(const AttentionCall& call, std::int64_t head) {
  return call.rules.sinks.empty() ? nullptr : call.rules.sinks.data() + head;
}

std::vector<Score> score_row(const Place& place, std::int64_t i) {
  std::vector<Score> scores(at(place.item.keys));
  for (std::int64_t j = 0; j < place.item.keys; ++j) scores[at(j)] = score_of(place, i, j, scale_of(place.call));
  return scores;
}

// 0 where the weight is dropped, else what makes up for those dropped.
double dropout_factor(const AttentionJob& job, const Place& place, std::int64_t i, std::int64_t j) {
  if (job.drop_below == 0) return 1;
  if (dropout_drops(job.call->dropout.seed, place.index, place.head, i, j, job.drop_below)) return 0;
  return kept_factor_of(job.drop_below);
}

std::int64_t query_rows(const AttentionCall& call) {
  std::int64_t rows = 0;
  for (const AttentionItem& item : call.items) rows = std::max(rows, item.query_begin + item.queries);
  return rows;
}

}  // namespace

std::vector<double> reference_scores(const AttentionCall& call, std::int64_t item, std::int64_t head) {
  const Place place(call, item, head);
  std::vector<double> all;
  std::vector<double> weights;
  for (std::int64_t i = 0; i < place.item.queries; ++i) {
    const std::vector<Score> scores = score_row(place, i);
    const double denominator = soften(scores, sink_of(call, head), weights);
    const bool nothing_left = locked_sum(scores) > 1 - 1e-6;
    for (const Score& score : scores)
      all.push_back(score.lock >= 0 ? std::log(score.lock) + denominator : nothing_left ? minus_infinity : score.value);
  }
  return all;
}

std::vector<double> reference_weights(const AttentionCall& call, std::int64_t item, std::int64_t head) {
  const Place place(call, item, head);
  std::vector<double> all, weights;
  for (std::int64_t i = 0; i < place.item.queries; ++i) {
    soften(score_row(place, i), sink_of(call, head), weights);
    all.insert(all.end(), weights.begin(), weights.end());
  }
  return all;
}

ReferenceAttention reference_forward(const AttentionCall& call) {
  const AttentionJob job = make_job(call);
  ReferenceAttention result;
  const std::int64_t rows = query_rows(call);
  result.output.assign(at(rows * call.query_heads * call.value_dim), 0.0);
  result.log_sum_exp.assign(at(rows * call.query_heads), minus_infinity);
  std::vector<double> weights;
  for (std::int64_t index = 0; index < static_cast<std::int64_t>(call.items.size()); ++index)
    for (std::int64_t head = 0; head < call.query_heads; ++head) {
      const Place place(call, index, head);
      for (std::int64_t i = 0; i < place.item.queries; ++i) {
        const std::int64_t row = (place.item.query_begin + i) * call.query_heads + head;
        result.log_sum_exp[at(row)] = soften(score_row(place, i), sink_of(call, head), weights);
        for (std::int64_t j = 0; j < place.item.keys; ++j) {
          const double weight = weights[at(j)] * dropout_factor(job, place, i, j);
          if (weight == 0) continue;
          for (std::int64_t x = 0; x < call.value_dim; ++x)
            result.output[at(row * call.value_dim + x)] += weight * place.value(j)[x];
        }
      }
    }
  return result;
}

ReferenceStatistics reference_statistics(const AttentionCall& call) {
  const AttentionStatistics& wanted = *call.statistics;
  std::vector<std::int64_t> heads(wanted.heads.begin(), wanted.heads.end());
  for (std::int64_t head = 0; head < call.query_heads && wanted.heads.empty(); ++head) heads.push_back(head);
  const auto chosen = static_cast<std::int64_t>(heads.size());
  const std::int64_t size = query_rows(call) * chosen;
  ReferenceStatistics result;
  for (auto* values : {&result.entropy, &result.distance, &result.first, &result.self, &result.previous, &result.sink})
    values->assign(at(size), 0.0);
  result.list_mass.assign(at(size * wanted.lists), 0.0);
  result.top_keys.assign(at(size * wanted.top), -1);
  result.top_weights.assign(at(size * wanted.top), 0.0);
  std::vector<double> weights;
  for (std::int64_t index = 0; index < static_cast<std::int64_t>(call.items.size()); ++index)
    for (std::int64_t h = 0; h < chosen; ++h) {
      const Place place(call, index, heads[at(h)]);
      for (std::int64_t i = 0; i < place.item.queries; ++i) {
        const std::vector<Score> scores = score_row(place, i);
        const double log_sum = soften(scores, sink_of(call, place.head), weights);
        if (log_sum == minus_infinity) continue;
        const std::int64_t row = (place.item.query_begin + i) * chosen + h;
        const bool nothing_left = locked_sum(scores) > 1 - 1e-6;
        const auto value = [&](std::int64_t j) {
          const Score& score = scores[at(j)];
          return score.lock >= 0 ? std::log(score.lock) + log_sum : nothing_left ? minus_infinity : score.value;
        };
        double keys_share = 0;
        std::vector<std::int64_t> order;
        for (std::int64_t j = 0; j < place.item.keys; ++j) {
          const double weight = weights[at(j)];
          const std::int64_t query = place.query_position(i), key = place.key_position(j);
          keys_share += weight;
          if (weight > 0) result.entropy[at(row)] -= weight * std::log(weight);
          result.distance[at(row)] += weight * static_cast<double>(std::llabs(query - key));
          if (key == 0) result.first[at(row)] += weight;
          if (key == query) result.self[at(row)] += weight;
          if (key == query - 1) result.previous[at(row)] += weight;
          for (std::int64_t list = 0; list < wanted.lists; ++list)
            if (std::any_of(wanted.spans.begin(), wanted.spans.end(), [&](const KeySpan& span) {
                  return span.list == list && (span.item == -1 || span.item == index) && span.begin <= j &&
                         j < span.end;
                }))
              result.list_mass[at(row * wanted.lists + list)] += weight;
          if (value(j) != minus_infinity) order.push_back(j);
        }
        result.sink[at(row)] = call.rules.sinks.empty() ? 0 : 1 - keys_share;
        std::stable_sort(order.begin(), order.end(),
                         [&](std::int64_t a, std::int64_t b) { return value(a) > value(b); });
        for (std::int64_t t = 0; t < std::min(wanted.top, static_cast<std::int64_t>(order.size())); ++t) {
          result.top_keys[at(row * wanted.top + t)] = order[at(t)];
          result.top_weights[at(row * wanted.top + t)] = weights[at(order[at(t)])];
        }
      }
    }
  return result;
}

ReferenceGradients reference_backward(const AttentionCall& call, HeadsView output_gradient) {
  const AttentionJob job = make_job(call);
  const std::int64_t rows = query_rows(call), group = call.query_heads / call.key_heads;
  const double scale = scale_of(call);
  std::int64_t key_rows = 0, bias_end = 0, buckets = 0;
  for (std::int64_t index = 0; index < static_cast<std::int64_t>(call.items.size()); ++index) {
    const AttentionItem& item = call.items[at(index)];
    key_rows = std::max(key_rows, item.key_begin + item.keys);
    if (call.rules.bias.data != nullptr && item.queries > 0 && item.keys > 0)
      bias_end = std::max(
          bias_end,
          bias_index(call.rules.bias, Place(call, index, call.query_heads - 1), item.queries - 1, item.keys - 1) + 1);
  }
  for (std::int32_t bucket : call.rules.relative.buckets) buckets = std::max<std::int64_t>(buckets, bucket + 1);

  ReferenceGradients result;
  result.query.assign(at(rows * call.query_heads * call.head_dim), 0.0);
  result.key.assign(at(key_rows * call.key_heads * call.head_dim), 0.0);
  result.value.assign(at(key_rows * call.key_heads * call.value_dim), 0.0);
  result.relative_table.assign(at(buckets * call.query_heads), 0.0);
  result.bias.assign(at(bias_end), 0.0);
  result.sinks.assign(at(call.query_heads), 0.0);

  std::vector<double> weights, weight_gradient;
  for (std::int64_t index = 0; index < static_cast<std::int64_t>(call.items.size()); ++index)
    for (std::int64_t head = 0; head < call.query_heads; ++head) {
      const Place place(call, index, head);
      for (std::int64_t i = 0; i < place.item.queries; ++i) {
        const std::vector<Score> scores = score_row(place, i);
        const double log_sum = soften(scores, sink_of(call, head), weights);
        const std::int64_t row = (place.item.query_begin + i) * call.query_heads + head;
        const float* gradient = output_gradient.data + (place.item.query_begin + i) * output_gradient.row_stride +
                                head * output_gradient.head_stride;
        // output = sum_j weight_j factor_j value_j
        weight_gradient.assign(weights.size(), 0.0);
        double mean = 0;
        for (std::int64_t j = 0; j < place.item.keys; ++j) {
          const double factor = dropout_factor(job, place, i, j);
          if (weights[at(j)] == 0) continue;
          if (factor != 0)
            for (std::int64_t x = 0; x < call.value_dim; ++x) {
              weight_gradient[at(j)] += factor * gradient[x] * place.value(j)[x];
              result.value[at(((place.item.key_begin + j) * call.key_heads + head / group) * call.value_dim + x)] +=
                  weights[at(j)] * factor * gradient[x];
            }
          if (scores[at(j)].lock < 0) mean += weights[at(j)] * weight_gradient[at(j)];
        }
        // weight = (1 - locks) softmax(score) over the keys that are not locked
        if (const double left = 1 - locked_sum(scores); left >= 1e-6) mean /= left;
        if (!call.rules.sinks.empty() && log_sum != minus_infinity)
          result.sinks[at(head)] -= std::exp(call.rules.sinks[at(head)] - log_sum) * mean;
        for (std::int64_t j = 0; j < place.item.keys; ++j) {
          if (weights[at(j)] == 0 || scores[at(j)].lock >= 0) continue;
          const double score_gradient = weights[at(j)] * (weight_gradient[at(j)] - mean) * scores[at(j)].rules_slope;
          if (call.rules.relative.table != nullptr)
            result.relative_table[at(relative_index(call.rules, place, i, j))] += score_gradient;
          if (call.rules.bias.data != nullptr)
            result.bias[at(bias_index(call.rules.bias, place, i, j))] += score_gradient;
          const double product_gradient = score_gradient * scores[at(j)].slope * scale;
          for (std::int64_t x = 0; x < call.head_dim; ++x) {
            result.query[at(row * call.head_dim + x)] += product_gradient * place.key(j)[x];
            result.key[at(((place.item.key_begin + j) * call.key_heads + head / group) * call.head_dim + x)] +=
                product_gradient * place.query(i)[x];
          }
        }
      }
    }
  return result;
}

}  // namespace attend
