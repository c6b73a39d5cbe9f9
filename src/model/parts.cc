#include "model/parts.h"

#include <cmath>
#include <string>
#include <utility>

#include "core/random.h"
#include "model/positions.h"

namespace attend {
namespace {

class Builder {
 public:
  Builder(Model::Parts& parts, std::optional<std::uint64_t> seed) : parts_(parts), config_(parts.config), seed_(seed) {}

  void build() {
    if (config_.positions == PositionKind::rotary)
      parts_.rotation = rotation_table(config_.max_positions, config_.rotary_width(), config_.position_base);
    if (config_.positions == PositionKind::alibi) parts_.slopes = alibi_slopes(config_.heads);
    if (config_.encoder) parts_.encoder = stack(StackKind::encoder, *config_.encoder);
    if (config_.decoder) parts_.decoder = stack(StackKind::decoder, *config_.decoder);

    if (config_.output_vocabulary() > 0) {
      const StackParts& last = parts_.decoder ? *parts_.decoder : *parts_.encoder;
      parts_.logits.weight =
          config_.tied_logits ? last.embedding : matrix("logits.weight", config_.output_vocabulary(), config_.width);
      if (config_.logits_bias) parts_.logits.bias = vector("logits.bias", config_.output_vocabulary(), 0);
    }
    if (config_.classes > 0) parts_.classifier = linear("classifier", config_.classes, config_.width, true);
  }

 private:
  // ---- Single parameters ----------------------------------------------------------------------------------------
  // Every parameter draws from a stream of its own, so adding one does not change the others.
  Tensor fresh(const std::string& name, Shape shape, bool decays) {
    Tensor value = Tensor::zeros(shape);
    parts_.parameters.push_back({name, value, {}, decays});
    return value;
  }
  Random stream() const { return Random(*seed_ * 0x9E3779B97F4A7C15u + parts_.parameters.size()); }

  Tensor vector(const std::string& name, std::int64_t size, float filling) {
    Tensor value = fresh(name, {size}, false);
    for (std::int64_t i = 0; i < size; ++i) value.data()[i] = filling;
    return value;
  }
  Tensor normal(const std::string& name, Shape shape, double deviation, bool decays) {
    Tensor value = fresh(name, shape, decays);
    if (!seed_) return value;
    Random random = stream();
    for (std::int64_t i = 0; i < value.elements(); ++i)
      value.data()[i] = static_cast<float>(random.normal() * deviation);
    return value;
  }

  // `blocks` are the heights of matrices stacked in one: each is drawn with the bound of its own size, so a fused
  // query-key-value matrix starts exactly as three matrices would.
  Weight matrix(const std::string& name, std::int64_t outputs, std::int64_t inputs, bool writes_residual = false,
                std::vector<std::int64_t> blocks = {}) {
    if (blocks.empty()) blocks.push_back(outputs);
    Tensor value = fresh(name, {outputs, inputs}, true);
    if (!seed_) blocks.clear();
    Random random = seed_ ? stream() : Random(0);
    float* out = value.data();
    for (const std::int64_t rows : blocks) {
      const double bound = std::sqrt(6.0 / static_cast<double>(inputs + rows));
      double deviation = 0.02;
      if (writes_residual) deviation /= std::sqrt(2.0 * static_cast<double>(layers()));
      for (std::int64_t i = 0; i < rows * inputs; ++i)
        *out++ =
            static_cast<float>(config_.initialisation == Initialisation::xavier ? (2 * random.uniform() - 1) * bound
                                                                                : random.normal() * deviation);
    }
    parts_.parameters.back().weight = Weight(value);
    return parts_.parameters.back().weight;
  }

  // ---- Groups -----------------------------------------------------------------------------------------------------
  std::int64_t layers() const { return config_.decoder ? config_.decoder->layers : config_.encoder->layers; }

  LinearParts linear(const std::string& name, std::int64_t outputs, std::int64_t inputs, bool bias,
                     bool writes_residual = false, const std::vector<std::int64_t>& blocks = {}) {
    LinearParts result;
    result.weight = matrix(name + ".weight", outputs, inputs, writes_residual, blocks);
    if (bias) result.bias = vector(name + ".bias", outputs, 0);
    return result;
  }

