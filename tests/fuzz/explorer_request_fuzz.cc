// Any bytes as a request to the explorer's interface, to the models behind it, too. The answer is JSON or a tile, or an
// error that is none of ours. Start from tests/fuzz/explorer_requests.
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <iostream>
#include <string>
#include <vector>

#include "fuzz/explorer_requests.h"

extern "C" std::size_t LLVMFuzzerMutate(std::uint8_t* data, std::size_t size, std::size_t most);

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  static auto* const api = new attend::explorer::SmallApi;  // its threads live as long as the process
  const std::string complaint = api->complaint(std::string(reinterpret_cast<const char*>(data), size));
  if (complaint.empty()) return 0;
  std::cerr << complaint << '\n';
  std::abort();
}

// Bytes alone seldom stay JSON.
extern "C" std::size_t LLVMFuzzerCustomMutator(std::uint8_t* data, std::size_t size, std::size_t most, unsigned seed) {
  static const std::vector<std::string> others = attend::explorer::example_requests();
  if (seed % 3 == 0) return LLVMFuzzerMutate(data, size, most);
  const std::string made =
      attend::explorer::RequestMutator(seed).mutated(std::string(reinterpret_cast<const char*>(data), size), others);
  if (made.size() > most) return LLVMFuzzerMutate(data, size, most);
  std::memcpy(data, made.data(), made.size());
  return made.size();
}
