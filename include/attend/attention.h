// One attention for everything: encoder self-attention, causal self-attention, cross-attention, decoding against a
// cache, and training. What differs is where keys and values come from and which mask is described.
//
//   score(i, j)  = rules(scale * <query_i, key_j>)                 scaled dot product, Vaswani et al. 2017, eq. 1
//   weight(i, j) = exp(score(i, j)) / sum over visible j'          softmax over what query i may see
//   output_i     = sum over visible j of weight(i, j) * value_j
//
// Computed tile by tile with a running maximum and sum (Milakov and Gimelshein 2018; Dao et al. 2022), so memory is
// linear in the number of rows: no queries x keys matrix exists unless a caller asks for one.
//
// Contracts, each with a test:
//  - a query that sees no key has output 0, log-sum-exp minus infinity and gradients 0;
//  - a masked key or value is never read into a result, even when it is NaN;
//  - the weights of a row sum to 1 over the visible keys (less the sink's share, where there is a sink);
//  - the same bits for any number of threads, and for an item alone or in a batch;
//  - dropout depends only on (seed, item, head, query index, key index), so backward draws it again.
#pragma once

#include <cstdint>
#include <limits>
#include <span>
#include <string>
#include <variant>
#include <vector>

namespace attend {

// Rows of heads, not owned: element x of head h in row r is data[r * row_stride + h * head_stride + x]. A projection
// writes [rows, heads * head_dim] and is read in place: no transposition, no copy per head.
struct HeadsView {
  const float* data = nullptr;
  std::int64_t row_stride = 0;
  std::int64_t head_stride = 0;
};
struct MutableHeadsView {
  float* data = nullptr;
  std::int64_t row_stride = 0;
  std::int64_t head_stride = 0;
};

// One item of a batch: `queries` consecutive rows of the query view asking `keys` consecutive rows of the key and value
// views, or the first `keys` rows of a list of pages. Items have lengths of their own: nothing is padded.
struct AttentionItem {
  std::int64_t query_begin = 0;
  std::int64_t queries = 0;
  std::int64_t key_begin = 0;
  std::int64_t keys = 0;
  // Absolute positions, for masks and position rules: first + index, or listed one by one where the list is given
  // (queries or keys entries; for a cache with holes).
  std::int64_t query_position = 0;
  std::int64_t key_position = 0;
  const std::int32_t* query_positions = nullptr;
  const std::int32_t* key_positions = nullptr;
  // When set, keys and values are read from pages of AttentionCall::page_rows rows instead of the views: key j is row
  // j % page_rows of key_pages[j / page_rows], laid out [page_rows, key_heads, head_dim] without gaps.
  const float* const* key_pages = nullptr;
  const float* const* value_pages = nullptr;
};

// ---- Masks: rules joined by "and". For a block of scores each answers: nothing, everything, or look inside. --------

// A query sees keys at its own position and before: key position <= query position.
struct CausalRule {};

// query position - before <= key position <= query position + after.
struct WindowRule {
  std::int64_t before = 0;
  std::int64_t after = 0;
};

// Item b sees only its first lengths[b] keys (padding mask). One entry an item.
struct KeyLengthsRule {
  std::span<const std::int64_t> lengths;
};

// Causal, but the first lengths[b] positions of item b are seen by all its queries (prefix language model).
struct PrefixRule {
  std::span<const std::int64_t> lengths;
};

// A query sees keys of its own document only. Indexed by row of the views (by key index within the item for pages).
struct DocumentRule {
  std::span<const std::int32_t> query_documents;
  std::span<const std::int32_t> key_documents;
};

// Block-sparse pattern by position: allowed[(query position / block) * columns + key position / block] != 0.
// Positions beyond the pattern are not visible.
struct BlockRule {
  std::int64_t block = 0;
  std::int64_t columns = 0;
  std::span<const std::uint8_t> allowed;
};

// Any mask: allowed[item * item_stride + head * head_stride + query * query_stride + key * key_stride] != 0 where the
// key is visible; query and key are indices within the item. A stride of 0 broadcasts.
struct DenseRule {
  const std::uint8_t* allowed = nullptr;
  std::int64_t item_stride = 0, head_stride = 0, query_stride = 0, key_stride = 1;
};

using MaskRule = std::variant<CausalRule, WindowRule, KeyLengthsRule, PrefixRule, DocumentRule, BlockRule, DenseRule>;
using Mask = std::vector<MaskRule>;  // empty: every query sees every key of its item

// ---- Score rules, applied in this order: scale, soft cap, slopes, relative bias, bias; then the mask, then the sink. -

// Bias by clamped distance, one value a head (Raffel et al. 2020): score += table[bucket * query_heads + head] where
// bucket = buckets[clamp(key position - query position, first_distance, last) - first_distance].
struct RelativeBias {
  const float* table = nullptr;
  std::span<const std::int32_t> buckets;
  std::int64_t first_distance = 0;
};

// Additive bias with broadcasting strides, as DenseRule.
struct ScoreBias {
  const float* data = nullptr;
  std::int64_t item_stride = 0, head_stride = 0, query_stride = 0, key_stride = 1;
};

struct ScoreRules {
  float scale = 0;                // 0: 1 / sqrt(head_dim)
  float soft_cap = 0;             // > 0: score = cap * tanh(score / cap) (Gemma Team 2024)
  std::span<const float> slopes;  // [query_heads]: score -= slope * |query position - key position| (ALiBi, Press 2022)
  RelativeBias relative;
  ScoreBias bias;
  std::span<const float> sinks;  // [query_heads]: one more logit in the denominator, with no value behind it
};

// An edit of scores or of weights; only the heads of the items it names leave the tiled path. Queries and keys are named
// by their absolute positions, so that an edit means the same in one pass and step by step against a cache. An edit acts
// on visible scores only: it never opens a mask.
//   set, add, scale   score = value, score + value, score * value: after the rules, in the order of the list
//   forbid            the key is not seen; stronger than the three above
//   lock              weight = value (0 to 1); what the locks of a row leave of 1 is shared by the other keys (and the
//                     sink) in proportion to their weights. The last lock of a score counts. Error(argument) where the
//                     locks of a row sum to more than 1, or to less with nothing else to share with. Scores of locked
//                     keys are written as log(weight) + log-sum-exp, which is what they would have to be.
struct ScoreEdit {
  enum class Kind { set, add, scale, forbid, lock };
  static constexpr std::int64_t any_distance = std::numeric_limits<std::int64_t>::min();
  static constexpr std::int64_t open_end = std::numeric_limits<std::int64_t>::max();

