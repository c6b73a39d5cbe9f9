#include "explorer/model_store.h"

#include <algorithm>
#include <chrono>
#include <fstream>

#include "attend/safetensors.h"
#include "attend/unicode.h"
#include "explorer/json_request.h"

namespace attend::explorer {
namespace fs = std::filesystem;
namespace {

constexpr const char* config_name = "config.json";
constexpr const char* weights_name = "model.safetensors";

bool has(const fs::path& folder, const char* name) {
  std::error_code code;
  return fs::exists(folder / name, code);
}
bool is_model(const fs::path& folder) { return has(folder, config_name) && has(folder, weights_name); }
// A model of which a part is missing.
bool is_damaged(const fs::path& folder) { return has(folder, config_name) != has(folder, weights_name); }

std::vector<fs::path> folders_in(const fs::path& folder) {
  std::vector<fs::path> result;
  std::error_code code;
  for (fs::directory_iterator entry(folder, code), end; !code && entry != end; entry.increment(code))
    if (std::error_code ignored; entry->is_directory(ignored)) result.push_back(entry->path());
  std::sort(result.begin(), result.end());
  return result;
}

// As much of a small text file as is needed; "" if there is none.
std::string beginning_of(const fs::path& path, std::size_t most) {
  std::ifstream file(path, std::ios::binary);
  std::string text(most, '\0');
  file.read(text.data(), static_cast<std::streamsize>(most));
  text.resize(static_cast<std::size_t>(std::max<std::streamsize>(file.gcount(), 0)));
  return text;
}

std::string title_of(const fs::path& folder, const std::string& name) {
  const std::string text = beginning_of(folder / "README.md", 4096);
  const std::size_t begin = text.starts_with("# ") ? 2 : std::string::npos;
  if (begin == std::string::npos) return name;
  const std::string line = text.substr(begin, std::min(text.find_first_of("\r\n", begin), text.size()) - begin);
  return line.empty() || find_invalid_utf8(line) != std::string::npos ? name : line;
}

std::int64_t size_of(const fs::path& path) {
  std::error_code code;
  const auto size = fs::file_size(path, code);
  return code ? 0 : static_cast<std::int64_t>(size);
}

void need(const fs::path& folder, const char* name) {
  if (!has(folder, name))
    throw Error(ErrorKind::file, folder.string(), join("has no ", name), "copy it from the folder that training wrote");
}

TransformerConfig config_of(const fs::path& folder) {
  need(folder, config_name);
  return config_from_json(beginning_of(folder / config_name, 1 << 20), (folder / config_name).string());
}

// The exception being handled, with a code where it is a folder of another program; to be called inside a catch block.
ApiError error_of(const fs::path& folder) {
  ApiError error = current_error();
  if (error.kind() != name_of(ErrorKind::config)) return error;
  const Json config = Json::parse(beginning_of(folder / config_name, 1 << 20), nullptr, false);
  if (!config.is_object()) return error;
  const auto type = config.find("model_type"), classes = config.find("architectures");
  const bool typed = type != config.end() && type->is_string();
  if (typed || (classes != config.end() && classes->is_array()))
    error.detail = detail("hugging_face", typed ? type->get<std::string>().substr(0, 60) : std::string());
  return error;
}

// What load_model_folder() refuses of the weights without reading numbers: the header is checked against the length of the
// file.
void check_weights(const fs::path& folder) {
  need(folder, weights_name);
  const SafetensorsFile header(folder / weights_name);
}

}  // namespace

const char* family_of(const TransformerConfig& config) {
  if (config.encoder && config.decoder) return "encoder-decoder";
  return config.encoder ? "encoder" : "decoder";
}

ModelStore::Stamp ModelStore::stamp_of(const fs::path& folder) {
  std::error_code ignored;
  return {fs::last_write_time(folder / config_name, ignored), fs::last_write_time(folder / weights_name, ignored),
          fs::file_size(folder / config_name, ignored), fs::file_size(folder / weights_name, ignored)};
}

ModelStore::ModelStore(const std::vector<fs::path>& folders, const std::string& preferred, std::int64_t most_bytes)
    : most_bytes_(most_bytes) {
  for (const fs::path& folder : folders) search(folder);
  const auto whole =
      std::find_if(entries_.begin(), entries_.end(), [](const Entry& entry) { return is_model(entry.path); });
  if (whole == entries_.end()) {
    const std::string found =
        entries_.empty() ? std::string() : join("; ", entries_.front().path.string(), " has only one of the two");
    throw Error(ErrorKind::file, folders.empty() ? "models" : folders.front().string(),
                join("holds no model folder (with config.json and model.safetensors)", found),
                "give a folder that has one, or one of the models that ship");
  }
  default_ = static_cast<std::size_t>(whole - entries_.begin());
  for (std::size_t i = 0; i < entries_.size(); ++i)
    if (entries_[i].name == preferred && is_model(entries_[i].path)) default_ = i;
}

void ModelStore::add(const fs::path& path) {
  const fs::path whole = fs::absolute(path).lexically_normal();
  const fs::path clean = whole.has_filename() ? whole : whole.parent_path();
  const auto taken = [this](const std::string& name) {
    return std::any_of(entries_.begin(), entries_.end(), [&](const Entry& entry) { return entry.name == name; });
  };
  for (const Entry& entry : entries_)
    if (entry.path == clean) return;
  const std::string plain = replace_invalid_utf8(clean.filename().string());
  std::string name = plain;
  // Two checkpoints of the same name are told apart by the folder they are in.
  if (taken(name)) name = replace_invalid_utf8((clean.parent_path().filename() / clean.filename()).string());
  for (int number = 2; taken(name); ++number) name = join(plain, " (", number, ")");
  entries_.push_back({std::move(name), clean, nullptr, {}, 0, {}});
}

// A model, or the models in the folders inside and those inside these.
void ModelStore::search(const fs::path& folder) {
  if (is_model(folder)) return add(folder);
  const std::vector<fs::path> inside = folders_in(folder);
  for (const fs::path& one : inside) {
    if (is_model(one)) {
      add(one);
      continue;
    }
    const std::size_t before = entries_.size();
    for (const fs::path& deeper : folders_in(one))
      if (is_model(deeper) || is_damaged(deeper)) add(deeper);
    if (is_damaged(one)) add(one);
    if (entries_.size() == before && one.filename().string().front() != '.') skipped_.push_back(one);
  }
  if (is_damaged(folder)) add(folder);
  else if (inside.empty()) skipped_.push_back(folder);
}

std::vector<std::string> ModelStore::names() const {
  std::vector<std::string> result;
  for (const Entry& entry : entries_) result.push_back(entry.name);
  return result;
}

std::shared_ptr<const LoadedModel> ModelStore::get(const std::string& name) {
  std::lock_guard lock(mutex_);
  const auto entry =
      std::find_if(entries_.begin(), entries_.end(), [&](const Entry& each) { return each.name == name; });
  if (entry == entries_.end())
    throw unknown_name("model", join("there is no model \"", name.substr(0, 100), '"'), name, names());
  entry->used = ++uses_;
  const Stamp stamp = stamp_of(entry->path);
  // A folder that was removed leaves its model as it is.
  if (entry->model && (stamp == entry->stamp || !is_model(entry->path))) return entry->model;
  entry->stamp = stamp;
  try {
    const std::int64_t size = size_of(entry->path / weights_name);
    make_room(size, &*entry);
    const auto begin = std::chrono::steady_clock::now();
    auto model = std::make_shared<LoadedModel>(
        LoadedModel{entry->name, entry->path, load_model_folder(entry->path), "", "", 0, 0});
    model->load_ms = std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - begin).count();
    model->fingerprint = attend::fingerprint(model->folder.model);
    model->title = title_of(entry->path, entry->name);
    model->bytes = model->folder.model.parameter_count() * static_cast<std::int64_t>(sizeof(float));
    make_room(model->bytes, &*entry);
    entry->model = std::move(model);
    entry->error.reset();
  } catch (const std::exception&) {
    // A model that was read before is not what the folder holds.
    entry->model.reset();
    entry->error = error_of(entry->path);
    if (entry->error->detail.code.empty()) throw;
    throw ApiError(*entry->error);
  }
  return entry->model;
}

// Lets go of the models that were asked for longest ago. Requests that still use one keep it alive.
void ModelStore::make_room(std::int64_t bytes, const Entry* keep) {
  for (;;) {
    std::int64_t total = bytes;
    Entry* oldest = nullptr;
    for (Entry& entry : entries_) {
      if (!entry.model || &entry == keep) continue;
      total += entry.model->bytes;
      if (!oldest || entry.used < oldest->used) oldest = &entry;
    }
    if (total <= most_bytes_ || !oldest) return;
    oldest->model.reset();
  }
}

std::vector<ModelStore::Summary> ModelStore::list() {
  std::lock_guard lock(mutex_);
  std::vector<Summary> result;
  for (Entry& entry : entries_) {
    if (entry.error && stamp_of(entry.path) != entry.stamp) entry.error.reset();
    Summary summary{entry.name, "", entry.model != nullptr, size_of(entry.path / weights_name), entry.error};
    try {
      summary.family = family_of(entry.model ? entry.model->config() : config_of(entry.path));
      if (!entry.model) check_weights(entry.path);
    } catch (const std::exception&) {
      if (!summary.error) summary.error = error_of(entry.path);
    }
    result.push_back(std::move(summary));
  }
  return result;
}

}  // namespace attend::explorer
