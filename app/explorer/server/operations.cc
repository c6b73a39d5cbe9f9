#include "explorer/operations.h"

#include <algorithm>

#include "attend/model.h"
#include "attend/ops.h"
#include "explorer/api_error.h"
#include "explorer/workbench.h"

namespace attend::explorer {
namespace {

Tensor needed(Fields& fields, const char* name, const Limits& limits) {
  fields.need(name);
  return fields.matrix(name, limits);
}

// A vector of one number a column, `otherwise` where it is absent.
Tensor row_vector(Fields& fields, const char* name, std::int64_t width, float otherwise, const Limits& limits) {
  const Tensor found = fields.vector(name, limits);
  if (!found.defined()) return Tensor::filled({width}, otherwise);
  if (found.elements() != width)
    throw Error(ErrorKind::shape, fields.path(name), join("has ", found.elements(), " numbers and a row of a ", width));
  return found;
}

void check_cells(std::int64_t rows, std::int64_t columns, const Limits& limits) {
  if (rows * columns > limits.cells) throw over_limit("operation", "cells", rows * columns, limits.cells);
}

// Without an epsilon a norm divides by what a row of equal numbers (or of zeros, for rms_norm) has none of.
void need_spread(const Tensor& a, bool centred) {
  for (std::int64_t row = 0; row < a.rows(); ++row) {
    const float* x = a.row(row);
    const float still = centred ? x[0] : 0;
    if (std::all_of(x, x + a.width(), [&](float value) { return value == still; }))
      throw RequestError(ErrorKind::numeric, join("a[", row, ']'),
                         centred ? "holds equal numbers: their variance is 0, and the norm divides by its root"
                                 : "holds zeros only, and the norm divides by their root mean square",
                         "let the numbers differ, or give an epsilon above 0",
                         detail(centred ? "no_spread" : "all_zero", row));
  }
}

double base_of(Fields& fields) {
  const double base = fields.number("base", 10000);
  if (base < 1)
    throw Error(ErrorKind::argument, fields.path("base"), join("is ", base), "it must be 1 or more; 10000 is usual");
  return base;
}

Tensor compute(const Json& body, const Limits& limits) {
  Fields fields(body, "");
  fields.text("client", "");
  fields.integer("sequence", 0, INT64_MAX, 0);
  const std::string name = fields.choice("name", {"product", "add", "softmax", "layer_norm", "rms_norm", "relu", "gelu",
                                                  "silu", "rotate", "sinusoid", "normal"});
  // All fields are read and judged before anything is computed.
  if (name == "product" || name == "add") {
    const Tensor a = needed(fields, "a", limits), b = needed(fields, "b", limits);
    fields.finish();
    if (name == "add") return add(a, b);
    if (a.width() != b.rows())
      throw Error(ErrorKind::shape, "product", join("a is ", a.shape(), " and b is ", b.shape()),
                  "b needs as many rows as a has columns");
    check_cells(a.rows(), b.width(), limits);
    return matrix_product(a, b);
  }
  if (name == "layer_norm" || name == "rms_norm") {
    const Tensor a = needed(fields, "a", limits);
    const Tensor gain = row_vector(fields, "gain", a.width(), 1, limits);
    const Tensor bias = name == "layer_norm" ? row_vector(fields, "bias", a.width(), 0, limits) : Tensor();
    const float epsilon = fields.number("epsilon", 0);
    fields.finish();
    if (epsilon < 0) throw Error(ErrorKind::argument, "epsilon", join("is ", epsilon), "it must be 0 or more");
    if (epsilon == 0) need_spread(a, name == "layer_norm");
    return name == "layer_norm" ? layer_norm(a, gain, bias, epsilon) : rms_norm(a, gain, epsilon);
  }
  if (name == "rotate") {
    const Tensor a = needed(fields, "a", limits);
    const double base = base_of(fields);
    const Pairing pairing = fields.choice("pairing", {"halves", "interleaved"}, "halves") == "halves"
                                ? Pairing::halves
                                : Pairing::interleaved;
    fields.need("positions");
    const std::vector<std::int64_t> positions = fields.integers("positions", 0, last_rotary_position, limits.rows);
    fields.finish();
    if (static_cast<std::int64_t>(positions.size()) != a.rows())
      throw Error(ErrorKind::shape, "positions",
                  join("has ", positions.size(), " numbers and a has ", a.rows(), " rows"));
    if (a.width() % 2 != 0)
      throw Error(ErrorKind::shape, "a", join("has ", a.width(), " columns, which make no pairs"),
                  "use an even number");
    std::int64_t last = 0;
    for (const std::int64_t position : positions) last = std::max(last, position);
    const std::vector<std::int32_t> rows(positions.begin(), positions.end());
    return rotate_heads(a, 1, a.width(), pairing, rotation_for(last, a.width(), base), rows);
  }
  if (name == "sinusoid") {
    TransformerConfig config;
    config.max_positions = fields.integer("rows", 1, limits.rows);
    config.width = fields.integer("width", 1, limits.rows);
    config.first_position = fields.integer("first", 0, last_rotary_position, 0);
    config.position_base = base_of(fields);
    config.sinusoid_layout = fields.choice("layout", {"interleaved", "halves"}, "interleaved") == "halves"
                                 ? SinusoidLayout::halves
                                 : SinusoidLayout::interleaved;
    fields.finish();
    check_cells(config.max_positions, config.width, limits);
    return sinusoid_table(config);
  }
  if (name == "normal") {
    const std::int64_t rows = fields.integer("rows", 1, limits.rows),
                       columns = fields.integer("columns", 1, limits.rows);
    const std::int64_t seed = fields.integer("seed", 0, INT64_MAX);
    const float deviation = fields.number("deviation", 1);
    fields.finish();
    check_cells(rows, columns, limits);
    return normal({rows, columns}, deviation, static_cast<std::uint64_t>(seed));
  }
  const Tensor a = needed(fields, "a", limits);
  fields.finish();
  if (name == "softmax") return softmax(a);
  return activate(a, name == "relu" ? Activation::relu : name == "gelu" ? Activation::gelu : Activation::silu);
}

}  // namespace

Tensor run_operation(const Json& body, const Limits& limits) {
  Tensor output = compute(body, limits);
  check_finite("output", output);
  return output;
}

}  // namespace attend::explorer
