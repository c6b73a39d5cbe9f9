// Site names and the probes that every model can be given.
#include <gtest/gtest.h>

#include <functional>
#include <set>

#include "attend/error.h"
#include "attend/probe.h"

namespace attend {
namespace {

std::string message_of(const std::function<void()>& action) {
  try {
    action();
  } catch (const Error& error) {
    return error.what();
  }
  return "nothing was thrown";
}

bool contains(const std::string& text, const std::string& part) { return text.find(part) != std::string::npos; }

TEST(Site, Names) {
  EXPECT_EQ(name_of(Site{StackKind::decoder, 3, Part::cross, Point::weights}), "decoder.3.cross.weights");
  EXPECT_EQ(name_of(Site{StackKind::encoder, -1, Part::block, Point::embedded}), "encoder.embedded");
  EXPECT_EQ(name_of(Site{StackKind::encoder, 0, Part::block, Point::output}), "encoder.0.output");
  EXPECT_EQ(name_of(Site{StackKind::decoder, 11, Part::feed_forward, Point::inner}), "decoder.11.feed_forward.inner");
}

TEST(Site, EveryNameIsReadBack) {
  std::set<std::string> names;
  for (StackKind stack : {StackKind::encoder, StackKind::decoder})
    for (const Site& site : sites_of(stack, 12, {.cross = true, .rotary = true, .embedding_norm = true})) {
      const std::string name = name_of(site);
      EXPECT_TRUE(names.insert(name).second) << name;
      EXPECT_EQ(parse_site(name), site) << name;
    }
}

TEST(Site, OrderOfARun) {
  std::vector<std::string> names;
  for (const Site& site : sites_of(StackKind::decoder, 1, {.cross = true})) names.push_back(name_of(site));
  const std::vector<std::string> expected{"decoder.embedded",
                                          "decoder.0.input",
                                          "decoder.0.self.deviation",
                                          "decoder.0.self.normed",
                                          "decoder.0.self.query",
                                          "decoder.0.self.key",
                                          "decoder.0.self.value",
                                          "decoder.0.self.scores",
                                          "decoder.0.self.weights",
                                          "decoder.0.self.head_output",
                                          "decoder.0.self.projected",
                                          "decoder.0.self.added",
                                          "decoder.0.cross.deviation",
                                          "decoder.0.cross.normed",
                                          "decoder.0.cross.query",
                                          "decoder.0.cross.key",
                                          "decoder.0.cross.value",
                                          "decoder.0.cross.scores",
                                          "decoder.0.cross.weights",
                                          "decoder.0.cross.head_output",
                                          "decoder.0.cross.projected",
                                          "decoder.0.cross.added",
                                          "decoder.0.feed_forward.deviation",
                                          "decoder.0.feed_forward.normed",
                                          "decoder.0.feed_forward.inner",
                                          "decoder.0.feed_forward.projected",
                                          "decoder.0.feed_forward.added",
                                          "decoder.0.output",
                                          "decoder.final_deviation",
                                          "decoder.final_norm",
                                          "decoder.logits"};
  EXPECT_EQ(names, expected);
  EXPECT_EQ(sites_of(StackKind::encoder, 0, {.final_norm = false}).size(), 3u);
  EXPECT_EQ(sites_of(StackKind::encoder, 2, {.rotary = true}).size(), 4u + 2 * (2 + 12 + 5));
  // Where norms stand after the additions, so do their deviations.
  names.clear();
  for (const Site& site :
       sites_of(StackKind::encoder, 1, {.post_norm = true, .embedding_norm = true, .final_norm = false}))
    names.push_back(name_of(site));
  EXPECT_EQ(names, (std::vector<std::string>{"encoder.embedding_deviation",
                                             "encoder.embedded",
                                             "encoder.0.input",
                                             "encoder.0.self.normed",
                                             "encoder.0.self.query",
                                             "encoder.0.self.key",
                                             "encoder.0.self.value",
                                             "encoder.0.self.scores",
                                             "encoder.0.self.weights",
                                             "encoder.0.self.head_output",
                                             "encoder.0.self.projected",
                                             "encoder.0.self.deviation",
                                             "encoder.0.self.added",
                                             "encoder.0.feed_forward.normed",
                                             "encoder.0.feed_forward.inner",
                                             "encoder.0.feed_forward.projected",
                                             "encoder.0.feed_forward.deviation",
                                             "encoder.0.feed_forward.added",
                                             "encoder.0.output",
                                             "encoder.final_norm",
                                             "encoder.logits"}));
}

TEST(Site, WrongNamesAreAnsweredWithTheNearest) {
  const auto nearest_to = [](const std::string& name) { return message_of([&] { parse_site(name); }); };
  EXPECT_TRUE(contains(nearest_to("decoder.3.cros.weights"), "decoder.3.cross.weights"));
  EXPECT_TRUE(contains(nearest_to("encoder.0.self.wieghts"), "nearest are encoder.0.self.weights"));
  EXPECT_TRUE(contains(nearest_to("encoder.embeded"), "nearest are encoder.embedded"));
  EXPECT_TRUE(contains(nearest_to("decoder.7.ffn.inner"), "decoder.7.feed_forward.inner"));
  for (const char* name : {"", ".", "decoder", "decoder.0", "decoder..logits", "decoder.-1.input", "decoder.01.input",
                           "decoder.0.block.input", "decoder.0.self.logits", "decoder.99999999999999999999.input",
                           "encoder.0.self.query.", " encoder.embedded"})
    EXPECT_TRUE(contains(nearest_to(name), "there is no site")) << name;
}

TEST(Recorder, KeepsClonesOfWhatItWasAskedFor) {
  const Site output{StackKind::encoder, 0, Part::block, Point::output},
      weights{StackKind::encoder, 0, Part::self, Point::weights};
  Recorder recorder({output, weights});
  EXPECT_TRUE(recorder.wants(output));
  EXPECT_FALSE(recorder.wants(Site{StackKind::encoder, 1, Part::block, Point::output}));
  EXPECT_TRUE(contains(message_of([&] { recorder.value(output); }), "recorded: nothing"));
  Tensor value = Tensor::filled({2, 2}, 1);
  recorder.visit({output, -1, {}}, value);
  value.row(0)[0] = 9;
  EXPECT_EQ(recorder.value(output).to_vector(), std::vector<float>(4, 1.0f));
  recorder.visit({weights, 1, {}}, value);
  EXPECT_EQ(recorder.value(weights, 1).at(0, 0), 9);
  EXPECT_FALSE(recorder.has(weights));
  const std::string message = message_of([&] { recorder.value(weights); });
  EXPECT_TRUE(contains(message, "encoder.0.self.weights was not recorded")) << message;
  EXPECT_TRUE(contains(message, "name the item; recorded: encoder.0.output, encoder.0.self.weights of item 1"))
      << message;
}

// Adds 1 to what it visits.
class Adder : public Probe {
 public:
  explicit Adder(Site site, std::uint64_t heads) : site_(site), heads_(heads) {}
  bool wants(const Site& site) const override { return site == site_; }
  std::uint64_t heads(const Site&) const override { return heads_; }
  void visit(const Visit&, Tensor& value) override {
    value = value.clone();
    for (std::int64_t i = 0; i < value.elements(); ++i) value.data()[i] += 1;
  }

