// The files of files.h, and a lock on a folder.
#pragma once

#include <filesystem>

#include "attend/files.h"

namespace attend {

// An exclusive lock on a folder, held while the object lives; the system drops it if the process dies.
// Throws Error(file) when another process holds it.
class FolderLock {
 public:
  explicit FolderLock(const std::filesystem::path& folder);
  ~FolderLock();
  FolderLock(const FolderLock&) = delete;
  FolderLock& operator=(const FolderLock&) = delete;

 private:
  int descriptor_ = -1;
};

}  // namespace attend
