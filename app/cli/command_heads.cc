#include <unistd.h>

#include <cmath>
#include <cstdio>
#include <iostream>
#include <memory>
#include <nlohmann/json.hpp>

#include "attend/files.h"
#include "attend/heads.h"
#include "commands.h"
#include "input_output.h"
#include "terminal.h"

namespace attend::cli {
namespace {

struct Options {
  std::string model = "tatoeba-zh-en";
  std::vector<std::string> files;
  std::string to, reference, behaviour, like, compare;
  std::vector<std::string> outputs;
  std::int64_t limit = 0, most = 5;
  bool repeated = false, both = false;
  ReadOptions read;
};

// The pairs or lines of the files as the model reads them, and what links people drew for them.
HeadItems corpus(const Options& options, const ModelFolder& folder, std::shared_ptr<Translator>& translator,
                 std::shared_ptr<TextGenerator>& generator) {
  const TransformerConfig& config = folder.model.config();
  if (options.repeated) {
    RepeatedOptions repeated;
    repeated.source = folder.source.get();
    repeated.target = folder.target.get();
    if (options.limit > 0) repeated.items = options.limit;
    return items_from(repeated_items(folder.model, repeated));
  }
  const bool pair = config.encoder && config.decoder;
  // Items are made as they are wanted, and none is kept.
  if (!pair) {
    if (options.files.empty()) throw Error(ErrorKind::argument, "heads", "no corpus is given", "give files of lines, or --repeated");
    generator = std::make_shared<TextGenerator>(folder);
    struct Reading {
      std::size_t next_file = 0;
      std::unique_ptr<LineReader> lines;
      std::int64_t items = 0;
    };
    return [&options, generator, reading = std::make_shared<Reading>()](HeadItem& item) {
      std::string line;
      while (options.limit <= 0 || reading->items < options.limit) {
        if (!reading->lines) {
          if (reading->next_file == options.files.size()) return false;
          reading->lines = std::make_unique<LineReader>(options.files[reading->next_file++], options.read);
        }
        if (!reading->lines->next(line)) {
          reading->lines.reset();
        } else if (!line.empty()) {
          item = item_of(*generator, line);
          ++reading->items;
          return true;
        }
      }
      return false;
    };
  }

  if (options.files.size() != 2)
    throw Error(ErrorKind::argument, "heads", join(options.files.size(), " files given"), "this model translates: give a source file and a target file, or --repeated");
  translator = std::make_shared<Translator>(folder);
  struct Pairs {
    ParallelCorpus corpus;
    std::vector<ReferenceAlignment> references;
    std::size_t next = 0, end = 0;
    bool mirrors_next = false;
  };
  auto pairs = std::make_shared<Pairs>();
  pairs->corpus = read_parallel(options.files[0], options.files[1], options.read);
  pairs->end = pairs->corpus.source.size();
  if (options.limit > 0) pairs->end = std::min(pairs->end, static_cast<std::size_t>(options.limit));
  if (!options.reference.empty()) {
    pairs->references = read_pharaoh(options.reference);
    const std::int64_t last = pairs->end == 0 ? 0 : pairs->corpus.line[pairs->end - 1];
    if (static_cast<std::int64_t>(pairs->references.size()) < last)
      throw Error(ErrorKind::argument, options.reference, join("has ", pairs->references.size(), " lines for ", last, " pairs"), "give one line a pair");
  }
  return [&options, translator, pairs](HeadItem& item) {
    if (pairs->next == pairs->end) return false;
    const std::string& source = pairs->corpus.source[pairs->next];
    const std::string& target = pairs->corpus.target[pairs->next];
    PairItemOptions made;
    made.words = true;
    if (!pairs->mirrors_next) {
      made.to = options.to;
      if (!pairs->references.empty()) made.reference = pairs->references[static_cast<std::size_t>(pairs->corpus.line[pairs->next]) - 1];
      item = item_of(*translator, source, target, made);
    } else {
      made.to = translator->direction(source, {}, options.to).first;
      item = item_of(*translator, target, source, made);
      auto words = std::make_shared<ItemWords>(*item.words);
      words->mirrors = true;
      item.words = std::move(words);
    }
    pairs->mirrors_next = options.both && !pairs->mirrors_next;
    if (!pairs->mirrors_next) ++pairs->next;
    return true;
  };
}

std::string shown(double value) {
  if (std::isnan(value)) return "-";
  char text[32];
  std::snprintf(text, sizeof(text), "%.3f", value);
  return text;
}

void print_ranking(Output& out, const HeadReport& report, const Options& options) {
  out.line(join(report.items, " items, ", report.source_tokens + report.target_tokens, " tokens, ", report.heads.size(), " heads"));
  for (int i = 0; i < behaviour_count; ++i) {
    const auto behaviour = static_cast<Behaviour>(i);
    if (!options.behaviour.empty() && behaviour != behaviour_named(options.behaviour)) continue;
    const std::vector<RankedHead> ranked = rank_heads(report, behaviour, options.most);
    if (ranked.empty()) continue;
    out.line("");
    out.line(padded(name_of(behaviour), 24) + meaning_of(behaviour));
    for (const RankedHead& head : ranked) out.line("  " + padded(name_of(head.head), 22) + shown(head.value));
  }
}

void run(const Options& options, const Globals& globals) {
  if (!options.behaviour.empty()) behaviour_named(options.behaviour);
  for (const std::string& name : options.outputs)
    if (!name.ends_with(".csv") && !name.ends_with(".json"))
      throw Error(ErrorKind::argument, name, "its ending is not known", "use .csv or .json");
  const ModelFolder folder = load_model_folder(find_model(options.model));
  HeadOptions find;
  find.source = folder.source.get();
  find.target = folder.target.get();
  const bool moving = is_terminal(STDERR_FILENO);
  find.progress = [&](const HeadProgress& progress) {
    if (moving)
      std::cerr << "\r\033[K" << short_number(static_cast<double>(progress.items)) << " items, " << short_number(static_cast<double>(progress.tokens)) << " tokens"
                << std::flush;
  };
  std::shared_ptr<Translator> translator;
  std::shared_ptr<TextGenerator> generator;
  HeadReport report = find_heads(folder.model, corpus(options, folder, translator, generator), find);
  if (moving) std::cerr << "\r\033[K";

  if (!options.compare.empty()) report.heads = difference(report_from_json(read_file(options.compare), options.compare), report).heads;
  for (const std::string& name : options.outputs) write_file(name, name.ends_with(".csv") ? to_csv(report) : to_json(report));
  Output out;
  if (!options.like.empty()) {
    const HeadPlace head = parse_head(folder.model, options.like);
    const std::vector<RankedHead> alike = heads_like(report, head, Likeness::weights, options.most);
    if (globals.json) {
      Json list = Json::array();
      for (const RankedHead& one : alike) list.push_back({{"head", name_of(one.head)}, {"likeness", one.value}});
      out.json({{"head", name_of(head)}, {"like", std::move(list)}});
    } else {
      out.line("heads that look where " + name_of(head) + " looks (1: everywhere the same)");
      for (const RankedHead& one : alike) out.line("  " + padded(name_of(one.head), 22) + shown(one.value));
    }
  } else if (globals.json) {
    out.json(Json::parse(to_json(report)));
  } else if (options.outputs.empty()) {
    print_ranking(out, report, options);
  }
  out.flush();
}

}  // namespace

void add_heads(Command& program, Globals& globals) {
  Command* command = program.add_command("heads", "What every head does over a corpus: find heads by behaviour");
  auto options = std::make_shared<Options>();
  command->add_option("files", options->files, "Source and target file of a translator; files of lines otherwise")->type_name("FILE");
  command->add_option("--model,-m", options->model, "Model folder, or the name of a model that ships")->show_default();
  command->add_option("--to", options->to, "Language of the target (default: told by the script of each source)");
  command->add_flag("--both", options->both, "Read each pair in both directions, too: scores how far their alignments agree");
  command->add_option("--reference", options->reference, "Word alignments of the pairs, in Pharaoh format: scores alignment errors");
  command->add_flag("--repeated", options->repeated, "Random tokens that repeat instead of a corpus: shows induction heads");
  command->add_option("--limit", options->limit, "Items read at most")->check(at_least(1));
  command->add_option("--behaviour,--behavior", options->behaviour, "Rank by this behaviour only");
  command->add_option("--most", options->most, "Heads listed for each behaviour")->show_default()->check(at_least(1));
  command->add_option("--like", options->like, "Heads that look where this one looks")->type_name("HEAD");
  command->add_option("--compare", options->compare, "A report written before (.json): show how much each score rose since");
  command->add_option("--output,-o", options->outputs, "Write all scores as .csv or .json")->type_name("FILE")->one_each();
  add_read_options(*command, options->read, true);
  command->footer(
      "Examples:\n"
      "  attend heads source.zh target.en --limit 500\n"
      "  attend heads source.zh target.en --both --behaviour agreement\n"
      "  attend heads --model tang-quatrains poems.txt --output heads.csv\n"
      "  attend heads --repeated --behaviour induction\n"
      "  attend heads source.zh target.en --like decoder.2.cross.1");
  command->callback([options, &globals] { run(*options, globals); });
}

}  // namespace attend::cli
