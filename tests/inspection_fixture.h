// Inspections for tests of pictures and files.
#pragma once

#include <cmath>
#include <cstdint>
#include <limits>
#include <string>
#include <vector>

#include "attend/pictures.h"

namespace attend {

// Tokens that try to break out of whatever they are written into, or that a format cannot hold.
inline const std::vector<std::string>& hostile_tokens() {
  static const std::vector<std::string> tokens = {"</script>",
                                                  "]]>",
                                                  "<!--",
                                                  "-->",
                                                  "<![CDATA[",
                                                  "&amp;",
                                                  "\"quoted\", twice\r\n",
                                                  "a'b\"c",
                                                  "</text></svg>",
                                                  "<img src=x onerror=alert(1)>",
                                                  "\x01\x1f",
                                                  std::string("nul\0byte", 8),
                                                  "\xff\xc3(",
                                                  "\xef\xbf\xbe",
                                                  "\n",
                                                  " ",
                                                  "",
                                                  "=1+1",
                                                  "机器人",
                                                  "مرحبا",
                                                  "\xe2\x80\xae"
                                                  "reversed",
                                                  "\xf0\x9f\x91\xa9",
                                                  "${x}`\\",
                                                  "\xe2\x80\xa8",
                                                  "Donaudampfschifffahrtsgesellschaftskapitaensmuetze",
                                                  "{{x}}",
                                                  "%s%n",
                                                  "</style>",
                                                  "javascript:alert(1)"};
  return tokens;
}

// Two texts, one attention of layers 0 and 2 and heads 0, 1 and 3: weights whose rows sum to 1, effects of both signs,
// exact effects of every third cell only. `causal` masks keys after the query.
inline Inspection inspection_of(std::size_t queries, std::size_t keys, bool causal = false,
                                const std::vector<std::string>& words = {"the", "cat", "机器", "sat", ".",
                                                                         "unbelievably"}) {
  Inspection inspection;
  inspection.model = "a <model> & more";
  inspection.fingerprint = "0123456789abcdef";
  inspection.target = "cats rather than dogs";
  const auto text = [&](const char* name, std::size_t count, std::size_t offset) {
    ShownText out{name, {}};
    for (std::size_t i = 0; i < count; ++i)
      out.tokens.push_back({words[(i + offset) % words.size()], i + 1 == count, i % 2 == 0});
    return out;
  };
  inspection.texts = {text("source", keys, 0), text("target", queries, 1)};
  ShownAttention attention;
  attention.name = "cross";
  attention.query_text = 1;
  attention.key_text = 0;
  attention.layers = {0, 2};
  attention.heads = {0, 1, 3};
  if (causal)
    for (std::size_t q = 0; q < queries; ++q)
      for (std::size_t k = 0; k < keys; ++k) attention.masked.push_back(k > q);
  Measure weight{"weight", "", MeasureKind::share, {}}, effect{"first_order", "logit", MeasureKind::effect, {}},
      exact{"exact", "logit", MeasureKind::effect, {}};
  RowStatistic entropy{"entropy", "nats", {}};
  HeadMetric mean{"mean entropy", "nats", {}};
  for (int head = 0; head < 6; ++head) {
    double sum_of_entropies = 0;
    for (std::size_t q = 0; q < queries; ++q) {
      std::vector<double> row(keys);
      double sum = 0, row_entropy = 0;
      for (std::size_t k = 0; k < keys; ++k)
        if (!causal || k <= q) sum += row[k] = std::exp(2 * std::sin(static_cast<double>(q * 7 + k * 13) + head));
      for (std::size_t k = 0; k < keys; ++k) {
        const double share = row[k] / sum;
        if (share > 0) row_entropy -= share * std::log(share);
        weight.values.push_back(static_cast<float>(share));
        effect.values.push_back(static_cast<float>(share * std::cos(static_cast<double>(k) + head)));
        exact.values.push_back((q + k) % 3 == 0 ? 1.1f * effect.values.back()
                                                : std::numeric_limits<float>::quiet_NaN());
      }
      entropy.values.push_back(static_cast<float>(row_entropy));
      sum_of_entropies += row_entropy;
    }
    mean.values.push_back(static_cast<float>(sum_of_entropies / static_cast<double>(queries)));
  }
  attention.measures = {weight, effect, exact};
  attention.statistics = {entropy};
  attention.metrics = {mean};
  inspection.attentions = {attention};
  inspection.outcomes = {
      {{"cats", false, true}, 2.5, 1.25}, {{"dogs", false, true}, 1.0, 1.75}, {{"</s>", true, false}, -0.5, -0.5}};
  TokenAttribution integrated{"integrated_gradients", "logit", {}, 3.5, 0.25, 0.125, "<unk>", 64},
      product{"gradient_input", "logit", {}};
  for (std::size_t t = 0; t < 2; ++t) {
    std::vector<float>& values = integrated.values.emplace_back();
    for (std::size_t i = 0; i < inspection.texts[t].tokens.size(); ++i)
      values.push_back(static_cast<float>(std::cos(3.0 * static_cast<double>(i + t))));
    product.values.push_back(t == 0 ? std::vector<float>{} : values);
  }
  inspection.attributions = {integrated, product};
  return inspection;
}

}  // namespace attend
