#include <algorithm>
#include <string>
#include <vector>

#include "attend/attention.h"
#include "attend/bench.h"
#include "attend/error.h"
#include "attend/threads.h"
#include "bench/attention_data.h"
#include "bench/machine_peak.h"
#include "kernel/attention/attention_reference.h"
#include "kernel/targets.h"

namespace attend {
namespace {

struct Work {
  std::int64_t rows, heads, head_dim;
};

struct Data {
  std::vector<AttentionItem> items = std::vector<AttentionItem>(1);
  std::vector<KeySpan> spans;
  Buffer query, key, value, output, log_sum_exp, entropy, distance, first, self, previous, list_mass, top_weights;
  std::vector<std::int32_t> top_keys;
  AttentionCall call;
  AttentionStatistics statistics;
};

void make(const Work& work, std::int64_t top, Data& data) {
  Random random(1);
  const std::int64_t width = work.heads * work.head_dim, numbers = work.rows * work.heads;
  data.items[0].queries = data.items[0].keys = work.rows;
  data.query = normal_numbers(random, work.rows * width);
  data.key = normal_numbers(random, work.rows * width);
  data.value = normal_numbers(random, work.rows * width);
  data.output = zeros(work.rows * width);
  data.log_sum_exp = zeros(numbers);
  AttentionCall& call = data.call;
  call.query_heads = call.key_heads = work.heads;
  call.head_dim = call.value_dim = work.head_dim;
  call.query = {data.query.data(), width, work.head_dim};
  call.key = {data.key.data(), width, work.head_dim};
  call.value = {data.value.data(), width, work.head_dim};
  call.output = {data.output.data(), width, work.head_dim};
  call.log_sum_exp = data.log_sum_exp.data();
  call.items = data.items;

  // A word, a sentence, and every 50th key, as separators would be.
  data.spans = {{0, -1, work.rows / 3, work.rows / 3 + 3}, {0, -1, work.rows / 2, work.rows / 2 + 30}};
  for (std::int64_t key = 49; key < work.rows; key += 50) data.spans.push_back({0, -1, key, key + 1});
  AttentionStatistics& wanted = data.statistics;
  wanted.spans = data.spans;
  wanted.lists = 1;
  wanted.top = top;
  const auto room = [&](Buffer& values, std::int64_t size) {
    values = zeros(size);
    return values.data();
  };
  wanted.entropy = room(data.entropy, numbers);
  wanted.distance = room(data.distance, numbers);
  wanted.first = room(data.first, numbers);
  wanted.self = room(data.self, numbers);
  wanted.previous = room(data.previous, numbers);
  wanted.list_mass = room(data.list_mass, numbers);
  wanted.top_weights = room(data.top_weights, numbers * top);
  data.top_keys.assign(static_cast<std::size_t>(numbers * top), 0);
  wanted.top_keys = data.top_keys.data();
}

// The last rows against the reference. Distances grow with the rows, so they are compared in units of them.
double error_of(const Work& work, const Data& data) {
  std::vector<AttentionItem> items = data.items;
  const std::int64_t checked = std::min<std::int64_t>(work.rows, 16), first = work.rows - checked;
  items[0].query_begin = items[0].query_position = first;
  items[0].queries = checked;
  AttentionCall some = data.call;
  some.items = items;
  some.statistics = &data.statistics;
  const ReferenceStatistics expected = reference_statistics(some);
  Largest largest;
  largest.compare(reference_forward(some).log_sum_exp, data.log_sum_exp, first, work.rows, work.heads);
  largest.compare(expected.entropy, data.entropy, first, work.rows, work.heads);
  largest.compare(expected.first, data.first, first, work.rows, work.heads);
  largest.compare(expected.self, data.self, first, work.rows, work.heads);
  largest.compare(expected.previous, data.previous, first, work.rows, work.heads);
  largest.compare(expected.list_mass, data.list_mass, first, work.rows, work.heads);
  largest.compare(expected.top_weights, data.top_weights, first, work.rows, work.heads * data.statistics.top);
  for (std::int64_t i = first * work.heads; i < work.rows * work.heads; ++i)
    largest.compare(expected.distance[static_cast<std::size_t>(i)] / static_cast<double>(work.rows),
                    data.distance.data()[i] / static_cast<float>(work.rows));
  // Keys in their order; neighbours as near as the precision of a score may have changed places.
  for (std::int64_t head = 0; head < work.heads; ++head) {
    const std::vector<double> weights = reference_weights(some, 0, head);
    for (std::int64_t row = 0; row < checked; ++row)
      for (std::int64_t t = 0; t < data.statistics.top; ++t) {
        const auto at = static_cast<std::size_t>(((first + row) * work.heads + head) * data.statistics.top + t);
        largest.compare(expected.top_weights[at],
                        static_cast<float>(weights[static_cast<std::size_t>(row * work.rows + data.top_keys[at])]));
      }
  }
  return largest.difference();
}

std::int64_t scratch_of(const AttentionCall& call) {
  reset_peak_memory();
  const std::int64_t live = memory_use().live_bytes;
  attention_forward(call);
  return memory_use().peak_bytes - live;
}

StatisticsSpeed measure(const Work& work, std::int64_t top, const std::string& target, double seconds) {
  Data data;
  make(work, top, data);
  AttentionCall plain = data.call, observed = data.call;
  observed.statistics = &data.statistics;
  attention_forward(observed);
  const double error = error_of(work, data);
  if (!(error <= largest_attention_error))
    throw Error(ErrorKind::numeric, join("bench statistics, ", work.rows, " rows"),
                join("statistics on ", target, " differ from the reference by ", error, ", more than ",
                     largest_attention_error),
                "the kernel is wrong on this machine: do not use it, and report the target");
  StatisticsSpeed speed;
  speed.plain_scratch_bytes = scratch_of(plain);
  speed.scratch_bytes = scratch_of(observed);

  const auto time = [](const AttentionCall& call, std::int64_t repeats) {
    const double before = seconds_now();
    for (std::int64_t i = 0; i < repeats; ++i) attention_forward(call);
    return seconds_now() - before;
  };
  const auto repeats = std::max<std::int64_t>(1, static_cast<std::int64_t>(0.01 / std::max(time(plain, 1), 1e-6)));
  const double operations = 4.0 * static_cast<double>(work.rows * work.rows * work.heads * work.head_dim * repeats);
  std::vector<double> ratios, times, plain_times, rates, shares, plain_rates, plain_shares;
  double spent = 0;
  for (bool first = true; spent < seconds || ratios.size() < 5; first = !first) {
    const double start = seconds_now();
    // By turns, and in turn each before the other.
    double without = 0, with = 0;
    if (first) without = time(plain, repeats);
    with = time(observed, repeats);
    if (!first) without = time(plain, repeats);
    const double middle = seconds_now();
    const double peak_operations = threads() == 1 ? multiply_adds(200'000) : multiply_adds_on_all_threads(200'000);
    const double after = seconds_now(), peak = peak_operations / (after - middle);
    ratios.push_back(with / without);
    times.push_back(with / static_cast<double>(repeats));
    plain_times.push_back(without / static_cast<double>(repeats));
    rates.push_back(operations / with * 1e-9);
    shares.push_back(operations / with / peak);
    plain_rates.push_back(operations / without * 1e-9);
    plain_shares.push_back(operations / without / peak);
    spent += after - start;
  }
  speed.target = target;
  speed.rows = work.rows;
  speed.heads = work.heads;
  speed.head_dim = work.head_dim;
  speed.top = top;
  speed.threads = threads();
  speed.rounds = static_cast<std::int64_t>(ratios.size());
  speed.ratio_to_plain = median(ratios);
  speed.seconds = median(times);
  speed.plain_seconds = median(plain_times);
  speed.gflops = median(rates);
  speed.share_of_peak = median(shares);
  speed.plain_gflops = median(plain_rates);
  speed.plain_share_of_peak = median(plain_shares);
  speed.input_bytes = (data.query.size() + data.key.size() + data.value.size()) * 4;
  speed.output_bytes = work.rows * work.heads * (6 + 2 * top) * 4;
  speed.error = error;
  return speed;
}

}  // namespace

void bench_statistics(const StatisticsBenchOptions& options,
                      const std::function<void(const StatisticsSpeed&)>& report) {
  const auto require = [](const char* what, std::int64_t value, std::int64_t most) {
    if (value < 1 || value > most)
      throw Error(ErrorKind::argument, "bench statistics", join(what, " is ", value), join("give 1 to ", most));
  };
  for (const std::int64_t rows : options.rows) require("rows", rows, std::int64_t{1} << 20);
  for (const std::int64_t top : options.top) require("top", top, most_top_keys);
  require("heads", options.heads, 1024);
  require("head_dim", options.head_dim, 1024);
  force_kernel_target(options.target);
  // Also when a check or the report throws.
  struct Release {
    ~Release() { force_kernel_target(""); }
  } release;
  const std::string target = options.target.empty() ? kernel_targets().front() : options.target;
  for (const std::int64_t rows : options.rows)
    for (const std::int64_t top : options.top)
      report(measure({rows, options.heads, options.head_dim}, top, target, options.seconds));
}

}  // namespace attend