  NormParts norm(const std::string& name) {
    NormParts result;
    result.gain = vector(name + ".gain", config_.width, 1);
    if (config_.norm == NormKind::layer && config_.norm_bias) result.bias = vector(name + ".bias", config_.width, 0);
    return result;
  }

  AttentionParts attention(const std::string& name, bool cross) {
    const std::int64_t query = config_.heads * config_.head_width(),
                       key = config_.key_head_count() * config_.head_width();
    const bool bias = config_.query_key_value_bias;
    AttentionParts result;
    result.norm = norm(name + ".norm");
    if (cross) {
      result.query = linear(name + ".query", query, config_.width, bias);
      result.key_value = linear(name + ".key_value", 2 * key, config_.width, bias, false, {key, key});
    } else {
      result.query_key_value =
          linear(name + ".query_key_value", query + 2 * key, config_.width, bias, false, {query, key, key});
    }
    result.output = linear(name + ".output", config_.width, query, config_.attention_output_bias, true);
    return result;
  }

  FeedForwardParts feed_forward(const std::string& name) {
    const bool bias = config_.feed_forward_bias;
    FeedForwardParts result;
    result.norm = norm(name + ".norm");
    result.inner = linear(name + ".inner", config_.inner_width, config_.width, bias);
    if (config_.gated) result.gate = linear(name + ".gate", config_.inner_width, config_.width, bias);
    result.output = linear(name + ".output", config_.width, config_.inner_width, bias, true);
    return result;
  }

  Weight embedding(const std::string& name, std::int64_t vocabulary) {
    const double deviation =
        config_.initialisation == Initialisation::xavier ? 1 / std::sqrt(static_cast<double>(config_.width)) : 0.02;
    Tensor value = normal(name, {vocabulary, config_.width}, deviation, true);
    parts_.parameters.back().weight = Weight(value);
    return parts_.parameters.back().weight;
  }

  StackParts stack(StackKind kind, const StackConfig& config) {
    const std::string name = kind == StackKind::encoder ? "encoder" : "decoder";
    StackParts result;
    result.kind = kind;
    result.config = config;
    if (config.vocabulary > 0) {
      if (config_.shared_embeddings && kind == StackKind::decoder && parts_.encoder)
        result.embedding = parts_.encoder->embedding;
      else
        result.embedding =
            embedding(config_.shared_embeddings ? "embedding.weight" : name + ".embedding.weight", config.vocabulary);
    } else {
      result.input = linear(name + ".input", config_.width, config.input_width, true);
    }
    if (config.class_token) result.class_token = normal(name + ".class_token", {1, config_.width}, 0.02, false);
    if (config_.positions == PositionKind::learned)
      result.positions = normal(name + ".position.weight", {config_.max_positions, config_.width}, 0.02, true);
    if (config_.positions == PositionKind::sinusoidal) result.positions = sinusoid_table(config_);
    if (config.embedding_norm) result.embedding_norm = norm(name + ".embedding_norm");
    if (config_.positions == PositionKind::relative_bias) {
      result.relative_table = normal(name + ".relative_bias", {config_.relative_buckets, config_.heads}, 0.02, false);
      result.relative_buckets = relative_buckets(config_.max_positions, config_.relative_buckets,
                                                 config_.relative_max_distance, !config.causal);
    }
    for (std::int64_t layer = 0; layer < config.layers; ++layer) {
      const std::string block = join(name, ".", layer);
      BlockParts parts;
      parts.self = attention(block + ".self", false);
      if (kind == StackKind::decoder && config_.encoder) parts.cross = attention(block + ".cross", true);
      parts.feed_forward = feed_forward(block + ".feed_forward");
      result.blocks.push_back(std::move(parts));
    }
    if (config.final_norm) result.final_norm = norm(name + ".norm");
    return result;
  }

  Model::Parts& parts_;
  const TransformerConfig& config_;
  const std::optional<std::uint64_t> seed_;  // none: draw nothing
};

}  // namespace

void build_parts(Model::Parts& parts, std::optional<std::uint64_t> seed) { Builder(parts, seed).build(); }

}  // namespace attend
