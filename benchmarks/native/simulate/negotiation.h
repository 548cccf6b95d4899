// Negotiation: what one step of cached tensors costs the nodes of a job, with the real Node of each rank. No sockets,
// no threads; processor time is that of this thread, per node.
#pragma once

#include <cstdint>
#include <vector>

#include "costs.h"

namespace hvd::simulate {

inline constexpr int64_t kFusionBytes = int64_t{128} << 20;  // HOROVOD_FUSION_THRESHOLD's default

struct Load {
  Layout layout;
  int tensors = 1000;
  int capacity = -1;  // names that the negotiation remembers; -1: all
  int bursts = 1;     // portions in which each rank submits
};

// Medians of several steps.
struct NegotiationCost {
  double busiest_s = 0, root_s = 0, mean_s = 0;  // of a processor, for a node
  long root_frames = 0, root_bytes = 0;          // that come to the root
  long down_bytes = 0;                           // of the order log, to each child
  long frames = 0;                               // of all nodes
  int depth = 0;
};

// Every rank submits all tensors, each in its own shuffled order. Above 4,096 ranks fewer steps are measured. Writes to
// stderr what goes wrong.
NegotiationCost Negotiate(const Load& load);

// The ranks' parents in the tree of the engine.
std::vector<int> TreeOf(const Layout& layout);

// How long one agreement takes from the last rank's mark to the order on the last rank, when nobody is busy with
// anything else: the longest way up the tree, each node hearing its children one after the other, and down again.
double AgreementSeconds(const Layout& layout, const Costs& costs);

}  // namespace hvd::simulate
