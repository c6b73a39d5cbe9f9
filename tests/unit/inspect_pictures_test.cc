#include "attend/pictures.h"

#include <gtest/gtest.h>
#include <zlib.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <map>
#include <set>

#include "attend/error.h"
#include "inspect/pictures/colours.h"
#include "inspect/pictures/text.h"
#include "inspection_fixture.h"
#include "xml_document.h"

namespace attend {
namespace {

const MatrixPlace place{"cross", 2, 3};

// Every picture of an inspection, with a name for messages.
std::vector<std::pair<std::string, std::string>> pictures_of(const Inspection& inspection,
                                                             const PictureOptions& options = {}) {
  return {{"heat map", heat_map_svg(inspection, place, "weight", options)},
          {"heat map of effects", heat_map_svg(inspection, place, "exact", options)},
          {"measures", measures_svg(inspection, place, {"weight", "first_order", "exact"}, options)},
          {"text", text_svg(inspection, place, "weight", 0, options)},
          {"text of effects", text_svg(inspection, place, "first_order", 0, options)},
          {"lines", lines_svg(inspection, "cross", 2, {3}, "weight", -1, options)},
          {"lines of a query", lines_svg(inspection, "cross", 2, {3}, "first_order", 0, options)},
          {"lines of heads", lines_svg(inspection, "cross", 2, {0, 3}, "weight", 0, options)},
          {"attribution", attribution_svg(inspection, "integrated_gradients", options)},
          {"wall", wall_svg(inspection, "cross", "weight", "mean entropy", options)},
          {"wall of effects", wall_svg(inspection, "cross", "exact", "", options)}};
}

// Pictures that show the tokens of one text or none.
std::vector<std::pair<std::string, std::string>> charts_of(const Inspection& inspection,
                                                           const PictureOptions& options = {}) {
  return {{"row lines", row_lines_svg(inspection, "cross", 0, {0, 1, 3}, "entropy", options)},
          {"bars", head_bars_svg(inspection, "cross", {"mean entropy"}, options)},
          {"outcomes", outcomes_svg(inspection, options)}};
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
  inspection.outcomes.clear();
  for (const std::string& token : hostile_tokens()) inspection.outcomes.push_back({{token, false, false}, 1, 2});
  auto pictures = pictures_of(inspection);
  for (auto& chart : charts_of(inspection)) pictures.push_back(std::move(chart));
  for (const auto& [name, svg] : pictures) {
    const std::vector<XmlElement> elements = parse_xml(svg);
    EXPECT_EQ(count_of(elements, "script") + count_of(elements, "img"), 0u) << name;
    for (const XmlElement& element : elements)
      for (const auto& [attribute, value] : element.attributes) {
        EXPECT_FALSE(attribute.starts_with("on")) << name;
        EXPECT_TRUE(attribute != "href" || value.starts_with("data:image/png;base64,")) << name;
      }
    const std::string words = words_in(elements);
    if (name == "bars") continue;
    for (const std::string& token : hostile_tokens())
      EXPECT_NE(words.find(pictures::shown(token)), std::string::npos) << name << " lacks " << token;
  }
}

TEST(InspectPictures, NothingLiesOutsideAndSizesAreWhole) {
  for (auto [queries, keys] :
       std::vector<std::pair<std::size_t, std::size_t>>{{1, 1}, {1, 30}, {30, 1}, {12, 12}, {40, 40}, {100, 90}}) {
    const Inspection inspection = inspection_of(queries, keys, true);
    auto pictures = pictures_of(inspection);
    for (auto& chart : charts_of(inspection)) pictures.push_back(std::move(chart));
    for (const auto& [name, svg] : pictures) {
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
  inspection.attributions.clear();
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

// Lines that carry an edge are paths with a tooltip.
std::map<std::string, XmlElement> edges_in(const std::string& svg) {
  std::map<std::string, XmlElement> edges;
  const std::vector<XmlElement> elements = parse_xml(svg);
  for (const XmlElement& element : elements)
    if (element.name == "title" && elements[element.parent].name == "path")
      edges[element.text] = elements[element.parent];
  return edges;
}

TEST(InspectPictures, LinesHaveTheWeightAsOpacity) {
  Inspection inspection = inspection_of(2, 3, false, {"a", "b", "c", "d"});
  Measure& weight = inspection.attentions[0].measures[0];
  const float row[] = {0.25f, 0.75f, 0.f, 0.005f, 0.8f, 0.195f};
  std::copy(std::begin(row), std::end(row), weight.values.end() - 6);
  // The largest is 0.8, and so the end of the scale; what is below a fiftieth of it is not drawn.
  const auto all = edges_in(lines_svg(inspection, "cross", 2, {3}, "weight"));
  ASSERT_EQ(all.size(), 4u);
  EXPECT_NEAR(all.at("b \u2192 a: 0.25").number("stroke-opacity"), 0.25 / 0.8, 0.006);
  EXPECT_NEAR(all.at("b \u2192 b: 0.75").number("stroke-opacity"), 0.75 / 0.8, 0.006);
  EXPECT_NEAR(all.at("c \u2192 c: 0.195").number("stroke-opacity"), 0.195 / 0.8, 0.006);
  EXPECT_FALSE(all.at("c \u2192 b: 0.8").attributes.contains("stroke-opacity"));
  // A query brought out leaves the others grey.
  const auto one = edges_in(lines_svg(inspection, "cross", 2, {3}, "weight", 0));
  const std::string grey = pictures::hexadecimal(pictures::palette(Theme::light).hatch);
  EXPECT_NE(one.at("b \u2192 a: 0.25").attributes.at("stroke"), grey);
  EXPECT_EQ(one.at("c \u2192 b: 0.8").attributes.at("stroke"), grey);
  // Heads have hues of their own, named in the legend.
  const std::string several = lines_svg(inspection, "cross", 2, {0, 1, 3}, "weight");
  std::set<std::string> hues;
  for (const auto& [name, edge] : edges_in(several)) hues.insert(edge.attributes.at("stroke"));
  EXPECT_EQ(hues.size(), 3u);
  for (const char* head : {"\nhead 0\n", "\nhead 1\n", "\nhead 3\n"})
    EXPECT_NE(words_in(parse_xml(several)).find(head), std::string::npos);
}

TEST(InspectPictures, LinesOfMaskedEdgesAreNotDrawn) {
  for (const auto& [name, edge] : edges_in(lines_svg(inspection_of(6, 6, true), "cross", 0, {0}, "weight")))
    EXPECT_NE(edge.number("stroke-width"), 0) << name;
  EXPECT_LE(edges_in(lines_svg(inspection_of(6, 6, true), "cross", 0, {0}, "first_order")).size(), 21u);
}

TEST(InspectPictures, WallShowsEveryHeadWithItsMetric) {
  const Inspection inspection = inspection_of(5, 6);
  const std::vector<XmlElement> elements = parse_xml(wall_svg(inspection, "cross", "weight", "mean entropy"));
  const std::string words = words_in(elements);
  for (float value : inspection.attentions[0].metrics[0].values)
    EXPECT_NE(words.find(join("\n", pictures::three_decimals(value), "\n")), std::string::npos) << value;
  std::size_t frames = 0;
  for (const XmlElement& element : elements)
    if (element.name == "rect" && element.attributes.contains("stroke"))
      frames += element.number("width") == 6 * 14 + 1;
  EXPECT_EQ(frames, 6u);
  for (const char* label : {"layer 0", "layer 2", "head 0", "head 1", "head 3"})
    EXPECT_NE(words.find(label), std::string::npos) << label;
}

TEST(InspectPictures, BarsAreAsHighAsTheirNumbers) {
  Inspection inspection = inspection_of(2, 2);
  inspection.attentions[0].metrics[0].values = {1, 2, 0.5f, -1, 0, 2};
  const std::vector<XmlElement> elements = parse_xml(head_bars_svg(inspection, "cross", {"mean entropy"}));
  std::map<std::string, double> heights;
  for (const XmlElement& element : elements)
    if (element.name == "title" && elements[element.parent].name == "rect")
      heights[element.text] = elements[element.parent].number("height");
  ASSERT_EQ(heights.size(), 6u);
  const double two = heights.at("layer 0, head 1: 2");
  EXPECT_GT(two, 40);
  EXPECT_NEAR(heights.at("layer 0, head 0: 1"), two / 2, 1);
  EXPECT_NEAR(heights.at("layer 0, head 3: 0.5"), two / 4, 1);
  EXPECT_NEAR(heights.at("layer 2, head 0: -1"), two / 2, 1);
  EXPECT_EQ(heights.at("layer 2, head 3: 2"), two);
}

TEST(InspectPictures, AttributionsColourEveryTokenByItsSign) {
  const Inspection inspection = inspection_of(4, 5);
  const std::string svg = attribution_svg(inspection, "integrated_gradients");
  const TokenAttribution& attribution = inspection.attributions[0];
  std::vector<std::string> fills;
  std::string words;
  for (const XmlElement& element : parse_xml(svg)) {
    if (element.name == "rect" && element.attributes.contains("rx")) fills.push_back(element.attributes.at("fill"));
    words += element.text + "\n";
  }
  ASSERT_EQ(fills.size(), 9u);
  const pictures::Scale scale = pictures::scale_for(MeasureKind::effect, 1, false);
  std::size_t token = 0;
  for (const std::vector<float>& text : attribution.values)
    for (const float value : text)
      EXPECT_EQ(fills[token++], pictures::hexadecimal(
                                    pictures::ramp(Theme::light, true)[static_cast<std::size_t>(scale.index(value))]));
  for (const char* part : {"Integrated gradients: cats rather than dogs", "target 3.500",
                           "at the baseline (<unk>) 0.250", "completeness error 0.125", "64 steps"})
    EXPECT_NE(words.find(part), std::string::npos) << part << " in " << words;
  EXPECT_EQ(kind_of_refusal([&] { attribution_svg(inspection, "integrated"); }), ErrorKind::argument);
  // A text that the method does not judge is not shown.
  std::size_t boxes = 0;
  for (const XmlElement& element : parse_xml(attribution_svg(inspection, "gradient_input")))
    boxes += element.name == "rect" && element.attributes.contains("rx");
  EXPECT_EQ(boxes, 4u);
}

TEST(InspectPictures, LongTextsHaveTheStrongestLinesOnly) {
  const auto lines_of = [](const std::string& svg) {
    std::map<std::string, int> lines;  // of each query, by the tooltip "query -> key: value"
    for (const XmlElement& element : parse_xml(svg))
      if (const std::size_t arrow = element.text.find(" \u2192 ");
          element.name == "title" && arrow != std::string::npos)
        ++lines[element.text.substr(0, arrow)];
    return lines;
  };
  std::vector<std::string> words;
  for (int i = 0; i < 100; ++i) words.push_back("w" + std::to_string(i));
  const Inspection inspection = inspection_of(50, 70, false, words);
  const auto all = lines_of(lines_svg(inspection, "cross", 2, {3}, "weight"));
  EXPECT_EQ(all.size(), 50u);
  for (const auto& [query, count] : all) EXPECT_EQ(count, 2) << query;
  const std::string focused = lines_svg(inspection, "cross", 2, {3}, "weight", 7);
  EXPECT_EQ(lines_of(focused).size(), 1u);
  EXPECT_GT(lines_of(focused).at("w8"), 2) << "all lines of the query that is brought out";
  std::string caption = words_in(parse_xml(focused));
  std::replace(caption.begin(), caption.end(), '\n', ' ');
  EXPECT_NE(caption.find("lines of the query marked only"), std::string::npos) << caption;
}

TEST(InspectPictures, EffectsBesideEachOtherShareAScale) {
  Inspection inspection = inspection_of(4, 5);
  for (float& value : inspection.attentions[0].measures[2].values) value *= 4;  // exact
  const std::string svg = measures_svg(inspection, place, {"weight", "first_order", "exact"});
  std::vector<std::string> ends;  // of the colour bars
  for (const XmlElement& element : parse_xml(svg))
    if (element.name == "text" && element.text.starts_with('+')) ends.push_back(element.text);
  ASSERT_EQ(ends.size(), 4u) << "the half and the end of two signed bars";
  EXPECT_EQ(ends[0], ends[2]);
  EXPECT_EQ(ends[1], ends[3]);
}

TEST(InspectPictures, WallOfFewTokensNamesThem) {
  const auto labels = [](const Inspection& inspection) {
    std::multiset<std::string> texts;
    for (const XmlElement& element : parse_xml(wall_svg(inspection, "cross", "weight", "")))
      if (element.name == "text") texts.insert(element.text);
    return texts;
  };
  // Three heads across have the keys above each, two layers down have the queries beside each.
  EXPECT_EQ(labels(inspection_of(3, 4, false, {"a", "b", "c", "d"})).count("d"), 3u + 2u);
  EXPECT_EQ(labels(inspection_of(3, 4, false, {"a", "b", "c", "d"})).count("a"), 3u);
  EXPECT_EQ(labels(inspection_of(3, 40, false, {"a", "b", "c", "d"})).count("a"), 0u);
}

TEST(InspectPictures, TextIsAsWideAsItsWords) {
  const auto width_of = [](const std::string& svg) { return std::stod(parse_xml(svg).at(0).attributes.at("width")); };
  EXPECT_LT(width_of(text_svg(inspection_of(2, 3), place, "weight", 0)), 600);
  EXPECT_LE(width_of(text_svg(inspection_of(2, 60), place, "weight", 0)), 720);
  EXPECT_GT(width_of(text_svg(inspection_of(2, 60), place, "weight", 0)), 600);
}

TEST(InspectPictures, RowLinesBreakWhereNumbersAreMissing) {
  Inspection inspection = inspection_of(6, 2);
  inspection.attentions[0].statistics[0].values[2] = std::numeric_limits<float>::quiet_NaN();
  const auto paths = edges_in(row_lines_svg(inspection, "cross", 0, {0, 1}, "entropy"));
  const auto pieces = [&](const std::string& head) {
    const std::string& data = paths.at(head).attributes.at("d");
    return std::pair{std::count(data.begin(), data.end(), 'M'), std::count(data.begin(), data.end(), 'L')};
  };
  EXPECT_EQ(pieces("head 0"), (std::pair<std::ptrdiff_t, std::ptrdiff_t>{2, 3}));
  EXPECT_EQ(pieces("head 1"), (std::pair<std::ptrdiff_t, std::ptrdiff_t>{1, 5}));
}

TEST(InspectPictures, OutcomesStandSideBySide) {
  const std::vector<XmlElement> elements = parse_xml(outcomes_svg(inspection_of(2, 2)));
  std::vector<double> circles;
  for (const XmlElement& element : elements)
    if (element.name == "circle") circles.push_back(element.number("cx"));
  ASSERT_EQ(circles.size(), 8u);      // two in the legend, then base and edited of each outcome
  EXPECT_GT(circles[2], circles[3]);  // 2.5 -> 1.25
  EXPECT_LT(circles[4], circles[5]);  // 1.0 -> 1.75
  EXPECT_EQ(circles[6], circles[7]);
  EXPECT_NEAR((circles[2] - circles[3]) / (circles[5] - circles[4]), 1.25 / 0.75, 0.02);
  const std::string words = words_in(elements);
  for (const char* number : {"2.500", "1.250", "\u22121.250", "+0.750", "\u22120.500"})
    EXPECT_NE(words.find(number), std::string::npos) << number;
}

// Rows of RGB or RGBA of a PNG with 8 bits a channel, unfiltered.
struct Pixels {
  std::size_t width = 0, height = 0, channels = 0;
  std::uint32_t dots_per_metre = 0;
  std::vector<std::uint8_t> bytes;

  pictures::Colour at(std::size_t x, std::size_t y) const {
    const std::uint8_t* p = bytes.data() + (y * width + x) * channels;
    return {p[0], p[1], p[2]};
  }
};

Pixels decode_png(const std::string& png) {
  Pixels pixels;
  std::string packed;
  const auto u32 = [&](std::size_t at) {
    std::uint32_t value = 0;
    for (std::size_t i = 0; i < 4; ++i) value = value << 8 | static_cast<unsigned char>(png.at(at + i));
    return value;
  };
  for (std::size_t at = 8; at < png.size(); at += 12 + u32(at)) {
    const std::string type = png.substr(at + 4, 4);
    EXPECT_EQ(u32(at + 8 + u32(at)),
              crc32(0, reinterpret_cast<const Bytef*>(png.data() + at + 4), static_cast<uInt>(4 + u32(at))))
        << type;
    if (type == "IHDR") {
      pixels.width = u32(at + 8);
      pixels.height = u32(at + 12);
      pixels.channels = png.at(at + 17) == 6 ? 4 : 3;
    }
    if (type == "pHYs") pixels.dots_per_metre = u32(at + 8);
    if (type == "IDAT") packed += png.substr(at + 8, u32(at));
  }
  const std::size_t stride = pixels.width * pixels.channels;
  std::vector<Bytef> raw((stride + 1) * pixels.height);
  uLongf size = static_cast<uLongf>(raw.size());
  EXPECT_EQ(
      uncompress(raw.data(), &size, reinterpret_cast<const Bytef*>(packed.data()), static_cast<uLong>(packed.size())),
      Z_OK);
  pixels.bytes.resize(stride * pixels.height);
  for (std::size_t y = 0; y < pixels.height; ++y)
    for (std::size_t i = 0; i < stride; ++i) {
      const int left = i >= pixels.channels ? pixels.bytes[y * stride + i - pixels.channels] : 0;
      const int above = y > 0 ? pixels.bytes[(y - 1) * stride + i] : 0;
      const int corner = y > 0 && i >= pixels.channels ? pixels.bytes[(y - 1) * stride + i - pixels.channels] : 0;
      const int guess = left + above - corner;
      const int nearest =
          std::abs(guess - left) <= std::abs(guess - above) && std::abs(guess - left) <= std::abs(guess - corner) ? left
          : std::abs(guess - above) <= std::abs(guess - corner) ? above
                                                                : corner;
      const int filters[] = {0, left, above, (left + above) / 2, nearest};
      pixels.bytes[y * stride + i] =
          static_cast<std::uint8_t>(raw[y * (stride + 1) + 1 + i] + filters[raw[y * (stride + 1)]]);
    }
  return pixels;
}

TEST(InspectPictures, PngIsThePictureAtTheScaleAsked) {
  const Inspection inspection = inspection_of(3, 4);
  for (Theme theme : {Theme::light, Theme::dark}) {
    const std::string svg =
        heat_map_svg(inspection, place, "weight", {theme, PictureLanguage::english, {}, true, false});
    const std::vector<XmlElement> elements = parse_xml(svg);
    const PngImage image = png_of(svg, 2);
    const Pixels pixels = decode_png(image.bytes);
    EXPECT_EQ(image.missing, "");
    EXPECT_EQ(pixels.width, 2 * elements[0].number("width"));
    EXPECT_EQ(pixels.height, 2 * elements[0].number("height"));
    EXPECT_EQ(pixels.width, static_cast<std::size_t>(image.width));
    EXPECT_EQ(pixels.dots_per_metre, 7559u);  // 192 dpi
    EXPECT_EQ(pixels.at(0, 0), pictures::palette(theme).paper);
    EXPECT_EQ(pixels.at(pixels.width - 1, pixels.height - 1), pictures::palette(theme).paper);
    std::size_t cells = 0;
    for (const XmlElement& element : elements) {
      if (element.name != "title" || elements[element.parent].name != "rect") continue;
      const XmlElement& cell = elements[element.parent];
      // Near a corner, where no digit lies.
      const auto x = static_cast<std::size_t>(2 * cell.number("x") + 3),
                 y = static_cast<std::size_t>(2 * cell.number("y") + 3);
      EXPECT_EQ(pictures::hexadecimal(pixels.at(x, y)), cell.attributes.at("fill"));
      ++cells;
    }
    EXPECT_EQ(cells, 12u);
    // Text is there: dark and light pixels left of the cells, where only labels are.
    std::set<std::uint8_t> shades;
    for (std::size_t y = 0; y < pixels.height; ++y) shades.insert(pixels.at(80, y).red);
    for (std::size_t y = 0; y < pixels.height; ++y) shades.insert(pixels.at(150, y).red);
    EXPECT_GT(shades.size(), 10u);
  }
}

TEST(InspectPictures, PngNamesCharactersWithoutAGlyph) {
  const Inspection inspection = inspection_of(4, 4, false, {"\U0010FFFD", "机器", "ordinary", "\U0010FFFD\U0010FFFC"});
  EXPECT_EQ(png_of(heat_map_svg(inspection, place, "weight"), 0.5).missing, "\U0010FFFC\U0010FFFD");
}

TEST(InspectPictures, PngRefusesWhatCannotBe) {
  const std::string svg = outcomes_svg(inspection_of(2, 2));
  EXPECT_EQ(kind_of_refusal([&] { png_of(svg, 0); }), ErrorKind::argument);
  EXPECT_EQ(kind_of_refusal([&] { png_of(svg, -1); }), ErrorKind::argument);
  EXPECT_EQ(kind_of_refusal([&] { png_of(svg, NAN); }), ErrorKind::argument);
  EXPECT_EQ(kind_of_refusal([&] { png_of(svg, 1000); }), ErrorKind::argument);
  EXPECT_EQ(kind_of_refusal([&] { png_of("", 1); }), ErrorKind::format);
  EXPECT_EQ(kind_of_refusal([&] { png_of("<svg width=\"9\" height=\"9\"><text", 1); }), ErrorKind::format);
  EXPECT_EQ(kind_of_refusal([&] { png_of(svg.substr(0, svg.size() / 2), 1); }), ErrorKind::format);
}

TEST(InspectPictures, RankAgreementIsPrinted) {
  Inspection inspection = inspection_of(4, 5);
  auto& measures = inspection.attentions[0].measures;
  measures[1].values = measures[0].values;  // same order, whatever the sign
  for (float& value : measures[1].values) value *= -3;
  EXPECT_NE(
      words_in(parse_xml(measures_svg(inspection, place, {"weight", "first_order"}))).find("\u03C1\u00A0=\u00A01.000"),
      std::string::npos);
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
  EXPECT_EQ(say(PictureLanguage::english, "first_order"), "first-order effect");
  EXPECT_EQ(say(PictureLanguage::chinese, "first_order"), "一阶效应");
  EXPECT_EQ(say(PictureLanguage::chinese, "of one's own"), "of one's own");
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
  EXPECT_EQ(kind_of_refusal([&] { lines_svg(good, "cross", 0, {}, "weight"); }), ErrorKind::argument);
  EXPECT_EQ(kind_of_refusal([&] { lines_svg(good, "cross", 0, {1, 1}, "weight"); }), ErrorKind::argument);
  EXPECT_EQ(kind_of_refusal([&] { lines_svg(good, "cross", 0, {2}, "weight"); }), ErrorKind::argument);
  EXPECT_EQ(kind_of_refusal([&] { lines_svg(good, "cross", 0, {1}, "weight", 3); }), ErrorKind::argument);
  EXPECT_EQ(kind_of_refusal([] { lines_svg(inspection_of(2, 401), "cross", 0, {1}, "weight"); }), ErrorKind::argument);
  EXPECT_EQ(kind_of_refusal([&] { wall_svg(good, "cross", "weight", "entropy"); }), ErrorKind::argument);
  EXPECT_EQ(kind_of_refusal([&] { head_bars_svg(good, "cross", {}); }), ErrorKind::argument);
  EXPECT_EQ(kind_of_refusal([&] { row_lines_svg(good, "cross", 0, {0}, "mean entropy"); }), ErrorKind::argument);
  Inspection plain = good;
  plain.outcomes.clear();
  EXPECT_EQ(kind_of_refusal([&] { outcomes_svg(plain); }), ErrorKind::argument);
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
