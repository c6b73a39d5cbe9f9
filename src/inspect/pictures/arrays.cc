// NPY and NPZ.
#include <zlib.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cctype>
#include <cstring>
#include <limits>
#include <string_view>

#include "attend/error.h"
#include "attend/pictures.h"

namespace attend {
namespace {

static_assert(std::endian::native == std::endian::little, "arrays are written as they lie in memory");

// numpy/lib/format.py, version 1.0: magic, header length, a Python dict padded so that the data begin on a 64-byte
// line.
template <typename Number>
std::string npy(std::span<const Number> values, std::span<const std::int64_t> shape, const char* type) {
  std::int64_t count = 1;
  std::string shape_text;
  for (std::int64_t size : shape) {
    if (size < 0) throw Error(ErrorKind::shape, "NPY file", join("a size is ", size), "give sizes of 0 and more");
    count = size > 0 && count > std::numeric_limits<std::int64_t>::max() / size ? -1 : count * size;
    if (count < 0) break;
    shape_text += join(size, ", ");
  }
  if (count != static_cast<std::int64_t>(values.size()))
    throw Error(ErrorKind::shape, "NPY file",
                join("the shape holds ", count < 0 ? "more than 2^63" : std::to_string(count), " values and there are ",
                     values.size()),
                "give the shape of the values");
  if (shape.size() > 1) shape_text.resize(shape_text.size() - 2);
  else if (shape.size() == 1) shape_text.pop_back();
  std::string header = join("{'descr': '", type, "', 'fortran_order': False, 'shape': (", shape_text, "), }");
  constexpr std::size_t before = 10;
  header.append(63 - (before + header.size()) % 64, ' ');
  header += '\n';
  std::string out("\x93NUMPY\x01\x00", 8);
  out += static_cast<char>(header.size() & 255);
  out += static_cast<char>(header.size() >> 8);
  out += header;
  const std::size_t bytes = values.size() * sizeof(Number);
  const std::size_t at = out.size();
  out.resize(at + bytes);
  if (bytes > 0) std::memcpy(out.data() + at, values.data(), bytes);
  return out;
}

// A zip archive without compression (PKWARE APPNOTE 4.3), names in UTF-8, no dates.
class Archive {
 public:
  void add(std::string_view name, std::string_view bytes) {
    if (bytes.size() + out_.size() + directory_.size() > std::numeric_limits<std::uint32_t>::max() - 65536 ||
        files_ == 65535)
      throw Error(ErrorKind::argument, "NPZ file", "the arrays take more than 4 GiB",
                  "choose fewer layers, heads or measures");
    const auto offset = static_cast<std::uint32_t>(out_.size());
    const auto size = static_cast<std::uint32_t>(bytes.size());
    const auto check_sum =
        static_cast<std::uint32_t>(crc32_z(0, reinterpret_cast<const Bytef*>(bytes.data()), bytes.size()));
    const auto common = [&](std::string& to) {
      put16(to, 20);      // version needed
      put16(to, 0x0800);  // names are UTF-8
      put16(to, 0);       // stored
      put16(to, 0);       // time 00:00
      put16(to, 0x21);    // 1 January 1980, the first there is
      put32(to, check_sum);
      put32(to, size);
      put32(to, size);
      put16(to, static_cast<std::uint16_t>(name.size()));
      put16(to, 0);  // no extra field
    };
    put32(out_, 0x04034b50);
    common(out_);
    out_.append(name).append(bytes);
    put32(directory_, 0x02014b50);
    put16(directory_, 20);
    common(directory_);
    put16(directory_, 0);  // comment
    put16(directory_, 0);  // disk
    put16(directory_, 0);
    put32(directory_, 0);  // attributes
    put32(directory_, offset);
    directory_.append(name);
    ++files_;
  }

  std::string finish() && {
    const auto begin = static_cast<std::uint32_t>(out_.size()), size = static_cast<std::uint32_t>(directory_.size());
    out_ += directory_;
    put32(out_, 0x06054b50);
    put16(out_, 0);
    put16(out_, 0);
    put16(out_, files_);
    put16(out_, files_);
    put32(out_, size);
    put32(out_, begin);
    put16(out_, 0);
    return std::move(out_);
  }

