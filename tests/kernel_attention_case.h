// Random attention calls for tests: every mask rule, every score rule, strides with gaps, pages, grouped heads.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <memory>
#include <string>
#include <vector>

#include "attend/attention.h"
#include "attend/error.h"
#include "attend/threads.h"
#include "core/random.h"
#include "kernel/attention/attention_reference.h"
#include "kernel/targets.h"

namespace attend {

struct Lengths {
  std::int64_t queries, keys;
};

struct CaseOptions {
  std::vector<Lengths> items = {{5, 7}};
  std::int64_t query_heads = 2, key_heads = 2, head_dim = 8, value_dim = 8;
  std::string masks;  // letters: c causal, w window, l lengths, p prefix, d documents, b blocks, m dense
  std::string rules;  // letters: c soft cap, s slopes, r relative bias, b bias, k sinks
  bool broadcast_bias = false;
  bool listed_positions = false;
  bool pages = false;
  bool gaps = false;  // row and head strides wider than needed
  float dropout = 0;
  std::uint64_t seed = 1;
};

inline std::size_t index_of(std::int64_t i) { return static_cast<std::size_t>(i); }

// Owns all that a call points to. Values lie on a grid of 1/256, so that adding 1/256 to one is exact in float.
class AttentionCase {
 public:
  explicit AttentionCase(const CaseOptions& options) : options_(options), random_(options.seed) {
    const bool has = !options.items.empty();
    call.query_heads = options.query_heads;
    call.key_heads = options.key_heads;
    call.head_dim = options.head_dim;
    call.value_dim = options.value_dim;
    for (const Lengths& lengths : options.items) {
      AttentionItem item;
      item.query_begin = query_rows;
      item.queries = lengths.queries;
      item.key_begin = key_rows;
      item.keys = lengths.keys;
      // Most items end where their keys end, as in decoding against a cache.
      item.query_position = lengths.keys - lengths.queries + static_cast<std::int64_t>(random_.below(3)) - 1;
      item.key_position = 0;
      query_rows += lengths.queries + (options.gaps ? 1 : 0);
      key_rows += lengths.keys + (options.gaps ? 2 : 0);
      items.push_back(item);
    }
    const std::int64_t gap = options.gaps ? 3 : 0;
    query_stride = options.query_heads * (options.head_dim + gap) + gap;
    key_stride = options.key_heads * (options.head_dim + gap) + gap;
    value_stride = options.key_heads * (options.value_dim + gap) + gap;
    output_stride = options.query_heads * (options.value_dim + gap) + gap;
    query = numbers(query_rows * query_stride);
    key = numbers(key_rows * key_stride);
    value = numbers(key_rows * value_stride);
    output_gradient = numbers(query_rows * output_stride);
    output.assign(index_of(query_rows * output_stride), 7.0f);
    log_sum_exp.assign(index_of(query_rows * options.query_heads), 7.0f);
    call.query = {query.data(), query_stride, options.head_dim + gap};
    call.key = {key.data(), key_stride, options.head_dim + gap};
    call.value = {value.data(), value_stride, options.value_dim + gap};
    call.output = {output.data(), output_stride, options.value_dim + gap};
    call.log_sum_exp = log_sum_exp.data();
    if (options.listed_positions) list_positions();
    if (options.pages && has) make_pages();
    call.items = items;
    for (char letter : options.masks) call.mask.push_back(mask_rule(letter));
    for (char letter : options.rules) add_rule(letter);
    call.dropout = {options.dropout, 12345 + options.seed};
  }
  AttentionCase(const AttentionCase&) = delete;
  AttentionCase& operator=(const AttentionCase&) = delete;

  std::vector<float> numbers(std::int64_t size) {
    std::vector<float> all(index_of(size));
    for (float& x : all) x = static_cast<float>(static_cast<std::int64_t>(random_.below(513)) - 256) / 256.0f;
    return all;
  }

