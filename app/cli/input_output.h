// Lines in, lines out, models found: what the commands share.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <nlohmann/json_fwd.hpp>
#include <span>
#include <string>
#include <vector>

#include "attend/checkpoint.h"
#include "attend/corpus.h"
#include "command_line.h"

namespace attend::cli {

using Json = nlohmann::ordered_json;

// Standard output. Throws Error(file) when it cannot be written: a full disk is never taken for success.
class Output {
 public:
  void line(std::string_view text) {
    text_ += text, text_ += '\n';
    flush_if_long();
  }
  void text(std::string_view text) {
    text_ += text;
    flush_if_long();
  }
  void json(const Json& value);
  void flush();

 private:
  void flush_if_long() {
    if (text_.size() > 1 << 15) flush();
  }
  std::string text_;
};

// Reports that somebody closed the reading end of the standard output: `attend translate | head -1`. Not an error to print.
class ClosedPipe {};

// How strictly text is read: --replace-invalid, --longest-line and, for pairs, --skip-empty.
void add_read_options(Command& command, ReadOptions& read, bool pairs = false);

// Some lines of one file.
struct LineBatch {
  std::span<const std::string> lines;
  std::int64_t first = 1;   // number of the first one in its file
  const std::string& name;  // of the file, as messages call it
  bool named = false;       // the user named it; false for the standard input

  std::string place(std::int64_t number) const { return name + ":" + std::to_string(number); }
};

// The options of every command that reads text: file names ("-" or none: standard input) and how strictly.
struct InputOptions {
  std::vector<std::string> files;
  ReadOptions read;

  void add_to(Command& command, const char* what);
  // Calls take() with up to `batch` lines of a file at a time. A batch ends where more lines would have to be waited for:
  // who writes one line into a pipe and waits for the answer gets it. Files that cannot be opened are told of before the
  // first line is read.
  void each_batch(std::size_t batch, const std::function<void(const LineBatch&)>& take) const;
};

// Text given on the command line; Error(argument) calls it `what`. Ill-formed UTF-8 is replaced if asked for.
std::string checked_argument(const std::string& text, const std::string& what, bool replace_invalid);

// --model: a folder, or the name of one that ships ("tatoeba-zh-en"), found beside the program.
std::filesystem::path find_model(const std::string& name);
// Names of the models that ship and are found.
std::vector<std::string> shipped_models();

}  // namespace attend::cli
