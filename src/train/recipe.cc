#include "attend/recipe.h"

#include <algorithm>
#include <cmath>
#include <optional>
#include <sstream>
#include <utility>

#include <toml++/toml.h>

#include "attend/error.h"
#include "attend/names.h"
#include "core/file.h"
#include "train/recipe_keys.h"

namespace attend {
namespace {

std::string number_text(double value) {
  std::ostringstream out;
  out.precision(12);
  out << value;
  return out.str();
}

std::string quoted(const std::string& text) { return "\"" + text + "\""; }

const char* type_name(toml::node_type type) {
  switch (type) {
    case toml::node_type::table:
      return "a table";
    case toml::node_type::array:
      return "a list";
    case toml::node_type::string:
      return "a text";
    case toml::node_type::integer:
      return "an integer";
    case toml::node_type::floating_point:
      return "a number";
    case toml::node_type::boolean:
      return "true or false";
    case toml::node_type::none:
      return "nothing";
    default:
      return "a date or time";
  }
}

// Sets one key from its TOML node.
class Setter {
 public:
  Setter(const RecipeKey& key, const toml::node& node, std::string where)
      : key_(key), node_(node), where_(std::move(where)) {}

  void operator()(bool* target) const {
    const auto value = node_.value_exact<bool>();
    if (!value) refuse("true or false");
    *target = *value;
  }
  void operator()(std::int64_t* target) const {
    const auto value = node_.value_exact<std::int64_t>();
    if (!value) refuse("an integer");
    check_range(static_cast<double>(*value));
    *target = *value;
  }
  void operator()(std::uint64_t* target) const {
    const auto value = node_.value_exact<std::int64_t>();
    if (!value || *value < 0) refuse("an integer from 0");
    *target = static_cast<std::uint64_t>(*value);
  }
  void operator()(double* target) const {
    std::optional<double> value = node_.value_exact<double>();
    if (!value)
      if (const auto integer = node_.value_exact<std::int64_t>()) value = static_cast<double>(*integer);
    if (!value) refuse("a number");
    if (!std::isfinite(*value))
      throw Error(ErrorKind::config, where_,
                  join(key_.path(), " is ", number_text(*value), "; it must be a finite number"), key_.help);
    check_range(*value);
    *target = *value;
  }
  void operator()(std::string* target) const {
    const auto value = node_.value_exact<std::string>();
    if (!value) refuse("a text in quotes");
    *target = *value;
  }
  void operator()(std::vector<std::string>* target) const {
    target->clear();
    // One text stands for a list of one.
    if (const auto single = node_.value_exact<std::string>()) {
      target->push_back(*single);
      return;
    }
    const toml::array* array = node_.as_array();
    if (array == nullptr) refuse("a list of texts");
    for (const toml::node& each : *array) {
      const auto value = each.value_exact<std::string>();
      if (!value) refuse("a list of texts");
      target->push_back(*value);
    }
  }
  void operator()(const Choice& target) const {
    const auto value = node_.value_exact<std::string>();
    const auto found = value ? std::find(target.names.begin(), target.names.end(), *value) : target.names.end();
    if (found == target.names.end()) {
      const std::string near = value ? nearest_name(*value, target.names) : "";
      throw Error(ErrorKind::config, where_,
                  join(key_.path(), " is ", value ? quoted(*value) : type_name(node_.type()), "; it must be one of ",
                       listed(target.names)),
                  near.empty() ? key_.help : join("did you mean ", quoted(near), "?"));
    }
    target.set(static_cast<std::size_t>(found - target.names.begin()));
  }

 private:
  [[noreturn]] void refuse(const char* expected) const {
    throw Error(ErrorKind::config, where_,
                join(key_.path(), " is ", type_name(node_.type()), "; it must be ", expected), key_.help);
  }
  void check_range(double value) const {
    const bool inside =
        key_.open ? value > key_.lowest && value < key_.highest : value >= key_.lowest && value <= key_.highest;
    if (inside) return;
    throw Error(
        ErrorKind::config, where_,
        join(key_.path(), " is ", number_text(value), "; it must be ",
             key_.open ? "above " + number_text(key_.lowest) + " and below " + number_text(key_.highest)
             : std::isinf(key_.highest) ? "at least " + number_text(key_.lowest)
                                        : "from " + number_text(key_.lowest) + " to " + number_text(key_.highest)),
        key_.help);
  }

