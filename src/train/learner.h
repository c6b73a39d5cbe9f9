// One model being trained: gradients, optimiser state, one step. Knows nothing of files and epochs.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "attend/model.h"
#include "attend/recipe.h"
#include "attend/safetensors.h"
#include "train/batches.h"

namespace attend {

// Sums over the labels of a batch, in nats.
struct LossSums {
  double smoothed = 0, plain = 0;
  std::int64_t labels = 0, correct = 0;

  LossSums& operator+=(const LossSums& other);
  double mean_smoothed() const { return labels > 0 ? smoothed / static_cast<double>(labels) : 0; }
  double mean() const { return labels > 0 ? plain / static_cast<double>(labels) : 0; }
};

// Loss of a batch without gradients, dropout or smoothing.
LossSums evaluate(const Model& model, const Batch& batch);

class Learner {
 public:
  // The model must outlive it.
  Learner(Model& model, const TrainRecipe& recipe);

  void zero_gradients();
  // Adds the gradient of factor * (sum of the batch's losses). factor is 1 / (labels of all batches of the step).
  LossSums backward(const Batch& batch, float factor, std::uint64_t dropout_seed);
  // Norm of all gradients together. NaN or infinite if any of them is.
  double gradient_norm() const;
  // Clips by `norm`, takes the optimiser's step number `step` (from 1).
  void update(double rate, double norm, std::int64_t step);

  // The parameter whose gradient holds NaN or infinity, or "".
  std::string broken_gradient() const;
  const std::vector<Tensor>& gradients() const { return gradients_; }

  // Adam's moments as named tensors, sharing memory; and back. Throws Error(format) if names or shapes do not fit.
  std::vector<NamedTensor> moments() const;
  void restore_moments(const SafetensorsFile& file);

 private:
  Model& model_;
  const TrainRecipe& recipe_;
  std::vector<Tensor> gradients_, first_, second_;  // one a parameter, in the model's order
};

}  // namespace attend
