// safetensors files: what is written, and what is refused.
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <functional>
#include <limits>

#include "attend/error.h"
#include "attend/safetensors.h"

namespace attend {
namespace {

std::string file_of(const std::string& header, const std::string& data) {
  const std::uint64_t length = header.size();
  std::string bytes(8, '\0');
  std::memcpy(bytes.data(), &length, 8);
  return bytes + header + data;
}

std::string entry(const std::string& name, const std::string& type, const std::string& shape, std::int64_t begin,
                  std::int64_t end) {
  return "\"" + name + "\":{\"dtype\":\"" + type + "\",\"shape\":" + shape + ",\"data_offsets\":[" +
         std::to_string(begin) + "," + std::to_string(end) + "]}";
}

std::string message_of(const std::function<void()>& run, ErrorKind kind) {
  try {
    run();
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), kind) << error.what();
    return error.what();
  }
  return "no error";
}

void expect_parts(const std::string& message, const std::vector<std::string>& parts) {
  for (const std::string& part : parts)
    EXPECT_NE(message.find(part), std::string::npos) << '"' << part << "\" is not in: " << message;
}

template <typename Number>
std::string bytes_of_numbers(std::initializer_list<Number> numbers) {
  std::string bytes;
  for (Number number : numbers) bytes.append(reinterpret_cast<const char*>(&number), sizeof(Number));
  return bytes;
}

TEST(Safetensors, WritesTheExactBytesOfTheFormat) {
  const Tensor b = Tensor::from({2}, std::vector<float>{1, -2}), a = Tensor::from({1, 1}, std::vector<float>{0.5f});
  const std::string bytes = safetensors_bytes({{"b", b}, {"a", a}}, {{"who", "me"}});
  std::string header =
      R"({"__metadata__":{"who":"me"},"a":{"data_offsets":[0,4],"dtype":"F32","shape":[1,1]},"b":{"data_offsets":[4,12],"dtype":"F32","shape":[2]}})";
  header.resize((header.size() + 7) / 8 * 8, ' ');
  EXPECT_EQ(bytes, file_of(header, bytes_of_numbers<float>({0.5f, 1, -2})));
  EXPECT_EQ(safetensors_bytes({{"a", a}, {"b", b}}, {{"who", "me"}}), bytes) << "the order given must not matter";
}

TEST(Safetensors, RoundTripKeepsEverything) {
  const auto path = std::filesystem::path(testing::TempDir()) / "attend-round-trip.safetensors";
  std::vector<float> numbers(200000);
  for (std::size_t i = 0; i < numbers.size(); ++i) numbers[i] = static_cast<float>(i) * 0.25f - 500;
  const Tensor large = Tensor::from({400, 500}, numbers), columns = large.columns(7, 3), empty = Tensor::zeros({0, 5});
  write_safetensors(path,
                    {{"large", large},
                     {"columns", columns},
                     {"empty", empty},
                     {"half", columns.row_range(0, 8), NumberType::float16},
                     {"brain", columns, NumberType::bfloat16}},
                    {{"note", "\xe4\xb8\xad \"quoted\""}});
  const SafetensorsFile file(path);
  EXPECT_EQ(file.entries().size(), 5u);
  EXPECT_EQ(file.metadata().at("note"), "\xe4\xb8\xad \"quoted\"");
  EXPECT_EQ(file.tensor("large").to_vector(), numbers);
  EXPECT_EQ(file.tensor("large").shape(), (Shape{400, 500}));
  EXPECT_EQ(file.tensor("columns").to_vector(), columns.clone().to_vector());
  EXPECT_EQ(file.tensor("empty").elements(), 0);
  for (const SafetensorsEntry& each : file.entries()) EXPECT_EQ(each.begin % bytes_of(each.type), 0) << each.name;
  const std::vector<float> half = file.tensor("half").to_vector();
  for (std::size_t i = 0; i < half.size(); ++i)
    EXPECT_EQ(half[i], columns.row_range(0, 8).clone().to_vector()[i]) << "quarters below 512 are exact";
  EXPECT_TRUE(file.has("brain"));
  EXPECT_FALSE(file.has("brai"));
  std::filesystem::remove(path);
}

