#include "explorer/run_edits.h"

#include <algorithm>
#include <utility>

#include "attend/memory.h"
#include "attend/ops.h"
#include "explorer/api_error.h"
#include "explorer/model_input.h"
#include "explorer/runs.h"

namespace attend::explorer {
namespace {

constexpr std::size_t most_mean_texts = 64;

// An index or -1 for all; absent as -1 where `optional`.
std::int64_t index_or_all(Fields& fields, const char* name, bool optional = true) {
  return optional ? fields.integer(name, -1, INT32_MAX, -1) : fields.integer(name, -1, INT32_MAX);
}

std::vector<PositionRange> one_or_all(std::int64_t index) {
  return index < 0 ? std::vector<PositionRange>{} : std::vector<PositionRange>{{index}};
}

void check_below(const Fields& fields, const char* name, std::int64_t index, std::int64_t size) {
  if (index >= size)
    throw RequestError(ErrorKind::argument, fields.path(name), join("is ", index),
                       join("there are 0 to ", size - 1, ", and -1 for all"),
                       detail("range", index, std::vector<std::int64_t>{-1, size - 1}));
}

AttentionPlace place_of(const Site& site) { return {site.stack, site.layer, site.part}; }

}  // namespace

// ---- The probe ------------------------------------------------------------------------------------------------------

EditingProbe::EditingProbe(const Model& model, const Edits& scores, const std::vector<std::size_t>& score_indices,
                           const std::vector<RowEdit>& rows, const std::vector<AttentionPlace>& changed,
                           std::size_t count)
    : heads_(model.config().heads),
      scores_(model, scores),
      score_indices_(score_indices),
      changed_(changed),
      count_(count) {
  for (const RowEdit& edit : rows) {
    Step& step = steps_.emplace_back();
    step.edit = &edit;
    if (!edit.scaling) step.probe = std::make_unique<EditProbe>(model, edit.edit, edit.sources);
  }
}

// A probe of one edit is shown the site that it edits and no other: its own check of head parts knows nothing of a
// scaling that stands between. RowStatistics has that check, of the values after all edits.
bool EditingProbe::wants(const Site& site) const {
  return std::any_of(steps_.begin(), steps_.end(), [&](const Step& step) { return step.edit->site == site; });
}

void EditingProbe::visit(const Visit& visit, Tensor& value) {
  for (Step& step : steps_) {
    if (step.edit->site != visit.site) continue;
    if (step.probe) {
      step.probe->visit(visit, value);
      continue;
    }
    const Scaling& scaling = *step.edit->scaling;
    step.scaled += value.rows();
    if (scaling.whole || scaling.head < 0) {
      value = scale(value, scaling.value);
      continue;
    }
    Tensor factors = Tensor::filled({value.width()}, 1);
    const std::int64_t size = value.width() / heads_;
    std::fill_n(factors.data() + scaling.head * size, size, scaling.value);
    value = scale_columns(value, factors);
  }
}

std::vector<ScoreEdit> EditingProbe::score_edits(StackKind stack, int layer, Part part) const {
  return scores_.score_edits(stack, layer, part);
}

void EditingProbe::scores_edited(StackKind stack, int layer, Part part, std::span<const std::int64_t> counts) {
  scores_.scores_edited(stack, layer, part, counts);
}

std::vector<std::int64_t> EditingProbe::touched() const {
  std::vector<std::int64_t> counts(count_, 0);
  const EditReport report = scores_.report();
  for (std::size_t i = 0; i < report.edits.size(); ++i) counts[score_indices_[i]] = report.edits[i].count;
  for (const Step& step : steps_)
    counts[step.edit->index] = step.probe ? step.probe->report().edits.front().count : step.scaled;
  return counts;
}

bool EditingProbe::changes_output(const AttentionPlace& place) const {
  return std::find(changed_.begin(), changed_.end(), place) != changed_.end();
}

std::unique_ptr<EditingProbe> RunEdits::probe(const LoadedModel& model) const {
  if (scores_.empty() && rows_.empty()) return nullptr;
  return std::make_unique<EditingProbe>(model.folder.model, scores_, score_indices_, rows_, changed_, count_);
}

std::vector<std::int64_t> RunEdits::evicted(const AttentionPlace& place, std::int64_t query, std::int64_t keys) const {
  const std::string name = name_of(place);
  const auto holds = [](const std::vector<PositionRange>& ranges, std::int64_t position) {
    return std::any_of(ranges.begin(), ranges.end(), [&](const PositionRange& range) { return range.holds(position); });
  };
  std::vector<std::int64_t> gone;
  for (const Edit& edit : scores_.list()) {
    if (edit.kind != EditKind::evict || edit.at != name) continue;
    if (!edit.positions.empty() && !holds(edit.positions, query)) continue;
    for (std::int64_t key = 0; key < keys; ++key)
      if (holds(edit.keys, key)) gone.push_back(key);
  }
  std::sort(gone.begin(), gone.end());
  gone.erase(std::unique(gone.begin(), gone.end()), gone.end());
  return gone;
}

std::int64_t RunEdits::bytes() const {
  auto total = static_cast<std::int64_t>(sizeof(*this) + key_.capacity() + scores_.list().capacity() * sizeof(Edit) +
                                         rows_.capacity() * sizeof(RowEdit));
  for (const RowEdit& edit : rows_)
    for (const auto& [place, rows] : edit.sources.rows) total += buffer_bytes(rows.storage_size());
  return total;
}

std::shared_ptr<const RunEdits> no_edits() {
  static const auto none = std::make_shared<const RunEdits>();
  return none;
}

StackRows rows_of(const ModelInput& input) {
  return {static_cast<std::int64_t>(input.source.size()), static_cast<std::int64_t>(input.ids.size())};
}

// ---- Reading --------------------------------------------------------------------------------------------------------

// Reads the edits of one request, one after the other.
class EditReader {
 public:
  EditReader(const LoadedModel& model, const StackRows& rows, const Limits& limits, const StopSignal& stop)
      : model_(model), rows_(rows), limits_(limits), stop_(stop) {}

