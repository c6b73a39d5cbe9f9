// Which instruction sets the kernels may use. Tests and benchmarks force one at a time.
#pragma once

#include <string>
#include <vector>

namespace attend {

// Names of the targets this machine can run and this build holds, best first, e.g. {"AVX3", "AVX2", "SSSE3"}.
std::vector<std::string> kernel_targets();

// Forces one target by name until called with "". Throws Error(argument) for a name that is not in kernel_targets().
void force_kernel_target(const std::string& name);

}  // namespace attend
