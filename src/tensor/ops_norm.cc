// Norms and softmax, row by row.
#include <cmath>
#include <limits>
#include <vector>

#include "attend/ops.h"
#include "tensor/loops.h"

namespace attend {

Tensor layer_norm(const Tensor& x, const Tensor& gain, const Tensor& bias, float epsilon) {
  require_defined("layer_norm", "x", x);
  require_columns("layer_norm", "gain", gain, "x", x);
  if (bias.defined()) require_columns("layer_norm", "bias", bias, "x", x);
  Tape* tape = tape_for({&x, &gain, &bias});
  Tensor y = Tensor::empty(x.shape());
  Tensor statistics = tape != nullptr ? Tensor::empty({x.rows(), 2}) : Tensor();
  layer_norm(rows_of(x), gain.data(), bias.defined() ? bias.data() : nullptr, epsilon, rows_to(y), statistics.data());
  if (tape != nullptr) {
    tape->record(y, [output = y.place(), x, gain, bias_place = bias.place(), statistics](Tape& steps) {
      const Tensor dy = steps.gradient_of_output(output);
      Tensor dx = steps.gradient_of_input(x);
      Tensor gain_gradient = steps.gradient_of_input(gain), bias_gradient = steps.gradient_of_input(bias_place);
      layer_norm_backward(rows_of(x), gain.data(), statistics.data(), rows_of(dy), rows_to(dx), gain_gradient.data(),
                          bias_gradient.data());
    });
  }
  return y;
}

Tensor rms_norm(const Tensor& x, const Tensor& gain, float epsilon) {
  require_defined("rms_norm", "x", x);
  require_columns("rms_norm", "gain", gain, "x", x);
  Tape* tape = tape_for({&x, &gain});
  Tensor y = Tensor::empty(x.shape());
  Tensor statistics = tape != nullptr ? Tensor::empty({x.rows()}) : Tensor();
  rms_norm(rows_of(x), gain.data(), epsilon, rows_to(y), statistics.data());
  if (tape != nullptr) {
    tape->record(y, [output = y.place(), x, gain, statistics](Tape& steps) {
      const Tensor dy = steps.gradient_of_output(output);
      Tensor dx = steps.gradient_of_input(x);
      Tensor gain_gradient = steps.gradient_of_input(gain);
      rms_norm_backward(rows_of(x), gain.data(), statistics.data(), rows_of(dy), rows_to(dx), gain_gradient.data());
    });
  }
  return y;
}

namespace {

double mean_of(const float* x, std::int64_t width) {
  double sum = 0;
  for (std::int64_t i = 0; i < width; ++i) sum += static_cast<double>(x[i]);
  return sum / static_cast<double>(width);
}

}  // namespace

Tensor norm_deviations(const Tensor& x, bool centred, float epsilon) {
  require_defined("norm_deviations", "x", x);
  Tensor deviations = Tensor::empty({x.rows(), 1});
  const std::int64_t width = x.width();
  parallel_ranges(x.rows(), rows_grain(width), [&](std::int64_t begin, std::int64_t end, int) {
    for (std::int64_t row = begin; row < end; ++row) {
      const float* values = x.row(row);
      const double mean = centred ? mean_of(values, width) : 0;
      double sum = 0;
      for (std::int64_t i = 0; i < width; ++i)
        sum += (static_cast<double>(values[i]) - mean) * (static_cast<double>(values[i]) - mean);
      deviations.row(row)[0] =
          static_cast<float>(std::sqrt(sum / static_cast<double>(width) + static_cast<double>(epsilon)));
    }
  });
  if (Tape* tape = tape_for({&x})) {
    tape->record(deviations, [deviations, x, centred, width](Tape& steps) {
      const Tensor dy = steps.gradient_of_output(deviations);
      Tensor dx = steps.gradient_of_input(x);
      parallel_ranges(x.rows(), rows_grain(width), [&](std::int64_t begin, std::int64_t end, int) {
        for (std::int64_t row = begin; row < end; ++row) {
          const auto mean = static_cast<float>(centred ? mean_of(x.row(row), width) : 0);
          const float factor = dy.row(row)[0] / (static_cast<float>(width) * deviations.at(row, 0));
          for (std::int64_t i = 0; i < width; ++i) dx.row(row)[i] += (x.row(row)[i] - mean) * factor;
        }
      });
    });
  }
  return deviations;
}

Tensor norm_by(const Tensor& x, const Tensor& deviations, const Tensor& gain, const Tensor& bias, bool centred) {
  require_defined("norm_by", "x", x);
  require_columns("norm_by", "gain", gain, "x", x);
  if (bias.defined()) require_columns("norm_by", "bias", bias, "x", x);
  if (!deviations.defined() || deviations.elements() != x.rows() || !deviations.contiguous())
    throw Error(ErrorKind::shape, "norm_by", join("deviations is ", shape_text(deviations), " and x is ", x.shape()),
                join("deviations must be [", x.rows(), ", 1], one number a row"));
  Tape* tape = tape_for({&x, &deviations, &gain, &bias});
  Tensor y = Tensor::empty(x.shape());
  const std::int64_t width = x.width();
  parallel_ranges(x.rows(), rows_grain(width), [&](std::int64_t begin, std::int64_t end, int) {
    for (std::int64_t row = begin; row < end; ++row) {
      const float* in = x.row(row);
      float* out = y.row(row);
      const auto mean = static_cast<float>(centred ? mean_of(in, width) : 0);
      const float inverse = 1 / deviations.data()[row];
      for (std::int64_t i = 0; i < width; ++i)
        out[i] = (in[i] - mean) * inverse * gain.data()[i] + (bias.defined() ? bias.data()[i] : 0);
    }
  });
  if (tape != nullptr) {
    tape->record(y, [output = y.place(), x, deviations, gain, bias_place = bias.place(), centred, width](Tape& steps) {
      const Tensor dy = steps.gradient_of_output(output);
      Tensor dx = steps.gradient_of_input(x), gain_gradient = steps.gradient_of_input(gain),
             bias_gradient = steps.gradient_of_input(bias_place), of_deviations = steps.gradient_of_input(deviations);
      const auto mean_of_row = [&](std::int64_t row) {
        return static_cast<float>(centred ? mean_of(x.row(row), width) : 0);
      };
      if (dx.defined())
        parallel_ranges(x.rows(), rows_grain(width), [&](std::int64_t begin, std::int64_t end, int) {
          for (std::int64_t row = begin; row < end; ++row) {
            const float* slopes = dy.row(row);
            const float inverse = 1 / deviations.data()[row];
            double sum = 0;
            for (std::int64_t i = 0; i < width && centred; ++i) sum += static_cast<double>(slopes[i]) * gain.data()[i];
            const auto mean = static_cast<float>(sum / static_cast<double>(width));
            for (std::int64_t i = 0; i < width; ++i) dx.row(row)[i] += (slopes[i] * gain.data()[i] - mean) * inverse;
          }
        });
      for (std::int64_t row = 0; row < x.rows() && of_deviations.defined(); ++row) {
        const float mean = mean_of_row(row);
        double sum = 0;
        for (std::int64_t i = 0; i < width; ++i)
          sum += static_cast<double>(dy.row(row)[i]) * gain.data()[i] * (x.row(row)[i] - mean);
        of_deviations.data()[row] -=
            static_cast<float>(sum / (static_cast<double>(deviations.data()[row]) * deviations.data()[row]));
      }
      // Columns are split, rows summed in order: the same bits for any number of threads.
      std::vector<float> means(static_cast<std::size_t>(x.rows()));
      for (std::int64_t row = 0; row < x.rows(); ++row) means[static_cast<std::size_t>(row)] = mean_of_row(row);
      parallel_ranges(width, std::max<std::int64_t>(1, element_grain / std::max<std::int64_t>(1, x.rows())),
                      [&](std::int64_t begin, std::int64_t end, int) {
                        for (std::int64_t i = begin; i < end; ++i) {
                          double of_gain = 0, of_bias = 0;
                          for (std::int64_t row = 0; row < x.rows(); ++row) {
                            const double slope = static_cast<double>(dy.row(row)[i]);
                            of_gain +=
                                slope * static_cast<double>((x.row(row)[i] - means[static_cast<std::size_t>(row)]) /
                                                            deviations.data()[row]);
                            of_bias += slope;
                          }
                          if (gain_gradient.defined()) gain_gradient.data()[i] += static_cast<float>(of_gain);
                          if (bias_gradient.defined()) bias_gradient.data()[i] += static_cast<float>(of_bias);
                        }
                      });
    });
  }
  return y;
}

namespace {

// dx = or += f(y row, dy row), row by row, where f(y, dy, width) gives a function of one element's (y, dy).
template <typename RowFunction>
void softmax_backward(Tensor& dx, bool overwrite, const Tensor& y, const Tensor& dy, RowFunction row_function) {
  const std::int64_t width = y.width();
  parallel_ranges(y.rows(), rows_grain(width), [&](std::int64_t begin, std::int64_t end, int) {
    for (std::int64_t row = begin; row < end; ++row) {
      const float* value = y.row(row);
      const float* gradient = dy.row(row);
      float* out = dx.row(row);
      const auto element = row_function(value, gradient, width);
      for (std::int64_t i = 0; i < width; ++i) out[i] = (overwrite ? 0 : out[i]) + element(value[i], gradient[i]);
    }
  });
}

}  // namespace

Tensor softmax(const Tensor& x) {
  require_defined("softmax", "x", x);
  Tensor y = Tensor::empty(x.shape());
  softmax(rows_of(x), rows_to(y));
  if (Tape* tape = tape_for({&x})) {
    tape->record(y, [y, input = x.place()](Tape& steps) {
      const Tensor dy = steps.gradient_of_output(y);
      bool first = false;
      Tensor dx = steps.gradient_of_input(input, &first);
      softmax_backward(dx, first, y, dy, [](const float* value, const float* gradient, std::int64_t width) {
        const float mean = dot(value, gradient, width);
        return [mean](float weight, float g) { return weight * (g - mean); };
      });
    });
  }
  return y;
}

Tensor log_softmax(const Tensor& x) {
  require_defined("log_softmax", "x", x);
  Tensor y = Tensor::empty(x.shape());
  log_softmax(rows_of(x), rows_to(y));
  if (Tape* tape = tape_for({&x})) {
    tape->record(y, [y, input = x.place()](Tape& steps) {
      const Tensor dy = steps.gradient_of_output(y);
      bool first = false;
      Tensor dx = steps.gradient_of_input(input, &first);
      softmax_backward(dx, first, y, dy, [](const float*, const float* gradient, std::int64_t width) {
        double sum = 0;
        for (std::int64_t i = 0; i < width; ++i) sum += gradient[i];
        const float total = static_cast<float>(sum);
        return [total](float log_weight, float g) { return g - std::exp(log_weight) * total; };
      });
    });
  }
  return y;
}

}  // namespace attend
