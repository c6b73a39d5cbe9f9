#include "attend/checkpoint.h"

#include <algorithm>
#include <array>
#include <map>

#include "attend/error.h"
#include "attend/safetensors.h"
#include "core/file.h"
#include "load/weights.h"
#include "model/json_fields.h"

namespace attend {
namespace {

namespace fs = std::filesystem;

constexpr std::int64_t longest_json = 1 << 20;
constexpr std::int64_t longest_tokenizer = 1 << 28;
constexpr const char* weights_name = "model.safetensors";
constexpr const char* pending_name = "pending.json";
constexpr const char* next = ".next";

// Every file a model folder can have. Nothing else is ever written, renamed or removed.
constexpr std::array<const char*, 9> file_names{"config.json",
                                                "task.json",
                                                "tokenizer.json",
                                                "tokenizer.model",
                                                "source_tokenizer.json",
                                                "source_tokenizer.model",
                                                "target_tokenizer.json",
                                                "target_tokenizer.model",
                                                weights_name};

bool is_there(const fs::path& path) {
  std::error_code ignored;
  return fs::exists(path, ignored);
}

[[noreturn]] void refuse(const fs::path& path, const char* verb, const std::error_code& code) {
  throw Error(ErrorKind::file, path.string(), join("cannot ", verb, ": ", code.message()));
}

// The change that a killed save left to be finished: pending.json is its promise that all <name>.next are complete.
struct Pending {
  std::vector<std::string> written, removed;

  static bool in(const fs::path& folder) { return is_there(folder / pending_name); }

  static Pending read(const fs::path& folder) {
    const fs::path path = folder / pending_name;
    Pending pending;
    read_fields(read_file(path, longest_json), path.string(), fields(pending));
    for (const auto* names : {&pending.written, &pending.removed})
      for (const std::string& name : *names)
        if (std::find(file_names.begin(), file_names.end(), name) == file_names.end())
          throw Error(ErrorKind::format, path.string(), "names a file that is no part of a model folder",
                      "remove pending.json");
    return pending;
  }

  std::string text() const {
    Pending copy = *this;
    return write_fields(fields(copy));
  }

  static std::vector<Field> fields(Pending& pending) {
    return {{"written", &pending.written, "files whose new content is in <name>.next"},
            {"removed", &pending.removed, "files that are no longer part of the model"}};
  }
};

void finish_pending(const fs::path& folder) {
  std::error_code code;
  if (!Pending::in(folder)) {
    // What a save wrote that was killed before its promise counts nothing.
    for (const char* name : file_names) fs::remove(folder / (std::string(name) + next), code);
    return;
  }
  const Pending pending = Pending::read(folder);
  for (const std::string& name : pending.written) {
    const fs::path waiting = folder / (name + next);
    if (!is_there(waiting)) continue;  // renamed before the save was killed
    fs::rename(waiting, folder / name, code);
    if (code) refuse(waiting, "rename", code);
  }
  for (const std::string& name : pending.removed) {
    fs::remove(folder / name, code);
    if (code) refuse(folder / name, "remove", code);
  }
  fs::remove(folder / pending_name, code);
  if (code) refuse(folder / pending_name, "remove", code);
}

// A folder as the last complete save left it.
class Reader {
 public:
  explicit Reader(fs::path folder) : folder_(std::move(folder)) {
    std::error_code ignored;
    if (!fs::is_directory(folder_, ignored))
      throw Error(ErrorKind::file, folder_.string(), is_there(folder_) ? "is not a folder" : "does not exist", advice);
    if (Pending::in(folder_)) pending_ = Pending::read(folder_);
    for (const char* name : {"config.json", weights_name})
      if (!has(name))
        throw Error(ErrorKind::file, folder_.string(), join("is not a model folder: it has no ", name), advice);
  }

  fs::path path(const std::string& name) const {
    if (contains(pending_.written, name) && is_there(folder_ / (name + next))) return folder_ / (name + next);
    return folder_ / name;
  }
  bool has(const std::string& name) const { return !contains(pending_.removed, name) && is_there(path(name)); }
  std::string text(const std::string& name, std::int64_t limit) const { return read_file(path(name), limit); }
  std::string shown(const std::string& name) const { return (folder_ / name).string(); }
  std::string folder() const { return folder_.string(); }

