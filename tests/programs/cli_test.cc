// The command line as a user types it: what it prints, where, and with which exit code.
#include <poll.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <cstdlib>
#include <nlohmann/json.hpp>
#include <sstream>
#include <string>
#include <vector>

#include "program_test.h"

namespace {

namespace fs = std::filesystem;
using Json = nlohmann::json;

class Cli : public ProgramTest {
 protected:
  Cli() : ProgramTest("cli") {}

  Result run(const std::string& arguments, const std::string& input = "", const std::string& redirection = "") const {
    return attend(arguments, write("input", input).string(), redirection);
  }

  // A folder of names and a recipe that trains on them in a second.
  fs::path tiny_recipe(const std::string& extra = "") const {
    std::string names;
    for (int i = 0; i < 60; ++i) names += std::string("anna\nbob\nclara\ndavid\n");
    write("names.txt", names);
    return write("tiny.toml",
                 "title = \"Tiny\"\n[data]\ntask = \"lines\"\ntrain = \"names.txt\"\nvalid_lines = 20\n"
                 "[tokenizer]\nkind = \"character\"\n"
                 "[model]\ndecoder_layers = 1\nwidth = 16\nheads = 2\ninner_width = 32\npositions = \"learned\"\n"
                 "max_positions = 12\n[train]\nsteps = 60\nbatch_items = 16\nrate = 1e-2\nvalidate_every = 20\n" +
                     extra);
  }
};

// ---- How it is called ----------------------------------------------------------------------------------------------
TEST_F(Cli, HelpNamesEveryCommandAndGivesExamples) {
  const Result help = run("--help");
  EXPECT_EQ(help.code, 0);
  for (const char* command :
       {"train", "translate", "generate", "score", "eval", "tokenize", "describe", "bench", "completion", "version"}) {
    EXPECT_NE(help.out.find(command), std::string::npos) << command;
    const Result one = run(std::string(command) + " --help");
    EXPECT_EQ(one.code, 0) << command;
    EXPECT_NE(one.out.find("--threads"), std::string::npos) << command << ": " << one.out;
  }
  EXPECT_NE(help.out.find("Examples"), std::string::npos);
}

TEST_F(Cli, HelpOfEveryCommandTellsItsOwnOptionsFromThoseOfAll) {
  const auto count = [](const std::string& text, const std::string& part) {
    int times = 0;
    for (std::size_t at = text.find(part); at != std::string::npos; at = text.find(part, at + 1)) ++times;
    return times;
  };
  for (const char* command :
       {"train", "translate", "score", "bench", "bench attention", "bench training", "bench translation", "version"}) {
    const Result help = run(std::string(command) + " --help");
    EXPECT_EQ(count(help.out, "Options of every command"), 1) << command << ": " << help.out;
    EXPECT_EQ(count(help.out, "--threads N, --seed N"), 1) << command << ": " << help.out;
    EXPECT_EQ(help.out.find("attend generate"), std::string::npos)
        << "examples of others under " << command << ": " << help.out;
    EXPECT_EQ(help.out.find("... ..."), std::string::npos) << "one argument shown as many: " << help.out;
  }
  EXPECT_NE(run("bench attention --help").out.find("attend bench attention"), std::string::npos);
}

TEST_F(Cli, WrongCallsEndWithTwoAndSayWhatIsPossible) {
  for (const char* wrong :
       {"translate --nonsense", "frobnicate", "train", "eval --hypotheses x", "translate --strategy fastest",
        "translate --threads 0", "translate --threads 9999", "translate --threads two", "version --seed -1",
        "version --seed 99999999999999999999999", "train --resume --overwrite -o runs/none", "train x.toml --steps 0",
        "bench attention --only nope", "translate --top-k 5", "translate --n-best 9",
        "translate --n-best 2 --strategy greedy", "generate --beam-size 3",
        "translate --min-length 5 --max-length 2"}) {
    const Result result = run(wrong);
    EXPECT_EQ(result.code, 2) << wrong << ": " << result.err;
    EXPECT_TRUE(result.err.starts_with("attend: ")) << result.err;
    EXPECT_TRUE(result.out.empty()) << wrong;
  }
}

TEST_F(Cli, MessagesUseTheWordsOfTheCommandLine) {
  const auto expect = [&](const std::string& arguments, const std::string& part, const std::string& input = "") {
    const Result result = run(arguments, input);
    EXPECT_NE(result.code, 0) << arguments;
    EXPECT_NE(result.err.find(part), std::string::npos) << arguments << ": " << result.err;
    EXPECT_EQ(result.err.find("json.exception"), std::string::npos) << result.err;
  };
  expect("translat x", "unknown command 'translat'; did you mean translate?");
  expect("bench atention", "unknown command 'atention'; did you mean attention?");
  expect("translate --show-atention", "unknown option '--show-atention'; did you mean --show-attention?");
  expect("train x.toml --steps 0", "'0' is too small: at least 1");
  expect("version --seed -1", "'-1' is no whole number from 0");
  expect("version --threads two", "'two' is no whole number from 1 to 256");
  expect("translate --beam-size many", "--beam-size: 'many' is no whole number");
  expect("translate --length-penalty x", "--length-penalty: 'x' is no number");
  expect("explore --port 99999", "--port: '99999' is out of range");
  expect("inspect --scale 40 x", "'40' is not from 0.1 to 20");
  expect("translate --strategy fastest", "'fastest' is none of greedy, sample, beam");
  expect("bench attention --target nope", "Run `attend bench attention --help`");
  expect("train", "RECIPE is required");
  expect("bench", "attend bench does one of attention, statistics, training");
  expect("inspect --layers 1,x a", "--layers: 'x' is no whole number");
  expect("translate --n-best 9", "add --beam-size 9");
  expect("translate --temperature 2", "add --strategy sample");
  expect("bench attention --only nope", "self_1024");
  expect("generate '\xff'", "--replace-invalid");
  expect("translate --prefix '\xff'", "--replace-invalid", "a\n");
  const std::string longer = std::string(5000, 'a') + "\n";
  const fs::path file = write("long.txt", longer), one = write("one.txt", "a\n");
  expect("translate", "--longest-line", longer);
  expect("eval --hypotheses " + file.string() + " --references " + one.string(), "--longest-line");
  expect("score " + file.string() + " " + one.string(), "--longest-line");
  expect("score " + write("empty.txt", "\n").string() + " " + one.string(), "--skip-empty");
  expect("translate", "\\x00\\x00", std::string(5000, '\0'));
  expect("translate", "the limit is 4096", std::string(5000, '\0'));
}

TEST_F(Cli, VersionIsJsonOnRequest) {
  const Result result = run("version --json");
  EXPECT_EQ(result.code, 0);
  EXPECT_TRUE(Json::parse(result.out).contains("version"));
}

TEST_F(Cli, CompletionScriptsParseInBash) {
  const Result result = run("completion bash");
  EXPECT_EQ(result.code, 0);
  write("completion.sh", result.out);
  EXPECT_EQ(std::system(("bash -n '" + path("completion.sh").string() + "'").c_str()), 0);
  EXPECT_NE(result.out.find("--show-attention"), std::string::npos);
  const auto completed = [&](const std::string& words) {
    const std::string script = "source '" + path("completion.sh").string() + "'; COMP_WORDS=(attend " + words +
                               "); COMP_CWORD=$((${#COMP_WORDS[@]} - 1)); _attend; printf '%s\\n' \"${COMPREPLY[@]}\"";
    write("complete.sh", script);
    EXPECT_EQ(std::system(
                  ("bash '" + path("complete.sh").string() + "' > '" + path("completed").string() + "' 2>&1").c_str()),
              0);
    return lines_of(contents(path("completed")));
  };
  using Words = std::vector<std::string>;
  EXPECT_EQ(completed("transl"), Words{"translate"});
  EXPECT_EQ(completed("translate --sh"), Words{"--show-attention"});
  EXPECT_EQ(completed("--threads 1 translate --sh"), Words{"--show-attention"});
  EXPECT_EQ(completed("translate --hel"), Words{"--help"}) << "once";
  EXPECT_EQ(completed("translate --strategy gr"), Words{"greedy"});
  EXPECT_EQ(completed("translate --model tat"), Words{"tatoeba-zh-en"});
  EXPECT_EQ(completed("describe tang"), Words{"tang-quatrains"});
  EXPECT_EQ(completed("bench att"), Words{"attention"});
  EXPECT_EQ(completed("bench attention --on"), Words{"--only"});
  EXPECT_EQ(completed("bench attention --pass forw"), Words{"forward"});
  EXPECT_EQ(completed("completion fi"), Words{"fish"});
  EXPECT_EQ(completed("train '" + path("completion.").string() + "'"), Words{path("completion.sh").string()});
}

TEST_F(Cli, VersionAndHelpAreFoundWhereTheyAreLookedFor) {
  EXPECT_TRUE(run("--version").out.starts_with("attend "));
  EXPECT_EQ(run("help bench attention").out, run("bench attention --help").out);
  EXPECT_EQ(run("help").out, run("--help").out);
  const Result unknown = run("help translat");
  EXPECT_EQ(unknown.code, 2);
  EXPECT_NE(unknown.err.find("did you mean translate?"), std::string::npos) << unknown.err;
  EXPECT_FALSE(Json::parse(run("version --json").out)["instruction_sets"].empty());
}

// ---- Translation with the model that ships ----------------------------------------------------------------------------
TEST_F(Cli, TranslatesBothDirectionsByScript) {
  const Result result = run("translate --json", "我喜欢你。\nI like you.\n\n");
  ASSERT_EQ(result.code, 0) << result.err;
  const auto lines = lines_of(result.out);
  ASSERT_EQ(lines.size(), 3u);
  const Json first = Json::parse(lines[0]), second = Json::parse(lines[1]), third = Json::parse(lines[2]);
  EXPECT_EQ(first["to"], "en");
  EXPECT_EQ(second["to"], "zh");
  EXPECT_EQ(third["translation"], "");
  EXPECT_NE(first["translation"].get<std::string>().find("you"), std::string::npos) << lines[0];
  EXPECT_NE(second["translation"].get<std::string>().find("你"), std::string::npos) << lines[1];
  EXPECT_TRUE(result.err.empty()) << result.err;
}

TEST_F(Cli, ShowsWhereEachWordRead) {
  const Result result = run("translate --show-attention", "我喜欢你。\n");
  ASSERT_EQ(result.code, 0) << result.err;
  EXPECT_NE(result.out.find("喜欢"), std::string::npos);
  EXPECT_NE(result.out.find("%"), std::string::npos);
  EXPECT_EQ(result.out.find('\033'), std::string::npos) << "no colour where there is no terminal";
  const Result json = run("translate --show-attention --json", "我喜欢你。\n");
  const Json attention = Json::parse(json.out)["attention"];
  for (const Json& row : attention["weights"]) {
    double sum = 0;
    for (const Json& weight : row) sum += weight.get<double>();
    EXPECT_NEAR(sum, 1, 1e-4);
    EXPECT_EQ(row.size(), attention["source_tokens"].size());
  }
}

TEST_F(Cli, ThreadsAndBatchesChangeNoTranslation) {
  const std::string input = contents(std::string(ATTEND_SOURCE_DIR) + "/example/sentences.txt");
  const Result one = run("translate --json --threads 1 --batch-size 1", input),
               two = run("translate --json --threads 2", input);
  ASSERT_EQ(one.code, 0) << one.err;
  EXPECT_EQ(one.out, two.out);
}

TEST_F(Cli, NBestAndForcedPrefix) {
  const Result result = run("translate --n-best 3 --scores", "我喜欢你。\n");
  ASSERT_EQ(result.code, 0) << result.err;
  EXPECT_EQ(lines_of(result.out).size(), 3u);
  const Result forced = run("translate --prefix 'She '", "我喜欢你。\n");
  ASSERT_EQ(forced.code, 0) << forced.err;
  EXPECT_TRUE(forced.out.starts_with("She ")) << forced.out;
}

TEST_F(Cli, ShownAttentionKeepsTheOtherOptions) {
  const Result result = run("translate --show-attention --n-best 2 --scores", "我喜欢你。\n");
  ASSERT_EQ(result.code, 0) << result.err;
  int translations = 0;
  for (const std::string& line : lines_of(result.out))
    translations += line.starts_with("en  -") && line.find('\t') != std::string::npos;
  EXPECT_EQ(translations, 2) << result.out;
}

TEST_F(Cli, SeveralFilesAreToldApart) {
  std::string endless;
  for (int i = 0; i < 600; ++i) endless += "tea and ";
  const fs::path first = write("first.txt", "I like you.\n"),
                 second = write("second.txt", "I like you.\n" + endless + "\n");
  const std::string both = first.string() + " " + second.string();
  const Result longer = run("translate --longest-line 100000 " + both);
  EXPECT_EQ(longer.code, 1);
  EXPECT_NE(longer.err.find(second.string() + ":2: has "), std::string::npos) << longer.err;
  const Result scored = run("score --skip-empty --longest-line 100000 " +
                            write("s", "\na\n" + endless + "\n").string() + " " + write("t", "\na\nb\n").string());
  EXPECT_NE(scored.err.find(path("s").string() + ":3: has "), std::string::npos) << scored.err;
  const Result json = run("translate --json --beam-size 1 " + first.string() + " " + first.string());
  ASSERT_EQ(json.code, 0) << json.err;
  for (const std::string& line : lines_of(json.out)) EXPECT_EQ(Json::parse(line)["file"], first.string());
  EXPECT_FALSE(Json::parse(run("translate --json --beam-size 1", "I like you.\n").out).contains("file"));
  const Result missing = run("translate " + first.string() + " no-such-file");
  EXPECT_EQ(missing.code, 1);
  EXPECT_EQ(missing.out, "") << "told before the first file is translated";
}

// A program that writes a line into a pipe and waits for the answer gets it.
TEST_F(Cli, AnswersLineByLineThroughPipes) {
  int to[2], from[2];
  ASSERT_EQ(::pipe(to) + ::pipe(from), 0);
  const pid_t child = ::fork();
  if (child == 0) {
    ::dup2(to[0], 0);
    ::dup2(from[1], 1);
    for (const int end : {to[0], to[1], from[0], from[1]}) ::close(end);
    ::execl(ATTEND_PROGRAM, "attend", "tokenize", nullptr);
    ::_exit(127);
  }
  ::close(to[0]);
  ::close(from[1]);
  for (const std::string line : {"I like you.\n", "Me, too.\n"}) {
    ASSERT_EQ(::write(to[1], line.data(), line.size()), static_cast<ssize_t>(line.size()));
    pollfd answer{from[0], POLLIN, 0};
    ASSERT_EQ(::poll(&answer, 1, 60000), 1) << "no answer to " << line;
    char text[4096];
    EXPECT_GT(::read(from[0], text, sizeof(text)), 0);
  }
  ::close(to[1]);
  int status = 0;
  ::waitpid(child, &status, 0);
  EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0);
  ::close(from[0]);
}

