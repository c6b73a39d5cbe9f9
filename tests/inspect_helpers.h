// What several tests of the inspect room need: the models that ship and a pair they read, what is thrown, and matrices beside
// those of the float64 textbook.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <string>
#include <vector>

#include "attend/checkpoint.h"
#include "attend/error.h"
#include "attend/subject.h"
#include "attend/tensor.h"

namespace attend {

inline const ModelFolder& translator() {
  static const ModelFolder folder =
      load_model_folder(std::filesystem::path(ATTEND_SOURCE_DIR) / "weights/tatoeba-zh-en");
  return folder;
}
inline const ModelFolder& poet() {
  static const ModelFolder folder =
      load_model_folder(std::filesystem::path(ATTEND_SOURCE_DIR) / "weights/tang-quatrains");
  return folder;
}

// What the translator reads; without a target it writes one.
inline Subject pair(const char* source = "我喜欢学习中文。", const char* target = "I like learning Chinese.") {
  SubjectTexts texts;
  texts.source = source;
  if (target) texts.target = target;
  return read_subject(translator(), texts);
}

// What the Error says that the action throws; "nothing was thrown".
inline std::string message_of(const std::function<void()>& action) {
  try {
    action();
  } catch (const Error& error) {
    return error.what();
  }
  return "nothing was thrown";
}
// The same; a test fails in which nothing is thrown, or an Error of another kind.
inline std::string message_of(const std::function<void()>& action, ErrorKind kind) {
  try {
    action();
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), kind) << error.what();
    return error.what();
  }
  ADD_FAILURE() << "nothing was thrown";
  return "";
}

inline void expect_parts(const std::string& message, const std::vector<std::string>& parts) {
  for (const std::string& part : parts)
    EXPECT_NE(message.find(part), std::string::npos) << "'" << part << "' is not in: " << message;
}

// The action throws an Error that says all of these; of this kind, if one is given.
inline void expect_error(const std::function<void()>& action, const std::vector<std::string>& parts) {
  const std::string message = message_of(action);
  EXPECT_NE(message, "nothing was thrown");
  expect_parts(message, parts);
}
inline void expect_error(ErrorKind kind, const std::vector<std::string>& parts, const std::function<void()>& action) {
  expect_parts(message_of(action, kind), parts);
}

// Every number within `tolerance` of its float64 one, or of the largest of these where that is above 1.
inline void expect_close(const Tensor& found, const std::vector<std::vector<double>>& expected, double tolerance,
                         const std::string& what) {
  ASSERT_TRUE(found.defined()) << what;
  ASSERT_EQ(found.rows(), static_cast<std::int64_t>(expected.size())) << what;
  double largest = 1;
  for (const std::vector<double>& row : expected)
    for (const double value : row) largest = std::max(largest, std::fabs(value));
  for (std::int64_t row = 0; row < found.rows(); ++row)
    for (std::int64_t column = 0; column < found.width(); ++column)
      ASSERT_NEAR(found.at(row, column), expected[static_cast<std::size_t>(row)][static_cast<std::size_t>(column)],
                  tolerance * largest)
          << what << ", row " << row << " column " << column;
}

}  // namespace attend
