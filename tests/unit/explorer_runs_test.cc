// What is told of a run, against a textbook run in float64, for models of every family: rows, tiles, statistics,
// logits.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "attend/memory.h"
#include "attend/threads.h"
#include "explorer/generation.h"
#include "explorer/runs.h"
#include "reference/random_models.h"
#include "reference/transformer_reference.h"

namespace attend::explorer {
namespace {

using reference::Matrix;
constexpr float minus_infinity = -std::numeric_limits<float>::infinity();

// A run of a random model, and the same by the textbook.
struct Both {
  explicit Both(const reference::NamedConfig& named, std::int64_t most_bytes = 1 << 24) {
    Model model(named.config, 3);
    reference::randomise(model, 11);
    loaded = std::make_shared<LoadedModel>(
        LoadedModel{"test", "", ModelFolder{std::move(model), nullptr, nullptr, Task{}}, "0123456789abcdef", "", 0, 0});
    const TransformerConfig& config = loaded->config();
    if (config.encoder) subject.input.source = reference::random_tokens({9}, config.encoder->vocabulary, 5).ids;
    if (config.decoder) subject.input.ids = reference::random_tokens({7}, config.decoder->vocabulary, 6).ids;
    subject.next.assign(config.decoder ? 7 : 9, 0);
    run = std::make_unique<Run>(loaded, subject, no_edits(), true, most_bytes, StopSignal());

    reference::Transformer textbook(loaded->folder.model);
    textbook.visit = [&](const std::string& site, Matrix& rows, const std::vector<std::int64_t>&) {
      sites[site] = rows;
    };
    textbook.score = [&](const reference::ScorePlace& place, double score) {
      auto& matrix = scores[place.attention + "." + std::to_string(place.head)];
      matrix[{place.query, place.key}] = score;
      return score;
    };
    const auto batch = [](const std::vector<std::int32_t>& ids) {
      TokenBatch tokens;
      tokens.append(ids);
      return tokens;
    };
    Matrix memory, states;
    if (config.encoder) states = memory = textbook.encode(batch(subject.input.source));
    if (config.decoder)
      states = textbook.decode(batch(subject.input.ids), config.encoder ? &memory : nullptr,
                               {0, static_cast<std::int64_t>(memory.size())});
    logits = textbook.logits(states);
    for (const AttentionPlace& place : attentions_of(config))
      for (std::int64_t head = 0; head < config.heads; ++head)
        parts[name_of(place)].push_back(
            textbook.head_part(name_of(place), sites.at(name_of(place) + ".head_output"), head));
  }

  // Scores of a row, minus infinity where the key is hidden, and their softmax.
  std::vector<double> score_row(const AttentionPlace& place, std::int64_t head, std::int64_t query,
                                std::int64_t keys) const {
    std::vector<double> row(static_cast<std::size_t>(keys), minus_infinity);
    const auto& matrix = scores.at(name_of(place) + "." + std::to_string(head));
    for (std::int64_t key = 0; key < keys; ++key)
      if (const auto found = matrix.find({query, key}); found != matrix.end())
        row[static_cast<std::size_t>(key)] = found->second;
    return row;
  }
  std::vector<double> weight_row(const AttentionPlace& place, std::int64_t head, std::int64_t query,
                                 std::int64_t keys) const {
    std::vector<double> row = score_row(place, head, query, keys);
    double sum = 0;
    for (const double score : row) sum += std::exp(score);
    for (double& score : row) score = std::exp(score) / sum;
    return row;
  }

