// Edited runs of every family against the float64 textbook under the same edits, and the promises edits make.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <set>
#include <utility>

#include "attend/edits.h"
#include "attend/error.h"
#include "attend/threads.h"
#include "core/random.h"
#include "inspect/edits/places.h"
#include "inspect_helpers.h"
#include "reference/edits_reference.h"
#include "reference/random_edits.h"
#include "reference/random_models.h"

namespace attend {
namespace {

using reference::EditedTextbook;
using reference::Matrix;
using reference::NamedConfig;

void expect_near(const Tensor& a, const Tensor& b, double tolerance, const std::string& what) {
  ASSERT_EQ(a.shape(), b.shape()) << what;
  for (std::int64_t row = 0; row < a.rows(); ++row)
    for (std::int64_t column = 0; column < a.width(); ++column)
      ASSERT_NEAR(a.at(row, column), b.at(row, column), tolerance) << what << ", row " << row;
}

// For messages: the list as its file has it.
std::string text_of(const Edits& edits) { return to_json(EditFile{edits, "0000000000000000", "any"}); }

class EditedFamily : public testing::TestWithParam<NamedConfig> {
 protected:
  EditedFamily() : model(GetParam().config, 7), other(GetParam().config, 8) {
    reference::randomise(model, 11);
    reference::randomise(other, 12);
    if (config().encoder) input.source = reference::random_tokens({5, 4, 9}, config().encoder->vocabulary, 1);
    if (config().decoder) input.target = reference::random_tokens({4, 7, 5}, config().decoder->vocabulary, 2);
  }

  const TransformerConfig& config() const { return model.config(); }
  ModelOpener opener() const {
    return [this](const std::string& name) {
      EXPECT_EQ(name, "other");
      return std::shared_ptr<const Model>(std::shared_ptr<const Model>(), &other);
    };
  }
  // Locks that a row cannot keep are refused, rightly: such lists are of no use here.
  std::optional<EditedRun> run(const Edits& edits, bool cached) const {
    EditRunOptions options;
    options.cached = cached;
    options.allow_untouched = true;
    try {
      return run_edited(model, edits, input, options, opener());
    } catch (const Error& error) {
      EXPECT_NE(std::string(error.what()).find("locked weights"), std::string::npos) << error.what() << text_of(edits);
      return std::nullopt;
    }
  }
  std::string first_stack() const { return config().decoder ? "decoder" : "encoder"; }
  std::int64_t shortest() const { return 4; }

