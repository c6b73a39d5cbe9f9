#include "explorer/api.h"

#include <algorithm>
#include <bit>
#include <chrono>
#include <cmath>
#include <functional>
#include <tuple>
#include <utility>

#include "attend/machine.h"
#include "attend/threads.h"
#include "attend/unicode.h"
#include "attend/version.h"
#include "explorer/assets.h"
#include "explorer/generation.h"
#include "explorer/heads_answer.h"
#include "explorer/importance_answer.h"
#include "explorer/json_writer.h"
#include "explorer/model_input.h"
#include "explorer/operations.h"
#include "explorer/workbench.h"

namespace attend::explorer {
namespace {

constexpr std::string_view prefix = "/api/v1/";
constexpr std::size_t kept_parsed = 256 << 10;

class Stopwatch {
 public:
  // Milliseconds, to a hundredth.
  double took() const {
    const double exact = std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - begin_).count();
    return static_cast<double>(static_cast<std::int64_t>(exact * 100 + 0.5)) / 100;
  }

 private:
  std::chrono::steady_clock::time_point begin_ = std::chrono::steady_clock::now();
};

HttpResponse json(JsonWriter& out) {
  HttpResponse response;
  response.body = out.take();
  return response;
}

// {"...": ..., "took": 1.2} from what `write`, which may do the work, puts into the object.
template <typename Write>
HttpResponse timed(const Stopwatch& watch, const Write& write) {
  JsonWriter out;
  out.begin_object();
  write(out);
  out.field("took", watch.took());
  out.end_object();
  return json(out);
}

// Fields that may stand in every request and that the queue has read already.
void skip_ticket(Fields& fields) {
  fields.find("client");
  fields.find("sequence");
}

Ticket ticket_of(const Json& body, const std::string& path) {
  Ticket ticket{"", path, 0};
  if (!body.is_object()) return ticket;
  Fields fields(body, "");
  ticket.client = fields.text("client", "");
  if (ticket.client.size() > 256) throw over_limit("client", "bytes", ticket.client.size(), 256);
  ticket.sequence = fields.integer("sequence", 0, INT64_MAX, 0);
  return ticket;
}

// What a model says of one of its attentions.
void write_attention(JsonWriter& out, const TransformerConfig& config, const AttentionPlace& place) {
  const bool self = place.part == Part::self, encoder = place.stack == StackKind::encoder;
  const double scale =
      config.attention_scale != 0 ? config.attention_scale : 1 / std::sqrt(static_cast<double>(config.head_width()));
  out.begin_object();
  out.field("name", name_of(place));
  out.field("stack", name_of(place.stack));
  out.field("layer", place.layer);
  out.field("part", name_of(place.part));
  out.field("heads", config.heads);
  out.field("key_heads", config.key_head_count());
  out.field("head_dim", config.head_width());
  out.field("value_dim", config.head_width());
  out.field("causal", self && (encoder ? config.encoder : config.decoder)->causal);
  out.field("window", self ? config.window : 0);
  out.field("rotary", self && config.positions == PositionKind::rotary);
  out.field("scale", static_cast<float>(scale));
  out.end_object();
}

}  // namespace

Api::Api(std::shared_ptr<ModelStore> models, const Limits& limits)
    : models_(std::move(models)),
      limits_(limits),
      instructions_(instruction_set()),
      routes_{{"attention", {Lane::quick, &Api::attention}},
              {"operation", {Lane::quick, &Api::operation}},
              {"tokenize", {Lane::quick, &Api::tokenize}},
              {"run", {Lane::quick, &Api::run}},
              {"row", {Lane::quick, &Api::row}},
              {"tile", {Lane::quick, &Api::tile}},
              {"importance", {Lane::slow, &Api::importance}},
              {"heads", {Lane::slow, &Api::heads}},
              {"generate", {Lane::slow, &Api::generate}}},
      runs_(limits.cached_bytes),
      quick_(limits.queue),
      slow_(limits.queue) {}

Api::~Api() = default;

