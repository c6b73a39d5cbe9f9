// Streams a corpus through a model and adds up what every head does. The weights are read row by row; sums of one item
// are kept apart and added in the order of the items, so that batches and threads leave no trace in the bits.
#include <algorithm>
#include <cmath>
#include <map>
#include <tuple>
#include <unordered_map>
#include <utility>

#include "attend/error.h"
#include "attend/heads.h"
#include "attend/scripts.h"
#include "attend/tape.h"
#include "core/hash.h"
#include "core/threads.h"

namespace attend {
namespace {

constexpr double nan = std::numeric_limits<double>::quiet_NaN();
// A window ends with the first of these.
constexpr std::size_t window_items = 512;
constexpr std::int64_t window_tokens = 1 << 16;
constexpr std::size_t window_sums = 1 << 25;  // bytes of the sums of its items
// Square roots of weights enter sketches as whole numbers of this unit: their sums do not depend on any order.
constexpr double sketch_unit = 1 << 24;
constexpr double diagonal_spread = 0.2;

void add_ids(ByteHash& print, const std::vector<std::int32_t>& ids) {
  print.number(ids.size());
  for (const std::int32_t id : ids) print.number(static_cast<std::uint32_t>(id));
}

struct Mean {
  double sum = 0;
  std::int64_t count = 0;
  void add(double value) {
    sum += value;
    ++count;
  }
};

// What one head did, in one item or in all.
struct HeadSums {
  std::array<Mean, behaviour_count> means{};            // distance_deviation: of the squared signed distance
  AlignmentScore error[2];                              // of the predicting row, of the reading row
  std::int64_t common[2] = {0, 0}, linked[2] = {0, 0};  // links shared with the mirror, links of both
  Alignment links[2];                                   // of one item, until its mirror was seen

  Mean& operator[](Behaviour behaviour) { return means[static_cast<std::size_t>(behaviour)]; }

  void add(const HeadSums& item) {
    for (std::size_t i = 0; i < means.size(); ++i) {
      means[i].sum += item.means[i].sum;
      means[i].count += item.means[i].count;
    }
    for (int row = 0; row < 2; ++row) {
      error[row] += item.error[row];
      common[row] += item.common[row];
      linked[row] += item.linked[row];
    }
  }
};

// What a row of weights of one attention of one item means: common to all layers and heads.
struct RowContext {
  std::int64_t queries = 0, keys = 0, window = 0;
  bool self = false, causal = false, classes = false;
  std::uint64_t number = 0;                      // of the item in the corpus
  std::vector<std::uint8_t> special, separator;  // by key, where there is a tokenizer
  // Places of each distinct token among the keys, rising, and which of these lists a query's token has (-1: none).
  std::vector<std::vector<std::int32_t>> places;
  std::vector<std::int32_t> token_of_query;

