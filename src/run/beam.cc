#include <algorithm>
#include <functional>
#include <utility>

#include "attend/error.h"
#include "core/threads.h"
#include "run/choose.h"
#include "run/steps.h"

namespace attend {
namespace {

// One beginning that the search follows.
struct Beam {
  KvCache cache;
  std::vector<std::int32_t> reading;  // what the next step reads
  Hypothesis result;
  std::int64_t judged = 1, logits_row = 0;
  std::vector<Candidate> best;  // of its row of logits
};

// A beginning and one token more.
struct Extension {
  double total = 0;
  std::int64_t beam = 0;
  std::int32_t id = -1;
  float log_probability = 0;
};

// The search for one input.
struct Search {
  std::int64_t input = 0, item = 0, limit = 0;
  std::vector<Beam> beams;
  std::vector<Hypothesis> ended;
  bool done = false;
};

class BeamGenerator {
 public:
  BeamGenerator(const Model& model, std::span<const DecodeInput> inputs, const DecodeOptions& options)
      : inputs_(inputs),
        options_(options),
        admission_(model, inputs, options),
        batch_(model, options.probe),
        allowed_(model.config().output_vocabulary(), {options.forbidden}),
        allowed_before_end_(model.config().output_vocabulary(), {options.forbidden, options.end}),
        results_(inputs.size()) {}

  std::vector<std::vector<Hypothesis>> run() {
    for (;;) {
      check_cancelled(options_);
      admit();
      if (searches_.empty()) return std::move(results_);
      step();
    }
  }

 private:
  void admit() {
    const auto active = static_cast<std::int64_t>(searches_.size());
    if (admission_.empty() || active > options_.batch_size / 2) return;
    for (Start& start : admission_.admit(std::max<std::int64_t>(1, options_.batch_size - active))) {
      const auto& prefix = inputs_[static_cast<std::size_t>(start.input)].prefix;
      Search search{start.input, start.item, start.limit, {}, {}};
      search.beams.push_back({std::move(start.cache), std::move(start.reading), {}, 1, 0, {}});
      search.beams.back().result.ids = prefix;
      search.beams.back().judged += static_cast<std::int64_t>(prefix.size());
      searches_.push_back(std::move(search));
    }
  }

  void step() {
    batch_.clear();
    beams_.clear();
    std::int64_t logits_rows = 0;
    for (Search& search : searches_) {
      for (Beam& beam : search.beams) {
        batch_.add(beam.cache, beam.reading, beam.judged, search.item);
        logits_rows += beam.judged;
        beam.logits_row = logits_rows - 1;
        beams_.emplace_back(&search, &beam);
      }
    }
    Tensor logits = batch_.run();

    // Among so many of each beam are all that can be followed: at most options_.end.size() of them end the sequence.
    const auto wanted = options_.beam_size + static_cast<std::int64_t>(options_.end.size());
    std::vector<std::uint8_t> sound(beams_.size(), 1);
    parallel_ranges(static_cast<std::int64_t>(beams_.size()), 2, [&](std::int64_t begin, std::int64_t end, int) {
      for (std::int64_t i = begin; i < end; ++i) {
        Beam& beam = *beams_[static_cast<std::size_t>(i)].second;
        const bool early = static_cast<std::int64_t>(beam.result.ids.size()) + 1 < options_.min_length;
        sound[static_cast<std::size_t>(i)] =
            best_few_of(logits.row(beam.logits_row), early ? allowed_before_end_ : allowed_, wanted, beam.best);
      }
    });
    labels_.assign(static_cast<std::size_t>(logits.rows()), 0);
    for (std::size_t i = 0; i < beams_.size(); ++i) {
      const Beam& beam = *beams_[i].second;
      if (!sound[i]) refuse_logits(beams_[i].first->input, beam.result.ids.size());
      const auto last = static_cast<std::size_t>(beam.logits_row), forced = static_cast<std::size_t>(beam.judged - 1);
      std::copy_n(beam.result.ids.begin(), forced, labels_.begin() + static_cast<std::ptrdiff_t>(last - forced));
      labels_[last] = beam.best.front().id;
    }
    label_losses(logits, labels_, losses_);

    for (Search& search : searches_) advance(search);
    std::erase_if(searches_, [](const Search& search) { return search.done; });
  }

