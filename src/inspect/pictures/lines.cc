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
constexpr double least_place = 0.02;  // on the scale; what is weaker is not drawn

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

// The matrices of the heads asked for.
std::vector<Matrix> matrices_of(const Inspection& inspection, const std::string& attention, int layer,
                                const std::vector<int>& heads, const std::string& measure) {
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
  return matrices;
}

void check_size(const Matrix& matrix, std::int64_t query) {
  if (query < -1 || query >= static_cast<std::int64_t>(matrix.rows()))
    throw Error(ErrorKind::argument, "picture of lines",
                join("there is no query ", query, "; there are ", matrix.rows()),
                "count queries from 0, or give -1 for all");
  if (std::max(matrix.rows(), matrix.columns()) > most_tokens)
    throw Error(ErrorKind::argument, "picture of lines",
                join(matrix.rows(), " queries and ", matrix.columns(), " keys; lines of more than ", most_tokens,
                     " tokens cannot be told apart"),
                "draw a heat-map, or merge tokens to words");
}

// Of each query the strongest edges, or all of the query that is brought out.
std::vector<Edge> thinned_edges(std::vector<Edge> edges, std::int64_t query) {
  std::stable_sort(edges.begin(), edges.end(), [](const Edge& a, const Edge& b) {
    return std::pair(a.head, a.query) != std::pair(b.head, b.query)
               ? std::pair(a.head, a.query) < std::pair(b.head, b.query)
               : std::abs(a.value) > std::abs(b.value);
  });
  std::size_t of_query = 0;
  std::vector<Edge> kept;
  for (std::size_t i = 0; i < edges.size(); ++i) {
    of_query = i > 0 && edges[i].head == edges[i - 1].head && edges[i].query == edges[i - 1].query ? of_query + 1 : 0;
    if (query >= 0 ? edges[i].query == static_cast<std::size_t>(query) : of_query < lines_of_query)
      kept.push_back(edges[i]);
  }
  return kept;
}

// The edges that are drawn, in the order of drawing, and the value below which none is.
struct DrawnEdges {
  std::vector<Edge> edges;
  double floor = 0;
  bool thinned = false;
};

DrawnEdges edges_of(const std::vector<Matrix>& matrices, const Scale& scale, std::int64_t query) {
  const Matrix& first = matrices[0];
  DrawnEdges drawn;
  for (std::size_t h = 0; h < matrices.size(); ++h)
    for (std::size_t q = 0; q < first.rows(); ++q)
      for (std::size_t k = 0; k < first.columns(); ++k)
        if (const double value = matrices[h].at(q, k);
            std::isfinite(value) && !first.masked(q, k) && std::abs(scale.place(value)) >= least_place)
          drawn.edges.push_back({h, q, k, value});
  drawn.thinned = std::max(first.rows(), first.columns()) > most_dense;
  if (drawn.thinned) drawn.edges = thinned_edges(std::move(drawn.edges), query);
  // Strong lines above weak ones, those of the chosen query above all.
  const auto chosen_last = [&](const Edge& edge) {
    return query >= 0 && edge.query == static_cast<std::size_t>(query);
  };
  std::stable_sort(drawn.edges.begin(), drawn.edges.end(), [&](const Edge& a, const Edge& b) {
    return chosen_last(a) != chosen_last(b) ? chosen_last(b) : std::abs(a.value) < std::abs(b.value);
  });
  drawn.floor = scale.logarithmic ? scale.high * std::pow(10.0, -3 * (1 - least_place)) : least_place * scale.high;
  if (drawn.edges.size() > most_lines) {
    drawn.edges.erase(drawn.edges.begin(), drawn.edges.end() - static_cast<std::ptrdiff_t>(most_lines));
    drawn.floor = std::abs(drawn.edges.front().value);
  }
  return drawn;
}

