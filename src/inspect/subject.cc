#include "attend/subject.h"

#include <algorithm>
#include <memory>
#include <span>
#include <utility>

#include "attend/error.h"
#include "attend/generate.h"
#include "attend/translate.h"

namespace attend {
namespace {

std::vector<std::int32_t> encoded(const Tokenizer& tokenizer, const std::string& text, const char* name) {
  try {
    return tokenizer.encode(text);
  } catch (const Error& error) {
    throw Error(error.kind(), name, error.what_happened(), error.advice());
  }
}

const Tokenizer& tokenizer_of(const std::shared_ptr<const Tokenizer>& tokenizer, const char* stack) {
  if (!tokenizer)
    throw Error(ErrorKind::config, "inspect", join("the ", stack, " of this model reads features, not text"),
                "choose a model of text");
  return *tokenizer;
}

void refuse(const std::optional<std::string>& text, const char* name, const char* wanted) {
  if (text)
    throw Error(ErrorKind::argument, "inspect", join("this model has no use for a ", name), join("give ", wanted));
}

void check_length(std::size_t rows, const TransformerConfig& config, const char* name) {
  if (static_cast<std::int64_t>(rows) > config.max_positions)
    throw Error(ErrorKind::text, name,
                join("has ", rows, " tokens with its ends, and the model reads at most ", config.max_positions),
                "shorten it");
}

// The language a source is to be brought into.
std::string language_of(const ModelFolder& folder, const SubjectTexts& texts) {
  const std::vector<std::string>& known = folder.task.languages;
  if (texts.language.empty()) return known.empty() ? "" : Translator(folder).direction(*texts.source).second;
  if (std::find(known.begin(), known.end(), texts.language) != known.end()) return texts.language;
  std::string names;
  for (const std::string& language : known) names += (names.empty() ? "" : ", ") + language;
  throw Error(ErrorKind::argument, "language", join("the model does not know \"", texts.language.substr(0, 40), "\""),
              names.empty() ? "leave it out" : "use one of " + names);
}

Subject read_pair(const ModelFolder& folder, SubjectTexts texts, const SubjectOptions& options) {
  const Tokenizer& source = tokenizer_of(folder.source, "encoder");
  const Tokenizer& target = tokenizer_of(folder.target, "decoder");
  refuse(texts.text, "text", "a source and, if wanted, a target");
  if (!texts.source) throw Error(ErrorKind::argument, "source", "is missing", "give the text that the encoder reads");
  texts.language = language_of(folder, texts);

  Subject subject;
  try {
    subject.input.source = encode_source(folder.task, source, *texts.source, texts.language);
  } catch (const Error& error) {
    if (error.kind() != ErrorKind::text) throw;
    throw Error(ErrorKind::text, "source", error.what_happened(), error.advice());
  }
  // Tag and end are ids, too.
  if (source.encode(*texts.source).empty())
    throw Error(ErrorKind::text, "source", "is empty", "give at least one character");
  check_length(subject.input.source.size(), folder.model.config(), "source");
  subject.source = pieces_of(source, subject.input.source, *texts.source);

  const std::int32_t begin = first_token(target);
  std::vector<std::int32_t> ids;
  if (texts.target) {
    ids = encoded(target, *texts.target, "target");
  } else if (options.write_target) {
    ids = write_on(folder, subject, nullptr, options);
    // The last token may stand where the model has no position left to read it.
    ids.resize(std::min(ids.size(), static_cast<std::size_t>(folder.model.config().max_positions) - 1));
    texts.target = target.decode(ids);
  }
  check_length(ids.size() + 1, folder.model.config(), "target");
  if (texts.target) {
    subject.input.ids.push_back(begin);
    subject.input.ids.insert(subject.input.ids.end(), ids.begin(), ids.end());
    subject.next = std::move(ids);
    subject.next.push_back(target.specials().eos);
    subject.target = pieces_of(target, subject.input.ids);
  }
  subject.texts = std::move(texts);
  return subject;
}

Subject read_single(const ModelFolder& folder, SubjectTexts texts) {
  const TransformerConfig& config = folder.model.config();
  const bool decoder = config.decoder.has_value();
  const Tokenizer& tokenizer = tokenizer_of(decoder ? folder.target : folder.source, decoder ? "decoder" : "encoder");
  refuse(texts.source, "source", "a text");
  refuse(texts.target, "target", "a text");
  if (!texts.language.empty())
    throw Error(ErrorKind::argument, "language", "this model has no languages", "leave it out");
  if (!texts.text) throw Error(ErrorKind::argument, "text", "is missing", "give the text that the model reads");
  const std::vector<std::int32_t> tokens = encoded(tokenizer, *texts.text, "text");
  const SpecialTokens& specials = tokenizer.specials();

  Subject subject;
  std::vector<std::int32_t>& ids = decoder ? subject.input.ids : subject.input.source;
  if (decoder ? folder.task.lines : folder.task.source_begin && specials.bos >= 0)
    ids.push_back(decoder ? first_token(tokenizer) : specials.bos);
  ids.insert(ids.end(), tokens.begin(), tokens.end());
  if (!decoder && folder.task.source_end && specials.eos >= 0) ids.push_back(specials.eos);
  if (ids.empty())
    throw Error(ErrorKind::text, "text", "is empty, but the model goes on from running text",
                "give at least one character");
  check_length(ids.size(), config, "text");
  if (decoder) {
    subject.next.assign(ids.begin() + 1, ids.end());
    subject.next.push_back(-1);
    subject.target = pieces_of(tokenizer, ids);
  } else {
    subject.next = ids;
    subject.source = pieces_of(tokenizer, ids);
  }
  subject.texts = std::move(texts);
  return subject;
}

}  // namespace

Subject read_subject(const ModelFolder& folder, SubjectTexts texts, const SubjectOptions& options) {
  const TransformerConfig& config = folder.model.config();
  if (config.encoder && config.decoder) return read_pair(folder, std::move(texts), options);
  return read_single(folder, std::move(texts));
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
