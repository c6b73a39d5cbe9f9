// What edges and heads are worth, against float64 textbook runs: weights and writes from its scores and values,
// first-order effects as central differences along what a cut changes in place, exact effects as full runs with the cut.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>

#include "attend/error.h"
#include "attend/importance.h"
#include "attend/threads.h"
#include "core/random.h"
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

std::vector<double> gathered(const Model& model, const Seen& seen, const HeadPlace& head,
                             const std::map<std::int64_t, double>& weights) {
  const auto dim = static_cast<std::size_t>(model.config().head_width());
  const auto group = static_cast<std::size_t>(model.config().heads / model.config().key_head_count());
  std::vector<double> sum(dim, 0.0);
  for (const auto& [key, weight] : weights)
    for (std::size_t i = 0; i < dim; ++i)
      sum[i] +=
          weight *
          seen.rows.at(attention_name(head) +
                       ".value")[static_cast<std::size_t>(key)][static_cast<std::size_t>(head.head) / group * dim + i];
  return sum;
}

double without_edge(Textbook& textbook, const Edge& edge) {
  const std::string name = attention_name(edge.head);
  textbook.transformer().score = [&](const reference::ScorePlace& place, double score) {
    const bool cut =
        place.attention == name && place.head == edge.head.head && place.query == edge.query && place.key == edge.key;
    return cut ? -std::numeric_limits<double>::infinity() : score;
  };
  const double value = textbook.run();
  textbook.transformer().score = nullptr;
  return value;
}

class Matters : public testing::TestWithParam<NamedConfig> {
 protected:
  Matters() : model(GetParam().config, 7) {
    reference::randomise(model, 11);
    if (model.config().encoder) input.source = reference::random_tokens({6}, model.config().encoder->vocabulary, 1).ids;
    if (model.config().decoder) input.ids = reference::random_tokens({7}, model.config().decoder->vocabulary, 2).ids;
  }
  std::int64_t rows() const {
    return static_cast<std::int64_t>(model.config().decoder ? input.ids.size() : input.source.size());
  }

  Model model;
  ModelInput input;
};

