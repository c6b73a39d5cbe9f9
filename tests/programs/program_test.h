// Tests that run `attend` in a shell: a folder of their own, and what a run printed.
#pragma once

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <string>
#include <vector>

struct Result {
  int code = -1;  // a signal as a shell tells of it: 128 and more
  std::string out, err;
};

inline std::string contents(const std::filesystem::path& path) {
  std::stringstream text;
  text << std::ifstream(path, std::ios::binary).rdbuf();
  return text.str();
}

inline std::vector<std::string> lines_of(const std::string& text) {
  std::vector<std::string> lines;
  std::stringstream stream(text);
  for (std::string line; std::getline(stream, line);) lines.push_back(line);
  return lines;
}

class ProgramTest : public testing::Test {
 protected:
  explicit ProgramTest(const std::string& name)
      : folder_(std::filesystem::temp_directory_path() / ("attend-" + name + "-" + std::to_string(::getpid()))) {
    std::filesystem::create_directories(folder_);
  }
  ~ProgramTest() override { std::filesystem::remove_all(folder_); }

  std::filesystem::path path(const std::string& name) const { return folder_ / name; }
  std::string quoted(const std::string& name) const { return "'" + path(name).string() + "'"; }
  std::filesystem::path write(const std::string& name, const std::string& text) const {
    std::ofstream(path(name), std::ios::binary) << text;
    return path(name);
  }

  // `attend ARGUMENTS`; `redirection` stands instead of that of the output.
  Result attend(const std::string& arguments, const std::string& input = "/dev/null",
                const std::string& redirection = "") const {
    const std::string to = redirection.empty() ? " > " + quoted("out") : redirection;
    const std::string command =
        std::string("'") + ATTEND_PROGRAM + "' " + arguments + " < '" + input + "'" + to + " 2> " + quoted("err");
    const int status = std::system(command.c_str());
    return {WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status), contents(path("out")),
            contents(path("err"))};
  }

 private:
  std::filesystem::path folder_;
};
