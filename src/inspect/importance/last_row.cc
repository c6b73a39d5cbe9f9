#include "inspect/importance/last_row.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "attend/error.h"

namespace attend {
namespace {

Tensor copied_rows(const Tensor& matrix, std::int64_t begin, std::int64_t count) {
  return matrix.row_range(begin, count).clone();
}

Tensor copied_elements(const Tensor& vector, std::int64_t begin, std::int64_t count) {
  return Tensor::from({count}, std::span(vector.data() + begin, static_cast<std::size_t>(count)));
}

}  // namespace

OneRowAttention::OneRowAttention(const Model& model, int layer, Part part)
    : config_(model.config()), rules_(model.attention_rules(StackKind::decoder, part)) {
  const bool fused = part == Part::self;
  const std::string name = join("decoder.", layer, fused ? ".self." : ".cross.");
  const auto find = [&](const std::string& of) -> const Parameter* {
    for (const Parameter& parameter : model.parameters())
      if (parameter.name == name + of) return &parameter;
    return nullptr;
  };
  const auto value = [&](const std::string& of) { return find(of) == nullptr ? Tensor() : find(of)->value; };
  const std::int64_t heads = config_.heads, dim = config_.head_width(), key_heads = config_.key_head_count();
  const std::string query = fused ? "query_key_value" : "query", key_value = fused ? "query_key_value" : "key_value";
  const std::int64_t keys_begin = fused ? heads * dim : 0, values_begin = keys_begin + key_heads * dim;
  gain_ = value("norm.gain");
  norm_bias_ = value("norm.bias");
  query_ = Weight(copied_rows(value(query + ".weight"), 0, heads * dim));
  if (const Tensor bias = value(query + ".bias"); bias.defined()) query_bias_ = copied_elements(bias, 0, heads * dim);
  output_ = find("output.weight")->weight;
  output_bias_ = value("output.bias");
  const Tensor weights = value(key_value + ".weight"), biases = value(key_value + ".bias");
  for (std::int64_t head = 0; head < heads; ++head) {
    const std::int64_t begin = head / (heads / key_heads) * dim;
    keys_.emplace_back(transpose(copied_rows(weights, keys_begin + begin, dim)));
    values_.emplace_back(copied_rows(weights, values_begin + begin, dim));
    value_biases_.push_back(biases.defined() ? copied_elements(biases, values_begin + begin, dim) : Tensor());
  }
  if (rules_.scale == 0) rules_.scale = static_cast<float>(1 / std::sqrt(static_cast<double>(dim)));
  rules_.key_heads = 1;
  rules_.head_dim = rules_.value_dim = config_.width;
}

Tensor OneRowAttention::normalised(const Tensor& rows) const {
  const auto epsilon = static_cast<float>(config_.norm_epsilon);
  return config_.norm == NormKind::rms ? rms_norm(rows, gain_, epsilon) : layer_norm(rows, gain_, norm_bias_, epsilon);
}

Tensor OneRowAttention::normed(const Tensor& rows) const {
  return config_.norm_place == NormPlace::pre ? normalised(rows) : rows;
}

Tensor OneRowAttention::after(const Tensor& rows, std::int64_t position, const Tensor& keys,
                              std::span<const RowSpan> spans) const {
  const std::int64_t width = config_.width, dim = config_.head_width();
  const Tensor query = linear(normed(rows), query_, query_bias_);
  Tensor absorbed = Tensor::empty({rows.rows(), config_.heads * width});
  const auto put = [](const Tensor& part, Tensor& whole, std::int64_t column) {
    for (std::int64_t row = 0; row < part.rows(); ++row)
      std::copy_n(part.row(row), part.width(), whole.row(row) + column);
  };
  for (std::int64_t head = 0; head < config_.heads; ++head)
    put(linear(query.columns(head * dim, dim), keys_[static_cast<std::size_t>(head)]), absorbed, head * width);
  AttentionInput input = rules_;
  for (std::int64_t item = 0; item < rows.rows(); ++item) {
    AttentionItem one;
    one.query_begin = item;
    one.queries = 1;
    one.query_position = position;
    one.key_begin = spans[static_cast<std::size_t>(item)].begin;
    one.keys = spans[static_cast<std::size_t>(item)].count;
    input.items.push_back(one);
  }
  const Tensor gathered = attention(absorbed, keys, keys, input);
  Tensor heads = Tensor::empty({rows.rows(), config_.heads * dim});
  for (std::int64_t head = 0; head < config_.heads; ++head) {
    const auto h = static_cast<std::size_t>(head);
    put(linear(gathered.columns(head * width, width), values_[h], value_biases_[h]), heads, head * dim);
  }
  const Tensor written = add(rows, linear(heads, output_, output_bias_));
  return config_.norm_place == NormPlace::post ? normalised(written) : written;
}

bool LastRow::fits(const TransformerConfig& config) {
  return config.decoder && config.positions != PositionKind::rotary && config.score_cap == 0;
}

LastRow::LastRow(const Model& model)
    : model_(model), layer_(static_cast<int>(model.config().decoder->layers) - 1), self_(model, layer_, Part::self) {
  if (model.config().encoder) cross_.emplace(model, layer_, Part::cross);
}

Tensor LastRow::states(Tensor rows, std::int64_t position, const Tensor& normed, std::span<const RowSpan> before,
                       const Tensor& memory, std::span<const RowSpan> sources) const {
  return states_after_self(self_.after(rows, position, normed, before), position, memory, sources);
}

Tensor LastRow::states_after_self(Tensor rows, std::int64_t position, const Tensor& memory,
                                  std::span<const RowSpan> sources) const {
  if (cross_) rows = cross_->after(rows, position, memory, sources);
  States states{std::move(rows), {0}};
  for (std::int64_t item = 1; item <= states.rows.rows(); ++item) states.offsets.push_back(item);
  StackRange range;
  range.first_layer = layer_;
  range.first_part = Part::feed_forward;
  return model_.decode_from(states, nullptr, range).rows;
}

}  // namespace attend
