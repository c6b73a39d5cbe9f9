// Running text: each token coloured by one row, or by what it adds to a target.
#include <algorithm>
#include <cmath>
#include <initializer_list>
#include <utility>

#include "attend/error.h"
#include "inspect/pictures/inspection.h"
#include "inspect/pictures/svg.h"
#include "inspect/pictures/text.h"

namespace attend {

using namespace pictures;

namespace {

constexpr double token_size = 16, number_size = 10, padding = 4, line_gap = 12, text_width = 672,
                 box_height = token_size + 10;
// Beyond so many tokens no eye reads a number under each.
constexpr std::size_t most_numbered = 64;

struct Box {
  double x = 0, y = 0, width = 0;
};

struct Flow {
  std::vector<Box> boxes;
  double width = 0, height = 0;  // taken
};

// Tokens flow from left to right; a token longer than the line is cut when drawn.
Flow flow(std::span<const ShownToken> tokens, bool numbers) {
  const double least = numbers ? 38 : 12, line_height = box_height + (numbers ? 16 : 0) + line_gap;
  Flow out;
  double x = 0, y = 0;
  for (const ShownToken& token : tokens) {
    const double width =
        std::min(text_width, std::max(least, std::ceil(width_of(shown(token.text), token_size) + 2 * padding)));
    if (x > 0) x += token.blank_before || token.special ? 7 : 2;
    if (x > 0 && x + width > text_width) x = 0, y += line_height;
    out.boxes.push_back({x, y, width});
    x += width;
    out.width = std::max(out.width, x);
  }
  out.height = y + line_height;
  return out;
}

// As wide as its tokens and its title on one line, within the width of a page.
double picture_width(std::initializer_list<const Flow*> texts, const std::string& title) {
  double width = std::min(text_width, std::max(least_width, std::ceil(width_of(title, 17))));
  for (const Flow* text : texts) width = std::max(width, std::ceil(text->width));
  return width + 2 * margin;
}

// A token on the colour of its value. Where the colour leaves ink and paper little contrast, strokes are bold.
void draw_valued(Svg& svg, const ShownToken& token, double x, double y, double width, float value, const Scale& scale,
                 bool number) {
  const Colour fill = ramp(svg.theme(), scale.is_signed)[static_cast<std::size_t>(scale.index(value))];
  const std::string text = shown(token.text), fitting = cut(text, token_size, width - 2 * padding);
  svg.rect(x, y, width, box_height, fill, join(text, ": ", shortest(value)), 3);
  svg.text(x + width / 2, centred(y + box_height / 2, token_size), fitting,
           {token_size, text_on(svg.theme(), fill), Anchor::middle, contrast_on(svg.theme(), fill) < 7, 0,
            fitting == text ? "" : text});
  if (number)
    svg.text(x + width / 2, y + box_height + 12, scale.is_signed ? in_place(value) : three_decimals(value),
             {number_size, svg.colours().soft, Anchor::middle, false, 0, {}});
}

void draw_plain(Svg& svg, const ShownToken& token, double x, double y, double width, Colour ink, bool bold) {
  const std::string text = shown(token.text), fitting = cut(text, token_size, width - 2 * padding);
  svg.text(x + width / 2, centred(y + box_height / 2, token_size), fitting,
           {token_size, ink, Anchor::middle, bold, 0, fitting == text ? "" : text});
}

// Boxes of the keys, coloured by the weight that query `row` gives them.
void draw_keys(Svg& svg, const Matrix& matrix, const Flow& keys, std::size_t row, double y, const Scale& scale,
               bool numbers, bool outline_query) {
  const Palette& colours = svg.colours();
  for (std::size_t k = 0; k < keys.boxes.size(); ++k) {
    const double x = margin + keys.boxes[k].x, top = y + keys.boxes[k].y, box = keys.boxes[k].width;
    const bool masked = matrix.masked(row, k);
    const float value = matrix.at(row, k);
    if (!masked && !std::isnan(value)) {
      draw_valued(svg, matrix.keys[k], x, top, box, value, scale, numbers);
    } else {
      if (masked) svg.hatch_path(rect_path(x, top, box, box_height));
      draw_plain(svg, matrix.keys[k], x, top, box, masked || matrix.keys[k].special ? colours.soft : colours.ink,
                 false);
    }
    if (outline_query && k == row) svg.outline(x - 1.5, top - 1.5, box + 3, box_height + 3, colours.query, 2, 4);
  }
}

void draw_queries(Svg& svg, const Matrix& matrix, const Flow& queries, std::size_t row, double y) {
  const Palette& colours = svg.colours();
  for (std::size_t q = 0; q < queries.boxes.size(); ++q) {
    const double x = margin + queries.boxes[q].x, top = y + queries.boxes[q].y, box = queries.boxes[q].width;
    draw_plain(svg, matrix.queries[q], x, top, box,
               q == row                    ? colours.query
               : matrix.queries[q].special ? colours.soft
                                           : colours.ink,
               q == row);
    if (q == row) svg.outline(x - 1.5, top - 1.5, box + 3, box_height + 3, colours.query, 2, 4);
  }
}

double largest_of_row(const Matrix& matrix, std::size_t row) {
  double largest = 0;
  for (std::size_t k = 0; k < matrix.columns(); ++k)
    if (const double value = matrix.at(row, k); std::isfinite(value) && !matrix.masked(row, k))
      largest = std::max(largest, std::abs(value));
  return largest;
}

}  // namespace

std::string text_svg(const Inspection& inspection, const MatrixPlace& place, const std::string& measure,
                     std::int64_t query, const PictureOptions& options) {
  check(inspection);
  const Matrix matrix = matrix_at(inspection, place, measure);
  if (query < 0 || query >= static_cast<std::int64_t>(matrix.rows()))
    throw Error(ErrorKind::argument, "picture of a text",
                join("there is no query ", query, "; there are ", matrix.rows()), "count queries from 0");
  const auto row = static_cast<std::size_t>(query);
  const PictureLanguage language = options.language;
  const bool chinese = language == PictureLanguage::chinese;
  const Scale scale = scale_for(matrix.measure->kind, largest_of_row(matrix, row), options.logarithmic);

  const std::string name = shown(matrix.queries[row].text);
  const std::string heading = place_text(language, place.attention, place.layer, place.head);
  const std::string said = say(language, clean(measure));
  const std::string title =
      !options.title.empty() ? clean(options.title)
      : chinese              ? join(heading, "：查询“", name, "”的", said)
                : join(heading, ": ", of_all_heads(place.attention) ? "" : said + " of ", "the query \"", name, "\"");
  const bool one_text = matrix.attention->query_text == matrix.attention->key_text;
  const bool numbers = matrix.columns() <= most_numbered;
  const Flow keys = flow(matrix.keys, numbers), queries = one_text ? Flow{} : flow(matrix.queries, false);
  const double width = picture_width({&keys, &queries}, title);
  Svg svg(options.theme);
  const Palette& colours = svg.colours();
  double y = draw_title(svg, title, width);

  const auto heading_line = [&](const char* what, std::size_t text, Colour colour) {
    svg.text(margin, y + 10,
             join(say(language, what), chinese ? "：" : ": ", say(language, clean(inspection.texts[text].name))),
             {12, colour, Anchor::start, true, 0, {}});
    y += 20;
  };
  heading_line("keys", matrix.attention->key_text, colours.key);
  draw_keys(svg, matrix, keys, row, y, scale, numbers, one_text);
  y += keys.height;
  if (!one_text) {
    y += 4;
    heading_line("queries", matrix.attention->query_text, colours.query);
    draw_queries(svg, matrix, queries, row, y);
    y += queries.height;
  }

  y += 8;
  double key_x =
      margin + draw_colour_bar(svg, margin, y, scale, with_unit(matrix.measure->name, matrix.measure->unit, language));
  for (std::size_t k = 0; k < matrix.columns(); ++k)
    if (matrix.masked(row, k)) {
      key_x += draw_hatch_key(svg, key_x, y, say(language, "masked"));
      break;
    }
  svg.outline(key_x + 1, y, 18, 12, colours.query, 2, 3);
  svg.text(key_x + 28, y + 10, say(language, "query"), {12, colours.ink, Anchor::start, false, 0, {}});
  y += 32;
  return svg.finish(width, draw_caption(svg, caption_parts(inspection, scale.is_signed, options), y, width), title,
                    description_of(inspection, *matrix.attention, language));
}

std::string attribution_svg(const Inspection& inspection, const std::string& name, const PictureOptions& options) {
  check(inspection);
  const TokenAttribution& attribution = attribution_named(inspection, name);
  const PictureLanguage language = options.language;
  const bool chinese = language == PictureLanguage::chinese;
  const char* colon = chinese ? "：" : ": ";
  double largest = 0;
  for (const std::vector<float>& text : attribution.values)
    for (const float value : text)
      if (std::isfinite(value)) largest = std::max(largest, std::abs(static_cast<double>(value)));
  const Scale scale = scale_for(MeasureKind::effect, largest, false);

  std::string said = say(language, clean(attribution.name));
  if (said[0] >= 'a' && said[0] <= 'z') said[0] = static_cast<char>(said[0] - 'a' + 'A');
  const std::string title = !options.title.empty()      ? clean(options.title)
                            : inspection.target.empty() ? said
                                                        : join(said, colon, clean(inspection.target));
  std::vector<std::pair<std::size_t, Flow>> flows;
  double width = picture_width({}, title);
  for (std::size_t text = 0; text < inspection.texts.size(); ++text) {
    const auto& tokens = inspection.texts[text].tokens;
    if (attribution.values[text].empty()) continue;
    flows.emplace_back(text, flow(tokens, tokens.size() <= most_numbered));
    width = std::max(width, picture_width({&flows.back().second}, ""));
  }
  Svg svg(options.theme);
  const Palette& colours = svg.colours();
  double y = draw_title(svg, title, width);
  std::string description;
  for (const auto& [text, boxes] : flows) {
    const ShownText& words = inspection.texts[text];
    if (flows.size() > 1) {
      svg.text(margin, y + 10, say(language, clean(words.name)), {12, colours.soft, Anchor::start, true, 0, {}});
      y += 20;
    }
    for (std::size_t i = 0; i < boxes.boxes.size(); ++i) {
      const Box& box = boxes.boxes[i];
      const float value = attribution.values[text][i];
      if (std::isnan(value))
        draw_plain(svg, words.tokens[i], margin + box.x, y + box.y, box.width, colours.soft, false);
      else
        draw_valued(svg, words.tokens[i], margin + box.x, y + box.y, box.width, value, scale,
                    words.tokens.size() <= most_numbered);
    }
    y += boxes.height + 4;
    description.append(description.empty() ? "" : "\n").append(text_of(words, language));
  }
  y += 4;
  draw_colour_bar(svg, margin, y, scale, with_unit(attribution.name, attribution.unit, language));
  y += 32;

  std::vector<std::string> caption = caption_parts(inspection, false, options);
  if (options.caption) {
    const std::string sum = three_decimals(attribution.sum());
    if (attribution.steps == 0) {
      caption.insert(caption.begin(), chinese ? join("总和 ", sum, "，目标 ", three_decimals(attribution.target))
                                              : join("sum ", sum, ", target ", three_decimals(attribution.target)));
    } else {
      const std::string facts[] = {sum, three_decimals(attribution.target), three_decimals(attribution.baseline),
                                   clean(attribution.baseline_name), three_decimals(attribution.completeness_error)};
      caption.insert(caption.begin(),
                     chinese ? join("总和 ", facts[0], "；目标 ", facts[1], "，基线（", facts[3], "）", facts[2],
                                    "，完备性误差 ", facts[4], "，", attribution.steps, " 步")
                             : join("sum ", facts[0], "; target ", facts[1], ", at the baseline (", facts[3], ") ",
                                    facts[2], ", completeness error ", facts[4], ", ", attribution.steps, " steps"));
    }
  }
  return svg.finish(width, draw_caption(svg, caption, y, width), title, description);
}

}  // namespace attend
