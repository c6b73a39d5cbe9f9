#include "inspect/pictures/matrix.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <utility>

#include "attend/error.h"
#include "attend/ranks.h"
#include "inspect/pictures/text.h"

namespace attend::pictures {
namespace {

constexpr double label_size = 12, number_size = 11, longest_row_label = 150, longest_key_label = 110;
constexpr double row_pitch = 14, upright_pitch = 14, slanted_pitch = 22;  // labels any nearer would touch
constexpr std::size_t most_places = 1024, most_vector_cells = 128, most_tooltips = 2500;

int size_for(std::size_t places, bool wide_numbers) {
  if (places <= 12) return wide_numbers ? 44 : 40;
  if (places <= 20) return 28;
  if (places <= 32) return 22;
  if (places <= 48) return 18;
  if (places <= 72) return 14;
  if (places <= most_vector_cells) return 8;
  return std::max(1, static_cast<int>(most_places / places));
}

struct Label {
  std::string text, full;
  bool special = false;
};

Label label_of(const ShownToken& token, std::size_t index, bool numbered, double longest) {
  Label label;
  label.full = shown(token.text);
  if (numbered) label.full = join(index, " ", label.full);
  label.text = cut(label.full, label_size, longest);
  label.special = token.special;
  return label;
}

double longest_label(std::span<const ShownToken> tokens, std::size_t step, double longest) {
  double most = 0;
  for (std::size_t i = 0; i < tokens.size(); i += step)
    most = std::max(most, width_of(label_of(tokens[i], i, step > 1, longest).text, label_size));
  return most;
}

TextStyle style_of(const Svg& svg, const Label& label) {
  TextStyle style{label_size, label.special ? svg.colours().soft : svg.colours().ink, Anchor::start, false, 0, {}};
  if (label.text != label.full) style.tooltip = label.full;
  return style;
}

// Equal neighbours in a row become one rectangle, equal rectangles below each other one.
std::string region_path(const std::vector<std::uint8_t>& inside, std::size_t rows, std::size_t columns, double x,
                        double y, int width, int height) {
  std::map<std::pair<std::size_t, std::size_t>, std::size_t> open;  // columns of a run -> first row
  std::string path;
  const auto close = [&](const std::pair<std::size_t, std::size_t>& run, std::size_t first, std::size_t end) {
    path += rect_path(x + static_cast<double>(run.first) * width, y + static_cast<double>(first) * height,
                      static_cast<double>(run.second - run.first) * width, static_cast<double>(end - first) * height);
  };
  for (std::size_t row = 0; row <= rows; ++row) {
    std::map<std::pair<std::size_t, std::size_t>, std::size_t> now;
    for (std::size_t column = 0; row < rows && column < columns;) {
      if (!inside[row * columns + column]) {
        ++column;
        continue;
      }
      const std::size_t begin = column;
      while (column < columns && inside[row * columns + column]) ++column;
      const auto before = open.find({begin, column});
      now[{begin, column}] = before == open.end() ? row : before->second;
    }
    for (const auto& [run, first] : open)
      if (!now.contains(run)) close(run, first, row);
    open = std::move(now);
  }
  return path;
}

void draw_labels(Svg& svg, double x, double y, const Matrix& matrix, const MatrixLayout& layout) {
  const double left = x + layout.left, top = y + layout.top;
  const Palette& colours = svg.colours();
  if (layout.row_labels) {
    const std::size_t step = layout.queries.label_step(row_pitch);
    for (std::size_t q = 0; q < layout.queries.count; q += step) {
      const Label label = label_of(matrix.queries[q], q, step > 1, longest_row_label);
      TextStyle style = style_of(svg, label);
      style.anchor = Anchor::end;
      const double at = top + layout.queries.centre(q);
      if (step > 1) svg.line(left - 5, at, left - 1, at, colours.soft);
      svg.text(left - (step > 1 ? 9 : 8), centred(at, label_size), label.text, style);
    }
    const double title_at = left - 8,
                 title_gap = layout.queries.size < 14 ? 13 : 7;  // small rows put their label higher
    svg.text(title_at, top - title_gap - 17, layout.key_title, {label_size, colours.key, Anchor::end, true, 0, {}});
    svg.text(title_at, top - title_gap, layout.query_title, {label_size, colours.query, Anchor::end, true, 0, {}});
  }
  const std::size_t step =
      layout.keys.label_step(layout.key_turn == MatrixLayout::Turn::slanted ? slanted_pitch : upright_pitch);
  for (std::size_t k = 0; k < layout.keys.count; k += step) {
    const Label label =
        label_of(matrix.keys[k], k, step > 1, layout.key_turn == MatrixLayout::Turn::none ? 1e9 : longest_key_label);
    TextStyle style = style_of(svg, label);
    const double at = left + layout.keys.centre(k);
    if (step > 1) svg.line(at, top - 5, at, top - 1, colours.soft);
    const double gap = step > 1 ? 9 : 7;
    if (layout.key_turn == MatrixLayout::Turn::none) {
      style.anchor = Anchor::middle;
      svg.text(at, top - gap, label.text, style);
    } else if (layout.key_turn == MatrixLayout::Turn::slanted) {
      style.turn = -45;
      svg.text(at + 2, top - gap, label.text, style);
    } else {
      style.turn = -90;
      svg.text(at + 0.36 * label_size, top - gap, label.text, style);
    }
  }
}

}  // namespace

std::size_t CellAxis::label_step(double pitch) const {
  const double needed = pitch * static_cast<double>(merged) / size;
  for (std::size_t power = 1;; power *= 10)
    for (std::size_t step : {power, 2 * power, 5 * power})
      if (static_cast<double>(step) >= needed) return step;
}

Places merged_places(const Matrix& matrix, std::size_t merged_queries, std::size_t merged_keys) {
  const std::size_t rows = (matrix.rows() + merged_queries - 1) / merged_queries;
  const std::size_t columns = (matrix.columns() + merged_keys - 1) / merged_keys;
  Places places{std::vector<float>(rows * columns, std::numeric_limits<float>::quiet_NaN()),
                std::vector<std::uint8_t>(rows * columns, 1)};
  for (std::size_t q = 0; q < matrix.rows(); ++q)
    for (std::size_t k = 0; k < matrix.columns(); ++k) {
      if (matrix.masked(q, k)) continue;
      const std::size_t place = q / merged_queries * columns + k / merged_keys;
      places.blocked[place] = 0;
      const float value = matrix.at(q, k);
      float& most = places.values[place];
      if (std::isnan(most) || std::abs(value) > std::abs(most)) most = value;
    }
  return places;
}

MatrixLayout layout_of(const Inspection& inspection, const Matrix& matrix, bool row_labels,
                       const PictureOptions& options) {
  MatrixLayout layout;
  layout.row_labels = row_labels;
  const auto axis = [](std::size_t count) {
    const std::size_t merged = (count + most_places - 1) / most_places;
    return CellAxis{count, merged, 1};
  };
  layout.queries = axis(matrix.rows());
  layout.keys = axis(matrix.columns());
  const std::size_t most = std::max(layout.queries.places(), layout.keys.places());
  layout.numbers = most <= 12;
  layout.queries.size = layout.keys.size = size_for(most, matrix.measure->kind == MeasureKind::effect);
  // A long strip one pixel high says nothing.
  for (CellAxis* side : {&layout.queries, &layout.keys})
    if (side->extent() < 100) side->size = std::max(side->size, std::min(20, static_cast<int>(100 / side->places())));
  if (layout.numbers && layout.keys.size > layout.queries.size) layout.queries.size = std::min(layout.queries.size, 32);

  const std::size_t row_step = layout.queries.label_step(row_pitch);
  const auto titled = [&](const char* what, std::size_t text, const char* arrow) {
    const std::string name = say(options.language, clean(inspection.texts[text].name));
    return join(say(options.language, what), options.language == PictureLanguage::chinese ? "：" : ": ", name, arrow);
  };
  layout.query_title = titled("queries", matrix.attention->query_text, " \u2193");
  layout.key_title = titled("keys", matrix.attention->key_text, " \u2192");
  if (row_labels)
    layout.left = 16 + std::ceil(std::max({longest_label(matrix.queries, row_step, longest_row_label),
                                           1.1 * width_of(layout.query_title, label_size),
                                           1.1 * width_of(layout.key_title, label_size)}));

  // Labels lie flat if they fit, else slanted (which reads best) if all or only some are shown, else upright.
  const bool all = layout.keys.label_step(upright_pitch) == 1;
  const bool slanted = !all || layout.keys.size >= slanted_pitch;
  const double widest =
      longest_label(matrix.keys, layout.keys.label_step(slanted ? slanted_pitch : upright_pitch), longest_key_label);
  if (all && widest + 6 <= layout.keys.size) {
    layout.key_turn = MatrixLayout::Turn::none;
    layout.top = 24;
  } else if (slanted) {
    layout.key_turn = MatrixLayout::Turn::slanted;
    layout.top = 14 + std::ceil((widest + label_size) * std::sqrt(0.5));
    // How far the slanted labels reach beyond the cells.
    const std::size_t step = layout.keys.label_step(slanted_pitch);
    for (std::size_t k = 0; k < layout.keys.count; k += step) {
      const double reach =
          layout.keys.centre(k) + 6 +
          (width_of(label_of(matrix.keys[k], k, step > 1, longest_key_label).text, label_size) + 4) * std::sqrt(0.5);
      layout.right = std::max(layout.right, std::ceil(reach - layout.keys.extent()));
    }
  } else {
    layout.key_turn = MatrixLayout::Turn::upright;
    layout.top = 14 + std::ceil(widest);
  }
  if (row_labels) layout.top = std::max(layout.top, 48.0);
  return layout;
}

void draw_matrix(Svg& svg, double x, double y, const Matrix& matrix, const Scale& scale, const MatrixLayout& layout) {
  const Palette& colours = svg.colours();
  const auto& shades = ramp(svg.theme(), scale.is_signed);
  const double left = x + layout.left, top = y + layout.top;
  const std::size_t rows = layout.queries.places(), columns = layout.keys.places();
  const int width = layout.keys.size, height = layout.queries.size;
  const Places places = merged_places(matrix, layout.queries.merged, layout.keys.merged);
  std::vector<std::uint8_t> unknown(rows * columns);
  for (std::size_t i = 0; i < unknown.size(); ++i) unknown[i] = !places.blocked[i] && std::isnan(places.values[i]);

  if (rows > most_vector_cells || columns > most_vector_cells) {
    std::vector<std::uint8_t> indices(rows * columns);
    for (std::size_t i = 0; i < indices.size(); ++i)
      indices[i] =
          static_cast<std::uint8_t>(places.blocked[i] || unknown[i] ? scale.index(0) : scale.index(places.values[i]));
    svg.image(left, top, columns, rows, width, height, indices, shades);
    for (const std::vector<std::uint8_t>* region : {&places.blocked, &std::as_const(unknown)}) {
      const std::string path = region_path(*region, rows, columns, left, top, width, height);
      svg.fill_path(path, colours.paper);
      if (region == &places.blocked) svg.hatch_path(path);
    }
    svg.outline(left - 0.5, top - 0.5, layout.keys.extent() + 1, layout.queries.extent() + 1, colours.rule, 1);
  } else {
    const double gap = std::min(width, height) >= 12 ? 1 : 0;
    const bool tooltips = rows * columns <= most_tooltips;
    // Three decimals in place; where nothing would be left of them, as many as it takes.
    const auto numbers = [&](double value) { return scale.high >= 0.05 ? in_place(value) : three_decimals(value); };
    std::map<int, std::string> paths;
    for (std::size_t q = 0; q < rows; ++q)
      for (std::size_t k = 0; k < columns; ++k) {
        const std::size_t cell = q * columns + k;
        if (places.blocked[cell]) continue;
        const double cell_x = left + static_cast<double>(k) * width, cell_y = top + static_cast<double>(q) * height;
        if (unknown[cell]) {
          svg.circle(cell_x + width / 2.0, cell_y + height / 2.0, std::min(1.5, width / 5.0), colours.soft,
                     colours.soft, 0);
          continue;
        }
        const double value = places.values[cell];
        const int index = scale.index(value);
        if (!tooltips) {
          paths[index] += rect_path(cell_x, cell_y, width - gap, height - gap);
          continue;
        }
        const Colour fill = shades[static_cast<std::size_t>(index)];
        svg.rect(cell_x, cell_y, width - gap, height - gap, fill,
                 join(shown(matrix.queries[q].text), " \u2192 ", shown(matrix.keys[k].text), ": ",
                      shortest(places.values[cell])));
        if (layout.numbers)
          svg.text(cell_x + (width - gap) / 2, centred(cell_y + (height - gap) / 2, number_size), numbers(value),
                   {number_size, text_on(svg.theme(), fill), Anchor::middle, false, 0, {}});
      }
    for (const auto& [index, path] : paths) svg.fill_path(path, shades[static_cast<std::size_t>(index)]);
    svg.hatch_path(region_path(places.blocked, rows, columns, left, top, width, height));
    if (gap == 0)
      svg.outline(left - 0.5, top - 0.5, layout.keys.extent() + 1, layout.queries.extent() + 1, colours.rule, 1);
  }
  draw_labels(svg, x, y, matrix, layout);
}

double draw_matrix_key(Svg& svg, double x, double y, const Matrix& matrix, const Scale& scale, double width,
                       const std::string& name, const PictureOptions& options) {
  bool blocked = false, unknown = false;
  for (std::size_t q = 0; q < matrix.rows(); ++q)
    for (std::size_t k = 0; k < matrix.columns(); ++k) {
      blocked |= matrix.masked(q, k);
      unknown |= !matrix.masked(q, k) && std::isnan(matrix.at(q, k));
    }
  const std::string blocked_name = say(options.language, "masked"),
                    unknown_name = say(options.language, "not measured");
  const double keys_width =
      (blocked ? 52 + width_of(blocked_name, 12) : 0) + (unknown ? 16 + width_of(unknown_name, 12) : 0);
  double at = x + draw_colour_bar(svg, x, y, scale, name), height = 32;
  if (keys_width > 0 && at + keys_width > x + width) at = x, y += 40, height += 28;
  if (blocked) at += draw_hatch_key(svg, at, y, blocked_name);
  if (unknown) {
    svg.circle(at + 6, y + 6, 1.5, svg.colours().soft, svg.colours().soft, 0);
    svg.text(at + 16, y + 10, unknown_name, {12, svg.colours().ink, Anchor::start, false, 0, {}});
  }
  return height;
}

}  // namespace attend::pictures

