#include "inspect/pictures/svg.h"

#include <algorithm>
#include <cmath>

#include "attend/error.h"
#include "inspect/pictures/image.h"
#include "inspect/pictures/text.h"

namespace attend::pictures {
namespace {

const char* theme_name(Theme theme) { return theme == Theme::light ? "light" : "dark"; }

std::string titled(std::string_view tooltip) { return join("<title>", escaped(tooltip), "</title>"); }

// "/>" or "><title>..</title></NAME>".
std::string closed(std::string_view element, std::string_view tooltip) {
  return tooltip.empty() ? "/>\n" : join(">", titled(tooltip), "</", element, ">\n");
}

std::string gradient_name(Theme theme, bool is_signed) {
  return join("attend-ramp-", theme_name(theme), is_signed ? "-signed" : "");
}

}  // namespace

const char* font_families() {
  return "system-ui,-apple-system,Segoe UI,Noto Sans,PingFang SC,Noto Sans SC,Noto Sans CJK SC,Microsoft YaHei,"
         "WenQuanYi Micro Hei,sans-serif";
}

std::string rect_path(double x, double y, double width, double height) {
  return join("M", pixels(x), " ", pixels(y), "h", pixels(width), "v", pixels(height), "h", pixels(-width), "z");
}

void Svg::text(double x, double y, std::string_view text, const TextStyle& style) {
  body_ += join("<text x=\"", pixels(x), "\" y=\"", pixels(y), "\" font-size=\"", pixels(style.size), "\" fill=\"",
                hexadecimal(style.colour), "\"");
  if (style.anchor != Anchor::start)
    body_ += style.anchor == Anchor::middle ? " text-anchor=\"middle\"" : " text-anchor=\"end\"";
  if (style.bold) body_ += " font-weight=\"bold\"";
  if (style.turn != 0) body_ += join(" transform=\"rotate(", pixels(style.turn), " ", pixels(x), " ", pixels(y), ")\"");
  body_ += join(">", style.tooltip.empty() ? "" : titled(style.tooltip), escaped(text), "</text>\n");
}

void Svg::rect(double x, double y, double width, double height, Colour fill, std::string_view tooltip, double radius) {
  body_ += join("<rect x=\"", pixels(x), "\" y=\"", pixels(y), "\" width=\"", pixels(width), "\" height=\"",
                pixels(height), "\"");
  if (radius > 0) body_ += join(" rx=\"", pixels(radius), "\"");
  body_ += join(" fill=\"", hexadecimal(fill), "\"", closed("rect", tooltip));
}

void Svg::gradient_rect(double x, double y, double width, double height, bool is_signed) {
  used_gradient_[is_signed] = true;
  body_ += join("<rect x=\"", pixels(x), "\" y=\"", pixels(y), "\" width=\"", pixels(width), "\" height=\"",
                pixels(height), "\" fill=\"url(#", gradient_name(theme_, is_signed), ")\"/>\n");
}

void Svg::outline(double x, double y, double width, double height, Colour stroke, double stroke_width, double radius) {
  body_ += join("<rect x=\"", pixels(x), "\" y=\"", pixels(y), "\" width=\"", pixels(width), "\" height=\"",
                pixels(height), "\"");
  if (radius > 0) body_ += join(" rx=\"", pixels(radius), "\"");
  body_ += join(" fill=\"none\" stroke=\"", hexadecimal(stroke), "\" stroke-width=\"", pixels(stroke_width), "\"/>\n");
}

void Svg::line(double x1, double y1, double x2, double y2, Colour stroke, double stroke_width) {
  body_ += join("<line x1=\"", pixels(x1), "\" y1=\"", pixels(y1), "\" x2=\"", pixels(x2), "\" y2=\"", pixels(y2),
                "\" stroke=\"", hexadecimal(stroke), "\" stroke-width=\"", pixels(stroke_width), "\"/>\n");
}

void Svg::fill_path(std::string_view data, Colour fill) {
  if (!data.empty())
    body_ += join("<path shape-rendering=\"crispEdges\" fill=\"", hexadecimal(fill), "\" d=\"", data, "\"/>\n");
}

void Svg::stroke_path(std::string_view data, Colour stroke, double stroke_width, double opacity,
                      std::string_view tooltip) {
  body_ += join("<path fill=\"none\" stroke=\"", hexadecimal(stroke), "\" stroke-width=\"", pixels(stroke_width), "\"");
  if (opacity < 1) body_ += join(" stroke-opacity=\"", pixels(opacity), "\"");
  body_ += join(" stroke-linejoin=\"round\" d=\"", data, "\"", closed("path", tooltip));
}

void Svg::circle(double x, double y, double radius, Colour fill, Colour stroke, double stroke_width,
                 std::string_view tooltip) {
  body_ += join("<circle cx=\"", pixels(x), "\" cy=\"", pixels(y), "\" r=\"", pixels(radius), "\" fill=\"",
                hexadecimal(fill), "\" stroke=\"", hexadecimal(stroke), "\" stroke-width=\"", pixels(stroke_width),
                "\"", closed("circle", tooltip));
}

void Svg::hatch_path(std::string_view data) {
  if (data.empty()) return;
  hatched_ = true;
  body_ += join("<path fill=\"url(#attend-hatch-", theme_name(theme_), ")\" d=\"", data, "\"/>\n");
}

void Svg::image(double x, double y, std::size_t columns, std::size_t rows, int cell_width, int cell_height,
                std::span<const std::uint8_t> indices, const std::array<Colour, 256>& ramp_colours) {
  // Not every program honours image-rendering: with a pixel of its own for every pixel shown, cells stay sharp anyway.
  const auto across = static_cast<std::size_t>(cell_width), down = static_cast<std::size_t>(cell_height);
  const std::size_t width = columns * across, height = rows * down;
  std::vector<std::uint8_t> pixel_indices(width * height);
  for (std::size_t y_pixel = 0; y_pixel < height; ++y_pixel)
    for (std::size_t x_pixel = 0; x_pixel < width; ++x_pixel)
      pixel_indices[y_pixel * width + x_pixel] = indices[y_pixel / down * columns + x_pixel / across];
  body_ +=
      join("<image x=\"", pixels(x), "\" y=\"", pixels(y), "\" width=\"", width, "\" height=\"", height,
           "\" preserveAspectRatio=\"none\" image-rendering=\"pixelated\" href=\"data:image/png;base64,",
           base64(png_bytes(static_cast<int>(width), static_cast<int>(height), pixel_indices, ramp_colours)), "\"/>\n");
}

std::string Svg::finish(double width, double height, std::string_view name, std::string_view description) const {
  std::string out =
      join("<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 ", pixels(width), " ", pixels(height),
           "\" width=\"", pixels(width), "\" height=\"", pixels(height), "\" role=\"img\" font-family=\"",
           font_families(), "\">\n<title>", escaped(name), "</title>\n<desc>", escaped(description), "</desc>\n");
  if (hatched_)
    out += join("<defs><pattern id=\"attend-hatch-", theme_name(theme_),
                "\" width=\"6\" height=\"6\" patternUnits=\"userSpaceOnUse\"><path d=\"M-1 1L1 -1M-1 7L7 -1M5 7L7 5\" "
                "fill=\"none\" stroke=\"",
                hexadecimal(colours_.hatch), "\" stroke-width=\"1\"/></pattern></defs>\n");
  for (bool is_signed : {false, true}) {
    if (!used_gradient_[is_signed]) continue;
    const std::string gradient = gradient_name(theme_, is_signed);
    out += join("<defs><linearGradient id=\"", gradient, "\">");
    for (int i = 0; i <= 16; ++i)
      out += join("<stop offset=\"", pixels(i * 6.25), "%\" stop-color=\"",
                  hexadecimal(ramp(theme_, is_signed)[static_cast<std::size_t>(std::min(255, i * 16))]), "\"/>");
    out += "</linearGradient></defs>\n";
  }
  out += join("<rect width=\"100%\" height=\"100%\" fill=\"", hexadecimal(colours_.paper), "\"/>\n");
  return out.append(body_).append("</svg>\n");
}

double draw_title(Svg& svg, const std::string& title, double width) {
  double y = margin + 4;
  for (const std::string& line : wrapped(title, 17, width - 2 * margin)) {
    svg.text(margin, y + 9, line, {16, svg.colours().ink, Anchor::start, true, 0, {}});
    y += 22;
  }
  return y + 10;
}

double draw_caption(Svg& svg, const std::vector<std::string>& parts, double y, double width) {
  if (parts.empty()) return y + margin;
  std::string whole;
  for (const std::string& part : parts) whole.append(whole.empty() ? "" : " | ").append(part);
  y += 14;
  for (const std::string& line : wrapped(whole, 12, width - 2 * margin)) {
    svg.text(margin, y + 12, line, {12, svg.colours().soft, Anchor::start, false, 0, {}});
    y += 18;
  }
  return y + margin - 4;
}

std::vector<std::string> caption_parts(const Inspection& inspection, bool names_target, const PictureOptions& options) {
  std::vector<std::string> parts;
  if (!options.caption) return parts;
  const bool chinese = options.language == PictureLanguage::chinese;
  const char* colon = chinese ? "：" : ": ";
  if (!inspection.model.empty())
    parts.push_back(join(clean(inspection.model),
                         inspection.fingerprint.empty() ? "" : join(" (", clean(inspection.fingerprint), ")")));
  if (names_target && !inspection.target.empty())
    parts.push_back(
        join(chinese ? "切断一条边的效应，对象：" : "effect of cutting an edge on: ", clean(inspection.target)));
  if (!inspection.edits.empty()) {
    std::string list;
    for (const std::string& edit : inspection.edits)
      list.append(list.empty() ? "" : chinese ? "；" : "; ").append(clean(edit));
    parts.push_back(join(say(options.language, "edits"), colon, list));
  }
  if (!inspection.note.empty()) parts.push_back(clean(inspection.note));
  return parts;
}

double draw_colour_bar(Svg& svg, double x, double y, const Scale& scale, const std::string& name) {
  constexpr double width = 160, height = 12;
  const Palette& colours = svg.colours();
  const double name_width = name.empty() ? 0 : width_of(name, 12) + 20;
  if (!name.empty()) svg.text(x, y + height - 2, name, {12, colours.ink, Anchor::start, false, 0, {}});
  const double left = x + name_width;
  svg.gradient_rect(left, y, width, height, scale.is_signed);
  svg.outline(left + 0.5, y + 0.5, width - 1, height - 1, colours.rule, 1);
  const auto tick = [&](double at, const std::string& text) {
    const double tick_x = left + at * width;
    svg.line(tick_x, y + height, tick_x, y + height + 4, colours.soft);
    svg.text(tick_x, y + height + 16, text, {11, colours.soft, Anchor::middle, false, 0, {}});
  };
  if (scale.logarithmic) {
    for (int decade = 0; decade <= 3; ++decade)
      tick(decade / 3.0, join(decade == 0 ? "\u2264" : "", tick_text(scale.high * std::pow(10.0, decade - 3))));
  } else if (scale.is_signed) {
    for (int half = -2; half <= 2; ++half)
      tick(0.5 + 0.25 * half, join(half > 0 ? "+" : "", tick_text(scale.high * half / 2)));
  } else {
    for (int half = 0; half <= 2; ++half) tick(0.5 * half, tick_text(scale.high * half / 2));
  }
  return name_width + width + 32;
}

double draw_hatch_key(Svg& svg, double x, double y, const std::string& name) {
  svg.hatch_path(rect_path(x, y, 20, 12));
  svg.outline(x + 0.5, y + 0.5, 19, 11, svg.colours().rule, 1);
  svg.text(x + 28, y + 10, name, {12, svg.colours().ink, Anchor::start, false, 0, {}});
  return 28 + width_of(name, 12) + 24;
}

}  // namespace attend::pictures
