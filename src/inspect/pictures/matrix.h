// A matrix of cells with token labels, as heat_map_svg and measures_svg draw it.
#pragma once

#include <string>

#include "inspect/pictures/inspection.h"
#include "inspect/pictures/svg.h"

namespace attend::pictures {

// Cells along one axis. Above 1,024 neighbours share one place on the picture.
struct CellAxis {
  std::size_t count = 0;   // cells
  std::size_t merged = 1;  // cells that share a place
  int size = 1;            // pixels of a place

  std::size_t places() const { return (count + merged - 1) / merged; }
  int extent() const { return static_cast<int>(places()) * size; }
  double centre(std::size_t cell) const { return (static_cast<double>(cell / merged) + 0.5) * size; }
  // Every how many cells a label of `pitch` pixels fits.
  std::size_t label_step(double pitch) const;
};

struct MatrixLayout {
  CellAxis queries, keys;
  bool numbers = false;  // in the cells
  bool row_labels = true;
  enum class Turn { none, slanted, upright } key_turn = Turn::none;
  double left = 0;  // space for labels around the cells
  double top = 0;
  double right = 0;  // slanted labels reach beyond the last column
  std::string query_title, key_title;

  double width() const { return left + keys.extent() + right; }
  double height() const { return top + queries.extent(); }
};

MatrixLayout layout_of(const Inspection& inspection, const Matrix& matrix, bool row_labels,
                       const PictureOptions& options);
// With the upper left corner of the whole, labels included, at (x, y).
void draw_matrix(Svg& svg, double x, double y, const Matrix& matrix, const Scale& scale, const MatrixLayout& layout);
// The largest value in places [query, key] by absolute value, NaN where nothing was measured; `blocked` where all cells
// of a place are masked. [places of queries, places of keys]
struct Places {
  std::vector<float> values;
  std::vector<std::uint8_t> blocked;
};
Places merged_places(const Matrix& matrix, std::size_t merged_queries, std::size_t merged_keys);

// Bar, masked, not measured: whatever the matrix needs to be read, in one line or two. Returns the height.
double draw_matrix_key(Svg& svg, double x, double y, const Matrix& matrix, const Scale& scale, double width,
                       const std::string& name, const PictureOptions& options);

}  // namespace attend::pictures
