// Effects of cuts by cutting: many cuts as items of one batch, each run from where it first changes anything.
#include <algorithm>
#include <map>
#include <numeric>
#include <optional>
#include <set>
#include <utility>

#include "attend/error.h"
#include "inspect/importance/edges.h"
#include "inspect/importance/last_row.h"
#include "inspect/importance/places.h"
#include "inspect/importance/target.h"
#include "model/parts.h"

namespace attend {
namespace {

// Rows computed at once: enough for the products, few enough to stay in the caches.
constexpr std::int64_t batch_rows = 512;
constexpr std::size_t batch_items = 256;
// Items of a long text bring much with them: pages of their caches, what a last row reads. So much at once.
constexpr std::int64_t batch_bytes = std::int64_t{24} << 20;

using LayerPlace = std::pair<StackKind, int>;

// Of chosen blocks what they read, and what their self-attention projects it to.
class StackRecorder : public Probe {
 public:
  StackRecorder(const TransformerConfig& config, std::set<LayerPlace> inputs, std::set<LayerPlace> projections)
      : config_(config), inputs_(std::move(inputs)), projections_(std::move(projections)) {}

  bool wants(const Site& site) const override {
    if (site.part == Part::block) return site.point == Point::input && inputs_.contains({site.stack, site.layer});
    return site.part == Part::self && projections_.contains({site.stack, site.layer}) &&
           (site.point == Point::query || site.point == Point::key || site.point == Point::value);
  }
  void visit(const Visit& visit, Tensor& value) override {
    const LayerPlace place{visit.site.stack, visit.site.layer};
    if (visit.site.part == Part::block) {
      input_values_[place] = value.clone();
      return;
    }
    // Side by side, as StackRange::projected wants them.
    const std::int64_t query = config_.heads * config_.head_width(),
                       key = config_.key_head_count() * config_.head_width();
    Tensor& all = projection_values_[place];
    if (!all.defined()) all = Tensor::empty({value.rows(), query + 2 * key});
    const std::int64_t begin = visit.site.point == Point::query ? 0
                               : visit.site.point == Point::key ? query
                                                                : query + key;
    for (std::int64_t row = 0; row < value.rows(); ++row)
      std::copy_n(value.row(row), value.width(), all.row(row) + begin);
  }

  // Of every block of the stack; undefined where not chosen.
  std::vector<Tensor> inputs(StackKind stack, std::int64_t layers) const { return of(input_values_, stack, layers); }
  std::vector<Tensor> projections(StackKind stack, std::int64_t layers) const {
    return of(projection_values_, stack, layers);
  }

 private:
  static std::vector<Tensor> of(const std::map<LayerPlace, Tensor>& values, StackKind stack, std::int64_t layers) {
    std::vector<Tensor> all(static_cast<std::size_t>(layers));
    for (const auto& [place, value] : values)
      if (place.first == stack) all[static_cast<std::size_t>(place.second)] = value;
    return all;
  }

  const TransformerConfig& config_;
  const std::set<LayerPlace> inputs_, projections_;
  std::map<LayerPlace, Tensor> input_values_, projection_values_;
};

// Sets what heads gather, or inner values of feed-forward layers, to 0: for each item what its place says.
class PlaceCuts : public Probe {
 public:
  PlaceCuts(std::span<const HeadPlace> places, std::int64_t head_width) : places_(places), head_width_(head_width) {}

  bool wants(const Site& site) const override {
    if (site.point != Point::head_output && site.point != Point::inner) return false;
    return std::any_of(places_.begin(), places_.end(), [&](const HeadPlace& place) { return cuts(place, site); });
  }
  void visit(const Visit& visit, Tensor& value) override {
    value = value.clone();
    for (std::size_t item = 0; item < places_.size(); ++item) {
      if (!cuts(places_[item], visit.site)) continue;
      const bool all = places_[item].head < 0;
      const std::int64_t begin = all ? 0 : places_[item].head * head_width_,
                         end = all ? value.width() : begin + head_width_;
      for (std::int64_t row = visit.offsets[item]; row < visit.offsets[item + 1]; ++row)
        std::fill(value.row(row) + begin, value.row(row) + end, 0.0f);
    }
  }