namespace attend {

using namespace pictures;

namespace {

std::string pooling_note(const MatrixLayout& layout, PictureLanguage language) {
  if (layout.queries.merged * layout.keys.merged == 1) return {};
  return join(say(language, "one pixel shows the largest of"), " ", layout.queries.merged, " \u00D7 ",
              layout.keys.merged, " ", say(language, "cells"));
}

}  // namespace

std::string heat_map_svg(const Inspection& inspection, const MatrixPlace& place, const std::string& measure,
                         const PictureOptions& options) {
  check(inspection);
  const Matrix matrix = matrix_at(inspection, place, measure);
  const MatrixLayout layout = layout_of(inspection, matrix, true, options);
  const Scale scale = scale_for(matrix.measure->kind, matrix.largest(), options.logarithmic);
  const PictureLanguage language = options.language;
  const std::string title = options.title.empty()
                                ? with_measure(language, place_text(language, place.attention, place.layer, place.head),
                                               place.attention, measure)
                                : clean(options.title);
  Svg svg(options.theme);

  // Row statistics: a bar and its number for every row, where rows are high enough to read.
  const std::size_t statistics = layout.queries.label_step(row_pitch) == 1 ? matrix.attention->statistics.size() : 0;
  constexpr double statistic_width = 92;
  double right = layout.right, heads_top = layout.top;
  if (statistics > 0) {
    double longest = 0;
    for (const RowStatistic& statistic : matrix.attention->statistics)
      longest = std::max(longest, width_of(with_unit(statistic.name, statistic.unit, language), 12));
    heads_top = std::max(heads_top, 14 + std::ceil((longest + 12) * std::sqrt(0.5)));
    right = std::max(right, 20 + statistic_width * static_cast<double>(statistics) +
                                std::max(0.0, std::ceil(longest * std::sqrt(0.5)) - 84));
  }
  const double inner = layout.left + layout.keys.extent() + right;
  const double width = std::max(least_width, 2 * margin + inner);
  const double top = draw_title(svg, title, width) + (heads_top - layout.top);
  draw_matrix(svg, margin, top, matrix, scale, layout);

  const double cells_right = margin + layout.left + layout.keys.extent(), cells_top = top + layout.top;
  for (std::size_t i = 0; i < statistics; ++i) {
    const RowStatistic& statistic = matrix.attention->statistics[i];
    const std::span<const float> values =
        std::span(statistic.values)
            .subspan((matrix.layer_index * matrix.attention->heads.size() + matrix.head_index) * matrix.rows(),
                     matrix.rows());
    double most = 0;
    for (float value : values)
      if (std::isfinite(value)) most = std::max(most, std::abs(static_cast<double>(value)));
    const double x = cells_right + 20 + statistic_width * static_cast<double>(i);
    svg.text(x + 4, cells_top - 7, with_unit(statistic.name, statistic.unit, language),
             {12, svg.colours().ink, Anchor::start, false, -45, {}});
    for (std::size_t q = 0; q < matrix.rows(); ++q) {
      const double y = cells_top + layout.queries.centre(q);
      const double length = most > 0 && std::isfinite(values[q]) ? 32 * std::abs(values[q]) / most : 0;
      if (length > 0) svg.rect(x, y - 4, std::max(1.0, std::round(length)), 8, svg.colours().hatch);
      svg.text(x + 40, centred(y, 11), three_decimals(values[q]), {11, svg.colours().ink, Anchor::start, false, 0, {}});
    }
  }

  double y = cells_top + layout.queries.extent() + 20;
  y += draw_matrix_key(svg, margin, y, matrix, scale, width - 2 * margin,
                       with_unit(matrix.measure->name, matrix.measure->unit, language), options);
  std::vector<std::string> caption = caption_parts(inspection, matrix.measure->kind == MeasureKind::effect, options);
  if (const std::string note = pooling_note(layout, language); !note.empty()) caption.push_back(note);
  return svg.finish(width, draw_caption(svg, caption, y, width), title,
                    description_of(inspection, *matrix.attention, language));
}

namespace {

// The layouts of matrices beside each other: one size of cells and one base line for all.
std::vector<MatrixLayout> layouts_beside(const Inspection& inspection, const std::vector<Matrix>& matrices,
                                         const PictureOptions& options) {
  std::vector<MatrixLayout> layouts;
  int cell_width = 0, cell_height = 0;
  double label_top = 0;
  for (const Matrix& matrix : matrices) {
    const MatrixLayout& layout = layouts.emplace_back(layout_of(inspection, matrix, layouts.empty(), options));
    cell_width = std::max(cell_width, layout.keys.size);
    cell_height = std::max(cell_height, layout.queries.size);
    label_top = std::max(label_top, layout.top);
  }
  for (MatrixLayout& layout : layouts)
    layout.keys.size = cell_width, layout.queries.size = cell_height, layout.top = label_top;
  return layouts;
}

bool is_effect(const Matrix& matrix) { return matrix.measure->kind == MeasureKind::effect; }

// The largest value on each scale. Effects on one target are compared by eye, so they share a scale: one colour is one
// number.
std::vector<double> largest_of_scales(const std::vector<Matrix>& matrices) {
  std::vector<double> largest;
  for (const Matrix& matrix : matrices) {
    largest.push_back(matrix.largest());
    for (const Matrix& other : matrices)
      if (is_effect(matrix) && is_effect(other) && matrix.measure->unit == other.measure->unit)
        largest.back() = std::max(largest.back(), other.largest());
  }
  return largest;
}

// Of absolute values, over the cells that the mask allows and both have.
double agreement_of(const Matrix& one, const Matrix& other) {
  std::vector<double> first, second;
  for (std::size_t cell = 0; cell < other.values.size(); ++cell) {
    const double a = std::abs(one.values[cell]), b = std::abs(other.values[cell]);
    const bool masked = !other.attention->masked.empty() && other.attention->masked[cell];
    if (!masked && !std::isnan(a) && !std::isnan(b)) first.push_back(a), second.push_back(b);
  }
  return rank_correlation(first, second);
}

}  // namespace

std::string measures_svg(const Inspection& inspection, const MatrixPlace& place,
                         const std::vector<std::string>& measures, const PictureOptions& options) {
  check(inspection);
  if (measures.empty() || measures.size() > 4)
    throw Error(ErrorKind::argument, "picture of measures",
                join("there are ", measures.size(), " measures; 1 to 4 fit beside each other"), "choose up to four");
  const PictureLanguage language = options.language;
  const bool chinese = language == PictureLanguage::chinese;
  std::vector<Matrix> matrices;
  for (const std::string& measure : measures) matrices.push_back(matrix_at(inspection, place, measure));
  const std::vector<MatrixLayout> layouts = layouts_beside(inspection, matrices, options);
  const std::vector<double> largest = largest_of_scales(matrices);

  const std::string title =
      options.title.empty() ? place_text(language, place.attention, place.layer, place.head) : clean(options.title);
  std::vector<double> panel_widths;
  double width = 2 * margin;
  for (std::size_t i = 0; i < layouts.size(); ++i) {
    const std::string name = with_unit(measures[i], matrices[i].measure->unit, language);
    const double needed = layouts[i].left + std::max({static_cast<double>(layouts[i].keys.extent()) + layouts[i].right,
                                                      width_of(name, 14) * 1.1, 200.0});
    panel_widths.push_back(std::ceil(needed));
    width += panel_widths.back() + (i ? 32 : 0);
  }
  width = std::max(width, least_width);

  Svg svg(options.theme);
  const double top = draw_title(svg, title, width);
  double x = margin, bottom = 0;
  for (std::size_t i = 0; i < matrices.size(); ++i) {
    const Scale scale = scale_for(matrices[i].measure->kind, largest[i], options.logarithmic);
    const double left = x + layouts[i].left, room = panel_widths[i] - layouts[i].left;
    svg.text(left, top + 14, with_unit(measures[i], matrices[i].measure->unit, language),
             {14, svg.colours().ink, Anchor::start, true, 0, {}});
    draw_matrix(svg, x, top + 28, matrices[i], scale, layouts[i]);
    const double y = top + 28 + layouts[i].height() + 16;
    double end = y + draw_matrix_key(svg, left, y, matrices[i], scale, room, {}, options);
    if (i > 0) {
      const std::string first = say(language, clean(measures[0])),
                        agreement = three_decimals(agreement_of(matrices[0], matrices[i]));
      const std::string text = chinese ? join("与", first, "的秩相关 ρ\u00A0=\u00A0", agreement)
                                       : join("rank agreement with ", first, ": \u03C1\u00A0=\u00A0", agreement);
      double line_y = end + 18;
      for (const std::string& line : wrapped(text, 12, room)) {
        svg.text(left, line_y, line, {12, svg.colours().ink, Anchor::start, false, 0, {}});
        line_y += 17;
      }
      end = line_y - 5;
    }
    bottom = std::max(bottom, end);
    x += panel_widths[i] + 32;
  }
  const bool names_target = std::any_of(matrices.begin(), matrices.end(), is_effect);
  std::vector<std::string> caption = caption_parts(inspection, names_target, options);
  if (matrices.size() > 1 && options.caption)
    caption.push_back(chinese
                          ? "ρ：未被掩码的各格绝对值的斯皮尔曼秩相关"
                          : "\u03C1: Spearman's rank correlation of the cells' absolute values, masked cells left out");
  if (const std::string note = pooling_note(layouts[0], language); !note.empty()) caption.push_back(note);
  return svg.finish(width, draw_caption(svg, caption, bottom, width), title,
                    description_of(inspection, *matrices[0].attention, language));
}

}  // namespace attend