void Api::handle(HttpRequest request, HttpReply reply) {
  try {
    answer(request, reply);
  } catch (...) {
    reply(error_response(current_error()));
  }
}

void Api::answer(HttpRequest& request, const HttpReply& reply) {
  const std::string& path = request.path;
  if (path != "/api" && !path.starts_with("/api/")) return serve_page(request, reply);
  if (!path.starts_with(prefix))
    throw ApiError(404, "unknown", "path", join("there is no ", path.substr(0, 100)), "this server speaks /api/v1/");
  const std::string name = path.substr(prefix.size());
  const bool one_model = name.starts_with("models/");
  const auto need_method = [&](std::string_view method) {
    if (request.method != method && !(method == "GET" && request.method == "HEAD"))
      throw ApiError(405, "format", "method", join("is ", request.method.substr(0, 20)), join("use ", method));
  };
  // Runs `compute` in a lane and answers with what it gives or throws.
  const auto submit = [&](WorkQueue& lane, Ticket ticket, std::function<HttpResponse(const StopSignal&)> compute) {
    lane.submit(
        std::move(ticket), request.gone,
        [reply, compute = std::move(compute)](const StopSignal& stop) {
          HttpResponse response;
          try {
            response = compute(stop);
          } catch (...) {
            response = error_response(current_error());
          }
          reply(std::move(response));
        },
        [reply](const ApiError& error) { reply(error_response(error)); });
  };
  if (name == "status" || name == "models" || one_model) {
    need_method("GET");
    if (name == "status") return reply(status());
    return submit(quick_, {"", "models", 0},
                  [this, one_model, name](const StopSignal&) { return one_model ? model(name.substr(7)) : models(); });
  }
  const auto route = routes_.find(name);
  if (route == routes_.end()) {
    std::vector<std::string> known{"status", "models"};
    for (const auto& [each, unused] : routes_) known.push_back(each);
    throw unknown_name("path", join("there is no ", path.substr(0, 100)), name, known);
  }
  need_method("POST");
  if (request.content_type != "application/json")
    throw ApiError(415, "format", "Content-Type", join("is \"", request.content_type.substr(0, 60), '"'),
                   "use application/json");
  Json body = parse_json(request.body);
  WorkQueue& lane = route->second.lane == Lane::quick ? quick_ : slow_;
  Ticket ticket = ticket_of(body, name);
  const Compute compute = route->second.compute;
  if (request.body.size() <= kept_parsed) {
    submit(lane, std::move(ticket),
           [this, compute, parsed = std::make_shared<const Json>(std::move(body))](const StopSignal& stop) {
             return (this->*compute)(*parsed, stop);
           });
  } else {
    // Read, a text can take twenty times its size: while it waits it is kept as text.
    body = Json();
    submit(lane, std::move(ticket),
           [this, compute, text = std::make_shared<const std::string>(std::move(request.body))](
               const StopSignal& stop) { return (this->*compute)(parse_json(*text), stop); });
  }
}

HttpResponse Api::attention(const Json& body, const StopSignal&) {
  const Stopwatch watch;
  const WorkbenchResult result = run_workbench(workbench_request(body, limits_), limits_);
  return timed(watch, [&](JsonWriter& out) { write_workbench(out, result); });
}

HttpResponse Api::operation(const Json& body, const StopSignal&) {
  const Stopwatch watch;
  const Tensor output = run_operation(body, limits_);
  return timed(watch, [&](JsonWriter& out) { out.key("output").rows(output); });
}

HttpResponse Api::tokenize(const Json& body, const StopSignal& stop) {
  Fields fields(body, "");
  skip_ticket(fields);
  const std::shared_ptr<const LoadedModel> loaded = models_->get(fields.text("model"));
  SubjectTexts texts = input_request(fields, "input", limits_);
  fields.finish();
  const Stopwatch watch;
  const Subject subject = read_input(*loaded, std::move(texts), limits_, false, [&] { return stop.stopped(); });
  return timed(watch, [&](JsonWriter& out) { write_tokens(out, *loaded, subject); });
}

