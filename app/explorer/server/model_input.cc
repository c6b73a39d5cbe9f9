#include "explorer/model_input.h"

#include <algorithm>
#include <utility>

#include "attend/translate.h"

namespace attend::explorer {
namespace {

void read_text(Fields& fields, const char* name, const char* ids_name, std::optional<TextInput>& place,
               const Limits& limits) {
  const bool text = fields.find(name) != nullptr, ids = fields.find(ids_name) != nullptr;
  if (text && ids)
    throw Error(ErrorKind::argument, fields.where(), join("has both ", name, " and ", ids_name), "give one of them");
  if (text) place = TextInput{fields.text(name), {}, false};
  if (!ids) return;
  place = TextInput{{}, {}, true};
  for (const std::int64_t id : fields.integers(ids_name, 0, INT32_MAX, limits.tokens))
    place->ids.push_back(static_cast<std::int32_t>(id));
}

// The tokens of a text, without ends.
std::vector<std::int32_t> tokens_of(const Tokenizer& tokenizer, const TextInput& input, const char* name,
                                    const Limits& limits) {
  if (input.by_ids) {
    for (const std::int32_t id : input.ids)
      if (id >= tokenizer.size())
        throw Error(ErrorKind::argument, join("input.", name, "_ids"), join("holds ", id),
                    join("the vocabulary has ids 0 to ", tokenizer.size() - 1));
    return input.ids;
  }
  try {
    std::vector<std::int32_t> ids = tokenizer.encode(input.text);
    if (static_cast<std::int64_t>(ids.size()) > limits.tokens)
      throw over_limit(join("input.", name), "tokens", ids.size(), limits.tokens);
    return ids;
  } catch (const Error& error) {
    throw RequestError(error.kind(), join("input.", name), error.what_happened(), error.advice(), detail("not_text"));
  }
}

void check_length(std::size_t length, const LoadedModel& model, const char* name) {
  const auto rows = static_cast<std::int64_t>(length);
  if (rows > model.config().max_positions)
    throw RequestError(
        ErrorKind::text, join("input.", name),
        join("has ", rows, " tokens with its ends, and the model reads at most ", model.config().max_positions),
        "shorten it", detail("too_long", rows, model.config().max_positions));
}

void refuse_text(const std::optional<TextInput>& text, const LoadedModel& model, const char* name, const char* wanted) {
  if (text)
    throw Error(ErrorKind::argument, "input",
                join("has ", name, ", and ", model.name, " is of the family ", family_of(model.config())),
                join("give ", wanted));
}

const Tokenizer& need_tokenizer(const std::shared_ptr<const Tokenizer>& tokenizer, const LoadedModel& model) {
  if (!tokenizer)
    throw Error(ErrorKind::argument, "input", join(model.name, " reads features, not text"), "choose a model of text");
  return *tokenizer;
}

// The text if it gives the same ids again, else the ids.
TextInput text_or_ids(const Tokenizer& tokenizer, std::vector<std::int32_t> ids) {
  std::string text = tokenizer.decode(ids);
  try {
    if (tokenizer.encode(text) == ids) return {std::move(text), {}, false};
  } catch (const Error&) {
  }
  return {{}, std::move(ids), true};
}

PreparedInput read_pair(const LoadedModel& model, InputRequest request, const Limits& limits, bool write,
                        const std::function<bool()>& stopped) {
  const Tokenizer& source = need_tokenizer(model.folder.source, model);
  const Tokenizer& target = need_tokenizer(model.folder.target, model);
  const Task& task = model.folder.task;
  refuse_text(request.text, model, "text", "source and, if wanted, language and target");
  if (!request.source) throw Error(ErrorKind::argument, "input.source", "is missing");
  const Translator translator(model.folder);
  PreparedInput result;
  std::vector<std::int32_t> tokens = tokens_of(source, *request.source, "source", limits);
  if (!task.languages.empty() && request.language.empty()) {
    if (request.source->by_ids && !task.target_tags.empty())
      throw Error(ErrorKind::argument, "input.language", "is missing, and ids do not tell it");
    request.language =
        request.source->by_ids ? task.languages.back() : translator.direction(request.source->text).second;
  }
  if (!request.language.empty() &&
      std::find(task.languages.begin(), task.languages.end(), request.language) == task.languages.end()) {
    std::string known;
    for (const std::string& language : task.languages) known += (known.empty() ? "" : ", ") + language;
    throw RequestError(ErrorKind::argument, "input.language",
                       join("is \"", request.language.substr(0, 40), "\", which ", model.name, " does not know"),
                       known.empty() ? "leave it out" : "use one of " + known,
                       detail("language", request.language.substr(0, 40), task.languages));
  }
  // The ends come from the same rule as in training; an empty line has them alone.
  const std::vector<std::int32_t> ends = encode_source(task, source, "", request.language);
  const std::size_t back = task.source_end ? 1 : 0;
  result.encoder.assign(ends.begin(), ends.end() - static_cast<std::ptrdiff_t>(back));
  result.encoder.insert(result.encoder.end(), tokens.begin(), tokens.end());
  result.encoder.insert(result.encoder.end(), ends.end() - static_cast<std::ptrdiff_t>(back), ends.end());
  if (result.encoder.empty())
    throw RequestError(ErrorKind::text, "input.source", "is empty", "give at least one character",
                       detail("empty_text"));
  check_length(result.encoder.size(), model, "source");

  const std::int32_t begin = first_token(target);
  if (!request.target && write) {
    DecodeOptions options;
    options.scores = false;
    options.cancelled = stopped;
    const DecodeInput one{result.encoder, {begin}, {}, -1};
    const auto written = generate(model.folder.model, std::span(&one, 1), with_tokens_of(target, options));
    std::vector<std::int32_t> ids = written.front().front().ids;
    if (written.front().front().finished) ids.pop_back();
    request.target = text_or_ids(target, std::move(ids));
  }
  if (request.target) {
    std::vector<std::int32_t> ids = tokens_of(target, *request.target, "target", limits);
    check_length(ids.size() + 1, model, "target");
    result.decoder.push_back(begin);
    result.decoder.insert(result.decoder.end(), ids.begin(), ids.end());
    result.next = std::move(ids);
    result.next.push_back(target.specials().eos);
  }
  result.request = std::move(request);
  return result;
}

PreparedInput read_single(const LoadedModel& model, InputRequest request, const Limits& limits) {
  const TransformerConfig& config = model.config();
  const bool decoder = config.decoder.has_value();
  const Tokenizer& tokenizer = need_tokenizer(decoder ? model.folder.target : model.folder.source, model);
  refuse_text(request.source, model, "source", "text");
  refuse_text(request.target, model, "target", "text");
  if (!request.language.empty())
    throw Error(ErrorKind::argument, "input.language", join(model.name, " has no languages"), "leave it out");
  if (!request.text) throw Error(ErrorKind::argument, "input.text", "is missing");
  const std::vector<std::int32_t> tokens = tokens_of(tokenizer, *request.text, "text", limits);
  PreparedInput result;
  std::vector<std::int32_t>& ids = decoder ? result.decoder : result.encoder;
  if (decoder) {
    if (model.folder.task.lines) ids.push_back(first_token(tokenizer));
    ids.insert(ids.end(), tokens.begin(), tokens.end());
  } else {
    const SpecialTokens& specials = tokenizer.specials();
    if (model.folder.task.source_begin && specials.bos >= 0) ids.push_back(specials.bos);
    ids.insert(ids.end(), tokens.begin(), tokens.end());
    if (model.folder.task.source_end && specials.eos >= 0) ids.push_back(specials.eos);
  }
  if (ids.empty())
    throw RequestError(ErrorKind::text, "input.text", "is empty, but the model goes on from running text",
                       "give at least one character", detail("empty_text"));
  check_length(ids.size(), model, "text");
  if (decoder) {
    result.next.assign(ids.begin() + 1, ids.end());
    result.next.push_back(-1);
  } else {
    result.next = ids;
  }
  result.request = std::move(request);
  return result;
}

}  // namespace

InputRequest input_request(Fields& request, const char* name, const Limits& limits) {
  return input_request(request.need(name), request.path(name), limits);
}

InputRequest input_request(const Json& value, const std::string& where, const Limits& limits) {
  Fields fields(value, where);
  InputRequest result;
  read_text(fields, "source", "source_ids", result.source, limits);
  read_text(fields, "target", "target_ids", result.target, limits);
  read_text(fields, "text", "text_ids", result.text, limits);
  result.language = fields.text("language", "");
  fields.finish();
  return result;
}

PreparedInput read_input(const LoadedModel& model, InputRequest request, const Limits& limits, bool write,
                         const std::function<bool()>& stopped) {
  const TransformerConfig& config = model.config();
  if (config.encoder && config.decoder) return read_pair(model, std::move(request), limits, write, stopped);
  return read_single(model, std::move(request), limits);
}

void write_input(JsonWriter& out, const InputRequest& request) {
  const auto write = [&](const char* name, const char* ids_name, const std::optional<TextInput>& text) {
    if (!text) return;
    if (text->by_ids) out.field(ids_name, text->ids);
    else out.field(name, text->text);
  };
  out.begin_object();
  write("source", "source_ids", request.source);
  if (!request.language.empty()) out.field("language", request.language);
  write("target", "target_ids", request.target);
  write("text", "text_ids", request.text);
  out.end_object();
}

void write_tokens(JsonWriter& out, const Tokenizer& tokenizer, std::span<const std::int32_t> ids) {
  const std::vector<Piece> pieces = pieces_of(tokenizer, ids);
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
      out.end_object();
    }
  }
  out.end_array();
}

