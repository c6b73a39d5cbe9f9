#include "attend/safetensors.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cerrno>
#include <cmath>
#include <cstring>
#include <functional>
#include <limits>
#include <nlohmann/json.hpp>
#include <tuple>

#include "attend/error.h"
#include "attend/names.h"
#include "core/file.h"
#include "model/json_fields.h"

namespace attend {
namespace {

static_assert(std::endian::native == std::endian::little, "safetensors files are little endian");

struct TypeName {
  NumberType type;
  const char* name;
  std::int64_t bytes;
};
constexpr std::array<TypeName, 13> types{{{NumberType::boolean, "BOOL", 1},
                                          {NumberType::uint8, "U8", 1},
                                          {NumberType::int8, "I8", 1},
                                          {NumberType::int16, "I16", 2},
                                          {NumberType::uint16, "U16", 2},
                                          {NumberType::int32, "I32", 4},
                                          {NumberType::uint32, "U32", 4},
                                          {NumberType::int64, "I64", 8},
                                          {NumberType::uint64, "U64", 8},
                                          {NumberType::float16, "F16", 2},
                                          {NumberType::bfloat16, "BF16", 2},
                                          {NumberType::float32, "F32", 4},
                                          {NumberType::float64, "F64", 8}}};

constexpr const char* damaged = "the file is damaged or no safetensors file; get it again";
// As many numbers as are converted at a time while reading and writing.
constexpr std::int64_t block_numbers = 1 << 16;

// Builds the entries while the header is parsed, so that a hostile header never becomes a tree in memory.
class HeaderReader final : public nlohmann::json_sax<nlohmann::json> {
 public:
  explicit HeaderReader(const std::string& source) : source_(source) {}

  std::vector<SafetensorsEntry> entries;
  std::map<std::string, std::string> metadata;

  bool null() override { return unexpected("null"); }
  bool boolean(bool) override { return unexpected("true or false"); }
  bool number_float(double, const std::string&) override { return unexpected("a fraction or a number too large"); }
  bool binary(binary_t&) override { return unexpected("binary"); }
  bool number_integer(std::int64_t) override { return unexpected("a negative number"); }

  bool number_unsigned(std::uint64_t value) override {
    if (place_ != Place::shape && place_ != Place::offsets) return unexpected("a number");
    if (value > static_cast<std::uint64_t>(std::numeric_limits<std::int64_t>::max()))
      return unexpected("a number too large");
    numbers_.push_back(static_cast<std::int64_t>(value));
    if (numbers_.size() > 64) refuse(join("tensor ", in_quotes(entry_.name), " has a list of more than 64 numbers"));
    return true;
  }

  bool string(std::string& value) override {
    if (place_ == Place::metadata_value) {
      if (!metadata.emplace(key_, value).second) refuse(join("metadata key ", in_quotes(key_), " appears twice"));
      place_ = Place::metadata;
      return true;
    }
    if (place_ != Place::type) return unexpected("a string");
    const auto found =
        std::find_if(types.begin(), types.end(), [&](const TypeName& each) { return value == each.name; });
    if (found == types.end())
      refuse(join("tensor ", in_quotes(entry_.name), " has dtype ", in_quotes(value), ", which is not supported"),
             "convert the file to F32, F16 or BF16");
    entry_.type = found->type;
    place_ = Place::tensor;
    return true;
  }

  bool start_object(std::size_t) override {
    if (place_ == Place::start) place_ = Place::top;
    else if (place_ == Place::metadata_object) place_ = Place::metadata;
    else if (place_ == Place::tensor_object) place_ = Place::tensor;
    else return unexpected("an object");
    return true;
  }

