#include <unistd.h>

#include <cmath>
#include <cstdio>
#include <functional>
#include <iostream>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>

#include "attend/files.h"
#include "attend/heads.h"
#include "commands.h"
#include "input_output.h"
#include "references.h"
#include "terminal.h"

namespace attend::cli {
namespace {

// Bytes of a report; one of a thousand heads has half a megabyte.
constexpr std::int64_t longest_report = std::int64_t{64} << 20;

struct Options {
  std::string model = "tatoeba-zh-en";
  std::vector<std::string> files;
  std::string to, reference, behaviour, like, compare;
  std::vector<std::string> outputs;
  std::int64_t limit = 0, most = 5;
  std::optional<double> offset;
  bool repeated = false, both = false;
  ReadOptions read;
};

// Errors of a line's text name the line.
void at_line(const std::string& file, std::int64_t line, const std::function<void()>& read) {
  try {
    read();
  } catch (const Error& error) {
    if (error.kind() != ErrorKind::text && error.kind() != ErrorKind::argument) throw;
    throw Error(error.kind(), join(file, ":", line), error.where() + ": " + error.what_happened(), error.advice());
  }
}

// The pairs of two files one by one, and what links people drew for them.
HeadItems pairs_of(const Options& options, const ModelFolder& folder) {
  if (options.files.size() != 2)
    throw Error(ErrorKind::argument, "heads",
                join(counted(static_cast<std::int64_t>(options.files.size()), "file"), " given"),
                "this model translates: give a source file and a target file, or --repeated");
  struct State {
    Translator translator;
    PairReader pairs;
    References references;
    std::optional<HeadItem> mirror;  // of the pair that was given last
    std::int64_t read = 0;
  };
  auto state = std::make_shared<State>(State{Translator(folder),
                                             PairReader(options.files[0], options.files[1], options.read),
                                             References(options.reference),
                                             {},
                                             0});
  return [state, &options](HeadItem& item) {
    if (state->mirror) {
      item = std::move(*state->mirror);
      state->mirror.reset();
      return true;
    }
    std::string source, target;
    if ((options.limit > 0 && state->read == options.limit) || !state->pairs.next(source, target)) return false;
    ++state->read;
    const Translator& translator = state->translator;
    PairItemOptions there;
    there.to = options.to;
    there.words = true;
    if (state->references.given()) there.reference = state->references.of_line(state->pairs.number());
    at_line(options.files[0], state->pairs.number(), [&] {
      item = item_of(translator, source, target, there);
      if (!options.both) return;
      PairItemOptions back;
      back.words = true;
      back.to = translator.direction(source, {}, options.to).first;
      state->mirror = item_of(translator, target, source, back);
      auto words = std::make_shared<ItemWords>(*state->mirror->words);
      words->mirrors = true;
      state->mirror->words = std::move(words);
    });
    return true;
  };
}

// The lines of all files, one by one.
HeadItems lines_of(const Options& options, const ModelFolder& folder) {
  if (options.files.empty())
    throw Error(ErrorKind::argument, "heads", "no corpus is given", "give files of lines, or --repeated");
  struct State {
    std::size_t file = 0;
    std::optional<LineReader> reader;
    std::int64_t read = 0;
  };
  return [state = std::make_shared<State>(), &options, &folder](HeadItem& item) {
    if (options.limit > 0 && state->read == options.limit) return false;
    for (std::string line;;) {
      if (!state->reader) {
        if (state->file == options.files.size()) return false;
        state->reader.emplace(options.files[state->file++], options.read);
      }
      if (!state->reader->next(line)) {
        state->reader.reset();
        continue;
      }
      if (line.empty()) continue;
      ++state->read;
      at_line(options.files[state->file - 1], state->reader->number(), [&] { item = item_of(folder, line); });
      return true;
    }
  };
}

// Error(argument) for options that mean nothing with this corpus.
void check_corpus(const Options& options, bool pairs) {
  const std::pair<const char*, bool> of_pairs[] = {
      {"--to", !options.to.empty()}, {"--both", options.both}, {"--reference", !options.reference.empty()}};
  for (const auto& [name, given] : of_pairs)
    if (given && (options.repeated || !pairs))
      throw Error(ErrorKind::argument, name,
                  options.repeated ? "is for pairs of text, and --repeated makes tokens"
                                   : "is for translators, and this model reads one text",
                  "leave it out");
  if (options.repeated && !options.files.empty())
    throw Error(ErrorKind::argument, "--repeated", "makes its own tokens, and files are given", "give either");
}

HeadItems corpus(const Options& options, const ModelFolder& folder) {
  const TransformerConfig& config = folder.model.config();
  check_corpus(options, config.encoder && config.decoder);
  if (options.repeated) {
    RepeatedOptions repeated;
    repeated.source = folder.source.get();
    repeated.target = folder.target.get();
    if (options.limit > 0) repeated.items = options.limit;
    return items_from(repeated_items(folder.model, repeated));
  }
  return config.encoder && config.decoder ? pairs_of(options, folder) : lines_of(options, folder);
}

// What a report written before is compared with, refused before anything is run if it is of other heads.
HeadReport report_before(const std::string& path, const Model& model) {
  HeadReport before = report_from_json(read_file(path, longest_report), path), here;
  for (const HeadPlace& head : heads_of(model)) here.heads.push_back({head, {}});
  difference(before, here);
  return before;
}

std::string shown(double value) {
  if (std::isnan(value)) return "-";
  char text[32];
  std::snprintf(text, sizeof(text), "%.3f", value);
  return text;
}

std::string order_of(Behaviour behaviour, const Options& options) {
  if (options.offset) return join("mean signed distance, nearest to ", *options.offset, " first");
  return join(meaning_of(behaviour), behaviour == Behaviour::offset ? "; the furthest first, back or forward" : "");
}

// A table for each behaviour wanted; `columns`: above the numbers, "" for none.
void print_tables(Output& out, const Options& options, const std::string& columns,
                  const std::function<std::vector<RankedHead>(Behaviour)>& ranking,
                  const std::function<std::string(Behaviour, const RankedHead&)>& text) {
  for (int i = 0; i < behaviour_count; ++i) {
    const auto behaviour = static_cast<Behaviour>(i);
    if (!options.behaviour.empty() && behaviour != behaviour_named(options.behaviour)) continue;
    if (options.offset && behaviour != Behaviour::offset) continue;
    const std::vector<RankedHead> ranked = ranking(behaviour);
    if (ranked.empty()) continue;
    out.line("");
    out.line(padded(name_of(behaviour), 24) + (columns.empty() ? order_of(behaviour, options) : meaning_of(behaviour)));
    if (!columns.empty()) out.line("  " + padded("head", 22) + columns);
    for (const RankedHead& head : ranked) out.line("  " + padded(name_of(head.head), 22) + text(behaviour, head));
  }
}

void print_ranking(Output& out, const HeadReport& report, const Options& options) {
  out.line(join(report.items, " items, ", report.source_tokens + report.target_tokens, " tokens, ", report.heads.size(),
                " heads"));
  print_tables(
      out, options, "",
      [&](Behaviour behaviour) {
        return options.offset ? rank_heads_near(report, behaviour, *options.offset, options.most)
                              : rank_heads(report, behaviour, options.most);
      },
      [](Behaviour, const RankedHead& head) { return shown(head.value); });
}

void print_changes(Output& out, const ReportDifference& changes, const HeadReport& before, const HeadReport& now,
                   const Options& options) {
  const auto run = [](const ReportDifference::Run& one) {
    return join(one.items, " items, ", one.source_tokens + one.target_tokens, " tokens, model ", one.model, ", corpus ",
                one.corpus);
  };
  out.line("scores before (" + options.compare + ") and now, those that changed most first");
  out.line("  before  " + run(changes.before));
  out.line("  now     " + run(changes.after));
  if (changes.before.corpus != changes.after.corpus) out.line("  The corpora differ: scores change with them, too.");
  print_tables(
      out, options, "  before       now    change",
      [&](Behaviour behaviour) { return rank_changes(changes, behaviour, options.most); },
      [&](Behaviour behaviour, const RankedHead& head) {
        char text[64];
        std::snprintf(text, sizeof(text), "%8.3f  %8.3f  %+8.3f", before[head.head][behaviour],
                      now[head.head][behaviour], head.value);
        return std::string(text);
      });
}

void print_like(Output& out, const HeadReport& report, const HeadPlace& head, const Options& options,
                const Globals& globals) {
  const std::vector<RankedHead> alike = heads_like(report, head, Likeness::weights, options.most);
  if (globals.json) {
    Json list = Json::array();
    for (const RankedHead& one : alike) list.push_back({{"head", name_of(one.head)}, {"likeness", one.value}});
    out.json({{"head", name_of(head)}, {"like", std::move(list)}});
    return;
  }
  out.line("heads that look where " + name_of(head) + " looks (1: everywhere the same)");
  for (const RankedHead& one : alike) out.line("  " + padded(name_of(one.head), 22) + shown(one.value));
}

void run(const Options& options, const Globals& globals) {
  if (!options.behaviour.empty()) behaviour_named(options.behaviour);
  // What these compare is not there by itself.
  if (options.behaviour.starts_with("agreement") && !options.both)
    throw Error(ErrorKind::argument, "--behaviour " + options.behaviour, "compares the two directions of each pair",
                "add --both");
  if (options.behaviour.starts_with("alignment_error") && options.reference.empty())
    throw Error(ErrorKind::argument, "--behaviour " + options.behaviour,
                "compares with word alignments that people made", "add --reference FILE");
  for (const std::string& name : options.outputs)
    if (!name.ends_with(".csv") && !name.ends_with(".json"))
      throw Error(ErrorKind::argument, name, "its ending is not known", "use .csv or .json");
  const ModelFolder folder = load_model_folder(find_model(options.model));
  std::optional<HeadPlace> like;
  if (!options.like.empty()) like = parse_head(folder.model, options.like);
  std::optional<HeadReport> before;
  if (!options.compare.empty()) before = report_before(options.compare, folder.model);
  HeadOptions find;
  find.source = folder.source.get();
  find.target = folder.target.get();
  const bool moving = is_terminal(STDERR_FILENO);
  find.progress = [&](const HeadProgress& progress) {
    if (moving)
      std::cerr << "\r\033[K" << short_number(static_cast<double>(progress.items)) << " items, "
                << short_number(static_cast<double>(progress.tokens)) << " tokens" << std::flush;
  };
  const HeadReport report = find_heads(folder.model, corpus(options, folder), find);
  if (moving) std::cerr << "\r\033[K";

  std::optional<ReportDifference> changes;
  if (before) changes = difference(*before, report);
  for (const std::string& name : options.outputs) {
    if (name.ends_with(".csv")) write_file(name, changes ? to_csv(*changes) : to_csv(report));
    else write_file(name, changes ? to_json(*changes) : to_json(report));
  }
  Output out;
  if (like) print_like(out, report, *like, options, globals);
  else if (globals.json) out.json(Json::parse(changes ? to_json(*changes) : to_json(report)));
  else if (options.outputs.empty() && changes) print_changes(out, *changes, *before, report, options);
  else if (options.outputs.empty()) print_ranking(out, report, options);
  out.flush();
}

}  // namespace

void add_heads(Command& program, Globals& globals) {
  Command* command = program.add_command("heads", "What every head does over a corpus: find heads by behaviour");
  auto options = std::make_shared<Options>();
  command->add_option("files", options->files, "Source and target file of a translator; files of lines otherwise")
      ->type_name("FILE");
  command->add_option("--model,-m", options->model, "Model folder, or the name of a model that ships")->show_default();
  command->add_option("--to", options->to, "Language of the target (default: told by the script of each source)");
  command->add_flag("--both", options->both,
                    "Read each pair in both directions, too: scores how far their alignments agree");
  command->add_option("--reference", options->reference,
                      "Word alignments of the pairs, in Pharaoh format: scores alignment errors");
  command->add_flag("--repeated", options->repeated,
                    "Random tokens that repeat instead of a corpus: shows induction heads");
  command->add_option("--limit", options->limit, "Pairs or lines read at most")->check(at_least(1));
  command->add_option("--behaviour,--behavior", options->behaviour, "Rank by this behaviour only");
  command
      ->add_option("--offset", options->offset,
                   "Rank by nearness to this offset: -1 for heads that look one token back")
      ->type_name("X")
      ->check(between(-1e9, 1e9))
      ->excludes("--behaviour");
  command->add_option("--most", options->most, "Heads listed for each behaviour")->show_default()->check(at_least(1));
  command->add_option("--like", options->like, "Heads that look where this one looks")
      ->type_name("HEAD")
      ->excludes("--behaviour")
      ->excludes("--offset");
  command
      ->add_option("--compare", options->compare,
                   "A report written before (.json): show how much each score has changed since")
      ->excludes("--offset");
  command->add_option("--output,-o", options->outputs, "Write all scores as .csv or .json")
      ->type_name("FILE")
      ->one_each();
  add_read_options(*command, options->read, true);
  command->footer(
      "Examples:\n"
      "  attend heads source.zh target.en --limit 500\n"
      "  attend heads source.zh target.en --both --behaviour agreement\n"
      "  attend heads --model tang-quatrains poems.txt --output heads.csv\n"
      "  attend heads --repeated --behaviour induction\n"
      "  attend heads source.zh target.en --offset -1\n"
      "  attend heads source.zh target.en --model runs/mine/best --compare before.json\n"
      "  attend heads source.zh target.en --like decoder.2.cross.1");
  command->callback([options, &globals] { run(*options, globals); });
}

}  // namespace attend::cli
