// Hashes are in files that exist: these values must never change.
#include <gtest/gtest.h>

#include "core/hash.h"

namespace attend {
namespace {

TEST(Hash, ValuesOfFilesThatExist) {
  EXPECT_EQ(mix_bits(0), 0xE220A8397B1DCDAFu);
  EXPECT_EQ(mix_bits(std::uint64_t{1} << 32), 0xC42C5A1AA3820138u);
  ByteHash bytes;
  for (const char c : {'f', 'o', 'o', 'b', 'a', 'r'}) bytes.byte(static_cast<std::uint8_t>(c));
  EXPECT_EQ(bytes.value(), 0x85944171F73967E8u);  // of the authors' own list
  ByteHash text;
  text.text("abc");
  EXPECT_EQ(text.value(), 0xC11AB6D2519BC2B2u);
  ByteHash words;
  words.number(2);
  words.word(70000);
  words.word(0xFFFFFFFEu);
  EXPECT_EQ(words.value(), 0x0EF1807AC2E6B0F1u);
  WordHash numbers;
  numbers.text("abc");
  numbers.number(0x3F800000u);
  EXPECT_EQ(numbers.value(), 0x04AECB35DD44EA79u);
  EXPECT_EQ(hexadecimal(numbers.value()), "04aecb35dd44ea79");
  EXPECT_EQ(hexadecimal(0), "0000000000000000");
}

}  // namespace
}  // namespace attend