 private:
  Site site_;
  std::uint64_t heads_;
};

TEST(ProbeList, VisitsInOrderMultipliesFactorsAndJoinsEdits) {
  const Site site{StackKind::decoder, 2, Part::self, Point::weights},
      other{StackKind::decoder, 2, Part::self, Point::scores};
  Adder first(site, 1), second(site, 4), elsewhere(other, 8);
  Recorder recorder({site});
  HeadMask one, two;
  one.set(StackKind::decoder, 2, Part::self, {1, 0.5f, 0});
  two.set(StackKind::decoder, 2, Part::self, {2, 2, 2});
  ScoreEditor editor, more;
  editor.add(StackKind::decoder, 2, Part::self, {.key = 3});
  more.add(StackKind::decoder, 2, Part::self, {.key = 4});
  ProbeList list({&first, &elsewhere, &second, &one, &editor, &two, &more});
  EXPECT_TRUE(list.wants(site));
  EXPECT_FALSE(list.wants(Site{StackKind::decoder, 1, Part::self, Point::weights}));
  EXPECT_EQ(list.heads(site), 5u);
  Tensor value = Tensor::zeros({1, 1, 1});
  list.visit({site, 0, {}}, value);
  EXPECT_EQ(value.item(), 2);
  EXPECT_EQ(list.head_factors(StackKind::decoder, 2, Part::self), (std::vector<float>{2, 1, 0}));
  EXPECT_TRUE(list.head_factors(StackKind::decoder, 2, Part::cross).empty());
  const std::vector<ScoreEdit> edits = list.score_edits(StackKind::decoder, 2, Part::self);
  ASSERT_EQ(edits.size(), 2u);
  EXPECT_EQ(edits[0].key, 3);
  EXPECT_EQ(edits[1].key, 4);
  // Each probe hears of its own edits.
  class Counter : public ScoreEditor {
   public:
    void scores_edited(StackKind, int, Part, std::span<const std::int64_t> counts) override {
      heard.assign(counts.begin(), counts.end());
    }
    std::vector<std::int64_t> heard;
  } counter, quiet;
  counter.add(StackKind::decoder, 2, Part::self, {.key = 5});
  counter.add(StackKind::decoder, 2, Part::self, {.key = 6});
  ProbeList counted({&editor, &quiet, &counter, &more});
  const std::vector<std::int64_t> counts{10, 11, 12, 13};
  counted.scores_edited(StackKind::decoder, 2, Part::self, counts);
  EXPECT_EQ(counter.heard, (std::vector<std::int64_t>{11, 12}));
  EXPECT_TRUE(quiet.heard.empty());
  two.set(StackKind::decoder, 2, Part::self, {1});
  EXPECT_TRUE(contains(message_of([&] { list.head_factors(StackKind::decoder, 2, Part::self); }),
                       "decoder.2.self: 3 and 1 factors"));
}

}  // namespace
}  // namespace attend