 private:
  static bool cuts(const HeadPlace& place, const Site& site) {
    return place.stack == site.stack && place.layer == site.layer &&
           (place.part == site.part || place.part == Part::block);
  }

  const std::span<const HeadPlace> places_;
  const std::int64_t head_width_;
};

// One run without cuts, with everything that runs with cuts go on from.
class CutRuns {
 public:
  // `cut`: the layers that are cut, of which alone values are kept; `edges`: and of those their edges.
  CutRuns(const Model& model, const ModelInput& input, const Target& target, const char* operation,
          const std::set<LayerPlace>& cut, bool edges)
      : model_(model), operation_(operation), ids_(static_cast<std::int64_t>(input.ids.size())) {
    check_input(model, input, operation);
    const TransformerConfig& config = model.config();
    const std::int64_t encoder_layers = config.encoder ? config.encoder->layers : 0,
                       decoder_layers = config.decoder ? config.decoder->layers : 0;
    std::set<LayerPlace> inputs = cut, projections;
    // A cut edge changes one row of what the next block reads.
    if (edges)
      for (const auto& [stack, layer] : cut) projections.emplace(stack, layer + 1);
    inputs.insert(projections.begin(), projections.end());
    if (decoder_layers > 0 && LastRow::fits(config))
      inputs.emplace(StackKind::decoder, static_cast<int>(decoder_layers) - 1);
    StackRecorder stacks(config, std::move(inputs), std::move(projections));
    Recorder recorder(
        {{StackKind::decoder, 0, Part::self, Point::added}, {StackKind::decoder, 0, Part::cross, Point::query}});
    ProbeList both({&stacks, &recorder});
    RunOptions options;
    options.probe = &both;
    if (config.encoder) {
      memory_ = encode_input(model, input, options);
      encoder_inputs_ = stacks.inputs(StackKind::encoder, encoder_layers);
      encoder_projections_ = stacks.projections(StackKind::encoder, encoder_layers);
    }
    if (!config.decoder || of_classes(target)) {
      // A decoder below a classifier of the encoder has no part in the target.
      target_.emplace(model, target, memory_.rows.rows());
      end_ = memory_.rows.rows();
      base_of(memory_.rows);
      return;
    }
    target_.emplace(model, target, ids_);
    // What stands after the target's last row cannot change it.
    end_ = target_->end_row();
    TokenBatch tokens;
    tokens.append(std::span(input.ids).first(static_cast<std::size_t>(end_)));
    if (config.encoder) shared_ = model.share_memory(memory_);
    cache_.emplace(config.encoder ? KvCache(model, shared_, 0) : KvCache(model));
    KvCache* grown[] = {&*cache_};
    const Tensor states = model.decode_cached(tokens, grown, options).rows;
    decoder_inputs_ = stacks.inputs(StackKind::decoder, decoder_layers);
    decoder_projections_ = stacks.projections(StackKind::decoder, decoder_layers);
    if (config.encoder) {
      after_first_self_ = recorder.value({StackKind::decoder, 0, Part::self, Point::added});
      first_cross_queries_ = recorder.value({StackKind::decoder, 0, Part::cross, Point::query});
    }
    base_of(states);
    if (target_->first_row() + 1 != end_ || !LastRow::fits(config)) return;
    last_row_.emplace(model);
    last_normed_ = last_row_->normed(decoder_inputs_.back());
    const RowSpan own[] = {{0, end_}}, sources[] = {{0, memory_.offsets.back()}};
    last_row_base_ = of_last_rows(last_row_->states(decoder_inputs_.back().row_range(end_ - 1, 1), end_ - 1,
                                                    last_normed_, own, memory_.rows, sources))
                         .front();
  }

