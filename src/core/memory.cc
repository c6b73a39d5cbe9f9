#include "core/memory.h"

#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/sysinfo.h>

#include <algorithm>
#include <cstdlib>
#include <fstream>
#include <limits>
#include <map>
#include <mutex>
#include <new>
#include <string>
#include <utility>
#include <vector>

#include "attend/error.h"

namespace attend {
namespace {

constexpr std::size_t huge_page = 2u << 20;

// Beyond this a size in bytes, rounded up, could wrap around to a small one.
constexpr std::int64_t most_floats = std::int64_t{1} << 56;

// Sizes are rounded up to four classes per power of two, so that batches of slightly different lengths share memory.
std::size_t bytes_for(std::int64_t size) {
  std::size_t bytes = std::max<std::size_t>(static_cast<std::size_t>(size) * sizeof(float), buffer_alignment);
  std::size_t power = buffer_alignment;
  while (power * 2 <= bytes) power *= 2;
  std::size_t step = std::max(power / 4, buffer_alignment);
  // Large blocks are whole huge pages: what is counted is what is allocated.
  if (bytes >= huge_page) step = std::max(step, huge_page);
  return (bytes + step - 1) / step * step;
}

struct Store {
  std::mutex mutex;
  std::map<std::size_t, std::vector<void*>> kept;
  MemoryUse use;
};

Store& store() {
  static Store* instance = new Store;  // never destroyed: buffers with static lifetime return here
  return *instance;
}

}  // namespace

Buffer::Buffer(std::int64_t size) : size_(size) {
  if (size < 0) throw Error(ErrorKind::argument, "Buffer", join("size ", size, " is negative"));
  if (size == 0) return;
  if (size > most_floats) throw std::bad_alloc();
  const std::size_t bytes = bytes_for(size);
  Store& memory = store();
  {
    std::lock_guard lock(memory.mutex);
    auto found = memory.kept.find(bytes);
    if (found != memory.kept.end() && !found->second.empty()) {
      data_ = static_cast<float*>(found->second.back());
      found->second.pop_back();
      memory.use.kept_bytes -= static_cast<std::int64_t>(bytes);
    }
  }
  if (data_ == nullptr) {
    const std::size_t alignment = bytes >= huge_page ? huge_page : buffer_alignment;
    void* fresh = std::aligned_alloc(alignment, bytes);
    if (fresh == nullptr) throw std::bad_alloc();
    if (bytes >= huge_page) madvise(fresh, bytes, MADV_HUGEPAGE);
    data_ = static_cast<float*>(fresh);
  }
  std::lock_guard lock(memory.mutex);
  memory.use.live_bytes += static_cast<std::int64_t>(bytes);
  memory.use.peak_bytes = std::max(memory.use.peak_bytes, memory.use.live_bytes);
}

Buffer::~Buffer() {
  if (data_ == nullptr) return;
  const std::size_t bytes = bytes_for(size_);
  Store& memory = store();
  std::lock_guard lock(memory.mutex);
  memory.use.live_bytes -= static_cast<std::int64_t>(bytes);
  memory.use.kept_bytes += static_cast<std::int64_t>(bytes);
  memory.kept[bytes].push_back(data_);
}

Buffer::Buffer(Buffer&& other) noexcept
    : data_(std::exchange(other.data_, nullptr)), size_(std::exchange(other.size_, 0)) {}

Buffer& Buffer::operator=(Buffer&& other) noexcept {
  std::swap(data_, other.data_);
  std::swap(size_, other.size_);
  return *this;
}

MemoryUse memory_use() {
  std::lock_guard lock(store().mutex);
  return store().use;
}

void reset_peak_memory() {
  std::lock_guard lock(store().mutex);
  store().use.peak_bytes = store().use.live_bytes;
}

std::int64_t buffer_bytes(std::int64_t floats) {
  return floats <= 0 ? 0 : static_cast<std::int64_t>(bytes_for(floats));
}

ResidentBytes resident_bytes() {
  ResidentBytes result;
  std::ifstream status("/proc/self/status");
  for (std::string key; status >> key;) {
    std::int64_t kibibytes = 0;
    if (key == "VmRSS:" && status >> kibibytes) result.now = kibibytes << 10;
    if (key == "VmHWM:" && status >> kibibytes) result.most = kibibytes << 10;
    std::getline(status, key);
  }
  return result;
}

std::int64_t most_memory() {
  std::int64_t most = std::numeric_limits<std::int64_t>::max();
  struct sysinfo machine {};
  if (::sysinfo(&machine) == 0)
    most =
        static_cast<std::int64_t>(machine.totalram + machine.totalswap) * static_cast<std::int64_t>(machine.mem_unit);
  for (const auto resource : {RLIMIT_AS, RLIMIT_DATA}) {
    rlimit limit{};
    if (::getrlimit(resource, &limit) == 0 && limit.rlim_cur != RLIM_INFINITY)
      most = std::min(most, static_cast<std::int64_t>(limit.rlim_cur));
  }
  for (const char* file : {"/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes"}) {
    std::int64_t bytes = 0;
    if (std::ifstream(file) >> bytes && bytes > 0) most = std::min(most, bytes);  // "max": no limit
  }
  return most;
}

void release_kept_memory() {
  Store& memory = store();
  std::lock_guard lock(memory.mutex);
  for (auto& [bytes, list] : memory.kept)
    for (void* block : list) std::free(block);
  memory.kept.clear();
  memory.use.kept_bytes = 0;
}

}  // namespace attend
