#include "core/file.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "attend/error.h"

namespace attend {
namespace {

[[noreturn]] void refuse(const std::filesystem::path& path, const char* verb, int code, const char* advice = "") {
  throw Error(ErrorKind::file, path.string(), join("cannot ", verb, ": ", std::strerror(code)), advice);
}

class Descriptor {
 public:
  explicit Descriptor(int value) : value_(value) {}
  ~Descriptor() {
    if (value_ >= 0) ::close(value_);
  }
  Descriptor(const Descriptor&) = delete;
  Descriptor& operator=(const Descriptor&) = delete;
  int get() const { return value_; }
  int close() {
    const int result = ::close(value_);
    value_ = -1;
    return result;
  }

 private:
  int value_;
};

}  // namespace

std::string read_file(const std::filesystem::path& path, std::int64_t limit) {
  Descriptor file(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  if (file.get() < 0) refuse(path, "open", errno);
  struct stat status {};
  if (::fstat(file.get(), &status) != 0) refuse(path, "read", errno);
  if (S_ISDIR(status.st_mode)) refuse(path, "read", EISDIR);
  std::string bytes;
  if (S_ISREG(status.st_mode)) {
    if (status.st_size > limit)
      throw Error(ErrorKind::file, path.string(),
                  join("holds ", status.st_size, " bytes, more than the limit of ", limit));
    bytes.reserve(static_cast<std::size_t>(status.st_size));
  }
  char block[1 << 16];
  for (;;) {
    const ssize_t count = ::read(file.get(), block, sizeof(block));
    if (count < 0) {
      if (errno == EINTR) continue;
      refuse(path, "read", errno);
    }
    if (count == 0) return bytes;
    bytes.append(block, static_cast<std::size_t>(count));
    if (static_cast<std::int64_t>(bytes.size()) > limit)
      throw Error(ErrorKind::file, path.string(), join("holds more than the limit of ", limit, " bytes"));
  }
}

namespace {

// Where a path leads.
struct Destination {
  std::filesystem::path path;  // without symbolic links at its end
  int descriptor = -1;         // the open file that /dev/stdout, /dev/fd/3 and the like stand for
  bool exists = false;
  struct stat status {};

  bool special() const { return exists && !S_ISREG(status.st_mode) && !S_ISDIR(status.st_mode); }
};

// Links are followed by hand: the file they lead to may not exist yet, and those of /proc lead to no path.
Destination destination_of(const std::filesystem::path& path) {
  constexpr int most_links = 40;  // as many as Linux follows
  std::error_code code;
  const std::filesystem::path open_files = std::filesystem::canonical("/proc/self/fd", code);
  Destination to;
  to.path = path;
  for (int links = 0; std::filesystem::is_symlink(to.path, code); ++links) {
    if (links == most_links) refuse(path, "write", ELOOP);
    const std::filesystem::path folder = to.path.parent_path();
    if (!open_files.empty() && std::filesystem::canonical(folder.empty() ? "." : folder, code) == open_files) {
      const std::string number = to.path.filename().string();
      if (!number.empty() && number.size() < 10 && number.find_first_not_of("0123456789") == std::string::npos) {
        to.descriptor = std::stoi(number);
        return to;
      }
    }
    const std::filesystem::path next = std::filesystem::read_symlink(to.path, code);
    if (code) refuse(path, "read the link", code.value());
    to.path = folder / next;  // `next` alone, where it is absolute
  }
  to.exists = ::stat(to.path.c_str(), &to.status) == 0;
  return to;
}

// Calls produce() and writes what it hands out. Returns the system's error, 0 for none.
int write_all(int descriptor, const std::function<void(const std::function<void(std::string_view)>& take)>& produce) {
  int code = 0;
  produce([&](std::string_view bytes) {
    std::size_t done = 0;
    while (done < bytes.size() && code == 0) {
      const ssize_t count = ::write(descriptor, bytes.data() + done, bytes.size() - done);
      if (count >= 0) done += static_cast<std::size_t>(count);
      else if (errno != EINTR) code = errno;
    }
  });
  return code;
}

}  // namespace

void write_file(const std::filesystem::path& path,
                const std::function<void(const std::function<void(std::string_view)>& take)>& produce) {
  const Destination to = destination_of(path);
  // A device, a pipe or a file that is open already is written to where it stands: a file put in its place would take its
  // name away from it.
  if (to.special() || to.descriptor >= 0) {
    Descriptor file(to.descriptor >= 0 ? ::fcntl(to.descriptor, F_DUPFD_CLOEXEC, 0)
                                       : ::open(to.path.c_str(), O_WRONLY | O_CLOEXEC | O_NOCTTY));
    if (file.get() < 0) refuse(path, "open", errno);
    if (const int code = write_all(file.get(), produce); code != 0) refuse(path, "write", code);
    if (file.close() != 0) refuse(path, "write", errno);
    return;
  }
  const std::filesystem::path partial = to.path.string() + ".partial";
  int code = 0;
  const char* verb = "write";
  {
    // A link of that name that somebody left there is not followed.
    Descriptor file(::open(partial.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC | O_NOFOLLOW, 0644));
    if (file.get() < 0) refuse(partial, "create", errno);
    try {
      code = write_all(file.get(), produce);
    } catch (...) {
      ::unlink(partial.c_str());
      throw;
    }
    // Who may read the old file may read the new one, and nobody else; where that cannot be, the usual rights stay.
    if (to.exists) (void)::fchmod(file.get(), to.status.st_mode & 0777);
    if (code == 0 && ::fsync(file.get()) != 0) code = errno, verb = "sync";
    if (file.close() != 0 && code == 0) code = errno;
  }
  if (code == 0 && ::rename(partial.c_str(), to.path.c_str()) != 0) code = errno, verb = "rename to its final name";
  if (code != 0) {
    ::unlink(partial.c_str());
    refuse(path, verb, code, "the previous file, if any, is unchanged");
  }
  const std::filesystem::path folder = to.path.has_parent_path() ? to.path.parent_path() : std::filesystem::path(".");
  Descriptor parent(::open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  // Some file systems refuse to sync a folder; the file itself is safe by now.
  if (parent.get() >= 0) (void)::fsync(parent.get());
}

void write_file(const std::filesystem::path& path, std::string_view bytes) {
  write_file(path, [bytes](const std::function<void(std::string_view)>& take) { take(bytes); });
}

FolderLock::FolderLock(const std::filesystem::path& folder) {
  const std::filesystem::path path = folder / ".lock";
  descriptor_ = ::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0644);
  if (descriptor_ < 0) refuse(path, "create", errno);
  if (::flock(descriptor_, LOCK_EX | LOCK_NB) != 0) {
    const int code = errno;
    ::close(descriptor_);
    if (code == EWOULDBLOCK)
      throw Error(ErrorKind::file, folder.string(), "another process is writing to this folder",
                  "wait for it to end, or choose another folder");
    refuse(path, "lock", code);
  }
}

FolderLock::~FolderLock() {
  if (descriptor_ >= 0) ::close(descriptor_);
}

}  // namespace attend
