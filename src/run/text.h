// What translation and continuation of text have in common.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "attend/translate.h"

namespace attend {

// What messages call a line: as `place` says, else "line 3" (or another `what`).
std::string place_of(const LinePlace& place, const char* what, std::int64_t number);

// Tokens of a line; Error(text) of the tokenizer is told again with the place in front.
std::vector<std::int32_t> encode_line(const Tokenizer& tokenizer, std::string_view line, const std::string& place);

// Throws Error(config) unless there is a tokenizer of this size. `stack` is "encoder" or "decoder".
void check_tokenizer(const Tokenizer* tokenizer, std::int64_t vocabulary, const char* where, const char* stack);

TextScore text_score(std::span<const std::int32_t> ids, std::vector<float> log_probabilities);

}  // namespace attend
