#include "attend/corpus.h"

#include <algorithm>
#include <cstring>
#include <string_view>
#include <utility>

#include "attend/error.h"
#include "attend/unicode.h"
#include "text/byte_source.h"
#include "text/utf8.h"

namespace attend {
namespace {

constexpr std::string_view byte_order_mark = "\xEF\xBB\xBF";

std::string name_of_file(const std::filesystem::path& path) { return path == "-" ? "standard input" : path.string(); }

// The start of a line for a message, never cut inside a character.
std::string excerpt(std::string_view line) {
  constexpr std::size_t longest = 48;
  if (line.size() <= longest) return join('"', replace_invalid_utf8(line), '"');
  std::size_t position = 0;
  for (std::size_t next = 0; next <= longest; next += utf8_step(line, next).length) position = next;
  return join('"', replace_invalid_utf8(line.substr(0, position)), "...\"");
}

void check(const ReadOptions& options) {
  if (options.longest_line < 1 || options.limit < 1)
    throw Error(
        ErrorKind::argument, "corpus",
        join("a longest line of ", options.longest_line, " and a limit of ", options.limit, " bytes are not possible"),
        "use at least 1");
}

// "do this, or that way" if the user has one.
std::string advice(const char* first, const char* otherwise, const std::string& name) {
  return name.empty() ? std::string(first) : join(first, ", or ", otherwise, " with ", name);
}

[[noreturn]] void refuse_invalid(const std::string& file, std::int64_t number, std::string_view line,
                                 std::size_t position, const ReadOptions& options) {
  static const char digits[] = "0123456789ABCDEF";
  const auto byte = static_cast<unsigned char>(line[position]);
  const bool utf16 = number == 1 && position == 0 && line.size() > 1 &&
                     (line.substr(0, 2) == "\xFF\xFE" || line.substr(0, 2) == "\xFE\xFF");
  throw Error(ErrorKind::text, join(file, ':', number),
              join("byte ", position + 1, " of the line (0x", digits[byte >> 4], digits[byte & 15],
                   ") is not valid UTF-8", utf16 ? ": the file looks like UTF-16" : ""),
              advice("convert the file to UTF-8", "have such bytes replaced", options.names.replace_invalid));
}

}  // namespace

ReadReport& ReadReport::operator+=(const ReadReport& other) {
  lines += other.lines;
  bytes += other.bytes;
  replaced += other.replaced;
  crlf += other.crlf;
  empty += other.empty;
  byte_order_mark = byte_order_mark || other.byte_order_mark;
  return *this;
}

struct LineReader::State {
  State(const std::filesystem::path& path, ReadOptions read_options)
      : name(name_of_file(path)), options(read_options), source(open_bytes(path, read_options.limit)) {}

  // More bytes behind the ones that are there; false at the end.
  bool fill() {
    buffer.erase(0, begin);
    begin = 0;
    constexpr std::size_t block = 1 << 16;
    const std::size_t size = buffer.size();
    buffer.resize(size + block);
    const std::size_t count = source->read(buffer.data() + size, block);
    buffer.resize(size + count);
    report.bytes += static_cast<std::int64_t>(count);
    return count > 0;
  }

  bool next(std::string& line) {
    std::size_t searched = 0;
    for (;;) {
      const std::string_view rest = std::string_view(buffer).substr(begin);
      const std::size_t end = rest.find('\n', searched);
      // Two bytes more than the limit may be a CR and what follows; beyond that the line is too long for sure.
      const std::int64_t length = static_cast<std::int64_t>(end == std::string_view::npos ? rest.size() : end);
      if (length > options.longest_line + 4) {
        ++report.lines;
        refuse_long(rest, false);
      }
      if (end != std::string_view::npos) {
        take(line, rest.substr(0, end));
        line_end = true;
        begin += end + 1;
        return true;
      }
      searched = rest.size();
      if (!fill()) {
        if (buffer.empty()) return false;
        take(line, buffer);
        line_end = false;
        buffer.clear();
        return true;
      }
    }
  }

  // Reads on only while that needs no waiting.
  bool ready() {
    for (;;) {
      const std::string_view rest = std::string_view(buffer).substr(begin);
      if (rest.find('\n') != std::string_view::npos ||
          static_cast<std::int64_t>(rest.size()) > options.longest_line + 4)
        return true;
      if (!source->ready()) return false;
      if (!fill()) return true;
    }
  }

