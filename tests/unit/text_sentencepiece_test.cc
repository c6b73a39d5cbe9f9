#include <fcntl.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <thread>

#include "attend/corpus.h"
#include "attend/tokenizer.h"
#include "core/random.h"
#include "unit/text_files.h"

namespace attend {
namespace {

using Ids = std::vector<std::int32_t>;

const std::string golden = std::string(ATTEND_SOURCE_DIR) + "/tests/golden/sentencepiece/";

std::vector<std::string> lines() {
  std::vector<std::string> result;
  const char* subjects[] = {
      "the cat", "the dog", "a bird", "my friend", "\xE6\x88\x91", "\xE4\xBD\xA0", "\xE4\xBB\x96\xE4\xBB\xAC"};
  const char* verbs[] = {"sees", "likes", "follows", "\xE5\x96\x9C\xE6\xAC\xA2", "\xE7\x9C\x8B\xE8\xA7\x81", "forgets"};
  const char* objects[] = {"the house", "1984", "\xE7\x8C\xAB", "\xE7\x8B\x97", "a tree", "nothing"};
  for (const char* s : subjects)
    for (const char* v : verbs)
      for (const char* o : objects) result.push_back(std::string(s) + " " + v + " " + o + "\xE3\x80\x82");
  return result;
}

SentencePieceOptions small() {
  SentencePieceOptions options;
  options.vocabulary_size = 46;
  return options;
}

// What an action writes to the standard output and standard error.
template <typename Action>
std::string printed(Action action) {
  const TextFiles files;
  const std::string path = (files.folder() / "printed").string();
  std::fflush(nullptr);
  const int target = ::open(path.c_str(), O_RDWR | O_CREAT, 0600);
  const int out = ::dup(STDOUT_FILENO), error = ::dup(STDERR_FILENO);
  ::dup2(target, STDOUT_FILENO);
  ::dup2(target, STDERR_FILENO);
  try {
    action();
  } catch (const Error&) {
  }
  std::fflush(nullptr);
  std::cout.flush();
  std::cerr.flush();
  ::dup2(out, STDOUT_FILENO);
  ::dup2(error, STDERR_FILENO);
  for (const int descriptor : {target, out, error}) ::close(descriptor);
  return bytes_of(path);
}

TEST(TrainSentencePiece, BothTypesGiveSilentDeterministicModels) {
  for (const char* type : {"unigram", "bpe"}) {
    SentencePieceOptions options = small();
    options.model_type = type;
    std::shared_ptr<const Tokenizer> first, second;
    EXPECT_EQ(printed([&] {
                first = train_sentencepiece(options, lines());
                second = train_sentencepiece(options, lines());
              }),
              "");
    ASSERT_TRUE(first && second);
    EXPECT_EQ(first->size(), 46);
    EXPECT_EQ(first->serialise()[1].bytes, second->serialise()[1].bytes);
    EXPECT_EQ(first->specials().pad, 0);
    EXPECT_EQ(first->specials().unknown, 1);
    EXPECT_EQ(first->specials().bos, 2);
    EXPECT_EQ(first->specials().eos, 3);
    for (const std::string& line : lines()) {
      const Ids ids = first->encode(line);
      EXPECT_LT(ids.size(), line.size());
      EXPECT_EQ(first->decode(ids), line);
    }
  }
}

TEST(TrainSentencePiece, ChineseMarksStayAsTheyAre) {
  const auto t = train_sentencepiece(small(), lines());
  EXPECT_GE(t->id("\xE3\x80\x82"), 0);
  EXPECT_EQ(t->decode(t->encode("\xE6\x88\x91\xE3\x80\x82")), "\xE6\x88\x91\xE3\x80\x82");
}

TEST(TrainSentencePiece, ControlSymbolsAreNeverTextAndUserSymbolsAlwaysOneToken) {
  SentencePieceOptions options = small();
  options.control_symbols = {"<2en>", "<2zh>", "<a,\"b\">"};
  options.user_symbols = {"cat", "\xE7\x8C\xAB"};
  const auto t = train_sentencepiece(options, lines());
  EXPECT_EQ(t->id("<2en>"), 4);
  EXPECT_EQ(t->id("<2zh>"), 5);
  EXPECT_EQ(t->id("<a,\"b\">"), 6);
  EXPECT_EQ(t->id("cat"), 7);
  EXPECT_TRUE(t->is_control(4));
  EXPECT_FALSE(t->is_control(7));
  const Ids ids = t->encode("a <2en> concatenate \xE7\x8C\xAB\xE7\x8C\xAB");
  EXPECT_EQ(std::count(ids.begin(), ids.end(), 4), 0);
  EXPECT_EQ(std::count(ids.begin(), ids.end(), 7), 1);
  EXPECT_EQ(std::count(ids.begin(), ids.end(), 8), 2);
  EXPECT_EQ(t->decode(Ids{4, 7, 5, 3}), "cat");
  EXPECT_EQ(t->readable(4), "<2en>");
}

TEST(TrainSentencePiece, ByteFallbackKnowsEveryText) {
  SentencePieceOptions options = small();
  options.vocabulary_size = 302;
  options.byte_fallback = true;
  options.collapse_blanks = false;
  const auto t = train_sentencepiece(options, lines());
  for (const char* text : {"", " ", "  two  blanks  ", "\xF0\x9F\x98\x80 \xC3\xA9\n\t\x01", "\xE9\xBE\x8D"}) {
    const Ids ids = t->encode(text);
    EXPECT_EQ(std::count(ids.begin(), ids.end(), t->specials().unknown), 0);
    EXPECT_EQ(t->decode(ids), text);
  }
  // Each byte token stands for its own byte.
  const std::string text = "a\xE9\xBE\x8D";
  std::int64_t at = 0;
  int bytes = 0;
  for (const TokenSpan& span : t->encode_spans(text)) {
    EXPECT_EQ(span.begin, at);
    at = span.end;
    if (t->piece(span.id).substr(0, 3) != "<0x") continue;
    ++bytes;
    EXPECT_EQ(span.end - span.begin, 1);
    EXPECT_EQ(t->readable(span.id), t->piece(span.id));
  }
  EXPECT_EQ(at, 4);
  EXPECT_EQ(bytes, 3);
}

TEST(TrainSentencePiece, BlanksCollapseOnRequest) {
  const auto t = train_sentencepiece(small(), lines());
  EXPECT_EQ(t->decode(t->encode("  the   cat ")), "the cat");
}

TEST(TrainSentencePiece, SplitDigits) {
  SentencePieceOptions options = small();
  options.split_digits = true;
  const auto t = train_sentencepiece(options, lines());
  EXPECT_EQ(t->id("1984"), -1);
  EXPECT_GE(t->encode("1984").size(), 4u);
}

TEST(TrainSentencePiece, LargestPossibleVocabularyIsNamedAndWorks) {
  for (const char* type : {"unigram", "bpe"}) {
    SentencePieceOptions options = small();
    options.model_type = type;
    options.vocabulary_size = 100000;
    int largest = 0;
    try {
      train_sentencepiece(options, lines());
      ADD_FAILURE();
    } catch (const Error& error) {
      EXPECT_EQ(error.kind(), ErrorKind::text);
      const std::string message = error.what();
      const std::string mark = "largest possible is ";
      ASSERT_NE(message.find(mark), std::string::npos) << message;
      largest = std::stoi(message.substr(message.find(mark) + mark.size()));
    }
    options.vocabulary_size = largest + 1;
    EXPECT_THROW(train_sentencepiece(options, lines()), Error);
    options.vocabulary_size = largest;
    EXPECT_EQ(train_sentencepiece(options, lines())->size(), largest);
  }
}

TEST(TrainSentencePiece, SmallestPossibleVocabularyIsNamed) {
  SentencePieceOptions options = small();
  options.vocabulary_size = 10;
  expect_error(ErrorKind::text, {"10 tokens is too small", "at least"}, [&] { train_sentencepiece(options, lines()); });
  options.vocabulary_size = 4;
  expect_error(ErrorKind::text, {"special tokens alone are 4"}, [&] { train_sentencepiece(options, lines()); });
  options.byte_fallback = true;
  options.vocabulary_size = 260;
  expect_error(ErrorKind::text, {"special tokens alone are 260"}, [&] { train_sentencepiece(options, lines()); });
}

TEST(TrainSentencePiece, CorporaThatHoldNothing) {
  const std::vector<std::vector<std::string>> corpora = {
      {}, {""}, {"  ", "\t"}, {"\xE2\x96\x81\xE2\x96\x81"}, {"\xE2\x96\x85 reserved"}, {std::string("a\0b", 3)}};
  for (const auto& corpus : corpora)
    expect_error(ErrorKind::text, {"no line that can be trained on"}, [&] { train_sentencepiece(small(), corpus); });
  SentencePieceOptions options = small();
  options.longest_line = 10;
  expect_error(ErrorKind::text, {"at most 10 bytes"},
               [&] { train_sentencepiece(options, std::vector<std::string>{"eleven bytes"}); });
  expect_error(ErrorKind::text, {"byte 1"}, [&] { train_sentencepiece(options, std::vector<std::string>{"\xFF"}); });
}

TEST(TrainSentencePiece, OptionsOutOfRange) {
  const auto refuse = [](auto change, const char* word) {
    SentencePieceOptions options = small();
    change(options);
    expect_error(ErrorKind::argument, {word}, [&] { train_sentencepiece(options, lines()); });
  };
  refuse([](auto& o) { o.model_type = "word"; }, "unigram or bpe");
  refuse([](auto& o) { o.character_coverage = 0.5; }, "0.98 to 1");
  refuse([](auto& o) { o.character_coverage = std::numeric_limits<double>::quiet_NaN(); }, "0.98 to 1");
  refuse([](auto& o) { o.vocabulary_size = 0; }, "vocabulary of 0");
  refuse([](auto& o) { o.longest_line = 5; }, "longest line");
  refuse([](auto& o) { o.most_lines = -1; }, "-1 lines");
  refuse([](auto& o) { o.control_symbols = {"</s>"}; }, "twice");
  refuse([](auto& o) { o.control_symbols = {"<0x41>"}; }, "twice");
  refuse([](auto& o) { o.user_symbols = {"ab", "ab"}; }, "twice");
  refuse(
      [](auto& o) {
        o.control_symbols = {"ab"};
        o.user_symbols = {"ab"};
      },
      "twice");
  refuse([](auto& o) { o.user_symbols = {"a b"}; }, "blank");
  refuse([](auto& o) { o.user_symbols = {""}; }, "empty");
}

TEST(TrainSentencePiece, ASampleOfTheLinesDependsOnTheSeedOnly) {
  SentencePieceOptions options = small();
  options.vocabulary_size = 42;
  options.character_coverage = 0.98;
  options.most_lines = 60;
  const auto first = train_sentencepiece(options, lines()), again = train_sentencepiece(options, lines());
  EXPECT_EQ(first->fingerprint(), again->fingerprint());
  options.seed = 2;
  EXPECT_NE(first->fingerprint(), train_sentencepiece(options, lines())->fingerprint());
}

TEST(SentencePiece, SavesAndLoads) {
  const TextFiles files;
  SentencePieceOptions options = small();
  options.control_symbols = {"<2en>"};
  const auto t = train_sentencepiece(options, lines());
  t->save(files.folder());
  const auto back = load_tokenizer(files.folder());
  EXPECT_EQ(back->fingerprint(), t->fingerprint());
  EXPECT_EQ(back->normalisation(), Normalisation::nfc);
  EXPECT_EQ(back->kind(), TokenizerKind::sentencepiece);
  for (const std::string& line : lines()) EXPECT_EQ(back->encode(line), t->encode(line));
  std::string model = bytes_of(files.folder() / "tokenizer.model");
  files.put("tokenizer.model", model.substr(0, model.size() / 2));
  expect_error(ErrorKind::format, {"tokenizer.model"}, [&] { load_tokenizer(files.folder()); });
}

TEST(SentencePiece, ManyThreadsAtOnce) {
  const auto t = train_sentencepiece(small(), lines());
  std::vector<Ids> expected;
  for (const std::string& line : lines()) expected.push_back(t->encode(line));
  std::vector<std::thread> threads;
  std::atomic<int> wrong{0};
  for (int i = 0; i < 4; ++i)
    threads.emplace_back([&] {
      const auto corpus = lines();
      for (std::size_t n = 0; n < corpus.size(); ++n)
        if (t->encode(corpus[n]) != expected[n] || t->decode(expected[n]) != corpus[n]) ++wrong;
    });
  for (auto& thread : threads) thread.join();
  EXPECT_EQ(wrong, 0);
}

// A model that somebody damaged must end in a tokenizer or in an error, whatever the damage.
TEST(SentencePiece, DamagedModels) {
  const std::string model = bytes_of(golden + "unigram-en.model");
  ASSERT_GT(model.size(), 1000u);
  expect_error(ErrorKind::format, {"m.model", "empty"},
               [] { sentencepiece_tokenizer("", Normalisation::none, "m.model"); });
  expect_error(ErrorKind::format, {"m.model"},
               [] { sentencepiece_tokenizer("not a model at all", Normalisation::none, "m.model"); });
  Random random(5);
  int refused = 0, loaded = 0;
  EXPECT_EQ(printed([&] {
              for (int round = 0; round < 150; ++round) {
                std::string damaged = model;
                if (round % 3 == 0) damaged.resize(static_cast<std::size_t>(random.below(damaged.size())));
                const std::uint64_t changes = round % 3 == 0 ? 0 : 1 + random.below(4);
                for (std::uint64_t i = 0; i < changes; ++i) {
                  // Half of the changes into the pieces, half into the normaliser's table behind them.
                  const std::uint64_t at = random.below(2) == 0 ? random.below(20000) : random.below(damaged.size());
                  damaged[static_cast<std::size_t>(at)] = static_cast<char>(random.below(256));
                }
                try {
                  const auto t = sentencepiece_tokenizer(damaged, Normalisation::none);
                  for (const char* text : {"Hello world", "\xEF\xBC\xA1\xE2\x91\xA0 \xE3\x8D\xBF", "\xC3\xA9"})
                    t->decode(t->encode(text));
                  ++loaded;
                } catch (const Error&) {
                  ++refused;
                }
              }
            }),
            "");
  EXPECT_GT(refused, 20);
  EXPECT_EQ(refused + loaded, 150);
}

}  // namespace
}  // namespace attend
