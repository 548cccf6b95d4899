// A job of N engines in one process, a thread per rank: shared memory in the heap (so that the thread sanitizer sees
// every access), doorbells real, liveness by eventfds that a test can ring ("this rank died"), or TCP over socket pairs
// for ranks on different hosts.
#pragma once

#include <fcntl.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

#include <functional>
#include <map>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "base/log.h"
#include "engine/engine.h"
#include "native/harness/harness.h"

namespace hvd::test {

class EngineWorld {
 public:
  struct Options {
    std::vector<int> host_of_rank;  // empty: all on one host
    int cache_capacity = -1;
    int64_t fusion_threshold_bytes = 128 << 20;
    double collective_timeout_s = 30;
    double stall_warning_s = 60, stall_shutdown_s = 0;
    double spin_us = 20;  // short: ranks outnumber cores here
    int64_t resident_bytes = 16 << 20;
    // Data connections between hosts are opened when a rank wishes for one: what comes of it.
    std::function<void(EngineWorld& world, int rank, int peer)> on_wish;
    bool memfd = false;  // arenas in shared memory, mapped by each rank: what the heap cannot show
    // Of a peer, as a rank is told.
    std::function<int64_t(int rank, int peer)> pid = [](int, int peer) { return 1000 + peer; };
  };

  explicit EngineWorld(int n) : EngineWorld(n, Options()) {}
  EngineWorld(int n, Options options) : n_(n), options_(std::move(options)), engines_(n), death_(n), regions_(n) {
    if (options_.host_of_rank.empty()) options_.host_of_rank.assign(n, 0);
    const size_t bytes = transport::Arena::FixedBytes(n) + options_.resident_bytes;
    for (int r = 0; r < n; ++r) {
      if (options_.memfd) {
        memory_.push_back(memfd_create("engine_world", MFD_CLOEXEC | MFD_ALLOW_SEALING));
        if (ftruncate(memory_[r], static_cast<off_t>(bytes)) != 0) Fail(__FILE__, __LINE__, "ftruncate");
        fcntl(memory_[r], F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW);
      } else {
        regions_[r] = transport::NewHeapRegion(bytes);
      }
      doorbells_.push_back(eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC));
      death_[r] = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
      wishes_.push_back({-1, -1});
      if (options_.on_wish) socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, wishes_[r].data());
    }
    for (int a = 0; a < n; ++a) {
      for (int b = 0; b < n; ++b) {
        if (a < b && !Together(a, b)) {
          socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, sockets_[{a, b, 0}].data());
          socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, sockets_[{a, b, 1}].data());
        }
      }
    }
    RanksAsThreads(n, [&](int r) { Start(r); });
    for (int r = 0; r < n && options_.on_wish; ++r) listeners_.emplace_back([this, r] { HearWishes(r); });
  }
  ~EngineWorld() {
    RanksAsThreads(n_, [&](int r) {
      if (engines_[r]) engines_[r]->Shutdown(5);
    });
    for (int r = 0; r < n_ && options_.on_wish; ++r) shutdown(wishes_[r][0], SHUT_RDWR);
    for (std::thread& listener : listeners_) listener.join();
    for (int r = 0; r < n_; ++r) {
      engines_[r].reset();
      if (options_.on_wish) close(wishes_[r][0]);
    }
    for (const auto& [key, ends] : sockets_) {
      for (const int fd : ends) {
        if (key[2] == 1 && fd >= 0) close(fd);  // nobody has wished for it
      }
    }
    for (const auto& fds : {doorbells_, death_, memory_}) {
      for (const int fd : fds) close(fd);
    }
  }

  engine::Engine& operator[](int r) { return *engines_[r]; }
  int size() const { return n_; }
  // What rank r shares with the others, as one more of them sees it.
  std::shared_ptr<transport::Region> MapRegion(int r) {
    if (!options_.memfd) return regions_[r];
    auto region = transport::MapMemfd(fcntl(memory_[r], F_DUPFD_CLOEXEC, 3),
                                      transport::Arena::FixedBytes(n_) + options_.resident_bytes);
    EXPECT_OK(region.status());
    return *region;
  }
  // The data connection of two ranks of different hosts becomes theirs.
  void Connect(int a, int b) {
    std::array<int, 2>& ends = sockets_[{std::min(a, b), std::max(a, b), 1}];
    for (int end = 0; end < 2; ++end) {
      const int rank = end == 0 ? std::min(a, b) : std::max(a, b);
      EXPECT_OK(engines_[rank]->Connected(a + b - rank, Fd(std::exchange(ends[end], -1)), Status()));
    }
  }
  // Shuts rank r down in good order.
  void Leave(int r) {
    engines_[r]->Shutdown(5);
    engines_[r].reset();
  }
  // The others see the process of rank r gone, without a goodbye. Its engine is left alone (stopped) until the end.
  void Die(int r) {
    const uint64_t one = 1;
    if (write(death_[r], &one, sizeof one) < 0) Fail(__FILE__, __LINE__, "write");
  }

 private:
  bool Together(int a, int b) const { return options_.host_of_rank[a] == options_.host_of_rank[b]; }
  void Start(int r);
  // Until that rank's engine is gone.
  void HearWishes(int r) {
    int32_t peer = -1;
    while (recv(wishes_[r][0], &peer, sizeof peer, MSG_WAITALL) == sizeof peer) options_.on_wish(*this, r, peer);
  }

  int n_;
  Options options_;
  std::vector<std::unique_ptr<engine::Engine>> engines_;
  std::vector<int> doorbells_, death_;
  std::vector<std::array<int, 2>> wishes_;  // this side's end, and the engine's, which closes it
  std::vector<std::thread> listeners_;
  std::vector<int> memory_;  // if it is not in the heap
  std::vector<std::shared_ptr<transport::Region>> regions_;
  std::map<std::array<int, 3>, std::array<int, 2>> sockets_;  // (a, b, control or data) -> both ends
};