TEST_F(Cli, BadTextIsRefusedByFileAndLine) {
  const fs::path bad = write("bad.txt", "good\n\xff\xfe\n");
  const Result refused = run("translate " + bad.string());
  EXPECT_EQ(refused.code, 1);
  EXPECT_NE(refused.err.find("bad.txt:2"), std::string::npos) << refused.err;
  const Result replaced = run("translate --replace-invalid --to zh --from en " + bad.string());
  EXPECT_EQ(replaced.code, 0) << replaced.err;
  EXPECT_EQ(lines_of(replaced.out).size(), 2u);
  std::string endless;
  for (int i = 0; i < 600; ++i) endless += "tea and ";
  const Result longer = run("translate --longest-line 100000", endless + "\n");
  EXPECT_EQ(longer.code, 1);
  EXPECT_NE(longer.err.find("reads at most"), std::string::npos) << longer.err;
  EXPECT_NE(run("translate no-such-file").code, 0);
}

TEST_F(Cli, ByteOrderMarkAndCrLfAreNoText) {
  const Result plain = run("translate", "I like you.\n"), marked = run("translate", "\xEF\xBB\xBFI like you.\r\n");
  EXPECT_EQ(marked.code, 0);
  EXPECT_EQ(plain.out, marked.out);
}

TEST_F(Cli, AFullDiskIsAnErrorAndAClosedPipeIsQuiet) {
  const Result full = run("translate", "I like you.\n", " > /dev/full");
  EXPECT_EQ(full.code, 1);
  EXPECT_NE(full.err.find("standard output"), std::string::npos) << full.err;
  // Far more than a pipe holds, so that attend meets the closed end; its own standard error and exit code are looked at.
  std::string many;
  for (int i = 0; i < 40000; ++i) many += "I like you.\n";
  write("many", many);
  const std::string script = std::string("'") + ATTEND_PROGRAM + "' tokenize < '" + path("many").string() + "' 2> '" +
                             path("err").string() + "' | head -n 1 > '" + path("out").string() +
                             "'; echo ${PIPESTATUS[0]} > '" + path("code").string() + "'";
  write("script.sh", script);
  ASSERT_EQ(std::system(("bash '" + path("script.sh").string() + "'").c_str()), 0);
  EXPECT_EQ(contents(path("code")), "1\n");
  EXPECT_EQ(contents(path("err")), "");
  EXPECT_EQ(lines_of(contents(path("out"))).size(), 1u);
}

