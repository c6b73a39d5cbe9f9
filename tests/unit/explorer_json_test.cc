// What the explorer does with hostile JSON, and how it writes numbers.
#include <gtest/gtest.h>

#include <bit>
#include <charconv>
#include <cmath>
#include <functional>
#include <limits>
#include <string>

#include "attend/ops.h"
#include "explorer/api_error.h"
#include "explorer/json_request.h"
#include "explorer/json_writer.h"

namespace attend::explorer {
namespace {

// The error of an action, as kind and message.
ApiError error_of(const std::function<void()>& action) {
  try {
    action();
  } catch (...) {
    return current_error();
  }
  return {200, "none", "", ""};
}

TEST(ExplorerJson, RefusesWhatIsNoJson) {
  for (const std::string text :
       {"", " ", "{", "[1,]", "{\"a\":1,}", "NaN", "[Infinity]", "[-Infinity]", "{'a':1}", "[1e999]", "[01]",
        "\"\xff\"", "{\"a\" 1}", "[1] 2", "/* */ 1", "\"\\ud800\"", "nul", "[\"\x01\"]"}) {
    const ApiError error = error_of([&] { parse_json(text); });
    EXPECT_EQ(error.status(), 400) << text;
    EXPECT_EQ(error.kind(), "format") << text;
    EXPECT_EQ(error.where(), "body") << text;
  }
}

TEST(ExplorerJson, RefusesDepthAndRepeatedKeys) {
  const std::string deep = std::string(16, '[') + std::string(16, ']'),
                    too_deep = std::string(17, '[') + std::string(17, ']');
  EXPECT_EQ(error_of([&] { parse_json(deep); }).status(), 200);
  EXPECT_EQ(error_of([&] { parse_json(too_deep); }).kind(), "format");
  EXPECT_EQ(error_of([&] { parse_json(std::string(1 << 20, '[')); }).kind(), "format");
  EXPECT_EQ(error_of([&] { parse_json("{\"a\":{\"b\":1,\"c\":[],\"b\":2}}"); }).kind(), "format");
  EXPECT_EQ(error_of([&] { parse_json("{\"a\":{\"b\":1},\"c\":{\"b\":2}}"); }).status(), 200);
}

TEST(ExplorerJson, KeepsValues) {
  const Json value = parse_json("{\"a\":[1,-2.5,true,null,\"\xE4\xB8\xAD\"],\"b\":{\"c\":18446744073709551615}}");
  EXPECT_EQ(value["a"][0], 1);
  EXPECT_EQ(value["a"][1], -2.5);
  EXPECT_EQ(value["a"][4], "\xE4\xB8\xAD");
  EXPECT_EQ(value["b"]["c"].get<std::uint64_t>(), UINT64_MAX);
}

TEST(ExplorerJson, FieldsNameThePlaceOfEveryMistake) {
  const Limits limits;
  const auto error = [&](const std::string& text, const std::function<void(Fields&)>& read) {
    const Json body = parse_json(text);
    return error_of([&] {
      Fields fields(body, "edits[2]");
      read(fields);
      fields.finish();
    });
  };
  const auto integer = [](Fields& fields) { fields.integer("n", -1, 7); };
  EXPECT_EQ(error("{\"n\":7}", integer).status(), 200);
  EXPECT_EQ(error("{\"n\":7.0}", integer).status(), 200);
  for (const char* wrong : {"{\"n\":8}", "{\"n\":-2}", "{\"n\":1.5}", "{\"n\":\"1\"}", "{\"n\":true}", "{\"n\":null}",
                            "{}", "{\"n\":[]}", "{\"n\":18446744073709551615}", "{\"n\":1e300}"}) {
    const ApiError found = error(wrong, integer);
    EXPECT_EQ(found.kind(), "argument") << wrong;
    EXPECT_EQ(found.where(), "edits[2].n") << wrong;
  }
  EXPECT_EQ(error("[]", integer).kind(), "argument");

  const ApiError unknown = error("{\"n\":1,\"haed\":3}", integer);
  EXPECT_EQ(unknown.kind(), "argument");
  EXPECT_NE(unknown.what_happened().find("haed"), std::string::npos);

  const auto number = [](Fields& fields) { fields.number("x"); };
  EXPECT_EQ(error("{\"x\":3.5e38}", number).kind(), "numeric");
  EXPECT_EQ(error("{\"x\":-1e-300}", number).status(), 200);
  EXPECT_EQ(error("{\"x\":\"3\"}", number).kind(), "argument");

  const auto matrix = [&](Fields& fields) { fields.matrix("m", limits); };
  EXPECT_EQ(error("{\"m\":[[1,2],[3,4]]}", matrix).status(), 200);
  EXPECT_EQ(error("{\"m\":[[1,2],[3]]}", matrix).kind(), "shape");
  EXPECT_EQ(error("{\"m\":[[1,2],[3]]}", matrix).where(), "edits[2].m[1]");
  EXPECT_EQ(error("{\"m\":[]}", matrix).kind(), "shape");
  EXPECT_EQ(error("{\"m\":[[]]}", matrix).kind(), "shape");
  EXPECT_EQ(error("{\"m\":[[1,\"two\"]]}", matrix).where(), "edits[2].m[0][1]");
  EXPECT_EQ(error("{\"m\":[[1,null]]}", matrix).kind(), "argument");
  EXPECT_EQ(error("{\"m\":[[1,1e39]]}", matrix).kind(), "numeric");
  EXPECT_EQ(error("{\"m\":3}", matrix).kind(), "argument");
  std::string tall = "{\"m\":[";
  for (int row = 0; row < 513; ++row) tall += row ? ",[1]" : "[1]";
  EXPECT_EQ(error(tall + "]}", matrix).status(), 413);

  const auto range = [](Fields& fields) { fields.range("r", 5); };
  EXPECT_EQ(error("{\"r\":[0,5]}", range).status(), 200);
  for (const char* wrong :
       {"{\"r\":[0,6]}", "{\"r\":[3,3]}", "{\"r\":[-1,2]}", "{\"r\":[5,5]}", "{\"r\":[1]}", "{\"r\":2}"})
    EXPECT_EQ(error(wrong, range).kind(), "argument") << wrong;

  const auto choice = [](Fields& fields) { fields.choice("c", {"halves", "interleaved"}); };
  EXPECT_EQ(error("{\"c\":\"halves\"}", choice).status(), 200);
  EXPECT_NE(error("{\"c\":\"half\"}", choice).advice().find("interleaved"), std::string::npos);
}

TEST(ExplorerJson, WritesTheShortestDigitsThatReadBackToTheSameBits) {
  const auto written = [](float value) {
    JsonWriter out;
    out.value(value);
    return out.take();
  };
  EXPECT_EQ(written(0.1f), "0.1");
  EXPECT_EQ(written(1.0f), "1");
  EXPECT_EQ(written(std::numeric_limits<float>::infinity()), "null");
  EXPECT_EQ(written(std::nanf("")), "null");
  const Tensor numbers = normal({4096}, 1e3f, 7);
  for (std::int64_t i = 0; i < numbers.elements(); ++i) {
    // Every exponent: the low bits of the random number as a float of its own.
    const float value =
        i % 2 ? numbers.data()[i] : std::bit_cast<float>(std::bit_cast<std::uint32_t>(numbers.data()[i]) * 2654435761u);
    if (!std::isfinite(value)) continue;
    const std::string text = written(value);
    float back = 0;
    const auto [end, code] = std::from_chars(text.data(), text.data() + text.size(), back);
    ASSERT_EQ(code, std::errc());
    ASSERT_EQ(end, text.data() + text.size());
    EXPECT_EQ(std::bit_cast<std::uint32_t>(back), std::bit_cast<std::uint32_t>(value)) << text;
    EXPECT_LE(text.size(), 16u) << text;
    EXPECT_TRUE(Json::accept(text)) << text;
  }
}

TEST(ExplorerJson, WritesAnyTextAsJson) {
  JsonWriter out;
  const std::string text("a\"\\\n\r\t\x01\x1f\0 \xE4\xB8\xAD", 13);
  out.begin_object()
      .field("text", text)
      .field("bad", std::string_view("\xE4\xFF"))
      .field("list", std::vector<int>{1, 2})
      .key("none")
      .null()
      .end_object();
  const Json read = Json::parse(out.take());
  EXPECT_EQ(read["text"], text);
  EXPECT_EQ(read["bad"], "\xEF\xBF\xBD\xEF\xBF\xBD");
  EXPECT_EQ(read["list"], Json({1, 2}));
  EXPECT_TRUE(read["none"].is_null());
}

}  // namespace
}  // namespace attend::explorer
