// Any tokenizer.bin: a tokenizer that loses no text, or a format error. The bytes follow the 256 byte tokens that every
// such file has; without them a fuzzer would never get so far.
#include <cstdlib>

#include "attend/error.h"
#include "attend/tokenizer.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace attend;
  const std::string bytes(reinterpret_cast<const char*>(data), size);
  const auto entry = [](const std::string& piece) {
    return std::string("\0\0\0\0", 4) + static_cast<char>(piece.size()) + std::string("\0\0\0", 3) + piece;
  };
  std::string start("\x10\0\0\0", 4);
  for (const char* piece : {"<unk>", "\n<s>\n", "\n</s>\n"}) start += entry(piece);
  static const char digits[] = "0123456789ABCDEF";
  for (int byte = 0; byte < 256; ++byte)
    start += entry(std::string("<0x") + digits[byte / 16] + digits[byte % 16] + ">");
  for (const std::string& file : {bytes, start + bytes, start + entry(" ") + bytes}) {
    try {
      const auto tokenizer = llama2c_tokenizer(file);
      const std::string text = replace_invalid_utf8(bytes);
      const std::string back = tokenizer->decode(tokenizer->encode(text));
      // A file can hold tokens that are not text; then something is lost, but nothing breaks.
      bool valid = true;
      for (const std::string& piece : tokenizer->pieces())
        valid = valid && find_invalid_utf8(piece) == std::string::npos;
      if (valid && back != text) std::abort();
    } catch (const Error& error) {
      if (error.kind() != ErrorKind::format) std::abort();
    }
  }
  return 0;
}
