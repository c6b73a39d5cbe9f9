// The texts of an inspection as a model reads them: ids for its stacks, readable pieces for people, and the token that
// comes after each row.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "attend/checkpoint.h"
#include "attend/error.h"
#include "attend/importance.h"
#include "attend/words.h"

namespace attend {

// What is given: `source` and, if wanted, `target` for an encoder-decoder, `text` for a single stack. Each may be given
// by its ids instead, without what stands at the ends (tags, first token, end).
struct SubjectTexts {
  std::optional<std::string> source, target, text;
  std::string language;  // wanted of an encoder-decoder; empty: told from the script of the source
  std::optional<std::vector<std::int32_t>> source_ids = {}, target_ids = {}, text_ids = {};

  bool operator==(const SubjectTexts&) const = default;
};

struct Subject {
  // Completed with the language and with the target that the model wrote: as text if that gives the same ids again, else
  // as ids.
  SubjectTexts texts;
  ModelInput input;
  // One token a row of the stack that has logits: a decoder's row is followed by it, -1 where the text ends; an encoder
  // alone reads it there.
  std::vector<std::int32_t> next;
  std::vector<Piece> source, target;  // of the rows of encoder and decoder; empty without SubjectOptions::pieces
};

// A text or a language that the model cannot take, for programs that say so in words of their own.
class SubjectError : public Error {
 public:
  enum class Problem {
    not_text,      // ill-formed, or of characters that the tokenizer refuses
    empty,         // where it must not be
    too_long,      // found: tokens with their ends; allowed: what the model reads
    beyond_limit,  // found: tokens; allowed: SubjectOptions::most_tokens
    language,      // not one that the model knows, or brings a source into
  };

  SubjectError(Problem what_is_wrong, ErrorKind error_kind, std::string where, std::string what_happened,
               std::string advice, std::int64_t number_found = 0, std::int64_t number_allowed = 0)
      : Error(error_kind, std::move(where), std::move(what_happened), std::move(advice)),
        problem(what_is_wrong),
        found(number_found),
        allowed(number_allowed) {}

  Problem problem;
  std::int64_t found, allowed;
};

struct SubjectOptions {
  bool write_target = true;              // without a target, let the model write one, greedily
  bool pieces = true;                    // make the readable pieces
  bool empty_source = false;             // a source of its ends alone may be read
  std::int64_t most_tokens = 0;          // of a text, without its ends; 0: as many as the model reads
  std::function<bool()> cancelled = {};  // asked between the steps of writing
  // Each token that is written, the end aside, as soon as it is chosen.
  std::function<void(std::int32_t id)> on_token = {};
};

// Error(argument): texts the model has no use for, or lacks, ids outside the vocabulary, a language it does not know or
// does not translate into (without tags it goes one way only); Error(text): ill-formed, empty where it must not be, more
// tokens than the model has positions; Error(config): a model without tokenizer, of features. Where it is the text that is
// wrong, or the language, it is a SubjectError.
Subject read_subject(const ModelFolder& folder, SubjectTexts texts, const SubjectOptions& options = {});

// What the model writes, greedily, as generate() does: after the source for an encoder-decoder, after the text for a decoder
// alone. The probe, if any, is in every pass of it (edits, say). Ids without the end, at most as many as DecodeOptions
// allow by themselves: 4 * source + 32 after a source, all positions of the model after a text. Error(config): a model
// without decoder.
std::vector<std::int32_t> write_on(const ModelFolder& folder, const Subject& subject, Probe* probe,
                                   const SubjectOptions& options = {});

// Labels for log_probability_of(): what follows each row of a decoder; none at the end of an open text.
Target probability_of_text(const Subject& subject);

}  // namespace attend
