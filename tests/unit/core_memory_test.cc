#include <gtest/gtest.h>

#include <cstdint>
#include <limits>
#include <new>
#include <thread>
#include <utility>
#include <vector>

#include "attend/error.h"
#include "core/memory.h"

namespace attend {
namespace {

TEST(Buffer, IsAlignedAndWritable) {
  for (std::int64_t size : {1, 15, 16, 17, 1000, 600000}) {
    Buffer buffer(size);
    EXPECT_EQ(buffer.size(), size);
    ASSERT_NE(buffer.data(), nullptr);
    EXPECT_EQ(reinterpret_cast<std::uintptr_t>(buffer.data()) % buffer_alignment, 0u);
    for (std::int64_t i = 0; i < size; ++i) buffer.data()[i] = static_cast<float>(i);
    EXPECT_EQ(buffer.data()[size - 1], static_cast<float>(size - 1));
  }
}

TEST(Buffer, OfNothingHoldsNothing) {
  const MemoryUse before = memory_use();
  Buffer none, zero(0);
  EXPECT_EQ(none.data(), nullptr);
  EXPECT_EQ(zero.data(), nullptr);
  EXPECT_EQ(memory_use().live_bytes, before.live_bytes);
}

TEST(Buffer, RefusesSizesThatCannotBe) {
  EXPECT_THROW(Buffer(-1), Error);
  // Four bytes each, these would wrap around to a small number.
  EXPECT_THROW(Buffer(std::int64_t{1} << 62), std::bad_alloc);
  EXPECT_THROW(Buffer(std::numeric_limits<std::int64_t>::max()), std::bad_alloc);
}

TEST(Buffer, MovesWithoutCopying) {
  Buffer first(100);
  float* data = first.data();
  Buffer second(std::move(first));
  EXPECT_EQ(second.data(), data);
  EXPECT_EQ(second.size(), 100);
  EXPECT_EQ(first.data(), nullptr);  // NOLINT: the state after a move is part of the contract
  Buffer third(50);
  third = std::move(second);
  EXPECT_EQ(third.data(), data);
  EXPECT_EQ(third.size(), 100);
}

TEST(Memory, IsKeptAndHandedOutAgain) {
  release_kept_memory();
  float* data = nullptr;
  {
    Buffer buffer(5000);
    data = buffer.data();
  }
  EXPECT_GE(memory_use().kept_bytes, 20000);
  Buffer again(5000);
  EXPECT_EQ(again.data(), data);
  EXPECT_EQ(memory_use().kept_bytes, 0);
}

TEST(Memory, OfSlightlyDifferentSizesIsShared) {
  release_kept_memory();
  float* data = nullptr;
  {
    Buffer buffer(16384 * 5 / 4 - 1);
    data = buffer.data();
  }
  Buffer again(16384 * 5 / 4 - 100);
  EXPECT_EQ(again.data(), data);
}

TEST(Memory, IsCounted) {
  release_kept_memory();
  reset_peak_memory();
  const MemoryUse start = memory_use();
  EXPECT_EQ(start.peak_bytes, start.live_bytes);
  {
    Buffer one(1024), two(2048);
    EXPECT_EQ(memory_use().live_bytes, start.live_bytes + 3 * 4096);
  }
  EXPECT_EQ(memory_use().live_bytes, start.live_bytes);
  EXPECT_EQ(memory_use().peak_bytes, start.live_bytes + 3 * 4096);
  EXPECT_EQ(memory_use().kept_bytes, 3 * 4096);
  reset_peak_memory();
  EXPECT_EQ(memory_use().peak_bytes, start.live_bytes);
  release_kept_memory();
  EXPECT_EQ(memory_use().kept_bytes, 0);
}

// A large block is whole huge pages of 2 MiB, and so is what is counted.
TEST(Memory, OfLargeBlocksIsCountedAsAllocated) {
  constexpr std::int64_t huge = 2 << 20;
  release_kept_memory();
  const std::int64_t live = memory_use().live_bytes;
  for (const std::int64_t bytes : {huge - 4, huge, huge + 4, 5 * huge / 2, 3 * huge + 4, 9 * huge + 4}) {
    Buffer buffer(bytes / 4);
    const std::int64_t counted = memory_use().live_bytes - live;
    EXPECT_GE(counted, bytes);
    EXPECT_EQ(counted % huge, 0) << bytes;
    EXPECT_EQ(reinterpret_cast<std::uintptr_t>(buffer.data()) % huge, 0u) << bytes;
  }
}

TEST(Memory, MayBeAskedForByManyThreads) {
  const std::int64_t live = memory_use().live_bytes;
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t)
    threads.emplace_back([t] {
      for (int i = 0; i < 500; ++i) {
        Buffer buffer(100 + (i * 37 + t) % 900);
        buffer.data()[0] = static_cast<float>(t);
        buffer.data()[buffer.size() - 1] = static_cast<float>(t);
        ASSERT_EQ(buffer.data()[0], static_cast<float>(t));
      }
    });
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(memory_use().live_bytes, live);
}

}  // namespace
}  // namespace attend
