#include "train/batches.h"

#include <algorithm>
#include <numeric>

#include "core/random.h"

namespace attend {

std::uint64_t stream_seed(std::uint64_t seed, Purpose purpose, std::uint64_t first, std::uint64_t second) {
  // Two rounds, because a counter has no room for everything at once.
  const auto outer = philox({static_cast<std::uint32_t>(seed), static_cast<std::uint32_t>(seed >> 32)},
                            {static_cast<std::uint32_t>(purpose), 0x61747464u, static_cast<std::uint32_t>(first),
                             static_cast<std::uint32_t>(first >> 32)});
  const auto inner = philox({outer[0], outer[1]}, {static_cast<std::uint32_t>(second),
                                                   static_cast<std::uint32_t>(second >> 32), outer[2], outer[3]});
  return (std::uint64_t{inner[0]} << 32) | inner[1];
}

void append_shifted(Batch& batch, std::int32_t first, std::span<const std::int32_t> target, std::int32_t end) {
  batch.input.ids.push_back(first);
  batch.input.ids.insert(batch.input.ids.end(), target.begin(), target.end());
  batch.input.offsets.push_back(static_cast<std::int64_t>(batch.input.ids.size()));
  batch.labels.insert(batch.labels.end(), target.begin(), target.end());
  batch.labels.push_back(end);
}

Batch make_batch(std::span<const SequenceItem> items, std::span<const std::int64_t> indices, std::int32_t first,
                 std::int32_t end) {
  Batch batch;
  for (std::int64_t index : indices) {
    const SequenceItem& item = items[static_cast<std::size_t>(index)];
    if (!item.source.empty()) batch.source.append(item.source);
    append_shifted(batch, first, item.target, end);
  }
  return batch;
}

void append_block(Batch& batch, std::span<const std::int32_t> text, std::int64_t begin, std::int64_t length) {
  const auto input = text.subspan(static_cast<std::size_t>(begin), static_cast<std::size_t>(length));
  const auto labels = text.subspan(static_cast<std::size_t>(begin + 1), static_cast<std::size_t>(length));
  batch.input.append(input);
  batch.labels.insert(batch.labels.end(), labels.begin(), labels.end());
}

Batch random_blocks(std::span<const std::int32_t> text, std::int64_t items, std::int64_t block, std::uint64_t seed,
                    std::int64_t step) {
  Random random(stream_seed(seed, Purpose::blocks, static_cast<std::uint64_t>(step)));
  const auto places = static_cast<std::uint64_t>(static_cast<std::int64_t>(text.size()) - block);
  Batch batch;
  for (std::int64_t i = 0; i < items; ++i)
    append_block(batch, text, static_cast<std::int64_t>(random.below(places)), block);
  return batch;
}

std::vector<ItemLength> lengths_of(std::span<const SequenceItem> items) {
  std::vector<ItemLength> lengths;
  lengths.reserve(items.size());
  for (const SequenceItem& item : items)
    lengths.push_back(
        {static_cast<std::int32_t>(item.source.size()), static_cast<std::int32_t>(item.target.size()) + 1});
  return lengths;
}

std::vector<std::vector<std::int64_t>> plan_epoch(std::span<const ItemLength> lengths, const TrainRecipe& recipe,
                                                  std::int64_t epoch) {
  Random random(stream_seed(recipe.seed, Purpose::order, static_cast<std::uint64_t>(epoch)));
  std::vector<std::int64_t> order(lengths.size());
  std::iota(order.begin(), order.end(), 0);
  shuffle(order.begin(), order.end(), random);
  const auto length = [&](std::int64_t item) { return lengths[static_cast<std::size_t>(item)]; };

  if (recipe.bucket > 0) {
    const auto size_of = [&](std::int64_t item) {
      return recipe.batch_tokens > 0 ? std::int64_t{length(item).target} : 1;
    };
    const std::int64_t pool = recipe.bucket * std::max(recipe.batch_tokens, recipe.batch_items);
    for (auto begin = order.begin(); begin != order.end();) {
      auto end = begin;
      for (std::int64_t size = 0; end != order.end() && size < pool; ++end) size += size_of(*end);
      std::stable_sort(begin, end, [&](std::int64_t a, std::int64_t b) {
        const ItemLength x = length(a), y = length(b);
        return x.target != y.target ? x.target < y.target : x.source < y.source;
      });
      begin = end;
    }
  }

  std::vector<std::vector<std::int64_t>> batches;
  std::int64_t tokens = 0;
  for (std::int64_t item : order) {
    const std::int64_t more = length(item).target;
    const bool full =
        batches.empty() || (recipe.batch_tokens > 0 && tokens + more > recipe.batch_tokens) ||
        (recipe.batch_items > 0 && static_cast<std::int64_t>(batches.back().size()) == recipe.batch_items);
    if (full) batches.emplace_back(), tokens = 0;
    batches.back().push_back(item);
    tokens += more;
  }
  shuffle(batches.begin(), batches.end(), random);
  return batches;
}

std::vector<std::vector<std::int64_t>> batches_in_order(std::span<const ItemLength> lengths, std::int64_t tokens) {
  std::vector<std::vector<std::int64_t>> batches;
  std::int64_t held = 0;
  for (std::size_t item = 0; item < lengths.size(); ++item) {
    const std::int64_t more = std::max(lengths[item].source, lengths[item].target);
    if (batches.empty() || held + more > tokens) batches.emplace_back(), held = 0;
    batches.back().push_back(static_cast<std::int64_t>(item));
    held += more;
  }
  return batches;
}

}  // namespace attend
