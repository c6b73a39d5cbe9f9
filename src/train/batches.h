// Batches of training items: which items come together, and the rows the model reads. Order and content depend on the
// seed and the epoch only.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "attend/model.h"
#include "attend/recipe.h"

namespace attend {

// What random numbers are drawn for: each use has its own stream of one seed.
enum class Purpose : std::uint32_t { parameters = 1, held_out, order, blocks, dropout, augmentation };
// The seed of one stream, from the run's seed, its use and up to two counters (epoch, step, item).
std::uint64_t stream_seed(std::uint64_t seed, Purpose purpose, std::uint64_t first = 0, std::uint64_t second = 0);

// One pair, or one line (source empty), as token ids without the decoder's begin and end tokens. The source is as the encoder
// reads it.
struct SequenceItem {
  std::vector<std::int32_t> source, target;
  std::int32_t direction = 0;  // 0: languages[0] to languages[1]; 1: back
};

// A batch as the model takes it. Which members are used depends on the task.
struct Batch {
  TokenBatch source;                 // of the encoder
  TokenBatch input;                  // of the decoder: shifted right
  std::vector<std::int32_t> labels;  // one a row of input, or one an image
  Tensor features;                   // images: rows are patches
  std::vector<std::int64_t> feature_offsets;

  std::int64_t tokens() const { return static_cast<std::int64_t>(labels.size()); }  // what the loss is a mean over
};

// Teacher forcing: the decoder reads `first` + target and is to say target + `end` (worked example: <bos> I love robot ->
// I love robot <eos>). Adds one item.
void append_shifted(Batch& batch, std::int32_t first, std::span<const std::int32_t> target, std::int32_t end);

Batch make_batch(std::span<const SequenceItem> items, std::span<const std::int64_t> indices, std::int32_t first,
                 std::int32_t end);

// A block of running text: rows begin .. begin + length - 1 of `text`, labels one further. Adds one item.
void append_block(Batch& batch, std::span<const std::int32_t> text, std::int64_t begin, std::int64_t length);

// Random blocks of a step, as nanoGPT draws them: `items` begins, uniform over all places where block and label fit.
Batch random_blocks(std::span<const std::int32_t> text, std::int64_t items, std::int64_t block, std::uint64_t seed,
                    std::int64_t step);

// Lengths in tokens by which items are bucketed and budgeted; target with its end token.
struct ItemLength {
  std::int32_t source = 0, target = 0;
};
std::vector<ItemLength> lengths_of(std::span<const SequenceItem> items);

// The batches of one epoch: items shuffled, sorted by length within pools of `bucket` batches' worth, cut so that no batch
// has more than batch_tokens target tokens (a longer item is a batch of its own) or more than batch_items items, and the
// batches shuffled. Every item appears once.
std::vector<std::vector<std::int64_t>> plan_epoch(std::span<const ItemLength> lengths, const TrainRecipe& recipe,
                                                  std::int64_t epoch);

// Items in their order, in batches of about `tokens` target tokens: for validation.
std::vector<std::vector<std::int64_t>> batches_in_order(std::span<const ItemLength> lengths, std::int64_t tokens);

}  // namespace attend
