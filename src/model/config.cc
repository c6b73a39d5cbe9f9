#include "attend/config.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "attend/error.h"
#include "model/parts.h"

namespace attend {
namespace {

constexpr std::int64_t largest_size = std::numeric_limits<std::int32_t>::max();
constexpr std::int64_t most_layers = 4096;
// Tables by position are made in full; a config alone must not fill the memory.
constexpr std::int64_t most_positions = std::int64_t{1} << 22;
constexpr std::int64_t most_table_numbers = std::int64_t{1} << 28;
// 2^36 numbers are 256 GiB: more than one process of this library can train or run.
constexpr double most_parameters = 68719476736.0;

template <typename Value>
[[noreturn]] void refuse(const std::string& field, const Value& found, const std::string& expected,
                         const std::string& advice = {}) {
  throw Error(ErrorKind::config, "config." + field, join("is ", found, ", must be ", expected), advice);
}

void check_range(const std::string& field, std::int64_t value, std::int64_t least, std::int64_t most = largest_size) {
  if (value < least || value > most) refuse(field, value, join(least, " to ", most));
}

void check_probability(const std::string& field, double value) {
  if (!(value >= 0 && value < 1)) refuse(field, value, "at least 0 and below 1");
}

const char* yes_no(bool value) { return value ? "true" : "false"; }

void check_stack(const std::string& name, const StackConfig& stack, bool decoder) {
  check_range(name + ".layers", stack.layers, 1, most_layers);
  check_range(name + ".vocabulary", stack.vocabulary, 0);
  check_range(name + ".input_width", stack.input_width, 0);
  if (stack.vocabulary && stack.input_width)
    refuse(name + ".input_width", stack.input_width, join("0, because ", name, ".vocabulary is ", stack.vocabulary),
           "a stack reads either tokens or features");
  if (!stack.vocabulary && !stack.input_width)
    refuse(name + ".vocabulary", 0,
           decoder ? "the number of tokens"
                   : join("the number of tokens, unless ", name, ".input_width is the width of features"));
  if (stack.class_token && stack.vocabulary && !decoder)
    refuse(name + ".class_token", yes_no(true), join("false, because ", name, ".vocabulary is ", stack.vocabulary),
           "a class token stands before features; of tokens, one of the vocabulary does that");
  if (!decoder) return;
  if (stack.input_width) refuse(name + ".input_width", stack.input_width, "0", "a decoder reads tokens");
  if (!stack.causal)
    refuse(name + ".causal", yes_no(false), "true", "a decoder predicts the next token from earlier ones only");
  if (stack.class_token) refuse(name + ".class_token", yes_no(true), "false", "only an encoder has a class token");
}

void check_positions(const TransformerConfig& config) {
  check_range("max_positions", config.max_positions, 1, most_positions);
  check_range("first_position", config.first_position, 0);
  check_range("rotary_dim", config.rotary_dim, 0);
  check_range("relative_buckets", config.relative_buckets, 1);
  check_range("relative_max_distance", config.relative_max_distance, 1);
  if (!(config.position_base > 1) || !std::isfinite(config.position_base))
    refuse("position_base", config.position_base, "a number above 1", "the original papers use 10000");
  switch (config.positions) {
    case PositionKind::none:
    case PositionKind::alibi:
      break;
    case PositionKind::sinusoidal:
      if (config.width % 2)
        refuse("width", config.width, "even, because positions are sinusoidal (a sine and a cosine each)");
      if (config.sinusoid_layout == SinusoidLayout::halves && config.width < 4)
        refuse("width", config.width, "4 or more, because sinusoid_layout is halves");
      break;
    case PositionKind::learned:
      if (config.first_position)
        refuse("first_position", config.first_position,
               "0, because positions are learned and their table starts at row 0");
      break;
    case PositionKind::rotary:
      if (config.rotary_width() > config.head_width())
        refuse("rotary_dim", config.rotary_dim, join("at most the width of a head, ", config.head_width()));
      if (config.rotary_width() % 2)
        refuse(config.rotary_dim ? "rotary_dim" : "head_dim", config.rotary_width(),
               "even, because rotary positions turn pairs of elements");
      break;
    case PositionKind::relative_bias:
      if (config.relative_buckets < 4 || config.relative_buckets % 2)
        refuse("relative_buckets", config.relative_buckets, "even and 4 or more");
      if (config.relative_max_distance <= config.relative_buckets / 2)
        refuse("relative_max_distance", config.relative_max_distance,
               join("above half of relative_buckets, ", config.relative_buckets / 2));
      break;
  }
}

// Sinusoids (one table a stack) and rotations are in no file, so no file bounds them.
void check_tables(const TransformerConfig& config) {
  const int stacks = (config.encoder ? 1 : 0) + (config.decoder ? 1 : 0);
  const std::int64_t row = config.positions == PositionKind::sinusoidal ? stacks * config.width
                           : config.positions == PositionKind::rotary   ? config.rotary_width()
                                                                        : 0;
  if (row > 0 && config.max_positions > most_table_numbers / row)
    refuse("max_positions", config.max_positions,
           join("at most ", most_table_numbers / row, ", because a position takes ", row,
                " numbers of a table that is made in full"));
}

}  // namespace

double count_parameters(const TransformerConfig& config) {
  const double width = static_cast<double>(config.width), head = static_cast<double>(config.head_width()),
               inner = static_cast<double>(config.inner_width);
  const double norm = config.norm == NormKind::layer && config.norm_bias ? 2 * width : width;
  const double attention =
      norm + 2 * width * head * static_cast<double>(config.heads + config.key_head_count()) +
      (config.query_key_value_bias ? head * static_cast<double>(config.heads + 2 * config.key_head_count()) : 0) +
      (config.attention_output_bias ? width : 0);
  const double feed_forward = norm + (config.gated ? 3 : 2) * width * inner +
                              (config.feed_forward_bias ? (config.gated ? 2 : 1) * inner + width : 0);
  double count = 0;
  for (const auto* stack : {&config.encoder, &config.decoder}) {
    if (!*stack) continue;
    const bool cross = stack == &config.decoder && config.encoder;
    count += static_cast<double>((*stack)->layers) * ((cross ? 2 : 1) * attention + feed_forward) +
             width * static_cast<double>((*stack)->input_width) + ((*stack)->vocabulary > 0 ? 0 : width) +
             ((*stack)->class_token ? width : 0) + ((*stack)->embedding_norm ? norm : 0) +
             ((*stack)->final_norm ? norm : 0);
    if (!config.shared_embeddings || stack == &config.decoder || !config.decoder)
      count += width * static_cast<double>((*stack)->vocabulary);
    if (config.positions == PositionKind::learned) count += width * static_cast<double>(config.max_positions);
    if (config.positions == PositionKind::relative_bias)
      count += static_cast<double>(config.relative_buckets) * static_cast<double>(config.heads);
  }
  const double outputs = static_cast<double>(config.output_vocabulary()), classes = static_cast<double>(config.classes);
  return count + outputs * ((config.tied_logits ? 0 : width) + (config.logits_bias ? 1 : 0)) + classes * (width + 1);
}

std::int64_t parameter_count(const TransformerConfig& config) {
  config.check();
  return static_cast<std::int64_t>(count_parameters(config));
}

void TransformerConfig::check() const {
  if (!encoder && !decoder)
    throw Error(ErrorKind::config, "config", "has neither encoder nor decoder", "give at least one of them");

  check_range("width", width, 1);
  check_range("heads", heads, 1);
  check_range("key_heads", key_heads, 0);
  check_range("head_dim", head_dim, 0);
  check_range("inner_width", inner_width, 1);
  if (!head_dim && width % heads) refuse("heads", heads, join("a divisor of width ", width), "or give head_dim");
  if (heads % key_head_count())
    refuse("key_heads", key_heads, join("a divisor of heads ", heads),
           "each key head serves the same number of query heads");

  if (encoder) check_stack("encoder", *encoder, false);
  if (decoder) check_stack("decoder", *decoder, true);

  if (!(norm_epsilon > 0 && norm_epsilon < 1)) refuse("norm_epsilon", norm_epsilon, "above 0 and below 1");
  if (norm == NormKind::rms && norm_bias)
    refuse("norm_bias", yes_no(true), "false, because norm is rms", "a root mean square norm has a gain only");

  check_positions(*this);
  check_tables(*this);
  check_range("window", window, 0);

  if (!std::isfinite(embedding_scale) || embedding_scale == 0)
    refuse("embedding_scale", embedding_scale, "a finite number other than 0", "1 leaves embeddings as they are");
  if (!std::isfinite(attention_scale) || attention_scale < 0)
    refuse("attention_scale", attention_scale, "a finite number, 0 or above", "0 stands for 1 / sqrt(head_dim)");
  if (!std::isfinite(score_cap) || score_cap < 0)
    refuse("score_cap", score_cap, "a finite number, 0 or above", "0 stands for no cap");

  if (shared_embeddings) {
    if (!encoder || !decoder)
      refuse("shared_embeddings", yes_no(true), join("false, because there is no ", encoder ? "decoder" : "encoder"));
    if (encoder->vocabulary != decoder->vocabulary)
      refuse("shared_embeddings", yes_no(true),
             join("false, because encoder.vocabulary is ", encoder->vocabulary, " and decoder.vocabulary is ",
                  decoder->vocabulary));
  }
  if (!output_vocabulary()) {
    const char* reason = "false, because no stack has a vocabulary to predict";
    if (tied_logits) refuse("tied_logits", yes_no(true), reason);
    if (logits_bias) refuse("logits_bias", yes_no(true), reason);
  }

  check_range("classes", classes, 0);
  if (classes && !encoder)
    refuse("classes", classes, "0, because there is no encoder", "the classifier reads the encoder");
  if (classes && pooling == Pooling::none)
    refuse("pooling", "none", join("class_token or mean, because classes is ", classes));
  if (!classes && pooling != Pooling::none)
    refuse("classes", 0, join("above 0, because pooling is ", pooling == Pooling::mean ? "mean" : "class_token"));
  if (pooling == Pooling::class_token && !encoder->class_token)
    refuse("pooling", "class_token", "none or mean, because encoder.class_token is false");
  if (encoder && encoder->class_token && max_positions < 2)
    refuse("max_positions", max_positions, "2 or more, because the class token takes one");

  check_probability("dropout", dropout);
  check_probability("attention_dropout", attention_dropout);
  check_probability("inner_dropout", inner_dropout);

  const double parameters = count_parameters(*this);
  if (parameters > most_parameters)
    throw Error(ErrorKind::config, "config",
                join("describes ", static_cast<std::int64_t>(std::min(parameters, 9e18)), " parameters, at most ",
                     static_cast<std::int64_t>(most_parameters), " are allowed"),
                "check width, inner_width, layers and vocabulary");
}

}  // namespace attend
