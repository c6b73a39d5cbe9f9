#include "inspect/importance/edges.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "attend/error.h"
#include "attend/tape.h"
#include "core/names.h"
#include "core/threads.h"
#include "inspect/importance/places.h"
#include "inspect/importance/target.h"

namespace attend {
namespace {

// ---- The pass forward and back ------------------------------------------------------------------------------------------

class Tracer : public Probe {
 public:
  Tracer(GradientRun& run, Tape* tape, bool rotary) : run_(run), tape_(tape), rotary_(rotary) {}

  bool wants(const Site& site) const override {
    if (site.part == Part::feed_forward)
      return site.point == Point::inner && run_.inner.contains({site.stack, site.layer});
    if (!run_.attentions.contains({site.stack, site.layer, site.part})) return false;
    const bool rotated = rotary_ && site.part == Part::self;
    return site.point == Point::value || site.point == Point::head_output ||
           site.point == (rotated ? Point::rotated_query : Point::query) ||
           site.point == (rotated ? Point::rotated_key : Point::key);
  }

  void visit(const Visit& visit, Tensor& value) override {
    const Site& site = visit.site;
    if (site.part == Part::feed_forward) {
      track(run_.inner.at({site.stack, site.layer}).first = value);
      return;
    }
    AttentionTrace& trace = run_.attentions.at({site.stack, site.layer, site.part});
    switch (site.point) {
      case Point::query:
      case Point::rotated_query:
        trace.query = value;
        break;
      case Point::key:
      case Point::rotated_key:
        trace.key = value;
        break;
      case Point::value:
        trace.value = value;
        break;
      default:
        track(trace.output = value);
    }
  }

 private:
  // The first value met becomes a leaf: what is computed from it is recorded, what stands below is not.
  void track(const Tensor& value) {
    if (!tape_) return;
    if (tape_->tracks(value)) tape_->keep_gradient(value);
    else tape_->watch(value);
  }

  GradientRun& run_;
  Tape* tape_;
  const bool rotary_;
};

}  // namespace

GradientRun run_with_gradient(const Model& model, const ModelInput& input, const std::optional<Target>& target,
                              const std::vector<AttentionPlace>& attentions,
                              const std::vector<std::pair<StackKind, int>>& feed_forwards, const char* operation,
                              Probe* probe) {
  check_input(model, input, operation);
  GradientRun run;
  for (const AttentionPlace& place : attentions) run.attentions[place];
  for (const auto& place : feed_forwards) run.inner[place];
  Tape tape;
  Tracer tracer(run, target ? &tape : nullptr, model.config().positions == PositionKind::rotary);
  ProbeList both(probe ? std::vector<Probe*>{probe, &tracer} : std::vector<Probe*>{&tracer});
  RunOptions options;
  options.probe = &both;
  if (!target) {
    const NoGradientScope no_gradients;
    decode_input(model, input, encode_input(model, input, options), options);
    return run;
  }
  Tensor value;
  {
    const GradientScope scope(tape);
    const States memory = encode_input(model, input, options);
    const States last = decode_input(model, input, memory, options);
    const States& states = of_classes(*target) ? memory : last;
    value = ResolvedTarget(model, *target, states.rows.rows()).differentiable(states);
  }
  run.target = value.item();
  // A target can be out of reach of every place asked for: its gradient there is 0.
  const bool reached = tape.tracks(value);
  if (reached) tape.backward(value);
  const auto gradient = [&](const Tensor& of) { return reached ? tape.gradient(of) : Tensor::zeros(of.shape()); };
  for (auto& [place, trace] : run.attentions) trace.gradient = gradient(trace.output);
  for (auto& [place, values] : run.inner) values.second = gradient(values.first);
  return run;
}

// ---- Edges ------------------------------------------------------------------------------------------------------------

namespace {

const std::pair<EdgeMeasure, const char*> measure_names[] = {{EdgeMeasure::weight, "weight"},
                                                             {EdgeMeasure::write, "write"},
                                                             {EdgeMeasure::first_order, "first_order"},
                                                             {EdgeMeasure::exact, "exact"}};

bool larger(const MeasuredEdge& a, const MeasuredEdge& b, EdgeMeasure by) {
  const double x = std::fabs(a.value(by)), y = std::fabs(b.value(by));
  return x != y ? x > y : a.edge < b.edge;
}

// The largest edges seen so far; `count` at most.
class Largest {
 public:
  Largest(EdgeMeasure by, std::int64_t count) : by_(by), count_(static_cast<std::size_t>(count)) {}

