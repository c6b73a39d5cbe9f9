// Which edits contradict each other. A file may hold thousands of edits that name thousands of positions each, so no list
// is held against another: along items, heads, positions and keys one pass over the ends of all ranges in order, with the
// edits that are open there as bits, tells for every pair whether they meet and whether one covers the other.
#include <algorithm>
#include <array>
#include <bit>
#include <map>
#include <span>
#include <tuple>
#include <utility>

#include "attend/error.h"
#include "inspect/edits/places.h"

namespace attend {
namespace {

using Ranges = std::vector<PositionRange>;

// A set of edits, by index.
class EditSet {
 public:
  explicit EditSet(std::size_t edits) : words_((edits + 63) / 64) {}
  explicit EditSet(std::span<const std::uint64_t> words) : words_(words.begin(), words.end()) {}

  void put(std::size_t edit, bool in) {
    const std::uint64_t bit = std::uint64_t{1} << edit % 64;
    words_[edit / 64] = in ? words_[edit / 64] | bit : words_[edit / 64] & ~bit;
  }
  bool has(std::size_t edit) const { return (words_[edit / 64] >> edit % 64 & 1) != 0; }
  std::span<std::uint64_t> words() { return words_; }
  std::span<const std::uint64_t> words() const { return words_; }

 private:
  std::vector<std::uint64_t> words_;
};

// A set of edits for each edit.
using Relation = std::vector<EditSet>;

template <typename Action>
void for_each(const EditSet& set, const Action& action) {
  for (std::size_t word = 0; word < set.words().size(); ++word)
    for (std::uint64_t bits = set.words()[word]; bits != 0; bits &= bits - 1)
      action(word * 64 + static_cast<std::size_t>(std::countr_zero(bits)));
}

// Those of `a` that are in `b` and not in `c`.
EditSet in_and_not_in(const EditSet& a, const EditSet& b, const EditSet& c) {
  EditSet result(a.words());
  for (std::size_t word = 0; word < result.words().size(); ++word)
    result.words()[word] &= b.words()[word] & ~c.words()[word];
  return result;
}

// ---- What edits reach -----------------------------------------------------------------------------------------------

// One of the four things an edit chooses by numbers from 0.
struct Dimension {
  explicit Dimension(std::size_t edits) : met(edits, EditSet(edits)) {}

  bool meet(std::size_t a, std::size_t b) const { return met[a].has(b) || met[b].has(a); }

  Relation met;  // those that are open where a range of this one begins
};

struct Reach {
  explicit Reach(std::size_t edits)
      : dimensions(4, Dimension(edits)), outside(edits, EditSet(edits)), beyond(edits, EditSet(edits)) {}

  bool meet(std::size_t a, std::size_t b) const {
    return std::all_of(dimensions.begin(), dimensions.end(), [&](const Dimension& one) { return one.meet(a, b); });
  }
  // Does `a` reach everything that `b` does?
  bool covers(std::size_t a, std::size_t b) const { return !outside[b].has(a) && !beyond[a].has(b); }

  std::vector<Dimension> dimensions;
  Relation outside;  // those that are not open where a range of this one begins: it is outside of them
  Relation beyond;   // those that are open where a range of this one ends: they go beyond it
};

struct End {
  End(std::int64_t at, std::uint32_t of_edit, bool begins)
      : place(static_cast<std::uint64_t>(at) * 2 + begins), edit(of_edit) {}

  std::uint64_t at() const { return place / 2; }
  bool begins() const { return place % 2 != 0; }
  bool operator<(const End& other) const { return place < other.place; }

