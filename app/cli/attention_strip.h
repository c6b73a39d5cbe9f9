// The strip under a translation: for every target word, the source words it read from.
#pragma once

#include <string>
#include <vector>

#include "attend/translate.h"

namespace attend::cli {

// Lines to print, by words or by token. Weights between words are sums over the tokens of a source word (what the word
// received) and means over those of a target word, so rows sum to 1. With colour, cells are shaded backgrounds; without,
// shading characters. Too wide for `columns`: a list of the three most read source words for each target word instead of
// the matrix.
std::vector<std::string> attention_strip(const Translator& translator, const Translation& translation, bool by_token,
                                         bool colour, int columns);

}  // namespace attend::cli