  bool may_enter(double value) const {
    return heap_.size() < count_ || std::fabs(value) >= std::fabs(heap_.front().value(by_));
  }
  void offer(const MeasuredEdge& edge) {
    const auto before = [this](const MeasuredEdge& a, const MeasuredEdge& b) { return larger(a, b, by_); };
    if (heap_.size() == count_) {
      if (!before(edge, heap_.front())) return;
      std::pop_heap(heap_.begin(), heap_.end(), before);
      heap_.pop_back();
    }
    heap_.push_back(edge);
    std::push_heap(heap_.begin(), heap_.end(), before);
  }
  std::vector<MeasuredEdge> sorted() {
    std::sort(heap_.begin(), heap_.end(),
              [this](const MeasuredEdge& a, const MeasuredEdge& b) { return larger(a, b, by_); });
    return std::move(heap_);
  }

 private:
  const EdgeMeasure by_;
  const std::size_t count_;
  std::vector<MeasuredEdge> heap_;
};

const Tensor& output_weight(const Model& model, const AttentionPlace& place) {
  const std::string name = name_of(place) + ".output.weight";
  if (const Parameter* const weight = find_parameter(model, name)) return weight->value;
  throw Error(ErrorKind::argument, "edge_effects", join("the model has no parameter ", name),
              "name an attention that it has");
}

double dot(const float* a, const float* b, std::int64_t count) {
  double sum = 0;
  for (std::int64_t i = 0; i < count; ++i) sum += static_cast<double>(a[i]) * static_cast<double>(b[i]);
  return sum;
}

// The edges of one attention, a block of its rows at a time.
class AttentionEdges {
 public:
  AttentionEdges(const Model& model, const AttentionPlace& place, const AttentionTrace& trace,
                 std::vector<HeadPlace> heads, const EdgeOptions& options)
      : rules_(model.attention_rules(place.stack, place.part)),
        trace_(trace),
        heads_(std::move(heads)),
        options_(options),
        dim_(model.config().head_width()),
        group_(model.config().heads / model.config().key_head_count()) {
    // Weights do not depend on the values: the narrowest will do.
    no_value_ = Tensor::zeros({keys(), rules_.key_heads});
    if (!options_.write) return;
    const Tensor& all = output_weight(model, place);
    for (const HeadPlace& head : heads_)
      norms_.push_back(row_norms(matrix_product(value_of(head), all.columns(head.head * dim_, dim_), true)));
  }

  std::int64_t queries() const { return trace_.query.rows(); }
  std::int64_t keys() const { return trace_.key.rows(); }
  const std::vector<HeadPlace>& heads() const { return heads_; }

  // Of rows [begin, end), for every head [rows, keys].
  struct Block {
    std::int64_t begin = 0;
    std::vector<Tensor> weight, write, first_order;
  };
  Block block(std::int64_t begin, std::int64_t end) const {
    Block block;
    block.begin = begin;
    const std::int64_t rows = end - begin;
    AttentionInput input = rules_;
    input.value_dim = 0;
    input.items = {item_of(begin, rows)};
    for (const HeadPlace& head : heads_) {
      block.weight.push_back(Tensor::empty({rows, keys()}));
      input.matrices.push_back({0, head.head, nullptr, block.weight.back().data()});
    }
    attention(trace_.query, trace_.key, no_value_, input);
    if (options_.first_order)
      for (const HeadPlace& head : heads_)
        block.first_order.push_back(matrix_product(
            trace_.gradient.columns(head.head * dim_, dim_).row_range(begin, rows), value_of(head), true));
    if (options_.write)
      for (std::size_t h = 0; h < heads_.size(); ++h) block.write.push_back(Tensor::empty({rows, keys()}));

    std::vector<std::vector<Alone>> alone(heads_.size() * static_cast<std::size_t>(rows));
    const std::int64_t grain = std::max<std::int64_t>(1, 4096 / keys());
    parallel_ranges(static_cast<std::int64_t>(alone.size()), grain, [&](std::int64_t first, std::int64_t last, int) {
      for (std::int64_t i = first; i < last; ++i) {
        const auto h = static_cast<std::size_t>(i / rows);
        const std::int64_t row = i % rows;
        const float* weight = block.weight[h].row(row);
        if (options_.write)
          for (std::int64_t key = 0; key < keys(); ++key)
            block.write[h].row(row)[key] =
                static_cast<float>(static_cast<double>(weight[key]) * norms_[h][static_cast<std::size_t>(key)]);
        if (options_.first_order)
          finish_row(weight, block.first_order[h].row(row), h, row, alone[static_cast<std::size_t>(i)]);
      }
    });
    std::vector<Alone> all;
    for (const auto& some : alone) all.insert(all.end(), some.begin(), some.end());
    cut_alone(block, all);
    return block;
  }