  // The keys that a query sees: [first, second).
  std::pair<std::int64_t, std::int64_t> seen(std::int64_t query) const {
    if (!self) return {0, keys};
    const std::int64_t begin = window > 0 ? std::max<std::int64_t>(0, query - window + 1) : 0;
    const std::int64_t end = causal ? query + 1 : window > 0 ? std::min(keys, query + window) : keys;
    return {begin, end};
  }
};

void add_places(RowContext& context, std::span<const std::int32_t> query_ids, std::span<const std::int32_t> key_ids) {
  std::unordered_map<std::int32_t, std::int32_t> list_of;
  for (std::size_t key = 0; key < key_ids.size(); ++key) {
    const auto [at, fresh] = list_of.emplace(key_ids[key], static_cast<std::int32_t>(context.places.size()));
    if (fresh) context.places.emplace_back();
    context.places[static_cast<std::size_t>(at->second)].push_back(static_cast<std::int32_t>(key));
  }
  for (const std::int32_t id : query_ids) {
    const auto at = list_of.find(id);
    context.token_of_query.push_back(at == list_of.end() ? -1 : at->second);
  }
}

bool is_separator(const std::string& text) {
  bool any = false;
  for (const char32_t character : characters_of(text)) {
    const CharacterKind kind = kind_of(character);
    if (kind != CharacterKind::punctuation && kind != CharacterKind::line_end && kind != CharacterKind::blank)
      return false;
    any = any || kind != CharacterKind::blank;
  }
  return any;
}

void add_classes(RowContext& context, const Tokenizer* tokenizer, std::span<const std::int32_t> key_ids) {
  if (!tokenizer) return;
  context.classes = true;
  std::string character;  // of which the fragments that follow are parts
  for (const Piece& piece : pieces_of(*tokenizer, key_ids)) {
    if (piece.fragment == 0) {
      character = piece.fragments == 1 ? piece.bytes : piece.text;
      if (find_invalid_utf8(character) != std::string::npos)
        character = "?x";  // a byte that is no character is no mark
    }
    context.special.push_back(piece.special());
    context.separator.push_back(!piece.special() && is_separator(character));
  }
}

// Adds one row of weights. `read` [keys] sums what each key was given over the queries.
void add_row(const RowContext& context, std::int64_t query, const float* weights, HeadSums& sums,
             std::vector<std::int64_t>& sketch, std::vector<double>& read) {
  const std::pair<std::int64_t, std::int64_t> range = context.seen(query);
  const std::int64_t begin = range.first, end = range.second;
  if (end - begin < 2) return;
  const auto weight = [&](std::int64_t key) { return static_cast<double>(weights[key]); };
  const auto seen = [&](std::int64_t key) { return key >= begin && key < end; };

  double entropy = 0, largest = 0, special = 0, separator = 0, distance = 0, square = 0, offset = 0, diagonal = 0;
  const std::uint64_t row_hash = mix_bits(context.number) ^ mix_bits(static_cast<std::uint64_t>(query) << 1 | 1);
  const double place = (static_cast<double>(query) + 0.5) / static_cast<double>(context.queries);
  for (std::int64_t key = begin; key < end; ++key) {
    const double w = weight(key);
    if (!(w > 0)) continue;
    entropy -= w * std::log(w);
    largest = std::max(largest, w);
    if (context.classes) {
      special += context.special[static_cast<std::size_t>(key)] ? w : 0;
      separator += context.separator[static_cast<std::size_t>(key)] ? w : 0;
    }
    if (context.self) {
      const auto apart = static_cast<double>(key - query);
      distance += w * std::abs(apart);
      offset += w * apart;
      square += w * apart * apart;
    } else {
      const double off = place - (static_cast<double>(key) + 0.5) / static_cast<double>(context.keys);
      diagonal += w * std::exp(-off * off / (2 * diagonal_spread * diagonal_spread));
      read[static_cast<std::size_t>(key)] += w;
    }
    const std::uint64_t hash = mix_bits(row_hash + static_cast<std::uint64_t>(key));
    const auto amount = static_cast<std::int64_t>(std::sqrt(w) * sketch_unit + 0.5);
    sketch[hash & (sketch_size - 1)] += hash >> 63 ? amount : -amount;
  }
  sums[Behaviour::entropy].add(entropy);
  sums[Behaviour::normalised_entropy].add(entropy / std::log(static_cast<double>(end - begin)));
  sums[Behaviour::confidence].add(largest);
  if (context.classes) {
    sums[Behaviour::special_token].add(special);
    sums[Behaviour::separator].add(separator);
  }
  if (seen(0) && (query > 0 || !context.self)) sums[Behaviour::first_token].add(weight(0));
  if (context.self) {
    sums[Behaviour::distance].add(distance);
    sums[Behaviour::distance_deviation].add(square);
    sums[Behaviour::offset].add(offset);
    sums[Behaviour::self_token].add(weight(query));
    if (seen(query - 1)) sums[Behaviour::previous_token].add(weight(query - 1));
    if (seen(query + 1)) sums[Behaviour::next_token].add(weight(query + 1));
  } else {
    sums[Behaviour::diagonal].add(diagonal);
  }

  if (context.token_of_query.empty()) return;
  const std::int32_t token = context.token_of_query[static_cast<std::size_t>(query)];
  if (token < 0) return;
  double same = 0, earlier = 0, after = 0;
  bool any_same = false, any_earlier = false, any_after = false;
  for (const std::int32_t key : context.places[static_cast<std::size_t>(token)]) {
    if (context.self && key == query) continue;
    if (seen(key)) {
      same += weight(key);
      any_same = true;
      if (key < query) earlier += weight(key), any_earlier = true;
    }
    if (context.self && key + 1 < query && seen(key + 1)) after += weight(key + 1), any_after = true;
  }
  if (any_same) sums[Behaviour::same_token].add(same);
  if (context.self && any_earlier) sums[Behaviour::duplicate_token].add(earlier);
  if (any_after) sums[Behaviour::induction].add(after);
}

// Makes links of one head in one item from the rows of its written tokens, which come in order.
class LinkMaker {
 public:
  // Adds the row of weights that speaks for written token `t`.
  void take(const ItemWords& words, const LinkOptions& options, std::int64_t t, const float* weights,
            Alignment& links) {
    while (group_ < words.target.size() && words.target[group_].end <= t) ++group_;
    if (group_ == words.target.size()) return;
    const TokenGroup& target = words.target[group_];
    // Summed as merge() does, so that ties fall as in align_words().
    if (t == target.begin) sums_.assign(words.source.size(), 0.0);
    for (std::size_t s = 0; s < words.source.size(); ++s)
      for (std::int64_t key = words.source[s].begin; key < words.source[s].end; ++key)
        sums_[s] += static_cast<double>(weights[key]);
    if (t + 1 < target.end) return;
    std::vector<float> row;
    for (const double sum : sums_) row.push_back(static_cast<float>(sum / static_cast<double>(target.size())));
    const Alignment found = links_of(row, std::span(words.target).subspan(group_, 1), words.source, options);
    links.insert(links.end(), found.begin(), found.end());
  }

