#include "text/byte_source.h"

#include <fcntl.h>
#include <lzma.h>
#include <poll.h>
#include <sys/stat.h>
#include <unistd.h>
#include <zlib.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <string_view>

#include "attend/error.h"

namespace attend {
namespace {

constexpr std::string_view gzip_magic = "\x1F\x8B";
constexpr std::string_view xz_magic = std::string_view(
    "\xFD"
    "7zXZ\0",
    6);
constexpr std::uint64_t unpacking_memory = std::uint64_t{256} << 20;  // a hostile .xz can ask for gigabytes

[[noreturn]] void refuse_format(const std::string& where, const std::string& what) {
  throw Error(ErrorKind::format, where, what, "fetch the file again, or unpack it by hand to see how much is whole");
}

class FileSource final : public ByteSource {
 public:
  explicit FileSource(const std::filesystem::path& path) : where_(path == "-" ? "standard input" : path.string()) {
    if (path == "-") {
      descriptor_ = STDIN_FILENO;
      return;
    }
    descriptor_ = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
    if (descriptor_ < 0) throw Error(ErrorKind::file, where_, join("cannot open: ", std::strerror(errno)));
    owned_ = true;
  }
  ~FileSource() override {
    if (owned_) ::close(descriptor_);
  }
  FileSource(const FileSource&) = delete;
  FileSource& operator=(const FileSource&) = delete;

  std::size_t read(char* bytes, std::size_t size) override {
    if (begin_ < start_.size()) {
      const std::size_t count = std::min(size, start_.size() - begin_);
      std::memcpy(bytes, start_.data() + begin_, count);
      begin_ += count;
      return count;
    }
    return read_now(bytes, size);
  }

  bool ready() override {
    if (begin_ < start_.size()) return true;
    pollfd waiting{descriptor_, POLLIN, 0};
    return ::poll(&waiting, 1, 0) != 0;  // an error is for read() to tell
  }

  // Reads ahead only as far as the bytes could still be one of the magic numbers, so that a person at a terminal gets an
  // answer to a first line of one letter.
  std::string_view first_bytes() {
    const auto could_be = [&](std::string_view magic) {
      return start_.size() < magic.size() && magic.substr(0, start_.size()) == start_;
    };
    while (could_be(gzip_magic) || could_be(xz_magic)) {
      char block[4096];
      const std::size_t count = read_now(block, sizeof(block));
      if (count == 0) break;
      start_.append(block, count);
    }
    return start_;
  }

  const std::string& where() const { return where_; }

 private:
  std::size_t read_now(char* bytes, std::size_t size) {
    for (;;) {
      const ssize_t count = ::read(descriptor_, bytes, size);
      if (count >= 0) return static_cast<std::size_t>(count);
      if (errno == EAGAIN) {
        pollfd waiting{descriptor_, POLLIN, 0};  // a pipe that somebody made non-blocking
        ::poll(&waiting, 1, -1);
      } else if (errno != EINTR) {
        throw Error(ErrorKind::file, where_, join("cannot read: ", std::strerror(errno)));
      }
    }
  }

  std::string where_;
  int descriptor_ = -1;
  bool owned_ = false;
  std::string start_;
  std::size_t begin_ = 0;
};

class GzipSource final : public ByteSource {
 public:
  explicit GzipSource(std::unique_ptr<FileSource> file) : file_(std::move(file)) {
    if (inflateInit2(&stream_, 15 + 16) != Z_OK) throw Error(ErrorKind::file, file_->where(), "no memory to unpack it");
  }
  ~GzipSource() override { inflateEnd(&stream_); }
  GzipSource(const GzipSource&) = delete;
  GzipSource& operator=(const GzipSource&) = delete;

  std::size_t read(char* bytes, std::size_t size) override {
    if (done_ || size == 0) return 0;
    stream_.next_out = reinterpret_cast<Bytef*>(bytes);
    stream_.avail_out = static_cast<uInt>(std::min<std::size_t>(size, 1 << 30));
    const uInt wanted = stream_.avail_out;
    while (stream_.avail_out == wanted) {
      if (stream_.avail_in == 0 && !fill()) {
        if (inside_) refuse_format(file_->where(), "the .gz file is cut short");
        done_ = true;
        return 0;
      }
      if (!inside_ && !at_member()) {
        done_ = true;
        return 0;
      }
      inside_ = true;
      const int code = inflate(&stream_, Z_NO_FLUSH);
      if (code == Z_STREAM_END) {
        inside_ = false;
        if (inflateReset(&stream_) != Z_OK) refuse_format(file_->where(), "the .gz file is damaged");
      } else if (code != Z_OK && code != Z_BUF_ERROR) {
        refuse_format(file_->where(), join("the .gz file is damaged", stream_.msg != nullptr ? ": " : "",
                                           stream_.msg != nullptr ? stream_.msg : ""));
      }
    }
    return wanted - stream_.avail_out;
  }

