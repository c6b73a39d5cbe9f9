#include <gtest/gtest.h>

#include <bit>

#include "attend/tokenizer.h"
#include "unit/text_files.h"

namespace attend {
namespace {

using Ids = std::vector<std::int32_t>;

// Everything that a user of the tokenizer can see.
void expect_same(const Tokenizer& a, const Tokenizer& b, std::initializer_list<const char*> texts) {
  EXPECT_EQ(a.kind(), b.kind());
  EXPECT_EQ(a.normalisation(), b.normalisation());
  EXPECT_EQ(a.pieces(), b.pieces());
  EXPECT_EQ(a.fingerprint(), b.fingerprint());
  EXPECT_EQ(a.specials().pad, b.specials().pad);
  EXPECT_EQ(a.specials().unknown, b.specials().unknown);
  EXPECT_EQ(a.specials().bos, b.specials().bos);
  EXPECT_EQ(a.specials().eos, b.specials().eos);
  for (int id = 0; id < a.size(); ++id) {
    ASSERT_EQ(a.is_control(id), b.is_control(id));
    ASSERT_EQ(a.readable(id), b.readable(id));
  }
  for (const char* text : texts) {
    EXPECT_EQ(a.encode(text), b.encode(text));
    EXPECT_EQ(a.decode(a.encode(text)), b.decode(a.encode(text)));
  }
}

std::string llama2c_entry(float score, const std::string& piece) {
  std::string bytes;
  const auto put = [&](std::uint32_t value) {
    for (int i = 0; i < 4; ++i) bytes.push_back(static_cast<char>(value >> (8 * i)));
  };
  put(std::bit_cast<std::uint32_t>(score));
  put(static_cast<std::uint32_t>(piece.size()));
  return bytes + piece;
}

std::string llama2c_bytes(const std::vector<std::pair<float, std::string>>& more) {
  std::string bytes("\x10\0\0\0", 4);
  for (const char* piece : {"<unk>", "\n<s>\n", "\n</s>\n"}) bytes += llama2c_entry(0, piece);
  static const char digits[] = "0123456789ABCDEF";
  for (int byte = 0; byte < 256; ++byte)
    bytes += llama2c_entry(0, std::string("<0x") + digits[byte / 16] + digits[byte % 16] + ">");
  for (const auto& [score, piece] : more) bytes += llama2c_entry(score, piece);
  return bytes;
}

TEST(ByteTokenizer, EncodesEveryByte) {
  const auto t = byte_tokenizer(Normalisation::none, {"<2en>", "<2zh>"});
  EXPECT_EQ(t->size(), 261);
  EXPECT_EQ(t->encode("A\xE4\xBD\xA0"), (Ids{0x41, 0xE4, 0xBD, 0xA0}));
  EXPECT_EQ(t->decode(t->encode("A\xE4\xBD\xA0")), "A\xE4\xBD\xA0");
  EXPECT_TRUE(t->encode("").empty());
  EXPECT_EQ(t->specials().pad, 256);
  EXPECT_EQ(t->specials().unknown, -1);
  EXPECT_EQ(t->specials().bos, 257);
  EXPECT_EQ(t->specials().eos, 258);
  EXPECT_EQ(t->id("<2zh>"), 260);
  EXPECT_EQ(t->id("<2fr>"), -1);
  EXPECT_TRUE(t->is_control(260));
  EXPECT_FALSE(t->is_control(65));
  EXPECT_EQ(t->decode(Ids{257, 65, 259, 66, 258}), "AB");
  EXPECT_EQ(t->decode(Ids{0xE4, 0xBD, 65}),
            "\xEF\xBF\xBD"
            "A");
  EXPECT_EQ(t->readable(0xE4), "<0xE4>");
  EXPECT_EQ(t->readable('\n'), "\\n");
  EXPECT_EQ(t->readable('a'), "a");
  EXPECT_EQ(t->readable(1), "<0x01>");
  EXPECT_EQ(t->readable(258), "</s>");
  EXPECT_EQ(t->encode("</s>").size(), 4u);  // text, not the token
}

TEST(ByteTokenizer, RefusesBadSymbolsIdsAndText) {
  expect_error(ErrorKind::argument, {"twice"}, [] { byte_tokenizer(Normalisation::none, {"<2en>", "<2en>"}); });
  expect_error(ErrorKind::argument, {"<s>", "twice"}, [] { byte_tokenizer(Normalisation::none, {"<s>"}); });
  expect_error(ErrorKind::argument, {"fewer than two"}, [] { byte_tokenizer(Normalisation::none, {"x"}); });
  expect_error(ErrorKind::argument, {"fewer than two"}, [] { byte_tokenizer(Normalisation::none, {""}); });
  expect_error(ErrorKind::argument, {"blank"}, [] { byte_tokenizer(Normalisation::none, {"to en"}); });
  expect_error(ErrorKind::argument, {"UTF-8"}, [] { byte_tokenizer(Normalisation::none, {"a\xFF"}); });
  const auto t = byte_tokenizer();
  expect_error(ErrorKind::argument, {"259", "vocabulary of 259"}, [&] { t->decode(Ids{259}); });
  expect_error(ErrorKind::argument, {"-1"}, [&] { t->piece(-1); });
  expect_error(ErrorKind::argument, {"1000"}, [&] { t->readable(1000); });
  expect_error(ErrorKind::text, {"byte 2"}, [&] { t->encode("a\xFF"); });
}

TEST(CharacterTokenizer, NumbersTheCharactersOfTheCorpus) {
  CharacterOptions options;
  options.control_symbols = {"<cls>"};
  const auto t = train_character(options,
                                 "b\xE4\xBD\xA0"
                                 "a\n");
  EXPECT_EQ(t->pieces(),
            (std::vector<std::string>{"<pad>", "<unk>", "<s>", "</s>", "<cls>", "\n", "a", "b", "\xE4\xBD\xA0"}));
  EXPECT_EQ(t->encode("ab\xE4\xBD\xA0\n"), (Ids{6, 7, 8, 5}));
  EXPECT_EQ(t->encode("axb"), (Ids{6, 1, 7}));
  EXPECT_EQ(t->decode(Ids{2, 6, 1, 4, 7, 3}),
            "a\xEF\xBF\xBD"
            "b");
  const auto spans = t->encode_spans("a\xE4\xBD\xA0");
  ASSERT_EQ(spans.size(), 2u);
  EXPECT_EQ(spans[1].begin, 1);
  EXPECT_EQ(spans[1].end, 4);
  options.refuse_unknown = true;
  expect_error(ErrorKind::text, {"\"x\"", "U+0078", "byte 2"}, [&] { train_character(options, "ab")->encode("axb"); });
  expect_error(ErrorKind::text, {"U+1F600"}, [&] { train_character(options, "ab")->encode("\xF0\x9F\x98\x80"); });
}

// As nanoGPT does it for Shakespeare: the characters only.
TEST(CharacterTokenizer, WithoutSpecials) {
  CharacterOptions options;
  options.specials = false;
  const auto t = train_character(options, "cab");
  EXPECT_EQ(t->encode("abc"), (Ids{0, 1, 2}));
  EXPECT_EQ(t->specials().pad, -1);
  EXPECT_EQ(t->specials().eos, -1);
  expect_error(ErrorKind::text, {"\"d\""}, [&] { t->encode("d"); });
  options.control_symbols = {"<cls>"};
  expect_error(ErrorKind::argument, {"control symbols"}, [&] { train_character(options, "a"); });
  expect_error(ErrorKind::text, {"no characters"}, [] { train_character({}, ""); });
}

TEST(CharacterTokenizer, NormalisesFirst) {
  CharacterOptions options;
  options.normalisation = Normalisation::nfkc;
  const auto t = train_character(options, "\xEF\xBC\xA1");  // full-width A
  EXPECT_EQ(t->id("A"), 4);
  EXPECT_EQ(t->encode("A\xEF\xBC\xA1"), (Ids{4, 4}));
}

TEST(Llama2cTokenizer, MergesTheBestScoreFirstAndTheLeftmostOfEquals) {
  const auto t = llama2c_tokenizer(
      llama2c_bytes({{-1, " "}, {-2, "a"}, {-3, "b"}, {-9, "ab"}, {-4, "ba"}, {-5, " a"}, {-4, "aa"}, {-20, "aaaa"}}));
  const auto pieces = [&](const char* text) {
    std::string result;
    for (const std::int32_t id : t->encode(text)) result += t->piece(id) + "|";
    return result;
  };
  EXPECT_EQ(pieces("ab"), " a|b|");     // -5 beats -9
  EXPECT_EQ(pieces("aba"), " a|ba|");   // -4 first
  EXPECT_EQ(pieces("aaa"), " |aa|a|");  // the left pair of two equal ones
  EXPECT_EQ(pieces("aaaa"), " |aaaa|");
  EXPECT_EQ(pieces(""), "");
  EXPECT_EQ(pieces("\xC3\xA9"), " |<0xC3>|<0xA9>|");
  EXPECT_EQ(t->decode(t->encode("ab \xC3\xA9  b")), "ab \xC3\xA9  b");
  EXPECT_EQ(t->decode(t->encode(" a")), " a");
}

TEST(Llama2cTokenizer, TextNeverBecomesASpecialToken) {
  const auto t = llama2c_tokenizer(llama2c_bytes(
      {{-1, " "}, {-2, "<"}, {-2, "unk>"}, {-2, "u"}, {-2, "nk>"}, {-2, "n"}, {-2, "k>"}, {-2, "k"}, {-2, ">"}}));
  for (const std::int32_t id : t->encode("<unk>")) EXPECT_GE(id, 3);
  EXPECT_EQ(t->decode(t->encode("<unk>")), "<unk>");
}

TEST(Llama2cTokenizer, RefusesBrokenFiles) {
  const std::string good = llama2c_bytes({{-1, " "}});
  EXPECT_EQ(llama2c_tokenizer(good)->size(), 260);
  EXPECT_EQ(llama2c_tokenizer(good, 260)->size(), 260);
  const auto refuse = [](const std::string& bytes, const char* word, int size = 0) {
    expect_error(ErrorKind::format, {"tok.bin", word}, [&] { llama2c_tokenizer(bytes, size, "tok.bin"); });
  };
  refuse("", "0 bytes");
  refuse(good.substr(0, good.size() - 1), "token 259");
  refuse(good.substr(0, 10), "token 0");
  refuse(good, "token 260", 261);
  refuse(llama2c_bytes({{-1, " "}, {-1, "a"}}), "after token 259", 260);
  refuse(llama2c_bytes({{-1, "a"}}), "blank");
  refuse(llama2c_bytes({{std::numeric_limits<float>::quiet_NaN(), " "}}), "not a number");
  refuse(llama2c_bytes({{-1, ""}}), "0 bytes");
  refuse(good.substr(0, 4 + 13), "holds 1 tokens");
  std::string huge = good;
  huge[8] = huge[9] = huge[10] = '\x7F';  // the length of token 0
  refuse(huge, "token 0 has");
  std::string wrong = good;
  wrong[wrong.find("<0x41>") + 3] = '5';
  refuse(wrong, "<0x41>");
  std::string longest = good;
  longest[3] = '\x80';
  refuse(longest, "longest");
}

TEST(SaveTokenizer, EveryKindComesBackTheSame) {
  const TextFiles files;
  CharacterOptions options;
  options.normalisation = Normalisation::nfc;
  options.refuse_unknown = false;
  options.control_symbols = {"<\"quoted\\>"};
  CharacterOptions bare;
  bare.specials = false;
  for (const auto& t :
       {byte_tokenizer(Normalisation::nfkc, {"<2en>"}),
        train_character(options, std::string_view("a\0\"\\\x01\xE4\xBD\xA0", 8)), train_character(bare, "a b"),
        llama2c_tokenizer(llama2c_bytes({{-1, " "}, {-2, "ab"}, {-3, "a"}, {-3, "b"}}))}) {
    t->save(files.folder());
    expect_same(*t, *load_tokenizer(files.folder()), {"", "ab", "a b"});
    expect_same(*t, *load_tokenizer(t->serialise(), "checkpoint"), {"", "ab", "a b"});
    std::filesystem::remove(files.folder() / "tokenizer.model");
  }
}

TEST(SaveTokenizer, FingerprintsTellTokenizersApart) {
  CharacterOptions refusing;
  refusing.refuse_unknown = true;
  const std::vector<std::shared_ptr<const Tokenizer>> all = {byte_tokenizer(),
                                                             byte_tokenizer(Normalisation::nfc),
                                                             byte_tokenizer(Normalisation::none, {"<a>"}),
                                                             byte_tokenizer(Normalisation::none, {"<b>"}),
                                                             train_character({}, "ab"),
                                                             train_character({}, "ac"),
                                                             train_character(refusing, "ab"),
                                                             llama2c_tokenizer(llama2c_bytes({{-1, " "}})),
                                                             llama2c_tokenizer(llama2c_bytes({{-2, " "}}))};
  for (std::size_t i = 0; i < all.size(); ++i) {
    EXPECT_EQ(all[i]->fingerprint().size(), 16u);
    for (std::size_t j = 0; j < i; ++j) EXPECT_NE(all[i]->fingerprint(), all[j]->fingerprint()) << i << " " << j;
  }
  EXPECT_EQ(byte_tokenizer()->fingerprint(), byte_tokenizer()->fingerprint());
}

TEST(LoadTokenizer, RefusesBrokenJson) {
  const std::vector<NamedBytes> good = train_character({}, "ab")->serialise();
  ASSERT_EQ(good.size(), 1u);
  const auto refuse = [&](const std::string& json, std::initializer_list<const char*> words) {
    expect_error(ErrorKind::format, words, [&] {
      load_tokenizer(std::vector<NamedBytes>{{"tokenizer.json", json}}, "folder");
    });
  };
  const auto change = [&](const std::string& from, const std::string& to) {
    std::string json = good[0].bytes;
    const std::size_t at = json.find(from);
    EXPECT_NE(at, std::string::npos) << from;
    return json.replace(at, from.size(), to);
  };
  refuse("", {"folder/tokenizer.json", "not JSON"});
  refuse(good[0].bytes.substr(0, good[0].bytes.size() / 2), {"not JSON"});
  refuse("[]", {"not an object"});
  refuse("{}", {"\"format\"", "missing"});
  refuse(std::string(100000, '['), {"nested"});
  refuse(change("attend tokenizer", "other"), {"\"format\""});
  refuse(change("\"version\": 1", "\"version\": 2"), {"version 2"});
  refuse(change("\"version\": 1", "\"version\": 1e400"), {""});
  refuse(change("\"character\"", "\"words\""), {"\"words\" is not known"});
  refuse(change("\"none\"", "\"nfd\""), {"nfd"});
  refuse(change("\"pad\": 0", "\"pad\": 1"), {"\"pad\" is 1"});
  refuse(change("\"size\": 6", "\"size\": 7"), {"fingerprint"});
  refuse(change("\"a\"", "\"c\""), {"above the one before"});
  refuse(change("\"b\"", "\"c\""), {"fingerprint"});
  refuse(change("\"a\"", "\"\""), {"entry 0", "one character"});
  refuse(change("\"a\"", "\"aa\""), {"entry 0", "one character"});
  refuse(change("\"a\"", "5"), {"entry 0", "text"});
  refuse(change("\"refuse_unknown\": false", "\"refuse_unknown\": 0"), {"refuse_unknown"});
  refuse(change("\"control_symbols\": []", "\"control_symbols\": [\"<s>\"]"), {"<s>", "twice"});
  expect_error(ErrorKind::format, {"no tokenizer.json"}, [] { load_tokenizer(std::vector<NamedBytes>{}, "folder"); });

  std::vector<NamedBytes> model = llama2c_tokenizer(llama2c_bytes({{-1, " "}}))->serialise();
  ASSERT_EQ(model.size(), 2u);
  const std::vector<NamedBytes> alone{model[0]};
  expect_error(ErrorKind::format, {"no tokenizer.model"}, [&] { load_tokenizer(alone, "folder"); });
  model[1].bytes = llama2c_bytes({{-2, " "}});
  expect_error(ErrorKind::format, {"fingerprint"}, [&] { load_tokenizer(model, "folder"); });
  std::string& json = model[0].bytes;
  json.replace(json.find("tokenizer.model"), 15, "../../secret");
  expect_error(ErrorKind::format, {"\"file\""}, [&] { load_tokenizer(model, "folder"); });
}

TEST(LoadTokenizer, MissingFiles) {
  const TextFiles files;
  for (const auto& path : {files.folder(), files.folder() / "none.model"}) {
    try {
      load_tokenizer(path);
      ADD_FAILURE();
    } catch (const Error& error) {
      EXPECT_EQ(error.kind(), ErrorKind::file) << error.what();
    }
  }
}

TEST(StreamDecoder, HoldsBackUnfinishedCharacters) {
  const auto t = byte_tokenizer();
  StreamDecoder decoder(*t);
  EXPECT_EQ(decoder.push(0xE4), "");
  EXPECT_EQ(decoder.push(0xBD), "");
  EXPECT_EQ(decoder.push(0xA0), "\xE4\xBD\xA0");
  EXPECT_EQ(decoder.push(0xF0), "");
  EXPECT_EQ(decoder.push('a'),
            "\xEF\xBF\xBD"
            "a");
  EXPECT_EQ(decoder.push(0xFF), "\xEF\xBF\xBD");
  EXPECT_EQ(decoder.push(0xF0), "");
  EXPECT_EQ(decoder.push(0x9F), "");
  EXPECT_EQ(decoder.finish(), "\xEF\xBF\xBD");
  EXPECT_EQ(decoder.finish(), "");
}

}  // namespace
}  // namespace attend