  void take(std::string& line, std::string_view bytes) {
    ++report.lines;
    if (report.lines == 1 && bytes.substr(0, byte_order_mark.size()) == byte_order_mark) {
      bytes.remove_prefix(byte_order_mark.size());
      report.byte_order_mark = true;
    }
    if (!bytes.empty() && bytes.back() == '\r') {
      bytes.remove_suffix(1);
      ++report.crlf;
    }
    if (static_cast<std::int64_t>(bytes.size()) > options.longest_line) refuse_long(bytes, true);
    const std::size_t invalid = find_invalid_utf8(bytes);
    if (invalid == std::string_view::npos) {
      line.assign(bytes);
    } else if (options.replace_invalid) {
      line = replace_invalid_utf8(bytes, &report.replaced);
    } else {
      refuse_invalid(name, report.lines, bytes, invalid, options);
    }
    if (is_blank(line)) ++report.empty;
  }

  [[noreturn]] void refuse_long(std::string_view line, bool whole) const {
    throw Error(ErrorKind::text, join(name, ':', report.lines),
                join("the line ", excerpt(line), " has ", whole ? "" : "at least ", line.size(),
                     " bytes; the limit is ", options.longest_line),
                advice("split the line", "raise the limit", options.names.longest_line));
  }

  std::string name;
  ReadOptions options;
  std::unique_ptr<ByteSource> source;
  std::string buffer;
  std::size_t begin = 0;
  bool line_end = false;  // the last line had one
  ReadReport report;
};

LineReader::LineReader(const std::filesystem::path& path, ReadOptions options) {
  check(options);
  state_ = std::make_unique<State>(path, options);
}
LineReader::~LineReader() = default;
LineReader::LineReader(LineReader&&) noexcept = default;
LineReader& LineReader::operator=(LineReader&&) noexcept = default;

bool LineReader::next(std::string& line) { return state_->next(line); }
bool LineReader::ready() { return state_->ready(); }
std::int64_t LineReader::number() const { return state_->report.lines; }
const ReadReport& LineReader::report() const { return state_->report; }

Lines read_lines(const std::filesystem::path& path, const ReadOptions& options) {
  LineReader reader(path, options);
  Lines result;
  std::string line;
  while (reader.next(line))
    if (!options.skip_empty || !is_blank(line)) result.lines.push_back(line);
  result.report = reader.report();
  if (result.lines.empty())
    throw Error(ErrorKind::text, name_of_file(path),
                result.report.lines == 0 ? std::string("the corpus is empty") : "the corpus holds only empty lines",
                "give a file with text");
  return result;
}

struct PairReader::State {
  State(const std::filesystem::path& source_path, const std::filesystem::path& target_path,
        const ReadOptions& read_options)
      : source(source_path),
        target(target_path),
        options(read_options),
        left(source_path, read_options),
        right(target_path, read_options) {}

  // The longer file is read to its end for its number of lines.
  [[noreturn]] void refuse_lonely(bool more_left, const std::string& line) {
    LineReader& longer = more_left ? left : right;
    const std::int64_t first = longer.number();
    const std::string alone = excerpt(line);
    for (std::string rest; longer.next(rest);) {
    }
    throw Error(ErrorKind::text, join(name_of_file(source), ", ", name_of_file(target)),
                join("the files have ", left.number(), " and ", right.number(), " lines; line ", first, " of ",
                     name_of_file(more_left ? source : target), " (", alone, ") has no partner"),
                "give two files where line n of one translates line n of the other");
  }

