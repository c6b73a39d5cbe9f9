#include <unistd.h>

#include <iostream>
#include <memory>
#include <nlohmann/json.hpp>

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
  InputOptions input;  // --file, of which there may be one
  DecodeFlags decode;
};

// A text that ends at the last position of the model has not ended by itself.
void tell_cut(const TextGenerator& generator, const DecodeOptions& decode,
              std::span<const Continuation> continuations) {
  const std::int64_t positions = generator.model().config().max_positions;
  for (const Continuation& continuation : continuations)
    for (const TextHypothesis& hypothesis : continuation.hypotheses) {
      const auto made = static_cast<std::int64_t>(hypothesis.tokens.ids.size());
      if (hypothesis.tokens.finished || made >= decode.max_length) continue;
      if (static_cast<std::int64_t>(continuation.prompt_ids.size()) + made < positions) continue;
      std::cerr << "attend: a text ends after " << counted(made, "token") << " instead of " << decode.max_length
                << ": the model has " << positions << " positions, the beginning included\n";
      return;
    }
}

void write(const TextGenerator& generator, std::span<const std::string> prompts, GenerateOptions generate, bool live,
           Output& out, const Globals& globals) {
  if (live) {
    out.text(shown(prompts[0]));
    generate.on_text = [&](std::int64_t, std::int64_t, std::string_view text) {
      out.text(shown(text));
      out.flush();
      return true;
    };
  }
  const std::vector<Continuation> continuations = generator.generate(prompts, generate);
  if (live) out.line("");
  for (std::size_t i = 0; i < prompts.size() && !live; ++i) {
    for (const TextHypothesis& hypothesis : continuations[i].hypotheses) {
      if (globals.json)
        out.json({{"prompt", prompts[i]},
                  {"text", hypothesis.text},
                  {"log_probability", hypothesis.tokens.total},
                  {"finished", hypothesis.tokens.finished},
                  {"ids", hypothesis.tokens.ids},
                  {"log_probabilities", hypothesis.tokens.log_probabilities}});
      else out.line(shown(prompts[i] + hypothesis.text));
    }
  }
  out.flush();
  tell_cut(generator, generate.decode, continuations);
}

void run(Options& options, const Globals& globals) {
  const ModelFolder folder = load_model_folder(find_model(options.model));
  const TextGenerator generator(folder);
  GenerateOptions generate;
  generate.decode = options.decode.options(globals);
  std::vector<std::string> prompts;
  for (const std::string& prompt : options.prompts)
    prompts.push_back(
        checked_argument(prompt, join("prompt ", prompts.size() + 1), options.input.read.replace_invalid));
  if (prompts.empty() && options.input.files.empty()) prompts.emplace_back();

  Output out;
  const bool live = !globals.json && is_terminal(STDOUT_FILENO) && generate.decode.n_best == 1 &&
                    generate.decode.strategy != Strategy::beam;
  if (!prompts.empty()) write(generator, prompts, generate, live && prompts.size() == 1, out, globals);
  if (options.input.files.empty()) return;
  // Random streams are numbered through: prompts of the command line first.
  options.input.each_batch(512, [&](const LineBatch& batch) {
    const auto before = static_cast<std::int64_t>(prompts.size());
    generate.first_line = before + batch.first;
    generate.place = [&](std::int64_t number) { return batch.place(number - before); };
    write(generator, batch.lines, generate, live && batch.lines.size() == 1, out, globals);
  });
}

}  // namespace

void add_generate(Command& program, Globals& globals) {
  Command* command = program.add_command("generate", "Go on writing from a beginning");
  auto options = std::make_shared<Options>();
  options->decode.decode.temperature = 0.8;
  options->decode.decode.top_p = 0.95;
  command->add_option("prompts", options->prompts, "Beginnings; none: an empty one")->type_name("TEXT");
  command->add_option("--model,-m", options->model, "Model folder, or the name of a model that ships")->show_default();
  command->add_option("--file,-f", options->input.files, "Read beginnings from a file, one a line; -: standard input")
      ->expected(1)
      ->type_name("FILE");
  add_read_options(*command, options->input.read);
  options->decode.add_to(*command, Strategy::sample);
  command->footer(
      "Examples:\n"
      "  attend generate\n"
      "  attend generate 明月 --samples 3 --seed 7\n"
      "  attend generate --strategy beam --n-best 2 春风 --json");
  command->callback([options, &globals] { run(*options, globals); });
}

}  // namespace attend::cli
