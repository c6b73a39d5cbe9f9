#include "attend/tensor.h"

#include <algorithm>
#include <atomic>
#include <cstring>

#include "core/memory.h"
#include "core/threads.h"

namespace attend {

class Storage {
 public:
  explicit Storage(std::int64_t size) : number_(next_number()), size_(size), memory_(size) {}
  struct WithoutMemory {};
  Storage(const Storage& other, WithoutMemory) : number_(other.number_), size_(other.size_) {}

  std::uint64_t number() const { return number_; }
  std::int64_t size() const { return size_; }
  float* data() { return memory_.data(); }

 private:
  static std::uint64_t next_number() {
    static std::atomic<std::uint64_t> last{0};
    return last.fetch_add(1, std::memory_order_relaxed) + 1;
  }

  std::uint64_t number_;
  std::int64_t size_;
  Buffer memory_;
};

namespace {

// Below this many floats one thread is done before a second one has woken up.
constexpr std::int64_t parallel_grain = 1 << 15;

void copy_floats(const float* from, float* to, std::int64_t count) {
  parallel_ranges(count, parallel_grain, [&](std::int64_t begin, std::int64_t end, int) {
    std::memcpy(to + begin, from + begin, static_cast<std::size_t>(end - begin) * sizeof(float));
  });
}

std::int64_t last_axis(const Shape& shape) { return shape.axes() == 0 ? 1 : shape[shape.axes() - 1]; }

Shape with_last_axis(const Shape& shape, std::int64_t size) {
  switch (shape.axes()) {
    case 0:
    case 1:
      return {size};
    case 2:
      return {shape[0], size};
    case 3:
      return {shape[0], shape[1], size};
    default:
      return {shape[0], shape[1], shape[2], size};
  }
}

}  // namespace

Tensor Tensor::empty(Shape shape) {
  Tensor tensor;
  tensor.storage_ = std::make_shared<Storage>(shape.elements());
  tensor.shape_ = shape;
  tensor.row_stride_ = last_axis(shape);
  tensor.data_ = tensor.storage_->data();
  return tensor;
}

Tensor Tensor::zeros(Shape shape) {
  Tensor tensor = empty(shape);
  parallel_ranges(tensor.elements(), parallel_grain, [&](std::int64_t begin, std::int64_t end, int) {
    std::memset(tensor.data() + begin, 0, static_cast<std::size_t>(end - begin) * sizeof(float));
  });
  return tensor;
}

Tensor Tensor::filled(Shape shape, float value) {
  Tensor tensor = empty(shape);
  std::fill_n(tensor.data(), tensor.elements(), value);
  return tensor;
}

Tensor Tensor::from(Shape shape, std::span<const float> values) {
  if (static_cast<std::int64_t>(values.size()) != shape.elements())
    throw Error(ErrorKind::shape, "Tensor::from",
                join(values.size(), " values given for shape ", shape, ", which holds ", shape.elements()));
  Tensor tensor = empty(shape);
  std::copy(values.begin(), values.end(), tensor.data());
  return tensor;
}

std::int64_t Tensor::width() const { return last_axis(shape_); }

std::int64_t Tensor::rows() const {
  std::int64_t product = 1;
  for (int axis = 0; axis + 1 < shape_.axes(); ++axis) product *= shape_[axis];
  return product;
}

float Tensor::item() const {
  if (!defined() || elements() != 1)
    throw Error(ErrorKind::shape, "Tensor::item",
                defined() ? join("the tensor is ", shape_, ", not one element") : join("the tensor is undefined"));
  return *data_;
}

std::vector<float> Tensor::to_vector() const {
  std::vector<float> values;
  if (!defined()) return values;
  values.reserve(static_cast<std::size_t>(elements()));
  for (std::int64_t index = 0; index < rows(); ++index) values.insert(values.end(), row(index), row(index) + width());
  return values;
}

Tensor Tensor::columns(std::int64_t begin, std::int64_t count) const {
  if (!defined() || begin < 0 || count < 0 || begin > width() - count)
    throw Error(ErrorKind::shape, "Tensor::columns",
                join(count, " columns from ", begin, " asked of ", defined() ? join(shape_) : "an undefined tensor"));
  Tensor view = *this;
  view.shape_ = with_last_axis(shape_, count);
  view.offset_ += begin;
  if (view.data_ != nullptr) view.data_ += begin;
  return view;
}

Tensor Tensor::row_range(std::int64_t begin, std::int64_t count) const {
  if (!defined() || shape_.axes() != 2 || begin < 0 || count < 0 || begin > shape_[0] - count)
    throw Error(ErrorKind::shape, "Tensor::row_range",
                join(count, " rows from ", begin, " asked of ", defined() ? join(shape_) : "an undefined tensor"),
                "give a range within a [rows, width] tensor");
  Tensor view = *this;
  view.shape_ = {count, shape_[1]};
  view.offset_ += begin * row_stride_;
  if (view.data_ != nullptr) view.data_ += begin * row_stride_;
  return view;
}

Tensor Tensor::reshaped(Shape shape) const {
  if (!defined()) throw Error(ErrorKind::shape, "Tensor::reshaped", "the tensor is undefined");
  if (shape.elements() != elements())
    throw Error(ErrorKind::shape, "Tensor::reshaped", join(shape_, " does not have the number of elements of ", shape));
  if (!contiguous())
    throw Error(ErrorKind::shape, "Tensor::reshaped",
                join("the rows of this ", shape_, " view are ", row_stride_, " floats apart"), "clone() it first");
  Tensor view = *this;
  view.shape_ = shape;
  view.row_stride_ = last_axis(shape);
  return view;
}

Tensor Tensor::clone() const {
  if (!defined()) return {};
  Tensor copy = empty(shape_);
  if (contiguous()) {
    copy_floats(data(), copy.data(), elements());
  } else {
    const std::int64_t size = width();
    parallel_ranges(rows(), std::max<std::int64_t>(1, parallel_grain / std::max<std::int64_t>(size, 1)),
                    [&](std::int64_t begin, std::int64_t end, int) {
                      for (std::int64_t index = begin; index < end; ++index)
                        std::copy_n(row(index), size, copy.row(index));
                    });
  }
  return copy;
}

std::uint64_t Tensor::storage_number() const { return storage_ ? storage_->number() : 0; }

std::int64_t Tensor::storage_size() const { return storage_ ? storage_->size() : 0; }

bool Tensor::covers_storage() const { return storage_ && contiguous() && elements() == storage_->size(); }

Tensor Tensor::place() const {
  if (!defined()) return {};
  Tensor empty_handed = *this;
  empty_handed.storage_ = std::make_shared<Storage>(*storage_, Storage::WithoutMemory{});
  empty_handed.data_ = nullptr;
  return empty_handed;
}

Tensor Tensor::mirrored_in(const Tensor& whole) const {
  if (!defined() || !whole.defined() || whole.storage_size() != storage_size())
    throw Error(ErrorKind::shape, "Tensor::mirrored_in",
                join("a storage of ", storage_size(), " floats cannot be mirrored in one of ", whole.storage_size()));
  Tensor view = *this;
  view.storage_ = whole.storage_;
  view.data_ = whole.storage_->data() == nullptr ? nullptr : whole.storage_->data() + offset_;
  return view;
}

Tensor Tensor::whole_storage() const {
  if (!defined()) return {};
  Tensor whole;
  whole.storage_ = storage_;
  whole.shape_ = {1, storage_->size()};
  whole.row_stride_ = storage_->size();
  whole.data_ = storage_->data();
  return whole;
}

}  // namespace attend
