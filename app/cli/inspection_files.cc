#include "inspection_files.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <filesystem>
#include <iostream>
#include <set>
#include <utility>

#include "attend/error.h"
#include "attend/files.h"
#include "input_output.h"

namespace attend::cli {
namespace {

constexpr std::array<const char*, 8> pictures = {"matrix",   "lines", "text", "wall",
                                                 "measures", "bars",  "rows", "attribution"};

std::string ending_of(const std::string& name) {
  const std::string file = std::filesystem::path(name).filename().string();
  for (const char* long_ending : {".rows.csv", ".top.csv", ".heads.csv", ".tokens.csv"})
    if (file.ends_with(long_ending)) return long_ending;
  return std::filesystem::path(file).extension().string();
}

std::string numbered(std::string name, std::size_t subject) {
  if (const std::size_t place = name.find("{}"); place != std::string::npos)
    name.replace(place, 2, std::to_string(subject + 1));
  return name;
}

bool shows_rows_only(const std::string& ending, const std::string& picture) {
  return ending == ".rows.csv" || ending == ".top.csv" || ending == ".heads.csv" || ending == ".tokens.csv" ||
         ((ending == ".svg" || ending == ".png") &&
          (picture == "rows" || picture == "bars" || picture == "attribution"));
}

bool holds(const ShownAttention& attention, const std::string& measure) {
  return std::any_of(attention.measures.begin(), attention.measures.end(),
                     [&](const Measure& one) { return one.name == measure; });
}

// The attention, layer and head that a picture of one matrix shows, among those that hold the measure (without matrices:
// that have numbers of heads). With a target it is where an edge matters most; else cross-attention where there is one,
// whose last layer but one aligns best (Garg et al. 2019), else the last attention's last layer; the first head that was
// chosen. A rollout is whole after the last layer.
MatrixPlace place_of(const Inspection& inspection, const std::string& measure) {
  const auto& all = inspection.attentions;
  if (all.empty())
    throw Error(ErrorKind::argument, "--output", "edits leave no attention to show",
                "write .svg, .png or .json, without --picture");
  const std::string wanted = measure.empty() ? "weight" : measure;
  const bool held = std::any_of(all.begin(), all.end(), [&](const ShownAttention& one) { return holds(one, wanted); });
  MatrixPlace place;
  float most = 0;
  const ShownAttention* shown = nullptr;
  for (const ShownAttention& attention : all) {
    if (held ? !holds(attention, wanted) : attention.metrics.empty()) continue;
    if (!shown || !shown->name.starts_with("cross")) shown = &attention;
    for (const Measure& one : attention.measures) {
      if (one.kind != MeasureKind::effect) continue;
      const std::size_t heads = attention.heads.size(),
                        cells = one.values.size() / std::max<std::size_t>(1, attention.layers.size() * heads);
      for (std::size_t i = 0; i < one.values.size(); ++i) {
        if (!(std::fabs(one.values[i]) > most)) continue;
        most = std::fabs(one.values[i]);
        place = {attention.name, attention.layers[i / cells / heads], attention.heads[i / cells % heads]};
      }
    }
  }
  if (most > 0) return place;
  if (!shown) shown = &all.back();
  const std::size_t layers = shown->layers.size();
  return {shown->name, shown->layers[shown->name == "cross" && layers > 1 ? layers - 2 : layers - 1],
          shown->heads.front()};
}

// The row that is explained, if one is; else that of the first word.
std::int64_t first_query(const Inspection& inspection, const ShownAttention& attention) {
  if (inspection.target_query >= 0 && attention.query_text + 1 == inspection.texts.size())
    return inspection.target_query;
  const auto& tokens = inspection.texts[attention.query_text].tokens;
  const auto word = std::find_if(tokens.begin(), tokens.end(), [](const ShownToken& token) { return !token.special; });
  return word == tokens.end() ? 0 : word - tokens.begin();
}

const ShownAttention& attention_of(const Inspection& inspection, const std::string& name) {
  for (const ShownAttention& attention : inspection.attentions)
    if (attention.name == name) return attention;
  return inspection.attentions.back();
}

const Measure& measure_of(const ShownAttention& attention, const std::string& name) {
  if (name.empty()) return attention.measures.front();
  std::string known;
  for (const Measure& one : attention.measures) {
    if (one.name == name) return one;
    known += (known.empty() ? "" : ", ") + one.name;
  }
  throw Error(ErrorKind::argument, "--measure", join("\"", name, "\" was not measured"), "there is " + known);
}

// Whether a picture of cells of this many words is nearly blank: of the shares that a mask lets see, nine in ten are below
// the first shades. Short texts have their numbers in the cells or are read at a glance.
bool hides_most(const Inspection& inspection, const std::string& picture, const std::string& measure) {
  constexpr std::size_t least_cells = 2500;
  if (inspection.attentions.empty() ||
      !(picture.empty() || picture == "matrix" || picture == "wall" || picture == "text"))
    return false;
  const MatrixPlace place = place_of(inspection, measure);
  const ShownAttention& attention = attention_of(inspection, place.attention);
  const std::size_t cells =
      inspection.texts[attention.query_text].tokens.size() * inspection.texts[attention.key_text].tokens.size();
  for (const Measure& one : attention.measures) {
    if (one.name != (measure.empty() ? "weight" : measure) || one.kind != MeasureKind::share || cells < least_cells)
      continue;
    const float largest = *std::max_element(one.values.begin(), one.values.end());
    std::size_t seen = 0, faint = 0;
    for (std::size_t i = 0; i < one.values.size(); ++i) {
      if (!attention.masked.empty() && attention.masked[i % cells]) continue;
      ++seen;
      faint += one.values[i] < 0.03f * largest;
    }
    return faint * 10 >= seen * 9;
  }
  return false;
}

}  // namespace

void InspectionFiles::add_to(Command& command) {
  command
      .add_option(
          "--output,-o", names,
          "Write files, told by their ending: .svg .png (pictures), .html (a page that stands alone), .csv .rows.csv "
          ".top.csv .heads.csv .tokens.csv .json .npy .npz; {} in a name: the number of the text. .npy and pictures of one attention show cross where "
          "there is one, else the last (see --attention)")
      ->type_name("FILE")
      ->one_each();
  // What these change is seen in files only.
  const auto of_file = [](Option* option) { return option->needs("--output"); };
  of_file(
      command.add_option(
          "--picture", picture,
          "matrix, lines, text, wall, measures, bars, rows or attribution (default: matrix, or wall for several heads)"))
      ->check(one_of({pictures.begin(), pictures.end()}));
  of_file(command.add_option(
      "--measure", measure,
      "What a picture or .npy shows: weight, write (weight x norm), first_order, exact, or what --attribution adds: rollout, "
      "value_zeroing, integrated_gradients, gradient_input (default: weight)"));
  of_file(
      command.add_option(
          "--query", query,
          "The query whose row is brought out, from 0 (pictures text and lines; of text by default the one explained, else the first word)"))
      ->type_name("N")
      ->check(at_least(0));
  of_file(command.add_option("--title", title, "Title of pictures (default: made from what is shown)"));
  of_file(command.add_option("--theme", theme, "light or dark"))->check(one_of({"light", "dark"}))->show_default();
  of_file(command.add_option("--language", language, "Language of pictures and pages: en or zh"))
      ->check(one_of({"en", "zh"}))
      ->show_default();
  of_file(command.add_option("--scale", scale, "Pixels of a .png for one of the .svg; 3.125 is 300 dpi"))
      ->check(between(0.1, 20.0))
      ->show_default();
  of_file(command.add_flag("--logarithmic", logarithmic, "Shade weights on three decades: for long texts"));
}

bool InspectionFiles::want_matrices() const {
  return std::any_of(names.begin(), names.end(),
                     [&](const std::string& name) { return !shows_rows_only(ending_of(name), picture); });
}

bool InspectionFiles::has(std::initializer_list<const char*> endings) const {
  return std::any_of(names.begin(), names.end(), [&](const std::string& name) {
    return std::find(endings.begin(), endings.end(), ending_of(name)) != endings.end();
  });
}

void InspectionFiles::check(std::size_t subjects, bool matrices, bool attention) const {
  static const std::set<std::string> known = {".svg",       ".png",        ".html", ".csv", ".rows.csv", ".top.csv",
                                              ".heads.csv", ".tokens.csv", ".json", ".npy", ".npz"};
  for (const std::string& name : names) {
    if (!known.contains(ending_of(name)))
      throw Error(ErrorKind::argument, name, join("the ending \"", ending_of(name), "\" is not known"),
                  "use .svg, .png, .html, .csv, .rows.csv, .top.csv, .heads.csv, .tokens.csv, .json, .npy or .npz");
    if (!matrices && !shows_rows_only(ending_of(name), picture) && ending_of(name) != ".json" &&
        ending_of(name) != ".npz")
      throw Error(
          ErrorKind::argument, name, "shows values of edges, and --no-matrices leaves them out",
          "write .rows.csv, .top.csv, .heads.csv, .tokens.csv, .json, .npz or --picture rows, bars or attribution, or leave out --no-matrices");
    if (subjects > 1 && name.find("{}") == std::string::npos)
      throw Error(ErrorKind::argument, name, join("is one file for ", subjects, " texts"),
                  "put {} in its name: picture-{}.svg");
    if (!attention) check_holds_attention(name, false);
  }
  const bool drawn = has({".svg", ".png"}), array = has({".npy"});
  const std::pair<const char*, bool> idle[] = {{"--picture", !picture.empty() && !drawn},
                                               {"--query", query >= 0 && !drawn},
                                               {"--title", !title.empty() && !drawn},
                                               {"--logarithmic", logarithmic && !drawn},
                                               {"--measure", !measure.empty() && !drawn && !array}};
  for (const auto& [option, given] : idle)
    if (given && !names.empty())
      throw Error(ErrorKind::argument, option, "changes pictures, and none is written",
                  join("add -o picture.svg, or leave ", option, " out"));
}

// Pictures of outcomes and JSON are all that there is to write without attention.
void InspectionFiles::check_holds_attention(const std::string& name, bool attention) const {
  if (attention) return;
  const std::string ending = ending_of(name);
  const bool drawn = ending == ".svg" || ending == ".png";
  if (ending == ".json" || (drawn && picture.empty() && measure.empty() && query < 0)) return;
  throw Error(ErrorKind::argument, name,
              drawn ? "there is no attention to draw, only what edits change"
                    : join(ending, " holds attention, and there is none"),
              drawn ? "leave out --picture, --measure and --query" : "write .json, or a picture: .svg or .png");
}

std::vector<std::string> InspectionFiles::write(const Inspection& inspection, std::size_t subject) const {
  for (const std::string& name : names) check_holds_attention(name, !inspection.attentions.empty());
  PictureOptions options;
  options.theme = theme == "dark" ? Theme::dark : Theme::light;
  options.language = language == "zh" ? PictureLanguage::chinese : PictureLanguage::english;
  options.title = title;
  options.logarithmic = logarithmic;

  std::vector<std::string> told;
  for (const std::string& name : names) {
    const std::string path = numbered(name, subject), ending = ending_of(name);
    std::string shows = "everything";
    if (ending == ".svg" || ending == ".png") {
      if (!logarithmic && hides_most(inspection, picture, measure))
        std::cerr
            << "attend: " << path
            << ": most weights are too small to be seen beside the largest; --logarithmic shades them on three decades\n";
      const Picture drawn = draw(inspection, options);
      shows = drawn.shows;
      if (ending == ".svg") {
        write_file(path, drawn.svg);
      } else {
        const PngImage image = png_of(drawn.svg, scale);
        if (!image.missing.empty())
          std::cerr << "attend: " << path << ": no installed font has " << image.missing
                    << "; install fonts for them (fonts-noto-cjk, say)\n";
        write_file(path, image.bytes);
      }
    } else if (ending == ".html") {
      write_file(path, html_of(inspection, options.language));
    } else if (ending == ".csv") {
      write_file(path, csv_of_cells(inspection));
      shows = "a line for every query and key";
    } else if (ending == ".rows.csv") {
      write_file(path, csv_of_rows(inspection));
      shows = "a line for every query";
    } else if (ending == ".top.csv") {
      write_file(path, csv_of_largest(inspection));
      shows = "a line for each of the largest keys of a query";
    } else if (ending == ".heads.csv") {
      write_file(path, csv_of_heads(inspection));
      shows = "a line for every head";
    } else if (ending == ".tokens.csv") {
      write_file(path, csv_of_tokens(inspection));
      shows = "a line for every token of the texts";
    } else if (ending == ".json") {
      write_file(path, json_of(inspection));
    } else if (ending == ".npz") {
      write_file(path, npz_of(inspection));
    } else {
      const MatrixPlace place = place_of(inspection, measure);
      const ShownAttention& attention = attention_of(inspection, place.attention);
      const Measure& one = measure_of(attention, measure);
      const auto size = [](std::size_t count) { return static_cast<std::int64_t>(count); };
      const std::int64_t shape[] = {size(attention.layers.size()), size(attention.heads.size()),
                                    size(inspection.texts[attention.query_text].tokens.size()),
                                    size(inspection.texts[attention.key_text].tokens.size())};
      write_file(path, npy_of(one.values, shape));
      shows = join(one.name, " of ", attention.name, ", [layers ", shape[0], ", heads ", shape[1], ", queries ",
                   shape[2], ", keys ", shape[3], "]");
    }
    told.push_back(join(path, "  ", shows));
  }
  return told;
}

InspectionFiles::Picture InspectionFiles::draw(const Inspection& inspection, const PictureOptions& options) const {
  if (inspection.attentions.empty()) return {outcomes_svg(inspection, options), "logits before and after the edits"};
  // An attribution by its name, or the only kind there is.
  const bool named = std::any_of(inspection.attributions.begin(), inspection.attributions.end(),
                                 [&](const TokenAttribution& one) { return one.name == measure; });
  if (picture == "attribution" || (picture.empty() && named)) {
    if (inspection.attributions.empty())
      throw Error(ErrorKind::argument, "--picture attribution", "no attribution of words was made",
                  "add --attribution integrated-gradients or gradient-input");
    const std::string& name = measure.empty() ? inspection.attributions.front().name : measure;
    return {attribution_svg(inspection, name, options), join("text: ", name)};
  }
  const MatrixPlace place = place_of(inspection, measure);
  const ShownAttention& attention = attention_of(inspection, place.attention);
  const std::string shown = measure.empty() && !attention.measures.empty() ? attention.measures.front().name : measure;
  const std::string kind = !picture.empty()                                       ? picture
                           : attention.layers.size() * attention.heads.size() > 1 ? "wall"
                                                                                  : "matrix";
  std::vector<int> few_heads = attention.heads;
  if (few_heads.size() > 8) few_heads.resize(8);
  const std::string layer = join(attention.name, ", layer ", place.layer),
                    head =
                        place.head == mean_of_all ? join(layer, ", mean of heads") : join(layer, ", head ", place.head);
  const auto all_of = [](const auto& parts) {
    std::vector<std::string> all;
    for (const auto& one : parts) all.push_back(one.name);
    return all;
  };
  if (kind == "wall")
    return {wall_svg(inspection, place.attention, shown,
                     attention.metrics.empty() ? "" : attention.metrics.front().name, options),
            join("wall of ", attention.name, ": ", shown)};
  if (kind == "lines")
    return {lines_svg(inspection, place.attention, place.layer, few_heads, shown, query, options),
            join("lines of ", layer, ": ", shown)};
  if (kind == "text")
    return {text_svg(inspection, place, shown, query < 0 ? first_query(inspection, attention) : query, options),
            join("text of ", head, ": ", shown)};
  if (kind == "measures")
    return {measures_svg(inspection, place, all_of(attention.measures), options), join("measures of ", head)};
  if (kind == "bars")
    return {head_bars_svg(inspection, place.attention, all_of(attention.metrics), options),
            join("bars of ", attention.name)};
  if (kind == "rows") {
    if (attention.statistics.empty())
      throw Error(ErrorKind::argument, "--picture rows", "there are no statistics of rows", "choose another picture");
    const std::string& statistic = attention.statistics.front().name;
    return {row_lines_svg(inspection, place.attention, place.layer, few_heads, statistic, options),
            join("rows of ", layer, ": ", statistic)};
  }
  return {heat_map_svg(inspection, place, shown, options), join("matrix of ", head, ": ", shown)};
}

std::string running_text(const ShownText& text) {
  std::string line;
  bool after_special = false;
  for (const ShownToken& token : text.tokens) {
    if (!line.empty() && (token.special || token.blank_before || after_special)) line += ' ';
    line += token.text;
    after_special = token.special;
  }
  return line;
}

}  // namespace attend::cli
