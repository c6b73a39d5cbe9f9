// What the machine allows: fused multiply-adds on registers only.
#pragma once

#include <cstdint>
#include <vector>

namespace attend {

// Does `count` rounds of multiply-adds on this thread and returns how many float operations they were.
double multiply_adds(std::int64_t count);

// The same on every thread of the team at once; the sum of their operations.
double multiply_adds_on_all_threads(std::int64_t count);

// Seconds for measuring: CPU time of this thread when the team is one thread (a neighbour's share does not count), else
// wall time.
double seconds_now();

double median(std::vector<double> values);

}  // namespace attend