  Model model, other;
  EditInput input;
};

TEST_P(EditedFamily, AgreesWithTheTextbookUnderRandomEdits) {
  std::map<EditKind, int> seen;
  for (int draw = 0; draw < 40; ++draw) {
    reference::RandomEdits random(model, input, static_cast<std::uint64_t>(draw) + 100);
    const Edits edits = random.draw(1 + draw % 4, draw);
    const std::optional<EditedRun> found = run(edits, false);
    if (!found) continue;
    EditedTextbook textbook(model, edits, input, {{"other", &other}});
    const Matrix expected = textbook.run();
    expect_close(found->edited, expected, 2e-5, text_of(edits));
    if (config().decoder) {
      const std::optional<EditedRun> steps = run(edits, true);
      ASSERT_TRUE(steps.has_value()) << text_of(edits);
      expect_close(steps->edited, expected, 2e-5, "cached " + text_of(edits));
      for (std::size_t i = 0; i < edits.list().size(); ++i)
        EXPECT_EQ(found->report.edits[i].count, steps->report.edits[i].count) << text_of(edits);
    }
    if (testing::Test::HasFatalFailure()) return;
    for (const EditReport::Touched& edit : found->report.edits) seen[edit.kind] += edit.count > 0;
  }
  for (const EditKind kind : reference::RandomEdits::kinds)
    EXPECT_GT(seen[kind], 1) << name_of(kind) << " hardly ever touched anything";
}

TEST_P(EditedFamily, UndoRestoresTheBits) {
  reference::RandomEdits random(model, input, 5);
  Edits edits = random.draw(4, 0);
  const std::optional<EditedRun> with_four = run(edits, false);
  ASSERT_TRUE(with_four.has_value());
  const Edits before = edits;
  edits.add(
      {.name = "more", .kind = EditKind::cut, .at = first_stack() + ".1.self", .heads = {0}, .positions = {{0, 1}}});
  try {
    edits.check(model);
    ASSERT_TRUE(run(edits, false).has_value());
  } catch (const Error&) {
    // Contradicts one of the four: then only the list is undone.
  }
  edits.undo();
  EXPECT_EQ(edits, before);
  EXPECT_EQ(run(edits, false)->edited.to_vector(), with_four->edited.to_vector());
  // By name, from the middle: the bits of a list that never had it.
  Edits without, removed = before;
  for (std::size_t i = 0; i < before.list().size(); ++i)
    if (i != 1) without.add(before.list()[i]);
  removed.remove(before.list()[1].name);
  EXPECT_EQ(run(removed, false)->edited.to_vector(), run(without, false)->edited.to_vector());
  while (!edits.empty()) edits.undo();
  const EditedRun none = *run(edits, false);
  EXPECT_EQ(none.edited.to_vector(), none.base.to_vector());
  EXPECT_EQ(with_four->base.to_vector(), none.base.to_vector());
}

TEST_P(EditedFamily, CutTwiceIsCutOnce) {
  const std::string stack = first_stack();
  const std::vector<std::pair<Edit, Edit>> twice = {
      {{.name = "a", .kind = EditKind::cut, .at = stack + ".0.self", .heads = {1}},
       {.name = "b", .kind = EditKind::zero, .at = stack + ".0.self.head_output", .heads = {1}}},
      {{.name = "a", .kind = EditKind::cut, .at = stack + ".1.self"},
       {.name = "b", .kind = EditKind::cut, .at = stack + ".1.self"}},
      {{.name = "a", .kind = EditKind::cut, .at = stack + ".1.feed_forward"},
       {.name = "b", .kind = EditKind::zero, .at = stack + ".1.feed_forward.projected"}},
      {{.name = "a", .kind = EditKind::cut, .at = stack + ".0"},
       {.name = "b", .kind = EditKind::cut, .at = stack + ".0"}},
      {{.name = "a", .kind = EditKind::forbid, .at = stack + ".0.self", .positions = {{2, 4}}, .keys = {{1, 0}}},
       {.name = "b", .kind = EditKind::cut, .at = stack + ".0.self", .positions = {{2, 0}}, .keys = {{1, 0}}}},
      {{.name = "a", .kind = EditKind::zero, .at = stack + ".1.self.value"},
       {.name = "b", .kind = EditKind::zero, .at = stack + ".1.self.value", .positions = {{2, 0}}}},
  };
  for (const auto& [one, other_edit] : twice) {
    Edits single, both;
    single.add(one);
    both.add(one);
    both.add(other_edit);
    const EditedRun once = run_edited(model, single, input), again = run_edited(model, both, input);
    EXPECT_EQ(once.edited.to_vector(), again.edited.to_vector()) << one.at;
    EXPECT_NE(once.edited.to_vector(), once.base.to_vector()) << one.at;
  }
}

TEST_P(EditedFamily, AllHeadsCutLeaveTheBiasAndACutBlockPassesItsInput) {
  const StackKind stack = config().decoder ? StackKind::decoder : StackKind::encoder;
  Edits edits;
  edits.add({.name = "all heads", .kind = EditKind::cut, .at = first_stack() + ".0.self", .heads = {}});
  edits.remove("all heads");
  Edit heads{.name = "all heads", .kind = EditKind::cut, .at = first_stack() + ".0.self"};
  for (std::int64_t head = 0; head < config().heads; ++head) heads.heads.push_back(head);
  edits.add(heads);
  edits.add({.name = "block", .kind = EditKind::cut, .at = first_stack() + ".1"});
  const Site projected{stack, 0, Part::self, Point::projected}, in{stack, 1, Part::block, Point::input},
      out{stack, 1, Part::block, Point::output};
  Recorder recorder({projected, in, out});
  EditRunOptions options;
  options.beside_edited = &recorder;
  const EditedRun run = run_edited(model, edits, input, options);
  const std::vector<float> found = recorder.value(projected).to_vector();
  std::vector<float> bias(static_cast<std::size_t>(config().width), 0.0f);
  if (config().attention_output_bias) bias = model.parameter(first_stack() + ".0.self.output.bias").value.to_vector();
  for (std::size_t i = 0; i < found.size(); ++i) ASSERT_EQ(found[i], bias[i % bias.size()]);
  EXPECT_EQ(recorder.value(in).to_vector(), recorder.value(out).to_vector());
  EXPECT_EQ(run.report.head_parts_checked, 1);
  EXPECT_LE(run.report.head_parts_difference, 1e-4);
}

TEST_P(EditedFamily, HeadPartsAndBiasAreTheAttentionOutputAndAgreeWithTheTextbook) {
  const StackKind stack = config().decoder ? StackKind::decoder : StackKind::encoder;
  const Site written{stack, 1, Part::self, Point::head_output}, projected{stack, 1, Part::self, Point::projected};
  Recorder recorder({written, projected});
  EditRunOptions options;
  options.beside_base = &recorder;
  run_edited(model, {}, input, options);
  const Tensor& head_output = recorder.value(written);
  const Tensor parts = head_parts(model, stack, 1, Part::self, head_output);
  ASSERT_EQ(parts.shape(), (Shape{head_output.rows(), config().heads, config().width}));
  reference::Transformer textbook(model);
  Matrix rows;
  for (std::int64_t row = 0; row < head_output.rows(); ++row)
    rows.emplace_back(head_output.row(row), head_output.row(row) + head_output.width());
  Matrix sum(rows.size(), std::vector<double>(static_cast<std::size_t>(config().width), 0));
  for (std::int64_t head = 0; head < config().heads; ++head) {
    const Matrix part = textbook.head_part(first_stack() + ".1.self", rows, head);
    for (std::size_t row = 0; row < part.size(); ++row)
      for (std::size_t i = 0; i < part[row].size(); ++i) {
        const float found = parts.row(static_cast<std::int64_t>(row) * config().heads + head)[i];
        ASSERT_NEAR(found, part[row][i], 1e-5 * std::max(1.0, std::fabs(part[row][i])));
        sum[row][i] += static_cast<double>(found);
      }
  }
  if (config().attention_output_bias)
    for (auto& row : sum)
      for (std::size_t i = 0; i < row.size(); ++i) row[i] += textbook.values(first_stack() + ".1.self.output.bias")[i];
  expect_close(recorder.value(projected), sum, 1e-5, "head parts");
  const HeadPartsDifference none =
      head_parts_difference(model, stack, 1, Part::self, head_output, recorder.value(projected));
  double largest = 0;
  for (const float value : recorder.value(projected).to_vector())
    largest = std::max(largest, std::fabs(static_cast<double>(value)));
  EXPECT_EQ(none.largest_output, largest);
  EXPECT_LT(none.difference, 1e-5 * std::max(1.0, largest));
  Tensor changed = recorder.value(projected).clone();
  changed.row(changed.rows() - 1)[0] += 8;
  EXPECT_NEAR(head_parts_difference(model, stack, 1, Part::self, head_output, changed).difference, 8, 1e-4);
  changed.row(0)[0] = std::numeric_limits<float>::quiet_NaN();
  EXPECT_TRUE(std::isinf(head_parts_difference(model, stack, 1, Part::self, head_output, changed).difference));
}

TEST_P(EditedFamily, EvictedAndWindowedKeysHaveNoWeightAndLockedRowsSumToOne) {
  const std::string attention = first_stack() + ".1.self";
  const StackKind stack = config().decoder ? StackKind::decoder : StackKind::encoder;
  Edits edits;
  edits.add({.name = "evict",
             .kind = EditKind::evict,
             .at = attention,
             .heads = {0},
             .positions = {{2, PositionRange::open_end}},
             .keys = {{1, 0}}});
  edits.add({.name = "window", .kind = EditKind::window, .at = attention, .heads = {1}, .size = 2});
  if (config().heads > 2)
    edits.add({.name = "lock",
               .kind = EditKind::lock,
               .at = attention,
               .heads = {2},
               .positions = {{2, 0}},
               .keys = {{1, 0}},
               .value = 0.375f});
  const Site weights{stack, 1, Part::self, Point::weights};
  Recorder recorder({weights});
  EditRunOptions options;
  options.beside_edited = &recorder;
  run_edited(model, edits, input, options);
  for (std::int64_t item = 0; item < 3; ++item) {
    const Tensor& matrix = recorder.value(weights, item);
    const std::int64_t length = matrix.width();
    for (std::int64_t query = 0; query < length; ++query) {
      if (query >= 2) {
        EXPECT_EQ(matrix.at(query, 1), 0) << "an evicted key is read";
      }
      for (std::int64_t key = 0; key + 2 <= query; ++key)
        EXPECT_EQ(matrix.at(length + query, key), 0) << "a key beyond the window is read";
      for (std::int64_t head = 0; head < config().heads; ++head) {
        double sum = 0;
        for (std::int64_t key = 0; key < length; ++key) sum += matrix.at(head * length + query, key);
        if (query < 2 || head != 0 || sum != 0) {
          EXPECT_NEAR(sum, 1, 1e-6);
        }
      }
    }
    if (config().heads > 2) {
      EXPECT_EQ(matrix.at(2 * length + 2, 1), 0.375f);
    }
  }
}

TEST_P(EditedFamily, HasTheSameBitsForAnyNumberOfThreadsAndAloneAsInABatch) {
  reference::RandomEdits random(model, input, 21);
  const Edits edits = random.draw(5, 3);
  const std::optional<EditedRun> together = run(edits, false);
  ASSERT_TRUE(together.has_value()) << text_of(edits);
  const int before = threads();
  for (const int count : {1, 3}) {
    set_threads(count);
    EXPECT_EQ(run(edits, false)->edited.to_vector(), together->edited.to_vector());
  }
  set_threads(before);
  // Each item alone, under its number in the batch.
  const EditSources sources = edit_sources(model, edits, input, opener());
  for (std::int64_t item = 0; item < 3; ++item) {
    const auto alone = [&](const TokenBatch& batch) {
      TokenBatch one;
      if (batch.items() > 0)
        one.append(std::span(batch.ids).subspan(static_cast<std::size_t>(batch.offsets[static_cast<std::size_t>(item)]),
                                                static_cast<std::size_t>(batch.length(item))));
      return one;
    };
    EditProbe probe(model, edits, sources);
    const std::vector<std::int64_t> number{item};
    RunOptions options;
    options.probe = &probe;
    options.item_numbers = number;
    Tensor logits;
    if (!config().decoder) {
      logits = model.logits(model.encode(alone(input.source), options), options);
    } else {
      States memory;
      if (config().encoder) memory = model.encode(alone(input.source), options);
      logits = model.logits(model.decode(alone(input.target), config().encoder ? &memory : nullptr, options), options);
    }
    const auto begin = together->offsets[static_cast<std::size_t>(item)];
    EXPECT_EQ(
        logits.to_vector(),
        together->edited.row_range(begin, together->offsets[static_cast<std::size_t>(item) + 1] - begin).to_vector())
        << text_of(edits);
  }
}

TEST_P(EditedFamily, GradientsAreThoseOfTheEditedRun) {
  if (!config().decoder) return;
  std::vector<std::int32_t> labels;
  for (const std::int32_t id : input.target.ids)
    labels.push_back(static_cast<std::int32_t>((id * 7 + 3) % config().decoder->vocabulary));
  for (int draw = 0; draw < 6; ++draw) {
    reference::RandomEdits random(model, input, static_cast<std::uint64_t>(draw) + 400);
    const Edits edits = random.draw(4, 2 * draw);
    if (!run(edits, false)) continue;
    EditProbe probe(model, edits, edit_sources(model, edits, input, opener()));
    RunOptions options;
    options.probe = &probe;
    Tape tape;
    for (Parameter& parameter : model.parameters()) tape.watch(parameter.value);
    {
      GradientScope scope(tape);
      States memory;
      if (config().encoder) memory = model.encode(input.source, options);
      const States states = model.decode(input.target, config().encoder ? &memory : nullptr, options);
      const Tensor logits = model.logits(states, options);
      tape.backward(cross_entropy(logits, labels, 0.1f).total);
    }
    // Values of other runs are constants: they are taken before parameters are moved.
    EditedTextbook textbook(model, edits, input, {{"other", &other}});
    Random pick(static_cast<std::uint64_t>(draw) + 9);
    for (const Parameter& parameter : model.parameters()) {
      const std::vector<float> gradient = tape.gradient(parameter.value).to_vector();
      double scale = 1e-3;
      for (const float value : gradient) scale = std::max(scale, std::fabs(static_cast<double>(value)));
      const std::size_t index = pick.below(gradient.size());
      double& value = textbook.textbook().values(parameter.name)[index];
      const double before = value, step = 1e-5;
      const auto loss = [&] { return textbook.textbook().loss(textbook.run(), labels, 0.1); };
      value = before + step;
      const double up = loss();
      value = before - step;
      const double down = loss();
      value = before;
      ASSERT_NEAR(gradient[index], (up - down) / (2 * step), 3e-4 * scale + 1e-5)
          << parameter.name << "[" << index << "] " << text_of(edits);
    }
  }
}

TEST_P(EditedFamily, NoiseIsNormalAndDependsOnSeedAndPlaceOnly) {
  const StackKind stack = config().decoder ? StackKind::decoder : StackKind::encoder;
  const Site site{stack, 0, Part::block, Point::input};
  Edits edits;
  edits.add({.name = "noise",
             .kind = EditKind::noise,
             .at = first_stack() + ".0.input",
             .positions = {{1, PositionRange::open_end}},
             .value = 0.5f,
             .seed = 3});
  Recorder plain({site}), noisy({site});
  EditRunOptions options;
  options.beside_base = &plain;
  options.beside_edited = &noisy;
  const EditedRun run = run_edited(model, edits, input, options);
  const Tensor a = plain.value(site), b = noisy.value(site);
  double sum = 0, squares = 0, count = 0;
  for (std::size_t item = 0; item + 1 < run.offsets.size(); ++item)
    for (std::int64_t row = run.offsets[item]; row < run.offsets[item + 1]; ++row)
      for (std::int64_t i = 0; i < a.width(); ++i) {
        const double difference = static_cast<double>(b.at(row, i)) - static_cast<double>(a.at(row, i));
        if (row == run.offsets[item]) {
          EXPECT_EQ(difference, 0);
          continue;
        }
        sum += difference, squares += difference * difference, ++count;
      }
  // 208 or more draws: mean within 5 standard errors, deviation within 20 %.
  EXPECT_NEAR(sum / count, 0, 5 * 0.5 / std::sqrt(count));
  EXPECT_NEAR(std::sqrt(squares / count), 0.5, 0.1);
  const std::vector<float> first = run.edited.to_vector();
  EXPECT_EQ(run_edited(model, edits, input).edited.to_vector(), first);
  if (config().decoder) {
    options = {};
    options.cached = true;
    expect_near(run_edited(model, edits, input, options).edited, run.edited, 1e-4, "noise step by step");
  }
  Edits reseeded;
  Edit again = edits.list()[0];
  again.seed = 4;
  reseeded.add(again);
  EXPECT_NE(run_edited(model, reseeded, input).edited.to_vector(), first);
}

INSTANTIATE_TEST_SUITE_P(All, EditedFamily, testing::ValuesIn(reference::all_families()), [](const auto& family) {
  std::string name = family.param.name.substr(0, family.param.name.find_first_of(":,"));
  std::replace_if(
      name.begin(), name.end(), [](char c) { return !std::isalnum(static_cast<unsigned char>(c)); }, '_');
  return name;
});

// ---- Contradictions -------------------------------------------------------------------------------------------------

// Numbers below 8 one by one; 8 stands for all others.
using Numbers = std::set<std::int64_t>;

Numbers expanded(const std::vector<std::int64_t>& list) {
  return list.empty() ? Numbers{0, 1, 2, 3, 4, 5, 6, 7, 8} : Numbers(list.begin(), list.end());
}
Numbers expanded(const std::vector<PositionRange>& ranges) {
  Numbers numbers;
  for (std::int64_t number = 0; number <= 8; ++number)
    if (ranges.empty() ||
        std::any_of(ranges.begin(), ranges.end(), [&](const PositionRange& range) { return range.holds(number); }))
      numbers.insert(number);
  return numbers;
}

struct Expanded {
  explicit Expanded(const Edit& edit)
      : sets{expanded(edit.items), expanded(edit.heads), expanded(edit.positions), expanded(edit.keys)} {}
  bool meets(const Expanded& other) const {
    for (std::size_t i = 0; i < 4; ++i)
      if (std::none_of(sets[i].begin(), sets[i].end(), [&](std::int64_t n) { return other.sets[i].contains(n); }))
        return false;
    return true;
  }
  bool covers(const Expanded& other) const {
    for (std::size_t i = 0; i < 4; ++i)
      if (!std::includes(sets[i].begin(), sets[i].end(), other.sets[i].begin(), other.sets[i].end())) return false;
    return true;
  }
  // How far back its scores go; 8 is as far as wanted.
  std::int64_t distance() const {
    const std::int64_t last = *sets[2].rbegin();
    return (last == 8 ? 1000 : last) - *sets[3].begin();
  }
  Numbers sets[4];
};

bool same_values(Action a, const Edit& one, Action b, const Edit& other) {
  const auto hidden = [](Action action, const Edit& edit) {
    return action == Action::forbid || (action == Action::lock && edit.value == 0);
  };
  if (hidden(a, one) || hidden(b, other)) return hidden(a, one) && hidden(b, other);
  if (a != b) return false;
  if (a == Action::mean) return one.texts == other.texts && one.by_position == other.by_position;
  if (a == Action::patch)
    return one.texts == other.texts && one.from_positions == other.from_positions &&
           (one.from_positions.empty() || one.positions == other.positions);
  return (a != Action::set && a != Action::lock) || one.value == other.value;
}

bool contradict_at_a_site(const PlacedEdit& a, const Edit& one, const PlacedEdit& b, const Edit& other) {
  const auto adds = [](Action action) {
    return action == Action::noise || action == Action::add || action == Action::scale;
  };
  const Expanded first(one), second(other);
  if (!first.meets(second)) return false;
  const auto near = [](const PlacedEdit& placed, const Expanded& edit) {
    return placed.min_distance != ScoreEdit::any_distance && edit.distance() < placed.min_distance;
  };
  if (near(a, second) || near(b, first)) return false;
  if (!adds(a.action) && !adds(b.action)) return !same_values(a.action, one, b.action, other);
  if (adds(a.action) && adds(b.action)) return false;
  if (adds(a.action)) return b.min_distance == ScoreEdit::any_distance && second.covers(first);
  return (a.action == Action::forbid || a.action == Action::lock) && a.min_distance == ScoreEdit::any_distance &&
         first.covers(second);
}

// Of a model that norms before its parts.
bool hidden_by(const PlacedEdit& cut, const Edit& edit, const PlacedEdit& inner) {
  if (edit.kind != EditKind::cut || !edit.items.empty() || !edit.positions.empty()) return false;
  if (inner.action == Action::zero || inner.action == Action::skip || inner.action == Action::forbid) return false;
  if (cut.site.stack != inner.site.stack || cut.site.layer != inner.site.layer) return false;
  if (cut.action == Action::skip) return inner.site.part != Part::block;
  return cut.site.point == Point::projected && inner.site.part == cut.site.part &&
         inner.site.point != Point::projected && inner.site.point != Point::added;
}

// Every pair held against each other, number by number, as the error says it; "" for none.
std::string contradictions_of(const Model& model, const Edits& edits) {
  std::map<std::pair<std::size_t, std::size_t>, std::pair<Site, std::string>> pairs;
  const std::vector<PlacedEdit> placed = place_edits(model, edits);
  for (const PlacedEdit& a : placed)
    for (const PlacedEdit& b : placed) {
      const Edit &one = edits.list()[a.edit], &other = edits.list()[b.edit];
      if (a.edit < b.edit && a.site == b.site && contradict_at_a_site(a, one, b, other)) {
        auto& found = pairs.try_emplace({a.edit, b.edit}, a.site, name_of(a.site)).first->second;
        if (a.site < found.first) found = {a.site, name_of(a.site)};
      }
    }
  for (const PlacedEdit& a : placed)
    for (const PlacedEdit& b : placed)
      if (a.edit != b.edit && hidden_by(a, edits.list()[a.edit], b))
        pairs.try_emplace(std::minmax(a.edit, b.edit), a.site, edits.list()[a.edit].at);
  std::string text;
  std::size_t named = 0;
  for (const auto& [pair, place] : pairs) {
    const Edit &one = edits.list()[pair.first], &other = edits.list()[pair.second];
    if (++named <= 8)
      text += join(named == 1 ? "contradict each other: " : "; ", "'", one.name, "' (", name_of(one.kind), ") and '",
                   other.name, "' (", name_of(other.kind), ") at ", place.second);
  }
  return named > 8 ? join(text, "; and ", named - 8, " more pairs") : text;
}

class CollidingEdits {
 public:
  explicit CollidingEdits(std::uint64_t seed) : random_(seed) {}

