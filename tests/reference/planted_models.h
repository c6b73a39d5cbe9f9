// Models built by hand whose heads do a known thing, to see whether tools that look for it find it. The residual stream
// is cut into fields of one-hot vectors; a head's queries and keys compare two fields, its values copy one field into
// another. Norms are RMSNorm, whose factor is known because every field holds a vector of known length.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <string>
#include <vector>

#include "attend/model.h"
#include "core/random.h"

namespace attend::reference {

// Where a planted head stands.
struct PlantedHead {
  StackKind stack = StackKind::decoder;
  int layer = 0;
  Part part = Part::self;
  int head = 0;
};

// Writes single numbers into a model of zeros.
class Planter {
 public:
  static constexpr std::int64_t heads = 4;

  explicit Planter(Model& model) : model_(model), config_(model.config()), random_(17) {}

  float& at(const std::string& name, std::int64_t row, std::int64_t column) {
    return model_.parameter(name).value.row(row)[column];
  }
  // What `source` rows of the table put into the stream: one-hot row r at column `field` + r.
  void one_hot(const std::string& table, std::int64_t field) {
    for (std::int64_t row = 0; row < model_.parameter(table).value.rows(); ++row) at(table, row, field + row) = 1;
  }

  // Element x of the head's query, key or value reads `factor` times column `column` of the (normed) stream.
  void query(const PlantedHead& head, std::int64_t x, std::int64_t column, double factor) {
    at(query_name(head) + ".weight", place(head, x), column) = static_cast<float>(factor);
  }
  void key(const PlantedHead& head, std::int64_t x, std::int64_t column, double factor) {
    at(key_name(head), key_begin(head) + place(head, x), column) = static_cast<float>(factor);
  }
  void value(const PlantedHead& head, std::int64_t x, std::int64_t column, double factor) {
    at(key_name(head), key_begin(head) + all_heads() + place(head, x), column) = static_cast<float>(factor);
  }
  void query_bias(const PlantedHead& head, std::int64_t x, double amount) {
    model_.parameter(query_name(head) + ".bias").value.data()[place(head, x)] = static_cast<float>(amount);
  }
  // Element x of what the head gathered is written `factor` times into column `column` of the stream.
  void write(const PlantedHead& head, std::int64_t x, std::int64_t column, double factor) {
    at(name(head) + ".output.weight", column, place(head, x)) = static_cast<float>(factor);
  }

  // score(i, j) = `score` where the key's one-hot field equals the query's, moved by `offset`: for fields of positions,
  // a head that looks `offset` places further. `read` is the length of a field's vector after the norm.
  void match(const PlantedHead& head, std::int64_t query_field, std::int64_t key_field, std::int64_t size, double read,
             double score = 30, std::int64_t offset = 0) {
    for (std::int64_t i = std::max<std::int64_t>(0, -offset); i < std::min(size, size - offset); ++i)
      query(head, i + offset, query_field + i, score / (read * read));
    for (std::int64_t i = 0; i < size; ++i) key(head, i, key_field + i, 1);
  }
  // Everyone looks where column `column` of the key is set.
  void look_at(const PlantedHead& head, std::int64_t column, double read, double score = 30) {
    query_bias(head, 0, score / read);
    key(head, 0, column, 1);
  }
  // The head carries one field into another, with length `factor`.
  void copy(const PlantedHead& head, std::int64_t from, std::int64_t to, std::int64_t size, double read,
            double factor = 1) {
    for (std::int64_t i = 0; i < size; ++i) {
      value(head, i, from + i, 1 / read);
      write(head, i, to + i, factor);
    }
  }
  // A head of no meaning: small random numbers everywhere, except that it writes only faintly.
  void noise(const PlantedHead& head, double spread = 0.1, double written = 0.0005) {
    for (std::int64_t x = 0; x < config_.head_width(); ++x)
      for (std::int64_t column = 0; column < config_.width; ++column) {
        query(head, x, column, spread * random_.normal());
        key(head, x, column, spread * random_.normal());
      }
    whisper(head, written);
  }
  // Random faint values and output for a head whose looks are planted.
  void whisper(const PlantedHead& head, double written = 0.0005) {
    for (std::int64_t x = 0; x < config_.head_width(); ++x)
      for (std::int64_t column = 0; column < config_.width; ++column) {
        value(head, x, column, 0.1 * random_.normal());
        write(head, x, column, written * random_.normal());
      }
  }

