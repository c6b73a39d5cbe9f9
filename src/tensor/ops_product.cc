// Products with weights and of two tensors.
#include <utility>

#include "attend/ops.h"
#include "kernel/matrix/packed_matrix.h"
#include "tensor/loops.h"

namespace attend {
namespace {

// The gradient before the activation. `seen` is the output for relu, the value before the activation for the others.
Tensor gradient_before(Tape& tape, const Tensor& output, Activation activation, const Tensor& seen) {
  if (activation == Activation::none) return tape.gradient_of_output(output);
  if (activation == Activation::relu) {
    Tensor gradient = tape.writable_gradient_of_output(output);
    map_into(
        gradient, true, [](float dy, float y) { return y > 0 ? dy : 0; }, gradient, seen);
    return gradient;
  }
  Tensor gradient = Tensor::zeros(seen.shape());
  const Tensor output_gradient = tape.gradient_of_output(output);
  activate_backward(activation, rows_of(seen), rows_of(output_gradient), rows_to(gradient));
  return gradient;
}

}  // namespace

Tensor linear(const Tensor& x, const Weight& weight, const Tensor& bias, Activation activation) {
  require_defined("linear", "x", x);
  const std::int64_t inputs = weight.inputs(), outputs = weight.outputs();
  if (x.width() != inputs)
    throw Error(ErrorKind::shape, "linear", join("x is ", x.shape(), " and the weight ", weight.value().shape()),
                join("x must have ", inputs, " columns, the weight's inputs"));
  if (bias.defined() && (bias.elements() != outputs || !bias.contiguous()))
    throw Error(ErrorKind::shape, "linear", join("bias is ", bias.shape(), " and the weight ", weight.value().shape()),
                join("bias must be [", outputs, "], the weight's outputs"));

  Tape* tape = tape_for({&x, &weight.value(), &bias});
  Tensor y = Tensor::empty(with_width(x.shape(), outputs));
  Tensor seen_by_derivative;
  ProductEnd end;
  end.bias = bias.defined() ? bias.data() : nullptr;
  end.activation = activation;
  if (tape != nullptr && activation == Activation::relu) seen_by_derivative = y;
  if (tape != nullptr && activation != Activation::none && activation != Activation::relu) {
    seen_by_derivative = Tensor::empty(y.shape());
    end.before_activation = seen_by_derivative.data();
  }
  multiply(x.data(), x.row_stride(), x.rows(), weight.for_product(), y.data(), y.row_stride(), end);

  if (tape != nullptr) {
    // The values of x are needed for the weight's gradient only.
    const Tensor kept_x = tape->tracks(weight.value()) ? x : x.place();
    tape->record(y, [output = y.place(), seen_by_derivative, kept_x, weight, bias_place = bias.place(),
                     activation](Tape& steps) {
      const Tensor dy = gradient_before(steps, output, activation, seen_by_derivative);
      if (Tensor bias_gradient = steps.gradient_of_input(bias_place); bias_gradient.defined())
        sum_over_rows(rows_of(dy), bias_gradient.data());
      if (Tensor weight_gradient = steps.gradient_of_input(weight.value()); weight_gradient.defined())
        multiply_transposed(dy.data(), dy.row_stride(), kept_x.data(), kept_x.row_stride(), dy.rows(), weight.outputs(),
                            weight.inputs(), weight_gradient.data(), weight_gradient.row_stride());
      bool first = false;
      if (Tensor x_gradient = steps.gradient_of_input(kept_x, &first); x_gradient.defined()) {
        ProductEnd add;
        add.accumulate = !first;
        multiply(dy.data(), dy.row_stride(), dy.rows(), weight.for_gradient(), x_gradient.data(),
                 x_gradient.row_stride(), add);
      }
    });
  }
  return y;
}

Tensor matrix_product(const Tensor& a, const Tensor& b, bool transpose_b) {
  require_matrix("matrix_product", "a", a);
  require_matrix("matrix_product", "b", b);
  const std::int64_t m = a.shape()[0], k = a.shape()[1], n = b.shape()[transpose_b ? 0 : 1];
  if (b.shape()[transpose_b ? 1 : 0] != k)
    throw Error(ErrorKind::shape, "matrix_product",
                join("a is ", a.shape(), " and b ", b.shape(), transpose_b ? " transposed" : ""),
                join("b must be ", transpose_b ? join("[n, ", k, "]") : join("[", k, ", n]")));
  Tensor y = Tensor::empty({m, n});
  PackedMatrix packed;
  packed.pack(b.data(), n, k, b.row_stride(), !transpose_b);
  multiply(a.data(), a.row_stride(), m, packed, y.data(), y.row_stride());

  if (Tape* tape = tape_for({&a, &b})) {
    tape->record(y, [output = y.place(), a, b, transpose_b, m, n, k](Tape& steps) {
      const Tensor dy = steps.gradient_of_output(output);
      bool first = false;
      if (Tensor a_gradient = steps.gradient_of_input(a, &first); a_gradient.defined()) {
        PackedMatrix other;
        other.pack(b.data(), k, n, b.row_stride(), transpose_b);
        ProductEnd end;
        end.accumulate = !first;
        multiply(dy.data(), dy.row_stride(), m, other, a_gradient.data(), a_gradient.row_stride(), end);
      }
      if (Tensor b_gradient = steps.gradient_of_input(b); b_gradient.defined()) {
        if (transpose_b)
          multiply_transposed(dy.data(), dy.row_stride(), a.data(), a.row_stride(), m, n, k, b_gradient.data(),
                              b_gradient.row_stride());
        else
          multiply_transposed(a.data(), a.row_stride(), dy.data(), dy.row_stride(), m, k, n, b_gradient.data(),
                              b_gradient.row_stride());
      }
    });
  }
  return y;
}

namespace {

// y[column, row] = or += x[row, column], in square blocks that fit the nearest cache.
void transpose_into(Tensor& y, bool overwrite, const Tensor& x) {
  constexpr std::int64_t block = 32;
  const std::int64_t rows = x.rows(), width = x.width();
  parallel_ranges((rows + block - 1) / block, rows_grain(block * width),
                  [&](std::int64_t begin, std::int64_t end, int) {
                    const std::int64_t row_end = std::min(rows, end * block);
                    for (std::int64_t row = begin * block; row < row_end; row += block)
                      for (std::int64_t column = 0; column < width; column += block)
                        for (std::int64_t j = column; j < std::min(width, column + block); ++j)
                          for (std::int64_t i = row; i < std::min(row_end, row + block); ++i)
                            y.row(j)[i] = overwrite ? x.row(i)[j] : y.row(j)[i] + x.row(i)[j];
                  });
}

}  // namespace

Tensor transpose(const Tensor& x) {
  require_matrix("transpose", "x", x);
  Tensor y = Tensor::empty({x.shape()[1], x.shape()[0]});
  transpose_into(y, true, x);
  if (Tape* tape = tape_for({&x})) {
    tape->record(y, [output = y.place(), input = x.place()](Tape& steps) {
      const Tensor dy = steps.gradient_of_output(output);
      bool first = false;
      Tensor dx = steps.gradient_of_input(input, &first);
      transpose_into(dx, first, dy);
    });
  }
  return y;
}

}  // namespace attend
