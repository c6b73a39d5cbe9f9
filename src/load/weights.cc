#include "load/weights.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <set>

#include "attend/checkpoint.h"
#include "attend/error.h"
#include "attend/names.h"
#include "model/json_fields.h"
#include "model/parts.h"

namespace attend {
namespace {

struct Deciding {
  const char* parameter;  // a * stands for anything
  const char* exists;     // fields that decide whether it is there; ? is the stack
  const char* axes[2];
};
// The first that fits counts.
constexpr std::array<Deciding, 22> deciding{{
    {"embedding.weight", "shared_embeddings", {"decoder.vocabulary", "width"}},
    {"*.embedding.weight", "shared_embeddings", {"?.vocabulary", "width"}},
    {"*.input.*", "?.input_width", {"width", "?.input_width"}},
    {"*.class_token", "?.class_token", {"", "width"}},
    {"*.position.weight", "positions", {"max_positions", "width"}},
    {"*.relative_bias", "positions", {"relative_buckets", "heads"}},
    {"*.embedding_norm.gain", "?.embedding_norm", {"width", ""}},
    {"*.norm.bias", "norm_bias", {"width", ""}},
    {"*.embedding_norm.bias", "norm_bias", {"width", ""}},
    {"*.self.norm.gain", "?.layers", {"width", ""}},
    {"*.cross.norm.gain", "?.layers", {"width", ""}},
    {"*.feed_forward.norm.gain", "?.layers", {"width", ""}},
    {"*.norm.gain", "?.final_norm", {"width", ""}},
    {"*.query_key_value.bias", "query_key_value_bias", {"heads,key_heads,head_dim", ""}},
    {"*.query.bias", "query_key_value_bias", {"heads,head_dim", ""}},
    {"*.key_value.bias", "query_key_value_bias", {"heads,key_heads,head_dim", ""}},
    {"*.feed_forward.gate.weight", "gated", {"inner_width", "width"}},
    {"*.feed_forward.output.weight", "?.layers", {"width", "inner_width"}},
    {"*.feed_forward.output.bias", "feed_forward_bias", {"width", ""}},
    {"*.feed_forward.*.bias", "feed_forward_bias", {"inner_width", ""}},
    {"logits.*", "tied_logits,logits_bias", {"output_vocabulary", "width"}},
    {"classifier.*", "classes", {"classes", "width"}},
}};
constexpr std::array<Deciding, 6> deciding_matrices{{
    {"*.query_key_value.weight", "?.layers", {"heads,key_heads,head_dim", "width"}},
    {"*.query.weight", "?.layers", {"heads,head_dim", "width"}},
    {"*.key_value.weight", "?.layers", {"heads,key_heads,head_dim", "width"}},
    {"*.output.weight", "?.layers", {"width", "heads,head_dim"}},
    {"*.output.bias", "attention_output_bias", {"width", ""}},
    {"*.inner.weight", "?.layers", {"inner_width", "width"}},
}};

bool fits(std::string_view pattern, std::string_view name) {
  const std::size_t star = pattern.find('*');
  if (star == std::string_view::npos) return pattern == name;
  if (name.substr(0, star) != pattern.substr(0, star)) return false;
  const std::string_view rest = pattern.substr(star + 1);
  for (std::size_t begin = star; begin <= name.size(); ++begin)
    if (fits(rest, name.substr(begin))) return true;
  return false;
}

std::string field_value(const TransformerConfig& config, const std::string& field) {
  const auto stack = [&](const std::optional<StackConfig>& each, const std::string& name) {
    if (!each) return std::string("absent");
    if (name == "vocabulary") return join(each->vocabulary);
    if (name == "input_width") return join(each->input_width);
    if (name == "layers") return join(each->layers);
    const bool yes = name == "class_token"      ? each->class_token
                     : name == "embedding_norm" ? each->embedding_norm
                                                : each->final_norm;
    return std::string(yes ? "true" : "false");
  };
  if (field.starts_with("encoder.")) return stack(config.encoder, field.substr(8));
  if (field.starts_with("decoder.")) return stack(config.decoder, field.substr(8));
  // Everything else is read from the text of config.json, where all fields are.
  const std::string text = to_json(config), key = "\n  \"" + field + "\": ";
  const std::size_t begin = text.find(key);
  if (begin == std::string::npos) return "unknown";
  const std::size_t value = begin + key.size();
  return text.substr(value, text.find_first_of(",\n", value) - value);
}

bool same(const std::vector<std::int64_t>& sizes, const Shape& shape) {
  if (static_cast<int>(sizes.size()) != shape.axes()) return false;
  for (int axis = 0; axis < shape.axes(); ++axis)
    if (sizes[static_cast<std::size_t>(axis)] != shape[axis]) return false;
  return true;
}

constexpr const char* two_models = "config and weights are of two different models; take both from one place";

}  // namespace

std::string deciding_field(const TransformerConfig& config, const std::string& parameter, int axis) {
  const Deciding* found = nullptr;
  for (const Deciding& each : deciding)
    if (!found && fits(each.parameter, parameter)) found = &each;
  for (const Deciding& each : deciding_matrices)
    if (!found && fits(each.parameter, parameter)) found = &each;
  std::string fields = !found ? "?.layers" : axis < 0 ? found->exists : axis < 2 ? found->axes[axis] : "";

  // Whole blocks that are missing or left over come from the number of layers, whatever is in them.
  const std::string stack = parameter.substr(0, parameter.find('.'));
  const bool known_stack = stack == "encoder" || stack == "decoder";
  const auto& of_stack = stack == "encoder" ? config.encoder : config.decoder;
  if (axis < 0 && known_stack) {
    const std::string rest = parameter.substr(stack.size() + 1);
    if (!of_stack) return join("there is no ", stack);
    if (!rest.empty() && rest[0] >= '0' && rest[0] <= '9' &&
        std::strtoll(rest.c_str(), nullptr, 10) >= of_stack->layers)
      fields = "?.layers";
    if (rest.find(".cross.") != std::string::npos && !config.encoder) return "there is no encoder";
  }
  if (!known_stack && fields.find('?') != std::string::npos) return {};
  std::string text;
  for (std::size_t begin = 0; begin < fields.size();) {
    const std::size_t end = std::min(fields.find(',', begin), fields.size());
    std::string field = fields.substr(begin, end - begin);
    if (field[0] == '?') field = stack + field.substr(1);
    if (field == "output_vocabulary") field = config.decoder ? "decoder.vocabulary" : "encoder.vocabulary";
    text += join(text.empty() ? "" : ", ", field, " is ", field_value(config, field));
    begin = end + 1;
  }
  return text;
}

void check_amount(const TransformerConfig& config, const SafetensorsFile& file, const std::string& config_source) {
  double held = 0;
  for (const SafetensorsEntry& entry : file.entries()) held += static_cast<double>(entry.elements);
  const double needed = count_parameters(config);
  // A small excess is left to the comparison name by name, which says more: this one keeps a config from filling memory.
  constexpr double small_excess = 1 << 20;
  if (needed > 2 * held + small_excess)
    throw Error(ErrorKind::config, file.source(),
                join("holds ", static_cast<std::int64_t>(held), " numbers, ", config_source, " describes a model of ",
                     static_cast<std::int64_t>(needed)),
                two_models);
}

void read_weights(Model& model, const SafetensorsFile& file, const std::string& config_source) {
  const TransformerConfig& config = model.config();
  std::set<std::string> known;
  std::vector<std::string> names;
  // First all names and shapes: a missing tensor says more than a left-over one, and neither needs numbers to be read.
  for (const Parameter& parameter : model.parameters()) {
    known.insert(parameter.name);
    if (!file.has(parameter.name)) {
      const std::string why = deciding_field(config, parameter.name, -1);
      throw Error(ErrorKind::config, file.source(),
                  join("has no tensor ", in_quotes(parameter.name), ", which ", config_source, " asks for",
                       why.empty() ? "" : join(" (", why, ")")),
                  two_models);
    }
    const SafetensorsEntry& entry = file.entry(parameter.name);
    if (same(entry.shape, parameter.value.shape())) continue;
    std::string why;
    for (int axis = 0; axis < parameter.value.shape().axes() &&
                       static_cast<int>(entry.shape.size()) == parameter.value.shape().axes();
         ++axis)
      if (entry.shape[static_cast<std::size_t>(axis)] != parameter.value.shape()[axis]) {
        const std::string field = deciding_field(config, parameter.name, axis);
        if (!field.empty()) why += (why.empty() ? "" : ", ") + field;
      }
    throw Error(ErrorKind::config, file.source(),
                join("tensor ", in_quotes(parameter.name), " has shape ", shape_text(entry.shape), ", ", config_source,
                     " asks for ", parameter.value.shape(), why.empty() ? "" : join(" (", why, ")")),
                two_models);
  }
  for (const SafetensorsEntry& entry : file.entries()) {
    if (known.contains(entry.name)) continue;
    const std::string why = deciding_field(config, entry.name, -1);
    throw Error(ErrorKind::config, file.source(),
                join("holds tensor ", in_quotes(entry.name), " ", shape_text(entry.shape), ", for which ",
                     config_source, " has no place", why.empty() ? "" : join(" (", why, ")")),
                two_models);
  }
  for (Parameter& parameter : model.parameters()) {
    file.read(file.entry(parameter.name),
              {parameter.value.data(), static_cast<std::size_t>(parameter.value.elements())});
    require_finite(file.source(), parameter.name, parameter.value);
    parameter.changed();
  }
}

void ParameterMean::add(const Model& model) {
  const std::vector<Parameter>& parameters = model.parameters();
  if (count_ == 0)
    for (const Parameter& parameter : parameters)
      sums_.emplace_back(static_cast<std::size_t>(parameter.value.elements()), 0.0);
  for (std::size_t i = 0; i < parameters.size(); ++i)
    for (std::size_t j = 0; j < sums_[i].size(); ++j) sums_[i][j] += parameters[i].value.data()[j];
  ++count_;
}

void ParameterMean::write_into(Model& model) const {
  for (std::size_t i = 0; i < sums_.size(); ++i) {
    Parameter& parameter = model.parameters()[i];
    for (std::size_t j = 0; j < sums_[i].size(); ++j)
      parameter.value.data()[j] = static_cast<float>(sums_[i][j] / static_cast<double>(count_));
    parameter.changed();
  }
}

Model average_weights(std::span<const std::filesystem::path> folders) {
  if (folders.empty()) throw Error(ErrorKind::argument, "average_weights", "no folders were given");
  Model model = load_model(folders[0]);
  ParameterMean mean;
  mean.add(model);
  for (const auto& folder : folders.subspan(1)) {
    const Model other = load_model(folder);
    if (other.config() != model.config())
      throw Error(ErrorKind::config, (folder / "config.json").string(),
                  join("differs from ", (folders[0] / "config.json").string()),
                  "only checkpoints of one model can be averaged");
    mean.add(other);
  }
  mean.write_into(model);
  return model;
}

}  // namespace attend
