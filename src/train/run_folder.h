// The folder of a run: checkpoints that are whole whatever happens, links to the last and the best, the log.
#pragma once

#include <cstdint>
#include <filesystem>
#include <fstream>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "attend/checkpoint.h"
#include "attend/train.h"
#include "core/file.h"
#include "train/learner.h"

namespace attend {

// All that a run remembers between two steps beside parameters and moments; with these, the next step has the same bits
// as if the run had never stopped. Order and dropout are drawn from (seed, epoch, step) and need no state of their own.
struct RunState {
  std::int64_t step = 0;        // optimiser steps taken
  std::int64_t epoch = 1;       // of the next step
  std::int64_t next_batch = 0;  // of that epoch
  double smooth_loss = 0;       // running mean without its start-up correction
  LossSums interval;            // since the last line of the log
  std::int64_t validations = 0, without_better = 0;
  std::optional<ValidationReport> last, best;
  std::vector<std::int64_t> average_steps;  // checkpoints to be averaged at the end
  std::uint64_t data_fingerprint = 0;
  std::map<std::string, std::string> settings;  // every key of the recipe as text
  std::int64_t total = 0;                       // steps of the whole run, on which a schedule may count; 0: unknown
};

std::string to_json(const RunState& state);
RunState run_state_from_json(const std::string& text, const std::string& source);

// The checkpoint that a run can go on from: that of the highest step that has its state, under checkpoints/ or, in a folder
// copied with its links followed, under `last`. None if there is none.
std::optional<std::filesystem::path> newest_checkpoint(const std::filesystem::path& run_folder);

class RunFolder {
 public:
  // Makes the folder if absent and locks it. Throws Error(file) if another training holds it.
  explicit RunFolder(std::filesystem::path folder);

  // Error(file) if files of the names a run uses lie here that no run wrote.
  void check_clearable() const;
  // Removes what an earlier run wrote, after check_clearable().
  void clear();

  std::filesystem::path path(const std::string& name) const { return folder_ / name; }
  std::filesystem::path checkpoint(std::int64_t step) const;

  // Writes checkpoints/step-N under a temporary name, renames it, then moves the links and removes what nothing points
  // to any more: a kill between any two of these leaves a whole checkpoint behind `last`.
  void save(const Model& model, const Tokenizer* tokenizer, const Task& task, const Learner& learner,
            const RunState& state);
  // Links and checkpoints as `state` says: after a kill in the middle of save(), or in a copy of a run.
  void tidy(const RunState& state);

  // A model folder of this name, written aside and renamed.
  void save_model(const std::string& name, const Model& model, const Tokenizer* tokenizer, const Task& task,
                  WeightType type);
  void link(const std::string& name, const std::filesystem::path& target);

  // ---- The log ----
  void append_log(const std::string& json_line);
  // Keeps the lines up to `step`, which a killed run may have passed, and returns them.
  std::vector<std::string> cut_log(std::int64_t step);

 private:
  void adopt(const std::string& name, std::int64_t step);

  std::filesystem::path folder_;
  std::optional<FolderLock> lock_;
  std::ofstream log_;
};

}  // namespace attend