// ---- The other commands ----------------------------------------------------------------------------------------------
TEST_F(Cli, TokenizesAndJoinsAgain) {
  const std::string text = "我喜欢学习中文。\nShe has a cat.\n";
  const Result ids = run("tokenize --ids", text);
  ASSERT_EQ(ids.code, 0) << ids.err;
  EXPECT_EQ(run("tokenize --decode", ids.out).out, text);
  EXPECT_EQ(run("tokenize --decode", "1 2 x\n").code, 1);
}

TEST_F(Cli, ScoresARealSentenceAboveAScrambledOne) {
  const fs::path source = write("s.zh", "我喜欢你。\n我喜欢你。\n"),
                 target = write("t.en", "I like you.\nyou. like I\n");
  const Result result = run("score --json " + source.string() + " " + target.string());
  ASSERT_EQ(result.code, 0) << result.err;
  const auto lines = lines_of(result.out);
  ASSERT_EQ(lines.size(), 3u);
  EXPECT_GT(Json::parse(lines[0])["log_probability"].get<double>(),
            Json::parse(lines[1])["log_probability"].get<double>());
  EXPECT_EQ(Json::parse(lines[2])["lines"], 2);
}

TEST_F(Cli, EvaluatesAnyTwoFiles) {
  const fs::path a = write("a.txt", "the cat sat on the mat\nhello world again now\n"),
                 b = write("b.txt", "the cat sat on a mat\nhello world again now\n");
  const Result result = run("eval --json --hypotheses " + a.string() + " --references " + b.string());
  ASSERT_EQ(result.code, 0) << result.err;
  const Json scores = Json::parse(result.out);
  EXPECT_NEAR(scores["exact"].get<double>(), 50, 1e-9);
  EXPECT_GT(scores["bleu"]["score"].get<double>(), 50);
  EXPECT_LT(scores["bleu"]["score"].get<double>(), 100);
  const fs::path shorter = write("c.txt", "one line\n");
  const Result unequal = run("eval --hypotheses " + a.string() + " --references " + shorter.string());
  EXPECT_EQ(unequal.code, 1);
  EXPECT_NE(unequal.err.find("2 lines"), std::string::npos) << unequal.err;
}