 private:
  std::size_t group_ = 0;
  std::vector<double> sums_;
};

void finish_links(const ItemWords& words, HeadSums& sums) {
  for (int after = 0; after < 2; ++after) {
    Alignment& links = sums.links[after];
    std::sort(links.begin(), links.end());
    links.erase(std::unique(links.begin(), links.end()), links.end());
    if (words.reference) sums.error[after] = score_alignment(links, *words.reference);
  }
}

// One item of a window, with what its heads did in it.
struct Held {
  HeadItem item;
  std::int64_t number = 0;  // in the corpus, from 1
  RowContext encoder, decoder, cross;
  std::vector<HeadSums> heads;
};

// What one head leaves from one row of an item to the next.
struct RowState {
  std::vector<double> read;  // what each key was given so far
  LinkMaker links[2];
};

// Takes queries and keys as they come by and reads the rows of weights they make.
class HeadReader : public Probe {
 public:
  HeadReader(const Model& model, const HeadOptions& options, std::vector<std::vector<std::int64_t>>& sketches)
      : model_(model),
        options_(options),
        sketches_(sketches),
        rotary_(model.config().positions == PositionKind::rotary) {
    const std::vector<HeadPlace> heads = heads_of(model);
    for (std::size_t i = 0; i < heads.size(); ++i)
      if (heads[i].head == 0) first_[{heads[i].stack, heads[i].layer, heads[i].part}] = i;
  }

  void expect(std::vector<Held*> items) { items_ = std::move(items); }

  bool wants(const Site& site) const override {
    const bool rotated = rotary_ && site.part == Part::self;
    return site.point == (rotated ? Point::rotated_query : Point::query) ||
           site.point == (rotated ? Point::rotated_key : Point::key);
  }

  void visit(const Visit& visit, Tensor& value) override {
    if (visit.site.point == Point::query || visit.site.point == Point::rotated_query) {
      query_ = value;
      query_offsets_.assign(visit.offsets.begin(), visit.offsets.end());
    } else {
      read(visit.site, value, visit.offsets);
      query_ = Tensor();
    }
  }

 private:
  // Rows of one item whose weights are made at once.
  struct Block {
    std::size_t item = 0;
    std::int64_t begin = 0, rows = 0, floats = 0;  // floats: where the weights of the first head begin
  };

