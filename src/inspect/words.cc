#include "attend/words.h"

#include <algorithm>
#include <limits>
#include <map>
#include <utility>

#include "attend/error.h"
#include "attend/scripts.h"
#include "core/names.h"
#include "text/utf8.h"

namespace attend {
namespace {

constexpr const char* visible_blank = "\xE2\x90\xA3";  // U+2423

TokenRole role_of(const Tokenizer& tokenizer, std::int32_t id) {
  const SpecialTokens& specials = tokenizer.specials();
  if (id < 0) return TokenRole::class_token;
  if (id == specials.unknown) return TokenRole::unknown;
  if (!tokenizer.is_control(id)) return TokenRole::text;
  return id == specials.bos   ? TokenRole::bos
         : id == specials.eos ? TokenRole::eos
         : id == specials.pad ? TokenRole::pad
                              : TokenRole::tag;
}

// Readable and without blanks in front; blanks alone are made visible.
std::string shown(std::string_view bytes) {
  const std::size_t first = bytes.find_first_not_of(' ');
  if (first != std::string_view::npos) return readable_text(bytes.substr(first));
  std::string text;
  for (std::size_t i = 0; i < bytes.size(); ++i) text += visible_blank;
  return text;
}

// The characters of pieces [begin, end), all of which have bytes.
struct Characters {
  struct One {
    std::size_t begin = 0;
    char32_t character = 0;
    CharacterKind kind = CharacterKind::other;
  };
  std::string bytes;
  std::vector<One> all;
  std::vector<std::size_t> piece_begins;  // offset of every piece in bytes

  explicit Characters(std::span<const Piece> pieces) {
    for (const Piece& piece : pieces) {
      piece_begins.push_back(bytes.size());
      bytes += piece.bytes;
    }
    for (std::size_t position = 0; position < bytes.size();) {
      const Utf8Step step = utf8_step(bytes, position);
      // A byte that joins to no character stands alone.
      const std::size_t length = step.valid ? step.length : 1;
      all.push_back({position, step.character, step.valid ? kind_of(step.character) : CharacterKind::other});
      position += length;
    }
  }

