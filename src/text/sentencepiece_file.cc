#include "text/sentencepiece_file.h"

#include <bit>
#include <cmath>
#include <cstdint>

#include "attend/error.h"
#include "attend/unicode.h"

namespace attend {
namespace {

constexpr std::int64_t most_pieces = 4000000;
constexpr std::size_t longest_piece = 65536;
constexpr std::size_t most_self_test_bytes = 1 << 20;

[[noreturn]] void refuse(const std::string& where, const std::string& what) {
  throw Error(ErrorKind::format, where, what, "give a .model file that SentencePiece wrote");
}

struct Field {
  std::uint32_t number = 0;
  int type = 0;  // protobuf wire type: 0 varint, 1 eight bytes, 2 bytes, 5 four bytes
  std::uint64_t value = 0;
  std::string_view bytes;
};

// The fields of one protobuf message, one after the other.
class Message {
 public:
  Message(std::string_view bytes, const std::string& where) : bytes_(bytes), where_(where) {}

  bool next(Field& field) {
    if (position_ == bytes_.size()) return false;
    const std::uint64_t tag = varint();
    field = Field{};
    if (tag >> 32 != 0 || tag >> 3 == 0) refuse(where_, "is not a SentencePiece model: a field has no number");
    field.number = static_cast<std::uint32_t>(tag >> 3);
    field.type = static_cast<int>(tag & 7);
    switch (field.type) {
      case 0:
        field.value = varint();
        break;
      case 1:
        field.value = fixed(8);
        break;
      case 2:
        field.bytes = take(varint());
        break;
      case 5:
        field.value = fixed(4);
        break;
      default:
        refuse(where_, join("is not a SentencePiece model: a field has the wire type ", field.type));
    }
    return true;
  }

 private:
  std::string_view take(std::uint64_t size) {
    if (size > bytes_.size() - position_) refuse(where_, "is cut short, or is not a SentencePiece model");
    const std::string_view part = bytes_.substr(position_, static_cast<std::size_t>(size));
    position_ += static_cast<std::size_t>(size);
    return part;
  }
  std::uint64_t varint() {
    std::uint64_t value = 0;
    for (int shift = 0; shift < 70; shift += 7) {
      const auto byte = static_cast<unsigned char>(take(1)[0]);
      value |= static_cast<std::uint64_t>(byte & 0x7F) << (shift < 64 ? shift : 63);
      if (byte < 0x80) return value;
    }
    refuse(where_, "is not a SentencePiece model: a number has more than ten bytes");
  }
  std::uint64_t fixed(int size) {
    const std::string_view part = take(static_cast<std::uint64_t>(size));
    std::uint64_t value = 0;
    for (int i = 0; i < size; ++i)
      value |= static_cast<std::uint64_t>(static_cast<unsigned char>(part[static_cast<std::size_t>(i)])) << (8 * i);
    return value;
  }

