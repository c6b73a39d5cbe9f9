// Colours by meaning: query blue, key orange, weight violet, edited magenta; effects teal and brown around neutral.
#pragma once

#include <array>
#include <cstdint>
#include <string>

#include "attend/pictures.h"

namespace attend::pictures {

struct Colour {
  std::uint8_t red = 0, green = 0, blue = 0;
  bool operator==(const Colour&) const = default;
};
std::string hexadecimal(Colour colour);  // "#7f4fbf"
double luminance(Colour colour);         // relative, WCAG 2: 0 to 1

struct Palette {
  Colour paper, ink, soft, rule, hatch, query, key, edited;
  std::array<Colour, 8> heads;  // Okabe and Ito's, the yellow darkened to stand out from paper
};
const Palette& palette(Theme theme);

// Ramps hold 256 colours; equal steps differ equally in OKLab lightness (Ottosson 2020).
// Shares and magnitudes: one hue, from nearly paper to nearly ink. Index 0 is 0.
// Effects: brown (negative) to paper to teal (positive); 128 is 0, 1 the most negative, 255 the most positive.
const std::array<Colour, 256>& ramp(Theme theme, bool is_signed);
// Paper or ink, whichever reads better on the colour.
Colour text_on(Theme theme, Colour background);
// How well that reads: the contrast of WCAG 2, 1 to 21. 4.5 is its least for text, 7 what it calls enhanced.
double contrast_on(Theme theme, Colour background);

// From numbers to places on a ramp.
struct Scale {
  double high = 1;  // value of the last colour (and its negative, if signed)
  bool is_signed = false;
  bool logarithmic = false;  // `high` / 1000 and less are colour 0

  // 0 to 1, or -1 to 1 if signed; values beyond the ends are at the ends.
  double place(double value) const;
  int index(double value) const;  // on the ramp
};
// `largest`: the largest finite absolute value to be shown.
Scale scale_for(MeasureKind kind, double largest, bool logarithmic);

}  // namespace attend::pictures