TEST(Safetensors, ReadsEveryNumberType) {
  const std::string header = "{" + entry("a", "F64", "[1]", 0, 8) + "," + entry("b", "I64", "[2]", 8, 24) + "," +
                             entry("c", "I32", "[1]", 24, 28) + "," + entry("d", "F16", "[1]", 28, 30) + "," +
                             entry("e", "BF16", "[]", 30, 32) + "," + entry("f", "BOOL", "[2]", 32, 34) + "," +
                             entry("g", "I8", "[1]", 34, 35) + "," + entry("h", "U8", "[1]", 35, 36) + "," +
                             entry("i", "U16", "[1]", 36, 38) + "," + entry("j", "I16", "[1]", 38, 40) + "," +
                             entry("k", "U64", "[1]", 40, 48) + "," + entry("l", "U32", "[1]", 48, 52) + "}";
  const std::string data = bytes_of_numbers<double>({0.1}) +
                           bytes_of_numbers<std::int64_t>({-5, std::int64_t{1} << 40}) +
                           bytes_of_numbers<std::int32_t>({-7}) + bytes_of_numbers<std::uint16_t>({0x3e00, 0xc020}) +
                           std::string("\x00\x01\xff\xff", 4) + bytes_of_numbers<std::uint16_t>({65535}) +
                           bytes_of_numbers<std::int16_t>({-2}) + bytes_of_numbers<std::uint64_t>({~std::uint64_t{0}}) +
                           bytes_of_numbers<std::uint32_t>({~0u});
  const SafetensorsFile file(file_of(header, data), "x");
  EXPECT_EQ(file.tensor("a").item(), 0.1f);
  EXPECT_EQ(file.integers("b"), (std::vector<std::int64_t>{-5, std::int64_t{1} << 40}));
  EXPECT_EQ(file.integers("c"), (std::vector<std::int64_t>{-7}));
  EXPECT_EQ(file.tensor("d").item(), 1.5f);
  EXPECT_EQ(file.tensor("e").item(), -2.5f);
  EXPECT_EQ(file.tensor("e").shape(), Shape{1}) << "a single number";
  EXPECT_EQ(file.integers("f"), (std::vector<std::int64_t>{0, 1}));
  EXPECT_EQ(file.integers("g"), (std::vector<std::int64_t>{-1}));
  EXPECT_EQ(file.integers("h"), (std::vector<std::int64_t>{255}));
  EXPECT_EQ(file.integers("i"), (std::vector<std::int64_t>{65535}));
  EXPECT_EQ(file.integers("j"), (std::vector<std::int64_t>{-2}));
  EXPECT_EQ(file.integers("l"), (std::vector<std::int64_t>{4294967295}));
  expect_parts(message_of([&] { file.integers("k"); }, ErrorKind::format), {"x", "\"k\"", "18446744073709551615"});
  expect_parts(message_of([&] { file.integers("a"); }, ErrorKind::format), {"\"a\"", "F64", "integer"});
  expect_parts(message_of([&] { file.tensor("b"); }, ErrorKind::format), {"\"b\"", "I64", "F32"});
  expect_parts(message_of([&] { file.tensor("z"); }, ErrorKind::format), {"no tensor \"z\""});
}

