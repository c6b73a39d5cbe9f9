// Model folders: whole after every save, kill and full disk; refused when their files contradict each other.
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <cmath>
#include <csignal>
#include <limits>
#include <random>
#include <thread>

#include "attend/safetensors.h"
#include "unit/load_models.h"

namespace attend {
namespace {

using CheckpointTest = FolderTest;

TEST_F(CheckpointTest, RoundTripWithOneTokenizer) {
  const Model model(tiny_config(), 5);
  const auto bytes = byte_tokenizer();
  save_model_folder(folder_, model, bytes.get(), bytes.get(), translation_task());
  EXPECT_EQ(names(), (std::vector<std::string>{"config.json", "model.safetensors", "task.json", "tokenizer.json"}));
  const ModelFolder loaded = load_model_folder(folder_);
  EXPECT_EQ(loaded.model.config(), model.config());
  EXPECT_EQ(fingerprint(loaded.model), fingerprint(model));
  EXPECT_EQ(loaded.task, translation_task());
  ASSERT_TRUE(loaded.source);
  EXPECT_EQ(loaded.source, loaded.target) << "one object for both";
  EXPECT_EQ(loaded.source->fingerprint(), bytes->fingerprint());
  EXPECT_EQ(fingerprint(load_model(folder_)), fingerprint(model));
}

TEST_F(CheckpointTest, RoundTripWithTwoTokenizersAndAllOfTheTask) {
  const auto source = train_character({}, "abcde"), target = byte_tokenizer(Normalisation::none, {"<2zh>", "<2en>"});
  const Model model(tiny_config(source->size(), target->size()), 5);
  Task task = translation_task();
  task.target_tags = {{"zh", "<2zh>"}, {"en", "<2en>"}};
  task.source_begin = true;
  task.source_end = false;
  save_model_folder(folder_, model, source.get(), target.get(), task);
  EXPECT_TRUE(std::filesystem::exists(folder_ / "source_tokenizer.json"));
  EXPECT_TRUE(std::filesystem::exists(folder_ / "target_tokenizer.json"));
  EXPECT_FALSE(std::filesystem::exists(folder_ / "tokenizer.json"));
  const ModelFolder loaded = load_model_folder(folder_);
  EXPECT_EQ(loaded.source->fingerprint(), source->fingerprint());
  EXPECT_EQ(loaded.target->fingerprint(), target->fingerprint());
  EXPECT_EQ(loaded.task, task);
}

TEST_F(CheckpointTest, DecoderOnlyAndFeatures) {
  TransformerConfig config = tiny_config();
  config.encoder.reset();
  Task task;
  task.kind = Task::Kind::generate;
  task.lines = false;
  const auto bytes = byte_tokenizer();
  save_model_folder(folder_, Model(config, 1), bytes.get(), bytes.get(), task);
  ModelFolder loaded = load_model_folder(folder_);
  EXPECT_FALSE(loaded.source);
  EXPECT_TRUE(loaded.target);
  EXPECT_EQ(loaded.task, task);

  config.decoder.reset();
  config.encoder = StackConfig{1, 0, 4, false, true, false, true};
  config.classes = 3;
  config.pooling = Pooling::class_token;
  task = {};
  task.kind = Task::Kind::classify;
  task.classes = {"a", "b", "c"};
  task.image_height = 4;
  task.image_width = 6;
  task.patch = 2;
  save_model_folder(folder_, Model(config, 1), bytes.get(), bytes.get(), task);
  EXPECT_EQ(names(), (std::vector<std::string>{"config.json", "model.safetensors", "task.json"}))
      << "the old tokenizer must go";
  loaded = load_model_folder(folder_);
  EXPECT_FALSE(loaded.source);
  EXPECT_FALSE(loaded.target);
  EXPECT_EQ(loaded.task, task);
}

TEST_F(CheckpointTest, SavingTwiceGivesTheSameBytes) {
  const Model model(tiny_config(), 5);
  const auto bytes = byte_tokenizer();
  save_model_folder(folder_, model, bytes.get(), bytes.get(), translation_task());
  const std::string before = read("model.safetensors");
  save_model_folder(folder_, load_model(folder_), bytes.get(), bytes.get(), translation_task());
  EXPECT_EQ(read("model.safetensors"), before);
}

TEST_F(CheckpointTest, HalfPrecisionIsHalfTheSizeAndRounded) {
  const Model model(tiny_config(), 5);
  for (WeightType type : {WeightType::float16, WeightType::bfloat16}) {
    save_model_folder(folder_, model, nullptr, nullptr, translation_task(), type);
    EXPECT_LT(std::filesystem::file_size(folder_ / "model.safetensors"),
              static_cast<std::uintmax_t>(model.parameter_count()) * 2 + 8000);
    const Model loaded = load_model(folder_);
    for (std::size_t p = 0; p < model.parameters().size(); ++p)
      for (std::int64_t i = 0; i < model.parameters()[p].value.elements(); ++i) {
        const float x = model.parameters()[p].value.data()[i];
        const float expected = type == WeightType::float16 ? float16_to_float(float_to_float16(x))
                                                           : bfloat16_to_float(float_to_bfloat16(x));
        ASSERT_EQ(loaded.parameters()[p].value.data()[i], expected);
      }
  }
}

TEST_F(CheckpointTest, LeavesFilesOfOtherNamesAlone) {
  write("notes.txt", "mine");
  save_model_folder(folder_, Model(tiny_config(), 5), nullptr, nullptr, translation_task());
  TransformerConfig other = tiny_config();
  other.width = 16;
  save_model_folder(folder_, Model(other, 5), nullptr, nullptr, translation_task());
  EXPECT_EQ(read("notes.txt"), "mine");
  EXPECT_EQ(load_model(folder_).config().width, 16);
}

// ---- Refusals --------------------------------------------------------------------------------------------------------

TEST_F(CheckpointTest, FoldersThatAreNone) {
  expect_error([&] { load_model_folder(folder_ / "absent"); }, ErrorKind::file,
               {"absent", "does not exist", "config.json"});
  expect_error([&] { load_model_folder(folder_); }, ErrorKind::file, {"not a model folder", "no config.json"});
  write("config.json", "{}");
  expect_error([&] { load_model_folder(folder_ / "config.json"); }, ErrorKind::file, {"is not a folder"});
  expect_error([&] { load_model_folder(folder_); }, ErrorKind::file, {"no model.safetensors"});
}

TEST_F(CheckpointTest, ConfigThatContradictsTheWeights) {
  const auto bytes = byte_tokenizer();
  struct Case {
    const char *from, *to;
    std::vector<std::string> parts;
  };
  const std::vector<Case> cases{
      {"\"vocabulary\": 259",
       "\"vocabulary\": 250",
       {"\"encoder.embedding.weight\"", "[259, 8]", "[250, 8]", "encoder.vocabulary is 250"}},
      {"\"layers\": 2", "\"layers\": 1", {"\"decoder.1.cross.", "no place", "decoder.layers is 1"}},
      {"\"layers\": 1", "\"layers\": 2", {"no tensor \"encoder.1.self.norm.gain\"", "encoder.layers is 2"}},
      {"\"inner_width\": 12",
       "\"inner_width\": 10",
       {"\"encoder.0.feed_forward.inner.weight\"", "[12, 8]", "[10, 8]", "inner_width is 10"}},
      {"\"head_dim\": 0",
       "\"head_dim\": 3",
       {"\"encoder.0.self.query_key_value.weight\"", "[24, 8]", "[18, 8]", "heads is 2", "head_dim is 3"}},
      {"\"key_heads\": 0",
       "\"key_heads\": 1",
       {"\"encoder.0.self.query_key_value.weight\"", "[24, 8]", "[16, 8]", "key_heads is 1"}},
      {"\"norm_bias\": true",
       "\"norm_bias\": false",
       {"\"decoder.0.cross.norm.bias\"", "no place", "norm_bias is false"}},
      {"\"query_key_value_bias\": true",
       "\"query_key_value_bias\": false",
       {"_value.bias\"", "no place", "query_key_value_bias is false"}},
      {"\"feed_forward_bias\": true",
       "\"feed_forward_bias\": false",
       {"feed_forward.inner.bias", "feed_forward_bias is false"}},
      {"\"attention_output_bias\": true",
       "\"attention_output_bias\": false",
       {".output.bias\"", "attention_output_bias is false"}},
      {"\"gated\": false", "\"gated\": true", {"no tensor", ".feed_forward.gate.weight\"", "gated is true"}},
      {"\"final_norm\": true", "\"final_norm\": false", {"\"encoder.norm.", "no place"}},
      {"\"embedding_norm\": false",
       "\"embedding_norm\": true",
       {"no tensor \"encoder.embedding_norm.gain\"", "encoder.embedding_norm is true"}},
      {"\"positions\": \"sinusoidal\"",
       "\"positions\": \"learned\"",
       {"no tensor \"encoder.position.weight\"", "positions is \"learned\""}},
      {"\"tied_logits\": false", "\"tied_logits\": true", {"\"logits.weight\"", "no place", "tied_logits is true"}},
      {"\"logits_bias\": false", "\"logits_bias\": true", {"no tensor \"logits.bias\"", "logits_bias is true"}},
      {"\"shared_embeddings\": false",
       "\"shared_embeddings\": true",
       {"no tensor \"embedding.weight\"", "shared_embeddings is true"}},
      {"\"inner_width\": 12", "\"inner_width\": 1000000000", {"numbers", "config.json describes a model of"}},
      {"\"width\": 8", "\"width\": 8000", {"numbers", "config.json describes a model of"}},
  };
  for (const Case& each : cases) {
    SCOPED_TRACE(each.to);
    save_model_folder(folder_, Model(tiny_config(), 5), bytes.get(), bytes.get(), translation_task());
    replace("config.json", each.from, each.to);
    std::vector<std::string> parts = each.parts;
    parts.push_back("model.safetensors: ");
    expect_error([&] { load_model_folder(folder_); }, ErrorKind::config, parts);
  }
}

// Before anything of that size is allocated.
TEST_F(CheckpointTest, PositionsBeyondTheWeights) {
  for (const PositionKind kind : {PositionKind::learned, PositionKind::relative_bias}) {
    TransformerConfig config = tiny_config();
    config.positions = kind;
    save_model_folder(folder_, Model(config, 5), byte_tokenizer().get(), byte_tokenizer().get(), translation_task());
    if (kind == PositionKind::learned) {
      replace("config.json", "\"max_positions\": 20", "\"max_positions\": 4000000");
    } else {
      replace("config.json", "\"relative_buckets\": 32", "\"relative_buckets\": 1000000000");
      replace("config.json", "\"relative_max_distance\": 128", "\"relative_max_distance\": 2000000000");
    }
    expect_error([&] { load_model_folder(folder_); }, ErrorKind::config,
                 {"model.safetensors: ", "numbers", "config.json describes a model of"});
  }
}

TEST_F(CheckpointTest, WeightsThatAreNoNumbers) {
  Model model(tiny_config(), 5);
  save_model_folder(folder_, model, nullptr, nullptr, translation_task());
  const std::string whole = read("model.safetensors");
  for (float bad : {std::numeric_limits<float>::quiet_NaN(), std::numeric_limits<float>::infinity()}) {
    // Into the file, at the second number of one tensor.
    SafetensorsFile file(whole, "memory");
    const SafetensorsEntry& entry = file.entry("decoder.1.feed_forward.inner.weight");
    std::uint64_t header = 0;
    std::memcpy(&header, whole.data(), 8);
    std::string broken = whole;
    std::memcpy(broken.data() + 8 + header + static_cast<std::uint64_t>(entry.begin) + (3 * 8 + 5) * 4, &bad, 4);
    write("model.safetensors", broken);
    expect_error([&] { load_model_folder(folder_); }, ErrorKind::numeric,
                 {"model.safetensors", "\"decoder.1.feed_forward.inner.weight\"", std::isnan(bad) ? "NaN" : "infinity",
                  "[3, 5]"});
    // And out of a model, which then does not replace the file.
    write("model.safetensors", whole);
    model.parameter("encoder.0.self.norm.gain").value.data()[2] = bad;
    expect_error([&] { save_model_folder(folder_, model, nullptr, nullptr, translation_task()); }, ErrorKind::numeric,
                 {"\"encoder.0.self.norm.gain\"", "[2]"});
    EXPECT_EQ(read("model.safetensors"), whole);
  }
}

TEST_F(CheckpointTest, NumbersTooLargeForHalfPrecision) {
  Model model(tiny_config(), 5);
  save_model_folder(folder_, model, nullptr, nullptr, translation_task());
  const std::string before = read("model.safetensors");
  model.parameter("logits.weight").value.row(4)[1] = 70000;
  expect_error([&] { save_model_folder(folder_, model, nullptr, nullptr, translation_task(), WeightType::float16); },
               ErrorKind::numeric, {"\"logits.weight\"", "70000", "[4, 1]"});
  EXPECT_EQ(read("model.safetensors"), before);
}

TEST_F(CheckpointTest, TokenizersOfAnotherModel) {
  const auto bytes = byte_tokenizer(), more = byte_tokenizer(Normalisation::none, {"<x>"});
  const Model model(tiny_config(), 5);
  expect_error([&] { save_model_folder(folder_, model, more.get(), bytes.get(), translation_task()); },
               ErrorKind::config, {"encoder.vocabulary is 259", "260 tokens"});
  save_model_folder(folder_, model, bytes.get(), bytes.get(), translation_task());
  more->save(folder_);
  expect_error([&] { load_model_folder(folder_); }, ErrorKind::config,
               {"config.json", "encoder.vocabulary is 259", "260 tokens"});
  byte_tokenizer(Normalisation::nfkc)->save(folder_);  // of the same size, but another one
  expect_error([&] { load_model_folder(folder_); }, ErrorKind::config,
               {"model.safetensors", "trained with the tokenizer", bytes->fingerprint()});
  bytes->save(folder_);
  EXPECT_NO_THROW(load_model_folder(folder_));
  std::string json = read("tokenizer.json");
  json.replace(json.find(bytes->fingerprint()), 4, "0000");
  write("tokenizer.json", json);
  expect_error([&] { load_model_folder(folder_); }, ErrorKind::format,
               {folder_.string() + "/tokenizer.json: its size or fingerprint"});
  bytes->save(folder_);
  std::filesystem::copy_file(folder_ / "tokenizer.json", folder_ / "target_tokenizer.json");
  expect_error([&] { load_model_folder(folder_); }, ErrorKind::format, {"tokenizer.json", "beside"});
}

TEST_F(CheckpointTest, TasksThatAreWrong) {
  const Model model(tiny_config(), 5);
  const auto bad_task = [&](const std::function<void(Task&)>& change, const std::vector<std::string>& parts) {
    Task task = translation_task();
    change(task);
    expect_error([&] { save_model_folder(folder_, model, nullptr, nullptr, task); }, ErrorKind::config, parts);
    expect_error([&] { task_from_json(to_json(task), "m/task.json"); }, ErrorKind::config, parts);
  };
  bad_task([](Task& task) { task.languages = {"zh"}; }, {"languages", "only zh"});
  bad_task([](Task& task) { task.languages = {"zh", "zh"}; }, {"languages", "zh twice"});
  bad_task([](Task& task) { task.target_tags = {{"fr", "<2fr>"}}; }, {"target_tags", "fr"});
  bad_task([](Task& task) { task.target_tags = {{"zh", ""}}; }, {"target_tags", "empty tag for zh"});
  bad_task([](Task& task) { task.kind = Task::Kind::classify; }, {"classes", "empty"});
  bad_task([](Task& task) { task.patch = 3, task.image_height = 9, task.image_width = 10; }, {"patch", "3", "10"});
  EXPECT_FALSE(std::filesystem::exists(folder_ / "config.json")) << "nothing was written";

  save_model_folder(folder_, model, nullptr, nullptr, translation_task());
  const std::string good = read("task.json");
  replace("task.json", "\"languages\"", "\"langauges\"");
  expect_error([&] { load_model_folder(folder_); }, ErrorKind::config,
               {"task.json", "\"langauges\"", "did you mean \"languages\"?"});
  write("task.json", "{\"kind\": \"translation\"}");
  expect_error([&] { load_model_folder(folder_); }, ErrorKind::config,
               {"task.json: kind", "\"translation\"", "did you mean \"translate\"?"});
  write("task.json", "{\"languages\": [1]}");
  expect_error([&] { load_model_folder(folder_); }, ErrorKind::config, {"task.json: languages", "a list of strings"});
  write("task.json", "{\"kind\": \"classify\", \"classes\": [\"a\"]}");
  expect_error([&] { load_model_folder(folder_); }, ErrorKind::config, {"task.json", "1 classes", "classes 0"});
  std::filesystem::remove(folder_ / "task.json");
  expect_error([&] { load_model_folder(folder_); }, ErrorKind::file, {"task.json", "does not exist"});
}

TEST(TaskJson, EveryFieldSurvives) {
  Task task;
  task.kind = Task::Kind::classify;
  task.languages = {"zh", "en", "\xe6\x97\xa5"};
  task.target_tags = {{"zh", "<2zh>"}, {"en", "\"quoted\""}};
  task.source_begin = true;
  task.source_end = false;
  task.lines = false;
  task.classes = {"a", "b"};
  task.image_height = 28;
  task.image_width = 14;
  task.patch = 7;
  EXPECT_EQ(task_from_json(to_json(task), "x"), task);
}

// ---- Whole after everything ------------------------------------------------------------------------------------------

// Three saves that differ in all files, in nothing but the weights, or in names of files.
struct Variant {
  Model model;
  std::shared_ptr<const Tokenizer> source, target;
  Task task;

