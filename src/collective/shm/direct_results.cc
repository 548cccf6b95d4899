#include "collective/shm/direct_results.h"

#include <algorithm>
#include <optional>
#include <utility>

namespace hvd::collective::shm {
namespace {

class HeapOwner final : public BlockOwner {
 public:
  explicit HeapOwner(std::shared_ptr<transport::ResultHeap> heap) : heap_(std::move(heap)) {}
  void TakeBack(std::byte* data, size_t) override { (void)heap_->Free(data); }
  void HandOver(std::byte* data) override { heap_->HandOver(data); }

 private:
  std::shared_ptr<transport::ResultHeap> heap_;
};

class SharedBlocks final : public BlockGiver {
 public:
  explicit SharedBlocks(std::shared_ptr<transport::ResultHeap> heap) : heap_(std::move(heap)) {}
  std::unique_ptr<Block> Give(size_t bytes) override {
    std::byte* const data = heap_->Take(bytes);
    if (data == nullptr) return nullptr;
    return std::make_unique<Block>(data, bytes, std::make_shared<HeapOwner>(heap_));
  }

 private:
  std::shared_ptr<transport::ResultHeap> heap_;
};

}  // namespace

bool CanOfferResults(const LocalView& view, const Batch& batch) {
  const auto is_free = [](const Tensor& t) { return t.output == nullptr && t.giver == nullptr; };
  return view.results() != nullptr && batch.tensors.size() * sizeof(uint64_t) <= LocalView::small_bytes() &&
         std::all_of(batch.tensors.begin(), batch.tensors.end(), is_free);
}

std::vector<uint64_t> DirectResults::OwnPlaces(Steps& steps, const Batch& batch) {
  std::vector<uint64_t> places;
  places.reserve(batch.tensors.size());
  for (const Tensor& t : batch.tensors) {
    const std::optional<uint64_t> offset = steps.view().ResultOffset(t.output);
    places.push_back(offset ? *offset + 1 : 0);
  }
  return places;
}

Status PlaceInShared(const LocalView& view, Tensor* t, size_t bytes) {
  SharedBlocks shared(view.results());
  t->giver = &shared;
  const Status placed = t->PlaceResult(bytes);
  t->giver = nullptr;
  return placed;
}

Task CopyToAll(Steps& steps, const std::byte* part, size_t bytes, std::vector<std::byte*> places, StoreMode mode) {
  for (size_t at = 0; at < bytes; at += kPieceBytes) {
    const size_t piece = std::min(bytes - at, kPieceBytes);
    for (std::byte* place : places) kernels::Copy(place + at, part + at, piece, mode);
    if (steps.Tired(piece * places.size())) co_await Yield();
  }
  co_return Status();
}

}  // namespace hvd::collective::shm