  bool key(std::string& value) override {
    if (place_ == Place::top) {
      if (value == "__metadata__") {
        if (metadata_seen_) refuse("\"__metadata__\" appears twice");
        metadata_seen_ = true;
        place_ = Place::metadata_object;
      } else {
        entry_ = {};
        entry_.name = value;
        type_seen_ = shape_seen_ = offsets_seen_ = false;
        place_ = Place::tensor_object;
      }
    } else if (place_ == Place::metadata) {
      key_ = value;
      place_ = Place::metadata_value;
    } else if (value == "dtype") {
      once(type_seen_, value, Place::type);
    } else if (value == "shape") {
      once(shape_seen_, value, Place::shape_list);
    } else if (value == "data_offsets") {
      once(offsets_seen_, value, Place::offsets_list);
    } else {
      refuse(join("tensor ", in_quotes(entry_.name), " has the unknown key ", in_quotes(value)));
    }
    return true;
  }

  bool start_array(std::size_t) override {
    numbers_.clear();
    if (place_ == Place::shape_list) place_ = Place::shape;
    else if (place_ == Place::offsets_list) place_ = Place::offsets;
    else return unexpected("a list");
    return true;
  }

  bool end_array() override {
    if (place_ == Place::shape) {
      entry_.shape = numbers_;
    } else {
      if (numbers_.size() != 2)
        refuse(
            join("tensor ", in_quotes(entry_.name), " has ", numbers_.size(), " data_offsets, expected begin and end"));
      entry_.begin = numbers_[0];
      entry_.end = numbers_[1];
    }
    place_ = Place::tensor;
    return true;
  }

  bool end_object() override {
    if (place_ == Place::tensor) {
      const char* missing = !type_seen_ ? "dtype" : !shape_seen_ ? "shape" : !offsets_seen_ ? "data_offsets" : nullptr;
      if (missing) refuse(join("tensor ", in_quotes(entry_.name), " has no ", missing));
      entries.push_back(std::move(entry_));
      place_ = Place::top;
    } else if (place_ == Place::metadata) {
      place_ = Place::top;
    }
    return true;
  }

  bool parse_error(std::size_t position, const std::string&, const nlohmann::json::exception&) override {
    refuse(join("the header is not JSON from byte ", position, " of it on"));
  }

 private:
  enum class Place {
    start,
    top,
    metadata_object,
    metadata,
    metadata_value,
    tensor_object,
    tensor,
    type,
    shape_list,
    shape,
    offsets_list,
    offsets,
  };

  [[noreturn]] void refuse(const std::string& what, const char* advice = damaged) const {
    throw Error(ErrorKind::format, source_, what, advice);
  }
  bool unexpected(const char* found) const {
    const char* where = "";
    const char* expected = "one JSON object";
    switch (place_) {
      case Place::start:
        break;
      case Place::top:
        break;
      case Place::metadata_object:
        where = "__metadata__", expected = "an object of strings";
        break;
      case Place::metadata:
      case Place::metadata_value:
        where = "__metadata__", expected = "only strings";
        break;
      case Place::tensor_object:
      case Place::tensor:
        expected = "an object with dtype, shape and data_offsets";
        break;
      case Place::type:
        where = "dtype", expected = "a string";
        break;
      case Place::shape_list:
      case Place::shape:
        where = "shape", expected = "a list of sizes, 0 or above";
        break;
      case Place::offsets_list:
      case Place::offsets:
        where = "data_offsets", expected = "a list of two offsets, 0 or above";
        break;
    }
    const bool tensor = place_ >= Place::tensor_object;
    refuse(join("the header holds ", found,
                tensor ? join(" at ", *where ? join(where, " of ") : "", "tensor ", in_quotes(entry_.name))
                       : join(*where ? " in " : "", where),
                ", expected ", expected));
  }
  void once(bool& seen, const std::string& name, Place next) {
    if (seen) refuse(join("tensor ", in_quotes(entry_.name), " has ", name, " twice"));
    seen = true;
    place_ = next;
  }

