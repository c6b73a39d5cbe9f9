#include <memory>

#include "attend/bench.h"
#include "attend/threads.h"
#include "commands.h"
#include "input_output.h"
#include "terminal.h"

namespace attend::cli {
namespace {

struct Options {
  AttentionBenchOptions attention;
  std::string recipe, data, model = "tatoeba-zh-en", file, to, strategy = "greedy";
  std::int64_t steps = 20, rounds = 5, batch_size = 32;
};

void print_rates(Output& out, const Globals& globals, const char* bench, const std::string& what, const char* unit, const Rates& rates) {
  if (globals.json) {
    out.json({{"engine", "attend"}, {"bench", bench}, {"what", what}, {"threads", threads()}, {"unit", unit}, {"median", rates.median}, {"all", rates.all}});
  } else {
    std::string text = short_number(rates.median) + " " + unit + " (median of";
    for (const double rate : rates.all) text += " " + short_number(rate);
    out.line(text + "), " + std::to_string(threads()) + " threads, " + what);
  }
  out.flush();
}

void bench_attention_shapes(const Options& options, const Globals& globals) {
  Output out;
  if (!globals.json) out.line("shape                 pass      items x queries x keys, heads x dim     GFLOP/s   of peak   scratch");
  bench_attention(options.attention, [&](const AttentionSpeed& speed) {
    if (globals.json) {
      out.json({{"engine", "attend"}, {"bench", "attention"}, {"name", speed.name}, {"pass", speed.pass}, {"items", speed.items},
                {"queries", speed.queries}, {"keys", speed.keys}, {"heads", speed.heads}, {"key_heads", speed.key_heads},
                {"head_dim", speed.head_dim}, {"causal", speed.causal}, {"dropout", speed.dropout}, {"threads", speed.threads},
                {"target", speed.target}, {"gflops", speed.gflops}, {"share_of_peak", speed.share_of_peak},
                {"microseconds", speed.microseconds}, {"scratch_bytes", speed.scratch_bytes}, {"error", speed.error}, {"rounds", speed.rounds}});
    } else {
      char text[64];
      std::snprintf(text, sizeof(text), "%7.1f   %5.1f %%   ", speed.gflops, 100 * speed.share_of_peak);
      out.line(padded(speed.name, 22) + padded(speed.pass, 10) +
               padded(join(speed.items, " x ", speed.queries, " x ", speed.keys, ", ", speed.heads, " x ", speed.head_dim), 40) + text +
               short_bytes(static_cast<double>(speed.scratch_bytes)));
    }
    out.flush();
  });
}

}  // namespace

void add_bench(CLI::App& program, Globals& globals) {
  CLI::App* command = program.add_subcommand("bench", "Measure speed on this machine");
  command->require_subcommand(1);
  auto options = std::make_shared<Options>();

  CLI::App* attention = command->add_subcommand("attention", "Attention kernels as a share of the machine's peak, after a check against float64");
  attention->add_option("--only", options->attention.only, "Only shapes whose name holds this");
  attention->add_option("--pass", options->attention.pass, "forward or backward (default: both)")->check(CLI::IsMember({"forward", "backward"}));
  attention->add_option("--target", options->attention.target, "Instruction set to force");
  attention->add_option("--seconds", options->attention.seconds, "Time for each shape")->capture_default_str()->check(CLI::PositiveNumber);
  attention->callback([options, &globals] { bench_attention_shapes(*options, globals); });

  CLI::App* training = command->add_subcommand("training", "Target tokens a second of a recipe's training steps");
  training->add_option("recipe", options->recipe, "TOML file")->required()->type_name("RECIPE");
  training->add_option("--data", options->data, "Folder that the recipe's data paths are in")->type_name("FOLDER");
  training->add_option("--steps", options->steps, "Steps of a round")->capture_default_str()->check(CLI::PositiveNumber);
  training->add_option("--rounds", options->rounds, "Rounds after the warm-up")->capture_default_str()->check(CLI::PositiveNumber);
  training->callback([options, &globals] {
    const Recipe recipe = load_recipe(options->recipe);
    Output out;
    print_rates(out, globals, "training", recipe.title, "target tokens/s", bench_training(recipe, options->data, options->steps, options->rounds));
  });

  CLI::App* translation = command->add_subcommand("translation", "Sentences a second, text to text");
  translation->add_option("file", options->file, "File of lines")->required()->type_name("FILE");
  translation->add_option("--model,-m", options->model, "Model folder, or the name of a model that ships")->capture_default_str();
  translation->add_option("--to", options->to, "Language wanted (default: told by the script of each line)");
  translation->add_option("--strategy", options->strategy, "greedy or beam")->capture_default_str()->check(CLI::IsMember({"greedy", "beam"}));
  translation->add_option("--batch-size", options->batch_size, "Lines computed at once")->capture_default_str();
  translation->add_option("--rounds", options->rounds, "Rounds after the warm-up")->capture_default_str()->check(CLI::PositiveNumber);
  translation->callback([options, &globals] {
    const ModelFolder folder = load_model_folder(find_model(options->model));
    const Translator translator(folder);
    TranslateOptions translate;
    translate.to = options->to;
    translate.decode.strategy = strategy_named(options->strategy);
    translate.decode.batch_size = options->batch_size;
    const Lines lines = read_lines(options->file);
    Output out;
    print_rates(out, globals, "translation", join(lines.lines.size(), " lines, ", options->strategy, ", batch ", options->batch_size), "sentences/s",
                bench_translation(translator, lines.lines, translate, options->rounds));
  });
  command->footer(
      "Examples:\n"
      "  attend bench attention --threads 1 --only self_1024\n"
      "  attend bench training recipe/tatoeba-zh-en.toml --json\n"
      "  attend bench translation data/tatoeba-zh-en/test.zh.gz\n"
      "bench/compare.py runs these side by side with PyTorch.");
}

}  // namespace attend::cli
