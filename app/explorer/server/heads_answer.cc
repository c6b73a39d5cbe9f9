#include "explorer/heads_answer.h"

#include <algorithm>
#include <cmath>
#include <span>
#include <string>
#include <utility>

#include "attend/heads.h"
#include "attend/tape.h"
#include "attend/translate.h"
#include "explorer/api_error.h"
#include "explorer/runs.h"

namespace attend::explorer {
namespace {

struct Metric {
  const char* name;
  const char* unit;
  Behaviour behaviour;
};
constexpr Metric metrics[] = {
    {"previous", "share", Behaviour::previous_token}, {"next", "share", Behaviour::next_token},
    {"self", "share", Behaviour::self_token},         {"same", "share", Behaviour::same_token},
    {"induction", "share", Behaviour::induction},     {"first", "share", Behaviour::first_token},
    {"separator", "share", Behaviour::separator},     {"distance", "tokens", Behaviour::distance},
    {"entropy", "nats", Behaviour::entropy},          {"alignment", "share", Behaviour::diagonal},
    {"copying", "share", Behaviour::copying}};

// Everyday sentences and beginnings: enough to tell heads apart, few enough to be read in a second.
constexpr const char* chinese[] = {
    "我喜欢学习中文。",       "他把书放在桌子上了。",   "今天天气很好，我们去公园吧。", "你昨天为什么没有来？",
    "她每天早上喝一杯咖啡。", "这本书比那本书有意思。", "如果明天下雨，我就待在家里。", "我的哥哥是一名医生。",
    "请你说慢一点。",         "他们已经等了两个小时。", "我不知道他住在哪里。",         "孩子们在院子里玩。",
    "这件衣服太贵了。",       "我从来没有去过北京。",   "老师让我们写一篇文章。",       "火车几点到？",
    "他说他会打电话给我。",   "桌子上有三个苹果。"};
constexpr const char* english[] = {"I like learning Chinese.",
                                   "She gave her brother the old map.",
                                   "If it rains tomorrow, we will stay at home.",
                                   "Where did you put my keys?",
                                   "He has been waiting for two hours.",
                                   "The book on the table is mine.",
                                   "My brother is a doctor.",
                                   "Please speak more slowly.",
                                   "They went to the park because the weather was good.",
                                   "I have never been to Beijing.",
                                   "What time does the train arrive?",
                                   "She drinks a cup of coffee every morning.",
                                   "Tom asked Mary to help him.",
                                   "This dress is too expensive.",
                                   "I do not know where he lives.",
                                   "The children are playing in the garden.",
                                   "He said that he would call me.",
                                   "There are three apples on the table."};
constexpr const char* beginnings[] = {
    "明月",    "春风",    "青山",           "白云",     "江上", "故人", "Once upon a time", "The little girl",
    "One day", "He said", "In the morning", "There was"};

std::vector<SubjectTexts> corpus_of(const LoadedModel& model) {
  std::vector<SubjectTexts> inputs;
  const auto add = [&](std::span<const char* const> texts, const char* language) {
    for (const char* text : texts)
      if (auto input = input_of(model, text, language)) inputs.push_back(std::move(*input));
  };
  if (model.config().encoder) {
    add(chinese, "zh");
    add(english, "en");
  } else {
    add(beginnings, "");
  }
  return inputs;
}

// Goes on from a beginning as the model would, so that it reads text of its own kind; the same every time.
void go_on(const LoadedModel& model, std::vector<std::int32_t>& ids, std::int64_t number, const StopSignal& stop) {
  DecodeOptions options;
  options.strategy = Strategy::sample;
  options.temperature = 0.8;
  options.scores = false;
  options.max_length = std::min<std::int64_t>(32, model.config().max_positions - static_cast<std::int64_t>(ids.size()));
  if (options.max_length < 1) return;
  options.cancelled = [&] { return stop.stopped(); };
  const DecodeInput input{{}, ids, {}, number};
  const auto written =
      generate(model.folder.model, std::span(&input, 1), with_tokens_of(*model.folder.target, options));
  const Hypothesis& best = written.front().front();
  ids.insert(ids.end(), best.ids.begin(), best.ids.end() - (best.finished ? 1 : 0));
}

}  // namespace

void write_heads(JsonWriter& out, const LoadedModel& model, std::vector<SubjectTexts> inputs, const Limits& limits,
                 const StopSignal& stop) {
  const NoGradientScope no_gradients;
  const TransformerConfig& config = model.config();
  const bool own = inputs.empty();
  if (own) inputs = corpus_of(model);
  if (inputs.empty())
    throw Error(ErrorKind::argument, "inputs", "are missing, and none of the examples fits this model",
                "give some texts");
  std::vector<HeadItem> items;
  std::int64_t tokens = 0;
  for (std::size_t i = 0; i < inputs.size(); ++i) {
    stop.check();
    Subject subject = read_input(model, std::move(inputs[i]), limits, true, [&] { return stop.stopped(); });
    if (own && config.decoder && !config.encoder) go_on(model, subject.input.ids, static_cast<std::int64_t>(i), stop);
    tokens += static_cast<std::int64_t>(subject.input.source.size() + subject.input.ids.size());
    HeadItem& item = items.emplace_back();
    item.source = std::move(subject.input.source);
    item.target = std::move(subject.input.ids);
  }
  HeadOptions options;
  options.source = model.folder.source.get();
  options.target = model.folder.target.get();
  options.cancelled = [&] { return stop.stopped(); };
  const auto count = static_cast<std::int64_t>(items.size());
  const HeadReport report = find_heads(model.folder.model, items_from(std::move(items)), options);

  // Only what some head of this model can show.
  std::vector<Metric> shown;
  for (const Metric& metric : metrics)
    if (std::any_of(report.heads.begin(), report.heads.end(),
                    [&](const HeadScores& head) { return !std::isnan(head[metric.behaviour]); }))
      shown.push_back(metric);
  out.key("metrics").begin_array();
  for (const Metric& metric : shown) {
    out.begin_object();
    out.field("name", metric.name);
    out.field("unit", metric.unit);
    out.field("meaning", meaning_of(metric.behaviour));
    out.end_object();
  }
  out.end_array();
  out.key("heads").begin_array();
  for (const HeadScores& head : report.heads) {
    out.begin_object();
    out.field("attention", name_of(AttentionPlace{head.head.stack, head.head.layer, head.head.part}));
    out.field("head", head.head.head);
    out.key("values").begin_array();
    for (const Metric& metric : shown) out.value(static_cast<float>(head[metric.behaviour]));
    out.end_array();
    out.end_object();
  }
  out.end_array();
  out.field("inputs", count);
  out.field("tokens", tokens);
}

}  // namespace attend::explorer
