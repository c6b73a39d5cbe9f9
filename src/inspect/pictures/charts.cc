// Bars, lines and dumbbells: numbers of heads, of rows, and outcomes before and after edits.
#include <algorithm>
#include <cmath>
#include <span>
#include <utility>

#include "attend/error.h"
#include "inspect/pictures/axis.h"
#include "inspect/pictures/inspection.h"
#include "inspect/pictures/svg.h"
#include "inspect/pictures/text.h"

namespace attend {

using namespace pictures;

namespace {

std::string number_name(PictureLanguage language, const char* what, int number) {
  return number == mean_of_all ? say(language, "mean") : join(say(language, what), " ", number);
}

std::string whole_title(const PictureOptions& options, std::string made) {
  return options.title.empty() ? std::move(made) : clean(options.title);
}

// Ticks of a vertical axis between y and y + height, with rules across the picture.
void draw_rules(Svg& svg, const Axis& axis, double left, double right, double top, double height) {
  for (double tick : axis.ticks()) {
    const double y = std::round(top + height * (1 - axis.part(tick)));
    svg.line(left, y + 0.5, right, y + 0.5, tick == 0 ? svg.colours().soft : svg.colours().rule);
    svg.text(left - 8, centred(y, 11), tick_text(tick), {11, svg.colours().soft, Anchor::end, false, 0, {}});
  }
}

double widest_tick(const Axis& axis) {
  double widest = 0;
  for (double tick : axis.ticks()) widest = std::max(widest, width_of(tick_text(tick), 11));
  return std::ceil(widest);
}

}  // namespace

std::string head_bars_svg(const Inspection& inspection, const std::string& attention_name,
                          const std::vector<std::string>& metrics, const PictureOptions& options) {
  check(inspection);
  const ShownAttention& attention = attention_named(inspection, attention_name);
  if (metrics.empty())
    throw Error(ErrorKind::argument, "picture of metrics", "no metric was named", "name at least one");
  const PictureLanguage language = options.language;
  const std::size_t layers = attention.layers.size(), heads = attention.heads.size();
  // Bars wide enough for their number while there are few, then thinner.
  const double bar = layers * heads <= 24 ? 32 : layers * heads <= 64 ? 14 : layers * heads <= 160 ? 6 : 3;
  const double gap = bar >= 14 ? 4 : 1, group_gap = bar >= 14 ? 18 : 8, bars_height = 120;
  const double group = static_cast<double>(heads) * (bar + gap) - gap;

  std::vector<Axis> axes;
  double left = margin;
  for (const std::string& name : metrics) {
    const HeadMetric& metric = metric_named(attention, name);
    axes.push_back(axis_over(std::vector<double>(metric.values.begin(), metric.values.end()), 4, true));
    left = std::max(left, margin + widest_tick(axes.back()) + 8);
  }
  const double plot = group_gap + static_cast<double>(layers) * (group + group_gap);
  const double width = std::ceil(std::max(least_width, left + plot + margin));
  const std::string title = whole_title(options, attention_text(language, attention_name));
  Svg svg(options.theme);
  const Palette& colours = svg.colours();
  double y = draw_title(svg, title, width);
  for (std::size_t m = 0; m < metrics.size(); ++m) {
    const HeadMetric& metric = metric_named(attention, metrics[m]);
    svg.text(left, y + 10, with_unit(metric.name, metric.unit, language),
             {14, colours.ink, Anchor::start, true, 0, {}});
    y += 34;
    draw_rules(svg, axes[m], left, left + plot, y, bars_height);
    const double zero = std::round(y + bars_height * (1 - axes[m].part(0)));
    for (std::size_t l = 0; l < layers; ++l) {
      const double group_x = left + group_gap + static_cast<double>(l) * (group + group_gap);
      for (std::size_t h = 0; h < heads; ++h) {
        const float value = metric.values[l * heads + h];
        const double x = group_x + static_cast<double>(h) * (bar + gap);
        const std::string head_name = number_name(language, "head", attention.heads[h]);
        if (std::isfinite(value)) {
          const double end = std::round(y + bars_height * (1 - axes[m].part(value)));
          svg.rect(x, std::min(end, zero), bar, std::max(1.0, std::abs(end - zero)),
                   ramp(options.theme, false)[options.theme == Theme::light ? 150 : 170],
                   join(number_name(language, "layer", attention.layers[l]), ", ", head_name, ": ", shortest(value)));
          if (bar >= 32)
            svg.text(x + bar / 2, value >= 0 ? std::min(end, zero) - 4 : std::max(end, zero) + 12, in_place(value),
                     {10, colours.ink, Anchor::middle, false, 0, {}});
        } else if (bar >= 6) {
          svg.text(x + bar / 2, zero - 4, "\u2013", {10, colours.soft, Anchor::middle, false, 0, {}});
        }
        if (bar >= 14)
          svg.text(x + bar / 2, y + bars_height + 16,
                   attention.heads[h] == mean_of_all ? "\u00F8" : std::to_string(attention.heads[h]),
                   {11, colours.soft, Anchor::middle, false, 0, {}});
      }
      const std::string layer_name = number_name(language, "layer", attention.layers[l]);
      svg.text(group_x + group / 2, y + bars_height + (bar >= 14 ? 33 : 18),
               width_of(layer_name, 12) <= group + group_gap - 4 || attention.layers[l] == mean_of_all
                   ? layer_name
                   : std::to_string(attention.layers[l]),
               {12, colours.soft, Anchor::middle, false, 0, {}});
    }
    y += bars_height + (bar >= 14 ? 60 : 44);
  }
  y -= 22;
  return svg.finish(width, draw_caption(svg, caption_parts(inspection, false, options), y, width), title, {});
}

namespace {

constexpr std::size_t most_line_heads = 8;
constexpr double panel_height = 200;

std::size_t index_of(const std::string& attention, const std::vector<int>& numbers, int number, const char* what) {
  const auto found = std::find(numbers.begin(), numbers.end(), number);
  if (found != numbers.end()) return static_cast<std::size_t>(found - numbers.begin());
  std::string known;
  for (const int one : numbers) known += join(known.empty() ? "" : ", ", one);
  throw Error(ErrorKind::argument, join("picture of ", attention), join("there is no ", what, ' ', number),
              join("known: ", known));
}

// One head's numbers of all queries.
std::vector<std::span<const float>> rows_of(const Inspection& inspection, const ShownAttention& attention, int layer,
                                            const std::vector<int>& heads, const RowStatistic& statistic) {
  if (heads.empty() || heads.size() > most_line_heads)
    throw Error(ErrorKind::argument, "picture of a row statistic",
                join("there are ", heads.size(), " heads; 1 to ", most_line_heads, " can be told apart by colour"),
                "choose up to eight heads");
  const std::size_t queries = inspection.texts[attention.query_text].tokens.size();
  std::vector<std::span<const float>> rows;
  for (int head : heads) {
    const std::size_t map = index_of(attention.name, attention.layers, layer, "layer") * attention.heads.size() +
                            index_of(attention.name, attention.heads, head, "head");
    rows.push_back(std::span(statistic.values).subspan(map * queries, queries));
  }
  return rows;
}

Axis axis_over_rows(const std::vector<std::span<const float>>& rows) {
  std::vector<double> all;
  for (const std::span<const float> row : rows) all.insert(all.end(), row.begin(), row.end());
  return axis_over(all, 5, true);
}

// Every how many queries there is room for a name.
std::size_t label_step(double pitch) {
  std::size_t step = 1;
  for (std::size_t power = 1; static_cast<double>(step) * pitch < 18; power *= 10)
    for (std::size_t candidate : {power, 2 * power, 5 * power})
      if (static_cast<double>(step) * pitch < 18) step = candidate;
  return step;
}

// Lines of a row statistic over the queries, part by part from the top.
class RowLinesPicture {
 public:
  RowLinesPicture(const Inspection& inspection, const ShownAttention& attention, const std::vector<int>& heads,
                  std::vector<std::span<const float>> rows, const PictureOptions& options)
      : inspection_(inspection),
        attention_(attention),
        queries_(inspection.texts[attention.query_text].tokens),
        heads_(heads),
        options_(options),
        rows_(std::move(rows)),
        axis_(axis_over_rows(rows_)),
        pitch_(std::max(1.0, std::floor(std::min(40.0, 880.0 / static_cast<double>(queries_.size()))))),
        step_(label_step(pitch_)),
        svg_(options.theme) {
    for (std::size_t q = 0; q < queries_.size(); ++q) {
      full_.push_back(step_ > 1 ? join(q, " ", shown(queries_[q].text)) : shown(queries_[q].text));
      if (q % step_ == 0) label_height_ = std::max(label_height_, width_of(cut(full_[q], 12, 100), 12));
    }
    // Slanted labels reach below and to the left of their place.
    const double left = margin + widest_tick(axis_) + 8,
                 overhang = std::max(0.0, label_height_ * std::sqrt(0.5) - (left - margin) - pitch_ / 2);
    left_ = std::ceil(left + overhang);
    plot_ = pitch_ * static_cast<double>(queries_.size());
    width_ = std::ceil(std::max(least_width, left_ + plot_ + margin));
  }