  bool ready() override { return done_ || stream_.avail_in > 0 || file_->ready(); }

 private:
  bool fill() {
    const std::size_t count = file_->read(block_.data(), block_.size());
    stream_.next_in = reinterpret_cast<Bytef*>(block_.data());
    stream_.avail_in = static_cast<uInt>(count);
    return count > 0;
  }

  // After a member comes another one, or zeros up to the end (tapes pad so).
  bool at_member() {
    if (*stream_.next_in != 0) return true;
    do {
      for (; stream_.avail_in > 0; ++stream_.next_in, --stream_.avail_in)
        if (*stream_.next_in != 0) refuse_format(file_->where(), "other bytes follow the packed data");
    } while (fill());
    return false;
  }

  std::unique_ptr<FileSource> file_;
  z_stream stream_{};
  std::array<char, 1 << 16> block_;
  bool inside_ = false;
  bool done_ = false;
};

class XzSource final : public ByteSource {
 public:
  explicit XzSource(std::unique_ptr<FileSource> file) : file_(std::move(file)) {
    if (lzma_stream_decoder(&stream_, unpacking_memory, LZMA_CONCATENATED) != LZMA_OK)
      throw Error(ErrorKind::file, file_->where(), "no memory to unpack it");
  }
  ~XzSource() override { lzma_end(&stream_); }
  XzSource(const XzSource&) = delete;
  XzSource& operator=(const XzSource&) = delete;

  std::size_t read(char* bytes, std::size_t size) override {
    if (done_ || size == 0) return 0;
    stream_.next_out = reinterpret_cast<std::uint8_t*>(bytes);
    stream_.avail_out = size;
    while (stream_.avail_out == size) {
      if (stream_.avail_in == 0 && !ended_) {
        stream_.avail_in = file_->read(block_.data(), block_.size());
        stream_.next_in = reinterpret_cast<const std::uint8_t*>(block_.data());
        ended_ = stream_.avail_in == 0;
      }
      const lzma_ret code = lzma_code(&stream_, ended_ ? LZMA_FINISH : LZMA_RUN);
      if (code == LZMA_STREAM_END) {
        done_ = true;
        break;
      }
      if (code == LZMA_OK) continue;
      if (code == LZMA_BUF_ERROR && ended_) refuse_format(file_->where(), "the .xz file is cut short");
      if (code == LZMA_MEMLIMIT_ERROR)
        refuse_format(file_->where(), join("the .xz file needs more than ", unpacking_memory >> 20, " MB to unpack"));
      if (code == LZMA_MEM_ERROR) throw Error(ErrorKind::file, file_->where(), "no memory to unpack it");
      refuse_format(file_->where(), "the .xz file is damaged");
    }
    return size - stream_.avail_out;
  }

  bool ready() override { return done_ || ended_ || stream_.avail_in > 0 || file_->ready(); }

 private:
  std::unique_ptr<FileSource> file_;
  lzma_stream stream_ = LZMA_STREAM_INIT;
  std::array<char, 1 << 16> block_;
  bool ended_ = false;
  bool done_ = false;
};

class LimitedSource final : public ByteSource {
 public:
  LimitedSource(std::unique_ptr<ByteSource> source, std::int64_t limit, std::string where)
      : source_(std::move(source)), limit_(limit), where_(std::move(where)) {}
  std::size_t read(char* bytes, std::size_t size) override {
    const std::size_t count = source_->read(bytes, size);
    total_ += static_cast<std::int64_t>(count);
    if (total_ > limit_)
      throw Error(ErrorKind::format, where_, join("holds more than ", limit_, " bytes of text after unpacking"),
                  "split the file");
    return count;
  }
  bool ready() override { return source_->ready(); }

 private:
  std::unique_ptr<ByteSource> source_;
  std::int64_t limit_;
  std::int64_t total_ = 0;
  std::string where_;
};

}  // namespace

std::unique_ptr<ByteSource> open_bytes(const std::filesystem::path& path, std::int64_t limit) {
  auto file = std::make_unique<FileSource>(path);
  const std::string where = file->where();
  const std::string_view start = file->first_bytes();
  std::unique_ptr<ByteSource> source;
  if (start.substr(0, gzip_magic.size()) == gzip_magic) source = std::make_unique<GzipSource>(std::move(file));
  else if (start.substr(0, xz_magic.size()) == xz_magic) source = std::make_unique<XzSource>(std::move(file));
  else source = std::move(file);
  return std::make_unique<LimitedSource>(std::move(source), limit, where);
}

}  // namespace attend
