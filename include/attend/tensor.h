// Tensor: numbers with a shape. Copies share the storage; nothing here knows about gradients (see tape.h).
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "attend/shape.h"

namespace attend {

// The memory behind tensors; its number never comes back, so the tape can use it as a key.
class Storage;

// float32 rows of a last axis. The leading axes are packed without gaps; rows may be row_stride() floats apart, which
// is how a view of some columns of a wider tensor looks. Everything else is contiguous.
class Tensor {
 public:
  Tensor() = default;                // undefined
  static Tensor empty(Shape shape);  // not initialised
  static Tensor zeros(Shape shape);
  static Tensor filled(Shape shape, float value);
  static Tensor from(Shape shape, std::span<const float> values);  // copies; throws Error(shape) on a wrong count

  bool defined() const { return storage_ != nullptr; }
  const Shape& shape() const { return shape_; }
  std::int64_t elements() const { return shape_.elements(); }
  std::int64_t width() const;  // size of the last axis
  std::int64_t rows() const;   // elements() / width(), or the product of the leading axes
  std::int64_t row_stride() const { return row_stride_; }
  bool contiguous() const { return row_stride_ == width() || rows() <= 1; }

  float* data() { return data_; }
  const float* data() const { return data_; }
  float* row(std::int64_t index) { return data_ + index * row_stride_; }
  const float* row(std::int64_t index) const { return data_ + index * row_stride_; }
  float at(std::int64_t row_index, std::int64_t column) const { return row(row_index)[column]; }
  float item() const;  // the only element; throws Error(shape) if there are more
  std::vector<float> to_vector() const;

  // Views of the same storage. Throw Error(shape) when out of range or, for reshaped, when rows have gaps.
  Tensor columns(std::int64_t begin, std::int64_t count) const;
  Tensor row_range(std::int64_t begin, std::int64_t count) const;  // of a [rows, width] tensor
  Tensor reshaped(Shape shape) const;
  Tensor clone() const;  // contiguous copy in a storage of its own

  std::uint64_t storage_number() const;  // 0 when undefined
  std::int64_t storage_size() const;     // floats in the storage; 0 when undefined
  bool covers_storage() const;           // is this all of its storage, without gaps?
  // The same place without the numbers: enough to find a gradient, and keeps no memory alive. data() is null.
  Tensor place() const;
  // The tensor of the same place and shape in another storage of the same size (the tape's gradient storages).
  Tensor mirrored_in(const Tensor& whole) const;
  Tensor whole_storage() const;  // the storage as one [1, size] tensor

 private:
  std::shared_ptr<Storage> storage_;
  Shape shape_;
  std::int64_t row_stride_ = 0;
  std::int64_t offset_ = 0;  // of the first element in the storage
  float* data_ = nullptr;
};

}  // namespace attend
