#include <chrono>

#include "attend/bench.h"
#include "bench/machine_peak.h"

namespace attend {

Rates bench_translation(const Translator& translator, std::span<const std::string> lines,
                        const TranslateOptions& options, std::int64_t rounds) {
  if (lines.empty()) throw Error(ErrorKind::argument, "bench_translation", "there are no lines");
  Rates rates;
  for (std::int64_t round = 0; round <= rounds; ++round) {
    const auto begin = std::chrono::steady_clock::now();
    translator.translate(lines, options);
    const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
    if (round > 0) rates.all.push_back(static_cast<double>(lines.size()) / seconds);
  }
  rates.median = median(rates.all);
  return rates;
}

}  // namespace attend
