#include <nlohmann/json.hpp>
#include <optional>

#include "attend/config.h"
#include "attend/error.h"
#include "attend/names.h"
#include "model/json_fields.h"

namespace attend {
namespace {

// The structured bindings name every member: a member added to the struct does not compile until it is in the table.
std::vector<Field> fields_of(StackConfig& stack) {
  auto& [layers, vocabulary, input_width, causal, class_token, embedding_norm, final_norm] = stack;
  return {
      {"layers", &layers, "number of blocks"},
      {"vocabulary", &vocabulary, "tokens this stack embeds; 0 when it reads features"},
      {"input_width", &input_width, "numbers per row of features; 0 when it reads tokens"},
      {"causal", &causal, "whether a position sees only itself and earlier ones"},
      {"class_token", &class_token, "whether a learned row is put before every item"},
      {"embedding_norm", &embedding_norm, "whether a norm follows the embedding"},
      {"final_norm", &final_norm, "whether a norm follows the last block"},
  };
}

Group stack_group(std::optional<StackConfig>& stack) {
  return {[&stack] { return stack.has_value(); }, [&stack] { stack.emplace(); },
          [&stack] { return fields_of(*stack); }};
}

std::vector<Field> fields_of(TransformerConfig& config) {
  auto& [encoder, decoder, width, heads, key_heads, head_dim, inner_width, norm, norm_place, norm_epsilon, norm_bias,
         activation, gated, query_key_value_bias, attention_output_bias, feed_forward_bias, logits_bias, positions,
         max_positions, first_position, sinusoid_layout, position_base, rotary_pairing, rotary_dim, relative_buckets,
         relative_max_distance, window, embedding_scale, attention_scale, score_cap, shared_embeddings, tied_logits,
         classes, pooling, dropout, attention_dropout, inner_dropout, initialisation] = config;
  const auto pairing = [](Pairing each) { return std::pair(each, name_of(each)); };
  const auto named = [](Activation each) { return std::pair(each, name_of(each)); };
  return {
      {"encoder", stack_group(encoder), "the encoder; absent in a decoder-only model"},
      {"decoder", stack_group(decoder), "the decoder; absent in an encoder-only model"},
      {"width", &width, "numbers per row of the residual stream"},
      {"heads", &heads, "query heads"},
      {"key_heads", &key_heads, "key and value heads; 0: as many as query heads"},
      {"head_dim", &head_dim, "width of a head; 0: width / heads"},
      {"inner_width", &inner_width, "width inside the feed-forward layer"},
      {"norm", choice(norm, {{NormKind::layer, "layer"}, {NormKind::rms, "rms"}}), "kind of norm"},
      {"norm_place", choice(norm_place, {{NormPlace::pre, "pre"}, {NormPlace::post, "post"}}),
       "norm before a sublayer or after its addition"},
      {"norm_epsilon", &norm_epsilon, "added to the variance"},
      {"norm_bias", &norm_bias, "whether norms have a bias beside the gain"},
      {"activation",
       choice(activation, {named(Activation::none), named(Activation::relu), named(Activation::gelu),
                           named(Activation::gelu_tanh), named(Activation::silu)}),
       "nonlinearity of the feed-forward layer"},
      {"gated", &gated, "whether the feed-forward layer is activation(gate) * inner"},
      {"query_key_value_bias", &query_key_value_bias, "whether query, key and value products have a bias"},
      {"attention_output_bias", &attention_output_bias, "whether the product after the heads has a bias"},
      {"feed_forward_bias", &feed_forward_bias, "whether the feed-forward products have a bias"},
      {"logits_bias", &logits_bias, "whether the product that gives the logits has a bias"},
      {"positions",
       choice(positions, {{PositionKind::none, "none"},
                          {PositionKind::sinusoidal, "sinusoidal"},
                          {PositionKind::learned, "learned"},
                          {PositionKind::rotary, "rotary"},
                          {PositionKind::relative_bias, "relative_bias"},
                          {PositionKind::alibi, "alibi"}}),
       "how the model knows where a token stands"},
      {"max_positions", &max_positions, "longest item, class token included"},
      {"first_position", &first_position, "position of the first token"},
      {"sinusoid_layout",
       choice(sinusoid_layout, {{SinusoidLayout::interleaved, "interleaved"}, {SinusoidLayout::halves, "halves"}}),
       "order of sines and cosines"},
      {"position_base", &position_base, "base of sinusoids and rotary angles"},
      {"rotary_pairing", choice(rotary_pairing, {pairing(Pairing::interleaved), pairing(Pairing::halves)}),
       "which elements of a head turn together"},
      {"rotary_dim", &rotary_dim, "elements of a head that turn; 0: all"},
      {"relative_buckets", &relative_buckets, "distances with a bias of their own"},
      {"relative_max_distance", &relative_max_distance, "distances from here on share the last bucket"},
      {"window", &window, "keys that self-attention sees, its own included; 0: all"},
      {"embedding_scale", &embedding_scale, "factor of token embeddings"},
      {"attention_scale", &attention_scale, "factor of scores; 0: 1 / sqrt(head_dim)"},
      {"score_cap", &score_cap, "soft cap of scores; 0: none"},
      {"shared_embeddings", &shared_embeddings, "whether encoder and decoder use one table"},
      {"tied_logits", &tied_logits, "whether the last product uses the embedding table"},
      {"classes", &classes, "classes of a classifier on the encoder; 0: none"},
      {"pooling",
       choice(pooling, {{Pooling::none, "none"}, {Pooling::class_token, "class_token"}, {Pooling::mean, "mean"}}),
       "what the classifier reads"},
      {"dropout", &dropout, "probability, of embeddings and of every sublayer's output"},
      {"attention_dropout", &attention_dropout, "probability, of attention weights"},
      {"inner_dropout", &inner_dropout, "probability, inside the feed-forward layer"},
      {"initialisation", choice(initialisation, {{Initialisation::xavier, "xavier"}, {Initialisation::gpt, "gpt"}}),
       "how fresh weights are drawn"},
  };
}

// The model_type ("" if none) of a config.json as Hugging Face's transformers writes it.
std::optional<std::string> hugging_face_type(const std::string& text) {
  const auto json = nlohmann::json::parse(text, nullptr, false);
  if (!json.is_object()) return std::nullopt;
  const auto type = json.find("model_type"), classes = json.find("architectures");
  if (type != json.end() && type->is_string()) return shortened(type->get<std::string>(), 60);
  return classes != json.end() && classes->is_array() ? std::optional<std::string>("") : std::nullopt;
}

}  // namespace

std::string to_json(const TransformerConfig& config) {
  TransformerConfig copy = config;  // the table binds to members that could be written
  return write_fields(fields_of(copy));
}

TransformerConfig config_from_json(const std::string& text, const std::string& source) {
  TransformerConfig config;
  try {
    read_fields(text, source, fields_of(config));
  } catch (const Error& error) {
    // Its keys are all unknown; a list of ours would help nobody.
    const auto type = error.kind() == ErrorKind::config ? hugging_face_type(text) : std::nullopt;
    if (!type) throw;
    throw Error(ErrorKind::config, source,
                join("is a Hugging Face config", type->empty() ? "" : join(" (model_type ", *type, ")"),
                     ", and such folders are not read as they are"),
                "weights of another program are brought in through a table of their names: import_model of "
                "attend/checkpoint.h");
  }
  try {
    config.check();
  } catch (const Error& error) {
    // check() does not know which file it looks at.
    const std::string prefix = "config.";
    const bool field = error.where().starts_with(prefix);
    throw Error(error.kind(), field ? source + ": " + error.where().substr(prefix.size()) : source,
                error.what_happened(), error.advice());
  }
  return config;
}

}  // namespace attend
