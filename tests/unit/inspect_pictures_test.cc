#include "attend/pictures.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <set>

#include "attend/error.h"
#include "inspect/pictures/colours.h"
#include "inspect/pictures/text.h"
#include "inspection_fixture.h"
#include "xml_document.h"

namespace attend {
namespace {

const Place place{"cross", 2, 3};

// Every picture of an inspection, with a name for messages.
std::vector<std::pair<std::string, std::string>> pictures_of(const Inspection& inspection,
                                                             const PictureOptions& options = {}) {
  return {{"heat map", heat_map_svg(inspection, place, "weight", options)},
          {"heat map of effects", heat_map_svg(inspection, place, "exact effect", options)},
          {"measures", measures_svg(inspection, place, {"weight", "first-order effect", "exact effect"}, options)},
          {"text", text_svg(inspection, place, "weight", 0, options)},
          {"text of effects", text_svg(inspection, place, "first-order effect", 0, options)}};
}

// All that is live text: <text>, tooltips and the description.
std::string words_in(const std::vector<XmlElement>& elements) {
  std::string words;
  for (const XmlElement& element : elements) words += element.text + "\n";
  return words;
}

std::size_t count_of(const std::vector<XmlElement>& elements, const std::string& name) {
  return static_cast<std::size_t>(
      std::count_if(elements.begin(), elements.end(), [&](const XmlElement& e) { return e.name == name; }));
}

ErrorKind kind_of_refusal(const std::function<void()>& act) {
  try {
    act();
  } catch (const Error& error) {
    EXPECT_NE(std::string(error.what()), "");
    return error.kind();
  }
  ADD_FAILURE() << "nothing was refused";
  return ErrorKind::file;
}

TEST(InspectPictures, AreWellFormedAndHoldEveryToken) {
  for (Theme theme : {Theme::light, Theme::dark})
    for (PictureLanguage language : {PictureLanguage::english, PictureLanguage::chinese})
      for (auto [queries, keys] : std::vector<std::pair<std::size_t, std::size_t>>{
               {1, 1}, {1, 9}, {9, 1}, {3, 40}, {14, 14}, {70, 80}, {3, 200}}) {
        const Inspection inspection = inspection_of(queries, keys, queries > 10);
        for (const auto& [name, svg] : pictures_of(inspection, {theme, language, {}, true, false})) {
          const std::vector<XmlElement> elements = parse_xml(svg);
          EXPECT_EQ(elements.at(0).name, "svg");
          EXPECT_EQ(elements[0].attributes.at("role"), "img");
          const std::string words = words_in(elements);
          for (const ShownText& text : inspection.texts)
            for (const ShownToken& token : text.tokens)
              EXPECT_NE(words.find(token.text), std::string::npos)
                  << name << " of " << queries << " x " << keys << " lacks " << token.text;
        }
      }
}

TEST(InspectPictures, LabelsAreLiveText) {
  const Inspection inspection = inspection_of(5, 6);
  std::multiset<std::string> labels;
  for (const XmlElement& element : parse_xml(heat_map_svg(inspection, place, "weight")))
    if (element.name == "text") labels.insert(element.text);
  std::multiset<std::string> tokens;
  for (const ShownText& text : inspection.texts)
    for (const ShownToken& token : text.tokens) tokens.insert(token.text);
  for (const std::string& token : tokens) EXPECT_EQ(labels.count(token), tokens.count(token)) << token;
}

TEST(InspectPictures, SurviveHostileTokens) {
  Inspection inspection = inspection_of(hostile_tokens().size(), hostile_tokens().size(), false, hostile_tokens());
  inspection.model = "</svg><script>alert(1)</script>";
  inspection.edits = {"]]>", "a & b"};
  inspection.note = "\x02\"'<";
  for (const auto& [name, svg] : pictures_of(inspection)) {
    const std::vector<XmlElement> elements = parse_xml(svg);
    EXPECT_EQ(count_of(elements, "script") + count_of(elements, "img"), 0u) << name;
    for (const XmlElement& element : elements)
      for (const auto& [attribute, value] : element.attributes) {
        EXPECT_FALSE(attribute.starts_with("on")) << name;
        EXPECT_TRUE(attribute != "href" || value.starts_with("data:image/png;base64,")) << name;
      }
    const std::string words = words_in(elements);
    for (const std::string& token : hostile_tokens())
      EXPECT_NE(words.find(pictures::shown(token)), std::string::npos) << name << " lacks " << token;
  }
}

TEST(InspectPictures, NothingLiesOutsideAndSizesAreWhole) {
  for (auto [queries, keys] :
       std::vector<std::pair<std::size_t, std::size_t>>{{1, 1}, {1, 30}, {30, 1}, {12, 12}, {40, 40}, {100, 90}}) {
    for (const auto& [name, svg] : pictures_of(inspection_of(queries, keys, true))) {
      const std::vector<XmlElement> elements = parse_xml(svg);
      const double width = elements[0].number("width"), height = elements[0].number("height");
      EXPECT_EQ(width, std::floor(width)) << name;
      EXPECT_EQ(height, std::floor(height)) << name;
      for (const XmlElement& element : elements) {
        if (element.name == "rect" && element.attributes.at("width") != "100%") {
          EXPECT_GE(element.number("x"), 0) << name;
          EXPECT_LE(element.number("x") + element.number("width"), width) << name << ' ' << queries << ' ' << keys;
          EXPECT_LE(element.number("y") + element.number("height"), height) << name;
        }
        if (element.name != "text") continue;
        const double size = element.number("font-size"), length = pictures::width_of(element.text, size);
        if (!element.attributes.contains("transform")) {
          const std::string anchor =
              element.attributes.contains("text-anchor") ? element.attributes.at("text-anchor") : "start";
          const double begin = element.number("x") - (anchor == "end" ? length : anchor == "middle" ? length / 2 : 0);
          EXPECT_GE(begin, -1) << name << ": " << element.text;
          EXPECT_LE(begin + length, width + 1) << name << ": " << element.text;
        } else {
          EXPECT_GE(element.number("y") -
                        length * (element.attributes.at("transform").starts_with("rotate(-90") ? 1 : 0.7072),
                    0)
              << name << ": " << element.text;
        }
        EXPECT_LE(element.number("y"), height) << name << ": " << element.text;
      }
    }
  }
}

TEST(InspectPictures, CellsShowTheirNumbersInTheRightPlace) {
  Inspection inspection = inspection_of(2, 3);
  Measure& weight = inspection.attentions[0].measures[0];
  std::fill(weight.values.begin(), weight.values.end(), 0.f);
  // Layer index 1, head index 2: the last of six matrices.
  const float row[] = {0.125f, 0.875f, 0.f, 0.5f, 0.25f, 0.25f};
  std::copy(std::begin(row), std::end(row), weight.values.end() - 6);
  const std::vector<XmlElement> elements = parse_xml(heat_map_svg(inspection, place, "weight"));
  std::vector<std::string> tooltips, fills;
  std::vector<double> x, y;
  for (const XmlElement& element : elements)
    if (element.name == "title" && elements[element.parent].name == "rect") {
      tooltips.push_back(element.text);
      fills.push_back(elements[element.parent].attributes.at("fill"));
      x.push_back(elements[element.parent].number("x"));
      y.push_back(elements[element.parent].number("y"));
    }
  const std::vector<std::string> expected = {"cat \u2192 the: 0.125", "cat \u2192 cat: 0.875",
                                             "cat \u2192 机器: 0",    "机器 \u2192 the: 0.5",
                                             "机器 \u2192 cat: 0.25", "机器 \u2192 机器: 0.25"};
  EXPECT_EQ(tooltips, expected);
  EXPECT_LT(x[0], x[1]);
  EXPECT_EQ(x[0], x[3]);
  EXPECT_LT(y[0], y[3]);
  EXPECT_EQ(y[0], y[2]);
  EXPECT_EQ(fills[4], fills[5]);
  EXPECT_NE(fills[1], fills[3]);
  EXPECT_EQ(fills[2], pictures::hexadecimal(pictures::ramp(Theme::light, false)[0]));
  EXPECT_NE(words_in(elements).find("\n0.875\n"), std::string::npos);
}

TEST(InspectPictures, MaskedCellsAreHatchedAndHaveNoColour) {
  const std::vector<XmlElement> elements = parse_xml(heat_map_svg(inspection_of(4, 4, true), place, "weight"));
  std::size_t cells = 0, hatched = 0;
  for (const XmlElement& element : elements) {
    cells += element.name == "title" && elements[element.parent].name == "rect";
    const auto fill = element.attributes.find("fill");
    hatched +=
        element.name == "path" && fill != element.attributes.end() && fill->second.starts_with("url(#attend-hatch");
  }
  EXPECT_EQ(cells, 10u);   // the triangle
  EXPECT_GE(hatched, 2u);  // cells and legend
  EXPECT_NE(words_in(elements).find("masked"), std::string::npos);
  EXPECT_EQ(words_in(parse_xml(heat_map_svg(inspection_of(4, 4), place, "weight"))).find("masked"), std::string::npos);
}

TEST(InspectPictures, LongInputBecomesAnImageOfReasonableSize) {
  Inspection inspection = inspection_of(1, 1);
  inspection.texts[0].tokens.assign(1300, {"key", false, true});
  inspection.texts[1].tokens.assign(1500, {"query", false, true});
  ShownAttention& attention = inspection.attentions[0];
  attention.layers = {2};
  attention.heads = {3};
  attention.statistics.clear();
  attention.metrics.clear();
  attention.measures.resize(1);
  std::vector<float>& values = attention.measures[0].values;
  values.resize(1500 * 1300);
  for (std::size_t i = 0; i < values.size(); ++i) values[i] = static_cast<float>(i * 2654435761u % 1000) / 1e5f;
  const std::string svg = heat_map_svg(inspection, place, "weight");
  const std::vector<XmlElement> elements = parse_xml(svg);
  EXPECT_EQ(count_of(elements, "image"), 1u);
  EXPECT_LT(count_of(elements, "text"), 200u);
  EXPECT_LT(svg.size(), 3'000'000u);
  EXPECT_NE(words_in(elements).find("one pixel shows the largest of 2 \u00D7 2 cells"), std::string::npos);
  for (const XmlElement& element : elements)
    if (element.name == "image") {
      EXPECT_EQ(element.number("width"), 650);
      EXPECT_EQ(element.number("height"), 750);
    }
}

TEST(InspectPictures, RankAgreementIsPrinted) {
  Inspection inspection = inspection_of(4, 5);
  auto& measures = inspection.attentions[0].measures;
  measures[1].values = measures[0].values;  // same order, whatever the sign
  for (float& value : measures[1].values) value *= -3;
  EXPECT_NE(words_in(parse_xml(measures_svg(inspection, place, {"weight", "first-order effect"})))
                .find("\u03C1\u00A0=\u00A01.000"),
            std::string::npos);
}

TEST(InspectPictures, RankCorrelation) {
  EXPECT_DOUBLE_EQ(rank_correlation(std::vector<float>{1, 2, 3, 4}, std::vector<float>{10, 20, 30, 400}), 1);
  EXPECT_DOUBLE_EQ(rank_correlation(std::vector<float>{1, 2, 3, 4}, std::vector<float>{4, 3, 2, 1}), -1);
  // Ties share the mean rank: ranks 1 2.5 2.5 4 and 1 3 2 4 give cov 4.5, variances 4.5 and 5.
  EXPECT_NEAR(rank_correlation(std::vector<float>{1, 2, 2, 4}, std::vector<float>{1, 3, 2, 4}),
              4.5 / std::sqrt(4.5 * 5), 1e-12);
  const float nan = std::numeric_limits<float>::quiet_NaN();
  EXPECT_DOUBLE_EQ(rank_correlation(std::vector<float>{1, nan, 2, 3}, std::vector<float>{1, -9, 2, 3}), 1);
  EXPECT_TRUE(std::isnan(rank_correlation(std::vector<float>{1, 1}, std::vector<float>{1, 2})));
  EXPECT_TRUE(std::isnan(rank_correlation({}, {})));
  EXPECT_EQ(kind_of_refusal([] { rank_correlation(std::vector<float>{1}, {}); }), ErrorKind::shape);
}

TEST(InspectPictures, RampsAreOrderedByLuminance) {
  for (Theme theme : {Theme::light, Theme::dark}) {
    const double direction = theme == Theme::light ? -1 : 1;
    const auto& single = pictures::ramp(theme, false);
    for (std::size_t i = 8; i < 256; i += 8)
      EXPECT_GT(direction * (pictures::luminance(single[i]) - pictures::luminance(single[i - 8])), 0) << i;
    const auto& two = pictures::ramp(theme, true);
    for (std::size_t i = 8; i < 120; i += 8) {
      EXPECT_GT(direction * (pictures::luminance(two[128 + i]) - pictures::luminance(two[128 + i - 8])), 0) << i;
      EXPECT_GT(direction * (pictures::luminance(two[128 - i]) - pictures::luminance(two[128 - i + 8])), 0) << i;
    }
    // Negative is warmer than positive in the blue-yellow direction, which all but few eyes tell apart.
    EXPECT_GT(two[20].red, two[20].blue);
    EXPECT_GT(two[235].blue, two[235].red);
    const pictures::Palette& colours = pictures::palette(theme);
    const auto contrast = [&](pictures::Colour a) {
      const double x = pictures::luminance(a) + 0.05, y = pictures::luminance(colours.paper) + 0.05;
      return std::max(x, y) / std::min(x, y);
    };
    for (pictures::Colour text : {colours.ink, colours.soft, colours.query, colours.key, colours.edited})
      EXPECT_GE(contrast(text), 4.5);
  }
}

TEST(InspectPictures, ScalesEndAtRoundNumbers) {
  const pictures::Scale share = pictures::scale_for(MeasureKind::share, 0.53, false);
  EXPECT_DOUBLE_EQ(share.high, 0.6);
  EXPECT_EQ(share.index(0), 0);
  EXPECT_EQ(share.index(0.6), 255);
  EXPECT_EQ(share.index(2), 255);
  const pictures::Scale effect = pictures::scale_for(MeasureKind::effect, 2.02, false);
  EXPECT_DOUBLE_EQ(effect.high, 3);
  EXPECT_EQ(effect.index(0), 128);
  EXPECT_EQ(effect.index(3), 255);
  EXPECT_EQ(effect.index(-3), 1);
  const pictures::Scale decades = pictures::scale_for(MeasureKind::share, 0.09, true);
  EXPECT_DOUBLE_EQ(decades.high, 0.1);
  EXPECT_EQ(decades.index(0), 0);
  EXPECT_EQ(decades.index(1e-4), 0);
  EXPECT_EQ(decades.index(1e-2), 170);
  EXPECT_EQ(decades.index(0.1), 255);
}

TEST(InspectPictures, NumbersForPeople) {
  using namespace pictures;
  EXPECT_EQ(three_decimals(0.12345), "0.123");
  EXPECT_EQ(three_decimals(-0.5), "\u22120.500");
  EXPECT_EQ(three_decimals(0.0004), "4.0e\u22124");
  EXPECT_EQ(three_decimals(-1234567), "\u22121.2e6");
  EXPECT_EQ(three_decimals(0), "0");
  EXPECT_EQ(in_place(-0.0004), "0.000");
  EXPECT_EQ(tick_text(0.25), "0.25");
  EXPECT_EQ(tick_text(-1.5), "\u22121.5");
  EXPECT_EQ(tick_text(120), "120");
  EXPECT_EQ(shortest(0.1f), "0.1");
  EXPECT_EQ(pixels(3.0), "3");
  EXPECT_EQ(pixels(-0.001), "0");
}

TEST(InspectPictures, WrapsAndCutsText) {
  using namespace pictures;
  EXPECT_EQ(cut("short", 12, 100), "short");
  const std::string some = cut("a very long word", 12, 60);
  EXPECT_TRUE(some.ends_with("\u2026"));
  EXPECT_LE(width_of(some, 12), 60);
  for (const std::string& text :
       {std::string("one two three four five six"), std::string("我喜欢会说三种语言的机器人"), std::string(80, 'x')}) {
    std::string joined;
    for (const std::string& line : wrapped(text, 12, 70)) {
      EXPECT_LE(width_of(line, 12), 70 + 1e-9) << line;
      joined += line;
    }
    std::string without_blanks;
    for (char c : text)
      if (c != ' ') without_blanks += c;
    std::erase(joined, ' ');
    EXPECT_EQ(joined, without_blanks);
  }
}

TEST(InspectPictures, RefusesWhatDoesNotFit) {
  const Inspection good = inspection_of(3, 4, true);
  EXPECT_NO_THROW(check(good));
  EXPECT_EQ(kind_of_refusal([&] { heat_map_svg(good, {"cros", 0, 0}, "weight"); }), ErrorKind::argument);
  EXPECT_EQ(kind_of_refusal([&] { heat_map_svg(good, {"cross", 1, 0}, "weight"); }), ErrorKind::argument);
  EXPECT_EQ(kind_of_refusal([&] { heat_map_svg(good, {"cross", 0, 2}, "weight"); }), ErrorKind::argument);
  EXPECT_EQ(kind_of_refusal([&] { heat_map_svg(good, place, "wieght"); }), ErrorKind::argument);
  EXPECT_EQ(kind_of_refusal([&] { text_svg(good, place, "weight", 3); }), ErrorKind::argument);
  EXPECT_EQ(kind_of_refusal([&] { text_svg(good, place, "weight", -1); }), ErrorKind::argument);
  EXPECT_EQ(kind_of_refusal([&] { measures_svg(good, place, {}); }), ErrorKind::argument);
  try {
    heat_map_svg(good, place, "wieght");
  } catch (const Error& error) {
    EXPECT_NE(std::string(error.what()).find("did you mean \"weight\"?"), std::string::npos) << error.what();
  }
  const std::vector<std::pair<ErrorKind, std::function<void(Inspection&)>>> faults = {
      {ErrorKind::shape, [](Inspection& i) { i.texts[0].tokens.clear(); }},
      {ErrorKind::shape, [](Inspection& i) { i.attentions[0].measures[0].values.pop_back(); }},
      {ErrorKind::shape, [](Inspection& i) { i.attentions[0].masked.pop_back(); }},
      {ErrorKind::shape, [](Inspection& i) { i.attentions[0].statistics[0].values.pop_back(); }},
      {ErrorKind::shape, [](Inspection& i) { i.attentions[0].metrics[0].values.pop_back(); }},
      {ErrorKind::shape, [](Inspection& i) { i.attentions[0].heads.clear(); }},
      {ErrorKind::argument, [](Inspection& i) { i.attentions[0].key_text = 2; }},
      {ErrorKind::argument,
       [](Inspection& i) {
         i.attentions[0].layers = {2, 2};
       }},
      {ErrorKind::argument, [](Inspection& i) { i.attentions[0].measures[1].name = "weight"; }},
      {ErrorKind::argument, [](Inspection& i) { i.attentions.push_back(i.attentions[0]); }}};
  for (const auto& [kind, spoil] : faults) {
    Inspection bad = good;
    spoil(bad);
    EXPECT_EQ(kind_of_refusal([&] { check(bad); }), kind);
    EXPECT_EQ(kind_of_refusal([&] { csv_of_cells(bad); }), kind);
    EXPECT_EQ(kind_of_refusal([&] { json_of(bad); }), kind);
    EXPECT_EQ(kind_of_refusal([&] { npz_of(bad); }), kind);
  }
}

}  // namespace
}  // namespace attend