  std::string_view bytes_;
  const std::string& where_;
  std::size_t position_ = 0;
};

// The normaliser's table: its size, a double array (Aoe 1989, as darts-clone stores it), then texts that end with NUL.
// Every step that a search can take must stay inside the array, and every value inside the texts.
void check_character_map(std::string_view map, const std::string& where) {
  if (map.empty()) return;
  const auto word = [&](std::size_t at) {
    std::uint32_t value = 0;
    for (std::size_t i = 0; i < 4; ++i)
      value |= static_cast<std::uint32_t>(static_cast<unsigned char>(map[at + i])) << (8 * i);
    return value;
  };
  if (map.size() < 4) refuse(where, "the normaliser's table is cut short");
  const std::size_t size = word(0);
  if (size > map.size() - 4 || size % 1024 != 0 || size == 0)
    refuse(where, join("the normaliser's table says its array has ", size, " bytes"));
  const std::string_view texts = map.substr(4 + size);
  if (texts.empty() || texts.back() != '\0') refuse(where, "the normaliser's texts do not end with NUL");
  const std::size_t units = size / 4;
  for (std::size_t i = 0; i < units; ++i) {
    const std::uint32_t unit = word(4 + 4 * i);
    if (unit >> 31 != 0) continue;  // a value; a search never steps on from it, because no byte has its label
    const std::size_t offset = static_cast<std::size_t>(unit >> 10) << ((unit & 0x200) >> 6);
    const std::size_t base = i ^ offset;
    if ((base | 0xFF) >= units) refuse(where, join("the normaliser's table leaves its array at entry ", i));
    if ((unit & 0x100) != 0) {
      const std::uint32_t value = word(4 + 4 * base) & 0x7FFFFFFF;
      if (value >= texts.size()) refuse(where, join("the normaliser's table leaves its texts at entry ", i));
    }
  }
  if (word(4) >> 31 != 0) refuse(where, "the normaliser's table has no root");
  if (find_invalid_utf8(texts) != std::string_view::npos) refuse(where, "the normaliser's texts are not UTF-8");
}

void check_text(std::string_view text, const char* what, const std::string& where) {
  if (find_invalid_utf8(text) != std::string_view::npos) refuse(where, join(what, " is not UTF-8"));
  if (text.find('\0') != std::string_view::npos) refuse(where, join(what, " holds a NUL"));
}

void check_piece(std::string_view bytes, std::int64_t index, const std::string& where) {
  Message message(bytes, where);
  bool named = false;
  for (Field field; message.next(field);) {
    if (field.number == 1 && field.type == 2) {
      check_text(field.bytes, join("piece ", index).c_str(), where);
      if (field.bytes.empty() || field.bytes.size() > longest_piece)
        refuse(where, join("piece ", index, " has ", field.bytes.size(), " bytes"));
      named = true;
    } else if (field.number == 2 && field.type == 5) {
      const float score = std::bit_cast<float>(static_cast<std::uint32_t>(field.value));
      if (!std::isfinite(score) || std::abs(score) > 1e9f)
        refuse(where, join("piece ", index, " has an impossible score"));
    }
  }
  if (!named) refuse(where, join("piece ", index, " has no text"));
}

}  // namespace

SentencePieceFile read_sentencepiece_file(std::string_view bytes, const std::string& where) {
  if (bytes.empty()) refuse(where, "is empty");
  SentencePieceFile file;
  Message model(bytes, where);
  for (Field field; model.next(field);) {
    if (field.type != 2) continue;
    if (field.number == 1) {
      if (file.pieces == most_pieces) refuse(where, join("has more than ", most_pieces, " pieces"));
      check_piece(field.bytes, file.pieces++, where);
    } else if (field.number == 2) {  // trainer_spec
      Message trainer(field.bytes, where);
      for (Field option; trainer.next(option);) {
        if (option.number >= 44 && option.number <= 48 && option.type == 2)
          check_text(option.bytes, "a special token", where);
        if (option.number == 44 && option.type == 2) file.unknown_surface = std::string(option.bytes);
      }
    } else if (field.number == 3 || field.number == 5) {  // normalizer_spec, denormalizer_spec
      Message normaliser(field.bytes, where);
      for (Field option; normaliser.next(option);) {
        if (option.number == 2 && option.type == 2) {
          if (field.number == 5 && !option.bytes.empty())
            refuse(where, "has a table for denormalisation, which this program does not do");
          check_character_map(option.bytes, where);
        }
        if (field.number != 3 || option.type != 0) continue;
        if (option.number == 3) file.add_dummy_prefix = option.value != 0;
        if (option.number == 4) file.remove_extra_whitespaces = option.value != 0;
        if (option.number == 5 && option.value == 0) refuse(where, "does not escape blanks, which this program needs");
      }
    } else if (field.number == 4 && field.bytes.size() > most_self_test_bytes) {
      refuse(where, join("has ", field.bytes.size(), " bytes of self tests"));
    }
  }
  if (file.pieces == 0) refuse(where, "has no pieces, or is not a SentencePiece model");
  return file;
}

}  // namespace attend