  HeadsView output_gradient_view() const {
    return {output_gradient.data(), call.output.row_stride, call.output.head_stride};
  }
  Random& random() { return random_; }

  AttentionCall call;
  std::vector<AttentionItem> items;
  std::int64_t query_rows = 0, key_rows = 0, query_stride = 0, key_stride = 0, value_stride = 0, output_stride = 0;
  std::vector<float> query, key, value, output, log_sum_exp, output_gradient;
  std::vector<float> slopes, table, bias, sinks;
  std::int64_t bias_size = 0;

 private:
  std::vector<std::int64_t>& random_lengths() {
    lengths_.emplace_back();
    for (const AttentionItem& item : items)
      lengths_.back().push_back(static_cast<std::int64_t>(random_.below(static_cast<std::uint64_t>(item.keys + 2))));
    return lengths_.back();
  }

  std::vector<std::uint8_t>& random_bytes(std::int64_t size, std::uint64_t one_in) {
    bytes_.emplace_back(index_of(size));
    for (std::uint8_t& byte : bytes_.back()) byte = random_.below(one_in) != 0;
    return bytes_.back();
  }

  MaskRule mask_rule(char letter) {
    lengths_.reserve(8);
    bytes_.reserve(8);
    std::int64_t most_queries = 1, most_keys = 1;
    for (const AttentionItem& item : items) {
      most_queries = std::max(most_queries, item.queries);
      most_keys = std::max(most_keys, item.keys);
    }
    switch (letter) {
      case 'c':
        return CausalRule{};
      case 'w':
        return WindowRule{static_cast<std::int64_t>(random_.below(static_cast<std::uint64_t>(most_keys))),
                          static_cast<std::int64_t>(random_.below(4))};
      case 'l':
        return KeyLengthsRule{random_lengths()};
      case 'p':
        return PrefixRule{random_lengths()};
      case 'd': {
        for (std::int64_t i = 0; i < query_rows; ++i)
          query_documents_.push_back(static_cast<std::int32_t>(i * 3 / std::max<std::int64_t>(query_rows, 1)));
        for (std::int64_t j = 0; j < key_rows; ++j)
          key_documents_.push_back(static_cast<std::int32_t>(j * 3 / std::max<std::int64_t>(key_rows, 1)));
        return DocumentRule{query_documents_, key_documents_};
      }
      case 'b': {
        const std::int64_t block = 1 + static_cast<std::int64_t>(random_.below(20));
        const std::int64_t columns = std::max<std::int64_t>(1, most_keys / block);
        return BlockRule{block, columns, random_bytes((most_keys / block + 2) * columns, 3)};
      }
      default: {
        DenseRule dense;
        dense.key_stride = 1;
        dense.query_stride = most_keys;
        dense.head_stride = most_queries * dense.query_stride;
        dense.item_stride = options_.query_heads * dense.head_stride;
        dense.allowed = random_bytes(static_cast<std::int64_t>(items.size()) * dense.item_stride, 4).data();
        return dense;
      }
    }
  }

  void add_rule(char letter) {
    ScoreRules& rules = call.rules;
    switch (letter) {
      case 'c':
        rules.soft_cap = 1.5f;
        break;
      case 's':
        slopes = numbers(options_.query_heads);
        rules.slopes = slopes;
        break;
      case 'r': {
        for (int step = 0; step < 24; ++step) buckets_.push_back(std::abs(step - 12) * 5 / 12);
        table = numbers(6 * options_.query_heads);
        rules.relative = {table.data(), buckets_, -12};
        break;
      }
      case 'b': {
        std::int64_t most_queries = 1, most_keys = 1;
        for (const AttentionItem& item : items) {
          most_queries = std::max(most_queries, item.queries);
          most_keys = std::max(most_keys, item.keys);
        }
        rules.bias.key_stride = 1;
        rules.bias.query_stride = most_keys;
        rules.bias.head_stride = options_.broadcast_bias ? 0 : most_queries * most_keys;
        rules.bias.item_stride = options_.broadcast_bias ? 0 : options_.query_heads * rules.bias.head_stride;
        bias_size = options_.broadcast_bias ? most_queries * most_keys
                                            : static_cast<std::int64_t>(items.size()) * rules.bias.item_stride;
        bias = numbers(bias_size);
        rules.bias.data = bias.data();
        break;
      }
      default:
        sinks = numbers(options_.query_heads);
        rules.sinks = sinks;
    }
  }

