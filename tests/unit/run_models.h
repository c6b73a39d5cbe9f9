// Small random models for the tests of the running room, and the plain uncached way to their distributions.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "attend/generate.h"
#include "attend/model.h"

namespace attend::testing {

inline constexpr std::int32_t pad = 0, unknown = 1, bos = 2, eos = 3;

struct NamedConfig {
  std::string name;
  TransformerConfig config;
};

inline TransformerConfig small_config() {
  TransformerConfig config;
  config.width = 16;
  config.heads = 4;
  config.inner_width = 24;
  config.max_positions = 96;
  return config;
}

inline NamedConfig encoder_decoder(std::int64_t vocabulary = 13) {
  TransformerConfig config = small_config();
  config.encoder = StackConfig{.layers = 2, .vocabulary = 11};
  config.decoder = StackConfig{.layers = 2, .vocabulary = vocabulary, .causal = true};
  return {"encoder-decoder", config};
}

inline NamedConfig grouped_encoder_decoder(std::int64_t vocabulary = 13) {
  NamedConfig named = encoder_decoder(vocabulary);
  named.name = "grouped encoder-decoder";
  named.config.key_heads = 2;
  named.config.norm_place = NormPlace::post;
  named.config.encoder->final_norm = named.config.decoder->final_norm = false;
  named.config.logits_bias = true;
  return named;
}

inline NamedConfig rotary_decoder(std::int64_t vocabulary = 13) {
  TransformerConfig config = small_config();
  config.decoder = StackConfig{.layers = 3, .vocabulary = vocabulary, .causal = true};
  config.key_heads = 2;
  config.norm = NormKind::rms;
  config.norm_bias = false;
  config.gated = true;
  config.activation = Activation::silu;
  config.positions = PositionKind::rotary;
  config.query_key_value_bias = config.attention_output_bias = config.feed_forward_bias = false;
  return {"rotary decoder", config};
}

inline NamedConfig learned_decoder(std::int64_t vocabulary = 13) {
  TransformerConfig config = small_config();
  config.decoder = StackConfig{.layers = 2, .vocabulary = vocabulary, .causal = true};
  config.positions = PositionKind::learned;
  config.tied_logits = true;
  config.initialisation = Initialisation::gpt;
  return {"learned decoder", config};
}

inline std::vector<NamedConfig> all_configs() {
  return {encoder_decoder(), grouped_encoder_decoder(), rotary_decoder(), learned_decoder()};
}

// Fresh weights are small and give flat distributions; all but gains are made larger, so that tokens matter.
inline Model lively_model(const TransformerConfig& config, std::uint64_t seed) {
  Model model(config, seed);
  for (Parameter& parameter : model.parameters()) {
    if (parameter.value.shape().axes() != 2) continue;
    const float factor = config.initialisation == Initialisation::gpt ? 12.0f : 2.0f;
    for (std::int64_t i = 0; i < parameter.value.elements(); ++i) parameter.value.data()[i] *= factor;
    parameter.changed();
  }
  return model;
}

// ln p(next | source, ids) for every token, by the whole sequence at once.
inline std::vector<double> next_log_probabilities(const Model& model, std::span<const std::int32_t> source,
                                                  std::span<const std::int32_t> ids) {
  TokenBatch sources, tokens;
  tokens.append(ids);
  States memory;
  if (!source.empty()) {
    sources.append(source);
    memory = model.encode(sources);
  }
  const States states = model.decode(tokens, source.empty() ? nullptr : &memory);
  const Tensor logits = model.logits(states.rows.row_range(states.rows.rows() - 1, 1));
  std::vector<double> result;
  double largest = -1e30, sum = 0;
  for (std::int64_t j = 0; j < logits.width(); ++j) largest = std::max(largest, static_cast<double>(logits.at(0, j)));
  for (std::int64_t j = 0; j < logits.width(); ++j) sum += std::exp(logits.at(0, j) - largest);
  for (std::int64_t j = 0; j < logits.width(); ++j) result.push_back(logits.at(0, j) - largest - std::log(sum));
  return result;
}

// Inputs of many lengths, always the same for the same seed.
inline std::vector<DecodeInput> some_inputs(const TransformerConfig& config, std::int64_t count,
                                            std::uint32_t seed = 1) {
  std::uint32_t state = seed * 2654435761u + 1;
  const auto draw = [&](std::int64_t bound) {
    state = state * 1664525u + 1013904223u;
    return static_cast<std::int32_t>((state >> 8) % static_cast<std::uint32_t>(bound));
  };
  std::vector<DecodeInput> inputs;
  for (std::int64_t i = 0; i < count; ++i) {
    DecodeInput input;
    input.prompt.push_back(bos);
    if (config.encoder) {
      const std::int32_t length = 1 + draw(9);
      for (std::int32_t t = 0; t < length; ++t) input.source.push_back(draw(config.encoder->vocabulary));
    } else {
      const std::int32_t length = draw(9);
      for (std::int32_t t = 0; t < length; ++t) input.prompt.push_back(draw(config.decoder->vocabulary));
    }
    inputs.push_back(std::move(input));
  }
  return inputs;
}

inline DecodeOptions usual_options(std::int64_t max_length = 20) {
  DecodeOptions options;
  options.max_length = max_length;
  options.end = {eos};
  options.forbidden = {pad, bos, unknown};
  return options;
}

inline std::vector<std::int32_t> joined(std::vector<std::int32_t> a, std::span<const std::int32_t> b) {
  a.insert(a.end(), b.begin(), b.end());
  return a;
}

}  // namespace attend::testing
