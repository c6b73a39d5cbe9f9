// The benchmark of importance measures what it says, and refuses models it cannot measure.
#include <gtest/gtest.h>

#include "attend/bench.h"
#include "attend/error.h"
#include "reference/random_models.h"

namespace attend {
namespace {

TEST(BenchImportance, ComparesCutsWithWholeRuns) {
  for (const std::size_t family : {std::size_t{0}, std::size_t{4}}) {
    Model model(reference::all_families()[family].config, 7);
    reference::randomise(model, 11);
    ModelInput input;
    if (model.config().encoder) input.source = {1, 2, 3, 4, 5};
    input.ids = {5, 6, 7, 8};
    for (const Target& target : {logit_of(3), difference_of(3, 4, 1), log_probability_of({1, 2, 3, 4})}) {
      const ImportanceSpeed speed = bench_importance(model, input, target, 30, 1);
      const std::int64_t encoder = 2 * 4 * 25, decoder = 2 * 4 * 16, cross = 2 * 4 * 20;
      EXPECT_EQ(speed.edges, model.config().encoder ? encoder + decoder + cross : decoder);
      EXPECT_EQ(speed.cuts, 30);
      EXPECT_GT(speed.largest_effect, 0.01);
      EXPECT_LT(speed.largest_difference, 1e-4);
      EXPECT_GT(speed.first_order_ratio, 0);
      EXPECT_GT(speed.exact_speedup, 0);
      EXPECT_GT(speed.random_exact_speedup, 0);
    }
  }
}

TEST(BenchImportance, NeedsADecoder) {
  const Model model(reference::all_families()[6].config, 7);
  ModelInput input;
  input.source = {1, 2, 3};
  EXPECT_THROW(bench_importance(model, input, logit_of(1), 5, 1), Error);
}

}  // namespace
}  // namespace attend
