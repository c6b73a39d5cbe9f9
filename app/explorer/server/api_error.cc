#include "explorer/api_error.h"

#include <algorithm>
#include <new>
#include <span>

#include "attend/names.h"

namespace attend::explorer {
namespace {

constexpr std::size_t most_listed = 100;

}  // namespace

ApiError unknown_name(std::string where, std::string what, const std::string& name,
                      const std::vector<std::string>& known) {
  const std::string near = nearest_name(name, known);
  const std::string some = listed(std::span(known).first(std::min<std::size_t>(most_listed, known.size())));
  ApiError error(404, "unknown", std::move(where), std::move(what),
                 (near.empty() ? "" : "the nearest is " + near + "; ") + "there are " + some);
  error.detail = detail("unknown", name.substr(0, 100), known);
  return error;
}

ApiError current_error() {
  try {
    throw;
  } catch (const ApiError& error) {
    return error;
  } catch (const RequestError& error) {
    ApiError answer(400, name_of(error.kind()), error.where(), error.what_happened(), error.advice());
    answer.detail = error.detail;
    return answer;
  } catch (const Error& error) {
    if (error.kind() == ErrorKind::cancelled)
      return {409, "superseded", error.where(), error.what_happened(), error.advice()};
    return {400, name_of(error.kind()), error.where(), error.what_happened(), error.advice()};
  } catch (const std::bad_alloc&) {
    return {500, "internal", "memory", "there is not enough memory for this", "ask for less at a time"};
  } catch (const std::exception& error) {
    return {500, "internal", "server", error.what(), "this is a defect; please report it with the request"};
  } catch (...) {
    return {500, "internal", "server", "an unknown exception", "this is a defect; please report it with the request"};
  }
}

std::string to_json(const ApiError& error) {
  JsonWriter out;
  out.begin_object();
  out.key("error").begin_object();
  out.field("kind", error.kind());
  out.field("where", error.where());
  out.field("what", error.what_happened());
  out.field("advice", error.advice());
  out.field("code", error.detail.code.empty() ? error.kind() : error.detail.code);
  if (!error.detail.found.empty()) out.key("found").raw(error.detail.found);
  if (!error.detail.expected.empty()) out.key("expected").raw(error.detail.expected);
  out.end_object();
  out.end_object();
  return out.take();
}

}  // namespace attend::explorer
