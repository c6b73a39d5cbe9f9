// Foreign checkpoints through tables.
#include "attend/safetensors.h"
#include "unit/load_models.h"

namespace attend {
namespace {

class ImportTest : public FolderTest {
 protected:
  // A decoder of one layer, width 4, taken from a file that keeps query, key and value apart, one matrix transposed,
  // and two matrices inside one.
  ImportTest() {
    std::int64_t next = 0;
    const auto numbers = [&](const std::string& name, Shape shape) {
      Tensor value = Tensor::zeros(shape);
      for (std::int64_t i = 0; i < value.elements(); ++i) value.data()[i] = static_cast<float>(++next);
      tensors_[name] = value;
    };
    numbers("wte", {5, 4});
    numbers("h.0.q", {4, 4});
    numbers("h.0.k", {4, 4});
    numbers("h.0.v", {4, 4});
    numbers("h.0.o", {4, 4});
    numbers("h.0.ln1", {1, 1, 4});
    numbers("h.0.ln2", {4});
    numbers("h.0.gate_and_up", {12, 4});
    numbers("h.0.down", {6, 4});  // transposed
    numbers("ln_f", {4});
    numbers("rotary.inv_freq", {2});
  }

  const std::string table_ = R"({
    "note": "for people",
    "config": {"decoder": {"layers": 1, "vocabulary": 5, "causal": true}, "width": 4, "heads": 2, "inner_width": 6, "norm": "rms",
      "norm_bias": false, "activation": "silu", "gated": true, "query_key_value_bias": false, "attention_output_bias": false,
      "feed_forward_bias": false, "positions": "rotary", "tied_logits": true},
    "ignore": ["rotary.*"],
    "parameters": {
      "decoder.embedding.weight": "wte",
      "decoder.{layer}.self.norm.gain": "h.{layer}.ln1",
      "decoder.{layer}.self.query_key_value.weight": ["h.{layer}.q", "h.{layer}.k", "h.{layer}.v"],
      "decoder.{layer}.self.output.weight": "h.{layer}.o",
      "decoder.{layer}.feed_forward.norm.gain": "h.{layer}.ln2",
      "decoder.{layer}.feed_forward.gate.weight": {"from": "h.{layer}.gate_and_up", "rows": [0, 6]},
      "decoder.{layer}.feed_forward.inner.weight": {"from": "h.{layer}.gate_and_up", "rows": [6, 12]},
      "decoder.{layer}.feed_forward.output.weight": {"from": "h.{layer}.down", "transpose": true},
      "decoder.norm.gain": "ln_f"
    }
  })";

  std::string changed(const std::string& from, const std::string& to) const {
    std::string text = table_;
    const std::size_t at = text.find(from);
    EXPECT_NE(at, std::string::npos) << from;
    return text.replace(at, from.size(), to);
  }

  Model load(const std::string& table) const {
    std::vector<NamedTensor> list;
    for (const auto& [name, value] : tensors_) list.push_back({name, value});
    write_safetensors(folder_ / "theirs.safetensors", list);
    return import_model(folder_ / "theirs.safetensors", table, "their table");
  }

  std::map<std::string, Tensor> tensors_;
};

TEST_F(ImportTest, StacksSlicesAndTransposes) {
  Model model = load(table_);
  const auto value = [&](const std::string& name) { return model.parameter(name).value.to_vector(); };
  EXPECT_EQ(value("decoder.embedding.weight"), tensors_["wte"].to_vector());
  std::vector<float> stacked;
  for (const char* name : {"h.0.q", "h.0.k", "h.0.v"}) {
    const auto part = tensors_[name].to_vector();
    stacked.insert(stacked.end(), part.begin(), part.end());
  }
  EXPECT_EQ(value("decoder.0.self.query_key_value.weight"), stacked);
  EXPECT_EQ(value("decoder.0.self.norm.gain"), tensors_["h.0.ln1"].to_vector());
  const std::vector<float> both = tensors_["h.0.gate_and_up"].to_vector();
  EXPECT_EQ(value("decoder.0.feed_forward.gate.weight"), std::vector<float>(both.begin(), both.begin() + 24));
  EXPECT_EQ(value("decoder.0.feed_forward.inner.weight"), std::vector<float>(both.begin() + 24, both.end()));
  const Tensor& down = model.parameter("decoder.0.feed_forward.output.weight").value;
  ASSERT_EQ(down.shape(), (Shape{4, 6}));
  for (std::int64_t r = 0; r < 4; ++r)
    for (std::int64_t c = 0; c < 6; ++c) EXPECT_EQ(down.at(r, c), tensors_["h.0.down"].at(c, r));
}

TEST_F(ImportTest, ARowWithItsLayerGoesBeforeTheOneForAll) {
  tensors_["special"] = tensors_["h.0.ln2"];
  tensors_.erase("h.0.ln2");
  Model model =
      load(changed("\"h.{layer}.ln2\",", "\"h.{layer}.ln2\", \"decoder.0.feed_forward.norm.gain\": \"special\",")
               .replace(0, 0, ""));
  EXPECT_EQ(model.parameter("decoder.0.feed_forward.norm.gain").value.to_vector(), tensors_["special"].to_vector());
}

