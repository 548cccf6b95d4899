// What hvd_init is told, for tests of the C interface: rank 0 of three, of which rank 1 shares its host and rank 2 does
// not. The others are nothing but descriptors; nobody answers there.
#pragma once

#include <dirent.h>
#include <fcntl.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>

#include "horovod/horovod.h"
#include "native/harness/harness.h"

namespace hvd::test {

inline int OpenDescriptors() {
  int n = 0;
  DIR* all = opendir("/proc/self/fd");
  while (readdir(all) != nullptr) ++n;
  closedir(all);
  return n;
}

// A region as horovod._net makes it.
inline int NewMemory(int64_t bytes, int seals = F_SEAL_SHRINK | F_SEAL_GROW) {
  const int fd = memfd_create("arena", MFD_CLOEXEC | MFD_ALLOW_SEALING);
  if (ftruncate(fd, bytes) != 0 || fcntl(fd, F_ADD_SEALS, seals) != 0) Fail(__FILE__, __LINE__, "no memory");
  return fd;
}

// The settings of a start at which nothing is remarkable.
inline hvd_config PlainConfig(int rank, int size, const int32_t* host_of_rank) {
  hvd_config c = {};
  c.struct_bytes = sizeof c;
  c.rank = rank;
  c.size = size;
  c.local_size = 1;
  c.cross_size = 1;
  c.epoch = 1;
  c.host_of_rank = host_of_rank;
  c.memory_fd = c.doorbell_fd = c.wish_fd = -1;
  c.hostname = "here";
  c.fusion_threshold_bytes = 1 << 20;
  c.cache_capacity = 16;
  c.hierarchical_allreduce = c.hierarchical_allgather = c.torus_allreduce = -1;
  c.stall_warning_s = 60;
  c.collective_timeout_s = 30;
  c.link_timeout_s = 5;
  c.spin_us = 20;
  c.thread_affinity = -1;
  c.log_level = 5;
  return c;
}

// One try: all descriptors are new, and the core's as soon as `config` is given to hvd_init.
class Attempt {
 public:
  static constexpr int64_t kResidentBytes = 16 << 20;
  Attempt() : config(PlainConfig(0, 3, hosts_.data())) {
    config.local_size = 2;
    config.cross_size = 2;
    config.resident_bytes = kResidentBytes;
    config.memory_fd = NewMemory(RegionBytes());
    config.doorbell_fd = NewBell();
    config.peers = peers.data();
    config.n_peers = static_cast<int32_t>(peers.size());
    for (int i = 0; i < config.n_peers; ++i) {
      peers[i] = {};
      peers[i].rank = i + 1;
      peers[i].pid = getpid();
      peers[i].memory_fd = peers[i].doorbell_fd = peers[i].control_fd = peers[i].data_fd = -1;
      peers[i].liveness_fd = NewBell();  // never readable: alive
    }
    peers[0].memory_fd = NewMemory(RegionBytes());
    peers[0].doorbell_fd = NewBell();
    peers[1].control_fd = NewSocket(0);
    peers[1].data_fd = NewSocket(1);
  }
  ~Attempt() {
    for (const int fd : far_ends_) close(fd);
  }
  Attempt(const Attempt&) = delete;
  Attempt& operator=(const Attempt&) = delete;

  static int64_t RegionBytes() { return hvd_region_bytes(2, kResidentBytes); }
  static int NewBell() { return eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK); }
  static void Replace(int32_t* fd, int by) {
    close(*fd);
    *fd = by;
  }

 private:
  int NewSocket(int which) {
    int ends[2];
    if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) != 0) Fail(__FILE__, __LINE__, "no socket");
    far_ends_[which] = ends[1];
    return ends[0];
  }
  const std::array<int32_t, 3> hosts_ = {0, 0, 1};
  std::array<int, 2> far_ends_ = {-1, -1};

 public:
  std::array<hvd_peer, 2> peers;
  hvd_config config;
};

}  // namespace hvd::test
