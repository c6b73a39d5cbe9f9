// Attributions as part of an inspection.
#pragma once

#include <vector>

#include "attend/inspect.h"

namespace attend {

// Adds what options.attribution asks for, of the attentions and layers that `shown` already has. The groups are those of
// its texts; empty where there is no such stack.
void add_attributions(const ModelFolder& folder, const Subject& subject, const InspectOptions& options,
                      const std::vector<TokenGroup>& source, const std::vector<TokenGroup>& target, Inspection& shown);

}  // namespace attend