  void list_positions() {
    for (AttentionItem& item : items) {
      // A cache with holes: positions grow by one or two.
      auto* keys = positions_.emplace_back(std::make_unique<std::vector<std::int32_t>>()).get();
      std::int32_t position = 0;
      for (std::int64_t j = 0; j < item.keys; ++j)
        keys->push_back(position += 1 + static_cast<std::int32_t>(random_.below(2)));
      auto* queries = positions_.emplace_back(std::make_unique<std::vector<std::int32_t>>()).get();
      position = std::max<std::int32_t>(0, position - static_cast<std::int32_t>(item.queries) * 3 / 2);
      for (std::int64_t i = 0; i < item.queries; ++i)
        queries->push_back(position += 1 + static_cast<std::int32_t>(random_.below(2)));
      item.key_positions = keys->data();
      item.query_positions = queries->data();
    }
  }

  void make_pages() {
    call.page_rows = 5;
    for (AttentionItem& item : items) {
      auto* key_list = lists_.emplace_back(std::make_unique<std::vector<const float*>>()).get();
      auto* value_list = lists_.emplace_back(std::make_unique<std::vector<const float*>>()).get();
      for (std::int64_t first = 0; first < item.keys; first += call.page_rows) {
        const auto copy = [&](const HeadsView& view, std::int64_t width) {
          pages_.push_back(std::make_unique<std::vector<float>>(index_of(call.page_rows * options_.key_heads * width)));
          float* to = pages_.back()->data();
          for (std::int64_t row = first; row < std::min(item.keys, first + call.page_rows); ++row)
            for (std::int64_t head = 0; head < options_.key_heads; ++head, to += width)
              std::copy_n(view.data + (item.key_begin + row) * view.row_stride + head * view.head_stride, width, to);
          return static_cast<const float*>(pages_.back()->data());
        };
        key_list->push_back(copy(call.key, options_.head_dim));
        value_list->push_back(copy(call.value, options_.value_dim));
      }
      item.key_pages = key_list->data();
      item.value_pages = value_list->data();
    }
  }

