// Any bytes as a safetensors file: an Error, or a file whose every tensor can be read and written again.
#include <cstdint>
#include <cstdlib>
#include <string>
#include <vector>

#include "attend/error.h"
#include "attend/safetensors.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace attend;
  try {
    const SafetensorsFile file(std::string(reinterpret_cast<const char*>(data), size), "fuzz");
    std::int64_t bytes = 0;
    for (const SafetensorsEntry& entry : file.entries()) {
      bytes += entry.end - entry.begin;
      try {
        std::vector<float> values(static_cast<std::size_t>(entry.elements));
        file.read(entry, values);
      } catch (const Error&) {  // an integer type
        (void)file.integers(entry.name).size();
      }
      try {
        (void)file.tensor(entry.name).elements();
      } catch (const Error&) {
      }
    }
    if (bytes > static_cast<std::int64_t>(size)) std::abort();  // more numbers than the file has bytes
  } catch (const Error& error) {
    if (std::string(error.what()).size() > 2000) std::abort();
  }
  return 0;
}
