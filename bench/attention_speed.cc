// Speed of attention, as JSON lines. Every shape is first checked against the float64 reference on a few of its heads and
// rows, then timed in rounds, each round beside a loop of fused multiply-adds: the share of the machine's peak is the
// median over rounds of the ratio within a round, so a noisy neighbour slows both. With one thread, CPU time counts.
//
//   attention_speed [--threads N] [--seconds S per shape] [--only TEXT of a name] [--pass forward|backward] [--target NAME]
//
// Operations counted: forward 2 * scores * (head_dim + value_dim), backward 2.5 times that; visible scores only.
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <string>
#include <vector>

#include "attend/attention.h"
#include "attend/threads.h"
#include "core/memory.h"
#include "core/random.h"
#include "core/threads.h"
#include "kernel/attention/attention_reference.h"
#include "kernel/targets.h"

#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace {

using namespace attend;

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
double multiply_adds(std::int64_t count) {
  return __builtin_cpu_supports("avx512f") ? multiply_adds_512(count) : multiply_adds_256(count);
}
#else
double multiply_adds(std::int64_t count) {
  float sums[16] = {};
  for (std::int64_t i = 0; i < count; ++i)
    for (float& sum : sums) sum = std::fma(sum, 0.999f, 0.001f);
  sink = sums[0] + sums[7];
  return 2.0 * 16 * static_cast<double>(count);
}
#endif

double seconds_now() {
  timespec time;
  clock_gettime(threads() == 1 ? CLOCK_THREAD_CPUTIME_ID : CLOCK_MONOTONIC, &time);
  return static_cast<double>(time.tv_sec) + 1e-9 * static_cast<double>(time.tv_nsec);
}

double median(std::vector<double> values) {
  std::nth_element(values.begin(), values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2), values.end());
  return values[values.size() / 2];
}

struct Work {
  const char* name;
  std::int64_t items, queries, keys, heads, key_heads, head_dim;
  bool causal;
  float dropout;
  bool ragged;  // item lengths from 5 up to queries and keys instead of all alike
  bool backward;
};

struct Data {
  std::vector<AttentionItem> items;
  Buffer query, key, value, output, log_sum_exp, output_gradient, query_gradient, key_gradient, value_gradient;
  AttentionCall call;
  AttentionGradients gradients;
  double scores = 0;  // visible, of all heads
};

// In the memory that tensors use: aligned to cache lines.
Buffer numbers(Random& random, std::int64_t size) {
  Buffer all(size);
  for (std::int64_t i = 0; i < size; ++i) all.data()[i] = static_cast<float>(random.normal());
  return all;
}

Buffer zeros(std::int64_t size) {
  Buffer all(size);
  std::fill(all.data(), all.data() + size, 0.0f);
  return all;
}

void make(const Work& work, Data& data) {
  Random random(1);
  std::int64_t query_rows = 0, key_rows = 0;
  for (std::int64_t i = 0; i < work.items; ++i) {
    AttentionItem item;
    item.query_begin = query_rows;
    item.key_begin = key_rows;
    item.queries = work.ragged ? 5 + static_cast<std::int64_t>(random.below(static_cast<std::uint64_t>(work.queries - 4))) : work.queries;
    item.keys = work.ragged ? (work.queries == work.keys ? item.queries : 5 + static_cast<std::int64_t>(random.below(static_cast<std::uint64_t>(work.keys - 4)))) : work.keys;
    item.query_position = item.keys - item.queries;
    query_rows += item.queries;
    key_rows += item.keys;
    data.items.push_back(item);
    const double seen = work.causal ? 0.5 * static_cast<double>(item.keys) * static_cast<double>(item.queries + 1)
                                    : static_cast<double>(item.keys) * static_cast<double>(item.queries);
    data.scores += seen * static_cast<double>(work.heads);
  }
  const std::int64_t width = work.heads * work.head_dim, key_width = work.key_heads * work.head_dim;
  data.query = numbers(random, query_rows * width);
  data.key = numbers(random, key_rows * key_width);
  data.value = numbers(random, key_rows * key_width);
  data.output = zeros(data.query.size());
  data.log_sum_exp = zeros(query_rows * work.heads);
  AttentionCall& call = data.call;
  call.query_heads = work.heads;
  call.key_heads = work.key_heads;
  call.head_dim = call.value_dim = work.head_dim;
  call.query = {data.query.data(), width, work.head_dim};
  call.key = {data.key.data(), key_width, work.head_dim};
  call.value = {data.value.data(), key_width, work.head_dim};
  call.output = {data.output.data(), width, work.head_dim};
  call.log_sum_exp = data.log_sum_exp.data();
  call.items = data.items;
  if (work.causal) call.mask.push_back(CausalRule{});
  call.dropout = {work.dropout, 7};
  if (!work.backward) return;
  data.output_gradient = numbers(random, query_rows * width);
  data.query_gradient = zeros(data.query.size());
  data.key_gradient = zeros(data.key.size());
  data.value_gradient = zeros(data.value.size());
  data.gradients.output_gradient = {data.output_gradient.data(), width, work.head_dim};
  data.gradients.query = {data.query_gradient.data(), width, work.head_dim};
  data.gradients.key = {data.key_gradient.data(), key_width, work.head_dim};
  data.gradients.value = {data.value_gradient.data(), key_width, work.head_dim};
}

