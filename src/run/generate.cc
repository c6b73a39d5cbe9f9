#include "attend/generate.h"

#include <algorithm>
#include <iterator>
#include <utility>

#include "attend/error.h"
#include "attend/tape.h"
#include "core/threads.h"
#include "run/choose.h"
#include "run/options.h"
#include "run/steps.h"

namespace attend {
namespace {

// One sequence being written.
struct Row {
  std::int64_t input = 0, item = 0, sample = 0, limit = 0;
  KvCache cache;
  std::vector<std::int32_t> reading;  // what the next step reads
  Random random;
  Hypothesis result;
  std::int64_t judged = 1;      // rows of logits it gets, the forced prefix's before its own
  std::int64_t logits_row = 0;  // the last of them
  std::int32_t chosen = -1;
  bool done = false;
};

// Greedy choice and sampling.
class RowGenerator {
 public:
  RowGenerator(const Model& model, std::span<const DecodeInput> inputs, const DecodeOptions& options)
      : inputs_(inputs),
        options_(options),
        admission_(model, inputs, options),
        batch_(model, options.probe),
        allowed_(model.config().output_vocabulary(), {options.forbidden}),
        allowed_before_end_(model.config().output_vocabulary(), {options.forbidden, options.end}),
        scratch_(static_cast<std::size_t>(threads())),
        results_(inputs.size()) {
    for (auto& list : results_) list.resize(static_cast<std::size_t>(options.n_best));
  }

  std::vector<std::vector<Hypothesis>> run() {
    for (;;) {
      check_cancelled(options_);
      const std::size_t first_new = rows_.size();
      admit();
      if (rows_.empty()) return std::move(results_);
      step(first_new);
    }
  }

 private:
  // New sequences join once half of the places are free: often enough to keep the products large, seldom enough to
  // encode many sources at once.
  void admit() {
    const auto active = static_cast<std::int64_t>(rows_.size()), places = options_.batch_size * options_.n_best;
    if (admission_.empty() || active > places / 2) return;
    for (Start& start : admission_.admit(std::max<std::int64_t>(1, (places - active) / options_.n_best))) {
      const auto& prefix = inputs_[static_cast<std::size_t>(start.input)].prefix;
      Row row{start.input, start.item, 0, start.limit, std::move(start.cache), std::move(start.reading), Random(0), {}};
      row.result.ids = prefix;
      if (options_.scores) row.judged += static_cast<std::int64_t>(prefix.size());
      rows_.push_back(std::move(row));
    }
  }

  // Rows from first_new on are at their first step.
  void step(std::size_t first_new) {
    batch_.clear();
    std::int64_t logits_rows = 0;
    for (Row& row : rows_) {
      batch_.add(row.cache, row.reading, row.judged, row.item);
      logits_rows += row.judged;
      row.logits_row = logits_rows - 1;
    }
    Tensor logits = batch_.run();
    split_samples(first_new);
    choose(logits);
    if (options_.scores) judge(logits);
    advance();
  }

  // The samples of an input are one row until here, where they begin to differ.
  void split_samples(std::size_t first_new) {
    if (options_.strategy != Strategy::sample) return;
    std::vector<Row> split;
    for (std::size_t i = first_new; i < rows_.size(); ++i) {
      for (std::int64_t sample = 0; sample < options_.n_best; ++sample) {
        split.push_back(sample + 1 < options_.n_best ? rows_[i] : std::move(rows_[i]));
        const std::int64_t index = split.back().input, number = inputs_[static_cast<std::size_t>(index)].number;
        split.back().sample = sample;
        split.back().random = random_of(options_.seed, number < 0 ? index : number, sample);
      }
    }
    rows_.erase(rows_.begin() + static_cast<std::ptrdiff_t>(first_new), rows_.end());
    std::move(split.begin(), split.end(), std::back_inserter(rows_));
  }

  void choose(const Tensor& logits) {
    parallel_ranges(static_cast<std::int64_t>(rows_.size()), 4, [&](std::int64_t begin, std::int64_t end, int worker) {
      for (std::int64_t i = begin; i < end; ++i) {
        Row& row = rows_[static_cast<std::size_t>(i)];
        // A sequence that only awaits the scores of its prefix chooses like the others, but advance() takes no notice.
        const bool early = static_cast<std::int64_t>(row.result.ids.size()) + 1 < options_.min_length;
        const AllowedIds& allowed = early ? allowed_before_end_ : allowed_;
        const float* const values = logits.row(row.logits_row);
        row.chosen = options_.strategy == Strategy::greedy
                         ? best_of(values, allowed).id
                         : sample_of(values, allowed, options_, row.random, scratch_[static_cast<std::size_t>(worker)]);
      }
    });
    for (const Row& row : rows_) {
      if (row.chosen < 0) refuse_logits(row.input, row.result.ids.size());
    }
  }

