#include "input_output.h"

#include <poll.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <iostream>

#include "attend/error.h"
#include "terminal.h"

namespace attend::cli {

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

void InputOptions::add_to(CLI::App& command, const char* what) {
  command.add_option("files", files, what)->type_name("FILE...");
  command.add_flag("--replace-invalid", read.replace_invalid, "Replace ill-formed UTF-8 by U+FFFD instead of refusing it");
  command.add_option("--longest-line", read.longest_line, "Refuse lines of more bytes than this")
      ->capture_default_str()
      ->check(CLI::PositiveNumber);
}

void InputOptions::each_batch(std::size_t batch,
                              const std::function<void(std::span<const std::string>, std::int64_t)>& take) const {
  const std::vector<std::string> names = files.empty() ? std::vector<std::string>{"-"} : files;
  for (const std::string& name : names) {
    const bool typed = name == "-" && is_terminal(STDIN_FILENO);
    if (typed) std::cerr << "Type a line and press Enter; Ctrl-D ends.\n";
    LineReader reader(name, read);
    std::vector<std::string> lines;
    std::string line;
    std::int64_t first = 1;
    while (reader.next(line)) {
      if (lines.empty()) first = reader.number();
      lines.push_back(line);
      if (lines.size() == (typed ? 1 : batch)) {
        take(lines, first);
        lines.clear();
      }
    }
    if (!lines.empty()) take(lines, first);
    if (const ReadReport& report = reader.report(); report.replaced > 0)
      std::cerr << "attend: " << name << ": " << report.replaced << " ill-formed UTF-8 sequences replaced\n";
  }
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
  throw Error(ErrorKind::file, name, "is no model folder (it has no config.json)",
              known.empty() ? "give --model FOLDER" : join("give a folder, or one of the models that ship: ", known));
}

}  // namespace attend::cli
