// Tape: reverse-mode differentiation (Linnainmaa 1970). Operations of ops.h record their backward step on the tape of
// the innermost GradientScope of this thread; without one they record nothing, and inference frees as it goes.
#pragma once

#include <cstdint>
#include <functional>
#include <initializer_list>
#include <memory>

#include "attend/tensor.h"

namespace attend {

class Tape {
 public:
  Tape();
  ~Tape();
  Tape(const Tape&) = delete;
  Tape& operator=(const Tape&) = delete;

  // Declares a leaf whose gradient is wanted. `gradient`, when given, is a contiguous tensor of the same shape that the
  // gradient is ADDED to (so several backward passes accumulate); otherwise the tape makes one, filled with zeros.
  // A leaf that is part of a larger storage needs a gradient at the same place of a storage as large (parameters in one
  // block, gradients in another). Throws Error(shape) when the two do not match, Error(argument) for a second gradient.
  void watch(const Tensor& leaf, Tensor gradient = {});

  // Keeps the gradient of an intermediate tensor after backward() has passed it; otherwise it is freed at once. Of a
  // tensor that rotate_heads() turned in place, it is the gradient before the rotation. Throws Error(argument) for a
  // tensor this tape does not track.
  void keep_gradient(const Tensor& tensor);

  // Runs the recorded steps in reverse from `loss` (one element, gradient 1), freeing each as it is done. Afterwards the
  // tape is ready to record again. Throws Error(shape) for more than one element, Error(argument) for an untracked loss.
  void backward(const Tensor& loss);

  // After backward(): the gradient of a watched or kept tensor; zeros if the loss does not depend on it.
  Tensor gradient(const Tensor& tensor);

  // ---- For operations -------------------------------------------------------------------------------------------
  // Does the loss possibly reach a gradient through this tensor? (It shares storage with a watched leaf or was computed from one.)
  bool tracks(const Tensor& tensor) const;
  // Appends a step. Its output becomes tracked. The step is called once, only if a gradient reached `output`.
  void record(const Tensor& output, std::function<void(Tape&)> step);
  // Inside a step: the gradient of an output, or the place to add the gradient of an input (zeros on first touch; an
  // undefined tensor if the input is not tracked). `first`, when given, tells that nothing was added yet AND the tensor
  // covers its whole storage, so that a kernel may overwrite instead of adding.
  Tensor gradient_of_output(const Tensor& output);
  Tensor gradient_of_input(const Tensor& input, bool* first = nullptr);
  // As gradient_of_output, for a step that overwrites it: a copy if somebody keeps this gradient.
  Tensor writable_gradient_of_output(const Tensor& output);
  // The step's last use of the output's gradient, for an input of the same shape. move_gradient makes its memory the
  // input's gradient and returns that, to be changed in place; undefined when it cannot be moved (something was added to
  // the input already, somebody keeps the output's, one is a view, the input is not tracked). pass_gradient moves it or
  // else adds it, unchanged.
  Tensor move_gradient(const Tensor& output, const Tensor& input);
  void pass_gradient(const Tensor& output, const Tensor& input);
  // Adds amount * factor to the gradient of an input of the same shape; moves the memory of `amount` where possible.
  void add_gradient(const Tensor& input, Tensor amount, float factor = 1);
  // Was this tensor, or one that shares its storage, given to watch()?
  bool watches(const Tensor& tensor) const;

  // The innermost tape of this thread that records, or null.
  static Tape* recording();

 private:
  struct State;
  std::unique_ptr<State> state_;
  friend class GradientScope;
  friend class NoGradientScope;
};

// While it lives, operations of this thread record on `tape`.
class GradientScope {
 public:
  explicit GradientScope(Tape& tape);
  ~GradientScope();
  GradientScope(const GradientScope&) = delete;
  GradientScope& operator=(const GradientScope&) = delete;

 private:
  Tape* outer_;
};

// While it lives, operations of this thread record nothing.
class NoGradientScope {
 public:
  NoGradientScope();
  ~NoGradientScope();
  NoGradientScope(const NoGradientScope&) = delete;
  NoGradientScope& operator=(const NoGradientScope&) = delete;

 private:
  Tape* outer_;
};

}  // namespace attend
