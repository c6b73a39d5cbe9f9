#include <algorithm>
#include <utility>

#include "attend/error.h"
#include "attend/generate.h"
#include "attend/tape.h"
#include "run/choose.h"
#include "run/options.h"

namespace attend {

struct Session::Parts {
  Parts(const Model& model_of, std::vector<std::int32_t> source_of, std::uint64_t seed, const RunOptions& options)
      : model(&model_of), cache(make_cache(model_of, source_of, options)), source(std::move(source_of)), random(seed) {}

  static KvCache make_cache(const Model& model, std::span<const std::int32_t> source, const RunOptions& options) {
    check_source(model, source, "session");
    if (!model.config().encoder) return KvCache(model);
    const NoGradientScope no_gradients;
    TokenBatch batch;
    batch.append(source);
    return KvCache(model, model.share_memory(model.encode(batch, options), options), 0);
  }

  const Model* model;
  KvCache cache;
  std::vector<std::int32_t> source, ids;
  std::vector<State::Portion> portions;
  Tensor logits;  // [1, vocabulary] or undefined; replaced, never written to, so that forks may share it
  Random random;
};

Session::Session(const Model& model, std::uint64_t seed) : Session(model, std::span<const std::int32_t>{}, seed) {}
Session::Session(const Model& model, std::span<const std::int32_t> source, std::uint64_t seed,
                 const RunOptions& options)
    : parts_(std::make_unique<Parts>(model, std::vector<std::int32_t>(source.begin(), source.end()), seed, options)) {}

Session::Session(const Model& model, const State& state) : Session(model, state.source, state.seed) {
  parts_->random = Random(state.seed, state.drawn);
  for (std::size_t i = 0; i < state.portions.size(); ++i) {
    const State::Portion& portion = state.portions[i];
    const auto size = static_cast<std::int64_t>(portion.ids.size());
    const bool last = i + 1 == state.portions.size();
    if (portion.kept < 1 || portion.kept > size || (last && state.logits && portion.kept < size)) {
      throw Error(ErrorKind::argument, "session state",
                  join("portion ", i, " keeps ", portion.kept, " of ", size, " tokens"),
                  "use a state as Session::state() gave it");
    }
    feed(portion.ids);
    if (portion.kept < size) truncate(length() - (size - portion.kept));
  }
  if (state.logits && state.portions.empty()) {
    throw Error(ErrorKind::argument, "session state", "there are logits, but nothing was read",
                "use a state as Session::state() gave it");
  }
  if (!state.logits) parts_->logits = Tensor();
}

Session::~Session() = default;
Session::Session(const Session& other) : parts_(std::make_unique<Parts>(*other.parts_)) {}
Session::Session(Session&&) noexcept = default;
Session& Session::operator=(const Session& other) {
  if (this != &other) parts_ = std::make_unique<Parts>(*other.parts_);
  return *this;
}
Session& Session::operator=(Session&&) noexcept = default;

std::span<const float> Session::feed(std::span<const std::int32_t> ids, const RunOptions& options) {
  Parts& parts = *parts_;
  const auto count = static_cast<std::int64_t>(ids.size());
  if (count == 0) throw Error(ErrorKind::argument, "session", "nothing to read was given", "give at least one token");
  if (count > positions_left()) {
    throw Error(ErrorKind::argument, "session",
                join(count, " tokens do not fit after ", length(), ": the model has ",
                     parts.model->config().max_positions, " positions"),
                join("give at most ", positions_left(), ", or truncate first"));
  }
  check_ids(ids, parts.model->config().decoder->vocabulary, "session", "the tokens");
  const NoGradientScope no_gradients;
  TokenBatch batch;
  batch.append(ids);
  KvCache* const caches[] = {&parts.cache};
  const std::int64_t before[] = {length()};
  const States states = parts.model->decode_cached(batch, caches, options);
  // With a probe, the logits of all rows pass their site.
  Tensor logits = options.probe ? parts.model->logits(states, options, before).row_range(count - 1, 1)
                                : parts.model->logits(states.rows.row_range(count - 1, 1));
  parts.logits = std::move(logits);
  parts.ids.insert(parts.ids.end(), ids.begin(), ids.end());
  parts.portions.push_back({{ids.begin(), ids.end()}, count});
  return this->logits();
}

std::span<const float> Session::logits() const {
  const Tensor& logits = parts_->logits;
  if (!logits.defined()) {
    throw Error(ErrorKind::argument, "session", "there are no logits at the start and after truncating",
                "feed a token first");
  }
  return {logits.data(), static_cast<std::size_t>(logits.width())};
}

std::int32_t Session::choose(const DecodeOptions& options) {
  const std::span<const float> row = logits();
  const auto vocabulary = static_cast<std::int64_t>(row.size());
  check_options(options, vocabulary);
  const AllowedIds allowed(vocabulary, {options.forbidden});
  std::int32_t id = -1;
  if (options.strategy == Strategy::greedy) {
    id = best_of(row.data(), allowed).id;
  } else if (options.strategy == Strategy::sample) {
    SampleScratch scratch;
    id = sample_of(row.data(), allowed, options, parts_->random, scratch);
  } else {
    throw Error(ErrorKind::argument, "session", "a beam cannot be chosen token by token",
                "use greedy or sample, or generate()");
  }
  if (id < 0) throw Error(ErrorKind::numeric, "session", "logits are NaN or infinite", "check the model's weights");
  return id;
}

void Session::truncate(std::int64_t length) {
  Parts& parts = *parts_;
  if (length < 0 || length > this->length()) {
    throw Error(ErrorKind::argument, "session", join("cannot truncate ", this->length(), " tokens to ", length),
                join("use 0 to ", this->length()));
  }
  if (length == this->length()) return;
  std::int64_t end = this->length();
  while (end > length) {
    State::Portion& portion = parts.portions.back();
    const std::int64_t dropped = std::min(portion.kept, end - length);
    portion.kept -= dropped;
    end -= dropped;
    if (portion.kept == 0) parts.portions.pop_back();
  }
  parts.cache.truncate(length);
  parts.ids.resize(static_cast<std::size_t>(length));
  parts.logits = Tensor();
}

const std::vector<std::int32_t>& Session::ids() const { return parts_->ids; }
std::int64_t Session::length() const { return parts_->cache.length(); }
std::int64_t Session::positions_left() const { return parts_->model->config().max_positions - length(); }

Session::State Session::state() const {
  return {parts_->source, parts_->portions, parts_->logits.defined(), parts_->random.seed(), parts_->random.drawn()};
}

}  // namespace attend
