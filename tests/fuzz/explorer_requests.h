// Requests to the explorer's interface as text: the first line names the operation, the rest is the body. Small models of
// every family answer them, within small limits, so that what is allowed is computed quickly.
#pragma once

#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <future>
#include <iterator>
#include <memory>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "attend/tokenizer.h"
#include "explorer/api.h"

namespace attend::explorer {

class SmallApi {
 public:
  SmallApi() {
    const std::filesystem::path folder =
        std::filesystem::temp_directory_path() / ("attend-requests-" + std::to_string(::getpid()));
    save_model(folder / "pair", true, true);
    save_model(folder / "decoder", false, true);
    save_model(folder / "encoder", true, false);
    auto models = std::make_shared<ModelStore>(std::vector<std::filesystem::path>{folder});
    for (const std::string& name : models->names()) models->get(name);
    std::filesystem::remove_all(folder);
    api_ = std::make_unique<Api>(models, limits());
  }

  HttpResponse answer(const std::string& text) {
    const std::size_t line = std::min(text.find('\n'), text.size());
    HttpRequest request;
    request.method = line == text.size() ? "GET" : "POST";
    request.path = "/api/v1/" + text.substr(0, line);
    request.content_type = "application/json";
    request.body = text.substr(std::min(line + 1, text.size()));
    request.gone = std::make_shared<std::atomic<bool>>(false);
    std::promise<HttpResponse> answer;
    api_->handle(std::move(request), [&](HttpResponse response) { answer.set_value(std::move(response)); });
    return answer.get_future().get();
  }

  // "" where the answer is what a client may be given: JSON or a tile, and no defect of the server's.
  std::string complaint(const std::string& text) {
    const HttpResponse response = answer(text);
    const bool json = response.content_type == "application/json";
    if (response.status != 500 && response.status != 503 && (!json || Json::accept(response.body))) return {};
    return std::to_string(response.status) + " " + response.body.substr(0, 2000);
  }

 private:
  static Limits limits() {
    Limits limits;
    limits.rows = 16;
    limits.cells = 1024;
    limits.edits = 8;
    limits.tokens = 16;
    limits.tile_cells = 4096;
    limits.generate_steps = 6;
    limits.beams = 3;
    limits.heads_inputs = 4;
    limits.exact_edges = 32;
    limits.cached_bytes = 4 << 20;
    return limits;
  }

  // A model that reads the letters a to h.
  static void save_model(const std::filesystem::path& folder, bool encoder, bool decoder) {
    const auto tokenizer = train_character(CharacterOptions{}, "abcdefgh");
    StackConfig stack;
    stack.layers = 2;
    stack.vocabulary = tokenizer->size();
    TransformerConfig config;
    config.width = 8;
    config.heads = 2;
    config.inner_width = 16;
    config.max_positions = 24;
    if (encoder) config.encoder = stack;
    stack.causal = true;
    if (decoder) config.decoder = stack;
    if (!encoder) config.positions = PositionKind::rotary;
    Task task;
    task.kind = encoder && decoder ? Task::Kind::translate : Task::Kind::generate;
    if (encoder && decoder) task.languages = {"zh", "en"};
    save_model_folder(folder, Model(config, 1), encoder ? tokenizer.get() : nullptr,
                      decoder ? tokenizer.get() : nullptr, task);
  }

  std::unique_ptr<Api> api_;
};

// Changes requests as their JSON is built: values become other values, ends of ranges, or parts of other requests.
class RequestMutator {
 public:
  explicit RequestMutator(std::uint64_t seed) : random_(seed) {}

  std::string mutated(const std::string& request, const std::vector<std::string>& others) {
    const std::size_t line = request.find('\n');
    Json body = line == std::string::npos ? Json() : Json::parse(request.substr(line + 1), nullptr, false);
    if (!body.is_structured()) return request;
    const std::string& other = others.empty() ? request : others[below(others.size())];
    const std::size_t other_line = other.find('\n');
    Json lender = other_line == std::string::npos ? Json() : Json::parse(other.substr(other_line + 1), nullptr, false);
    for (std::size_t change = 0, count = 1 + below(3); change < count; ++change) {
      std::vector<Json*> nodes, lent;
      collect(body, nodes);
      if (lender.is_structured()) collect(lender, lent);
      // The whole body seldom: what is no object any more is refused at once.
      const std::size_t first = nodes.size() > 1 && below(16) != 0 ? 1 : 0;
      change_node(*nodes[first + below(nodes.size() - first)], lent);
    }
    // Now and then another operation reads the body.
    const std::string& name = below(16) == 0 && other_line != std::string::npos ? other : request;
    return name.substr(0, name.find('\n')) + '\n' + body.dump(-1, ' ', false, Json::error_handler_t::replace);
  }

