#include <gtest/gtest.h>
#include <zlib.h>

#include <bit>
#include <cstring>
#include <map>
#include <nlohmann/json.hpp>

#include "attend/error.h"
#include "attend/pictures.h"
#include "attend/unicode.h"
#include "inspect/pictures/image.h"
#include "inspection_fixture.h"

namespace attend {
namespace {

// RFC 4180 to the letter: CRLF between records, quotes only around whole fields.
std::vector<std::vector<std::string>> parse_csv(const std::string& text) {
  std::vector<std::vector<std::string>> records;
  std::size_t at = 0;
  while (at < text.size()) {
    std::vector<std::string> record;
    for (;;) {
      std::string field;
      if (text.at(at) == '"') {
        for (++at;; ++at) {
          if (text.at(at) != '"') field += text[at];
          else if (at + 1 < text.size() && text[at + 1] == '"') field += '"', ++at;
          else break;
        }
        ++at;
      } else {
        while (text.at(at) != ',' && text[at] != '\r') {
          EXPECT_NE(text[at], '"');
          EXPECT_NE(text[at], '\n');
          field += text[at++];
        }
      }
      record.push_back(field);
      if (text.at(at) == ',') {
        ++at;
        continue;
      }
      EXPECT_EQ(text.substr(at, 2), "\r\n");
      at += 2;
      break;
    }
    records.push_back(record);
  }
  return records;
}

bool same_bits(float a, float b) { return std::bit_cast<std::uint32_t>(a) == std::bit_cast<std::uint32_t>(b); }
bool same(float a, float b) { return same_bits(a, b) || (std::isnan(a) && std::isnan(b)); }

struct Array {
  std::string type;
  std::vector<std::int64_t> shape;
  std::string data;
};

Array parse_npy(const std::string& bytes) {
  EXPECT_EQ(bytes.substr(0, 8), std::string("\x93NUMPY\x01\x00", 8));
  const std::size_t length = static_cast<unsigned char>(bytes.at(8)) + 256u * static_cast<unsigned char>(bytes.at(9));
  EXPECT_EQ((10 + length) % 64, 0u);
  const std::string header = bytes.substr(10, length);
  EXPECT_EQ(header.back(), '\n');
  EXPECT_NE(header.find("'fortran_order': False"), std::string::npos);
  Array array;
  const std::size_t type = header.find("'descr': '") + 10;
  array.type = header.substr(type, header.find('\'', type) - type);
  std::string shape = header.substr(header.find('(') + 1);
  shape = shape.substr(0, shape.find(')'));
  for (std::size_t at = 0; at < shape.size();) {
    std::size_t used = 0;
    array.shape.push_back(std::stoll(shape.substr(at), &used));
    at += used;
    while (at < shape.size() && (shape[at] == ',' || shape[at] == ' ')) ++at;
  }
  array.data = bytes.substr(10 + length);
  return array;
}

// A stored zip: what the central directory promises must be there, with the right checksum.
std::map<std::string, std::string> parse_zip(const std::string& bytes) {
  const auto u16 = [&](std::size_t at) {
    return static_cast<unsigned char>(bytes.at(at)) + 256u * static_cast<unsigned char>(bytes.at(at + 1));
  };
  const auto u32 = [&](std::size_t at) { return u16(at) + 65536u * u16(at + 2); };
  std::map<std::string, std::string> files;
  const std::size_t end = bytes.size() - 22;
  EXPECT_EQ(u32(end), 0x06054b50u);
  std::size_t at = u32(end + 16);
  EXPECT_EQ(at + u32(end + 12), end);
  for (unsigned i = 0; i < u16(end + 10); ++i) {
    EXPECT_EQ(u32(at), 0x02014b50u);
    const std::size_t size = u32(at + 20), name_length = u16(at + 28), local = u32(at + 42);
    EXPECT_EQ(u32(local), 0x04034b50u);
    EXPECT_EQ(bytes.substr(local + 4, 26), bytes.substr(at + 6, 26));
    const std::string name = bytes.substr(at + 46, name_length), data = bytes.substr(local + 30 + name_length, size);
    EXPECT_EQ(bytes.substr(local + 30, name_length), name);
    EXPECT_EQ(u32(at + 16), crc32(0, reinterpret_cast<const Bytef*>(data.data()), static_cast<uInt>(data.size())));
    files[name] = data;
    at += 46 + name_length;
  }
  return files;
}

TEST(InspectFiles, CsvOfCellsRoundTrips) {
  const Inspection inspection = inspection_of(hostile_tokens().size(), hostile_tokens().size(), true, hostile_tokens());
  const ShownAttention& attention = inspection.attentions[0];
  const auto records = parse_csv(csv_of_cells(inspection));
  const std::vector<std::string> header = {"attention", "layer",  "head",   "query",       "query_token", "key",
                                           "key_token", "masked", "weight", "first_order", "exact"};
  ASSERT_EQ(records.at(0), header);
  const std::size_t n = hostile_tokens().size();
  ASSERT_EQ(records.size(), 1 + 6 * n * n);
  std::size_t cell = 0;
  for (std::size_t layer = 0; layer < 2; ++layer)
    for (std::size_t head = 0; head < 3; ++head)
      for (std::size_t q = 0; q < n; ++q)
        for (std::size_t k = 0; k < n; ++k, ++cell) {
          const auto& record = records[1 + cell];
          ASSERT_EQ(record.size(), header.size());
          ASSERT_EQ(record[0], "cross");
          ASSERT_EQ(record[1], std::to_string(attention.layers[layer]));
          ASSERT_EQ(record[2], std::to_string(attention.heads[head]));
          ASSERT_EQ(record[3], std::to_string(q));
          ASSERT_EQ(record[4], replace_invalid_utf8(inspection.texts[1].tokens[q].text));
          ASSERT_EQ(record[6], replace_invalid_utf8(inspection.texts[0].tokens[k].text));
          ASSERT_EQ(record[7], k > q ? "1" : "0");
          for (std::size_t m = 0; m < 3; ++m) {
            const float value = attention.measures[m].values[cell];
            if (std::isnan(value)) ASSERT_EQ(record[8 + m], "");
            else ASSERT_TRUE(same_bits(std::stof(record[8 + m]), value)) << record[8 + m];
          }
        }
}

TEST(InspectFiles, CsvKeepsHardNumbersAndAbsentMeasures) {
  Inspection inspection = inspection_of(1, 1);
  ShownAttention other = inspection.attentions[0];
  other.name = "a,\"b\"";
  other.heads = {mean_of_all};
  other.measures = {{"only here", "", MeasureKind::effect, {-0.f, 1.17549435e-38f}}};
  other.statistics.clear();
  other.metrics.clear();
  inspection.attentions.push_back(other);
  const auto records = parse_csv(csv_of_cells(inspection));
  ASSERT_EQ(records.size(), 9u);
  EXPECT_EQ(records[0].back(), "only here");
  EXPECT_EQ(records[1].back(), "");
  EXPECT_EQ(records[7][0], "a,\"b\"");
  EXPECT_EQ(records[7][2], "mean");
  EXPECT_EQ(records[7][8], "");
  EXPECT_TRUE(same_bits(std::stof(records[7].back()), -0.f));
  EXPECT_TRUE(same_bits(std::stof(records[8].back()), 1.17549435e-38f));
}

TEST(InspectFiles, CsvOfRowsAndHeads) {
  const Inspection inspection = inspection_of(4, 5);
  const auto rows = parse_csv(csv_of_rows(inspection)), heads = parse_csv(csv_of_heads(inspection));
  ASSERT_EQ(rows.size(), 1u + 6 * 4);
  ASSERT_EQ(heads.size(), 1u + 6);
  EXPECT_EQ(rows[0], (std::vector<std::string>{"attention", "layer", "head", "query", "query_token", "entropy"}));
  EXPECT_EQ(heads[0], (std::vector<std::string>{"attention", "layer", "head", "mean entropy"}));
  for (std::size_t i = 0; i < 24; ++i)
    EXPECT_TRUE(same_bits(std::stof(rows[1 + i][5]), inspection.attentions[0].statistics[0].values[i]));
  for (std::size_t i = 0; i < 6; ++i)
    EXPECT_TRUE(same_bits(std::stof(heads[1 + i][3]), inspection.attentions[0].metrics[0].values[i]));
  EXPECT_EQ(heads[6][1], "2");
  EXPECT_EQ(heads[6][2], "3");
}

TEST(InspectFiles, LargestKeysStandInEveryFile) {
  Inspection inspection = inspection_of(2, 3, false, {"a \"b\"", "x,y", "z"});
  LargestKeys& largest = inspection.attentions[0].largest;
  largest.count = 2;
  for (int row = 0; row < 2 * 3 * 2; ++row) {
    largest.keys.insert(largest.keys.end(), {row % 3, row % 2 == 0 ? -1 : (row + 1) % 3});
    largest.weights.insert(largest.weights.end(), {0.5f + 0.01f * static_cast<float>(row), row % 2 == 0 ? 0 : 0.25f});
  }
  const auto records = parse_csv(csv_of_largest(inspection));
  ASSERT_EQ(records.size(), 1u + 12 + 6) << "keys that are not there have no line";
  EXPECT_EQ(records[0], (std::vector<std::string>{"attention", "layer", "head", "query", "query_token", "rank", "key",
                                                  "key_token", "weight"}));
  EXPECT_EQ(records[1], (std::vector<std::string>{"cross", "0", "0", "0", "x,y", "1", "0", "a \"b\"", "0.5"}));
  EXPECT_EQ(records[2], (std::vector<std::string>{"cross", "0", "0", "1", "z", "1", "1", "x,y", "0.51"}));
  EXPECT_EQ(records[3], (std::vector<std::string>{"cross", "0", "0", "1", "z", "2", "2", "z", "0.25"}));
  EXPECT_EQ(records[4][2], "1") << "the next head";
  const nlohmann::json json = nlohmann::json::parse(json_of(inspection))["attentions"][0]["largest"];
  EXPECT_EQ(json["count"], 2);
  EXPECT_EQ(json["keys"][0][0], nlohmann::json::parse("[[0, null], [1, 2]]"));
  EXPECT_TRUE(json["weights"][0][0][0][1].is_null());
  EXPECT_EQ(json["weights"][1][2][1][0].get<float>(), 0.5f + 0.01f * 11);
  const auto files = parse_zip(npz_of(inspection));
  EXPECT_EQ(parse_npy(files.at("cross/largest_keys.npy")).shape, (std::vector<std::int64_t>{2, 3, 2, 2}));
  EXPECT_EQ(parse_npy(files.at("cross/largest_keys.npy")).type, "<i4");
  EXPECT_EQ(parse_npy(files.at("cross/largest_weights.npy")).type, "<f4");
  EXPECT_TRUE(nlohmann::json::parse(json_of(inspection_of(2, 3)))["attentions"][0]["largest"].is_null());
  largest.keys[3] = 3;
  EXPECT_THROW(check(inspection), Error);
  largest.keys[3] = -2;
  EXPECT_THROW(check(inspection), Error);
  largest.keys.pop_back();
  EXPECT_THROW(check(inspection), Error);
}

TEST(InspectFiles, CsvOfTokensHasEveryAttribution) {
  const Inspection inspection = inspection_of(3, hostile_tokens().size(), false, hostile_tokens());
  const auto records = parse_csv(csv_of_tokens(inspection));
  ASSERT_EQ(records.at(0),
            (std::vector<std::string>{"text", "index", "token", "integrated_gradients", "gradient_input"}));
  ASSERT_EQ(records.size(), 1 + hostile_tokens().size() + 3);
  for (std::size_t i = 1; i < records.size(); ++i) {
    const std::size_t text = i > hostile_tokens().size() ? 1 : 0, token = i - 1 - text * hostile_tokens().size();
    EXPECT_EQ(records[i][0], inspection.texts[text].name);
    EXPECT_EQ(records[i][1], std::to_string(token));
    EXPECT_EQ(records[i][2], replace_invalid_utf8(inspection.texts[text].tokens[token].text));
    EXPECT_TRUE(same_bits(std::stof(records[i][3]), inspection.attributions[0].values[text][token]));
    EXPECT_EQ(records[i][4].empty(), text == 0);
  }
}

TEST(InspectFiles, JsonHoldsEverything) {
  Inspection inspection = inspection_of(hostile_tokens().size(), 5, true, hostile_tokens());
  inspection.edits = {"cut \"x\"", "]]>"};
  const nlohmann::json json = nlohmann::json::parse(json_of(inspection));
  EXPECT_EQ(json["format"], "attend inspection");
  EXPECT_EQ(json["version"], 1);
  EXPECT_EQ(json["model"], inspection.model);
  EXPECT_EQ(json["target"], inspection.target);
  EXPECT_EQ(json["edits"], nlohmann::json(inspection.edits));
  ASSERT_EQ(json["texts"].size(), 2u);
  for (std::size_t t = 0; t < 2; ++t) {
    ASSERT_EQ(json["texts"][t]["tokens"].size(), inspection.texts[t].tokens.size());
    for (std::size_t i = 0; i < inspection.texts[t].tokens.size(); ++i) {
      const auto& token = json["texts"][t]["tokens"][i];
      EXPECT_EQ(token["text"], replace_invalid_utf8(inspection.texts[t].tokens[i].text));
      EXPECT_EQ(token["special"], inspection.texts[t].tokens[i].special);
      EXPECT_EQ(token["blank_before"], inspection.texts[t].tokens[i].blank_before);
    }
  }
  const auto& attention = json["attentions"][0];
  EXPECT_EQ(attention["layers"], (nlohmann::json{0, 2}));
  EXPECT_EQ(attention["masked"][0], (nlohmann::json{0, 1, 1, 1, 1}));
  const std::size_t queries = hostile_tokens().size();
  for (std::size_t m = 0; m < 3; ++m) {
    const Measure& measure = inspection.attentions[0].measures[m];
    EXPECT_EQ(attention["measures"][m]["kind"], name_of(measure.kind));
    std::size_t cell = 0;
    for (std::size_t l = 0; l < 2; ++l)
      for (std::size_t h = 0; h < 3; ++h)
        for (std::size_t q = 0; q < queries; ++q)
          for (std::size_t k = 0; k < 5; ++k, ++cell) {
            const auto& value = attention["measures"][m]["values"].at(l).at(h).at(q).at(k);
            ASSERT_TRUE(same(value.is_null() ? NAN : value.get<float>(), measure.values[cell]));
          }
  }
  EXPECT_TRUE(same_bits(attention["statistics"][0]["values"][1][2][queries - 1].get<float>(),
                        inspection.attentions[0].statistics[0].values.back()));
  EXPECT_TRUE(same_bits(attention["metrics"][0]["values"][1][2].get<float>(),
                        inspection.attentions[0].metrics[0].values.back()));
  EXPECT_EQ(json["outcomes"][0]["base"], 2.5);
  const auto& attribution = json["attributions"][0];
  EXPECT_EQ(attribution["name"], "integrated_gradients");
  EXPECT_EQ(attribution["baseline"], 0.25);
  EXPECT_EQ(attribution["completeness_error"], 0.125);
  EXPECT_EQ(attribution["steps"], 64);
  EXPECT_TRUE(
      same_bits(attribution["values"][1][queries - 1].get<float>(), inspection.attributions[0].values[1].back()));
  EXPECT_TRUE(json["attributions"][1]["values"][0].is_null());
  EXPECT_TRUE(json["attributions"][1]["baseline"].is_null());
  EXPECT_TRUE(nlohmann::json::parse(json_of(inspection_of(1, 1)))["attentions"][0]["masked"].is_null());
}

TEST(InspectFiles, Npy) {
  const std::vector<float> values = {0, -0.f, 1.5f, std::numeric_limits<float>::quiet_NaN(), 1e-45f, 7};
  const Array array = parse_npy(npy_of(values, std::array<std::int64_t, 2>{2, 3}));
  EXPECT_EQ(array.type, "<f4");
  EXPECT_EQ(array.shape, (std::vector<std::int64_t>{2, 3}));
  ASSERT_EQ(array.data.size(), 24u);
  EXPECT_EQ(std::memcmp(array.data.data(), values.data(), 24), 0);
  const std::vector<std::int32_t> numbers = {-1, 258};
  const Array small = parse_npy(npy_of(numbers, std::array<std::int64_t, 1>{2}));
  EXPECT_EQ(small.type, "<i4");
  EXPECT_EQ(small.shape, (std::vector<std::int64_t>{2}));
  EXPECT_EQ(small.data, std::string("\xff\xff\xff\xff\x02\x01\x00\x00", 8));
  EXPECT_EQ(parse_npy(npy_of(std::vector<float>{3}, {})).shape, std::vector<std::int64_t>{});
  EXPECT_EQ(parse_npy(npy_of(std::vector<float>{}, std::array<std::int64_t, 2>{0, 5})).shape,
            (std::vector<std::int64_t>{0, 5}));
  EXPECT_THROW(npy_of(values, std::array<std::int64_t, 2>{2, 2}), Error);
  EXPECT_THROW(npy_of(values, std::array<std::int64_t, 2>{-2, -3}), Error);
  EXPECT_THROW(npy_of(values, std::array<std::int64_t, 3>{std::int64_t{1} << 62, std::int64_t{1} << 62, 6}), Error);
}

TEST(InspectFiles, NpzHoldsEveryArray) {
  const Inspection inspection = inspection_of(3, 4, true);
  const auto files = parse_zip(npz_of(inspection));
  ASSERT_EQ(files.size(), 12u);
  const Array tokens = parse_npy(files.at("integrated_gradients/target.npy"));
  EXPECT_EQ(tokens.shape, std::vector<std::int64_t>{3});
  EXPECT_EQ(std::memcmp(tokens.data.data(), inspection.attributions[0].values[1].data(), 12), 0);
  EXPECT_EQ(parse_npy(files.at("integrated_gradients/sums.npy")).shape, std::vector<std::int64_t>{3});
  EXPECT_FALSE(files.contains("gradient_input/source.npy"));
  const Array weight = parse_npy(files.at("cross/weight.npy"));
  EXPECT_EQ(weight.shape, (std::vector<std::int64_t>{2, 3, 3, 4}));
  EXPECT_EQ(std::memcmp(weight.data.data(), inspection.attentions[0].measures[0].values.data(), weight.data.size()), 0);
  EXPECT_EQ(parse_npy(files.at("cross/masked.npy")).type, "|u1");
  EXPECT_EQ(parse_npy(files.at("cross/heads.npy")).data, std::string("\0\0\0\0\1\0\0\0\3\0\0\0", 12));
  EXPECT_EQ(parse_npy(files.at("cross/row_entropy.npy")).shape, (std::vector<std::int64_t>{2, 3, 3}));
  EXPECT_EQ(parse_npy(files.at("cross/head_mean_entropy.npy")).shape, (std::vector<std::int64_t>{2, 3}));
  EXPECT_TRUE(files.contains("cross/first_order.npy"));
}

TEST(InspectFiles, NpzNamesStayInsideAndApart) {
  Inspection inspection = inspection_of(1, 1);
  inspection.attentions[0].name = "..";
  inspection.attentions[0].measures[0].name = "../../a";
  inspection.attentions[0].measures[1].name = "..\\..\\a";
  inspection.attentions[0].measures[2].name = ".._.._a";
  inspection.attributions.clear();
  const auto files = parse_zip(npz_of(inspection));
  EXPECT_EQ(files.size(), 7u);
  for (const auto& [name, bytes] : files) {
    EXPECT_TRUE(name.starts_with("_/")) << name;
    EXPECT_EQ(std::count(name.begin(), name.end(), '/'), 1) << name;
  }
}

std::string from_base64(const std::string& text) {
  std::string out;
  std::uint32_t bits = 0;
  int count = 0;
  for (char c : text) {
    if (c == '=') break;
    const auto value = std::string_view("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/").find(c);
    EXPECT_NE(value, std::string::npos);
    bits = bits << 6 | static_cast<std::uint32_t>(value);
    count += 6;
    if (count >= 8) out += static_cast<char>(bits >> (count -= 8));
  }
  return out;
}

std::size_t occurrences(const std::string& text, const std::string& wanted) {
  std::size_t count = 0;
  for (std::size_t at = text.find(wanted); at != std::string::npos; at = text.find(wanted, at + 1)) ++count;
  return count;
}

TEST(InspectFiles, PageHoldsEveryBit) {
  const Inspection inspection = inspection_of(7, 5, true);
  const std::string page = html_of(inspection, PictureLanguage::chinese);
  const std::string open = "<script type=\"application/json\" id=\"data\">";
  const std::size_t begin = page.find(open) + open.size();
  const nlohmann::json data = nlohmann::json::parse(page.substr(begin, page.find("</script>", begin) - begin));
  EXPECT_EQ(data["language"], "zh");
  EXPECT_EQ(data["model"], inspection.model);
  const auto& attention = data["attentions"][0];
  for (std::size_t m = 0; m < 3; ++m) {
    const std::string bytes = from_base64(attention["measures"][m]["values"]);
    const std::vector<float>& values = inspection.attentions[0].measures[m].values;
    ASSERT_EQ(bytes.size(), values.size() * sizeof(float));
    EXPECT_EQ(std::memcmp(bytes.data(), values.data(), bytes.size()), 0);
  }
  const std::string masked = from_base64(attention["masked"]);
  EXPECT_EQ(std::vector<std::uint8_t>(masked.begin(), masked.end()), inspection.attentions[0].masked);
  EXPECT_EQ(data["texts"][1]["tokens"].size(), 7u);
  EXPECT_EQ(data["outcomes"][0]["edited"], 1.25);
  const std::string scores = from_base64(data["attributions"][0]["values"][0]);
  ASSERT_EQ(scores.size(), 5 * sizeof(float));
  EXPECT_EQ(std::memcmp(scores.data(), inspection.attributions[0].values[0].data(), scores.size()), 0);
  EXPECT_EQ(data["ramps"]["dark_signed"].get<std::string>().size(), 256u * 6);
}

TEST(InspectFiles, PageIsSealed) {
  const std::string plain = html_of(inspection_of(2, 2));
  Inspection inspection = inspection_of(hostile_tokens().size(), 3, false, hostile_tokens());
  inspection.model = "{{script}}</title><script>alert(1)</script>{{data}}";
  inspection.fingerprint = inspection.target = inspection.note = "</script><!--<script>";
  inspection.edits = {"</script>"};
  inspection.outcomes[0].token.text = "</script>";
  inspection.attributions[0].name = inspection.attributions[0].unit = inspection.attributions[0].baseline_name =
      "</script>";
  inspection.attentions[0].measures[0].name = "</script>";
  const std::string page = html_of(inspection);
  // Foreign text opens and closes nothing: as many tags as in a page of plain words.
  for (const char* tag : {"<script", "</script", "<!--", "</title", "</style", "<img", "<svg"})
    EXPECT_EQ(occurrences(page, tag), occurrences(plain, tag)) << tag;
  EXPECT_EQ(occurrences(plain, "<script"), 2u);
  EXPECT_EQ(occurrences(plain, "</script"), 2u);
  EXPECT_EQ(occurrences(page, "alert(1)</script>"), 0u);
  for (const char* outside : {"http:", "https:", "@import", "url(", " src=", "innerHTML", "eval("})
    EXPECT_EQ(occurrences(plain, outside), 0u) << outside;
  EXPECT_EQ(occurrences(plain, "default-src 'none'"), 1u);
  EXPECT_EQ(occurrences(plain, "{{"), 0u);
  // A pair of 40 tokens with all layers and heads of a small model stays small.
  EXPECT_LT(html_of(inspection_of(40, 40)).size(), 400'000u);
}

TEST(InspectFiles, PageCountsAllThatItHolds) {
  Inspection inspection = inspection_of(2, 3);
  inspection.texts[0].tokens[0].text.assign(std::size_t{257'000'000}, 'a');
  try {
    html_of(inspection);
    ADD_FAILURE() << "nothing was thrown";
  } catch (const Error& error) {
    EXPECT_NE(std::string(error.what()).find("would take 257 MB"), std::string::npos) << error.what();
  }
}

TEST(InspectFiles, PageRefusesWhatItCannotShow) {
  Inspection inspection = inspection_of(2, 2);
  inspection.attentions[0].measures.clear();
  EXPECT_THROW(html_of(inspection), Error);
  inspection.attentions.clear();
  EXPECT_THROW(html_of(inspection), Error);
}

TEST(InspectFiles, EmbeddedImages) {
  // Known answers of RFC 4648.
  EXPECT_EQ(pictures::base64(""), "");
  EXPECT_EQ(pictures::base64("f"), "Zg==");
  EXPECT_EQ(pictures::base64("fo"), "Zm8=");
  EXPECT_EQ(pictures::base64("foobar"), "Zm9vYmFy");
  EXPECT_EQ(pictures::base64("\xff\xfe\xfd"), "//79");

  const std::vector<std::uint8_t> indices = {0, 1, 2, 255, 254, 253};
  const auto& colours = pictures::ramp(Theme::light, false);
  const std::string png = pictures::png_bytes(3, 2, indices, colours);
  const auto u32 = [&](std::size_t at) {
    std::uint32_t value = 0;
    for (std::size_t i = 0; i < 4; ++i) value = value << 8 | static_cast<unsigned char>(png.at(at + i));
    return value;
  };
  ASSERT_EQ(png.substr(0, 8), "\x89PNG\r\n\x1a\n");
  std::map<std::string, std::string> chunks;
  for (std::size_t at = 8; at < png.size();) {
    const std::size_t size = u32(at);
    const std::string type = png.substr(at + 4, 4);
    chunks[type] = png.substr(at + 8, size);
    EXPECT_EQ(u32(at + 8 + size),
              crc32(0, reinterpret_cast<const Bytef*>(png.data() + at + 4), static_cast<uInt>(4 + size)))
        << type;
    at += 12 + size;
  }
  EXPECT_EQ(chunks.at("IHDR"), std::string("\0\0\0\3\0\0\0\2\x08\x03\0\0\0", 13));
  ASSERT_EQ(chunks.at("PLTE").size(), 768u);
  EXPECT_EQ(static_cast<unsigned char>(chunks["PLTE"][3]), colours[1].red);
  std::vector<Bytef> raw(100);
  uLongf length = 100;
  ASSERT_EQ(uncompress(raw.data(), &length, reinterpret_cast<const Bytef*>(chunks["IDAT"].data()),
                       static_cast<uLong>(chunks["IDAT"].size())),
            Z_OK);
  ASSERT_EQ(length, 8u);
  EXPECT_EQ(std::vector<Bytef>(raw.begin(), raw.begin() + 8), (std::vector<Bytef>{0, 0, 1, 2, 0, 255, 254, 253}));
  EXPECT_TRUE(chunks.contains("IEND"));
}

}  // namespace
}  // namespace attend
