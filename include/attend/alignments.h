// Word alignments from cross-attention: which source word each target word was made from. Links of one direction or of
// two directions symmetrised, Pharaoh format, scores against a reference.
#pragma once

#include <cstdint>
#include <filesystem>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "attend/translate.h"
#include "attend/words.h"

namespace attend {

// Source word and target word, both counted from 0.
struct Link {
  std::int64_t source = 0, target = 0;
  auto operator<=>(const Link&) const = default;
};
using Alignment = std::vector<Link>;  // in rising order, each link once

// What people linked (Och and Ney 2003, section 5): sure links, and possible ones, which include the sure.
struct ReferenceAlignment {
  Alignment sure, possible;
  bool operator==(const ReferenceAlignment&) const = default;
};

// ---- Pharaoh format -------------------------------------------------------------------------------------------------
// A line a pair, links "source-target" with blanks between; with p in place of - a link is only possible.

std::string to_pharaoh(const Alignment& alignment);           // "0-0 1-2 2-1"
std::string to_pharaoh(const ReferenceAlignment& reference);  // "0-0 1-2 2p1"
// Error(format) that begins with `where` and names the link: anything but digits around - or p, numbers of more than 6
// digits, a link that is there twice.
ReferenceAlignment parse_pharaoh(std::string_view line, const std::string& where);
// Every line of a file, packed or not; an empty line has no links. Error(format) names file and line; Error(file).
std::vector<ReferenceAlignment> read_pharaoh(const std::filesystem::path& path);
void write_pharaoh(const std::filesystem::path& path, std::span<const Alignment> alignments);

// ---- Scores ---------------------------------------------------------------------------------------------------------

// Och and Ney 2003, equations 31 to 33, over as many pairs as were added. NaN where a denominator is 0.
struct AlignmentScore {
  std::int64_t links = 0, sure = 0;                     // of the alignments and of the references
  std::int64_t sure_matches = 0, possible_matches = 0;  // links that are sure, that are possible

  double precision() const;  // possible matches / links
  double recall() const;     // sure matches / sure links
  double error() const;      // alignment error rate: 1 - (sure matches + possible matches) / (links + sure links)
  AlignmentScore& operator+=(const AlignmentScore& other);
  bool operator==(const AlignmentScore&) const = default;
};
AlignmentScore score_alignment(const Alignment& alignment, const ReferenceAlignment& reference);

// ---- Two directions made one ----------------------------------------------------------------------------------------

enum class Symmetrisation {
  forward,
  backward,  // one direction as it is
  intersection,
  union_of_both,
  // From the intersection, links of the union beside links already taken, as long as they bring in a word that has none
  // (Koehn, Och and Marcu 2003); then links of either direction where a word has none (final), or both have none
  // (final-and; Koehn et al. 2005, figure 1).
  grow_diagonal,
  grow_diagonal_final,
  grow_diagonal_final_and,
};
const char* name_of(Symmetrisation symmetrisation);  // "forward", ..., "union", "grow-diag", "grow-diag-final-and"
Symmetrisation symmetrisation_named(std::string_view name);  // Error(argument) with the known names
// Both given as source-target.
Alignment symmetrise(const Alignment& forward, const Alignment& backward, Symmetrisation how);

// ---- From attention -------------------------------------------------------------------------------------------------

enum class LinkRule {
  largest,    // each target word with the source word it gives the largest weight, the first of equals
  threshold,  // each pair of words whose weight is at least the threshold
};
const char* name_of(LinkRule rule);               // "largest", "threshold"
LinkRule link_rule_named(std::string_view name);  // Error(argument) with the known names

struct LinkOptions {
  LinkRule rule = LinkRule::largest;
  double threshold = 0.15;  // in (0, 1]; the default serves the intersection of two directions best (tests/golden)
  // A target word whose largest weight is on a special token (tag, end of sentence) has no link. Without it special
  // tokens are left out of the comparison: heads rest on them although a word does have a source.
  bool special_may_win = false;
};

// Error(argument) for a threshold that no weight can be compared with.
void check(const LinkOptions& options);

// weights [target groups, source groups] of merge(). Groups without words are linked to nothing; a group of several
// words links each of them. Error(shape) if the weights do not fit.
Alignment links_of(std::span<const float> weights, std::span<const TokenGroup> target,
                   std::span<const TokenGroup> source, const LinkOptions& options = {});

// A pair of lines; where words are given they are the lines cut by blanks (see group_by_segmentation).
struct WordPair {
  std::string source, target;
  std::string source_words, target_words;  // "": by WordAlignOptions
};

struct WordAlignOptions {
  std::string from, to;  // languages; empty: told from the script of each source
  // Layers and heads of the two directions: the defaults, chosen ones, or the finder's (best_alignment_heads of
  // heads.h).
  AlignmentOptions attention;
  AlignmentOptions backward_attention;  // Symmetrisation::forward does without
  // What aligned best on the 42 pairs of tests/golden, and what `attend align` does unless told otherwise: both directions
  // link where the weight is at least 0.15, and must agree.
  Symmetrisation symmetrisation = Symmetrisation::intersection;
  LinkOptions link = {.rule = LinkRule::threshold};
  GroupBy source_words = GroupBy::word, target_words = GroupBy::word;
  std::int64_t first_line = 1;  // number of the first pair, for messages
  std::int64_t batch_size = 48;
};

struct AlignedPair {
  std::string from, to;
  std::vector<TokenGroup> source, target;  // as the forward direction reads and writes them: special tokens included
  std::vector<float> weights;              // forward, [target groups, source groups]
  Alignment forward, backward, links;      // links: symmetrised
};

// Aligns given pairs: the translator reads the source and is made to write the target, and the other way round for the
// backward direction. Error(text) names the pair: ill-formed, too long, empty on one side, a segmentation that is of
// another text. Error(config) if the translator has one direction only and the symmetrisation needs two; then give the
// other translator as `backward`.
std::vector<AlignedPair> align_words(const Translator& translator, std::span<const WordPair> pairs,
                                     const WordAlignOptions& options = {}, const Translator* backward = nullptr);

}  // namespace attend
