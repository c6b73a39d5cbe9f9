// attend inspect, edit, heads and align as a user types them: every kind of file read back by a reader of its own, and what
// bad input gets.
#include <cmath>
#include <cstdint>
#include <cstring>
#include <map>
#include <nlohmann/json.hpp>
#include <regex>
#include <string>
#include <vector>

#include "program_test.h"
#include "xml_document.h"

namespace {

namespace fs = std::filesystem;
using Json = nlohmann::json;
using attend::parse_xml;
using attend::XmlElement;

const std::string source = "我喜欢学习中文。";
const std::vector<std::string> target_words{"I", "like", "studying", "Chinese", "."};
const std::vector<std::string> source_words{"<2en>", "我喜欢", "学习", "中文", "。", "</s>"};

class See : public ProgramTest {
 protected:
  See() : ProgramTest("see") {}

  std::string write(const std::string& name, const std::string& text) const {
    ProgramTest::write(name, text);
    return quoted(name);
  }

  Result run(const std::string& arguments) const { return attend(arguments + " --threads 1"); }
  Result must(const std::string& arguments) const {
    const Result result = run(arguments);
    EXPECT_EQ(result.code, 0) << arguments << ": " << result.err;
    return result;
  }
  // Fails, tells all of `parts`, and prints nothing that could be taken for a result.
  void refused(const std::string& arguments, const std::vector<std::string>& parts) const {
    const Result result = run(arguments);
    EXPECT_TRUE(result.code == 1 || result.code == 2) << arguments << ": " << result.code;
    EXPECT_TRUE(result.err.starts_with("attend: ")) << result.err;
    const std::vector<std::string> lines = lines_of(result.err);
    EXPECT_TRUE(lines.size() == 1 || (lines.size() == 2 && lines[1].starts_with("Run `attend"))) << result.err;
    EXPECT_TRUE(result.out.empty()) << arguments << ": " << result.out;
    for (const std::string& part : parts)
      EXPECT_NE(result.err.find(part), std::string::npos) << arguments << ": " << result.err << "lacks " << part;
  }
};

// ---- Readers ---------------------------------------------------------------------------------------------------------

std::vector<std::vector<std::string>> parse_csv(const std::string& text) {
  std::vector<std::vector<std::string>> records(1, std::vector<std::string>(1));
  bool quoted = false;
  for (std::size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    if (c == '"' && quoted && i + 1 < text.size() && text[i + 1] == '"') records.back().back() += '"', ++i;
    else if (c == '"') quoted = !quoted;
    else if (c == ',' && !quoted) records.back().emplace_back();
    else if (c == '\r' && !quoted) continue;
    else if (c == '\n' && !quoted) records.emplace_back(1);
    else records.back().back() += c;
  }
  EXPECT_FALSE(quoted);
  EXPECT_EQ(records.back(), std::vector<std::string>(1)) << "the last line has an end";
  records.pop_back();
  return records;
}

struct Array {
  std::string type;
  std::vector<std::int64_t> shape;
  std::vector<float> floats;
};

Array parse_npy(const std::string& bytes) {
  Array array;
  EXPECT_EQ(bytes.substr(0, 8), std::string("\x93NUMPY\x01\x00", 8));
  const std::size_t length = static_cast<unsigned char>(bytes.at(8)) + 256u * static_cast<unsigned char>(bytes.at(9));
  const std::string header = bytes.substr(10, length);
  std::smatch found;
  if (!std::regex_search(header, found,
                         std::regex(R"('descr': '([^']*)'.*'fortran_order': False.*'shape': \(([^)]*)\))"))) {
    ADD_FAILURE() << header;
    return array;
  }
  array.type = found[1];
  std::stringstream sizes(found[2].str());
  for (std::string size; std::getline(sizes, size, ',');)
    if (size.find_first_of("0123456789") != std::string::npos) array.shape.push_back(std::stoll(size));
  std::int64_t count = 1;
  for (const std::int64_t size : array.shape) count *= size;
  const std::string data = bytes.substr(10 + length);
  EXPECT_EQ(data.size(), static_cast<std::size_t>(count) * (array.type == "|u1" ? 1 : 4));
  if (array.type != "<f4") return array;
  array.floats.resize(data.size() / 4);
  std::memcpy(array.floats.data(), data.data(), data.size());
  return array;
}

// Of a zip without compression.
std::map<std::string, Array> parse_npz(const std::string& bytes) {
  const auto number = [&](std::size_t at, int size) {
    std::size_t value = 0;
    for (int i = size - 1; i >= 0; --i)
      value = 256 * value + static_cast<unsigned char>(bytes.at(at + static_cast<std::size_t>(i)));
    return value;
  };
  std::map<std::string, Array> arrays;
  std::size_t at = 0;
  while (number(at, 4) == 0x04034b50) {
    EXPECT_EQ(number(at + 8, 2), 0u) << "stored";
    const std::size_t size = number(at + 18, 4), name = number(at + 26, 2), begin = at + 30 + name + number(at + 28, 2);
    arrays[bytes.substr(at + 30, name)] = parse_npy(bytes.substr(begin, size));
    at = begin + size;
  }
  return arrays;
}

// ---- inspect -----------------------------------------------------------------------------------------------------------

TEST_F(See, InspectPrintsWhatEachWordLooksAtAndWhatMatters) {
  const Result plain = must("inspect " + source);
  for (const char* part : {"encoder: what each word looks at", "decoder: what each word looks at",
                           "cross: what each target word looks at"})
    EXPECT_NE(plain.out.find(part), std::string::npos) << part;
  const Result why = must("inspect " + source + " --why Chinese --rather-than English --exact 30 --rows 3");
  EXPECT_TRUE(
      std::regex_search(why.out, std::regex("Chinese rather than English after \"[^\"]+\" .position 3. = [0-9.]+\n")))
      << why.out;
  for (const char* part : {"first order", "exact", "rank agreement of weight and exact over 30 edges",
                           "rank agreement of first_order and exact"})
    EXPECT_NE(why.out.find(part), std::string::npos) << part << why.out;
  int edges = 0;
  for (const std::string& line : lines_of(why.out)) edges += line.find(" -> ") != std::string::npos;
  EXPECT_EQ(edges, 3);
}

TEST_F(See, InspectWritesEveryKindOfFileWithTheSameNumbers) {
  std::string outputs;
  for (const char* name :
       {"a.svg", "a.png", "a.html", "a.csv", "a.rows.csv", "a.heads.csv", "a.json", "a.npy", "a.npz"})
    outputs += " -o " + quoted(name);
  const Result result = must("inspect " + source + " --why Chinese --exact 8 --measure weight" + outputs);
  for (const char* name : {"a.svg", "a.rows.csv", "a.npz"})
    EXPECT_NE(result.out.find("/" + std::string(name) + "  "), std::string::npos) << result.out;

  const Json json = Json::parse(contents(path("a.json")));
  EXPECT_EQ(json.at("format"), "attend inspection");
  ASSERT_EQ(json.at("attentions").size(), 3u);
  const Json& cross = json["attentions"][2];
  EXPECT_EQ(cross.at("name"), "cross");
  const Json& weights = cross.at("measures").at(0).at("values");
  std::vector<std::string> words;
  for (const Json& token : json["texts"].at(0).at("tokens")) words.push_back(token.at("text"));
  EXPECT_EQ(words, source_words);
  std::map<std::string, const Json*> measures;
  for (const Json& measure : cross["measures"]) measures[measure.at("name")] = &measure.at("values");
  for (const char* name : {"weight", "write", "first_order", "exact"}) EXPECT_TRUE(measures.contains(name)) << name;

  const std::size_t queries = target_words.size() + 1, keys = source_words.size();
  const Array npy = parse_npy(contents(path("a.npy")));
  EXPECT_EQ(npy.type, "<f4");
  ASSERT_EQ(npy.shape,
            (std::vector<std::int64_t>{4, 4, static_cast<std::int64_t>(queries), static_cast<std::int64_t>(keys)}));
  const std::map<std::string, Array> npz = parse_npz(contents(path("a.npz")));
  ASSERT_TRUE(npz.contains("cross/weight.npy") && npz.contains("cross/first_order.npy") &&
              npz.contains("encoder/weight.npy"));
  EXPECT_EQ(npz.at("cross/weight.npy").floats, npy.floats);

  std::map<std::string, std::vector<std::string>> cells;  // place -> record
  const auto csv = parse_csv(contents(path("a.csv")));
  std::map<std::string, std::size_t> column;
  for (std::size_t i = 0; i < csv.at(0).size(); ++i) column[csv[0][i]] = i;
  for (const auto& record : csv)
    cells[record.at(0) + '.' + record.at(1) + '.' + record.at(2) + '.' + record.at(column.at("query")) + '.' +
          record.at(column.at("key"))] = record;
  std::size_t at = 0, exact = 0;
  for (std::size_t layer = 0; layer < 4; ++layer)
    for (std::size_t head = 0; head < 4; ++head)
      for (std::size_t query = 0; query < queries; ++query) {
        double sum = 0;
        for (std::size_t key = 0; key < keys; ++key, ++at) {
          const float weight = weights[layer][head][query][key].get<float>();
          EXPECT_EQ(npy.floats[at], weight);
          const auto& record = cells.at("cross." + std::to_string(layer) + '.' + std::to_string(head) + '.' +
                                        std::to_string(query) + '.' + std::to_string(key));
          EXPECT_EQ(std::stof(record[column.at("weight")]), weight);
          EXPECT_EQ(record[column.at("key_token")], source_words[key]);
          exact += !record[column.at("exact")].empty();
          EXPECT_EQ(record[column.at("exact")].empty(), (*measures["exact"])[layer][head][query][key].is_null());
          sum += static_cast<double>(weight);
        }
        EXPECT_NEAR(sum, 1, 1e-5);
      }
  EXPECT_GT(exact, 0u) << "some of the 8 edges cut are in the cross-attention";
  EXPECT_EQ(parse_csv(contents(path("a.rows.csv"))).at(0).at(3), "query");
  EXPECT_EQ(parse_csv(contents(path("a.heads.csv"))).at(0).at(2), "head");

  const std::string png = contents(path("a.png"));
  EXPECT_EQ(png.substr(0, 8), "\x89PNG\r\n\x1a\n");
  const auto size = [&](std::size_t place) {
    return 65536 * 256u * static_cast<unsigned char>(png[place]) + 65536u * static_cast<unsigned char>(png[place + 1]) +
           256u * static_cast<unsigned char>(png[place + 2]) + static_cast<unsigned char>(png[place + 3]);
  };
  const std::vector<XmlElement> svg = parse_xml(contents(path("a.svg")));
  EXPECT_EQ(size(16), 2 * svg.at(0).number("width"));
  EXPECT_EQ(size(20), 2 * svg.at(0).number("height"));

  const std::string html = contents(path("a.html"));
  EXPECT_TRUE(html.starts_with("<!doctype html>") || html.starts_with("<!DOCTYPE html>")) << html.substr(0, 40);
  EXPECT_FALSE(std::regex_search(html, std::regex(R"re((src|href)\s*=\s*["'](?!data:)[^#"'])re")))
      << "the page asks for another file";
  for (std::size_t place = html.find("://"); place != std::string::npos; place = html.find("://", place + 3))
    EXPECT_NE(html.substr(place < 30 ? 0 : place - 30, 80).find("www.w3.org"), std::string::npos)
        << html.substr(place - 10, 60);
}

TEST_F(See, EveryPictureIsXmlAndHoldsEveryTokenAsText) {
  for (const std::string kind : {"matrix", "lines", "text", "wall", "measures", "bars", "rows"}) {
    must("inspect " + source + " --why Chinese --exact 4 --picture " + kind + " -o " + quoted("a.svg"));
    const std::vector<XmlElement> svg = parse_xml(contents(path("a.svg")));
    EXPECT_EQ(svg.at(0).name, "svg");
    std::string live, all;
    for (const XmlElement& element : svg) {
      if (element.name == "text" || element.name == "tspan") live += element.text + '\n';
      all += element.text + '\n';
      EXPECT_NE(element.name, "script");
      for (const auto& [name, value] : element.attributes)
        EXPECT_FALSE(name.ends_with("href") && !value.starts_with("data:") && !value.starts_with("#")) << value;
    }
    if (kind == "bars") continue;  // heads, no tokens
    for (const std::string& word : target_words)
      EXPECT_NE(all.find(word), std::string::npos) << kind << " lacks " << word;
    if (kind == "rows") continue;  // queries alone
    for (const std::string& word : source_words)
      EXPECT_NE(all.find(word), std::string::npos) << kind << " lacks " << word;
    if (kind == "matrix" || kind == "lines" || kind == "text" || kind == "measures") {
      EXPECT_NE(live.find("学习"), std::string::npos) << kind;
    }
  }
}

TEST_F(See, InspectReadsManyTextsAndOneStackModels) {
  const std::string file = write("pairs.txt", "你好。\tHello.\n" + source + "\n");
  must("inspect --file " + file + " --attention cross --layers -1 --heads 0,2 -o " + quoted("{}.json"));
  const Json first = Json::parse(contents(path("1.json"))), second = Json::parse(contents(path("2.json")));
  EXPECT_EQ(first.at("texts").at(1).at("tokens").at(1).at("text"), "Hello");
  EXPECT_EQ(second.at("attentions").size(), 1u);
  EXPECT_EQ(second["attentions"][0].at("layers"), Json({3}));
  EXPECT_EQ(second["attentions"][0].at("heads"), Json({0, 2}));
  refused("inspect --file " + file + " -o " + quoted("one.json"), {"one file for 2 texts", "{}"});
  const Json poem = Json::parse(must("inspect --model tang-quatrains 床前明月光 --sequence --json").out);
  EXPECT_EQ(poem.at("attentions").at(0).at("name"), "decoder");
  EXPECT_LT(poem.at("target_value").get<double>(), 0);
}

TEST_F(See, ListsAreOneArgument) {
  const auto layers = [&](const std::string& options) {
    return Json::parse(must("inspect " + options + " --attention cross --json").out)
        .at("attentions")
        .at(0)
        .at("layers");
  };
  EXPECT_EQ(layers("--layers 1,3 " + source), Json({1, 3}));
  EXPECT_EQ(layers("--layers=3 --layers 1 " + source), Json({1, 3}));
  const Result number = attend("inspect --attention cross --json --threads 1 --layers 1 -- 2");
  EXPECT_EQ(Json::parse(number.out).at("texts").at(0).at("tokens").at(1).at("text"), "2") << number.err;
  // What stands apart would be read as a text.
  refused("inspect --layers 1 2 " + source, {"'2' stands apart", "write --layers 1,2;", "Run `attend inspect --help`"});
  refused("inspect --layers=1 2 3 " + source, {"'2' stands apart", "write --layers 1,2,3;"});
  refused("inspect --layers -1 -2 " + source, {"'-2' stands apart", "write --layers -1,-2;"});
  refused("inspect --attention encoder cross " + source, {"'cross' stands apart", "write --attention encoder,cross;"});
  refused("inspect --attribution rollout value-zeroing " + source, {"write --attribution rollout,value-zeroing;"});
  refused("translate --heads 0 1 " + write("a.zh", source), {"write --heads 0,1;", "attend translate --help"});
  refused("align --layers 0 1 a b", {"write --layers 0,1;"});
  refused("bench statistics --rows 8 16", {"write --rows 8,16;", "attend bench statistics --help"});
  for (const char* command : {"inspect", "align", "translate"})
    EXPECT_TRUE(
        std::regex_search(must(command + std::string(" --help")).out, std::regex("attend .*--layers 1,2 --heads 0,3")))
        << command;
}

TEST_F(See, InspectTellsWhatRowsSay) {
  const std::string asked = "inspect " + source +
                            " --layers 1,2 --heads 3 --top-k 3 --span object=source:3 --span edges=0,-2: "
                            "--span special --statistics ";
  const Result printed = must(asked);
  const std::vector<std::string> lines = lines_of(printed.out);
  const auto heading = std::find(lines.begin(), lines.end(), "cross, layer 2, head 3");
  ASSERT_LT(heading + 7, lines.end()) << printed.out;
  EXPECT_TRUE(std::regex_match(*(heading + 1),
                               std::regex("  query +entropy +on first +on object +on edges +on special +largest keys")))
      << *(heading + 1);
  must(asked + "-o " + quoted("a.json") + " -o " + quoted("a.rows.csv") + " -o " + quoted("a.top.csv") + " -o " +
       quoted("a.npz"));
  const Json json = Json::parse(contents(path("a.json")));
  const Json& cross = json.at("attentions").at(2);
  const Json &weights = cross.at("measures").at(0).at("values"), &largest = cross.at("largest");
  EXPECT_EQ(largest.at("count"), 3);
  std::map<std::string, const Json*> statistics;
  for (const Json& statistic : cross.at("statistics")) statistics[statistic.at("name")] = &statistic.at("values");
  ASSERT_TRUE(statistics.contains("on object") && statistics.contains("on edges") && statistics.contains("on special"));
  const auto csv = parse_csv(contents(path("a.top.csv")));
  EXPECT_EQ(csv.at(0), (std::vector<std::string>{"attention", "layer", "head", "query", "query_token", "rank", "key",
                                                 "key_token", "weight"}));
  std::map<std::string, std::vector<std::string>> records;
  for (const auto& record : csv) records[record[0] + '.' + record[1] + '.' + record[3] + '.' + record[5]] = record;
  const std::map<std::string, Array> npz = parse_npz(contents(path("a.npz")));
  EXPECT_EQ(npz.at("cross/largest_weights.npy").shape, (std::vector<std::int64_t>{2, 1, 6, 3}));
  EXPECT_EQ(npz.at("cross/largest_keys.npy").type, "<i4");
  for (std::size_t layer = 0; layer < 2; ++layer)
    for (std::size_t query = 0; query < 6; ++query) {
      const Json& row = weights.at(layer).at(0).at(query);
      const auto weight = [&](std::size_t key) { return row.at(key).get<double>(); };
      const auto told = [&](const char* name) { return statistics[name]->at(layer).at(0).at(query).get<double>(); };
      EXPECT_NEAR(told("on object"), weight(3), 1e-5);
      EXPECT_NEAR(told("on edges"), weight(0) + weight(4) + weight(5), 1e-5);
      EXPECT_NEAR(told("on special"), weight(0) + weight(5), 1e-5) << "the tag and the end";
      std::vector<double> sorted = row.get<std::vector<double>>();
      std::sort(sorted.rbegin(), sorted.rend());
      for (std::size_t rank = 0; rank < 3; ++rank) {
        const auto key = largest.at("keys").at(layer).at(0).at(query).at(rank).get<std::size_t>();
        const Json& found = largest.at("weights").at(layer).at(0).at(query).at(rank);
        EXPECT_NEAR(found.get<double>(), sorted[rank], 1e-6);
        EXPECT_NEAR(weight(key), sorted[rank], 1e-6);
        const auto& record = records.at("cross." + std::to_string(layer + 1) + '.' + std::to_string(query) + '.' +
                                        std::to_string(rank + 1));
        EXPECT_EQ(record[6], std::to_string(key));
        EXPECT_EQ(record[7], source_words[key]);
        EXPECT_EQ(std::stof(record[8]), found.get<float>());
        EXPECT_EQ(npz.at("cross/largest_weights.npy").floats[(layer * 6 + query) * 3 + rank], found.get<float>());
      }
      if (layer == 1) {  // the terminal shows the same
        char text[32];
        std::snprintf(text, sizeof(text), " %.3f", sorted[0]);
        const std::string& line = *(heading + 2 + static_cast<std::ptrdiff_t>(query));
        EXPECT_NE(line.find("   " + source_words[largest["keys"][layer][0][query][0].get<std::size_t>()] + text),
                  std::string::npos)
            << line;
      }
    }
  EXPECT_NE(contents(path("a.rows.csv")).find(",on object,on edges,on special\r\n"), std::string::npos);
  // What no file holds is printed beside it.
  const auto printed_with = [&](const std::string& more) {
    return must(asked + more).out.find("largest keys") != std::string::npos;
  };
  EXPECT_TRUE(printed_with("-o " + quoted("a.svg")));
  EXPECT_TRUE(printed_with("-o " + quoted("a.rows.csv")));
  EXPECT_FALSE(printed_with("-o " + quoted("a.npz")));
  const Json alone = Json::parse(must(asked + "--no-matrices --json").out);
  EXPECT_EQ(alone.at("attentions").at(2).at("largest"), largest);
}

TEST_F(See, InspectNamesWhatSpansAre) {
  const std::string asked = "inspect " + source;
  refused(asked + " --top-k 33", {"--top-k", "1 to 32"});
  refused(asked + " --top-k 0", {"--top-k"});
  refused(asked + " --span 3:7", {"\"3:7\" names no keys", "NAME=3:7"});
  refused(asked + " --span a=", {"is no number of a key"});
  refused(asked + " --span a=1:x", {"\"x\" of \"a=1:x\""});
  refused(asked + " --span a=9", {"no text has all of its keys", "source has keys 0 to 5"});
  refused(asked + " --span a=sauce:1", {"\"sauce\"", "source has keys"});
  refused(asked + " --span first=1", {"region \"first\"", "take another name"});
  refused(asked + " -o " + quoted("a.top.csv"), {".top.csv", "add --top-k"});
  EXPECT_FALSE(fs::exists(path("a.top.csv")));
}

TEST_F(See, InspectNamesWhatExists) {
  refused("inspect " + source + " --layers 9", {"no layer 9", "0 to 3"});
  refused("inspect " + source + " --heads 7", {"no head 7", "0 to 3"});
  refused("inspect " + source + " --attention crss", {"\"crss\"", "encoder, decoder, cross"});
  refused("inspect " + source + " --why Chinse", {"no token 'Chinse'", "nearest", "' Chinese'"});
  refused("inspect " + source + " --why Chinese --rather-than Englsh", {"no token 'Englsh'", "' English'"});
  refused("inspect " + source + " --why Chinese --at 99", {"position 99 does not exist", "0 to 5", "nearest is 5"});
  refused("inspect " + source + " --exact 5", {"--exact", "--why"});
  refused("inspect " + source + " --measure wieght -o " + quoted("a.svg"), {"\"wieght\"", "did you mean \"weight\""});
  refused("inspect " + source + " --picture text --query 99 -o " + quoted("a.svg"), {"no query 99"});
  refused("inspect " + source + " -o " + quoted("a.gif"), {".gif", ".svg"});
  refused("inspect " + source + " --picture matrx -o " + quoted("a.svg"), {"matrx"});
  refused("inspect --model tang-quatrains 床前 --why 月 --at 40", {"position 40 does not exist"});
  EXPECT_FALSE(fs::exists(path("a.svg")));
}

// ---- edit ----------------------------------------------------------------------------------------------------------------

std::string edit(const std::string& fields) { return " --edit '{" + fields + "}'"; }

TEST_F(See, EditShowsBothOutputsSideBySide) {
  const std::string cut = edit(R"("name": "deaf", "kind": "cut", "at": "decoder.*.cross")");
  const Result text = must("edit " + source + cut);
  EXPECT_TRUE(std::regex_search(text.out, std::regex("deaf +cut +touched [1-9]"))) << text.out;
  EXPECT_TRUE(std::regex_search(text.out, std::regex("base    I like studying Chinese\\.\n"))) << text.out;
  EXPECT_TRUE(std::regex_search(text.out, std::regex("\nedited  [^\n]+\n"))) << text.out;
  const Result head = must("edit " + source + edit(R"("kind": "cut", "at": "decoder.2.cross", "heads": [1])"));
  EXPECT_TRUE(std::regex_search(
      head.out, std::regex("head parts \\+ bias = attention output: largest difference [0-9.]+e-0[5-9]")))
      << head.out;
  const Json json = Json::parse(must("edit " + source + cut + " --json").out);
  EXPECT_EQ(json.at("base_text"), "I like studying Chinese.");
  EXPECT_NE(json.at("edited_text"), json.at("base_text"));
  EXPECT_LT(json.at("edited_log_probability").get<double>(), json.at("base_log_probability").get<double>() - 1);
  EXPECT_LT(json.at("head_parts_difference").get<double>(), 1e-4);
  ASSERT_EQ(json.at("rows").size(), 6u);
  // The same in one pass and token by token.
  const Json cached = Json::parse(must("edit " + source + cut + " --json --cached").out);
  EXPECT_NEAR(cached.at("edited_log_probability").get<double>(), json["edited_log_probability"].get<double>(), 1e-3);
  EXPECT_EQ(cached.at("edited_text"), json["edited_text"]);
}

TEST_F(See, EditFilesBelongToAModelAndAText) {
  must("edit " + source + edit(R"("name": "deaf", "kind": "forbid", "at": "decoder.*.cross", "keys": [3])") +
       edit(R"("name": "softer", "kind": "scale", "at": "decoder.3.self", "value": 0.5)") + " --save " +
       quoted("deaf.json") + " --no-generation");
  const Json file = Json::parse(contents(path("deaf.json")));
  EXPECT_EQ(file.at("edits").size(), 2u);
  const Json direct = Json::parse(
      must("edit " + source + edit(R"("kind": "forbid", "at": "decoder.*.cross", "keys": [3])") + " --json").out);
  const Json from_file =
      Json::parse(must("edit " + source + " --edits " + quoted("deaf.json") + " --without softer --json").out);
  EXPECT_EQ(from_file.at("edited_log_probability"), direct.at("edited_log_probability"));

  const std::string model = file.at("model"), text = file.at("text");
  const Result other_text = run("edit 你好。 --edits " + quoted("deaf.json"));
  EXPECT_EQ(other_text.code, 2);
  EXPECT_TRUE(
      std::regex_search(other_text.err, std::regex("text of fingerprint " + text + ", this one has [0-9a-f]{16}")))
      << other_text.err;
  Json foreign = file;
  foreign["model"] = "0123456789abcdef";
  refused("edit " + source + " --edits " + write("foreign.json", foreign.dump()),
          {"model of fingerprint 0123456789abcdef", model});
  refused("edit --model tang-quatrains 床前明月光 --edits " + quoted("deaf.json"), {"model of fingerprint " + model});
  refused("edit " + source + " --edits " + quoted("deaf.json") + " --without deef", {"deef", "deaf"});
  refused("edit " + source + " --edits " + write("broken.json", "{\"version\": 1,"), {"broken.json"});
  refused("edit " + source + " --edits " + quoted("missing.json"), {"missing.json"});
  refused("edit " + source, {"no edit to make"});
}

TEST_F(See, EditsNameWhatExists) {
  const auto refuses = [&](const std::string& fields, const std::vector<std::string>& parts) {
    refused("edit " + source + edit(fields), parts);
  };
  refuses(R"("kind": "zero", "at": "decoder.2.cros.value")",
          {"'decoder.2.cros.value'", "nearest", "decoder.2.cross.value", "layers 0 to 3"});
  refuses(R"("kind": "cut", "at": "decoder.9.cross")", {"'decoder.9.cross'", "nearest", "decoder layers 0 to 3"});
  refuses(R"("kind": "cut", "at": "decoder.2.cross", "heads": [4])", {"no head 4", "0 to 3"});
  refuses(R"("kind": "cut", "at": "decoder.2.cross", "positions": [40])", {"position 40", "0 to 5"});
  refuses(R"("kind": "forbid", "at": "decoder.2.cross", "keys": [40])", {"key 40", "0 to 5"});
  refuses(R"("kind": "forbid", "at": "decoder.2.cross", "kys": [4])", {"\"kys\"", "did you mean \"keys\""});
  refuses(R"("kind": "frbid", "at": "decoder.2.cross")", {"'frbid'", "did you mean 'forbid'"});
  refuses(R"("kind": "forbid", "at": "decoder.2.cross", "value": 3)", {"value"});
  refused("edit " + source + " --edit 'cut it'", {"not a JSON object", "{\"kind\""});
}

TEST_F(See, EditsThatCannotAllBeAreNamedInPairs) {
  refused("edit " + source + edit(R"("name": "up", "kind": "set", "at": "decoder.2.cross", "keys": [1], "value": 3)") +
              edit(R"("name": "gone", "kind": "forbid", "at": "decoder.*.cross", "keys": [1])"),
          {"contradict", "'up' (set) and 'gone' (forbid)"});
  refused("edit " + source + edit(R"("name": "gone", "kind": "cut", "at": "decoder.2.cross")") +
              edit(R"("name": "softer", "kind": "scale", "at": "decoder.2.cross", "value": 0.5)"),
          {"contradict", "'gone' (cut) and 'softer' (scale)"});
}

TEST_F(See, WeightsMustSumToOneAfterLocks) {
  refused("edit " + source +
              edit(R"("name": "a", "kind": "lock", "at": "decoder.2.cross", "keys": [1], "value": 0.7)") +
              edit(R"("name": "b", "kind": "lock", "at": "decoder.2.cross", "keys": [2], "value": 0.7)"),
          {"decoder.2.cross", "sum to 1.4", "'a', 'b'"});
  refused("edit " + source +
              edit(R"("name": "a", "kind": "lock", "at": "decoder.2.cross", "keys": [[0, null]], "value": 0.01)"),
          {"sum to 0.06", "no other key", "'a'"});
  refused("edit " + source + edit(R"("name": "a", "kind": "lock", "at": "decoder.2.cross", "keys": [1], "value": 1.5)"),
          {"1.5"});
}

TEST_F(See, AnEditThatTouchesNothingSaysSo) {
  const std::string hidden =
      edit(R"("name": "above the mask", "kind": "cut", "at": "decoder.2.self", "positions": [0], "keys": [3])");
  refused("edit " + source + hidden, {"'above the mask' touched nothing"});
  const Result told = must("edit " + source + hidden + " --allow-untouched --no-generation");
  EXPECT_TRUE(std::regex_search(told.out, std::regex("above the mask +cut +touched 0\n"))) << told.out;
}

TEST_F(See, EditPaintsWhatChanged) {
  must("edit " + source + edit(R"("name": "deaf", "kind": "cut", "at": "decoder.*.cross")") + " --no-generation -o " +
       quoted("a.svg") + " -o " + quoted("a.png"));
  std::string all;
  for (const XmlElement& element : parse_xml(contents(path("a.svg")))) all += element.text + '\n';
  EXPECT_NE(all.find("deaf"), std::string::npos);
  EXPECT_EQ(contents(path("a.png")).substr(0, 4), "\x89PNG");
  const std::string cut = "edit " + source + edit(R"("kind": "cut", "at": "decoder.3.cross")") + " --no-generation ";
  refused(cut + "-o " + quoted("b.svg") + " --picture matrix",
          {"there is no attention to draw", "leave out --picture"});
  refused(cut + "-o " + quoted("b.npy"), {".npy holds attention, and there is none", "write .json"});
}

// ---- heads -----------------------------------------------------------------------------------------------------------------

const std::string data = ATTEND_SOURCE_DIR "/data/tatoeba-zh-en/";
const std::string pairs = "'" + data + "aligned.zh' '" + data + "aligned.en'";

TEST_F(See, HeadsRanksEveryBehaviourAndWritesFiles) {
  const std::string few = "heads " + pairs + " --limit 15";
  const Result text = must(few + " --most 2");
  EXPECT_TRUE(std::regex_search(text.out, std::regex("15 items, [0-9]+ tokens, 48 heads"))) << text.out;
  for (const char* behaviour : {"previous_token", "next_token", "same_token", "induction", "first_token", "separator",
                                "distance", "diagonal", "copying"})
    EXPECT_NE(text.out.find(std::string("\n") + behaviour), std::string::npos) << behaviour;

  const Json json = Json::parse(must(few + " --json --reference '" + data + "aligned.links'").out);
  EXPECT_EQ(json.at("format"), "attend heads");
  ASSERT_EQ(json.at("heads").size(), 48u);
  std::map<std::string, double> previous, error;
  for (const Json& head : json["heads"]) {
    if (!head.at("previous_token").is_null()) previous[head.at("head")] = head["previous_token"];
    if (!head.at("alignment_error").is_null()) error[head.at("head")] = head["alignment_error"];
  }
  EXPECT_EQ(previous.size(), 32u) << "cross-attention has no token before";
  EXPECT_EQ(error.size(), 16u);
  const auto most = std::max_element(previous.begin(), previous.end(),
                                     [](const auto& a, const auto& b) { return a.second < b.second; });
  const std::vector<std::string> ranking = lines_of(must(few + " --behaviour previous_token --most 1").out);
  EXPECT_NE(ranking.back().find(most->first), std::string::npos) << ranking.back();

  must(few + " -o " + quoted("heads.csv") + " -o " + quoted("heads.json"));
  const auto csv = parse_csv(contents(path("heads.csv")));
  EXPECT_EQ(csv.size(), 49u);
  EXPECT_EQ(csv.at(0).at(0), "head");
  EXPECT_EQ(csv.at(1).at(0), json["heads"][0].at("head"));
  // Nearest to a wanted offset first.
  const std::vector<std::string> near = lines_of(must(few + " --offset -1 --most 3").out);
  ASSERT_EQ(near.size(), 6u);
  EXPECT_TRUE(std::regex_match(near[2], std::regex("offset +mean signed distance, nearest to -1 first"))) << near[2];
  double off = 0;
  for (std::size_t i = 3; i < 6; ++i) {
    const double distance = std::fabs(std::stod(near[i].substr(near[i].rfind(' '))) + 1);
    EXPECT_GE(distance, off - 1e-9);
    off = distance;
  }
  std::vector<double> all_offs;
  for (const Json& head : json["heads"])
    if (!head.at("offset").is_null()) all_offs.push_back(std::fabs(head["offset"].get<double>() + 1));
  std::sort(all_offs.begin(), all_offs.end());
  EXPECT_NEAR(off, all_offs.at(2), 1e-3);
  refused(few + " --offset x", {"'x' is no number"});
  refused(few + " --offset -1 --behaviour induction", {"--offset", "--behaviour"});
  // What a run is compared with itself: no score rose.
  const Json change = Json::parse(must(few + " --json --compare " + quoted("heads.json")).out);
  for (const Json& head : change.at("heads"))
    for (const auto& [name, value] : head.items())
      if (value.is_number_float()) {
        EXPECT_EQ(value.get<double>(), 0) << name;
      }
}

TEST_F(See, HeadsReadsOneStackModelsAndRandomTokens) {
  const std::string poems = write("poems.txt", "床前明月光\n疑是地上霜\n举头望明月\n低头思故乡\n");
  const Result lines = must("heads --model tang-quatrains " + poems + " --behaviour previous_token --most 1");
  EXPECT_TRUE(lines.out.starts_with("4 items")) << lines.out;
  const Json repeated = Json::parse(must("heads --repeated --limit 2 --json").out);
  EXPECT_EQ(repeated.at("items"), 2);
}

TEST_F(See, HeadsNamesWhatExists) {
  refused("heads " + pairs + " --limit 2 --behaviour inducton", {"\"inducton\"", "did you mean induction"});
  refused("heads " + pairs + " --limit 2 --like decoder.9.cross.1", {"'decoder.9.cross.1'", "nearest"});
  refused("heads", {"source file and a target file"});
  refused("heads " + pairs + " -o " + quoted("a.txt"), {".csv or .json"});
  refused("heads " + pairs + " --limit 2 --compare " + write("other.json", "{}"), {"other.json"});
  refused("heads " + quoted("nowhere.zh") + " " + quoted("nowhere.en"), {"nowhere.zh"});
}

// ---- align -----------------------------------------------------------------------------------------------------------------

TEST_F(See, AlignPrintsPharaohAndScoresAgainstAReference) {
  const std::string zh = write("a.zh", "他知道如何弹钢琴。\n我喜欢学习中文。\n"),
                    en = write("a.en", "He knows how to play the piano.\nI like studying Chinese.\n");
  const std::vector<std::string> links = lines_of(must("align " + zh + " " + en).out);
  ASSERT_EQ(links.size(), 2u);
  for (const std::string& line : links)
    EXPECT_TRUE(std::regex_match(line, std::regex("[0-9]+-[0-9]+( [0-9]+-[0-9]+)*"))) << line;
  const std::vector<std::string> words = lines_of(must("align " + zh + " " + en + " --words").out);
  EXPECT_NE(words.at(1).find("中文-Chinese"), std::string::npos) << words.at(1);
  const std::vector<std::string> json = lines_of(must("align " + zh + " " + en + " --json").out);
  EXPECT_EQ(Json::parse(json.at(1)).at("links"), links[1]);
  EXPECT_EQ(Json::parse(json.at(1)).at("target_words").at(3), "Chinese");
  // Against itself nothing is wrong; every link the other way about is.
  const std::string gold = write("gold", links[0] + "\n" + links[1] + "\n");
  const std::string scored = lines_of(must("align " + zh + " " + en + " --reference " + gold).out).back();
  EXPECT_EQ(scored, "# precision 1.0000, recall 1.0000, alignment error rate 0.0000");
  // Fewer links where both directions must agree.
  const auto count = [&](const std::string& how) {
    std::stringstream stream(must("align " + zh + " " + en + " --symmetrise " + how).out);
    int links_found = 0;
    for (std::string link; stream >> link;) ++links_found;
    return links_found;
  };
  EXPECT_LT(count("intersection"), count("union"));
}

TEST_F(See, AlignNamesWhatExists) {
  const std::string zh = write("a.zh", "你好。\n"), en = write("a.en", "Hello.\n"),
                    two = write("two.en", "Hello.\nHello.\n");
  refused("align " + zh + " " + en + " --symmetrise grow", {"\"grow\"", "grow-diag"});
  refused("align " + zh + " " + en + " --layers 9", {"layer 9", "0 to 3"});
  refused("align " + zh + " " + en + " --heads 9", {"head 9", "0 to 3", "-1 for the last"});
  refused("align " + zh + " " + en + " --heads -5", {"head -5"});
  refused("align " + zh + " " + en + " --rule largst", {"largst", "largest"});
  refused("align " + zh + " " + en + " --rule largest --threshold 0.3", {"--threshold", "the rule is largest"});
  must("align " + zh + " " + en + " --heads -1,0 --layers -1");
  refused("align " + zh + " " + two, {"two.en"});
  refused("align " + zh + " " + en + " --reference " + write("bad", "0-x\n"), {"bad"});
  refused("align " + zh + " " + en + " --model tang-quatrains", {"translat"});
}

}  // namespace
