#include <unistd.h>

#include <memory>
#include <nlohmann/json.hpp>
#include <utility>

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

Json to_json(const Translator& translator, const Translation& translation, const LineBatch& batch, std::size_t index,
             bool align) {
  Json result = Json::object();
  if (batch.named) result["file"] = batch.name;
  result["line"] = batch.first + static_cast<std::int64_t>(index);
  result["from"] = translation.from;
  result["to"] = translation.to;
  result["source"] = batch.lines[index];
  result["translation"] = translation.text();
  Json list = Json::array();
  for (const TextHypothesis& hypothesis : translation.hypotheses) {
    Json tokens = Json::array();
    for (std::size_t i = 0; i < hypothesis.tokens.ids.size(); ++i) {
      Json token{{"id", hypothesis.tokens.ids[i]}, {"text", translator.target().readable(hypothesis.tokens.ids[i])}};
      if (!hypothesis.tokens.log_probabilities.empty())
        token["log_probability"] = hypothesis.tokens.log_probabilities[i];
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
  options.translate.prefix = checked_argument(options.translate.prefix, "--prefix", options.input.read.replace_invalid);
  Output out;
  const bool colour = colour_wanted(STDOUT_FILENO);
  const int columns = terminal_columns(STDOUT_FILENO);
  bool begun = false;
  const auto score = [&](const TextHypothesis& hypothesis) {
    char text[32] = "";
    if (options.show_scores) std::snprintf(text, sizeof(text), "%.4f\t", hypothesis.tokens.score);
    return std::string(text);
  };
  options.input.each_batch(options.batch, [&](const LineBatch& batch) {
    options.translate.first_line = batch.first;
    options.translate.place = [&](std::int64_t number) { return batch.place(number); };
    const std::vector<Translation> translations = translator.translate(batch.lines, options.translate);
    for (std::size_t i = 0; i < translations.size(); ++i) {
      const Translation& translation = translations[i];
      if (globals.json) {
        out.json(to_json(translator, translation, batch, i, options.show_attention));
        continue;
      }
      if (options.show_attention) {
        if (std::exchange(begun, true)) out.line("");
        const auto strong = [&](const std::string& text) { return colour ? "\033[1m" + text + "\033[0m" : text; };
        out.line(translation.from + "  " + shown(batch.lines[i]));
        // The strip is that of the first.
        for (const TextHypothesis& hypothesis : translation.hypotheses)
          out.line(
              translation.to + "  " + score(hypothesis) +
              (&hypothesis == translation.hypotheses.data() ? strong(shown(hypothesis.text)) : shown(hypothesis.text)));
        for (const std::string& row : attention_strip(translator, translation, options.by_token, colour, columns))
          out.line(row);
        continue;
      }
      for (const TextHypothesis& hypothesis : translation.hypotheses)
        out.line(score(hypothesis) + shown(hypothesis.text));
    }
    out.flush();
  });
  out.flush();
}

}  // namespace

void add_translate(Command& program, Globals& globals) {
  Command* command = program.add_command("translate", "Translate lines, and show what each word read");
  auto options = std::make_shared<Options>();
  command->add_option("--model,-m", options->model, "Model folder, or the name of a model that ships")->show_default();
  options->input.add_to(*command, "Files of lines, plain or .gz or .xz; - or none: standard input");
  command->add_option("--from", options->translate.from,
                      "Language of the input (default: told by the script of each line)");
  command->add_option("--to", options->translate.to, "Language wanted");
  command->add_flag("--show-attention,-a", options->show_attention,
                    "Under each translation, where each word of it read in the source");
  command->add_flag("--by-token", options->by_token, "Show tokens as the model sees them instead of words");
  command->add_list("--layers", options->translate.alignment.layers,
                    "Decoder layers shown as their mean, from 0, -1 the last: 0,3 (default: the last but one)");
  command->add_list("--heads", options->translate.alignment.heads,
                    "Heads shown as their mean, from 0, -1 the last: 0,3 (default: all)");
  command->add_option("--prefix", options->translate.prefix, "Text that every translation must begin with");
  command->add_flag("--scores", options->show_scores, "Print the score before each translation, separated by a tab");
  options->decode.add_to(*command, Strategy::beam);
  command->footer(
      "Examples:\n"
      "  echo 你好吗？ | attend translate\n"
      "  attend translate --show-attention --beam-size 5 sentences.txt\n"
      "  attend translate --show-attention --layers 1,2 --heads 0,3 sentences.txt\n"
      "  attend translate --json --n-best 3 < sentences.txt | jq .hypotheses");
  command->callback([options, &globals] { run(*options, globals); });
}

}  // namespace attend::cli
