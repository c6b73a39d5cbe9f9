// Everything that treats rows one by one: norms, activations, softmax, rotation, embedding, loss and optimiser steps.
// Rows are [rows, width] with a row stride in floats; buffers may be the same where "in place" is said. All parallel
// over rows (over columns for sums across rows), so results do not depend on the number of threads.
#pragma once

#include <cstdint>
#include <span>

#include "attend/activation.h"

namespace attend {

struct Rows {
  const float* data = nullptr;
  std::int64_t rows = 0, width = 0, stride = 0;
};
struct MutableRows {
  float* data = nullptr;
  std::int64_t rows = 0, width = 0, stride = 0;
};

// ---- Norms -----------------------------------------------------------------------------------------------------
// LayerNorm (Ba, Kiros, Hinton 2016): y = (x - mean) / sqrt(variance + epsilon) * gain + bias. gain, bias [width], bias
// may be null. statistics, when not null, receives [rows, 2]: mean and 1 / sqrt(variance + epsilon).
void layer_norm(Rows x, const float* gain, const float* bias, float epsilon, MutableRows y, float* statistics);
// Adds to x_gradient, gain_gradient, bias_gradient (each may be null).
void layer_norm_backward(Rows x, const float* gain, const float* statistics, Rows y_gradient, MutableRows x_gradient,
                         float* gain_gradient, float* bias_gradient);
// RMSNorm (Zhang and Sennrich 2019): y = x / sqrt(mean(x^2) + epsilon) * gain. statistics: [rows] of 1 / sqrt(...).
void rms_norm(Rows x, const float* gain, float epsilon, MutableRows y, float* statistics);
void rms_norm_backward(Rows x, const float* gain, const float* statistics, Rows y_gradient, MutableRows x_gradient,
                       float* gain_gradient);

// ---- Activations -----------------------------------------------------------------------------------------------
// relu; gelu = x * Phi(x) with the exact error function (Hendrycks and Gimpel 2016); gelu_tanh, its tanh form;
// silu = x * sigmoid(x). In place allowed.
void activate(Activation kind, Rows x, MutableRows y);
// x_gradient += y_gradient * activation'(x).
void activate_backward(Activation kind, Rows x, Rows y_gradient, MutableRows x_gradient);
// Gated unit (Shazeer 2020): y = activation(gate) * value.
void gate(Activation kind, Rows gate_input, Rows value, MutableRows y);
void gate_backward(Activation kind, Rows gate_input, Rows value, Rows y_gradient, MutableRows gate_gradient,
                   MutableRows value_gradient);

// ---- Softmax ---------------------------------------------------------------------------------------------------
// y = softmax(x) of each row; log_softmax likewise. In place allowed. A row of minus infinities gives 0 (minus
// infinity).
void softmax(Rows x, MutableRows y);
void log_softmax(Rows x, MutableRows y);

// ---- Positions -------------------------------------------------------------------------------------------------
// Rotary positions (Su et al. 2021): rotates pairs of each head by angle position * base^(-2i / rotary_dim).
// Pairing::interleaved pairs (2i, 2i+1); Pairing::halves pairs (i, i + rotary_dim / 2). Elements from rotary_dim on
// stay. cos_sin is [positions, rotary_dim / 2, 2] made by make_rotation. positions [rows]. inverse = true turns back
// (which is also the gradient). In place over [rows, heads, head_dim].
void make_rotation(std::int64_t positions, std::int64_t rotary_dim, double base, float* cos_sin);
void rotate(float* heads, std::int64_t rows, std::int64_t row_stride, std::int64_t head_count, std::int64_t head_dim,
            std::int64_t rotary_dim, Pairing pairing, const float* cos_sin, const std::int32_t* positions,
            bool inverse);

// ---- Embedding -------------------------------------------------------------------------------------------------
// y[r] = table[ids[r]] * scale. Ids are checked by the caller.
void gather_rows(const float* table, std::int64_t width, std::span<const std::int32_t> ids, float scale, MutableRows y);
// table_gradient[ids[r]] += y_gradient[r] * scale, rows in order for every id.
void scatter_add_rows(Rows y_gradient, std::span<const std::int32_t> ids, float scale, float* table_gradient);

// ---- Sums ------------------------------------------------------------------------------------------------------
void add_rows(Rows a, Rows b, MutableRows y);              // y = a + b; in place allowed
void accumulate_rows(Rows x, float scale, MutableRows y);  // y += scale * x
void sum_over_rows(Rows x, float* sums);                   // sums[width] += sum over rows, rows in order

// ---- Dropout ---------------------------------------------------------------------------------------------------
// y = x * kept / (1 - probability), the probability rounded to 16 bits; kept depends only on (seed, row, column).
// Backward is the same call on the gradient. With accumulate, y += instead. In place allowed.
void dropout_rows(Rows x, float probability, std::uint64_t seed, MutableRows y, bool accumulate = false);

// ---- Loss ------------------------------------------------------------------------------------------------------
// Cross-entropy with label smoothing (Szegedy et al. 2016) over rows of logits, fused with softmax: the smoothed target
// is 1 - smoothing on the label plus smoothing / width everywhere. losses[r] in nats (smoothed), plain[r] without
// smoothing (may be null). Overwrites logits with the gradient of the sum of losses times gradient_scale, unless
// gradient_scale is 0. Rows with label -1 count nothing: loss 0, gradient 0.
void cross_entropy(MutableRows logits, const std::int32_t* labels, float smoothing, float gradient_scale, float* losses,
                   float* plain);

// ---- Optimiser -------------------------------------------------------------------------------------------------
// One step of Adam (Kingma and Ba 2015), or AdamW with decoupled decay (Loshchilov and Hutter 2019) when decay > 0:
// value -= rate * (decay * value + m_hat / (sqrt(v_hat) + epsilon)). gradient is multiplied by gradient_scale first.
struct AdamStep {
  float rate, beta1, beta2, epsilon, decay;
  std::int64_t step;  // from 1
  float gradient_scale;
};
void adam_step(const AdamStep& step, std::int64_t size, float* value, const float* gradient, float* first,
               float* second);
// Sum of squares in double, in an order that does not depend on the number of threads.
double sum_of_squares(const float* data, std::int64_t size);
bool all_finite(const float* data, std::int64_t size);

}  // namespace attend