  // For every piece: the character that begins with it, or -1 if it begins inside of one.
  std::vector<std::ptrdiff_t> characters_at_pieces() const {
    std::vector<std::ptrdiff_t> result;
    std::size_t next = 0;
    for (const std::size_t begin : piece_begins) {
      while (next < all.size() && all[next].begin < begin) ++next;
      const bool at = next < all.size() ? all[next].begin == begin : begin == bytes.size();
      result.push_back(at ? static_cast<std::ptrdiff_t>(next) : -1);
    }
    return result;
  }
};

bool is_letter_or_number(CharacterKind kind) { return kind == CharacterKind::letter || kind == CharacterKind::number; }

// Punctuation that stays inside a word between two characters of this kind.
bool joins_inside(char32_t character, CharacterKind around) {
  if (around == CharacterKind::letter) return character == '\'' || character == 0x2019 || character == '-';
  return around == CharacterKind::number && (character == '.' || character == ',');
}

// Does a word end before character i > 0? Marks stand with what they mark: kinds are those of the characters marked.
bool word_ends_before(const std::vector<Characters::One>& all, std::size_t i) {
  const auto kind = [&](std::size_t at) { return at < all.size() ? all[at].kind : CharacterKind::blank; };
  const auto before_marks = [&](std::size_t at) {  // the last character before `at` that is no mark
    while (at > 0 && all[at - 1].kind == CharacterKind::mark) --at;
    return at - 1;  // beyond the end where there is none
  };
  const CharacterKind b = all[i].kind;
  if (b == CharacterKind::mark) return false;
  const std::size_t previous = before_marks(i);
  if (previous >= all.size()) return false;
  const CharacterKind a = all[previous].kind;
  if (is_letter_or_number(a) && is_letter_or_number(b)) return false;
  if (kind(i + 1) == a && joins_inside(all[i].character, a)) return false;
  const std::size_t earlier = previous > 0 ? before_marks(previous) : all.size();
  if (kind(earlier) == b && joins_inside(all[previous].character, b)) return false;
  if ((a == CharacterKind::punctuation || a == CharacterKind::symbol) && all[previous].character == all[i].character)
    return false;  // an ellipsis of three dots
  return true;
}

// Does a group of this kind end before character i > 0?
bool ends_before(const std::vector<Characters::One>& all, std::size_t i, GroupBy by) {
  const CharacterKind a = all[i - 1].kind, b = all[i].kind;
  if (by == GroupBy::token || by == GroupBy::character) return b != CharacterKind::mark || by == GroupBy::token;
  if (a == CharacterKind::line_end || b == CharacterKind::line_end) return true;
  if (a == CharacterKind::blank) return false;  // opens the word after it
  if (b == CharacterKind::blank) return true;
  return by == GroupBy::word && word_ends_before(all, i);
}

// Groups of pieces from places where they begin; counts words.
std::vector<TokenGroup> groups_at(std::span<const Piece> pieces, std::span<const std::int64_t> begins) {
  std::vector<TokenGroup> groups;
  std::int64_t words = 0;
  for (std::size_t g = 0; g < begins.size(); ++g) {
    TokenGroup one;
    one.begin = begins[g];
    one.end = g + 1 < begins.size() ? begins[g + 1] : static_cast<std::int64_t>(pieces.size());
    const auto members = pieces.subspan(static_cast<std::size_t>(one.begin), static_cast<std::size_t>(one.size()));
    std::string bytes;
    bool word = false;
    for (const Piece& piece : members) {
      if (piece.bytes.empty() && (piece.special() || !piece.text.empty())) {
        one.text += shown(bytes) + piece.text;  // a special token inside a range, or a token without bytes
        bytes.clear();
      }
      bytes += piece.bytes;
      word = word || piece.role == TokenRole::unknown || (piece.role == TokenRole::text && !is_blank(piece.bytes));
    }
    one.text += shown(bytes);
    if (members.size() == 1) {
      one.role = members[0].role;
      // A part of a character by its bytes: the character itself would be told of one part only.
      one.text = members[0].fragments > 1 ? members[0].raw : members[0].text;
    }
    one.first_word = words;
    one.end_word = words += word;
    groups.push_back(std::move(one));
  }
  return groups;
}

// Groups must hold tokens 0 .. tokens - 1 once, in order; gives the group of every token.
std::vector<std::size_t> groups_of_tokens(std::span<const TokenGroup> groups, const char* side) {
  std::vector<std::size_t> of_token;
  for (std::size_t g = 0; g < groups.size(); ++g) {
    if (groups[g].begin != static_cast<std::int64_t>(of_token.size()) || groups[g].end <= groups[g].begin)
      throw Error(ErrorKind::shape, "merge",
                  join(side, " group ", g, " holds tokens ", groups[g].begin, " to ", groups[g].end - 1, " and token ",
                       of_token.size(), " comes next"),
                  "groups must hold every token once, in order");
    of_token.resize(static_cast<std::size_t>(groups[g].end), g);
  }
  return of_token;
}

double factor_of(const TokenGroup& queries, Merge how) {
  return how == Merge::weights ? 1.0 / static_cast<double>(queries.size()) : 1.0;
}

}  // namespace

const char* name_of(TokenRole role) {
  switch (role) {
    case TokenRole::text:
      return "text";
    case TokenRole::bos:
      return "bos";
    case TokenRole::eos:
      return "eos";
    case TokenRole::pad:
      return "pad";
    case TokenRole::unknown:
      return "unknown";
    case TokenRole::tag:
      return "tag";
    case TokenRole::class_token:
      return "class token";
  }
  return "unknown";
}

const char* name_of(GroupBy by) {
  switch (by) {
    case GroupBy::token:
      return "token";
    case GroupBy::character:
      return "character";
    case GroupBy::word:
      return "word";
    case GroupBy::blank:
      return "blank";
  }
  return "unknown";
}

GroupBy group_by_named(std::string_view name) {
  for (const GroupBy by : {GroupBy::token, GroupBy::character, GroupBy::word, GroupBy::blank})
    if (name == name_of(by)) return by;
  throw Error(ErrorKind::argument, "group", join("there is no grouping by \"", name, "\""),
              "use token, character, word or blank");
}

std::vector<Piece> pieces_of(const Tokenizer& tokenizer, std::span<const std::int32_t> ids, std::string_view text) {
  std::vector<Piece> pieces;
  std::string normalised;
  std::vector<TokenSpan> spans;
  if (!text.empty()) {
    normalised = normalise(text, tokenizer.normalisation());
    spans = tokenizer.encode_spans(text);
  }
  std::size_t next = 0;  // token of the text
  for (std::size_t i = 0; i < ids.size(); ++i) {
    Piece& piece = pieces.emplace_back();
    piece.id = ids[i];
    piece.role = role_of(tokenizer, ids[i]);
    piece.raw = ids[i] < 0 ? "[CLS]" : tokenizer.readable(ids[i]);
    const bool of_text = piece.role == TokenRole::text || piece.role == TokenRole::unknown;
    if (of_text && !text.empty()) {
      if (next >= spans.size() || spans[next].id != ids[i])
        throw Error(ErrorKind::argument, "pieces_of",
                    join("token ", i, " is ", ids[i], " (", piece.raw, ") and the text has ",
                         next < spans.size() ? join(spans[next].id, " (", tokenizer.readable(spans[next].id), ")")
                                             : std::string("no more tokens"),
                         " there"),
                    "give the text that these tokens were cut from");
      const TokenSpan& span = spans[next++];
      piece.bytes =
          normalised.substr(static_cast<std::size_t>(span.begin), static_cast<std::size_t>(span.end - span.begin));
      // The blank that a tokenizer adds in front stands for no byte of the text and still opens the first word.
      if (piece.bytes.empty() && is_blank(tokenizer.bytes(ids[i]))) piece.bytes = tokenizer.bytes(ids[i]);
    } else if (piece.role == TokenRole::text) {
      piece.bytes = tokenizer.bytes(ids[i]);
    }
    piece.text = of_text && !piece.bytes.empty() ? "" : shown(piece.raw);
  }
  if (next < spans.size())
    throw Error(ErrorKind::argument, "pieces_of",
                join("the text has ", spans.size(), " tokens and ", next, " were given"),
                "give the text that these tokens were cut from");

  for (std::size_t begin = 0; begin < pieces.size();) {
    if (pieces[begin].bytes.empty()) {
      ++begin;
      continue;
    }
    std::size_t end = begin;
    while (end < pieces.size() && !pieces[end].bytes.empty()) ++end;
    const std::span<Piece> stretch(pieces.data() + begin, end - begin);
    const Characters characters(stretch);
    const std::vector<std::ptrdiff_t> at = characters.characters_at_pieces();
    for (std::size_t first = 0; first < stretch.size();) {
      std::size_t last = first + 1;
      while (last < stretch.size() && at[last] < 0) ++last;
      std::string bytes;
      for (std::size_t i = first; i < last; ++i) {
        stretch[i].fragment = static_cast<int>(i - first);
        stretch[i].fragments = static_cast<int>(last - first);
        const std::size_t offset = characters.piece_begins[i];
        stretch[i].blank_before =
            stretch[i].bytes.front() == ' ' || (i == first && offset > 0 && characters.bytes[offset - 1] == ' ');
        bytes += stretch[i].bytes;
      }
      stretch[first].text = shown(bytes);
      first = last;
    }
    begin = end;
  }
  return pieces;
}

std::vector<TokenGroup> group(std::span<const Piece> pieces, GroupBy by) {
  std::vector<std::int64_t> begins;
  for (std::size_t begin = 0; begin < pieces.size();) {
    begins.push_back(static_cast<std::int64_t>(begin));
    std::size_t end = begin;
    while (end < pieces.size() && !pieces[end].bytes.empty()) ++end;
    const Characters characters(pieces.subspan(begin, end - begin));
    const std::vector<std::ptrdiff_t> at = characters.characters_at_pieces();
    for (std::size_t i = 1; i < at.size(); ++i)
      if (by == GroupBy::token || (at[i] >= 0 && ends_before(characters.all, static_cast<std::size_t>(at[i]), by)))
        begins.push_back(static_cast<std::int64_t>(begin + i));
    begin = std::max(end, begin + 1);
  }
  return groups_at(pieces, begins);
}

namespace {

constexpr const char* segmentation_advice = "put blanks between the words of the text and change nothing else";

// The characters of a segmented line that are not white space, each with its word; read from left to right.
class SegmentedLine {
 public:
  explicit SegmentedLine(std::string_view text) {
    bool in_word = false;
    for (const char32_t character : characters_of(text)) {
      const bool blank = is_white_space(character);
      if (!blank && !in_word) ++words_;
      in_word = !blank;
      if (!blank) all_.push_back({character, words_ - 1});
    }
  }

