// What the explorer's interface answers when it cannot do what was asked (doc/EXPLORER-API.md, "Superseding and
// errors").
#pragma once

#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "attend/error.h"
#include "explorer/json_writer.h"

namespace attend::explorer {

// What went wrong as a program reads it, so that a page can say it in its reader's words: a word that stays the same, and
// what was found and what is needed, as JSON texts ("" for none).
struct ErrorDetail {
  std::string code, found, expected;
};

template <typename Value>
std::string as_json(const Value& value) {
  JsonWriter out;
  out.value(value);
  return out.take();
}

inline ErrorDetail detail(std::string code) { return {std::move(code), {}, {}}; }
template <typename Found>
ErrorDetail detail(std::string code, const Found& found) {
  return {std::move(code), as_json(found), {}};
}
template <typename Found, typename Expected>
ErrorDetail detail(std::string code, const Found& found, const Expected& expected) {
  return {std::move(code), as_json(found), as_json(expected)};
}

// An Error of the engine's kinds with a detail; answered with 400.
class RequestError : public Error {
 public:
  RequestError(ErrorKind error_kind, std::string where, std::string what_happened, std::string advice,
               ErrorDetail found)
      : Error(error_kind, std::move(where), std::move(what_happened), std::move(advice)), detail(std::move(found)) {}

  ErrorDetail detail;
};

// The engine's own Error is answered with 400 and its kind; this one adds what only a server knows.
class ApiError : public std::runtime_error {
 public:
  ApiError(int status, std::string kind, std::string where, std::string what_happened, std::string advice = {})
      : std::runtime_error(where + ": " + what_happened),
        status_(status),
        kind_(std::move(kind)),
        where_(std::move(where)),
        what_happened_(std::move(what_happened)),
        advice_(std::move(advice)) {}

  int status() const { return status_; }
  const std::string& kind() const { return kind_; }
  const std::string& where() const { return where_; }
  const std::string& what_happened() const { return what_happened_; }
  const std::string& advice() const { return advice_; }

  int retry_after = 0;  // seconds, for 503
  ErrorDetail detail;   // without a code of its own the kind stands for it

 private:
  int status_;
  std::string kind_, where_, what_happened_, advice_;
};

// 413: the number found and the number allowed.
template <typename Found, typename Allowed>
ApiError over_limit(std::string where, const char* what, const Found& found, const Allowed& allowed,
                    std::string advice = {}) {
  ApiError error(413, "limit", std::move(where), join(what, ": ", found, " found, at most ", allowed, " allowed"),
                 std::move(advice));
  error.detail = attend::explorer::detail("limit", found, allowed);
  return error;
}

// 404: a name that is none of those there are, which are listed with the nearest first in the advice.
ApiError unknown_name(std::string where, std::string what, const std::string& name,
                      const std::vector<std::string>& known);

// The exception being handled as what is answered; to be called inside a catch block.
ApiError current_error();

// The body of an error's answer.
std::string to_json(const ApiError& error);

}  // namespace attend::explorer