// Every measure of every edge, but central differences and full runs for a share of the edges only.
void check_edges(const Model& model, const ModelInput& input, const Target& target, std::int64_t one_in,
                 std::uint64_t seed) {
  Textbook textbook(model, input, target);
  double value = 0;
  const Seen seen = look(textbook, &value);
  const EdgeReport report = edge_effects(model, input, target);
  EXPECT_NEAR(report.target, value, 1e-4);
  EXPECT_NEAR(target_value(model, input, target), value, 1e-4);
  ASSERT_EQ(report.heads.size(), heads_of(model).size());

  Random random(seed);
  std::vector<Edge> sample;
  std::vector<double> wanted_exact;
  for (const HeadEdges& of : report.heads) {
    const auto dim = static_cast<std::size_t>(model.config().head_width());
    const auto& output = textbook.transformer().values(attention_name(of.head) + ".output.weight");
    const std::size_t inputs = output.size() / static_cast<std::size_t>(model.config().width);
    for (std::int64_t query = 0; query < of.weight.rows(); ++query) {
      const auto weights = weights_of(seen, of.head, query);
      const std::vector<double> whole = gathered(model, seen, of.head, weights);
      for (std::int64_t key = 0; key < of.weight.width(); ++key) {
        const std::string what = name_of(Edge{of.head, query, key});
        if (!weights.contains(key)) {
          EXPECT_EQ(of.weight.at(query, key), 0) << what;
          EXPECT_EQ(of.write.at(query, key), 0) << what;
          EXPECT_EQ(of.first_order.at(query, key), 0) << what;
          continue;
        }
        EXPECT_NEAR(of.weight.at(query, key), weights.at(key), 2e-5) << what;
        const std::vector<double> v = gathered(model, seen, of.head, {{key, 1.0}});
        double squares = 0;
        for (std::size_t i = 0; i < static_cast<std::size_t>(model.config().width); ++i) {
          double written = 0;
          for (std::size_t x = 0; x < dim; ++x)
            written += output[i * inputs + static_cast<std::size_t>(of.head.head) * dim + x] * v[x];
          squares += written * written;
        }
        EXPECT_NEAR(of.write.at(query, key), weights.at(key) * std::sqrt(squares), 1e-4) << what;
        if (random.below(static_cast<std::uint64_t>(one_in)) != 0) continue;
        const std::vector<double> cut = gathered(model, seen, of.head, weights_of(seen, of.head, query, key));
        const double first_order =
            derivative(textbook, attention_name(of.head) + ".head_output", [&](Matrix& rows, double amount) {
              for (std::size_t x = 0; x < dim; ++x)
                rows[static_cast<std::size_t>(query)][static_cast<std::size_t>(of.head.head) * dim + x] +=
                    amount * (cut[x] - whole[x]);
            });
        EXPECT_NEAR(of.first_order.at(query, key), first_order, 2e-4 * std::max(1.0, std::fabs(first_order))) << what;
        sample.push_back({of.head, query, key});
        wanted_exact.push_back(without_edge(textbook, sample.back()) - value);
      }
    }
  }
  ASSERT_GT(sample.size(), 5u);
  const std::vector<double> exact = exact_effects(model, input, target, sample);
  double largest = 0;
  for (std::size_t i = 0; i < sample.size(); ++i) {
    EXPECT_NEAR(exact[i], wanted_exact[i], 2e-4 * std::max(1.0, std::fabs(wanted_exact[i]))) << name_of(sample[i]);
    largest = std::max(largest, std::fabs(wanted_exact[i]));
  }
  EXPECT_GT(largest, 1e-2) << "cuts that change nothing show nothing";
}

TEST_P(Matters, EdgesAgreeWithTheTextbook) {
  std::uint64_t seed = 1;
  for (const Target& target : some_targets(model, rows())) check_edges(model, input, target, 25, seed++);
}

// A decoder of one layer: what reads one row of it has nothing before that row's block.
TEST(MattersOfOneLayer, EdgesAgreeWithTheTextbook) {
  for (const std::size_t family : {std::size_t{0}, std::size_t{3}}) {
    TransformerConfig config = all_families()[family].config;
    config.decoder->layers = 1;
    Model model(config, 7);
    reference::randomise(model, 11);
    ModelInput input;
    if (config.encoder) input.source = reference::random_tokens({6}, config.encoder->vocabulary, 1).ids;
    input.ids = reference::random_tokens({7}, config.decoder->vocabulary, 2).ids;
    std::uint64_t seed = 5;
    for (const Target& target : some_targets(model, 7)) check_edges(model, input, target, 6, seed++);
  }
}

