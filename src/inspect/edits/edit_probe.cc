// Makes edits in a run, site by site, and counts what they touch.
#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <optional>

#include "attend/edits.h"
#include "attend/error.h"
#include "attend/importance.h"
#include "attend/ops.h"
#include "attend/tape.h"
#include "core/hash.h"
#include "core/random.h"
#include "inspect/edits/places.h"
#include "inspect/parameters.h"

namespace attend {
namespace {

constexpr double head_parts_tolerance = 1e-4;
constexpr std::int64_t checked_rows = 256;  // whose heads are summed at once

std::string output_name(StackKind stack, int layer, Part part) {
  return name_of(stack) + join('.', layer, '.', name_of(part), ".output");
}

// Edits of the scores of one attention, and which edit each comes from.
struct ScoreList {
  std::vector<ScoreEdit> edits;
  std::vector<std::size_t> sources;
};

ScoreEdit::Kind score_kind(Action action) {
  switch (action) {
    case Action::set:
      return ScoreEdit::Kind::set;
    case Action::add:
      return ScoreEdit::Kind::add;
    case Action::scale:
      return ScoreEdit::Kind::scale;
    case Action::lock:
      return ScoreEdit::Kind::lock;
    default:
      return ScoreEdit::Kind::forbid;
  }
}

// One score edit for each item, head, range of queries and range of keys.
void add_score_edits(const Edit& edit, const PlacedEdit& placed, ScoreList& list) {
  const std::vector<std::int64_t> every{-1};
  const std::vector<PositionRange> everywhere{{-1, 0}};
  for (const std::int64_t item : edit.items.empty() ? every : edit.items)
    for (const std::int64_t head : edit.heads.empty() ? every : edit.heads)
      for (const PositionRange& queries : edit.positions.empty() ? everywhere : edit.positions)
        for (const PositionRange& keys : edit.keys.empty() ? everywhere : edit.keys) {
          ScoreEdit one;
          one.kind = score_kind(placed.action);
          one.item = item;
          one.head = head;
          one.query = queries.begin;
          one.query_end = queries.end;
          one.key = keys.begin;
          one.key_end = keys.end;
          one.value = edit.value;
          one.min_distance = placed.min_distance;
          list.edits.push_back(one);
          list.sources.push_back(placed.edit);
        }
}

// A row of noise that depends on nothing but its place.
void draw_noise(const Edit& edit, const Site& site, std::int64_t item, std::int64_t position, float* row,
                std::int64_t width) {
  ByteHash hash;
  hash.text(name_of(site));
  hash.number(static_cast<std::uint64_t>(item));
  hash.number(static_cast<std::uint64_t>(position));
  Random random(mix_bits(edit.seed ^ mix_bits(hash.value())));
  for (std::int64_t i = 0; i < width; ++i) row[i] = edit.value * static_cast<float>(random.normal());
}

}  // namespace

struct EditProbe::Parts {
  const Model* model = nullptr;
  std::vector<Edit> edits;
  EditSources sources;
  std::map<Site, std::vector<PlacedEdit>> rows;  // edits of rows, in order
  std::map<AttentionPlace, ScoreList> scores;
  std::vector<std::int64_t> counts;
  double head_parts_difference = 0;
  std::int64_t head_parts_checked = 0;
  // Of the run at hand: what blocks that are skipped read, and what heads wrote after edits.
  std::map<std::pair<StackKind, int>, Tensor> block_inputs;
  std::map<AttentionPlace, Tensor> head_outputs;

  bool skips(const Site& input) const {
    const auto found = rows.find({input.stack, input.layer, Part::block, Point::output});
    return found != rows.end() && std::any_of(found->second.begin(), found->second.end(),
                                              [](const PlacedEdit& placed) { return placed.action == Action::skip; });
  }
  bool checks_heads(const Site& site) const {
    return rows.contains({site.stack, site.layer, site.part, Point::head_output});
  }

