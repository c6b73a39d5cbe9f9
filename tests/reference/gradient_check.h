// Checks an operation and its gradients against a textbook float64 version of the same operation: the values directly,
// the gradients by central differences of the float64 version, (f(x + h) - f(x - h)) / 2h, whose error is of order h^2.
#pragma once

#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <string>
#include <vector>

#include "attend/ops.h"
#include "core/random.h"

namespace attend::reference {

using Values = std::vector<double>;

struct Input {
  Shape shape;
  std::vector<float> values;
};

inline Input random_input(Shape shape, std::uint64_t seed, double spread = 1, double center = 0) {
  Random random(seed);
  Input input{shape, {}};
  for (std::int64_t i = 0; i < shape.elements(); ++i)
    input.values.push_back(static_cast<float>(center + spread * random.normal()));
  return input;
}

// The operation under test on tensors, and its float64 version on flat values; both see the inputs in the same order.
using Operation = std::function<Tensor(const std::vector<Tensor>&)>;
using Textbook = std::function<Values(const std::vector<Values>&)>;

inline double weighted_sum(const Values& y, const Values& coefficients) {
  double sum = 0;
  for (std::size_t i = 0; i < y.size(); ++i) sum += y[i] * coefficients[i];
  return sum;
}

// d weighted_sum(f(inputs)) / d inputs[which], element by element.
inline Values central_difference(const Textbook& f, std::vector<Values> inputs, std::size_t which,
                                 const Values& coefficients) {
  constexpr double step = 1e-5;
  Values gradient;
  for (double& element : inputs[which]) {
    const double at = element;
    element = at + step;
    const double above = weighted_sum(f(inputs), coefficients);
    element = at - step;
    const double below = weighted_sum(f(inputs), coefficients);
    element = at;
    gradient.push_back((above - below) / (2 * step));
  }
  return gradient;
}

inline void expect_near(const std::vector<float>& found, const Values& expected, double tolerance,
                        const std::string& what) {
  ASSERT_EQ(found.size(), expected.size()) << what;
  double largest = 1;
  for (double value : expected) largest = std::max(largest, std::abs(value));
  for (std::size_t i = 0; i < found.size(); ++i)
    ASSERT_NEAR(found[i], expected[i], tolerance * largest) << what << ", element " << i;
}

// What one run of check_gradients does with the inputs.
struct Use {
  std::string name;
  std::vector<bool> watched;     // which inputs are watched
  int times = 1;                 // how often the operation is applied to the same inputs
  bool given_gradients = false;  // the gradients are added to tensors that already hold numbers
};

// Values and gradients of `operation` at `inputs`, in every way an input can meet the tape: all inputs watched, each
// watched alone, applied twice to the same inputs (the second gradient must be added to the first), and with gradients
// added to tensors that the caller gave.
inline void check_gradients(const std::vector<Input>& inputs, const Operation& operation, const Textbook& textbook,
                            double tolerance = 1e-4) {
  std::vector<Values> exact;
  std::vector<Tensor> plain;
  for (const Input& input : inputs) {
    exact.emplace_back(input.values.begin(), input.values.end());
    plain.push_back(Tensor::from(input.shape, input.values));
  }
  const Values expected = textbook(exact);
  const Tensor y = operation(plain);
  expect_near(y.to_vector(), expected, tolerance, "value");
  if (testing::Test::HasFatalFailure()) return;

  const Input draw = random_input(y.shape(), 4711);
  const Values coefficients(draw.values.begin(), draw.values.end());
  std::vector<Values> gradients;
  for (std::size_t which = 0; which < inputs.size(); ++which)
    gradients.push_back(central_difference(textbook, exact, which, coefficients));

  const std::vector<bool> all(inputs.size(), true);
  std::vector<Use> uses{{"all watched", all}, {"applied twice", all, 2}, {"gradients given", all, 1, true}};
  for (std::size_t which = 0; inputs.size() > 1 && which < inputs.size(); ++which) {
    std::vector<bool> one(inputs.size(), false);
    one[which] = true;
    uses.push_back({join("only input ", which, " watched"), one});
  }
  for (const Use& use : uses) {
    Tape tape;
    std::vector<Tensor> leaves, given;
    for (std::size_t which = 0; which < inputs.size(); ++which) {
      leaves.push_back(Tensor::from(inputs[which].shape, inputs[which].values));
      given.push_back(use.given_gradients ? Tensor::filled(inputs[which].shape, 0.5f) : Tensor());
      if (use.watched[which]) tape.watch(leaves.back(), given.back());
    }
    Tensor loss;
    {
      const GradientScope scope(tape);
      for (int time = 0; time < use.times; ++time) {
        const Tensor part = sum(multiply(operation(leaves), Tensor::from(y.shape(), draw.values)));
        loss = loss.defined() ? add(loss, part) : part;
      }
    }
    tape.backward(loss);
    for (std::size_t which = 0; which < inputs.size(); ++which) {
      if (!use.watched[which]) continue;
      Values wanted = gradients[which];
      for (double& value : wanted) value = value * use.times + (use.given_gradients ? 0.5 : 0);
      expect_near(tape.gradient(leaves[which]).to_vector(), wanted, tolerance,
                  join(use.name, ", gradient of input ", which));
      if (testing::Test::HasFatalFailure()) return;
      if (use.given_gradients)
        expect_near(given[which].to_vector(), wanted, tolerance, join(use.name, ", tensor given for input ", which));
      if (testing::Test::HasFatalFailure()) return;
    }
  }
}

}  // namespace attend::reference
