// Activations and gated units, forward and backward.
#include "core/threads.h"
#include "kernel/rowwise/grain.h"
#include "kernel/rowwise/rowwise.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernel/rowwise/activations.cc"
#include "hwy/foreach_target.h"

#include "hwy/highway.h"
#include "kernel/rowwise/functions-inl.h"

HWY_BEFORE_NAMESPACE();
namespace attend {
namespace HWY_NAMESPACE {
namespace {
namespace hn = hwy::HWY_NAMESPACE;
using Tag = hn::ScalableTag<float>;

struct Activate {
  template <Activation kind>
  static void rows(std::int64_t begin, std::int64_t end, Rows x, MutableRows y) {
    const Tag d;
    for (std::int64_t r = begin; r < end; ++r) {
      const float* from = x.data + r * x.stride;
      float* to = y.data + r * y.stride;
      for_each_vector(d, x.width, [&](auto partial, std::int64_t j, std::size_t count) HWY_ATTR {
        store(d, partial, activated<kind>(d, load(d, partial, from + j, count)), to + j, count);
      });
    }
  }
};

struct ActivateBackward {
  template <Activation kind>
  static void rows(std::int64_t begin, std::int64_t end, Rows x, Rows y_gradient, MutableRows x_gradient) {
    const Tag d;
    for (std::int64_t r = begin; r < end; ++r) {
      const float* from = x.data + r * x.stride;
      const float* dy = y_gradient.data + r * y_gradient.stride;
      float* dx = x_gradient.data + r * x_gradient.stride;
      for_each_vector(d, x.width, [&](auto partial, std::int64_t j, std::size_t count) HWY_ATTR {
        auto value = hn::Undefined(d);
        const auto by = slope<kind>(d, load(d, partial, from + j, count), value);
        store(d, partial, hn::MulAdd(load(d, partial, dy + j, count), by, load(d, partial, dx + j, count)), dx + j,
              count);
      });
    }
  }
};

struct Gate {
  template <Activation kind>
  static void rows(std::int64_t begin, std::int64_t end, Rows gate_input, Rows value, MutableRows y) {
    const Tag d;
    for (std::int64_t r = begin; r < end; ++r) {
      const float* g = gate_input.data + r * gate_input.stride;
      const float* v = value.data + r * value.stride;
      float* to = y.data + r * y.stride;
      for_each_vector(d, value.width, [&](auto partial, std::int64_t j, std::size_t count) HWY_ATTR {
        const auto gated = hn::Mul(activated<kind>(d, load(d, partial, g + j, count)), load(d, partial, v + j, count));
        store(d, partial, gated, to + j, count);
      });
    }
  }
};

struct GateBackward {
  template <Activation kind>
  static void rows(std::int64_t begin, std::int64_t end, Rows gate_input, Rows value, Rows y_gradient,
                   MutableRows gate_gradient, MutableRows value_gradient) {
    const Tag d;
    for (std::int64_t r = begin; r < end; ++r) {
      const float* g = gate_input.data + r * gate_input.stride;
      const float* v = value.data + r * value.stride;
      const float* dy = y_gradient.data + r * y_gradient.stride;
      float* dg = gate_gradient.data + r * gate_gradient.stride;
      float* dv = value_gradient.data + r * value_gradient.stride;
      for_each_vector(d, value.width, [&](auto partial, std::int64_t j, std::size_t count) HWY_ATTR {
        auto gate_value = hn::Undefined(d);
        const auto by = slope<kind>(d, load(d, partial, g + j, count), gate_value);
        const auto gradient = load(d, partial, dy + j, count);
        const auto through = hn::Mul(gradient, load(d, partial, v + j, count));
        store(d, partial, hn::MulAdd(through, by, load(d, partial, dg + j, count)), dg + j, count);
        store(d, partial, hn::MulAdd(gradient, gate_value, load(d, partial, dv + j, count)), dv + j, count);
      });
    }
  }
};

template <class Kernel, typename... Arguments>
HWY_INLINE void of_kind(Activation kind, std::int64_t begin, std::int64_t end, const Arguments&... arguments) {
  switch (kind) {
    case Activation::none:
      return Kernel::template rows<Activation::none>(begin, end, arguments...);
    case Activation::relu:
      return Kernel::template rows<Activation::relu>(begin, end, arguments...);
    case Activation::gelu:
      return Kernel::template rows<Activation::gelu>(begin, end, arguments...);
    case Activation::gelu_tanh:
      return Kernel::template rows<Activation::gelu_tanh>(begin, end, arguments...);
    case Activation::silu:
      return Kernel::template rows<Activation::silu>(begin, end, arguments...);
  }
}

void activate_rows(Activation kind, std::int64_t begin, std::int64_t end, Rows x, MutableRows y) {
  of_kind<Activate>(kind, begin, end, x, y);
}
void activate_backward_rows(Activation kind, std::int64_t begin, std::int64_t end, Rows x, Rows y_gradient,
                            MutableRows x_gradient) {
  of_kind<ActivateBackward>(kind, begin, end, x, y_gradient, x_gradient);
}
void gate_rows(Activation kind, std::int64_t begin, std::int64_t end, Rows gate_input, Rows value, MutableRows y) {
  of_kind<Gate>(kind, begin, end, gate_input, value, y);
}
void gate_backward_rows(Activation kind, std::int64_t begin, std::int64_t end, Rows gate_input, Rows value,
                        Rows y_gradient, MutableRows gate_gradient, MutableRows value_gradient) {
  of_kind<GateBackward>(kind, begin, end, gate_input, value, y_gradient, gate_gradient, value_gradient);
}

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace attend
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace attend {
namespace {
HWY_EXPORT(activate_rows);
HWY_EXPORT(activate_backward_rows);
HWY_EXPORT(gate_rows);
HWY_EXPORT(gate_backward_rows);

constexpr std::int64_t elements_a_task = 8192;
}  // namespace

void activate(Activation kind, Rows x, MutableRows y) {
  const auto function = HWY_DYNAMIC_DISPATCH(activate_rows);
  parallel_ranges(x.rows, rows_grain(x.width, elements_a_task),
                  [&](std::int64_t begin, std::int64_t end, int) { function(kind, begin, end, x, y); });
}

void activate_backward(Activation kind, Rows x, Rows y_gradient, MutableRows x_gradient) {
  const auto function = HWY_DYNAMIC_DISPATCH(activate_backward_rows);
  parallel_ranges(x.rows, rows_grain(x.width, elements_a_task), [&](std::int64_t begin, std::int64_t end, int) {
    function(kind, begin, end, x, y_gradient, x_gradient);
  });
}

void gate(Activation kind, Rows gate_input, Rows value, MutableRows y) {
  const auto function = HWY_DYNAMIC_DISPATCH(gate_rows);
  parallel_ranges(value.rows, rows_grain(value.width, elements_a_task),
                  [&](std::int64_t begin, std::int64_t end, int) { function(kind, begin, end, gate_input, value, y); });
}

void gate_backward(Activation kind, Rows gate_input, Rows value, Rows y_gradient, MutableRows gate_gradient,
                   MutableRows value_gradient) {
  const auto function = HWY_DYNAMIC_DISPATCH(gate_backward_rows);
  parallel_ranges(value.rows, rows_grain(value.width, elements_a_task), [&](std::int64_t begin, std::int64_t end, int) {
    function(kind, begin, end, gate_input, value, y_gradient, gate_gradient, value_gradient);
  });
}

}  // namespace attend
#endif
