// Edits: named changes of what a model computes. They are stacked in order, undone exactly, counted, and kept in files.
//
//   Edits edits;
//   edits.add({.name = "deaf", .kind = EditKind::cut, .at = "decoder.1.cross", .heads = {2}});
//   edits.add({.name = "first word", .kind = EditKind::lock, .at = "decoder.*.self", .positions = {{4}}, .keys = {{1}}, .value = 0.5f});
//   const EditedRun run = run_edited(model, edits, input);   // logits with and without, and what each edit touched
//
// Nothing of a model changes: an edit lives in a probe (EditProbe), which belongs to one run. Without an edit a run has
// the bits it would have if the edit had never been there.
//
// Contracts, each with a test: edited runs agree with a float64 textbook run under the same edit; what is cut twice is as
// cut once; edits mean the same in one pass and token by token, alone and in a batch; gradients under a tape are those of
// the edited run; head parts + bias = attention output, checked at every run that edits what heads write.
#pragma once

#include <compare>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "attend/checkpoint.h"
#include "attend/model.h"
#include "attend/probe.h"

namespace attend {

enum class EditKind {
  // Of values, at any site but scores and weights:
  zero,   // zero ablation
  mean,   // the mean of the rows at this site over reference texts (mean ablation)
  patch,  // rows of another run: another text, another checkpoint (activation patching, Vig et al. 2020)
  noise,  // plus value * a normal number (causal tracing, Meng et al. 2022)
  // Of the scores of an attention, for chosen queries and keys; see ScoreEdit:
  set,
  add,
  scale,
  forbid,  // the key is not seen (attention knockout, Geva et al. 2023)
  lock,    // the weight is `value`; the other keys of the row share the rest
  evict,   // keys that leave the cache: no query among `positions` reads them
  window,  // of the keys up to its own a query reads the last `size` only; an encoder's query still reads all behind it
  // Of parts:
  cut,     // an edge (with keys), heads, a whole attention or feed-forward layer, a block (the residual passes through)
  freeze,  // a norm divides by the deviations of the run without edits: it is linear then
};
const char* name_of(EditKind kind);               // "zero", ...
EditKind edit_kind_named(std::string_view name);  // Error(argument) with the known names

// Positions begin .. end - 1 of a sequence, counted from 0; of an encoder with a class token, that one is 0.
struct PositionRange {
  static constexpr std::int64_t open_end = ScoreEdit::open_end;

  std::int64_t begin = 0;
  std::int64_t end = 0;  // 0: begin alone; open_end: as far as the sequence goes

  std::int64_t last() const { return end == 0 ? begin : end - 1; }
  bool holds(std::int64_t position) const { return position >= begin && position <= last(); }
  auto operator<=>(const PositionRange&) const = default;
};

// A text that a model reads to lend its values: ids, or text that with_token_ids() turns into ids.
struct EditText {
  std::vector<std::int32_t> source, target;  // what the encoder reads; what the decoder reads, its first token included
  std::string source_text, target_text;

  auto operator<=>(const EditText&) const = default;
};

// Which fields a kind has is in the comment of each; others must be left as they are.
//
// `at` names one place or, with * for a word, several: "decoder.3.cross.value", "decoder.*.self", "*.*.feed_forward".
//   zero, mean, patch, noise          a site of rows ("decoder.0.output", "encoder.*.self.key", "decoder.logits")
//   set, add, scale, forbid, lock, evict, window     an attention ("decoder.0.self"); window: a self-attention
//   cut        an attention ("decoder.0.cross"), a feed-forward layer ("decoder.0.feed_forward"), a block ("decoder.0")
//   freeze     a norm by its site ("decoder.0.self.deviation", "decoder.final_deviation"), or all norms of a part, a
//              block, a stack
struct Edit {
  std::string name;  // 1 to 100 bytes, one of its own
  EditKind kind = EditKind::zero;
  std::string at = {};
  std::vector<std::int64_t> items = {};  // of the batch, by number (RunOptions::item_numbers); empty: all. All kinds
  // Of queries; at sites of keys and values of key heads. Empty: all. Values at query, key, value, rotated_query,
  // rotated_key and head_output; scores; cut of an attention
  std::vector<std::int64_t> heads = {};
  std::vector<PositionRange> positions = {};  // of the rows edited; for scores, of the queries. Empty: all. All kinds
  std::vector<PositionRange> keys = {};       // set, add, scale, forbid, lock, cut (edges): empty: all; evict: which
  float value = 0;                            // set, add, scale, lock; noise: its standard deviation
  std::int64_t size = 0;                      // window
  std::uint64_t seed = 1;                     // noise: depends on seed, site, item, position and column, nothing else
  std::vector<EditText> texts = {};  // mean: over all their rows; patch: one, or none for the text of the run itself
  bool by_position = false;          // mean: of the rows at the same position
  std::string model = {};            // mean, patch: folder of another model of the same shape; empty: this one
  std::vector<PositionRange> from_positions =
      {};  // patch: where the rows come from, one for each of `positions`; empty: the same

