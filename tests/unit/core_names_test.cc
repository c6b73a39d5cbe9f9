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

}  // namespace
}  // namespace attend
