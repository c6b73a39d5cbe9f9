#include "explorer/http_server.h"

// Coroutines are not used here, and Boost 1.74 does not know those of clang.
#define BOOST_ASIO_DISABLE_CO_AWAIT
#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <boost/asio.hpp>
#include <boost/beast/core.hpp>
#include <boost/beast/http.hpp>
#include <csignal>
#include <limits>
#include <list>
#include <mutex>
#include <optional>
#include <thread>

#include "attend/unicode.h"
#include "attend/version.h"
#include "explorer/api_error.h"

namespace attend::explorer {
namespace {

namespace asio = boost::asio;
namespace beast = boost::beast;
namespace http = boost::beast::http;
using tcp = asio::ip::tcp;
using Clock = std::chrono::steady_clock;

constexpr const char* policy =
    "default-src 'none'; script-src 'self'; style-src 'self'; font-src 'self'; img-src 'self' data: blob:; connect-src "
    "'self'; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'";

constexpr std::string_view continue_line = "HTTP/1.1 100 Continue\r\n\r\n";

std::string lower(std::string_view text) {
  std::string result(text);
  for (char& c : result)
    if (c >= 'A' && c <= 'Z') c = static_cast<char>(c - 'A' + 'a');
  return result;
}

int digit(char c) {
  if (c >= '0' && c <= '9') return c - '0';
  if (c >= 'a' && c <= 'f') return c - 'a' + 10;
  if (c >= 'A' && c <= 'F') return c - 'A' + 10;
  return -1;
}

// The path of a request target, decoded. Throws ApiError 400.
std::string path_of(std::string_view target) {
  const auto refuse = [](const char* what) {
    throw ApiError(400, "format", "path", what, "ask for / or for what doc/EXPLORER-API.md lists");
  };
  target = target.substr(0, target.find_first_of("?#"));
  if (target.empty() || target.front() != '/') refuse("does not begin with /");
  std::string path;
  for (std::size_t i = 0; i < target.size(); ++i) {
    if (target[i] != '%') {
      path += target[i];
      continue;
    }
    const int high = i + 2 < target.size() ? digit(target[i + 1]) : -1,
              low = i + 2 < target.size() ? digit(target[i + 2]) : -1;
    if (high < 0 || low < 0) refuse("has a % that is no percent-encoding");
    path += static_cast<char>(high * 16 + low);
    i += 2;
  }
  if (path.find('\0') != std::string::npos || find_invalid_utf8(path) != std::string::npos) refuse("is not UTF-8 text");
  for (std::size_t begin = 1; begin <= path.size();) {
    const std::size_t end = std::min(path.find('/', begin), path.size());
    const std::string_view part = std::string_view(path).substr(begin, end - begin);
    if (part == "." || part == "..") refuse("goes up or stays");
    begin = end + 1;
  }
  return path;
}

// "127.0.0.1:8421" from address and port, as browsers write it in Host and Origin.
std::string authority(const std::string& host, std::uint16_t port) {
  return port == 80 ? host : host + ":" + std::to_string(port);
}

std::string bracketed(const asio::ip::address& address) {
  return address.is_v6() ? "[" + address.to_string() + "]" : address.to_string();
}

}  // namespace

class Connection;

struct HttpServer::Core {
  Core(HttpOptions wanted, HttpHandler handle)
      : options(std::move(wanted)), handler(std::move(handle)), acceptor(context), retry(context), signals(context) {}

  const HttpOptions options;
  const HttpHandler handler;
  asio::io_context context;  // outlives all that hangs on it
  tcp::acceptor acceptor;
  asio::steady_timer retry;
  asio::signal_set signals;
  tcp::endpoint endpoint;
  std::vector<std::string> authorities;  // what Host may be
  std::string port_suffix;               // ":8421"; empty for 80
  bool any_address = false;              // bound to all: Host may be any address as a number

  std::mutex mutex;
  std::list<std::weak_ptr<Connection>> connections;