  bool operator==(const Edit&) const = default;
};

// Edits that contradict each other; for programs that name them in words of their own.
class ContradictionError : public Error {
 public:
  ContradictionError(std::string what_happened, std::string advice, std::size_t first_edit, std::size_t second_edit)
      : Error(ErrorKind::argument, "edits", std::move(what_happened), std::move(advice)),
        first(first_edit),
        second(second_edit) {}

  std::size_t first, second;  // of the first pair: indices in Edits::list()
};

// A list of edits with names of their own, in the order in which they are made.
class Edits {
 public:
  // So many edits a list holds, and a file: their number never keeps a list from being saved or loaded.
  static constexpr std::size_t most = 4096;

  // Error(argument): a name that is taken, empty or no text; a field the kind does not have, or lacks; a value out of range;
  // one edit more than `most`.
  void add(Edit edit);
  void remove(std::string_view name);  // Error(argument) with the nearest name
  void undo();                         // removes the last; Error(argument) if there is none
  const Edit& edit(std::string_view name) const;
  const std::vector<Edit>& list() const { return list_; }
  bool empty() const { return list_.empty(); }

  // Does anything here depend on the place of a token in its text?
  bool has_positions() const;

  // Error(argument): a place, head or layer the model does not have, with those it has and the nearest name; edits that
  // contradict each other, named in pairs: two that fix the same value differently (zero and patch, set and forbid, lock
  // and evict), or one that changes what another removes or replaces anyway. Of contradictions it is a ContradictionError.
  void check(const Model& model) const;
  // The same against the lengths of the items of a run, in tokens: items, positions and keys that do not exist. An empty
  // list leaves that stack alone.
  void check_positions(const Model& model, std::span<const std::int64_t> source_lengths,
                       std::span<const std::int64_t> target_lengths) const;

  bool operator==(const Edits&) const = default;

 private:
  std::vector<Edit> list_;
};

// The same edits with ids in the place of texts, cut by the folder's tokenizers as translation and generation would: a
// source with its tag and end, a target after the first token. Error(text, argument) names the edit.
Edits with_token_ids(const Edits& edits, const ModelFolder& folder);

// ---- Runs -----------------------------------------------------------------------------------------------------------

// What a run reads: a source if the model has an encoder of tokens, a target if it has a decoder, one item each;
// encoders of features: rows and where items begin.
struct EditInput {
  TokenBatch source, target;
  Tensor features = {};
  std::vector<std::int64_t> feature_offsets = {};
};
// fingerprint_of() the batches that the model reads.
std::string text_fingerprint(const EditInput& input);

// Values of other runs that edits need. mean: [1, width], by position [positions, width]; patch and freeze:
// [positions, width].
struct EditSources {
  struct Place {
    std::string edit;
    Site site;
    std::int64_t item = -1;  // -1: the same for all items

    auto operator<=>(const Place&) const = default;
  };
  std::map<Place, Tensor> rows;
};

// Opens the model folder an edit names, looked for in `base_folder` unless its name is absolute. With `words`, the folder
// of the run, tokenizers must be the same: Error(config) with both fingerprints, since ids would mean other words.
using ModelOpener = std::function<std::shared_ptr<const Model>(const std::string& name)>;
ModelOpener open_models_in(const std::filesystem::path& base_folder, const ModelFolder* words = nullptr);

// Runs what the edits need: reference texts, other prompts and checkpoints, and the run itself where its values are frozen
// or patched from another checkpoint. Error(argument, config) names the edit: a text that is missing or still text, a
// model of another shape.
EditSources edit_sources(const Model& model, const Edits& edits, const EditInput& input,
                         const ModelOpener& open = open_models_in({}));

// What the edits did in the runs of a probe.
struct EditReport {
  struct Touched {
    std::string name;
    EditKind kind = EditKind::zero;
    std::int64_t count = 0;  // rows of values; scores that the mask lets see, for edits of scores
  };
  std::vector<Touched> edits;  // in their order
  // Head parts + bias against attention output, largest difference over the largest output, of all attentions where
  // what heads write was edited; 0 if there was none.
  double head_parts_difference = 0;
  std::int64_t head_parts_checked = 0;  // attentions, counted at every run

