// Products against sums in double, over edge sizes, strides and ends, on every target of the machine.
#include <gtest/gtest.h>

#include <array>
#include <cmath>
#include <numbers>
#include <vector>

#include "core/random.h"
#include "core/threads.h"
#include "kernel/matrix/packed_matrix.h"
#include "kernel/targets.h"

namespace attend {
namespace {

std::vector<float> random_floats(std::int64_t size, std::uint64_t seed) {
  Random random(seed);
  std::vector<float> values(static_cast<std::size_t>(size));
  for (float& value : values) value = static_cast<float>(random.normal());
  return values;
}

double activated(Activation kind, double x) {
  switch (kind) {
    case Activation::none:
      return x;
    case Activation::relu:
      return x > 0 ? x : 0;
    case Activation::gelu:
      return 0.5 * x * std::erfc(-x / std::sqrt(2.0));
    case Activation::gelu_tanh:
      return 0.5 * x * (1 + std::tanh(std::sqrt(2 / std::numbers::pi) * (x + 0.044715 * x * x * x)));
    case Activation::silu:
      return x / (1 + std::exp(-x));
  }
  return x;
}

// A sum of n random terms in order has partial sums near sqrt(n), so roundings add up to about n / 2 times 6e-8 /
// sqrt(3); six times that is never seen by chance.
double bound(std::int64_t length) { return 2e-6 + 1.5e-7 * static_cast<double>(length); }

constexpr float marker = 12345.0f;

void check_multiply(std::int64_t rows, std::int64_t inputs, std::int64_t outputs, std::int64_t padding,
                    const ProductEnd& wanted, bool transposed, std::uint64_t seed) {
  const std::int64_t a_stride = inputs + padding, c_stride = outputs + padding;
  const auto a = random_floats(rows * a_stride, seed), bias = random_floats(outputs, seed + 1);
  const std::int64_t w_stride = (transposed ? outputs : inputs) + padding;
  const auto weights = random_floats((transposed ? inputs : outputs) * w_stride, seed + 2);
  const std::vector<float> before_c(static_cast<std::size_t>(rows * c_stride + 1), marker);
  std::vector<float> c = before_c, before = before_c;
  PackedMatrix packed;
  packed.pack(weights.data(), outputs, inputs, w_stride, transposed);
  ASSERT_EQ(packed.outputs(), outputs);
  ASSERT_EQ(packed.inputs(), inputs);
  ProductEnd end = wanted;
  if (wanted.bias != nullptr) end.bias = bias.data();
  if (wanted.before_activation != nullptr) end.before_activation = before.data();
  if (end.accumulate)
    for (std::int64_t i = 0; i < rows; ++i)
      for (std::int64_t j = 0; j < outputs; ++j)
        c[static_cast<std::size_t>(i * c_stride + j)] = static_cast<float>(i - j) * 0.01f;
  multiply(a.data(), a_stride, rows, packed, c.data(), c_stride, end);
  for (std::int64_t i = 0; i < rows; ++i) {
    for (std::int64_t j = 0; j < outputs; ++j) {
      double sum = 0;
      for (std::int64_t k = 0; k < inputs; ++k)
        sum += static_cast<double>(a[static_cast<std::size_t>(i * a_stride + k)]) *
               weights[static_cast<std::size_t>(transposed ? k * w_stride + j : j * w_stride + k)];
      if (end.bias != nullptr) sum += bias[static_cast<std::size_t>(j)];
      const std::size_t at = static_cast<std::size_t>(i * c_stride + j);
      if (end.before_activation != nullptr) {
        ASSERT_NEAR(before[at], sum, bound(inputs)) << i << "," << j;
      }
      double expected = activated(end.activation, sum);
      if (end.accumulate) expected += static_cast<float>(i - j) * 0.01f;
      ASSERT_NEAR(c[at], expected, bound(inputs))
          << "element " << i << "," << j << " of " << rows << "x" << inputs << "x" << outputs;
    }
    for (std::int64_t j = outputs; j < c_stride; ++j)
      ASSERT_EQ(c[static_cast<std::size_t>(i * c_stride + j)], marker) << "beyond row " << i;
  }
  ASSERT_EQ(c.back(), marker);
  if (end.before_activation == nullptr) {
    ASSERT_EQ(before, before_c);
  }
}

void check_transposed(std::int64_t rows, std::int64_t m, std::int64_t n, std::int64_t padding, std::uint64_t seed) {
  const auto a = random_floats(rows * (m + padding), seed), b = random_floats(rows * (n + padding), seed + 1);
  const std::int64_t c_stride = n + padding;
  const auto start = random_floats(m * c_stride + 1, seed + 2);
  std::vector<float> c = start;
  multiply_transposed(a.data(), m + padding, b.data(), n + padding, rows, m, n, c.data(), c_stride);
  for (std::int64_t i = 0; i < m; ++i) {
    for (std::int64_t j = 0; j < c_stride; ++j) {
      const std::size_t at = static_cast<std::size_t>(i * c_stride + j);
      double sum = start[at];
      if (j < n)
        for (std::int64_t r = 0; r < rows; ++r)
          sum += static_cast<double>(a[static_cast<std::size_t>(r * (m + padding) + i)]) *
                 b[static_cast<std::size_t>(r * (n + padding) + j)];
      ASSERT_NEAR(c[at], sum, j < n ? bound(rows) : 0)
          << "element " << i << "," << j << " of " << rows << "x" << m << "x" << n;
    }
  }
  ASSERT_EQ(c.back(), start.back());
}

class Products : public testing::TestWithParam<std::string> {
 protected:
  void SetUp() override { force_kernel_target(GetParam()); }
  void TearDown() override {
    force_kernel_target("");
    set_threads(2);
  }
};

const std::vector<std::int64_t> edge_sizes = {1, 2, 3, 5, 7, 8, 9, 15, 16, 17, 31, 32, 33, 47, 64, 97};

TEST_P(Products, AreRightForEdgeSizes) {
  std::uint64_t seed = 1;
  for (std::int64_t rows : {1, 2, 3, 4, 5, 6, 7, 11, 12, 13, 25, 97})
    for (std::int64_t outputs : edge_sizes) {
      const std::int64_t inputs = edge_sizes[static_cast<std::size_t>(seed % edge_sizes.size())];
      check_multiply(rows, inputs, outputs, static_cast<std::int64_t>(seed % 3), {}, seed % 2 == 0, seed);
      ++seed;
      if (HasFatalFailure()) return;
    }
}

TEST_P(Products, AreRightAcrossBlocksOfInputsAndColumns) {
  float unused = 0;
  for (auto [rows, inputs, outputs] : {std::array<std::int64_t, 3>{1, 1100, 70},
                                       {7, 513, 33},
                                       {100, 1025, 40},
                                       {200, 512, 48},
                                       {5, 17, 1100},
                                       {2, 600, 1040}}) {
    check_multiply(rows, inputs, outputs, 3, {}, false, 11);
    check_multiply(rows, inputs, outputs, 0, {&unused, Activation::none, nullptr, true}, true, 12);
    check_multiply(rows, inputs, outputs, 1, {&unused, Activation::gelu, &unused, false}, false, 13);
    if (HasFatalFailure()) return;
  }
}

TEST_P(Products, FinishWithBiasActivationAndSum) {
  float unused = 0;
  std::uint64_t seed = 100;
  for (Activation kind :
       {Activation::none, Activation::relu, Activation::gelu, Activation::gelu_tanh, Activation::silu})
    for (std::int64_t rows : {1, 4, 13})
      for (std::int64_t outputs : {3, 16, 37, 64}) {
        check_multiply(rows, 20, outputs, 2, {&unused, kind, &unused, false}, false, ++seed);
        check_multiply(rows, 20, outputs, 2, {nullptr, kind, nullptr, false}, false, ++seed);
        if (HasFatalFailure()) return;
      }
  for (std::int64_t rows : {1, 4, 13})
    for (std::int64_t outputs : {3, 16, 37, 64}) {
      check_multiply(rows, 20, outputs, 2, {&unused, Activation::none, nullptr, true}, false, ++seed);
      check_multiply(rows, 20, outputs, 2, {nullptr, Activation::none, &unused, true}, false, ++seed);
      if (HasFatalFailure()) return;
    }
}

TEST_P(Products, WithoutInputsGiveTheBias) {
  float unused = 0;
  check_multiply(3, 0, 20, 0, {&unused, Activation::relu, nullptr, false}, false, 5);
  check_multiply(3, 0, 20, 0, {}, false, 5);
}

TEST_P(Products, WithoutRowsOrOutputsTouchNothing) {
  const std::vector<float> a(64, 1.0f);
  std::vector<float> c(64, marker);
  PackedMatrix packed;
  multiply(a.data(), 8, 2, packed, c.data(), 8);
  packed.pack(a.data(), 8, 8, 8);
  multiply(a.data(), 8, 0, packed, c.data(), 8);
  multiply_transposed(a.data(), 8, a.data(), 8, 0, 8, 8, c.data(), 8);
  multiply_transposed(a.data(), 8, a.data(), 8, 8, 0, 8, c.data(), 8);
  multiply_transposed(a.data(), 8, a.data(), 8, 8, 8, 0, c.data(), 8);
  EXPECT_EQ(c, std::vector<float>(64, marker));
}

TEST_P(Products, PackAgainWithOtherValuesAndSizes) {
  const auto first = random_floats(40 * 30, 1), second = random_floats(40 * 30, 2);
  PackedMatrix packed;
  packed.pack(first.data(), 40, 30, 30);
  const float* memory = packed.panels();
  packed.pack(second.data(), 40, 30, 30);
  EXPECT_EQ(packed.panels(), memory);
  const std::vector<float> one(40, 1.0f);
  std::vector<float> c(40);
  multiply(one.data(), 30, 1, packed, c.data(), 40);
  for (std::size_t j = 0; j < 40; ++j) {
    double sum = 0;
    for (std::size_t k = 0; k < 30; ++k) sum += second[j * 30 + k];
    EXPECT_NEAR(c[j], sum, bound(30));
  }
  packed.pack(second.data(), 30, 40, 40);
  EXPECT_EQ(packed.outputs(), 30);
  multiply(one.data(), 40, 1, packed, c.data(), 40);
  double sum = 0;
  for (std::size_t k = 0; k < 40; ++k) sum += second[29 * 40 + k];
  EXPECT_NEAR(c[29], sum, bound(40));
}

TEST_P(Products, NotANumberStaysInItsRow) {
  const auto weights = random_floats(20 * 8, 3);
  std::vector<float> a(5 * 8, 1.0f), c(5 * 20);
  a[2 * 8 + 3] = std::nanf("");
  PackedMatrix packed;
  packed.pack(weights.data(), 20, 8, 8);
  for (Activation kind :
       {Activation::none, Activation::relu, Activation::gelu, Activation::gelu_tanh, Activation::silu}) {
    multiply(a.data(), 8, 5, packed, c.data(), 20, {nullptr, kind, nullptr, false});
    for (std::size_t i = 0; i < 5; ++i)
      for (std::size_t j = 0; j < 20; ++j) EXPECT_EQ(std::isnan(c[i * 20 + j]), i == 2) << static_cast<int>(kind);
  }
}

TEST_P(Products, TransposedAreRightForEdgeSizes) {
  std::uint64_t seed = 1000;
  for (std::int64_t m : edge_sizes)
    for (std::int64_t n : edge_sizes) {
      check_transposed(edge_sizes[static_cast<std::size_t>(seed % edge_sizes.size())], m, n,
                       static_cast<std::int64_t>(seed % 3), seed);
      ++seed;
      if (HasFatalFailure()) return;
    }
}

TEST_P(Products, TransposedAreRightAcrossBlocks) {
  check_transposed(600, 20, 50, 1, 1);
  check_transposed(257, 13, 17, 0, 2);
  check_transposed(30, 400, 40, 2, 3);
  check_transposed(30, 40, 1100, 0, 4);
}

INSTANTIATE_TEST_SUITE_P(Targets, Products, testing::ValuesIn(kernel_targets()),
                         [](const auto& parameter) { return parameter.param; });

}  // namespace
}  // namespace attend
