// The weight gradient C += A^T * B. Rows, the summed index, go in blocks; each block of A and B is copied into panels,
// since their rows lie far apart, and C itself holds the sums between blocks.
#include <algorithm>

#include "core/threads.h"
#include "kernel/matrix/packed_matrix.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernel/matrix/multiply_transposed.cc"
#include "hwy/foreach_target.h"

#include "hwy/highway.h"
#include "kernel/matrix/tile-inl.h"
#include "kernel/rowwise/functions-inl.h"

#ifndef ATTEND_MULTIPLY_TRANSPOSED_ONCE
#define ATTEND_MULTIPLY_TRANSPOSED_ONCE
namespace attend {
namespace {

constexpr std::int64_t summed_block = 320;
constexpr std::int64_t most_m = 96, most_n = 512;  // of one copied block
constexpr std::int64_t panel_stride =
    summed_block * 16 + 16;  // off a power of two, or all panels would share cache sets

struct TransposedProduct {
  const float* a;
  std::int64_t a_stride;
  const float* b;
  std::int64_t b_stride, rows;
  float* c;
  std::int64_t c_stride;
};

struct TransposedScratch {
  Buffer a{(most_m / 2 + 1) * panel_stride};  // a tile has at least 2 rows on every target
  Buffer b{(most_n / 16 + 1) * panel_stride};
};

TransposedScratch& transposed_scratch() {
  thread_local TransposedScratch instance;
  return instance;
}

}  // namespace
}  // namespace attend
#endif

