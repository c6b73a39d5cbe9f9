#include <fcntl.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <thread>

#include "attend/corpus.h"
#include "unit/text_files.h"

namespace attend {
namespace {

using Strings = std::vector<std::string>;

TEST(Corpus, LinesOfPlainAndPackedFilesAreTheSame) {
  const TextFiles files;
  std::string text;
  Strings expected;
  for (int i = 0; i < 20000; ++i) {  // longer than one block of reading
    expected.push_back("line " + std::to_string(i) + (i % 7 == 0 ? " \xE4\xBD\xA0\xE5\xA5\xBD" : ""));
    text += expected.back() + "\n";
  }
  EXPECT_EQ(read_lines(files.put("plain", text)).lines, expected);
  EXPECT_EQ(read_lines(files.put("packed.txt", gzipped(text))).lines, expected);  // told by bytes, not by name
  EXPECT_EQ(read_lines(files.put("packed.gz", xz_packed(text))).lines, expected);
  EXPECT_EQ(read_lines(files.put("two.gz", gzipped(text.substr(0, 1000)) + gzipped(text.substr(1000)))).lines,
            expected);
  EXPECT_EQ(read_lines(files.put("padded.gz", gzipped(text) + std::string(1000, '\0'))).lines, expected);
  const Lines all = read_lines(files.put("plain", text));
  EXPECT_EQ(all.report.lines, 20000);
  EXPECT_EQ(all.report.bytes, static_cast<std::int64_t>(text.size()));
}

TEST(Corpus, LineEndsAndByteOrderMark) {
  const TextFiles files;
  const Lines lines = read_lines(files.put("a",
                                           "\xEF\xBB\xBF"
                                           "one\r\ntwo\n\nfour\rstill four\r\nlast"));
  EXPECT_EQ(lines.lines, (Strings{"one", "two", "", "four\rstill four", "last"}));
  EXPECT_TRUE(lines.report.byte_order_mark);
  EXPECT_EQ(lines.report.crlf, 2);
  EXPECT_EQ(lines.report.empty, 1);
  EXPECT_EQ(lines.report.lines, 5);
  // Only at the front of the file.
  EXPECT_EQ(read_lines(files.put("b",
                                 "a\n\xEF\xBB\xBF"
                                 "b\n"))
                .lines[1],
            "\xEF\xBB\xBF"
            "b");
}

TEST(Corpus, InvalidUtf8NamesFileLineAndByte) {
  const TextFiles files;
  const auto path = files.put("bad.txt", "good\nalso \xE4\xBD\xA0 \xC3(\n");
  expect_error(ErrorKind::text, {"bad.txt:2", "byte 10", "0xC3", "UTF-8", "with replace_invalid"},
               [&] { read_lines(path); });
  ReadOptions options;
  options.replace_invalid = true;
  const Lines lines = read_lines(path, options);
  EXPECT_EQ(lines.lines[1], "also \xE4\xBD\xA0 \xEF\xBF\xBD(");
  EXPECT_EQ(lines.report.replaced, 1);
  expect_error(ErrorKind::text, {"utf16.txt:1", "UTF-16"}, [&] {
    read_lines(files.put("utf16.txt", std::string("\xFF\xFE"
                                                  "a\0\n\0",
                                                  6)));
  });
  // Such bytes further on are no mark, and a caller may have names of its own for its choices, or none.
  options.replace_invalid = false;
  options.names.replace_invalid = "--or-so";
  const auto stray = files.put("stray.txt", "good\n\xFF\xFE\n");
  expect_error(ErrorKind::text, {"stray.txt:2", "with --or-so"}, [&] { read_lines(stray, options); });
  options.names.replace_invalid = "";
  try {
    read_lines(stray, options);
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(std::string(error.what()).find("UTF-16"), std::string::npos) << error.what();
    EXPECT_EQ(error.advice(), "convert the file to UTF-8");
  }
}

// A pipe to which lines come one after the other: what has not come yet is not waited for.
TEST(Corpus, KnowsWhetherALineIsThere) {
  int ends[2];
  ASSERT_EQ(::pipe(ends), 0);
  const auto send = [&](const std::string& text) {
    ASSERT_EQ(::write(ends[1], text.data(), text.size()), static_cast<ssize_t>(text.size()));
  };
  send("one\ntwo\nthr");
  LineReader reader("/dev/fd/" + std::to_string(ends[0]));
  std::string line;
  EXPECT_TRUE(reader.ready());
  EXPECT_TRUE(reader.next(line));
  EXPECT_TRUE(reader.ready());
  EXPECT_TRUE(reader.next(line));
  EXPECT_EQ(line, "two");
  EXPECT_FALSE(reader.ready()) << "half a line";
  send("ee\n");
  EXPECT_TRUE(reader.ready());
  EXPECT_TRUE(reader.next(line));
  EXPECT_EQ(line, "three");
  EXPECT_FALSE(reader.ready());
  ::close(ends[1]);
  EXPECT_TRUE(reader.ready()) << "the end";
  EXPECT_FALSE(reader.next(line));
  ::close(ends[0]);
  const TextFiles files;
  LineReader packed(files.put("packed.gz", gzipped("a\nb\n")));
  EXPECT_TRUE(packed.ready());
}

TEST(Corpus, LongLinesAreRefusedExactlyAboveTheLimit) {
  const TextFiles files;
  ReadOptions options;
  options.longest_line = 10;
  EXPECT_EQ(read_lines(files.put("a", "0123456789\r\n\n0123456789"), options).lines.size(), 3u);
  expect_error(ErrorKind::text, {"b:2", "11 bytes", "limit is 10"},
               [&] { read_lines(files.put("b", "ok\n0123456789a\n"), options); });
  expect_error(ErrorKind::text, {"c:1", "at least", "limit is 10"},
               [&] { read_lines(files.put("c", std::string(100, 'x')), options); });
  // A packed file that is one endless line must not be unpacked into memory first.
  expect_error(ErrorKind::text, {"d:1", "limit is 10"},
               [&] { read_lines(files.put("d", gzipped(std::string(50 << 20, 'x'))), options); });
}

TEST(Corpus, UnpackingHasALimit) {
  const TextFiles files;
  std::string text;
  while (text.size() < (1 << 20)) text += "abc\n";
  ReadOptions options;
  options.limit = 1 << 19;
  for (const std::string& packed : {text, gzipped(text), xz_packed(text)})
    expect_error(ErrorKind::format, {"bomb", "524288"}, [&] { read_lines(files.put("bomb", packed), options); });
}

TEST(Corpus, DamagedAndTruncatedPackedFiles) {
  const TextFiles files;
  std::string text;
  for (int i = 0; i < 3000; ++i) text += std::to_string(i * 7919) + "\n";
  for (const std::string& packed : {gzipped(text), xz_packed(text)}) {
    const char* kind = packed[0] == '\x1F' ? ".gz" : ".xz";
    for (const std::size_t size : {std::size_t{11}, packed.size() / 2, packed.size() - 1})
      expect_error(ErrorKind::format, {"cut", kind, "cut short"},
                   [&] { read_lines(files.put("cut", packed.substr(0, size))); });
    std::string damaged = packed;
    damaged[packed.size() / 2] = static_cast<char>(damaged[packed.size() / 2] ^ 0x55);
    expect_error(ErrorKind::format, {"damaged", kind}, [&] { read_lines(files.put("damaged", damaged)); });
    // The checksum at the end, which only a reader that reads to the end sees.
    damaged = packed;
    const std::size_t checksum = packed[0] == '\x1F' ? packed.size() - 8 : packed.size() - 14;
    damaged[checksum] = static_cast<char>(damaged[checksum] ^ 1);
    expect_error(ErrorKind::format, {"damaged", kind}, [&] { read_lines(files.put("damaged", damaged)); });
  }
  expect_error(ErrorKind::format, {"tail", "other bytes follow"},
               [&] { read_lines(files.put("tail", gzipped(text) + std::string("\0x", 2))); });
}

TEST(Corpus, NothingToRead) {
  const TextFiles files;
  expect_error(ErrorKind::text, {"empty.txt", "the corpus is empty"}, [&] { read_lines(files.put("empty.txt", "")); });
  expect_error(ErrorKind::text, {"is empty"}, [&] { read_lines(files.put("empty.gz", gzipped(""))); });
  ReadOptions skip;
  skip.skip_empty = true;
  expect_error(ErrorKind::text, {"only empty lines"},
               [&] { read_lines(files.put("blank", "\n  \n\xE3\x80\x80\n"), skip); });
  expect_error(ErrorKind::text, {"text is empty"}, [&] { read_text(files.put("empty.txt", "")); });
  try {
    read_lines(files.folder() / "missing.txt");
    ADD_FAILURE();
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::file);
    EXPECT_NE(std::string(error.what()).find("missing.txt"), std::string::npos);
  }
  EXPECT_THROW(read_lines(files.folder()), Error);
}

TEST(Corpus, SkippedEmptyLinesAreCounted) {
  const TextFiles files;
  ReadOptions options;
  options.skip_empty = true;
  const Lines lines = read_lines(files.put("a", "one\n\n \t\ntwo\n"), options);
  EXPECT_EQ(lines.lines, (Strings{"one", "two"}));
  EXPECT_EQ(lines.report.lines, 4);
  EXPECT_EQ(lines.report.empty, 2);
}

TEST(Corpus, PairsOfTwoFiles) {
  const TextFiles files;
  const auto source = files.put("a.zh", "\xE4\xB8\x80\n\xE4\xBA\x8C\n");
  const auto target = files.put("a.en", gzipped("one\r\ntwo\r\n"));
  const ParallelCorpus corpus = read_parallel(source, target);
  EXPECT_EQ(corpus.source, (Strings{"\xE4\xB8\x80", "\xE4\xBA\x8C"}));
  EXPECT_EQ(corpus.target, (Strings{"one", "two"}));
  EXPECT_EQ(corpus.line, (std::vector<std::int64_t>{1, 2}));
  EXPECT_EQ(corpus.source_report.crlf, 0);
  EXPECT_EQ(corpus.target_report.crlf, 2);
}

TEST(Corpus, UnequalLineCountsNameBothAndTheFirstLineAlone) {
  const TextFiles files;
  const auto longer = files.put("long.zh", "a\nb\nlonely\nd\ne\n"), shorter = files.put("short.en", "a\nb\n");
  expect_error(ErrorKind::text, {"5 and 2 lines", "line 3 of", "long.zh", "lonely"},
               [&] { read_parallel(longer, shorter); });
  expect_error(ErrorKind::text, {"2 and 5 lines", "line 3 of", "long.zh", "lonely"},
               [&] { read_parallel(shorter, longer); });
  expect_error(ErrorKind::text, {"0 and 2 lines", "line 1 of"}, [&] { read_parallel(files.put("none", ""), shorter); });
  expect_error(ErrorKind::text, {"corpus is empty"},
               [&] { read_parallel(files.put("none", ""), files.put("none2", "")); });
  expect_error(ErrorKind::argument, {"standard input"}, [&] { read_parallel("-", "-"); });
}

TEST(Corpus, EmptySidesOfPairs) {
  const TextFiles files;
  const auto source = files.put("s", "a\n \nc\n\n"), target = files.put("t", "A\nB\n\n\n");
  expect_error(ErrorKind::text, {"s:2", "this side", "with skip_empty"}, [&] { read_parallel(source, target); });
  ReadOptions skip;
  skip.skip_empty = true;
  const ParallelCorpus corpus = read_parallel(source, target, skip);
  EXPECT_EQ(corpus.source, Strings{"a"});
  EXPECT_EQ(corpus.skipped_empty, 3);
  expect_error(ErrorKind::text, {"only empty pairs"},
               [&] { read_parallel(files.put("x", "\n"), files.put("y", "b\n"), skip); });
}

TEST(Corpus, TsvPicksColumnsAndCountsThem) {
  const TextFiles files;
  const auto path = files.put("c.tsv", "1\tone\t\xE4\xB8\x80\tx\n2\ttwo\t\xE4\xBA\x8C\ty\r\n");
  const ParallelCorpus corpus = read_tsv(path, {2, 1, 4});
  EXPECT_EQ(corpus.source, (Strings{"\xE4\xB8\x80", "\xE4\xBA\x8C"}));
  EXPECT_EQ(corpus.target, (Strings{"one", "two"}));
  EXPECT_EQ(corpus.source_report.crlf, 1);
  EXPECT_EQ(read_tsv(path, {0, 3, 0}).target, (Strings{"x", "y"}));
  expect_error(ErrorKind::text, {"c.tsv:1", "4 columns", "expected 2"}, [&] { read_tsv(path); });
  expect_error(ErrorKind::text, {"d.tsv:2", "1 column ", "expected 2"},
               [&] { read_tsv(files.put("d.tsv", "a\tb\nc\n")); });
  expect_error(ErrorKind::text, {"e.tsv:2", "3 columns", "expected 2"}, [&] {
    read_tsv(files.put("e.tsv", "a\tb\nc\td\te\n"), {0, 1, 0});
  });
  expect_error(ErrorKind::text, {"f.tsv:1", "column 1", "empty"},
               [&] { read_tsv(files.put("f.tsv", "a\t \nc\td\n")); });
  expect_error(ErrorKind::text, {"corpus is empty"}, [&] { read_tsv(files.put("g.tsv", "")); });
  expect_error(ErrorKind::argument, {"columns"}, [&] { read_tsv(path, {1, 1, 4}); });
  expect_error(ErrorKind::argument, {"columns"}, [&] { read_tsv(path, {0, 4, 4}); });
  ReadOptions skip;
  skip.skip_empty = true;
  const ParallelCorpus rest = read_tsv(files.put("h.tsv", "a\t\n\n\tb\nc\td\n"), {}, skip);
  EXPECT_EQ(rest.source, Strings{"c"});
  EXPECT_EQ(rest.skipped_empty, 3);
  EXPECT_EQ(rest.line, std::vector<std::int64_t>{4});
  ReadOptions narrow;
  narrow.longest_line = 4;
  EXPECT_EQ(read_tsv(files.put("i.tsv", "1234\t1234\tlonger\n"), {0, 1, 3}, narrow).source, Strings{"1234"});
  expect_error(ErrorKind::text, {"j.tsv:1", "5 bytes"},
               [&] { read_tsv(files.put("j.tsv", "1234\t12345\n"), {}, narrow); });
}

TEST(Corpus, WholeTextKeepsItsEnd) {
  const TextFiles files;
  EXPECT_EQ(read_text(files.put("a", "one\r\n\r\ntwo")).text, "one\n\ntwo");
  EXPECT_EQ(read_text(files.put("a", "one\n\ntwo\n")).text, "one\n\ntwo\n");
  EXPECT_EQ(read_text(files.put("b", std::string(100000, 'x'))).text.size(), 100000u);
  expect_error(ErrorKind::text, {"only blanks"}, [&] { read_text(files.put("c", " \n\n")); });
}

TEST(Corpus, OptionsOutOfRange) {
  const TextFiles files;
  const auto path = files.put("a", "x\n");
  ReadOptions options;
  options.longest_line = 0;
  expect_error(ErrorKind::argument, {"longest line"}, [&] { read_lines(path, options); });
  options = {};
  options.limit = 0;
  expect_error(ErrorKind::argument, {"limit"}, [&] { read_tsv(path, {}, options); });
}

// A person who types one letter and waits must be answered, although more bytes could make a magic number.
TEST(Corpus, StandardInputGivesLinesWhenTheyAreThere) {
  int ends[2];
  ASSERT_EQ(::pipe(ends), 0);
  // Whoever shares the pipe may have made it non-blocking: "nothing there yet" is then no error.
  ASSERT_EQ(::fcntl(ends[0], F_SETFL, O_NONBLOCK), 0);
  const int saved = ::dup(STDIN_FILENO);
  ::dup2(ends[0], STDIN_FILENO);
  std::string line;
  {
    ASSERT_EQ(::write(ends[1], "a\n", 2), 2);
    LineReader reader("-");
    EXPECT_TRUE(reader.next(line));  // blocks for ever if the reader waits for more
    EXPECT_EQ(line, "a");
    ASSERT_EQ(::write(ends[1], "sec", 3), 3);
    std::thread later([&] {
      std::this_thread::sleep_for(std::chrono::milliseconds(20));
      EXPECT_EQ(::write(ends[1], "ond\nthird", 9), 9);
      ::close(ends[1]);
    });
    EXPECT_TRUE(reader.next(line));
    EXPECT_EQ(line, "second");
    EXPECT_TRUE(reader.next(line));
    EXPECT_EQ(line, "third");
    EXPECT_FALSE(reader.next(line));
    EXPECT_FALSE(reader.next(line));
    EXPECT_EQ(reader.number(), 3);
    later.join();
  }
  ::dup2(saved, STDIN_FILENO);
  ::close(saved);
  ::close(ends[0]);
}

}  // namespace
}  // namespace attend
