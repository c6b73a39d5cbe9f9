// `attend explore` as its clients meet it: started as a program, asked over sockets, by honest clients and by all
// others.
#include <arpa/inet.h>
#include <fcntl.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <nlohmann/json.hpp>
#include <random>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

extern char** environ;

namespace {

using Json = nlohmann::json;
using namespace std::chrono_literals;

// ---- The program ----------------------------------------------------------------------------------------------------
class Program {
 public:
  explicit Program(std::vector<std::string> arguments) {
    int out[2] = {-1, -1};
    if (::pipe(out) != 0) return;
    posix_spawn_file_actions_t actions;
    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_adddup2(&actions, out[1], STDOUT_FILENO);
    posix_spawn_file_actions_addclose(&actions, out[0]);
    posix_spawn_file_actions_addopen(&actions, STDERR_FILENO, "/dev/null", O_RDWR, 0);
    arguments.insert(arguments.begin(), {ATTEND_PROGRAM, "explore", "--no-browser", "--json"});
    std::vector<char*> pointers;
    for (std::string& argument : arguments) pointers.push_back(argument.data());
    pointers.push_back(nullptr);
    ::posix_spawn(&child_, ATTEND_PROGRAM, &actions, nullptr, pointers.data(), environ);
    posix_spawn_file_actions_destroy(&actions);
    ::close(out[1]);
    std::string line;
    for (char c = 0; ::read(out[0], &c, 1) == 1 && c != '\n';) line += c;
    ::close(out[0]);
    if (!Json::accept(line)) return;
    url = Json::parse(line)["url"];
    port = std::stoi(url.substr(url.find_last_of(':') + 1));
  }
  ~Program() { end(SIGKILL); }

  // The exit code, or 128 + signal; -1 if it is still running.
  int end(int signal, std::chrono::milliseconds patience = 10s) {
    if (child_ <= 0) return -1;
    ::kill(child_, signal);
    for (auto waited = 0ms; waited < patience; waited += 10ms) {
      int status = 0;
      if (::waitpid(child_, &status, WNOHANG) == child_) {
        child_ = -1;
        return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
      }
      std::this_thread::sleep_for(10ms);
    }
    return -1;
  }
  bool alive() const { return child_ > 0 && ::waitpid(child_, nullptr, WNOHANG) == 0; }

  std::string url;
  int port = 0;

 private:
  pid_t child_ = -1;
};

// ---- A raw client ---------------------------------------------------------------------------------------------------
class Client {
 public:
  explicit Client(int port) {
    socket_ = ::socket(AF_INET, SOCK_STREAM, 0);
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_port = htons(static_cast<std::uint16_t>(port));
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    connected = ::connect(socket_, reinterpret_cast<const sockaddr*>(&address), sizeof(address)) == 0;
  }
  ~Client() { close(); }
  Client(const Client&) = delete;
  Client& operator=(const Client&) = delete;

  void close() {
    if (socket_ >= 0) ::close(socket_);
    socket_ = -1;
  }
  // False when the server has closed.
  bool send(std::string_view bytes) {
    while (!bytes.empty()) {
      const ssize_t sent = ::send(socket_, bytes.data(), bytes.size(), MSG_NOSIGNAL);
      if (sent <= 0) return false;
      bytes.remove_prefix(static_cast<std::size_t>(sent));
    }
    return true;
  }
  void finish_sending() { ::shutdown(socket_, SHUT_WR); }

  struct Response {
    int status = 0;  // 0: none came
    std::string head, body;
    Json json() const { return Json::accept(body) ? Json::parse(body) : Json(); }
    std::string header(const std::string& name) const {
      const std::size_t at = head.find("\r\n" + name + ": ");
      if (at == std::string::npos) return "";
      const std::size_t begin = at + name.size() + 4;
      return head.substr(begin, head.find("\r\n", begin) - begin);
    }
  };
  // `with_body` is false for the answer to HEAD, whose body does not come.
  Response receive(std::chrono::milliseconds patience = 20s, bool with_body = true) {
    const auto end = std::chrono::steady_clock::now() + patience;
    Response response;
    for (;;) {
      const std::size_t blank = received_.find("\r\n\r\n");
      if (blank != std::string::npos) {
        response.head = received_.substr(0, blank + 2);
        const std::string length = response.header("Content-Length");
        const std::size_t size = length.empty() || !with_body ? 0 : std::stoul(length);
        if (received_.size() >= blank + 4 + size) {
          response.status = std::stoi(response.head.substr(9, 3));
          response.body = received_.substr(blank + 4, size);
          received_.erase(0, blank + 4 + size);
          return response;
        }
      }
      pollfd waiting{socket_, POLLIN, 0};
      const auto left =
          std::chrono::duration_cast<std::chrono::milliseconds>(end - std::chrono::steady_clock::now()).count();
      if (left <= 0 || ::poll(&waiting, 1, static_cast<int>(left)) <= 0) return {};
      char bytes[65536];
      const ssize_t count = ::recv(socket_, bytes, sizeof(bytes), 0);
      if (count <= 0) return {};
      received_.append(bytes, static_cast<std::size_t>(count));
    }
  }
  // Did the server close within the time?
  bool closed(std::chrono::milliseconds patience) {
    pollfd waiting{socket_, POLLIN, 0};
    char byte = 0;
    return ::poll(&waiting, 1, static_cast<int>(patience.count())) > 0 && ::recv(socket_, &byte, 1, 0) <= 0;
  }

  bool connected = false;