TEST(Safetensors, RefusesBrokenFiles) {
  struct Case {
    const char* name;
    std::string bytes;
    std::vector<std::string> parts;
  };
  const std::string one = entry("a", "F32", "[2]", 0, 8), eight(8, '\1');
  const auto length_only = [](std::uint64_t length, const std::string& rest) {
    std::string bytes(8, '\0');
    std::memcpy(bytes.data(), &length, 8);
    return bytes + rest;
  };
  std::string many_sizes = "[1";
  for (int i = 0; i < 200; ++i) many_sizes += ",1";
  many_sizes += "]";
  const std::string huge = "9223372036854775807";
  const std::vector<Case> cases{
      {"empty", "", {"holds 0 bytes"}},
      {"seven bytes", "1234567", {"holds 7 bytes"}},
      {"length only", length_only(10, ""), {"header has 10 bytes", "only 0 follow"}},
      {"header cut short", file_of("{" + one + "}", eight).substr(0, 30), {"only 22 follow", "cut short"}},
      {"oversized header", length_only(std::uint64_t{1} << 40, "{}"), {"1099511627776", "100000000"}},
      {"negative length", length_only(~std::uint64_t{0}, "{}"), {"18446744073709551615", "limit"}},
      {"no header", length_only(0, ""), {"0 bytes"}},
      {"garbage", std::string("\x89PNG\r\n\x1a\n rubbish rubbish"), {"limit"}},
      {"text file", "hello, this is no safetensors file", {"limit"}},
      {"not an object", file_of("[1, 2]  ", ""), {"does not begin with {"}},
      {"spaces first", file_of(" {}", ""), {"does not begin with {"}},
      {"not JSON", file_of("{\"a\"", ""), {"not JSON"}},
      {"two objects", file_of("{}{}", ""), {"not JSON"}},
      {"bad UTF-8", file_of("{\"\xff\":1}", ""), {"not JSON"}},
      {"nested", file_of("{\"a\":{\"shape\":[[[[[[1]]]]]]}}", ""), {"shape", "\"a\"", "a list"}},
      {"deeply nested", file_of("{\"a\":" + std::string(1000000, '[') + "}", ""), {"\"a\"", "a list"}},
      {"deep objects", file_of("{\"a\":{\"dtype\":{\"x\":1}}}", ""), {"dtype", "an object", "a string"}},
      {"entry is a number", file_of("{\"a\":5}", ""), {"\"a\"", "dtype, shape and data_offsets"}},
      {"entry is null", file_of("{\"a\":null}", ""), {"\"a\"", "null"}},
      {"unknown key", file_of("{\"a\":{\"strides\":[1]}}", ""), {"\"a\"", "unknown key \"strides\""}},
      {"key twice", file_of("{\"a\":{\"dtype\":\"F32\",\"dtype\":\"F32\"}}", ""), {"\"a\"", "dtype twice"}},
      {"no dtype", file_of("{\"a\":{\"shape\":[],\"data_offsets\":[0,0]}}", ""), {"\"a\"", "no dtype"}},
      {"no shape", file_of("{\"a\":{\"dtype\":\"F32\",\"data_offsets\":[0,0]}}", ""), {"\"a\"", "no shape"}},
      {"no offsets", file_of("{\"a\":{\"dtype\":\"F32\",\"shape\":[]}}", ""), {"\"a\"", "no data_offsets"}},
      {"unknown dtype",
       file_of("{" + entry("a", "F8_E4M3", "[8]", 0, 8) + "}", eight),
       {"\"a\"", "F8_E4M3", "not supported"}},
      {"dtype is a number", file_of("{\"a\":{\"dtype\":3}}", ""), {"dtype", "\"a\"", "a string"}},
      {"negative size", file_of("{" + entry("a", "F32", "[-2]", 0, 8) + "}", eight), {"negative", "shape", "\"a\""}},
      {"fractional size", file_of("{" + entry("a", "F32", "[2.0]", 0, 8) + "}", eight), {"fraction", "shape", "\"a\""}},
      {"size beyond int64",
       file_of("{" + entry("a", "F32", "[18446744073709551615]", 0, 8) + "}", eight),
       {"too large", "\"a\""}},
      {"size beyond uint64",
       file_of("{" + entry("a", "F32", "[99999999999999999999]", 0, 8) + "}", eight),
       {"too large", "\"a\""}},
      {"product overflows",
       file_of("{" + entry("a", "F32", "[" + huge + ",4]", 0, 8) + "}", eight),
       {"\"a\"", "more numbers than there can be"}},
      {"product wraps to the right size",
       file_of("{" + entry("a", "F32", "[4294967296,4294967296,2]", 0, 0) + "}", ""),
       {"\"a\"", "more numbers"}},
      {"too many axes", file_of("{" + entry("a", "F32", many_sizes, 0, 4) + "}", "abcd"), {"\"a\"", "more than 64"}},
      {"one offset",
       file_of("{\"a\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[0]}}", eight),
       {"\"a\"", "1 data_offsets"}},
      {"three offsets",
       file_of("{\"a\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[0,4,8]}}", eight),
       {"\"a\"", "3 data_offsets"}},
      {"offsets reversed", file_of("{" + entry("a", "F32", "[2]", 8, 0) + "}", eight), {"\"a\"", "bytes 8 to 0"}},
      {"offsets outside",
       file_of("{" + entry("a", "F32", "[4]", 0, 16) + "}", eight),
       {"\"a\"", "0 to 16", "holds 8 bytes", "cut short"}},
      {"bytes do not fit the shape",
       file_of("{" + entry("a", "F32", "[3]", 0, 8) + "}", eight),
       {"\"a\"", "[3]", "needs 12 bytes", "span 8"}},
      {"bytes do not fit the dtype",
       file_of("{" + entry("a", "F16", "[2]", 0, 8) + "}", eight),
       {"\"a\"", "F16", "needs 4 bytes", "span 8"}},
      {"overlap",
       file_of("{" + one + "," + entry("b", "F32", "[1]", 4, 8) + "}", eight),
       {"\"a\"", "\"b\"", "overlap at byte 4"}},
      {"same place",
       file_of("{" + one + "," + entry("b", "F32", "[2]", 0, 8) + "}", eight),
       {"\"a\"", "\"b\"", "overlap at byte 0"}},
      {"gap in front",
       file_of("{" + entry("a", "F32", "[1]", 4, 8) + "}", eight),
       {"bytes 0 to 4", "\"a\"", "no tensor"}},
      {"gap between",
       file_of("{" + entry("a", "F32", "[1]", 0, 4) + "," + entry("b", "I8", "[1]", 7, 8) + "}", eight),
       {"bytes 4 to 7", "\"b\""}},
      {"left over at the end", file_of("{" + one + "}", eight + "xyz"), {"3 bytes", "no tensor"}},
      {"name twice",
       file_of("{" + entry("a", "I8", "[4]", 0, 4) + "," + entry("a", "I8", "[4]", 4, 8) + "}", eight),
       {"\"a\"", "twice"}},
      {"metadata twice", file_of("{\"__metadata__\":{},\"__metadata__\":{}}", ""), {"__metadata__", "twice"}},
      {"metadata key twice", file_of("{\"__metadata__\":{\"x\":\"1\",\"x\":\"2\"}}", ""), {"\"x\"", "twice"}},
      {"metadata of numbers", file_of("{\"__metadata__\":{\"x\":1}}", ""), {"__metadata__", "only strings"}},
      {"metadata of objects", file_of("{\"__metadata__\":{\"x\":{}}}", ""), {"__metadata__", "only strings"}},
      {"metadata is a list", file_of("{\"__metadata__\":[]}", ""), {"__metadata__", "an object of strings"}},
  };
  for (const Case& each : cases) {
    SCOPED_TRACE(each.name);
    std::vector<std::string> parts = each.parts;
    parts.push_back("some/model.safetensors: ");
    const std::string message =
        message_of([&] { SafetensorsFile(each.bytes, "some/model.safetensors"); }, ErrorKind::format);
    expect_parts(message, parts);
    EXPECT_LT(message.size(), 500u);
  }
}

