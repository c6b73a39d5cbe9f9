#include "attend/tape.h"

#include <unordered_map>
#include <utility>
#include <vector>

#include "tensor/loops.h"

namespace attend {
namespace {

thread_local Tape* innermost_tape = nullptr;

}  // namespace

struct Tape::State {
  // What is known about one storage.
  struct Entry {
    Tensor gradient;  // its storage mirrors the values' storage; undefined until something was added
    int writers = 0;  // recorded steps whose output lies in this storage and that have not run yet
    bool watched = false;
    bool kept = false;
  };
  // A step names its output by number only, so that it does not keep the output's values alive.
  struct Step {
    std::uint64_t output;
    std::function<void(Tape&)> run;
  };

  std::unordered_map<std::uint64_t, Entry> entries;
  std::vector<Step> steps;

  Entry* find(const Tensor& tensor) {
    const auto found = entries.find(tensor.storage_number());
    return found == entries.end() ? nullptr : &found->second;
  }

  void forget_steps() {
    steps.clear();
    std::erase_if(entries, [](const auto& item) { return !item.second.watched && !item.second.kept; });
    for (auto& [number, entry] : entries) entry.writers = 0;
  }
};

Tape::Tape() : state_(std::make_unique<State>()) {}
Tape::~Tape() = default;

void Tape::watch(const Tensor& leaf, Tensor gradient) {
  if (!leaf.defined()) throw Error(ErrorKind::argument, "Tape::watch", "the leaf is undefined");
  if (gradient.defined()) {
    if (!(gradient.shape() == leaf.shape()) || !gradient.contiguous())
      throw Error(ErrorKind::shape, "Tape::watch",
                  join("the leaf is ", leaf.shape(), " and its gradient ", gradient.shape(),
                       gradient.contiguous() ? "" : " with gaps between rows"),
                  "give a contiguous gradient of the leaf's shape");
    if (gradient.storage_size() != leaf.storage_size() || leaf.mirrored_in(gradient).data() != gradient.data())
      throw Error(ErrorKind::shape, "Tape::watch",
                  join("the leaf ", leaf.shape(), " is part of a storage of ", leaf.storage_size(),
                       " floats, and its gradient lies elsewhere in one of ", gradient.storage_size()),
                  "put the gradient at the same place of a storage of the same size, or let the tape make it");
  }
  State::Entry& entry = state_->entries[leaf.storage_number()];
  if (gradient.defined()) {
    if (entry.gradient.defined() && entry.gradient.storage_number() != gradient.storage_number())
      throw Error(ErrorKind::argument, "Tape::watch", join("the leaf ", leaf.shape(), " already has another gradient"),
                  "watch tensors that share memory once, or with the same gradient storage");
    entry.gradient = std::move(gradient);
  }
  entry.watched = true;
}

void Tape::keep_gradient(const Tensor& tensor) {
  State::Entry* entry = state_->find(tensor);
  if (entry == nullptr)
    throw Error(ErrorKind::argument, "Tape::keep_gradient",
                tensor.defined()
                    ? join("the tensor ", tensor.shape(), " was not computed from anything this tape watches")
                    : join("the tensor is undefined"),
                "watch() it, or a leaf it depends on, before it is computed");
  entry->kept = true;
}

void Tape::backward(const Tensor& loss) {
  if (!loss.defined() || loss.elements() != 1)
    throw Error(ErrorKind::shape, "Tape::backward",
                loss.defined() ? join("the loss is ", loss.shape()) : join("the loss is undefined"),
                "give a loss of one element");
  if (!tracks(loss))
    throw Error(ErrorKind::argument, "Tape::backward", "the loss was not computed from anything this tape watches",
                "compute it inside a GradientScope after watch(), and call backward() once");
  const NoGradientScope nothing_is_recorded;
  try {
    *gradient_of_input(loss).data() += 1;
    while (!state_->steps.empty()) {
      State::Step step = std::move(state_->steps.back());
      state_->steps.pop_back();
      State::Entry& entry = state_->entries.at(step.output);
      if (entry.gradient.defined()) step.run(*this);
      step.run = nullptr;
      if (--entry.writers == 0 && !entry.watched && !entry.kept) state_->entries.erase(step.output);
    }
  } catch (...) {
    state_->forget_steps();
    throw;
  }
}

Tensor Tape::gradient(const Tensor& tensor) {
  State::Entry* entry = state_->find(tensor);
  if (entry == nullptr || (!entry->watched && !entry->kept))
    throw Error(ErrorKind::argument, "Tape::gradient",
                tensor.defined() ? join("the gradient of this ", tensor.shape(), " tensor is not kept")
                                 : join("the tensor is undefined"),
                "watch() a leaf, or keep_gradient() of a result, before backward()");
  if (!entry->gradient.defined()) return Tensor::zeros(tensor.shape());
  return tensor.mirrored_in(entry->gradient);
}

bool Tape::tracks(const Tensor& tensor) const { return state_->entries.contains(tensor.storage_number()); }

bool Tape::watches(const Tensor& tensor) const {
  const State::Entry* entry = state_->find(tensor);
  return entry != nullptr && entry->watched;
}

void Tape::record(const Tensor& output, std::function<void(Tape&)> step) {
  ++state_->entries[output.storage_number()].writers;
  state_->steps.push_back({output.storage_number(), std::move(step)});
}

Tensor Tape::gradient_of_output(const Tensor& output) { return output.mirrored_in(state_->find(output)->gradient); }

Tensor Tape::writable_gradient_of_output(const Tensor& output) {
  const State::Entry& entry = *state_->find(output);
  Tensor gradient = output.mirrored_in(entry.gradient);
  return entry.watched || entry.kept ? gradient.clone() : gradient;
}

Tensor Tape::gradient_of_input(const Tensor& input, bool* first) {
  if (first != nullptr) *first = false;
  State::Entry* entry = state_->find(input);
  if (entry == nullptr) return {};
  if (!entry->gradient.defined()) {
    const bool overwritten = first != nullptr && input.covers_storage();
    const Shape shape{1, input.storage_size()};
    entry->gradient = overwritten ? Tensor::empty(shape) : Tensor::zeros(shape);
    if (first != nullptr) *first = overwritten;
  }
  return input.mirrored_in(entry->gradient);
}

Tensor Tape::move_gradient(const Tensor& output, const Tensor& input) {
  State::Entry* to = state_->find(input);
  State::Entry& from = *state_->find(output);
  if (to == nullptr || to->gradient.defined() || from.watched || from.kept || from.writers != 1 ||
      !output.covers_storage() || !input.covers_storage())
    return {};
  to->gradient = std::move(from.gradient);
  from.gradient = {};
  return input.mirrored_in(to->gradient);
}

void Tape::pass_gradient(const Tensor& output, const Tensor& input) {
  if (move_gradient(output, input).defined()) return;
  bool first = false;
  if (Tensor target = gradient_of_input(input, &first); target.defined())
    add_to(target, first, gradient_of_output(output));
}

void Tape::add_gradient(const Tensor& input, Tensor amount, float factor) {
  State::Entry* entry = state_->find(input);
  if (entry == nullptr) return;
  if (!entry->gradient.defined() && factor == 1 && input.covers_storage() && amount.covers_storage()) {
    entry->gradient = std::move(amount);
    return;
  }
  bool first = false;
  Tensor target = gradient_of_input(input, &first);
  add_to(target, first, amount, factor);
}

Tape* Tape::recording() { return innermost_tape; }

GradientScope::GradientScope(Tape& tape) : outer_(std::exchange(innermost_tape, &tape)) {}
GradientScope::~GradientScope() { innermost_tape = outer_; }

NoGradientScope::NoGradientScope() : outer_(std::exchange(innermost_tape, nullptr)) {}
NoGradientScope::~NoGradientScope() { innermost_tape = outer_; }

}  // namespace attend
