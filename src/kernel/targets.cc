#include "kernel/targets.h"

#include <cstdint>

#include "attend/error.h"
#include "attend/machine.h"
#include "hwy/highway.h"

namespace attend {
namespace {

std::int64_t lowest_bit(std::int64_t bits) { return bits & -bits; }

// What the machine offers, whatever is forced at the moment.
std::int64_t offered_targets() {
  static const std::int64_t targets = [] {
    hwy::SetSupportedTargetsForTest(0);
    return hwy::SupportedTargets() & static_cast<std::int64_t>(HWY_TARGETS);
  }();
  return targets;
}

}  // namespace

std::vector<std::string> kernel_targets() {
  std::vector<std::string> names;
  // Better targets have lower bits.
  for (std::int64_t left = offered_targets(); left != 0; left &= left - 1)
    names.emplace_back(hwy::TargetName(lowest_bit(left)));
  return names;
}

std::string instruction_set() {
  const std::string target = kernel_targets().front();
  return target.starts_with("AVX3") ? "AVX-512" : target;
}

void force_kernel_target(const std::string& name) {
  const std::int64_t offered = offered_targets();
  std::int64_t chosen = name.empty() ? offered : 0;
  std::string known;
  for (std::int64_t left = offered; left != 0; left &= left - 1) {
    const char* target = hwy::TargetName(lowest_bit(left));
    if (name == target) chosen = lowest_bit(left);
    known += known.empty() ? target : join(", ", target);
  }
  if (chosen == 0)
    throw Error(ErrorKind::argument, "force_kernel_target",
                join("\"", name, "\" is not a target of this machine and build"),
                join("choose one of ", known, ", or \"\" for the best"));
  hwy::GetChosenTarget().Update(chosen);
}

}  // namespace attend
