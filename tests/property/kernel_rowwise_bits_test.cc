// The promise of the rowwise kernels: the same bits for any number of threads, and for a row alone or in a batch.
#include <gtest/gtest.h>

#include <cstring>
#include <functional>
#include <vector>

#include "core/random.h"
#include "core/threads.h"
#include "kernel/rowwise/rowwise.h"
#include "kernel/targets.h"
#include "reference/rowwise_reference.h"

namespace attend {
namespace {

using reference::random_floats;

class RowwiseBits : public testing::TestWithParam<std::string> {
 protected:
  void SetUp() override { force_kernel_target(GetParam()); }
  void TearDown() override {
    force_kernel_target("");
    set_threads(2);
  }
};

constexpr std::int64_t rows = 700, width = 157;

// Everything that some work computes, one vector after another.
using Results = std::vector<std::vector<float>>;

bool same_bits(const Results& a, const Results& b) {
  for (std::size_t i = 0; i < a.size(); ++i)
    if (a[i].size() != b[i].size() || std::memcmp(a[i].data(), b[i].data(), a[i].size() * sizeof(float)) != 0)
      return false;
  return a.size() == b.size();
}

// All kernels over rows [first, first + count) of the same data.
Results everything(std::int64_t first, std::int64_t count) {
  static const auto x = random_floats(rows * width, 1), y = random_floats(rows * width, 2),
                    gain = random_floats(width, 3), bias = random_floats(width, 4);
  const auto skip = static_cast<std::size_t>(first * width), size = static_cast<std::size_t>(count * width);
  const Rows in{x.data() + skip, count, width, width}, other{y.data() + skip, count, width, width};
  Results results;
  const auto out = [&]() -> MutableRows {
    results.emplace_back(size, 0.25f);
    return {results.back().data(), count, width, width};
  };
  std::vector<float> statistics(static_cast<std::size_t>(2 * count));
  results.reserve(40);
  layer_norm(in, gain.data(), bias.data(), 1e-5f, out(), statistics.data());
  layer_norm_backward(in, gain.data(), statistics.data(), other, out(), nullptr, nullptr);
  results.push_back(statistics);
  rms_norm(in, gain.data(), 1e-5f, out(), statistics.data());
  rms_norm_backward(in, gain.data(), statistics.data(), other, out(), nullptr);
  for (Activation kind : reference::activations) {
    activate(kind, in, out());
    activate_backward(kind, in, other, out());
    gate(kind, in, other, out());
  }
  softmax(in, out());
  log_softmax(in, out());
  add_rows(in, other, out());
  accumulate_rows(in, 0.3f, out());
  const MutableRows logits = out();
  std::copy_n(in.data, size, logits.data);
  const std::vector<std::int32_t> labels(static_cast<std::size_t>(count), 5);
  std::vector<float> losses(static_cast<std::size_t>(count));
  cross_entropy(logits, labels.data(), 0.1f, 1, losses.data(), nullptr);
  results.push_back(losses);
  return results;
}

// Sums across rows, and what depends on the place of a row.
Results sums() {
  const auto x = random_floats(rows * width, 1), y = random_floats(rows * width, 2), gain = random_floats(width, 3);
  const Rows in{x.data(), rows, width, width}, other{y.data(), rows, width, width};
  Results results;
  std::vector<float> scratch(x.size()), statistics(static_cast<std::size_t>(2 * rows)), gain_gradient(gain.size()),
      bias_gradient(gain.size());
  layer_norm(in, gain.data(), nullptr, 1e-5f, {scratch.data(), rows, width, width}, statistics.data());
  layer_norm_backward(in, gain.data(), statistics.data(), other, {nullptr, 0, 0, 0}, gain_gradient.data(),
                      bias_gradient.data());
  rms_norm_backward(in, gain.data(), statistics.data(), other, {nullptr, 0, 0, 0}, gain_gradient.data());
  results.push_back(gain_gradient);
  results.push_back(bias_gradient);
  sum_over_rows(in, bias_gradient.data());
  results.push_back(bias_gradient);
  std::vector<std::int32_t> ids;
  Random random(8);
  for (std::int64_t r = 0; r < rows; ++r) ids.push_back(static_cast<std::int32_t>(random.below(20)));
  std::vector<float> table(20 * width);
  scatter_add_rows(in, ids, 0.7f, table.data());
  results.push_back(table);
  dropout_rows(in, 0.2f, 99, {scratch.data(), rows, width, width});
  results.push_back(scratch);
  std::vector<float> first(x.size()), second(x.size()), value = x;
  adam_step({0.1f, 0.9f, 0.99f, 1e-8f, 0.01f, 1, 1}, rows * width, value.data(), y.data(), first.data(), second.data());
  results.push_back(value);
  const double squares = sum_of_squares(x.data(), rows * width);
  std::vector<float> bits(2);
  std::memcpy(bits.data(), &squares, sizeof(squares));
  results.push_back(bits);
  return results;
}

TEST_P(RowwiseBits, DoNotDependOnThreads) {
  set_threads(1);
  const Results alone = everything(0, rows), alone_sums = sums();
  for (int threads : {2, 3}) {
    set_threads(threads);
    EXPECT_TRUE(same_bits(everything(0, rows), alone));
    EXPECT_TRUE(same_bits(sums(), alone_sums));
  }
}

TEST_P(RowwiseBits, OfARowAreTheSameAloneAndInABatch) {
  const Results all = everything(0, rows);
  for (std::int64_t row : {0, 1, 63, 64, 399, 699}) {
    const Results one = everything(row, 1);
    ASSERT_EQ(one.size(), all.size());
    for (std::size_t i = 0; i < one.size(); ++i) {
      const std::size_t size = one[i].size();
      EXPECT_EQ(std::memcmp(one[i].data(), all[i].data() + static_cast<std::size_t>(row) * size, size * sizeof(float)),
                0)
          << "result " << i << " row " << row;
    }
  }
}

TEST_P(RowwiseBits, OfDropoutDependOnSeedRowAndColumnOnly) {
  const std::vector<float> ones(static_cast<std::size_t>(rows * width), 1.0f);
  std::vector<float> all(ones.size()), part(ones.size()), other(ones.size());
  dropout_rows({ones.data(), rows, width, width}, 0.5f, 3, {all.data(), rows, width, width});
  dropout_rows({ones.data(), 10, 40, width}, 0.5f, 3, {part.data(), 10, 40, width});
  for (std::size_t r = 0; r < 10; ++r)
    for (std::size_t j = 0; j < 40; ++j) ASSERT_EQ(part[r * width + j], all[r * width + j]);
  dropout_rows({ones.data(), rows, width, width}, 0.5f, 4, {other.data(), rows, width, width});
  std::size_t equal = 0;
  for (std::size_t i = 0; i < all.size(); ++i) equal += all[i] == other[i];
  EXPECT_NEAR(static_cast<double>(equal) / static_cast<double>(all.size()), 0.5, 0.01);
}

INSTANTIATE_TEST_SUITE_P(Targets, RowwiseBits, testing::ValuesIn(kernel_targets()),
                         [](const auto& parameter) { return parameter.param; });

}  // namespace
}  // namespace attend
