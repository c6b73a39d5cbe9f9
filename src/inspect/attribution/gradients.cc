// Gradients at the embeddings, at the input and along the way to it.
#include <algorithm>
#include <cmath>
#include <map>
#include <numbers>
#include <optional>
#include <utility>

#include "attend/attribution.h"
#include "attend/error.h"
#include "attend/tape.h"
#include "inspect/importance/target.h"

namespace attend {
namespace {

constexpr std::int64_t batch_rows = 1024;

bool embedded(const Site& site) { return site.point == Point::embedded; }

// Puts given rows in place of the embeddings and watches them.
class Embeddings : public Probe {
 public:
  Embeddings(std::map<StackKind, Tensor> rows, Tape* tape) : rows_(std::move(rows)) {
    for (auto& [stack, tensor] : rows_)
      if (tape) tape->watch(tensor);
  }
  bool wants(const Site& site) const override { return embedded(site) && rows_.contains(site.stack); }
  void visit(const Visit& visit, Tensor& value) override { value = rows_.at(visit.site.stack); }
  const Tensor& rows(StackKind stack) const { return rows_.at(stack); }

 private:
  std::map<StackKind, Tensor> rows_;
};

std::map<StackKind, Tensor> embeddings_of(const Model& model, const ModelInput& input) {
  std::vector<Site> sites;
  for (const Site& site : model.sites())
    if (embedded(site)) sites.push_back(site);
  Recorder recorder(sites);
  RunOptions options;
  options.probe = &recorder;
  const NoGradientScope no_gradients;
  // Stopped by nothing, but short beside what follows.
  decode_input(model, input, encode_input(model, input, options), options);
  std::map<StackKind, Tensor> rows;
  for (const Site& site : sites) rows[site.stack] = recorder.value(site);
  return rows;
}

// `count` copies of an input as items of one batch.
States run_copies(const Model& model, const ModelInput& input, std::int64_t count, const RunOptions& options,
                  bool classes) {
  const auto copies = [&](const std::vector<std::int32_t>& ids) {
    TokenBatch batch;
    for (std::int64_t i = 0; i < count; ++i) batch.append(ids);
    return batch;
  };
  States memory;
  if (input.features.defined()) {
    Tensor features = Tensor::empty({input.features.rows() * count, input.features.width()});
    std::vector<std::int64_t> offsets{0};
    for (std::int64_t i = 0; i < count; ++i) {
      for (std::int64_t row = 0; row < input.features.rows(); ++row)
        std::copy_n(input.features.row(row), features.width(), features.row(offsets.back() + row));
      offsets.push_back(offsets.back() + input.features.rows());
    }
    memory = model.encode_features(features, offsets, options);
  } else if (model.config().encoder) {
    memory = model.encode(copies(input.source), options);
  }
  if (!model.config().decoder || classes) return memory;
  return model.decode(copies(input.ids), model.config().encoder ? &memory : nullptr, options);
}

// Points and weights of Gauss-Legendre quadrature on [0, 1]: exact for polynomials of degree 2 count - 1. The points are
// the zeros of the Legendre polynomial, found by Newton's method from the usual first guess.
std::vector<std::pair<double, double>> gauss_legendre(std::int64_t count) {
  std::vector<std::pair<double, double>> points;
  const auto n = static_cast<double>(count);
  for (std::int64_t i = 0; i < count; ++i) {
    double x = std::cos(std::numbers::pi * (static_cast<double>(i) + 0.75) / (n + 0.5)), slope = 1;
    for (int step = 0; step < 100; ++step) {
      double before = 1, value = x;
      for (std::int64_t k = 2; k <= count; ++k) {
        const auto degree = static_cast<double>(k);
        before = std::exchange(value, ((2 * degree - 1) * x * value - (degree - 1) * before) / degree);
      }
      slope = n * (x * value - before) / (x * x - 1);
      const double change = value / slope;
      x -= change;
      if (std::fabs(change) < 1e-15) break;
    }
    points.emplace_back(0.5 * (1 - x), 1 / ((1 - x * x) * slope * slope));
  }
  return points;
}

std::vector<double>& of_stack(TokenScores& scores, StackKind stack) {
  return stack == StackKind::encoder ? scores.source : scores.ids;
}

// The target of every copy summed, and its gradient at the rows given for the embeddings.
double run_at(const Model& model, const ModelInput& input, const Target& target, std::int64_t copies,
              std::map<StackKind, Tensor> rows, std::map<StackKind, Tensor>& gradients) {
  Tape tape;
  Embeddings probe(std::move(rows), &tape);
  RunOptions options;
  options.probe = &probe;
  Tensor value;
  {
    const GradientScope scope(tape);
    const States states = run_copies(model, input, copies, options, of_classes(target));
    value = ResolvedTarget(model, target, states.offsets[1]).differentiable(states);
  }
  tape.backward(value);
  for (auto& [stack, gradient] : gradients) gradient = tape.gradient(probe.rows(stack));
  return value.item();
}

}  // namespace

double TokenScores::sum() const {
  double total = 0;
  for (const std::vector<double>* scores : {&source, &ids})
    for (const double score : *scores) total += score;
  return total;
}

InputGradients input_gradients(const Model& model, const ModelInput& input, const Target& target) {
  check_input(model, input, "input_gradients");
  const std::map<StackKind, Tensor> rows = embeddings_of(model, input);
  std::map<StackKind, Tensor> gradients = rows;
  InputGradients result;
  result.target = run_at(model, input, target, 1, rows, gradients);
  for (const auto& [stack, x] : rows)
    for (std::int64_t row = 0; row < x.rows(); ++row) {
      double product = 0, squares = 0;
      for (std::int64_t i = 0; i < x.width(); ++i) {
        const double gradient = gradients.at(stack).at(row, i);
        product += gradient * static_cast<double>(x.at(row, i));
        squares += gradient * gradient;
      }
      of_stack(result.product, stack).push_back(product);
      of_stack(result.norm, stack).push_back(std::sqrt(squares));
    }
  return result;
}

IntegratedGradients integrated_gradients(const Model& model, const ModelInput& input, const Target& target,
                                         const IntegratedGradientsOptions& options) {
  check_input(model, input, "integrated gradients");
  if (options.steps < 1 || options.steps > 1024)
    throw Error(ErrorKind::argument, "integrated gradients", join("steps are ", options.steps), "1 to 1024");
  if (options.baseline_token < -1)
    throw Error(ErrorKind::argument, "integrated gradients", join("the baseline's token is ", options.baseline_token),
                "a token id, or -1 for embeddings of 0");
  const std::map<StackKind, Tensor> rows = embeddings_of(model, input);

  // The baseline: another input, or zero vectors.
  ModelInput other = options.baseline.value_or(input);
  if (options.baseline) {
    check_input(model, other, "integrated gradients: baseline");
    if (other.source.size() != input.source.size() || other.ids.size() != input.ids.size())
      throw Error(ErrorKind::shape, "integrated gradients",
                  join("the baseline has ", other.source.size(), " and ", other.ids.size(), " tokens, the input ",
                       input.source.size(), " and ", input.ids.size()),
                  "give as many of each");
  }
  const auto kept = [&](std::int32_t id) {
    return std::find(options.kept.begin(), options.kept.end(), id) != options.kept.end();
  };
  for (std::vector<std::int32_t>* ids : {&other.source, &other.ids})
    for (std::int32_t& id : *ids)
      if (!options.baseline && options.baseline_token >= 0 && !kept(id)) id = options.baseline_token;
  if (input.features.defined() && !options.baseline) other.features = Tensor::zeros(input.features.shape());
  std::map<StackKind, Tensor> baseline = embeddings_of(model, other);
  for (auto& [stack, x] : baseline) {
    const bool features = stack == StackKind::encoder && input.features.defined();
    if (options.baseline || options.baseline_token >= 0 || features) continue;
    const std::vector<std::int32_t>& ids = stack == StackKind::encoder ? input.source : input.ids;
    for (std::int64_t row = 0; row < x.rows(); ++row)
      if (!kept(ids[static_cast<std::size_t>(row)])) std::fill_n(x.row(row), x.width(), 0.0f);
  }

  // x' + a (x - x') for each of the points given, one item each.
  const auto between = [&](std::span<const std::pair<double, double>> points) {
    std::map<StackKind, Tensor> all;
    for (const auto& [stack, x] : rows) {
      Tensor mixed = Tensor::empty({x.rows() * static_cast<std::int64_t>(points.size()), x.width()});
      float* to = mixed.data();
      for (const auto& [place, weight] : points)
        for (std::int64_t i = 0; i < x.elements(); ++i) {
          const double from = baseline.at(stack).data()[i];
          *to++ = static_cast<float>(from + place * (static_cast<double>(x.data()[i]) - from));
        }
      all[stack] = mixed;
    }
    return all;
  };

  IntegratedGradients result;
  const auto value_at = [&](double place) {
    const std::pair<double, double> point[] = {{place, 0}};
    Embeddings probe(between(point), nullptr);
    RunOptions run;
    run.probe = &probe;
    const States states = run_copies(model, input, 1, run, of_classes(target));
    const std::int64_t first[] = {0};
    return ResolvedTarget(model, target, states.rows.rows()).values(states, first, {}).front();
  };
  result.target = value_at(1);
  result.baseline = value_at(0);

  std::int64_t each = 0;
  for (const auto& [stack, x] : rows) {
    of_stack(result.scores, stack).assign(static_cast<std::size_t>(x.rows()), 0.0);
    each += x.rows();
  }
  const std::vector<std::pair<double, double>> points = gauss_legendre(options.steps);
  const auto at_once = static_cast<std::size_t>(std::max<std::int64_t>(1, batch_rows / each));
  for (std::size_t begin = 0; begin < points.size(); begin += at_once) {
    const auto some = std::span(points).subspan(begin, std::min(at_once, points.size() - begin));
    std::map<StackKind, Tensor> gradients = rows;
    run_at(model, input, target, static_cast<std::int64_t>(some.size()), between(some), gradients);
    for (const auto& [stack, x] : rows)
      for (std::size_t point = 0; point < some.size(); ++point)
        for (std::int64_t row = 0; row < x.rows(); ++row) {
          const float* gradient = gradients.at(stack).row(static_cast<std::int64_t>(point) * x.rows() + row);
          double product = 0;
          for (std::int64_t i = 0; i < x.width(); ++i)
            product += static_cast<double>(gradient[i]) *
                       (static_cast<double>(x.at(row, i)) - static_cast<double>(baseline.at(stack).at(row, i)));
          of_stack(result.scores, stack)[static_cast<std::size_t>(row)] += some[point].second * product;
        }
  }
  result.completeness_error = result.scores.sum() - (result.target - result.baseline);
  return result;
}

}  // namespace attend
