// How the forward pass writes to and reads from a KvCache.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "attend/model.h"
#include "core/memory.h"
#include "model/parts.h"

namespace attend {

struct KvCache::Page {
  explicit Page(std::int64_t row_floats) : keys(page_rows * row_floats), values(page_rows * row_floats) {}
  Buffer keys, values;  // [page_rows, key_heads, head_dim]
};

struct KvAccess {
  // Throws Error(argument) unless the cache of this item, and the encoder's memory in it, is of this model's sizes.
  static void check(const KvCache& cache, const TransformerConfig& config, const char* operation, std::size_t item);
  // Stores new rows of one layer after the cache's length; the length itself grows when the whole run is done.
  static void write(KvCache& cache, std::size_t layer, const Tensor& keys, const Tensor& values, std::int64_t first_row,
                    std::int64_t rows);
  static void grow(KvCache& cache, std::int64_t rows);
  // Appends the page addresses of one layer (self) or of the shared memory (cross).
  static void self_pages(const KvCache& cache, std::size_t layer, std::vector<const float*>& keys,
                         std::vector<const float*>& values);
  static void cross_pages(const KvCache& cache, std::size_t layer, std::vector<const float*>& keys,
                          std::vector<const float*>& values);
  static std::int64_t cross_rows(const KvCache& cache);
};

}  // namespace attend
