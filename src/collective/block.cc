// Block: result memory that the core allocates and hands out (batch.h).
//
// Large blocks, when they are given back, wait for the next result of their size, and very large ones ask for huge
// pages: the first touch of new memory costs more than the collective that fills it.
#include <sys/mman.h>

#include <mutex>
#include <new>

#include "collective/batch.h"

namespace hvd::collective {
namespace {

constexpr size_t kLine = 64;
constexpr size_t kHugePage = 2u << 20;
constexpr size_t kLargeBytes = 256u << 10;
constexpr size_t kMostKeptBytes = 128u << 20;  // of all that wait
constexpr int kMostKept = 4;

bool IsLarge(size_t bytes) { return bytes >= kLargeBytes; }
size_t RoundedUp(size_t bytes, size_t unit) { return bytes == 0 ? unit : (bytes + unit - 1) / unit * unit; }
// The same for a size and for what it is rounded up to.
size_t AlignmentOf(size_t bytes) { return RoundedUp(bytes, kLine) >= 2 * kHugePage ? kHugePage : kLine; }

std::byte* Obtain(size_t rounded) {
  return static_cast<std::byte*>(::operator new(rounded, std::align_val_t(AlignmentOf(rounded)), std::nothrow));
}
void Release(std::byte* data, size_t rounded) { ::operator delete(data, std::align_val_t(AlignmentOf(rounded))); }

// Large blocks that nobody uses. Nobody waits for the lock: a forked child may have inherited it locked.
class Shelf {
 public:
  // Memory of exactly this many bytes, or nullptr.
  std::byte* Take(size_t bytes) {
    std::unique_lock<std::mutex> lock(mutex_, std::try_to_lock);
    if (!lock.owns_lock()) return nullptr;
    for (int i = count_ - 1; i >= 0; --i) {  // the last one may still be in the cache
      if (kept_[i].bytes == bytes) return Remove(i);
    }
    return nullptr;
  }
  // True: kept. The oldest make room.
  bool Put(std::byte* data, size_t bytes) {
    std::unique_lock<std::mutex> lock(mutex_, std::try_to_lock);
    if (!lock.owns_lock() || bytes > kMostKeptBytes) return false;
    while (count_ == kMostKept || bytes_ + bytes > kMostKeptBytes) ReleaseOldest();
    kept_[count_++] = {data, bytes};
    bytes_ += bytes;
    return true;
  }
  void Clear() {
    std::unique_lock<std::mutex> lock(mutex_, std::try_to_lock);
    while (lock.owns_lock() && count_ > 0) ReleaseOldest();
  }

 private:
  struct Kept {
    std::byte* data;
    size_t bytes;
  };
  void ReleaseOldest() {
    const size_t bytes = kept_[0].bytes;
    Release(Remove(0), bytes);
  }
  std::byte* Remove(int at) {
    const Kept taken = kept_[at];
    --count_;
    for (int i = at; i < count_; ++i) kept_[i] = kept_[i + 1];
    bytes_ -= taken.bytes;
    return taken.data;
  }

  std::mutex mutex_;  // guards all
  Kept kept_[kMostKept] = {};
  int count_ = 0;
  size_t bytes_ = 0;
};

// Leaked on purpose: results may die with the last objects of the process.
Shelf& TheShelf() {
  static auto* const kShelf = new Shelf;
  return *kShelf;
}

}  // namespace

// data stays nullptr when there is no memory; never for 0 bytes.
Block::Block(size_t size) : bytes(size) {
  const size_t align = AlignmentOf(size);
  if (size > SIZE_MAX - align) return;
  const size_t rounded = RoundedUp(size, align);
  if (IsLarge(size)) data = TheShelf().Take(rounded);
  if (data != nullptr) return;
  data = Obtain(rounded);
#ifdef MADV_HUGEPAGE
  // A hint: without huge pages the block is merely slower to fill.
  if (data != nullptr && align == kHugePage) (void)madvise(data, rounded, MADV_HUGEPAGE);
#endif
}

Block::~Block() {
  if (data == nullptr) return;
  if (owner != nullptr) {
    owner->TakeBack(data, bytes);
    return;
  }
  const size_t rounded = RoundedUp(bytes, AlignmentOf(bytes));
  if (!IsLarge(bytes) || !TheShelf().Put(data, rounded)) Release(data, rounded);
}

void Block::FreeKept() { TheShelf().Clear(); }

Status Tensor::PlaceResult(size_t bytes) {
  if (output != nullptr && room == bytes && bytes > 0) return Status();
  if (giver != nullptr) result = giver->Give(bytes);
  if (result == nullptr) result = std::make_unique<Block>(bytes);
  output = result->data;
  if (output != nullptr) return Status();
  return Status(Code::kResource,
                "no memory for a result of " + std::to_string(bytes) + " bytes; free memory, or pass smaller tensors.");
}

}  // namespace hvd::collective
