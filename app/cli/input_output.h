// Lines in, lines out, models found: what the commands share.
#pragma once

#include <CLI/CLI.hpp>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <nlohmann/json.hpp>
#include <span>
#include <string>
#include <vector>

#include "attend/checkpoint.h"
#include "attend/corpus.h"

namespace attend::cli {

using Json = nlohmann::ordered_json;

// Standard output. Throws Error(file) when it cannot be written: a full disk is never taken for success.
class Output {
 public:
  void line(std::string_view text) { text_ += text, text_ += '\n'; flush_if_long(); }
  void text(std::string_view text) { text_ += text; flush_if_long(); }
  void json(const Json& value) { line(value.dump(-1, ' ', false, Json::error_handler_t::replace)); }
  void flush();

 private:
  void flush_if_long() {
    if (text_.size() > 1 << 15) flush();
  }
  std::string text_;
};

// Reports that somebody closed the reading end of the standard output: `attend translate | head -1`. Not an error to print.
class ClosedPipe {};

// The options of every command that reads text: file names ("-" or none: standard input) and how strictly.
struct InputOptions {
  std::vector<std::string> files;
  ReadOptions read;

  void add_to(CLI::App& command, const char* what);
  // Calls take(lines, first line number) with up to `batch` lines at a time, line by line from a terminal.
  void each_batch(std::size_t batch, const std::function<void(std::span<const std::string>, std::int64_t)>& take) const;
};

// --model: a folder, or the name of one that ships ("tatoeba-zh-en"), found beside the program.
std::filesystem::path find_model(const std::string& name);
// Names of the models that ship and are found.
std::vector<std::string> shipped_models();

}  // namespace attend::cli
