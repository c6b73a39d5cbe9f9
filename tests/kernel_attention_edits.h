// Random lists of score edits for a random attention call: every kind, single scores and ranges, near and far keys.
#pragma once

#include <vector>

#include "kernel_attention_case.h"

namespace attend {

inline std::vector<ScoreEdit> random_edits(AttentionCase& given, int count, bool locks) {
  using Kind = ScoreEdit::Kind;
  Random& random = given.random();
  const auto below = [&](std::int64_t bound) {
    return static_cast<std::int64_t>(random.below(static_cast<std::uint64_t>(std::max<std::int64_t>(bound, 1))));
  };
  const auto number = [&] { return static_cast<float>(below(9) - 4) / 4.0f; };
  std::vector<ScoreEdit> edits;
  for (int i = 0; i < count; ++i) {
    ScoreEdit edit;
    edit.kind = static_cast<Kind>(below(locks ? 5 : 4));
    const std::int64_t item = below(static_cast<std::int64_t>(given.items.size()));
    edit.item = below(3) == 0 ? -1 : item;
    edit.head = below(2) == 0 ? -1 : below(given.call.query_heads);
    edit.query = below(2) == 0 ? -1 : below(given.items[index_of(item)].keys + 2);
    edit.key = below(3) == 0 ? -1 : below(given.items[index_of(item)].keys + 2);
    if (edit.query != -1 && below(2) == 0)
      edit.query_end = below(3) == 0 ? ScoreEdit::open_end : edit.query + 1 + below(5);
    if (edit.key != -1 && below(3) == 0) edit.key_end = below(3) == 0 ? ScoreEdit::open_end : edit.key + 1 + below(9);
    if (below(4) == 0) edit.min_distance = below(12) - 3;
    edit.value = number();
    if (edit.kind == Kind::lock) {
      // Few and small, so that most rows can keep them.
      if (edit.key == -1) edit.key = below(given.items[index_of(item)].keys);
      edit.key_end = 0;
      edit.value = static_cast<float>(below(4)) / 16.0f;
    }
    edits.push_back(edit);
  }
  return edits;
}

// Gives the case random edits; without locks where no row could keep them. Returns whether there are locks.
inline bool add_random_edits(AttentionCase& given, std::vector<ScoreEdit>& edits, int count = 8) {
  edits = random_edits(given, count, true);
  given.call.edits = edits;
  try {
    attention_forward(given.call);
    return std::any_of(edits.begin(), edits.end(),
                       [](const ScoreEdit& edit) { return edit.kind == ScoreEdit::Kind::lock; });
  } catch (const Error& error) {
    EXPECT_NE(std::string(error.what()).find("locked weights"), std::string::npos) << error.what();
    std::erase_if(edits, [](const ScoreEdit& edit) { return edit.kind == ScoreEdit::Kind::lock; });
    given.call.edits = edits;
    attention_forward(given.call);
    return false;
  }
}

}  // namespace attend
