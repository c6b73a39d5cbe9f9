#include "explorer/work_queue.h"

#include <stdlib.h>  // __GLIBC__
#ifdef __GLIBC__
#include <malloc.h>
#endif

#include <algorithm>
#include <cmath>
#include <utility>
#include <vector>

#include "attend/memory.h"

namespace attend::explorer {
namespace {

ApiError overtaken() { return {409, "superseded", "request", "a newer request of this client overtook this one"}; }

ApiError left() { return {409, "superseded", "request", "the client closed its connection before it was answered"}; }

// The engine keeps what tensors free for the next of their size, which a server of small inputs lives on. What a long text
// leaves would be kept for good, and beside the runs that are cached: beyond this it goes back. The C library in turn keeps
// freed blocks in the heap of each thread that made some, wherever one above is still in use.
constexpr std::int64_t most_kept_bytes = std::int64_t{32} << 20;

void give_memory_back() {
  if (memory_use().kept_bytes <= most_kept_bytes) return;
  release_kept_memory();
#ifdef __GLIBC__
  malloc_trim(0);
#endif
}

bool same(const Ticket& a, const Ticket& b) { return !a.client.empty() && a.client == b.client && a.path == b.path; }

}  // namespace

void StopSignal::check() const {
  if (gone()) throw left();
  if (stopped()) throw overtaken();
}

WorkQueue::WorkQueue(std::int64_t most_waiting)
    : most_waiting_(static_cast<std::size_t>(most_waiting)), thread_([this] { serve(); }) {}

WorkQueue::~WorkQueue() {
  std::deque<Job> left;
  {
    std::lock_guard lock(mutex_);
    stopping_ = true;
    left.swap(waiting_);
    running_stop_.stop();
  }
  wake_.notify_all();
  for (const Job& job : left) job.refuse({503, "busy", "server", "is being stopped"});
  thread_.join();
}

void WorkQueue::submit(Ticket ticket, std::shared_ptr<const std::atomic<bool>> gone, Run run, Refuse refuse) {
  std::vector<Job> given_up;
  int retry_after = 0;
  bool late = false, full = false;
  {
    std::lock_guard lock(mutex_);
    if (running_ && same(running_ticket_, ticket)) {
      if (running_ticket_.sequence < ticket.sequence) running_stop_.stop();
      late = running_ticket_.sequence > ticket.sequence;
    }
    for (auto job = waiting_.begin(); job != waiting_.end();) {
      if (same(job->ticket, ticket) && job->ticket.sequence < ticket.sequence) {
        given_up.push_back(std::move(*job));
        job = waiting_.erase(job);
      } else {
        late = late || (same(job->ticket, ticket) && job->ticket.sequence > ticket.sequence);
        ++job;
      }
    }
    if (!late) {
      full = stopping_ || waiting_.size() >= most_waiting_;
      if (full) retry_after = std::clamp(static_cast<int>(std::ceil(state_locked().seconds)), 1, 60);
      else waiting_.push_back({std::move(ticket), StopSignal(std::move(gone)), std::move(run), refuse});
    }
  }
  wake_.notify_one();
  for (const Job& job : given_up) job.refuse(overtaken());
  if (late) refuse(overtaken());
  if (full) {
    ApiError busy(503, "busy", "server", join(most_waiting_, " requests are waiting"),
                  join("try again in ", retry_after, " s"));
    busy.retry_after = retry_after;
    refuse(busy);
  }
}

void WorkQueue::serve() {
  std::unique_lock lock(mutex_);
  for (;;) {
    wake_.wait(lock, [this] { return stopping_ || !waiting_.empty(); });
    if (stopping_) return;
    Job job = std::move(waiting_.front());
    waiting_.pop_front();
    running_ = true;
    running_ticket_ = job.ticket;
    running_stop_ = job.stop;
    running_since_ = Clock::now();
    lock.unlock();
    if (job.stop.stopped()) job.refuse(job.stop.gone() ? left() : overtaken());
    else job.run(job.stop);
    const bool whole = !job.stop.stopped();
    job = Job();  // what it holds is freed before the next one begins
    give_memory_back();
    lock.lock();
    running_ = false;
    if (whole) {
      const double took = std::chrono::duration<double>(Clock::now() - running_since_).count();
      const auto [place, fresh] = seconds_.emplace(running_ticket_.path, took);
      if (!fresh) place->second += 0.2 * (took - place->second);
    }
  }
}

double WorkQueue::expected(const std::string& path) const {
  const auto found = seconds_.find(path);
  return found == seconds_.end() ? 0.1 : found->second;
}

WorkQueue::State WorkQueue::state_locked() const {
  State state{running_ ? 1 : 0, static_cast<std::int64_t>(waiting_.size()), 0};
  if (running_) {
    const double elapsed = std::chrono::duration<double>(Clock::now() - running_since_).count();
    state.seconds += std::max(0.0, expected(running_ticket_.path) - elapsed);
  }
  for (const Job& job : waiting_) state.seconds += expected(job.ticket.path);
  return state;
}

WorkQueue::State WorkQueue::state() const {
  std::lock_guard lock(mutex_);
  return state_locked();
}

}  // namespace attend::explorer
