#include <gtest/gtest.h>

#include <fcntl.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <optional>
#include <stdexcept>
#include <string>

#include "attend/error.h"
#include "core/file.h"

namespace attend {
namespace {

namespace fs = std::filesystem;

class Files : public testing::Test {
 protected:
  void SetUp() override {
    std::string pattern = (fs::temp_directory_path() / "attend-core-XXXXXX").string();
    ASSERT_NE(mkdtemp(pattern.data()), nullptr);
    folder_ = pattern;
  }
  void TearDown() override { fs::remove_all(folder_); }

  // How many entries the folder holds: a failed write must leave none behind.
  std::ptrdiff_t entries() const { return std::distance(fs::directory_iterator(folder_), fs::directory_iterator()); }

  fs::path folder_;
};

template <typename Work>
std::string message_of(Work work, ErrorKind kind = ErrorKind::file) {
  try {
    work();
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), kind) << error.what();
    return error.what();
  }
  ADD_FAILURE() << "nothing was thrown";
  return "";
}

bool contains(const std::string& text, const std::string& part) { return text.find(part) != std::string::npos; }

// While it lives, a file of this process cannot grow beyond `bytes`: a full disk that a test can have.
class FullDisk {
 public:
  explicit FullDisk(rlim_t bytes) {
    getrlimit(RLIMIT_FSIZE, &before_);
    handler_ = signal(SIGXFSZ, SIG_IGN);
    rlimit limit = before_;
    limit.rlim_cur = bytes;
    setrlimit(RLIMIT_FSIZE, &limit);
  }
  ~FullDisk() {
    setrlimit(RLIMIT_FSIZE, &before_);
    signal(SIGXFSZ, handler_);
  }

 private:
  rlimit before_{};
  void (*handler_)(int) = nullptr;
};

TEST_F(Files, ComeBackAsTheyWereWritten) {
  std::string bytes;
  for (int i = 0; i < 200000; ++i) bytes.push_back(static_cast<char>(i * 7 % 256));
  for (const std::string& content : {std::string(), std::string("a\0b\n", 4), bytes}) {
    write_file(folder_ / "file", content);
    EXPECT_EQ(read_file(folder_ / "file"), content);
    EXPECT_EQ(entries(), 1);
  }
}

TEST_F(Files, MadeInPiecesComeBackWhole) {
  write_file(folder_ / "file", [](const std::function<void(std::string_view)>& take) {
    take("one ");
    take("");
    take("two");
  });
  EXPECT_EQ(read_file(folder_ / "file"), "one two");
}

TEST_F(Files, StayAsTheyWereWhenTheDiskIsFull) {
  write_file(folder_ / "file", "old");
  const std::string large(100000, 'x');
  std::string message;
  {
    FullDisk full(5000);
    message = message_of([&] { write_file(folder_ / "file", large); });
  }
  EXPECT_TRUE(contains(message, "file: cannot write: File too large")) << message;
  EXPECT_TRUE(contains(message, "unchanged")) << message;
  EXPECT_EQ(read_file(folder_ / "file"), "old");
  EXPECT_EQ(entries(), 1);
}

TEST_F(Files, StayAsTheyWereWhenTheirMakerThrows) {
  write_file(folder_ / "file", "old");
  EXPECT_THROW(write_file(folder_ / "file",
                          [](const std::function<void(std::string_view)>& take) {
                            take("half");
                            throw std::logic_error("stop");
                          }),
               std::logic_error);
  EXPECT_EQ(read_file(folder_ / "file"), "old");
  EXPECT_EQ(entries(), 1);
}

TEST_F(Files, StayAsTheyWereWhenAPieceDoesNotFit) {
  write_file(folder_ / "file", "old");
  {
    FullDisk full(5000);
    message_of([&] {
      write_file(folder_ / "file", [](const std::function<void(std::string_view)>& take) {
        for (int i = 0; i < 100; ++i) take(std::string(1000, 'x'));
      });
    });
  }
  EXPECT_EQ(read_file(folder_ / "file"), "old");
  EXPECT_EQ(entries(), 1);
}

TEST_F(Files, CannotReplaceAFolder) {
  fs::create_directory(folder_ / "taken");
  const std::string message = message_of([&] { write_file(folder_ / "taken", "bytes"); });
  EXPECT_TRUE(contains(message, "taken: cannot rename to its final name: ")) << message;
  EXPECT_TRUE(fs::is_directory(folder_ / "taken"));
  EXPECT_EQ(entries(), 1);
}

TEST_F(Files, CannotBeWrittenIntoAFolderThatIsNotThere) {
  const std::string message = message_of([&] { write_file(folder_ / "no" / "file", "bytes"); });
  EXPECT_TRUE(contains(message, "cannot create: No such file or directory")) << message;
}

TEST_F(Files, ThatAreMissingOrFoldersSaySo) {
  EXPECT_TRUE(
      contains(message_of([&] { read_file(folder_ / "none"); }), "none: cannot open: No such file or directory"));
  EXPECT_TRUE(contains(message_of([&] { read_file(folder_); }), "cannot read: Is a directory"));
}

TEST_F(Files, BeyondTheLimitAreRefused) {
  write_file(folder_ / "file", "12345");
  EXPECT_EQ(read_file(folder_ / "file", 5), "12345");
  const std::string message = message_of([&] { read_file(folder_ / "file", 4); });
  EXPECT_TRUE(contains(message, "5 bytes")) << message;
  EXPECT_TRUE(contains(message, "limit of 4")) << message;
}

