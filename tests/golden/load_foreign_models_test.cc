// Small models that others trained, run by the one Transformer, against the outputs their own projects assert. What each
// folder holds and where it comes from is in its README.md.
#include <gtest/gtest.h>

#include <cmath>
#include <numeric>

#include "attend/probe.h"
#include "attend/safetensors.h"
#include "attend/tokenizer.h"
#include "golden/load_models.h"
#include "golden/transliteration_characters.h"

namespace attend {
namespace {

// ---- stories260K: decoder only, RMSNorm, rotary, SwiGLU, grouped-query attention -------------------------------------

TEST(Stories260K, GreedyTextOf200StepsEqualsTheOneLlama2cAsserts) {
  const Model model = foreign_model("stories260K");
  EXPECT_EQ(model.parameter_count(), 260032);
  const nlohmann::json golden = golden_json("stories260K");
  const auto tokenizer = load_tokenizer(golden_folder("stories260K") / "tok512.bin");
  ASSERT_EQ(tokenizer->kind(), TokenizerKind::llama2c);
  const Greedy run = run_greedy(model, {1}, 1, 200);

  std::vector<std::int32_t> first{1};
  const auto expected = golden["greedy_ids_first_61_incl_bos"].get<std::vector<std::int32_t>>();
  ASSERT_EQ(expected.size(), 61u);
  ASSERT_GE(run.ids.size(), 60u);
  first.insert(first.end(), run.ids.begin(), run.ids.begin() + 60);
  EXPECT_EQ(first, expected);
  EXPECT_EQ(tokenizer->decode(run.ids), golden["greedy_text_200_steps"].get<std::string>());
}

TEST(Stories260K, LogitsAndHiddenRowsAfterEightIds) {
  const Model model = foreign_model("stories260K");
  const nlohmann::json golden = golden_json("stories260K");
  const auto ids = golden["greedy_ids_first_61_incl_bos"].get<std::vector<std::int32_t>>();
  std::vector<Site> sites;
  for (int layer = 0; layer < 5; ++layer) sites.push_back({StackKind::decoder, layer, Part::block, Point::output});
  Recorder recorder(sites);
  RunOptions options;
  options.probe = &recorder;
  const States states = model.decode(one_item({ids.data(), 8}), nullptr, options);
  const Tensor logits = model.logits(states.rows.row_range(7, 1));
  ASSERT_EQ(golden["logits_after_8_ids"].size(), 512u);
  EXPECT_LT(largest_difference({logits.data(), 512}, golden["logits_after_8_ids"]), 5e-5);

  const nlohmann::json& hidden = golden["hidden_after_each_layer_at_position_7_first_8_values"];
  ASSERT_EQ(hidden.size(), 5u);
  std::size_t layer = 0;
  for (const nlohmann::json& expected : hidden) {
    ASSERT_EQ(expected.size(), 8u);
    EXPECT_LT(largest_difference({recorder.value(sites[layer]).row(7), 8}, expected), 5e-5) << "layer " << layer;
    ++layer;
  }
}

// ---- transliteration-ar-en: encoder-decoder, pre-norm, sinusoids -----------------------------------------------------

class Transliteration : public testing::Test {
 protected:
  static constexpr std::int32_t bos = 1, eos = 2;
  const Model model_ = foreign_model("transliteration-ar-en");
  const nlohmann::json golden_ = golden_json("transliteration-ar-en");
  const Characters source_{"source_vocabulary.txt"}, target_{"target_vocabulary.txt"};

  std::string text_of_ids(const std::vector<std::int32_t>& ids) const {
    std::string text;
    for (std::int32_t id : ids) text += target_[id];
    return text;
  }

