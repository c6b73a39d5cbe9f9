// Model: parameters and the forward pass of any TransformerConfig. A Model does not change during a run and may be
// shared by threads; what changes (caches, positions, random state) lives outside.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "attend/config.h"
#include "attend/ops.h"
#include "attend/probe.h"
#include "attend/tensor.h"

namespace attend {

// Token sequences of a batch one after the other, without padding: item i is ids[offsets[i]] .. ids[offsets[i+1] - 1].
struct TokenBatch {
  std::vector<std::int32_t> ids;
  std::vector<std::int64_t> offsets{0};

  std::int64_t items() const { return static_cast<std::int64_t>(offsets.size()) - 1; }
  std::int64_t rows() const { return offsets.back(); }
  std::int64_t length(std::int64_t item) const {
    return offsets[static_cast<std::size_t>(item) + 1] - offsets[static_cast<std::size_t>(item)];
  }
  void append(std::span<const std::int32_t> item) {
    ids.insert(ids.end(), item.begin(), item.end());
    offsets.push_back(static_cast<std::int64_t>(ids.size()));
  }
};

// States of a stack: [rows, width] and where each item begins. With a class token, row offsets[i] is item i's.
struct States {
  Tensor rows;
  std::vector<std::int64_t> offsets{0};

  std::int64_t items() const { return static_cast<std::int64_t>(offsets.size()) - 1; }
};

struct Parameter {
  std::string name;  // "decoder.3.cross.query.weight"
  Tensor value;
  Weight weight;        // defined for matrices used in products; shares value
  bool decays = false;  // matrices of products and embeddings: subject to weight decay

  // To be called after the value was written.
  void changed() {
    if (weight.defined()) weight.changed();
  }
};

struct RunOptions {
  Probe* probe = nullptr;
  // What the probe knows each item of the batch by, one an item (an input may come in another batch at every step);
  // empty: 0, 1, ...
  std::span<const std::int64_t> item_numbers = {};
  bool dropout = false;            // as in training; with the config's probabilities
  std::uint64_t dropout_seed = 0;  // a new one for every step
  const Mask* self_mask =
      nullptr;  // instead of the stack's default self-attention mask; spans must outlive the call and backward
};

// A part of a stack, for runs that go on from states kept of another run (encode_from and its like).
struct StackRange {
  int first_layer = 0;           // the block that reads the given rows
  Part first_part = Part::self;  // its first part; cross or feed_forward: what stands before is left out
  int end_layer = -1;            // up to this block, without the final norm; -1: to the end, final norm included
  // The first block for these rows of one sequence only, each an item of its own that sees the whole sequence: edits
  // can tell them apart, and keys and values are computed once. Needs end_layer = first_layer + 1.
  std::span<const std::int64_t> queries = {};
  std::int64_t last_rows = 0;  // > 0: the stack's last block only for so many last rows of each item
  // Where most rows are those of another run: its queries, keys and values in the first block (first_part cross: queries
  // alone), side by side, before rotation [rows, (heads + 2 * key_heads) * head_dim]. Only the `changed` rows are projected,
  // into this tensor. Not with a probe.
  Tensor projected = {};
  std::span<const std::int64_t> changed = {};
};

class Model;
struct CrossMemory;

// Keys and values of one sequence being decoded: pages for self-attention, and the encoder's keys and values computed
// once and shared by every fork. Copying is cheap (pages are shared until written) and makes an independent sequence.
class KvCache {
 public:
  static constexpr std::int64_t page_rows = 64;

  explicit KvCache(const Model& model);
  // For an encoder-decoder. `item` selects one item of the memory that share_memory() prepared.
  KvCache(const Model& model, std::shared_ptr<const CrossMemory> memory, std::int64_t item);

  std::int64_t length() const { return length_; }  // tokens seen
  void truncate(std::int64_t length);              // forgets the tokens from `length` on
  std::int64_t bytes() const;                      // of the self-attention pages this sequence points to

 private:
  friend struct KvAccess;
  struct Page;
  struct Layer {
    std::vector<std::shared_ptr<Page>> pages;
  };
  std::vector<Layer> layers_;
  std::shared_ptr<const CrossMemory> memory_;
  std::int64_t item_ = 0;
  std::int64_t length_ = 0;
  std::int64_t row_floats_ = 0;  // key_heads * head_dim
};

class Model {
 public:
  // Fresh parameters, initialised from the seed. Throws Error(config) if the config contradicts itself.
  Model(TransformerConfig config, std::uint64_t seed);
  // Parameters that are zero (gains 1), to be filled from a file: drawing fresh ones takes longer than reading them.
  explicit Model(TransformerConfig config);
  ~Model();
  Model(Model&&) noexcept;
  Model& operator=(Model&&) noexcept;

