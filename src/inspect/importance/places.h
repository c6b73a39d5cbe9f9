// Which heads and parts a model has.
#pragma once

#include <span>
#include <vector>

#include "attend/importance.h"

namespace attend {

// Error(argument) naming what exists; attention_only: feed-forward layers and whole blocks do not count.
void check_place(const Model& model, const HeadPlace& place, bool attention_only, const char* operation);
// Single heads in rising order, each once; every head of the model where nothing is named.
std::vector<HeadPlace> expand_heads(const Model& model, std::span<const HeadPlace> places, const char* operation);

}  // namespace attend
