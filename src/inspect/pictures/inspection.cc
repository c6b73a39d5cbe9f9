#include "inspect/pictures/inspection.h"

#include <algorithm>
#include <set>

#include "attend/error.h"
#include "core/names.h"
#include "inspect/pictures/text.h"

namespace attend {
namespace pictures {
namespace {

std::string number_text(int number) { return number == mean_of_all ? "mean" : std::to_string(number); }

std::size_t index_of(const std::vector<int>& numbers, int wanted, const std::string& attention, const char* what) {
  const auto at = std::find(numbers.begin(), numbers.end(), wanted);
  if (at != numbers.end()) return static_cast<std::size_t>(at - numbers.begin());
  std::string known;
  for (int number : numbers) known.append(known.empty() ? "" : ", ").append(number_text(number));
  throw Error(ErrorKind::argument, join("picture of ", attention),
              join("there is no ", what, ' ', number_text(wanted), "; it holds ", known),
              join("choose one of these ", what, "s"));
}

// The part of `list` with this name.
template <typename Part>
const Part& part_named(const std::vector<Part>& list, const std::string& name, const std::string& where,
                       const char* what) {
  std::vector<std::string> known;
  for (const Part& part : list) {
    if (part.name == name) return part;
    known.push_back(part.name);
  }
  std::string all;
  for (const std::string& one : known) all.append(all.empty() ? "\"" : ", \"").append(one).append("\"");
  const std::string near = nearest_name(name, known);
  throw Error(ErrorKind::argument, where,
              join("there is no ", what, " \"", name, "\"; ", known.empty() ? "it holds none" : join("known: ", all)),
              near.empty() ? "" : join("did you mean \"", near, "\"?"));
}

}  // namespace

double Matrix::largest() const {
  double most = 0;
  for (std::size_t q = 0; q < rows(); ++q)
    for (std::size_t k = 0; k < columns(); ++k)
      if (const double value = at(q, k); std::isfinite(value) && !masked(q, k)) most = std::max(most, std::abs(value));
  return most;
}

const TokenAttribution& attribution_named(const Inspection& inspection, const std::string& name) {
  return part_named(inspection.attributions, name, "picture", "attribution");
}
const ShownAttention& attention_named(const Inspection& inspection, const std::string& name) {
  return part_named(inspection.attentions, name, "picture", "attention");
}
const Measure& measure_named(const ShownAttention& attention, const std::string& name) {
  return part_named(attention.measures, name, join("picture of ", attention.name), "measure");
}
const HeadMetric& metric_named(const ShownAttention& attention, const std::string& name) {
  return part_named(attention.metrics, name, join("picture of ", attention.name), "metric");
}
const RowStatistic& statistic_named(const ShownAttention& attention, const std::string& name) {
  return part_named(attention.statistics, name, join("picture of ", attention.name), "row statistic");
}

Matrix matrix_at(const Inspection& inspection, const MatrixPlace& place, const std::string& measure) {
  Matrix matrix;
  matrix.attention = &attention_named(inspection, place.attention);
  matrix.measure = &measure_named(*matrix.attention, measure);
  matrix.queries = inspection.texts[matrix.attention->query_text].tokens;
  matrix.keys = inspection.texts[matrix.attention->key_text].tokens;
  matrix.layer = place.layer;
  matrix.head = place.head;
  matrix.layer_index = index_of(matrix.attention->layers, place.layer, place.attention, "layer");
  matrix.head_index = index_of(matrix.attention->heads, place.head, place.attention, "head");
  const std::size_t cells = matrix.queries.size() * matrix.keys.size();
  matrix.values =
      std::span(matrix.measure->values)
          .subspan((matrix.layer_index * matrix.attention->heads.size() + matrix.head_index) * cells, cells);
  return matrix;
}

std::string with_unit(const std::string& name, const std::string& unit, PictureLanguage language) {
  const std::string text = say(language, clean(name));
  return unit.empty() ? text : join(text, " (", say(language, clean(unit)), ")");
}

std::string text_of(const ShownText& text, PictureLanguage language) {
  std::string out = say(language, clean(text.name)) + ":";
  for (const ShownToken& token : text.tokens) out.append(" ").append(shown(token.text));
  return out;
}

std::string description_of(const Inspection& inspection, const ShownAttention& attention, PictureLanguage language) {
  std::string out = text_of(inspection.texts[attention.key_text], language);
  if (attention.query_text != attention.key_text)
    out += join("\n", text_of(inspection.texts[attention.query_text], language));
  return out;
}

}  // namespace pictures

using namespace pictures;

const char* name_of(MeasureKind kind) {
  return kind == MeasureKind::share ? "share" : kind == MeasureKind::magnitude ? "magnitude" : "effect";
}

namespace {

template <typename Part>
void check_parts(const std::vector<Part>& list, std::size_t count, const std::string& where, const char* what,
                 const char* shape) {
  std::set<std::string> seen;
  for (const Part& part : list) {
    if (part.name.empty() || !seen.insert(part.name).second)
      throw Error(ErrorKind::argument, where,
                  join("a ", what, " is called \"", part.name, "\" and so is another, or it has no name"),
                  "give every one a name of its own");
    if (part.values.size() != count)
      throw Error(ErrorKind::shape, where,
                  join(what, " \"", part.name, "\" has ", part.values.size(), " values; ", shape, " are ", count),
                  "give one value for each");
  }
}

}  // namespace

double TokenAttribution::sum() const {
  double total = 0;
  for (const std::vector<float>& text : values)
    for (const float value : text) total += static_cast<double>(value);
  return total;
}

void check(const Inspection& inspection) {
  std::set<std::string> names;
  for (const TokenAttribution& attribution : inspection.attributions) {
    if (attribution.name.empty() || !names.insert(attribution.name).second)
      throw Error(ErrorKind::argument, "inspection",
                  join("an attribution is called \"", attribution.name, "\" and so is another, or it has no name"),
                  "give every one a name of its own");
    bool fits = attribution.values.size() == inspection.texts.size();
    for (std::size_t text = 0; fits && text < attribution.values.size(); ++text)
      fits =
          attribution.values[text].empty() || attribution.values[text].size() == inspection.texts[text].tokens.size();
    if (!fits)
      throw Error(ErrorKind::shape, join("attribution ", attribution.name), "its values do not fit the texts",
                  "give one for each token of a text, or none");
  }
  names.clear();
  for (const ShownText& text : inspection.texts)
    if (text.tokens.empty())
      throw Error(ErrorKind::shape, "inspection", join("text \"", text.name, "\" has no tokens"),
                  "leave it out, or give its tokens");
  for (const ShownAttention& attention : inspection.attentions) {
    const std::string where = join("inspection of ", attention.name);
    if (attention.name.empty() || !names.insert(attention.name).second)
      throw Error(ErrorKind::argument, "inspection",
                  join("an attention is called \"", attention.name, "\" and so is another, or it has no name"),
                  "give every one a name of its own");
    for (std::size_t text : {attention.query_text, attention.key_text})
      if (text >= inspection.texts.size())
        throw Error(ErrorKind::argument, where, join("it refers to text ", text, " of ", inspection.texts.size()),
                    "count texts from 0");
    for (const auto& [numbers, what] : {std::pair{&attention.layers, "layer"}, std::pair{&attention.heads, "head"}}) {
      std::set<int> seen;
      if (numbers->empty())
        throw Error(ErrorKind::shape, where, join("it has no ", what), join("give at least one ", what));
      for (int number : *numbers)
        if (number < mean_of_all || !seen.insert(number).second)
          throw Error(ErrorKind::argument, where, join(what, ' ', number, " is negative or given twice"),
                      join("number each ", what, " as the model does, from 0"));
    }
    const std::size_t queries = inspection.texts[attention.query_text].tokens.size();
    const std::size_t keys = inspection.texts[attention.key_text].tokens.size();
    const std::size_t heads = attention.layers.size() * attention.heads.size();
    if (!attention.masked.empty() && attention.masked.size() != queries * keys)
      throw Error(ErrorKind::shape, where,
                  join("its mask has ", attention.masked.size(), " cells; queries x keys are ", queries * keys),
                  "give one for each, or none");
    check_parts(attention.measures, heads * queries * keys, where, "measure", "layers x heads x queries x keys");
    check_parts(attention.statistics, heads * queries, where, "row statistic", "layers x heads x queries");
    check_parts(attention.metrics, heads, where, "metric", "layers x heads");
    const LargestKeys& largest = attention.largest;
    const std::size_t listed = heads * queries * static_cast<std::size_t>(std::max<std::int64_t>(0, largest.count));
    if (largest.keys.size() != listed || largest.weights.size() != listed)
      throw Error(ErrorKind::shape, where,
                  join("its largest keys are ", largest.keys.size(), " and their weights ", largest.weights.size(),
                       "; layers x heads x queries x ", largest.count, " are ", listed),
                  "give one key and one weight for each, key -1 where there is none");
    for (const std::int32_t key : largest.keys)
      if (key < -1 || key >= static_cast<std::int64_t>(keys))
        throw Error(ErrorKind::argument, where, join("among its largest keys is ", key, " of ", keys),
                    "count keys from 0");
  }
}

}  // namespace attend