HWY_BEFORE_NAMESPACE();
namespace attend {
namespace HWY_NAMESPACE {
namespace {
namespace hn = hwy::HWY_NAMESPACE;

// Copies `rows` rows of `width` columns into panels of up to 16 columns, with zeros up to 16. Panel p starts at column
// width * p / panels. Goes along the rows, so that memory is read as it lies.
HWY_INLINE void copy_panels(const float* from, std::int64_t stride, std::int64_t rows, const std::int64_t* starts,
                            std::int64_t panels, float* to) {
  const TileTag d;
  for (std::int64_t r = 0; r < rows; ++r) {
    for (std::int64_t p = 0; p < panels; ++p) {
      const float* piece = from + r * stride + starts[p];
      float* out = to + p * panel_stride + r * tile_panel;
      const std::int64_t count = starts[p + 1] - starts[p];
      for (int v = 0; v < tile_panel; v += tile_lanes) {
        const std::int64_t left = count - v;
        if (left >= tile_lanes) hn::Store(hn::LoadU(d, piece + v), d, out + v);
        else hn::Store(load_first(d, piece + v, static_cast<std::size_t>(std::max<std::int64_t>(0, left))), d, out + v);
      }
    }
  }
}

template <int rows, int panels>
HWY_NOINLINE void gradient_tile(const float* HWY_RESTRICT a, const float* HWY_RESTRICT b, std::int64_t panel_stride,
                                std::int64_t size, float* c, std::int64_t c_stride, std::int64_t columns,
                                const float* next_c, const Ahead& ahead) {
  const TileTag d;
  constexpr int vectors = panels * panel_vectors;
  hn::VFromD<TileTag> sums[rows][vectors];
  for (int i = 0; i < rows; ++i)
    for (int line = 0; line < panels; ++line) __builtin_prefetch(next_c + i * c_stride + line * tile_panel, 1, 3);
  if (columns >= vectors * tile_lanes) {
    ATTEND_UNROLL
    for (int i = 0; i < rows; ++i) {
      ATTEND_UNROLL
      for (int v = 0; v < vectors; ++v) sums[i][v] = hn::LoadU(d, c + i * c_stride + v * tile_lanes);
    }
    tile_sums<rows, panels, 1, tile_panel>(a, b, panel_stride, size, sums, ahead);
    ATTEND_UNROLL
    for (int i = 0; i < rows; ++i) {
      ATTEND_UNROLL
      for (int v = 0; v < vectors; ++v) hn::StoreU(sums[i][v], d, c + i * c_stride + v * tile_lanes);
    }
    return;
  }
  // Sticks out of C: the same sums, with the columns that exist.
  ATTEND_UNROLL
  for (int v = 0; v < vectors; ++v) {
    const auto count = static_cast<std::size_t>(std::clamp<std::int64_t>(columns - v * tile_lanes, 0, tile_lanes));
    ATTEND_UNROLL
    for (int i = 0; i < rows; ++i) sums[i][v] = load_first(d, c + i * c_stride + v * tile_lanes, count);
  }
  tile_sums<rows, panels, 1, tile_panel>(a, b, panel_stride, size, sums, ahead);
  ATTEND_UNROLL
  for (int v = 0; v < vectors; ++v) {
    const auto count = static_cast<std::size_t>(std::clamp<std::int64_t>(columns - v * tile_lanes, 0, tile_lanes));
    ATTEND_UNROLL
    for (int i = 0; i < rows; ++i) store_first(d, sums[i][v], c + i * c_stride + v * tile_lanes, count);
  }
}

template <int panels, int rows = most_rows(panels)>
HWY_INLINE void gradient_tile_of(int count, const float* a, const float* b, std::int64_t panel_stride,
                                 std::int64_t size, float* c, std::int64_t c_stride, std::int64_t columns,
                                 const float* next_c, const Ahead& ahead) {
  if constexpr (rows > 1) {
    if (count < rows)
      return gradient_tile_of<panels, rows - 1>(count, a, b, panel_stride, size, c, c_stride, columns, next_c, ahead);
  }
  gradient_tile<rows, panels>(a, b, panel_stride, size, c, c_stride, columns, next_c, ahead);
}

// C[first_m..last_m, first_n..last_n) += sums over all rows, n at most most_n. A block of rows of B is copied once, and
// the chunks of the same rows of A one after another, so that memory is read nearly as it lies.
void transposed_block(const TransposedProduct& product, std::int64_t first_m, std::int64_t last_m, std::int64_t first_n,
                      std::int64_t last_n) {
  constexpr int panels = widest_panels >= 8 ? 2 : 1;
  const std::int64_t m = last_m - first_m, n = last_n - first_n;
  const std::int64_t n_panels = (n + tile_panel - 1) / tile_panel;
  const std::int64_t chunks = (m + most_m - 1) / most_m, blocks = (product.rows + summed_block - 1) / summed_block;
  std::int64_t m_starts[most_m / 2 + 2], n_starts[most_n / tile_panel + 2];
  for (std::int64_t p = 0; p <= n_panels; ++p) n_starts[p] = std::min(n, p * tile_panel);
  TransposedScratch& memory = transposed_scratch();
  for (std::int64_t step = 0; step < blocks * chunks; ++step) {
    const std::int64_t first = product.rows * (step / chunks) / blocks,
                       rows = product.rows * (step / chunks + 1) / blocks - first;
    const std::int64_t chunk = first_m + m * (step % chunks) / chunks,
                       chunk_m = first_m + m * (step % chunks + 1) / chunks - chunk;
    const std::int64_t tiles = (chunk_m + most_rows(panels) - 1) / most_rows(panels);
    for (std::int64_t t = 0; t <= tiles; ++t) m_starts[t] = chunk_m * t / tiles;
    copy_panels(product.a + first * product.a_stride + chunk, product.a_stride, rows, m_starts, tiles, memory.a.data());
    if (step % chunks == 0)
      copy_panels(product.b + first * product.b_stride + first_n, product.b_stride, rows, n_starts, n_panels,
                  memory.b.data());
    // What the next step will copy.
    Ahead::Piece later_a, later_b;
    std::int64_t later_rows = 0;
    if (step + 1 < blocks * chunks) {
      const std::int64_t next_block = (step + 1) / chunks, next_chunk = (step + 1) % chunks,
                         later = product.rows * next_block / blocks;
      later_rows = product.rows * (next_block + 1) / blocks - later;
      later_a = {product.a + later * product.a_stride + first_m + m * next_chunk / chunks, product.a_stride,
                 (m / chunks + 15) / 16};
      if (next_chunk == 0) later_b = {product.b + later * product.b_stride + first_n, product.b_stride, (n + 15) / 16};
    }
    const std::int64_t parts = (n_panels + panels - 1) / panels * tiles;
    for (std::int64_t p = 0; p < n_panels; p += panels) {
      for (std::int64_t t = 0; t < tiles; ++t) {
        const std::int64_t row = m_starts[t], count = m_starts[t + 1] - row;
        const Ahead ahead = Ahead::part_of(later_a, later_b, later_rows, p / panels * tiles + t, parts);
        float* c = product.c + (chunk + row) * product.c_stride + first_n + p * tile_panel;
        const float* next_c = t + 1 < tiles
                                  ? c + count * product.c_stride
                                  : product.c + chunk * product.c_stride + first_n + (p + panels) * tile_panel;
        const float* a = memory.a.data() + t * panel_stride;
        const float* b = memory.b.data() + p * panel_stride;
        if (panels == 1 || n_panels - p >= panels)
          gradient_tile_of<panels>(static_cast<int>(count), a, b, panel_stride, rows, c, product.c_stride,
                                   n - p * tile_panel, next_c, ahead);
        else
          gradient_tile_of<1>(static_cast<int>(count), a, b, panel_stride, rows, c, product.c_stride,
                              n - p * tile_panel, next_c, ahead);
      }
    }
  }
}

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace attend
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace attend {
namespace {
HWY_EXPORT(transposed_block);
}

void multiply_transposed(const float* a, std::int64_t a_stride, const float* b, std::int64_t b_stride,
                         std::int64_t rows, std::int64_t m, std::int64_t n, float* c, std::int64_t c_stride) {
  if (rows <= 0 || m <= 0 || n <= 0) return;
  const TransposedProduct product{a, a_stride, b, b_stride, rows, c, c_stride};
  const auto function = HWY_DYNAMIC_DISPATCH(transposed_block);
  const std::int64_t work = rows * m * n;
  const std::int64_t wanted = threads() == 1 ? 1 : std::min<std::int64_t>(threads() * 2, work / (48 * 1024));
  std::int64_t n_blocks = (n + most_n - 1) / most_n, m_blocks = 1;
  while (m_blocks * n_blocks < wanted && (m > m_blocks * 16 || n > n_blocks * 32)) {
    // Every block of m copies its part of B again and the other way round: split the longer side.
    if (m / m_blocks >= n / n_blocks) ++m_blocks;
    else ++n_blocks;
  }
  // Whole panels in every block.
  std::int64_t n_width = ((n + n_blocks - 1) / n_blocks + 31) / 32 * 32;
  n_blocks = (n + n_width - 1) / n_width;
  parallel_for(m_blocks * n_blocks, [&](std::int64_t task, int) {
    const std::int64_t i = task / n_blocks, j = task % n_blocks;
    function(product, m * i / m_blocks, m * (i + 1) / m_blocks, j * n_width, std::min(n, (j + 1) * n_width));
  });
}

}  // namespace attend
#endif
