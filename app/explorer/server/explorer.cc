#include "explorer/explorer.h"

#include <memory>
#include <optional>

#include "explorer/api.h"

namespace attend::explorer {

void explore(const ExplorerOptions& options, const std::function<void(const ExplorerStart&)>& ready) {
  auto models = std::make_shared<ModelStore>(options.models, options.preferred);
  ExplorerStart start;
  start.skipped = models->skipped();
  // The jobs of the interface end before the sockets they answer to.
  std::optional<Api> api;
  HttpOptions http;
  http.host = options.host;
  http.port = options.port;
  http.body_bytes = options.limits.body_bytes;
  HttpServer server(http,
                    [&](HttpRequest request, HttpReply reply) { api->handle(std::move(request), std::move(reply)); });
  struct End {
    std::optional<Api>& api;
    ~End() { api.reset(); }
  } const end{api};
  api.emplace(std::move(models), options.limits);
  server.stop_on_signals();
  start.url = server.url();
  start.loopback = server.loopback();
  ready(start);
  server.run();
}

}  // namespace attend::explorer
