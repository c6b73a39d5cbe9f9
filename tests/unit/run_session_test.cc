#include <gtest/gtest.h>

#include <algorithm>
#include <vector>

#include "attend/error.h"
#include "attend/generate.h"
#include "unit/run_models.h"

namespace attend {
namespace {

using namespace attend::testing;

std::vector<float> bits(std::span<const float> row) { return {row.begin(), row.end()}; }

class Sessions : public ::testing::TestWithParam<int> {
 protected:
  NamedConfig named = all_configs()[static_cast<std::size_t>(GetParam())];
  Model model = lively_model(named.config, 3);
  std::vector<std::int32_t> source =
      named.config.encoder ? std::vector<std::int32_t>{4, 9, 3} : std::vector<std::int32_t>{};

  Session fresh(std::uint64_t seed = 1) const { return Session(model, source, seed); }
  // Logits after reading `ids` one by one.
  std::vector<float> one_by_one(std::span<const std::int32_t> ids) const {
    Session session = fresh();
    for (const std::int32_t id : ids) session.feed(std::span(&id, 1));
    return bits(session.logits());
  }
};

TEST_P(Sessions, AnyPortionsGiveWhatTheWholeGives) {
  std::vector<std::int32_t> ids{bos};
  for (std::int32_t i = 0; i < 80; ++i) ids.push_back(4 + i * i % 9);
  const std::vector<double> whole = next_log_probabilities(model, source, ids);
  for (const std::size_t portion : {1u, 7u, 64u, 81u}) {
    Session session = fresh();
    for (std::size_t begin = 0; begin < ids.size(); begin += portion) {
      session.feed(std::span(ids).subspan(begin, std::min(portion, ids.size() - begin)));
    }
    EXPECT_EQ(session.ids(), ids);
    EXPECT_EQ(session.length(), 81);
    EXPECT_EQ(session.positions_left(), 96 - 81);
    const auto logits = session.logits();
    const float first = logits[0];
    for (std::size_t id = 0; id < whole.size(); ++id) EXPECT_NEAR(logits[id] - first, whole[id] - whole[0], 2e-4);
  }
}

TEST_P(Sessions, ChoosingEqualsGenerate) {
  DecodeOptions options = usual_options(20);
  options.end.clear();
  const std::vector<DecodeInput> inputs{{source, {bos, 5, 6}, {}}};
  const std::vector<std::int32_t> expected = generate(model, inputs, options)[0][0].ids;
  Session session = fresh();
  session.feed(inputs[0].prompt);
  for (const std::int32_t id : expected) {
    ASSERT_EQ(session.choose(options), id);
    session.feed(std::span(&id, 1));
  }
}

TEST_P(Sessions, ForksGoTheirOwnWays) {
  const std::vector<std::int32_t> common{bos, 4, 5, 6, 7}, left{8, 9, 10}, right{11, 4};
  Session session = fresh();
  for (const std::int32_t id : common) session.feed(std::span(&id, 1));
  Session fork = session.fork();
  const std::vector<float> before = bits(fork.logits());
  for (const std::int32_t id : left) session.feed(std::span(&id, 1));
  EXPECT_EQ(bits(fork.logits()), before);
  EXPECT_EQ(fork.ids(), common);
  for (const std::int32_t id : right) fork.feed(std::span(&id, 1));
  EXPECT_EQ(bits(session.logits()), one_by_one(joined(common, left)));
  EXPECT_EQ(bits(fork.logits()), one_by_one(joined(common, right)));
  Session third = fresh(9);
  third = fork;
  third.feed(std::vector<std::int32_t>{5});
  EXPECT_EQ(bits(fork.logits()), one_by_one(joined(common, right)));
  EXPECT_EQ(third.length(), fork.length() + 1);
}

TEST_P(Sessions, TruncatedAndFedAgainEqualsFresh) {
  std::vector<std::int32_t> ids{bos};
  for (std::int32_t i = 0; i < 70; ++i) ids.push_back(4 + i % 9);
  Session session = fresh();
  for (const std::int32_t id : ids) session.feed(std::span(&id, 1));
  Session fork = session.fork();
  const std::vector<float> full = bits(session.logits());
  for (const std::int64_t length : {65, 64, 63, 3, 0}) {
    session.truncate(length);
    EXPECT_EQ(session.length(), length);
    EXPECT_THROW(session.logits(), Error);
    std::vector<std::int32_t> kept(ids.begin(), ids.begin() + length);
    for (const std::int32_t id : {12, 5}) {
      kept.push_back(id);
      session.feed(std::span(&id, 1));
    }
    EXPECT_EQ(session.ids(), kept);
    EXPECT_EQ(bits(session.logits()), one_by_one(kept));
  }
  EXPECT_EQ(bits(fork.logits()), full);
  fork.truncate(fork.length());
  EXPECT_EQ(bits(fork.logits()), full) << "truncating nothing keeps the logits";
}

TEST_P(Sessions, RestoredGoesOnWithTheSameBits) {
  DecodeOptions options = usual_options();
  options.strategy = Strategy::sample;
  Session session = fresh(77);
  session.feed(std::vector<std::int32_t>{bos, 4, 5, 6, 7, 8});
  session.truncate(4);
  session.feed(std::vector<std::int32_t>{9, 10});
  for (int i = 0; i < 5; ++i) {
    const std::int32_t id = session.choose(options);
    session.feed(std::span(&id, 1));
  }
  Session restored(model, session.state());
  EXPECT_EQ(restored.ids(), session.ids());
  EXPECT_EQ(bits(restored.logits()), bits(session.logits()));
  for (int i = 0; i < 5; ++i) {
    const std::int32_t id = session.choose(options);
    ASSERT_EQ(restored.choose(options), id);
    EXPECT_EQ(bits(restored.feed(std::span(&id, 1))), bits(session.feed(std::span(&id, 1))));
  }
  session.truncate(3);
  Session cut(model, session.state());
  EXPECT_EQ(cut.ids(), session.ids());
  EXPECT_THROW(cut.logits(), Error);
  EXPECT_EQ(bits(cut.feed(std::vector<std::int32_t>{5})), bits(session.feed(std::vector<std::int32_t>{5})));
  EXPECT_EQ(Session(model, fresh(5).state()).length(), 0);
}

TEST_P(Sessions, RefusalsLeaveItAsItWas) {
  Session session = fresh();
  EXPECT_THROW(session.logits(), Error);
  session.feed(std::vector<std::int32_t>{bos, 4});
  const std::vector<float> before = bits(session.logits());
  const auto refused = [&](const std::vector<std::int32_t>& ids, const std::string& part) {
    try {
      session.feed(ids);
      FAIL() << part;
    } catch (const Error& error) {
      EXPECT_EQ(error.kind(), ErrorKind::argument);
      EXPECT_NE(std::string(error.what()).find(part), std::string::npos) << error.what();
    }
  };
  refused({}, "nothing to read");
  refused({4, 13}, "id 13");
  refused({-1}, "id -1");
  refused(std::vector<std::int32_t>(95, 4), "95 tokens do not fit after 2: the model has 96 positions");
  EXPECT_THROW(session.truncate(3), Error);
  EXPECT_THROW(session.truncate(-1), Error);
  DecodeOptions beam = usual_options();
  beam.strategy = Strategy::beam;
  EXPECT_THROW(session.choose(beam), Error);
  EXPECT_EQ(session.length(), 2);
  EXPECT_EQ(bits(session.logits()), before);
  session.feed(std::vector<std::int32_t>(94, 4));
  EXPECT_EQ(session.positions_left(), 0);

  Session::State state = session.state();
  state.portions[0].kept = 3;
  EXPECT_THROW(Session(model, state), Error);
  state = {};
  state.source = source;
  state.logits = true;
  EXPECT_THROW(Session(model, state), Error);
}

TEST_P(Sessions, NeedsASourceExactlyWithAnEncoder) {
  if (named.config.encoder) {
    EXPECT_THROW(Session(model, 1), Error);
  } else {
    EXPECT_THROW(Session(model, std::vector<std::int32_t>{4}, 1), Error);
  }
}

INSTANTIATE_TEST_SUITE_P(Models, Sessions, ::testing::Range(0, 4));

}  // namespace
}  // namespace attend
