// Attention on somebody's own small matrices, with every number between input and output (POST /attention). Every
// number comes from the engine: each step of a head is the one attention asked with fewer rules.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "attend/attention.h"
#include "attend/ops.h"
#include "explorer/json_request.h"
#include "explorer/json_writer.h"

namespace attend::explorer {

struct WorkbenchRequest {
  // Either x with three weights (memory: what keys and values are made of; undefined: x), or query, key and value.
  Tensor x, memory, query_weight, key_weight, value_weight;
  Tensor query, key, value;
  Tensor output_weight;  // undefined: no projection
  std::int64_t heads = 1, key_heads = 1;
  float scale = 0;  // 0: 1 / sqrt(head_dim)

  bool causal = false;
  std::vector<WindowRule> windows;
  std::vector<std::int64_t> lengths, prefixes;
  std::vector<std::vector<std::uint8_t>> allowed;  // of dense rules, row by row,
  std::vector<Shape> allowed_shapes;               // and their shapes, which must be [queries, keys]

  bool rotary = false;
  Pairing pairing = Pairing::halves;
  double base = 10000;
  std::int64_t first_query = 0, first_key = 0;

  std::vector<ScoreEdit> edits;  // queries and keys by index
};

struct WorkbenchHead {
  Tensor products, scaled, masked, scores, weights, output;  // [queries, keys], output [queries, value_dim]
  Tensor entropy, log_sum_exp;                               // [queries]
};

struct WorkbenchResult {
  float scale = 0;
  Tensor query, key, value;           // [rows, heads * head_dim]
  Tensor rotated_query, rotated_key;  // undefined without rotary positions
  std::vector<WorkbenchHead> heads;
  Tensor concatenated, projected;  // projected undefined without output_weight
};

// Errors as the engine's, with the request's names; ApiError 413 beyond the limits.
WorkbenchRequest workbench_request(const Json& body, const Limits& limits);
WorkbenchResult run_workbench(const WorkbenchRequest& request, const Limits& limits);
void write_workbench(JsonWriter& out, const WorkbenchResult& result);

// Error(numeric) that names the first number of [rows, columns] that is infinite or NaN.
void check_finite(const char* name, const Tensor& tensor);

// Cosines and sines for positions 0 .. last, kept for the next request that turns alike.
Tensor rotation_for(std::int64_t last_position, std::int64_t rotary_dim, double base);
inline constexpr std::int64_t last_rotary_position = 65535;

}  // namespace attend::explorer
