// The product with packed weights. Its outer loops: blocks of rows and columns are tasks; inside a task the summed
// index goes in blocks short enough that a block of A stays in the second-level cache, and partial sums wait in
// scratch.
#include "kernel/matrix/packed_matrix.h"

#include <algorithm>

#include "core/threads.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernel/matrix/packed_matrix.cc"
#include "hwy/foreach_target.h"

#include "hwy/highway.h"
#include "kernel/matrix/tile-inl.h"
#include "kernel/rowwise/functions-inl.h"

#ifndef ATTEND_PACKED_MATRIX_ONCE
#define ATTEND_PACKED_MATRIX_ONCE
namespace attend {
namespace {

// Inputs in one block, and the row stride of the copied block of A: off a power of two, or the rows of a tile would
// all fall into the same few sets of the first-level cache.
constexpr int inputs_block = 512;
constexpr int block_stride = inputs_block + 16;
constexpr std::int64_t rows_block = 96;
constexpr std::int64_t columns_block = 1024;

struct Product {
  const float* a;
  std::int64_t a_stride;
  const float* panels;
  std::int64_t outputs, inputs;
  float* c;
  std::int64_t c_stride;
  ProductEnd end;
};

// Scratch of one thread: the copied block of A, and the partial sums of a task.
struct Scratch {
  Buffer a{rows_block * block_stride};
  Buffer sums;
};

Scratch& scratch() {
  thread_local Scratch instance;
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

// Where a tile's sums come from and go to.
struct TileEnds {
  const Product* product;
  const float* partial_in;  // null: start from 0
  float* partial_out;       // null: this is the last block of inputs, finish into C
  std::int64_t partial_stride;
  float* c;             // first element of the tile in C
  std::int64_t column;  // its column
  Ahead ahead;
};

template <Activation kind>
HWY_INLINE void finish_row(const ProductEnd& end, const float* sums, std::int64_t columns, std::int64_t column,
                           float* c, float* before) {
  const TileTag d;
  for (std::int64_t j = 0; j < columns; j += tile_lanes) {
    const auto count = static_cast<std::size_t>(std::min<std::int64_t>(tile_lanes, columns - j));
    auto value = hn::Load(d, sums + j);
    if (end.bias != nullptr) value = hn::Add(value, load_first(d, end.bias + column + j, count));
    if (before != nullptr) store_first(d, value, before + j, count);
    value = activated<kind>(d, value);
    if (end.accumulate) value = hn::Add(load_first(d, c + j, count), value);
    store_first(d, value, c + j, count);
  }
}

// The ends of a tile that has an activation, or that sticks out of C.
HWY_NOINLINE void finish_tile(const TileEnds& ends, const float* sums, int rows, int columns) {
  const Product& product = *ends.product;
  const ProductEnd& end = product.end;
  const std::int64_t valid = std::min<std::int64_t>(columns, product.outputs - ends.column);
  for (int i = 0; i < rows; ++i) {
    const float* row = sums + i * columns;
    float* c = ends.c + i * product.c_stride;
    float* before = end.before_activation == nullptr ? nullptr : end.before_activation + (c - product.c);
    switch (end.activation) {
      case Activation::none:
        finish_row<Activation::none>(end, row, valid, ends.column, c, before);
        break;
      case Activation::relu:
        finish_row<Activation::relu>(end, row, valid, ends.column, c, before);
        break;
      case Activation::gelu:
        finish_row<Activation::gelu>(end, row, valid, ends.column, c, before);
        break;
      case Activation::gelu_tanh:
        finish_row<Activation::gelu_tanh>(end, row, valid, ends.column, c, before);
        break;
      case Activation::silu:
        finish_row<Activation::silu>(end, row, valid, ends.column, c, before);
        break;
    }
  }
}

template <int rows, int panels>
HWY_NOINLINE void tile(const float* HWY_RESTRICT a, const float* HWY_RESTRICT b, std::int64_t panel_stride,
                       std::int64_t inputs, const TileEnds& ends) {
  const TileTag d;
  constexpr int vectors = panels * panel_vectors;
  hn::VFromD<TileTag> sums[rows][vectors];
  ATTEND_UNROLL
  for (int i = 0; i < rows; ++i) {
    ATTEND_UNROLL
    for (int v = 0; v < vectors; ++v)
      sums[i][v] = ends.partial_in == nullptr ? hn::Zero(d)
                                              : hn::Load(d, ends.partial_in + i * ends.partial_stride + v * tile_lanes);
  }
  // C may be far away: its lines come while the sums are made.
  if (ends.partial_out == nullptr)
    for (int i = 0; i < rows; ++i)
      for (int line = 0; line < panels; ++line)
        __builtin_prefetch(ends.c + i * ends.product->c_stride + line * tile_panel, 1, 3);
  tile_sums<rows, panels, block_stride, 1>(a, b, panel_stride, inputs, sums, ends.ahead);
  if (ends.partial_out != nullptr) {
    ATTEND_UNROLL
    for (int i = 0; i < rows; ++i) {
      ATTEND_UNROLL
      for (int v = 0; v < vectors; ++v)
        hn::Store(sums[i][v], d, ends.partial_out + i * ends.partial_stride + v * tile_lanes);
    }
    return;
  }
  const Product& product = *ends.product;
  const ProductEnd& end = product.end;
  if (end.activation != Activation::none || end.before_activation != nullptr ||
      ends.column + panels * tile_panel > product.outputs) {
    HWY_ALIGN float kept[rows * vectors * tile_lanes];
    ATTEND_UNROLL
    for (int i = 0; i < rows; ++i) {
      ATTEND_UNROLL
      for (int v = 0; v < vectors; ++v) hn::Store(sums[i][v], d, kept + (i * vectors + v) * tile_lanes);
    }
    finish_tile(ends, kept, rows, vectors * tile_lanes);
    return;
  }
  ATTEND_UNROLL
  for (int v = 0; v < vectors; ++v) {
    const auto bias = end.bias == nullptr ? hn::Zero(d) : hn::LoadU(d, end.bias + ends.column + v * tile_lanes);
    ATTEND_UNROLL
    for (int i = 0; i < rows; ++i) {
      float* to = ends.c + i * product.c_stride + v * tile_lanes;
      auto value = hn::Add(sums[i][v], bias);
      if (end.accumulate) value = hn::Add(hn::LoadU(d, to), value);
      hn::StoreU(value, d, to);
    }
  }
}

template <int panels, int rows = most_rows(panels)>
HWY_INLINE void tile_of(int count, const float* a, const float* b, std::int64_t panel_stride, std::int64_t inputs,
                        const TileEnds& ends) {
  if constexpr (rows > 1) {
    if (count < rows) return tile_of<panels, rows - 1>(count, a, b, panel_stride, inputs, ends);
  }
  tile<rows, panels>(a, b, panel_stride, inputs, ends);
}

// One step of a task: rows of one block of A, and one block of inputs.
struct Step {
  std::int64_t first_row, rows, k, inputs;
  const float* a;  // the copied block
  float* partial;
  std::int64_t partial_stride;
  Ahead::Piece later;  // what the next step copies
  std::int64_t later_rows;
};

// Tiles down the rows, for `panels` panels.
template <int panels>
HWY_INLINE void panel_group(const Product& product, const Step& step, std::int64_t first_panel, std::int64_t panel,
                            std::int64_t all_panels) {
  const std::int64_t tiles = (step.rows + most_rows(panels) - 1) / most_rows(panels);
  const std::int64_t panel_stride = product.inputs * tile_panel;
  const float* b = product.panels + panel * panel_stride + step.k * tile_panel;
  float* partial = step.partial + (panel - first_panel) * tile_panel;
  TileEnds ends{&product, nullptr, nullptr, step.partial_stride, nullptr, panel * tile_panel, {}};
  std::int64_t row = 0;
  for (std::int64_t t = 0; t < tiles; ++t) {
    // Tiles of nearly equal height: a last tile of one row would run at a quarter of the speed.
    const std::int64_t next = step.rows * (t + 1) / tiles;
    if (step.k != 0) ends.partial_in = partial + row * step.partial_stride;
    if (step.k + step.inputs < product.inputs) ends.partial_out = partial + row * step.partial_stride;
    ends.c = product.c + (step.first_row + row) * product.c_stride + ends.column;
    ends.ahead = Ahead::part_of(step.later, {}, step.later_rows, (panel - first_panel) / panels * tiles + t,
                                all_panels / panels * tiles);
    tile_of<panels>(static_cast<int>(next - row), step.a + row * block_stride, b, panel_stride, step.inputs, ends);
    row = next;
  }
}

template <int panels>
HWY_INLINE void panel_groups(const Product& product, const Step& step, std::int64_t first_panel,
                             std::int64_t last_panel, std::int64_t& panel) {
  if constexpr (panels > widest_panels) {
    return;
  } else {
    // A tile of AVX-512 is two panels wide if it may; smaller vectors fill their registers with rows instead.
    if (step.rows > most_rows(panels) && panels > (widest_panels >= 8 ? 2 : 1)) return;
    for (; panel + panels <= last_panel; panel += panels)
      panel_group<panels>(product, step, first_panel, panel, last_panel - first_panel);
  }
}

// C of rows [first_row, last_row) and panels [first_panel, last_panel).
void product_block(const Product& product, std::int64_t first_row, std::int64_t last_row, std::int64_t first_panel,
                   std::int64_t last_panel) {
  Scratch& memory = scratch();
  const std::int64_t partial_stride = (last_panel - first_panel) * tile_panel;
  if (product.inputs > inputs_block && memory.sums.size() < rows_block * partial_stride)
    memory.sums = Buffer(rows_block * partial_stride);
  const std::int64_t row_blocks = (last_row - first_row + rows_block - 1) / rows_block;
  const std::int64_t input_blocks = std::max<std::int64_t>(1, (product.inputs + inputs_block - 1) / inputs_block);
  const auto step_at = [&](std::int64_t index) {
    const std::int64_t i = index / input_blocks, k = index % input_blocks * inputs_block;
    const std::int64_t begin = first_row + (last_row - first_row) * i / row_blocks;
    const std::int64_t end = first_row + (last_row - first_row) * (i + 1) / row_blocks;
    const std::int64_t inputs = std::min<std::int64_t>(inputs_block, product.inputs - k);
    return Step{begin, end - begin, k, inputs, nullptr, memory.sums.data(), partial_stride, {}, 0};
  };
  for (std::int64_t index = 0; index < row_blocks * input_blocks; ++index) {
    Step step = step_at(index);
    step.a = product.a + step.first_row * product.a_stride + step.k;
    if (step.rows > 1) {
      for (std::int64_t i = 0; i < step.rows; ++i)
        std::copy_n(step.a + i * product.a_stride, step.inputs, memory.a.data() + i * block_stride);
      step.a = memory.a.data();
    }
    if (index + 1 < row_blocks * input_blocks) {
      const Step next = step_at(index + 1);
      step.later = {product.a + next.first_row * product.a_stride + next.k, product.a_stride, (next.inputs + 15) / 16};
      step.later_rows = next.rows;
    }
    std::int64_t panel = first_panel;
    panel_groups<8>(product, step, first_panel, last_panel, panel);
    panel_groups<4>(product, step, first_panel, last_panel, panel);
    panel_groups<2>(product, step, first_panel, last_panel, panel);
    panel_groups<1>(product, step, first_panel, last_panel, panel);
  }
}

// A stretch of one panel of a matrix stored [outputs, inputs]: 4 x 4 transpositions.
HWY_INLINE void pack_stretch(const float* matrix, std::int64_t row_stride, std::int64_t outputs, std::int64_t inputs,
                             float* panel) {
  std::int64_t j = 0;
#if HWY_TARGET != HWY_SCALAR
  const hn::FixedTag<float, 4> d;
  const hn::FixedTag<double, 2> pairs;
  for (; j + 4 <= outputs; j += 4) {
    const float* rows = matrix + j * row_stride;
    std::int64_t k = 0;
    for (; k + 4 <= inputs; k += 4) {
      const auto r0 = hn::LoadU(d, rows + k), r1 = hn::LoadU(d, rows + row_stride + k);
      const auto r2 = hn::LoadU(d, rows + 2 * row_stride + k), r3 = hn::LoadU(d, rows + 3 * row_stride + k);
      const auto low01 = hn::BitCast(pairs, hn::InterleaveLower(d, r0, r1)),
                 low23 = hn::BitCast(pairs, hn::InterleaveLower(d, r2, r3));
      const auto high01 = hn::BitCast(pairs, hn::InterleaveUpper(d, r0, r1)),
                 high23 = hn::BitCast(pairs, hn::InterleaveUpper(d, r2, r3));
      float* to = panel + k * tile_panel + j;
      hn::Store(hn::BitCast(d, hn::InterleaveLower(pairs, low01, low23)), d, to);
      hn::Store(hn::BitCast(d, hn::InterleaveUpper(pairs, low01, low23)), d, to + tile_panel);
      hn::Store(hn::BitCast(d, hn::InterleaveLower(pairs, high01, high23)), d, to + 2 * tile_panel);
      hn::Store(hn::BitCast(d, hn::InterleaveUpper(pairs, high01, high23)), d, to + 3 * tile_panel);
    }
    for (; k < inputs; ++k)
      for (int i = 0; i < 4; ++i) panel[k * tile_panel + j + i] = rows[i * row_stride + k];
  }
#endif
  for (; j < outputs; ++j)
    for (std::int64_t k = 0; k < inputs; ++k) panel[k * tile_panel + j] = matrix[j * row_stride + k];
  for (; j < tile_panel; ++j)
    for (std::int64_t k = 0; k < inputs; ++k) panel[k * tile_panel + j] = 0;
}

// In stretches that stay in the first-level cache while their lines are filled four floats at a time.
void pack_panel(const float* matrix, std::int64_t row_stride, std::int64_t outputs, std::int64_t inputs, float* panel) {
  constexpr std::int64_t stretch = 128;
  for (std::int64_t k = 0; k < inputs; k += stretch)
    pack_stretch(matrix + k, row_stride, outputs, std::min(stretch, inputs - k), panel + k * tile_panel);
}

// One panel of a matrix stored [inputs, outputs]: pieces of rows.
void pack_panel_transposed(const float* matrix, std::int64_t row_stride, std::int64_t outputs, std::int64_t inputs,
                           float* panel) {
  const TileTag d;
  for (std::int64_t k = 0; k < inputs; ++k) {
    const float* row = matrix + k * row_stride;
    float* to = panel + k * tile_panel;
    if (outputs == tile_panel) {
      for (int v = 0; v < tile_panel; v += tile_lanes) hn::Store(hn::LoadU(d, row + v), d, to + v);
    } else {
      for (int i = 0; i < tile_panel; ++i) to[i] = i < outputs ? row[i] : 0;
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
HWY_EXPORT(product_block);
HWY_EXPORT(pack_panel);
HWY_EXPORT(pack_panel_transposed);

// Multiplications a task should have at least, about a microsecond of them: sharing out less costs more than it saves.
constexpr std::int64_t work_of_a_task = 48 * 1024;
constexpr std::int64_t panel = 16;

}  // namespace

void PackedMatrix::pack(const float* matrix, std::int64_t outputs, std::int64_t inputs, std::int64_t row_stride,
                        bool transposed) {
  const std::int64_t panels = (outputs + panel - 1) / panel;
  const std::int64_t size = panels * panel * inputs;
  if (panels_.size() != size) panels_ = Buffer(size);
  outputs_ = outputs;
  inputs_ = inputs;
  const auto function = transposed ? HWY_DYNAMIC_DISPATCH(pack_panel_transposed) : HWY_DYNAMIC_DISPATCH(pack_panel);
  const std::int64_t grain = std::max<std::int64_t>(1, 64 * 1024 / std::max<std::int64_t>(1, panel * inputs));
  parallel_ranges(panels, grain, [&](std::int64_t begin, std::int64_t end, int) {
    for (std::int64_t p = begin; p < end; ++p)
      function(matrix + p * panel * (transposed ? 1 : row_stride), row_stride, std::min(panel, outputs - p * panel),
               inputs, panels_.data() + p * panel * inputs);
  });
}

void multiply(const float* a, std::int64_t a_stride, std::int64_t rows, const PackedMatrix& b, float* c,
              std::int64_t c_stride, const ProductEnd& end) {
  if (rows <= 0 || b.outputs() <= 0) return;
  const Product product{a, a_stride, b.panels(), b.outputs(), b.inputs(), c, c_stride, end};
  const auto function = HWY_DYNAMIC_DISPATCH(product_block);
  const std::int64_t panels = (b.outputs() + panel - 1) / panel;
  // A few tasks for every worker, but none smaller than work_of_a_task. Rows are split first, in whole blocks; columns
  // only if rows are not enough, since every block of columns copies its rows of A again.
  const std::int64_t work = rows * panels * panel * std::max<std::int64_t>(1, b.inputs());
  const std::int64_t wanted = threads() == 1 ? 1 : std::clamp<std::int64_t>(work / work_of_a_task, 1, threads() * 4);
  const std::int64_t row_blocks = std::min(wanted, (rows + rows_block - 1) / rows_block);
  std::int64_t column_blocks =
      std::max((panels * panel + columns_block - 1) / columns_block, (wanted + row_blocks - 1) / row_blocks);
  // Whole groups of panels in every task but the last.
  const std::int64_t group = rows <= 3 ? 8 : rows <= 6 ? 4 : 2;
  std::int64_t width = (panels + column_blocks - 1) / column_blocks;
  if (width > group) width = (width + group - 1) / group * group;
  column_blocks = (panels + width - 1) / width;
  parallel_for(row_blocks * column_blocks, [&](std::int64_t task, int) {
    const std::int64_t i = task / column_blocks, j = task % column_blocks;
    function(product, rows * i / row_blocks, rows * (i + 1) / row_blocks, j * width, std::min(panels, (j + 1) * width));
  });
}

}  // namespace attend
#endif
