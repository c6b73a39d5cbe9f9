#include "inspect/importance/target.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "attend/error.h"
#include "attend/tape.h"
#include "core/names.h"

namespace attend {
namespace {

constexpr const char* here = "target";

void check_number(const char* what, std::int64_t value, std::int64_t count, const std::string& of) {
  if (value >= 0 && value < count) return;
  throw Error(ErrorKind::argument, here, join(what, ' ', value, " does not exist"),
              join(of, " has ", what, "s 0 to ", count - 1, "; the nearest is ", value < 0 ? 0 : count - 1));
}

// Rows of logits worked on at once: enough for the product, few enough to stay in a cache with a vocabulary a row.
constexpr std::int64_t logit_rows = 48;

}  // namespace

Target logit_of(std::int32_t token, std::int64_t position) {
  Target target;
  target.token = token;
  target.position = position;
  return target;
}

Target difference_of(std::int32_t token, std::int32_t other, std::int64_t position) {
  Target target = logit_of(token, position);
  target.kind = Target::Kind::difference;
  target.other = other;
  return target;
}

Target log_probability_of(std::vector<std::int32_t> labels) {
  Target target;
  target.kind = Target::Kind::log_probability;
  target.labels = std::move(labels);
  return target;
}

Target class_logit_of(std::int32_t label) {
  Target target = logit_of(label);
  target.kind = Target::Kind::class_logit;
  return target;
}

Target class_difference_of(std::int32_t label, std::int32_t other) {
  Target target = difference_of(label, other);
  target.kind = Target::Kind::class_difference;
  return target;
}

std::int32_t token_named(const Tokenizer& tokenizer, std::string_view text) {
  if (const std::int32_t id = tokenizer.id(text); id >= 0) return id;
  const std::vector<std::int32_t> ids = tokenizer.encode(text);
  if (ids.size() == 1) return ids.front();
  std::vector<std::pair<std::size_t, std::int32_t>> near;
  const std::string_view compared = text.substr(0, 100);
  for (std::int32_t id = 0; id < tokenizer.size(); ++id)
    near.emplace_back(edit_distance(compared, tokenizer.readable(id)), id);
  const std::size_t named = std::min<std::size_t>(3, near.size());
  std::partial_sort(near.begin(), near.begin() + static_cast<std::ptrdiff_t>(named), near.end());
  std::string nearest, cut;
  for (std::size_t i = 0; i < named; ++i)
    nearest += join(i == 0 ? "" : ", ", '\'', tokenizer.readable(near[i].second), '\'');
  for (const std::int32_t id : ids) cut += join(cut.empty() ? "" : " ", '\'', tokenizer.readable(id), '\'');
  throw Error(ErrorKind::argument, here, join("the vocabulary has no token '", text, "'"),
              join(ids.empty() ? "" : join("as a text it is the ", ids.size(), " tokens ", cut, "; "),
                   "the nearest tokens are ", nearest));
}

// ---- Inputs -----------------------------------------------------------------------------------------------------------

bool reads_tokens(const Model& model) { return !model.config().encoder || model.config().encoder->vocabulary > 0; }

States repeated(const Tensor& rows, std::int64_t count) {
  States states{Tensor::empty({rows.rows() * count, rows.width()}), {0}};
  for (std::int64_t item = 0; item < count; ++item) {
    std::copy_n(rows.data(), rows.elements(), states.rows.row(item * rows.rows()));
    states.offsets.push_back((item + 1) * rows.rows());
  }
  return states;
}

bool of_classes(const Target& target) {
  return target.kind == Target::Kind::class_logit || target.kind == Target::Kind::class_difference;
}

void check_input(const Model& model, const ModelInput& input, const char* operation) {
  const auto refuse = [&](const std::string& what, const std::string& advice) {
    throw Error(ErrorKind::argument, operation, what, advice);
  };
  const TransformerConfig& config = model.config();
  const bool tokens = config.encoder && reads_tokens(model), features = config.encoder && !reads_tokens(model);
  if (tokens && input.source.empty()) refuse("the input has no source", "give the ids that the encoder reads");
  if (!tokens && !input.source.empty())
    refuse("the input has a source", features ? "the encoder reads features" : "the model has no encoder: give ids");
  if (features && !input.features.defined())
    refuse("the input has no features", "give the rows that the encoder reads");
  if (!features && input.features.defined()) refuse("the input has features", "the model reads tokens");
  if (config.decoder && input.ids.empty())
    refuse("the input has no ids", "give the ids that the decoder reads, bos first");
  if (!config.decoder && !input.ids.empty())
    refuse("the input has ids for a decoder", "the model is an encoder: give a source");
}

States encode_input(const Model& model, const ModelInput& input, const RunOptions& options) {
  if (!model.config().encoder) return {};
  if (!reads_tokens(model)) {
    const std::int64_t offsets[] = {0, input.features.rows()};
    return model.encode_features(input.features, offsets, options);
  }
  TokenBatch tokens;
  tokens.append(input.source);
  return model.encode(tokens, options);
}

States decode_input(const Model& model, const ModelInput& input, const States& memory, const RunOptions& options) {
  if (!model.config().decoder) return memory;
  TokenBatch tokens;
  tokens.append(input.ids);
  return model.decode(tokens, model.config().encoder ? &memory : nullptr, options);
}

// ---- Targets ----------------------------------------------------------------------------------------------------------

ResolvedTarget::ResolvedTarget(const Model& model, const Target& target, std::int64_t rows)
    : model_(model), target_(target) {
  const TransformerConfig& config = model.config();
  const bool two = target.kind == Target::Kind::difference || target.kind == Target::Kind::class_difference;
  if (two && target.token == target.other)
    throw Error(ErrorKind::argument, here, join("is the difference of ", target.token, " and itself"),
                "name another for the second");
  if (of_classes()) {
    if (config.classes == 0)
      throw Error(ErrorKind::argument, here, "the model has no classes",
                  join("it has a vocabulary of ", config.output_vocabulary(), " tokens"));
    check_number("class", target.token, config.classes, "the model");
    if (two) check_number("class", target.other, config.classes, "the model");
    end_row_ = config.pooling == Pooling::mean ? rows : 1;
    return;
  }
  const std::int64_t vocabulary = config.output_vocabulary();
  if (vocabulary == 0)
    throw Error(ErrorKind::argument, here, "the model predicts no tokens",
                join("it has classes 0 to ", config.classes - 1));
  const std::string stack = config.decoder ? "the decoder" : "the encoder";
  const std::string table = !config.tied_logits        ? "logits.weight"
                            : config.shared_embeddings ? "embedding.weight"
                            : config.decoder           ? "decoder.embedding.weight"
                                                       : "encoder.embedding.weight";
  for (const Parameter& parameter : model.parameters()) {
    if (parameter.name == table) logit_weights_ = parameter.value;
    if (parameter.name == "logits.bias") logit_biases_ = parameter.value;
  }
  if (target.kind == Target::Kind::log_probability) {
    const auto count = static_cast<std::int64_t>(target.labels.size());
    if (count != rows)
      throw Error(ErrorKind::argument, here, join(count, " labels are given and ", stack, " has ", rows, " positions"),
                  "give one a position, -1 where none is judged");
    first_row_ = rows;
    for (std::int64_t row = 0; row < rows; ++row) {
      const std::int32_t label = target.labels[static_cast<std::size_t>(row)];
      if (label == -1) continue;
      check_number("token", label, vocabulary, "the vocabulary");
      first_row_ = std::min(first_row_, row);
      end_row_ = row + 1;
    }
    if (end_row_ == 0) throw Error(ErrorKind::argument, here, "no position has a label", "all are -1");
    return;
  }
  if (target_.position == -1) target_.position = rows - 1;
  check_number("position", target_.position, rows, stack);
  check_number("token", target.token, vocabulary, "the vocabulary");
  if (two) check_number("token", target.other, vocabulary, "the vocabulary");
  first_row_ = target_.position;
  end_row_ = target_.position + 1;
}

std::vector<double> ResolvedTarget::row_values(const Tensor& rows, std::span<const std::int64_t> positions) const {
  std::vector<double> result;
  result.reserve(positions.size());
  if (target_.kind != Target::Kind::log_probability) {
    // One or two columns of the vocabulary's thousands.
    const auto logit = [&](const float* state, std::int32_t token) {
      const float* weights = logit_weights_.row(token);
      double sum = logit_biases_.defined() ? static_cast<double>(logit_biases_.data()[token]) : 0.0;
      for (std::int64_t i = 0; i < rows.width(); ++i)
        sum += static_cast<double>(state[i]) * static_cast<double>(weights[i]);
      return sum;
    };
    const bool two = target_.kind == Target::Kind::difference;
    for (std::int64_t row = 0; row < rows.rows(); ++row)
      result.push_back(logit(rows.row(row), target_.token) - (two ? logit(rows.row(row), target_.other) : 0.0));
    return result;
  }
  for (std::int64_t begin = 0; begin < rows.rows(); begin += logit_rows) {
    const std::int64_t count = std::min(logit_rows, rows.rows() - begin);
    const Tensor logits = log_softmax(model_.logits(rows.row_range(begin, count)));
    for (std::int64_t row = 0; row < count; ++row) {
      const float* z = logits.row(row);
      const std::int32_t token =
          target_.labels[static_cast<std::size_t>(positions[static_cast<std::size_t>(begin + row)])];
      result.push_back(token < 0 ? 0 : static_cast<double>(z[token]));
    }
  }
  return result;
}

std::vector<double> ResolvedTarget::values_of_rows(const Tensor& rows) const {
  std::vector<std::int64_t> positions;
  for (std::int64_t row = first_row_; row < end_row_; ++row) positions.push_back(row);
  return row_values(rows.row_range(first_row_, end_row_ - first_row_), positions);
}

double ResolvedTarget::class_value(const Tensor& logits, std::int64_t item) const {
  const double other =
      target_.kind == Target::Kind::class_difference ? static_cast<double>(logits.at(item, target_.other)) : 0.0;
  return static_cast<double>(logits.at(item, target_.token)) - other;
}

std::vector<double> ResolvedTarget::values(const States& states, std::span<const std::int64_t> firsts,
                                           std::span<const double> base) const {
  std::vector<double> result(static_cast<std::size_t>(states.items()), 0.0);
  if (of_classes()) {
    const Tensor logits = model_.classify(states);
    for (std::int64_t item = 0; item < states.items(); ++item)
      result[static_cast<std::size_t>(item)] = class_value(logits, item);
    return result;
  }
  std::vector<std::int64_t> rows, positions;
  std::vector<std::size_t> items;
  for (std::size_t item = 0; item < result.size(); ++item)
    for (std::int64_t position = first_row_; position < end_row_; ++position) {
      const std::int64_t row = states.offsets[item] + position - firsts[item];
      if (row >= states.offsets[item] && row < states.offsets[item + 1]) {
        rows.push_back(row);
        positions.push_back(position);
        items.push_back(item);
      } else {
        result[item] += base[static_cast<std::size_t>(position - first_row_)];
      }
    }
  if (rows.empty()) return result;
  const std::vector<double> values = row_values(select_rows(states.rows, rows), positions);
  for (std::size_t i = 0; i < values.size(); ++i) result[items[i]] += values[i];
  return result;
}

Tensor ResolvedTarget::differentiable(const States& states) const {
  std::vector<std::int64_t> rows;
  for (std::int64_t item = 0; item < states.items(); ++item)
    for (std::int64_t row = first_row_; row < end_row_; ++row)
      rows.push_back(states.offsets[static_cast<std::size_t>(item)] + row);
  if (target_.kind == Target::Kind::log_probability) {
    std::vector<std::int32_t> labels;
    for (std::int64_t item = 0; item < states.items(); ++item)
      labels.insert(labels.end(), target_.labels.begin() + first_row_, target_.labels.begin() + end_row_);
    return model_.loss(select_rows(states.rows, rows), labels, 0, -1).total;
  }
  const Tensor logits = of_classes() ? model_.classify(states) : model_.logits(select_rows(states.rows, rows));
  Tensor chosen = Tensor::zeros(logits.shape());
  const bool two = target_.kind == Target::Kind::difference || target_.kind == Target::Kind::class_difference;
  for (std::int64_t item = 0; item < states.items(); ++item) {
    chosen.row(item)[target_.token] = 1;
    if (two) chosen.row(item)[target_.other] = -1;
  }
  return sum(multiply(logits, chosen));
}

double target_value(const Model& model, const ModelInput& input, const Target& target) {
  check_input(model, input, "target_value");
  const NoGradientScope no_gradients;
  const States memory = encode_input(model, input);
  const States states = of_classes(target) ? memory : decode_input(model, input, memory);
  const ResolvedTarget resolved(model, target, states.rows.rows());
  const std::int64_t first[] = {0};
  return resolved.values(states, first, {}).front();
}

}  // namespace attend