  void read(const Site& site, const Tensor& key, std::span<const std::int64_t> key_offsets) {
    AttentionInput rules = model_.attention_rules(site.stack, site.part);
    rules.value_dim = 0;
    // Weights do not depend on values: the narrowest will do.
    const Tensor values = Tensor::zeros({key.rows(), rules.key_heads});
    const auto heads = static_cast<std::size_t>(rules.query_heads);
    std::vector<RowState> states(items_.size() * heads);
    std::vector<Block> blocks;
    std::int64_t floats = 0;
    const auto flush = [&] {
      read_blocks(site, rules, key, values, key_offsets, blocks, floats, states);
      blocks.clear();
      floats = 0;
    };
    for (std::size_t item = 0; item < items_.size(); ++item) {
      const std::int64_t keys = key_offsets[item + 1] - key_offsets[item],
                         queries = query_offsets_[item + 1] - query_offsets_[item];
      const std::int64_t row_floats = rules.query_heads * keys;
      for (std::int64_t begin = 0, rows; begin < queries; begin += rows) {
        if (floats + row_floats > options_.block_floats && floats > 0) flush();
        rows = std::min(queries - begin, std::max<std::int64_t>(1, (options_.block_floats - floats) / row_floats));
        blocks.push_back({item, begin, rows, floats});
        floats += rows * row_floats;
      }
    }
    flush();
    for (std::size_t item = 0; item < items_.size(); ++item)
      for (std::size_t head = 0; head < heads; ++head) {
        HeadSums& sums = sums_of(site, item, head);
        const RowContext& context = context_of(site, item);
        const RowState& state = states[item * heads + head];
        for (std::size_t k = 0; k < state.read.size() && state.read.size() > 1; ++k)
          if (!context.classes || !context.special[k]) sums[Behaviour::coverage].add(std::min(1.0, state.read[k]));
        if (site.part == Part::cross && items_[item]->item.words) finish_links(*items_[item]->item.words, sums);
      }
  }

  void read_blocks(const Site& site, AttentionInput& input, const Tensor& key, const Tensor& values,
                   std::span<const std::int64_t> key_offsets, const std::vector<Block>& blocks, std::int64_t floats,
                   std::vector<RowState>& states) {
    Tensor weights = Tensor::empty({floats});
    input.items.clear();
    input.matrices.clear();
    for (const Block& block : blocks) {
      AttentionItem item;
      item.query_begin = query_offsets_[block.item] + block.begin;
      item.queries = block.rows;
      item.query_position = block.begin;
      item.key_begin = key_offsets[block.item];
      item.keys = key_offsets[block.item + 1] - item.key_begin;
      for (std::int64_t head = 0; head < input.query_heads; ++head) {
        MatrixRequest request;
        request.item = static_cast<std::int64_t>(input.items.size());
        request.head = head;
        request.weights = weights.data() + block.floats + head * block.rows * item.keys;
        input.matrices.push_back(request);
      }
      input.items.push_back(item);
    }
    attention(query_, key, values, input);
    const auto heads = static_cast<std::size_t>(input.query_heads);
    parallel_for(input.query_heads, [&](std::int64_t head, int) {
      const auto h = static_cast<std::size_t>(head);
      for (const Block& block : blocks) {
        const std::int64_t keys = key_offsets[block.item + 1] - key_offsets[block.item];
        const float* rows = weights.data() + block.floats + head * block.rows * keys;
        for (std::int64_t row = 0; row < block.rows; ++row, rows += keys)
          read_row(site, block.item, h, block.begin + row, rows, states[block.item * heads + h]);
      }
    });
  }

  void read_row(const Site& site, std::size_t item, std::size_t head, std::int64_t query, const float* weights,
                RowState& state) {
    const RowContext& context = context_of(site, item);
    HeadSums& sums = sums_of(site, item, head);
    const bool cross = site.part == Part::cross;
    if (cross && state.read.empty()) state.read.resize(static_cast<std::size_t>(context.keys));
    add_row(context, query, weights, sums, sketches_[first_.at({site.stack, site.layer, site.part}) + head],
            state.read);
    const ItemWords* words = items_[item]->item.words.get();
    if (!cross || !words) return;
    // Row t predicts written token t and reads token t - 1; the last written token is read by no row, so its own
    // serves.
    state.links[0].take(*words, options_.link, query, weights, sums.links[0]);
    if (query > 0) state.links[1].take(*words, options_.link, query - 1, weights, sums.links[1]);
    if (query + 1 == context.queries) state.links[1].take(*words, options_.link, query, weights, sums.links[1]);
  }

  const RowContext& context_of(const Site& site, std::size_t item) const {
    const Held& held = *items_[item];
    return site.part == Part::cross ? held.cross : site.stack == StackKind::encoder ? held.encoder : held.decoder;
  }
  HeadSums& sums_of(const Site& site, std::size_t item, std::size_t head) {
    return items_[item]->heads[first_.at({site.stack, site.layer, site.part}) + head];
  }

