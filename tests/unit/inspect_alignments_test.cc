#include "attend/alignments.h"

#include <gtest/gtest.h>

#include <cmath>
#include <filesystem>
#include <fstream>
#include <functional>
#include <string>
#include <vector>

#include "attend/checkpoint.h"
#include "attend/corpus.h"
#include "attend/error.h"
#include "core/random.h"
#include "inspect_helpers.h"
#include "reference/planted_models.h"

namespace attend {
namespace {

// ---- Pharaoh --------------------------------------------------------------------------------------------------------

TEST(Pharaoh, ReadsAndWrites) {
  const ReferenceAlignment read = parse_pharaoh(" 2-1  0-0\t10p3 ", "here");
  EXPECT_EQ(read.sure, (Alignment{{0, 0}, {2, 1}}));
  EXPECT_EQ(read.possible, (Alignment{{0, 0}, {2, 1}, {10, 3}}));
  EXPECT_EQ(to_pharaoh(read), "0-0 2-1 10p3");
  EXPECT_EQ(to_pharaoh(read.sure), "0-0 2-1");
  EXPECT_EQ(parse_pharaoh(to_pharaoh(read), "here"), read);
  EXPECT_EQ(parse_pharaoh("", "here"), ReferenceAlignment{});
}

TEST(Pharaoh, RefusesWhatIsNoLink) {
  for (const char* bad : {"0", "-1", "0-", "0--1", "0-1-2", "a-1", "0-1x", "0:1", "1 - 2", "+1-2", "0-1,1-2",
                          "1234567-0", "0-1234567", "\xFF-1"}) {
    const std::string message =
        message_of([&] { parse_pharaoh(std::string("5-5 ") + bad, "file:7"); }, ErrorKind::format);
    EXPECT_NE(message.find("file:7"), std::string::npos) << message;
    EXPECT_NE(message.find("link 2"), std::string::npos) << message;
  }
  message_of([] { parse_pharaoh("0-1 2-2 0-1", "x"); }, ErrorKind::format);
  message_of([] { parse_pharaoh("0-1 0p1", "x"); }, ErrorKind::format);
}

TEST(Pharaoh, FilesComeBack) {
  const std::filesystem::path path = std::filesystem::path(testing::TempDir()) / "pharaoh.txt";
  const std::vector<Alignment> written{{{0, 0}, {1, 2}}, {}, {{3, 1}}};
  write_pharaoh(path, written);
  const std::vector<ReferenceAlignment> read = read_pharaoh(path);
  ASSERT_EQ(read.size(), 3u);
  for (std::size_t i = 0; i < 3; ++i) EXPECT_EQ(read[i].sure, written[i]);
  std::ofstream(path, std::ios::app) << "1-1 x\n";
  EXPECT_NE(message_of([&] { read_pharaoh(path); }, ErrorKind::format).find("pharaoh.txt:4"), std::string::npos);
  std::filesystem::remove(path);
  message_of([&] { read_pharaoh(path); }, ErrorKind::file);
}

// ---- Scores ---------------------------------------------------------------------------------------------------------

TEST(AlignmentErrorRate, WorkedByHand) {
  const ReferenceAlignment reference{{{0, 0}, {1, 1}}, {{0, 0}, {1, 1}, {2, 1}}};
  // Three links, one of them sure, two of them possible.
  AlignmentScore score = score_alignment({{0, 0}, {2, 1}, {2, 2}}, reference);
  EXPECT_DOUBLE_EQ(score.precision(), 2.0 / 3);
  EXPECT_DOUBLE_EQ(score.recall(), 0.5);
  EXPECT_DOUBLE_EQ(score.error(), 1 - 3.0 / 5);
  // A second pair found in full: counts are added, rates are not averaged.
  score += score_alignment({{0, 0}}, {{{0, 0}}, {{0, 0}}});
  EXPECT_DOUBLE_EQ(score.error(), 1 - 5.0 / 7);
  EXPECT_DOUBLE_EQ(score_alignment(reference.sure, reference).error(), 0);
  EXPECT_TRUE(std::isnan(AlignmentScore{}.error()));
}

// ---- Symmetrisation -------------------------------------------------------------------------------------------------

TEST(Symmetrise, WorkedByHand) {
  const Alignment forward{{0, 0}, {1, 1}, {3, 4}}, backward{{0, 0}, {0, 3}, {2, 1}};
  const auto how = [&](Symmetrisation s) { return to_pharaoh(symmetrise(forward, backward, s)); };
  EXPECT_EQ(how(Symmetrisation::forward), "0-0 1-1 3-4");
  EXPECT_EQ(how(Symmetrisation::backward), "0-0 0-3 2-1");
  EXPECT_EQ(how(Symmetrisation::intersection), "0-0");
  EXPECT_EQ(how(Symmetrisation::union_of_both), "0-0 0-3 1-1 2-1 3-4");
  // 1-1 touches 0-0, 2-1 touches 1-1 and brings in source word 2; 0-3 and 3-4 touch nothing.
  EXPECT_EQ(how(Symmetrisation::grow_diagonal), "0-0 1-1 2-1");
  // 3-4 has two free words; 0-3 a free target only.
  EXPECT_EQ(how(Symmetrisation::grow_diagonal_final), "0-0 0-3 1-1 2-1 3-4");
  EXPECT_EQ(how(Symmetrisation::grow_diagonal_final_and), "0-0 1-1 2-1 3-4");
}

TEST(Symmetrise, GrowsOnlyWhereAWordIsFree) {
  // 0-1 lies between two links whose words it would join again.
  EXPECT_EQ(to_pharaoh(symmetrise({{0, 0}, {1, 1}}, {{0, 0}, {0, 1}, {1, 1}}, Symmetrisation::grow_diagonal_final)),
            "0-0 1-1");
}

TEST(Symmetrise, WithoutIntersectionOnlyTheFinalStepLinks) {
  const Alignment forward{{0, 1}}, backward{{1, 0}};
  EXPECT_TRUE(symmetrise(forward, backward, Symmetrisation::grow_diagonal).empty());
  EXPECT_EQ(to_pharaoh(symmetrise(forward, backward, Symmetrisation::grow_diagonal_final_and)), "0-1 1-0");
}

// The procedure of Koehn et al. 2005, figure 1, written down as it stands there, on tables.
Alignment grow_diag_as_published(const Alignment& forward, const Alignment& backward, Symmetrisation how, int sources,
                                 int targets) {
  using Table = std::vector<std::vector<bool>>;  // [target][source]
  const auto table = [&](const Alignment& links) {
    Table result(static_cast<std::size_t>(targets), std::vector<bool>(static_cast<std::size_t>(sources)));
    for (const Link& link : links)
      result[static_cast<std::size_t>(link.target)][static_cast<std::size_t>(link.source)] = true;
    return result;
  };
  const Table f = table(forward), b = table(backward);
  Table a = f, both = f;
  for (std::size_t t = 0; t < f.size(); ++t)
    for (std::size_t s = 0; s < f[t].size(); ++s) {
      a[t][s] = f[t][s] && b[t][s];
      both[t][s] = f[t][s] || b[t][s];
    }
  const auto target_aligned = [&](std::size_t t) { return std::find(a[t].begin(), a[t].end(), true) != a[t].end(); };
  const auto source_aligned = [&](std::size_t s) {
    return std::any_of(a.begin(), a.end(), [&](const auto& row) { return row[s]; });
  };
  const int neighbours[8][2] = {{-1, 0}, {0, -1}, {1, 0}, {0, 1}, {-1, -1}, {-1, 1}, {1, -1}, {1, 1}};
  for (bool added = true; added;) {
    added = false;
    for (int t = 0; t < targets; ++t)
      for (int s = 0; s < sources; ++s) {
        if (!a[static_cast<std::size_t>(t)][static_cast<std::size_t>(s)]) continue;
        for (const auto& step : neighbours) {
          const int nt = t + step[0], ns = s + step[1];
          if (nt < 0 || ns < 0 || nt >= targets || ns >= sources) continue;
          const auto ut = static_cast<std::size_t>(nt), us = static_cast<std::size_t>(ns);
          if ((!target_aligned(ut) || !source_aligned(us)) && both[ut][us]) a[ut][us] = added = true;
        }
      }
  }
  if (how != Symmetrisation::grow_diagonal)
    for (const Table* direction : {&f, &b})
      for (std::size_t t = 0; t < f.size(); ++t)
        for (std::size_t s = 0; s < f[t].size(); ++s) {
          if (!(*direction)[t][s]) continue;
          const bool t_free = !target_aligned(t), s_free = !source_aligned(s);
          if (how == Symmetrisation::grow_diagonal_final ? t_free || s_free : t_free && s_free) a[t][s] = true;
        }
  Alignment result;
  for (std::size_t s = 0; s < static_cast<std::size_t>(sources); ++s)
    for (std::size_t t = 0; t < f.size(); ++t)
      if (a[t][s]) result.push_back({static_cast<std::int64_t>(s), static_cast<std::int64_t>(t)});
  return result;
}

TEST(Symmetrise, EqualsThePublishedProcedureOnRandomLinks) {
  Random random(11);
  for (int round = 0; round < 400; ++round) {
    Alignment forward, backward;
    for (std::int64_t s = 0; s < 6; ++s)
      for (std::int64_t t = 0; t < 5; ++t) {
        const std::uint64_t draw = random.below(10);
        if (draw < 3) forward.push_back({s, t});
        if (draw == 0 || draw == 4) backward.push_back({s, t});
      }
    for (const Symmetrisation how :
         {Symmetrisation::grow_diagonal, Symmetrisation::grow_diagonal_final, Symmetrisation::grow_diagonal_final_and})
      ASSERT_EQ(symmetrise(forward, backward, how), grow_diag_as_published(forward, backward, how, 6, 5))
          << to_pharaoh(forward) << " | " << to_pharaoh(backward) << " | " << name_of(how);
  }
}

TEST(Symmetrise, NamesReadBack) {
  for (int i = 0; i <= static_cast<int>(Symmetrisation::grow_diagonal_final_and); ++i) {
    const auto how = static_cast<Symmetrisation>(i);
    EXPECT_EQ(symmetrisation_named(name_of(how)), how);
  }
  message_of([] { symmetrisation_named("grow"); }, ErrorKind::argument);
  EXPECT_EQ(link_rule_named("threshold"), LinkRule::threshold);
  message_of([] { link_rule_named("argmax"); }, ErrorKind::argument);
}

// ---- Links from weights ---------------------------------------------------------------------------------------------

TEST(Links, LargestAndThreshold) {
  const auto tokenizer = byte_tokenizer(Normalisation::none, {"<2en>"});
  const std::int32_t tag = tokenizer->id("<2en>"), eos = tokenizer->specials().eos;
  const auto source = group(pieces_of(*tokenizer, std::vector<std::int32_t>{tag, 'a', ' ', 'b', eos}), GroupBy::word);
  const auto target = group(pieces_of(*tokenizer, std::vector<std::int32_t>{'x', ' ', 'y', eos}), GroupBy::word);
  ASSERT_EQ(source.size(), 4u);  // tag, a, b, eos
  ASSERT_EQ(target.size(), 3u);
  const std::vector<float> weights{0.1f, 0.3f,  0.2f,  0.4f,   // x
                                   0.0f, 0.25f, 0.75f, 0.0f,   // y
                                   0.0f, 0.0f,  0.9f,  0.1f};  // eos links nothing
  EXPECT_EQ(to_pharaoh(links_of(weights, target, source)), "0-0 1-1");
  EXPECT_EQ(to_pharaoh(links_of(weights, target, source, {.special_may_win = true})), "1-1");
  EXPECT_EQ(to_pharaoh(links_of(weights, target, source, {.rule = LinkRule::threshold, .threshold = 0.25})),
            "0-0 0-1 1-1");
  message_of([&] { links_of(weights, target, source, {.rule = LinkRule::threshold, .threshold = 0}); },
             ErrorKind::argument);
  message_of([&] { links_of(std::span(weights).first(11), target, source); }, ErrorKind::shape);
}

TEST(Links, AGroupOfTwoWordsLinksBoth) {
  const std::vector<TokenGroup> source{{0, 1, "ab", TokenRole::text, 0, 2}, {1, 2, "c", TokenRole::text, 2, 3}},
      target{{0, 1, "x", TokenRole::text, 0, 1}};
  EXPECT_EQ(to_pharaoh(links_of(std::vector<float>{0.9f, 0.1f}, target, source)), "0-0 1-0");
}

// ---- Pairs through a model ------------------------------------------------------------------------------------------

// A planted model that writes its source again, with a tokenizer of single characters.
struct Copier {
  reference::CrossModel planted = reference::planted_cross(12, 24);
  std::shared_ptr<const Tokenizer> tokenizer = train_character({}, "abcdefgh");
  Task task;
  Translator translator;

