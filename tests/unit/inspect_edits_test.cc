// Lists of edits: names, fields, places, contradictions, positions; what is refused, and with which words.
#include <gtest/gtest.h>

#include <chrono>
#include <filesystem>
#include <functional>
#include <limits>

#include "attend/edits.h"
#include "attend/error.h"
#include "attend/translate.h"
#include "core/random.h"
#include "inspect_helpers.h"
#include "reference/random_models.h"

namespace attend {
namespace {

using K = EditKind;

TransformerConfig translator_config() {
  TransformerConfig config = reference::small_config();
  config.encoder = StackConfig{.layers = 2, .vocabulary = 19};
  config.decoder = StackConfig{.layers = 3, .vocabulary = 23, .causal = true};
  config.key_heads = 2;
  return config;
}

EditInput translator_input() {
  return {reference::random_tokens({5, 9}, 19, 1), reference::random_tokens({4, 7}, 23, 2)};
}

Edits list_of(std::initializer_list<Edit> edits) {
  Edits list;
  for (const Edit& edit : edits) list.add(edit);
  return list;
}

TEST(Edits, KindsHaveNames) {
  for (int i = 0; i <= static_cast<int>(K::freeze); ++i)
    EXPECT_EQ(edit_kind_named(name_of(static_cast<K>(i))), static_cast<K>(i));
  expect_error([] { edit_kind_named("forbidd"); },
               {"no kind 'forbidd'", "did you mean 'forbid'?", "zero, mean, patch"});
  expect_error([] { edit_kind_named(std::string(1000, 'x')); }, {"The kinds are"});
}

TEST(Edits, AreAListWithNamesOfTheirOwn) {
  Edits edits;
  expect_error([&] { edits.undo(); }, {"nothing to undo"});
  expect_error([&] { edits.remove("x"); }, {"no edit 'x'", "none at all"});
  edits.add({.name = "one", .kind = K::zero, .at = "decoder.0.output"});
  edits.add({.name = "two", .kind = K::cut, .at = "decoder.0.self", .heads = {1}});
  edits.add({.name = "three", .kind = K::forbid, .at = "decoder.0.self", .keys = {{1}}});
  expect_error([&] { edits.add({.name = "two", .kind = K::cut, .at = "decoder.1"}); },
               {"edit 'two'", "of this name already"});
  expect_error([&] { edits.remove("thre"); }, {"no edit 'thre'", "did you mean 'three'?"});
  EXPECT_EQ(edits.edit("two").heads, std::vector<std::int64_t>{1});
  EXPECT_TRUE(edits.has_positions());
  edits.remove("two");
  ASSERT_EQ(edits.list().size(), 2u);
  EXPECT_EQ(edits.list()[1].name, "three");
  edits.undo();
  ASSERT_EQ(edits.list().size(), 1u);
  EXPECT_FALSE(edits.has_positions());
}

TEST(Edits, RefuseFieldsAndValuesTheirKindDoesNotHave) {
  const auto refuse = [](Edit edit, const std::vector<std::string>& parts) {
    Edits edits;
    expect_error([&] { edits.add(edit); }, parts);
    EXPECT_TRUE(edits.empty());
  };
  refuse({.name = "", .at = "decoder.0.output"}, {"the name has 0 bytes"});
  refuse({.name = std::string(101, 'a'), .at = "decoder.0.output"}, {"the name has 101 bytes"});
  refuse({.name = "a\nb", .at = "decoder.0.output"}, {"control character"});
  refuse({.name = "a"}, {"edit 'a'", "no place is given"});
  refuse({.name = "a", .kind = K::zero, .at = "decoder.0.output", .keys = {{1}}},
         {"zero has no keys", "items, heads, positions"});
  refuse({.name = "a", .kind = K::zero, .at = "decoder.0.output", .value = 2}, {"zero has no value"});
  refuse({.name = "a", .kind = K::forbid, .at = "decoder.0.self", .texts = {{{1}, {1}, {}, {}}}},
         {"forbid has no texts"});
  refuse({.name = "a", .kind = K::freeze, .at = "decoder.0.self", .heads = {1}}, {"freeze has no heads"});
  refuse({.name = "a", .kind = K::cut, .at = "decoder.0", .seed = 9}, {"cut has no seed"});
  refuse({.name = "a", .kind = K::lock, .at = "decoder.0.self", .value = 1.5f}, {"value is 1.5", "between 0 and 1"});
  refuse({.name = "a", .kind = K::lock, .at = "decoder.0.self", .value = -0.5f}, {"value is -0.5"});
  refuse({.name = "a", .kind = K::set, .at = "decoder.0.self", .value = std::numeric_limits<float>::infinity()},
         {"value is inf"});
  refuse({.name = "a", .kind = K::add, .at = "decoder.0.self", .value = std::numeric_limits<float>::quiet_NaN()},
         {"value is nan"});
  refuse({.name = "a", .kind = K::noise, .at = "decoder.0.input"}, {"value is 0", "standard deviation"});
  refuse({.name = "a", .kind = K::evict, .at = "decoder.0.self"}, {"no keys are given"});
  refuse({.name = "a", .kind = K::window, .at = "decoder.0.self"}, {"size is 0"});
  refuse({.name = "a", .kind = K::mean, .at = "decoder.0.input"}, {"no reference texts"});
  refuse({.name = "a", .kind = K::patch, .at = "decoder.0.input"}, {"neither a text nor a model nor positions"});
  refuse({.name = "a", .kind = K::patch, .at = "decoder.0.input", .texts = {{{1}, {1}, {}, {}}, {{1}, {1}, {}, {}}}},
         {"2 texts are given"});
  refuse({.name = "a",
          .kind = K::patch,
          .at = "decoder.0.input",
          .positions = {{1, 3}},
          .texts = {{{1}, {1}, {}, {}}},
          .from_positions = {{4}}},
         {"one position for each of positions"});
  refuse(
      {.name = "a", .kind = K::patch, .at = "decoder.0.input", .texts = {{{1}, {1}, {}, {}}}, .from_positions = {{4}}},
      {"one position for each"});
  refuse({.name = "a",
          .kind = K::patch,
          .at = "x",
          .positions = {{1, PositionRange::open_end}},
          .texts = {{{1}, {1}, {}, {}}},
          .from_positions = {{4}}},
         {"without open ends"});
  refuse({.name = "a", .at = "decoder.0.output", .items = {-1}}, {"items holds -1"});
  refuse({.name = "a", .at = "decoder.0.self.query", .heads = {2, 2}}, {"heads names 2 twice"});
  refuse({.name = "a", .at = "decoder.0.self.query", .heads = {2, -1}}, {"heads holds -1", "none count from the end"});
  refuse({.name = "a", .at = "decoder.0.output", .positions = {{-2}}}, {"range from -2"});
  refuse({.name = "a", .at = "decoder.0.output", .positions = {{5, 5}}}, {"range from 5 to 5", "exclusively"});
  refuse({.name = "a", .at = "decoder.0.output", .positions = {{1, 4}, {3, PositionRange::open_end}}},
         {"positions names 3 twice"});
}

TEST(Edits, NameWhatTheModelHasWhenAPlaceDoesNotExist) {
  const Model model(translator_config(), 3);
  const auto refuse = [&](const Edit& edit, const std::vector<std::string>& parts) {
    const Edits edits = list_of({edit});
    expect_error([&] { edits.check(model); }, parts);
  };
  refuse({.name = "a", .kind = K::zero, .at = "decoder.7.output"},
         {"edit 'a'", "no site of rows 'decoder.7.output'", "decoder.0.output",
          "encoder layers 0 to 1, decoder layers 0 to 2"});
  refuse({.name = "a", .kind = K::zero, .at = "decoder.0.self.valeu"}, {"the nearest are decoder.0.self.value"});
  refuse({.name = "a", .kind = K::zero, .at = "decoder.0.self.weights"},
         {"holds weights between queries and keys, not rows", "lock", "at 'decoder.0.self'"});
  refuse({.name = "a", .kind = K::zero, .at = "decoder.9.self.value"}, {"no site of rows"});
  refuse({.name = "a", .kind = K::zero, .at = "decoder.0.self.rotated_key"}, {"no site of rows"});
  refuse({.name = "a", .kind = K::set, .at = "encoder.0.cross", .value = 1},
         {"no attention 'encoder.0.cross'", "the nearest are decoder.0.cross"});
  refuse({.name = "a", .kind = K::window, .at = "decoder.0.cross", .size = 3},
         {"no self-attention 'decoder.0.cross'", "decoder.0.self"});
  refuse({.name = "a", .kind = K::cut, .at = "decoder.0.selff"},
         {"no attention, feed-forward layer or block", "decoder.0.self"});
  refuse({.name = "a", .kind = K::freeze, .at = "decoder.5"}, {"no norm 'decoder.5'"});
  refuse({.name = "a", .kind = K::freeze, .at = "decoder.0.self.normed"}, {"no norm", "decoder.0.self.deviation"});
  refuse({.name = "a", .kind = K::zero, .at = "*.*.self.deviation"}, {"cannot be 0"});
  refuse({.name = "a", .kind = K::cut, .at = "decoder.0.self", .heads = {4}}, {"no head 4", "heads run from 0 to 3"});
  refuse({.name = "a", .kind = K::zero, .at = "decoder.0.self.key", .heads = {2}},
         {"no head 2 at decoder.0.self.key", "key heads run from 0 to 1"});
  refuse({.name = "a", .kind = K::zero, .at = "decoder.0.output", .heads = {0}},
         {"decoder.0.output has none", "heads are at query"});
  refuse({.name = "a", .kind = K::cut, .at = "decoder.0", .heads = {0}},
         {"heads are named, but decoder.0 is no attention"});
  refuse({.name = "a", .kind = K::cut, .at = "decoder.0.feed_forward", .keys = {{0}}},
         {"keys are named, but decoder.0.feed_forward is no attention"});
  list_of({{.name = "a", .kind = K::zero, .at = "*.*.self.key", .heads = {1}},
           {.name = "b", .kind = K::add, .at = "decoder.*.cross.scores", .value = 1},
           {.name = "c", .kind = K::freeze, .at = "decoder"}})
      .check(model);
}

TEST(Edits, ContradictionsAreNamedInPairs) {
  const Model model(translator_config(), 3);
  const EditText text{{1, 2}, {3, 4}, {}, {}}, other{{1, 2}, {3, 5}, {}, {}};
  const auto contradict = [&](const Edit& a, const Edit& b, bool expected, const char* where = "") {
    for (const bool turned : {false, true}) {
      const Edits edits = turned ? list_of({b, a}) : list_of({a, b});
      const std::string message = message_of([&] { edits.check(model); });
      if (!expected) {
        EXPECT_EQ(message, "nothing was thrown");
      } else {
        EXPECT_NE(message.find(turned ? "'b'" : "'a'"), std::string::npos) << message;
        EXPECT_NE(message.find(" and "), std::string::npos) << message;
        EXPECT_NE(message.find(where), std::string::npos) << message;
      }
    }
  };
  const Edit set{.name = "a",
                 .kind = K::set,
                 .at = "decoder.1.self",
                 .heads = {2},
                 .positions = {{3, 6}},
                 .keys = {{1, 3}},
                 .value = 1};
  const auto with = [](Edit edit, const auto& change) {
    change(edit);
    return edit;
  };
  const Edit forbid{.name = "b", .kind = K::forbid, .at = "decoder.1.self", .positions = {{5}}, .keys = {{2}}};
  contradict(set, forbid, true, "decoder.1.self.scores");
  contradict(set, with(forbid, [](Edit& e) { e.at = "decoder.*.self"; }), true);
  contradict(set, with(forbid, [](Edit& e) { e.at = "decoder.1.cross"; }), false);
  contradict(set, with(forbid, [](Edit& e) { e.heads = {1}; }), false);
  contradict(set, with(forbid, [](Edit& e) { e.positions = {{6}}; }), false);
  contradict(set, with(forbid, [](Edit& e) { e.keys = {{3, PositionRange::open_end}}; }), false);
  contradict(with(set, [](Edit& e) { e.items = {0}; }), with(forbid, [](Edit& e) { e.items = {1}; }), false);
  contradict(set, {.name = "b", .kind = K::cut, .at = "decoder.1.self", .keys = {{1}}}, true);
  contradict(set, {.name = "b", .kind = K::evict, .at = "decoder.1.self", .keys = {{1}}}, true);
  contradict(set, {.name = "b", .kind = K::window, .at = "decoder.1.self", .size = 3}, true);
  contradict(set, {.name = "b", .kind = K::window, .at = "decoder.1.self", .size = 5}, false);  // 5 - 1 is not 5 back
  contradict(set, {.name = "b", .kind = K::lock, .at = "decoder.1.self", .keys = {{1}}, .value = 0.5f}, true);
  contradict(set, with(set, [](Edit& e) { e.name = "b"; }), false);
  contradict(set, with(set, [](Edit& e) { e.name = "b", e.value = 2; }), true);
  // A lock of 0 is as good as forbidding.
  contradict({.name = "a", .kind = K::lock, .at = "decoder.0.cross", .keys = {{1}}, .value = 0},
             {.name = "b", .kind = K::cut, .at = "decoder.0.cross", .keys = {{1}}}, false);
  contradict({.name = "a", .kind = K::lock, .at = "decoder.0.cross", .keys = {{1}}, .value = 0.5f},
             {.name = "b", .kind = K::cut, .at = "decoder.0.cross", .keys = {{1}}}, true);
  contradict({.name = "a", .kind = K::lock, .at = "decoder.0.cross", .keys = {{1}}, .value = 0.5f},
             {.name = "b", .kind = K::lock, .at = "decoder.0.cross", .keys = {{2}}, .value = 0.25f}, false);
  // Changes that nothing is left of.
  const Edit add{.name = "a", .kind = K::add, .at = "decoder.1.self", .heads = {2}, .keys = {{1}}, .value = 1};
  contradict(add, {.name = "b", .kind = K::forbid, .at = "decoder.1.self", .keys = {{0, 4}}}, true);
  contradict(add, {.name = "b", .kind = K::forbid, .at = "decoder.1.self", .positions = {{3}}, .keys = {{0, 4}}},
             false);
  EXPECT_EQ(message_of([&] {
              list_of({set, {.name = "b", .kind = K::add, .at = "decoder.1.self", .value = 1}}).check(model);
            }),
            "nothing was thrown");
  EXPECT_NE(message_of([&] {
              list_of({add, {.name = "b", .kind = K::set, .at = "decoder.1.self", .value = 1}}).check(model);
            }).find("contradict"),
            std::string::npos);
  // Values.
  const Edit zero{.name = "a", .kind = K::zero, .at = "encoder.0.self.value", .heads = {1}};
  contradict(zero, {.name = "b", .kind = K::patch, .at = "encoder.0.self.value", .texts = {text}}, true,
             "encoder.0.self.value");
  contradict(zero, {.name = "b", .kind = K::patch, .at = "encoder.0.self.value", .heads = {0}, .texts = {text}}, false);
  contradict(zero, {.name = "b", .kind = K::mean, .at = "encoder.*.self.value", .texts = {text}}, true);
  contradict(zero, with(zero, [](Edit& e) { e.name = "b"; }), false);
  contradict({.name = "a", .kind = K::mean, .at = "decoder.0.input", .texts = {text}},
             {.name = "b", .kind = K::mean, .at = "decoder.0.input", .texts = {text}}, false);
  contradict({.name = "a", .kind = K::mean, .at = "decoder.0.input", .texts = {text}},
             {.name = "b", .kind = K::mean, .at = "decoder.0.input", .texts = {other}}, true);
  contradict({.name = "a", .kind = K::patch, .at = "decoder.0.input", .positions = {{1}}, .texts = {text}},
             {.name = "b",
              .kind = K::patch,
              .at = "decoder.0.input",
              .positions = {{1}},
              .texts = {text},
              .from_positions = {{0}}},
             true);
  EXPECT_EQ(message_of([&] {
              list_of({zero, {.name = "b", .kind = K::noise, .at = "encoder.0.self.value", .value = 1}}).check(model);
            }),
            "nothing was thrown");
  EXPECT_NE(message_of([&] {
              list_of({{.name = "b", .kind = K::noise, .at = "encoder.0.self.value", .heads = {1}, .value = 1}, zero})
                  .check(model);
            }).find("contradict"),
            std::string::npos);
  // What is inside of something that is cut.
  contradict({.name = "a", .kind = K::cut, .at = "decoder.0.self"},
             {.name = "b", .kind = K::add, .at = "decoder.0.self", .value = 1}, true, "decoder.0.self");
  contradict({.name = "a", .kind = K::cut, .at = "decoder.0"},
             {.name = "b", .kind = K::add, .at = "decoder.0.cross", .value = 1}, true, "decoder.0");
  contradict({.name = "a", .kind = K::cut, .at = "decoder.0"},
             {.name = "b", .kind = K::freeze, .at = "decoder.0.cross"}, true);
  contradict({.name = "a", .kind = K::cut, .at = "decoder.0.self"},
             {.name = "b", .kind = K::cut, .at = "decoder.0.self", .heads = {1}}, false);
  contradict({.name = "a", .kind = K::cut, .at = "decoder.0.self", .positions = {{1}}},
             {.name = "b", .kind = K::add, .at = "decoder.0.self", .value = 1}, false);
  contradict({.name = "a", .kind = K::cut, .at = "decoder.0.self"},
             {.name = "b", .kind = K::noise, .at = "decoder.0.self.added", .value = 1}, false);
  // Every pair is named.
  const Edits many = list_of({zero,
                              {.name = "b", .kind = K::patch, .at = "encoder.0.self.value", .texts = {text}},
                              with(set, [](Edit& e) { e.name = "s"; }),
                              with(forbid, [](Edit& e) { e.name = "f"; })});
  expect_error([&] { many.check(model); }, {"'a' (zero) and 'b' (patch) at encoder.0.self.value",
                                            "'s' (set) and 'f' (forbid) at decoder.1.self.scores"});
}

// Lists as long as files may hold them: held against each other number by number they would take minutes.
TEST(Edits, LongListsAreComparedAtOnce) {
  const Model model(translator_config(), 3);
  double seconds = 0;
  const auto message_of_check = [&](const Edits& edits) {
    const auto begin = std::chrono::steady_clock::now();
    const std::string message = message_of([&] { edits.check(model); });
    seconds += std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
    return message;
  };
  // A million even items against a million odd ones: nothing in common, but for the last.
  Edit even{.name = "even", .at = "decoder.0.output"}, odd{.name = "odd", .kind = K::mean, .at = "decoder.0.output"};
  odd.texts = {{{1}, {1}, {}, {}}};
  for (std::int64_t i = 0; i < 1000000; ++i) even.items.push_back(2 * i), odd.items.push_back(2 * i + 1);
  EXPECT_EQ(message_of_check(list_of({even, odd})), "nothing was thrown");
  even.items.push_back(odd.items.back());
  expect_parts(message_of_check(list_of({even, odd})), {"'even' (zero) and 'odd' (mean) at decoder.0.output"});
  // A thousand edits of a thousand positions each, no two of which have one in common.
  Edits many;
  for (std::int64_t i = 0; i < 1000; ++i) {
    Edit edit{.name = std::to_string(i), .kind = K::set, .at = "decoder.*.self", .value = static_cast<float>(i)};
    for (std::int64_t at = 999; at >= 0; --at) edit.positions.push_back({1000 * at + i, 0});
    many.add(std::move(edit));
  }
  EXPECT_EQ(message_of_check(many), "nothing was thrown");
  many.add({.name = "odd one", .kind = K::forbid, .at = "decoder.2.self", .positions = {{999998, 1000001}}});
  expect_parts(message_of_check(many), {"'998' (set) and 'odd one' (forbid) at decoder.2.self.scores; "
                                        "'999' (set) and 'odd one' (forbid) at decoder.2.self.scores; remove"});
  RecordProperty("seconds", std::to_string(seconds));
  EXPECT_LT(seconds, 10);
  // Bounds come first: what is beyond the text is told before lists are compared.
  EXPECT_NE(message_of([&] {
              run_edited(model, list_of({even, odd}), translator_input());
            }).find("there is no item 2"),
            std::string::npos);
}

TEST(Edits, PositionsKeysAndItemsMustExistInTheText) {
  const Model model(translator_config(), 3);
  const EditInput input = translator_input();
  const auto refuse = [&](const Edit& edit, const std::vector<std::string>& parts) {
    const Edits edits = list_of({edit});
    expect_error([&] { run_edited(model, edits, input); }, parts);
  };
  refuse({.name = "a", .at = "decoder.0.output", .positions = {{7}}},
         {"edit 'a'", "position 7 is beyond the text", "0 to 6"});
  refuse({.name = "a", .at = "decoder.0.output", .items = {0}, .positions = {{4}}}, {"position 4", "0 to 3"});
  refuse({.name = "a", .at = "decoder.0.output", .items = {2}}, {"no item 2", "items run from 0 to 1"});
  refuse({.name = "a", .at = "encoder.0.output", .positions = {{3, 12}}}, {"position 3 to 11", "0 to 8"});
  refuse({.name = "a", .at = "decoder.0.cross.key", .positions = {{9}}}, {"position 9", "0 to 8"});
  refuse({.name = "a", .kind = K::forbid, .at = "decoder.0.cross", .keys = {{9}}}, {"key 9", "0 to 8"});
  refuse({.name = "a", .kind = K::forbid, .at = "decoder.0.self", .keys = {{7}}}, {"key 7", "0 to 6"});
  refuse({.name = "a",
          .kind = K::forbid,
          .at = "decoder.0.self",
          .positions = {{8, PositionRange::open_end}},
          .keys = {{1}}},
         {"position 8 and on"});
  const EditedRun fine =
      run_edited(model, list_of({{.name = "a", .kind = K::forbid, .at = "decoder.0.cross", .keys = {{8}}}}), input);
  EXPECT_EQ(fine.report.edits[0].count, 7 * 4);  // only the longer source has key 8
}

TEST(Edits, ReachFeaturesClassTokensAndClasses) {
  TransformerConfig config = reference::small_config();
  config.encoder = StackConfig{.layers = 2, .input_width = 5, .class_token = true};
  config.classes = 3;
  config.pooling = Pooling::class_token;
  Model model(config, 3);
  reference::randomise(model, 4);
  EditInput input;
  input.features = Tensor::empty({7, 5});
  input.feature_offsets = {0, 3, 7};
  Random random(8);
  for (std::int64_t i = 0; i < 35; ++i) input.features.data()[i] = static_cast<float>(random.normal());
  // The class token of item 1 (position 0) reads no patch but the last.
  const Edits edits = list_of(
      {{.name = "deaf", .kind = K::forbid, .at = "encoder.*.self", .items = {1}, .positions = {{0}}, .keys = {{0, 4}}},
       {.name = "class", .kind = K::noise, .at = "encoder.logits", .items = {1}, .value = 1}});
  const Site weights{StackKind::encoder, 1, Part::self, Point::weights};
  // Both runs are looked at: heads whose weights are asked for leave the fused path.
  Recorder recorder({weights}), base({weights});
  EditRunOptions options;
  options.beside_base = &base;
  options.beside_edited = &recorder;
  const EditedRun run = run_edited(model, edits, input, options);
  EXPECT_EQ(run.edited.shape(), (Shape{2, 3}));
  EXPECT_EQ(run.report.edits[0].count, 2 * 4 * 4);
  EXPECT_EQ(run.report.edits[1].count, 1);
  EXPECT_EQ(recorder.value(weights, 1).at(0, 4), 1);
  for (std::int64_t i = 0; i < 3; ++i) EXPECT_EQ(run.base.at(0, i), run.edited.at(0, i));
  EXPECT_NE(run.base.at(1, 0), run.edited.at(1, 0));
  expect_error(
      [&] { run_edited(model, list_of({{.name = "a", .at = "encoder.0.output", .positions = {{5}}}}), input); },
      {"position 5", "0 to 4"});
  expect_error(
      [&] {
        run_edited(model,
                   list_of({{.name = "a", .kind = K::mean, .at = "encoder.0.output", .texts = {{{1}, {}, {}, {}}}}}),
                   input);
      },
      {"edit 'a'", "reads features"});
  EXPECT_NE(text_fingerprint(input), text_fingerprint({{}, {}, input.features, {0, 4, 7}}));
  expect_error([&] { run_edited(model, {}, {input.source, input.target}); }, {"reads features and none are given"});
}

TEST(Edits, WhatTouchesNothingSaysSo) {
  const Model model(translator_config(), 3);
  const EditInput input = translator_input();
  const Edits edits =
      list_of({{.name = "future", .kind = K::forbid, .at = "decoder.0.self", .positions = {{1}}, .keys = {{2, 4}}},
               {.name = "near", .kind = K::window, .at = "decoder.*.self", .size = 7},
               {.name = "real", .kind = K::cut, .at = "decoder.0.self", .heads = {0}}});
  expect_error([&] { run_edited(model, edits, input); }, {"'future', 'near' touched nothing each", "the mask hides"});
  EditRunOptions options;
  options.allow_untouched = true;
  const EditedRun run = run_edited(model, edits, input, options);
  EXPECT_EQ(run.report.untouched(), (std::vector<std::string>{"future", "near"}));
  EXPECT_EQ(run.report.edits[2].count, 11);
  // A probe counts over all its runs, and forgets.
  EditProbe probe(model, edits);
  EXPECT_EQ(probe.report().untouched().size(), 3u);
  RunOptions probed;
  probed.probe = &probe;
  const States memory = model.encode(input.source, probed);
  model.decode(input.target, &memory, probed);
  model.decode(input.target, &memory, probed);
  EXPECT_EQ(probe.report().edits[2].count, 22);
  EXPECT_EQ(probe.report().head_parts_checked, 2);
  probe.forget();
  EXPECT_EQ(probe.report().edits[2].count, 0);
}

TEST(Edits, LocksThatCannotBeKeptAreRefusedByName) {
  const Model model(translator_config(), 3);
  const EditInput input = translator_input();
  const Edits over = list_of(
      {{.name = "first", .kind = K::lock, .at = "decoder.1.self", .positions = {{3}}, .keys = {{1}}, .value = 0.75f},
       {.name = "second", .kind = K::lock, .at = "decoder.1.self", .positions = {{3}}, .keys = {{2}}, .value = 0.5f}});
  expect_error([&] { run_edited(model, over, input); }, {"decoder.1.self", "item 0 head 0 query position 3",
                                                         "sum to 1.25, more than 1", "locked by 'first', 'second'"});
  const Edits alone =
      list_of({{.name = "alone", .kind = K::lock, .at = "decoder.1.self", .keys = {{0}}, .value = 0.5f}});
  expect_error([&] { run_edited(model, alone, input); },
               {"query position 0", "no other key to share the rest with", "'alone'", "leave this query out"});
}

TEST(Edits, SourcesThatDoNotFitAreRefused) {
  const Model model(translator_config(), 3);
  const EditInput input = translator_input();
  const auto refuse = [&](const Edit& edit, const std::vector<std::string>& parts) {
    const Edits edits = list_of({edit});
    expect_error(
        [&] {
          run_edited(model, edits, input, {}, [&](const std::string&) {
            TransformerConfig config = translator_config();
            config.inner_width = 8;
            return std::make_shared<const Model>(config, 1);
          });
        },
        parts);
  };
  refuse({.name = "a", .kind = K::patch, .at = "decoder.0.input", .texts = {{{1, 2}, {}, {}, {}}}},
         {"edit 'a'", "its text has no target"});
  refuse({.name = "a", .kind = K::patch, .at = "decoder.0.input", .texts = {{{1, 2}, {}, {}, "hello"}}},
         {"its target is text, not ids", "with_token_ids"});
  refuse({.name = "a", .kind = K::patch, .at = "decoder.0.input", .texts = {{{1, 2}, {3, 4}, {}, {}}}},
         {"position 2 of decoder.0.input is asked for", "positions 0 to 1"});
  refuse({.name = "a", .kind = K::patch, .at = "decoder.0.input", .texts = {{{1, 2}, {3, 99}, {}, {}}}},
         {"token id 99"});
  refuse(
      {.name = "a", .kind = K::mean, .at = "decoder.0.input", .texts = {{{1, 2}, {3, 4}, {}, {}}}, .by_position = true},
      {"position 2", "positions 0 to 1"});
  refuse({.name = "a", .kind = K::patch, .at = "decoder.0.input", .model = "elsewhere"},
         {"the model in elsewhere has another shape"});
  const Edits freeze = list_of({{.name = "f", .kind = K::freeze, .at = "decoder.0.self"}});
  EditProbe without(model, freeze);
  RunOptions options;
  options.probe = &without;
  const States memory = model.encode(input.source);
  expect_error([&] { model.decode(input.target, &memory, options); },
               {"edit 'f'", "no values for decoder.0.self.deviation of item 0", "edit_sources()"});
  EditInput longer = input;
  longer.target = reference::random_tokens({6, 7}, 23, 2);
  EditProbe of_other_text(model, freeze, edit_sources(model, freeze, input));
  options.probe = &of_other_text;
  expect_error([&] { model.decode(longer.target, &memory, options); }, {"position 4", "positions 0 to 3"});
  expect_error([&] { run_edited(model, {}, {input.source, {}}); }, {"the target has 0 items"});
  expect_error([&] { run_edited(model, {}, {{}, input.target}); }, {"the source has 0 items"});
}

// Every word a token; tag, bos and eos besides.
ModelFolder word_folder(bool encoder, std::uint64_t seed) {
  CharacterOptions options;
  options.control_symbols = {"<zh>", "<en>"};
  const auto tokenizer = train_character(options, "abcdefg我喜欢你 ");
  TransformerConfig config = reference::small_config();
  if (encoder) config.encoder = StackConfig{.layers = 1, .vocabulary = tokenizer->size()};
  config.decoder = StackConfig{.layers = 1, .vocabulary = tokenizer->size(), .causal = true};
  Task task;
  task.kind = encoder ? Task::Kind::translate : Task::Kind::generate;
  if (encoder) task.languages = {"zh", "en"}, task.target_tags = {{"zh", "<zh>"}, {"en", "<en>"}};
  return {Model(config, seed), encoder ? tokenizer : nullptr, tokenizer, task};
}

TEST(Edits, TextsBecomeIdsAsTranslationAndGenerationCutThem) {
  for (const bool encoder : {true, false}) {
    const ModelFolder folder = word_folder(encoder, 1);
    Edits edits;
    EditText text;
    if (encoder) text.source_text = "我喜欢你";
    text.target_text = "abc";
    edits.add({.name = "p", .kind = K::patch, .at = "decoder.0.input", .texts = {text}});
    const EditText ids = with_token_ids(edits, folder).list()[0].texts[0];
    std::vector<std::int32_t> target{first_token(*folder.target)};
    for (const char* letter : {"a", "b", "c"}) target.push_back(folder.target->id(letter));
    EXPECT_EQ(ids.target, target);
    EXPECT_EQ(ids.target_text, "abc");
    if (encoder) {
      EXPECT_EQ(ids.source, encode_source(folder.task, *folder.source, "我喜欢你", "en"));
      EXPECT_EQ(ids.source.front(), folder.source->id("<en>"));
    }
    text.source_text = text.target_text = "\xff";
    if (!encoder) text.source_text.clear();
    edits.add({.name = "q", .kind = K::patch, .at = "decoder.0.input", .texts = {text}});
    expect_error([&] { with_token_ids(edits, folder); }, {"edit 'q'", "UTF-8"});
  }
}

TEST(Edits, OpenOtherModelsBesideTheFile) {
  const auto base = std::filesystem::temp_directory_path() / "attend_edits_test_models";
  std::filesystem::remove_all(base);
  const ModelFolder own = word_folder(false, 1), other = word_folder(false, 2);
  std::filesystem::create_directories(base);
  save_model_folder(base / "other", other.model, nullptr, other.target.get(), other.task);
  const auto bytes = byte_tokenizer();
  TransformerConfig config = own.model.config();
  config.decoder->vocabulary = bytes->size();
  save_model_folder(base / "bytes", Model(config, 1), nullptr, bytes.get(), other.task);
  EXPECT_EQ(fingerprint(*open_models_in(base)("other")), fingerprint(other.model));
  EXPECT_EQ(fingerprint(*open_models_in(base, &own)("other")), fingerprint(other.model));
  expect_error([&] { open_models_in(base, &own)("bytes"); },
               {"bytes", "fingerprint " + bytes->fingerprint(), own.target->fingerprint(), "same vocabulary"});
  // A patch from another checkpoint on the text of the run: its rows from there on.
  EditInput input;
  input.target.append(std::vector<std::int32_t>{3, 4, 5, 6});
  Edits edits;
  edits.add({.name = "p", .kind = K::patch, .at = "decoder.0.output", .model = "other"});
  const Site site{StackKind::decoder, 0, Part::block, Point::output};
  Recorder there({site}), here({site});
  RunOptions options;
  options.probe = &there;
  other.model.decode(input.target, nullptr, options);
  EditRunOptions beside;
  beside.beside_edited = &here;
  run_edited(own.model, edits, input, beside, open_models_in(base));
  EXPECT_EQ(here.value(site).to_vector(), there.value(site).to_vector());
  // From the run itself, at other positions.
  Edits moved;
  moved.add({.name = "m", .kind = K::patch, .at = "decoder.0.output", .positions = {{3}}, .from_positions = {{1}}});
  Recorder base_rows({site}), moved_rows({site});
  EditRunOptions both;
  both.beside_base = &base_rows;
  both.beside_edited = &moved_rows;
  run_edited(own.model, moved, input, both);
  for (std::int64_t i = 0; i < base_rows.value(site).width(); ++i) {
    EXPECT_EQ(moved_rows.value(site).at(3, i), base_rows.value(site).at(1, i));
    EXPECT_EQ(moved_rows.value(site).at(2, i), base_rows.value(site).at(2, i));
  }
  std::filesystem::remove_all(base);
  expect_error([] { open_models_in("/nowhere")("other"); }, {"/nowhere/other"});
}

// ---- Files ----------------------------------------------------------------------------------------------------------

EditFile full_file() {
  EditFile file{{}, "0123456789abcdef", "fedcba9876543210"};
  file.edits.add({.name = "zero",
                  .kind = K::zero,
                  .at = "*.*.self.value",
                  .items = {0, 2},
                  .heads = {1},
                  .positions = {{3}, {5, 9}, {12, PositionRange::open_end}}});
  file.edits.add({.name = "mean",
                  .kind = K::mean,
                  .at = "decoder.0.input",
                  .texts = {{{1, 2}, {3}, {}, {}}, {{}, {}, "我喜欢你", "I like \"you\""}},
                  .by_position = true,
                  .model = "../other"});
  file.edits.add({.name = "patch",
                  .kind = K::patch,
                  .at = "decoder.0.input",
                  .positions = {{5}, {1, 3}},
                  .texts = {{{1, 2}, {3}, {}, {}}},
                  .from_positions = {{7}, {0, 2}}});
  file.edits.add(
      {.name = "noise", .kind = K::noise, .at = "encoder.embedded", .value = 0.1f, .seed = 18446744073709551615u});
  file.edits.add({.name = "set", .kind = K::set, .at = "decoder.0.self", .keys = {{0}}, .value = -3.3333333f});
  file.edits.add({.name = "add", .kind = K::add, .at = "decoder.0.self", .value = 1e-30f});
  file.edits.add({.name = "scale", .kind = K::scale, .at = "decoder.0.self", .value = 0});
  file.edits.add({.name = "forbid", .kind = K::forbid, .at = "decoder.0.self", .keys = {{0, 4}}});
  file.edits.add({.name = "lock", .kind = K::lock, .at = "decoder.0.cross", .value = 0.7f});
  file.edits.add({.name = "evict", .kind = K::evict, .at = "decoder.0.self", .keys = {{1}}});
  file.edits.add({.name = "window", .kind = K::window, .at = "decoder.0.self", .size = 12});
  file.edits.add({.name = "cut", .kind = K::cut, .at = "decoder.1"});
  file.edits.add({.name = "freeze", .kind = K::freeze, .at = "decoder", .positions = {{1}}});
  return file;
}

TEST(EditFiles, GoThereAndBack) {
  const EditFile file = full_file();
  const std::string text = to_json(file);
  EXPECT_EQ(edit_file_from_json(text, "test"), file);
  EXPECT_EQ(to_json(edit_file_from_json(text, "test")), text);
  EXPECT_NE(text.find("\"value\": 0.1,"), std::string::npos) << "numbers are not the shortest: " << text;
  const auto path = std::filesystem::temp_directory_path() / "attend_edit_file_test.json";
  save_edit_file(path, file);
  EXPECT_EQ(load_edit_file(path), file);
  std::filesystem::remove(path);
  expect_error([&] { load_edit_file(path); }, {"attend_edit_file_test.json"});
}

TEST(EditFiles, RefuseWhatTheyDoNotKnow) {
  const std::string head = R"({"version": 1, "model": "0123456789abcdef", "text": "any", "edits": [)", tail = "]}";
  const auto refuse = [&](const std::string& text, const std::vector<std::string>& parts) {
    expect_error([&] { edit_file_from_json(text, "my.json"); }, parts);
  };
  const auto refuse_edit = [&](const std::string& edit, const std::vector<std::string>& parts) {
    refuse(head + edit + tail, parts);
  };
  EXPECT_EQ(message_of([&] { edit_file_from_json(head + tail, "my.json"); }), "nothing was thrown");
  refuse("", {"my.json"});
  refuse("[]", {"the file", "expected an object"});
  refuse("{}", {"\"version\" is missing"});
  refuse(R"({"version": 2})", {"version", "holds 2", "another version of attend"});
  refuse(R"({"version": 1, "modle": "x"})", {"unknown key \"modle\"", "did you mean \"model\"?"});
  refuse(R"({"version": 1, "model": "xyz", "text": "any", "edits": []})",
         {"model", "\"xyz\"", "16 hexadecimal digits"});
  refuse(R"({"version": 1, "model": "0123456789abcdef", "text": "none", "edits": []})", {"text", "or \"any\""});
  refuse(R"({"version": 1, "model": "0123456789abcdef", "text": "any", "text": "any", "edits": []})",
         {"appears twice"});
  refuse(R"({"version": 1, "model": "0123456789abcdef", "text": "any", "edits": {}})", {"a list of edits"});
  refuse_edit("3", {"edits[0]", "an object"});
  refuse_edit(R"({"name": "a", "at": "decoder.0"})", {"edits[0]", "\"kind\" is missing"});
  refuse_edit(R"({"name": "a", "kind": "cutt", "at": "decoder.0"})", {"edits[0].kind", "did you mean 'cut'?"});
  refuse_edit(R"({"name": "a", "kind": "cut", "at": "decoder.0", "head": [1]})",
              {"unknown key \"head\"", "did you mean \"heads\"?"});
  refuse_edit(R"({"name": "a", "kind": "cut", "at": "decoder.0", "value": 1})",
              {"unknown key \"value\"", "Known keys: name, kind, at"});
  refuse_edit(R"({"name": "a", "kind": "lock", "at": "decoder.0.self"})", {"\"value\" is missing"});
  refuse_edit(R"({"name": "a", "kind": "lock", "at": "decoder.0.self", "value": "1"})", {"a finite number"});
  refuse_edit(R"({"name": "a", "kind": "lock", "at": "decoder.0.self", "value": 1e300})", {"a finite number"});
  refuse_edit(R"({"name": "a", "kind": "lock", "at": "decoder.0.self", "value": 2})", {"edits[0]", "between 0 and 1"});
  refuse_edit(R"({"name": "a", "kind": "cut", "at": "decoder.0.self", "heads": []})",
              {"is an empty list", "leave it out for all"});
  refuse_edit(R"({"name": "a", "kind": "cut", "at": "decoder.0.self", "keys": []})", {"keys: is an empty list"});
  refuse_edit(R"({"name": "a", "kind": "cut", "at": "decoder.0.self", "keys": ["中文"]})", {"holds \"中文\""});
  refuse_edit(R"({"name": "a", "kind": "patch", "at": "x", "texts": ["他来"]})",
              {"texts[0]: holds \"他来\"", "{\"source\": \"...\""});
  refuse_edit(R"({"name": "a", "kind": "cut", "at": "decoder.0.self", "heads": [1.5]})", {"heads", "1.5"});
  refuse_edit(R"({"name": "a", "kind": "cut", "at": "decoder.0.self", "heads": [-1]})",
              {"heads", "-1", "none count from the end"});
  refuse_edit(R"({"name": "a", "kind": "cut", "at": "decoder.0.self", "positions": [[1]]})", {"[5, 9] for 5 to 8"});
  refuse_edit(R"({"name": "a", "kind": "cut", "at": "decoder.0.self", "positions": [[3, 0]]})", {"[3,0]"});
  refuse_edit(R"({"name": "a", "kind": "cut", "at": "decoder.0.self", "positions": [[3, 3]]})", {"range from 3 to 3"});
  refuse_edit(R"({"name": "a", "kind": "cut", "at": "decoder.0.self", "positions": [99999999999999999999]})",
              {"positions"});
  refuse_edit(R"({"name": "a", "kind": "patch", "at": "x", "texts": [{"sauce": [1]}]})",
              {"unknown key \"sauce\"", "did you mean \"source\"?"});
  refuse_edit(R"({"name": "a", "kind": "patch", "at": "x", "texts": [{"source": []}]})", {"not empty"});
  refuse_edit(R"({"name": "a", "kind": "patch", "at": "x", "texts": [{"source": [4294967296]}]})", {"a token id"});
  refuse_edit(R"({"name": "a", "kind": "noise", "at": "x", "value": 1, "seed": -1})", {"seed"});
  refuse_edit(R"({"name": "a", "kind": "cut", "at": "x"}, {"name": "a", "kind": "cut", "at": "y"})",
              {"edits[1]", "of this name already"});
  refuse_edit(R"({"name": "a", "kind": "cut", "at": "x", "positions": [1]})",
              {"my.json: text", "is \"any\"", "fingerprint"});
  refuse(std::string(100, '['), {"nested deeper"});
}

// Files whose lists are as long as files may be: read or refused at once, not pair by pair.
TEST(EditFiles, LongListsComeToAnEnd) {
  const std::string head = R"({"version": 1, "model": "0123456789abcdef", "text": "0123456789abcdef", "edits": [)";
  std::string numbers, ranges, edits;
  for (int i = 100000; i > 0; --i) {
    numbers += std::to_string(i) + ',';
    ranges += "[" + std::to_string(2 * i) + ',' + std::to_string(2 * i + 1) + "],";
  }
  const std::string edit = R"("kind": "cut", "at": "decoder.0.self", "heads": [)" + numbers + R"(0], "positions": [)" +
                           ranges + R"(0], "keys": [)" + ranges;
  const EditFile file =
      edit_file_from_json(head + R"({"name": "a", )" + edit + R"(0]}, {"name": "b", )" + edit + "1]}]}", "my.json");
  EXPECT_EQ(file.edits.list().at(0).heads.size(), 100001u);
  expect_error([&] { edit_file_from_json(head + R"({"name": "a", )" + edit + "2]}]}", "my.json"); },
               {"keys names 2 twice"});
  for (int i = 0; i < 4097; ++i)
    edits += R"({"name": ")" + std::to_string(i) + R"(", "kind": "cut", "at": "decoder.0"},)";
  edits.pop_back();
  expect_error([&] { edit_file_from_json(head + edits + "]}", "my.json"); },
               {"my.json: edits[4096]", "edit '4096'", "4096 edits already"});
}

// As many edits as there may be come back; what could not be read again is not written, and what was there stays.
TEST(EditFiles, WhatIsSavedCanBeLoaded) {
  const auto path = std::filesystem::temp_directory_path() / "attend_edit_file_limits_test.json";
  std::filesystem::remove(path);
  EditFile file{{}, "0123456789abcdef", "any"};
  for (std::size_t i = 0; i < Edits::most; ++i)
    file.edits.add({.name = std::to_string(i), .kind = K::cut, .at = "decoder.0"});
  save_edit_file(path, file);
  EXPECT_EQ(load_edit_file(path), file);
  const Edits full = file.edits;
  expect_error(ErrorKind::argument, {"edit 'more'", "4096 edits already", "several heads, positions and keys"},
               [&] { file.edits.add({.name = "more", .kind = K::cut, .at = "decoder.0"}); });
  EXPECT_EQ(file.edits, full);
  const auto refuse = [&](const EditFile& bad, const std::vector<std::string>& parts) {
    expect_error(ErrorKind::argument, parts, [&] { save_edit_file(path, bad); });
    EXPECT_EQ(load_edit_file(path), file) << "what was there is gone";
  };
  refuse({{}, "none", "any"}, {"limits_test.json: model", "\"none\"", "could not be read again"});
  EditFile bad{list_of({{.name = "a", .kind = K::cut, .at = "decoder.0", .positions = {{3}}}}), file.model, "any"};
  refuse(bad, {"limits_test.json: text", "could not be read again"});
  bad.text = file.model;
  bad.edits = list_of({{.name = "a", .kind = K::cut, .at = "decoder.0", .items = {(std::int64_t{1} << 40) + 1}}});
  refuse(bad, {"edits[0].items", "1099511627777", "could not be read again"});
  bad.edits = list_of({{.name = "a", .at = "decoder.0.output", .items = {0}}});
  Edit longest{.name = "b", .at = std::string(70 << 20, 'x')};
  bad.edits.add(longest);
  refuse(bad, {"limits_test.json", "at most 67108864"});
  std::filesystem::remove(path);
}

TEST(EditFiles, FitOneModelAndOneText) {
  const Model model(translator_config(), 3), other(translator_config(), 4);
  const EditInput input = translator_input();
  EditInput changed = input;
  changed.target.ids[2] = (changed.target.ids[2] + 1) % 23;
  EditFile file{{}, fingerprint(model), text_fingerprint(input)};
  file.check_fits(model, input);
  expect_error([&] { file.check_fits(other, input); },
               {"model of fingerprint " + fingerprint(model), "has " + fingerprint(other)});
  expect_error([&] { file.check_fits(model, changed); },
               {"text of fingerprint " + text_fingerprint(input), "has " + text_fingerprint(changed)});
  // The same ids cut into other items are another text, and so is another source.
  EditInput cut = input;
  cut.target = TokenBatch{};
  cut.target.append(std::span(input.target.ids).first(5));
  cut.target.append(std::span(input.target.ids).subspan(5));
  EXPECT_NE(text_fingerprint(cut), text_fingerprint(input));
  changed = input;
  std::swap(changed.source.ids[0], changed.source.ids[1]);
  EXPECT_NE(text_fingerprint(changed), text_fingerprint(input));
  file.text = "any";
  file.check_fits(model, changed);
  file.edits.add({.name = "a", .kind = K::cut, .at = "decoder.0.self", .positions = {{1}}});
  expect_error([&] { file.check_fits(model, input); }, {"for any text", "belong to one text"});
}

}  // namespace
}  // namespace attend