  void save(const std::filesystem::path& folder) const {
    save_model_folder(folder, model, source.get(), target.get(), task);
  }
  bool equals(const ModelFolder& loaded) const {
    return fingerprint(loaded.model) == fingerprint(model) && loaded.task == task && loaded.source && loaded.target &&
           loaded.source->fingerprint() == source->fingerprint() &&
           loaded.target->fingerprint() == target->fingerprint();
  }
};

std::vector<Variant> variants() {
  const auto bytes = byte_tokenizer(), letters = train_character({}, "abcdefg");
  TransformerConfig large = tiny_config();
  large.width = 32;
  Task generate;
  generate.kind = Task::Kind::generate;
  std::vector<Variant> result;
  result.push_back({Model(tiny_config(), 1), bytes, bytes, translation_task()});
  result.push_back({Model(tiny_config(), 2), bytes, bytes, translation_task()});
  result.push_back({Model(large, 3), bytes, bytes, generate});
  result.push_back({Model(tiny_config(letters->size(), 259), 4), letters, bytes, translation_task()});
  return result;
}

int count_equal(const std::vector<Variant>& all, const ModelFolder& loaded) {
  int count = 0;
  for (const Variant& each : all) count += each.equals(loaded);
  return count;
}

TEST_F(CheckpointTest, KilledWhileSavingTheFolderLoadsWhole) {
  const std::vector<Variant> all = variants();
  all[0].save(folder_);
  const auto begin = std::chrono::steady_clock::now();
  for (const Variant& each : all) each.save(folder_);
  const auto round =
      std::chrono::duration_cast<std::chrono::microseconds>(std::chrono::steady_clock::now() - begin).count();

  std::mt19937 random(1);
  std::vector<int> seen(all.size(), 0);
  for (int kill_round = 0; kill_round < 40; ++kill_round) {
    int first_save[2];  // the child writes when its first save is done: a busy machine may start it late
    ASSERT_EQ(::pipe(first_save), 0);
    const pid_t child = ::fork();
    ASSERT_GE(child, 0);
    if (child == 0) {
      try {
        for (std::size_t next = static_cast<std::size_t>(kill_round);; ++next) {
          all[next % all.size()].save(folder_);
          if (next == static_cast<std::size_t>(kill_round) && ::write(first_save[1], "", 1) != 1) break;
        }
      } catch (...) {
      }
      ::_exit(1);  // a save that failed by itself
    }
    char done;
    ASSERT_EQ(::read(first_save[0], &done, 1), 1);
    ::close(first_save[0]);
    ::close(first_save[1]);
    std::this_thread::sleep_for(
        std::chrono::microseconds(std::uniform_int_distribution<std::int64_t>(0, 2 * round)(random)));
    ::kill(child, SIGKILL);
    int status = 0;
    ASSERT_EQ(::waitpid(child, &status, 0), child);
    ASSERT_TRUE(WIFSIGNALED(status)) << "the child ended by itself with " << status;
    const ModelFolder loaded = load_model_folder(folder_);
    ASSERT_EQ(count_equal(all, loaded), 1) << "round " << kill_round;
    for (std::size_t i = 0; i < all.size(); ++i) seen[i] += all[i].equals(loaded);
  }
  for (std::size_t i = 0; i < all.size(); ++i)
    EXPECT_GT(seen[i], 0) << "variant " << i << " never survived: kills came too early";
  // What was left half done does not disturb the next save, and is cleaned up by it.
  all[3].save(folder_);
  EXPECT_TRUE(all[3].equals(load_model_folder(folder_)));
  all[0].save(folder_);
  EXPECT_TRUE(all[0].equals(load_model_folder(folder_)));
  for (const std::string& name : names()) EXPECT_EQ(name.find(".next"), std::string::npos) << name;
}

// Every moment between the promise (pending.json) and the last rename, one by one.
TEST_F(CheckpointTest, EveryStepOfAChangeOfSeveralFilesIsWhole) {
  const std::vector<Variant> all = variants();
  const auto other = folder_ / "other";
  all[3].save(other);
  const std::vector<std::string> written{"config.json", "source_tokenizer.json", "target_tokenizer.json",
                                         "model.safetensors"};
  for (std::size_t done = 0; done <= written.size() + 1; ++done) {
    for (const std::string& name : names())
      if (name != "other") std::filesystem::remove(folder_ / name);
    all[0].save(folder_);
    for (const std::string& name : written) std::filesystem::copy_file(other / name, folder_ / (name + ".next"));
    EXPECT_TRUE(all[0].equals(load_model_folder(folder_))) << "without the promise the old files count";
    write(
        "pending.json",
        R"({"written": ["config.json", "source_tokenizer.json", "target_tokenizer.json", "model.safetensors"], "removed": ["tokenizer.json"]})");
    for (std::size_t i = 0; i < std::min(done, written.size()); ++i)
      std::filesystem::rename(folder_ / (written[i] + ".next"), folder_ / written[i]);
    if (done > written.size()) std::filesystem::remove(folder_ / "tokenizer.json");
    EXPECT_TRUE(all[3].equals(load_model_folder(folder_))) << done;
    // The next save finishes it first.
    all[done % 3].save(folder_);
    EXPECT_TRUE(all[done % 3].equals(load_model_folder(folder_))) << done;
    EXPECT_FALSE(std::filesystem::exists(folder_ / "pending.json"));
  }
}

TEST_F(CheckpointTest, APromiseCannotReachOtherFiles) {
  variants()[0].save(folder_ / "model");
  write("precious", "keep me");
  for (const char* text :
       {R"({"written": [], "removed": ["../precious"]})", R"({"written": ["../precious"], "removed": []})"}) {
    std::ofstream(folder_ / "model" / "pending.json") << text;
    expect_error([&] { load_model_folder(folder_ / "model"); }, ErrorKind::format,
                 {"pending.json", "no part of a model folder"});
    expect_error([&] { variants()[1].save(folder_ / "model"); }, ErrorKind::format, {"pending.json"});
    EXPECT_EQ(read("precious"), "keep me");
  }
}

// The largest file the process may write stands for the disk's end: write() fails in the middle, as on a full disk.
class SmallDisk {
 public:
  explicit SmallDisk(rlim_t bytes) {
    ::getrlimit(RLIMIT_FSIZE, &before_);
    handler_ = std::signal(SIGXFSZ, SIG_IGN);
    rlimit limit = before_;
    limit.rlim_cur = bytes;
    ::setrlimit(RLIMIT_FSIZE, &limit);
  }
  ~SmallDisk() {
    ::setrlimit(RLIMIT_FSIZE, &before_);
    std::signal(SIGXFSZ, handler_);
  }

