#include "run/choose.h"

#include <algorithm>
#include <cmath>
#include <limits>

namespace attend {
namespace {

constexpr std::int64_t lanes = 16;
constexpr std::int64_t block = 128;  // logits looked at together: only blocks with a new best are searched

// The largest of `count` floats; `poison` becomes NaN if one of them is NaN or infinite. Lanes side by side, so that the
// compiler can use vectors without being allowed to reorder sums.
float largest_of(const float* x, std::int64_t count, float& poison) {
  float largest = -std::numeric_limits<float>::infinity(), sum = 0;
  std::int64_t i = 0;
  if (count >= lanes) {
    float most[lanes], zeros[lanes];
    for (std::int64_t lane = 0; lane < lanes; ++lane) {
      most[lane] = -std::numeric_limits<float>::infinity();
      zeros[lane] = 0;
    }
    for (; i + lanes <= count; i += lanes) {
      for (std::int64_t lane = 0; lane < lanes; ++lane) {
        const float value = x[i + lane];
        most[lane] = value > most[lane] ? value : most[lane];
        zeros[lane] += value - value;  // 0 for a finite value, NaN for all others
      }
    }
    for (std::int64_t lane = 0; lane < lanes; ++lane) {
      largest = std::max(largest, most[lane]);
      sum += zeros[lane];
    }
  }
  for (; i < count; ++i) {
    largest = x[i] > largest ? x[i] : largest;
    sum += x[i] - x[i];
  }
  poison += sum;
  return largest;
}

bool before(const Candidate& a, const Candidate& b) { return a.logit > b.logit || (a.logit == b.logit && a.id < b.id); }

}  // namespace

AllowedIds::AllowedIds(std::int64_t vocabulary, std::initializer_list<std::span<const std::int32_t>> forbidden) {
  std::vector<std::int32_t> ids;
  for (const auto& list : forbidden) ids.insert(ids.end(), list.begin(), list.end());
  std::sort(ids.begin(), ids.end());
  std::int32_t begin = 0;
  const auto add = [&](std::int32_t end) {
    if (end > begin) {
      ranges_.emplace_back(begin, end);
      count_ += end - begin;
    }
  };
  for (const std::int32_t id : ids) {
    if (id < begin || id >= vocabulary) continue;
    add(id);
    begin = id + 1;
  }
  add(static_cast<std::int32_t>(vocabulary));
}

Candidate best_of(const float* logits, const AllowedIds& allowed) {
  Candidate best{-std::numeric_limits<float>::infinity(), -1};
  float poison = 0;
  std::int64_t best_begin = 0, best_end = 0;
  for (const auto& [range_begin, range_end] : allowed.ranges()) {
    for (std::int64_t begin = range_begin; begin < range_end; begin += block) {
      const std::int64_t end = std::min<std::int64_t>(begin + block, range_end);
      const float largest = largest_of(logits + begin, end - begin, poison);
      if (largest > best.logit) {
        best.logit = largest;
        best_begin = begin;
        best_end = end;
      }
    }
  }
  if (!(poison == 0)) return {best.logit, -1};
  const float* const found = std::find(logits + best_begin, logits + best_end, best.logit);
  best.id = static_cast<std::int32_t>(found - logits);
  return best;
}

bool best_few_of(const float* logits, const AllowedIds& allowed, std::int64_t count, std::vector<Candidate>& best) {
  best.clear();
  float poison = 0;
  const auto wanted = static_cast<std::size_t>(count);
  float threshold = -std::numeric_limits<float>::infinity();
  for (const auto& [range_begin, range_end] : allowed.ranges()) {
    for (std::int64_t begin = range_begin; begin < range_end; begin += block) {
      const std::int64_t end = std::min<std::int64_t>(begin + block, range_end);
      // Ids only grow, so one that equals the worst of the best comes too late.
      if (!(largest_of(logits + begin, end - begin, poison) > threshold) && best.size() == wanted) continue;
      for (std::int64_t id = begin; id < end; ++id) {
        if (best.size() == wanted) {
          if (!(logits[id] > threshold)) continue;
          best.pop_back();
        }
        const Candidate candidate{logits[id], static_cast<std::int32_t>(id)};
        best.insert(std::upper_bound(best.begin(), best.end(), candidate, before), candidate);
        if (best.size() == wanted) threshold = best.back().logit;
      }
    }
  }
  return poison == 0;
}

std::int32_t sample_of(const float* logits, const AllowedIds& allowed, const DecodeOptions& options, Random& random,
                       SampleScratch& scratch) {
  const double draw = random.uniform();
  const Candidate best = best_of(logits, allowed);
  if (best.id < 0) return -1;
  auto& candidates = scratch.candidates;
  candidates.clear();
  for (const auto& [begin, end] : allowed.ranges()) {
    for (std::int32_t id = begin; id < end; ++id) candidates.push_back({logits[id], id});
  }
  bool sorts = options.top_p < 1;
  const auto top = static_cast<std::size_t>(options.top_k);
  if (top > 0 && top < candidates.size()) {
    std::nth_element(candidates.begin(), candidates.begin() + options.top_k - 1, candidates.end(), before);
    candidates.resize(top);
    sorts = true;  // nth_element leaves an order of its own, which differs from one standard library to the next
  }
  if (sorts) std::sort(candidates.begin(), candidates.end(), before);

  auto& weights = scratch.weights;
  weights.resize(candidates.size());
  double total = 0;
  for (std::size_t i = 0; i < candidates.size(); ++i) {
    weights[i] = std::exp((static_cast<double>(candidates[i].logit) - best.logit) / options.temperature);
    total += weights[i];
  }
  std::size_t kept = candidates.size();
  if (options.top_p < 1) {
    const double enough = options.top_p * total;
    double sum = 0;
    for (std::size_t i = 0; i < kept; ++i) {
      sum += weights[i];
      if (sum >= enough) {
        kept = i + 1;
        total = sum;
      }
    }
  }
  const double target = draw * total;
  double sum = 0;
  for (std::size_t i = 0; i < kept; ++i) {
    sum += weights[i];
    if (target < sum) return candidates[i].id;
  }
  // Rounding can leave the target at the very end; the last token with any weight is meant.
  for (std::size_t i = kept; i-- > 0;) {
    if (weights[i] > 0) return candidates[i].id;
  }
  return best.id;
}

Random random_of(std::uint64_t seed, std::int64_t input, std::int64_t sample) {
  const auto number = static_cast<std::uint64_t>(input);
  const auto words =
      philox({static_cast<std::uint32_t>(seed), static_cast<std::uint32_t>(seed >> 32)},
             {static_cast<std::uint32_t>(number), static_cast<std::uint32_t>(number >> 32),
              static_cast<std::uint32_t>(sample), 0x53414D50u});  // "SAMP": apart from other uses of the seed
  return Random((static_cast<std::uint64_t>(words[0]) << 32) | words[1]);
}

}  // namespace attend