 private:
  static constexpr const char* advice = "give the folder that holds config.json and model.safetensors";
  static bool contains(const std::vector<std::string>& names, const std::string& name) {
    return std::find(names.begin(), names.end(), name) != names.end();
  }

  fs::path folder_;
  Pending pending_;
};

Model read_model(const Reader& reader, SafetensorsFile& file) {
  const TransformerConfig config =
      config_from_json(reader.text("config.json", longest_json), reader.shown("config.json"));
  check_amount(config, file, "config.json");
  Model model(config);
  read_weights(model, file, "config.json");
  return model;
}

// Tokenizers name their own files tokenizer.*; those of one stack have its name in front.
std::shared_ptr<const Tokenizer> read_tokenizer(const Reader& reader, const std::string& prefix) {
  const std::string json = prefix + "tokenizer.json", model = prefix + "tokenizer.model";
  if (!reader.has(json)) {
    if (reader.has(model))
      throw Error(ErrorKind::format, reader.shown(model), join("is there without ", json),
                  "copy both files of the tokenizer");
    return nullptr;
  }
  std::vector<NamedBytes> files{{"tokenizer.json", reader.text(json, longest_tokenizer)}};
  if (reader.has(model)) files.push_back({"tokenizer.model", reader.text(model, longest_tokenizer)});
  return load_tokenizer(files, reader.folder());
}

void check_tokenizer(const Reader& reader, const Tokenizer* tokenizer, const std::optional<StackConfig>& stack,
                     const std::string& name, const SafetensorsFile& file) {
  if (!tokenizer || !stack) return;
  if (tokenizer->size() != stack->vocabulary)
    throw Error(
        ErrorKind::config, reader.shown("config.json"),
        join(name, ".vocabulary is ", stack->vocabulary, ", but the tokenizer has ", tokenizer->size(), " tokens"),
        "the files are of two different models; take all from one place");
  const auto kept = file.metadata().find(name + "_tokenizer");
  if (kept != file.metadata().end() && kept->second != tokenizer->fingerprint())
    throw Error(ErrorKind::config, reader.shown(weights_name),
                join("was trained with the tokenizer ", kept->second, ", the folder holds ", tokenizer->fingerprint(),
                     " for the ", name),
                "the files are of two different models; take all from one place");
}

void add_tokenizer(std::map<std::string, std::string>& files, const std::string& prefix, const Tokenizer* tokenizer) {
  if (!tokenizer) return;
  for (NamedBytes& file : tokenizer->serialise()) files[prefix + file.name] = std::move(file.bytes);
}

bool holds(const fs::path& path, const std::string& bytes) {
  std::error_code code;
  if (!fs::is_regular_file(path, code) || fs::file_size(path, code) != bytes.size() || code) return false;
  return read_file(path, longest_tokenizer) == bytes;
}

NumberType number_type(WeightType type) {
  return type == WeightType::float16    ? NumberType::float16
         : type == WeightType::bfloat16 ? NumberType::bfloat16
                                        : NumberType::float32;
}

}  // namespace

ModelFolder load_model_folder(const fs::path& folder) {
  const Reader reader(folder);
  SafetensorsFile file(reader.path(weights_name));
  ModelFolder result{read_model(reader, file), nullptr, nullptr, {}};
  const TransformerConfig& config = result.model.config();

  const std::string task = "task.json";
  if (!reader.has(task))
    throw Error(ErrorKind::file, reader.shown(task), "does not exist", "copy it from the folder that training wrote");
  result.task = task_from_json(reader.text(task, longest_json), reader.shown(task));
  if (result.task.kind == Task::Kind::classify &&
      static_cast<std::int64_t>(result.task.classes.size()) != config.classes)
    throw Error(ErrorKind::config, reader.shown(task),
                join("names ", result.task.classes.size(), " classes, but config.json has classes ", config.classes));

  const bool encoder_reads = config.encoder && config.encoder->vocabulary > 0;
  if (const auto shared = read_tokenizer(reader, "")) {
    if (reader.has("source_tokenizer.json") || reader.has("target_tokenizer.json"))
      throw Error(ErrorKind::format, reader.shown("tokenizer.json"),
                  "is there beside source_tokenizer.json or target_tokenizer.json",
                  "keep those that belong to the model");
    if (encoder_reads) result.source = shared;
    if (config.decoder) result.target = shared;
  } else {
    if (encoder_reads) result.source = read_tokenizer(reader, "source_");
    if (config.decoder) result.target = read_tokenizer(reader, "target_");
  }
  check_tokenizer(reader, result.source.get(), config.encoder, "encoder", file);
  check_tokenizer(reader, result.target.get(), config.decoder, "decoder", file);
  return result;
}

Model load_model(const fs::path& folder) {
  const Reader reader(folder);
  SafetensorsFile file(reader.path(weights_name));
  return read_model(reader, file);
}

void save_model_folder(const fs::path& folder, const Model& model, const Tokenizer* source, const Tokenizer* target,
                       const Task& task, WeightType type) {
  check(task);
  const TransformerConfig& config = model.config();
  const bool encoder_reads = config.encoder && config.encoder->vocabulary > 0;
  if (!encoder_reads) source = nullptr;
  if (!config.decoder) target = nullptr;
  const auto check_size = [](const char* stack, const Tokenizer* tokenizer, std::int64_t vocabulary) {
    if (tokenizer && tokenizer->size() != vocabulary)
      throw Error(ErrorKind::config, "save_model_folder",
                  join(stack, ".vocabulary is ", vocabulary, ", but the tokenizer has ", tokenizer->size(), " tokens"));
  };
  if (source) check_size("encoder", source, config.encoder->vocabulary);
  if (target) check_size("decoder", target, config.decoder->vocabulary);

  std::map<std::string, std::string> files{{"config.json", to_json(config)}, {"task.json", to_json(task)}},
      metadata{{"format", "attend"}};
  if (source) metadata["encoder_tokenizer"] = source->fingerprint();
  if (target) metadata["decoder_tokenizer"] = target->fingerprint();
  const bool one =
      (source && target) ? source->fingerprint() == target->fingerprint() : !(encoder_reads && config.decoder);
  if (one) {
    add_tokenizer(files, "", source ? source : target);
  } else {
    add_tokenizer(files, "source_", source);
    add_tokenizer(files, "target_", target);
  }

  std::vector<NamedTensor> tensors;
  for (const Parameter& parameter : model.parameters()) {
    require_finite((folder / weights_name).string(), parameter.name, parameter.value);
    tensors.push_back({parameter.name, parameter.value, number_type(type)});
  }

  std::error_code code;
  fs::create_directories(folder, code);
  if (code) refuse(folder, "create", code);
  finish_pending(folder);

  Pending change;
  for (const char* name : file_names) {
    if (name == std::string(weights_name)) continue;
    const auto wanted = files.find(name);
    if (wanted == files.end()) {
      if (is_there(folder / name)) change.removed.push_back(name);
    } else if (!holds(folder / name, wanted->second)) {
      change.written.push_back(name);
    }
  }
  const bool only_weights = change.written.empty() && change.removed.empty();
  if (only_weights || !is_there(folder / weights_name)) {
    for (const std::string& name : change.removed) {
      fs::remove(folder / name, code);
      if (code) refuse(folder / name, "remove", code);
    }
    for (const std::string& name : change.written) write_file(folder / name, files[name]);
    write_safetensors(folder / weights_name, std::move(tensors), metadata);
    return;
  }

  // Several files change together: they wait beside the old ones until all are complete.
  try {
    for (const std::string& name : change.written) write_file(folder / (name + next), files[name]);
    write_safetensors(folder / (std::string(weights_name) + next), std::move(tensors), metadata);
    Pending whole = change;
    whole.written.push_back(weights_name);
    write_file(folder / pending_name, whole.text());
  } catch (...) {
    change.written.push_back(weights_name);
    for (const std::string& name : change.written) fs::remove(folder / (name + next), code);
    throw;
  }
  finish_pending(folder);
}

}  // namespace attend
