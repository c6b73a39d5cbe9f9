// The whole Transformer once more in float64, written as in a textbook and sharing no code with the library: what the
// fast one must agree with. Reads the parameters of a Model by name.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <functional>
#include <limits>
#include <map>
#include <numbers>
#include <string>
#include <vector>

#include "attend/model.h"

namespace attend::reference {

using Matrix = std::vector<std::vector<double>>;  // rows
using Visible = std::function<bool(std::int64_t item, std::int64_t query, std::int64_t key)>;

// One score: of which attention ("decoder.3.cross"), item, head, query and key.
struct ScorePlace {
  const std::string& attention;
  std::int64_t item, head, query, key;
};

class Transformer {
 public:
  explicit Transformer(const Model& model) : config_(model.config()) {
    for (const Parameter& parameter : model.parameters()) {
      std::vector<double> values;
      for (const float value : parameter.value.to_vector()) values.push_back(value);
      values_[parameter.name] = values;
      widths_[parameter.name] = parameter.value.width();
    }
  }

  // To be changed by central differences.
  std::vector<double>& values(const std::string& name) { return values_.at(name); }
  // Replaces the default mask of self-attention where set.
  Visible visible;
  // Factor of every head of every self-attention, if set: (stack, layer, head).
  std::function<double(const std::string&, std::int64_t, std::int64_t)> head_factor;
  // Called with the name of every site of rows, in the order of the run, to read or change them.
  std::function<void(const std::string& site, Matrix& rows, const std::vector<std::int64_t>& offsets)> visit;
  // What a norm divides a row by, from what it would be: (site, row, own).
  std::function<double(const std::string& site, std::size_t row, double own)> deviation;
  // A score after the rules, to be changed; minus infinity removes the key. Not asked for keys the mask hides.
  std::function<double(const ScorePlace& place, double score)> score;
  // The weight of a score where it is not to come from the softmax; negative elsewhere. The others share what is left.
  std::function<double(const ScorePlace& place)> lock;

  Matrix encode(const TokenBatch& tokens) {
    return stack("encoder", *config_.encoder, embed("encoder", *config_.encoder, tokens), tokens.offsets, nullptr, {});
  }

  Matrix encode_features(const Matrix& features, const std::vector<std::int64_t>& offsets,
                         std::vector<std::int64_t>* with_token = nullptr) {
    Matrix x;
    std::vector<std::int64_t> starts{0};
    for (std::size_t item = 0; item + 1 < offsets.size(); ++item) {
      std::int64_t position = 0;
      const auto append = [&](std::vector<double> row) {
        add_position("encoder", position++, row);
        x.push_back(row);
      };
      if (config_.encoder->class_token) append(values_.at("encoder.class_token"));
      for (std::int64_t row = offsets[item]; row < offsets[item + 1]; ++row)
        append(linear("encoder.input", features[static_cast<std::size_t>(row)]));
      starts.push_back(static_cast<std::int64_t>(x.size()));
    }
    if (with_token) *with_token = starts;
    return stack("encoder", *config_.encoder, finish("encoder", *config_.encoder, x, starts), starts, nullptr, {});
  }

  Matrix decode(const TokenBatch& tokens, const Matrix* memory, const std::vector<std::int64_t>& memory_offsets) {
    return stack("decoder", *config_.decoder, embed("decoder", *config_.decoder, tokens), tokens.offsets, memory,
                 memory_offsets);
  }

  Matrix logits(const Matrix& states, const std::vector<std::int64_t>& offsets = {}) {
    const std::string stack_name = config_.decoder ? "decoder" : "encoder";
    const std::string table = config_.tied_logits ? embedding_name(stack_name) : "logits.weight";
    Matrix result;
    for (const auto& row : states) {
      std::vector<double> y = product(table, row);
      if (config_.logits_bias)
        for (std::size_t i = 0; i < y.size(); ++i) y[i] += values_.at("logits.bias")[i];
      result.push_back(y);
    }
    at(stack_name + ".logits", result, offsets);
    return result;
  }

