// What the rows of one attention tell an inspection: statistics, the weight on regions of keys, the largest keys, readings.
// It is asked for before the model runs and taken from the StatisticsRecorder after: from sums of the kernel where tokens
// stand for themselves, else from blocks of rows that their records rebuild; memory never grows with the square of the text.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "attend/inspect.h"
#include "attend/statistics.h"

namespace attend {

// A stack's rows and how they are merged.
struct GroupedText {
  std::vector<Piece> pieces;
  std::vector<TokenGroup> groups;
};

// One attention of the model, with the layers and heads that were chosen. It points at the texts and at regions of the
// options, which outlive it.
struct AskedAttention {
  std::string name;  // "encoder", "decoder", "cross"
  StackKind stack = StackKind::decoder;
  Part part = Part::self;
  std::vector<int> layers = {}, heads = {};  // rising
  const GroupedText *queries = nullptr, *keys = nullptr;
  std::size_t query_text = 0, key_text = 0;  // of Inspection::texts

  // What ask_rows() fills: of every layer, the regions that the keys have, a list of spans each in their order.
  StatisticsRequest request = {};
  std::vector<const KeyRegion*> regions = {};
  bool fused_top = false;  // the request has the largest keys; else they are of merged weights
};

// Error(argument): a name that is taken or none, a region without keys.
void check_regions(const std::vector<KeyRegion>& regions);
// `key_text`: what the text of the keys is called.
void ask_rows(const std::string& key_text, const InspectOptions& options, AskedAttention& asked);
// Error(argument), with the keys there are, for a region that no attention asked has.
void check_regions_found(const std::vector<KeyRegion>& regions, const std::vector<AskedAttention>& asked,
                         const Inspection& shown);

struct RowsTold {
  std::vector<RowStatistic> statistics;  // [layers, heads, query groups]: means over the tokens of a group
  std::vector<HeadMetric> metrics;       // [layers, heads]: means over all rows
};
RowsTold rows_told(const StatisticsRecorder& run, const AskedAttention& asked, const InspectOptions& options);

// Those below need records of the run: StatisticsRecorder::keep_records(); largest keys where they are not fused_top.
// [query groups]: keys of at least this share, mean over layers and heads, largest first.
std::vector<std::vector<Reading>> readings_of(const StatisticsRecorder& run, const AskedAttention& asked, double least);
// Keys of weight 0 are none that are read.
LargestKeys largest_of(const StatisticsRecorder& run, const AskedAttention& asked, const InspectOptions& options);

}  // namespace attend
