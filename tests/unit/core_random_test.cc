#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <numeric>
#include <vector>

#include "core/random.h"

namespace attend {
namespace {

using Words = std::array<std::uint32_t, 4>;

// Known answers for philox4x32-10 from the Random123 distribution (tests/kat_vectors).
TEST(Philox, GivesTheKnownAnswers) {
  EXPECT_EQ(philox({0, 0}, {0, 0, 0, 0}), (Words{0x6627e8d5u, 0xe169c58du, 0xbc57ac4cu, 0x9b00dbd8u}));
  EXPECT_EQ(philox({0xffffffffu, 0xffffffffu}, {0xffffffffu, 0xffffffffu, 0xffffffffu, 0xffffffffu}),
            (Words{0x408f276du, 0x41c83b0eu, 0xa20bc7c6u, 0x6d5451fdu}));
  EXPECT_EQ(philox({0xa4093822u, 0x299f31d0u}, {0x243f6a88u, 0x85a308d3u, 0x13198a2eu, 0x03707344u}),
            (Words{0xd16cfe09u, 0x94fdccebu, 0x5001e420u, 0x24126ea1u}));
}

TEST(Random, IsPhiloxOverACounter) {
  Random random(0x0123456789ABCDEFu);
  for (std::uint32_t block = 0; block < 3; ++block) {
    const Words expected = philox({0x89ABCDEFu, 0x01234567u}, {block, 0, 0, 0});
    for (std::uint32_t word : expected) EXPECT_EQ(random.next(), word);
  }
  EXPECT_EQ(random.drawn(), 12u);
}

TEST(Random, GoesOnFromItsTwoNumbers) {
  Random random(42);
  for (int i = 0; i < 7; ++i) random.normal();
  Random copy(random.seed(), random.drawn());
  for (int i = 0; i < 20; ++i) EXPECT_EQ(random.next(), copy.next());
  EXPECT_EQ(random.uniform(), copy.uniform());
  EXPECT_EQ(random.below(1000), copy.below(1000));
}

TEST(Random, DependsOnTheSeed) {
  Random one(1), two(2), high(std::uint64_t{1} << 32);
  const std::uint32_t first = one.next();
  EXPECT_NE(first, two.next());
  EXPECT_NE(first, high.next());
}

TEST(Random, UniformFillsTheInterval) {
  Random random(3);
  const int count = 100000;
  double sum = 0, squares = 0, least = 1, most = 0;
  for (int i = 0; i < count; ++i) {
    const double value = random.uniform();
    ASSERT_GE(value, 0);
    ASSERT_LT(value, 1);
    sum += value;
    squares += value * value;
    least = std::min(least, value);
    most = std::max(most, value);
  }
  EXPECT_NEAR(sum / count, 0.5, 5 * std::sqrt(1.0 / 12 / count));
  EXPECT_NEAR(squares / count, 1.0 / 3, 0.005);
  EXPECT_LT(least, 1e-3);
  EXPECT_GT(most, 1 - 1e-3);
}

TEST(Random, NormalHasTheRightMoments) {
  Random random(4);
  const int count = 100000;
  double sum = 0, squares = 0, fourth = 0;
  for (int i = 0; i < count; ++i) {
    const double value = random.normal();
    ASSERT_TRUE(std::isfinite(value));
    sum += value;
    squares += value * value;
    fourth += value * value * value * value;
  }
  EXPECT_NEAR(sum / count, 0, 5 / std::sqrt(count));
  EXPECT_NEAR(squares / count, 1, 5 * std::sqrt(2.0 / count));
  EXPECT_NEAR(fourth / count, 3, 0.2);
}

TEST(Random, BelowIsUniformAndInside) {
  Random random(5);
  EXPECT_EQ(random.below(0), 0u);
  EXPECT_EQ(random.below(1), 0u);
  EXPECT_EQ(random.drawn(), 0u);
  std::array<int, 7> counts{};
  const int count = 70000;
  for (int i = 0; i < count; ++i) {
    const std::uint64_t value = random.below(7);
    ASSERT_LT(value, 7u);
    ++counts[value];
  }
  double chi_square = 0;
  for (int observed : counts) chi_square += (observed - count / 7.0) * (observed - count / 7.0) / (count / 7.0);
  EXPECT_LT(chi_square, 27.9);  // six degrees of freedom, one in ten thousand
  const std::uint64_t large = std::uint64_t{3} << 62;
  for (int i = 0; i < 100; ++i) EXPECT_LT(random.below(large), large);
}

TEST(Random, ShuffleIsAPermutationThatTheSeedDecides) {
  std::vector<int> start(100), one(100), again(100), other(100);
  for (std::vector<int>* list : {&start, &one, &again, &other}) std::iota(list->begin(), list->end(), 0);
  Random first(6), second(6), third(7);
  shuffle(one.begin(), one.end(), first);
  shuffle(again.begin(), again.end(), second);
  shuffle(other.begin(), other.end(), third);
  EXPECT_EQ(one, again);
  EXPECT_NE(one, other);
  EXPECT_NE(one, start);
  std::sort(one.begin(), one.end());
  EXPECT_EQ(one, start);
}

TEST(Random, ShuffleReachesEveryOrder) {
  Random random(8);
  std::array<int, 6> counts{};
  for (int i = 0; i < 6000; ++i) {
    std::array<int, 3> list = {0, 1, 2};
    shuffle(list.begin(), list.end(), random);
    ++counts[static_cast<std::size_t>(list[0] * 2 + (list[1] > list[2] ? 1 : 0))];
  }
  for (int count : counts) EXPECT_NEAR(count, 1000, 5 * std::sqrt(1000.0));
}

}  // namespace
}  // namespace attend
