#include <nlohmann/json.hpp>

#include "attend/error.h"
#include "attend/tokenizer.h"
#include "text/kinds.h"

namespace attend {
namespace {

class ByteTokenizer final : public Tokenizer {
 public:
  ByteTokenizer(Normalisation normalisation, std::vector<std::string> symbols)
      : Tokenizer(TokenizerKind::byte, normalisation), symbols_(std::move(symbols)) {
    std::vector<std::string> pieces, surfaces;
    std::vector<PieceType> types(256, PieceType::byte);
    for (int byte = 0; byte < 256; ++byte) {
      pieces.push_back(byte_piece(static_cast<unsigned char>(byte)));
      surfaces.emplace_back(1, static_cast<char>(byte));
    }
    for (const char* special : {"<pad>", "<s>", "</s>"}) pieces.emplace_back(special);
    check_symbols(symbols_, pieces, "byte tokenizer");
    pieces.insert(pieces.end(), symbols_.begin(), symbols_.end());
    surfaces.resize(pieces.size());
    types.resize(pieces.size(), PieceType::control);
    set_vocabulary(std::move(pieces), std::move(surfaces), std::move(types), {256, -1, 257, 258}, FirstBlank::keep);
  }

 private:
  std::vector<TokenSpan> cut(const std::string& normalised) const override {
    std::vector<TokenSpan> spans;
    spans.reserve(normalised.size());
    for (const char c : normalised) {
      const auto at = static_cast<std::int64_t>(spans.size());
      spans.push_back({static_cast<unsigned char>(c), at, at + 1});
    }
    return spans;
  }
  std::string details() const override { return nlohmann::json{{"control_symbols", symbols_}}.dump(); }

  std::vector<std::string> symbols_;
};

}  // namespace

std::shared_ptr<const Tokenizer> byte_tokenizer(Normalisation normalisation, std::vector<std::string> control_symbols) {
  return std::make_shared<ByteTokenizer>(normalisation, std::move(control_symbols));
}

}  // namespace attend