// The picture, part by part from the top.
class LinesPicture {
 public:
  LinesPicture(const Inspection& inspection, std::vector<Matrix> matrices, const std::vector<int>& heads,
               std::int64_t query, const PictureOptions& options)
      : inspection_(inspection),
        matrices_(std::move(matrices)),
        first_(matrices_[0]),
        heads_(heads),
        options_(options),
        focused_(query >= 0),
        one_(heads.size() == 1),
        chosen_(static_cast<std::size_t>(focused_ ? query : 0)),
        numbers_(focused_ && one_),
        svg_(options.theme) {
    double largest = 0;
    for (const Matrix& matrix : matrices_) largest = std::max(largest, matrix.largest());
    scale_ = scale_for(first_.measure->kind, largest, options.logarithmic);
    drawn_ = edges_of(matrices_, scale_, query);
    keys_ = side_of(first_.keys, true, numbers_ ? 36 : 12);
    queries_ = side_of(first_.queries, true, 12);
    horizontal_ = std::max(keys_.extent, queries_.extent) <= widest_row;
    if (!horizontal_) keys_ = side_of(first_.keys, false, 0), queries_ = side_of(first_.queries, false, 0);
  }

  std::string draw(const std::string& title) {
    const ShownAttention& attention = *first_.attention;
    key_title_ = side_title("keys", attention.key_text);
    query_title_ = side_title("queries", attention.query_text);
    place_sides();
    y_ = draw_title(svg_, title, width_);
    draw_headings();
    for (const Edge& edge : drawn_.edges) draw_edge(edge);
    draw_side(keys_, first_.keys, true);
    draw_side(queries_, first_.queries, false);
    if (horizontal_) {
      y_ = query_line_ + 30;
      svg_.text(left_ + shift(queries_), y_ + 12, query_title_, {12, svg_.colours().query, Anchor::start, true, 0, {}});
      y_ += 32;
    } else {
      y_ += extent() + 20;
    }
    draw_legend();
    return svg_.finish(width_, draw_caption(svg_, caption(), y_, width_), title,
                       description_of(inspection_, attention, options_.language));
  }

 private:
  bool chinese() const { return options_.language == PictureLanguage::chinese; }
  const char* colon() const { return chinese() ? "：" : ": "; }
  std::string say_it(std::string_view english) const { return say(options_.language, english); }
  std::string side_title(const char* side, std::size_t text) const {
    return join(say_it(side), colon(), say_it(clean(inspection_.texts[text].name)));
  }
  double extent() const { return std::max(keys_.extent, queries_.extent); }
  double shift(const Side& side) const { return (extent() - side.extent) / 2; }

  void place_sides() {
    across_ = horizontal_ ? std::clamp(extent() / 4, 120.0, 220.0) : std::clamp(extent() / 3, 160.0, 320.0);
    left_room_ = std::max(keys_.widest, 1.1 * width_of(key_title_, 12)) + (numbers_ ? 44 : 0);
    const double right_room = std::max(queries_.widest, 1.1 * width_of(query_title_, 12));
    const double inner = horizontal_ ? extent() : left_room_ + 8 + across_ + 8 + right_room;
    width_ = std::ceil(std::max(least_width, inner + 2 * margin));
    left_ = std::floor((width_ - inner) / 2);
  }

  // Names of the sides, and where lines begin and end.
  void draw_headings() {
    const Palette& colours = svg_.colours();
    if (horizontal_) {
      svg_.text(left_ + shift(keys_), y_ + 10, key_title_, {12, colours.key, Anchor::start, true, 0, {}});
      y_ += numbers_ ? 34 : 20;
      key_line_ = y_ + 26;
      query_line_ = key_line_ + across_;
    } else {
      key_line_ = left_ + left_room_ + 8;
      query_line_ = key_line_ + across_;
      svg_.text(key_line_ - 8, y_ + 10, key_title_, {12, colours.key, Anchor::end, true, 0, {}});
      svg_.text(query_line_ + 8, y_ + 10, query_title_, {12, colours.query, Anchor::start, true, 0, {}});
      y_ += 22;
    }
  }

