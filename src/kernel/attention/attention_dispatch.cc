// Which implementation answers which part of a call, and how the parts become tasks. Parts never share an output, and
// every row's sums run in an order of their own, so neither the grouping nor the threads change a bit of the result.
#include <algorithm>
#include <array>
#include <cmath>
#include <cstdlib>
#include <limits>
#include <optional>
#include <utility>

#include "attend/attention.h"
#include "attend/error.h"
#include "core/memory.h"
#include "core/threads.h"
#include "kernel/attention/attention_dropout.h"
#include "kernel/attention/attention_plan.h"
#include "kernel/attention/attention_statistics.h"

namespace attend {
namespace {

// Rows of one tiled unit at most: enough to pay for packing the keys, few enough to keep its sums in the second cache.
constexpr std::int64_t unit_rows = 480;

std::int64_t up(std::int64_t value, std::int64_t step) { return (value + step - 1) / step * step; }

AttentionEntry entry_of(const AttentionCall& call, const AttentionItem& item) {
  return item.queries * (call.query_heads / call.key_heads) <= decode_rows ? AttentionEntry::decode
                                                                           : AttentionEntry::tiled;
}

// Rough cost in multiply-adds, with a charge for packing and starting.
std::int64_t cost_of(const AttentionCall& call, const AttentionUnit& unit) {
  const std::int64_t keys = call.items[static_cast<std::size_t>(unit.item)].keys;
  return (unit.row_end - unit.row_begin + 8) * (keys + 16) * (call.head_dim + call.value_dim);
}

// Lists kept from call to call, so that a call of many short items allocates nothing.
struct Lists {
  std::vector<AttentionUnit> units;
  std::vector<AttentionUnit> long_units;  // decode units of several parts
  std::vector<std::int64_t> part_ends;    // running count of parts of long_units
  std::vector<BackwardPart> backward_parts;
  std::vector<std::size_t> task_ends;  // task t is units [task_ends[t - 1], task_ends[t])
};

Lists& lists() {
  thread_local Lists instance;
  instance.units.clear();
  instance.long_units.clear();
  instance.part_ends.clear();
  instance.backward_parts.clear();
  instance.task_ends.clear();
  return instance;
}

// Groups neighbouring units into tasks large enough to be worth handing out, yet several a thread.
template <typename Unit, typename Cost>
void group_tasks(const std::vector<Unit>& units, const Cost& cost, std::vector<std::size_t>& task_ends) {
  constexpr std::int64_t worth_a_task = 400'000;
  std::int64_t total = 0;
  for (const Unit& unit : units) total += cost(unit);
  const std::int64_t share = std::max(worth_a_task, total / (threads() * 16));
  std::int64_t sum = 0;
  for (std::size_t i = 0; i < units.size(); ++i) {
    sum += cost(units[i]);
    if (sum < share && i + 1 < units.size()) continue;
    task_ends.push_back(i + 1);
    sum = 0;
  }
}

// Rows a tiled unit gets when all units together should keep every thread busy.
std::int64_t rows_per_unit(std::int64_t rows, std::int64_t units_without_split) {
  std::int64_t most = unit_rows;
  if (threads() > 1) {
    const std::int64_t wanted = (threads() * 4 + units_without_split - 1) / units_without_split;
    most = std::clamp(up((rows + wanted - 1) / wanted, block_rows), block_rows, unit_rows);
  }
  const std::int64_t pieces = (rows + most - 1) / most;
  return up((rows + pieces - 1) / pieces, block_rows);
}

void add_tiled(std::vector<AttentionUnit>& units, AttentionUnit unit, std::int64_t rows,
               std::int64_t units_without_split, std::int64_t& most_rows) {
  const std::int64_t size = rows_per_unit(rows, units_without_split);
  for (std::int64_t begin = 0; begin < rows; begin += size) {
    unit.row_begin = begin;
    unit.row_end = std::min(rows, begin + size);
    most_rows = std::max(most_rows, unit.row_end - unit.row_begin);
    units.push_back(unit);
  }
}

struct ForwardPlan {
  std::int64_t most_rows = 0;  // of a tiled or explicit unit
  bool decodes = false;
};

ForwardPlan plan_forward(const AttentionJob& job, Lists& all) {
  const AttentionCall& call = *job.call;
  ForwardPlan plan;
  const std::int64_t group = call.query_heads / call.key_heads;
  const auto items = static_cast<std::int64_t>(call.items.size());
  const bool any_explicit = !call.matrices.empty() || !call.edits.empty();
  for (std::int64_t index = 0; index < items; ++index) {
    const AttentionItem& item = call.items[static_cast<std::size_t>(index)];
    if (item.queries == 0) continue;
    const AttentionEntry entry = entry_of(call, item);
    for (std::int64_t key_head = 0; key_head < call.key_heads; ++key_head) {
      AttentionUnit unit;
      unit.item = static_cast<std::int32_t>(index);
      const auto add = [&](std::int64_t head_begin, std::int64_t head_count, AttentionEntry chosen) {
        unit.entry = chosen;
        unit.head_begin = static_cast<std::int32_t>(head_begin);
        unit.head_count = static_cast<std::int32_t>(head_count);
        const std::int64_t rows = item.queries * head_count;
        if (chosen != AttentionEntry::decode) {
          add_tiled(all.units, unit, rows, items * call.key_heads, plan.most_rows);
          return;
        }
        plan.decodes = true;
        unit.row_begin = 0;
        unit.row_end = rows;
        if (item.keys <= decode_part_keys) {
          all.units.push_back(unit);
        } else {
          all.long_units.push_back(unit);
          const std::int64_t before = all.part_ends.empty() ? 0 : all.part_ends.back();
          all.part_ends.push_back(before + (item.keys + decode_part_keys - 1) / decode_part_keys);
        }
      };
      const std::int64_t first = key_head * group;
      bool split = false;
      if (any_explicit)
        for (std::int64_t head = first; head < first + group; ++head) split |= asks_for_scores(job, index, head);
      if (!split) {
        add(first, group, entry);
      } else {
        for (std::int64_t head = first; head < first + group; ++head)
          add(head, 1, asks_for_scores(job, index, head) ? AttentionEntry::explicit_heads : entry);
      }
    }
  }
  return plan;
}

void run_long_units(const AttentionJob& job, const Lists& all, float* scratch, std::int64_t scratch_size) {
  const std::int64_t step = decode_part_floats(*job.call);
  const std::int64_t part_count = all.part_ends.back();
  Buffer parts(part_count * decode_rows * step);
  const auto begin_of = [&](std::size_t unit) { return unit == 0 ? 0 : all.part_ends[unit - 1]; };
  parallel_for(part_count, [&](std::int64_t task, int worker) {
    const auto unit = static_cast<std::size_t>(std::upper_bound(all.part_ends.begin(), all.part_ends.end(), task) -
                                               all.part_ends.begin());
    decode_part(job, all.long_units[unit], task - begin_of(unit), parts.data() + begin_of(unit) * decode_rows * step,
                scratch + worker * scratch_size);
  });
  parallel_for(static_cast<std::int64_t>(all.long_units.size()), [&](std::int64_t task, int worker) {
    const auto unit = static_cast<std::size_t>(task);
    decode_merge(job, all.long_units[unit], all.part_ends[unit] - begin_of(unit),
                 parts.data() + begin_of(unit) * decode_rows * step, scratch + worker * scratch_size);
  });
}

// Asks the caches for the rows of a small unit while the one before it is computed: rows of one head lie a whole model
// width apart, which hardware prefetchers do not follow, and a short item is over before they would learn it.
void prefetch_rows(const float* data, std::int64_t row_stride, std::int64_t rows, std::int64_t width,
                   bool for_writing) {
  constexpr std::int64_t line = 16;
  for (std::int64_t row = 0; row < rows; ++row, data += row_stride)
    for (std::int64_t x = 0; x < width; x += line) {
      if (for_writing) __builtin_prefetch(data + x, 1);
      else __builtin_prefetch(data + x, 0);
    }
}

constexpr std::int64_t prefetch_lines = 1024;  // more would push out what is being worked on

void prefetch_keys(const AttentionCall& call, const AttentionItem& item, std::int64_t key_head) {
  if (item.key_pages != nullptr || item.keys * (call.head_dim + call.value_dim) > prefetch_lines * 16) return;
  prefetch_rows(call.key.data + item.key_begin * call.key.row_stride + key_head * call.key.head_stride,
                call.key.row_stride, item.keys, call.head_dim, false);
  prefetch_rows(call.value.data + item.key_begin * call.value.row_stride + key_head * call.value.head_stride,
                call.value.row_stride, item.keys, call.value_dim, false);
}

void prefetch_unit(const AttentionCall& call, const AttentionUnit& unit) {
  const AttentionItem& item = call.items[static_cast<std::size_t>(unit.item)];
  prefetch_keys(call, item, unit.head_begin / (call.query_heads / call.key_heads));
  if (item.queries * (call.head_dim + call.value_dim) * unit.head_count > prefetch_lines * 16) return;
  for (std::int64_t head = unit.head_begin; head < unit.head_begin + unit.head_count; ++head) {
    prefetch_rows(call.query.data + item.query_begin * call.query.row_stride + head * call.query.head_stride,
                  call.query.row_stride, item.queries, call.head_dim, false);
    prefetch_rows(call.output.data + item.query_begin * call.output.row_stride + head * call.output.head_stride,
                  call.output.row_stride, item.queries, call.value_dim, true);
  }
}

void prefetch_part(const AttentionCall& call, const AttentionGradients& gradients, const BackwardPart& part) {
  const AttentionItem& item = call.items[static_cast<std::size_t>(part.unit.item)];
  if ((item.queries * part.unit.head_count + item.keys) * (call.head_dim + call.value_dim) > prefetch_lines * 16)
    return;
  prefetch_unit(call, part.unit);
  const std::int64_t key_head = part.unit.head_begin / (call.query_heads / call.key_heads);
  const auto rows_of = [](const auto& view, std::int64_t row, std::int64_t head, std::int64_t rows, std::int64_t width,
                          bool for_writing) {
    if (view.data != nullptr)
      prefetch_rows(view.data + row * view.row_stride + head * view.head_stride, view.row_stride, rows, width,
                    for_writing);
  };
  for (std::int64_t head = part.unit.head_begin; head < part.unit.head_begin + part.unit.head_count; ++head) {
    rows_of(gradients.output_gradient, item.query_begin, head, item.queries, call.value_dim, false);
    rows_of(gradients.query, item.query_begin, head, item.queries, call.head_dim, true);
  }
  rows_of(gradients.key, item.key_begin, key_head, item.keys, call.head_dim, true);
  rows_of(gradients.value, item.key_begin, key_head, item.keys, call.value_dim, true);
}

const char* const entry_names[] = {"explicit", "decode", "tiled"};

}  // namespace

void attention_forward(const AttentionCall& call) {
  check_forward(call);
  AttentionJob job = make_job(call);
  std::optional<StatisticsPlan> statistics;
  if (call.statistics != nullptr) job.statistics = &statistics.emplace(call);
  if (call.edit_counts != nullptr) count_edits(call, call.edit_counts);
  Lists& all = lists();
  const ForwardPlan plan = plan_forward(job, all);
  std::int64_t scratch_size = 0;
  if (plan.most_rows > 0) scratch_size = tiled_scratch(call, plan.most_rows);
  if (plan.decodes) scratch_size = std::max(scratch_size, decode_scratch(call));
  scratch_size = up(scratch_size, 16);
  Buffer scratch(scratch_size * threads());

  group_tasks(
      all.units, [&](const AttentionUnit& unit) { return cost_of(call, unit); }, all.task_ends);
  parallel_for(static_cast<std::int64_t>(all.task_ends.size()), [&](std::int64_t task, int worker) {
    const auto index = static_cast<std::size_t>(task);
    float* own = scratch.data() + worker * scratch_size;
    for (std::size_t i = index == 0 ? 0 : all.task_ends[index - 1]; i < all.task_ends[index]; ++i) {
      const AttentionUnit& unit = all.units[i];
      if (i + 1 < all.task_ends[index]) prefetch_unit(call, all.units[i + 1]);
      if (unit.entry == AttentionEntry::tiled) tiled_forward(job, unit, own);
      else if (unit.entry == AttentionEntry::decode) decode_forward(job, unit, own);
      else explicit_forward(job, unit, own);
    }
  });
  if (!all.long_units.empty()) run_long_units(job, all, scratch.data(), scratch_size);
}

void attention_weights(const AttentionCall& forward, std::span<const WeightsTile> tiles) {
  check_weights(forward, tiles);
  const AttentionJob job = make_job(forward);
  // Pieces of one block of keys, which is packed once, and as many rows as a unit has.
  std::vector<WeightsTile> pieces;
  for (const WeightsTile& tile : tiles) {
    const std::int64_t stride = tile.row_stride != 0 ? tile.row_stride : tile.key_end - tile.key_begin;
    for (std::int64_t query = tile.query_begin; query < tile.query_end; query += unit_rows)
      for (std::int64_t key = tile.key_begin; key < tile.key_end; key += block_keys) {
        WeightsTile piece = tile;
        const std::int64_t offset = (query - tile.query_begin) * stride + key - tile.key_begin;
        piece.query_begin = query;
        piece.query_end = std::min(tile.query_end, query + unit_rows);
        piece.key_begin = key;
        piece.key_end = std::min(tile.key_end, key + block_keys);
        piece.row_stride = stride;
        if (tile.scores != nullptr) piece.scores += offset;
        if (tile.weights != nullptr) piece.weights += offset;
        pieces.push_back(piece);
      }
  }
  const std::int64_t scratch_size = up(rebuild_scratch(forward), 16);
  Buffer scratch(pieces.empty() ? 0 : scratch_size * threads());
  parallel_for(static_cast<std::int64_t>(pieces.size()), [&](std::int64_t task, int worker) {
    rebuild_weights(job, pieces[static_cast<std::size_t>(task)], scratch.data() + worker * scratch_size);
  });
}

std::string explain(const AttentionCall& call) {
  check_forward(call);
  const AttentionJob job = make_job(call);
  const std::int64_t group = call.query_heads / call.key_heads;
  std::string text, before;
  std::size_t run_begin = 0;
  const auto flush = [&](std::size_t end) {
    if (before.empty()) return;
    text += end - run_begin == 1 ? join("item ", run_begin) : join("items ", run_begin, " to ", end - 1);
    text += ": " + before + "\n";
  };
  for (std::size_t index = 0; index < call.items.size(); ++index) {
    const AttentionItem& item = call.items[index];
    std::string heads, line;
    std::int64_t asked = 0;
    for (std::int64_t head = 0; head < call.query_heads; ++head) {
      if (!asks_for_scores(job, static_cast<std::int64_t>(index), head)) continue;
      heads += (asked++ == 0 ? "" : ", ") + std::to_string(head);
    }
    if (item.queries == 0) {
      line = "nothing (no queries)";
    } else {
      if (asked > 0) line = "explicit for head " + heads + " (scores are asked for or edited)";
      if (asked < call.query_heads) {
        const AttentionEntry entry = entry_of(call, item);
        if (asked > 0) line += "; ";
        line += entry_names[static_cast<int>(entry)];
        if (asked > 0) line += " for the others";
        line += asked > 0 ? " (" : " (not explicit: no scores are asked for or edited; ";
        line +=
            join(entry == AttentionEntry::tiled ? "not decode: " : "", item.queries * group, " rows share a key head, ",
                 entry == AttentionEntry::tiled ? "more than " : "at most ", decode_rows, ")");
      }
    }
    if (line != before) {
      flush(index);
      run_begin = index;
      before = line;
    }
  }
  flush(call.items.size());
  return text;
}

namespace {

// Whose tasks may add to the same gradients: then these run one after another, in order of items and heads.
enum class Sharing { none, items, heads, both };

bool items_share_keys(const AttentionCall& call) {
  std::int64_t end = 0;
  for (const AttentionItem& item : call.items) {
    if (item.keys == 0 || item.queries == 0) continue;
    if (item.key_begin < end) return true;  // also when merely out of order, which only costs speed
    end = item.key_begin + item.keys;
  }
  return false;
}

// Whether scores of different items, heads or keys may have the same element of the bias, which then gets the sum of
// their gradients. Told from the strides: axes nest when a step along one is longer than all shorter ones together.
// Strides that do not nest count as shared, which only costs speed.
struct BiasSharing {
  bool items = false, heads = false, keys = false;
};

BiasSharing bias_sharing(const AttentionCall& call) {
  const ScoreBias& bias = call.rules.bias;
  std::int64_t queries = 1, keys = 1;
  for (const AttentionItem& item : call.items) {
    queries = std::max(queries, item.queries);
    keys = std::max(keys, item.keys);
  }
  std::array<std::pair<std::int64_t, std::int64_t>, 4> axes{
      {{std::abs(bias.item_stride), static_cast<std::int64_t>(call.items.size())},
       {std::abs(bias.head_stride), call.query_heads},
       {std::abs(bias.query_stride), queries},
       {std::abs(bias.key_stride), keys}}};
  std::sort(axes.begin(), axes.end());
  double reach = 0;  // largest distance that the shorter axes span
  for (const auto& [stride, size] : axes) {
    if (stride == 0 || size <= 1) continue;
    if (static_cast<double>(stride) <= reach) return {true, true, true};
    reach += static_cast<double>(stride) * static_cast<double>(size - 1);
  }
  return {bias.item_stride == 0, bias.head_stride == 0, bias.key_stride == 0};
}

Sharing sharing_of(const AttentionCall& call, const AttentionGradients& gradients) {
  bool items = items_share_keys(call) || gradients.relative_table != nullptr, heads = false;
  if (gradients.bias != nullptr) {
    const BiasSharing bias = bias_sharing(call);
    items |= bias.items;
    heads |= bias.heads;
  }
  return items && heads ? Sharing::both : items ? Sharing::items : heads ? Sharing::heads : Sharing::none;
}

BackwardPart whole_part(const AttentionCall& call, std::int64_t item, std::int64_t key_head) {
  const std::int64_t group = call.query_heads / call.key_heads;
  BackwardPart part;
  part.unit.item = static_cast<std::int32_t>(item);
  part.unit.head_begin = static_cast<std::int32_t>(key_head * group);
  part.unit.head_count = static_cast<std::int32_t>(group);
  part.unit.row_end = call.items[static_cast<std::size_t>(item)].queries * group;
  part.key_end = call.items[static_cast<std::size_t>(item)].keys;
  return part;
}

// Parts in an order such that the parts of one task, given by task_ends, may share gradients.
void plan_backward(const AttentionCall& call, const AttentionGradients& gradients, Lists& all) {
  const Sharing sharing = sharing_of(call, gradients);
  const auto items = static_cast<std::int64_t>(call.items.size());
  std::vector<BackwardPart>& parts = all.backward_parts;
  const auto add = [&](std::int64_t item, std::int64_t key_head) {
    const BackwardPart part = whole_part(call, item, key_head);
    if (part.unit.row_end > 0 && part.key_end > 0) parts.push_back(part);
  };
  const auto end_task = [&] {
    if (parts.size() > (all.task_ends.empty() ? 0 : all.task_ends.back())) all.task_ends.push_back(parts.size());
  };
  if (sharing == Sharing::items || sharing == Sharing::both) {
    for (std::int64_t key_head = 0; key_head < call.key_heads; ++key_head) {
      for (std::int64_t item = 0; item < items; ++item) add(item, key_head);
      if (sharing == Sharing::items) end_task();
    }
    end_task();
    return;
  }
  for (std::int64_t item = 0; item < items; ++item) {
    for (std::int64_t key_head = 0; key_head < call.key_heads; ++key_head) add(item, key_head);
    if (sharing == Sharing::heads) end_task();
  }
  if (sharing == Sharing::heads) return;

  const bool keys_share = gradients.bias != nullptr && bias_sharing(call).keys;
  if (static_cast<std::int64_t>(parts.size()) < 2 * threads() && threads() > 1 && !keys_share) {
    // Too few to share out: one sweep over keys for the queries' rows, another over rows for keys and values. Rebuilding
    // the weights twice costs 7 products for 5, so it is done only here; the bits are the same.
    const std::vector<BackwardPart> whole = parts;
    parts.clear();
    for (const BackwardPart& part : whole) {
      const std::int64_t wanted = threads() * 4;
      const std::int64_t rows = part.unit.row_end, row_step = up((rows + wanted - 1) / wanted, block_rows);
      for (std::int64_t begin = 0; begin < rows && gradients.query.data != nullptr; begin += row_step) {
        BackwardPart piece = part;
        piece.unit.row_begin = begin;
        piece.unit.row_end = std::min(rows, begin + row_step);
        piece.want_key = false;
        parts.push_back(piece);
      }
      const std::int64_t key_step = up((part.key_end + wanted - 1) / wanted, backward_block_keys);
      for (std::int64_t begin = 0; begin < part.key_end; begin += key_step) {
        BackwardPart piece = part;
        piece.key_begin = begin;
        piece.key_end = std::min(part.key_end, begin + key_step);
        piece.want_query = false;
        parts.push_back(piece);
      }
    }
  }
  group_tasks(
      parts, [&](const BackwardPart& part) { return 3 * cost_of(call, part.unit); }, all.task_ends);
}

double dropout_factor(const AttentionJob& job, std::int64_t item, std::int64_t head, std::int64_t query,
                      std::int64_t key) {
  if (job.drop_below == 0) return 1;
  return dropout_drops(job.call->dropout.seed, item, head, query, key, job.drop_below) ? 0
                                                                                       : kept_factor_of(job.drop_below);
}

double product_with_value(const AttentionCall& call, const AttentionItem& item, std::int64_t head, std::int64_t key,
                          const float* gradient) {
  const std::int64_t key_head = head / (call.query_heads / call.key_heads);
  const float* value =
      call.value.data + (item.key_begin + key) * call.value.row_stride + key_head * call.value.head_stride;
  double product = 0;
  for (std::int64_t x = 0; x < call.value_dim; ++x) product += static_cast<double>(gradient[x]) * value[x];
  return product;
}

// d loss / d sink = - sum over rows of exp(sink - log_sum_exp) * <output gradient, output>, rows in order.
// Locked weights owe nothing to the sink: of the product only the share of the other keys counts.
void add_sink_gradients(const AttentionJob& job, const AttentionGradients& gradients) {
  const AttentionCall& call = *job.call;
  parallel_for(call.query_heads, [&](std::int64_t head, int) {
    double sum = 0;
    for (std::int64_t index = 0; index < static_cast<std::int64_t>(call.items.size()); ++index) {
      const AttentionItem& item = call.items[static_cast<std::size_t>(index)];
      for (std::int64_t row = item.query_begin; row < item.query_begin + item.queries; ++row) {
        const float log_sum = call.log_sum_exp[row * call.query_heads + head];
        if (log_sum == -std::numeric_limits<float>::infinity()) continue;
        const float* gradient = gradients.output_gradient.data + row * gradients.output_gradient.row_stride +
                                head * gradients.output_gradient.head_stride;
        const float* output = call.output.data + row * call.output.row_stride + head * call.output.head_stride;
        double product = 0;
        for (std::int64_t x = 0; x < call.value_dim; ++x) product += static_cast<double>(gradient[x]) * output[x];
        if (const RowLocks locks = locks_of(job, index, head, row - item.query_begin); !locks.scores.empty()) {
          if (locks.all()) continue;
          for (const LockedScore& lock : locks.scores)
            product -= lock.weight * dropout_factor(job, index, head, lock.query, lock.key) *
                       product_with_value(call, item, head, lock.key, gradient);
          product /= 1 - locks.sum;
        }
        sum -= std::exp(static_cast<double>(call.rules.sinks[static_cast<std::size_t>(head)]) - log_sum) * product;
      }
    }
    gradients.sinks[head] += static_cast<float>(sum);
  });
}

}  // namespace

void attention_backward(const AttentionCall& forward, const AttentionGradients& gradients) {
  check_backward(forward, gradients);
  const AttentionJob job = make_job(forward);
  Lists& all = lists();
  plan_backward(forward, gradients, all);
  std::int64_t most_rows = 0;
  for (const BackwardPart& part : all.backward_parts)
    most_rows = std::max(most_rows, part.unit.row_end - part.unit.row_begin);
  const std::int64_t scratch_size = up(backward_scratch(forward, most_rows), 16);
  Buffer scratch(most_rows == 0 ? 0 : scratch_size * threads());
  parallel_for(static_cast<std::int64_t>(all.task_ends.size()), [&](std::int64_t task, int worker) {
    const auto index = static_cast<std::size_t>(task);
    for (std::size_t i = index == 0 ? 0 : all.task_ends[index - 1]; i < all.task_ends[index]; ++i) {
      if (i + 1 < all.task_ends[index]) prefetch_part(forward, gradients, all.backward_parts[i + 1]);
      backward_part(job, gradients, all.backward_parts[i], scratch.data() + worker * scratch_size);
    }
  });
  if (gradients.sinks != nullptr) add_sink_gradients(job, gradients);
}

}  // namespace attend
