#include "run/choose.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

namespace attend {
namespace {

std::vector<float> random_row(std::int64_t size, Random& random, bool with_ties) {
  std::vector<float> row;
  for (std::int64_t i = 0; i < size; ++i) {
    row.push_back(with_ties ? static_cast<float>(random.below(5)) - 2 : static_cast<float>(random.normal()));
  }
  return row;
}

std::vector<Candidate> sorted_candidates(const std::vector<float>& row, const std::vector<std::int32_t>& forbidden) {
  std::vector<Candidate> all;
  for (std::size_t i = 0; i < row.size(); ++i) {
    const auto id = static_cast<std::int32_t>(i);
    if (std::find(forbidden.begin(), forbidden.end(), id) == forbidden.end()) all.push_back({row[i], id});
  }
  std::stable_sort(all.begin(), all.end(), [](const Candidate& a, const Candidate& b) { return a.logit > b.logit; });
  return all;
}

TEST(AllowedIds, RangesBetweenForbiddenOnes) {
  const std::vector<std::int32_t> first{0, 7, 3}, second{4, 7, -1, 12};
  const AllowedIds allowed(10, {first, second});
  const std::vector<std::pair<std::int32_t, std::int32_t>> expected{{1, 3}, {5, 7}, {8, 10}};
  EXPECT_TRUE(std::ranges::equal(allowed.ranges(), expected));
  EXPECT_EQ(allowed.count(), 6);
  EXPECT_EQ(AllowedIds(3, {std::vector<std::int32_t>{0, 1, 2}}).count(), 0);
  EXPECT_EQ(AllowedIds(3, {}).count(), 3);
}

TEST(BestOf, EqualsSortingForAnySizeAndTies) {
  Random random(7);
  for (const std::int64_t size : {1, 2, 15, 16, 17, 127, 128, 129, 255, 257, 1000}) {
    for (int repeat = 0; repeat < 20; ++repeat) {
      const std::vector<float> row = random_row(size, random, repeat % 2 == 1);
      std::vector<std::int32_t> forbidden;
      for (int i = 0; i < repeat % 4; ++i)
        forbidden.push_back(static_cast<std::int32_t>(random.below(static_cast<std::uint64_t>(size))));
      const AllowedIds allowed(size, {forbidden});
      if (allowed.count() == 0) continue;
      const std::vector<Candidate> expected = sorted_candidates(row, forbidden);
      EXPECT_EQ(best_of(row.data(), allowed).id, expected[0].id);
      for (const std::int64_t count : {1, 2, 9, 64}) {
        std::vector<Candidate> best;
        ASSERT_TRUE(best_few_of(row.data(), allowed, count, best));
        ASSERT_EQ(best.size(), std::min(static_cast<std::size_t>(count), expected.size()));
        for (std::size_t i = 0; i < best.size(); ++i) {
          EXPECT_EQ(best[i].id, expected[i].id);
          EXPECT_EQ(best[i].logit, expected[i].logit);
        }
      }
    }
  }
}

TEST(BestOf, FindsOneNotANumberAnywhere) {
  Random random(8);
  const AllowedIds allowed(150, {std::vector<std::int32_t>{140}});
  SampleScratch scratch;
  for (const float bad : {std::numeric_limits<float>::quiet_NaN(), std::numeric_limits<float>::infinity(),
                          -std::numeric_limits<float>::infinity()}) {
    for (std::size_t place = 0; place < 150; ++place) {
      std::vector<float> row = random_row(150, random, false);
      row[place] = bad;
      std::vector<Candidate> best;
      const bool forbidden = place == 140;
      EXPECT_EQ(best_of(row.data(), allowed).id >= 0, forbidden) << place;
      EXPECT_EQ(best_few_of(row.data(), allowed, 5, best), forbidden) << place;
      EXPECT_EQ(sample_of(row.data(), allowed, {}, random, scratch) >= 0, forbidden) << place;
    }
  }
}

// What sampling must give: p proportional to exp(logit / temperature) over the ids that top_k and top_p leave.
std::vector<double> expected_distribution(const std::vector<float>& row, const std::vector<std::int32_t>& forbidden,
                                          const DecodeOptions& options) {
  std::vector<Candidate> all = sorted_candidates(row, forbidden);
  if (options.top_k > 0) all.resize(std::min(all.size(), static_cast<std::size_t>(options.top_k)));
  std::vector<double> weights;
  double total = 0;
  for (const Candidate& candidate : all) {
    weights.push_back(std::exp(candidate.logit / options.temperature));
    total += weights.back();
  }
  double sum = 0;
  std::size_t kept = 0;
  while (kept < weights.size() && sum < options.top_p * total) sum += weights[kept++];
  std::vector<double> result(row.size(), 0.0);
  for (std::size_t i = 0; i < kept; ++i) result[static_cast<std::size_t>(all[i].id)] = weights[i] / sum;
  return result;
}

TEST(SampleOf, DrawsTheDistributionThatTemperatureTopKAndTopPDescribe) {
  Random rows(9);
  const std::vector<float> row = random_row(12, rows, false);
  const std::vector<std::int32_t> forbidden{2, 5};
  const AllowedIds allowed(12, {forbidden});
  struct Case {
    double temperature;
    std::int64_t top_k;
    double top_p;
  };
  for (const Case& one : {Case{1, 0, 1}, Case{0.5, 0, 1}, Case{2, 0, 1}, Case{1, 4, 1}, Case{1, 0, 0.7},
                          Case{1.5, 6, 0.6}, Case{1, 100, 1}, Case{1, 1, 1}, Case{1, 0, 1e-9}}) {
    DecodeOptions options;
    options.temperature = one.temperature;
    options.top_k = one.top_k;
    options.top_p = one.top_p;
    const std::vector<double> expected = expected_distribution(row, forbidden, options);
    const int draws = 20000;
    std::vector<int> counts(row.size(), 0);
    SampleScratch scratch;
    Random random(10);
    for (int i = 0; i < draws; ++i)
      ++counts[static_cast<std::size_t>(sample_of(row.data(), allowed, options, random, scratch))];
    double chi_square = 0;
    int kinds = 0;
    for (std::size_t id = 0; id < row.size(); ++id) {
      if (expected[id] == 0) {
        EXPECT_EQ(counts[id], 0) << "token " << id << " should have been cut";
        continue;
      }
      const double wanted = expected[id] * draws;
      chi_square += (counts[id] - wanted) * (counts[id] - wanted) / wanted;
      ++kinds;
    }
    // The 1 - 1e-4 quantile of chi-square is below this for up to 11 degrees of freedom.
    EXPECT_LT(chi_square, kinds == 1 ? 1e-9 : 37) << one.temperature << " " << one.top_k << " " << one.top_p;
  }
}

TEST(SampleOf, EqualLogitsAreCutForTheLowerId) {
  const std::vector<float> row{1, 3, 3, 3, 0};
  DecodeOptions options;
  options.top_k = 2;
  SampleScratch scratch;
  Random random(11);
  for (int i = 0; i < 200; ++i) {
    const std::int32_t id = sample_of(row.data(), AllowedIds(5, {}), options, random, scratch);
    EXPECT_TRUE(id == 1 || id == 2);
  }
}

// Which of the kept ids a draw means is told by sorting alone, not by the order that selection leaves.
TEST(SampleOf, ADrawWalksTheKeptIdsFromTheBestDown) {
  Random rows(12);
  SampleScratch scratch;
  for (const bool with_ties : {false, true}) {
    for (int repeat = 0; repeat < 300; ++repeat) {
      const std::vector<float> row = random_row(200, rows, with_ties);
      DecodeOptions options;
      options.top_k = 1 + static_cast<std::int64_t>(rows.below(150));
      Random random(static_cast<std::uint64_t>(repeat)), same(static_cast<std::uint64_t>(repeat));
      std::vector<Candidate> kept = sorted_candidates(row, {});
      kept.resize(static_cast<std::size_t>(options.top_k));
      double total = 0;
      for (const Candidate& candidate : kept) total += std::exp(static_cast<double>(candidate.logit) - kept[0].logit);
      double rest = same.uniform() * total;
      std::size_t expected = 0;
      while (expected + 1 < kept.size() &&
             (rest -= std::exp(static_cast<double>(kept[expected].logit) - kept[0].logit)) >= 0)
        ++expected;
      EXPECT_EQ(sample_of(row.data(), AllowedIds(200, {}), options, random, scratch), kept[expected].id) << repeat;
    }
  }
}

TEST(RandomOf, StreamsDiffer) {
  std::vector<std::uint64_t> seeds;
  for (const std::uint64_t seed : {0, 1, 2}) {
    for (std::int64_t input = 0; input < 20; ++input) {
      for (std::int64_t sample = 0; sample < 5; ++sample) seeds.push_back(random_of(seed, input, sample).seed());
    }
  }
  std::sort(seeds.begin(), seeds.end());
  EXPECT_EQ(std::unique(seeds.begin(), seeds.end()), seeds.end());
}

}  // namespace
}  // namespace attend