  // W_O of an attention applied to what heads [begin, end) wrote, without the bias: [rows][width].
  Matrix head_part(const std::string& attention_name, const Matrix& head_output, std::int64_t head) {
    Matrix result;
    const auto dim = static_cast<std::size_t>(config_.head_width());
    for (const auto& row : head_output) {
      std::vector<double> only(row.size(), 0);
      for (std::size_t i = 0; i < dim; ++i)
        only[static_cast<std::size_t>(head) * dim + i] = row[static_cast<std::size_t>(head) * dim + i];
      result.push_back(product(attention_name + ".output.weight", only));
    }
    return result;
  }

  // Sum over rows of the smoothed cross-entropy.
  double loss(const Matrix& logits_rows, const std::vector<std::int32_t>& labels, double smoothing) {
    double total = 0;
    for (std::size_t row = 0; row < labels.size(); ++row) {
      const auto& z = logits_rows[row];
      double largest = *std::max_element(z.begin(), z.end()), sum = 0, mean = 0;
      for (const double value : z) sum += std::exp(value - largest), mean += value / static_cast<double>(z.size());
      const double log_sum = largest + std::log(sum);
      total += (1 - smoothing) * (log_sum - z[static_cast<std::size_t>(labels[row])]) + smoothing * (log_sum - mean);
    }
    return total;
  }

 private:
  std::string embedding_name(const std::string& name) const {
    return config_.shared_embeddings ? "embedding.weight" : name + ".embedding.weight";
  }

  std::vector<double> product(const std::string& name, const std::vector<double>& x) {
    const auto& w = values_.at(name);
    const auto inputs = static_cast<std::size_t>(widths_.at(name));
    std::vector<double> y(w.size() / inputs, 0);
    for (std::size_t o = 0; o < y.size(); ++o)
      for (std::size_t i = 0; i < inputs; ++i) y[o] += w[o * inputs + i] * x[i];
    return y;
  }
  std::vector<double> linear(const std::string& name, const std::vector<double>& x) {
    std::vector<double> y = product(name + ".weight", x);
    if (const auto bias = values_.find(name + ".bias"); bias != values_.end())
      for (std::size_t i = 0; i < y.size(); ++i) y[i] += bias->second[i];
    return y;
  }
  void at(const std::string& site, Matrix& rows, const std::vector<std::int64_t>& offsets) {
    if (visit) visit(site, rows, offsets);
  }

  std::vector<double> norm(const std::string& name, const std::string& site, std::size_t row,
                           const std::vector<double>& x) {
    const auto& gain = values_.at(name + ".gain");
    const auto n = static_cast<double>(x.size());
    double mean = 0, variance = 0;
    if (config_.norm == NormKind::layer)
      for (const double value : x) mean += value / n;
    for (const double value : x) variance += (value - mean) * (value - mean) / n;
    std::vector<double> y(x.size());
    const auto bias = values_.find(name + ".bias");
    double divisor = std::sqrt(variance + static_cast<double>(static_cast<float>(config_.norm_epsilon)));
    if (deviation) divisor = deviation(site, row, divisor);
    for (std::size_t i = 0; i < x.size(); ++i) {
      y[i] = (x[i] - mean) / divisor * gain[i];
      if (bias != values_.end()) y[i] += bias->second[i];
    }
    return y;
  }
  double activate(double x) const {
    switch (config_.activation) {
      case Activation::none:
        return x;
      case Activation::relu:
        return x > 0 ? x : 0;
      case Activation::gelu:
        return 0.5 * x * (1 + std::erf(x / std::numbers::sqrt2));
      case Activation::gelu_tanh:
        return 0.5 * x * (1 + std::tanh(std::sqrt(2 / std::numbers::pi) * (x + 0.044715 * x * x * x)));
      case Activation::silu:
        return x / (1 + std::exp(-x));
    }
    return x;
  }

