// Corpora: files of lines, plain or packed (.gz, .xz; told by their first bytes, not by their name).
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <string>
#include <vector>

namespace attend {

// What the advice in messages calls the choices below: a command its options, a recipe its keys; "" where the user has no
// such choice.
struct ReadNames {
  std::string replace_invalid = "replace_invalid", skip_empty = "skip_empty", longest_line = "longest_line";
};

struct ReadOptions {
  bool replace_invalid = false;      // ill-formed UTF-8 becomes U+FFFD and is counted, instead of Error(text)
  bool skip_empty = false;           // a pair with an empty side is left out and counted, instead of Error(text)
  std::int64_t longest_line = 4096;  // bytes of UTF-8 without the line end; a longer line is Error(text)
  std::int64_t limit = std::int64_t{4} << 30;  // bytes after unpacking; more is Error(format): a decompression bomb
  ReadNames names = {};
};

// What was read and what was changed or left out on the way.
struct ReadReport {
  std::int64_t lines = 0;        // lines read, before any was left out
  std::int64_t bytes = 0;        // after unpacking
  std::int64_t replaced = 0;     // ill-formed sequences that became U+FFFD
  std::int64_t crlf = 0;         // line ends CR LF that became LF
  std::int64_t empty = 0;        // empty lines (only blanks count as empty); for pairs: pairs left out
  bool byte_order_mark = false;  // dropped from the front

  ReadReport& operator+=(const ReadReport& other);
};

struct Text {
  std::string text;
  ReadReport report;
};

// Lines one after the other; memory for one line. A last line without a line end counts. "-" is the standard input,
// which gives every line as soon as it is there.
// Error(file): cannot be read. Error(format): a packed file is damaged or cut short. Error(text) names file, line and
// byte.
class LineReader {
 public:
  explicit LineReader(const std::filesystem::path& path, ReadOptions options = {});
  ~LineReader();
  LineReader(LineReader&&) noexcept;
  LineReader& operator=(LineReader&&) noexcept;

  bool next(std::string& line);  // false at the end; the line end is not part of the line
  // True if next() would not wait: a whole line or the end is there. Of a pipe that somebody writes to line by line this
  // tells when it is time to answer.
  bool ready();
  std::int64_t number() const;  // of the line that next() gave last; the first is 1
  const ReadReport& report() const;

 private:
  friend Text read_text(const std::filesystem::path& path, const ReadOptions& options);
  struct State;
  std::unique_ptr<State> state_;
};

struct Lines {
  std::vector<std::string> lines;
  ReadReport report;
};

// All lines. With skip_empty, empty ones are left out; without, they are kept (only pairs refuse them).
// Error(text) if no line is left.
Lines read_lines(const std::filesystem::path& path, const ReadOptions& options = {});

struct ParallelCorpus {
  std::vector<std::string> source, target;  // equally many, at least one
  std::vector<std::int64_t> line;           // of each pair in its files, from 1
  ReadReport source_report, target_report;  // the same object twice for a TSV file
  std::int64_t skipped_empty = 0;           // pairs left out because a side was empty
};

// Pairs one after the other: line n of one file belongs to line n of the other. Memory for one pair.
// Error(text): unequal line counts (both are named, and the first line without partner), a pair with an empty side, no
// pairs at all (from next() at the end). Error(argument): both sides are the standard input.
class PairReader {
 public:
  PairReader(const std::filesystem::path& source, const std::filesystem::path& target, ReadOptions options = {});
  ~PairReader();
  PairReader(PairReader&&) noexcept;
  PairReader& operator=(PairReader&&) noexcept;

  bool next(std::string& source, std::string& target);  // false at the end
  std::int64_t number() const;                          // of the lines that next() gave last; the first is 1
  std::int64_t skipped_empty() const;
  const ReadReport& source_report() const;
  const ReadReport& target_report() const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

// All pairs. Errors as PairReader.
ParallelCorpus read_parallel(const std::filesystem::path& source, const std::filesystem::path& target,
                             const ReadOptions& options = {});

// Two columns of a file with tab-separated columns, counted from 0. Every line must have `columns` columns (0: as many
// as the first line, and at least as many as are used); a tab cannot be quoted. `longest_line` holds for each of the
// two columns, 16 times as much for the whole line. Error(text) names file and line.
struct TsvColumns {
  int source = 0;
  int target = 1;
  int columns = 2;
};
ParallelCorpus read_tsv(const std::filesystem::path& path, const TsvColumns& columns = {},
                        const ReadOptions& options = {});

// A whole text with its line ends as LF; no limit on a line's length. Error(text) if it is empty.
Text read_text(const std::filesystem::path& path, const ReadOptions& options = {});

}  // namespace attend
