#include "explorer/run_edits.h"

#include <algorithm>
#include <map>
#include <set>
#include <utility>

#include "attend/edits.h"
#include "attend/ops.h"
#include "attend/translate.h"
#include "explorer/api_error.h"
#include "explorer/runs.h"

namespace attend::explorer {
namespace {

// A factor on what one part of a block writes.
struct Scaling {
  std::size_t index = 0;  // in the request
  StackKind stack = StackKind::decoder;
  int layer = 0;
  Part part = Part::self;
  std::int64_t head = -1;  // of a head: before W_O; -1 with `whole` false: all heads
  bool whole = false;      // of the whole output, after W_O
  float value = 0;
};

class Making : public EditingProbe {
 public:
  Making(const Model& model, const Edits& edits, const EditSources& sources, const std::vector<Scaling>& scalings,
         std::size_t count, const std::vector<std::size_t>& indices)
      : editing_(model, edits, sources),
        edits_(edits),
        scalings_(scalings),
        indices_(indices),
        scaled_(scalings.size(), 0),
        heads_(model.config().heads),
        count_(count) {}

  bool wants(const Site& site) const override { return editing_.wants(site) || is_scaled(site); }
  std::uint64_t heads(const Site& site) const override { return editing_.heads(site); }
  void visit(const Visit& visit, Tensor& value) override {
    if (editing_.wants(visit.site)) editing_.visit(visit, value);
    for (std::size_t i = 0; i < scalings_.size(); ++i) {
      const Scaling& one = scalings_[i];
      if (visit.site.stack != one.stack || visit.site.layer != one.layer || visit.site.part != one.part) continue;
      if (one.whole && visit.site.point == Point::projected) {
        value = scale(value, one.value);
        scaled_[i] += value.rows();
      }
      if (!one.whole && visit.site.point == Point::head_output) scaled_[i] += value.rows();
    }
  }
  std::vector<ScoreEdit> score_edits(StackKind stack, int layer, Part part) const override {
    return editing_.score_edits(stack, layer, part);
  }
  void scores_edited(StackKind stack, int layer, Part part, std::span<const std::int64_t> counts) override {
    editing_.scores_edited(stack, layer, part, counts);
  }
  std::vector<float> head_factors(StackKind stack, int layer, Part part) const override {
    std::vector<float> factors;
    for (const Scaling& one : scalings_) {
      if (one.whole || one.stack != stack || one.layer != layer || one.part != part) continue;
      if (factors.empty()) factors.assign(static_cast<std::size_t>(heads_), 1);
      for (std::int64_t head = 0; head < heads_; ++head)
        if (one.head < 0 || one.head == head) factors[static_cast<std::size_t>(head)] *= one.value;
    }
    return factors;
  }

  std::vector<std::int64_t> touched() const override {
    std::vector<std::int64_t> counts(count_, 0);
    const EditReport report = editing_.report();
    for (std::size_t i = 0; i < report.edits.size(); ++i) counts[indices_[i]] = report.edits[i].count;
    for (std::size_t i = 0; i < scalings_.size(); ++i) counts[scalings_[i].index] = scaled_[i];
    return counts;
  }
  bool changes_output(StackKind stack, int layer, Part part) const override {
    for (const Scaling& one : scalings_)
      if (one.whole && one.stack == stack && one.layer == layer && one.part == part) return true;
    const std::string site = attend::name_of(Site{stack, layer, part, Point::projected});
    return std::any_of(edits_.list().begin(), edits_.list().end(), [&](const Edit& edit) { return edit.at == site; });
  }

 private:
  // Rows of heads are counted where their factor is made.
  bool is_scaled(const Site& site) const {
    return std::any_of(scalings_.begin(), scalings_.end(), [&](const Scaling& one) {
      return site.stack == one.stack && site.layer == one.layer && site.part == one.part &&
             site.point == (one.whole ? Point::projected : Point::head_output);
    });
  }

  EditProbe editing_;
  const Edits& edits_;
  const std::vector<Scaling>& scalings_;
  const std::vector<std::size_t>& indices_;  // in the request, of each edit
  std::vector<std::int64_t> scaled_;
  std::int64_t heads_;
  std::size_t count_;
};

class SomeEdits : public RunEdits {
 public:
  const std::string& key() const override { return key_; }
  std::unique_ptr<EditingProbe> probe(const LoadedModel& model) const override {
    if (edits.empty() && scalings.empty()) return nullptr;
    return std::make_unique<Making>(model.folder.model, edits, sources, scalings, count, indices);
  }