 private:
  // An edge with all of its row's weight: what the others would have cannot be told from their weights.
  struct Alone {
    std::size_t head;
    std::int64_t row, key;
  };

  Tensor value_of(const HeadPlace& head) const { return trace_.value.columns(head.head / group_ * dim_, dim_); }

  AttentionItem item_of(std::int64_t begin, std::int64_t rows) const {
    AttentionItem item;
    item.query_begin = item.query_position = begin;
    item.queries = rows;
    item.keys = keys();
    return item;
  }

  static std::vector<double> row_norms(const Tensor& rows) {
    std::vector<double> norms;
    for (std::int64_t row = 0; row < rows.rows(); ++row)
      norms.push_back(std::sqrt(dot(rows.row(row), rows.row(row), rows.width())));
    return norms;
  }

  // s holds g . v of every key and receives the effects. The mean of the others, where most weight is on one key, is
  // summed over them: taking that key's share from the whole would leave rounding only.
  void finish_row(const float* weight, float* s, std::size_t head, std::int64_t row, std::vector<Alone>& alone) const {
    double all = 0, mean = 0;
    for (std::int64_t key = 0; key < keys(); ++key) {
      all += static_cast<double>(weight[key]);
      mean += static_cast<double>(weight[key]) * static_cast<double>(s[key]);
    }
    std::int64_t largest = -1;
    for (std::int64_t key = 0; key < keys(); ++key)
      if (2 * static_cast<double>(weight[key]) > all) largest = key;
    double others = 0, others_mean = 0;
    for (std::int64_t key = 0; key < keys() && largest >= 0; ++key) {
      if (key == largest) continue;
      others += static_cast<double>(weight[key]);
      others_mean += static_cast<double>(weight[key]) * static_cast<double>(s[key]);
    }
    for (std::int64_t key = 0; key < keys(); ++key) {
      const double p = weight[key], own = s[key];
      if (p == 0) {
        s[key] = 0;
      } else if (key != largest) {
        s[key] = static_cast<float>(p * ((mean - p * own) / (all - p) - own));
      } else if (others > 1e-30) {
        s[key] = static_cast<float>(p * (others_mean / others - own));
      } else {
        alone.push_back({head, row, key});
      }
    }
  }

  // Such edges are cut here and now, each as an item of its own: a row that then sees nothing gathers nothing.
  void cut_alone(Block& block, const std::vector<Alone>& edges) const {
    constexpr std::size_t at_once = 64;
    for (std::size_t begin = 0; begin < edges.size(); begin += at_once) {
      const std::size_t end = std::min(begin + at_once, edges.size());
      AttentionInput input = rules_;
      std::vector<std::int64_t> rows;
      for (std::size_t i = begin; i < end; ++i) {
        const std::int64_t row = block.begin + edges[i].row;
        AttentionItem item = item_of(row, 1);
        item.query_begin = static_cast<std::int64_t>(i - begin);
        input.items.push_back(item);
        rows.push_back(row);
        ScoreEdit cut;
        cut.item = item.query_begin;
        cut.head = heads_[edges[i].head].head;
        cut.key = edges[i].key;
        input.edits.push_back(cut);
      }
      const Tensor output = attention(select_rows(trace_.query, rows), trace_.key, trace_.value, input);
      for (std::size_t i = begin; i < end; ++i) {
        const std::int64_t row = block.begin + edges[i].row, column = heads_[edges[i].head].head * dim_;
        const float* gradient = trace_.gradient.row(row) + column;
        const double effect = dot(gradient, output.row(static_cast<std::int64_t>(i - begin)) + column, dim_) -
                              dot(gradient, trace_.output.row(row) + column, dim_);
        block.first_order[edges[i].head].row(edges[i].row)[edges[i].key] = static_cast<float>(effect);
      }
    }
  }

