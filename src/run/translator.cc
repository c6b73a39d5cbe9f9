#include <algorithm>
#include <cmath>
#include <tuple>
#include <utility>

#include "attend/error.h"
#include "attend/names.h"
#include "attend/scripts.h"
#include "attend/translate.h"
#include "run/alignment.h"
#include "run/text.h"
#include "text/utf8.h"

namespace attend {
namespace {

// Languages written in Chinese characters only: told from all others by the script.
bool is_chinese(std::string_view language) {
  const std::string_view base = language.substr(0, language.find_first_of("-_"));
  return base == "zh" || base == "cmn" || base == "yue" || base == "lzh";
}

std::string listed_or_none(std::span<const std::string> names) { return names.empty() ? "none" : listed(names); }

}  // namespace

std::string place_of(const LinePlace& place, const char* what, std::int64_t number) {
  return place ? place(number) : join(what, " ", number);
}

std::vector<std::int32_t> encode_line(const Tokenizer& tokenizer, std::string_view line, const std::string& place) {
  try {
    return tokenizer.encode(line);
  } catch (const Error& error) {
    if (error.kind() != ErrorKind::text) throw;
    throw Error(ErrorKind::text, place, error.what_happened(), error.advice());
  }
}

void check_tokenizer(const Tokenizer* tokenizer, std::int64_t vocabulary, const char* where, const char* stack) {
  if (!tokenizer)
    throw Error(ErrorKind::config, where, join("there is no tokenizer for the ", stack), "use a folder that has one");
  if (tokenizer->size() != vocabulary) {
    throw Error(
        ErrorKind::config, where,
        join("the tokenizer has ", tokenizer->size(), " tokens and the ", stack, " a vocabulary of ", vocabulary),
        "use the tokenizer the model was trained with");
  }
}

TextScore text_score(std::span<const std::int32_t> ids, std::vector<float> log_probabilities) {
  TextScore result{{ids.begin(), ids.end()}, std::move(log_probabilities), 0, 1};
  for (const float value : result.log_probabilities) result.total += value;
  if (!result.ids.empty()) result.perplexity = std::exp(-result.total / static_cast<double>(result.ids.size()));
  return result;
}

std::vector<std::int32_t> encode_source(const Task& task, const Tokenizer& tokenizer, std::string_view line,
                                        std::string_view to) {
  const SpecialTokens& specials = tokenizer.specials();
  const auto need = [](std::int32_t id, const char* name) {
    if (id < 0) {
      throw Error(ErrorKind::config, "task", join("the source needs ", name, ", which the vocabulary does not have"),
                  "use the tokenizer the model was trained with");
    }
    return id;
  };
  std::vector<std::int32_t> ids;
  if (task.source_begin) ids.push_back(need(specials.bos, "bos"));
  if (!task.target_tags.empty()) {
    const auto tag = task.target_tags.find(std::string(to));
    if (tag == task.target_tags.end()) {
      throw Error(ErrorKind::argument, "translate", join("the model does not translate into \"", to, "\""),
                  "use one of " + listed_or_none(task.languages));
    }
    ids.push_back(need(tokenizer.id(tag->second), ("\"" + tag->second + "\"").c_str()));
  }
  const std::vector<std::int32_t> tokens = tokenizer.encode(line);
  ids.insert(ids.end(), tokens.begin(), tokens.end());
  if (task.source_end) ids.push_back(need(specials.eos, "eos"));
  return ids;
}

std::int32_t first_token(const Tokenizer& tokenizer) {
  const SpecialTokens& specials = tokenizer.specials();
  const std::int32_t id = specials.bos >= 0 ? specials.bos : specials.pad;
  if (id < 0) {
    throw Error(ErrorKind::config, "tokenizer", "the vocabulary has neither bos nor pad for a decoder to begin with",
                "use the tokenizer the model was trained with");
  }
  return id;
}

DecodeOptions with_tokens_of(const Tokenizer& tokenizer, DecodeOptions options) {
  const SpecialTokens& specials = tokenizer.specials();
  const auto add = [](std::vector<std::int32_t>& ids, std::int32_t id) {
    if (id >= 0) ids.push_back(id);
  };
  if (options.end.empty()) {
    add(options.end, specials.eos);
    if (tokenizer.kind() == TokenizerKind::llama2c) add(options.end, specials.bos);
  }
  if (options.forbidden.empty()) {
    for (const std::int32_t id : {specials.pad, specials.bos, specials.unknown}) {
      if (std::find(options.end.begin(), options.end.end(), id) == options.end.end()) add(options.forbidden, id);
    }
  }
  return options;
}

Translator::Translator(const ModelFolder& folder)
    : Translator(folder.model, folder.source, folder.target, folder.task) {}

Translator::Translator(const Model& model, std::shared_ptr<const Tokenizer> source,
                       std::shared_ptr<const Tokenizer> target, Task task)
    : model_(&model), source_(std::move(source)), target_(std::move(target)), task_(std::move(task)) {
  const TransformerConfig& config = model.config();
  const char* const where = "translator";
  if (!config.encoder || !config.decoder || config.encoder->vocabulary == 0) {
    throw Error(ErrorKind::config, where,
                config.classes > 0 ? "the model classifies images"
                : config.encoder   ? "the model is not an encoder-decoder of text"
                                   : "the model only goes on writing (a decoder alone)",
                config.encoder ? "use a model trained to translate"
                               : "generate goes on with it; to translate use a model trained for that");
  }
  check_tokenizer(source_.get(), config.encoder->vocabulary, where, "encoder");
  check_tokenizer(target_.get(), config.decoder->vocabulary, where, "decoder");
  first_token(*target_);
  for (const auto& [language, tag] : task_.target_tags) {
    if (source_->id(tag) < 0) {
      throw Error(ErrorKind::config, where, join("the tag \"", tag, "\" for ", language, " is not in the vocabulary"),
                  "use the tokenizer the model was trained with");
    }
    if (std::find(task_.languages.begin(), task_.languages.end(), language) == task_.languages.end()) {
      throw Error(ErrorKind::config, where,
                  join("there is a tag for ", language, ", but the languages are ", listed_or_none(task_.languages)),
                  "list it in task.json");
    }
  }
}

std::pair<std::string, std::string> Translator::direction(std::string_view line, std::string_view from,
                                                          std::string_view to) const {
  const std::vector<std::string>& languages = task_.languages;
  const auto check = [&](std::string_view language) {
    if (!language.empty() && std::find(languages.begin(), languages.end(), language) == languages.end()) {
      throw Error(
          ErrorKind::argument, "translate", join("the model does not know the language \"", language, "\""),
          languages.empty() ? std::string("it names no languages: leave them out") : "use one of " + listed(languages));
    }
  };
  check(from);
  check(to);
  if (task_.target_tags.empty()) {  // one direction only
    const std::string first = languages.empty() ? "" : languages.front(),
                      last = languages.size() < 2 ? "" : languages[1];
    if ((!from.empty() && from != first) || (!to.empty() && to != last)) {
      throw Error(ErrorKind::argument, "translate", join("the model translates from ", first, " to ", last, " only"),
                  "leave the languages out");
    }
    return {first, last};
  }
  if (languages.size() == 2) {
    const auto other = [&](std::string_view language) {
      return languages[0] == language ? languages[1] : languages[0];
    };
    if (!from.empty() || !to.empty()) {
      std::pair<std::string, std::string> result{from.empty() ? other(to) : std::string(from),
                                                 to.empty() ? other(from) : std::string(to)};
      if (result.first == result.second) {
        throw Error(ErrorKind::argument, "translate", join("from and to are both ", result.first), "use two languages");
      }
      return result;
    }
    const bool chinese0 = is_chinese(languages[0]), chinese1 = is_chinese(languages[1]);
    if (chinese0 != chinese1) {
      const std::string &chinese = languages[chinese0 ? 0 : 1], &foreign = languages[chinese0 ? 1 : 0];
      return mostly_han(line) ? std::pair(chinese, foreign) : std::pair(foreign, chinese);
    }
  }
  if (to.empty()) {
    throw Error(ErrorKind::argument, "translate", "the direction cannot be told from the script of the line",
                "say which language to translate to, one of " + listed_or_none(languages));
  }
  return {std::string(from), std::string(to)};
}

std::vector<std::int32_t> Translator::source_of(const std::string& line, const std::string& to,
                                                const std::string& place) const {
  std::vector<std::int32_t> ids;
  try {
    ids = encode_source(task_, *source_, line, to);
  } catch (const Error& error) {
    if (error.kind() == ErrorKind::text) throw Error(ErrorKind::text, place, error.what_happened(), error.advice());
    throw;
  }
  const auto length = static_cast<std::int64_t>(ids.size());
  if (length > model_->config().max_positions) {
    throw Error(ErrorKind::text, place,
                join("has ", length, " tokens and the model reads at most ", model_->config().max_positions),
                "split the line");
  }
  return ids;
}

std::vector<Translation> Translator::translate(std::span<const std::string> lines,
                                               const TranslateOptions& options) const {
  const DecodeOptions decode = with_tokens_of(*target_, options.decode);
  const std::vector<std::int32_t> prompt{first_token(*target_)};
  std::vector<std::int32_t> prefix;
  if (!options.prefix.empty()) prefix = encode_line(*target_, options.prefix, "the forced prefix");
  const auto forced = static_cast<std::int64_t>(prefix.size()), positions = model_->config().max_positions;
  const std::int64_t most = decode.max_length > 0 ? std::min(decode.max_length, positions) : positions;
  if (forced > most) {
    throw Error(ErrorKind::argument, "the forced prefix",
                join("has ", counted(forced, "token"), ", and a translation at most ", most),
                "shorten it, or allow a longer translation");
  }

  std::vector<Translation> translations(lines.size());
  std::vector<DecodeInput> inputs;
  std::vector<std::size_t> line_of;  // of each input
  for (std::size_t i = 0; i < lines.size(); ++i) {
    const std::int64_t number = options.first_line + static_cast<std::int64_t>(i);
    Translation& translation = translations[i];
    std::tie(translation.from, translation.to) = direction(lines[i], options.from, options.to);
    if (is_blank(lines[i])) {
      translation.hypotheses.emplace_back();
      continue;
    }
    translation.source_ids = source_of(lines[i], translation.to, place_of(options.place, "line", number));
    inputs.push_back({translation.source_ids, prompt, prefix, number, static_cast<std::int64_t>(i)});
    line_of.push_back(i);
  }

  auto results = generate(*model_, inputs, decode);
  std::vector<AlignmentInput> alignments;
  for (std::size_t k = 0; k < inputs.size(); ++k) {
    Translation& translation = translations[line_of[k]];
    for (Hypothesis& hypothesis : results[k]) {
      std::string text = target_->decode(hypothesis.ids);
      translation.hypotheses.push_back({std::move(text), std::move(hypothesis)});
    }
    if (options.align)
      alignments.push_back({translation.source_ids, prompt, translation.hypotheses.front().tokens.ids, inputs[k].item});
  }
  if (options.align) {
    auto weights = align(*model_, alignments, options.alignment, decode.batch_size, decode.probe);
    for (std::size_t k = 0; k < inputs.size(); ++k) translations[line_of[k]].alignment = std::move(weights[k]);
  }
  return translations;
}

Translation Translator::translate(const std::string& line, const TranslateOptions& options) const {
  return std::move(translate(std::span(&line, 1), options).front());
}

std::vector<TextScore> Translator::score(std::span<const std::string> sources, std::span<const std::string> targets,
                                         const TranslateOptions& options) const {
  if (sources.size() != targets.size()) {
    throw Error(ErrorKind::argument, "score",
                join("there are ", sources.size(), " sources and ", targets.size(), " targets"), "give pairs");
  }
  const SpecialTokens& specials = target_->specials();
  std::vector<ScoreInput> inputs;
  for (std::size_t i = 0; i < sources.size(); ++i) {
    const std::int64_t number = options.first_line + static_cast<std::int64_t>(i);
    const std::string place = place_of(options.place, "line", number);
    const std::string to = direction(sources[i], options.from, options.to).second;
    std::vector<std::int32_t> ids{first_token(*target_)};
    const std::vector<std::int32_t> tokens = encode_line(*target_, targets[i], place);
    ids.insert(ids.end(), tokens.begin(), tokens.end());
    if (specials.eos >= 0) ids.push_back(specials.eos);
    const auto read = static_cast<std::int64_t>(ids.size()) - 1;
    if (read > model_->config().max_positions) {
      throw Error(ErrorKind::text, place,
                  join("its target has ", read, " tokens and the model reads at most ", model_->config().max_positions),
                  "split the line");
    }
    inputs.push_back({source_of(sources[i], to, place), std::move(ids), 1});
    if (inputs.back().source.empty()) {
      throw Error(ErrorKind::text, place, "the source is empty", "leave the pair out");
    }
  }
  auto log_probabilities = attend::score(*model_, inputs, options.decode.batch_size, options.decode.probe);
  std::vector<TextScore> results;
  for (std::size_t i = 0; i < inputs.size(); ++i) {
    results.push_back(text_score(std::span(inputs[i].ids).subspan(1), std::move(log_probabilities[i])));
  }
  return results;
}

}  // namespace attend