  std::vector<std::string> untouched() const;  // names of edits that touched nothing
  // Error(argument) naming them, if there are any.
  void require_touched() const;
};

// Makes the edits in the runs it is given to, one after the other: encode(), decode(), share_memory(), decode_cached(),
// logits(), or what calls them. Under a tape every edit is part of what is differentiated; values of other runs are
// constants. Not for two runs at once.
class EditProbe : public Probe {
 public:
  // Error as Edits::check(). The model must outlive it.
  EditProbe(const Model& model, const Edits& edits, EditSources sources = {});
  ~EditProbe() override;
  EditProbe(EditProbe&&) noexcept;
  EditProbe& operator=(EditProbe&&) noexcept;

  EditReport report() const;  // of all runs since it was made or forgotten
  void forget();

  bool wants(const Site& site) const override;
  std::uint64_t heads(const Site&) const override { return 0; }
  // Error(argument): a row that a source has not. Error(numeric): head parts that do not sum to the attention output
  // within 1e-4 of it.
  void visit(const Visit& visit, Tensor& value) override;
  std::vector<ScoreEdit> score_edits(StackKind stack, int layer, Part part) const override;
  void scores_edited(StackKind stack, int layer, Part part, std::span<const std::int64_t> counts) override;

 private:
  struct Parts;
  std::unique_ptr<Parts> parts_;
};

struct EditRunOptions {
  bool cached = false;             // the decoder reads token by token, as in generation; else all at once
  bool allow_untouched = false;    // edits that touch nothing are reported only, not refused
  Probe* beside_base = nullptr;    // see the run without edits
  Probe* beside_edited = nullptr;  // and with them, after they are made
};

struct EditedRun {
  // Logits without and with edits, [rows, vocabulary]: of the decoder's rows, else the encoder's; or [items, classes].
  Tensor base, edited;
  std::vector<std::int64_t> offsets;  // first row of each item, and the end
  EditReport report;
};

// Runs a model twice over the same input. Error as Edits::check(), check_positions() and edit_sources(), and for edits that
// touch nothing; locks that cannot be kept are refused with the names of the edits that lock there.
EditedRun run_edited(const Model& model, const Edits& edits, const EditInput& input, const EditRunOptions& options = {},
                     const ModelOpener& open = open_models_in({}));

// What each head adds to the attention output: its slice of head_output through its columns of W_O, [rows, heads, width].
// Their sum and the bias of W_O are the output ("projected"). part: self or cross.
Tensor head_parts(const Model& model, StackKind stack, int layer, Part part, const Tensor& head_output);
// How far these parts and the bias, summed in double, are from the attention output `projected` [rows, width] that was made
// of them: largest |difference| (infinity where one is no number) and largest |output|.
struct HeadPartsDifference {
  double difference = 0, largest_output = 0;
};
HeadPartsDifference head_parts_difference(const Model& model, StackKind stack, int layer, Part part,
                                          const Tensor& head_output, const Tensor& projected);

// ---- Files ----------------------------------------------------------------------------------------------------------

// Edits of one model and one text.
struct EditFile {
  Edits edits;
  std::string model;  // its fingerprint
  std::string text;   // text_fingerprint(); "any" where no edit has positions

  // Error(argument) names both fingerprints where they differ.
  void check_fits(const Model& model, const EditInput& input) const;
  bool operator==(const EditFile&) const = default;
};
// JSON and back: unknown keys are refused with the nearest known one, wrong values with what is allowed; `source` (a file
// name) leads the message.
std::string to_json(const EditFile& file);
EditFile edit_file_from_json(const std::string& text, const std::string& source);
EditFile load_edit_file(const std::filesystem::path& path);
// Error(argument), and no file, where load_edit_file() would not give the same again: a fingerprint that is none, positions
// for "any" text, numbers above 2^40, more than 64 MiB.
void save_edit_file(const std::filesystem::path& path, const EditFile& file);

}  // namespace attend
