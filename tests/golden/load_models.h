// Help for the golden tests: files beside them, foreign models, a greedy loop.
#pragma once

#include <algorithm>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <span>
#include <string>
#include <vector>

#include "attend/checkpoint.h"
#include "attend/model.h"

namespace attend {

inline std::filesystem::path golden_folder(const std::string& name) {
  return std::filesystem::path(ATTEND_SOURCE_DIR) / "tests" / "golden" / name;
}

inline std::string text_of(const std::filesystem::path& path) {
  std::ifstream file(path, std::ios::binary);
  if (!file) throw std::runtime_error("cannot open " + path.string());
  return {std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
}

inline nlohmann::json golden_json(const std::string& name) {
  return nlohmann::json::parse(text_of(golden_folder(name) / "golden.json"));
}

inline Model foreign_model(const std::string& name) {
  const auto folder = golden_folder(name);
  return import_model(folder / "model.safetensors", text_of(folder / "import.json"), (folder / "import.json").string());
}

inline TokenBatch one_item(std::span<const std::int32_t> ids) {
  TokenBatch batch;
  batch.append(ids);
  return batch;
}

inline std::int32_t largest(const float* row, std::int64_t width) {
  return static_cast<std::int32_t>(std::max_element(row, row + width) - row);
}

struct Greedy {
  std::vector<std::int32_t> ids;  // chosen, the end token not included
  double log_probability = 0;     // of all choices, the end token included
  std::vector<float> first_logits;
};

// Feeds `prompt`, then always the likeliest token, through the cache, until `end` or `steps` choices.
inline Greedy run_greedy(const Model& model, std::vector<std::int32_t> prompt, std::int32_t end, std::int64_t steps,
                         const States* memory = nullptr) {
  KvCache cache = memory ? KvCache(model, model.share_memory(*memory), 0) : KvCache(model);
  KvCache* const caches[] = {&cache};
  Greedy result;
  for (std::int64_t step = 0; step < steps; ++step) {
    const States states = model.decode_cached(one_item(prompt), caches);
    const Tensor logits = model.logits(states.rows.row_range(states.rows.rows() - 1, 1));
    if (step == 0) result.first_logits = logits.to_vector();
    const std::int32_t next = largest(logits.data(), logits.width());
    result.log_probability += static_cast<double>(log_softmax(logits).at(0, next));
    if (next == end) break;
    result.ids.push_back(next);
    prompt = {next};
  }
  return result;
}

// Largest difference between numbers and a list of golden.json.
inline double largest_difference(std::span<const float> found, const nlohmann::json& expected) {
  double largest_found = 0;
  for (std::size_t i = 0; i < expected.size(); ++i)
    largest_found = std::max(largest_found, std::abs(static_cast<double>(found[i]) - expected[i].get<double>()));
  return expected.empty() ? 1e30 : largest_found;
}

}  // namespace attend
