// Edits of a request against a textbook run in float64 that makes the same changes: logits, rows and counts.
#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "attend/tokenizer.h"
#include "explorer/api_error.h"
#include "explorer/generation.h"
#include "explorer/runs.h"
#include "reference/random_models.h"
#include "reference/transformer_reference.h"

namespace attend::explorer {
namespace {

using reference::Matrix;

// A random model that reads the letters a to o.
struct Letters {
  explicit Letters(const TransformerConfig& config) {
    Model model(config, 3);
    reference::randomise(model, 11);
    const auto tokenizer = train_character(CharacterOptions{}, "abcdefghijklmno");
    const bool encoder = config.encoder.has_value(), decoder = config.decoder.has_value();
    Task task;
    task.kind = encoder && decoder ? Task::Kind::translate : Task::Kind::generate;
    loaded = std::make_shared<LoadedModel>(
        LoadedModel{"letters", "",
                    ModelFolder{std::move(model), encoder ? tokenizer : nullptr, decoder ? tokenizer : nullptr, task},
                    "0123456789abcdef", "", 0, 0});
    const Json input = encoder && decoder ? Json{{"source", "fedcba"}, {"target", "abcde"}} : Json{{"text", "abcdef"}};
    prepared = read_input(*loaded, input_request(input, "input", Limits()), Limits(), false, [] { return false; });
  }

  std::shared_ptr<const RunEdits> edits(const Json& list) const {
    const Json body = {{"edits", list}};
    Fields fields(body, "");
    auto result = read_edits(fields, *loaded, rows_of(prepared.input), Limits(), StopSignal());
    fields.finish();
    return result;
  }
  std::shared_ptr<const Run> run(const Json& list) const {
    return std::make_shared<explorer::Run>(loaded, prepared, edits(list), true, 1 << 24, StopSignal());
  }
  std::string refused(const Json& list) const {
    try {
      edits(list);
    } catch (...) {
      return current_error().kind();
    }
    return "nothing";
  }

  // Logits of the textbook with its hooks set by `change`.
  Matrix textbook(const std::function<void(reference::Transformer&)>& change,
                  const std::vector<std::int32_t>* other_target = nullptr) const {
    reference::Transformer model(loaded->folder.model);
    change(model);
    TokenBatch source, target;
    Matrix memory;
    if (loaded->config().encoder) {
      source.append(prepared.input.source);
      memory = model.encode(source);
    }
    target.append(other_target ? *other_target : prepared.input.ids);
    return model.logits(model.decode(target, loaded->config().encoder ? &memory : nullptr,
                                     {0, static_cast<std::int64_t>(memory.size())}));
  }

