// Files that are whole or absent: written under a temporary name, synced, renamed.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <string>
#include <string_view>

namespace attend {

// Reads a whole file. Throws Error(file) with the system's reason, or if it holds more than `limit` bytes.
std::string read_file(const std::filesystem::path& path, std::int64_t limit = std::int64_t{4} << 30);

// Writes `<path>.partial`, syncs it, renames it to `path` and syncs the folder. On any failure (a full disk, say) the
// old file stays as it was, the partial one is removed, and Error(file) is thrown. A symbolic link stays: all that is done
// to the file it leads to, whose rights the new one keeps. A device, a pipe or an open file (/dev/stdout) is written to as
// it is.
void write_file(const std::filesystem::path& path, std::string_view bytes);
// The same for bytes made piece by piece: `produce` is called once and hands each piece to the function it is given.
// An exception that leaves `produce` also leaves the old file as it was.
void write_file(const std::filesystem::path& path,
                const std::function<void(const std::function<void(std::string_view)>& take)>& produce);

}  // namespace attend
