// The benchmark of statistics runs what it was asked for, on every instruction set, and refuses what makes no sense.
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "attend/bench.h"
#include "attend/error.h"
#include "kernel/targets.h"

namespace attend {
namespace {

TEST(BenchStatistics, ComparesWithPlainAttention) {
  for (const std::string& target : kernel_targets()) {
    StatisticsBenchOptions options;
    options.seconds = 0.01;
    options.rows = {64, 300};
    options.heads = 2;
    options.head_dim = 16;
    options.top = {1, 32};
    options.target = target;
    std::vector<StatisticsSpeed> found;
    bench_statistics(options, [&](const StatisticsSpeed& speed) { found.push_back(speed); });
    ASSERT_EQ(found.size(), 4u);
    for (std::size_t i = 0; i < found.size(); ++i) {
      const StatisticsSpeed& speed = found[i];
      EXPECT_EQ(speed.rows, options.rows[i / 2]);
      EXPECT_EQ(speed.top, options.top[i % 2]);
      EXPECT_EQ(speed.target, target);
      EXPECT_GT(speed.ratio_to_plain, 0);
      EXPECT_GT(speed.seconds, 0);
      EXPECT_GE(speed.rounds, 5);
      EXPECT_LT(speed.error, 1e-5);
      EXPECT_EQ(speed.input_bytes, 3 * 4 * speed.rows * 2 * 16);
      EXPECT_EQ(speed.output_bytes, 4 * speed.rows * 2 * (6 + 2 * speed.top));
      EXPECT_GT(speed.scratch_bytes, speed.plain_scratch_bytes);
    }
  }
}

TEST(BenchStatistics, RefusesWhatCannotBe) {
  const auto refused = [](auto change) {
    StatisticsBenchOptions options;
    change(options);
    EXPECT_THROW(bench_statistics(options, [](const StatisticsSpeed&) {}), Error);
  };
  refused([](StatisticsBenchOptions& options) { options.rows = {0}; });
  refused([](StatisticsBenchOptions& options) { options.top = {33}; });
  refused([](StatisticsBenchOptions& options) { options.heads = -1; });
  refused([](StatisticsBenchOptions& options) { options.target = "none"; });
}

}  // namespace
}  // namespace attend