  std::shared_ptr<LoadedModel> loaded;
  Subject prepared;
};

void expect_logits(const Run& run, const Matrix& expected, const std::string& what) {
  ASSERT_EQ(run.predictions(), static_cast<std::int64_t>(expected.size()));
  const Tensor logits = run.logits(0, run.predictions());
  for (std::size_t row = 0; row < expected.size(); ++row)
    for (std::size_t id = 0; id < expected[row].size(); ++id)
      EXPECT_NEAR(logits.at(static_cast<std::int64_t>(row), static_cast<std::int64_t>(id)), expected[row][id],
                  2e-4 * std::max(1.0, std::abs(expected[row][id])))
          << what << " row " << row << " id " << id;
}

Letters encoder_decoder() { return Letters(reference::all_families()[0].config); }
Letters rotary_decoder() { return Letters(reference::all_families()[4].config); }

constexpr double hidden = -std::numeric_limits<double>::infinity();

// Changes the scores of one attention's cells that `names` accepts.
void change_scores(reference::Transformer& model, const std::string& attention,
                   const std::function<bool(const reference::ScorePlace&)>& names,
                   const std::function<double(double)>& change) {
  model.score = [=](const reference::ScorePlace& place, double score) {
    return place.attention == attention && names(place) ? change(score) : score;
  };
}

TEST(ExplorerEdits, OfScoresAreTheTextbooks) {
  const Letters letters = encoder_decoder();
  struct Case {
    Json edit;
    std::string attention;
    std::function<bool(const reference::ScorePlace&)> names;
    std::function<double(double)> change;
    std::int64_t touched;
  };
  const std::vector<Case> cases = {
      {{{"kind", "set"}, {"attention", "decoder.1.cross"}, {"head", 2}, {"query", 3}, {"key", 1}, {"value", 2.5}},
       "decoder.1.cross",
       [](const auto& p) { return p.head == 2 && p.query == 3 && p.key == 1; },
       [](double) { return 2.5; },
       1},
      {{{"kind", "add"}, {"attention", "encoder.0.self"}, {"head", -1}, {"query", 2}, {"key", -1}, {"value", -1.25}},
       "encoder.0.self",
       [](const auto& p) { return p.query == 2; },
       [](double score) { return score - 1.25; },
       4 * 7},
      {{{"kind", "scale"}, {"attention", "decoder.0.self"}, {"head", 1}, {"value", 3}},
       "decoder.0.self",
       [](const auto& p) { return p.head == 1; },
       [](double score) { return 3 * score; },
       21},
      {{{"kind", "forbid"}, {"attention", "decoder.0.cross"}, {"head", 0}, {"query", -1}, {"key", 4}},
       "decoder.0.cross",
       [](const auto& p) { return p.head == 0 && p.key == 4; },
       [](double) { return hidden; },
       6},
      {{{"kind", "evict"}, {"attention", "decoder.1.self"}, {"key", 1}, {"query", 3}},
       "decoder.1.self",
       [](const auto& p) { return p.key == 1 && p.query >= 3; },
       [](double) { return hidden; },
       12},
  };
  for (const Case& one : cases) {
    const auto run = letters.run(Json::array({one.edit}));
    expect_logits(*run, letters.textbook([&](reference::Transformer& model) {
      change_scores(model, one.attention, one.names, one.change);
    }),
                  one.edit.dump());
    EXPECT_EQ(run->touched(), (std::vector<std::int64_t>{one.touched})) << one.edit;
  }
  const auto locked = letters.run(
      {{{"kind", "lock"}, {"attention", "decoder.1.cross"}, {"head", 3}, {"query", 2}, {"key", 5}, {"value", 0.75}}});
  expect_logits(*locked, letters.textbook([&](reference::Transformer& model) {
    model.lock = [](const reference::ScorePlace& place) {
      return place.attention == "decoder.1.cross" && place.head == 3 && place.query == 2 && place.key == 5 ? 0.75 : -1;
    };
  }),
                "lock");
  JsonWriter out;
  out.begin_object();
  write_row(out, *locked, {{StackKind::decoder, 1, Part::cross}, 3, 2, {}}, Limits(), StopSignal());
  out.end_object();
  EXPECT_NEAR(Json::parse(out.take())["weights"][5].get<double>(), 0.75, 1e-6) << "the row tells the edited weight";
}

// The cache still holds an evicted entry; a generation tells at which steps it is read no more, and its weights show it.
TEST(ExplorerEdits, AGenerationTellsWhatIsEvicted) {
  const Letters letters = rotary_decoder();
  const auto edits =
      letters.edits(Json::array({{{"kind", "evict"}, {"attention", "decoder.1.self"}, {"key", 1}, {"query", 2}},
                                 {{"kind", "evict"}, {"attention", "decoder.1.self"}, {"key", 0}, {"query", 4}},
                                 {{"kind", "evict"}, {"attention", "decoder.0.self"}, {"key", 2}},
                                 {{"kind", "forbid"}, {"attention", "decoder.1.self"}, {"key", 2}}}));
  ModelInput input;
  input.ids.assign(letters.prepared.input.ids.begin(), letters.prepared.input.ids.begin() + 2);
  GenerationRequest request;
  request.steps = 4;
  request.prefix.assign(letters.prepared.input.ids.begin() + 2, letters.prepared.input.ids.begin() + 5);
  request.watch = AttentionPlace{StackKind::decoder, 1, Part::self};
  const Generation made = generate_openly(*letters.loaded, input, *edits, request, StopSignal());
  ASSERT_EQ(made.steps.size(), 4u);
  using Keys = std::vector<std::int64_t>;
  // Step s is chosen by the row at position s + 1.
  const Keys expected[] = {{}, {1}, {1}, {0, 1}};
  for (std::size_t step = 0; step < made.steps.size(); ++step) {
    const GenerationStep& one = made.steps[step];
    EXPECT_EQ(one.evicted, expected[step]) << step;
    for (const std::int64_t key : one.evicted)
      for (std::size_t begin = 0; begin < one.watched.weights.size();
           begin += static_cast<std::size_t>(one.watched.keys))
        EXPECT_EQ(one.watched.weights[begin + static_cast<std::size_t>(key)], 0) << step;
  }
  JsonWriter out;
  out.begin_object();
  write_generation(out, *letters.loaded, input, made, request);
  out.end_object();
  const Json told = Json::parse(out.take());
  EXPECT_EQ(told["steps"][3]["evicted"], Json({0, 1}));
  const std::int64_t one_token = told["steps"][0]["cache"]["bytes"].get<std::int64_t>() / 2;
  EXPECT_EQ(told["steps"][3]["cache"]["bytes"], 5 * one_token) << "a masked entry is not freed";
  request.watch.reset();
  EXPECT_TRUE(generate_openly(*letters.loaded, input, *edits, request, StopSignal()).steps[3].evicted.empty());
}

TEST(ExplorerEdits, OfPartsAreTheTextbooks) {
  for (const Letters& letters : {encoder_decoder(), rotary_decoder()}) {
    const auto scaled = [&](const std::string& site, std::size_t begin, std::size_t end, double factor) {
      return letters.textbook([&](reference::Transformer& model) {
        model.visit = [=](const std::string& name, Matrix& rows, const auto&) {
          if (name != site) return;
          for (auto& row : rows)
            for (std::size_t i = begin; i < std::min(end, row.size()); ++i) row[i] *= factor;
        };
      });
    };
    const auto size = static_cast<std::size_t>(letters.loaded->config().head_width());
    const auto rows = static_cast<std::int64_t>(letters.prepared.input.ids.size());
    const Json head = {{"kind", "head"}, {"attention", "decoder.1.self"}, {"head", 2}, {"value", 0}};
    const auto cut = letters.run(Json::array({head}));
    expect_logits(*cut, scaled("decoder.1.self.head_output", 2 * size, 3 * size, 0), "head");
    EXPECT_EQ(cut->touched(), (std::vector<std::int64_t>{rows}));
    EXPECT_LT(cut->statistics({StackKind::decoder, 1, Part::self}, StopSignal()).head_sum, 1e-5)
        << "the parts sum to the output after a cut, too";
    expect_logits(*letters.run({{{"kind", "head"}, {"attention", "decoder.0.self"}, {"head", -1}, {"value", 0.5}}}),
                  scaled("decoder.0.self.head_output", 0, 999, 0.5), "all heads");
    expect_logits(*letters.run({{{"kind", "attention"}, {"attention", "decoder.1.self"}, {"value", -2}}}),
                  scaled("decoder.1.self.projected", 0, 999, -2), "attention");
    expect_logits(*letters.run({{{"kind", "feed_forward"}, {"stack", "decoder"}, {"layer", 1}, {"value", 0}}}),
                  scaled("decoder.1.feed_forward.projected", 0, 999, 0), "feed-forward");
    // Cut twice is as cut once.
    EXPECT_EQ(letters.run({head, head})->logits(0, 6).to_vector(), cut->logits(0, 6).to_vector());
  }
}

TEST(ExplorerEdits, APatchTakesTheRowsOfAnotherInput) {
  const Letters letters = encoder_decoder();
  const Json from = {{"source", "fedcba"}, {"target", "oooo"}};
  const Subject other =
      read_input(*letters.loaded, input_request(from, "from", Limits()), Limits(), false, [] { return false; });
  Matrix lent;
  letters.textbook(
      [&](reference::Transformer& model) {
        model.visit = [&](const std::string& name, Matrix& rows, const auto&) {
          if (name == "decoder.0.output") lent = rows;
        };
      },
      &other.input.ids);
  const auto run = letters.run({{{"kind", "patch"}, {"site", "decoder.0.output"}, {"row", 3}, {"from", from}}});
  expect_logits(*run, letters.textbook([&](reference::Transformer& model) {
    model.visit = [&](const std::string& name, Matrix& rows, const auto&) {
      if (name == "decoder.0.output") rows[3] = lent[3];
    };
  }),
                "patch");
  EXPECT_EQ(run->touched(), (std::vector<std::int64_t>{1}));
  // Of one head, before W_O.
  Matrix heads;
  letters.textbook(
      [&](reference::Transformer& model) {
        model.visit = [&](const std::string& name, Matrix& rows, const auto&) {
          if (name == "decoder.1.cross.head_output") heads = rows;
        };
      },
      &other.input.ids);
  expect_logits(*letters.run({{{"kind", "patch"},
                               {"site", "decoder.1.cross.head_output"},
                               {"rows", {1, 3}},
                               {"head", 1},
                               {"from", from}}}),
                letters.textbook([&](reference::Transformer& model) {
                  model.visit = [&](const std::string& name, Matrix& rows, const auto&) {
                    if (name == "decoder.1.cross.head_output")
                      for (std::size_t row = 1; row < 3; ++row)
                        for (std::size_t i = 4; i < 8; ++i) rows[row][i] = heads[row][i];
                  };
                }),
                "patch of a head");
}

TEST(ExplorerEdits, SeveralAreMadeTogetherAndAllOffIsTheRunWithoutAny) {
  const Letters letters = encoder_decoder();
  const auto base = letters.run(Json::array());
  Json set = {{"kind", "set"}, {"attention", "decoder.1.cross"}, {"head", 2}, {"query", 3}, {"key", 1}, {"value", 2.5},
              {"name", "mine"}};
  Json cut = {{"kind", "feed_forward"}, {"stack", "encoder"}, {"layer", 0}, {"value", 0.5}};
  const auto both = letters.run({set, cut});
  expect_logits(*both, letters.textbook([&](reference::Transformer& model) {
    change_scores(
        model, "decoder.1.cross", [](const auto& p) { return p.head == 2 && p.query == 3 && p.key == 1; },
        [](double) { return 2.5; });
    model.visit = [](const std::string& name, Matrix& rows, const auto&) {
      if (name != "encoder.0.feed_forward.projected") return;
      for (auto& row : rows)
        for (double& x : row) x *= 0.5;
    };
  }),
                "both");
  // A record made again from what a block reads has the edits, too.
  const explorer::Run again(letters.loaded, letters.prepared, letters.edits({set, cut}), false, 0, StopSignal());
  for (const AttentionPlace& place : attentions_of(letters.loaded->config()))
    EXPECT_EQ(again.record(place, StopSignal())->projected.to_vector(),
              both->record(place, StopSignal())->projected.to_vector())
        << name_of(place);
  set["off"] = cut["off"] = true;
  EXPECT_EQ(letters.run({set, cut})->logits(0, 6).to_vector(), base->logits(0, 6).to_vector()) << "the same bits";
  EXPECT_EQ(letters.edits({set, cut})->key(), "");
  set.erase("off");
  Json renamed = set;
  renamed["name"] = "yours";
  EXPECT_EQ(letters.edits(Json::array({set}))->key(), letters.edits(Json::array({renamed}))->key());
  renamed["value"] = 2;
  EXPECT_NE(letters.edits(Json::array({set}))->key(), letters.edits(Json::array({renamed}))->key());
}

TEST(ExplorerEdits, OfOneSiteAreMadeInTheOrderOfTheRequest) {
  const Letters letters = encoder_decoder();
  const Json from = {{"source", "fedcba"}, {"target", "oooo"}};
  const Subject other =
      read_input(*letters.loaded, input_request(from, "from", Limits()), Limits(), false, [] { return false; });
  struct Case {
    std::string site;
    Json factor;
    std::size_t begin, end;  // columns
  };
  const std::vector<Case> cases = {
      {"decoder.1.self.projected", {{"kind", "attention"}, {"attention", "decoder.1.self"}, {"value", 0}}, 0, 999},
      {"decoder.0.feed_forward.projected",
       {{"kind", "feed_forward"}, {"stack", "decoder"}, {"layer", 0}, {"value", 0.5}},
       0,
       999},
      {"decoder.1.cross.head_output",
       {{"kind", "head"}, {"attention", "decoder.1.cross"}, {"head", 1}, {"value", -2}},
       4,
       8},
      // The patched heads go through a factor on what they write.
      {"decoder.1.cross.head_output", {{"kind", "attention"}, {"attention", "decoder.1.cross"}, {"value", 0.5}}, 0, 0}};
  for (const Case& one : cases) {
    Matrix lent;
    letters.textbook(
        [&](reference::Transformer& model) {
          model.visit = [&](const std::string& name, Matrix& rows, const auto&) {
            if (name == one.site) lent = rows;
          };
        },
        &other.input.ids);
    const Json patch = {{"kind", "patch"}, {"site", one.site}, {"row", 3}, {"from", from}};
    const double factor = one.factor["value"];
    for (const bool patch_first : {true, false}) {
      const auto run = letters.run(patch_first ? Json::array({patch, one.factor}) : Json::array({one.factor, patch}));
      expect_logits(*run, letters.textbook([&](reference::Transformer& model) {
        model.visit = [&](const std::string& name, Matrix& rows, const auto&) {
          if (one.end == 0 && name == "decoder.1.cross.projected")
            for (auto& row : rows)
              for (double& x : row) x *= factor;
          if (name != one.site) return;
          if (patch_first) rows[3] = lent[3];
          for (auto& row : rows)
            for (std::size_t i = one.begin; i < std::min(one.end, row.size()); ++i) row[i] *= factor;
          if (!patch_first) rows[3] = lent[3];
        };
      }),
                    one.site + (patch_first ? " patch first" : " factor first"));
      EXPECT_EQ(run->touched(), patch_first ? (std::vector<std::int64_t>{1, 6}) : (std::vector<std::int64_t>{6, 1}));
    }
  }
}

TEST(ExplorerEdits, RefusesWhatCannotBeMade) {
  const Letters letters = encoder_decoder();
  const Json set = {{"kind", "set"}, {"attention", "decoder.1.cross"}, {"head", 2}, {"query", 3}, {"key", 1},
                    {"value", 2.5}};
  const auto with = [&](const char* name, const Json& value) {
    Json edit = set;
    edit[name] = value;
    return letters.refused(Json::array({edit}));
  };
  EXPECT_EQ(letters.refused(Json::array({set})), "nothing");
  EXPECT_EQ(letters.refused("set"), "argument");
  EXPECT_EQ(letters.refused(Json::array({1})), "argument");
  EXPECT_EQ(with("kind", "put"), "argument");
  EXPECT_EQ(with("attention", "decoder.9.cross"), "unknown");
  EXPECT_EQ(with("head", 4), "argument");
  EXPECT_EQ(with("head", -2), "argument");
  EXPECT_EQ(with("query", 6), "argument");
  EXPECT_EQ(with("key", 7), "argument");
  EXPECT_EQ(with("value", nullptr), "argument");
  EXPECT_EQ(with("site", "decoder.0.output"), "argument") << "a field that this kind does not have";
  EXPECT_EQ(with("name", 3), "argument");
  EXPECT_EQ(letters.refused({{{"kind", "patch"}, {"site", "decoder.0.outptu"}, {"from", {{"source", "a"}}}}}),
            "argument");
  EXPECT_EQ(letters.refused({{{"kind", "patch"},
                              {"site", "decoder.0.output"},
                              {"row", 6},
                              {"from", {{"source", "a"}, {"target", "b"}}}}}),
            "argument");
  EXPECT_EQ(letters.refused({{{"kind", "feed_forward"}, {"stack", "decoder"}, {"layer", 2}, {"value", 0}}}),
            "argument");
  // Contradictions are named in pairs, off ones left aside.
  Json forbid = set;
  forbid["kind"] = "forbid";
  forbid.erase("value");
  EXPECT_EQ(letters.refused({set, forbid}), "argument");
  forbid["off"] = true;
  EXPECT_EQ(letters.refused({set, forbid}), "nothing");
  try {
    forbid.erase("off");
    // By their places in the request: between them stand some that no other can contradict.
    Json off = set;
    off["off"] = true;
    letters.edits({set, off, {{"kind", "head"}, {"attention", set["attention"]}, {"head", 0}, {"value", 0.5}}, forbid});
    ADD_FAILURE() << "nothing was thrown";
  } catch (const RequestError& error) {
    EXPECT_NE(std::string(error.what()).find("edits[0]"), std::string::npos) << error.what();
    EXPECT_NE(std::string(error.what()).find("edits[3]"), std::string::npos) << error.what();
    EXPECT_EQ(error.detail.code, "contradiction");
    EXPECT_EQ(error.detail.found, "[0,3]");
  }
  Json lock = set;
  lock["kind"] = "lock";
  lock["value"] = 0.7;
  Json other = lock;
  other["key"] = 2;
  EXPECT_THROW(letters.run({lock, other}), Error) << "locks of one row beyond 1";
}

}  // namespace
}  // namespace attend::explorer
