// Text as pictures need it: escaped, measured, cut, and numbers as people read them.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "attend/pictures.h"

namespace attend::pictures {

// Well-formed, without anything that XML 1.0 or a terminal could stumble over: ill-formed bytes become U+FFFD, control
// and non-characters \x07 or \uFFFE. Blanks in front and behind are cut; what is empty then is U+2423.
std::string shown(std::string_view token);
// `shown` without the cutting of blanks, for names and captions.
std::string clean(std::string_view text);
// &, <, >, " and ' as references: for XML and HTML, text and attributes.
std::string escaped(std::string_view text);

// Width in pixels at a font size. Nobody knows the reader's fonts: Latin letters are measured as DejaVu Sans, the
// widest of the usual ones, so that text of another font leaves some room instead of overlapping.
double width_of(std::string_view text, double size);
// The longest beginning that fits with an ellipsis, or the text itself.
std::string cut(const std::string& text, double size, double width);
// Lines of at most `width`, broken at blanks and around Chinese characters; a longer word is broken anywhere.
std::vector<std::string> wrapped(const std::string& text, double size, double width);

// Three decimals, "4.0e-4" style where these would show nothing, a true minus sign; "0" for 0.
std::string three_decimals(double value);
// Three decimals whatever comes: "0.000" for what is small, "0" only for 0.
std::string in_place(double value);
// Three significant digits at most, no zeros behind: for round numbers on a scale.
std::string tick_text(double value);
// Shortest decimal that reads back to the same float. "nan", "inf" and "-inf" for those.
std::string shortest(float value);
// Coordinates: at most two decimals, no zeros behind.
std::string pixels(double value);

// Words of captions and axes in the reader's language; unknown words stay as they are.
std::string say(PictureLanguage language, std::string_view english);
// "Cross-attention", and with its place: "Cross-attention, layer 2, head 3".
std::string attention_text(PictureLanguage language, std::string_view attention);
std::string place_text(PictureLanguage language, std::string_view attention, int layer, int head);
// Whether an attention is a method's own ("cross rollout"): of all heads together, and named after its only measure.
bool of_all_heads(std::string_view attention);
// "Cross-attention, layer 2, head 3: weight"; the measure is left out where the place says it.
std::string with_measure(PictureLanguage language, const std::string& place, std::string_view attention,
                         std::string_view measure);

}  // namespace attend::pictures