  std::string translate(const std::string& source, const std::string& prefix = {}) const {
    const States memory = model_.encode(one_item(source_.ids(source)));
    std::vector<std::int32_t> prompt{bos};
    const auto forced = target_.ids(prefix);
    prompt.insert(prompt.end(), forced.begin(), forced.end());
    return prefix + text_of_ids(run_greedy(model_, prompt, eos, 50, &memory).ids);
  }
};

TEST_F(Transliteration, OutputsThatCTranslate2Asserts) {
  EXPECT_EQ(model_.parameter_count(), 182731);
  const nlohmann::json& expected = golden_["upstream_expected"];
  ASSERT_EQ(expected["greedy"].size(), 2u);
  for (const auto& [source, result] : expected["greedy"].items())
    EXPECT_EQ(translate(source), result.get<std::string>());
  ASSERT_EQ(expected["with_forced_prefix"].size(), 3u);
  for (const nlohmann::json& each : expected["with_forced_prefix"])
    EXPECT_EQ(translate(each["source"], each["prefix"]), each["result"].get<std::string>()) << each["prefix"];
}

TEST_F(Transliteration, EveryCaseAgreesInIdsLogitsAndProbability) {
  ASSERT_EQ(golden_["cases"].size(), 10u);
  for (const nlohmann::json& each : golden_["cases"]) {
    SCOPED_TRACE(each["source"].get<std::string>());
    const auto source = each["source_ids"].get<std::vector<std::int32_t>>();
    EXPECT_EQ(source_.ids(each["source"]), source);
    const States memory = model_.encode(one_item(source));
    EXPECT_LT(largest_difference({memory.rows.row(0), 32}, each["encoder_first_row"]), 2e-5);

    const Greedy run = run_greedy(model_, {bos}, eos, 50, &memory);
    EXPECT_EQ(text_of_ids(run.ids), each["greedy"].get<std::string>());
    std::vector<std::int32_t> inputs{bos};
    inputs.insert(inputs.end(), run.ids.begin(), run.ids.end());
    EXPECT_EQ(inputs, each["decoder_input_ids"].get<std::vector<std::int32_t>>());
    EXPECT_NEAR(run.log_probability, each["sum_log_prob"].get<double>(), 2e-5);
    ASSERT_EQ(run.first_logits.size(), each["first_step_logits"].size());
    EXPECT_LT(largest_difference(run.first_logits, each["first_step_logits"]), 5e-5);

    // All steps at once give the same as one step after the other.
    const Tensor all = log_softmax(model_.logits(model_.decode(one_item(inputs), &memory).rows));
    ASSERT_EQ(static_cast<std::size_t>(all.rows()), each["step_max_log_prob"].size());
    for (std::int64_t row = 0; row < all.rows(); ++row)
      EXPECT_NEAR(*std::max_element(all.row(row), all.row(row) + all.width()),
                  each["step_max_log_prob"][static_cast<std::size_t>(row)].get<double>(), 2e-5);
  }
}

// ---- gpt-nano-sort: decoder only, learned positions, GELU ------------------------------------------------------------

// Positions beyond a causal mask are minus infinity on both sides.
void expect_near(const Tensor& found, const Tensor& expected, const std::string& name) {
  ASSERT_EQ(found.elements(), expected.elements()) << name;
  const std::vector<float> a = found.to_vector(), b = expected.to_vector();
  for (std::size_t i = 0; i < a.size(); ++i) {
    if (std::isinf(b[i])) ASSERT_EQ(a[i], b[i]) << name << " at " << i;
    else ASSERT_NEAR(a[i], b[i], 2e-5) << name << " at " << i;
  }
}

// [items, heads, positions, head_dim] as [items * positions, heads * head_dim].
Tensor heads_side_by_side(const Tensor& x) {
  const std::int64_t items = x.shape()[0], heads = x.shape()[1], positions = x.shape()[2], width = x.shape()[3];
  Tensor result = Tensor::empty({items * positions, heads * width});
  for (std::int64_t i = 0; i < items; ++i)
    for (std::int64_t h = 0; h < heads; ++h)
      for (std::int64_t p = 0; p < positions; ++p)
        std::copy_n(x.data() + ((i * heads + h) * positions + p) * width, width,
                    result.data() + (i * positions + p) * heads * width + h * width);
  return result;
}

TEST(GptNanoSort, EveryIntermediateTensorAgreesWithPyTorch) {
  Model model = foreign_model("gpt-nano-sort");
  EXPECT_EQ(model.parameter_count(), 85728);
  const SafetensorsFile golden(golden_folder("gpt-nano-sort") / "golden-activations.safetensors");

  const std::vector<float> idx = golden.tensor("idx").to_vector();
  TokenBatch tokens;
  for (std::size_t item = 0; item < 3; ++item) {
    std::vector<std::int32_t> ids;
    for (std::size_t i = 0; i < 11; ++i) ids.push_back(static_cast<std::int32_t>(idx[item * 11 + i]));
    tokens.append(ids);
  }
  Recorder recorder(model.sites());
  RunOptions options;
  options.probe = &recorder;
  const Tensor logits = model.logits(model.decode(tokens, nullptr, options).rows, options);

  const auto site = [&](const std::string& name) { return recorder.value(parse_site(name)); };
  const std::map<std::string, std::string> rows{{"x", "decoder.embedded"},
                                                {"ln1", "decoder.0.self.normed"},
                                                {"y", "decoder.0.self.head_output"},
                                                {"yProj", "decoder.0.self.projected"},
                                                {"attnResid", "decoder.0.self.added"},
                                                {"ln2", "decoder.0.feed_forward.normed"},
                                                {"gelu", "decoder.0.feed_forward.inner"},
                                                {"mlp", "decoder.0.feed_forward.projected"},
                                                {"mlpResid", "decoder.0.feed_forward.added"},
                                                {"block0", "decoder.0.output"},
                                                {"block1", "decoder.1.output"},
                                                {"block2", "decoder.2.output"},
                                                {"ln_f", "decoder.final_norm"},
                                                {"lm_head", "decoder.logits"}};
  std::vector<std::string> seen;
  for (const auto& [theirs, ours] : rows) {
    expect_near(site(ours), golden.tensor(theirs), theirs);
    seen.push_back(theirs);
  }
  for (const auto& [theirs, ours] : {std::pair("q", "query"), std::pair("k", "key"), std::pair("v", "value")}) {
    expect_near(site(std::string("decoder.0.self.") + ours), heads_side_by_side(golden.tensor(theirs)), theirs);
    seen.push_back(theirs);
  }
  expect_near(join_columns(join_columns(site("decoder.0.self.query"), site("decoder.0.self.key")),
                           site("decoder.0.self.value")),
              golden.tensor("qkv"), "qkv");
  const Tensor scores = golden.tensor("att"), weights = golden.tensor("attSm");
  for (std::int64_t item = 0; item < 3; ++item) {
    const auto of_item = [&](const Tensor& x) { return x.reshaped({3, 3 * 11 * 11}).row_range(item, 1); };
    expect_near(recorder.value(parse_site("decoder.0.self.scores"), item), of_item(scores), "att");
    expect_near(recorder.value(parse_site("decoder.0.self.weights"), item), of_item(weights), "attSm");
  }
  expect_near(softmax(logits), golden.tensor("probs"), "probs");
  // No site: what the model adds up or hands on inside one kernel.
  expect_near(embed(model.parameter("decoder.embedding.weight").value, tokens.ids), golden.tensor("tok_emb"),
              "tok_emb");
  expect_near(model.parameter("decoder.position.weight").value, golden.tensor("pos_emb"), "pos_emb");
  expect_near(
      linear(site("decoder.0.feed_forward.normed"), model.parameter("decoder.0.feed_forward.inner.weight").weight,
             model.parameter("decoder.0.feed_forward.inner.bias").value),
      golden.tensor("fc"), "fc");
  for (const char* name : {"qkv", "att", "attSm", "probs", "tok_emb", "pos_emb", "fc", "idx"}) seen.push_back(name);
  for (const SafetensorsEntry& entry : golden.entries())
    EXPECT_NE(std::find(seen.begin(), seen.end(), entry.name), seen.end()) << entry.name << " was not compared";
}

TEST(GptNanoSort, SortsEveryInput) {
  const Model model = foreign_model("gpt-nano-sort");
  std::vector<std::vector<std::int32_t>> inputs;
  for (std::int32_t code = 0; code < 729; ++code) {
    std::vector<std::int32_t> digits;
    for (std::int32_t rest = code, i = 0; i < 6; ++i, rest /= 3) digits.push_back(rest % 3);
    inputs.push_back(std::move(digits));
  }
  std::vector<KvCache> caches(inputs.size(), KvCache(model));
  std::vector<KvCache*> pointers;
  for (KvCache& cache : caches) pointers.push_back(&cache);
  std::vector<std::vector<std::int32_t>> next = inputs, outputs(inputs.size());
  for (int step = 0; step < 6; ++step) {
    TokenBatch tokens;
    for (const auto& ids : next) tokens.append(ids);
    const States states = model.decode_cached(tokens, pointers);
    std::vector<std::int64_t> last;
    for (std::size_t item = 0; item < inputs.size(); ++item) last.push_back(states.offsets[item + 1] - 1);
    const Tensor logits = model.logits(select_rows(states.rows, last));
    for (std::size_t item = 0; item < inputs.size(); ++item) {
      next[item] = {largest(logits.row(static_cast<std::int64_t>(item)), 3)};
      outputs[item].push_back(next[item][0]);
    }
  }
  for (std::size_t item = 0; item < inputs.size(); ++item) {
    std::sort(inputs[item].begin(), inputs[item].end());
    EXPECT_EQ(outputs[item], inputs[item]) << "input " << item;
  }
}

// ---- kwt1: encoder only, class token, post-norm ----------------------------------------------------------------------

TEST(Kwt1, LabelsLogitsAndClassTokenOfTheRecordings) {
  const Model model = foreign_model("kwt1-keyword-spotting");
  const nlohmann::json golden = golden_json("kwt1-keyword-spotting");
  std::vector<std::string> labels;
  std::ifstream in(golden_folder("kwt1-keyword-spotting") / "labels.txt");
  for (std::string line; std::getline(in, line);) labels.push_back(line);
  ASSERT_EQ(labels.size(), 12u);
  ASSERT_EQ(golden["cases"].size(), 4u);

  // All recordings as one batch.
  Tensor features;
  std::vector<std::int64_t> offsets{0};
  for (const nlohmann::json& each : golden["cases"]) {
    std::string file = each["wav"].get<std::string>();
    file.replace(file.find("_1000ms.wav"), std::string::npos, "_features.safetensors");
    const Tensor mfcc = SafetensorsFile(golden_folder("kwt1-keyword-spotting") / file).tensor("mfcc");
    EXPECT_LT(largest_difference({mfcc.row(0), 8}, each["mfcc_frame0_first8"]), 1e-3);
    features = features.defined() ? join_rows(features, mfcc) : mfcc;
    offsets.push_back(features.rows());
  }
  std::vector<Site> sites{parse_site("encoder.embedded")};
  for (const char* layer : {"0", "5", "11"}) sites.push_back(parse_site(std::string("encoder.") + layer + ".output"));
  Recorder recorder(sites);
  RunOptions options;
  options.probe = &recorder;
  const States states = model.encode_features(features, offsets, options);
  const Tensor logits = model.classify(states);

  std::int64_t item = 0;
  for (const nlohmann::json& each : golden["cases"]) {
    SCOPED_TRACE(each["wav"].get<std::string>());
    EXPECT_EQ(labels[static_cast<std::size_t>(largest(logits.row(item), 12))], each["label"].get<std::string>());
    ASSERT_EQ(each["logits"].size(), 12u);
    EXPECT_LT(largest_difference({logits.row(item), 12}, each["logits"]), 1e-4);
    const std::int64_t token = states.offsets[static_cast<std::size_t>(item)];
    EXPECT_LT(largest_difference({recorder.value(sites[0]).row(token), 8}, each["class_token_after_embedding_first8"]),
              2e-5);
    ASSERT_EQ(each["class_token_after_layer"].size(), 3u);
    for (const auto& [layer, expected] : each["class_token_after_layer"].items())
      EXPECT_LT(
          largest_difference({recorder.value(parse_site("encoder." + layer + ".output")).row(token), 8}, expected),
          1e-4)
          << "layer " << layer;
    ++item;
  }
}

// The imported model survives our own format, in float32 bit by bit.
TEST(ForeignModels, RoundTripThroughOurFolder) {
  for (const char* name : {"stories260K", "transliteration-ar-en", "gpt-nano-sort", "kwt1-keyword-spotting"}) {
    const Model model = foreign_model(name);
    const auto folder = std::filesystem::path(testing::TempDir()) / (std::string("attend-round-trip-") + name);
    std::filesystem::remove_all(folder);
    Task task;
    task.kind = model.config().classes   ? Task::Kind::classify
                : model.config().encoder ? Task::Kind::translate
                                         : Task::Kind::generate;
    for (std::int64_t i = 0; i < model.config().classes; ++i) task.classes.push_back(std::to_string(i));
    save_model_folder(folder, model, nullptr, nullptr, task);
    const ModelFolder again = load_model_folder(folder);
    EXPECT_EQ(fingerprint(again.model), fingerprint(model)) << name;
    EXPECT_EQ(again.task, task);
    std::filesystem::remove_all(folder);
  }
}

}  // namespace
}  // namespace attend