  std::uint64_t place;  // of two at one number the one that ends comes first
  std::uint32_t edit;
};

void add_ends(const PositionRange& range, std::uint32_t edit, std::vector<End>& ends) {
  ends.push_back({range.begin, edit, true});
  if (range.last() < PositionRange::open_end - 1) ends.push_back({range.last() + 1, edit, false});
}
void add_ends(std::int64_t number, std::uint32_t edit, std::vector<End>& ends) {
  add_ends(PositionRange{number}, edit, ends);
}

// In order, where those of each edit lie side by side from `first` on: most lists are in order as they come.
void sort_ends(std::vector<End>& ends, std::vector<std::size_t> first) {
  const auto at = [&](std::size_t i) { return ends.begin() + static_cast<std::ptrdiff_t>(i); };
  first.push_back(ends.size());
  for (std::size_t i = 0; i + 1 < first.size(); ++i)
    if (!std::is_sorted(at(first[i]), at(first[i + 1]))) std::sort(at(first[i]), at(first[i + 1]));
  while (first.size() > 2) {
    std::vector<std::size_t> merged;
    for (std::size_t i = 0; i < first.size(); i += 2) {
      merged.push_back(first[i]);
      if (i + 2 < first.size()) std::inplace_merge(at(first[i]), at(first[i + 1]), at(first[i + 2]));
      else if (i + 2 == first.size()) merged.push_back(first[i + 1]);
    }
    first = std::move(merged);
  }
}

// Of one edit ranges may touch, but not overlap: check_fields().
void sweep(const std::vector<End>& ends, std::size_t edits, Dimension& dimension, Reach& reach) {
  EditSet open(edits);
  for (std::size_t first = 0, next = 0; first < ends.size(); first = next) {
    // All that ends here, then all that begins, before any is compared: what goes on in the next range never closed.
    for (; next < ends.size() && ends[next].at() == ends[first].at(); ++next)
      open.put(ends[next].edit, ends[next].begins());
    for (std::size_t i = first; i < next; ++i) {
      const std::size_t edit = ends[i].edit;
      const std::span<const std::uint64_t> now = std::as_const(open).words();
      if (ends[i].begins()) {
        const std::span<std::uint64_t> met = dimension.met[edit].words(), outside = reach.outside[edit].words();
        for (std::size_t word = 0; word < now.size(); ++word) met[word] |= now[word], outside[word] |= ~now[word];
      } else if (!open.has(edit)) {
        const std::span<std::uint64_t> beyond = reach.beyond[edit].words();
        for (std::size_t word = 0; word < now.size(); ++word) beyond[word] |= now[word];
      }
    }
  }
}

Reach reach_of(const std::vector<Edit>& edits) {
  Reach reach(edits.size());
  const auto along = [&](std::size_t dimension, auto Edit::*field) {
    std::vector<End> ends;
    std::vector<std::size_t> first;
    for (std::size_t edit = 0; edit < edits.size(); ++edit) {
      first.push_back(ends.size());
      const auto& list = edits[edit].*field;
      if (list.empty()) ends.push_back({0, static_cast<std::uint32_t>(edit), true});  // all
      for (const auto& one : list) add_ends(one, static_cast<std::uint32_t>(edit), ends);
    }
    sort_ends(ends, std::move(first));
    sweep(ends, edits.size(), reach.dimensions[dimension], reach);
  };
  along(0, &Edit::items);
  along(1, &Edit::heads);
  along(2, &Edit::positions);
  along(3, &Edit::keys);
  return reach;
}

// ---- What edits do --------------------------------------------------------------------------------------------------

bool fixes(Action action) { return action != Action::noise && action != Action::add && action != Action::scale; }
bool removes(Action action) { return action == Action::zero || action == Action::skip || action == Action::forbid; }

// Two edits that fix the same may do so in the same way.
using Effect = std::tuple<Action, float, bool, std::string, std::vector<EditText>, Ranges, Ranges>;

Effect effect_of(Action action, const Edit& edit) {
  switch (action) {
    case Action::mean:
      return {action, 0.0f, edit.by_position, edit.model, edit.texts, {}, {}};
    case Action::patch:
      return {action,
              0.0f,
              false,
              edit.model,
              edit.texts,
              edit.from_positions,
              edit.from_positions.empty() ? Ranges{} : edit.positions};
    case Action::lock:
      if (edit.value == 0) return {Action::forbid, 0.0f, false, {}, {}, {}, {}};
      return {action, edit.value, false, {}, {}, {}, {}};
    case Action::set:
      return {action, edit.value, false, {}, {}, {}, {}};
    default:
      return {action, 0.0f, false, {}, {}, {}, {}};
  }
}

// What an edit does, the same wherever it is placed.
struct Acting {
  Action action = Action::zero;
  std::int64_t min_distance = ScoreEdit::any_distance;
  std::size_t effect = 0;
  std::int64_t last_position = 0, first_key = 0;
};

std::vector<Acting> acting_of(const std::vector<Edit>& edits, const std::vector<PlacedEdit>& placed) {
  std::vector<Acting> all(edits.size());
  for (const PlacedEdit& one : placed) {
    all[one.edit].action = one.action;
    all[one.edit].min_distance = one.min_distance;
  }
  std::map<Effect, std::size_t> effects;
  for (std::size_t i = 0; i < edits.size(); ++i) {
    const Edit& edit = edits[i];
    Acting& acting = all[i];
    acting.effect = effects.emplace(effect_of(acting.action, edit), effects.size()).first->second;
    acting.last_position = edit.positions.empty() ? PositionRange::open_end : 0;
    for (const PositionRange& range : edit.positions)
      acting.last_position = std::max(acting.last_position, range.last());
    acting.first_key = edit.keys.empty() ? 0 : PositionRange::open_end;
    for (const PositionRange& range : edit.keys) acting.first_key = std::min(acting.first_key, range.begin);
  }
  return all;
}

// Is some score of `edit` so far back that an edit with this least distance reaches it?
bool reaches(std::int64_t min_distance, const Acting& edit) {
  return min_distance == ScoreEdit::any_distance || edit.last_position - edit.first_key >= min_distance;
}

// Of two edits that have a site in common, the first given first.
bool contradict(const std::vector<Acting>& all, const Reach& reach, std::size_t first, std::size_t second) {
  const Acting &a = all[first], &b = all[second];
  if (!reaches(a.min_distance, b) || !reaches(b.min_distance, a)) return false;
  if (fixes(a.action) && fixes(b.action)) return a.effect != b.effect;
  // A change of what the other gives another value anyway.
  const auto covers = [&](std::size_t one, std::size_t other) {
    return all[one].min_distance == ScoreEdit::any_distance && reach.covers(one, other);
  };
  if (!fixes(a.action) && fixes(b.action)) return covers(second, first);
  if (fixes(a.action) && !fixes(b.action))
    return (a.action == Action::forbid || a.action == Action::lock) && covers(first, second);
  return false;
}

// Is all that happens at `inner` gone where `cut`, a whole block or the output of a part, is removed?
bool hides(const Model& model, const Site& cut, const Site& inner) {
  if (cut.stack != inner.stack || cut.layer != inner.layer) return false;
  if (cut.point == Point::output) return inner.part != Part::block;
  if (cut.point != Point::projected || inner.part != cut.part) return false;
  if (inner.point == Point::projected || inner.point == Point::added) return false;
  return inner.point != Point::deviation || model.config().norm_place == NormPlace::pre;
}

// ---- The pairs ------------------------------------------------------------------------------------------------------

// Each pair once, with the first place where it was found; names are kept of the first few.
class Pairs {
 public:
  explicit Pairs(std::size_t edits) : found_(edits, EditSet(edits)) {}

