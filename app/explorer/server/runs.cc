#include "explorer/runs.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>
#include <numeric>
#include <set>
#include <utility>

#include "attend/memory.h"
#include "attend/tape.h"
#include "explorer/api_error.h"
#include "explorer/generation.h"

namespace attend::explorer {
namespace {

constexpr int index_of(StackKind stack) { return stack == StackKind::encoder ? 0 : 1; }

// Bytes that tensors keep alive: a view holds the whole of its storage, and storages are larger than their numbers. One that
// several share counts once.
class HeldBytes {
 public:
  void add(const Tensor& tensor) {
    if (tensor.defined() && seen_.insert(tensor.storage_number()).second) total_ += buffer_bytes(tensor.storage_size());
  }
  std::int64_t total() const { return total_; }

 private:
  std::set<std::uint64_t> seen_;
  std::int64_t total_ = 0;
};

template <typename Element>
std::int64_t capacity_bytes(const std::vector<Element>& list) {
  return static_cast<std::int64_t>(list.capacity() * sizeof(Element));
}

std::int64_t bytes_of(const Subject& subject) {
  std::int64_t total = capacity_bytes(subject.input.source) + capacity_bytes(subject.input.ids) +
                       capacity_bytes(subject.next) + capacity_bytes(subject.source) + capacity_bytes(subject.target) +
                       buffer_bytes(subject.input.features.storage_size());
  const SubjectTexts& texts = subject.texts;
  for (const auto* text : {&texts.source, &texts.target, &texts.text})
    if (*text) total += static_cast<std::int64_t>((*text)->capacity());
  for (const auto* ids : {&texts.source_ids, &texts.target_ids, &texts.text_ids})
    if (*ids) total += capacity_bytes(**ids);
  return total;
}

double norm_of(const float* row, std::int64_t width) {
  double sum = 0;
  for (std::int64_t x = 0; x < width; ++x) sum += static_cast<double>(row[x]) * row[x];
  return std::sqrt(sum);
}

}  // namespace

AttentionPlace attention_named(const std::string& name, const LoadedModel& model) {
  std::vector<std::string> known;
  for (const AttentionPlace& place : attentions_of(model.config())) {
    known.push_back(name_of(place));
    if (known.back() == name) return place;
  }
  throw unknown_name("attention", join(model.name, " has no attention \"", name.substr(0, 100), '"'), name, known);
}

// ---- Records --------------------------------------------------------------------------------------------------------

std::int64_t RowStatistics::bytes() const {
  std::size_t numbers = top_keys.capacity() + top_weights.capacity();
  for (const std::vector<float>* list : {&entropy, &first, &self, &previous, &distance}) numbers += list->capacity();
  return static_cast<std::int64_t>(numbers * sizeof(float));
}

std::int64_t AttentionRecord::bytes() const {
  HeldBytes held;
  for (const Tensor* tensor :
       {&normed, &query, &key, &value, &rotated_query, &rotated_key, &head_output, &projected, &log_sum_exp})
    held.add(*tensor);
  return held.total() + static_cast<std::int64_t>(sizeof(*this)) + capacity_bytes(rules.items) +
         capacity_bytes(rules.edits) + capacity_bytes(rules.mask);
}

void AttentionRecord::fill(Rules with, std::span<const WeightsTile> tiles) const {
  if (with == Rules::all) return attention_weights(asking(), answering(), rules, log_sum_exp, tiles);
  AttentionInput input = rules;
  if (with == Rules::plain) {
    input = {};
    input.query_heads = rules.query_heads;
    input.key_heads = rules.key_heads;
    input.items = rules.items;
    input.scale = 1;
  }
  input.mask = {};
  input.edits.clear();
  attention_weights(asking(), answering(), input, {}, tiles);
}

namespace {

// Fills the softmax denominators, which rebuild any weight later, in the pass that takes the statistics.
RowStatistics statistics_of(const Model& model, AttentionRecord& record) {
  RowStatistics result;
  result.queries = record.queries();
  result.keys = record.keys();
  result.heads = record.rules.query_heads;
  result.kept = std::min(RowStatistics::top, result.keys);
  const auto rows = static_cast<std::size_t>(result.queries * result.heads),
             kept = static_cast<std::size_t>(result.kept);
  for (std::vector<float>* list : {&result.entropy, &result.first, &result.self, &result.previous, &result.distance})
    list->assign(rows, 0);
  result.top_keys.assign(rows * kept, -1);
  result.top_weights.assign(rows * kept, 0);
  // The weight on all keys: what a row sums to.
  std::vector<float> all(rows, 0);
  const KeySpan everything{0, -1, 0, result.keys};
  AttentionStatistics ask;
  ask.lists = 1;
  ask.spans = {&everything, 1};
  ask.top = result.kept;
  ask.entropy = result.entropy.data();
  ask.distance = result.distance.data();
  ask.first = result.first.data();
  ask.self = result.self.data();
  ask.previous = result.previous.data();
  ask.list_mass = all.data();
  ask.top_keys = result.top_keys.data();
  ask.top_weights = result.top_weights.data();
  std::vector<float> sinks(rows, 0);
  ask.sink = sinks.data();
  AttentionInput input = record.rules;
  input.statistics = &ask;
  attention(record.asking(), record.answering(), record.value, input, &record.log_sum_exp);
  for (std::size_t row = 0; row < rows; ++row) {
    // A row that sees nothing sums to 0 and is right so.
    const double sum = static_cast<double>(all[row]) + sinks[row];
    if (sum != 0) result.row_sum = std::max(result.row_sum, std::abs(sum - 1));
  }
  const AttentionPlace& place = record.place;
  if (!record.output_changed)
    result.head_sum =
        head_parts_difference(model, place.stack, place.layer, place.part, record.head_output, record.projected)
            .difference;
  return result;
}

// Asked before every block: ends a run nobody waits for.
class StoppingProbe : public Probe {
 public:
  explicit StoppingProbe(const StopSignal& stop) : stop_(stop) {}
  bool wants(const Site& site) const override { return site.part == Part::block && site.point == Point::input; }
  void visit(const Visit&, Tensor&) override { stop_.check(); }

