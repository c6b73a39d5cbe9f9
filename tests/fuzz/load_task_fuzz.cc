// Any text as task.json: an Error, or a task that survives being written and read again.
#include <cstdint>
#include <cstdlib>
#include <string>

#include "attend/checkpoint.h"
#include "attend/error.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace attend;
  Task task;
  try {
    task = task_from_json(std::string(reinterpret_cast<const char*>(data), size), "fuzz");
  } catch (const Error&) {
    return 0;
  }
  if (!(task_from_json(to_json(task), "again") == task)) std::abort();
  return 0;
}