  Copier() : task(make_task()), translator(planted.model, tokenizer, tokenizer, task) {}
  static Task make_task() {
    Task task;
    task.languages = {"de", "nl"};
    return task;
  }
};

TEST(AlignWords, FindsTheDiagonalThroughThePlantedHead) {
  const Copier copier;
  WordAlignOptions options;
  options.link.rule = LinkRule::largest;
  options.attention.chosen = options.backward_attention.chosen = {{0, copier.planted.diagonal.head}};
  const std::vector<WordPair> pairs{
      {"abcd", "abcd", "a b c d", "a b c d"}, {"hgfe", "hgfe", "hg fe", "h gf e"}, {"a", "a", "", ""}};
  options.symmetrisation = Symmetrisation::forward;
  std::vector<AlignedPair> aligned = align_words(copier.translator, pairs, options);
  EXPECT_EQ(to_pharaoh(aligned[0].links), "0-0 1-1 2-2 3-3");
  EXPECT_EQ(to_pharaoh(aligned[1].links), "0-0 0-1 1-2");  // gf reads g and f alike: the first of equals
  EXPECT_EQ(to_pharaoh(aligned[2].links), "0-0");
  for (const AlignedPair& pair : aligned)
    for (std::size_t row = 0; row < pair.target.size(); ++row) {
      double sum = 0;
      for (std::size_t column = 0; column < pair.source.size(); ++column)
        sum += static_cast<double>(pair.weights[row * pair.source.size() + column]);
      EXPECT_NEAR(sum, 1, 1e-5);
    }
  // Both directions through the same model: every link is there twice.
  options.symmetrisation = Symmetrisation::intersection;
  aligned = align_words(copier.translator, pairs, options, &copier.translator);
  EXPECT_EQ(to_pharaoh(aligned[0].backward), "0-0 1-1 2-2 3-3");
  EXPECT_EQ(to_pharaoh(aligned[0].links), "0-0 1-1 2-2 3-3");
  EXPECT_EQ(to_pharaoh(aligned[1].backward), "0-0 1-1");
  EXPECT_EQ(to_pharaoh(aligned[1].links), "0-0");
  // Another head does not align.
  options.symmetrisation = Symmetrisation::forward;
  options.attention.chosen = {{0, copier.planted.silent.head}};
  EXPECT_NE(to_pharaoh(align_words(copier.translator, pairs, options)[0].links), "0-0 1-1 2-2 3-3");
}

TEST(AlignWords, NamesThePairInErrors) {
  const Copier copier;
  WordAlignOptions options;
  options.first_line = 41;
  const auto refused = [&](const WordPair& pair, ErrorKind kind) {
    const std::vector<WordPair> pairs{{"a", "b", "", ""}, pair};
    options.symmetrisation = Symmetrisation::forward;
    return message_of([&] { align_words(copier.translator, pairs, options); }, kind);
  };
  EXPECT_NE(refused({"ab", "", "", ""}, ErrorKind::text).find("pair 42"), std::string::npos);
  EXPECT_NE(refused({"ab", "cd", "a c", ""}, ErrorKind::text).find("word 2"), std::string::npos);
  EXPECT_NE(refused({std::string(40, 'a'), "b", "", ""}, ErrorKind::text).find("at most 24"), std::string::npos);
  EXPECT_NE(refused({"a\xFF", "b", "", ""}, ErrorKind::text).find("pair 42"), std::string::npos);
  options.symmetrisation = Symmetrisation::intersection;
  const std::vector<WordPair> fine{{"a", "b", "", ""}};
  EXPECT_NE(message_of([&] { align_words(copier.translator, fine, options); }, ErrorKind::config).find("one direction"),
            std::string::npos);
  options.symmetrisation = Symmetrisation::forward;
  options.attention.chosen = {{1, 0}};
  message_of([&] { align_words(copier.translator, fine, options); }, ErrorKind::argument);
  options.attention.chosen = {{0, 4}};
  message_of([&] { align_words(copier.translator, fine, options); }, ErrorKind::argument);
  options.attention = {{0}, {}, false, {{0, 0}}};
  message_of([&] { align_words(copier.translator, fine, options); }, ErrorKind::argument);
}

// The shipped translator: the batch does not matter, and intersections lie in both directions.
TEST(AlignWords, BatchesDoNotMatter) {
  static const ModelFolder folder = load_model_folder(std::string(ATTEND_SOURCE_DIR) + "/weights/tatoeba-zh-en");
  const Translator translator(folder);
  LineReader zh(std::string(ATTEND_SOURCE_DIR) + "/data/tatoeba-zh-en/test.zh.gz"),
      en(std::string(ATTEND_SOURCE_DIR) + "/data/tatoeba-zh-en/test.en.gz");
  std::vector<WordPair> pairs(20);
  for (WordPair& pair : pairs) zh.next(pair.source), en.next(pair.target);
  WordAlignOptions options;
  const std::vector<AlignedPair> together = align_words(translator, pairs, options);
  for (std::size_t i = 0; i < pairs.size(); ++i) {
    EXPECT_EQ(together[i].from, "zh");
    const AlignedPair alone = align_words(translator, std::span(pairs).subspan(i, 1), options)[0];
    EXPECT_EQ(alone.weights, together[i].weights);
    EXPECT_EQ(alone.links, together[i].links);
    EXPECT_FALSE(alone.links.empty());
  }
}

}  // namespace
}  // namespace attend