void write_tokens(JsonWriter& out, const LoadedModel& model, const PreparedInput& input) {
  if (model.config().encoder && model.config().decoder) {
    out.key("source");
    write_tokens(out, *model.folder.source, input.encoder);
    if (!input.decoder.empty()) {
      out.key("target");
      write_tokens(out, *model.folder.target, input.decoder);
    }
  } else {
    out.key("text");
    if (model.config().decoder) write_tokens(out, *model.folder.target, input.decoder);
    else write_tokens(out, *model.folder.source, input.encoder);
  }
}

std::vector<InputRequest> example_inputs(const LoadedModel& model) {
  struct Example {
    const char* language;
    const char* text;
  };
  static constexpr Example sentences[] = {{"zh", "我喜欢学习中文。"},
                                          {"en", "I like learning Chinese."},
                                          {"zh", "他把书放在桌子上了。"},
                                          {"en", "She gave her brother the old map."}};
  static constexpr const char* beginnings[] = {"明月", "春风", "Once upon a time", "The "};
  std::vector<InputRequest> result;
  const auto readable = [](const Tokenizer& tokenizer, const char* text) {
    try {
      const std::vector<std::int32_t> ids = tokenizer.encode(text);
      return !ids.empty() && std::find(ids.begin(), ids.end(), tokenizer.specials().unknown) == ids.end();
    } catch (const Error&) {
      return false;
    }
  };
  const TransformerConfig& config = model.config();
  const Task& task = model.folder.task;
  if (config.encoder && config.decoder) {
    if (!model.folder.source || !model.folder.target) return result;
    for (const Example& example : sentences) {
      const auto from = std::find(task.languages.begin(), task.languages.end(), example.language);
      if (!task.languages.empty() && (task.languages.size() != 2 || from == task.languages.end())) continue;
      if (task.target_tags.empty() && !task.languages.empty() && from != task.languages.begin()) continue;
      if (!readable(*model.folder.source, example.text)) continue;
      InputRequest& input = result.emplace_back();
      input.source = TextInput{example.text, {}, false};
      if (!task.languages.empty()) input.language = task.languages[from == task.languages.begin() ? 1 : 0];
    }
    return result;
  }
  const auto& tokenizer = config.decoder ? model.folder.target : model.folder.source;
  if (!tokenizer) return result;
  for (const char* text : beginnings)
    if (readable(*tokenizer, text)) result.emplace_back().text = TextInput{text, {}, false};
  return result;
}

}  // namespace attend::explorer