  std::filesystem::path source, target;
  ReadOptions options;
  LineReader left, right;
  std::int64_t pairs = 0, skipped = 0;
};

PairReader::PairReader(const std::filesystem::path& source, const std::filesystem::path& target, ReadOptions options) {
  if (source == "-" && target == "-")
    throw Error(ErrorKind::argument, "corpus", "both sides are the standard input", "give at least one side as a file");
  state_ = std::make_unique<State>(source, target, options);
}
PairReader::~PairReader() = default;
PairReader::PairReader(PairReader&&) noexcept = default;
PairReader& PairReader::operator=(PairReader&&) noexcept = default;

bool PairReader::next(std::string& source, std::string& target) {
  State& state = *state_;
  for (;;) {
    const bool more_left = state.left.next(source), more_right = state.right.next(target);
    if (more_left != more_right) state.refuse_lonely(more_left, more_left ? source : target);
    if (!more_left) break;
    const bool left_blank = is_blank(source), right_blank = is_blank(target);
    if (!left_blank && !right_blank) {
      ++state.pairs;
      return true;
    }
    if (!state.options.skip_empty)
      throw Error(
          ErrorKind::text, join(name_of_file(left_blank ? state.source : state.target), ':', state.left.number()),
          left_blank && right_blank ? std::string("both sides of the pair are empty")
                                    : "this side of the pair is empty",
          advice("remove the pair from both files", "have empty pairs skipped", state.options.names.skip_empty));
    ++state.skipped;
  }
  if (state.pairs == 0)
    throw Error(ErrorKind::text, join(name_of_file(state.source), ", ", name_of_file(state.target)),
                state.left.number() == 0 ? std::string("the corpus is empty") : "the corpus holds only empty pairs",
                "give two files with text");
  return false;
}

std::int64_t PairReader::number() const { return state_->left.number(); }
std::int64_t PairReader::skipped_empty() const { return state_->skipped; }
const ReadReport& PairReader::source_report() const { return state_->left.report(); }
const ReadReport& PairReader::target_report() const { return state_->right.report(); }

ParallelCorpus read_parallel(const std::filesystem::path& source, const std::filesystem::path& target,
                             const ReadOptions& options) {
  PairReader reader(source, target, options);
  ParallelCorpus corpus;
  for (std::string left, right; reader.next(left, right);) {
    corpus.source.push_back(left);
    corpus.target.push_back(right);
    corpus.line.push_back(reader.number());
  }
  corpus.source_report = reader.source_report();
  corpus.target_report = reader.target_report();
  corpus.skipped_empty = reader.skipped_empty();
  return corpus;
}

ParallelCorpus read_tsv(const std::filesystem::path& path, const TsvColumns& columns, const ReadOptions& options) {
  if (columns.source < 0 || columns.target < 0 || columns.source == columns.target || columns.columns < 0 ||
      (columns.columns > 0 && std::max(columns.source, columns.target) >= columns.columns))
    throw Error(ErrorKind::argument, "corpus",
                join("columns ", columns.source, " and ", columns.target, " of ", columns.columns, " are not possible"),
                "use two different columns, counted from 0");
  check(options);
  ReadOptions whole = options;
  whole.longest_line =
      options.longest_line > (std::int64_t{1} << 50) ? options.longest_line : 16 * options.longest_line;
  LineReader reader(path, whole);
  ParallelCorpus corpus;
  const std::string name = name_of_file(path);
  std::int64_t expected = columns.columns;
  std::string line;
  while (reader.next(line)) {
    std::string_view sides[2];
    std::int64_t count = 0;
    std::size_t begin = 0;
    for (;;) {
      const std::size_t end = std::min(line.find('\t', begin), line.size());
      const std::string_view cell = std::string_view(line).substr(begin, end - begin);
      if (count == columns.source) sides[0] = cell;
      if (count == columns.target) sides[1] = cell;
      ++count;
      if (end == line.size()) break;
      begin = end + 1;
    }
    const std::string where = join(name, ':', reader.number());
    if (is_blank(line) && options.skip_empty) {
      ++corpus.skipped_empty;
      continue;
    }
    if (expected == 0) expected = std::max<std::int64_t>(count, std::max(columns.source, columns.target) + 1);
    if (count != expected)
      throw Error(ErrorKind::text, where,
                  join("the line ", excerpt(line), " has ", count, count == 1 ? " column" : " columns",
                       " separated by tabs; expected ", expected),
                  "correct the line, or name the number of columns");
    for (const std::string_view side : sides)
      if (static_cast<std::int64_t>(side.size()) > options.longest_line)
        throw Error(
            ErrorKind::text, where,
            join("the text ", excerpt(side), " has ", side.size(), " bytes; the limit is ", options.longest_line),
            advice("split the text", "raise the limit", options.names.longest_line));
    if (is_blank(sides[0]) || is_blank(sides[1])) {
      if (!options.skip_empty)
        throw Error(ErrorKind::text, where,
                    join("column ", is_blank(sides[0]) ? columns.source : columns.target, " (counted from 0) is empty"),
                    advice("remove the line", "have empty pairs skipped", options.names.skip_empty));
      ++corpus.skipped_empty;
      continue;
    }
    corpus.source.emplace_back(sides[0]);
    corpus.target.emplace_back(sides[1]);
    corpus.line.push_back(reader.number());
  }
  corpus.source_report = corpus.target_report = reader.report();
  if (corpus.source.empty())
    throw Error(ErrorKind::text, name,
                reader.number() == 0 ? std::string("the corpus is empty") : "the corpus holds only empty pairs",
                "give a file with text");
  return corpus;
}

Text read_text(const std::filesystem::path& path, const ReadOptions& options) {
  ReadOptions unlimited = options;
  unlimited.longest_line = std::int64_t{1} << 60;
  LineReader reader(path, unlimited);
  Text result;
  std::string line;
  bool blank = true;
  while (reader.next(line)) {
    blank = blank && is_blank(line);
    result.text += line;
    if (reader.state_->line_end) result.text += '\n';
  }
  result.report = reader.report();
  if (blank)
    throw Error(ErrorKind::text, name_of_file(path),
                reader.number() == 0 ? "the text is empty" : "the text holds only blanks", "give a file with text");
  return result;
}

}  // namespace attend