 private:
  int socket_ = -1;
  std::string received_;
};

class Explorer : public testing::Test {
 protected:
  // One program for all tests that do not end it: each of them leaves it as it was, which the last check tests.
  static void SetUpTestSuite() { program_ = new Program({"--port", "0"}); }
  static void TearDownTestSuite() {
    delete program_;
    program_ = nullptr;
  }
  void SetUp() override { ASSERT_GT(program_->port, 0); }
  void TearDown() override {
    EXPECT_TRUE(program_->alive());
    EXPECT_EQ(get("/api/v1/status").status, 200);
  }

  static int port() { return program_->port; }
  static std::string host() { return "127.0.0.1:" + std::to_string(port()); }
  static std::string head(const std::string& method, const std::string& path, const std::string& more = "") {
    return method + " " + path + " HTTP/1.1\r\nHost: " + host() + "\r\n" + more;
  }
  static Client::Response get(const std::string& path, const std::string& more = "") {
    Client client(port());
    client.send(head("GET", path, more) + "\r\n");
    return client.receive();
  }
  static std::string posting(const std::string& path, const std::string& body, const std::string& more = "") {
    return head("POST", path,
                "Content-Type: application/json\r\nContent-Length: " + std::to_string(body.size()) + "\r\n" + more) +
           "\r\n" + body;
  }
  static Client::Response post_text(const std::string& path, const std::string& body) {
    Client client(port());
    client.send(posting("/api/v1/" + path, body));
    return client.receive();
  }
  static Client::Response post(const std::string& path, const Json& body) { return post_text(path, body.dump()); }
  // An error must say all four things.
  static std::string kind_of(const Client::Response& response) {
    const Json error = response.json().value("error", Json());
    for (const char* part : {"kind", "where", "what", "advice"})
      if (!error.is_object() || !error.contains(part) || !error[part].is_string())
        return "no typed error: " + response.body.substr(0, 200);
    return error["kind"];
  }

