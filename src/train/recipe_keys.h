// The table of all recipe keys. It drives parsing, checking and recipe/README.md, so that these cannot diverge.
#pragma once

#include <cstdint>
#include <limits>
#include <string>
#include <variant>
#include <vector>

#include "attend/recipe.h"
#include "model/json_fields.h"

namespace attend {

using RecipeTarget =
    std::variant<bool*, std::int64_t*, std::uint64_t*, double*, std::string*, std::vector<std::string>*, Choice>;

// Bits of the tasks that know a key.
inline constexpr unsigned for_translate = 1, for_lines = 2, for_blocks = 4, for_images = 8, for_text = 7, for_all = 15;
constexpr unsigned task_bit(RecipeTask task) { return 1u << static_cast<unsigned>(task); }

struct RecipeKey {
  std::string section, name;  // section "" for keys before the first section
  RecipeTarget target;        // bound to one Recipe
  std::string help;
  unsigned tasks = for_all;
  bool required = false;                                                 // for every task that knows it
  double lowest = 0, highest = std::numeric_limits<double>::infinity();  // numbers
  bool open = false;                                                     // the limits themselves are not allowed

  std::string path() const { return section.empty() ? name : section + "." + name; }
};

// Bound to `recipe`, whose encoder and decoder must both be present. They are removed afterwards by parse_recipe where
// the task has none.
std::vector<RecipeKey> recipe_keys(Recipe& recipe);

const char* name_of(RecipeTask task);
const char* name_of(PairFormat format);
const char* name_of(Schedule schedule);

}  // namespace attend
