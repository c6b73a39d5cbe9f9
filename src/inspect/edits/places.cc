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

void place_edit(const Model& model, const Edit& edit, std::size_t index, const std::vector<Known>& known,
                std::vector<PlacedEdit>& placed) {
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
  std::map<EditKind, std::vector<Known>> known;
  for (std::size_t index = 0; index < edits.list().size(); ++index) {
    const Edit& edit = edits.list()[index];
    auto of_kind = known.find(edit.kind);
    if (of_kind == known.end()) of_kind = known.emplace(edit.kind, known_places(model, edit.kind)).first;
    place_edit(model, edit, index, of_kind->second, placed);
  }
  return placed;
}

}  // namespace attend
