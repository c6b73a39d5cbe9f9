#include "train/recipe_keys.h"

#include <algorithm>
#include <limits>
#include <sstream>

namespace attend {
namespace {

constexpr double unlimited = std::numeric_limits<double>::infinity();
constexpr double most_tokens = 1 << 20;

std::string number_text(double value) {
  std::ostringstream out;
  out.precision(12);
  out << value;
  return out.str();
}

struct TypeText {
  std::string operator()(bool*) const { return "true or false"; }
  std::string operator()(std::int64_t*) const { return "integer"; }
  std::string operator()(std::uint64_t*) const { return "integer"; }
  std::string operator()(double*) const { return "number"; }
  std::string operator()(std::string*) const { return "text"; }
  std::string operator()(std::vector<std::string>*) const { return "list of texts"; }
  std::string operator()(const Choice& choice) const {
    std::string text;
    for (const std::string& name : choice.names) text += (text.empty() ? "`\"" : ", `\"") + name + "\"`";
    return text;
  }
};

struct DefaultText {
  std::string operator()(bool* value) const { return *value ? "true" : "false"; }
  std::string operator()(std::int64_t* value) const { return std::to_string(*value); }
  std::string operator()(std::uint64_t* value) const { return std::to_string(*value); }
  std::string operator()(double* value) const { return number_text(*value); }
  std::string operator()(std::string* value) const { return "\"" + *value + "\""; }
  std::string operator()(std::vector<std::string>*) const { return "[]"; }
  std::string operator()(const Choice& choice) const { return "\"" + choice.names[choice.get()] + "\""; }
};

std::string range_text(const RecipeKey& key) {
  if (!std::holds_alternative<std::int64_t*>(key.target) && !std::holds_alternative<double*>(key.target)) return "";
  if (key.open) return "above " + number_text(key.lowest) + ", below " + number_text(key.highest);
  if (key.highest == unlimited) return key.lowest == -unlimited ? "" : "from " + number_text(key.lowest);
  return number_text(key.lowest) + " to " + number_text(key.highest);
}

// A text that must be one of a few.
Choice choice_of(std::string& value, std::vector<std::string> names) {
  Choice result;
  result.names = names;
  result.get = [&value, names] {
    return static_cast<std::size_t>(std::find(names.begin(), names.end(), value) - names.begin());
  };
  result.set = [&value, names](std::size_t index) { value = names[index]; };
  return result;
}

}  // namespace

const char* name_of(RecipeTask task) {
  switch (task) {
    case RecipeTask::translate:
      return "translate";
    case RecipeTask::lines:
      return "lines";
    case RecipeTask::blocks:
      return "blocks";
    case RecipeTask::images:
      return "images";
  }
  return "?";
}

const char* name_of(PairFormat format) {
  switch (format) {
    case PairFormat::files:
      return "files";
    case PairFormat::tsv:
      return "tsv";
    case PairFormat::in_out:
      return "in_out";
  }
  return "?";
}

const char* name_of(Schedule schedule) {
  switch (schedule) {
    case Schedule::constant:
      return "constant";
    case Schedule::inverse_sqrt:
      return "inverse_sqrt";
    case Schedule::cosine:
      return "cosine";
    case Schedule::linear:
      return "linear";
  }
  return "?";
}

const char* name_of(Metric metric) {
  switch (metric) {
    case Metric::loss:
      return "loss";
    case Metric::bleu:
      return "bleu";
    case Metric::chrf:
      return "chrf";
    case Metric::exact:
      return "exact";
    case Metric::accuracy:
      return "accuracy";
  }
  return "?";
}

std::vector<RecipeKey> recipe_keys(Recipe& recipe) {
  DataRecipe& data = recipe.data;
  TokenizerRecipe& tokenizer = recipe.tokenizer;
  TransformerConfig& model = recipe.model;
  TrainRecipe& train = recipe.train;
  ValidationRecipe& validation = recipe.validation;
  constexpr unsigned with_encoder = for_translate | for_images, with_decoder = for_text;

  const Choice task = choice(data.task, {{RecipeTask::translate, "translate"},
                                         {RecipeTask::lines, "lines"},
                                         {RecipeTask::blocks, "blocks"},
                                         {RecipeTask::images, "images"}});
  const Choice format =
      choice(data.format, {{PairFormat::files, "files"}, {PairFormat::tsv, "tsv"}, {PairFormat::in_out, "in_out"}});
  const Choice normalisation =
      choice(tokenizer.normalisation,
             {{Normalisation::none, "none"}, {Normalisation::nfc, "nfc"}, {Normalisation::nfkc, "nfkc"}});
  const Choice norm = choice(model.norm, {{NormKind::layer, "layer"}, {NormKind::rms, "rms"}});
  const Choice norm_place = choice(model.norm_place, {{NormPlace::pre, "pre"}, {NormPlace::post, "post"}});
  const Choice activation = choice(model.activation, {{Activation::none, "none"},
                                                      {Activation::relu, "relu"},
                                                      {Activation::gelu, "gelu"},
                                                      {Activation::gelu_tanh, "gelu_tanh"},
                                                      {Activation::silu, "silu"}});
  const Choice positions = choice(model.positions, {{PositionKind::none, "none"},
                                                    {PositionKind::sinusoidal, "sinusoidal"},
                                                    {PositionKind::learned, "learned"},
                                                    {PositionKind::rotary, "rotary"},
                                                    {PositionKind::relative_bias, "relative_bias"},
                                                    {PositionKind::alibi, "alibi"}});
  const Choice sinusoid_layout =
      choice(model.sinusoid_layout, {{SinusoidLayout::interleaved, "interleaved"}, {SinusoidLayout::halves, "halves"}});
  const Choice rotary_pairing =
      choice(model.rotary_pairing, {{Pairing::interleaved, "interleaved"}, {Pairing::halves, "halves"}});
  const Choice pooling =
      choice(model.pooling, {{Pooling::none, "none"}, {Pooling::class_token, "class_token"}, {Pooling::mean, "mean"}});
  const Choice initialisation =
      choice(model.initialisation, {{Initialisation::xavier, "xavier"}, {Initialisation::gpt, "gpt"}});
  const Choice schedule = choice(train.schedule, {{Schedule::constant, "constant"},
                                                  {Schedule::inverse_sqrt, "inverse_sqrt"},
                                                  {Schedule::cosine, "cosine"},
                                                  {Schedule::linear, "linear"}});
  const Choice weights = choice(train.weights, {{WeightType::float32, "float32"}, {WeightType::float16, "float16"}});
  const Choice best = choice(validation.best, {{Metric::loss, "loss"},
                                               {Metric::bleu, "bleu"},
                                               {Metric::chrf, "chrf"},
                                               {Metric::exact, "exact"},
                                               {Metric::accuracy, "accuracy"}});

  return {
      {"", "title", &recipe.title, "what this run makes, in one line"},

      {"data", "task", task,
       "translate: pairs of lines, encoder-decoder. lines: one sequence a line, decoder. blocks: running text, decoder. images: idx files, encoder over patches with a classifier",
       for_all, true},
      {"data", "train", &data.train,
       "training files, plain, .gz or .xz (if the file is not there, it is looked for with or without that ending): source and target (translate with format files), images and labels (images), else one",
       for_all, true},
      {"data", "valid", &data.valid,
       "validation files, likewise; without them items of the training files are held out", for_all},
      {"data", "format", format,
       "files: line n of the one belongs to line n of the other. tsv: two columns of one file. in_out: lines `IN: source OUT: target` of one file",
       for_translate},
      {"data", "source_column", &data.source_column, "column of the source, from 0 (format tsv)", for_translate, false,
       0, 999},
      {"data", "target_column", &data.target_column, "column of the target, from 0 (format tsv)", for_translate, false,
       0, 999},
      {"data", "columns", &data.columns, "columns of every line (format tsv); 0: as many as the first line has",
       for_translate, false, 0, 1000},
      {"data", "languages", &data.languages,
       "codes of the source's and the target's language; `zh` makes BLEU cut Chinese into characters", for_translate},
      {"data", "both", &data.both, "train both directions with one model; a tag such as `<2en>` begins every source",
       for_translate},
      {"data", "valid_lines", &data.valid_lines,
       "items of the training files held out for validation, drawn with the seed",
       for_translate | for_lines | for_images, false, 0, unlimited},
      {"data", "valid_share", &data.valid_share, "last share of the text's tokens held out for validation", for_blocks,
       false, 0, 0.9},
      {"data", "longest", &data.longest,
       "most tokens of a side, begin or end included; longer training items are left out; 0: max_positions",
       for_translate | for_lines, false, 0, most_tokens},
      {"data", "skip_empty", &data.skip_empty, "leave out pairs with an empty side instead of refusing them",
       for_translate | for_lines},
      {"data", "replace_invalid", &data.replace_invalid,
       "put U+FFFD for bytes that are not UTF-8 instead of refusing them", for_text},
      {"data", "longest_line", &data.longest_line, "most bytes of a line; a longer one is an error",
       for_translate | for_lines, false, 1, 1 << 30},
      {"data", "block", &data.block, "tokens of a block", for_blocks, false, 1, most_tokens},
      {"data", "patch", &data.patch, "pixels of a patch's side; must divide the image's height and width", for_images,
       false, 1, 1024},
      {"data", "shift", &data.shift, "training images are moved by up to so many pixels each way", for_images, false, 0,
       100},
      {"data", "rotation", &data.rotation, "training images are turned by up to so many degrees each way", for_images,
       false, 0, 180},

      {"tokenizer", "kind", choice_of(tokenizer.kind, {"sentencepiece", "character", "byte"}),
       "sentencepiece (trained on the training files), character (those of the training files), byte", for_text},
      {"tokenizer", "file", &tokenizer.file,
       "an existing tokenizer folder or .model file, found like the data files; the other keys of this section then count nothing",
       for_text},
      {"tokenizer", "vocabulary", &tokenizer.vocabulary, "tokens, specials and bytes included (sentencepiece)",
       for_text, false, 8, 1000000},
      {"tokenizer", "algorithm", choice_of(tokenizer.algorithm, {"unigram", "bpe"}),
       "how pieces are found (sentencepiece)", for_text},
      {"tokenizer", "coverage", &tokenizer.coverage,
       "share of the text's characters that become pieces (sentencepiece)", for_text, false, 0.98, 1},
      {"tokenizer", "byte_fallback", &tokenizer.byte_fallback,
       "characters without a piece become bytes, not the unknown token (sentencepiece)", for_text},
      {"tokenizer", "split_digits", &tokenizer.split_digits, "every digit is a token of its own (sentencepiece)",
       for_text},
      {"tokenizer", "specials", &tokenizer.specials,
       "pad, unknown, begin and end tokens (character); only blocks can go without", for_text},
      {"tokenizer", "normalisation", normalisation, "Unicode normalisation of all text", for_text},
      {"tokenizer", "user_symbols", &tokenizer.user_symbols, "strings that are always one token (sentencepiece)",
       for_text},

      {"model", "encoder_layers", &model.encoder->layers, "layers of the encoder", with_encoder, true, 1, 1000},
      {"model", "decoder_layers", &model.decoder->layers, "layers of the decoder", with_decoder, true, 1, 1000},
      {"model", "width", &model.width, "of the residual stream", for_all, true, 1, 65536},
      {"model", "heads", &model.heads, "query heads", for_all, true, 1, 1024},
      {"model", "key_heads", &model.key_heads, "key and value heads; 0: as many as heads (fewer: Ainslie et al. 2023)",
       for_all, false, 0, 1024},
      {"model", "head_dim", &model.head_dim, "width of a head; 0: width / heads", for_all, false, 0, 65536},
      {"model", "inner_width", &model.inner_width, "of the feed-forward layer", for_all, true, 1, 1 << 20},
      {"model", "norm", norm, "LayerNorm (Ba et al. 2016) or RMSNorm (Zhang and Sennrich 2019)"},
      {"model", "norm_place", norm_place,
       "before every sublayer (Xiong et al. 2020) or after the addition (Vaswani et al. 2017)"},
      {"model", "norm_epsilon", &model.norm_epsilon, "added to the variance", for_all, false, 0, 1, true},
      {"model", "norm_bias", &model.norm_bias, "LayerNorm adds a bias"},
      {"model", "activation", activation, "of the feed-forward layer"},
      {"model", "gated", &model.gated, "feed-forward with a gate (Shazeer 2020)"},
      {"model", "query_key_value_bias", &model.query_key_value_bias, "biases of the query, key and value products"},
      {"model", "attention_output_bias", &model.attention_output_bias, "bias of the product after the heads"},
      {"model", "feed_forward_bias", &model.feed_forward_bias, "biases of the feed-forward layer"},
      {"model", "logits_bias", &model.logits_bias, "bias of the logits", for_text},
      {"model", "positions", positions, "how a token's place enters the model"},
      {"model", "max_positions", &model.max_positions,
       "tokens of the longest item, begin, end, tag or class token included", for_all, false, 1, most_tokens},
      {"model", "first_position", &model.first_position, "position of the first token", for_all, false, 0, most_tokens},
      {"model", "sinusoid_layout", sinusoid_layout, "sines and cosines by turns, or all sines first"},
      {"model", "position_base", &model.position_base, "of sinusoids and rotary angles", for_all, false, 1, 1e9, true},
      {"model", "rotary_pairing", rotary_pairing, "which elements of a head turn together"},
      {"model", "rotary_dim", &model.rotary_dim, "elements of a head that turn; 0: all", for_all, false, 0, 65536},
      {"model", "relative_buckets", &model.relative_buckets, "distances that the relative bias tells apart", for_all,
       false, 1, 65536},
      {"model", "relative_max_distance", &model.relative_max_distance, "distances from here on share a bucket", for_all,
       false, 1, most_tokens},
      {"model", "window", &model.window, "keys that self-attention sees, its own included; 0: all", for_all, false, 0,
       most_tokens},
      {"model", "embedding_scale", &model.embedding_scale, "token embeddings are multiplied by it; often sqrt(width)",
       for_text, false, 1e-6, 1e6},
      {"model", "attention_scale", &model.attention_scale, "of the scores; 0: 1 / sqrt(head_dim)", for_all, false, 0,
       1e6},
      {"model", "score_cap", &model.score_cap, "soft cap of the scores; 0: none", for_all, false, 0, 1e6},
      {"model", "shared_embeddings", &model.shared_embeddings, "encoder and decoder use one table", for_translate},
      {"model", "tied_logits", &model.tied_logits, "the logits use the embedding table (Press and Wolf 2017)",
       for_text},
      {"model", "final_norm", &model.decoder->final_norm, "a norm after the last layer of every stack"},
      {"model", "class_token", &model.encoder->class_token, "a learned row before the patches", for_images},
      {"model", "embedding_norm", &model.encoder->embedding_norm, "a norm after the embedding of every stack"},
      {"model", "pooling", pooling, "what the classifier reads", for_images},
      {"model", "dropout", &model.dropout, "of embeddings and of every sublayer's output", for_all, false, 0, 0.95},
      {"model", "attention_dropout", &model.attention_dropout, "of attention weights", for_all, false, 0, 0.95},
      {"model", "inner_dropout", &model.inner_dropout, "inside the feed-forward layer", for_all, false, 0, 0.95},
      {"model", "initialisation", initialisation,
       "xavier: uniform (Glorot and Bengio 2010). gpt: normal 0.02, smaller where the residual is written (Radford et al. 2019)"},

      {"train", "seed", &train.seed,
       "of parameters, order, dropout and held-out items; the same seed gives the same bits"},
      {"train", "epochs", &train.epochs, "passes over the data; 0: no such limit",
       for_translate | for_lines | for_images, false, 0, 1e6},
      {"train", "steps", &train.steps, "optimiser steps; 0: no such limit", for_all, false, 0, 1e9},
      {"train", "batch_tokens", &train.batch_tokens,
       "target tokens of a batch, end tokens included; 0: batch_items counts", for_translate | for_lines, false, 0,
       1e8},
      {"train", "batch_items", &train.batch_items, "pairs, lines, blocks or images of a batch", for_all, false, 0, 1e7},
      {"train", "accumulate", &train.accumulate, "batches of one step", for_all, false, 1, 10000},
      {"train", "bucket", &train.bucket,
       "so many batches' worth of shuffled items are sorted by length before they are cut into batches; 0: not sorted",
       for_translate | for_lines, false, 0, 1e6},
      {"train", "rate", &train.rate, "the highest learning rate", for_all, true, 0, 100},
      {"train", "schedule", schedule,
       "after the warm-up: the same, falling as 1 / sqrt(step), along half a cosine, along a line"},
      {"train", "warmup", &train.warmup, "steps in which the rate rises from 0 along a line", for_all, false, 0, 1e8},
      {"train", "floor", &train.floor, "the rate at the end of cosine and linear", for_all, false, 0, 100},
      {"train", "decay_steps", &train.decay_steps, "step where the floor is reached; 0: the last one", for_all, false,
       0, 1e9},
      {"train", "beta1", &train.beta1, "decay of Adam's mean of gradients (Kingma and Ba 2015)", for_all, false, 0,
       0.99999},
      {"train", "beta2", &train.beta2, "decay of Adam's mean of squares", for_all, false, 0, 0.9999999},
      {"train", "epsilon", &train.epsilon, "added to Adam's root", for_all, false, 1e-16, 1},
      {"train", "weight_decay", &train.weight_decay,
       "above 0: AdamW (Loshchilov and Hutter 2019), on matrices and embeddings", for_all, false, 0, 10},
      {"train", "clip", &train.clip, "largest norm of all gradients together; 0: no limit", for_all, false, 0, 1e9},
      {"train", "label_smoothing", &train.label_smoothing,
       "probability spread over the whole vocabulary (Szegedy et al. 2016)", for_all, false, 0, 0.9},
      {"train", "validate_every", &train.validate_every,
       "steps; 0: after every epoch (blocks have none and need a number)", for_all, false, 0, 1e9},
      {"train", "save_every", &train.save_every, "steps between checkpoints beside those of the validations; 0: none",
       for_all, false, 0, 1e9},
      {"train", "log_every", &train.log_every, "steps between two lines of train.jsonl", for_all, false, 1, 1e9},
      {"train", "patience", &train.patience, "validations without a better one before the run ends; 0: never", for_all,
       false, 0, 1e6},
      {"train", "average", &train.average,
       "the final model is the mean of the checkpoints of so many last validations; 1: the last one; 0: the best one",
       for_all, false, 0, 1000},
      {"train", "weights", weights, "type of the final model's numbers; checkpoints are always float32"},

      {"validation", "best", best, "the figure that decides which checkpoint is `best`"},
      {"validation", "decode", &validation.decode,
       "validation items decoded greedily for BLEU, chrF and exact match, in each direction; 0: none", for_translate,
       false, 0, 1e9},
      {"validation", "decode_every", &validation.decode_every,
       "decode at every so-manyth validation (the last one always)", for_translate, false, 1, 1e6},
      {"validation", "longest", &validation.longest, "most tokens of a decoded item", for_translate, false, 1,
       most_tokens},
  };
}

std::vector<RecipeKeyText> list_recipe_keys() {
  Recipe fresh;
  fresh.model.encoder.emplace();
  fresh.model.decoder.emplace();
  std::vector<RecipeKeyText> list;
  for (const RecipeKey& key : recipe_keys(fresh)) {
    RecipeKeyText text;
    text.key = key.path();
    const std::string range = range_text(key);
    text.value = std::visit(TypeText{}, key.target) + (range.empty() ? "" : ", " + range);
    if (!key.required) text.standard = std::visit(DefaultText{}, key.target);
    for (RecipeTask task : {RecipeTask::translate, RecipeTask::lines, RecipeTask::blocks, RecipeTask::images})
      if (key.tasks & task_bit(task)) text.tasks.emplace_back(name_of(task));
    text.meaning = key.help;
    list.push_back(std::move(text));
  }
  return list;
}

std::string describe_recipe_keys() {
  std::ostringstream out;
  std::string section = "?";
  for (const RecipeKeyText& key : list_recipe_keys()) {
    const std::size_t dot = key.key.find('.');
    const std::string begin = dot == std::string::npos ? "" : key.key.substr(0, dot);
    if (begin != section) {
      section = begin;
      out << (section.empty() ? "### Before the first section" : "\n### `[" + section + "]`") << "\n\n"
          << "| key | value | default | tasks | meaning |\n| --- | --- | --- | --- | --- |\n";
    }
    std::string tasks;
    for (const std::string& task : key.tasks) tasks += (tasks.empty() ? "" : ", ") + task;
    out << "| `" << key.key.substr(dot == std::string::npos ? 0 : dot + 1) << "` | " << key.value << " | "
        << (key.standard.empty() ? "required" : key.standard) << " | " << (key.tasks.size() == 4 ? "all" : tasks)
        << " | " << key.meaning << " |\n";
  }
  return out.str();
}

}  // namespace attend
