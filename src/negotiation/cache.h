// Cache: the ids that stand for agreed requests, the same on every node at the same place of the log, and the marks
// that this node has seen for each. Only log records change what an id means; a mark sent before the last change is
// known by its version (Slot::valid_from). The root also keeps the order of use and picks victims; the others obey.
//
// The hot path of the whole negotiation is here: a mark is an index, two compares and an OR.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "negotiation/name_key.h"
#include "negotiation/request.h"

namespace hvd {

struct Slot {
  enum State : uint8_t { kIdle, kPartial, kComplete };
  std::shared_ptr<const Request> request;  // null: the id means nothing
  uint64_t meaning_from = 0;               // version that gave it this meaning
  uint64_t valid_from = 0;  // marks sent before this version need a closer look: another meaning, or void
  uint64_t own_ticket = 0;  // this rank's entry, while its mark stands
  double since = 0;         // first mark
  int32_t process_set = 0;
  State state = kIdle;
  bool in_tally = false;  // marks go to the full tally of the name: somebody sent something else
};

class Cache {
 public:
  Cache(int capacity, int words) : capacity_(capacity), words_(words) {}

  size_t size() const { return slots_.size(); }
  int capacity() const { return capacity_; }
  Slot& at(uint32_t id) { return slots_[id]; }
  const Slot& at(uint32_t id) const { return slots_[id]; }
  uint64_t* mask(uint32_t id) { return &masks_[static_cast<size_t>(id) * words_]; }
  // -1: the name has no id.
  int32_t IdOf(NameView key) const {
    if (table_.empty()) return -1;
    const auto hash = static_cast<uint32_t>(NameHash()(key));
    for (size_t i = hash & (table_.size() - 1);; i = (i + 1) & (table_.size() - 1)) {
      const Place& p = table_[i];
      if (p.id == kNone) return -1;
      if (p.hash == hash && slots_[p.id].process_set == key.set && slots_[p.id].request->name == key.name) {
        return static_cast<int32_t>(p.id);
      }
    }
  }

  // The id means this from now on. What it meant before is forgotten; the caller has dealt with its marks.
  void Define(uint32_t id, std::shared_ptr<const Request> request, uint64_t version);
  void Clear(uint32_t id, uint64_t version);
  void ResetMarks(uint32_t id) {
    Slot& s = slots_[id];
    s.state = Slot::kIdle;
    s.own_ticket = 0;
    uint64_t* m = mask(id);
    for (int w = 0; w < words_; ++w) m[w] = 0;
  }

  // Root only.
  void Touch(uint32_t id);
  // An id for one more name: a free one, a new one, or the least recently used without marks. -1: none can be had now.
  int32_t PickId(bool* evicts);

 private:
  static constexpr uint32_t kNone = UINT32_MAX;
  void Unlink(uint32_t id);
  void Index(uint32_t id);
  void Unindex(uint32_t id);

  int capacity_;
  int words_;
  std::vector<Slot> slots_;
  std::vector<uint64_t> masks_;
  // Names to ids: open addressing, at most half full. One small line of memory for most look-ups, since between two
  // steps of a training everything here has left the caches.
  struct Place {
    uint32_t hash = 0;
    uint32_t id = kNone;
  };
  std::vector<Place> table_;
  size_t named_ = 0;
  // Order of use, as a list through arrays; filled at the root only.
  struct Link {
    uint32_t newer = kNone, older = kNone;
    bool linked = false;
  };
  std::vector<Link> links_;
  uint32_t newest_ = kNone, oldest_ = kNone;
  std::vector<uint32_t> free_;
};

}  // namespace hvd
