// What translation and continuation of text have in common.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "attend/translate.h"

namespace attend {

// Tokens of a line; Error(text) of the tokenizer is told again with "line N" (or another `what`) in front.
std::vector<std::int32_t> encode_line(const Tokenizer& tokenizer, std::string_view line, const char* what,
                                      std::int64_t number);

// Throws Error(config) unless there is a tokenizer of this size. `stack` is "encoder" or "decoder".
void check_tokenizer(const Tokenizer* tokenizer, std::int64_t vocabulary, const char* where, const char* stack);

TextScore text_score(std::span<const std::int32_t> ids, std::vector<float> log_probabilities);

}  // namespace attend
