#include "attend/subject.h"

#include <algorithm>
#include <memory>
#include <span>
#include <utility>

#include "attend/error.h"
#include "attend/generate.h"
#include "attend/names.h"
#include "attend/translate.h"

namespace attend {
namespace {

using Problem = SubjectError::Problem;
using Ids = std::vector<std::int32_t>;

bool is_given(const std::optional<std::string>& text, const std::optional<Ids>& ids) { return text || ids; }

// The tokens of a text, without what stands at its ends.
Ids tokens_of(const Tokenizer& tokenizer, const std::optional<std::string>& text, const std::optional<Ids>& ids,
              const char* name) {
  if (text && ids) throw Error(ErrorKind::argument, name, "is given as text and as ids", "give one of them");
  Ids tokens;
  if (ids) {
    for (const std::int32_t id : *ids)
      if (id < 0 || id >= tokenizer.size())
        throw Error(ErrorKind::argument, join(name, "_ids"), join("holds ", id),
                    join("the vocabulary has ids 0 to ", tokenizer.size() - 1));
    tokens = *ids;
  } else {
    try {
      tokens = tokenizer.encode(*text);
    } catch (const Error& error) {
      throw SubjectError(Problem::not_text, error.kind(), name, error.what_happened(), error.advice());
    }
  }
  return tokens;
}

// A text that gives the same ids again is kept as text.
void put_written(const Tokenizer& tokenizer, const Ids& ids, SubjectTexts& texts) {
  std::string text = tokenizer.decode(ids);
  try {
    if (tokenizer.encode(text) == ids) {
      texts.target = std::move(text);
      return;
    }
  } catch (const Error&) {
  }
  texts.target_ids = ids;
}

const Tokenizer& tokenizer_of(const std::shared_ptr<const Tokenizer>& tokenizer, const char* stack) {
  if (!tokenizer)
    throw Error(ErrorKind::config, "inspect", join("the ", stack, " of this model reads features, not text"),
                "choose a model of text");
  return *tokenizer;
}

void refuse(bool given, const char* name, const char* wanted) {
  if (given)
    throw Error(ErrorKind::argument, "inspect", join("this model has no use for a ", name), join("give ", wanted));
}

// What the model cannot read is said before what a program would not read of it.
void check_length(std::size_t rows, std::size_t tokens, const TransformerConfig& config, const char* name,
                  const SubjectOptions& options) {
  const auto count = static_cast<std::int64_t>(rows), own = static_cast<std::int64_t>(tokens);
  if (count > config.max_positions)
    throw SubjectError(Problem::too_long, ErrorKind::text, name,
                       join("has ", count, " tokens with its ends, and the model reads at most ", config.max_positions),
                       "shorten it", count, config.max_positions);
  if (options.most_tokens > 0 && own > options.most_tokens)
    throw SubjectError(Problem::beyond_limit, ErrorKind::text, name,
                       join("has ", own, " tokens, and at most ", options.most_tokens, " are read"), "shorten it", own,
                       options.most_tokens);
}

// The language a source is to be brought into, as translation decides it.
std::string language_of(const ModelFolder& folder, const SubjectTexts& texts) {
  const std::vector<std::string>& known = folder.task.languages;
  const auto refuse = [](const std::string& what, const std::string& advice) {
    throw SubjectError(Problem::language, ErrorKind::argument, "language", what, advice);
  };
  if (!texts.language.empty() && std::find(known.begin(), known.end(), texts.language) == known.end())
    refuse(join("the model does not know ", in_quotes(texts.language)),
           known.empty() ? "leave it out" : "use one of " + listed(known));
  if (texts.language.empty() && !texts.source && !folder.task.target_tags.empty())
    throw Error(ErrorKind::argument, "language", "is missing, and ids do not tell it", "name it");
  const Translator translator(folder);
  if (texts.language.empty()) return translator.direction(texts.source.value_or("")).second;
  try {
    return translator.direction("", {}, texts.language).second;
  } catch (const Error& error) {  // a model without tags goes one way only
    refuse(error.what_happened(), "leave it out");
  }
  return {};
}

Subject read_pair(const ModelFolder& folder, SubjectTexts texts, const SubjectOptions& options) {
  const Tokenizer& source = tokenizer_of(folder.source, "encoder");
  const Tokenizer& target = tokenizer_of(folder.target, "decoder");
  refuse(is_given(texts.text, texts.text_ids), "text", "a source and, if wanted, a target");
  if (!is_given(texts.source, texts.source_ids))
    throw Error(ErrorKind::argument, "source", "is missing", "give the text that the encoder reads");
  const Ids tokens = tokens_of(source, texts.source, texts.source_ids, "source");
  texts.language = language_of(folder, texts);

  Subject subject;
  // The ends come from the rule of translation; an empty line has them alone.
  Ids& read = subject.input.source;
  read = encode_source(folder.task, source, "", texts.language);
  read.insert(read.end() - (folder.task.source_end ? 1 : 0), tokens.begin(), tokens.end());
  if (read.empty() || (tokens.empty() && !options.empty_source))
    throw SubjectError(Problem::empty, ErrorKind::text, "source", "is empty", "give at least one character");
  check_length(read.size(), tokens.size(), folder.model.config(), "source", options);
  if (options.pieces) subject.source = pieces_of(source, read, texts.source ? *texts.source : std::string());

  const std::int32_t begin = first_token(target);
  Ids ids;
  if (is_given(texts.target, texts.target_ids)) {
    ids = tokens_of(target, texts.target, texts.target_ids, "target");
  } else if (options.write_target) {
    ids = write_on(folder, subject, nullptr, options);
    // The last token may stand where the model has no position left to read it. What is written has to pass, given
    // back, what a target that is given has to.
    std::int64_t most = folder.model.config().max_positions - 1;
    if (options.most_tokens > 0) most = std::min(most, options.most_tokens);
    ids.resize(std::min(ids.size(), static_cast<std::size_t>(most)));
    put_written(target, ids, texts);
  }
  check_length(ids.size() + 1, ids.size(), folder.model.config(), "target", options);
  if (is_given(texts.target, texts.target_ids)) {
    subject.input.ids.push_back(begin);
    subject.input.ids.insert(subject.input.ids.end(), ids.begin(), ids.end());
    subject.next = std::move(ids);
    subject.next.push_back(target.specials().eos);
    if (options.pieces) subject.target = pieces_of(target, subject.input.ids);
  }
  subject.texts = std::move(texts);
  return subject;
}

Subject read_single(const ModelFolder& folder, SubjectTexts texts, const SubjectOptions& options) {
  const TransformerConfig& config = folder.model.config();
  const bool decoder = config.decoder.has_value();
  const Tokenizer& tokenizer = tokenizer_of(decoder ? folder.target : folder.source, decoder ? "decoder" : "encoder");
  refuse(is_given(texts.source, texts.source_ids), "source", "a text");
  refuse(is_given(texts.target, texts.target_ids), "target", "a text");
  if (!texts.language.empty())
    throw Error(ErrorKind::argument, "language", "this model has no languages", "leave it out");
  if (!is_given(texts.text, texts.text_ids))
    throw Error(ErrorKind::argument, "text", "is missing", "give the text that the model reads");
  const Ids tokens = tokens_of(tokenizer, texts.text, texts.text_ids, "text");
  const SpecialTokens& specials = tokenizer.specials();

  Subject subject;
  Ids& ids = decoder ? subject.input.ids : subject.input.source;
  if (decoder ? folder.task.lines : folder.task.source_begin && specials.bos >= 0)
    ids.push_back(decoder ? first_token(tokenizer) : specials.bos);
  ids.insert(ids.end(), tokens.begin(), tokens.end());
  if (!decoder && folder.task.source_end && specials.eos >= 0) ids.push_back(specials.eos);
  if (ids.empty())
    throw SubjectError(Problem::empty, ErrorKind::text, "text", "is empty, but the model goes on from running text",
                       "give at least one character");
  check_length(ids.size(), tokens.size(), config, "text", options);
  if (decoder) {
    subject.next.assign(ids.begin() + 1, ids.end());
    subject.next.push_back(-1);
    if (options.pieces) subject.target = pieces_of(tokenizer, ids);
  } else {
    subject.next = ids;
    if (options.pieces) subject.source = pieces_of(tokenizer, ids);
  }
  subject.texts = std::move(texts);
  return subject;
}

}  // namespace

Subject read_subject(const ModelFolder& folder, SubjectTexts texts, const SubjectOptions& options) {
  const TransformerConfig& config = folder.model.config();
  if (config.encoder && config.decoder) return read_pair(folder, std::move(texts), options);
  return read_single(folder, std::move(texts), options);
}

std::vector<std::int32_t> write_on(const ModelFolder& folder, const Subject& subject, Probe* probe,
                                   const SubjectOptions& options) {
  const TransformerConfig& config = folder.model.config();
  if (!config.decoder)
    throw Error(ErrorKind::config, "write", "the model has no decoder",
                "choose a model that translates or goes on with a text");
  const Tokenizer& tokenizer = tokenizer_of(folder.target, "decoder");
  DecodeInput input;
  input.source = subject.input.source;
  input.prompt = config.encoder ? std::vector<std::int32_t>{first_token(tokenizer)} : subject.input.ids;
  DecodeOptions decode = with_tokens_of(tokenizer, {});
  decode.scores = false;
  decode.probe = probe;
  decode.cancelled = options.cancelled;
  const auto is_end = [&](std::int32_t id) {
    return std::find(decode.end.begin(), decode.end.end(), id) != decode.end.end();
  };
  if (options.on_token)
    decode.on_token = [&](const TokenEvent& token) {
      if (!is_end(token.id)) options.on_token(token.id);
      return true;
    };
  std::vector<std::int32_t> ids = generate(folder.model, std::span(&input, 1), decode).front().front().ids;
  if (!ids.empty() && is_end(ids.back())) ids.pop_back();
  return ids;
}

Target probability_of_text(const Subject& subject) { return log_probability_of(subject.next); }

}  // namespace attend
