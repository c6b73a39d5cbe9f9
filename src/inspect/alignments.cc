#include "attend/alignments.h"

#include <algorithm>
#include <limits>
#include <set>

#include "attend/corpus.h"
#include "attend/error.h"
#include "core/file.h"

namespace attend {
namespace {

constexpr std::size_t most_digits = 6;

void append_link(std::string& line, const Link& link, char between) {
  if (!line.empty()) line += ' ';
  line += std::to_string(link.source) + between + std::to_string(link.target);
}

bool holds(const Alignment& alignment, const Link& link) {
  return std::binary_search(alignment.begin(), alignment.end(), link);
}

std::int64_t shared(const Alignment& a, const Alignment& b) {
  return std::count_if(a.begin(), a.end(), [&](const Link& link) { return holds(b, link); });
}

double ratio(std::int64_t part, std::int64_t whole) {
  return whole > 0 ? static_cast<double>(part) / static_cast<double>(whole) : std::numeric_limits<double>::quiet_NaN();
}

// A link of a line: digits, - or p, digits.
struct ReadLink {
  Link link;
  bool sure = true;
};

bool read_number(std::string_view& text, std::int64_t& number) {
  std::size_t digits = 0;
  number = 0;
  while (digits < text.size() && text[digits] >= '0' && text[digits] <= '9') {
    if (digits == most_digits) return false;
    number = number * 10 + (text[digits++] - '0');
  }
  text.remove_prefix(digits);
  return digits > 0;
}

bool read_link(std::string_view text, ReadLink& read) {
  if (!read_number(text, read.link.source) || text.empty() || (text[0] != '-' && text[0] != 'p')) return false;
  read.sure = text[0] == '-';
  text.remove_prefix(1);
  return read_number(text, read.link.target) && text.empty();
}

}  // namespace

std::string to_pharaoh(const Alignment& alignment) {
  std::string line;
  for (const Link& link : alignment) append_link(line, link, '-');
  return line;
}

std::string to_pharaoh(const ReferenceAlignment& reference) {
  std::string line;
  for (const Link& link : reference.possible) append_link(line, link, holds(reference.sure, link) ? '-' : 'p');
  return line;
}

ReferenceAlignment parse_pharaoh(std::string_view line, const std::string& where) {
  ReferenceAlignment reference;
  std::set<Link> seen;
  const auto blank = [](char c) { return c == ' ' || c == '\t'; };
  for (std::size_t begin = 0; begin < line.size();) {
    if (blank(line[begin])) {
      ++begin;
      continue;
    }
    std::size_t end = begin;
    while (end < line.size() && !blank(line[end])) ++end;
    const std::string_view text = line.substr(begin, end - begin);
    const auto refuse = [&](const char* why) {
      throw Error(
          ErrorKind::format, where,
          join("link ", seen.size() + 1, ", \"", replace_invalid_utf8(text.substr(0, 40)), "\", ", why),
          "write links as 3-4 (sure) or 3p4 (possible), source word and target word from 0, with blanks between");
    };
    ReadLink read;
    if (!read_link(text, read)) refuse("is not a link of two numbers of at most 6 digits");
    if (!seen.insert(read.link).second) refuse("is there twice");
    reference.possible.push_back(read.link);
    if (read.sure) reference.sure.push_back(read.link);
    begin = end;
  }
  std::sort(reference.sure.begin(), reference.sure.end());
  std::sort(reference.possible.begin(), reference.possible.end());
  return reference;
}

std::vector<ReferenceAlignment> read_pharaoh(const std::filesystem::path& path) {
  ReadOptions options;
  options.longest_line = std::int64_t{1} << 20;
  LineReader lines(path, options);
  std::vector<ReferenceAlignment> result;
  for (std::string line; lines.next(line);)
    result.push_back(parse_pharaoh(line, join(path.string(), ":", lines.number())));
  return result;
}

void write_pharaoh(const std::filesystem::path& path, std::span<const Alignment> alignments) {
  write_file(path, [&](const std::function<void(std::string_view)>& take) {
    for (const Alignment& alignment : alignments) take(to_pharaoh(alignment) + '\n');
  });
}

double AlignmentScore::precision() const { return ratio(possible_matches, links); }
double AlignmentScore::recall() const { return ratio(sure_matches, sure); }
double AlignmentScore::error() const { return 1 - ratio(sure_matches + possible_matches, links + sure); }

AlignmentScore& AlignmentScore::operator+=(const AlignmentScore& other) {
  links += other.links;
  sure += other.sure;
  sure_matches += other.sure_matches;
  possible_matches += other.possible_matches;
  return *this;
}

AlignmentScore score_alignment(const Alignment& alignment, const ReferenceAlignment& reference) {
  return {static_cast<std::int64_t>(alignment.size()), static_cast<std::int64_t>(reference.sure.size()),
          shared(alignment, reference.sure), shared(alignment, reference.possible)};
}

const char* name_of(Symmetrisation symmetrisation) {
  switch (symmetrisation) {
    case Symmetrisation::forward:
      return "forward";
    case Symmetrisation::backward:
      return "backward";
    case Symmetrisation::intersection:
      return "intersection";
    case Symmetrisation::union_of_both:
      return "union";
    case Symmetrisation::grow_diagonal:
      return "grow-diag";
    case Symmetrisation::grow_diagonal_final:
      return "grow-diag-final";
    case Symmetrisation::grow_diagonal_final_and:
      return "grow-diag-final-and";
  }
  return "unknown";
}

Symmetrisation symmetrisation_named(std::string_view name) {
  for (int i = 0; i <= static_cast<int>(Symmetrisation::grow_diagonal_final_and); ++i)
    if (name == name_of(static_cast<Symmetrisation>(i))) return static_cast<Symmetrisation>(i);
  throw Error(ErrorKind::argument, "symmetrise", join("there is no symmetrisation \"", name, "\""),
              "use forward, backward, intersection, union, grow-diag, grow-diag-final or grow-diag-final-and");
}

Alignment symmetrise(const Alignment& forward, const Alignment& backward, Symmetrisation how) {
  if (how == Symmetrisation::forward) return forward;
  if (how == Symmetrisation::backward) return backward;
  Alignment both, either;
  std::set_intersection(forward.begin(), forward.end(), backward.begin(), backward.end(), std::back_inserter(both));
  if (how == Symmetrisation::intersection) return both;
  std::set_union(forward.begin(), forward.end(), backward.begin(), backward.end(), std::back_inserter(either));
  if (how == Symmetrisation::union_of_both) return either;

  std::set<Link> taken(both.begin(), both.end());
  std::set<std::int64_t> sources, targets;  // words with a link
  const auto take = [&](const Link& link) {
    taken.insert(link);
    sources.insert(link.source);
    targets.insert(link.target);
  };
  for (const Link& link : both) take(link);
  // The order of the published procedure: by target word, then source word, straight neighbours before diagonal ones.
  static constexpr int steps[8][2] = {{-1, 0}, {0, -1}, {1, 0}, {0, 1}, {-1, -1}, {-1, 1}, {1, -1}, {1, 1}};
  const auto by_target = [](const Link& a, const Link& b) {
    return a.target != b.target ? a.target < b.target : a.source < b.source;
  };
  for (bool grown = true; grown;) {
    grown = false;
    // Links added in a round are visited in the same round if they stand further on.
    std::set<Link, decltype(by_target)> visiting(taken.begin(), taken.end(), by_target);
    for (auto at = visiting.begin(); at != visiting.end(); ++at)
      for (const auto& step : steps) {
        const Link next{at->source + step[1], at->target + step[0]};
        if (taken.contains(next) || !holds(either, next)) continue;
        if (sources.contains(next.source) && targets.contains(next.target)) continue;
        take(next);
        visiting.insert(next);
        grown = true;
      }
  }
  if (how != Symmetrisation::grow_diagonal) {
    const bool both_free = how == Symmetrisation::grow_diagonal_final_and;
    for (const Alignment* direction : {&forward, &backward}) {
      Alignment ordered = *direction;
      std::sort(ordered.begin(), ordered.end(), by_target);
      for (const Link& link : ordered) {
        const bool source_free = !sources.contains(link.source), target_free = !targets.contains(link.target);
        if (both_free ? source_free && target_free : source_free || target_free) take(link);
      }
    }
  }
  return {taken.begin(), taken.end()};
}

const char* name_of(LinkRule rule) { return rule == LinkRule::largest ? "largest" : "threshold"; }

LinkRule link_rule_named(std::string_view name) {
  for (const LinkRule rule : {LinkRule::largest, LinkRule::threshold})
    if (name == name_of(rule)) return rule;
  throw Error(ErrorKind::argument, "alignment", join("there is no rule \"", name, "\" for links"),
              "use largest or threshold");
}

void check(const LinkOptions& options) {
  if (options.rule == LinkRule::threshold && !(options.threshold > 0 && options.threshold <= 1))
    throw Error(ErrorKind::argument, "alignment", join("the threshold is ", options.threshold),
                "use one above 0 and at most 1");
}

Alignment links_of(std::span<const float> weights, std::span<const TokenGroup> target,
                   std::span<const TokenGroup> source, const LinkOptions& options) {
  if (weights.size() != target.size() * source.size())
    throw Error(
        ErrorKind::shape, "alignment",
        join(weights.size(), " weights for ", target.size(), " target groups and ", source.size(), " source groups"),
        "give the weights that merge() makes of these groups");
  check(options);
  std::set<Link> links;
  const auto is_word = [](const TokenGroup& one) { return one.end_word > one.first_word; };
  const auto link = [&](const TokenGroup& from, const TokenGroup& to) {
    for (std::int64_t s = from.first_word; s < from.end_word; ++s)
      for (std::int64_t t = to.first_word; t < to.end_word; ++t) links.insert({s, t});
  };
  for (std::size_t t = 0; t < target.size(); ++t) {
    if (!is_word(target[t])) continue;
    const std::span<const float> row = weights.subspan(t * source.size(), source.size());
    std::size_t best = source.size();
    for (std::size_t s = 0; s < source.size(); ++s) {
      if (options.rule == LinkRule::threshold) {
        if (is_word(source[s]) && static_cast<double>(row[s]) >= options.threshold) link(source[s], target[t]);
      } else if ((is_word(source[s]) || (options.special_may_win && source[s].special())) &&
                 (best == source.size() || row[s] > row[best])) {
        best = s;
      }
    }
    if (best < source.size() && is_word(source[best])) link(source[best], target[t]);
  }
  return {links.begin(), links.end()};
}

}  // namespace attend
