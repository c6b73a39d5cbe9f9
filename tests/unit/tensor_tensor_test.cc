// Tensors, views, and what operations say about wrong shapes.
#include <gtest/gtest.h>

#include <limits>
#include <numeric>

#include "attend/ops.h"

namespace attend {
namespace {

Tensor counting(Shape shape) {
  std::vector<float> values(static_cast<std::size_t>(shape.elements()));
  std::iota(values.begin(), values.end(), 0.0f);
  return Tensor::from(shape, values);
}

// Runs `action` and returns the error it throws.
template <typename Action>
Error error_of(Action action) {
  try {
    action();
  } catch (const Error& error) {
    return error;
  }
  return Error(ErrorKind::argument, "nothing", "was thrown");
}

void expect_error(const Error& error, ErrorKind kind, std::initializer_list<const char*> parts) {
  EXPECT_EQ(error.kind(), kind) << error.what();
  for (const char* part : parts)
    EXPECT_NE(std::string(error.what()).find(part), std::string::npos) << error.what() << " lacks " << part;
}

TEST(Tensor, SizesAndRows) {
  const Tensor x = counting({2, 3, 4});
  EXPECT_EQ(x.rows(), 6);
  EXPECT_EQ(x.width(), 4);
  EXPECT_EQ(x.row_stride(), 4);
  EXPECT_TRUE(x.contiguous());
  EXPECT_EQ(x.at(5, 3), 23);
  EXPECT_FALSE(Tensor().defined());
  EXPECT_EQ(Tensor().storage_number(), 0u);
  EXPECT_EQ(Tensor::empty({0, 4}).elements(), 0);
  EXPECT_EQ(Tensor::filled({1}, 2.5f).item(), 2.5f);
  EXPECT_EQ(Tensor::zeros({3, 1}).to_vector(), std::vector<float>(3, 0.0f));
}

TEST(Tensor, ColumnsAreAViewOfTheSameStorage) {
  Tensor x = counting({3, 5});
  Tensor view = x.columns(1, 2);
  EXPECT_EQ(view.to_vector(), (std::vector<float>{1, 2, 6, 7, 11, 12}));
  EXPECT_FALSE(view.contiguous());
  EXPECT_EQ(view.row_stride(), 5);
  EXPECT_EQ(view.storage_number(), x.storage_number());
  EXPECT_FALSE(view.covers_storage());
  EXPECT_TRUE(x.covers_storage());
  view.row(2)[1] = -1;
  EXPECT_EQ(x.at(2, 2), -1);
  EXPECT_EQ(view.columns(1, 1).row_range(1, 2).to_vector(), (std::vector<float>{7, -1}));
}

TEST(Tensor, CloneHasAStorageOfItsOwn) {
  const Tensor x = counting({3, 5});
  Tensor copy = x.columns(3, 2).clone();
  EXPECT_TRUE(copy.contiguous());
  EXPECT_NE(copy.storage_number(), x.storage_number());
  EXPECT_EQ(copy.to_vector(), (std::vector<float>{3, 4, 8, 9, 13, 14}));
}

TEST(Tensor, Reshaped) {
  const Tensor x = counting({3, 4});
  const Tensor y = x.row_range(1, 2).reshaped({2, 2, 2});
  EXPECT_EQ(y.at(3, 1), 11);
  EXPECT_EQ(y.storage_number(), x.storage_number());
}

TEST(Tensor, MirroredInFindsTheSamePlace) {
  const Tensor x = counting({3, 5});
  Tensor other = Tensor::zeros({15});
  Tensor mirror = x.columns(1, 2).row_range(1, 2).mirrored_in(other);
  mirror.row(0)[0] = 1;
  mirror.row(1)[1] = 2;
  EXPECT_EQ(other.at(0, 6), 1);
  EXPECT_EQ(other.at(0, 12), 2);
  // A place has no numbers but finds them.
  const Tensor place = x.columns(1, 2).place();
  EXPECT_EQ(place.data(), nullptr);
  EXPECT_EQ(place.storage_number(), x.storage_number());
  EXPECT_EQ(place.mirrored_in(x).to_vector(), x.columns(1, 2).to_vector());
  EXPECT_EQ(x.columns(1, 2).whole_storage().shape(), (Shape{1, 15}));
}

TEST(Tensor, StorageNumbersNeverComeBack) {
  std::uint64_t last = 0;
  for (int i = 0; i < 10; ++i) {
    const Tensor x = Tensor::empty({8});
    EXPECT_GT(x.storage_number(), last);
    last = x.storage_number();
  }
}

TEST(Tensor, Errors) {
  const Tensor x = counting({3, 5});
  expect_error(error_of([&] {
                 Tensor::from({2, 2}, std::vector<float>(3));
               }),
               ErrorKind::shape, {"3 values", "[2, 2]", "4"});
  expect_error(error_of([&] { x.columns(4, 2); }), ErrorKind::shape, {"2 columns from 4", "[3, 5]"});
  expect_error(error_of([&] { x.columns(-1, 2); }), ErrorKind::shape, {"columns from -1"});
  expect_error(error_of([&] { x.row_range(2, 2); }), ErrorKind::shape, {"2 rows from 2", "[3, 5]"});
  expect_error(error_of([&] { x.row_range(std::numeric_limits<std::int64_t>::max(), 2); }), ErrorKind::shape,
               {"[3, 5]"});
  expect_error(error_of([&] { x.reshaped({4, 4}); }), ErrorKind::shape, {"[3, 5]", "[4, 4]"});
  expect_error(error_of([&] { x.columns(0, 2).reshaped({6}); }), ErrorKind::shape, {"5 floats apart", "clone()"});
  expect_error(error_of([&] { x.item(); }), ErrorKind::shape, {"[3, 5]", "one element"});
  expect_error(error_of([&] { Tensor().item(); }), ErrorKind::shape, {"undefined"});
  expect_error(error_of([&] { x.mirrored_in(counting({4})); }), ErrorKind::shape, {"15", "4"});
}

TEST(OperationErrors, NameOperationFoundAndExpected) {
  const Tensor x = counting({5, 7});
  const Weight weight(counting({16, 8}));
  expect_error(error_of([&] { linear(x, weight); }), ErrorKind::shape, {"linear", "[5, 7]", "[16, 8]", "8 columns"});
  expect_error(error_of([&] {
                 linear(counting({5, 8}), weight, counting({8}));
               }),
               ErrorKind::shape, {"bias is [8]", "[16]"});
  expect_error(error_of([&] { linear(x, Weight()); }), ErrorKind::argument, {"Weight", "undefined"});
  expect_error(error_of([&] { Weight(counting({4})); }), ErrorKind::shape, {"Weight", "[4]", "two axes"});
  expect_error(error_of([&] { matrix_product(x, x); }), ErrorKind::shape, {"matrix_product", "[5, 7]", "[7, n]"});
  expect_error(error_of([&] {
                 add(x, counting({7, 5}));
               }),
               ErrorKind::shape, {"add", "a is [5, 7]", "b is [7, 5]", "same shape"});
  expect_error(error_of([&] { add(x, {}); }), ErrorKind::shape, {"b is undefined"});
  expect_error(error_of([&] { add_row(x, counting({5})); }), ErrorKind::shape, {"add_row", "row is [5]", "[7]"});
  expect_error(error_of([&] { gate(x, counting({5, 6}), Activation::silu); }), ErrorKind::shape, {"gate", "[5, 6]"});
  expect_error(error_of([&] { layer_norm(x, counting({6}), {}, 1e-5f); }), ErrorKind::shape,
               {"layer_norm", "gain is [6]"});
  expect_error(error_of([&] {
                 embed(x, std::vector<std::int32_t>{0, 5});
               }),
               ErrorKind::argument, {"row 1", "id 5", "0 to 4"});
  expect_error(error_of([&] { embed(x, std::vector<std::int32_t>{-1}); }), ErrorKind::argument, {"id -1"});
  expect_error(error_of([&] { select_rows(x, std::vector<std::int64_t>{5}); }), ErrorKind::argument,
               {"entry 0", "row 5"});
  expect_error(error_of([&] { join_rows(x, counting({5, 6})); }), ErrorKind::shape, {"join_rows", "same width"});
  expect_error(error_of([&] { join_columns(x, counting({4, 7})); }), ErrorKind::shape, {"join_columns", "same rows"});
  expect_error(error_of([&] {
                 mean_rows(x, std::vector<std::int64_t>{0, 6});
               }),
               ErrorKind::argument, {"mean_rows", "[5, 7]"});
  expect_error(error_of([&] { mean_rows(x, std::vector<std::int64_t>{0, 3, 2}); }), ErrorKind::argument, {"ascending"});
  expect_error(error_of([&] { dropout(x, 1, 0); }), ErrorKind::argument, {"dropout", "probability 1"});
  expect_error(error_of([&] { cross_entropy(x, std::vector<std::int32_t>(4)); }), ErrorKind::shape,
               {"4 labels for 5 rows"});
  expect_error(error_of([&] {
                 cross_entropy(x, std::vector<std::int32_t>{0, 1, 7, 0, 0});
               }),
               ErrorKind::argument, {"row 2", "label 7", "0 to 6"});
  expect_error(error_of([&] { rotation_table(4, 3, 10000); }), ErrorKind::argument, {"rotary_dim 3"});
  const Tensor table = rotation_table(4, 2, 10000);
  const std::vector<std::int32_t> positions{0, 1, 2, 3, 4};
  expect_error(error_of([&] {
                 rotate_heads(counting({5, 8}), 2, 2, Pairing::halves, table, positions);
               }),
               ErrorKind::argument, {"row 4", "position 4", "0 to 3"});
  expect_error(error_of([&] {
                 rotate_heads(counting({5, 8}), 3, 2, Pairing::halves, table, positions);
               }),
               ErrorKind::shape, {"3 heads"});
}

TEST(OperationErrors, Attention) {
  AttentionInput input;
  input.query_heads = 8;
  input.key_heads = 2;
  input.items = {{.queries = 3, .keys = 3}};
  const Tensor q = counting({3, 32}), kv = counting({3, 8});
  expect_error(error_of([&] {
                 attention(counting({3, 30}), kv, kv, input);
               }),
               ErrorKind::shape, {"attention", "query is [3, 30]", "8 heads"});
  expect_error(error_of([&] {
                 attention(q, counting({3, 12}), kv, input);
               }),
               ErrorKind::shape, {"key is [3, 12]", "2 heads"});
  expect_error(error_of([&] {
                 attention(q, kv, counting({4, 8}), input);
               }),
               ErrorKind::shape, {"key is [3, 8]", "value is [4, 8]"});
  input.items[0].keys = 4;
  expect_error(error_of([&] { attention(q, kv, kv, input); }), ErrorKind::argument,
               {"item 0", "4 key rows from 0", "[3, 8]"});
  input.items[0].keys = 3;
  input.sinks = counting({2});
  expect_error(error_of([&] { attention(q, kv, kv, input); }), ErrorKind::shape, {"sinks is [2]", "[8]"});
  input.sinks = {};
  input.relative_table = counting({2, 8});
  input.relative_buckets = std::make_shared<const std::vector<std::int32_t>>(std::vector<std::int32_t>{0, 2});
  expect_error(error_of([&] { attention(q, kv, kv, input); }), ErrorKind::argument, {"bucket 2", "[2, 8]"});
}

TEST(Weight, FollowsItsValueAfterChanged) {
  Tensor value = Tensor::filled({2, 3}, 1);
  Weight weight(value);
  const Weight copy = weight;
  const Tensor x = Tensor::filled({1, 3}, 1);
  EXPECT_EQ(linear(x, copy).to_vector(), (std::vector<float>{3, 3}));
  value.row(1)[0] = 5;
  weight.changed();
  EXPECT_EQ(linear(x, copy).to_vector(), (std::vector<float>{3, 7}));
}

}  // namespace
}  // namespace attend
