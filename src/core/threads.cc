#include "core/threads.h"

#include <sched.h>

#include <atomic>
#include <condition_variable>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

#include "attend/error.h"

namespace attend {
namespace {

constexpr int max_threads = 256;

// A worker first spins this many times for the next job, then sleeps. A decode step is a row of jobs a few
// microseconds apart, so sleeping at once would cost more than the work; spinning long would steal a shared core.
constexpr int spins_before_sleep = 4000;

void pause_briefly() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#else
  std::this_thread::yield();
#endif
}

class Team {
 public:
  explicit Team(int count) : count_(count) {
    for (int worker = 1; worker < count; ++worker) workers_.emplace_back([this, worker] { serve(worker); });
  }
  ~Team() {
    {
      std::lock_guard lock(mutex_);
      stop_ = true;
      generation_.fetch_add(1);
    }
    wake_.notify_all();
    for (std::thread& worker : workers_) worker.join();
  }

  int count() const { return count_; }

  void run(std::int64_t tasks, TaskView body) {
    body_ = &body;
    tasks_ = tasks;
    next_.store(0, std::memory_order_relaxed);
    busy_.store(count_ - 1, std::memory_order_relaxed);
    {
      std::lock_guard lock(mutex_);
      generation_.fetch_add(1, std::memory_order_release);
    }
    wake_.notify_all();
    take_tasks(0);
    for (int spin = 0; busy_.load(std::memory_order_acquire) != 0; ++spin) {
      if (spin < spins_before_sleep) pause_briefly();
      else std::this_thread::yield();
    }
  }

 private:
  void take_tasks(int worker) {
    for (;;) {
      const std::int64_t task = next_.fetch_add(1, std::memory_order_relaxed);
      if (task >= tasks_) return;
      (*body_)(task, worker);
    }
  }

  void serve(int worker) {
    std::uint64_t seen = 0;
    for (;;) {
      int spin = 0;
      while (generation_.load(std::memory_order_acquire) == seen && spin < spins_before_sleep) {
        pause_briefly();
        ++spin;
      }
      if (generation_.load(std::memory_order_acquire) == seen) {
        std::unique_lock lock(mutex_);
        wake_.wait(lock, [&] { return generation_.load(std::memory_order_relaxed) != seen; });
      }
      seen = generation_.load(std::memory_order_acquire);
      if (stop_) return;
      inside_team = true;
      take_tasks(worker);
      inside_team = false;
      busy_.fetch_sub(1, std::memory_order_release);
    }
  }

 public:
  static thread_local bool inside_team;

 private:
  const int count_;
  std::vector<std::thread> workers_;
  std::mutex mutex_;
  std::condition_variable wake_;
  std::atomic<std::uint64_t> generation_{0};
  std::atomic<std::int64_t> next_{0};
  std::atomic<int> busy_{0};
  std::int64_t tasks_ = 0;
  const TaskView* body_ = nullptr;
  bool stop_ = false;
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
    Team::inside_team = true;
    all.team->run(tasks, body);
    Team::inside_team = false;
    return;
  }
  for (std::int64_t task = 0; task < tasks; ++task) body(task, 0);
}

}  // namespace attend
