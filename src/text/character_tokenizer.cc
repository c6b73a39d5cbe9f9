#include <algorithm>
#include <nlohmann/json.hpp>
#include <set>

#include "attend/error.h"
#include "attend/tokenizer.h"
#include "text/kinds.h"
#include "text/utf8.h"

namespace attend {
namespace {

std::string code_point(char32_t character) {
  static const char digits[] = "0123456789ABCDEF";
  std::string text;
  for (int shift = 20; shift >= 0; shift -= 4)
    if (shift < 16 || (character >> shift) != 0) text += digits[(character >> shift) & 15];
  return "U+" + text;
}

class CharacterTokenizer final : public Tokenizer {
 public:
  CharacterTokenizer(CharacterOptions options, std::vector<char32_t> characters, const std::string& where)
      : Tokenizer(TokenizerKind::character, options.normalisation),
        options_(std::move(options)),
        characters_(std::move(characters)) {
    std::vector<std::string> pieces;
    SpecialTokens specials;
    if (options_.specials) {
      pieces = {"<pad>", "<unk>", "<s>", "</s>"};
      specials = {0, 1, 2, 3};
    } else if (!options_.control_symbols.empty()) {
      throw Error(ErrorKind::argument, where, "control symbols are asked for, but no special tokens",
                  "ask for special tokens too");
    }
    check_symbols(options_.control_symbols, pieces, where);
    pieces.insert(pieces.end(), options_.control_symbols.begin(), options_.control_symbols.end());
    first_ = static_cast<std::int32_t>(pieces.size());
    std::vector<std::string> surfaces(pieces.size());
    std::vector<PieceType> types(pieces.size(), PieceType::control);
    if (options_.specials) {
      types[1] = PieceType::unknown;
      surfaces[1] = "\xEF\xBF\xBD";
    }
    for (const char32_t character : characters_) {
      pieces.emplace_back();
      append_character(pieces.back(), character);
      surfaces.push_back(pieces.back());
      types.push_back(PieceType::text);
    }
    set_vocabulary(std::move(pieces), std::move(surfaces), std::move(types), specials, FirstBlank::keep);
  }

 private:
  std::vector<TokenSpan> cut(const std::string& normalised) const override {
    std::vector<TokenSpan> spans;
    spans.reserve(normalised.size());
    std::size_t position = 0;
    while (position < normalised.size()) {
      const Utf8Step step = utf8_step(normalised, position);
      const auto found = std::lower_bound(characters_.begin(), characters_.end(), step.character);
      std::int32_t id = specials().unknown;
      if (found != characters_.end() && *found == step.character) {
        id = first_ + static_cast<std::int32_t>(found - characters_.begin());
      } else if (id < 0 || options_.refuse_unknown) {
        throw Error(
            ErrorKind::text, "tokenizer",
            join("the character \"", normalised.substr(position, step.length), "\" (", code_point(step.character),
                 ") at byte ", position + 1, " is not in the vocabulary of ", characters_.size(), " characters"),
            "leave it out, or train on a text that holds it");
      }
      spans.push_back({id, static_cast<std::int64_t>(position), static_cast<std::int64_t>(position + step.length)});
      position += step.length;
    }
    return spans;
  }
  std::string details() const override {
    nlohmann::ordered_json json;
    json["has_specials"] = options_.specials;
    json["refuse_unknown"] = options_.refuse_unknown;
    json["control_symbols"] = options_.control_symbols;
    json["characters"] = nlohmann::ordered_json::array();
    for (const char32_t character : characters_) json["characters"].push_back(text_of({character}));
    return json.dump();
  }

  CharacterOptions options_;
  std::vector<char32_t> characters_;  // sorted
  std::int32_t first_ = 0;            // id of the first character
};

}  // namespace

std::shared_ptr<const Tokenizer> character_tokenizer(const CharacterOptions& options, std::vector<char32_t> characters,
                                                     const std::string& where) {
  return std::make_shared<CharacterTokenizer>(options, std::move(characters), where);
}

std::shared_ptr<const Tokenizer> train_character(const CharacterOptions& options, const LineSource& lines) {
  std::set<char32_t> seen;
  lines([&](std::string_view line) {
    for (const char32_t character : characters_of(normalise(line, options.normalisation))) seen.insert(character);
  });
  if (seen.empty())
    throw Error(ErrorKind::text, "character tokenizer", "the corpus holds no characters",
                "give a text that is not empty");
  return character_tokenizer(options, {seen.begin(), seen.end()}, "character tokenizer");
}

std::shared_ptr<const Tokenizer> train_character(const CharacterOptions& options, std::string_view text) {
  return train_character(options, [text](const std::function<void(std::string_view)>& take) { take(text); });
}

}  // namespace attend