std::shared_ptr<const Run> Api::run_of(Fields& request, bool statistics, const StopSignal& stop, SubjectTexts* input) {
  skip_ticket(request);
  const std::shared_ptr<const LoadedModel> loaded = models_->get(request.text("model"));
  const Subject subject =
      read_input(*loaded, input_request(request, "input", limits_), limits_, true, [&] { return stop.stopped(); });
  const std::shared_ptr<const RunEdits> edits = read_edits(request, *loaded, rows_of(subject.input), limits_, stop);
  // Everything else was asked for before: what is misspelt is refused before anything is computed.
  request.finish();
  if (input) *input = subject.texts;
  return runs_.get(loaded, subject, edits, statistics, stop);
}

HttpResponse Api::run(const Json& body, const StopSignal& stop) {
  Fields fields(body, "");
  RunWants wants;
  if (fields.find("want")) {
    wants.tokens = wants.statistics = wants.predictions = wants.checks = false;
    for (const std::string& want : fields.texts("want", 16)) {
      if (want == "tokens") wants.tokens = true;
      else if (want == "statistics") wants.statistics = true;
      else if (want == "predictions") wants.predictions = true;
      else if (want == "checks") wants.checks = true;
      else
        throw Error(ErrorKind::argument, "want", join("holds \"", want.substr(0, 40), '"'),
                    "use tokens, statistics, predictions, checks");
    }
  }
  wants.top = fields.integer("top", 1, 50, wants.top);
  const Json* list = fields.find("edits");
  const std::size_t edits = list ? list->size() : 0;
  const Stopwatch watch;
  SubjectTexts input;
  const std::shared_ptr<const Run> found = run_of(fields, wants.statistics || wants.checks, stop, &input);
  return timed(watch, [&](JsonWriter& out) { write_run(out, *found, input, wants, edits, stop); });
}

HttpResponse Api::row(const Json& body, const StopSignal& stop) {
  Fields fields(body, "");
  const std::string attention = fields.text("attention");
  RowRequest request;
  request.head = fields.integer("head", 0, INT32_MAX);
  request.query = fields.integer("query", 0, INT32_MAX);
  request.keys = fields.integers("keys", 0, INT32_MAX, limits_.row_keys);
  const Stopwatch watch;
  const std::shared_ptr<const Run> found = run_of(fields, false, stop);
  request.place = attention_named(attention, found->model());
  return timed(watch, [&](JsonWriter& out) { write_row(out, *found, request, limits_, stop); });
}

HttpResponse Api::tile(const Json& body, const StopSignal& stop) {
  Fields fields(body, "");
  const std::string attention = fields.text("attention");
  TileRequest request;
  const Json& heads = fields.need("heads");
  const bool all = heads.is_string() && heads == "all";
  if (!all) request.heads = fields.integers("heads", 0, INT32_MAX, 1024);
  const std::string what = fields.choice("what", {"weights", "scores", "products"}, "weights");
  request.what = what == "weights"  ? TileRequest::What::weights
                 : what == "scores" ? TileRequest::What::scores
                                    : TileRequest::What::products;
  request.reduce = fields.integer("reduce", 1, 4096, 1);
  request.mean = fields.choice("by", {"max", "mean"}, "max") == "mean";
  fields.find("queries");
  fields.find("keys");
  const Stopwatch watch;
  const std::shared_ptr<const Run> found = run_of(fields, false, stop);
  request.place = attention_named(attention, found->model());
  const std::shared_ptr<const AttentionRecord> record = found->record(request.place, stop);
  std::tie(request.query_begin, request.query_end) = fields.range("queries", record->queries());
  std::tie(request.key_begin, request.key_end) = fields.range("keys", record->keys());
  const std::int64_t count = record->rules.query_heads;
  if (all)
    for (std::int64_t head = 0; head < count; ++head) request.heads.push_back(head);
  for (const std::int64_t head : request.heads)
    if (head >= count)
      throw Error(ErrorKind::argument, "heads", join("names head ", head), join("there are 0 to ", count - 1));
  if (request.heads.empty()) throw Error(ErrorKind::argument, "heads", "is empty", "name some, or \"all\"");
  const std::int64_t cells = static_cast<std::int64_t>(request.heads.size()) * request.rows() * request.columns();
  if (cells > limits_.tile_cells)
    throw over_limit("tile", "cells", cells, limits_.tile_cells, "ask for a part, or for a larger reduce");
  const std::vector<float> values = tile_of(*found, request, stop);
  HttpResponse response;
  response.content_type = "application/octet-stream";
  response.headers = {{"Attend-Shape", join(request.heads.size(), ',', request.rows(), ',', request.columns())},
                      {"Attend-Took", join(watch.took())}};
  response.body.resize(values.size() * sizeof(float));
  for (std::size_t i = 0; i < values.size(); ++i) {
    // Little endian on every machine.
    const auto bits = std::bit_cast<std::uint32_t>(values[i]);
    for (std::size_t byte = 0; byte < 4; ++byte)
      response.body[4 * i + byte] = static_cast<char>(bits >> (8 * byte) & 0xFF);
  }
  return response;
}

