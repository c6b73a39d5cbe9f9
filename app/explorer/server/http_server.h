// HTTP/1.1 over sockets, and nothing of what is served. Connections are cheap and asynchronous: one that sends a byte a
// second or reads nothing holds a socket and a deadline, never a thread. Everything a client controls is bounded.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

namespace attend::explorer {

struct HttpRequest {
  std::string method;  // "GET"
  std::string path;    // percent-decoded, well-formed UTF-8, begins with '/', without "." and ".." parts; no query
  std::string content_type;  // without parameters, in lower case
  std::string if_none_match;
  std::string body;
  std::shared_ptr<const std::atomic<bool>> gone;  // becomes true when the client closes before it was answered
};

struct HttpResponse {
  int status = 200;
  std::string content_type = "application/json";
  std::vector<std::pair<std::string, std::string>> headers;
  std::string body;
};

// May be called on any thread, once.
using HttpReply = std::function<void(HttpResponse)>;
// Called on one of the server's threads; must not block for long and must not throw.
using HttpHandler = std::function<void(HttpRequest, HttpReply)>;

struct HttpOptions {
  std::string host = "127.0.0.1";  // an address, or "localhost"
  std::uint16_t port = 0;          // 0: any that is free
  std::int64_t header_bytes = 16 << 10;
  std::int64_t body_bytes = 8 << 20;
  std::int64_t connections = 128;          // beyond, the one that has been silent longest is closed
  std::chrono::milliseconds idle{75000};   // between two requests
  std::chrono::milliseconds read{20000};   // for a whole request, from its first byte
  std::chrono::milliseconds write{60000};  // for a whole response
};

// Replies may come until the server is destroyed: what gives them has to end before.
class HttpServer {
 public:
  // Binds at once. Error(argument): a host that is no address of this machine. Error(file): the port is taken, with the
  // next free one, or may not be used.
  HttpServer(HttpOptions options, HttpHandler handler);
  ~HttpServer();
  HttpServer(const HttpServer&) = delete;
  HttpServer& operator=(const HttpServer&) = delete;

  std::uint16_t port() const;
  std::string url() const;  // "http://127.0.0.1:8421/"
  bool loopback() const;    // only this machine can reach it

  void stop_on_signals();  // from now on SIGINT and SIGTERM stop it
  void run();              // serves until it is stopped
  void stop();             // from any thread, also before run()

 private:
  friend class Connection;
  struct Core;
  std::unique_ptr<Core> core_;
};

// What an error of HTTP itself is answered with: {"error": ...}.
HttpResponse error_response(const class ApiError& error);

}  // namespace attend::explorer
