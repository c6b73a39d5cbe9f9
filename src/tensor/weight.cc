#include <atomic>
#include <mutex>
#include <utility>

#include "attend/ops.h"
#include "kernel/matrix/packed_matrix.h"
#include "tensor/loops.h"

namespace attend {

struct Weight::State {
  struct Layout {
    std::mutex packing;
    std::atomic<bool> fresh{false};
    PackedMatrix matrix;
  };

  // Lays the value out once; several threads may ask at the same time.
  const PackedMatrix& laid_out(Layout& layout, bool transposed) const {
    if (!layout.fresh.load(std::memory_order_acquire)) {
      const std::lock_guard lock(layout.packing);
      if (!layout.fresh.load(std::memory_order_relaxed)) {
        const std::int64_t outputs = value.shape()[0], inputs = value.shape()[1];
        layout.matrix.pack(value.data(), transposed ? inputs : outputs, transposed ? outputs : inputs,
                           value.row_stride(), transposed);
        layout.fresh.store(true, std::memory_order_release);
      }
    }
    return layout.matrix;
  }

  Tensor value;
  Layout product, gradient;
};

Weight::Weight(Tensor value) {
  require_matrix("Weight", "value", value);
  if (!value.contiguous())
    throw Error(ErrorKind::shape, "Weight", join("value ", value.shape(), " has gaps between its rows"),
                "clone() it first");
  state_ = std::make_shared<State>();
  state_->value = std::move(value);
}

const Tensor& Weight::value() const {
  if (!state_) throw Error(ErrorKind::argument, "Weight", "the weight is undefined");
  return state_->value;
}

void Weight::changed() {
  if (!state_) return;
  state_->product.fresh.store(false);
  state_->gradient.fresh.store(false);
}

const PackedMatrix& Weight::for_product() const {
  value();
  return state_->laid_out(state_->product, false);
}

const PackedMatrix& Weight::for_gradient() const {
  value();
  return state_->laid_out(state_->gradient, true);
}

}  // namespace attend