  void check(const Edge& edge) const {
    check_place(model_, edge.head, true, operation_);
    const HeadPlace& head = edge.head;
    if (head.head < 0)
      throw Error(ErrorKind::argument, operation_, join(name_of(edge), " names no head"),
                  join("heads are 0 to ", model_.config().heads - 1, "; call head_effects to cut all of them"));
    const std::int64_t encoder_rows = memory_.offsets.back();
    const std::int64_t queries = head.stack == StackKind::encoder ? encoder_rows : ids_;
    const std::int64_t keys = head.stack == StackKind::encoder || head.part == Part::cross ? encoder_rows : ids_;
    const auto refuse = [&](const std::string& what, const std::string& advice) {
      throw Error(ErrorKind::argument, operation_, join(name_of(edge), ": ", what), advice);
    };
    if (edge.query < 0 || edge.query >= queries)
      refuse(join("query ", edge.query, " does not exist"), join("queries are 0 to ", queries - 1));
    if (edge.key < 0 || edge.key >= keys)
      refuse(join("key ", edge.key, " does not exist"), join("keys are 0 to ", keys - 1));
    for (const MaskRule& rule : model_.attention_rules(head.stack, head.part).mask) {
      const auto* window = std::get_if<WindowRule>(&rule);
      const bool seen = window ? edge.query - edge.key <= window->before && edge.key - edge.query <= window->after
                               : edge.key <= edge.query;
      if (!seen) refuse("the query does not see the key", "there is nothing to cut");
    }
  }

  // Effects of cutting each edge alone; all of one layer of one stack.
  void cut_edges(std::span<const Edge> edges, std::span<const std::size_t> which, std::vector<double>& effects,
                 const std::function<bool()>& cancelled) const {
    const StackKind stack = edges[which.front()].head.stack;
    const int layer = edges[which.front()].head.layer;
    std::vector<std::size_t> batch;
    std::int64_t rows = 0, bytes = 0;
    const auto flush = [&] {
      if (batch.empty()) return;
      if (cancelled && cancelled()) throw Error(ErrorKind::cancelled, operation_, "the caller asked to stop");
      const std::vector<double> changes =
          stack == StackKind::encoder ? cut_in_encoder(edges, batch, layer) : cut_in_decoder(edges, batch, layer);
      for (std::size_t i = 0; i < batch.size(); ++i) effects[batch[i]] = changes[i];
      batch.clear();
      rows = bytes = 0;
    };
    for (const std::size_t index : which) {
      if (stack == StackKind::decoder && out_of_reach(edges[index].query, layer)) continue;
      batch.push_back(index);
      rows += stack == StackKind::encoder ? memory_.offsets.back() + decoder_rows() : end_ - edges[index].query;
      if (stack == StackKind::decoder) bytes += item_bytes(edges[index].query, layer);
      if (rows >= batch_rows || bytes >= batch_bytes || batch.size() == batch_items) flush();
    }
    flush();
  }

  // Targets with each place cut alone, all of one layer of one stack, less the target without.
  std::vector<double> cut_places(std::span<const HeadPlace> places) const {
    const StackKind stack = places.front().stack;
    const std::int64_t each = stack == StackKind::encoder ? memory_.offsets.back() + decoder_rows() : end_;
    const auto at_once =
        static_cast<std::size_t>(std::max<std::int64_t>(1, batch_rows / std::max<std::int64_t>(1, each)));
    std::vector<double> effects;
    for (std::size_t begin = 0; begin < places.size(); begin += at_once) {
      const std::span<const HeadPlace> some = places.subspan(begin, std::min(at_once, places.size() - begin));
      const auto count = static_cast<std::int64_t>(some.size());
      PlaceCuts cuts(some, model_.config().head_width());
      RunOptions options;
      options.probe = &cuts;
      StackRange range;
      range.first_layer = places.front().layer;
      std::vector<double> changes;
      if (stack == StackKind::encoder) {
        range.last_rows = encoder_last_rows();
        changes = from_memory(model_.encode_from(
            repeated(encoder_inputs_[static_cast<std::size_t>(range.first_layer)], count), range, options));
      } else if (!cache_) {
        changes.assign(some.size(), 0.0);
      } else {
        std::vector<KvCache> forks;
        const std::vector<KvCache*> caches = fork(std::vector<std::int64_t>(some.size(), 0), forks);
        range.last_rows = end_ - target_->first_row();
        changes = changes_of(model_.decode_cached_from(
            repeated(decoder_inputs_[static_cast<std::size_t>(range.first_layer)], count), caches, range, options));
      }
      effects.insert(effects.end(), changes.begin(), changes.end());
    }
    return effects;
  }

