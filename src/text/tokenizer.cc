#include "attend/tokenizer.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "attend/error.h"
#include "core/file.h"
#include "core/hash.h"
#include "core/names.h"
#include "text/kinds.h"
#include "text/utf8.h"

namespace attend {
namespace {

using Json = nlohmann::ordered_json;

constexpr const char* json_name = "tokenizer.json";
constexpr const char* model_name = "tokenizer.model";
constexpr std::int64_t most_json_bytes = std::int64_t{32} << 20;
constexpr std::int64_t most_model_bytes = std::int64_t{256} << 20;
constexpr int format_version = 1;

// Access to a JSON object by key with errors that name the file and the key.
class Fields {
 public:
  Fields(const Json& object, std::string where) : object_(&object), where_(std::move(where)) {
    if (!object.is_object()) refuse("the file", "an object");
  }
  const Json& at(const char* key) const {
    const auto found = object_->find(key);
    if (found == object_->end())
      throw Error(ErrorKind::format, where_, join("the key \"", key, "\" is missing"), advice);
    return *found;
  }
  std::string text(const char* key) const {
    const Json& value = at(key);
    if (!value.is_string()) refuse(join("\"", key, "\""), "text");
    return value.get<std::string>();
  }
  bool boolean(const char* key) const {
    const Json& value = at(key);
    if (!value.is_boolean()) refuse(join("\"", key, "\""), "true or false");
    return value.get<bool>();
  }
  std::int64_t integer(const char* key) const {
    const Json& value = at(key);
    if (!value.is_number_integer()) refuse(join("\"", key, "\""), "a whole number");
    if (value.is_number_unsigned() && value.get<std::uint64_t>() > std::uint64_t{1} << 62)
      refuse(join("\"", key, "\""), "a number below 2^62");
    return value.get<std::int64_t>();
  }
  std::vector<std::string> texts(const char* key) const {
    const Json& value = at(key);
    if (!value.is_array()) refuse(join("\"", key, "\""), "a list of texts");
    std::vector<std::string> result;
    for (const Json& entry : value) {
      if (!entry.is_string()) refuse(join("entry ", result.size(), " of \"", key, "\""), "text");
      result.push_back(entry.get<std::string>());
    }
    return result;
  }
  [[noreturn]] void refuse(const std::string& what, const char* wanted) const {
    throw Error(ErrorKind::format, where_, join(what, " is not ", wanted), advice);
  }
  const std::string& where() const { return where_; }

  static constexpr const char* advice = "save the tokenizer again from the model or corpus that it came from";

