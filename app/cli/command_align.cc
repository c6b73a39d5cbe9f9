#include <memory>
#include <nlohmann/json.hpp>

#include "attend/alignments.h"
#include "commands.h"
#include "input_output.h"
#include "references.h"

namespace attend::cli {
namespace {

struct Options {
  std::string model = "tatoeba-zh-en";
  std::vector<std::string> files;
  WordAlignOptions align;
  std::string symmetrise = name_of(align.symmetrisation), rule = name_of(align.link.rule), source_words = "word",
              target_words = "word", reference;
  std::vector<int> layers, heads;
  const Option* threshold = nullptr;
  bool after = false, words = false;
  ReadOptions read;
};

void run(const Options& options, const Globals& globals) {
  const ModelFolder folder = load_model_folder(find_model(options.model));
  const Translator translator(folder);
  WordAlignOptions align = options.align;
  align.symmetrisation = symmetrisation_named(options.symmetrise);
  align.link.rule = link_rule_named(options.rule);
  if (align.link.rule == LinkRule::largest && options.threshold->given())
    throw Error(ErrorKind::argument, "--threshold", "is of --rule threshold, and the rule is largest",
                "leave one of them out");
  align.source_words = group_by_named(options.source_words);
  align.target_words = group_by_named(options.target_words);
  align.attention.layers = align.backward_attention.layers = options.layers;
  align.attention.heads = align.backward_attention.heads = options.heads;
  align.attention.after = align.backward_attention.after = options.after;
  const ParallelCorpus corpus = read_parallel(options.files[0], options.files[1], options.read);
  const References references(options.reference);
  if (references.given()) references.of_line(corpus.line.back());

  Output out;
  AlignmentScore score;
  constexpr std::size_t window = 1024;
  for (std::size_t begin = 0; begin < corpus.source.size(); begin += window) {
    const std::size_t end = std::min(corpus.source.size(), begin + window);
    std::vector<WordPair> pairs;
    for (std::size_t i = begin; i < end; ++i) pairs.push_back({corpus.source[i], corpus.target[i], {}, {}});
    align.first_line = corpus.line[begin];
    const std::vector<AlignedPair> aligned = align_words(translator, pairs, align);
    for (std::size_t i = 0; i < aligned.size(); ++i) {
      const AlignedPair& pair = aligned[i];
      if (references.given()) score += score_alignment(pair.links, references.of_line(corpus.line[begin + i]));
      if (globals.json || options.words) {
        const auto words = [](const std::vector<TokenGroup>& groups) {
          std::vector<std::string> texts;
          for (const TokenGroup& group : groups)
            for (std::int64_t word = group.first_word; word < group.end_word; ++word) texts.push_back(group.text);
          return texts;
        };
        const std::vector<std::string> source = words(pair.source), target = words(pair.target);
        if (globals.json) {
          out.json({{"line", corpus.line[begin + i]},
                    {"from", pair.from},
                    {"to", pair.to},
                    {"source_words", source},
                    {"target_words", target},
                    {"links", to_pharaoh(pair.links)}});
        } else {
          std::string line;
          for (const Link& link : pair.links)
            line += (line.empty() ? "" : "  ") + source[static_cast<std::size_t>(link.source)] + "-" +
                    target[static_cast<std::size_t>(link.target)];
          out.line(line);
        }
      } else {
        out.line(to_pharaoh(pair.links));
      }
    }
    out.flush();
  }
  if (references.given()) {
    if (globals.json) {
      out.json({{"precision", score.precision()},
                {"recall", score.recall()},
                {"alignment_error_rate", score.error()},
                {"links", score.links}});
    } else {
      char text[128];
      std::snprintf(text, sizeof(text), "# precision %.4f, recall %.4f, alignment error rate %.4f", score.precision(),
                    score.recall(), score.error());
      out.line(text);
    }
  }
  out.flush();
}

}  // namespace

void add_align(Command& program, Globals& globals) {
  Command* command = program.add_command("align", "Which words of given pairs belong together, from cross-attention");
  auto options = std::make_shared<Options>();
  command->add_option("files", options->files, "Source file and target file, one pair a line")
      ->required()
      ->expected(2)
      ->type_name("SOURCE TARGET");
  command->add_option("--model,-m", options->model, "Model folder, or the name of a model that ships")->show_default();
  command->add_option("--from", options->align.from,
                      "Language of the source (default: told by the script of each line)");
  command->add_option("--to", options->align.to, "Language of the target");
  command
      ->add_option("--symmetrise", options->symmetrise,
                   "forward, backward, intersection, union, grow-diag, grow-diag-final or grow-diag-final-and")
      ->show_default();
  command
      ->add_option(
          "--rule", options->rule,
          "threshold: words whose weight is at least --threshold; largest: each target word with the source word it reads most")
      ->show_default();
  options->threshold =
      command->add_option("--threshold", options->align.link.threshold, "Least weight of a link with --rule threshold")
          ->show_default();
  command->add_list("--layers", options->layers,
                    "Decoder layers read, from 0, -1 the last: 1,2 (default: the last but one)");
  command->add_list("--heads", options->heads, "Heads read, from 0, -1 the last: 0,3 (default: the mean of all)");
  command->add_flag("--after", options->after, "Read the step after a word, which reads the word itself (Shift-Att)");
  command->add_option("--source-words", options->source_words, "Words of the source: word, character, blank or token")
      ->show_default();
  command->add_option("--target-words", options->target_words, "The same for the target")->show_default();
  command->add_option("--reference", options->reference,
                      "Alignments to compare with, in Pharaoh format (p for possible links)");
  command->add_flag("--words", options->words, "Print the words instead of their numbers");
  add_read_options(*command, options->read, true);
  command->footer(
      "Prints links source-target of words counted from 0, one line a pair (Pharaoh format).\n"
      "Examples:\n"
      "  attend align source.zh target.en > links.txt\n"
      "  attend align source.zh target.en --words | head -3\n"
      "  attend align source.zh target.en --layers 1,2 --heads 0,3\n"
      "  attend align source.zh target.en --rule largest --symmetrise grow-diag-final-and --reference gold.txt");
  command->callback([options, &globals] { run(*options, globals); });
}

}  // namespace attend::cli