  const Tensor& source_of(const Edit& edit, const Site& site, std::int64_t item) const {
    for (const std::int64_t each : {std::int64_t{-1}, item})
      if (const auto found = sources.rows.find({edit.name, site, each}); found != sources.rows.end())
        return found->second;
    throw Error(ErrorKind::argument, edit_called(edit),
                join("there are no values for ", name_of(site), " of item ", item),
                "give what edit_sources() made of the same text");
  }

  // What is to stand in the row; null where the source has no such row.
  const float* source_row(const Edit& edit, Action action, const Site& site, std::int64_t item,
                          std::int64_t position) const {
    const Tensor& source = source_of(edit, site, item);
    if (action == Action::mean && !edit.by_position) return source.row(0);
    const std::int64_t from = action == Action::patch ? source_position(edit, position) : position;
    if (from >= source.rows())
      throw Error(ErrorKind::argument, edit_called(edit),
                  join("position ", from, " of ", name_of(site),
                       " is asked for and the text it comes from has positions 0 to ", source.rows() - 1),
                  "name the positions that both texts have");
    return source.row(from);
  }

  void apply(const PlacedEdit& placed, const Visit& visit, Tensor& value) {
    const Edit& edit = edits[placed.edit];
    const std::int64_t width = value.width(), heads = heads_at(model->config(), visit.site.point);
    std::vector<std::uint8_t> columns(static_cast<std::size_t>(width), edit.heads.empty());
    for (const std::int64_t head : edit.heads)
      std::fill_n(columns.begin() + static_cast<std::ptrdiff_t>(head * (width / heads)), width / heads,
                  std::uint8_t{1});
    auto mask =
        std::make_shared<std::vector<std::uint8_t>>(static_cast<std::size_t>(value.elements()), std::uint8_t{0});
    Tensor other;
    std::int64_t touched = 0;
    for (std::int64_t item = 0; item < visit.items(); ++item) {
      const std::int64_t number = visit.number(item), begin = visit.offsets[static_cast<std::size_t>(item)];
      if (!in_list(edit.items, number)) continue;
      for (std::int64_t row = begin; row < visit.offsets[static_cast<std::size_t>(item) + 1]; ++row) {
        const std::int64_t position = visit.first_position(item) + row - begin;
        if (!in_ranges(edit.positions, position)) continue;
        ++touched;
        std::copy(columns.begin(), columns.end(), mask->begin() + static_cast<std::ptrdiff_t>(row * width));
        if (placed.action == Action::zero || placed.action == Action::skip) continue;
        if (!other.defined()) other = Tensor::zeros(value.shape());
        if (placed.action == Action::noise) {
          draw_noise(edit, visit.site, number, position, other.row(row), width);
          for (std::int64_t i = 0; i < width; ++i)
            if (columns[static_cast<std::size_t>(i)] == 0) other.row(row)[i] = 0;
          continue;
        }
        const Tensor& source = source_of(edit, visit.site, number);
        if (source.width() != width)
          throw Error(ErrorKind::shape, edit_called(edit),
                      join("rows of ", source.width(), " numbers for ", name_of(visit.site), " ", value.shape()));
        std::copy_n(source_row(edit, placed.action, visit.site, number, position), width, other.row(row));
      }
    }
    counts[placed.edit] += touched;
    if (touched == 0) return;
    if (placed.action == Action::noise) {
      value = attend::add(value, other);
      return;
    }
    if (placed.action == Action::skip) {
      other = block_inputs.at({visit.site.stack, visit.site.layer});
    } else if (!other.defined()) {
      other = Tensor::zeros(value.shape());
    }
    value = replace_where(value, other, mask);
  }

