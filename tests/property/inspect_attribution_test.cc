// Gradients at the embeddings, rollout and value zeroing against float64 textbook runs of every family.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <functional>

#include "attend/attribution.h"
#include "attend/error.h"
#include "core/random.h"
#include "inspect_helpers.h"
#include "reference/importance_reference.h"
#include "reference/random_models.h"

namespace attend {
namespace {

using reference::all_families;
using reference::attention_name;
using reference::derivative;
using reference::look;
using reference::Matrix;
using reference::NamedConfig;
using reference::Seen;
using reference::some_targets;
using reference::Textbook;
using reference::weights_of;

class Attribution : public testing::TestWithParam<NamedConfig> {
 protected:
  Attribution() : model(GetParam().config, 7) {
    reference::randomise(model, 11);
    if (model.config().encoder) input.source = reference::random_tokens({5}, model.config().encoder->vocabulary, 1).ids;
    if (model.config().decoder) input.ids = reference::random_tokens({6}, model.config().decoder->vocabulary, 2).ids;
  }
  std::int64_t rows() const {
    return static_cast<std::int64_t>(model.config().decoder ? input.ids.size() : input.source.size());
  }
  std::vector<std::string> stacks() const {
    std::vector<std::string> names;
    if (model.config().encoder) names.push_back("encoder");
    if (model.config().decoder) names.push_back("decoder");
    return names;
  }
  static const std::vector<double>& of(const TokenScores& scores, const std::string& stack) {
    return stack == "encoder" ? scores.source : scores.ids;
  }

