// Descriptors: what a configuration hands over, owned from the first moment. Each is taken out by the part that closes
// it from then on; a start that fails, wherever, closes the others by dropping this.
#pragma once

#include <vector>

#include "base/fd.h"
#include "horovod/horovod.h"

namespace hvd::engine {

struct Descriptors {
  struct Peer {
    Fd memory, doorbell, liveness, control, data;
  };

  // A configuration of another layout is not read: nobody knows where its descriptors are.
  explicit Descriptors(const hvd_config& c) {
    if (c.struct_bytes != sizeof(hvd_config)) return;
    memory.Reset(c.memory_fd);
    doorbell.Reset(c.doorbell_fd);
    wish.Reset(c.wish_fd);
    for (int i = 0; c.peers != nullptr && i < c.n_peers; ++i) {
      const hvd_peer& p = c.peers[i];
      peers.push_back({Fd(p.memory_fd), Fd(p.doorbell_fd), Fd(p.liveness_fd), Fd(p.control_fd), Fd(p.data_fd)});
    }
  }

  Fd memory, doorbell, wish;
  std::vector<Peer> peers;  // in the order of the configuration
};

}  // namespace hvd::engine
