// The workbench: every number between input and output against a textbook computation in float64, over random shapes,
// masks, positions and edits; and the examples that a reader checks by hand.
#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <limits>
#include <string>
#include <vector>

#include "attend/ops.h"
#include "explorer/api_error.h"
#include "explorer/operations.h"
#include "explorer/workbench.h"

namespace attend::explorer {
namespace {

using Rows = std::vector<std::vector<double>>;
constexpr double minus_infinity = -std::numeric_limits<double>::infinity();

// ---- Talking to it as a page does: JSON in, JSON out ----------------------------------------------------------------
Json ask(const Json& body) {
  const Limits limits;
  JsonWriter out;
  out.begin_object();
  write_workbench(out, run_workbench(workbench_request(parse_json(body.dump()), limits), limits));
  out.end_object();
  return Json::parse(out.take());
}

ApiError refused(const Json& body) {
  try {
    ask(body);
  } catch (...) {
    return current_error();
  }
  return {200, "none", "", ""};
}

Json operate(const Json& body) {
  JsonWriter out;
  out.rows(run_operation(parse_json(body.dump()), Limits()));
  return Json::parse(out.take());
}

double number(const Json& cell) { return cell.is_null() ? minus_infinity : cell.get<double>(); }

void expect_rows(const Json& found, const Rows& expected, double tolerance, const std::string& what) {
  ASSERT_EQ(found.size(), expected.size()) << what;
  for (std::size_t row = 0; row < expected.size(); ++row) {
    ASSERT_EQ(found[row].size(), expected[row].size()) << what;
    for (std::size_t column = 0; column < expected[row].size(); ++column) {
      const double value = number(found[row][column]), wanted = expected[row][column];
      if (std::isinf(wanted)) EXPECT_EQ(value, wanted) << what << ' ' << row << ' ' << column;
      else
        EXPECT_NEAR(value, wanted, tolerance * std::max(1.0, std::abs(wanted))) << what << ' ' << row << ' ' << column;
    }
  }
}

// ---- The textbook ---------------------------------------------------------------------------------------------------
Rows product(const Rows& a, const Rows& b) {
  Rows c(a.size(), std::vector<double>(b[0].size(), 0));
  for (std::size_t i = 0; i < a.size(); ++i)
    for (std::size_t j = 0; j < b[0].size(); ++j)
      for (std::size_t k = 0; k < b.size(); ++k) c[i][j] += a[i][k] * b[k][j];
  return c;
}

Rows columns(const Rows& a, std::size_t begin, std::size_t count) {
  Rows part;
  for (const auto& row : a)
    part.emplace_back(row.begin() + static_cast<std::ptrdiff_t>(begin),
                      row.begin() + static_cast<std::ptrdiff_t>(begin + count));
  return part;
}

Rows turned(Rows x, std::size_t heads, double base, bool halves, std::int64_t first) {
  const std::size_t size = x[0].size() / heads;
  for (std::size_t row = 0; row < x.size(); ++row)
    for (std::size_t head = 0; head < heads; ++head)
      for (std::size_t pair = 0; pair < size / 2; ++pair) {
        const double angle = static_cast<double>(first + static_cast<std::int64_t>(row)) *
                             std::pow(base, -2.0 * static_cast<double>(pair) / static_cast<double>(size));
        double& a = x[row][head * size + (halves ? pair : 2 * pair)];
        double& b = x[row][head * size + (halves ? pair + size / 2 : 2 * pair + 1)];
        const double old = a;
        a = old * std::cos(angle) - b * std::sin(angle);
        b = old * std::sin(angle) + b * std::cos(angle);
      }
  return x;
}

struct Case {
  Json body;
  Rows query, key, value;  // before rotation
  std::size_t heads = 1, key_heads = 1;
  double scale = 0;
  bool rotary = false, halves = true;
  double base = 10000;
  std::int64_t first_query = 0, first_key = 0;
  std::function<bool(std::int64_t, std::int64_t)> sees;  // by index
  Rows output_weight;
};

void expect_textbook(const Case& one, const std::string& name) {
  const Json found = ask(one.body);
  const std::size_t queries = one.query.size(), keys = one.key.size();
  const std::size_t head_dim = one.query[0].size() / one.heads, value_dim = one.value[0].size() / one.key_heads;
  expect_rows(found["q"], one.query, 1e-5, name + " q");
  expect_rows(found["k"], one.key, 1e-5, name + " k");
  expect_rows(found["v"], one.value, 1e-5, name + " v");
  Rows query = one.query, key = one.key;
  if (one.rotary) {
    query = turned(query, one.heads, one.base, one.halves, one.first_query);
    key = turned(key, one.key_heads, one.base, one.halves, one.first_key);
    expect_rows(found["rotated_q"], query, 2e-5, name + " rotated_q");
    expect_rows(found["rotated_k"], key, 2e-5, name + " rotated_k");
  } else {
    EXPECT_TRUE(found["rotated_q"].is_null());
  }
  const double scale = one.scale != 0 ? one.scale : 1 / std::sqrt(static_cast<double>(head_dim));
  EXPECT_NEAR(found["scale"].get<double>(), scale, 1e-6);
  Rows joined(queries, std::vector<double>());
  for (std::size_t head = 0; head < one.heads; ++head) {
    const std::size_t key_head = head / (one.heads / one.key_heads);
    const Rows q = columns(query, head * head_dim, head_dim), k = columns(key, key_head * head_dim, head_dim),
               v = columns(one.value, key_head * value_dim, value_dim);
    Rows products(queries, std::vector<double>(keys, 0)), scaled = products, masked = products, scores,
                                                          weights = products;
    for (std::size_t i = 0; i < queries; ++i)
      for (std::size_t j = 0; j < keys; ++j) {
        for (std::size_t x = 0; x < head_dim; ++x) products[i][j] += q[i][x] * k[j][x];
        scaled[i][j] = scale * products[i][j];
        masked[i][j] =
            one.sees(static_cast<std::int64_t>(i), static_cast<std::int64_t>(j)) ? scaled[i][j] : minus_infinity;
      }
    scores = masked;
    std::vector<double> entropy(queries, 0), log_sum(queries, minus_infinity);
    Rows locked(queries, std::vector<double>(keys, -1));  // the weight asked for; -1: none
    for (const Json& edit : one.body["edits"]) {
      const auto names = [&](const char* index, std::size_t value) {
        return edit[index] == -1 || edit[index] == static_cast<std::int64_t>(value);
      };
      if (!names("head", head) || edit.value("off", false)) continue;
      for (std::size_t i = 0; i < queries; ++i)
        for (std::size_t j = 0; j < keys; ++j) {
          if (!names("query", i) || !names("key", j) || std::isinf(masked[i][j])) continue;
          const double amount = edit.value("value", 0.0);
          double& score = scores[i][j];
          if (edit["kind"] == "set") score = amount;
          if (edit["kind"] == "add") score += amount;
          if (edit["kind"] == "scale") score *= amount;
          if (edit["kind"] == "lock") locked[i][j] = amount;
          if (edit["kind"] == "forbid") score = minus_infinity;
        }
    }
    for (std::size_t i = 0; i < queries; ++i) {
      // The keys that are not locked share what the locks leave; a locked score is what it would have to be for that.
      double sum = 0, left = 1;
      for (std::size_t j = 0; j < keys; ++j) {
        if (locked[i][j] >= 0) left -= locked[i][j];
        else sum += std::exp(scores[i][j]);
      }
      if (sum == 0) continue;
      log_sum[i] = std::log(sum / left);
      for (std::size_t j = 0; j < keys; ++j) {
        if (locked[i][j] >= 0) scores[i][j] = std::log(locked[i][j]) + log_sum[i];
        weights[i][j] = std::exp(scores[i][j] - log_sum[i]);
        if (weights[i][j] > 0) entropy[i] -= weights[i][j] * std::log(weights[i][j]);
      }
    }
    const Rows output = product(weights, v);
    const Json& place = found["heads"][head];
    expect_rows(place["products"], products, 1e-5, name + " products");
    expect_rows(place["scaled"], scaled, 1e-5, name + " scaled");
    expect_rows(place["masked"], masked, 1e-5, name + " masked");
    expect_rows(place["scores"], scores, 1e-5, name + " scores");
    expect_rows(place["weights"], weights, 1e-5, name + " weights");
    expect_rows(place["output"], output, 2e-5, name + " output");
    expect_rows(Json::array({place["entropy"]}), {entropy}, 1e-5, name + " entropy");
    expect_rows(Json::array({place["log_sum_exp"]}), {log_sum}, 1e-5, name + " log_sum_exp");
    for (std::size_t i = 0; i < queries; ++i) joined[i].insert(joined[i].end(), output[i].begin(), output[i].end());
  }
  expect_rows(found["concatenated"], joined, 2e-5, name + " concatenated");
  if (one.output_weight.empty()) EXPECT_TRUE(found["projected"].is_null());
  else expect_rows(found["projected"], product(joined, one.output_weight), 5e-5, name + " projected");
}

// ---- Random cases ---------------------------------------------------------------------------------------------------
struct Draw {
  std::uint64_t seed;
  std::int64_t below(std::int64_t bound) {
    const double value = std::abs(normal({1}, 1e4f, ++seed).item());
    return static_cast<std::int64_t>(value) % bound;
  }
  // Normal numbers, for weights so small that what they make of normal rows is normal again.
  Rows weights(std::int64_t rows, std::int64_t width) {
    return matrix(rows, width, 1 / std::sqrt(static_cast<float>(rows)));
  }
  Rows matrix(std::int64_t rows, std::int64_t width, float deviation = 1) {
    const Tensor numbers = normal({rows, width}, deviation, ++seed);
    Rows result;
    for (std::int64_t row = 0; row < rows; ++row) result.emplace_back(numbers.row(row), numbers.row(row) + width);
    return result;
  }
};

TEST(ExplorerWorkbench, EveryNumberEqualsTheTextbook) {
  for (std::uint64_t seed = 1; seed <= 60; ++seed) {
    Draw draw{seed * 1000};
    Case one;
    const std::int64_t key_heads = 1 + draw.below(3), heads = key_heads * (1 + draw.below(2));
    const std::int64_t head_dim = 2 * (1 + draw.below(8)), value_dim = 1 + draw.below(12);
    const bool self = draw.below(2) == 0, made = draw.below(3) > 0;
    const std::int64_t queries = 1 + draw.below(20), keys = self && made ? queries : 1 + draw.below(30);
    one.heads = static_cast<std::size_t>(heads);
    one.key_heads = static_cast<std::size_t>(key_heads);
    one.body = {{"heads", heads}, {"key_heads", key_heads}};
    if (made) {
      const std::int64_t width = 1 + draw.below(16);
      const Rows x = draw.matrix(queries, width), memory = self ? x : draw.matrix(keys, width);
      const Rows wq = draw.weights(width, heads * head_dim), wk = draw.weights(width, key_heads * head_dim),
                 wv = draw.weights(width, key_heads * value_dim);
      one.query = product(x, wq);
      one.key = product(memory, wk);
      one.value = product(memory, wv);
      one.body["x"] = x;
      if (!self) one.body["memory"] = memory;
      one.body["query_weight"] = wq;
      one.body["key_weight"] = wk;
      one.body["value_weight"] = wv;
    } else {
      one.body["query"] = one.query = draw.matrix(queries, heads * head_dim);
      one.body["key"] = one.key = draw.matrix(keys, key_heads * head_dim);
      one.body["value"] = one.value = draw.matrix(keys, key_heads * value_dim);
    }
    if (draw.below(2)) one.body["scale"] = one.scale = 0.25;
    if (draw.below(2))
      one.body["output_weight"] = one.output_weight = draw.weights(heads * value_dim, 1 + draw.below(9));
    if (draw.below(2)) {
      one.rotary = draw.below(2) == 1;
      one.first_query = draw.below(40);
      one.first_key = draw.below(40);
      one.halves = draw.below(2) == 1;
      one.base = 100;
      one.body["positions"] = {
          {"kind", one.rotary ? "rotary" : "none"}, {"first_query", one.first_query}, {"first_key", one.first_key}};
      if (one.rotary)
        one.body["positions"].update(Json{{"base", one.base}, {"pairing", one.halves ? "halves" : "interleaved"}});
    }
    Json mask = Json::array();
    std::vector<std::function<bool(std::int64_t, std::int64_t)>> rules;
    const auto position = [&](std::int64_t i, std::int64_t j) {
      return std::pair(one.first_query + i, one.first_key + j);
    };
    if (draw.below(3) == 0) {
      mask.push_back({{"rule", "causal"}});
      rules.push_back([=](std::int64_t i, std::int64_t j) { return position(i, j).second <= position(i, j).first; });
    }
    if (draw.below(4) == 0) {
      const std::int64_t before = draw.below(6), after = draw.below(6);
      mask.push_back({{"rule", "window"}, {"before", before}, {"after", after}});
      rules.push_back([=](std::int64_t i, std::int64_t j) {
        const auto [q, k] = position(i, j);
        return k >= q - before && k <= q + after;
      });
    }
    if (draw.below(4) == 0) {
      const std::int64_t length = draw.below(keys + 1);
      mask.push_back({{"rule", "lengths"}, {"length", length}});
      rules.push_back([=](std::int64_t, std::int64_t j) { return j < length; });
    }
    if (draw.below(5) == 0) {
      const std::int64_t length = draw.below(keys + 1);
      mask.push_back({{"rule", "prefix"}, {"length", length}});
      rules.push_back([=](std::int64_t i, std::int64_t j) {
        return position(i, j).second < length || position(i, j).second <= position(i, j).first;
      });
    }
    if (draw.below(3) == 0) {
      Json allowed = Json::array();
      for (std::int64_t i = 0; i < queries; ++i) {
        allowed.push_back(Json::array());
        for (std::int64_t j = 0; j < keys; ++j) allowed.back().push_back(draw.below(3) > 0 ? 1 : 0);
      }
      mask.push_back({{"rule", "dense"}, {"allowed", allowed}});
      rules.push_back([=](std::int64_t i, std::int64_t j) {
        return allowed[static_cast<std::size_t>(i)][static_cast<std::size_t>(j)] == 1;
      });
    }
    one.body["mask"] = mask;
    one.sees = [rules](std::int64_t i, std::int64_t j) {
      for (const auto& rule : rules)
        if (!rule(i, j)) return false;
      return true;
    };
    one.body["edits"] = Json::array();
    for (std::int64_t edit = draw.below(4); edit > 0; --edit) {
      const std::string kinds[] = {"set", "add", "scale", "forbid", "lock"};
      // Each edit has a key of its own and some keys have none, so that there is always somebody to share with a lock.
      const bool share = mask.empty() && keys > 4;
      const std::string kind = kinds[draw.below(share ? 5 : 4)];
      Json line{{"kind", kind},
                {"head", draw.below(heads + 1) - 1},
                {"query", draw.below(queries + 1) - 1},
                {"key", share ? edit : draw.below(keys)}};
      if (kind != "forbid")
        line["value"] =
            kind == "lock" ? 0.1 * static_cast<double>(draw.below(4)) : 0.5 * static_cast<double>(draw.below(9)) - 2;
      if (draw.below(5) == 0) line["off"] = true;
      one.body["edits"].push_back(line);
    }
    expect_textbook(one, join("case ", seed));
    if (HasFailure()) return;  // the seed makes it again
  }
}

// ---- Examples by hand: tokens A, B, C -------------------------------------------------------------------------------
const Json tokens = {{"x", {{1, 0}, {0, 1}, {1, 1}}},
                     {"query_weight", {{1, 0}, {0, 1}}},
                     {"key_weight", {{1, 1}, {0, 1}}},
                     {"value_weight", {{1, 0}, {1, 2}}}};

TEST(ExplorerWorkbench, OneInputThreeRolesAndOneQueryEndToEnd) {
  const Json found = ask(tokens);
  expect_rows(found["k"], {{1, 1}, {0, 1}, {1, 2}}, 1e-6, "K");
  expect_rows(found["v"], {{1, 0}, {1, 2}, {2, 2}}, 1e-6, "V");
  const Json& head = found["heads"][0];
  expect_rows(head["products"], {{1, 0, 1}, {1, 1, 2}, {2, 1, 3}}, 1e-6, "Q K^T");
  expect_rows(Json::array({head["scaled"][2]}), {{1.414, 0.707, 2.121}}, 5.1e-4, "scaled");
  expect_rows(Json::array({head["weights"][2]}), {{0.284, 0.140, 0.576}}, 5.1e-4, "weights");
  expect_rows(Json::array({head["output"][2]}), {{1.576, 1.432}}, 5.1e-4, "output");
}

TEST(ExplorerWorkbench, CrossAttentionOfOneActionQuery) {
  const Json found = ask({{"query", {{1, 1}}}, {"key", {{1, 0}, {0, 1}, {1, 1}}}, {"value", {{2, 0}, {0, 4}, {1, 1}}}});
  const Json& head = found["heads"][0];
  expect_rows(head["products"], {{1, 1, 2}}, 1e-6, "scores");
  expect_rows(head["weights"], {{0.248, 0.248, 0.503}}, 5.1e-4, "weights");
  expect_rows(head["output"], {{1.000, 1.497}}, 5.1e-4, "output");
}

TEST(ExplorerWorkbench, ShapesOfEightActionsAndManyVisualTokens) {
  Draw draw{5};
  const Json found = ask({{"query", draw.matrix(8, 4)}, {"key", draw.matrix(196, 4)}, {"value", draw.matrix(196, 4)}});
  EXPECT_EQ(found["heads"][0]["weights"].size(), 8u);
  EXPECT_EQ(found["heads"][0]["weights"][0].size(), 196u);
}

TEST(ExplorerWorkbench, MaskBeforeSoftmax) {
  Json body = tokens;
  body["mask"] = {{{"rule", "causal"}}};
  body["scale"] = 1;
  const Json found = ask(body);
  EXPECT_TRUE(found["heads"][0]["masked"][1][2].is_null());
  expect_rows(Json::array({found["heads"][0]["weights"][1]}), {{0.5, 0.5, 0}}, 1e-6, "weights");
}

TEST(ExplorerWorkbench, TwoHeadsBackToTheWidth) {
  // Each query sees one key, so the heads put out the values as they are.
  Json body = {{"query", {{0, 0}}},
               {"key", {{0, 0}}},
               {"value", {{1.2, -0.4, 0.5, 2.0}}},
               {"heads", 2},
               {"key_heads", 2},
               {"output_weight", {{0.5, 0, 0, 0}, {0, 0.5, 0, 0}, {0, 0, 0.5, 0}, {0, 0, 0, 0.5}}}};
  const Json found = ask(body);
  expect_rows(found["concatenated"], {{1.2, -0.4, 0.5, 2.0}}, 1e-6, "concatenated");
  expect_rows(found["projected"], {{0.6, -0.2, 0.25, 1.0}}, 1e-6, "projected");
}

TEST(ExplorerWorkbench, SelfTestsByHand) {
  expect_rows(ask({{"query", {{1, 2}}}, {"key", {{1, 0}, {0, 1}}}, {"value", {{1}, {1}}}})["heads"][0]["products"],
              {{1, 2}}, 1e-6, "scores");
  const Json even = ask({{"query", {{0, 0}}}, {"key", {{1, 0}, {0, 1}}}, {"value", {{2, 0}, {0, 4}}}});
  expect_rows(even["heads"][0]["weights"], {{0.5, 0.5}}, 1e-6, "weights");
  expect_rows(even["heads"][0]["output"], {{1, 2}}, 1e-6, "output");
  Draw draw{9};
  const Json causal = ask({{"query", draw.matrix(4, 2)},
                           {"key", draw.matrix(4, 2)},
                           {"value", draw.matrix(4, 2)},
                           {"mask", {{{"rule", "causal"}}}}});
  EXPECT_TRUE(causal["heads"][0]["masked"][2][3].is_null());
  EXPECT_EQ(causal["heads"][0]["weights"][2][3].get<double>(), 0);
  EXPECT_GT(causal["heads"][0]["weights"][2][2].get<double>(), 0);
  EXPECT_FLOAT_EQ(
      ask({{"query", draw.matrix(1, 64)}, {"key", draw.matrix(1, 64)}, {"value", draw.matrix(1, 1)}})["scale"]
          .get<float>(),
      0.125f);
}

TEST(ExplorerWorkbench, ScoresDependOnPositionsByTheirDifferenceOnly) {
  Draw draw{11};
  Json body = {{"query", draw.matrix(3, 8)},
               {"key", draw.matrix(5, 8)},
               {"value", draw.matrix(5, 2)},
               {"positions", {{"kind", "rotary"}, {"first_query", 4}}}};
  const Json here = ask(body);
  body["positions"]["first_query"] = 104;
  body["positions"]["first_key"] = 100;
  const Json there = ask(body);
  Rows expected;
  for (const Json& row : here["heads"][0]["scores"]) expected.push_back(row.get<std::vector<double>>());
  expect_rows(there["heads"][0]["scores"], expected, 1e-4, "scores");
}

// ---- What it refuses ------------------------------------------------------------------------------------------------
TEST(ExplorerWorkbench, NamesWhatDoesNotFit) {
  const auto with = [](Json body, const char* name, const Json& value) {
    body[name] = value;
    return refused(body);
  };
  EXPECT_EQ(refused(Json::object()).where(), "query");
  EXPECT_EQ(with(tokens, "query", Json{{1, 2}}).where(), "query");
  EXPECT_EQ(with(tokens, "key_weight", nullptr).where(), "key_weight");
  EXPECT_EQ(with(tokens, "key_weight", Json{{1, 2}}).kind(), "shape");
  EXPECT_EQ(with(tokens, "key_weight", Json{{1, 2, 3}, {4, 5, 6}}).kind(), "shape");
  EXPECT_EQ(with(tokens, "heads", 3).kind(), "shape");
  EXPECT_EQ(with(tokens, "heads", 0).kind(), "argument");
  EXPECT_EQ(with(tokens, "scale", 0).where(), "scale");
  EXPECT_EQ(with(tokens, "memory", Json{{1, 2, 3}}).kind(), "shape");
  EXPECT_EQ(with(tokens, "output_weight", Json{{1, 2, 3}}).kind(), "shape");
  EXPECT_EQ(with(tokens, "masks", Json::array()).where(), "body");
  EXPECT_EQ(with(tokens, "mask", Json{{{"rule", "dense"}, {"allowed", {{1, 0}}}}}).kind(), "shape");
  EXPECT_EQ(with(tokens, "mask", Json{{{"rule", "dense"}}}).where(), "mask[0].allowed");
  EXPECT_EQ(with(tokens, "mask", Json{{{"rule", "casual"}}}).where(), "mask[0].rule");
  EXPECT_EQ(with(tokens, "edits", Json{{{"kind", "set"}, {"query", 3}, {"key", 0}, {"value", 1}}}).kind(), "argument");
  EXPECT_EQ(with(tokens, "edits", Json{{{"kind", "set"}, {"query", 0}, {"key", 0}}}).where(), "edits[0].value");
  EXPECT_EQ(with(tokens, "positions", Json{{"kind", "rotary"}, {"first_query", 65536}}).kind(), "argument");
  EXPECT_EQ(refused({{"query", {{1e30}}}, {"key", {{1e30}}}, {"value", {{1}}}}).kind(), "numeric");
  Draw draw{3};
  const Rows many = draw.matrix(512, 2);
  EXPECT_EQ(refused({{"query", many}, {"key", many}, {"value", many}, {"heads", 2}, {"key_heads", 2}}).status(), 413);
  EXPECT_EQ(
      refused({{"query", {{1, 2, 3}}}, {"key", {{1, 2, 3}}}, {"value", {{1}}}, {"positions", {{"kind", "rotary"}}}})
          .kind(),
      "shape");
}

// ---- Single operations ----------------------------------------------------------------------------------------------
TEST(ExplorerOperations, GiveWhatTheirNamesSay) {
  expect_rows(operate({{"name", "product"}, {"a", {{1, 2}}}, {"b", {{3, 4, 5}, {6, 7, 8}}}}), {{15, 18, 21}}, 1e-6,
              "product");
  expect_rows(operate({{"name", "add"}, {"a", {{1, 2}}}, {"b", {{0.5, -0.5}}}}), {{1.5, 1.5}}, 1e-6, "add");
  expect_rows(operate({{"name", "softmax"}, {"a", {{8, 0}, {1, 0}}}}), {{0.9997, 0.0003}, {0.731, 0.269}}, 5.1e-4,
              "softmax");
  expect_rows(operate({{"name", "layer_norm"}, {"a", {{1, 3}}}}), {{-1, 1}}, 1e-6, "layer_norm");
  expect_rows(operate({{"name", "layer_norm"}, {"a", {{1, 3}}}, {"gain", {2, 2}}, {"bias", {1, 0}}, {"epsilon", 3}}),
              {{0, 1}}, 1e-6, "layer_norm");
  expect_rows(operate({{"name", "rms_norm"}, {"a", {{3, 4}}}, {"gain", {1, 2}}}),
              {{3 / std::sqrt(12.5), 8 / std::sqrt(12.5)}}, 1e-6, "rms_norm");
  expect_rows(operate({{"name", "relu"}, {"a", {{-1, 2, 1}}}}), {{0, 2, 1}}, 1e-6, "relu");
  expect_rows(operate({{"name", "gelu"}, {"a", {{-1, 2}}}}), {{-0.158655, 1.954500}}, 1e-5, "gelu");
  expect_rows(operate({{"name", "silu"}, {"a", {{-1, 2}}}}), {{-0.268941, 1.761594}}, 1e-5, "silu");
  expect_rows(operate({{"name", "rotate"}, {"a", {{1, 0}, {1, 0}}}, {"positions", {0, 1}}}),
              {{1, 0}, {std::cos(1), std::sin(1)}}, 1e-6, "rotate");
  expect_rows(operate({{"name", "sinusoid"}, {"rows", 2}, {"width", 4}}),
              {{0, 1, 0, 1}, {std::sin(1), std::cos(1), std::sin(0.01), std::cos(0.01)}}, 1e-6, "sinusoid");
}

TEST(ExplorerOperations, RandomNumbersAreTheSameAgain) {
  const Json first = operate({{"name", "normal"}, {"rows", 60}, {"columns", 50}, {"seed", 3}});
  EXPECT_EQ(first, operate({{"name", "normal"}, {"rows", 60}, {"columns", 50}, {"seed", 3}}));
  EXPECT_NE(first, operate({{"name", "normal"}, {"rows", 60}, {"columns", 50}, {"seed", 4}}));
  double sum = 0, squares = 0;
  for (const Json& row : first)
    for (const Json& cell : row) sum += cell.get<double>(), squares += cell.get<double>() * cell.get<double>();
  EXPECT_NEAR(sum / 3000, 0, 0.08);
  EXPECT_NEAR(squares / 3000, 1, 0.12);
}

// What a page needs to say an error in its reader's language: a word, what was found and what is needed.
TEST(ExplorerWorkbench, RefusalsCanBeReadByPrograms) {
  const auto parts = [](const ApiError& error) { return Json::parse(to_json(error))["error"]; };
  const Json rows = parts(refused(
      {{"x", {{1, 2}}}, {"query_weight", {{1}, {2}, {3}}}, {"key_weight", {{1}, {2}}}, {"value_weight", {{1}, {2}}}}));
  EXPECT_EQ(rows["code"], "weight_rows");
  EXPECT_EQ(rows["where"], "query_weight");
  EXPECT_EQ(rows["found"], 3);
  EXPECT_EQ(rows["expected"], 2);
  const Json edit = parts(refused(
      {{"query", {{1}}}, {"key", {{1}}}, {"value", {{1}}}, {"edits", {{{"kind", "set"}, {"key", 7}, {"value", 1}}}}}));
  EXPECT_EQ(edit["code"], "range");
  EXPECT_EQ(edit["found"], 7);
  EXPECT_EQ(edit["expected"], Json({-1, 0}));
  const Json missing = parts(refused({{"query", {{1}}}}));
  EXPECT_EQ(missing["code"], missing["kind"]);
  EXPECT_FALSE(missing.contains("found"));
}

TEST(ExplorerOperations, SayWhyANormHasNoResult) {
  const auto error = [](const Json& body) {
    try {
      operate(body);
    } catch (...) {
      return Json::parse(to_json(current_error()))["error"];
    }
    return Json();
  };
  const Json equal = error({{"name", "layer_norm"}, {"a", {{1, 3}, {5, 5}}}});
  EXPECT_EQ(equal["code"], "no_spread");
  EXPECT_EQ(equal["found"], 1);
  EXPECT_EQ(error({{"name", "rms_norm"}, {"a", {{0, 0}}}})["code"], "all_zero");
  EXPECT_TRUE(error({{"name", "layer_norm"}, {"a", {{5, 5}}}, {"epsilon", 1e-5}}).is_null());
  EXPECT_TRUE(error({{"name", "rms_norm"}, {"a", {{5, 5}}}}).is_null());
}

TEST(ExplorerOperations, RefuseWhatTheyCannotDo) {
  const auto error = [](const Json& body) {
    try {
      operate(body);
    } catch (...) {
      return current_error().kind();
    }
    return std::string("none");
  };
  EXPECT_EQ(error({{"name", "divide"}}), "argument");
  EXPECT_EQ(error({{"name", "product"}, {"a", {{1, 2}}}, {"b", {{1, 2}}}}), "shape");
  EXPECT_EQ(error({{"name", "add"}, {"a", {{1, 2}}}, {"b", {{1}}}}), "shape");
  EXPECT_EQ(error({{"name", "softmax"}}), "argument");
  EXPECT_EQ(error({{"name", "softmax"}, {"a", {{1}}}, {"b", {{1}}}}), "argument");
  EXPECT_EQ(error({{"name", "layer_norm"}, {"a", {{1, 1}}}}), "numeric");
  EXPECT_EQ(error({{"name", "layer_norm"}, {"a", {{1, 2}}}, {"gain", {1}}}), "shape");
  EXPECT_EQ(error({{"name", "normal"}, {"rows", 513}, {"columns", 1}, {"seed", 1}}), "argument");
  EXPECT_EQ(error({{"name", "rotate"}, {"a", {{1, 2}}}, {"positions", {1, 2}}}), "shape");
}

}  // namespace
}  // namespace attend::explorer
