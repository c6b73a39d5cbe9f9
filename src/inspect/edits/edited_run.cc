#include <algorithm>
#include <cmath>

#include "attend/edits.h"
#include "attend/error.h"
#include "attend/tape.h"
#include "inspect/edits/places.h"
#include "inspect/edits/run_input.h"

namespace attend {
namespace {

// The decoder token by token, all items side by side as far as each goes.
Tensor run_cached(const Model& model, const EditInput& input, const RunOptions& given, RunRows& record) {
  const NoGradientScope no_gradients;
  RunOptions options = given;
  std::shared_ptr<const CrossMemory> memory;
  if (model.config().encoder) {
    const States states = input.features.defined()
                              ? model.encode_features(input.features, input.feature_offsets, options)
                              : model.encode(input.source, options);
    record.source_offsets = states.offsets;
    memory = model.share_memory(states, options);
  }
  record.target_offsets = input.target.offsets;
  const auto items = static_cast<std::size_t>(input.target.items());
  std::vector<KvCache> caches;
  for (std::size_t item = 0; item < items; ++item)
    caches.push_back(memory ? KvCache(model, memory, static_cast<std::int64_t>(item)) : KvCache(model));
  Tensor all;
  for (std::int64_t position = 0;; ++position) {
    TokenBatch step;
    std::vector<KvCache*> active;
    std::vector<std::int64_t> numbers, first;
    for (std::size_t item = 0; item < items; ++item) {
      if (position >= input.target.length(static_cast<std::int64_t>(item))) continue;
      step.append(
          std::span(input.target.ids).subspan(static_cast<std::size_t>(input.target.offsets[item] + position), 1));
      active.push_back(&caches[item]);
      numbers.push_back(static_cast<std::int64_t>(item));
      first.push_back(position);
    }
    if (active.empty()) return all;
    options.item_numbers = numbers;
    const Tensor logits = model.logits(model.decode_cached(step, active, options), options, first);
    if (!all.defined()) all = Tensor::empty({input.target.rows(), logits.width()});
    for (std::size_t i = 0; i < numbers.size(); ++i)
      std::copy_n(logits.row(static_cast<std::int64_t>(i)), logits.width(),
                  all.row(input.target.offsets[static_cast<std::size_t>(numbers[i])] + position));
  }
}

Tensor run_once(const Model& model, const EditInput& input, bool cached, Probe* probe, RunRows& record) {
  RunOptions options;
  options.probe = probe;
  return cached && model.config().decoder ? run_cached(model, input, options, record)
                                          : run_input(model, input, options, record);
}

bool all_finite(const Tensor& logits) {
  for (std::int64_t row = 0; row < logits.rows(); ++row)
    for (std::int64_t i = 0; i < logits.width(); ++i)
      if (!std::isfinite(logits.row(row)[i])) return false;
  return true;
}

std::vector<std::int64_t> lengths_of(const TokenBatch& tokens) {
  std::vector<std::int64_t> lengths;
  for (std::int64_t item = 0; item < tokens.items(); ++item) lengths.push_back(tokens.length(item));
  return lengths;
}

// The edits that lock weights at a place, for an error that names the place alone.
std::string locks_at(const Model& model, const Edits& edits, const std::string& where) {
  std::string names;
  for (const PlacedEdit& placed : place_edits(model, edits)) {
    if (placed.action != Action::lock || name_of(placed.site) != where + ".scores") continue;
    names += join(names.empty() ? "" : ", ", "'", edits.list()[placed.edit].name, "'");
  }
  return names;
}

}  // namespace

EditedRun run_edited(const Model& model, const Edits& edits, const EditInput& input, const EditRunOptions& options,
                     const ModelOpener& open) {
  check_input(model, input);
  std::vector<std::int64_t> sources = lengths_of(input.source);
  const bool class_token = model.config().encoder && model.config().encoder->class_token;
  for (std::size_t item = 0; item + 1 < input.feature_offsets.size(); ++item)
    sources.push_back(input.feature_offsets[item + 1] - input.feature_offsets[item] + class_token);
  edits.check_positions(model, sources, lengths_of(input.target));
  edits.check(model);

  EditProbe probe(model, edits, edit_sources(model, edits, input, open));
  RunRows record{Recorder({}), {}, {}, {}, {}};
  EditedRun run;
  run.base = run_once(model, input, options.cached, options.beside_base, record);
  ProbeList both({&probe});
  if (options.beside_edited != nullptr) both = ProbeList({&probe, options.beside_edited});
  try {
    run.edited = run_once(model, input, options.cached, &both, record);
  } catch (const Error& error) {
    const std::string names = locks_at(model, edits, error.where());
    if (names.empty() || error.what_happened().find("locked weights") == std::string::npos) throw;
    throw Error(error.kind(), error.where(), join(error.what_happened(), " (locked by ", names, ")"), error.advice());
  }
  run.offsets = !record.class_offsets.empty() ? record.class_offsets : record.target_offsets;
  run.report = probe.report();
  if (!all_finite(run.edited) && all_finite(run.base))
    throw Error(ErrorKind::numeric, "edits", "make logits that are NaN or infinite",
                "give smaller values, or leave out one edit after the other");
  if (!options.allow_untouched) run.report.require_touched();
  return run;
}

}  // namespace attend
