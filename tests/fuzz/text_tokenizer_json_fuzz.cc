// Any tokenizer.json, with a small model beside it: a tokenizer that works or a format error.
#include <cstdlib>

#include "attend/error.h"
#include "attend/tokenizer.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace attend;
  const std::vector<NamedBytes> files = {{"tokenizer.json", std::string(reinterpret_cast<const char*>(data), size)},
                                         {"tokenizer.model", "no model"}};
  try {
    const auto tokenizer = load_tokenizer(files, "fuzz");
    if (load_tokenizer(tokenizer->serialise(), "again")->fingerprint() != tokenizer->fingerprint()) std::abort();
    for (int id = 0; id < tokenizer->size(); ++id) tokenizer->readable(id);
  } catch (const Error& error) {
    if (error.kind() != ErrorKind::format) std::abort();
  }
  return 0;
}
