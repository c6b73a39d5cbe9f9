// Which folders are models, which are damaged, and which are none.
#include <gtest/gtest.h>
#include <unistd.h>

#include <chrono>
#include <filesystem>
#include <fstream>
#include <string>

#include "explorer/model_store.h"
#include "reference/random_models.h"

namespace attend::explorer {
namespace {

namespace fs = std::filesystem;

class ExplorerModels : public testing::Test {
 protected:
  ExplorerModels()
      : folder_(fs::temp_directory_path() / ("attend-models-" + std::to_string(::getpid()) + "-" +
                                             testing::UnitTest::GetInstance()->current_test_info()->name())) {
    fs::remove_all(folder_);
    fs::create_directories(folder_);
  }
  ~ExplorerModels() override { fs::remove_all(folder_); }

  fs::path at(const std::string& name) const { return folder_ / name; }
  // A small model of random weights.
  void make_model(const std::string& name) const {
    Model model(reference::all_families()[4].config, 3);
    Task task;
    task.kind = Task::Kind::generate;
    save_model_folder(at(name), model, nullptr, nullptr, task);
  }
  void write(const std::string& name, const std::string& text) const {
    fs::create_directories(at(name).parent_path());
    std::ofstream(at(name), std::ios::binary) << text;
  }
  static ModelStore::Summary summary(ModelStore& store, const std::string& name) {
    for (ModelStore::Summary& each : store.list())
      if (each.name == name) return each;
    ADD_FAILURE() << "no " << name;
    return {};
  }

