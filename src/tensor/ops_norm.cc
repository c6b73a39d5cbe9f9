// Norms and softmax, row by row.
#include <cmath>
#include <limits>

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
