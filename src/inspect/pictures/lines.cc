// Keys and queries as two rows or columns of words, with one line an edge.
#include <algorithm>
#include <cmath>
#include <utility>

#include "attend/error.h"
#include "inspect/pictures/inspection.h"
#include "inspect/pictures/svg.h"
#include "inspect/pictures/text.h"

namespace attend {

using namespace pictures;

namespace {

constexpr double token_size = 14, number_size = 10, widest_row = 1000, longest_token = 170, row_pitch = 24;
constexpr std::size_t most_tokens = 400, most_lines = 4000, most_heads = 8;
// Beyond so many tokens on a side all lines together are one mass: of each query the strongest are drawn, or all of the
// query that is brought out.
constexpr std::size_t most_dense = 64, lines_of_query = 2;

struct Edge {
  std::size_t head = 0, query = 0, key = 0;
  double value = 0;
};

// Centres of tokens along one side, and the extent of all of them.
struct Side {
  std::vector<std::string> texts, full;
  std::vector<double> centres;
  double extent = 0, widest = 0;
};

Side side_of(std::span<const ShownToken> tokens, bool horizontal, double least) {
  Side side;
  for (const ShownToken& token : tokens) {
    side.full.push_back(shown(token.text));
    side.texts.push_back(cut(side.full.back(), token_size, longest_token));
    const double width = std::ceil(width_of(side.texts.back(), token_size));
    side.widest = std::max(side.widest, width);
    if (horizontal) {
      const double room = std::max(least, width + 8);
      if (side.extent > 0) side.extent += token.blank_before || token.special ? 10 : 4;
      side.centres.push_back(side.extent + room / 2);
      side.extent += room;
    } else {
      side.centres.push_back(side.extent + row_pitch / 2);
      side.extent += row_pitch;
    }
  }
  return side;
}

}  // namespace

std::string lines_svg(const Inspection& inspection, const std::string& attention, int layer,
                      const std::vector<int>& heads, const std::string& measure, std::int64_t query,
                      const PictureOptions& options) {
  check(inspection);
  if (heads.empty() || heads.size() > most_heads)
    throw Error(ErrorKind::argument, "picture of lines",
                join("there are ", heads.size(), " heads; 1 to ", most_heads, " can be told apart by colour"),
                "choose up to eight heads, or their mean");
  std::vector<Matrix> matrices;
  for (int head : heads) {
    if (std::count(heads.begin(), heads.end(), head) > 1)
      throw Error(ErrorKind::argument, "picture of lines", join("head ", head, " is given twice"),
                  "name each head once");
    matrices.push_back(matrix_at(inspection, {attention, layer, head}, measure));
  }
  const Matrix& first = matrices[0];
  if (query < -1 || query >= static_cast<std::int64_t>(first.rows()))
    throw Error(ErrorKind::argument, "picture of lines",
                join("there is no query ", query, "; there are ", first.rows()),
                "count queries from 0, or give -1 for all");
  if (std::max(first.rows(), first.columns()) > most_tokens)
    throw Error(ErrorKind::argument, "picture of lines",
                join(first.rows(), " queries and ", first.columns(), " keys; lines of more than ", most_tokens,
                     " tokens cannot be told apart"),
                "draw a heat-map, or merge tokens to words");
  const PictureLanguage language = options.language;
  const bool chinese = language == PictureLanguage::chinese;
  const std::string colon = chinese ? "：" : ": ";
  const bool focused = query >= 0, one = heads.size() == 1;
  const auto chosen = static_cast<std::size_t>(focused ? query : 0);

  double largest = 0;
  for (const Matrix& matrix : matrices) largest = std::max(largest, matrix.largest());
  const Scale scale = scale_for(first.measure->kind, largest, options.logarithmic);
  std::vector<Edge> edges;
  for (std::size_t h = 0; h < matrices.size(); ++h)
    for (std::size_t q = 0; q < first.rows(); ++q)
      for (std::size_t k = 0; k < first.columns(); ++k)
        if (const double value = matrices[h].at(q, k);
            std::isfinite(value) && !first.masked(q, k) && std::abs(scale.place(value)) >= 0.02)
          edges.push_back({h, q, k, value});
  const bool thinned = std::max(first.rows(), first.columns()) > most_dense;
  if (thinned) {
    std::stable_sort(edges.begin(), edges.end(), [](const Edge& a, const Edge& b) {
      return std::pair(a.head, a.query) != std::pair(b.head, b.query)
                 ? std::pair(a.head, a.query) < std::pair(b.head, b.query)
                 : std::abs(a.value) > std::abs(b.value);
    });
    std::size_t of_query = 0;
    std::vector<Edge> kept;
    for (std::size_t i = 0; i < edges.size(); ++i) {
      of_query = i > 0 && edges[i].head == edges[i - 1].head && edges[i].query == edges[i - 1].query ? of_query + 1 : 0;
      if (focused ? edges[i].query == chosen : of_query < lines_of_query) kept.push_back(edges[i]);
    }
    edges = std::move(kept);
  }
  // Strong lines above weak ones, those of the chosen query above all.
  const auto chosen_last = [&](const Edge& edge) { return focused && edge.query == chosen; };
  std::stable_sort(edges.begin(), edges.end(), [&](const Edge& a, const Edge& b) {
    return chosen_last(a) != chosen_last(b) ? chosen_last(b) : std::abs(a.value) < std::abs(b.value);
  });
  double floor_value = scale.logarithmic ? scale.high * std::pow(10.0, -3 * 0.98) : 0.02 * scale.high;
  if (edges.size() > most_lines) {
    edges.erase(edges.begin(), edges.end() - static_cast<std::ptrdiff_t>(most_lines));
    floor_value = std::abs(edges.front().value);
  }

  const bool numbers = focused && one;
  const double least = numbers ? 36 : 12;
  Side keys = side_of(first.keys, true, least), queries = side_of(first.queries, true, 12);
  const bool horizontal = std::max(keys.extent, queries.extent) <= widest_row;
  if (!horizontal) keys = side_of(first.keys, false, 0), queries = side_of(first.queries, false, 0);

  std::string title = clean(options.title);
  if (title.empty()) {
    const std::string place =
        one ? place_text(language, attention, layer, heads[0])
            : join(attention_text(language, attention), chinese ? "，" : ", ",
                   layer == mean_of_all ? say(language, "mean over layers") : join(say(language, "layer"), " ", layer));
    title = with_measure(language, place, attention, measure);
  }
  const std::string key_title =
      join(say(language, "keys"), colon, say(language, clean(inspection.texts[first.attention->key_text].name)));
  const std::string query_title =
      join(say(language, "queries"), colon, say(language, clean(inspection.texts[first.attention->query_text].name)));

  Svg svg(options.theme);
  const Palette& colours = svg.colours();
  const double extent = std::max(keys.extent, queries.extent);
  const double across = horizontal ? std::clamp(extent / 4, 120.0, 220.0) : std::clamp(extent / 3, 160.0, 320.0);
  const double number_room = numbers ? 44 : 0;
  const double left_room = std::max(keys.widest, 1.1 * width_of(key_title, 12)) + number_room;
  const double right_room = std::max(queries.widest, 1.1 * width_of(query_title, 12));
  const double inner = horizontal ? extent : left_room + 8 + across + 8 + right_room;
  const double width = std::ceil(std::max(least_width, inner + 2 * margin));
  double y = draw_title(svg, title, width);

  // Places of the two ends of an edge; heads side by side, so that lines between the same words stay apart.
  const double key_shift = (extent - keys.extent) / 2, query_shift = (extent - queries.extent) / 2;
  const double left = std::floor((width - inner) / 2);
  const auto beside = [&](std::size_t head) {
    return (static_cast<double>(head) - (static_cast<double>(heads.size()) - 1) / 2) * 2;
  };
  double key_line = 0, query_line = 0;  // y (horizontal) or x (vertical) where lines begin and end
  if (horizontal) {
    svg.text(left + key_shift, y + 10, key_title, {12, colours.key, Anchor::start, true, 0, {}});
    y += 20;
    if (numbers) y += 14;
    key_line = y + 26;
    query_line = key_line + across;
  } else {
    key_line = left + left_room + 8;
    query_line = key_line + across;
    svg.text(key_line - 8, y + 10, key_title, {12, colours.key, Anchor::end, true, 0, {}});
    svg.text(query_line + 8, y + 10, query_title, {12, colours.query, Anchor::start, true, 0, {}});
    y += 22;
  }
  const auto& shades = ramp(options.theme, scale.is_signed);
  const auto hue_of = [&](const Edge& edge) {
    if (scale.is_signed && one) return shades[edge.value < 0 ? 24 : 232];
    return one ? shades[options.theme == Theme::light ? 190 : 150] : colours.heads[edge.head];
  };
  for (const Edge& edge : edges) {
    const double key_at = (horizontal ? left : y) + key_shift + keys.centres[edge.key] + beside(edge.head);
    const double query_at = (horizontal ? left : y) + query_shift + queries.centres[edge.query] + beside(edge.head);
    const double middle = (key_line + query_line) / 2;
    const std::string path =
        horizontal ? join("M", pixels(key_at), " ", pixels(key_line), "C", pixels(key_at), " ", pixels(middle), " ",
                          pixels(query_at), " ", pixels(middle), " ", pixels(query_at), " ", pixels(query_line))
                   : join("M", pixels(key_line), " ", pixels(key_at), "C", pixels(middle), " ", pixels(key_at), " ",
                          pixels(middle), " ", pixels(query_at), " ", pixels(query_line), " ", pixels(query_at));
    const bool faint = focused && edge.query != chosen;
    svg.stroke_path(
        path, faint ? colours.hatch : hue_of(edge), one ? 2.5 : 2,
        std::abs(scale.place(edge.value)) * (faint ? 0.5 : 1),
        join(queries.full[edge.query], " \u2192 ", keys.full[edge.key], colon, shortest(static_cast<float>(edge.value)),
             one ? ""
                 : join(" (", say(language, "head"), " ",
                        heads[edge.head] == mean_of_all ? say(language, "mean") : std::to_string(heads[edge.head]),
                        ")")));
  }
  const auto draw_side = [&](const Side& side, std::span<const ShownToken> tokens, bool is_key, double shift) {
    for (std::size_t i = 0; i < tokens.size(); ++i) {
      const bool marked = focused && !is_key && i == chosen;
      TextStyle style{token_size,
                      marked              ? colours.query
                      : tokens[i].special ? colours.soft
                                          : colours.ink,
                      Anchor::middle,
                      marked,
                      0,
                      side.texts[i] == side.full[i] ? "" : side.full[i]};
      const double at = (horizontal ? left : y) + shift + side.centres[i],
                   half = width_of(side.texts[i], token_size) / 2;
      double x = at, base = is_key ? key_line - 9 : query_line + 20;
      if (!horizontal) {
        x = is_key ? key_line - 8 : query_line + 8;
        base = centred(at, token_size);
        style.anchor = is_key ? Anchor::end : Anchor::start;
      }
      svg.text(x, base, side.texts[i], style);
      if (marked) {
        const double box_left = horizontal ? x - half - 5 : x - 5;
        svg.outline(box_left, base - 16, 2 * half * 1.08 + 10, 22, colours.query, 2, 4);
      }
      if (numbers && is_key && !first.masked(chosen, i) && std::abs(scale.place(first.at(chosen, i))) >= 0.02) {
        const std::string number = in_place(first.at(chosen, i));
        if (horizontal) svg.text(x, base - 18, number, {number_size, colours.soft, Anchor::middle, false, 0, {}});
        else svg.text(left, base, number, {number_size, colours.soft, Anchor::start, false, 0, {}});
      }
    }
  };
  draw_side(keys, first.keys, true, key_shift);
  draw_side(queries, first.queries, false, query_shift);
  if (horizontal) {
    y = query_line + 30;
    svg.text(left + query_shift, y + 12, query_title, {12, colours.query, Anchor::start, true, 0, {}});
    y += 32;
  } else {
    y += extent + 20;
  }

  // Keys to the picture: what opacity means, then the heads or signs.
  double x = margin;
  const std::string name = with_unit(first.measure->name, first.measure->unit, language);
  svg.text(x, y + 10, name, {12, colours.ink, Anchor::start, false, 0, {}});
  x += width_of(name, 12) + 16;
  const auto sample = [&](Colour colour, double opacity, const std::string& text) {
    const double needed = 26 + width_of(text, 12) + 18;
    if (x + needed > width - margin && x > margin) x = margin, y += 20;
    svg.stroke_path(join("M", pixels(x), " ", pixels(y + 6), "h20"), colour, 2.5, opacity, {});
    svg.text(x + 26, y + 10, text, {12, colours.ink, Anchor::start, false, 0, {}});
    x += needed;
  };
  const Colour neutral = one ? hue_of({0, 0, 0, 1}) : colours.ink;
  for (double part : {0.25, 0.5, 1.0}) {
    const double value = scale.logarithmic ? scale.high * std::pow(10.0, -3 * (1 - part)) : part * scale.high;
    sample(neutral, part, join(scale.is_signed && one ? "+" : scale.is_signed ? "\u00B1" : "", tick_text(value)));
  }
  if (scale.is_signed && one) sample(hue_of({0, 0, 0, -1}), 1, tick_text(-scale.high));
  if (!one) {
    x = margin;
    y += 22;
    for (std::size_t h = 0; h < heads.size(); ++h)
      sample(colours.heads[h], 1,
             heads[h] == mean_of_all ? say(language, "mean over heads") : join(say(language, "head"), " ", heads[h]));
  }
  y += 18;
  std::vector<std::string> caption = caption_parts(inspection, scale.is_signed, options);
  if (options.caption)
    caption.push_back(chinese ? join("小于 ", tick_text(floor_value), " 的不画")
                              : join("lines below ", tick_text(floor_value), " are not drawn"));
  if (options.caption && thinned)
    caption.push_back(focused   ? chinese ? "只画所选查询的线" : "lines of the query marked only"
                      : chinese ? join("每个查询只画最强的 ", lines_of_query, " 条")
                                : join("the ", lines_of_query, " strongest lines of each query"));
  std::string description = text_of(inspection.texts[first.attention->key_text], language);
  if (first.attention->query_text != first.attention->key_text)
    description += join("\n", text_of(inspection.texts[first.attention->query_text], language));
  return svg.finish(width, draw_caption(svg, caption, y, width), title, description);
}

}  // namespace attend
