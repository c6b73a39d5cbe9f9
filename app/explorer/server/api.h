// The interface of doc/EXPLORER-API.md: which path does what, on which lane, within which limits. Knows HTTP only as
// requests and responses.
#pragma once

#include <map>
#include <memory>
#include <string>

#include "explorer/http_server.h"
#include "explorer/json_request.h"
#include "explorer/limits.h"
#include "explorer/model_store.h"
#include "explorer/runs.h"
#include "explorer/work_queue.h"

namespace attend::explorer {

class Api {
 public:
  Api(std::shared_ptr<ModelStore> models, const Limits& limits);
  ~Api();

  // Answers /api/... and the page's files. Never throws.
  void handle(HttpRequest request, HttpReply reply);

 private:
  using Compute = HttpResponse (Api::*)(const Json& body, const StopSignal& stop);
  // What takes long waits in a lane of its own, so that it never holds up a drag.
  enum class Lane { quick, slow };
  struct Route {
    Lane lane;
    Compute compute;
  };

  void answer(HttpRequest& request, const HttpReply& reply);
  void serve_page(const HttpRequest& request, const HttpReply& reply);
  // The run that a request's model, input and edits describe; into `input`, if any, goes that input, completed.
  std::shared_ptr<const Run> run_of(Fields& request, bool statistics, const StopSignal& stop,
                                    SubjectTexts* input = nullptr);
  HttpResponse attention(const Json& body, const StopSignal& stop);
  HttpResponse operation(const Json& body, const StopSignal& stop);
  HttpResponse tokenize(const Json& body, const StopSignal& stop);
  HttpResponse run(const Json& body, const StopSignal& stop);
  HttpResponse row(const Json& body, const StopSignal& stop);
  HttpResponse tile(const Json& body, const StopSignal& stop);
  HttpResponse importance(const Json& body, const StopSignal& stop);
  HttpResponse heads(const Json& body, const StopSignal& stop);
  HttpResponse generate(const Json& body, const StopSignal& stop);
  HttpResponse status() const;
  HttpResponse models() const;
  HttpResponse model(const std::string& name) const;

  std::shared_ptr<ModelStore> models_;
  Limits limits_;
  const std::string instructions_;
  const std::map<std::string, Route> routes_;  // of POST
  RunCache runs_;
  // Last, so that their threads end before what they use.
  WorkQueue quick_, slow_;
};

}  // namespace attend::explorer
