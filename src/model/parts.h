// The inside of a Model: its parameters, sorted by where the forward pass needs them. Handles only; the numbers are
// those of Model::parameters().
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "attend/model.h"

namespace attend {

struct NormParts {
  Tensor gain, bias;  // bias undefined for RMSNorm and where the config has none
};

struct LinearParts {
  Weight weight;
  Tensor bias;  // undefined where the config has none
};

struct AttentionParts {
  NormParts norm;
  LinearParts query_key_value;   // self-attention: rows stacked query, key, value
  LinearParts query, key_value;  // cross-attention
  LinearParts output;            // W_O
};

struct FeedForwardParts {
  NormParts norm;
  LinearParts inner, gate, output;  // gate only where the config is gated
};

struct BlockParts {
  AttentionParts self;
  std::optional<AttentionParts> cross;
  FeedForwardParts feed_forward;
};

struct StackParts {
  StackKind kind = StackKind::encoder;
  StackConfig config;
  Weight embedding;    // [vocabulary, width]; undefined for features
  LinearParts input;   // features
  Tensor class_token;  // [1, width]
  NormParts embedding_norm;
  Tensor positions;       // learned or sinusoidal [max_positions, width], else undefined
  Tensor relative_table;  // [buckets, heads]
  std::shared_ptr<const std::vector<std::int32_t>> relative_buckets;
  std::vector<BlockParts> blocks;
  NormParts final_norm;
};

struct Model::Parts {
  TransformerConfig config;
  std::vector<Parameter> parameters;
  std::optional<StackParts> encoder, decoder;
  Tensor rotation;            // rotary: see rotation_table
  std::vector<float> slopes;  // ALiBi
  LinearParts logits, classifier;
};

// Keys and values of the encoder's output for every decoder layer, [rows, key_heads * head_dim] without gaps.
struct CrossMemory {
  std::vector<Tensor> keys, values;
  std::vector<std::int64_t> offsets;
};

// Numbers of all parameters, counted before any is made. A double, because what a hostile config describes fits no
// integer.
double count_parameters(const TransformerConfig& config);

// Makes all parameters and fills the parts with handles to them. Without a seed nothing is drawn: zeros, gains 1.
void build_parts(Model::Parts& parts, std::optional<std::uint64_t> seed);

}  // namespace attend
