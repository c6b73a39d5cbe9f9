#include <unistd.h>

#include <memory>

#include "attend/translate.h"
#include "attention_strip.h"
#include "commands.h"
#include "decode_options.h"
#include "input_output.h"
#include "terminal.h"

namespace attend::cli {
namespace {

struct Options {
  std::string model = "tatoeba-zh-en";
  InputOptions input;
  DecodeFlags decode;
  TranslateOptions translate;
  bool show_attention = false, by_token = false, show_scores = false;
  std::size_t batch = 512;
};

Json to_json(const Translator& translator, const Translation& translation, std::int64_t line, const std::string& text, bool align) {
  Json result{{"line", line}, {"from", translation.from}, {"to", translation.to}, {"source", text}, {"translation", translation.text()}};
  Json list = Json::array();
  for (const TextHypothesis& hypothesis : translation.hypotheses) {
    Json tokens = Json::array();
    for (std::size_t i = 0; i < hypothesis.tokens.ids.size(); ++i) {
      Json token{{"id", hypothesis.tokens.ids[i]}, {"text", translator.target().readable(hypothesis.tokens.ids[i])}};
      if (!hypothesis.tokens.log_probabilities.empty()) token["log_probability"] = hypothesis.tokens.log_probabilities[i];
      tokens.push_back(std::move(token));
    }
    list.push_back({{"text", hypothesis.text},
                    {"score", hypothesis.tokens.score},
                    {"log_probability", hypothesis.tokens.total},
                    {"finished", hypothesis.tokens.finished},
                    {"tokens", std::move(tokens)}});
  }
  result["hypotheses"] = std::move(list);
  if (align && !translation.alignment.empty()) {
    Json source = Json::array(), rows = Json::array();
    for (const std::int32_t id : translation.source_ids) source.push_back(translator.source().readable(id));
    const auto targets = static_cast<std::int64_t>(translation.hypotheses.front().tokens.ids.size());
    for (std::int64_t target = 0; target < targets; ++target) {
      Json row = Json::array();
      for (std::size_t key = 0; key < translation.source_ids.size(); ++key)
        row.push_back(translation.weight(target, static_cast<std::int64_t>(key)));
      rows.push_back(std::move(row));
    }
    result["attention"] = {{"source_tokens", std::move(source)}, {"weights", std::move(rows)}};
  }
  return result;
}

void run(Options& options, const Globals& globals) {
  const ModelFolder folder = load_model_folder(find_model(options.model));
  const Translator translator(folder);
  options.translate.decode = options.decode.options(globals);
  options.translate.align = options.show_attention;
  Output out;
  const bool colour = colour_wanted(STDOUT_FILENO);
  const int columns = terminal_columns(STDOUT_FILENO);
  options.input.each_batch(options.batch, [&](std::span<const std::string> lines, std::int64_t first) {
    options.translate.first_line = first;
    const std::vector<Translation> translations = translator.translate(lines, options.translate);
    for (std::size_t i = 0; i < translations.size(); ++i) {
      const Translation& translation = translations[i];
      if (globals.json) {
        out.json(to_json(translator, translation, first + static_cast<std::int64_t>(i), lines[i], options.show_attention));
        continue;
      }
      if (options.show_attention) {
        if (i > 0 || first > 1) out.line("");
        const auto strong = [&](const std::string& text) { return colour ? "\033[1m" + text + "\033[0m" : text; };
        out.line(translation.from + "  " + lines[i]);
        out.line(translation.to + "  " + strong(translation.text()));
        for (const std::string& row : attention_strip(translator, translation, options.by_token, colour, columns)) out.line(row);
        continue;
      }
      for (const TextHypothesis& hypothesis : translation.hypotheses) {
        char score[32] = "";
        if (options.show_scores) std::snprintf(score, sizeof(score), "%.4f\t", hypothesis.tokens.score);
        out.line(score + hypothesis.text);
      }
    }
    out.flush();
  });
  out.flush();
}

}  // namespace

void add_translate(CLI::App& program, Globals& globals) {
  CLI::App* command = program.add_subcommand("translate", "Translate lines, and show what each word read");
  auto options = std::make_shared<Options>();
  command->add_option("--model,-m", options->model, "Model folder, or the name of a model that ships")->capture_default_str();
  options->input.add_to(*command, "Files of lines, plain or .gz or .xz; - or none: standard input");
  command->add_option("--from", options->translate.from, "Language of the input (default: told by the script of each line)");
  command->add_option("--to", options->translate.to, "Language wanted");
  command->add_flag("--show-attention,-a", options->show_attention, "Under each translation, where each word of it read in the source");
  command->add_flag("--by-token", options->by_token, "Show tokens as the model sees them instead of words");
  command->add_option("--layers", options->translate.alignment.layers, "Decoder layers shown, from 0, -1 the last (default: the last but one)")
      ->delimiter(',')
      ->allow_extra_args(false);
  command->add_option("--heads", options->translate.alignment.heads, "Heads shown (default: the mean of all)")
      ->delimiter(',')
      ->allow_extra_args(false);
  command->add_option("--prefix", options->translate.prefix, "Text that every translation must begin with");
  command->add_flag("--scores", options->show_scores, "Print the score before each translation, separated by a tab");
  options->decode.add_to(*command, Strategy::beam);
  command->footer(
      "Examples:\n"
      "  echo 你好吗？ | attend translate\n"
      "  attend translate --show-attention --beam-size 5 sentences.txt\n"
      "  attend translate --json --n-best 3 < sentences.txt | jq .hypotheses");
  command->callback([options, &globals] { run(*options, globals); });
}

}  // namespace attend::cli
