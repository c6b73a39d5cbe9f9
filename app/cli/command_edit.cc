#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <functional>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <numeric>
#include <optional>
#include <utility>

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
  std::int64_t at = -1;
};

EditInput input_of(const Subject& subject) {
  EditInput input;
  if (!subject.input.source.empty()) input.source.append(subject.input.source);
  if (!subject.input.ids.empty()) input.target.append(subject.input.ids);
  return input;
}

// The edits of the file and those of the command line behind them, less the ones left out.
Edits edits_of(const Options& options, const ModelFolder& folder, const EditInput& input,
               const std::optional<std::uint64_t>& seed) {
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
        throw Error(ErrorKind::argument, "--edit",
                    join("\"", options.edits[i].substr(0, 60), "\" is not a JSON object"),
                    "write {\"kind\": \"cut\", \"at\": \"decoder.2.cross\", \"heads\": [1]}");
      }
      if (seed && edit.is_object() && edit.contains("kind") && edit["kind"] == "noise" && !edit.contains("seed"))
        edit["seed"] = *seed;
      if (edit.is_object() && !edit.contains("name")) edit["name"] = join("edit ", edits.list().size() + i + 1);
      list.push_back(std::move(edit));
    }
    const Json file{{"version", 1},
                    {"model", fingerprint(folder.model)},
                    {"text", text_fingerprint(input)},
                    {"edits", std::move(list)}};
    try {
      const EditFile read = edit_file_from_json(file.dump(), "--edit");
      for (const Edit& edit : read.edits.list()) edits.add(edit);
    } catch (const Error& error) {  // of what was typed, not of a file
      throw Error(ErrorKind::argument, error.where(), error.what_happened(), error.advice());
    }
  }
  for (const std::string& name : options.without) edits.remove(name);
  if (edits.empty())
    throw Error(ErrorKind::argument, "edit", "there is no edit to make",
                "give an edit file with --edits, or --edit JSON");
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

// The row whose logits the edits move most.
std::int64_t row_moved_most(const EditedRun& run) {
  std::int64_t row = 0;
  double most = -1;
  for (std::int64_t r = 0; r < run.base.rows(); ++r) {
    double distance = 0;
    for (std::int64_t id = 0; id < run.base.width(); ++id)
      distance = std::max(
          distance, std::abs(static_cast<double>(run.edited.at(r, id)) - static_cast<double>(run.base.at(r, id))));
    if (distance > most) most = distance, row = r;
  }
  return row;
}

// The most probable tokens of a row, before or after.
std::vector<Outcome> outcomes_of(const EditedRun& run, std::int64_t row,
                                 const std::function<ShownToken(std::int32_t)>& token, int top) {
  std::vector<std::int32_t> ids(static_cast<std::size_t>(run.base.width()));
  std::iota(ids.begin(), ids.end(), 0);
  const auto larger = [&](std::int32_t a, std::int32_t b) {
    const float in_a = std::max(run.base.at(row, a), run.edited.at(row, a)),
                in_b = std::max(run.base.at(row, b), run.edited.at(row, b));
    return in_a != in_b ? in_a > in_b : a < b;
  };
  const auto count = std::min(ids.size(), static_cast<std::size_t>(2 * top));
  std::partial_sort(ids.begin(), ids.begin() + static_cast<std::ptrdiff_t>(count), ids.end(), larger);
  std::vector<Outcome> outcomes;
  for (std::size_t i = 0; i < count; ++i)
    outcomes.push_back({token(ids[i]), static_cast<double>(run.base.at(row, ids[i])),
                        static_cast<double>(run.edited.at(row, ids[i]))});
  return outcomes;
}

std::string class_name(const ModelFolder& folder, std::int32_t number) {
  const std::vector<std::string>& names = folder.task.classes;
  return static_cast<std::size_t>(number) < names.size() ? names[static_cast<std::size_t>(number)]
                                                         : join("class ", number);
}

// What a column of the logits is called.
std::function<ShownToken(std::int32_t)> tokens_of(const ModelFolder& folder) {
  if (folder.model.config().classes > 0)
    return [&](std::int32_t number) { return ShownToken{class_name(folder, number), false, false}; };
  return [tokenizer = folder.model.config().decoder ? folder.target : folder.source](std::int32_t id) {
    return ShownToken{tokenizer->readable(id), tokenizer->is_control(id), false};
  };
}

