// Images for training: idx files (the format of MNIST), patches, random shifts and rotations.
#pragma once

#include <cstdint>
#include <filesystem>
#include <span>
#include <vector>

#include "train/batches.h"

namespace attend {

struct ImageSet {
  std::int64_t height = 0, width = 0;
  std::vector<std::uint8_t> pixels;  // [images, height, width]
  std::vector<std::int32_t> labels;

  std::int64_t size() const { return static_cast<std::int64_t>(labels.size()); }
  std::span<const std::uint8_t> image(std::int64_t index) const {
    const auto area = static_cast<std::size_t>(height * width);
    return {pixels.data() + static_cast<std::size_t>(index) * area, area};
  }
};

// idx files, plain, .gz or .xz: unsigned bytes with 3 axes and with 1. Error(file), Error(format) names file and what is wrong.
ImageSet read_images(const std::filesystem::path& images, const std::filesystem::path& labels);

// Takes the images of `indices` (ascending) out of `set` into a new one.
ImageSet take_out(ImageSet& set, std::span<const std::int64_t> indices);

// Turned about its middle by `angle` (radians, anticlockwise as one sees it) and moved by (right, down) pixels, with
// bilinear interpolation; what comes from outside is 0. Values are pixel / 255.
std::vector<float> transformed(std::span<const std::uint8_t> image, std::int64_t height, std::int64_t width,
                               double angle, double right, double down);

// Rows of features: patch by patch, row by row of patches; a feature row holds the patch's pixels / 255 row by row.
// shift and rotation are the recipe's; each image's own are drawn from (seed, epoch, index). Both 0: the images as they are.
Batch image_batch(const ImageSet& set, std::span<const std::int64_t> indices, const DataRecipe& recipe, bool augment,
                  std::uint64_t seed, std::int64_t epoch);

}  // namespace attend
