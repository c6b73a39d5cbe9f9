// Dropout. Philox with key `seed` and counter (column block, row) gives 128 random bits, 16 for each of 8 columns: so
// the probability is exact to 2^-17, and any row can be drawn again alone, in any order.
#include <algorithm>
#include <array>
#include <cmath>

#include "core/threads.h"
#include "kernel/rowwise/grain.h"
#include "kernel/rowwise/rowwise.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernel/rowwise/dropout.cc"
#include "hwy/foreach_target.h"

#include "hwy/highway.h"
#include "kernel/rowwise/functions-inl.h"

#ifndef ATTEND_DROPOUT_ONCE
#define ATTEND_DROPOUT_ONCE
namespace attend {
namespace {

struct Dropout {
  Rows x;
  MutableRows y;
  std::int32_t threshold;  // of 65536; a draw below it drops
  float scale;
  bool accumulate;
  std::uint32_t keys[10][2];
};

}  // namespace
}  // namespace attend
#endif

HWY_BEFORE_NAMESPACE();
namespace attend {
namespace HWY_NAMESPACE {
namespace {
namespace hn = hwy::HWY_NAMESPACE;
// 16 counters make a block of 128 columns on every target; narrower vectors take it in parts.
using Tag = hn::CappedTag<float, 16>;
using Words = hn::RebindToUnsigned<Tag>;

HWY_INLINE void multiply_wide(hn::VFromD<Words> a, hn::VFromD<Words> b, hn::VFromD<Words>& high,
                              hn::VFromD<Words>& low) {
  const Words d;
#if HWY_TARGET == HWY_SCALAR
  const std::uint64_t product = std::uint64_t{hn::GetLane(a)} * hn::GetLane(b);
  high = hn::Set(d, static_cast<std::uint32_t>(product >> 32));
  low = hn::Set(d, static_cast<std::uint32_t>(product));
#else
  const hn::RepartitionToWide<Words> wide;
  const auto even = hn::MulEven(a, b);
  const auto odd = hn::MulEven(hn::BitCast(d, hn::ShiftRight<32>(hn::BitCast(wide, a))), b);
  high = hn::OddEven(hn::BitCast(d, odd), hn::BitCast(d, hn::ShiftRight<32>(even)));
  low = hn::OddEven(hn::BitCast(d, hn::ShiftLeft<32>(odd)), hn::BitCast(d, even));
#endif
}

void dropout_range(const Dropout& job, std::int64_t begin, std::int64_t end) {
  const Tag d;
  const Words dw;
  const hn::RebindToSigned<Tag> di;
  constexpr auto lanes = static_cast<std::int64_t>(hn::MaxLanes(Tag()));
  const std::int64_t width = job.x.width;
  const auto factor0 = hn::Set(dw, 0xD2511F53u), factor1 = hn::Set(dw, 0xCD9E8D57u), low_half = hn::Set(dw, 0xFFFFu);
  const auto threshold = hn::Set(di, job.threshold - 1);
  const auto scale = hn::Set(d, job.scale);
  for (std::int64_t r = begin; r < end; ++r) {
    const float* x = job.x.data + r * job.x.stride;
    float* y = job.y.data + r * job.y.stride;
    for (std::int64_t block = 0; block * 128 < width; ++block) {
      for (std::int64_t part = 0; part < 16; part += lanes) {
        if (block * 128 + part >= width) break;
        auto c0 = hn::Iota(dw, static_cast<std::uint32_t>(block * 16 + part));
        auto c1 = hn::Set(dw, static_cast<std::uint32_t>(r)),
             c2 = hn::Set(dw, static_cast<std::uint32_t>(static_cast<std::uint64_t>(r) >> 32));
        auto c3 = hn::Set(dw, 0x44524F50u);  // "DROP": other users of the same seed have another last word
        for (const std::uint32_t* key : job.keys) {
          auto high0 = hn::Undefined(dw), low0 = hn::Undefined(dw), high1 = hn::Undefined(dw), low1 = hn::Undefined(dw);
          multiply_wide(c0, factor0, high0, low0);
          multiply_wide(c2, factor1, high1, low1);
          c0 = hn::Xor(hn::Xor(high1, c1), hn::Set(dw, key[0]));
          c1 = low1;
          c2 = hn::Xor(hn::Xor(high0, c3), hn::Set(dw, key[1]));
          c3 = low0;
        }
        // Column 64 * half + 16 * word + counter of the block.
        const auto columns = [&](std::int64_t column, hn::VFromD<Words> draws) HWY_ATTR {
          if (column >= width) return;
          const auto kept = hn::RebindMask(d, hn::Gt(hn::BitCast(di, draws), threshold));
          const auto one_vector = [&](auto partial, std::size_t count) HWY_ATTR {
            auto value = hn::IfThenElseZero(kept, hn::Mul(load(d, partial, x + column, count), scale));
            if (job.accumulate) value = hn::Add(load(d, partial, y + column, count), value);
            store(d, partial, value, y + column, count);
          };
          if (column + lanes <= width) one_vector(std::false_type{}, static_cast<std::size_t>(lanes));
          else one_vector(std::true_type{}, static_cast<std::size_t>(width - column));
        };
        const std::int64_t column = block * 128 + part;
        columns(column, hn::And(c0, low_half));
        columns(column + 16, hn::And(c1, low_half));
        columns(column + 32, hn::And(c2, low_half));
        columns(column + 48, hn::And(c3, low_half));
        columns(column + 64, hn::ShiftRight<16>(c0));
        columns(column + 80, hn::ShiftRight<16>(c1));
        columns(column + 96, hn::ShiftRight<16>(c2));
        columns(column + 112, hn::ShiftRight<16>(c3));
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
HWY_EXPORT(dropout_range);
}

void dropout_rows(Rows x, float probability, std::uint64_t seed, MutableRows y, bool accumulate) {
  Dropout job{x, y, 0, 0, accumulate, {}};
  job.threshold = static_cast<std::int32_t>(std::lround(static_cast<double>(probability) * 65536));
  // By the probability that the draws really have, so that the mean stays what it was.
  job.scale = job.threshold < 65536 ? 65536.0f / static_cast<float>(65536 - job.threshold) : 0.0f;
  std::uint32_t key0 = static_cast<std::uint32_t>(seed), key1 = static_cast<std::uint32_t>(seed >> 32);
  for (std::uint32_t* key : job.keys) {
    key[0] = key0;
    key[1] = key1;
    key0 += 0x9E3779B9u;
    key1 += 0xBB67AE85u;
  }
  const auto function = HWY_DYNAMIC_DISPATCH(dropout_range);
  parallel_ranges(x.rows, rows_grain(x.width, 4096),
                  [&](std::int64_t begin, std::int64_t end, int) { function(job, begin, end); });
}

}  // namespace attend
#endif
