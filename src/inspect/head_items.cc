// From text, or from random numbers, to what the head finder reads.
#include <algorithm>

#include "attend/error.h"
#include "attend/heads.h"
#include "attend/subject.h"
#include "core/random.h"

namespace attend {
namespace {

void check_length(std::size_t length, const Model& model, const char* what) {
  const std::int64_t most = model.config().max_positions;
  if (static_cast<std::int64_t>(length) > most)
    throw Error(ErrorKind::text, what, join("has ", length, " tokens and the model reads at most ", most),
                "split the line");
}

// Ids that stand for text of their own: no control tokens, no unknown, no single bytes.
std::vector<std::int32_t> text_ids(const Tokenizer& tokenizer) {
  std::vector<std::int32_t> ids;
  for (std::int32_t id = 0; id < tokenizer.size(); ++id) {
    const std::string_view bytes = tokenizer.bytes(id);
    if (!tokenizer.is_control(id) && id != tokenizer.specials().unknown && !bytes.empty() &&
        find_invalid_utf8(bytes) == std::string_view::npos)
      ids.push_back(id);
  }
  return ids;
}

// `first` (unless negative), then distinct random tokens again and again.
std::vector<std::int32_t> repeated(std::vector<std::int32_t> ids, std::int32_t first, const RepeatedOptions& options,
                                   Random& random, const char* stack) {
  std::erase(ids, first);
  if (static_cast<std::int64_t>(ids.size()) < options.period)
    throw Error(
        ErrorKind::argument, "repeated tokens",
        join("a period of ", options.period, " distinct tokens and a vocabulary of ", ids.size(), " for the ", stack),
        "use a shorter period");
  std::vector<std::int32_t> sequence;
  if (first >= 0) sequence.push_back(first);
  for (std::int64_t i = 0; i < options.period; ++i)
    std::swap(ids[static_cast<std::size_t>(i)],
              ids[static_cast<std::size_t>(i) + random.below(ids.size() - static_cast<std::size_t>(i))]);
  for (std::int64_t repeat = 0; repeat < options.repeats; ++repeat)
    sequence.insert(sequence.end(), ids.begin(), ids.begin() + options.period);
  return sequence;
}

}  // namespace

HeadItem item_of(const Translator& translator, std::string_view source, std::string_view target,
                 const PairItemOptions& options) {
  HeadItem item;
  const std::string to = translator.direction(source, {}, options.to).second;
  item.source = encode_source(translator.task(), translator.source(), source, to);
  std::vector<std::int32_t> written = translator.target().encode(target);
  // The ids of the source hold its tag and end even where it has no text.
  if (written.empty() || translator.source().encode(source).empty())
    throw Error(ErrorKind::text, "item", join("the ", written.empty() ? "target" : "source", " is empty"),
                "leave the pair out");
  const std::int32_t eos = translator.target().specials().eos;
  item.target.push_back(first_token(translator.target()));
  item.target.insert(item.target.end(), written.begin(), written.end());
  if (eos >= 0) written.push_back(eos);
  check_length(item.source.size(), translator.model(), "source");
  check_length(item.target.size(), translator.model(), "target");
  if (options.words) {
    auto words = std::make_shared<ItemWords>();
    const auto grouped = [](const Tokenizer& tokenizer, const std::vector<std::int32_t>& ids, std::string_view text,
                            const std::string& segmented) {
      const std::vector<Piece> pieces = pieces_of(tokenizer, ids, text);
      return segmented.empty() ? group(pieces, GroupBy::word)
                               : group_by_segmentation(pieces, segmented, tokenizer.normalisation());
    };
    words->source = grouped(translator.source(), item.source, source, options.source_words);
    words->target = grouped(translator.target(), written, target, options.target_words);
    words->reference = options.reference;
    item.words = std::move(words);
  }
  return item;
}

HeadItem item_of(const TextGenerator& generator, std::string_view line) {
  HeadItem item;
  if (generator.task().lines) item.target.push_back(first_token(generator.tokenizer()));
  const std::vector<std::int32_t> ids = generator.tokenizer().encode(line);
  item.target.insert(item.target.end(), ids.begin(), ids.end());
  if (item.target.empty()) throw Error(ErrorKind::text, "item", "the line is empty", "leave it out");
  check_length(item.target.size(), generator.model(), "line");
  return item;
}

HeadItem item_of(const ModelFolder& folder, std::string_view line) {
  SubjectTexts texts;
  texts.text = std::string(line);
  SubjectOptions options;
  options.pieces = false;
  ModelInput input = read_subject(folder, std::move(texts), options).input;
  return {std::move(input.source), std::move(input.ids), nullptr};
}

std::vector<HeadItem> repeated_items(const Model& model, const RepeatedOptions& options) {
  const TransformerConfig& config = model.config();
  const auto refuse = [](const std::string& what, const char* advice) {
    throw Error(ErrorKind::argument, "repeated tokens", what, advice);
  };
  if (options.items < 1 || options.period < 2 || options.repeats < 2)
    refuse(join(options.items, " items of ", options.period, " tokens ", options.repeats, " times"),
           "use at least 1 item, a period of 2 and 2 repeats");
  if (options.period > config.max_positions || options.repeats > config.max_positions ||
      1 + options.period * options.repeats > config.max_positions)
    refuse(join(options.repeats, " times ", options.period, " tokens after the first, and the model has ",
                config.max_positions, " positions"),
           "use a shorter period");
  const auto drawable = [](const Tokenizer* tokenizer, std::int64_t vocabulary) {
    if (tokenizer) return text_ids(*tokenizer);
    std::vector<std::int32_t> ids;
    for (std::int32_t id = 0; id < vocabulary; ++id) ids.push_back(id);
    return ids;
  };
  std::vector<std::int32_t> source, target;
  if (config.encoder) source = drawable(options.source, config.encoder->vocabulary);
  if (config.decoder) target = drawable(options.target, config.decoder->vocabulary);
  Random random(options.seed);
  std::vector<HeadItem> items(static_cast<std::size_t>(options.items));
  for (HeadItem& item : items) {
    if (config.encoder) item.source = repeated(source, -1, options, random, "encoder");
    if (config.decoder)
      item.target = repeated(target, options.target ? first_token(*options.target) : 0, options, random, "decoder");
  }
  return items;
}

}  // namespace attend