  Edits draw(std::size_t count) {
    Edits edits;
    while (edits.list().size() < count) {
      try {
        edits.add(one(join("edit ", edits.list().size())));
      } catch (const Error&) {  // a field its kind does not have: draw again
      }
    }
    return edits;
  }

 private:
  std::int64_t below(std::int64_t bound) {
    return static_cast<std::int64_t>(random_.below(static_cast<std::uint64_t>(bound)));
  }
  std::vector<std::int64_t> numbers(std::int64_t bound) {
    std::vector<std::int64_t> list;
    if (below(2) == 0) return list;
    for (std::int64_t number = 0; number < bound; ++number)
      if (below(2) == 0) list.push_back(number);
    shuffle(list.begin(), list.end(), random_);
    return list;
  }
  // Single ones, ranges, ranges that touch, the last one open; in any order.
  std::vector<PositionRange> ranges() {
    std::vector<PositionRange> list;
    if (below(3) == 0) return list;
    for (std::int64_t begin = below(3); begin < 7;) {
      const std::int64_t end = begin + 1 + below(3);
      if (end >= 7 && below(2) == 0) list.push_back({begin, PositionRange::open_end});
      else if (end == begin + 1) list.push_back({begin});
      else list.push_back({begin, std::min<std::int64_t>(end, 7)});
      begin = end + below(3);
    }
    shuffle(list.begin(), list.end(), random_);
    return list;
  }