TEST_F(Cli, WritesPoemsThatTheSeedRepeats) {
  const Result a = run("generate 春 --seed 3"), b = run("generate 春 --seed 3 --threads 1"),
               c = run("generate 春 --seed 4");
  ASSERT_EQ(a.code, 0) << a.err;
  EXPECT_TRUE(a.out.starts_with("春")) << a.out;
  EXPECT_EQ(a.out, b.out);
  EXPECT_NE(a.out, c.out);
}

TEST_F(Cli, DescribesModelsSitesAndRecipeKeys) {
  const Result result = run("describe --json");
  ASSERT_EQ(result.code, 0) << result.err;
  const Json described = Json::parse(result.out);
  EXPECT_EQ(described["kind"], "encoder-decoder");
  EXPECT_NE(std::find(described["sites"].begin(), described["sites"].end(), "decoder.0.cross.weights"),
            described["sites"].end());
  EXPECT_NE(run("describe --recipe-keys").out.find("label_smoothing"), std::string::npos);
  bool found = false;
  for (const std::string& line : lines_of(run("describe --recipe-keys --json").out)) {
    const Json key = Json::parse(line);
    if (key["key"] != "train.rate") continue;
    found = true;
    EXPECT_TRUE(key["default"].is_null());
    EXPECT_EQ(key["tasks"].size(), 4u);
  }
  EXPECT_TRUE(found);
  EXPECT_EQ(Json::parse(run("describe --json -m tang-quatrains").out)["kind"], "decoder");
  const Result missing = run("describe no-such-model");
  EXPECT_EQ(missing.code, 1);
  EXPECT_NE(missing.err.find("tatoeba-zh-en"), std::string::npos) << "names what ships: " << missing.err;
}

