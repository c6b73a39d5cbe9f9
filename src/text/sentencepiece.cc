#include <sentencepiece_processor.h>
#include <sentencepiece_trainer.h>

#include <algorithm>
#include <cctype>
#include <mutex>
#include <nlohmann/json.hpp>
#include <sstream>
#include <unordered_map>

#include "attend/error.h"
#include "attend/tokenizer.h"
#include "core/random.h"
#include "text/kinds.h"
#include "text/sentencepiece_file.h"
#include "text/utf8.h"

namespace attend {
namespace {

constexpr std::string_view blank_mark = "\xE2\x96\x81";  // U+2581, which the library writes for a blank

class SentencePieceTokenizer final : public Tokenizer {
 public:
  SentencePieceTokenizer(std::string model, Normalisation normalisation, const std::string& where)
      : Tokenizer(TokenizerKind::sentencepiece, normalisation), model_(std::move(model)) {
    const SentencePieceFile file = read_sentencepiece_file(model_, where);
    sentencepiece::util::Status status;
    try {
      status = processor_.LoadFromSerializedProto(model_);
    } catch (const std::exception& error) {  // the library's trie builder throws its own type
      throw Error(ErrorKind::format, where, error.what(), "give a .model file that SentencePiece wrote");
    }
    if (!status.ok())
      throw Error(ErrorKind::format, where, join("SentencePiece refuses it: ", status.message()),
                  "give a .model file that SentencePiece wrote");
    const int size = processor_.GetPieceSize();
    std::vector<std::string> pieces, surfaces;
    std::vector<PieceType> types;
    for (int i = 0; i < size; ++i) {
      const std::string& piece = processor_.IdToPiece(i);
      pieces.push_back(piece);
      surfaces.emplace_back();
      if (processor_.IsControl(i)) {
        types.push_back(PieceType::control);
      } else if (processor_.IsUnknown(i)) {
        types.push_back(PieceType::unknown);
        surfaces.back() = file.unknown_surface;
      } else if (processor_.IsByte(i)) {
        types.push_back(PieceType::byte);
        surfaces.back() = std::string(1, static_cast<char>(byte_of_piece(piece)));
      } else {
        types.push_back(PieceType::text);
        surfaces.back() = with_blanks(piece);
      }
    }
    const auto control = [&](int id) { return id >= 0 && id < size ? id : -1; };
    const SpecialTokens specials{control(processor_.pad_id()), control(processor_.unk_id()),
                                 control(processor_.bos_id()), control(processor_.eos_id())};
    const FirstBlank first_blank = file.remove_extra_whitespaces ? FirstBlank::drop_until_text
                                   : file.add_dummy_prefix       ? FirstBlank::drop_one
                                                                 : FirstBlank::keep;
    set_vocabulary(std::move(pieces), std::move(surfaces), std::move(types), specials, first_blank);
  }

 private:
  static std::string with_blanks(std::string_view piece) {
    std::string text;
    std::size_t position = 0;
    while (position < piece.size()) {
      if (piece.substr(position, blank_mark.size()) == blank_mark) {
        text += ' ';
        position += blank_mark.size();
      } else {
        text += piece[position++];
      }
    }
    return text;
  }

  std::vector<TokenSpan> cut(const std::string& normalised) const override {
    sentencepiece::ImmutableSentencePieceText result;
    const auto status = processor_.Encode(normalised, result.mutable_proto());
    if (!status.ok()) throw Error(ErrorKind::text, "SentencePiece", join("the text cannot be cut: ", status.message()));
    std::vector<TokenSpan> spans;
    const std::size_t count = result.pieces_size();
    spans.reserve(count);
    for (std::size_t i = 0; i < count; ++i) {
      const auto piece = result.pieces(static_cast<int>(i));
      spans.push_back({static_cast<std::int32_t>(piece.id()), piece.begin(), piece.end()});
    }
    spread_bytes(spans);
    return spans;
  }

  // The library gives all bytes of a character to its last byte token; each shall have its own.
  void spread_bytes(std::vector<TokenSpan>& spans) const {
    for (std::size_t i = 0; i < spans.size(); ++i) {
      if (type(spans[i].id) != PieceType::byte || spans[i].begin != spans[i].end) continue;
      std::size_t last = i;
      while (last + 1 < spans.size() && type(spans[last].id) == PieceType::byte && spans[last].begin == spans[last].end)
        ++last;
      if (spans[last].end - spans[i].begin != static_cast<std::int64_t>(last - i + 1)) continue;
      std::int64_t at = spans[i].begin;
      for (; i <= last; ++i, ++at) spans[i] = {spans[i].id, at, at + 1};
      i = last;
    }
  }

  std::string details() const override { return "{}"; }
  std::string_view model_bytes() const override { return model_; }

