#include <algorithm>
#include <utility>

#include "attend/error.h"
#include "attend/translate.h"
#include "run/text.h"

namespace attend {

TextGenerator::TextGenerator(const ModelFolder& folder) : TextGenerator(folder.model, folder.target, folder.task) {}

TextGenerator::TextGenerator(const Model& model, std::shared_ptr<const Tokenizer> tokenizer, Task task)
    : model_(&model), tokenizer_(std::move(tokenizer)), task_(std::move(task)) {
  const TransformerConfig& config = model.config();
  const char* const where = "text generator";
  if (config.encoder || !config.decoder) {
    throw Error(ErrorKind::config, where,
                config.classes > 0                 ? "the model classifies images"
                : config.encoder && config.decoder ? "the model translates; it is not a decoder alone"
                                                   : "the model is not a decoder alone",
                config.encoder && config.decoder ? "use translate with it" : "use a model that writes");
  }
  check_tokenizer(tokenizer_.get(), config.decoder->vocabulary, where, "decoder");
  if (task_.lines) first_token(*tokenizer_);
}

std::vector<Continuation> TextGenerator::generate(std::span<const std::string> prompts,
                                                  const GenerateOptions& options) const {
  DecodeOptions decode = with_tokens_of(*tokenizer_, options.decode);
  std::vector<Continuation> continuations(prompts.size());
  std::vector<DecodeInput> inputs;
  for (std::size_t i = 0; i < prompts.size(); ++i) {
    const std::int64_t number = options.first_line + static_cast<std::int64_t>(i);
    std::vector<std::int32_t>& ids = continuations[i].prompt_ids;
    if (task_.lines) ids.push_back(first_token(*tokenizer_));
    const std::string place = place_of(options.place, "prompt", number);
    const std::vector<std::int32_t> tokens = encode_line(*tokenizer_, prompts[i], place);
    ids.insert(ids.end(), tokens.begin(), tokens.end());
    if (ids.empty()) {
      throw Error(ErrorKind::text, place, "is empty, but the model goes on from running text",
                  "give at least one character");
    }
    const auto length = static_cast<std::int64_t>(ids.size());
    if (length > model_->config().max_positions) {
      throw Error(ErrorKind::text, place,
                  join("has ", length, " tokens and the model reads at most ", model_->config().max_positions),
                  "shorten it");
    }
    inputs.push_back({{}, ids, {}, number});
  }

  // A decoder that has read the prompt knows that a blank in front of the next token is not the first of the text.
  const auto decoder_after = [&](const std::vector<std::int32_t>& ids) {
    StreamDecoder decoder(*tokenizer_);
    for (const std::int32_t id : ids) decoder.push(id);
    return decoder;
  };
  std::vector<StreamDecoder> streams;  // [prompt, sample]
  if (options.on_text) {
    for (const Continuation& continuation : continuations) {
      streams.insert(streams.end(), static_cast<std::size_t>(decode.n_best), decoder_after(continuation.prompt_ids));
    }
    decode.on_token = [&, next = options.decode.on_token](const TokenEvent& event) {
      StreamDecoder& stream = streams[static_cast<std::size_t>(event.input * decode.n_best + event.sample)];
      std::string text = stream.push(event.id);
      if (event.last) text += stream.finish();
      bool go_on = next ? next(event) : true;
      if (!text.empty() && !options.on_text(event.input, event.sample, text)) go_on = false;
      return go_on;
    };
  }

  auto results = attend::generate(*model_, inputs, decode);
  for (std::size_t i = 0; i < results.size(); ++i) {
    for (Hypothesis& hypothesis : results[i]) {
      StreamDecoder decoder = decoder_after(continuations[i].prompt_ids);
      std::string text;
      for (const std::int32_t id : hypothesis.ids) text += decoder.push(id);
      text += decoder.finish();
      continuations[i].hypotheses.push_back({std::move(text), std::move(hypothesis)});
    }
  }
  return continuations;
}

Continuation TextGenerator::generate(const std::string& prompt, const GenerateOptions& options) const {
  return std::move(generate(std::span(&prompt, 1), options).front());
}

std::vector<TextScore> TextGenerator::score(std::span<const std::string> lines, std::int64_t batch_size,
                                            std::int64_t first_line, const LinePlace& line_place, Probe* probe) const {
  std::vector<TextScore> results(lines.size());
  std::vector<ScoreInput> inputs;
  std::vector<std::size_t> line_of;
  for (std::size_t i = 0; i < lines.size(); ++i) {
    const std::int64_t number = first_line + static_cast<std::int64_t>(i);
    std::vector<std::int32_t> ids;
    if (task_.lines) ids.push_back(first_token(*tokenizer_));
    const std::string place = place_of(line_place, "line", number);
    const std::vector<std::int32_t> tokens = encode_line(*tokenizer_, lines[i], place);
    ids.insert(ids.end(), tokens.begin(), tokens.end());
    if (task_.lines && tokenizer_->specials().eos >= 0) ids.push_back(tokenizer_->specials().eos);
    const auto read = static_cast<std::int64_t>(ids.size()) - 1;
    if (read > model_->config().max_positions) {
      throw Error(ErrorKind::text, place,
                  join("has ", read + 1, " tokens and the model reads at most ", model_->config().max_positions),
                  "split the line");
    }
    if (read < 1) {
      results[i] = text_score({}, {});
      continue;
    }
    inputs.push_back({{}, std::move(ids), 1});
    line_of.push_back(i);
  }
  auto log_probabilities = attend::score(*model_, inputs, batch_size, probe);
  for (std::size_t k = 0; k < inputs.size(); ++k) {
    results[line_of[k]] = text_score(std::span(inputs[k].ids).subspan(1), std::move(log_probabilities[k]));
  }
  return results;
}

}  // namespace attend
