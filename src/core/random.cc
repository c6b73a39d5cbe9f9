#include "core/random.h"

#include <cmath>
#include <numbers>

namespace attend {

std::array<std::uint32_t, 4> philox(std::array<std::uint32_t, 2> key, std::array<std::uint32_t, 4> counter) {
  for (int round = 0; round < 10; ++round) {
    const std::uint64_t product0 = std::uint64_t{0xD2511F53u} * counter[0];
    const std::uint64_t product1 = std::uint64_t{0xCD9E8D57u} * counter[2];
    counter = {static_cast<std::uint32_t>(product1 >> 32) ^ counter[1] ^ key[0], static_cast<std::uint32_t>(product1),
               static_cast<std::uint32_t>(product0 >> 32) ^ counter[3] ^ key[1], static_cast<std::uint32_t>(product0)};
    key[0] += 0x9E3779B9u;
    key[1] += 0xBB67AE85u;
  }
  return counter;
}

std::uint32_t Random::next() {
  const std::uint64_t block = drawn_ / 4;
  const auto words = philox({static_cast<std::uint32_t>(seed_), static_cast<std::uint32_t>(seed_ >> 32)},
                            {static_cast<std::uint32_t>(block), static_cast<std::uint32_t>(block >> 32), 0, 0});
  return words[static_cast<std::size_t>(drawn_++ % 4)];
}

double Random::uniform() {
  const std::uint64_t high = next(), low = next();
  return static_cast<double>((high << 21) ^ (low >> 11)) * 0x1.0p-53;
}

double Random::normal() {
  const double radius = std::sqrt(-2.0 * std::log(1.0 - uniform()));
  return radius * std::cos(2.0 * std::numbers::pi * uniform());
}

std::uint64_t Random::below(std::uint64_t bound) {
  if (bound <= 1) return 0;
  const std::uint64_t limit = ~std::uint64_t{0} - ~std::uint64_t{0} % bound;
  for (;;) {
    const std::uint64_t high = next(), low = next();
    const std::uint64_t value = (high << 32) | low;
    if (value < limit) return value % bound;
  }
}

}  // namespace attend
