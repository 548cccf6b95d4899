#include "negotiation/cache.h"

#include <algorithm>
#include <bit>
#include <utility>

namespace hvd {

void Cache::Define(uint32_t id, std::shared_ptr<const Request> request, uint64_t version) {
  if (id >= slots_.size()) {
    slots_.resize(id + 1);
    masks_.resize(slots_.size() * words_, 0);
  }
  Clear(id, version);
  if (!free_.empty() && free_.back() == id) free_.pop_back();
  Slot& s = slots_[id];
  s.process_set = request->process_set;
  s.meaning_from = version;
  s.request = std::move(request);
  Index(id);
}

void Cache::Index(uint32_t id) {
  if (2 * (named_ + 1) > table_.size()) {
    std::vector<Place> old = std::exchange(table_, std::vector<Place>(std::max<size_t>(64, 4 * (named_ + 1))));
    table_.resize(std::bit_ceil(table_.size()));
    named_ = 0;
    for (const Place& p : old) {
      if (p.id != kNone && p.id != id) Index(p.id);
    }
  }
  const Request& q = *slots_[id].request;
  const auto hash = static_cast<uint32_t>(NameHash()(NameView{q.process_set, q.name}));
  size_t i = hash & (table_.size() - 1);
  while (table_[i].id != kNone) i = (i + 1) & (table_.size() - 1);
  table_[i] = {hash, id};
  ++named_;
}

void Cache::Unindex(uint32_t id) {
  const size_t last = table_.size() - 1;
  const Request& q = *slots_[id].request;
  size_t hole = static_cast<uint32_t>(NameHash()(NameView{q.process_set, q.name})) & last;
  while (table_[hole].id != id) hole = (hole + 1) & last;
  --named_;
  // Move up what would not be found any more behind the hole.
  for (size_t i = (hole + 1) & last; table_[i].id != kNone; i = (i + 1) & last) {
    const size_t home = table_[i].hash & last;
    if (((i - home) & last) >= ((i - hole) & last)) {
      table_[hole] = table_[i];
      hole = i;
    }
  }
  table_[hole] = Place{};
}

void Cache::Clear(uint32_t id, uint64_t version) {
  Slot& s = slots_[id];
  if (s.request) {
    Unindex(id);
    s.request.reset();
  }
  ResetMarks(id);
  s.in_tally = false;
  s.valid_from = version;
  if (id < links_.size() && links_[id].linked) {
    Unlink(id);
    free_.push_back(id);  // Define takes it back at once when it is a redefinition
  }
}

void Cache::Unlink(uint32_t id) {
  Link& l = links_[id];
  (l.newer == kNone ? newest_ : links_[l.newer].older) = l.older;
  (l.older == kNone ? oldest_ : links_[l.older].newer) = l.newer;
  l = Link{};
}

void Cache::Touch(uint32_t id) {
  if (newest_ == id) return;
  if (id >= links_.size()) links_.resize(slots_.size());
  if (links_[id].linked) Unlink(id);
  links_[id] = {kNone, newest_, true};
  (newest_ == kNone ? oldest_ : links_[newest_].newer) = id;
  newest_ = id;
}

int32_t Cache::PickId(bool* evicts) {
  *evicts = false;
  if (!free_.empty()) return static_cast<int32_t>(free_.back());
  if (static_cast<int>(slots_.size()) < capacity_) return static_cast<int32_t>(slots_.size());
  constexpr int kLookedAt = 64;  // a bound on the work; names in flight are the recently used ones
  uint32_t id = oldest_;
  for (int i = 0; i < kLookedAt && id != kNone; ++i, id = links_[id].newer) {
    const Slot& s = slots_[id];
    if (s.state == Slot::kIdle && !s.in_tally) {
      *evicts = true;
      return static_cast<int32_t>(id);
    }
  }
  return -1;
}

}  // namespace hvd
