#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <utility>

#include "attend/error.h"
#include "attend/importance.h"

namespace attend {
namespace {

void check_lists(const char* operation, std::span<const double> a, std::span<const double> b) {
  if (a.size() != b.size()) throw Error(ErrorKind::shape, operation, join("the lists have ", a.size(), " and ", b.size(), " values"));
  for (std::size_t i = 0; i < a.size(); ++i)
    if (std::isnan(a[i]) || std::isnan(b[i]))
      throw Error(ErrorKind::numeric, operation, join("value ", i, " is NaN"), "leave out what was not measured");
}

// Indices by value, largest first, equal ones by place.
std::vector<std::size_t> by_value(std::span<const double> values) {
  std::vector<std::size_t> order(values.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::stable_sort(order.begin(), order.end(), [&](std::size_t i, std::size_t j) { return values[i] > values[j]; });
  return order;
}

// Ranks from 0; equal values have the mean of theirs.
std::vector<double> ranks_of(std::span<const double> values) {
  const std::vector<std::size_t> order = by_value(values);
  std::vector<double> ranks(values.size());
  for (std::size_t begin = 0; begin < order.size();) {
    std::size_t end = begin + 1;
    while (end < order.size() && values[order[end]] == values[order[begin]]) ++end;
    for (std::size_t i = begin; i < end; ++i) ranks[order[i]] = 0.5 * static_cast<double>(begin + end - 1);
    begin = end;
  }
  return ranks;
}

}  // namespace

double rank_correlation(std::span<const double> a, std::span<const double> b) {
  check_lists("rank_correlation", a, b);
  const std::vector<double> x = ranks_of(a), y = ranks_of(b);
  // Ranks with ties shared have the same mean as ranks without.
  const double mean = 0.5 * (static_cast<double>(a.size()) - 1);
  double xy = 0, xx = 0, yy = 0;
  for (std::size_t i = 0; i < x.size(); ++i) {
    xy += (x[i] - mean) * (y[i] - mean);
    xx += (x[i] - mean) * (x[i] - mean);
    yy += (y[i] - mean) * (y[i] - mean);
  }
  if (xx == 0 || yy == 0) return std::numeric_limits<double>::quiet_NaN();
  return xy / std::sqrt(xx * yy);
}

double shared_top(std::span<const double> a, std::span<const double> b, std::int64_t count) {
  check_lists("shared_top", a, b);
  if (count < 1) throw Error(ErrorKind::argument, "shared_top", join("the largest ", count, " are asked for"), "at least 1");
  const auto top = std::min(static_cast<std::size_t>(count), a.size());
  if (top == 0) return std::numeric_limits<double>::quiet_NaN();
  std::vector<std::size_t> x = by_value(a), y = by_value(b), both;
  x.resize(top);
  y.resize(top);
  std::sort(x.begin(), x.end());
  std::sort(y.begin(), y.end());
  std::set_intersection(x.begin(), x.end(), y.begin(), y.end(), std::back_inserter(both));
  return static_cast<double>(both.size()) / static_cast<double>(top);
}

std::vector<RankAgreement> rank_agreement(std::span<const MeasuredEdge> edges, std::int64_t top) {
  std::vector<std::pair<EdgeMeasure, std::vector<double>>> lists;
  for (const EdgeMeasure measure : {EdgeMeasure::weight, EdgeMeasure::write, EdgeMeasure::first_order, EdgeMeasure::exact}) {
    std::vector<double> values;
    for (const MeasuredEdge& edge : edges) values.push_back(std::fabs(edge.value(measure)));
    if (std::none_of(values.begin(), values.end(), [](double value) { return std::isnan(value); })) lists.emplace_back(measure, std::move(values));
  }
  std::vector<RankAgreement> all;
  for (std::size_t i = 0; i < lists.size() && !edges.empty(); ++i)
    for (std::size_t j = i + 1; j < lists.size(); ++j)
      all.push_back({lists[i].first, lists[j].first, rank_correlation(lists[i].second, lists[j].second),
                     shared_top(lists[i].second, lists[j].second, top), static_cast<std::int64_t>(edges.size()),
                     std::min(top, static_cast<std::int64_t>(edges.size()))});
  return all;
}

}  // namespace attend