// Largest difference from the reference over the first rows of the last item.
double error_of(const Work& work, const Data& data) {
  AttentionCall some = data.call;
  AttentionItem last = data.items.back();
  const std::int64_t rows = std::min<std::int64_t>(last.queries, 3), scale_rows = last.query_begin;
  // The reference numbers items from 0, and dropout with them: only undropped calls are compared here.
  if (work.dropout > 0) return 0;
  last.queries = rows;
  last.query_begin = 0;
  some.query.data += scale_rows * some.query.row_stride;
  const std::vector<AttentionItem> one = {last};
  some.items = one;
  const ReferenceAttention expected = reference_forward(some);
  double worst = 0;
  for (std::int64_t i = 0; i < rows; ++i)
    for (std::int64_t x = 0; x < work.heads * work.head_dim; ++x)
      worst = std::max(worst, std::abs(expected.output[static_cast<std::size_t>(i * work.heads * work.head_dim + x)] -
                                       data.output.data()[(scale_rows + i) * work.heads * work.head_dim + x]));
  return worst;
}

void measure(const Work& work, const std::string& target, double seconds) {
  Data data;
  make(work, data);
  const auto run = [&] {
    if (work.backward) attention_backward(data.call, data.gradients);
    else attention_forward(data.call);
  };
  attention_forward(data.call);
  const double error = error_of(work, data);
  reset_peak_memory();
  const std::int64_t live = memory_use().live_bytes;
  run();
  const std::int64_t scratch = memory_use().peak_bytes - live;
  const double operations = data.scores * 4 * static_cast<double>(work.head_dim) * (work.backward ? 2.5 : 1);

  double once = seconds_now();
  run();
  once = std::max(seconds_now() - once, 1e-7);
  const auto repeats = std::max<std::int64_t>(1, static_cast<std::int64_t>(0.004 / once));
  std::vector<double> rates, shares;
  double spent = 0;
  const std::int64_t peak_count = 200'000;
  while (spent < seconds || rates.size() < 5) {
    const double before = seconds_now();
    for (std::int64_t i = 0; i < repeats; ++i) run();
    const double middle = seconds_now();
    double peak_operations = 0;
    if (threads() == 1) {
      peak_operations = multiply_adds(peak_count);
    } else {
      std::vector<double> done(static_cast<std::size_t>(threads()));
      parallel_for(threads(), [&](std::int64_t task, int) { done[static_cast<std::size_t>(task)] = multiply_adds(peak_count); });
      for (double x : done) peak_operations += x;
    }
    const double after = seconds_now();
    const double rate = operations * static_cast<double>(repeats) / (middle - before);
    rates.push_back(rate * 1e-9);
    shares.push_back(rate / (peak_operations / (after - middle)));
    spent += after - before;
  }
  std::printf("{\"name\": \"%s\", \"pass\": \"%s\", \"items\": %lld, \"queries\": %lld, \"keys\": %lld, \"heads\": %lld, \"key_heads\": %lld, "
              "\"head_dim\": %lld, \"causal\": %s, \"dropout\": %g, \"threads\": %d, \"target\": \"%s\", \"gflops\": %.1f, \"share_of_peak\": %.3f, "
              "\"microseconds\": %.2f, \"scratch_bytes\": %lld, \"error\": %.1e, \"rounds\": %zu}\n",
              work.name, work.backward ? "backward" : "forward", static_cast<long long>(work.items), static_cast<long long>(work.queries),
              static_cast<long long>(work.keys), static_cast<long long>(work.heads), static_cast<long long>(work.key_heads),
              static_cast<long long>(work.head_dim), work.causal ? "true" : "false", static_cast<double>(work.dropout), threads(),
              target.c_str(), median(rates), median(shares), operations / median(rates) * 1e-3,
              static_cast<long long>(scratch), error, rates.size());
  std::fflush(stdout);
}

}  // namespace

