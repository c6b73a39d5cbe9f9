#include <bit>
#include <cmath>
#include <nlohmann/json.hpp>
#include <queue>

#include "attend/error.h"
#include "attend/tokenizer.h"
#include "text/kinds.h"
#include "text/utf8.h"

namespace attend {
namespace {

constexpr std::int32_t first_byte_id = 3;  // after <unk>, <s>, </s>
constexpr std::int32_t longest_piece = 4096;

class Llama2cTokenizer final : public Tokenizer {
 public:
  Llama2cTokenizer(std::string_view bytes, int size, const std::string& where)
      : Tokenizer(TokenizerKind::llama2c, Normalisation::none), bytes_(bytes), where_(where) {
    std::vector<std::string> pieces = read(size);
    if (pieces.size() < first_byte_id + 256)
      refuse(join("holds ", pieces.size(), " tokens; the specials and the 256 bytes alone are ", first_byte_id + 256));
    std::vector<std::string> surfaces = pieces;
    std::vector<PieceType> types(pieces.size(), PieceType::text);
    types[0] = PieceType::unknown;
    types[1] = types[2] = PieceType::control;
    surfaces[1].clear();
    surfaces[2].clear();
    for (int byte = 0; byte < 256; ++byte) {
      const auto at = static_cast<std::size_t>(first_byte_id + byte);
      if (byte_of_piece(pieces[at]) != byte)
        refuse(join("token ", at, " is \"", replace_invalid_utf8(pieces[at]), "\" instead of ",
                    byte_piece(static_cast<unsigned char>(byte))));
      types[at] = PieceType::byte;
      surfaces[at] = std::string(1, static_cast<char>(byte));
    }
    set_vocabulary(std::move(pieces), std::move(surfaces), std::move(types), {-1, 0, 1, 2}, FirstBlank::drop_one);
    if (id(" ") < 0) refuse("has no token for the blank");
  }

 private:
  [[noreturn]] void refuse(const std::string& what) const {
    throw Error(ErrorKind::format, where_, what, "give the tokenizer.bin that was exported with the model");
  }

  std::uint32_t number(std::size_t& position) const {
    if (bytes_.size() - position < 4)
      refuse(join("ends at byte ", bytes_.size(), " in the middle of token ", scores_.size()));
    std::uint32_t value = 0;
    for (int i = 0; i < 4; ++i)
      value |= static_cast<std::uint32_t>(static_cast<unsigned char>(bytes_[position++])) << (8 * i);
    return value;
  }

  std::vector<std::string> read(int size) {
    std::vector<std::string> pieces;
    std::size_t position = 0;
    if (bytes_.size() < 4) refuse(join("holds ", bytes_.size(), " bytes, too few for a tokenizer"));
    const auto longest = static_cast<std::int32_t>(number(position));
    if (longest < 1 || longest > longest_piece) refuse(join("says its longest token has ", longest, " bytes"));
    while (size > 0 ? pieces.size() < static_cast<std::size_t>(size) : position < bytes_.size()) {
      const float score = std::bit_cast<float>(number(position));
      const auto length = static_cast<std::int32_t>(number(position));
      if (!std::isfinite(score)) refuse(join("token ", pieces.size(), " has a score that is not a number"));
      if (length < 1 || length > longest_piece) refuse(join("token ", pieces.size(), " has ", length, " bytes"));
      if (bytes_.size() - position < static_cast<std::size_t>(length))
        refuse(join("ends at byte ", bytes_.size(), " in the middle of token ", pieces.size()));
      pieces.push_back(bytes_.substr(position, static_cast<std::size_t>(length)));
      position += static_cast<std::size_t>(length);
      scores_.push_back(score);
    }
    if (position < bytes_.size())
      refuse(join("holds ", bytes_.size() - position, " bytes after token ", pieces.size() - 1));
    return pieces;
  }

