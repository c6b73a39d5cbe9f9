// The step that greedy choice, sampling and beam search share: many sequences, each reading its next few tokens.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "attend/generate.h"
#include "attend/model.h"

namespace attend {

// Collects what every sequence reads next and runs the decoder over all of it at once. Used again and again, so that
// its lists keep their memory.
class StepBatch {
 public:
  explicit StepBatch(const Model& model, Probe* probe = nullptr) : model_(model), probe_(probe) {}

  void clear();
  // `cache` reads `ids` (at least one). The last `judged` (1..ids.size()) of them get a row of logits, in order. `item` is
  // what a probe knows the sequence by.
  void add(KvCache& cache, std::span<const std::int32_t> ids, std::int64_t judged, std::int64_t item);
  std::int64_t rows() const { return rows_; }  // of logits
  // Logits [rows, vocabulary].
  Tensor run();

 private:
  const Model& model_;
  Probe* probe_;
  TokenBatch tokens_;
  std::vector<KvCache*> caches_;
  std::vector<std::int64_t> judged_rows_, judged_offsets_, items_;
  std::int64_t rows_ = 0;
};

// One input on its way: what is common to all strategies.
struct Start {
  std::int64_t input = 0;  // index in the call's inputs
  std::int64_t item = 0;   // what a probe knows it by
  std::int64_t limit = 0;  // tokens to generate at most
  KvCache cache;
  std::vector<std::int32_t> reading;  // prompt and forced prefix
};

// Hands out inputs, the longest first, and prepares them: sources are encoded in groups, their keys and values for
// cross-attention computed once and shared by all forks.
class Admission {
 public:
  // Checks every input before anything runs.
  Admission(const Model& model, std::span<const DecodeInput> inputs, const DecodeOptions& options);

  bool empty() const { return next_ == order_.size(); }
  std::vector<Start> admit(std::int64_t most);

 private:
  const Model& model_;
  std::span<const DecodeInput> inputs_;
  Probe* probe_;
  std::vector<std::int64_t> limits_;
  std::vector<std::int64_t> order_;
  std::size_t next_ = 0;
};

// -log p(label) of each row of logits, in natural logarithms.
void label_losses(Tensor& logits, std::span<const std::int32_t> labels, std::vector<float>& losses);

// Throws Error(cancelled) if the caller says so.
void check_cancelled(const DecodeOptions& options);
[[noreturn]] void refuse_logits(std::int64_t input, std::size_t token);

// Beam search; the other strategies are in generate.cc.
std::vector<std::vector<Hypothesis>> generate_beam(const Model& model, std::span<const DecodeInput> inputs,
                                                   const DecodeOptions& options);

}  // namespace attend
