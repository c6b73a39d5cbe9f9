// Statistics and rebuilt tiles against the float64 reference: every mask, rule, target, number of keys and list of spans;
// equal, hidden, rising and falling scores; the same bits whatever the threads and the batch.
#include "attend/error.h"
#include "core/memory.h"
#include "kernel_attention_edits.h"

namespace attend {
namespace {

constexpr float minus_infinity = -std::numeric_limits<float>::infinity();

// Owns the outputs of a request for everything.
struct Statistics {
  std::vector<std::int32_t> heads;
  std::vector<KeySpan> spans;
  std::vector<float> entropy, distance, first, self, previous, sink, list_mass, top_weights;
  std::vector<std::int32_t> top_keys;
  std::int64_t chosen = 0;
  AttentionStatistics request;

  Statistics(const AttentionCase& given, std::int64_t top, std::int64_t lists, std::vector<KeySpan> all_spans,
             std::vector<std::int32_t> all_heads = {})
      : heads(std::move(all_heads)), spans(std::move(all_spans)) {
    chosen = heads.empty() ? given.call.query_heads : static_cast<std::int64_t>(heads.size());
    request.heads = heads;
    request.spans = spans;
    request.lists = lists;
    request.top = top;
    const std::int64_t size = given.query_rows * chosen;
    const auto make = [](std::vector<float>& values, std::int64_t count) {
      values.assign(index_of(count), 7.0f);
      return values.data();
    };
    request.entropy = make(entropy, size);
    request.distance = make(distance, size);
    request.first = make(first, size);
    request.self = make(self, size);
    request.previous = make(previous, size);
    request.sink = make(sink, size);
    if (lists > 0) request.list_mass = make(list_mass, size * lists);
    if (top > 0) {
      request.top_weights = make(top_weights, size * top);
      top_keys.assign(index_of(size * top), 7);
      request.top_keys = top_keys.data();
    }
  }
  Statistics(const Statistics&) = delete;
  std::int64_t head(std::int64_t h) const { return heads.empty() ? h : heads[index_of(h)]; }

  std::vector<const std::vector<float>*> values() const {
    return {&entropy, &distance, &first, &self, &previous, &sink, &list_mass, &top_weights};
  }
  bool same_bits(const Statistics& other) const {
    const auto mine = values(), others = other.values();
    for (std::size_t i = 0; i < mine.size(); ++i)
      if (mine[i]->size() != others[i]->size() ||
          (!mine[i]->empty() && std::memcmp(mine[i]->data(), others[i]->data(), mine[i]->size() * sizeof(float)) != 0))
        return false;
    return top_keys == other.top_keys;
  }
};

void expect_near(float found, double expected, double bound, const std::string& what) {
  ASSERT_NEAR(found, expected, bound * std::max(1.0, std::abs(expected))) << what;
}

// What a case should give, for any target: computed once, because the reference is slow.
struct Expected {
  ReferenceStatistics statistics;
  std::vector<std::vector<double>> weights;  // [items * chosen heads]