 private:
  const StopSignal& stop_;
};

// Keeps what blocks read, before edits of these values: a block can be run again from there with its edits.
class InputProbe : public Probe {
 public:
  explicit InputProbe(std::vector<Tensor> (&inputs)[2]) : inputs_(inputs) {}
  bool wants(const Site& site) const override { return site.part == Part::block && site.point == Point::input; }
  void visit(const Visit& visit, Tensor& value) override {
    auto& list = inputs_[index_of(visit.site.stack)];
    list.resize(static_cast<std::size_t>(visit.site.layer) + 1);
    list.back() = value.clone();
  }

 private:
  std::vector<Tensor> (&inputs_)[2];
};

}  // namespace

// Collects the values around each attention and hands over a whole record. Stands after the edits.
class RecordingProbe : public Probe {
 public:
  using Take = std::function<void(std::shared_ptr<AttentionRecord>)>;
  RecordingProbe(const Model& model, const EditingProbe* edits, Take take)
      : model_(model), edits_(edits), take_(std::move(take)) {}

  bool wants(const Site& site) const override {
    if (site.part != Part::self && site.part != Part::cross) return false;
    switch (site.point) {
      case Point::normed:
      case Point::query:
      case Point::key:
      case Point::value:
      case Point::rotated_query:
      case Point::rotated_key:
      case Point::head_output:
      case Point::projected:
        return true;
      default:
        return false;
    }
  }
  void visit(const Visit& visit, Tensor& value) override {
    if (!record_) record_ = std::make_shared<AttentionRecord>();
    AttentionRecord& record = *record_;
    const auto keep = [&](Tensor& place) { place = value.clone(); };
    switch (visit.site.point) {
      case Point::normed:
        return keep(record.normed);
      case Point::query:
        return keep(record.query);
      case Point::key:
        return keep(record.key);
      case Point::value:
        return keep(record.value);
      case Point::rotated_query:
        return keep(record.rotated_query);
      case Point::rotated_key:
        return keep(record.rotated_key);
      case Point::head_output:
        return keep(record.head_output);
      default:
        keep(record.projected);
    }
    record.place = {visit.site.stack, visit.site.layer, visit.site.part};
    record.rules = model_.attention_rules(visit.site.stack, visit.site.part);
    AttentionItem item;
    item.queries = record.queries();
    item.keys = record.keys();
    record.rules.items = {item};
    if (edits_) {
      record.rules.edits = edits_->score_edits(visit.site.stack, visit.site.layer, visit.site.part);
      record.output_changed = edits_->changes_output(record.place);
    }
    take_(std::exchange(record_, nullptr));
  }

