// Measuring the engine on this machine. Attention is first checked against the float64 reference, then timed in rounds,
// each beside a loop of fused multiply-adds in the same process: a noisy neighbour slows both, so the median share of
// the machine's peak says more than any time. bench/compare.py runs these beside other engines.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "attend/importance.h"
#include "attend/recipe.h"
#include "attend/translate.h"

namespace attend {

struct AttentionBenchOptions {
  double seconds = 0.5;  // for each shape
  std::string only;      // only shapes whose name holds this
  std::string pass;      // "forward", "backward", or "" for both
  std::string target;    // instruction set to force, "" for the best; see Error for the names
};

// Instruction sets of the attention kernels that this machine and build offer, the best first.
std::vector<std::string> instruction_sets();

// One shape. Operations counted: forward 2 * scores * (head_dim + value_dim), backward 2.5 times that, visible scores only.
struct AttentionSpeed {
  std::string name, pass, target;
  std::int64_t items = 0, queries = 0, keys = 0, heads = 0, key_heads = 0, head_dim = 0;
  bool causal = false;
  double dropout = 0;
  int threads = 0;
  double gflops = 0, share_of_peak = 0, microseconds = 0;  // medians
  std::int64_t scratch_bytes = 0;                          // beyond inputs and outputs, all threads
  double error = 0;                                        // largest difference from float64, see below
  std::int64_t rounds = 0;
};
// Before a shape is timed, 16 queries of its last item are compared with the reference, dropout included: outputs and
// log-sum-exp, or in backward their gradients of queries, keys and values. Throws Error(numeric) where a number differs
// by more than this; inputs are normal with deviation 1, so outputs and gradients are of that size or below.
inline constexpr double largest_attention_error = 1e-4;
void bench_attention(const AttentionBenchOptions& options, const std::function<void(const AttentionSpeed&)>& report);

struct StatisticsBenchOptions {
  double seconds = 2;  // for each shape and k, at least five rounds
  std::string target;  // as above
  std::vector<std::int64_t> rows{4096};
  std::int64_t heads = 12, head_dim = 64;
  std::vector<std::int64_t> top{8, 32};  // largest keys, at most most_top_keys
};

// Fused self-attention with all statistics of all heads (entropy, distance, mass on the first key, on itself, on the one before
// and on a list of spans, the `top` largest keys, log-sum-exp) beside the same without any, by turns in one process.
struct StatisticsSpeed {
  std::string target;
  std::int64_t rows = 0, heads = 0, head_dim = 0, top = 0;
  int threads = 0;
  double seconds = 0, plain_seconds = 0;  // of a call
  double ratio_to_plain = 0;              // median over rounds of time with / time without
  double gflops = 0, share_of_peak = 0;   // with statistics, operations counted as without
  double plain_gflops = 0, plain_share_of_peak = 0;
  std::int64_t scratch_bytes = 0, plain_scratch_bytes = 0, output_bytes = 0;  // output_bytes: of the statistics alone
  std::int64_t input_bytes = 0;                                               // query, key and value
  double error = 0;  // largest difference from float64; distances in units of the rows
  std::int64_t rounds = 0;
};
void bench_statistics(const StatisticsBenchOptions& options, const std::function<void(const StatisticsSpeed&)>& report);

// Rates of several rounds and their median.
struct Rates {
  double median = 0;
  std::vector<double> all;
};

// Target tokens a second of training steps on the recipe's real batches (forward, backward, clipping, optimiser), in
// `rounds` of `steps` after a warm-up of as many. Writes into a temporary folder that is removed.
Rates bench_training(const Recipe& recipe, const std::filesystem::path& data_folder, std::int64_t steps,
                     std::int64_t rounds);

// Sentences a second, text to text, all lines each round, after a warm-up round.
Rates bench_translation(const Translator& translator, std::span<const std::string> lines,
                        const TranslateOptions& options, std::int64_t rounds);

// What telling looks from matters costs. First-order effects of every edge beside one pass forward, in turns; and exact
// cuts of `cuts` edges beside as many whole runs with the same edit, in rounds: of the edges with the largest first-order
// effects, which one would cut to be sure, and of edges drawn from all. A whole run computes no logits but the target's.
// Medians.
struct ImportanceSpeed {
  std::int64_t source_tokens = 0, target_tokens = 0, edges = 0, cuts = 0;
  int threads = 0;
  double forward_milliseconds = 0, first_order_milliseconds = 0, first_order_ratio = 0;
  double exact_seconds = 0, whole_seconds = 0, exact_speedup = 0;
  double random_exact_seconds = 0, random_exact_speedup = 0;
  double largest_effect = 0, largest_difference = 0;  // of the cuts; between both ways of measuring them
};
// Error(numeric) where both ways differ by more than this, relative to the largest effect or 1.
inline constexpr double largest_cut_error = 1e-3;
ImportanceSpeed bench_importance(const Model& model, const ModelInput& input, const Target& target, std::int64_t cuts,
                                 std::int64_t rounds);

}  // namespace attend