  const std::string& source_;
  Place place_ = Place::start;
  SafetensorsEntry entry_;
  std::string key_;
  std::vector<std::int64_t> numbers_;
  bool metadata_seen_ = false, type_seen_ = false, shape_seen_ = false, offsets_seen_ = false;
};

// Every rule about names, sizes and places. `data_bytes` is what follows the header. Sorts the entries by name.
void check_entries(std::vector<SafetensorsEntry>& entries, std::int64_t data_bytes, const std::string& source) {
  for (SafetensorsEntry& entry : entries) {
    std::int64_t bytes = bytes_of(entry.type);
    entry.elements = 1;
    bool empty = false, overflow = false;
    for (std::int64_t size : entry.shape) {
      empty = empty || size == 0;
      overflow = overflow || __builtin_mul_overflow(bytes, size, &bytes) ||
                 __builtin_mul_overflow(entry.elements, size, &entry.elements);
    }
    if (overflow && !empty)
      throw Error(ErrorKind::format, source,
                  join("tensor ", in_quotes(entry.name), " has shape ", shape_text(entry.shape),
                       ", more numbers than there can be"),
                  damaged);
    if (empty) entry.elements = bytes = 0;
    if (entry.begin > entry.end || entry.end > data_bytes)
      throw Error(ErrorKind::format, source,
                  join("tensor ", in_quotes(entry.name), " lies at bytes ", entry.begin, " to ", entry.end,
                       ", but the file holds ", data_bytes, " bytes of numbers"),
                  entry.begin > entry.end ? damaged : "the file was cut short or is damaged; get it again");
    if (entry.end - entry.begin != bytes)
      throw Error(
          ErrorKind::format, source,
          join("tensor ", in_quotes(entry.name), " of shape ", shape_text(entry.shape), " and dtype ",
               name_of(entry.type), " needs ", bytes, " bytes, but its data_offsets span ", entry.end - entry.begin),
          damaged);
  }

  std::vector<const SafetensorsEntry*> places;
  for (const SafetensorsEntry& entry : entries) places.push_back(&entry);
  std::sort(places.begin(), places.end(), [](const auto* a, const auto* b) {
    return std::tie(a->begin, a->end, a->name) < std::tie(b->begin, b->end, b->name);
  });
  std::int64_t at = 0;
  const SafetensorsEntry* before = nullptr;
  for (const SafetensorsEntry* entry : places) {
    if (entry->begin < at)
      throw Error(
          ErrorKind::format, source,
          join("tensors ", in_quotes(before->name), " and ", in_quotes(entry->name), " overlap at byte ", entry->begin),
          damaged);
    if (entry->begin > at)
      throw Error(
          ErrorKind::format, source,
          join("bytes ", at, " to ", entry->begin, " before tensor ", in_quotes(entry->name), " belong to no tensor"),
          damaged);
    at = entry->end;
    before = entry;
  }
  if (at != data_bytes)
    throw Error(ErrorKind::format, source, join(data_bytes - at, " bytes after the last tensor belong to no tensor"),
                damaged);

  std::sort(entries.begin(), entries.end(), [](const auto& a, const auto& b) { return a.name < b.name; });
  for (std::size_t i = 1; i < entries.size(); ++i)
    if (entries[i].name == entries[i - 1].name)
      throw Error(ErrorKind::format, source, join("tensor ", in_quotes(entries[i].name), " appears twice"), damaged);
}

template <typename Number>
Number number_at(const char* bytes, std::int64_t index) {
  Number value;
  std::memcpy(&value, bytes + index * static_cast<std::int64_t>(sizeof(Number)), sizeof(Number));
  return value;
}

std::string index_text(std::int64_t index, const Shape& shape) {
  std::string text = "]";
  for (int axis = shape.axes() - 1; axis >= 0; --axis) {
    const std::int64_t size = std::max<std::int64_t>(shape[axis], 1);
    text = join(axis ? ", " : "[", index % size, text);
    index /= size;
  }
  return text;
}

}  // namespace

const char* name_of(NumberType type) {
  for (const TypeName& each : types)
    if (each.type == type) return each.name;
  return "unknown";
}

std::int64_t bytes_of(NumberType type) {
  for (const TypeName& each : types)
    if (each.type == type) return each.bytes;
  return 0;
}

std::string shape_text(std::span<const std::int64_t> shape) {
  std::string text = "[";
  for (std::size_t axis = 0; axis < shape.size(); ++axis) text += join(axis ? ", " : "", shape[axis]);
  return text + "]";
}

struct SafetensorsFile::State {
  std::string source;
  int descriptor = -1;  // or the bytes in memory
  std::string bytes;
  std::int64_t size = 0, data_begin = 0;
  std::vector<SafetensorsEntry> entries;
  std::map<std::string, std::string> metadata;

