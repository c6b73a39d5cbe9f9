// What inspecting commands refuse, and how: with an exit code and advice, before they compute, never by a signal.
#include <nlohmann/json.hpp>
#include <string>

#include "program_test.h"

namespace {

namespace fs = std::filesystem;
using Json = nlohmann::json;

class InspectionFaults : public ProgramTest {
 protected:
  InspectionFaults() : ProgramTest("faults") {}

  std::string path(const std::string& name) const { return ProgramTest::path(name).string(); }
  std::string write(const std::string& name, const std::string& text) const {
    return ProgramTest::write(name, text).string();
  }
  void refused(const std::string& arguments, const std::string& part) const {
    const Result result = attend(arguments);
    EXPECT_EQ(result.code, 2) << arguments << ": " << result.err;
    EXPECT_NE(result.err.find(part), std::string::npos) << arguments << ": " << result.err;
    EXPECT_TRUE(result.out.empty()) << arguments << ": " << result.out;
  }
};

const char* const cut =
    "edit 我喜欢学习中文。 --target 'I like learning Chinese.' --no-generation "
    "--edit '{\"kind\": \"cut\", \"at\": \"decoder.2.cross\", \"heads\": [1]}'";

TEST_F(InspectionFaults, AnEditHasNoAttentionToWrite) {
  for (const char* ending : {".npy", ".npz", ".csv", ".rows.csv", ".top.csv", ".heads.csv", ".html"}) {
    refused(cut + (" -o " + path("x") + ending), "there is none");
    EXPECT_FALSE(fs::exists(path("x") + ending));
  }
  refused(cut + (" -o " + path("x.svg --picture matrix")), "leave out --picture");
  const Result done = attend(cut + (" -o " + path("x.svg") + " -o " + path("x.json")));
  EXPECT_EQ(done.code, 0) << done.err;
  EXPECT_NE(contents(path("x.svg")).find("</svg>"), std::string::npos);
  EXPECT_FALSE(Json::parse(contents(path("x.json")))["outcomes"].empty());
}

TEST_F(InspectionFaults, OptionsThatWouldDoNothing) {
  refused("inspect 好 --why Good --exact -5", "--exact");
  refused("inspect 好 --why Good --at -7", "--at");
  refused("inspect 好 --at 1", "--why");
  refused("inspect 好 --why Good --sequence", "--sequence");
  refused("inspect 好 --picture lines", "--output");
  refused("inspect 好 --picture lines -o " + path("x.csv"), "none is written");
  refused(cut + (" --measure bogus -o " + path("x.json")), "--measure");
  refused("heads --repeated --both", "--both");
  refused("heads --repeated " + write("a", "好\n"), "--repeated");
  refused("heads --model tang-quatrains " + path("a") + " --reference " + path("a"), "--reference");
}

TEST_F(InspectionFaults, FreezingGoesAsFarAsTheTextItReads) {
  const Result frozen =
      attend("edit 我喜欢学习中文。 --target I --edit '{\"kind\": \"freeze\", \"at\": \"decoder.0\"}'");
  EXPECT_EQ(frozen.code, 0) << frozen.err;
  EXPECT_NE(frozen.out.find("the whole text"), std::string::npos) << frozen.out;
  EXPECT_NE(frozen.out.find("edited  I"), std::string::npos) << frozen.out;
  EXPECT_NE(frozen.out.find("no further: edit 'edit 1': position 2 of decoder.0"), std::string::npos) << frozen.out;
}

TEST_F(InspectionFaults, OutcomesSayWhereTheyAre) {
  const auto inspection = [&](const std::string& more) {
    const Result result = attend(cut + (" -o " + path("x.json") + " -o " + path("x.svg") + more));
    EXPECT_EQ(result.code, 0) << result.err;
    EXPECT_NE(result.out.find("x.svg"), std::string::npos) << result.out;
    return Json::parse(contents(path("x.json")));
  };
  const Json moved = inspection(""), first = inspection(" --at 0");
  EXPECT_EQ(first["target"], "logits at position 0");
  EXPECT_NE(moved["target"], first["target"]);
  EXPECT_NE(moved["outcomes"], first["outcomes"]);
  EXPECT_EQ(first["edits"][0], "edit 1 (cut decoder.2.cross, heads 1)");
  ASSERT_EQ(first["texts"].size(), 2u);
  EXPECT_NE(contents(path("x.svg")).find("position 0"), std::string::npos);
  refused(cut + (" -o " + path("x.svg") + " --at 99"), "there is no position 99");
}

TEST_F(InspectionFaults, FilesAreToldAndEffectsStayPrinted) {
  const Result result = attend("inspect 好 --why Good --attention cross -o " + path("w.npy") + " -o " + path("w.svg"));
  EXPECT_EQ(result.code, 0) << result.err;
  EXPECT_NE(result.out.find("w.npy  weight of cross, [layers 4, heads 4, queries"), std::string::npos) << result.out;
  EXPECT_NE(result.out.find("w.svg  wall of cross: weight"), std::string::npos) << result.out;
  EXPECT_NE(result.out.find("first order"), std::string::npos) << result.out;
}

TEST_F(InspectionFaults, EditsAreSavedOnlyIfTheyCanBeMade) {
  write("kept.json", "mine");
  refused("edit 好 --edit '{\"kind\": \"cut\", \"at\": \"decoder.7\"}' --save " + path("kept.json"), "decoder.7");
  EXPECT_EQ(contents(path("kept.json")), "mine");
}

TEST_F(InspectionFaults, EditsCountFromZero) {
  const auto edit = [&](const std::string& fields) {
    refused("edit 好 --edit '{\"kind\": \"cut\", \"at\": \"decoder.2.cross\", " + fields + "}'",
            "edits count from 0, in their text and in their model");
  };
  edit("\"heads\": [-1]");
  edit("\"positions\": [-1]");
  edit("\"keys\": [[-2, null]]");
}

TEST_F(InspectionFaults, LendingModelsHaveTheSameWords) {
  // Two models of one shape whose vocabularies have as many tokens, but others.
  const auto trained = [&](const std::string& name, const char* lines) {
    std::string text;
    for (int i = 0; i < 40; ++i) text += lines;
    write(name + ".txt", text);
    const std::string recipe = write(
        name + ".toml",
        "title = \"Tiny\"\n[data]\ntask = \"lines\"\ntrain = \"" + name +
            ".txt\"\nvalid_lines = 10\n"
            "[tokenizer]\nkind = \"character\"\n[model]\ndecoder_layers = 1\nwidth = 16\nheads = 2\ninner_width = 32\n"
            "positions = \"learned\"\nmax_positions = 12\n[train]\nsteps = 10\nbatch_items = 8\nrate = 1e-2\nvalidate_every = 10\n");
    const Result result = attend("train " + recipe + " --output " + path(name));
    EXPECT_EQ(result.code, 0) << result.err;
    for (const auto& entry : fs::recursive_directory_iterator(path(name)))
      if (entry.path().filename() == "config.json") return entry.path().parent_path().string();
    return std::string();
  };
  const std::string one = trained("one", "anna\nbob\nclara\ndavid\n"),
                    other = trained("other", "erre\nfsf\ngpeve\nhezmh\n");
  const auto patched = [&](const std::string& from) {
    return attend(
        "edit anna --model " + one +
        " --no-generation --allow-untouched --edit '{\"kind\": \"patch\", \"at\": \"decoder.0.output\", \"model\": \"" +
        from + "\"}'");
  };
  EXPECT_EQ(patched(one).code, 0) << patched(one).err;
  const Result result = patched(other);
  EXPECT_EQ(result.code, 1) << result.err;
  EXPECT_NE(result.err.find("tokenizer of fingerprint"), std::string::npos) << result.err;
}

TEST_F(InspectionFaults, ReferencesAreCountedByLinesOfTheFiles) {
  const std::string source = write("zh", "好\n\n你好\n我喜欢学习。\n"),
                    target = write("en", "Good\nx\nHello\nI like learning.\n");
  const std::string three = write("three", "0-0\n\n0-0\n"), four = write("four", "0-0\n\n0-0\n0-0\n");
  for (const std::string command : {"heads ", "align "}) {
    const std::string call = command + source + " " + target + " --skip-empty --reference ";
    refused(call + three, "has 3 lines and the pairs go on to line 4");
    const Result whole = attend(call + four);
    EXPECT_EQ(whole.code, 0) << whole.err;
  }
}

TEST_F(InspectionFaults, DifferencesAreNoReport) {
  const std::string report = path("report.json"), changes = path("changes.json");
  ASSERT_EQ(attend("heads --repeated --limit 2 -o " + report).code, 0);
  const Result compared =
      attend("heads --repeated --limit 3 --compare " + report + " -o " + changes + " -o " + path("changes.csv"));
  ASSERT_EQ(compared.code, 0) << compared.err;
  const Json json = Json::parse(contents(changes)), before = Json::parse(contents(report));
  EXPECT_EQ(json["format"], "attend head differences");
  EXPECT_EQ(json["before"]["corpus"], before["corpus"]);
  EXPECT_NE(json["after"]["corpus"], before["corpus"]);
  EXPECT_TRUE(contents(path("changes.csv")).starts_with("head,stack,part,layer,number,previous_token_change,"));
  const Result again = attend("heads --repeated --limit 2 --compare " + changes);
  EXPECT_EQ(again.code, 1);
  EXPECT_NE(again.err.find("differences of two reports"), std::string::npos) << again.err;
  const Result shown = attend("heads --repeated --limit 3 --compare " + report + " --behaviour entropy");
  EXPECT_NE(shown.out.find("scores before (" + report + ") and now, those that changed most first"), std::string::npos)
      << shown.out;
  EXPECT_NE(shown.out.find("  head                    before       now    change\n"), std::string::npos) << shown.out;
  EXPECT_NE(shown.out.find("corpora differ"), std::string::npos) << shown.out;
}

TEST_F(InspectionFaults, WhatIsWrongIsToldBeforeTheCorpusIsRead) {
  refused("heads " + path("none") + " " + path("none") + " --like decoder.9.cross.1", "decoder.9.cross.1");
  const Result broken =
      attend("heads " + path("none") + " " + path("none") + " --compare " + write("broken.json", "{"));
  EXPECT_EQ(broken.code, 1);
  EXPECT_NE(broken.err.find("broken.json: is not JSON"), std::string::npos) << broken.err;
}

TEST_F(InspectionFaults, ACorpusIsReadLineByLine) {
  // Past the limit nothing is read: the ill-formed rest is never seen.
  const std::string source = write("zh", "好\n你好\n\xff\n"), target = write("en", "Good\nHello\nx\n");
  EXPECT_EQ(attend("heads " + source + " " + target + " --limit 2").code, 0);
  const Result whole = attend("heads " + source + " " + target);
  EXPECT_EQ(whole.code, 1);
  EXPECT_NE(whole.err.find("zh:3"), std::string::npos) << whole.err;
}

}  // namespace
