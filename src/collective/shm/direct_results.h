// Results that lie where the other members can store: each member copies its parts straight into the results of all,
// one copy and no stage. For allgather and alltoall, whose results the core allocates.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "base/task.h"
#include "collective/batch.h"
#include "collective/shm/steps.h"

namespace hvd::collective::shm {

// Of what all members send together: less goes through the stages, or with the sizes.
inline constexpr size_t kDirectBytes = 256 << 10;

// Whether a member can offer results that others store into: it has shared memory for them, and nobody gives other
// memory. The offers of a batch fit one small buffer.
bool CanOfferResults(const LocalView& view, const Batch& batch);

// How the parts of all members come, alike on all of them once their sizes are known.
enum class Way {
  kDirect,     // into results that are offered by all; as kStreamed where there is no room for some
  kAnnounced,  // through the stages: the first pieces came with the sizes
  kStreamed,   // through the stages: some member has announced no piece
};
// Whether a member that sends so much puts the first piece of it into its stage, with the sizes.
inline bool StagesFirst(size_t header_bytes, size_t sent_bytes, bool offers) {
  return !TravelsInline(header_bytes, sent_bytes) && !(offers && sent_bytes >= kDirectBytes);
}
// sent(m): bytes; offers(m): what CanOfferResults has said there.
template <class Sent, class Offers>
Way ChooseWay(int n, size_t header_bytes, Sent sent, Offers offers) {
  size_t all = 0;
  bool all_offer = true, announced = true;
  for (int m = 0; m < n; ++m) {
    const size_t bytes = sent(m);
    all += bytes;
    all_offer = all_offer && offers(m);
    announced = announced && (TravelsInline(header_bytes, bytes) || StagesFirst(header_bytes, bytes, offers(m)));
  }
  if (all_offer && all >= kDirectBytes) return Way::kDirect;
  return announced ? Way::kAnnounced : Way::kStreamed;
}

// As Tensor::PlaceResult, in memory that others can store into, where there is room.
Status PlaceInShared(const LocalView& view, Tensor* t, size_t bytes);

// Where the results of all members lie.
class DirectResults {
 public:
  // The results of this member have been placed. 1 step, after ExchangeHeaders, whose inline data stay. sizes(m, t):
  // bytes of the result of a tensor on a member.
  template <class Sizes>
  Task Exchange(Steps& steps, const Batch& batch, Sizes sizes) {
    const size_t tensors = batch.tensors.size();
    const std::vector<uint64_t> mine = OwnPlaces(steps, batch);
    std::vector<uint64_t> all(tensors * steps.n());
    HVD_CO_TRY(co_await ExchangeBlobs(steps, reinterpret_cast<const std::byte*>(mine.data()),
                                      tensors * sizeof(uint64_t), reinterpret_cast<std::byte*>(all.data())));
    places_.assign(all.size(), nullptr);
    complete_ = true;
    for (int m = 0; m < steps.n(); ++m) {
      for (size_t t = 0; t < tensors; ++t) {
        const size_t bytes = sizes(m, t), i = m * tensors + t;
        if (bytes == 0) continue;
        if (all[i] != 0) places_[i] = steps.view().Result(m, all[i] - 1, bytes);
        complete_ = complete_ && places_[i] != nullptr;
      }
    }
    co_return Status();
  }
  // The same on all members: every result can be stored into by all.
  bool complete() const { return complete_; }
  // Of tensor t of n on a member.
  std::byte* result(int member, size_t t, size_t n) const { return places_[member * n + t]; }

 private:
  // Offsets + 1; 0: there is none.
  static std::vector<uint64_t> OwnPlaces(Steps& steps, const Batch& batch);

  std::vector<std::byte*> places_;
  bool complete_ = false;
};

// Copies a part to several places, piece by piece, so that it is read from memory once.
Task CopyToAll(Steps& steps, const std::byte* part, size_t bytes, std::vector<std::byte*> places, StoreMode mode);

}  // namespace hvd::collective::shm
