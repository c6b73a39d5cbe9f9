// The edits of a request, as the probe that makes them.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "attend/probe.h"
#include "explorer/json_request.h"
#include "explorer/model_input.h"
#include "explorer/work_queue.h"

namespace attend::explorer {

// Makes edits in the passes of one run.
class EditingProbe : public Probe {
 public:
  // Rows or scores that each edit of the request touched, 0 for those that are off.
  virtual std::vector<std::int64_t> touched() const = 0;
  // Is the output of this attention, after W_O, another than what its heads wrote?
  virtual bool changes_output(StackKind stack, int layer, Part part) const = 0;
};

class RunEdits {
 public:
  virtual ~RunEdits() = default;
  // The same text for the same edits; "" for none.
  virtual const std::string& key() const = 0;
  // A new probe for one run; null where there is nothing to make.
  virtual std::unique_ptr<EditingProbe> probe(const LoadedModel& model) const = 0;
};

std::shared_ptr<const RunEdits> no_edits();

// The field "edits" of a request, absent or an array, for a run of this model on this input. Inputs to patch from are
// read and run here.
std::shared_ptr<const RunEdits> read_edits(Fields& request, const LoadedModel& model, const PreparedInput& input,
                                           const Limits& limits, const StopSignal& stop);

}  // namespace attend::explorer