TEST_F(ImportTest, RefusesTablesThatDoNotFit) {
  struct Case {
    std::string table;
    ErrorKind kind;
    std::vector<std::string> parts;
  };
  const std::vector<Case> cases{
      {"{", ErrorKind::format, {"their table", "not JSON"}},
      {"[]", ErrorKind::config, {"their table", "an object"}},
      {"{}", ErrorKind::config, {"\"config\""}},
      {changed("\"note\"", "\"nota\""), ErrorKind::config, {"unknown key \"nota\"", "did you mean \"note\"?"}},
      {changed("\"gated\"", "\"gatted\""), ErrorKind::config, {"their table: config", "\"gatted\"", "\"gated\""}},
      {changed("\"heads\": 2", "\"heads\": 3"), ErrorKind::config, {"their table: config: heads"}},
      {changed("\"transpose\": true", "\"transpose\": 1"),
       ErrorKind::config,
       {"transpose", "feed_forward.output.weight"}},
      {changed("\"transpose\"", "\"transposed\""), ErrorKind::config, {"unknown key \"transposed\"", "\"transpose\""}},
      {changed("[0, 6]", "[6, 0]"), ErrorKind::config, {"[begin, end]", "feed_forward.gate.weight"}},
      {changed("[0, 6]", "[-1, 6]"), ErrorKind::config, {"[begin, end]"}},
      {changed("[0, 6]", "[7, 13]"), ErrorKind::config, {"rows 7 to 13", "\"h.0.gate_and_up\"", "it has 12"}},
      {changed("[0, 6]", "[0, 5]"),
       ErrorKind::config,
       {"\"decoder.0.feed_forward.gate.weight\"", "[6, 4]", "[5, 4]", "inner_width is 6"}},
      {changed("\"transpose\": true", "\"transpose\": false"),
       ErrorKind::config,
       {"\"decoder.0.feed_forward.output.weight\"", "[4, 6]", "\"h.0.down\" [6, 4]"}},
      {changed(", \"h.{layer}.v\"", ""),
       ErrorKind::config,
       {"query_key_value.weight\"", "[12, 4]", "\"h.0.q\" [4, 4] and \"h.0.k\" [4, 4]", "heads is 2"}},
      {changed("\"h.{layer}.v\"]", "\"h.{layer}.v\", \"h.{layer}.o\"]"),
       ErrorKind::config,
       {"query_key_value.weight\"", "[12, 4]", "\"h.0.o\""}},
      {changed("\"h.{layer}.o\"", "\"h.{layer}.oo\""),
       ErrorKind::format,
       {"theirs.safetensors", "no tensor \"h.0.oo\"", "did you mean \"h.0.o\"?"}},
      {changed("\"decoder.norm.gain\": \"ln_f\"", "\"decoder.norm.gian\": \"ln_f\""),
       ErrorKind::config,
       {"no row for parameter \"decoder.norm.gain\""}},
      {changed("\"decoder.norm.gain\": \"ln_f\"", "\"decoder.norm.gain\": \"ln_f\", \"logits.weight\": \"wte\""),
       ErrorKind::config,
       {"\"logits.weight\"", "does not have"}},
      {changed("\"rotary.*\"", ""), ErrorKind::config, {"no use for tensor \"rotary.inv_freq\" [2]", "ignore"}},
      {changed("\"vocabulary\": 5", "\"vocabulary\": 6"),
       ErrorKind::config,
       {"\"decoder.embedding.weight\"", "[6, 4]", "decoder.vocabulary is 6", "\"wte\" [5, 4]"}},
      {changed("\"layers\": 1", "\"layers\": 2"),
       ErrorKind::format,
       {"no tensor \"h.1.ln1\"", "did you mean \"h.0.ln1\"?"}},
      {changed("\"h.{layer}.o\"", "[]"), ErrorKind::config, {"self.output.weight", "empty list"}},
      {changed("\"h.{layer}.o\"", "7"), ErrorKind::config, {"self.output.weight", "expected a name"}},
  };
  for (const Case& each : cases) {
    SCOPED_TRACE(each.parts.back());
    expect_error([&] { load(each.table); }, each.kind, each.parts);
  }
}

TEST_F(ImportTest, RefusesNumbersThatAreNone) {
  tensors_["h.0.k"].row(1)[2] = NAN;
  expect_error([&] { load(table_); }, ErrorKind::numeric,
               {"theirs.safetensors", "decoder.0.self.query_key_value.weight", "NaN", "[5, 2]"});
}

TEST_F(ImportTest, RefusesTensorsOfTooManyAxes) {
  tensors_["h.0.o"] = tensors_["h.0.o"].reshaped({2, 2, 4});
  expect_error([&] { load(table_); }, ErrorKind::config, {"\"h.0.o\"", "[2, 2, 4]", "decoder.0.self.output.weight"});
}

}  // namespace
}  // namespace attend
