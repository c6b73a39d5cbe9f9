// Generation: from a model and token ids to new token ids, by greedy choice, sampling or beam search; and sessions, the
// same step by step. Encoder-decoders and decoders alone take the same way: the former only have a source beside.
// Text in and out is one floor up, in translate.h.
//
// Contracts, each with a test: the cached steps give what the whole sequence at once gives; an input's result does not
// depend on the other inputs, the batch size or the number of threads; samples depend on (seed, number of the input,
// number of the sample) only; equal scores are decided for the lower id.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string_view>
#include <vector>

#include "attend/model.h"

namespace attend {

enum class Strategy {
  greedy,  // the most probable token at every step
  sample,  // a token drawn from the (reshaped) distribution at every step
  beam,    // the beam_size best beginnings are followed side by side
};
const char* name_of(Strategy strategy);          // "greedy", "sample", "beam"
Strategy strategy_named(std::string_view name);  // Error(argument) with the known names

// The score by which hypotheses of unequal length are compared, from their total log-probability. The length counts the
// generated tokens, end token and forced prefix included.
enum class LengthPenalty {
  none,   // total
  power,  // total / length^alpha; alpha 1 is the mean log-probability of a token
  gnmt,   // total / ((5 + length) / 6)^alpha (Wu et al. 2016, equation 14, without its coverage term)
};
const char* name_of(LengthPenalty penalty);
LengthPenalty length_penalty_named(std::string_view name);
double length_score(LengthPenalty penalty, double alpha, double total, std::int64_t length);

// When beam search is done with an input.
enum class BeamStop {
  enough,  // as soon as beam_size hypotheses have ended (as fairseq)
  best,    // only when no unfinished hypothesis can still beat the n_best finished ones: slower, never worse by score
};

// A token the moment it is chosen.
struct TokenEvent {
  std::int64_t input = 0;   // index in the inputs of the call
  std::int64_t sample = 0;  // 0..n_best-1
  std::int32_t id = 0;
  float log_probability = 0;  // 0 unless DecodeOptions::scores
  bool last = false;          // the sequence ends with it
};

// What beam search goes on with after a step of one input: the tree of everything that ever stood on the beam.
struct BeamEvent {
  struct Extension {
    std::int64_t parent = 0;  // place among the beginnings followed before (of the first step: 0)
    std::int32_t id = 0;
    float log_probability = 0;
    double total = 0;  // of the whole beginning
  };
  std::int64_t input = 0;
  std::int64_t length = 0;          // tokens each of them has now
  std::vector<Extension> followed;  // best first; what the next step reads, in this order
  std::vector<Extension> ended;     // by an end token
};

struct DecodeOptions {
  Strategy strategy = Strategy::greedy;

  // sample: softmax(logits / temperature), then only the top_k most probable tokens (0: all), then of these the fewest
  // whose probabilities reach top_p together (Holtzman et al. 2020; 1: all), divided by what they sum to.
  double temperature = 1;  // > 0
  std::int64_t top_k = 0;
  double top_p = 1;  // in (0, 1]
  std::uint64_t seed = 1;

  // beam
  std::int64_t beam_size = 4;  // 1..64; 1 gives what greedy gives
  LengthPenalty length_penalty = LengthPenalty::power;
  double length_alpha = 1;
  BeamStop beam_stop = BeamStop::enough;

  std::int64_t n_best =
      1;  // results an input: the best of the beam (<= beam_size), or so many samples (<= 65536); greedy: 1

  // Tokens generated at most, end token and forced prefix included; the model's positions end it earlier in any case.
  // 0: with an encoder 4 * source length + 32, without one all positions.
  std::int64_t max_length = 0;
  std::int64_t min_length = 0;          // no end token before this many tokens
  std::vector<std::int32_t> end;        // any of these ends the sequence; none: only the length does
  std::vector<std::int32_t> forbidden;  // never generated (a forced prefix may hold them); usually pad, bos, unknown

  std::int64_t batch_size = 48;  // sequences (beam and samples: inputs) computed at once; no effect on results
  bool scores = true;            // log-probabilities; greedy and sampling are a little faster without

  // Greedy and sampling: called on the caller's thread for every token in the order they are made; `false` ends that
  // sequence here. Beam search refuses it: its tokens are certain only at the end.
  std::function<bool(const TokenEvent&)> on_token;
  // Beam search: called on the caller's thread after every step of every input.
  std::function<void(const BeamEvent&)> on_beam;
  // Asked before every step; `true` ends the call with Error(cancelled).
  std::function<bool()> cancelled;

