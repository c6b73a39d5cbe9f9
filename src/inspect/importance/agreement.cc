#include <algorithm>
#include <cmath>
#include <functional>
#include <iterator>
#include <limits>
#include <numeric>
#include <utility>

#include "attend/error.h"
#include "attend/importance.h"
#include "attend/ranks.h"

namespace attend {
namespace {

void check_lists(const char* operation, std::span<const double> a, std::span<const double> b) {
  if (a.size() != b.size())
    throw Error(ErrorKind::shape, operation, join("the lists have ", a.size(), " and ", b.size(), " values"),
                "give one value of each for every edge");
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
std::vector<double> ranks_of(std::span<const double> values, std::span<const std::size_t> order) {
  std::vector<double> ranks(values.size());
  for (std::size_t begin = 0; begin < order.size();) {
    std::size_t end = begin + 1;
    while (end < order.size() && values[order[end]] == values[order[begin]]) ++end;
    for (std::size_t i = begin; i < end; ++i) ranks[order[i]] = 0.5 * static_cast<double>(begin + end - 1);
    begin = end;
  }
  return ranks;
}

double correlation_of(const std::vector<double>& x, const std::vector<double>& y) {
  // Ranks with ties shared have the same mean as ranks without.
  const double mean = 0.5 * (static_cast<double>(x.size()) - 1);
  double xy = 0, xx = 0, yy = 0;
  for (std::size_t i = 0; i < x.size(); ++i) {
    xy += (x[i] - mean) * (y[i] - mean);
    xx += (x[i] - mean) * (x[i] - mean);
    yy += (y[i] - mean) * (y[i] - mean);
  }
  if (xx == 0 || yy == 0) return std::numeric_limits<double>::quiet_NaN();
  return xy / std::sqrt(xx * yy);
}

// The first `count` of an order, rising.
std::vector<std::size_t> top_of(std::span<const std::size_t> order, std::size_t count) {
  std::vector<std::size_t> top(order.begin(), order.begin() + static_cast<std::ptrdiff_t>(count));
  std::sort(top.begin(), top.end());
  return top;
}

double shared_of(const std::vector<std::size_t>& x, const std::vector<std::size_t>& y) {
  if (x.empty()) return std::numeric_limits<double>::quiet_NaN();
  std::vector<std::size_t> both;
  std::set_intersection(x.begin(), x.end(), y.begin(), y.end(), std::back_inserter(both));
  return static_cast<double>(both.size()) / static_cast<double>(x.size());
}

std::size_t checked_top(const char* operation, std::int64_t count, std::size_t values) {
  if (count < 1)
    throw Error(ErrorKind::argument, operation, join("the largest ", count, " are asked for"), "at least 1");
  return std::min(static_cast<std::size_t>(count), values);
}

// What one measure says of all edges.
struct Ranked {
  EdgeMeasure measure = EdgeMeasure::weight;
  std::vector<double> ranks;
  std::vector<std::size_t> top;
};

constexpr EdgeMeasure all_measures[] = {EdgeMeasure::weight, EdgeMeasure::write, EdgeMeasure::first_order,
                                        EdgeMeasure::exact};

// `values` gives each measure's absolute values; a measure that some edge lacks is left out.
std::vector<RankAgreement> agreement_of(std::size_t edges, std::int64_t top,
                                        const std::function<std::vector<double>(EdgeMeasure)>& values) {
  const std::size_t shared = checked_top("rank_agreement", top, edges);
  std::vector<Ranked> lists;
  for (const EdgeMeasure measure : all_measures) {
    const std::vector<double> list = values(measure);
    if (list.size() != edges || std::any_of(list.begin(), list.end(), [](double value) { return std::isnan(value); }))
      continue;
    const std::vector<std::size_t> order = by_value(list);
    lists.push_back({measure, ranks_of(list, order), top_of(order, shared)});
  }
  std::vector<RankAgreement> all;
  for (std::size_t i = 0; i < lists.size() && edges > 0; ++i)
    for (std::size_t j = i + 1; j < lists.size(); ++j)
      all.push_back({lists[i].measure, lists[j].measure, correlation_of(lists[i].ranks, lists[j].ranks),
                     shared_of(lists[i].top, lists[j].top), static_cast<std::int64_t>(edges),
                     static_cast<std::int64_t>(shared)});
  return all;
}

const Tensor& matrix_of(const HeadEdges& head, EdgeMeasure measure) {
  return measure == EdgeMeasure::weight ? head.weight : measure == EdgeMeasure::write ? head.write : head.first_order;
}

}  // namespace

double rank_correlation(std::span<const double> a, std::span<const double> b) {
  check_lists("rank_correlation", a, b);
  return correlation_of(ranks_of(a, by_value(a)), ranks_of(b, by_value(b)));
}

double shared_top(std::span<const double> a, std::span<const double> b, std::int64_t count) {
  check_lists("shared_top", a, b);
  const std::size_t top = checked_top("shared_top", count, a.size());
  return shared_of(top_of(by_value(a), top), top_of(by_value(b), top));
}

std::vector<RankAgreement> rank_agreement(std::span<const MeasuredEdge> edges, std::int64_t top) {
  return agreement_of(edges.size(), top, [&](EdgeMeasure measure) {
    std::vector<double> values;
    for (const MeasuredEdge& edge : edges) values.push_back(std::fabs(edge.value(measure)));
    return values;
  });
}

std::vector<RankAgreement> rank_agreement(const EdgeReport& report, std::int64_t top) {
  const auto each_seen = [&](const auto& use) {
    for (const HeadEdges& head : report.heads) {
      if (!head.weight.defined())
        throw Error(ErrorKind::argument, "rank_agreement", join("weights were not computed for ", name_of(head.head)),
                    "ask edge_effects for them");
      for (std::int64_t query = 0; query < head.weight.rows(); ++query)
        for (std::int64_t key = 0; key < head.weight.width(); ++key)
          if (head.weight.at(query, key) != 0) use(head, query, key);
    }
  };
  std::size_t edges = 0;
  each_seen([&](const HeadEdges&, std::int64_t, std::int64_t) { ++edges; });
  return agreement_of(edges, top, [&](EdgeMeasure measure) {
    std::vector<double> values;
    if (measure == EdgeMeasure::exact) return values;
    values.reserve(edges);
    each_seen([&](const HeadEdges& head, std::int64_t query, std::int64_t key) {
      const Tensor& matrix = matrix_of(head, measure);
      if (matrix.defined()) values.push_back(std::fabs(static_cast<double>(matrix.at(query, key))));
    });
    return values;
  });
}

}  // namespace attend
