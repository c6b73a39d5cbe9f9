// Do two lists of numbers rank alike?
#pragma once

#include <cstdint>
#include <span>

namespace attend {

// Spearman's rank correlation, equal values sharing their mean rank; NaN for fewer than two values or constant ones.
// Error(shape): lists of different lengths; Error(numeric): a NaN.
double rank_correlation(std::span<const double> a, std::span<const double> b);
// Share of the `count` largest of a that are among the `count` largest of b; equal values are ranked by place.
// Errors as above; Error(argument): a count below 1.
double shared_top(std::span<const double> a, std::span<const double> b, std::int64_t count);

}  // namespace attend
