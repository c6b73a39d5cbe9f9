// Speed of the products with packed weights, as JSON lines. Every shape is first checked against sums in double. Beside
// it, in turn with it in the same process, run a loop of fused multiply-adds (the peak of the machine), a loop that
// reads the weights (the bandwidth), and OpenBLAS and oneDNN with one thread if they were found at build time. The lower quartile of
// interleaved rounds counts.
//
//   product_speed [--threads N] [--seconds S, for a shape] [--only TEXT, such as "multiply 8x512"] [--target AVX2]
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <string>
#include <vector>

#include "bench/machine_peak.h"
#include "core/random.h"
#include "core/threads.h"
#include "kernel/matrix/packed_matrix.h"
#include "kernel/targets.h"

#if defined(__x86_64__)
#include <immintrin.h>
#endif
#ifdef ATTEND_BENCH_OPENBLAS
#include <cblas.h>
#endif
#ifdef ATTEND_BENCH_ONEDNN
#include <oneapi/dnnl/dnnl.h>
#endif

namespace {

volatile float sink;

#if defined(__x86_64__)
__attribute__((target("avx2"), noinline)) void read_loop(const float* data, std::int64_t size) {
  __m256 sums[8] = {};
  for (std::int64_t i = 0; i + 64 <= size; i += 64) {
#pragma GCC unroll 8
    for (int k = 0; k < 8; ++k) sums[k] = _mm256_add_ps(sums[k], _mm256_loadu_ps(data + i + 8 * k));
  }
#pragma GCC unroll 8
  for (int k = 1; k < 8; ++k) sums[0] = _mm256_add_ps(sums[0], sums[k]);
  sink = _mm256_cvtss_f32(sums[0]);
}
#else
__attribute__((noinline)) void read_loop(const float* data, std::int64_t size) {
  float sums[256] = {};
  for (std::int64_t i = 0; i + 256 <= size; i += 256)
    for (int k = 0; k < 256; ++k) sums[k] += data[i + k];
  float sum = 0;
  for (float value : sums) sum += value;
  sink = sum;
}
#endif

double seconds_of(const std::function<void()>& work, std::int64_t repeats) {
  const double begin = attend::seconds_now();
  for (std::int64_t i = 0; i < repeats; ++i) work();
  return (attend::seconds_now() - begin) / static_cast<double>(repeats);
}

std::int64_t repeats_for(const std::function<void()>& work, double seconds) {
  work();
  const double once = seconds_of(work, 1);
  return std::clamp<std::int64_t>(static_cast<std::int64_t>(seconds / std::max(once, 1e-9)), 1, 1 << 20);
}

// The lower quartile of the rounds: other work on the machine only ever adds time.
double quartile(std::vector<double> values) {
  std::nth_element(values.begin(), values.begin() + static_cast<std::ptrdiff_t>(values.size() / 4), values.end());
  return values[values.size() / 4];
}

struct Contender {
  std::string name;
  std::function<void()> work;
  std::vector<double> seconds;
};

void time_in_turn(std::vector<Contender>& contenders, double seconds) {
  constexpr int rounds = 20;
  std::vector<std::int64_t> repeats;
  for (Contender& contender : contenders)
    repeats.push_back(repeats_for(contender.work, seconds / rounds / static_cast<double>(contenders.size())));
  for (int round = 0; round < rounds; ++round)
    for (std::size_t i = 0; i < contenders.size(); ++i)
      contenders[i].seconds.push_back(seconds_of(contenders[i].work, repeats[i]));
}

std::vector<float> random_floats(std::int64_t size, std::uint64_t seed) {
  attend::Random random(seed);
  std::vector<float> values(static_cast<std::size_t>(size));
  for (float& value : values) value = static_cast<float>(random.uniform()) - 0.5f;
  return values;
}

std::string forced_target;
std::string target_in_use() { return forced_target.empty() ? attend::kernel_targets()[0] : forced_target; }

enum class Operation { multiply, multiply_transposed, pack };

struct Shape {
  Operation operation;
  std::int64_t rows, inputs, outputs;
};

const char* name_of(Operation operation) {
  return operation == Operation::multiply ? "multiply" : operation == Operation::pack ? "pack" : "multiply_transposed";
}

bool close(double found, double expected, std::int64_t length) {
  return std::abs(found - expected) <= 1e-6 * std::sqrt(static_cast<double>(length)) + 1e-5 * std::abs(expected);
}

// The peak loop shares the core with the product in time, so its time is the fair measure of what was available.
constexpr std::int64_t peak_count = 40000;

bool run(const Shape& shape, double seconds, const std::string& only) {
  const std::int64_t rows = shape.rows, inputs = shape.inputs, outputs = shape.outputs;
  const std::string label = std::string(name_of(shape.operation)) + " " + std::to_string(rows) + "x" +
                            std::to_string(inputs) + "x" + std::to_string(outputs);
  if (!only.empty() && label.find(only) == std::string::npos) return true;
  const auto a = random_floats(rows * inputs, 1), weights = random_floats(outputs * inputs, 2),
             other = random_floats(rows * outputs, 3);
  std::vector<float> c(static_cast<std::size_t>(rows * outputs)), gradient(static_cast<std::size_t>(inputs * outputs));
  [[maybe_unused]] std::vector<float> peer(std::max(c.size(), gradient.size()));
  attend::PackedMatrix packed;
  packed.pack(weights.data(), outputs, inputs, inputs);
  attend::Random random(7);
  std::vector<Contender> contenders;
  const double operations = 2.0 * static_cast<double>(rows * inputs * outputs);
  if (shape.operation == Operation::pack) {
    contenders.push_back({"ours", [&] { packed.pack(weights.data(), outputs, inputs, inputs); }, {}});
    contenders.push_back({"transposed", [&] { packed.pack(weights.data(), inputs, outputs, inputs, true); }, {}});
    time_in_turn(contenders, seconds);
    std::printf(
        "{\"bench\":\"product\",\"operation\":\"pack\",\"inputs\":%lld,\"outputs\":%lld,\"threads\":%d,\"target\":\"%"
        "s\","
        "\"microseconds\":%.2f,\"microseconds_transposed\":%.2f}\n",
        static_cast<long long>(inputs), static_cast<long long>(outputs), attend::threads(), target_in_use().c_str(),
        quartile(contenders[0].seconds) * 1e6, quartile(contenders[1].seconds) * 1e6);
    std::fflush(stdout);
    return true;
  }
  if (shape.operation == Operation::multiply) {
    auto ours = [&] { attend::multiply(a.data(), inputs, rows, packed, c.data(), outputs); };
    ours();
    for (int check = 0; check < 64; ++check) {
      const auto i = static_cast<std::int64_t>(random.below(static_cast<std::uint64_t>(rows)));
      const auto j = static_cast<std::int64_t>(random.below(static_cast<std::uint64_t>(outputs)));
      double expected = 0;
      for (std::int64_t k = 0; k < inputs; ++k)
        expected += static_cast<double>(a[static_cast<std::size_t>(i * inputs + k)]) *
                    weights[static_cast<std::size_t>(j * inputs + k)];
      if (!close(c[static_cast<std::size_t>(i * outputs + j)], expected, inputs)) {
        std::fprintf(stderr, "%s: element (%lld, %lld) is wrong\n", label.c_str(), static_cast<long long>(i),
                     static_cast<long long>(j));
        return false;
      }
    }
    contenders.push_back({"ours", ours, {}});
  } else {
    auto ours = [&] {
      attend::multiply_transposed(a.data(), inputs, other.data(), outputs, rows, inputs, outputs, gradient.data(),
                                  outputs);
    };
    ours();
    for (int check = 0; check < 64; ++check) {
      const auto i = static_cast<std::int64_t>(random.below(static_cast<std::uint64_t>(inputs)));
      const auto j = static_cast<std::int64_t>(random.below(static_cast<std::uint64_t>(outputs)));
      double expected = 0;
      for (std::int64_t r = 0; r < rows; ++r)
        expected += static_cast<double>(a[static_cast<std::size_t>(r * inputs + i)]) *
                    other[static_cast<std::size_t>(r * outputs + j)];
      if (!close(gradient[static_cast<std::size_t>(i * outputs + j)], expected, rows)) {
        std::fprintf(stderr, "%s: element (%lld, %lld) is wrong\n", label.c_str(), static_cast<long long>(i),
                     static_cast<long long>(j));
        return false;
      }
    }
    contenders.push_back({"ours", ours, {}});
  }
  contenders.push_back({"peak", [] { attend::multiply_adds(peak_count); }, {}});
  contenders.push_back({"read", [&] { read_loop(packed.panels(), inputs * outputs); }, {}});
#ifdef ATTEND_BENCH_OPENBLAS
  const int m = static_cast<int>(rows), k = static_cast<int>(inputs), n = static_cast<int>(outputs);
  if (shape.operation == Operation::multiply_transposed) {
    contenders.push_back({"openblas",
                          [&, m, k, n] {
                            cblas_sgemm(CblasRowMajor, CblasTrans, CblasNoTrans, k, n, m, 1, a.data(), k, other.data(),
                                        n, 1, peer.data(), n);
                          },
                          {}});
  } else if (rows == 1) {
    contenders.push_back({"openblas",
                          [&, k, n] {
                            cblas_sgemv(CblasRowMajor, CblasNoTrans, n, k, 1, weights.data(), k, a.data(), 1, 0,
                                        peer.data(), 1);
                          },
                          {}});
  } else {
    contenders.push_back({"openblas",
                          [&, m, k, n] {
                            cblas_sgemm(CblasRowMajor, CblasNoTrans, CblasTrans, m, n, k, 1, a.data(), k,
                                        weights.data(), k, 0, peer.data(), n);
                          },
                          {}});
  }
#endif
#ifdef ATTEND_BENCH_ONEDNN
  if (shape.operation == Operation::multiply_transposed)
    contenders.push_back({"onednn",
                          [&, rows, inputs, outputs] {
                            dnnl_sgemm('T', 'N', inputs, outputs, rows, 1, a.data(), inputs, other.data(), outputs, 1,
                                       peer.data(), outputs);
                          },
                          {}});
  else
    contenders.push_back({"onednn",
                          [&, rows, inputs, outputs] {
                            dnnl_sgemm('N', 'T', rows, outputs, inputs, 1, a.data(), inputs, weights.data(), inputs, 0,
                                       peer.data(), outputs);
                          },
                          {}});
#endif
  time_in_turn(contenders, seconds);
  const double ours = quartile(contenders[0].seconds),
               peak = attend::multiply_adds(1) * peak_count / quartile(contenders[1].seconds);
  const double bytes = 4.0 * static_cast<double>(inputs * outputs);
  std::printf(
      "{\"bench\":\"product\",\"operation\":\"%s\",\"rows\":%lld,\"inputs\":%lld,\"outputs\":%lld,\"threads\":%d,"
      "\"target\":\"%s\","
      "\"microseconds\":%.2f,\"gflops\":%.1f,\"peak_gflops_1_thread\":%.1f,\"of_peak\":%.3f,\"weights_gb_per_s\":%.1f,"
      "\"read_gb_per_s_1_thread\":%.1f",
      name_of(shape.operation), static_cast<long long>(rows), static_cast<long long>(inputs),
      static_cast<long long>(outputs), attend::threads(), target_in_use().c_str(), ours * 1e6, operations / ours * 1e-9,
      peak * 1e-9, operations / ours / (peak * attend::threads()), bytes / ours * 1e-9,
      bytes / quartile(contenders[2].seconds) * 1e-9);
  for (std::size_t i = 3; i < contenders.size(); ++i) {
    const char* name = contenders[i].name.c_str();
    const double theirs = quartile(contenders[i].seconds);
    std::printf(",\"%s_1_thread_gflops\":%.1f,\"over_%s\":%.2f", name, operations / theirs * 1e-9, name, theirs / ours);
  }
  std::printf("}\n");
  std::fflush(stdout);
  return true;
}

}  // namespace

