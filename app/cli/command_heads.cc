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
  const auto count = [&](std::size_t found) {
    return options.limit > 0 ? std::min(found, static_cast<std::size_t>(options.limit)) : found;
  };
  std::vector<HeadItem> items;
  if (pair) {
    if (options.files.size() != 2)
      throw Error(ErrorKind::argument, "heads", join(options.files.size(), " files given"), "this model translates: give a source file and a target file, or --repeated");
    translator = std::make_shared<Translator>(folder);
    const ParallelCorpus pairs = read_parallel(options.files[0], options.files[1], options.read);
    std::vector<ReferenceAlignment> references;
    if (!options.reference.empty()) {
      references = read_pharaoh(options.reference);
      if (references.size() < pairs.source.size())
        throw Error(ErrorKind::argument, options.reference, join("has ", references.size(), " lines for ", pairs.source.size(), " pairs"), "give one line a pair");
    }
    for (std::size_t i = 0; i < count(pairs.source.size()); ++i) {
      PairItemOptions item;
      item.to = options.to;
      item.words = true;
      if (!references.empty()) item.reference = references[static_cast<std::size_t>(pairs.line[i]) - 1];
      items.push_back(item_of(*translator, pairs.source[i], pairs.target[i], item));
      if (!options.both) continue;
      PairItemOptions mirror;
      mirror.words = true;
      mirror.to = translator->direction(pairs.source[i], {}, options.to).first;
      items.push_back(item_of(*translator, pairs.target[i], pairs.source[i], mirror));
      auto words = std::make_shared<ItemWords>(*items.back().words);
      words->mirrors = true;
      items.back().words = std::move(words);
    }
  } else {
    if (options.files.empty()) throw Error(ErrorKind::argument, "heads", "no corpus is given", "give files of lines, or --repeated");
    generator = std::make_shared<TextGenerator>(folder);
    for (const std::string& file : options.files) {
      LineReader reader(file, options.read);
      for (std::string line; reader.next(line) && (options.limit <= 0 || static_cast<std::int64_t>(items.size()) < options.limit);)
        if (!line.empty()) items.push_back(item_of(*generator, line));
    }
  }
  return items_from(std::move(items));
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
  command->add_option("files", options->files, "Source and target file of a translator; files of lines otherwise")->type_name("FILE...");
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
