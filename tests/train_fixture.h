// A small world for tests of training: a temporary folder, made-up data, recipes that finish in a second.
#pragma once

#include <filesystem>
#include <fstream>
#include <functional>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "attend/checkpoint.h"
#include "attend/error.h"
#include "attend/train.h"
#include "core/file.h"
#include "core/random.h"

namespace attend {

inline void write_text(const std::filesystem::path& path, const std::string& text) {
  std::filesystem::create_directories(path.parent_path());
  std::ofstream(path, std::ios::binary) << text;
}

// Words of 2..longest letters of the first `letters` of the alphabet, one a line.
inline std::string made_up_words(int count, int letters, int longest, std::uint64_t seed) {
  Random random(seed);
  std::string text;
  for (int i = 0; i < count; ++i) {
    const auto length = 2 + random.below(static_cast<std::uint64_t>(longest - 1));
    for (std::uint64_t j = 0; j < length; ++j)
      text += static_cast<char>('a' + random.below(static_cast<std::uint64_t>(letters)));
    text += '\n';
  }
  return text;
}

class TrainTest : public testing::Test {
 protected:
  void SetUp() override {
    const auto* info = testing::UnitTest::GetInstance()->current_test_info();
    folder_ = std::filesystem::path(testing::TempDir()) /
              (std::string("attend-") + info->test_suite_name() + "-" + info->name());
    std::filesystem::remove_all(folder_);
    std::filesystem::create_directories(folder_);
  }
  void TearDown() override { std::filesystem::remove_all(folder_); }

  std::filesystem::path at(const std::string& name) const { return folder_ / name; }
  Recipe recipe(const std::string& toml) const { return parse_recipe(toml, at("recipe.toml")); }
  TrainOptions options(const std::string& run) const {
    TrainOptions result;
    result.run_folder = at(run);
    return result;
  }

  std::filesystem::path folder_;
};

// Every weight of a model folder, one after the other.
inline std::vector<float> weights_of(const std::filesystem::path& folder) {
  std::vector<float> all;
  const ModelFolder loaded = load_model_folder(folder);
  for (const Parameter& parameter : loaded.model.parameters()) {
    const std::vector<float> values = parameter.value.to_vector();
    all.insert(all.end(), values.begin(), values.end());
  }
  return all;
}

// The Error that `action` throws; fails the test if it throws none.
inline Error error_of(const std::function<void()>& action) {
  try {
    action();
  } catch (const Error& error) {
    return error;
  }
  ADD_FAILURE() << "no Error was thrown";
  return Error(ErrorKind::argument, "", "");
}

inline void expect_in(const std::string& part, const std::string& whole) {
  EXPECT_NE(whole.find(part), std::string::npos) << "\"" << part << "\" is not in: " << whole;
}

}  // namespace attend
