#include "explorer/model_input.h"

#include <algorithm>
#include <iterator>
#include <string_view>
#include <utility>

namespace attend::explorer {
namespace {

// More than any text of everyday words has.
constexpr std::int64_t bytes_a_token = 64;

void read_text(Fields& fields, const char* name, const char* ids_name, std::optional<std::string>& text,
               std::optional<std::vector<std::int32_t>>& ids, const Limits& limits) {
  const bool has_text = fields.find(name) != nullptr, has_ids = fields.find(ids_name) != nullptr;
  if (has_text && has_ids)
    throw Error(ErrorKind::argument, fields.where(), join("has both ", name, " and ", ids_name), "give one of them");
  if (has_text) {
    text = fields.text(name);
    // Cutting it into tokens, to count them, would already take long.
    const auto size = static_cast<std::int64_t>(text->size()), most = limits.tokens * bytes_a_token;
    if (size > most) throw over_limit(fields.path(name), "bytes", size, most, "shorten it");
  }
  if (!has_ids) return;
  ids.emplace();
  for (const std::int64_t id : fields.integers(ids_name, 0, INT32_MAX, limits.tokens))
    ids->push_back(static_cast<std::int32_t>(id));
}

// What the engine says of texts, as it is said of the fields of a request.
[[noreturn]] void refuse_text(const SubjectError& error, const LoadedModel& model, const SubjectTexts& texts) {
  using Problem = SubjectError::Problem;
  const std::string where = "input." + error.where();
  const auto refuse = [&](ErrorDetail found) {
    throw RequestError(error.kind(), where, error.what_happened(), error.advice(), std::move(found));
  };
  switch (error.problem) {
    case Problem::beyond_limit:
      throw over_limit(where, "tokens", error.found, error.allowed);
    case Problem::too_long:
      refuse(detail("too_long", error.found, error.allowed));
      break;
    case Problem::language:
      refuse(detail("language", texts.language.substr(0, 40), languages_into(model.folder.task)));
      break;
    case Problem::empty:
      refuse(detail("empty_text"));
      break;
    case Problem::not_text:
      break;
  }
  throw RequestError(error.kind(), where, error.what_happened(), error.advice(), detail("not_text"));
}

}  // namespace

SubjectTexts input_request(Fields& request, const char* name, const Limits& limits) {
  return input_request(request.need(name), request.path(name), limits);
}

SubjectTexts input_request(const Json& value, const std::string& where, const Limits& limits) {
  Fields fields(value, where);
  SubjectTexts result;
  read_text(fields, "source", "source_ids", result.source, result.source_ids, limits);
  read_text(fields, "target", "target_ids", result.target, result.target_ids, limits);
  read_text(fields, "text", "text_ids", result.text, result.text_ids, limits);
  result.language = fields.text("language", "");
  fields.finish();
  return result;
}

Subject read_input(const LoadedModel& model, SubjectTexts texts, const Limits& limits, bool write,
                   const std::function<bool()>& stopped) {
  SubjectOptions options;
  options.write_target = write;
  options.pieces = false;
  options.empty_source = true;
  options.most_tokens = limits.tokens;
  options.cancelled = stopped;
  try {
    return read_subject(model.folder, texts, options);
  } catch (const SubjectError& error) {
    refuse_text(error, model, texts);
  } catch (const Error& error) {
    static constexpr std::string_view fields[] = {"source",     "target",   "text",    "source_ids",
                                                  "target_ids", "text_ids", "language"};
    if (std::find(std::begin(fields), std::end(fields), error.where()) != std::end(fields))
      throw Error(error.kind(), "input." + error.where(), error.what_happened(), error.advice());
    // Texts that this model has no use for at all.
    if (error.where() == "inspect") throw Error(ErrorKind::argument, "input", error.what_happened(), error.advice());
    throw;
  }
}

void write_input(JsonWriter& out, const SubjectTexts& texts) {
  const auto write = [&](const char* name, const char* ids_name, const std::optional<std::string>& text,
                         const std::optional<std::vector<std::int32_t>>& ids) {
    if (text) out.field(name, *text);
    if (ids) out.field(ids_name, *ids);
  };
  out.begin_object();
  write("source", "source_ids", texts.source, texts.source_ids);
  if (!texts.language.empty()) out.field("language", texts.language);
  write("target", "target_ids", texts.target, texts.target_ids);
  write("text", "text_ids", texts.text, texts.text_ids);
  out.end_object();
}

namespace {

// With the text that the tokens were cut from, where that is known: only it tells what an unknown token stands for.
std::vector<Piece> pieces_of_text(const Tokenizer& tokenizer, std::span<const std::int32_t> ids,
                                  const std::optional<std::string>& text) {
  const bool unknown = std::find(ids.begin(), ids.end(), tokenizer.specials().unknown) != ids.end();
  if (!text || !unknown) return pieces_of(tokenizer, ids);
  try {
    return pieces_of(tokenizer, ids, *text);
  } catch (const Error&) {
    // Cut otherwise, so it cannot tell.
    return pieces_of(tokenizer, ids);
  }
}

}  // namespace

void write_tokens(JsonWriter& out, const Tokenizer& tokenizer, std::span<const std::int32_t> ids,
                  const std::optional<std::string>& text) {
  const std::vector<Piece> pieces = pieces_of_text(tokenizer, ids, text);
  const std::vector<TokenGroup> words = group(pieces, GroupBy::word);
  out.begin_array();
  for (std::size_t word = 0; word < words.size(); ++word) {
    for (auto token = static_cast<std::size_t>(words[word].begin); token < static_cast<std::size_t>(words[word].end);
         ++token) {
      const Piece& piece = pieces[token];
      const bool fragment = piece.fragments > 1;
      out.begin_object();
      out.field("id", piece.id);
      out.field("text", piece.raw);
      out.field("kind", piece.role == TokenRole::unknown ? "unknown"
                        : piece.special()                ? "special"
                        : fragment                       ? "byte"
                                                         : "text");
      out.field("word", word);
      if (fragment && piece.fragment == 0) out.field("joined", piece.text);
      if (piece.role == TokenRole::unknown && !piece.bytes.empty()) out.field("characters", piece.bytes);
      out.end_object();
    }
  }
  out.end_array();
}

void write_tokens(JsonWriter& out, const LoadedModel& model, const Subject& subject) {
  const std::vector<std::int32_t>&source = subject.input.source, &target = subject.input.ids;
  if (model.config().encoder && model.config().decoder) {
    out.key("source");
    write_tokens(out, *model.folder.source, source, subject.texts.source);
    if (target.empty()) return;
    out.key("target");
    write_tokens(out, *model.folder.target, target, subject.texts.target);
  } else {
    out.key("text");
    if (model.config().decoder) write_tokens(out, *model.folder.target, target, subject.texts.text);
    else write_tokens(out, *model.folder.source, source, subject.texts.text);
  }
}

std::optional<SubjectTexts> input_of(const LoadedModel& model, const char* text, const char* language) {
  const ModelFolder& folder = model.folder;
  const bool encoder = model.config().encoder.has_value(), decoder = model.config().decoder.has_value();
  const Tokenizer* const tokenizer = (encoder ? folder.source : folder.target).get();
  if (!tokenizer || (decoder && !folder.target)) return std::nullopt;
  try {
    const std::vector<std::int32_t> ids = tokenizer->encode(text);
    if (ids.empty() || std::find(ids.begin(), ids.end(), tokenizer->specials().unknown) != ids.end())
      return std::nullopt;
  } catch (const Error&) {
    return std::nullopt;
  }
  SubjectTexts texts;
  if (!(encoder && decoder)) {
    texts.text = text;
    return texts;
  }
  texts.source = text;
  const std::vector<std::string>& languages = folder.task.languages;
  if (languages.empty()) return texts;
  // Without tags a model goes one way only: from its first language.
  const auto from = std::find(languages.begin(), languages.end(), language);
  if (from == languages.end() || (folder.task.target_tags.empty() && from != languages.begin())) return std::nullopt;
  for (const std::string& other : languages)
    if (other != language && texts.language.empty()) texts.language = other;
  return texts;
}

std::vector<std::string> languages_into(const Task& task) {
  if (!task.target_tags.empty()) return task.languages;
  if (task.languages.size() < 2) return {};
  return {task.languages[1]};
}

std::vector<SubjectTexts> example_inputs(const LoadedModel& model) {
  struct Example {
    const char *text, *language;
  };
  static constexpr Example sentences[] = {{"我喜欢学习中文。", "zh"},
                                          {"I like learning Chinese.", "en"},
                                          {"他把书放在桌子上了。", "zh"},
                                          {"She gave her brother the old map.", "en"}};
  static constexpr Example beginnings[] = {{"明月", "zh"}, {"春风", "zh"}, {"Once upon a time", "en"}, {"The ", "en"}};
  const bool pair = model.config().encoder && model.config().decoder;
  std::vector<SubjectTexts> result;
  for (const Example& example : pair ? sentences : beginnings)
    if (auto input = input_of(model, example.text, example.language)) result.push_back(std::move(*input));
  return result;
}

}  // namespace attend::explorer
