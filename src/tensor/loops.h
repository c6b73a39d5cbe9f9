// Small helpers shared by the operations: tensors as kernel rows, element loops, and the usual checks.
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <initializer_list>
#include <string>

#include "attend/tape.h"
#include "attend/tensor.h"
#include "core/threads.h"
#include "kernel/rowwise/rowwise.h"

namespace attend {

// Below this many floats one thread is done before a second one has woken up.
inline constexpr std::int64_t element_grain = 1 << 14;

inline std::int64_t rows_grain(std::int64_t width) {
  return std::max<std::int64_t>(1, element_grain / std::max<std::int64_t>(1, width));
}

inline Rows rows_of(const Tensor& x) { return {x.data(), x.rows(), x.width(), x.row_stride()}; }
inline MutableRows rows_to(Tensor& y) { return {y.data(), y.rows(), y.width(), y.row_stride()}; }

// y = f(x...) element by element, or y += f(x...) when not overwriting. All of the same shape.
template <typename Function, typename... Inputs>
void map_into(Tensor& y, bool overwrite, Function f, const Inputs&... x) {
  const auto loop = [&](float* out, std::int64_t count, const auto*... in) {
    if (overwrite) {
      for (std::int64_t i = 0; i < count; ++i) out[i] = f(in[i]...);
    } else {
      for (std::int64_t i = 0; i < count; ++i) out[i] += f(in[i]...);
    }
  };
  if (y.contiguous() && (x.contiguous() && ...)) {
    parallel_ranges(y.elements(), element_grain, [&](std::int64_t begin, std::int64_t end, int) {
      loop(y.data() + begin, end - begin, (x.data() + begin)...);
    });
  } else {
    const std::int64_t width = y.width();
    parallel_ranges(y.rows(), rows_grain(width), [&](std::int64_t begin, std::int64_t end, int) {
      for (std::int64_t row = begin; row < end; ++row) loop(y.row(row), width, x.row(row)...);
    });
  }
}

// y = x * factor when overwriting, else y += x * factor.
inline void add_to(Tensor& y, bool overwrite, const Tensor& x, float factor = 1) {
  if (!overwrite) {
    accumulate_rows(rows_of(x), factor, rows_to(y));
  } else {
    map_into(
        y, true, [factor](float value) { return value * factor; }, x);
  }
}

// Dot product of one row with eight partial sums, always in the same order.
inline float dot(const float* a, const float* b, std::int64_t count) {
  float sums[8] = {};
  std::int64_t i = 0;
  for (; i + 8 <= count; i += 8)
    for (int lane = 0; lane < 8; ++lane) sums[lane] += a[i + lane] * b[i + lane];
  for (; i < count; ++i) sums[0] += a[i] * b[i];
  return ((sums[0] + sums[4]) + (sums[2] + sums[6])) + ((sums[1] + sums[5]) + (sums[3] + sums[7]));
}

inline Shape with_width(const Shape& shape, std::int64_t width) {
  switch (shape.axes()) {
    case 0:
    case 1:
      return {width};
    case 2:
      return {shape[0], width};
    case 3:
      return {shape[0], shape[1], width};
    default:
      return {shape[0], shape[1], shape[2], width};
  }
}

// The tape to record on, or null when nothing records or none of the inputs leads to a watched leaf.
inline Tape* tape_for(std::initializer_list<const Tensor*> inputs) {
  Tape* tape = Tape::recording();
  if (tape == nullptr) return nullptr;
  for (const Tensor* input : inputs)
    if (input->defined() && tape->tracks(*input)) return tape;
  return nullptr;
}

inline std::string shape_text(const Tensor& x) { return x.defined() ? join(x.shape()) : "undefined"; }

inline void require_defined(const char* where, const char* name, const Tensor& x) {
  if (!x.defined()) throw Error(ErrorKind::shape, where, join(name, " is undefined"));
}

inline void require_same_shape(const char* where, const char* a_name, const Tensor& a, const char* b_name,
                               const Tensor& b) {
  if (!a.defined() || !b.defined() || !(a.shape() == b.shape()))
    throw Error(ErrorKind::shape, where, join(a_name, " is ", shape_text(a), " and ", b_name, " is ", shape_text(b)),
                "both must have the same shape");
}

// A vector of one number a column of x, without gaps.
inline void require_columns(const char* where, const char* name, const Tensor& vector, const char* x_name,
                            const Tensor& x) {
  if (!vector.defined() || vector.elements() != x.width() || !vector.contiguous())
    throw Error(ErrorKind::shape, where, join(name, " is ", shape_text(vector), " and ", x_name, " is ", shape_text(x)),
                join(name, " must be [", x.width(), "], one number a column"));
}

inline void require_matrix(const char* where, const char* name, const Tensor& x) {
  if (!x.defined() || x.shape().axes() != 2)
    throw Error(ErrorKind::shape, where, join(name, " is ", shape_text(x)), join(name, " must have two axes"));
}

}  // namespace attend
