// The hand-built models of tests/reference/planted_models.h do what they say: tests of head finders rely on it.
#include <gtest/gtest.h>

#include <algorithm>

#include "attend/model.h"
#include "reference/planted_models.h"

namespace attend {
namespace {

using reference::PlantedHead;

struct Reading {
  Recorder recorder;
  Tensor logits;
  std::int64_t queries = 0, keys = 0;

  explicit Reading(const Model& model, const std::vector<std::int32_t>& source, const std::vector<std::int32_t>& target)
      : recorder([&] {
          std::vector<Site> sites;
          for (const Site& site : model.sites())
            if (site.point == Point::weights) sites.push_back(site);
          return sites;
        }()) {
    RunOptions options;
    options.probe = &recorder;
    TokenBatch sources, targets;
    States states;
    if (!source.empty()) {
      sources.append(source);
      states = model.encode(sources, options);
    }
    if (!target.empty()) {
      targets.append(target);
      const States memory = states;
      states = model.decode(targets, source.empty() ? nullptr : &memory, options);
    }
    logits = model.logits(states.rows);
  }
  float weight(const PlantedHead& head, std::int64_t query, std::int64_t key) const {
    const Tensor& weights = recorder.value({head.stack, head.layer, head.part, Point::weights}, 0);
    return weights.row(head.head * weights.shape()[1] + query)[key];
  }
  std::int32_t best(std::int64_t row) const {
    const float* from = logits.row(row);
    return static_cast<std::int32_t>(std::max_element(from, from + logits.width()) - from);
  }
};

TEST(Planted, InductionContinuesWhatWasSeen) {
  const auto planted = reference::planted_induction();
  constexpr std::int64_t period = 10, length = 35;
  for (std::uint64_t seed = 1; seed <= 3; ++seed) {
    const auto ids = reference::repeated_tokens(planted.vocabulary, period, length, seed);
    const Reading run(planted.model, {}, ids);
    for (std::int64_t i = 1; i < length; ++i) {
      EXPECT_GT(run.weight(planted.previous, i, i - 1), 0.99f) << i;
      EXPECT_GT(run.weight(planted.first, i, 0), 0.99f) << i;
      EXPECT_GT(run.weight(planted.self, i, i), 0.99f) << i;
      EXPECT_NEAR(run.weight(planted.uniform, i, i), 1.0f / static_cast<float>(i + 1), 1e-5f) << i;
      float same = 0;
      for (std::int64_t earlier = i; earlier >= 1; earlier -= period) same += run.weight(planted.same, i, earlier);
      EXPECT_GT(same, 0.99f) << i;
      if (i <= period) {
        EXPECT_GT(run.weight(planted.induction, i, 0), 0.99f) << "no earlier occurrence, " << i;
        continue;
      }
      float found = 0;
      for (std::int64_t earlier = i - period; earlier >= 1; earlier -= period)
        found += run.weight(planted.induction, i, earlier + 1);
      EXPECT_GT(found, 0.99f) << i;
      if (i + 1 < length) {
        EXPECT_EQ(run.best(i), ids[static_cast<std::size_t>(i + 1)]) << i;
      }
    }
    EXPECT_LT(run.weight(planted.noise, length - 1, length - 2), 0.5f);
  }
}

TEST(Planted, OffsetsAndSeparator) {
  const auto planted = reference::planted_offsets();
  std::vector<std::int32_t> ids = reference::repeated_tokens(planted.vocabulary, 11, 12, 4, 0);
  std::rotate(ids.begin(), ids.begin() + 5, ids.end());  // the separator, token 0, stands in the middle
  const auto separator = std::find(ids.begin(), ids.end(), 0) - ids.begin();
  ASSERT_EQ(separator, 7);
  const Reading run(planted.model, ids, {});
  for (std::int64_t i = 0; i < 12; ++i) {
    if (i > 0) {
      EXPECT_GT(run.weight(planted.previous, i, i - 1), 0.99f) << i;
    }
    if (i + 1 < 12) {
      EXPECT_GT(run.weight(planted.next, i, i + 1), 0.99f) << i;
    }
    if (i + 3 < 12) {
      EXPECT_GT(run.weight(planted.third, i, i + 3), 0.99f) << i;
    }
    EXPECT_GT(run.weight(planted.separator, i, separator), 0.99f) << i;
  }
}

TEST(Planted, TheQuietHeadNamesTheAnswer) {
  const auto planted = reference::planted_quiet();
  const std::vector<std::int32_t> with{0, 1, 5, 3, 2, 9, 8, 4, 1, 3, 10, 2, 6, 9}, cue_row{0, 1, 5};
  std::vector<std::int32_t> without = with;
  without[2] = 11;
  const std::int64_t last = static_cast<std::int64_t>(with.size()) - 1;
  const Reading run(planted.model, {}, with), other(planted.model, {}, without);
  EXPECT_GT(run.weight(planted.silent, last, 2), 0.99f);
  EXPECT_GT(run.weight(planted.loud, last, last - 1), 0.99f);
  EXPECT_NEAR(run.weight(planted.quiet, last, 2), 1 / 14.0, 1e-5);
  EXPECT_EQ(run.best(last), planted.answer);
  EXPECT_NE(other.best(last), planted.answer);
  EXPECT_GT(run.logits.at(last, planted.answer) - other.logits.at(last, planted.answer), 1);
}

TEST(Planted, CrossAttentionCopiesTheSourceAndSeesTheCue) {
  const auto planted = reference::planted_cross();
  const std::vector<std::int32_t> source{4, 9, 2, 8, 11, 3, 10, 1}, target{0, 4, 9, 2, 8, 11, 3, 10};
  const Reading run(planted.model, source, target);
  for (std::int64_t i = 0; i < 8; ++i) {
    EXPECT_GT(run.weight(planted.diagonal, i, i), 0.99f) << i;
    EXPECT_EQ(run.best(i), source[static_cast<std::size_t>(i)]) << i;
    EXPECT_NEAR(run.weight(planted.quiet, i, i), 1 / 8.0, 1e-5) << i;
  }
  std::vector<std::int32_t> with = source;
  with[5] = planted.cue;
  const Reading cued(planted.model, with, target);
  for (std::int64_t i = 0; i < 8; ++i) {
    EXPECT_GT(cued.weight(planted.silent, i, 5), 0.99f) << i;
    EXPECT_EQ(cued.best(i), planted.answer) << i;
  }
}

}  // namespace
}  // namespace attend
