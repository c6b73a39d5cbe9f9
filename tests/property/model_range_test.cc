// Runs that go on from recorded states give what the whole run gives, for every family and from every block on.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <functional>

#include "attend/model.h"
#include "reference/random_models.h"

namespace attend {
namespace {

using reference::all_families;
using reference::NamedConfig;

class Range : public testing::TestWithParam<NamedConfig> {
 protected:
  Range() : model(GetParam().config, 7) { reference::randomise(model, 11); }

  const TransformerConfig& config() const { return model.config(); }
  TokenBatch source() const { return reference::random_tokens({5, 1, 9}, config().encoder->vocabulary, 1); }
  TokenBatch target() const { return reference::random_tokens({4, 7, 1}, config().decoder->vocabulary, 2); }

  Model model;
};

Site block_site(StackKind stack, int layer, Point point) { return {stack, layer, Part::block, point}; }

std::vector<Site> kept_sites(const Model& model, StackKind stack, std::int64_t layers) {
  std::vector<Site> sites;
  for (const Site& site : model.sites())
    if (site.stack == stack && site.layer < layers &&
        (site.point == Point::input || site.point == Point::added || site.point == Point::output))
      sites.push_back(site);
  return sites;
}

void expect_near(const Tensor& found, const Tensor& expected, float tolerance, const std::string& what) {
  ASSERT_EQ(found.shape(), expected.shape()) << what;
  const std::vector<float> a = found.to_vector(), b = expected.to_vector();
  float largest = 1;
  for (const float value : b) largest = std::max(largest, std::fabs(value));
  for (std::size_t i = 0; i < a.size(); ++i) ASSERT_NEAR(a[i], b[i], tolerance * largest) << what << ", element " << i;
}

Tensor rows_of(const Tensor& x, const std::vector<std::int64_t>& rows) { return select_rows(x, rows); }

std::vector<std::int64_t> last_rows(const std::vector<std::int64_t>& offsets, std::int64_t count) {
  std::vector<std::int64_t> rows;
  for (std::size_t item = 0; item + 1 < offsets.size(); ++item)
    for (std::int64_t row = std::max(offsets[item], offsets[item + 1] - count); row < offsets[item + 1]; ++row)
      rows.push_back(row);
  return rows;
}

TEST_P(Range, EncoderGoesOnFromEveryBlock) {
  if (!config().encoder) return;
  const auto layers = static_cast<int>(config().encoder->layers);
  Recorder recorder(kept_sites(model, StackKind::encoder, layers));
  RunOptions options;
  options.probe = &recorder;
  const States whole = model.encode(source(), options);
  for (int layer = 0; layer < layers; ++layer) {
    const States input{recorder.value(block_site(StackKind::encoder, layer, Point::input)), whole.offsets};
    const Tensor& output = recorder.value(block_site(StackKind::encoder, layer, Point::output));
    EXPECT_EQ(model.encode_from(input, {.first_layer = layer}).rows.to_vector(), whole.rows.to_vector());
    EXPECT_EQ(model.encode_from(input, {.first_layer = layer, .end_layer = layer + 1}).rows.to_vector(),
              output.to_vector());
    const States middle{recorder.value({StackKind::encoder, layer, Part::self, Point::added}), whole.offsets};
    EXPECT_EQ(model.encode_from(middle, {.first_layer = layer, .first_part = Part::feed_forward}).rows.to_vector(),
              whole.rows.to_vector());
    const States few = model.encode_from(input, {.first_layer = layer, .last_rows = 2});
    EXPECT_EQ(few.offsets, (std::vector<std::int64_t>{0, 2, 3, 5}));
    expect_near(few.rows, rows_of(whole.rows, last_rows(whole.offsets, 2)), 2e-5f, "last rows");
    // Queries of the last item, in any order and again.
    const States one{input.rows.row_range(whole.offsets[2], 9), {0, 9}};
    const std::vector<std::int64_t> queries{3, 8, 0, 3};
    const States asked = model.encode_from(one, {.first_layer = layer, .end_layer = layer + 1, .queries = queries});
    EXPECT_EQ(asked.items(), 4);
    expect_near(asked.rows, rows_of(output.row_range(whole.offsets[2], 9), queries), 2e-5f, "queries");
  }
  EXPECT_EQ(model
                .encode_from({recorder.value(block_site(StackKind::encoder, layers - 1, Point::output)), whole.offsets},
                             {.first_layer = layers})
                .rows.to_vector(),
            whole.rows.to_vector());
}

// Rows of another run bring their projections along; only what differs is projected again.
TEST_P(Range, OnlyChangedRowsAreProjected) {
  const StackKind stack = config().encoder ? StackKind::encoder : StackKind::decoder;
  const TokenBatch tokens = config().encoder ? source() : target();
  std::vector<Site> sites{block_site(stack, 1, Point::input)};
  for (const Point point : {Point::query, Point::key, Point::value}) sites.push_back({stack, 1, Part::self, point});
  Recorder recorder(sites);
  RunOptions options;
  options.probe = &recorder;
  if (config().encoder) model.encode(tokens, options);
  else model.decode(tokens, nullptr, options);
  States rows{recorder.value(sites[0]), tokens.offsets};
  StackRange range{.first_layer = 1};
  const auto run = [&] {
    return config().encoder ? model.encode_from(rows, range) : model.decode_from(rows, nullptr, range);
  };
  const std::vector<std::int64_t> changed{2, 4};
  for (const std::int64_t row : changed)
    for (std::int64_t column = 0; column < rows.rows.width(); ++column)
      rows.rows.row(row)[column] *= -1.5f + 0.1f * static_cast<float>(column);
  const std::vector<float> expected = run().rows.to_vector();
  range.projected =
      join_columns(join_columns(recorder.value(sites[1]), recorder.value(sites[2])), recorder.value(sites[3]));
  range.changed = changed;
  for (const std::int64_t row : changed) std::fill_n(range.projected.row(row), range.projected.width(), std::nanf(""));
  EXPECT_EQ(run().rows.to_vector(), expected);
}

TEST_P(Range, DecoderGoesOnFromEveryBlock) {
  if (!config().decoder) return;
  const auto layers = static_cast<int>(config().decoder->layers);
  States memory, last_memory;
  if (config().encoder) {
    memory = model.encode(source());
    last_memory = {memory.rows.row_range(memory.offsets[1], 1), {0, 1}};
  }
  const States* read = config().encoder ? &memory : nullptr;
  std::vector<Site> sites = kept_sites(model, StackKind::decoder, layers);
  for (int layer = 0; layer < layers && config().encoder; ++layer)
    sites.push_back({StackKind::decoder, layer, Part::cross, Point::query});
  Recorder recorder(sites);
  RunOptions options;
  options.probe = &recorder;
  const States whole = model.decode(target(), read, options);
  for (int layer = 0; layer < layers; ++layer) {
    const States input{recorder.value(block_site(StackKind::decoder, layer, Point::input)), whole.offsets};
    const Tensor& output = recorder.value(block_site(StackKind::decoder, layer, Point::output));
    EXPECT_EQ(model.decode_from(input, read, {.first_layer = layer}).rows.to_vector(), whole.rows.to_vector());
    EXPECT_EQ(model.decode_from(input, read, {.first_layer = layer, .end_layer = layer + 1}).rows.to_vector(),
              output.to_vector());
    if (config().encoder) {
      const States middle{recorder.value({StackKind::decoder, layer, Part::self, Point::added}), whole.offsets};
      StackRange cross{.first_layer = layer, .first_part = Part::cross};
      EXPECT_EQ(model.decode_from(middle, read, cross).rows.to_vector(), whole.rows.to_vector());
      // Queries of the cross-attention come along; only the second row's is made again.
      const std::int64_t changed[] = {1};
      cross.projected = recorder.value({StackKind::decoder, layer, Part::cross, Point::query}).clone();
      std::fill_n(cross.projected.row(1), cross.projected.width(), std::nanf(""));
      cross.changed = changed;
      EXPECT_EQ(model.decode_from(middle, read, cross).rows.to_vector(), whole.rows.to_vector());
      // What has no cross-attention left needs no memory.
      const States after{recorder.value({StackKind::decoder, layer, Part::cross, Point::added}), whole.offsets};
      const StackRange rest{.first_layer = layer, .first_part = Part::feed_forward, .end_layer = layer + 1};
      EXPECT_EQ(model.decode_from(after, nullptr, rest).rows.to_vector(), output.to_vector());
      EXPECT_THROW(model.decode_from(middle, nullptr, {.first_layer = layer, .first_part = Part::cross}), Error);
    }
    const States few = model.decode_from(input, read, {.first_layer = layer, .last_rows = 3});
    EXPECT_EQ(few.offsets, (std::vector<std::int64_t>{0, 3, 6, 7}));
    expect_near(few.rows, rows_of(whole.rows, last_rows(whole.offsets, 3)), 2e-5f, "last rows");
    // Queries of the item in the middle, which is 7 rows.
    const States one{input.rows.row_range(whole.offsets[1], 7), {0, 7}};
    const std::vector<std::int64_t> queries{6, 0, 2, 2};
    const StackRange block{.first_layer = layer, .end_layer = layer + 1, .queries = queries};
    const States asked = model.decode_from(one, read ? &last_memory : nullptr, block);
    expect_near(asked.rows, rows_of(output.row_range(whole.offsets[1], 7), queries), 2e-5f, "queries");
    // An edit finds its query by the item: only the last of the four is changed.
    ScoreEditor editor;
    editor.add(StackKind::decoder, layer, Part::self, {.kind = ScoreEdit::Kind::forbid, .item = 3, .key = 1});
    RunOptions edited;
    edited.probe = &editor;
    const Tensor changed = model.decode_from(one, read ? &last_memory : nullptr, block, edited).rows;
    expect_near(changed.row_range(0, 3), asked.rows.row_range(0, 3), 2e-5f, "queries without edit");
    EXPECT_NE(changed.row_range(3, 1).to_vector(), asked.rows.row_range(3, 1).to_vector());
  }
}

TEST_P(Range, CachesLendWhatStandsBefore) {
  if (!config().decoder) return;
  const auto layers = static_cast<int>(config().decoder->layers);
  TokenBatch tokens;
  tokens.append(reference::random_tokens({8}, config().decoder->vocabulary, 3).ids);
  States memory;
  std::shared_ptr<const CrossMemory> shared;
  if (config().encoder) {
    TokenBatch sources;
    sources.append(reference::random_tokens({6}, config().encoder->vocabulary, 4).ids);
    memory = model.encode(sources);
    shared = model.share_memory(memory);
  }
  KvCache cache = shared ? KvCache(model, shared, 0) : KvCache(model);
  Recorder recorder(kept_sites(model, StackKind::decoder, layers));
  RunOptions options;
  options.probe = &recorder;
  KvCache* grown[] = {&cache};
  const Tensor whole = model.decode_cached(tokens, grown, options).rows;
  for (int layer = 0; layer < layers; ++layer) {
    const Tensor& input = recorder.value(block_site(StackKind::decoder, layer, Point::input));
    KvCache third = cache, first = cache;
    third.truncate(3);
    first.truncate(0);
    KvCache* forks[] = {&third, &first};
    const States rows{join_rows(input.row_range(3, 5), input), {0, 5, 13}};
    const States found = model.decode_cached_from(rows, forks, {.first_layer = layer});
    expect_near(found.rows, join_rows(whole.row_range(3, 5), whole), 2e-5f, "rows after caches");
    EXPECT_EQ(third.length(), 3);
    EXPECT_EQ(first.length(), 0);
    const States last = model.decode_cached_from(rows, forks, {.first_layer = layer, .last_rows = 1});
    expect_near(last.rows, join_rows(whole.row_range(7, 1), whole.row_range(7, 1)), 2e-5f, "last rows after caches");
  }
  KvCache again = cache;
  again.truncate(7);
  KvCache* one[] = {&again};
  TokenBatch end;
  end.append(std::span(tokens.ids).last(1));
  expect_near(model.decode_cached(end, one).rows, whole.row_range(7, 1), 2e-5f, "the cache itself is as it was");
}

INSTANTIATE_TEST_SUITE_P(All, Range, testing::ValuesIn(all_families()), [](const auto& family) {
  std::string name = family.param.name.substr(0, family.param.name.find_first_of(":,"));
  std::replace_if(
      name.begin(), name.end(), [](char c) { return !std::isalnum(static_cast<unsigned char>(c)); }, '_');
  return name;
});

void expect_error(const std::function<void()>& action, const std::vector<std::string>& parts) {
  try {
    action();
    ADD_FAILURE() << "nothing was thrown";
  } catch (const Error& error) {
    for (const std::string& part : parts)
      EXPECT_NE(std::string(error.what()).find(part), std::string::npos) << error.what() << "\nlacks: " << part;
  }
}

TEST(Ranges, NameWhatExists) {
  TransformerConfig config = reference::small_config();
  config.encoder = StackConfig{.layers = 2, .vocabulary = 19};
  const Model model(config, 3);
  const States rows{Tensor::zeros({4, 16}), {0, 4}};
  expect_error([&] { model.encode_from(rows, {.first_layer = 3}); },
               {"encode_from", "first_layer is 3", "layers 0 to 1"});
  expect_error([&] { model.encode_from(rows, {.first_layer = 1, .end_layer = 0}); }, {"end_layer is 0", "up to 2"});
  expect_error([&] { model.encode_from(rows, {.first_part = Part::cross}); }, {"self or feed_forward"});
  expect_error([&] { model.encode_from({Tensor::zeros({4, 8}), {0, 4}}, {}); }, {"[4, 8]", "width is 16"});
  const std::vector<std::int64_t> beyond{1, 4};
  expect_error([&] { model.encode_from(rows, {.end_layer = 1, .queries = beyond}); }, {"query 4", "0 to 3"});
  expect_error([&] { model.encode_from(rows, {.queries = beyond}); },
               {"one sequence, one whole block", "first_layer + 1"});
  expect_error([&] { model.decode_from(rows, nullptr, {}); }, {"no decoder"});
  StackRange projected;
  projected.projected = Tensor::zeros({4, 16});
  expect_error([&] { model.encode_from(rows, projected); }, {"projected is [4, 16]", "must be [4, 48]"});
  projected.projected = Tensor::zeros({4, 48});
  projected.changed = beyond;
  expect_error([&] { model.encode_from(rows, projected); }, {"row 4 is changed", "0 to 3"});
  ScoreEditor editor;
  RunOptions options;
  options.probe = &editor;
  projected.changed = {};
  expect_error([&] { model.encode_from(rows, projected, options); }, {"with a probe"});
}

}  // namespace
}  // namespace attend
