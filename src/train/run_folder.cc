#include "train/run_folder.h"

#include <fcntl.h>
#include <unistd.h>

#include <cstdio>
#include <nlohmann/json.hpp>
#include <set>
#include <system_error>
#include <sstream>
#include <utility>

#include "attend/error.h"
#include "core/names.h"

namespace attend {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::ordered_json;

// Links before what they point to.
constexpr const char* written_names[] = {"final",       "final.partial", "best",        "last",       "averaged",
                                         "checkpoints", "loss.svg",      "train.jsonl", "recipe.toml"};

// Runs something on the file system and turns its exceptions into Error(file).
template <typename Function>
auto guarded(const fs::path& path, Function&& function) {
  try {
    return function();
  } catch (const fs::filesystem_error& error) {
    const std::error_code code = error.code();
    const bool taken =
        code == std::errc::file_exists || code == std::errc::not_a_directory || code == std::errc::is_a_directory;
    const bool full = code == std::errc::no_space_on_device || code == std::errc::file_too_large;
    throw Error(ErrorKind::file, path.string(), code.message(),
                taken  ? "something else of this name lies there: choose another folder, or move it away"
                : full ? "make room; finished checkpoints are whole"
                       : "check that the folder can be made and written; finished checkpoints are whole");
  }
}

void sync_folder(const fs::path& folder) {
  const int descriptor = ::open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (descriptor < 0) return;
  // Some file systems refuse to sync a folder; there is nothing better to do then.
  (void)::fsync(descriptor);
  ::close(descriptor);
}

// Lets `write` fill a folder beside, then renames that into place.
template <typename Write>
void write_folder(const fs::path& folder, Write&& write) {
  const fs::path partial = folder.string() + ".partial";
  try {
    guarded(partial, [&] {
      fs::remove_all(partial);
      fs::create_directories(partial);
    });
    write(partial);
  } catch (...) {
    std::error_code ignored;
    fs::remove_all(partial, ignored);
    throw;
  }
  guarded(folder, [&] {
    fs::remove_all(folder);
    fs::rename(partial, folder);
  });
  sync_folder(folder.parent_path());
}

const Tokenizer* encoder_tokenizer(const Tokenizer* tokenizer, const Task& task) {
  return task.kind == Task::Kind::translate ? tokenizer : nullptr;
}

Json json_of(const LossSums& sums) {
  return {{"smoothed", sums.smoothed}, {"plain", sums.plain}, {"labels", sums.labels}, {"correct", sums.correct}};
}

LossSums sums_from(const Json& json) {
  return {json.at("smoothed").get<double>(), json.at("plain").get<double>(), json.at("labels").get<std::int64_t>(),
          json.at("correct").get<std::int64_t>()};
}

Json json_of(const std::optional<ValidationReport>& report) {
  if (!report) return nullptr;
  Json json{{"step", report->step},
            {"epoch", report->epoch},
            {"loss", report->loss},
            {"token_accuracy", report->token_accuracy}};
  if (report->bleu) json["bleu"] = *report->bleu;
  if (report->chrf) json["chrf"] = *report->chrf;
  if (report->exact) json["exact"] = *report->exact;
  json["by_direction"] = report->by_direction;
  json["best"] = report->best;
  json["seconds"] = report->seconds;
  return json;
}

std::optional<ValidationReport> report_from(const Json& json) {
  if (json.is_null()) return std::nullopt;
  ValidationReport report;
  report.step = json.at("step").get<std::int64_t>();
  report.epoch = json.at("epoch").get<std::int64_t>();
  report.loss = json.at("loss").get<double>();
  report.token_accuracy = json.at("token_accuracy").get<double>();
  const auto optional_number = [&](const char* key) -> std::optional<double> {
    return json.contains(key) ? std::optional<double>(json.at(key).get<double>()) : std::nullopt;
  };
  report.bleu = optional_number("bleu");
  report.chrf = optional_number("chrf");
  report.exact = optional_number("exact");
  report.by_direction = json.at("by_direction").get<std::map<std::string, double>>();
  report.best = json.at("best").get<bool>();
  report.seconds = json.at("seconds").get<double>();
  return report;
}

}  // namespace