  const RecipeKey& key_;
  const toml::node& node_;
  std::string where_;
};

class Parser {
 public:
  Parser(Recipe& recipe, const toml::table& root) : recipe_(recipe), root_(root), keys_(recipe_keys(recipe)) {}

  void parse() {
    check_names();
    // The task first: it decides which keys there are.
    for (const RecipeKey& key : keys_)
      if (key.path() == "data.task") set(key);
    const unsigned task = task_bit(recipe_.data.task);
    for (const RecipeKey& key : keys_) {
      const toml::node* node = find(key);
      if (node == nullptr) {
        if (key.required && (key.tasks & task))
          throw Error(ErrorKind::config, file(), join("key ", key.path(), " is missing"), key.help);
        continue;
      }
      if (!(key.tasks & task))
        throw Error(ErrorKind::config, place(*node),
                    join("key ", key.path(), " has no meaning for task ", quoted(name_of(recipe_.data.task))),
                    "remove it");
      set(key);
    }
  }

  bool has(const std::string& path) const {
    for (const RecipeKey& key : keys_)
      if (key.path() == path) return find(key) != nullptr;
    return false;
  }

  // The line of a key, for contradictions found after parsing.
  std::string place_of(const std::string& path) const {
    for (const RecipeKey& key : keys_)
      if (key.path() == path)
        if (const toml::node* node = find(key)) return place(*node);
    return file();
  }

 private:
  std::string file() const { return recipe_.file.empty() ? "recipe" : recipe_.file.string(); }
  std::string place(const toml::node& node) const { return join(file(), ":", node.source().begin.line); }

  const toml::node* find(const RecipeKey& key) const {
    if (key.section.empty()) return root_.get(key.name);
    const toml::node* section = root_.get(key.section);
    return section != nullptr && section->is_table() ? section->as_table()->get(key.name) : nullptr;
  }

  void set(const RecipeKey& key) {
    if (const toml::node* node = find(key)) std::visit(Setter(key, *node, place(*node)), key.target);
  }

  void check_names() const {
    std::vector<std::string> top, sections;
    for (const RecipeKey& key : keys_) {
      std::vector<std::string>& names = key.section.empty() ? top : sections;
      const std::string& name = key.section.empty() ? key.name : key.section;
      if (std::find(names.begin(), names.end(), name) == names.end()) names.push_back(name);
    }
    std::vector<std::string> all = top;
    all.insert(all.end(), sections.begin(), sections.end());
    for (const auto& [name, node] : root_) {
      const std::string key(name.str());
      if (std::find(sections.begin(), sections.end(), key) != sections.end()) {
        if (!node.is_table())
          throw Error(ErrorKind::config, place(node),
                      join(key, " is ", type_name(node.type()), "; it must be a section [", key, "]"));
        check_section(key, *node.as_table());
      } else if (std::find(top.begin(), top.end(), key) == top.end()) {
        refuse_name(key, node, node.is_table() ? "section" : "key", node.is_table() ? sections : all);
      }
    }
  }

  void check_section(const std::string& section, const toml::table& table) const {
    std::vector<std::string> names;
    for (const RecipeKey& key : keys_)
      if (key.section == section) names.push_back(key.name);
    for (const auto& [name, node] : table) {
      const std::string key(name.str());
      if (std::find(names.begin(), names.end(), key) != names.end()) continue;
      // A known key of another section is the likelier slip than a similar one of this.
      for (const RecipeKey& other : keys_)
        if (other.name == key)
          throw Error(ErrorKind::config, place(node), join("unknown key ", section, ".", key),
                      join("it belongs into section [", other.section, "]"));
      refuse_name(section + "." + key, node, "key", names);
    }
  }

  [[noreturn]] void refuse_name(const std::string& name, const toml::node& node, const char* what,
                                const std::vector<std::string>& known) const {
    const std::size_t dot = name.rfind('.');
    const std::string near = nearest_name(dot == std::string::npos ? name : name.substr(dot + 1), known);
    throw Error(ErrorKind::config, place(node), join("unknown ", what, " ", name),
                near.empty() ? join("known here: ", listed(known)) : join("did you mean ", near, "?"));
  }

