// Half precision against exact arithmetic, and random tensors through a file.
#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <vector>

#include "attend/safetensors.h"
#include "core/random.h"

namespace attend {
namespace {

// All finite values of a 16-bit format in order, as double: rounding by search, with no bit arithmetic in common with the code.
std::vector<std::pair<double, std::uint16_t>> finite_values(float (*decode)(std::uint16_t)) {
  std::vector<std::pair<double, std::uint16_t>> values;
  for (std::uint32_t bits = 0; bits < 0x8000; ++bits) {
    const double value = static_cast<double>(decode(static_cast<std::uint16_t>(bits)));
    if (std::isfinite(value)) values.emplace_back(value, static_cast<std::uint16_t>(bits));
  }
  return values;
}

// Nearest, ties to the even last bit; `beyond` is the value that would follow the largest.
std::uint16_t rounded(double magnitude, const std::vector<std::pair<double, std::uint16_t>>& values, double beyond) {
  const auto above = std::lower_bound(values.begin(), values.end(), magnitude,
                                      [](const auto& each, double x) { return each.first < x; });
  if (above == values.begin()) return above->second;
  const auto below = above - 1;
  const double high = above == values.end() ? beyond : above->first;
  const auto high_bits = static_cast<std::uint16_t>(below->second + 1);
  const double to_low = magnitude - below->first, to_high = high - magnitude;
  if (to_low != to_high) return to_low < to_high ? below->second : high_bits;
  return below->second % 2 == 0 ? below->second : high_bits;
}

void check_rounding(float (*decode)(std::uint16_t), std::uint16_t (*encode)(float), double beyond, int lowest_exponent,
                    int highest_exponent) {
  const auto values = finite_values(decode);
  ASSERT_TRUE(std::is_sorted(values.begin(), values.end()));
  const auto check = [&](float x) {
    ASSERT_EQ(encode(x), rounded(static_cast<double>(x), values, beyond)) << x;
    ASSERT_EQ(encode(-x), rounded(static_cast<double>(x), values, beyond) | 0x8000) << -x;
  };
  // Every value, and around every middle between two.
  for (std::size_t i = 0; i < values.size(); ++i) {
    check(static_cast<float>(values[i].first));
    const double next = i + 1 < values.size() ? values[i + 1].first : beyond;
    const auto middle = static_cast<float>((values[i].first + next) / 2);
    for (float x : {std::nextafter(middle, 0.0f), middle, std::nextafter(middle, INFINITY)})
      if (std::isfinite(x)) check(x);
  }
  Random random(7);
  for (int i = 0; i < 200000; ++i) {
    const int exponent = lowest_exponent +
                         static_cast<int>(random.below(static_cast<std::uint64_t>(highest_exponent - lowest_exponent)));
    check(static_cast<float>(std::ldexp(1 + random.uniform(), exponent)));
  }
}

TEST(Float16, DecodesEveryBitPattern) {
  for (std::uint32_t bits = 0; bits < 0x10000; ++bits) {
    const int exponent = static_cast<int>(bits >> 10 & 31);
    const double fraction = bits & 1023, sign = bits & 0x8000 ? -1 : 1;
    const float found = float16_to_float(static_cast<std::uint16_t>(bits));
    if (exponent == 31) {
      if (fraction > 0) EXPECT_TRUE(std::isnan(found));
      else EXPECT_EQ(found, sign * INFINITY);
      continue;
    }
    const double expected =
        sign * (exponent == 0 ? std::ldexp(fraction, -24) : std::ldexp(1024 + fraction, exponent - 25));
    EXPECT_EQ(static_cast<double>(found), expected) << bits;
    EXPECT_EQ(std::signbit(found), std::signbit(expected));
  }
}

TEST(Float16, RoundsToNearestEven) { check_rounding(float16_to_float, float_to_float16, 65536, -30, 15); }

TEST(Float16, BeyondTheLargestIsInfiniteAndNaNStays) {
  EXPECT_EQ(float_to_float16(INFINITY), 0x7c00);
  EXPECT_EQ(float_to_float16(-1e30f), 0xfc00);
  EXPECT_EQ(float_to_float16(65520), 0x7c00);
  EXPECT_EQ(float_to_float16(65519.99f), 0x7bff);
  for (std::uint32_t bits : {0x7f800001u, 0x7fc00000u, 0xffffffffu})
    EXPECT_TRUE(std::isnan(float16_to_float(float_to_float16(std::bit_cast<float>(bits)))));
}

TEST(BFloat16, RoundsToNearestEven) {
  check_rounding(bfloat16_to_float, float_to_bfloat16, std::ldexp(1.0, 128), -126, 127);
}

TEST(BFloat16, NaNStaysNaN) {
  for (std::uint32_t bits : {0x7f800001u, 0x7fc00000u, 0xffffffffu, 0x7fffffffu})
    EXPECT_TRUE(std::isnan(bfloat16_to_float(float_to_bfloat16(std::bit_cast<float>(bits)))));
  EXPECT_EQ(float_to_bfloat16(INFINITY), 0x7f80);
}

TEST(Safetensors, RandomTensorsComeBack) {
  Random random(3);
  for (int round = 0; round < 60; ++round) {
    std::vector<NamedTensor> tensors;
    const auto count = random.below(6);
    for (std::uint64_t i = 0; i < count; ++i) {
      const auto axes = 1 + random.below(4);
      std::int64_t sizes[4] = {1, 1, 1, 1};
      for (std::uint64_t axis = 0; axis < axes; ++axis) sizes[axis] = static_cast<std::int64_t>(random.below(7));
      const Shape shape = axes == 1   ? Shape{sizes[0]}
                          : axes == 2 ? Shape{sizes[0], sizes[1]}
                          : axes == 3 ? Shape{sizes[0], sizes[1], sizes[2]}
                                      : Shape{sizes[0], sizes[1], sizes[2], sizes[3]};
      Tensor value = Tensor::zeros(shape);
      for (std::int64_t k = 0; k < value.elements(); ++k) value.data()[k] = static_cast<float>(random.normal());
      const NumberType types[] = {NumberType::float32, NumberType::float16, NumberType::bfloat16};
      tensors.push_back(
          {"tensor " + std::to_string(random.below(1000000)) + "/" + std::to_string(i), value, types[random.below(3)]});
    }
    const SafetensorsFile file(safetensors_bytes(tensors), "memory");
    ASSERT_EQ(file.entries().size(), tensors.size());
    for (const NamedTensor& tensor : tensors) {
      const Tensor found = file.tensor(tensor.name);
      ASSERT_EQ(found.shape(), tensor.value.shape());
      for (std::int64_t k = 0; k < found.elements(); ++k) {
        const float x = tensor.value.data()[k];
        const float expected = tensor.type == NumberType::float32   ? x
                               : tensor.type == NumberType::float16 ? float16_to_float(float_to_float16(x))
                                                                    : bfloat16_to_float(float_to_bfloat16(x));
        ASSERT_EQ(found.data()[k], expected);
      }
    }
    // Wider numbers first, so none is misaligned.
    for (const SafetensorsEntry& entry : file.entries()) EXPECT_EQ(entry.begin % bytes_of(entry.type), 0);
  }
}

}  // namespace
}  // namespace attend