 private:
  const Json* object_;
  std::string where_;
};

// A hostile file must not get the parser to nest as deep as it likes.
void check_nesting(std::string_view text, const std::string& where) {
  int depth = 0;
  bool quoted = false;
  for (std::size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    if (quoted) {
      if (c == '\\') ++i;
      else if (c == '"') quoted = false;
    } else if (c == '"') {
      quoted = true;
    } else if (c == '[' || c == '{') {
      if (++depth > 16) throw Error(ErrorKind::format, where, "nested more than 16 deep", Fields::advice);
    } else if (c == ']' || c == '}') {
      --depth;
    }
  }
}

const NamedBytes* file_named(std::span<const NamedBytes> files, std::string_view name) {
  for (const NamedBytes& file : files)
    if (file.name == name) return &file;
  return nullptr;
}

std::vector<char32_t> characters_from(const Fields& fields) {
  std::vector<char32_t> characters;
  for (const std::string& text : fields.texts("characters")) {
    const std::vector<char32_t> one = characters_of(text);
    if (one.size() != 1) fields.refuse(join("entry ", characters.size(), " of \"characters\""), "one character");
    if (!characters.empty() && one[0] <= characters.back())
      fields.refuse(join("entry ", characters.size(), " of \"characters\""), "above the one before it");
    characters.push_back(one[0]);
  }
  return characters;
}

}  // namespace

const char* name_of(TokenizerKind kind) {
  switch (kind) {
    case TokenizerKind::sentencepiece:
      return "sentencepiece";
    case TokenizerKind::byte:
      return "byte";
    case TokenizerKind::character:
      return "character";
    case TokenizerKind::llama2c:
      return "llama2c";
  }
  return "unknown";
}

std::string byte_piece(unsigned char byte) {
  static const char digits[] = "0123456789ABCDEF";
  return std::string("<0x") + digits[byte >> 4] + digits[byte & 15] + '>';
}

int byte_of_piece(std::string_view piece) {
  if (piece.size() != 6 || piece.substr(0, 3) != "<0x" || piece[5] != '>') return -1;
  int value = 0;
  for (const char c : piece.substr(3, 2)) {
    if (c >= '0' && c <= '9') value = value * 16 + (c - '0');
    else if (c >= 'A' && c <= 'F') value = value * 16 + (c - 'A' + 10);
    else return -1;
  }
  return value;
}

void check_symbols(const std::vector<std::string>& symbols, const std::vector<std::string>& taken,
                   const std::string& where) {
  std::vector<std::string> seen = taken;
  for (const std::string& symbol : symbols) {
    const auto refuse = [&](const char* why, const char* advice) {
      throw Error(ErrorKind::argument, where, join("the symbol \"", replace_invalid_utf8(symbol), "\" ", why), advice);
    };
    if (find_invalid_utf8(symbol) != std::string_view::npos) refuse("is not valid UTF-8", "write it in UTF-8");
    const std::vector<char32_t> characters = characters_of(symbol);
    if (characters.size() < 2) refuse("has fewer than two characters", "use a name like <2en>");
    for (const char32_t character : characters)
      if (character == 0 || is_white_space(character)) refuse("holds a blank", "use a name without blanks, like <2en>");
    if (std::find(seen.begin(), seen.end(), symbol) != seen.end())
      refuse("is there twice", "name every symbol once, and none of them like a special token or byte");
    seen.push_back(symbol);
  }
}

Tokenizer::~Tokenizer() = default;

void Tokenizer::set_vocabulary(std::vector<std::string> pieces, std::vector<std::string> surfaces,
                               std::vector<PieceType> types, SpecialTokens specials, FirstBlank first_blank) {
  pieces_ = std::move(pieces);
  surfaces_ = std::move(surfaces);
  types_ = std::move(types);
  specials_ = specials;
  first_blank_ = first_blank;
  by_piece_.clear();
  by_piece_.reserve(pieces_.size());
  for (std::size_t i = 0; i < pieces_.size(); ++i) by_piece_.emplace_back(pieces_[i], static_cast<std::int32_t>(i));
  std::sort(by_piece_.begin(), by_piece_.end());
}

void Tokenizer::check(std::int32_t id) const {
  if (id < 0 || id >= size())
    throw Error(ErrorKind::argument, "tokenizer", join("token id ", id, " is outside the vocabulary of ", size()),
                "use the tokenizer that the model was trained with");
}

std::vector<std::int32_t> Tokenizer::encode(std::string_view text) const {
  const std::vector<TokenSpan> spans = encode_spans(text);
  std::vector<std::int32_t> ids;
  ids.reserve(spans.size());
  for (const TokenSpan& span : spans) ids.push_back(span.id);
  return ids;
}

std::vector<TokenSpan> Tokenizer::encode_spans(std::string_view text) const {
  return cut(normalise(text, normalisation_));
}

std::string Tokenizer::decode(std::span<const std::int32_t> ids) const {
  StreamDecoder decoder(*this);
  std::string bytes;
  for (const std::int32_t id : ids) decoder.append(id, bytes);
  return replace_invalid_utf8(bytes);
}

const std::string& Tokenizer::piece(std::int32_t id) const {
  check(id);
  return pieces_[static_cast<std::size_t>(id)];
}

std::int32_t Tokenizer::id(std::string_view piece) const {
  const auto found = std::lower_bound(by_piece_.begin(), by_piece_.end(), std::make_pair(piece, std::int32_t{0}));
  return found != by_piece_.end() && found->first == piece ? found->second : -1;
}

bool Tokenizer::is_control(std::int32_t id) const {
  check(id);
  return type(id) == PieceType::control;
}

std::string_view Tokenizer::bytes(std::int32_t id) const {
  check(id);
  return surface(id);
}

std::string Tokenizer::readable(std::int32_t id) const {
  check(id);
  const PieceType of = type(id);
  return readable_text(of == PieceType::text || of == PieceType::byte ? surface(id) : piece(id));
}

std::string readable_text(std::string_view bytes) {
  std::string text;
  std::size_t position = 0;
  while (position < bytes.size()) {
    const Utf8Step step = utf8_step(bytes, position);
    if (!step.valid) {
      for (std::size_t i = 0; i < step.length; ++i) text += byte_piece(static_cast<unsigned char>(bytes[position + i]));
    } else if (step.character == '\n') {
      text += "\\n";
    } else if (step.character == '\r') {
      text += "\\r";
    } else if (step.character == '\t') {
      text += "\\t";
    } else if (step.character < 0x20 || step.character == 0x7F) {
      text += byte_piece(static_cast<unsigned char>(step.character));
    } else {
      text.append(bytes, position, step.length);
    }
    position += step.length;
  }
  return text;
}

std::string Tokenizer::fingerprint() const {
  ByteHash print;
  print.text(name_of(kind_));
  print.text(name_of(normalisation_));
  for (const std::int32_t special : {specials_.pad, specials_.unknown, specials_.bos, specials_.eos})
    print.number(static_cast<std::uint64_t>(static_cast<std::int64_t>(special)));
  print.number(pieces_.size());
  for (std::size_t i = 0; i < pieces_.size(); ++i) {
    print.text(pieces_[i]);
    print.number(static_cast<std::uint64_t>(types_[i]));
  }
  print.text(details());
  print.text(model_bytes());
  return hexadecimal(print.value());
}

std::vector<NamedBytes> Tokenizer::serialise() const {
  Json json;
  json["format"] = "attend tokenizer";
  json["version"] = format_version;
  json["kind"] = name_of(kind_);
  json["normalisation"] = name_of(normalisation_);
  json["size"] = size();
  json["specials"] = {
      {"pad", specials_.pad}, {"unknown", specials_.unknown}, {"bos", specials_.bos}, {"eos", specials_.eos}};
  json["fingerprint"] = fingerprint();
  const std::string_view model = model_bytes();
  if (!model.empty()) json["file"] = model_name;
  json.update(Json::parse(details()));
  std::vector<NamedBytes> files{{json_name, json.dump(1) + "\n"}};
  if (!model.empty()) files.push_back({model_name, std::string(model)});
  return files;
}

void Tokenizer::save(const std::filesystem::path& folder) const {
  // The model first: tokenizer.json, which makes the folder a tokenizer, must never be there without it.
  const std::vector<NamedBytes> files = serialise();
  for (auto file = files.rbegin(); file != files.rend(); ++file) write_file(folder / file->name, file->bytes);
}

void StreamDecoder::append(std::int32_t id, std::string& bytes) {
  tokenizer_->check(id);
  std::string_view surface = tokenizer_->surface(id);
  if (surface.empty()) return;
  using FirstBlank = Tokenizer::FirstBlank;
  if (at_start_ && tokenizer_->first_blank_ != FirstBlank::keep && tokenizer_->type(id) == Tokenizer::PieceType::text &&
      surface.front() == ' ')
    surface.remove_prefix(1);
  if (!surface.empty() || tokenizer_->first_blank_ != FirstBlank::drop_until_text) at_start_ = false;
  bytes.append(surface);
}

std::string StreamDecoder::push(std::int32_t id) {
  append(id, held_);
  const std::size_t unfinished = unfinished_utf8(held_);
  std::string text = replace_invalid_utf8(std::string_view(held_).substr(0, held_.size() - unfinished));
  held_.erase(0, held_.size() - unfinished);
  return text;
}

std::string StreamDecoder::finish() {
  std::string text = replace_invalid_utf8(held_);
  held_.clear();
  at_start_ = true;
  return text;
}

std::shared_ptr<const Tokenizer> load_tokenizer(std::span<const NamedBytes> files, const std::string& where) {
  const NamedBytes* text = file_named(files, json_name);
  if (text == nullptr) throw Error(ErrorKind::format, where, join("has no ", json_name), Fields::advice);
  const std::string json_where = join(where, where.empty() ? "" : "/", json_name);
  check_nesting(text->bytes, json_where);
  Json json;
  try {
    json = Json::parse(text->bytes);
  } catch (const nlohmann::json::exception& error) {
    throw Error(ErrorKind::format, json_where, join("is not JSON: ", json_reason(error)), Fields::advice);
  }
  const Fields fields(json, json_where);
  if (fields.text("format") != "attend tokenizer") fields.refuse("\"format\"", "\"attend tokenizer\"");
  if (fields.integer("version") != format_version)
    throw Error(ErrorKind::format, json_where,
                join("has version ", fields.integer("version"), ", this program reads version ", format_version),
                "use the version of the program that wrote it");

  const auto model = [&]() -> const std::string& {
    // Only this one name: a path in a hostile file must not reach other files.
    if (fields.text("file") != model_name) fields.refuse("\"file\"", "\"tokenizer.model\"");
    const NamedBytes* file = file_named(files, model_name);
    if (file == nullptr) throw Error(ErrorKind::format, where, join("has no ", model_name), Fields::advice);
    return file->bytes;
  };
  const std::string model_where = join(where, where.empty() ? "" : "/", model_name);
  std::shared_ptr<const Tokenizer> tokenizer;
  try {
    const Normalisation normalisation = normalisation_named(fields.text("normalisation"));
    const std::string kind = fields.text("kind");
    if (kind == "sentencepiece") {
      tokenizer = sentencepiece_tokenizer(model(), normalisation, model_where);
    } else if (kind == "byte") {
      tokenizer = byte_tokenizer(normalisation, fields.texts("control_symbols"));
    } else if (kind == "character") {
      CharacterOptions options;
      options.normalisation = normalisation;
      options.specials = fields.boolean("has_specials");
      options.refuse_unknown = fields.boolean("refuse_unknown");
      options.control_symbols = fields.texts("control_symbols");
      tokenizer = character_tokenizer(options, characters_from(fields), json_where);
    } else if (kind == "llama2c") {
      const std::int64_t size = fields.integer("size");
      if (size < 1 || size > most_model_bytes) fields.refuse("\"size\"", "the size of a vocabulary");
      tokenizer = llama2c_tokenizer(model(), static_cast<int>(size), model_where);
    } else {
      throw Error(ErrorKind::format, json_where, join("the kind \"", kind, "\" is not known"),
                  "use the version of the program that wrote it");
    }
  } catch (const Error& error) {
    if (error.kind() == ErrorKind::format) throw;
    throw Error(ErrorKind::format, json_where, error.what_happened(), error.advice());
  }

  const Fields specials(fields.at("specials"), json_where);
  const SpecialTokens& found = tokenizer->specials();
  const std::pair<const char*, std::int32_t> expected[] = {
      {"pad", found.pad}, {"unknown", found.unknown}, {"bos", found.bos}, {"eos", found.eos}};
  for (const auto& [key, id] : expected)
    if (specials.integer(key) != id)
      throw Error(ErrorKind::format, json_where,
                  join("\"", key, "\" is ", specials.integer(key), ", the vocabulary has ", id), Fields::advice);
  if (fields.integer("size") != tokenizer->size() || fields.text("fingerprint") != tokenizer->fingerprint())
    throw Error(ErrorKind::format, json_where, "its size or fingerprint is not that of the vocabulary beside it",
                "the files come from two different tokenizers or one was changed; copy both again");
  return tokenizer;
}

std::shared_ptr<const Tokenizer> load_tokenizer(const std::filesystem::path& path) {
  std::error_code ignored;
  if (std::filesystem::is_directory(path, ignored)) {
    std::vector<NamedBytes> files{{json_name, read_file(path / json_name, most_json_bytes)}};
    if (std::filesystem::exists(path / model_name, ignored))
      files.push_back({model_name, read_file(path / model_name, most_model_bytes)});
    return load_tokenizer(files, path.string());
  }
  std::string bytes = read_file(path, most_model_bytes);
  if (path.extension() == ".bin") return llama2c_tokenizer(bytes, 0, path.string());
  return sentencepiece_tokenizer(std::move(bytes), Normalisation::none, path.string());
}

}  // namespace attend
