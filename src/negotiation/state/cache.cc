#include "negotiation/state/cache.h"

#include <algorithm>
#include <bit>
#include <utility>

namespace hvd::negotiation {

// About what a name takes: its entry, the request with its own allocations, two to four places of the table.
size_t Cache::Cost(const Request& request) const {
  constexpr size_t kAllocations = 64;
  return sizeof(CachedRequest) + sizeof(Request) + 4 * sizeof(Place) + kAllocations + request.name.size() +
         8 * (request.shape.size() + static_cast<size_t>(words_));
}

int32_t Cache::NewId(const Request& request) const {
  if (capacity_ >= 0 && named_ >= static_cast<size_t>(capacity_)) return -1;
  if (bytes_ + Cost(request) > kMostBytes) return -1;
  return static_cast<int32_t>(free_.empty() ? cached_.size() : free_.back());
}

void Cache::Define(uint32_t id, std::shared_ptr<const Request> request) {
  if (id >= cached_.size()) {
    cached_.resize(id + 1);
    masks_.resize(cached_.size() * words_, 0);
  }
  CachedRequest& s = cached_[id];
  if (s.request) {
    bytes_ -= Cost(*s.request);
    Unindex(id);
  } else if (!free_.empty() && free_.back() == id) {
    free_.pop_back();
  }
  bytes_ += Cost(*request);
  s.turn.LogAnswered();
  s.process_set = request->process_set;
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
  const Request& q = *cached_[id].request;
  const auto hash = static_cast<uint32_t>(NameHash()(NameView{q.process_set, q.name}));
  size_t i = hash & (table_.size() - 1);
  while (table_[i].id != kNone) i = (i + 1) & (table_.size() - 1);
  table_[i] = {hash, id};
  ++named_;
}

void Cache::Unindex(uint32_t id) {
  const size_t last = table_.size() - 1;
  const Request& q = *cached_[id].request;
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
  CachedRequest& s = cached_[id];
  if (s.request) {
    bytes_ -= Cost(*s.request);
    Unindex(id);
    s.request.reset();
    free_.push_back(id);
  }
  ResetMarks(id);
  s.turn.LogAnswered();
  s.in_tally = false;
  s.valid_from = version;
}

}  // namespace hvd::negotiation
