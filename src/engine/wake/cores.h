// Does every rank of this host have a core to itself? Such ranks may spin while they wait; ranks that share a core
// yield it.
#pragma once

#include <sched.h>

#include <cstdint>
#include <functional>
#include <vector>

namespace hvd::engine {

using CoreSet = std::vector<int>;  // numbers of cores

// Pure. allowed[i]: the cores that rank i may run on. True if the ranks can be put on different cores (a matching of
// ranks and cores, by augmenting paths; Kuhn 1955), at most ranks^2 x cores steps.
bool EachHasACore(const std::vector<CoreSet>& allowed);

// As sched_getaffinity(2).
using AskAffinity = std::function<int(pid_t pid, size_t bytes, cpu_set_t* set)>;

// The cores that the main thread of each process may run on now. 0 is this process: its main thread too, whichever
// thread calls, because that is what the other ranks see of it. A process that is out of sight (in another pid
// namespace) counts as bound like this one.
std::vector<CoreSet> CoresOf(const std::vector<int64_t>& pids, const AskAffinity& ask = sched_getaffinity);

// The cores that the calling thread may run on now.
CoreSet CoresOfThread();
// Puts the calling thread on one of them. Afterwards it may run where it could before: the kernel moves it again when
// it sees fit. Stays where it is if it may not run there.
void MoveThread(int core);

}  // namespace hvd::engine
