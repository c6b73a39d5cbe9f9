// The shipped translator against word alignments drawn up by hand (data/tatoeba-zh-en/aligned.*).
#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <vector>

#include "attend/corpus.h"
#include "attend/heads.h"

namespace attend {
namespace {

const std::string data = std::string(ATTEND_SOURCE_DIR) + "/data/tatoeba-zh-en/";

std::string without_blanks(std::string text) {
  std::erase(text, ' ');
  return text;
}

struct Reference {
  std::vector<WordPair> pairs;  // Chinese, English
  std::vector<ReferenceAlignment> links;
};

const Reference& reference() {
  static const Reference made = [] {
    Reference result;
    result.links = read_pharaoh(data + "aligned.links");
    const std::vector<std::string> zh = read_lines(data + "test.zh.gz").lines,
                                   en = read_lines(data + "test.en.gz").lines;
    LineReader zh_words(data + "aligned.zh"), en_words(data + "aligned.en");
    for (std::string source, target; zh_words.next(source) && en_words.next(target);)
      for (std::size_t i = 0; i < zh.size(); ++i)
        if (without_blanks(zh[i]) == without_blanks(source) && without_blanks(en[i]) == without_blanks(target)) {
          result.pairs.push_back({zh[i], en[i], source, target});
          break;
        }
    return result;
  }();
  return made;
}

const Translator& translator() {
  static const ModelFolder folder = load_model_folder(std::string(ATTEND_SOURCE_DIR) + "/weights/tatoeba-zh-en");
  static const Translator made(folder);
  return made;
}

AlignmentScore score_of(const WordAlignOptions& options) {
  AlignmentScore score;
  const std::vector<AlignedPair> aligned = align_words(translator(), reference().pairs, options);
  for (std::size_t i = 0; i < aligned.size(); ++i) score += score_alignment(aligned[i].links, reference().links[i]);
  return score;
}

TEST(ReferenceAlignments, AreOfTheTestSet) {
  ASSERT_EQ(reference().links.size(), 42u);
  ASSERT_EQ(reference().pairs.size(), 42u);
  std::size_t sure = 0, possible = 0;
  for (const ReferenceAlignment& one : reference().links) sure += one.sure.size(), possible += one.possible.size();
  EXPECT_EQ(sure, 232u);
  EXPECT_EQ(possible, 232u + 75u);
}

// Both directions of every pair. The head that agrees best with itself both ways is the one with the smallest error:
// what lets the finder choose without a reference.
TEST(ShippedTranslator, AgreementFindsTheHeadThatAlignsBest) {
  std::vector<HeadItem> items;
  for (std::size_t i = 0; i < reference().pairs.size(); ++i) {
    const WordPair& pair = reference().pairs[i];
    ReferenceAlignment turned;
    for (const Link& link : reference().links[i].sure) turned.sure.push_back({link.target, link.source});
    for (const Link& link : reference().links[i].possible) turned.possible.push_back({link.target, link.source});
    std::sort(turned.sure.begin(), turned.sure.end());
    std::sort(turned.possible.begin(), turned.possible.end());
    items.push_back(item_of(translator(), pair.source, pair.target,
                            {"en", true, pair.source_words, pair.target_words, reference().links[i]}));
    HeadItem mirror =
        item_of(translator(), pair.target, pair.source, {"zh", true, pair.target_words, pair.source_words, turned});
    auto words = std::make_shared<ItemWords>(*mirror.words);
    words->mirrors = true;
    mirror.words = words;
    items.push_back(mirror);
  }
  const HeadReport report = find_heads(translator().model(), items_from(items), {.copying = false});
  const std::vector<RankedHead> by_error = rank_heads(report, Behaviour::alignment_error),
                                by_agreement = rank_heads(report, Behaviour::agreement);
  ASSERT_EQ(by_error.size(), 16u);
  EXPECT_EQ(by_error[0].head, by_agreement[0].head);
  EXPECT_LT(by_error[0].value, 0.42);  // 0.383 when the test was written
  EXPECT_GT(by_error.back().value, 0.6);
  // The row that reads a word has moved on to the next.
  EXPECT_GT(rank_heads(report, Behaviour::alignment_error_after)[0].value, by_error[0].value + 0.1);

  const AlignmentOptions best = best_alignment_heads(report, 3);
  ASSERT_EQ(best.chosen.size(), 3u);
  EXPECT_FALSE(best.after);
  WordAlignOptions options;
  options.link.rule = LinkRule::largest;
  options.attention = options.backward_attention = best;
  EXPECT_LT(score_of(options).error(), 0.37);  // 0.331
}

TEST(ShippedTranslator, AlignsBothWays) {
  const AlignmentScore unasked = score_of({});
  EXPECT_LT(unasked.error(), 0.34);  // 0.296
  WordAlignOptions options;
  options.link.rule = LinkRule::largest;
  const AlignmentScore both = score_of(options);
  EXPECT_LT(both.error(), 0.42);  // 0.379
  options.symmetrisation = Symmetrisation::union_of_both;
  const AlignmentScore either = score_of(options);
  EXPECT_GT(both.precision(), either.precision());
  EXPECT_LT(both.recall(), either.recall());
  EXPECT_LT(unasked.error(), both.error());
}

}  // namespace
}  // namespace attend
