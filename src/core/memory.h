// Aligned float memory that is kept and handed out again: a training step asks for the same sizes every time, and
// fresh pages from the kernel cost more than the arithmetic done on them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>

#include "attend/memory.h"

namespace attend {

// Alignment of every buffer in bytes: one cache line, and the widest vector there is.
inline constexpr std::size_t buffer_alignment = 64;

// Owns `size` floats, not initialised. Movable. Freed memory goes back to the process-wide store.
class Buffer {
 public:
  Buffer() = default;
  explicit Buffer(std::int64_t size);
  ~Buffer();
  Buffer(Buffer&& other) noexcept;
  Buffer& operator=(Buffer&& other) noexcept;
  Buffer(const Buffer&) = delete;
  Buffer& operator=(const Buffer&) = delete;

  float* data() { return data_; }
  const float* data() const { return data_; }
  std::int64_t size() const { return size_; }

 private:
  float* data_ = nullptr;
  std::int64_t size_ = 0;
};

// Bytes of this process that lie in memory now, and the most there were since it began; 0 where the system does not tell.
struct ResidentBytes {
  std::int64_t now = 0, most = 0;
};
ResidentBytes resident_bytes();
// Bytes that this process can have at most: memory and swap of the machine, less where a limit is set (ulimit -v, cgroup).
std::int64_t most_memory();

}  // namespace attend
