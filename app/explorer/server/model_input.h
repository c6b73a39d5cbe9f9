// The texts of a request as what a model reads, and as JSON.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "attend/subject.h"
#include "attend/words.h"
#include "explorer/json_request.h"
#include "explorer/json_writer.h"
#include "explorer/model_store.h"

namespace attend::explorer {

// Reads an object of texts at the place `where` of a request. Which of them a model needs is known only by
// read_input().
SubjectTexts input_request(const Json& value, const std::string& where, const Limits& limits);
// The same of a field that must be there.
SubjectTexts input_request(Fields& request, const char* name, const Limits& limits);

// read_subject() for a request: texts as `model` reads them, without pieces. Where an encoder-decoder has no target and
// `write` is set, it writes one greedily; `stopped` is asked in between. What is refused is named as a field of the
// request; ApiError 413: longer than the limits.
Subject read_input(const LoadedModel& model, SubjectTexts texts, const Limits& limits, bool write,
                   const std::function<bool()>& stopped);

// The `input` of an answer.
void write_input(JsonWriter& out, const SubjectTexts& texts);

// Tokens of ids as doc/EXPLORER-API.md has them; with the text they were cut from, unknown ones say what they stand for.
void write_tokens(JsonWriter& out, const Tokenizer& tokenizer, std::span<const std::int32_t> ids,
                  const std::optional<std::string>& text = {});
// The fields "source" and "target", or "text", of the object that is open.
void write_tokens(JsonWriter& out, const LoadedModel& model, const Subject& subject);

// A text in `language` as an input of the model, brought into another of its languages where it is a pair. None where the
// model has no such language or a token is unknown to it.
std::optional<SubjectTexts> input_of(const LoadedModel& model, const char* text, const char* language);
// The languages that it translates into: all, or without tags the second one alone.
std::vector<std::string> languages_into(const Task& task);
// Texts to begin with that the model can read, in a language of its.
std::vector<SubjectTexts> example_inputs(const LoadedModel& model);

}  // namespace attend::explorer