int main(int argc, char** argv) {
  double seconds = 0.5;
  std::string only, pass, target;
  set_threads(1);
  for (int i = 1; i + 1 < argc; i += 2) {
    if (std::strcmp(argv[i], "--threads") == 0) set_threads(std::atoi(argv[i + 1]));
    else if (std::strcmp(argv[i], "--seconds") == 0) seconds = std::atof(argv[i + 1]);
    else if (std::strcmp(argv[i], "--only") == 0) only = argv[i + 1];
    else if (std::strcmp(argv[i], "--pass") == 0) pass = argv[i + 1];
    else if (std::strcmp(argv[i], "--target") == 0) target = argv[i + 1];
  }
  const Work works[] = {
      {"self_512", 1, 512, 512, 12, 12, 64, false, 0, false, false},
      {"self_1024", 1, 1024, 1024, 12, 12, 64, false, 0, false, false},
      {"self_4096", 1, 4096, 4096, 12, 12, 64, false, 0, false, false},
      {"causal_512", 1, 512, 512, 12, 12, 64, true, 0, false, false},
      {"causal_1024", 1, 1024, 1024, 12, 12, 64, true, 0, false, false},
      {"causal_4096", 1, 4096, 4096, 12, 12, 64, true, 0, false, false},
      {"long_16384", 1, 16384, 16384, 1, 1, 64, false, 0, false, false},
      {"batch_128", 8, 128, 128, 8, 8, 64, false, 0, false, false},
      {"batch_128_causal", 8, 128, 128, 8, 8, 64, true, 0, false, false},
      {"cross_8x196", 32, 8, 196, 8, 8, 64, false, 0, false, false},
      {"translation", 128, 30, 30, 4, 4, 32, false, 0, true, false},
      {"translation_cached", 12, 30, 30, 4, 4, 32, false, 0, true, false},
      {"translation_dropout", 128, 30, 30, 4, 4, 32, false, 0.1f, true, false},
      {"translation_causal", 128, 30, 30, 4, 4, 32, true, 0, true, false},
      {"nanogpt", 12, 64, 64, 4, 4, 32, true, 0, false, false},
      {"nanogpt_dropout", 12, 64, 64, 4, 4, 32, true, 0.2f, false, false},
      {"dropout_1024", 1, 1024, 1024, 12, 12, 64, false, 0.1f, false, false},
      {"decode_4096", 1, 1, 4096, 32, 32, 128, false, 0, false, false},
      {"decode_batch", 64, 1, 100, 8, 8, 64, false, 0, false, false},
      {"decode_beam", 128, 1, 30, 4, 4, 32, false, 0, false, false},
      {"decode_grouped", 1, 1, 4096, 32, 8, 128, false, 0, false, false},
      {"self_512", 1, 512, 512, 12, 12, 64, false, 0, false, true},
      {"self_1024", 1, 1024, 1024, 12, 12, 64, false, 0, false, true},
      {"self_4096", 1, 4096, 4096, 12, 12, 64, false, 0, false, true},
      {"causal_1024", 1, 1024, 1024, 12, 12, 64, true, 0, false, true},
      {"long_16384", 1, 16384, 16384, 1, 1, 64, false, 0, false, true},
      {"batch_128", 8, 128, 128, 8, 8, 64, false, 0, false, true},
      {"translation", 128, 30, 30, 4, 4, 32, false, 0, true, true},
      {"translation_cached", 12, 30, 30, 4, 4, 32, false, 0, true, true},
      {"translation_dropout", 128, 30, 30, 4, 4, 32, false, 0.1f, true, true},
      {"translation_causal", 128, 30, 30, 4, 4, 32, true, 0, true, true},
      {"nanogpt", 12, 64, 64, 4, 4, 32, true, 0, false, true},
      {"nanogpt_dropout", 12, 64, 64, 4, 4, 32, true, 0.2f, false, true},
      {"dropout_1024", 1, 1024, 1024, 12, 12, 64, false, 0.1f, false, true},
  };
  force_kernel_target(target);
  if (target.empty()) target = kernel_targets().front();
  for (const Work& work : works)
    if ((only.empty() || std::string(work.name).find(only) != std::string::npos) &&
        (pass.empty() || pass == (work.backward ? "backward" : "forward")))
      measure(work, target, seconds);
}