  void finish() {
    for (Parameter& parameter : model_.parameters()) parameter.changed();
  }

 private:
  static bool cross(const PlantedHead& head) { return head.part == Part::cross; }
  static std::string name(const PlantedHead& head) {
    const std::string stack = head.stack == StackKind::encoder ? "encoder." : "decoder.";
    return stack + std::to_string(head.layer) + (cross(head) ? ".cross" : ".self");
  }
  static std::string query_name(const PlantedHead& head) {
    return name(head) + (cross(head) ? ".query" : ".query_key_value");
  }
  static std::string key_name(const PlantedHead& head) {
    return name(head) + (cross(head) ? ".key_value.weight" : ".query_key_value.weight");
  }
  std::int64_t all_heads() const { return config_.heads * config_.head_width(); }
  std::int64_t key_begin(const PlantedHead& head) const { return cross(head) ? 0 : all_heads(); }
  std::int64_t place(const PlantedHead& head, std::int64_t x) const { return head.head * config_.head_width() + x; }

  Model& model_;
  const TransformerConfig& config_;
  Random random_;
};

inline TransformerConfig planted_config(std::int64_t width, std::int64_t head_dim, std::int64_t positions) {
  TransformerConfig config;
  config.width = width;
  config.heads = Planter::heads;
  config.head_dim = head_dim;
  config.inner_width = 4;  // the feed-forward layers write nothing
  config.norm = NormKind::rms;
  config.norm_bias = false;
  config.positions = PositionKind::learned;
  config.max_positions = positions;
  config.attention_scale = 1;
  config.tied_logits = false;
  return config;
}

// Length of a one-hot field after RMSNorm of a stream of `fields` such fields.
inline double read_length(std::int64_t width, double fields) { return std::sqrt(static_cast<double>(width) / fields); }

// ---- Decoder with a previous-token head and an induction head ------------------------------------------------------
// Two layers that continue what they have seen: after ... A B ... A comes B (Olsson et al. 2022). In a sequence that
// repeats distinct tokens, `previous` puts all its weight on the token before (on itself at position 0), `induction` on
// the token after the earlier occurrences of the same token, and on position 0 where there is none; the logits then
// name the next token. The first token should occur once (a bos).
struct InductionModel {
  Model model;
  std::int64_t vocabulary, positions;
  PlantedHead first{StackKind::decoder, 0, Part::self, 0};  // looks at position 0: a sink
  PlantedHead self{StackKind::decoder, 0, Part::self, 1};   // looks at its own position
  PlantedHead previous{StackKind::decoder, 0, Part::self, 2};
  PlantedHead uniform{StackKind::decoder, 0, Part::self, 3};  // looks at all alike
  PlantedHead same{StackKind::decoder, 1, Part::self, 0};     // at all occurrences of its own token, itself included
  PlantedHead induction{StackKind::decoder, 1, Part::self, 1};
  PlantedHead noise{StackKind::decoder, 1, Part::self, 2};
  PlantedHead other_noise{StackKind::decoder, 1, Part::self, 3};
};

inline InductionModel planted_induction(std::int64_t vocabulary = 24, std::int64_t positions = 48) {
  const std::int64_t token = 0, position = vocabulary, before = position + positions, next = before + vocabulary;
  TransformerConfig config = planted_config(next + vocabulary, std::max(positions, vocabulary + 1), positions);
  config.decoder = StackConfig{.layers = 2, .vocabulary = vocabulary, .causal = true};
  InductionModel planted{Model(config), vocabulary, positions};
  Planter plant(planted.model);
  plant.one_hot("decoder.embedding.weight", token);
  plant.one_hot("decoder.position.weight", position);

  double read = read_length(config.width, 2);
  plant.look_at(planted.first, position, read);
  plant.match(planted.self, position, position, positions, read);
  plant.match(planted.previous, position, position, positions, read, 30, -1);
  plant.copy(planted.previous, token, before, vocabulary, read);
  for (const PlantedHead& head : {planted.first, planted.self, planted.uniform}) plant.whisper(head);

  read = read_length(config.width, 3);
  plant.match(planted.same, token, token, vocabulary, read);
  plant.whisper(planted.same);
  plant.match(planted.induction, token, before, vocabulary, read);
  // Position 0 holds its own token as the one before, which must not count: no token matches it (-30). It is where the
  // head rests: 45 - 30 is more than no match, 0, and less than a match, 30.
  for (std::int64_t i = 0; i < vocabulary; ++i) plant.key(planted.induction, i, position, -1);
  plant.query_bias(planted.induction, vocabulary, 45 / read);
  plant.key(planted.induction, vocabulary, position, 1);
  plant.copy(planted.induction, token, next, vocabulary, read, 4);
  plant.noise(planted.noise);
  plant.noise(planted.other_noise);
  for (std::int64_t id = 0; id < vocabulary; ++id) plant.at("logits.weight", id, next + id) = 2;
  plant.finish();
  return planted;
}

// ---- Encoder whose heads look at fixed distances -------------------------------------------------------------------
struct OffsetsModel {
  Model model;
  std::int64_t vocabulary, positions;
  PlantedHead previous{StackKind::encoder, 0, Part::self, 0};
  PlantedHead next{StackKind::encoder, 0, Part::self, 1};
  PlantedHead third{StackKind::encoder, 0, Part::self, 2};      // three places further
  PlantedHead separator{StackKind::encoder, 0, Part::self, 3};  // looks at token 0 wherever that stands
};

inline OffsetsModel planted_offsets(std::int64_t vocabulary = 12, std::int64_t positions = 32) {
  const std::int64_t token = 0, position = vocabulary;
  TransformerConfig config = planted_config(position + positions, std::max(vocabulary, positions), positions);
  config.encoder = StackConfig{.layers = 1, .vocabulary = vocabulary};
  OffsetsModel planted{Model(config), vocabulary, positions};
  Planter plant(planted.model);
  plant.one_hot("encoder.embedding.weight", token);
  plant.one_hot("encoder.position.weight", position);
  const double read = read_length(config.width, 2);
  plant.match(planted.previous, position, position, positions, read, 30, -1);
  plant.match(planted.next, position, position, positions, read, 30, 1);
  plant.match(planted.third, position, position, positions, read, 30, 3);
  plant.look_at(planted.separator, token, read);
  for (int head = 0; head < Planter::heads; ++head) plant.whisper({StackKind::encoder, 0, Part::self, head});
  for (std::int64_t id = 0; id < vocabulary; ++id) plant.at("logits.weight", id, token + id) = 1;
  plant.finish();
  return planted;
}

// ---- Looking is not mattering --------------------------------------------------------------------------------------
// In both models below, with one token `cue` in the text: `silent` puts all its weight on the cue but its values are 0;
// `quiet` looks at everything alike, so faintly at the cue, and carries the cue, much enlarged, into the logit of
// `answer`; `loud` looks sharply at one place and writes a little.
struct QuietModel {
  Model model;
  std::int64_t vocabulary, positions;
  std::int32_t cue = 5, answer = 7;
  PlantedHead silent{StackKind::decoder, 0, Part::self, 0};
  PlantedHead loud{StackKind::decoder, 0, Part::self, 1};  // the token before
  PlantedHead quiet{StackKind::decoder, 0, Part::self, 2};
  PlantedHead noise{StackKind::decoder, 0, Part::self, 3};
};

inline QuietModel planted_quiet(std::int64_t vocabulary = 12, std::int64_t positions = 24) {
  const std::int64_t token = 0, position = vocabulary, out = position + positions;
  TransformerConfig config = planted_config(out + vocabulary, std::max(vocabulary, positions), positions);
  config.decoder = StackConfig{.layers = 2, .vocabulary = vocabulary, .causal = true};
  QuietModel planted{Model(config), vocabulary, positions};
  Planter plant(planted.model);
  plant.one_hot("decoder.embedding.weight", token);
  plant.one_hot("decoder.position.weight", position);
  const double read = read_length(config.width, 2);
  plant.look_at(planted.silent, token + planted.cue, read);
  for (std::int64_t i = 0; i < vocabulary; ++i) plant.write(planted.silent, i, out + i, 1);
  plant.match(planted.loud, position, position, positions, read, 30, -1);
  plant.copy(planted.loud, token, out, vocabulary, read, 0.2);
  plant.value(planted.quiet, 0, token + planted.cue, 1 / read);
  plant.write(planted.quiet, 0, out + planted.answer, 40);
  plant.noise(planted.noise);
  for (int head = 0; head < Planter::heads; ++head) plant.noise({StackKind::decoder, 1, Part::self, head});
  for (std::int64_t id = 0; id < vocabulary; ++id) plant.at("logits.weight", id, out + id) = 1;
  plant.finish();
  return planted;
}

// An encoder-decoder that writes the source again token by token (target token i is source token i): `diagonal` looks
// from the row that predicts target token i at source token i. The encoder passes tokens on as they are.
struct CrossModel {
  Model model;
  std::int64_t vocabulary, positions;
  std::int32_t cue = 5, answer = 7;
  PlantedHead diagonal{StackKind::decoder, 0, Part::cross, 0};
  PlantedHead silent{StackKind::decoder, 0, Part::cross, 1};
  PlantedHead quiet{StackKind::decoder, 0, Part::cross, 2};
  PlantedHead noise{StackKind::decoder, 0, Part::cross, 3};
};

inline CrossModel planted_cross(std::int64_t vocabulary = 12, std::int64_t positions = 24) {
  const std::int64_t token = 0, position = vocabulary, out = position + positions;
  TransformerConfig config = planted_config(out + vocabulary, std::max(vocabulary, positions), positions);
  config.encoder = StackConfig{.layers = 1, .vocabulary = vocabulary};
  config.decoder = StackConfig{.layers = 1, .vocabulary = vocabulary, .causal = true};
  CrossModel planted{Model(config), vocabulary, positions};
  Planter plant(planted.model);
  for (const char* stack : {"encoder", "decoder"}) {
    plant.one_hot(std::string(stack) + ".embedding.weight", token);
    plant.one_hot(std::string(stack) + ".position.weight", position);
  }
  // The encoder's final norm makes what cross-attention reads as long as what a norm before a sublayer would.
  const double read = read_length(config.width, 2);
  plant.match(planted.diagonal, position, position, positions, read);
  plant.copy(planted.diagonal, token, out, vocabulary, read, 2);
  plant.look_at(planted.silent, token + planted.cue, read);
  for (std::int64_t i = 0; i < vocabulary; ++i) plant.write(planted.silent, i, out + i, 1);
  plant.value(planted.quiet, 0, token + planted.cue, 1 / read);
  plant.write(planted.quiet, 0, out + planted.answer, 20);
  plant.noise(planted.noise);
  for (int head = 0; head < Planter::heads; ++head) {
    plant.noise({StackKind::encoder, 0, Part::self, head}, 0.1, 0.001);
    plant.noise({StackKind::decoder, 0, Part::self, head}, 0.1, 0.001);
  }
  for (std::int64_t id = 0; id < vocabulary; ++id) plant.at("logits.weight", id, out + id) = 1;
  plant.finish();
  return planted;
}

// A bos, then `period` distinct tokens in a random order, again and again.
inline std::vector<std::int32_t> repeated_tokens(std::int64_t vocabulary, std::int64_t period, std::int64_t length,
                                                 std::uint64_t seed, std::int32_t bos = 0) {
  std::vector<std::int32_t> tokens;
  for (std::int32_t id = 0; id < vocabulary; ++id)
    if (id != bos) tokens.push_back(id);
  Random random(seed);
  for (std::size_t i = tokens.size() - 1; i > 0; --i) std::swap(tokens[i], tokens[random.below(i + 1)]);
  std::vector<std::int32_t> ids{bos};
  for (std::int64_t i = 0; i + 1 < length; ++i) ids.push_back(tokens[static_cast<std::size_t>(i % period)]);
  return ids;
}

}  // namespace attend::reference
