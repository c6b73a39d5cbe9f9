// The edits of a request, as the probe that makes them.
#pragma once

#include <cstdint>
#include <memory>
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
  std::size_t index = 0;   // of the edit in the request
  AttentionPlace place;    // part: self, cross or feed_forward
  bool whole = true;       // the output of the part; else heads of it
  std::int64_t head = -1;  // -1: all
  float value = 0;
};

// Makes scalings and counts the rows they touch.
class ScalingProbe : public Probe {
 public:
  ScalingProbe(std::vector<Scaling> scalings, std::int64_t heads)
      : scalings_(std::move(scalings)), counts_(scalings_.size(), 0), heads_(heads) {}
  bool wants(const Site& site) const override;
  void visit(const Visit& visit, Tensor& value) override;
  std::vector<float> head_factors(StackKind stack, int layer, Part part) const override;

  const std::vector<Scaling>& scalings() const { return scalings_; }
  const std::vector<std::int64_t>& counts() const { return counts_; }

 private:
  std::vector<Scaling> scalings_;
  std::vector<std::int64_t> counts_;
  std::int64_t heads_;
};

// Makes the edits of a request in the passes of one run.
class EditingProbe : public ProbeList {
 public:
  // indices: in the request, of each edit of `edits`; changed: attentions whose output an edit replaces.
  EditingProbe(std::unique_ptr<EditProbe> edits, std::unique_ptr<ScalingProbe> scalings,
               std::vector<std::size_t> indices, std::vector<AttentionPlace> changed, std::size_t count)
      : ProbeList({edits.get(), scalings.get()}),
        edits_(std::move(edits)),
        scalings_(std::move(scalings)),
        indices_(std::move(indices)),
        changed_(std::move(changed)),
        count_(count) {}

  // Rows or scores that each edit of the request touched, 0 for those that are off.
  std::vector<std::int64_t> touched() const;
  // Is the output of this attention, after W_O, another than what its heads wrote?
  bool changes_output(const AttentionPlace& place) const;

 private:
  std::unique_ptr<EditProbe> edits_;
  std::unique_ptr<ScalingProbe> scalings_;
  std::vector<std::size_t> indices_;
  std::vector<AttentionPlace> changed_;
  std::size_t count_;
};

class RunEdits {
 public:
  // The same text for the same edits; "" for none.
  const std::string& key() const { return key_; }
  // A new probe for one run; null where there is nothing to make.
  std::unique_ptr<EditingProbe> probe(const LoadedModel& model) const;

 private:
  friend class EditReader;
  Edits edits_;
  EditSources sources_;
  std::vector<Scaling> scalings_;
  std::vector<std::size_t> indices_;
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
