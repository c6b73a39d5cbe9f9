// Edits of scores and weights: against the float64 reference, and the promises they make.
#include "kernel_attention_edits.h"

namespace attend {
namespace {

using Kind = ScoreEdit::Kind;

void run(AttentionCase& given) {
  std::fill(given.output.begin(), given.output.end(), 7.0f);
  attention_forward(given.call);
}

// Matrices of every item and head.
struct Matrices {
  std::vector<std::vector<float>> scores, weights;
  std::vector<MatrixRequest> requests;

  explicit Matrices(AttentionCase& given) {
    const auto items = static_cast<std::int64_t>(given.items.size());
    for (std::int64_t item = 0; item < items; ++item)
      for (std::int64_t head = 0; head < given.call.query_heads; ++head) {
        const std::size_t size = index_of(given.items[index_of(item)].queries * given.items[index_of(item)].keys);
        scores.emplace_back(size, 7.0f);
        weights.emplace_back(size, 7.0f);
        requests.push_back({item, head, scores.back().data(), weights.back().data()});
      }
    given.call.matrices = requests;
  }
};

TEST(AttentionEdits, AgreeWithTheReferenceUnderEveryMaskAndRule) {
  on_every_target([](const std::string& target) {
    std::uint64_t seed = 1;
    int locked = 0;
    for (const std::string& masks : mask_sets())
      for (const std::string& rules : rule_sets()) {
        CaseOptions options;
        options.items = {{9, 21}, {1, 30}, {3, 7}, {20, 17}};
        options.query_heads = 4;
        options.key_heads = seed % 2 == 0 ? 1 : 2;
        options.masks = masks;
        options.rules = rules;
        options.seed = seed++;
        options.gaps = seed % 2 == 0;
        options.listed_positions = seed % 3 == 0;
        options.pages = seed % 5 == 0 && masks.find('d') == std::string::npos;
        options.dropout = seed % 4 == 1 ? 0.25f : 0.0f;
        AttentionCase given(options);
        std::vector<ScoreEdit> edits;
        locked += add_random_edits(given, edits);
        const std::string what = join(target, " masks '", masks, "' rules '", rules, "' seed ", options.seed);
        expect_forward(given, 1e-5, what);
        Matrices matrices(given);
        run(given);
        expect_forward(given, 1e-5, what + " with matrices");
        for (std::size_t i = 0; i < matrices.requests.size(); ++i) {
          const MatrixRequest& request = matrices.requests[i];
          const std::vector<double> scores = reference_scores(given.call, request.item, request.head),
                                    weights = reference_weights(given.call, request.item, request.head);
          for (std::size_t j = 0; j < scores.size(); ++j) {
            if (std::isinf(scores[j])) ASSERT_EQ(matrices.scores[i][j], scores[j]) << what;
            else ASSERT_NEAR(matrices.scores[i][j], scores[j], 1e-5 * std::max(1.0, std::abs(scores[j]))) << what;
            ASSERT_NEAR(matrices.weights[i][j], weights[j], 1e-5) << what;
          }
        }
      }
    EXPECT_GT(locked, 20) << "too few of the random lists held locks";
  });
}

TEST(AttentionEdits, SeveralBlocksOfKeysAndRows) {
  on_every_target([](const std::string& target) {
    CaseOptions options;
    options.items = {{130, 600}, {2, 900}};
    options.masks = std::string("c");
    AttentionCase given(options);
    given.items[0].query_position = 470;
    given.items[1].query_position = 898;
    given.call.items = given.items;
    const std::vector<ScoreEdit> edits = {
        {.kind = Kind::lock, .head = 0, .key = 3, .value = 0.25f},
        {.kind = Kind::lock, .head = 0, .query = 500, .key = 400, .value = 0.5f},
        {.kind = Kind::forbid, .head = 0, .query = 480, .key = 5, .query_end = ScoreEdit::open_end},
        {.kind = Kind::forbid, .item = 0, .head = 1, .min_distance = 300},
        {.kind = Kind::scale, .item = 1, .head = 1, .key = 100, .value = 2, .key_end = 700},
        {.kind = Kind::lock, .item = 1, .head = 1, .key = 880, .value = 0.125f, .key_end = 884},
    };
    given.call.edits = edits;
    Matrices matrices(given);
    run(given);
    expect_forward(given, 1e-5, target);
    // Long rows of weights sum to 1 as well, with locks and without.
    for (std::size_t i = 0; i < matrices.requests.size(); ++i) {
      const std::int64_t keys = given.items[index_of(matrices.requests[i].item)].keys;
      for (std::size_t row = 0; row < matrices.weights[i].size() / index_of(keys); ++row) {
        double sum = 0;
        for (std::int64_t j = 0; j < keys; ++j) sum += matrices.weights[i][row * index_of(keys) + index_of(j)];
        ASSERT_NEAR(sum, 1, 1e-6) << target << " row " << row;
      }
    }
  });
}

TEST(AttentionEdits, LeaveOtherHeadsItemsAndQueriesAsTheyWere) {
  on_every_target([](const std::string& target) {
    CaseOptions options;
    options.items = {{20, 33}, {60, 70}, {1, 40}, {3, 9}};
    options.query_heads = 4;
    options.key_heads = 2;
    options.masks = std::string("c");
    AttentionCase given(options);
    run(given);
    const std::vector<float> before = given.output;
    const std::int64_t position = given.items[1].query_position + 30;
    const std::vector<ScoreEdit> edits = {
        {.kind = Kind::forbid, .item = 1, .head = 2, .query = position, .key = 4},
        {.kind = Kind::lock, .item = 1, .head = 2, .query = position, .key = 5, .value = 0.5f},
        {.kind = Kind::scale, .item = 2, .head = 2, .query = 1000, .key = 5, .value = 3}};
    given.call.edits = edits;
    run(given);
    int changed = 0;
    for (std::int64_t row = 0; row < given.query_rows; ++row)
      for (std::int64_t head = 0; head < 4; ++head)
        for (std::int64_t x = 0; x < options.value_dim; ++x) {
          const std::size_t at = index_of(row * given.output_stride + head * options.value_dim + x);
          const bool named = row == given.items[1].query_begin + 30 && head == 2;
          if (named) changed += before[at] != given.output[at];
          else ASSERT_EQ(before[at], given.output[at]) << target << " row " << row << " head " << head;
        }
    EXPECT_GT(changed, 0) << target;
  });
}

TEST(AttentionEdits, MeanTheSameInOnePassAndStepByStep) {
  on_every_target([](const std::string& target) {
    CaseOptions options;
    options.items = {{40, 40}};
    options.masks = std::string("c");
    options.rules = std::string("s");
    AttentionCase given(options);
    given.items[0].query_position = 0;
    given.call.items = given.items;
    const std::vector<ScoreEdit> edits = {
        {.kind = Kind::forbid, .query = 12, .key = 3, .query_end = ScoreEdit::open_end},
        {.kind = Kind::forbid, .head = 1, .min_distance = 7},
        {.kind = Kind::lock, .head = 0, .query = 5, .key = 4, .value = 0.5f, .query_end = 30},
        {.kind = Kind::set, .head = 1, .query = 20, .key = 19, .value = 2},
        {.kind = Kind::scale, .query = 15, .key = 10, .value = 0.5f, .query_end = 18, .key_end = 16},
    };
    given.call.edits = edits;
    run(given);
    const std::vector<float> whole = given.output;
    for (std::int64_t query = 0; query < 40; ++query) {
      AttentionItem step = given.items[0];
      step.query_begin = query;
      step.queries = 1;
      step.query_position = query;
      step.keys = query + 1;
      given.call.items = {&step, 1};
      run(given);
      for (std::int64_t x = 0; x < given.output_stride; ++x)
        ASSERT_NEAR(given.output[index_of(query * given.output_stride + x)],
                    whole[index_of(query * given.output_stride + x)], 1e-5)
            << target << " query " << query;
    }
  });
}

TEST(AttentionEdits, LockedRowsSumToOneAndShareInProportion) {
  on_every_target([](const std::string& target) {
    CaseOptions options;
    options.items = {{6, 6}};
    options.query_heads = options.key_heads = 1;
    AttentionCase given(options);
    given.items[0].query_position = 0;
    given.call.items = given.items;
    Matrices plain(given);
    run(given);
    const std::vector<float> before = plain.weights[0];
    // Rows 0 to 5: one lock, two, a lock to 0, locks that leave nothing, all keys locked, none.
    const std::vector<ScoreEdit> edits = {{.kind = Kind::lock, .query = 0, .key = 2, .value = 0.75f},
                                          {.kind = Kind::lock, .query = 1, .key = 0, .value = 0.5f},
                                          {.kind = Kind::lock, .query = 1, .key = 5, .value = 0.1f},
                                          {.kind = Kind::lock, .query = 2, .key = 1, .value = 0},
                                          {.kind = Kind::lock, .query = 3, .key = 3, .value = 0.7f},
                                          {.kind = Kind::lock, .query = 3, .key = 4, .value = 0.3f},
                                          {.kind = Kind::lock, .query = 4, .key = 0, .value = 0.125f, .key_end = 4},
                                          {.kind = Kind::lock, .query = 4, .key = 4, .value = 0.25f, .key_end = 6}};
    given.call.edits = edits;
    Matrices locked(given);
    run(given);
    const std::vector<float>& after = locked.weights[0];
    const std::vector<std::vector<std::pair<std::int64_t, float>>> locks = {
        {{2, 0.75f}},
        {{0, 0.5f}, {5, 0.1f}},
        {{1, 0.0f}},
        {{3, 0.7f}, {4, 0.3f}},
        {{0, 0.125f}, {1, 0.125f}, {2, 0.125f}, {3, 0.125f}, {4, 0.25f}, {5, 0.25f}},
        {}};
    for (std::int64_t i = 0; i < 6; ++i) {
      double sum = 0, taken = 0, held = 0;
      for (std::int64_t j = 0; j < 6; ++j) sum += after[index_of(i * 6 + j)];
      EXPECT_NEAR(sum, 1, 1e-6) << target << " row " << i;
      for (const auto& [key, weight] : locks[index_of(i)]) {
        EXPECT_EQ(after[index_of(i * 6 + key)], weight) << target;
        taken += static_cast<double>(weight);
        held += before[index_of(i * 6 + key)];
      }
      for (std::int64_t j = 0; j < 6; ++j) {
        if (std::any_of(locks[index_of(i)].begin(), locks[index_of(i)].end(),
                        [&](const auto& lock) { return lock.first == j; }))
          continue;
        EXPECT_NEAR(after[index_of(i * 6 + j)], before[index_of(i * 6 + j)] * (1 - taken) / (1 - held), 1e-6) << target;
        // What is written as scores rebuilds the weights.
        EXPECT_NEAR(std::exp(locked.scores[0][index_of(i * 6 + j)] - given.log_sum_exp[index_of(i)]),
                    after[index_of(i * 6 + j)], 1e-6);
      }
    }
    for (std::int64_t j = 0; j < 6; ++j)
      EXPECT_EQ(after[index_of(30 + j)], before[index_of(30 + j)]) << "a row without locks changed";
  });
}

TEST(AttentionEdits, ALockedKeyIsReadEvenIfNotANumberAndAKeyLockedToZeroIsNot) {
  CaseOptions options;
  options.items = {{2, 3}};
  options.query_heads = options.key_heads = 1;
  AttentionCase given(options);
  for (std::int64_t x = 0; x < options.value_dim; ++x)
    given.value[index_of(given.value_stride + x)] = std::numeric_limits<float>::quiet_NaN();
  for (const float weight : {0.0f, 0.5f}) {
    const std::vector<ScoreEdit> edits = {{.kind = Kind::lock, .key = 1, .value = weight}};
    given.call.edits = edits;
    run(given);
    for (std::int64_t row = 0; row < 2; ++row)
      for (std::int64_t x = 0; x < options.value_dim; ++x)
        EXPECT_EQ(std::isnan(given.output[index_of(row * given.output_stride + x)]), weight != 0);
  }
}

TEST(AttentionEdits, HaveTheSameBitsForAnyNumberOfThreads) {
  const int before = threads();
  CaseOptions options;
  options.items = {{70, 300}, {2, 600}, {90, 90}};
  options.query_heads = 4;
  options.key_heads = 2;
  options.masks = std::string("c");
  AttentionCase given(options);
  std::vector<ScoreEdit> edits;
  add_random_edits(given, edits, 12);
  std::vector<float> first;
  CaseGradients first_gradients;
  for (const int count : {1, 2, 3}) {
    set_threads(count);
    run(given);
    const CaseGradients gradients = run_backward(given);
    if (count == 1) {
      first = given.output;
      first_gradients = gradients;
      continue;
    }
    EXPECT_EQ(std::memcmp(first.data(), given.output.data(), first.size() * sizeof(float)), 0);
    EXPECT_EQ(first_gradients.query, gradients.query);
    EXPECT_EQ(first_gradients.key, gradients.key);
    EXPECT_EQ(first_gradients.value, gradients.value);
  }
  set_threads(before);
}

TEST(AttentionEdits, AreCountedByTheScoresTheMaskLetsThemName) {
  std::uint64_t seed = 1;
  for (const std::string& masks : mask_sets()) {
    CaseOptions options;
    options.items = {{9, 21}, {1, 30}, {20, 17}};
    options.query_heads = 4;
    options.masks = masks;
    options.seed = seed++;
    options.listed_positions = seed % 3 == 0;
    AttentionCase given(options);
    std::vector<ScoreEdit> edits = random_edits(given, 12, false);
    std::vector<std::int64_t> counts(edits.size(), -1);
    // A score set to a large number stands out in the reference, one edit at a time.
    for (ScoreEdit& edit : edits) edit.kind = Kind::set, edit.value = 1000;
    given.call.edits = edits;
    given.call.edit_counts = counts.data();
    run(given);
    for (std::size_t e = 0; e < edits.size(); ++e) {
      given.call.edits = {&edits[e], 1};
      std::int64_t expected = 0;
      for (std::int64_t item = 0; item < 3; ++item)
        for (std::int64_t head = 0; head < 4; ++head)
          for (const double score : reference_scores(given.call, item, head)) expected += score == 1000;
      EXPECT_EQ(counts[e], expected) << "masks '" << masks << "' edit " << e;
    }
  }
}

TEST(AttentionEdits, LocksThatCannotBeKeptAreRefused) {
  CaseOptions options;
  options.items = {{4, 4}};
  options.masks = std::string("c");
  const auto message = [&](const std::vector<ScoreEdit>& edits) -> std::string {
    AttentionCase given(options);
    given.items[0].query_position = 0;
    given.call.items = given.items;
    given.call.edits = edits;
    try {
      attention_forward(given.call);
    } catch (const Error& error) {
      EXPECT_EQ(given.output, std::vector<float>(given.output.size(), 7.0f));
      return error.what();
    }
    return "no error";
  };
  const auto has = [](const std::string& text, const std::string& part) {
    return text.find(part) != std::string::npos;
  };
  const std::string more = message({{.kind = Kind::lock, .head = 1, .query = 3, .key = 1, .value = 0.75f},
                                    {.kind = Kind::lock, .head = 1, .query = 3, .key = 2, .value = 0.5f}});
  EXPECT_TRUE(has(more, "item 0 head 1 query position 3: the locked weights of keys 1, 2 sum to 1.25, more than 1"))
      << more;
  const std::string alone = message({{.kind = Kind::lock, .head = 0, .key = 0, .value = 0.5f}});
  EXPECT_TRUE(has(alone, "query position 0: the locked weights sum to 0.5 and there is no other key")) << alone;
  EXPECT_EQ(message({{.kind = Kind::lock, .head = 0, .query = 1, .key = 0, .value = 0.5f, .query_end = 4}}),
            "no error");
  EXPECT_EQ(message({{.kind = Kind::lock, .head = 0, .query = 0, .key = 0, .value = 1}}), "no error");
  const std::string forbidden = message(
      {{.kind = Kind::lock, .query = 1, .key = 0, .value = 0.5f}, {.kind = Kind::forbid, .query = 1, .key = 1}});
  EXPECT_TRUE(has(forbidden, "no other key")) << forbidden;
  EXPECT_TRUE(has(message({{.kind = Kind::lock, .key = 0, .value = 1.5f}}), "locks a weight to 1.5"));
  EXPECT_TRUE(has(message({{.kind = Kind::lock, .key = 0, .value = -0.5f}}), "locks a weight to -0.5"));
  EXPECT_TRUE(has(message({{.kind = Kind::set, .query = 3, .key = 0, .value = 1, .query_end = 3}}),
                  "an end lies before its begin"));
  EXPECT_TRUE(has(message({{.kind = Kind::scale, .value = std::numeric_limits<float>::quiet_NaN()}}), "NaN"));
}

}  // namespace
}  // namespace attend
