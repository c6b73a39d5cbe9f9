#include <gtest/gtest.h>

#include <sys/resource.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <chrono>
#include <cstdlib>
#include <fstream>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include "attend/error.h"
#include "core/threads.h"

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define ATTEND_SANITIZED
#elif defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer)
#define ATTEND_SANITIZED
#endif
#endif

namespace attend {
namespace {

class Threads : public testing::Test {
 protected:
  void SetUp() override { before_ = threads(); }
  void TearDown() override { set_threads(before_); }

 private:
  int before_ = 1;
};

TEST_F(Threads, NumberIsSetAndChecked) {
  for (int count : {1, 2, 3, 8}) {
    set_threads(count);
    EXPECT_EQ(threads(), count);
  }
  for (int count : {0, -1, 257}) {
    try {
      set_threads(count);
      FAIL() << count;
    } catch (const Error& error) {
      EXPECT_EQ(error.kind(), ErrorKind::argument);
      EXPECT_NE(std::string(error.what()).find(std::to_string(count)), std::string::npos);
    }
  }
  EXPECT_EQ(threads(), 8);
}

TEST_F(Threads, EveryTaskRunsOnceOnAWorkerOfTheTeam) {
  for (int count : {1, 2, 3, 5}) {
    set_threads(count);
    for (std::int64_t tasks : {0, 1, 2, 3, 7, 1000}) {
      std::vector<std::atomic<int>> runs(static_cast<std::size_t>(tasks));
      std::atomic<bool> inside{true};
      parallel_for(tasks, [&](std::int64_t task, int worker) {
        ++runs[static_cast<std::size_t>(task)];
        if (worker < 0 || worker >= count) inside = false;
      });
      EXPECT_TRUE(inside);
      for (const std::atomic<int>& run : runs) EXPECT_EQ(run, 1);
    }
  }
}

TEST_F(Threads, NoTwoTasksShareAWorkerAtOneTime) {
  set_threads(3);
  std::array<std::atomic<int>, 3> busy{};
  std::atomic<bool> shared{false};
  parallel_for(2000, [&](std::int64_t, int worker) {
    auto& mine = busy[static_cast<std::size_t>(worker)];
    if (mine.fetch_add(1) != 0) shared = true;
    mine.fetch_sub(1);
  });
  EXPECT_FALSE(shared);
}

TEST_F(Threads, ResultsAreSeenByTheCaller) {
  set_threads(2);
  for (int round = 0; round < 2000; ++round) {
    int values[4] = {};
    parallel_for(4, [&](std::int64_t task, int) { values[task] = round; });
    for (int value : values) ASSERT_EQ(value, round);
  }
}

TEST_F(Threads, WakeAfterASleep) {
  set_threads(2);
  for (int round = 0; round < 3; ++round) {
    std::atomic<int> runs{0};
    parallel_for(10, [&](std::int64_t, int) { ++runs; });
    EXPECT_EQ(runs, 10);
    std::this_thread::sleep_for(std::chrono::milliseconds(30));
  }
}

TEST_F(Threads, NestedCallsRunInlineAsWorkerZero) {
  set_threads(3);
  std::atomic<int> runs{0};
  std::atomic<bool> elsewhere{false};
  parallel_for(6, [&](std::int64_t, int) {
    const auto outer = std::this_thread::get_id();
    parallel_for(5, [&](std::int64_t, int worker) {
      ++runs;
      if (worker != 0 || std::this_thread::get_id() != outer) elsewhere = true;
    });
  });
  EXPECT_EQ(runs, 30);
  EXPECT_FALSE(elsewhere);
}

TEST_F(Threads, CallersAtOnceAllFinish) {
  set_threads(2);
  std::atomic<std::int64_t> sum{0};
  std::vector<std::thread> callers;
  for (int caller = 0; caller < 4; ++caller)
    callers.emplace_back([&] {
      for (int round = 0; round < 200; ++round) parallel_for(8, [&](std::int64_t task, int) { sum += task; });
    });
  for (std::thread& caller : callers) caller.join();
  EXPECT_EQ(sum, 4 * 200 * 28);
}

TEST_F(Threads, TheExceptionOfTheLowestTaskReachesTheCaller) {
  for (int count : {1, 2, 3, 5}) {
    set_threads(count);
    for (int round = 0; round < 50; ++round) {
      std::atomic<int> runs{0};
      try {
        parallel_for(1000, [&](std::int64_t task, int) {
          ++runs;
          if (task % 7 == 3) throw Error(ErrorKind::numeric, "task", join("number ", task), "");
        });
        FAIL() << count;
      } catch (const Error& error) {
        EXPECT_EQ(error.what_happened(), "number 3") << count;
      }
      EXPECT_LE(runs, 4 + 7 * count);  // each worker may have one failing task begun; the rest is left out
      // The team is whole again: it works, and calls in tasks still run inline.
      std::atomic<int> inner{0};
      parallel_for(4, [&](std::int64_t, int) {
        parallel_for(3, [&](std::int64_t, int worker) { inner += worker == 0 ? 1 : 100; });
      });
      EXPECT_EQ(inner, 12);
    }
  }
}

TEST_F(Threads, ExceptionsOfNestedCallsPassThrough) {
  set_threads(2);
  EXPECT_THROW(
      parallel_for(
          4, [](std::int64_t, int) { parallel_for(2, [](std::int64_t, int) { throw std::runtime_error("inner"); }); }),
      std::runtime_error);
}

TEST_F(Threads, AViewIsCopiedNotWrapped) {
  int sum = 0;
  auto add = [&](std::int64_t task, int) { sum += static_cast<int>(task); };
  auto twice = [&](std::int64_t task, int) { sum += 2 * static_cast<int>(task); };
  TaskView view(add);
  TaskView copy(view);  // NOLINT: from an lvalue on purpose
  view = TaskView(twice);
  copy(5, 0);
  EXPECT_EQ(sum, 5);
}

// Sanitizers take address space of their own, which the limit would refuse.
#if !defined(ATTEND_SANITIZED)
int work_without_room_for_threads() {
  std::int64_t pages = 0;
  std::ifstream("/proc/self/statm") >> pages;
  // Room for a few stacks of threads, not for 200.
  const rlim_t room = static_cast<rlim_t>(pages * sysconf(_SC_PAGESIZE)) + (rlim_t{100} << 20);
  const rlimit limit{room, room};
  if (setrlimit(RLIMIT_AS, &limit) != 0) return 2;
  set_threads(200);
  std::atomic<std::int64_t> sum{0};
  for (int round = 0; round < 3; ++round) parallel_for(1000, [&](std::int64_t task, int) { sum += task; });
  return sum == 3 * 499500 ? 0 : 1;
}

TEST_F(Threads, WorkIsDoneByFewerWhereTheSystemGivesNoMore) {
  set_threads(1);  // ends the team, so that the child process below begins without one
  EXPECT_EXIT(std::_Exit(work_without_room_for_threads()), testing::ExitedWithCode(0), "");
}
#endif

TEST_F(Threads, RangesCoverEverythingOnce) {
  for (int count : {1, 2, 3}) {
    set_threads(count);
    for (std::int64_t size : {0, 1, 2, 7, 64, 1001})
      for (std::int64_t grain : {1, 3, 100, 5000}) {
        std::vector<std::atomic<int>> seen(static_cast<std::size_t>(size));
        std::atomic<bool> small{false};
        parallel_ranges(size, grain, [&](std::int64_t begin, std::int64_t end, int) {
          if (end - begin < grain && end != size) small = true;
          for (std::int64_t i = begin; i < end; ++i) ++seen[static_cast<std::size_t>(i)];
        });
        for (const std::atomic<int>& times : seen) EXPECT_EQ(times, 1);
        EXPECT_FALSE(small);
      }
  }
}

}  // namespace
}  // namespace attend
