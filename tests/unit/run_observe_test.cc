// Looking on while a model writes: the tree of beam search, and probes that see every pass.
#include <gtest/gtest.h>

#include <map>
#include <vector>

#include "attend/generate.h"
#include "unit/run_models.h"

namespace attend {
namespace {

using testing::bos;
using testing::eos;

DecodeInput input_of(std::int32_t first) { return {{first, 5, 7, eos}, {bos}, {}, -1}; }

TEST(Observe, BeamEventsMakeTheTreeThatHoldsEveryResult) {
  const Model model(testing::encoder_decoder().config, 5);
  struct Node {
    std::int64_t parent;
    std::int32_t id;
    float log_probability;
    double total;
  };
  std::map<std::int64_t, std::vector<Node>> trees;           // by input
  std::map<std::int64_t, std::vector<std::int64_t>> follow;  // nodes that the next step reads
  DecodeOptions options;
  options.strategy = Strategy::beam;
  options.beam_size = 3;
  options.n_best = 3;
  options.max_length = 9;
  options.end = {eos};
  options.on_beam = [&](const BeamEvent& event) {
    auto& tree = trees[event.input];
    auto& places = follow[event.input];
    if (places.empty()) places = {-1};
    std::vector<std::int64_t> next;
    const auto add = [&](const BeamEvent::Extension& extension) {
      ASSERT_LT(extension.parent, static_cast<std::int64_t>(places.size()));
      tree.push_back({places[static_cast<std::size_t>(extension.parent)], extension.id, extension.log_probability,
                      extension.total});
    };
    for (const auto& extension : event.followed) {
      add(extension);
      next.push_back(static_cast<std::int64_t>(tree.size()) - 1);
    }
    for (const auto& extension : event.ended) {
      EXPECT_EQ(extension.id, eos);
      add(extension);
    }
    places = next;
  };
  const std::vector<DecodeInput> inputs = {input_of(4), input_of(6)};
  const auto results = generate(model, inputs, options);
  for (std::size_t input = 0; input < inputs.size(); ++input) {
    const auto& tree = trees[static_cast<std::int64_t>(input)];
    for (const Hypothesis& hypothesis : results[input]) {
      std::int64_t node = -1;
      for (std::size_t step = 0; step < hypothesis.ids.size(); ++step) {
        std::int64_t child = -1;
        for (std::size_t i = 0; i < tree.size(); ++i)
          if (tree[i].parent == node && tree[i].id == hypothesis.ids[step]) child = static_cast<std::int64_t>(i);
        ASSERT_GE(child, 0) << "input " << input << " step " << step;
        node = child;
        EXPECT_EQ(tree[static_cast<std::size_t>(node)].log_probability, hypothesis.log_probabilities[step]);
      }
      EXPECT_EQ(tree[static_cast<std::size_t>(node)].total, hypothesis.total);
    }
  }
}

// Counts rows of logits by input, and cuts every head of one input's decoder when told to.
class Watcher : public Probe {
 public:
  std::map<std::int64_t, std::int64_t> rows, last_position;
  bool encoder_seen = false, memory_seen = false;

  bool wants(const Site& site) const override {
    return site.point == Point::logits || (site.stack == StackKind::encoder && site.point == Point::final_norm) ||
           (site.part == Part::cross && site.point == Point::key);
  }
  void visit(const Visit& visit, Tensor& value) override {
    if (visit.site.stack == StackKind::encoder) encoder_seen = true;
    if (visit.site.part == Part::cross) memory_seen = true;
    if (visit.site.point != Point::logits) return;
    EXPECT_EQ(value.rows(), visit.offsets.back());
    for (std::int64_t item = 0; item < visit.items(); ++item) {
      const std::int64_t count =
          visit.offsets[static_cast<std::size_t>(item) + 1] - visit.offsets[static_cast<std::size_t>(item)];
      rows[visit.number(item)] += count;
      last_position[visit.number(item)] = visit.first_position(item) + count - 1;
    }
  }
};

TEST(Observe, AProbeSeesEveryPassAndKnowsWhoseRowsTheyAre) {
  const Model model(testing::encoder_decoder().config, 5);
  for (const Strategy strategy : {Strategy::greedy, Strategy::sample, Strategy::beam}) {
    Watcher watcher;
    DecodeOptions options;
    options.strategy = strategy;
    options.beam_size = 1;
    options.end = {eos};
    options.max_length = 12;
    options.batch_size = 2;
    const auto plain = generate(model, std::vector<DecodeInput>{input_of(4), input_of(6), input_of(8)}, options);
    options.probe = &watcher;
    std::vector<DecodeInput> inputs{input_of(4), input_of(6), input_of(8)};
    inputs[1].prefix = {4, 5, 4};
    const auto watched = generate(model, inputs, options);
    EXPECT_EQ(watched[0][0].ids, plain[0][0].ids) << "looking changes nothing";
    EXPECT_EQ(watched[2][0].ids, plain[2][0].ids);
    EXPECT_TRUE(watcher.encoder_seen && watcher.memory_seen);
    for (std::int64_t input = 0; input < 3; ++input) {
      const auto length = static_cast<std::int64_t>(watched[static_cast<std::size_t>(input)][0].ids.size());
      // The first step judges forced tokens, too; the token at place t is chosen by the row at position t.
      EXPECT_EQ(watcher.rows[input], length) << name_of(strategy) << ' ' << input;
      EXPECT_EQ(watcher.last_position[input], length - 1) << name_of(strategy) << ' ' << input;
    }
  }
}

TEST(Observe, WhatAProbeChangesIsWritten) {
  const Model model(testing::encoder_decoder().config, 5);
  class Only : public Probe {
   public:
    bool wants(const Site& site) const override { return site.point == Point::logits; }
    void visit(const Visit&, Tensor& value) override {
      value = value.clone();
      for (std::int64_t row = 0; row < value.rows(); ++row) value.row(row)[9] += 1000;
    }
  } only;
  DecodeOptions options;
  options.end = {eos};
  options.max_length = 3;
  options.probe = &only;
  const std::vector<DecodeInput> inputs = {input_of(4)};
  EXPECT_EQ(generate(model, inputs, options)[0][0].ids, (std::vector<std::int32_t>{9, 9, 9}));
}

}  // namespace
}  // namespace attend
