#include <memory>
#include <nlohmann/json.hpp>

#include "attend/checkpoint.h"
#include "attend/recipe.h"
#include "commands.h"
#include "input_output.h"
#include "terminal.h"

namespace attend::cli {
namespace {

struct Options {
  std::string model = "tatoeba-zh-en";
  bool sites = false, parameters = false, recipe_keys = false;
};

std::string kind_of(const TransformerConfig& config) {
  if (config.encoder && config.decoder) return "encoder-decoder";
  return config.encoder ? "encoder" : "decoder";
}

void run(const Options& options, const Globals& globals) {
  Output out;
  if (options.recipe_keys) {
    if (globals.json)
      for (const RecipeKeyText& key : list_recipe_keys())
        out.json({{"key", key.key},
                  {"value", key.value},
                  {"default", key.standard.empty() ? Json(nullptr) : Json(key.standard)},
                  {"tasks", key.tasks},
                  {"meaning", key.meaning}});
    else out.text(describe_recipe_keys());
    out.flush();
    return;
  }
  const std::filesystem::path path = find_model(options.model);
  const ModelFolder folder = load_model_folder(path);
  const TransformerConfig& config = folder.model.config();
  if (globals.json) {
    Json result{{"folder", path.string()},
                {"fingerprint", fingerprint(folder.model)},
                {"kind", kind_of(config)},
                {"parameters", folder.model.parameter_count()},
                {"config", Json::parse(to_json(config))}};
    Json sites = Json::array(), parameters = Json::array();
    for (const Site& site : folder.model.sites()) sites.push_back(name_of(site));
    for (const Parameter& parameter : folder.model.parameters()) {
      Json shape = Json::array();
      for (int axis = 0; axis < parameter.value.shape().axes(); ++axis) shape.push_back(parameter.value.shape()[axis]);
      parameters.push_back({{"name", parameter.name}, {"shape", std::move(shape)}});
    }
    if (folder.source)
      result["source_tokenizer"] = {{"kind", name_of(folder.source->kind())},
                                    {"size", folder.source->size()},
                                    {"fingerprint", folder.source->fingerprint()}};
    if (folder.target)
      result["target_tokenizer"] = {{"kind", name_of(folder.target->kind())},
                                    {"size", folder.target->size()},
                                    {"fingerprint", folder.target->fingerprint()}};
    result["sites"] = std::move(sites);
    result["parameter_list"] = std::move(parameters);
    out.json(result);
    out.flush();
    return;
  }
  const auto row = [&](const char* name, const std::string& value) { out.line(padded(name, 14) + value); };
  row("folder", path.string());
  row("fingerprint", fingerprint(folder.model));
  row("kind", kind_of(config));
  row("parameters", short_number(static_cast<double>(folder.model.parameter_count())));
  const auto stack = [&](const char* name, const std::optional<StackConfig>& one) {
    if (one)
      row(name,
          join(one->layers, " layers, ",
               one->vocabulary ? join("vocabulary ", one->vocabulary) : join("features of width ", one->input_width)));
  };
  stack("encoder", config.encoder);
  stack("decoder", config.decoder);
  row("width", join(config.width, ", ", config.heads, " heads of ", config.head_width(), ", feed-forward ",
                    config.inner_width, " ", name_of(config.activation)));
  row("positions", join("up to ", config.max_positions));
  if (folder.source) row("tokenizer", join(name_of(folder.source->kind()), ", ", folder.source->size(), " tokens"));
  else if (folder.target)
    row("tokenizer", join(name_of(folder.target->kind()), ", ", folder.target->size(), " tokens"));
  if (!folder.task.languages.empty()) {
    std::string languages;
    for (const std::string& language : folder.task.languages) languages += (languages.empty() ? "" : ", ") + language;
    row("languages", languages);
  }
  if (options.sites) {
    out.line("\nsites, in the order a run visits them:");
    for (const Site& site : folder.model.sites()) out.line("  " + name_of(site));
  }
  if (options.parameters) {
    out.line("\nparameters:");
    for (const Parameter& parameter : folder.model.parameters())
      out.line("  " + padded(parameter.name, 44) + join(parameter.value.shape()));
  }
  if (!options.sites && !options.parameters)
    out.line("\n--sites lists the places where values can be read or changed, --parameters the weights.");
  out.flush();
}

}  // namespace

void add_describe(Command& program, Globals& globals) {
  Command* command = program.add_command("describe", "What a model is made of; what a recipe may say");
  auto options = std::make_shared<Options>();
  command->add_option("model,--model,-m", options->model, "Model folder, or the name of a model that ships")
      ->show_default();
  command->add_flag("--sites", options->sites, "List the sites");
  command->add_flag("--parameters", options->parameters, "List the parameters");
  command->add_flag("--recipe-keys", options->recipe_keys,
                    "Print every key of a training recipe with its meaning (Markdown; with --json one object a key)");
  command->footer("Examples:\n  attend describe tatoeba-zh-en --sites\n  attend describe --recipe-keys");
  command->callback([options, &globals] { run(*options, globals); });
}

}  // namespace attend::cli