  Edit one(const std::string& name) {
    static constexpr const char* scores[] = {"decoder.0.self", "decoder.*.self"};
    static constexpr const char* values[] = {"decoder.0.self.value", "decoder.*.self.value", "decoder.0.self.*"};
    static constexpr const char* cuts[] = {"decoder.0.self", "decoder.*.self", "decoder.0", "decoder.1.*"};
    const auto of_values = below(2) == 0;
    static constexpr EditKind of_value[] = {EditKind::zero, EditKind::mean, EditKind::patch, EditKind::noise,
                                            EditKind::freeze};
    static constexpr EditKind of_score[] = {EditKind::set,  EditKind::add,   EditKind::scale,  EditKind::forbid,
                                            EditKind::lock, EditKind::evict, EditKind::window, EditKind::cut};
    Edit edit{.name = name, .kind = of_values ? of_value[below(5)] : of_score[below(8)]};
    edit.at = of_values ? values[below(2)] : scores[below(2)];
    if (edit.kind == EditKind::cut) edit.at = cuts[below(4)];
    if (edit.kind == EditKind::freeze) edit.at = below(2) == 0 ? "decoder.0.self" : "decoder";
    edit.items = numbers(3);
    edit.positions = ranges();
    if (edit.kind == EditKind::cut && below(2) == 0) edit.items.clear(), edit.positions.clear();
    if (edit.kind != EditKind::freeze && edit.at != "decoder.0" && edit.at != "decoder.1.*") edit.heads = numbers(2);
    if (!of_values && edit.kind != EditKind::window && edit.at != "decoder.0" && edit.at != "decoder.1.*" &&
        !(edit.kind == EditKind::cut && below(2) == 0))
      edit.keys = ranges();
    const bool valued = edit.kind == EditKind::set || edit.kind == EditKind::add || edit.kind == EditKind::scale ||
                        edit.kind == EditKind::lock;
    if (valued) edit.value = static_cast<float>(below(2)) / 2.0f;
    if (edit.kind == EditKind::noise) edit.value = 1;
    if (edit.kind == EditKind::window) edit.size = 1 + below(6);
    if (edit.kind == EditKind::mean || edit.kind == EditKind::patch)
      edit.texts = {EditText{{}, {1, static_cast<std::int32_t>(below(2))}, {}, {}}};
    if (edit.kind == EditKind::mean) edit.by_position = below(2) == 0;
    if (edit.kind == EditKind::patch && below(2) == 0) {
      edit.positions = {{static_cast<std::int64_t>(below(3)), 0}};
      edit.from_positions = {{static_cast<std::int64_t>(below(2)), 0}};
    }
    return edit;
  }

  Random random_;
};

TEST(Contradictions, AreThoseOfEveryPairNumberByNumber) {
  TransformerConfig config = reference::small_config();
  config.encoder.reset();
  config.decoder = StackConfig{.layers = 2, .vocabulary = 23, .causal = true};
  ASSERT_EQ(config.norm_place, NormPlace::pre);
  const Model model(config, 3);
  int whole = 0, refused = 0, more = 0;
  for (std::uint64_t seed = 0; seed < 3000; ++seed) {
    // Two at a time show each rule alone; 70 fill more than one word of a set.
    const Edits edits = CollidingEdits(seed).draw(seed % 300 == 0 ? 70 : 2 + seed % 4);
    const std::string expected = contradictions_of(model, edits);
    std::string found;
    try {
      edits.check(model);
    } catch (const Error& error) {
      found = error.what_happened();
    }
    ASSERT_EQ(found, expected) << text_of(edits);
    ++(expected.empty() ? whole : refused);
    more += expected.find("more pairs") != std::string::npos;
  }
  EXPECT_GT(whole, 500);
  EXPECT_GT(refused, 500);
  EXPECT_GE(more, 10);
}

}  // namespace
}  // namespace attend
