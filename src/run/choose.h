// Choosing tokens from one row of logits.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <span>
#include <utility>
#include <vector>

#include "attend/generate.h"
#include "core/random.h"

namespace attend {

// The ids that may be chosen, as the ranges between the forbidden ones: a row is searched without being written to.
class AllowedIds {
 public:
  // Ids outside the vocabulary do not count.
  AllowedIds(std::int64_t vocabulary, std::initializer_list<std::span<const std::int32_t>> forbidden);

  std::int64_t count() const { return count_; }
  std::span<const std::pair<std::int32_t, std::int32_t>> ranges() const { return ranges_; }  // [begin, end)

 private:
  std::vector<std::pair<std::int32_t, std::int32_t>> ranges_;
  std::int64_t count_ = 0;
};

struct Candidate {
  float logit = 0;
  std::int32_t id = -1;
};

// The largest allowed logit, the lower id among equals. id is -1 if one of the row's allowed logits is NaN or infinite.
Candidate best_of(const float* logits, const AllowedIds& allowed);

// The `count` largest (fewer if fewer are allowed), largest first, lower ids first among equals. False if one of the
// row's allowed logits is NaN or infinite.
bool best_few_of(const float* logits, const AllowedIds& allowed, std::int64_t count, std::vector<Candidate>& best);

// Working memory of sample_of, kept between calls.
struct SampleScratch {
  std::vector<Candidate> candidates;
  std::vector<double> weights;
};

// A token drawn as options.temperature, top_k and top_p say; one uniform number is drawn. -1 as best_of.
std::int32_t sample_of(const float* logits, const AllowedIds& allowed, const DecodeOptions& options, Random& random,
                       SampleScratch& scratch);

// The random stream of one sample of one input: different seeds, inputs and samples have nothing in common.
Random random_of(std::uint64_t seed, std::int64_t input, std::int64_t sample);

}  // namespace attend
