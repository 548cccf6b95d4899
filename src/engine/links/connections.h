// Connections: this rank's ways to the others, made from what a configuration hands over: shared memory and rings to
// the ranks of its host (the neighbours), sockets to those of other hosts, and control links to its neighbours in the
// tree of the negotiation. What is here is constant once open; what goes over it is for the holder of the driver role.
#pragma once

#include <algorithm>
#include <functional>
#include <map>
#include <memory>

#include "engine/links/control_links.h"
#include "engine/links/descriptors.h"
#include "engine/links/openings.h"
#include "engine/links/process_sets.h"
#include "engine/wake/waker.h"

namespace hvd::engine {

class Connections {
 public:
  // Where the arena of a rank comes from: a memfd, or (in tests, so that the thread sanitizer sees one memory) the
  // heap.
  using MapArena = std::function<Result<std::shared_ptr<transport::Region>>(int rank, int fd, size_t bytes)>;
  static Result<std::shared_ptr<transport::Region>> MapArenaFromMemfd(int rank, int fd, size_t bytes);

  // Takes what it uses out of *given.
  static Result<std::unique_ptr<Connections>> Open(const hvd_config& config, Descriptors* given, const MapArena& map);

  Transports& transports() { return transports_; }
  ControlLinks& links() { return links_; }
  Openings& openings() { return openings_; }
  transport::Neighbours* neighbours() const { return transports_.neighbours.get(); }  // null: alone on its host
  int local_of(int rank) const { return transports_.local_of_rank[rank]; }
  bool one_host() const { return neighbours() != nullptr && neighbours()->size() == size_; }
  std::shared_ptr<transport::ResultHeap> results() const {
    return neighbours() != nullptr ? neighbours()->results() : nullptr;
  }
  std::shared_ptr<transport::ResidentHeap> heap() const {
    return neighbours() != nullptr ? neighbours()->heap() : nullptr;
  }
  // How often a step of a collective looks before it leaves the core to others.
  void set_inline_spins(int spins) {
    if (neighbours() != nullptr) neighbours()->set_inline_spins(spins);
  }
  void FlushRings() {
    if (neighbours() != nullptr) neighbours()->FlushRings();
  }
  // Nothing that this rank has to say waits here any more, and no more comes.
  void SetLastWord(transport::LastWord word) {
    if (neighbours() != nullptr && !links_.HasUnsent()) neighbours()->SetLastWord(word);
  }
  transport::LastWord last_word(int rank) const {
    const bool here = neighbours() != nullptr && local_of(rank) >= 0;
    return here ? neighbours()->last_word(local_of(rank)) : transport::LastWord::kNone;
  }
  int doorbell() const { return doorbell_; }   // this rank's own
  int parent() const { return tree_[rank_]; }  // in the tree of the negotiation; -1: none
  // Whether the job learns of this rank's death by this connection's end; that of others comes through the tree.
  bool in_tree(int rank) const { return tree_[rank] == rank_ || tree_[rank_] == rank; }
  // Ranks of this host share cores: who waits gives its core away, and does not spin. The same for all of them.
  bool crowded() const { return cores_per_rank() == 0; }
  // How many cores each rank of this host can have for itself; 2: two or more.
  int cores_per_rank() const {
    const bool shared = neighbours() != nullptr && neighbours()->cores_are_shared();
    return shared ? 0 : cores_seen_;
  }

  // kPeerLost: nothing gets through any more to a rank that data may be waited for from; see Channel::CheckPeer. Not
  // asked is who has_left: its host may be gone by now.
  Status CheckPeers(double now, const std::function<bool(int rank)>& has_left) const;
  // The sockets among them wake this rank.
  Status WatchWith(Waker* waker);
  // The holder of the role: uses the data connections that have been opened since. False: none.
  bool TakeOpened() { return openings_.any() && openings_.Take(waker_); }
  // So that the parent's death is seen by its peers. Also cuts the shared tensors off from the parent's.
  void DetachInChild();

 private:
  Connections(const hvd_config& config, Fd wishes);
  Status OpenDoorbell(Descriptors* given);
  Status ConnectLocal(const hvd_config& config, Descriptors* given, const MapArena& map);
  Status MapNeighbours(const std::map<int, Descriptors::Peer*>& peers, Descriptors* given, const MapArena& map,
                       size_t bytes);
  Status ConnectRemote(const hvd_peer& peer, Descriptors::Peer* given);
  // Ways that are not there are opened when they are needed, if somebody does that.
  Status Complete();
  bool Speaks(int rank) const { return in_tree(rank) || (Leads(rank) && Leads(rank_)); }
  bool Leads(int rank) const { return std::binary_search(leaders_.begin(), leaders_.end(), rank); }

  const int rank_, size_;
  const std::vector<int> tree_;     // per rank: its parent
  const std::vector<int> leaders_;  // that speak with one another
  const int cores_seen_;            // as far as this rank sees
  const double silence_s_;          // of other hosts that is believed
  int doorbell_ = -1;
  Fd lone_doorbell_;  // when there are no neighbours to own it
  Openings openings_;
  Transports transports_;
  ControlLinks links_;
  Waker* waker_ = nullptr;
};

}  // namespace hvd::engine
