// What edits mean, written as a textbook would on the float64 Transformer: an edit at a time, place by place. Shares no
// code with the library beyond the struct Edit. Noise is left out: it is no formula.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "attend/edits.h"
#include "reference/transformer_reference.h"

namespace attend::reference {

class EditedTextbook {
 public:
  EditedTextbook(const Model& model, Edits edits, EditInput input, std::map<std::string, const Model*> others = {})
      : model_(model), edits_(std::move(edits)), input_(std::move(input)), textbook_(model) {
    Sites own = record(model, input_);
    for (const Edit& edit : edits_.list()) {
      const Model& from = edit.model.empty() ? model : *others.at(edit.model);
      if (edit.kind == EditKind::freeze) own_.insert(own.begin(), own.end());
      if (edit.kind == EditKind::patch && edit.texts.empty()) sources_[edit.name] = {record(from, input_)};
      if (edit.kind == EditKind::patch && !edit.texts.empty())
        sources_[edit.name] = {record(from, text(edit.texts[0]))};
      if (edit.kind == EditKind::mean)
        for (const EditText& each : edit.texts) sources_[edit.name].push_back(record(from, text(each)));
    }
    textbook_.visit = [this](const std::string& site, Matrix& rows, const std::vector<std::int64_t>& offsets) {
      visit(site, rows, offsets);
    };
    textbook_.deviation = [this](const std::string& site, std::size_t row, double own_value) {
      return deviation(site, row, own_value);
    };
    textbook_.score = [this](const ScorePlace& place, double score) { return this->score(place, score); };
    textbook_.lock = [this](const ScorePlace& place) { return lock(place); };
  }

  Matrix run() { return run(textbook_, model_, input_); }
  Transformer& textbook() { return textbook_; }

 private:
  // Of one run: rows of every site, deviations included, and where items begin.
  struct Held {
    Matrix rows;
    std::vector<std::int64_t> offsets;
  };
  using Sites = std::map<std::string, Held>;

  static Matrix run(Transformer& textbook, const Model& model, const EditInput& input) {
    if (!model.config().decoder) return textbook.logits(textbook.encode(input.source), input.source.offsets);
    if (!model.config().encoder)
      return textbook.logits(textbook.decode(input.target, nullptr, {}), input.target.offsets);
    const Matrix memory = textbook.encode(input.source);
    return textbook.logits(textbook.decode(input.target, &memory, input.source.offsets), input.target.offsets);
  }

  static Sites record(const Model& model, const EditInput& input) {
    Sites sites;
    Transformer textbook(model);
    textbook.visit = [&](const std::string& site, Matrix& rows, const std::vector<std::int64_t>& offsets) {
      sites[site] = {rows, offsets};
    };
    textbook.deviation = [&](const std::string& site, std::size_t row, double own_value) {
      Held& held = sites[site];
      held.offsets = site.starts_with("encoder") ? input.source.offsets : input.target.offsets;
      if (held.rows.size() <= row) held.rows.resize(row + 1);
      held.rows[row] = {own_value};
      return own_value;
    };
    run(textbook, model, input);
    return sites;
  }

  static EditInput text(const EditText& from) {
    EditInput input;
    if (!from.source.empty()) input.source.append(from.source);
    if (!from.target.empty()) input.target.append(from.target);
    return input;
  }

  // Is the name what `at` says, a * standing for any one word?
  static bool named(const Edit& edit, const std::string& name) {
    const std::string& at = edit.at;
    std::size_t i = 0, j = 0;
    while (i < at.size() && j < name.size()) {
      if (at[i] == '*') {
        while (j < name.size() && name[j] != '.') ++j;
        ++i;
      } else if (at[i++] != name[j++]) {
        return false;
      }
    }
    return i == at.size() && j == name.size();
  }
  static bool holds(const std::vector<std::int64_t>& list, std::int64_t number) {
    return list.empty() || std::count(list.begin(), list.end(), number) > 0;
  }
  static bool holds(const std::vector<PositionRange>& ranges, std::int64_t position) {
    bool found = ranges.empty();
    for (const PositionRange& range : ranges)
      found |= position == range.begin || (position > range.begin && position < range.end);
    return found;
  }
  static std::vector<std::int64_t> all_of(const std::vector<PositionRange>& ranges) {
    std::vector<std::int64_t> list;
    for (const PositionRange& range : ranges)
      for (std::int64_t position = range.begin;
           position < (range.end == 0 ? range.begin + 1 : std::min<std::int64_t>(range.end, 99)); ++position)
        list.push_back(position);
    return list;
  }

  // Item and position of a row.
  static std::pair<std::int64_t, std::int64_t> place_of(std::size_t row, const std::vector<std::int64_t>& offsets) {
    std::int64_t item = 0;
    while (offsets[static_cast<std::size_t>(item) + 1] <= static_cast<std::int64_t>(row)) ++item;
    return {item, static_cast<std::int64_t>(row) - offsets[static_cast<std::size_t>(item)]};
  }