  bool allowed(std::string_view host) const;
  void bind();
  void accept();
  void add(tcp::socket socket);
  void serve();
};

// One client. All its steps run one after the other on its strand.
class Connection : public std::enable_shared_from_this<Connection> {
 public:
  Connection(tcp::socket socket, HttpServer::Core& core)
      : stream_(std::move(socket)),
        looks_(stream_.get_executor()),
        core_(&core),
        buffer_(static_cast<std::size_t>(core_->options.header_bytes) + (64 << 10)) {
    beast::error_code ignored;
    stream_.socket().set_option(tcp::no_delay(true), ignored);
  }

  void start() {
    asio::dispatch(stream_.get_executor(), [self = shared_from_this()] { self->await_request(); });
  }

  // When the client last did something; never while the engine works for it.
  Clock::rep silent_since() const { return silent_since_.load(); }
  static constexpr Clock::rep never = std::numeric_limits<Clock::rep>::max();
  void shut() {
    silent_since_ = never;  // so that the next one is not shut in its place once more
    asio::post(stream_.get_executor(), [self = shared_from_this()] { self->close(); });
  }

 private:
  void close() {
    beast::error_code ignored;
    gone_->store(true);
    stream_.socket().shutdown(tcp::socket::shutdown_both, ignored);
    stream_.close();
  }

  void await_request() {
    silent_since_ = Clock::now().time_since_epoch().count();
    if (buffer_.size() > 0) return read_header();
    stream_.expires_after(core_->options.idle);
    stream_.async_read_some(buffer_.prepare(4096),
                            [self = shared_from_this()](beast::error_code code, std::size_t bytes) {
                              if (code) return self->close();
                              self->buffer_.commit(bytes);
                              self->read_header();
                            });
  }

  void read_header() {
    parser_.emplace();
    parser_->header_limit(static_cast<std::uint32_t>(core_->options.header_bytes));
    parser_->body_limit(static_cast<std::uint64_t>(core_->options.body_bytes));
    stream_.expires_after(core_->options.read);
    http::async_read_header(stream_, buffer_, *parser_,
                            [self = shared_from_this()](beast::error_code code, std::size_t) {
                              if (code) return self->refuse_bytes(code);
                              // curl asks before it sends a large body.
                              if (lower(std::string(self->parser_->get()[http::field::expect])) == "100-continue")
                                return self->send_continue();
                              self->read_body();
                            });
  }

  void send_continue() {
    asio::async_write(stream_, asio::buffer(continue_line.data(), continue_line.size()),
                      [self = shared_from_this()](beast::error_code code, std::size_t) {
                        if (code) return self->close();
                        self->read_body();
                      });
  }

  void read_body() {
    http::async_read(stream_, buffer_, *parser_, [self = shared_from_this()](beast::error_code code, std::size_t) {
      if (code) return self->refuse_bytes(code);
      self->handle();
    });
  }

  // What could not be read as a request. The connection ends with it: where the next one begins is unknown.
  void refuse_bytes(beast::error_code code) {
    keep_ = false;
    if (code == http::error::body_limit)
      return send(error_response(
          ApiError(413, "limit", "body", join("is longer than the ", core_->options.body_bytes, " bytes allowed"))));
    if (code == http::error::header_limit || code == http::error::buffer_overflow)
      return send(error_response(ApiError(431, "limit", "header",
                                          join("is longer than the ", core_->options.header_bytes, " bytes allowed"))));
    const bool dropped =
        code == http::error::end_of_stream || code == http::error::partial_message || code == beast::error::timeout;
    if (dropped || code.category() != http::make_error_code(http::error::end_of_stream).category()) return close();
    send(error_response(ApiError(400, "format", "request", "is not HTTP: " + code.message())));
  }

