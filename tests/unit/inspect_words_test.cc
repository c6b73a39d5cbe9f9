#include "attend/words.h"

#include <gtest/gtest.h>

#include <cmath>
#include <string>
#include <vector>

#include "attend/corpus.h"
#include "attend/error.h"
#include "core/random.h"
#include "inspect_helpers.h"

namespace attend {
namespace {

const std::string root = ATTEND_SOURCE_DIR;

std::shared_ptr<const Tokenizer> shipped() {
  static const auto tokenizer = load_tokenizer(root + "/weights/tatoeba-zh-en");
  return tokenizer;
}

std::vector<std::string> texts(const std::vector<TokenGroup>& groups) {
  std::vector<std::string> result;
  for (const TokenGroup& one : groups) result.push_back(one.text);
  return result;
}
std::vector<std::string> texts(const std::vector<Piece>& pieces) {
  std::vector<std::string> result;
  for (const Piece& piece : pieces) result.push_back(piece.text);
  return result;
}
using Texts = std::vector<std::string>;

std::vector<Piece> byte_pieces(std::string_view text) {
  static const auto tokenizer = byte_tokenizer();
  return pieces_of(*tokenizer, tokenizer->encode(text));
}

TEST(Pieces, OneChineseCharacterOverThreeBytesIsShownOnce) {
  const std::vector<Piece> pieces = byte_pieces("a龘b");
  ASSERT_EQ(pieces.size(), 5u);
  EXPECT_EQ(texts(pieces), (Texts{"a", "龘", "", "", "b"}));
  for (int i = 0; i < 3; ++i) {
    EXPECT_EQ(pieces[static_cast<std::size_t>(i + 1)].fragment, i);
    EXPECT_EQ(pieces[static_cast<std::size_t>(i + 1)].fragments, 3);
  }
  EXPECT_EQ(pieces[0].fragments, 1);
  EXPECT_EQ(pieces[1].raw, "<0xE9>");
  EXPECT_EQ(texts(group(pieces, GroupBy::character)), (Texts{"a", "龘", "b"}));
  EXPECT_EQ(texts(group(pieces, GroupBy::token)), (Texts{"a", "<0xE9>", "<0xBE>", "<0x98>", "b"}))
      << "no token is nameless";
}

TEST(Pieces, BytesThatJoinToNothingStandAlone) {
  const auto tokenizer = byte_tokenizer();
  const std::vector<std::int32_t> ids{0xE9, 0xBE, 'x', 0x98};  // a character cut short, and a continuation on its own
  const std::vector<Piece> pieces = pieces_of(*tokenizer, ids);
  EXPECT_EQ(texts(pieces), (Texts{"<0xE9>", "<0xBE>", "x", "<0x98>"}));
  for (const Piece& piece : pieces) EXPECT_EQ(piece.fragments, 1);
}

TEST(Pieces, SpecialTokensAreMarked) {
  const Tokenizer& tokenizer = *shipped();
  const SpecialTokens& s = tokenizer.specials();
  std::vector<std::int32_t> ids{-1, s.bos, tokenizer.id("<2en>")};
  for (const std::int32_t id : tokenizer.encode("你好")) ids.push_back(id);
  ids.insert(ids.end(), {s.unknown, s.eos, s.pad});
  const std::vector<Piece> pieces = pieces_of(tokenizer, ids);
  EXPECT_EQ(pieces[0].role, TokenRole::class_token);
  EXPECT_EQ(pieces[1].role, TokenRole::bos);
  EXPECT_EQ(pieces[2].role, TokenRole::tag);
  EXPECT_EQ(pieces[2].text, "<2en>");
  EXPECT_FALSE(pieces[3].special());
  EXPECT_EQ(pieces[pieces.size() - 3].role, TokenRole::unknown);
  EXPECT_EQ(pieces[pieces.size() - 2].role, TokenRole::eos);
  EXPECT_EQ(pieces[pieces.size() - 2].text, "</s>");
  EXPECT_EQ(pieces.back().role, TokenRole::pad);
  std::int64_t words = 0;
  for (const TokenGroup& one : group(pieces, GroupBy::word)) {
    EXPECT_EQ(one.first_word, words);
    if (one.special() && one.role != TokenRole::unknown) {
      EXPECT_EQ(one.end_word, one.first_word) << one.text;
    }
    words = one.end_word;
  }
  EXPECT_EQ(words, static_cast<std::int64_t>(pieces.size()) - 3 - 2);  // the unknown token is a word
}

TEST(Pieces, RareChineseThroughTheShippedTokenizer) {
  const Tokenizer& tokenizer = *shipped();
  const std::string text = "他姓龘，住在犇犇镇。";
  const std::vector<std::int32_t> ids = tokenizer.encode(text);
  const std::vector<Piece> pieces = pieces_of(tokenizer, ids);
  std::string joined;
  int fragments = 0;
  for (const Piece& piece : pieces) {
    joined += piece.text == "\xE2\x90\xA3" ? "" : piece.text;  // a lone blank in front
    fragments += piece.fragments > 1;
  }
  EXPECT_EQ(joined, text);
  EXPECT_GE(fragments, 9);  // three characters the vocabulary lacks
  std::string by_character;
  for (const TokenGroup& one : group(pieces, GroupBy::character)) by_character += one.text;
  EXPECT_EQ(by_character.substr(by_character.find("他")), text);
}

TEST(Pieces, UnknownCharactersAreKnownFromTheText) {
  const auto tokenizer = train_character({}, "abc ");
  const std::vector<std::int32_t> ids = tokenizer->encode("a猫b");
  const std::vector<Piece> without = pieces_of(*tokenizer, ids), with = pieces_of(*tokenizer, ids, "a猫b");
  EXPECT_EQ(without[1].role, TokenRole::unknown);
  EXPECT_EQ(without[1].bytes, "");
  EXPECT_EQ(with[1].role, TokenRole::unknown);
  EXPECT_EQ(texts(with), (Texts{"a", "猫", "b"}));
  const std::string message = message_of([&] { pieces_of(*tokenizer, ids, "abb"); }, ErrorKind::argument);
  EXPECT_NE(message.find("token 1"), std::string::npos) << message;
  message_of([&] { pieces_of(*tokenizer, ids, "a猫bc"); }, ErrorKind::argument);
  message_of([&] { pieces_of(*tokenizer, ids, "a猫"); }, ErrorKind::argument);
}

// Every text of the corpus: pieces and groups spell it, hold every token once, and characters are never torn.
TEST(Pieces, SpellTheirText) {
  for (const std::string& folder :
       {root + "/weights/tatoeba-zh-en", root + "/tests/golden/sentencepiece/zh-en-unigram-6000.model",
        root + "/tests/golden/stories260K/tok512.bin"}) {
    const auto tokenizer = load_tokenizer(folder);
    for (const char* side : {"zh", "en"}) {
      LineReader lines(root + "/data/tatoeba-zh-en/test." + side + ".gz");
      std::string line;
      for (int n = 0; n < 300 && lines.next(line); ++n) {
        const std::vector<Piece> pieces = pieces_of(*tokenizer, tokenizer->encode(line), line);
        for (const GroupBy by : {GroupBy::token, GroupBy::character, GroupBy::word, GroupBy::blank}) {
          std::int64_t next = 0;
          std::string spelled, wanted;
          for (const TokenGroup& one : group(pieces, by)) {
            ASSERT_EQ(one.begin, next);
            ASSERT_GT(one.end, one.begin);
            next = one.end;
            for (const char c : one.text) spelled += c == ' ' ? "" : std::string(1, c);
          }
          for (const char c : line) wanted += c == ' ' ? "" : std::string(1, c);
          for (std::size_t at; (at = spelled.find("\xE2\x90\xA3")) != std::string::npos;) spelled.erase(at, 3);
          ASSERT_EQ(next, static_cast<std::int64_t>(pieces.size()));
          // A token that is a part of a character is told by its byte.
          const bool torn = by == GroupBy::token && spelled.find("<0x") != std::string::npos;
          if (!torn) {
            ASSERT_EQ(spelled, wanted) << folder;
          }
          if (by != GroupBy::token) {
            ASSERT_EQ(find_invalid_utf8(spelled), std::string::npos);
          }
        }
      }
    }
  }
}

TEST(Groups, WordsOfEnglish) {
  const auto words = [](std::string_view text) { return texts(group(byte_pieces(text), GroupBy::word)); };
  EXPECT_EQ(words("This isn't well-known, is it?"), (Texts{"This", "isn't", "well-known", ",", "is", "it", "?"}));
  EXPECT_EQ(words("'Yes' - it's 3.14, or 1,000..."),
            (Texts{"'", "Yes", "'", "-", "it's", "3.14", ",", "or", "1,000", "..."}));
  EXPECT_EQ(words("cafe\xCC\x81s na\xC3\xAFve"), (Texts{"cafe\xCC\x81s", "na\xC3\xAFve"}));
  EXPECT_EQ(words("one\ntwo"), (Texts{"one", "\\n", "two"}));
  EXPECT_EQ(texts(group(byte_pieces("isn't it?"), GroupBy::blank)), (Texts{"isn't", "it?"}));
}

TEST(Groups, WordsOfChineseAreCharacters) {
  EXPECT_EQ(texts(group(byte_pieces("我用Python写3行。"), GroupBy::word)),
            (Texts{"我", "用", "Python", "写", "3", "行", "。"}));
}

TEST(Groups, BlankOpensTheWordAfterIt) {
  const std::vector<TokenGroup> groups = group(byte_pieces("a  bc "), GroupBy::word);
  ASSERT_EQ(texts(groups), (Texts{"a", "bc", "\xE2\x90\xA3"}));
  EXPECT_EQ(groups[1].begin, 1);
  EXPECT_EQ(groups[1].end, 5);
  EXPECT_EQ(groups[2].first_word, groups[2].end_word);  // blanks alone are no word
}

TEST(Groups, WordsOfTheShippedTokenizer) {
  const Tokenizer& tokenizer = *shipped();
  std::vector<std::int32_t> ids{tokenizer.id("<2zh>")};
  for (const std::int32_t id : tokenizer.encode("Tom unhesitatingly photographed Reykjavik.")) ids.push_back(id);
  ids.push_back(tokenizer.specials().eos);
  EXPECT_EQ(texts(group(pieces_of(tokenizer, ids), GroupBy::word)),
            (Texts{"<2zh>", "Tom", "unhesitatingly", "photographed", "Reykjavik", ".", "</s>"}));
}

TEST(Segmentation, GivesItsWords) {
  const std::vector<Piece> pieces = byte_pieces("这是个小镇。");
  const std::vector<TokenGroup> groups = group_by_segmentation(pieces, "这 是 个 小镇 。", Normalisation::none);
  EXPECT_EQ(texts(groups), (Texts{"这", "是", "个", "小镇", "。"}));
  EXPECT_EQ(groups[3].size(), 6);
  EXPECT_EQ(groups[3].first_word, 3);
  EXPECT_EQ(groups[3].end_word, 4);
}

TEST(Segmentation, WordsThatShareATokenAreOneGroup) {
  const Tokenizer& tokenizer = *shipped();
  const std::string text = "我们是朋友。";
  std::vector<std::int32_t> ids = tokenizer.encode(text);
  ids.push_back(tokenizer.specials().eos);
  const std::vector<Piece> pieces = pieces_of(tokenizer, ids);
  // The vocabulary has a token of two characters here; the segmentation cuts it.
  bool shared = false;
  for (const Piece& piece : pieces)
    shared = shared || piece.bytes == "我们" || piece.bytes == "朋友" || piece.bytes == " 我们";
  ASSERT_TRUE(shared);
  const std::vector<TokenGroup> groups = group_by_segmentation(pieces, "我 们 是 朋 友 。", tokenizer.normalisation());
  std::int64_t words = 0, most = 0;
  for (const TokenGroup& one : groups) {
    EXPECT_EQ(one.first_word, words);
    words = one.end_word;
    most = std::max(most, one.end_word - one.first_word);
  }
  EXPECT_EQ(words, 6);
  EXPECT_EQ(most, 2);
  EXPECT_EQ(groups.back().role, TokenRole::eos);
}

TEST(Segmentation, OfTheWholeCorpusByTokensComesBack) {
  const Tokenizer& tokenizer = *shipped();
  LineReader lines(root + "/data/tatoeba-zh-en/test.zh.gz");
  std::string line;
  Random random(7);
  for (int n = 0; n < 200 && lines.next(line); ++n) {
    const std::vector<Piece> pieces = pieces_of(tokenizer, tokenizer.encode(line), line);
    const std::vector<TokenGroup> by_character = group(pieces, GroupBy::character);
    std::string segmented;
    std::vector<std::int64_t> begins;
    for (const TokenGroup& one : by_character) {
      if (one.text == "\xE2\x90\xA3") continue;
      if (one.begin == 0 || random.below(2) == 0 || segmented.empty()) {
        segmented += segmented.empty() ? "" : "  ";
        begins.push_back(one.begin);
      }
      segmented += one.text;
    }
    const std::vector<TokenGroup> groups = group_by_segmentation(pieces, segmented, tokenizer.normalisation());
    if (line.find(' ') != std::string::npos) continue;  // a blank inside a token is a boundary of its own
    ASSERT_EQ(groups.size(), begins.size()) << segmented;
    for (std::size_t g = 1; g < groups.size(); ++g) ASSERT_EQ(groups[g].begin, begins[g]) << segmented;
  }
}

TEST(Segmentation, RefusesOtherText) {
  const std::vector<Piece> pieces = byte_pieces("这是个小镇。");
  const auto refused = [&](const char* line) {
    return message_of([&] { group_by_segmentation(pieces, line, Normalisation::none); }, ErrorKind::text);
  };
  const std::string other = refused("这 是 大 小镇 。");
  EXPECT_NE(other.find("word 3 is \"大\""), std::string::npos) << other;
  EXPECT_NE(other.find("个小镇"), std::string::npos) << other;
  EXPECT_NE(refused("这 是 个 小镇").find("ends after word 4"), std::string::npos);
  EXPECT_NE(refused("这 是 个 小镇 。 了").find("word 6"), std::string::npos);
  refused("");
}

TEST(Ranges, GroupTokens) {
  const std::vector<Piece> pieces = byte_pieces("abcdef");
  const std::vector<TokenRange> ranges{{4, 6}, {1, 3}};
  EXPECT_EQ(texts(group_by_ranges(pieces, ranges)), (Texts{"a", "bc", "d", "ef"}));
  const auto refused = [&](std::vector<TokenRange> bad) {
    return message_of([&] { group_by_ranges(pieces, bad); }, ErrorKind::argument);
  };
  EXPECT_NE(refused({{0, 3}, {2, 4}}).find("overlaps range 1 at token 2"), std::string::npos);
  EXPECT_NE(refused({{2, 2}}).find("empty"), std::string::npos);
  EXPECT_NE(refused({{5, 7}}).find("beyond the 6 tokens"), std::string::npos);
  EXPECT_NE(refused({{-1, 2}}).find("beyond"), std::string::npos);
}

// Random weights: rows still sum to 1, effects keep their total, and an edge list merges as its matrix.
TEST(Merge, KeepsSums) {
  Random random(3);
  const std::vector<Piece> target = byte_pieces("It's 这个 -- fine, isn't it?"), source = byte_pieces("这难道不好吗？");
  const std::size_t queries = target.size(), keys = source.size();
  std::vector<float> weights(queries * keys);
  std::vector<EdgeValue> edges;
  for (std::size_t q = 0; q < queries; ++q) {
    double sum = 0;
    for (std::size_t k = 0; k < keys; ++k) sum += weights[q * keys + k] = static_cast<float>(random.uniform());
    for (std::size_t k = 0; k < keys; ++k) {
      weights[q * keys + k] /= static_cast<float>(sum);
      edges.push_back({static_cast<std::int64_t>(q), static_cast<std::int64_t>(k), weights[q * keys + k]});
    }
  }
  for (const GroupBy by : {GroupBy::token, GroupBy::character, GroupBy::word, GroupBy::blank}) {
    const auto query_groups = group(target, by), key_groups = group(source, by);
    for (const Merge how : {Merge::weights, Merge::effects}) {
      const std::vector<float> merged = merge(weights, query_groups, key_groups, how);
      ASSERT_EQ(merged.size(), query_groups.size() * key_groups.size());
      double total = 0;
      for (std::size_t q = 0; q < query_groups.size(); ++q) {
        double row = 0;
        for (std::size_t k = 0; k < key_groups.size(); ++k) {
          double exact = 0;
          for (auto i = query_groups[q].begin; i < query_groups[q].end; ++i)
            for (auto j = key_groups[k].begin; j < key_groups[k].end; ++j)
              exact += static_cast<double>(weights[static_cast<std::size_t>(i) * keys + static_cast<std::size_t>(j)]);
          if (how == Merge::weights) exact /= static_cast<double>(query_groups[q].size());
          EXPECT_NEAR(merged[q * key_groups.size() + k], exact, 1e-6);
          row += static_cast<double>(merged[q * key_groups.size() + k]);
        }
        if (how == Merge::weights) {
          EXPECT_NEAR(row, 1, 1e-5);
        }
        total += row;
      }
      if (how == Merge::effects) {
        EXPECT_NEAR(total, static_cast<double>(queries), 1e-4);
      }
      const std::vector<EdgeValue> merged_edges = merge(edges, query_groups, key_groups, how);
      ASSERT_EQ(merged_edges.size(), merged.size());
      for (std::size_t i = 0; i < merged.size(); ++i) {
        EXPECT_EQ(merged_edges[i].query, static_cast<std::int64_t>(i / key_groups.size()));
        EXPECT_EQ(merged_edges[i].key, static_cast<std::int64_t>(i % key_groups.size()));
        EXPECT_EQ(merged_edges[i].value, merged[i]);
      }
    }
  }
}

TEST(Merge, RefusesWhatDoesNotFit) {
  const std::vector<TokenGroup> three = group(byte_pieces("abc"), GroupBy::token), gap{three[0], three[2]};
  const std::vector<float> nine(9, 0.0f);
  EXPECT_NO_THROW(merge(nine, three, three, Merge::weights));
  EXPECT_NE(message_of([&] { merge(nine, three, gap, Merge::weights); }, ErrorKind::shape).find("token 1 comes next"),
            std::string::npos);
  message_of([&] { merge(std::span(nine).first(8), three, three, Merge::weights); }, ErrorKind::shape);
  const std::vector<EdgeValue> outside{{0, 3, 1.0f}};
  message_of([&] { merge(outside, three, three, Merge::effects); }, ErrorKind::shape);
}

TEST(Names, ReadBack) {
  for (const GroupBy by : {GroupBy::token, GroupBy::character, GroupBy::word, GroupBy::blank})
    EXPECT_EQ(group_by_named(name_of(by)), by);
  message_of([] { group_by_named("letter"); }, ErrorKind::argument);
}

}  // namespace
}  // namespace attend