 private:
  rlimit before_{};
  void (*handler_)(int) = nullptr;
};

TEST_F(CheckpointTest, FullDiskLeavesTheOldModel) {
  const std::vector<Variant> all = variants();
  all[0].save(folder_);
  const std::vector<std::string> before = names();
  const auto weights = std::filesystem::file_size(folder_ / "model.safetensors");
  for (std::size_t next : {1u, 2u, 3u})  // only the weights; several files; other files
    for (std::uintmax_t room : {weights / 2, std::uintmax_t{100}, std::uintmax_t{0}}) {
      {
        const SmallDisk small(room);
        expect_error([&] { all[next].save(folder_); }, ErrorKind::file, {"cannot write", "File too large"});
      }
      EXPECT_EQ(names(), before) << "nothing half written is left";
      EXPECT_TRUE(all[0].equals(load_model_folder(folder_)));
    }
  all[2].save(folder_);
  EXPECT_TRUE(all[2].equals(load_model_folder(folder_)));
}

TEST_F(CheckpointTest, FoldersThatCannotBeMade) {
  write("file", "");
  expect_error([&] { variants()[0].save(folder_ / "file" / "model"); }, ErrorKind::file, {"file", "cannot"});
}

// ---- Averages and fingerprints ---------------------------------------------------------------------------------------

TEST_F(CheckpointTest, AverageIsTheMeanOfEveryNumber) {
  std::vector<std::filesystem::path> folders;
  std::vector<Model> models;
  for (std::uint64_t seed : {1, 2, 3}) {
    models.emplace_back(tiny_config(), seed);
    folders.push_back(folder_ / std::to_string(seed));
    save_model_folder(folders.back(), models.back(), nullptr, nullptr, translation_task());
  }
  const Model mean = average_weights(folders);
  for (std::size_t p = 0; p < mean.parameters().size(); ++p)
    for (std::int64_t i = 0; i < mean.parameters()[p].value.elements(); ++i) {
      double sum = 0;
      for (const Model& each : models) sum += static_cast<double>(each.parameters()[p].value.data()[i]);
      ASSERT_EQ(mean.parameters()[p].value.data()[i], static_cast<float>(sum / 3)) << mean.parameters()[p].name;
    }
  EXPECT_EQ(fingerprint(average_weights(std::span(folders).first(1))), fingerprint(models[0]));
  expect_error([] { average_weights({}); }, ErrorKind::argument, {"no folders"});
  TransformerConfig other = tiny_config();
  other.norm_epsilon = 1e-6;
  save_model_folder(folders[1], Model(other, 1), nullptr, nullptr, translation_task());
  expect_error([&] { average_weights(folders); }, ErrorKind::config, {"2/config.json", "differs"});
}

TEST(Fingerprint, ChangesWithEveryNumberAndField) {
  Model model(tiny_config(), 1);
  const std::string before = fingerprint(model);
  EXPECT_EQ(before.size(), 16u);
  EXPECT_EQ(fingerprint(Model(tiny_config(), 1)), before);
  EXPECT_NE(fingerprint(Model(tiny_config(), 2)), before);
  TransformerConfig other = tiny_config();
  other.norm_epsilon = 1e-6;
  EXPECT_NE(fingerprint(Model(other, 1)), before);
  float& last = model.parameters().back().value.data()[model.parameters().back().value.elements() - 1];
  const float kept = last;
  last = std::nextafter(last, 10.0f);
  EXPECT_NE(fingerprint(model), before);
  last = kept;
  EXPECT_EQ(fingerprint(model), before);
}

}  // namespace
}  // namespace attend
