// The texts of a request: what a model reads, and how a program is told what is wrong with them.
#include <gtest/gtest.h>

#include <filesystem>
#include <string>

#include "attend/tokenizer.h"
#include "attend/translate.h"
#include "explorer/api_error.h"
#include "explorer/model_input.h"

namespace attend::explorer {
namespace {

const LoadedModel& model_named(const std::string& name) {
  static const auto load = [](const std::string& each) {
    const std::filesystem::path path = std::filesystem::path(ATTEND_SOURCE_DIR) / "weights" / each;
    return LoadedModel{each, path, load_model_folder(path), "", "", 0, 0};
  };
  static const LoadedModel translator = load("tatoeba-zh-en"), poet = load("tang-quatrains");
  return name == "tatoeba-zh-en" ? translator : poet;
}
const LoadedModel& translator() { return model_named("tatoeba-zh-en"); }
const LoadedModel& poet() { return model_named("tang-quatrains"); }

Subject read(const LoadedModel& model, const Json& input, bool write = true, const Limits& limits = {}) {
  return read_input(model, input_request(input, "input", limits), limits, write, [] { return false; });
}

// kind code where
std::string refused(const LoadedModel& model, const Json& input, const Limits& limits = {}) {
  try {
    read(model, input, false, limits);
  } catch (...) {
    const ApiError error = current_error();
    return error.kind() + " " + error.detail.code + " " + error.where();
  }
  return "nothing";
}

std::string written(const SubjectTexts& texts) {
  JsonWriter out;
  write_input(out, texts);
  return out.take();
}

TEST(ExplorerInput, OfAPairIsWhatTheTranslatorReads) {
  const Subject subject = read(translator(), {{"source", "我喜欢学习中文。"}});
  EXPECT_EQ(subject.input.source,
            encode_source(translator().folder.task, *translator().folder.source, "我喜欢学习中文。", "en"));
  EXPECT_EQ(subject.texts.language, "en") << "told by the script";
  ASSERT_TRUE(subject.texts.target) << "it wrote one";
  EXPECT_TRUE(subject.source.empty()) << "no pieces";
  // Sent back as it was told, the same is read.
  const Subject again = read(translator(), Json::parse(written(subject.texts)), false);
  EXPECT_EQ(again.input.source, subject.input.source);
  EXPECT_EQ(again.input.ids, subject.input.ids);
  EXPECT_EQ(written(again.texts), written(subject.texts));
  EXPECT_TRUE(read(translator(), {{"source", "好"}}, false).input.ids.empty());
  EXPECT_FALSE(read(translator(), {{"source", ""}, {"language", "en"}}, false).input.source.empty())
      << "its ends alone";
}

TEST(ExplorerInput, WhatAModelThatNeverEndsWritesIsReadAgain) {
  const auto tokenizer = train_character(CharacterOptions{}, "abcdefgh");
  TransformerConfig config;
  config.width = 8;
  config.heads = 2;
  config.inner_width = 16;
  config.max_positions = 24;
  config.logits_bias = true;
  StackConfig stack;
  stack.layers = 1;
  stack.vocabulary = tokenizer->size();
  config.encoder = stack;
  stack.causal = true;
  config.decoder = stack;
  Model model(config, 1);
  for (Parameter& parameter : model.parameters())
    if (parameter.name.ends_with("bias") && parameter.value.elements() == tokenizer->size())
      parameter.value.data()[tokenizer->specials().eos] = -1e4f;
  Task task;
  task.kind = Task::Kind::translate;
  const LoadedModel loaded{"endless", "", ModelFolder{std::move(model), tokenizer, tokenizer, task}, "", "", 0, 0};
  for (const std::int64_t tokens : {4096, 10}) {
    Limits limits;
    limits.tokens = tokens;
    const Subject subject = read(loaded, {{"source", "abcdefgh"}}, true, limits);
    EXPECT_EQ(static_cast<std::int64_t>(subject.input.ids.size()), std::min<std::int64_t>(24, tokens + 1));
    EXPECT_EQ(read(loaded, Json::parse(written(subject.texts)), false, limits).input.ids, subject.input.ids);
  }
}

TEST(ExplorerInput, ATextFarBeyondTheLimitIsNotCutIntoTokens) {
  Limits limits;
  limits.tokens = 16;
  EXPECT_EQ(refused(translator(), {{"source", std::string(64 * 16, 'a')}}, limits), "text too_long input.source");
  try {
    read(translator(), {{"source", std::string(64 * 16 + 1, 'a')}}, false, limits);
    FAIL();
  } catch (const ApiError& error) {
    EXPECT_EQ(error.status(), 413);
    EXPECT_NE(error.what_happened().find("bytes: 1025 found, at most 1024"), std::string::npos)
        << error.what_happened();
  }
}

TEST(ExplorerInput, IdsStandForTexts) {
  const std::vector<std::int32_t> source = translator().folder.source->encode("好"),
                                  target = translator().folder.target->encode("Good.");
  const Json input = {{"source_ids", source}, {"language", "en"}, {"target_ids", target}};
  const Subject subject = read(translator(), input, false),
                text = read(translator(), {{"source", "好"}, {"target", "Good."}}, false);
  EXPECT_EQ(subject.input.source, text.input.source);
  EXPECT_EQ(subject.input.ids, text.input.ids);
  EXPECT_EQ(Json::parse(written(subject.texts)), input);
  EXPECT_EQ(read(poet(), {{"text_ids", poet().folder.target->encode("明月")}}).input.ids,
            read(poet(), {{"text", "明月"}}).input.ids);
  EXPECT_EQ(refused(translator(), {{"source_ids", source}}), "argument  input.language");
  EXPECT_EQ(refused(translator(), {{"source_ids", {99999}}, {"language", "en"}}), "argument  input.source_ids");
  EXPECT_EQ(refused(translator(), {{"source_ids", source}, {"source", "好"}}), "argument  input");
}

TEST(ExplorerInput, WhatIsWrongIsNamedByFieldAndCode) {
  std::string longer;
  for (int i = 0; i < 400; ++i) longer += "长";
  EXPECT_EQ(refused(translator(), {{"source", longer}}), "text too_long input.source");
  EXPECT_EQ(refused(translator(), {{"source", "好"}, {"target", longer}}), "text too_long input.target");
  EXPECT_EQ(refused(poet(), {{"text", longer}}), "text too_long input.text");
  Limits limits;
  limits.tokens = 3;
  EXPECT_EQ(refused(translator(), {{"source", "我喜欢学习中文。"}}, limits), "limit limit input.source");
  EXPECT_EQ(refused(translator(), {{"source", "\xFF"}, {"language", "en"}}), "text not_text input.source");
  EXPECT_EQ(refused(translator(), {{"source", "好"}, {"language", "fr"}}), "argument language input.language");
  EXPECT_EQ(refused(poet(), {{"text", "好"}, {"language", "zh"}}), "argument  input.language");
  EXPECT_EQ(refused(translator(), Json::object()), "argument  input.source");
  EXPECT_EQ(refused(poet(), Json::object()), "argument  input.text");
  EXPECT_EQ(refused(translator(), {{"text", "好"}}), "argument  input");
  EXPECT_EQ(refused(poet(), {{"source", "好"}}), "argument  input");
  EXPECT_EQ(refused(translator(), {{"sauce", "好"}}), "argument  input");
  try {
    read(translator(), {{"source", longer}}, false);
    ADD_FAILURE();
  } catch (const RequestError& error) {
    const std::size_t tokens = translator().folder.source->encode(longer).size();
    EXPECT_EQ(error.detail.found, std::to_string(tokens + 2)) << "its tag and end count";
    EXPECT_EQ(error.detail.expected, "256");
  }
  // What the model cannot read is said so, whatever a server would allow of it.
  const std::string poem_too_long = [] {
    std::string text;
    for (std::int64_t i = 0; i < poet().config().max_positions; ++i) text += "月";
    return text;
  }();
  limits.tokens = poet().config().max_positions - 1;
  EXPECT_EQ(refused(poet(), {{"text", poem_too_long}}, limits), "text too_long input.text");
}

TEST(ExplorerInput, AnUnknownTokenSaysWhatItStandsFor) {
  const auto tokens_of = [](const Json& input) {
    const Subject subject = read(poet(), input, false);
    JsonWriter out;
    out.begin_object();
    write_tokens(out, poet(), subject);
    out.end_object();
    return Json::parse(out.take())["text"];
  };
  const Json tokens = tokens_of({{"text", "明\xF0\x9F\x99\x82月"}});
  ASSERT_EQ(tokens.size(), 4u) << "its beginning and three characters";
  EXPECT_EQ(tokens[2]["kind"], "unknown");
  EXPECT_EQ(tokens[2]["characters"], "\xF0\x9F\x99\x82");
  EXPECT_FALSE(tokens[1].contains("characters"));
  // Ids alone do not tell.
  const std::int32_t unknown = poet().folder.target->specials().unknown;
  EXPECT_FALSE(tokens_of({{"text_ids", {unknown}}}).back().contains("characters"));
}

TEST(ExplorerInput, ExamplesAreWhatTheModelCanRead) {
  const std::vector<SubjectTexts> pairs = example_inputs(translator());
  ASSERT_EQ(pairs.size(), 4u);
  for (const SubjectTexts& one : pairs) EXPECT_EQ(one.language, one.source->front() < 0 ? "en" : "zh");
  for (const SubjectTexts& one : example_inputs(poet())) EXPECT_TRUE(one.text);
  EXPECT_FALSE(input_of(translator(), "Guten Tag", "de"));
  EXPECT_FALSE(input_of(poet(), "\xFF", "zh"));
}

}  // namespace
}  // namespace attend::explorer