TEST(Safetensors, LongNamesAreCutInMessages) {
  const std::string name(100000, 'n');
  const std::string message = message_of(
      [&] { SafetensorsFile(file_of("{" + entry(name, "F32", "[3]", 0, 8) + "}", std::string(8, ' ')), "x"); },
      ErrorKind::format);
  EXPECT_LT(message.size(), 500u);
}

TEST(Safetensors, EveryTruncationAndEveryBitOfTheHeaderIsSafe) {
  const Tensor a = Tensor::from({2, 3}, std::vector<float>{1, 2, 3, 4, 5, 6}),
               b = Tensor::from({2}, std::vector<float>{7, 8});
  const std::string whole = safetensors_bytes({{"a", a}, {"b", b, NumberType::float16}}, {{"k", "v"}});
  for (std::size_t length = 0; length < whole.size(); ++length)
    EXPECT_THROW(SafetensorsFile(whole.substr(0, length), "x"), Error) << length;
  for (std::size_t byte = 0; byte < whole.size() - 28; ++byte)
    for (int bit = 0; bit < 8; ++bit) {
      std::string changed = whole;
      changed[byte] = static_cast<char>(changed[byte] ^ (1 << bit));
      try {
        const SafetensorsFile file(changed, "x");
        for (const SafetensorsEntry& each : file.entries()) {
          std::vector<float> values(static_cast<std::size_t>(each.elements));
          if (each.type == NumberType::float32 || each.type == NumberType::float16) file.read(each, values);
        }
      } catch (const Error&) {
      }
    }
}

