// Any text as config.json: an Error, or a config that survives being written and read again.
#include <cstdint>
#include <cstdlib>
#include <string>

#include "attend/config.h"
#include "attend/error.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace attend;
  TransformerConfig config;
  try {
    config = config_from_json(std::string(reinterpret_cast<const char*>(data), size), "fuzz");
  } catch (const Error&) {
    return 0;
  }
  if (!(config_from_json(to_json(config), "again") == config)) std::abort();
  return 0;
}