  std::string model_;
  sentencepiece::SentencePieceProcessor processor_;
};

// Feeds the library from memory.
class Sentences final : public sentencepiece::SentenceIterator {
 public:
  explicit Sentences(const std::vector<std::string>& lines) : lines_(lines) {}
  bool done() const override { return next_ == lines_.size(); }
  void Next() override { ++next_; }
  const std::string& value() const override { return lines_[next_]; }
  sentencepiece::util::Status status() const override { return {}; }

 private:
  const std::vector<std::string>& lines_;
  std::size_t next_ = 0;
};

// One field of a list in the library's options.
std::string quoted_list(const std::vector<std::string>& symbols) {
  std::string list;
  for (const std::string& symbol : symbols) {
    if (!list.empty()) list += ',';
    list += '"';
    for (const char c : symbol) {
      if (c == '"') list += '"';
      list += c;
    }
    list += '"';
  }
  return list;
}

void check(const SentencePieceOptions& options) {
  const auto refuse = [](const std::string& what, const char* advice) {
    throw Error(ErrorKind::argument, "SentencePiece training", what, advice);
  };
  if (options.model_type != "unigram" && options.model_type != "bpe")
    refuse(join("the model type \"", options.model_type, "\" is not known"), "use unigram or bpe");
  if (!(options.character_coverage >= 0.98 && options.character_coverage <= 1.0))
    refuse(join("a character coverage of ", options.character_coverage, " is not possible"), "use 0.98 to 1");
  if (options.longest_line < 10 || options.longest_line > 1 << 30)
    refuse(join("a longest line of ", options.longest_line, " bytes is not possible"), "use 10 to 2^30 bytes");
  if (options.most_lines < 0)
    refuse(join("at most ", options.most_lines, " lines are not possible"), "use 0 for all lines");
  if (options.vocabulary_size < 1 || options.vocabulary_size > 1000000)
    refuse(join("a vocabulary of ", options.vocabulary_size, " tokens is not possible"), "use 1 to 1000000");
  std::vector<std::string> taken = {"<pad>", "<unk>", "<s>", "</s>"};
  for (int byte = 0; byte < 256; ++byte) taken.push_back(byte_piece(static_cast<unsigned char>(byte)));
  std::vector<std::string> symbols = options.control_symbols;
  check_symbols(symbols, taken, "SentencePiece training");
  // A user symbol is text, so one character is fine; two of them must not be the same string.
  for (const std::string& symbol : options.user_symbols) {
    if (symbol.empty() || find_invalid_utf8(symbol) != std::string::npos || symbol.find('\0') != std::string::npos ||
        symbol.find_first_of(" \t\n\r") != std::string::npos || symbol.find(blank_mark) != std::string::npos)
      refuse(join("the user symbol \"", replace_invalid_utf8(symbol), "\" is empty, holds a blank, or is not UTF-8"),
             "use text without blanks");
    if (std::find(taken.begin(), taken.end(), symbol) != taken.end() ||
        std::find(symbols.begin(), symbols.end(), symbol) != symbols.end())
      refuse(join("the user symbol \"", symbol, "\" is there twice"), "name every symbol once");
    symbols.push_back(symbol);
  }
}

// Nothing but white space and the mark that the library takes for a blank: lines of which nothing is worth keeping.
bool is_nothing(std::string_view text) {
  for (std::size_t mark = text.find(blank_mark); mark != std::string_view::npos; mark = text.find(blank_mark)) {
    if (!is_blank(text.substr(0, mark))) return false;
    text.remove_prefix(mark + blank_mark.size());
  }
  return is_blank(text);
}

// The lines as the library shall see them: normalised, not empty, not too long; at most `most_lines`, each with the same
// chance (Vitter 1985, algorithm R), in the order of the corpus.
std::vector<std::string> training_lines(const SentencePieceOptions& options, const LineSource& source) {
  // The library marks unknown characters with U+2585 and leaves out every line that holds it.
  static constexpr std::string_view reserved = "\xE2\x96\x85";
  std::vector<std::pair<std::int64_t, std::string>> kept;
  Random random(options.seed);
  std::int64_t seen = 0;
  source([&](std::string_view line) {
    if (static_cast<std::int64_t>(line.size()) > options.longest_line ||
        line.find(reserved) != std::string_view::npos || line.find('\0') != std::string_view::npos)
      return;
    std::string text = normalise(line, options.normalisation);
    if (static_cast<std::int64_t>(text.size()) > options.longest_line || text.find(reserved) != std::string::npos)
      return;
    if (is_nothing(text)) return;
    const std::int64_t index = seen++;
    if (options.most_lines == 0 || index < options.most_lines) {
      kept.emplace_back(index, std::move(text));
    } else {
      const std::uint64_t place = random.below(static_cast<std::uint64_t>(index) + 1);
      if (place < static_cast<std::uint64_t>(options.most_lines))
        kept[static_cast<std::size_t>(place)] = {index, std::move(text)};
    }
  });
  std::sort(kept.begin(), kept.end(), [](const auto& a, const auto& b) { return a.first < b.first; });
  std::vector<std::string> lines;
  lines.reserve(kept.size());
  for (auto& entry : kept) lines.push_back(std::move(entry.second));
  if (lines.empty())
    throw Error(ErrorKind::text, "SentencePiece training", "the corpus holds no line that can be trained on",
                join("give lines that are not blank and have at most ", options.longest_line, " bytes"));
  return lines;
}

// The last number in the library's message, which tells the size that is possible.
std::string last_number(const std::string& message) {
  std::size_t end = message.size();
  while (end > 0 && std::isdigit(static_cast<unsigned char>(message[end - 1])) == 0) --end;
  std::size_t begin = end;
  while (begin > 0 && std::isdigit(static_cast<unsigned char>(message[begin - 1])) != 0) --begin;
  return message.substr(begin, end - begin);
}

[[noreturn]] void refuse_size(const SentencePieceOptions& options, const std::string& message) {
  const std::string where = "SentencePiece training";
  const std::size_t high = message.find("Vocabulary size too high");
  if (high != std::string::npos)
    throw Error(ErrorKind::text, where,
                join("a vocabulary of ", options.vocabulary_size,
                     " tokens is larger than the corpus allows; the largest "
                     "possible is ",
                     last_number(message)),
                join("set the vocabulary size to ", last_number(message), " or less, or train on more text"));
  const std::size_t small = message.find("Vocabulary size is smaller than required_chars");
  if (small != std::string::npos) {
    // "... required_chars. 20 vs 47. Increase ..."
    const std::size_t versus = message.find(" vs ", small);
    std::string needed = versus == std::string::npos ? "" : message.substr(versus + 4);
    needed = needed.substr(0, needed.find_first_not_of("0123456789"));
    throw Error(ErrorKind::text, where,
                join("a vocabulary of ", options.vocabulary_size,
                     " tokens is too small: the special tokens and the "
                     "characters of the corpus alone are ",
                     needed),
                join("set the vocabulary size to at least ", needed, ", or lower the character coverage"));
  }
  throw Error(ErrorKind::text, where, join("SentencePiece could not train: ", message),
              "change the vocabulary size or the corpus");
}

}  // namespace

std::shared_ptr<const Tokenizer> sentencepiece_tokenizer(std::string model, Normalisation normalisation,
                                                         const std::string& where) {
  return std::make_shared<SentencePieceTokenizer>(std::move(model), normalisation, where);
}

std::shared_ptr<const Tokenizer> train_sentencepiece(const SentencePieceOptions& options, const LineSource& lines) {
  check(options);
  const std::int64_t fixed = 4 +
                             static_cast<std::int64_t>(options.control_symbols.size() + options.user_symbols.size()) +
                             (options.byte_fallback ? 256 : 0);
  // The library ends the process when there is no room beside the tokens that are given.
  if (options.vocabulary_size <= fixed)
    throw Error(
        ErrorKind::text, "SentencePiece training",
        join("a vocabulary of ", options.vocabulary_size, " tokens is too small: the special tokens alone are ", fixed),
        join("set the vocabulary size to more than ", fixed));
  const std::vector<std::string> kept = training_lines(options, lines);

  std::ostringstream coverage;
  coverage.precision(9);
  coverage << options.character_coverage;
  std::unordered_map<std::string, std::string> arguments = {
      {"model_type", options.model_type},
      {"vocab_size", join(options.vocabulary_size)},
      {"character_coverage", coverage.str()},
      {"byte_fallback", options.byte_fallback ? "true" : "false"},
      {"split_digits", options.split_digits ? "true" : "false"},
      {"normalization_rule_name", "identity"},
      {"remove_extra_whitespaces", options.collapse_blanks ? "true" : "false"},
      {"max_sentence_length", join(options.longest_line)},
      {"shuffle_input_sentence", "false"},
      {"num_threads", "1"},  // its sums of floats depend on the number of threads
      {"pad_id", "0"},
      {"unk_id", "1"},
      {"bos_id", "2"},
      {"eos_id", "3"},
      {"minloglevel", "3"},
  };
  if (!options.control_symbols.empty()) arguments["control_symbols"] = quoted_list(options.control_symbols);
  if (!options.user_symbols.empty()) arguments["user_defined_symbols"] = quoted_list(options.user_symbols);

  std::string model;
  {
    static std::mutex one_at_a_time;  // the library keeps global state while it trains
    const std::lock_guard lock(one_at_a_time);
    Sentences sentences(kept);
    const auto status = sentencepiece::SentencePieceTrainer::Train(arguments, &sentences, &model);
    if (!status.ok()) refuse_size(options, status.message());
  }
  return sentencepiece_tokenizer(std::move(model), options.normalisation, "trained SentencePiece model");
}

std::shared_ptr<const Tokenizer> train_sentencepiece(const SentencePieceOptions& options,
                                                     std::span<const std::string> lines) {
  return train_sentencepiece(options, [lines](const std::function<void(std::string_view)>& take) {
    for (const std::string& line : lines) take(line);
  });
}

}  // namespace attend