 private:
  std::size_t below(std::size_t count) { return static_cast<std::size_t>(random_() % count); }

  static void collect(Json& node, std::vector<Json*>& nodes) {
    nodes.push_back(&node);
    if (node.is_structured())
      for (Json& inside : node) collect(inside, nodes);
  }

  Json odd_value() {
    static const std::vector<Json> values = {nullptr,
                                             true,
                                             0,
                                             -1,
                                             1,
                                             2,
                                             3,
                                             5,
                                             17,
                                             24,
                                             255,
                                             INT32_MAX,
                                             std::int64_t{INT32_MAX} + 1,
                                             INT32_MIN,
                                             INT64_MAX,
                                             INT64_MIN,
                                             UINT64_MAX,
                                             0.5,
                                             -0.0,
                                             1e-300,
                                             1e-45,
                                             3.4e38,
                                             1e39,
                                             1e300,
                                             3.0,
                                             "",
                                             "a",
                                             "abcabc",
                                             "abcdefghabcdefghabcdefgh",
                                             "学",
                                             std::string(1, '\0'),
                                             "all",
                                             "decoder.0.self",
                                             "encoder.1.self",
                                             "decoder.1.cross",
                                             "decoder.logits",
                                             "decoder.0.self.weights",
                                             "decoder.1.cross.key",
                                             "decoder.final_norm",
                                             "encoder.embedded",
                                             "pair",
                                             "decoder",
                                             "encoder",
                                             Json::array(),
                                             Json::object(),
                                             Json::array({Json::array()}),
                                             Json::array({Json::array({1, 2})}),
                                             Json::array({0, 1, 2, 3}),
                                             Json::array({0, 0})};
    return values[below(values.size())];
  }

  void change_node(Json& node, const std::vector<Json*>& lent) {
    switch (below(8)) {
      case 0:
      case 1:
        node = odd_value();
        break;
      case 2:
      case 3:
        if (!lent.empty()) node = Json(*lent[below(lent.size())]);
        break;
      case 4:
        // Round the ends as well: a neighbour of the largest number is the smallest.
        if (node.is_number_integer())
          node = static_cast<std::int64_t>(node.get<std::uint64_t>() + static_cast<std::uint64_t>(below(5)) - 2);
        else if (node.is_number()) node = node.get<double>() * (below(2) == 0 ? -1 : 1e6);
        break;
      case 5:
        if (node.is_array() && !node.empty()) node.push_back(Json(node[below(node.size())]));
        else if (node.is_object() && !lent.empty())
          if (const Json& one = *lent[below(lent.size())]; one.is_object()) node.update(Json(one));
        break;
      case 6:
        if (node.is_array() && !node.empty())
          node.erase(node.begin() + static_cast<std::ptrdiff_t>(below(node.size())));
        else if (node.is_object() && !node.empty())
          node.erase(std::next(node.begin(), static_cast<std::ptrdiff_t>(below(node.size()))));
        break;
      default:
        if (node.is_string()) node = node.get<std::string>() + static_cast<char>('a' + below(9));
        else node = Json::array({node});
    }
  }

  std::mt19937_64 random_;
};

// The requests to start from, tests/fuzz/explorer_requests.
inline std::vector<std::string> example_requests() {
  std::vector<std::filesystem::path> paths;
  for (const auto& entry :
       std::filesystem::directory_iterator(std::filesystem::path(ATTEND_SOURCE_DIR) / "tests/fuzz/explorer_requests"))
    paths.push_back(entry.path());
  std::sort(paths.begin(), paths.end());
  std::vector<std::string> requests;
  for (const auto& path : paths) {
    std::ifstream file(path, std::ios::binary);
    requests.emplace_back(std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>());
  }
  return requests;
}

}  // namespace attend::explorer
