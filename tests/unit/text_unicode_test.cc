#include <gtest/gtest.h>

#include "attend/error.h"
#include "attend/scripts.h"
#include "attend/unicode.h"
#include "text/utf8.h"
#include "unit/text_files.h"

namespace attend {
namespace {

constexpr auto nowhere = std::string_view::npos;

TEST(Utf8, WellFormedTextHasNoInvalidByte) {
  EXPECT_EQ(find_invalid_utf8(""), nowhere);
  EXPECT_EQ(find_invalid_utf8("plain"), nowhere);
  EXPECT_EQ(find_invalid_utf8(
                "\xC2\x80\xDF\xBF\xE0\xA0\x80\xED\x9F\xBF\xEE\x80\x80\xEF\xBF\xBF\xF0\x90\x80\x80\xF4\x8F\xBF\xBF"),
            nowhere);
  EXPECT_EQ(find_invalid_utf8(std::string_view("a\0b", 3)), nowhere);
}

TEST(Utf8, IllFormedFormsAreFoundWhereTheyStart) {
  EXPECT_EQ(find_invalid_utf8("ab\x80"), 2u);            // continuation alone
  EXPECT_EQ(find_invalid_utf8("\xC0\x80"), 0u);          // overlong
  EXPECT_EQ(find_invalid_utf8("\xE0\x9F\xBF"), 0u);      // overlong
  EXPECT_EQ(find_invalid_utf8("\xF0\x8F\xBF\xBF"), 0u);  // overlong
  EXPECT_EQ(find_invalid_utf8("x\xED\xA0\x80"), 1u);     // surrogate
  EXPECT_EQ(find_invalid_utf8("\xF4\x90\x80\x80"), 0u);  // above U+10FFFF
  EXPECT_EQ(find_invalid_utf8("\xF5\x80\x80\x80"), 0u);
  EXPECT_EQ(find_invalid_utf8("\xE4\xBD\xA0\xE5\xA5"), 3u);  // cut short
}

// The example of the Unicode standard, table 3-8 and its neighbours: one U+FFFD for each maximal ill-formed subsequence.
TEST(Utf8, ReplacementFollowsTheStandard) {
  std::int64_t count = 0;
  EXPECT_EQ(replace_invalid_utf8("\x61\xF1\x80\x80\xE1\x80\xC2\x62\x80\x63\x80\xBF\x64", &count),
            "a\xEF\xBF\xBD\xEF\xBF\xBD\xEF\xBF\xBD"
            "b\xEF\xBF\xBD"
            "c\xEF\xBF\xBD\xEF\xBF\xBD"
            "d");
  EXPECT_EQ(count, 6);
  EXPECT_EQ(replace_invalid_utf8("\xC0\xAF\xE0\x80\xBF\xF0\x81\x82\x41"),
            "\xEF\xBF\xBD\xEF\xBF\xBD\xEF\xBF\xBD\xEF\xBF\xBD\xEF\xBF\xBD\xEF\xBF\xBD\xEF\xBF\xBD\xEF\xBF\xBD"
            "A");
  EXPECT_EQ(replace_invalid_utf8("\xED\xA0\x80\xED\xBF\xBF\xED\xAF\x41"),
            "\xEF\xBF\xBD\xEF\xBF\xBD\xEF\xBF\xBD\xEF\xBF\xBD\xEF\xBF\xBD\xEF\xBF\xBD\xEF\xBF\xBD\xEF\xBF\xBD"
            "A");
}

TEST(Utf8, EveryCharacterSurvivesTheRoundTrip) {
  for (char32_t c = 0; c <= 0x10FFFF; ++c) {
    if (c >= 0xD800 && c <= 0xDFFF) continue;
    const std::string text = text_of({c});
    ASSERT_EQ(characters_of(text), std::vector<char32_t>{c}) << std::hex << static_cast<std::uint32_t>(c);
  }
  EXPECT_EQ(text_of({0xD800}), "\xEF\xBF\xBD");
  EXPECT_EQ(text_of({0x110000}), "\xEF\xBF\xBD");
}

TEST(Utf8, CharactersOfIllFormedTextNameTheByte) {
  expect_error(ErrorKind::text, {"byte 3", "0xFF"}, [] { characters_of("ab\xFF"); });
  expect_error(ErrorKind::text, {"byte 1"}, [] { normalise("\xFF", Normalisation::nfc); });
}

TEST(Normalise, ComposesAndFolds) {
  EXPECT_EQ(normalise("e\xCC\x81", Normalisation::none), "e\xCC\x81");
  EXPECT_EQ(normalise("e\xCC\x81", Normalisation::nfc), "\xC3\xA9");
  EXPECT_EQ(normalise("\xEF\xBC\x8C\xEF\xBC\x81\xEF\xBC\xA1", Normalisation::nfc),
            "\xEF\xBC\x8C\xEF\xBC\x81\xEF\xBC\xA1");
  EXPECT_EQ(normalise("\xEF\xBC\x8C\xEF\xBC\x81\xEF\xBC\xA1", Normalisation::nfkc), ",!A");
  EXPECT_EQ(normalise("\xEF\xAC\x81", Normalisation::nfkc), "fi");
  EXPECT_EQ(normalise("\xED\x95\x9C", Normalisation::nfc),
            normalise("\xE1\x84\x92\xE1\x85\xA1\xE1\x86\xAB", Normalisation::nfc));
  const std::string with_nul("\xC3\xA9\0e\xCC\x81", 6);
  EXPECT_EQ(normalise(with_nul, Normalisation::nfc), std::string("\xC3\xA9\0\xC3\xA9", 5));
}

TEST(Normalise, NamesAreKnown) {
  for (const auto n : {Normalisation::none, Normalisation::nfc, Normalisation::nfkc})
    EXPECT_EQ(normalisation_named(name_of(n)), n);
  expect_error(ErrorKind::argument, {"\"NFC\"", "nfc"}, [] { normalisation_named("NFC"); });
}

TEST(LowerCase, KnowsTheTwoSpecialCharacters) {
  EXPECT_EQ(lower_case("ABC \xC3\x84\xE4\xBD\xA0 \xD0\x96"), "abc \xC3\xA4\xE4\xBD\xA0 \xD0\xB6");
  EXPECT_EQ(lower_case("\xC4\xB0"), "i\xCC\x87");
  EXPECT_EQ(lower_case("\xCE\x9F\xCE\x94\xCE\x9F\xCE\xA3 \xCE\xA3"), "\xCE\xBF\xCE\xB4\xCE\xBF\xCF\x82 \xCF\x83");
}

TEST(IsBlank, KnowsTheWhiteSpaceOfAllScripts) {
  for (const char* blank : {"", " ", " \t\r\n\f\v", "\u3000", " \u3000\u00A0\u2003\u2028"})
    EXPECT_TRUE(is_blank(blank)) << blank;
  // U+200B and U+2581 are no white space; ill-formed bytes are no text, but something.
  for (const char* text : {"a", " \u3000. ", "\u200B", "\u2581", "\xE3\x80", " \xFF"})
    EXPECT_FALSE(is_blank(text)) << text;
}

TEST(DisplayWidth, CountsColumns) {
  EXPECT_EQ(display_width(""), 0);
  EXPECT_EQ(display_width("abc"), 3);
  EXPECT_EQ(display_width("\xE4\xBD\xA0\xE5\xA5\xBD!"), 5);
  EXPECT_EQ(display_width("e\xCC\x81"), 1);
  EXPECT_EQ(display_width("\xEF\xBC\x81"), 2);
  EXPECT_EQ(display_width("\xFF"
                          "a"),
            2);
}

TEST(Scripts, HanAgainstWords) {
  EXPECT_DOUBLE_EQ(han_share(""), 0.0);
  EXPECT_DOUBLE_EQ(han_share("123 !?"), 0.0);
  EXPECT_DOUBLE_EQ(han_share("Hello world"), 0.0);
  EXPECT_DOUBLE_EQ(han_share("\xE6\x88\x91\xE5\x96\x9C\xE6\xAC\xA2Python"), 0.75);
  EXPECT_DOUBLE_EQ(han_share("\xE6\xB1\x89 one two three"), 0.25);
  EXPECT_DOUBLE_EQ(han_share("\xFF\xE6\xB1\x89\xFF"), 1.0);
  EXPECT_DOUBLE_EQ(han_share("e\xCC\x81"
                             "e\xCC\x81"),
                   0.0);  // a mark does not end the word...
  EXPECT_DOUBLE_EQ(han_share("e\xCC\x81"
                             "e \xE6\xB1\x89"),
                   0.5);                                 // ...so this is one word and one Han
  EXPECT_DOUBLE_EQ(han_share("\xF0\xA0\x80\x80"), 1.0);  // U+20000
}

TEST(Scripts, DirectionOfRealLines) {
  EXPECT_TRUE(mostly_han("\xE4\xBB\x96\xE7\x94\xA8iPhone 15 Pro Max\xE6\x8B\x8D\xE7\x85\xA7\xE3\x80\x82"));
  EXPECT_TRUE(mostly_han("\xE6\xB1\x89"));
  EXPECT_FALSE(mostly_han("The character \xE6\xB1\x89 means Han."));
  EXPECT_FALSE(mostly_han("\xE3\x80\x82 42"));
  EXPECT_FALSE(mostly_han(""));
}

}  // namespace
}  // namespace attend