 private:
  void base_of(const Tensor& states) {
    if (!target_->of_classes()) base_rows_ = target_->values_of_rows(states);
    const std::int64_t first[] = {0};
    base_ = target_->values({states, {0, states.rows()}}, first, base_rows_).front();
  }

  bool reads_encoder() const { return !model_.config().decoder || target_->of_classes(); }
  std::int64_t decoder_rows() const { return reads_encoder() ? 0 : end_; }
  // A target of the encoder itself needs some of its last layer's rows only.
  std::int64_t encoder_last_rows() const { return reads_encoder() ? memory_.offsets.back() - target_->first_row() : 0; }

  // Rows after the target's do not reach it, nor do rows of the last layer that it does not read.
  bool out_of_reach(std::int64_t query, int layer) const {
    if (!cache_ || query >= end_) return true;
    return layer + 1 == static_cast<int>(decoder_inputs_.size()) && query < target_->first_row();
  }

  // What an edge's item of a batch takes beside its rows: the pages that its fork of the cache does not share in the layers
  // above, and the rows that its last row reads.
  std::int64_t item_bytes(std::int64_t query, int layer) const {
    const TransformerConfig& config = model_.config();
    const auto above = static_cast<std::int64_t>(decoder_inputs_.size()) - layer - 1;
    const std::int64_t pages = (end_ - 1) / KvCache::page_rows - query / KvCache::page_rows + 1,
                       page = 2 * KvCache::page_rows * config.key_head_count() * config.head_width();
    const std::int64_t read = last_row_ && above > 0 ? end_ * config.width : 0;
    return ((last_row_ ? std::max<std::int64_t>(0, above - 1) : above) * pages * page + read) *
           static_cast<std::int64_t>(sizeof(float));
  }

  std::vector<double> less(std::vector<double> values, double base) const {
    for (double& value : values) value -= base;
    return values;
  }

  // How the target of items whose rows are the last ones before end_ differs from that of the run without cuts.
  std::vector<double> changes_of(const States& states) const {
    std::vector<std::int64_t> firsts;
    for (std::size_t item = 0; item + 1 < states.offsets.size(); ++item)
      firsts.push_back(end_ - states.offsets[item + 1] + states.offsets[item]);
    return less(target_->values(states, firsts, base_rows_), base_);
  }

  // The target of items that are its only row, after the final norm.
  std::vector<double> of_last_rows(const Tensor& rows) const {
    return target_->values({rows, rows_of_one(rows.rows())},
                           std::vector<std::int64_t>(static_cast<std::size_t>(rows.rows()), end_ - 1), base_rows_);
  }