  void judge(Tensor& logits) {
    labels_.assign(static_cast<std::size_t>(logits.rows()), 0);
    for (const Row& row : rows_) {
      const auto last = static_cast<std::size_t>(row.logits_row);
      const auto forced = static_cast<std::size_t>(row.judged - 1);
      std::copy_n(row.result.ids.begin(), forced, labels_.begin() + static_cast<std::ptrdiff_t>(last - forced));
      labels_[last] = row.chosen;
    }
    label_losses(logits, labels_, losses_);
    for (Row& row : rows_) {
      const auto last = static_cast<std::size_t>(row.logits_row);
      for (auto i = last + 1 - static_cast<std::size_t>(row.judged); i < last; ++i) record(row.result, -losses_[i]);
      // Samples that share a row of logits have one label there, and differ from it by their logits.
      const float* const values = logits.row(row.logits_row);
      row.judged = 1;
      if (static_cast<std::int64_t>(row.result.ids.size()) < row.limit) {
        record(row.result, -losses_[last] + (values[row.chosen] - values[labels_[last]]));
      }
    }
  }

  static void record(Hypothesis& result, float log_probability) {
    result.log_probabilities.push_back(log_probability);
    result.total += log_probability;
  }

  void advance() {
    for (Row& row : rows_) {
      Hypothesis& result = row.result;
      row.judged = 1;
      if (static_cast<std::int64_t>(result.ids.size()) == row.limit) {  // the forced prefix was all
        row.done = true;
        continue;
      }
      result.ids.push_back(row.chosen);
      result.finished = std::find(options_.end.begin(), options_.end.end(), row.chosen) != options_.end.end();
      row.done = result.finished || static_cast<std::int64_t>(result.ids.size()) == row.limit;
      if (options_.on_token) {
        const float log_probability = options_.scores ? result.log_probabilities.back() : 0;
        if (!options_.on_token({row.input, row.sample, row.chosen, log_probability, row.done})) row.done = true;
      }
      row.reading.assign(1, row.chosen);
    }
    std::size_t kept = 0;
    for (std::size_t i = 0; i < rows_.size(); ++i) {
      Row& row = rows_[i];
      if (row.done) {
        Hypothesis& result = row.result;
        result.score = length_score(options_.length_penalty, options_.length_alpha, result.total,
                                    static_cast<std::int64_t>(result.ids.size()));
        results_[static_cast<std::size_t>(row.input)][static_cast<std::size_t>(row.sample)] = std::move(result);
      } else {
        if (kept != i) rows_[kept] = std::move(row);
        ++kept;
      }
    }
    rows_.erase(rows_.begin() + static_cast<std::ptrdiff_t>(kept), rows_.end());
  }

  std::span<const DecodeInput> inputs_;
  const DecodeOptions& options_;
  Admission admission_;
  StepBatch batch_;
  AllowedIds allowed_, allowed_before_end_;
  std::vector<SampleScratch> scratch_;  // one a worker
  std::vector<Row> rows_;
  std::vector<std::int32_t> labels_;
  std::vector<float> losses_;
  std::vector<std::vector<Hypothesis>> results_;
};

}  // namespace

std::vector<std::vector<Hypothesis>> generate(const Model& model, std::span<const DecodeInput> inputs,
                                              const DecodeOptions& options) {
  if (!model.config().decoder || model.config().decoder->vocabulary == 0) {
    throw Error(ErrorKind::argument, "generate", "the model has no decoder of tokens", "use a model that generates");
  }
  check_options(options, model.config().output_vocabulary());
  const NoGradientScope no_gradients;
  if (options.strategy == Strategy::beam) return generate_beam(model, inputs, options);
  return RowGenerator(model, inputs, options).run();
}

std::vector<std::vector<std::int64_t>> batches_by_length(std::span<const std::int64_t> lengths,
                                                         std::int64_t batch_size) {
  if (batch_size < 1) {
    throw Error(ErrorKind::argument, "batches_by_length", join("batch_size is ", batch_size, " and must be 1 or more"),
                "use 48");
  }
  std::vector<std::int64_t> order(lengths.size());
  for (std::size_t i = 0; i < order.size(); ++i) order[i] = static_cast<std::int64_t>(i);
  std::stable_sort(order.begin(), order.end(), [&](std::int64_t a, std::int64_t b) {
    return lengths[static_cast<std::size_t>(a)] > lengths[static_cast<std::size_t>(b)];
  });
  std::vector<std::vector<std::int64_t>> batches;
  for (std::size_t begin = 0; begin < order.size(); begin += static_cast<std::size_t>(batch_size)) {
    const std::size_t end = std::min(order.size(), begin + static_cast<std::size_t>(batch_size));
    batches.emplace_back(order.begin() + static_cast<std::ptrdiff_t>(begin),
                         order.begin() + static_cast<std::ptrdiff_t>(end));
  }
  return batches;
}

}  // namespace attend
