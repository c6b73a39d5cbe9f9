#include "input_output.h"

#include <poll.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <iostream>
#include <nlohmann/json.hpp>

#include "attend/error.h"
#include "attend/names.h"
#include "attend/unicode.h"
#include "terminal.h"

namespace attend::cli {

void Output::json(const Json& value) { line(value.dump(-1, ' ', false, Json::error_handler_t::replace)); }

void Output::flush() {
  std::size_t done = 0;
  while (done < text_.size()) {
    const ssize_t count = ::write(STDOUT_FILENO, text_.data() + done, text_.size() - done);
    if (count >= 0) {
      done += static_cast<std::size_t>(count);
    } else if (errno == EPIPE) {
      throw ClosedPipe();
    } else if (errno == EAGAIN) {
      pollfd waiting{STDOUT_FILENO, POLLOUT, 0};  // a full pipe that somebody made non-blocking
      ::poll(&waiting, 1, -1);
    } else if (errno != EINTR) {
      throw Error(ErrorKind::file, "standard output", join("cannot write: ", std::strerror(errno)));
    }
  }
  text_.clear();
}

void InputOptions::add_to(Command& command, const char* what) {
  command.add_option("files", files, what)->type_name("FILE");
  add_read_options(command, read);
}

void InputOptions::each_batch(std::size_t batch, const std::function<void(const LineBatch&)>& take) const {
  const std::vector<std::string> names = files.empty() ? std::vector<std::string>{"-"} : files;
  // Asked, not opened: a named pipe can be opened once only. What is refused here, the reader words as it would later.
  for (const std::string& name : names)
    if (name != "-" && ::access(name.c_str(), R_OK) != 0) LineReader(name, read);
  for (const std::string& file : names) {
    const std::string name = file == "-" ? "standard input" : file;
    if (file == "-" && is_terminal(STDIN_FILENO)) std::cerr << "Type a line and press Enter; Ctrl-D ends.\n";
    LineReader reader(file, read);
    std::vector<std::string> lines;
    std::string line;
    std::int64_t first = 1;
    while (reader.next(line)) {
      if (lines.empty()) first = reader.number();
      lines.push_back(line);
      if (lines.size() < batch && reader.ready()) continue;
      take({lines, first, name, file != "-"});
      lines.clear();
    }
    if (!lines.empty()) take({lines, first, name, file != "-"});
    if (const ReadReport& report = reader.report(); report.replaced > 0)
      std::cerr << "attend: " << name << ": " << counted(report.replaced, "ill-formed UTF-8 sequence") << " replaced\n";
  }
}

void add_read_options(Command& command, ReadOptions& read, bool pairs) {
  command.add_flag("--replace-invalid", read.replace_invalid,
                   "Replace ill-formed UTF-8 by U+FFFD instead of refusing it");
  command.add_option("--longest-line", read.longest_line, "Refuse lines of more bytes than this")
      ->type_name("BYTES")
      ->show_default()
      ->check(at_least(1));
  if (pairs) command.add_flag("--skip-empty", read.skip_empty, "Leave pairs with an empty side out");
  read.names = {"--replace-invalid", pairs ? "--skip-empty" : "", "--longest-line"};
}

std::string checked_argument(const std::string& text, const std::string& what, bool replace_invalid) {
  const std::size_t position = find_invalid_utf8(text);
  if (position == std::string::npos) return text;
  if (replace_invalid) return replace_invalid_utf8(text);
  throw Error(ErrorKind::argument, what, join("byte ", position + 1, " is not valid UTF-8"),
              "give it in UTF-8, or have such bytes replaced with --replace-invalid");
}

namespace {

// Folders that may hold shipped models: beside the program in a build tree or an installation.
std::vector<std::filesystem::path> model_roots() {
  std::vector<std::filesystem::path> roots;
  std::error_code code;
  std::filesystem::path folder = std::filesystem::read_symlink("/proc/self/exe", code).parent_path();
  for (int up = 0; up < 6 && folder.has_relative_path(); ++up, folder = folder.parent_path())
    for (const char* name : {"weights", "share/attend/weights"})
      if (std::filesystem::is_directory(folder / name, code)) roots.push_back(folder / name);
  return roots;
}

}  // namespace

std::vector<std::string> shipped_models() {
  std::vector<std::string> names;
  std::error_code code;
  for (const auto& root : model_roots())
    for (const auto& entry : std::filesystem::directory_iterator(root, code))
      if (std::filesystem::exists(entry.path() / "config.json", code)) names.push_back(entry.path().filename());
  std::sort(names.begin(), names.end());
  names.erase(std::unique(names.begin(), names.end()), names.end());
  return names;
}

std::filesystem::path find_model(const std::string& name) {
  std::error_code code;
  if (std::filesystem::exists(std::filesystem::path(name) / "config.json", code)) return name;
  if (name.find('/') == std::string::npos)
    for (const auto& root : model_roots())
      if (std::filesystem::exists(root / name / "config.json", code)) return root / name;
  std::string known;
  for (const std::string& shipped : shipped_models()) known += (known.empty() ? "" : ", ") + shipped;
  if (std::filesystem::is_directory(name, code) && !std::filesystem::is_empty(name, code))
    throw Error(
        ErrorKind::file, name, "is no model folder (it has no config.json)",
        "weights of another program are brought in through a table of their names: import_model of attend/checkpoint.h");
  const std::string near = nearest_name(name, shipped_models());
  throw Error(ErrorKind::file, name, "is no model folder (it has no config.json)",
              near.empty() ? known.empty() ? "give --model FOLDER"
                                           : join("give a folder, or one of the models that ship: ", known)
                           : join("did you mean ", near, "? Models that ship: ", known));
}

}  // namespace attend::cli