  std::shared_ptr<LoadedModel> loaded;
  Subject subject;
  std::unique_ptr<Run> run;
  std::map<std::string, Matrix> sites;
  std::map<std::string, std::map<std::pair<std::int64_t, std::int64_t>, double>> scores;
  std::map<std::string, std::vector<Matrix>> parts;
  Matrix logits;
};

void expect_numbers(const Json& found, const std::vector<double>& expected, const std::string& what,
                    double tolerance = 1e-4) {
  ASSERT_EQ(found.size(), expected.size()) << what;
  for (std::size_t i = 0; i < expected.size(); ++i) {
    if (std::isinf(expected[i])) {
      EXPECT_TRUE(found[i].is_null()) << what << ' ' << i;
    } else {
      EXPECT_NEAR(found[i].get<double>(), expected[i], tolerance * std::max(1.0, std::abs(expected[i])))
          << what << ' ' << i;
    }
  }
}

std::vector<double> part_of(const std::vector<double>& row, std::int64_t index, std::size_t size) {
  const auto begin = row.begin() + static_cast<std::ptrdiff_t>(static_cast<std::size_t>(index) * size);
  return {begin, begin + static_cast<std::ptrdiff_t>(size)};
}

double norm(const std::vector<double>& row) {
  double sum = 0;
  for (const double x : row) sum += x * x;
  return std::sqrt(sum);
}

class ExplorerRuns : public testing::TestWithParam<reference::NamedConfig> {};

TEST_P(ExplorerRuns, ARowTellsEveryNumberOfTheTextbook) {
  const Both both(GetParam());
  const TransformerConfig& config = both.loaded->config();
  const auto size = static_cast<std::size_t>(config.head_width());
  for (const AttentionPlace& place : attentions_of(config)) {
    const std::string name = name_of(place);
    const Matrix &query_rows = both.sites.at(name + ".query"), &key_rows = both.sites.at(name + ".key"),
                 &value_rows = both.sites.at(name + ".value");
    const auto queries = static_cast<std::int64_t>(query_rows.size()),
               keys = static_cast<std::int64_t>(key_rows.size());
    for (std::int64_t head = 0; head < config.heads; ++head) {
      const std::int64_t key_head = head / (config.heads / config.key_head_count());
      for (const std::int64_t query : {std::int64_t{0}, queries / 2, queries - 1}) {
        JsonWriter out;
        out.begin_object();
        write_row(out, *both.run, {place, head, query, {}}, Limits(), StopSignal());
        out.end_object();
        const Json row = Json::parse(out.take());
        const auto q = static_cast<std::size_t>(query);
        const std::string what = name + " head " + std::to_string(head) + " query " + std::to_string(query) + " ";
        expect_numbers(row["input"], both.sites.at(name + ".normed")[q], what + "input");
        expect_numbers(row["query_vector"], part_of(query_rows[q], head, size), what + "query");
        const bool rotary = both.sites.contains(name + ".rotated_query");
        EXPECT_EQ(row["rotated_query"].is_null(), !rotary);
        if (rotary)
          expect_numbers(row["rotated_query"], part_of(both.sites.at(name + ".rotated_query")[q], head, size),
                         what + "rotated query");
        const std::vector<double> scores = both.score_row(place, head, query, keys),
                                  weights = both.weight_row(place, head, query, keys);
        expect_numbers(row["scores"], scores, what + "scores");
        expect_numbers(row["weights"], weights, what + "weights");
        // Without the mask the scores are what the rules make of the products.
        const Matrix &asking = rotary ? both.sites.at(name + ".rotated_query") : query_rows,
                     &answering = rotary ? both.sites.at(name + ".rotated_key") : key_rows;
        std::vector<double> products;
        for (const auto& key : answering) {
          const std::vector<double> a = part_of(asking[q], head, size), b = part_of(key, key_head, size);
          double sum = 0;
          for (std::size_t i = 0; i < size; ++i) sum += a[i] * b[i];
          products.push_back(sum);
        }
        expect_numbers(row["products"], products, what + "products");
        double entropy = 0;
        std::vector<double> output(size, 0), write_norms;
        for (std::size_t key = 0; key < weights.size(); ++key) {
          if (!std::isinf(scores[key])) {
            EXPECT_NEAR(row["scaled"][key].get<double>(), scores[key], 1e-4 * std::max(1.0, std::abs(scores[key])))
                << what;
          } else {
            EXPECT_TRUE(row["scaled"][key].is_number()) << what << "a key that the mask hides has a score before it";
          }
          if (weights[key] > 0) entropy -= weights[key] * std::log(weights[key]);
          const std::vector<double> value = part_of(value_rows[key], key_head, size);
          for (std::size_t i = 0; i < size; ++i) output[i] += weights[key] * value[i];
        }
        EXPECT_NEAR(row["entropy"].get<double>(), entropy, 1e-4) << what;
        expect_numbers(row["output"], output, what + "output");
        expect_numbers(row["written"], both.parts.at(name)[static_cast<std::size_t>(head)][q], what + "written");
        expect_numbers(row["projected"], both.sites.at(name + ".projected")[q], what + "projected");
        for (std::int64_t other = 0; other < config.heads; ++other)
          EXPECT_NEAR(row["head_norms"][static_cast<std::size_t>(other)].get<double>(),
                      norm(both.parts.at(name)[static_cast<std::size_t>(other)][q]), 2e-4)
              << what;
        EXPECT_LT(row["head_sum"].get<double>(), 1e-5) << what;
        ASSERT_EQ(row["keys"].size(), static_cast<std::size_t>(keys));
        for (std::size_t key = 0; key < weights.size(); ++key) {
          expect_numbers(row["key_vectors"][key], part_of(key_rows[key], key_head, size), what + "key vector");
          expect_numbers(row["value_vectors"][key], part_of(value_rows[key], key_head, size), what + "value vector");
          // A key's share of what the head writes: its value alone through W_O, as a head output of its own.
          reference::Transformer textbook(both.loaded->folder.model);
          Matrix only(1, std::vector<double>(static_cast<std::size_t>(config.heads) * size, 0));
          const std::vector<double> value = part_of(value_rows[key], key_head, size);
          std::copy(value.begin(), value.end(),
                    only[0].begin() + static_cast<std::ptrdiff_t>(static_cast<std::size_t>(head) * size));
          EXPECT_NEAR(row["write_norms"][key].get<double>(),
                      weights[key] * norm(textbook.head_part(name, only, head)[0]), 2e-4)
              << what;
        }
      }
    }
  }
}

TEST_P(ExplorerRuns, StatisticsAndLogitsAreTheTextbooks) {
  const Both both(GetParam());
  const TransformerConfig& config = both.loaded->config();
  ASSERT_EQ(both.run->predictions(), static_cast<std::int64_t>(both.logits.size()));
  const Tensor logits = both.run->logits(0, both.run->predictions());
  for (std::size_t row = 0; row < both.logits.size(); ++row)
    for (std::size_t id = 0; id < both.logits[row].size(); ++id)
      EXPECT_NEAR(logits.at(static_cast<std::int64_t>(row), static_cast<std::int64_t>(id)), both.logits[row][id],
                  2e-4 * std::max(1.0, std::abs(both.logits[row][id])));
  for (const AttentionPlace& place : attentions_of(config)) {
    const RowStatistics& found = both.run->statistics(place, StopSignal());
    EXPECT_LT(found.row_sum, 1e-5);
    EXPECT_LT(found.head_sum, 1e-5);
    for (std::int64_t query = 0; query < found.queries; ++query) {
      for (std::int64_t head = 0; head < config.heads; ++head) {
        const std::string what = name_of(place) + " head " + std::to_string(head) + " query " + std::to_string(query);
        const auto at = static_cast<std::size_t>(query * config.heads + head);
        const std::vector<double> weights = both.weight_row(place, head, query, found.keys);
        double entropy = 0, distance = 0, self = 0, previous = 0;
        for (std::int64_t key = 0; key < found.keys; ++key) {
          const double weight = weights[static_cast<std::size_t>(key)];
          if (weight > 0) entropy -= weight * std::log(weight);
          distance += weight * static_cast<double>(std::abs(query - key));
          if (key == query) self = weight;
          if (key == query - 1) previous = weight;
        }
        EXPECT_NEAR(found.entropy[at], entropy, 1e-4) << what;
        EXPECT_NEAR(found.distance[at], distance, 1e-4 * std::max(1.0, distance)) << what;
        EXPECT_NEAR(found.first[at], weights[0], 1e-4) << what;
        EXPECT_NEAR(found.self[at], self, 1e-4) << what;
        EXPECT_NEAR(found.previous[at], previous, 1e-4) << what;
        std::vector<double> sorted = weights;
        std::sort(sorted.rbegin(), sorted.rend());
        for (std::int64_t k = 0; k < found.kept; ++k) {
          const std::size_t place_of = at * static_cast<std::size_t>(found.kept) + static_cast<std::size_t>(k);
          EXPECT_NEAR(found.top_weights[place_of], sorted[static_cast<std::size_t>(k)], 1e-4) << what;
          if (found.top_keys[place_of] >= 0) {
            EXPECT_NEAR(weights[static_cast<std::size_t>(found.top_keys[place_of])],
                        sorted[static_cast<std::size_t>(k)], 1e-4)
                << what;
          }
        }
      }
    }
  }
}

TEST_P(ExplorerRuns, AnyTileIsAPartOfTheMatrixExactlyOrReduced) {
  const Both both(GetParam());
  const TransformerConfig& config = both.loaded->config();
  const AttentionPlace place = attentions_of(config).back();
  const std::shared_ptr<const AttentionRecord> record = both.run->record(place, StopSignal());
  const std::int64_t queries = record->queries(), keys = record->keys();
  const auto whole = [&](TileRequest::What what) {
    TileRequest request{place, {}, what, 0, queries, 0, keys, 1, false};
    for (std::int64_t head = 0; head < config.heads; ++head) request.heads.push_back(head);
    return tile_of(*both.run, request, StopSignal());
  };
  for (const TileRequest::What what :
       {TileRequest::What::weights, TileRequest::What::scores, TileRequest::What::products}) {
    const std::vector<float> matrix = whole(what);
    const auto cell = [&](std::int64_t head, std::int64_t query, std::int64_t key) {
      return matrix[static_cast<std::size_t>((head * queries + query) * keys + key)];
    };
    for (std::int64_t head = 0; head < config.heads; ++head) {
      for (std::int64_t query = 0; query < queries; ++query) {
        const std::vector<double> scores = both.score_row(place, head, query, keys),
                                  weights = both.weight_row(place, head, query, keys);
        for (std::int64_t key = 0; key < keys; ++key) {
          const auto k = static_cast<std::size_t>(key);
          if (what == TileRequest::What::weights) {
            EXPECT_NEAR(cell(head, query, key), weights[k], 1e-4);
          }
          if (what == TileRequest::What::scores && std::isinf(scores[k])) {
            EXPECT_EQ(cell(head, query, key), minus_infinity);
          }
          if (what == TileRequest::What::scores && !std::isinf(scores[k])) {
            EXPECT_NEAR(cell(head, query, key), scores[k], 1e-4 * std::max(1.0, std::abs(scores[k])));
          }
        }
      }
    }
    TileRequest part{place, {1, 3}, what, 2, 6, 1, 6, 1, false};
    std::vector<float> tile = tile_of(*both.run, part, StopSignal());
    ASSERT_EQ(tile.size(), 2u * 4u * 5u);
    for (std::size_t i = 0; i < tile.size(); ++i) {
      const auto index = static_cast<std::int64_t>(i);
      EXPECT_EQ(tile[i], cell(index / 20 ? 3 : 1, 2 + index / 5 % 4, 1 + index % 5)) << "the same bits";
    }
    for (const bool mean : {false, true}) {
      part.reduce = 3;
      part.mean = mean;
      tile = tile_of(*both.run, part, StopSignal());
      ASSERT_EQ(tile.size(), 2u * 2u * 2u);
      for (std::int64_t h = 0; h < 2; ++h) {
        for (std::int64_t row = 0; row < 2; ++row) {
          for (std::int64_t column = 0; column < 2; ++column) {
            double largest = minus_infinity, sum = 0;
            int count = 0;
            for (std::int64_t query = 2 + 3 * row; query < std::min<std::int64_t>(5 + 3 * row, 6); ++query) {
              const std::vector<double> scores = both.score_row(place, h ? 3 : 1, query, keys);
              for (std::int64_t key = 1 + 3 * column; key < std::min<std::int64_t>(4 + 3 * column, 6); ++key) {
                const double value = cell(h ? 3 : 1, query, key);
                const bool hidden =
                    what != TileRequest::What::products && std::isinf(scores[static_cast<std::size_t>(key)]);
                largest = std::max(largest, value);
                if (!hidden) sum += value, ++count;
              }
            }
            const double expected = !mean || count == 0 ? largest : sum / count,
                         found = tile[static_cast<std::size_t>((h * 2 + row) * 2 + column)];
            if (std::isinf(expected)) {
              EXPECT_EQ(found, expected);
            } else {
              EXPECT_NEAR(found, expected, 1e-6 * std::max(1.0, std::abs(expected)));
            }
          }
        }
      }
    }
  }
}

// Where nothing is kept, a block is run again from what it read: the same bits.
TEST_P(ExplorerRuns, ARecordMadeAgainHasTheSameBits) {
  const Both kept(GetParam()), again(GetParam(), 0);
  for (const AttentionPlace& place : attentions_of(kept.loaded->config())) {
    const auto a = kept.run->record(place, StopSignal()), b = again.run->record(place, StopSignal());
    for (const auto& [one, other] :
         {std::pair(a->query, b->query), std::pair(a->key, b->key), std::pair(a->value, b->value),
          std::pair(a->head_output, b->head_output), std::pair(a->projected, b->projected),
          std::pair(a->log_sum_exp, b->log_sum_exp), std::pair(a->normed, b->normed)})
      EXPECT_EQ(one.to_vector(), other.to_vector()) << name_of(place);
  }
}

// What a run says it takes is what its tensors take of the allocator, plus the little that are no tensors. Of 1,400 rows
// the allocator rounds up by more than that, and a storage counted twice is more than that.
TEST_P(ExplorerRuns, CountsEveryByteItHolds) {
  constexpr std::int64_t rows = 1400;
  TransformerConfig config = GetParam().config;
  config.max_positions = rows;
  Model model(config, 3);
  reference::randomise(model, 11);
  const auto loaded = std::make_shared<LoadedModel>(
      LoadedModel{"test", "", ModelFolder{std::move(model), nullptr, nullptr, Task{}}, "0123456789abcdef", "", 0, 0});
  Subject subject;
  if (config.encoder) subject.input.source = reference::random_tokens({rows}, config.encoder->vocabulary, 5).ids;
  if (config.decoder) subject.input.ids = reference::random_tokens({rows}, config.decoder->vocabulary, 6).ids;
  subject.next.assign(rows, 0);
  // With and without room for records; after a run that leaves the only thread its scratch.
  struct OneThread {
    const int before = threads();
    OneThread() { set_threads(1); }
    ~OneThread() { set_threads(before); }
  } const one_thread;
  explorer::Run(loaded, subject, no_edits(), true, 1 << 24, StopSignal());
  for (const std::int64_t most_bytes : {1 << 24, 0}) {
    const std::int64_t before = memory_use().live_bytes;
    const explorer::Run run(loaded, subject, no_edits(), true, most_bytes, StopSignal());
    std::int64_t numbers = 0;
    for (const AttentionPlace& place : attentions_of(config)) numbers += run.statistics(place, StopSignal()).bytes();
    const std::int64_t held = memory_use().live_bytes - before, rest = run.bytes() - held - numbers;
    EXPECT_GT(rest, 0) << "tensors take " << held << ", numbers " << numbers << ", the run says " << run.bytes();
    EXPECT_LT(rest, 48 << 10) << "tensors take " << held << ", numbers " << numbers << ", the run says " << run.bytes();
  }
}

INSTANTIATE_TEST_SUITE_P(Families, ExplorerRuns, testing::ValuesIn(reference::all_families()), [](const auto& each) {
  std::string name;
  for (const char c : each.param.name.substr(0, each.param.name.find_first_of(":,")))
    if (std::isalnum(static_cast<unsigned char>(c))) name += c;
  return name;
});

TEST(ExplorerRunCache, GivesTheSameRunAgainAndForgetsTheOldest) {
  const Both both(reference::all_families()[3]);
  RunCache cache(1 << 16);
  const auto get = [&](std::int32_t last) {
    Subject subject = both.subject;
    subject.input.ids.back() = last;
    return cache.get(both.loaded, subject, no_edits(), false, StopSignal());
  };
  const auto first = get(1);
  EXPECT_EQ(get(1), first);
  EXPECT_NE(get(2), first);
  EXPECT_NE(run_fingerprint(*both.loaded, get(1)->subject(), *no_edits()),
            run_fingerprint(*both.loaded, get(2)->subject(), *no_edits()));
  for (std::int32_t last = 0; last < 18; ++last) get(last);
  EXPECT_NE(get(1), first) << "gone, and made again";
}

TEST(ExplorerRunCache, KeepsToItsBytesWhatRunsGrowByLater) {
  const Both both(reference::all_families()[3]);
  const std::int64_t one = both.run->bytes();
  RunCache cache(4 * one);
  std::vector<std::weak_ptr<const explorer::Run>> runs;
  for (std::int32_t last = 0; last < 12; ++last) {
    Subject subject = both.subject;
    subject.input.ids.back() = last;
    const auto run = cache.get(both.loaded, subject, no_edits(), false, StopSignal());
    for (const AttentionPlace& place : attentions_of(both.loaded->config())) run->record(place, StopSignal());
    cache.get(both.loaded, subject, no_edits(), false, StopSignal());
    EXPECT_LE(cache.bytes(), 4 * one) << last;
    runs.push_back(run);
  }
  EXPECT_TRUE(runs.front().expired());
  EXPECT_FALSE(runs.back().expired());
}

TEST(ExplorerRunStop, EndsWhenNobodyWaits) {
  const Both both(reference::all_families()[0]);
  StopSignal stop;
  stop.stop();
  EXPECT_THROW(explorer::Run(both.loaded, both.subject, no_edits(), true, 0, stop), ApiError);
}

TEST(ExplorerAttentions, AreNamedAsTheirSites) {
  const Both both(reference::all_families()[0]);
  EXPECT_EQ(name_of(attention_named("decoder.1.cross", *both.loaded)), "decoder.1.cross");
  for (const char* wrong : {"decoder.2.cross", "encoder.0.cross", "decoder.1", "", "decoder.1.cross.weights"}) {
    try {
      attention_named(wrong, *both.loaded);
      ADD_FAILURE() << wrong;
    } catch (const ApiError& error) {
      EXPECT_EQ(error.status(), 404);
      EXPECT_NE(error.advice().find("decoder.1.cross"), std::string::npos);
    }
  }
}

}  // namespace
}  // namespace attend::explorer
