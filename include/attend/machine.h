// What the engine uses of this machine, for people.
#pragma once

#include <string>

namespace attend {

// The best instruction set that both this machine and this build have: "AVX-512", "AVX2", "SSE4", "NEON".
std::string instruction_set();

}  // namespace attend