  ~State() {
    if (descriptor >= 0) ::close(descriptor);
  }

  void read_at(std::int64_t offset, char* target, std::int64_t count) const {
    if (descriptor < 0) {
      std::memcpy(target, bytes.data() + offset, static_cast<std::size_t>(count));
      return;
    }
    while (count > 0) {
      const ssize_t done = ::pread(descriptor, target, static_cast<std::size_t>(count), static_cast<off_t>(offset));
      if (done < 0 && errno == EINTR) continue;
      if (done < 0) throw Error(ErrorKind::file, source, join("cannot read: ", std::strerror(errno)));
      if (done == 0)
        throw Error(ErrorKind::file, source,
                    join("ends at byte ", offset, " although it had ", size, " bytes when it was opened"),
                    "another program is writing to it; try again when that is done");
      target += done;
      offset += done;
      count -= done;
    }
  }

  void read_header() {
    if (size < 8)
      throw Error(ErrorKind::format, source, join("holds ", size, " bytes, a safetensors file has 8 or more"), damaged);
    std::array<char, 8> length_bytes{};
    read_at(0, length_bytes.data(), 8);
    const auto length = number_at<std::uint64_t>(length_bytes.data(), 0);
    if (length > static_cast<std::uint64_t>(longest_header))
      throw Error(ErrorKind::format, source,
                  join("says its header has ", length, " bytes, more than the limit of ", longest_header), damaged);
    if (length > static_cast<std::uint64_t>(size - 8))
      throw Error(ErrorKind::format, source,
                  join("says its header has ", length, " bytes, but only ", size - 8, " follow"),
                  "the file was cut short or is damaged; get it again");
    if (length < 2)
      throw Error(ErrorKind::format, source, join("says its header has ", length, " bytes, 2 at least are needed"),
                  damaged);
    std::string header(length, '\0');
    read_at(8, header.data(), static_cast<std::int64_t>(length));
    if (header[0] != '{') throw Error(ErrorKind::format, source, "the header does not begin with {", damaged);
    HeaderReader reader(source);
    nlohmann::json::sax_parse(header, &reader);
    data_begin = 8 + static_cast<std::int64_t>(length);
    check_entries(reader.entries, size - data_begin, source);
    entries = std::move(reader.entries);
    metadata = std::move(reader.metadata);
  }

