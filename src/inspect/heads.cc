#include "attend/heads.h"

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>
#include <set>

#include "attend/error.h"
#include "core/names.h"

namespace attend {
namespace {

using Json = nlohmann::ordered_json;

constexpr double nan = std::numeric_limits<double>::quiet_NaN();
constexpr const char* format_name = "attend heads";
constexpr const char* differences_format_name = "attend head differences";
constexpr int format_version = 1;

struct Described {
  const char* name;
  const char* meaning;
};
// In the order of Behaviour.
constexpr std::array<Described, behaviour_count> behaviours{{
    {"previous_token", "weight on the token before"},
    {"next_token", "weight on the token after"},
    {"self_token", "weight on the token itself"},
    {"duplicate_token", "weight on earlier occurrences of the same token"},
    {"induction", "weight on the tokens after earlier occurrences of the same token"},
    {"distance", "mean distance of what is read, in tokens"},
    {"distance_deviation", "standard deviation of the signed distance"},
    {"offset", "mean signed distance: negative looks back"},
    {"same_token", "weight on other occurrences of the same token"},
    {"first_token", "weight on the first token (sink)"},
    {"separator", "weight on punctuation and line ends"},
    {"special_token", "weight on special tokens"},
    {"entropy", "entropy of the weights, in nats"},
    {"normalised_entropy", "entropy divided by that of uniform weights"},
    {"confidence", "largest weight"},
    {"diagonal", "closeness to the diagonal of source and target"},
    {"coverage", "share of each source token that is read at all"},
    {"alignment_error", "alignment error rate of the row that predicts the word; lower is better"},
    {"alignment_error_after", "alignment error rate of the row that reads the word; lower is better"},
    {"agreement", "agreement of the links of both directions, rows that predict the word"},
    {"agreement_after", "agreement of the links of both directions, rows that read the word"},
    {"copying", "share of tokens that are among the 5 the head raises most when it reads them"},
    {"copying_eigenvalues", "sum of eigenvalues of the OV circuit over the sum of their sizes"},
}};

bool read_small_number(std::string_view text, int& number) {
  if (text.empty() || text.size() > 6 || (text.size() > 1 && text[0] == '0')) return false;
  number = 0;
  for (const char c : text) {
    if (c < '0' || c > '9') return false;
    number = number * 10 + (c - '0');
  }
  return true;
}

// The reverse of name_of() where no model is at hand.
std::optional<HeadPlace> head_from_name(std::string_view name) {
  std::vector<std::string_view> parts;
  for (std::size_t begin = 0; begin <= name.size() && parts.size() < 5;) {
    const std::size_t end = std::min(name.find('.', begin), name.size());
    parts.push_back(name.substr(begin, end - begin));
    begin = end + 1;
  }
  HeadPlace head;
  if (parts.size() != 4 || (parts[0] != "encoder" && parts[0] != "decoder") ||
      (parts[2] != "self" && parts[2] != "cross") || !read_small_number(parts[1], head.layer) ||
      !read_small_number(parts[3], head.head) || (parts[0] == "encoder" && parts[2] == "cross"))
    return std::nullopt;
  head.stack = parts[0] == "encoder" ? StackKind::encoder : StackKind::decoder;
  head.part = parts[2] == "cross" ? Part::cross : Part::self;
  return head;
}

double sketch_affinity(const std::vector<std::int64_t>& a, const std::vector<std::int64_t>& b) {
  double both = 0, first = 0, second = 0;
  for (std::size_t i = 0; i < a.size(); ++i) {
    const auto x = static_cast<double>(a[i]), y = static_cast<double>(b[i]);
    both += x * y;
    first += x * x;
    second += y * y;
  }
  return first > 0 && second > 0 ? both / std::sqrt(first * second) : nan;
}

bool same_kind(const HeadPlace& a, const HeadPlace& b) { return a.stack == b.stack && a.part == b.part; }

std::string heads_listed(const HeadReport& report) {
  return report.heads.empty()
             ? "there are none"
             : join("heads run from ", name_of(report.heads.front().head), " to ", name_of(report.heads.back().head));
}

}  // namespace

const char* name_of(Behaviour behaviour) { return behaviours[static_cast<std::size_t>(behaviour)].name; }
const char* meaning_of(Behaviour behaviour) { return behaviours[static_cast<std::size_t>(behaviour)].meaning; }

Behaviour behaviour_named(std::string_view name) {
  std::vector<std::string> names;
  for (int i = 0; i < behaviour_count; ++i) {
    if (name == behaviours[static_cast<std::size_t>(i)].name) return static_cast<Behaviour>(i);
    names.emplace_back(behaviours[static_cast<std::size_t>(i)].name);
  }
  const std::string near = nearest_name(std::string(name), names);
  std::string all;
  for (const std::string& one : names) all += all.empty() ? one : ", " + one;
  throw Error(ErrorKind::argument, "heads",
              join("there is no behaviour \"", replace_invalid_utf8(name.substr(0, 100)), "\""),
              near.empty() ? "use one of " + all : join("did you mean ", near, "? There are ", all));
}

bool smaller_is_more(Behaviour behaviour) {
  return behaviour == Behaviour::alignment_error || behaviour == Behaviour::alignment_error_after;
}

HeadItems items_from(std::vector<HeadItem> items) {
  return [items = std::move(items), next = std::size_t{0}](HeadItem& item) mutable {
    if (next == items.size()) return false;
    item = std::move(items[next++]);
    return true;
  };
}

std::size_t HeadReport::index_of(const HeadPlace& head) const {
  for (std::size_t i = 0; i < heads.size(); ++i)
    if (heads[i].head == head) return i;
  throw Error(ErrorKind::argument, "heads", join("the report has no head ", name_of(head)), heads_listed(*this));
}

const HeadScores& HeadReport::operator[](const HeadPlace& head) const { return heads[index_of(head)]; }

namespace {

// Those of the largest `order` first.
void sort_ranked(std::vector<RankedHead>& ranked, const std::function<double(double)>& order, std::int64_t most) {
  std::erase_if(ranked, [](const RankedHead& one) { return std::isnan(one.value); });
  std::stable_sort(ranked.begin(), ranked.end(),
                   [&](const RankedHead& a, const RankedHead& b) { return order(a.value) > order(b.value); });
  if (most > 0 && static_cast<std::size_t>(most) < ranked.size()) ranked.resize(static_cast<std::size_t>(most));
}

double as_it_is(double value) { return value; }
double as_size(double value) { return std::abs(value); }

std::vector<RankedHead> scores_of(const std::vector<HeadScores>& heads, Behaviour behaviour) {
  std::vector<RankedHead> scores;
  for (const HeadScores& one : heads) scores.push_back({one.head, one[behaviour]});
  return scores;
}

}  // namespace

std::vector<RankedHead> rank_heads(const HeadReport& report, Behaviour behaviour, std::int64_t most) {
  if (smaller_is_more(behaviour)) return rank_heads_near(report, behaviour, 0, most);
  std::vector<RankedHead> ranked = scores_of(report.heads, behaviour);
  sort_ranked(ranked, behaviour == Behaviour::offset ? as_size : as_it_is, most);
  return ranked;
}

std::vector<RankedHead> rank_heads_near(const HeadReport& report, Behaviour behaviour, double wanted,
                                        std::int64_t most) {
  std::vector<RankedHead> ranked = scores_of(report.heads, behaviour);
  sort_ranked(
      ranked, [&](double value) { return -std::abs(value - wanted); }, most);
  return ranked;
}

double likeness(const HeadReport& report, const HeadPlace& a, const HeadPlace& b, Likeness by) {
  const std::size_t first = report.index_of(a), second = report.index_of(b);
  if (by == Likeness::weights) {
    if (report.sketches.size() != report.heads.size())
      throw Error(ErrorKind::argument, "heads",
                  "the report was read from a file, which holds no sketches of the weights",
                  "run the finder again, or compare scores");
    return same_kind(a, b) ? sketch_affinity(report.sketches[first], report.sketches[second]) : nan;
  }
  double squares = 0;
  int compared = 0;
  for (std::size_t i = 0; i < behaviour_count; ++i) {
    const double x = report.heads[first].values[i], y = report.heads[second].values[i];
    if (std::isnan(x) || std::isnan(y)) continue;
    double mean = 0, square = 0, count = 0;
    for (const HeadScores& one : report.heads)
      if (!std::isnan(one.values[i])) mean += one.values[i], count += 1;
    mean /= count;
    for (const HeadScores& one : report.heads)
      if (!std::isnan(one.values[i])) square += (one.values[i] - mean) * (one.values[i] - mean);
    ++compared;
    if (square > 0) squares += (x - y) * (x - y) / (square / count);
  }
  return compared > 0 ? 1 / (1 + std::sqrt(squares / compared)) : nan;
}

std::vector<RankedHead> heads_like(const HeadReport& report, const HeadPlace& head, Likeness by, std::int64_t most) {
  std::vector<RankedHead> ranked;
  report.index_of(head);
  for (const HeadScores& one : report.heads)
    if (one.head != head) ranked.push_back({one.head, likeness(report, head, one.head, by)});
  sort_ranked(ranked, as_it_is, most);
  return ranked;
}

HeadScores difference(const HeadScores& a, const HeadScores& b) {
  HeadScores result{b.head, {}};
  for (std::size_t i = 0; i < behaviour_count; ++i) result.values[i] = b.values[i] - a.values[i];
  return result;
}

ReportDifference difference(const HeadReport& before, const HeadReport& after) {
  const auto refuse = [](const std::string& what) {
    throw Error(ErrorKind::argument, "heads", what, "compare runs of models with the same heads");
  };
  if (before.heads.size() != after.heads.size())
    refuse(join("one report has ", before.heads.size(), " heads and the other ", after.heads.size()));
  ReportDifference result;
  const auto run_of = [](const HeadReport& report) {
    return ReportDifference::Run{report.model, report.corpus, report.items, report.source_tokens, report.target_tokens};
  };
  result.before = run_of(before);
  result.after = run_of(after);
  const bool sketched = before.corpus == after.corpus && before.sketches.size() == before.heads.size() &&
                        after.sketches.size() == after.heads.size();
  for (std::size_t i = 0; i < before.heads.size(); ++i) {
    if (before.heads[i].head != after.heads[i].head)
      refuse(join("one report has ", name_of(before.heads[i].head), " where the other has ",
                  name_of(after.heads[i].head)));
    result.heads.push_back(difference(before.heads[i], after.heads[i]));
    if (sketched) result.likeness.push_back(sketch_affinity(before.sketches[i], after.sketches[i]));
  }
  return result;
}

std::vector<RankedHead> rank_changes(const ReportDifference& changes, Behaviour behaviour, std::int64_t most) {
  std::vector<RankedHead> ranked = scores_of(changes.heads, behaviour);
  sort_ranked(ranked, as_size, most);
  return ranked;
}

AlignmentOptions best_alignment_heads(const HeadReport& report, std::int64_t most) {
  AlignmentOptions options;
  if (most < 1) throw Error(ErrorKind::argument, "heads", join(most, " heads asked for"), "ask for 1 or more");
  const auto take = [&](Behaviour predicting, Behaviour reading) {
    const std::vector<RankedHead> rows[2] = {rank_heads(report, predicting, most), rank_heads(report, reading, most)};
    if (rows[0].empty()) return false;
    // One row is read for all heads: the one that serves the best head best.
    options.after = !rows[1].empty() && (smaller_is_more(predicting) ? rows[1][0].value < rows[0][0].value
                                                                     : rows[1][0].value > rows[0][0].value);
    for (const RankedHead& one : rows[options.after ? 1 : 0]) options.chosen.push_back({one.head.layer, one.head.head});
    return true;
  };
  if (!take(Behaviour::alignment_error, Behaviour::alignment_error_after) &&
      !take(Behaviour::agreement, Behaviour::agreement_after) && !take(Behaviour::diagonal, Behaviour::diagonal))
    throw Error(ErrorKind::argument, "heads", "the report has no cross-attention heads",
                "use a model with encoder and decoder");
  return options;
}

// ---- Files ----------------------------------------------------------------------------------------------------------

namespace {

Json heads_json(const std::vector<HeadScores>& heads) {
  Json list = Json::array();
  for (const HeadScores& one : heads) {
    Json head;
    head["head"] = name_of(one.head);
    for (std::size_t i = 0; i < behaviour_count; ++i)
      head[behaviours[i].name] = std::isfinite(one.values[i]) ? Json(one.values[i]) : Json(nullptr);
    list.push_back(std::move(head));
  }
  return list;
}

std::string heads_csv(const std::vector<HeadScores>& heads, const char* after_name) {
  std::string csv = "head,stack,part,layer,number";
  for (const Described& one : behaviours) csv += join(',', one.name, after_name);
  csv += '\n';
  for (const HeadScores& one : heads) {
    csv += join(name_of(one.head), ',', name_of(one.head.stack), ',', name_of(one.head.part), ',', one.head.layer, ',',
                one.head.head);
    for (const double value : one.values) {
      csv += ',';
      if (std::isfinite(value)) csv += Json(value).dump();
    }
    csv += '\n';
  }
  return csv;
}

}  // namespace

std::string to_json(const HeadReport& report) {
  Json json;
  json["format"] = format_name;
  json["version"] = format_version;
  json["model"] = report.model;
  json["corpus"] = report.corpus;
  json["items"] = report.items;
  json["source_tokens"] = report.source_tokens;
  json["target_tokens"] = report.target_tokens;
  json["heads"] = heads_json(report.heads);
  return json.dump(1) + "\n";
}

std::string to_json(const ReportDifference& changes) {
  const auto run_json = [](const ReportDifference::Run& run) {
    return Json{{"model", run.model},
                {"corpus", run.corpus},
                {"items", run.items},
                {"source_tokens", run.source_tokens},
                {"target_tokens", run.target_tokens}};
  };
  Json json;
  json["format"] = differences_format_name;
  json["version"] = format_version;
  json["before"] = run_json(changes.before);
  json["after"] = run_json(changes.after);
  json["heads"] = heads_json(changes.heads);
  return json.dump(1) + "\n";
}

HeadReport report_from_json(const std::string& text, const std::string& where) {
  const auto refuse = [&](const std::string& what) -> void {
    throw Error(ErrorKind::format, where, what, "give a report that the head finder wrote as JSON");
  };
  Json json;
  try {
    // What nests deeper than a report does is refused before it is built.
    json = Json::parse(text, [&](int depth, Json::parse_event_t, Json&) {
      if (depth > 3)
        throw Error(ErrorKind::format, where, "is nested deeper than a report", "give a report of the head finder");
      return true;
    });
  } catch (const nlohmann::json::exception& error) {
    refuse(join("is not JSON: ", json_reason(error)));
  }
  if (!json.is_object()) refuse("is not an object");
  const auto at = [&](const Json& object, const char* key) -> const Json& {
    const auto found = object.find(key);
    if (found == object.end()) refuse(join("the key \"", key, "\" is missing"));
    return *found;
  };
  const auto string = [&](const Json& object, const char* key) {
    if (!at(object, key).is_string()) refuse(join("\"", key, "\" is not text"));
    return at(object, key).get<std::string>();
  };
  const auto count = [&](const char* key) {
    const Json& value = at(json, key);
    if (!value.is_number_unsigned() || value.get<std::uint64_t>() > std::uint64_t{1} << 53)
      refuse(join("\"", key, "\" is not a count"));
    return value.get<std::int64_t>();
  };
  if (string(json, "format") == differences_format_name)
    throw Error(ErrorKind::format, where, "holds the differences of two reports",
                "give one of the reports they were made from");
  if (string(json, "format") != format_name) refuse(join("\"format\" is not \"", format_name, "\""));
  if (count("version") != format_version)
    throw Error(ErrorKind::format, where,
                join("has version ", count("version"), ", this program reads version ", format_version),
                "use the version of the program that wrote it");
  HeadReport report;
  report.model = string(json, "model");
  report.corpus = string(json, "corpus");
  report.items = count("items");
  report.source_tokens = count("source_tokens");
  report.target_tokens = count("target_tokens");
  const Json& heads = at(json, "heads");
  if (!heads.is_array()) refuse("\"heads\" is not a list");
  std::set<std::string> seen;
  for (const Json& entry : heads) {
    const std::string place = join("entry ", report.heads.size() + 1, " of \"heads\"");
    if (!entry.is_object()) refuse(place + " is not an object");
    HeadScores one{};
    const std::string name = string(entry, "head");
    const std::optional<HeadPlace> head = head_from_name(name);
    if (!head) refuse(join(place, ": \"", replace_invalid_utf8(name.substr(0, 100)), "\" names no head"));
    one.head = *head;
    if (!seen.insert(name).second) refuse(join(place, ": ", name, " is there twice"));
    for (std::size_t i = 0; i < behaviour_count; ++i) {
      const Json& value = at(entry, behaviours[i].name);
      if (!value.is_null() && !value.is_number())
        refuse(join(place, ": \"", behaviours[i].name, "\" is neither a number nor null"));
      one.values[i] = value.is_null() ? nan : value.get<double>();
    }
    for (const auto& field : entry.items()) {
      const std::string& key = field.key();
      if (key != "head" &&
          std::none_of(behaviours.begin(), behaviours.end(), [&](const Described& known) { return key == known.name; }))
        refuse(join(place, ": the key \"", replace_invalid_utf8(key.substr(0, 100)), "\" is not known"));
    }
    report.heads.push_back(one);
  }
  return report;
}

std::string to_csv(const HeadReport& report) { return heads_csv(report.heads, ""); }
std::string to_csv(const ReportDifference& changes) { return heads_csv(changes.heads, "_change"); }

}  // namespace attend
