#include <algorithm>
#include <cmath>
#include <numbers>

#include "attend/train.h"

namespace attend {

double learning_rate(const TrainRecipe& recipe, std::int64_t step, std::int64_t total) {
  const auto now = static_cast<double>(step), warmup = static_cast<double>(recipe.warmup);
  if (step <= recipe.warmup) return recipe.rate * now / warmup;
  const auto end = static_cast<double>(recipe.decay_steps > 0 ? recipe.decay_steps : total);
  const double way = end > warmup ? std::min(1.0, (now - warmup) / (end - warmup)) : 1.0;
  switch (recipe.schedule) {
    case Schedule::constant:
      return recipe.rate;
    case Schedule::inverse_sqrt:
      return recipe.rate * std::sqrt(warmup / now);
    case Schedule::cosine:
      return recipe.floor + (recipe.rate - recipe.floor) * 0.5 * (1 + std::cos(std::numbers::pi * way));
    case Schedule::linear:
      return recipe.rate + (recipe.floor - recipe.rate) * way;
  }
  return recipe.rate;
}

}  // namespace attend
