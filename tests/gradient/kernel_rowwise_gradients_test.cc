// Backward kernels against central differences of their textbook forms in double, on every target.
#include <gtest/gtest.h>

#include <vector>

#include "core/threads.h"
#include "kernel/rowwise/rowwise.h"
#include "kernel/targets.h"
#include "reference/rowwise_reference.h"

namespace attend {
namespace {

using reference::differences;
using reference::dot;
using reference::random_floats;
using reference::Row;
using reference::row_of;

class RowwiseGradient : public testing::TestWithParam<std::string> {
 protected:
  void SetUp() override { force_kernel_target(GetParam()); }
  void TearDown() override { force_kernel_target(""); }
};

Row row64(const std::vector<float>& values) { return Row(values.begin(), values.end()); }

const std::vector<std::int64_t> widths = {2, 5, 8, 16, 19, 37, 64};

void check_norm(bool centred, std::int64_t rows, std::int64_t width) {
  const std::int64_t stride = width + 1;
  const auto x = random_floats(rows * stride, 1), gain = random_floats(width, 2), bias = random_floats(width, 3),
             dy = random_floats(rows * stride, 4);
  const auto x_start = random_floats(rows * stride, 5), gain_start = random_floats(width, 6),
             bias_start = random_floats(width, 7);
  auto dx = x_start, dgain = gain_start, dbias = bias_start;
  std::vector<float> y(x.size()), statistics(static_cast<std::size_t>(2 * rows));
  const double epsilon = 0.01;
  const Rows in{x.data(), rows, width, stride}, gradient{dy.data(), rows, width, stride};
  const MutableRows out{y.data(), rows, width, stride}, x_gradient{dx.data(), rows, width, stride};
  if (centred) {
    layer_norm(in, gain.data(), bias.data(), 0.01f, out, statistics.data());
    layer_norm_backward(in, gain.data(), statistics.data(), gradient, x_gradient, dgain.data(), dbias.data());
  } else {
    rms_norm(in, gain.data(), 0.01f, out, statistics.data());
    rms_norm_backward(in, gain.data(), statistics.data(), gradient, x_gradient, dgain.data());
  }
  const auto forward = [&](const Row& row, const Row& by) {
    return centred ? reference::layer_norm(row, by, row64(bias), epsilon) : reference::rms_norm(row, by, epsilon);
  };
  Row expected_gain = row64(gain_start), expected_bias = row64(bias_start);
  for (std::int64_t r = 0; r < rows; ++r) {
    const Row row = row_of(x, r, stride, width), weights = row_of(dy, r, stride, width);
    const Row by_x = differences([&](const Row& moved) { return dot(forward(moved, row64(gain)), weights); }, row);
    const Row by_gain = differences([&](const Row& moved) { return dot(forward(row, moved), weights); }, row64(gain));
    for (std::size_t j = 0; j < static_cast<std::size_t>(width); ++j) {
      const auto at = static_cast<std::size_t>(r * stride) + j;
      ASSERT_NEAR(dx[at], x_start[at] + by_x[j], 2e-5 * (1 + std::abs(by_x[j])))
          << "row " << r << " column " << j << " width " << width;
      expected_gain[j] += by_gain[j];
      expected_bias[j] += weights[j];
    }
    ASSERT_EQ(dx[static_cast<std::size_t>(r * stride + width)], x_start[static_cast<std::size_t>(r * stride + width)]);
  }
  for (std::size_t j = 0; j < static_cast<std::size_t>(width); ++j) {
    ASSERT_NEAR(dgain[j], expected_gain[j], 3e-5 * static_cast<double>(rows));
    if (centred) {
      ASSERT_NEAR(dbias[j], expected_bias[j], 1e-5 * static_cast<double>(rows));
    }
  }
}

TEST_P(RowwiseGradient, Norms) {
  for (bool centred : {true, false})
    for (std::int64_t width : widths) check_norm(centred, 3, width);
  check_norm(true, 150, 9);
  check_norm(false, 130, 9);
}

TEST_P(RowwiseGradient, NormsMayLeaveOutAnyGradient) {
  const std::int64_t rows = 70, width = 20;
  const auto x = random_floats(rows * width, 1), gain = random_floats(width, 2), dy = random_floats(rows * width, 4);
  std::vector<float> y(x.size()), statistics(static_cast<std::size_t>(2 * rows)), dx(x.size()), dgain(gain.size()),
      dbias(gain.size());
  const Rows in{x.data(), rows, width, width}, gradient{dy.data(), rows, width, width};
  layer_norm(in, gain.data(), nullptr, 0.01f, {y.data(), rows, width, width}, statistics.data());
  layer_norm_backward(in, gain.data(), statistics.data(), gradient, {dx.data(), rows, width, width}, dgain.data(),
                      dbias.data());
  std::vector<float> only_x(x.size()), only_gain(gain.size()), only_bias(gain.size());
  layer_norm_backward(in, gain.data(), statistics.data(), gradient, {only_x.data(), rows, width, width}, nullptr,
                      nullptr);
  layer_norm_backward(in, gain.data(), statistics.data(), gradient, {nullptr, rows, width, width}, only_gain.data(),
                      nullptr);
  layer_norm_backward(in, gain.data(), statistics.data(), gradient, {nullptr, rows, width, width}, nullptr,
                      only_bias.data());
  EXPECT_EQ(only_x, dx);
  EXPECT_EQ(only_gain, dgain);
  EXPECT_EQ(only_bias, dbias);
}

TEST_P(RowwiseGradient, Activations) {
  std::vector<float> x;
  for (double v = -9.013; v < 9; v += 0.037) x.push_back(static_cast<float>(v));
  for (float v : {-60.0f, 60.0f, -1e-3f, 1e-3f}) x.push_back(v);
  const auto width = static_cast<std::int64_t>(x.size());
  const auto dy = random_floats(width, 2), start = random_floats(width, 3);
  for (Activation kind : reference::activations) {
    auto dx = start;
    activate_backward(kind, {x.data(), 1, width, width}, {dy.data(), 1, width, width}, {dx.data(), 1, width, width});
    for (std::size_t j = 0; j < x.size(); ++j) {
      const double slope =
          differences([&](const Row& moved) { return reference::activated(kind, moved[0]); }, {x[j]})[0];
      ASSERT_NEAR(dx[j], start[j] + dy[j] * slope, 2e-6) << static_cast<int>(kind) << " at " << x[j];
    }
  }
}

TEST_P(RowwiseGradient, GatedUnits) {
  for (std::int64_t width : widths) {
    const std::int64_t rows = 3, stride = width + 2, size = rows * stride;
    const auto g = random_floats(size, 1), v = random_floats(size, 2), dy = random_floats(size, 3),
               g_start = random_floats(size, 4), v_start = random_floats(size, 5);
    for (Activation kind : reference::activations) {
      auto dg = g_start, dv = v_start;
      gate_backward(kind, {g.data(), rows, width, stride}, {v.data(), rows, width, stride},
                    {dy.data(), rows, width, stride}, {dg.data(), rows, width, stride},
                    {dv.data(), rows, width, stride});
      for (std::size_t i = 0; i < g.size(); ++i) {
        const bool inside = static_cast<std::int64_t>(i) % stride < width;
        const double slope =
            differences([&](const Row& moved) { return reference::activated(kind, moved[0]); }, {g[i]})[0];
        ASSERT_NEAR(dg[i], g_start[i] + (inside ? dy[i] * v[i] * slope : 0), 5e-6);
        ASSERT_NEAR(dv[i], v_start[i] + (inside ? dy[i] * reference::activated(kind, g[i]) : 0), 5e-6);
      }
    }
  }
}

TEST_P(RowwiseGradient, CrossEntropy) {
  for (std::int64_t width : widths)
    for (float smoothing : {0.0f, 0.2f}) {
      auto logits = random_floats(width, 1);
      const Row row = row64(logits);
      const auto label = static_cast<std::int32_t>(width / 2);
      float loss = 0;
      cross_entropy({logits.data(), 1, width, width}, &label, smoothing, 2, &loss, nullptr);
      const Row expected = differences(
          [&](const Row& moved) { return reference::cross_entropy(moved, static_cast<std::size_t>(label), smoothing); },
          row);
      for (std::size_t j = 0; j < expected.size(); ++j) ASSERT_NEAR(logits[j], 2 * expected[j], 1e-6);
    }
}

INSTANTIATE_TEST_SUITE_P(Targets, RowwiseGradient, testing::ValuesIn(kernel_targets()),
                         [](const auto& parameter) { return parameter.param; });

}  // namespace
}  // namespace attend
