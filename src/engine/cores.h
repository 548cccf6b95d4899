// Does every rank of this host have a core that it can call its own? Who has may spin while it waits; who shares gives
// its core away.
#pragma once

#include <sched.h>

#include <cstdint>
#include <vector>

namespace hvd {

// Pure. allowed[i]: the cores that rank i may run on. True if the ranks can be put on different cores (a matching of
// ranks and cores, by augmenting paths; Kuhn 1955), at most ranks^2 x cores steps.
bool EachHasACore(const std::vector<cpu_set_t>& allowed);

// The cores that each process may run on now. A process that is out of sight (0, another pid namespace) counts as bound
// like this one.
std::vector<cpu_set_t> CoresOf(const std::vector<int64_t>& pids);

}  // namespace hvd
