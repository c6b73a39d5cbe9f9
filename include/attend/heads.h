// The head finder: what every attention head of a model does over a corpus. Scores of every head, ranking, heads that
// behave alike, differences between heads, runs and checkpoints. Heads are named as in importance.h.
//
// The corpus is streamed, and weights are made again from queries and keys block of rows by block of rows: memory holds
// the ids of one window of items, what the model needs for one batch, one block of rows and a few kilobytes a head,
// whatever the length of the corpus and of its items. The bits of a report do not depend on threads or batches.
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <limits>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "attend/alignments.h"
#include "attend/checkpoint.h"
#include "attend/importance.h"
#include "attend/translate.h"
#include "attend/words.h"

namespace attend {

// ---- What a head can do ---------------------------------------------------------------------------------------------
// w(q, k) is the weight that query q gives key k; means are over the queries of all items, each counting alike. Queries
// that see a single key say nothing about a head and are left out everywhere, as are queries for which a behaviour has
// no meaning (no token before, no earlier occurrence). NaN: the head had no query to show it, or cannot show it.

enum class Behaviour {
  // self-attention, where a key can stand before or after its query
  previous_token,      // w(q, q - 1) (Clark et al. 2019, section 4.1)
  next_token,          // w(q, q + 1)
  self_token,          // w(q, q)
  duplicate_token,     // weight on earlier occurrences of the query's token (Wang et al. 2022, "duplicate token
                       // heads")
  induction,           // weight on the tokens right after earlier occurrences of the query's token, the query itself
                       // aside (Olsson et al. 2022, "prefix matching")
  distance,            // mean of |q - k| under w, in tokens (Vig and Belinkov 2019, section 4.4)
  distance_deviation,  // standard deviation of q - k under w over all queries
  offset,              // mean of k - q under w: negative for heads that look back; see rank_heads()
  // every head
  same_token,          // weight on other occurrences of the query's token, before or after; for cross-attention on
                       // all occurrences in the source, where both sides share a vocabulary
  first_token,         // w(q, 0) for q > 0; for cross-attention for all q: the sink (Xiao et al. 2024)
  separator,           // weight on tokens of punctuation and line ends only (Clark et al. 2019, section 3.2)
  special_token,       // weight on bos, eos, pad, unknown, tags and class tokens (the same)
  entropy,             // - sum of w ln w, in nats
  normalised_entropy,  // the same divided by ln(keys seen): 1 is uniform
  confidence,          // largest weight (Voita et al. 2019, section 5.1)
  // cross-attention
  diagonal,               // mean of exp(-((q + 1/2)/queries - (k + 1/2)/keys)^2 / (2 * 0.2^2)) under w: 1 minus the
                          // penalty of guided attention (Tachibana, Uenoyama and Aihara 2018, equation 6)
  coverage,               // share of each source token read at all: mean over tokens of min(1, sum over q of w(q, k))
                          // (as in the coverage penalty of Wu et al. 2016, equation 14); special tokens aside
  alignment_error,        // AER of the largest-weight links of the row that predicts a target token (alignments.h),
                          // against the reference of the items that have one; lower is better
  alignment_error_after,  // the same for the row that reads the target token (Chen et al. 2020)
  agreement,              // 2 |A and B| / (|A| + |B|) of the links A of an item and B of its mirror, where the corpus
                          // has each pair in both directions: an alignment that is right is right both ways (Liang,
                          // Taskar and Klein 2006)
  agreement_after,
  // weights alone, no corpus: see copying below
  copying,              // share of tokens that the head raises among the 5 most raised when it attends to them (Wang
                        // et al. 2022, section 3.2, "copy score")
  copying_eigenvalues,  // sum of the eigenvalues of W_U W_O W_V W_E over the sum of their absolute values: 1 copies,
                        // -1 suppresses what it reads (Elhage et al. 2021, "summarizing OV/QK matrices")
};
inline constexpr int behaviour_count = static_cast<int>(Behaviour::copying_eigenvalues) + 1;

const char* name_of(Behaviour behaviour);          // "previous_token", ...
Behaviour behaviour_named(std::string_view name);  // Error(argument) with the nearest name
const char* meaning_of(Behaviour behaviour);       // one line for people
// Is a smaller number more of it? (alignment errors)
bool smaller_is_more(Behaviour behaviour);

// ---- The corpus -----------------------------------------------------------------------------------------------------

// The words of an item with an encoder and a decoder, for the scores of alignment.
struct ItemWords {
  // Groups of the source rows, and of the written tokens: number t of them is predicted by decoder row t (and read by
  // row t + 1), so an end token that the decoder never reads is one of them.
  std::vector<TokenGroup> source, target;
  std::optional<ReferenceAlignment> reference;
  bool mirrors = false;  // this item is the one before with source and target changed
};

struct HeadItem {
  std::vector<std::int32_t> source;        // what the encoder reads; empty exactly if there is none
  std::vector<std::int32_t> target;        // what the decoder reads; empty exactly if there is none
  std::shared_ptr<const ItemWords> words;  // may be null; only with an encoder and a decoder
};
// Fills the next item; false at the end.
using HeadItems = std::function<bool(HeadItem&)>;
HeadItems items_from(std::vector<HeadItem> items);

// A pair as a translator reads it: the source with its tag and end, and first token + target. With `words` alignments
// are scored. Error(text): empty or too long.
struct PairItemOptions {
  std::string to;  // language; empty: told from the script
  bool words = false;
  std::string source_words, target_words;  // segmentations; empty: GroupBy::word
  std::optional<ReferenceAlignment> reference;
};
HeadItem item_of(const Translator& translator, std::string_view source, std::string_view target,
                 const PairItemOptions& options = {});
// A line as a generator reads it; first token in front where its lines begin with one.
HeadItem item_of(const TextGenerator& generator, std::string_view line);
// A line as a single stack of the folder reads it, an encoder alone or a decoder alone. Error(text, config) as
// read_subject() of subject.h.
HeadItem item_of(const ModelFolder& folder, std::string_view line);

// Random tokens that repeat, which only an induction head can foresee (Olsson et al. 2022, section 4.1): the first
// token, then `period` distinct random tokens again and again. For scores that no corpus has a say in. With an encoder,
// it reads another such sequence. Control tokens, unknown and bytes are never drawn if tokenizers are given.
struct RepeatedOptions {
  std::int64_t items = 32, period = 25, repeats = 2;
  std::uint64_t seed = 1;
  const Tokenizer* source = nullptr;
  const Tokenizer* target = nullptr;
};
// Error(argument): more tokens than the model's positions or vocabulary allow.
std::vector<HeadItem> repeated_items(const Model& model, const RepeatedOptions& options = {});

// ---- Finding --------------------------------------------------------------------------------------------------------

struct HeadProgress {
  std::int64_t items = 0, tokens = 0;
};

struct HeadOptions {
  // For separators and special tokens (and unknown to copying); without, those scores are NaN.
  const Tokenizer* source = nullptr;
  const Tokenizer* target = nullptr;
  LinkOptions link = {};  // of alignment errors and agreement
  bool copying = true;
  std::int64_t copying_tokens = 1024;  // tokens tried for `copying`, evenly from the vocabulary; 0: all
  std::int64_t batch_size = 48;
  std::int64_t block_floats = std::int64_t{1} << 20;       // weights held at once, at least one row of all heads
  std::function<void(const HeadProgress&)> progress = {};  // after every window, on the caller's thread
  std::function<bool()> cancelled = {};                    // asked after every batch; true ends with Error(cancelled)
};

struct HeadScores {
  HeadPlace head;
  std::array<double, behaviour_count> values;

