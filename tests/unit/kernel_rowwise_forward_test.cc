// Rowwise kernels against their textbook forms in double, over edge widths, strides and in place, on every target.
#include <gtest/gtest.h>

#include <array>
#include <cmath>
#include <limits>
#include <set>
#include <vector>

#include "core/random.h"
#include "core/threads.h"
#include "kernel/rowwise/rowwise.h"
#include "kernel/targets.h"
#include "reference/rowwise_reference.h"

namespace attend {
namespace {

using reference::random_floats;
using reference::Row;
using reference::row_of;

constexpr float infinity = std::numeric_limits<float>::infinity();
const std::vector<std::int64_t> widths = {1,  2,  3,  4,  5,  7,   8,   9,   15,  16,  17,  31,
                                          32, 33, 63, 64, 65, 100, 127, 128, 129, 300, 1500};

class Rowwise : public testing::TestWithParam<std::string> {
 protected:
  void SetUp() override { force_kernel_target(GetParam()); }
  void TearDown() override {
    force_kernel_target("");
    set_threads(2);
  }
};

// Calls body(rows, width, stride) for all widths.
template <typename Body>
void over_shapes(Body body) {
  for (std::int64_t width : widths) {
    body(std::int64_t{1}, width, width);
    body(std::int64_t{3 + width % 7}, width, width + 3);
    if (testing::Test::HasFatalFailure()) return;
  }
}

// Nothing may be written between the rows.
void expect_gaps(const std::vector<float>& values, const std::vector<float>& before, std::int64_t rows,
                 std::int64_t width, std::int64_t stride) {
  for (std::int64_t r = 0; r < rows; ++r)
    for (std::int64_t j = width; j < stride; ++j)
      ASSERT_EQ(values[static_cast<std::size_t>(r * stride + j)], before[static_cast<std::size_t>(r * stride + j)]);
}

TEST_P(Rowwise, LayerNorm) {
  over_shapes([](std::int64_t rows, std::int64_t width, std::int64_t stride) {
    const auto x = random_floats(rows * stride, 1, 3), gain = random_floats(width, 2), bias = random_floats(width, 3),
               empty = random_floats(rows * stride, 4);
    for (bool biased : {true, false}) {
      std::vector<float> y = empty, in_place = x, statistics(static_cast<std::size_t>(2 * rows));
      layer_norm({x.data(), rows, width, stride}, gain.data(), biased ? bias.data() : nullptr, 1e-5f,
                 {y.data(), rows, width, stride}, statistics.data());
      layer_norm({in_place.data(), rows, width, stride}, gain.data(), biased ? bias.data() : nullptr, 1e-5f,
                 {in_place.data(), rows, width, stride}, nullptr);
      for (std::int64_t r = 0; r < rows; ++r) {
        const Row row = row_of(x, r, stride, width);
        const Row expected = reference::layer_norm(row, Row(gain.begin(), gain.end()),
                                                   biased ? Row(bias.begin(), bias.end()) : Row{}, 1e-5f);
        double mean = 0, variance = 0;
        for (double value : row) mean += value / static_cast<double>(width);
        for (double value : row) variance += (value - mean) * (value - mean) / static_cast<double>(width);
        ASSERT_NEAR(statistics[static_cast<std::size_t>(2 * r)], mean, 2e-6);
        ASSERT_NEAR(statistics[static_cast<std::size_t>(2 * r + 1)] * std::sqrt(variance + 1e-5f), 1,
                    width == 1 ? 1e-3 : 4e-6);
        for (std::int64_t j = 0; j < width; ++j) {
          // A width of 2 divides by the small difference of its elements, and multiplies the roundings of the mean.
          ASSERT_NEAR(y[static_cast<std::size_t>(r * stride + j)], expected[static_cast<std::size_t>(j)],
                      width < 8 ? 1e-4 : 8e-6)
              << width;
          ASSERT_EQ(y[static_cast<std::size_t>(r * stride + j)], in_place[static_cast<std::size_t>(r * stride + j)]);
        }
      }
      expect_gaps(y, empty, rows, width, stride);
    }
  });
}

TEST_P(Rowwise, RmsNorm) {
  over_shapes([](std::int64_t rows, std::int64_t width, std::int64_t stride) {
    const auto x = random_floats(rows * stride, 1, 3), gain = random_floats(width, 2),
               empty = random_floats(rows * stride, 4);
    std::vector<float> y = empty, statistics(static_cast<std::size_t>(rows));
    rms_norm({x.data(), rows, width, stride}, gain.data(), 1e-6f, {y.data(), rows, width, stride}, statistics.data());
    for (std::int64_t r = 0; r < rows; ++r) {
      const Row row = row_of(x, r, stride, width),
                expected = reference::rms_norm(row, Row(gain.begin(), gain.end()), 1e-6f);
      ASSERT_NEAR(statistics[static_cast<std::size_t>(r)] *
                      std::sqrt(reference::dot(row, row) / static_cast<double>(width) + 1e-6),
                  1, 2e-6);
      for (std::int64_t j = 0; j < width; ++j)
        ASSERT_NEAR(y[static_cast<std::size_t>(r * stride + j)], expected[static_cast<std::size_t>(j)],
                    4e-6 * (1 + std::abs(expected[static_cast<std::size_t>(j)])));
    }
    expect_gaps(y, empty, rows, width, stride);
  });
}

TEST_P(Rowwise, ActivationsAreAccurateEverywhere) {
  std::vector<float> x;
  for (double v = -30; v <= 30; v += 0.00237) x.push_back(static_cast<float>(v));
  for (int power = -40; power <= 6; ++power)
    for (float sign : {-1.0f, 1.0f}) x.push_back(sign * std::ldexp(1.1f, power));
  for (float v : {0.0f, 87.0f, -87.0f, 88.5f, -88.5f, 200.0f, -200.0f, 1e20f, -1e4f}) x.push_back(v);
  const auto width = static_cast<std::int64_t>(x.size());
  std::vector<float> y(x.size());
  for (Activation kind : reference::activations) {
    activate(kind, {x.data(), 1, width, width}, {y.data(), 1, width, width});
    double worst = 0;
    for (std::size_t j = 0; j < x.size(); ++j) {
      const double expected = reference::activated(kind, x[j]);
      // Relative 4e-7 on the upper side; on the lower, where the value is a small tail, relative to the tail's exponent
      // too.
      const double allowed = 4e-7 * std::abs(expected) + 2e-8 + 1e-37;
      ASSERT_NEAR(y[j], expected, allowed) << "activation " << static_cast<int>(kind) << " at " << x[j];
      worst = std::max(worst, std::abs(y[j] - expected) / (std::abs(expected) + 0.05));
    }
    RecordProperty("worst_" + std::to_string(static_cast<int>(kind)), std::to_string(worst));
  }
}

TEST_P(Rowwise, ActivateInPlaceAndWithStrides) {
  over_shapes([](std::int64_t rows, std::int64_t width, std::int64_t stride) {
    const auto x = random_floats(rows * stride, 1), value = random_floats(rows * stride, 2),
               empty = random_floats(rows * stride, 4);
    for (Activation kind : reference::activations) {
      std::vector<float> y = empty, in_place = x, gated = empty;
      activate(kind, {x.data(), rows, width, stride}, {y.data(), rows, width, stride});
      activate(kind, {in_place.data(), rows, width, stride}, {in_place.data(), rows, width, stride});
      gate(kind, {x.data(), rows, width, stride}, {value.data(), rows, width, stride},
           {gated.data(), rows, width, stride});
      for (std::int64_t r = 0; r < rows; ++r)
        for (std::int64_t j = 0; j < width; ++j) {
          const auto at = static_cast<std::size_t>(r * stride + j);
          const double expected = reference::activated(kind, x[at]);
          ASSERT_NEAR(y[at], expected, 1e-6);
          ASSERT_EQ(y[at], in_place[at]);
          ASSERT_NEAR(gated[at], expected * value[at], 3e-6);
        }
      expect_gaps(y, empty, rows, width, stride);
      expect_gaps(gated, empty, rows, width, stride);
    }
  });
}

TEST_P(Rowwise, NotANumberGoesThroughEveryActivation) {
  const std::vector<float> x = {1, std::nanf(""), 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, std::nanf("")};
  std::vector<float> y(x.size());
  const auto width = static_cast<std::int64_t>(x.size());
  for (Activation kind : reference::activations) {
    activate(kind, {x.data(), 1, width, width}, {y.data(), 1, width, width});
    for (std::size_t j = 0; j < x.size(); ++j) EXPECT_EQ(std::isnan(y[j]), std::isnan(x[j]));
  }
}

TEST_P(Rowwise, SoftmaxAndItsLogarithm) {
  over_shapes([](std::int64_t rows, std::int64_t width, std::int64_t stride) {
    auto x = random_floats(rows * stride, 1, 10);
    if (width > 2) x[1] = -infinity;
    const auto empty = random_floats(rows * stride, 4);
    std::vector<float> y = empty, logarithm = empty, in_place = x;
    softmax({x.data(), rows, width, stride}, {y.data(), rows, width, stride});
    softmax({in_place.data(), rows, width, stride}, {in_place.data(), rows, width, stride});
    log_softmax({x.data(), rows, width, stride}, {logarithm.data(), rows, width, stride});
    for (std::int64_t r = 0; r < rows; ++r) {
      const Row expected = reference::log_softmax(row_of(x, r, stride, width));
      double sum = 0;
      for (std::int64_t j = 0; j < width; ++j) {
        const auto at = static_cast<std::size_t>(r * stride + j);
        const double e = expected[static_cast<std::size_t>(j)];
        if (e == -infinity) {
          ASSERT_EQ(logarithm[at], -infinity);
        } else {
          ASSERT_NEAR(logarithm[at], e, 1e-6 * (2 + std::abs(e)));
        }
        ASSERT_NEAR(y[at], std::exp(e), 3e-7 + 2e-6 * std::exp(e));
        ASSERT_EQ(y[at], in_place[at]);
        sum += y[at];
      }
      ASSERT_NEAR(sum, 1, 2e-6);
    }
    expect_gaps(y, empty, rows, width, stride);
    expect_gaps(logarithm, empty, rows, width, stride);
  });
}

TEST_P(Rowwise, SoftmaxOfNothingAllowedIsZero) {
  for (std::int64_t width : {1, 5, 16, 40}) {
    const std::vector<float> x(static_cast<std::size_t>(width), -infinity);
    std::vector<float> y(x.size(), 7), logarithm(x.size(), 7);
    softmax({x.data(), 1, width, width}, {y.data(), 1, width, width});
    log_softmax({x.data(), 1, width, width}, {logarithm.data(), 1, width, width});
    EXPECT_EQ(y, std::vector<float>(x.size(), 0.0f));
    EXPECT_EQ(logarithm, x);
  }
}

TEST_P(Rowwise, SoftmaxShowsANotANumberWhereverItStands) {
  for (std::int64_t place = 0; place < 40; ++place) {
    for (float rest : {1.0f, -infinity}) {
      std::vector<float> x(40, rest);
      x[static_cast<std::size_t>(place)] = std::nanf("");
      std::vector<float> y(40);
      softmax({x.data(), 1, 40, 40}, {y.data(), 1, 40, 40});
      for (float value : y) ASSERT_TRUE(std::isnan(value)) << place;
      const std::int32_t label = 3;
      float loss = 0;
      cross_entropy({x.data(), 1, 40, 40}, &label, 0, 1, &loss, nullptr);
      ASSERT_TRUE(std::isnan(loss));
    }
  }
}

TEST_P(Rowwise, SoftmaxOfHugeValuesDoesNotOverflow) {
  const std::vector<float> x = {3e38f, 3e38f, -3e38f, 0};
  std::vector<float> y(4);
  softmax({x.data(), 1, 4, 4}, {y.data(), 1, 4, 4});
  EXPECT_EQ(y, (std::vector<float>{0.5f, 0.5f, 0.0f, 0.0f}));
}

TEST_P(Rowwise, CrossEntropyAndItsGradient) {
  over_shapes([](std::int64_t rows, std::int64_t width, std::int64_t stride) {
    const auto logits = random_floats(rows * stride, 1, 4);
    Random random(9);
    std::vector<std::int32_t> labels;
    for (std::int64_t r = 0; r < rows; ++r)
      labels.push_back(r == 2 ? -1 : static_cast<std::int32_t>(random.below(static_cast<std::uint64_t>(width))));
    for (float smoothing : {0.0f, 0.1f}) {
      std::vector<float> gradient = logits, kept = logits, losses(static_cast<std::size_t>(rows), 9), plain = losses,
                         again = losses;
      cross_entropy({gradient.data(), rows, width, stride}, labels.data(), smoothing, 0.25f, losses.data(),
                    plain.data());
      cross_entropy({kept.data(), rows, width, stride}, labels.data(), smoothing, 0, again.data(), nullptr);
      ASSERT_EQ(kept, logits);
      ASSERT_EQ(losses, again);
      for (std::int64_t r = 0; r < rows; ++r) {
        const auto i = static_cast<std::size_t>(r);
        const Row row = row_of(logits, r, stride, width);
        if (labels[i] < 0) {
          ASSERT_EQ(losses[i], 0);
          ASSERT_EQ(plain[i], 0);
          for (std::int64_t j = 0; j < width; ++j) ASSERT_EQ(gradient[static_cast<std::size_t>(r * stride + j)], 0);
          continue;
        }
        const auto label = static_cast<std::size_t>(labels[i]);
        ASSERT_NEAR(losses[i], reference::cross_entropy(row, label, smoothing), 4e-6);
        ASSERT_NEAR(plain[i], reference::cross_entropy(row, label, 0), 4e-6);
        const Row log_p = reference::log_softmax(row);
        for (std::size_t j = 0; j < static_cast<std::size_t>(width); ++j) {
          const double target = static_cast<double>(smoothing) / static_cast<double>(width) +
                                (j == label ? 1 - static_cast<double>(smoothing) : 0);
          ASSERT_NEAR(gradient[static_cast<std::size_t>(r * stride) + j], 0.25 * (std::exp(log_p[j]) - target), 3e-7);
        }
      }
      expect_gaps(gradient, logits, rows, width, stride);
    }
  });
}

TEST_P(Rowwise, CrossEntropyOfAWholeVocabulary) {
  const std::int64_t width = 50257;
  auto logits = random_floats(width, 1, 3);
  const Row row = row_of(logits, 0, width, width);
  const std::int32_t label = 31337;
  float loss = 0, plain = 0;
  cross_entropy({logits.data(), 1, width, width}, &label, 0.1f, 1, &loss, &plain);
  EXPECT_NEAR(loss, reference::cross_entropy(row, 31337, 0.1f), 1e-5);
  EXPECT_NEAR(plain, reference::cross_entropy(row, 31337, 0), 1e-5);
  double sum = 0;
  for (float value : logits) sum += value;
  EXPECT_NEAR(sum, 0, 1e-5);
}

TEST_P(Rowwise, CrossEntropyWithForbiddenWordsIsFinite) {
  std::vector<float> logits = {1, -infinity, 2, -infinity};
  const std::int32_t label = 0;
  float loss = 0;
  cross_entropy({logits.data(), 1, 4, 4}, &label, 0, 1, &loss, nullptr);
  EXPECT_NEAR(loss, std::log(1 + std::exp(1.0)), 1e-6);
  EXPECT_EQ(logits[1], 0);
  EXPECT_EQ(logits[3], 0);
}

TEST_P(Rowwise, RotationTurnsPairsAndTurnsBack) {
  for (Pairing pairing : {Pairing::interleaved, Pairing::halves})
    for (std::int64_t head_dim : {2, 4, 6, 16, 30, 64, 80, 128})
      for (std::int64_t rotary_dim : {head_dim, head_dim / 4 * 2}) {
        if (rotary_dim == 0) continue;
        const std::int64_t rows = 5, heads = 3, stride = heads * head_dim + 2, half = rotary_dim / 2;
        std::vector<float> cos_sin(static_cast<std::size_t>(50 * rotary_dim));
        make_rotation(50, rotary_dim, 10000, cos_sin.data());
        const std::vector<std::int32_t> positions = {0, 1, 7, 49, 12};
        const auto start = random_floats(rows * stride, 3);
        std::vector<float> x = start;
        rotate(x.data(), rows, stride, heads, head_dim, rotary_dim, pairing, cos_sin.data(), positions.data(), false);
        for (std::int64_t r = 0; r < rows; ++r)
          for (std::int64_t h = 0; h < heads; ++h)
            for (std::int64_t j = 0; j < head_dim; ++j) {
              const std::int64_t base = r * stride + h * head_dim;
              double expected = start[static_cast<std::size_t>(base + j)];
              if (j < rotary_dim) {
                const std::int64_t i = pairing == Pairing::halves ? j % half : j / 2;
                const std::int64_t first = pairing == Pairing::halves ? i : 2 * i,
                                   second = pairing == Pairing::halves ? i + half : 2 * i + 1;
                const double angle = positions[static_cast<std::size_t>(r)] *
                                     std::pow(10000.0, -2.0 * static_cast<double>(i) / static_cast<double>(rotary_dim));
                const double a = start[static_cast<std::size_t>(base + first)],
                             b = start[static_cast<std::size_t>(base + second)];
                expected =
                    j == first ? a * std::cos(angle) - b * std::sin(angle) : a * std::sin(angle) + b * std::cos(angle);
              }
              ASSERT_NEAR(x[static_cast<std::size_t>(base + j)], expected, 1e-6)
                  << head_dim << " " << rotary_dim << " " << j;
            }
        for (std::int64_t r = 0; r < rows; ++r)
          for (std::int64_t j = heads * head_dim; j < stride; ++j)
            ASSERT_EQ(x[static_cast<std::size_t>(r * stride + j)], start[static_cast<std::size_t>(r * stride + j)]);
        rotate(x.data(), rows, stride, heads, head_dim, rotary_dim, pairing, cos_sin.data(), positions.data(), true);
        for (std::size_t i = 0; i < x.size(); ++i) ASSERT_NEAR(x[i], start[i], 1e-6);
      }
}

TEST_P(Rowwise, GatherAndScatterRows) {
  over_shapes([](std::int64_t rows, std::int64_t width, std::int64_t stride) {
    const std::int64_t table_rows = 4;
    const auto table = random_floats(table_rows * width, 1), gradient = random_floats(rows * stride, 2),
               empty = random_floats(rows * stride, 4);
    Random random(3);
    std::vector<std::int32_t> ids;
    for (std::int64_t r = 0; r < rows; ++r) ids.push_back(static_cast<std::int32_t>(random.below(4)));
    std::vector<float> y = empty, sums = table;
    gather_rows(table.data(), width, ids, 1.5f, {y.data(), rows, width, stride});
    scatter_add_rows({gradient.data(), rows, width, stride}, ids, 0.5f, sums.data());
    std::vector<double> expected(table.begin(), table.end());
    for (std::int64_t r = 0; r < rows; ++r)
      for (std::int64_t j = 0; j < width; ++j) {
        const auto at = static_cast<std::size_t>(ids[static_cast<std::size_t>(r)] * width + j);
        ASSERT_EQ(y[static_cast<std::size_t>(r * stride + j)], table[at] * 1.5f);
        expected[at] += 0.5 * gradient[static_cast<std::size_t>(r * stride + j)];
      }
    for (std::size_t i = 0; i < sums.size(); ++i) ASSERT_NEAR(sums[i], expected[i], 2e-6);
    expect_gaps(y, empty, rows, width, stride);
  });
}

TEST_P(Rowwise, SumsOfRows) {
  over_shapes([](std::int64_t rows, std::int64_t width, std::int64_t stride) {
    const auto a = random_floats(rows * stride, 1), b = random_floats(rows * stride, 2),
               empty = random_floats(rows * stride, 4);
    std::vector<float> y = empty, accumulated = b, sums(static_cast<std::size_t>(width), 0.5f);
    add_rows({a.data(), rows, width, stride}, {b.data(), rows, width, stride}, {y.data(), rows, width, stride});
    accumulate_rows({a.data(), rows, width, stride}, -2, {accumulated.data(), rows, width, stride});
    sum_over_rows({a.data(), rows, width, stride}, sums.data());
    std::vector<float> in_order(static_cast<std::size_t>(width), 0.5f);
    for (std::int64_t r = 0; r < rows; ++r)
      for (std::int64_t j = 0; j < width; ++j) {
        const auto at = static_cast<std::size_t>(r * stride + j);
        ASSERT_EQ(y[at], a[at] + b[at]);
        ASSERT_NEAR(accumulated[at], static_cast<double>(b[at]) - 2 * static_cast<double>(a[at]), 1e-6);
        in_order[static_cast<std::size_t>(j)] += a[at];
      }
    ASSERT_EQ(sums, in_order);
    expect_gaps(y, empty, rows, width, stride);
    expect_gaps(accumulated, b, rows, width, stride);
    std::vector<float> in_place = a;
    add_rows({in_place.data(), rows, width, stride}, {b.data(), rows, width, stride},
             {in_place.data(), rows, width, stride});
    for (std::int64_t r = 0; r < rows; ++r)
      for (std::int64_t j = 0; j < width; ++j)
        ASSERT_EQ(in_place[static_cast<std::size_t>(r * stride + j)], y[static_cast<std::size_t>(r * stride + j)]);
  });
}

TEST_P(Rowwise, DropoutFollowsPhilox) {
  over_shapes([](std::int64_t rows, std::int64_t width, std::int64_t stride) {
    const auto x = random_floats(rows * stride, 1), empty = random_floats(rows * stride, 4);
    const std::uint64_t seed = 0x123456789ABCDEF0u;
    std::vector<float> y = empty, added = empty, in_place = x;
    dropout_rows({x.data(), rows, width, stride}, 0.3f, seed, {y.data(), rows, width, stride});
    dropout_rows({x.data(), rows, width, stride}, 0.3f, seed, {added.data(), rows, width, stride}, true);
    dropout_rows({in_place.data(), rows, width, stride}, 0.3f, seed, {in_place.data(), rows, width, stride});
    for (std::int64_t r = 0; r < rows; ++r)
      for (std::int64_t j = 0; j < width; ++j) {
        const auto at = static_cast<std::size_t>(r * stride + j);
        const auto words = philox({0x9ABCDEF0u, 0x12345678u}, {static_cast<std::uint32_t>(j / 128 * 16 + j % 16),
                                                               static_cast<std::uint32_t>(r), 0, 0x44524F50u});
        const std::uint32_t word = words[static_cast<std::size_t>(j / 16 % 4)];
        const std::uint32_t draw = j % 128 < 64 ? word & 0xFFFFu : word >> 16;
        const float expected = draw >= 19661 ? x[at] * (65536.0f / (65536 - 19661)) : 0;
        ASSERT_EQ(y[at], expected) << r << "," << j;
        ASSERT_NEAR(added[at], static_cast<double>(empty[at]) + expected, 1e-6);
        ASSERT_EQ(in_place[at], expected);
      }
    expect_gaps(y, empty, rows, width, stride);
  });
}

TEST_P(Rowwise, DropoutKeepsTheRightShare) {
  const std::int64_t rows = 500, width = 400;
  const std::vector<float> x(static_cast<std::size_t>(rows * width), 1.0f);
  std::vector<float> y(x.size());
  for (float probability : {0.01f, 0.1f, 0.5f, 0.9f}) {
    dropout_rows({x.data(), rows, width, width}, probability, 7, {y.data(), rows, width, width});
    double kept = 0;
    for (float value : y) kept += value != 0;
    const double size = static_cast<double>(x.size()), deviation = std::sqrt(size * probability * (1 - probability));
    EXPECT_NEAR(kept, size * (1 - probability), 4.5 * deviation);
  }
  dropout_rows({x.data(), rows, width, width}, 0, 7, {y.data(), rows, width, width});
  EXPECT_EQ(y, x);
  dropout_rows({x.data(), rows, width, width}, 1, 7, {y.data(), rows, width, width});
  EXPECT_EQ(y, std::vector<float>(x.size(), 0.0f));
}

TEST_P(Rowwise, AdamSteps) {
  for (std::int64_t size : {1, 7, 16, 33, 1000, 20000}) {
    for (float decay : {0.0f, 0.1f}) {
      auto value = random_floats(size, 1), first = std::vector<float>(static_cast<std::size_t>(size)), second = first;
      std::vector<double> value64(value.begin(), value.end()), first64(first.size()), second64(first.size());
      for (std::int64_t step = 1; step <= 5; ++step) {
        const auto gradient = random_floats(size, 10 + static_cast<std::uint64_t>(step));
        const AdamStep adam{0.01f, 0.9f, 0.98f, 1e-9f, decay, step, 0.5f};
        adam_step(adam, size, value.data(), gradient.data(), first.data(), second.data());
        for (std::size_t i = 0; i < value.size(); ++i) {
          const double g = 0.5 * gradient[i], b1 = 0.9f, b2 = 0.98f;
          first64[i] = b1 * first64[i] + (1 - b1) * g;
          second64[i] = b2 * second64[i] + (1 - b2) * g * g;
          const double m_hat = first64[i] / (1 - std::pow(b1, static_cast<double>(step))),
                       v_hat = second64[i] / (1 - std::pow(b2, static_cast<double>(step)));
          value64[i] -= 0.01f * (static_cast<double>(decay) * value64[i] + m_hat / (std::sqrt(v_hat) + 1e-9));
          ASSERT_NEAR(value[i], value64[i], 1e-6) << i;
          ASSERT_NEAR(first[i], first64[i], 1e-6);
          ASSERT_NEAR(second[i], second64[i], 1e-6);
        }
      }
    }
  }
}

TEST_P(Rowwise, SumsOfSquares) {
  for (std::int64_t size : {0, 1, 5, 16, 31, 16384, 16385, 100001}) {
    const auto data = random_floats(size, 1);
    double expected = 0;
    for (float value : data) expected += static_cast<double>(value) * value;
    EXPECT_NEAR(sum_of_squares(data.data(), size), expected, 1e-12 * expected);
  }
}

TEST_P(Rowwise, FindsWhatIsNotFinite) {
  EXPECT_TRUE(all_finite(nullptr, 0));
  for (std::int64_t size : {1, 15, 16, 17, 40000}) {
    auto data = random_floats(size, 1);
    data[0] = std::numeric_limits<float>::max();
    EXPECT_TRUE(all_finite(data.data(), size));
    for (float bad : {infinity, -infinity, std::nanf(""), -std::nanf("")}) {
      for (std::size_t place : {std::size_t{0}, data.size() / 2, data.size() - 1}) {
        const float kept = std::exchange(data[place], bad);
        EXPECT_FALSE(all_finite(data.data(), size)) << place << " of " << size;
        data[place] = kept;
      }
    }
  }
}

TEST_P(Rowwise, NoRowsIsNothingToDo) {
  float untouched = 5;
  const Rows none{nullptr, 0, 16, 16};
  const MutableRows nowhere{nullptr, 0, 16, 16};
  layer_norm(none, nullptr, nullptr, 1e-5f, nowhere, nullptr);
  layer_norm_backward(none, nullptr, nullptr, none, nowhere, nullptr, nullptr);
  rms_norm(none, nullptr, 1e-5f, nowhere, nullptr);
  softmax(none, nowhere);
  log_softmax(none, nowhere);
  activate(Activation::gelu, none, nowhere);
  dropout_rows(none, 0.1f, 1, nowhere);
  cross_entropy(nowhere, nullptr, 0, 1, nullptr, nullptr);
  adam_step({0.1f, 0.9f, 0.99f, 1e-8f, 0, 1, 1}, 0, nullptr, nullptr, nullptr, nullptr);
  sum_over_rows({nullptr, 0, 1, 1}, &untouched);
  scatter_add_rows({nullptr, 0, 1, 1}, {}, 1, &untouched);
  EXPECT_EQ(untouched, 5);
}

INSTANTIATE_TEST_SUITE_P(Targets, Rowwise, testing::ValuesIn(kernel_targets()),
                         [](const auto& parameter) { return parameter.param; });

}  // namespace
}  // namespace attend
