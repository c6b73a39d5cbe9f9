#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <memory>
#include <nlohmann/json.hpp>
#include <numeric>

#include "attend/edits.h"
#include "attend/files.h"
#include "attend/inspect.h"
#include "commands.h"
#include "input_output.h"
#include "inspection_files.h"
#include "subject_options.h"
#include "terminal.h"

namespace attend::cli {
namespace {

struct Options {
  SubjectFlags subject;
  std::string file, save;
  std::vector<std::string> edits, without;
  bool cached = false, allow_untouched = false, no_generation = false;
  InspectionFiles files;
  int top = 5;
};

EditInput input_of(const Subject& subject) {
  EditInput input;
  if (!subject.input.source.empty()) input.source.append(subject.input.source);
  if (!subject.input.ids.empty()) input.target.append(subject.input.ids);
  return input;
}

// The edits of the file and those of the command line behind them, less the ones left out.
Edits edits_of(const Options& options, const ModelFolder& folder, const EditInput& input) {
  Edits edits;
  if (!options.file.empty()) {
    const EditFile file = load_edit_file(options.file);
    file.check_fits(folder.model, input);
    edits = file.edits;
  }
  if (!options.edits.empty()) {
    Json list = Json::array();
    for (std::size_t i = 0; i < options.edits.size(); ++i) {
      Json edit;
      try {
        edit = Json::parse(options.edits[i]);
      } catch (const Json::exception&) {
        throw Error(ErrorKind::argument, "--edit", join("\"", options.edits[i].substr(0, 60), "\" is not a JSON object"),
                    "write {\"kind\": \"cut\", \"at\": \"decoder.2.cross\", \"heads\": [1]}");
      }
      if (edit.is_object() && !edit.contains("name")) edit["name"] = join("edit ", edits.list().size() + i + 1);
      list.push_back(std::move(edit));
    }
    const Json file{{"version", 1}, {"model", fingerprint(folder.model)}, {"text", text_fingerprint(input)}, {"edits", std::move(list)}};
    const EditFile read = edit_file_from_json(file.dump(), "--edit");
    for (const Edit& edit : read.edits.list()) edits.add(edit);
  }
  for (const std::string& name : options.without) edits.remove(name);
  if (edits.empty()) throw Error(ErrorKind::argument, "edit", "there is no edit to make", "give an edit file with --edits, or --edit JSON");
  return edits;
}

double log_probability(const Tensor& logits, std::int64_t row, std::int32_t token) {
  const float* values = logits.row(row);
  const double largest = static_cast<double>(*std::max_element(values, values + logits.width()));
  double sum = 0;
  for (std::int64_t id = 0; id < logits.width(); ++id) sum += std::exp(static_cast<double>(values[id]) - largest);
  return static_cast<double>(values[token]) - largest - std::log(sum);
}

std::int32_t best_token(const Tensor& logits, std::int64_t row) {
  const float* values = logits.row(row);
  return static_cast<std::int32_t>(std::max_element(values, values + logits.width()) - values);
}

std::string signed_number(double value) {
  char text[32];
  std::snprintf(text, sizeof(text), "%+.3f", value);
  return text;
}

// The tokens whose logits the edits move most in the row that they move most.
std::vector<Outcome> outcomes_of(const EditedRun& run, const Tokenizer& tokenizer, int top) {
  std::int64_t row = 0;
  double most = -1;
  for (std::int64_t r = 0; r < run.base.rows(); ++r) {
    double distance = 0;
    for (std::int64_t id = 0; id < run.base.width(); ++id)
      distance = std::max(distance, std::abs(static_cast<double>(run.edited.at(r, id)) - static_cast<double>(run.base.at(r, id))));
    if (distance > most) most = distance, row = r;
  }
  std::vector<std::int32_t> ids(static_cast<std::size_t>(run.base.width()));
  std::iota(ids.begin(), ids.end(), 0);
  const auto larger = [&](std::int32_t a, std::int32_t b) {
    const float in_a = std::max(run.base.at(row, a), run.edited.at(row, a)), in_b = std::max(run.base.at(row, b), run.edited.at(row, b));
    return in_a != in_b ? in_a > in_b : a < b;
  };
  const auto count = std::min(ids.size(), static_cast<std::size_t>(2 * top));
  std::partial_sort(ids.begin(), ids.begin() + static_cast<std::ptrdiff_t>(count), ids.end(), larger);
  std::vector<Outcome> outcomes;
  for (std::size_t i = 0; i < count; ++i)
    outcomes.push_back({{tokenizer.readable(ids[i]), tokenizer.is_control(ids[i]), false},
                        static_cast<double>(run.base.at(row, ids[i])),
                        static_cast<double>(run.edited.at(row, ids[i]))});
  return outcomes;
}

void run(Options& options, const Globals& globals) {
  const std::filesystem::path model = find_model(options.subject.model);
  const ModelFolder folder = load_model_folder(model);
  const std::vector<SubjectTexts> all = options.subject.read(folder);
  options.files.check(all.size());
  if (!options.save.empty() && all.size() > 1)
    throw Error(ErrorKind::argument, "--save", join("is given for ", all.size(), " texts"), "give one text: an edit file belongs to one");
  Output out;
  for (std::size_t i = 0; i < all.size(); ++i) {
    const Subject subject = read_subject(folder, all[i]);
    const EditInput input = input_of(subject);
    const Edits edits = edits_of(options, folder, input);
    if (!options.save.empty()) {
      EditFile file;
      file.edits = edits;
      file.model = fingerprint(folder.model);
      file.text = edits.has_positions() ? text_fingerprint(input) : "any";
      save_edit_file(options.save, file);
    }
    const Edits ready = with_token_ids(edits, folder);
    EditRunOptions run_options;
    run_options.cached = options.cached;
    run_options.allow_untouched = options.allow_untouched;
    const ModelOpener open = open_models_in(options.file.empty() ? std::filesystem::path() : std::filesystem::path(options.file).parent_path());
    const EditedRun result = run_edited(folder.model, ready, input, run_options, open);

    const bool decoder = folder.model.config().decoder.has_value();
    const std::shared_ptr<const Tokenizer>& tokenizer = decoder ? folder.target : folder.source;
    const std::vector<Piece>& pieces = decoder ? subject.target : subject.source;
    std::string base_text, edited_text;
    if (decoder && !options.no_generation) {
      base_text = tokenizer->decode(write_on(folder, subject, nullptr));
      EditProbe probe(folder.model, ready, edit_sources(folder.model, ready, input, open));
      edited_text = tokenizer->decode(write_on(folder, subject, &probe));
    }

    Inspection inspection;
    inspection.model = model.filename().string();
    inspection.fingerprint = fingerprint(folder.model);
    for (const Edit& edit : edits.list()) inspection.edits.push_back(edit.name);
    if (result.base.rows() > 0 && folder.model.config().classes == 0) inspection.outcomes = outcomes_of(result, *tokenizer, options.top);
    options.files.write(inspection, i);

    double base_total = 0, edited_total = 0;
    Json rows = Json::array();
    std::vector<std::string> table;
    const bool classes = folder.model.config().classes > 0;
    for (std::int64_t row = 0; row < result.base.rows(); ++row) {
      const std::int32_t base_best = best_token(result.base, row), edited_best = best_token(result.edited, row);
      if (classes) {
        rows.push_back({{"base_best", base_best}, {"edited_best", edited_best}});
        continue;
      }
      const std::int32_t next = subject.next[static_cast<std::size_t>(row)];
      const double base = next < 0 ? 0 : log_probability(result.base, row, next), edited = next < 0 ? 0 : log_probability(result.edited, row, next);
      base_total += base;
      edited_total += edited;
      Json line{{"row", row}, {"reads", pieces[static_cast<std::size_t>(row)].raw}, {"base_best", tokenizer->readable(base_best)},
                {"edited_best", tokenizer->readable(edited_best)}};
      if (next >= 0) {
        line["next"] = tokenizer->readable(next);
        line["base_log_probability"] = base;
        line["edited_log_probability"] = edited;
      }
      rows.push_back(std::move(line));
      char numbers[64];
      std::snprintf(numbers, sizeof(numbers), "%8.3f %8.3f ", base, edited);
      const std::string changed = base_best == edited_best ? "" : tokenizer->readable(base_best) + " -> " + tokenizer->readable(edited_best);
      table.push_back("  " + padded(pieces[static_cast<std::size_t>(row)].raw, 14) + padded(next < 0 ? "-" : tokenizer->readable(next), 14) +
                      (next < 0 ? std::string(27, ' ') : numbers + padded(signed_number(edited - base), 9)) + changed);
    }

    if (globals.json) {
      Json touched = Json::array();
      for (const EditReport::Touched& edit : result.report.edits)
        touched.push_back({{"name", edit.name}, {"kind", name_of(edit.kind)}, {"touched", edit.count}});
      Json json{{"model", inspection.model}, {"fingerprint", inspection.fingerprint}, {"edits", std::move(touched)},
                {"head_parts_difference", result.report.head_parts_difference}, {"rows", std::move(rows)},
                {"base_log_probability", base_total}, {"edited_log_probability", edited_total}};
      if (decoder && !options.no_generation) {
        json["base_text"] = base_text;
        json["edited_text"] = edited_text;
      }
      out.json(json);
    } else {
      if (i > 0) out.line("");
      for (const EditReport::Touched& edit : result.report.edits)
        out.line(padded(edit.name, 24) + padded(name_of(edit.kind), 10) + join("touched ", edit.count));
      if (result.report.head_parts_checked > 0) {
        char text[96];
        std::snprintf(text, sizeof(text), "sum of head parts + bias = attention output: largest difference %.1e", result.report.head_parts_difference);
        out.line(text);
      }
      if (!table.empty()) {
        out.line("");
        out.line("  " + padded("reads", 14) + padded("then", 14) + "    base   edited  change   best token");
        for (const std::string& line : table) out.line(line);
        char total[96];
        std::snprintf(total, sizeof(total), "%8.3f %8.3f ", base_total, edited_total);
        out.line("  " + padded("the whole text", 28) + total + signed_number(edited_total - base_total));
      } else {
        const auto& names = folder.task.classes;
        const auto name = [&](std::int32_t id) { return static_cast<std::size_t>(id) < names.size() ? names[static_cast<std::size_t>(id)] : join("class ", id); };
        out.line(join("class: ", name(best_token(result.base, 0)), " -> ", name(best_token(result.edited, 0))));
      }
      if (decoder && !options.no_generation) {
        out.line("");
        out.line("base    " + base_text);
        out.line("edited  " + edited_text);
      }
    }
    out.flush();
  }
}

}  // namespace

void add_edit(Command& program, Globals& globals) {
  Command* command = program.add_command("edit", "Change what a model computes, and see what comes of it");
  auto options = std::make_shared<Options>();
  options->subject.add_to(*command);
  command->add_option("--edits,-e", options->file, "Edit file (JSON) of this model and text")->type_name("FILE");
  command->add_option("--edit", options->edits, "One more edit, as a JSON object of an edit file")->type_name("JSON")->one_each();
  command->add_option("--without", options->without, "Leave out the edit of this name")->type_name("NAME")->one_each();
  command->add_option("--save", options->save, "Write all edits to an edit file")->type_name("FILE");
  command->add_flag("--cached", options->cached, "Read the text token by token through the KV cache");
  command->add_flag("--allow-untouched", options->allow_untouched, "Do not refuse edits that touch nothing");
  command->add_flag("--no-generation", options->no_generation, "Compare the given text only; write no new one");
  command->add_option("--top", options->top, "Tokens compared in the picture of outcomes, twice as many")->show_default()->check(at_least(1));
  options->files.add_to(*command);
  command->footer(
      "Kinds of edits: zero, mean, patch, noise (values at a site); set, add, scale, forbid, lock (scores of an attention);\n"
      "evict, window (the cache); cut (edges, heads, layers); freeze (a norm). doc/EDITS.md describes all fields.\n"
      "Examples:\n"
      "  attend edit 我喜欢学习中文。 --edit '{\"kind\": \"cut\", \"at\": \"decoder.2.cross\", \"heads\": [1]}'\n"
      "  attend edit 我喜欢学习中文。 --edit '{\"kind\": \"forbid\", \"at\": \"decoder.*.cross\", \"keys\": [4]}' --save deaf.json\n"
      "  attend edit 我喜欢学习中文。 --edits deaf.json --output outcomes.svg");
  command->callback([options, &globals] { run(*options, globals); });
}

}  // namespace attend::cli
