// The work queue: order, bound, superseding, cancelling.
#include <gtest/gtest.h>

#include <condition_variable>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "explorer/work_queue.h"

namespace attend::explorer {
namespace {

// Collects what became of each job.
struct Log {
  std::mutex mutex;
  std::condition_variable changed;
  std::vector<std::string> lines;

  void add(const std::string& line) {
    std::lock_guard lock(mutex);
    lines.push_back(line);
    changed.notify_all();
  }
  std::vector<std::string> wait_for(std::size_t count) {
    std::unique_lock lock(mutex);
    changed.wait_for(lock, std::chrono::seconds(10), [&] { return lines.size() >= count; });
    return lines;
  }
};

// A door that a job waits at until the test opens it, or, unless it is `shut`, until the job is stopped.
struct Door {
  std::atomic<bool> open{false}, entered{false};
  bool shut = false;
  void pass(const StopSignal& stop) {
    entered = true;
    while (!open && (shut || !stop.stopped())) std::this_thread::yield();
  }
  void wait_entered() const {
    while (!entered) std::this_thread::yield();
  }
};

class ExplorerQueue : public testing::Test {
 protected:
  void submit(const std::string& name, const std::string& client, std::int64_t sequence, Door* at = nullptr,
              const std::string& path = "run", std::shared_ptr<std::atomic<bool>> gone = nullptr) {
    queue.submit(
        {client, path, sequence}, gone,
        [this, name, at](const StopSignal& stop) {
          if (at) at->pass(stop);
          log.add(name + (stop.stopped() ? " stopped" : " done"));
        },
        [this, name](const ApiError& error) { log.add(name + " " + std::to_string(error.status())); });
  }

  Log log;
  Door door;
  WorkQueue queue{4};
};

TEST_F(ExplorerQueue, RunsInOrder) {
  for (int i = 0; i < 4; ++i) submit(std::to_string(i), "", 0);
  EXPECT_EQ(log.wait_for(4), (std::vector<std::string>{"0 done", "1 done", "2 done", "3 done"}));
}

TEST_F(ExplorerQueue, RefusesWhatIsBeyondTheBoundAndSaysWhenToComeBack) {
  submit("first", "", 0, &door);
  door.wait_entered();
  for (int i = 0; i < 4; ++i) submit(std::to_string(i), "", 0);
  EXPECT_EQ(queue.state().waiting, 4);
  EXPECT_EQ(queue.state().running, 1);
  EXPECT_GT(queue.state().seconds, 0);
  int retry_after = 0;
  queue.submit(
      {"", "run", 0}, nullptr, [](const StopSignal&) { FAIL(); },
      [&](const ApiError& error) {
        EXPECT_EQ(error.status(), 503);
        retry_after = error.retry_after;
      });
  EXPECT_GE(retry_after, 1);
  door.open = true;
  EXPECT_EQ(log.wait_for(5).size(), 5u);
}

TEST_F(ExplorerQueue, ANewerRequestOfTheSameClientAndPathOvertakes) {
  door.shut = true;  // what waits behind it is in the queue until all are there
  submit("running 1", "page", 1, &door);
  door.wait_entered();
  submit("waiting 2", "page", 2);
  submit("other client", "script", 1);
  submit("other path", "page", 1, nullptr, "row");
  submit("newest 3", "page", 3);  // stops 1, which runs, and drops 2, which waits
  submit("late 2", "page", 2);    // comes after a newer one
  EXPECT_EQ(log.wait_for(2), (std::vector<std::string>{"waiting 2 409", "late 2 409"}));
  door.open = true;
  const std::vector<std::string> lines = log.wait_for(6);
  EXPECT_EQ(std::vector<std::string>(lines.begin() + 2, lines.end()),
            (std::vector<std::string>{"running 1 stopped", "other client done", "other path done", "newest 3 done"}));
}

TEST_F(ExplorerQueue, ANewerRequestStopsTheOneThatRuns) {
  submit("running 1", "page", 1, &door);
  door.wait_entered();
  submit("newest 2", "page", 2);
  EXPECT_EQ(log.wait_for(2), (std::vector<std::string>{"running 1 stopped", "newest 2 done"}));
}

TEST_F(ExplorerQueue, WithoutAClientNothingIsOvertaken) {
  submit("first", "", 1, &door);
  door.wait_entered();
  submit("second", "", 2);
  door.open = true;
  EXPECT_EQ(log.wait_for(2), (std::vector<std::string>{"first done", "second done"}));
}

TEST_F(ExplorerQueue, AJobWhoseClientIsGoneIsNotRun) {
  auto gone = std::make_shared<std::atomic<bool>>(false);
  submit("first", "", 0, &door);
  door.wait_entered();
  submit("abandoned", "", 0, nullptr, "run", gone);
  gone->store(true);
  door.open = true;
  EXPECT_EQ(log.wait_for(2), (std::vector<std::string>{"first done", "abandoned 409"}));
}

TEST(ExplorerQueueEnd, StopsTheRunningJobAndRefusesTheOthers) {
  Log log;
  Door door;
  {
    WorkQueue queue(4);
    queue.submit(
        {}, nullptr, [&](const StopSignal& stop) { door.pass(stop), log.add("stopped"); }, [](const ApiError&) {});
    door.wait_entered();
    queue.submit(
        {}, nullptr, [](const StopSignal&) { FAIL(); },
        [&](const ApiError& error) { log.add(std::to_string(error.status())); });
  }
  std::vector<std::string> lines = log.wait_for(2);
  std::sort(lines.begin(), lines.end());
  EXPECT_EQ(lines, (std::vector<std::string>{"503", "stopped"}));
}

}  // namespace
}  // namespace attend::explorer