std::string to_json(const RunState& state) {
  return Json{{"step", state.step},
              {"epoch", state.epoch},
              {"next_batch", state.next_batch},
              {"smooth_loss", state.smooth_loss},
              {"interval", json_of(state.interval)},
              {"validations", state.validations},
              {"without_better", state.without_better},
              {"last", json_of(state.last)},
              {"best", json_of(state.best)},
              {"average_steps", state.average_steps},
              {"data_fingerprint", state.data_fingerprint},
              {"settings", state.settings},
              {"total", state.total}}
      .dump();
}

RunState run_state_from_json(const std::string& text, const std::string& source) {
  try {
    const Json json = Json::parse(text);
    RunState state;
    state.step = json.at("step").get<std::int64_t>();
    state.epoch = json.at("epoch").get<std::int64_t>();
    state.next_batch = json.at("next_batch").get<std::int64_t>();
    state.smooth_loss = json.at("smooth_loss").get<double>();
    state.interval = sums_from(json.at("interval"));
    state.validations = json.at("validations").get<std::int64_t>();
    state.without_better = json.at("without_better").get<std::int64_t>();
    state.last = report_from(json.at("last"));
    state.best = report_from(json.at("best"));
    state.average_steps = json.at("average_steps").get<std::vector<std::int64_t>>();
    state.data_fingerprint = json.at("data_fingerprint").get<std::uint64_t>();
    state.settings = json.at("settings").get<std::map<std::string, std::string>>();
    state.total = json.value("total", std::int64_t{0});
    if (state.step < 0 || state.epoch < 1 || state.next_batch < 0)
      throw Error(
          ErrorKind::format, source,
          join("step ", state.step, ", epoch ", state.epoch, ", batch ", state.next_batch, " is no place in a run"));
    return state;
  } catch (const nlohmann::json::exception& error) {
    throw Error(ErrorKind::format, source, join("the state of the run cannot be read: ", json_reason(error)),
                "resume from another checkpoint, or start afresh");
  }
}

RunFolder::RunFolder(fs::path folder) : folder_(std::move(folder)) {
  guarded(folder_, [&] { fs::create_directories(folder_); });
  lock_.emplace(folder_);
}

std::optional<fs::path> newest_checkpoint(const fs::path& run_folder) {
  const auto whole = [](const fs::path& folder) {
    for (const char* name : {"config.json", "model.safetensors", "state.safetensors"})
      if (!fs::is_regular_file(folder / name)) return false;
    return true;
  };
  return guarded(run_folder, [&]() -> std::optional<fs::path> {
    std::optional<fs::path> newest;
    std::error_code absent;
    for (const fs::directory_entry& entry : fs::directory_iterator(run_folder / "checkpoints", absent)) {
      const std::string name = entry.path().filename();
      // Names sort as steps do: all have as many digits, unless one is longer.
      const auto later = [&](const std::string& other) {
        return name.size() != other.size() ? name.size() > other.size() : name > other;
      };
      if (name.starts_with("step-") && !name.ends_with(".partial") && whole(entry.path()) &&
          (!newest || later(newest->filename())))
        newest = entry.path();
    }
    if (!newest && whole(run_folder / "last")) newest = run_folder / "last";
    return newest;
  });
}

bool holds_run(const fs::path& run_folder) {
  return guarded(run_folder, [&] {
    for (const char* name : {"last", "best", "final"})
      if (fs::exists(run_folder / name / "model.safetensors")) return true;
    std::error_code absent;
    for (const fs::directory_entry& entry : fs::directory_iterator(run_folder / "checkpoints", absent))
      if (fs::exists(entry.path() / "model.safetensors")) return true;
    return false;
  });
}

void RunFolder::check_clearable() const {
  guarded(folder_, [&] {
    // run.json is the first file that a run writes and the last one removed.
    if (fs::exists(folder_ / "run.json")) return;
    for (const char* name : written_names)
      if (fs::exists(fs::symlink_status(folder_ / name)))
        throw Error(ErrorKind::file, (folder_ / name).string(), "exists, and no training wrote it",
                    "choose another folder");
  });
}

void RunFolder::clear() {
  check_clearable();
  log_.close();
  guarded(folder_, [&] {
    for (const char* name : written_names) fs::remove_all(folder_ / name);
    fs::remove(folder_ / "run.json");
  });
}

