// The memory of tensors as a program sees it that runs for long. What is freed is kept for the next tensor of its size.
#pragma once

#include <cstdint>

namespace attend {

struct MemoryUse {
  std::int64_t live_bytes = 0;  // in buffers that somebody owns
  std::int64_t peak_bytes = 0;  // highest live_bytes since the last reset_peak_memory()
  std::int64_t kept_bytes = 0;  // freed, kept for the next request
};
MemoryUse memory_use();
void reset_peak_memory();
// What a buffer (the storage of a tensor) of so many floats adds to live_bytes: sizes are rounded up, large ones to
// whole pages of 2 MiB.
std::int64_t buffer_bytes(std::int64_t floats);
// Returns all kept memory to the allocator, which returns large blocks to the operating system.
void release_kept_memory();

}  // namespace attend
