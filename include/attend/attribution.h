// The measures that users of other tools look for: gradient x input, integrated gradients, attention rollout and value
// zeroing. What an edge or a head is worth for a target is in importance.h.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "attend/importance.h"

namespace attend {

// One number for every row of the encoder (class token included) and of the decoder; empty for a stack that is not there.
struct TokenScores {
  std::vector<double> source, ids;

  double sum() const;
};

// ---- Gradients at the embeddings (sites encoder.embedded and decoder.embedded) ----------------------------------------

struct InputGradients {
  double target = 0;
  TokenScores product;  // gradient . embedding of each row (Shrikumar et al. 2017)
  TokenScores norm;     // |gradient|
};
InputGradients input_gradients(const Model& model, const ModelInput& input, const Target& target);

struct IntegratedGradientsOptions {
  std::int64_t steps = 32;  // points of the path, by Gauss-Legendre quadrature; 1..1024
  // The baseline reads this token (pad or unknown are usual) instead of every one, at the same positions. -1: the
  // embedding is 0, which norms make much of: look at the completeness error. Features: the baseline's are 0.
  std::int32_t baseline_token = -1;
  std::vector<std::int32_t> kept;  // tokens that the baseline has, too: bos, eos, tags
  // The whole baseline instead, with as many tokens as the input: for stacks whose vocabularies are not the same.
  std::optional<ModelInput> baseline;
};
struct IntegratedGradients {
  TokenScores scores;
  double target = 0, baseline = 0;  // at the input and at the baseline
  // sum of scores - (target - baseline): 0 for the integral itself, so it tells whether the steps are enough.
  double completeness_error = 0;
};
// (x - x') . integral over a of gradient at x' + a (x - x'), for each row (Sundararajan, Taly and Yan 2017, equation 1).
IntegratedGradients integrated_gradients(const Model& model, const ModelInput& input, const Target& target,
                                         const IntegratedGradientsOptions& options = {});

// ---- Flow of tokens through attention weights ---------------------------------------------------------------------------

struct Rollout {
  Tensor encoder;  // [source rows, source rows]; undefined without encoder
  Tensor decoder;  // [ids, ids]; undefined without decoder
  Tensor cross;    // [ids, source rows]; of encoder-decoders
};
// Attention rollout (Abnar and Zuidema 2020): products over the layers of r I + (1 - r) A, A the mean of the heads'
// weights and r the share of the residual stream. In an encoder-decoder each cross-attention C does the same with the
// encoder's rollout E: decoder <- r decoder, cross <- r cross + (1 - r) C E, so a row of decoder and cross together sums
// to 1. Error(argument) unless 0 <= residual <= 1.
Rollout attention_rollout(const Model& model, const ModelInput& input, double residual = 0.5);

// The rollout after every block, first to last; of decoder and cross after the block's cross-attention.
struct RolloutLayers {
  std::vector<Tensor> encoder, decoder, cross;
};
RolloutLayers rollout_by_layer(const Model& model, const ModelInput& input, double residual = 0.5);

// ---- Value zeroing ------------------------------------------------------------------------------------------------------

struct ZeroedValues {
  HeadPlace attention;  // head -1
  Tensor scores;        // [queries, keys], rows sum to 1; a row that nothing changes is 0
};
// Value zeroing (Mohebbi et al. 2023): how far, by cosine distance, the output of the block moves at each query when a
// key's value vector is 0 in all heads of this attention. `attentions` empty: every one of the model.
std::vector<ZeroedValues> value_zeroing(const Model& model, const ModelInput& input,
                                        std::vector<HeadPlace> attentions = {});

}  // namespace attend
