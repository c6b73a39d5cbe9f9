#include "explorer/workbench.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <mutex>
#include <utility>

#include "explorer/api_error.h"

namespace attend::explorer {
namespace {

void read_mask(const Json& list, WorkbenchRequest& request, const Limits& limits) {
  if (!list.is_array()) throw Error(ErrorKind::argument, "mask", "is no array of rules", "give [] for no mask");
  if (list.size() > 16) throw over_limit("mask", "rules", list.size(), 16);
  for (std::size_t i = 0; i < list.size(); ++i) {
    Fields fields(list[i], join("mask[", i, ']'));
    const std::string rule = fields.choice("rule", {"causal", "window", "lengths", "prefix", "dense"});
    if (rule == "causal") {
      request.causal = true;
    } else if (rule == "window") {
      request.windows.push_back({fields.integer("before", 0, INT32_MAX), fields.integer("after", 0, INT32_MAX)});
    } else if (rule == "lengths") {
      request.lengths.push_back(fields.integer("length", 0, INT32_MAX));
    } else if (rule == "prefix") {
      request.prefixes.push_back(fields.integer("length", 0, INT32_MAX));
    } else {
      const Tensor cells = fields.matrix("allowed", limits);
      if (!cells.defined()) throw Error(ErrorKind::argument, fields.path("allowed"), "is missing");
      std::vector<std::uint8_t> allowed;
      for (const float cell : cells.to_vector()) allowed.push_back(cell != 0);
      request.allowed.push_back(std::move(allowed));
      request.allowed_shapes.push_back(cells.shape());
    }
    fields.finish();
  }
}

void read_positions(const Json& value, WorkbenchRequest& request) {
  Fields fields(value, "positions");
  request.rotary = fields.choice("kind", {"none", "rotary"}) == "rotary";
  request.base = fields.number("base", 10000);
  if (request.base < 1)
    throw Error(ErrorKind::argument, "positions.base", join("is ", request.base),
                "it must be 1 or more; 10000 is usual");
  request.pairing = fields.choice("pairing", {"halves", "interleaved"}, "halves") == "halves" ? Pairing::halves
                                                                                              : Pairing::interleaved;
  request.first_query = fields.integer("first_query", 0, last_rotary_position, 0);
  request.first_key = fields.integer("first_key", 0, last_rotary_position, 0);
  fields.finish();
}

void read_edits(const Json& list, WorkbenchRequest& request, const Limits& limits) {
  if (!list.is_array()) throw Error(ErrorKind::argument, "edits", "is no array of edits", "give [] for none");
  if (static_cast<std::int64_t>(list.size()) > limits.edits)
    throw over_limit("edits", "edits", list.size(), limits.edits);
  for (std::size_t i = 0; i < list.size(); ++i) {
    Fields fields(list[i], join("edits[", i, ']'));
    ScoreEdit edit;
    const std::string kind = fields.choice("kind", {"set", "add", "scale", "forbid", "lock"});
    edit.kind = kind == "set"     ? ScoreEdit::Kind::set
                : kind == "add"   ? ScoreEdit::Kind::add
                : kind == "scale" ? ScoreEdit::Kind::scale
                : kind == "lock"  ? ScoreEdit::Kind::lock
                                  : ScoreEdit::Kind::forbid;
    edit.head = fields.integer("head", -1, INT32_MAX, -1);
    edit.query = fields.integer("query", -1, INT32_MAX, -1);
    edit.key = fields.integer("key", -1, INT32_MAX, -1);
    if (edit.kind != ScoreEdit::Kind::forbid) edit.value = fields.number("value");
    fields.text("name", "");
    const bool off = fields.flag("off", false);
    fields.finish();
    if (!off) request.edits.push_back(edit);
  }
}

void need_product(const char* rows_name, const Tensor& rows, const char* weight_name, const Tensor& weight) {
  if (rows.width() != weight.shape()[0])
    throw RequestError(
        ErrorKind::shape, weight_name, join("is ", weight.shape(), " and ", rows_name, " is ", rows.shape()),
        join("it needs ", rows.width(), " rows"), detail("weight_rows", weight.shape()[0], rows.width()));
}

std::int64_t head_size(const char* name, const Tensor& x, std::int64_t heads) {
  if (x.width() % heads != 0)
    throw RequestError(ErrorKind::shape, name, join("has ", x.width(), " columns for ", heads, " heads"),
                       "the columns must be heads times the size of a head", detail("head_columns", x.width(), heads));
  return x.width() / heads;
}

// The columns of one head, as a tensor of its own.
Tensor head_columns(const Tensor& x, std::int64_t head, std::int64_t size) {
  return x.columns(head * size, size).clone();
}

}  // namespace

Tensor rotation_for(std::int64_t last_position, std::int64_t rotary_dim, double base) {
  struct Kept {
    Tensor table;
    std::int64_t positions = 0, dim = 0;
    double base = 0;
  };
  static std::mutex mutex;
  static Kept kept;
  // A far dial on wide rows makes a table for itself alone: 128 MB would stay for good.
  constexpr std::int64_t most_kept = std::int64_t{4} << 20;
  if ((last_position + 1) * rotary_dim > most_kept) return rotation_table(last_position + 1, rotary_dim, base);
  std::lock_guard lock(mutex);
  if (kept.positions <= last_position || kept.dim != rotary_dim || kept.base != base) {
    // In powers of two, so that a dial that turns further seldom makes a new table.
    kept.positions = static_cast<std::int64_t>(
        std::bit_ceil(static_cast<std::uint64_t>(std::max<std::int64_t>(last_position + 1, 1024))));
    kept.dim = rotary_dim;
    kept.base = base;
    kept.table = rotation_table(kept.positions, rotary_dim, base);
  }
  return kept.table;
}

void check_finite(const char* name, const Tensor& tensor) {
  for (std::int64_t row = 0; row < tensor.rows(); ++row)
    for (std::int64_t column = 0; column < tensor.width(); ++column)
      if (!std::isfinite(tensor.at(row, column)))
        throw RequestError(ErrorKind::numeric, name,
                           join("row ", row, ", column ", column, " is beyond what float32 can hold"),
                           "use smaller numbers", detail("beyond_float32", std::vector<std::int64_t>{row, column}));
}

WorkbenchRequest workbench_request(const Json& body, const Limits& limits) {
  Fields fields(body, "");
  WorkbenchRequest request;
  fields.text("client", "");
  fields.integer("sequence", 0, INT64_MAX, 0);
  request.x = fields.matrix("x", limits);
  request.memory = fields.matrix("memory", limits);
  request.query_weight = fields.matrix("query_weight", limits);
  request.key_weight = fields.matrix("key_weight", limits);
  request.value_weight = fields.matrix("value_weight", limits);
  request.query = fields.matrix("query", limits);
  request.key = fields.matrix("key", limits);
  request.value = fields.matrix("value", limits);
  request.output_weight = fields.matrix("output_weight", limits);
  request.heads = fields.integer("heads", 1, 64, 1);
  request.key_heads = fields.integer("key_heads", 1, 64, request.heads);
  if (fields.find("scale")) {
    request.scale = fields.number("scale");
    if (request.scale == 0)
      throw RequestError(ErrorKind::argument, "scale", "is 0, which makes all scores alike",
                         "leave it out for 1 / sqrt(head_dim)", detail("scale_zero"));
  }
  if (const Json* mask = fields.find("mask")) read_mask(*mask, request, limits);
  if (const Json* positions = fields.find("positions")) read_positions(*positions, request);
  if (const Json* edits = fields.find("edits")) read_edits(*edits, request, limits);
  fields.finish();

  const bool made = request.x.defined();
  const struct {
    const char* name;
    const Tensor& tensor;
    bool needed, allowed;
  } matrices[] = {{"x", request.x, made, made},
                  {"memory", request.memory, false, made},
                  {"query_weight", request.query_weight, made, made},
                  {"key_weight", request.key_weight, made, made},
                  {"value_weight", request.value_weight, made, made},
                  {"query", request.query, !made, !made},
                  {"key", request.key, !made, !made},
                  {"value", request.value, !made, !made}};
  for (const auto& matrix : matrices) {
    if (matrix.needed && !matrix.tensor.defined())
      throw Error(ErrorKind::argument, matrix.name, "is missing",
                  "give x, query_weight, key_weight and value_weight, or query, key and value");
    if (!matrix.allowed && matrix.tensor.defined())
      throw Error(ErrorKind::argument, matrix.name, made ? "is given beside x" : "is given without x",
                  "give x, query_weight, key_weight and value_weight, or query, key and value");
  }
  return request;
}

namespace {

// Sizes that have been checked against each other.
struct Sizes {
  std::int64_t queries = 0, keys = 0, head_dim = 0, value_dim = 0;
};

// Queries, keys and values as given, or made of the rows of x.
void project(const WorkbenchRequest& request, WorkbenchResult& result) {
  if (!request.x.defined()) {
    result.query = request.query;
    result.key = request.key;
    result.value = request.value;
    return;
  }
  const Tensor& memory = request.memory.defined() ? request.memory : request.x;
  const char* memory_name = request.memory.defined() ? "memory" : "x";
  need_product("x", request.x, "query_weight", request.query_weight);
  need_product(memory_name, memory, "key_weight", request.key_weight);
  need_product(memory_name, memory, "value_weight", request.value_weight);
  result.query = matrix_product(request.x, request.query_weight);
  result.key = matrix_product(memory, request.key_weight);
  result.value = matrix_product(memory, request.value_weight);
}

Sizes sizes_of(const WorkbenchRequest& request, const WorkbenchResult& result, const Limits& limits) {
  const bool made = request.x.defined();
  Sizes sizes;
  sizes.queries = result.query.rows();
  sizes.keys = result.key.rows();
  if (request.heads % request.key_heads != 0)
    throw Error(ErrorKind::shape, "heads", join("is ", request.heads, " and key_heads ", request.key_heads),
                "heads must be a multiple of key_heads");
  sizes.head_dim = head_size(made ? "query_weight" : "query", result.query, request.heads);
  sizes.value_dim = head_size(made ? "value_weight" : "value", result.value, request.key_heads);
  const std::int64_t key_columns = request.key_heads * sizes.head_dim;
  if (result.key.width() != key_columns)
    throw RequestError(ErrorKind::shape, made ? "key_weight" : "key",
                       join("gives keys of ", result.key.width(), " columns for ", request.key_heads, " heads"),
                       join("it needs ", key_columns, ": a key is as long as a query (", sizes.head_dim, ")"),
                       detail("key_columns", result.key.width(), key_columns));
  if (result.value.rows() != sizes.keys)
    throw RequestError(ErrorKind::shape, "value", join("has ", result.value.rows(), " rows and key ", sizes.keys),
                       "give every key a value", detail("value_rows", result.value.rows(), sizes.keys));
  const std::int64_t cells = request.heads * sizes.queries * sizes.keys;
  if (cells > limits.cells) throw over_limit("attention", "heads x queries x keys", cells, limits.cells);
  return sizes;
}

void rotate(const WorkbenchRequest& request, const Sizes& sizes, WorkbenchResult& result) {
  if (sizes.head_dim % 2 != 0)
    throw RequestError(ErrorKind::shape, "positions", join("turn pairs of numbers, and a head has ", sizes.head_dim),
                       "use an even size of a head", detail("odd_head", sizes.head_dim));
  const auto turn = [&](const Tensor& x, std::int64_t heads, std::int64_t first) {
    std::vector<std::int32_t> positions;
    for (std::int64_t row = 0; row < x.rows(); ++row) positions.push_back(static_cast<std::int32_t>(first + row));
    return rotate_heads(x.clone(), heads, sizes.head_dim, request.pairing,
                        rotation_for(first + x.rows(), sizes.head_dim, request.base), positions);
  };
  result.rotated_query = turn(result.query, request.heads, request.first_query);
  result.rotated_key = turn(result.key, request.key_heads, request.first_key);
}

// The rules point into the request.
Mask mask_of(const WorkbenchRequest& request, const Sizes& sizes) {
  Mask mask;
  if (request.causal) mask.emplace_back(CausalRule{});
  for (const WindowRule& window : request.windows) mask.emplace_back(window);
  for (const std::int64_t& length : request.lengths) mask.emplace_back(KeyLengthsRule{std::span(&length, 1)});
  for (const std::int64_t& length : request.prefixes) mask.emplace_back(PrefixRule{std::span(&length, 1)});
  for (std::size_t i = 0; i < request.allowed.size(); ++i) {
    const Shape& shape = request.allowed_shapes[i];
    if (!(shape == Shape{sizes.queries, sizes.keys}))
      throw RequestError(ErrorKind::shape, "mask",
                         join("allowed is ", shape, " for ", sizes.queries, " queries and ", sizes.keys, " keys"), "",
                         detail("mask_shape", std::vector<std::int64_t>{shape[0], shape[1]},
                                std::vector<std::int64_t>{sizes.queries, sizes.keys}));
    mask.emplace_back(DenseRule{request.allowed[i].data(), 0, 0, sizes.keys, 1});
  }
  return mask;
}

std::vector<ScoreEdit> edits_of(const WorkbenchRequest& request, const Sizes& sizes) {
  const auto check = [](const char* name, std::int64_t index, std::int64_t size) {
    if (index >= size)
      throw RequestError(ErrorKind::argument, "edits", join("name ", name, ' ', index),
                         join("there are ", name, "s 0 to ", size - 1, ", and -1 for all"),
                         detail("range", index, std::vector<std::int64_t>{-1, size - 1}));
  };
  std::vector<ScoreEdit> edits = request.edits;
  for (ScoreEdit& edit : edits) {
    check("head", edit.head, request.heads);
    check("query", edit.query, sizes.queries);
    check("key", edit.key, sizes.keys);
    // The engine names rows by their positions.
    if (edit.query >= 0) edit.query += request.first_query;
    if (edit.key >= 0) edit.key += request.first_key;
  }
  return edits;
}

// Runs the attention, and keeps of every head the scores and, where asked, the weights.
Tensor attend_heads(const AttentionInput& rules, Tensor WorkbenchHead::*scores, Tensor WorkbenchHead::*weights,
                    WorkbenchResult& result, Tensor& log_sum_exp) {
  const Tensor& query = result.rotated_query.defined() ? result.rotated_query : result.query;
  const Tensor& key = result.rotated_key.defined() ? result.rotated_key : result.key;
  AttentionInput input = rules;
  for (std::size_t head = 0; head < result.heads.size(); ++head) {
    WorkbenchHead& place = result.heads[head];
    MatrixRequest matrix;
    matrix.head = static_cast<std::int64_t>(head);
    place.*scores = Tensor::zeros({query.rows(), key.rows()});
    matrix.scores = (place.*scores).data();
    if (weights) {
      place.*weights = Tensor::zeros({query.rows(), key.rows()});
      matrix.weights = (place.*weights).data();
    }
    input.matrices.push_back(matrix);
  }
  return attention(query, key, result.value, input, &log_sum_exp);
}

// Entropies of the rows of weights, in nats.
Tensor entropies_of(const Tensor& weights) {
  Tensor entropies = Tensor::zeros({weights.rows()});
  for (std::int64_t row = 0; row < weights.rows(); ++row) {
    double entropy = 0;
    for (std::int64_t column = 0; column < weights.width(); ++column) {
      const double weight = weights.at(row, column);
      if (weight > 0) entropy -= weight * std::log(weight);
    }
    entropies.data()[row] = static_cast<float>(entropy);
  }
  return entropies;
}

}  // namespace

WorkbenchResult run_workbench(const WorkbenchRequest& request, const Limits& limits) {
  WorkbenchResult result;
  project(request, result);
  const Sizes sizes = sizes_of(request, result, limits);
  if (request.rotary) rotate(request, sizes, result);
  const Mask mask = mask_of(request, sizes);
  const std::vector<ScoreEdit> edits = edits_of(request, sizes);
  check_finite("q", result.query);
  check_finite("k", result.key);
  check_finite("v", result.value);
  result.scale = request.scale != 0 ? request.scale : 1 / std::sqrt(static_cast<float>(sizes.head_dim));
  result.heads.resize(static_cast<std::size_t>(request.heads));

  // The matrices of every head with more and more of the rules.
  AttentionInput input;
  input.query_heads = request.heads;
  input.key_heads = request.key_heads;
  AttentionItem item;
  item.queries = sizes.queries;
  item.keys = sizes.keys;
  item.query_position = request.first_query;
  item.key_position = request.first_key;
  input.items = {item};
  input.scale = 1;
  Tensor log_sum_exp;
  attend_heads(input, &WorkbenchHead::products, nullptr, result, log_sum_exp);
  for (const WorkbenchHead& head : result.heads) check_finite("products", head.products);
  input.scale = result.scale;
  attend_heads(input, &WorkbenchHead::scaled, nullptr, result, log_sum_exp);
  for (const WorkbenchHead& head : result.heads) check_finite("scaled", head.scaled);
  input.mask = mask;
  attend_heads(input, &WorkbenchHead::masked, nullptr, result, log_sum_exp);
  input.edits = edits;
  result.concatenated = attend_heads(input, &WorkbenchHead::scores, &WorkbenchHead::weights, result, log_sum_exp);
  check_finite("output", result.concatenated);

  for (std::int64_t head = 0; head < request.heads; ++head) {
    WorkbenchHead& place = result.heads[static_cast<std::size_t>(head)];
    place.output = head_columns(result.concatenated, head, sizes.value_dim);
    place.log_sum_exp = head_columns(log_sum_exp, head, 1).reshaped({sizes.queries});
    place.entropy = entropies_of(place.weights);
  }
  if (request.output_weight.defined()) {
    need_product("the joined heads", result.concatenated, "output_weight", request.output_weight);
    result.projected = matrix_product(result.concatenated, request.output_weight);
    check_finite("projected", result.projected);
  }
  return result;
}

void write_workbench(JsonWriter& out, const WorkbenchResult& result) {
  const auto row = [](const Tensor& tensor) {
    return std::span<const float>(tensor.data(), static_cast<std::size_t>(tensor.elements()));
  };
  const auto rows = [&](const char* name, const Tensor& tensor) { out.key(name).rows(tensor); };
  out.field("precision", "float32");
  out.field("scale", result.scale);
  rows("q", result.query);
  rows("k", result.key);
  rows("v", result.value);
  rows("rotated_q", result.rotated_query);
  rows("rotated_k", result.rotated_key);
  out.key("heads").begin_array();
  for (const WorkbenchHead& head : result.heads) {
    out.begin_object();
    rows("products", head.products);
    rows("scaled", head.scaled);
    rows("masked", head.masked);
    rows("scores", head.scores);
    rows("weights", head.weights);
    rows("output", head.output);
    out.field("entropy", row(head.entropy));
    out.field("log_sum_exp", row(head.log_sum_exp));
    out.end_object();
  }
  out.end_array();
  rows("concatenated", result.concatenated);
  rows("projected", result.projected);
}

}  // namespace attend::explorer
