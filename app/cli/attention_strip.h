// The strip under a translation: for every target word, the source words it read from.
#pragma once

#include <string>
#include <vector>

#include "attend/translate.h"

namespace attend::cli {

// A word: tokens first..last of a sequence, as one piece of text.
struct Word {
  std::string text;
  std::size_t first = 0, last = 0;
  bool special = false;  // tag, end of sentence
};

// Joins the tokens of a sequence to words: pieces of one alphabetic word become one, everything else stays apart.
std::vector<Word> words_of(const Tokenizer& tokenizer, const std::vector<std::int32_t>& ids);

// Weights between words [target words, source words]: summed over the tokens of a source word (what the word received),
// mean over the tokens of a target word (its tokens ask one after the other). Rows sum to 1.
std::vector<std::vector<float>> word_weights(const Translation& translation, const std::vector<Word>& target,
                                             const std::vector<Word>& source);

// Lines to print. With colour, cells are shaded backgrounds; without, shading characters. Too wide for `columns`: a list
// of the three most read source words for each target word instead of the matrix.
std::vector<std::string> attention_strip(const Translator& translator, const Translation& translation, bool by_token, bool colour,
                                         int columns);

}  // namespace attend::cli
