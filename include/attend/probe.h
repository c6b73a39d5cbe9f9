// Sites: the named places inside a model where a value can be read or replaced. Probes: the objects that do it.
// A probe belongs to one call, never to a model. Without one, each site costs one untaken branch.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "attend/attention.h"
#include "attend/tensor.h"

namespace attend {

enum class StackKind { encoder, decoder };

// Which part of a block a point belongs to.
enum class Part { block, self, cross, feed_forward };

enum class Point {
  // of a stack (layer -1, part block)
  embedding_deviation,  // [rows, 1]: what the embedding's norm divides each row by; only where there is one
  embedded,             // after token and position embedding (and its norm, where there is one)
  final_deviation,      // of the norm after the last block; only where there is one
  final_norm,
  logits,
  // of a block (part block)
  input,
  output,
  // of self, cross and feed_forward
  deviation,  // [rows, 1]: what the sublayer's norm divides each row by. Where one is replaced, the norm is linear in
              // that row, also to the tape
  // of self and cross
  normed,  // what the projections read
  query,
  key,
  value,  // after projection, before rotation
  rotated_query,
  rotated_key,  // only where positions are rotary
  scores,
  weights,      // [heads, queries, keys] of one item; asking takes these heads off the fused path
  head_output,  // [rows, heads * value_dim], before W_O: the only place where a head exists
  projected,    // after W_O
  added,        // after the residual addition (and its norm, for post-norm)
  // of feed_forward (beside normed, projected and added)
  inner,  // after the activation (and the gate)
};

struct Site {
  StackKind stack = StackKind::decoder;
  int layer = -1;
  Part part = Part::block;
  Point point = Point::embedded;

  auto operator<=>(const Site&) const = default;
};

// "decoder.3.cross.weights", "encoder.embedded", "encoder.0.output"; parse_site is the reverse and throws
// Error(argument) listing the nearest names.
std::string name_of(const Site& site);
Site parse_site(const std::string& name);
// Every site a stack of `layers` blocks has, in the order a run visits them. A stack may lack a norm after its embedding
// and after its last block.
struct StackSites {
  bool cross = false, rotary = false;
  bool post_norm = false;  // norms stand after the additions
  bool embedding_norm = false, final_norm = true;
};
std::vector<Site> sites_of(StackKind stack, int layers, const StackSites& has);
// The words of site names: "decoder", "cross", "weights".
const char* name_of(StackKind stack);
const char* name_of(Part part);
const char* name_of(Point point);

// What a visited value belongs to.
struct Visit {
  Site site;
  std::int64_t item = -1;                 // batch item, for scores and weights
  std::span<const std::int64_t> offsets;  // first row of each item, and the end; for the other sites
  // Position of each item's first row in its sequence, when a run goes on after a cache; empty: 0 for all.
  std::span<const std::int64_t> first_positions = {};
  // What the caller calls each item (RunOptions::item_numbers); empty: 0, 1, ...
  std::span<const std::int64_t> item_numbers = {};

  std::int64_t items() const { return static_cast<std::int64_t>(offsets.size()) - 1; }
  std::int64_t first_position(std::int64_t of_item) const {
    return first_positions.empty() ? 0 : first_positions[static_cast<std::size_t>(of_item)];
  }
  std::int64_t number(std::int64_t of_item) const {
    return item_numbers.empty() ? of_item : item_numbers[static_cast<std::size_t>(of_item)];
  }
};

struct StatisticsRequest;  // attend/statistics.h
struct StatisticsVisit;

class Probe {
 public:
  virtual ~Probe() = default;

  // Asked once a run for every site; `true` makes the run call visit() there.
  virtual bool wants(const Site& site) const = 0;
  // For scores and weights: the heads wanted, by bit; others hold 0. Heads from 64 on have no bit: they are always there.
  virtual std::uint64_t heads(const Site&) const { return ~std::uint64_t{0}; }
  // May keep the value (a copy of the Tensor shares storage: clone() to keep numbers that later steps overwrite) or
  // replace it by another of the same shape. Under a tape the replacement is what later steps differentiate. Scores and
  // weights can be read only; score_edits changes them.
  virtual void visit(const Visit& visit, Tensor& value) = 0;
  // Edits of the scores of this attention (part self or cross). ScoreEdit::item is an item's number (Visit::number); of
  // numbers that are not in the batch nothing is edited.
  virtual std::vector<ScoreEdit> score_edits(StackKind, int /*layer*/, Part) const { return {}; }
  // Told when they were made: how many visible scores each of them named.
  virtual void scores_edited(StackKind, int /*layer*/, Part, std::span<const std::int64_t> /*counts*/) {}
  // Factors for the heads of this attention [heads], multiplied into head_output; empty: none.
  virtual std::vector<float> head_factors(StackKind, int /*layer*/, Part) const { return {}; }
  // Statistics wanted of this attention, if any; they leave its heads on the fused path, and its output as it is.
  virtual std::optional<StatisticsRequest> statistics(StackKind, int /*layer*/, Part) const;
  // Shown them once the attention has been computed.
  virtual void visit_statistics(const StatisticsVisit&) {}
};

// Keeps clones of what it was asked for.
class Recorder : public Probe {
 public:
  explicit Recorder(std::vector<Site> sites) : sites_(std::move(sites)) {}
  bool wants(const Site& site) const override;
  void visit(const Visit& visit, Tensor& value) override;

  // The value of a site; for scores and weights of the given item. Throws Error(argument) naming what was recorded.
  const Tensor& value(const Site& site, std::int64_t item = -1) const;
  bool has(const Site& site, std::int64_t item = -1) const { return values_.contains({site, item}); }

 private:
  std::vector<Site> sites_;
  std::map<std::pair<Site, std::int64_t>, Tensor> values_;
};

// Multiplies heads by factors: 0 cuts a head.
class HeadMask : public Probe {
 public:
  void set(StackKind stack, int layer, Part part, std::vector<float> factors) {
    factors_[{stack, layer, part}] = std::move(factors);
  }
  bool wants(const Site&) const override { return false; }
  void visit(const Visit&, Tensor&) override {}
  std::vector<float> head_factors(StackKind stack, int layer, Part part) const override;

 private:
  std::map<std::tuple<StackKind, int, Part>, std::vector<float>> factors_;
};

// Edits of single scores.
class ScoreEditor : public Probe {
 public:
  void add(StackKind stack, int layer, Part part, ScoreEdit edit) { edits_[{stack, layer, part}].push_back(edit); }
  bool wants(const Site&) const override { return false; }
  void visit(const Visit&, Tensor&) override {}
  std::vector<ScoreEdit> score_edits(StackKind stack, int layer, Part part) const override;

 private:
  std::map<std::tuple<StackKind, int, Part>, std::vector<ScoreEdit>> edits_;
};

// Several probes as one, visited in order; head factors multiply, edits follow each other.
class ProbeList : public Probe {
 public:
  explicit ProbeList(std::vector<Probe*> probes) : probes_(std::move(probes)) {}
  bool wants(const Site& site) const override;
  std::uint64_t heads(const Site& site) const override;
  void visit(const Visit& visit, Tensor& value) override;
  std::vector<ScoreEdit> score_edits(StackKind stack, int layer, Part part) const override;
  void scores_edited(StackKind stack, int layer, Part part, std::span<const std::int64_t> counts) override;
  std::vector<float> head_factors(StackKind stack, int layer, Part part) const override;
  std::optional<StatisticsRequest> statistics(StackKind stack, int layer, Part part) const override;
  void visit_statistics(const StatisticsVisit& visit) override;

 private:
  std::vector<Probe*> probes_;
};

}  // namespace attend
