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

namespace {

// Small matrices of about so many pixels; above `most_places` tokens neighbours share a pixel.
constexpr std::size_t target_size = 84, most_places = 96, most_shapes = 4096;
// Few tokens have their names beside the matrices of the first head and above those of the first layer.
constexpr std::size_t most_labelled = 16, most_labelled_heads = 8;
constexpr int least_labelled = 13;
constexpr double label_size = 10, longest_label = 80, gap = 16;

double widest_label(std::span<const ShownToken> tokens) {
  double widest = 0;
  for (const ShownToken& token : tokens)
    widest = std::max(widest, width_of(cut(shown(token.text), label_size, longest_label), label_size));
  return std::ceil(widest);
}

// The picture, part by part from the top.
class WallPicture {
 public:
  WallPicture(const Inspection& inspection, const ShownAttention& attention, const std::string& measure,
              const HeadMetric* metric, const PictureOptions& options)
      : inspection_(inspection), attention_(attention), metric_(metric), options_(options), svg_(options.theme) {
    double largest = 0;
    for (int layer : attention.layers)
      for (int head : attention.heads) {
        matrices_.push_back(matrix_at(inspection, {attention.name, layer, head}, measure));
        largest = std::max(largest, matrices_.back().largest());
      }
    scale_ = scale_for(first().measure->kind, largest, options.logarithmic);
    lay_out();
  }

  std::string draw(const std::string& title) {
    y_ = draw_title(svg_, title, width_);
    draw_head_names();
    for (std::size_t l = 0; l < attention_.layers.size(); ++l) {
      draw_layer_names(l);
      for (std::size_t h = 0; h < attention_.heads.size(); ++h) draw_head(l * attention_.heads.size() + h, left_of(h));
      y_ += small_height_ + (metric_ ? 18 : 0) + gap;
    }
    draw_legend();
    return svg_.finish(width_, draw_caption(svg_, caption(), y_, width_), title,
                       description_of(inspection_, attention_, options_.language));
  }

 private:
  const Matrix& first() const { return matrices_[0]; }
  bool chinese() const { return options_.language == PictureLanguage::chinese; }
  std::string named(const char* what, int number) const {
    return number == mean_of_all ? say(options_.language, "mean") : join(say(options_.language, what), " ", number);
  }
  double left_of(std::size_t head) const {
    return margin + label_width_ + query_room_ + pitch_x_ * static_cast<double>(head);
  }

  void lay_out() {
    const std::size_t longest = std::max(first().rows(), first().columns());
    merged_ = (longest + most_places - 1) / most_places;
    const std::size_t places = (longest + merged_ - 1) / merged_;
    labelled_ = longest <= most_labelled && attention_.heads.size() <= most_labelled_heads;
    size_ = std::max(static_cast<int>(std::max<std::size_t>(1, (target_size + places / 2) / places)),
                     labelled_ ? least_labelled : 1);
    query_room_ = labelled_ ? widest_label(first().queries) + 8 : 0;
    key_room_ = labelled_ ? std::ceil(widest_label(first().keys) * std::sqrt(0.5)) + 8 : 0;
    rows_ = (first().rows() + merged_ - 1) / merged_;
    columns_ = (first().columns() + merged_ - 1) / merged_;
    small_width_ = static_cast<double>(columns_) * size_;
    small_height_ = static_cast<double>(rows_) * size_;
    pitch_x_ = std::max(small_width_, metric_ ? 44.0 : 20.0) + gap;
    for (int layer : attention_.layers)
      label_width_ = std::max(label_width_, std::ceil(width_of(named("layer", layer), 12)) + 12);
    width_ =
        std::ceil(std::max(least_width, 2 * margin + label_width_ + query_room_ +
                                            pitch_x_ * static_cast<double>(attention_.heads.size()) - gap + key_room_));
  }

  // A name has the whole token in its tooltip where it was cut.
  void draw_label(double x, double y, const ShownToken& token, Anchor anchor, double turn) {
    const std::string full = shown(token.text), text = cut(full, label_size, longest_label);
    svg_.text(x, y, text,
              {label_size, token.special ? svg_.colours().soft : svg_.colours().ink, anchor, false, turn,
               text == full ? "" : full});
  }

