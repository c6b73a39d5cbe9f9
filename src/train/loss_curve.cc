#include <algorithm>
#include <cmath>
#include <sstream>
#include <string>

#include "attend/train.h"

namespace attend {
namespace {

struct Axis {
  double low = 0, high = 1, tick = 1;
};

// Ticks at 1, 2 or 5 times a power of ten, about `count` of them; the ends lie on ticks when `whole`.
Axis axis_over(double low, double high, int count, bool whole) {
  if (!(high > low)) high = low + std::max(1e-3, std::abs(low) * 0.1);
  const double raw = (high - low) / count;
  const double power = std::pow(10.0, std::floor(std::log10(raw)));
  const double mantissa = raw / power;
  const double tick = power * (mantissa < 1.5 ? 1 : mantissa < 3.5 ? 2 : mantissa < 7.5 ? 5 : 10);
  if (!whole) return {low, high, tick};
  return {std::floor(low / tick) * tick, std::ceil(high / tick) * tick, tick};
}

std::string escaped(const std::string& text) {
  std::string out;
  for (char c : text) {
    if (c == '&') out += "&amp;";
    else if (c == '<') out += "&lt;";
    else if (c == '>') out += "&gt;";
    else if (static_cast<unsigned char>(c) < 32) out += ' ';
    else out += c;
  }
  return out;
}

std::string fixed(double value, int digits) {
  std::ostringstream out;
  out.setf(std::ios::fixed);
  out.precision(digits);
  out << value;
  return out.str();
}

// 12000 -> "12k", 2500000 -> "2.5M".
std::string step_text(double step) {
  const auto with_unit = [](double value, const char* unit) {
    std::string text = fixed(value, 1);
    if (text.ends_with(".0")) text.resize(text.size() - 2);
    return text + unit;
  };
  if (step >= 1e6) return with_unit(step / 1e6, "M");
  if (step >= 1e4) return with_unit(step / 1e3, "k");
  return fixed(step, 0);
}

int digits_of(double tick) { return std::max(0, static_cast<int>(-std::floor(std::log10(tick) + 1e-9))); }

// At most `count` points: means of runs of neighbours, so that a long noisy line stays readable and the file small.
std::vector<CurvePoint> thinned(std::span<const CurvePoint> points, std::size_t count) {
  std::vector<CurvePoint> finite;
  for (const CurvePoint& point : points)
    if (std::isfinite(point.step) && std::isfinite(point.value)) finite.push_back(point);
  if (finite.size() <= count) return finite;
  std::vector<CurvePoint> out;
  for (std::size_t group = 0; group < count; ++group) {
    const std::size_t begin = finite.size() * group / count, end = finite.size() * (group + 1) / count;
    CurvePoint mean;
    for (std::size_t i = begin; i < end; ++i) mean.step += finite[i].step, mean.value += finite[i].value;
    out.push_back({mean.step / static_cast<double>(end - begin), mean.value / static_cast<double>(end - begin)});
  }
  return out;
}

}  // namespace

std::string loss_curve_svg(const std::string& title, std::span<const CurvePoint> train,
                           std::span<const CurvePoint> valid) {
  constexpr double width = 760, height = 440, left = 64, right = 740, top = 76, bottom = 384;
  const std::vector<CurvePoint> lines[2] = {thinned(train, 400), thinned(valid, 400)};
  double last_step = 1, low = 0, high = 0;
  std::vector<double> values;
  for (const auto& line : lines)
    for (const CurvePoint& point : line) last_step = std::max(last_step, point.step), values.push_back(point.value);
  if (!values.empty()) {
    std::sort(values.begin(), values.end());
    low = values.front();
    // The first steps can be many times higher than all that follows; they may leave the picture at the top.
    high = std::min(values.back(), values[values.size() * 98 / 100] * 1.25);
  }
  const Axis steps = axis_over(0, last_step, 7, false), nats = axis_over(low, high, 6, true);
  const auto x_of = [&](double step) { return left + (right - left) * step / steps.high; };
  const auto y_of = [&](double value) {
    return std::clamp(bottom - (bottom - top) * (value - nats.low) / (nats.high - nats.low), top, bottom);
  };

  std::ostringstream out;
  out << "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 " << width << ' ' << height << "\" width=\"" << width
      << "\" height=\"" << height
      << "\" role=\"img\" font-family=\"system-ui, 'Noto Sans', 'Noto Sans CJK SC', sans-serif\" font-size=\"12\">\n"
      << "<title>" << escaped(title) << ": loss by step</title>\n"
      << "<style>\n"
      << "  .paper { fill: #ffffff; } .ink { fill: #1f2328; } .soft { fill: #656d76; }\n"
      << "  .grid { stroke: #d8dee4; stroke-width: 1; } .axis { stroke: #656d76; stroke-width: 1; }\n"
      << "  .train { stroke: #3b7dd8; fill: none; stroke-width: 1.6; stroke-linejoin: round; }\n"
      << "  .valid { stroke: #d9622b; fill: none; stroke-width: 2.2; stroke-linejoin: round; }\n"
      << "  .mark { fill: #d9622b; }\n"
      << "  @media (prefers-color-scheme: dark) {\n"
      << "    .paper { fill: #0d1117; } .ink { fill: #e6edf3; } .soft { fill: #8d96a0; }\n"
      << "    .grid { stroke: #30363d; } .axis { stroke: #8d96a0; }\n"
      << "    .train { stroke: #6cb0ff; } .valid { stroke: #ff9b62; } .mark { fill: #ff9b62; }\n"
      << "  }\n"
      << "</style>\n"
      << "<rect class=\"paper\" width=\"" << width << "\" height=\"" << height << "\" rx=\"6\"/>\n"
      << "<text class=\"ink\" x=\"" << left << "\" y=\"30\" font-size=\"16\" font-weight=\"600\">" << escaped(title)
      << "</text>\n";

  for (double value = nats.low; value <= nats.high + nats.tick / 2; value += nats.tick)
    out << "<line class=\"grid\" x1=\"" << left << "\" x2=\"" << right << "\" y1=\"" << fixed(y_of(value), 1)
        << "\" y2=\"" << fixed(y_of(value), 1) << "\"/><text class=\"soft\" x=\"" << left - 8 << "\" y=\""
        << fixed(y_of(value) + 4, 1) << "\" text-anchor=\"end\">" << fixed(value, digits_of(nats.tick)) << "</text>\n";
  for (double step = 0; step <= steps.high; step += steps.tick)
    out << "<line class=\"axis\" x1=\"" << fixed(x_of(step), 1) << "\" x2=\"" << fixed(x_of(step), 1) << "\" y1=\""
        << bottom << "\" y2=\"" << bottom + 5 << "\"/><text class=\"soft\" x=\"" << fixed(x_of(step), 1) << "\" y=\""
        << bottom + 20 << "\" text-anchor=\"middle\">" << step_text(step) << "</text>\n";
  out << "<line class=\"axis\" x1=\"" << left << "\" x2=\"" << right << "\" y1=\"" << bottom << "\" y2=\"" << bottom
      << "\"/>\n"
      << "<text class=\"soft\" x=\"" << (left + right) / 2 << "\" y=\"" << bottom + 42
      << "\" text-anchor=\"middle\">step</text>\n"
      << "<text class=\"soft\" x=\"18\" y=\"" << (top + bottom) / 2
      << "\" text-anchor=\"middle\" transform=\"rotate(-90 18 " << (top + bottom) / 2 << ")\">loss, nats</text>\n";

  const auto polyline = [&](const std::vector<CurvePoint>& points, const char* name) {
    if (points.size() < 2) return;
    out << "<polyline class=\"" << name << "\" points=\"";
    for (std::size_t i = 0; i < points.size(); ++i)
      out << (i ? " " : "") << fixed(x_of(points[i].step), 1) << ',' << fixed(y_of(points[i].value), 1);
    out << "\"/>\n";
  };
  polyline(lines[0], "train");
  polyline(lines[1], "valid");
  if (lines[1].size() <= 60)
    for (const CurvePoint& point : lines[1])
      out << "<circle class=\"mark\" cx=\"" << fixed(x_of(point.step), 1) << "\" cy=\"" << fixed(y_of(point.value), 1)
          << "\" r=\"2.6\"/>\n";

  double legend = left;
  const auto entry = [&](const char* name, std::string text, std::span<const CurvePoint> points) {
    if (points.empty()) return;
    text += ", last " + fixed(points.back().value, 3);
    out << "<line class=\"" << name << "\" x1=\"" << legend << "\" x2=\"" << legend + 24
        << "\" y1=\"52\" y2=\"52\"/><text class=\"ink\" x=\"" << legend + 31 << "\" y=\"56\">" << text << "</text>\n";
    legend += 50 + 7.0 * static_cast<double>(text.size());
  };
  entry("train", "training", train);
  std::string best = "validation";
  if (!valid.empty()) {
    const auto lowest = std::min_element(valid.begin(), valid.end(),
                                         [](const CurvePoint& a, const CurvePoint& b) { return a.value < b.value; });
    best += " (lowest " + fixed(lowest->value, 3) + " at " + fixed(lowest->step, 0) + ")";
  }
  entry("valid", best, valid);
  out << "</svg>\n";
  return out.str();
}

}  // namespace attend
