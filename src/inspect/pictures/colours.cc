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
  static const Palette light{{0xff, 0xff, 0xff},
                             {0x1f, 0x23, 0x28},
                             {0x5c, 0x64, 0x6d},
                             {0xd8, 0xde, 0xe4},
                             {0xb4, 0xbb, 0xc3},
                             {0x00, 0x67, 0xa3},
                             {0xa8, 0x55, 0x00},
                             {0xb5, 0x12, 0x7e},
                             {{{0x00, 0x72, 0xb2},
                               {0xd5, 0x5e, 0x00},
                               {0x00, 0x9e, 0x73},
                               {0xcc, 0x79, 0xa7},
                               {0xe6, 0x9f, 0x00},
                               {0x56, 0xb4, 0xe9},
                               {0x33, 0x33, 0x33},
                               {0xa8, 0x9a, 0x00}}}};
  static const Palette dark{{0x0d, 0x11, 0x17},
                            {0xe6, 0xed, 0xf3},
                            {0x9a, 0xa4, 0xae},
                            {0x30, 0x36, 0x3d},
                            {0x59, 0x62, 0x6c},
                            {0x6c, 0xb6, 0xf0},
                            {0xf2, 0xab, 0x4e},
                            {0xff, 0x7b, 0xc8},
                            {{{0x4d, 0xa6, 0xe8},
                              {0xff, 0x8a, 0x3d},
                              {0x1f, 0xc9, 0x98},
                              {0xe3, 0x9d, 0xc4},
                              {0xf2, 0xb6, 0x33},
                              {0x8f, 0xd3, 0xff},
                              {0xe6, 0xed, 0xf3},
                              {0xd9, 0xcd, 0x3f}}}};
  return theme == Theme::light ? light : dark;
}

const std::array<Colour, 256>& ramp(Theme theme, bool is_signed) {
  static const std::array<Colour, 256> ramps[2][2] = {{single_hue(Theme::light), two_hues(Theme::light)},
                                                      {single_hue(Theme::dark), two_hues(Theme::dark)}};
  return ramps[theme == Theme::dark][is_signed];
}

Colour text_on(Theme theme, Colour background) {
  const Palette& colours = palette(theme);
  const auto contrast = [&](Colour text) {
    const double a = luminance(text) + 0.05, b = luminance(background) + 0.05;
    return std::max(a, b) / std::min(a, b);
  };
  return contrast(colours.ink) >= contrast(colours.paper) ? colours.ink : colours.paper;
}

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