// ---- Training ----------------------------------------------------------------------------------------------------------
TEST_F(Cli, TrainsResumesAndUsesTheModel) {
  const fs::path recipe = tiny_recipe();
  const Result whole = run("train --json " + recipe.string() + " -o " + path("whole").string());
  ASSERT_EQ(whole.code, 0) << whole.err;
  EXPECT_EQ(Json::parse(whole.out)["step"], 60);
  EXPECT_EQ(whole.err.find('\r'), std::string::npos) << "a moving line belongs on a terminal only";

  // Stopped after 25 steps and resumed: the same bytes.
  ASSERT_EQ(run("train " + recipe.string() + " --steps 25 -o " + path("parts").string()).code, 0);
  const Result resumed = run("train --json --resume --steps 60 -o " + path("parts").string());
  ASSERT_EQ(resumed.code, 0) << resumed.err;
  EXPECT_EQ(contents(path("whole") / "last" / "model.safetensors"),
            contents(path("parts") / "last" / "model.safetensors"));
  EXPECT_TRUE(contents(path("whole") / "loss.svg").starts_with("<svg"));
  for (const std::string& line : lines_of(contents(path("whole") / "train.jsonl")))
    EXPECT_TRUE(Json::accept(line)) << line;

  const Result generated = run("generate --strategy greedy -m " + (path("whole") / "final").string());
  ASSERT_EQ(generated.code, 0) << generated.err;
  EXPECT_FALSE(generated.out.empty());

  const Result again = run("train " + recipe.string() + " -o " + path("whole").string());
  EXPECT_EQ(again.code, 2) << "a folder that holds a run is not overwritten silently";
  EXPECT_NE(again.err.find("--"), std::string::npos) << again.err;
}

