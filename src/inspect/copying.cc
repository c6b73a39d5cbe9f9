// Copying through the OV circuit (Elhage et al. 2021), from the weights alone.
#include <Eigen/Eigenvalues>
#include <algorithm>
#include <cmath>

#include "attend/error.h"
#include "attend/heads.h"
#include "attend/tape.h"
#include "core/threads.h"
#include "inspect/parameters.h"
#include "kernel/matrix/packed_matrix.h"

namespace attend {
namespace {

constexpr double nan = std::numeric_limits<double>::quiet_NaN();
constexpr std::int64_t block_rows = 512;  // of a vocabulary at once

// A norm as far as it is linear: x -> gain * (x - mean), for LayerNorm; RMSNorm subtracts nothing. No gain: no norm.
struct LinearNorm {
  const Parameter* gain = nullptr;
  bool centred = false;
};

LinearNorm norm_named(const Model& model, const std::string& name) {
  const Parameter* gain = find_parameter(model, name + ".gain");
  return {gain, gain && model.config().norm == NormKind::layer};
}

// matrix [rows, width] times the norm from the right: what a projection makes of an unnormed stream.
void fold_before(Tensor& matrix, const LinearNorm& norm) {
  if (!norm.gain) return;
  const std::int64_t width = matrix.width();
  parallel_for(matrix.rows(), [&](std::int64_t r, int) {
    float* const row = matrix.row(r);
    double mean = 0;
    for (std::int64_t i = 0; i < width; ++i) {
      row[i] *= norm.gain->value.data()[i];
      mean += static_cast<double>(row[i]) / static_cast<double>(width);
    }
    for (std::int64_t i = 0; norm.centred && i < width; ++i) row[i] -= static_cast<float>(mean);
  });
}

// The norm times matrix [width, columns]: what an unnormed stream becomes on its way to the logits.
void fold_after(Tensor& matrix, const LinearNorm& norm) {
  if (!norm.gain) return;
  const std::int64_t width = matrix.rows(), columns = matrix.width();
  std::vector<double> means(static_cast<std::size_t>(columns));
  for (std::int64_t i = 0; norm.centred && i < width; ++i)
    for (std::int64_t c = 0; c < columns; ++c)
      means[static_cast<std::size_t>(c)] += static_cast<double>(matrix.at(i, c)) / static_cast<double>(width);
  for (std::int64_t i = 0; i < width; ++i)
    for (std::int64_t c = 0; c < columns; ++c)
      matrix.row(i)[c] =
          static_cast<float>((static_cast<double>(matrix.at(i, c)) - means[static_cast<std::size_t>(c)]) *
                             static_cast<double>(norm.gain->value.data()[i]));
}

// Everything that the heads reading one embedding table share.
struct Reading {
  Tensor embedding;  // [vocabulary, width]
  Tensor through;    // W_E W_U [width, width]: sum over tokens of embedding times (unembedding less its mean)
  Tensor tried;      // embeddings of the tokens tried [tokens, width]
};

class Vocabulary {
 public:
  Vocabulary(const Model& model, const CopyingOptions& options) : model_(model), config_(model.config()) {
    const Parameter* table = find_parameter(
        model, config_.tied_logits ? embedding_name(config_.decoder ? "decoder" : "encoder") : "logits.weight");
    if (!table || config_.output_vocabulary() == 0) return;
    unembedding_ = table->value;
    std::vector<std::int32_t> ids = options.only;
    for (std::int32_t id = 0; options.only.empty() && id < unembedding_.rows(); ++id) ids.push_back(id);
    const auto all = static_cast<std::int64_t>(ids.size()),
               count = options.tokens > 0 ? std::min(options.tokens, all) : all;
    for (std::int64_t i = 0; i < count; ++i) {
      const std::int32_t id = ids[static_cast<std::size_t>(i * all / count)];
      if (id < 0 || id >= unembedding_.rows())
        throw Error(ErrorKind::argument, "copying",
                    join("token id ", id, " is outside the vocabulary of ", unembedding_.rows()));
      tried_.push_back(id);
    }
    mean_ = Tensor::empty({1, unembedding_.width()});
    std::vector<double> sums(static_cast<std::size_t>(unembedding_.width()));
    for (std::int64_t row = 0; row < unembedding_.rows(); ++row)
      for (std::size_t i = 0; i < sums.size(); ++i) sums[i] += static_cast<double>(unembedding_.row(row)[i]);
    for (std::size_t i = 0; i < sums.size(); ++i)
      mean_.data()[i] = static_cast<float>(sums[i] / static_cast<double>(unembedding_.rows()));
  }

