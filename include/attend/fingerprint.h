// Fingerprints: 16 hexadecimal digits that tell two models or two texts apart, the same on every machine. Files that were
// made for one model or one text keep them.
#pragma once

#include <cstdint>
#include <span>
#include <string>

#include "attend/model.h"

namespace attend {

// Of config and parameters: equal for models that compute the same from the same numbers.
std::string fingerprint(const Model& model);

// Of token ids, in their order.
std::string fingerprint(std::span<const std::int32_t> ids);
// Of what a batch holds, item by item.
std::string fingerprint(const TokenBatch& tokens);
// Of several in their order: those of a source and its target, say.
std::string fingerprint_of(std::span<const std::string> fingerprints);

}  // namespace attend