  const fs::path folder_;
};

TEST_F(ExplorerModels, SaysWhichFoldersHoldNone) {
  make_model("whole");
  make_model("run/best");
  write("run/samples/text.txt", "x");
  write("notes/plan.txt", "x");
  write("empty/inside/deeper/text.txt", "x");
  write(".git/config", "x");
  ModelStore store({folder_, at("absent")});
  EXPECT_EQ(store.names(), (std::vector<std::string>{"best", "whole"}));
  EXPECT_EQ(store.default_name(), "best");
  EXPECT_EQ(store.skipped(), (std::vector<fs::path>{at("empty"), at("notes"), at("absent")}));
}

TEST_F(ExplorerModels, DamagedOnesSayWhatIsWrongBeforeTheyAreLoaded) {
  make_model("whole");
  make_model("a-cut");
  const auto size = fs::file_size(at("a-cut/model.safetensors"));
  fs::resize_file(at("a-cut/model.safetensors"), size - 1);
  make_model("b-text");
  write("b-text/config.json", "{\"heads\": ");
  make_model("c-bare");
  fs::remove(at("c-bare/model.safetensors"));
  make_model("d-lost");
  fs::remove(at("d-lost/config.json"));
  make_model("e-header");
  write("e-header/model.safetensors", "no weights at all");
  ModelStore store({folder_}, "whole");
  EXPECT_TRUE(store.skipped().empty());
  EXPECT_EQ(store.names().size(), 6u);
  const auto expect_error = [&](const std::string& name, const std::string& kind, const std::string& words) {
    const ModelStore::Summary one = summary(store, name);
    ASSERT_TRUE(one.error) << name;
    EXPECT_FALSE(one.loaded);
    EXPECT_EQ(one.error->kind(), kind);
    EXPECT_NE((one.error->where() + ": " + one.error->what_happened()).find(words), std::string::npos)
        << one.error->where() << ": " << one.error->what_happened();
    EXPECT_ANY_THROW(store.get(name));
  };
  expect_error("a-cut", "format", "model.safetensors");
  EXPECT_EQ(summary(store, "a-cut").family, "decoder") << "its config can be read";
  expect_error("b-text", "format", "config.json");
  expect_error("c-bare", "file", "has no model.safetensors");
  expect_error("d-lost", "file", "has no config.json");
  expect_error("e-header", "format", "model.safetensors");
  const ModelStore::Summary whole = summary(store, "whole");
  EXPECT_FALSE(whole.error);
  EXPECT_FALSE(whole.loaded) << "the list reads no weights";
  EXPECT_EQ(whole.family, "decoder");
  EXPECT_TRUE(store.get("whole"));
  EXPECT_TRUE(summary(store, "whole").loaded);

  // Got again, it is a model like any other.
  fs::remove_all(at("a-cut"));
  make_model("a-cut");
  EXPECT_FALSE(summary(store, "a-cut").error);
  EXPECT_TRUE(store.get("a-cut"));
}

TEST_F(ExplorerModels, AHuggingFaceFolderIsCalledOne) {
  make_model("whole");
  make_model("typed");
  write("typed/config.json", R"({"architectures": ["GPT2LMHeadModel"], "model_type": "gpt2", "n_embd": 768})");
  make_model("untyped");
  write("untyped/config.json", R"({"architectures": ["LlamaForCausalLM"]})");
  make_model("misspelt");
  write("misspelt/config.json", R"({"widht": 3})");
  ModelStore store({folder_}, "whole");
  const auto error_of = [&](const std::string& name) {
    try {
      store.get(name);
    } catch (...) {
      return current_error();
    }
    return ApiError(200, "", "", "");
  };
  for (const auto& [name, type] : {std::pair("typed", "\"gpt2\""), std::pair("untyped", "\"\"")}) {
    for (const ApiError& error : {*summary(store, name).error, error_of(name), *summary(store, name).error}) {
      EXPECT_EQ(error.detail.code, "hugging_face") << name;
      EXPECT_EQ(error.detail.found, type);
      EXPECT_EQ(error.kind(), "config");
      EXPECT_NE(error.what_happened().find("is a Hugging Face config"), std::string::npos) << error.what_happened();
      EXPECT_NE(error.advice().find("import_model"), std::string::npos) << error.advice();
    }
  }
  EXPECT_EQ(error_of("misspelt").detail.code, "");
  EXPECT_NE(error_of("misspelt").advice().find("width"), std::string::npos);
}

TEST_F(ExplorerModels, TheFirstWholeOneIsTheDefaultAndOneIsNeeded) {
  write("a/config.json", "{}");
  try {
    ModelStore store({folder_});
    ADD_FAILURE() << "there is no model";
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::file);
    EXPECT_NE(std::string(error.what()).find("only one of the two"), std::string::npos) << error.what();
  }
  make_model("b");
  EXPECT_EQ(ModelStore({folder_}).default_name(), "b");
  EXPECT_THROW(ModelStore({at("absent")}), Error);
}

TEST_F(ExplorerModels, ADamagedModelIsRefusedUntilItIsMended) {
  make_model("one");
  ModelStore store({at("one")});
  ASSERT_TRUE(store.get("one"));
  const fs::path weights = at("one/model.safetensors"), kept = at("kept");
  fs::copy_file(weights, kept);
  fs::resize_file(weights, fs::file_size(weights) / 2);
  for (int ask = 0; ask < 2; ++ask) EXPECT_THROW(store.get("one"), std::exception) << ask;
  ASSERT_TRUE(store.list().front().error);
  EXPECT_FALSE(store.list().front().loaded);
  fs::copy_file(kept, weights, fs::copy_options::overwrite_existing);
  EXPECT_TRUE(store.get("one"));
  EXPECT_FALSE(store.list().front().error);
}

TEST_F(ExplorerModels, WeightsThatChangeAreReadAgain) {
  make_model("one");
  ModelStore store({at("one")});
  const auto first = store.get("one");
  EXPECT_EQ(store.get("one"), first);
  fs::last_write_time(at("one/model.safetensors"),
                      fs::last_write_time(at("one/model.safetensors")) + std::chrono::seconds(2));
  EXPECT_NE(store.get("one"), first);
  fs::remove_all(at("one"));
  EXPECT_TRUE(store.get("one")) << "what is loaded stays when the folder goes";
}

}  // namespace
}  // namespace attend::explorer