TEST(Safetensors, FilesThatCannotBeRead) {
  expect_parts(message_of([] { SafetensorsFile("/nowhere/model.safetensors"); }, ErrorKind::file),
               {"/nowhere/model.safetensors", "cannot open", "No such file"});
  expect_parts(message_of([] { SafetensorsFile(std::filesystem::path(testing::TempDir())); }, ErrorKind::file),
               {"is not a file"});
  expect_parts(message_of([] { SafetensorsFile(std::filesystem::path("/dev/zero")); }, ErrorKind::file),
               {"is not a file"});
}

TEST(Safetensors, AFileThatShrinksIsAnError) {
  const auto path = std::filesystem::path(testing::TempDir()) / "attend-shrinks.safetensors";
  write_safetensors(path, {{"a", Tensor::zeros({1000})}});
  const SafetensorsFile file(path);
  std::filesystem::resize_file(path, 500);
  expect_parts(message_of([&] { file.tensor("a"); }, ErrorKind::file), {"ends at byte 500"});
  std::filesystem::remove(path);
}

TEST(Safetensors, NumbersThatTheTypeCannotHoldAreNamed) {
  const auto path = std::filesystem::path(testing::TempDir()) / "attend-overflow.safetensors";
  std::filesystem::remove(path);
  Tensor x = Tensor::zeros({2, 3});
  x.row(1)[2] = 65519.99f;
  EXPECT_NO_THROW(write_safetensors(path, {{"x", x, NumberType::float16}}));
  const std::string before = safetensors_bytes({{"x", x, NumberType::float16}});
  x.row(1)[2] = 65520;
  expect_parts(message_of(
                   [&] {
                     write_safetensors(path, {{"x", x, NumberType::float16}});
                   },
                   ErrorKind::numeric),
               {"\"x\"", "65520", "[1, 2]", "F16", "BF16"});
  // The file of before is whole, and nothing else is left.
  std::ifstream in(path, std::ios::binary);
  EXPECT_EQ(std::string(std::istreambuf_iterator<char>(in), {}), before);
  EXPECT_FALSE(std::filesystem::exists(path.string() + ".partial"));
  x.row(1)[2] = 3.4e38f;
  expect_parts(message_of(
                   [&] {
                     safetensors_bytes({{"x", x, NumberType::bfloat16}});
                   },
                   ErrorKind::numeric),
               {"\"x\"", "BF16", "F32"});
  std::filesystem::remove(path);
}

TEST(Safetensors, WriterRefusesBadNames) {
  const Tensor x = Tensor::zeros({1});
  expect_parts(message_of([&] { safetensors_bytes({{"x", x}, {"x", x}}); }, ErrorKind::argument), {"\"x\"", "twice"});
  expect_parts(message_of([&] { safetensors_bytes({{"__metadata__", x}}); }, ErrorKind::argument), {"__metadata__"});
  expect_parts(message_of([&] { safetensors_bytes({{"\xff", x}}); }, ErrorKind::argument), {"UTF-8"});
  expect_parts(message_of([&] { safetensors_bytes({{"x", Tensor()}}); }, ErrorKind::argument), {"\"x\"", "undefined"});
  expect_parts(message_of(
                   [&] {
                     safetensors_bytes({{"x", x, NumberType::int8}});
                   },
                   ErrorKind::argument),
               {"\"x\"", "I8"});
}

TEST(RequireFinite, NamesTensorAndIndex) {
  Tensor x = Tensor::zeros({2, 3, 4});
  EXPECT_NO_THROW(require_finite("m", "x", x));
  x.data()[1 * 12 + 2 * 4 + 3] = -std::numeric_limits<float>::infinity();
  expect_parts(message_of([&] { require_finite("m", "x", x); }, ErrorKind::numeric),
               {"m: ", "\"x\"", "infinity", "[1, 2, 3]"});
  x.data()[5] = std::numeric_limits<float>::quiet_NaN();
  expect_parts(message_of([&] { require_finite("m", "x", x); }, ErrorKind::numeric), {"NaN", "[0, 1, 1]"});
}

}  // namespace
}  // namespace attend
