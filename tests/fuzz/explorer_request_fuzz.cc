// Any bytes as the body of a request to the workbench and to single operations: an answer that is JSON, or an error
// that is none of ours. The limits are small, so that what is allowed is computed quickly.
#include <cstdint>
#include <cstdlib>
#include <string>
#include <string_view>

#include "explorer/api_error.h"
#include "explorer/model_input.h"
#include "explorer/operations.h"
#include "explorer/workbench.h"

namespace {

using namespace attend::explorer;

Limits small() {
  Limits limits;
  limits.rows = 16;
  limits.cells = 256;
  limits.edits = 8;
  limits.tokens = 16;
  return limits;
}

template <typename Action>
void attempt(const Action& action) {
  std::string answer;
  try {
    JsonWriter out;
    out.begin_object();
    action(out);
    out.end_object();
    answer = out.take();
  } catch (...) {
    const ApiError error = current_error();
    if (error.status() == 500) std::abort();
    answer = to_json(error);
  }
  if (!Json::accept(answer)) std::abort();
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  const Limits limits = small();
  attempt([&](JsonWriter& out) {
    write_workbench(out, run_workbench(workbench_request(parse_json(text), limits), limits));
  });
  attempt([&](JsonWriter& out) { out.key("output").rows(run_operation(parse_json(text), limits)); });
  attempt([&](JsonWriter& out) {
    const Json body = parse_json(text);
    Fields fields(body, "");
    out.key("input");
    write_input(out, input_request(fields, "input", limits));
    fields.finish();
  });
  return 0;
}