struct Written {
  std::string text;
  std::string ended;  // why it could not go on; "" if it came to its end
};

// What the model writes under edits. Edits that take rows of a run, frozen norms say, have rows as far as that run's text
// goes: what was written until there is shown, with the reason.
Written written_under(Probe* probe, const ModelFolder& folder, const Subject& subject) {
  std::vector<std::int32_t> ids;
  SubjectOptions writing;
  writing.on_token = [&](std::int32_t id) { ids.push_back(id); };
  Written written;
  try {
    write_on(folder, subject, probe, writing);
  } catch (const Error& error) {
    if (probe == nullptr || error.kind() != ErrorKind::argument) throw;
    written.ended = error.where() + ": " + error.what_happened();
  }
  written.text = folder.target->decode(ids);
  return written;
}

std::string range_text(const PositionRange& range) {
  if (range.end == PositionRange::open_end) return join(range.begin, " on");
  return range.end == 0 ? join(range.begin) : join(range.begin, " to ", range.last());
}

// "deaf (forbid decoder.1.cross, heads 2, keys 4)": what a caption says of an edit.
std::string described(const Edit& edit) {
  std::string text = join(edit.name, " (", name_of(edit.kind), ' ', edit.at);
  const auto list = [&](const char* what, const auto& all, const auto& shown) {
    for (std::size_t i = 0; i < all.size(); ++i) text += join(i == 0 ? join(", ", what, ' ') : ", ", shown(all[i]));
  };
  list("heads", edit.heads, [](std::int64_t head) { return std::to_string(head); });
  list("positions", edit.positions, range_text);
  list("keys", edit.keys, range_text);
  const Edit plain;
  if (edit.value != plain.value || edit.kind == EditKind::lock || edit.kind == EditKind::set)
    text += join(", value ", edit.value);
  if (edit.size != plain.size) text += join(", size ", edit.size);
  if (!edit.model.empty()) text += join(", from ", edit.model);
  return text + ")";
}

// The row whose logits a picture shows.
std::int64_t moved_row(const Options& options, const EditedRun& result) {
  if (options.at < 0) return row_moved_most(result);
  if (options.at >= result.base.rows())
    throw Error(ErrorKind::argument, "--at", join("there is no position ", options.at),
                join("give 0 to ", result.base.rows() - 1));
  return options.at;
}

std::string outcomes_title(const Options& options, const std::vector<Piece>& pieces, std::int64_t row, bool decoder) {
  const Piece& piece = pieces[static_cast<std::size_t>(row)];
  const std::string token = piece.text.empty() ? piece.raw : piece.text;
  return options.files.language == "zh"
             ? join("“", token, "”（位置 ", row, decoder ? "）之后的 logit，编辑前后" : "）处的 logit，编辑前后")
             : join("Logits ", decoder ? "after" : "at", " \"", token, "\" (position ", row,
                    "), before and after the edits");
}

// What pictures and JSON hold of an edited run: the texts, the edits, and the logits of one row.
Inspection inspection_of(const Options& options, const ModelFolder& folder, const std::string& model,
                         const Subject& subject, const Edits& edits, const EditedRun& result) {
  Inspection inspection;
  inspection.model = model;
  inspection.fingerprint = fingerprint(folder.model);
  const bool pair = !subject.source.empty() && !subject.target.empty();
  for (const auto& [name, pieces] :
       {std::pair(pair ? "source" : "text", &subject.source), std::pair(pair ? "target" : "text", &subject.target)})
    if (!pieces->empty()) inspection.texts.push_back(shown_text(name, group(*pieces, GroupBy::character), *pieces));
  for (const Edit& edit : edits.list()) inspection.edits.push_back(described(edit));
  if (result.base.rows() == 0) return inspection;
  const bool classes = folder.model.config().classes > 0;
  const std::int64_t row = classes ? 0 : moved_row(options, result);
  inspection.outcomes = outcomes_of(result, row, tokens_of(folder), options.top);
  std::string texts;
  for (const ShownText& text : inspection.texts) texts += (texts.empty() ? "" : " | ") + running_text(text);
  inspection.note = texts;
  if (!classes) inspection.target = join("logits at position ", row);
  return inspection;
}

// What one text came to.
struct Edited {
  EditedRun run;
  std::optional<Written> base, edited;  // of models that write
};

