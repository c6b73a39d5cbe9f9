// Element by element: sums, products, activations, dropout.
#include <cmath>

#include "attend/ops.h"
#include "tensor/loops.h"

namespace attend {

Tensor add(const Tensor& a, const Tensor& b) {
  require_same_shape("add", "a", a, "b", b);
  Tensor y = Tensor::empty(a.shape());
  add_rows(rows_of(a), rows_of(b), rows_to(y));
  if (Tape* tape = tape_for({&a, &b})) {
    tape->record(y, [output = y.place(), a_place = a.place(), b_place = b.place()](Tape& steps) {
      bool first = false;
      if (Tensor db = steps.gradient_of_input(b_place, &first); db.defined())
        add_to(db, first, steps.gradient_of_output(output));
      steps.pass_gradient(output, a_place);
    });
  }
  return y;
}

Tensor subtract(const Tensor& a, const Tensor& b) {
  require_same_shape("subtract", "a", a, "b", b);
  Tensor y = Tensor::empty(a.shape());
  map_into(
      y, true, [](float left, float right) { return left - right; }, a, b);
  if (Tape* tape = tape_for({&a, &b})) {
    tape->record(y, [output = y.place(), a_place = a.place(), b_place = b.place()](Tape& steps) {
      bool first = false;
      if (Tensor db = steps.gradient_of_input(b_place, &first); db.defined())
        add_to(db, first, steps.gradient_of_output(output), -1);
      steps.pass_gradient(output, a_place);
    });
  }
  return y;
}

Tensor multiply(const Tensor& a, const Tensor& b) {
  require_same_shape("multiply", "a", a, "b", b);
  const auto product = [](float left, float right) { return left * right; };
  Tensor y = Tensor::empty(a.shape());
  map_into(y, true, product, a, b);
  if (Tape* tape = tape_for({&a, &b})) {
    tape->record(y, [output = y.place(), a, b, product](Tape& steps) {
      const Tensor dy = steps.gradient_of_output(output);
      bool first = false;
      if (Tensor da = steps.gradient_of_input(a, &first); da.defined()) map_into(da, first, product, dy, b);
      if (Tensor db = steps.gradient_of_input(b, &first); db.defined()) map_into(db, first, product, dy, a);
    });
  }
  return y;
}

Tensor replace_where(const Tensor& x, const Tensor& other, std::shared_ptr<const std::vector<std::uint8_t>> mask) {
  require_same_shape("replace_where", "x", x, "other", other);
  if (!mask || static_cast<std::int64_t>(mask->size()) != x.elements())
    throw Error(ErrorKind::shape, "replace_where",
                join("the mask has ", mask ? mask->size() : 0, " entries and x is ", x.shape()), "give one an element");
  Tensor y = Tensor::empty(x.shape());
  const std::int64_t width = x.width();
  // out = (or +=) chosen where the mask says so, else 0 or `otherwise`.
  const auto for_rows = [width, rows = x.rows()](const auto& row_function) {
    parallel_ranges(rows, rows_grain(width), [&](std::int64_t begin, std::int64_t end, int) {
      for (std::int64_t row = begin; row < end; ++row) row_function(row);
    });
  };
  for_rows([&](std::int64_t row) {
    const std::uint8_t* take = mask->data() + row * width;
    for (std::int64_t i = 0; i < width; ++i) y.row(row)[i] = take[i] != 0 ? other.row(row)[i] : x.row(row)[i];
  });
  if (Tape* tape = tape_for({&x, &other})) {
    tape->record(
        y, [output = y.place(), x_place = x.place(), other_place = other.place(), mask, for_rows, width](Tape& steps) {
          const Tensor dy = steps.gradient_of_output(output);
          const auto add_where = [&](const Tensor& input, bool taken) {
            bool first = false;
            Tensor dx = steps.gradient_of_input(input, &first);
            if (!dx.defined()) return;
            for_rows([&](std::int64_t row) {
              const std::uint8_t* take = mask->data() + row * width;
              for (std::int64_t i = 0; i < width; ++i)
                dx.row(row)[i] = (first ? 0 : dx.row(row)[i]) + ((take[i] != 0) == taken ? dy.row(row)[i] : 0);
            });
          };
          add_where(x_place, false);
          add_where(other_place, true);
        });
  }
  return y;
}

Tensor scale(const Tensor& x, float factor) {
  require_defined("scale", "x", x);
  Tensor y = Tensor::empty(x.shape());
  map_into(
      y, true, [factor](float value) { return value * factor; }, x);
  if (Tape* tape = tape_for({&x})) {
    tape->record(y, [output = y.place(), input = x.place(), factor](Tape& steps) {
      if (Tensor moved = steps.move_gradient(output, input); moved.defined()) {
        add_to(moved, true, moved, factor);
        return;
      }
      bool first = false;
      Tensor dx = steps.gradient_of_input(input, &first);
      add_to(dx, first, steps.gradient_of_output(output), factor);
    });
  }
  return y;
}

namespace {

// y[row] = or += f(x[row], vector) for every row, element by element.
template <typename Function>
void with_vector(Tensor& y, bool overwrite, const Tensor& x, const float* vector, Function f) {
  const std::int64_t width = x.width();
  parallel_ranges(x.rows(), rows_grain(width), [&](std::int64_t begin, std::int64_t end, int) {
    for (std::int64_t row = begin; row < end; ++row) {
      const float* in = x.row(row);
      float* out = y.row(row);
      if (overwrite) {
        for (std::int64_t i = 0; i < width; ++i) out[i] = f(in[i], vector[i]);
      } else {
        for (std::int64_t i = 0; i < width; ++i) out[i] += f(in[i], vector[i]);
      }
    }
  });
}

}  // namespace

Tensor add_row(const Tensor& x, const Tensor& row) {
  require_defined("add_row", "x", x);
  require_columns("add_row", "row", row, "x", x);
  Tensor y = Tensor::empty(x.shape());
  with_vector(y, true, x, row.data(), [](float value, float other) { return value + other; });
  if (Tape* tape = tape_for({&x, &row})) {
    tape->record(y, [output = y.place(), x_place = x.place(), row_place = row.place()](Tape& steps) {
      if (Tensor row_gradient = steps.gradient_of_input(row_place); row_gradient.defined())
        sum_over_rows(rows_of(steps.gradient_of_output(output)), row_gradient.data());
      steps.pass_gradient(output, x_place);
    });
  }
  return y;
}

Tensor scale_columns(const Tensor& x, const Tensor& factors) {
  require_defined("scale_columns", "x", x);
  require_columns("scale_columns", "factors", factors, "x", x);
  const auto product = [](float left, float right) { return left * right; };
  Tensor y = Tensor::empty(x.shape());
  with_vector(y, true, x, factors.data(), product);
  if (Tape* tape = tape_for({&x, &factors})) {
    tape->record(y, [output = y.place(), x, factors, product](Tape& steps) {
      const Tensor dy = steps.gradient_of_output(output);
      bool first = false;
      if (Tensor dx = steps.gradient_of_input(x, &first); dx.defined())
        with_vector(dx, first, dy, factors.data(), product);
      if (Tensor factors_gradient = steps.gradient_of_input(factors); factors_gradient.defined()) {
        Tensor products = Tensor::empty(dy.shape());
        map_into(products, true, product, dy, x);
        sum_over_rows(rows_of(products), factors_gradient.data());
      }
    });
  }
  return y;
}

Tensor activate(const Tensor& x, Activation kind) {
  require_defined("activate", "x", x);
  if (kind == Activation::none) return x;
  Tensor y = Tensor::empty(x.shape());
  activate(kind, rows_of(x), rows_to(y));
  if (Tape* tape = tape_for({&x})) {
    tape->record(y, [output = y.place(), x, kind](Tape& steps) {
      const Tensor dy = steps.gradient_of_output(output);
      Tensor dx = steps.gradient_of_input(x);
      activate_backward(kind, rows_of(x), rows_of(dy), rows_to(dx));
    });
  }
  return y;
}

Tensor gate(const Tensor& gate_input, const Tensor& value, Activation kind) {
  require_same_shape("gate", "gate_input", gate_input, "value", value);
  Tensor y = Tensor::empty(value.shape());
  gate(kind, rows_of(gate_input), rows_of(value), rows_to(y));
  if (Tape* tape = tape_for({&gate_input, &value})) {
    tape->record(y, [output = y.place(), gate_input, value, kind](Tape& steps) {
      const Tensor dy = steps.gradient_of_output(output);
      // The kernel wants both targets; the gradient nobody asked for goes nowhere.
      const auto target = [&](const Tensor& input) {
        Tensor gradient = steps.gradient_of_input(input);
        return gradient.defined() ? gradient : Tensor::zeros(input.shape());
      };
      Tensor gate_gradient = target(gate_input), value_gradient = target(value);
      gate_backward(kind, rows_of(gate_input), rows_of(value), rows_of(dy), rows_to(gate_gradient),
                    rows_to(value_gradient));
    });
  }
  return y;
}

namespace {

// y = f(x), whose derivative is written by the output: dx += dy * derivative(y).
template <typename Function, typename Derivative>
Tensor with_derivative_of_output(const char* where, const Tensor& x, Function f, Derivative derivative) {
  require_defined(where, "x", x);
  Tensor y = Tensor::empty(x.shape());
  map_into(y, true, f, x);
  if (Tape* tape = tape_for({&x})) {
    tape->record(y, [y, input = x.place(), derivative](Tape& steps) {
      const Tensor dy = steps.gradient_of_output(y);
      bool first = false;
      Tensor dx = steps.gradient_of_input(input, &first);
      map_into(
          dx, first, [derivative](float gradient, float value) { return gradient * derivative(value); }, dy, y);
    });
  }
  return y;
}

}  // namespace

Tensor tanh(const Tensor& x) {
  return with_derivative_of_output(
      "tanh", x, [](float value) { return std::tanh(value); }, [](float y) { return 1 - y * y; });
}

Tensor sigmoid(const Tensor& x) {
  return with_derivative_of_output(
      "sigmoid", x, [](float value) { return 1 / (1 + std::exp(-value)); }, [](float y) { return y * (1 - y); });
}

Tensor exp(const Tensor& x) {
  return with_derivative_of_output(
      "exp", x, [](float value) { return std::exp(value); }, [](float y) { return y; });
}

Tensor log(const Tensor& x) {
  require_defined("log", "x", x);
  Tensor y = Tensor::empty(x.shape());
  map_into(
      y, true, [](float value) { return std::log(value); }, x);
  if (Tape* tape = tape_for({&x})) {
    tape->record(y, [output = y.place(), x](Tape& steps) {
      const Tensor dy = steps.gradient_of_output(output);
      bool first = false;
      Tensor dx = steps.gradient_of_input(x, &first);
      map_into(
          dx, first, [](float gradient, float value) { return gradient / value; }, dy, x);
    });
  }
  return y;
}

namespace {

void require_probability(const char* where, float probability) {
  if (!(probability >= 0 && probability < 1))
    throw Error(ErrorKind::argument, where, join("probability ", probability), "give 0 or more and less than 1");
}

void add_dropped_gradient(Tape& steps, const Tensor& output, const Tensor& input, float probability,
                          std::uint64_t seed) {
  bool first = false;
  if (Tensor dx = steps.gradient_of_input(input, &first); dx.defined())
    dropout_rows(rows_of(steps.gradient_of_output(output)), probability, seed, rows_to(dx), !first);
}

}  // namespace

Tensor dropout(const Tensor& x, float probability, std::uint64_t seed) {
  require_defined("dropout", "x", x);
  require_probability("dropout", probability);
  if (probability == 0) return x;
  Tensor y = Tensor::empty(x.shape());
  dropout_rows(rows_of(x), probability, seed, rows_to(y));
  if (Tape* tape = tape_for({&x})) {
    tape->record(y, [output = y.place(), input = x.place(), probability, seed](Tape& steps) {
      if (Tensor moved = steps.move_gradient(output, input); moved.defined())
        dropout_rows(rows_of(moved), probability, seed, rows_to(moved));
      else add_dropped_gradient(steps, output, input, probability, seed);
    });
  }
  return y;
}

Tensor add_dropped(const Tensor& residual, const Tensor& x, float probability, std::uint64_t seed) {
  require_same_shape("add_dropped", "residual", residual, "x", x);
  require_probability("add_dropped", probability);
  if (probability == 0) return add(residual, x);
  Tensor y = residual.clone();
  dropout_rows(rows_of(x), probability, seed, rows_to(y), true);
  if (Tape* tape = tape_for({&residual, &x})) {
    tape->record(
        y, [output = y.place(), residual_place = residual.place(), input = x.place(), probability, seed](Tape& steps) {
          add_dropped_gradient(steps, output, input, probability, seed);
          steps.pass_gradient(output, residual_place);
        });
  }
  return y;
}

}  // namespace attend
