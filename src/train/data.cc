#include "train/data.h"

#include <algorithm>
#include <numeric>
#include <set>
#include <system_error>
#include <utility>

#include "attend/corpus.h"
#include "attend/error.h"
#include "attend/translate.h"
#include "core/hash.h"
#include "core/random.h"
#include "train/recipe_keys.h"

namespace attend {
namespace {

using Path = std::filesystem::path;

// Pairs as text; for lines only targets.
struct TextItems {
  std::vector<std::string> source, target;
  std::size_t size() const { return target.size(); }
};

std::vector<std::int64_t> held_out(std::int64_t count, std::int64_t wanted, std::uint64_t seed,
                                   const std::string& where) {
  if (wanted >= count)
    throw Error(ErrorKind::config, where,
                join("holds ", count, " items, and data.valid_lines takes ", wanted, " of them for validation"),
                "lower data.valid_lines");
  std::vector<std::int64_t> order(static_cast<std::size_t>(count));
  std::iota(order.begin(), order.end(), 0);
  Random random(stream_seed(seed, Purpose::held_out));
  shuffle(order.begin(), order.end(), random);
  order.resize(static_cast<std::size_t>(wanted));
  std::sort(order.begin(), order.end());
  return order;
}

// Moves the chosen items (ascending) from one list to another.
void take_out(std::vector<std::string>& from, std::vector<std::string>& to, const std::vector<std::int64_t>& indices) {
  if (from.empty()) return;
  std::vector<std::string> rest;
  std::size_t next = 0;
  for (std::size_t i = 0; i < from.size(); ++i) {
    const bool taken = next < indices.size() && static_cast<std::size_t>(indices[next]) == i;
    if (taken) ++next;
    (taken ? to : rest).push_back(std::move(from[i]));
  }
  from = std::move(rest);
}

class Reader {
 public:
  Reader(const Recipe& recipe, const Path& folder, std::shared_ptr<const Tokenizer> tokenizer,
         const std::function<void(std::string_view)>& phase)
      : recipe_(recipe), folder_(folder), phase_(phase) {
    data_.tokenizer = std::move(tokenizer);
  }

  TrainData read() {
    phase_("reading data");
    switch (recipe_.data.task) {
      case RecipeTask::translate:
      case RecipeTask::lines:
        read_sequences();
        break;
      case RecipeTask::blocks:
        read_blocks();
        break;
      case RecipeTask::images:
        read_image_files();
        break;
    }
    return std::move(data_);
  }

 private:
  // Packed data may have been unpacked, or the other way round: the reader tells by the first bytes in any case.
  Path path(const std::string& name) const {
    const Path wanted = data_path(recipe_, folder_, name);
    std::error_code code;
    if (std::filesystem::exists(wanted, code)) return wanted;
    std::vector<Path> others;
    if (wanted.extension() == ".gz" || wanted.extension() == ".xz") others.push_back(Path(wanted).replace_extension());
    else others = {wanted.string() + ".gz", wanted.string() + ".xz"};
    for (const Path& other : others) {
      if (!std::filesystem::is_regular_file(other, code)) continue;
      if (told_.insert(other).second)
        phase_(join(wanted.string(), " is not there: reading ", other.filename().string()));
      return other;
    }
    return wanted;
  }
  std::string train_place() const { return path(recipe_.data.train.front()).string(); }

  ReadOptions read_options() const {
    ReadOptions options;
    options.replace_invalid = recipe_.data.replace_invalid;
    options.skip_empty = recipe_.data.skip_empty;
    options.longest_line = recipe_.data.longest_line;
    options.names = {"data.replace_invalid = true", "data.skip_empty = true", "data.longest_line"};
    return options;
  }

  TextItems take_pairs(ParallelCorpus corpus) {
    data_.skipped_empty += corpus.skipped_empty;
    data_.replaced += corpus.source_report.replaced;
    if (recipe_.data.format == PairFormat::files) data_.replaced += corpus.target_report.replaced;
    return {std::move(corpus.source), std::move(corpus.target)};
  }

  // Lines "IN: walk twice OUT: I_WALK I_WALK".
  TextItems read_in_out(const Path& file) {
    Lines lines = read_lines(file, read_options());
    data_.replaced += lines.report.replaced;
    TextItems items;
    for (std::size_t i = 0; i < lines.lines.size(); ++i) {
      const std::string& line = lines.lines[i];
      const std::size_t out = line.find(" OUT: ");
      if (!line.starts_with("IN: ") || out == std::string::npos || out <= 4 || out + 6 >= line.size())
        throw Error(ErrorKind::text, join(file.string(), ":", i + 1),
                    "the line is not of the form \"IN: ... OUT: ...\"", "correct it, or set data.format");
      items.source.push_back(line.substr(4, out - 4));
      items.target.push_back(line.substr(out + 6));
    }
    return items;
  }