TEST_P(Matters, SharpHeadsAgreeWithTheTextbook) {
  // Scores so far apart that some weights are 1 and the others vanish, even below the smallest float.
  for (Parameter& parameter : model.parameters()) {
    const bool fused = parameter.name.find("query_key_value.weight") != std::string::npos;
    if (!fused && parameter.name.find("cross.query.weight") == std::string::npos) continue;
    const std::int64_t queries = model.config().heads * model.config().head_width();
    for (std::int64_t row = 0; row < queries; ++row)
      for (std::int64_t column = 0; column < parameter.value.width(); ++column)
        parameter.value.row(row)[column] *= row % 3 == 0 ? 60.0f : 8.0f;
    parameter.changed();
  }
  if (model.config().score_cap > 0) return;  // capped scores stay close
  const Target target = logit_of(3);
  Textbook textbook(model, input, target);
  const Seen seen = look(textbook);
  const EdgeReport report = edge_effects(model, input, target);
  std::int64_t sharp = 0;
  for (const HeadEdges& of : report.heads)
    for (std::int64_t query = 0; query < of.weight.rows(); ++query) {
      const auto weights = weights_of(seen, of.head, query);
      const auto top = std::max_element(weights.begin(), weights.end(),
                                        [](const auto& a, const auto& b) { return a.second < b.second; });
      if (top->second < 0.9999 || ++sharp % 4 != 0) continue;
      const std::vector<double> whole = gathered(model, seen, of.head, weights);
      const std::vector<double> cut = gathered(model, seen, of.head, weights_of(seen, of.head, query, top->first));
      const auto dim = static_cast<std::size_t>(model.config().head_width());
      const double expected =
          derivative(textbook, attention_name(of.head) + ".head_output", [&](Matrix& rows, double amount) {
            for (std::size_t x = 0; x < dim; ++x)
              rows[static_cast<std::size_t>(query)][static_cast<std::size_t>(of.head.head) * dim + x] +=
                  amount * (cut[x] - whole[x]);
          });
      // Scores are large and so is their rounding; it moves the shares of the others.
      EXPECT_NEAR(of.first_order.at(query, top->first), expected, 2e-2 * std::max(0.1, std::fabs(expected)))
          << name_of(Edge{of.head, query, top->first}) << " has weight " << top->second;
    }
  EXPECT_GT(sharp, 8);
}

TEST_P(Matters, HeadsAndLayersAgreeWithTheTextbook) {
  std::vector<HeadPlace> places = heads_of(model);
  for (const StackKind stack : {StackKind::encoder, StackKind::decoder}) {
    const auto& has = stack == StackKind::encoder ? model.config().encoder : model.config().decoder;
    for (int layer = 0; has && layer < static_cast<int>(has->layers); ++layer)
      for (const Part part : {Part::self, Part::feed_forward, Part::block}) places.push_back({stack, layer, part, -1});
  }
  for (const Target& target : some_targets(model, rows())) {
    Textbook textbook(model, input, target);
    double value = 0;
    const Seen seen = look(textbook, &value);
    const std::vector<HeadEffect> effects = head_effects(model, input, target, places);
    ASSERT_EQ(effects.size(), places.size());
    const auto dim = static_cast<std::size_t>(model.config().head_width());
    for (std::size_t i = 0; i < places.size(); ++i) {
      const HeadPlace& place = places[i];
      EXPECT_EQ(effects[i].place, place);
      std::vector<std::string> sites;
      const std::string block = name_of(HeadPlace{place.stack, place.layer, Part::block, -1});
      for (const std::string part : {".self.head_output", ".cross.head_output", ".feed_forward.inner"})
        if (part.starts_with("." + attention_name(place).substr(block.size() + (place.part == Part::block ? 0 : 1)) +
                             ".") ||
            place.part == Part::block)
          sites.push_back(block + part);
      const auto scale = [&](Matrix& rows, double factor) {
        for (auto& row : rows)
          for (std::size_t x = 0; x < row.size(); ++x)
            if (place.head < 0 || x / dim == static_cast<std::size_t>(place.head)) row[x] *= factor;
      };
      const auto scaled = [&](double factor) {
        textbook.transformer().visit = [&](const std::string& name, Matrix& rows, const std::vector<std::int64_t>&) {
          if (std::find(sites.begin(), sites.end(), name) != sites.end()) scale(rows, factor);
        };
        const double found = textbook.run();
        textbook.transformer().visit = nullptr;
        return found;
      };
      const double exact = scaled(0) - value;
      EXPECT_NEAR(effects[i].exact, exact, 2e-4 * std::max(1.0, std::fabs(exact))) << name_of(place);
      if (place.part == Part::block) continue;  // parts of one layer act on each other: checked as their sum below
      const double first_order = -(scaled(1 + 1e-5) - scaled(1 - 1e-5)) / 2e-5;
      EXPECT_NEAR(effects[i].first_order, first_order, 5e-4 * std::max(1.0, std::fabs(first_order))) << name_of(place);
    }
    for (std::size_t i = 0; i < places.size(); ++i) {
      if (places[i].part != Part::block) continue;
      double sum = 0;
      for (const HeadEffect& effect : effects)
        if (effect.place.stack == places[i].stack && effect.place.layer == places[i].layer &&
            (effect.place.head >= 0 || effect.place.part == Part::feed_forward))
          sum += effect.first_order;
      EXPECT_NEAR(effects[i].first_order, sum, 1e-5 * std::max(1.0, std::fabs(sum))) << name_of(places[i]);
    }
  }
}

