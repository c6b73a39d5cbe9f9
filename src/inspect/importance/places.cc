// Names of heads and edges, and which of them a model has.
#include <algorithm>
#include <utility>

#include "attend/error.h"
#include "attend/importance.h"
#include "core/names.h"
#include "inspect/importance/places.h"

namespace attend {
namespace {

std::vector<HeadPlace> parts_of(const Model& model, bool attention_only) {
  std::vector<HeadPlace> places;
  for (const AttentionPlace& place : attentions_of(model.config())) {
    places.push_back({place.stack, place.layer, place.part, -1});
    const bool last = place.part == Part::cross || place.stack == StackKind::encoder || !model.config().encoder;
    if (attention_only || !last) continue;
    places.push_back({place.stack, place.layer, Part::feed_forward, -1});
    places.push_back({place.stack, place.layer, Part::block, -1});
  }
  return places;
}

std::vector<std::string> names_of(const Model& model, bool attention_only) {
  std::vector<std::string> names;
  for (const HeadPlace& place : parts_of(model, attention_only)) names.push_back(name_of(place));
  for (const HeadPlace& place : heads_of(model)) names.push_back(name_of(place));
  return names;
}

}  // namespace

std::string name_of(const HeadPlace& place) {
  const Point any = place.part == Part::block ? Point::input : Point::normed;
  const std::string site = name_of(Site{place.stack, place.layer, place.part, any});
  const std::string part = site.substr(0, site.rfind('.'));
  return place.head < 0 ? part : join(part, '.', place.head);
}

std::string name_of(const AttentionPlace& place) {
  return name_of(HeadPlace{place.stack, place.layer, place.part, -1});
}

std::vector<AttentionPlace> attentions_of(const TransformerConfig& config) {
  std::vector<AttentionPlace> places;
  for (const StackKind stack : {StackKind::encoder, StackKind::decoder}) {
    const std::optional<StackConfig>& has = stack == StackKind::encoder ? config.encoder : config.decoder;
    for (int layer = 0; has && layer < static_cast<int>(has->layers); ++layer) {
      places.push_back({stack, layer, Part::self});
      if (stack == StackKind::decoder && config.encoder) places.push_back({stack, layer, Part::cross});
    }
  }
  return places;
}

std::string name_of(const Edge& edge) { return join(name_of(edge.head), " (", edge.query, ", ", edge.key, ")"); }

std::vector<HeadPlace> heads_of(const Model& model) {
  std::vector<HeadPlace> heads;
  for (HeadPlace place : parts_of(model, true))
    for (place.head = 0; place.head < static_cast<int>(model.config().heads); ++place.head) heads.push_back(place);
  return heads;
}

HeadPlace parse_head(const Model& model, const std::string& name) {
  std::vector<HeadPlace> places = parts_of(model, false);
  for (const HeadPlace& head : heads_of(model)) places.push_back(head);
  for (const HeadPlace& place : places)
    if (name_of(place) == name) return place;
  std::vector<std::string> names;
  for (const HeadPlace& place : places) names.push_back(name_of(place));
  throw Error(ErrorKind::argument, "head", join("the model has no head '", shortened(name, 100), "'"),
              join("the nearest are ", nearest_three(name, names)));
}

void check_place(const Model& model, const HeadPlace& place, bool attention_only, const char* operation) {
  const auto matches = [&](const HeadPlace& known) {
    return known.stack == place.stack && known.layer == place.layer && known.part == place.part;
  };
  const std::vector<HeadPlace> parts = parts_of(model, attention_only);
  const bool attends = place.part == Part::self || place.part == Part::cross;
  const auto heads = static_cast<int>(model.config().heads);
  if (std::any_of(parts.begin(), parts.end(), matches) && place.head >= -1 && place.head < (attends ? heads : 0))
    return;
  const std::string name = name_of(place), near = nearest_name(name, names_of(model, attention_only));
  const auto layers = [](const std::optional<StackConfig>& stack, const char* called) {
    return stack ? join(called, " has layers 0 to ", stack->layers - 1, ", ") : std::string();
  };
  throw Error(ErrorKind::argument, operation, join("the model has no ", name),
              join(layers(model.config().encoder, "the encoder"), layers(model.config().decoder, "the decoder"),
                   "an attention heads 0 to ", heads - 1, near.empty() ? "" : join("; the nearest is ", near)));
}

std::vector<HeadPlace> expand_heads(const Model& model, std::span<const HeadPlace> places, const char* operation) {
  if (places.empty()) return heads_of(model);
  std::vector<HeadPlace> heads;
  for (HeadPlace place : places) {
    check_place(model, place, true, operation);
    if (place.head >= 0) {
      heads.push_back(place);
      continue;
    }
    for (place.head = 0; place.head < static_cast<int>(model.config().heads); ++place.head) heads.push_back(place);
  }
  std::sort(heads.begin(), heads.end());
  heads.erase(std::unique(heads.begin(), heads.end()), heads.end());
  return heads;
}

}  // namespace attend
