// SVG to PNG through librsvg, cairo and pango, which are loaded when the first PNG is asked for: whoever only trains or
// translates links no graphics. Their headers would bring 120 packages, so the few functions are declared here as their
// stable C interfaces have them (librsvg 2.46 of 2019 and later).
#include <dlfcn.h>
#include <zlib.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <memory>
#include <set>

#include "attend/error.h"
#include "attend/pictures.h"
#include "attend/unicode.h"
#include "inspect/pictures/svg.h"
#include "inspect/pictures/text.h"

namespace attend {

using namespace pictures;

namespace {

constexpr double most_side = 32767;    // cairo's limit
constexpr double most_pixels = 256e6;  // 1 GiB of memory
constexpr double dots_per_inch = 96;   // of an SVG pixel, by the standard

struct GlibError {
  std::uint32_t domain;
  int code;
  char* message;
};
struct Rectangle {
  double x, y, width, height;
};

class Library {
 public:
  explicit Library(const char* name) : handle_(dlopen(name, RTLD_NOW | RTLD_LOCAL)) {
    if (!handle_) missing(dlerror());
  }
  template <typename Function>
  void bind(Function*& function, const char* name) const {
    function = reinterpret_cast<Function*>(dlsym(handle_, name));
    if (!function) missing(dlerror());
  }

 private:
  [[noreturn]] static void missing(const char* reason) {
    throw Error(ErrorKind::file, "PNG picture",
                join("the graphics library cannot be loaded (", reason ? reason : "no reason given", ")"),
                "install librsvg2-2 (Debian), or write SVG");
  }
  void* handle_;  // never closed: GLib keeps its types for the life of the process
};

struct Graphics {
  void* (*rsvg_handle_new_from_data)(const unsigned char*, std::size_t, GlibError**);
  int (*rsvg_handle_render_document)(void*, void*, const Rectangle*, GlibError**);
  void* (*cairo_image_surface_create)(int, int, int);
  int (*cairo_surface_status)(void*);
  int (*cairo_surface_write_to_png_stream)(void*, int (*)(void*, const unsigned char*, unsigned), void*);
  void (*cairo_surface_destroy)(void*);
  void* (*cairo_create)(void*);
  int (*cairo_status)(void*);
  void (*cairo_destroy)(void*);
  void* (*pango_cairo_font_map_get_default)();
  void* (*pango_font_map_create_context)(void*);
  void* (*pango_layout_new)(void*);
  void (*pango_layout_set_text)(void*, const char*, int);
  int (*pango_layout_get_unknown_glyphs_count)(void*);
  void* (*pango_font_description_from_string)(const char*);
  void (*pango_layout_set_font_description)(void*, const void*);
  void (*pango_font_description_free)(void*);
  void (*g_object_unref)(void*);
  void (*g_error_free)(GlibError*);