  // Text never becomes a special token or a byte's name, however it is spelt.
  std::int32_t text_id(std::string_view piece) const {
    const std::int32_t token = id(piece);
    return token >= 0 && type(token) == PieceType::text ? token : -1;
  }

  // The merge that llama2.c's loop would make: the best score, the leftmost among equals.
  struct Merge {
    float score;
    std::int32_t left, right, id;      // positions of the two symbols; the token they become
    std::int64_t left_end, right_end;  // as they were, to tell outdated entries
    bool operator<(const Merge& other) const { return score != other.score ? score < other.score : left > other.left; }
  };

  std::vector<TokenSpan> cut(const std::string& normalised) const override {
    if (normalised.empty()) return {};
    struct Symbol {
      TokenSpan token;
      std::int32_t previous, next;  // -1 at the ends
      bool alive = true;
    };
    std::vector<Symbol> symbols;
    const auto push = [&](std::int32_t token, std::size_t begin, std::size_t end) {
      const auto at = static_cast<std::int32_t>(symbols.size());
      symbols.push_back({{token, static_cast<std::int64_t>(begin), static_cast<std::int64_t>(end)}, at - 1, at + 1});
    };
    push(id(" "), 0, 0);
    std::size_t position = 0;
    while (position < normalised.size()) {
      const std::size_t length = utf8_step(normalised, position).length;
      const std::int32_t token = text_id(std::string_view(normalised).substr(position, length));
      if (token >= 0) {
        push(token, position, position + length);
      } else {
        for (std::size_t i = 0; i < length; ++i)
          push(first_byte_id + static_cast<unsigned char>(normalised[position + i]), position + i, position + i + 1);
      }
      position += length;
    }
    symbols.back().next = -1;

    std::priority_queue<Merge> merges;
    std::string both;
    const auto consider = [&](std::int32_t left) {
      if (left < 0) return;
      const Symbol& a = symbols[static_cast<std::size_t>(left)];
      if (a.next < 0) return;
      const Symbol& b = symbols[static_cast<std::size_t>(a.next)];
      both = pieces()[static_cast<std::size_t>(a.token.id)];
      both += pieces()[static_cast<std::size_t>(b.token.id)];
      const std::int32_t token = text_id(both);
      if (token >= 0 && scores_[static_cast<std::size_t>(token)] > -1e10f)
        merges.push({scores_[static_cast<std::size_t>(token)], left, a.next, token, a.token.end, b.token.end});
    };
    for (std::size_t i = 0; i + 1 < symbols.size(); ++i) consider(static_cast<std::int32_t>(i));
    while (!merges.empty()) {
      const Merge merge = merges.top();
      merges.pop();
      Symbol& left = symbols[static_cast<std::size_t>(merge.left)];
      Symbol& right = symbols[static_cast<std::size_t>(merge.right)];
      if (!left.alive || !right.alive || left.next != merge.right || left.token.end != merge.left_end ||
          right.token.end != merge.right_end)
        continue;
      left.token.id = merge.id;
      left.token.end = right.token.end;
      right.alive = false;
      left.next = right.next;
      if (right.next >= 0) symbols[static_cast<std::size_t>(right.next)].previous = merge.left;
      consider(left.previous);
      consider(merge.left);
    }
    std::vector<TokenSpan> spans;
    for (const Symbol& symbol : symbols)
      if (symbol.alive) spans.push_back(symbol.token);
    return spans;
  }

  std::string details() const override { return "{}"; }
  std::string_view model_bytes() const override { return bytes_; }

  std::string bytes_;
  std::string where_;
  std::vector<float> scores_;
};

}  // namespace

std::shared_ptr<const Tokenizer> llama2c_tokenizer(std::string_view bytes, int size, const std::string& where) {
  if (size < 0) throw Error(ErrorKind::argument, where, join("a vocabulary of ", size, " tokens is not possible"));
  return std::make_shared<Llama2cTokenizer>(bytes, size, where);
}

}  // namespace attend