inline void EngineWorld::Start(int r) {
  const auto copy = [](int fd) { return fcntl(fd, F_DUPFD_CLOEXEC, 3); };
  std::vector<hvd_peer> peers;
  int local_rank = 0, local_size = 1;
  for (int p = 0; p < n_; ++p) {
    if (p == r) continue;
    hvd_peer peer = {};
    peer.rank = p;
    peer.memory_fd = peer.doorbell_fd = peer.control_fd = peer.data_fd = -1;
    peer.liveness_fd = copy(death_[p]);
    peer.pid = options_.pid(r, p);
    if (Together(r, p)) {
      peer.memory_fd = copy(options_.memfd ? memory_[p] : doorbells_[p]);  // of the heap any descriptor
      peer.doorbell_fd = copy(doorbells_[p]);
      ++local_size;
      local_rank += p < r;
    } else {
      const int end = r < p ? 0 : 1;
      peer.control_fd = sockets_[{std::min(r, p), std::max(r, p), 0}][end];
      if (!options_.on_wish) peer.data_fd = std::exchange(sockets_[{std::min(r, p), std::max(r, p), 1}][end], -1);
      peer.key[0] = static_cast<uint8_t>(std::min(r, p) * n_ + std::max(r, p));
    }
    peers.push_back(peer);
  }
  hvd_config c = {};
  c.struct_bytes = sizeof c;
  c.rank = r;
  c.size = n_;
  c.local_rank = local_rank;
  c.local_size = local_size;
  c.epoch = 1;
  c.host_of_rank = options_.host_of_rank.data();
  c.peers = peers.data();
  c.n_peers = static_cast<int32_t>(peers.size());
  c.memory_fd = options_.memfd ? copy(memory_[r]) : -1;
  c.doorbell_fd = copy(doorbells_[r]);
  c.wish_fd = wishes_[r][1];
  c.hostname = "here";
  c.fusion_threshold_bytes = options_.fusion_threshold_bytes;
  c.cache_capacity = options_.cache_capacity;
  c.hierarchical_allreduce = c.hierarchical_allgather = c.torus_allreduce = -1;
  c.stall_warning_s = options_.stall_warning_s;
  c.stall_shutdown_s = options_.stall_shutdown_s;
  c.collective_timeout_s = options_.collective_timeout_s;
  c.link_timeout_s = 5;
  c.spin_us = options_.spin_us;
  c.thread_affinity = -1;
  c.log_level = static_cast<int>(LogLevel::kFatal);
  c.resident_bytes = options_.resident_bytes;
  const size_t bytes = transport::Arena::FixedBytes(local_size) + options_.resident_bytes;
  auto engine = engine::Engine::Create(
      c, [this, bytes](int rank, int fd, size_t wanted) -> Result<std::shared_ptr<transport::Region>> {
        if (options_.memfd) return engine::Connections::MapArenaFromMemfd(rank, fd, wanted);
        if (fd >= 0) close(fd);
        if (wanted != bytes) return Status(Code::kInternal, "unexpected arena size");
        return regions_[rank];
      });
  if (!engine.ok()) return Fail(__FILE__, __LINE__, engine.status().message());
  engines_[r] = std::move(*engine);
}

// One tensor of a job, filled in for hvd_submit.
struct Op {
  hvd_op op = {};
  std::vector<int64_t> shape;
  std::string name;
  template <class T>
  Op(hvd_op_type type, hvd_dtype dtype, const std::string& n, std::vector<int64_t> s, const T* in, T* out)
      : shape(std::move(s)), name(n) {
    op.type = type;
    op.dtype = dtype;
    op.reduce_op = HVD_SUM;
    op.prescale = op.postscale = 1.0;
    op.input = in;
    op.output = out;
    op.ndim = static_cast<int32_t>(shape.size());
    Point();
  }
  Op(const Op& o) : op(o.op), shape(o.shape), name(o.name) { Point(); }
  void Point() {
    op.name = name.empty() ? nullptr : name.c_str();
    op.shape = shape.data();
  }
};

// Submits, waits, and returns how it ended.
inline Status RunOp(engine::Engine& e, const hvd_op& op, std::shared_ptr<engine::Completion>* done = nullptr) {
  std::shared_ptr<engine::Completion> c;
  Status s = e.Submit(&op, 1, HVD_SUBMIT_WILL_WAIT, &c);
  if (!s.ok()) return s;
  for (int i = 0; i < 100 && !e.Wait(*c, 1.0); ++i) {
  }
  if (!c->done()) return Status(Code::kInProgress, "hangs");
  if (done != nullptr) *done = c;
  return c->status();
}

}  // namespace hvd::test