  Graphics() {
    const Library rsvg("librsvg-2.so.2"), cairo("libcairo.so.2"), pango_cairo("libpangocairo-1.0.so.0"),
        pango("libpango-1.0.so.0"), object("libgobject-2.0.so.0"), glib("libglib-2.0.so.0");
    rsvg.bind(rsvg_handle_new_from_data, "rsvg_handle_new_from_data");
    rsvg.bind(rsvg_handle_render_document, "rsvg_handle_render_document");
    cairo.bind(cairo_image_surface_create, "cairo_image_surface_create");
    cairo.bind(cairo_surface_status, "cairo_surface_status");
    cairo.bind(cairo_surface_write_to_png_stream, "cairo_surface_write_to_png_stream");
    cairo.bind(cairo_surface_destroy, "cairo_surface_destroy");
    cairo.bind(cairo_create, "cairo_create");
    cairo.bind(cairo_status, "cairo_status");
    cairo.bind(cairo_destroy, "cairo_destroy");
    pango_cairo.bind(pango_cairo_font_map_get_default, "pango_cairo_font_map_get_default");
    pango.bind(pango_font_map_create_context, "pango_font_map_create_context");
    pango.bind(pango_layout_new, "pango_layout_new");
    pango.bind(pango_layout_set_text, "pango_layout_set_text");
    pango.bind(pango_layout_get_unknown_glyphs_count, "pango_layout_get_unknown_glyphs_count");
    pango.bind(pango_font_description_from_string, "pango_font_description_from_string");
    pango.bind(pango_layout_set_font_description, "pango_layout_set_font_description");
    pango.bind(pango_font_description_free, "pango_font_description_free");
    object.bind(g_object_unref, "g_object_unref");
    glib.bind(g_error_free, "g_error_free");
  }
};

const Graphics& graphics() {
  static const Graphics loaded;
  return loaded;
}

[[noreturn]] void refuse(GlibError* error, const char* doing) {
  const std::string reason = error ? error->message : "no reason given";
  if (error) graphics().g_error_free(error);
  throw Error(ErrorKind::format, "PNG picture", join("librsvg could not ", doing, " the picture: ", clean(reason)),
              "give an SVG that Attend wrote");
}

// The number in `name="..."` of the first tag; 0 if it is not there.
double size_of(std::string_view svg, std::string_view name) {
  const std::size_t open = svg.find("<svg");
  if (open == std::string_view::npos) return 0;
  const std::string_view tag = svg.substr(open, svg.find('>', open) - open);
  const std::string attribute = join(" ", name, "=\"");
  const std::size_t at = tag.find(attribute);
  return at == std::string_view::npos
             ? 0
             : std::strtod(std::string(tag.substr(at + attribute.size(), 20)).c_str(), nullptr);
}

// What <text> elements draw, tooltips left out.
std::set<char32_t> drawn_characters(std::string_view svg) {
  std::set<char32_t> characters;
  for (std::size_t at = svg.find("<text"); at != std::string_view::npos; at = svg.find("<text", at)) {
    const std::size_t begin = svg.find('>', at), end = svg.find("</text>", at);
    if (begin == std::string_view::npos || end == std::string_view::npos || begin > end) break;
    std::string_view inside = svg.substr(begin + 1, end - begin - 1);
    if (const std::size_t tooltip = inside.find("</title>"); tooltip != std::string_view::npos)
      inside.remove_prefix(tooltip + 8);
    for (char32_t c : characters_of(replace_invalid_utf8(inside))) characters.insert(c);
    at = end;
  }
  return characters;
}

std::string missing_in(std::string_view svg) {
  const Graphics& g = graphics();
  void* context = g.pango_font_map_create_context(g.pango_cairo_font_map_get_default());
  void* layout = g.pango_layout_new(context);
  void* font = g.pango_font_description_from_string(join(font_families(), " 12").c_str());
  g.pango_layout_set_font_description(layout, font);
  std::string missing;
  for (char32_t c : drawn_characters(svg)) {
    if (c <= 0x20 || display_width(text_of(std::vector<char32_t>{c})) == 0) continue;  // alone, a mark has no shape
    const std::string text = text_of(std::vector<char32_t>{c});
    g.pango_layout_set_text(layout, text.data(), static_cast<int>(text.size()));
    if (g.pango_layout_get_unknown_glyphs_count(layout) > 0) missing += text;
  }
  g.pango_font_description_free(font);
  g.g_object_unref(layout);
  g.g_object_unref(context);
  return missing;
}

std::string four_bytes(std::uint32_t value) {
  return {static_cast<char>(value >> 24), static_cast<char>(value >> 16), static_cast<char>(value >> 8),
          static_cast<char>(value)};
}

// The chunk that tells how large a pixel is, between header and data.
void insert_resolution(std::string& png, double scale) {
  const std::string dots = four_bytes(static_cast<std::uint32_t>(std::lround(scale * dots_per_inch / 0.0254)));
  const std::string data = join("pHYs", dots, dots, '\1');
  const auto check_sum =
      static_cast<std::uint32_t>(crc32_z(0, reinterpret_cast<const Bytef*>(data.data()), data.size()));
  png.insert(33, join(four_bytes(9), data, four_bytes(check_sum)));
}

}  // namespace

PngImage png_of(const std::string& svg, double scale) {
  const double width = size_of(svg, "width"), height = size_of(svg, "height");
  if (!(width > 0 && height > 0))
    throw Error(ErrorKind::format, "PNG picture", "this is no SVG with width and height",
                "give an SVG that Attend wrote");
  // Rounded down: a fraction of the margin may go, and no pixel at the edge is half transparent.
  const double across = std::max(1.0, std::floor(width * scale + 1e-9)),
               down = std::max(1.0, std::floor(height * scale + 1e-9));
  if (!(scale > 0) || !(across <= most_side && down <= most_side && across * down <= most_pixels))
    throw Error(ErrorKind::argument, "PNG picture",
                join("a picture of ", width, " x ", height, " at scale ", scale, " would be ", across, " x ", down,
                     " pixels; at most ", most_side, " a side and ", most_pixels / 1e6, " million in all are possible"),
                "choose another scale");
  const Graphics& g = graphics();
  GlibError* error = nullptr;
  const std::unique_ptr<void, void (*)(void*)> handle(
      g.rsvg_handle_new_from_data(reinterpret_cast<const unsigned char*>(svg.data()), svg.size(), &error),
      [](void* object) {
        if (object) graphics().g_object_unref(object);
      });
  if (!handle) refuse(error, "read");

  PngImage image;
  image.width = static_cast<int>(across);
  image.height = static_cast<int>(down);
  const std::unique_ptr<void, void (*)(void*)> surface(
      g.cairo_image_surface_create(0 /* ARGB32 */, image.width, image.height), g.cairo_surface_destroy);
  const std::unique_ptr<void, void (*)(void*)> context(g.cairo_create(surface.get()), g.cairo_destroy);
  if (g.cairo_surface_status(surface.get()) != 0 || g.cairo_status(context.get()) != 0)
    throw Error(ErrorKind::argument, "PNG picture",
                join("there is no memory for ", image.width, " x ", image.height, " pixels"), "choose a smaller scale");
  const Rectangle whole{0, 0, width * scale, height * scale};
  if (!g.rsvg_handle_render_document(handle.get(), context.get(), &whole, &error)) refuse(error, "draw");
  const auto append = [](void* bytes, const unsigned char* data, unsigned size) {
    static_cast<std::string*>(bytes)->append(reinterpret_cast<const char*>(data), size);
    return 0;
  };
  if (g.cairo_surface_write_to_png_stream(surface.get(), append, &image.bytes) != 0 || image.bytes.size() < 33)
    throw Error(ErrorKind::argument, "PNG picture", "cairo could not write the picture", "choose a smaller scale");
  insert_resolution(image.bytes, scale);
  image.missing = missing_in(svg);
  return image;
}

}  // namespace attend