  const EditSet& found(std::size_t edit) const { return found_[edit]; }
  void add(std::size_t a, std::size_t b, const std::string& place) {
    if (a == b || found_[a].has(b)) return;
    found_[a].put(b, true);
    found_[b].put(a, true);
    ++count_;
    named_.emplace(std::minmax(a, b), place);
    if (named_.size() > most_named) named_.erase(std::prev(named_.end()));
  }

  // ContradictionError, if there are any.
  void refuse(const std::vector<Edit>& edits) const {
    if (count_ == 0) return;
    std::string text;
    for (const auto& [pair, place] : named_) {
      const Edit &one = edits[pair.first], &other = edits[pair.second];
      text += join(text.empty() ? "" : "; ", "'", one.name, "' (", name_of(one.kind), ") and '", other.name, "' (",
                   name_of(other.kind), ") at ", place);
    }
    if (count_ > named_.size()) text += join("; and ", count_ - named_.size(), " more pairs");
    const auto [first, second] = named_.begin()->first;
    throw ContradictionError(join("contradict each other: ", text), "remove one of each pair, or narrow it down", first,
                             second);
  }

 private:
  static constexpr std::size_t most_named = 8;

  Relation found_;
  std::size_t count_ = 0;
  std::map<std::pair<std::size_t, std::size_t>, std::string> named_;
};

using Sites = std::map<Site, EditSet>;

void put(Sites& sites, const PlacedEdit& one, std::size_t edits) {
  sites.try_emplace(one.site, EditSet(edits)).first->second.put(one.edit, true);
}

}  // namespace

void refuse_contradictions(const Model& model, const Edits& edits, const std::vector<PlacedEdit>& placed) {
  const std::vector<Edit>& list = edits.list();
  const std::size_t count = list.size();
  const std::vector<Acting> acting = acting_of(list, placed);
  const Reach reach = reach_of(list);
  Relation against(count, EditSet(count));
  for (std::size_t second = 0; second < count; ++second)
    for (std::size_t first = 0; first < second; ++first)
      if (reach.meet(first, second) && contradict(acting, reach, first, second)) against[first].put(second, true);

  // Only edits of one site, or of something that is cut whole, can be against each other.
  Sites sites, cuts, changes;
  for (const PlacedEdit& one : placed) {
    const Edit& edit = list[one.edit];
    put(sites, one, count);
    if (edit.kind == EditKind::cut && edit.items.empty() && edit.positions.empty() &&
        (one.action == Action::skip || one.site.point == Point::projected))
      put(cuts, one, count);
    if (!removes(one.action)) put(changes, one, count);
  }
  Pairs pairs(count);
  for (const auto& [site, here] : sites)
    for_each(here, [&, &place = site, &all = here](std::size_t first) {
      for_each(in_and_not_in(all, against[first], pairs.found(first)),
               [&](std::size_t second) { pairs.add(first, second, name_of(place)); });
    });
  for (const auto& [cut, removed_by] : cuts)
    for (const auto& [inner, changed_by] : changes) {
      if (!hides(model, cut, inner)) continue;
      for_each(changed_by, [&, &by = removed_by](std::size_t change) {
        for_each(in_and_not_in(by, by, pairs.found(change)),
                 [&](std::size_t cutting) { pairs.add(cutting, change, list[cutting].at); });
      });
    }
  pairs.refuse(list);
}

}  // namespace attend
