// TransformerConfig: its check and its JSON.
#include <gtest/gtest.h>

#include <functional>
#include <limits>

#include "attend/config.h"
#include "attend/error.h"
#include "attend/model.h"
#include "model/json_fields.h"

namespace attend {
namespace {

TransformerConfig encoder_decoder() {
  TransformerConfig config;
  config.encoder = StackConfig{2, 50, 0, false, false, false, true};
  config.decoder = StackConfig{2, 60, 0, true, false, false, true};
  config.width = 32;
  config.heads = 4;
  config.inner_width = 64;
  return config;
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

TEST(Config, AcceptsEveryFamily) {
  EXPECT_NO_THROW(encoder_decoder().check());
  TransformerConfig gpt = encoder_decoder();
  gpt.encoder.reset();
  gpt.positions = PositionKind::learned;
  gpt.tied_logits = true;
  EXPECT_NO_THROW(gpt.check());
  TransformerConfig llama = gpt;
  llama.positions = PositionKind::rotary;
  llama.norm = NormKind::rms;
  llama.norm_bias = false;
  llama.key_heads = 2;
  llama.gated = true;
  EXPECT_NO_THROW(llama.check());
  TransformerConfig vision = encoder_decoder();
  vision.decoder.reset();
  vision.encoder = StackConfig{2, 0, 49, false, true, false, true};
  vision.positions = PositionKind::learned;
  vision.classes = 10;
  vision.pooling = Pooling::class_token;
  EXPECT_NO_THROW(vision.check());
  TransformerConfig t5 = encoder_decoder();
  t5.decoder->vocabulary = 50;
  t5.shared_embeddings = true;
  t5.positions = PositionKind::relative_bias;
  EXPECT_NO_THROW(t5.check());
}

// The count made from the config alone against the parameters that are made.
TEST(Config, CountsParametersWithoutMakingThem) {
  std::vector<TransformerConfig> configs{encoder_decoder()};
  const auto with = [&](const std::function<void(TransformerConfig&)>& change) {
    configs.push_back(encoder_decoder());
    change(configs.back());
  };
  with([](auto& c) { c.decoder->vocabulary = 50, c.shared_embeddings = c.tied_logits = true; });
  with([](auto& c) { c.encoder.reset(), c.positions = PositionKind::learned, c.logits_bias = true, c.gated = true; });
  with([](auto& c) { c.query_key_value_bias = c.attention_output_bias = c.feed_forward_bias = c.norm_bias = false; });
  with([](auto& c) {
    c.encoder.reset(), c.norm = NormKind::rms, c.norm_bias = false, c.key_heads = 2, c.head_dim = 12,
                       c.positions = PositionKind::rotary;
  });
  with([](auto& c) {
    c.positions = PositionKind::relative_bias, c.encoder->embedding_norm = true, c.decoder->final_norm = false;
  });
  with([](auto& c) {
    c.decoder.reset();
    c.encoder = StackConfig{2, 0, 49, false, true, false, true};
    c.classes = 10;
    c.pooling = Pooling::class_token;
  });
  for (const TransformerConfig& config : configs)
    EXPECT_EQ(parameter_count(config), Model(config).parameter_count()) << to_json(config);
}

TEST(Config, NamesTheFieldThatContradicts) {
  struct Case {
    std::function<void(TransformerConfig&)> change;
    std::vector<std::string> parts;
  };
  const double nan = std::numeric_limits<double>::quiet_NaN(), infinity = std::numeric_limits<double>::infinity();
  const std::vector<Case> cases{
      {[](auto& c) { c.encoder.reset(), c.decoder.reset(); }, {"neither encoder nor decoder"}},
      {[](auto& c) { c.width = 0; }, {"config.width", "is 0", "1 to"}},
      {[](auto& c) { c.width = -4; }, {"config.width", "is -4"}},
      {[](auto& c) { c.heads = 0; }, {"config.heads", "is 0"}},
      {[](auto& c) { c.heads = 5; }, {"config.heads", "is 5", "divisor of width 32", "head_dim"}},
      {[](auto& c) { c.key_heads = 3; }, {"config.key_heads", "is 3", "divisor of heads 4"}},
      {[](auto& c) { c.key_heads = -1; }, {"config.key_heads", "is -1"}},
      {[](auto& c) { c.head_dim = -8; }, {"config.head_dim", "is -8"}},
      {[](auto& c) { c.inner_width = 0; }, {"config.inner_width", "is 0"}},
      {[](auto& c) { c.encoder->layers = 0; }, {"config.encoder.layers", "is 0"}},
      {[](auto& c) { c.decoder->layers = 100000; }, {"config.decoder.layers", "is 100000", "4096"}},
      {[](auto& c) { c.encoder->vocabulary = 0; }, {"config.encoder.vocabulary", "is 0", "input_width"}},
      {[](auto& c) { c.encoder->input_width = 7; }, {"config.encoder.input_width", "is 7", "vocabulary is 50"}},
      {[](auto& c) { c.decoder->vocabulary = 0, c.decoder->input_width = 4; }, {"config.decoder.input_width", "is 4"}},
      {[](auto& c) { c.decoder->causal = false; }, {"config.decoder.causal", "is false"}},
      {[](auto& c) { c.decoder->class_token = true; }, {"config.decoder.class_token"}},
      {[](auto& c) { c.encoder->class_token = true; }, {"config.encoder.class_token", "vocabulary is 50"}},
      {[](auto& c) { c.norm_epsilon = 0; }, {"config.norm_epsilon", "is 0"}},
      {[nan](auto& c) { c.norm_epsilon = nan; }, {"config.norm_epsilon", "nan"}},
      {[](auto& c) { c.norm = NormKind::rms; }, {"config.norm_bias", "rms"}},
      {[](auto& c) { c.width = 33, c.heads = 3; }, {"config.width", "is 33", "even", "sinusoidal"}},
      {[](auto& c) { c.width = 2, c.heads = 1, c.sinusoid_layout = SinusoidLayout::halves; },
       {"config.width", "is 2", "halves"}},
      {[](auto& c) { c.max_positions = 0; }, {"config.max_positions", "is 0"}},
      {[](auto& c) { c.max_positions = std::int64_t{1} << 40; }, {"config.max_positions"}},
      {[](auto& c) { c.max_positions = 1 << 22, c.width = 64; },
       {"config.max_positions", "is 4194304", "at most 2097152", "128 numbers"}},
      {[](auto& c) { c.max_positions = 1 << 22, c.head_dim = 128, c.positions = PositionKind::rotary; },
       {"config.max_positions", "at most 2097152", "128 numbers"}},
      {[](auto& c) { c.max_positions = 1 << 22, c.width = 1 << 14, c.positions = PositionKind::learned; },
       {"parameters"}},
      {[](auto& c) { c.first_position = 2, c.positions = PositionKind::learned; },
       {"config.first_position", "is 2", "learned"}},
      {[](auto& c) { c.position_base = 1; }, {"config.position_base", "is 1"}},
      {[infinity](auto& c) { c.position_base = infinity; }, {"config.position_base", "inf"}},
      {[](auto& c) { c.positions = PositionKind::rotary, c.rotary_dim = 10; },
       {"config.rotary_dim", "is 10", "at most", "8"}},
      {[](auto& c) { c.positions = PositionKind::rotary, c.rotary_dim = 3; }, {"config.rotary_dim", "is 3", "even"}},
      {[](auto& c) { c.positions = PositionKind::rotary, c.head_dim = 5; }, {"config.head_dim", "is 5", "even"}},
      {[](auto& c) { c.positions = PositionKind::relative_bias, c.relative_buckets = 5; },
       {"config.relative_buckets", "is 5"}},
      {[](auto& c) { c.positions = PositionKind::relative_bias, c.relative_max_distance = 16; },
       {"config.relative_max_distance", "is 16"}},
      {[](auto& c) { c.window = -1; }, {"config.window", "is -1"}},
      {[](auto& c) { c.embedding_scale = 0; }, {"config.embedding_scale", "is 0"}},
      {[nan](auto& c) { c.attention_scale = nan; }, {"config.attention_scale"}},
      {[](auto& c) { c.score_cap = -1; }, {"config.score_cap", "is -1"}},
      {[](auto& c) { c.shared_embeddings = true; }, {"config.shared_embeddings", "50", "60"}},
      {[](auto& c) { c.decoder.reset(), c.shared_embeddings = true; }, {"config.shared_embeddings", "no decoder"}},
      {[](auto& c) { c.decoder.reset(), c.encoder->vocabulary = 0, c.encoder->input_width = 9, c.tied_logits = true; },
       {"config.tied_logits", "vocabulary"}},
      {[](auto& c) { c.classes = 3; }, {"config.pooling", "classes is 3"}},
      {[](auto& c) { c.pooling = Pooling::mean; }, {"config.classes", "mean"}},
      {[](auto& c) { c.classes = 3, c.pooling = Pooling::class_token; },
       {"config.pooling", "encoder.class_token is false"}},
      {[](auto& c) { c.encoder.reset(), c.classes = 3, c.pooling = Pooling::mean; }, {"config.classes", "no encoder"}},
      {[](auto& c) { c.dropout = 1; }, {"config.dropout", "is 1", "below 1"}},
      {[nan](auto& c) { c.attention_dropout = nan; }, {"config.attention_dropout"}},
      {[](auto& c) { c.inner_dropout = -0.1; }, {"config.inner_dropout", "-0.1"}},
      {[](auto& c) { c.inner_width = 2000000000, c.width = 200000, c.heads = 8; }, {"parameters"}},
  };
  for (std::size_t i = 0; i < cases.size(); ++i) {
    SCOPED_TRACE(i);
    TransformerConfig config = encoder_decoder();
    cases[i].change(config);
    expect_parts(message_of([&] { config.check(); }, ErrorKind::config), cases[i].parts);
  }
}

TEST(ConfigJson, EveryFieldSurvives) {
  // All fields away from their default; the two stacks differ from each other.
  TransformerConfig config;
  config.encoder = StackConfig{3, 0, 17, true, true, true, false};
  config.decoder = StackConfig{4, 61, 0, true, false, true, false};
  config.width = 48;
  config.heads = 6;
  config.key_heads = 3;
  config.head_dim = 10;
  config.inner_width = 77;
  config.norm = NormKind::rms;
  config.norm_place = NormPlace::post;
  config.norm_epsilon = 3e-7;
  config.norm_bias = false;
  config.activation = Activation::gelu_tanh;
  config.gated = true;
  config.query_key_value_bias = config.attention_output_bias = config.feed_forward_bias = false;
  config.logits_bias = true;
  config.positions = PositionKind::rotary;
  config.max_positions = 99;
  config.first_position = 2;
  config.sinusoid_layout = SinusoidLayout::halves;
  config.position_base = 12345.678;
  config.rotary_pairing = Pairing::interleaved;
  config.rotary_dim = 6;
  config.relative_buckets = 16;
  config.relative_max_distance = 64;
  config.window = 9;
  config.embedding_scale = 0.1;
  config.attention_scale = 1.0 / 3;
  config.score_cap = 50;
  config.tied_logits = true;
  config.classes = 5;
  config.pooling = Pooling::mean;
  config.dropout = 0.1;
  config.attention_dropout = 0.2;
  config.inner_dropout = 0.3;
  config.initialisation = Initialisation::gpt;
  const std::string text = to_json(config);
  EXPECT_EQ(config_from_json(text, "config.json"), config);
  EXPECT_EQ(to_json(config_from_json(text, "config.json")), text);
}

TEST(ConfigJson, EveryEnumeratorSurvives) {
  const auto same = [](const TransformerConfig& config) {
    EXPECT_EQ(config_from_json(to_json(config), "config.json"), config) << to_json(config);
  };
  TransformerConfig config = encoder_decoder();
  for (auto each : {PositionKind::none, PositionKind::sinusoidal, PositionKind::learned, PositionKind::rotary,
                    PositionKind::relative_bias, PositionKind::alibi})
    config.positions = each, same(config);
  for (auto each : {Activation::none, Activation::relu, Activation::gelu, Activation::gelu_tanh, Activation::silu})
    config.activation = each, same(config);
  for (auto each : {Pairing::interleaved, Pairing::halves}) config.rotary_pairing = each, same(config);
  config.classes = 2;
  config.encoder->vocabulary = 0, config.encoder->input_width = 7, config.encoder->class_token = true;
  for (auto each : {Pooling::class_token, Pooling::mean}) config.pooling = each, same(config);
}

TEST(ConfigJson, ShortTextsTakeDefaults) {
  const TransformerConfig config = config_from_json(
      R"({"decoder": {"layers": 1, "vocabulary": 9, "causal": true}, "encoder": null, "width": 8, "heads": 2, "inner_width": 4, "dropout": 0})",
      "x");
  EXPECT_FALSE(config.encoder);
  EXPECT_EQ(config.decoder->vocabulary, 9);
  EXPECT_EQ(config.max_positions, TransformerConfig{}.max_positions);
}

TEST(ConfigJson, RefusesWhatItDoesNotKnow) {
  struct Case {
    std::string text;
    ErrorKind kind;
    std::vector<std::string> parts;
  };
  const std::string deep(100, '[');
  const std::vector<Case> cases{
      {"", ErrorKind::format, {"m/config.json", "not JSON"}},
      {"{", ErrorKind::format, {"m/config.json", "not JSON"}},
      {"{} {}", ErrorKind::format, {"not JSON"}},
      {"{\"width\": \"\xff\"}", ErrorKind::format, {"not JSON"}},
      {"[]", ErrorKind::config, {"[]", "an object"}},
      {deep + std::string(100, ']'), ErrorKind::format, {"deeper than 16"}},
      {R"({"width": 8, "width": 9})", ErrorKind::format, {"\"width\"", "twice"}},
      {R"({"widht": 8})", ErrorKind::config, {"m/config.json", "unknown key \"widht\"", "did you mean \"width\"?"}},
      {R"({"宽度": 8})", ErrorKind::config, {"unknown key \"宽度\""}},
      {R"({"bananas": 8})", ErrorKind::config, {"unknown key \"bananas\"", "known keys", "width", "initialisation"}},
      {R"({"encoder": {"layer": 2}})", ErrorKind::config, {"\"encoder.layer\"", "\"encoder.layers\""}},
      {R"({"encoder": 5})", ErrorKind::config, {"encoder", "5", "an object"}},
      {R"({"width": "8"})", ErrorKind::config, {"m/config.json: width", "\"8\"", "an integer"}},
      {R"({"width": 8.5})", ErrorKind::config, {"width", "8.5", "an integer"}},
      {R"({"width": 18446744073709551615})", ErrorKind::config, {"width", "an integer"}},
      {R"({"norm_epsilon": "small"})", ErrorKind::config, {"norm_epsilon", "a finite number"}},
      {R"({"norm_epsilon": 1e999})", ErrorKind::format, {"not JSON"}},
      {R"({"gated": 1})", ErrorKind::config, {"gated", "1", "true or false"}},
      {R"({"norm": "RMS"})", ErrorKind::config, {"norm", "\"RMS\"", "one of layer, rms"}},
      {R"({"positions": "rotery"})", ErrorKind::config, {"\"rotery\"", "did you mean \"rotary\"?"}},
      {R"({"positions": 3})", ErrorKind::config, {"positions", "3", "relative_bias"}},
      {R"({"decoder": {"layers": 1, "vocabulary": 4, "causal": true}, "width": 8, "heads": 3, "inner_width": 4})",
       ErrorKind::config,
       {"m/config.json: heads", "is 3"}},
      {"{}", ErrorKind::config, {"m/config.json: width", "is 0"}},
  };
  for (const Case& each : cases) {
    SCOPED_TRACE(each.text);
    std::string text = each.text;
    if (text == "{}") text = R"({"decoder": {"layers": 1}})";
    expect_parts(message_of([&] { config_from_json(text, "m/config.json"); }, each.kind), each.parts);
  }
}

TEST(NearestName, SlipsOnly) {
  const std::vector<std::string> names{"width", "heads", "key_heads", "inner_width"};
  EXPECT_EQ(nearest_name("widht", names), "width");
  EXPECT_EQ(nearest_name("head", names), "heads");
  EXPECT_EQ(nearest_name("keyheads", names), "key_heads");
  EXPECT_EQ(nearest_name("temperature", names), "");
  EXPECT_EQ(nearest_name(std::string(1000, 'x'), names), "");
  EXPECT_EQ(nearest_name("a", {}), "");
}

}  // namespace
}  // namespace attend
