// Tiny models, tokenizers and folders for the tests of the load room.
#pragma once

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <cmath>
#include <cstring>
#include <algorithm>
#include <functional>
#include <iterator>
#include <string>
#include <vector>

#include "attend/checkpoint.h"
#include "attend/error.h"

namespace attend {

inline TransformerConfig tiny_config(std::int64_t source_vocabulary = 259, std::int64_t target_vocabulary = 259) {
  TransformerConfig config;
  config.encoder = StackConfig{1, source_vocabulary, 0, false, false, false, true};
  config.decoder = StackConfig{2, target_vocabulary, 0, true, false, false, true};
  config.width = 8;
  config.heads = 2;
  config.inner_width = 12;
  config.max_positions = 20;
  return config;
}

inline Task translation_task() {
  Task task;
  task.languages = {"zh", "en"};
  return task;
}

// A folder of its own for each test, gone at the end.
class FolderTest : public testing::Test {
 protected:
  FolderTest() {
    const auto* info = testing::UnitTest::GetInstance()->current_test_info();
    folder_ = std::filesystem::path(testing::TempDir()) /
              (std::string("attend-") + info->test_suite_name() + "-" + info->name());
    std::filesystem::remove_all(folder_);
    std::filesystem::create_directories(folder_);
  }
  ~FolderTest() override {
    std::error_code ignored;
    std::filesystem::remove_all(folder_, ignored);
  }

  std::string read(const std::string& name) const {
    std::ifstream in(folder_ / name, std::ios::binary);
    return {std::istreambuf_iterator<char>(in), std::istreambuf_iterator<char>()};
  }
  void write(const std::string& name, const std::string& bytes) const {
    std::ofstream(folder_ / name, std::ios::binary) << bytes;
  }
  void replace(const std::string& name, const std::string& from, const std::string& to) const {
    std::string bytes = read(name);
    const std::size_t at = bytes.find(from);
    ASSERT_NE(at, std::string::npos) << from << " is not in " << name;
    write(name, bytes.replace(at, from.size(), to));
  }
  std::vector<std::string> names() const {
    std::vector<std::string> result;
    for (const auto& each : std::filesystem::directory_iterator(folder_)) result.push_back(each.path().filename());
    std::sort(result.begin(), result.end());
    return result;
  }

  std::filesystem::path folder_;
};

inline void expect_error(const std::function<void()>& run, ErrorKind kind, const std::vector<std::string>& parts) {
  try {
    run();
    ADD_FAILURE() << "no error";
  } catch (const Error& error) {
    const std::string message = error.what();
    EXPECT_EQ(error.kind(), kind) << message;
    for (const std::string& part : parts)
      EXPECT_NE(message.find(part), std::string::npos) << '"' << part << "\" is not in: " << message;
  }
}

}  // namespace attend