  CaseOptions options_;
  Random random_;
  std::vector<std::vector<std::int64_t>> lengths_;
  std::vector<std::vector<std::uint8_t>> bytes_;
  std::vector<std::int32_t> query_documents_, key_documents_, buckets_;
  std::vector<std::unique_ptr<std::vector<std::int32_t>>> positions_;
  std::vector<std::unique_ptr<std::vector<const float*>>> lists_;
  std::vector<std::unique_ptr<std::vector<float>>> pages_;
};

// Gradients of a case, gathered without gaps as the reference lays them out.
struct CaseGradients {
  std::vector<float> query, key, value, relative_table, bias, sinks;
};

inline CaseGradients run_backward(const AttentionCase& given) {
  const AttentionCall& call = given.call;
  CaseGradients sums;
  sums.query.assign(index_of(given.query_rows * call.query_heads * call.head_dim), 0.0f);
  sums.key.assign(index_of(given.key_rows * call.key_heads * call.head_dim), 0.0f);
  sums.value.assign(index_of(given.key_rows * call.key_heads * call.value_dim), 0.0f);
  sums.relative_table.assign(given.table.size(), 0.0f);
  sums.bias.assign(given.bias.size(), 0.0f);
  sums.sinks.assign(given.sinks.size(), 0.0f);
  AttentionGradients gradients;
  gradients.output_gradient = given.output_gradient_view();
  gradients.query = {sums.query.data(), call.query_heads * call.head_dim, call.head_dim};
  gradients.key = {sums.key.data(), call.key_heads * call.head_dim, call.head_dim};
  gradients.value = {sums.value.data(), call.key_heads * call.value_dim, call.value_dim};
  if (!given.table.empty()) gradients.relative_table = sums.relative_table.data();
  if (!given.bias.empty()) gradients.bias = sums.bias.data();
  if (!given.sinks.empty()) gradients.sinks = sums.sinks.data();
  attention_backward(call, gradients);
  return sums;
}

// Largest difference, against a bound that grows with the size of the numbers.
inline void expect_close(const std::vector<float>& found, const std::vector<double>& expected, double bound,
                         const std::string& what) {
  double largest = 1, worst = 0;
  std::size_t where = 0;
  for (std::size_t i = 0; i < std::min(found.size(), expected.size()); ++i) {
    largest = std::max(largest, std::abs(expected[i]));
    const double error = std::abs(found[i] - expected[i]);
    if (!(error <= worst)) {
      worst = error;
      where = i;
    }
  }
  EXPECT_LE(worst, bound * largest) << what << " at " << where << ": " << (found.empty() ? 0 : found[where]) << " for "
                                    << (expected.empty() ? 0 : expected[where]);
}

// Output and log-sum-exp of a case against the reference, row by row.
inline void expect_forward(const AttentionCase& given, double bound, const std::string& what) {
  const AttentionCall& call = given.call;
  const ReferenceAttention expected = reference_forward(call);
  for (const AttentionItem& item : call.items)
    for (std::int64_t row = item.query_begin; row < item.query_begin + item.queries; ++row)
      for (std::int64_t head = 0; head < call.query_heads; ++head) {
        const double log_sum = expected.log_sum_exp[index_of(row * call.query_heads + head)];
        const float found = call.log_sum_exp[row * call.query_heads + head];
        if (std::isinf(log_sum)) ASSERT_EQ(found, log_sum) << what << " row " << row;
        else
          ASSERT_NEAR(found, log_sum, bound * std::max(1.0, std::abs(log_sum)))
              << what << " row " << row << " head " << head;
        for (std::int64_t x = 0; x < call.value_dim; ++x) {
          const double want = expected.output[index_of((row * call.query_heads + head) * call.value_dim + x)];
          const float got = call.output.data[row * call.output.row_stride + head * call.output.head_stride + x];
          ASSERT_NEAR(got, want, bound * std::max(1.0, std::abs(want)))
              << what << " row " << row << " head " << head << " x " << x;
        }
      }
}

inline void expect_backward(const AttentionCase& given, double bound, const std::string& what) {
  const ReferenceGradients expected = reference_backward(given.call, given.output_gradient_view());
  const CaseGradients found = run_backward(given);
  expect_close(found.query, expected.query, bound, what + " query");
  expect_close(found.key, expected.key, bound, what + " key");
  expect_close(found.value, expected.value, bound, what + " value");
  if (!given.table.empty()) expect_close(found.relative_table, expected.relative_table, bound, what + " table");
  if (!given.bias.empty()) expect_close(found.bias, expected.bias, bound, what + " bias");
  if (!given.sinks.empty()) expect_close(found.sinks, expected.sinks, bound, what + " sinks");
}

// Runs body(name) with every kernel target forced in turn.
template <typename Body>
void on_every_target(const Body& body) {
  for (const std::string& name : kernel_targets()) {
    force_kernel_target(name);
    body(name);
  }
  force_kernel_target("");
}

inline const std::vector<std::string>& mask_sets() {
  static const std::vector<std::string> sets = {"",  "c",  "w",  "l",  "p",  "d",      "b",
                                                "m", "cl", "wl", "cp", "dm", "cwlpdbm"};
  return sets;
}
inline const std::vector<std::string>& rule_sets() {
  static const std::vector<std::string> sets = {"", "c", "s", "r", "b", "k", "csrbk"};
  return sets;
}

}  // namespace attend
