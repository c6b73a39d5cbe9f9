// Random texts, bytes and ids: what must hold for all of them.
#include <gtest/gtest.h>

#include "attend/corpus.h"
#include "attend/tokenizer.h"
#include "core/random.h"
#include "unit/text_files.h"

namespace attend {
namespace {

using Ids = std::vector<std::int32_t>;

std::string random_text(Random& random, std::uint64_t longest) {
  static constexpr char32_t starts[] = {0x20,   0x61,   0x30,   0xE0,   0x300,   0x3B1,
                                        0x4E00, 0x3040, 0xAC00, 0xFF00, 0x1F600, 0x20000};
  std::string text;
  for (std::uint64_t n = random.below(longest + 1); n > 0; --n) {
    if (random.below(4) == 0) {
      text += random.below(3) == 0 ? "\xE7\x9A\x84" : " the";
    } else {
      append_character(text, starts[random.below(std::size(starts))] + static_cast<char32_t>(random.below(60)));
    }
  }
  return text;
}

std::string random_bytes(Random& random, std::uint64_t longest) {
  std::string bytes;
  for (std::uint64_t n = random.below(longest + 1); n > 0; --n) {
    // Bytes that make and break characters, more often than chance would.
    static constexpr unsigned char often[] = {0x61, 0x80, 0xBF, 0xC2, 0xE0, 0xA0, 0xED,
                                              0x9F, 0xF0, 0x90, 0xF4, 0x8F, 0xE4, 0xBD};
    bytes += static_cast<char>(random.below(4) == 0 ? random.below(256) : often[random.below(std::size(often))]);
  }
  return bytes;
}

std::vector<std::string> corpus(Random& random) {
  std::vector<std::string> lines;
  for (int i = 0; i < 200; ++i) lines.push_back(random_text(random, 60) + "x");
  return lines;
}

// One tokenizer of each kind that loses nothing.
std::vector<std::shared_ptr<const Tokenizer>> lossless() {
  Random random(1);
  SentencePieceOptions options;
  options.byte_fallback = true;
  options.collapse_blanks = false;
  options.vocabulary_size = 1020;
  options.control_symbols = {"<2en>"};
  std::vector<std::shared_ptr<const Tokenizer>> all{byte_tokenizer(Normalisation::none, {"<2en>"}),
                                                    byte_tokenizer(Normalisation::nfkc)};
  for (const char* type : {"unigram", "bpe"}) {
    options.model_type = type;
    options.normalisation = type[0] == 'u' ? Normalisation::none : Normalisation::nfc;
    all.push_back(train_sentencepiece(options, corpus(random)));
  }
  all.push_back(load_tokenizer(std::string(ATTEND_SOURCE_DIR) + "/tests/golden/stories260K/tok512.bin"));
  return all;
}

TEST(RoundTrip, EncodeDecodeSpansAndStream) {
  Random random(2);
  for (const auto& t : lossless()) {
    for (int round = 0; round < 300; ++round) {
      const std::string text = random_text(random, 40), normal = normalise(text, t->normalisation());
      const Ids ids = t->encode(text);
      ASSERT_EQ(t->decode(ids), normal) << name_of(t->kind());
      const auto spans = t->encode_spans(text);
      ASSERT_EQ(spans.size(), ids.size());
      std::int64_t at = 0;
      for (std::size_t i = 0; i < spans.size(); ++i) {
        ASSERT_EQ(spans[i].id, ids[i]);
        ASSERT_EQ(spans[i].begin, at);  // no gap, no overlap
        ASSERT_FALSE(t->is_control(ids[i]));
        at = spans[i].end;
      }
      ASSERT_EQ(at, static_cast<std::int64_t>(normal.size()));
    }
  }
}

TEST(RoundTrip, StreamsEqualWholeDecodingForAnyIds) {
  Random random(3);
  auto all = lossless();
  Random source(9);
  SentencePieceOptions collapsing;
  collapsing.vocabulary_size = 760;
  all.push_back(train_sentencepiece(collapsing, corpus(source)));
  CharacterOptions characters;
  all.push_back(train_character(characters, "abc \xE4\xBD\xA0"));
  for (const auto& t : all) {
    for (int round = 0; round < 500; ++round) {
      Ids ids;
      for (std::uint64_t n = random.below(20); n > 0; --n)
        ids.push_back(
            static_cast<std::int32_t>(random.below(random.below(2) == 0 ? 264 : static_cast<std::uint64_t>(t->size())) %
                                      static_cast<std::uint64_t>(t->size())));
      StreamDecoder stream(*t);
      std::string text;
      for (const std::int32_t id : ids) {
        const std::string part = stream.push(id);
        ASSERT_EQ(find_invalid_utf8(part), std::string::npos);
        text += part;
      }
      text += stream.finish();
      ASSERT_EQ(text, t->decode(ids)) << name_of(t->kind());
    }
  }
}

// A reference that reads UTF-8 from its definition: a character is valid if writing it again gives the same bytes.
std::size_t first_invalid(std::string_view bytes) {
  std::size_t at = 0;
  while (at < bytes.size()) {
    const auto lead = static_cast<unsigned char>(bytes[at]);
    const std::size_t length = lead < 0x80   ? 1
                               : lead < 0xC0 ? 0
                               : lead < 0xE0 ? 2
                               : lead < 0xF0 ? 3
                               : lead < 0xF8 ? 4
                                             : 0;
    if (length == 0 || at + length > bytes.size()) return at;
    char32_t value = length == 1 ? lead : lead & (0x7F >> length);
    for (std::size_t i = 1; i < length; ++i) {
      const auto byte = static_cast<unsigned char>(bytes[at + i]);
      if ((byte & 0xC0) != 0x80) return at;
      value = value << 6 | (byte & 0x3F);
    }
    if (text_of({value}) != bytes.substr(at, length)) return at;
    at += length;
  }
  return std::string_view::npos;
}

TEST(Utf8Property, ValidityAndReplacement) {
  Random random(4);
  for (int round = 0; round < 20000; ++round) {
    const std::string bytes = random_bytes(random, 12);
    ASSERT_EQ(find_invalid_utf8(bytes), first_invalid(bytes));
    std::int64_t count = 0;
    const std::string text = replace_invalid_utf8(bytes, &count);
    ASSERT_EQ(first_invalid(text), std::string_view::npos);
    ASSERT_EQ(count == 0, text == bytes);
    ASSERT_EQ(replace_invalid_utf8(text), text);
  }
}

TEST(CorpusProperty, PackedOrPlainInPiecesOrWhole) {
  const TextFiles files;
  Random random(6);
  for (int round = 0; round < 60; ++round) {
    std::vector<std::string> expected;
    std::string bytes;
    std::int64_t crlf = 0;
    for (std::uint64_t n = 1 + random.below(300); n > 0; --n) {
      std::string line = random_text(random, 200);
      while (line.find('\n') != std::string::npos) line.erase(line.find('\n'), 1);
      expected.push_back(line);
      bytes += line;
      if (random.below(3) == 0) bytes += '\r', ++crlf;
      bytes += '\n';
    }
    std::string packed = bytes;
    const std::size_t cut = static_cast<std::size_t>(random.below(bytes.size()));
    switch (random.below(4)) {
      case 1:
        packed = gzipped(bytes);
        break;
      case 2:
        packed = xz_packed(bytes);
        break;
      case 3:
        packed = gzipped(bytes.substr(0, cut)) + gzipped(bytes.substr(cut));
        break;
      default:
        break;
    }
    const Lines lines = read_lines(files.put("lines", packed));
    ASSERT_EQ(lines.lines, expected);
    ASSERT_EQ(lines.report.crlf, crlf);
    ASSERT_EQ(lines.report.bytes, static_cast<std::int64_t>(bytes.size()));
  }
}

TEST(CorpusProperty, AnyBytesGiveLinesOrATypedError) {
  const TextFiles files;
  Random random(7);
  for (int round = 0; round < 300; ++round) {
    std::string bytes = random_bytes(random, 200);
    for (char& c : bytes)
      if (random.below(10) == 0) c = "\n\t\r"[random.below(3)];
    const auto path = files.put("bytes", bytes);
    ReadOptions options;
    options.replace_invalid = random.below(2) == 0;
    options.skip_empty = random.below(2) == 0;
    try {
      const Lines lines = read_lines(path, options);
      for (const std::string& line : lines.lines) ASSERT_EQ(find_invalid_utf8(line), std::string::npos);
    } catch (const Error& error) {
      ASSERT_EQ(error.kind(), ErrorKind::text);
      ASSERT_FALSE(options.replace_invalid && !options.skip_empty && !bytes.empty());
    }
  }
}

}  // namespace
}  // namespace attend