  Recipe& recipe_;
  const toml::table& root_;
  std::vector<RecipeKey> keys_;
};

// Settings that are each allowed but contradict each other.
void check_together(const Recipe& recipe, const Parser& parser) {
  const DataRecipe& data = recipe.data;
  const TrainRecipe& train = recipe.train;
  const auto refuse = [&](const char* key, const std::string& what, const std::string& advice) {
    throw Error(ErrorKind::config, parser.place_of(key), what, advice);
  };

  const bool two_files =
      data.task == RecipeTask::images || (data.task == RecipeTask::translate && data.format == PairFormat::files);
  const std::size_t wanted = two_files ? 2 : 1;
  const std::string each = data.task == RecipeTask::images ? "images and labels"
                           : two_files                     ? "source and target"
                                                           : "one file";
  if (data.train.size() != wanted)
    refuse("data.train", join("data.train names ", data.train.size(), " files; it must name ", wanted), "give " + each);
  if (!data.valid.empty() && data.valid.size() != wanted)
    refuse("data.valid", join("data.valid names ", data.valid.size(), " files; it must name ", wanted), "give " + each);
  const bool held_out = data.valid_lines > 0 || data.valid_share > 0;
  if (data.valid.empty() && !held_out)
    refuse("data.train", "there is nothing to validate on",
           data.task == RecipeTask::blocks ? "give data.valid or data.valid_share"
                                           : "give data.valid or data.valid_lines");
  if (!data.valid.empty() && held_out)
    refuse(data.valid_lines > 0 ? "data.valid_lines" : "data.valid_share", "data.valid is given too",
           "keep one of the two");

  if (data.task == RecipeTask::translate) {
    if (!data.languages.empty() && data.languages.size() != 2)
      refuse("data.languages", join("data.languages names ", data.languages.size(), " languages; it must name 2"),
             "give source and target");
    if (data.both && data.languages.size() != 2)
      refuse("data.both", "data.both needs the names of the two languages", "give data.languages");
    if (data.languages.size() == 2 && data.languages[0] == data.languages[1])
      refuse("data.languages", join("both languages are ", quoted(data.languages[0])), "give two");
    if (data.format != PairFormat::tsv)
      for (const char* key : {"data.source_column", "data.target_column", "data.columns"})
        if (parser.has(key)) refuse(key, join(key, " counts only for format tsv"), "remove it, or set data.format");
    if (data.format == PairFormat::tsv && data.source_column == data.target_column)
      refuse("data.target_column", "source and target are the same column", "give two");
  }
  if (data.task != RecipeTask::images && data.task != RecipeTask::blocks && recipe.tokenizer.kind == "character" &&
      !recipe.tokenizer.specials)
    refuse("tokenizer.specials", join("task ", quoted(name_of(data.task)), " needs begin and end tokens"),
           "set tokenizer.specials = true");

  if (train.epochs == 0 && train.steps == 0)
    refuse("train.rate", "neither train.epochs nor train.steps says when the run ends",
           data.task == RecipeTask::blocks ? "give train.steps" : "give one of them");
  if (train.batch_tokens == 0 && train.batch_items == 0)
    refuse("train.rate", "the size of a batch is missing",
           task_bit(data.task) & (for_translate | for_lines) ? "give train.batch_tokens or train.batch_items"
                                                             : "give train.batch_items");
  if (train.batch_tokens > 0 && train.batch_items > 0)
    refuse("train.batch_items", "train.batch_tokens is given too", "keep one of the two");
  if (data.task == RecipeTask::blocks && train.validate_every == 0)
    refuse("train.steps", "running text has no epochs after which to validate", "give train.validate_every");
  if (train.floor > train.rate)
    refuse("train.floor",
           join("train.floor ", number_text(train.floor), " is above train.rate ", number_text(train.rate)),
           "lower it");
  if (train.schedule == Schedule::inverse_sqrt && train.warmup == 0)
    refuse("train.schedule", "inverse_sqrt falls from the end of the warm-up, and there is none", "give train.warmup");
  if (train.warmup > 0 && train.steps > 0 && train.warmup >= train.steps)
    refuse("train.warmup", join("the warm-up takes ", train.warmup, " steps and the run ", train.steps),
           "shorten the warm-up");

  const Metric best = recipe.validation.best;
  const bool needs_decoding = best == Metric::bleu || best == Metric::chrf || best == Metric::exact;
  if (needs_decoding && (data.task != RecipeTask::translate || recipe.validation.decode == 0))
    refuse("validation.best", join("validation.best is ", quoted(name_of(best)), ", but nothing is decoded"),
           data.task == RecipeTask::translate ? "give validation.decode" : "use \"loss\" or \"accuracy\"");
  if (needs_decoding && recipe.validation.decode_every != 1)
    refuse("validation.decode_every",
           join("validation.best is ", quoted(name_of(best)), ", which every validation needs"), "set it to 1");

  if (data.longest > recipe.model.max_positions)
    refuse("data.longest", join("data.longest is ", data.longest, ", model.max_positions ", recipe.model.max_positions),
           "raise max_positions");
  if (data.task == RecipeTask::blocks && data.block > recipe.model.max_positions)
    refuse("data.block", join("data.block is ", data.block, ", model.max_positions ", recipe.model.max_positions),
           "raise max_positions");
  if (data.task == RecipeTask::images && recipe.model.pooling == Pooling::none)
    refuse("model.width", "model.pooling is missing: the classifier has nothing to read",
           "give model.pooling = \"class_token\" or \"mean\"");
}

// The recipe's key of a field of config.json: "config.encoder.layers" is "model.encoder_layers".
std::string model_key(const std::string& field) {
  std::string name = field.starts_with("config.") ? field.substr(7) : "";
  for (const char* stack : {"encoder.", "decoder."})
    if (name.starts_with(stack)) name = name.ends_with(".layers") ? name.substr(0, 7) + "_layers" : name.substr(8);
  return "model." + (name.empty() ? "width" : name);
}

// A default that contradicts what is written has no line of its own: the key that it depends on has one.
std::string written_key(const std::string& key, const Parser& parser) {
  if (parser.has(key)) return key;
  static const std::pair<const char*, const char*> reasons[] = {
      {"model.norm_bias", "model.norm"},           {"model.head_dim", "model.positions"},
      {"model.rotary_dim", "model.positions"},     {"model.relative_buckets", "model.positions"},
      {"model.classes", "model.pooling"},          {"model.relative_max_distance", "model.relative_buckets"},
      {"model.max_positions", "model.class_token"}};
  for (const auto& [what, reason] : reasons)
    if (key == what && parser.has(reason)) return reason;
  return "model.width";
}

// The model's own contradictions, before any data are read: vocabularies, input width and classes come with the data, and
// the smallest ones stand for them here.
void check_model(const Recipe& recipe, const Parser& parser) {
  TransformerConfig config = recipe.model;
  if (recipe.data.task == RecipeTask::images) {
    config.encoder->input_width = recipe.data.patch * recipe.data.patch;
    config.classes = 1;
  } else {
    const bool known = recipe.tokenizer.kind == "sentencepiece" && recipe.tokenizer.file.empty();
    for (auto* stack : {&config.encoder, &config.decoder})
      if (*stack) (*stack)->vocabulary = known ? recipe.tokenizer.vocabulary : 1;
  }
  try {
    config.check();
  } catch (const Error& error) {
    const std::string key = model_key(error.where());
    throw Error(ErrorKind::config, parser.place_of(written_key(key, parser)),
                join(error.where() == "config" ? "the model" : key, " ", error.what_happened()), error.advice());
  }
}

}  // namespace

Recipe parse_recipe(const std::string& toml_text, const std::filesystem::path& file) {
  Recipe recipe;
  recipe.file = file;
  recipe.text = toml_text;
  recipe.model.encoder.emplace();
  recipe.model.decoder.emplace();

  toml::table root;
  try {
    root = toml::parse(toml_text, file.string());
  } catch (const toml::parse_error& error) {
    throw Error(ErrorKind::config, join(file.empty() ? "recipe" : file.string(), ":", error.source().begin.line),
                join("is not TOML: ", error.description()));
  }
  Parser parser(recipe, root);
  parser.parse();

  TransformerConfig& model = recipe.model;
  model.encoder->final_norm = model.decoder->final_norm;
  model.decoder->embedding_norm = model.encoder->embedding_norm;
  model.decoder->causal = true;
  const unsigned task = task_bit(recipe.data.task);
  if (!(task & (for_translate | for_images))) model.encoder.reset();
  if (!(task & for_text)) model.decoder.reset();
  check_together(recipe, parser);
  check_model(recipe, parser);
  return recipe;
}

Recipe load_recipe(const std::filesystem::path& file) { return parse_recipe(read_file(file, 1 << 20), file); }

}  // namespace attend
