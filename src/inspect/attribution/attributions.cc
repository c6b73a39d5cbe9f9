#include "inspect/attribution/attributions.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "attend/attribution.h"
#include "attend/error.h"
#include "core/names.h"

namespace attend {
namespace {

constexpr std::pair<AttributionMethod, const char*> method_names[] = {
    {AttributionMethod::integrated_gradients, "integrated-gradients"},
    {AttributionMethod::gradient_input, "gradient-input"},
    {AttributionMethod::rollout, "rollout"},
    {AttributionMethod::value_zeroing, "value-zeroing"},
};

constexpr std::int64_t first_steps = 32, most_steps = 512;
constexpr double enough = 0.01;

struct Groups {
  const std::vector<TokenGroup>& source;
  const std::vector<TokenGroup>& target;
};

// The same positions with nothing to read in them: control tokens, which a text cannot do without, stay.
std::vector<std::int32_t> emptied(const std::vector<std::int32_t>& ids, const Tokenizer* tokenizer,
                                  std::int32_t token) {
  std::vector<std::int32_t> out = ids;
  for (std::int32_t& id : out)
    if (!tokenizer || !tokenizer->is_control(id)) id = token;
  return out;
}

struct Baseline {
  std::string name;
  std::optional<ModelInput> input;  // none: embeddings of 0
};

Baseline baseline_of(const ModelFolder& folder, const ModelInput& input, const std::string& wanted) {
  if (wanted == "zero") return {"zero", std::nullopt};
  ModelInput empty = input;
  std::string name;
  for (const auto& [ids, tokenizer] :
       {std::pair{&empty.source, folder.source.get()}, std::pair{&empty.ids, folder.target.get()}}) {
    if (ids->empty()) continue;
    if (!tokenizer) return {"zero", std::nullopt};
    const SpecialTokens& specials = tokenizer->specials();
    const std::int32_t token = !wanted.empty()     ? token_named(*tokenizer, wanted)
                               : specials.pad >= 0 ? specials.pad
                                                   : specials.unknown;
    if (token < 0) return {"zero", std::nullopt};
    *ids = emptied(*ids, tokenizer, token);
    const std::string one = tokenizer->readable(token);
    if (name.empty()) name = one;
    else if (name != one) name += " and " + one;
  }
  return {name, std::move(empty)};
}

std::vector<float> summed(const std::vector<double>& scores, const std::vector<TokenGroup>& groups) {
  std::vector<float> sums;
  for (const TokenGroup& group : groups) {
    double sum = 0;
    for (std::int64_t token = group.begin; token < group.end; ++token) sum += scores[static_cast<std::size_t>(token)];
    sums.push_back(static_cast<float>(sum));
  }
  return sums;
}

// Tokens of one group add what they add together. Models of classes have no decoder in their way: its text stays empty.
std::vector<std::vector<float>> values_of(const TokenScores& scores, const Groups& groups) {
  std::vector<std::vector<float>> values;
  if (!groups.source.empty())
    values.push_back(scores.source.empty() ? std::vector<float>{} : summed(scores.source, groups.source));
  if (!groups.target.empty())
    values.push_back(scores.ids.empty() ? std::vector<float>{} : summed(scores.ids, groups.target));
  return values;
}

const Target& target_for(AttributionMethod method, const InspectOptions& options) {
  if (!options.target)
    throw Error(ErrorKind::argument, name_of(method), "explains a target, and none is chosen",
                "choose one: a token (--why TOKEN) or the whole text (--sequence)");
  return *options.target;
}

std::string unit_of(const Target& target) { return target.kind == Target::Kind::log_probability ? "nats" : "logit"; }

TokenAttribution integrated(const ModelFolder& folder, const Subject& subject, const InspectOptions& options,
                            const Groups& groups) {
  const Target& target = target_for(AttributionMethod::integrated_gradients, options);
  const Baseline baseline = baseline_of(folder, subject.input, options.attribution.baseline);
  IntegratedGradientsOptions path;
  path.baseline = baseline.input;
  path.steps = options.attribution.steps > 0 ? options.attribution.steps : first_steps;
  IntegratedGradients result = integrated_gradients(folder.model, subject.input, target, path);
  const auto rough = [&] {
    return std::abs(result.completeness_error) > enough * std::abs(result.target - result.baseline);
  };
  while (options.attribution.steps == 0 && path.steps < most_steps && rough()) {
    path.steps *= 2;
    result = integrated_gradients(folder.model, subject.input, target, path);
  }
  TokenAttribution shown;
  shown.name = "integrated_gradients";
  shown.unit = unit_of(target);
  shown.values = values_of(result.scores, groups);
  shown.target = result.target;
  shown.baseline = result.baseline;
  shown.completeness_error = result.completeness_error;
  shown.baseline_name = baseline.name;
  shown.steps = path.steps;
  return shown;
}

TokenAttribution gradient_input(const ModelFolder& folder, const Subject& subject, const InspectOptions& options,
                                const Groups& groups) {
  const Target& target = target_for(AttributionMethod::gradient_input, options);
  const InputGradients result = input_gradients(folder.model, subject.input, target);
  TokenAttribution shown;
  shown.name = "gradient_input";
  shown.unit = unit_of(target);
  shown.values = values_of(result.product, groups);
  shown.target = result.target;
  return shown;
}

StackKind stack_of(const ShownAttention& attention) {
  return attention.name == "encoder" ? StackKind::encoder : StackKind::decoder;
}

// An attention between the same texts, of all heads together, whose one measure has yet no values.
ShownAttention beside(const ShownAttention& attention, const char* name, const char* measure) {
  ShownAttention shown;
  shown.name = join(attention.name, ' ', name);
  shown.query_text = attention.query_text;
  shown.key_text = attention.key_text;
  shown.layers = attention.layers;
  shown.heads = {mean_of_all};
  shown.masked = attention.masked;
  shown.measures.push_back({measure, "", MeasureKind::share, {}});
  return shown;
}

void append(ShownAttention& attention, const Tensor& values, const std::vector<TokenGroup>& queries,
            const std::vector<TokenGroup>& keys) {
  const std::vector<float> merged = merge(values.to_vector(), queries, keys, Merge::weights);
  std::vector<float>& all = attention.measures.front().values;
  all.insert(all.end(), merged.begin(), merged.end());
}

void check_size(std::span<const ShownAttention> attentions, const Subject& subject, std::int64_t most_bytes) {
  double bytes = 0;
  for (const ShownAttention& attention : attentions) {
    const std::size_t queries =
        stack_of(attention) == StackKind::encoder ? subject.source.size() : subject.target.size();
    const std::size_t keys = attention.name == "decoder" ? subject.target.size() : subject.source.size();
    bytes += static_cast<double>(queries) * static_cast<double>(keys) * static_cast<double>(attention.layers.size()) *
             sizeof(float);
  }
  if (bytes > static_cast<double>(most_bytes))
    throw Error(ErrorKind::argument, "attributions",
                join("the matrices would take ", static_cast<std::int64_t>(bytes / 1e6), " MB"),
                "choose fewer layers or attentions, or a shorter text");
}

}  // namespace

const char* name_of(AttributionMethod method) { return method_names[static_cast<std::size_t>(method)].second; }

AttributionMethod attribution_method_named(std::string_view name) {
  std::vector<std::string> known;
  for (const auto& [method, text] : method_names) {
    if (name == text) return method;
    known.push_back(text);
  }
  const std::string near = nearest_name(std::string(name.substr(0, 40)), known);
  std::string all;
  for (const std::string& one : known) all += (all.empty() ? "" : ", ") + one;
  throw Error(ErrorKind::argument, "attribution", join("there is no method \"", name.substr(0, 40), "\""),
              near.empty() ? "use one of " + all : join("did you mean ", near, "? There are ", all));
}

void add_attributions(const ModelFolder& folder, const Subject& subject, const InspectOptions& options,
                      const std::vector<TokenGroup>& source, const std::vector<TokenGroup>& target, Inspection& shown) {
  const Groups groups{source, target};
  const std::vector<ShownAttention> attentions = [&] {
    std::vector<ShownAttention> places;
    for (const ShownAttention& one : shown.attentions) {
      ShownAttention place;
      place.name = one.name;
      place.query_text = one.query_text;
      place.key_text = one.key_text;
      place.layers = one.layers;
      place.masked = one.masked;
      places.push_back(std::move(place));
    }
    return places;
  }();
  const auto queries_of = [&](const ShownAttention& one) -> const std::vector<TokenGroup>& {
    return stack_of(one) == StackKind::encoder ? source : target;
  };
  const auto keys_of = [&](const ShownAttention& one) -> const std::vector<TokenGroup>& {
    return one.name == "decoder" ? target : source;
  };

  std::vector<AttributionMethod> done;
  for (const AttributionMethod method : options.attribution.methods) {
    if (std::find(done.begin(), done.end(), method) != done.end()) continue;
    done.push_back(method);
    switch (method) {
      case AttributionMethod::integrated_gradients:
        shown.attributions.push_back(integrated(folder, subject, options, groups));
        break;
      case AttributionMethod::gradient_input:
        shown.attributions.push_back(gradient_input(folder, subject, options, groups));
        break;
      case AttributionMethod::rollout: {
        check_size(attentions, subject, options.most_bytes);
        const RolloutLayers layers = rollout_by_layer(folder.model, subject.input, options.attribution.residual);
        for (const ShownAttention& one : attentions) {
          ShownAttention rolled = beside(one, "rollout", "rollout");
          // A product of windows reaches beyond each of them.
          if (folder.model.config().window > 0) rolled.masked.clear();
          const std::vector<Tensor>& all = one.name == "encoder"   ? layers.encoder
                                           : one.name == "decoder" ? layers.decoder
                                                                   : layers.cross;
          for (const int layer : one.layers)
            append(rolled, all[static_cast<std::size_t>(layer)], queries_of(one), keys_of(one));
          shown.attentions.push_back(std::move(rolled));
        }
        break;
      }
      case AttributionMethod::value_zeroing: {
        check_size(attentions, subject, options.most_bytes);
        for (const ShownAttention& one : attentions) {
          ShownAttention zeroed = beside(one, "value zeroing", "value_zeroing");
          const Part part = one.name == "cross" ? Part::cross : Part::self;
          std::vector<HeadPlace> places;
          for (const int layer : one.layers) places.push_back({stack_of(one), layer, part, -1});
          for (const ZeroedValues& values : value_zeroing(folder.model, subject.input, std::move(places)))
            append(zeroed, values.scores, queries_of(one), keys_of(one));
          shown.attentions.push_back(std::move(zeroed));
        }
        break;
      }
    }
  }
}

}  // namespace attend