// Row by row of the logits, for JSON and as lines of a table.
struct Rows {
  Json json = Json::array();
  std::vector<std::string> table;
  double base_total = 0, edited_total = 0;
};

Rows rows_of(const ModelFolder& folder, const Subject& subject, const EditedRun& run) {
  const TransformerConfig& config = folder.model.config();
  const std::shared_ptr<const Tokenizer>& tokenizer = config.decoder ? folder.target : folder.source;
  const std::vector<Piece>& pieces = config.decoder ? subject.target : subject.source;
  Rows rows;
  for (std::int64_t row = 0; row < run.base.rows(); ++row) {
    const std::int32_t base_best = best_token(run.base, row), edited_best = best_token(run.edited, row);
    if (config.classes > 0) {
      rows.json.push_back({{"base_best", base_best}, {"edited_best", edited_best}});
      continue;
    }
    const std::string& reads = pieces[static_cast<std::size_t>(row)].raw;
    const std::int32_t next = subject.next[static_cast<std::size_t>(row)];
    const double base = next < 0 ? 0 : log_probability(run.base, row, next),
                 edited = next < 0 ? 0 : log_probability(run.edited, row, next);
    rows.base_total += base;
    rows.edited_total += edited;
    Json line{{"row", row},
              {"reads", reads},
              {"base_best", tokenizer->readable(base_best)},
              {"edited_best", tokenizer->readable(edited_best)}};
    if (next >= 0) {
      line["next"] = tokenizer->readable(next);
      line["base_log_probability"] = base;
      line["edited_log_probability"] = edited;
    }
    rows.json.push_back(std::move(line));
    char numbers[64];
    std::snprintf(numbers, sizeof(numbers), "%8.3f %8.3f ", base, edited);
    const std::string changed =
        base_best == edited_best ? "" : tokenizer->readable(base_best) + " -> " + tokenizer->readable(edited_best);
    rows.table.push_back("  " + padded(reads, 14) + padded(next < 0 ? "-" : tokenizer->readable(next), 14) +
                         (next < 0 ? std::string(27, ' ') : numbers + padded(signed_number(edited - base), 9)) +
                         changed);
  }
  return rows;
}

Json json_of(const Edited& result, const Inspection& inspection, Rows rows) {
  Json touched = Json::array();
  for (const EditReport::Touched& edit : result.run.report.edits)
    touched.push_back({{"name", edit.name}, {"kind", name_of(edit.kind)}, {"touched", edit.count}});
  Json json{{"model", inspection.model},
            {"fingerprint", inspection.fingerprint},
            {"edits", std::move(touched)},
            {"head_parts_difference", result.run.report.head_parts_difference},
            {"rows", std::move(rows.json)},
            {"base_log_probability", rows.base_total},
            {"edited_log_probability", rows.edited_total}};
  if (result.edited) {
    json["base_text"] = result.base->text;
    json["edited_text"] = result.edited->text;
    if (!result.edited->ended.empty()) json["edited_text_ends"] = result.edited->ended;
  }
  return json;
}

void print(Output& out, const ModelFolder& folder, const Edited& result, const Rows& rows) {
  const EditReport& report = result.run.report;
  for (const EditReport::Touched& edit : report.edits)
    out.line(padded(edit.name, 24) + padded(name_of(edit.kind), 10) + join("touched ", edit.count));
  char text[96];
  if (report.head_parts_checked > 0) {
    std::snprintf(text, sizeof(text), "sum of head parts + bias = attention output: largest difference %.1e",
                  report.head_parts_difference);
    out.line(text);
  }
  if (!rows.table.empty()) {
    out.line("");
    out.line("  " + padded("reads", 14) + padded("then", 14) + "    base   edited  change   best token");
    for (const std::string& line : rows.table) out.line(line);
    std::snprintf(text, sizeof(text), "%8.3f %8.3f ", rows.base_total, rows.edited_total);
    out.line("  " + padded("the whole text", 28) + text + signed_number(rows.edited_total - rows.base_total));
  } else {
    out.line(join("class: ", class_name(folder, best_token(result.run.base, 0)), " -> ",
                  class_name(folder, best_token(result.run.edited, 0))));
  }
  if (!result.edited) return;
  out.line("");
  out.line("base    " + result.base->text);
  out.line("edited  " + result.edited->text);
  if (!result.edited->ended.empty()) out.line("        and no further: " + result.edited->ended);
}

