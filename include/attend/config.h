// TransformerConfig: everything that tells one Transformer from another. BERT, GPT, T5, the original Transformer,
// RoFormer, Llama, Marian and ViT are values of it. Saved as config.json beside the weights; every key of that file is
// the field's name here.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "attend/activation.h"

namespace attend {

enum class NormKind { layer, rms };
enum class NormPlace {
  pre,   // x + f(norm(x)), with a norm at the end of the stack (Xiong et al. 2020)
  post,  // norm(x + f(x)) (Vaswani et al. 2017)
};
enum class PositionKind {
  none,
  sinusoidal,     // fixed table added to the embedding (Vaswani et al. 2017, section 3.5)
  learned,        // trained table added to the embedding
  rotary,         // queries and keys turned by their position (Su et al. 2021)
  relative_bias,  // one learned number per head and bucketed distance (Raffel et al. 2020), shared by the layers
  alibi,          // score minus slope times distance (Press et al. 2022)
};
enum class SinusoidLayout {
  interleaved,  // sin, cos, sin, cos, ...: element 2i is sin(p / base^(2i/width))
  halves,       // all sines, then all cosines: element i is sin(p * base^(-i / (width/2 - 1))), as in tensor2tensor
};
enum class Pooling { none, class_token, mean };  // what the classifier reads
enum class Initialisation {
  xavier,  // uniform, bound sqrt(6 / (inputs + outputs)); embeddings normal with deviation width^-0.5
  gpt,     // normal 0.02; weights that write into the residual divided by sqrt(2 layers) (Radford et al. 2019)
};

struct StackConfig {
  std::int64_t layers = 0;
  std::int64_t vocabulary = 0;   // tokens this stack embeds; 0 when it reads features
  std::int64_t input_width = 0;  // features: numbers per row (an image patch, say); 0 when it reads tokens
  bool causal = false;           // default mask of self-attention; decoders are causal
  bool class_token = false;      // a learned row put before every item
  bool embedding_norm = false;   // a norm after the embedding, as BERT
  bool final_norm = true;        // a norm after the last block
  bool operator==(const StackConfig&) const = default;
};

struct TransformerConfig {
  std::optional<StackConfig> encoder;
  std::optional<StackConfig> decoder;  // reads the encoder's output by cross-attention if there is an encoder

  std::int64_t width = 0;        // of the residual stream
  std::int64_t heads = 0;        // query heads
  std::int64_t key_heads = 0;    // 0: as heads. Fewer: grouped-query attention (Ainslie et al. 2023)
  std::int64_t head_dim = 0;     // 0: width / heads
  std::int64_t inner_width = 0;  // of the feed-forward layer

  NormKind norm = NormKind::layer;
  NormPlace norm_place = NormPlace::pre;
  double norm_epsilon = 1e-5;
  bool norm_bias = true;

  Activation activation = Activation::relu;
  bool gated = false;  // activation(gate) * inner (Shazeer 2020)

  bool query_key_value_bias = true;
  bool attention_output_bias = true;
  bool feed_forward_bias = true;
  bool logits_bias = false;

  PositionKind positions = PositionKind::sinusoidal;
  std::int64_t max_positions = 512;  // the longest item, class token included
  std::int64_t first_position = 0;   // position of the first token
  SinusoidLayout sinusoid_layout = SinusoidLayout::interleaved;
  double position_base = 10000;  // of sinusoids and rotary angles
  Pairing rotary_pairing = Pairing::halves;
  std::int64_t rotary_dim = 0;  // elements of a head that turn; 0: all
  std::int64_t relative_buckets = 32;
  std::int64_t relative_max_distance = 128;
  std::int64_t window = 0;  // self-attention sees this many keys, its own included; 0: all

  double embedding_scale = 1;      // token embeddings are multiplied by it; often sqrt(width)
  double attention_scale = 0;      // 0: 1 / sqrt(head_dim)
  double score_cap = 0;            // soft cap of scores; 0: none
  bool shared_embeddings = false;  // encoder and decoder use one table
  bool tied_logits = false;        // the last product uses the embedding table

  std::int64_t classes = 0;  // > 0: a classifier on the encoder
  Pooling pooling = Pooling::none;

  double dropout = 0;            // of embeddings and of every sublayer's output
  double attention_dropout = 0;  // of attention weights
  double inner_dropout = 0;      // inside the feed-forward layer
  Initialisation initialisation = Initialisation::xavier;

  bool operator==(const TransformerConfig&) const = default;

  std::int64_t key_head_count() const { return key_heads ? key_heads : heads; }
  std::int64_t head_width() const { return head_dim ? head_dim : (heads ? width / heads : 0); }
  std::int64_t rotary_width() const { return rotary_dim ? rotary_dim : head_width(); }
  // The vocabulary of the logits: the decoder's, or the encoder's where there is no decoder.
  std::int64_t output_vocabulary() const { return decoder ? decoder->vocabulary : encoder ? encoder->vocabulary : 0; }

  // Throws Error(config) naming the first field that contradicts another, what it holds and what it must hold.
  void check() const;
};

// The JSON text of config.json, and back. Unknown keys are refused with the nearest known name, wrong types and values
// with what is allowed; `source` (a file name) leads the message. The result is checked.
std::string to_json(const TransformerConfig& config);
TransformerConfig config_from_json(const std::string& text, const std::string& source);

}  // namespace attend