  void add_position(const std::string& name, std::int64_t position, std::vector<double>& row) {
    const std::int64_t width = config_.width;
    if (config_.positions == PositionKind::learned) {
      const auto& table = values_.at(name + ".position.weight");
      for (std::int64_t i = 0; i < width; ++i)
        row[static_cast<std::size_t>(i)] += table[static_cast<std::size_t>(position * width + i)];
    }
    if (config_.positions == PositionKind::sinusoidal) {
      const auto p = static_cast<double>(position + config_.first_position), d = static_cast<double>(width);
      for (std::int64_t i = 0; i < width / 2; ++i) {
        const auto k = static_cast<double>(i);
        if (config_.sinusoid_layout == SinusoidLayout::interleaved) {
          row[static_cast<std::size_t>(2 * i)] += std::sin(p / std::pow(config_.position_base, 2 * k / d));
          row[static_cast<std::size_t>(2 * i + 1)] += std::cos(p / std::pow(config_.position_base, 2 * k / d));
        } else {
          const double rate = std::pow(config_.position_base, -k / (d / 2 - 1));
          row[static_cast<std::size_t>(i)] += std::sin(p * rate);
          row[static_cast<std::size_t>(width / 2 + i)] += std::cos(p * rate);
        }
      }
    }
  }

  Matrix norm(const std::string& name, const std::string& site, const Matrix& x) {
    Matrix y;
    for (std::size_t row = 0; row < x.size(); ++row) y.push_back(norm(name, site, row, x[row]));
    return y;
  }

  Matrix finish(const std::string& name, const StackConfig& stack, Matrix x, const std::vector<std::int64_t>& offsets) {
    if (stack.embedding_norm) x = norm(name + ".embedding_norm", name + ".embedding_deviation", x);
    at(name + ".embedded", x, offsets);
    return x;
  }

  Matrix embed(const std::string& name, const StackConfig& stack, const TokenBatch& tokens) {
    const auto& table = values_.at(embedding_name(name));
    Matrix x;
    for (std::int64_t item = 0; item < tokens.items(); ++item)
      for (std::int64_t row = tokens.offsets[static_cast<std::size_t>(item)];
           row < tokens.offsets[static_cast<std::size_t>(item) + 1]; ++row) {
        std::vector<double> y(static_cast<std::size_t>(config_.width));
        const auto id = static_cast<std::size_t>(tokens.ids[static_cast<std::size_t>(row)]);
        for (std::size_t i = 0; i < y.size(); ++i) y[i] = table[id * y.size() + i] * config_.embedding_scale;
        add_position(name, row - tokens.offsets[static_cast<std::size_t>(item)], y);
        x.push_back(y);
      }
    return finish(name, stack, x, tokens.offsets);
  }

  void rotate(std::vector<double>& head, std::int64_t position) const {
    const std::int64_t turned = config_.rotary_width();
    for (std::int64_t i = 0; i < turned / 2; ++i) {
      const double angle = static_cast<double>(position) *
                           std::pow(config_.position_base, -2.0 * static_cast<double>(i) / static_cast<double>(turned));
      const bool halves = config_.rotary_pairing == Pairing::halves;
      double& a = head[static_cast<std::size_t>(halves ? i : 2 * i)];
      double& b = head[static_cast<std::size_t>(halves ? i + turned / 2 : 2 * i + 1)];
      const double x = a, y = b;
      a = x * std::cos(angle) - y * std::sin(angle);
      b = x * std::sin(angle) + y * std::cos(angle);
    }
  }

  static double slope(std::int64_t head, std::int64_t heads) {
    std::int64_t power = 1;
    while (power * 2 <= heads) power *= 2;
    if (head < power) return std::pow(2.0, -8.0 * static_cast<double>(head + 1) / static_cast<double>(power));
    return std::pow(2.0, -8.0 * static_cast<double>(2 * (head - power) + 1) / static_cast<double>(2 * power));
  }

  std::int64_t bucket(std::int64_t offset, bool causal) const {
    std::int64_t count = config_.relative_buckets, start = 0, distance = std::max<std::int64_t>(-offset, 0);
    if (!causal) {
      count /= 2;
      if (offset > 0) start = count;
      distance = std::abs(offset);
    }
    if (distance < count / 2) return start + distance;
    const double place =
        static_cast<double>(count / 2) +
        std::log(static_cast<double>(distance) / static_cast<double>(count / 2)) /
            std::log(static_cast<double>(config_.relative_max_distance) / static_cast<double>(count / 2)) *
            static_cast<double>(count - count / 2);
    return start + std::min<std::int64_t>(static_cast<std::int64_t>(place), count - 1);
  }