TEST_F(Cli, CtrlCSavesAndResumeGoesOn) {
  const fs::path recipe = tiny_recipe();
  const std::string folder = path("stopped").string();
  const pid_t child = ::fork();
  if (child == 0) {
    std::freopen("/dev/null", "w", stderr);
    std::freopen("/dev/null", "w", stdout);
    ::execl(ATTEND_PROGRAM, "attend", "train", recipe.c_str(), "--steps", "1000000", "-o", folder.c_str(), nullptr);
    ::_exit(127);
  }
  for (int i = 0; i < 300 && !fs::exists(fs::path(folder) / "last"); ++i) ::usleep(100000);
  ASSERT_TRUE(fs::exists(fs::path(folder) / "last"));
  const Result second = run("train " + recipe.string() + " --resume -o " + folder);
  EXPECT_EQ(second.code, 1) << "two trainings in one folder";
  EXPECT_NE(second.err.find("another process"), std::string::npos) << second.err;
  ::kill(child, SIGINT);
  int status = 0;
  ::waitpid(child, &status, 0);
  EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 130) << "a script must not go on as if the model were made";
  const Json last = Json::parse(lines_of(contents(fs::path(folder) / "train.jsonl")).back());
  EXPECT_EQ(last["event"], "end");
  EXPECT_EQ(last["how"], "stopped");
  const int step = last["step"].get<int>();
  const Result resumed =
      run("train --json --resume " + recipe.string() + " --steps " + std::to_string(step + 10) + " -o " + folder);
  ASSERT_EQ(resumed.code, 0) << resumed.err;
  EXPECT_EQ(Json::parse(resumed.out)["step"], step + 10);
}

// Under a cosine every step's rate depends on where the run ends: the resumed run must know --steps of the first call.
TEST_F(Cli, ResumesACosineWithItsOverridesAndNoRecipe) {
  const fs::path recipe = tiny_recipe("schedule = \"cosine\"\n");
  const std::string folder = path("stopped").string(), errors = path("child-err").string();
  const pid_t child = ::fork();
  if (child == 0) {
    std::freopen(errors.c_str(), "w", stderr);
    std::freopen("/dev/null", "w", stdout);
    ::execl(ATTEND_PROGRAM, "attend", "train", recipe.c_str(), "--steps", "600", "--seed", "5", "-o", folder.c_str(),
            nullptr);
    ::_exit(127);
  }
  for (int i = 0; i < 3000 && !fs::exists(fs::path(folder) / "last"); ++i) ::usleep(10000);
  ::kill(child, SIGINT);
  int status = 0;
  ::waitpid(child, &status, 0);
  ASSERT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 130) << contents(errors);
  EXPECT_NE(contents(errors).find("attend: stopping "), std::string::npos) << contents(errors);
  const std::string advice = "attend train --resume --output " + folder;
  EXPECT_NE(contents(errors).find("attend: saved; go on with: " + advice), std::string::npos) << contents(errors);
  ASSERT_LT(Json::parse(lines_of(contents(fs::path(folder) / "train.jsonl")).back())["step"], 600);

  const Result moved = run("train --resume --steps 700 -o " + folder);
  EXPECT_EQ(moved.code, 1);
  EXPECT_NE(moved.err.find("cosine"), std::string::npos) << moved.err;
  const Result resumed = run("train --json --resume --output " + folder);
  ASSERT_EQ(resumed.code, 0) << resumed.err;
  EXPECT_EQ(Json::parse(resumed.out)["step"], 600);
  ASSERT_EQ(run("train " + recipe.string() + " --steps 600 --seed 5 -o " + path("whole").string()).code, 0);
  for (const char* model : {"last", "final"})
    EXPECT_EQ(contents(path("whole") / model / "model.safetensors"),
              contents(fs::path(folder) / model / "model.safetensors"))
        << model;
  EXPECT_EQ(run("train --resume").code, 2);
}

