// What people read instead of tokens: readable pieces, groups of tokens (characters, words, a given segmentation, spans
// of the user's), and values between tokens merged to values between groups.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "attend/tokenizer.h"
#include "attend/unicode.h"

namespace attend {

// What a token is, beside text. All but `text` are special tokens.
enum class TokenRole { text, bos, eos, pad, unknown, tag, class_token };
const char* name_of(TokenRole role);  // "text", "bos", ..., "tag" (any other control token), "class token"

// One token of a sequence as people read it.
struct Piece {
  std::int32_t id = 0;  // -1: the row of a class token, which has no id
  TokenRole role = TokenRole::text;
  // Without the blank in front; line ends as \n; a token of blanks only is U+2423. Where a character is cut over
  // several tokens, the first of them has the whole character and the others nothing. Special tokens by their name.
  std::string text;
  std::string raw;            // the token alone, as Tokenizer::readable() shows it
  std::string bytes;          // the text it stands for; "" for special tokens (unknown: only if text was given)
  bool blank_before = false;  // a blank stands before or at the front of the text
  // Fragments of a character: this token is number `fragment` of `fragments` tokens that share characters. 0 of 1: a
  // whole token.
  int fragment = 0, fragments = 1;

  bool special() const { return role != TokenRole::text; }
};

// The pieces of a sequence as a model reads or writes it, special tokens included; an id of -1 is a class token. With
// `text`, whose tokens the ids that are not control tokens must be, an unknown token gets the characters it stands for.
// Error(argument): an id outside the vocabulary, or a text that gives other tokens.
std::vector<Piece> pieces_of(const Tokenizer& tokenizer, std::span<const std::int32_t> ids, std::string_view text = {});

// Tokens begin .. end - 1 of a sequence, shown as one thing.
struct TokenGroup {
  std::int64_t begin = 0, end = 0;
  std::string text;
  TokenRole role = TokenRole::text;  // of a group of one special token
  // Which words of the text it is: [first_word, end_word), counted from 0. One word a group; none for special tokens
  // (an unknown token is a word) and for blanks; more where a token belongs to several words of a segmentation.
  std::int64_t first_word = 0, end_word = 0;

  std::int64_t size() const { return end - begin; }
  bool special() const { return role != TokenRole::text; }
  bool operator==(const TokenGroup&) const = default;
};

// The groups of a sequence stand in order and hold every token once. No token is cut: a token of two Chinese characters
// is one group of two characters. Special tokens stay alone, but for an unknown token whose characters are known.
enum class GroupBy {
  token,      // parts of a character by their bytes, <0xF0>
  character,  // fragments of a character joined, nothing more
  word,       // a word of letters or digits, with apostrophes and hyphens inside and its decimal point; punctuation
              // apart; every character of scripts without blanks (Chinese) apart. A blank opens the word after it.
  blank,      // what stands between blanks, punctuation included
};
const char* name_of(GroupBy by);                // "token", "character", "word", "blank"
GroupBy group_by_named(std::string_view name);  // Error(argument) with the known names
std::vector<TokenGroup> group(std::span<const Piece> pieces, GroupBy by);

// Groups after a segmentation of the same text: `line` is the text with blanks between its words. Words that share a
// token become one group. Error(text) if the line, blanks aside, spells anything else; it names the word and both
// spellings. `normalisation` is the tokenizer's.
std::vector<TokenGroup> group_by_segmentation(std::span<const Piece> pieces, std::string_view line,
                                              Normalisation normalisation);

struct TokenRange {
  std::int64_t begin = 0, end = 0;
};
// Groups that the user chose; tokens in none of them stay alone. Error(argument): a range that is empty, beyond the
// tokens, or overlaps another; it names the range.
std::vector<TokenGroup> group_by_ranges(std::span<const Piece> pieces, std::span<const TokenRange> ranges);

// ---- Values between tokens, merged to values between groups ---------------------------------------------------------

enum class Merge {
  // Attention weights: sum over the keys of a group, mean over its queries. The weights of one query are shares of one
  // whole, so what a word receives is what its tokens receive together. A word of several query tokens asks once with
  // each of them; the mean takes these rows as equals and is again a row of shares: rows that sum to 1 sum to 1 after.
  weights,
  // Effects of edges (on a logit, say): sum over keys and over queries. To first order, cutting several edges at once
  // has the sum of their effects (exactly so for first-order effects); the sum over everything is kept.
  effects,
};

// values [queries, keys] row by row -> [query groups, key groups]. The groups of a decoder's self-attention are the
// same on both sides; of cross-attention they are the target's and the source's. Summed in double, in the order of the
// tokens. Error(shape): groups that do not hold every token once in order, or as many values as do not fit them.
std::vector<float> merge(std::span<const float> values, std::span<const TokenGroup> query_groups,
                         std::span<const TokenGroup> key_groups, Merge how);

// One value between a query and a key, by index of token or group.
struct EdgeValue {
  std::int64_t query = 0, key = 0;
  float value = 0;
  bool operator==(const EdgeValue&) const = default;
};
// The same for a list of edges, edges not listed being 0: each pair of groups with any edge once, by query, then key.
// Error(shape) for an edge outside the groups.
std::vector<EdgeValue> merge(std::span<const EdgeValue> edges, std::span<const TokenGroup> query_groups,
                             std::span<const TokenGroup> key_groups, Merge how);

}  // namespace attend
