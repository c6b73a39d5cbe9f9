// The tokenizer of stories260K (karpathy/llama2.c, MIT): ids that the model generated there, and their text.
#include <gtest/gtest.h>

#include "attend/tokenizer.h"

namespace attend {
namespace {

TEST(Llama2cGolden, IdsAndTextOfStories260K) {
  const auto t = load_tokenizer(std::string(ATTEND_SOURCE_DIR) + "/tests/golden/stories260K/tok512.bin");
  EXPECT_EQ(t->size(), 512);
  const std::vector<std::int32_t> ids = {403, 407, 261, 378, 432, 383, 286, 261, 376, 298, 315, 421, 395, 317, 426,
                                         338, 401, 396, 267, 337, 410, 408, 419, 292, 411, 322, 265, 282, 295, 433,
                                         426, 385, 328, 432, 358, 394, 261, 370, 432, 352, 266, 268, 388, 426, 338,
                                         391, 266, 267, 337, 335, 312, 432, 398, 312, 286, 267, 414, 270, 333, 415};
  const std::string text =
      "Once upon a time, there was a little girl named Lily. She loved to play outside in the park. One day, she saw a "
      "big, red ball. She wanted to play with it, but it was too high";
  EXPECT_EQ(t->encode(text), ids);
  EXPECT_EQ(t->decode(ids), text);
  std::vector<std::int32_t> with_bos = ids;
  with_bos.insert(with_bos.begin(), t->specials().bos);
  EXPECT_EQ(t->decode(with_bos), text);
}

}  // namespace
}  // namespace attend