  void read(const Json& value, std::size_t index) {
    Fields fields(value, join("edits[", index, ']'));
    fields.text("name", "");
    const bool off = fields.flag("off", false);
    const std::string kind = fields.choice("kind", {"set", "add", "scale", "forbid", "lock", "head", "attention",
                                                    "evict", "patch", "mean", "feed_forward"});
    Edit edit;
    // Messages of the engine name edits by their name.
    edit.name = fields.where();
    Scaling scaling;
    std::vector<SubjectTexts> others;
    const bool scales = kind == "feed_forward" || kind == "head" || kind == "attention",
               replaces = kind == "patch" || kind == "mean";
    if (kind == "feed_forward") read_feed_forward(fields, scaling);
    else if (scales) read_attention_factor(fields, kind == "head", scaling);
    else if (replaces) read_replacement(fields, kind, edit, others);
    else if (kind == "evict") read_eviction(fields, edit);
    else read_score_edit(fields, kind, edit);
    fields.finish();
    ++result_->count_;
    if (off) {
      key_ += "-\n";
      return;
    }
    // What an edit is called makes no other run of it.
    Json plain = value;
    plain.erase("name");
    plain.erase("off");
    key_ += plain.dump(-1, ' ', false, Json::error_handler_t::replace) + "\n";
    if (scales) {
      if (scaling.whole) result_->changed_.push_back(scaling.place);
      const auto& [stack, layer, part] = scaling.place;
      const Site site{stack, layer, part, scaling.whole ? Point::projected : Point::head_output};
      result_->rows_.push_back({index, site, scaling, {}, {}});
      return;
    }
    // An edit that is off is judged like the others, and its other texts are not run.
    for (SubjectTexts& texts : others) {
      const Subject other = read_input(model_, std::move(texts), limits_, true, [this] { return stop_.stopped(); });
      EditText text;
      text.source = other.input.source;
      text.target = other.input.ids;
      edit.texts.push_back(std::move(text));
    }
    all_.add(edit);
    all_indices_.push_back(index);
    if (!replaces) {
      result_->scores_.add(std::move(edit));
      result_->score_indices_.push_back(index);
      return;
    }
    const Site site = parse_site(edit.at);
    if (site.point == Point::projected) result_->changed_.push_back(place_of(site));
    RowEdit& row = result_->rows_.emplace_back();
    row.index = index;
    row.site = site;
    row.edit.add(std::move(edit));
  }

  std::shared_ptr<const RunEdits> finish() {
    try {
      all_.check(model_.folder.model);
    } catch (const ContradictionError& error) {
      const std::vector<std::size_t> pair = {all_indices_[error.first], all_indices_[error.second]};
      throw RequestError(error.kind(), error.where(), error.what_happened(), error.advice(),
                         detail("contradiction", pair));
    }
    // "-" alone: the run without edits.
    if (key_.find_first_not_of("-\n") != std::string::npos) result_->key_ = key_;
    for (RowEdit& row : result_->rows_) {
      if (row.scaling) continue;
      stop_.check();
      // Every value comes from a text that the edit names, none from the run itself.
      row.sources = edit_sources(model_.folder.model, row.edit, {});
    }
    return result_;
  }