  // Numbers of the heads, and below them the names of the keys.
  void draw_head_names() {
    double widest = 0;
    for (int head : attention_.heads) widest = std::max(widest, width_of(named("head", head), 12));
    const bool short_names = widest > pitch_x_ - 8, all = of_all_heads(attention_.name);
    for (std::size_t h = 0; h < attention_.heads.size() && !all; ++h) {
      const int head = attention_.heads[h];
      svg_.text(left_of(h) + small_width_ / 2, y_ + 12,
                short_names && head != mean_of_all ? std::to_string(head) : named("head", head),
                {12, svg_.colours().soft, Anchor::middle, false, 0, {}});
    }
    y_ += (all ? 4 : 22) + key_room_;
    for (std::size_t h = 0; labelled_ && h < attention_.heads.size(); ++h)
      for (std::size_t k = 0; k < first().columns(); ++k)
        draw_label(left_of(h) + (static_cast<double>(k) + 0.5) * size_ + 3, y_ - 4, first().keys[k], Anchor::start,
                   -45);
  }

  // The number of a layer, and the names of the queries.
  void draw_layer_names(std::size_t layer) {
    svg_.text(margin + label_width_ - 12, centred(y_ + small_height_ / 2, 12), named("layer", attention_.layers[layer]),
              {12, svg_.colours().soft, Anchor::end, false, 0, {}});
    for (std::size_t q = 0; labelled_ && q < first().rows(); ++q)
      draw_label(left_of(0) - 5, centred(y_ + (static_cast<double>(q) + 0.5) * size_, label_size), first().queries[q],
                 Anchor::end, 0);
  }

  void draw_head(std::size_t index, double x) {
    const Places small = merged_places(matrices_[index], merged_, merged_);
    const std::string masked = rows_ * columns_ <= most_shapes ? draw_shapes(small, x) : draw_image(small, x);
    svg_.hatch_path(masked);
    any_blocked_ |= !masked.empty();
    svg_.outline(x - 0.5, y_ - 0.5, small_width_ + 1, small_height_ + 1, svg_.colours().rule, 1);
    if (metric_)
      svg_.text(x + small_width_ / 2, y_ + small_height_ + 14, three_decimals(metric_->values[index]),
                {11, svg_.colours().ink, Anchor::middle, false, 0, {}});
  }

  // Cells [begin, end) of a row.
  std::string run_path(double x, std::size_t row, std::size_t begin, std::size_t end) const {
    return rect_path(x + static_cast<double>(begin) * size_, y_ + static_cast<double>(row) * size_,
                     static_cast<double>(end - begin) * size_, size_);
  }

  // Few shades, and neighbours of one shade as one shape: hundreds of heads stay a small file. Gives the path of what is
  // masked.
  std::string draw_shapes(const Places& small, double x) {
    constexpr int masked_shade = -2, unknown_shade = -1;
    const auto shade_at = [&](std::size_t at) {
      if (small.blocked[at]) return masked_shade;
      if (std::isnan(small.values[at])) return unknown_shade;
      const int shade = scale_.index(small.values[at]);
      return scale_.is_signed ? std::clamp(128 + (shade - 128) / 4 * 4, 1, 255)
                              : shade / 4 * 4 + (shade >= 252 ? 3 : 0);
    };
    std::string masked;
    std::map<int, std::string> paths;
    for (std::size_t row = 0; row < rows_; ++row)
      for (std::size_t column = 0; column < columns_;) {
        const std::size_t begin = column;
        const int shade = shade_at(row * columns_ + begin);
        while (column < columns_ && shade_at(row * columns_ + column) == shade) ++column;
        if (shade == unknown_shade) any_unknown_ = true;
        else (shade == masked_shade ? masked : paths[shade]) += run_path(x, row, begin, column);
      }
    const auto& shades = ramp(options_.theme, scale_.is_signed);
    for (const auto& [shade, path] : paths) svg_.fill_path(path, shades[static_cast<std::size_t>(shade)]);
    return masked;
  }

