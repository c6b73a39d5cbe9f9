// The flags of decoding, common to `translate` and `generate`.
#pragma once

#include <CLI/CLI.hpp>
#include <string>

#include "attend/generate.h"
#include "commands.h"

namespace attend::cli {

struct DecodeFlags {
  std::string strategy;
  DecodeOptions decode;

  void add_to(CLI::App& command, Strategy standard) {
    strategy = name_of(standard);
    command.option_defaults()->group("Decoding");
    command.add_option("--strategy", strategy, "greedy, sample or beam")->capture_default_str()->check(CLI::IsMember({"greedy", "sample", "beam"}));
    command.add_option("--beam-size", decode.beam_size, "Beginnings followed side by side")->capture_default_str();
    command.add_option("--length-penalty", decode.length_alpha, "Scores are divided by length to this power")->capture_default_str();
    command.add_option("--n-best,--samples", decode.n_best, "Results printed for each input")->capture_default_str();
    command.add_option("--temperature", decode.temperature, "Sampling: above 1 bolder, below 1 safer")->capture_default_str();
    command.add_option("--top-k", decode.top_k, "Sampling: only the k most probable tokens; 0: all")->capture_default_str();
    command.add_option("--top-p", decode.top_p, "Sampling: only the most probable tokens that make up this share")->capture_default_str();
    command.add_option("--max-length", decode.max_length, "Tokens made at most; 0: what the model allows")->capture_default_str();
    command.add_option("--min-length", decode.min_length, "Tokens made at least")->capture_default_str();
    command.add_option("--batch-size", decode.batch_size, "Lines computed at once")->capture_default_str();
    command.option_defaults()->group("Options");
  }

  DecodeOptions options(const Globals& globals) const {
    DecodeOptions result = decode;
    result.strategy = strategy_named(strategy);
    if (globals.seed) result.seed = *globals.seed;
    return result;
  }
};

}  // namespace attend::cli