  void handle() {
    silent_since_ = never;
    http::request<http::string_body> message = parser_->release();
    keep_ = message.keep_alive();
    head_ = message.method() == http::verb::head;
    version_ = message.version();
    HttpRequest request;
    try {
      check_origin(message);
      request.path = path_of({message.target().data(), message.target().size()});
    } catch (const ApiError& error) {
      return send(error_response(error));
    }
    const auto text = [&](http::field field) { return std::string(message[field]); };
    request.method = std::string(message.method_string());
    const std::string type = text(http::field::content_type);
    request.content_type = lower(type.substr(0, type.find_first_of("; \t")));
    request.if_none_match = text(http::field::if_none_match);
    request.body = std::move(message.body());
    gone_ = std::make_shared<std::atomic<bool>>(false);
    request.gone = gone_;
    stream_.expires_never();
    awaiting_answer_ = true;
    asked_ = false;
    watch();
    core_->handler(std::move(request), [self = shared_from_this()](HttpResponse response) {
      asio::post(self->stream_.get_executor(), [self, answer = std::move(response)]() mutable {
        if (!self->awaiting_answer_) return;
        self->awaiting_answer_ = false;
        self->looks_.cancel();
        self->send(std::move(answer));
      });
    });
  }

  // Notices a client that closes while the engine works for it.
  void watch() {
    if (watching_) return;
    watching_ = true;
    stream_.socket().async_wait(tcp::socket::wait_read,
                                [self = shared_from_this()](beast::error_code code) { self->look(!code); });
  }