  const Model& model_;
  const HeadOptions& options_;
  std::vector<std::vector<std::int64_t>>& sketches_;
  const bool rotary_;
  std::map<std::tuple<StackKind, int, Part>, std::size_t> first_;  // of each attention's heads in heads_of()
  std::vector<Held*> items_;
  Tensor query_;
  std::vector<std::int64_t> query_offsets_;
};

void check_item(const TransformerConfig& config, const HeadItem& item, std::int64_t number) {
  const auto refuse = [&](const std::string& what, const char* advice) {
    throw Error(ErrorKind::argument, join("item ", number), what, advice);
  };
  const auto check = [&](const std::vector<std::int32_t>& ids, const std::optional<StackConfig>& stack,
                         const char* side) {
    if (!stack) {
      if (!ids.empty()) refuse(join("has a ", side, " and the model has nothing that reads it"), "leave it empty");
      return;
    }
    if (ids.empty()) refuse(join("has no ", side), "leave the item out");
    if (static_cast<std::int64_t>(ids.size()) > config.max_positions)
      refuse(join("its ", side, " has ", ids.size(), " tokens and the model reads at most ", config.max_positions),
             "split it");
    for (const std::int32_t id : ids)
      if (id < 0 || id >= stack->vocabulary)
        refuse(join("token id ", id, " of its ", side, " is outside the vocabulary of ", stack->vocabulary),
               "use the model's tokenizer");
  };
  check(item.source, config.encoder, "source");
  check(item.target, config.decoder, "target");
  if (!item.words) return;
  if (!config.encoder || !config.decoder)
    refuse("has words for an alignment and the model has no cross-attention", "leave them out");
  const auto check_groups = [&](const std::vector<TokenGroup>& groups, std::size_t tokens, const char* side, bool all) {
    std::int64_t next = 0;
    for (const TokenGroup& group : groups) {
      if (group.begin != next || group.end <= group.begin)
        refuse(join("the groups of its ", side, " leave out token ", next), "hold every token once");
      next = group.end;
    }
    if (all ? next != static_cast<std::int64_t>(tokens) : next > static_cast<std::int64_t>(tokens))
      refuse(join("the groups of its ", side, " hold ", next, " tokens of ", tokens), "hold every token once");
  };
  check_groups(item.words->source, item.source.size(), "source", true);
  check_groups(item.words->target, item.target.size(), "target", false);
  if (!item.words->reference) return;
  const auto words = [](const std::vector<TokenGroup>& groups) { return groups.empty() ? 0 : groups.back().end_word; };
  for (const Link& link : item.words->reference->possible)
    if (link.source >= words(item.words->source) || link.target >= words(item.words->target))
      refuse(join("its reference links words ", link.source, "-", link.target, " of ", words(item.words->source),
                  " and ", words(item.words->target)),
             "count words from 0, as they are cut here");
}

void check_size(const Tokenizer* tokenizer, const std::optional<StackConfig>& stack, const char* name) {
  if (tokenizer && stack && tokenizer->size() != stack->vocabulary)
    throw Error(ErrorKind::argument, "heads",
                join("the tokenizer of the ", name, " has ", tokenizer->size(), " tokens and its vocabulary ",
                     stack->vocabulary),
                "use the model's tokenizer");
}

// Indices of a window's items in batches of like lengths.
std::vector<std::vector<std::int64_t>> batches_of(const std::vector<Held>& window, std::int64_t batch_size) {
  std::vector<std::int64_t> lengths;
  for (const Held& held : window)
    lengths.push_back(static_cast<std::int64_t>(std::max(held.item.source.size(), held.item.target.size())));
  return batches_by_length(lengths, batch_size);
}

void prepare(Held& held, const TransformerConfig& config, const HeadOptions& options, bool shared) {
  const HeadItem& item = held.item;
  const auto fill = [&](RowContext& context, const std::vector<std::int32_t>& queries,
                        const std::vector<std::int32_t>& keys, bool self, bool causal, const Tokenizer* key_tokenizer,
                        bool places) {
    context.queries = static_cast<std::int64_t>(queries.size());
    context.keys = static_cast<std::int64_t>(keys.size());
    context.self = self;
    context.causal = causal;
    context.window = self ? config.window : 0;
    context.number = static_cast<std::uint64_t>(held.number);
    if (places) add_places(context, queries, keys);
    add_classes(context, key_tokenizer, keys);
  };
  if (config.encoder) fill(held.encoder, item.source, item.source, true, config.encoder->causal, options.source, true);
  if (config.decoder) fill(held.decoder, item.target, item.target, true, config.decoder->causal, options.target, true);
  if (config.encoder && config.decoder)
    fill(held.cross, item.target, item.source, false, false, options.source, shared);
}

// The links of an item and of its mirror, which stands before it.
void compare_mirrors(const std::vector<HeadSums>& before, std::vector<HeadSums>& after) {
  for (std::size_t head = 0; head < after.size(); ++head)
    for (int row = 0; row < 2; ++row) {
      const Alignment &one = before[head].links[row], &other = after[head].links[row];
      for (const Link& link : other)
        after[head].common[row] += std::binary_search(one.begin(), one.end(), Link{link.target, link.source});
      after[head].linked[row] += static_cast<std::int64_t>(one.size() + other.size());
    }
}

std::array<double, behaviour_count> values_of(HeadSums& sums) {
  std::array<double, behaviour_count> values;
  for (std::size_t i = 0; i < values.size(); ++i)
    values[i] = sums.means[i].count > 0 ? sums.means[i].sum / static_cast<double>(sums.means[i].count) : nan;
  const auto at = [&](Behaviour behaviour) -> double& { return values[static_cast<std::size_t>(behaviour)]; };
  const double offset = at(Behaviour::offset);
  at(Behaviour::distance_deviation) = std::sqrt(std::max(0.0, at(Behaviour::distance_deviation) - offset * offset));
  if (std::isnan(offset)) at(Behaviour::distance_deviation) = nan;
  at(Behaviour::alignment_error) = sums.error[0].error();
  at(Behaviour::alignment_error_after) = sums.error[1].error();
  const auto agreement = [&](int row) {
    return sums.linked[row] > 0 ? 2 * static_cast<double>(sums.common[row]) / static_cast<double>(sums.linked[row])
                                : nan;
  };
  at(Behaviour::agreement) = agreement(0);
  at(Behaviour::agreement_after) = agreement(1);
  return values;
}

void check_options(const TransformerConfig& config, const HeadOptions& options) {
  if (config.encoder && config.encoder->vocabulary == 0)
    throw Error(ErrorKind::argument, "heads", "the encoder reads features, not tokens", "use a model of text");
  check_size(options.source, config.encoder, "encoder");
  check_size(options.target, config.decoder, "decoder");
  if (options.batch_size < 1 || options.block_floats < 1 || options.copying_tokens < 0)
    throw Error(ErrorKind::argument, "heads",
                join("batches of ", options.batch_size, " items, blocks of ", options.block_floats, " weights, ",
                     options.copying_tokens, " tokens for copying"),
                "use 1 or more, 0 or more for tokens");
  check(options.link);
}

// Reads a corpus window by window and sums up what heads do.
class CorpusReader {
 public:
  CorpusReader(const Model& model, const HeadItems& items, const HeadOptions& options, bool shared, HeadReport& report)
      : model_(model),
        items_(items),
        options_(options),
        shared_(shared),
        report_(report),
        heads_(report.sketches.size()),
        most_items_(std::clamp(window_sums / (heads_ * sizeof(HeadSums)), std::size_t{1}, window_items)),
        sums_(heads_),
        reader_(model, options, report.sketches) {
    run_.probe = &reader_;
  }

