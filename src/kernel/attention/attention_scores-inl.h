// Blocks of scores: rules, edits, masks and dropout applied row by row, the same for forward, explicit and backward.
#if defined(ATTEND_ATTENTION_SCORES_INL_H) == defined(HWY_TARGET_TOGGLE)
#ifdef ATTEND_ATTENTION_SCORES_INL_H
#undef ATTEND_ATTENTION_SCORES_INL_H
#else
#define ATTEND_ATTENTION_SCORES_INL_H
#endif

#include <cstdint>
#include <limits>

#include "hwy/contrib/math/math-inl.h"
#include "hwy/highway.h"
#include "kernel/attention/attention_dropout.h"
#include "kernel/attention/attention_plan.h"
#include "kernel/attention/attention_tile-inl.h"
#include "kernel/attention/mask_blocks.h"

HWY_BEFORE_NAMESPACE();
namespace attend {
namespace attention {
namespace HWY_NAMESPACE {

constexpr float minus_infinity = -std::numeric_limits<float>::infinity();

// Hands out aligned parts of a worker's scratch.
struct Carver {
  float* next;
  HWY_INLINE float* take(std::int64_t floats) {
    float* part = next;
    next += rounded_up(floats, 16);
    return part;
  }
};

// A unit with all that its scores depend on.
struct ScoreContext {
  const AttentionJob* job;
  const AttentionCall* call;
  const AttentionItem* item;
  const AttentionUnit* unit;
  ItemMask mask;
  // Relative bias of consecutive positions, by key index - query index: one row of relative_size floats a head, where
  // entry 0 is index difference relative_first. Null where positions are listed or there is no such rule.
  const float* relative = nullptr;
  std::int64_t relative_first = 0, relative_size = 0;
  // Indices of the edits that may name a score here, and whether there are locks.
  const std::int32_t* edits = nullptr;
  std::int64_t edit_count = 0;
  bool locked = false;
  std::uint8_t* bytes = nullptr;  // [block_keys]

  bool edited() const { return edit_count > 0 || locked; }