  static inline Program* program_ = nullptr;
};

const char* const small_attention =
    R"({"x":[[1,0],[0,1],[1,1]],"query_weight":[[1,0],[0,1]],"key_weight":[[1,1],[0,1]],"value_weight":[[1,0],[1,2]]})";

// ---- What honest clients get ----------------------------------------------------------------------------------------
TEST_F(Explorer, TellsWhatItIs) {
  const Client::Response response = get("/api/v1/status");
  ASSERT_EQ(response.status, 200);
  const Json status = response.json();
  EXPECT_EQ(status["api"], 1);
  EXPECT_EQ(status["default_model"], "tatoeba-zh-en");
  EXPECT_EQ(status["limits"]["rows"], 512);
  EXPECT_EQ(status["queue"]["running"], 0);
  EXPECT_EQ(response.header("Content-Type"), "application/json");
  EXPECT_EQ(response.header("X-Content-Type-Options"), "nosniff");
  EXPECT_EQ(response.header("Referrer-Policy"), "no-referrer");
  EXPECT_EQ(response.header("Access-Control-Allow-Origin"), "");
}

TEST_F(Explorer, ServesThePageUnderAStrictPolicy) {
  const Client::Response page = get("/");
  ASSERT_EQ(page.status, 200);
  EXPECT_EQ(page.header("Content-Type"), "text/html; charset=utf-8");
  EXPECT_NE(page.body.find("<!doctype html>"), std::string::npos);
  const std::string policy = page.header("Content-Security-Policy");
  EXPECT_NE(policy.find("default-src 'none'"), std::string::npos);
  EXPECT_EQ(policy.find("unsafe"), std::string::npos);
  const std::string tag = page.header("ETag");
  ASSERT_FALSE(tag.empty());
  const Client::Response again = get("/", "If-None-Match: " + tag + "\r\n");
  EXPECT_EQ(again.status, 304);
  EXPECT_TRUE(again.body.empty());
  const Client::Response script = get("/app.js");
  EXPECT_EQ(script.status, 200);
  EXPECT_EQ(script.header("Content-Type"), "text/javascript; charset=utf-8");
  EXPECT_EQ(get("/nothing.js").status, 404);
  EXPECT_EQ(get("/model").status, 404);
  Client client(port());
  client.send(head("HEAD", "/app.js") + "\r\n" + head("GET", "/api/v1/status") + "\r\n");
  EXPECT_EQ(client.receive(20s, false).header("Content-Length"), std::to_string(script.body.size()));
  EXPECT_EQ(client.receive().json()["api"], 1);
}

TEST_F(Explorer, ListsAndDescribesModels) {
  const Json models = get("/api/v1/models").json();
  ASSERT_EQ(models["models"].size(), 2u);
  EXPECT_EQ(models["models"][1]["name"], "tatoeba-zh-en");
  EXPECT_EQ(models["models"][1]["family"], "encoder-decoder");
  EXPECT_TRUE(models["models"][0]["error"].is_null());
  const Json model = get("/api/v1/models/tatoeba-zh-en").json();
  EXPECT_EQ(model["attentions"].size(), 12u);
  EXPECT_EQ(model["inputs"].size(), 2u);
  EXPECT_EQ(model["config"]["heads"], 4);
  EXPECT_GE(model["examples"].size(), 2u);
  EXPECT_GT(model["sites"].size(), 50u);
  const Json other = get("/api/v1/models/tang-quatrains").json();
  EXPECT_EQ(other["inputs"][0]["name"], "text");
  EXPECT_TRUE(other["attentions"][0]["rotary"].get<bool>());
  const Client::Response unknown = get("/api/v1/models/tatoeba-zh-em");
  EXPECT_EQ(unknown.status, 404);
  EXPECT_NE(unknown.json()["error"]["advice"].get<std::string>().find("tatoeba-zh-en"), std::string::npos);
}

TEST_F(Explorer, TokenizesAsTheModelReads) {
  const Json both = post("tokenize", Json{{"model", "tatoeba-zh-en"},
                                          {"input", {{"source", "我喜欢你。"}, {"target", "I like you."}}}})
                        .json();
  ASSERT_TRUE(both.contains("source")) << both;
  EXPECT_EQ(both["source"].front()["kind"], "special");
  EXPECT_EQ(both["source"].back()["text"], "</s>");
  EXPECT_EQ(both["target"].front()["kind"], "special");
  EXPECT_TRUE(both.contains("took"));
  std::string text;
  for (const Json& token : both["target"])
    if (token["kind"] != "special") text += token["text"].get<std::string>();
  EXPECT_EQ(text, " I like you.");
  const Json poem = post("tokenize", Json{{"model", "tang-quatrains"}, {"input", {{"text", "明月"}}}}).json();
  EXPECT_EQ(poem["text"].size(), 3u);
  EXPECT_EQ(kind_of(post("tokenize", Json{{"model", "tang-quatrains"}, {"input", {{"source", "明月"}}}})), "argument");
  EXPECT_EQ(
      kind_of(post("tokenize", Json{{"model", "tatoeba-zh-en"}, {"input", {{"source", "ok"}, {"language", "fr"}}}})),
      "argument");
  std::string longer;
  for (int i = 0; i < 400; ++i) longer += "长";
  EXPECT_EQ(kind_of(post("tokenize", Json{{"model", "tatoeba-zh-en"}, {"input", {{"source", longer}}}})), "text");
  for (int i = 0; i < 5000; ++i) longer += "长";
  // Far beyond what the server would read it is still the model's own length that is told.
  const Client::Response far = post("tokenize", Json{{"model", "tatoeba-zh-en"}, {"input", {{"source", longer}}}});
  EXPECT_EQ(far.status, 400);
  EXPECT_EQ(far.json()["error"]["code"], "too_long");
}

TEST_F(Explorer, WorksTheWorkbench) {
  const Client::Response response = post_text("attention", small_attention);
  ASSERT_EQ(response.status, 200) << response.body;
  const Json found = response.json();
  EXPECT_NEAR(found["heads"][0]["weights"][2][2].get<double>(), 0.576, 5.1e-4);
  // The same request gives the same bytes, but for the time taken.
  const std::string again = post_text("attention", small_attention).body;
  EXPECT_EQ(again.substr(0, again.rfind("\"took\"")), response.body.substr(0, response.body.rfind("\"took\"")));
  EXPECT_NEAR(post_text("operation", R"({"name":"softmax","a":[[1,0]]})").json()["output"][0][0].get<double>(), 0.731,
              5.1e-4);
}

// ---- A model from inside --------------------------------------------------------------------------------------------
Json translated() {
  return {{"model", "tatoeba-zh-en"}, {"input", {{"source", "我喜欢学习中文。"}, {"language", "en"}}}};
}

TEST_F(Explorer, RunsAModelAndTellsWhatEveryHeadDid) {
  const Client::Response response = post("run", translated());
  ASSERT_EQ(response.status, 200) << response.body;
  const Json run = response.json();
  EXPECT_NE(run["input"]["target"].get<std::string>().find("Chinese"), std::string::npos)
      << "it wrote the target itself";
  const std::size_t source = run["tokens"]["source"].size(), target = run["tokens"]["target"].size();
  ASSERT_EQ(run["statistics"].size(), 12u);
  const Json& cross = run["statistics"].back();
  EXPECT_EQ(cross["attention"], "decoder.3.cross");
  EXPECT_EQ(cross["queries"], target);
  EXPECT_EQ(cross["keys"], source);
  EXPECT_EQ(cross["entropy"].size(), 4u);
  EXPECT_EQ(cross["entropy"][0].size(), target);
  double sum = 0;
  for (const Json& weight : cross["top_weights"][1][2]) sum += weight.get<double>();
  EXPECT_GT(sum, 0.5);
  EXPECT_LE(sum, 1.0001);
  EXPECT_LT(run["checks"]["head_sum"].get<double>(), 1e-5);
  EXPECT_LT(run["checks"]["row_sum"].get<double>(), 1e-5);
  ASSERT_EQ(run["predictions"]["rows"].size(), target);
  // It wrote greedily, so what came was the most likely everywhere.
  for (const Json& row : run["predictions"]["rows"]) {
    EXPECT_EQ(row["rank"], 0);
    EXPECT_EQ(row["top"][0]["id"], row["target_id"]);
    EXPECT_NEAR(row["log_probability"].get<double>(), std::log(row["top"][0]["probability"].get<double>()), 1e-4);
  }
  // The completed input is the same run, and gives the same bytes.
  Json again = translated();
  again["input"] = run["input"];
  const std::string first = response.body, second = post("run", again).body;
  EXPECT_EQ(first.substr(0, first.rfind("\"took\"")), second.substr(0, second.rfind("\"took\"")));
  again["want"] = {"predictions"};
  again["top"] = 2;
  const Json less = post("run", again).json();
  EXPECT_FALSE(less.contains("statistics"));
  EXPECT_EQ(less["predictions"]["rows"][0]["top"].size(), 2u);

  const Json poem = post("run", Json{{"model", "tang-quatrains"}, {"input", {{"text", "明月"}}}}).json();
  EXPECT_EQ(poem["predictions"]["rows"].size(), 3u);
  EXPECT_TRUE(poem["predictions"]["rows"][2]["target_id"].is_null());
  EXPECT_FALSE(poem["predictions"]["rows"][1]["target_id"].is_null());
}

TEST_F(Explorer, ARowAndATileTellTheSameNumbers) {
  Json ask = translated();
  ask["attention"] = "decoder.2.cross";
  ask["head"] = 3;
  ask["query"] = 1;
  const Json row = post("row", ask).json();
  ASSERT_TRUE(row.contains("weights")) << row;
  const std::size_t keys = row["weights"].size();
  double sum = 0;
  for (const Json& weight : row["weights"]) sum += weight.get<double>();
  EXPECT_NEAR(sum, 1, 1e-5);
  EXPECT_EQ(row["input"].size(), 128u);
  EXPECT_EQ(row["query_vector"].size(), 32u);
  EXPECT_TRUE(row["rotated_query"].is_null());
  EXPECT_EQ(row["key_vectors"].size(), keys);
  EXPECT_LT(row["head_sum"].get<double>(), 1e-5);
  ask.erase("head");
  ask.erase("query");
  ask["heads"] = {1, 3};
  ask["what"] = "weights";
  ask["queries"] = {0, 2};
  const Client::Response tile = post("tile", ask);
  ASSERT_EQ(tile.status, 200) << tile.body;
  EXPECT_EQ(tile.header("Content-Type"), "application/octet-stream");
  EXPECT_EQ(tile.header("Attend-Shape"), "2,2," + std::to_string(keys));
  ASSERT_EQ(tile.body.size(), 2 * 2 * keys * 4);
  for (std::size_t key = 0; key < keys; ++key) {
    float value = 0;
    std::memcpy(&value, tile.body.data() + 4 * (3 * keys + key), 4);
    EXPECT_EQ(value, row["weights"][key].get<float>()) << "the same bits";
  }
  ask["heads"] = "all";
  ask["what"] = "scores";
  ask["attention"] = "decoder.0.self";
  ask.erase("queries");
  ask["reduce"] = 2;
  EXPECT_EQ(post("tile", ask).status, 200);
  ask["heads"] = {4};
  EXPECT_EQ(kind_of(post("tile", ask)), "argument");
  ask["heads"] = "some";
  EXPECT_EQ(kind_of(post("tile", ask)), "argument");
  ask["heads"] = {0};
  ask["queries"] = {0, 1000};
  EXPECT_EQ(kind_of(post("tile", ask)), "argument");
  ask["attention"] = "decoder.0.kross";
  const Client::Response unknown = post("tile", ask);
  EXPECT_EQ(unknown.status, 404);
  EXPECT_NE(unknown.json()["error"]["advice"].get<std::string>().find("decoder.0.cross"), std::string::npos);
}

TEST_F(Explorer, WritesUnderGlass) {
  Json ask = translated();
  ask["steps"] = 20;
  ask["method"] = {{"kind", "greedy"}};
  const Json greedy = post("generate", ask).json();
  ASSERT_TRUE(greedy.contains("steps")) << greedy;
  const std::string written = post("run", translated()).json()["input"]["target"];
  EXPECT_EQ(greedy["text"], written);
  EXPECT_TRUE(greedy["ended"].get<bool>());
  EXPECT_FALSE(greedy.contains("tree"));
  for (std::size_t i = 0; i < greedy["steps"].size(); ++i) {
    const Json& step = greedy["steps"][i];
    EXPECT_EQ(step["top"][0]["id"], step["id"]) << i;
    EXPECT_NEAR(std::log(step["top"][0]["probability"].get<double>()), step["log_probability"].get<double>(), 1e-4)
        << i;
    EXPECT_EQ(step["cache"]["tokens"], i + 1);
    EXPECT_EQ(step["cache"]["bytes"], (i + 1) * 4 * 2 * 128 * 4);
  }
  // Stepping back and branching: what is forced comes first, and the rest follows from it.
  ask["prefix_ids"] = {greedy["steps"][0]["id"], greedy["steps"][1]["id"]};
  ask["steps"] = 3;
  const Json stepped = post("generate", ask).json();
  ASSERT_EQ(stepped["steps"].size(), 3u);
  EXPECT_TRUE(stepped["steps"][1]["forced"].get<bool>());
  for (int i = 0; i < 3; ++i) EXPECT_EQ(stepped["steps"][i]["id"], greedy["steps"][i]["id"]);
  EXPECT_NEAR(stepped["steps"][1]["log_probability"].get<double>(), greedy["steps"][1]["log_probability"].get<double>(),
              1e-4);

  ask.erase("prefix_ids");
  ask["steps"] = 20;
  ask["method"] = {{"kind", "beam"}, {"beams", 4}, {"n_best", 3}};
  const Json beam = post("generate", ask).json();
  ASSERT_TRUE(beam.contains("tree")) << beam;
  ASSERT_EQ(beam["tree"]["hypotheses"].size(), 3u);
  const Json& nodes = beam["tree"]["nodes"];
  for (const Json& hypothesis : beam["tree"]["hypotheses"]) {
    double total = 0;
    for (std::int64_t node = hypothesis["node"]; node >= 0; node = nodes[static_cast<std::size_t>(node)]["parent"]) {
      const Json& one = nodes[static_cast<std::size_t>(node)];
      EXPECT_TRUE(one["kept"].get<bool>());
      EXPECT_LT(one["parent"].get<std::int64_t>(), node);
      total += one["log_probability"].get<double>();
    }
    EXPECT_NEAR(total, hypothesis["log_probability"].get<double>(), 1e-3);
  }
  EXPECT_EQ(beam["tree"]["hypotheses"][0]["text"], beam["text"]);
  EXPECT_GT(nodes.size(), beam["steps"].size() * 2) << "also what was given up";
  EXPECT_EQ(beam["steps"][1]["top"].size(), 5u);

  Json poem = {{"model", "tang-quatrains"},
               {"input", {{"text", "明月"}}},
               {"steps", 8},
               {"method", {{"kind", "sample"}, {"seed", 3}, {"temperature", 0.8}}}};
  const Json sampled = post("generate", poem).json();
  ASSERT_TRUE(sampled.contains("text")) << sampled;
  EXPECT_EQ(sampled["text"], post("generate", poem).json()["text"]);
  EXPECT_EQ(sampled["steps"][0]["cache"]["tokens"], 3);
  EXPECT_EQ(sampled["cross_cache_bytes"], 0);
  ask["steps"] = 257;
  EXPECT_EQ(kind_of(post("generate", ask)), "argument");
  ask["steps"] = 2;
  ask["prefix_ids"] = {5, 6, 7};
  EXPECT_EQ(kind_of(post("generate", ask)), "argument");
  poem["method"]["temperature"] = 0;
  EXPECT_EQ(kind_of(post("generate", poem)), "argument");
}

TEST_F(Explorer, TellsWhatMatters) {
  Json ask = translated();
  ask["target"] = {{"row", 2}};
  ask["top"] = 10;
  const Json all = post("importance", ask).json();
  ASSERT_TRUE(all.contains("edges")) << all;
  ASSERT_EQ(all["edges"].size(), 10u);
  EXPECT_EQ(all["heads"].size(), 48u);
  for (std::size_t i = 1; i < 10; ++i)
    EXPECT_GE(std::abs(all["edges"][i - 1]["exact"].get<double>()), std::abs(all["edges"][i]["exact"].get<double>()));
  EXPECT_EQ(all["agreement"].size(), 6u);
  ask["attention"] = "decoder.3.cross";
  ask["head"] = 1;
  ask["query"] = 2;
  ask["methods"] = {"exact", "weight"};
  const Json row = post("importance", ask).json();
  EXPECT_EQ(row["edges"].size(), post("tokenize", translated()).json()["source"].size());
  EXPECT_TRUE(row["edges"][0]["write"].is_null());
  // What a cut does, by cutting: the edge forbidden, the logit falls by as much.
  ask["target"]["token"] = 6000;
  EXPECT_EQ(kind_of(post("importance", ask)), "argument");
  ask["target"] = {{"row", 99}};
  EXPECT_EQ(kind_of(post("importance", ask)), "argument");
}

TEST_F(Explorer, EditsShowTheirConsequenceEverywhere) {
  Json ask = translated();
  const Json base = post("run", ask).json();
  ask["input"] = base["input"];
  Json cut = {{"kind", "head"}, {"attention", "decoder.3.cross"}, {"head", -1}, {"value", 0}, {"name", "deaf"}};
  Json lock = {{"kind", "lock"}, {"attention", "decoder.1.cross"}, {"head", 0}, {"query", 1}, {"key", 2},
               {"value", 0.5}};
  ask["edits"] = Json::array({cut, lock});
  const Json edited = post("run", ask).json();
  ASSERT_TRUE(edited.contains("edits")) << edited;
  EXPECT_EQ(edited["edits"][0]["touched"], base["tokens"]["target"].size());
  EXPECT_EQ(edited["edits"][1]["touched"], 1);
  EXPECT_NE(edited["run"], base["run"]);
  EXPECT_NE(edited["predictions"]["rows"][1]["top"][0]["logit"], base["predictions"]["rows"][1]["top"][0]["logit"]);
  EXPECT_LT(edited["checks"]["head_sum"].get<double>(), 1e-5);
  Json row = ask;
  row.update(Json{{"attention", "decoder.1.cross"}, {"head", 0}, {"query", 1}});
  EXPECT_NEAR(post("row", row).json()["weights"][2].get<double>(), 0.5, 1e-6);
  // What is written under the edits is what the edited run finds most likely at every step.
  Json write = ask;
  write["edits"] = Json::array({cut});
  write["steps"] = 12;
  const Json written = post("generate", write).json();
  ASSERT_TRUE(written.contains("steps")) << written;
  Json read = ask;
  read["edits"] = Json::array({cut});
  Json ids = Json::array();
  for (const Json& step : written["steps"])
    if (step["text"] != "</s>") ids.push_back(step["id"]);
  read["input"].erase("target");
  read["input"]["target_ids"] = ids;
  const Json again = post("run", read).json();
  for (std::size_t i = 0; i < ids.size(); ++i) EXPECT_EQ(again["predictions"]["rows"][i]["rank"], 0) << i;
  // Undone exactly.
  cut["off"] = lock["off"] = true;
  ask["edits"] = Json::array({cut, lock});
  Json off = post("run", ask).json();
  EXPECT_EQ(off["edits"].size(), 2u);
  EXPECT_EQ(off["predictions"], base["predictions"]);
  ask["edits"][0]["off"] = false;
  ask["edits"][0]["value"] = "none";
  EXPECT_EQ(kind_of(post("run", ask)), "argument");
  // Measures are those of the run without edits, and say so.
  ask["edits"] = Json::array({lock});
  ask["edits"][0].erase("off");
  EXPECT_EQ(kind_of(post("importance", ask)), "argument");
}

TEST_F(Explorer, EchoesTheInputOfTheRequestThatAsks) {
  const std::string model = "tatoeba-zh-en";
  const auto input = [&](const char* source) {
    return post("run", Json{{"model", model},
                            {"input", {{"source", source}, {"language", "zh"}, {"target", "我喜欢。"}}},
                            {"want", {"tokens"}}})
        .json();
  };
  const Json one = input("I like it."), other = input("I  like it.");
  EXPECT_EQ(one["run"], other["run"]) << "the same ids";
  EXPECT_EQ(one["input"]["source"], "I like it.");
  EXPECT_EQ(other["input"]["source"], "I  like it.");
}

// ---- Work that nobody waits for -------------------------------------------------------------------------------------

// Minutes of work: every edge of a long sentence, cut one by one.
Json long_work() {
  Json ask = {{"model", "tatoeba-zh-en"}, {"input", {{"language", "en"}, {"source", "我喜欢学习中文，"}}}};
  std::string source;
  for (int i = 0; i < 20; ++i) source += "我喜欢学习中文，";
  ask["input"]["source"] = source;
  ask["methods"] = {"first_order", "exact"};
  ask["top"] = 4096;
  return ask;
}

std::int64_t running(int port) {
  Client client(port);
  client.send("GET /api/v1/status HTTP/1.1\r\nHost: 127.0.0.1:" + std::to_string(port) + "\r\n\r\n");
  return client.receive().json()["queue"]["running"];
}

bool comes_to(int port, std::int64_t wanted, std::chrono::milliseconds patience) {
  const auto end = std::chrono::steady_clock::now() + patience;
  while (std::chrono::steady_clock::now() < end) {
    if (running(port) == wanted) return true;
    std::this_thread::sleep_for(5ms);
  }
  return false;
}

TEST_F(Explorer, ANewerRequestOfAClientEndsTheWorkOfTheOlder) {
  Json ask = long_work();
  ask["client"] = "page";
  ask["sequence"] = 1;
  Client older(port());
  older.send(posting("/api/v1/importance", ask.dump()));
  ASSERT_TRUE(comes_to(port(), 1, 10s));
  Json newer = translated();
  newer["client"] = "page";
  newer["sequence"] = 2;
  newer["methods"] = {"weight"};
  EXPECT_EQ(post("importance", newer).status, 200);
  const Client::Response given_up = older.receive(5s);
  EXPECT_EQ(given_up.status, 409);
  EXPECT_EQ(kind_of(given_up), "superseded");
  ask["sequence"] = 1;
  EXPECT_TRUE(comes_to(port(), 0, 5s));
}

TEST_F(Explorer, AClosedConnectionEndsItsWork) {
  for (const bool more_behind : {false, true}) {
    Client client(port());
    client.send(posting("/api/v1/importance", long_work().dump()));
    ASSERT_TRUE(comes_to(port(), 1, 10s));
    if (more_behind) client.send(head("GET", "/api/v1/status") + "\r\n");
    std::this_thread::sleep_for(100ms);
    EXPECT_EQ(running(port()), 1) << "it waits, and is worked for";
    client.close();
    EXPECT_TRUE(comes_to(port(), 0, 10s)) << more_behind;
  }
}

TEST_F(Explorer, AClientThatOnlyEndsItsSendingIsServed) {
  Client client(port());
  client.send(posting("/api/v1/heads", Json{{"model", "tatoeba-zh-en"}}.dump()));
  client.finish_sending();
  Client::Response response = client.receive();
  if (response.status == 100) response = client.receive();
  EXPECT_EQ(response.status, 200) << response.body;
  EXPECT_EQ(response.json()["inputs"], 36);
}

TEST_F(Explorer, FindsHeads) {
  const Json found = post("heads", Json{{"model", "tatoeba-zh-en"}}).json();
  ASSERT_TRUE(found.contains("heads")) << found;
  EXPECT_EQ(found["heads"].size(), 48u);
  EXPECT_EQ(found["inputs"], 36);
  for (const Json& head : found["heads"]) EXPECT_EQ(head["values"].size(), found["metrics"].size());
  const Json own =
      post("heads", Json{{"model", "tang-quatrains"}, {"inputs", {{{"text", "明月几时有"}}, {{"text", "春风"}}}}})
          .json();
  ASSERT_TRUE(own.contains("heads")) << own;
  EXPECT_EQ(own["inputs"], 2);
  EXPECT_EQ(own["heads"].size(), 24u);
  EXPECT_EQ(kind_of(post("heads", Json{{"model", "tang-quatrains"}, {"inputs", {{{"source", "明月"}}}}})), "argument");
}

TEST_F(Explorer, KeepsAConnectionForManyRequests) {
  Client client(port());
  for (int i = 0; i < 100; ++i) {
    ASSERT_TRUE(client.send(posting("/api/v1/attention", small_attention)));
    ASSERT_EQ(client.receive().status, 200) << i;
  }
  // Several at once are answered in their order.
  client.send(head("GET", "/api/v1/status") + "\r\n" + posting("/api/v1/attention", small_attention) +
              head("GET", "/api/v1/nothing") + "\r\n");
  EXPECT_TRUE(client.receive().json().contains("api"));
  EXPECT_TRUE(client.receive().json().contains("heads"));
  EXPECT_EQ(client.receive().status, 404);
}

TEST_F(Explorer, ReadsABodyInPiecesAndAfterContinue) {
  Client client(port());
  client.send(head("POST", "/api/v1/attention",
                   "Content-Type: application/json; charset=utf-8\r\nTransfer-Encoding: chunked\r\n") +
              "\r\n");
  for (const char c : std::string_view(small_attention)) client.send(std::string("1\r\n") + c + "\r\n");
  client.send("0\r\n\r\n");
  EXPECT_EQ(client.receive().status, 200);
  const std::string body = small_attention;
  client.send(head("POST", "/api/v1/attention",
                   "Content-Type: application/json\r\nExpect: 100-continue\r\nContent-Length: " +
                       std::to_string(body.size()) + "\r\n") +
              "\r\n");
  EXPECT_EQ(client.receive().status, 100);
  client.send(body);
  EXPECT_EQ(client.receive().status, 200);
}

// ---- Foreign sites --------------------------------------------------------------------------------------------------
TEST_F(Explorer, RefusesForeignHostsAndOrigins) {
  const auto with = [&](const std::string& headers) {
    Client client(port());
    client.send("GET /api/v1/status HTTP/1.1\r\n" + headers + "\r\n");
    return client.receive();
  };
  const std::string own = "Host: " + host() + "\r\n", number = std::to_string(port());
  EXPECT_EQ(with(own).status, 200);
  EXPECT_EQ(with("Host: localhost:" + number + "\r\n").status, 200);
  for (const std::string& wrong :
       {std::string("Host: evil.example\r\n"), "Host: evil.example:" + number + "\r\n",
        std::string("Host: 127.0.0.1:1\r\n"), std::string("Host: \r\n"), std::string(), own + own,
        "Host: 127.0.0.1:" + number + ".evil.example\r\n", own + "Origin: http://evil.example\r\n",
        own + "Origin: null\r\n", own + "Origin: https://" + host() + "\r\n",
        own + "Origin: http://" + host() + "/\r\n", own + "Origin: http://localhost:1\r\n"}) {
    const Client::Response response = with(wrong);
    EXPECT_EQ(response.status, 403) << wrong;
    EXPECT_EQ(kind_of(response), "refused") << wrong;
  }
  EXPECT_EQ(with(own + "Origin: http://" + host() + "\r\n").status, 200);
  EXPECT_EQ(with(own + "Origin: http://localhost:" + number + "\r\n").status, 200);
}

TEST_F(Explorer, RefusesOtherWaysOfAsking) {
  EXPECT_EQ(get("/api/v1/attention").status, 405);
  EXPECT_EQ(post_text("status", "{}").status, 405);
  EXPECT_EQ(get("/api/v2/status").status, 404);
  EXPECT_EQ(get("/api").status, 404);
  Client client(port());
  client.send(head("POST", "/api/v1/attention", "Content-Type: text/plain\r\nContent-Length: 2\r\n") + "\r\n{}");
  EXPECT_EQ(client.receive().status, 415);
  client.send(head("OPTIONS", "/api/v1/attention", "Origin: http://" + host() + "\r\n") + "\r\n");
  EXPECT_EQ(client.receive().status, 405);
  for (const char* path :
       {"/../etc/passwd", "/%2e%2e/etc/passwd", "/a/../../b.js", "/%00", "/%zz", "/%", "/%ff", "/./app.js"}) {
    const Client::Response response = get(path);
    EXPECT_EQ(response.status, 400) << path;
    EXPECT_EQ(kind_of(response), "format") << path;
  }
  EXPECT_EQ(get("/api/v1/models/..%2f..%2fetc").status, 400);
  EXPECT_EQ(get("/api/v1/models/%E4%B8%AD").status, 404);
}

// ---- Everybody else -------------------------------------------------------------------------------------------------

// A thousand bodies that are no request: each gets a typed error of the 400s, and the server lives on.
TEST_F(Explorer, AnswersAThousandMalformedBodiesWithTypedErrors) {
  const std::string good = small_attention;
  std::mt19937 random(7);
  std::vector<std::string> bodies = {"",
                                     "{",
                                     "[]",
                                     "null",
                                     "NaN",
                                     "{\"x\":[[NaN]]}",
                                     "{\"x\":[[1e999]]}",
                                     "{\"x\":[[1e39]]}",
                                     std::string(100000, '['),
                                     std::string(100000, '{'),
                                     "{\"x\":" + std::string(20, '[') + std::string(20, ']') + "}",
                                     "{\"x\":[[1]],\"x\":[[1]]}",
                                     "{\"x\":\"\xff\xfe\"}",
                                     "{\"x\":[[1,\"2\"]]}",
                                     "{\"x\":{}}",
                                     "{\"heads\":1e300}",
                                     "{\"heads\":-1}",
                                     "{\"heads\":99999999999999999999}",
                                     "{\"client\":7}",
                                     "{\"client\":\"a\",\"sequence\":\"b\"}",
                                     "{\"client\":\"" + std::string(5000, 'a') + "\"}",
                                     std::string("{\"x\":[[1]]}\0", 12)};
  std::string huge = "{\"x\":[";
  for (int row = 0; row < 600; ++row) {
    huge += row ? ",[" : "[";
    for (int column = 0; column < 600; ++column) huge += column ? ",1" : "1";
    huge += "]";
  }
  bodies.push_back(huge + "]}");
  while (bodies.size() < 1000) {
    std::string body = good;
    for (int change = 1 + static_cast<int>(random() % 4); change > 0; --change) {
      const std::size_t at = random() % body.size();
      switch (random() % 3) {
        case 0:
          body[at] = static_cast<char>(random());
          break;
        case 1:
          body.erase(at, 1 + random() % 8);
          break;
        default:
          body.insert(at, 1, "[]{},:\"9e-\\"[random() % 11]);
      }
    }
    bodies.push_back(body);
  }
  int refused = 0;
  Client client(port());
  for (const std::string& body : bodies) {
    ASSERT_TRUE(client.send(posting(refused % 2 ? "/api/v1/attention" : "/api/v1/tokenize", body)))
        << body.substr(0, 200);
    const Client::Response response = client.receive();
    ASSERT_GT(response.status, 0) << body.substr(0, 200);
    if (response.status == 200) continue;  // some changes do no harm
    ++refused;
    EXPECT_TRUE(response.status == 400 || response.status == 404 || response.status == 413)
        << response.status << ' ' << body.substr(0, 200);
    const std::string kind = kind_of(response);
    EXPECT_TRUE(kind == "format" || kind == "argument" || kind == "shape" || kind == "numeric" || kind == "limit" ||
                kind == "unknown")
        << kind;
  }
  EXPECT_GT(refused, 800);
}

TEST_F(Explorer, RefusesWhatIsNoHttp) {
  for (const std::string& bytes :
       {std::string("hello\r\n\r\n"), std::string("GET\r\n\r\n"), std::string("GET / HTTP/9.9\r\n\r\n"),
        std::string(3000, '\xff') + "\r\n\r\n", std::string("GET / HTTP/1.1\r\nHost\r\n\r\n"),
        std::string("POST /api/v1/status HTTP/1.1\r\nContent-Length: -1\r\n\r\n"),
        std::string("POST /api/v1/status HTTP/1.1\r\nContent-Length: 99999999999999999999\r\n\r\n"),
        std::string("POST / HTTP/1.1\r\nContent-Length: 4\r\nTransfer-Encoding: chunked\r\n\r\n"),
        std::string("\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03", 11) + "\r\n\r\n"}) {
    Client client(port());
    client.send(bytes);
    const Client::Response response = client.receive(5s);
    EXPECT_GE(response.status, 400) << bytes.substr(0, 60);
    EXPECT_LT(response.status, 500) << bytes.substr(0, 60);
    EXPECT_TRUE(client.closed(5s)) << "where the next request begins is unknown";
  }
  EXPECT_EQ(get("/api/v1/status", "Long: " + std::string(20000, 'a') + "\r\n").status, 431);
  std::string many;
  for (int i = 0; i < 5000; ++i) many += "H" + std::to_string(i) + ": a\r\n";
  EXPECT_EQ(get("/api/v1/status", many).status, 431);
  EXPECT_EQ(get("/" + std::string(20000, 'a')).status, 431);
}

TEST_F(Explorer, RefusesBodiesBeyondTheLimitAndStillAnswers) {
  const std::string large(9 << 20, ' ');
  const Client::Response response = post_text("attention", large);
  EXPECT_EQ(response.status, 413);
  EXPECT_EQ(kind_of(response), "limit");
  Client chunked(port());
  chunked.send(head("POST", "/api/v1/attention", "Content-Type: application/json\r\nTransfer-Encoding: chunked\r\n") +
               "\r\n");
  const std::string piece = "100000\r\n" + std::string(1 << 20, ' ') + "\r\n";
  for (int i = 0; i < 12 && chunked.send(piece); ++i) {
  }
  EXPECT_EQ(chunked.receive().status, 413);
}

TEST_F(Explorer, SlowAndDroppedConnectionsTakeNothingFromOthers) {
  rlimit files{};
  ::getrlimit(RLIMIT_NOFILE, &files);
  files.rlim_cur = std::min<rlim_t>(files.rlim_max, 4096);
  ::setrlimit(RLIMIT_NOFILE, &files);
  std::vector<std::unique_ptr<Client>> slow;
  const std::string whole = posting("/api/v1/attention", small_attention);
  // More than the server keeps: some send half a head, some half a body, some a request and then nothing, some never
  // read.
  for (int i = 0; i < 400; ++i) {
    slow.push_back(std::make_unique<Client>(port()));
    ASSERT_TRUE(slow.back()->connected) << i;
    if (i % 4 == 0) slow.back()->send(whole.substr(0, 20));
    if (i % 4 == 1) slow.back()->send(whole.substr(0, whole.size() - 5));
    if (i % 4 == 2) slow.back()->send(head("GET", "/app.js") + "\r\n");
    if (i % 16 == 0) {
      const auto begin = std::chrono::steady_clock::now();
      EXPECT_EQ(post_text("attention", small_attention).status, 200) << i;
      EXPECT_LT(std::chrono::steady_clock::now() - begin, 5s);
    }
  }
  for (std::size_t i = 0; i < slow.size(); i += 2) slow[i]->send("X: y\r\n");
  EXPECT_EQ(post_text("attention", small_attention).status, 200);
  // Dropped in the middle of everything.
  for (int i = 0; i < 300; ++i) {
    Client client(port());
    client.send(whole.substr(0, 1 + static_cast<std::size_t>(i * 7919) % whole.size()));
    if (i % 3 == 0) client.finish_sending();
  }
  EXPECT_EQ(post_text("attention", small_attention).status, 200);
}

// ---- Beginning and end ----------------------------------------------------------------------------------------------
TEST(ExplorerProgram, EndsCleanlyOnCtrlC) {
  Program program({"--port", "0"});
  ASSERT_GT(program.port, 0);
  Client idle(program.port);
  EXPECT_EQ(program.end(SIGINT), 0);
}

TEST(ExplorerProgram, ATakenPortIsNamedWithAFreeOne) {
  Program first({"--port", "0"});
  ASSERT_GT(first.port, 0);
  const std::string command =
      std::string("'") + ATTEND_PROGRAM + "' explore --no-browser --port " + std::to_string(first.port) + " 2>&1";
  FILE* pipe = ::popen(command.c_str(), "r");
  ASSERT_NE(pipe, nullptr);
  char text[1000] = "";
  const std::size_t length = std::fread(text, 1, sizeof(text) - 1, pipe);
  text[length] = 0;
  EXPECT_EQ(WEXITSTATUS(::pclose(pipe)), 1);
  EXPECT_NE(std::string(text).find("is taken"), std::string::npos) << text;
  // Which one is free, other programs have a say in.
  const std::string_view said = text;
  const std::size_t at = said.find("--port ");
  ASSERT_NE(at, std::string_view::npos) << text;
  const int free = std::atoi(text + at + 7);
  EXPECT_TRUE((free > first.port && free <= 65535) || free == 0) << text;
}

TEST(ExplorerProgram, ServesTheFoldersItWasGivenAndNoOthers) {
  Program program(
      {"tang-quatrains", "--models", std::string(ATTEND_SOURCE_DIR) + "/weights/tang-quatrains", "--port", "0"});
  ASSERT_GT(program.port, 0);
  const auto get = [&](const std::string& path) {
    Client client(program.port);
    client.send("GET " + path + " HTTP/1.1\r\nHost: localhost:" + std::to_string(program.port) + "\r\n\r\n");
    return client.receive();
  };
  EXPECT_EQ(get("/api/v1/status").json()["models"], Json({"tang-quatrains"}));
  EXPECT_EQ(get("/api/v1/models/tatoeba-zh-en").status, 404);
}

}  // namespace
