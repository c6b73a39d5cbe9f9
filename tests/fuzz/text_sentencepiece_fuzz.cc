// Any SentencePiece model: a tokenizer that works or a format error; never the end of the process. Start it with
// tests/golden/sentencepiece/unigram-en.model.
#include <cstdlib>

#include "attend/error.h"
#include "attend/tokenizer.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace attend;
  std::shared_ptr<const Tokenizer> tokenizer;
  try {
    tokenizer = sentencepiece_tokenizer(std::string(reinterpret_cast<const char*>(data), size), Normalisation::none);
  } catch (const Error& error) {
    if (error.kind() != ErrorKind::format) std::abort();
    return 0;
  }
  for (const char* text :
       {"", " ", "Hello world", "\xEF\xBC\xA1\xE2\x91\xA0 \xE3\x8D\xBF\xC3\xA9", "\xE6\x88\x91<s><0x41>\n"}) {
    try {
      std::int64_t at = 0;
      for (const TokenSpan& span : tokenizer->encode_spans(text)) {
        if (span.begin < at || span.end < span.begin || span.id < 0 || span.id >= tokenizer->size()) std::abort();
        at = span.end;
      }
      tokenizer->decode(tokenizer->encode(text));
    } catch (const Error& error) {
      if (error.kind() != ErrorKind::text) std::abort();
    }
  }
  return 0;
}
