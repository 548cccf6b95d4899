// Arena: the layout of one rank's shared region. Only the owner stores into it, with five exceptions that are said
// below. Fixed part first (words, buffers, rings to each neighbour), then the resident heap.
//
//   words    progress, failed, bell; ring cursors, two pairs per neighbour; changed by other ranks too (exception 4):
//            the express word and its sleepers; of the first rank's only: whether ranks share cores
//   express  2 x 64 KB      what a rank brings to an operation without negotiation (engine/express/express.h)
//   small    2 x 64 KB      flat exchange of small batches
//   stages    2 x 512 KB     streamed chunks of large batches; one piece of memory. In an allreduce of two ranks the
//                           other stores its results back to where it read the data (exception 3)
//   rings    per neighbour: control 64 KB, data 256 KB (committed when first used)
//   heap     tensors that live in shared memory; neighbours read and write them during a reduction (exception 1). Its
//            end is for results of allgather and alltoall, which neighbours store into (exception 5)
#pragma once

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>

#include "transport/region.h"

namespace hvd::transport {

inline constexpr int kArenaStages = 2;
inline constexpr size_t kArenaExpressBytes = (64 << 10) + 128;
inline constexpr size_t kArenaSmallBytes = 64 << 10;
inline constexpr size_t kArenaStageBytes = 512 << 10;
inline constexpr size_t kMostResultBytes = size_t{512} << 20;
inline constexpr size_t kControlRingBytes = 64 << 10;
inline constexpr size_t kDataRingBytes = 256 << 10;

// What a rank is doing about its inputs; a publisher of something for it looks here (exception 2: the one that rings
// sets it to kAwake). kIdle, kBlocked: its background thread sleeps on the doorbell, with nothing or something pending;
// kWaiting: a waiting thread sleeps on the bell word itself (a futex), so that the background thread is left in peace.
enum class BellState : uint32_t { kAwake = 0, kIdle = 1, kBlocked = 2, kWaiting = 3 };

// What a rank has said last, where the others read it: its goodbye, or why it gives up.
enum class LastWord : uint32_t { kNone = 0, kReason = 1, kGoodbye = 2 };

struct ArenaWords {
  alignas(64) std::atomic<uint64_t> progress{0};  // (batch << 24) | step
  std::atomic<uint64_t> failed{0};                // first abandoned batch; same cache line as progress
  alignas(64) std::atomic<uint32_t> bell{0};
  std::atomic<int32_t> core{0};  // that this rank last waited on, if ranks share cores (engine/wake/spread.h)
  alignas(64) std::atomic<uint64_t> express{0};
  std::atomic<uint32_t> express_sleepers{0};          // on the express word; too many when one was killed there
  alignas(64) std::atomic<uint32_t> shared_cores{0};  // 1: some rank of this host sees ranks that share cores
  std::atomic<uint32_t> express_ways{0};              // how they wait for one another then; the first rank's to change
  alignas(64) std::atomic<uint64_t> moves{0};         // (batch << 24) | count of what has moved it, also between hosts
  std::atomic<uint32_t> last_word{0};                 // a LastWord
};

// Cursors of the byte ring from this rank to a neighbour (written) and of the ring from the neighbour to this rank
// (consumed).
struct RingWords {
  alignas(64) std::atomic<uint64_t> written{0};
  alignas(64) std::atomic<uint64_t> consumed{0};
};

enum class RingKind { kControl, kData };

class Arena {
 public:
  Arena() = default;
  Arena(std::shared_ptr<Region> region, int local_size);

  static size_t FixedBytes(int local_size);
  // Commits words, small buffers and stages. Owner only.
  Status Create();

  ArenaWords& words() const { return *reinterpret_cast<ArenaWords*>(base_); }
  RingWords& ring_words(RingKind kind, int neighbour) const {
    return reinterpret_cast<RingWords*>(base_ + kRingWordsAt)[neighbour * 2 + static_cast<int>(kind)];
  }
  std::byte* express(int which) const { return base_ + kWordsBytes + which * kArenaExpressBytes; }
  std::byte* small(int which) const { return base_ + small_at_ + which * kArenaSmallBytes; }
  std::byte* stage(int which) const { return base_ + stages_at_ + which * kArenaStageBytes; }
  std::byte* ring(RingKind kind, int neighbour) const { return base_ + ring_offset(kind, neighbour); }
  Status CommitRing(RingKind kind, int neighbour) {
    return region_->Commit(ring_offset(kind, neighbour),
                           kind == RingKind::kControl ? kControlRingBytes : kDataRingBytes);
  }
  size_t heap_offset() const { return heap_at_; }
  size_t heap_bytes() const { return region_->bytes() - heap_at_; }
  std::byte* heap() const { return base_ + heap_at_; }
  // The end of the heap, whole pages, is for results; what is before it for tensors.
  size_t results_bytes() const { return std::min(kMostResultBytes, heap_bytes() / 2) / kPageBytes * kPageBytes; }
  size_t tensors_bytes() const { return (heap_bytes() - results_bytes()) / kPageBytes * kPageBytes; }
  const std::shared_ptr<Region>& region() const { return region_; }

 private:
  static constexpr size_t kWordsBytes = 4096;
  static constexpr size_t kRingWordsAt =
      kWordsBytes + (2 * kArenaExpressBytes + kPageBytes - 1) / kPageBytes * kPageBytes;
  size_t ring_offset(RingKind kind, int neighbour) const {
    const size_t pair = kControlRingBytes + kDataRingBytes;
    return rings_at_ + neighbour * pair + (kind == RingKind::kControl ? 0 : kControlRingBytes);
  }

  std::shared_ptr<Region> region_;
  std::byte* base_ = nullptr;
  size_t small_at_ = 0, stages_at_ = 0, rings_at_ = 0, heap_at_ = 0;
};

}  // namespace hvd::transport
