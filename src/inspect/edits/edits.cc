#include "attend/edits.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <utility>

#include "attend/error.h"
#include "core/names.h"
#include "inspect/edits/places.h"

namespace attend {
namespace {

struct Kind {
  EditKind kind;
  const char* name;
  std::vector<std::string> fields;  // beside name, kind and at
};

const std::array<Kind, 13>& kinds() {
  static const std::array<Kind, 13> all{{
      {EditKind::zero, "zero", {"items", "heads", "positions"}},
      {EditKind::mean, "mean", {"items", "heads", "positions", "texts", "model", "by_position"}},
      {EditKind::patch, "patch", {"items", "heads", "positions", "texts", "model", "from_positions"}},
      {EditKind::noise, "noise", {"items", "heads", "positions", "value", "seed"}},
      {EditKind::set, "set", {"items", "heads", "positions", "keys", "value"}},
      {EditKind::add, "add", {"items", "heads", "positions", "keys", "value"}},
      {EditKind::scale, "scale", {"items", "heads", "positions", "keys", "value"}},
      {EditKind::forbid, "forbid", {"items", "heads", "positions", "keys"}},
      {EditKind::lock, "lock", {"items", "heads", "positions", "keys", "value"}},
      {EditKind::evict, "evict", {"items", "heads", "positions", "keys"}},
      {EditKind::window, "window", {"items", "heads", "positions", "size"}},
      {EditKind::cut, "cut", {"items", "heads", "positions", "keys"}},
      {EditKind::freeze, "freeze", {"items", "positions"}},
  }};
  return all;
}

std::string shown(const PositionRange& range) {
  if (range.end == 0) return join(range.begin);
  if (range.end == PositionRange::open_end) return join(range.begin, " and on");
  return join(range.begin, " to ", range.end - 1);
}

void check_ranges(const std::vector<PositionRange>& ranges, const char* field, bool may_overlap,
                  const std::string& where) {
  for (std::size_t i = 0; i < ranges.size(); ++i) {
    if (ranges[i].begin < 0 || (ranges[i].end != 0 && ranges[i].end <= ranges[i].begin))
      throw Error(ErrorKind::argument, where,
                  join(field, " holds the range from ", ranges[i].begin, " to ", ranges[i].end),
                  "ranges begin at 0 or later and end (exclusively) after their begin");
  }
  if (may_overlap) return;
  std::vector<PositionRange> sorted = ranges;
  std::sort(sorted.begin(), sorted.end(),
            [](const PositionRange& a, const PositionRange& b) { return a.begin < b.begin; });
  for (std::size_t i = 1; i < sorted.size(); ++i)
    if (sorted[i].begin <= sorted[i - 1].last())
      throw Error(ErrorKind::argument, where, join(field, " names ", sorted[i].begin, " twice"), "name it once");
}

void check_numbers(const std::vector<std::int64_t>& numbers, const char* field, const std::string& where) {
  std::vector<std::int64_t> sorted = numbers;
  std::sort(sorted.begin(), sorted.end());
  if (!sorted.empty() && sorted.front() < 0)
    throw Error(ErrorKind::argument, where, join(field, " holds ", sorted.front()),
                join(field, " count from 0; none count from the end"));
  const auto twice = std::adjacent_find(sorted.begin(), sorted.end());
  if (twice != sorted.end())
    throw Error(ErrorKind::argument, where, join(field, " names ", *twice, " twice"), "name it once");
}

// How many positions ranges hold; -1 without end.
std::int64_t size_of(const std::vector<PositionRange>& ranges) {
  std::int64_t size = 0;
  for (const PositionRange& range : ranges) {
    if (range.end == PositionRange::open_end) return -1;
    size += range.last() - range.begin + 1;
  }
  return size;
}

// Names of the fields that hold something.
std::vector<std::string> fields_used(const Edit& edit) {
  const Edit empty;
  std::vector<std::string> used;
  const auto add = [&](const char* name, bool differs) {
    if (differs) used.emplace_back(name);
  };
  add("items", edit.items != empty.items);
  add("heads", edit.heads != empty.heads);
  add("positions", edit.positions != empty.positions);
  add("keys", edit.keys != empty.keys);
  add("value", edit.value != empty.value || std::isnan(edit.value));
  add("size", edit.size != empty.size);
  add("seed", edit.seed != empty.seed);
  add("texts", edit.texts != empty.texts);
  add("by_position", edit.by_position != empty.by_position);
  add("model", edit.model != empty.model);
  add("from_positions", edit.from_positions != empty.from_positions);
  return used;
}

std::string in_apostrophes(std::string_view name) { return '\'' + std::string(name.substr(0, 100)) + '\''; }

}  // namespace

const char* name_of(EditKind kind) {
  for (const Kind& each : kinds())
    if (each.kind == kind) return each.name;
  return "unknown";
}

EditKind edit_kind_named(std::string_view name) {
  std::vector<std::string> names;
  for (const Kind& each : kinds()) {
    if (each.name == name) return each.kind;
    names.emplace_back(each.name);
  }
  const std::string near = nearest_name(std::string(name.substr(0, 101)), names);
  throw Error(ErrorKind::argument, "edit kind", join("there is no kind ", in_apostrophes(name)),
              join(near.empty() ? "" : join("did you mean '", near, "'? "), "The kinds are ", listed(names)));
}

const std::vector<std::string>& fields_of(EditKind kind) {
  for (const Kind& each : kinds())
    if (each.kind == kind) return each.fields;
  throw Error(ErrorKind::argument, "edit", "the kind is none of EditKind");
}

std::string edit_called(const Edit& edit) { return join("edit ", in_apostrophes(edit.name)); }

void check_fields(const Edit& edit, const std::string& where) {
  const std::vector<std::string>& has = fields_of(edit.kind);
  const auto refuse = [&](const std::string& what, const std::string& advice = {}) {
    throw Error(ErrorKind::argument, where, what, advice);
  };
  if (edit.name.empty() || edit.name.size() > 100 || std::any_of(edit.name.begin(), edit.name.end(), [](char c) {
        return static_cast<unsigned char>(c) < 32 || c == 127;
      }))
    refuse(join("the name has ", edit.name.size(), " bytes or holds a control character"),
           "names are text of 1 to 100 bytes");
  if (edit.at.empty()) refuse("no place is given", "set `at`, for example to decoder.0.self");
  for (const std::string& field : fields_used(edit))
    if (std::find(has.begin(), has.end(), field) == has.end())
      refuse(join(name_of(edit.kind), " has no ", field), join("it has ", listed(has)));
  check_numbers(edit.items, "items", where);
  check_numbers(edit.heads, "heads", where);
  check_ranges(edit.positions, "positions", false, where);
  check_ranges(edit.keys, "keys", false, where);
  check_ranges(edit.from_positions, "from_positions", true, where);
  if (!std::isfinite(edit.value)) refuse(join("value is ", edit.value), "give a finite number");
  switch (edit.kind) {
    case EditKind::lock:
      if (edit.value < 0 || edit.value > 1) refuse(join("value is ", edit.value), "a weight lies between 0 and 1");
      break;
    case EditKind::noise:
      if (edit.value <= 0)
        refuse(join("value is ", edit.value), "it is the standard deviation of the noise, more than 0");
      break;
    case EditKind::evict:
      if (edit.keys.empty()) refuse("no keys are given", "name those that leave the cache");
      break;
    case EditKind::window:
      if (edit.size < 1) refuse(join("size is ", edit.size), "it is the number of keys a query still reads, 1 or more");
      break;
    case EditKind::mean:
      if (edit.texts.empty()) refuse("no reference texts are given", "the mean is taken over their rows");
      break;
    case EditKind::patch:
      if (edit.texts.size() > 1) refuse(join(edit.texts.size(), " texts are given"), "rows are patched from one text");
      if (edit.texts.empty() && edit.model.empty() && edit.from_positions.empty())
        refuse("neither a text nor a model nor positions to patch from are given",
               "without all of them every row would replace itself");
      if (!edit.from_positions.empty() &&
          (size_of(edit.positions) < 0 || size_of(edit.from_positions) != size_of(edit.positions) ||
           edit.positions.empty()))
        refuse("from_positions does not name one position for each of positions",
               "both need the same number, without open ends");
      break;
    default:
      break;
  }
}

bool in_list(const std::vector<std::int64_t>& list, std::int64_t number) {
  return list.empty() || std::find(list.begin(), list.end(), number) != list.end();
}

bool in_ranges(const std::vector<PositionRange>& ranges, std::int64_t position) {
  return ranges.empty() ||
         std::any_of(ranges.begin(), ranges.end(), [&](const PositionRange& range) { return range.holds(position); });
}

std::int64_t source_position(const Edit& edit, std::int64_t position) {
  if (edit.from_positions.empty()) return position;
  std::int64_t index = 0;
  for (const PositionRange& range : edit.positions) {
    if (range.holds(position)) {
      index += position - range.begin;
      break;
    }
    index += range.last() - range.begin + 1;
  }
  for (const PositionRange& range : edit.from_positions) {
    const std::int64_t size = range.last() - range.begin + 1;
    if (index < size) return range.begin + index;
    index -= size;
  }
  return position;
}

// ---- Edits ----------------------------------------------------------------------------------------------------------

void Edits::add(Edit edit) {
  check_fields(edit, edit_called(edit));
  if (list_.size() >= most)
    throw Error(ErrorKind::argument, edit_called(edit),
                join("there are ", most, " edits already, as many as a list holds"),
                "one edit may name several heads, positions and keys");
  for (const Edit& each : list_)
    if (each.name == edit.name)
      throw Error(ErrorKind::argument, edit_called(edit), "there is an edit of this name already",
                  "remove it first, or take another name");
  list_.push_back(std::move(edit));
}

const Edit& Edits::edit(std::string_view name) const {
  std::vector<std::string> names;
  for (const Edit& each : list_) {
    if (each.name == name) return each;
    names.push_back(each.name);
  }
  const std::string near = nearest_name(std::string(name.substr(0, 101)), names);
  throw Error(ErrorKind::argument, "edits", join("there is no edit ", in_apostrophes(name)),
              names.empty()  ? "there is none at all"
              : near.empty() ? join("there are ", listed(names).substr(0, 300))
                             : join("did you mean '", near, "'?"));
}

void Edits::remove(std::string_view name) { list_.erase(list_.begin() + (&edit(name) - list_.data())); }

void Edits::undo() {
  if (list_.empty()) throw Error(ErrorKind::argument, "edits", "there is nothing to undo");
  list_.pop_back();
}

bool Edits::has_positions() const {
  return std::any_of(list_.begin(), list_.end(), [](const Edit& edit) {
    return !edit.positions.empty() || !edit.keys.empty() || !edit.items.empty() || !edit.from_positions.empty();
  });
}

void Edits::check(const Model& model) const { refuse_contradictions(model, *this, place_edits(model, *this)); }

void Edits::check_positions(const Model& model, std::span<const std::int64_t> source_lengths,
                            std::span<const std::int64_t> target_lengths) const {
  const auto count = static_cast<std::int64_t>(std::max(source_lengths.size(), target_lengths.size()));
  // An edit may stand at many sites: its lists are gone through once for those that count the same rows and keys.
  std::size_t last = list_.size();
  std::array<bool, 8> seen{};
  for (const PlacedEdit& placed : place_edits(model, *this)) {
    const Edit& edit = list_[placed.edit];
    const Site& site = placed.site;
    const bool encoder = site.stack == StackKind::encoder;
    // Keys and values of cross-attention are rows of the source.
    const bool of_source =
        encoder || (site.part == Part::cross && (site.point == Point::key || site.point == Point::value));
    const bool keys_of_source = encoder || site.part == Part::cross;
    // A classifier's logits are one row an item.
    const bool has_rows = site.point != Point::logits || model.config().classes == 0;
    if (placed.edit != last) seen = {};
    last = placed.edit;
    if (std::exchange(seen[of_source | keys_of_source << 1 | has_rows << 2], true)) continue;
    const auto refuse = [&](const std::string& what, const std::string& advice) {
      throw Error(ErrorKind::argument, edit_called(edit), what, advice);
    };
    for (const std::int64_t item : edit.items)
      if (item >= count && count > 0) refuse(join("there is no item ", item), join("items run from 0 to ", count - 1));
    const auto check = [&](const std::vector<PositionRange>& ranges, std::span<const std::int64_t> lengths,
                           const char* what) {
      std::int64_t longest = 0;
      if (edit.items.empty())
        for (const std::int64_t length : lengths) longest = std::max(longest, length);
      for (const std::int64_t item : edit.items)
        if (item < static_cast<std::int64_t>(lengths.size()))
          longest = std::max(longest, lengths[static_cast<std::size_t>(item)]);
      for (const PositionRange& range : ranges) {
        const std::int64_t end = range.end == PositionRange::open_end ? range.begin : range.last();
        if (!lengths.empty() && end >= longest)
          refuse(join(what, " ", shown(range), " is beyond the text"),
                 join("at ", name_of(site), " positions run from 0 to ", longest - 1));
      }
    };
    if (has_rows) check(edit.positions, of_source ? source_lengths : target_lengths, "position");
    if (edits_scores(placed.action)) check(edit.keys, keys_of_source ? source_lengths : target_lengths, "key");
  }
}

// ---- Reports --------------------------------------------------------------------------------------------------------

std::vector<std::string> EditReport::untouched() const {
  std::vector<std::string> names;
  for (const Touched& each : edits)
    if (each.count == 0) names.push_back(each.name);
  return names;
}

void EditReport::require_touched() const {
  const std::vector<std::string> names = untouched();
  if (names.empty()) return;
  std::string text;
  for (const std::string& name : names) text += (text.empty() ? "" : ", ") + in_apostrophes(name);
  throw Error(ErrorKind::argument, "edits",
              join(text, names.size() == 1 ? " touched nothing" : " touched nothing each"),
              "the mask hides what they name, or no row of the run is there; correct or remove them");
}

}  // namespace attend
