// Random numbers with the same sequence on every machine and compiler.
#pragma once

#include <array>
#include <cstdint>

namespace attend {

// Philox 4x32-10 (Salmon, Moraes, Dror, Shaw 2011): four random words that depend only on (key, counter). Dropout
// uses it so that the backward pass can draw the same numbers again, in any order, on any number of threads.
std::array<std::uint32_t, 4> philox(std::array<std::uint32_t, 2> key, std::array<std::uint32_t, 4> counter);

// A stream of random numbers: Philox over a growing counter. Its whole state is two numbers, so it can be saved.
class Random {
 public:
  explicit Random(std::uint64_t seed, std::uint64_t drawn = 0) : seed_(seed), drawn_(drawn) {}

  std::uint32_t next();
  double uniform();                          // in [0, 1)
  double normal();                           // mean 0, variance 1 (Box-Muller, one value of the pair)
  std::uint64_t below(std::uint64_t bound);  // uniform in 0..bound-1, without bias

  std::uint64_t seed() const { return seed_; }
  std::uint64_t drawn() const { return drawn_; }  // numbers drawn so far; Random(seed, drawn) goes on from here

 private:
  std::uint64_t seed_, drawn_;
};

// Shuffles [begin, end) by Fisher and Yates; unlike std::shuffle, the same everywhere.
template <typename Iterator>
void shuffle(Iterator begin, Iterator end, Random& random) {
  const auto size = static_cast<std::uint64_t>(end - begin);
  for (std::uint64_t i = size; i > 1; --i) {
    const std::uint64_t j = random.below(i);
    using std::swap;
    swap(begin[static_cast<std::int64_t>(i - 1)], begin[static_cast<std::int64_t>(j)]);
  }
}

}  // namespace attend
