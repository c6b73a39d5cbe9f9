// A file as a stream of bytes, unpacked on the way if its first bytes say that it is packed.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <string>

namespace attend {

class ByteSource {
 public:
  virtual ~ByteSource() = default;
  // At most `size` bytes, as many as are there now; 0 only at the end.
  virtual std::size_t read(char* bytes, std::size_t size) = 0;
  // True if read() would not wait for somebody to write.
  virtual bool ready() = 0;
};

// "-" is the standard input. More than `limit` bytes after unpacking are Error(format). Errors as in attend/corpus.h.
std::unique_ptr<ByteSource> open_bytes(const std::filesystem::path& path, std::int64_t limit);

}  // namespace attend