  // Reads or changes what is computed: sources as they are encoded, keys and values as they are shared, every step. It
  // knows an input by DecodeInput::item, and beams and samples by that of their input. Null: no probe, and the fastest.
  Probe* probe = nullptr;
};

struct DecodeInput {
  std::vector<std::int32_t> source;  // of the encoder; empty exactly if the model has none
  std::vector<std::int32_t> prompt;  // what the decoder reads first, no part of the result: bos, or a text to extend
  std::vector<std::int32_t> prefix;  // tokens the result is forced to begin with; scored like generated ones
  // Sampling: which random stream of the seed it draws from; -1: its index in the call. A long list given in several
  // calls draws as in one if its inputs are numbered.
  std::int64_t number = -1;
  std::int64_t item = -1;  // what a probe knows it by; -1: its index in the call
};

struct Hypothesis {
  std::vector<std::int32_t> ids;         // after the prompt; the end token is the last one if finished
  std::vector<float> log_probabilities;  // one an id: ln p(id | source, prompt, ids before) by the model's own
                                         // distribution, whatever the sampling options; empty without scores
  double total = 0;                      // their sum
  double score = 0;                      // length_score() of the total
  bool finished = false;                 // ended by an end token, not by a length or by on_token
};

// One list an input, in their order. Beam: n_best distinct hypotheses (fewer only if fewer exist), finished before
// unfinished, then by score. Samples: by number of the sample, drawn independently, so not always distinct.
// Error(argument): options out of range, an input without prompt, ids outside the vocabulary, a source missing or left
// over, a prompt or source longer than the model's positions; names input and lengths. Error(numeric): logits NaN or
// infinite. Error(cancelled).
std::vector<std::vector<Hypothesis>> generate(const Model& model, std::span<const DecodeInput> inputs,
                                              const DecodeOptions& options);

// A sequence to be judged: log p(ids[i] | source, ids[0..i-1]) for every i >= `given`, in one parallel pass.
struct ScoreInput {
  std::vector<std::int32_t> source;
  std::vector<std::int32_t> ids;
  std::int64_t given = 1;  // ids at the front that are not judged, >= 1 (bos, or a prompt)
};
// One log-probability for ids[given], ids[given + 1], ... of each input. Errors as generate(). A probe knows an input by
// its index.
std::vector<std::vector<float>> score(const Model& model, std::span<const ScoreInput> inputs,
                                      std::int64_t batch_size = 48, Probe* probe = nullptr);

// Cuts a list of items into batches of at most batch_size, longest first, so that a batch holds like lengths: each
// batch lists indices of items; equal lengths stay in order.
std::vector<std::vector<std::int64_t>> batches_by_length(std::span<const std::int64_t> lengths,
                                                         std::int64_t batch_size);

// One conversation with a model: its caches, position, last logits and random state. The model must outlive it.
// Copies are forks: cheap (pages of the cache are shared until one of them writes) and independent from then on.
class Session {
 public:
  // Everything needed to come back to the same bits later: what was read in which portions. Plain data, to be kept as
  // the caller likes; restoring computes the caches again.
  struct State {
    struct Portion {
      std::vector<std::int32_t> ids;
      std::int64_t kept = 0;  // fewer than ids after a truncate() inside the portion
    };
    std::vector<std::int32_t> source;
    std::vector<Portion> portions;
    bool logits = false;  // whether the session had logits at hand
    std::uint64_t seed = 1, drawn = 0;
  };

  explicit Session(const Model& model, std::uint64_t seed = 1);
  // Runs the encoder, with the probe of the options, if any.
  Session(const Model& model, std::span<const std::int32_t> source, std::uint64_t seed = 1,
          const RunOptions& options = {});
  Session(const Model& model, const State& state);
  ~Session();
  Session(const Session&);
  Session(Session&&) noexcept;
  Session& operator=(const Session&);
  Session& operator=(Session&&) noexcept;

  // Reads ids (at least one) and gives the logits [vocabulary] that follow the last, valid until the next change.
  // Error(argument) for ids outside the vocabulary and for more than positions_left(); the session is as before then.
  std::span<const float> feed(std::span<const std::int32_t> ids, const RunOptions& options = {});
  std::span<const float> logits() const;  // of the last feed(); Error(argument) at the start and after truncate()
  // The next token by options.strategy (greedy or sample), temperature, top_k, top_p and forbidden, from logits() and
  // the session's own random state; does not feed it.
  std::int32_t choose(const DecodeOptions& options);

  Session fork() const { return *this; }
  void truncate(std::int64_t length);  // forgets the tokens from `length` on; Error(argument) beyond length()

  const std::vector<std::int32_t>& ids() const;  // all tokens read
  std::int64_t length() const;
  std::int64_t positions_left() const;
  State state() const;

 private:
  struct Parts;
  std::unique_ptr<Parts> parts_;
};

}  // namespace attend
