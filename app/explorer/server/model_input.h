// The texts of a request as what a model reads: ids, tokens for people, and what comes after each row.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "attend/words.h"
#include "explorer/json_request.h"
#include "explorer/json_writer.h"
#include "explorer/model_store.h"

namespace attend::explorer {

// One text of a request: as text, or as ids without what the tokenizer adds at the ends.
struct TextInput {
  std::string text;
  std::vector<std::int32_t> ids;
  bool by_ids = false;
};

// An `input` as it was sent.
struct InputRequest {
  std::optional<TextInput> source, target, text;
  std::string language;  // wanted; empty: told by the text
};

// Reads an object of texts at the place `where` of a request. Which of them a model needs is known only by
// read_input().
InputRequest input_request(const Json& value, const std::string& where, const Limits& limits);
// The same of a field that must be there.
InputRequest input_request(Fields& request, const char* name, const Limits& limits);

// What a model reads for an input.
struct PreparedInput {
  InputRequest request;                        // completed: with language and target; the same again gives the same ids
  std::vector<std::int32_t> encoder, decoder;  // ids read by each stack; empty where there is none
  std::vector<std::int32_t> next;  // of each row that has logits, the token that comes after it; -1: none does
};

// Reads texts as `model` does. Where an encoder-decoder has no target and `write` is set, it writes one greedily;
// `stopped` is asked in between. Error(argument): texts that the model has no use for, or lacks; Error(text):
// ill-formed, empty where it must not be, longer than the model's positions; ApiError 413: longer than the limits.
PreparedInput read_input(const LoadedModel& model, InputRequest request, const Limits& limits, bool write,
                         const std::function<bool()>& stopped);

// The `input` of an answer.
void write_input(JsonWriter& out, const InputRequest& request);

// Tokens of ids as doc/EXPLORER-API.md has them.
void write_tokens(JsonWriter& out, const Tokenizer& tokenizer, std::span<const std::int32_t> ids);
// The fields "source" and "target", or "text", of the object that is open.
void write_tokens(JsonWriter& out, const LoadedModel& model, const PreparedInput& input);

// Texts to begin with that the model can read, in a language of its.
std::vector<InputRequest> example_inputs(const LoadedModel& model);

}  // namespace attend::explorer
