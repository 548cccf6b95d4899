// Parameters: what may be changed while the job runs. A record of the order log changes them, so that all ranks see the
// change between the same two orders. Pure.
#pragma once

#include <cstdint>

#include "base/bytes.h"
#include "base/status.h"

namespace hvd::negotiation {

struct Parameters {
  int64_t fusion_threshold_bytes = 0;  // 0 = no fusion
  double cycle_time_ms = 0;            // how long the root may collect before it decides
  // -1 = decide by topology, 0 = off, 1 = on
  int hierarchical_allreduce = 0;
  int hierarchical_allgather = 0;
  int torus_allreduce = 0;
  bool operator==(const Parameters&) const = default;

  // Is an allreduce to work inside the hosts first? As above. The parts that the ranks of a host take across the hosts
  // side by side are the second dimension of a torus (docs/scaling.md): both settings ask for the same way, and a user
  // who asks for it by either name gets it.
  int two_level_allreduce() const { return torus_allreduce == 1 ? 1 : hierarchical_allreduce; }
};

// kInvalidArgument: no rank could work so.
Status Check(const Parameters& parameters);

void WriteParameters(const Parameters& parameters, ByteWriter* w);
Parameters ReadParameters(ByteReader* r);  // fails the reader on what Check refuses

}  // namespace hvd::negotiation