  // What came may be the next request, the end of what the client sends, or of the client itself. Bytes that wait to be
  // read would end every further wait at once, so from here on it looks from time to time.
  void look(bool open) {
    watching_ = false;
    if (!open || !awaiting_answer_) return;
    pollfd state{stream_.socket().native_handle(), POLLIN | POLLRDHUP, 0};
    ::poll(&state, 1, 0);
    if ((state.revents & (POLLERR | POLLHUP | POLLNVAL)) != 0) {
      gone_->store(true);
      return;
    }
    if ((state.revents & POLLRDHUP) != 0 && !asked_ && version_ >= 11) {
      // Whoever has only ended its sending reads on, and skips this line as every client must; one that has closed
      // answers it with a reset.
      asked_ = true;
      ::send(state.fd, continue_line.data(), continue_line.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
    }
    if ((state.revents & (POLLIN | POLLRDHUP)) == 0) return watch();
    watching_ = true;
    looks_.expires_after(std::chrono::milliseconds(50));
    looks_.async_wait([self = shared_from_this()](beast::error_code code) { self->look(!code); });
  }

  // A page of another site must not reach the engine by a name that it lets point here, nor by a form or script of its
  // own.
  void check_origin(const http::request<http::string_body>& message) const {
    const std::string host = lower(std::string(message[http::field::host]));
    if (message.count(http::field::host) != 1 || !core_->allowed(host)) {
      const std::size_t hosts = message.count(http::field::host);
      throw ApiError(403, "refused", "Host",
                     hosts == 1 ? join("is \"", host.substr(0, 100), "\", which is not the address served")
                                : join("stands ", hosts, " times in the header, and belongs there once"),
                     "open the address that attend explore printed");
    }
    if (message.count(http::field::origin) == 0) return;
    const std::string origin = lower(std::string(message[http::field::origin]));
    if (message.count(http::field::origin) != 1 || !origin.starts_with("http://") ||
        !core_->allowed(origin.substr(7))) {
      throw ApiError(403, "refused", "Origin", join("is \"", origin.substr(0, 100), "\", another site"),
                     "open the page from this server");
    }
  }

  void send(HttpResponse&& response) {
    silent_since_ = Clock::now().time_since_epoch().count();
    auto message = std::make_shared<http::response<http::string_body>>(static_cast<http::status>(response.status),
                                                                       version_ ? version_ : 11u);
    message->set(http::field::server, join("attend/", version()));
    message->set(http::field::content_type, response.content_type);
    message->set("Content-Security-Policy", policy);
    message->set("X-Content-Type-Options", "nosniff");
    message->set("Referrer-Policy", "no-referrer");
    message->set("Cross-Origin-Resource-Policy", "same-origin");
    message->set("Cross-Origin-Opener-Policy", "same-origin");
    bool cache = false;
    for (const auto& [name, value] : response.headers) {
      message->set(name, value);
      cache = cache || name == "Cache-Control";
    }
    if (!cache) message->set(http::field::cache_control, "no-store");
    message->keep_alive(keep_);
    const std::size_t length = response.body.size();
    if (!head_) message->body() = std::move(response.body);
    if (response.status != 304) message->content_length(length);
    stream_.expires_after(core_->options.write);
    const auto done = [self = shared_from_this(), message](beast::error_code code, std::size_t) {
      if (code) return self->close();
      if (self->keep_) return self->await_request();
      self->drain();
    };
    if (!head_) return http::async_write(stream_, *message, done);
    // The header alone, with the length that the body would have.
    auto serializer = std::make_shared<http::response_serializer<http::string_body>>(*message);
    http::async_write_header(stream_, *serializer,
                             [serializer, done](beast::error_code code, std::size_t bytes) { done(code, bytes); });
  }

  // Closing while the client still sends would take the answer from it: what comes is read away for a moment.
  void drain() {
    beast::error_code ignored;
    stream_.socket().shutdown(tcp::socket::shutdown_send, ignored);
    silent_since_ = Clock::now().time_since_epoch().count();
    stream_.expires_after(std::chrono::seconds(2));
    drain_more(std::int64_t{64} << 20);
  }
  void drain_more(std::int64_t left) {
    buffer_.clear();
    stream_.async_read_some(buffer_.prepare(32 << 10),
                            [self = shared_from_this(), left](beast::error_code code, std::size_t bytes) {
                              const std::int64_t rest = left - static_cast<std::int64_t>(bytes);
                              if (code || rest <= 0) return self->close();
                              self->drain_more(rest);
                            });
  }

  beast::tcp_stream stream_;
  asio::steady_timer looks_;
  HttpServer::Core* core_;
  beast::flat_buffer buffer_;
  std::optional<http::request_parser<http::string_body>> parser_;
  std::shared_ptr<std::atomic<bool>> gone_ = std::make_shared<std::atomic<bool>>(false);
  std::atomic<Clock::rep> silent_since_{0};
  unsigned version_ = 11;
  bool keep_ = false, head_ = false, awaiting_answer_ = false, watching_ = false, asked_ = false;
};

bool HttpServer::Core::allowed(std::string_view host) const {
  if (std::find(authorities.begin(), authorities.end(), host) != authorities.end()) return true;
  if (!any_address) return false;
  // Bound to every address: any address as a number, which no foreign name can stand for, with our port.
  if (!host.ends_with(port_suffix)) return false;
  host.remove_suffix(port_suffix.size());
  if (host.starts_with('[') && host.ends_with(']')) host = host.substr(1, host.size() - 2);
  boost::system::error_code code;
  asio::ip::make_address(std::string(host), code);
  return !code;
}

void HttpServer::Core::bind() {
  const std::string host = options.host == "localhost" ? "127.0.0.1" : options.host;
  boost::system::error_code code;
  const asio::ip::address address = asio::ip::make_address(host, code);
  if (code)
    throw Error(ErrorKind::argument, "--host", join("\"", options.host, "\" is no address"),
                "give an address of this machine, such as 127.0.0.1");
  const auto listen = [&](tcp::acceptor& place, std::uint16_t port) {
    boost::system::error_code result;
    const tcp::endpoint wanted(address, port);
    place.open(wanted.protocol(), result);
    if (!result) place.set_option(tcp::acceptor::reuse_address(true), result);
    if (!result) place.bind(wanted, result);
    if (!result) place.listen(asio::socket_base::max_listen_connections, result);
    if (result) {
      boost::system::error_code ignored;
      place.close(ignored);
    }
    return result;
  };
  code = listen(acceptor, options.port);
  if (code == asio::error::address_in_use) {
    for (int port = options.port + 1; port <= std::min(options.port + 100, 65535); ++port) {
      tcp::acceptor trial(context);
      if (listen(trial, static_cast<std::uint16_t>(port))) continue;
      throw Error(ErrorKind::file, join("port ", options.port), "is taken by another program",
                  join("use --port ", port, ", which is free, or --port 0 for any"));
    }
    throw Error(ErrorKind::file, join("port ", options.port), "is taken by another program",
                "use --port 0 for any that is free");
  }
  if (code == boost::system::errc::address_not_available || code == asio::error::address_family_not_supported)
    throw Error(ErrorKind::argument, "--host", join(options.host, " is no address of this machine"));
  if (code)
    throw Error(ErrorKind::file, join(host, " port ", options.port), join("cannot be used: ", code.message()),
                "use another --port");
  endpoint = acceptor.local_endpoint();
  any_address = address.is_unspecified();
  port_suffix = authority("", endpoint.port());
  authorities = {authority("localhost", endpoint.port())};
  if (address.is_loopback() || any_address) {
    authorities.push_back(authority("127.0.0.1", endpoint.port()));
    authorities.push_back(authority("[::1]", endpoint.port()));
  }
  if (!any_address) authorities.push_back(authority(lower(bracketed(address)), endpoint.port()));
}

void HttpServer::Core::accept() {
  acceptor.async_accept(asio::make_strand(context), [this](boost::system::error_code code, tcp::socket socket) {
    if (code == asio::error::operation_aborted) return;
    if (code) {
      // No descriptors left, say: wait until some are closed.
      retry.expires_after(std::chrono::milliseconds(100));
      retry.async_wait([this](boost::system::error_code stopped) {
        if (!stopped) accept();
      });
      return;
    }
    add(std::move(socket));
    accept();
  });
}

void HttpServer::Core::add(tcp::socket socket) {
  auto connection = std::make_shared<Connection>(std::move(socket), *this);
  std::shared_ptr<Connection> silent;
  {
    std::lock_guard lock(mutex);
    std::int64_t alive = 0;
    Clock::rep since = Connection::never;
    for (auto place = connections.begin(); place != connections.end();) {
      const std::shared_ptr<Connection> each = place->lock();
      if (!each) {
        place = connections.erase(place);
        continue;
      }
      ++alive;
      if (each->silent_since() < since) {
        since = each->silent_since();
        silent = each;
      }
      ++place;
    }
    if (alive < options.connections) silent.reset();
    else if (!silent) return;  // the engine works for all of them
    connections.push_back(connection);
  }
  if (silent) silent->shut();
  connection->start();
}

void HttpServer::Core::serve() {
  for (;;) {
    try {
      context.run();
      return;
    } catch (...) {
      // No memory for one step of one connection, say. That connection is gone with its handler; the others go on.
    }
  }
}

HttpServer::HttpServer(HttpOptions options, HttpHandler handler)
    : core_(std::make_unique<Core>(std::move(options), std::move(handler))) {
  core_->bind();
}

HttpServer::~HttpServer() = default;

std::uint16_t HttpServer::port() const { return core_->endpoint.port(); }
bool HttpServer::loopback() const { return core_->endpoint.address().is_loopback(); }

std::string HttpServer::url() const {
  const asio::ip::address address = core_->endpoint.address();
  return "http://" + authority(address.is_unspecified() ? "127.0.0.1" : bracketed(address), port()) + "/";
}

void HttpServer::stop_on_signals() {
  core_->signals.add(SIGINT);
  core_->signals.add(SIGTERM);
  core_->signals.async_wait([this](boost::system::error_code code, int) {
    if (!code) stop();
  });
}

void HttpServer::run() {
  core_->accept();
  // Two, so that reading one large request does not hold up another.
  std::thread second([this] { core_->serve(); });
  core_->serve();
  second.join();
}

void HttpServer::stop() { core_->context.stop(); }

HttpResponse error_response(const ApiError& error) {
  HttpResponse response;
  response.status = error.status();
  response.body = to_json(error);
  if (error.retry_after > 0) response.headers.emplace_back("Retry-After", std::to_string(error.retry_after));
  return response;
}

}  // namespace attend::explorer