// Only --overwrite removes models, and a copy of a run can be gone on with.
TEST_F(Cli, RunsWithoutTheirLinksAreRunsStill) {
  const fs::path recipe = tiny_recipe();
  const std::string whole = path("whole").string();
  ASSERT_EQ(run("train " + recipe.string() + " --steps 40 -o " + whole).code, 0);
  const auto copy = [&](const char* name, const char* how) {
    EXPECT_EQ(std::system(("cp " + std::string(how) + " '" + whole + "' '" + path(name).string() + "'").c_str()), 0);
    return path(name);
  };
  const fs::path bare = copy("bare", "-r"), followed = copy("followed", "-rL"), finished = copy("finished", "-r");
  for (const char* link : {"last", "best"}) fs::remove(bare / link), fs::remove(finished / link);
  fs::remove_all(finished / "checkpoints");
  for (const fs::path& folder : {bare, finished}) {
    const std::string model = contents(folder / "final" / "model.safetensors");
    const Result refused = run("train " + recipe.string() + " --steps 20 -o " + folder.string());
    EXPECT_EQ(refused.code, 2) << refused.err;
    EXPECT_NE(refused.err.find("--overwrite"), std::string::npos) << refused.err;
    EXPECT_EQ(contents(folder / "final" / "model.safetensors"), model);
  }
  const Result nothing = run("train --resume -o " + finished.string());
  EXPECT_EQ(nothing.code, 1);
  EXPECT_EQ(nothing.err.find("start the run without resuming"), std::string::npos) << nothing.err;

  ASSERT_EQ(run("train " + recipe.string() + " --steps 60 -o " + path("straight").string()).code, 0);
  for (const fs::path& folder : {bare, followed}) {
    const Result planned = run("train --resume --plan --json --steps 60 -o " + folder.string());
    ASSERT_EQ(planned.code, 0) << planned.err;
    EXPECT_EQ(Json::parse(planned.out)["resumed_at"], 40);
    const Result resumed = run("train --resume --steps 60 -o " + folder.string());
    ASSERT_EQ(resumed.code, 0) << resumed.err;
    EXPECT_TRUE(fs::is_symlink(fs::symlink_status(folder / "last")));
    EXPECT_EQ(contents(folder / "last" / "model.safetensors"),
              contents(path("straight") / "last" / "model.safetensors"));
  }

  // Damage in one's own run: no advice to fetch it again.
  fs::resize_file(bare / "last" / "model.safetensors", 100);
  const Result damaged = run("train --resume --steps 80 -o " + bare.string());
  EXPECT_EQ(damaged.code, 1);
  EXPECT_EQ(damaged.err.find("get it again"), std::string::npos) << damaged.err;
}

TEST_F(Cli, ABlockedSizeOfFilesIsToldLikeAFullDisk) {
  const fs::path recipe = tiny_recipe();
  const std::string script = "ulimit -f 8; exec '" + std::string(ATTEND_PROGRAM) + "' train '" + recipe.string() +
                             "' -o '" + path("run").string() + "' > /dev/null 2> /dev/null";
  const int status = std::system(("bash -c \"" + script + "\"").c_str());
  EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 1) << status;
}

// Packed as the recipe says or not; where the estimate of memory is shown, that of the whole process is.
TEST_F(Cli, DataAreFoundUnpackedToo) {
  const fs::path recipe = tiny_recipe();
  std::string text = contents(recipe);
  text.replace(text.find("names.txt"), 9, "names.txt.gz");
  write("tiny.toml", text);
  const Result planned = run("train --plan " + recipe.string());
  ASSERT_EQ(planned.code, 0) << planned.err;
  EXPECT_NE(planned.err.find("names.txt.gz is not there: reading names.txt"), std::string::npos) << planned.err;
  const Json plan = Json::parse(run("train --plan --json " + recipe.string()).out);
  EXPECT_GT(plan["process_bytes"], plan["peak_bytes"].get<std::int64_t>() + (std::int64_t{1} << 20));
  fs::remove(path("names.txt"));
  EXPECT_NE(run("train --plan " + recipe.string()).err.find("names.txt.gz"), std::string::npos);
}