  bool defined() const { return unembedding_.defined(); }
  const Tensor& unembedding() const { return unembedding_; }
  const Tensor& mean() const { return mean_; }  // of the unembedding, [1, width]
  const std::vector<std::int32_t>& tried() const { return tried_; }

  // Of the stack whose embedding is read; made once.
  const Reading& reading(StackKind stack) {
    Reading& made = readings_[stack == StackKind::encoder || config_.shared_embeddings ? 0 : 1];
    if (made.embedding.defined()) return made;
    made.embedding = find_parameter(model_, embedding_name(stack == StackKind::encoder ? "encoder" : "decoder"))->value;
    made.tried = embed(made.embedding, tried_);
    const std::int64_t width = made.embedding.width();
    std::vector<double> sums(static_cast<std::size_t>(width * width));
    Tensor part = Tensor::empty({width, width});
    for (std::int64_t begin = 0; begin < unembedding_.rows(); begin += block_rows) {
      const std::int64_t rows = std::min(block_rows, unembedding_.rows() - begin);
      Tensor centred = unembedding_.row_range(begin, rows).clone();
      for (std::int64_t row = 0; row < rows; ++row)
        for (std::int64_t i = 0; i < width; ++i) centred.row(row)[i] -= mean_.data()[i];
      std::fill(part.data(), part.data() + part.elements(), 0.0f);
      multiply_transposed(made.embedding.row(begin), width, centred.data(), width, rows, width, width, part.data(),
                          width);
      for (std::size_t i = 0; i < sums.size(); ++i) sums[i] += static_cast<double>(part.data()[i]);
    }
    made.through = Tensor::empty({width, width});
    for (std::size_t i = 0; i < sums.size(); ++i) made.through.data()[i] = static_cast<float>(sums[i]);
    return made;
  }

 private:
  std::string embedding_name(const std::string& stack) const {
    return config_.shared_embeddings ? "embedding.weight" : stack + ".embedding.weight";
  }

