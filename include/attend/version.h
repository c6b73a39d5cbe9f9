#pragma once

namespace attend {

// "0.1.0"
const char* version();

}  // namespace attend