  // The same from rows that the last block reads, the last ones before end_ of each item; the rows before are those of the
  // run without cuts, and so is the memory where it is one for all.
  std::vector<double> through_last_row(const States& states, const States& memory) const {
    const auto items = static_cast<std::size_t>(states.items());
    const Tensor fresh = last_row_->normed(states.rows);
    Tensor normed = Tensor::empty({states.items() * end_, fresh.width()});
    std::vector<RowSpan> own, sources;
    std::vector<std::int64_t> rows;
    for (std::size_t item = 0; item < items; ++item) {
      const std::int64_t count = states.offsets[item + 1] - states.offsets[item],
                         begin = static_cast<std::int64_t>(item) * end_;
      float* to = std::copy_n(last_normed_.data(), (end_ - count) * fresh.width(), normed.row(begin));
      std::copy_n(fresh.row(states.offsets[item]), count * fresh.width(), to);
      own.push_back({begin, end_});
      rows.push_back(states.offsets[item + 1] - 1);
      const std::size_t source = memory.items() == 1 ? 0 : item;
      if (memory.rows.defined())
        sources.push_back({memory.offsets[source], memory.offsets[source + 1] - memory.offsets[source]});
    }
    return less(
        of_last_rows(last_row_->states(select_rows(states.rows, rows), end_ - 1, normed, own, memory.rows, sources)),
        last_row_base_);
  }

  // What the decoder runs once it has another memory: its first self-attention does not read that, nor do the first
  // queries.
  StackRange below_memory(std::int64_t items) const {
    StackRange range;
    range.first_part = Part::cross;
    range.projected = repeated(first_cross_queries_, items).rows;
    if (last_row_) range.end_layer = static_cast<int>(decoder_inputs_.size()) - 1;
    else range.last_rows = end_ - target_->first_row();
    return range;
  }

  // How the target differs when the encoder gave these states.
  std::vector<double> from_memory(const States& memory) const {
    if (reads_encoder()) return changes_of(memory);
    if (only_last_row()) return through_cross_alone(memory);
    const States states =
        model_.decode_from(repeated(after_first_self_, memory.items()), &memory, below_memory(memory.items()));
    return last_row_ ? through_last_row(states, memory) : changes_of(states);
  }

  // A decoder of one layer, of which one row is read: only the cross-attention's rows and what comes after them differ.
  bool only_last_row() const { return last_row_ && decoder_inputs_.size() == 1; }
  std::vector<double> through_cross_alone(const States& memory) const {
    std::vector<RowSpan> sources;
    for (std::size_t item = 0; item + 1 < memory.offsets.size(); ++item)
      sources.push_back({memory.offsets[item], memory.offsets[item + 1] - memory.offsets[item]});
    const Tensor rows = repeated(after_first_self_.row_range(end_ - 1, 1), memory.items()).rows;
    return less(of_last_rows(last_row_->states_after_self(rows, end_ - 1, memory.rows, sources)), last_row_base_);
  }

  // In every item of `rows`, which has as many rows as the memory, one row becomes another.
  void put_rows(const Tensor& changed, std::span<const std::int64_t> places, Tensor& rows) const {
    for (std::size_t item = 0; item < places.size(); ++item)
      std::copy_n(changed.row(static_cast<std::int64_t>(item)), changed.width(),
                  rows.row(static_cast<std::int64_t>(item) * memory_.offsets.back() + places[item]));
  }

  // The same where one row of the memory differs: keys and values of the others are there.
  std::vector<double> from_memory_rows(const States& rows, std::span<const std::int64_t> places) const {
    States memory = repeated(memory_.rows, rows.items());
    put_rows(rows.rows, places, memory.rows);
    if (only_last_row()) return through_cross_alone(memory);
    const std::shared_ptr<const CrossMemory> changed = model_.share_memory(rows);
    auto spliced = std::make_shared<CrossMemory>();
    spliced->offsets = memory.offsets;
    const std::size_t layers = shared_->keys.size() - (last_row_ ? 1 : 0);  // the last row reads the memory itself
    for (std::size_t layer = 0; layer < layers; ++layer) {
      States keys = repeated(shared_->keys[layer], rows.items()),
             values = repeated(shared_->values[layer], rows.items());
      put_rows(changed->keys[layer], places, keys.rows);
      put_rows(changed->values[layer], places, values.rows);
      spliced->keys.push_back(keys.rows);
      spliced->values.push_back(values.rows);
    }
    // What nobody reads stands in for it.
    spliced->keys.resize(shared_->keys.size(), shared_->keys.back());
    spliced->values.resize(shared_->values.size(), shared_->values.back());
    std::vector<KvCache> caches;
    std::vector<KvCache*> lent;
    for (std::int64_t item = 0; item < rows.items(); ++item) caches.emplace_back(model_, spliced, item);
    for (KvCache& cache : caches) lent.push_back(&cache);
    const States states =
        model_.decode_cached_from(repeated(after_first_self_, rows.items()), lent, below_memory(rows.items()));
    return last_row_ ? through_last_row(states, memory) : changes_of(states);
  }

