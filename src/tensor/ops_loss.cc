// Losses. Cross-entropy makes its gradient in the same pass as its value: both need the softmax.
#include <algorithm>
#include <atomic>
#include <utility>
#include <vector>

#include "attend/ops.h"
#include "kernel/matrix/packed_matrix.h"
#include "tensor/loops.h"

namespace attend {
namespace {

void check_labels(const char* where, std::int64_t rows, std::int64_t classes, std::span<const std::int32_t> labels,
                  float smoothing) {
  if (static_cast<std::int64_t>(labels.size()) != rows)
    throw Error(ErrorKind::shape, where, join(labels.size(), " labels for ", rows, " rows"), "give one label a row");
  for (std::size_t row = 0; row < labels.size(); ++row)
    if (labels[row] < -1 || labels[row] >= classes)
      throw Error(ErrorKind::argument, where, join("row ", row, " has label ", labels[row]),
                  join("labels go from 0 to ", classes - 1, ", or -1 for a row that does not count"));
  if (!(smoothing >= 0 && smoothing < 1))
    throw Error(ErrorKind::argument, where, join("smoothing ", smoothing), "give 0 or more and less than 1");
}

// How many labelled rows have no logit above their label's.
std::int64_t count_correct(const Tensor& logits, const std::int32_t* labels) {
  std::atomic<std::int64_t> correct{0};
  const std::int64_t width = logits.width();
  parallel_ranges(logits.rows(), rows_grain(width), [&](std::int64_t begin, std::int64_t end, int) {
    std::int64_t found = 0;
    for (std::int64_t row = begin; row < end; ++row) {
      if (labels[row] < 0) continue;
      const float* logit = logits.row(row);
      const float own = logit[labels[row]];
      // Piece by piece, because most wrong rows show it early; a count within a piece, because a plain sum of integers is
      // what the compiler can vectorise. NaN is never correct.
      constexpr std::int64_t piece = 256;
      bool largest = true;
      for (std::int64_t begin_piece = 0; largest && begin_piece < width; begin_piece += piece) {
        const std::int64_t end_piece = std::min(width, begin_piece + piece);
        int not_above = 0;
        for (std::int64_t i = begin_piece; i < end_piece; ++i) not_above += logit[i] <= own ? 1 : 0;
        largest = not_above == end_piece - begin_piece;
      }
      found += largest ? 1 : 0;
    }
    correct.fetch_add(found, std::memory_order_relaxed);
  });
  return correct.load();
}

// The scale the kernel is given, and what is left for the backward step: to the kernel 0 means "no gradient".
float kernel_scale(const Tape* tape, float factor) { return tape == nullptr ? 0 : factor == 0 ? 1 : factor; }
float rest_of(float factor) { return factor == 0 ? 0 : 1; }

// Runs the kernel over a block of rows, turns its logits into gradients if asked, and adds to the result.
void loss_of_block(Tensor& logits, const std::int32_t* labels, float smoothing, float gradient_scale,
                   std::vector<float>& losses, std::vector<float>& plain, LossResult& result) {
  const std::int64_t rows = logits.rows();
  losses.resize(static_cast<std::size_t>(rows));
  plain.resize(static_cast<std::size_t>(rows));
  result.correct += count_correct(logits, labels);
  cross_entropy(rows_to(logits), labels, smoothing, gradient_scale, losses.data(), plain.data());
  for (std::int64_t row = 0; row < rows; ++row) {
    if (labels[row] < 0) continue;
    ++result.labels;
    result.smoothed += static_cast<double>(losses[static_cast<std::size_t>(row)]);
    result.plain += static_cast<double>(plain[static_cast<std::size_t>(row)]);
  }
}

}  // namespace

LossResult cross_entropy(const Tensor& logits, std::span<const std::int32_t> labels, float smoothing, float factor) {
  require_defined("cross_entropy", "logits", logits);
  check_labels("cross_entropy", logits.rows(), logits.width(), labels, smoothing);
  Tape* tape = tape_for({&logits});
  LossResult result;
  std::vector<float> losses, plain;
  Tensor gradient = tape != nullptr ? logits.clone() : logits;
  loss_of_block(gradient, labels.data(), smoothing, kernel_scale(tape, factor), losses, plain, result);
  result.total = Tensor::filled({1}, static_cast<float>(result.smoothed * factor));
  if (tape != nullptr) {
    tape->record(result.total, [total = result.total.place(), input = logits.place(), gradient,
                                rest = rest_of(factor)](Tape& steps) mutable {
      steps.add_gradient(input, std::exchange(gradient, {}), steps.gradient_of_output(total).item() * rest);
    });
  }
  return result;
}

LossResult linear_cross_entropy(const Tensor& x, const Weight& weight, const Tensor& bias,
                                std::span<const std::int32_t> labels, float smoothing, float factor) {
  // Enough rows that reading the weights again for every block costs little beside the product.
  constexpr std::int64_t block_rows = 256;
  const char* where = "linear_cross_entropy";
  require_defined(where, "x", x);
  const std::int64_t rows = x.rows(), inputs = weight.inputs(), classes = weight.outputs();
  if (x.width() != inputs)
    throw Error(ErrorKind::shape, where, join("x is ", x.shape(), " and the weight ", weight.value().shape()),
                join("x must have ", inputs, " columns, the weight's inputs"));
  if (bias.defined() && (bias.elements() != classes || !bias.contiguous()))
    throw Error(ErrorKind::shape, where, join("bias is ", bias.shape(), " and the weight ", weight.value().shape()),
                join("bias must be [", classes, "], the weight's outputs"));
  check_labels(where, rows, classes, labels, smoothing);

  Tape* tape = tape_for({&x, &weight.value(), &bias});
  const auto tracked = [&](const Tensor& input) { return tape != nullptr && input.defined() && tape->tracks(input); };
  Tensor x_gradient = tracked(x) ? Tensor::empty(x.shape()) : Tensor();
  Tensor weight_gradient = tracked(weight.value()) ? Tensor::zeros(weight.value().shape()) : Tensor();
  Tensor bias_gradient = tracked(bias) ? Tensor::zeros(bias.shape()) : Tensor();

  LossResult result;
  std::vector<float> losses, plain;
  ProductEnd end;
  end.bias = bias.defined() ? bias.data() : nullptr;
  const Tensor buffer = Tensor::empty({std::min(block_rows, rows), classes});
  for (std::int64_t begin = 0; begin < rows; begin += block_rows) {
    const std::int64_t count = std::min(block_rows, rows - begin);
    Tensor logits = buffer.row_range(0, count);
    multiply(x.row(begin), x.row_stride(), count, weight.for_product(), logits.data(), classes, end);
    loss_of_block(logits, labels.data() + begin, smoothing, kernel_scale(tape, factor), losses, plain, result);
    if (x_gradient.defined())
      multiply(logits.data(), classes, count, weight.for_gradient(), x_gradient.row(begin), x_gradient.row_stride());
    if (weight_gradient.defined())
      multiply_transposed(logits.data(), classes, x.row(begin), x.row_stride(), count, classes, inputs,
                          weight_gradient.data(), inputs);
    if (bias_gradient.defined()) sum_over_rows(rows_of(logits), bias_gradient.data());
  }
  result.total = Tensor::filled({1}, static_cast<float>(result.smoothed * factor));
  if (tape != nullptr) {
    tape->record(result.total, [total = result.total.place(), x_place = x.place(),
                                weight_place = weight.value().place(), bias_place = bias.place(), x_gradient,
                                weight_gradient, bias_gradient, rest = rest_of(factor)](Tape& steps) mutable {
      const float gradient = steps.gradient_of_output(total).item() * rest;
      if (x_gradient.defined()) steps.add_gradient(x_place, std::exchange(x_gradient, {}), gradient);
      if (weight_gradient.defined()) steps.add_gradient(weight_place, std::exchange(weight_gradient, {}), gradient);
      if (bias_gradient.defined()) steps.add_gradient(bias_place, std::exchange(bias_gradient, {}), gradient);
    });
  }
  return result;
}

Tensor squared_error(const Tensor& x, const Tensor& target) {
  require_same_shape("squared_error", "x", x, "target", target);
  const Tensor difference = subtract(x, target);
  return mean(multiply(difference, difference));
}

}  // namespace attend