  // Many cells as an image.
  std::string draw_image(const Places& small, double x) {
    std::vector<std::uint8_t> indices(rows_ * columns_);
    for (std::size_t i = 0; i < indices.size(); ++i)
      indices[i] = static_cast<std::uint8_t>(scale_.index(std::isnan(small.values[i]) ? 0 : small.values[i]));
    svg_.image(x, y_, columns_, rows_, size_, size_, indices, ramp(options_.theme, scale_.is_signed));
    std::string masked;
    for (std::size_t row = 0; row < rows_; ++row)
      for (std::size_t column = 0; column < columns_;) {
        const std::size_t begin = column;
        while (column < columns_ && small.blocked[row * columns_ + column]) ++column;
        if (column > begin) masked += run_path(x, row, begin, column);
        else ++column;
      }
    svg_.fill_path(masked, svg_.colours().paper);
    return masked;
  }

  void draw_legend() {
    const PictureLanguage language = options_.language;
    y_ += 4;
    double x = margin + draw_colour_bar(svg_, margin, y_, scale_,
                                        with_unit(first().measure->name, first().measure->unit, language));
    if (any_blocked_) {
      const std::string name = say(language, "masked");
      const bool below = x + 28 + width_of(name, 12) > width_ - margin;
      if (below) x = margin, y_ += 38;
      draw_hatch_key(svg_, x, y_, name);
      if (below) y_ -= 16;
    }
    y_ += 34;
  }

  std::vector<std::string> caption() const {
    const PictureLanguage language = options_.language;
    std::vector<std::string> parts = caption_parts(inspection_, scale_.is_signed, options_);
    if (!options_.caption) return parts;
    if (metric_) {
      const std::string name = with_unit(metric_->name, metric_->unit, language);
      parts.insert(parts.begin(), chinese() ? join("图下数字：", name) : join("below each head: ", name));
    }
    const std::string key_name = say(language, clean(inspection_.texts[attention_.key_text].name));
    const std::string query_name = say(language, clean(inspection_.texts[attention_.query_text].name));
    parts.insert(parts.begin(), chinese() ? join("行：查询（", query_name, "），列：键（", key_name, "）")
                                          : join("rows: queries (", query_name, "), columns: keys (", key_name, ")"));
    if (merged_ > 1)
      parts.push_back(join(say(language, "one pixel shows the largest of"), " ", merged_, " \u00D7 ", merged_, " ",
                           say(language, "cells")));
    if (any_unknown_) parts.push_back(chinese() ? "空白：未测量" : "blank: not measured");
    return parts;
  }

  const Inspection& inspection_;
  const ShownAttention& attention_;
  const HeadMetric* const metric_;
  const PictureOptions& options_;
  std::vector<Matrix> matrices_;  // layer by layer
  Scale scale_;
  Svg svg_;
  std::size_t merged_ = 1, rows_ = 0, columns_ = 0;  // cells of a matrix that share a pixel, along a side; places
  int size_ = 1;                                     // pixels of a place
  bool labelled_ = false, any_blocked_ = false, any_unknown_ = false;
  double small_width_ = 0, small_height_ = 0, pitch_x_ = 0;
  double label_width_ = 0, query_room_ = 0, key_room_ = 0, width_ = 0, y_ = 0;
};

}  // namespace

std::string wall_svg(const Inspection& inspection, const std::string& attention_name, const std::string& measure,
                     const std::string& metric_name, const PictureOptions& options) {
  check(inspection);
  const ShownAttention& attention = attention_named(inspection, attention_name);
  const HeadMetric* metric = metric_name.empty() ? nullptr : &metric_named(attention, metric_name);
  const std::string title =
      options.title.empty()
          ? with_measure(options.language, attention_text(options.language, attention_name), attention_name, measure)
          : clean(options.title);
  return WallPicture(inspection, attention, measure, metric, options).draw(title);
}

}  // namespace attend
