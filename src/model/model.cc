#include "attend/model.h"

#include <algorithm>
#include <unordered_map>
#include <utility>

#include "core/names.h"
#include "model/block.h"
#include "model/kv_cache.h"
#include "model/parts.h"

namespace attend {
namespace {

const StackParts& need_stack(const std::optional<StackParts>& stack, const char* operation, const char* name) {
  if (!stack) throw Error(ErrorKind::argument, operation, join("the model has no ", name));
  return *stack;
}

void check_offsets(const char* operation, std::span<const std::int64_t> offsets, std::int64_t rows) {
  if (offsets.empty() || offsets.front() != 0 || offsets.back() != rows)
    throw Error(ErrorKind::shape, operation, join("item offsets must run from 0 to the number of rows, ", rows));
  for (std::size_t item = 0; item + 1 < offsets.size(); ++item)
    if (offsets[item + 1] <= offsets[item])
      throw Error(ErrorKind::shape, operation, join("item ", item, " is empty"), "leave empty items out");
}

void check_tokens(const char* operation, const TokenBatch& tokens, std::int64_t vocabulary) {
  check_offsets(operation, tokens.offsets, static_cast<std::int64_t>(tokens.ids.size()));
  for (std::size_t row = 0; row < tokens.ids.size(); ++row)
    if (tokens.ids[row] < 0 || tokens.ids[row] >= vocabulary)
      throw Error(ErrorKind::argument, operation,
                  join("token id ", tokens.ids[row], " at row ", row, " is outside the vocabulary"),
                  join("ids run from 0 to ", vocabulary - 1));
}

// Positions 0, 1, ... of every item, going on after what its cache holds; refuses items the model has no positions for.
std::vector<std::int32_t> number_rows(const char* operation, const TransformerConfig& config,
                                      std::span<const std::int64_t> offsets, std::span<KvCache* const> caches = {}) {
  std::vector<std::int32_t> positions;
  positions.reserve(static_cast<std::size_t>(offsets.back()));
  for (std::size_t item = 0; item + 1 < offsets.size(); ++item) {
    const std::int64_t before = caches.empty() ? 0 : caches[item]->length();
    const std::int64_t length = before + offsets[item + 1] - offsets[item];
    if (length > config.max_positions)
      throw Error(
          ErrorKind::argument, operation,
          join("item ", item, " is ", length, " tokens long and the model has ", config.max_positions, " positions"),
          "shorten the text or split it");
    for (std::int64_t position = before; position < length; ++position)
      positions.push_back(static_cast<std::int32_t>(position));
  }
  return positions;
}

std::vector<std::int64_t> positions_after(std::span<KvCache* const> caches) {
  std::vector<std::int64_t> first;
  for (const KvCache* cache : caches) first.push_back(cache->length());
  return first;
}

// Every item needs a cache of its own that fits the model.
void check_caches(const char* operation, const TransformerConfig& config, std::span<KvCache* const> caches) {
  std::unordered_map<const KvCache*, std::size_t> items;
  for (std::size_t item = 0; item < caches.size(); ++item) {
    if (!caches[item]) throw Error(ErrorKind::argument, operation, join("the cache of item ", item, " is null"));
    const auto [place, fresh] = items.emplace(caches[item], item);
    if (!fresh)
      throw Error(ErrorKind::argument, operation, join("items ", place->second, " and ", item, " have the same cache"),
                  "copy the cache: each item writes to its own");
    KvAccess::check(*caches[item], config, operation, item);
  }
}

void check_memory(const char* operation, const Model::Parts& parts, const States* memory, std::int64_t items) {
  if (parts.encoder && !memory)
    throw Error(ErrorKind::argument, operation, "an encoder-decoder needs the encoder's output");
  if (!parts.encoder && memory)
    throw Error(ErrorKind::argument, operation, "a memory was given to a model without encoder");
  if (memory && memory->items() != items)
    throw Error(ErrorKind::shape, operation, join("there are ", items, " items and the memory has ", memory->items()));
  if (memory) check_offsets(operation, memory->offsets, memory->rows.rows());
}

void check_range(const char* operation, const TransformerConfig& config, const StackParts& stack, const States& rows,
                 const StackRange& range, const RunOptions& options) {
  const auto refuse = [&](const std::string& what, const std::string& advice = {}) {
    throw Error(ErrorKind::argument, operation, what, advice);
  };
  const auto layers = static_cast<int>(stack.blocks.size());
  if (rows.rows.width() != config.width)
    throw Error(ErrorKind::shape, operation,
                join("the rows are ", rows.rows.shape(), " and the model's width is ", config.width));
  check_offsets(operation, rows.offsets, rows.rows.rows());
  if (range.first_layer < 0 || range.first_layer > layers)
    refuse(join("first_layer is ", range.first_layer),
           join("the stack has layers 0 to ", layers - 1, "; ", layers, " is its end"));
  if (range.end_layer < -1 || range.end_layer > layers || (range.end_layer >= 0 && range.end_layer < range.first_layer))
    refuse(join("end_layer is ", range.end_layer, " after first_layer ", range.first_layer),
           join("it runs up to ", layers));
  const bool cross = stack.kind == StackKind::decoder && config.encoder;
  if (range.first_part == Part::block || (range.first_part == Part::cross && !cross))
    refuse("first_part does not exist in this stack", cross ? "self, cross or feed_forward" : "self or feed_forward");
  if (range.last_rows < 0) refuse(join("last_rows is ", range.last_rows));
  if (range.projected.defined()) {
    const bool queries = range.first_part == Part::cross;
    const Shape wanted{rows.rows.rows(),
                       (config.heads + (queries ? 0 : 2 * config.key_head_count())) * config.head_width()};
    if (!(range.projected.shape() == wanted) || !range.projected.contiguous())
      throw Error(ErrorKind::shape, operation, join("projected is ", range.projected.shape()),
                  join("it must be ", wanted, " without gaps"));
    if (options.probe || range.first_part == Part::feed_forward)
      refuse("projected is given with a probe or a later part", "leave one of them out");
    for (const std::int64_t row : range.changed)
      if (row < 0 || row >= rows.rows.rows())
        refuse(join("row ", row, " is changed"), join("rows run from 0 to ", rows.rows.rows() - 1));
  }
  if (range.queries.empty()) return;
  if (rows.items() != 1 || range.first_part != Part::self || range.end_layer != range.first_layer + 1 ||
      range.last_rows != 0 || options.self_mask || !options.item_numbers.empty())
    refuse("queries need one sequence, one whole block, no mask and no item numbers of the caller",
           "set end_layer to first_layer + 1");
  for (const std::int64_t row : range.queries)
    if (row < 0 || row >= rows.rows.rows())
      refuse(join("query ", row, " is asked for"), join("rows run from 0 to ", rows.rows.rows() - 1));
}

}  // namespace

Model::Model(TransformerConfig config, std::uint64_t seed) : parts_(std::make_unique<Parts>()) {
  config.check();
  parts_->config = std::move(config);
  build_parts(*parts_, seed);
}
Model::Model(TransformerConfig config) : parts_(std::make_unique<Parts>()) {
  config.check();
  parts_->config = std::move(config);
  build_parts(*parts_, std::nullopt);
}
Model::~Model() = default;
Model::Model(Model&&) noexcept = default;
Model& Model::operator=(Model&&) noexcept = default;

const TransformerConfig& Model::config() const { return parts_->config; }
std::vector<Parameter>& Model::parameters() { return parts_->parameters; }
const std::vector<Parameter>& Model::parameters() const { return parts_->parameters; }

Parameter& Model::parameter(const std::string& name) {
  for (Parameter& parameter : parts_->parameters)
    if (parameter.name == name) return parameter;
  std::vector<std::string> names;
  for (const Parameter& parameter : parts_->parameters) names.push_back(parameter.name);
  const std::string near = nearest_name(name, names);
  throw Error(ErrorKind::argument, "Model::parameter", join("no parameter is called '", name, "'"),
              near.empty() ? join("the first of ", names.size(), " is '", names.front(), "'")
                           : join("did you mean '", near, "'?"));
}

std::int64_t Model::parameter_count() const {
  std::int64_t count = 0;
  for (const Parameter& parameter : parts_->parameters) count += parameter.value.elements();
  return count;
}

std::vector<Site> Model::sites() const {
  const auto has = [&](const StackConfig& stack, bool cross) {
    return StackSites{.cross = cross,
                      .rotary = config().positions == PositionKind::rotary,
                      .post_norm = config().norm_place == NormPlace::post,
                      .embedding_norm = stack.embedding_norm,
                      .final_norm = stack.final_norm};
  };
  std::vector<Site> sites;
  if (config().encoder) {
    sites = sites_of(StackKind::encoder, static_cast<int>(config().encoder->layers), has(*config().encoder, false));
    // An encoder below a decoder predicts nothing itself, nor does one that reads features, unless it classifies.
    if (config().classes == 0 && (config().decoder || config().output_vocabulary() == 0))
      std::erase_if(sites, [](const Site& site) { return site.point == Point::logits; });
  }
  if (config().decoder) {
    const auto more = sites_of(StackKind::decoder, static_cast<int>(config().decoder->layers),
                               has(*config().decoder, config().encoder.has_value()));
    sites.insert(sites.end(), more.begin(), more.end());
  }
  return sites;
}

AttentionInput Model::attention_rules(StackKind stack, Part part) const {
  const StackParts& parts = stack == StackKind::encoder ? need_stack(parts_->encoder, "attention_rules", "encoder")
                                                        : need_stack(parts_->decoder, "attention_rules", "decoder");
  if (part != Part::self && (part != Part::cross || stack == StackKind::encoder || !parts_->encoder))
    throw Error(ErrorKind::argument, "attention_rules", "this part of the stack has no attention",
                "self, or cross of a decoder with encoder");
  return attend::attention_rules(*parts_, parts, part);
}

States Model::encode(const TokenBatch& tokens, const RunOptions& options) const {
  const StackParts& stack = need_stack(parts_->encoder, "encode", "encoder");
  if (stack.config.vocabulary == 0)
    throw Error(ErrorKind::argument, "encode", "the encoder reads features, not tokens", "call encode_features");
  check_tokens("encode", tokens, stack.config.vocabulary);
  StackRun run{*parts_, stack, options, tokens.offsets, number_rows("encode", parts_->config, tokens.offsets),
               nullptr, {},    0};
  return {run_stack(run, embed_tokens(run, tokens.ids)), tokens.offsets};
}

States Model::encode_features(const Tensor& features, std::span<const std::int64_t> offsets,
                              const RunOptions& options) const {
  const StackParts& stack = need_stack(parts_->encoder, "encode_features", "encoder");
  if (stack.config.input_width == 0)
    throw Error(ErrorKind::argument, "encode_features", "the encoder reads tokens, not features", "call encode");
  if (features.width() != stack.config.input_width)
    throw Error(ErrorKind::shape, "encode_features",
                join("features are ", features.shape(), " and the encoder reads rows of ", stack.config.input_width));
  check_offsets("encode_features", offsets, features.rows());
  std::vector<std::int64_t> with_token(offsets.begin(), offsets.end());
  if (stack.config.class_token)
    for (std::size_t item = 0; item < with_token.size(); ++item) with_token[item] += static_cast<std::int64_t>(item);
  StackRun run{*parts_, stack, options, with_token, number_rows("encode_features", parts_->config, with_token),
               nullptr, {},    0};
  return {run_stack(run, embed_features(run, features, offsets)), with_token};
}

States Model::decode(const TokenBatch& tokens, const States* memory, const RunOptions& options) const {
  const StackParts& stack = need_stack(parts_->decoder, "decode", "decoder");
  check_memory("decode", *parts_, memory, tokens.items());
  check_tokens("decode", tokens, stack.config.vocabulary);
  StackRun run{*parts_, stack, options, tokens.offsets, number_rows("decode", parts_->config, tokens.offsets),
               memory,  {},    0};
  return {run_stack(run, embed_tokens(run, tokens.ids)), tokens.offsets};
}

States Model::decode_cached(const TokenBatch& tokens, std::span<KvCache* const> caches,
                            const RunOptions& options) const {
  const StackParts& stack = need_stack(parts_->decoder, "decode_cached", "decoder");
  if (static_cast<std::int64_t>(caches.size()) != tokens.items())
    throw Error(ErrorKind::shape, "decode_cached",
                join("tokens have ", tokens.items(), " items and ", caches.size(), " caches were given"));
  check_tokens("decode_cached", tokens, stack.config.vocabulary);
  check_caches("decode_cached", parts_->config, caches);
  const NoGradientScope no_gradients;
  StackRun run{*parts_,
               stack,
               options,
               tokens.offsets,
               number_rows("decode_cached", parts_->config, tokens.offsets, caches),
               nullptr,
               caches,
               0,
               positions_after(caches)};
  States result{run_stack(run, embed_tokens(run, tokens.ids)), tokens.offsets};
  for (std::size_t item = 0; item < caches.size(); ++item)
    KvAccess::grow(*caches[item], tokens.length(static_cast<std::int64_t>(item)));
  return result;
}

States Model::encode_from(const States& rows, const StackRange& range, const RunOptions& options) const {
  const StackParts& stack = need_stack(parts_->encoder, "encode_from", "encoder");
  check_range("encode_from", parts_->config, stack, rows, range, options);
  StackRun run{*parts_, stack, options, rows.offsets, number_rows("encode_from", parts_->config, rows.offsets),
               nullptr, {},    0,       {},           range,
               false};
  Tensor result = run_stack(run, rows.rows);
  return {std::move(result), std::move(run.offsets)};
}

States Model::decode_from(const States& rows, const States* memory, const StackRange& range,
                          const RunOptions& options) const {
  const StackParts& stack = need_stack(parts_->decoder, "decode_from", "decoder");
  check_range("decode_from", parts_->config, stack, rows, range, options);
  const int end = range.end_layer < 0 ? static_cast<int>(stack.blocks.size()) : range.end_layer;
  const bool reads = range.first_layer + (range.first_part == Part::feed_forward ? 1 : 0) < end;
  if (reads || memory) check_memory("decode_from", *parts_, memory, rows.items());
  StackRun run{*parts_, stack, options, rows.offsets, number_rows("decode_from", parts_->config, rows.offsets),
               memory,  {},    0,       {},           range,
               false};
  Tensor result = run_stack(run, rows.rows);
  return {std::move(result), std::move(run.offsets)};
}

States Model::decode_cached_from(const States& rows, std::span<KvCache* const> caches, const StackRange& range,
                                 const RunOptions& options) const {
  const StackParts& stack = need_stack(parts_->decoder, "decode_cached_from", "decoder");
  check_range("decode_cached_from", parts_->config, stack, rows, range, options);
  if (!range.queries.empty())
    throw Error(ErrorKind::argument, "decode_cached_from", "queries are asked for",
                "call decode_from, which shares keys and values");
  if (static_cast<std::int64_t>(caches.size()) != rows.items())
    throw Error(ErrorKind::shape, "decode_cached_from",
                join(rows.items(), " items and ", caches.size(), " caches were given"));
  check_caches("decode_cached_from", parts_->config, caches);
  const NoGradientScope no_gradients;
  StackRun run{*parts_,
               stack,
               options,
               rows.offsets,
               number_rows("decode_cached_from", parts_->config, rows.offsets, caches),
               nullptr,
               caches,
               0,
               positions_after(caches),
               range,
               false};
  Tensor result = run_stack(run, rows.rows);
  return {std::move(result), std::move(run.offsets)};
}

std::shared_ptr<const CrossMemory> Model::share_memory(const States& memory, const RunOptions& options) const {
  const StackParts& stack = need_stack(parts_->decoder, "share_memory", "decoder");
  need_stack(parts_->encoder, "share_memory", "encoder");
  check_offsets("share_memory", memory.offsets, memory.rows.rows());
  const NoGradientScope no_gradients;
  auto shared = std::make_shared<CrossMemory>();
  shared->offsets = memory.offsets;
  const std::int64_t key_width = parts_->config.key_head_count() * parts_->config.head_width();
  check_item_numbers("share_memory", options, memory.items());
  int layer = 0;
  for (const BlockParts& block : stack.blocks) {
    const Tensor both = linear(memory.rows, block.cross->key_value.weight, block.cross->key_value.bias);
    Tensor key = both.columns(0, key_width).clone(), value = both.columns(key_width, key_width).clone();
    visit_site(options, {StackKind::decoder, layer, Part::cross, Point::key}, memory.offsets, {}, key);
    visit_site(options, {StackKind::decoder, layer, Part::cross, Point::value}, memory.offsets, {}, value);
    shared->keys.push_back(key.contiguous() ? key : key.clone());
    shared->values.push_back(value.contiguous() ? value : value.clone());
    ++layer;
  }
  return shared;
}

Tensor Model::logits(const Tensor& states, const RunOptions& options) const {
  RunOptions of_one_item = options;
  if (of_one_item.item_numbers.size() != 1) of_one_item.item_numbers = {};
  return logits(States{states, {0, states.rows()}}, of_one_item);
}

Tensor Model::logits(const States& states, const RunOptions& options,
                     std::span<const std::int64_t> first_positions) const {
  if (!parts_->logits.weight.defined())
    throw Error(ErrorKind::argument, "logits", "the model has no vocabulary to predict");
  if (states.offsets.empty() || states.offsets.back() != states.rows.rows())
    throw Error(ErrorKind::shape, "logits",
                join("item offsets must run from 0 to the number of rows, ", states.rows.rows()));
  check_item_numbers("logits", options, states.items());
  if (!first_positions.empty() && static_cast<std::int64_t>(first_positions.size()) != states.items())
    throw Error(ErrorKind::argument, "logits",
                join(first_positions.size(), " first positions are given for ", states.items(), " items"));
  Tensor result = linear(states.rows, parts_->logits.weight, parts_->logits.bias);
  visit_site(options, {parts_->decoder ? StackKind::decoder : StackKind::encoder, -1, Part::block, Point::logits},
             states.offsets, first_positions, result);
  return result;
}

LossResult Model::loss(const Tensor& states, std::span<const std::int32_t> labels, float smoothing,
                       float factor) const {
  if (!parts_->logits.weight.defined())
    throw Error(ErrorKind::argument, "loss", "the model has no vocabulary to predict");
  return linear_cross_entropy(states, parts_->logits.weight, parts_->logits.bias, labels, smoothing, factor);
}

Tensor Model::classify(const States& encoded, const RunOptions& options) const {
  if (!parts_->classifier.weight.defined()) throw Error(ErrorKind::argument, "classify", "the model has no classifier");
  check_item_numbers("classify", options, encoded.items());
  Tensor pooled;
  if (parts_->config.pooling == Pooling::mean) {
    pooled = mean_rows(encoded.rows, encoded.offsets);
  } else {
    std::vector<std::int64_t> first(encoded.offsets.begin(), encoded.offsets.end() - 1);
    pooled = select_rows(encoded.rows, first);
  }
  Tensor result = linear(pooled, parts_->classifier.weight, parts_->classifier.bias);
  std::vector<std::int64_t> items(encoded.offsets.size());
  for (std::size_t item = 0; item < items.size(); ++item) items[item] = static_cast<std::int64_t>(item);
  visit_site(options, {StackKind::encoder, -1, Part::block, Point::logits}, items, {}, result);
  return result;
}

std::int64_t training_memory(const TransformerConfig& config, std::int64_t encoder_rows, std::int64_t decoder_rows) {
  // Floats a row that a block keeps for its backward step. The names are those of the sites.
  const std::int64_t width = config.width, query = config.heads * config.head_width(),
                     key = config.key_head_count() * config.head_width();
  const std::int64_t attention = width /*normed*/ + query + 2 * key + query /*head output*/ +
                                 config.heads /*log-sum-exp*/ + width /*projected*/ + width /*added*/;
  const std::int64_t inner = config.inner_width * (config.gated                            ? 3
                                                   : config.activation == Activation::relu ? 1
                                                                                           : 2) +
                             (config.inner_dropout > 0 ? config.inner_width : 0);
  const std::int64_t feed_forward = width + inner + width + width;
  std::int64_t floats = 0;
  if (config.encoder) floats += encoder_rows * (3 * width + config.encoder->layers * (attention + feed_forward));
  if (config.decoder) {
    floats += decoder_rows * (3 * width + config.decoder->layers * (attention + feed_forward));
    if (config.encoder)
      floats += config.decoder->layers *
                (decoder_rows * (width + query + query + config.heads + 2 * width) + encoder_rows * 2 * key);
  }
  return floats * static_cast<std::int64_t>(sizeof(float));
}

}  // namespace attend
