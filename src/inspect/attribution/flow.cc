// Attention rollout and value zeroing.
#include <algorithm>
#include <cmath>
#include <utility>

#include "attend/attribution.h"
#include "attend/error.h"
#include "attend/tape.h"
#include "inspect/importance/places.h"
#include "inspect/importance/target.h"

namespace attend {
namespace {

// ---- Rollout ------------------------------------------------------------------------------------------------------------

Tensor identity(std::int64_t size) {
  Tensor x = Tensor::zeros({size, size});
  for (std::int64_t i = 0; i < size; ++i) x.row(i)[i] = 1;
  return x;
}

// Follows the attentions in the order of the run, and makes weights again from queries and keys block of rows by block of
// rows: besides the rolled matrices only one mean over heads is held.
class RolloutProbe : public Probe {
 public:
  // `layers`, if any, is given the rollout after every block.
  RolloutProbe(const Model& model, float residual, RolloutLayers* layers)
      : model_(model), residual_(residual), cross_(model.config().encoder.has_value()), layers_(layers) {}

  bool wants(const Site& site) const override {
    const bool rotated = model_.config().positions == PositionKind::rotary && site.part == Part::self;
    return site.point == (rotated ? Point::rotated_query : Point::query) ||
           site.point == (rotated ? Point::rotated_key : Point::key);
  }
  void visit(const Visit& visit, Tensor& value) override {
    if (visit.site.point == Point::query || visit.site.point == Point::rotated_query) {
      query_ = value;
      return;
    }
    const Tensor mean = mean_weights(visit.site, value);
    query_ = Tensor();
    const std::int64_t queries = mean.rows();
    if (visit.site.stack == StackKind::encoder) {
      if (!result.encoder.defined()) result.encoder = identity(queries);
      step(mean, result.encoder);
      if (layers_) layers_->encoder.push_back(result.encoder);
      return;
    }
    if (visit.site.part == Part::cross) {
      result.decoder = scale(result.decoder, residual_);
      result.cross = add(scale(result.cross, residual_), scale(matrix_product(mean, result.encoder), 1 - residual_));
      end_block();
      return;
    }
    if (!result.decoder.defined()) {
      result.decoder = identity(queries);
      if (cross_) result.cross = Tensor::zeros({queries, result.encoder.rows()});
    }
    step(mean, result.decoder);
    if (cross_) step(mean, result.cross);
    else end_block();
  }

  Rollout result;

 private:
  // Of all heads, [queries, keys], summed in double.
  Tensor mean_weights(const Site& site, const Tensor& key) {
    AttentionInput rules = model_.attention_rules(site.stack, site.part);
    rules.value_dim = 0;
    // Weights do not depend on values: the narrowest will do.
    const Tensor values = Tensor::zeros({key.rows(), rules.key_heads});
    const std::int64_t heads = rules.query_heads, queries = query_.rows(), keys = key.rows();
    const std::int64_t step = std::clamp<std::int64_t>(block_floats / (heads * keys), 1, queries);
    Tensor weights = Tensor::empty({heads * step * keys}), mean = Tensor::empty({queries, keys});
    for (std::int64_t begin = 0; begin < queries; begin += step) {
      const std::int64_t rows = std::min(step, queries - begin);
      AttentionItem item;
      item.query_begin = item.query_position = begin;
      item.queries = rows;
      item.keys = keys;
      rules.items.assign(1, item);
      rules.matrices.clear();
      for (std::int64_t head = 0; head < heads; ++head) {
        MatrixRequest request;
        request.head = head;
        request.weights = weights.data() + head * rows * keys;
        rules.matrices.push_back(request);
      }
      attention(query_, key, values, rules);
      for (std::int64_t i = 0; i < rows * keys; ++i) {
        double sum = 0;
        for (std::int64_t head = 0; head < heads; ++head)
          sum += static_cast<double>(weights.data()[head * rows * keys + i]);
        mean.row(begin)[i] = static_cast<float>(sum / static_cast<double>(heads));
      }
    }
    return mean;
  }

  void end_block() {
    if (!layers_) return;
    layers_->decoder.push_back(result.decoder);
    if (cross_) layers_->cross.push_back(result.cross);
  }

  void step(const Tensor& mean, Tensor& rolled) const {
    rolled = add(scale(rolled, residual_), scale(matrix_product(mean, rolled), 1 - residual_));
  }

  static constexpr std::int64_t block_floats = std::int64_t{1} << 20;