  Expected(const AttentionCase& given, const Statistics& asked)
      : statistics([&] {
          AttentionCall call = given.call;
          call.statistics = &asked.request;
          return reference_statistics(call);
        }()) {
    for (std::int64_t index = 0; index < static_cast<std::int64_t>(given.items.size()); ++index)
      for (std::int64_t h = 0; h < asked.chosen; ++h)
        weights.push_back(reference_weights(given.call, index, asked.head(h)));
  }
};

// A score of size s is a float with an error of some s * 2^-24, and so is what follows from it.
double rounding(const AttentionCase& given, std::int64_t row, std::int64_t head) {
  const float log_sum = given.log_sum_exp[index_of(row * given.call.query_heads + head)];
  return std::isinf(log_sum) ? 0 : 1e-7 * std::abs(log_sum);
}

// All numbers of all rows. The keys must be the largest, which float may order differently where scores are as near as
// its precision: each weight must be that of its key, and the n-th weight that of the n-th largest.
void expect_statistics(const AttentionCase& given, const Statistics& found, const Expected& expected, double precision,
                       const std::string& what) {
  const ReferenceStatistics& right = expected.statistics;
  const std::int64_t top = found.request.top, lists = found.request.lists;
  for (std::size_t index = 0; index < given.items.size(); ++index)
    for (std::int64_t h = 0; h < found.chosen; ++h) {
      const AttentionItem& item = given.items[index];
      const std::vector<double>& weights = expected.weights[index * index_of(found.chosen) + index_of(h)];
      for (std::int64_t i = 0; i < item.queries; ++i) {
        const std::size_t at = index_of((item.query_begin + i) * found.chosen + h);
        const std::string row = join(what, ": item ", index, " head ", found.head(h), " query ", i);
        const double bound = precision + rounding(given, item.query_begin + i, found.head(h));
        ASSERT_NO_FATAL_FAILURE(expect_near(found.entropy[at], right.entropy[at], bound, row + " entropy"));
        ASSERT_NO_FATAL_FAILURE(expect_near(found.distance[at], right.distance[at], bound, row + " distance"));
        ASSERT_NO_FATAL_FAILURE(expect_near(found.first[at], right.first[at], bound, row + " first"));
        ASSERT_NO_FATAL_FAILURE(expect_near(found.self[at], right.self[at], bound, row + " self"));
        ASSERT_NO_FATAL_FAILURE(expect_near(found.previous[at], right.previous[at], bound, row + " previous"));
        ASSERT_NO_FATAL_FAILURE(expect_near(found.sink[at], right.sink[at], bound, row + " sink"));
        for (std::int64_t list = 0; list < lists; ++list) {
          const std::size_t to = at * index_of(lists) + index_of(list);
          ASSERT_NO_FATAL_FAILURE(
              expect_near(found.list_mass[to], right.list_mass[to], bound, join(row, " list ", list)));
        }
        std::vector<std::int32_t> keys;
        for (std::int64_t t = 0; t < top; ++t) {
          const std::size_t to = at * index_of(top) + index_of(t);
          const std::int32_t key = found.top_keys[to];
          ASSERT_EQ(key == -1, right.top_keys[to] == -1) << row << " key " << t;
          ASSERT_NO_FATAL_FAILURE(
              expect_near(found.top_weights[to], right.top_weights[to], bound, join(row, " weight ", t)));
          if (key == -1) continue;
          ASSERT_TRUE(key >= 0 && key < item.keys) << row;
          ASSERT_NO_FATAL_FAILURE(expect_near(found.top_weights[to], weights[index_of(i * item.keys + key)], bound,
                                              join(row, " weight of key ", key)));
          keys.push_back(key);
        }
        std::sort(keys.begin(), keys.end());
        ASSERT_TRUE(std::adjacent_find(keys.begin(), keys.end()) == keys.end()) << row << " names a key twice";
      }
    }
}

void run(AttentionCase& given, const Statistics* statistics) {
  given.call.statistics = statistics != nullptr ? &statistics->request : nullptr;
  attention_forward(given.call);
}

// Two lists that overlap, one of every item's last key, one empty, one that covers all, one of single keys.
std::vector<KeySpan> some_spans() {
  std::vector<KeySpan> spans = {
      {0, -1, 2, 9},   {0, 1, 5, 40}, {0, 1, 250, 270}, {1, -1, 8, 1000}, {3, -1, 0, 1'000'000'000},
      {0, 0, 29, 100}, {5, -1, 0, 0}, {5, 0, 31, 33}};
  for (std::int64_t key = 0; key < 600; key += 7) spans.push_back({4, 1, key, key + 1});
  return spans;
}
constexpr std::int64_t some_lists = 6;

CaseOptions typical(const std::string& masks = {}, const std::string& rules = {}) {
  CaseOptions options;
  options.items = {{20, 33}, {60, 300}, {1, 40}, {3, 3}, {2, 600}, {0, 5}, {4, 0}, {1, 700}};
  options.query_heads = 4;
  options.key_heads = 2;
  options.head_dim = 24;
  options.value_dim = 16;
  options.masks = masks;
  options.rules = rules;
  return options;
}

// Runs a case on every target.
void expect_statistics_on_every_target(AttentionCase& given, const Statistics& found, double precision,
                                       const std::string& what) {
  const Expected expected(given, found);
  on_every_target([&](const std::string& target) {
    run(given, &found);
    ASSERT_NO_FATAL_FAILURE(expect_statistics(given, found, expected, precision, join(target, ", ", what)));
  });
}

TEST(AttentionStatistics, EqualTheReference) {
  std::uint64_t seed = 1;
  const std::int64_t tops[] = {1, 2, 7, 8, 16, 31, 32};
  for (const std::string& masks : mask_sets())
    for (const std::string& rules : rule_sets()) {
      CaseOptions options = typical(masks, rules);
      options.listed_positions = seed % 2 == 0;
      options.pages = seed % 3 == 0;
      options.gaps = seed % 4 == 1 && !options.pages;
      if (seed % 5 == 0) options.dropout = 0.2f;
      if (seed % 7 < 2) options.key_heads = seed % 7 == 0 ? 4 : 1;
      options.seed = seed++;
      AttentionCase given(options);
      const Statistics found(given, tops[seed % 7], some_lists, some_spans(),
                             seed % 3 == 1 ? std::vector<std::int32_t>{1, 2} : std::vector<std::int32_t>{});
      ASSERT_NO_FATAL_FAILURE(expect_statistics_on_every_target(
          given, found, 1e-5,
          join("masks '", masks, "', rules '", rules, "', top ", found.request.top, ", seed ", options.seed)));
    }
}

// Queries large enough that one key takes almost all of some rows, and rows of many blocks.
TEST(AttentionStatistics, SharpAndLongRows) {
  for (const float factor : {0.0f, 1.0f, 8.0f, 40.0f}) {
    CaseOptions options;
    options.items = {{7, 3000}, {1, 2100}};
    options.query_heads = options.key_heads = 2;
    options.head_dim = 16;
    AttentionCase given(options);
    for (float& x : given.query) x *= factor;
    const Statistics found(given, 32, some_lists, some_spans());
    ASSERT_NO_FATAL_FAILURE(expect_statistics_on_every_target(given, found, 1e-5, join("factor ", factor)));
  }
}

// Scores given outright, by a bias on queries of zero: all orders of them, exactly.
TEST(AttentionStatistics, LargestKeysOfAnyOrder) {
  on_every_target([](const std::string& target) {
    constexpr std::int64_t keys = 1500;
    std::vector<std::pair<std::string, std::vector<float>>> rows;
    const auto add = [&](const std::string& name, const auto& score) {
      std::vector<float>& row = rows.emplace_back(name, std::vector<float>{}).second;
      for (std::int64_t j = 0; j < keys; ++j) row.push_back(static_cast<float>(score(j)));
    };
    Random random(3);
    add("rising", [](std::int64_t j) { return 0.01 * static_cast<double>(j); });
    add("falling", [](std::int64_t j) { return -0.01 * static_cast<double>(j); });
    add("equal", [](std::int64_t) { return 0.5; });
    add("equal and low", [](std::int64_t) { return -1e5; });
    add("two values", [&](std::int64_t) { return random.below(2) == 0 ? 1.0 : 2.0; });
    add("few values", [&](std::int64_t) { return 0.25 * static_cast<double>(random.below(9)) - 1; });
    add("rising in blocks", [](std::int64_t j) { return 0.5 * static_cast<double>(j / 100); });
    add("saw", [](std::int64_t j) { return 0.02 * static_cast<double>(j % 300) + 0.001 * static_cast<double>(j); });
    add("hidden", [](std::int64_t) { return minus_infinity; });
    add("few visible",
        [](std::int64_t j) { return j % 211 == 5 ? static_cast<double>(j % 3) : static_cast<double>(minus_infinity); });
    add("one at the end", [](std::int64_t j) { return j == keys - 1 ? 9.0 : static_cast<double>(minus_infinity); });
    add("powers", [](std::int64_t j) { return -std::exp2(static_cast<double>(j % 97) - 40); });
    add("powers rising", [](std::int64_t j) { return std::exp2(0.08 * static_cast<double>(j) - 114); });
    add("both signs of zero", [](std::int64_t j) { return j % 2 == 0 ? 0.0 : -0.0; });
    add("normal", [&](std::int64_t) { return random.normal(); });
    add("heavy tail", [&](std::int64_t) { return 1 / (0.01 + random.uniform()); });
    add("outliers", [&](std::int64_t j) { return random.normal() + (j % 500 == 499 ? 60 : 0); });
    for (const std::int64_t top : {1, 2, 3, 8, 16, 31, 32})
      for (const std::int64_t count : {1, 20, 32, 33, 255, 257, 512, 1500})
        for (const std::int64_t group : {1, 8}) {  // decoded and tiled
          const auto queries = static_cast<std::int64_t>(rows.size());
          CaseOptions options;
          options.items.clear();
          for (std::int64_t i = 0; i < queries; ++i) options.items.push_back({1, count});
          options.query_heads = group;
          options.key_heads = 1;
          AttentionCase given(options);
          std::fill(given.query.begin(), given.query.end(), 0.0f);
          std::vector<float> bias;
          for (std::size_t i = 0; i < rows.size(); ++i)
            bias.insert(bias.end(), rows[i].second.begin(), rows[i].second.begin() + count);
          given.call.rules.bias = {bias.data(), count, 0, 0, 1};
          Statistics found(given, top, 0, {});
          run(given, &found);
          for (std::size_t i = 0; i < rows.size(); ++i) {
            std::vector<std::int32_t> order;
            const std::vector<float>& scores = rows[i].second;
            for (std::int32_t j = 0; j < count; ++j)
              if (scores[index_of(j)] != minus_infinity) order.push_back(j);
            std::stable_sort(order.begin(), order.end(),
                             [&](std::int32_t a, std::int32_t b) { return scores[index_of(a)] > scores[index_of(b)]; });
            order.resize(index_of(top), -1);
            for (std::int64_t head = 0; head < group; ++head) {
              const auto begin = found.top_keys.begin() + (static_cast<std::int64_t>(i) * group + head) * top;
              ASSERT_EQ(std::vector<std::int32_t>(begin, begin + top), order)
                  << target << " " << rows[i].first << ", top " << top << " of " << count << ", group " << group;
            }
          }
          if (count == 257) {
            ASSERT_NO_FATAL_FAILURE(expect_statistics(given, found, Expected(given, found), 1e-5, target));
          }
        }
  });
}

TEST(AttentionStatistics, RowsThatSeeNothing) {
  on_every_target([](const std::string& target) {
    CaseOptions options = typical("", "k");
    AttentionCase given(options);
    const std::vector<std::int64_t> lengths(8, 0);
    given.call.mask = {KeyLengthsRule{lengths}};
    Statistics found(given, 3, some_lists, some_spans());
    run(given, &found);
    for (const std::vector<float>* values : found.values())
      for (const float value : *values) ASSERT_EQ(value, 0.0f) << target;
    for (const std::int32_t key : found.top_keys) ASSERT_EQ(key, -1) << target;
  });
}

TEST(AttentionStatistics, OfEditedWeights) {
  int with_locks = 0;
  for (std::uint64_t seed = 1; seed <= 24; ++seed) {
    CaseOptions options = typical(seed % 2 == 0 ? "c" : "", seed % 3 == 0 ? "k" : "");
    options.items = {{20, 33}, {40, 300}, {1, 40}, {2, 600}};
    options.listed_positions = seed % 5 == 0;
    options.seed = seed;
    AttentionCase given(options);
    std::vector<ScoreEdit> edits;
    with_locks += add_random_edits(given, edits) ? 1 : 0;
    std::vector<float> weights(40 * 300);
    const std::vector<MatrixRequest> requests = {{1, 3, nullptr, weights.data()}};
    given.call.matrices = requests;
    const Statistics found(given, seed % 2 == 0 ? 8 : 32, some_lists, some_spans());
    ASSERT_NO_FATAL_FAILURE(expect_statistics_on_every_target(given, found, 1e-5, join("edits of seed ", seed)));
  }
  EXPECT_GT(with_locks, 5);
}

// All weights of a row locked, equal ones among them; and locks beside which only the sink is left.
TEST(AttentionStatistics, OfLockedRows) {
  using Kind = ScoreEdit::Kind;
  for (const std::string rules : {"", "k"}) {
    CaseOptions options;
    options.items = {{20, 60}};
    options.rules = rules;
    AttentionCase given(options);
    std::vector<ScoreEdit> edits;
    for (std::int64_t key = 0; key < 50; ++key)
      edits.push_back({Kind::lock, -1, 0, -1, key, key % 3 == 0 ? 1.0f / 17 : 0.0f});
    for (std::int64_t key = 3; key < 43; ++key) edits.push_back({Kind::lock, -1, 1, -1, key, 1.0f / 64});
    if (rules == std::string("k"))
      edits.push_back({Kind::forbid, -1, 1, given.items[0].query_position + 3, -1, 0, 0, 0, -40});
    given.call.edits = edits;
    const Statistics found(given, 32, some_lists, {{0, 0, 2, 9}, {5, 0, 40, 60}});
    ASSERT_NO_FATAL_FAILURE(expect_statistics_on_every_target(given, found, 1e-5, "rules " + rules));
  }
}

TEST(AttentionStatistics, ChangeNoBitOfTheOutput) {
  on_every_target([](const std::string& target) {
    for (const std::string masks : {"", "c", "m", "wl"})
      for (const std::string rules : {"", "csrbk"}) {
        CaseOptions options = typical(masks, rules);
        options.dropout = 0.1f;
        AttentionCase plain(options), observed(options);
        const Statistics found(observed, 32, some_lists, some_spans(), {0, 3});
        run(plain, nullptr);
        run(observed, &found);
        EXPECT_EQ(std::memcmp(plain.output.data(), observed.output.data(), plain.output.size() * sizeof(float)), 0)
            << target << masks << rules;
        EXPECT_EQ(plain.log_sum_exp, observed.log_sum_exp) << target << masks << rules;
      }
  });
}

TEST(AttentionStatistics, OnlyWhatIsAskedForIsWritten) {
  AttentionCase given(typical("c"));
  const Statistics all(given, 5, some_lists, some_spans());
  run(given, &all);
  for (int kept = 0; kept < 9; ++kept) {
    Statistics some(given, 5, some_lists, some_spans());
    AttentionStatistics& request = some.request;
    float** const values[] = {&request.entropy,  &request.distance, &request.first,     &request.self,
                              &request.previous, &request.sink,     &request.list_mass, &request.top_weights};
    for (int i = 0; i < 8; ++i)
      if (i != kept) *values[i] = nullptr;
    if (kept != 8) request.top_keys = nullptr;
    run(given, &some);
    for (int i = 0; i < 8; ++i) {
      const std::vector<float>& complete = *all.values()[index_of(i)];
      EXPECT_EQ(*some.values()[index_of(i)], i == kept ? complete : std::vector<float>(complete.size(), 7.0f)) << i;
    }
    EXPECT_EQ(some.top_keys, kept == 8 ? all.top_keys : std::vector<std::int32_t>(all.top_keys.size(), 7));
  }
}

TEST(AttentionStatistics, SameBitsForAnyThreadsAndAloneOrInABatch) {
  const int before = threads();
  for (const std::string masks : {"", "c", "m"}) {
    CaseOptions options = typical(masks, "k");
    options.items = {{20, 33}, {700, 900}, {1, 40}, {3, 3}, {2, 600}, {1, 2100}};
    AttentionCase given(options);
    // The spans of one item only, so that they can be numbered for the item alone.
    set_threads(1);
    const Statistics one(given, 16, 2, {{0, -1, 0, 30}, {1, -1, 3, 5}});
    run(given, &one);
    for (int count = 2; count <= 4; ++count) {
      set_threads(count);
      const Statistics more(given, 16, 2, {{0, -1, 0, 30}, {1, -1, 3, 5}});
      run(given, &more);
      EXPECT_TRUE(one.same_bits(more)) << masks << " threads " << count;
    }
    if (masks == std::string("m")) continue;  // a dense mask belongs to its item's number
    const Statistics alone(given, 16, 2, {{0, -1, 0, 30}, {1, -1, 3, 5}});
    for (const AttentionItem& item : given.items) {
      const std::vector<AttentionItem> single = {item};
      given.call.items = single;
      run(given, &alone);
    }
    EXPECT_TRUE(one.same_bits(alone)) << masks;
  }
  set_threads(before);
}

TEST(AttentionStatistics, NeedLittleMemory) {
  CaseOptions options;
  options.items = {{4096, 4096}};
  options.query_heads = options.key_heads = 2;
  options.head_dim = options.value_dim = 64;
  AttentionCase given(options);
  given.call.mask = {WindowRule{16, 16}};  // the working memory does not depend on the mask, the time does
  const auto scratch_of = [&](const Statistics* statistics) {
    const std::int64_t live = memory_use().live_bytes;
    reset_peak_memory();
    run(given, statistics);
    return memory_use().peak_bytes - live;
  };
  const Statistics found(given, 32, 1, {{0, -1, 5, 90}});
  const std::int64_t plain = scratch_of(nullptr), observed = scratch_of(&found);
  // 5 % of query, key and value of 12 such heads.
  EXPECT_LT(observed - plain, threads() * std::int64_t{12 * 3 * 4096 * 64 * 4 / 20 / 2});
}

TEST(AttentionStatistics, WrongRequestsAreRefusedWithTheReason) {
  const auto message = [](const auto& spoil) -> std::string {
    AttentionCase given(typical());
    Statistics wanted(given, 4, 2, {{0, -1, 0, 3}});
    spoil(wanted);
    wanted.request.heads = wanted.heads;
    wanted.request.spans = wanted.spans;
    try {
      run(given, &wanted);
    } catch (const Error& error) {
      EXPECT_EQ(given.output, std::vector<float>(given.output.size(), 7.0f));
      return error.what();
    }
    return "no error";
  };
  EXPECT_NE(message([](Statistics& wanted) { wanted.heads = {1, 4}; }).find("heads from 0 to 3"), std::string::npos);
  EXPECT_NE(message([](Statistics& wanted) { wanted.heads = {2, 1}; }).find("rising"), std::string::npos);
  EXPECT_NE(message([](Statistics& wanted) { wanted.request.top = 33; }).find("0 to 32"), std::string::npos);
  EXPECT_NE(message([](Statistics& wanted) { wanted.request.top = 0; }).find("top is 0"), std::string::npos);
  EXPECT_NE(message([](Statistics& wanted) { wanted.spans = {{2, -1, 0, 3}}; }).find("2 lists"), std::string::npos);
  EXPECT_NE(message([](Statistics& wanted) { wanted.spans = {{0, 8, 0, 3}}; }).find("8 items"), std::string::npos);
  EXPECT_NE(message([](Statistics& wanted) { wanted.spans = {{0, 0, 3, 2}}; }).find("keys 3 to 2"), std::string::npos);
}

// ---- Rebuilt tiles ---------------------------------------------------------------------------------------------------

TEST(AttentionWeights, RebuiltTilesEqualTheMatrix) {
  std::uint64_t seed = 1;
  for (const std::string& masks : mask_sets())
    for (const std::string& rules : rule_sets()) {
      CaseOptions options = typical(masks, rules);
      options.items = {{20, 33}, {60, 300}, {1, 40}, {2, 600}, {0, 5}, {4, 0}};
      options.pages = seed % 3 == 0;
      options.gaps = seed % 4 == 1 && !options.pages;
      options.listed_positions = seed % 5 == 0;
      options.seed = seed++;
      AttentionCase given(options);
      std::vector<ScoreEdit> edits;
      if (seed % 2 == 0) add_random_edits(given, edits);
      const HeadsView value = given.call.value;
      const MutableHeadsView output = given.call.output;
      Random& random = given.random();
      for (std::int64_t index = 0; index < static_cast<std::int64_t>(given.items.size()); ++index) {
        const AttentionItem& item = given.items[index_of(index)];
        const auto head = static_cast<std::int64_t>(random.below(4));
        const std::vector<double> expected_scores = reference_scores(given.call, index, head),
                                  expected = reference_weights(given.call, index, head);
        on_every_target([&](const std::string& target) {
          given.call.value = value;
          given.call.output = output;
          run(given, nullptr);
          given.call.value = {};
          given.call.output = {};
          for (int repeat = 0; repeat < 4; ++repeat) {
            WeightsTile tile;
            tile.item = index;
            tile.head = head;
            const auto pick = [&](std::int64_t size, std::int64_t& begin, std::int64_t& end) {
              begin = repeat == 0 ? 0 : static_cast<std::int64_t>(random.below(static_cast<std::uint64_t>(size + 1)));
              end = repeat == 0
                        ? size
                        : begin + static_cast<std::int64_t>(random.below(static_cast<std::uint64_t>(size - begin + 1)));
            };
            pick(item.queries, tile.query_begin, tile.query_end);
            pick(item.keys, tile.key_begin, tile.key_end);
            const std::int64_t keys = tile.key_end - tile.key_begin, stride = keys + (repeat % 2) * 3;
            std::vector<float> scores(index_of((tile.query_end - tile.query_begin) * stride), 7.0f), weights = scores;
            tile.scores = scores.data();
            tile.weights = weights.data();
            if (repeat % 2 == 1) tile.row_stride = stride;
            attention_weights(given.call, {&tile, 1});
            for (std::int64_t i = tile.query_begin; i < tile.query_end; ++i)
              for (std::int64_t j = tile.key_begin; j < tile.key_end; ++j) {
                const std::size_t to = index_of((i - tile.query_begin) * stride + j - tile.key_begin),
                                  at = index_of(i * item.keys + j);
                ASSERT_NEAR(weights[to], expected[at], 1e-5 + rounding(given, item.query_begin + i, head))
                    << target << " masks " << masks << " rules " << rules;
                const float score =
                    expected_scores[at] < -1e30 ? minus_infinity : static_cast<float>(expected_scores[at]);
                if (std::isinf(score)) {
                  ASSERT_EQ(scores[to], score) << target << masks << rules;
                } else {
                  ASSERT_NEAR(scores[to], score, 1e-5 * std::max(1.0f, std::abs(score))) << target << masks << rules;
                }
              }
            for (std::int64_t i = 0; i < tile.query_end - tile.query_begin; ++i)
              for (std::int64_t j = keys; j < stride; ++j) ASSERT_EQ(weights[index_of(i * stride + j)], 7.0f);
          }
        });
      }
    }
}

TEST(AttentionWeights, HaveTheBitsOfTheMatrixAndOfAnyTile) {
  CaseOptions options;
  options.items = {{700, 1000}};
  options.masks = "c";
  options.rules = "r";
  AttentionCase given(options);
  std::vector<float> scores(700 * 1000), whole(700 * 1000), whole_scores(700 * 1000);
  const std::vector<MatrixRequest> requests = {{0, 1, scores.data(), nullptr}};
  given.call.matrices = requests;
  run(given, nullptr);
  const WeightsTile all{0, 1, 0, 700, 0, 1000, whole_scores.data(), whole.data(), 0};
  attention_weights(given.call, {&all, 1});
  EXPECT_EQ(std::memcmp(scores.data(), whole_scores.data(), scores.size() * sizeof(float)), 0);
  std::vector<float> parts(700 * 1000, 7.0f);
  std::vector<WeightsTile> tiles;
  for (std::int64_t i = 0; i < 700; i += 90)
    for (std::int64_t j = 0; j < 1000; j += 77)
      tiles.push_back({0, 1, i, std::min<std::int64_t>(700, i + 90), j, std::min<std::int64_t>(1000, j + 77), nullptr,
                       parts.data() + i * 1000 + j, 1000});
  attention_weights(given.call, tiles);
  EXPECT_EQ(std::memcmp(whole.data(), parts.data(), whole.size() * sizeof(float)), 0);
}

TEST(AttentionWeights, WrongTilesAreRefusedWithTheReason) {
  AttentionCase given(typical());
  run(given, nullptr);
  std::vector<float> out(100);
  const auto message = [&](const WeightsTile& tile) -> std::string {
    try {
      attention_weights(given.call, {&tile, 1});
    } catch (const Error& error) {
      return error.what();
    }
    return "no error";
  };
  EXPECT_NE(message({9, 0, 0, 1, 0, 1, nullptr, out.data(), 0}).find("item 9"), std::string::npos);
  EXPECT_NE(message({0, 4, 0, 1, 0, 1, nullptr, out.data(), 0}).find("head 4"), std::string::npos);
  EXPECT_NE(message({0, 0, 0, 21, 0, 1, nullptr, out.data(), 0}).find("20 queries and 33 keys"), std::string::npos);
  EXPECT_NE(message({0, 0, 0, 1, 2, 1, nullptr, out.data(), 0}).find("keys 2 to 1"), std::string::npos);
  EXPECT_NE(message({0, 0, 0, 1, 0, 5, nullptr, out.data(), 4}).find("row stride 4"), std::string::npos);
  given.call.log_sum_exp = nullptr;
  EXPECT_NE(message({0, 0, 0, 1, 0, 1, nullptr, out.data(), 0}).find("log_sum_exp"), std::string::npos);
  EXPECT_EQ(message({0, 0, 0, 1, 0, 1, out.data(), nullptr, 0}), "no error");
}

}  // namespace
}  // namespace attend
