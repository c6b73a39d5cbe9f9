// The edits of a request, as the probe that makes them.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "attend/edits.h"
#include "attend/importance.h"
#include "attend/probe.h"
#include "explorer/json_request.h"
#include "explorer/model_store.h"
#include "explorer/work_queue.h"

namespace attend::explorer {

// A factor on what a part of a block writes: an attention or a feed-forward layer after its last product, or heads before
// W_O.
struct Scaling {
  AttentionPlace place;    // part: self, cross or feed_forward
  bool whole = true;       // the output of the part; else heads of it
  std::int64_t head = -1;  // -1: all
  float value = 0;
};

// An edit of rows of values: a scaling, or an edit of the engine.
struct RowEdit {
  std::size_t index = 0;  // in the request
  Site site;
  std::optional<Scaling> scaling;
  Edits edit;  // else: this one alone
  EditSources sources;
};

// Makes the edits of a request in the passes of one run. Where several change the values of one site they are made one
// after the other, in the order of the request.
class EditingProbe : public Probe {
 public:
  // `rows` has to outlive it. score_indices: in the request, of each edit of `scores`; changed: attentions whose output
  // an edit replaces; count: of edits in the request.
  EditingProbe(const Model& model, const Edits& scores, const std::vector<std::size_t>& score_indices,
               const std::vector<RowEdit>& rows, const std::vector<AttentionPlace>& changed, std::size_t count);
  bool wants(const Site& site) const override;
  std::uint64_t heads(const Site&) const override { return 0; }
  void visit(const Visit& visit, Tensor& value) override;
  std::vector<ScoreEdit> score_edits(StackKind stack, int layer, Part part) const override;
  void scores_edited(StackKind stack, int layer, Part part, std::span<const std::int64_t> counts) override;

  // Rows or scores that each edit of the request touched, 0 for those that are off.
  std::vector<std::int64_t> touched() const;
  // Is the output of this attention, after W_O, another than what its heads wrote?
  bool changes_output(const AttentionPlace& place) const;

 private:
  struct Step {
    const RowEdit* edit = nullptr;
    std::unique_ptr<EditProbe> probe;  // null for a scaling
    std::int64_t scaled = 0;           // rows
  };

  std::int64_t heads_;
  EditProbe scores_;
  std::vector<Step> steps_;
  std::vector<std::size_t> score_indices_;
  std::vector<AttentionPlace> changed_;
  std::size_t count_;
};

class RunEdits {
 public:
  // The same text for the same edits; "" for none.
  const std::string& key() const { return key_; }
  // A new probe for one run, which these edits have to outlive; null where there is nothing to make.
  std::unique_ptr<EditingProbe> probe(const LoadedModel& model) const;
  // Entries of the cache of this attention, of `keys`, that are gone for this query: keys of "evict", rising.
  std::vector<std::int64_t> evicted(const AttentionPlace& place, std::int64_t query, std::int64_t keys) const;
  std::int64_t bytes() const;  // what a run keeps with them

 private:
  friend class EditReader;
  Edits scores_;
  std::vector<std::size_t> score_indices_;
  std::vector<RowEdit> rows_;
  std::vector<AttentionPlace> changed_;
  std::size_t count_ = 0;
  std::string key_;
};

std::shared_ptr<const RunEdits> no_edits();

// Rows that the stacks of a run read, or will have read at its end.
struct StackRows {
  std::int64_t encoder = 0, decoder = 0;

  std::int64_t of(StackKind stack) const { return stack == StackKind::encoder ? encoder : decoder; }
};
StackRows rows_of(const ModelInput& input);

// The field "edits" of a request, absent or an array, for a run of this model with so many rows. Inputs to patch from are
// read and run here.
std::shared_ptr<const RunEdits> read_edits(Fields& request, const LoadedModel& model, const StackRows& rows,
                                           const Limits& limits, const StopSignal& stop);

}  // namespace attend::explorer
