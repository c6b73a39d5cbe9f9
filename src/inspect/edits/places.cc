#include "inspect/edits/places.h"

#include <algorithm>
#include <map>
#include <optional>
#include <string_view>

#include "attend/error.h"
#include "core/names.h"

namespace attend {
namespace {

// Is the name one of those the pattern stands for? A * is one word; `beginning`: the name may go on.
bool fits(std::string_view pattern, std::string_view name, bool beginning) {
  const std::vector<std::string_view> wanted = name_words(pattern), words = name_words(name);
  if (beginning ? wanted.size() > words.size() : wanted.size() != words.size()) return false;
  for (std::size_t i = 0; i < wanted.size(); ++i)
    if (wanted[i] != "*" && wanted[i] != words[i]) return false;
  return true;
}

// A name an edit may give, and the site where it acts.
struct Known {
  std::string name;
  Site site;
};

std::string without_point(const Site& site) {
  const std::string name = name_of(site);
  return name.substr(0, name.rfind('.'));
}

bool is_deviation(Point point) {
  return point == Point::deviation || point == Point::final_deviation || point == Point::embedding_deviation;
}

std::vector<Known> known_places(const Model& model, EditKind kind) {
  std::vector<Known> known;
  for (const Site& site : model.sites()) {
    switch (kind) {
      case EditKind::zero:
      case EditKind::mean:
      case EditKind::patch:
      case EditKind::noise:
        if (site.point != Point::scores && site.point != Point::weights) known.push_back({name_of(site), site});
        break;
      case EditKind::set:
      case EditKind::add:
      case EditKind::scale:
      case EditKind::forbid:
      case EditKind::lock:
      case EditKind::evict:
        if (site.point == Point::scores) known.push_back({without_point(site), site});
        break;
      case EditKind::window:
        if (site.point == Point::scores && site.part == Part::self) known.push_back({without_point(site), site});
        break;
      case EditKind::cut:
        if (site.point == Point::projected) known.push_back({without_point(site), site});
        if (site.point == Point::output) known.push_back({without_point(site), site});
        break;
      case EditKind::freeze:
        if (is_deviation(site.point)) known.push_back({name_of(site), site});
        break;
    }
  }
  return known;
}

const char* what_is_named(EditKind kind) {
  switch (kind) {
    case EditKind::zero:
    case EditKind::mean:
    case EditKind::patch:
    case EditKind::noise:
      return "site of rows";
    case EditKind::window:
      return "self-attention";
    case EditKind::cut:
      return "attention, feed-forward layer or block";
    case EditKind::freeze:
      return "norm";
    default:
      return "attention";
  }
}

std::string layers_of(const Model& model) {
  std::string text;
  const auto add = [&](const char* name, const std::optional<StackConfig>& stack) {
    if (stack) text += join(text.empty() ? "" : ", ", name, " layers 0 to ", stack->layers - 1);
  };
  add("encoder", model.config().encoder);
  add("decoder", model.config().decoder);
  return text;
}

[[noreturn]] void refuse_place(const Model& model, const Edit& edit, const std::vector<Known>& known) {
  std::vector<std::string> names;
  for (const Known& each : known) names.push_back(each.name);
  const std::string near = nearest_three(edit.at, names);
  for (const Site& site : model.sites())
    if ((site.point == Point::scores || site.point == Point::weights) && fits(edit.at, name_of(site), false))
      throw Error(
          ErrorKind::argument, edit_called(edit),
          join("'", edit.at.substr(0, 100), "' holds ", name_of(site.point), " between queries and keys, not rows"),
          join("set, add, scale, forbid and lock change them, at '", without_point(site), "'"));
  throw Error(
      ErrorKind::argument, edit_called(edit),
      join("there is no ", what_is_named(edit.kind), " '", edit.at.substr(0, 100), "'"),
      join(near.empty() ? "the model has none" : join("the nearest are ", near), "; the model has ", layers_of(model)));
}

void check_heads(const TransformerConfig& config, const Edit& edit, const Site& site, Point counted) {
  if (edit.heads.empty()) return;
  const std::int64_t heads = heads_at(config, counted);
  if (heads == 0)
    throw Error(ErrorKind::argument, edit_called(edit), join("heads are named, but ", name_of(site), " has none"),
                "heads are at query, key, value, rotated_query, rotated_key and head_output, and in attentions");
  for (const std::int64_t head : edit.heads)
    if (head >= heads)
      throw Error(ErrorKind::argument, edit_called(edit), join("there is no head ", head, " at ", name_of(site)),
                  join(heads == config.heads ? "heads" : "key heads", " run from 0 to ", heads - 1));
}

void place_cut(const Model& model, const Edit& edit, std::size_t index, const Site& site,
               std::vector<PlacedEdit>& placed) {
  if (site.point == Point::output || site.part == Part::feed_forward) {
    if (!edit.heads.empty() || !edit.keys.empty())
      throw Error(ErrorKind::argument, edit_called(edit),
                  join(edit.heads.empty() ? "keys" : "heads", " are named, but ", edit.at, " is no attention"),
                  "heads and edges are cut from an attention, such as decoder.0.self");
    placed.push_back({index, site, site.point == Point::output ? Action::skip : Action::zero, ScoreEdit::any_distance});
    return;
  }
  Site inner = site;
  inner.point = !edit.keys.empty() ? Point::scores : !edit.heads.empty() ? Point::head_output : Point::projected;
  check_heads(model.config(), edit, inner, Point::head_output);
  placed.push_back({index, inner, edit.keys.empty() ? Action::zero : Action::forbid, ScoreEdit::any_distance});
}

void place_edit(const Model& model, const Edit& edit, std::size_t index, std::vector<PlacedEdit>& placed) {
  const std::vector<Known> known = known_places(model, edit.kind);
  std::string_view at = edit.at;
  if (known.empty()) refuse_place(model, edit, known);
  if (at.ends_with(".scores") && edit.kind >= EditKind::set && edit.kind <= EditKind::window)
    at.remove_suffix(std::string_view(".scores").size());
  const std::size_t before = placed.size();
  for (const Known& each : known) {
    if (!fits(at, each.name, edit.kind == EditKind::freeze)) continue;
    const Site& site = each.site;
    const auto add = [&](Action action, std::int64_t min_distance = ScoreEdit::any_distance) {
      check_heads(model.config(), edit, site, edits_scores(action) ? Point::head_output : site.point);
      placed.push_back({index, site, action, min_distance});
    };
    switch (edit.kind) {
      case EditKind::zero:
        if (is_deviation(site.point))
          throw Error(ErrorKind::argument, edit_called(edit), join(name_of(site), " cannot be 0: a norm divides by it"),
                      "patch or freeze it");
        add(Action::zero);
        break;
      case EditKind::mean:
        add(Action::mean);
        break;
      case EditKind::patch:
        add(Action::patch);
        break;
      case EditKind::noise:
        add(Action::noise);
        break;
      case EditKind::set:
        add(Action::set);
        break;
      case EditKind::add:
        add(Action::add);
        break;
      case EditKind::scale:
        add(Action::scale);
        break;
      case EditKind::lock:
        add(Action::lock);
        break;
      case EditKind::forbid:
      case EditKind::evict:
        add(Action::forbid);
        break;
      case EditKind::window:
        add(Action::forbid, edit.size);
        break;
      case EditKind::freeze:
        add(Action::freeze);
        break;
      case EditKind::cut:
        place_cut(model, edit, index, site, placed);
        break;
    }
  }
  if (placed.size() == before) refuse_place(model, edit, known);
}

// ---- Contradictions -------------------------------------------------------------------------------------------------

bool lists_meet(const std::vector<std::int64_t>& a, const std::vector<std::int64_t>& b) {
  if (a.empty() || b.empty()) return true;
  return std::any_of(a.begin(), a.end(), [&](std::int64_t number) { return in_list(b, number); });
}
bool list_covers(const std::vector<std::int64_t>& a, const std::vector<std::int64_t>& b) {
  if (a.empty()) return true;
  return !b.empty() && std::all_of(b.begin(), b.end(), [&](std::int64_t number) { return in_list(a, number); });
}

using Ranges = std::vector<PositionRange>;

bool ranges_meet(const Ranges& a, const Ranges& b) {
  if (a.empty() || b.empty()) return true;
  // Both in order, side by side: of two ranges that do not meet, the one that ends first meets nothing behind the other.
  const auto in_order = [](Ranges ranges) {
    std::sort(ranges.begin(), ranges.end(),
              [](const PositionRange& x, const PositionRange& y) { return x.begin < y.begin; });
    return ranges;
  };
  const Ranges first = in_order(a), second = in_order(b);
  for (std::size_t i = 0, j = 0; i < first.size() && j < second.size();) {
    if (first[i].begin <= second[j].last() && second[j].begin <= first[i].last()) return true;
    if (first[i].last() < second[j].last()) ++i;
    else ++j;
  }
  return false;
}
bool ranges_cover(const Ranges& a, const Ranges& b) {
  if (a.empty()) return true;
  if (b.empty())
    return std::any_of(a.begin(), a.end(),
                       [](const PositionRange& x) { return x.begin == 0 && x.end == PositionRange::open_end; });
  // Ranges of one list do not overlap, so going from piece to piece in order covers what can be covered.
  Ranges sorted = a;
  std::sort(sorted.begin(), sorted.end(),
            [](const PositionRange& x, const PositionRange& y) { return x.begin < y.begin; });
  return std::all_of(b.begin(), b.end(), [&](const PositionRange& y) {
    std::int64_t next = y.begin;
    auto x =
        std::partition_point(sorted.begin(), sorted.end(), [&](const PositionRange& one) { return one.last() < next; });
    for (; x != sorted.end() && x->holds(next); ++x) {
      if (x->last() >= y.last()) return true;
      next = x->last() + 1;
    }
    return false;
  });
}

std::int64_t last_of(const Ranges& ranges) {
  std::int64_t last = ranges.empty() ? PositionRange::open_end : 0;
  for (const PositionRange& range : ranges) last = std::max(last, range.last());
  return last;
}
std::int64_t first_of(const Ranges& ranges) {
  std::int64_t first = ranges.empty() ? 0 : PositionRange::open_end;
  for (const PositionRange& range : ranges) first = std::min(first, range.begin);
  return first;
}

// Is some score of `edit` so far back that an edit with this least distance reaches it?
bool reaches(std::int64_t min_distance, const Edit& edit) {
  return min_distance == ScoreEdit::any_distance || last_of(edit.positions) - first_of(edit.keys) >= min_distance;
}

bool meet(const PlacedEdit& a, const Edit& one, const PlacedEdit& b, const Edit& other) {
  if (!lists_meet(one.items, other.items) || !lists_meet(one.heads, other.heads) ||
      !ranges_meet(one.positions, other.positions))
    return false;
  if (!edits_scores(a.action)) return true;
  return ranges_meet(one.keys, other.keys) && reaches(a.min_distance, other) && reaches(b.min_distance, one);
}

// Does `one` reach everything `other` does?
bool covers(const PlacedEdit& a, const Edit& one, const Edit& other) {
  return list_covers(one.items, other.items) && list_covers(one.heads, other.heads) &&
         ranges_cover(one.positions, other.positions) &&
         (!edits_scores(a.action) || (ranges_cover(one.keys, other.keys) && a.min_distance == ScoreEdit::any_distance));
}

bool fixes(Action action) { return action != Action::noise && action != Action::add && action != Action::scale; }
bool removes(Action action) { return action == Action::zero || action == Action::skip || action == Action::forbid; }

bool same_effect(Action a, const Edit& one, Action b, const Edit& other) {
  const bool forbids_a = a == Action::forbid || (a == Action::lock && one.value == 0);
  const bool forbids_b = b == Action::forbid || (b == Action::lock && other.value == 0);
  if (forbids_a && forbids_b) return true;
  if (a != b) return false;
  switch (a) {
    case Action::mean:
      return one.texts == other.texts && one.model == other.model && one.by_position == other.by_position;
    case Action::patch:
      return one.texts == other.texts && one.model == other.model && one.from_positions == other.from_positions &&
             (one.from_positions.empty() || one.positions == other.positions);
    case Action::set:
    case Action::lock:
      return one.value == other.value;
    default:
      return true;
  }
}

// Of two placed edits of one site, the first given first.
bool contradict(const PlacedEdit& a, const Edit& one, const PlacedEdit& b, const Edit& other) {
  if (edits_scores(a.action) != edits_scores(b.action) || !meet(a, one, b, other)) return false;
  if (fixes(a.action) && fixes(b.action)) return !same_effect(a.action, one, b.action, other);
  // A change of what the other gives another value anyway.
  if (!fixes(a.action) && fixes(b.action)) return covers(b, other, one);
  if (fixes(a.action) && !fixes(b.action))
    return (a.action == Action::forbid || a.action == Action::lock) && covers(a, one, other);
  return false;
}

// Does the first remove all of what the second changes within?
bool hides(const Model& model, const PlacedEdit& a, const Edit& one, const PlacedEdit& b) {
  if (one.kind != EditKind::cut || !one.items.empty() || !one.positions.empty() || removes(b.action)) return false;
  const Site &cut = a.site, &inner = b.site;
  if (cut.stack != inner.stack || cut.layer != inner.layer) return false;
  if (a.action == Action::skip) return inner.part != Part::block;
  if (cut.point != Point::projected || inner.part != cut.part) return false;
  if (inner.point == Point::projected || inner.point == Point::added) return false;
  return inner.point != Point::deviation || model.config().norm_place == NormPlace::pre;
}

}  // namespace

std::int64_t heads_at(const TransformerConfig& config, Point point) {
  switch (point) {
    case Point::query:
    case Point::rotated_query:
    case Point::head_output:
      return config.heads;
    case Point::key:
    case Point::rotated_key:
    case Point::value:
      return config.key_head_count();
    default:
      return 0;
  }
}

std::vector<PlacedEdit> place_edits(const Model& model, const Edits& edits) {
  std::vector<PlacedEdit> placed;
  for (std::size_t index = 0; index < edits.list().size(); ++index)
    place_edit(model, edits.list()[index], index, placed);
  return placed;
}

void refuse_contradictions(const Model& model, const Edits& edits, const std::vector<PlacedEdit>& placed) {
  // Pairs of edits by index, each with a place; only edits of one site, or of something that is cut whole, can meet.
  std::map<std::pair<std::size_t, std::size_t>, std::string> pairs;
  const auto add = [&](const PlacedEdit& a, const PlacedEdit& b, const std::string& place) {
    if (a.edit != b.edit) pairs.emplace(std::minmax(a.edit, b.edit), place);
  };
  const auto edit_of = [&](const PlacedEdit& one) -> const Edit& { return edits.list()[one.edit]; };
  std::map<Site, std::vector<const PlacedEdit*>> sites;
  for (const PlacedEdit& one : placed) sites[one.site].push_back(&one);
  for (const auto& [site, here] : sites)
    for (std::size_t j = 0; j < here.size(); ++j)
      for (std::size_t i = 0; i < j; ++i)
        if (contradict(*here[i], edit_of(*here[i]), *here[j], edit_of(*here[j])))
          add(*here[i], *here[j], name_of(site));
  for (const PlacedEdit& cut : placed) {
    if (edit_of(cut).kind != EditKind::cut || (cut.action != Action::skip && cut.site.point != Point::projected))
      continue;
    for (const PlacedEdit& inner : placed)
      if (hides(model, cut, edit_of(cut), inner)) add(cut, inner, edit_of(cut).at);
  }
  if (pairs.empty()) return;
  constexpr std::size_t most_named = 8;
  std::string text;
  std::size_t named = 0;
  for (const auto& [pair, place] : pairs) {
    if (named++ == most_named) break;
    const Edit &one = edits.list()[pair.first], &other = edits.list()[pair.second];
    text += join(text.empty() ? "" : "; ", "'", one.name, "' (", name_of(one.kind), ") and '", other.name, "' (",
                 name_of(other.kind), ") at ", place);
  }
  if (pairs.size() > most_named) text += join("; and ", pairs.size() - most_named, " more pairs");
  const auto [first, second] = pairs.begin()->first;
  throw ContradictionError(join("contradict each other: ", text), "remove one of each pair, or narrow it down", first,
                           second);
}

}  // namespace attend