// Models that edits take rows from, each loaded once.
ModelOpener opener_of(const Options& options, const ModelFolder& folder) {
  const std::filesystem::path beside =
      options.file.empty() ? std::filesystem::path() : std::filesystem::path(options.file).parent_path();
  return [beside, open = open_models_in(beside, &folder),
          kept = std::make_shared<std::map<std::string, std::shared_ptr<const Model>>>()](const std::string& name) {
    std::shared_ptr<const Model>& model = (*kept)[name];
    std::error_code code;
    // Beside the edit file, or by the names that --model takes.
    if (!model)
      model = open(std::filesystem::exists(beside / name / "config.json", code)
                       ? name
                       : std::filesystem::absolute(find_model(name)).string());
    return model;
  };
}

void save(const Options& options, const ModelFolder& folder, const Edits& edits, const EditInput& input) {
  EditFile file;
  file.edits = edits;
  file.model = fingerprint(folder.model);
  file.text = edits.has_positions() ? text_fingerprint(input) : "any";
  save_edit_file(options.save, file);
}

void run(Options& options, const Globals& globals) {
  const std::filesystem::path model = find_model(options.subject.model);
  const ModelFolder folder = load_model_folder(model);
  const std::vector<SubjectTexts> all = options.subject.read(folder);
  options.files.check(all.size(), true, false);
  if (!options.save.empty() && all.size() > 1)
    throw Error(ErrorKind::argument, "--save", join("is given for ", all.size(), " texts"),
                "give one text: an edit file belongs to one");
  const bool decoder = folder.model.config().decoder.has_value();
  const ModelOpener open = opener_of(options, folder);
  EditRunOptions run_options;
  run_options.cached = options.cached;
  run_options.allow_untouched = options.allow_untouched;
  Output out;
  for (std::size_t i = 0; i < all.size(); ++i) {
    const Subject subject = read_subject(folder, all[i]);
    warn_of_unknown(subject);
    const EditInput input = input_of(subject);
    const Edits edits = edits_of(options, folder, input, globals.seed);
    const Edits ready = with_token_ids(edits, folder);
    Edited result{run_edited(folder.model, ready, input, run_options, open), {}, {}};
    if (!options.save.empty()) save(options, folder, edits, input);
    if (decoder && !options.no_generation) {
      result.base = written_under(nullptr, folder, subject);
      EditProbe probe(folder.model, ready, edit_sources(folder.model, ready, input, open));
      result.edited = written_under(&probe, folder, subject);
    }

    const Inspection inspection = inspection_of(options, folder, model.filename().string(), subject, edits, result.run);
    InspectionFiles files = options.files;
    if (files.title.empty() && folder.model.config().classes == 0)
      files.title =
          outcomes_title(options, decoder ? subject.target : subject.source, moved_row(options, result.run), decoder);
    const std::vector<std::string> written = files.write(inspection, i);
    Rows rows = rows_of(folder, subject, result.run);
    if (globals.json) {
      out.json(json_of(result, inspection, std::move(rows)));
    } else {
      if (i > 0) out.line("");
      print(out, folder, result, rows);
      for (const std::string& file : written) out.line(file);
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
  command->add_option("--edit", options->edits, "One more edit, as a JSON object of an edit file")
      ->type_name("JSON")
      ->one_each();
  command->add_option("--without", options->without, "Leave out the edit of this name")->type_name("NAME")->one_each();
  command->add_option("--save", options->save, "Write all edits to an edit file")->type_name("FILE");
  command->add_flag("--cached", options->cached, "Read the text token by token through the KV cache");
  command->add_flag("--allow-untouched", options->allow_untouched, "Do not refuse edits that touch nothing");
  command->add_flag("--no-generation", options->no_generation, "Compare the given text only; write no new one");
  options->files.add_to(*command);
  command->add_option("--top", options->top, "Tokens compared in the picture of outcomes, twice as many")
      ->show_default()
      ->check(at_least(1))
      ->needs("--output");
  command
      ->add_option("--at", options->at,
                   "Position whose logits the picture shows (default: the one that the edits move most)")
      ->type_name("N")
      ->check(at_least(0))
      ->needs("--output");
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