  void read_all() {
    for (std::vector<Held> window = next_window(); !window.empty(); window = next_window()) {
      for (const auto& batch : batches_of(window, options_.batch_size)) run_batch(window, batch);
      for (Held& held : window) add(held);
      if (options_.progress) options_.progress({report_.items, report_.source_tokens + report_.target_tokens});
    }
    if (report_.items == 0)
      throw Error(ErrorKind::argument, "heads", "there are no items", "give a corpus, or repeated_items()");
    report_.corpus = hexadecimal(print_.value());
  }
  std::vector<HeadSums>& sums() { return sums_; }

 private:
  // Empty at the end.
  std::vector<Held> next_window() {
    std::vector<Held> window;
    std::int64_t tokens = 0;
    while (!ended_ && window.size() < most_items_ && tokens < window_tokens) {
      Held held;
      if (!items_(held.item)) {
        ended_ = true;
        break;
      }
      held.number = ++report_.items;
      check_item(model_.config(), held.item, held.number);
      add_ids(print_, held.item.source);
      add_ids(print_, held.item.target);
      const auto source = static_cast<std::int64_t>(held.item.source.size()),
                 target = static_cast<std::int64_t>(held.item.target.size());
      report_.source_tokens += source;
      report_.target_tokens += target;
      tokens += source + target;
      prepare(held, model_.config(), options_, shared_);
      window.push_back(std::move(held));
    }
    return window;
  }

