#include <iostream>
#include <memory>
#include <nlohmann/json.hpp>

#include "attend/bench.h"
#include "attend/error.h"
#include "attend/threads.h"
#include "commands.h"
#include "input_output.h"
#include "terminal.h"

namespace attend::cli {
namespace {

struct Options {
  AttentionBenchOptions attention;
  StatisticsBenchOptions statistics;
  std::string recipe, data, model = "tatoeba-zh-en", file, to, strategy = "greedy";
  std::int64_t steps = 20, rounds = 5, batch_size = 32;
  std::int64_t tokens = 40, cuts = 1000;
  std::string target = "logit";
};

// What is translated where the benchmark is about length, not about words; repeated or cut to the length asked for.
constexpr const char* long_source =
    "我昨天在图书馆里遇见了一位老朋友，他告诉我他打算明年春天去北京学习中国历史和文学，因为他一直对古代诗歌很感兴趣。";
constexpr const char* long_target =
    "Yesterday I met an old friend in the library, and he told me that he was going to Beijing next spring to study Chinese "
    "history and literature, because he has always been interested in ancient poetry.";

std::vector<std::int32_t> of_length(std::vector<std::int32_t> ids, std::size_t length) {
  const std::size_t given = ids.size();
  ids.resize(length);
  for (std::size_t i = given; i < length; ++i) ids[i] = ids[i - given];
  return ids;
}

void bench_importance_of(const Options& options, const Globals& globals) {
  const ModelFolder folder = load_model_folder(find_model(options.model));
  const Translator translator(folder);
  const auto length = static_cast<std::size_t>(options.tokens);
  ModelInput input;
  input.source = encode_source(translator.task(), translator.source(), long_source, "en");
  const std::int32_t end = input.source.back();
  input.source = of_length(input.source, length);
  input.source.back() = end;
  const std::vector<std::int32_t> labels = of_length(translator.target().encode(long_target), length);
  input.ids = {first_token(translator.target())};
  input.ids.insert(input.ids.end(), labels.begin(), labels.end() - 1);
  const Target target = options.target == "logit" ? logit_of(labels.back()) : log_probability_of(labels);
  const ImportanceSpeed speed = bench_importance(translator.model(), input, target, options.cuts, options.rounds);
  Output out;
  if (globals.json) {
    out.json({{"engine", "attend"},
              {"bench", "importance"},
              {"model", options.model},
              {"target", options.target},
              {"threads", speed.threads},
              {"source_tokens", speed.source_tokens},
              {"target_tokens", speed.target_tokens},
              {"edges", speed.edges},
              {"forward_milliseconds", speed.forward_milliseconds},
              {"first_order_milliseconds", speed.first_order_milliseconds},
              {"first_order_ratio", speed.first_order_ratio},
              {"cuts", speed.cuts},
              {"exact_seconds", speed.exact_seconds},
              {"whole_seconds", speed.whole_seconds},
              {"exact_speedup", speed.exact_speedup},
              {"random_exact_seconds", speed.random_exact_seconds},
              {"random_exact_speedup", speed.random_exact_speedup},
              {"largest_effect", speed.largest_effect},
              {"largest_difference", speed.largest_difference}});
  } else {
    out.line(join("first-order effects of ", speed.edges, " edges: ", short_number(speed.first_order_milliseconds),
                  " ms, ", short_number(speed.first_order_ratio), " x one pass forward (",
                  short_number(speed.forward_milliseconds), " ms)"));
    out.line(join(speed.cuts, " exact cuts of the edges with the largest: ", short_number(speed.exact_seconds), " s, ",
                  short_number(speed.exact_speedup), " x faster than whole runs (", short_number(speed.whole_seconds),
                  " s)"));
    out.line(join("of edges drawn from all: ", short_number(speed.random_exact_seconds), " s, ",
                  short_number(speed.random_exact_speedup), " x faster; largest difference ", speed.largest_difference,
                  " of effects up to ", short_number(speed.largest_effect)));
  }
  out.flush();
}

void print_rates(Output& out, const Globals& globals, const char* bench, const std::string& what, const char* unit,
                 const Rates& rates) {
  if (globals.json) {
    out.json({{"engine", "attend"},
              {"bench", bench},
              {"what", what},
              {"threads", threads()},
              {"unit", unit},
              {"median", rates.median},
              {"all", rates.all}});
  } else {
    std::string text = short_number(rates.median) + " " + unit + " (median of";
    for (const double rate : rates.all) text += " " + short_number(rate);
    out.line(text + "), " + std::to_string(threads()) + (threads() == 1 ? " thread, " : " threads, ") + what);
  }
  out.flush();
}

void bench_attention_shapes(const Options& options, const Globals& globals) {
  Output out;
  if (!globals.json)
    out.line("shape                 pass      items x queries x keys, heads x dim     GFLOP/s   of peak   scratch");
  bench_attention(options.attention, [&](const AttentionSpeed& speed) {
    if (globals.json) {
      out.json({{"engine", "attend"},
                {"bench", "attention"},
                {"name", speed.name},
                {"pass", speed.pass},
                {"items", speed.items},
                {"queries", speed.queries},
                {"keys", speed.keys},
                {"heads", speed.heads},
                {"key_heads", speed.key_heads},
                {"head_dim", speed.head_dim},
                {"causal", speed.causal},
                {"dropout", speed.dropout},
                {"threads", speed.threads},
                {"target", speed.target},
                {"gflops", speed.gflops},
                {"share_of_peak", speed.share_of_peak},
                {"microseconds", speed.microseconds},
                {"scratch_bytes", speed.scratch_bytes},
                {"error", speed.error},
                {"rounds", speed.rounds}});
    } else {
      char text[64];
      std::snprintf(text, sizeof(text), "%7.1f   %5.1f %%   ", speed.gflops, 100 * speed.share_of_peak);
      out.line(
          padded(speed.name, 22) + padded(speed.pass, 10) +
          padded(join(speed.items, " x ", speed.queries, " x ", speed.keys, ", ", speed.heads, " x ", speed.head_dim),
                 40) +
          text + short_bytes(static_cast<double>(speed.scratch_bytes)));
    }
    out.flush();
  });
}

void bench_statistics_shapes(const Options& options, const Globals& globals) {
  Output out;
  if (!globals.json)
    out.line("queries x keys, heads x dim    k   to plain   GFLOP/s   of peak   more scratch   of Q+K+V   output");
  bench_statistics(options.statistics, [&](const StatisticsSpeed& speed) {
    const auto more = static_cast<double>(speed.scratch_bytes - speed.plain_scratch_bytes),
               share = more / static_cast<double>(speed.input_bytes);
    if (globals.json) {
      out.json({{"engine", "attend"},
                {"bench", "statistics"},
                {"queries", speed.rows},
                {"keys", speed.rows},
                {"heads", speed.heads},
                {"head_dim", speed.head_dim},
                {"top", speed.top},
                {"threads", speed.threads},
                {"target", speed.target},
                {"ratio_to_plain", speed.ratio_to_plain},
                {"seconds", speed.seconds},
                {"plain_seconds", speed.plain_seconds},
                {"gflops", speed.gflops},
                {"share_of_peak", speed.share_of_peak},
                {"plain_gflops", speed.plain_gflops},
                {"plain_share_of_peak", speed.plain_share_of_peak},
                {"input_bytes", speed.input_bytes},
                {"scratch_bytes", speed.scratch_bytes},
                {"plain_scratch_bytes", speed.plain_scratch_bytes},
                {"extra_memory_share", share},
                {"output_bytes", speed.output_bytes},
                {"output_share", static_cast<double>(speed.output_bytes) / static_cast<double>(speed.input_bytes)},
                {"error", speed.error},
                {"rounds", speed.rounds}});
    } else {
      char text[96], percent[32];
      std::snprintf(text, sizeof(text), "%3d     %6.3f   %7.1f   %5.1f %%   ", static_cast<int>(speed.top),
                    speed.ratio_to_plain, speed.gflops, 100 * speed.share_of_peak);
      std::snprintf(percent, sizeof(percent), "%5.2f %%    ", 100 * share);
      out.line(padded(join(speed.rows, " x ", speed.rows, ", ", speed.heads, " x ", speed.head_dim), 29) + text +
               padded(short_bytes(more), 15) + percent + short_bytes(static_cast<double>(speed.output_bytes)));
    }
    out.flush();
  });
}

}  // namespace

void add_bench(Command& program, Globals& globals) {
  Command* command = program.add_command("bench", "Measure speed on this machine");
  command->require_command();
  auto options = std::make_shared<Options>();

  Command* attention = command->add_command(
      "attention", "Attention kernels as a share of the machine's peak, after a check against float64");
  attention->add_option("--only", options->attention.only, "Only shapes whose name holds this");
  attention->add_option("--pass", options->attention.pass, "forward or backward (default: both)")
      ->check(one_of({"forward", "backward"}));
  attention->add_option("--target", options->attention.target, "Instruction set to force instead of the best")
      ->check(one_of(instruction_sets()));
  attention->add_option("--seconds", options->attention.seconds, "Time for each shape")
      ->show_default()
      ->check(above_zero());
  attention->footer(
      "Examples:\n"
      "  attend bench attention --only self_1024 --pass forward\n"
      "  attend bench attention --threads 1 --seconds 2 --json");
  attention->callback([options, &globals] { bench_attention_shapes(*options, globals); });

  Command* statistics = command->add_command(
      "statistics", "Attention with all statistics beside plain attention, after a check against float64");
  statistics->add_list("--rows", options->statistics.rows, "Queries and keys, one run for each: 512,2048")
      ->show_default();
  statistics->add_option("--heads", options->statistics.heads, "Heads")->show_default();
  statistics->add_option("--head-dim", options->statistics.head_dim, "Width of a head")->show_default();
  statistics->add_list("--top", options->statistics.top, "So many largest keys of every row, one run for each: 0,8")
      ->show_default();
  statistics->add_option("--target", options->statistics.target, "Instruction set to force")
      ->check(one_of(instruction_sets()));
  statistics->add_option("--seconds", options->statistics.seconds, "Time for each line; at least five rounds")
      ->show_default()
      ->check(above_zero());
  statistics->footer(
      "Statistics: entropy, mean distance, weight on the first key, the query itself, the one before and a list of keys, the\n"
      "largest keys, log-sum-exp, of all rows and heads. more scratch: memory beyond inputs and outputs, beyond that of plain\n"
      "attention; output: the statistics themselves. bench/compare_inspection.py does the same from matrices with PyTorch.\n"
      "Examples:\n"
      "  attend --threads 1 bench statistics --json\n"
      "  attend --threads 1 bench statistics --rows 512,2048,8192 --top 8");
  statistics->callback([options, &globals] { bench_statistics_shapes(*options, globals); });

  Command* training = command->add_command("training", "Target tokens a second of a recipe's training steps");
  training->add_option("recipe", options->recipe, "TOML file")->required()->type_name("RECIPE");
  training->add_option("--data", options->data, "Folder that the recipe's data paths are in")->type_name("FOLDER");
  training->add_option("--steps", options->steps, "Steps of a round")->show_default()->check(at_least(1));
  training->add_option("--rounds", options->rounds, "Rounds after the warm-up")->show_default()->check(at_least(1));
  training->footer(
      "Examples:\n"
      "  attend bench training recipe/tatoeba-zh-en.toml\n"
      "  attend bench training recipe/names.toml --data my-data --steps 50 --rounds 3 --json");
  training->callback([options, &globals] {
    const Recipe recipe = load_recipe(options->recipe);
    std::cerr << "attend: " << counted(options->rounds, "round") << " of " << counted(options->steps, "step")
              << " after a warm-up\n";
    Output out;
    print_rates(out, globals, "training", recipe.title, "target tokens/s",
                bench_training(recipe, options->data, options->steps, options->rounds));
  });

  Command* translation = command->add_command("translation", "Sentences a second, text to text");
  translation->add_option("file", options->file, "File of lines")->required()->type_name("FILE");
  translation->add_option("--model,-m", options->model, "Model folder, or the name of a model that ships")
      ->show_default();
  translation->add_option("--to", options->to, "Language wanted (default: told by the script of each line)");
  translation->add_option("--strategy", options->strategy, "greedy or beam")
      ->show_default()
      ->check(one_of({"greedy", "beam"}));
  translation->add_option("--batch-size", options->batch_size, "Lines computed at once")
      ->show_default()
      ->check(at_least(1));
  translation->add_option("--rounds", options->rounds, "Rounds after the warm-up")->show_default()->check(at_least(1));
  translation->footer(
      "Examples:\n"
      "  attend bench translation data/tatoeba-zh-en/test.zh.gz\n"
      "  attend bench translation sentences.txt --strategy beam --batch-size 8 --json");
  translation->callback([options, &globals] {
    const ModelFolder folder = load_model_folder(find_model(options->model));
    const Translator translator(folder);
    TranslateOptions translate;
    translate.to = options->to;
    translate.decode.strategy = strategy_named(options->strategy);
    translate.decode.batch_size = options->batch_size;
    const Lines lines = read_lines(options->file);
    Output out;
    print_rates(out, globals, "translation",
                join(counted(static_cast<std::int64_t>(lines.lines.size()), "line"), ", ", options->strategy,
                     ", batch ", options->batch_size),
                "sentences/s", bench_translation(translator, lines.lines, translate, options->rounds));
  });

  Command* importance =
      command->add_command("importance", "First-order effects of every edge, and exact cuts, beside whole runs");
  importance->add_option("--model,-m", options->model, "Folder of a translator, or the name of one that ships")
      ->show_default();
  importance->add_option("--tokens", options->tokens, "Tokens of the source and of the target")
      ->show_default()
      ->check(between(2, 4096));
  importance->add_option("--cuts", options->cuts, "Edges to cut")->show_default()->check(at_least(1));
  importance->add_option("--rounds", options->rounds, "Rounds of both ways in turns")
      ->show_default()
      ->check(at_least(1));
  importance->add_option("--target", options->target, "logit (of the last token) or log_probability (of all tokens)")
      ->show_default()
      ->check(one_of({"logit", "log_probability"}));
  importance->callback([options, &globals] { bench_importance_of(*options, globals); });
  command->footer(
      "Examples:\n"
      "  attend bench importance --json\n"
      "  attend bench attention --threads 1 --only self_1024\n"
      "  attend --threads 1 bench statistics --json\n"
      "  attend bench training recipe/tatoeba-zh-en.toml --json\n"
      "  attend bench translation data/tatoeba-zh-en/test.zh.gz\n"
      "bench/compare.py runs these side by side with PyTorch.");
}

}  // namespace attend::cli
