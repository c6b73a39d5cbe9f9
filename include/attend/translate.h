// Text in, text out: translation with its alignment, continuation of a text, and log-probabilities of given text.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "attend/checkpoint.h"
#include "attend/generate.h"

namespace attend {

// The ids an encoder reads for a line that is to become language `to`, in training as in translation: bos if the task
// says so, the tag of `to` if the task has tags, the tokens, eos if the task says so.
std::vector<std::int32_t> encode_source(const Task& task, const Tokenizer& tokenizer, std::string_view line,
                                        std::string_view to);

// The token a decoder reads first: bos; pad where the vocabulary has no bos. Error(config) if it has neither.
std::int32_t first_token(const Tokenizer& tokenizer);

// DecodeOptions with `end` and `forbidden` from the tokenizer where the caller left them empty: end is eos (for
// llama2.c vocabularies bos, too, which is what their models put between texts), forbidden pad, bos and unknown.
DecodeOptions with_tokens_of(const Tokenizer& tokenizer, DecodeOptions options);

// One head of a stack's attention.
struct LayerHead {
  int layer = 0, head = 0;
  auto operator<=>(const LayerHead&) const = default;
};

// Which cross-attention is read for the alignment, as the mean over the chosen layers and heads.
struct AlignmentOptions {
  std::vector<int> layers;  // decoder layers from 0, negative from the end; empty: the last but one (the only one of
                            // one), whose mean over heads aligns best in Transformers (Garg et al. 2019)
  std::vector<int> heads;   // from 0, -1 the last; empty: all
  // Row t is the attention of the step that predicts target token t. With `after`, that of the next step, which reads
  // token t (Chen et al. 2020, "Shift-Att"); the last token then has the row of its own prediction.
  bool after = false;
  std::vector<LayerHead> chosen = {};  // single heads, of whatever layers; where given, layers and heads must be empty
};

// What messages call a line of this number, "poems.txt:3"; none: "line 3".
using LinePlace = std::function<std::string(std::int64_t number)>;

struct TranslateOptions {
  std::string from, to;  // languages of the task; both empty: told line by line from the script
  DecodeOptions decode;  // prompt, end and forbidden come from the tokenizer unless given
  std::string prefix;    // text every translation is forced to begin with
  bool align = false;
  AlignmentOptions alignment;
  std::int64_t first_line = 1;  // number of the first line, for messages and for random streams
  LinePlace place = {};
};

struct TextHypothesis {
  std::string text;
  Hypothesis tokens;
};

struct Translation {
  std::string from, to;                    // languages; empty where the task names none
  std::vector<std::int32_t> source_ids;    // as the encoder read them: tag and eos included
  std::vector<TextHypothesis> hypotheses;  // best first; one, with empty text and no tokens, for an empty line
  // With align, of the best hypothesis: weights [tokens, source tokens] row by row; a row sums to 1.
  std::vector<float> alignment;

  const std::string& text() const { return hypotheses.front().text; }
  float weight(std::int64_t target, std::int64_t source) const {
    return alignment[static_cast<std::size_t>(target) * source_ids.size() + static_cast<std::size_t>(source)];
  }
};

struct TextScore {
  std::vector<std::int32_t> ids;         // judged tokens, eos included
  std::vector<float> log_probabilities;  // one an id
  double total = 0;
  double perplexity = 0;  // exp(-total / number of ids); 1 for no ids
};

// Translates with an encoder-decoder. Cheap to make; what it is given must outlive it (tokenizers are shared).
class Translator {
 public:
  // Error(config): no encoder-decoder, a tokenizer missing, a vocabulary of another size than the model's, a tag that
  // the vocabulary lacks.
  explicit Translator(const ModelFolder& folder);
  Translator(const Model& model, std::shared_ptr<const Tokenizer> source, std::shared_ptr<const Tokenizer> target,
             Task task);

  // One result a line, in order. A probe of the options knows a line by its index. A line of blanks only gives an empty translation without asking the model.
  // Error(text) names the line: longer than the model's positions, ill-formed UTF-8. Error(argument): languages the
  // task does not know, or a direction that cannot be told from the script (neither language is Chinese).
  std::vector<Translation> translate(std::span<const std::string> lines, const TranslateOptions& options = {}) const;
  Translation translate(const std::string& line, const TranslateOptions& options = {}) const;

  // log p(target | source) of given pairs.
  std::vector<TextScore> score(std::span<const std::string> sources, std::span<const std::string> targets,
                               const TranslateOptions& options = {}) const;

  // The direction of a line: {from, to}.
  std::pair<std::string, std::string> direction(std::string_view line, std::string_view from = {},
                                                std::string_view to = {}) const;

  const Model& model() const { return *model_; }
  const Tokenizer& source() const { return *source_; }
  const Tokenizer& target() const { return *target_; }
  const Task& task() const { return task_; }

 private:
  std::vector<std::int32_t> source_of(const std::string& line, const std::string& to, const std::string& place) const;

  const Model* model_;
  std::shared_ptr<const Tokenizer> source_, target_;
  Task task_;
};

struct GenerateOptions {
  DecodeOptions decode;         // end and forbidden come from the tokenizer unless given
  std::int64_t first_line = 1;  // number of the first prompt, for messages and for random streams
  LinePlace place = {};
  // Text the moment it is certain (a character cut into bytes is held back until it is whole); `false` ends that
  // sample. Not for beam search.
  std::function<bool(std::int64_t prompt, std::int64_t sample, std::string_view text)> on_text;
};

struct Continuation {
  std::vector<std::int32_t> prompt_ids;    // as the decoder read them: bos included
  std::vector<TextHypothesis> hypotheses;  // text without the prompt
};

// Goes on from text with a decoder alone. Prompts of models for lines begin with bos and may be empty; models of
// running text need at least one token. Error(config): the model has an encoder, or the tokenizer does not fit.
// Error(text) names the prompt: too long, empty where it must not be, ill-formed.
class TextGenerator {
 public:
  explicit TextGenerator(const ModelFolder& folder);
  TextGenerator(const Model& model, std::shared_ptr<const Tokenizer> tokenizer, Task task);

  std::vector<Continuation> generate(std::span<const std::string> prompts, const GenerateOptions& options = {}) const;
  Continuation generate(const std::string& prompt, const GenerateOptions& options = {}) const;

  // log p of whole lines; models of running text leave the first token unjudged. Lines without any token: total 0; a
  // probe counts the others only.
  std::vector<TextScore> score(std::span<const std::string> lines, std::int64_t batch_size = 48,
                               std::int64_t first_line = 1, const LinePlace& place = {}, Probe* probe = nullptr) const;

  const Model& model() const { return *model_; }
  const Tokenizer& tokenizer() const { return *tokenizer_; }
  const Task& task() const { return task_; }

 private:
  const Model* model_;
  std::shared_ptr<const Tokenizer> tokenizer_;
  Task task_;
};

}  // namespace attend
