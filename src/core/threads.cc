#include "core/threads.h"

#include <sched.h>

#include <atomic>
#include <condition_variable>
#include <exception>
#include <memory>
#include <mutex>
#include <system_error>
#include <thread>
#include <utility>
#include <vector>

#include "attend/error.h"

namespace attend {
namespace {

constexpr int max_threads = 256;

// A worker looks this many times for the next job, then sleeps. A decode step is a row of jobs a few microseconds apart, so
// sleeping at once would cost more than the work; looking long would steal a shared core.
constexpr int looks_before_sleep = 600;

// After this many looks in a row, a worker that waits for a job and a caller that waits for the last tasks offer their
// processor at every further look: the system may have put both on the same one, and then only one of them can go on.
constexpr int looks_before_yield = 300;

void wait_briefly(int look) {
#if defined(__x86_64__)
  if (look < looks_before_yield) return __builtin_ia32_pause();
#endif
  if (look >= looks_before_yield) std::this_thread::yield();
}

class Team {
 public:
  // Where the system gives fewer threads, the team is smaller; results do not depend on it.
  explicit Team(int count) : count_(count) {
    workers_.reserve(static_cast<std::size_t>(count));
    try {
      for (int worker = 1; worker < count; ++worker) workers_.emplace_back([this, worker] { serve(worker); });
    } catch (const std::system_error&) {
    }
  }
  ~Team() {
    {
      std::lock_guard lock(mutex_);
      stop_.store(true);
      state_.fetch_add(one_job);
    }
    wake_.notify_all();
    for (std::thread& worker : workers_) worker.join();
  }

  int count() const { return count_; }

  void run(std::int64_t tasks, TaskView body) {
    // The last job is closed and nobody is inside, so no worker reads these now.
    body_ = &body;
    tasks_ = tasks;
    next_.store(0, std::memory_order_relaxed);
    {
      std::lock_guard lock(mutex_);
      const std::uint64_t job = state_.load(std::memory_order_relaxed) / one_job + 1;
      state_.store(job * one_job + open, std::memory_order_release);
    }
    wake_.notify_all();
    take_tasks(0);
    // Closes the job: a worker that comes too late, on a busy machine perhaps milliseconds, is not waited for.
    state_.fetch_and(~open, std::memory_order_relaxed);
    for (int look = 0; state_.load(std::memory_order_acquire) % open != 0; ++look) wait_briefly(look);
    if (failure_) {
      failed_task_ = -1;
      std::rethrow_exception(std::exchange(failure_, nullptr));
    }
  }

 private:
  // state_ holds the number of the job, whether it is open, and how many workers are inside.
  static constexpr std::uint64_t open = 1u << 15, one_job = 1u << 16;

  void take_tasks(int worker) {
    for (;;) {
      const std::int64_t task = next_.fetch_add(1, std::memory_order_relaxed);
      if (task >= tasks_) return;
      try {
        (*body_)(task, worker);
      } catch (...) {
        // Tasks are begun in order, so every task below this one has begun: the failure reported, of the lowest, is the
        // same for any number of threads.
        std::lock_guard lock(mutex_);
        if (!failure_ || task < failed_task_) failure_ = std::current_exception(), failed_task_ = task;
        next_.store(tasks_, std::memory_order_relaxed);
      }
    }
  }

  // Goes inside the open job, if there is one; says which job it saw.
  bool enter(std::uint64_t& seen) {
    std::uint64_t state = state_.load(std::memory_order_acquire);
    do {
      seen = state / one_job;
      if ((state & open) == 0) return false;
    } while (!state_.compare_exchange_weak(state, state + 1, std::memory_order_acq_rel, std::memory_order_acquire));
    return true;
  }

  void serve(int worker) {
    std::uint64_t seen = 0;
    const auto new_job = [&] { return state_.load(std::memory_order_acquire) / one_job != seen; };
    for (;;) {
      for (int look = 0; !new_job() && look < looks_before_sleep; ++look) wait_briefly(look);
      if (!new_job()) {
        std::unique_lock lock(mutex_);
        wake_.wait(lock, new_job);
      }
      if (stop_.load()) return;
      if (!enter(seen)) continue;
      inside_team = true;
      take_tasks(worker);
      inside_team = false;
      state_.fetch_sub(1, std::memory_order_release);
    }
  }

 public:
  static thread_local bool inside_team;

 private:
  const int count_;
  std::vector<std::thread> workers_;
  std::mutex mutex_;
  std::condition_variable wake_;
  std::atomic<std::uint64_t> state_{0};
  std::atomic<std::int64_t> next_{0};
  std::int64_t tasks_ = 0;
  const TaskView* body_ = nullptr;
  std::atomic<bool> stop_{false};
  std::exception_ptr failure_;  // of the current job
  std::int64_t failed_task_ = -1;
};

thread_local bool Team::inside_team = false;

int processors() {
  cpu_set_t set;
  CPU_ZERO(&set);
  if (sched_getaffinity(0, sizeof(set), &set) == 0) {
    const int count = CPU_COUNT(&set);
    if (count >= 1) return count < max_threads ? count : max_threads;
  }
  return 1;
}

struct Teams {
  std::mutex in_use;  // held by the caller whose job the team is running
  std::atomic<int> count{processors()};
  std::unique_ptr<Team> team;
};

// Never destroyed: worker threads may outlive static destruction order.
Teams& teams() {
  static Teams* instance = new Teams;
  return *instance;
}

}  // namespace

void set_threads(int count) {
  if (count < 1 || count > max_threads)
    throw Error(ErrorKind::argument, "set_threads", join(count, " threads asked for"), join("give 1 to ", max_threads));
  std::lock_guard lock(teams().in_use);
  if (teams().team && teams().team->count() != count) teams().team.reset();
  teams().count.store(count);
}

int threads() { return teams().count.load(std::memory_order_relaxed); }

void run_tasks(std::int64_t tasks, TaskView body) {
  if (tasks <= 0) return;
  Teams& all = teams();
  if (tasks > 1 && threads() > 1 && !Team::inside_team && all.in_use.try_lock()) {
    std::lock_guard lock(all.in_use, std::adopt_lock);
    if (!all.team) all.team = std::make_unique<Team>(all.count.load());
    struct Inside {
      Inside() { Team::inside_team = true; }
      ~Inside() { Team::inside_team = false; }
    } inside;
    all.team->run(tasks, body);
    return;
  }
  for (std::int64_t task = 0; task < tasks; ++task) body(task, 0);
}

}  // namespace attend
