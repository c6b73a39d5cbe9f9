// Text to token ids and back. A tokenizer never changes after it is made and may be used by many threads at once.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "attend/unicode.h"

namespace attend {

enum class TokenizerKind {
  sentencepiece,  // a SentencePiece model (Kudo and Richardson 2018), unigram or BPE
  byte,           // the 256 bytes, then symbols
  character,      // Unicode characters seen in a corpus
  llama2c,        // the tokenizer.bin of karpathy/llama2.c: greedy merges by score, bytes for what is unknown
};

const char* name_of(TokenizerKind kind);  // "sentencepiece", "byte", "character", "llama2c"

// -1 where the vocabulary has no such token.
struct SpecialTokens {
  std::int32_t pad = -1;
  std::int32_t unknown = -1;
  std::int32_t bos = -1;  // begin of sequence
  std::int32_t eos = -1;  // end of sequence
};

// One token with the bytes of the normalised text that it stands for: [begin, end), in order and without overlap. A token
// can stand for no byte (the blank that SentencePiece adds in front).
struct TokenSpan {
  std::int32_t id = 0;
  std::int64_t begin = 0;
  std::int64_t end = 0;
};

struct NamedBytes {
  std::string name;
  std::string bytes;
};

class Tokenizer {
 public:
  virtual ~Tokenizer();
  Tokenizer(const Tokenizer&) = delete;
  Tokenizer& operator=(const Tokenizer&) = delete;

  // Normalises, then cuts. Never adds bos or eos, and text that spells a control token ("</s>") is plain text.
  // Error(text): ill-formed UTF-8, or a character that the vocabulary lacks when it was made to refuse them.
  std::vector<std::int32_t> encode(std::string_view text) const;
  // The same tokens with their places in normalise(text, normalisation()).
  std::vector<TokenSpan> encode_spans(std::string_view text) const;

  // Control tokens vanish, bytes are joined to characters, bytes that join to none become U+FFFD.
  // Error(argument) for an id outside 0..size()-1.
  std::string decode(std::span<const std::int32_t> ids) const;

  int size() const { return static_cast<int>(pieces_.size()); }
  const std::vector<std::string>& pieces() const { return pieces_; }
  const std::string& piece(std::int32_t id) const;  // the entry of the vocabulary; Error(argument) if out of range
  std::int32_t id(std::string_view piece) const;    // -1 if the vocabulary has no such entry
  bool is_control(std::int32_t id) const;           // a token that is not text: pad, bos, eos, direction tags
  // What the token adds to decoded text, its blank in front included: a part of a character where it is a byte, nothing
  // where it is a control token.
  std::string_view bytes(std::int32_t id) const;
  // For people: blanks as they are, a lone byte as <0xE4>, line ends as \n, control tokens by their name.
  std::string readable(std::int32_t id) const;

  const SpecialTokens& specials() const { return specials_; }
  TokenizerKind kind() const { return kind_; }
  Normalisation normalisation() const { return normalisation_; }

  // 16 hexadecimal digits that change with anything that changes ids or text: a checkpoint keeps them, so that a model
  // is never run with another vocabulary.
  std::string fingerprint() const;

  // The files that make this tokenizer again: tokenizer.json first, then for some kinds tokenizer.model.
  std::vector<NamedBytes> serialise() const;
  // Writes them into an existing folder, each whole or not at all.
  void save(const std::filesystem::path& folder) const;

 protected:
  enum class PieceType : std::uint8_t { text, control, byte, unknown };
  // What decoding does with the blank that encoding put in front of the text.
  enum class FirstBlank : std::uint8_t { keep, drop_one, drop_until_text };

  Tokenizer(TokenizerKind kind, Normalisation normalisation) : kind_(kind), normalisation_(normalisation) {}
  // Called once by the maker of the vocabulary. `surfaces` are the bytes of each token in decoded text.
  void set_vocabulary(std::vector<std::string> pieces, std::vector<std::string> surfaces, std::vector<PieceType> types,
                      SpecialTokens specials, FirstBlank first_blank);

  PieceType type(std::int32_t id) const { return types_[static_cast<std::size_t>(id)]; }
  const std::string& surface(std::int32_t id) const { return surfaces_[static_cast<std::size_t>(id)]; }
  const std::vector<PieceType>& types() const { return types_; }

 private:
  friend class StreamDecoder;
  virtual std::vector<TokenSpan> cut(const std::string& normalised) const = 0;
  // What tokenizer.json holds beyond what all kinds share, as a JSON object, and tokenizer.model ("" for none).
  virtual std::string details() const = 0;
  virtual std::string_view model_bytes() const { return {}; }
  void check(std::int32_t id) const;

