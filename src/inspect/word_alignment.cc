#include <algorithm>
#include <tuple>
#include <utility>

#include "attend/alignments.h"
#include "attend/error.h"
#include "run/alignment.h"

namespace attend {
namespace {

// One direction of a pair as a model reads it.
struct Direction {
  std::vector<std::int32_t> source, target;  // target without the first token, with the end token
  std::vector<TokenGroup> source_groups, target_groups;
  std::vector<float> weights;  // [target groups, source groups]
};

std::vector<TokenGroup> grouped(const Tokenizer& tokenizer, const std::vector<std::int32_t>& ids,
                                const std::string& text, const std::string& words, GroupBy by) {
  const std::vector<Piece> pieces = pieces_of(tokenizer, ids, text);
  return words.empty() ? group(pieces, by) : group_by_segmentation(pieces, words, tokenizer.normalisation());
}

// Runs `action` and names the pair in errors of its text.
void for_pair(std::int64_t number, const auto& action) {
  try {
    action();
  } catch (const Error& error) {
    if (error.kind() != ErrorKind::text) throw;
    throw Error(ErrorKind::text, join("pair ", number), error.where() + ": " + error.what_happened(), error.advice());
  }
}

// What one side of a pair is called by.
struct Side {
  const std::string& text;
  const std::string& words;
  GroupBy by;
};

Direction prepare(const Translator& translator, const Side& source, const Side& target, const std::string& to) {
  Direction direction;
  direction.source = encode_source(translator.task(), translator.source(), source.text, to);
  direction.target = translator.target().encode(target.text);
  if (direction.target.empty() || translator.source().encode(source.text).empty())
    throw Error(ErrorKind::text, "align", join("the ", direction.target.empty() ? "target" : "source", " is empty"),
                "leave the pair out");
  const std::int32_t eos = translator.target().specials().eos;
  if (eos >= 0) direction.target.push_back(eos);
  const std::int64_t most = translator.model().config().max_positions;
  const auto length = static_cast<std::int64_t>(std::max(direction.source.size(), direction.target.size()));
  if (length > most)
    throw Error(ErrorKind::text, "align", join("has ", length, " tokens and the model reads at most ", most),
                "split the lines");
  direction.source_groups = grouped(translator.source(), direction.source, source.text, source.words, source.by);
  direction.target_groups = grouped(translator.target(), direction.target, target.text, target.words, target.by);
  return direction;
}

void run(const Translator& translator, std::vector<Direction>& directions, const AlignmentOptions& attention,
         std::int64_t batch_size) {
  const std::vector<std::int32_t> prompt{first_token(translator.target())};
  std::vector<AlignmentInput> inputs;
  for (const Direction& direction : directions) inputs.push_back({direction.source, prompt, direction.target});
  const std::vector<std::vector<float>> weights = align(translator.model(), inputs, attention, batch_size);
  for (std::size_t i = 0; i < directions.size(); ++i)
    directions[i].weights = merge(weights[i], directions[i].target_groups, directions[i].source_groups, Merge::weights);
}

std::int64_t words_of(const std::vector<TokenGroup>& groups) { return groups.empty() ? 0 : groups.back().end_word; }

}  // namespace

std::vector<AlignedPair> align_words(const Translator& translator, std::span<const WordPair> pairs,
                                     const WordAlignOptions& options, const Translator* backward) {
  check(options.link);
  const bool two_ways = options.symmetrisation != Symmetrisation::forward;
  const Translator& other = backward ? *backward : translator;
  if (two_ways && !backward && translator.task().target_tags.size() < 2)
    throw Error(
        ErrorKind::config, "align",
        join("the model translates in one direction only and \"", name_of(options.symmetrisation), "\" needs both"),
        "use forward, or give a model of the other direction, too");
  std::vector<AlignedPair> aligned(pairs.size());
  std::vector<Direction> there, back;
  for (std::size_t i = 0; i < pairs.size(); ++i) {
    const WordPair& pair = pairs[i];
    const std::int64_t number = options.first_line + static_cast<std::int64_t>(i);
    const Side source{pair.source, pair.source_words, options.source_words},
        target{pair.target, pair.target_words, options.target_words};
    for_pair(number, [&] {
      std::tie(aligned[i].from, aligned[i].to) = translator.direction(pair.source, options.from, options.to);
      there.push_back(prepare(translator, source, target, aligned[i].to));
      if (!two_ways) return;
      back.push_back(prepare(other, target, source, aligned[i].from));
      const auto check = [&](const char* side, const std::vector<TokenGroup>& forward_groups,
                             const std::vector<TokenGroup>& backward_groups) {
        if (words_of(forward_groups) != words_of(backward_groups))
          throw Error(ErrorKind::text, "align",
                      join("the two directions cut the ", side, " into ", words_of(forward_groups), " and ",
                           words_of(backward_groups), " words"),
                      "give the line with blanks between its words");
      };
      check("source", there.back().source_groups, back.back().target_groups);
      check("target", there.back().target_groups, back.back().source_groups);
    });
  }
  run(translator, there, options.attention, options.batch_size);
  if (two_ways) run(other, back, options.backward_attention, options.batch_size);
  for (std::size_t i = 0; i < pairs.size(); ++i) {
    AlignedPair& pair = aligned[i];
    pair.forward = links_of(there[i].weights, there[i].target_groups, there[i].source_groups, options.link);
    if (two_ways) {
      for (const Link& link : links_of(back[i].weights, back[i].target_groups, back[i].source_groups, options.link))
        pair.backward.push_back({link.target, link.source});
      std::sort(pair.backward.begin(), pair.backward.end());
    }
    pair.links = symmetrise(pair.forward, pair.backward, options.symmetrisation);
    pair.source = std::move(there[i].source_groups);
    pair.target = std::move(there[i].target_groups);
    pair.weights = std::move(there[i].weights);
  }
  return aligned;
}

}  // namespace attend
