// Any bytes: repaired text is valid, and everything that takes text takes it.
#include <cstdlib>

#include "attend/error.h"
#include "attend/metrics.h"
#include "attend/scripts.h"
#include "attend/unicode.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace attend;
  const std::string_view bytes(reinterpret_cast<const char*>(data), size);
  const std::string text = replace_invalid_utf8(bytes);
  if (find_invalid_utf8(text) != std::string_view::npos) std::abort();
  if ((find_invalid_utf8(bytes) == std::string_view::npos) != (text == bytes)) std::abort();
  if (text_of(characters_of(text)) != text) std::abort();
  for (const auto normalisation : {Normalisation::none, Normalisation::nfc, Normalisation::nfkc}) {
    const std::string once = normalise(text, normalisation);
    if (normalise(once, normalisation) != once) std::abort();
  }
  const double share = han_share(bytes);
  if (!(share >= 0 && share <= 1) || display_width(bytes) < 0) std::abort();
  for (const auto tokenizer : {BleuTokenizer::standard, BleuTokenizer::chinese, BleuTokenizer::character,
                               BleuTokenizer::intl, BleuTokenizer::none}) {
    BleuOptions options;
    options.tokenizer = tokenizer;
    options.lower_case = size % 2 == 0;
    const double bleu = sentence_bleu(bytes, bytes, options).score;
    if (!(bleu >= 0 && bleu <= 100.0001)) std::abort();
  }
  ChrfOptions options;
  options.word_order = 2;
  const double chrf = sentence_chrf(bytes, bytes, options);
  if (!(chrf >= 0 && chrf <= 100.0001)) std::abort();
  return 0;
}
