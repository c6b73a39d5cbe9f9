// Model folders: config.json, model.safetensors, the tokenizer and task.json, read and written whole.
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "attend/model.h"
#include "attend/tokenizer.h"

namespace attend {

// What a model is for and how text becomes its input; saved as task.json.
struct Task {
  enum class Kind { translate, generate, classify };
  Kind kind = Kind::translate;

  // translate: languages known, e.g. {"zh", "en"}; the piece put before the source for each target language (empty: the
  // model has one direction, from languages[0] to languages[1]).
  std::vector<std::string> languages;
  std::map<std::string, std::string> target_tags;
  bool source_begin = false;    // source starts with bos
  bool source_end = true;       // source ends with eos
  // generate: sequences start with bos and end with eos (lines); false: a running text (blocks).
  bool lines = true;
  // classify: names of the classes; patch size where the input is an image.
  std::vector<std::string> classes;
  std::int64_t image_height = 0, image_width = 0, patch = 0;

  bool operator==(const Task&) const = default;
};

enum class WeightType { float32, float16, bfloat16 };

// A model with all that is needed to go from text to text.
struct ModelFolder {
  Model model;
  std::shared_ptr<const Tokenizer> source;  // of the encoder; null for features
  std::shared_ptr<const Tokenizer> target;  // of the decoder; the same object as source when shared
  Task task;
};

// Throws Error(file or format or config) that names the file and key. Weights that are missing, left over, of another
// shape, NaN or infinite are refused.
ModelFolder load_model_folder(const std::filesystem::path& folder);
// Writes into the folder (made if absent); each file is whole or absent, model.safetensors last.
void save_model_folder(const std::filesystem::path& folder, const Model& model, const Tokenizer* source, const Tokenizer* target,
                       const Task& task, WeightType type = WeightType::float32);

}  // namespace attend
