// The contracts at the head of attend/attention.h, and the identities that hold for every shape and mask.
#include "attend/error.h"
#include "core/memory.h"
#include "kernel_attention_case.h"

namespace attend {
namespace {

constexpr float not_a_number = std::numeric_limits<float>::quiet_NaN();

CaseOptions typical(const std::string& masks = {}, const std::string& rules = {}) {
  CaseOptions options;
  options.items = {{20, 33}, {60, 300}, {1, 40}, {3, 3}, {2, 600}};
  options.query_heads = 4;
  options.key_heads = 2;
  options.head_dim = 24;
  options.value_dim = 16;
  options.masks = masks;
  options.rules = rules;
  return options;
}

bool same_bits(const std::vector<float>& a, const std::vector<float>& b) {
  return a.size() == b.size() && (a.empty() || std::memcmp(a.data(), b.data(), a.size() * sizeof(float)) == 0);
}

void run(AttentionCase& given) { attention_forward(given.call); }

TEST(AttentionContract, RowThatSeesNothing) {
  on_every_target([](const std::string&) {
    for (const float dropout : {0.0f, 0.5f}) {
      CaseOptions options = typical("l", "k");
      options.dropout = dropout;
      AttentionCase given(options);
      const std::vector<std::int64_t> lengths = {0, 300, 0, 3, 0};
      given.call.mask = {KeyLengthsRule{lengths}};
      run(given);
      const CaseGradients gradients = run_backward(given);
      for (std::size_t index = 0; index < given.items.size(); ++index) {
        if (lengths[index] != 0) continue;
        const AttentionItem& item = given.items[index];
        for (std::int64_t row = item.query_begin; row < item.query_begin + item.queries; ++row)
          for (std::int64_t head = 0; head < 4; ++head) {
            EXPECT_EQ(given.log_sum_exp[index_of(row * 4 + head)], -std::numeric_limits<float>::infinity());
            for (std::int64_t x = 0; x < 16; ++x)
              EXPECT_EQ(given.output[index_of(row * given.output_stride + head * 16 + x)], 0.0f);
            for (std::int64_t x = 0; x < 24; ++x) EXPECT_EQ(gradients.query[index_of((row * 4 + head) * 24 + x)], 0.0f);
          }
        for (std::int64_t j = item.key_begin * 2 * 24; j < (item.key_begin + item.keys) * 2 * 24; ++j)
          EXPECT_EQ(gradients.key[index_of(j)], 0.0f);
      }
    }
  });
}

// Keys from `length` on are hidden by lengths; and within the item, an element rule hides every third key from odd rows.
TEST(AttentionContract, MaskedKeysLeaveNoTrace) {
  on_every_target([](const std::string& target) {
    {
      CaseOptions options = typical();
      AttentionCase plain(options), spoiled(options), changed(options);
      const std::vector<std::int64_t> lengths = {20, 290, 33, 2, 555};
      std::vector<std::uint8_t> allowed(64 * 600, 1);
      for (std::int64_t i = 1; i < 64; i += 2)
        for (std::int64_t j = 0; j < 600; j += 3) allowed[index_of(i * 600 + j)] = 0;
      for (std::int64_t j = 0; j < 600; j += 15)
        for (std::int64_t i = 0; i < 64; ++i) allowed[index_of(i * 600 + j)] = 0;  // seen by nobody
      const DenseRule dense{allowed.data(), 0, 0, 600, 1};
      for (const AttentionItem& item : plain.items)
        for (std::int64_t j = 0; j < item.keys; ++j) {
          const bool hidden = j >= lengths[index_of(&item - plain.items.data())] || j % 15 == 0;
          if (!hidden) continue;
          for (std::int64_t x = 0; x < plain.key_stride; ++x) {
            spoiled.key[index_of((item.key_begin + j) * plain.key_stride + x)] = x % 2 ? not_a_number : -1e38f;
            changed.key[index_of((item.key_begin + j) * plain.key_stride + x)] = 0.75f;
          }
          for (std::int64_t x = 0; x < plain.value_stride; ++x) {
            spoiled.value[index_of((item.key_begin + j) * plain.value_stride + x)] =
                x % 2 ? not_a_number : std::numeric_limits<float>::infinity();
            changed.value[index_of((item.key_begin + j) * plain.value_stride + x)] = -0.75f;
          }
        }
      for (AttentionCase* given : {&plain, &spoiled, &changed}) {
        given->call.mask = {KeyLengthsRule{lengths}, dense};
        run(*given);
      }
      EXPECT_TRUE(same_bits(plain.output, spoiled.output)) << target;
      EXPECT_TRUE(same_bits(plain.output, changed.output)) << target;
      EXPECT_TRUE(same_bits(plain.log_sum_exp, spoiled.log_sum_exp)) << target;
      const CaseGradients a = run_backward(plain), b = run_backward(spoiled), c = run_backward(changed);
      EXPECT_TRUE(same_bits(a.query, b.query)) << target;
      EXPECT_TRUE(same_bits(a.key, b.key)) << target;
      EXPECT_TRUE(same_bits(a.value, b.value)) << target;
      EXPECT_TRUE(same_bits(a.query, c.query)) << target;
      EXPECT_TRUE(same_bits(a.key, c.key)) << target;
    }
  });
}

// A NaN reaches exactly the rows that see it.
TEST(AttentionContract, VisibleNanIsNotHidden) {
  on_every_target([](const std::string& target) {
    for (const bool in_value : {false, true}) {
      CaseOptions options;
      options.items = {{20, 20}};
      options.masks = std::string("c");
      AttentionCase plain(options), spoiled(options);
      plain.items[0].query_position = spoiled.items[0].query_position = 0;
      plain.call.items = plain.items;
      spoiled.call.items = spoiled.items;
      (in_value ? spoiled.value : spoiled.key)[index_of(9 * 2 * 8)] = not_a_number;  // key 9, head 0, element 0
      run(plain);
      run(spoiled);
      for (std::int64_t row = 0; row < 20; ++row)
        for (std::int64_t x = 0; x < 16; ++x) {
          const float found = spoiled.output[index_of(row * 16 + x)];
          if (row >= 9 && (in_value ? x == 0 : x < 8)) EXPECT_TRUE(std::isnan(found)) << target << row << " " << x;
          else EXPECT_EQ(found, plain.output[index_of(row * 16 + x)]) << target << row << " " << x;
        }
    }
  });
}

TEST(AttentionContract, WeightsSumToOneAndRebuildTheOutput) {
  on_every_target([](const std::string& target) {
    for (const std::string& masks : mask_sets())
      for (const std::string rules : {"", "k", "csrb"}) {
        CaseOptions options = typical(masks, rules);
        options.items = {{20, 33}, {7, 270}, {1, 40}, {3, 3}, {2, 50}};
        AttentionCase given(options);
        std::vector<std::vector<float>> scores, weights;
        std::vector<MatrixRequest> requests;
        for (std::int64_t index = 0; index < 5; ++index) {
          const std::size_t size = index_of(given.items[index_of(index)].queries * given.items[index_of(index)].keys);
          scores.emplace_back(size, 7.0f);
          weights.emplace_back(size, 7.0f);
        }
        for (std::int64_t index = 0; index < 5; ++index)
          requests.push_back({index, index % 4, scores[index_of(index)].data(), weights[index_of(index)].data()});
        given.call.matrices = requests;
        run(given);
        for (const MatrixRequest& request : requests) {
          const AttentionItem& item = given.items[index_of(request.item)];
          const std::vector<double> expected_scores = reference_scores(given.call, request.item, request.head);
          const std::vector<double> expected = reference_weights(given.call, request.item, request.head);
          for (std::int64_t i = 0; i < item.queries; ++i) {
            double sum = 0;
            bool any = false;
            for (std::int64_t j = 0; j < item.keys; ++j) {
              const std::int64_t at = i * item.keys + j;
              sum += request.weights[at];
              if (std::isinf(expected_scores[index_of(at)])) {
                ASSERT_EQ(request.scores[at], -std::numeric_limits<float>::infinity()) << target << masks << rules;
                ASSERT_EQ(request.weights[at], 0.0f);
              } else {
                any = true;
                ASSERT_NEAR(request.scores[at], expected_scores[index_of(at)],
                            1e-5 * std::max(1.0, std::abs(expected_scores[index_of(at)])));
                ASSERT_NEAR(request.weights[at], expected[index_of(at)], 3e-5);
              }
            }
            if (rules != std::string("k")) EXPECT_NEAR(sum, any ? 1 : 0, 3e-6) << target << masks << rules;
            else EXPECT_LE(sum, 1);
          }
        }
        expect_forward(given, 3e-5, join(target, " with matrices, masks ", masks, " rules ", rules));
      }
  });
}

TEST(AttentionContract, SameBitsForAnyNumberOfThreads) {
  const int before = threads();
  for (const std::string masks : {"", "c", "m"}) {
    for (const bool long_item : {false, true}) {
      CaseOptions options = typical(masks, masks == std::string("c") ? "rk" : "");
      options.dropout = 0.1f;
      if (long_item) {
        options.items = {{300, 500}, {1, 2000}};
        options.query_heads = 1;
        options.key_heads = 1;
      }
      AttentionCase given(options);
      std::vector<float> output, log_sum_exp;
      CaseGradients gradients;
      for (int count = 1; count <= 4; ++count) {
        set_threads(count);
        run(given);
        const CaseGradients found = run_backward(given);
        if (count == 1) {
          output = given.output;
          log_sum_exp = given.log_sum_exp;
          gradients = found;
          continue;
        }
        EXPECT_TRUE(same_bits(output, given.output)) << count;
        EXPECT_TRUE(same_bits(log_sum_exp, given.log_sum_exp)) << count;
        EXPECT_TRUE(same_bits(gradients.query, found.query)) << count;
        EXPECT_TRUE(same_bits(gradients.key, found.key)) << count;
        EXPECT_TRUE(same_bits(gradients.value, found.value)) << count;
        EXPECT_TRUE(same_bits(gradients.relative_table, found.relative_table)) << count;
        EXPECT_TRUE(same_bits(gradients.sinks, found.sinks)) << count;
      }
    }
  }
  set_threads(before);
}

// Whatever axes the bias is broadcast over, also keys, and even where strides overlap: then many scores add to one
// element of its gradient, which no two threads may do at once.
TEST(AttentionContract, BiasGradientOfAnyStrides) {
  const int before = threads();
  struct Strides {
    std::int64_t item, head, query, key;
  };
  for (const bool long_item : {false, true})
    for (const Strides& strides :
         {Strides{360'000, 180'000, 600, 1}, Strides{0, 180'000, 600, 1}, Strides{360'000, 0, 600, 1},
          Strides{0, 0, 600, 1}, Strides{600, 300, 1, 0}, Strides{0, 0, 1, 0}, Strides{1200, 600, 0, 1},
          Strides{1, 0, 0, 0}, Strides{0, 0, 0, 0}, Strides{0, 0, 1, 1}, Strides{1, 1, 1, 1}, Strides{0, 0, 1, 300}}) {
      CaseOptions options = typical("c");
      options.key_heads = options.query_heads = 2;
      if (long_item) {
        options.items = {{300, 500}};
        options.query_heads = options.key_heads = 1;
      }
      AttentionCase given(options);
      const std::string what = join("strides ", strides.item, ' ', strides.head, ' ', strides.query, ' ', strides.key);
      const auto items = static_cast<std::int64_t>(options.items.size());
      given.bias = given.numbers(1 + (items - 1) * strides.item + (options.query_heads - 1) * strides.head +
                                 299 * strides.query + 599 * strides.key);
      given.call.rules.bias = {given.bias.data(), strides.item, strides.head, strides.query, strides.key};
      set_threads(1);
      run(given);
      const CaseGradients alone = run_backward(given);
      std::vector<double> expected = reference_backward(given.call, given.output_gradient_view()).bias;
      expected.resize(given.bias.size());
      expect_close(alone.bias, expected, 1e-5, what);
      for (int count = 2; count <= 4; ++count) {
        set_threads(count);
        const CaseGradients found = run_backward(given);
        EXPECT_TRUE(same_bits(alone.bias, found.bias)) << what << ", threads " << count;
        EXPECT_TRUE(same_bits(alone.query, found.query)) << what << ", threads " << count;
        EXPECT_TRUE(same_bits(alone.key, found.key)) << what << ", threads " << count;
      }
    }
  set_threads(before);
}

// 16 random bits decide: a probability of 1e-5 is one in 65536, one of 0.99999 leaves one in 65536, and the factor is
// that of what is really drawn.
TEST(AttentionContract, KeptWeightsMakeUpForWhatTheDrawsDrop) {
  struct Case {
    float probability;
    double drawn;
  };
  for (const Case& each : {Case{1e-5f, 1.0 / 65536}, Case{0.1f, 6554.0 / 65536}, Case{0.9999f, 65529.0 / 65536}}) {
    CaseOptions options;
    options.items = {{64, 64}};
    options.query_heads = options.key_heads = 1;
    options.dropout = each.probability;
    AttentionCase given(options);
    std::fill(given.query.begin(), given.query.end(), 0.0f);
    std::fill(given.value.begin(), given.value.end(), 1.0f);
    run(given);
    // Every output is a count of kept weights, each of 1/64 times the factor.
    for (std::int64_t row = 0; row < 64; ++row) {
      const double count = given.output[index_of(row * given.output_stride)] * 64 * (1 - each.drawn);
      EXPECT_NEAR(count, std::round(count), 1e-4) << each.probability;
      EXPECT_LE(count, 64.001);
    }
  }
  CaseOptions all;
  all.dropout = std::nextafter(1.0f, 0.0f);  // nothing is kept
  AttentionCase given(all);
  run(given);
  for (std::int64_t row = 0; row < 5; ++row)
    for (std::int64_t x = 0; x < 16; ++x) EXPECT_EQ(given.output[index_of(row * given.output_stride + x)], 0.0f);
}

TEST(AttentionContract, AnItemAloneHasTheBitsItHasInABatch) {
  AttentionCase given(typical("c", "s"));
  run(given);
  const std::vector<float> batch = given.output;
  const CaseGradients batch_gradients = run_backward(given);
  std::fill(given.output.begin(), given.output.end(), 7.0f);
  CaseGradients sums;
  sums.query.assign(batch_gradients.query.size(), 0.0f);
  sums.key.assign(batch_gradients.key.size(), 0.0f);
  for (const AttentionItem& item : given.items) {
    const std::vector<AttentionItem> one = {item};
    given.call.items = one;
    run(given);
    const CaseGradients part = run_backward(given);
    for (std::size_t i = 0; i < sums.query.size(); ++i) sums.query[i] += part.query[i];
    for (std::size_t i = 0; i < sums.key.size(); ++i) sums.key[i] += part.key[i];
  }
  EXPECT_TRUE(same_bits(batch, given.output));
  EXPECT_TRUE(same_bits(batch_gradients.query, sums.query));
  EXPECT_TRUE(same_bits(batch_gradients.key, sums.key));
}

TEST(AttentionContract, ComposedMaskEqualsDenseMask) {
  for (const std::string& masks : mask_sets()) {
    AttentionCase composed(typical(masks)), dense(typical());
    const std::int64_t most_queries = 60, most_keys = 600;
    std::vector<std::uint8_t> allowed(index_of(5 * 4 * most_queries * most_keys), 0);
    for (std::int64_t index = 0; index < 5; ++index)
      for (std::int64_t head = 0; head < 4; ++head) {
        const std::vector<double> scores = reference_scores(composed.call, index, head);
        const AttentionItem& item = composed.items[index_of(index)];
        for (std::int64_t i = 0; i < item.queries; ++i)
          for (std::int64_t j = 0; j < item.keys; ++j)
            allowed[index_of(((index * 4 + head) * most_queries + i) * most_keys + j)] =
                !std::isinf(scores[index_of(i * item.keys + j)]);
      }
    dense.call.mask = {DenseRule{allowed.data(), 4 * most_queries * most_keys, most_queries * most_keys, most_keys, 1}};
    run(composed);
    run(dense);
    for (std::size_t i = 0; i < composed.output.size(); ++i)
      ASSERT_NEAR(composed.output[i], dense.output[i], 2e-6) << masks;
  }
}

TEST(AttentionContract, PagesEqualViews) {
  for (const std::string masks : {"", "c", "l"}) {
    CaseOptions options = typical(masks, "r");
    AttentionCase views(options);
    options.pages = true;
    AttentionCase pages(options);
    std::fill(pages.key.begin(), pages.key.end(), not_a_number);  // only the pages may be read
    std::fill(pages.value.begin(), pages.value.end(), not_a_number);
    run(views);
    run(pages);
    EXPECT_TRUE(same_bits(views.output, pages.output)) << masks;
  }
}

TEST(AttentionContract, PrefillEqualsDecodingStepByStep) {
  on_every_target([](const std::string& target) {
    for (const std::int64_t step : {1, 3, 7}) {
      CaseOptions options;
      options.items = {{90, 90}};
      options.masks = std::string("c");
      options.rules = std::string("r");
      AttentionCase given(options);
      given.items[0].query_position = 0;
      given.call.items = given.items;
      run(given);
      const std::vector<float> prefill = given.output;
      std::fill(given.output.begin(), given.output.end(), 7.0f);
      for (std::int64_t begin = 0; begin < 90; begin += step) {
        AttentionItem item = given.items[0];
        item.query_begin = begin;
        item.queries = std::min<std::int64_t>(step, 90 - begin);
        item.query_position = begin;
        item.keys = begin + item.queries;
        const std::vector<AttentionItem> one = {item};
        given.call.items = one;
        run(given);
      }
      for (std::size_t i = 0; i < prefill.size(); ++i)
        ASSERT_NEAR(prefill[i], given.output[i], 2e-6) << target << " step " << step;
    }
  });
}

TEST(AttentionContract, CausalRowEqualsItsPrefix) {
  CaseOptions options;
  options.items = {{300, 300}};
  options.masks = std::string("c");
  AttentionCase given(options);
  given.items[0].query_position = 0;
  given.call.items = given.items;
  run(given);
  const std::vector<float> all = given.output;
  given.items[0].queries = given.items[0].keys = 201;
  given.call.items = given.items;
  run(given);
  EXPECT_EQ(std::memcmp(all.data(), given.output.data(), 201 * 16 * sizeof(float)), 0);  // even the bits
}

TEST(AttentionContract, PermutingKeysChangesNothing) {
  AttentionCase given(typical());
  run(given);
  const std::vector<float> before = given.output;
  for (const AttentionItem& item : given.items) {
    std::vector<std::int64_t> order(index_of(item.keys));
    for (std::size_t j = 0; j < order.size(); ++j) order[j] = static_cast<std::int64_t>(j);
    shuffle(order.begin(), order.end(), given.random());
    const std::vector<float> key = given.key, value = given.value;
    for (std::int64_t j = 0; j < item.keys; ++j) {
      std::copy_n(key.data() + (item.key_begin + order[index_of(j)]) * given.key_stride, given.key_stride,
                  given.key.data() + (item.key_begin + j) * given.key_stride);
      std::copy_n(value.data() + (item.key_begin + order[index_of(j)]) * given.value_stride, given.value_stride,
                  given.value.data() + (item.key_begin + j) * given.value_stride);
    }
  }
  run(given);
  for (std::size_t i = 0; i < before.size(); ++i) ASSERT_NEAR(before[i], given.output[i], 2e-6);
}

// Equal values come back whatever the weights, so an output with dropout is value * kept * factor.
TEST(AttentionContract, DropoutKeepsItsProbability) {
  on_every_target([](const std::string&) {
    CaseOptions options;
    options.items = {{256, 256}};
    options.query_heads = options.key_heads = 1;
    options.dropout = 0.3f;
    AttentionCase given(options);
    std::fill(given.query.begin(), given.query.end(), 0.0f);
    std::fill(given.value.begin(), given.value.end(), 1.0f);
    run(given);
    double sum = 0;
    for (std::int64_t row = 0; row < 256; ++row) sum += given.output[index_of(row * 8)];
    // 65,536 weights of 1/256 each: the standard deviation of the mean is sqrt(0.3 / 0.7 / 65536) = 0.0026.
    EXPECT_NEAR(sum / 256, 1, 0.01);
    expect_forward(given, 1e-5, "dropout");
  });
}

TEST(AttentionContract, ExplicitHeadsAgreeAndOthersStay) {
  on_every_target([](const std::string& target) {
    AttentionCase given(typical("c", "r"));
    run(given);
    const std::vector<float> before = given.output;
    std::vector<float> weights(20 * 33);
    const std::vector<MatrixRequest> requests = {{0, 1, nullptr, weights.data()}};
    given.call.matrices = requests;
    run(given);
    EXPECT_TRUE(same_bits(before, given.output)) << target;  // tiled and explicit run the same tiles
    const std::vector<ScoreEdit> edits = {{ScoreEdit::Kind::forbid, 0, 1, -1, 0, 0},
                                          {ScoreEdit::Kind::set, 1, 2, 3, 4, 2.0f},
                                          {ScoreEdit::Kind::add, 2, -1, -1, 5, -1.0f}};
    given.call.edits = edits;
    run(given);
    expect_forward(given, 1e-5, join(target, " edits"));
    for (std::int64_t row = 0; row < 20; ++row)
      for (std::int64_t head : {0, 2, 3})
        for (std::int64_t x = 0; x < 16; ++x) {
          const std::size_t at = index_of(row * given.output_stride + head * 16 + x);
          ASSERT_EQ(before[at], given.output[at]) << target;
        }
  });
}

TEST(AttentionContract, AnEditNeverOpensAMask) {
  CaseOptions options;
  options.items = {{4, 4}};
  options.masks = std::string("c");
  AttentionCase given(options);
  given.items[0].query_position = 0;
  given.call.items = given.items;
  std::vector<float> weights(16);
  const std::vector<MatrixRequest> requests = {{0, 0, nullptr, weights.data()}};
  const std::vector<ScoreEdit> edits = {{ScoreEdit::Kind::set, -1, -1, -1, -1, 1.0f}};
  given.call.matrices = requests;
  given.call.edits = edits;
  run(given);
  for (int i = 0; i < 4; ++i)
    for (int j = 0; j < 4; ++j) EXPECT_NEAR(weights[index_of(i * 4 + j)], j <= i ? 1.0 / (i + 1) : 0.0, 1e-6);
}

TEST(AttentionContract, ExplainNamesTheEntryAndWhy) {
  AttentionCase given(typical());
  std::vector<float> weights(20 * 33);
  const std::vector<MatrixRequest> requests = {{0, 1, nullptr, weights.data()}};
  given.call.matrices = requests;
  EXPECT_EQ(
      explain(given.call),
      "item 0: explicit for head 1 (scores are asked for or edited); tiled for the others (not decode: 40 rows share a key head, "
      "more than 4)\n"
      "item 1: tiled (not explicit: no scores are asked for or edited; not decode: 120 rows share a key head, more than 4)\n"
      "item 2: decode (not explicit: no scores are asked for or edited; 2 rows share a key head, at most 4)\n"
      "item 3: tiled (not explicit: no scores are asked for or edited; not decode: 6 rows share a key head, more than 4)\n"
      "item 4: decode (not explicit: no scores are asked for or edited; 4 rows share a key head, at most 4)\n");
}

TEST(AttentionContract, WrongCallsAreRefusedWithTheReason) {
  const auto message = [](const auto& spoil) -> std::string {
    AttentionCase given(typical());
    spoil(given);
    try {
      attention_forward(given.call);
    } catch (const Error& error) {
      EXPECT_EQ(given.output, std::vector<float>(given.output.size(), 7.0f));
      return error.what();
    }
    return "no error";
  };
  const std::vector<std::int64_t> two = {1, 2};
  const std::vector<float> one = {1};
  EXPECT_NE(message([](AttentionCase& given) { given.call.key_heads = 3; }).find("query has 4 heads and key has 3"),
            std::string::npos);
  EXPECT_NE(message([](AttentionCase& given) { given.call.head_dim = 0; }).find("head_dim 0"), std::string::npos);
  EXPECT_NE(
      message([&](AttentionCase& given) { given.call.mask = {KeyLengthsRule{two}}; }).find("2 entries for 5 items"),
      std::string::npos);
  EXPECT_NE(message([&](AttentionCase& given) { given.call.mask = {PrefixRule{two}}; }).find("2 entries for 5 items"),
            std::string::npos);
  EXPECT_NE(message([](AttentionCase& given) {
              given.call.mask = {WindowRule{-1, 0}};
            }).find("window before -1"),
            std::string::npos);
  EXPECT_NE(message([](AttentionCase& given) { given.call.mask = {DenseRule{}}; }).find("dense"), std::string::npos);
  EXPECT_NE(message([](AttentionCase& given) { given.call.mask = {BlockRule{}}; }).find("block"), std::string::npos);
  EXPECT_NE(message([](AttentionCase& given) { given.call.mask = {DocumentRule{}}; }).find("documents"),
            std::string::npos);
  EXPECT_NE(message([&](AttentionCase& given) { given.call.rules.slopes = one; }).find("1 slopes"), std::string::npos);
  EXPECT_NE(message([&](AttentionCase& given) { given.call.rules.sinks = one; }).find("1 sinks"), std::string::npos);
  EXPECT_NE(message([](AttentionCase& given) { given.call.rules.soft_cap = -1; }).find("soft cap"), std::string::npos);
  EXPECT_NE(message([](AttentionCase& given) { given.call.dropout.probability = 1; }).find("dropout"),
            std::string::npos);
  EXPECT_NE(message([](AttentionCase& given) { given.call.key.data = nullptr; }).find("key or value has no data"),
            std::string::npos);
  EXPECT_NE(message([](AttentionCase& given) {
              given.items[1].query_begin = 0;
              given.call.items = given.items;
            }).find("two items share query rows"),
            std::string::npos);
  EXPECT_NE(message([](AttentionCase& given) {
              static const std::vector<ScoreEdit> edits = {{ScoreEdit::Kind::forbid, 9, 0, 0, 0, 0}};
              given.call.edits = edits;
            }).find("item 9"),
            std::string::npos);
  AttentionCase paged([] {
    CaseOptions options;
    options.pages = true;
    return options;
  }());
  EXPECT_THROW(run_backward(paged), Error);
}

TEST(AttentionContract, LongItemsNeedLittleMemory) {
  CaseOptions options;
  options.items = {{16384, 16384}};
  options.query_heads = options.key_heads = 1;
  options.head_dim = options.value_dim = 64;
  AttentionCase given(options);
  given.call.mask = {WindowRule{16, 16}};  // the working memory does not depend on the mask, the time does
  const std::int64_t live = memory_use().live_bytes, allowed = threads() * std::int64_t{8} << 20;
  reset_peak_memory();
  run(given);
  EXPECT_LT(memory_use().peak_bytes - live, allowed);
  reset_peak_memory();
  run_backward(given);
  EXPECT_LT(memory_use().peak_bytes - live, allowed);
}

TEST(KernelTargets, CanBeForcedAndNamed) {
  EXPECT_FALSE(kernel_targets().empty());
  EXPECT_THROW(force_kernel_target("Z80"), Error);
  for (const std::string& name : kernel_targets()) EXPECT_NO_THROW(force_kernel_target(name));
  force_kernel_target("");
}

}  // namespace
}  // namespace attend
