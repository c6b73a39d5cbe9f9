// attention(): checks what belongs to tensors, leaves the rules of the call to the kernel.
#include <algorithm>
#include <limits>
#include <memory>

#include "attend/ops.h"
#include "tensor/loops.h"

namespace attend {
namespace {

HeadsView heads_of(const Tensor& x, std::int64_t head_dim) { return {x.data(), x.row_stride(), head_dim}; }
MutableHeadsView heads_to(Tensor& x, std::int64_t head_dim) { return {x.data(), x.row_stride(), head_dim}; }

// Everything a call points to, kept together until backward() has run.
struct Recorded {
  AttentionInput input;
  Tensor query, key, value, output, log_sum_exp;
  std::int64_t head_dim = 0, value_dim = 0;

  AttentionCall call() {
    AttentionCall call;
    call.query_heads = input.query_heads;
    call.key_heads = input.key_heads;
    call.head_dim = head_dim;
    call.value_dim = value_dim;
    call.query = heads_of(query, head_dim);
    if (key.defined()) call.key = heads_of(key, head_dim);
    if (value.defined()) call.value = heads_of(value, value_dim);
    call.page_rows = input.page_rows;
    call.items = input.items;
    call.mask = input.mask;
    call.rules.scale = input.scale;
    call.rules.soft_cap = input.soft_cap;
    call.rules.slopes = input.slopes;
    if (input.relative_table.defined()) {
      call.rules.relative.table = input.relative_table.data();
      call.rules.relative.buckets = *input.relative_buckets;
      call.rules.relative.first_distance = input.relative_first_distance;
    }
    call.rules.bias = input.bias;
    if (input.sinks.defined())
      call.rules.sinks = {input.sinks.data(), static_cast<std::size_t>(input.sinks.elements())};
    call.dropout = input.dropout;
    call.edits = input.edits;
    call.edit_counts = input.edit_counts;
    if (output.defined()) call.output = heads_to(output, value_dim);
    call.log_sum_exp = log_sum_exp.data();
    call.matrices = input.matrices;
    call.statistics = input.statistics;
    return call;
  }
};

void backward_of(Recorded& recorded, Tape& steps) {
  recorded.input.matrices.clear();
  recorded.input.statistics = nullptr;
  const Tensor output_gradient = steps.gradient_of_output(recorded.output);
  Tensor query = steps.gradient_of_input(recorded.query), key = steps.gradient_of_input(recorded.key),
         value = steps.gradient_of_input(recorded.value),
         table = steps.gradient_of_input(recorded.input.relative_table),
         sinks = steps.gradient_of_input(recorded.input.sinks);
  AttentionGradients gradients;
  gradients.output_gradient = heads_of(output_gradient, recorded.value_dim);
  if (query.defined()) gradients.query = heads_to(query, recorded.head_dim);
  if (key.defined()) gradients.key = heads_to(key, recorded.head_dim);
  if (value.defined()) gradients.value = heads_to(value, recorded.value_dim);
  gradients.relative_table = table.data();
  gradients.sinks = sinks.data();
  attention_backward(recorded.call(), gradients);
}

// Size of a head from a tensor's width, or as given when there is no tensor.
std::int64_t head_size(const char* name, const Tensor& x, std::int64_t heads, std::int64_t given) {
  if (!x.defined()) return given;
  if (heads <= 0 || x.width() % heads != 0 || (given != 0 && x.width() != heads * given))
    throw Error(ErrorKind::shape, "attention",
                join(name, " is ", x.shape(), " for ", heads, " heads", given != 0 ? join(" of ", given) : ""),
                "the width must be heads times the size of a head");
  return x.width() / heads;
}

void check(const Tensor& query, const Tensor& key, const AttentionInput& input, std::int64_t head_dim) {
  if (key.defined() && key.width() != input.key_heads * head_dim)
    throw Error(ErrorKind::shape, "attention",
                join("query is ", query.shape(), " with ", input.query_heads, " heads and key is ", key.shape(),
                     " with ", input.key_heads, " heads"),
                join("a key head must have ", head_dim, " elements, as a query head has"));
  for (std::size_t index = 0; index < input.items.size(); ++index) {
    const AttentionItem& item = input.items[index];
    if (item.query_begin < 0 || item.queries < 0 || item.query_begin > query.rows() - item.queries)
      throw Error(ErrorKind::argument, "attention",
                  join("item ", index, " has ", item.queries, " query rows from ", item.query_begin),
                  join("query is ", query.shape()));
    if (item.key_pages != nullptr) continue;
    const std::int64_t rows = key.defined() ? key.rows() : 0;
    if (item.key_begin < 0 || item.keys < 0 || item.key_begin > rows - item.keys)
      throw Error(ErrorKind::argument, "attention",
                  join("item ", index, " has ", item.keys, " key rows from ", item.key_begin),
                  join("key is ", shape_text(key)));
  }
  const Tensor& table = input.relative_table;
  if (table.defined()) {
    if (table.shape().axes() != 2 || table.shape()[1] != input.query_heads || !table.contiguous())
      throw Error(ErrorKind::shape, "attention", join("relative_table is ", table.shape()),
                  join("it must be [buckets, ", input.query_heads, "], one column a query head"));
    if (!input.relative_buckets || input.relative_buckets->empty())
      throw Error(ErrorKind::argument, "attention", "relative_table is given without relative_buckets");
    for (std::int32_t bucket : *input.relative_buckets)
      if (bucket < 0 || bucket >= table.shape()[0])
        throw Error(ErrorKind::argument, "attention", join("relative_buckets names bucket ", bucket),
                    join("relative_table is ", table.shape()));
  }
  if (input.sinks.defined() && (input.sinks.elements() != input.query_heads || !input.sinks.contiguous()))
    throw Error(ErrorKind::shape, "attention", join("sinks is ", input.sinks.shape()),
                join("it must be [", input.query_heads, "], one a query head"));
  if (!input.slopes.empty() && static_cast<std::int64_t>(input.slopes.size()) != input.query_heads)
    throw Error(ErrorKind::shape, "attention",
                join(input.slopes.size(), " slopes for ", input.query_heads, " query heads"));
}

}  // namespace

Tensor attention(const Tensor& query, const Tensor& key, const Tensor& value, const AttentionInput& input,
                 Tensor* log_sum_exp) {
  require_defined("attention", "query", query);
  const std::int64_t head_dim = head_size("query", query, input.query_heads, input.head_dim);
  const std::int64_t value_dim = head_size("value", value, input.key_heads, input.value_dim);
  check(query, key, input, head_dim);
  if (key.defined() != value.defined() || (key.defined() && key.rows() != value.rows()))
    throw Error(ErrorKind::shape, "attention", join("key is ", shape_text(key), " and value is ", shape_text(value)),
                "both must have the same rows");

  Tape* tape = tape_for({&query, &key, &value, &input.relative_table, &input.sinks});
  if (tape != nullptr)
    for (const AttentionItem& item : input.items)
      if (item.key_pages != nullptr)
        throw Error(ErrorKind::argument, "attention", "keys in pages have no gradient",
                    "use a NoGradientScope, or give key and value as tensors");

  Recorded now;
  now.input = input;
  now.query = query;
  now.key = key;
  now.value = value;
  now.head_dim = head_dim;
  now.value_dim = value_dim;

  // Rows that belong to no item see nothing.
  std::int64_t covered = 0;
  for (const AttentionItem& item : input.items) covered += item.queries;
  const bool all = covered == query.rows();
  const Shape shape = with_width(query.shape(), input.query_heads * value_dim);
  now.output = all ? Tensor::empty(shape) : Tensor::zeros(shape);
  if (tape != nullptr || log_sum_exp != nullptr) {
    const Shape sums{query.rows(), input.query_heads};
    now.log_sum_exp = all ? Tensor::empty(sums) : Tensor::filled(sums, -std::numeric_limits<float>::infinity());
  }
  attention_forward(now.call());
  if (log_sum_exp != nullptr) *log_sum_exp = now.log_sum_exp;
  now.input.edit_counts = nullptr;
  Tensor output = now.output;
  if (tape != nullptr)
    tape->record(output, [recorded = std::make_shared<Recorded>(std::move(now))](Tape& steps) {
      backward_of(*recorded, steps);
    });
  return output;
}

void attention_weights(const Tensor& query, const Tensor& key, const AttentionInput& input, const Tensor& log_sum_exp,
                       std::span<const WeightsTile> tiles) {
  require_defined("attention_weights", "query", query);
  Recorded now;
  now.input = input;
  now.input.matrices.clear();
  now.input.edit_counts = nullptr;
  now.input.statistics = nullptr;
  now.query = query;
  now.key = key;
  now.log_sum_exp = log_sum_exp;
  now.head_dim = head_size("query", query, input.query_heads, input.head_dim);
  now.value_dim = input.value_dim != 0 ? input.value_dim : now.head_dim;
  check(query, key, input, now.head_dim);
  if (log_sum_exp.defined() &&
      (log_sum_exp.rows() != query.rows() || log_sum_exp.width() != input.query_heads || !log_sum_exp.contiguous()))
    throw Error(ErrorKind::shape, "attention_weights", join("log_sum_exp is ", log_sum_exp.shape()),
                join("it must be [", query.rows(), ", ", input.query_heads, "]"));
  attention_weights(now.call(), tiles);
}

}  // namespace attend
