// The inner loop of every product: a tile of C kept in registers while the summed index runs from first to last.
#if defined(ATTEND_KERNEL_TILE_INL_H) == defined(HWY_TARGET_TOGGLE)
#ifdef ATTEND_KERNEL_TILE_INL_H
#undef ATTEND_KERNEL_TILE_INL_H
#else
#define ATTEND_KERNEL_TILE_INL_H
#endif

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "hwy/highway.h"

// GCC keeps an array of vectors in registers only if every loop over it is unrolled.
#ifndef ATTEND_UNROLL
#if defined(__clang__)
#define ATTEND_UNROLL _Pragma("clang loop unroll(full)")
#else
#define ATTEND_UNROLL _Pragma("GCC unroll 16")
#endif
#endif

HWY_BEFORE_NAMESPACE();
namespace attend {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

// Weights are laid out in panels of this many columns whatever the target, so that one layout serves them all.
constexpr int tile_panel = 16;

// At most 16 floats a vector: a tile is a whole number of panels.
using TileTag = hn::CappedTag<float, tile_panel>;
constexpr int tile_lanes = static_cast<int>(hn::MaxLanes(TileTag()));
constexpr int panel_vectors = tile_panel / tile_lanes;

// Most rows of a tile `columns` panels wide, so that sums, one row of B and one value of A fit the registers.
#if HWY_TARGET == HWY_AVX3
constexpr int most_rows(int panels) { return panels <= 2 ? 12 : panels == 4 ? 6 : 3; }
constexpr int widest_panels = 8;
#elif HWY_TARGET != HWY_AVX2
constexpr int most_rows(int) { return 2; }
constexpr int widest_panels = 1;
#else
constexpr int most_rows(int panels) { return panels == 1 ? 6 : panels == 2 ? 3 : 1; }
constexpr int widest_panels = 4;
#endif

// Rows of one or two matrices that the next block will copy. A tile asks for some of their cache lines now and then, so
// that they arrive while it computes: a copy that waits for memory line by line costs as much as the product of narrow
// matrices.
struct Ahead {
  struct Piece {
    const float* data = nullptr;
    std::int64_t stride = 0, lines = 0;
  };
  Piece pieces[2];
  std::int64_t rows = 0;  // still to ask for
  std::int64_t line = 0;  // of the first row

  static constexpr std::int64_t floats_a_line = 16;

  // Rows [part, part + 1) / parts of `rows` rows; `first` and `second` say where they begin.
  static Ahead part_of(Piece first, Piece second, std::int64_t all_rows, std::int64_t part, std::int64_t parts) {
    const std::int64_t begin = all_rows * part / parts, end = all_rows * (part + 1) / parts;
    first.data += begin * first.stride;
    second.data += begin * second.stride;
    return {{first, second}, end - begin, 0};
  }
  std::int64_t lines() const { return rows * (pieces[0].lines + pieces[1].lines); }
  HWY_INLINE void ask(std::int64_t count) {
    for (; count > 0 && rows > 0; --count) {
      const bool second = line >= pieces[0].lines;
      const float* from =
          second ? pieces[1].data + (line - pieces[0].lines) * floats_a_line : pieces[0].data + line * floats_a_line;
      __builtin_prefetch(from, 0, 2);  // into the second-level cache
      if (++line < pieces[0].lines + pieces[1].lines) continue;
      line = 0;
      pieces[0].data += pieces[0].stride;
      pieces[1].data += pieces[1].stride;
      --rows;
    }
  }
};

// sums[rows][panels] += A * B over k. Element (i, k) of A is a[i * row_step + k * k_step]; the steps are constants so
// that one pointer serves all rows. B is `panels` panels, panel_stride floats apart.
template <int rows, int panels, int row_step, int k_step>
HWY_INLINE void tile_sums(const float* HWY_RESTRICT a, const float* HWY_RESTRICT b, std::int64_t panel_stride,
                          std::int64_t size, hn::VFromD<TileTag> (&sums)[rows][panels * panel_vectors], Ahead ahead) {
  const TileTag d;
  constexpr std::int64_t stretch = 32;
  const std::int64_t lines = (ahead.lines() * stretch + size - 1) / std::max<std::int64_t>(1, size);
  while (size > 0) {
    ahead.ask(lines);
    for (std::int64_t k = std::min(stretch, size); k > 0; --k) {
      hn::VFromD<TileTag> right[panels * panel_vectors];
      ATTEND_UNROLL
      for (int p = 0; p < panels; ++p) {
        ATTEND_UNROLL
        for (int v = 0; v < panel_vectors; ++v)
          right[p * panel_vectors + v] = hn::Load(d, b + p * panel_stride + v * tile_lanes);
      }
      ATTEND_UNROLL
      for (int i = 0; i < rows; ++i) {
        const auto left = hn::Set(d, a[i * row_step]);
        ATTEND_UNROLL
        for (int v = 0; v < panels * panel_vectors; ++v) sums[i][v] = hn::MulAdd(left, right[v], sums[i][v]);
      }
      a += k_step;
      b += tile_panel;
    }
    size -= stretch;
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace attend
HWY_AFTER_NAMESPACE();

#endif  // ATTEND_KERNEL_TILE_INL_H