 private:
  void read_feed_forward(Fields& fields, Scaling& scaling) const {
    const TransformerConfig& config = model_.config();
    const std::string stack = fields.choice("stack", {"encoder", "decoder"}, config.decoder ? "decoder" : "encoder");
    scaling.place.stack = stack == "encoder" ? StackKind::encoder : StackKind::decoder;
    scaling.place.part = Part::feed_forward;
    const auto& has = scaling.place.stack == StackKind::encoder ? config.encoder : config.decoder;
    if (!has)
      throw Error(ErrorKind::argument, fields.path("stack"),
                  join("is ", stack, ", which ", model_.name, " does not have"));
    scaling.place.layer = static_cast<int>(fields.integer("layer", 0, has->layers - 1));
    scaling.value = fields.number("value");
  }

  void read_attention_factor(Fields& fields, bool of_head, Scaling& scaling) const {
    scaling.place = attention_named(fields.text("attention"), model_);
    scaling.whole = !of_head;
    if (of_head) {
      scaling.head = index_or_all(fields, "head", false);
      check_below(fields, "head", scaling.head, model_.config().heads);
    }
    scaling.value = fields.number("value");
  }

  void read_replacement(Fields& fields, const std::string& kind, Edit& edit, std::vector<SubjectTexts>& others) const {
    edit.kind = edit_kind_named(kind);
    edit.at = fields.text("site");
    const Site site = parse_site(edit.at);
    const std::int64_t head = index_or_all(fields, "head");
    if (head >= 0) edit.heads = {head};
    const bool of_memory = site.part == Part::cross && (site.point == Point::key || site.point == Point::value);
    const std::int64_t rows = of_memory ? rows_.encoder : rows_.of(site.stack);
    if (fields.find("row")) {
      const std::int64_t row = fields.integer("row", 0, rows - 1);
      edit.positions = {{row}};
    } else if (fields.find("rows")) {
      const auto [begin, end] = fields.range("rows", rows);
      edit.positions = {{begin, end}};
    }
    const Json& from = fields.need("from");
    const std::string where = fields.path("from");
    if (kind == "patch" || !from.is_array()) {
      others.push_back(input_request(from, where, limits_));
      return;
    }
    if (from.empty() || from.size() > most_mean_texts)
      throw Error(ErrorKind::argument, where, join("holds ", from.size(), " inputs"),
                  join("give 1 to ", most_mean_texts));
    for (std::size_t n = 0; n < from.size(); ++n)
      others.push_back(input_request(from[n], join(where, '[', n, ']'), limits_));
  }

  // The attention of an edit of scores, and how many queries and keys it has.
  std::pair<std::int64_t, std::int64_t> read_attention(Fields& fields, Edit& edit) const {
    const AttentionPlace place = attention_named(fields.text("attention"), model_);
    edit.at = name_of(place);
    const std::int64_t queries = rows_.of(place.stack);
    return {queries, place.part == Part::cross ? rows_.encoder : queries};
  }

  void read_eviction(Fields& fields, Edit& edit) const {
    edit.kind = EditKind::evict;
    const auto [queries, keys] = read_attention(fields, edit);
    const std::int64_t evicted = fields.integer("key", 0, keys - 1), from = fields.integer("query", 0, queries - 1, 0);
    edit.keys = {{evicted}};
    if (from > 0) edit.positions = {{from, PositionRange::open_end}};
  }

  void read_score_edit(Fields& fields, const std::string& kind, Edit& edit) const {
    edit.kind = edit_kind_named(kind);
    const auto [queries, keys] = read_attention(fields, edit);
    const std::int64_t head = index_or_all(fields, "head"), query = index_or_all(fields, "query"),
                       key = index_or_all(fields, "key");
    check_below(fields, "head", head, model_.config().heads);
    check_below(fields, "query", query, queries);
    check_below(fields, "key", key, keys);
    if (head >= 0) edit.heads = {head};
    edit.positions = one_or_all(query);
    edit.keys = one_or_all(key);
    if (edit.kind != EditKind::forbid) edit.value = fields.number("value");
  }

  const LoadedModel& model_;
  const StackRows rows_;
  const Limits& limits_;
  const StopSignal& stop_;
  std::shared_ptr<RunEdits> result_ = std::make_shared<RunEdits>();
  Edits all_;                             // of the engine, for what they say of each other
  std::vector<std::size_t> all_indices_;  // of each in the request
  std::string key_;
};

std::shared_ptr<const RunEdits> read_edits(Fields& request, const LoadedModel& model, const StackRows& rows,
                                           const Limits& limits, const StopSignal& stop) {
  const Json* list = request.find("edits");
  if (!list) return no_edits();
  if (!list->is_array()) throw Error(ErrorKind::argument, "edits", "is no array of edits", "give [] for none");
  if (list->empty()) return no_edits();
  if (static_cast<std::int64_t>(list->size()) > limits.edits)
    throw over_limit("edits", "edits", list->size(), limits.edits);
  EditReader reader(model, rows, limits, stop);
  for (std::size_t i = 0; i < list->size(); ++i) reader.read((*list)[i], i);
  return reader.finish();
}

}  // namespace attend::explorer
