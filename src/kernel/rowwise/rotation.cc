// Rotary positions.
#include <cmath>

#include "core/threads.h"
#include "kernel/rowwise/grain.h"
#include "kernel/rowwise/rowwise.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernel/rowwise/rotation.cc"
#include "hwy/foreach_target.h"

#include "hwy/highway.h"

#ifndef ATTEND_ROTATION_ONCE
#define ATTEND_ROTATION_ONCE
namespace attend {
namespace {

struct Rotation {
  float* heads;
  std::int64_t row_stride, head_count, head_dim, half;
  Pairing pairing;
  const float* cos_sin;
  const std::int32_t* positions;
  bool inverse;
};

}  // namespace
}  // namespace attend
#endif

HWY_BEFORE_NAMESPACE();
namespace attend {
namespace HWY_NAMESPACE {
namespace {
namespace hn = hwy::HWY_NAMESPACE;
using Tag = hn::ScalableTag<float>;

void rotate_rows(const Rotation& job, std::int64_t begin, std::int64_t end) {
  const Tag d;
  const auto lanes = static_cast<std::int64_t>(hn::Lanes(d));
  const auto direction = hn::Set(d, job.inverse ? -1.0f : 1.0f);
  const bool halves = job.pairing == Pairing::halves;
  for (std::int64_t r = begin; r < end; ++r) {
    const float* angles = job.cos_sin + job.positions[r] * job.half * 2;
    for (std::int64_t h = 0; h < job.head_count; ++h) {
      float* head = job.heads + r * job.row_stride + h * job.head_dim;
      std::int64_t i = 0;
      for (; i + lanes <= job.half; i += lanes) {
        auto cosine = hn::Undefined(d), sine = hn::Undefined(d), x = hn::Undefined(d), y = hn::Undefined(d);
        hn::LoadInterleaved2(d, angles + 2 * i, cosine, sine);
        sine = hn::Mul(sine, direction);
        if (halves) {
          x = hn::LoadU(d, head + i);
          y = hn::LoadU(d, head + job.half + i);
        } else {
          hn::LoadInterleaved2(d, head + 2 * i, x, y);
        }
        const auto turned_x = hn::NegMulAdd(y, sine, hn::Mul(x, cosine)),
                   turned_y = hn::MulAdd(x, sine, hn::Mul(y, cosine));
        if (halves) {
          hn::StoreU(turned_x, d, head + i);
          hn::StoreU(turned_y, d, head + job.half + i);
        } else {
          hn::StoreInterleaved2(turned_x, turned_y, d, head + 2 * i);
        }
      }
      for (; i < job.half; ++i) {
        float& x = halves ? head[i] : head[2 * i];
        float& y = halves ? head[job.half + i] : head[2 * i + 1];
        const float cosine = angles[2 * i], sine = job.inverse ? -angles[2 * i + 1] : angles[2 * i + 1];
        const float turned = x * cosine - y * sine;
        y = x * sine + y * cosine;
        x = turned;
      }
    }
  }
}

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace attend
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace attend {
namespace {
HWY_EXPORT(rotate_rows);
}

void make_rotation(std::int64_t positions, std::int64_t rotary_dim, double base, float* cos_sin) {
  const std::int64_t half = rotary_dim / 2;
  for (std::int64_t i = 0; i < half; ++i) {
    const double speed = std::pow(base, -2.0 * static_cast<double>(i) / static_cast<double>(rotary_dim));
    for (std::int64_t p = 0; p < positions; ++p) {
      cos_sin[(p * half + i) * 2] = static_cast<float>(std::cos(static_cast<double>(p) * speed));
      cos_sin[(p * half + i) * 2 + 1] = static_cast<float>(std::sin(static_cast<double>(p) * speed));
    }
  }
}

void rotate(float* heads, std::int64_t rows, std::int64_t row_stride, std::int64_t head_count, std::int64_t head_dim,
            std::int64_t rotary_dim, Pairing pairing, const float* cos_sin, const std::int32_t* positions,
            bool inverse) {
  const Rotation job{heads, row_stride, head_count, head_dim, rotary_dim / 2, pairing, cos_sin, positions, inverse};
  const auto function = HWY_DYNAMIC_DISPATCH(rotate_rows);
  parallel_ranges(rows, rows_grain(head_count * rotary_dim),
                  [&](std::int64_t begin, std::int64_t end, int) { function(job, begin, end); });
}

}  // namespace attend
#endif