  Kind kind = Kind::forbid;
  std::int64_t item = -1, head = -1, query = -1, key = -1;  // -1: every one
  float value = 0;
  std::int64_t query_end = 0, key_end = 0;  // end (exclusive) of a range that begins at query or key; 0: that one alone
  // Only keys at least so far before the query: query position - key position >= min_distance.
  std::int64_t min_distance = any_distance;
};

struct AttentionDropout {
  float probability = 0;  // of a weight being zeroed, to 2^-17; the others are divided by 1 - it
  std::uint64_t seed = 0;
};

// Asks for the exact matrix of one item and head. Pointers to [queries, keys] floats without gaps, or null.
struct MatrixRequest {
  std::int64_t item = 0, head = 0;
  float* scores = nullptr;   // after rules, mask and edits; minus infinity where not visible
  float* weights = nullptr;  // before dropout
};

// ---- Statistics of the weights, gathered in the pass that computes the output: memory stays linear in rows and keys. ----

// Keys [begin, end) of an item (-1: of every item), by index and cut to the keys the item has. Spans of one list may
// touch or overlap: a key in several of them counts once.
struct KeySpan {
  std::int64_t list = 0, item = -1, begin = 0, end = 0;
};

inline constexpr std::int64_t most_top_keys = 32;

// What to tell of each row of the chosen heads. All are sums over the visible keys of the weights as they are after edits
// and before dropout. With a sink the weights of a row sum to 1 - sink, and so do the masses of regions that cover all
// keys; distance / (1 - sink) is then the mean over keys, entropy / (1 - sink) + ln(1 - sink) the entropy over keys.
//
// Outputs are rows of the query view by chosen heads, [query rows, H] without gaps, H = number of chosen heads; null ones
// are not computed. Rows of no item are not written. A row that sees nothing has keys -1 and 0 everywhere else. Asking
// changes no bit of the output, and the statistics have the same bits for any number of threads, alone or in a batch.
struct AttentionStatistics {
  std::span<const std::int32_t> heads;  // query heads, rising; empty: all
  std::int64_t lists = 0;               // lists of spans: 0 .. lists - 1, empty ones allowed
  std::span<const KeySpan> spans;
  std::int64_t top = 0;  // keys wanted by top_keys and top_weights, at most most_top_keys