 private:
  static void put16(std::string& to, std::uint16_t value) {
    to += {static_cast<char>(value), static_cast<char>(value >> 8)};
  }
  static void put32(std::string& to, std::uint32_t value) {
    put16(to, static_cast<std::uint16_t>(value));
    put16(to, static_cast<std::uint16_t>(value >> 16));
  }

  std::string out_, directory_;
  std::uint16_t files_ = 0;
};

// Names become paths in an archive that people unpack: only letters, digits and - . _ stay.
std::string file_name(std::string_view name) {
  std::string out;
  for (char c : name) out += std::isalnum(static_cast<unsigned char>(c)) || c == '-' || c == '.' ? c : '_';
  return out.find_first_not_of('.') == std::string::npos ? "_" : out;
}

}  // namespace

std::string npy_of(std::span<const float> values, std::span<const std::int64_t> shape) {
  return npy(values, shape, "<f4");
}
std::string npy_of(std::span<const std::int32_t> values, std::span<const std::int64_t> shape) {
  return npy(values, shape, "<i4");
}
std::string npy_of(std::span<const std::uint8_t> values, std::span<const std::int64_t> shape) {
  return npy(values, shape, "|u1");
}

std::string npz_of(const Inspection& inspection) {
  check(inspection);
  Archive archive;
  std::vector<std::string> used;
  const auto add = [&](const std::string& attention, const std::string& part, std::string bytes) {
    std::string name = file_name(attention) + "/" + file_name(part);
    while (std::find(used.begin(), used.end(), name) != used.end()) name += "_";
    used.push_back(name);
    archive.add(name + ".npy", bytes);
  };
  for (const ShownAttention& attention : inspection.attentions) {
    const auto layers = static_cast<std::int64_t>(attention.layers.size()),
               heads = static_cast<std::int64_t>(attention.heads.size());
    const auto queries = static_cast<std::int64_t>(inspection.texts[attention.query_text].tokens.size());
    const auto keys = static_cast<std::int64_t>(inspection.texts[attention.key_text].tokens.size());
    const auto numbers = [](const std::vector<int>& list) {
      const std::vector<std::int32_t> copy(list.begin(), list.end());
      return npy_of(copy, std::array{static_cast<std::int64_t>(copy.size())});
    };
    add(attention.name, "layers", numbers(attention.layers));
    add(attention.name, "heads", numbers(attention.heads));
    if (!attention.masked.empty()) add(attention.name, "masked", npy_of(attention.masked, std::array{queries, keys}));
    for (const Measure& measure : attention.measures)
      add(attention.name, measure.name, npy_of(measure.values, std::array{layers, heads, queries, keys}));
    for (const RowStatistic& statistic : attention.statistics)
      add(attention.name, join("row_", statistic.name), npy_of(statistic.values, std::array{layers, heads, queries}));
    for (const HeadMetric& metric : attention.metrics)
      add(attention.name, join("head_", metric.name), npy_of(metric.values, std::array{layers, heads}));
    if (const LargestKeys& largest = attention.largest; largest.count > 0) {
      const std::array shape{layers, heads, queries, largest.count};
      add(attention.name, "largest_keys", npy_of(largest.keys, shape));
      add(attention.name, "largest_weights", npy_of(largest.weights, shape));
    }
  }
  for (const TokenAttribution& attribution : inspection.attributions) {
    for (std::size_t text = 0; text < attribution.values.size(); ++text)
      if (const std::vector<float>& values = attribution.values[text]; !values.empty())
        add(attribution.name, inspection.texts[text].name,
            npy_of(values, std::array{static_cast<std::int64_t>(values.size())}));
    if (attribution.steps == 0) continue;
    const float sums[] = {static_cast<float>(attribution.target), static_cast<float>(attribution.baseline),
                          static_cast<float>(attribution.completeness_error)};
    add(attribution.name, "sums", npy_of(sums, std::array{std::int64_t{3}}));
  }
  return std::move(archive).finish();
}

}  // namespace attend
