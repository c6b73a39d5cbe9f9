// Any text as an edit file: an Error, or edits that survive being written and read again.
#include <cstdint>
#include <cstdlib>
#include <string>

#include "attend/edits.h"
#include "attend/error.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace attend;
  EditFile file;
  try {
    file = edit_file_from_json(std::string(reinterpret_cast<const char*>(data), size), "fuzz");
  } catch (const Error&) {
    return 0;
  }
  if (!(edit_file_from_json(to_json(file), "again") == file)) std::abort();
  return 0;
}
