#include <algorithm>
#include <cmath>
#include <string>
#include <vector>

#include "attend/attention.h"
#include "attend/bench.h"
#include "attend/error.h"
#include "attend/threads.h"
#include "bench/attention_data.h"
#include "bench/machine_peak.h"
#include "core/memory.h"
#include "core/random.h"
#include "kernel/attention/attention_reference.h"
#include "kernel/targets.h"

namespace attend {
namespace {

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

void make(const Work& work, Data& data) {
  Random random(1);
  std::int64_t query_rows = 0, key_rows = 0;
  for (std::int64_t i = 0; i < work.items; ++i) {
    AttentionItem item;
    item.query_begin = query_rows;
    item.key_begin = key_rows;
    item.queries = work.ragged
                       ? 5 + static_cast<std::int64_t>(random.below(static_cast<std::uint64_t>(work.queries - 4)))
                       : work.queries;
    item.keys = work.ragged
                    ? (work.queries == work.keys
                           ? item.queries
                           : 5 + static_cast<std::int64_t>(random.below(static_cast<std::uint64_t>(work.keys - 4))))
                    : work.keys;
    item.query_position = item.keys - item.queries;
    query_rows += item.queries;
    key_rows += item.keys;
    data.items.push_back(item);
    const double seen = work.causal ? 0.5 * static_cast<double>(item.keys) * static_cast<double>(item.queries + 1)
                                    : static_cast<double>(item.keys) * static_cast<double>(item.queries);
    data.scores += seen * static_cast<double>(work.heads);
  }
  const std::int64_t width = work.heads * work.head_dim, key_width = work.key_heads * work.head_dim;
  data.query = normal_numbers(random, query_rows * width);
  data.key = normal_numbers(random, key_rows * key_width);
  data.value = normal_numbers(random, key_rows * key_width);
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
  data.output_gradient = normal_numbers(random, query_rows * width);
  data.query_gradient = zeros(data.query.size());
  data.key_gradient = zeros(data.key.size());
  data.value_gradient = zeros(data.value.size());
  data.gradients.output_gradient = {data.output_gradient.data(), width, work.head_dim};
  data.gradients.query = {data.query_gradient.data(), width, work.head_dim};
  data.gradients.key = {data.key_gradient.data(), key_width, work.head_dim};
  data.gradients.value = {data.value_gradient.data(), key_width, work.head_dim};
}

// What is compared with the reference: the last item asks with a few of its queries only, because the reference is slow.
// With dropout they are the first, which keep their numbers; else the last, which see the most under a causal mask.
// Earlier items stay as empty ones, so that the item keeps its number too.
AttentionCall some_rows(const Work& work, const Data& data, std::vector<AttentionItem>& items) {
  items = data.items;
  for (std::size_t i = 0; i + 1 < items.size(); ++i) items[i].queries = 0;
  AttentionItem& last = items.back();
  const std::int64_t rows = std::min<std::int64_t>(last.queries, 16),
                     skipped = work.dropout > 0 ? 0 : last.queries - rows;
  last.queries = rows;
  last.query_begin += skipped;
  last.query_position += skipped;
  AttentionCall some = data.call;
  some.items = items;
  return some;
}

double forward_error(const Work& work, const Data& data) {
  std::vector<AttentionItem> items;
  const AttentionCall some = some_rows(work, data, items);
  const ReferenceAttention expected = reference_forward(some);
  const AttentionItem& last = items.back();
  Largest largest;
  largest.compare(expected.output, data.output, last.query_begin, last.query_begin + last.queries,
                  work.heads * work.head_dim);
  largest.compare(expected.log_sum_exp, data.log_sum_exp, last.query_begin, last.query_begin + last.queries,
                  work.heads);
  return largest.difference();
}

// The gradients are linear in the output's. With that zero but for the rows compared, the kernel that is timed, at its
// full size, must give those rows' gradients of queries, and of all keys and values of the item.
double backward_error(const Work& work, Data& data) {
  std::vector<AttentionItem> items;
  const AttentionCall some = some_rows(work, data, items);
  const AttentionItem& last = items.back();
  const std::int64_t width = work.heads * work.head_dim, key_width = work.key_heads * work.head_dim;
  Buffer few = zeros(data.output_gradient.size());
  std::copy_n(data.output_gradient.data() + last.query_begin * width, last.queries * width,
              few.data() + last.query_begin * width);
  AttentionGradients gradients = data.gradients;
  gradients.output_gradient.data = few.data();
  attention_backward(data.call, gradients);
  const ReferenceGradients expected = reference_backward(some, gradients.output_gradient);
  Largest largest;
  largest.compare(expected.query, data.query_gradient, last.query_begin, last.query_begin + last.queries, width);
  largest.compare(expected.key, data.key_gradient, last.key_begin, last.key_begin + last.keys, key_width);
  largest.compare(expected.value, data.value_gradient, last.key_begin, last.key_begin + last.keys, key_width);
  return largest.difference();
}

AttentionSpeed measure(const Work& work, const std::string& target, double seconds) {
  Data data;
  make(work, data);
  const auto run = [&] {
    if (work.backward) attention_backward(data.call, data.gradients);
    else attention_forward(data.call);
  };
  attention_forward(data.call);
  const double error = work.backward ? backward_error(work, data) : forward_error(work, data);
  if (!(error <= largest_attention_error))
    throw Error(ErrorKind::numeric, join("bench ", work.name),
                join(work.backward ? "backward" : "forward", " on ", target, " differs from the reference by ", error,
                     ", more than ", largest_attention_error),
                "the kernel is wrong on this machine: do not use it, and report the target");
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
    const double peak_operations =
        threads() == 1 ? multiply_adds(peak_count) : multiply_adds_on_all_threads(peak_count);
    const double after = seconds_now();
    const double rate = operations * static_cast<double>(repeats) / (middle - before);
    rates.push_back(rate * 1e-9);
    shares.push_back(rate / (peak_operations / (after - middle)));
    spent += after - before;
  }
  AttentionSpeed speed;
  speed.name = work.name;
  speed.pass = work.backward ? "backward" : "forward";
  speed.target = target;
  speed.items = work.items;
  speed.queries = work.queries;
  speed.keys = work.keys;
  speed.heads = work.heads;
  speed.key_heads = work.key_heads;
  speed.head_dim = work.head_dim;
  speed.causal = work.causal;
  speed.dropout = static_cast<double>(work.dropout);
  speed.threads = threads();
  speed.gflops = median(rates);
  speed.share_of_peak = median(shares);
  speed.microseconds = operations / speed.gflops * 1e-3;
  speed.scratch_bytes = scratch;
  speed.error = error;
  speed.rounds = static_cast<std::int64_t>(rates.size());
  return speed;
}

}  // namespace

std::vector<std::string> instruction_sets() { return kernel_targets(); }

void bench_attention(const AttentionBenchOptions& options, const std::function<void(const AttentionSpeed&)>& report) {
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
  force_kernel_target(options.target);
  // Also when a check or the report throws.
  struct Release {
    ~Release() { force_kernel_target(""); }
  } release;
  const std::string target = options.target.empty() ? kernel_targets().front() : options.target;
  bool any = false;
  std::string names;
  for (const Work& work : works) {
    if (!options.pass.empty() && options.pass != (work.backward ? "backward" : "forward")) continue;
    const std::string name = work.name;
    if ((", " + names + ", ").find(", " + name + ", ") == std::string::npos)
      names += (names.empty() ? "" : ", ") + name;
    if (name.find(options.only) == std::string::npos) continue;
    any = true;
    report(measure(work, target, options.seconds));
  }
  if (!any)
    throw Error(ErrorKind::argument, "bench attention", join("the name of no shape holds \"", options.only, "\""),
                "they are: " + names);
}

}  // namespace attend
