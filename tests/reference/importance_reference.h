// Targets of whole textbook runs in float64, and what such runs let one see and change.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <functional>
#include <limits>
#include <map>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "attend/importance.h"
#include "reference/transformer_reference.h"

namespace attend::reference {

// A whole textbook run of one input and the value of a target.
class Textbook {
 public:
  Textbook(const Model& model, ModelInput input, Target target)
      : model_(model), transformer_(model), input_(std::move(input)), target_(std::move(target)) {}

  Transformer& transformer() { return transformer_; }

  double run() {
    const TransformerConfig& config = model_.config();
    Matrix states;
    TokenBatch source, ids;
    std::vector<std::int64_t> offsets;
    if (config.encoder && input_.features.defined()) {
      Matrix rows;
      for (std::int64_t row = 0; row < input_.features.rows(); ++row)
        rows.emplace_back(input_.features.row(row), input_.features.row(row) + input_.features.width());
      states = transformer_.encode_features(rows, {0, input_.features.rows()}, &offsets);
    } else if (config.encoder) {
      source.append(input_.source);
      offsets = source.offsets;
      states = transformer_.encode(source);
    }
    if (config.decoder) {
      ids.append(input_.ids);
      const Matrix memory = states;
      states = transformer_.decode(ids, config.encoder ? &memory : nullptr, offsets);
    }
    return value(states);
  }

 private:
  double value(const Matrix& states) {
    const auto kind = target_.kind;
    if (kind == Target::Kind::class_logit || kind == Target::Kind::class_difference) {
      std::vector<double> pooled(states[0].size(), 0.0);
      if (model_.config().pooling == Pooling::mean) {
        for (const auto& row : states)
          for (std::size_t i = 0; i < row.size(); ++i) pooled[i] += row[i] / static_cast<double>(states.size());
      } else {
        pooled = states[0];
      }
      const auto logit = [&](std::int32_t label) {
        double sum = transformer_.values("classifier.bias")[static_cast<std::size_t>(label)];
        for (std::size_t i = 0; i < pooled.size(); ++i)
          sum +=
              transformer_.values("classifier.weight")[static_cast<std::size_t>(label) * pooled.size() + i] * pooled[i];
        return sum;
      };
      return logit(target_.token) - (kind == Target::Kind::class_difference ? logit(target_.other) : 0);
    }
    const Matrix logits = transformer_.logits(states);
    if (kind == Target::Kind::log_probability) {
      double total = 0;
      for (std::size_t row = 0; row < logits.size(); ++row)
        if (target_.labels[row] >= 0) total -= transformer_.loss({logits[row]}, {target_.labels[row]}, 0);
      return total;
    }
    const std::size_t row = target_.position < 0 ? logits.size() - 1 : static_cast<std::size_t>(target_.position);
    return logits[row][static_cast<std::size_t>(target_.token)] -
           (kind == Target::Kind::difference ? logits[row][static_cast<std::size_t>(target_.other)] : 0);
  }

  const Model& model_;
  Transformer transformer_;
  const ModelInput input_;
  const Target target_;
};

inline std::string attention_name(const HeadPlace& head) {
  return name_of(HeadPlace{head.stack, head.layer, head.part, -1});
}

// Scores and values that a textbook run met.
struct Seen {
  std::map<std::string, std::map<std::tuple<std::int64_t, std::int64_t, std::int64_t>, double>>
      scores;                          // head, query, key
  std::map<std::string, Matrix> rows;  // of sites
};

inline Seen look(Textbook& textbook, double* value = nullptr) {
  Seen seen;
  textbook.transformer().score = [&](const ScorePlace& place, double score) {
    return seen.scores[place.attention][{place.head, place.query, place.key}] = score;
  };
  textbook.transformer().visit = [&](const std::string& site, Matrix& rows, const std::vector<std::int64_t>&) {
    seen.rows[site] = rows;
  };
  const double found = textbook.run();
  if (value) *value = found;
  textbook.transformer().score = nullptr;
  textbook.transformer().visit = nullptr;
  return seen;
}

// Weights of one row of a head; with `cut`, as if that key were not there.
inline std::map<std::int64_t, double> weights_of(const Seen& seen, const HeadPlace& head, std::int64_t query,
                                                 std::int64_t cut = -1) {
  std::map<std::int64_t, double> weights;
  double largest = -std::numeric_limits<double>::infinity(), sum = 0;
  for (const auto& [place, score] : seen.scores.at(attention_name(head)))
    if (std::get<0>(place) == head.head && std::get<1>(place) == query && std::get<2>(place) != cut) {
      weights[std::get<2>(place)] = score;
      largest = std::max(largest, score);
    }
  for (auto& [key, score] : weights) sum += score = std::exp(score - largest);
  for (auto& [key, weight] : weights) weight /= sum;
  return weights;
}

// The derivative of the target along a change of what some columns hold at a site: (f(h) - f(-h)) / 2h.
inline double derivative(Textbook& textbook, const std::string& site,
                         const std::function<void(Matrix&, double)>& change) {
  constexpr double step = 1e-5;
  const auto at = [&](double amount) {
    textbook.transformer().visit = [&](const std::string& name, Matrix& rows, const std::vector<std::int64_t>&) {
      if (name == site) change(rows, amount);
    };
    return textbook.run();
  };
  const double difference = (at(step) - at(-step)) / (2 * step);
  textbook.transformer().visit = nullptr;
  return difference;
}

// A logit, a difference and a log-probability of some positions.
inline std::vector<Target> some_targets(const Model& model, std::int64_t rows) {
  std::vector<Target> targets{logit_of(3), difference_of(2, 11, rows / 2)};
  std::vector<std::int32_t> labels;
  for (std::int64_t row = 0; row < rows; ++row)
    labels.push_back(row % 3 == 1 ? -1 : static_cast<std::int32_t>((row * 5 + 2) % model.config().output_vocabulary()));
  labels.back() = -1;
  targets.push_back(log_probability_of(labels));
  return targets;
}

}  // namespace attend::reference