  double operator[](Behaviour behaviour) const { return values[static_cast<std::size_t>(behaviour)]; }
};

// Sketch of a head's weights over the corpus, for comparing heads: see similarity below.
inline constexpr std::int64_t sketch_size = 4096;

struct HeadReport {
  std::string model;   // fingerprint
  std::string corpus;  // fingerprint of all items in order
  std::int64_t items = 0, source_tokens = 0, target_tokens = 0;
  std::vector<HeadScores> heads;                    // as heads_of() of importance.h: in the order of a run
  std::vector<std::vector<std::int64_t>> sketches;  // one a head, or none in a report that was read from a file

  // Error(argument) if the report has no such head.
  const HeadScores& operator[](const HeadPlace& head) const;
  std::size_t index_of(const HeadPlace& head) const;
};

// Error(argument): an item without source or target where the model needs one, ids outside the vocabulary, no items,
// tokenizers of other sizes; names the item, counted from 1. Error(cancelled).
HeadReport find_heads(const Model& model, const HeadItems& items, const HeadOptions& options = {});

// Copying through the OV circuit, from the weights alone. The norms on the straight way from the embedding to the head and
// from the head to the logits are folded in as far as they are linear: gains and the subtraction of the mean (LayerNorm),
// not the division by the length nor biases; logits are taken relative to their mean over the vocabulary, which softmax does not see.
// Eigenvalues are those of the [head_dim, head_dim] matrix W_V W_E W_U W_O, which are all of W_U W_O W_V W_E that are
// not 0 (Elhage et al. 2021, "path expansion"); no matrix of vocabulary x vocabulary exists. NaN for heads from whose
// source or to whose logits there is no vocabulary, or not the same: encoders below a decoder, features,
// cross-attention between different vocabularies. A vocabulary counts as shared if the embeddings are, or if both
// stacks have as many tokens and `shared_vocabulary` says so.
struct Copying {
  HeadPlace head;
  double share = 0;        // Behaviour::copying
  double eigenvalues = 0;  // Behaviour::copying_eigenvalues
};
struct CopyingOptions {
  std::int64_t tokens = 1024;           // tried, evenly from the vocabulary (or from `only`); 0: all
  std::vector<std::int32_t> only = {};  // these alone; empty: the whole vocabulary
  int among = 5;                        // how many count as most raised
  bool shared_vocabulary = false;
  std::function<bool()> cancelled = {};
};
std::vector<Copying> copying_through_values(const Model& model, const CopyingOptions& options = {});

// ---- Ranking, likeness, differences ---------------------------------------------------------------------------------

struct RankedHead {
  HeadPlace head;
  double value = 0;
};
// The heads that show a behaviour most, first; NaN left out, equals by head. `most` 0: all. An offset is shown most by the
// heads that look furthest, be it back or forward.
std::vector<RankedHead> rank_heads(const HeadReport& report, Behaviour behaviour, std::int64_t most = 0);
// The heads whose score is nearest to this one, first: offset -1 for heads that look one token back.
std::vector<RankedHead> rank_heads_near(const HeadReport& report, Behaviour behaviour, double wanted,
                                        std::int64_t most = 0);

enum class Likeness {
  scores,   // 1 / (1 + d), d the root mean square difference of the scores in units of their standard deviation over
            // the heads of the report; behaviours aside that either head has no value for
  weights,  // mean over queries of sum over keys of sqrt(w_a w_b): the affinity of Bhattacharyya (1943) of where two
            // heads look, 1 for the same weights everywhere. From sketches (Charikar, Chen and Farach-Colton 2002;
            // standard error about 1 / 64). Only between heads of the same kind of attention, NaN otherwise.
};
double likeness(const HeadReport& report, const HeadPlace& a, const HeadPlace& b, Likeness by);
// The heads most like `head`, itself aside; NaN left out. Error(argument): a report without sketches asked for weights.
std::vector<RankedHead> heads_like(const HeadReport& report, const HeadPlace& head, Likeness by, std::int64_t most = 0);

// b - a, behaviour by behaviour; NaN where either has none. A head and itself: 0 everywhere.
HeadScores difference(const HeadScores& a, const HeadScores& b);
struct ReportDifference {
  // Of which model and corpus the scores are, by fingerprints as in the reports.
  struct Run {
    std::string model, corpus;
    std::int64_t items = 0, source_tokens = 0, target_tokens = 0;
  };
  Run before, after;
  std::vector<HeadScores> heads;  // after - before
  // Likeness::weights of each head with itself before, where both runs read the same corpus and have sketches; else
  // empty.
  std::vector<double> likeness;
};
// Two prompts, corpora or checkpoints of models with the same heads; Error(argument) otherwise.
ReportDifference difference(const HeadReport& before, const HeadReport& after);
// The heads whose score changed most, up or down, first; NaN left out. `most` 0: all.
std::vector<RankedHead> rank_changes(const ReportDifference& changes, Behaviour behaviour, std::int64_t most = 0);

// The heads to read word alignments from: the `most` cross heads with the smallest alignment error, or, where the
// corpus had no reference, with the best agreement of the two directions, or, without mirrors, with the largest
// diagonal. `after` is set where the row that reads the token aligned better. Error(argument): a model without
// cross-attention.
AlignmentOptions best_alignment_heads(const HeadReport& report, std::int64_t most = 1);

// ---- Files ----------------------------------------------------------------------------------------------------------

// {"format": "attend heads", "version": 1, "model", "corpus", "items", ..., "heads": [{"head": "encoder.0.self.0",
// "previous_token": 0.93, "next_token": null, ...}]}: every behaviour of every head, null for NaN. Sketches are left
// out.
std::string to_json(const HeadReport& report);
// Error(format) that begins with `where` and names the key.
HeadReport report_from_json(const std::string& text, const std::string& where);
std::string to_csv(const HeadReport& report);  // head,stack,part,layer,number and a column a behaviour; empty for NaN
// {"format": "attend head differences", "version": 1, "before": {"model", "corpus", "items", ...}, "after": {...},
// "heads": [...]}: heads as above, with after - before. No report: report_from_json() refuses it.
std::string to_json(const ReportDifference& changes);
std::string to_csv(const ReportDifference& changes);  // as of a report, columns called "previous_token_change", ...

}  // namespace attend
