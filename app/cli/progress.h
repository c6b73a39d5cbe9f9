// A training seen on the terminal: one line that moves, and one line for each validation.
#pragma once

#include <string>

#include "attend/train.h"
#include "input_output.h"

namespace attend::cli {

// Draws on standard error if it is a terminal; elsewhere prints a line at each validation and every `quiet_seconds`.
class TrainProgress : public TrainObserver {
 public:
  void on_phase(std::string_view phase) override;
  void on_start(const TrainPlan& plan) override;
  void on_step(const StepReport& report) override;
  void on_validation(const ValidationReport& report) override;
  void end();  // leaves the moving line

 private:
  void clear_line();
  void draw(const std::string& text);

  double last_drawn_ = -1;
  bool line_open_ = false;
};

Json to_json(const TrainPlan& plan);
Json to_json(const ValidationReport& report);

}  // namespace attend::cli
