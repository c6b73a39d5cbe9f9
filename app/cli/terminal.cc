#include "terminal.h"

#include <sys/ioctl.h>
#include <unistd.h>

#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "attend/unicode.h"

namespace attend::cli {

bool is_terminal(int descriptor) { return isatty(descriptor) == 1; }

int terminal_columns(int descriptor) {
  winsize size{};
  if (ioctl(descriptor, TIOCGWINSZ, &size) == 0 && size.ws_col > 0) return size.ws_col;
  return 100;
}

bool colour_wanted(int descriptor) {
  if (!is_terminal(descriptor)) return false;
  const char* refused = std::getenv("NO_COLOR");
  const char* terminal = std::getenv("TERM");
  return !(refused && *refused) && !(terminal && std::strcmp(terminal, "dumb") == 0);
}

std::string padded(std::string_view text, int width) {
  const int have = display_width(text);
  if (have <= width) return std::string(text) + std::string(static_cast<std::size_t>(width - have), ' ');
  std::string cut;
  for (const char32_t character : characters_of(text)) {
    std::string longer = cut;
    append_character(longer, character);
    if (display_width(longer) > width - 1) break;
    cut = longer;
  }
  cut += "…";
  return cut + std::string(static_cast<std::size_t>(width - display_width(cut)), ' ');
}

std::string shown(std::string_view text, int descriptor) {
  static const bool terminal[] = {is_terminal(0), is_terminal(1), is_terminal(2)};
  if (descriptor > 2 || !terminal[descriptor]) return std::string(text);
  std::string result;
  for (const char32_t character : characters_of(replace_invalid_utf8(text))) {
    const bool control =
        (character < 0x20 && character != '\n' && character != '\t') || (character >= 0x7F && character < 0xA0);
    char code[16];
    std::snprintf(code, sizeof(code), "<0x%02X>", static_cast<unsigned>(character));
    if (control) result += code;
    else append_character(result, character);
  }
  return result;
}

std::string short_number(double value) {
  char text[32];
  if (std::fabs(value) >= 1e6) std::snprintf(text, sizeof(text), "%.3g M", value / 1e6);
  else if (std::fabs(value) >= 1e4) std::snprintf(text, sizeof(text), "%.3g k", value / 1e3);
  else std::snprintf(text, sizeof(text), "%.4g", value);
  return text;
}

std::string short_time(double seconds) {
  char text[48];
  const auto whole = static_cast<long long>(std::llround(seconds));
  if (seconds < 10) std::snprintf(text, sizeof(text), "%.1f s", seconds);
  else if (whole < 60) std::snprintf(text, sizeof(text), "%lld s", whole);
  else if (whole < 3600) std::snprintf(text, sizeof(text), "%lld min %02lld s", whole / 60, whole % 60);
  else std::snprintf(text, sizeof(text), "%lld h %02lld min", whole / 3600, whole / 60 % 60);
  return text;
}

std::string short_bytes(double bytes) {
  char text[32];
  if (bytes >= 1 << 30) std::snprintf(text, sizeof(text), "%.2f GiB", bytes / (1 << 30));
  else if (bytes >= 1 << 20) std::snprintf(text, sizeof(text), "%.1f MiB", bytes / (1 << 20));
  else std::snprintf(text, sizeof(text), "%.0f KiB", bytes / (1 << 10));
  return text;
}

}  // namespace attend::cli
