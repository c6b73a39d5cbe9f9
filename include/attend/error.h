// Errors of the whole library. Attend never prints, never ends the process: it throws Error.
#pragma once

#include <cstdint>
#include <sstream>
#include <stdexcept>
#include <string>
#include <string_view>

namespace attend {

enum class ErrorKind {
  argument,   // a value passed by the caller is not allowed
  shape,      // tensors that do not fit each other
  config,     // a configuration or recipe contradicts itself, the weights or the known keys
  file,       // the operating system refused: open, read, write, sync, rename, lock
  format,     // the bytes of a file are not what its format promises
  text,       // input text: encoding, empty, too long, unknown token
  numeric,    // NaN or infinity where a number is needed
  cancelled,  // the caller asked to stop
};

// "argument", "shape", ... as printed in messages and in JSON.
const char* name_of(ErrorKind kind);

// what() is one sentence: `<where>: <what was found and expected>; <what to do>`. Control characters of file names and of
// foreign text stand in it as \x1B: a message can neither be cut by a NUL nor steer the terminal.
class Error : public std::runtime_error {
 public:
  Error(ErrorKind kind, std::string where, std::string what_happened, std::string advice = {});

  ErrorKind kind() const { return kind_; }
  const std::string& where() const { return where_; }  // operation, file:line or key
  const std::string& what_happened() const { return what_happened_; }
  const std::string& advice() const { return advice_; }  // may be empty

 private:
  ErrorKind kind_;
  std::string where_, what_happened_, advice_;
};

// Joins anything printable: join("query has ", 8, " heads").
template <typename... Parts>
std::string join(const Parts&... parts) {
  std::ostringstream out;
  (out << ... << parts);
  return out.str();
}

// "1 line", "2 lines".
std::string counted(std::int64_t count, std::string_view noun);

}  // namespace attend
