// Any file, plain or packed, read in every way: lines or a typed error. The first byte chooses the options.
#include <sys/mman.h>
#include <unistd.h>

#include <cstdlib>

#include "attend/corpus.h"
#include "attend/error.h"
#include "attend/unicode.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace attend;
  if (size == 0) return 0;
  const int descriptor = ::memfd_create("corpus", 0);
  if (descriptor < 0 || ::write(descriptor, data + 1, size - 1) != static_cast<ssize_t>(size - 1)) std::abort();
  const std::string path = "/proc/self/fd/" + std::to_string(descriptor);
  ReadOptions options;
  options.replace_invalid = (data[0] & 1) != 0;
  options.skip_empty = (data[0] & 2) != 0;
  options.longest_line = (data[0] & 4) != 0 ? 16 : 4096;
  options.limit = 1 << 20;
  const auto attempt = [](auto read) {
    try {
      read();
    } catch (const Error& error) {
      if (error.kind() != ErrorKind::text && error.kind() != ErrorKind::format) std::abort();
      if (find_invalid_utf8(error.what()) != std::string_view::npos) std::abort();
    }
  };
  attempt([&] {
    for (const std::string& line : read_lines(path, options).lines)
      if (find_invalid_utf8(line) != std::string_view::npos || line.find('\n') != std::string::npos) std::abort();
  });
  attempt([&] {
    const ParallelCorpus corpus = read_tsv(path, {0, 1, (data[0] & 8) != 0 ? 2 : 0}, options);
    if (corpus.source.size() != corpus.target.size() || corpus.source.empty()) std::abort();
  });
  attempt([&] { read_text(path, options); });
  attempt([&] { read_parallel(path, path, options); });
  ::close(descriptor);
  return 0;
}
