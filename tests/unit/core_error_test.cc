#include <gtest/gtest.h>

#include <cstdio>
#include <set>
#include <stdexcept>
#include <string>

#include "attend/activation.h"
#include "attend/error.h"
#include "attend/shape.h"
#include "attend/version.h"

namespace attend {
namespace {

TEST(Error, SaysWhereWhatAndWhatToDo) {
  const Error error(ErrorKind::shape, "attend", "query has 8 heads and key has 3",
                    "query heads must be a multiple of key heads");
  EXPECT_STREQ(error.what(), "attend: query has 8 heads and key has 3; query heads must be a multiple of key heads");
  EXPECT_EQ(error.kind(), ErrorKind::shape);
  EXPECT_EQ(error.where(), "attend");
  EXPECT_EQ(error.what_happened(), "query has 8 heads and key has 3");
  EXPECT_EQ(error.advice(), "query heads must be a multiple of key heads");
}

TEST(Error, ShowsControlCharactersInsteadOfSendingThem) {
  const Error error(ErrorKind::file, std::string("a\0b", 3),
                    "\x1B[31m\x7F and \xC2\x9B"
                    "c, but \xC3\xA9 and\ta\nline");
  EXPECT_STREQ(error.what(), "a\\x00b: \\x1B[31m\\x7F and \\x9Bc, but \xC3\xA9 and\ta\nline");
  EXPECT_EQ(error.where().size(), 3u);
}

TEST(Error, ShowsBytesThatAreNoTextByTheirNumber) {
  const Error error(ErrorKind::file, "f", "\xD5, \xE4\xB8 and \x80\xFF beside \xE4\xB8\xAD \xF0\x9F\x8E\x89\xF0\x9F");
  EXPECT_STREQ(error.what(), "f: \\xD5, \\xE4\\xB8 and \\x80\\xFF beside \xE4\xB8\xAD \xF0\x9F\x8E\x89\\xF0\\x9F");
}

TEST(Error, CountsThings) {
  EXPECT_EQ(counted(1, "line"), "1 line");
  EXPECT_EQ(counted(0, "file"), "0 files");
}

TEST(Error, LeavesOutAnEmptyAdvice) {
  const Error error(ErrorKind::file, "a.txt", "is empty");
  EXPECT_STREQ(error.what(), "a.txt: is empty");
  EXPECT_EQ(error.advice(), "");
}

TEST(Error, IsARuntimeError) {
  try {
    throw Error(ErrorKind::numeric, "loss", "is NaN");
  } catch (const std::runtime_error& error) {
    EXPECT_STREQ(error.what(), "loss: is NaN");
    return;
  }
  FAIL();
}

TEST(Error, KindsHaveDifferentNames) {
  std::set<std::string> names;
  for (ErrorKind kind : {ErrorKind::argument, ErrorKind::shape, ErrorKind::config, ErrorKind::file, ErrorKind::format,
                         ErrorKind::text, ErrorKind::numeric, ErrorKind::cancelled})
    names.insert(name_of(kind));
  EXPECT_EQ(names,
            (std::set<std::string>{"argument", "shape", "config", "file", "format", "text", "numeric", "cancelled"}));
}

TEST(Error, JoinPrintsAnything) {
  EXPECT_EQ(join("query ", Shape{2, 7, 64}, " has ", 8, " heads, ", 0.5, 'x'), "query [2, 7, 64] has 8 heads, 0.5x");
}

TEST(Shape, CountsAndCompares) {
  const Shape shape{2, 3, 4};
  EXPECT_EQ(shape.axes(), 3);
  EXPECT_EQ(shape[2], 4);
  EXPECT_EQ(shape.elements(), 24);
  EXPECT_EQ(Shape{}.elements(), 1);
  EXPECT_EQ((Shape{5, 0}).elements(), 0);
  EXPECT_EQ(shape, (Shape{2, 3, 4}));
  EXPECT_NE(shape, (Shape{2, 3}));
  EXPECT_NE((Shape{2, 3}), (Shape{2, 3, 1}));
}

TEST(Shape, RefusesFiveAxesAndNegativeSizes) {
  try {
    Shape shape{1, 2, 3, 4, 5};
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::shape);
    EXPECT_NE(std::string(error.what()).find("5 axes"), std::string::npos);
  }
  EXPECT_THROW((Shape{3, -1}), Error);
}

TEST(Names, OfActivationsAndPairings) {
  EXPECT_STREQ(name_of(Activation::none), "none");
  EXPECT_STREQ(name_of(Activation::relu), "relu");
  EXPECT_STREQ(name_of(Activation::gelu), "gelu");
  EXPECT_STREQ(name_of(Activation::gelu_tanh), "gelu_tanh");
  EXPECT_STREQ(name_of(Activation::silu), "silu");
  EXPECT_STREQ(name_of(Pairing::interleaved), "interleaved");
  EXPECT_STREQ(name_of(Pairing::halves), "halves");
}

TEST(Version, IsThreeNumbers) {
  int parts[3] = {-1, -1, -1};
  char end = 0;
  EXPECT_EQ(std::sscanf(version(), "%d.%d.%d%c", &parts[0], &parts[1], &parts[2], &end), 3) << version();
}

}  // namespace
}  // namespace attend