  TextItems read_items(const std::vector<std::string>& names) {
    const DataRecipe& data = recipe_.data;
    if (data.task == RecipeTask::lines) {
      Lines lines = read_lines(path(names[0]), read_options());
      data_.replaced += lines.report.replaced;
      if (data.skip_empty) data_.skipped_empty += lines.report.empty;
      return {{}, std::move(lines.lines)};
    }
    switch (data.format) {
      case PairFormat::files:
        return take_pairs(read_parallel(path(names[0]), path(names[1]), read_options()));
      case PairFormat::tsv: {
        TsvColumns columns;
        columns.source = static_cast<int>(data.source_column);
        columns.target = static_cast<int>(data.target_column);
        columns.columns = static_cast<int>(data.columns);
        return take_pairs(read_tsv(path(names[0]), columns, read_options()));
      }
      case PairFormat::in_out:
        return read_in_out(path(names[0]));
    }
    return {};
  }

  void make_tokenizer(const LineSource& lines, const LineSource& all_lines) {
    if (data_.tokenizer) return;
    const TokenizerRecipe& wanted = recipe_.tokenizer;
    if (!wanted.file.empty()) {
      data_.tokenizer = load_tokenizer(path(wanted.file));
      return;
    }
    std::vector<std::string> tags;
    if (recipe_.data.both)
      for (const std::string& language : recipe_.data.languages) tags.push_back("<2" + language + ">");
    if (wanted.kind == "byte") {
      data_.tokenizer = byte_tokenizer(wanted.normalisation, tags);
    } else if (wanted.kind == "character") {
      phase_("collecting characters");
      CharacterOptions options;
      options.normalisation = wanted.normalisation;
      options.specials = wanted.specials;
      options.control_symbols = tags;
      data_.tokenizer = train_character(options, all_lines);
    } else {
      phase_("training the tokenizer");
      SentencePieceOptions options;
      options.model_type = wanted.algorithm;
      options.vocabulary_size = static_cast<int>(wanted.vocabulary);
      options.character_coverage = wanted.coverage;
      options.byte_fallback = wanted.byte_fallback;
      options.split_digits = wanted.split_digits;
      options.normalisation = wanted.normalisation;
      options.control_symbols = tags;
      options.user_symbols = wanted.user_symbols;
      options.longest_line = std::max<std::int64_t>(options.longest_line, recipe_.data.longest_line);
      options.seed = recipe_.train.seed;
      data_.tokenizer = train_sentencepiece(options, lines);
    }
  }

  // Encodes items in every direction asked for; what is too long is left out and counted.
  std::vector<SequenceItem> encode(const TextItems& items, std::int64_t* left_out) {
    const DataRecipe& data = recipe_.data;
    const bool pairs = data.task == RecipeTask::translate;
    const auto longest = static_cast<std::size_t>(data.longest > 0 ? data.longest : recipe_.model.max_positions);
    const int directions = data.both ? 2 : 1;
    std::vector<SequenceItem> out;
    out.reserve(items.size() * static_cast<std::size_t>(directions));
    for (int direction = 0; direction < directions; ++direction) {
      const std::vector<std::string>& sources = direction == 0 ? items.source : items.target;
      const std::vector<std::string>& targets = direction == 0 ? items.target : items.source;
      const std::string to = data.languages.size() == 2 ? data.languages[direction == 0 ? 1 : 0] : "";
      for (std::size_t i = 0; i < items.size(); ++i) {
        SequenceItem item;
        item.direction = direction;
        if (pairs) item.source = encode_source(data_.task, *data_.tokenizer, sources[i], to);
        item.target = data_.tokenizer->encode(targets[i]);
        if (item.source.size() > longest || item.target.size() + 1 > longest) ++*left_out;
        else out.push_back(std::move(item));
      }
    }
    return out;
  }

