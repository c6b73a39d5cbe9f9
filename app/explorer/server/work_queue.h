// The engine's work: one job at a time, a few waiting, older ones given up when a newer of the same client overtakes.
#pragma once

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <thread>

#include "explorer/api_error.h"

namespace attend::explorer {

// Who asks for what; an empty client supersedes nothing.
struct Ticket {
  std::string client, path;
  std::int64_t sequence = 0;
};

// Tells a running job that nobody wants its result any more. Long jobs look at it between their steps.
class StopSignal {
 public:
  StopSignal() = default;
  // `gone` is set when the connection that asked is closed.
  explicit StopSignal(std::shared_ptr<const std::atomic<bool>> gone) : gone_(std::move(gone)) {}

  bool stopped() const { return stop_->load(std::memory_order_relaxed) || gone(); }
  bool gone() const { return gone_ && gone_->load(std::memory_order_relaxed); }
  void stop() const { stop_->store(true, std::memory_order_relaxed); }
  // Throws ApiError 409.
  void check() const;

 private:
  std::shared_ptr<std::atomic<bool>> stop_ = std::make_shared<std::atomic<bool>>(false);
  std::shared_ptr<const std::atomic<bool>> gone_;
};

// One lane: a thread that runs jobs in their order.
class WorkQueue {
 public:
  using Run = std::function<void(const StopSignal&)>;
  using Refuse = std::function<void(const ApiError&)>;

  struct State {
    std::int64_t running = 0, waiting = 0;
    double seconds = 0;  // until all is done, by how long each kind of job took lately
  };

  explicit WorkQueue(std::int64_t most_waiting);
  ~WorkQueue();  // stops the running job, refuses the others
  WorkQueue(const WorkQueue&) = delete;
  WorkQueue& operator=(const WorkQueue&) = delete;

  // Exactly one of the two is called: `run` on the queue's thread, or `refuse`, here or there, when the queue is full
  // (503) or a newer request of this client and path is there or comes before `run` began (409).
  void submit(Ticket ticket, std::shared_ptr<const std::atomic<bool>> gone, Run run, Refuse refuse);

  State state() const;

 private:
  using Clock = std::chrono::steady_clock;
  struct Job {
    Ticket ticket;
    StopSignal stop;
    Run run;
    Refuse refuse;
  };

  void serve();
  double expected(const std::string& path) const;
  State state_locked() const;

  const std::size_t most_waiting_;
  mutable std::mutex mutex_;
  std::condition_variable wake_;
  std::deque<Job> waiting_;
  bool running_ = false, stopping_ = false;
  Ticket running_ticket_;
  StopSignal running_stop_;
  Clock::time_point running_since_;
  std::map<std::string, double> seconds_;  // of a path, a running mean
  std::thread thread_;
};

}  // namespace attend::explorer