fs::path RunFolder::checkpoint(std::int64_t step) const {
  char name[40];
  std::snprintf(name, sizeof(name), "step-%08lld", static_cast<long long>(step));
  return folder_ / "checkpoints" / name;
}

void RunFolder::save(const Model& model, const Tokenizer* tokenizer, const Task& task, const Learner& learner,
                     const RunState& state) {
  write_folder(checkpoint(state.step), [&](const fs::path& partial) {
    save_model_folder(partial, model, encoder_tokenizer(tokenizer, task), tokenizer, task);
    write_safetensors(partial / "state.safetensors", learner.moments(), {{"state", to_json(state)}});
  });
  tidy(state);
}

// Where the links of a run were followed in copying it, they are folders: the checkpoint itself if that was not copied too,
// else a second copy of it.
void RunFolder::adopt(const std::string& name, std::int64_t step) {
  const fs::path place = folder_ / name;
  guarded(place, [&] {
    if (!fs::is_directory(fs::symlink_status(place))) return;
    if (fs::exists(checkpoint(step) / "model.safetensors")) {
      fs::remove_all(place);
    } else {
      fs::create_directories(folder_ / "checkpoints");
      fs::rename(place, checkpoint(step));
    }
  });
}

void RunFolder::tidy(const RunState& state) {
  adopt("last", state.step);
  if (state.best) adopt("best", state.best->step);
  // `last` before `best`: whatever `last` points to knows which one is the best.
  link("last", checkpoint(state.step));
  std::set<fs::path> kept{checkpoint(state.step)};
  if (state.best) {
    link("best", checkpoint(state.best->step));
    kept.insert(checkpoint(state.best->step));
  }
  for (std::int64_t step : state.average_steps) kept.insert(checkpoint(step));
  guarded(folder_ / "checkpoints", [&] {
    std::vector<fs::path> present;
    for (const fs::directory_entry& entry : fs::directory_iterator(folder_ / "checkpoints"))
      present.push_back(entry.path());
    for (const fs::path& each : present) {
      if (!kept.contains(each)) fs::remove_all(each);
      else if (each != checkpoint(state.step)) fs::remove(each / "state.safetensors");
    }
  });
}

void RunFolder::save_model(const std::string& name, const Model& model, const Tokenizer* tokenizer, const Task& task,
                           WeightType type) {
  write_folder(folder_ / name, [&](const fs::path& partial) {
    save_model_folder(partial, model, encoder_tokenizer(tokenizer, task), tokenizer, task, type);
  });
}

void RunFolder::link(const std::string& name, const fs::path& target) {
  const fs::path place = folder_ / name, fresh = folder_ / ("." + name + ".new");
  guarded(place, [&] {
    const fs::path relative = target.lexically_relative(folder_);
    if (fs::is_symlink(fs::symlink_status(place)) && fs::read_symlink(place) == relative) return;
    fs::remove(fresh);
    fs::create_directory_symlink(relative, fresh);
    fs::rename(fresh, place);
  });
  sync_folder(folder_);
}

void RunFolder::append_log(const std::string& json_line) {
  const fs::path path = folder_ / "train.jsonl";
  if (!log_.is_open()) log_.open(path, std::ios::app | std::ios::binary);
  log_ << json_line << '\n' << std::flush;
  if (!log_) throw Error(ErrorKind::file, path.string(), "cannot write the log", "check permissions and free space");
}

std::vector<std::string> RunFolder::cut_log(std::int64_t step) {
  log_.close();
  const fs::path path = folder_ / "train.jsonl";
  std::vector<std::string> lines;
  if (!fs::exists(path)) return lines;
  std::istringstream text(read_file(path));
  std::string kept, line;
  while (std::getline(text, line)) {
    // The last line of a killed run may be cut short.
    const Json json = Json::parse(line, nullptr, false);
    if (json.is_discarded() || !json.is_object() || !json.contains("step") || !json["step"].is_number_integer())
      continue;
    if (json["step"].get<std::int64_t>() > step || json.value("event", "") == "end") continue;
    kept += line + "\n";
    lines.push_back(line);
  }
  write_file(path, kept);
  return lines;
}

}  // namespace attend
