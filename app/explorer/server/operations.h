// Single operations of the engine (POST /operation).
#pragma once

#include "attend/tensor.h"
#include "explorer/json_request.h"

namespace attend::explorer {

Tensor run_operation(const Json& body, const Limits& limits);

}  // namespace attend::explorer