  HWY_INLINE std::int64_t query(std::int64_t row) const { return unit->head_count == 1 ? row : row / unit->head_count; }
  HWY_INLINE std::int64_t head(std::int64_t row) const {
    return unit->head_count == 1 ? unit->head_begin : unit->head_begin + row % unit->head_count;
  }
};

// A rectangle of a unit: rows as in AttentionUnit, keys [key, key + keys), of which columns [begin, end) are wanted.
// `begin` is a multiple of panel, `end` of panel or the end of the block up to whole vectors.
struct Rectangle {
  std::int64_t row, rows;
  std::int64_t key, keys;
  std::int64_t begin, end;
  bool masked;  // some score may be hidden, so look inside
};

HWY_INLINE const float* query_row(const ScoreContext& context, std::int64_t row) {
  const HeadsView& view = context.call->query;
  return view.data + (context.item->query_begin + context.query(row)) * view.row_stride +
         context.head(row) * view.head_stride;
}

// Fills pointers to `count` rows of keys or values from key `first` on, and `padding` more that point to zeros.
HWY_INLINE void key_rows(const ScoreContext& context, const HeadsView& view, const float* const* pages,
                         std::int64_t width, std::int64_t first, std::int64_t count, const float* zeros,
                         std::int64_t padding, const float** rows) {
  const std::int64_t head = context.unit->head_begin / context.job->group;
  if (pages == nullptr) {
    const float* start = view.data + (context.item->key_begin + first) * view.row_stride + head * view.head_stride;
    for (std::int64_t j = 0; j < count; ++j) rows[j] = start + j * view.row_stride;
  } else {
    const std::int64_t stride = context.call->key_heads * width;
    std::int64_t page = first / context.call->page_rows, row = first % context.call->page_rows;
    for (std::int64_t j = 0; j < count; ++j) {
      rows[j] = pages[page] + row * stride + head * width;
      if (++row == context.call->page_rows) {
        row = 0;
        ++page;
      }
    }
  }
  for (std::int64_t j = count; j < count + padding; ++j) rows[j] = zeros;
}

HWY_INLINE std::int64_t relative_floats(const AttentionCall& call, std::int64_t most_rows) {
  if (call.rules.relative.table == nullptr) return 0;
  std::int64_t keys = 0;
  for (const AttentionItem& item : call.items) keys = larger(keys, item.keys);
  return call.query_heads / call.key_heads * rounded_up(keys + most_rows + 1, 16);
}

// Writes the relative bias of all index differences that a unit can meet with keys [key_begin, key_end).
inline HWY_NOINLINE void lay_out_relative(ScoreContext& context, float* table, std::int64_t key_begin,
                                          std::int64_t key_end) {
  const RelativeBias& relative = context.call->rules.relative;
  const AttentionUnit& unit = *context.unit;
  const std::int64_t query_begin = context.query(unit.row_begin), query_end = context.query(unit.row_end - 1) + 1;
  const std::int64_t shift = context.item->key_position - context.item->query_position - relative.first_distance;
  const auto last = static_cast<std::int64_t>(relative.buckets.size()) - 1;
  context.relative = table;
  context.relative_first = key_begin - (query_end - 1);
  const std::int64_t used = key_end - 1 - query_begin - context.relative_first + 1;
  context.relative_size = rounded_up(used, 16);
  for (std::int64_t h = 0; h < unit.head_count; ++h)
    for (std::int64_t step = 0; step < used; ++step) {
      std::int64_t at = step + context.relative_first + shift;
      at = at < 0 ? 0 : at > last ? last : at;
      table[h * context.relative_size + step] =
          relative
              .table[relative.buckets[static_cast<std::size_t>(at)] * context.call->query_heads + unit.head_begin + h];
    }
}

HWY_INLINE void find_edits(ScoreContext& context, float* room) {
  auto* edits = reinterpret_cast<std::int32_t*>(room);
  context.edit_count = edits_of_unit(*context.job, *context.unit, edits);
  context.edits = edits;
  context.locked = !context.job->locks.empty();
}

// Calls use(edit, column) for all edits and columns [begin, end) of a row of the block from `key` on, edit by edit.
template <class Use>
HWY_INLINE void for_edits(const ScoreContext& context, std::int64_t head, std::int64_t query, std::int64_t key,
                          std::int64_t begin, std::int64_t end, const Use& use) {
  const AttentionItem& item = *context.item;
  for (std::int64_t e = 0; e < context.edit_count; ++e) {
    const ScoreEdit& edit = context.call->edits[static_cast<std::size_t>(context.edits[e])];
    if ((edit.head != -1 && edit.head != head) || !names_query(edit, item, query)) continue;
    const KeyRange range = named_keys(edit, item, query, key + begin, key + end);
    for (std::int64_t at = range.begin; at < range.end; ++at)
      if (item.key_positions == nullptr || names_key(edit, item, query, at)) use(edit, at - key);
  }
}

// Score rules and edits of one row: s holds scaled products and receives scores. cap_slopes, when not null, receives the
// derivative of the soft cap.
inline HWY_NOINLINE void apply_rules(const ScoreContext& context, std::int64_t row, const Rectangle& at,
                                     float* HWY_RESTRICT s, float* HWY_RESTRICT cap_slopes) {
  const ScoreRules& rules = context.call->rules;
  const AttentionItem& item = *context.item;
  const std::int64_t head = context.head(row), query = context.query(row), end = smaller(at.end, at.keys);
  if (rules.soft_cap > 0) {
    const Tag d;
    const Vector cap = hn::Set(d, rules.soft_cap), inverse = hn::Set(d, 1 / rules.soft_cap), one = hn::Set(d, 1.0f);
    for (std::int64_t j = at.begin; j < end; j += lanes) {
      const Vector t = hn::Tanh(d, hn::Mul(hn::LoadU(d, s + j), inverse));
      hn::StoreU(hn::Mul(cap, t), d, s + j);
      if (cap_slopes != nullptr) hn::StoreU(hn::NegMulAdd(t, t, one), d, cap_slopes + j);
    }
  }
  if (!rules.slopes.empty()) {
    const float slope = rules.slopes[static_cast<std::size_t>(head)];
    if (consecutive(item)) {
      // Positions fit int32 wherever a sequence fits memory; the difference is exact in float below 2^24.
      const auto difference = static_cast<std::int32_t>(query_position(item, query) - key_position(item, at.key));
      for (auto j = static_cast<std::int32_t>(at.begin); j < end; ++j) {
        const std::int32_t distance = difference > j ? difference - j : j - difference;
        s[j] -= slope * static_cast<float>(distance);
      }
    } else {
      for (std::int64_t j = at.begin; j < end; ++j) {
        const std::int64_t distance = query_position(item, query) - key_position(item, at.key + j);
        s[j] -= slope * static_cast<float>(distance < 0 ? -distance : distance);
      }
    }
  }
  if (context.relative != nullptr) {
    const float* HWY_RESTRICT table = context.relative + (head - context.unit->head_begin) * context.relative_size +
                                      (at.key - query - context.relative_first);
    for (std::int64_t j = at.begin; j < end; ++j) s[j] += table[j];
  } else if (rules.relative.table != nullptr) {
    const auto last = static_cast<std::int64_t>(rules.relative.buckets.size()) - 1;
    for (std::int64_t j = at.begin; j < end; ++j) {
      std::int64_t step = key_position(item, at.key + j) - query_position(item, query) - rules.relative.first_distance;
      step = step < 0 ? 0 : step > last ? last : step;
      s[j] += rules.relative
                  .table[rules.relative.buckets[static_cast<std::size_t>(step)] * context.call->query_heads + head];
    }
  }
  if (rules.bias.data != nullptr) {
    const float* HWY_RESTRICT bias = rules.bias.data + context.unit->item * rules.bias.item_stride +
                                     head * rules.bias.head_stride + query * rules.bias.query_stride +
                                     at.key * rules.bias.key_stride;
    if (rules.bias.key_stride == 1)
      for (std::int64_t j = at.begin; j < end; ++j) s[j] += bias[j];
    else
      for (std::int64_t j = at.begin; j < end; ++j) s[j] += bias[j * rules.bias.key_stride];
  }
  for_edits(context, head, query, at.key, at.begin, end, [s](const ScoreEdit& edit, std::int64_t j) {
    if (edit.kind == ScoreEdit::Kind::set) s[j] = edit.value;
    if (edit.kind == ScoreEdit::Kind::add) s[j] += edit.value;
    if (edit.kind == ScoreEdit::Kind::scale) s[j] *= edit.value;
  });
}

// Minus infinity wherever the row does not see a key, up to at.end, also past the last key.
inline HWY_NOINLINE void hide(const ScoreContext& context, std::int64_t row, const Rectangle& at,
                              float* HWY_RESTRICT s) {
  const std::int64_t head = context.head(row), query = context.query(row), end = smaller(at.end, at.keys);
  std::int64_t first = at.begin, last = end;
  if (at.masked) {
    const KeyRange seen = context.mask.interval(query);
    first = smaller(larger(seen.begin - at.key, at.begin), end);
    last = larger(smaller(seen.end - at.key, end), first);
    for (std::int64_t j = at.begin; j < first; ++j) s[j] = minus_infinity;
  }
  for (std::int64_t j = last; j < at.end; ++j) s[j] = minus_infinity;
  if (at.masked && context.mask.has_element_rules() && first < last) {
    context.mask.visible(head, query, at.key + first, at.key + last, context.bytes);
    const std::uint8_t* HWY_RESTRICT bytes = context.bytes;
    for (std::int64_t j = first; j < last; ++j) s[j] = bytes[j - first] != 0 ? s[j] : minus_infinity;
  }
  for_edits(context, head, query, at.key, at.begin, end, [s](const ScoreEdit& edit, std::int64_t j) {
    if (edit.kind == ScoreEdit::Kind::forbid) s[j] = minus_infinity;
  });
  if (!context.locked) return;
  // Locked keys stay out of the softmax over the others, and these out of it where nothing is left for them.
  const RowLocks locks = locks_of(*context.job, context.unit->item, head, query);
  if (!locks.scores.empty() && locks.all())
    for (std::int64_t j = at.begin; j < end; ++j) s[j] = minus_infinity;
  for (const LockedScore& lock : locks.scores)
    if (lock.key >= at.key + at.begin && lock.key < at.key + end) s[lock.key - at.key] = minus_infinity;
}

// Scores of a rectangle from products already in s [rows, score_stride].
HWY_INLINE void finish_scores(const ScoreContext& context, const Rectangle& at, float* s, float* cap_slopes) {
  if (!context.job->plain_scores)
    for (std::int64_t r = 0; r < at.rows; ++r)
      apply_rules(context, at.row + r, at, s + r * score_stride,
                  cap_slopes == nullptr ? nullptr : cap_slopes + r * score_stride);
  if (at.masked || context.edited()) {
    for (std::int64_t r = 0; r < at.rows; ++r) hide(context, at.row + r, at, s + r * score_stride);
  } else if (at.end > at.keys) {
    const Tag d;
    const std::int64_t last = at.end - lanes;
    const auto real = hn::FirstN(d, static_cast<std::size_t>(at.keys - last));
    for (std::int64_t r = 0; r < at.rows; ++r) {
      float* to = s + r * score_stride + last;
      hn::StoreU(hn::IfThenElse(real, hn::LoadU(d, to), hn::Set(d, minus_infinity)), d, to);
    }
  }
}

// Columns of a block of rows: element x of row r at x * block_rows + r, times the scale. `zeros` holds head_dim floats.
HWY_INLINE void pack_queries(const ScoreContext& context, std::int64_t row, std::int64_t rows, const float* zeros,
                             float* out) {
  const float* pointers[block_rows];
  const std::int64_t padded = rounded_up(rows, lanes);
  for (std::int64_t r = 0; r < padded; ++r) pointers[r] = r < rows ? query_row(context, row + r) : zeros;
  for (std::int64_t r = 0; r < padded; r += lanes)
    transpose_rows(pointers + r, context.call->head_dim, context.job->scale, out + r, block_rows);
}

// Panels [head_dim, keys] of keys [first, first + count).
HWY_INLINE void pack_keys(const ScoreContext& context, std::int64_t first, std::int64_t count, const float* zeros,
                          float* out) {
  const float* rows[block_keys + 16];
  key_rows(context, context.call->key, context.item->key_pages, context.call->head_dim, first, count, zeros,
           rounded_up(count, lanes) - count, rows);
  pack_transposed(rows, count, context.call->head_dim, out);
}

// Scores of a rectangle of the block of keys that is packed; queries and scores start at its first row.
HWY_INLINE void block_of_scores(const ScoreContext& context, const Rectangle& at, const float* queries,
                                const float* keys, float* scores) {
  multiply_columns(at.rows, at.begin, at.end, context.call->head_dim, queries, block_rows, keys,
                   rounded_up(at.keys, lanes), scores, score_stride);
  finish_scores(context, at, scores, nullptr);
}

// The part of block [key, key + keys) that rows [row, row + rows) may see. False: nothing of it.
HWY_INLINE bool find_rectangle(const ScoreContext& context, std::int64_t row, std::int64_t rows, std::int64_t key,
                               std::int64_t keys, Rectangle& at) {
  at = Rectangle{row, rows, key, keys, 0, rounded_up(keys, lanes), false};
  if (context.call->mask.empty()) return keys > 0;
  const std::int64_t query_begin = context.query(row), query_end = context.query(row + rows - 1) + 1;
  const ScoreBlock block{context.unit->head_begin,
                         context.unit->head_begin + context.unit->head_count,
                         query_begin,
                         query_end,
                         key,
                         key + keys};
  const BlockView view = context.mask.view(block);
  if (view == BlockView::nothing) return false;
  if (view == BlockView::inside) {
    at.masked = true;
    const std::int64_t begin = larger(context.mask.interval(query_begin).begin - key, 0);
    const std::int64_t end = smaller(context.mask.interval(query_end - 1).end - key, keys);
    at.begin = begin / panel * panel;
    at.end = smaller(rounded_up(end, panel), at.end);  // whole panels, so that a product meets no half of one
    if (at.begin >= at.end) return false;
  }
  return true;
}

// Rows of a masked rectangle are taken this many at a time, each with the columns it may see: under a causal mask nearly
// half of a rectangle on the diagonal is hidden.
constexpr std::int64_t part_rows = 12;

HWY_INLINE bool splits(const ScoreContext& context, const Rectangle& at) {
  return at.masked && at.rows > part_rows && !context.mask.has_element_rules();
}

// Rows [first, first + part_rows) of a rectangle with the columns they see: none when begin == end.
HWY_INLINE Rectangle part_of(const ScoreContext& context, const Rectangle& at, std::int64_t first) {
  Rectangle part = at;
  part.row = at.row + first;
  part.rows = smaller(part_rows, at.rows - first);
  const std::int64_t begin = context.mask.interval(context.query(part.row)).begin - at.key;
  const std::int64_t end = context.mask.interval(context.query(part.row + part.rows - 1)).end - at.key;
  part.begin = larger(begin, at.begin) / panel * panel;
  part.end = smaller(rounded_up(larger(end, 0), lanes), at.end);
  if (part.end <= part.begin) part.end = part.begin;
  return part;
}

// A row's denominator with the sink in it, relative to `largest`.
struct Denominator {
  float largest, sum;
  float factor;  // exp(largest of the keys - largest)
  float sink;    // the sink's part of the sum
};

HWY_INLINE Denominator denominator_of(const AttentionCall& call, std::int64_t head, float largest, float sum) {
  if (call.rules.sinks.empty()) return {largest, sum, 1, 0};
  const float sink = call.rules.sinks[static_cast<std::size_t>(head)];
  if (sink > largest) {
    const float factor = exp2_of((largest - sink) * log2_e);
    return {sink, sum * factor + 1, factor, 1};
  }
  const float part = exp2_of((sink - largest) * log2_e);
  return {largest, sum + part, 1, part};
}

// ---- Dropout -----------------------------------------------------------------------------------------------------

// words[w * score_stride + j]: word w of the Philox block of key `key + j`, j < count rounded up to lanes, for queries
// 8 * octet .. 8 * octet + 7. See attention_dropout.h.
inline HWY_NOINLINE void draw_words(const AttentionJob& job, std::int64_t item, std::int64_t head, std::int64_t octet,
                                    std::int64_t key, std::int64_t begin, std::int64_t end,
                                    std::uint32_t* HWY_RESTRICT words) {
  const hn::ScalableTag<std::uint64_t> wide;
  const hn::Repartition<std::uint32_t, decltype(wide)> narrow;
  using Wide = hn::Vec<decltype(wide)>;
  const std::uint64_t seed = job.call->dropout.seed;
  const auto first = hn::BitCast(narrow, hn::Set(wide, 0xD2511F53u)),
             second = hn::BitCast(narrow, hn::Set(wide, 0xCD9E8D57u));
  const Wide low_half = hn::Set(wide, 0xFFFFFFFFu);
  for (std::int64_t j = begin; j < end; j += lanes) {
    // Only the low half of each 64-bit lane counts. Even keys in one set of counters, odd keys in the other.
    const Wide step = hn::Add(hn::Iota(wide, 0), hn::Iota(wide, 0));
    Wide c0[2] = {hn::Add(step, hn::Set(wide, static_cast<std::uint64_t>(key + j))),
                  hn::Add(step, hn::Set(wide, static_cast<std::uint64_t>(key + j + 1)))};
    Wide c1[2], c2[2], c3[2];
    for (int side = 0; side < 2; ++side) {
      c1[side] = hn::Set(wide, static_cast<std::uint32_t>(octet));
      c2[side] = hn::Set(wide, static_cast<std::uint32_t>(head));
      c3[side] = hn::Set(wide, static_cast<std::uint32_t>(item));
    }
    std::uint32_t key0 = static_cast<std::uint32_t>(seed), key1 = static_cast<std::uint32_t>(seed >> 32);
    for (int round = 0; round < 10; ++round) {
      const Wide k0 = hn::Set(wide, key0), k1 = hn::Set(wide, key1);
      ATTEND_UNROLL
      for (int side = 0; side < 2; ++side) {
        const Wide product0 = hn::MulEven(hn::BitCast(narrow, c0[side]), first);
        const Wide product1 = hn::MulEven(hn::BitCast(narrow, c2[side]), second);
        c0[side] = hn::Xor(hn::Xor(hn::ShiftRight<32>(product1), c1[side]), k0);
        c1[side] = product1;
        c2[side] = hn::Xor(hn::Xor(hn::ShiftRight<32>(product0), c3[side]), k1);
        c3[side] = product0;
      }
      key0 += 0x9E3779B9u;
      key1 += 0xBB67AE85u;
    }
    const auto join = [&](const Wide(&c)[2]) HWY_ATTR {
      return hn::BitCast(narrow, hn::Or(hn::And(c[0], low_half), hn::ShiftLeft<32>(c[1])));
    };
    hn::StoreU(join(c0), narrow, words + j);
    hn::StoreU(join(c1), narrow, words + score_stride + j);
    hn::StoreU(join(c2), narrow, words + 2 * score_stride + j);
    hn::StoreU(join(c3), narrow, words + 3 * score_stride + j);
  }
}

// Applies `row(row index in the rectangle, words of its query, bits to shift)` to all rows of a rectangle.
template <class Row>
HWY_INLINE void for_dropped_rows(const ScoreContext& context, const Rectangle& at, std::uint32_t* words,
                                 const Row& row) {
  const std::int64_t heads = context.unit->head_count;
  for (std::int64_t h = 0; h < heads; ++h) {
    std::int64_t drawn = -1;
    for (std::int64_t r = (h - at.row % heads + heads) % heads; r < at.rows; r += heads) {
      const std::int64_t query = context.query(at.row + r), octet = query / dropout_queries;
      if (octet != drawn) {
        draw_words(*context.job, context.unit->item, context.unit->head_begin + h, octet, at.key, at.begin, at.end,
                   words);
        drawn = octet;
      }
      const std::int64_t slot = query % dropout_queries;
      row(r, words + slot / 2 * score_stride, static_cast<int>(16 * (slot % 2)));
    }
  }
}

// Whether each key of a vector is kept, from the words drawn for it.
HWY_INLINE hn::Mask<Tag> kept(const std::uint32_t* words, int shift, std::uint32_t drop_below) {
  const Tag d;
  const hn::RebindToSigned<Tag> di;
  const auto word = hn::LoadU(di, reinterpret_cast<const std::int32_t*>(words));
  const auto number =
      shift == 0 ? hn::And(word, hn::Set(di, 0xFFFF)) : hn::And(hn::ShiftRight<16>(word), hn::Set(di, 0xFFFF));
  return hn::RebindMask(d, hn::Gt(number, hn::Set(di, static_cast<std::int32_t>(drop_below) - 1)));
}

// Zeroes the dropped weights of a rectangle.
inline HWY_NOINLINE void drop_weights(const ScoreContext& context, const Rectangle& at, std::uint32_t* words,
                                      float* weights) {
  const Tag d;
  const std::uint32_t drop_below = context.job->drop_below;
  for_dropped_rows(context, at, words, [&](std::int64_t r, const std::uint32_t* row_words, int shift) HWY_ATTR {
    float* HWY_RESTRICT row = weights + r * score_stride;
    for (std::int64_t j = at.begin; j < at.end; j += lanes)
      hn::StoreU(hn::IfThenElseZero(kept(row_words + j, shift, drop_below), hn::LoadU(d, row + j)), d, row + j);
  });
}

}  // namespace HWY_NAMESPACE
}  // namespace attention
}  // namespace attend
HWY_AFTER_NAMESPACE();

#endif