  bool ended() const { return next_ == all_.size(); }
  // Of the next character; at the end of the line the number of words.
  std::int64_t word() const { return ended() ? words_ : all_[next_].word; }
  bool begins_with(char32_t character) const { return !ended() && all_[next_].character == character; }
  void advance() { ++next_; }

  // "word 3 is "abc"", or that the line ends.
  std::string where() const {
    if (ended()) return join("the line ends after word ", words_);
    return join("word ", word() + 1, " is \"", text_of(word()), "\"");
  }
  std::string text_of(std::int64_t word) const {
    std::string result;
    for (const One& one : all_)
      if (one.word == word) append_character(result, one.character);
    return result;
  }

 private:
  struct One {
    char32_t character;
    std::int64_t word;
  };
  std::vector<One> all_;
  std::int64_t words_ = 0;
  std::size_t next_ = 0;
};

// The words that a piece has a part of; equal where it has none.
struct WordSpan {
  std::int64_t first = 0, end = 0;
};

[[noreturn]] void refuse_line(const SegmentedLine& line, const Characters& characters, std::size_t at) {
  std::string found;
  for (std::size_t i = at; i < characters.all.size() && i < at + 8; ++i)
    append_character(found, characters.all[i].character);
  throw Error(ErrorKind::text, "segmentation", join(line.where(), " and the text goes on with \"", found, "\""),
              segmentation_advice);
}

// Of pieces that all have text.
void append_spans(std::span<const Piece> stretch, SegmentedLine& line, std::vector<WordSpan>& spans) {
  const Characters characters(stretch);
  std::vector<WordSpan> found(stretch.size(), {std::numeric_limits<std::int64_t>::max(), -1});
  std::size_t piece = 0;
  for (std::size_t c = 0; c < characters.all.size(); ++c) {
    const Characters::One& one = characters.all[c];
    const std::size_t one_end = c + 1 < characters.all.size() ? characters.all[c + 1].begin : characters.bytes.size();
    if (is_white_space(one.character)) continue;
    if (!line.begins_with(one.character)) refuse_line(line, characters, c);
    while (piece + 1 < characters.piece_begins.size() && characters.piece_begins[piece + 1] <= one.begin) ++piece;
    for (std::size_t i = piece; i < found.size() && (i == piece || characters.piece_begins[i] < one_end); ++i) {
      found[i].first = std::min(found[i].first, line.word());
      found[i].end = std::max(found[i].end, line.word() + 1);
    }
    line.advance();
  }
  // Blanks open the word after them, whatever of it is in this stretch.
  WordSpan after{line.word(), line.word()};
  for (std::size_t i = found.size(); i-- > 0;) {
    if (found[i].end < 0) found[i] = {after.first, after.first};
    after = found[i];
  }
  spans.insert(spans.end(), found.begin(), found.end());
}

std::vector<WordSpan> word_spans(std::span<const Piece> pieces, SegmentedLine& line) {
  std::vector<WordSpan> spans;
  for (std::size_t begin = 0; begin < pieces.size();) {
    std::size_t end = begin;
    while (end < pieces.size() && !pieces[end].bytes.empty()) ++end;
    if (end > begin) {
      append_spans(pieces.subspan(begin, end - begin), line, spans);
      begin = end;
      continue;
    }
    if (pieces[begin].role == TokenRole::unknown)
      throw Error(ErrorKind::text, "segmentation",
                  join("token ", begin, " is unknown, so its characters are not known"),
                  "give pieces_of the text, too");
    spans.push_back({line.word(), line.word()});
    ++begin;
  }
  if (!line.ended())
    throw Error(ErrorKind::text, "segmentation",
                join("word ", line.word() + 1, " of the line, \"", line.text_of(line.word()),
                     "\", goes on where the text ends"),
                segmentation_advice);
  return spans;
}

}  // namespace

std::vector<TokenGroup> group_by_segmentation(std::span<const Piece> pieces, std::string_view line,
                                              Normalisation normalisation) {
  SegmentedLine segmented(normalise(line, normalisation));
  const std::vector<WordSpan> spans = word_spans(pieces, segmented);
  std::vector<std::int64_t> begins;
  std::int64_t reached = 0;  // words of the group so far end here
  for (std::size_t i = 0; i < pieces.size(); ++i) {
    const bool alone = pieces[i].bytes.empty(), after_alone = i > 0 && pieces[i - 1].bytes.empty();
    const bool blanks_before = i > 0 && !after_alone && is_blank(pieces[i - 1].bytes);
    if (i == 0 || alone || after_alone || (spans[i].first >= reached && !blanks_before))
      begins.push_back(static_cast<std::int64_t>(i));
    reached = std::max(reached, spans[i].end);
  }
  std::vector<TokenGroup> groups = groups_at(pieces, begins);
  for (TokenGroup& one : groups) {
    one.first_word = spans[static_cast<std::size_t>(one.begin)].first;
    one.end_word = one.first_word;
    for (std::int64_t i = one.begin; i < one.end; ++i)
      one.end_word = std::max(one.end_word, spans[static_cast<std::size_t>(i)].end);
  }
  return groups;
}

std::vector<TokenGroup> group_by_ranges(std::span<const Piece> pieces, std::span<const TokenRange> ranges) {
  const auto tokens = static_cast<std::int64_t>(pieces.size());
  std::vector<std::int64_t> range_of(pieces.size(), -1);
  for (std::size_t r = 0; r < ranges.size(); ++r) {
    const TokenRange& range = ranges[r];
    const auto refuse = [&](const std::string& why) {
      throw Error(ErrorKind::argument, "group",
                  join("range ", r + 1, ", tokens ", range.begin, " to ", range.end - 1, ", ", why),
                  "give ranges [begin, end) that do not overlap");
    };
    if (range.begin >= range.end) refuse("is empty");
    if (range.begin < 0 || range.end > tokens) refuse(join("is beyond the ", tokens, " tokens"));
    for (std::int64_t i = range.begin; i < range.end; ++i) {
      if (range_of[static_cast<std::size_t>(i)] >= 0)
        refuse(join("overlaps range ", range_of[static_cast<std::size_t>(i)] + 1, " at token ", i));
      range_of[static_cast<std::size_t>(i)] = static_cast<std::int64_t>(r);
    }
  }
  std::vector<std::int64_t> begins;
  for (std::size_t i = 0; i < pieces.size(); ++i)
    if (i == 0 || range_of[i] < 0 || range_of[i] != range_of[i - 1]) begins.push_back(static_cast<std::int64_t>(i));
  return groups_at(pieces, begins);
}

std::vector<float> merge(std::span<const float> values, std::span<const TokenGroup> query_groups,
                         std::span<const TokenGroup> key_groups, Merge how) {
  const std::vector<std::size_t> query_of = groups_of_tokens(query_groups, "query"),
                                 key_of = groups_of_tokens(key_groups, "key");
  if (values.size() != query_of.size() * key_of.size())
    throw Error(ErrorKind::shape, "merge",
                join(values.size(), " values for ", query_of.size(), " queries and ", key_of.size(), " keys"));
  std::vector<float> result;
  result.reserve(query_groups.size() * key_groups.size());
  std::vector<double> sums(key_groups.size());
  for (const TokenGroup& queries : query_groups) {
    std::fill(sums.begin(), sums.end(), 0.0);
    for (std::int64_t query = queries.begin; query < queries.end; ++query) {
      const float* const row = values.data() + static_cast<std::size_t>(query) * key_of.size();
      for (std::size_t key = 0; key < key_of.size(); ++key) sums[key_of[key]] += static_cast<double>(row[key]);
    }
    for (const double sum : sums) result.push_back(static_cast<float>(sum * factor_of(queries, how)));
  }
  return result;
}

std::vector<EdgeValue> merge(std::span<const EdgeValue> edges, std::span<const TokenGroup> query_groups,
                             std::span<const TokenGroup> key_groups, Merge how) {
  const std::vector<std::size_t> query_of = groups_of_tokens(query_groups, "query"),
                                 key_of = groups_of_tokens(key_groups, "key");
  std::map<std::pair<std::size_t, std::size_t>, double> sums;
  for (const EdgeValue& edge : edges) {
    if (edge.query < 0 || edge.query >= static_cast<std::int64_t>(query_of.size()) || edge.key < 0 ||
        edge.key >= static_cast<std::int64_t>(key_of.size()))
      throw Error(ErrorKind::shape, "merge",
                  join("an edge from query ", edge.query, " to key ", edge.key, " of ", query_of.size(),
                       " queries and ", key_of.size(), " keys"));
    sums[{query_of[static_cast<std::size_t>(edge.query)], key_of[static_cast<std::size_t>(edge.key)]}] +=
        static_cast<double>(edge.value);
  }
  std::vector<EdgeValue> result;
  for (const auto& [pair, sum] : sums)
    result.push_back({static_cast<std::int64_t>(pair.first), static_cast<std::int64_t>(pair.second),
                      static_cast<float>(sum * factor_of(query_groups[pair.first], how))});
  return result;
}

}  // namespace attend
