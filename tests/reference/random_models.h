// Small models of every family and wiring, for property tests.
#pragma once

#include <cmath>
#include <cstdint>
#include <ostream>
#include <string>
#include <vector>

#include "attend/model.h"
#include "core/random.h"

namespace attend::reference {

struct NamedConfig {
  std::string name;
  TransformerConfig config;
};

// What GoogleTest prints for a parameter.
inline void PrintTo(const NamedConfig& config, std::ostream* out) { *out << config.name; }

inline TransformerConfig small_config() {
  TransformerConfig config;
  config.width = 16;
  config.heads = 4;
  config.inner_width = 24;
  config.max_positions = 40;
  config.tied_logits = false;
  return config;
}

// One config for each kind of thing a config can say; together they take every branch of the forward pass.
inline std::vector<NamedConfig> all_families() {
  std::vector<NamedConfig> all;
  const auto add = [&](const std::string& name, auto change) {
    TransformerConfig config = small_config();
    change(config);
    all.push_back({name, config});
  };
  const auto encoder = [](TransformerConfig& config) { config.encoder = StackConfig{.layers = 2, .vocabulary = 19}; };
  const auto decoder = [](TransformerConfig& config) {
    config.decoder = StackConfig{.layers = 2, .vocabulary = 19, .causal = true};
  };
  add("original: post-norm, sinusoidal, shared table", [&](TransformerConfig& c) {
    encoder(c), decoder(c);
    c.norm_place = NormPlace::post;
    c.encoder->final_norm = c.decoder->final_norm = false;
    c.shared_embeddings = c.tied_logits = true;
    c.embedding_scale = std::sqrt(16.0);
  });
  add("marian: pre-norm, half sinusoids from 1, own vocabularies", [&](TransformerConfig& c) {
    encoder(c), decoder(c);
    c.decoder->vocabulary = 23;
    c.sinusoid_layout = SinusoidLayout::halves;
    c.first_position = 1;
    c.logits_bias = true;
  });
  add("t5: relative bias, RMSNorm, no biases, gated", [&](TransformerConfig& c) {
    encoder(c), decoder(c);
    c.positions = PositionKind::relative_bias;
    c.relative_buckets = 8;
    c.relative_max_distance = 12;
    c.norm = NormKind::rms;
    c.norm_bias = false;
    c.query_key_value_bias = c.attention_output_bias = c.feed_forward_bias = false;
    c.gated = true;
    c.activation = Activation::gelu_tanh;
    c.attention_scale = 1;
  });
  add("gpt: learned positions, tanh GELU, tied", [&](TransformerConfig& c) {
    decoder(c);
    c.positions = PositionKind::learned;
    c.activation = Activation::gelu_tanh;
    c.tied_logits = true;
    c.initialisation = Initialisation::gpt;
  });
  add("llama: rotary pairs, RMSNorm, SwiGLU, grouped keys", [&](TransformerConfig& c) {
    decoder(c);
    c.positions = PositionKind::rotary;
    c.rotary_pairing = Pairing::interleaved;
    c.norm = NormKind::rms;
    c.norm_bias = false;
    c.gated = true;
    c.activation = Activation::silu;
    c.key_heads = 2;
    c.query_key_value_bias = c.attention_output_bias = c.feed_forward_bias = false;
  });
  add("roformer: encoder, rotary halves, part of a head, window", [&](TransformerConfig& c) {
    encoder(c);
    c.positions = PositionKind::rotary;
    c.head_dim = 6;
    c.rotary_dim = 4;
    c.window = 3;
    c.activation = Activation::gelu;
  });
  add("bert: encoder, post-norm, embedding norm, learned", [&](TransformerConfig& c) {
    encoder(c);
    c.norm_place = NormPlace::post;
    c.encoder->final_norm = false;
    c.encoder->embedding_norm = true;
    c.positions = PositionKind::learned;
    c.activation = Activation::gelu;
    c.tied_logits = c.logits_bias = true;
  });
  add("alibi: six heads, soft cap, norm without bias", [&](TransformerConfig& c) {
    decoder(c);
    c.width = 24;
    c.heads = 6;
    c.positions = PositionKind::alibi;
    c.score_cap = 2;
    c.norm_bias = false;
  });
  add("no positions, window, one key head", [&](TransformerConfig& c) {
    decoder(c);
    c.positions = PositionKind::none;
    c.key_heads = 1;
    c.window = 4;
  });
  return all;
}

// Values away from their initial zeros and ones, so that every parameter matters.
inline void randomise(Model& model, std::uint64_t seed) {
  Random random(seed);
  for (Parameter& parameter : model.parameters()) {
    float* data = parameter.value.data();
    for (std::int64_t i = 0; i < parameter.value.elements(); ++i) data[i] += static_cast<float>(0.3 * random.normal());
    parameter.changed();
  }
}

inline TokenBatch random_tokens(const std::vector<std::int64_t>& lengths, std::int64_t vocabulary, std::uint64_t seed) {
  Random random(seed);
  TokenBatch batch;
  for (const std::int64_t length : lengths) {
    std::vector<std::int32_t> ids;
    for (std::int64_t i = 0; i < length; ++i)
      ids.push_back(static_cast<std::int32_t>(random.below(static_cast<std::uint64_t>(vocabulary))));
    batch.append(ids);
  }
  return batch;
}

}  // namespace attend::reference
