#include <unistd.h>

#include <chrono>
#include <system_error>

#include "attend/bench.h"
#include "attend/train.h"
#include "bench/machine_peak.h"

namespace attend {
namespace {

// Adds up tokens and time of the steps; the first round warms up.
class StepClock : public TrainObserver {
 public:
  explicit StepClock(std::int64_t steps) : steps_(steps) {}

  void on_start(const TrainPlan&) override { begin_ = now(); }
  void on_step(const StepReport& report) override {
    tokens_ += report.tokens;
    if (report.step % steps_ != 0) return;
    const double end = now();
    if (report.step > steps_) rates.push_back(static_cast<double>(tokens_) / (end - begin_));
    tokens_ = 0;
    begin_ = end;
  }

  std::vector<double> rates;

 private:
  static double now() {
    return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
  }

  const std::int64_t steps_;
  std::int64_t tokens_ = 0;
  double begin_ = 0;
};

struct TemporaryFolder {
  TemporaryFolder() : path(std::filesystem::temp_directory_path() / join("attend-bench-", ::getpid())) {}
  ~TemporaryFolder() {
    std::error_code ignored;
    std::filesystem::remove_all(path, ignored);
  }
  const std::filesystem::path path;
};

}  // namespace

Rates bench_training(const Recipe& recipe, const std::filesystem::path& data_folder, std::int64_t steps,
                     std::int64_t rounds) {
  Recipe timed = recipe;
  timed.train.validate_every = timed.train.save_every = steps * (rounds + 1);  // nothing but steps inside the rounds
  timed.validation.decode = 0;
  timed.validation.best = Metric::loss;
  timed.train.average = 0;
  const TemporaryFolder folder;
  StepClock clock(steps);
  TrainOptions options;
  options.run_folder = folder.path;
  options.data_folder = data_folder;
  options.observer = &clock;
  options.steps = steps * (rounds + 1);
  train(timed, options);
  return {median(clock.rates), clock.rates};
}

}  // namespace attend