  Edits edits;
  EditSources sources;
  std::vector<Scaling> scalings;
  std::vector<std::size_t> indices;
  std::size_t count = 0;
  std::string key_;
};

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

}  // namespace

std::shared_ptr<const RunEdits> no_edits() {
  static const auto none = std::make_shared<const SomeEdits>();
  return none;
}

std::shared_ptr<const RunEdits> read_edits(Fields& request, const LoadedModel& model, const PreparedInput& input,
                                           const Limits& limits, const StopSignal& stop) {
  const Json* list = request.find("edits");
  if (!list) return no_edits();
  if (!list->is_array()) throw Error(ErrorKind::argument, "edits", "is no array of edits", "give [] for none");
  if (list->empty()) return no_edits();
  if (static_cast<std::int64_t>(list->size()) > limits.edits)
    throw over_limit("edits", "edits", list->size(), limits.edits);
  const TransformerConfig& config = model.config();
  const auto rows_of = [&](StackKind stack) {
    return static_cast<std::int64_t>(stack == StackKind::encoder ? input.encoder.size() : input.decoder.size());
  };
  auto result = std::make_shared<SomeEdits>();
  result->count = list->size();
  std::string key;
  for (std::size_t i = 0; i < list->size(); ++i) {
    Fields fields((*list)[i], join("edits[", i, ']'));
    fields.text("name", "");
    const bool off = fields.flag("off", false);
    const std::string kind = fields.choice("kind", {"set", "add", "scale", "forbid", "lock", "head", "attention",
                                                    "evict", "patch", "mean", "feed_forward"});
    Edit edit;
    // Messages of the engine name edits by their name.
    edit.name = join("edits[", i, ']');
    Scaling scaling{i};
    bool is_scaling = false;
    if (kind == "feed_forward") {
      is_scaling = true;
      const std::string stack = fields.choice("stack", {"encoder", "decoder"}, config.decoder ? "decoder" : "encoder");
      scaling.stack = stack == "encoder" ? StackKind::encoder : StackKind::decoder;
      const auto& has = scaling.stack == StackKind::encoder ? config.encoder : config.decoder;
      if (!has)
        throw Error(ErrorKind::argument, fields.path("stack"),
                    join("is ", stack, ", which ", model.name, " does not have"));
      scaling.layer = static_cast<int>(fields.integer("layer", 0, has->layers - 1));
      scaling.part = Part::feed_forward;
      scaling.whole = true;
      scaling.value = fields.number("value");
    } else if (kind == "patch" || kind == "mean") {
      edit.kind = edit_kind_named(kind);
      edit.at = fields.text("site");
      const Site site = parse_site(edit.at);
      const std::int64_t head = index_or_all(fields, "head");
      if (head >= 0) edit.heads = {head};
      const std::int64_t rows = site.part == Part::cross && (site.point == Point::key || site.point == Point::value)
                                    ? rows_of(StackKind::encoder)
                                    : rows_of(site.stack);
      if (fields.find("row")) {
        const std::int64_t row = fields.integer("row", 0, rows - 1);
        edit.positions = {{row}};
      } else if (fields.find("rows")) {
        const auto [begin, end] = fields.range("rows", rows);
        edit.positions = {{begin, end}};
      }
      // An edit that is off is judged like the others, and its other text is not run.
      const Json& from = fields.need("from");
      std::vector<InputRequest> others;
      if (kind == "mean" && from.is_array()) {
        if (from.empty() || from.size() > most_mean_texts)
          throw Error(ErrorKind::argument, fields.path("from"), join("holds ", from.size(), " inputs"),
                      join("give 1 to ", most_mean_texts));
        for (std::size_t n = 0; n < from.size(); ++n)
          others.push_back(input_request(from[n], join(fields.path("from"), '[', n, ']'), limits));
      } else {
        others.push_back(input_request(from, fields.path("from"), limits));
      }
      fields.finish();
      if (off) continue;
      for (InputRequest& request_of : others) {
        const PreparedInput other =
            read_input(model, std::move(request_of), limits, true, [&] { return stop.stopped(); });
        EditText text;
        text.source = other.encoder;
        text.target = other.decoder;
        edit.texts.push_back(std::move(text));
      }
    } else {
      const AttentionPlace place = attention_named(fields.text("attention"), model);
      const std::int64_t queries = rows_of(place.stack),
                         keys = place.part == Part::cross ? rows_of(StackKind::encoder) : queries;
      edit.at = name_of(place);
      scaling.stack = place.stack;
      scaling.layer = place.layer;
      scaling.part = place.part;
      if (kind == "head" || kind == "attention") {
        is_scaling = true;
        scaling.whole = kind == "attention";
        if (!scaling.whole) {
          scaling.head = index_or_all(fields, "head", false);
          check_below(fields, "head", scaling.head, config.heads);
        }
        scaling.value = fields.number("value");
      } else if (kind == "evict") {
        edit.kind = EditKind::evict;
        const std::int64_t evicted = fields.integer("key", 0, keys - 1),
                           from = fields.integer("query", 0, queries - 1, 0);
        edit.keys = {{evicted}};
        if (from > 0) edit.positions = {{from, PositionRange::open_end}};
      } else {
        edit.kind = edit_kind_named(kind);
        const std::int64_t head = index_or_all(fields, "head"), query = index_or_all(fields, "query"),
                           at = index_or_all(fields, "key");
        check_below(fields, "head", head, config.heads);
        check_below(fields, "query", query, queries);
        check_below(fields, "key", at, keys);
        if (head >= 0) edit.heads = {head};
        edit.positions = one_or_all(query);
        edit.keys = one_or_all(at);
        if (edit.kind != EditKind::forbid) edit.value = fields.number("value");
      }
    }
    if (kind != "patch" && kind != "mean") fields.finish();
    if (off) {
      key += "-\n";
      continue;
    }
    // What an edit is called makes no other run of it.
    Json plain = (*list)[i];
    plain.erase("name");
    plain.erase("off");
    key += plain.dump(-1, ' ', false, Json::error_handler_t::replace) + "\n";
    if (is_scaling) {
      result->scalings.push_back(scaling);
    } else {
      result->edits.add(std::move(edit));
      result->indices.push_back(i);
    }
  }
  result->edits.check(model.folder.model);
  // "-" alone: the run without edits.
  if (key.find_first_not_of("-\n") != std::string::npos) result->key_ = key;
  if (!result->edits.empty()) {
    EditInput own;
    if (!input.encoder.empty()) own.source.append(input.encoder);
    if (!input.decoder.empty()) own.target.append(input.decoder);
    stop.check();
    result->sources = edit_sources(model.folder.model, result->edits, own);
  }
  return result;
}

}  // namespace attend::explorer
