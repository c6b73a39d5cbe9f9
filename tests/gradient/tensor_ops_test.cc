// Gradients of every operation but attention (tensor_attention_test.cc) against central differences in float64.
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <numeric>

#include "reference/gradient_check.h"

namespace attend {
namespace {

using reference::check_gradients;
using reference::Input;
using reference::random_input;
using reference::Values;
using Inputs = std::vector<Values>;
using Tensors = std::vector<Tensor>;

std::size_t index(std::int64_t value) { return static_cast<std::size_t>(value); }

double activated(double x, Activation kind) {
  switch (kind) {
    case Activation::none:
      return x;
    case Activation::relu:
      return x > 0 ? x : 0;
    case Activation::gelu:
      return x * 0.5 * (1 + std::erf(x / std::sqrt(2.0)));
    case Activation::gelu_tanh:
      return 0.5 * x * (1 + std::tanh(std::sqrt(2 / M_PI) * (x + 0.044715 * x * x * x)));
    case Activation::silu:
      return x / (1 + std::exp(-x));
  }
  return 0;
}

Values mapped(const Values& x, const std::function<double(double)>& f) {
  Values y;
  for (double value : x) y.push_back(f(value));
  return y;
}

// x [rows, inputs] W^T + bias, W [outputs, inputs].
Values product(const Values& x, const Values& weight, const Values* bias, std::int64_t rows, std::int64_t inputs,
               std::int64_t outputs) {
  Values y;
  for (std::int64_t r = 0; r < rows; ++r)
    for (std::int64_t o = 0; o < outputs; ++o) {
      double sum = bias != nullptr ? (*bias)[index(o)] : 0;
      for (std::int64_t i = 0; i < inputs; ++i) sum += x[index(r * inputs + i)] * weight[index(o * inputs + i)];
      y.push_back(sum);
    }
  return y;
}

Values transposed(const Values& x, std::int64_t rows, std::int64_t columns) {
  Values y(x.size());
  for (std::int64_t r = 0; r < rows; ++r)
    for (std::int64_t c = 0; c < columns; ++c) y[index(c * rows + r)] = x[index(r * columns + c)];
  return y;
}

const Activation activations[] = {Activation::none, Activation::relu, Activation::gelu, Activation::gelu_tanh,
                                  Activation::silu};

TEST(LinearGradient, EveryActivation) {
  for (Activation kind : activations) {
    SCOPED_TRACE(name_of(kind));
    check_gradients(
        {random_input({5, 7}, 1), random_input({9, 7}, 2, 0.5), random_input({9}, 3)},
        [&](const Tensors& in) { return linear(in[0], Weight(in[1]), in[2], kind); },
        [&](const Inputs& in) {
          return mapped(product(in[0], in[1], &in[2], 5, 7, 9), [&](double v) { return activated(v, kind); });
        });
  }
}

TEST(LinearGradient, WithoutBias) {
  check_gradients(
      {random_input({2, 3, 4}, 1), random_input({5, 4}, 2)},
      [](const Tensors& in) { return linear(in[0], Weight(in[1])); },
      [](const Inputs& in) { return product(in[0], in[1], nullptr, 6, 4, 5); });
}

TEST(LinearGradient, SecondLayerReusesTheReluOutput) {
  check_gradients(
      {random_input({4, 3}, 1), random_input({6, 3}, 2), random_input({2, 6}, 3)},
      [](const Tensors& in) { return linear(linear(in[0], Weight(in[1]), {}, Activation::relu), Weight(in[2])); },
      [](const Inputs& in) {
        const Values inner = mapped(product(in[0], in[1], nullptr, 4, 3, 6), [](double v) { return std::max(v, 0.0); });
        return product(inner, in[2], nullptr, 4, 6, 2);
      });
}

TEST(LinearGradient, ViewsOfColumns) {
  // The columns of one wide tensor read by two layers, one of them through an activation.
  check_gradients(
      {random_input({4, 8}, 1), random_input({2, 3}, 2), random_input({2, 5}, 3)},
      [](const Tensors& in) {
        return add(linear(in[0].columns(0, 3), Weight(in[1]), {}, Activation::silu),
                   linear(in[0].columns(3, 5), Weight(in[2])));
      },
      [](const Inputs& in) {
        Values left, right;
        for (std::size_t r = 0; r < 4; ++r)
          for (std::size_t c = 0; c < 8; ++c) (c < 3 ? left : right).push_back(in[0][r * 8 + c]);
        Values y =
            mapped(product(left, in[1], nullptr, 4, 3, 2), [](double v) { return activated(v, Activation::silu); });
        const Values z = product(right, in[2], nullptr, 4, 5, 2);
        for (std::size_t i = 0; i < y.size(); ++i) y[i] += z[i];
        return y;
      });
}

TEST(LinearGradient, TiedEmbeddingAddsUpInOneGradient) {
  const std::vector<std::int32_t> ids{1, 3, 1, 0};
  check_gradients(
      {random_input({5, 3}, 1)}, [&](const Tensors& in) { return linear(embed(in[0], ids, 1.5f), Weight(in[0])); },
      [&](const Inputs& in) {
        Values x;
        for (std::int32_t id : ids)
          for (std::int64_t i = 0; i < 3; ++i) x.push_back(1.5 * in[0][index(id * 3 + i)]);
        return product(x, in[0], nullptr, 4, 3, 5);
      });
}

TEST(MatrixProductGradient, BothForms) {
  check_gradients(
      {random_input({4, 6}, 1), random_input({6, 5}, 2)},
      [](const Tensors& in) { return matrix_product(in[0], in[1]); },
      [](const Inputs& in) { return product(in[0], transposed(in[1], 6, 5), nullptr, 4, 6, 5); });
  check_gradients(
      {random_input({4, 6}, 1), random_input({5, 6}, 2)},
      [](const Tensors& in) { return matrix_product(in[0], in[1], true); },
      [](const Inputs& in) { return product(in[0], in[1], nullptr, 4, 6, 5); });
}

TEST(TransposeGradient, Oblong) {
  check_gradients(
      {random_input({37, 41}, 1)}, [](const Tensors& in) { return transpose(in[0]); },
      [](const Inputs& in) { return transposed(in[0], 37, 41); });
}

TEST(ElementwiseGradient, TwoInputs) {
  const std::vector<Input> inputs{random_input({3, 5}, 1), random_input({3, 5}, 2)};
  const auto textbook = [](double (*f)(double, double)) {
    return [f](const Inputs& in) {
      Values y;
      for (std::size_t i = 0; i < in[0].size(); ++i) y.push_back(f(in[0][i], in[1][i]));
      return y;
    };
  };
  check_gradients(
      inputs, [](const Tensors& in) { return add(in[0], in[1]); }, textbook([](double a, double b) { return a + b; }));
  check_gradients(
      inputs, [](const Tensors& in) { return subtract(in[0], in[1]); },
      textbook([](double a, double b) { return a - b; }));
  check_gradients(
      inputs, [](const Tensors& in) { return multiply(in[0], in[1]); },
      textbook([](double a, double b) { return a * b; }));
  check_gradients(
      inputs, [](const Tensors& in) { return squared_error(in[0], in[1]); },
      [](const Inputs& in) {
        double total = 0;
        for (std::size_t i = 0; i < in[0].size(); ++i) total += (in[0][i] - in[1][i]) * (in[0][i] - in[1][i]);
        return Values{total / static_cast<double>(in[0].size())};
      });
}

TEST(ElementwiseGradient, OneTensorAsBothInputs) {
  check_gradients(
      {random_input({3, 5}, 1)}, [](const Tensors& in) { return multiply(in[0], in[0]); },
      [](const Inputs& in) { return mapped(in[0], [](double v) { return v * v; }); });
  check_gradients(
      {random_input({3, 5}, 1)}, [](const Tensors& in) { return add(in[0], in[0]); },
      [](const Inputs& in) { return mapped(in[0], [](double v) { return 2 * v; }); });
  check_gradients(
      {random_input({3, 5}, 1)},
      [](const Tensors& in) {
        const Tensor y = scale(in[0], 3);
        return subtract(y, multiply(y, y));
      },
      [](const Inputs& in) { return mapped(in[0], [](double v) { return 3 * v - 9 * v * v; }); });
}

TEST(ElementwiseGradient, ResidualReadAfterwards) {
  // The gradient that add() passes on must not be shared with one that more is added to.
  check_gradients(
      {random_input({3, 4}, 1), random_input({4, 4}, 2)},
      [](const Tensors& in) {
        const Tensor x = scale(in[0], 2);
        const Tensor y = linear(x, Weight(in[1]));
        return add(add(x, y), multiply(x, y));
      },
      [](const Inputs& in) {
        const Values x = mapped(in[0], [](double v) { return 2 * v; });
        const Values y = product(x, in[1], nullptr, 3, 4, 4);
        Values z;
        for (std::size_t i = 0; i < x.size(); ++i) z.push_back(x[i] + y[i] + x[i] * y[i]);
        return z;
      });
}

TEST(ElementwiseGradient, RowsAndColumns) {
  const std::vector<Input> inputs{random_input({4, 6}, 1), random_input({6}, 2)};
  check_gradients(
      inputs, [](const Tensors& in) { return add_row(in[0], in[1]); },
      [](const Inputs& in) {
        Values y;
        for (std::size_t i = 0; i < 24; ++i) y.push_back(in[0][i] + in[1][i % 6]);
        return y;
      });
  check_gradients(
      inputs, [](const Tensors& in) { return scale_columns(in[0], in[1]); },
      [](const Inputs& in) {
        Values y;
        for (std::size_t i = 0; i < 24; ++i) y.push_back(in[0][i] * in[1][i % 6]);
        return y;
      });
}

TEST(ElementwiseGradient, OneInput) {
  const std::vector<Input> any{random_input({4, 9}, 1)};
  const auto textbook = [](std::function<double(double)> f) {
    return [f](const Inputs& in) { return mapped(in[0], f); };
  };
  check_gradients(
      any, [](const Tensors& in) { return scale(in[0], -1.75f); }, textbook([](double v) { return -1.75 * v; }));
  check_gradients(
      any, [](const Tensors& in) { return tanh(in[0]); }, textbook([](double v) { return std::tanh(v); }));
  check_gradients(
      any, [](const Tensors& in) { return sigmoid(in[0]); }, textbook([](double v) { return 1 / (1 + std::exp(-v)); }));
  check_gradients(
      any, [](const Tensors& in) { return exp(in[0]); }, textbook([](double v) { return std::exp(v); }));
  check_gradients(
      {random_input({4, 9}, 1, 0.3, 3)}, [](const Tensors& in) { return log(in[0]); },
      textbook([](double v) { return std::log(v); }));
  for (Activation kind : activations) {
    SCOPED_TRACE(name_of(kind));
    check_gradients(
        any, [&](const Tensors& in) { return activate(in[0], kind); },
        textbook([&](double v) { return activated(v, kind); }));
  }
}

TEST(ElementwiseGradient, Gate) {
  for (Activation kind : activations) {
    SCOPED_TRACE(name_of(kind));
    check_gradients(
        {random_input({4, 9}, 1), random_input({4, 9}, 2)}, [&](const Tensors& in) { return gate(in[0], in[1], kind); },
        [&](const Inputs& in) {
          Values y;
          for (std::size_t i = 0; i < in[0].size(); ++i) y.push_back(activated(in[0][i], kind) * in[1][i]);
          return y;
        });
  }
}

TEST(ElementwiseGradient, GateOfTheTwoHalvesOfOneProjection) {
  check_gradients(
      {random_input({3, 8}, 1)},
      [](const Tensors& in) {
        const Tensor both = scale(in[0], 1.5f);
        return gate(both.columns(0, 4), both.columns(4, 4), Activation::silu);
      },
      [](const Inputs& in) {
        Values y;
        for (std::size_t r = 0; r < 3; ++r)
          for (std::size_t c = 0; c < 4; ++c)
            y.push_back(activated(1.5 * in[0][r * 8 + c], Activation::silu) * 1.5 * in[0][r * 8 + 4 + c]);
        return y;
      });
}

TEST(NormGradient, LayerNorm) {
  const double epsilon = 1e-3;
  const auto textbook = [&](const Inputs& in) {
    Values y;
    for (std::size_t r = 0; r < 4; ++r) {
      const double* x = &in[0][r * 11];
      const double mean = std::accumulate(x, x + 11, 0.0) / 11;
      double variance = 0;
      for (std::size_t i = 0; i < 11; ++i) variance += (x[i] - mean) * (x[i] - mean) / 11;
      for (std::size_t i = 0; i < 11; ++i)
        y.push_back((x[i] - mean) / std::sqrt(variance + epsilon) * in[1][i] + (in.size() > 2 ? in[2][i] : 0));
    }
    return y;
  };
  check_gradients(
      {random_input({4, 11}, 1), random_input({11}, 2, 0.5, 1), random_input({11}, 3)},
      [&](const Tensors& in) { return layer_norm(in[0], in[1], in[2], static_cast<float>(epsilon)); }, textbook);
  check_gradients(
      {random_input({4, 11}, 1), random_input({11}, 2, 0.5, 1)},
      [&](const Tensors& in) { return layer_norm(in[0], in[1], {}, static_cast<float>(epsilon)); }, textbook);
}

TEST(NormGradient, RmsNorm) {
  const double epsilon = 1e-3;
  check_gradients(
      {random_input({4, 11}, 1), random_input({11}, 2, 0.5, 1)},
      [&](const Tensors& in) { return rms_norm(in[0], in[1], static_cast<float>(epsilon)); },
      [&](const Inputs& in) {
        Values y;
        for (std::size_t r = 0; r < 4; ++r) {
          double squares = 0;
          for (std::size_t i = 0; i < 11; ++i) squares += in[0][r * 11 + i] * in[0][r * 11 + i] / 11;
          for (std::size_t i = 0; i < 11; ++i) y.push_back(in[0][r * 11 + i] / std::sqrt(squares + epsilon) * in[1][i]);
        }
        return y;
      });
}

TEST(NormGradient, NormByGivenDeviations) {
  const std::vector<float> given{0.5f, 2, 1, 0.25f};
  for (const bool centred : {true, false})
    for (const bool biased : {true, false}) {
      std::vector<Input> inputs{random_input({4, 11}, 1), random_input({11}, 2, 0.5, 1)};
      if (biased) inputs.push_back(random_input({11}, 3));
      check_gradients(
          inputs,
          [&](const Tensors& in) {
            return norm_by(in[0], Tensor::from({4, 1}, given), in[1], biased ? in[2] : Tensor(), centred);
          },
          [&](const Inputs& in) {
            Values y;
            for (std::size_t r = 0; r < 4; ++r) {
              double mean = 0;
              for (std::size_t i = 0; i < 11 && centred; ++i) mean += in[0][r * 11 + i] / 11;
              for (std::size_t i = 0; i < 11; ++i)
                y.push_back((in[0][r * 11 + i] - mean) / static_cast<double>(given[r]) * in[1][i] +
                            (biased ? in[2][i] : 0));
            }
            return y;
          });
    }
}

TEST(NormGradient, DeviationsMakeTheNormsWhole) {
  const double epsilon = 1e-3;
  for (const bool centred : {true, false}) {
    const auto mean_of = [centred](const Values& x, std::size_t r) {
      double mean = 0;
      for (std::size_t i = 0; i < 11 && centred; ++i) mean += x[r * 11 + i] / 11;
      return mean;
    };
    const auto deviation_of = [&](const Values& x, std::size_t r) {
      double sum = 0;
      for (std::size_t i = 0; i < 11; ++i) sum += std::pow(x[r * 11 + i] - mean_of(x, r), 2) / 11;
      return std::sqrt(sum + epsilon);
    };
    check_gradients(
        {random_input({4, 11}, 1)},
        [&](const Tensors& in) { return norm_deviations(in[0], centred, static_cast<float>(epsilon)); },
        [&](const Inputs& in) {
          Values y;
          for (std::size_t r = 0; r < 4; ++r) y.push_back(deviation_of(in[0], r));
          return y;
        });
    // Deviations of the rows themselves, but for row 2, which is divided by 0.5.
    check_gradients(
        {random_input({4, 11}, 1), random_input({11}, 2, 0.5, 1)},
        [&](const Tensors& in) {
          const auto third = std::make_shared<const std::vector<std::uint8_t>>(std::vector<std::uint8_t>{0, 0, 1, 0});
          const Tensor own = norm_deviations(in[0], centred, static_cast<float>(epsilon));
          return norm_by(in[0], replace_where(own, Tensor::filled({4, 1}, 0.5f), third), in[1], {}, centred);
        },
        [&](const Inputs& in) {
          Values y;
          for (std::size_t r = 0; r < 4; ++r)
            for (std::size_t i = 0; i < 11; ++i)
              y.push_back((in[0][r * 11 + i] - mean_of(in[0], r)) / (r == 2 ? 0.5 : deviation_of(in[0], r)) * in[1][i]);
          return y;
        });
  }
}

TEST(ElementwiseGradient, ReplaceWhere) {
  const auto mask = std::make_shared<const std::vector<std::uint8_t>>(std::vector<std::uint8_t>{1, 0, 0, 1, 1, 0});
  check_gradients(
      {random_input({2, 3}, 1), random_input({2, 3}, 2)},
      [&](const Tensors& in) { return replace_where(in[0], in[1], mask); },
      [&](const Inputs& in) {
        Values y;
        for (std::size_t i = 0; i < 6; ++i) y.push_back(in[(*mask)[i] ? 1 : 0][i]);
        return y;
      });
  // A view of some columns, and the same tensor on both sides.
  check_gradients(
      {random_input({2, 5}, 3)},
      [&](const Tensors& in) { return replace_where(in[0].columns(1, 3), in[0].columns(2, 3), mask); },
      [&](const Inputs& in) {
        Values y;
        for (std::size_t i = 0; i < 6; ++i) y.push_back(in[0][i / 3 * 5 + i % 3 + ((*mask)[i] ? 2 : 1)]);
        return y;
      });
  const float nan = std::numeric_limits<float>::quiet_NaN();
  const std::vector<float> spoiled{nan, 2, 3, 4, nan, 6};
  EXPECT_EQ(replace_where(Tensor::from({2, 3}, spoiled), Tensor::zeros({2, 3}), mask).to_vector(),
            (std::vector<float>{0, 2, 3, 0, 0, 6}));
  EXPECT_THROW(replace_where(Tensor::zeros({2, 3}), Tensor::zeros({3, 2}), mask), Error);
  EXPECT_THROW(replace_where(Tensor::zeros({2, 2}), Tensor::zeros({2, 2}), mask), Error);
}

Values softmax_rows(const Values& x, std::size_t width, bool logarithm) {
  Values y;
  for (std::size_t r = 0; r < x.size() / width; ++r) {
    double total = 0;
    for (std::size_t i = 0; i < width; ++i) total += std::exp(x[r * width + i]);
    for (std::size_t i = 0; i < width; ++i)
      y.push_back(logarithm ? x[r * width + i] - std::log(total) : std::exp(x[r * width + i]) / total);
  }
  return y;
}

TEST(NormGradient, Softmax) {
  check_gradients(
      {random_input({4, 11}, 1, 2)}, [](const Tensors& in) { return softmax(in[0]); },
      [](const Inputs& in) { return softmax_rows(in[0], 11, false); });
  check_gradients(
      {random_input({4, 11}, 1, 2)}, [](const Tensors& in) { return log_softmax(in[0]); },
      [](const Inputs& in) { return softmax_rows(in[0], 11, true); });
}

TEST(RowsGradient, Embed) {
  const std::vector<std::int32_t> ids{4, 0, 4, 2, 4};
  check_gradients(
      {random_input({6, 5}, 1)}, [&](const Tensors& in) { return embed(in[0], ids, 0.75f); },
      [&](const Inputs& in) {
        Values y;
        for (std::int32_t id : ids)
          for (std::int64_t i = 0; i < 5; ++i) y.push_back(0.75 * in[0][index(id * 5 + i)]);
        return y;
      });
}

TEST(RowsGradient, SelectRowsWithRepeats) {
  const std::vector<std::int64_t> rows{3, 1, 1, 0, 3, 3};
  check_gradients(
      {random_input({5, 3}, 1)}, [&](const Tensors& in) { return select_rows(in[0], rows); },
      [&](const Inputs& in) {
        Values y;
        for (std::int64_t row : rows)
          for (std::int64_t i = 0; i < 3; ++i) y.push_back(in[0][index(row * 3 + i)]);
        return y;
      });
}

TEST(RowsGradient, Joins) {
  check_gradients(
      {random_input({2, 3}, 1), random_input({4, 3}, 2)}, [](const Tensors& in) { return join_rows(in[0], in[1]); },
      [](const Inputs& in) {
        Values y = in[0];
        y.insert(y.end(), in[1].begin(), in[1].end());
        return y;
      });
  check_gradients(
      {random_input({4, 2}, 1), random_input({4, 3}, 2)}, [](const Tensors& in) { return join_columns(in[0], in[1]); },
      [](const Inputs& in) {
        Values y;
        for (std::size_t r = 0; r < 4; ++r) {
          y.insert(y.end(), &in[0][r * 2], &in[0][r * 2] + 2);
          y.insert(y.end(), &in[1][r * 3], &in[1][r * 3] + 3);
        }
        return y;
      });
}

TEST(RowsGradient, MeanRowsWithAnEmptyItem) {
  const std::vector<std::int64_t> offsets{0, 3, 3, 4, 7};
  check_gradients(
      {random_input({7, 4}, 1)}, [&](const Tensors& in) { return mean_rows(in[0], offsets); },
      [&](const Inputs& in) {
        Values y(16, 0.0);
        for (std::size_t item = 0; item < 4; ++item)
          for (std::int64_t r = offsets[item]; r < offsets[item + 1]; ++r)
            for (std::size_t i = 0; i < 4; ++i)
              y[item * 4 + i] += in[0][index(r) * 4 + i] / static_cast<double>(offsets[item + 1] - offsets[item]);
        return y;
      });
}

TEST(RowsGradient, SumAndMean) {
  check_gradients(
      {random_input({3, 5}, 1)}, [](const Tensors& in) { return sum(in[0]); },
      [](const Inputs& in) { return Values{std::accumulate(in[0].begin(), in[0].end(), 0.0)}; });
  check_gradients(
      {random_input({3, 5}, 1)}, [](const Tensors& in) { return mean(in[0]); },
      [](const Inputs& in) { return Values{std::accumulate(in[0].begin(), in[0].end(), 0.0) / 15}; });
}

TEST(RowsGradient, RotateHeads) {
  const std::int64_t heads = 2, head_dim = 8, rotary_dim = 6;
  const std::vector<std::int32_t> positions{0, 5, 2};
  const double base = 100;
  for (Pairing pairing : {Pairing::interleaved, Pairing::halves}) {
    SCOPED_TRACE(name_of(pairing));
    const Tensor table = rotation_table(6, rotary_dim, base);
    check_gradients(
        {random_input({3, heads * head_dim}, 1)},
        [&](const Tensors& in) { return rotate_heads(scale(in[0], 1), heads, rotary_dim, pairing, table, positions); },
        [&](const Inputs& in) {
          Values y = in[0];
          for (std::int64_t r = 0; r < 3; ++r)
            for (std::int64_t h = 0; h < heads; ++h)
              for (std::int64_t i = 0; i < rotary_dim / 2; ++i) {
                const double angle = positions[index(r)] * std::pow(base, -2.0 * static_cast<double>(i) / rotary_dim);
                const std::int64_t at = r * heads * head_dim + h * head_dim;
                const std::size_t one = index(at + (pairing == Pairing::interleaved ? 2 * i : i));
                const std::size_t two = index(at + (pairing == Pairing::interleaved ? 2 * i + 1 : i + rotary_dim / 2));
                y[one] = in[0][one] * std::cos(angle) - in[0][two] * std::sin(angle);
                y[two] = in[0][one] * std::sin(angle) + in[0][two] * std::cos(angle);
              }
          return y;
        });
  }
}

TEST(DropoutGradient, SameChoiceForwardAndBackward) {
  const float probability = 0.4f;
  const std::uint64_t seed = 99;
  const std::vector<float> factors = dropout(Tensor::filled({6, 10}, 1), probability, seed).to_vector();
  check_gradients(
      {random_input({6, 10}, 1)}, [&](const Tensors& in) { return dropout(in[0], probability, seed); },
      [&](const Inputs& in) {
        Values y;
        for (std::size_t i = 0; i < factors.size(); ++i) y.push_back(in[0][i] * factors[i]);
        return y;
      });
  check_gradients(
      {random_input({6, 10}, 1), random_input({6, 10}, 2)},
      [&](const Tensors& in) { return add_dropped(in[0], in[1], probability, seed); },
      [&](const Inputs& in) {
        Values y;
        for (std::size_t i = 0; i < factors.size(); ++i) y.push_back(in[0][i] + in[1][i] * factors[i]);
        return y;
      });
  check_gradients(
      {random_input({6, 10}, 1), random_input({6, 10}, 2)},
      [&](const Tensors& in) { return add_dropped(in[0], in[1], 0, seed); },
      [&](const Inputs& in) {
        Values y;
        for (std::size_t i = 0; i < 60; ++i) y.push_back(in[0][i] + in[1][i]);
        return y;
      });
}

// Sum over rows of the smoothed cross-entropy, times factor.
Values textbook_loss(const Values& logits, std::size_t classes, const std::vector<std::int32_t>& labels,
                     double smoothing, double factor) {
  const Values log_p = softmax_rows(logits, classes, true);
  double total = 0;
  for (std::size_t r = 0; r < labels.size(); ++r) {
    if (labels[r] < 0) continue;
    for (std::size_t i = 0; i < classes; ++i)
      total -= log_p[r * classes + i] * ((labels[r] == static_cast<std::int32_t>(i) ? 1 - smoothing : 0) +
                                         smoothing / static_cast<double>(classes));
  }
  return {total * factor};
}

TEST(LossGradient, CrossEntropy) {
  const std::vector<std::int32_t> labels{2, 0, -1, 6, 2};
  for (const float smoothing : {0.0f, 0.1f})
    for (const float factor : {1.0f, 0.25f, 0.0f}) {
      SCOPED_TRACE(join("smoothing ", smoothing, ", factor ", factor));
      check_gradients(
          {random_input({5, 7}, 1, 2)},
          [&](const Tensors& in) { return cross_entropy(in[0], labels, smoothing, factor).total; },
          [&](const Inputs& in) { return textbook_loss(in[0], 7, labels, smoothing, factor); });
    }
}

TEST(LossGradient, LinearCrossEntropy) {
  // More rows than one block.
  std::vector<std::int32_t> labels;
  for (std::int32_t r = 0; r < 300; ++r) labels.push_back(r % 4 - 1);
  for (const float smoothing : {0.0f, 0.1f}) {
    SCOPED_TRACE(smoothing);
    check_gradients(
        {random_input({300, 2}, 1), random_input({3, 2}, 2), random_input({3}, 3)},
        [&](const Tensors& in) {
          return linear_cross_entropy(in[0], Weight(in[1]), in[2], labels, smoothing, 0.5f).total;
        },
        [&](const Inputs& in) {
          return textbook_loss(product(in[0], in[1], &in[2], 300, 2, 3), 3, labels, smoothing, 0.5);
        });
    check_gradients(
        {random_input({300, 2}, 1), random_input({3, 2}, 2)},
        [&](const Tensors& in) { return linear_cross_entropy(in[0], Weight(in[1]), {}, labels, smoothing).total; },
        [&](const Inputs& in) {
          return textbook_loss(product(in[0], in[1], nullptr, 300, 2, 3), 3, labels, smoothing, 1);
        });
  }
}

}  // namespace
}  // namespace attend
