#include <cmath>
#include <numbers>

#include "train/data.h"
#include "train_fixture.h"

namespace attend {
namespace {

const auto silent = [](std::string_view) {};

class TrainDataTest : public TrainTest {
 protected:
  TrainData read(const std::string& data, const std::string& tokenizer = "kind = \"character\"",
                 const std::string& more = "") {
    const bool encoder = data.find("translate") != std::string::npos;
    const Recipe made = recipe("[data]\n" + data + "\n[tokenizer]\n" + tokenizer + "\n[model]\n" +
                               (encoder ? "encoder_layers = 1\n" : "") +
                               "decoder_layers = 1\nwidth = 16\nheads = 2\ninner_width = 16\nmax_positions = 16\n" +
                               "[train]\nsteps = 1\nbatch_items = 2\nrate = 0.1\n" + more);
    return read_train_data(made, {}, nullptr, silent);
  }
};

TEST_F(TrainDataTest, BothDirectionsWithTags) {
  write_text(at("a.zh"), "我\n你好\n");
  write_text(at("a.en"), "I\nhi\n");
  const TrainData data = read(
      "task = \"translate\"\ntrain = [\"a.zh\", \"a.en\"]\nvalid = [\"a.zh\", \"a.en\"]\nlanguages = [\"zh\", \"en\"]\nboth = true");
  ASSERT_EQ(data.train.size(), 4u);
  const Tokenizer& tokenizer = *data.tokenizer;
  const std::int32_t eos = tokenizer.specials().eos;
  EXPECT_EQ(data.train[0].source, (std::vector<std::int32_t>{tokenizer.id("<2en>"), tokenizer.id("我"), eos}));
  EXPECT_EQ(data.train[0].target, (std::vector<std::int32_t>{tokenizer.id("I")}));
  EXPECT_EQ(data.train[3].source,
            (std::vector<std::int32_t>{tokenizer.id("<2zh>"), tokenizer.id("h"), tokenizer.id("i"), eos}));
  EXPECT_EQ(data.train[3].target, (std::vector<std::int32_t>{tokenizer.id("你"), tokenizer.id("好")}));
  EXPECT_EQ(data.task.target_tags.at("zh"), "<2zh>");
  EXPECT_EQ(data.task.languages, (std::vector<std::string>{"zh", "en"}));
  EXPECT_TRUE(tokenizer.is_control(tokenizer.id("<2en>")));
}

TEST_F(TrainDataTest, InOutLines) {
  write_text(at("scan.txt"), "IN: a b OUT: X Y\nIN: c OUT: Z\n");
  const TrainData data = read("task = \"translate\"\nformat = \"in_out\"\ntrain = \"scan.txt\"\nvalid = \"scan.txt\"");
  EXPECT_EQ(data.tokenizer->decode(data.train[0].target), "X Y");
  EXPECT_EQ(data.tokenizer->decode(data.train[1].source), "c");
  write_text(at("scan.txt"), "IN: a b OUT: X Y\nIN c OUT Z\n");
  const Error error = error_of(
      [&] { (void)read("task = \"translate\"\nformat = \"in_out\"\ntrain = \"scan.txt\"\nvalid = \"scan.txt\""); });
  EXPECT_EQ(error.kind(), ErrorKind::text);
  expect_in("scan.txt:2", error.what());
}

TEST_F(TrainDataTest, UnequalLineCountsNameBothFiles) {
  write_text(at("a.zh"), "一\n二\n三\n");
  write_text(at("a.en"), "one\ntwo\n");
  const Error error =
      error_of([&] { (void)read("task = \"translate\"\ntrain = [\"a.zh\", \"a.en\"]\nvalid_lines = 1"); });
  EXPECT_EQ(error.kind(), ErrorKind::text);
  expect_in("a.zh", error.what());
  expect_in("a.en", error.what());
  expect_in("3", error.what());
}

TEST_F(TrainDataTest, EmptyCorpus) {
  write_text(at("empty"), "");
  EXPECT_EQ(error_of([&] { (void)read("task = \"lines\"\ntrain = \"empty\"\nvalid_lines = 1"); }).kind(),
            ErrorKind::text);
  EXPECT_EQ(error_of([&] {
              (void)read("task = \"blocks\"\ntrain = \"empty\"\nvalid_share = 0.1\nblock = 4", "kind = \"byte\"",
                         "validate_every = 1");
            }).kind(),
            ErrorKind::text);
  EXPECT_EQ(error_of([&] { (void)read("task = \"lines\"\ntrain = \"missing\"\nvalid_lines = 1"); }).kind(),
            ErrorKind::file);
}

TEST_F(TrainDataTest, VocabularyLargerThanTheCorpusAllows) {
  write_text(at("a"), made_up_words(50, 3, 5, 1));
  const Error error = error_of([&] {
    (void)read("task = \"lines\"\ntrain = \"a\"\nvalid_lines = 5", "kind = \"sentencepiece\"\nvocabulary = 9000");
  });
  EXPECT_EQ(error.kind(), ErrorKind::text);
  expect_in("9000", error.what());
}

TEST_F(TrainDataTest, HeldOutLinesAreDrawnWithTheSeedAndLeaveTheRest) {
  write_text(at("a"), made_up_words(200, 5, 6, 2));
  const std::string text = "task = \"lines\"\ntrain = \"a\"\nvalid_lines = 20";
  const TrainData one = read(text), again = read(text), other = read(text, "kind = \"character\"", "seed = 9");
  EXPECT_EQ(one.valid.size(), 20u);
  EXPECT_EQ(one.train.size(), 180u);
  EXPECT_EQ(one.fingerprint(), again.fingerprint());
  EXPECT_NE(one.fingerprint(), other.fingerprint());
  std::vector<std::string> all;
  for (const auto* items : {&one.train, &one.valid})
    for (const SequenceItem& item : *items) all.push_back(one.tokenizer->decode(item.target) + "\n");
  std::sort(all.begin(), all.end());
  std::vector<std::string> lines;
  std::istringstream stream(read_file(at("a")));
  for (std::string line; std::getline(stream, line);) lines.push_back(line + "\n");
  std::sort(lines.begin(), lines.end());
  EXPECT_EQ(all, lines);
  expect_in("lower data.valid_lines",
            error_of([&] { (void)read("task = \"lines\"\ntrain = \"a\"\nvalid_lines = 200"); }).what());
}

TEST_F(TrainDataTest, LongItemsAreLeftOutAndCounted) {
  write_text(at("a"), "ab\nabcdefghijklmnopqrstuvwxyz\ncd\nabcdefghijklmno\nabcdefghijklmnop\n");
  write_text(at("b"), "ab\n");
  const TrainData data = read("task = \"lines\"\ntrain = \"a\"\nvalid = \"b\"");
  EXPECT_EQ(data.train.size(), 3u);  // 15 letters and the end fill 16 positions
  EXPECT_EQ(data.left_out, 2);
}

TEST_F(TrainDataTest, BlocksSplitAsNanoGpt) {
  write_text(at("a"), std::string(1115394, 'x'));
  const TrainData data = read("task = \"blocks\"\ntrain = \"a\"\nvalid_share = 0.1\nblock = 16",
                              "kind = \"character\"\nspecials = false", "validate_every = 1");
  EXPECT_EQ(data.train_text.size(), 1003854u);
  EXPECT_EQ(data.valid_text.size(), 111540u);
  EXPECT_EQ(data.tokenizer->size(), 1);
}

// ---- Images ----

std::string idx(std::uint8_t axes, const std::vector<std::uint32_t>& sizes, const std::string& values) {
  std::string bytes{'\0', '\0', '\x08', static_cast<char>(axes)};
  for (std::uint32_t size : sizes)
    for (int shift = 24; shift >= 0; shift -= 8) bytes += static_cast<char>((size >> shift) & 255);
  return bytes + values;
}

TEST_F(TrainDataTest, ImagesBecomePatches) {
  std::string pixels;
  for (int i = 0; i < 2 * 4 * 6; ++i) pixels += static_cast<char>(i);
  write_text(at("images"), idx(3, {2, 4, 6}, pixels));
  write_text(at("labels"), idx(1, {2}, std::string{'\1', '\0'}));
  const ImageSet set = read_images(at("images"), at("labels"));
  DataRecipe data;
  data.patch = 2;
  const Batch batch = image_batch(set, std::vector<std::int64_t>{1, 0}, data, true, 1, 1);
  EXPECT_EQ(batch.features.shape(), (Shape{12, 4}));
  EXPECT_EQ(batch.feature_offsets, (std::vector<std::int64_t>{0, 6, 12}));
  EXPECT_EQ(batch.labels, (std::vector<std::int32_t>{0, 1}));
  // The second image of the batch is image 0; its patch 4 (second row, second column) holds pixels 14, 15, 20, 21.
  const float* row = batch.features.row(6 + 4);
  EXPECT_FLOAT_EQ(row[0], 14 / 255.0f);
  EXPECT_FLOAT_EQ(row[1], 15 / 255.0f);
  EXPECT_FLOAT_EQ(row[2], 20 / 255.0f);
  EXPECT_FLOAT_EQ(row[3], 21 / 255.0f);
}

TEST_F(TrainDataTest, BrokenIdxFilesAreRefused) {
  write_text(at("labels"), idx(1, {2}, "\1\2"));
  write_text(at("images"), idx(3, {2, 2, 2}, "1234567"));
  expect_in("holds 7 values; its header promises 8",
            error_of([&] { (void)read_images(at("images"), at("labels")); }).what());
  write_text(at("images"), idx(3, {4000000000u, 4000000000u, 2}, "1234567"));
  EXPECT_EQ(error_of([&] { (void)read_images(at("images"), at("labels")); }).kind(), ErrorKind::format);
  write_text(at("images"), idx(3, {3, 1, 1}, "123"));
  expect_in("2 labels", error_of([&] { (void)read_images(at("images"), at("labels")); }).what());
  // More patches than the model has positions: told from the recipe, not by the model in the middle of a run.
  write_text(at("images"), idx(3, {2, 4, 4}, std::string(32, 'x')));
  write_text(at("labels"), idx(1, {2}, std::string(2, '\0')));
  const auto read_with = [&](const std::string& model) {
    const Recipe made = recipe(
        "[data]\ntask = \"images\"\ntrain = [\"images\", \"labels\"]\nvalid_lines = 1\npatch = 2\n"
        "[model]\nencoder_layers = 1\nwidth = 16\nheads = 2\ninner_width = 16\npositions = \"learned\"\n" +
        model + "\n[train]\nsteps = 1\nbatch_items = 1\nrate = 0.1\n");
    (void)read_train_data(made, {}, nullptr, silent);
  };
  expect_in("give at least 4", error_of([&] { read_with("pooling = \"mean\"\nmax_positions = 3"); }).what());
  expect_in("give at least 5",
            error_of([&] { read_with("pooling = \"class_token\"\nclass_token = true\nmax_positions = 4"); }).what());
  EXPECT_NO_THROW(read_with("pooling = \"mean\"\nmax_positions = 4"));
  write_text(at("images"), "hello");
  expect_in("is not an idx file", error_of([&] { (void)read_images(at("images"), at("labels")); }).what());
}

TEST(TrainImages, MovedAndTurned) {
  // 5 x 5 with one bright pixel right of the middle.
  std::vector<std::uint8_t> image(25);
  image[2 * 5 + 3] = 255;
  const auto moved = transformed(image, 5, 5, 0, 1, 2);
  EXPECT_NEAR(moved[4 * 5 + 4], 1, 1e-6);
  EXPECT_NEAR(moved[2 * 5 + 3], 0, 1e-6);
  // A quarter turn anticlockwise: right of the middle becomes above it.
  const auto turned = transformed(image, 5, 5, std::numbers::pi / 2, 0, 0);
  EXPECT_NEAR(turned[1 * 5 + 2], 1, 1e-6);
  // Half a pixel: shared by two.
  const auto half = transformed(image, 5, 5, 0, 0.5, 0);
  EXPECT_NEAR(half[2 * 5 + 3], 0.5, 1e-6);
  EXPECT_NEAR(half[2 * 5 + 4], 0.5, 1e-6);
}

TEST(TrainCurve, IsAPictureWithItsParts) {
  std::vector<CurvePoint> train, valid;
  for (int i = 1; i <= 1000; ++i) train.push_back({i * 10.0, 5.0 / std::sqrt(i) + 1});
  for (int i = 1; i <= 5; ++i) valid.push_back({i * 2000.0, 3.0 / i + 1});
  const std::string svg = loss_curve_svg("A < B & 中文", train, valid);
  expect_in("A &lt; B &amp; 中文", svg);
  expect_in("class=\"train\" points=", svg);
  expect_in("class=\"valid\" points=", svg);
  expect_in("prefers-color-scheme: dark", svg);
  expect_in(">step</text>", svg);
  expect_in("lowest 1.600 at 10000", svg);
  EXPECT_LT(svg.size(), 20000u);
  expect_in("</svg>", loss_curve_svg("", {}, {}));
  expect_in("</svg>", loss_curve_svg("one point", std::vector<CurvePoint>{{1, 2}}, {}));
}

}  // namespace
}  // namespace attend