  void read_sequences() {
    const DataRecipe& data = recipe_.data;
    TextItems train = read_items(data.train), valid;
    if (!data.valid.empty()) valid = read_items(data.valid);
    const TextItems& const_train = train;
    const TextItems& const_valid = valid;
    const auto give = [](const TextItems& items, const std::function<void(std::string_view)>& take) {
      for (const std::string& line : items.source) take(line);
      for (const std::string& line : items.target) take(line);
    };
    if (data.valid.empty()) {
      const auto indices =
          held_out(static_cast<std::int64_t>(train.size()), data.valid_lines, recipe_.train.seed, train_place());
      take_out(train.source, valid.source, indices);
      take_out(train.target, valid.target, indices);
    }
    make_tokenizer([&](const auto& take) { give(const_train, take); },
                   [&](const auto& take) {
                     give(const_train, take);
                     if (data.valid.empty()) give(const_valid, take);
                   });

    phase_("encoding");
    const SpecialTokens& specials = data_.tokenizer->specials();
    if (specials.eos < 0)
      throw Error(ErrorKind::config, "tokenizer", "the vocabulary has no end token",
                  "use another tokenizer, or task = \"blocks\"");
    data_.end = specials.eos;
    data_.first = first_token(*data_.tokenizer);
    data_.task.lines = true;
    if (data.task == RecipeTask::translate) {
      data_.task.kind = Task::Kind::translate;
      data_.task.languages = data.languages;
      if (data.both)
        for (const std::string& language : data.languages) {
          const std::string tag = "<2" + language + ">";
          if (data_.tokenizer->id(tag) < 0)
            throw Error(ErrorKind::config, "tokenizer", join("the vocabulary has no piece ", tag),
                        "both directions need a tag for each language");
          data_.task.target_tags[language] = tag;
        }
    } else {
      data_.task.kind = Task::Kind::generate;
    }
    std::int64_t too_long_valid = 0;
    data_.train = encode(train, &data_.left_out);
    data_.valid = encode(valid, &too_long_valid);
    if (data_.train.empty() || data_.valid.empty())
      throw Error(
          ErrorKind::text, train_place(),
          join("no ", data_.train.empty() ? "training" : "validation", " item is short enough: all are longer than ",
               data.longest > 0 ? data.longest : recipe_.model.max_positions, " tokens"),
          "raise data.longest or model.max_positions");
    if (data.task == RecipeTask::translate && recipe_.validation.decode > 0) choose_decode_lines(valid);
  }

  void choose_decode_lines(const TextItems& valid) {
    const DataRecipe& data = recipe_.data;
    const auto longest = static_cast<std::size_t>(recipe_.model.max_positions);
    for (int direction = 0; direction < (data.both ? 2 : 1); ++direction) {
      DecodeSet set;
      if (data.languages.size() == 2) {
        set.from = data.languages[direction == 0 ? 0 : 1];
        set.to = data.languages[direction == 0 ? 1 : 0];
      }
      const std::vector<std::string>& sources = direction == 0 ? valid.source : valid.target;
      const std::vector<std::string>& references = direction == 0 ? valid.target : valid.source;
      for (std::size_t i = 0;
           i < sources.size() && static_cast<std::int64_t>(set.sources.size()) < recipe_.validation.decode; ++i) {
        if (encode_source(data_.task, *data_.tokenizer, sources[i], set.to).size() > longest) continue;
        set.sources.push_back(sources[i]);
        set.references.push_back(references[i]);
      }
      if (!set.sources.empty()) data_.decode.push_back(std::move(set));
    }
  }

  void read_blocks() {
    const DataRecipe& data = recipe_.data;
    ReadOptions options = read_options();
    Text train = read_text(path(data.train[0]), options);
    data_.replaced += train.report.replaced;
    const std::string& text = train.text;
    // SentencePiece learns from lines; its own limit on their length would drop a text without line ends.
    const auto lines = [&text](const std::function<void(std::string_view)>& take) {
      for (std::size_t begin = 0; begin < text.size();) {
        const std::size_t end = std::min(text.find('\n', begin), text.size());
        take(std::string_view(text).substr(begin, end - begin));
        begin = end + 1;
      }
    };
    const auto whole = [&text](const std::function<void(std::string_view)>& take) { take(text); };
    make_tokenizer(lines, whole);
    phase_("encoding");
    data_.train_text = data_.tokenizer->encode(text);
    if (!data.valid.empty()) {
      Text valid = read_text(path(data.valid[0]), options);
      data_.replaced += valid.report.replaced;
      data_.valid_text = data_.tokenizer->encode(valid.text);
    } else {
      // As nanoGPT splits: the first floor(n * 0.9) tokens train.
      const auto cut =
          static_cast<std::ptrdiff_t>(static_cast<double>(data_.train_text.size()) * (1 - data.valid_share));
      data_.valid_text.assign(data_.train_text.begin() + cut, data_.train_text.end());
      data_.train_text.resize(static_cast<std::size_t>(cut));
    }
    const auto enough = static_cast<std::size_t>(data.block) + 1;
    if (data_.train_text.size() < enough || data_.valid_text.size() < 2)
      throw Error(ErrorKind::text, train_place(),
                  join("gives ", data_.train_text.size(), " training and ", data_.valid_text.size(),
                       " validation tokens; a block with its labels needs ", enough, " and 2"),
                  "give more text or a smaller data.block");
    data_.task.kind = Task::Kind::generate;
    data_.task.lines = false;
  }

