// Pictures and files of what attention did: SVG with live text, PNG, CSV, JSON, NPY and one page that stands alone.
// Plain data in, text or bytes out: nothing here knows a model or opens a file. doc/FORMATS.md describes the files.
// Tokens are foreign text: they are escaped everywhere, and characters that a format cannot hold are shown as \x07.
#pragma once

#include <cstdint>
#include <limits>
#include <span>
#include <string>
#include <vector>

namespace attend {

// ---- What is shown -------------------------------------------------------------------------------------------------

struct ShownToken {
  std::string text;           // as people read it; empty: shown as a blank
  bool special = false;       // </s>, a tag: set apart in colour
  bool blank_before = false;  // a blank stands before it in running text

  bool operator==(const ShownToken&) const = default;
};

struct ShownText {
  std::string name;  // "source", "target", "text"
  std::vector<ShownToken> tokens;

  bool operator==(const ShownText&) const = default;
};

enum class MeasureKind {
  share,      // 0 to 1, rows sum to 1: attention weights
  magnitude,  // 0 and more: what an edge writes
  effect,     // of both signs: how the target changes when the edge is cut; shown with two hues around 0
};
const char* name_of(MeasureKind kind);  // "share", "magnitude", "effect"

// One number for every (layer, head, query, key). NaN: not measured (exact effects of a chosen set, say).
struct Measure {
  std::string name;  // "weight", "write", "first_order", "exact" (EdgeMeasure of importance.h): pictures spell them out
  std::string unit;  // "", "logit", "nats"
  MeasureKind kind = MeasureKind::share;
  std::vector<float> values;  // [layers, heads, queries, keys]
};

// One number for every row: entropy, mass on the first token, mean distance.
struct RowStatistic {
  std::string name, unit;
  std::vector<float> values;  // [layers, heads, queries]
};

// One number for every head.
struct HeadMetric {
  std::string name, unit;
  std::vector<float> values;  // [layers, heads]
};

// The keys that every row weights most, largest first.
struct LargestKeys {
  std::int64_t count = 0;          // asked for; 0: none
  std::vector<std::int32_t> keys;  // [layers, heads, queries, count]: indices into the text, -1 where fewer are read
  std::vector<float> weights;      // the same shape, 0 where there is no key
};

// The number that stands for the mean over heads or layers, in ShownAttention::heads and layers.
inline constexpr int mean_of_all = -1;

// One attention part of a model, of the layers and heads that were asked for.
struct ShownAttention {
  std::string name;            // "encoder", "decoder", "cross"
  std::size_t query_text = 0;  // which of Inspection::texts asks, and which is asked
  std::size_t key_text = 0;
  std::vector<int> layers, heads;    // as the model numbers them, from 0, or mean_of_all
  std::vector<std::uint8_t> masked;  // [queries, keys], 1 where no head may look; empty: nowhere
  std::vector<Measure> measures;
  std::vector<RowStatistic> statistics;
  std::vector<HeadMetric> metrics;
  LargestKeys largest = {};
};

// What every token of the texts adds to a target: integrated gradients, gradient x input (attribution.h).
struct TokenAttribution {
  std::string name;  // "integrated_gradients", "gradient_input"
  std::string unit;  // "logit", "nats"
  // [texts, tokens]; a text that the method does not judge has none.
  std::vector<std::vector<float>> values;
  // Of integrated gradients: the target at the baseline, the sum of all values less (target - baseline), and how the
  // path was cut. NaN and 0 of the others.
  double target = 0;
  double baseline = std::numeric_limits<double>::quiet_NaN(),
         completeness_error = std::numeric_limits<double>::quiet_NaN();
  std::string baseline_name = {};  // what the baseline reads: "<unk>", "zero"
  std::int64_t steps = 0;

