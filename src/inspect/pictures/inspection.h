// Finding one's way in an Inspection.
#pragma once

#include <cmath>
#include <cstddef>
#include <limits>
#include <span>
#include <string>
#include <vector>

#include "attend/pictures.h"

namespace attend::pictures {

// One head under one measure, with all that is needed to draw it. Points into the Inspection.
struct Matrix {
  const ShownAttention* attention = nullptr;
  const Measure* measure = nullptr;
  std::span<const ShownToken> queries, keys;
  std::span<const float> values;  // [queries, keys]
  int layer = 0, head = 0;        // as numbered in the attention
  std::size_t layer_index = 0, head_index = 0;

  std::size_t rows() const { return queries.size(); }
  std::size_t columns() const { return keys.size(); }
  bool masked(std::size_t query, std::size_t key) const {
    return !attention->masked.empty() && attention->masked[query * keys.size() + key] != 0;
  }
  float at(std::size_t query, std::size_t key) const { return values[query * keys.size() + key]; }
  // Largest absolute finite value where the mask allows; 0 if there is none.
  double largest() const;
};

const TokenAttribution& attribution_named(const Inspection& inspection, const std::string& name);
const ShownAttention& attention_named(const Inspection& inspection, const std::string& name);
const Measure& measure_named(const ShownAttention& attention, const std::string& name);
const HeadMetric& metric_named(const ShownAttention& attention, const std::string& name);
const RowStatistic& statistic_named(const ShownAttention& attention, const std::string& name);
Matrix matrix_at(const Inspection& inspection, const MatrixPlace& place, const std::string& measure);

// "weight (logit)" or "weight" in the reader's language.
std::string with_unit(const std::string& name, const std::string& unit, PictureLanguage language);
// "source: I like robots", for screen readers and for labels that were left out.
std::string text_of(const ShownText& text, PictureLanguage language);
// Of the keys' text and, where it is another, the queries': what a screen reader says of a picture.
std::string description_of(const Inspection& inspection, const ShownAttention& attention, PictureLanguage language);

}  // namespace attend::pictures