  const Model& model_;
  const float residual_;
  const bool cross_;
  RolloutLayers* const layers_;
  Tensor query_;
};

Rollout roll(const Model& model, const ModelInput& input, double residual, RolloutLayers* layers) {
  check_input(model, input, "rollout");
  if (!(residual >= 0 && residual <= 1))
    throw Error(ErrorKind::argument, "rollout", join("residual is ", residual), "a share from 0 to 1");
  const NoGradientScope no_gradients;
  RolloutProbe probe(model, static_cast<float>(residual), layers);
  RunOptions options;
  options.probe = &probe;
  decode_input(model, input, encode_input(model, input, options), options);
  return std::move(probe.result);
}

// ---- Value zeroing ------------------------------------------------------------------------------------------------------

// Item i loses the value of key first + i - 1; item 0 loses none.
class ZeroValues : public Probe {
 public:
  ZeroValues(const HeadPlace& place, std::int64_t first)
      : site_{place.stack, place.layer, place.part, Point::value}, first_(first) {}

  bool wants(const Site& site) const override { return site == site_; }
  void visit(const Visit& visit, Tensor& value) override {
    value = value.clone();
    for (std::size_t item = 1; item + 1 < visit.offsets.size(); ++item)
      std::fill_n(value.row(visit.offsets[item] + first_ + static_cast<std::int64_t>(item) - 1), value.width(), 0.0f);
  }

 private:
  const Site site_;
  const std::int64_t first_;
};

double cosine_distance(const float* a, const float* b, std::int64_t width) {
  double ab = 0, aa = 0, bb = 0;
  bool same = true;
  for (std::int64_t i = 0; i < width; ++i) {
    const double x = a[i], y = b[i];
    same = same && x == y;
    ab += x * y;
    aa += x * x;
    bb += y * y;
  }
  if (same || aa == 0 || bb == 0) return same ? 0 : 1;
  return std::max(0.0, 1 - ab / std::sqrt(aa * bb));
}

}  // namespace

Rollout attention_rollout(const Model& model, const ModelInput& input, double residual) {
  return roll(model, input, residual, nullptr);
}

RolloutLayers rollout_by_layer(const Model& model, const ModelInput& input, double residual) {
  RolloutLayers layers;
  roll(model, input, residual, &layers);
  return layers;
}

std::vector<ZeroedValues> value_zeroing(const Model& model, const ModelInput& input,
                                        std::vector<HeadPlace> attentions) {
  check_input(model, input, "value_zeroing");
  const NoGradientScope no_gradients;
  if (attentions.empty()) {
    for (const HeadPlace& head : heads_of(model))
      if (head.head == 0) attentions.push_back({head.stack, head.layer, head.part, -1});
  }
  std::vector<Site> sites;
  for (const HeadPlace& place : attentions) {
    check_place(model, place, true, "value_zeroing");
    if (place.head >= 0)
      throw Error(ErrorKind::argument, "value zeroing", join(name_of(place), " is one head"),
                  "values are zeroed in all heads of an attention");
    sites.push_back({place.stack, place.layer, Part::block, Point::input});
  }
  Recorder recorder(sites);
  RunOptions recording;
  recording.probe = &recorder;
  const States memory = encode_input(model, input, recording);
  decode_input(model, input, memory, recording);

  std::vector<ZeroedValues> all;
  for (std::size_t i = 0; i < attentions.size(); ++i) {
    const HeadPlace& place = attentions[i];
    const Tensor& block_input = recorder.value(sites[i]);
    const bool encoder = place.stack == StackKind::encoder, cross = place.part == Part::cross;
    const std::int64_t queries = block_input.rows(), keys = cross ? memory.rows.rows() : queries;
    StackRange range;
    range.first_layer = place.layer;
    range.end_layer = place.layer + 1;
    ZeroedValues zeroed{place, Tensor::zeros({queries, keys})};
    constexpr std::int64_t batch_rows = 2048;
    const std::int64_t at_once = std::max<std::int64_t>(1, batch_rows / (queries + (cross ? keys : 0)));
    for (std::int64_t first = 0; first < keys; first += at_once) {
      const std::int64_t count = std::min(at_once, keys - first);
      ZeroValues probe(place, first);
      RunOptions options;
      options.probe = &probe;
      const States rows = repeated(block_input, count + 1);
      Tensor outputs;
      if (encoder) {
        outputs = model.encode_from(rows, range, options).rows;
      } else {
        const States memories = model.config().encoder ? repeated(memory.rows, count + 1) : States{};
        outputs = model.decode_from(rows, model.config().encoder ? &memories : nullptr, range, options).rows;
      }
      for (std::int64_t key = 0; key < count; ++key)
        for (std::int64_t query = 0; query < queries; ++query)
          zeroed.scores.row(query)[first + key] = static_cast<float>(
              cosine_distance(outputs.row(query), outputs.row((key + 1) * queries + query), outputs.width()));
    }
    for (std::int64_t query = 0; query < queries; ++query) {
      double sum = 0;
      for (std::int64_t key = 0; key < keys; ++key) sum += static_cast<double>(zeroed.scores.at(query, key));
      for (std::int64_t key = 0; key < keys && sum > 0; ++key)
        zeroed.scores.row(query)[key] = static_cast<float>(static_cast<double>(zeroed.scores.at(query, key)) / sum);
    }
    all.push_back(std::move(zeroed));
  }
  return all;
}

}  // namespace attend
