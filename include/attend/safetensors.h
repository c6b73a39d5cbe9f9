// safetensors files: a JSON header that names tensors, then their numbers. Little endian, no code inside.
//   8 bytes   length n of the header
//   n bytes   {"__metadata__": {"key": "text"}, "name": {"dtype": "F32", "shape": [2, 3], "data_offsets": [0, 24]}, ...}
//   the rest  the numbers, offsets counted from here, without holes or overlaps
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "attend/tensor.h"

namespace attend {

enum class NumberType {
  boolean,
  uint8,
  int8,
  int16,
  uint16,
  int32,
  uint32,
  int64,
  uint64,
  float16,   // IEEE 754 binary16
  bfloat16,  // the upper half of a float32
  float32,
  float64,
};
const char* name_of(NumberType type);    // as files spell it: "F32"
std::int64_t bytes_of(NumberType type);  // of one number

// binary16 and bfloat16 from the bits, and to the bits with rounding to nearest, ties to even. Numbers beyond the
// largest become infinite; NaN stays NaN.
float float16_to_float(std::uint16_t bits);
std::uint16_t float_to_float16(float value);
float bfloat16_to_float(std::uint16_t bits);
std::uint16_t float_to_bfloat16(float value);

struct SafetensorsEntry {
  std::string name;
  NumberType type = NumberType::float32;
  std::vector<std::int64_t> shape;  // any number of axes; none for a single number
  std::int64_t elements = 1;
  std::int64_t begin = 0, end = 0;  // bytes, from the end of the header
};
// "[2, 3]"
std::string shape_text(std::span<const std::int64_t> shape);

// A file opened for reading. The header is read and checked at once, numbers when asked for, straight into their place:
// never more memory than the tensors that are read. Reads at an offset, so a file that shrinks meanwhile is an error and
// not a fault. May be used by several threads at once.
class SafetensorsFile {
 public:
  static constexpr std::int64_t longest_header = 100'000'000;  // as the reference implementation

  // Throws Error(file) if it cannot be read, Error(format) if the header breaks any rule of the format.
  explicit SafetensorsFile(const std::filesystem::path& path);
  // The same from memory; `source` names it in messages.
  SafetensorsFile(std::string bytes, std::string source);
  ~SafetensorsFile();
  SafetensorsFile(SafetensorsFile&&) noexcept;
  SafetensorsFile& operator=(SafetensorsFile&&) noexcept;

  const std::vector<SafetensorsEntry>& entries() const;  // sorted by name
  const std::map<std::string, std::string>& metadata() const;
  const std::string& source() const;
  bool has(const std::string& name) const;
  const SafetensorsEntry& entry(const std::string& name) const;  // Error(format) with the nearest name if there is none

  // Numbers of a float type as float32. Throws Error(format) for other types; NaN and infinity pass (see require_finite).
  Tensor tensor(const std::string& name) const;  // at most 4 axes; a single number has shape [1]
  void read(const SafetensorsEntry& entry, std::span<float> values) const;
  // Numbers of an integer type or boolean. Throws Error(format) for other types and for a uint64 above the largest int64.
  std::vector<std::int64_t> integers(const std::string& name) const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

// Throws Error(numeric) naming the tensor and the index of the first NaN or infinity.
void require_finite(const std::string& source, const std::string& name, const Tensor& value);

struct NamedTensor {
  std::string name;
  Tensor value;
  NumberType type = NumberType::float32;  // a float type
};

// Whole or absent (core/file.h), without a second copy of the numbers. The same tensors give the same bytes: names are
// sorted, wider types come first and the header is padded with blanks, so that every number is aligned. Throws
// Error(argument) for a name given twice, Error(numeric) naming tensor and index for a number that the type cannot hold.
void write_safetensors(const std::filesystem::path& path, std::vector<NamedTensor> tensors,
                       const std::map<std::string, std::string>& metadata = {});
std::string safetensors_bytes(std::vector<NamedTensor> tensors,
                              const std::map<std::string, std::string>& metadata = {});

}  // namespace attend