// The estimate of memory is for those who size a container: it is held against what the process really took.
TEST_F(Cli, TellsTheMemoryOfTheWholeProcess) {
  const fs::path recipe = tiny_recipe();
  const std::string folder = path("run").string();
  const pid_t child = ::fork();
  if (child == 0) {
    std::freopen("/dev/null", "w", stderr);
    std::freopen("/dev/null", "w", stdout);
    ::execl(ATTEND_PROGRAM, "attend", "train", recipe.c_str(), "-o", folder.c_str(), nullptr);
    ::_exit(127);
  }
  int status = 0;
  rusage used{};
  ASSERT_EQ(::wait4(child, &status, 0, &used), child);
  ASSERT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0);
  const double taken = 1024.0 * static_cast<double>(used.ru_maxrss);
  const double told =
      Json::parse(lines_of(contents(fs::path(folder) / "train.jsonl")).front())["process_bytes"].get<double>();
  EXPECT_GT(told / taken, 0.7) << told << " told, " << taken << " taken";
  EXPECT_LT(told / taken, 1.5) << told << " told, " << taken << " taken";
}

TEST_F(Cli, SaysWhenAModelHasNoRoomForMore) {
  const fs::path recipe = tiny_recipe();
  ASSERT_EQ(run("train " + recipe.string() + " -o " + path("run").string()).code, 0);
  const std::string model = " -m " + (path("run") / "final").string();
  const Result cut = run("generate --strategy greedy --min-length 50 --max-length 60" + model);
  EXPECT_EQ(cut.code, 0) << cut.err;
  EXPECT_NE(cut.err.find("12 positions"), std::string::npos) << cut.err;
  EXPECT_EQ(run("generate --strategy greedy --max-length 5" + model).err, "");
}

TEST_F(Cli, RecipesSayWhatMessagesAdvise) {
  const fs::path recipe = tiny_recipe();
  write("names.txt", "anna\n\xff\n");
  const Result result = run("train " + recipe.string() + " -o " + path("none").string());
  EXPECT_EQ(result.code, 1);
  EXPECT_NE(result.err.find("data.replace_invalid"), std::string::npos) << result.err;
  EXPECT_EQ(result.err.find("--"), std::string::npos) << result.err;
}

TEST_F(Cli, BadRecipesNameFileLineAndNearestKey) {
  tiny_recipe();
  const fs::path unknown = tiny_recipe("lerning_rate = 1\n");
  const Result result = run("train " + unknown.string() + " -o " + path("none").string());
  EXPECT_EQ(result.code, 1);
  EXPECT_NE(result.err.find("tiny.toml"), std::string::npos) << result.err;
  EXPECT_NE(result.err.find("lerning_rate"), std::string::npos) << result.err;
  EXPECT_FALSE(fs::exists(path("none") / "last")) << "nothing half-written";
}

TEST_F(Cli, TheBrowserThatExploreOpensIsNobodysToWaitFor) {
  fs::create_directories(path("bin"));
  write("bin/xdg-open", "#!/bin/sh\necho \"$1\" > " + path("opened").string() + "\n");
  fs::permissions(path("bin/xdg-open"), fs::perms::owner_all);
  const std::string script =
      "cd '" + path("").string() +
      "'; PATH=\"$PWD/bin:$PATH\" DISPLAY=:99 '" ATTEND_PROGRAM
      "' explore --port 0 --json > url 2> err & explorer=$!\n"
      "cd '" +
      path("").string() +
      "'; for i in $(seq 300); do [ -s opened ] && break; sleep 0.1; done\n"
      "for i in $(seq 300); do cat /proc/$explorer/task/$explorer/children > children; [ -s children ] || break; sleep 0.1; done\n"
      "kill $explorer; wait\n";
  ASSERT_EQ(std::system(("sh '" + write("script", script).string() + "'").c_str()) & 0x7F, 0);
  const std::string url = Json::parse(contents(path("url"))).at("url");
  EXPECT_EQ(contents(path("opened")), url + "\n");
  EXPECT_EQ(contents(path("children")), "");
}

}  // namespace