  // Copies of the cache cut back to these lengths.
  std::vector<KvCache*> fork(const std::vector<std::int64_t>& lengths, std::vector<KvCache>& forks) const {
    forks.assign(lengths.size(), *cache_);
    std::vector<KvCache*> caches;
    for (std::size_t item = 0; item < lengths.size(); ++item) {
      forks[item].truncate(lengths[item]);
      caches.push_back(&forks[item]);
    }
    return caches;
  }

  // The rows of the cut edges after their layer, one an item.
  Tensor cut_rows(std::span<const Edge> edges, const std::vector<std::size_t>& batch, int layer,
                  const Tensor& input) const {
    ScoreEditor editor;
    std::vector<std::int64_t> queries;
    for (const std::size_t index : batch) {
      const Edge& edge = edges[index];
      ScoreEdit cut;
      cut.item = static_cast<std::int64_t>(queries.size());
      cut.head = edge.head.head;
      cut.key = edge.key;
      editor.add(edge.head.stack, layer, edge.head.part, cut);
      queries.push_back(edge.query);
    }
    RunOptions options;
    options.probe = &editor;
    StackRange range;
    range.first_layer = layer;
    range.end_layer = layer + 1;
    range.queries = queries;
    const States sequence{input, {0, input.rows()}};
    if (edges[batch.front()].head.stack == StackKind::encoder) return model_.encode_from(sequence, range, options).rows;
    return model_.decode_from(sequence, model_.config().encoder ? &memory_ : nullptr, range, options).rows;
  }

  std::vector<double> cut_in_encoder(std::span<const Edge> edges, const std::vector<std::size_t>& batch,
                                     int layer) const {
    const auto count = static_cast<std::int64_t>(batch.size());
    const Tensor cut = cut_rows(edges, batch, layer, encoder_inputs_[static_cast<std::size_t>(layer)]);
    const auto next = static_cast<std::size_t>(layer) + 1;
    StackRange range;
    range.first_layer = layer + 1;
    if (next == encoder_inputs_.size()) {
      // Only the edge's own row differs, and it is done but for the final norm.
      const States rows = model_.encode_from({cut, rows_of_one(count)}, range);
      std::vector<std::int64_t> queries;
      for (const std::size_t index : batch) queries.push_back(edges[index].query);
      if (!reads_encoder()) return from_memory_rows(rows, queries);
      States states = repeated(memory_.rows, count);
      put_rows(rows.rows, queries, states.rows);
      return from_memory(states);
    }
    States states = repeated(encoder_inputs_[next], count);
    std::vector<std::int64_t> changed;
    for (std::size_t item = 0; item < batch.size(); ++item) {
      changed.push_back(states.offsets[item] + edges[batch[item]].query);
      std::copy_n(cut.row(static_cast<std::int64_t>(item)), cut.width(), states.rows.row(changed.back()));
    }
    range.projected = repeated(encoder_projections_[next], count).rows;
    range.changed = changed;
    range.last_rows = encoder_last_rows();
    return from_memory(model_.encode_from(states, range));
  }

