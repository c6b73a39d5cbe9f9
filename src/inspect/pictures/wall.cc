// All heads of an attention at a glance.
#include <algorithm>
#include <cmath>
#include <map>

#include "attend/error.h"
#include "inspect/pictures/inspection.h"
#include "inspect/pictures/matrix.h"
#include "inspect/pictures/svg.h"
#include "inspect/pictures/text.h"

namespace attend {

using namespace pictures;

std::string wall_svg(const Inspection& inspection, const std::string& attention_name, const std::string& measure,
                     const std::string& metric_name, const PictureOptions& options) {
  check(inspection);
  const ShownAttention& attention = attention_named(inspection, attention_name);
  const HeadMetric* metric = metric_name.empty() ? nullptr : &metric_named(attention, metric_name);
  const PictureLanguage language = options.language;
  const bool chinese = language == PictureLanguage::chinese;
  std::vector<Matrix> matrices;
  double largest = 0;
  for (int layer : attention.layers)
    for (int head : attention.heads) {
      matrices.push_back(matrix_at(inspection, {attention_name, layer, head}, measure));
      largest = std::max(largest, matrices.back().largest());
    }
  const Scale scale = scale_for(matrices[0].measure->kind, largest, options.logarithmic);

  // Small matrices of about 84 pixels; above 96 tokens neighbours share a pixel.
  constexpr std::size_t target = 84, most = 96;
  const std::size_t longest = std::max(matrices[0].rows(), matrices[0].columns());
  const std::size_t merged = (longest + most - 1) / most, places = (longest + merged - 1) / merged;
  // Few tokens have their names beside the matrices of the first head and above those of the first layer.
  constexpr std::size_t most_labelled = 16, most_labelled_heads = 8;
  constexpr int least_labelled = 13;
  constexpr double label_size = 10, longest_label = 80;
  const bool labelled = longest <= most_labelled && attention.heads.size() <= most_labelled_heads;
  const int size = std::max(static_cast<int>(std::max<std::size_t>(1, (target + places / 2) / places)),
                            labelled ? least_labelled : 1);
  const auto widest_of = [&](std::span<const ShownToken> tokens) {
    double widest = 0;
    for (const ShownToken& token : tokens)
      widest = std::max(widest, width_of(cut(shown(token.text), label_size, longest_label), label_size));
    return std::ceil(widest);
  };
  const double query_room = labelled ? widest_of(matrices[0].queries) + 8 : 0;
  const double key_room = labelled ? std::ceil(widest_of(matrices[0].keys) * std::sqrt(0.5)) + 8 : 0;
  const std::size_t rows = (matrices[0].rows() + merged - 1) / merged,
                    columns = (matrices[0].columns() + merged - 1) / merged;
  const double small_width = static_cast<double>(columns) * size, small_height = static_cast<double>(rows) * size;
  const double metric_height = metric ? 18 : 0;
  const double pitch_x = std::max(small_width, metric ? 44.0 : 20.0) + 16, pitch_y = small_height + metric_height + 16;

  const auto named = [&](const char* what, int number) {
    return number == mean_of_all ? say(language, "mean") : join(say(language, what), " ", number);
  };
  double label_width = 0, heading_width = 0;
  for (int layer : attention.layers)
    label_width = std::max(label_width, std::ceil(width_of(named("layer", layer), 12)) + 12);
  for (int head : attention.heads) heading_width = std::max(heading_width, width_of(named("head", head), 12));
  const bool short_headings = heading_width > pitch_x - 8;

  const std::string title =
      options.title.empty() ? with_measure(language, attention_text(language, attention_name), attention_name, measure)
                            : clean(options.title);
  const double width =
      std::ceil(std::max(least_width, 2 * margin + label_width + query_room +
                                          pitch_x * static_cast<double>(attention.heads.size()) - 16 + key_room));
  Svg svg(options.theme);
  const Palette& colours = svg.colours();
  double y = draw_title(svg, title, width);
  for (std::size_t h = 0; h < attention.heads.size() && !of_all_heads(attention_name); ++h)
    svg.text(margin + label_width + query_room + pitch_x * static_cast<double>(h) + small_width / 2, y + 12,
             short_headings && attention.heads[h] != mean_of_all ? std::to_string(attention.heads[h])
                                                                 : named("head", attention.heads[h]),
             {12, colours.soft, Anchor::middle, false, 0, {}});
  y += of_all_heads(attention_name) ? 4 : 22;
  // A name has the whole token in its tooltip where it was cut.
  const auto label = [&](double at_x, double at_y, const ShownToken& token, Anchor anchor, double turn) {
    const std::string full = shown(token.text), text = cut(full, label_size, longest_label);
    svg.text(at_x, at_y, text,
             {label_size, token.special ? colours.soft : colours.ink, anchor, false, turn, text == full ? "" : full});
  };
  y += key_room;
  for (std::size_t h = 0; labelled && h < attention.heads.size(); ++h)
    for (std::size_t k = 0; k < matrices[0].columns(); ++k)
      label(margin + label_width + query_room + pitch_x * static_cast<double>(h) +
                (static_cast<double>(k) + 0.5) * size + 3,
            y - 4, matrices[0].keys[k], Anchor::start, -45);

  const auto& shades = ramp(options.theme, scale.is_signed);
  bool any_blocked = false, any_unknown = false;
  for (std::size_t l = 0; l < attention.layers.size(); ++l) {
    svg.text(margin + label_width - 12, centred(y + small_height / 2, 12), named("layer", attention.layers[l]),
             {12, colours.soft, Anchor::end, false, 0, {}});
    for (std::size_t q = 0; labelled && q < matrices[0].rows(); ++q)
      label(margin + label_width + query_room - 5, centred(y + (static_cast<double>(q) + 0.5) * size, label_size),
            matrices[0].queries[q], Anchor::end, 0);
    for (std::size_t h = 0; h < attention.heads.size(); ++h) {
      const std::size_t index = l * attention.heads.size() + h;
      const double x = margin + label_width + query_room + pitch_x * static_cast<double>(h);
      const Places small = merged_places(matrices[index], merged, merged);
      std::string masked;
      if (rows * columns <= 4096) {
        // Few shades, and neighbours of one shade as one shape: hundreds of heads stay a small file.
        std::map<int, std::string> paths;
        for (std::size_t row = 0; row < rows; ++row)
          for (std::size_t column = 0; column < columns;) {
            const auto shade_at = [&](std::size_t at) {
              if (small.blocked[at]) return -2;
              if (std::isnan(small.values[at])) return -1;
              const int shade = scale.index(small.values[at]);
              return scale.is_signed ? std::clamp(128 + (shade - 128) / 4 * 4, 1, 255)
                                     : shade / 4 * 4 + (shade >= 252 ? 3 : 0);
            };
            const std::size_t begin = column;
            const int shade = shade_at(row * columns + begin);
            while (column < columns && shade_at(row * columns + column) == shade) ++column;
            const std::string run =
                rect_path(x + static_cast<double>(begin) * size, y + static_cast<double>(row) * size,
                          static_cast<double>(column - begin) * size, size);
            if (shade == -2) masked += run, any_blocked = true;
            else if (shade == -1) any_unknown = true;
            else paths[shade] += run;
          }
        for (const auto& [shade, path] : paths) svg.fill_path(path, shades[static_cast<std::size_t>(shade)]);
      } else {
        std::vector<std::uint8_t> indices(rows * columns);
        for (std::size_t i = 0; i < indices.size(); ++i)
          indices[i] = static_cast<std::uint8_t>(scale.index(std::isnan(small.values[i]) ? 0 : small.values[i]));
        svg.image(x, y, columns, rows, size, size, indices, shades);
        for (std::size_t row = 0; row < rows; ++row)
          for (std::size_t column = 0; column < columns;) {
            const std::size_t begin = column;
            while (column < columns && small.blocked[row * columns + column]) ++column;
            if (column > begin) {
              masked += rect_path(x + static_cast<double>(begin) * size, y + static_cast<double>(row) * size,
                                  static_cast<double>(column - begin) * size, size);
              any_blocked = true;
            } else {
              ++column;
            }
          }
        svg.fill_path(masked, colours.paper);
      }
      svg.hatch_path(masked);
      svg.outline(x - 0.5, y - 0.5, small_width + 1, small_height + 1, colours.rule, 1);
      if (metric)
        svg.text(x + small_width / 2, y + small_height + 14, three_decimals(metric->values[index]),
                 {11, colours.ink, Anchor::middle, false, 0, {}});
    }
    y += pitch_y;
  }
  y += 4;
  double x = margin + draw_colour_bar(svg, margin, y, scale,
                                      with_unit(matrices[0].measure->name, matrices[0].measure->unit, language));
  const std::string masked_name = say(language, "masked");
  if (any_blocked) {
    const bool below = x + 28 + width_of(masked_name, 12) > width - margin;
    if (below) x = margin, y += 38;
    draw_hatch_key(svg, x, y, masked_name);
    if (below) y -= 16;
  }
  y += 34;
  std::vector<std::string> caption = caption_parts(inspection, scale.is_signed, options);
  if (options.caption) {
    if (metric) {
      const std::string name = with_unit(metric->name, metric->unit, language);
      caption.insert(caption.begin(), chinese ? join("图下数字：", name) : join("below each head: ", name));
    }
    const std::string key_name = say(language, clean(inspection.texts[attention.key_text].name));
    const std::string query_name = say(language, clean(inspection.texts[attention.query_text].name));
    caption.insert(caption.begin(), chinese ? join("行：查询（", query_name, "），列：键（", key_name, "）")
                                            : join("rows: queries (", query_name, "), columns: keys (", key_name, ")"));
    if (merged > 1)
      caption.push_back(join(say(language, "one pixel shows the largest of"), " ", merged, " \u00D7 ", merged, " ",
                             say(language, "cells")));
    if (any_unknown) caption.push_back(chinese ? "空白：未测量" : "blank: not measured");
  }
  std::string description = text_of(inspection.texts[attention.key_text], language);
  if (attention.query_text != attention.key_text)
    description += join("\n", text_of(inspection.texts[attention.query_text], language));
  return svg.finish(width, draw_caption(svg, caption, y, width), title, description);
}

}  // namespace attend
