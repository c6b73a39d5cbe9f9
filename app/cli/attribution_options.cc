#include "attribution_options.h"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <utility>

#include "attend/error.h"
#include "attend/unicode.h"
#include "terminal.h"

namespace attend::cli {
namespace {

constexpr double least_share = 0.05;

std::string signed_number(double value) {
  char text[32];
  std::snprintf(text, sizeof(text), "%+.3f", value);
  return text;
}

std::string number(double value) {
  char text[32];
  std::snprintf(text, sizeof(text), "%.3f", value);
  return text;
}

std::string said(const TokenAttribution& attribution) {
  return attribution.name == "gradient_input"         ? "gradient x input"
         : attribution.name == "integrated_gradients" ? "integrated gradients"
                                                      : attribution.name;
}

void print_scores(Output& out, const Inspection& inspection, const TokenAttribution& attribution) {
  out.line("");
  out.line(join(said(attribution), ": what each word adds to: ", inspection.target));
  int widest = 4;
  double largest = 0;
  for (std::size_t text = 0; text < inspection.texts.size(); ++text)
    for (std::size_t token = 0; token < attribution.values[text].size(); ++token) {
      widest = std::max(widest, std::min(display_width(inspection.texts[text].tokens[token].text), 24));
      largest = std::max(largest, std::abs(static_cast<double>(attribution.values[text][token])));
    }
  constexpr int longest_bar = 24;
  for (std::size_t text = 0; text < inspection.texts.size(); ++text) {
    const std::vector<float>& values = attribution.values[text];
    if (values.empty()) continue;
    out.line("  " + inspection.texts[text].name);
    for (std::size_t token = 0; token < values.size(); ++token) {
      const double value = static_cast<double>(values[token]);
      const auto length = static_cast<int>(std::lround(largest > 0 ? longest_bar * std::abs(value) / largest : 0));
      std::string bar;
      for (int i = 0; i < length; ++i) bar += value < 0 ? "\u2591" : "\u2588";
      std::string line = join("    ", padded(inspection.texts[text].tokens[token].text, widest), "  ",
                              signed_number(value), "  ", bar);
      while (line.ends_with(' ')) line.pop_back();
      out.line(line);
    }
  }
  if (attribution.steps == 0) {
    out.line(join("  sum ", number(attribution.sum()), ", target ", number(attribution.target)));
    return;
  }
  const double whole = std::abs(attribution.target - attribution.baseline);
  char share[32] = "";
  if (whole > 0) {
    const double percent = 100 * std::abs(attribution.completeness_error) / whole;
    std::snprintf(share, sizeof(share), percent < 10 ? " (%.2g %%)" : " (%.0f %%)", percent);
  }
  out.line(join("  sum ", number(attribution.sum()), "; target ", number(attribution.target), ", at the baseline (",
                attribution.baseline_name, ") ", number(attribution.baseline), "; completeness error ",
                number(attribution.completeness_error), share, " with ", attribution.steps, " steps"));
}

// Rollouts are read after their last layer; value zeroing is a mean over the layers.
void print_shares(Output& out, const Inspection& inspection, const ShownAttention& attention, bool rollout, int columns,
                  bool colour) {
  const auto& queries = inspection.texts[attention.query_text].tokens;
  const auto& keys = inspection.texts[attention.key_text].tokens;
  const std::vector<float>& values = attention.measures.front().values;
  const std::size_t cells = queries.size() * keys.size(), layers = attention.layers.size();
  out.line("");
  const char* what = attention.query_text == attention.key_text ? "word" : "target word";
  out.line(rollout ? join(attention.name, ": what of the text has reached each ", what, " up to layer ",
                          attention.layers.back())
                   : join(attention.name, ": whose value changes what becomes of each ", what, ", mean over ", layers,
                          layers == 1 ? " layer" : " layers"));
  int widest = 4;
  for (const ShownToken& token : queries) widest = std::max(widest, std::min(display_width(token.text), 16));
  for (std::size_t query = 0; query < queries.size(); ++query) {
    std::vector<std::pair<double, std::size_t>> shares;
    for (std::size_t key = 0; key < keys.size(); ++key) {
      double sum = 0;
      for (std::size_t layer = rollout ? layers - 1 : 0; layer < layers; ++layer)
        sum += static_cast<double>(values[layer * cells + query * keys.size() + key]);
      shares.emplace_back(sum / static_cast<double>(rollout ? 1 : layers), key);
    }
    std::stable_sort(shares.begin(), shares.end(), [](const auto& a, const auto& b) { return a.first > b.first; });
    std::string row = "  " + padded(queries[query].text, widest) + "  ";
    int left = columns - widest - 4;
    for (const auto& [share, key] : shares) {
      if (share < least_share) break;
      char text[16];
      std::snprintf(text, sizeof(text), " %.2f   ", share);
      const int width = display_width(keys[key].text) + static_cast<int>(std::string_view(text).size());
      if (width > left) break;
      left -= width;
      row += (colour && share >= 0.5 ? "\033[1m" + keys[key].text + "\033[0m" : keys[key].text) + text;
    }
    while (row.ends_with(' ')) row.pop_back();
    out.line(row);
  }
}

}  // namespace

void AttributionFlags::add_to(Command& command) {
  command
      .add_list(
          "--attribution", methods,
          "Also these: integrated-gradients and gradient-input (what each word adds to --why or --sequence), rollout (what "
          "of the text reaches each word through all layers), value-zeroing (whose value changes what becomes of each word)")
      ->words({"integrated-gradients", "gradient-input", "rollout", "value-zeroing"});
  command
      .add_option(
          "--baseline", options.baseline,
          "Integrated gradients: the token read in place of every word, or zero (default: the pad or unknown token)")
      ->type_name("TOKEN");
  command
      .add_option("--steps", options.steps,
                  "Integrated gradients: points of the path (default: until the completeness error is below 1 %)")
      ->type_name("N")
      ->check(whole(1, 1024));
  command.add_option("--residual", options.residual, "Rollout: share of the residual stream")
      ->check(between(0, 1))
      ->show_default();
}

AttributionOptions AttributionFlags::chosen(bool has_target) const {
  AttributionOptions all = options;
  bool gradients = false;
  for (const std::string& name : methods) {
    const AttributionMethod method = attribution_method_named(name);
    all.methods.push_back(method);
    gradients = gradients || method == AttributionMethod::integrated_gradients;
    if (!has_target &&
        (method == AttributionMethod::integrated_gradients || method == AttributionMethod::gradient_input))
      throw Error(ErrorKind::argument, join("--attribution ", name), "explains something, and nothing is chosen",
                  "add --why TOKEN or --sequence");
  }
  if (!gradients && (!options.baseline.empty() || options.steps > 0))
    throw Error(ErrorKind::argument, options.baseline.empty() ? "--steps" : "--baseline",
                "is of integrated gradients, and they are not wanted", "add --attribution integrated-gradients");
  return all;
}

void print_attributions(Output& out, const Inspection& inspection, int columns, bool colour) {
  for (const ShownAttention& attention : inspection.attentions)
    for (const Measure& measure : attention.measures)
      if (measure.name == "rollout" || measure.name == "value_zeroing")
        print_shares(out, inspection, attention, measure.name == "rollout", columns, colour);
  for (const TokenAttribution& attribution : inspection.attributions) print_scores(out, inspection, attribution);
}

}  // namespace attend::cli