TEST_P(Matters, TheTopEdgesAreThoseOfTheMatrices) {
  const Target target = logit_of(3);
  const EdgeReport whole = edge_effects(model, input, target);
  for (const EdgeMeasure by : {EdgeMeasure::weight, EdgeMeasure::write, EdgeMeasure::first_order}) {
    EdgeOptions options;
    options.top = 20;
    options.by = by;
    const EdgeReport top = edge_effects(model, input, target, options);
    EXPECT_TRUE(top.heads.empty());
    const std::vector<MeasuredEdge> expected = whole.largest(by, 20);
    ASSERT_EQ(top.edges.size(), expected.size());
    for (std::size_t i = 0; i < expected.size(); ++i) {
      EXPECT_EQ(top.edges[i].edge, expected[i].edge) << i;
      EXPECT_EQ(top.edges[i].weight, expected[i].weight);
      EXPECT_EQ(top.edges[i].write, expected[i].write);
      EXPECT_EQ(top.edges[i].first_order, expected[i].first_order);
      if (i > 0) {
        EXPECT_LE(std::fabs(expected[i].value(by)), std::fabs(expected[i - 1].value(by)));
      }
    }
  }
}

TEST_P(Matters, ThreadsChangeNoBit) {
  const int before = threads();
  const Target target = log_probability_of(some_targets(model, rows())[2].labels);
  std::vector<float> first;
  std::vector<double> exact;
  for (const int count : {1, 3}) {
    set_threads(count);
    const EdgeReport report = edge_effects(model, input, target);
    std::vector<float> all;
    for (const HeadEdges& of : report.heads)
      for (const float value : of.first_order.to_vector()) all.push_back(value);
    std::vector<Edge> edges;
    for (const MeasuredEdge& edge : report.largest(EdgeMeasure::weight, 30)) edges.push_back(edge.edge);
    const std::vector<double> effects = exact_effects(model, input, target, edges);
    if (count == 1) {
      first = all;
      exact = effects;
    }
    EXPECT_EQ(all, first);
    EXPECT_EQ(effects, exact);
  }
  set_threads(before);
}

INSTANTIATE_TEST_SUITE_P(All, Matters, testing::ValuesIn(all_families()), [](const auto& family) {
  std::string name = family.param.name.substr(0, family.param.name.find_first_of(":,"));
  std::replace_if(
      name.begin(), name.end(), [](char c) { return !std::isalnum(static_cast<unsigned char>(c)); }, '_');
  return name;
});

TEST(MattersOfFeatures, ClassesOfFeaturesAgreeWithTheTextbook) {
  for (const Pooling pooling : {Pooling::class_token, Pooling::mean}) {
    TransformerConfig config = reference::small_config();
    config.encoder = StackConfig{.layers = 2, .input_width = 5, .class_token = pooling == Pooling::class_token};
    config.classes = 3;
    config.pooling = pooling;
    Model model(config, 3);
    reference::randomise(model, 4);
    ModelInput input;
    input.features = Tensor::empty({6, 5});
    Random random(8);
    for (std::int64_t i = 0; i < 30; ++i) input.features.data()[i] = static_cast<float>(random.normal());
    check_edges(model, input, class_logit_of(1), 20, 1);
    check_edges(model, input, class_difference_of(2, 0), 20, 2);
  }
}

}  // namespace
}  // namespace attend
