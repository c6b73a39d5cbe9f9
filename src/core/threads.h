// The one place where threads are made. A task is run by exactly one worker; which worker runs which task must not
// influence any result, so callers split work over rows, columns and heads, never over a summed axis.
#pragma once

#include <concepts>
#include <cstdint>
#include <type_traits>
#include <utility>

#include "attend/threads.h"

namespace attend {

// A borrowed callable void(task, worker); cheaper than std::function because it never owns or allocates.
class TaskView {
 public:
  // Not for a TaskView: that is copied, so that a view never points to another view.
  template <typename Function>
  requires(!std::same_as<std::remove_cv_t<Function>, TaskView>)
      TaskView(Function& function)  // NOLINT: implicit on purpose
      : object_(&function),
        call_([](void* object, std::int64_t task, int worker) { (*static_cast<Function*>(object))(task, worker); }) {}
  void operator()(std::int64_t task, int worker) const { call_(object_, task, worker); }

 private:
  void* object_;
  void (*call_)(void*, std::int64_t, int);
};

// Runs body(task, worker) for task = 0..tasks-1 on the team; worker is below threads(). Returns when all are done.
// When tasks throw, those not yet begun are left out and the exception of the lowest of them is thrown here once all
// workers are done: the same one for any number of threads. Nested calls, and calls while another caller holds the team, run inline on the caller
// (worker 0 of a team of its own): correct, only slower.
void run_tasks(std::int64_t tasks, TaskView body);

template <typename Function>
void parallel_for(std::int64_t tasks, Function&& body) {
  auto&& function = body;
  run_tasks(tasks, TaskView(function));
}

// Splits 0..count-1 into contiguous ranges of at least `grain` and runs body(begin, end, worker) for each. The split
// depends on the number of threads, so body must treat every index independently of the others.
template <typename Function>
void parallel_ranges(std::int64_t count, std::int64_t grain, Function&& body) {
  if (count <= 0) return;
  const std::int64_t wanted = static_cast<std::int64_t>(threads()) * 4;
  std::int64_t size = (count + wanted - 1) / wanted;
  if (size < grain) size = grain;
  const std::int64_t tasks = (count + size - 1) / size;
  auto task = [&](std::int64_t index, int worker) {
    const std::int64_t begin = index * size;
    const std::int64_t end = begin + size < count ? begin + size : count;
    body(begin, end, worker);
  };
  run_tasks(tasks, TaskView(task));
}

}  // namespace attend