  // x asks, memory answers: one function for self- and cross-attention.
  Matrix attention(const std::string& name, std::int64_t layer, const std::string& stack_name, const StackConfig& stack,
                   bool cross, const Matrix& x, const std::vector<std::int64_t>& offsets, const Matrix& memory,
                   const std::vector<std::int64_t>& memory_offsets) {
    const std::int64_t heads = config_.heads, key_heads = config_.key_head_count(), dim = config_.head_width();
    Matrix queries, keys, values;
    const auto cut = [](const std::vector<double>& row, std::int64_t begin, std::int64_t count) {
      return std::vector<double>(row.begin() + begin, row.begin() + begin + count);
    };
    for (const auto& row : x) {
      if (cross) {
        queries.push_back(linear(name + ".query", row));
      } else {
        const auto all = linear(name + ".query_key_value", row);
        queries.push_back(cut(all, 0, heads * dim));
        keys.push_back(cut(all, heads * dim, key_heads * dim));
        values.push_back(cut(all, (heads + key_heads) * dim, key_heads * dim));
      }
    }
    if (cross)
      for (const auto& row : memory) {
        const auto both = linear(name + ".key_value", row);
        keys.push_back(cut(both, 0, key_heads * dim));
        values.push_back(cut(both, key_heads * dim, key_heads * dim));
      }
    at(name + ".query", queries, offsets);
    at(name + ".key", keys, memory_offsets);
    at(name + ".value", values, memory_offsets);
    if (!cross && config_.positions == PositionKind::rotary) {
      rotate(queries, offsets, heads);
      rotate(keys, offsets, key_heads);
      at(name + ".rotated_query", queries, offsets);
      at(name + ".rotated_key", keys, offsets);
    }
    Matrix result(x.size());
    const double scale =
        config_.attention_scale > 0 ? config_.attention_scale : 1 / std::sqrt(static_cast<double>(dim));
    constexpr double hidden = -std::numeric_limits<double>::infinity();
    for (std::size_t item = 0; item + 1 < offsets.size(); ++item)
      for (std::int64_t query = 0; query < offsets[item + 1] - offsets[item]; ++query) {
        const auto row = static_cast<std::size_t>(offsets[item] + query);
        for (std::int64_t head = 0; head < heads; ++head) {
          const std::int64_t key_head = head / (heads / key_heads);
          const std::vector<double> q = cut(queries[row], head * dim, dim);
          const std::int64_t key_count = memory_offsets[item + 1] - memory_offsets[item];
          std::vector<double> scores, locks(static_cast<std::size_t>(key_count), -1);
          for (std::int64_t key = 0; key < key_count; ++key) {
            const std::vector<double> k =
                cut(keys[static_cast<std::size_t>(memory_offsets[item] + key)], key_head * dim, dim);
            double product_of = 0;
            for (std::size_t i = 0; i < k.size(); ++i) product_of += q[i] * k[i];
            product_of *= scale;
            if (config_.score_cap > 0) product_of = config_.score_cap * std::tanh(product_of / config_.score_cap);
            bool seen = true;
            if (!cross) {
              if (config_.positions == PositionKind::alibi)
                product_of -= slope(head, heads) * std::abs(static_cast<double>(key - query));
              if (config_.positions == PositionKind::relative_bias)
                product_of += values_.at(
                    stack_name +
                    ".relative_bias")[static_cast<std::size_t>(bucket(key - query, stack.causal) * heads + head)];
              seen = visible ? visible(static_cast<std::int64_t>(item), query, key) : !stack.causal || key <= query;
              if (!visible && config_.window > 0) seen = seen && std::abs(key - query) < config_.window;
            }
            const ScorePlace place{name, static_cast<std::int64_t>(item), head, query, key};
            if (!seen) product_of = hidden;
            if (seen && score) product_of = score(place, product_of);
            if (product_of != hidden && lock) locks[static_cast<std::size_t>(key)] = lock(place);
            scores.push_back(product_of);
          }
          // Softmax over the keys that are not locked, times what the locks leave of 1.
          double largest = hidden, sum = 0, left = 1;
          for (std::size_t key = 0; key < scores.size(); ++key)
            if (locks[key] >= 0) left -= locks[key];
            else largest = std::max(largest, scores[key]);
          for (std::size_t key = 0; key < scores.size(); ++key)
            if (locks[key] < 0 && scores[key] != hidden) sum += std::exp(scores[key] - largest);
          std::vector<double> mixed(static_cast<std::size_t>(dim), 0);
          const double factor = head_factor && !cross ? head_factor(stack_name, layer, head) : 1;
          for (std::size_t key = 0; key < scores.size(); ++key) {
            double weight = locks[key];
            if (weight < 0) weight = scores[key] == hidden ? 0 : left * std::exp(scores[key] - largest) / sum;
            for (std::int64_t i = 0; i < dim && weight != 0; ++i)
              mixed[static_cast<std::size_t>(i)] += weight * values[static_cast<std::size_t>(memory_offsets[item]) +
                                                                    key][static_cast<std::size_t>(key_head * dim + i)];
          }
          for (const double value : mixed) result[row].push_back(value * factor);
        }
      }
    at(name + ".head_output", result, offsets);
    for (auto& row : result) row = linear(name + ".output", row);
    return result;
  }

