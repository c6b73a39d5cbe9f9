// Gradients of attention(), with every mask and every score rule, against central differences of the textbook formula.
#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <limits>

#include "reference/gradient_check.h"

namespace attend {
namespace {

using reference::check_gradients;
using reference::Input;
using reference::random_input;
using reference::Values;
using Inputs = std::vector<Values>;
using Tensors = std::vector<Tensor>;

// Two items of unequal lengths, grouped heads, a value width of its own.
constexpr std::int64_t query_heads = 4, key_heads = 2, head_dim = 3, value_dim = 5;

std::size_t index(std::int64_t value) { return static_cast<std::size_t>(value); }

struct Case {
  std::vector<AttentionItem> items;
  std::int64_t query_rows = 0, key_rows = 0;
  AttentionInput input;
  // The textbook's own words for the rules of `input`: may item b's head h see key j from query i, and what becomes of
  // the scaled score. Positions are those of the item.
  std::function<bool(std::int64_t item, std::int64_t head, std::int64_t i, std::int64_t j)> visible;
  std::function<double(double score, std::int64_t item, std::int64_t head, std::int64_t i, std::int64_t j,
                       const Inputs& in)>
      rule;
  std::function<double(std::int64_t item, std::int64_t head, std::int64_t i, std::int64_t j)> weight_factor;
  std::function<double(std::int64_t item, std::int64_t head, std::int64_t i, std::int64_t j)>
      lock;        // weight, negative: none
  int sinks = -1;  // which input holds the sinks
};

Case self_attention() {
  Case c;
  c.items = {{.query_begin = 0, .queries = 4, .key_begin = 0, .keys = 4},
             {.query_begin = 4, .queries = 3, .key_begin = 4, .keys = 3}};
  c.query_rows = c.key_rows = 7;
  return c;
}

Case cross_attention() {
  Case c;
  c.items = {{.query_begin = 0, .queries = 2, .key_begin = 0, .keys = 5},
             {.query_begin = 2, .queries = 3, .key_begin = 5, .keys = 4}};
  c.query_rows = 5;
  c.key_rows = 9;
  return c;
}

Values textbook(const Case& c, const Inputs& in) {
  Values y(index(c.query_rows * query_heads * value_dim), 0.0);
  for (std::size_t b = 0; b < c.items.size(); ++b) {
    const AttentionItem& item = c.items[b];
    const std::int64_t item_index = static_cast<std::int64_t>(b);
    for (std::int64_t h = 0; h < query_heads; ++h)
      for (std::int64_t i = 0; i < item.queries; ++i) {
        const std::int64_t kv_head = h / (query_heads / key_heads);
        Values weights(index(item.keys), 0.0);
        double total = c.sinks >= 0 ? std::exp(in[index(c.sinks)][index(h)]) : 0;
        for (std::int64_t j = 0; j < item.keys; ++j) {
          if (c.visible && !c.visible(item_index, h, i, j)) continue;
          double score = 0;
          for (std::int64_t x = 0; x < head_dim; ++x)
            score += in[0][index(((item.query_begin + i) * query_heads + h) * head_dim + x)] *
                     in[1][index(((item.key_begin + j) * key_heads + kv_head) * head_dim + x)];
          score *=
              c.input.scale != 0 ? static_cast<double>(c.input.scale) : 1 / std::sqrt(static_cast<double>(head_dim));
          if (c.rule) score = c.rule(score, item_index, h, i, j, in);
          if (score == -std::numeric_limits<double>::infinity()) continue;
          weights[index(j)] = std::exp(score);
          if (!c.lock || c.lock(item_index, h, i, j) < 0) total += weights[index(j)];
        }
        if (total == 0) continue;
        double left = 1;
        for (std::int64_t j = 0; j < item.keys && c.lock; ++j) left -= std::max(0.0, c.lock(item_index, h, i, j));
        for (std::int64_t j = 0; j < item.keys && c.lock; ++j) {
          const double locked = c.lock(item_index, h, i, j);
          weights[index(j)] = locked < 0 ? weights[index(j)] * left : locked * total;
        }
        for (std::int64_t j = 0; j < item.keys; ++j)
          for (std::int64_t x = 0; x < value_dim; ++x)
            y[index(((item.query_begin + i) * query_heads + h) * value_dim + x)] +=
                weights[index(j)] / total * (c.weight_factor ? c.weight_factor(item_index, h, i, j) : 1) *
                in[2][index(((item.key_begin + j) * key_heads + kv_head) * value_dim + x)];
      }
  }
  return y;
}

// Inputs beyond query, key and value go where `place_extra` puts them.
void check(Case c, std::vector<Input> extra = {},
           std::function<void(AttentionInput&, const Tensors&)> place_extra = {}) {
  c.input.query_heads = query_heads;
  c.input.key_heads = key_heads;
  c.input.items = c.items;
  std::vector<Input> inputs{random_input({c.query_rows, query_heads * head_dim}, 1, 1.3),
                            random_input({c.key_rows, key_heads * head_dim}, 2),
                            random_input({c.key_rows, key_heads * value_dim}, 3)};
  inputs.insert(inputs.end(), extra.begin(), extra.end());
  check_gradients(
      inputs,
      [&](const Tensors& in) {
        AttentionInput input = c.input;
        if (place_extra) place_extra(input, in);
        return attention(in[0], in[1], in[2], input);
      },
      [&](const Inputs& in) { return textbook(c, in); });
}

TEST(AttentionGradient, NoRules) {
  check(self_attention());
  check(cross_attention());
}

TEST(AttentionGradient, Scale) {
  Case c = cross_attention();
  c.input.scale = 0.3f;
  check(c);
}

TEST(AttentionGradient, Causal) {
  Case c = self_attention();
  c.input.mask = {CausalRule{}};
  c.visible = [](auto, auto, std::int64_t i, std::int64_t j) { return j <= i; };
  check(c);
}

TEST(AttentionGradient, CausalByPositionNotCorner) {
  Case c = cross_attention();
  for (AttentionItem& item : c.items) item.query_position = item.keys - item.queries;
  c.input.mask = {CausalRule{}};
  const auto items = c.items;
  c.visible = [items](std::int64_t b, auto, std::int64_t i, std::int64_t j) {
    return j <= i + items[index(b)].query_position;
  };
  check(c);
}

TEST(AttentionGradient, Window) {
  Case c = self_attention();
  c.input.mask = {WindowRule{1, 2}};
  c.visible = [](auto, auto, std::int64_t i, std::int64_t j) { return j >= i - 1 && j <= i + 2; };
  check(c);
}

TEST(AttentionGradient, KeyLengthsWithARowThatSeesNothing) {
  static const std::vector<std::int64_t> lengths{3, 0};
  Case c = self_attention();
  c.input.mask = {KeyLengthsRule{lengths}};
  c.visible = [](std::int64_t b, auto, auto, std::int64_t j) { return j < lengths[index(b)]; };
  check(c);
}

TEST(AttentionGradient, Prefix) {
  static const std::vector<std::int64_t> lengths{2, 1};
  Case c = self_attention();
  c.input.mask = {PrefixRule{lengths}};
  c.visible = [](std::int64_t b, auto, std::int64_t i, std::int64_t j) { return j <= i || j < lengths[index(b)]; };
  check(c);
}

TEST(AttentionGradient, DocumentAndCausal) {
  static const std::vector<std::int32_t> documents{0, 0, 1, 1, 5, 6, 5};
  Case c = self_attention();
  c.input.mask = {DocumentRule{documents, documents}, CausalRule{}};
  const auto items = c.items;
  c.visible = [items](std::int64_t b, auto, std::int64_t i, std::int64_t j) {
    const std::int64_t first = items[index(b)].query_begin;
    return documents[index(first + i)] == documents[index(first + j)] && j <= i;
  };
  check(c);
}

TEST(AttentionGradient, Blocks) {
  static const std::vector<std::uint8_t> allowed{1, 0, 1, 1};
  Case c = self_attention();
  c.input.mask = {BlockRule{2, 2, allowed}};
  c.visible = [](auto, auto, std::int64_t i, std::int64_t j) { return allowed[index(i / 2 * 2 + j / 2)] != 0; };
  check(c);
}

TEST(AttentionGradient, Dense) {
  // [item, head, query 4, key 5] with about a third of the keys hidden.
  static std::vector<std::uint8_t> allowed;
  Random random(5);
  for (int i = 0; i < 2 * 4 * 4 * 5; ++i) allowed.push_back(random.below(3) != 0);
  Case c = cross_attention();
  c.input.mask = {DenseRule{allowed.data(), 80, 20, 5, 1}};
  c.visible = [](std::int64_t b, std::int64_t h, std::int64_t i, std::int64_t j) {
    return allowed[index(b * 80 + h * 20 + i * 5 + j)] != 0;
  };
  check(c);
}

TEST(AttentionGradient, SoftCap) {
  Case c = self_attention();
  c.input.soft_cap = 1.5f;
  c.input.mask = {CausalRule{}};
  c.visible = [](auto, auto, std::int64_t i, std::int64_t j) { return j <= i; };
  c.rule = [](double score, auto, auto, auto, auto, const Inputs&) { return 1.5 * std::tanh(score / 1.5); };
  check(c);
}

TEST(AttentionGradient, Slopes) {
  Case c = self_attention();
  c.input.slopes = {0.5f, 0.25f, 0.125f, 0.0625f};
  c.rule = [](double score, auto, std::int64_t h, std::int64_t i, std::int64_t j, const Inputs&) {
    return score - std::pow(2.0, -1.0 - static_cast<double>(h)) * static_cast<double>(std::abs(i - j));
  };
  check(c);
}

TEST(AttentionGradient, RelativeTable) {
  // Distances -2 to 2, clamped, in three buckets.
  static const auto buckets =
      std::make_shared<const std::vector<std::int32_t>>(std::vector<std::int32_t>{2, 1, 0, 1, 1});
  for (const bool capped : {false, true}) {
    Case c = self_attention();
    c.input.relative_buckets = buckets;
    c.input.relative_first_distance = -2;
    c.input.soft_cap = capped ? 2.0f : 0;
    c.rule = [capped](double score, auto, std::int64_t h, std::int64_t i, std::int64_t j, const Inputs& in) {
      const std::int64_t distance = std::min<std::int64_t>(2, std::max<std::int64_t>(-2, j - i));
      if (capped) score = 2 * std::tanh(score / 2);
      return score + in[3][index((*buckets)[index(distance + 2)] * query_heads + h)];
    };
    check(c, {random_input({3, query_heads}, 4)},
          [](AttentionInput& input, const Tensors& in) { input.relative_table = in[3]; });
  }
}

TEST(AttentionGradient, BiasTensor) {
  // One bias for all items, [head, query 4, key 4].
  static std::vector<float> bias = random_input({4 * 4 * 4}, 8).values;
  Case c = self_attention();
  c.input.bias = ScoreBias{bias.data(), 0, 16, 4, 1};
  c.rule = [](double score, auto, std::int64_t h, std::int64_t i, std::int64_t j, const Inputs&) {
    return score + static_cast<double>(bias[index(h * 16 + i * 4 + j)]);
  };
  check(c);
}

TEST(AttentionGradient, Sinks) {
  Case c = self_attention();
  c.input.mask = {CausalRule{}};
  c.visible = [](auto, auto, std::int64_t i, std::int64_t j) { return j <= i; };
  c.sinks = 3;
  check(c, {random_input({query_heads}, 4)}, [](AttentionInput& input, const Tensors& in) { input.sinks = in[3]; });
}

TEST(AttentionGradient, Edits) {
  Case c = self_attention();
  c.input.edits = {{.kind = ScoreEdit::Kind::forbid, .item = 0, .head = 1, .query = 2, .key = 0},
                   {.kind = ScoreEdit::Kind::add, .item = -1, .head = 2, .query = 1, .key = -1, .value = 0.5f},
                   {.kind = ScoreEdit::Kind::set, .item = 1, .head = 3, .query = -1, .key = 1, .value = 0.25f}};
  c.rule = [](double score, std::int64_t b, std::int64_t h, std::int64_t i, std::int64_t j, const Inputs&) {
    if (b == 0 && h == 1 && i == 2 && j == 0) return -std::numeric_limits<double>::infinity();
    if (h == 2 && i == 1) return score + 0.5;
    if (b == 1 && h == 3 && j == 1) return 0.25;
    return score;
  };
  check(c);
}

TEST(AttentionGradient, ScaledScoresAndLockedWeights) {
  Case c = self_attention();
  c.input.edits = {{.kind = ScoreEdit::Kind::scale,
                    .item = 0,
                    .head = 1,
                    .query = 1,
                    .key = 0,
                    .value = -1.5f,
                    .query_end = 3,
                    .key_end = 2},
                   {.kind = ScoreEdit::Kind::lock, .item = 0, .head = 2, .key = 1, .value = 0.25f},
                   {.kind = ScoreEdit::Kind::lock, .item = 0, .head = 2, .query = 3, .key = 0, .value = 0.5f},
                   {.kind = ScoreEdit::Kind::lock, .item = 1, .head = 1, .query = 2, .key = 0, .value = 1}};
  c.rule = [](double score, std::int64_t b, std::int64_t h, std::int64_t i, std::int64_t j, const Inputs&) {
    return b == 0 && h == 1 && (i == 1 || i == 2) && j < 2 ? -1.5 * score : score;
  };
  c.lock = [](std::int64_t b, std::int64_t h, std::int64_t i, std::int64_t j) {
    if (b == 0 && h == 2 && j == 1) return 0.25;
    if (b == 0 && h == 2 && i == 3 && j == 0) return 0.5;
    if (b == 1 && h == 1 && i == 2 && j == 0) return 1.0;
    return -1.0;
  };
  check(c);
}

TEST(AttentionGradient, Dropout) {
  Case c = cross_attention();
  c.input.dropout = {0.4f, 77};
  // With query 0 every weight is 1 / keys, and with one-hot values the output is the dropped weights themselves.
  AttentionInput input;
  input.query_heads = query_heads;
  input.key_heads = key_heads;
  input.items = c.items;
  input.dropout = c.input.dropout;
  Tensor one_hot = Tensor::zeros({c.key_rows, key_heads * 5});
  for (const AttentionItem& item : c.items)
    for (std::int64_t j = 0; j < item.keys; ++j)
      for (std::int64_t h = 0; h < key_heads; ++h) one_hot.row(item.key_begin + j)[h * 5 + j] = 1;
  const Tensor dropped = attention(Tensor::zeros({c.query_rows, query_heads * head_dim}),
                                   Tensor::zeros({c.key_rows, key_heads * head_dim}), one_hot, input);
  const auto items = c.items;
  int zeros = 0;
  for (float weight : dropped.to_vector()) zeros += weight == 0;
  ASSERT_GT(zeros, 20);
  c.weight_factor = [=](std::int64_t b, std::int64_t h, std::int64_t i, std::int64_t j) {
    const AttentionItem& item = items[index(b)];
    return dropped.at(item.query_begin + i, h * 5 + j) == 0 ? 0 : 65536.0 / (65536 - 26214);
  };
  check(c);
}

TEST(AttentionGradient, ViewsOfOneFusedProjection) {
  Case c = self_attention();
  c.input.query_heads = query_heads;
  c.input.key_heads = key_heads;
  c.input.items = c.items;
  c.input.mask = {CausalRule{}};
  c.visible = [](auto, auto, std::int64_t i, std::int64_t j) { return j <= i; };
  const std::int64_t q = query_heads * head_dim, k = key_heads * head_dim, v = key_heads * value_dim, width = q + k + v;
  const Tensor table = rotation_table(4, 2, 100);
  const std::vector<std::int32_t> positions{0, 1, 2, 3, 0, 1, 2};
  check_gradients(
      {random_input({7, 6}, 1), random_input({width, 6}, 2, 0.5), random_input({width}, 3)},
      [&](const Tensors& in) {
        const Tensor fused = linear(in[0], Weight(in[1]), in[2]);
        const Tensor query = rotate_heads(fused.columns(0, q), query_heads, 2, Pairing::halves, table, positions);
        const Tensor key = rotate_heads(fused.columns(q, k), key_heads, 2, Pairing::halves, table, positions);
        return attention(query, key, fused.columns(q + k, v), c.input);
      },
      [&](const Inputs& in) {
        Inputs parts(3);
        for (std::int64_t r = 0; r < 7; ++r) {
          Values row;
          for (std::int64_t o = 0; o < width; ++o) {
            double total = in[2][index(o)];
            for (std::int64_t i = 0; i < 6; ++i) total += in[0][index(r * 6 + i)] * in[1][index(o * 6 + i)];
            row.push_back(total);
          }
          const double angle = positions[index(r)];
          for (std::int64_t h = 0; h < query_heads + key_heads; ++h) {
            const double one = row[index(h * head_dim)], two = row[index(h * head_dim + 1)];
            row[index(h * head_dim)] = one * std::cos(angle) - two * std::sin(angle);
            row[index(h * head_dim + 1)] = one * std::sin(angle) + two * std::cos(angle);
          }
          parts[0].insert(parts[0].end(), row.begin(), row.begin() + q);
          parts[1].insert(parts[1].end(), row.begin() + q, row.begin() + q + k);
          parts[2].insert(parts[2].end(), row.begin() + q + k, row.end());
        }
        return textbook(c, parts);
      });
}

}  // namespace
}  // namespace attend
