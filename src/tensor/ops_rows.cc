// Rows: embedding, selecting, joining, averaging, rotary positions.
#include <algorithm>
#include <utility>
#include <vector>

#include "attend/ops.h"
#include "core/random.h"
#include "tensor/loops.h"

namespace attend {

Tensor embed(const Tensor& table, std::span<const std::int32_t> ids, float factor) {
  require_matrix("embed", "table", table);
  if (!table.contiguous())
    throw Error(ErrorKind::shape, "embed", join("table ", table.shape(), " has gaps between its rows"),
                "clone() it first");
  const std::int64_t count = table.shape()[0];
  for (std::size_t row = 0; row < ids.size(); ++row)
    if (ids[row] < 0 || ids[row] >= count)
      throw Error(ErrorKind::argument, "embed", join("row ", row, " has id ", ids[row]),
                  join("the table ", table.shape(), " takes ids 0 to ", count - 1));
  Tensor y = Tensor::empty({static_cast<std::int64_t>(ids.size()), table.width()});
  gather_rows(table.data(), table.width(), ids, factor, rows_to(y));
  if (Tape* tape = tape_for({&table})) {
    tape->record(y, [output = y.place(), table_place = table.place(),
                     kept_ids = std::vector<std::int32_t>(ids.begin(), ids.end()), factor](Tape& steps) {
      const Tensor dy = steps.gradient_of_output(output);
      Tensor table_gradient = steps.gradient_of_input(table_place);
      scatter_add_rows(rows_of(dy), kept_ids, factor, table_gradient.data());
    });
  }
  return y;
}

Tensor normal(Shape shape, float deviation, std::uint64_t seed) {
  Tensor y = Tensor::empty(shape);
  Random random(seed);
  for (std::int64_t i = 0; i < y.elements(); ++i) y.data()[i] = deviation * static_cast<float>(random.normal());
  return y;
}

Tensor select_rows(const Tensor& x, std::span<const std::int64_t> rows) {
  require_matrix("select_rows", "x", x);
  const std::int64_t width = x.width();
  for (std::size_t index = 0; index < rows.size(); ++index)
    if (rows[index] < 0 || rows[index] >= x.rows())
      throw Error(ErrorKind::argument, "select_rows", join("entry ", index, " asks for row ", rows[index]),
                  join("x is ", x.shape()));
  Tensor y = Tensor::empty({static_cast<std::int64_t>(rows.size()), width});
  parallel_ranges(y.rows(), rows_grain(width), [&](std::int64_t begin, std::int64_t end, int) {
    for (std::int64_t row = begin; row < end; ++row)
      std::copy_n(x.row(rows[static_cast<std::size_t>(row)]), width, y.row(row));
  });
  if (Tape* tape = tape_for({&x})) {
    tape->record(y, [output = y.place(), input = x.place(),
                     kept_rows = std::vector<std::int64_t>(rows.begin(), rows.end())](Tape& steps) {
      const Tensor dy = steps.gradient_of_output(output);
      Tensor dx = steps.gradient_of_input(input);
      // A row may be asked for several times, so the columns are split over the threads, not the rows.
      parallel_ranges(dy.width(), rows_grain(dy.rows()), [&](std::int64_t begin, std::int64_t end, int) {
        for (std::size_t index = 0; index < kept_rows.size(); ++index) {
          const float* from = dy.row(static_cast<std::int64_t>(index));
          float* to = dx.row(kept_rows[index]);
          for (std::int64_t i = begin; i < end; ++i) to[i] += from[i];
        }
      });
    });
  }
  return y;
}

namespace {

void copy_into(Tensor target, const Tensor& x) {
  map_into(
      target, true, [](float value) { return value; }, x);
}

}  // namespace

Tensor join_rows(const Tensor& a, const Tensor& b) {
  require_matrix("join_rows", "a", a);
  require_matrix("join_rows", "b", b);
  if (a.width() != b.width())
    throw Error(ErrorKind::shape, "join_rows", join("a is ", a.shape(), " and b is ", b.shape()),
                "both must have the same width");
  Tensor y = Tensor::empty({a.rows() + b.rows(), a.width()});
  copy_into(y.row_range(0, a.rows()), a);
  copy_into(y.row_range(a.rows(), b.rows()), b);
  if (Tape* tape = tape_for({&a, &b})) {
    tape->record(y, [output = y.place(), a_place = a.place(), b_place = b.place()](Tape& steps) {
      const Tensor dy = steps.gradient_of_output(output);
      bool first = false;
      if (Tensor da = steps.gradient_of_input(a_place, &first); da.defined())
        add_to(da, first, dy.row_range(0, a_place.rows()));
      if (Tensor db = steps.gradient_of_input(b_place, &first); db.defined())
        add_to(db, first, dy.row_range(a_place.rows(), b_place.rows()));
    });
  }
  return y;
}

Tensor join_columns(const Tensor& a, const Tensor& b) {
  require_matrix("join_columns", "a", a);
  require_matrix("join_columns", "b", b);
  if (a.rows() != b.rows())
    throw Error(ErrorKind::shape, "join_columns", join("a is ", a.shape(), " and b is ", b.shape()),
                "both must have the same rows");
  Tensor y = Tensor::empty({a.rows(), a.width() + b.width()});
  copy_into(y.columns(0, a.width()), a);
  copy_into(y.columns(a.width(), b.width()), b);
  if (Tape* tape = tape_for({&a, &b})) {
    tape->record(y, [output = y.place(), a_place = a.place(), b_place = b.place()](Tape& steps) {
      const Tensor dy = steps.gradient_of_output(output);
      bool first = false;
      if (Tensor da = steps.gradient_of_input(a_place, &first); da.defined())
        add_to(da, first, dy.columns(0, a_place.width()));
      if (Tensor db = steps.gradient_of_input(b_place, &first); db.defined())
        add_to(db, first, dy.columns(a_place.width(), b_place.width()));
    });
  }
  return y;
}

Tensor mean_rows(const Tensor& x, std::span<const std::int64_t> offsets) {
  require_matrix("mean_rows", "x", x);
  if (offsets.empty() || offsets.front() < 0 || offsets.back() > x.rows() ||
      !std::is_sorted(offsets.begin(), offsets.end()))
    throw Error(ErrorKind::argument, "mean_rows", join(offsets.size(), " offsets for x ", x.shape()),
                join("give ascending offsets from 0 to ", x.rows(), ", one more than items"));
  const std::int64_t items = static_cast<std::int64_t>(offsets.size()) - 1, width = x.width();
  Tensor y = Tensor::zeros({items, width});
  parallel_for(items, [&](std::int64_t item, int) {
    const std::int64_t begin = offsets[static_cast<std::size_t>(item)],
                       end = offsets[static_cast<std::size_t>(item) + 1];
    if (begin == end) return;
    float* out = y.row(item);
    for (std::int64_t row = begin; row < end; ++row)
      for (std::int64_t i = 0; i < width; ++i) out[i] += x.row(row)[i];
    for (std::int64_t i = 0; i < width; ++i) out[i] /= static_cast<float>(end - begin);
  });
  if (Tape* tape = tape_for({&x})) {
    tape->record(y, [output = y.place(), input = x.place(),
                     kept_offsets = std::vector<std::int64_t>(offsets.begin(), offsets.end())](Tape& steps) {
      const Tensor dy = steps.gradient_of_output(output);
      Tensor dx = steps.gradient_of_input(input);
      parallel_for(dy.rows(), [&](std::int64_t item, int) {
        const std::int64_t begin = kept_offsets[static_cast<std::size_t>(item)];
        const std::int64_t end = kept_offsets[static_cast<std::size_t>(item) + 1];
        const float* from = dy.row(item);
        const float share = 1 / static_cast<float>(end - begin);
        for (std::int64_t row = begin; row < end; ++row)
          for (std::int64_t i = 0; i < dy.width(); ++i) dx.row(row)[i] += from[i] * share;
      });
    });
  }
  return y;
}

namespace {

// factor * sum of all elements: a double sum a row, then the rows in order.
Tensor scaled_sum(const char* where, const Tensor& x, float factor) {
  require_defined(where, "x", x);
  const std::int64_t width = x.width();
  std::vector<double> sums(static_cast<std::size_t>(x.rows()));
  parallel_ranges(x.rows(), rows_grain(width), [&](std::int64_t begin, std::int64_t end, int) {
    for (std::int64_t row = begin; row < end; ++row) {
      double total = 0;
      for (std::int64_t i = 0; i < width; ++i) total += x.row(row)[i];
      sums[static_cast<std::size_t>(row)] = total;
    }
  });
  double total = 0;
  for (double row : sums) total += row;
  Tensor y = Tensor::filled({1}, static_cast<float>(total * factor));
  if (Tape* tape = tape_for({&x})) {
    tape->record(y, [output = y.place(), input = x.place(), factor](Tape& steps) {
      const float gradient = steps.gradient_of_output(output).item() * factor;
      bool first = false;
      Tensor dx = steps.gradient_of_input(input, &first);
      map_into(dx, first, [gradient] { return gradient; });
    });
  }
  return y;
}

}  // namespace

Tensor sum(const Tensor& x) { return scaled_sum("sum", x, 1); }

Tensor mean(const Tensor& x) {
  if (x.defined() && x.elements() == 0)
    throw Error(ErrorKind::shape, "mean", join("x is ", x.shape(), ", without elements"));
  return scaled_sum("mean", x, x.defined() ? 1 / static_cast<float>(x.elements()) : 1);
}

Tensor rotation_table(std::int64_t positions, std::int64_t rotary_dim, double base) {
  if (positions < 0 || rotary_dim <= 0 || rotary_dim % 2 != 0 || !(base > 0))
    throw Error(ErrorKind::argument, "rotation_table",
                join(positions, " positions, rotary_dim ", rotary_dim, ", base ", base),
                "rotary_dim must be even and above 0, base above 0");
  Tensor table = Tensor::empty({positions, rotary_dim / 2, 2});
  make_rotation(positions, rotary_dim, base, table.data());
  return table;
}

Tensor rotate_heads(Tensor x, std::int64_t heads, std::int64_t rotary_dim, Pairing pairing, const Tensor& table,
                    std::span<const std::int32_t> positions) {
  require_defined("rotate_heads", "x", x);
  require_defined("rotate_heads", "table", table);
  if (heads <= 0 || x.width() % heads != 0)
    throw Error(ErrorKind::shape, "rotate_heads", join("x is ", x.shape(), " for ", heads, " heads"),
                "the width must be a multiple of the heads");
  const std::int64_t head_dim = x.width() / heads;
  if (rotary_dim <= 0 || rotary_dim % 2 != 0 || rotary_dim > head_dim)
    throw Error(ErrorKind::shape, "rotate_heads", join("rotary_dim ", rotary_dim, " with heads of ", head_dim),
                "rotary_dim must be even and at most the size of a head");
  if (table.shape().axes() != 3 || table.shape()[1] != rotary_dim / 2 || table.shape()[2] != 2 || !table.contiguous())
    throw Error(ErrorKind::shape, "rotate_heads", join("the table is ", table.shape(), " for rotary_dim ", rotary_dim),
                "make it with rotation_table()");
  if (static_cast<std::int64_t>(positions.size()) != x.rows())
    throw Error(ErrorKind::shape, "rotate_heads", join(positions.size(), " positions for x ", x.shape()),
                "give one a row");
  for (std::size_t row = 0; row < positions.size(); ++row)
    if (positions[row] < 0 || positions[row] >= table.shape()[0])
      throw Error(ErrorKind::argument, "rotate_heads", join("row ", row, " has position ", positions[row]),
                  join("the table holds positions 0 to ", table.shape()[0] - 1));
  Tape* tape = tape_for({&x});
  if (tape != nullptr && tape->watches(x))
    throw Error(ErrorKind::argument, "rotate_heads",
                join("x ", x.shape(), " is a watched leaf and would be overwritten"), "clone() it first");

  rotate(x.data(), x.rows(), x.row_stride(), heads, head_dim, rotary_dim, pairing, table.data(), positions.data(),
         false);
  if (tape != nullptr) {
    // The gradient is turned back where it lies: below this step it belongs to the value before the rotation.
    tape->record(x, [output = x.place(), heads, head_dim, rotary_dim, pairing, table,
                     kept_positions = std::vector<std::int32_t>(positions.begin(), positions.end())](Tape& steps) {
      Tensor gradient = steps.gradient_of_output(output);
      rotate(gradient.data(), gradient.rows(), gradient.row_stride(), heads, head_dim, rotary_dim, pairing,
             table.data(), kept_positions.data(), true);
    });
  }
  return x;
}

}  // namespace attend