  void check_heads(const Site& site, const Tensor& projected) {
    const auto found = head_outputs.find({site.stack, site.layer, site.part});
    if (found == head_outputs.end()) return;
    const Tensor written = std::move(found->second);
    head_outputs.erase(found);
    const auto [difference, largest] =
        attend::head_parts_difference(*model, site.stack, site.layer, site.part, written, projected);
    const double relative = difference == 0 ? 0 : difference / std::max(largest, 1e-30);
    head_parts_difference = std::max(head_parts_difference, relative);
    ++head_parts_checked;
    if (relative > head_parts_tolerance)
      throw Error(ErrorKind::numeric, name_of(site),
                  join("the parts of the heads and the bias differ from the attention output by ", relative,
                       " of its largest number"),
                  "another probe changed it in between, or the weights are beyond what float32 can add");
  }
};

EditProbe::EditProbe(const Model& model, const Edits& edits, EditSources sources) : parts_(std::make_unique<Parts>()) {
  const std::vector<PlacedEdit> placed = place_edits(model, edits);
  refuse_contradictions(model, edits, placed);
  parts_->model = &model;
  parts_->edits = edits.list();
  parts_->sources = std::move(sources);
  parts_->counts.assign(edits.list().size(), 0);
  for (const PlacedEdit& each : placed) {
    if (edits_scores(each.action))
      add_score_edits(edits.list()[each.edit], each,
                      parts_->scores[{each.site.stack, each.site.layer, each.site.part}]);
    else parts_->rows[each.site].push_back(each);
  }
}

EditProbe::~EditProbe() = default;
EditProbe::EditProbe(EditProbe&&) noexcept = default;
EditProbe& EditProbe::operator=(EditProbe&&) noexcept = default;

EditReport EditProbe::report() const {
  EditReport report;
  for (std::size_t i = 0; i < parts_->edits.size(); ++i)
    report.edits.push_back({parts_->edits[i].name, parts_->edits[i].kind, parts_->counts[i]});
  report.head_parts_difference = parts_->head_parts_difference;
  report.head_parts_checked = parts_->head_parts_checked;
  return report;
}

void EditProbe::forget() {
  std::fill(parts_->counts.begin(), parts_->counts.end(), 0);
  parts_->head_parts_difference = 0;
  parts_->head_parts_checked = 0;
  parts_->block_inputs.clear();
  parts_->head_outputs.clear();
}

bool EditProbe::wants(const Site& site) const {
  if (parts_->rows.contains(site)) return true;
  if (site.point == Point::input) return parts_->skips(site);
  return site.point == Point::projected && parts_->checks_heads(site);
}

void EditProbe::visit(const Visit& visit, Tensor& value) {
  Parts& parts = *parts_;
  const Site& site = visit.site;
  if (site.point == Point::projected) parts.check_heads(site, value);
  if (const auto found = parts.rows.find(site); found != parts.rows.end())
    for (const PlacedEdit& placed : found->second) parts.apply(placed, visit, value);
  if (site.point == Point::input && parts.skips(site)) parts.block_inputs[{site.stack, site.layer}] = value;
  if (site.point == Point::output) parts.block_inputs.erase({site.stack, site.layer});
  if (site.point == Point::head_output && parts.checks_heads(site))
    parts.head_outputs[{site.stack, site.layer, site.part}] = value;
}

std::vector<ScoreEdit> EditProbe::score_edits(StackKind stack, int layer, Part part) const {
  const auto found = parts_->scores.find({stack, layer, part});
  return found == parts_->scores.end() ? std::vector<ScoreEdit>{} : found->second.edits;
}

void EditProbe::scores_edited(StackKind stack, int layer, Part part, std::span<const std::int64_t> counts) {
  const auto found = parts_->scores.find({stack, layer, part});
  if (found == parts_->scores.end()) return;
  for (std::size_t i = 0; i < counts.size() && i < found->second.sources.size(); ++i)
    parts_->counts[found->second.sources[i]] += counts[i];
}

// ---- Head parts -----------------------------------------------------------------------------------------------------

namespace {

// W_O of an attention, [width, heads * dim]; refuses a head_output that does not fit it.
const Tensor& output_weight(const Model& model, const std::string& output, const Tensor& head_output,
                            const char* operation) {
  const Parameter* const weight = find_parameter(model, output + ".weight");
  if (weight == nullptr)
    throw Error(ErrorKind::argument, operation, join("the model has no parameter '", output, ".weight'"),
                "name an attention: part self or cross of a layer it has");
  if (head_output.width() != weight->value.width())
    throw Error(ErrorKind::shape, operation, join("head_output is ", head_output.shape()),
                join("its rows must have ", weight->value.width(), " numbers"));
  return weight->value;
}

Tensor part_of_head(const Tensor& weight, const Tensor& rows, std::int64_t head, std::int64_t dim) {
  return matrix_product(rows.columns(head * dim, dim), weight.columns(head * dim, dim), true);
}

}  // namespace

Tensor head_parts(const Model& model, StackKind stack, int layer, Part part, const Tensor& head_output) {
  const Tensor& weight = output_weight(model, output_name(stack, layer, part), head_output, "head_parts");
  const TransformerConfig& config = model.config();
  const std::int64_t rows = head_output.rows();
  const NoGradientScope no_gradients;
  Tensor parts = Tensor::empty({rows, config.heads, config.width});
  for (std::int64_t head = 0; head < config.heads; ++head) {
    const Tensor of_head = part_of_head(weight, head_output, head, config.head_width());
    for (std::int64_t row = 0; row < rows; ++row)
      std::copy_n(of_head.row(row), config.width, parts.row(row * config.heads + head));
  }
  return parts;
}

HeadPartsDifference head_parts_difference(const Model& model, StackKind stack, int layer, Part part,
                                          const Tensor& head_output, const Tensor& projected) {
  const std::string output = output_name(stack, layer, part);
  const Tensor& weight = output_weight(model, output, head_output, "head_parts_difference");
  const Parameter* const bias = find_parameter(model, output + ".bias");
  const std::int64_t heads = model.config().heads, dim = model.config().head_width(), width = weight.rows();
  if (projected.rows() != head_output.rows() || projected.width() != width)
    throw Error(ErrorKind::shape, "head_parts_difference", join("the attention output is ", projected.shape()),
                join("it must be [", head_output.rows(), ", ", width, "]"));
  const NoGradientScope no_gradients;
  HeadPartsDifference result;
  for (std::int64_t begin = 0; begin < projected.rows(); begin += checked_rows) {
    const std::int64_t count = std::min(checked_rows, projected.rows() - begin);
    std::vector<double> sums(static_cast<std::size_t>(count * width));
    for (std::size_t i = 0; i < sums.size() && bias != nullptr; ++i)
      sums[i] = static_cast<double>(bias->value.data()[i % static_cast<std::size_t>(width)]);
    const Tensor rows = head_output.row_range(begin, count);
    for (std::int64_t head = 0; head < heads; ++head) {
      const Tensor of_head = part_of_head(weight, rows, head, dim);
      for (std::int64_t row = 0; row < count; ++row)
        for (std::int64_t column = 0; column < width; ++column)
          sums[static_cast<std::size_t>(row * width + column)] += static_cast<double>(of_head.row(row)[column]);
    }
    for (std::int64_t row = 0; row < count; ++row)
      for (std::int64_t column = 0; column < width; ++column) {
        const double sum = sums[static_cast<std::size_t>(row * width + column)],
                     value = static_cast<double>(projected.row(begin + row)[column]);
        if (!std::isfinite(sum) && !std::isfinite(value)) continue;
        const double difference =
            std::isnan(sum - value) ? std::numeric_limits<double>::infinity() : std::abs(sum - value);
        result.difference = std::max(result.difference, difference);
        result.largest_output = std::max(result.largest_output, std::abs(value));
      }
  }
  return result;
}

}  // namespace attend
