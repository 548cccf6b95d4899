// Two levels: the programs of collective/hosts, for hosts of equally many ranks, all of which are owners where the
// bytes are worth it. What the members of a host do for one another is a time; what travels between hosts are the
// plans.
#pragma once

#include "program.h"

namespace hvd::simulate {

// As the host backend decides.
bool TwoLevelPays(const std::string& operation, size_t bytes, const Layout& layout);

Program TwoLevel(const std::string& operation, size_t bytes, const Layout& layout, int rank, const Costs& costs);

}  // namespace hvd::simulate