  void advance(Search& search) {
    for (Beam& beam : search.beams) {
      const auto last = static_cast<std::size_t>(beam.logits_row);
      for (auto i = last + 1 - static_cast<std::size_t>(beam.judged); i < last; ++i) {
        beam.result.log_probabilities.push_back(-losses_[i]);
        beam.result.total += -losses_[i];
      }
      beam.judged = 1;
    }
    const auto length = static_cast<std::int64_t>(search.beams.front().result.ids.size()) + 1;
    if (length > search.limit) return close(search);  // the forced prefix was all

    extensions_.clear();
    for (std::size_t b = 0; b < search.beams.size(); ++b) {
      const Beam& beam = search.beams[b];
      const float best = -losses_[static_cast<std::size_t>(beam.logits_row)];
      for (const Candidate& candidate : beam.best) {
        const float log_probability = best + (candidate.logit - beam.best.front().logit);
        extensions_.push_back(
            {beam.result.total + log_probability, static_cast<std::int64_t>(b), candidate.id, log_probability});
      }
    }
    std::sort(extensions_.begin(), extensions_.end(), [](const Extension& a, const Extension& b) {
      if (a.total != b.total) return a.total > b.total;
      return a.beam != b.beam ? a.beam < b.beam : a.id < b.id;
    });

    const auto size = static_cast<std::size_t>(options_.beam_size);
    followed_.clear();
    BeamEvent event;
    for (std::size_t rank = 0; rank < extensions_.size() && followed_.size() < size; ++rank) {
      const Extension& extension = extensions_[rank];
      if (std::find(options_.end.begin(), options_.end.end(), extension.id) == options_.end.end()) {
        followed_.push_back(extension);
      } else if (rank < size || options_.beam_stop == BeamStop::best) {
        // An ending counts only if it is among the best beam_size extensions: a worse one would end the search early.
        search.ended.push_back(extended(search, extension));
        search.ended.back().finished = true;
        if (options_.on_beam) event.ended.push_back(told(extension));
      }
    }
    if (options_.on_beam) {
      event.input = search.input;
      event.length = length;
      for (const Extension& extension : followed_) event.followed.push_back(told(extension));
      options_.on_beam(event);
    }
    if (followed_.empty() || enough(search, length)) {
      search.beams.clear();
      return close(search);
    }

    std::vector<std::int64_t> uses(search.beams.size(), 0);
    for (const Extension& extension : followed_) ++uses[static_cast<std::size_t>(extension.beam)];
    std::vector<Beam> beams;
    beams.reserve(followed_.size());
    for (const Extension& extension : followed_) {
      Beam& parent = search.beams[static_cast<std::size_t>(extension.beam)];
      Hypothesis result = extended(search, extension);
      // The last heir takes the cache itself, so that a beginning with one heir never copies a page.
      const bool last = --uses[static_cast<std::size_t>(extension.beam)] == 0;
      beams.push_back({last ? std::move(parent.cache) : parent.cache, {extension.id}, std::move(result), 1, 0, {}});
    }
    search.beams = std::move(beams);
    if (length == search.limit) close(search);
  }

  static BeamEvent::Extension told(const Extension& extension) {
    return {extension.beam, extension.id, extension.log_probability, extension.total};
  }

  static Hypothesis extended(const Search& search, const Extension& extension) {
    Hypothesis result = search.beams[static_cast<std::size_t>(extension.beam)].result;
    result.ids.push_back(extension.id);
    result.log_probabilities.push_back(extension.log_probability);
    result.total = extension.total;
    return result;
  }

  double score(double total, std::int64_t length) const {
    return length_score(options_.length_penalty, options_.length_alpha, total, length);
  }

  // Is nothing to be gained by going on after `length` tokens?
  bool enough(const Search& search, std::int64_t length) const {
    if (options_.beam_stop == BeamStop::enough)
      return static_cast<std::int64_t>(search.ended.size()) >= options_.beam_size;
    if (static_cast<std::int64_t>(search.ended.size()) < options_.n_best) return false;
    std::vector<double> scores;
    for (const Hypothesis& hypothesis : search.ended) {
      scores.push_back(score(hypothesis.total, static_cast<std::int64_t>(hypothesis.ids.size())));
    }
    const auto worst = scores.begin() + (options_.n_best - 1);
    std::nth_element(scores.begin(), worst, scores.end(), std::greater<>());
    // Totals only fall, and both penalties rise or fall with the length all the way: the best that can come of a
    // beginning is its present total at the next length or at the longest.
    const double total = followed_.front().total;
    const double reachable = std::max(score(total, std::min(length + 1, search.limit)), score(total, search.limit));
    return *worst >= reachable;
  }

  void close(Search& search) {
    search.done = true;
    std::vector<Hypothesis>& all = search.ended;
    for (Beam& beam : search.beams) all.push_back(std::move(beam.result));
    for (Hypothesis& hypothesis : all) {
      hypothesis.score = score(hypothesis.total, static_cast<std::int64_t>(hypothesis.ids.size()));
    }
    std::stable_sort(all.begin(), all.end(), [](const Hypothesis& a, const Hypothesis& b) {
      if (a.finished != b.finished) return a.finished;
      return a.score != b.score ? a.score > b.score : a.ids < b.ids;
    });
    if (all.size() > static_cast<std::size_t>(options_.n_best)) all.resize(static_cast<std::size_t>(options_.n_best));
    if (!options_.scores) {
      for (Hypothesis& hypothesis : all) hypothesis.log_probabilities.clear();
    }
    results_[static_cast<std::size_t>(search.input)] = std::move(all);
  }

  std::span<const DecodeInput> inputs_;
  const DecodeOptions& options_;
  Admission admission_;
  StepBatch batch_;
  AllowedIds allowed_, allowed_before_end_;
  std::vector<Search> searches_;
  std::vector<std::pair<Search*, Beam*>> beams_;
  std::vector<Extension> extensions_, followed_;
  std::vector<std::int32_t> labels_;
  std::vector<float> losses_;
  std::vector<std::vector<Hypothesis>> results_;
};

}  // namespace

std::vector<std::vector<Hypothesis>> generate_beam(const Model& model, std::span<const DecodeInput> inputs,
                                                   const DecodeOptions& options) {
  return BeamGenerator(model, inputs, options).run();
}

}  // namespace attend
