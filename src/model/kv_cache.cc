#include "model/kv_cache.h"

#include <algorithm>
#include <atomic>
#include <utility>

namespace attend {

KvCache::KvCache(const Model& model)
    : layers_(static_cast<std::size_t>(model.config().decoder ? model.config().decoder->layers : 0)),
      row_floats_(model.config().key_head_count() * model.config().head_width()) {
  if (!model.config().decoder)
    throw Error(ErrorKind::argument, "KvCache", "the model has no decoder", "only decoders generate token by token");
}

KvCache::KvCache(const Model& model, std::shared_ptr<const CrossMemory> memory, std::int64_t item) : KvCache(model) {
  if (!memory)
    throw Error(ErrorKind::argument, "KvCache", "the encoder's memory is null", "give what share_memory() returned");
  const auto items = static_cast<std::int64_t>(memory->offsets.size()) - 1;
  if (item < 0 || item >= items)
    throw Error(ErrorKind::argument, "KvCache", join("item ", item, " of a memory of ", items, " items"));
  memory_ = std::move(memory);
  item_ = item;
}

void KvCache::truncate(std::int64_t length) {
  if (length < 0 || length > length_)
    throw Error(ErrorKind::argument, "KvCache::truncate",
                join("length ", length, " asked for, ", length_, " tokens are held"));
  length_ = length;
  for (Layer& layer : layers_) layer.pages.resize(static_cast<std::size_t>((length + page_rows - 1) / page_rows));
}

std::int64_t KvCache::bytes() const {
  std::int64_t total = 0;
  for (const Layer& layer : layers_)
    total += static_cast<std::int64_t>(layer.pages.size()) * 2 * page_rows * row_floats_ *
             static_cast<std::int64_t>(sizeof(float));
  return total;
}

void KvAccess::write(KvCache& cache, std::size_t layer, const Tensor& keys, const Tensor& values,
                     std::int64_t first_row, std::int64_t rows) {
  auto& pages = cache.layers_[layer].pages;
  const std::int64_t width = cache.row_floats_;
  for (std::int64_t row = 0; row < rows; ++row) {
    const std::int64_t place = cache.length_ + row, slot = place % KvCache::page_rows;
    const auto index = static_cast<std::size_t>(place / KvCache::page_rows);
    if (index == pages.size()) {
      pages.push_back(std::make_shared<KvCache::Page>(width));
    } else if (pages[index].use_count() > 1) {
      // A fork still reads this page: go on in a copy.
      auto copy = std::make_shared<KvCache::Page>(width);
      std::copy_n(pages[index]->keys.data(), slot * width, copy->keys.data());
      std::copy_n(pages[index]->values.data(), slot * width, copy->values.data());
      pages[index] = std::move(copy);
    } else {
      // use_count() is a relaxed read. A fork on another thread may just have let go of this page: its reads, released
      // by the count it gave back, must be over before the page is written.
      std::atomic_thread_fence(std::memory_order_acquire);
    }
    std::copy_n(keys.row(first_row + row), width, pages[index]->keys.data() + slot * width);
    std::copy_n(values.row(first_row + row), width, pages[index]->values.data() + slot * width);
  }
}

void KvAccess::grow(KvCache& cache, std::int64_t rows) { cache.length_ += rows; }

void KvAccess::self_pages(const KvCache& cache, std::size_t layer, std::vector<const float*>& keys,
                          std::vector<const float*>& values) {
  for (const auto& page : cache.layers_[layer].pages) {
    keys.push_back(page->keys.data());
    values.push_back(page->values.data());
  }
}

void KvAccess::cross_pages(const KvCache& cache, std::size_t layer, std::vector<const float*>& keys,
                           std::vector<const float*>& values) {
  const CrossMemory& memory = *cache.memory_;
  const auto item = static_cast<std::size_t>(cache.item_);
  for (std::int64_t row = memory.offsets[item]; row < memory.offsets[item + 1]; row += KvCache::page_rows) {
    keys.push_back(memory.keys[layer].row(row));
    values.push_back(memory.values[layer].row(row));
  }
}

void KvAccess::check(const KvCache& cache, const TransformerConfig& config, const char* operation, std::size_t item) {
  const auto refuse = [&](const std::string& what) {
    throw Error(ErrorKind::argument, operation, join("the cache of item ", item, " ", what), "make it for this model");
  };
  const auto layers = static_cast<std::size_t>(config.decoder->layers);
  const std::int64_t width = config.key_head_count() * config.head_width();
  if (cache.layers_.size() != layers) refuse(join("has ", cache.layers_.size(), " layers and the model ", layers));
  if (cache.row_floats_ != width)
    refuse(join("holds keys of ", cache.row_floats_, " numbers and the model's have ", width));
  if (!config.encoder) {
    if (cache.memory_) refuse("has an encoder's memory and the model has no encoder");
    return;
  }
  if (cross_rows(cache) == 0)
    throw Error(ErrorKind::argument, operation, join("the cache of item ", item, " has no encoder memory"),
                "make it from share_memory()");
  const CrossMemory& memory = *cache.memory_;
  if (memory.keys.size() != layers || memory.values.size() != layers)
    refuse(join("has an encoder memory of ", memory.keys.size(), " layers and the model ", layers));
  for (std::size_t layer = 0; layer < layers; ++layer)
    for (const Tensor* rows : {&memory.keys[layer], &memory.values[layer]})
      if (rows->width() != width)
        refuse(join("has an encoder memory of keys of ", rows->width(), " numbers and the model's have ", width));
}

std::int64_t KvAccess::cross_rows(const KvCache& cache) {
  if (!cache.memory_) return 0;
  const auto item = static_cast<std::size_t>(cache.item_);
  return cache.memory_->offsets[item + 1] - cache.memory_->offsets[item];
}

}  // namespace attend