  TokenizerKind kind_;
  Normalisation normalisation_;
  SpecialTokens specials_;
  std::vector<std::string> pieces_, surfaces_;
  std::vector<PieceType> types_;
  std::vector<std::pair<std::string_view, std::int32_t>> by_piece_;  // sorted; views into pieces_
  FirstBlank first_blank_ = FirstBlank::keep;
};

// Decodes token by token for output that appears while it is made. All pushes and the finish joined equal decode() of
// all ids: bytes of a character that is not complete yet are held back. The tokenizer must outlive it.
class StreamDecoder {
 public:
  explicit StreamDecoder(const Tokenizer& tokenizer) : tokenizer_(&tokenizer) {}

  std::string push(std::int32_t id);  // text that is certain now, often one piece, sometimes nothing
  std::string finish();               // what was held back, as U+FFFD; the decoder starts afresh

 private:
  friend class Tokenizer;
  void append(std::int32_t id, std::string& bytes);

  const Tokenizer* tokenizer_;
  std::string held_;      // bytes that could still become a character
  bool at_start_ = true;  // the first blank may still come
};

// Lines of text for training: calls `take` once for each line.
using LineSource = std::function<void(const std::function<void(std::string_view)>& take)>;

// How SentencePiece is trained. The library itself normalises nothing (identity); `normalisation` is done before it.
struct SentencePieceOptions {
  std::string model_type = "unigram";  // "unigram" (Kudo 2018) or "bpe" (Sennrich, Haddow, Birch 2016)
  int vocabulary_size = 8000;          // all tokens, specials and bytes included
  double character_coverage = 1.0;     // share of the corpus's characters kept; the rest become bytes or unknown
  bool byte_fallback = false;          // 256 byte tokens instead of the unknown token
  bool split_digits = false;           // every digit its own token
  bool collapse_blanks = true;         // blanks at both ends go and several become one; without it, decoding gives
                                       // back exactly the normalised text
  Normalisation normalisation = Normalisation::nfc;
  std::vector<std::string> control_symbols;  // tokens that text never gives: direction tags, class token
  std::vector<std::string> user_symbols;     // strings in text that are always one token
  std::int64_t longest_line = 4096;          // bytes; longer lines are left out of the training
  std::int64_t most_lines = 0;               // if above 0, train on this many lines drawn with `seed`
  std::uint64_t seed = 1;
};

// Specials are pad 0, unknown 1, bos 2, eos 3, then control symbols, user symbols, bytes. The same options and lines
// give the same bytes. Nothing is printed. Not for two threads at once (calls wait for each other).
// Error(argument): an option out of range. Error(text): no lines; a vocabulary larger than the corpus allows (the
// largest possible size is named) or too small for the required characters (the smallest is named).
std::shared_ptr<const Tokenizer> train_sentencepiece(const SentencePieceOptions& options, const LineSource& lines);
std::shared_ptr<const Tokenizer> train_sentencepiece(const SentencePieceOptions& options,
                                                     std::span<const std::string> lines);

// A SentencePiece .model file that somebody else trained. `model` are its bytes; `where` names it in errors.
std::shared_ptr<const Tokenizer> sentencepiece_tokenizer(std::string model, Normalisation normalisation,
                                                         const std::string& where = "SentencePiece model");

// Ids 0..255 are the bytes, then pad, bos and eos (256, 257, 258), then `control_symbols`. Knows every text.
std::shared_ptr<const Tokenizer> byte_tokenizer(Normalisation normalisation = Normalisation::none,
                                                std::vector<std::string> control_symbols = {});

struct CharacterOptions {
  Normalisation normalisation = Normalisation::none;
  bool specials = true;         // pad 0, unknown 1, bos 2, eos 3, then control_symbols; without: characters only, and
                                // an unknown character is an error
  bool refuse_unknown = false;  // Error(text) that names the character, instead of the unknown token
  std::vector<std::string> control_symbols;
};

// After the specials, the characters of the corpus in code point order.
std::shared_ptr<const Tokenizer> train_character(const CharacterOptions& options, const LineSource& lines);
std::shared_ptr<const Tokenizer> train_character(const CharacterOptions& options, std::string_view text);

// The bytes of a llama2.c tokenizer file (int32 longest, then per token float32 score, int32 length, bytes; little
// endian). The file does not say how many tokens it has; the model does, and `size` is it (0: all in the file).
std::shared_ptr<const Tokenizer> llama2c_tokenizer(std::string_view bytes, int size = 0,
                                                   const std::string& where = "llama2.c tokenizer");

// A folder that save() wrote; or a SentencePiece .model file; or a llama2.c tokenizer .bin file.
// Error(file) if it cannot be read, Error(format) if its bytes are not what they should be.
std::shared_ptr<const Tokenizer> load_tokenizer(const std::filesystem::path& path);
// The same from what serialise() gave.
std::shared_ptr<const Tokenizer> load_tokenizer(std::span<const NamedBytes> files, const std::string& where);

}  // namespace attend