  std::string draw(const std::string& title) {
    y_ = draw_title(svg_, title, width_);
    draw_key();
    draw_rules(svg_, axis_, left_, left_ + plot_, y_, panel_height);
    for (std::size_t h = 0; h < heads_.size(); ++h) draw_line(h);
    draw_names();
    return svg_.finish(width_, draw_caption(svg_, caption_parts(inspection_, false, options_), y_, width_), title,
                       text_of(inspection_.texts[attention_.query_text], options_.language));
  }

 private:
  double x_of(std::size_t query) const { return left_ + (static_cast<double>(query) + 0.5) * pitch_; }
  double y_of(float value) const { return y_ + panel_height * (1 - axis_.part(value)); }
  std::string head_name(std::size_t head) const { return number_name(options_.language, "head", heads_[head]); }

  // Which colour is which head.
  void draw_key() {
    double x = left_;
    for (std::size_t h = 0; h < heads_.size(); ++h) {
      const std::string name = head_name(h);
      const double needed = 26 + width_of(name, 12) + 18;
      if (x + needed > width_ - margin + 18 && x > left_) x = left_, y_ += 20;
      svg_.stroke_path(join("M", pixels(x), " ", pixels(y_ + 6), "h20"), svg_.colours().heads[h], 2, 1, {});
      svg_.text(x + 26, y_ + 10, name, {12, svg_.colours().ink, Anchor::start, false, 0, {}});
      x += needed;
    }
    y_ += 28;
  }

