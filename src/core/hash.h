// Hashes that tell things apart: fingerprints in files, seeds from places. None of them keeps a secret. Their values are
// in files that exist, so they never change.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace attend {

// Spreads a small number over all bits: the finaliser of splitmix64 (Steele, Lea, Flood 2014).
inline std::uint64_t mix_bits(std::uint64_t x) {
  x += 0x9E3779B97F4A7C15u;
  x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9u;
  x = (x ^ (x >> 27)) * 0x94D049BB133111EBu;
  return x ^ (x >> 31);
}

// 16 lower-case digits.
inline std::string hexadecimal(std::uint64_t value) {
  std::string digits(16, '0');
  for (std::size_t i = 16; i-- > 0; value >>= 4) digits[i] = "0123456789abcdef"[value & 15];
  return digits;
}

// FNV-1a (Fowler, Noll, Vo): byte by byte. Texts go in with their length, so that no two lists of them look alike.
class ByteHash {
 public:
  void byte(std::uint8_t value) { word(value); }
  void number(std::uint64_t value) {
    for (int i = 0; i < 8; ++i, value >>= 8) byte(static_cast<std::uint8_t>(value & 255));
  }
  void text(std::string_view bytes) {
    number(bytes.size());
    for (const char c : bytes) byte(static_cast<std::uint8_t>(c));
  }
  // A whole word as if it were one byte: faster, and good enough for many like ones.
  void word(std::uint32_t value) { state_ = (state_ ^ value) * 0x100000001B3u; }
  std::uint64_t value() const { return state_; }

 private:
  std::uint64_t state_ = 0xCBF29CE484222325u;
};

// Word by word, for many numbers.
class WordHash {
 public:
  void number(std::uint64_t word) {
    state_ = (state_ ^ word) * 0x9E3779B97F4A7C15u;
    state_ ^= state_ >> 29;
  }
  void text(std::string_view bytes) {
    number(bytes.size());
    for (const char c : bytes) number(static_cast<std::uint8_t>(c));
  }
  std::uint64_t value() const {
    const std::uint64_t mixed = state_ * 0xBF58476D1CE4E5B9u;
    return mixed ^ (mixed >> 32);
  }

 private:
  std::uint64_t state_ = 0xCBF29CE484222325u;
};

}  // namespace attend
