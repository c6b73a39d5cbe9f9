// Integrated gradients, rollout and value zeroing as a user of `attend inspect` meets them: terminal, files, pictures,
// messages.
#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "program_test.h"

namespace {

namespace fs = std::filesystem;
using Json = nlohmann::json;

class AttributionProgram : public ProgramTest {
 protected:
  AttributionProgram() : ProgramTest("attribution") {}

  std::string path(const std::string& name) const { return ProgramTest::path(name).string(); }
  Result inspect(const std::string& arguments) const {
    return attend("inspect 我喜欢学习中文。 --target 'I like learning Chinese.' " + arguments);
  }
  void refused(const std::string& arguments, const std::string& part) const {
    const Result result = inspect(arguments);
    EXPECT_EQ(result.code, 2) << arguments << ": " << result.err;
    EXPECT_NE(result.err.find(part), std::string::npos) << arguments << ": " << result.err;
  }
};

constexpr const char* all =
    "--why Chinese --attention cross --attribution integrated-gradients,gradient-input,rollout,value-zeroing ";

TEST_F(AttributionProgram, TerminalShowsWordsAndTheCompletenessError) {
  const Result result = inspect(all);
  ASSERT_EQ(result.code, 0) << result.err;
  for (const char* part : {"integrated gradients: what each word adds", "gradient x input: what each word adds",
                           "cross rollout: ", "cross value zeroing: ", "completeness error", "steps"})
    EXPECT_NE(result.out.find(part), std::string::npos) << part << " is not in\n" << result.out;
  // The word that the logit of "Chinese" hangs on leads its list.
  std::stringstream lines(result.out.substr(result.out.find("integrated gradients:")));
  double largest = -1e9, chinese = 0;
  for (std::string line; std::getline(lines, line) && line.find("sum ") == std::string::npos;)
    if (const std::size_t sign = line.find_first_of("+-"); sign != std::string::npos && line.starts_with("    ")) {
      const double value = std::stod(line.substr(sign));
      largest = std::max(largest, value);
      if (line.find("中文") != std::string::npos) chinese = value;
    }
  EXPECT_EQ(chinese, largest) << result.out;
}

TEST_F(AttributionProgram, FilesHoldTheSameNumbers) {
  std::string outputs;
  for (const char* name : {"a.json", "a.csv", "a.tokens.csv", "a.npz", "a.html", "a.svg"})
    outputs += " --output " + path(name);
  const Result result = inspect(all + outputs + " --picture attribution");
  ASSERT_EQ(result.code, 0) << result.err;
  const Json json = Json::parse(contents(path("a.json")));
  ASSERT_EQ(json["attributions"].size(), 2u);
  const Json& integrated = json["attributions"][0];
  EXPECT_EQ(integrated["name"], "integrated_gradients");
  double sum = 0;
  for (const Json& text : integrated["values"])
    for (const Json& value : text) sum += value.get<double>();
  EXPECT_NEAR(sum - (integrated["target"].get<double>() - integrated["baseline"].get<double>()),
              integrated["completeness_error"].get<double>(), 1e-4);
  std::vector<std::string> names;
  for (const Json& attention : json["attentions"]) names.push_back(attention["name"]);
  EXPECT_EQ(names, (std::vector<std::string>{"cross", "cross rollout", "cross value zeroing"}));
  for (const Json& layer : json["attentions"][2]["measures"][0]["values"])
    for (const Json& row : layer[0]) {
      double shares = 0;
      for (const Json& value : row) shares += value.get<double>();
      EXPECT_NEAR(shares, 1, 1e-5);
    }
  const std::string tokens = contents(path("a.tokens.csv"));
  EXPECT_TRUE(tokens.starts_with("text,index,token,integrated_gradients,gradient_input\r\n")) << tokens;
  EXPECT_EQ(std::count(tokens.begin(), tokens.end(), '\n'),
            1 + static_cast<std::ptrdiff_t>(json["texts"][0]["tokens"].size() + json["texts"][1]["tokens"].size()));
  EXPECT_NE(contents(path("a.csv")).find(",rollout,value_zeroing\r\n"), std::string::npos);
  EXPECT_NE(contents(path("a.npz")).find("cross_rollout/rollout.npy"), std::string::npos);
  EXPECT_NE(contents(path("a.html")).find("completeness_error"), std::string::npos);
  EXPECT_NE(contents(path("a.svg")).find("Integrated gradients: logit of Chinese after"), std::string::npos);
}

TEST_F(AttributionProgram, PicturesOfEachKind) {
  for (const std::string options : {"--measure rollout", "--measure value_zeroing --picture matrix",
                                    "--measure integrated_gradients", "--measure gradient_input"}) {
    const Result result = inspect(all + options + " --output " + path("a.svg"));
    EXPECT_EQ(result.code, 0) << options << ": " << result.err;
    EXPECT_TRUE(contents(path("a.svg")).ends_with("</svg>\n")) << options;
  }
}

TEST_F(AttributionProgram, WhatCannotBeIsRefused) {
  refused("--attribution integrated-gradients", "add --why TOKEN or --sequence");
  refused("--attribution integrated-gradient --why Chinese", "did you mean integrated-gradients?");
  refused("--attribution rollout --steps 5", "add --attribution integrated-gradients");
  refused("--picture attribution --output " + path("a.svg"), "no attribution of words was made");
  refused("--attribution integrated-gradients --why Chinese --baseline nosuchtoken", "nosuchtoken");
}

}  // namespace
