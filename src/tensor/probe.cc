#include "attend/probe.h"

#include <algorithm>
#include <array>
#include <optional>
#include <string_view>

#include "attend/statistics.h"
#include "core/names.h"

namespace attend {

const char* name_of(StackKind stack) { return stack == StackKind::encoder ? "encoder" : "decoder"; }

const char* name_of(Part part) {
  switch (part) {
    case Part::block:
      return "block";
    case Part::self:
      return "self";
    case Part::cross:
      return "cross";
    case Part::feed_forward:
      return "feed_forward";
  }
  return "unknown";
}

const char* name_of(Point point) {
  switch (point) {
    case Point::embedding_deviation:
      return "embedding_deviation";
    case Point::embedded:
      return "embedded";
    case Point::final_deviation:
      return "final_deviation";
    case Point::final_norm:
      return "final_norm";
    case Point::logits:
      return "logits";
    case Point::input:
      return "input";
    case Point::output:
      return "output";
    case Point::deviation:
      return "deviation";
    case Point::normed:
      return "normed";
    case Point::query:
      return "query";
    case Point::key:
      return "key";
    case Point::value:
      return "value";
    case Point::rotated_query:
      return "rotated_query";
    case Point::rotated_key:
      return "rotated_key";
    case Point::scores:
      return "scores";
    case Point::weights:
      return "weights";
    case Point::head_output:
      return "head_output";
    case Point::projected:
      return "projected";
    case Point::added:
      return "added";
    case Point::inner:
      return "inner";
  }
  return "unknown";
}

namespace {

void add_block(std::vector<Site>& sites, StackKind stack, int layer, const StackSites& has) {
  const auto add = [&](Part part, std::initializer_list<Point> points) {
    for (Point point : points) sites.push_back({stack, layer, part, point});
  };
  const auto enter = [&](Part part) {
    if (!has.post_norm) add(part, {Point::deviation});
    add(part, {Point::normed});
  };
  const auto leave = [&](Part part) {
    add(part, {Point::projected});
    if (has.post_norm) add(part, {Point::deviation});
    add(part, {Point::added});
  };
  const auto add_attention = [&](Part part, bool rotates) {
    enter(part);
    add(part, {Point::query, Point::key, Point::value});
    if (rotates) add(part, {Point::rotated_query, Point::rotated_key});
    add(part, {Point::scores, Point::weights, Point::head_output});
    leave(part);
  };
  add(Part::block, {Point::input});
  add_attention(Part::self, has.rotary);
  if (has.cross) add_attention(Part::cross, false);
  enter(Part::feed_forward);
  add(Part::feed_forward, {Point::inner});
  leave(Part::feed_forward);
  add(Part::block, {Point::output});
}

void add_stack(std::vector<Site>& sites, StackKind stack, int first_layer, int end_layer, const StackSites& has) {
  if (has.embedding_norm) sites.push_back({stack, -1, Part::block, Point::embedding_deviation});
  sites.push_back({stack, -1, Part::block, Point::embedded});
  for (int layer = first_layer; layer < end_layer; ++layer) add_block(sites, stack, layer, has);
  if (has.final_norm) sites.push_back({stack, -1, Part::block, Point::final_deviation});
  sites.push_back({stack, -1, Part::block, Point::final_norm});
  sites.push_back({stack, -1, Part::block, Point::logits});
}

// How far a name is from a known one. A wholly different word counts no more than four wrong letters, so that
// "decoder.7.ffn.inner" is nearer to "decoder.7.feed_forward.inner" than to some shorter name.
std::size_t name_distance(std::string_view name, std::string_view known) {
  const std::vector<std::string_view> words = name_words(name), known_words = name_words(known);
  const std::size_t letters = edit_distance(name, known);
  if (words.size() != known_words.size()) return letters;
  std::size_t by_word = 0;
  for (std::size_t i = 0; i < words.size(); ++i)
    by_word += std::min<std::size_t>(4, edit_distance(words[i], known_words[i]));
  return std::min(letters, by_word);
}

// The number between two dots, without sign and leading zeros.
std::optional<int> layer_in(std::string_view name) {
  for (std::size_t begin = name.find('.'); begin != std::string_view::npos; begin = name.find('.', begin + 1)) {
    const std::size_t end = std::min(name.find('.', begin + 1), name.size());
    const std::string_view digits = name.substr(begin + 1, end - begin - 1);
    if (digits.empty() || digits.size() > 6 || (digits.size() > 1 && digits[0] == '0')) continue;
    if (digits.find_first_not_of("0123456789") == std::string_view::npos) return std::stoi(std::string(digits));
  }
  return std::nullopt;
}

bool is_of_one_item(const Site& site) { return site.point == Point::scores || site.point == Point::weights; }

}  // namespace

std::string name_of(const Site& site) {
  std::string name = name_of(site.stack);
  if (site.layer >= 0) name += join('.', site.layer);
  if (site.part != Part::block) name += join('.', name_of(site.part));
  return name + '.' + name_of(site.point);
}

Site parse_site(const std::string& name) {
  // Every site of one block at the layer named; the name must be one of theirs.
  const int layer = layer_in(name).value_or(0);
  std::vector<Site> sites;
  for (StackKind stack : {StackKind::encoder, StackKind::decoder})
    add_stack(sites, stack, layer, layer + 1, StackSites{.cross = true, .rotary = true, .embedding_norm = true});
  std::vector<std::pair<std::size_t, std::string>> near;
  for (const Site& site : sites) {
    std::string known = name_of(site);
    if (known == name) return site;
    near.emplace_back(name_distance(std::string_view(name).substr(0, 100), known), std::move(known));
  }
  std::partial_sort(near.begin(), near.begin() + 3, near.end());
  throw Error(ErrorKind::argument, "parse_site", join("there is no site '", shortened(name, 100), "'"),
              join("the nearest are ", near[0].second, ", ", near[1].second, " and ", near[2].second));
}

std::vector<Site> sites_of(StackKind stack, int layers, const StackSites& has) {
  std::vector<Site> sites;
  add_stack(sites, stack, 0, layers, has);
  return sites;
}

std::optional<StatisticsRequest> Probe::statistics(StackKind, int, Part) const { return std::nullopt; }

// ---- Recorder -------------------------------------------------------------------------------------------------------

bool Recorder::wants(const Site& site) const { return std::find(sites_.begin(), sites_.end(), site) != sites_.end(); }

void Recorder::visit(const Visit& visit, Tensor& value) { values_[{visit.site, visit.item}] = value.clone(); }

const Tensor& Recorder::value(const Site& site, std::int64_t item) const {
  const auto found = values_.find({site, item});
  if (found != values_.end()) return found->second;
  const auto text = [](const Site& at, std::int64_t of_item) {
    return of_item >= 0 ? join(name_of(at), " of item ", of_item) : name_of(at);
  };
  constexpr std::size_t most_named = 8;
  std::string recorded;
  std::size_t named = 0;
  for (const auto& [key, unused] : values_) {
    if (named++ == most_named) break;
    recorded += join(recorded.empty() ? "" : ", ", text(key.first, key.second));
  }
  if (values_.size() > most_named) recorded += join(" and ", values_.size() - most_named, " more");
  throw Error(ErrorKind::argument, "Recorder::value", join(text(site, item), " was not recorded"),
              join(is_of_one_item(site) && item < 0 ? "name the item; " : "",
                   "recorded: ", recorded.empty() ? "nothing" : recorded));
}

// ---- HeadMask, ScoreEditor ------------------------------------------------------------------------------------------

std::vector<float> HeadMask::head_factors(StackKind stack, int layer, Part part) const {
  const auto found = factors_.find({stack, layer, part});
  return found == factors_.end() ? std::vector<float>{} : found->second;
}

std::vector<ScoreEdit> ScoreEditor::score_edits(StackKind stack, int layer, Part part) const {
  const auto found = edits_.find({stack, layer, part});
  return found == edits_.end() ? std::vector<ScoreEdit>{} : found->second;
}

// ---- ProbeList ------------------------------------------------------------------------------------------------------

bool ProbeList::wants(const Site& site) const {
  return std::any_of(probes_.begin(), probes_.end(), [&](const Probe* probe) { return probe->wants(site); });
}

std::uint64_t ProbeList::heads(const Site& site) const {
  std::uint64_t wanted = 0;
  for (const Probe* probe : probes_)
    if (probe->wants(site)) wanted |= probe->heads(site);
  return wanted;
}

void ProbeList::visit(const Visit& visit, Tensor& value) {
  for (Probe* probe : probes_)
    if (probe->wants(visit.site)) probe->visit(visit, value);
}

std::vector<ScoreEdit> ProbeList::score_edits(StackKind stack, int layer, Part part) const {
  std::vector<ScoreEdit> all;
  for (const Probe* probe : probes_) {
    const std::vector<ScoreEdit> edits = probe->score_edits(stack, layer, part);
    all.insert(all.end(), edits.begin(), edits.end());
  }
  return all;
}

void ProbeList::scores_edited(StackKind stack, int layer, Part part, std::span<const std::int64_t> counts) {
  for (Probe* probe : probes_) {
    const std::size_t own = probe->score_edits(stack, layer, part).size();
    if (own > 0) probe->scores_edited(stack, layer, part, counts.first(own));
    counts = counts.subspan(own);
  }
}

std::vector<float> ProbeList::head_factors(StackKind stack, int layer, Part part) const {
  std::vector<float> all;
  for (const Probe* probe : probes_) {
    const std::vector<float> factors = probe->head_factors(stack, layer, part);
    if (factors.empty()) continue;
    if (all.empty()) {
      all = factors;
      continue;
    }
    if (factors.size() != all.size())
      throw Error(
          ErrorKind::argument, "ProbeList::head_factors",
          join(name_of(stack), '.', layer, '.', name_of(part), ": ", all.size(), " and ", factors.size(), " factors"),
          "give one factor a head");
    for (std::size_t head = 0; head < all.size(); ++head) all[head] *= factors[head];
  }
  return all;
}

std::optional<StatisticsRequest> ProbeList::statistics(StackKind stack, int layer, Part part) const {
  std::vector<StatisticsRequest> requests;
  for (const Probe* probe : probes_)
    if (std::optional<StatisticsRequest> wanted = probe->statistics(stack, layer, part))
      requests.push_back(std::move(*wanted));
  if (requests.empty()) return std::nullopt;
  return united(requests);
}

void ProbeList::visit_statistics(const StatisticsVisit& visit) {
  const Site& site = visit.visit.site;
  std::vector<Probe*> asking;
  std::vector<StatisticsRequest> requests;
  for (Probe* probe : probes_)
    if (std::optional<StatisticsRequest> wanted = probe->statistics(site.stack, site.layer, site.part)) {
      asking.push_back(probe);
      requests.push_back(std::move(*wanted));
    }
  for (std::size_t i = 0; i < asking.size(); ++i)
    asking[i]->visit_statistics({visit.visit, part_of(visit.result, requests, i), visit.record});
}

}  // namespace attend
