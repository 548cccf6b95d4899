// The state of a Node and the steps its parts share. Internal to the negotiation:
//   node.cc        the public calls: frames in and out, joining, leaving
//   node_own.cc    own submissions and refusals
//   node_tally.cc  contributions: marks, tallies, when a subtree is complete, what goes up
//   node_up.cc     frames from children
//   node_log.cc    obeying the log
//   node_root.cc   the root's decisions, and writing them into the log
//   node_stall.cc  the stall inspector's part of the protocol
#pragma once

#include <deque>
#include <memory>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "negotiation/cache.h"
#include "negotiation/coordinator.h"
#include "negotiation/node.h"
#include "negotiation/outbox.h"
#include "negotiation/place.h"
#include "negotiation/set_table.h"
#include "negotiation/signature.h"
#include "negotiation/stall.h"
#include "negotiation/tally.h"
#include "negotiation/wire.h"

namespace hvd {

struct Node::Impl {
  explicit Impl(NodeConfig c);

  NodeConfig config;  // without `parent`
  Place place;
  int words;  // of a mask of sources
  SetTable sets;
  Cache cache;
  TallyTable tallies;
  Outbox out;
  StallInspector stall;
  double heard_at = 0;   // the last frame from the parent
  double asked_at = -1;  // it was asked for a sign of life since; < 0: no
  double told_at = 0;    // its silence was reported last
  int own_waiting = 0;   // own entries that the log has not answered
  std::vector<Action> actions;
  Status aborted;

  // Counts the log records that change what a contribution may mean. Every link carries the sender's version before its
  // contributions, so a receiver knows which of them were sent before the sender obeyed such a record: an id is read as
  // it was meant then, and what belongs to a process set that has ended or to a group that has failed is void.
  uint64_t version = 0;
  uint64_t seq = 0;                       // batches
  std::vector<uint64_t> link_version;     // per source
  std::vector<uint32_t> frames_received;  // per source; [0]: from the parent
  int incomplete = 0;                     // slots and tallies begun and not complete

  // Joining and leaving.
  bool own_joined = false, all_joined = false;
  bool join_waits = false;  // for own wishes of set 0 that came before it and are deferred
  uint64_t join_ticket = 0;
  RankSet joined_below;
  RankSet left;
  bool goodbye = false, own_left = false;
  bool cut = false;                   // the root or an inner rank has left: the log has ended
  std::vector<int> leaving_children;  // still to be sent the log that says so
  RankSet gone_children;
  struct Lost {
    int rank;
    std::string reason;
    double abort_at;
  };
  std::vector<Lost> lost;  // seen dying, no goodbye yet

  // Groups that failed as a whole, with the version: contributions sent before are void. (process set, hash)
  struct DroppedGroup {
    int process_set;
    uint64_t hash, version;
  };
  std::vector<DroppedGroup> dropped_groups;
  std::vector<uint64_t> set_gone;  // per process set id: version of its last removal
  // What ids meant before, for marks that were sent before their sender obeyed the change: they stay good. Only with
  // children.
  struct OldMeaning {
    uint32_t id;
    uint64_t from, until;  // versions
    std::shared_ptr<const Request> request;
  };
  std::vector<OldMeaning> old_meanings;

  // Own wishes whose name is still taken by an own refusal.
  struct Deferred {
    std::vector<Request> group;
    bool refusal = false;
    std::string reason;
  };
  std::vector<Deferred> deferred;
  uint64_t set_changes = 0;  // number of the next AddSet or RemoveSet

  // Root only.
  Coordinator coordinator;
  size_t log_applied = 0;           // bytes of the down frame obeyed by the root itself
  std::vector<std::byte> log_copy;  // what it is obeying
  std::deque<NameKey> to_decide;
  std::vector<int> to_leave;
  bool held_by_linger = false, warned_full = false;

  bool is_root() const { return place.root(); }

