// Running text coloured by one row.
#include <algorithm>
#include <cmath>

#include "attend/error.h"
#include "inspect/pictures/inspection.h"
#include "inspect/pictures/svg.h"
#include "inspect/pictures/text.h"

namespace attend {

using namespace pictures;

namespace {

constexpr double token_size = 16, number_size = 10, padding = 4, line_gap = 12, text_width = 672;

struct Box {
  double x = 0, y = 0, width = 0;
};

// Tokens flow from left to right; a token longer than the line is cut when drawn.
std::vector<Box> flow(std::span<const ShownToken> tokens, double least, double line_height, double& height) {
  std::vector<Box> boxes;
  double x = 0, y = 0;
  for (const ShownToken& token : tokens) {
    const double width =
        std::min(text_width, std::max(least, std::ceil(width_of(shown(token.text), token_size) + 2 * padding)));
    if (x > 0) x += token.blank_before || token.special ? 7 : 2;
    if (x > 0 && x + width > text_width) x = 0, y += line_height;
    boxes.push_back({x, y, width});
    x += width;
  }
  height = y + line_height;
  return boxes;
}

}  // namespace

std::string text_svg(const Inspection& inspection, const Place& place, const std::string& measure, std::int64_t query,
                     const PictureOptions& options) {
  check(inspection);
  const Matrix matrix = matrix_at(inspection, place, measure);
  if (query < 0 || query >= static_cast<std::int64_t>(matrix.rows()))
    throw Error(ErrorKind::argument, "picture of a text",
                join("there is no query ", query, "; there are ", matrix.rows()), "count queries from 0");
  const auto row = static_cast<std::size_t>(query);
  const PictureLanguage language = options.language;
  const bool chinese = language == PictureLanguage::chinese;
  double largest = 0;
  for (std::size_t k = 0; k < matrix.columns(); ++k)
    if (const double value = matrix.at(row, k); std::isfinite(value) && !matrix.masked(row, k))
      largest = std::max(largest, std::abs(value));
  const Scale scale = scale_for(matrix.measure->kind, largest, options.logarithmic);
  const auto& shades = ramp(options.theme, scale.is_signed);

  const std::string name = shown(matrix.queries[row].text);
  const std::string heading = place_text(language, place.attention, place.layer, place.head);
  const std::string title =
      !options.title.empty() ? clean(options.title)
      : chinese              ? join(heading, "：查询“", name, "”的", say(language, clean(measure)))
                : join(heading, ": ", say(language, clean(measure)), " of the query \u201C", name, "\u201D");
  const double width = text_width + 2 * margin;
  Svg svg(options.theme);
  const Palette& colours = svg.colours();
  double y = draw_title(svg, title, width);

  const bool one_text = matrix.attention->query_text == matrix.attention->key_text;
  const auto heading_line = [&](const char* what, std::size_t text, Colour colour) {
    svg.text(margin, y + 10,
             join(say(language, what), chinese ? "：" : ": ", say(language, clean(inspection.texts[text].name))),
             {12, colour, Anchor::start, true, 0, {}});
    y += 20;
  };

  // Numbers under the tokens while there is room for the eye to read them.
  const bool numbers = matrix.columns() <= 64;
  const double box_height = token_size + 10, line_height = box_height + (numbers ? 16 : 0) + line_gap;
  heading_line("keys", matrix.attention->key_text, colours.key);
  double height = 0;
  const std::vector<Box> keys = flow(matrix.keys, numbers ? 38 : 12, line_height, height);
  std::string blocked;
  for (std::size_t k = 0; k < keys.size(); ++k) {
    const double x = margin + keys[k].x, top = y + keys[k].y;
    const bool masked = matrix.masked(row, k);
    const float value = matrix.at(row, k);
    const bool known = !masked && !std::isnan(value);
    const std::string text = shown(matrix.keys[k].text), fitting = cut(text, token_size, keys[k].width - 2 * padding);
    Colour ink = matrix.keys[k].special ? colours.soft : colours.ink;
    if (known) {
      const Colour fill = shades[static_cast<std::size_t>(scale.index(value))];
      svg.rect(x, top, keys[k].width, box_height, fill, join(text, ": ", shortest(value)), 3);
      ink = text_on(options.theme, fill);
    } else if (masked) {
      svg.hatch_path(rect_path(x, top, keys[k].width, box_height));
      ink = colours.soft;
    }
    svg.text(x + keys[k].width / 2, centred(top + box_height / 2, token_size), fitting,
             {token_size, ink, Anchor::middle, false, 0, fitting == text ? "" : text});
    if (numbers && known)
      svg.text(x + keys[k].width / 2, top + box_height + 12, three_decimals(value),
               {number_size, colours.soft, Anchor::middle, false, 0, {}});
    if (one_text && k == row) svg.outline(x - 1.5, top - 1.5, keys[k].width + 3, box_height + 3, colours.query, 2, 4);
  }
  y += height;
  if (!one_text) {
    y += 4;
    heading_line("queries", matrix.attention->query_text, colours.query);
    const std::vector<Box> queries = flow(matrix.queries, 12, box_height + line_gap, height);
    for (std::size_t q = 0; q < queries.size(); ++q) {
      const double x = margin + queries[q].x, top = y + queries[q].y;
      const std::string text = shown(matrix.queries[q].text),
                        fitting = cut(text, token_size, queries[q].width - 2 * padding);
      const Colour ink = q == row ? colours.query : matrix.queries[q].special ? colours.soft : colours.ink;
      svg.text(x + queries[q].width / 2, centred(top + box_height / 2, token_size), fitting,
               {token_size, ink, Anchor::middle, q == row, 0, fitting == text ? "" : text});
      if (q == row) svg.outline(x - 1.5, top - 1.5, queries[q].width + 3, box_height + 3, colours.query, 2, 4);
    }
    y += height;
  }

  y += 8;
  const double bar_width =
      draw_colour_bar(svg, margin, y, scale, with_unit(matrix.measure->name, matrix.measure->unit, language));
  double key_x = margin + bar_width;
  for (std::size_t k = 0; k < matrix.columns(); ++k)
    if (matrix.masked(row, k)) {
      key_x += draw_hatch_key(svg, key_x, y, say(language, "masked"));
      break;
    }
  svg.outline(key_x + 1, y, 18, 12, colours.query, 2, 3);
  svg.text(key_x + 28, y + 10, say(language, "query"), {12, colours.ink, Anchor::start, false, 0, {}});
  y += 32;
  std::string description = text_of(inspection.texts[matrix.attention->key_text], language);
  if (!one_text) description += join("\n", text_of(inspection.texts[matrix.attention->query_text], language));
  return svg.finish(width, draw_caption(svg, caption_parts(inspection, scale.is_signed, options), y, width), title,
                    description);
}

}  // namespace attend
