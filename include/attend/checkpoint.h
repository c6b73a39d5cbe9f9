// Model folders: config.json, model.safetensors, the tokenizer and task.json, read and written whole.
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "attend/fingerprint.h"
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
  bool source_begin = false;  // source starts with bos
  bool source_end = true;     // source ends with eos
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

// Throws Error(config) naming the first field that contradicts another.
void check(const Task& task);
// The JSON text of task.json, and back, as for TransformerConfig.
std::string to_json(const Task& task);
Task task_from_json(const std::string& text, const std::string& source);

// A model folder holds
//   config.json          TransformerConfig
//   task.json            Task
//   model.safetensors    the parameters by their names; metadata: fingerprints of the tokenizers
//   tokenizer.json/.model, or source_tokenizer.* and target_tokenizer.* where encoder and decoder have their own
// While a save replaces other files than the weights, new ones wait as <name>.next and count from the moment pending.json
// is there, so a folder is never half old and half new.

// Throws Error(file or format or config or numeric) that names the file and key. Weights that are missing, left over, of
// another shape, NaN or infinite are refused; so are tokenizers of another size than the config's vocabulary. A stack
// without tokenizer file gets a null tokenizer.
ModelFolder load_model_folder(const std::filesystem::path& folder);
// The model alone, from config.json and model.safetensors.
Model load_model(const std::filesystem::path& folder);
// Writes into the folder (made if absent); each file is whole or absent, model.safetensors last. Killed at any moment, the
// folder holds the old model or the new one. Files of other names are left alone. Not for two writers at once: hold a
// FolderLock (core/file.h) where that can happen. Throws Error(file) and leaves the old model when the disk is full,
// Error(numeric) for NaN, infinity and numbers too large for `type`.
void save_model_folder(const std::filesystem::path& folder, const Model& model, const Tokenizer* source,
                       const Tokenizer* target, const Task& task, WeightType type = WeightType::float32);

// The model whose every parameter is the mean of those of the given model folders (Vaswani et al. 2017, section 6.1), summed
// in double. Throws Error(config) if their configs differ.
Model average_weights(std::span<const std::filesystem::path> folders);

// A model from somebody else's safetensors file. `table` is JSON:
//   "config"      our config.json
//   "parameters"  for each parameter name of ours, with {layer} for the number of the block, what it is made of:
//                   "their name"                                   as it is
//                   {"from": "their name", "transpose": true}      columns become rows (first)
//                   {"from": "their name", "rows": [0, 64]}        some rows: begin, end
//                   [ ... ]                                        several of these, stacked by rows
//   "ignore"      their tensors that are not needed; a * at the end stands for any ending
//   "note"        text for people
// Axes of size 1 in front are dropped or added as needed. Throws Error(config) naming parameter, tensor and shapes if the
// table leaves a parameter or a tensor out, names what does not exist, or shapes do not fit; Error(numeric) for NaN.
Model import_model(const std::filesystem::path& weights, const std::string& table,
                   const std::string& table_source = "import table");

}  // namespace attend