  // Hands out the bytes of an entry block by block.
  template <typename Take>
  void each_block(const SafetensorsEntry& entry, const Take& take) const {
    const std::int64_t width = bytes_of(entry.type);
    std::vector<char> block(static_cast<std::size_t>(std::min(entry.elements, block_numbers) * width));
    for (std::int64_t first = 0; first < entry.elements; first += block_numbers) {
      const std::int64_t count = std::min(block_numbers, entry.elements - first);
      read_at(data_begin + entry.begin + first * width, block.data(), count * width);
      take(first, count, block.data());
    }
  }
};

SafetensorsFile::SafetensorsFile(const std::filesystem::path& path) : state_(std::make_unique<State>()) {
  state_->source = path.string();
  state_->descriptor = ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  struct stat status {};
  if (state_->descriptor < 0 || ::fstat(state_->descriptor, &status) != 0)
    throw Error(ErrorKind::file, state_->source, join("cannot open: ", std::strerror(errno)));
  if (!S_ISREG(status.st_mode))
    throw Error(ErrorKind::file, state_->source, "is not a file", "give the path of a .safetensors file");
  state_->size = status.st_size;
  state_->read_header();
}

SafetensorsFile::SafetensorsFile(std::string bytes, std::string source) : state_(std::make_unique<State>()) {
  state_->source = std::move(source);
  state_->bytes = std::move(bytes);
  state_->size = static_cast<std::int64_t>(state_->bytes.size());
  state_->read_header();
}

SafetensorsFile::~SafetensorsFile() = default;
SafetensorsFile::SafetensorsFile(SafetensorsFile&&) noexcept = default;
SafetensorsFile& SafetensorsFile::operator=(SafetensorsFile&&) noexcept = default;

const std::vector<SafetensorsEntry>& SafetensorsFile::entries() const { return state_->entries; }
const std::map<std::string, std::string>& SafetensorsFile::metadata() const { return state_->metadata; }
const std::string& SafetensorsFile::source() const { return state_->source; }

bool SafetensorsFile::has(const std::string& name) const {
  const auto found =
      std::lower_bound(state_->entries.begin(), state_->entries.end(), name,
                       [](const SafetensorsEntry& entry, const std::string& key) { return entry.name < key; });
  return found != state_->entries.end() && found->name == name;
}

const SafetensorsEntry& SafetensorsFile::entry(const std::string& name) const {
  const auto found =
      std::lower_bound(state_->entries.begin(), state_->entries.end(), name,
                       [](const SafetensorsEntry& entry, const std::string& key) { return entry.name < key; });
  if (found != state_->entries.end() && found->name == name) return *found;
  std::vector<std::string> names;
  for (const SafetensorsEntry& entry : state_->entries) names.push_back(entry.name);
  const std::string near = nearest_name(name, names);
  throw Error(ErrorKind::format, state_->source, join("has no tensor ", in_quotes(name), " among its ", names.size()),
              near.empty() ? "" : join("did you mean ", in_quotes(near), "?"));
}

void SafetensorsFile::read(const SafetensorsEntry& entry, std::span<float> values) const {
  if (static_cast<std::int64_t>(values.size()) != entry.elements)
    throw Error(
        ErrorKind::argument, "SafetensorsFile::read",
        join("tensor ", in_quotes(entry.name), " has ", entry.elements, " numbers, room is given for ", values.size()));
  float* out = values.data();
  switch (entry.type) {
    case NumberType::float32:
      state_->read_at(state_->data_begin + entry.begin, reinterpret_cast<char*>(out), entry.elements * 4);
      return;
    case NumberType::float64:
      return state_->each_block(entry, [&](std::int64_t first, std::int64_t count, const char* bytes) {
        for (std::int64_t i = 0; i < count; ++i) out[first + i] = static_cast<float>(number_at<double>(bytes, i));
      });
    case NumberType::float16:
      return state_->each_block(entry, [&](std::int64_t first, std::int64_t count, const char* bytes) {
        for (std::int64_t i = 0; i < count; ++i) out[first + i] = float16_to_float(number_at<std::uint16_t>(bytes, i));
      });
    case NumberType::bfloat16:
      return state_->each_block(entry, [&](std::int64_t first, std::int64_t count, const char* bytes) {
        for (std::int64_t i = 0; i < count; ++i) out[first + i] = bfloat16_to_float(number_at<std::uint16_t>(bytes, i));
      });
    default:
      throw Error(
          ErrorKind::format, state_->source,
          join("tensor ", in_quotes(entry.name), " holds ", name_of(entry.type), ", expected F32, F16, BF16 or F64"));
  }
}

Tensor SafetensorsFile::tensor(const std::string& name) const {
  const SafetensorsEntry& found = entry(name);
  const auto& sizes = found.shape;
  Shape shape;
  switch (sizes.size()) {
    case 0:
      shape = {1};
      break;
    case 1:
      shape = {sizes[0]};
      break;
    case 2:
      shape = {sizes[0], sizes[1]};
      break;
    case 3:
      shape = {sizes[0], sizes[1], sizes[2]};
      break;
    case 4:
      shape = {sizes[0], sizes[1], sizes[2], sizes[3]};
      break;
    default:
      throw Error(
          ErrorKind::format, state_->source,
          join("tensor ", in_quotes(name), " has ", sizes.size(), " axes ", shape_text(sizes), ", at most 4 are read"));
  }
  Tensor value = Tensor::empty(shape);
  read(found, {value.data(), static_cast<std::size_t>(found.elements)});
  return value;
}

std::vector<std::int64_t> SafetensorsFile::integers(const std::string& name) const {
  const SafetensorsEntry& found = entry(name);
  std::vector<std::int64_t> values;
  const auto collect = [&]<typename Number>(Number) {
    values.resize(static_cast<std::size_t>(found.elements));
    state_->each_block(found, [&](std::int64_t first, std::int64_t count, const char* bytes) {
      for (std::int64_t i = 0; i < count; ++i) {
        const auto value = number_at<Number>(bytes, i);
        if constexpr (std::is_same_v<Number, std::uint64_t>)
          if (value > static_cast<std::uint64_t>(std::numeric_limits<std::int64_t>::max()))
            throw Error(ErrorKind::format, state_->source,
                        join("tensor ", in_quotes(name), " holds ", value, ", too large to read"));
        values[static_cast<std::size_t>(first + i)] = static_cast<std::int64_t>(value);
      }
    });
  };
  switch (found.type) {
    case NumberType::boolean:
    case NumberType::uint8:
      collect(std::uint8_t{});
      break;
    case NumberType::int8:
      collect(std::int8_t{});
      break;
    case NumberType::int16:
      collect(std::int16_t{});
      break;
    case NumberType::uint16:
      collect(std::uint16_t{});
      break;
    case NumberType::int32:
      collect(std::int32_t{});
      break;
    case NumberType::uint32:
      collect(std::uint32_t{});
      break;
    case NumberType::int64:
      collect(std::int64_t{});
      break;
    case NumberType::uint64:
      collect(std::uint64_t{});
      break;
    default:
      throw Error(ErrorKind::format, state_->source,
                  join("tensor ", in_quotes(name), " holds ", name_of(found.type), ", expected an integer type"));
  }
  return values;
}

void require_finite(const std::string& source, const std::string& name, const Tensor& value) {
  const std::int64_t width = value.width();
  for (std::int64_t row = 0; row < value.rows(); ++row) {
    const float* numbers = value.row(row);
    for (std::int64_t column = 0; column < width; ++column)
      if (!std::isfinite(numbers[column]))
        throw Error(ErrorKind::numeric, source,
                    join("tensor ", in_quotes(name), " holds ", std::isnan(numbers[column]) ? "NaN" : "infinity",
                         " at ", index_text(row * width + column, value.shape())),
                    "the file is damaged, or the training that made it diverged");
  }
}

namespace {

using Take = std::function<void(std::string_view)>;

// Calls `take` with header and numbers, in pieces.
void produce(std::vector<NamedTensor>& tensors, const std::map<std::string, std::string>& metadata,
             const std::string& source, const Take& take) {
  std::sort(tensors.begin(), tensors.end(), [](const NamedTensor& a, const NamedTensor& b) {
    const std::int64_t a_bytes = bytes_of(a.type), b_bytes = bytes_of(b.type);
    return a_bytes != b_bytes ? a_bytes > b_bytes : a.name < b.name;
  });

  nlohmann::json header = nlohmann::json::object();
  if (!metadata.empty()) header["__metadata__"] = metadata;
  std::int64_t at = 0;
  for (const NamedTensor& tensor : tensors) {
    if (tensor.type != NumberType::float32 && tensor.type != NumberType::float16 && tensor.type != NumberType::bfloat16)
      throw Error(ErrorKind::argument, source,
                  join("tensor ", in_quotes(tensor.name), " is to be written as ", name_of(tensor.type)),
                  "F32, F16 and BF16 can be written");
    if (!tensor.value.defined())
      throw Error(ErrorKind::argument, source, join("tensor ", in_quotes(tensor.name), " is undefined"));
    if (tensor.name == "__metadata__" || header.contains(tensor.name))
      throw Error(ErrorKind::argument, source,
                  join("tensor name ", in_quotes(tensor.name), " is given twice or reserved"));
    nlohmann::json shape = nlohmann::json::array();
    for (int axis = 0; axis < tensor.value.shape().axes(); ++axis) shape.push_back(tensor.value.shape()[axis]);
    const std::int64_t end = at + tensor.value.elements() * bytes_of(tensor.type);
    header[tensor.name] = {{"dtype", name_of(tensor.type)}, {"shape", shape}, {"data_offsets", {at, end}}};
    at = end;
  }
  std::string text;
  try {
    text = header.dump();
  } catch (const nlohmann::json::exception&) {
    throw Error(ErrorKind::argument, source, "a tensor name or metadata is not UTF-8");
  }
  text.resize((text.size() + 7) / 8 * 8, ' ');
  if (static_cast<std::int64_t>(text.size()) > SafetensorsFile::longest_header)
    throw Error(ErrorKind::argument, source,
                join("the header would have ", text.size(), " bytes, more than the limit of ",
                     SafetensorsFile::longest_header));
  const std::uint64_t length = text.size();
  std::array<char, 8> length_bytes{};
  std::memcpy(length_bytes.data(), &length, 8);
  take({length_bytes.data(), 8});
  take(text);

  std::vector<std::uint16_t> halves;
  for (const NamedTensor& tensor : tensors) {
    const std::int64_t width = tensor.value.width();
    for (std::int64_t row = 0; row < tensor.value.rows(); ++row) {
      const float* numbers = tensor.value.row(row);
      if (tensor.type == NumberType::float32) {
        take({reinterpret_cast<const char*>(numbers), static_cast<std::size_t>(width) * 4});
        continue;
      }
      halves.resize(static_cast<std::size_t>(width));
      for (std::int64_t i = 0; i < width; ++i) {
        const bool half = tensor.type == NumberType::float16;
        const std::uint16_t bits = half ? float_to_float16(numbers[i]) : float_to_bfloat16(numbers[i]);
        if (std::isfinite(numbers[i]) && !std::isfinite(half ? float16_to_float(bits) : bfloat16_to_float(bits)))
          throw Error(ErrorKind::numeric, source,
                      join("tensor ", in_quotes(tensor.name), " holds ", numbers[i], " at ",
                           index_text(row * width + i, tensor.value.shape()), ", too large for ", name_of(tensor.type)),
                      half ? "save as F32 or BF16" : "save as F32");
        halves[static_cast<std::size_t>(i)] = bits;
      }
      take({reinterpret_cast<const char*>(halves.data()), halves.size() * 2});
    }
  }
}

}  // namespace

void write_safetensors(const std::filesystem::path& path, std::vector<NamedTensor> tensors,
                       const std::map<std::string, std::string>& metadata) {
  write_file(path, [&](const Take& take) {
    // Rows can be short; the system is asked for fewer, longer writes.
    std::string waiting;
    const std::size_t most = std::size_t{1} << 20;
    produce(tensors, metadata, path.string(), [&](std::string_view bytes) {
      if (waiting.size() + bytes.size() > most) {
        take(waiting);
        waiting.clear();
      }
      if (bytes.size() > most) take(bytes);
      else waiting += bytes;
    });
    take(waiting);
  });
}

std::string safetensors_bytes(std::vector<NamedTensor> tensors, const std::map<std::string, std::string>& metadata) {
  std::string result;
  produce(tensors, metadata, "safetensors", [&](std::string_view bytes) { result += bytes; });
  return result;
}

}  // namespace attend
