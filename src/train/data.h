// The data of a run: files read, tokenizer made, items encoded, held-out items set apart.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "attend/checkpoint.h"
#include "attend/recipe.h"
#include "attend/tokenizer.h"
#include "train/batches.h"
#include "train/images.h"

namespace attend {

// Lines to translate with their references, for BLEU, chrF and exact match.
struct DecodeSet {
  std::string from, to;
  std::vector<std::string> sources, references;
};

struct TrainData {
  std::shared_ptr<const Tokenizer> tokenizer;        // of both sides; null for images
  Task task;                                         // goes into task.json
  std::vector<SequenceItem> train, valid;            // translate, lines
  std::vector<std::int32_t> train_text, valid_text;  // blocks
  ImageSet train_images, valid_images;
  std::vector<DecodeSet> decode;    // one a direction
  std::int32_t first = 0, end = 0;  // begin and end tokens of the decoder

  std::int64_t left_out = 0;  // training items too long
  std::int64_t skipped_empty = 0, replaced = 0;

  // A number that changes with any token, label or pixel: a resumed run must see the data it began with.
  std::uint64_t fingerprint() const;
};

// A path of the recipe: absolute as it is, else in data_folder if given, else beside the recipe file.
std::filesystem::path data_path(const Recipe& recipe, const std::filesystem::path& data_folder,
                                const std::string& name);

// Reads everything. `tokenizer`: that of the run being resumed, or null: made as the recipe says. `phase` is told what is
// being done. Throws Error(file, format, text, config).
TrainData read_train_data(const Recipe& recipe, const std::filesystem::path& data_folder,
                          std::shared_ptr<const Tokenizer> tokenizer,
                          const std::function<void(std::string_view)>& phase);

// The recipe's config with the vocabularies, the input width and the classes that the data give.
TransformerConfig model_config(const Recipe& recipe, const TrainData& data);

}  // namespace attend