  // Interrupted where numbers are missing; with points where there is room.
  void draw_line(std::size_t h) {
    const Palette& colours = svg_.colours();
    std::string path;
    bool drawing = false;
    for (std::size_t q = 0; q < queries_.size(); ++q) {
      const float value = rows_[h][q];
      if (std::isfinite(value)) path += join(drawing ? "L" : "M", pixels(x_of(q)), " ", pixels(y_of(value)));
      drawing = std::isfinite(value);
    }
    if (!path.empty()) svg_.stroke_path(path, colours.heads[h], 2, 1, head_name(h));
    for (std::size_t q = 0; q < queries_.size() && pitch_ >= 10; ++q)
      if (const float value = rows_[h][q]; std::isfinite(value))
        svg_.circle(x_of(q), y_of(value), 3, colours.heads[h], colours.paper, 1,
                    join(shown(queries_[q].text), ", ", head_name(h), ": ", shortest(value)));
  }

  // Names of the queries under the plot, and what they are.
  void draw_names() {
    const Palette& colours = svg_.colours();
    for (std::size_t q = 0; q < queries_.size(); q += step_) {
      const double at = x_of(q);
      const std::string text = cut(full_[q], 12, 100);
      svg_.line(at, y_ + panel_height, at, y_ + panel_height + 4, colours.soft);
      svg_.text(at + 4, y_ + panel_height + 16, text,
                {12, queries_[q].special ? colours.soft : colours.ink, Anchor::end, false, -45,
                 text == full_[q] ? "" : full_[q]});
    }
    y_ += panel_height + 20 + std::ceil(label_height_ * std::sqrt(0.5));
    const PictureLanguage language = options_.language;
    const std::string name = join(say(language, "queries"), language == PictureLanguage::chinese ? "：" : ": ",
                                  say(language, clean(inspection_.texts[attention_.query_text].name)), " \u2192");
    svg_.text(std::max(left_ + plot_, margin + 1.1 * width_of(name, 12)), y_ + 12, name,
              {12, colours.query, Anchor::end, true, 0, {}});
    y_ += 14;
  }

