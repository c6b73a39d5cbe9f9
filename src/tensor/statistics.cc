#include "attend/statistics.h"

#include <algorithm>
#include <numeric>

#include "attend/error.h"
#include "tensor/asked_statistics.h"

namespace attend {

// ---- Records --------------------------------------------------------------------------------------------------------
namespace {

Tensor rebuilt(const AttentionRecord& record, WeightsTile tile, float* WeightsTile::*matrix) {
  Tensor out = Tensor::zeros({std::max<std::int64_t>(tile.query_end - tile.query_begin, 0),
                              std::max<std::int64_t>(tile.key_end - tile.key_begin, 0)});
  tile.*matrix = out.data();
  attention_weights(record.query, record.key, record.input, record.log_sum_exp, {&tile, 1});
  return out;
}

// Position lists that a copy of an item points to: shared by all copies of the record.
using PositionLists = std::vector<std::vector<std::int32_t>>;

}  // namespace

Tensor AttentionRecord::weights(std::int64_t item, std::int64_t head, std::int64_t query_begin, std::int64_t query_end,
                                std::int64_t key_begin, std::int64_t key_end) const {
  return rebuilt(*this, {item, head, query_begin, query_end, key_begin, key_end, nullptr, nullptr, 0},
                 &WeightsTile::weights);
}

Tensor AttentionRecord::scores(std::int64_t item, std::int64_t head, std::int64_t query_begin, std::int64_t query_end,
                               std::int64_t key_begin, std::int64_t key_end) const {
  return rebuilt(*this, {item, head, query_begin, query_end, key_begin, key_end, nullptr, nullptr, 0},
                 &WeightsTile::scores);
}

AttentionRecord AttentionRecord::kept() const {
  AttentionRecord copy{query.clone(), {}, log_sum_exp.clone(), input, nullptr};
  copy.input.matrices.clear();
  copy.input.edit_counts = nullptr;
  copy.input.statistics = nullptr;
  copy.input.page_rows = 0;
  const std::int64_t width = input.key_heads * input.head_dim;
  std::int64_t rows = 0;
  bool pages = false;
  auto lists = std::make_shared<PositionLists>();
  for (AttentionItem& item : copy.input.items) {
    pages |= item.key_pages != nullptr;
    rows += item.keys;
    const auto keep = [&](const std::int32_t*& list, std::int64_t count) {
      if (list == nullptr) return;
      lists->emplace_back(list, list + count);
      list = lists->back().data();  // stays where it is when the list of lists grows
    };
    keep(item.query_positions, item.queries);
    keep(item.key_positions, item.keys);
  }
  copy.positions = lists;
  if (!pages) {
    if (key.defined()) copy.key = key.clone();
    return copy;
  }
  copy.key = Tensor::empty({rows, width});
  std::int64_t next = 0;
  for (std::size_t i = 0; i < input.items.size(); ++i) {
    const AttentionItem& from = input.items[i];
    AttentionItem& to = copy.input.items[i];
    to.key_begin = next;
    to.key_pages = to.value_pages = nullptr;
    for (std::int64_t j = 0; j < from.keys; ++j) {
      const float* row = from.key_pages != nullptr ? from.key_pages[j / input.page_rows] + j % input.page_rows * width
                                                   : key.row(from.key_begin + j);
      std::copy_n(row, width, copy.key.row(next++));
    }
  }
  return copy;
}

// ---- Requests -------------------------------------------------------------------------------------------------------
namespace {

// Columns of heads in the result of a united request.
std::vector<std::size_t> columns_of(const StatisticsResult& result, const StatisticsRequest& request) {
  std::vector<std::size_t> columns;
  if (request.heads.empty()) {
    columns.resize(result.heads.size());
    std::iota(columns.begin(), columns.end(), std::size_t{0});
    return columns;
  }
  for (const std::int32_t head : request.heads)
    columns.push_back(static_cast<std::size_t>(std::lower_bound(result.heads.begin(), result.heads.end(), head) -
                                               result.heads.begin()));
  return columns;
}

// The first `width` of `step` numbers from `offset` on, of each column.
template <typename Number>
void copy_columns(const Number* from, std::int64_t rows, std::size_t heads, std::int64_t step, std::int64_t offset,
                  std::int64_t width, const std::vector<std::size_t>& columns, Number* to) {
  for (std::int64_t row = 0; row < rows; ++row)
    for (const std::size_t column : columns) {
      std::copy_n(from + (row * static_cast<std::int64_t>(heads) + static_cast<std::int64_t>(column)) * step + offset,
                  width, to);
      to += width;
    }
}

}  // namespace

StatisticsRequest united(std::span<const StatisticsRequest> requests) {
  StatisticsRequest all = requests.front();
  bool every_head = all.heads.empty();
  for (const StatisticsRequest& request : requests.subspan(1)) {
    every_head |= request.heads.empty();
    all.heads.insert(all.heads.end(), request.heads.begin(), request.heads.end());
    all.entropy |= request.entropy;
    all.distance |= request.distance;
    all.first |= request.first;
    all.self |= request.self;
    all.previous |= request.previous;
    all.sink |= request.sink;
    all.top = std::max(all.top, request.top);
    for (KeySpan span : request.spans) {
      span.list += all.lists;
      all.spans.push_back(span);
    }
    all.lists += request.lists;
  }
  std::sort(all.heads.begin(), all.heads.end());
  all.heads.erase(std::unique(all.heads.begin(), all.heads.end()), all.heads.end());
  if (every_head) all.heads.clear();
  return all;
}

StatisticsResult part_of(const StatisticsResult& result, std::span<const StatisticsRequest> requests,
                         std::size_t index) {
  if (requests.size() == 1) return result;
  const StatisticsRequest& request = requests[index];
  const std::vector<std::size_t> columns = columns_of(result, request);
  const std::int64_t rows = result.log_sum_exp.rows(), chosen = static_cast<std::int64_t>(columns.size());
  StatisticsResult part;
  for (const std::size_t column : columns) part.heads.push_back(result.heads[column]);
  part.top = request.top;
  part.lists = request.lists;
  part.log_sum_exp = result.log_sum_exp;
  const auto copy = [&](bool wanted, const Tensor& from, Tensor& to, std::int64_t step, std::int64_t offset,
                        std::int64_t width) {
    if (!wanted) return;
    to = Tensor::empty({rows, chosen * width});
    copy_columns(from.data(), rows, result.heads.size(), step, offset, width, columns, to.data());
  };
  copy(request.entropy, result.entropy, part.entropy, 1, 0, 1);
  copy(request.distance, result.distance, part.distance, 1, 0, 1);
  copy(request.first, result.first, part.first, 1, 0, 1);
  copy(request.self, result.self, part.self, 1, 0, 1);
  copy(request.previous, result.previous, part.previous, 1, 0, 1);
  copy(request.sink, result.sink, part.sink, 1, 0, 1);
  std::int64_t first_list = 0;
  for (std::size_t i = 0; i < index; ++i) first_list += requests[i].lists;
  copy(request.lists > 0, result.list_mass, part.list_mass, result.lists, first_list, request.lists);
  copy(request.top > 0, result.top_weights, part.top_weights, result.top, 0, request.top);
  if (request.top > 0) {
    part.top_keys.resize(static_cast<std::size_t>(rows * chosen * request.top));
    copy_columns(result.top_keys.data(), rows, result.heads.size(), result.top, 0, request.top, columns,
                 part.top_keys.data());
  }
  return part;
}

AskedStatistics::AskedStatistics(const StatisticsRequest& request, std::int64_t rows, const AttentionInput& input,
                                 std::span<const std::int64_t> item_numbers)
    : heads_(request.heads) {
  result_.heads = heads_;
  if (heads_.empty()) {
    result_.heads.resize(static_cast<std::size_t>(input.query_heads));
    std::iota(result_.heads.begin(), result_.heads.end(), 0);
  }
  for (const KeySpan& span : request.spans) {
    if (span.item < 0 || item_numbers.empty()) {
      if (span.item < static_cast<std::int64_t>(input.items.size())) spans_.push_back(span);
      continue;
    }
    for (std::size_t item = 0; item < std::min(input.items.size(), item_numbers.size()); ++item)
      if (item_numbers[item] == span.item) {
        spans_.push_back(span);
        spans_.back().item = static_cast<std::int64_t>(item);
      }
  }
  result_.top = request.top;
  result_.lists = request.lists;
  const auto chosen = static_cast<std::int64_t>(result_.heads.size());
  // Zeros, so that rows of no item have some; keys -1.
  const auto room = [&](bool wanted, Tensor& values, std::int64_t width) -> float* {
    if (!wanted) return nullptr;
    values = Tensor::zeros({rows, chosen * width});
    return values.data();
  };
  outputs_.heads = heads_;
  outputs_.spans = spans_;
  outputs_.lists = request.lists;
  outputs_.top = request.top;
  outputs_.entropy = room(request.entropy, result_.entropy, 1);
  outputs_.distance = room(request.distance, result_.distance, 1);
  outputs_.first = room(request.first, result_.first, 1);
  outputs_.self = room(request.self, result_.self, 1);
  outputs_.previous = room(request.previous, result_.previous, 1);
  outputs_.sink = room(request.sink, result_.sink, 1);
  outputs_.list_mass = room(request.lists > 0, result_.list_mass, request.lists);
  outputs_.top_weights = room(request.top > 0, result_.top_weights, request.top);
  if (request.top > 0) {
    result_.top_keys.assign(static_cast<std::size_t>(rows * chosen * request.top), -1);
    outputs_.top_keys = result_.top_keys.data();
  }
}

// ---- StatisticsRecorder -----------------------------------------------------------------------------------------------

std::optional<StatisticsRequest> StatisticsRecorder::statistics(StackKind stack, int layer, Part part) const {
  const auto found = requests_.find({stack, layer, part});
  return found != requests_.end() ? std::optional(found->second) : everywhere_;
}

void StatisticsRecorder::visit_statistics(const StatisticsVisit& visit) {
  const auto copy = [](std::span<const std::int64_t> from) {
    return std::vector<std::int64_t>(from.begin(), from.end());
  };
  Run run{visit.result, std::nullopt, copy(visit.visit.offsets), copy(visit.visit.first_positions),
          copy(visit.visit.item_numbers)};
  if (keeps_records_) run.record = visit.record.kept();
  const Site& site = visit.visit.site;
  runs_[{site.stack, site.layer, site.part}].push_back(std::move(run));
}

const std::vector<StatisticsRecorder::Run>& StatisticsRecorder::runs(StackKind stack, int layer, Part part) const {
  const auto found = runs_.find({stack, layer, part});
  if (found != runs_.end()) return found->second;
  const auto text = [](const Place& place) {
    return join(name_of(std::get<0>(place)), '.', std::get<1>(place), '.', name_of(std::get<2>(place)));
  };
  std::string recorded;
  for (const auto& [place, unused] : runs_) recorded += (recorded.empty() ? "" : ", ") + text(place);
  throw Error(ErrorKind::argument, "StatisticsRecorder::runs", text({stack, layer, part}) + " was not recorded",
              "recorded: " + (recorded.empty() ? "nothing" : recorded));
}

}  // namespace attend