  Model model;
  ModelInput input;
};

double product(const std::vector<double>& a, const std::vector<double>& b) {
  double sum = 0;
  for (std::size_t i = 0; i < a.size(); ++i) sum += a[i] * b[i];
  return sum;
}

TEST_P(Attribution, GradientTimesInputIsADirectionalDerivative) {
  for (const Target& target : some_targets(model, rows())) {
    Textbook textbook(model, input, target);
    const Seen seen = look(textbook);
    const InputGradients found = input_gradients(model, input, target);
    EXPECT_NEAR(found.target, textbook.run(), 1e-4);
    for (const std::string& stack : stacks()) {
      const Matrix& x = seen.rows.at(stack + ".embedded");
      ASSERT_EQ(of(found.product, stack).size(), x.size());
      for (std::size_t row = 0; row < x.size(); ++row) {
        const double along = derivative(textbook, stack + ".embedded", [&](Matrix& rows, double amount) {
          for (std::size_t i = 0; i < x[row].size(); ++i) rows[row][i] += amount * x[row][i];
        });
        EXPECT_NEAR(of(found.product, stack)[row], along, 3e-4 * std::max(1.0, std::fabs(along)))
            << stack << ' ' << row;
        if (target.kind != Target::Kind::logit) continue;
        double squares = 0;
        for (std::size_t i = 0; i < x[row].size(); ++i)
          squares += std::pow(
              derivative(textbook, stack + ".embedded", [&](Matrix& rows, double amount) { rows[row][i] += amount; }),
              2);
        EXPECT_NEAR(of(found.norm, stack)[row], std::sqrt(squares), 3e-4 * std::max(1.0, std::sqrt(squares)))
            << stack << ' ' << row;
      }
    }
  }
}

TEST_P(Attribution, IntegratedGradientsFollowTheTextbookPath) {
  const Target target = some_targets(model, rows())[1];
  IntegratedGradientsOptions options;
  options.steps = 3;
  options.baseline_token = 7;
  options.kept = {model.config().decoder ? input.ids[0] : input.source[0]};
  const IntegratedGradients found = integrated_gradients(model, input, target, options);

  ModelInput other = input;
  for (std::vector<std::int32_t>* ids : {&other.source, &other.ids})
    for (std::int32_t& id : *ids)
      if (id != options.kept[0]) id = 7;
  Textbook textbook(model, input, target), baseline(model, other, target);
  EXPECT_NEAR(found.target, textbook.run(), 1e-4);
  EXPECT_NEAR(found.baseline, baseline.run(), 1e-4);
  const Seen here = look(textbook), there = look(baseline);
  // Three points of Gauss and Legendre on [0, 1] (Abramowitz and Stegun, table 25.4).
  const double half = std::sqrt(0.6) / 2, places[] = {0.5 - half, 0.5, 0.5 + half},
               weights[] = {5.0 / 18, 8.0 / 18, 5.0 / 18};
  double sum = 0;
  for (const std::string& stack : stacks()) {
    const Matrix& x = here.rows.at(stack + ".embedded");
    for (std::size_t row = 0; row < x.size(); ++row) {
      double expected = 0;
      for (std::size_t point = 0; point < 3; ++point) {
        const auto value = [&](double amount) {
          textbook.transformer().visit = [&](const std::string& name, Matrix& rows, const std::vector<std::int64_t>&) {
            if (!name.ends_with(".embedded")) return;
            const Matrix &to = here.rows.at(name), &from = there.rows.at(name);
            for (std::size_t r = 0; r < rows.size(); ++r)
              for (std::size_t i = 0; i < rows[r].size(); ++i) {
                const double step = to[r][i] - from[r][i];
                rows[r][i] =
                    from[r][i] + places[point] * step + (name.starts_with(stack) && r == row ? amount * step : 0);
              }
          };
          const double found_value = textbook.run();
          textbook.transformer().visit = nullptr;
          return found_value;
        };
        expected += weights[point] * (value(1e-5) - value(-1e-5)) / 2e-5;
      }
      EXPECT_NEAR(of(found.scores, stack)[row], expected, 5e-4 * std::max(1.0, std::fabs(expected)))
          << stack << ' ' << row;
      sum += of(found.scores, stack)[row];
    }
  }
  // The same baseline, given as a whole.
  IntegratedGradientsOptions whole;
  whole.steps = 3;
  whole.baseline = other;
  EXPECT_EQ(integrated_gradients(model, input, target, whole).scores.source, found.scores.source);
  EXPECT_EQ(integrated_gradients(model, input, target, whole).scores.ids, found.scores.ids);
  EXPECT_NEAR(found.completeness_error, sum - (found.target - found.baseline), 1e-9);
  EXPECT_EQ(of(found.scores, model.config().decoder ? "decoder" : "encoder")[0], 0)
      << "a token that the baseline has, too";
  // Enough points make the sum whole; ReLU has kinks, which no quadrature likes.
  options.steps = 200;
  const IntegratedGradients fine = integrated_gradients(model, input, target, options);
  EXPECT_NEAR(fine.completeness_error, 0, 5e-2 * std::max(1.0, std::fabs(fine.target - fine.baseline)));
}

Matrix multiplied(const Matrix& a, const Matrix& b) {
  Matrix result;
  for (const auto& row : a) {
    result.emplace_back(b[0].size(), 0.0);
    for (std::size_t k = 0; k < b.size(); ++k)
      for (std::size_t j = 0; j < b[0].size(); ++j) result.back()[j] += row[k] * b[k][j];
  }
  return result;
}

Matrix mixed(const Matrix& a, double share, const Matrix& b) {
  Matrix result = a;
  for (std::size_t i = 0; i < a.size(); ++i)
    for (std::size_t j = 0; j < a[i].size(); ++j) result[i][j] = share * a[i][j] + (1 - share) * b[i][j];
  return result;
}

Matrix unit(std::size_t size) {
  Matrix x(size, std::vector<double>(size, 0.0));
  for (std::size_t i = 0; i < size; ++i) x[i][i] = 1;
  return x;
}

TEST_P(Attribution, RolloutMultipliesTheMeansOfTheTextbook) {
  Textbook textbook(model, input, logit_of(1));
  const Seen seen = look(textbook);
  const double residual = 0.4;
  const Rollout found = attention_rollout(model, input, residual);
  const auto mean_of = [&](StackKind stack, int layer, Part part, std::size_t queries, std::size_t keys) {
    Matrix mean(queries, std::vector<double>(keys, 0.0));
    for (int head = 0; head < static_cast<int>(model.config().heads); ++head)
      for (std::size_t query = 0; query < queries; ++query)
        for (const auto& [key, weight] : weights_of(seen, {stack, layer, part, head}, static_cast<std::int64_t>(query)))
          mean[query][static_cast<std::size_t>(key)] += weight / static_cast<double>(model.config().heads);
    return mean;
  };
  // The last of what every layer leaves.
  const RolloutLayers layers = rollout_by_layer(model, input, residual);
  for (const auto& [all, last] : {std::pair{&layers.encoder, &found.encoder},
                                  std::pair{&layers.decoder, &found.decoder}, std::pair{&layers.cross, &found.cross}}) {
    EXPECT_EQ(all->size(), last->defined() ? 2u : 0u);
    if (last->defined()) {
      EXPECT_EQ(all->back().to_vector(), last->to_vector());
    }
  }
  Matrix encoder, decoder, cross;
  const std::size_t n = input.source.size(), m = input.ids.size();
  if (model.config().encoder) {
    encoder = unit(n);
    for (int layer = 0; layer < 2; ++layer) {
      encoder = multiplied(mixed(unit(n), residual, mean_of(StackKind::encoder, layer, Part::self, n, n)), encoder);
      expect_close(layers.encoder[static_cast<std::size_t>(layer)], encoder, 2e-5, "encoder after a layer");
    }
    expect_close(found.encoder, encoder, 2e-5, "encoder");
  } else {
    EXPECT_FALSE(found.encoder.defined());
  }
  if (!model.config().decoder) return;
  decoder = unit(m);
  cross.assign(m, std::vector<double>(n, 0.0));
  for (int layer = 0; layer < 2; ++layer) {
    const Matrix step = mixed(unit(m), residual, mean_of(StackKind::decoder, layer, Part::self, m, m));
    decoder = multiplied(step, decoder);
    if (model.config().encoder) {
      cross = multiplied(step, cross);
      cross = mixed(cross, residual, multiplied(mean_of(StackKind::decoder, layer, Part::cross, m, n), encoder));
      decoder = mixed(decoder, residual, Matrix(m, std::vector<double>(m, 0.0)));
      expect_close(layers.cross[static_cast<std::size_t>(layer)], cross, 2e-5, "cross after a layer");
    }
    expect_close(layers.decoder[static_cast<std::size_t>(layer)], decoder, 2e-5, "decoder after a layer");
  }
  expect_close(found.decoder, decoder, 2e-5, "decoder");
  if (!model.config().encoder) return;
  expect_close(found.cross, cross, 2e-5, "cross");
  for (std::int64_t i = 0; i < found.decoder.rows(); ++i) {
    double sum = 0;
    for (const Tensor* part : {&found.decoder, &found.cross})
      for (std::int64_t j = 0; j < part->width(); ++j) sum += static_cast<double>(part->at(i, j));
    EXPECT_NEAR(sum, 1, 1e-5);
  }
}

TEST_P(Attribution, ValueZeroingMovesBlocksAsTheTextbookDoes) {
  Textbook textbook(model, input, logit_of(1));
  const Seen seen = look(textbook);
  for (const ZeroedValues& found : value_zeroing(model, input)) {
    const std::string block = name_of(HeadPlace{found.attention.stack, found.attention.layer, Part::block, -1});
    const Matrix& base = seen.rows.at(block + ".output");
    Matrix expected(base.size(), std::vector<double>(static_cast<std::size_t>(found.scores.width()), 0.0));
    for (std::size_t key = 0; key < expected[0].size(); ++key) {
      Matrix moved;
      textbook.transformer().visit = [&](const std::string& name, Matrix& rows, const std::vector<std::int64_t>&) {
        if (name == attention_name(found.attention) + ".value") std::fill(rows[key].begin(), rows[key].end(), 0.0);
        if (name == block + ".output") moved = rows;
      };
      textbook.run();
      textbook.transformer().visit = nullptr;
      for (std::size_t query = 0; query < base.size(); ++query)
        expected[query][key] = 1 - product(base[query], moved[query]) / std::sqrt(product(base[query], base[query]) *
                                                                                  product(moved[query], moved[query]));
    }
    for (auto& row : expected) {
      double sum = 0;
      for (const double value : row) sum += value;
      for (double& value : row) value = sum > 1e-12 ? value / sum : 0;
    }
    for (std::size_t query = 0; query < expected.size(); ++query)
      for (std::size_t key = 0; key < expected[0].size(); ++key)
        EXPECT_NEAR(found.scores.at(static_cast<std::int64_t>(query), static_cast<std::int64_t>(key)),
                    expected[query][key], 2e-3)
            << name_of(found.attention) << ' ' << query << ' ' << key;
  }
}

INSTANTIATE_TEST_SUITE_P(All, Attribution, testing::ValuesIn(all_families()), [](const auto& family) {
  std::string name = family.param.name.substr(0, family.param.name.find_first_of(":,"));
  std::replace_if(
      name.begin(), name.end(), [](char c) { return !std::isalnum(static_cast<unsigned char>(c)); }, '_');
  return name;
});

TEST(AttributionOfFeatures, SumsToTheDifference) {
  TransformerConfig config = reference::small_config();
  config.encoder = StackConfig{.layers = 2, .input_width = 5, .class_token = true};
  config.classes = 3;
  config.pooling = Pooling::class_token;
  Model model(config, 3);
  reference::randomise(model, 4);
  ModelInput input;
  input.features = Tensor::empty({6, 5});
  Random random(8);
  for (std::int64_t i = 0; i < 30; ++i) input.features.data()[i] = static_cast<float>(random.normal());
  IntegratedGradientsOptions options;
  options.steps = 100;
  const IntegratedGradients found = integrated_gradients(model, input, class_logit_of(2), options);
  ASSERT_EQ(found.scores.source.size(), 7u);
  EXPECT_EQ(found.scores.source[0], 0) << "the class token is the same in the baseline";
  EXPECT_NEAR(found.completeness_error, 0, 1e-2);
  EXPECT_GT(std::fabs(found.target - found.baseline), 0.05);
}

TEST(AttributionRefuses, WhatHasNoMeaning) {
  const Model model(all_families()[3].config, 3);
  ModelInput input;
  input.ids = {1, 2, 3};
  expect_error([&] { attention_rollout(model, input, 1.5); }, {"residual is 1.5"});
  IntegratedGradientsOptions options;
  options.steps = 0;
  expect_error([&] { integrated_gradients(model, input, logit_of(1), options); }, {"steps are 0"});
  options = {};
  options.baseline_token = -2;
  expect_error([&] { integrated_gradients(model, input, logit_of(1), options); }, {"token is -2"});
  options.baseline_token = 19;
  expect_error([&] { integrated_gradients(model, input, logit_of(1), options); }, {"token id 19"});
  options = {};
  options.baseline = ModelInput{};
  options.baseline->ids = {1, 2};
  expect_error([&] { integrated_gradients(model, input, logit_of(1), options); }, {"the baseline has 0 and 2 tokens"});
  expect_error(
      [&] {
        value_zeroing(model, input, {{StackKind::decoder, 0, Part::self, 2}});
      },
      {"decoder.0.self.2 is one head"});
  expect_error([&] { input_gradients(model, {}, logit_of(1)); }, {"no ids"});
}

}  // namespace
}  // namespace attend
