#include "explorer/explorer.h"

#include <stdlib.h>  // __GLIBC__
#ifdef __GLIBC__
#include <malloc.h>
#endif

#include <memory>
#include <optional>

#include "explorer/api.h"

namespace attend::explorer {

void explore(const ExplorerOptions& options, const std::function<void(const ExplorerStart&)>& ready) {
#ifdef __GLIBC__
  // Large blocks in mappings of their own, which go back to the system the moment they are freed. Left alone the C library
  // raises this threshold to the largest block ever freed (up to 32 MiB), and tensors and answers of megabytes then lie in
  // the heaps of threads, between small blocks that stay.
  mallopt(M_MMAP_THRESHOLD, 1 << 20);
#endif
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
