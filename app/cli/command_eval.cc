#include <memory>
#include <nlohmann/json.hpp>

#include "attend/metrics.h"
#include "attend/scripts.h"
#include "attend/unicode.h"
#include "commands.h"
#include "input_output.h"

namespace attend::cli {
namespace {

struct Options {
  std::string hypotheses, references, tokenizer = "auto";
  bool lower_case = false;
  ReadOptions read;
};

void run(const Options& options, const Globals& globals) {
  const Lines hypotheses = read_lines(options.hypotheses, options.read),
              references = read_lines(options.references, options.read);
  if (hypotheses.lines.size() != references.lines.size())
    throw Error(ErrorKind::text, options.hypotheses,
                join("has ", counted(static_cast<std::int64_t>(hypotheses.lines.size()), "line"), " and ",
                     options.references, " has ", references.lines.size()),
                "line n of one file belongs to line n of the other");
  BleuOptions bleu_options;
  bleu_options.lower_case = options.lower_case;
  if (options.tokenizer == "auto") {
    std::size_t han = 0;
    for (const std::string& line : references.lines) han += mostly_han(line);
    bleu_options.tokenizer = 2 * han > references.lines.size() ? BleuTokenizer::chinese : BleuTokenizer::standard;
  } else {
    bleu_options.tokenizer = bleu_tokenizer_named(options.tokenizer);
  }
  const BleuScore bleu = corpus_bleu(hypotheses.lines, references.lines, bleu_options);
  ChrfOptions chrf_options;
  chrf_options.lower_case = options.lower_case;
  const double chrf = corpus_chrf(hypotheses.lines, references.lines, chrf_options);
  chrf_options.word_order = 2;
  const double chrf_words = corpus_chrf(hypotheses.lines, references.lines, chrf_options);
  std::size_t exact = 0;
  for (std::size_t i = 0; i < references.lines.size(); ++i) exact += hypotheses.lines[i] == references.lines[i];
  const double exact_share = 100.0 * static_cast<double>(exact) / static_cast<double>(references.lines.size());

  Output out;
  const char* tokenizer = name_of(bleu_options.tokenizer);
  if (globals.json) {
    out.json({{"lines", references.lines.size()},
              {"bleu",
               {{"score", bleu.score},
                {"precisions", bleu.precisions},
                {"matches", bleu.matches},
                {"totals", bleu.totals},
                {"brevity_penalty", bleu.brevity_penalty},
                {"hypothesis_length", bleu.hypothesis_length},
                {"reference_length", bleu.reference_length},
                {"tokenizer", tokenizer},
                {"smoothing", "exp"},
                {"lower_case", options.lower_case}}},
              {"chrf2", chrf},
              {"chrf2++", chrf_words},
              {"exact", exact_share}});
  } else {
    char text[256];
    std::snprintf(text, sizeof(text),
                  "BLEU    %6.2f   %.1f/%.1f/%.1f/%.1f  brevity %.3f  length %lld of %lld  tokenizer %s", bleu.score,
                  bleu.precisions[0], bleu.precisions[1], bleu.precisions[2], bleu.precisions[3], bleu.brevity_penalty,
                  static_cast<long long>(bleu.hypothesis_length), static_cast<long long>(bleu.reference_length),
                  tokenizer);
    out.line(text);
    std::snprintf(text, sizeof(text), "chrF2   %6.2f\nchrF2++ %6.2f\nexact   %6.2f %% of ", chrf, chrf_words,
                  exact_share);
    out.line(text + counted(static_cast<std::int64_t>(references.lines.size()), "line"));
  }
  out.flush();
}

}  // namespace

void add_eval(Command& program, Globals& globals) {
  Command* command = program.add_command("eval", "BLEU and chrF of any two files");
  auto options = std::make_shared<Options>();
  command->add_option("--hypotheses", options->hypotheses, "File of translations, one a line")
      ->required()
      ->type_name("FILE");
  command->add_option("--references", options->references, "File of reference translations")
      ->required()
      ->type_name("FILE");
  command
      ->add_option("--tokenizer", options->tokenizer, "How BLEU cuts words; auto: zh for Chinese references, else 13a")
      ->show_default()
      ->check(one_of({"auto", "13a", "zh", "char", "intl", "none"}));
  command->add_flag("--lower-case", options->lower_case, "Compare without case");
  add_read_options(*command, options->read);
  command->footer("Example:\n  attend eval --hypotheses mine.txt --references theirs.txt --json");
  command->callback([options, &globals] { run(*options, globals); });
}

}  // namespace attend::cli