int main(int count, char** words) {
  double seconds = 0.3;
  std::string only;
  for (int i = 1; i + 1 < count; i += 2) {
    const std::string word = words[i];
    if (word == "--threads") attend::set_threads(std::atoi(words[i + 1]));
    else if (word == "--seconds") seconds = std::atof(words[i + 1]);
    else if (word == "--only") only = words[i + 1];
    else if (word == "--target") forced_target = words[i + 1];
    else {
      std::fprintf(stderr, "unknown option %s; use --threads N, --seconds S, --only TEXT, --target NAME\n", words[i]);
      return 2;
    }
  }
#ifdef ATTEND_BENCH_OPENBLAS
  openblas_set_num_threads(1);
#endif
#ifdef ATTEND_BENCH_ONEDNN
  setenv("OMP_NUM_THREADS", "1", 1);  // read by oneDNN's OpenMP when it first runs
#endif
  attend::force_kernel_target(forced_target);
  std::vector<Shape> shapes;
  const std::pair<std::int64_t, std::int64_t> sizes[] = {{32, 32},    {128, 128}, {128, 512},  {512, 128},
                                                         {512, 512},  {768, 768}, {768, 3072}, {3072, 768},
                                                         {128, 6000}, {6000, 128}};
  for (std::int64_t rows : {1, 4, 8, 16, 32, 64, 100, 512, 4096})
    for (auto [inputs, outputs] : sizes)
      if (rows * inputs * outputs <= std::int64_t{4096} * 768 * 3072)
        shapes.push_back({Operation::multiply, rows, inputs, outputs});
  for (std::int64_t rows : {500, 4096})
    for (auto [inputs, outputs] : {std::pair<std::int64_t, std::int64_t>{128, 128},
                                   {128, 512},
                                   {512, 128},
                                   {512, 512},
                                   {512, 2048},
                                   {2048, 512},
                                   {6000, 128}})
      shapes.push_back({Operation::multiply_transposed, rows, inputs, outputs});
  for (auto [inputs, outputs] :
       {std::pair<std::int64_t, std::int64_t>{128, 128}, {256, 128}, {512, 512}, {768, 3072}, {128, 6000}})
    shapes.push_back({Operation::pack, 1, inputs, outputs});
  bool right = true;
  for (const Shape& shape : shapes) right = run(shape, seconds, only) && right;
  return right ? 0 : 1;
}
