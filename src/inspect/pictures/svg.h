// Writes one SVG: presentation attributes only, so that every program that reads SVG shows the same.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "attend/pictures.h"
#include "inspect/pictures/colours.h"

namespace attend::pictures {

enum class Anchor { start, middle, end };

struct TextStyle {
  double size = 12;
  Colour colour;
  Anchor anchor = Anchor::start;
  bool bold = false;
  double turn = 0;      // degrees, around the text's own point
  std::string tooltip;  // not escaped yet; empty for none
};

class Svg {
 public:
  explicit Svg(Theme theme) : theme_(theme), colours_(palette(theme)) {}

  Theme theme() const { return theme_; }
  const Palette& colours() const { return colours_; }

  // Texts are well-formed but not escaped: that happens here and nowhere else. y is the base line.
  void text(double x, double y, std::string_view text, const TextStyle& style);
  void rect(double x, double y, double width, double height, Colour fill, std::string_view tooltip = {},
            double radius = 0);
  void gradient_rect(double x, double y, double width, double height, bool is_signed);  // filled with the ramp
  void outline(double x, double y, double width, double height, Colour stroke, double stroke_width, double radius = 0);
  void line(double x1, double y1, double x2, double y2, Colour stroke, double stroke_width = 1);
  // `data` is path data made by us.
  void fill_path(std::string_view data, Colour fill);
  void stroke_path(std::string_view data, Colour stroke, double stroke_width, double opacity,
                   std::string_view tooltip = {});
  void circle(double x, double y, double radius, Colour fill, Colour stroke, double stroke_width,
              std::string_view tooltip = {});
  void hatch_path(std::string_view data);
  // Cells of whole pixels, as an embedded PNG.
  void image(double x, double y, std::size_t columns, std::size_t rows, int cell_width, int cell_height,
             std::span<const std::uint8_t> indices, const std::array<Colour, 256>& ramp_colours);

  // The whole file. `name` and `description` are what a screen reader says.
  std::string finish(double width, double height, std::string_view name, std::string_view description) const;

 private:
  Theme theme_;
  const Palette& colours_;
  std::string body_;
  bool hatched_ = false;
  std::array<bool, 2> used_gradient_{};
};

// The families all pictures ask for, in order: the system's own face, then Chinese ones.
const char* font_families();
// "M1 2h3v4h-3z" of a rectangle.
std::string rect_path(double x, double y, double width, double height);

// Where the base line lies so that letters of this size look centred on y.
inline double centred(double y, double size) { return y + 0.36 * size; }

// The same for all pictures.
inline constexpr double margin = 24, least_width = 400;

// Draws the title (wrapped to `width`) and says where the figure begins. `width` is that of the whole picture.
double draw_title(Svg& svg, const std::string& title, double width);
// Draws the caption below `y` and returns the height of the whole picture.
double draw_caption(Svg& svg, const std::vector<std::string>& parts, double y, double width);
// Model, fingerprint, effects' target, edits and note, as caption parts.
std::vector<std::string> caption_parts(const Inspection& inspection, bool names_target, const PictureOptions& options);

// A horizontal colour bar, 30 high with its numbers, its name to the left; returns its width with the gap after it.
double draw_colour_bar(Svg& svg, double x, double y, const Scale& scale, const std::string& name);
// "[hatch] masked" and the like; returns the width.
double draw_hatch_key(Svg& svg, double x, double y, const std::string& name);

}  // namespace attend::pictures
