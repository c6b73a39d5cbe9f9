#include "run/steps.h"

#include <algorithm>
#include <numeric>
#include <string>
#include <utility>

#include "attend/error.h"
#include "kernel/rowwise/rowwise.h"
#include "run/options.h"

namespace attend {

void StepBatch::clear() {
  tokens_.ids.clear();
  tokens_.offsets.assign(1, 0);
  caches_.clear();
  judged_rows_.clear();
  judged_offsets_.assign(1, 0);
  items_.clear();
  rows_ = 0;
}

void StepBatch::add(KvCache& cache, std::span<const std::int32_t> ids, std::int64_t judged, std::int64_t item) {
  tokens_.append(ids);
  caches_.push_back(&cache);
  for (std::int64_t row = tokens_.rows() - judged; row < tokens_.rows(); ++row) judged_rows_.push_back(row);
  rows_ += judged;
  judged_offsets_.push_back(rows_);
  items_.push_back(item);
}

Tensor StepBatch::run() {
  if (probe_ != nullptr) {
    RunOptions options;
    options.probe = probe_;
    options.item_numbers = items_;
    const States states = model_.decode_cached(tokens_, caches_, options);
    std::vector<std::int64_t> first_positions;
    for (std::size_t item = 0; item < caches_.size(); ++item)
      first_positions.push_back(caches_[item]->length() - (judged_offsets_[item + 1] - judged_offsets_[item]));
    return model_.logits(States{select_rows(states.rows, judged_rows_), judged_offsets_}, options, first_positions);
  }
  const States states = model_.decode_cached(tokens_, caches_);
  if (rows_ == tokens_.rows()) return model_.logits(states.rows);
  return model_.logits(select_rows(states.rows, judged_rows_));
}

Admission::Admission(const Model& model, std::span<const DecodeInput> inputs, const DecodeOptions& options)
    : model_(model), inputs_(inputs), probe_(options.probe) {
  const std::int64_t positions = model.config().max_positions;
  limits_.reserve(inputs.size());
  for (std::size_t i = 0; i < inputs.size(); ++i) {
    const DecodeInput& input = inputs[i];
    const std::string where = join("input ", i);
    check_source(model, input.source, where);
    const std::int64_t vocabulary = model.config().decoder->vocabulary;
    check_ids(input.prompt, vocabulary, where, "prompt");
    check_ids(input.prefix, vocabulary, where, "prefix");
    const auto prompt = static_cast<std::int64_t>(input.prompt.size()),
               prefix = static_cast<std::int64_t>(input.prefix.size());
    if (prompt == 0) {
      throw Error(ErrorKind::argument, where, "the prompt is empty, but a decoder needs a token to go on from",
                  "begin with the token that begins sequences, usually bos");
    }
    if (prompt > positions) {
      throw Error(ErrorKind::argument, where,
                  join("the prompt has ", prompt, " tokens and the model ", positions, " positions"),
                  "shorten the prompt");
    }
    for (const std::int32_t id : input.prefix) {
      if (std::find(options.end.begin(), options.end.end(), id) != options.end.end()) {
        throw Error(ErrorKind::argument, where, join("the forced prefix holds the end token ", id), "leave it out");
      }
    }
    const std::int64_t limit = length_limit(model, input, options);
    if (prefix > limit || prompt + prefix > positions) {
      throw Error(ErrorKind::argument, where,
                  join("the forced prefix has ", prefix, " tokens after a prompt of ", prompt, "; at most ", limit,
                       " may be generated and the model has ", positions, " positions"),
                  "shorten the prefix or raise max_length");
    }
    limits_.push_back(limit);
  }
  order_.resize(inputs.size());
  std::iota(order_.begin(), order_.end(), 0);
  // The longest first: what comes last and can no longer be joined by others is short.
  const auto length = [&](std::int64_t i) {
    const DecodeInput& input = inputs[static_cast<std::size_t>(i)];
    return input.source.empty() ? input.prompt.size() + input.prefix.size() : input.source.size();
  };
  std::stable_sort(order_.begin(), order_.end(), [&](std::int64_t a, std::int64_t b) { return length(a) > length(b); });
}

std::vector<Start> Admission::admit(std::int64_t most) {
  std::vector<Start> starts;
  const std::size_t end = std::min(order_.size(), next_ + static_cast<std::size_t>(std::max<std::int64_t>(most, 0)));
  if (next_ == end) return starts;
  std::shared_ptr<const CrossMemory> memory;
  const auto item_of = [&](std::size_t i) {
    const std::int64_t item = inputs_[static_cast<std::size_t>(order_[i])].item;
    return item < 0 ? order_[i] : item;
  };
  if (model_.config().encoder) {
    TokenBatch sources;
    std::vector<std::int64_t> items;
    for (std::size_t i = next_; i < end; ++i) {
      sources.append(inputs_[static_cast<std::size_t>(order_[i])].source);
      items.push_back(item_of(i));
    }
    RunOptions options;
    options.probe = probe_;
    options.item_numbers = items;
    memory = model_.share_memory(model_.encode(sources, options), options);
  }
  starts.reserve(end - next_);
  for (std::size_t i = next_; i < end; ++i) {
    const DecodeInput& input = inputs_[static_cast<std::size_t>(order_[i])];
    KvCache cache = memory ? KvCache(model_, memory, static_cast<std::int64_t>(i - next_)) : KvCache(model_);
    std::vector<std::int32_t> reading = input.prompt;
    reading.insert(reading.end(), input.prefix.begin(), input.prefix.end());
    starts.push_back(
        {order_[i], item_of(i), limits_[static_cast<std::size_t>(order_[i])], std::move(cache), std::move(reading)});
  }
  next_ = end;
  return starts;
}

void label_losses(Tensor& logits, std::span<const std::int32_t> labels, std::vector<float>& losses) {
  losses.resize(labels.size());
  cross_entropy({logits.data(), logits.rows(), logits.width(), logits.row_stride()}, labels.data(), 0, 0, losses.data(),
                nullptr);
}

void check_cancelled(const DecodeOptions& options) {
  if (options.cancelled && options.cancelled())
    throw Error(ErrorKind::cancelled, "generate", "the caller asked to stop");
}

void refuse_logits(std::int64_t input, std::size_t token) {
  throw Error(ErrorKind::numeric, "generate",
              join("logits of input ", input, " for token ", token, " are NaN or infinite"),
              "check the model's weights");
}

}  // namespace attend
