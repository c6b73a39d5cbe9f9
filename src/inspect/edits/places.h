// From what an edit names to the sites of a model, and what happens at each.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "attend/edits.h"

namespace attend {

// What an edit comes down to at one site. `skip` puts a block's input in the place of its output. Scores are edited at the
// site of the scores.
enum class Action { zero, mean, patch, noise, skip, freeze, set, add, scale, forbid, lock };
inline bool edits_scores(Action action) { return action >= Action::set; }

struct PlacedEdit {
  std::size_t edit = 0;  // index in Edits::list()
  Site site;
  Action action = Action::zero;
  std::int64_t min_distance = ScoreEdit::any_distance;
};

// All of them, edit by edit. Error(argument) names the edit, what it asks for and what the model has.
std::vector<PlacedEdit> place_edits(const Model& model, const Edits& edits);

// ContradictionError naming the pairs.
void refuse_contradictions(const Model& model, const Edits& edits, const std::vector<PlacedEdit>& placed);

// Heads side by side in the rows of a site; 0 where there are none.
std::int64_t heads_at(const TransformerConfig& config, Point point);

// The fields of an edit by the names they have in files, and which of them a kind has.
const std::vector<std::string>& fields_of(EditKind kind);
// Error(argument) unless the edit is well-formed, whatever the model; `where` names it.
void check_fields(const Edit& edit, const std::string& where);

bool in_list(const std::vector<std::int64_t>& list, std::int64_t number);         // empty: all
bool in_ranges(const std::vector<PositionRange>& ranges, std::int64_t position);  // empty: all
// Where a patch takes the row at `position` from.
std::int64_t source_position(const Edit& edit, std::int64_t position);

std::string edit_called(const Edit& edit);  // "edit 'name'"

}  // namespace attend
