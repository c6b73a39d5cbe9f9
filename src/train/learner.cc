#include "train/learner.h"

#include <algorithm>
#include <cmath>

#include "attend/error.h"
#include "attend/ops.h"
#include "attend/tape.h"
#include "core/threads.h"
#include "kernel/rowwise/rowwise.h"

namespace attend {
namespace {

LossSums sums_of(const LossResult& loss) { return {loss.smoothed, loss.plain, loss.labels, loss.correct}; }

LossResult forward(const Model& model, const Batch& batch, const RunOptions& options, float smoothing, float factor) {
  if (batch.features.defined()) {
    const States encoded = model.encode_features(batch.features, batch.feature_offsets, options);
    return cross_entropy(model.classify(encoded, options), batch.labels, smoothing, factor);
  }
  if (batch.source.items() == 0) {
    const States states = model.decode(batch.input, nullptr, options);
    return model.loss(states.rows, batch.labels, smoothing, factor);
  }
  const States memory = model.encode(batch.source, options);
  const States states = model.decode(batch.input, &memory, options);
  return model.loss(states.rows, batch.labels, smoothing, factor);
}

}  // namespace

LossSums& LossSums::operator+=(const LossSums& other) {
  smoothed += other.smoothed;
  plain += other.plain;
  labels += other.labels;
  correct += other.correct;
  return *this;
}

LossSums evaluate(const Model& model, const Batch& batch) {
  const NoGradientScope nothing_is_recorded;
  return sums_of(forward(model, batch, {}, 0, 1));
}

Learner::Learner(Model& model, const TrainRecipe& recipe) : model_(model), recipe_(recipe) {
  for (const Parameter& parameter : model_.parameters()) {
    gradients_.push_back(Tensor::zeros(parameter.value.shape()));
    first_.push_back(Tensor::zeros(parameter.value.shape()));
    second_.push_back(Tensor::zeros(parameter.value.shape()));
  }
}

void Learner::zero_gradients() {
  for (Tensor& gradient : gradients_)
    parallel_ranges(gradient.elements(), 1 << 16, [&](std::int64_t begin, std::int64_t end, int) {
      std::fill(gradient.data() + begin, gradient.data() + end, 0.0f);
    });
}

LossSums Learner::backward(const Batch& batch, float factor, std::uint64_t dropout_seed) {
  Tape tape;
  std::size_t index = 0;
  for (const Parameter& parameter : model_.parameters()) tape.watch(parameter.value, gradients_[index++]);
  RunOptions options;
  options.dropout = true;
  options.dropout_seed = dropout_seed;
  LossResult loss;
  {
    const GradientScope recording(tape);
    loss = forward(model_, batch, options, static_cast<float>(recipe_.label_smoothing), factor);
  }
  // A loss that is no number is the caller's to report; its gradients would only cost time.
  if (std::isfinite(loss.smoothed)) tape.backward(loss.total);
  return sums_of(loss);
}

double Learner::gradient_norm() const {
  double sum = 0;
  for (const Tensor& gradient : gradients_) sum += sum_of_squares(gradient.data(), gradient.elements());
  return std::sqrt(sum);
}

void Learner::update(double rate, double norm, std::int64_t step) {
  AdamStep adam{};
  adam.rate = static_cast<float>(rate);
  adam.beta1 = static_cast<float>(recipe_.beta1);
  adam.beta2 = static_cast<float>(recipe_.beta2);
  adam.epsilon = static_cast<float>(recipe_.epsilon);
  adam.step = step;
  adam.gradient_scale = recipe_.clip > 0 && norm > recipe_.clip ? static_cast<float>(recipe_.clip / norm) : 1.0f;
  for (std::size_t i = 0; i < gradients_.size(); ++i) {
    Parameter& parameter = model_.parameters()[i];
    adam.decay = parameter.decays ? static_cast<float>(recipe_.weight_decay) : 0.0f;
    adam_step(adam, gradients_[i].elements(), parameter.value.data(), gradients_[i].data(), first_[i].data(),
              second_[i].data());
    parameter.changed();
  }
}

std::string Learner::broken_gradient() const {
  for (std::size_t i = 0; i < gradients_.size(); ++i)
    if (!all_finite(gradients_[i].data(), gradients_[i].elements())) return model_.parameters()[i].name;
  return {};
}

std::vector<NamedTensor> Learner::moments() const {
  std::vector<NamedTensor> tensors;
  for (std::size_t i = 0; i < gradients_.size(); ++i) {
    tensors.push_back({"first." + model_.parameters()[i].name, first_[i]});
    tensors.push_back({"second." + model_.parameters()[i].name, second_[i]});
  }
  return tensors;
}

void Learner::restore_moments(const SafetensorsFile& file) {
  for (const NamedTensor& moment : moments()) {
    const SafetensorsEntry& entry = file.entry(moment.name);
    Tensor target = moment.value;
    if (entry.elements != target.elements())
      throw Error(ErrorKind::format, file.source(),
                  join(moment.name, " is ", shape_text(entry.shape), "; the model's is ", target.shape()),
                  "the state belongs to another model");
    file.read(entry, {target.data(), static_cast<std::size_t>(target.elements())});
    require_finite(file.source(), moment.name, target);
  }
}

}  // namespace attend