  float* entropy = nullptr;    // - sum of weight * ln(weight), in nats
  float* distance = nullptr;   // sum of weight * |query position - key position|
  float* first = nullptr;      // weight on the key at position 0,
  float* self = nullptr;       // on the key at the query's own position,
  float* previous = nullptr;   // and on the one before it
  float* sink = nullptr;       // the sink's share, 0 where there is no sink
  float* list_mass = nullptr;  // [query rows, H, lists]: weight on the keys of each list
  std::int32_t* top_keys =
      nullptr;                   // [query rows, H, top]: indices of the keys with the largest scores, largest first,
                                 // the smaller index first among equals; -1 where fewer are visible
  float* top_weights = nullptr;  // [query rows, H, top]: their weights, 0 where there is no key
};

struct AttentionCall {
  std::int64_t query_heads = 0;
  std::int64_t key_heads =
      0;  // query_heads must be a multiple; query head h reads key head h / (query_heads / key_heads)
  std::int64_t head_dim = 0;
  std::int64_t value_dim = 0;  // width of a value head, may differ from head_dim
  HeadsView query, key, value;
  std::int64_t page_rows = 0;  // for items with pages
  std::span<const AttentionItem> items;
  Mask mask;
  ScoreRules rules;
  AttentionDropout dropout;
  std::span<const ScoreEdit> edits;

  // Outputs.
  MutableHeadsView output;       // [query rows, query_heads, value_dim]
  float* log_sum_exp = nullptr;  // [query rows, query_heads] or null: log of the softmax denominator
  std::span<const MatrixRequest> matrices;
  std::int64_t* edit_counts = nullptr;  // [edits] or null: how many scores that the mask lets see each edit names
  const AttentionStatistics* statistics = nullptr;
};

// Throws Error(shape or argument) that names the rule broken, before anything is computed.
void attention_forward(const AttentionCall& call);

// Which of the ordered implementations (explicit, decode, tiled) will run for each item, and why the earlier ones
// will not: one line an entry, for traces and for people.
std::string explain(const AttentionCall& call);

// Asks for scores or weights of queries [query_begin, query_end) and keys [key_begin, key_end) of one item and head, by
// index within the item: a row, a tile or everything. Null outputs are not computed.
struct WeightsTile {
  std::int64_t item = 0, head = 0;
  std::int64_t query_begin = 0, query_end = 0, key_begin = 0, key_end = 0;
  float* scores = nullptr;  // element (i, j) at i * row_stride + j; as MatrixRequest
  float* weights = nullptr;
  std::int64_t row_stride = 0;  // of both; 0: without gaps
};

// Rebuilds parts of the matrices of a call that has been run, from query, key, rules, mask, edits and the log-sum-exp it
// left in `forward.log_sum_exp` (not needed for scores without locks): at a cost in proportion to the tiles. Value and output are not
// used and may be missing. The scores are the bits that the call computed; a weight is exp(score - log-sum-exp).
void attention_weights(const AttentionCall& forward, std::span<const WeightsTile> tiles);

// Gradients of a scalar loss. `forward` must be the call as it was run, with log_sum_exp filled. Everything is ADDED
// to the targets; null targets are skipped. Items must have their keys in the views, not in pages.
struct AttentionGradients {
  HeadsView output_gradient;           // dL/d output, as forward.output
  MutableHeadsView query, key, value;  // dL/d query, key, value
  float* relative_table = nullptr;     // as forward.rules.relative.table
  float* bias = nullptr;               // as forward.rules.bias, same strides; only with nonzero broadcasting summed
  float* sinks = nullptr;              // [query_heads]
};
void attention_backward(const AttentionCall& forward, const AttentionGradients& gradients);

}  // namespace attend
