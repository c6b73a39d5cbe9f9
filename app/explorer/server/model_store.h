// The model folders the server was started with, loaded when first asked for.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "attend/checkpoint.h"
#include "explorer/api_error.h"

namespace attend::explorer {

struct LoadedModel {
  std::string name;
  std::filesystem::path path;
  ModelFolder folder;
  std::string fingerprint;
  std::string title;       // first heading of the folder's README.md, else the name
  std::int64_t bytes = 0;  // of the weights in memory
  double load_ms = 0;

  const TransformerConfig& config() const { return folder.model.config(); }
};

// "encoder-decoder", "decoder" or "encoder".
const char* family_of(const TransformerConfig& config);

class ModelStore {
 public:
  struct Summary {
    std::string name, family;  // family is empty when the config cannot be read
    bool loaded = false;
    std::int64_t bytes = 0;  // of the weights file
    std::optional<ApiError> error;
  };

  // `folders` are model folders, or folders that hold some (two floors deep, as a training writes them). Names are
  // those of the folders, made different where two are alike. The default model is the one called `preferred`, else the
  // first that is whole. Folders with one of config.json and model.safetensors stand in the list with an error. Error(file):
  // none holds a model.
  explicit ModelStore(const std::vector<std::filesystem::path>& folders, const std::string& preferred = {},
                      std::int64_t most_bytes = std::int64_t{4} << 30);

  // Loads, again where the weights changed since, and keeps what fits most_bytes. ApiError 404 for a name that is not
  // among them, with the nearest; the errors of load_model_folder().
  std::shared_ptr<const LoadedModel> get(const std::string& name);

  const std::string& default_name() const { return entries_[default_].name; }
  std::vector<std::string> names() const;
  // What can be told without reading numbers: configs, and whether the weights are as long as their headers say. An error
  // is forgotten when the files change.
  std::vector<Summary> list();
  // Folders that hold no model, not even a damaged one.
  const std::vector<std::filesystem::path>& skipped() const { return skipped_; }

 private:
  // When config and weights were last written, and how long they are: others mean another model.
  struct Stamp {
    std::filesystem::file_time_type config, weights;
    std::uintmax_t config_bytes = 0, weights_bytes = 0;
    bool operator==(const Stamp&) const = default;
  };
  static Stamp stamp_of(const std::filesystem::path& folder);
  struct Entry {
    std::string name;
    std::filesystem::path path;
    std::shared_ptr<const LoadedModel> model;
    Stamp stamp;  // of what `model` or `error` was read from
    std::uint64_t used = 0;
    std::optional<ApiError> error;
  };
  void add(const std::filesystem::path& folder);
  void search(const std::filesystem::path& folder);
  void make_room(std::int64_t bytes, const Entry* keep);

  std::mutex mutex_;
  std::vector<Entry> entries_;
  std::vector<std::filesystem::path> skipped_;
  std::size_t default_ = 0;
  std::int64_t most_bytes_;
  std::uint64_t uses_ = 0;
};

}  // namespace attend::explorer