HttpResponse Api::importance(const Json& body, const StopSignal& stop) {
  Fields fields(body, "");
  ImportanceRequest request;
  if (const Json* value = fields.find("target")) {
    Fields target(*value, "target");
    const auto index = [&](const char* name) { return target.integer(name, 0, INT32_MAX); };
    if (target.find("row")) request.row = index("row");
    if (target.find("token")) request.token = static_cast<std::int32_t>(index("token"));
    if (target.find("versus")) request.versus = static_cast<std::int32_t>(index("versus"));
    target.finish();
    if (request.versus && !request.token)
      throw Error(ErrorKind::argument, "target.token", "is missing", "name it beside versus");
  }
  if (fields.find("methods")) {
    request.methods.clear();
    for (const std::string& method : fields.texts("methods", 4)) request.methods.push_back(edge_measure_named(method));
    if (request.methods.empty())
      throw Error(ErrorKind::argument, "methods", "is empty", "use weight, write, first_order, exact");
  }
  std::string attention;
  if (fields.find("attention")) attention = fields.text("attention");
  if (fields.find("head")) request.head = fields.integer("head", 0, INT32_MAX);
  if (fields.find("query")) request.query = fields.integer("query", 0, INT32_MAX);
  if ((request.head && attention.empty()) || (request.query && attention.empty()))
    throw Error(ErrorKind::argument, "attention", "is missing", "name it beside head and query");
  request.top = fields.integer("top", 1, limits_.exact_edges, request.top);
  const Stopwatch watch;
  const std::shared_ptr<const Run> found = run_of(fields, false, stop);
  if (!attention.empty()) request.place = attention_named(attention, found->model());
  return timed(watch, [&](JsonWriter& out) { write_importance(out, *found, request, limits_, stop); });
}

HttpResponse Api::heads(const Json& body, const StopSignal& stop) {
  Fields fields(body, "");
  skip_ticket(fields);
  std::vector<SubjectTexts> inputs;
  if (const Json* list = fields.find("inputs")) {
    if (!list->is_array())
      throw Error(ErrorKind::argument, "inputs", "is no array of inputs", "leave it out for the examples");
    if (static_cast<std::int64_t>(list->size()) > limits_.heads_inputs)
      throw over_limit("inputs", "inputs", list->size(), limits_.heads_inputs);
    for (std::size_t i = 0; i < list->size(); ++i)
      inputs.push_back(input_request((*list)[i], join("inputs[", i, ']'), limits_));
  }
  const std::shared_ptr<const LoadedModel> loaded = models_->get(fields.text("model"));
  fields.finish();
  const Stopwatch watch;
  return timed(watch, [&](JsonWriter& out) { write_heads(out, *loaded, std::move(inputs), limits_, stop); });
}

