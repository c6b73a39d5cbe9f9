#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <limits>
#include <memory>
#include <nlohmann/json.hpp>

#include "attend/inspect.h"
#include "attribution_options.h"
#include "commands.h"
#include "input_output.h"
#include "inspection_files.h"
#include "statistics_options.h"
#include "subject_options.h"
#include "terminal.h"

namespace attend::cli {
namespace {

struct Options {
  SubjectFlags subject;
  InspectOptions inspect;
  std::string why, rather_than, group = "word";
  std::int64_t at = -1;
  bool sequence = false, no_write = false, no_matrices = false;
  AttributionFlags attribution;
  StatisticsFlags statistics;
  InspectionFiles files;
  int rows = 10;
};

// The row whose next token is the one asked for; else the last.
std::int64_t position_of(const Subject& subject, std::int32_t token) {
  const auto found = std::find(subject.next.begin(), subject.next.end(), token);
  return found == subject.next.end() ? -1 : found - subject.next.begin();
}

std::optional<Target> target_of(const Options& options, const ModelFolder& folder, const Subject& subject) {
  if (options.sequence) return probability_of_text(subject);
  if (options.why.empty()) return std::nullopt;
  const TransformerConfig& config = folder.model.config();
  if (config.classes > 0) {
    const auto class_named = [&](const std::string& name) {
      const auto& classes = folder.task.classes;
      const auto found = std::find(classes.begin(), classes.end(), name);
      if (found != classes.end()) return static_cast<std::int32_t>(found - classes.begin());
      std::string known;
      for (const std::string& one : classes) known += (known.empty() ? "" : ", ") + one;
      throw Error(ErrorKind::argument, "--why", join("the model has no class \"", name, "\""), "it has " + known);
    };
    if (options.at >= 0)
      throw Error(ErrorKind::argument, "--at", "this model gives the whole text one class, not a token at a position",
                  "leave it out");
    if (options.rather_than.empty()) return class_logit_of(class_named(options.why));
    return class_difference_of(class_named(options.why), class_named(options.rather_than));
  }
  const std::shared_ptr<const Tokenizer>& tokenizer = folder.target ? folder.target : folder.source;
  const std::int32_t token = token_named(*tokenizer, options.why);
  const std::int64_t position = options.at >= 0 ? options.at : position_of(subject, token);
  if (options.rather_than.empty()) return logit_of(token, position);
  return difference_of(token, token_named(*tokenizer, options.rather_than), position);
}

std::string number(double value) {
  if (std::isnan(value)) return "-";
  char text[32];
  std::snprintf(text, sizeof(text), "%.3f", value);
  return text;
}

constexpr double least_printed_share = 0.05;
// Edges of a text as long as people read line by line; beyond, a terminal is told of the largest only.
constexpr double few_edges = 1 << 24;

double edges_of(const TransformerConfig& config, const Subject& subject) {
  const auto source = static_cast<double>(subject.source.size()), target = static_cast<double>(subject.target.size());
  const double encoder = config.encoder ? config.encoder->layers * source * source : 0;
  const double decoder =
      config.decoder ? config.decoder->layers * target * (target + (config.encoder ? source : 0)) : 0;
  return static_cast<double>(config.heads) * (encoder + decoder);
}

// What each query looks at, over the layers and heads chosen.
void print_rows(Output& out, const Inspection& inspection, std::size_t which,
                const std::vector<std::vector<Reading>>& readings, int columns, bool colour) {
  const ShownAttention& attention = inspection.attentions[which];
  const auto& queries = inspection.texts[attention.query_text].tokens;
  const auto& keys = inspection.texts[attention.key_text].tokens;
  out.line("");
  out.line(join(attention.name, ": what each ", attention.query_text == attention.key_text ? "word" : "target word",
                " looks at, mean over ", counted(static_cast<std::int64_t>(attention.layers.size()), "layer"), " and ",
                attention.heads.front() == mean_of_all
                    ? "the heads chosen"
                    : counted(static_cast<std::int64_t>(attention.heads.size()), "head")));
  int widest = 4;
  for (const ShownToken& token : queries) widest = std::max(widest, std::min(display_width(token.text), 16));
  for (std::size_t query = 0; query < queries.size(); ++query) {
    std::string row = "  " + padded(queries[query].text, widest) + "  ";
    int left = columns - widest - 4;
    for (const Reading& reading : readings[query]) {
      const std::string& key = keys[reading.key].text;
      char text[16];
      std::snprintf(text, sizeof(text), " %.2f   ", reading.share);
      const int width = display_width(key) + static_cast<int>(std::string_view(text).size());
      if (width > left) break;
      left -= width;
      row += (colour && reading.share >= 0.5 ? "\033[1m" + key + "\033[0m" : key) + text;
    }
    while (row.ends_with(' ')) row.pop_back();
    out.line(row);
  }
}

std::string edge_text(const Subject& subject, const Edge& edge) {
  const auto& queries = edge.head.stack == StackKind::encoder ? subject.source : subject.target;
  const auto& keys =
      edge.head.part == Part::cross || edge.head.stack == StackKind::encoder ? subject.source : subject.target;
  const auto text = [](const std::vector<Piece>& pieces, std::int64_t row) {
    const Piece& piece = pieces[static_cast<std::size_t>(row)];
    return piece.text.empty() ? piece.raw : piece.text;
  };
  return text(queries, edge.query) + " -> " + text(keys, edge.key);
}

// some: not all edges were cut.
void print_effects(Output& out, const Subject& subject, const InspectReport& report, int rows, bool some) {
  out.line("");
  char value[64];
  std::snprintf(value, sizeof(value), " = %.4f", report.target);
  out.line(report.inspection.target + value);
  out.line("  what cutting an edge does to it (negative: the edge speaks for it):");
  out.line("  " + padded("head", 20) + padded("reads", 28) + padded("weight", 9) + padded("x norm", 9) +
           padded("first order", 13) + "exact");
  for (const MeasuredEdge& edge :
       std::span(report.edges).first(std::min(report.edges.size(), static_cast<std::size_t>(rows))))
    out.line("  " + padded(name_of(edge.edge.head), 20) + padded(edge_text(subject, edge.edge), 28) +
             padded(number(edge.weight), 9) + padded(number(edge.write), 9) + padded(number(edge.first_order), 13) +
             number(edge.exact));
  // Which says something of the agreement: of all edges it would be another.
  const char* const chosen = some ? ", those of the largest first-order effects" : "";
  for (const RankAgreement& pair : report.agreement) {
    char text[200];
    std::snprintf(text, sizeof(text), "  rank agreement of %s and %s over %lld edges%s: %.3f", name_of(pair.first),
                  name_of(pair.second), static_cast<long long>(pair.edges), chosen, pair.rank_correlation);
    out.line(text);
  }
}

void run(Options& options, const Globals& globals) {
  const std::filesystem::path model = find_model(options.subject.model);
  const ModelFolder folder = load_model_folder(model);
  options.inspect.group = group_by_named(options.group);
  options.inspect.write = !options.no_write;
  if (options.inspect.exact > 0 && options.why.empty() && !options.sequence)
    throw Error(ErrorKind::argument, "--exact", "needs something to measure effects on",
                "add --why TOKEN or --sequence");
  if (!options.rather_than.empty() && options.why.empty())
    throw Error(ErrorKind::argument, "--rather-than", "is given without --why", "add --why TOKEN");
  options.inspect.attribution = options.attribution.chosen(!options.why.empty() || options.sequence);
  options.statistics.choose(options.inspect);
  if (options.files.has({".top.csv"}) && options.statistics.top == 0)
    throw Error(ErrorKind::argument, "--output", ".top.csv holds the largest keys of every row, and none are asked for",
                "add --top-k 5");
  const std::vector<SubjectTexts> all = options.subject.read(folder);
  options.files.check(all.size(), !options.no_matrices);
  const bool printed = !globals.json && !options.files.any();
  Output out;
  const bool colour = colour_wanted(STDOUT_FILENO);
  for (std::size_t i = 0; i < all.size(); ++i) {
    const Subject subject = read_subject(folder, all[i]);
    warn_of_unknown(subject);
    options.inspect.target = target_of(options, folder, subject);
    options.inspect.matrices =
        !options.no_matrices &&
        (globals.json || options.files.want_matrices() ||
         (printed && options.inspect.target && edges_of(folder.model.config(), subject) <= few_edges));
    // What rows tell in numbers stands in the place of what words look at; files that hold it do for it.
    const bool table = !globals.json &&
                       ((options.statistics.top > 0 && !options.files.has({".top.csv", ".json", ".npz"})) ||
                        (options.statistics.of_rows() && !options.files.has({".rows.csv", ".json", ".npz", ".html"})));
    options.inspect.statistics = !printed || options.statistics.statistics;
    options.inspect.least_share = printed && !table ? least_printed_share : 0;
    InspectReport report = inspect(folder, model.filename().string(), subject, options.inspect);
    const std::vector<std::string> written = options.files.write(report.inspection, i);
    if (globals.json) {
      Json json = Json::parse(json_of(report.inspection));
      if (options.inspect.target) {
        json["target_value"] = report.target;
        Json edges = Json::array();
        for (const MeasuredEdge& edge : report.edges)
          edges.push_back({{"head", name_of(edge.edge.head)},
                           {"query", edge.edge.query},
                           {"key", edge.edge.key},
                           {"weight", edge.weight},
                           {"write", edge.write},
                           {"first_order", edge.first_order},
                           {"exact", edge.exact}});
        json["edges"] = std::move(edges);
        Json agreement = Json::array();
        for (const RankAgreement& pair : report.agreement)
          agreement.push_back({{"first", name_of(pair.first)},
                               {"second", name_of(pair.second)},
                               {"rank_correlation", pair.rank_correlation},
                               {"shared_top", pair.shared_top},
                               {"top", pair.top},
                               {"edges", pair.edges}});
        json["rank_agreement"] = std::move(agreement);
      }
      out.json(json);
    } else {
      if (i > 0) out.line("");
      for (const ShownText& text : report.inspection.texts) out.line(padded(text.name, 8) + running_text(text));
      for (const std::string& file : written) out.line(file);
      for (std::size_t which = 0; printed && which < report.readings.size(); ++which)
        print_rows(out, report.inspection, which, report.readings[which], terminal_columns(STDOUT_FILENO), colour);
      // In a file a row is a line.
      if (table)
        print_statistics(
            out, report.inspection, options.statistics.statistics, options.inspect.regions,
            is_terminal(STDOUT_FILENO) ? terminal_columns(STDOUT_FILENO) : std::numeric_limits<int>::max());
      if (options.inspect.target)
        print_effects(
            out, subject, report, options.rows,
            options.inspect.exact > 0 && report.edges.size() >= static_cast<std::size_t>(options.inspect.exact));
      print_attributions(out, report.inspection, terminal_columns(STDOUT_FILENO), colour);
    }
    out.flush();
  }
}

}  // namespace

void add_inspect(Command& program, Globals& globals) {
  Command* command = program.add_command("inspect", "What every head looks at, what it writes, and what matters");
  auto options = std::make_shared<Options>();
  options->subject.add_to(*command);
  command
      ->add_list("--attention", options->inspect.attentions,
                 "encoder, decoder or cross, or several: encoder,cross (default: all there are)")
      ->words({"encoder", "decoder", "cross"});
  command->add_list("--layers", options->inspect.layers, "Layers, from 0, -1 the last: 1,2 (default: all)");
  command->add_list("--heads", options->inspect.heads, "Heads, from 0, -1 the last: 0,3 (default: all)");
  command->add_flag("--mean-heads", options->inspect.mean_heads, "One matrix a layer: the mean over its heads");
  command
      ->add_option("--group", options->group,
                   "Show tokens as token, character, word or blank (what stands between blanks)")
      ->show_default();
  command->add_option("--source-words", options->inspect.source_words,
                      "The source with blanks between its words, to group by these");
  command->add_option("--target-words", options->inspect.target_words,
                      "The same of the target, or of the text of a single stack");
  command->add_flag(
      "--no-matrices", options->no_matrices,
      "Only what rows and heads tell (entropy, distance, weight on first, self and previous): memory linear in the text");
  command->add_flag("--no-write", options->no_write, "Leave out weight x norm of what an edge writes");
  command->add_option("--why", options->why, "Token (or class) whose logit is explained")->type_name("TOKEN");
  command->add_option("--rather-than", options->rather_than, "Explain the logit's difference from this one's")
      ->type_name("TOKEN");
  command
      ->add_option("--at", options->at,
                   "Position whose next token is explained (default: where TOKEN comes, else the last)")
      ->type_name("N")
      ->check(at_least(0))
      ->needs("--why");
  command->add_flag("--sequence", options->sequence, "Explain the log-probability of the whole text")
      ->excludes("--why");
  command
      ->add_option("--exact", options->inspect.exact,
                   "Cut so many edges for real, those with the largest first-order effects")
      ->type_name("N")
      ->check(at_least(1));
  command->add_option("--rows", options->rows, "Edges listed")->show_default()->check(at_least(1));
  options->statistics.add_to(*command);
  options->attribution.add_to(*command);
  options->files.add_to(*command);
  command->footer(
      "Examples:\n"
      "  attend inspect 我喜欢学习中文。\n"
      "  attend inspect 我喜欢学习中文。 --why Chinese --exact 200\n"
      "  attend inspect 我喜欢学习中文。 --why Chinese --rather-than English --output why.svg --picture measures\n"
      "  attend inspect 我喜欢学习中文。 --why Chinese --attribution integrated-gradients,rollout,value-zeroing\n"
      "  attend inspect 我喜欢学习中文。 --why Chinese --attribution integrated-gradients --output words.svg --picture attribution\n"
      "  attend inspect 我喜欢学习中文。 --attention cross --layers 1,2 --heads 0,3 --statistics --top-k 3 --span object=2:4\n"
      "  attend inspect --model tang-quatrains 床前明月光 --layers -1 --output page.html --output weights.npz\n"
      "  attend inspect --file long.txt --model tang-quatrains --top-k 8 --output long.rows.csv --output long.top.csv\n"
      "  attend inspect --file sentences.txt --attention cross --output pictures/line-{}.svg");
  command->callback([options, &globals] { run(*options, globals); });
}

}  // namespace attend::cli
