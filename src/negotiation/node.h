// Node: one rank's part in agreeing on what to do next. Pure: it turns (own submissions, frames from tree neighbours,
// time) into (frames out, actions for the own engine); no I/O, clock, thread or lock. Used by the engine's holder of
// the driver role, and by the simulator.
//
// The protocol (docs/design): ranks form a tree. A rank's mark goes up; a node passes it up once every member below it
// has marked (a joined rank counts). The root validates, assigns ids to names and appends to one order log, which flows
// down unchanged and is obeyed by all in the same order. After every call, drain TakeOutgoing() and actions(); sleep
// until next_deadline() at most, then call Tick().
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "base/status.h"
#include "negotiation/values/actions.h"
#include "negotiation/values/request.h"

namespace hvd::negotiation {

// What the caller leaves out is off.
struct NodeConfig {
  int rank = 0;
  int size = 1;
  uint64_t epoch = 0;
  std::vector<int> parent = {-1};  // per rank: tree parent, -1 for rank 0, which is the root; parent[r] < r (tree.h)
  std::vector<int> leaders;  // of hosts, that exchange small operations directly (DirectLeaders); empty: they do not
  int cache_capacity = 0;    // names; 0 = never cached, < 0 = as many as fit (Cache::kMostBytes)
  int64_t fusion_threshold_bytes = 0;  // 0 = no fusion
  bool disable_group_fusion = false;   // a group is one batch of its own
  bool deterministic = false;          // allreduces are never fused
  double stall_warning_s = 0.0;        // 0 = stalls are not looked for
  double stall_shutdown_s = 0.0;       // 0 = never
  double linger_s = 0.0;               // HOROVOD_CYCLE_TIME: how long the root may collect before it decides
  double lost_grace_s = 0.0;  // PeerLost waits that long for the goodbye that may be on its way; 0 = it aborts at once
  int max_batches_in_flight = 2;  // Flush holds ready tensors back while the root's executor has that many batches left
  std::vector<std::string> host_of_rank;  // names for messages; may be empty
};

class Node {
 public:
  explicit Node(NodeConfig config);
  ~Node();
  Node(Node&&) noexcept;
  Node& operator=(Node&&) noexcept;

  // ---- this rank's own requests. Answers come as actions. The caller makes sure that a name is not in flight twice in
  // a set, and that this rank is a member of the set.
  void Submit(std::span<const Request> group, double now);  // atomic: several requests carry the same group_hash
  // A refusal local to this rank: counts as its mark, so that the other members fail with the reason instead of
  // waiting. No action comes back. A later submission of the same name waits until the refusal is used up. For a group:
  // what Submit would have got.
  void Refuse(std::span<const Request> group, const std::string& reason, double now);
  void Refuse(OpType type, int process_set, const std::string& name, const std::string& reason, double now);
  void Join(uint64_t ticket, double now);
  // by_members: its members alone ask for it, and this rank is one.
  void AddSet(std::vector<int> ranks, uint64_t ticket, double now, bool by_members = false);
  void RemoveSet(int id, uint64_t ticket, double now);
  // Then serve frames until the own RankLeft. why: the exception that ends this rank, "" = it ends well.
  void Goodbye(double now, const std::string& why = {});
  void Abort(const Status& reason, double now);  // this rank gives up: all ranks get Aborted
  // Any rank, not only neighbours; no news after its RankLeft.
  void PeerLost(int rank, const std::string& reason, double now);

  // The connection to another leader that is not a neighbour in the tree has ended, or to a rank of which something is
  // unread. The same, but its goodbye may be on its way through the tree, or wait here: it is given a moment.
  void LinkLost(int rank, const std::string& reason, double now);
  // Frames of that rank wait here for what is on its way from others: its goodbye may be among them.
  bool has_unread(int from_rank) const;

  // ---- frames. An error names the sender and what was wrong with the frame; the frame must then be taken as a broken
  // connection.
  Status Receive(int from_rank, std::span<const std::byte> frame, double now);
  bool HasOutgoing() const;
  // Among it is what this host brings to a small operation.
  bool brings_directly() const;
  // Calls send(to_rank, frame) for every neighbour, or other leader, that has to get something, in the order in which
  // it must be sent. The bytes are valid during the call.
  void TakeOutgoing(const std::function<void(int to_rank, std::span<const std::byte> frame)>& send);

  // ---- the root's decisions. False on other ranks.
  bool wants_flush() const;
  // Turns everything that is ready into batches. batches_in_flight: decided batches that the own executor has not
  // finished. Nothing happens at max_batches_in_flight, nor while the linger time of the oldest ready tensor runs
  // (unless someone_waits).
  void Flush(double now, int batches_in_flight, bool someone_waits = false);

  // ---- results, in order. The caller takes them and clears the vector.
  std::vector<Action>& actions();

  // ---- time
  double next_deadline() const;  // +infinity when nothing is pending
  void Tick(double now);

  // The root's: all ranks go by these (checked) from the next batch on, by ParametersChanged. Nothing on other ranks.
  void ChangeParameters(const Parameters& parameters, double now);

  // ---- a trace of all ranks (values/trace.h). Nothing happens on ranks that they are not for.
  void OrderTrace(const TraceOrder& order, double now);       // the root's: an action on all ranks, its own included
  void AskClocks(const ClockQuestion& question, double now);  // likewise
  // One step towards the root. It arrives there as an action of the parent, which passes it on in turn.
  void SendUp(const TracePiece& piece);
  void SendUp(const ClockAnswer& answer);
  // Those whose pieces come through this rank.
  std::vector<int> RanksBelow() const;

  // ---- what is known
  std::vector<int> SetRanks(int id) const;  // empty: no such set
  std::vector<int> SetIds() const;
  bool aborted() const;
  // A rank through which others are connected has left: there will be no more log, and a rank that leaves now leaves in
  // silence.
  bool log_ended() const;

 private:
  struct Negotiator;
  std::unique_ptr<Negotiator> n_;
};

}  // namespace hvd::negotiation