  std::vector<double> cut_in_decoder(std::span<const Edge> edges, const std::vector<std::size_t>& batch,
                                     int layer) const {
    const Tensor cut = cut_rows(edges, batch, layer, decoder_inputs_[static_cast<std::size_t>(layer)]);
    const auto next = static_cast<std::size_t>(layer) + 1;
    StackRange range;
    range.first_layer = layer + 1;
    std::vector<std::int64_t> queries, offsets{0};
    const bool last = next == decoder_inputs_.size();
    for (const std::size_t index : batch) {
      queries.push_back(edges[index].query);
      offsets.push_back(offsets.back() + (last ? 1 : end_ - edges[index].query));
    }
    std::vector<KvCache> forks;
    const std::vector<KvCache*> caches = fork(queries, forks);
    if (last)
      return less(target_->values(model_.decode_cached_from({cut, offsets}, caches, range), queries, base_rows_),
                  base_);
    States states{Tensor::empty({offsets.back(), cut.width()}), offsets};
    const Tensor& projections = decoder_projections_[next];
    range.projected = Tensor::empty({offsets.back(), projections.width()});
    range.changed = std::span(offsets).first(batch.size());
    for (std::size_t item = 0; item < batch.size(); ++item) {
      const std::int64_t later = end_ - queries[item] - 1;
      float* to = std::copy_n(cut.row(static_cast<std::int64_t>(item)), cut.width(), states.rows.row(offsets[item]));
      std::copy_n(decoder_inputs_[next].data() + (queries[item] + 1) * cut.width(), later * cut.width(), to);
      std::copy_n(projections.data() + queries[item] * projections.width(), (later + 1) * projections.width(),
                  range.projected.row(offsets[item]));
    }
    if (last_row_) {
      range.end_layer = static_cast<int>(decoder_inputs_.size()) - 1;
      if (range.first_layer < range.end_layer) states = model_.decode_cached_from(states, caches, range);
      return through_last_row(states, memory_);
    }
    range.last_rows = end_ - target_->first_row();
    return changes_of(model_.decode_cached_from(states, caches, range));
  }

  static std::vector<std::int64_t> rows_of_one(std::int64_t count) {
    std::vector<std::int64_t> offsets(static_cast<std::size_t>(count) + 1);
    std::iota(offsets.begin(), offsets.end(), 0);
    return offsets;
  }