HttpResponse Api::generate(const Json& body, const StopSignal& stop) {
  Fields fields(body, "");
  skip_ticket(fields);
  GenerationRequest request;
  request.steps = fields.integer("steps", 1, limits_.generate_steps, 32);
  request.top = fields.integer("top", 1, 50, request.top);
  for (const std::int64_t id : fields.integers("prefix_ids", 0, INT32_MAX, limits_.generate_steps))
    request.prefix.push_back(static_cast<std::int32_t>(id));
  if (const Json* value = fields.find("method")) {
    Fields method(*value, "method");
    const std::string kind = method.choice("kind", {"greedy", "beam", "sample"});
    if (kind == "beam") {
      request.strategy = Strategy::beam;
      request.beams = method.integer("beams", 1, limits_.beams, request.beams);
      request.n_best = method.integer("n_best", 1, request.beams, 1);
    } else if (kind == "sample") {
      request.strategy = Strategy::sample;
      request.temperature = method.number("temperature", 1);
      request.top_k = method.integer("top_k", 0, INT32_MAX, 0);
      request.top_p = method.number("top_p", 1);
      request.seed = static_cast<std::uint64_t>(method.integer("seed", 0, INT64_MAX, 1));
    }
    method.finish();
  }
  const std::shared_ptr<const LoadedModel> loaded = models_->get(fields.text("model"));
  if (!loaded->config().decoder)
    throw Error(ErrorKind::argument, "model", join(loaded->name, " has no decoder, so it writes nothing"),
                "choose another");
  SubjectTexts texts = input_request(fields, "input", limits_);
  // That is what is written.
  texts.target.reset();
  texts.target_ids.reset();
  const Subject subject = read_input(*loaded, std::move(texts), limits_, false, [&] { return stop.stopped(); });
  // With the rows that are still to be written: edits may name them.
  StackRows rows = rows_of(subject.input);
  rows.decoder = std::max<std::int64_t>(1, rows.decoder) + request.steps;
  if (fields.find("watch")) {
    request.watch = attention_named(fields.text("watch"), *loaded);
    if (request.watch->stack != StackKind::decoder)
      throw Error(ErrorKind::argument, "watch", "is an attention of the encoder, which does not read step by step",
                  "name one of the decoder, or take its weights from /tile");
    // The first step reads the prompt at once, and every step tells one row a head.
    const std::int64_t keys = request.watch->part == Part::cross ? rows.encoder : rows.decoder;
    if (const std::int64_t cells = loaded->config().heads * rows.decoder * keys; cells > limits_.tile_cells)
      throw over_limit("watch", "weights", cells, limits_.tile_cells);
  }
  const std::shared_ptr<const RunEdits> edits = read_edits(fields, *loaded, rows, limits_, stop);
  fields.finish();
  const Stopwatch watch;
  const Generation made = generate_openly(*loaded, subject.input, *edits, request, stop);
  return timed(watch, [&](JsonWriter& out) { write_generation(out, *loaded, subject.input, made, request); });
}

HttpResponse Api::status() const {
  const WorkQueue::State quick = quick_.state(), slow = slow_.state();
  JsonWriter out;
  out.begin_object();
  out.field("api", 1);
  out.field("version", version());
  out.field("threads", threads());
  out.field("instructions", instructions_);
  out.field("models", models_->names());
  out.field("default_model", models_->default_name());
  out.key("queue").begin_object();
  out.field("running", quick.running + slow.running);
  out.field("waiting", quick.waiting + slow.waiting);
  out.field("seconds", std::max(quick.seconds, slow.seconds));
  out.end_object();
  out.key("limits").begin_object();
  out.field("body_bytes", limits_.body_bytes);
  out.field("rows", limits_.rows);
  out.field("cells", limits_.cells);
  out.field("tokens", limits_.tokens);
  out.field("tile_cells", limits_.tile_cells);
  out.field("row_keys", limits_.row_keys);
  out.field("generate_steps", limits_.generate_steps);
  out.field("beams", limits_.beams);
  out.field("edits", limits_.edits);
  out.field("heads_inputs", limits_.heads_inputs);
  out.field("exact_edges", limits_.exact_edges);
  out.field("cached_bytes", limits_.cached_bytes);
  out.field("queue", limits_.queue);
  out.end_object();
  out.end_object();
  return json(out);
}