  double sum() const;
};

// A token of the vocabulary before and after edits.
struct Outcome {
  ShownToken token;
  double base = 0, edited = 0;
};

struct Inspection {
  std::string model;               // name for the caption
  std::string fingerprint;         // of the model
  std::string target;              // what effects are measured on: "robots rather than machine"
  std::int64_t target_query = -1;  // the token of the last text whose row the target is of; -1: none, or all
  std::vector<std::string> edits;  // those in force, by name
  std::string note;                // anything the caption should add: how words were merged, the corpus
  std::vector<ShownText> texts;
  std::vector<ShownAttention> attentions;
  std::vector<TokenAttribution> attributions;
  std::vector<Outcome> outcomes;  // base against edited, in the order to show; empty without edits
  std::string outcome_unit = "logit";
};

// Throws Error(shape) naming the first part whose numbers do not fit its texts, layers and heads; Error(argument) for a
// text that does not exist and for names used twice. Everything below calls it.
void check(const Inspection& inspection);

// ---- Pictures ------------------------------------------------------------------------------------------------------

enum class Theme { light, dark };
enum class PictureLanguage { english, chinese };

struct PictureOptions {
  Theme theme = Theme::light;
  PictureLanguage language = PictureLanguage::english;
  std::string title;         // empty: made from what is shown
  bool caption = true;       // model, fingerprint, target, edits, note under the picture
  bool logarithmic = false;  // shares on three decades instead of from 0: for long texts, where all weights are small
};

// One matrix: an attention by name, a layer and a head as numbered in it.
struct MatrixPlace {
  std::string attention;
  int layer = 0, head = 0;
};

// Each returns a whole SVG file. Sizes are whole pixels, text is live <text>, every token shown is in it, cut ones in
// full in their tooltip. Error(argument) for a name, layer, head or query that is not there, with what is.

// Queries down, keys across. Up to 12 x 12 with the numbers in the cells; above 128 tokens the cells become an embedded
// image and labels are thinned out; above 1,024 neighbouring cells share a pixel, which shows the largest of them (by
// absolute value), and the caption says so. Row statistics stand to the right.
std::string heat_map_svg(const Inspection& inspection, const MatrixPlace& place, const std::string& measure,
                         const PictureOptions& options = {});
// The same matrix under several measures (what a head looks at beside what matters), with the rank agreement of each with
// the first: Spearman's, by absolute value, over the cells that both have.
std::string measures_svg(const Inspection& inspection, const MatrixPlace& place,
                         const std::vector<std::string>& measures, const PictureOptions& options = {});
// Keys above (or left, if they do not fit beside each other), queries below; one line an edge, opacity is the value.
// Up to 8 heads of a layer, a hue each. `query` >= 0 brings out the lines of one query.
std::string lines_svg(const Inspection& inspection, const std::string& attention, int layer,
                      const std::vector<int>& heads, const std::string& measure, std::int64_t query = -1,
                      const PictureOptions& options = {});
// Running text, each key coloured by what one query gives it.
std::string text_svg(const Inspection& inspection, const MatrixPlace& place, const std::string& measure,
                     std::int64_t query, const PictureOptions& options = {});
// Running texts, each token coloured by what it adds to the target, with the sum and its error below.
std::string attribution_svg(const Inspection& inspection, const std::string& attribution,
                            const PictureOptions& options = {});
// All layers (down) and heads (across) of an attention as small matrices on one scale, a metric below each ("" for
// none).
std::string wall_svg(const Inspection& inspection, const std::string& attention, const std::string& measure,
                     const std::string& metric, const PictureOptions& options = {});
// One bar a head, one panel a metric.
std::string head_bars_svg(const Inspection& inspection, const std::string& attention,
                          const std::vector<std::string>& metrics, const PictureOptions& options = {});
// A row statistic along the queries, one line a head (up to 8).
std::string row_lines_svg(const Inspection& inspection, const std::string& attention, int layer,
                          const std::vector<int>& heads, const std::string& statistic,
                          const PictureOptions& options = {});
// Outcomes before and after the edits.
std::string outcomes_svg(const Inspection& inspection, const PictureOptions& options = {});

struct PngImage {
  std::string bytes;
  int width = 0, height = 0;
  std::string missing;  // each character that no installed font has, once; they are boxes in the picture
};
// A picture of the above as PNG. At scale 1 a pixel is a pixel of the SVG, 96 to the inch: scale 3.125 gives 300 dpi,
// and the file says so. Loads librsvg when first called: Error(file) where it is not installed, with the package's name.
// Error(argument): more than 32,767 pixels a side or 256 million in all. Error(format): not an SVG.
PngImage png_of(const std::string& svg, double scale = 2);

// ---- Files ---------------------------------------------------------------------------------------------------------

// RFC 4180, UTF-8, one line a cell: attention,layer,head,query,query_token,key,key_token,masked and a column for every
// measure of any attention. Numbers are the shortest that read back to the same bits; not measured is empty.
std::string csv_of_cells(const Inspection& inspection);
// One line a row: attention,layer,head,query,query_token and a column for every row statistic.
std::string csv_of_rows(const Inspection& inspection);
// One line for each of the largest keys of a row: attention,layer,head,query,query_token,rank (from 1),key,key_token,weight.
std::string csv_of_largest(const Inspection& inspection);
// One line a head: attention,layer,head and a column for every metric.
std::string csv_of_heads(const Inspection& inspection);
// One line a token: text,index,token and a column for every attribution.
std::string csv_of_tokens(const Inspection& inspection);

// One HTML page that holds all numbers and opens from disk without a network: coloured text, matrix, lines, one row and
// all heads, linked by one selection, in English and Chinese, light and dark. It shows float32 to the last bit. Begins in
// `language`. Error(argument) above 256 MB, with what to leave out.
std::string html_of(const Inspection& inspection, PictureLanguage language = PictureLanguage::english);

// Everything, as {"format": "attend inspection", "version": 1, ...}.
std::string json_of(const Inspection& inspection);

// NPY 1.0, little endian, C order. Error(shape) if the shape does not hold as many values.
std::string npy_of(std::span<const float> values, std::span<const std::int64_t> shape);
std::string npy_of(std::span<const std::int32_t> values, std::span<const std::int64_t> shape);
std::string npy_of(std::span<const std::uint8_t> values, std::span<const std::int64_t> shape);
// All arrays in one .npz (stored, not compressed): cross/weight, cross/layers, cross/heads, cross/masked and so on,
// cross/largest_keys and cross/largest_weights where they were asked for, and integrated_gradients/source.
// Error(argument) above 4 GiB, which the format's plain form cannot hold.
std::string npz_of(const Inspection& inspection);

}  // namespace attend
