// The sizes of a tensor's axes, at most four, outermost first.
#pragma once

#include <array>
#include <cstdint>
#include <initializer_list>
#include <ostream>

#include "attend/error.h"

namespace attend {

class Shape {
 public:
  static constexpr int max_axes = 4;

  Shape() = default;
  Shape(std::initializer_list<std::int64_t> sizes) {
    if (sizes.size() > max_axes)
      throw Error(ErrorKind::shape, "Shape", join(sizes.size(), " axes given, at most 4 allowed"));
    for (std::int64_t size : sizes) {
      if (size < 0) throw Error(ErrorKind::shape, "Shape", join("an axis of size ", size));
      sizes_[static_cast<std::size_t>(axes_++)] = size;
    }
  }

  int axes() const { return axes_; }
  std::int64_t operator[](int axis) const { return sizes_[static_cast<std::size_t>(axis)]; }
  std::int64_t elements() const {
    std::int64_t product = 1;
    for (int axis = 0; axis < axes_; ++axis) product *= (*this)[axis];
    return product;
  }
  bool operator==(const Shape& other) const = default;

 private:
  std::array<std::int64_t, max_axes> sizes_{};
  int axes_ = 0;
};

// "[2, 7, 64]"
inline std::ostream& operator<<(std::ostream& out, const Shape& shape) {
  out << '[';
  for (int axis = 0; axis < shape.axes(); ++axis) out << (axis ? ", " : "") << shape[axis];
  return out << ']';
}

}  // namespace attend