HttpResponse Api::models() const {
  JsonWriter out;
  out.begin_object();
  out.key("models").begin_array();
  for (const ModelStore::Summary& summary : models_->list()) {
    out.begin_object();
    out.field("name", summary.name);
    out.key("family");
    if (summary.family.empty()) out.null();
    else out.value(summary.family);
    out.field("loaded", summary.loaded);
    out.field("bytes", summary.bytes);
    out.key("error");
    if (!summary.error) {
      out.null();
    } else {
      // The object inside {"error": ...}.
      const std::string text = to_json(*summary.error);
      constexpr std::string_view before = "{\"error\":";
      out.raw(std::string_view(text).substr(before.size(), text.size() - before.size() - 1));
    }
    out.end_object();
  }
  out.end_array();
  out.end_object();
  return json(out);
}

HttpResponse Api::model(const std::string& name) const {
  const std::shared_ptr<const LoadedModel> loaded = models_->get(name);
  const Stopwatch watch;
  const Model& model = loaded->folder.model;
  const TransformerConfig& config = model.config();
  const Task& task = loaded->folder.task;
  return timed(watch, [&](JsonWriter& out) {
    out.field("name", loaded->name);
    out.field("title", loaded->title);
    out.field("family", family_of(config));
    out.field("fingerprint", loaded->fingerprint);
    out.field("parameters", model.parameter_count());
    out.field("bytes", loaded->bytes);
    out.key("config").raw(to_json(config));
    out.key("attentions").begin_array();
    const bool both = config.encoder && config.decoder;
    for (const AttentionPlace& place : attentions_of(config)) write_attention(out, config, place);
    out.end_array();
    out.key("sites").begin_array();
    for (const Site& site : model.sites()) out.value(name_of(site));
    out.end_array();
    out.key("inputs").begin_array();
    const auto input = [&](const char* input_name) {
      out.begin_object();
      out.field("name", input_name);
      out.field("max_tokens", std::min(config.max_positions, limits_.tokens));
      out.end_object();
    };
    if (both) input("source"), input("target");
    else input("text");
    out.end_array();
    out.key("languages").begin_array();
    for (const std::string& language : languages_into(task)) {
      const auto tag = task.target_tags.find(language);
      out.begin_object();
      out.field("name", language);
      out.field("tag", tag == task.target_tags.end() ? std::string() : tag->second);
      out.end_object();
    }
    out.end_array();
    const std::int64_t cache =
        config.decoder ? config.decoder->layers * 2 * config.key_head_count() * config.head_width() * 4 : 0;
    out.field("cache_bytes_per_token", cache);
    out.key("examples").begin_array();
    for (const SubjectTexts& example : example_inputs(*loaded)) write_input(out, example);
    out.end_array();
    out.field("load_ms", loaded->load_ms);
  });
}

void Api::serve_page(const HttpRequest& request, const HttpReply& reply) {
  if (request.method != "GET" && request.method != "HEAD")
    throw ApiError(405, "format", "method", join("is ", request.method.substr(0, 20)), "use GET");
  const std::string_view path = request.path == "/" ? std::string_view("/index.html") : request.path;
  const Asset* asset = find_asset(path);
  if (!asset) throw ApiError(404, "unknown", "path", join("there is no ", request.path.substr(0, 100)), "open /");
  HttpResponse response;
  response.content_type = media_type(path);
  const std::string tag = entity_tag(asset->bytes);
  response.headers = {{"ETag", tag}, {"Cache-Control", "no-cache"}};
  if (request.if_none_match.find(tag) != std::string::npos) response.status = 304;
  else response.body = asset->bytes;
  reply(std::move(response));
}

}  // namespace attend::explorer