  const AttentionInput rules_;
  const AttentionTrace& trace_;
  const std::vector<HeadPlace> heads_;
  const EdgeOptions& options_;
  const std::int64_t dim_, group_;
  Tensor no_value_;
  std::vector<std::vector<double>> norms_;  // |W_O^h v_key| of every head asked for
};

void copy_rows(const Tensor& from, std::int64_t begin, Tensor& to) {
  std::copy_n(from.data(), from.elements(), to.row(begin));
}

void check_options(const EdgeOptions& options, bool has_target) {
  if (options.first_order && !has_target)
    throw Error(ErrorKind::argument, "edge_effects", "first-order effects are asked for without a target",
                "name one, or set first_order to false");
  if (!options.weight && !options.write && !options.first_order)
    throw Error(ErrorKind::argument, "edge_effects", "nothing is asked for", "weight, write or first_order");
  if (options.top < 0)
    throw Error(ErrorKind::argument, "edge_effects", join("top is ", options.top),
                "0 for matrices, or a number of edges");
  if (options.top == 0) return;
  const bool computed = (options.by == EdgeMeasure::weight && options.weight) ||
                        (options.by == EdgeMeasure::write && options.write) ||
                        (options.by == EdgeMeasure::first_order && options.first_order);
  if (!computed)
    throw Error(ErrorKind::argument, "edge_effects",
                join("edges are ranked by ", name_of(options.by), ", which is not computed"),
                options.by == EdgeMeasure::exact ? "rank by first_order, then call measure_exactly" : "ask for it too");
}

}  // namespace

const char* name_of(EdgeMeasure measure) {
  for (const auto& [known, name] : measure_names)
    if (known == measure) return name;
  return "unknown";
}

EdgeMeasure edge_measure_named(std::string_view name) {
  std::vector<std::string> names;
  for (const auto& [measure, known] : measure_names) {
    if (name == known) return measure;
    names.emplace_back(known);
  }
  const std::string near = nearest_name(std::string(name), names);
  throw Error(ErrorKind::argument, "measure", join("there is no measure '", shortened(std::string(name), 100), "'"),
              near.empty() ? "weight, write, first_order or exact" : join("did you mean '", near, "'?"));
}

double MeasuredEdge::value(EdgeMeasure measure) const {
  switch (measure) {
    case EdgeMeasure::weight:
      return weight;
    case EdgeMeasure::write:
      return write;
    case EdgeMeasure::first_order:
      return first_order;
    case EdgeMeasure::exact:
      return exact;
  }
  return unknown;
}

std::vector<MeasuredEdge> EdgeReport::largest(EdgeMeasure by, std::int64_t count) const {
  Largest best(by, std::max<std::int64_t>(count, 0));
  if (count <= 0) return {};
  for (const HeadEdges& of : heads) {
    if (!of.weight.defined())
      throw Error(ErrorKind::argument, "EdgeReport::largest",
                  join("weights, which tell what the mask hides, were not computed for ", name_of(of.head)),
                  "ask edge_effects for them, or for the top edges");
    const Tensor& ranked = by == EdgeMeasure::weight ? of.weight : by == EdgeMeasure::write ? of.write : of.first_order;
    if (!ranked.defined() || by == EdgeMeasure::exact)
      throw Error(ErrorKind::argument, "EdgeReport::largest",
                  join(name_of(by), " was not computed for ", name_of(of.head)), "ask edge_effects for it");
    for (std::int64_t query = 0; query < ranked.rows(); ++query)
      for (std::int64_t key = 0; key < ranked.width(); ++key) {
        if (!best.may_enter(static_cast<double>(ranked.at(query, key))) || of.weight.at(query, key) == 0) continue;
        MeasuredEdge edge;
        edge.edge = {of.head, of.first_query + query, key};
        edge.weight = of.weight.at(query, key);
        if (of.write.defined()) edge.write = of.write.at(query, key);
        if (of.first_order.defined()) edge.first_order = of.first_order.at(query, key);
        best.offer(edge);
      }
  }
  return best.sorted();
}

EdgeReport edge_effects(const Model& model, const ModelInput& input, const std::optional<Target>& target,
                        const EdgeOptions& options) {
  check_options(options, target.has_value());
  const std::vector<HeadPlace> heads = expand_heads(model, options.heads, "edge_effects");
  std::map<AttentionPlace, std::vector<HeadPlace>> by_place;
  for (const HeadPlace& head : heads) by_place[{head.stack, head.layer, head.part}].push_back(head);

  std::vector<AttentionPlace> places;
  for (const auto& [place, of] : by_place) places.push_back(place);
  if (options.top == 0 || options.query) {
    // Known before anything runs: rows of the stacks.
    const std::int64_t class_rows = model.config().encoder && model.config().encoder->class_token ? 1 : 0;
    const std::int64_t source =
        input.features.defined() ? input.features.rows() + class_rows : static_cast<std::int64_t>(input.source.size());
    const auto ids = static_cast<std::int64_t>(input.ids.size());
    double bytes = 0;
    for (const auto& [place, of] : by_place) {
      const bool encoder = place.stack == StackKind::encoder, cross = place.part == Part::cross;
      const std::int64_t queries = encoder ? source : ids;
      if (options.query && (*options.query < 0 || *options.query >= queries))
        throw Error(ErrorKind::argument, "edge_effects", join(name_of(place), " has no query ", *options.query),
                    join("queries are 0 to ", queries - 1));
      const double cells =
          static_cast<double>(options.query ? 1 : queries) * static_cast<double>(encoder || cross ? source : ids);
      bytes +=
          cells * static_cast<double>(of.size()) * sizeof(float) *
          (static_cast<int>(options.weight) + static_cast<int>(options.write) + static_cast<int>(options.first_order));
    }
    if (options.top == 0 && bytes > static_cast<double>(options.most_bytes))
      throw Error(ErrorKind::argument, "edge_effects",
                  join("the matrices of ", heads.size(), " heads take ", static_cast<std::int64_t>(bytes / 1048576),
                       " MiB, more than the ", options.most_bytes / 1048576, " MiB allowed"),
                  "ask for fewer heads or layers, for the top edges, for no matrices at all, or allow more");
  }

  EdgeReport report;
  // Without first-order effects the target is only told.
  GradientRun run = run_with_gradient(model, input, options.first_order ? target : std::nullopt, places, {},
                                      "edge_effects", options.probe);
  report.target = options.first_order ? run.target
                  : target            ? target_value(model, input, *target)
                                      : MeasuredEdge::unknown;
  Largest best(options.by, options.top);
  for (auto& [place, of] : by_place) {
    const AttentionEdges attention(model, place, run.attentions.at(place), of, options);
    const std::int64_t first = options.query.value_or(0), end = options.query ? first + 1 : attention.queries(),
                       queries = end - first, keys = attention.keys();
    std::vector<HeadEdges> matrices;
    if (options.top == 0)
      for (const HeadPlace& head : of) {
        const auto matrix = [&](bool wanted) { return wanted ? Tensor::empty({queries, keys}) : Tensor(); };
        matrices.push_back({head, matrix(options.weight), matrix(options.write), matrix(options.first_order), first});
      }
    constexpr std::int64_t cells_at_once = 1 << 21;
    const std::int64_t step =
        std::clamp<std::int64_t>(cells_at_once / (keys * static_cast<std::int64_t>(of.size())), 1, queries);
    for (std::int64_t begin = first; begin < end; begin += step) {
      const AttentionEdges::Block block = attention.block(begin, std::min(end, begin + step));
      for (std::size_t h = 0; h < of.size(); ++h) {
        if (options.top == 0) {
          if (options.weight) copy_rows(block.weight[h], begin - first, matrices[h].weight);
          if (options.write) copy_rows(block.write[h], begin - first, matrices[h].write);
          if (options.first_order) copy_rows(block.first_order[h], begin - first, matrices[h].first_order);
          continue;
        }
        const Tensor& ranked = options.by == EdgeMeasure::weight  ? block.weight[h]
                               : options.by == EdgeMeasure::write ? block.write[h]
                                                                  : block.first_order[h];
        for (std::int64_t row = 0; row < ranked.rows(); ++row)
          for (std::int64_t key = 0; key < keys; ++key) {
            if (block.weight[h].at(row, key) == 0 || !best.may_enter(static_cast<double>(ranked.at(row, key))))
              continue;
            MeasuredEdge edge;
            edge.edge = {of[h], begin + row, key};
            if (options.weight) edge.weight = block.weight[h].at(row, key);
            if (options.write) edge.write = block.write[h].at(row, key);
            if (options.first_order) edge.first_order = block.first_order[h].at(row, key);
            best.offer(edge);
          }
      }
    }
    for (HeadEdges& matrix : matrices) report.heads.push_back(std::move(matrix));
    run.attentions.erase(place);
  }
  if (options.top > 0) report.edges = best.sorted();
  return report;
}

}  // namespace attend