  // ---- node_tally.cc
  bool Covers(const uint64_t* mask, const std::vector<uint64_t>& need) const {
    for (int w = 0; w < words; ++w) {
      if ((mask[w] & need[w]) != need[w]) return false;
    }
    return true;
  }
  void Begun(double now) {
    if (incomplete++ == 0) stall.Arm(now);
  }
  // The mark of `source` for a cached id, checked by the caller. The hot path.
  void MarkSlot(uint32_t id, int source, double now) {
    Slot& s = cache.at(id);
    if (s.state == Slot::kIdle) {
      s.state = Slot::kPartial;
      s.since = now;
      Begun(now);
    }
    uint64_t* mask = cache.mask(id);
    mask[source >> 6] |= uint64_t{1} << (source & 63);
    if (Covers(mask, sets.at(s.process_set).need)) CompleteSlot(id, now);
  }
  void CompleteSlot(uint32_t id, double now);
  void ResetSlot(uint32_t id);
  Tally& OpenTally(NameView key, OpType type, double now);  // takes over the marks of the cached id, if any
  void FoldSlot(uint32_t id, Tally* tally);
  void Contributed(Tally* tally);
  void CompleteTally(Tally* tally);
  void SendTally(const Tally& tally);
  void EraseTally(NameView key);
  // Takes back the sources with a stale part. Own entries are appended to `own` with their tickets.
  void DropFromTally(Tally* tally, const std::function<bool(const Part&)>& stale, std::vector<Request>* own);
  void RecheckGlobalSet(double now);  // after its need has shrunk
  void CheckAllJoined();
  bool OwnPending(NameView key);
  bool OwnRefusalPending(NameView key);

  // ---- node_own.cc
  void SubmitOne(const Request& request, double now);
  void SubmitOrDefer(Deferred wish, double now);
  void RetryDeferred(double now);
  void RefuseNow(const Request& what, const std::string& reason, double now);
  void Contribute(Part part, NameView key, OpType type, uint64_t ticket, double now);
  Status WhyNot(const Request& request) const;
  void FailOwn(const Request& request, const Status& status);
  void ActFail(OpType type, int process_set, const std::string& name, uint64_t ticket, Status status);
  void ChangeSets(Request request, double now);
  void JoinNow(double now);
  bool AnyDeferredIn(int process_set) const;

  // ---- node.cc
  void DoAbort(const Status& status, bool from_log);
  void JudgeLost(double now);
  void Finish(double now);  // at the end of every public call

  // ---- node_up.cc
  Status ReceiveUp(int source, ByteReader* r, double now);
  Status UpMarks(int source, ByteReader* r, double now);
  Status UpTally(int source, ByteReader* r, double now);
  bool IsVoid(const WireTally& tally, int source) const;
  bool IsVoid(int process_set, uint64_t group_hash, uint64_t sent_at) const;
  std::shared_ptr<const Request> Meaning(uint32_t id, uint64_t sent_at) const;
  Status UpOldMark(int source, uint32_t id, double now);
  Status AddCached(Tally* tally, int source, std::shared_ptr<const Request> request, int32_t id);
  Status CheckTally(const WireTally& tally, int source);
  Status UpVersion(int source, ByteReader* r);
  Status UpJoined(int source, ByteReader* r);
  Status UpAllJoined(int source, double now);
  Status UpGoodbye(int source, ByteReader* r);

  // ---- node_log.cc
  Status ApplyLog(ByteReader* r, double now);
  Status ApplyDefine(ByteReader* r);
  Status ApplyBatch(ByteReader* r);
  Status TakeEntry(ByteReader* r, Entry* entry);
  Status ApplyFail(ByteReader* r, double now);
  void DropGroups(int set, const std::vector<uint64_t>& hashes, const Status& why);
  Status ApplySetAdded(ByteReader* r);
  Status ApplySetRemoved(ByteReader* r);
  Status ApplyJoined(ByteReader* r);
  Status ApplyLeft(ByteReader* r);
  void KillSet(int id, const Status& why);
  void NoteSetChange(const std::string& name);
  void RetireMeaning(uint32_t id);
  uint64_t OldestLink() const;

  // ---- node_root.cc
  void Settle(double now);
  void ObeyOwnLog(double now);
  void Decide(const NameKey& key, double now);
  void DecideSetChange(const Request& request, const NameKey& key, double now);
  void LogFail(const NameKey& key, const std::vector<uint64_t>& groups, const Status& status);
  void FlushAll(double now);
  int32_t AssignId(const Ready& ready, double now);
  bool HoldForLinger(double now, bool someone_waits) const;

  // ---- node_stall.cc
  void StallTick(double now);
  void FinishQuery(double now);
  void SendNotice(const StalledTally& tally, double now);
  void WatchParent(double now);
  const StalledTally* OldestOwn(StalledTally* memory);
  std::vector<StalledTally> Incomplete();
  StallState StateOf(int process_set, const std::string& name);
  Status ApplyStallQuery(ByteReader* r);
  Status UpStallNotice(ByteReader* r, double now);
  Status UpStallReport(int source, ByteReader* r, double now);
};

}  // namespace hvd
