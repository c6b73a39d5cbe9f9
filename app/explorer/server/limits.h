// What one request may ask for; /status tells them to the page.
#pragma once

#include <cstdint>

namespace attend::explorer {

struct Limits {
  std::int64_t body_bytes = 8 << 20;
  std::int64_t rows = 512;            // of one matrix of the workbench, and columns
  std::int64_t cells = 262144;        // of one matrix, and heads x queries x keys of one attention
  std::int64_t tokens = 4096;         // of one text
  std::int64_t tile_cells = 4194304;  // of one /tile
  std::int64_t row_keys = 256;        // keys whose vectors /row gives
  std::int64_t generate_steps = 256;
  std::int64_t beams = 8;
  std::int64_t edits = 256;
  std::int64_t heads_inputs = 1000;       // texts of one /heads
  std::int64_t exact_edges = 4096;        // edges of one /importance that are cut one by one
  std::int64_t queue = 16;                // requests that wait in one lane
  std::int64_t cached_bytes = 256 << 20;  // of recorded runs that are kept, all they hold
};

}  // namespace attend::explorer
