#include "run/options.h"

#include <algorithm>
#include <cmath>

#include "attend/error.h"
#include "run/choose.h"

namespace attend {
namespace {

// Results of one input; more would be a slip that fills memory.
constexpr std::int64_t most_results = 1 << 16;

[[noreturn]] void refuse(const std::string& where, const std::string& what, const std::string& advice) {
  throw Error(ErrorKind::argument, where, what, advice);
}

template <typename Enum>
Enum named(std::string_view name, std::initializer_list<Enum> all, const char* where) {
  std::string known;
  for (const Enum value : all) {
    if (name == name_of(value)) return value;
    known += known.empty() ? name_of(value) : std::string(", ") + name_of(value);
  }
  refuse(where, join("\"", name, "\" is not known"), "use one of " + known);
}

}  // namespace

const char* name_of(Strategy strategy) {
  switch (strategy) {
    case Strategy::greedy:
      return "greedy";
    case Strategy::sample:
      return "sample";
    case Strategy::beam:
      return "beam";
  }
  return "?";
}

Strategy strategy_named(std::string_view name) {
  return named(name, {Strategy::greedy, Strategy::sample, Strategy::beam}, "strategy");
}

const char* name_of(LengthPenalty penalty) {
  switch (penalty) {
    case LengthPenalty::none:
      return "none";
    case LengthPenalty::power:
      return "power";
    case LengthPenalty::gnmt:
      return "gnmt";
  }
  return "?";
}

LengthPenalty length_penalty_named(std::string_view name) {
  return named(name, {LengthPenalty::none, LengthPenalty::power, LengthPenalty::gnmt}, "length penalty");
}

double length_score(LengthPenalty penalty, double alpha, double total, std::int64_t length) {
  const double tokens = static_cast<double>(std::max<std::int64_t>(length, 1));
  switch (penalty) {
    case LengthPenalty::none:
      return total;
    case LengthPenalty::power:
      return total / std::pow(tokens, alpha);
    case LengthPenalty::gnmt:
      return total / std::pow((5 + tokens) / 6, alpha);
  }
  return total;
}

void check_ids(std::span<const std::int32_t> ids, std::int64_t vocabulary, const std::string& where, const char* what) {
  for (std::size_t i = 0; i < ids.size(); ++i) {
    if (ids[i] < 0 || ids[i] >= vocabulary) {
      refuse(where, join(what, " holds id ", ids[i], " at ", i, ", but the vocabulary has ", vocabulary, " tokens"),
             join("use ids from 0 to ", vocabulary - 1));
    }
  }
}

void check_options(const DecodeOptions& options, std::int64_t vocabulary) {
  const char* const where = "generate";
  if (!(options.temperature > 0) || !std::isfinite(options.temperature)) {
    refuse(where, join("temperature is ", options.temperature, " and must be above 0"),
           "use greedy instead of temperature 0");
  }
  if (options.top_k < 0)
    refuse(where, join("top_k is ", options.top_k, " and must be 0 or more"), "use 0 for all tokens");
  if (!(options.top_p > 0) || !(options.top_p <= 1)) {
    refuse(where, join("top_p is ", options.top_p, " and must be above 0 and at most 1"), "use 1 for all tokens");
  }
  if (options.beam_size < 1 || options.beam_size > 64) {
    refuse(where, join("beam_size is ", options.beam_size, " and must be 1 to 64"), "use 4, which is usual");
  }
  if (!std::isfinite(options.length_alpha)) {
    refuse(where, join("length_alpha is ", options.length_alpha, " and must be a number"),
           "use 1 for the mean of a token");
  }
  // Samples of one input share its batch: more would ask for memory, not for choice.
  if (options.n_best < 1 || options.n_best > most_results)
    refuse(where, join("n_best is ", options.n_best, " and must be 1 to ", most_results), "use 1");
  if (options.strategy == Strategy::greedy && options.n_best > 1) {
    refuse(where, join("n_best is ", options.n_best, ", but greedy choice has one result"), "use beam or sample");
  }
  if (options.strategy == Strategy::beam && options.n_best > options.beam_size) {
    refuse(where, join("n_best is ", options.n_best, " and beam_size ", options.beam_size),
           "use a beam_size of n_best or more");
  }
  if (options.strategy == Strategy::beam && options.on_token) {
    refuse(where, "on_token is set, but the tokens of a beam are certain only at its end", "use greedy or sample");
  }
  if (options.max_length < 0 || options.min_length < 0) {
    refuse(where, join("max_length is ", options.max_length, " and min_length ", options.min_length), "use 0 or more");
  }
  if (options.max_length > 0 && options.min_length > options.max_length) {
    refuse(where, join("min_length is ", options.min_length, ", above max_length ", options.max_length),
           "lower min_length");
  }
  if (options.batch_size < 1)
    refuse(where, join("batch_size is ", options.batch_size, " and must be 1 or more"), "use 48");
  check_ids(options.end, vocabulary, where, "end");
  check_ids(options.forbidden, vocabulary, where, "forbidden");
  if (AllowedIds(vocabulary, {options.forbidden}).count() == 0 ||
      (options.min_length > 0 && AllowedIds(vocabulary, {options.forbidden, options.end}).count() == 0)) {
    refuse(where, "every token of the vocabulary is forbidden", "forbid fewer");
  }
}

void check_source(const Model& model, std::span<const std::int32_t> source, const std::string& where) {
  const TransformerConfig& config = model.config();
  if (!config.decoder || config.decoder->vocabulary == 0) {
    refuse(where, "the model has no decoder of tokens", "use a model that generates");
  }
  if (!config.encoder) {
    if (!source.empty())
      refuse(where, "there is a source, but the model has no encoder", "put the text into the prompt");
    return;
  }
  if (config.encoder->vocabulary == 0)
    refuse(where, "the model's encoder reads features, not tokens", "use a model of text");
  if (source.empty()) refuse(where, "the source is empty, but the model has an encoder", "give at least the end token");
  const auto length = static_cast<std::int64_t>(source.size());
  if (length > config.max_positions) {
    refuse(where, join("the source has ", length, " tokens and the model ", config.max_positions, " positions"),
           "shorten it");
  }
  check_ids(source, config.encoder->vocabulary, where, "source");
}

std::int64_t length_limit(const Model& model, const DecodeInput& input, const DecodeOptions& options) {
  // The last token is chosen but never read, so it needs no position.
  const std::int64_t positions = model.config().max_positions - static_cast<std::int64_t>(input.prompt.size()) + 1;
  std::int64_t wanted = options.max_length;
  if (wanted == 0) {
    wanted = input.source.empty() ? positions : 4 * static_cast<std::int64_t>(input.source.size()) + 32;
    wanted = std::max({wanted, options.min_length, static_cast<std::int64_t>(input.prefix.size())});
  }
  return std::min(wanted, positions);
}

}  // namespace attend
