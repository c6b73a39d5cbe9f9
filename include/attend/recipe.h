// Recipe: one training run as a TOML file: data, tokenizer, model, training, validation. Every key has a type, a range,
// a default and a line of help in one table (src/train/recipe_keys.cc); recipe/README.md is printed from it.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "attend/checkpoint.h"
#include "attend/config.h"
#include "attend/unicode.h"

namespace attend {

enum class RecipeTask {
  translate,  // pairs of lines: encoder-decoder
  lines,      // one sequence a line, bos ... eos: decoder
  blocks,     // running text cut into blocks of equal length at random places: decoder
  images,     // idx files of images and labels: encoder over patches, classifier
};

enum class PairFormat {
  files,   // two files, line n belongs to line n
  tsv,     // one file, two of its tab-separated columns
  in_out,  // one file of lines "IN: source OUT: target" (SCAN)
};

struct DataRecipe {
  RecipeTask task = RecipeTask::translate;
  // As written in the file. translate: source and target file, or one file (format); lines and blocks: one file; images:
  // images and labels.
  std::vector<std::string> train, valid;
  PairFormat format = PairFormat::files;
  std::int64_t source_column = 0, target_column = 1,
               columns = 0;            // format tsv; columns 0: as many as the first line has
  std::vector<std::string> languages;  // translate: of source and target, e.g. {"zh", "en"}
  bool both = false;                   // translate: also from target to source; a tag "<2en>" begins every source
  std::int64_t valid_lines = 0;  // lines, images, translate without valid files: items held out, drawn with the seed
  double valid_share = 0;        // blocks without a valid file: the last share of the tokens
  std::int64_t longest = 0;      // tokens of one side, bos or eos included; longer items are left out; 0: max_positions
  bool skip_empty = false, replace_invalid = false;
  std::int64_t longest_line = 4096;  // bytes
  std::int64_t block = 64;           // blocks: tokens of a block
  std::int64_t patch = 4;            // images: pixels of a patch's side
  double shift = 0, rotation = 0;  // images: random shift (pixels) and rotation (degrees) of training images, each way
};

struct TokenizerRecipe {
  std::string kind = "sentencepiece";  // sentencepiece, character, byte
  std::string file;                    // an existing tokenizer instead of a new one
  std::int64_t vocabulary = 8000;
  std::string algorithm = "unigram";  // unigram, bpe
  double coverage = 1.0;
  bool byte_fallback = false;
  bool split_digits = false;
  bool specials = true;  // character: pad, unknown, bos, eos; blocks need none
  Normalisation normalisation = Normalisation::nfc;
  std::vector<std::string> user_symbols;
};

enum class Schedule {
  constant,      // after the warm-up
  inverse_sqrt,  // rate * sqrt(warmup / step) (Vaswani et al. 2017, equation 3, with the peak as a number of its own)
  cosine,        // down to `floor` along half a cosine (Loshchilov and Hutter 2017)
  linear,        // down to `floor` along a line
};

struct TrainRecipe {
  std::uint64_t seed = 1;
  std::int64_t epochs = 0, steps = 0;  // the first reached ends the run; 0: no such limit; not both 0
  std::int64_t batch_tokens = 0;       // target tokens of a batch (eos included); 0: batch_items counts
  std::int64_t batch_items = 0;        // lines, blocks or images of a batch
  std::int64_t accumulate = 1;         // batches of one step
  std::int64_t bucket = 100;           // batches' worth of shuffled items sorted by length before they are cut; 0: none
  double rate = 1e-3;                  // the peak
  Schedule schedule = Schedule::constant;
  std::int64_t warmup = 0;                            // steps of linear rise
  double floor = 0;                                   // the lowest rate of cosine and linear
  std::int64_t decay_steps = 0;                       // the step where the floor is reached; 0: the last
  double beta1 = 0.9, beta2 = 0.999, epsilon = 1e-8;  // Adam
  double weight_decay = 0;                            // above 0: AdamW; on matrices and embeddings only
  double clip = 0;                                    // largest global norm of the gradient; 0: no limit
  double label_smoothing = 0;
  std::int64_t validate_every = 0;  // steps; 0: every epoch
  std::int64_t save_every = 0;      // steps, beside every validation; 0: only there
  std::int64_t log_every = 10;      // steps between two lines of train.jsonl
  std::int64_t patience = 0;        // validations without a better one before the run ends; 0: never
  std::int64_t average = 0;         // the final model is the mean of so many last validations' checkpoints; 0: the best
  WeightType weights = WeightType::float16;  // of the final model; checkpoints are float32
};

enum class Metric { loss, bleu, chrf, exact, accuracy };
const char* name_of(Metric metric);  // "loss", "bleu", ...

struct ValidationRecipe {
  Metric best = Metric::loss;  // which figure decides what `best` is and when patience ends
  std::int64_t decode = 0;     // validation items decoded greedily for BLEU, chrF and exact; 0: none; of each direction
  std::int64_t decode_every = 1;  // every so many validations
  std::int64_t longest = 128;     // tokens of a decoded item
};

struct Recipe {
  std::string title;  // one line for people
  DataRecipe data;
  TokenizerRecipe tokenizer;
  TransformerConfig model;  // without vocabularies and input width, which the data decide
  TrainRecipe train;
  ValidationRecipe validation;
  std::filesystem::path file;  // where it was read from; data paths are relative to its folder
  std::string text;            // the TOML itself
};

// Throws Error(file) if it cannot be read, Error(config) naming file, line and key for TOML that does not parse, unknown
// keys (with the nearest known one), wrong types, values out of range, missing keys, keys of another task, and settings
// that contradict each other, those of the model included.
Recipe load_recipe(const std::filesystem::path& file);
Recipe parse_recipe(const std::string& toml, const std::filesystem::path& file);

// All keys with type, range, default and meaning, as Markdown tables.
std::string describe_recipe_keys();
// The same as data.
struct RecipeKeyText {
  std::string key, value, standard;  // "train.rate"; what it may be; its default, "" if it must be given
  std::vector<std::string> tasks;
  std::string meaning;
};
std::vector<RecipeKeyText> list_recipe_keys();

}  // namespace attend
