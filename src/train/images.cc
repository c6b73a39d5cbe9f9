#include "train/images.h"

#include <algorithm>
#include <cmath>
#include <memory>
#include <numbers>

#include "attend/error.h"
#include "core/random.h"
#include "core/threads.h"
#include "text/byte_source.h"

namespace attend {
namespace {

constexpr std::int64_t most_bytes = std::int64_t{4} << 30;

std::vector<std::uint8_t> unpacked(const std::filesystem::path& path) {
  const std::unique_ptr<ByteSource> source = open_bytes(path, most_bytes);
  std::vector<std::uint8_t> bytes;
  for (;;) {
    const std::size_t before = bytes.size();
    bytes.resize(before + (1 << 20));
    const std::size_t count = source->read(reinterpret_cast<char*>(bytes.data()) + before, 1 << 20);
    bytes.resize(before + count);
    if (count == 0) return bytes;
  }
}

struct Idx {
  std::vector<std::int64_t> sizes;
  std::vector<std::uint8_t> values;
};

Idx read_idx(const std::filesystem::path& path, std::size_t axes) {
  std::vector<std::uint8_t> bytes = unpacked(path);
  const std::size_t header = 4 + 4 * axes;
  if (bytes.size() < header || bytes[0] != 0 || bytes[1] != 0 || bytes[2] != 8 || bytes[3] != axes)
    throw Error(ErrorKind::format, path.string(),
                join("is not an idx file of unsigned bytes with ", axes, axes == 1 ? " axis" : " axes"));
  Idx idx;
  std::int64_t product = 1;
  for (std::size_t axis = 0; axis < axes; ++axis) {
    const std::uint8_t* at = bytes.data() + 4 + 4 * axis;
    const std::int64_t size = (std::int64_t{at[0]} << 24) | (at[1] << 16) | (at[2] << 8) | at[3];
    if (size == 0 || size > most_bytes / product)
      throw Error(ErrorKind::format, path.string(), join("axis ", axis, " has size ", size));
    idx.sizes.push_back(size);
    product *= size;
  }
  if (static_cast<std::int64_t>(bytes.size() - header) != product)
    throw Error(ErrorKind::format, path.string(),
                join("holds ", bytes.size() - header, " values; its header promises ", product),
                "fetch the file again");
  idx.values.assign(bytes.begin() + static_cast<std::ptrdiff_t>(header), bytes.end());
  return idx;
}

}  // namespace

ImageSet read_images(const std::filesystem::path& images, const std::filesystem::path& labels) {
  Idx pixels = read_idx(images, 3);
  const Idx classes = read_idx(labels, 1);
  if (pixels.sizes[0] != classes.sizes[0])
    throw Error(ErrorKind::format, labels.string(),
                join("holds ", classes.sizes[0], " labels and ", images.string(), " ", pixels.sizes[0], " images"));
  ImageSet set;
  set.height = pixels.sizes[1];
  set.width = pixels.sizes[2];
  set.pixels = std::move(pixels.values);
  set.labels.assign(classes.values.begin(), classes.values.end());
  return set;
}

ImageSet take_out(ImageSet& set, std::span<const std::int64_t> indices) {
  ImageSet out, rest;
  out.height = rest.height = set.height;
  out.width = rest.width = set.width;
  std::size_t next = 0;
  for (std::int64_t index = 0; index < set.size(); ++index) {
    const bool taken = next < indices.size() && indices[next] == index;
    if (taken) ++next;
    ImageSet& to = taken ? out : rest;
    const auto pixels = set.image(index);
    to.pixels.insert(to.pixels.end(), pixels.begin(), pixels.end());
    to.labels.push_back(set.labels[static_cast<std::size_t>(index)]);
  }
  set = std::move(rest);
  return out;
}

std::vector<float> transformed(std::span<const std::uint8_t> image, std::int64_t height, std::int64_t width,
                               double angle, double right, double down) {
  std::vector<float> out(image.size());
  const double cosine = std::cos(angle), sine = std::sin(angle);
  const double middle_x = 0.5 * static_cast<double>(width - 1), middle_y = 0.5 * static_cast<double>(height - 1);
  const auto pixel = [&](std::int64_t y, std::int64_t x) -> double {
    return y < 0 || y >= height || x < 0 || x >= width ? 0.0 : image[static_cast<std::size_t>(y * width + x)];
  };
  for (std::int64_t y = 0; y < height; ++y) {
    for (std::int64_t x = 0; x < width; ++x) {
      // Where this pixel comes from: the motion undone. The y axis points down.
      const double u = static_cast<double>(x) - right - middle_x, v = static_cast<double>(y) - down - middle_y;
      const double from_x = cosine * u - sine * v + middle_x, from_y = sine * u + cosine * v + middle_y;
      const double floor_x = std::floor(from_x), floor_y = std::floor(from_y);
      const double along_x = from_x - floor_x, along_y = from_y - floor_y;
      const auto column = static_cast<std::int64_t>(floor_x), row = static_cast<std::int64_t>(floor_y);
      const double above = pixel(row, column) * (1 - along_x) + pixel(row, column + 1) * along_x;
      const double below = pixel(row + 1, column) * (1 - along_x) + pixel(row + 1, column + 1) * along_x;
      out[static_cast<std::size_t>(y * width + x)] =
          static_cast<float>((above * (1 - along_y) + below * along_y) / 255.0);
    }
  }
  return out;
}

Batch image_batch(const ImageSet& set, std::span<const std::int64_t> indices, const DataRecipe& recipe, bool augment,
                  std::uint64_t seed, std::int64_t epoch) {
  const std::int64_t patch = recipe.patch, across = set.width / patch, patches = across * (set.height / patch);
  Batch batch;
  batch.features = Tensor::empty({static_cast<std::int64_t>(indices.size()) * patches, patch * patch});
  batch.feature_offsets.push_back(0);
  for (std::int64_t index : indices) {
    batch.feature_offsets.push_back(batch.feature_offsets.back() + patches);
    batch.labels.push_back(set.labels[static_cast<std::size_t>(index)]);
  }
  parallel_for(static_cast<std::int64_t>(indices.size()), [&](std::int64_t item, int) {
    const std::int64_t index = indices[static_cast<std::size_t>(item)];
    double angle = 0, right = 0, down = 0;
    if (augment && (recipe.shift > 0 || recipe.rotation > 0)) {
      Random random(stream_seed(seed, Purpose::augmentation, static_cast<std::uint64_t>(epoch),
                                static_cast<std::uint64_t>(index)));
      angle = (2 * random.uniform() - 1) * recipe.rotation * std::numbers::pi / 180;
      right = (2 * random.uniform() - 1) * recipe.shift;
      down = (2 * random.uniform() - 1) * recipe.shift;
    }
    const std::vector<float> values = transformed(set.image(index), set.height, set.width, angle, right, down);
    for (std::int64_t p = 0; p < patches; ++p) {
      float* row = batch.features.data() + (item * patches + p) * patch * patch;
      for (std::int64_t y = 0; y < patch; ++y) {
        const float* from = values.data() + ((p / across) * patch + y) * set.width + (p % across) * patch;
        std::copy(from, from + patch, row + y * patch);
      }
    }
  });
  return batch;
}

}  // namespace attend
