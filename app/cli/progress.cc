#include "progress.h"

#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <iostream>
#include <nlohmann/json.hpp>

#include "attend/error.h"
#include "terminal.h"

namespace attend::cli {
namespace {

constexpr double redraw_seconds = 0.1, quiet_seconds = 30;

std::string bar(double share, int width) {
  static const char* const eighths[] = {"", "▏", "▎", "▍", "▌", "▋", "▊", "▉"};
  const double filled = std::clamp(share, 0.0, 1.0) * width;
  const int whole = static_cast<int>(filled), part = static_cast<int>((filled - whole) * 8);
  std::string text;
  for (int i = 0; i < whole; ++i) text += "█";
  if (whole < width) text += eighths[part];
  const int used = whole + (whole < width && part > 0 ? 1 : 0);
  return text + std::string(static_cast<std::size_t>(width - used), ' ');
}

std::string fixed(double value, int digits) {
  char text[32];
  std::snprintf(text, sizeof(text), "%.*f", digits, value);
  return text;
}

}  // namespace

void TrainProgress::clear_line() {
  if (line_open_) std::cerr << "\r\033[K";
  line_open_ = false;
}

void TrainProgress::draw(const std::string& text) {
  std::cerr << "\r\033[K" << text << std::flush;
  line_open_ = true;
}

void TrainProgress::on_phase(std::string_view phase) {
  clear_line();
  std::cerr << "attend: " << phase << '\n';
}

void TrainProgress::on_start(const TrainPlan& plan) {
  clear_line();
  std::cerr << (plan.title.empty() ? "training" : plan.title) << '\n'
            << "  " << short_number(static_cast<double>(plan.parameters)) << " parameters, "
            << counted(plan.train_items, "training item") << " ("
            << short_number(static_cast<double>(plan.train_tokens)) << " tokens), " << plan.valid_items
            << " for validation\n"
            << "  " << plan.steps << " steps"
            << (plan.resumed_at ? join(", going on after step ", plan.resumed_at) : "") << "\n  memory: about "
            << short_bytes(static_cast<double>(plan.process_bytes)) << ", of it "
            << short_bytes(static_cast<double>(plan.peak_bytes))
            << " for parameters, gradients, moments and the largest batch (estimates)\n";
  if (plan.left_out) std::cerr << "  " << counted(plan.left_out, "item") << " left out: too long\n";
  if (plan.skipped_empty) std::cerr << "  " << counted(plan.skipped_empty, "pair") << " left out: empty\n";
  if (plan.replaced) std::cerr << "  " << counted(plan.replaced, "ill-formed UTF-8 sequence") << " replaced\n";
}

void TrainProgress::on_step(const StepReport& report) {
  const bool terminal = is_terminal(STDERR_FILENO);
  if (report.seconds - last_drawn_ < (terminal ? redraw_seconds : quiet_seconds) && report.step != report.steps) return;
  last_drawn_ = report.seconds;
  const double share = report.steps ? static_cast<double>(report.step) / static_cast<double>(report.steps) : 0;
  std::string text = join("step ", report.step, "/", report.steps);
  if (report.epoch) text += join("  epoch ", report.epoch);
  text += "  mean loss " + fixed(report.smooth_loss, 4) + "  " + short_number(report.tokens_per_second) +
          " tokens/s  " + short_time(report.seconds_left) + " left";
  if (!terminal) {
    std::cerr << text << '\n';
    return;
  }
  const int room = terminal_columns(STDERR_FILENO) - display_width(text) - 10;
  if (room >= 8) text = bar(share, std::min(room, 30)) + " " + fixed(100 * share, 0) + "%  " + text;
  draw(text);
}

void TrainProgress::on_validation(const ValidationReport& report) {
  clear_line();
  std::string text = join("  validation at step ", report.step);
  if (report.epoch) text += join(", epoch ", report.epoch);
  text += ": loss " + fixed(report.loss, 4);
  if (report.token_accuracy > 0) text += ", accuracy " + fixed(100 * report.token_accuracy, 2) + " %";
  if (report.bleu) text += ", BLEU " + fixed(*report.bleu, 2);
  if (report.chrf) text += ", chrF2 " + fixed(*report.chrf, 2);
  if (report.exact) text += ", exact " + fixed(100 * *report.exact, 2) + " %";
  std::cerr << text << (report.best ? "  (best)" : "") << '\n';
}

void TrainProgress::end() { clear_line(); }

Json to_json(const TrainPlan& plan) {
  return {{"title", plan.title},
          {"train_items", plan.train_items},
          {"valid_items", plan.valid_items},
          {"train_tokens", plan.train_tokens},
          {"valid_tokens", plan.valid_tokens},
          {"left_out", plan.left_out},
          {"source_vocabulary", plan.source_vocabulary},
          {"target_vocabulary", plan.target_vocabulary},
          {"parameters", plan.parameters},
          {"steps_an_epoch", plan.steps_an_epoch},
          {"steps", plan.steps},
          {"peak_bytes", plan.peak_bytes},
          {"process_bytes", plan.process_bytes},
          {"resumed_at", plan.resumed_at}};
}

Json to_json(const ValidationReport& report) {
  Json result{
      {"step", report.step}, {"epoch", report.epoch}, {"loss", report.loss}, {"token_accuracy", report.token_accuracy}};
  if (report.bleu) result["bleu"] = *report.bleu;
  if (report.chrf) result["chrf2"] = *report.chrf;
  if (report.exact) result["exact"] = *report.exact;
  if (!report.by_direction.empty()) result["by_direction"] = report.by_direction;
  return result;
}

}  // namespace attend::cli
