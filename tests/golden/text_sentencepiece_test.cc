// The ids of the SentencePiece library itself, for two models that others can load too.
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "attend/corpus.h"
#include "attend/tokenizer.h"

namespace attend {
namespace {

class SentencePieceGolden : public testing::TestWithParam<const char*> {};

TEST_P(SentencePieceGolden, IdsPiecesAndTexts) {
  const std::string path = std::string(ATTEND_SOURCE_DIR) + "/tests/golden/sentencepiece/" + GetParam();
  const auto t = load_tokenizer(path + ".model");
  const auto cases = nlohmann::json::parse(read_text(path + ".golden.json").text);
  ASSERT_EQ(cases.size(), 30u);
  for (const auto& one : cases) {
    const auto text = one["text"].get<std::string>();
    const auto ids = one["ids"].get<std::vector<std::int32_t>>();
    EXPECT_EQ(t->encode(text), ids) << text;
    EXPECT_EQ(t->decode(ids), one["decoded"].get<std::string>()) << text;
    std::int64_t at = 0;
    for (const TokenSpan& span : t->encode_spans(text)) {
      EXPECT_GE(span.begin, at);
      EXPECT_GE(span.end, span.begin);
      at = span.end;
    }
    EXPECT_LE(at, static_cast<std::int64_t>(text.size()));
    StreamDecoder stream(*t);
    std::string streamed;
    for (const std::int32_t id : ids) streamed += stream.push(id);
    EXPECT_EQ(streamed + stream.finish(), one["decoded"].get<std::string>()) << text;
  }
}

INSTANTIATE_TEST_SUITE_P(Models, SentencePieceGolden, testing::Values("unigram-en", "zh-en-unigram-6000"),
                         [](const auto& model) {
                           std::string name = model.param;
                           for (char& c : name) c = c == '-' ? '_' : c;
                           return name;
                         });

}  // namespace
}  // namespace attend
