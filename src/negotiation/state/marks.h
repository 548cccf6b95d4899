// Marks: what this rank and its children have contributed, until the log answers: marks of cached ids, tallies of
// everything else. What is complete for the subtree goes up; at the root, to the ready queue, or to be decided.
//
// The hot path of the whole negotiation is Mark: an index, two compares and an OR.
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "negotiation/frames/outbox.h"
#include "negotiation/state/cache.h"
#include "negotiation/state/ready_queue.h"
#include "negotiation/state/set_table.h"
#include "negotiation/values/payload.h"
#include "negotiation/values/tally.h"

namespace hvd::negotiation {

class Marks {
 public:
  // Its inputs and outputs must outlive it.
  Marks(const Place& place, const SetTable& sets, Outbox* out, ReadyQueue* ready, int cache_capacity)
      : place_(place), sets_(sets), out_(out), ready_(ready), cache_(cache_capacity, MaskWords(place_)) {}

  const Cache& cache() const { return cache_; }
  const TallyTable& tallies() const { return tallies_; }
  int incomplete() const { return incomplete_; }    // cached requests and tallies begun and not complete
  int own_waiting() const { return own_waiting_; }  // own entries that the log has not answered
  // What of this rank's own is under that name and not answered.
  enum class Own { kNothing, kSubmission, kRefusal };
  Own OwnUnder(NameView key) const;

  // ---- contributions, checked by the caller
  // The mark of `source` for a cached id that is in no tally.
  void Mark(uint32_t id, int source, double now) {
    CachedRequest& s = cache_.at(id);
    if (s.state == CachedRequest::kIdle) {
      s.state = CachedRequest::kPartial;
      s.since = now;
      ++incomplete_;
    }
    uint64_t* mask = cache_.mask(id);
    AddSource(mask, source);
    if (Covers(mask, NeedOf(id))) CompleteCached(id, now);
  }
  // The sources that must mark it.
  const SourceMask& NeedOf(uint32_t id) const {
    const CachedRequest& s = cache_.at(id);
    return s.pair ? pair_needs_.at(id) : sets_.at(s.process_set).need;
  }
  // What comes with the mark that follows. A group runs as a whole, so nothing is brought for a part of it.
  void Bring(uint32_t id, std::vector<Payload> payloads);
  // Own: the usual case, cached and nothing in the way, without a copy. False: it is something else.
  bool TryMarkOwn(const Request& own, double now);
  // The mark of a child for a cached id, and what it brings. False: it has marked it before.
  bool MarkOfChild(uint32_t id, int source, std::vector<Payload> payloads, double now);
  // Own, or why this rank refuses it; the name is not in flight.
  void AddOwn(const Request& own, const std::optional<std::string>& refusal, double now);
  // Of one child.
  void Add(NameView key, OpType type, std::vector<Part> parts, double now);
  // Joined ranks are needed no longer.
  void RecheckGlobalSet(double now);
  // ---- what small operations bring, where leaders exchange it directly (direct.h)
  bool IsDirect(uint32_t id) const {
    const CachedRequest& s = cache_.at(id);
    return place_.direct() && s.request && s.process_set == 0 && s.request->group_hash == 0;
  }
  Turn TurnOf(uint32_t id) const { return id < cache_.size() ? cache_.at(id).turn : Turn(); }
  bool HasBrought(uint32_t id, int rank) const;
  // All that the ranks of another host bring, where it is not a mark.
  void BringBeside(uint32_t id, std::vector<Payload> payloads);
  // Operations to which all members have brought something since the last call.
  std::vector<uint32_t> TakeWhole() { return std::exchange(whole_, {}); }
  // By rank; empty: the log has answered it meanwhile.
  std::vector<Payload> TakePayloadsOfAll(uint32_t id);
  // It is done without the log: its contributions are used up. Returns the own ticket.
  uint64_t UseDirect(uint32_t id);

  // The root's next complete tally, nullptr: there is none.
  const Tally* NextToDecide();

  // ---- what the log says
  void Define(uint32_t id, std::shared_ptr<const Request> request);
  // It runs, or is answered: its contributions are used up. Returns the own ticket, 0: none.
  uint64_t UseCached(uint32_t id);
  uint64_t UseTally(NameView key);
  // It failed; at `version` if that makes contributions under way void, else 0. Returns the own entry; ticket 0: none.
  Request Fail(NameView key, uint64_t version);
  // Everything of these groups, or of the set, is over at this version. Returns the own entries.
  std::vector<Request> DropGroups(int process_set, const std::vector<uint64_t>& hashes, uint64_t version);
  std::vector<Request> DropSet(int process_set, uint64_t version);

 private:
  void CompleteCached(uint32_t id, double now);
  bool CompleteWithPayloads(uint32_t id);
  bool CompleteDirectly(uint32_t id);
  bool HostHasBrought(uint32_t id) const;
  bool AllHaveBrought(uint32_t id) const;
  void SendHosts(uint32_t id);
  uint64_t UseUp(uint32_t id);  // the contributions of a cached id, wherever they are; returns the own ticket
  void ResetCached(uint32_t id);
  void ResetMarks(uint32_t id);                             // all but the payloads
  Tally& OpenTally(NameView key, OpType type, double now);  // takes over the marks of the cached id, if any
  void FoldCached(uint32_t id, Tally* tally);
  void Contributed(Tally* tally);
  void CompleteTally(Tally* tally);
  void EraseTally(NameView key);
  // Takes back the sources with a stale part. The own entry among them goes to *own.
  void DropFromTally(Tally* tally, const std::function<bool(const Part&)>& stale, std::vector<Request>* own);

  const Place& place_;
  const SetTable& sets_;
  Outbox* out_;
  ReadyQueue* ready_;
  Cache cache_;
  std::unordered_map<uint32_t, SourceMask> pair_needs_;  // of sends, by id
  Payloads payloads_;
  std::vector<uint32_t> whole_;  // all of it is there: to be done
  TallyTable tallies_;
  std::deque<NameKey> to_decide_;
  int incomplete_ = 0;
  int own_waiting_ = 0;
};

}  // namespace hvd::negotiation
