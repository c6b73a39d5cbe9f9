#include "attend/fingerprint.h"

#include <bit>

#include "core/hash.h"

namespace attend {

std::string fingerprint(const Model& model) {
  WordHash hash;
  hash.text(to_json(model.config()));
  for (const Parameter& parameter : model.parameters()) {
    hash.text(parameter.name);
    const float* numbers = parameter.value.data();
    for (std::int64_t i = 0; i < parameter.value.elements(); ++i) hash.number(std::bit_cast<std::uint32_t>(numbers[i]));
  }
  return hexadecimal(hash.value());
}

std::string fingerprint(std::span<const std::int32_t> ids) {
  ByteHash hash;
  hash.number(ids.size());
  for (const std::int32_t id : ids) hash.number(static_cast<std::uint32_t>(id));
  return hexadecimal(hash.value());
}

std::string fingerprint(const TokenBatch& tokens) {
  ByteHash hash;
  hash.number(static_cast<std::uint64_t>(tokens.items()));
  for (std::int64_t item = 0; item < tokens.items(); ++item) {
    hash.number(static_cast<std::uint64_t>(tokens.length(item)));
    for (std::int64_t row = tokens.offsets[static_cast<std::size_t>(item)];
         row < tokens.offsets[static_cast<std::size_t>(item) + 1]; ++row)
      hash.number(static_cast<std::uint32_t>(tokens.ids[static_cast<std::size_t>(row)]));
  }
  return hexadecimal(hash.value());
}

std::string fingerprint_of(std::span<const std::string> fingerprints) {
  ByteHash hash;
  hash.number(fingerprints.size());
  for (const std::string& each : fingerprints) hash.text(each);
  return hexadecimal(hash.value());
}

}  // namespace attend
