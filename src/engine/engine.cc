// Starting and stopping the engine: connections, groups, backends, threads.
#include "engine/engine.h"

#include <fcntl.h>
#include <sys/eventfd.h>
#include <sys/timerfd.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <limits>

#include "backend/host_backend.h"
#include "base/log.h"
#include "base/thread.h"
#include "engine/cores.h"
#include "negotiation/tree.h"
#include "transport/tcp_channel.h"

namespace hvd {
namespace {

// Judged by what all ranks may use: a rank that its launcher bound to one core has that one for itself.
bool SharesCores(const hvd_config& c) {
  std::vector<int64_t> pids;
  for (int r = 0; r < c.size; ++r) {
    if (c.host_of_rank[r] != c.host_of_rank[c.rank]) continue;
    const hvd_peer* peer = std::find_if(c.peers, c.peers + c.n_peers, [r](const hvd_peer& p) { return p.rank == r; });
    pids.push_back(peer == c.peers + c.n_peers ? 0 : peer->pid);
  }
  if (static_cast<size_t>(c.local_size) > pids.size()) pids.resize(c.local_size);
  return !EachHasACore(CoresOf(pids));
}

NodeConfig NodeConfigFrom(const hvd_config& c) {
  NodeConfig n;
  n.rank = c.rank;
  n.size = c.size;
  n.epoch = c.epoch;
  n.parent = BuildTree(std::vector<int>(c.host_of_rank, c.host_of_rank + c.size));
  n.cache_capacity = c.cache_capacity;
  n.fusion_threshold_bytes = c.fusion_threshold_bytes;
  n.disable_group_fusion = c.disable_group_fusion != 0;
  // Inside a host every element is reduced in rank order whatever the batch: only algorithms between hosts round by
  // position.
  const bool one_host =
      std::all_of(c.host_of_rank, c.host_of_rank + c.size, [&](int h) { return h == c.host_of_rank[0]; });
  n.deterministic = c.deterministic != 0 && !one_host;
  n.stall_check = c.stall_check_disable == 0;
  n.stall_warning_s = c.stall_warning_s;
  n.stall_shutdown_s = c.stall_shutdown_s;
  n.linger_s = c.cycle_time_ms / 1e3;
  return n;
}

void CloseAll(const hvd_config& c) {
  const auto shut = [](int fd) {
    if (fd >= 0) close(fd);
  };
  shut(c.memory_fd);
  shut(c.doorbell_fd);
  for (int i = 0; i < c.n_peers; ++i) {
    const hvd_peer& p = c.peers[i];
    for (const int fd : {p.memory_fd, p.doorbell_fd, p.liveness_fd, p.control_fd, p.data_fd}) shut(fd);
  }
}

Status CheckConfig(const hvd_config& c) {
  const auto bad = [](const std::string& what) { return Status(Code::kInvalidArgument, "hvd_init: " + what); };
  if (c.struct_bytes != sizeof(hvd_config)) {
    return bad("the caller's hvd_config has " + std::to_string(c.struct_bytes) + " bytes, this library's " +
               std::to_string(sizeof(hvd_config)) + "; library and Python package are of different versions.");
  }
  if (c.size < 1 || c.rank < 0 || c.rank >= c.size)
    return bad("rank " + std::to_string(c.rank) + " of size " + std::to_string(c.size) + ".");
  if (c.host_of_rank == nullptr) return bad("host_of_rank is missing.");
  for (int i = 0; i < c.n_peers; ++i) {
    const int r = c.peers[i].rank;
    if (r < 0 || r >= c.size || r == c.rank)
      return bad("peer rank " + std::to_string(r) + " of size " + std::to_string(c.size) + ".");
  }
  return Status();
}

}  // namespace

Result<std::shared_ptr<Region>> Engine::MapArenaFromMemfd(int rank, int fd, size_t bytes) {
  Result<std::shared_ptr<Region>> region = MapMemfd(fd, bytes);
  if (!region.ok()) return region.status().Because("rank " + std::to_string(rank));
  return region;
}

Result<std::unique_ptr<Engine>> Engine::Create(const hvd_config& config, const MapArena& map) {
  if (Status bad = CheckConfig(config); !bad.ok()) {
    if (config.struct_bytes == sizeof(hvd_config)) CloseAll(config);
    return bad;
  }
  SetLogLevel(static_cast<LogLevel>(config.log_level));
  SetLogPrefix("[rank " + std::to_string(config.rank) + "] ");
  std::unique_ptr<Engine> engine(new Engine(config));
  HVD_TRY(engine->Connect(config, map));
  engine->AddBackends();
  engine->OpenExpress();
  std::vector<int> everybody(config.size);
  for (int r = 0; r < config.size; ++r) everybody[r] = r;
  engine->sets_.Configure(config.deterministic != 0, config.hierarchical_allreduce, config.store_mode);
  engine->sets_.Add(0, std::move(everybody));
  engine->everybody_ = engine->sets_.Find(0);
  if (config.timeline_path != nullptr && config.timeline_path[0] != '\0') {
    HVD_TRY(engine->timeline_.Start(config.timeline_path, config.timeline_mark_cycles != 0));
  }
  engine->background_thread_ = WithoutSignals([e = engine.get()] { return std::thread([e] { e->BackgroundLoop(); }); });
  return engine;
}

Engine::Engine(const hvd_config& c)
    : rank_(c.rank),
      size_(c.size),
      topology_{c.rank, c.size, c.local_rank, c.local_size, c.cross_rank, c.cross_size},
      hostname_(c.hostname != nullptr ? c.hostname : ""),
      collective_timeout_s_(c.collective_timeout_s),
      sees_crowd_(SharesCores(c)),
      spin_us_(c.spin_us),
      lingers_(c.cycle_time_ms > 0),
      affinity_(c.thread_affinity),
      node_(std::make_unique<Node>(NodeConfigFrom(c))),
      executor_(&backends_, &timeline_,
                [this](Job& job, const Status& status, bool fatal) { Finish(job, status, fatal); }) {}

Status Engine::Connect(const hvd_config& c, const MapArena& map) {
  transports_.rank = rank_;
  transports_.host_of_rank.assign(c.host_of_rank, c.host_of_rank + size_);
  transports_.local_of_rank.assign(size_, -1);
  transports_.data.resize(size_);
  doorbell_fd_ = c.doorbell_fd >= 0 ? c.doorbell_fd : eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
  fcntl(doorbell_fd_, F_SETFL, fcntl(doorbell_fd_, F_GETFL) | O_NONBLOCK);
  for (Sleeper* sleeper : {&background_sleeper_, &waiter_sleeper_}) {
    HVD_TRY(sleeper->Open());
    HVD_TRY(sleeper->Watch(doorbell_fd_, Sleeper::Kind::kDoorbell, rank_));
  }
  timer_fd_ = timerfd_create(CLOCK_MONOTONIC, TFD_CLOEXEC | TFD_NONBLOCK);
  HVD_TRY(background_sleeper_.Watch(timer_fd_, Sleeper::Kind::kTimer, rank_));
  nudge_fd_ = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
  HVD_TRY(waiter_sleeper_.Watch(nudge_fd_, Sleeper::Kind::kNudge, rank_));
  for (int i = 0; i < c.n_peers; ++i) {
    const hvd_peer& p = c.peers[i];
    peers_[p.rank] = {p.rank, p.pid, 0, false};
    if (p.liveness_fd < 0) continue;
    liveness_fd_[p.rank] = p.liveness_fd;
    for (Sleeper* sleeper : {&background_sleeper_, &waiter_sleeper_}) {
      HVD_TRY(sleeper->Watch(p.liveness_fd, Sleeper::Kind::kLiveness, p.rank));
    }
  }
  HVD_TRY(ConnectLocal(c, map));
  for (int i = 0; i < c.n_peers; ++i) HVD_TRY(ConnectRemote(c.peers[i]));
  for (int r = 0; r < size_; ++r) {
    if (r != rank_ && !transports_.data[r]) {
      return Status(Code::kInvalidArgument,
                    "hvd_init: no way from rank " + std::to_string(rank_) + " to rank " + std::to_string(r) + ".");
    }
  }
  return Status();
}

// The ranks of this host, in rank order, are the neighbours.
Status Engine::ConnectLocal(const hvd_config& c, const MapArena& map) {
  std::map<int, const hvd_peer*> by_rank;
  for (int i = 0; i < c.n_peers; ++i) {
    if (c.peers[i].memory_fd >= 0) by_rank[c.peers[i].rank] = &c.peers[i];
  }
  if (by_rank.empty()) {
    if (c.memory_fd >= 0) close(c.memory_fd);
    return Status();
  }
  const int local_size = static_cast<int>(by_rank.size()) + 1;
  const size_t bytes = Arena::FixedBytes(local_size) + static_cast<size_t>(std::max<int64_t>(0, c.resident_bytes));
  std::vector<Neighbours::Member> members;
  int self = 0;
  for (int r = 0; r < size_; ++r) {
    const bool own = r == rank_;
    if (!own && by_rank.count(r) == 0) continue;
    if (own) self = static_cast<int>(members.size());
    transports_.local_of_rank[r] = static_cast<int>(members.size());
    Result<std::shared_ptr<Region>> region = map(r, own ? c.memory_fd : by_rank[r]->memory_fd, bytes);
    HVD_TRY(region.status());
    members.push_back({r, *region, own ? doorbell_fd_ : by_rank[r]->doorbell_fd});
  }
  Result<std::unique_ptr<Neighbours>> neighbours = Neighbours::Create(std::move(members), self);
  HVD_TRY(neighbours.status());
  transports_.neighbours = std::move(*neighbours);
  if (sees_crowd_) transports_.neighbours->SayCoresAreShared();
  const std::vector<int> parent = BuildTree(transports_.host_of_rank);
  for (const auto& [r, peer] : by_rank) {
    const int local = transports_.local_of_rank[r];
    transports_.data[r] = std::make_unique<RingChannel>(transports_.neighbours.get(), local, RingKind::kData);
    if (parent[r] == rank_ || parent[rank_] == r) {
      links_.AddRing(transports_.neighbours.get(), local, rank_);
    }
  }
  return Status();
}

Status Engine::ConnectRemote(const hvd_peer& p) {
  const auto watch = [&](int fd) {
    Status s = background_sleeper_.Watch(fd, Sleeper::Kind::kSocket, p.rank);
    sockets_ = true;
    return s.ok() ? waiter_sleeper_.Watch(fd, Sleeper::Kind::kSocket, p.rank) : s;
  };
  if (p.data_fd >= 0) {
    auto channel = TcpChannel::Adopt(p.data_fd, rank_, p.rank, TcpUse::kData);
    HVD_TRY(channel.status());
    transports_.data[p.rank] = std::move(*channel);
    HVD_TRY(watch(p.data_fd));
  }
  if (p.control_fd < 0) return Status();
  const std::vector<int> parent = BuildTree(transports_.host_of_rank);
  if (parent[p.rank] == rank_ || parent[rank_] == p.rank) {
    auto channel = TcpChannel::Adopt(p.control_fd, rank_, p.rank, TcpUse::kControl);
    HVD_TRY(channel.status());
    FrameStream::Key key;
    std::copy(std::begin(p.key), std::end(p.key), key.begin());
    links_.Add(std::move(*channel), rank_, key);
    HVD_TRY(watch(p.control_fd));
  } else {
    close(p.control_fd);  // only neighbours in the control tree speak; the death of others comes down the tree
  }
  return Status();
}

void Engine::OpenExpress() {
  const bool one_host = transports_.neighbours && transports_.neighbours->size() == size_;
  if (one_host && size_ <= Express::kMostRanks && spin_us_ != 0)
    express_ = std::make_unique<Express>(transports_.neighbours.get());
}

void Engine::AddBackends() { backends_.Add(std::make_unique<HostBackend>()); }

void Engine::Abort(const Status& why, bool tell_others) {
  role_wanted_.fetch_add(1, std::memory_order_seq_cst);
  RingSelf();
  while (!TryTakeRole()) sched_yield();
  role_wanted_.fetch_sub(1, std::memory_order_seq_cst);
  Fail(why, tell_others);
  LeaveRole(Leaving::kWaiter);
}

void Engine::Shutdown(double timeout_s) {
  if (!failed_) {
    Submission goodbye;
    goodbye.kind = Submission::Kind::kGoodbye;
    const double deadline = NowS() + timeout_s;
    if (submissions_.Add(std::move(goodbye)).ok()) {
      while (!goodbye_->done() && !failed_ && NowS() < deadline) Wait(*goodbye_, std::min(0.1, deadline - NowS()));
    }
  }
  Abort(Status(Code::kShutdown, "the engine of rank " + std::to_string(rank_) + " has shut down."),
        /*tell_others=*/!goodbye_->done());
  stop_.store(true, std::memory_order_seq_cst);
  const uint64_t one = 1;
  if (write(doorbell_fd_, &one, sizeof one) < 0) Log(LogLevel::kDebug, "the doorbell is full");
  background_thread_.join();
  (void)timeline_.Stop();
  if (auto heap = this->heap()) {
    if (Status s = heap->MakePrivate(); !s.ok()) Log(LogLevel::kWarning, s.message());
  }
}

Engine::~Engine() {
  if (background_thread_.joinable()) Shutdown(0);
  for (const auto& [rank, fd] : liveness_fd_) close(fd);
  if (!transports_.neighbours && doorbell_fd_ >= 0) close(doorbell_fd_);
  for (const int fd : {timer_fd_, nudge_fd_}) {
    if (fd >= 0) close(fd);
  }
}

void Engine::CloseInChild() {
  for (const auto& [rank, fd] : liveness_fd_) close(fd);
  for (const auto& [rank, peer] : peers_) {
    if (transports_.data[rank] && transports_.data[rank]->fd() >= 0) close(transports_.data[rank]->fd());
  }
  links_.CloseInChild();
}

}  // namespace hvd
