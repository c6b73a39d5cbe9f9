#include "core/names.h"

#include <gtest/gtest.h>

namespace attend {
namespace {

TEST(EditDistance, CountsTheFewestEdits) {
  EXPECT_EQ(edit_distance("", ""), 0u);
  EXPECT_EQ(edit_distance("", "abc"), 3u);
  EXPECT_EQ(edit_distance("abc", ""), 3u);
  EXPECT_EQ(edit_distance("kitten", "sitting"), 3u);
  EXPECT_EQ(edit_distance("flaw", "lawn"), 2u);
  EXPECT_EQ(edit_distance("weights", "wieghts"), 2u);
}

TEST(NearestName, IsASlipAway) {
  const std::vector<std::string> names{"width", "heads", "key_heads", "relative_max_distance"};
  EXPECT_EQ(nearest_name("widht", names), "width");
  EXPECT_EQ(nearest_name("head", names), "heads");
  EXPECT_EQ(nearest_name("relative_maximum_distance", names), "relative_max_distance");
  EXPECT_EQ(nearest_name("layers", names), "");
  EXPECT_EQ(nearest_name("relative", names), "relative_max_distance") << "the beginning of a name";
  EXPECT_EQ(nearest_name("re", names), "") << "as good as nothing";
  EXPECT_EQ(nearest_name(std::string(101, 'w'), names), "");
  EXPECT_EQ(nearest_name("width", {}), "");
}

TEST(NearestThree, AreNamedHoweverFar) {
  EXPECT_EQ(nearest_three("weights", {"wieghts", "width", "zzzzzzzzzz", "weight"}), "weight, wieghts and width");
  EXPECT_EQ(nearest_three("a", {"b", "cc"}), "b and cc");
  EXPECT_EQ(nearest_three("a", {"bbb"}), "bbb");
  EXPECT_EQ(nearest_three(std::string(1 << 20, 'a'), {}), "");
}

TEST(NamesInMessages, AreListedCutAndQuoted) {
  EXPECT_EQ(listed({}), "");
  EXPECT_EQ(listed(std::vector<std::string>{"a"}), "a");
  EXPECT_EQ(listed(std::vector<std::string>{"a", "b", "c"}), "a, b, c");
  EXPECT_EQ(shortened("abc", 3), "abc");
  EXPECT_EQ(shortened("abcd", 3), "abc...");
  EXPECT_EQ(shortened("学习", 4), "学...") << "no character is cut";
  EXPECT_EQ(in_quotes("学习"), "\"学习\"");
  EXPECT_EQ(in_quotes("a\"b\\c\nd\te\x01"), "\"a\\\"b\\\\c\\nd\\te\\u0001\"");
  EXPECT_EQ(in_quotes(std::string_view("a\0b", 3)), "\"a\\u0000b\"");
  EXPECT_EQ(in_quotes(std::string(1000, 'x')), '"' + std::string(100, 'x') + "...\"");
  EXPECT_EQ(in_quotes(std::string(98, 'x') + "学习"), '"' + std::string(98, 'x') + "...\"");
}

}  // namespace
}  // namespace attend