TEST_F(Files, WithoutASizeAreReadToTheEndButNotBeyondTheLimit) {
  // Files under /proc say 0 bytes; /dev/zero never ends.
  EXPECT_TRUE(contains(read_file("/proc/self/status"), "Pid:"));
  EXPECT_TRUE(contains(message_of([] { read_file("/dev/zero", 100000); }), "more than the limit of 100000 bytes"));
}

TEST_F(Files, LockOfAFolderIsExclusive) {
  std::optional<FolderLock> lock(std::in_place, folder_);
  const std::string message = message_of([&] { FolderLock second(folder_); });
  EXPECT_TRUE(contains(message, "another process is writing")) << message;
  EXPECT_TRUE(contains(message, folder_.string())) << message;
  lock.reset();
  EXPECT_NO_THROW(FolderLock{folder_});
}

TEST_F(Files, LockEndsWithItsProcess) {
  int ready[2];
  ASSERT_EQ(pipe(ready), 0);
  const pid_t child = fork();
  if (child == 0) {
    FolderLock lock(folder_);
    const char byte = 'x';
    if (write(ready[1], &byte, 1) != 1) _exit(1);
    pause();
    _exit(0);
  }
  char byte = 0;
  ASSERT_EQ(read(ready[0], &byte, 1), 1);
  EXPECT_THROW(FolderLock{folder_}, Error);
  kill(child, SIGKILL);
  int status = 0;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_NO_THROW(FolderLock{folder_});
  close(ready[0]);
  close(ready[1]);
}

TEST_F(Files, LockNeedsAFolder) { EXPECT_THROW(FolderLock(folder_ / "none"), Error); }

// ---- Names that are no ordinary file ----------------------------------------------------------------------------------

TEST_F(Files, LinksStayAndTheirFilesAreWritten) {
  fs::create_directories(folder_ / "far");
  write_file(folder_ / "far/old", "old");
  fs::permissions(folder_ / "far/old", fs::perms::owner_read | fs::perms::owner_write);
  fs::create_symlink("far/old", folder_ / "first");
  fs::create_symlink("first", folder_ / "second");
  fs::create_symlink(folder_ / "far/new", folder_ / "dangling");
  write_file(folder_ / "second", "changed");
  write_file(folder_ / "dangling", "made");
  EXPECT_TRUE(fs::is_symlink(folder_ / "first") && fs::is_symlink(folder_ / "second") &&
              fs::is_symlink(folder_ / "dangling"));
  EXPECT_EQ(read_file(folder_ / "far/old"), "changed");
  EXPECT_EQ(read_file(folder_ / "far/new"), "made");
  EXPECT_EQ(fs::status(folder_ / "far/old").permissions(), fs::perms::owner_read | fs::perms::owner_write)
      << "who may read it did not change";
  EXPECT_EQ(entries(), 4) << "no partial file beside the links";

  fs::create_symlink("b", folder_ / "a");
  fs::create_symlink("a", folder_ / "b");
  EXPECT_TRUE(contains(message_of([&] { write_file(folder_ / "a", "x"); }), "symbolic links"));
}

TEST_F(Files, ALinkInPlaceOfThePartialFileIsNotFollowed) {
  write_file(folder_ / "victim", "untouched");
  fs::create_symlink("victim", folder_ / "file.partial");
  message_of([&] { write_file(folder_ / "file", "x"); });
  EXPECT_EQ(read_file(folder_ / "victim"), "untouched");
}

TEST_F(Files, DevicesAndPipesAreWrittenTo) {
  const fs::path pipe = folder_ / "pipe";
  ASSERT_EQ(mkfifo(pipe.c_str(), 0600), 0);
  const int reader = open(pipe.c_str(), O_RDONLY | O_NONBLOCK);
  ASSERT_GE(reader, 0);
  write_file(pipe, "through the pipe");
  char text[32] = {};
  EXPECT_EQ(read(reader, text, sizeof(text)), 16);
  EXPECT_STREQ(text, "through the pipe");
  close(reader);
  EXPECT_TRUE(fs::is_fifo(pipe));

  ASSERT_TRUE(fs::is_character_file("/dev/full"));
  fs::create_symlink("/dev/full", folder_ / "full");
  EXPECT_TRUE(contains(message_of([&] { write_file(folder_ / "full", "x"); }), "No space left"));
  EXPECT_TRUE(fs::is_symlink(folder_ / "full"));
  EXPECT_TRUE(fs::is_character_file("/dev/full"));
  EXPECT_FALSE(fs::exists("/dev/full.partial"));
  write_file("/dev/null", "gone");
  EXPECT_TRUE(fs::is_character_file("/dev/null"));
  EXPECT_TRUE(contains(message_of([&] { write_file(folder_, "x"); }), "directory"));
}

// As after `attend ... --output /dev/stdout > file`: what was written before stays.
TEST_F(Files, OpenFilesAreWrittenWhereTheyStand) {
  const int file = open((folder_ / "open").c_str(), O_WRONLY | O_CREAT, 0600);
  ASSERT_GE(file, 0);
  ASSERT_EQ(write(file, "one ", 4), 4);
  write_file("/dev/fd/" + std::to_string(file), "two ");
  write_file("/proc/self/fd/" + std::to_string(file), "three ");
  ASSERT_EQ(write(file, "four", 4), 4);
  close(file);
  EXPECT_EQ(read_file(folder_ / "open"), "one two three four");
}

}  // namespace
}  // namespace attend