  const TransformerConfig& config() const;
  std::vector<Parameter>& parameters();
  const std::vector<Parameter>& parameters() const;
  Parameter& parameter(const std::string& name);  // throws Error(argument) with the nearest name
  std::int64_t parameter_count() const;           // tied tables count once
  // All sites a forward pass of this model visits.
  std::vector<Site> sites() const;

  // What attention() does in this part (self or cross) of any layer of a stack: heads, scale, score rules and the default
  // mask; without items, edits and dropout. With queries and keys read from a run, its weights can be computed again.
  AttentionInput attention_rules(StackKind stack, Part part) const;

  // Encoder over tokens, or over feature rows [rows, input_width] with item offsets.
  // Throws Error(argument) for ids outside the vocabulary and for items longer than max_positions or empty.
  States encode(const TokenBatch& tokens, const RunOptions& options = {}) const;
  States encode_features(const Tensor& features, std::span<const std::int64_t> offsets,
                         const RunOptions& options = {}) const;

  // Decoder over whole sequences at once, as in training: position i sees positions 0..i (and all of its item's memory).
  // memory must be given exactly if there is an encoder. Result: after the final norm.
  States decode(const TokenBatch& tokens, const States* memory, const RunOptions& options = {}) const;

  // Decoder over new tokens only, item i going on after caches[i], which grow. Same result as decode() on the whole, to rounding.
  States decode_cached(const TokenBatch& tokens, std::span<KvCache* const> caches,
                       const RunOptions& options = {}) const;

  // The same from rows [rows, width] of another run on: what block `first_layer` reads (site "input"), or what stood
  // before its part `first_part` (site "added" of the part before). Only the sites of the range are visited.
  // Error(argument) for a layer, part or row that does not exist. A range without cross-attention needs no memory.
  States encode_from(const States& rows, const StackRange& range, const RunOptions& options = {}) const;
  States decode_from(const States& rows, const States* memory, const StackRange& range,
                     const RunOptions& options = {}) const;
  // The rows go on after the caches, which lend their keys and values but do not grow: what is written after their
  // length belongs to this call, so give forks.
  States decode_cached_from(const States& rows, std::span<KvCache* const> caches, const StackRange& range,
                            const RunOptions& options = {}) const;

  // The encoder's keys and values for every decoder layer, computed once for all items. Here a probe meets the sites
  // decoder.N.cross.key and .value, which decode_cached() does not visit again.
  std::shared_ptr<const CrossMemory> share_memory(const States& memory, const RunOptions& options = {}) const;

  // [rows, vocabulary] from states after the final norm. Of rows alone a probe is told that they are one item; with their
  // offsets, and after a cache the position of each item's first row, it is told whose they are.
  Tensor logits(const Tensor& states, const RunOptions& options = {}) const;
  Tensor logits(const States& states, const RunOptions& options = {},
                std::span<const std::int64_t> first_positions = {}) const;
  // Loss of the same logits against labels, never holding them all (see ops.h linear_cross_entropy).
  LossResult loss(const Tensor& states, std::span<const std::int32_t> labels, float smoothing = 0,
                  float factor = 1) const;
  // [items, classes] of the classifier.
  Tensor classify(const States& encoded, const RunOptions& options = {}) const;

  struct Parts;  // the library's own affair

 private:
  std::unique_ptr<Parts> parts_;
  friend class KvCache;
};

// The table that sinusoidal positions add: row p holds the vector of position first_position + p (Vaswani et al. 2017,
// section 3.5), [max_positions, width]. Reads these two, sinusoid_layout and position_base of the config.
Tensor sinusoid_table(const TransformerConfig& config);

// Numbers of the parameters that a model of this config has, counted without making it. Error(config) as check().
std::int64_t parameter_count(const TransformerConfig& config);

// Bytes a training step of this shape needs at its peak beyond parameters, gradients and optimiser state; an estimate
// from the shapes, made before anything runs. rows: tokens in the encoder and decoder batch.
std::int64_t training_memory(const TransformerConfig& config, std::int64_t encoder_rows, std::int64_t decoder_rows);

}  // namespace attend
