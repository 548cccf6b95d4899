// Cache: the ids that stand for agreed requests, the same on every node at the same place of the log, and the marks
// that this node has seen for each. Only log records change what an id means.
//
// An id belongs to one name as long as that name's process set lives; nothing is evicted. When all members agree on
// something else for the name, the id means that from then on: none of them can have a mark of it under way, because
// each has just sent the whole request instead. So a mark is either good or void (see CachedRequest::valid_from), and
// needs no history. When the cache is full, further names are negotiated in full each time: the first names stay fast,
// whatever the order of use.
//
// The hot path of the whole negotiation is here: a mark is an index, two compares and an OR.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "negotiation/values/request.h"
#include "negotiation/values/turn.h"

namespace hvd::negotiation {

struct CachedRequest {
  enum State : uint8_t { kIdle, kPartial, kComplete };
  std::shared_ptr<const Request> request;  // null: the id means nothing
  uint64_t valid_from = 0;                 // marks sent before are void: set, group or operation has ended
  uint64_t own_ticket = 0;                 // this rank's entry, while its mark stands
  double since = 0;                        // first mark
  Turn turn;                               // equal on all ranks at the same place of the log
  int32_t process_set = 0;
  State state = kIdle;
  bool in_tally = false;  // marks go to the full tally of the name: somebody sent something else
  bool pair = false;      // of a send: two ranks mark it, and not the process set
};

class Cache {
 public:
  static constexpr size_t kMostBytes = size_t{64} << 20;  // about 180,000 names of 40 letters

  // capacity: names, < 0: as many as fit into kMostBytes, which holds in any case.
  Cache(int capacity, int words) : capacity_(capacity), words_(words) {}

  size_t size() const { return cached_.size(); }  // ids ever given
  size_t names() const { return named_; }
  size_t bytes() const { return bytes_; }
  int capacity() const { return capacity_; }
  CachedRequest& at(uint32_t id) { return cached_[id]; }
  const CachedRequest& at(uint32_t id) const { return cached_[id]; }
  uint64_t* mask(uint32_t id) { return &masks_[static_cast<size_t>(id) * words_]; }
  const uint64_t* mask(uint32_t id) const { return &masks_[static_cast<size_t>(id) * words_]; }
  // -1: the name has no id.
  int32_t IdOf(NameView key) const {
    if (table_.empty()) return -1;
    const auto hash = static_cast<uint32_t>(NameHash()(key));
    for (size_t i = hash & (table_.size() - 1);; i = (i + 1) & (table_.size() - 1)) {
      const Place& p = table_[i];
      if (p.id == kNone) return -1;
      if (p.hash == hash && cached_[p.id].process_set == key.set && cached_[p.id].request->name == key.name) {
        return static_cast<int32_t>(p.id);
      }
    }
  }

  // The id means this from now on; it has no marks.
  void Define(uint32_t id, std::shared_ptr<const Request> request);
  // The id means nothing any more, and its marks are void.
  void Clear(uint32_t id, uint64_t version);
  void ResetMarks(uint32_t id) {
    CachedRequest& s = cached_[id];
    s.state = CachedRequest::kIdle;
    s.own_ticket = 0;
    uint64_t* m = mask(id);
    for (int w = 0; w < words_; ++w) m[w] = 0;
  }
  // The id for one more name; -1: the cache is full.
  int32_t NewId(const Request& request) const;

 private:
  static constexpr uint32_t kNone = UINT32_MAX;
  size_t Cost(const Request& request) const;
  void Index(uint32_t id);
  void Unindex(uint32_t id);

  int capacity_;
  int words_;
  std::vector<CachedRequest> cached_;
  std::vector<uint64_t> masks_;
  // Names to ids: open addressing, at most half full. One small line of memory for most look-ups, since between two
  // steps of a training everything here has left the caches.
  struct Place {
    uint32_t hash = 0;
    uint32_t id = kNone;
  };
  std::vector<Place> table_;
  size_t named_ = 0, bytes_ = 0;
  std::vector<uint32_t> free_;  // ids of process sets that have ended
};

}  // namespace hvd::negotiation