  Colour hue_of(const Edge& edge) const {
    const auto& shades = ramp(options_.theme, scale_.is_signed);
    if (scale_.is_signed && one_) return shades[edge.value < 0 ? 24 : 232];
    return one_ ? shades[options_.theme == Theme::light ? 190 : 150] : svg_.colours().heads[edge.head];
  }

  void draw_edge(const Edge& edge) {
    // Heads side by side, so that lines between the same words stay apart.
    const double beside = (static_cast<double>(edge.head) - (static_cast<double>(heads_.size()) - 1) / 2) * 2;
    const double from = horizontal_ ? left_ : y_, key_at = from + shift(keys_) + keys_.centres[edge.key] + beside,
                 query_at = from + shift(queries_) + queries_.centres[edge.query] + beside,
                 middle = (key_line_ + query_line_) / 2;
    const std::string path =
        horizontal_ ? join("M", pixels(key_at), " ", pixels(key_line_), "C", pixels(key_at), " ", pixels(middle), " ",
                           pixels(query_at), " ", pixels(middle), " ", pixels(query_at), " ", pixels(query_line_))
                    : join("M", pixels(key_line_), " ", pixels(key_at), "C", pixels(middle), " ", pixels(key_at), " ",
                           pixels(middle), " ", pixels(query_at), " ", pixels(query_line_), " ", pixels(query_at));
    const bool faint = focused_ && edge.query != chosen_;
    const int head = heads_[edge.head];
    svg_.stroke_path(
        path, faint ? svg_.colours().hatch : hue_of(edge), one_ ? 2.5 : 2,
        std::abs(scale_.place(edge.value)) * (faint ? 0.5 : 1),
        join(queries_.full[edge.query], " \u2192 ", keys_.full[edge.key], colon(),
             shortest(static_cast<float>(edge.value)),
             one_ ? ""
                  : join(" (", say_it("head"), " ", head == mean_of_all ? say_it("mean") : std::to_string(head), ")")));
  }

  void draw_side(const Side& side, std::span<const ShownToken> tokens, bool is_key) {
    const Palette& colours = svg_.colours();
    for (std::size_t i = 0; i < tokens.size(); ++i) {
      const bool marked = focused_ && !is_key && i == chosen_;
      TextStyle style{token_size,
                      marked              ? colours.query
                      : tokens[i].special ? colours.soft
                                          : colours.ink,
                      Anchor::middle,
                      marked,
                      0,
                      side.texts[i] == side.full[i] ? "" : side.full[i]};
      const double at = (horizontal_ ? left_ : y_) + shift(side) + side.centres[i],
                   half = width_of(side.texts[i], token_size) / 2;
      double x = at, base = is_key ? key_line_ - 9 : query_line_ + 20;
      if (!horizontal_) {
        x = is_key ? key_line_ - 8 : query_line_ + 8;
        base = centred(at, token_size);
        style.anchor = is_key ? Anchor::end : Anchor::start;
      }
      svg_.text(x, base, side.texts[i], style);
      if (marked) {
        const double box_left = horizontal_ ? x - half - 5 : x - 5;
        svg_.outline(box_left, base - 16, 2 * half * 1.08 + 10, 22, colours.query, 2, 4);
      }
      if (numbers_ && is_key) draw_number(i, x, base);
    }
  }

  // Of a key under the chosen query.
  void draw_number(std::size_t key, double x, double base) {
    const float value = first_.at(chosen_, key);
    if (first_.masked(chosen_, key) || !(std::abs(scale_.place(value)) >= least_place)) return;
    const Colour soft = svg_.colours().soft;
    if (horizontal_) svg_.text(x, base - 18, in_place(value), {number_size, soft, Anchor::middle, false, 0, {}});
    else svg_.text(left_, base, in_place(value), {number_size, soft, Anchor::start, false, 0, {}});
  }