  void rotate(Matrix& rows, const std::vector<std::int64_t>& offsets, std::int64_t heads) const {
    const std::int64_t dim = config_.head_width();
    for (std::size_t item = 0; item + 1 < offsets.size(); ++item)
      for (std::int64_t row = offsets[item]; row < offsets[item + 1]; ++row)
        for (std::int64_t head = 0; head < heads; ++head) {
          const auto begin = rows[static_cast<std::size_t>(row)].begin() + head * dim;
          std::vector<double> turned(begin, begin + dim);
          rotate(turned, row - offsets[item]);
          std::copy(turned.begin(), turned.end(), begin);
        }
  }

  Matrix stack(const std::string& name, const StackConfig& config, Matrix x, const std::vector<std::int64_t>& offsets,
               const Matrix* memory, const std::vector<std::int64_t>& memory_offsets) {
    const bool pre = config_.norm_place == NormPlace::pre;
    const auto sublayer = [&](const std::string& part, const std::function<Matrix(const Matrix&)>& inside) {
      Matrix entered = pre ? norm(part + ".norm", part + ".deviation", x) : x;
      at(part + ".normed", entered, offsets);
      Matrix y = inside(entered);
      at(part + ".projected", y, offsets);
      for (std::size_t row = 0; row < x.size(); ++row)
        for (std::size_t i = 0; i < x[row].size(); ++i) x[row][i] += y[row][i];
      if (!pre) x = norm(part + ".norm", part + ".deviation", x);
      at(part + ".added", x, offsets);
    };
    for (std::int64_t layer = 0; layer < config.layers; ++layer) {
      const std::string block = name + "." + std::to_string(layer);
      at(block + ".input", x, offsets);
      sublayer(block + ".self", [&](const Matrix& entered) {
        return attention(block + ".self", layer, name, config, false, entered, offsets, entered, offsets);
      });
      if (memory)
        sublayer(block + ".cross", [&](const Matrix& entered) {
          return attention(block + ".cross", layer, name, config, true, entered, offsets, *memory, memory_offsets);
        });
      sublayer(block + ".feed_forward", [&](const Matrix& entered) {
        Matrix all;
        for (const auto& row : entered) {
          std::vector<double> inner = linear(block + ".feed_forward.inner", row);
          if (config_.gated) {
            const auto gates = linear(block + ".feed_forward.gate", row);
            for (std::size_t i = 0; i < inner.size(); ++i) inner[i] *= activate(gates[i]);
          } else {
            for (double& value : inner) value = activate(value);
          }
          all.push_back(inner);
        }
        at(block + ".feed_forward.inner", all, offsets);
        for (auto& row : all) row = linear(block + ".feed_forward.output", row);
        return all;
      });
      at(block + ".output", x, offsets);
    }
    if (config.final_norm) x = norm(name + ".norm", name + ".final_deviation", x);
    at(name + ".final_norm", x, offsets);
    return x;
  }

  TransformerConfig config_;
  std::map<std::string, std::vector<double>> values_;
  std::map<std::string, std::int64_t> widths_;
};

}  // namespace attend::reference
