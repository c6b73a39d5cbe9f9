#include "kernel/rowwise/rowwise.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include "core/random.h"
#include "core/threads.h"

namespace attend {
namespace {

double normal_below(double x) { return 0.5 * std::erfc(-x * 0.7071067811865476); }

float activated(Activation kind, float value) {
  const double x = value;
  switch (kind) {
    case Activation::none: return value;
    case Activation::relu: return value > 0 ? value : 0;
    case Activation::gelu: return static_cast<float>(x * normal_below(x));
    case Activation::gelu_tanh: return static_cast<float>(x / (1 + std::exp(-2 * 0.7978845608028654 * (x + 0.044715 * x * x * x))));
    case Activation::silu: return static_cast<float>(x / (1 + std::exp(-x)));
  }
  return value;
}

float slope(Activation kind, float value) {
  const double x = value;
  switch (kind) {
    case Activation::none: return 1;
    case Activation::relu: return value > 0 ? 1 : 0;
    case Activation::gelu: return static_cast<float>(normal_below(x) + x * std::exp(-0.5 * x * x) * 0.3989422804014327);
    case Activation::gelu_tanh: {
      const double s = 1 / (1 + std::exp(-2 * 0.7978845608028654 * (x + 0.044715 * x * x * x)));
      return static_cast<float>(s + x * s * (1 - s) * 2 * 0.7978845608028654 * (1 + 3 * 0.044715 * x * x));
    }
    case Activation::silu: {
      const double s = 1 / (1 + std::exp(-x));
      return static_cast<float>(s * (1 + x * (1 - s)));
    }
  }
  return 1;
}

template <typename Function>
void each_row(std::int64_t rows, Function&& function) {
  parallel_ranges(rows, 8, [&](std::int64_t begin, std::int64_t end, int) {
    for (std::int64_t r = begin; r < end; ++r) function(r);
  });
}

}  // namespace

void layer_norm(Rows x, const float* gain, const float* bias, float epsilon, MutableRows y, float* statistics) {
  each_row(x.rows, [&](std::int64_t r) {
    const float* in = x.data + r * x.stride;
    float* out = y.data + r * y.stride;
    double sum = 0, squares = 0;
    for (std::int64_t j = 0; j < x.width; ++j) sum += in[j];
    const double mean = sum / static_cast<double>(x.width);
    for (std::int64_t j = 0; j < x.width; ++j) squares += (in[j] - mean) * (in[j] - mean);
    const double inverse = 1 / std::sqrt(squares / static_cast<double>(x.width) + epsilon);
    for (std::int64_t j = 0; j < x.width; ++j)
      out[j] = static_cast<float>((in[j] - mean) * inverse * gain[j] + (bias ? bias[j] : 0));
    if (statistics) statistics[2 * r] = static_cast<float>(mean), statistics[2 * r + 1] = static_cast<float>(inverse);
  });
}

void layer_norm_backward(Rows x, const float* gain, const float* statistics, Rows y_gradient, MutableRows x_gradient,
                         float* gain_gradient, float* bias_gradient) {
  for (std::int64_t r = 0; r < x.rows; ++r) {
    const float* in = x.data + r * x.stride;
    const float* dy = y_gradient.data + r * y_gradient.stride;
    const float mean = statistics[2 * r], inverse = statistics[2 * r + 1];
    double a = 0, b = 0;
    for (std::int64_t j = 0; j < x.width; ++j) {
      const float hat = (in[j] - mean) * inverse;
      a += dy[j] * gain[j];
      b += dy[j] * gain[j] * hat;
      if (gain_gradient) gain_gradient[j] += dy[j] * hat;
      if (bias_gradient) bias_gradient[j] += dy[j];
    }
    a /= static_cast<double>(x.width);
    b /= static_cast<double>(x.width);
    if (x_gradient.data)
      for (std::int64_t j = 0; j < x.width; ++j)
        x_gradient.data[r * x_gradient.stride + j] +=
            static_cast<float>(inverse * (dy[j] * gain[j] - a - (in[j] - mean) * inverse * b));
  }
}

void rms_norm(Rows x, const float* gain, float epsilon, MutableRows y, float* statistics) {
  each_row(x.rows, [&](std::int64_t r) {
    const float* in = x.data + r * x.stride;
    double squares = 0;
    for (std::int64_t j = 0; j < x.width; ++j) squares += static_cast<double>(in[j]) * in[j];
    const double inverse = 1 / std::sqrt(squares / static_cast<double>(x.width) + epsilon);
    for (std::int64_t j = 0; j < x.width; ++j) y.data[r * y.stride + j] = static_cast<float>(in[j] * inverse * gain[j]);
    if (statistics) statistics[r] = static_cast<float>(inverse);
  });
}

void rms_norm_backward(Rows x, const float* gain, const float* statistics, Rows y_gradient, MutableRows x_gradient,
                       float* gain_gradient) {
  for (std::int64_t r = 0; r < x.rows; ++r) {
    const float* in = x.data + r * x.stride;
    const float* dy = y_gradient.data + r * y_gradient.stride;
    const float inverse = statistics[r];
    double b = 0;
    for (std::int64_t j = 0; j < x.width; ++j) {
      b += dy[j] * gain[j] * in[j] * inverse;
      if (gain_gradient) gain_gradient[j] += dy[j] * in[j] * inverse;
    }
    b /= static_cast<double>(x.width);
    if (x_gradient.data)
      for (std::int64_t j = 0; j < x.width; ++j)
        x_gradient.data[r * x_gradient.stride + j] += static_cast<float>(inverse * (dy[j] * gain[j] - in[j] * inverse * b));
  }
}

void activate(Activation kind, Rows x, MutableRows y) {
  each_row(x.rows, [&](std::int64_t r) {
    for (std::int64_t j = 0; j < x.width; ++j) y.data[r * y.stride + j] = activated(kind, x.data[r * x.stride + j]);
  });
}

void activate_backward(Activation kind, Rows x, Rows y_gradient, MutableRows x_gradient) {
  each_row(x.rows, [&](std::int64_t r) {
    for (std::int64_t j = 0; j < x.width; ++j)
      x_gradient.data[r * x_gradient.stride + j] +=
          y_gradient.data[r * y_gradient.stride + j] * slope(kind, x.data[r * x.stride + j]);
  });
}

void gate(Activation kind, Rows gate_input, Rows value, MutableRows y) {
  each_row(value.rows, [&](std::int64_t r) {
    for (std::int64_t j = 0; j < value.width; ++j)
      y.data[r * y.stride + j] =
          activated(kind, gate_input.data[r * gate_input.stride + j]) * value.data[r * value.stride + j];
  });
}

void gate_backward(Activation kind, Rows gate_input, Rows value, Rows y_gradient, MutableRows gate_gradient, MutableRows value_gradient) {
  each_row(value.rows, [&](std::int64_t r) {
    for (std::int64_t j = 0; j < value.width; ++j) {
      const float g = gate_input.data[r * gate_input.stride + j], v = value.data[r * value.stride + j];
      const float dy = y_gradient.data[r * y_gradient.stride + j];
      gate_gradient.data[r * gate_gradient.stride + j] += dy * v * slope(kind, g);
      value_gradient.data[r * value_gradient.stride + j] += dy * activated(kind, g);
    }
  });
}

void softmax(Rows x, MutableRows y) {
  each_row(x.rows, [&](std::int64_t r) {
    const float* in = x.data + r * x.stride;
    float* out = y.data + r * y.stride;
    float top = -std::numeric_limits<float>::infinity();
    for (std::int64_t j = 0; j < x.width; ++j) top = std::max(top, in[j]);
    if (top == -std::numeric_limits<float>::infinity()) {
      std::fill_n(out, x.width, 0.0f);
      return;
    }
    double sum = 0;
    for (std::int64_t j = 0; j < x.width; ++j) sum += out[j] = std::exp(in[j] - top);
    for (std::int64_t j = 0; j < x.width; ++j) out[j] = static_cast<float>(out[j] / sum);
  });
}

void log_softmax(Rows x, MutableRows y) {
  each_row(x.rows, [&](std::int64_t r) {
    const float* in = x.data + r * x.stride;
    float* out = y.data + r * y.stride;
    float top = -std::numeric_limits<float>::infinity();
    for (std::int64_t j = 0; j < x.width; ++j) top = std::max(top, in[j]);
    if (top == -std::numeric_limits<float>::infinity()) {
      std::fill_n(out, x.width, top);
      return;
    }
    double sum = 0;
    for (std::int64_t j = 0; j < x.width; ++j) sum += std::exp(in[j] - top);
    const double log_sum = std::log(sum);
    for (std::int64_t j = 0; j < x.width; ++j) out[j] = static_cast<float>((in[j] - top) - log_sum);
  });
}

void make_rotation(std::int64_t positions, std::int64_t rotary_dim, double base, float* cos_sin) {
  const std::int64_t half = rotary_dim / 2;
  for (std::int64_t p = 0; p < positions; ++p)
    for (std::int64_t i = 0; i < half; ++i) {
      const double angle = static_cast<double>(p) * std::pow(base, -2.0 * static_cast<double>(i) / static_cast<double>(rotary_dim));
      cos_sin[(p * half + i) * 2] = static_cast<float>(std::cos(angle));
      cos_sin[(p * half + i) * 2 + 1] = static_cast<float>(std::sin(angle));
    }
}

void rotate(float* heads, std::int64_t rows, std::int64_t row_stride, std::int64_t head_count, std::int64_t head_dim,
            std::int64_t rotary_dim, Pairing pairing, const float* cos_sin, const std::int32_t* positions, bool inverse) {
  const std::int64_t half = rotary_dim / 2;
  each_row(rows, [&](std::int64_t r) {
    const float* angles = cos_sin + positions[r] * rotary_dim;
    for (std::int64_t h = 0; h < head_count; ++h) {
      float* head = heads + r * row_stride + h * head_dim;
      for (std::int64_t i = 0; i < half; ++i) {
        float& x = pairing == Pairing::halves ? head[i] : head[2 * i];
        float& y = pairing == Pairing::halves ? head[i + half] : head[2 * i + 1];
        const float c = angles[2 * i], s = inverse ? -angles[2 * i + 1] : angles[2 * i + 1];
        const float turned = x * c - y * s;
        y = x * s + y * c;
        x = turned;
      }
    }
  });
}

void gather_rows(const float* table, std::int64_t width, std::span<const std::int32_t> ids, float scale, MutableRows y) {
  each_row(static_cast<std::int64_t>(ids.size()), [&](std::int64_t r) {
    const float* row = table + ids[static_cast<std::size_t>(r)] * width;
    for (std::int64_t j = 0; j < width; ++j) y.data[r * y.stride + j] = row[j] * scale;
  });
}

void scatter_add_rows(Rows y_gradient, std::span<const std::int32_t> ids, float scale, float* table_gradient) {
  const std::int64_t width = y_gradient.width;
  for (std::size_t r = 0; r < ids.size(); ++r)
    for (std::int64_t j = 0; j < width; ++j)
      table_gradient[ids[r] * width + j] += scale * y_gradient.data[static_cast<std::int64_t>(r) * y_gradient.stride + j];
}

void add_rows(Rows a, Rows b, MutableRows y) {
  each_row(a.rows, [&](std::int64_t r) {
    for (std::int64_t j = 0; j < a.width; ++j) y.data[r * y.stride + j] = a.data[r * a.stride + j] + b.data[r * b.stride + j];
  });
}

void accumulate_rows(Rows x, float scale, MutableRows y) {
  each_row(x.rows, [&](std::int64_t r) {
    for (std::int64_t j = 0; j < x.width; ++j) y.data[r * y.stride + j] += scale * x.data[r * x.stride + j];
  });
}

void sum_over_rows(Rows x, float* sums) {
  for (std::int64_t r = 0; r < x.rows; ++r)
    for (std::int64_t j = 0; j < x.width; ++j) sums[j] += x.data[r * x.stride + j];
}

void dropout_rows(Rows x, float probability, std::uint64_t seed, MutableRows y, bool accumulate) {
  const auto threshold = static_cast<std::uint32_t>(std::lround(static_cast<double>(probability) * 65536));
  const float scale = threshold < 65536 ? 1 / (1 - probability) : 0;
  each_row(x.rows, [&](std::int64_t r) {
    for (std::int64_t j = 0; j < x.width; ++j) {
      const auto words = philox({static_cast<std::uint32_t>(seed), static_cast<std::uint32_t>(seed >> 32)},
                                {static_cast<std::uint32_t>(j / 128 * 16 + j % 16), static_cast<std::uint32_t>(r),
                                 static_cast<std::uint32_t>(static_cast<std::uint64_t>(r) >> 32), 0x44524F50u});
      const std::uint32_t word = words[static_cast<std::size_t>(j / 16 % 4)];
      const std::uint32_t draw = j % 128 < 64 ? word & 0xFFFFu : word >> 16;
      const float kept = draw >= threshold ? x.data[r * x.stride + j] * scale : 0;
      float& out = y.data[r * y.stride + j];
      out = accumulate ? out + kept : kept;
    }
  });
}

void cross_entropy(MutableRows logits, const std::int32_t* labels, float smoothing, float gradient_scale, float* losses, float* plain) {
  each_row(logits.rows, [&](std::int64_t r) {
    float* row = logits.data + r * logits.stride;
    const std::int64_t width = logits.width;
    if (labels[r] < 0) {
      losses[r] = 0;
      if (plain) plain[r] = 0;
      if (gradient_scale != 0) std::fill_n(row, width, 0.0f);
      return;
    }
    float top = -std::numeric_limits<float>::infinity();
    double sum_of_logits = 0, sum = 0;
    for (std::int64_t j = 0; j < width; ++j) top = std::max(top, row[j]), sum_of_logits += row[j];
    for (std::int64_t j = 0; j < width; ++j) sum += std::exp(static_cast<double>(row[j]) - top);
    const double log_sum = top + std::log(sum);
    const double label_loss = log_sum - row[labels[r]];
    losses[r] = static_cast<float>((1 - smoothing) * label_loss +
                                   smoothing * (log_sum - sum_of_logits / static_cast<double>(width)));
    if (plain) plain[r] = static_cast<float>(label_loss);
    if (gradient_scale == 0) return;
    for (std::int64_t j = 0; j < width; ++j) {
      const double target = smoothing / static_cast<double>(width) + (j == labels[r] ? 1 - smoothing : 0);
      row[j] = static_cast<float>((std::exp(row[j] - log_sum) - target) * gradient_scale);
    }
  });
}

void adam_step(const AdamStep& step, std::int64_t size, float* value, const float* gradient, float* first, float* second) {
  const double correction1 = 1 - std::pow(static_cast<double>(step.beta1), static_cast<double>(step.step));
  const double correction2 = 1 - std::pow(static_cast<double>(step.beta2), static_cast<double>(step.step));
  parallel_ranges(size, 1 << 14, [&](std::int64_t begin, std::int64_t end, int) {
    for (std::int64_t i = begin; i < end; ++i) {
      const float g = gradient[i] * step.gradient_scale;
      first[i] = step.beta1 * first[i] + (1 - step.beta1) * g;
      second[i] = step.beta2 * second[i] + (1 - step.beta2) * g * g;
      const double direction = first[i] / correction1 / (std::sqrt(second[i] / correction2) + step.epsilon);
      value[i] -= static_cast<float>(step.rate * (step.decay * value[i] + direction));
    }
  });
}

double sum_of_squares(const float* data, std::int64_t size) {
  double sum = 0;
  for (std::int64_t i = 0; i < size; ++i) sum += static_cast<double>(data[i]) * data[i];
  return sum;
}

bool all_finite(const float* data, std::int64_t size) {
  for (std::int64_t i = 0; i < size; ++i)
    if (!std::isfinite(data[i])) return false;
  return true;
}

}  // namespace attend
