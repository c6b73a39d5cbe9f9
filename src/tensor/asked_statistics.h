// Room for the statistics asked of one attention, from before it is computed until they are shown.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "attend/statistics.h"

namespace attend {

class AskedStatistics {
 public:
  // For an attention of `rows` queries. `item_numbers` as RunOptions::item_numbers. Throws Error(argument) for heads that the
  // attention has not and for spans that name a list beyond the last.
  AskedStatistics(const StatisticsRequest& request, std::int64_t rows, const AttentionInput& input,
                  std::span<const std::int64_t> item_numbers);
  AskedStatistics(const AskedStatistics&) = delete;
  AskedStatistics& operator=(const AskedStatistics&) = delete;

  const AttentionStatistics* outputs() const { return &outputs_; }  // for AttentionInput::statistics
  Tensor* log_sum_exp() { return &result_.log_sum_exp; }            // for attention()
  const StatisticsResult& result() const { return result_; }

 private:
  StatisticsResult result_;
  std::vector<std::int32_t> heads_;
  std::vector<KeySpan> spans_;
  AttentionStatistics outputs_;
};

}  // namespace attend
