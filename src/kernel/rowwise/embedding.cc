// Rows of a table by id, their gradient, and plain sums of rows.
#include <algorithm>

#include "core/threads.h"
#include "kernel/rowwise/grain.h"
#include "kernel/rowwise/rowwise.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernel/rowwise/embedding.cc"
#include "hwy/foreach_target.h"

#include "hwy/cache_control.h"
#include "hwy/highway.h"
#include "kernel/rowwise/functions-inl.h"

HWY_BEFORE_NAMESPACE();
namespace attend {
namespace HWY_NAMESPACE {
namespace {
namespace hn = hwy::HWY_NAMESPACE;
using Tag = hn::ScalableTag<float>;

void gather_range(const float* table, std::int64_t width, const std::int32_t* ids, float scale, MutableRows y,
                  std::int64_t begin, std::int64_t end) {
  const Tag d;
  const auto by = hn::Set(d, scale);
  for (std::int64_t r = begin; r < end; ++r) {
    const float* from = table + ids[r] * width;
    float* to = y.data + r * y.stride;
    for_each_vector(d, width, [&](auto partial, std::int64_t j, std::size_t count) HWY_ATTR {
      store(d, partial, hn::Mul(load(d, partial, from + j, count), by), to + j, count);
    });
  }
}

// All rows, columns [first, last).
void scatter_columns(Rows y_gradient, const std::int32_t* ids, float scale, float* table_gradient, std::int64_t first,
                     std::int64_t last) {
  const Tag d;
  const auto by = hn::Set(d, scale);
  constexpr std::int64_t ahead = 6;
  for (std::int64_t r = 0; r < y_gradient.rows; ++r) {
    if (r + ahead < y_gradient.rows) {
      const float* later = table_gradient + ids[r + ahead] * y_gradient.width + first;
      for (std::int64_t j = 0; j < last - first; j += 16) hwy::Prefetch(later + j);
    }
    const float* from = y_gradient.data + r * y_gradient.stride + first;
    float* to = table_gradient + ids[r] * y_gradient.width + first;
    for_each_vector(d, last - first, [&](auto partial, std::int64_t j, std::size_t count) HWY_ATTR {
      store(d, partial, hn::MulAdd(load(d, partial, from + j, count), by, load(d, partial, to + j, count)), to + j,
            count);
    });
  }
}

void add_range(Rows a, Rows b, MutableRows y, std::int64_t begin, std::int64_t end) {
  const Tag d;
  for (std::int64_t r = begin; r < end; ++r) {
    const float* left = a.data + r * a.stride;
    const float* right = b.data + r * b.stride;
    float* to = y.data + r * y.stride;
    for_each_vector(d, a.width, [&](auto partial, std::int64_t j, std::size_t count) HWY_ATTR {
      store(d, partial, hn::Add(load(d, partial, left + j, count), load(d, partial, right + j, count)), to + j, count);
    });
  }
}

void accumulate_range(Rows x, float scale, MutableRows y, std::int64_t begin, std::int64_t end) {
  const Tag d;
  const auto by = hn::Set(d, scale);
  for (std::int64_t r = begin; r < end; ++r) {
    const float* from = x.data + r * x.stride;
    float* to = y.data + r * y.stride;
    for_each_vector(d, x.width, [&](auto partial, std::int64_t j, std::size_t count) HWY_ATTR {
      store(d, partial, hn::MulAdd(load(d, partial, from + j, count), by, load(d, partial, to + j, count)), to + j,
            count);
    });
  }
}

// All rows, columns [first, last): four rows a pass, each added in turn.
void sum_columns(Rows x, float* sums, std::int64_t first, std::int64_t last) {
  const Tag d;
  const std::int64_t stride = x.stride;
  std::int64_t r = 0;
  for (; r + 4 <= x.rows; r += 4) {
    const float* from = x.data + r * stride + first;
    for_each_vector(d, last - first, [&](auto partial, std::int64_t j, std::size_t count) HWY_ATTR {
      auto total = load(d, partial, sums + first + j, count);
      for (std::int64_t i = 0; i < 4; ++i) total = hn::Add(total, load(d, partial, from + i * stride + j, count));
      store(d, partial, total, sums + first + j, count);
    });
  }
  for (; r < x.rows; ++r) {
    const float* from = x.data + r * stride + first;
    for_each_vector(d, last - first, [&](auto partial, std::int64_t j, std::size_t count) HWY_ATTR {
      store(d, partial, hn::Add(load(d, partial, sums + first + j, count), load(d, partial, from + j, count)),
            sums + first + j, count);
    });
  }
}

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace attend
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace attend {
namespace {
HWY_EXPORT(gather_range);
HWY_EXPORT(scatter_columns);
HWY_EXPORT(add_range);
HWY_EXPORT(accumulate_range);
HWY_EXPORT(sum_columns);

// Runs body(first, last) over ranges of columns, whole cache lines each, for sums that go down the rows.
template <typename Body>
void parallel_columns(std::int64_t rows, std::int64_t width, const Body& body) {
  constexpr std::int64_t line = 16;
  const std::int64_t grain = std::max<std::int64_t>(2, 16384 / std::max<std::int64_t>(1, rows) / line);
  parallel_ranges((width + line - 1) / line, grain,
                  [&](std::int64_t begin, std::int64_t end, int) { body(begin * line, std::min(width, end * line)); });
}

}  // namespace

void gather_rows(const float* table, std::int64_t width, std::span<const std::int32_t> ids, float scale,
                 MutableRows y) {
  const auto function = HWY_DYNAMIC_DISPATCH(gather_range);
  parallel_ranges(
      static_cast<std::int64_t>(ids.size()), rows_grain(width),
      [&](std::int64_t begin, std::int64_t end, int) { function(table, width, ids.data(), scale, y, begin, end); });
}

void scatter_add_rows(Rows y_gradient, std::span<const std::int32_t> ids, float scale, float* table_gradient) {
  // Columns, not rows, are shared out: so every sum is in the order of the rows, whichever ids meet.
  const auto function = HWY_DYNAMIC_DISPATCH(scatter_columns);
  Rows rows = y_gradient;
  rows.rows = static_cast<std::int64_t>(ids.size());
  parallel_columns(rows.rows, rows.width, [&](std::int64_t first, std::int64_t last) {
    function(rows, ids.data(), scale, table_gradient, first, last);
  });
}

void add_rows(Rows a, Rows b, MutableRows y) {
  const auto function = HWY_DYNAMIC_DISPATCH(add_range);
  parallel_ranges(a.rows, rows_grain(a.width),
                  [&](std::int64_t begin, std::int64_t end, int) { function(a, b, y, begin, end); });
}

void accumulate_rows(Rows x, float scale, MutableRows y) {
  const auto function = HWY_DYNAMIC_DISPATCH(accumulate_range);
  parallel_ranges(x.rows, rows_grain(x.width),
                  [&](std::int64_t begin, std::int64_t end, int) { function(x, scale, y, begin, end); });
}

void sum_over_rows(Rows x, float* sums) {
  const auto function = HWY_DYNAMIC_DISPATCH(sum_columns);
  parallel_columns(x.rows, x.width, [&](std::int64_t first, std::int64_t last) { function(x, sums, first, last); });
}

}  // namespace attend
#endif
