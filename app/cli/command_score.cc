#include <cmath>
#include <memory>
#include <nlohmann/json.hpp>

#include "attend/translate.h"
#include "commands.h"
#include "input_output.h"
#include "terminal.h"

namespace attend::cli {
namespace {

struct Options {
  std::string model = "tatoeba-zh-en";
  std::vector<std::string> files;
  std::string from, to;
  bool by_token = false;
  ReadOptions read;
};

void print(Output& out, const Tokenizer& tokenizer, const TextScore& score, std::int64_t line, bool by_token,
           bool json) {
  if (json) {
    Json result{{"line", line}, {"log_probability", score.total}, {"perplexity", score.perplexity}};
    if (by_token) {
      Json tokens = Json::array();
      for (std::size_t i = 0; i < score.ids.size(); ++i)
        tokens.push_back({{"id", score.ids[i]},
                          {"text", tokenizer.readable(score.ids[i])},
                          {"log_probability", score.log_probabilities[i]}});
      result["tokens"] = std::move(tokens);
    }
    out.json(result);
    return;
  }
  char text[64];
  std::snprintf(text, sizeof(text), "%.4f\t%.3f", score.total, score.perplexity);
  std::string row = text;
  if (by_token) {
    row += '\t';
    for (std::size_t i = 0; i < score.ids.size(); ++i) {
      std::snprintf(text, sizeof(text), "(%.2f) ", static_cast<double>(score.log_probabilities[i]));
      row += tokenizer.readable(score.ids[i]) + text;
    }
  }
  out.line(shown(row));
}

void run(const Options& options, const Globals& globals) {
  const ModelFolder folder = load_model_folder(find_model(options.model));
  const bool pairs = folder.model.config().encoder.has_value();
  if (!folder.model.config().decoder)
    throw Error(ErrorKind::argument, options.model,
                folder.model.config().classes > 0 ? "the model classifies images" : "the model has no decoder",
                "score judges text: use a model that translates or writes");
  if (options.files.size() != (pairs ? 2u : 1u))
    throw Error(ErrorKind::argument, "score",
                join(counted(static_cast<std::int64_t>(options.files.size()), "file"), " given"),
                pairs ? "this model translates: give a source file and a target file"
                      : "this model writes: give one file of lines");
  Output out;
  std::vector<TextScore> scores;
  const Tokenizer* tokenizer = nullptr;
  if (pairs) {
    const Translator translator(folder);
    const ParallelCorpus corpus = read_parallel(options.files[0], options.files[1], options.read);
    TranslateOptions translate;
    translate.from = options.from;
    translate.to = options.to;
    // Pairs may have been left out: the number in the call is not that of the line.
    translate.place = [&](std::int64_t number) {
      return join(options.files[0], ":", corpus.line[static_cast<std::size_t>(number - 1)]);
    };
    scores = translator.score(corpus.source, corpus.target, translate);
    tokenizer = &translator.target();
    for (std::size_t i = 0; i < scores.size(); ++i)
      print(out, *tokenizer, scores[i], corpus.line[i], options.by_token, globals.json);
  } else {
    const TextGenerator generator(folder);
    const Lines lines = read_lines(options.files[0], options.read);
    scores =
        generator.score(lines.lines, 48, 1, [&](std::int64_t number) { return join(options.files[0], ":", number); });
    tokenizer = &generator.tokenizer();
    for (std::size_t i = 0; i < scores.size(); ++i)
      print(out, *tokenizer, scores[i], static_cast<std::int64_t>(i) + 1, options.by_token, globals.json);
  }
  double total = 0;
  std::size_t tokens = 0;
  for (const TextScore& score : scores) total += score.total, tokens += score.ids.size();
  const double mean = tokens ? -total / static_cast<double>(tokens) : 0;
  if (globals.json) {
    out.json({{"summary", true},
              {"lines", scores.size()},
              {"tokens", tokens},
              {"log_probability", total},
              {"nats_per_token", mean},
              {"perplexity", std::exp(mean)}});
  } else {
    char text[128];
    std::snprintf(text, sizeof(text), ", %.4f nats a token, perplexity %.3f", mean, std::exp(mean));
    out.line("# " + counted(static_cast<std::int64_t>(scores.size()), "line") + ", " +
             counted(static_cast<std::int64_t>(tokens), "token") + text);
  }
  out.flush();
}

}  // namespace

void add_score(Command& program, Globals& globals) {
  Command* command = program.add_command("score", "Log-probability and perplexity of given text");
  auto options = std::make_shared<Options>();
  command->add_option("files", options->files, "Source and target file of a translator; one file of lines otherwise")
      ->required()
      ->type_name("FILE");
  command->add_option("--model,-m", options->model, "Model folder, or the name of a model that ships")->show_default();
  command->add_option("--from", options->from, "Language of the source (default: told by the script of each line)");
  command->add_option("--to", options->to, "Language of the target");
  command->add_flag("--by-token", options->by_token,
                    "Also the log-probability of every token (with --json: \"tokens\")");
  add_read_options(*command, options->read, true);
  command->footer(
      "Prints, for each line, log-probability (natural logarithm), perplexity and, with --by-token, the tokens; at the end\n"
      "a line of totals (\"# ...\"; with --json an object with \"summary\": true).\n"
      "Examples:\n"
      "  attend score source.zh target.en\n"
      "  attend score --model tang-quatrains poems.txt --json");
  command->callback([options, &globals] { run(*options, globals); });
}

}  // namespace attend::cli
