// The forward pass of one stack: whole sequences at once, or new tokens against caches.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "attend/model.h"
#include "model/parts.h"

namespace attend {

// What stays the same while one batch passes through one stack.
struct StackRun {
  const Model::Parts& parts;
  const StackParts& stack;
  const RunOptions& options;
  std::vector<std::int64_t> offsets;               // first row of each item, and the end
  std::vector<std::int32_t> positions;             // of every row, from 0 for the first token of its item
  const States* memory = nullptr;                  // cross-attention over these rows,
  std::span<KvCache* const> caches;                // or, when decoding, over the caches' shared memory
  std::uint64_t dropouts = 0;                      // drawn so far; each place and step has a seed of its own
  std::vector<std::int64_t> first_positions = {};  // of each item's first row, when decoding after caches
  StackRange range = {};                           // which part of the stack is run
  bool embeds = true;                              // the rows come from an embedding, not from another run

  int end_layer() const { return range.end_layer < 0 ? static_cast<int>(stack.blocks.size()) : range.end_layer; }
};

// [rows, width] after embedding -> after the final norm, visiting every site; or from where to where the range says.
// The offsets are those of the result afterwards: fewer rows where the range asks for few.
Tensor run_stack(StackRun& run, Tensor x);

// Token and position embedding, class token, embedding norm and dropout.
Tensor embed_tokens(StackRun& run, std::span<const std::int32_t> ids);
Tensor embed_features(StackRun& run, const Tensor& features, std::span<const std::int64_t> offsets);

// See Model::attention_rules.
AttentionInput attention_rules(const Model::Parts& parts, const StackParts& stack, Part part);

// Lets the options' probe, if any, read or replace a value of rows whose items begin at `offsets`, at the given positions
// of their sequences (empty: 0).
void visit_site(const RunOptions& options, const Site& site, std::span<const std::int64_t> offsets,
                std::span<const std::int64_t> first_positions, Tensor& value);

void check_item_numbers(const char* operation, const RunOptions& options, std::int64_t items);

}  // namespace attend
