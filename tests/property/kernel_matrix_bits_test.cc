// The promise of the products: the same bits for any number of threads, and for a row alone or in a batch.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
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

bool same_bits(const float* a, const float* b, std::size_t size) {
  return std::memcmp(a, b, size * sizeof(float)) == 0;
}

class ProductBits : public testing::TestWithParam<std::string> {
 protected:
  void SetUp() override { force_kernel_target(GetParam()); }
  void TearDown() override {
    force_kernel_target("");
    set_threads(2);
  }
};

TEST_P(ProductBits, DoNotDependOnThreadsOrOnOtherRows) {
  Random random(5);
  for (int round = 0; round < 25; ++round) {
    const auto rows = static_cast<std::int64_t>(1 + random.below(round % 5 == 0 ? 300 : 40));
    const auto inputs = static_cast<std::int64_t>(1 + random.below(round % 3 == 0 ? 1300 : 200));
    const auto outputs = static_cast<std::int64_t>(1 + random.below(300));
    const auto a = random_floats(rows * inputs, random.next()),
               weights = random_floats(outputs * inputs, random.next());
    const auto bias = random_floats(outputs, random.next());
    PackedMatrix packed;
    packed.pack(weights.data(), outputs, inputs, inputs);
    const bool accumulate = round % 4 == 1;
    const ProductEnd end{bias.data(), accumulate ? Activation::none : Activation::gelu, nullptr, accumulate};
    std::array<std::vector<float>, 4> results;
    for (int threads : {1, 2, 3}) {
      set_threads(threads);
      results[static_cast<std::size_t>(threads)].assign(static_cast<std::size_t>(rows * outputs), 0.5f);
      multiply(a.data(), inputs, rows, packed, results[static_cast<std::size_t>(threads)].data(), outputs, end);
    }
    EXPECT_TRUE(same_bits(results[1].data(), results[2].data(), results[1].size()))
        << rows << "x" << inputs << "x" << outputs;
    EXPECT_TRUE(same_bits(results[1].data(), results[3].data(), results[1].size()))
        << rows << "x" << inputs << "x" << outputs;
    for (int i = 0; i < 5; ++i) {
      const auto row = static_cast<std::int64_t>(random.below(static_cast<std::uint64_t>(rows)));
      const auto count = std::min<std::int64_t>(rows - row, static_cast<std::int64_t>(1 + random.below(15)));
      std::vector<float> part(static_cast<std::size_t>(count * outputs), 0.5f);
      multiply(a.data() + row * inputs, inputs, count, packed, part.data(), outputs, end);
      EXPECT_TRUE(same_bits(part.data(), results[1].data() + row * outputs, part.size()))
          << "rows " << row << " to " << row + count << " of " << rows;
    }
  }
}

TEST_P(ProductBits, OfAnElementAreOneSequenceOfMultiplyAdds) {
  const std::int64_t inputs = 700, outputs = 40;
  const auto a = random_floats(inputs, 1), weights = random_floats(outputs * inputs, 2);
  PackedMatrix packed;
  packed.pack(weights.data(), outputs, inputs, inputs);
  std::vector<float> c(static_cast<std::size_t>(outputs));
  multiply(a.data(), inputs, 1, packed, c.data(), outputs);
  const bool fused = GetParam() != "SSE4";  // has no fused multiply-add: a product is rounded before it is added
  for (std::int64_t j = 0; j < outputs; ++j) {
    float sum = 0;
    for (std::int64_t k = 0; k < inputs; ++k) {
      const float left = a[static_cast<std::size_t>(k)], right = weights[static_cast<std::size_t>(j * inputs + k)];
      const volatile float rounded = left * right;
      sum = fused ? std::fma(left, right, sum) : sum + rounded;
    }
    EXPECT_EQ(c[static_cast<std::size_t>(j)], sum);
  }
}

TEST_P(ProductBits, OfWeightGradientsDoNotDependOnThreadsOrOnTheOtherColumns) {
  Random random(6);
  for (int round = 0; round < 15; ++round) {
    const auto rows = static_cast<std::int64_t>(1 + random.below(round % 3 == 0 ? 700 : 100));
    const auto m = static_cast<std::int64_t>(1 + random.below(250)),
               n = static_cast<std::int64_t>(1 + random.below(250));
    const auto a = random_floats(rows * m, random.next()), b = random_floats(rows * n, random.next()),
               start = random_floats(m * n, random.next());
    std::array<std::vector<float>, 4> results;
    for (int threads : {1, 2, 3}) {
      set_threads(threads);
      results[static_cast<std::size_t>(threads)] = start;
      multiply_transposed(a.data(), m, b.data(), n, rows, m, n, results[static_cast<std::size_t>(threads)].data(), n);
    }
    EXPECT_TRUE(same_bits(results[1].data(), results[2].data(), results[1].size()));
    EXPECT_TRUE(same_bits(results[1].data(), results[3].data(), results[1].size()));
    const auto i = static_cast<std::int64_t>(random.below(static_cast<std::uint64_t>(m)));
    const auto j = static_cast<std::int64_t>(random.below(static_cast<std::uint64_t>(n)));
    float one = start[static_cast<std::size_t>(i * n + j)];
    multiply_transposed(a.data() + i, m, b.data() + j, n, rows, 1, 1, &one, 1);
    EXPECT_EQ(one, results[1][static_cast<std::size_t>(i * n + j)]);
  }
}

INSTANTIATE_TEST_SUITE_P(Targets, ProductBits, testing::ValuesIn(kernel_targets()),
                         [](const auto& parameter) { return parameter.param; });

}  // namespace
}  // namespace attend
