#include "inspect/pictures/colours.h"

#include <algorithm>
#include <cmath>
#include <numbers>

namespace attend::pictures {
namespace {

double from_srgb(double c) { return c <= 0.04045 ? c / 12.92 : std::pow((c + 0.055) / 1.055, 2.4); }
double to_srgb(double c) { return c <= 0.0031308 ? 12.92 * c : 1.055 * std::pow(c, 1 / 2.4) - 0.055; }

struct Linear {
  double red, green, blue;
  bool inside() const {
    constexpr double slack = 1e-4;
    return std::min({red, green, blue}) >= -slack && std::max({red, green, blue}) <= 1 + slack;
  }
};

// B. Ottosson, "A perceptual color space for image processing" (2020).
Linear from_oklch(double lightness, double chroma, double hue) {
  const double a = chroma * std::cos(hue * std::numbers::pi / 180), b = chroma * std::sin(hue * std::numbers::pi / 180);
  const double l = std::pow(lightness + 0.3963377774 * a + 0.2158037573 * b, 3);
  const double m = std::pow(lightness - 0.1055613458 * a - 0.0638541728 * b, 3);
  const double s = std::pow(lightness - 0.0894841775 * a - 1.2914855480 * b, 3);
  return {4.0767416621 * l - 3.3077115913 * m + 0.2309699292 * s,
          -1.2684380046 * l + 2.6097574011 * m - 0.3413193965 * s,
          -0.0041960863 * l - 0.7034186147 * m + 1.7076147010 * s};
}

// The colour of this lightness and hue with at most this chroma that a screen can show.
Colour colour_of(double lightness, double chroma, double hue) {
  Linear linear = from_oklch(lightness, chroma, hue);
  while (!linear.inside() && chroma > 0)
    chroma = std::max(0.0, chroma - 0.002), linear = from_oklch(lightness, chroma, hue);
  const auto byte = [](double c) {
    return static_cast<std::uint8_t>(std::lround(255 * to_srgb(std::clamp(c, 0.0, 1.0))));
  };
  return {byte(linear.red), byte(linear.green), byte(linear.blue)};
}

std::array<Colour, 256> single_hue(Theme theme) {
  std::array<Colour, 256> colours;
  for (int i = 0; i < 256; ++i) {
    const double t = i / 255.0;
    const double bow = 4 * t * (1 - t);  // most colour in the middle
    colours[static_cast<std::size_t>(i)] = theme == Theme::light
                                               ? colour_of(0.968 - 0.69 * t, 0.012 + 0.11 * t + 0.09 * bow, 300)
                                               : colour_of(0.235 + 0.69 * t, 0.02 + 0.05 * t + 0.14 * bow, 300);
  }
  return colours;
}

std::array<Colour, 256> two_hues(Theme theme) {
  std::array<Colour, 256> colours;
  for (int i = 0; i < 256; ++i) {
    const double t = std::clamp((i - 128) / 127.0, -1.0, 1.0), size = std::abs(t), hue = t < 0 ? 58 : 196;
    colours[static_cast<std::size_t>(i)] = theme == Theme::light
                                               ? colour_of(0.968 - 0.56 * size, 0.16 * std::sqrt(size), hue)
                                               : colour_of(0.245 + 0.62 * size, 0.15 * std::sqrt(size), hue);
  }
  return colours;
}

constexpr Colour rgb(std::uint32_t value) {
  return {static_cast<std::uint8_t>(value >> 16), static_cast<std::uint8_t>(value >> 8),
          static_cast<std::uint8_t>(value)};
}

// The next number that halves to a round number.
double round_end(double largest) {
  const double power = std::pow(10.0, std::floor(std::log10(largest) + 1e-9));
  for (double mantissa : {1.0, 1.2, 1.6, 2.0, 3.0, 4.0, 5.0, 6.0, 8.0})
    if (largest <= mantissa * power * (1 + 1e-6)) return mantissa * power;
  return 10 * power;
}

}  // namespace

std::string hexadecimal(Colour colour) {
  constexpr char digits[] = "0123456789abcdef";
  std::string out = "#";
  for (std::uint8_t byte : {colour.red, colour.green, colour.blue}) out += digits[byte >> 4], out += digits[byte & 15];
  return out;
}

double luminance(Colour colour) {
  return 0.2126 * from_srgb(colour.red / 255.0) + 0.7152 * from_srgb(colour.green / 255.0) +
         0.0722 * from_srgb(colour.blue / 255.0);
}

const Palette& palette(Theme theme) {
  static constexpr Palette light{rgb(0xffffff),
                                 rgb(0x1f2328),
                                 rgb(0x5c646d),
                                 rgb(0xd8dee4),
                                 rgb(0xb4bbc3),
                                 rgb(0x0064b0),
                                 rgb(0xb04e00),
                                 rgb(0xbb1272),
                                 {rgb(0x0072b2), rgb(0xd55e00), rgb(0x009e73), rgb(0xcc79a7), rgb(0xe69f00),
                                  rgb(0x56b4e9), rgb(0x333333), rgb(0xa89a00)}};
  static constexpr Palette dark{rgb(0x0d1117),
                                rgb(0xe6edf3),
                                rgb(0x9aa4ae),
                                rgb(0x30363d),
                                rgb(0x59626c),
                                rgb(0x70b8ff),
                                rgb(0xffac5f),
                                rgb(0xff74b9),
                                {rgb(0x4da6e8), rgb(0xff8a3d), rgb(0x1fc998), rgb(0xe39dc4), rgb(0xf2b633),
                                 rgb(0x8fd3ff), rgb(0xe6edf3), rgb(0xd9cd3f)}};
  return theme == Theme::light ? light : dark;
}

const std::array<Colour, 256>& ramp(Theme theme, bool is_signed) {
  static const std::array<Colour, 256> ramps[2][2] = {{single_hue(Theme::light), two_hues(Theme::light)},
                                                      {single_hue(Theme::dark), two_hues(Theme::dark)}};
  return ramps[theme == Theme::dark][is_signed];
}

namespace {

double contrast(Colour a, Colour b) {
  const double light = luminance(a) + 0.05, dark = luminance(b) + 0.05;
  return std::max(light, dark) / std::min(light, dark);
}

}  // namespace

Colour text_on(Theme theme, Colour background) {
  const Palette& colours = palette(theme);
  return contrast(colours.ink, background) >= contrast(colours.paper, background) ? colours.ink : colours.paper;
}

double contrast_on(Theme theme, Colour background) { return contrast(text_on(theme, background), background); }

double Scale::place(double value) const {
  if (is_signed) return std::clamp(value / high, -1.0, 1.0);
  if (logarithmic) return value <= 0 ? 0 : std::clamp(1 + std::log10(value / high) / 3, 0.0, 1.0);
  return std::clamp(value / high, 0.0, 1.0);
}

int Scale::index(double value) const {
  const double at = place(value);
  return static_cast<int>(std::lround(is_signed ? 128 + 127 * at : 255 * at));
}

Scale scale_for(MeasureKind kind, double largest, bool logarithmic) {
  Scale scale;
  scale.is_signed = kind == MeasureKind::effect;
  scale.logarithmic = logarithmic && !scale.is_signed;
  if (!(largest > 1e-30)) largest = 1;
  if (scale.logarithmic) {
    scale.high = std::pow(10.0, std::ceil(std::log10(largest) - 1e-9));
    return scale;
  }
  scale.high = round_end(largest);
  return scale;
}

}  // namespace attend::pictures
