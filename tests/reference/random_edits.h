// Random lists of edits for a model and a text, for property tests: every kind, every place, single rows, ranges and all.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "attend/edits.h"
#include "attend/error.h"
#include "core/random.h"

namespace attend::reference {

class RandomEdits {
 public:
  RandomEdits(const Model& model, const EditInput& input, std::uint64_t seed)
      : model_(model), input_(input), random_(seed) {}

  // `count` edits that do not contradict each other; kinds in turn from `first` on, so that all come up.
  Edits draw(int count, int first) {
    Edits edits;
    for (int tries = 0; static_cast<int>(edits.list().size()) < count && tries < 50; ++tries) {
      Edits more = edits;
      try {
        more.add(one(kinds[static_cast<std::size_t>(first + tries) % std::size(kinds)], join("edit ", tries)));
        more.check(model_);
        more.check_positions(model_, lengths(input_.source), lengths(input_.target));
      } catch (const Error&) {
        continue;  // no such place in this model, or beyond the text, or a contradiction: draw again
      }
      edits = more;
    }
    return edits;
  }

  static constexpr EditKind kinds[] = {EditKind::zero,  EditKind::set,    EditKind::mean,  EditKind::lock,
                                       EditKind::patch, EditKind::forbid, EditKind::cut,   EditKind::scale,
                                       EditKind::add,   EditKind::window, EditKind::evict, EditKind::freeze,
                                       EditKind::cut};

 private:
  std::int64_t below(std::int64_t bound) {
    return static_cast<std::int64_t>(random_.below(static_cast<std::uint64_t>(bound)));
  }

  static std::vector<std::int64_t> lengths(const TokenBatch& batch) {
    std::vector<std::int64_t> list;
    for (std::int64_t item = 0; item < batch.items(); ++item) list.push_back(batch.length(item));
    return list;
  }

  std::vector<PositionRange> some_positions(std::int64_t bound) {
    const std::int64_t begin = below(bound);
    switch (below(4)) {
      case 0:
        return {};
      case 1:
        return {{begin, 0}};
      case 2:
        return {{begin, PositionRange::open_end}};
      default:
        return {{begin, begin + 1 + below(2)}};
    }
  }

  std::vector<std::int32_t> some_ids(const std::optional<StackConfig>& stack, std::int64_t length) {
    std::vector<std::int32_t> ids;
    for (std::int64_t i = 0; stack && i < length; ++i)
      ids.push_back(static_cast<std::int32_t>(below(stack->vocabulary)));
    return ids;
  }
  EditText some_text(std::int64_t length) {
    return {some_ids(model_.config().encoder, length), some_ids(model_.config().decoder, length), {}, {}};
  }

  Edit one(EditKind kind, std::string name) {
    std::vector<Site> sites;
    for (const Site& site : model_.sites()) {
      const bool deviation = site.point == Point::deviation || site.point == Point::final_deviation ||
                             site.point == Point::embedding_deviation;
      const bool score = site.point == Point::scores || site.point == Point::weights;
      bool fits = !score && !deviation;
      if (kind == EditKind::patch) fits = !score;
      if (kind == EditKind::freeze) fits = deviation;
      if (kind == EditKind::cut) fits = site.point == Point::projected || site.point == Point::output;
      if (kind == EditKind::window) fits = site.point == Point::scores && site.part == Part::self;
      if (kind == EditKind::set || kind == EditKind::add || kind == EditKind::scale || kind == EditKind::forbid ||
          kind == EditKind::lock || kind == EditKind::evict)
        fits = site.point == Point::scores;
      if (fits) sites.push_back(site);
    }
    const Site site = sites[static_cast<std::size_t>(below(static_cast<std::int64_t>(sites.size())))];
    const bool values =
        kind == EditKind::zero || kind == EditKind::mean || kind == EditKind::patch || kind == EditKind::freeze;
    Edit edit;
    edit.name = std::move(name);
    edit.kind = kind;
    edit.at = name_of(site);
    if (!values) edit.at = edit.at.substr(0, edit.at.rfind('.'));
    if (below(4) == 0 && site.layer >= 0) edit.at.replace(edit.at.find('.') + 1, 1, "*");
    if (below(3) == 0) edit.items = {below(3)};
    edit.positions = some_positions(4);
    const TransformerConfig& config = model_.config();
    const bool of_keys = site.point == Point::key || site.point == Point::value || site.point == Point::rotated_key;
    const bool has_heads = !values || of_keys || site.point == Point::query || site.point == Point::rotated_query ||
                           site.point == Point::head_output;
    if (has_heads && below(2) == 0) edit.heads = {below(of_keys ? config.key_head_count() : config.heads)};
    switch (kind) {
      case EditKind::mean:
        edit.texts = {some_text(9), some_text(12)};
        edit.by_position = below(2) == 0;
        break;
      case EditKind::patch:
        if (below(3) == 0) {
          edit.model = "other";
        } else {
          edit.texts = {some_text(11)};
          if (below(2) == 0) {
            edit.positions = {{1, 3}, {0, 0}};
            edit.from_positions = {{7, 0}, {2, 4}};
          }
        }
        break;
      case EditKind::set:
      case EditKind::add:
      case EditKind::scale:
        edit.keys = some_positions(3);
        edit.value = static_cast<float>(below(9) - 4) / 3.0f;
        break;
      case EditKind::forbid:
        edit.keys = some_positions(3);
        break;
      case EditKind::lock:
        // Rows that see other keys besides, as far as masks and windows of the models let them.
        edit.positions = below(2) == 0 ? std::vector<PositionRange>{{2, PositionRange::open_end}}
                                       : std::vector<PositionRange>{{3, 0}};
        edit.keys = {{below(2), 0}};
        edit.value = static_cast<float>(below(4)) / 5.0f;
        break;
      case EditKind::evict:
        edit.keys = {{below(3), 0}};
        break;
      case EditKind::window:
        edit.size = 1 + below(3);
        break;
      case EditKind::cut:
        if (site.point == Point::output || site.part == Part::feed_forward) edit.heads.clear();
        else if (below(3) == 0) edit.keys = some_positions(3);
        break;
      default:
        break;
    }
    return edit;
  }

  const Model& model_;
  const EditInput& input_;
  Random random_;
};

}  // namespace attend::reference
