#include "bench/machine_peak.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <ctime>

#include "core/threads.h"

#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace attend {
namespace {

volatile float sink;

#if defined(__x86_64__)
// Twelve independent chains hide the latency of a fused multiply-add. 256-bit vectors reach the peak of every x86 on which
// 512-bit ones are no faster; the better of both counts.
__attribute__((target("avx2,fma"), noinline)) double multiply_adds_256(std::int64_t count) {
  __m256 sums[12] = {};
  const __m256 factor = _mm256_set1_ps(0.999f), term = _mm256_set1_ps(0.001f);
  for (std::int64_t i = 0; i < count; ++i) {
#pragma GCC unroll 12
    for (int k = 0; k < 12; ++k) {
      sums[k] = _mm256_fmadd_ps(sums[k], factor, term);
      asm volatile("" : "+x"(sums[k]));
    }
  }
#pragma GCC unroll 12
  for (int k = 1; k < 12; ++k) sums[0] = _mm256_add_ps(sums[0], sums[k]);
  sink = _mm256_cvtss_f32(sums[0]);
  return 2.0 * 12 * 8 * static_cast<double>(count);
}
__attribute__((target("avx512f"), noinline)) double multiply_adds_512(std::int64_t count) {
  __m512 sums[12] = {};
  const __m512 factor = _mm512_set1_ps(0.999f), term = _mm512_set1_ps(0.001f);
  for (std::int64_t i = 0; i < count; ++i) {
#pragma GCC unroll 12
    for (int k = 0; k < 12; ++k) {
      sums[k] = _mm512_fmadd_ps(sums[k], factor, term);
      asm volatile("" : "+v"(sums[k]));
    }
  }
#pragma GCC unroll 12
  for (int k = 1; k < 12; ++k) sums[0] = _mm512_add_ps(sums[0], sums[k]);
  sink = _mm512_cvtss_f32(sums[0]);
  return 2.0 * 12 * 16 * static_cast<double>(count);
}
#endif

double multiply_adds_plain(std::int64_t count) {
  float sums[16] = {};
  for (std::int64_t i = 0; i < count; ++i)
    for (float& sum : sums) sum = std::fma(sum, 0.999f, 0.001f);
  sink = sums[0] + sums[7];
  return 2.0 * 16 * static_cast<double>(count);
}

double chains(std::int64_t count) {
#if defined(__x86_64__)
  if (__builtin_cpu_supports("avx512f")) return multiply_adds_512(count);
  if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma")) return multiply_adds_256(count);
#endif
  return multiply_adds_plain(count);
}

}  // namespace

double multiply_adds(std::int64_t count) { return chains(count); }

double multiply_adds_on_all_threads(std::int64_t count) {
  std::vector<double> done(static_cast<std::size_t>(threads()));
  parallel_for(threads(), [&](std::int64_t task, int) { done[static_cast<std::size_t>(task)] = chains(count); });
  double sum = 0;
  for (const double operations : done) sum += operations;
  return sum;
}

double seconds_now() {
  timespec time;
  clock_gettime(threads() == 1 ? CLOCK_THREAD_CPUTIME_ID : CLOCK_MONOTONIC, &time);
  return static_cast<double>(time.tv_sec) + 1e-9 * static_cast<double>(time.tv_nsec);
}

double median(std::vector<double> values) {
  std::nth_element(values.begin(), values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2), values.end());
  return values[values.size() / 2];
}

}  // namespace attend
