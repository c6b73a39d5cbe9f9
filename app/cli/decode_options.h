// The flags of decoding, common to `translate` and `generate`.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "attend/error.h"
#include "attend/generate.h"
#include "commands.h"
#include "input_output.h"

namespace attend::cli {

struct DecodeFlags {
  std::string strategy;
  DecodeOptions decode;
  // Options that count for one strategy only, to be refused with another one instead of doing nothing.
  std::vector<std::pair<const Option*, const char*>> of_one_strategy = {};

  void add_to(Command& command, Strategy standard) {
    strategy = name_of(standard);
    command.group("Decoding");
    command.add_option("--strategy", strategy, "greedy, sample or beam")
        ->show_default()
        ->check(one_of({"greedy", "sample", "beam"}));
    const auto only = [&](const char* whose, Option* option) {
      of_one_strategy.emplace_back(option->show_default(), whose);
    };
    only("beam", command.add_option("--beam-size", decode.beam_size, "Beam: beginnings followed side by side")
                     ->check(at_least(1)));
    only("beam", command.add_option("--length-penalty", decode.length_alpha,
                                    "Beam: scores are divided by length to this power"));
    command.add_option("--n-best,--samples", decode.n_best, "Results printed for each input")
        ->show_default()
        ->check(at_least(1));
    only("sample", command.add_option("--temperature", decode.temperature, "Sampling: above 1 bolder, below 1 safer")
                       ->check(above_zero()));
    only("sample", command.add_option("--top-k", decode.top_k, "Sampling: only the k most probable tokens; 0: all")
                       ->check(at_least(0)));
    only("sample",
         command.add_option("--top-p", decode.top_p, "Sampling: only the most probable tokens that make up this share")
             ->check(above_zero()));
    command.add_option("--max-length", decode.max_length, "Tokens made at most; 0: what the model allows")
        ->show_default()
        ->check(at_least(0));
    command.add_option("--min-length", decode.min_length, "Tokens made at least")->show_default()->check(at_least(0));
    command.add_option("--batch-size", decode.batch_size, "Lines computed at once; changes no result")
        ->show_default()
        ->check(at_least(1));
    command.group("Options");
  }

  // Contradictions in the words of the command line; the library's own would name its fields.
  DecodeOptions options(const Globals& globals) const {
    const auto refuse = [](const std::string& option, const std::string& what, const std::string& advice) {
      throw Error(ErrorKind::argument, option, what, advice);
    };
    for (const auto& [option, whose] : of_one_strategy)
      if (option->given() && strategy != whose)
        refuse(option->name(), join("counts only for ", whose, ", and the strategy is ", strategy),
               join("add --strategy ", whose, ", or leave it out"));
    if (decode.beam_size > 64) refuse("--beam-size", join("is ", decode.beam_size), "give 1 to 64");
    if (decode.n_best > 65536) refuse("--n-best", join("is ", decode.n_best), "give 1 to 65536");
    if (!(decode.top_p <= 1)) refuse("--top-p", join("is ", decode.top_p), "give a share above 0 and at most 1");
    if (strategy == "greedy" && decode.n_best > 1)
      refuse("--n-best", join("asks for ", decode.n_best, " results, and greedy choice has one"),
             "add --strategy beam or --strategy sample");
    if (strategy == "beam" && decode.n_best > decode.beam_size)
      refuse("--n-best", join("asks for ", decode.n_best, " results of a beam of ", decode.beam_size),
             join("add --beam-size ", decode.n_best));
    if (decode.max_length > 0 && decode.min_length > decode.max_length)
      refuse("--min-length", join("is ", decode.min_length, ", above --max-length ", decode.max_length), "lower it");
    DecodeOptions result = decode;
    result.strategy = strategy_named(strategy);
    if (globals.seed) result.seed = *globals.seed;
    return result;
  }
};

}  // namespace attend::cli