  void read_image_files() {
    const DataRecipe& data = recipe_.data;
    data_.train_images = read_images(path(data.train[0]), path(data.train[1]));
    ImageSet& train = data_.train_images;
    if (!data.valid.empty()) {
      data_.valid_images = read_images(path(data.valid[0]), path(data.valid[1]));
      if (data_.valid_images.height != train.height || data_.valid_images.width != train.width)
        throw Error(ErrorKind::format, path(data.valid[0]).string(),
                    join("images are ", data_.valid_images.height, " x ", data_.valid_images.width,
                         "; the training images are ", train.height, " x ", train.width));
    } else {
      data_.valid_images =
          attend::take_out(train, held_out(train.size(), data.valid_lines, recipe_.train.seed, train_place()));
    }
    if (train.height % data.patch != 0 || train.width % data.patch != 0)
      throw Error(ErrorKind::config, "data.patch",
                  join("patches of ", data.patch, " do not divide images of ", train.height, " x ", train.width),
                  "choose a divisor");
    const std::int64_t patches = (train.height / data.patch) * (train.width / data.patch),
                       rows = patches + (recipe_.model.encoder->class_token ? 1 : 0);
    if (rows > recipe_.model.max_positions)
      throw Error(
          ErrorKind::config, "model.max_positions",
          join("is ", recipe_.model.max_positions, "; an image of ", train.height, " x ", train.width, " has ", patches,
               " patches of ", data.patch, " x ", data.patch, rows > patches ? " and a class token" : ""),
          join("give at least ", rows, ", or larger patches"));
    const std::int32_t classes = *std::max_element(train.labels.begin(), train.labels.end()) + 1;
    for (std::size_t i = 0; i < data_.valid_images.labels.size(); ++i)
      if (data_.valid_images.labels[i] >= classes)
        throw Error(ErrorKind::format, "data.valid",
                    join("image ", i, " has label ", data_.valid_images.labels[i], "; the training images know 0 to ",
                         classes - 1));
    data_.task.kind = Task::Kind::classify;
    for (std::int32_t i = 0; i < classes; ++i) data_.task.classes.push_back(std::to_string(i));
    data_.task.image_height = train.height;
    data_.task.image_width = train.width;
    data_.task.patch = data.patch;
  }

  const Recipe& recipe_;
  const Path& folder_;
  const std::function<void(std::string_view)>& phase_;
  mutable std::set<Path> told_;
  TrainData data_;
};

template <typename Values>
void add_all(ByteHash& hash, const Values& values) {
  hash.number(values.size());
  for (const auto value : values) hash.word(static_cast<std::uint32_t>(value));
}

}  // namespace

std::uint64_t TrainData::fingerprint() const {
  ByteHash hash;
  for (const auto* items : {&train, &valid}) {
    hash.number(items->size());
    for (const SequenceItem& item : *items) add_all(hash, item.source), add_all(hash, item.target);
  }
  add_all(hash, train_text);
  add_all(hash, valid_text);
  for (const ImageSet* set : {&train_images, &valid_images}) add_all(hash, set->pixels), add_all(hash, set->labels);
  return hash.value();
}

Path data_path(const Recipe& recipe, const Path& data_folder, const std::string& name) {
  const Path path(name);
  if (path.is_absolute()) return path;
  return (data_folder.empty() ? recipe.file.parent_path() : data_folder) / path;
}

TrainData read_train_data(const Recipe& recipe, const Path& data_folder, std::shared_ptr<const Tokenizer> tokenizer,
                          const std::function<void(std::string_view)>& phase) {
  return Reader(recipe, data_folder, std::move(tokenizer), phase).read();
}

TransformerConfig model_config(const Recipe& recipe, const TrainData& data) {
  TransformerConfig config = recipe.model;
  if (recipe.data.task == RecipeTask::images) {
    config.encoder->input_width = recipe.data.patch * recipe.data.patch;
    config.classes = static_cast<std::int64_t>(data.task.classes.size());
    return config;
  }
  if (config.encoder) config.encoder->vocabulary = data.tokenizer->size();
  if (config.decoder) config.decoder->vocabulary = data.tokenizer->size();
  return config;
}

}  // namespace attend