  void run_batch(std::vector<Held>& window, const std::vector<std::int64_t>& batch) {
    if (options_.cancelled && options_.cancelled())
      throw Error(ErrorKind::cancelled, "heads", "the caller asked to stop");
    const TransformerConfig& config = model_.config();
    TokenBatch sources, targets;
    std::vector<Held*> members;
    for (const std::int64_t i : batch) {
      Held& held = window[static_cast<std::size_t>(i)];
      held.heads.resize(heads_);
      members.push_back(&held);
      if (config.encoder) sources.append(held.item.source);
      if (config.decoder) targets.append(held.item.target);
    }
    reader_.expect(std::move(members));
    States memory;
    if (config.encoder) memory = model_.encode(sources, run_);
    if (config.decoder) model_.decode(targets, config.encoder ? &memory : nullptr, run_);
  }

  void add(Held& held) {
    if (held.item.words && held.item.words->mirrors) {
      if (previous_.empty())
        throw Error(ErrorKind::argument, join("item ", held.number), "mirrors the item before, which has no words",
                    "put the pair before its mirror");
      compare_mirrors(previous_, held.heads);
    }
    for (std::size_t head = 0; head < heads_; ++head) sums_[head].add(held.heads[head]);
    previous_.clear();
    if (held.item.words) previous_ = std::move(held.heads);
  }

  const Model& model_;
  const HeadItems& items_;
  const HeadOptions& options_;
  const bool shared_;
  HeadReport& report_;
  const std::size_t heads_, most_items_;
  std::vector<HeadSums> sums_, previous_;
  HeadReader reader_;
  RunOptions run_;
  ByteHash print_;
  bool ended_ = false;
};

// Copying, of tokens that are text.
void add_copying(const Model& model, const HeadOptions& options, bool shared, HeadReport& report) {
  CopyingOptions copying;
  copying.tokens = options.copying_tokens;
  copying.shared_vocabulary = shared;
  copying.cancelled = options.cancelled;
  const Tokenizer* tokenizer = model.config().decoder ? options.target : options.source;
  for (std::int32_t id = 0; tokenizer && id < tokenizer->size(); ++id) {
    const std::string_view bytes = tokenizer->bytes(id);
    if (!tokenizer->is_control(id) && id != tokenizer->specials().unknown &&
        find_invalid_utf8(bytes) == std::string_view::npos)
      copying.only.push_back(id);
  }
  const std::vector<Copying> found = copying_through_values(model, copying);
  for (std::size_t head = 0; head < found.size(); ++head) {
    report.heads[head].values[static_cast<std::size_t>(Behaviour::copying)] = found[head].share;
    report.heads[head].values[static_cast<std::size_t>(Behaviour::copying_eigenvalues)] = found[head].eigenvalues;
  }
}

}  // namespace

HeadReport find_heads(const Model& model, const HeadItems& items, const HeadOptions& options) {
  const TransformerConfig& config = model.config();
  check_options(config, options);
  const bool shared = config.shared_embeddings || (options.source && options.target &&
                                                   options.source->fingerprint() == options.target->fingerprint());
  const NoGradientScope no_gradients;
  HeadReport report;
  report.model = fingerprint(model);
  const std::vector<HeadPlace> heads = heads_of(model);
  report.sketches.assign(heads.size(), std::vector<std::int64_t>(sketch_size));
  CorpusReader corpus(model, items, options, shared, report);
  corpus.read_all();
  for (std::size_t head = 0; head < heads.size(); ++head)
    report.heads.push_back({heads[head], values_of(corpus.sums()[head])});
  if (options.copying) add_copying(model, options, shared, report);
  return report;
}

}  // namespace attend