  const Model& model_;
  const TransformerConfig& config_;
  Tensor unembedding_, mean_;
  std::vector<std::int32_t> tried_;
  Reading readings_[2];
};

// Sum of the eigenvalues of values * through * output over the sum of their absolute values.
double eigenvalue_score(const Tensor& values, const Tensor& through, const Tensor& output) {
  const Tensor carried = matrix_product(through, output);  // [width, head_dim]
  const std::int64_t dim = values.rows();
  Eigen::MatrixXd circuit(dim, dim);
  for (std::int64_t i = 0; i < dim; ++i)
    for (std::int64_t j = 0; j < dim; ++j) {
      double sum = 0;
      for (std::int64_t k = 0; k < values.width(); ++k)
        sum += static_cast<double>(values.at(i, k)) * static_cast<double>(carried.at(k, j));
      circuit(i, j) = sum;
    }
  if (!circuit.allFinite()) return nan;
  const Eigen::VectorXcd eigenvalues = Eigen::EigenSolver<Eigen::MatrixXd>(circuit, false).eigenvalues();
  double sizes = 0;
  for (const auto& value : eigenvalues) sizes += std::abs(value);
  return sizes > 0 ? circuit.trace() / sizes : nan;
}

// Share of the tokens tried that are raised above the mean and are among the `among` most raised.
double raised_share(const Tensor& values, const Tensor& output, const Reading& reading, const Vocabulary& vocabulary,
                    int among) {
  const std::vector<std::int32_t>& tried = vocabulary.tried();
  if (tried.empty()) return nan;
  const auto tokens = static_cast<std::int64_t>(tried.size());
  const Tensor carried = matrix_product(reading.tried, values, true);                 // [tokens, head_dim]
  const Tensor mean = matrix_product(vocabulary.mean(), output);                      // [1, head_dim]
  const Tensor own = matrix_product(embed(vocabulary.unembedding(), tried), output);  // [tokens, head_dim]
  std::vector<float> own_logits(tried.size());
  std::vector<std::int64_t> above(tried.size());
  std::vector<std::uint8_t> raised(tried.size());
  for (std::int64_t t = 0; t < tokens; ++t) {
    double logit = 0, level = 0;
    for (std::int64_t i = 0; i < carried.width(); ++i) {
      logit += static_cast<double>(carried.at(t, i)) * static_cast<double>(own.at(t, i));
      level += static_cast<double>(carried.at(t, i)) * static_cast<double>(mean.at(0, i));
    }
    own_logits[static_cast<std::size_t>(t)] = static_cast<float>(logit);
    raised[static_cast<std::size_t>(t)] = logit > level;
  }
  for (std::int64_t begin = 0; begin < vocabulary.unembedding().rows(); begin += block_rows) {
    const std::int64_t rows = std::min(block_rows, vocabulary.unembedding().rows() - begin);
    const Tensor block = matrix_product(vocabulary.unembedding().row_range(begin, rows), output);  // [rows, head_dim]
    const Tensor logits = matrix_product(carried, block, true);                                    // [tokens, rows]
    parallel_ranges(tokens, 16, [&](std::int64_t first, std::int64_t end, int) {
      for (std::int64_t t = first; t < end; ++t)
        for (std::int64_t r = 0; r < rows; ++r)
          above[static_cast<std::size_t>(t)] += begin + r != tried[static_cast<std::size_t>(t)] &&
                                                logits.at(t, r) > own_logits[static_cast<std::size_t>(t)];
    });
  }
  std::int64_t copied = 0;
  for (std::size_t t = 0; t < tried.size(); ++t) copied += raised[t] && above[t] < among;
  return static_cast<double>(copied) / static_cast<double>(tokens);
}

}  // namespace

std::vector<Copying> copying_through_values(const Model& model, const CopyingOptions& options) {
  if (options.tokens < 0 || options.among < 1)
    throw Error(ErrorKind::argument, "copying",
                join(options.tokens, " tokens tried, among the ", options.among, " most raised"),
                "use 0 or more tokens, among 1 or more");
  const NoGradientScope no_gradients;
  const TransformerConfig& config = model.config();
  const bool pre = config.norm_place == NormPlace::pre;
  const std::int64_t dim = config.head_width(), query_rows = config.heads * dim,
                     key_rows = config.key_head_count() * dim;
  Vocabulary vocabulary(model, options);
  // The norms on the straight way through a stack's residual stream, in order: all of the stack.
  const auto norms_of = [&](StackKind kind) {
    std::vector<std::string> names;
    const std::string stack = name_of(kind);
    names.push_back(stack + ".embedding_norm");
    if (!pre)
      for (std::int64_t layer = 0; layer < (kind == StackKind::encoder ? config.encoder : config.decoder)->layers;
           ++layer)
        for (const char* part : {"self", "cross", "feed_forward"})
          names.push_back(join(stack, '.', layer, '.', part, ".norm"));
    names.push_back(stack + ".norm");
    return names;
  };
  const bool shared = config.encoder && config.decoder && config.encoder->vocabulary == config.decoder->vocabulary &&
                      (config.shared_embeddings || options.shared_vocabulary);

  std::vector<Copying> result;
  for (const HeadPlace& head : heads_of(model)) {
    if (options.cancelled && options.cancelled())
      throw Error(ErrorKind::cancelled, "copying", "the caller asked to stop");
    Copying one{head, nan, nan};
    const bool cross = head.part == Part::cross, encoder = head.stack == StackKind::encoder;
    const bool reads_tokens = !encoder || config.encoder->vocabulary > 0;
    if (vocabulary.defined() && reads_tokens && (cross ? shared : !(encoder && config.decoder))) {
      const std::string stack = encoder ? "encoder" : "decoder",
                        name = join(stack, '.', head.layer, cross ? ".cross" : ".self");
      const Tensor& inputs =
          find_parameter(model, name + (cross ? ".key_value.weight" : ".query_key_value.weight"))->value;
      const std::int64_t key_head = head.head / (config.heads / config.key_head_count());
      Tensor values = inputs.row_range((cross ? key_rows : query_rows + key_rows) + key_head * dim, dim).clone();
      // Where the sublayer's own norm stands: before what the head reads, or after what it writes.
      const std::string own = name + ".norm";
      const std::vector<std::string> through = norms_of(head.stack);
      const auto at = pre ? through.begin() + 1 : std::find(through.begin(), through.end(), own);
      std::vector<std::string> in =
          cross ? norms_of(StackKind::encoder) : std::vector<std::string>(through.begin(), at);
      if (pre && !cross) in.push_back(own);
      for (auto norm = in.rbegin(); norm != in.rend(); ++norm) fold_before(values, norm_named(model, *norm));
      Tensor output = find_parameter(model, name + ".output.weight")->value.columns(head.head * dim, dim).clone();
      for (auto norm = at; norm != through.end(); ++norm) fold_after(output, norm_named(model, *norm));
      const Reading& reading = vocabulary.reading(cross ? StackKind::encoder : head.stack);
      one.eigenvalues = eigenvalue_score(values, reading.through, output);
      one.share = raised_share(values, output, reading, vocabulary, options.among);
    }
    result.push_back(one);
  }
  return result;
}

}  // namespace attend
