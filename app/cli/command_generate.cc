#include <unistd.h>

#include <iostream>
#include <memory>

#include "attend/translate.h"
#include "commands.h"
#include "decode_options.h"
#include "input_output.h"
#include "terminal.h"

namespace attend::cli {
namespace {

struct Options {
  std::string model = "tang-quatrains";
  std::vector<std::string> prompts;
  std::string file;
  DecodeFlags decode;
  ReadOptions read;
};

void run(Options& options, const Globals& globals) {
  const ModelFolder folder = load_model_folder(find_model(options.model));
  const TextGenerator generator(folder);
  GenerateOptions generate;
  generate.decode = options.decode.options(globals);
  std::vector<std::string> prompts = options.prompts;
  if (!options.file.empty()) {
    LineReader reader(options.file, options.read);
    for (std::string line; reader.next(line);) prompts.push_back(line);
  }
  if (prompts.empty()) prompts.emplace_back();

  Output out;
  const bool live = !globals.json && is_terminal(STDOUT_FILENO) && prompts.size() == 1 && generate.decode.n_best == 1 &&
                    generate.decode.strategy != Strategy::beam;
  if (live) {
    out.text(prompts[0]);
    generate.on_text = [&](std::int64_t, std::int64_t, std::string_view text) {
      out.text(text);
      out.flush();
      return true;
    };
    generator.generate(prompts, generate);
    out.line("");
    out.flush();
    return;
  }
  const std::vector<Continuation> continuations = generator.generate(prompts, generate);
  for (std::size_t i = 0; i < prompts.size(); ++i) {
    for (const TextHypothesis& hypothesis : continuations[i].hypotheses) {
      if (globals.json)
        out.json({{"prompt", prompts[i]},
                  {"text", hypothesis.text},
                  {"log_probability", hypothesis.tokens.total},
                  {"finished", hypothesis.tokens.finished},
                  {"ids", hypothesis.tokens.ids},
                  {"log_probabilities", hypothesis.tokens.log_probabilities}});
      else
        out.line(prompts[i] + hypothesis.text);
    }
  }
  out.flush();
}

}  // namespace

void add_generate(CLI::App& program, Globals& globals) {
  CLI::App* command = program.add_subcommand("generate", "Go on writing from a beginning");
  auto options = std::make_shared<Options>();
  options->decode.decode.temperature = 0.8;
  options->decode.decode.top_p = 0.95;
  command->add_option("prompts", options->prompts, "Beginnings; none: an empty one")->type_name("TEXT...");
  command->add_option("--model,-m", options->model, "Model folder, or the name of a model that ships")->capture_default_str();
  command->add_option("--file,-f", options->file, "Read beginnings from a file, one a line; -: standard input");
  command->add_flag("--replace-invalid", options->read.replace_invalid, "Replace ill-formed UTF-8 by U+FFFD instead of refusing it");
  options->decode.add_to(*command, Strategy::sample);
  command->footer(
      "Examples:\n"
      "  attend generate\n"
      "  attend generate 明月 --samples 3 --seed 7\n"
      "  attend generate --strategy beam --n-best 2 春风 --json");
  command->callback([options, &globals] { run(*options, globals); });
}

}  // namespace attend::cli
