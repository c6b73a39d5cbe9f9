// Runs that lend their values to edits.
#include <algorithm>
#include <bit>
#include <map>
#include <set>

#include "attend/edits.h"
#include "attend/error.h"
#include "attend/tape.h"
#include "attend/translate.h"
#include "inspect/edits/places.h"
#include "inspect/edits/run_input.h"

namespace attend {
namespace {

constexpr std::int64_t texts_at_once = 48;

bool is_of_source(const Site& site) {
  return site.stack == StackKind::encoder ||
         (site.part == Part::cross && (site.point == Point::key || site.point == Point::value));
}

// One text as the model reads it; refuses what is missing.
void append(const Model& model, const Edit& edit, const EditText& text, EditInput& input) {
  const auto refuse = [&](const std::string& what, const std::string& advice) {
    throw Error(ErrorKind::argument, edit_called(edit), what, advice);
  };
  const auto take = [&](const char* name, const std::vector<std::int32_t>& ids, const std::string& plain, bool needed,
                        TokenBatch& batch) {
    if (ids.empty() && !plain.empty())
      refuse(join("its ", name, " is text, not ids"), "with_token_ids() cuts texts into tokens");
    if (needed && ids.empty()) refuse(join("its text has no ", name), join("the model reads a ", name));
    if (!needed && !ids.empty()) refuse(join("its text has a ", name), join("the model reads no ", name));
    if (needed) batch.append(ids);
  };
  if (model.config().encoder && model.config().encoder->vocabulary == 0)
    refuse("the model reads features, and texts lend no values to it",
           "patch from another model on the features of the run");
  take("source", text.source, text.source_text, model.config().encoder.has_value(), input.source);
  take("target", text.target, text.target_text, model.config().decoder.has_value(), input.target);
}

void add_rows(const Tensor& rows, std::span<const std::int64_t> offsets, bool by_position,
              std::vector<std::vector<double>>& sums, std::vector<std::int64_t>& counts) {
  for (std::size_t item = 0; item + 1 < offsets.size(); ++item)
    for (std::int64_t row = offsets[item]; row < offsets[item + 1]; ++row) {
      const auto place = static_cast<std::size_t>(by_position ? row - offsets[item] : 0);
      if (place >= sums.size()) {
        sums.resize(place + 1, std::vector<double>(static_cast<std::size_t>(rows.width()), 0.0));
        counts.resize(place + 1, 0);
      }
      for (std::int64_t i = 0; i < rows.width(); ++i)
        sums[place][static_cast<std::size_t>(i)] += static_cast<double>(rows.row(row)[i]);
      ++counts[place];
    }
}

Tensor mean_of(const std::vector<std::vector<double>>& sums, const std::vector<std::int64_t>& counts) {
  Tensor mean = Tensor::empty({static_cast<std::int64_t>(sums.size()), static_cast<std::int64_t>(sums.front().size())});
  for (std::size_t row = 0; row < sums.size(); ++row)
    for (std::size_t i = 0; i < sums[row].size(); ++i)
      mean.row(static_cast<std::int64_t>(row))[i] = static_cast<float>(sums[row][i] / static_cast<double>(counts[row]));
  return mean;
}

void take_means(const Model& model, const Edit& edit, const std::vector<Site>& sites, EditSources& sources) {
  std::map<Site, std::pair<std::vector<std::vector<double>>, std::vector<std::int64_t>>> sums;
  for (std::size_t begin = 0; begin < edit.texts.size(); begin += texts_at_once) {
    EditInput input;
    for (std::size_t i = begin; i < std::min(edit.texts.size(), begin + texts_at_once); ++i)
      append(model, edit, edit.texts[i], input);
    const RunRows record = record_run(model, input, sites);
    for (const Site& site : sites)
      add_rows(record.rows.value(site), record.offsets_of(site), edit.by_position, sums[site].first, sums[site].second);
  }
  for (const auto& [site, sum] : sums) sources.rows[{edit.name, site, -1}] = mean_of(sum.first, sum.second);
}

void take_own_rows(const Model& model, const EditInput& input,
                   const std::vector<std::pair<const Edit*, std::vector<Site>>>& wanted, EditSources& sources) {
  if (wanted.empty()) return;
  std::set<Site> sites;
  for (const auto& [edit, of_edit] : wanted) sites.insert(of_edit.begin(), of_edit.end());
  const RunRows record = record_run(model, input, {sites.begin(), sites.end()});
  for (const auto& [edit, of_edit] : wanted)
    for (const Site& site : of_edit) {
      const std::vector<std::int64_t>& offsets = record.offsets_of(site);
      for (std::size_t item = 0; item + 1 < offsets.size(); ++item)
        sources.rows[{edit->name, site, static_cast<std::int64_t>(item)}] =
            record.rows.value(site).row_range(offsets[item], offsets[item + 1] - offsets[item]);
    }
}

// Equal in all that decides what a run computes.
bool same_shape(TransformerConfig a, TransformerConfig b) {
  for (TransformerConfig* config : {&a, &b}) {
    config->dropout = config->attention_dropout = config->inner_dropout = 0;
    config->initialisation = Initialisation::xavier;
  }
  return a == b;
}

}  // namespace

// ---- Runs -----------------------------------------------------------------------------------------------------------

const std::vector<std::int64_t>& RunRows::offsets_of(const Site& site) const {
  if (site.point == Point::logits && !class_offsets.empty()) return class_offsets;
  return is_of_source(site) ? source_offsets : target_offsets;
}

void check_input(const Model& model, const EditInput& input) {
  const TransformerConfig& config = model.config();
  const auto refuse = [](const std::string& what) {
    throw Error(ErrorKind::argument, "edits", what,
                "give a source exactly if the model has an encoder, a target exactly if it has a decoder");
  };
  const bool features = config.encoder && config.encoder->vocabulary == 0;
  if (features != input.features.defined())
    refuse(features ? "the model reads features and none are given" : "features are given to a model that reads none");
  if ((config.encoder && !features) != (input.source.items() > 0))
    refuse(join("the source has ", input.source.items(), " items"));
  if (config.decoder.has_value() != (input.target.items() > 0))
    refuse(join("the target has ", input.target.items(), " items"));
}

RunRows record_run(const Model& model, const EditInput& input, const std::vector<Site>& sites, Probe* probe) {
  RunRows record{Recorder(sites), {}, {}, {}, {}};
  ProbeList both({&record.rows});
  if (probe != nullptr) both = ProbeList({probe, &record.rows});
  RunOptions options;
  options.probe = &both;
  record.logits = run_input(model, input, options, record);
  return record;
}

Tensor run_input(const Model& model, const EditInput& input, const RunOptions& options, RunRows& record) {
  const NoGradientScope no_gradients;
  const TransformerConfig& config = model.config();
  check_input(model, input);
  States memory;
  if (config.encoder) {
    memory = input.features.defined() ? model.encode_features(input.features, input.feature_offsets, options)
                                      : model.encode(input.source, options);
    record.source_offsets = memory.offsets;
  }
  if (!config.decoder) {
    record.target_offsets = record.source_offsets;
    if (config.classes > 0) {
      for (std::int64_t item = 0; item <= memory.items(); ++item) record.class_offsets.push_back(item);
      return model.classify(memory, options);
    }
    return config.output_vocabulary() > 0 ? model.logits(memory, options) : memory.rows;
  }
  const States states = model.decode(input.target, config.encoder ? &memory : nullptr, options);
  record.target_offsets = states.offsets;
  return model.logits(states, options);
}

std::string text_fingerprint(const EditInput& input) {
  std::vector<std::string> parts;
  if (input.source.items() > 0) parts.push_back(fingerprint(input.source));
  if (input.target.items() > 0) parts.push_back(fingerprint(input.target));
  if (input.features.defined()) {
    std::vector<std::int32_t> bits;
    for (const float value : input.features.to_vector()) bits.push_back(std::bit_cast<std::int32_t>(value));
    for (const std::int64_t offset : input.feature_offsets) bits.push_back(static_cast<std::int32_t>(offset));
    parts.push_back(fingerprint(bits));
  }
  return fingerprint_of(parts);
}

ModelOpener open_models_in(const std::filesystem::path& base_folder, const ModelFolder* words) {
  const auto print_of = [](const std::shared_ptr<const Tokenizer>& tokenizer) {
    return tokenizer ? tokenizer->fingerprint() : std::string("none");
  };
  std::string source = words ? print_of(words->source) : "", target = words ? print_of(words->target) : "";
  return [=, compares = words != nullptr](const std::string& name) -> std::shared_ptr<const Model> {
    const std::filesystem::path folder = base_folder / name;
    if (!compares) return std::make_shared<const Model>(load_model(folder));
    ModelFolder other = load_model_folder(folder);
    for (const auto& [own, found] :
         {std::pair(source, print_of(other.source)), std::pair(target, print_of(other.target))})
      if (own != found)
        throw Error(ErrorKind::config, folder.string(),
                    join("has a tokenizer of fingerprint ", found, ", the model of the run one of ", own),
                    "its ids stand for other words; take a checkpoint of the same vocabulary");
    return std::make_shared<const Model>(std::move(other.model));
  };
}

EditSources edit_sources(const Model& model, const Edits& edits, const EditInput& input, const ModelOpener& open) {
  EditSources sources;
  std::map<std::size_t, std::vector<Site>> sites;
  for (const PlacedEdit& placed : place_edits(model, edits))
    if (placed.action == Action::mean || placed.action == Action::patch || placed.action == Action::freeze)
      sites[placed.edit].push_back(placed.site);
  std::map<std::string, std::shared_ptr<const Model>> others;
  // Edits that read the run itself: of this model, or of another one on the same text.
  std::map<std::string, std::vector<std::pair<const Edit*, std::vector<Site>>>> own;
  for (const auto& [index, of_edit] : sites) {
    const Edit& edit = edits.list()[index];
    const Model* from = &model;
    if (!edit.model.empty()) {
      std::shared_ptr<const Model>& other = others[edit.model];
      if (!other) other = open(edit.model);
      if (!same_shape(other->config(), model.config()))
        throw Error(ErrorKind::config, edit_called(edit),
                    join("the model in ", edit.model, " has another shape than the one that runs"),
                    "values can only come from a model of the same config");
      from = other.get();
    }
    if (edit.kind == EditKind::mean) {
      take_means(*from, edit, of_edit, sources);
    } else if (edit.kind == EditKind::patch && !edit.texts.empty()) {
      EditInput text;
      append(*from, edit, edit.texts.front(), text);
      const RunRows record = record_run(*from, text, of_edit);
      for (const Site& site : of_edit) sources.rows[{edit.name, site, -1}] = record.rows.value(site);
    } else {
      own[edit.model].emplace_back(&edit, of_edit);
    }
  }
  for (const auto& [name, wanted] : own) take_own_rows(name.empty() ? model : *others.at(name), input, wanted, sources);
  return sources;
}

// ---- Texts ----------------------------------------------------------------------------------------------------------

Edits with_token_ids(const Edits& edits, const ModelFolder& folder) {
  const TransformerConfig& config = folder.model.config();
  Edits result;
  for (Edit edit : edits.list()) {
    for (EditText& text : edit.texts) {
      try {
        if (text.source.empty() && !text.source_text.empty()) {
          if (!folder.source)
            throw Error(ErrorKind::argument, "text", "there is a source and the encoder has no tokenizer");
          std::string to;
          if (config.decoder) to = Translator(folder).direction(text.source_text).second;
          text.source = encode_source(folder.task, *folder.source, text.source_text, to);
        }
        if (text.target.empty() && !text.target_text.empty()) {
          if (!folder.target)
            throw Error(ErrorKind::argument, "text", "there is a target and the decoder has no tokenizer");
          if (config.encoder || folder.task.lines) text.target.push_back(first_token(*folder.target));
          const std::vector<std::int32_t> ids = folder.target->encode(text.target_text);
          text.target.insert(text.target.end(), ids.begin(), ids.end());
        }
      } catch (const Error& error) {
        throw Error(error.kind(), edit_called(edit), error.what_happened(), error.advice());
      }
    }
    result.add(std::move(edit));
  }
  return result;
}

}  // namespace attend