  const Inspection& inspection_;
  const ShownAttention& attention_;
  const std::span<const ShownToken> queries_;
  const std::vector<int>& heads_;
  const PictureOptions& options_;
  const std::vector<std::span<const float>> rows_;
  const Axis axis_;
  const double pitch_;
  const std::size_t step_;
  Svg svg_;
  std::vector<std::string> full_;  // names of the queries, with their numbers where not all are written
  double label_height_ = 0, left_ = 0, plot_ = 0, width_ = 0, y_ = 0;
};

}  // namespace

std::string row_lines_svg(const Inspection& inspection, const std::string& attention_name, int layer,
                          const std::vector<int>& heads, const std::string& statistic_name,
                          const PictureOptions& options) {
  check(inspection);
  const ShownAttention& attention = attention_named(inspection, attention_name);
  const RowStatistic& statistic = statistic_named(attention, statistic_name);
  const PictureLanguage language = options.language;
  const bool chinese = language == PictureLanguage::chinese;
  const std::string title = whole_title(
      options, join(attention_text(language, attention_name), chinese ? "，" : ", ",
                    layer == mean_of_all ? say(language, "mean over layers") : join(say(language, "layer"), " ", layer),
                    chinese ? "：" : ": ", with_unit(statistic.name, statistic.unit, language)));
  return RowLinesPicture(inspection, attention, heads, rows_of(inspection, attention, layer, heads, statistic), options)
      .draw(title);
}

std::string outcomes_svg(const Inspection& inspection, const PictureOptions& options) {
  check(inspection);
  if (inspection.outcomes.empty())
    throw Error(ErrorKind::argument, "picture of outcomes", "the inspection holds no outcomes", "run it with edits");
  const PictureLanguage language = options.language;
  std::vector<double> all;
  std::vector<std::string> full, texts;
  double label_width = 0;
  for (const Outcome& outcome : inspection.outcomes) {
    all.insert(all.end(), {outcome.base, outcome.edited});
    full.push_back(shown(outcome.token.text));
    texts.push_back(cut(full.back(), 14, 180));
    label_width = std::max(label_width, std::ceil(width_of(texts.back(), 14)));
  }
  const Axis axis = axis_over(all, 6, false);
  constexpr double plot = 360, pitch = 28, column = 66;
  const double left = margin + label_width + 20, width = left + plot + 24 + 3 * column + margin;
  const std::string unit = say(language, clean(inspection.outcome_unit));
  const std::string title =
      whole_title(options, language == PictureLanguage::chinese ? join("编辑前后：", unit)
                                                                : join("Before and after the edits: ", unit));
  Svg svg(options.theme);
  const Palette& colours = svg.colours();
  double y = draw_title(svg, title, width);
  // The key stands above the plot, the headings of the numbers above their columns.
  svg.circle(left + 6, y + 6, 5, colours.paper, colours.soft, 2);
  svg.text(left + 18, y + 10, say(language, "base"), {12, colours.ink, Anchor::start, false, 0, {}});
  const double second = left + 18 + width_of(say(language, "base"), 12) + 24;
  svg.circle(second + 6, y + 6, 5, colours.edited, colours.edited, 2);
  svg.text(second + 18, y + 10, say(language, "edited"), {12, colours.ink, Anchor::start, false, 0, {}});
  const char* headings[] = {"base", "edited", "change"};
  for (int i = 0; i < 3; ++i)
    svg.text(left + plot + 24 + column * (i + 1), y + 10, say(language, headings[i]),
             {12, colours.soft, Anchor::end, false, 0, {}});
  y += 26;
  const double bottom = y + pitch * static_cast<double>(inspection.outcomes.size());
  for (double tick : axis.ticks()) {
    const double x = std::round(left + plot * axis.part(tick)) + 0.5;
    svg.line(x, y, x, bottom, tick == 0 ? colours.soft : colours.rule);
    svg.text(x, bottom + 16, tick_text(tick), {11, colours.soft, Anchor::middle, false, 0, {}});
  }
  for (std::size_t i = 0; i < inspection.outcomes.size(); ++i) {
    const Outcome& outcome = inspection.outcomes[i];
    const double middle = y + pitch * (static_cast<double>(i) + 0.5);
    svg.text(left - 20, centred(middle, 14), texts[i],
             {14, outcome.token.special ? colours.soft : colours.ink, Anchor::end, false, 0,
              texts[i] == full[i] ? "" : full[i]});
    const double base = left + plot * axis.part(outcome.base), edited = left + plot * axis.part(outcome.edited);
    const bool both = std::isfinite(outcome.base) && std::isfinite(outcome.edited);
    if (both && std::abs(edited - base) > 1) svg.line(base, middle, edited, middle, colours.edited, 3);
    if (std::isfinite(outcome.base)) svg.circle(base, middle, 5, colours.paper, colours.soft, 2);
    if (std::isfinite(outcome.edited)) svg.circle(edited, middle, 5, colours.edited, colours.paper, 1);
    const double change = outcome.edited - outcome.base;
    const std::string numbers[] = {three_decimals(outcome.base), three_decimals(outcome.edited),
                                   join(change > 0 ? "+" : "", three_decimals(change))};
    for (int k = 0; k < 3; ++k)
      svg.text(left + plot + 24 + column * (k + 1), centred(middle, 12), numbers[k],
               {12, k == 2 ? colours.ink : colours.soft, Anchor::end, k == 2, 0, {}});
  }
  y = bottom + 26;
  return svg.finish(width, draw_caption(svg, caption_parts(inspection, false, options), y, width), title, {});
}

}  // namespace attend