  // What opacity means, then the heads or signs.
  void draw_legend() {
    const Palette& colours = svg_.colours();
    double x = margin;
    const std::string name = with_unit(first_.measure->name, first_.measure->unit, options_.language);
    svg_.text(x, y_ + 10, name, {12, colours.ink, Anchor::start, false, 0, {}});
    x += width_of(name, 12) + 16;
    const auto sample = [&](Colour colour, double opacity, const std::string& text) {
      const double needed = 26 + width_of(text, 12) + 18;
      if (x + needed > width_ - margin && x > margin) x = margin, y_ += 20;
      svg_.stroke_path(join("M", pixels(x), " ", pixels(y_ + 6), "h20"), colour, 2.5, opacity, {});
      svg_.text(x + 26, y_ + 10, text, {12, colours.ink, Anchor::start, false, 0, {}});
      x += needed;
    };
    const bool signed_one = scale_.is_signed && one_;
    const Colour neutral = one_ ? hue_of({0, 0, 0, 1}) : colours.ink;
    for (double part : {0.25, 0.5, 1.0}) {
      const double value = scale_.logarithmic ? scale_.high * std::pow(10.0, -3 * (1 - part)) : part * scale_.high;
      sample(neutral, part, join(signed_one ? "+" : scale_.is_signed ? "\u00B1" : "", tick_text(value)));
    }
    if (signed_one) sample(hue_of({0, 0, 0, -1}), 1, tick_text(-scale_.high));
    if (!one_) {
      x = margin;
      y_ += 22;
      for (std::size_t h = 0; h < heads_.size(); ++h)
        sample(colours.heads[h], 1,
               heads_[h] == mean_of_all ? say_it("mean over heads") : join(say_it("head"), " ", heads_[h]));
    }
    y_ += 18;
  }

  std::vector<std::string> caption() const {
    std::vector<std::string> parts = caption_parts(inspection_, scale_.is_signed, options_);
    if (!options_.caption) return parts;
    const std::string floor = tick_text(drawn_.floor);
    parts.push_back(chinese() ? join("小于 ", floor, " 的不画") : join("lines below ", floor, " are not drawn"));
    if (drawn_.thinned)
      parts.push_back(focused_    ? chinese() ? "只画所选查询的线" : "lines of the query marked only"
                      : chinese() ? join("每个查询只画最强的 ", lines_of_query, " 条")
                                  : join("the ", lines_of_query, " strongest lines of each query"));
    return parts;
  }

  const Inspection& inspection_;
  const std::vector<Matrix> matrices_;
  const Matrix& first_;
  const std::vector<int>& heads_;
  const PictureOptions& options_;
  const bool focused_, one_;
  const std::size_t chosen_;
  const bool numbers_;
  Svg svg_;
  Scale scale_;
  DrawnEdges drawn_;
  Side keys_, queries_;
  bool horizontal_ = true;
  std::string key_title_, query_title_;
  double across_ = 0, left_room_ = 0, left_ = 0, width_ = 0, y_ = 0;
  double key_line_ = 0, query_line_ = 0;  // y (horizontal) or x (vertical) where lines begin and end
};

}  // namespace

std::string lines_svg(const Inspection& inspection, const std::string& attention, int layer,
                      const std::vector<int>& heads, const std::string& measure, std::int64_t query,
                      const PictureOptions& options) {
  check(inspection);
  std::vector<Matrix> matrices = matrices_of(inspection, attention, layer, heads, measure);
  check_size(matrices[0], query);
  const PictureLanguage language = options.language;
  std::string title = clean(options.title);
  if (title.empty()) {
    const std::string place =
        heads.size() == 1
            ? place_text(language, attention, layer, heads[0])
            : join(attention_text(language, attention), language == PictureLanguage::chinese ? "，" : ", ",
                   layer == mean_of_all ? say(language, "mean over layers") : join(say(language, "layer"), " ", layer));
    title = with_measure(language, place, attention, measure);
  }
  return LinesPicture(inspection, std::move(matrices), heads, query, options).draw(title);
}

}  // namespace attend