 private:
  const Model& model_;
  const EditingProbe* edits_;
  Take take_;
  std::shared_ptr<AttentionRecord> record_;
};

namespace {

// The softmax denominators alone.
void add_log_sum_exp(AttentionRecord& record) {
  attention(record.asking(), record.answering(), record.value, record.rules, &record.log_sum_exp);
}

constexpr std::int64_t most_kept_logits = std::int64_t{4} << 20;

// What the records of all attentions of a run take.
std::int64_t record_bytes(const TransformerConfig& config, const ModelInput& input) {
  const StackRows rows = rows_of(input);
  const std::int64_t query = config.heads * config.head_width(), key = config.key_head_count() * config.head_width();
  const bool rotary = config.positions == PositionKind::rotary;
  std::int64_t bytes = 0;
  for (const AttentionPlace& place : attentions_of(config)) {
    const std::int64_t queries = rows.of(place.stack), keys = place.part == Part::cross ? rows.encoder : queries;
    bytes += 2 * buffer_bytes(queries * config.width) + (rotary ? 3 : 2) * buffer_bytes(queries * query) +
             buffer_bytes(queries * config.heads) + (rotary ? 3 : 2) * buffer_bytes(keys * key) +
             static_cast<std::int64_t>(sizeof(AttentionRecord) + sizeof(AttentionItem));
  }
  return bytes;
}

TokenBatch batch_of(const std::vector<std::int32_t>& ids) {
  TokenBatch batch;
  batch.append(ids);
  return batch;
}

}  // namespace

// ---- A run ----------------------------------------------------------------------------------------------------------

Run::Run(std::shared_ptr<const LoadedModel> model, Subject subject, std::shared_ptr<const RunEdits> edits,
         bool statistics, std::int64_t most_bytes, const StopSignal& stop)
    : model_(std::move(model)), subject_(std::move(subject)), edits_(std::move(edits)), most_bytes_(most_bytes) {
  const NoGradientScope no_gradients;
  const Model& engine = model_->folder.model;
  const TransformerConfig& config = engine.config();
  StoppingProbe stopping(stop);
  InputProbe inputs(block_inputs_);
  const std::unique_ptr<EditingProbe> editing = edits_->probe(*model_);
  const bool all_fit = record_bytes(config, subject_.input) <= most_bytes_;
  RecordingProbe recording(engine, editing.get(), [&](std::shared_ptr<AttentionRecord> record) {
    if (statistics) statistics_[record->place] = statistics_of(engine, *record);
    else add_log_sum_exp(*record);
    if (all_fit) keep(std::move(record));
  });
  std::vector<Probe*> probes{&stopping, &inputs};
  if (editing) probes.push_back(editing.get());
  if (statistics || all_fit) probes.push_back(&recording);
  ProbeList list(std::move(probes));
  RunOptions options;
  options.probe = &list;
  States states;
  const ModelInput& read = subject_.input;
  if (!read.source.empty()) states = memory_ = engine.encode(batch_of(read.source), options);
  if (!read.ids.empty()) states = engine.decode(batch_of(read.ids), read.source.empty() ? nullptr : &memory_, options);
  if (config.decoder || (config.classes == 0 && config.encoder->vocabulary > 0)) {
    // A class token in front predicts nothing.
    first_position_ = !config.decoder && config.encoder->class_token ? 1 : 0;
    states_ = states.rows.row_range(first_position_, states.rows.rows() - first_position_);
    if (states_.rows() * config.output_vocabulary() <= most_kept_logits) {
      const std::int64_t positions[] = {first_position_};
      logits_ = engine.logits(States{states_, {0, states_.rows()}}, options, positions);
    }
  }
  if (editing) touched_ = editing->touched();
}

Tensor Run::logits(std::int64_t begin, std::int64_t end) const {
  if (logits_.defined()) return logits_.row_range(begin, end - begin);
  const NoGradientScope no_gradients;
  const std::unique_ptr<EditingProbe> editing = edits_->probe(*model_);
  RunOptions options;
  options.probe = editing.get();
  const std::int64_t positions[] = {first_position_ + begin};
  return model_->folder.model.logits(States{states_.row_range(begin, end - begin), {0, end - begin}}, options,
                                     positions);
}

std::int64_t Run::bytes() const {
  const std::unique_lock lock(mutex_, std::try_to_lock);
  if (!lock) return counted_;
  HeldBytes held;
  for (const Tensor* tensor : {&memory_.rows, &states_, &logits_}) held.add(*tensor);
  for (const auto& stack : block_inputs_)
    for (const Tensor& input : stack) held.add(input);
  std::int64_t total = held.total() + static_cast<std::int64_t>(sizeof(*this)) + bytes_of(subject_) +
                       capacity_bytes(touched_) + edits_->bytes();
  for (const auto& [place, kept] : records_) total += kept.record->bytes();
  for (const auto& [place, statistics] : statistics_) total += statistics.bytes();
  counted_ = total;
  return total;
}

// Called with the lock held, or before anybody else knows the run.
void Run::keep(std::shared_ptr<const AttentionRecord> record) const {
  const std::int64_t size = record->bytes();
  std::int64_t total = size;
  for (const auto& [place, kept] : records_) total += kept.record->bytes();
  while (total > most_bytes_ && !records_.empty()) {
    const auto oldest = std::min_element(records_.begin(), records_.end(),
                                         [](const auto& a, const auto& b) { return a.second.used < b.second.used; });
    total -= oldest->second.record->bytes();
    records_.erase(oldest);
  }
  const AttentionPlace place = record->place;
  if (total <= most_bytes_) records_[place] = {std::move(record), ++uses_};
}

std::shared_ptr<const AttentionRecord> Run::record(const AttentionPlace& place, const StopSignal& stop) const {
  std::lock_guard lock(mutex_);
  if (const auto found = records_.find(place); found != records_.end()) {
    found->second.used = ++uses_;
    return found->second.record;
  }
  const NoGradientScope no_gradients;
  const Model& engine = model_->folder.model;
  stop.check();
  std::shared_ptr<const AttentionRecord> result;
  const std::unique_ptr<EditingProbe> editing = edits_->probe(*model_);
  RecordingProbe recording(engine, editing.get(), [&](std::shared_ptr<AttentionRecord> record) {
    add_log_sum_exp(*record);
    const bool asked = record->place == place;
    keep(record);
    if (asked) result = std::move(record);
  });
  std::vector<Probe*> probes;
  if (editing) probes.push_back(editing.get());
  probes.push_back(&recording);
  ProbeList list(std::move(probes));
  RunOptions options;
  options.probe = &list;
  const Tensor& rows = block_inputs_[index_of(place.stack)].at(static_cast<std::size_t>(place.layer));
  const States from{rows, {0, rows.rows()}};
  StackRange range;
  range.first_layer = place.layer;
  range.end_layer = place.layer + 1;
  if (place.stack == StackKind::encoder) engine.encode_from(from, range, options);
  else engine.decode_from(from, memory_.rows.defined() ? &memory_ : nullptr, range, options);
  return result;
}

const RowStatistics& Run::statistics(const AttentionPlace& place, const StopSignal& stop) const {
  {
    std::lock_guard lock(mutex_);
    if (const auto found = statistics_.find(place); found != statistics_.end()) return found->second;
  }
  AttentionRecord from = *record(place, stop);
  RowStatistics made = statistics_of(model_->folder.model, from);
  std::lock_guard lock(mutex_);
  return statistics_.emplace(place, std::move(made)).first->second;
}

// ---- The cache ------------------------------------------------------------------------------------------------------

std::string run_fingerprint(const LoadedModel& model, const Subject& subject, const RunEdits& edits) {
  std::uint64_t hash = 14695981039346656037u;
  const auto add = [&](const void* data, std::size_t size) {
    for (std::size_t i = 0; i < size; ++i) hash = (hash ^ static_cast<const unsigned char*>(data)[i]) * 1099511628211u;
    // Between parts, so that what ends one does not begin the next.
    hash = (hash ^ 0xFF ^ size) * 1099511628211u;
  };
  add(model.fingerprint.data(), model.fingerprint.size());
  for (const auto* ids : {&subject.input.source, &subject.input.ids})
    add(ids->data(), ids->size() * sizeof(std::int32_t));
  add(edits.key().data(), edits.key().size());
  std::string text;
  for (int shift = 60; shift >= 0; shift -= 4) text += "0123456789abcdef"[hash >> shift & 15];
  return text;
}

std::shared_ptr<const Run> RunCache::get(const std::shared_ptr<const LoadedModel>& model, const Subject& subject,
                                         const std::shared_ptr<const RunEdits>& edits, bool statistics,
                                         const StopSignal& stop) {
  // The whole of what the run depends on, not its hash: two requests must never be taken for one.
  std::string key = model->fingerprint + '\n' + edits->key() + '\n';
  for (const auto* ids : {&subject.input.source, &subject.input.ids}) {
    for (const std::int32_t id : *ids) key += std::to_string(id) + ' ';
    key += '\n';
  }
  {
    std::lock_guard lock(mutex_);
    const auto found =
        std::find_if(entries_.begin(), entries_.end(), [&](const Entry& entry) { return entry.key == key; });
    if (found != entries_.end()) {
      entries_.splice(entries_.begin(), entries_, found);
      auto run = found->run;
      forget_oldest();
      return run;
    }
  }
  auto run = std::make_shared<const Run>(model, subject, edits, statistics, most_bytes_ / 8, stop);
  std::lock_guard lock(mutex_);
  entries_.push_front({std::move(key), run});
  forget_oldest();
  return run;
}

std::int64_t RunCache::bytes() const {
  std::lock_guard lock(mutex_);
  std::int64_t total = 0;
  for (const Entry& entry : entries_) total += bytes_of(entry);
  return total;
}

std::int64_t RunCache::bytes_of(const Entry& entry) {
  return entry.run->bytes() + static_cast<std::int64_t>(sizeof(Entry) + entry.key.capacity());
}

// Runs grow after they are made, by records that somebody asks for: what they hold now counts.
void RunCache::forget_oldest() {
  std::int64_t total = 0;
  for (auto entry = entries_.begin(); entry != entries_.end();) {
    total += bytes_of(*entry);
    // The newest stays, however large.
    entry = total > most_bytes_ && entry != entries_.begin() ? entries_.erase(entry) : std::next(entry);
  }
}

// ---- Answers --------------------------------------------------------------------------------------------------------

void write_prediction(JsonWriter& out, const Tokenizer& tokenizer, std::span<const float> logits, std::int32_t next,
                      std::int64_t top) {
  out.begin_object();
  if (next < 0) {
    for (const char* name : {"target_id", "log_probability", "rank"}) out.key(name).null();
  } else {
    const auto size = static_cast<std::int64_t>(logits.size());
    const float own = logits[static_cast<std::size_t>(next)];
    std::int64_t rank = 0;
    for (std::int64_t id = 0; id < size; ++id) {
      const float other = logits[static_cast<std::size_t>(id)];
      rank += other > own || (other == own && id < next);
    }
    out.field("target_id", next);
    out.field("log_probability", log_softmax(Tensor::from({1, size}, logits)).data()[next]);
    out.field("rank", rank);
  }
  out.key("top");
  write_likely(out, tokenizer, likely_tokens(logits, top));
  out.end_object();
}

namespace {

// values [queries, heads] as [heads][queries].
template <typename Number>
void write_by_head(JsonWriter& out, const char* name, const std::vector<Number>& values, std::int64_t queries,
                   std::int64_t heads) {
  out.key(name).begin_array();
  for (std::int64_t head = 0; head < heads; ++head) {
    out.begin_array();
    for (std::int64_t query = 0; query < queries; ++query)
      out.value(values[static_cast<std::size_t>(query * heads + head)]);
    out.end_array();
  }
  out.end_array();
}

// values [queries, heads, kept] as [heads][queries][k], without the places where there is no key.
template <typename Number>
void write_top(JsonWriter& out, const char* name, const std::vector<Number>& values, const RowStatistics& statistics) {
  out.key(name).begin_array();
  for (std::int64_t head = 0; head < statistics.heads; ++head) {
    out.begin_array();
    for (std::int64_t query = 0; query < statistics.queries; ++query) {
      out.begin_array();
      for (std::int64_t k = 0; k < statistics.kept; ++k) {
        const auto place = static_cast<std::size_t>((query * statistics.heads + head) * statistics.kept + k);
        if (statistics.top_keys[place] >= 0) out.value(values[place]);
      }
      out.end_array();
    }
    out.end_array();
  }
  out.end_array();
}

}  // namespace

void write_run(JsonWriter& out, const Run& run, const SubjectTexts& input, const RunWants& wants, std::size_t edits,
               const StopSignal& stop) {
  const LoadedModel& model = run.model();
  out.field("run", run_fingerprint(model, run.subject(), run.edits()));
  out.key("input");
  write_input(out, input);
  if (wants.tokens) {
    out.key("tokens").begin_object();
    write_tokens(out, model, run.subject());
    out.end_object();
  }
  const std::vector<AttentionPlace> places = attentions_of(model.config());
  if (wants.statistics) {
    out.key("statistics").begin_array();
    for (const AttentionPlace& place : places) {
      const RowStatistics& one = run.statistics(place, stop);
      out.begin_object();
      out.field("attention", name_of(place));
      out.field("queries", one.queries);
      out.field("keys", one.keys);
      write_by_head(out, "entropy", one.entropy, one.queries, one.heads);
      write_by_head(out, "first", one.first, one.queries, one.heads);
      write_by_head(out, "self", one.self, one.queries, one.heads);
      write_by_head(out, "previous", one.previous, one.queries, one.heads);
      write_by_head(out, "distance", one.distance, one.queries, one.heads);
      write_top(out, "top_keys", one.top_keys, one);
      write_top(out, "top_weights", one.top_weights, one);
      out.end_object();
    }
    out.end_array();
  }
  if (wants.predictions && run.predicts()) {
    const Tokenizer& tokenizer = model.config().decoder ? *model.folder.target : *model.folder.source;
    out.key("predictions").begin_object().key("rows").begin_array();
    constexpr std::int64_t at_once = 256;
    for (std::int64_t begin = 0; begin < run.predictions(); begin += at_once) {
      stop.check();
      const std::int64_t end = std::min(begin + at_once, run.predictions());
      const Tensor logits = run.logits(begin, end);
      for (std::int64_t row = begin; row < end; ++row)
        write_prediction(out, tokenizer, {logits.row(row - begin), static_cast<std::size_t>(logits.width())},
                         run.subject().next[static_cast<std::size_t>(row)], wants.top);
    }
    out.end_array().end_object();
  }
  if (wants.checks) {
    double head_sum = 0, row_sum = 0;
    for (const AttentionPlace& place : places) {
      const RowStatistics& one = run.statistics(place, stop);
      head_sum = std::max(head_sum, one.head_sum);
      row_sum = std::max(row_sum, one.row_sum);
    }
    out.key("checks")
        .begin_object()
        .field("head_sum", static_cast<float>(head_sum))
        .field("row_sum", static_cast<float>(row_sum))
        .end_object();
  }
  out.key("edits").begin_array();
  for (std::size_t i = 0; i < edits; ++i)
    out.begin_object().field("touched", i < run.touched().size() ? run.touched()[i] : 0).end_object();
  out.end_array();
}

namespace {

void check_index(const char* name, std::int64_t index, std::int64_t size) {
  if (index < 0 || index >= size)
    throw RequestError(ErrorKind::argument, name, join("is ", index), join("there are 0 to ", size - 1),
                       detail("range", index, std::vector<std::int64_t>{0, size - 1}));
}

// What one head makes of one query, for every key.
struct KeyNumbers {
  std::vector<float> products, scaled, scores, weights;
};

KeyNumbers numbers_of(const AttentionRecord& record, std::int64_t head, std::int64_t query) {
  const auto keys = static_cast<std::size_t>(record.keys());
  KeyNumbers row{std::vector<float>(keys), std::vector<float>(keys), std::vector<float>(keys),
                 std::vector<float>(keys)};
  const auto fill = [&](AttentionRecord::Rules with, float* scores, float* weights) {
    WeightsTile tile;
    tile.head = head;
    tile.query_begin = query;
    tile.query_end = query + 1;
    tile.key_end = record.keys();
    tile.scores = scores;
    tile.weights = weights;
    record.fill(with, {&tile, 1});
  };
  fill(AttentionRecord::Rules::plain, row.products.data(), nullptr);
  fill(AttentionRecord::Rules::ruled, row.scaled.data(), nullptr);
  fill(AttentionRecord::Rules::all, row.scores.data(), row.weights.data());
  return row;
}

// The keys with the largest weights, by rising index.
std::vector<std::int64_t> heaviest_keys(const std::vector<float>& weights, std::int64_t most) {
  std::vector<std::int64_t> keys(weights.size());
  std::iota(keys.begin(), keys.end(), 0);
  std::stable_sort(keys.begin(), keys.end(), [&](std::int64_t a, std::int64_t b) {
    return weights[static_cast<std::size_t>(a)] > weights[static_cast<std::size_t>(b)];
  });
  keys.resize(std::min(static_cast<std::size_t>(most), keys.size()));
  std::sort(keys.begin(), keys.end());
  return keys;
}

double entropy_of(const std::vector<float>& weights) {
  double entropy = 0;
  for (const float weight : weights)
    if (weight > 0) entropy -= static_cast<double>(weight) * std::log(static_cast<double>(weight));
  return entropy;
}

// What each key has a share in: weight x |value W_O of this head|.
std::vector<float> write_norms_of(const AttentionRecord& record, const Tensor& output_weight, std::int64_t head,
                                  const std::vector<float>& weights) {
  const std::int64_t key_head = head / (record.rules.query_heads / record.rules.key_heads),
                     size = record.value.width() / record.rules.key_heads;
  const Tensor written = matrix_product(record.value.columns(key_head * size, size).clone(),
                                        output_weight.columns(head * size, size).clone(), true);
  std::vector<float> norms;
  for (std::int64_t key = 0; key < record.keys(); ++key)
    norms.push_back(weights[static_cast<std::size_t>(key)] *
                    static_cast<float>(norm_of(written.row(key), written.width())));
  return norms;
}

const Tensor* parameter_of(const Model& model, const std::string& name) {
  for (const Parameter& parameter : model.parameters())
    if (parameter.name == name) return &parameter.value;
  return nullptr;
}

// Columns of one head in a row of heads.
std::span<const float> head_of(const Tensor& rows, std::int64_t row, std::int64_t head, std::int64_t size) {
  return {rows.row(row) + head * size, static_cast<std::size_t>(size)};
}
std::span<const float> whole_row(const Tensor& rows, std::int64_t row) { return head_of(rows, row, 0, rows.width()); }

}  // namespace

void write_row(JsonWriter& out, const Run& run, const RowRequest& request, const Limits& limits,
               const StopSignal& stop) {
  const std::shared_ptr<const AttentionRecord> record = run.record(request.place, stop);
  const std::int64_t heads = record->rules.query_heads, key_heads = record->rules.key_heads;
  check_index("head", request.head, heads);
  check_index("query", request.query, record->queries());
  for (const std::int64_t key : request.keys) check_index("keys", key, record->keys());
  const std::int64_t key_head = request.head / (heads / key_heads), size = record->query.width() / heads,
                     value_size = record->value.width() / key_heads;
  const KeyNumbers numbers = numbers_of(*record, request.head, request.query);
  const std::vector<std::int64_t> shown =
      request.keys.empty() ? heaviest_keys(numbers.weights, limits.row_keys) : request.keys;
  const auto vectors = [&](const char* name, const Tensor& rows, std::int64_t length) {
    out.key(name);
    if (!rows.defined()) {
      out.null();
      return;
    }
    out.begin_array();
    for (const std::int64_t key : shown) out.value(head_of(rows, key, key_head, length));
    out.end_array();
  };

  const Model& engine = run.model().folder.model;
  const auto& [stack, layer, part] = request.place;
  const Tensor head_row = record->head_output.row_range(request.query, 1).clone(),
               projected = record->projected.row_range(request.query, 1).clone();
  const Tensor parts = head_parts(engine, stack, layer, part, head_row);  // [1, heads, width]
  std::vector<float> head_norms;
  for (std::int64_t head = 0; head < heads; ++head)
    head_norms.push_back(static_cast<float>(norm_of(parts.row(head), parts.width())));
  const Tensor* const weight = parameter_of(engine, name_of(request.place) + ".output.weight");
  const Tensor* const bias = parameter_of(engine, name_of(request.place) + ".output.bias");

  out.field("attention", name_of(request.place));
  out.field("head", request.head);
  out.field("query", request.query);
  const float scale = record->rules.scale != 0 ? record->rules.scale : 1 / std::sqrt(static_cast<float>(size));
  out.field("scale", scale);
  out.field("input", whole_row(record->normed, request.query));
  out.field("query_vector", head_of(record->query, request.query, request.head, size));
  out.key("rotated_query");
  if (record->rotated_query.defined()) out.value(head_of(record->rotated_query, request.query, request.head, size));
  else out.null();
  out.field("products", numbers.products);
  out.field("scaled", numbers.scaled);
  out.field("scores", numbers.scores);
  out.field("weights", numbers.weights);
  out.field("entropy", static_cast<float>(entropy_of(numbers.weights)));
  out.field("log_sum_exp", record->log_sum_exp.at(request.query, request.head));
  out.field("keys", shown);
  vectors("key_vectors", record->key, size);
  vectors("rotated_keys", record->rotated_key, size);
  vectors("value_vectors", record->value, value_size);
  out.field("output", head_of(record->head_output, request.query, request.head, value_size));
  out.field("written", whole_row(parts, request.head));
  out.field("write_norms", write_norms_of(*record, *weight, request.head, numbers.weights));
  out.field("projected", whole_row(projected, 0));
  out.field("projection_bias",
            bias ? bias->to_vector() : std::vector<float>(static_cast<std::size_t>(projected.width()), 0));
  out.field("head_norms", head_norms);
  out.key("head_sum");
  if (record->output_changed) out.null();
  else out.value(static_cast<float>(head_parts_difference(engine, stack, layer, part, head_row, projected).difference));
}

namespace {

// Joins blocks of reduce x reduce cells of a strip [rows, keys] to one cell each: their largest, or the mean of those that
// are visible. `scores` of the same cells say which are: hidden ones are -infinity.
void reduce_strip(const TileRequest& request, const std::vector<float>& strip, const std::vector<float>& scores,
                  std::int64_t rows, std::int64_t keys, float* to) {
  for (std::int64_t row = 0; row < rows; row += request.reduce) {
    for (std::int64_t column = 0; column < keys; column += request.reduce) {
      const std::int64_t row_end = std::min(row + request.reduce, rows),
                         column_end = std::min(column + request.reduce, keys);
      float largest = -std::numeric_limits<float>::infinity();
      double sum = 0;
      std::int64_t count = 0;
      for (std::int64_t r = row; r < row_end; ++r) {
        for (std::int64_t c = column; c < column_end; ++c) {
          const auto at = static_cast<std::size_t>(r * keys + c);
          const float cell = strip[at];
          largest = std::max(largest, cell);
          if (std::isinf(scores[at])) continue;
          sum += cell;
          ++count;
        }
      }
      *to++ = request.mean && count > 0 ? static_cast<float>(sum / static_cast<double>(count)) : largest;
    }
  }
}

}  // namespace

std::vector<float> tile_of(const Run& run, const TileRequest& request, const StopSignal& stop) {
  const std::shared_ptr<const AttentionRecord> record = run.record(request.place, stop);
  const auto with =
      request.what == TileRequest::What::products ? AttentionRecord::Rules::plain : AttentionRecord::Rules::all;
  const std::int64_t rows = request.rows(), columns = request.columns(), keys = request.key_end - request.key_begin;
  const std::int64_t heads = static_cast<std::int64_t>(request.heads.size());
  std::vector<float> result(static_cast<std::size_t>(heads * rows * columns));
  const bool weights = request.what == TileRequest::What::weights;
  const auto rebuild = [&](std::int64_t head, std::int64_t begin, std::int64_t end, float* place, float* scores) {
    WeightsTile tile;
    tile.head = head;
    tile.query_begin = begin;
    tile.query_end = end;
    tile.key_begin = request.key_begin;
    tile.key_end = request.key_end;
    tile.scores = scores;
    (weights ? tile.weights : tile.scores) = place;
    record->fill(with, {&tile, 1});
  };
  // Some rows at a time: a picture of a long text is made from cells that never exist together.
  const std::int64_t strip_rows = std::max<std::int64_t>(1, (1 << 20) / (keys * request.reduce)) * request.reduce;
  std::vector<float> strip, hidden;  // hidden: the scores beside weights, for their mean
  for (std::int64_t h = 0; h < heads; ++h) {
    const std::int64_t head = request.heads[static_cast<std::size_t>(h)];
    for (std::int64_t begin = request.query_begin; begin < request.query_end; begin += strip_rows) {
      stop.check();
      const std::int64_t end = std::min(begin + strip_rows, request.query_end);
      float* const to = result.data() + (h * rows + (begin - request.query_begin) / request.reduce) * columns;
      if (request.reduce == 1) {
        rebuild(head, begin, end, to, nullptr);
        continue;
      }
      strip.resize(static_cast<std::size_t>((end - begin) * keys));
      const bool both = weights && request.mean;
      if (both) hidden.resize(strip.size());
      rebuild(head, begin, end, strip.data(), both ? hidden.data() : nullptr);
      reduce_strip(request, strip, both ? hidden : strip, end - begin, keys, to);
    }
  }
  return result;
}

}  // namespace attend::explorer
