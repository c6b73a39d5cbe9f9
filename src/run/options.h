// Checks of what callers of generate() and score() pass.
#pragma once

#include <cstdint>
#include <span>
#include <string>

#include "attend/generate.h"

namespace attend {

// Throws Error(argument) unless every option is in range.
void check_options(const DecodeOptions& options, std::int64_t vocabulary);

// Throws Error(argument) unless the model has a decoder, and a source exactly if it has an encoder, of ids it knows and
// no longer than its positions. `where` names the input.
void check_source(const Model& model, std::span<const std::int32_t> source, const std::string& where);

// Throws Error(argument) for an id outside the vocabulary. `what` names the list.
void check_ids(std::span<const std::int32_t> ids, std::int64_t vocabulary, const std::string& where, const char* what);

// Tokens that may be generated for an input at most.
std::int64_t length_limit(const Model& model, const DecodeInput& input, const DecodeOptions& options);

}  // namespace attend
