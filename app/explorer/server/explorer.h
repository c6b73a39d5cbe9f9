// The explorer: one page and the engine behind it, on this machine.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <string>
#include <vector>

#include "explorer/limits.h"

namespace attend::explorer {

struct ExplorerOptions {
  std::vector<std::filesystem::path> models;  // folders
  std::string preferred;                      // name of the default model; none of that name: the first
  std::string host = "127.0.0.1";
  std::uint16_t port = 0;  // 0: any that is free
  Limits limits;
};

// What is known once the address is taken.
struct ExplorerStart {
  std::string url;
  bool loopback = true;                        // reached from this machine only
  std::vector<std::filesystem::path> skipped;  // folders among `models` that hold none
};

// Serves until SIGINT or SIGTERM. `ready` is called once the address is taken, before anything is served.
// Errors of the models' folders and of the address.
void explore(const ExplorerOptions& options, const std::function<void(const ExplorerStart&)>& ready);

}  // namespace attend::explorer