  const Model& model_;
  const char* operation_;
  const std::int64_t ids_;
  States memory_;
  // Of every block, undefined where nobody asks; the decoder's rows before end_: what it reads, and these rows' queries,
  // keys and values.
  std::vector<Tensor> encoder_inputs_, decoder_inputs_, encoder_projections_, decoder_projections_;
  Tensor after_first_self_, first_cross_queries_;  // of the decoder
  std::shared_ptr<const CrossMemory> shared_;      // of the memory
  std::optional<KvCache> cache_;                   // of the decoder's rows
  std::optional<ResolvedTarget> target_;
  std::int64_t end_ = 0;           // rows of the last stack that are run
  std::vector<double> base_rows_;  // what each row adds to the target, without cuts
  double base_ = 0;
  // Where the target reads one row of the decoder: the last block for it, what that reads, and the target through it.
  std::optional<LastRow> last_row_;
  Tensor last_normed_;
  double last_row_base_ = 0;
};

}  // namespace

std::vector<double> exact_effects(const Model& model, const ModelInput& input, const Target& target,
                                  std::span<const Edge> edges, const std::function<bool()>& cancelled) {
  const NoGradientScope no_gradients;
  std::map<LayerPlace, std::vector<std::size_t>> layers;
  std::set<LayerPlace> cut;
  for (std::size_t i = 0; i < edges.size(); ++i) {
    layers[{edges[i].head.stack, edges[i].head.layer}].push_back(i);
    cut.emplace(edges[i].head.stack, edges[i].head.layer);
  }
  const CutRuns runs(model, input, target, "exact_effects", cut, true);
  for (const Edge& edge : edges) runs.check(edge);
  std::vector<double> effects(edges.size(), 0.0);
  for (auto& [layer, which] : layers) {
    // Like lengths together.
    std::stable_sort(which.begin(), which.end(),
                     [&](std::size_t a, std::size_t b) { return edges[a].query < edges[b].query; });
    runs.cut_edges(edges, which, effects, cancelled);
  }
  return effects;
}

void measure_exactly(const Model& model, const ModelInput& input, const Target& target, std::span<MeasuredEdge> edges,
                     const std::function<bool()>& cancelled) {
  std::vector<Edge> plain;
  for (const MeasuredEdge& edge : edges) plain.push_back(edge.edge);
  const std::vector<double> effects = exact_effects(model, input, target, plain, cancelled);
  for (std::size_t i = 0; i < edges.size(); ++i) edges[i].exact = effects[i];
}

std::vector<HeadEffect> head_effects(const Model& model, const ModelInput& input, const Target& target,
                                     std::span<const HeadPlace> places) {
  std::vector<HeadEffect> effects;
  for (const HeadPlace& place : places) {
    check_place(model, place, false, "head_effects");
    effects.push_back({place});
  }
  if (places.empty())
    for (const HeadPlace& head : heads_of(model)) effects.push_back({head});

  // First order: what cut parts give, times the gradient there.
  std::vector<AttentionPlace> attentions;
  std::vector<std::pair<StackKind, int>> feed_forwards;
  const bool cross = model.config().encoder && model.config().decoder;
  const auto parts_of = [&](const HeadPlace& place) {
    if (place.part != Part::block) return std::vector<Part>{place.part};
    if (place.stack == StackKind::decoder && cross)
      return std::vector<Part>{Part::self, Part::cross, Part::feed_forward};
    return std::vector<Part>{Part::self, Part::feed_forward};
  };
  for (const HeadEffect& effect : effects)
    for (const Part part : parts_of(effect.place)) {
      if (part == Part::feed_forward) feed_forwards.emplace_back(effect.place.stack, effect.place.layer);
      else attentions.push_back({effect.place.stack, effect.place.layer, part});
    }
  // Ended before the runs with cuts begin: neither needs the other's values.
  std::optional<GradientRun> traced =
      run_with_gradient(model, input, target, attentions, feed_forwards, "head_effects");
  const GradientRun& run = *traced;
  const std::int64_t width = model.config().head_width();
  const auto product = [](const Tensor& value, const Tensor& gradient, std::int64_t begin, std::int64_t end) {
    double sum = 0;
    for (std::int64_t row = 0; row < value.rows(); ++row)
      for (std::int64_t column = begin; column < end; ++column)
        sum += static_cast<double>(value.at(row, column)) * static_cast<double>(gradient.at(row, column));
    return sum;
  };
  for (HeadEffect& effect : effects) {
    const HeadPlace& place = effect.place;
    for (const Part part : parts_of(place)) {
      if (part == Part::feed_forward) {
        const auto& [value, gradient] = run.inner.at({place.stack, place.layer});
        effect.first_order -= product(value, gradient, 0, value.width());
      } else {
        const AttentionTrace& trace = run.attentions.at({place.stack, place.layer, part});
        const bool all = place.head < 0;
        effect.first_order -= product(trace.output, trace.gradient, all ? 0 : place.head * width,
                                      all ? trace.output.width() : (place.head + 1) * width);
      }
    }
  }

  traced.reset();

  const NoGradientScope no_gradients;
  std::map<LayerPlace, std::vector<std::size_t>> layers;
  std::set<LayerPlace> cut;
  for (std::size_t i = 0; i < effects.size(); ++i) {
    layers[{effects[i].place.stack, effects[i].place.layer}].push_back(i);
    cut.emplace(effects[i].place.stack, effects[i].place.layer);
  }
  const CutRuns runs(model, input, target, "head_effects", cut, false);
  for (const auto& [layer, which] : layers) {
    std::vector<HeadPlace> of_layer;
    for (const std::size_t i : which) of_layer.push_back(effects[i].place);
    const std::vector<double> exact = runs.cut_places(of_layer);
    for (std::size_t i = 0; i < which.size(); ++i) effects[which[i]].exact = exact[i];
  }
  return effects;
}

}  // namespace attend