  // The row that stands in for one, or nothing.
  std::vector<double> other_row(const Edit& edit, const std::string& site, std::int64_t item,
                                std::int64_t position) const {
    const auto& sources = sources_.at(edit.name);
    if (edit.kind == EditKind::patch) {
      const Held& held = sources[0].at(site);
      std::int64_t from = position;
      const std::vector<std::int64_t> to_list = all_of(edit.positions), from_list = all_of(edit.from_positions);
      for (std::size_t i = 0; i < from_list.size(); ++i)
        if (to_list[i] == position) from = from_list[i];
      return held.rows[static_cast<std::size_t>(
          (edit.texts.empty() ? held.offsets[static_cast<std::size_t>(item)] : 0) + from)];
    }
    std::vector<double> mean;
    double count = 0;
    for (const Sites& sites : sources) {
      const Matrix& rows = sites.at(site).rows;
      for (std::size_t row = 0; row < rows.size(); ++row) {
        if (edit.by_position && static_cast<std::int64_t>(row) != position) continue;
        mean.resize(rows[row].size(), 0);
        for (std::size_t i = 0; i < mean.size(); ++i) mean[i] += rows[row][i];
        ++count;
      }
    }
    for (double& value : mean) value /= count;
    return mean;
  }

  void visit(const std::string& site, Matrix& rows, const std::vector<std::int64_t>& offsets) {
    const std::size_t dot = site.rfind('.');
    const std::string part = site.substr(0, dot), point = site.substr(dot + 1);
    if (point == "input") inputs_[part] = rows;
    const auto dim = static_cast<std::size_t>(model_.config().head_width());
    for (const Edit& edit : edits_.list()) {
      const bool of_values = edit.kind == EditKind::zero || edit.kind == EditKind::mean || edit.kind == EditKind::patch;
      bool here = of_values && named(edit, site), skips = false;
      if (edit.kind == EditKind::cut && edit.keys.empty() && named(edit, part)) {
        skips = point == "output";
        here = skips || (!edit.heads.empty() && point == "head_output") || (edit.heads.empty() && point == "projected");
      }
      if (!here) continue;
      for (std::size_t row = 0; row < rows.size(); ++row) {
        const auto [item, position] = place_of(row, offsets);
        if (!holds(edit.items, item) || !holds(edit.positions, position)) continue;
        std::vector<double> other(rows[row].size(), 0);
        if (skips) other = inputs_.at(part)[row];
        if (of_values && edit.kind != EditKind::zero) other = other_row(edit, site, item, position);
        for (std::size_t i = 0; i < other.size(); ++i)
          if (edit.heads.empty() || holds(edit.heads, static_cast<std::int64_t>(i / dim))) rows[row][i] = other[i];
      }
    }
  }

  double deviation(const std::string& site, std::size_t row, double own_value) {
    const auto& offsets = site.starts_with("encoder") ? input_.source.offsets : input_.target.offsets;
    const auto [item, position] = place_of(row, offsets);
    for (const Edit& edit : edits_.list()) {
      if (!holds(edit.items, item) || !holds(edit.positions, position)) continue;
      if (edit.kind == EditKind::freeze && (named(edit, site) || beginning(edit, site)))
        own_value = own_.at(site).rows[row][0];
      if (edit.kind == EditKind::patch && named(edit, site)) own_value = other_row(edit, site, item, position)[0];
    }
    return own_value;
  }

  static bool beginning(const Edit& edit, const std::string& site) {
    for (std::size_t dot = site.find('.'); dot != std::string::npos; dot = site.find('.', dot + 1))
      if (named(edit, site.substr(0, dot))) return true;
    return false;
  }

  bool names_score(const Edit& edit, const ScorePlace& place) const {
    return named(edit, place.attention) && holds(edit.items, place.item) && holds(edit.heads, place.head) &&
           holds(edit.positions, place.query) && holds(edit.keys, place.key);
  }

  double score(const ScorePlace& place, double score) const {
    for (const Edit& edit : edits_.list()) {
      if (!names_score(edit, place)) continue;
      if (edit.kind == EditKind::set) score = static_cast<double>(edit.value);
      if (edit.kind == EditKind::add) score += static_cast<double>(edit.value);
      if (edit.kind == EditKind::scale) score *= static_cast<double>(edit.value);
    }
    for (const Edit& edit : edits_.list()) {
      if (!names_score(edit, place)) continue;
      const bool hidden = edit.kind == EditKind::forbid || edit.kind == EditKind::evict ||
                          (edit.kind == EditKind::cut && !edit.keys.empty()) ||
                          (edit.kind == EditKind::window && place.query - place.key >= edit.size);
      if (hidden) return -std::numeric_limits<double>::infinity();
    }
    return score;
  }

  double lock(const ScorePlace& place) const {
    double weight = -1;
    for (const Edit& edit : edits_.list())
      if (edit.kind == EditKind::lock && names_score(edit, place)) weight = static_cast<double>(edit.value);
    return weight;
  }

  const Model& model_;
  Edits edits_;
  EditInput input_;
  Transformer textbook_;
  std::map<std::string, std::vector<Sites>> sources_;
  Sites own_;
  std::map<std::string, Matrix> inputs_;
};

}  // namespace attend::reference
