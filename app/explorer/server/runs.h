// Runs of a model on one input, and everything that can be asked of them: statistics, predictions, one row, any tile.
// A run is computed once and kept for a while; what is large (vectors of every row) is recorded when first asked for.
// No matrix of queries x keys is ever kept.
#pragma once

#include <atomic>
#include <cstdint>
#include <list>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "attend/attention.h"
#include "attend/importance.h"
#include "attend/ops.h"
#include "attend/probe.h"
#include "attend/subject.h"
#include "explorer/model_input.h"
#include "explorer/run_edits.h"
#include "explorer/work_queue.h"

namespace attend::explorer {

// ApiError 404 that lists what the model has, with the nearest name.
AttentionPlace attention_named(const std::string& name, const LoadedModel& model);

// What one attention of a run read and wrote, row by row, edits made.
struct AttentionRecord {
  AttentionPlace place;
  Tensor normed;             // what the projections of queries read (and of keys and values, in self-attention)
  Tensor query, key, value;  // [rows, heads * head_dim]
  Tensor rotated_query, rotated_key;  // undefined without rotary positions
  Tensor head_output, projected;
  Tensor log_sum_exp;           // [queries, heads]
  AttentionInput rules;         // with the item and the edits
  bool output_changed = false;  // an edit stands between the heads and `projected`

  std::int64_t queries() const { return query.rows(); }
  std::int64_t keys() const { return key.rows(); }
  std::int64_t bytes() const;
  // Fills tiles of the matrices. Plain: q.k only, without scale, rules, mask and edits; ruled: with scale and rules,
  // without mask and edits.
  enum class Rules { plain, ruled, all };
  void fill(Rules with, std::span<const WeightsTile> tiles) const;

  // What attention reads.
  const Tensor& asking() const { return rotated_query.defined() ? rotated_query : query; }
  const Tensor& answering() const { return rotated_key.defined() ? rotated_key : key; }
};

// Of every head and query.
struct RowStatistics {
  static constexpr std::int64_t top = 8;
  std::int64_t queries = 0, keys = 0, heads = 0, kept = 0;      // kept: keys told of each row, at most `top`
  std::vector<float> entropy, first, self, previous, distance;  // [queries, heads]
  std::vector<std::int32_t> top_keys;                           // [queries, heads, kept]; -1 where fewer are visible
  std::vector<float> top_weights;
  std::int64_t bytes() const;
  double row_sum = 0;   // largest |sum of weights - 1|
  double head_sum = 0;  // largest |sum of head parts + bias - attention output|; 0 where an edit stands between
};

class Run {
 public:
  // Runs at once. With `statistics` those of all attentions are taken on the way.
  Run(std::shared_ptr<const LoadedModel> model, Subject subject, std::shared_ptr<const RunEdits> edits, bool statistics,
      std::int64_t most_bytes, const StopSignal& stop);

  const LoadedModel& model() const { return *model_; }
  const Subject& subject() const { return subject_; }
  bool predicts() const { return states_.defined(); }          // has the model logits?
  std::int64_t predictions() const { return states_.rows(); }  // rows that have some
  // Of rows [begin, end), [rows, vocabulary]. Those of a long text are made when asked for and not kept.
  Tensor logits(std::int64_t begin, std::int64_t end) const;
  const RunEdits& edits() const { return *edits_; }
  const std::vector<std::int64_t>& touched() const { return touched_; }  // values each edit changed

  // From the record of the block, run again where it was not kept.
  std::shared_ptr<const AttentionRecord> record(const AttentionPlace& place, const StopSignal& stop) const;
  const RowStatistics& statistics(const AttentionPlace& place, const StopSignal& stop) const;

  // All it keeps alive but the model, as allocated: tensors with the whole of their storages, statistics, texts, edits.
  // While a block is being run for it: what was counted last, so that nobody waits.
  std::int64_t bytes() const;

 private:
  struct Kept {
    std::shared_ptr<const AttentionRecord> record;
    std::uint64_t used = 0;
  };
  void keep(std::shared_ptr<const AttentionRecord> record) const;

  std::shared_ptr<const LoadedModel> model_;
  Subject subject_;
  std::shared_ptr<const RunEdits> edits_;
  mutable std::atomic<std::int64_t> counted_ = 0;
  std::int64_t most_bytes_;
  std::vector<Tensor> block_inputs_[2];  // by stack: what each block reads, before edits of that site
  States memory_;                        // the encoder's output
  Tensor states_;                        // what logits are made of, without the row of a class token
  std::int64_t first_position_ = 0;      // of the first of them
  Tensor logits_;                        // undefined if they are too many to keep
  std::vector<std::int64_t> touched_;

  mutable std::mutex mutex_;
  mutable std::map<AttentionPlace, Kept> records_;
  mutable std::map<AttentionPlace, RowStatistics> statistics_;
  mutable std::uint64_t uses_ = 0;
};

// Recent runs, the last used first to stay.
class RunCache {
 public:
  explicit RunCache(std::int64_t most_bytes) : most_bytes_(most_bytes) {}
  // The run of this input and these edits, computed if it is not there.
  std::shared_ptr<const Run> get(const std::shared_ptr<const LoadedModel>& model, const Subject& subject,
                                 const std::shared_ptr<const RunEdits>& edits, bool statistics, const StopSignal& stop);
  std::int64_t bytes() const;  // of all runs and their keys

 private:
  struct Entry {
    std::string key;
    std::shared_ptr<const Run> run;
  };
  static std::int64_t bytes_of(const Entry& entry);
  void forget_oldest();

  const std::int64_t most_bytes_;
  mutable std::mutex mutex_;
  std::list<Entry> entries_;
};

// 16 hexadecimal digits of model, ids and edits.
std::string run_fingerprint(const LoadedModel& model, const Subject& subject, const RunEdits& edits);

// ---- Answers --------------------------------------------------------------------------------------------------------

struct RunWants {
  bool tokens = true, statistics = true, predictions = true, checks = true;
  std::int64_t top = 5;
};
// `input`: as this request gave it, completed; other texts may have given the same ids and made the run. `edits` of the
// request, those that are off included: one entry is written for each.
void write_run(JsonWriter& out, const Run& run, const SubjectTexts& input, const RunWants& wants, std::size_t edits,
               const StopSignal& stop);

struct RowRequest {
  AttentionPlace place;
  std::int64_t head = 0, query = 0;
  std::vector<std::int64_t> keys;  // whose vectors are given; empty: those with the largest weights
};
void write_row(JsonWriter& out, const Run& run, const RowRequest& request, const Limits& limits,
               const StopSignal& stop);

struct TileRequest {
  enum class What { weights, scores, products };
  AttentionPlace place;
  std::vector<std::int64_t> heads;
  What what = What::weights;
  std::int64_t query_begin = 0, query_end = 0, key_begin = 0, key_end = 0;
  std::int64_t reduce = 1;
  bool mean = false;  // else the largest

  std::int64_t rows() const { return (query_end - query_begin + reduce - 1) / reduce; }
  std::int64_t columns() const { return (key_end - key_begin + reduce - 1) / reduce; }
};
// [heads, rows, columns]. A reduced cell is the largest of its cells or the mean of those that are visible.
std::vector<float> tile_of(const Run& run, const TileRequest& request, const StopSignal& stop);

// The predictions of one row of logits: the `top` most probable tokens and where `next` stands (-1: nothing comes).
void write_prediction(JsonWriter& out, const Tokenizer& tokenizer, std::span<const float> logits, std::int32_t next,
                      std::int64_t top);

}  // namespace attend::explorer
