// Allreduce over shared memory: chooses between flat, streamed and resident (see collectives.h), and runs the flat one
// itself.
#include "collective/shm/allreduce.h"

#include <algorithm>
#include <cstring>

#include "collective/batch_log.h"
#include "collective/shm/collectives.h"

namespace hvd::collective::shm {
namespace {

// Up to here everybody combines everything: one synchronisation instead of two. Measured with 2 ranks on 2 cores: 4 KB
// flat 1.3 us, streamed 1.4; 8 KB flat 2.3, streamed 1.8.
constexpr size_t kFlatBytes = 4 << 10;
// Smaller tensors go through the stages even when they are resident; so a batch has a bounded number of candidates.
constexpr size_t kResidentBytes = 4 << 10;

struct Offer {
  uint64_t input = 0, output = 0;  // offset in the own resident heap + 1; 0: not resident
};
struct OfferHeader {
  uint64_t staged = 0;  // 1: this rank offers nothing and has stored its first chunk already
};
constexpr size_t kMostOffers = (LocalView::small_bytes() - sizeof(OfferHeader)) / sizeof(Offer);

size_t TotalBytes(const Batch& batch) {
  size_t elems = 0;
  for (const Tensor& t : batch.tensors) elems += t.elems;
  return elems * SizeOf(batch.dtype);
}

// Asks for the lines that the next batch, probably of the same size, will store into: the others hold copies of them,
// and waiting for those to be given up was a third of the time of 1 to 4 KB.
void WarmNextBuffer(std::byte* buffer, size_t bytes) {
  for (size_t at = 0; at < bytes; at += kShareAlign) {
#if defined(__x86_64__)
    asm volatile("prefetchw %0" : : "m"(buffer[at]));
#else
    __builtin_prefetch(buffer + at, 1);
#endif
  }
}

void CombineFlat(LocalView& view, const Batch& batch, int which) {
  const int n = view.size();
  PointerList<const void*> srcs(n);
  size_t at = 0;
  for (const Tensor& t : batch.tensors) {
    for (int m = 0; m < n; ++m) srcs[m] = view.small(m, which) + at;
    void* dst = t.output;
    kernels::Reduce({batch.dtype, batch.op, {batch.prescale, batch.postscale}, srcs.data(), n, &dst, 1, t.elems});
    at += t.elems * SizeOf(batch.dtype);
  }
}

// Invariant: nobody stores into a small buffer that another still combines: the buffers alternate, and Acquire waits
// for the readers of the batch that used this one last. All of them have finished it when they publish for the batch in
// between, so it mostly costs nothing.
Task FlatAllreduce(const Group& group, Batch& batch, size_t total) {
  LocalView& view = *group.local;
  view.Begin(batch.seq);
  const int which = static_cast<int>(batch.seq % LocalView::kSmallBuffers);
  co_await view.Acquire(LocalView::Buffer::kSmall, which);
  std::byte* small = view.small(view.index(), which);
  for (const Tensor& t : batch.tensors) {
    const size_t bytes = t.elems * SizeOf(batch.dtype);
    kernels::Copy(small, t.input, bytes);
    small += bytes;
  }
  view.Publish(1);
  HVD_CO_TRY(co_await view.AllReached(1));
  CombineFlat(view, batch, which);
  WarmNextBuffer(view.small(view.index(), 1 - which), total);
  view.Finish();
  co_return Status();
}

// The tensors of a batch that may be resident, the same on all members.
std::vector<size_t> Candidates(const Batch& batch) {
  std::vector<size_t> candidates;
  for (size_t i = 0; i < batch.tensors.size() && candidates.size() < kMostOffers; ++i) {
    if (batch.tensors[i].elems * SizeOf(batch.dtype) >= kResidentBytes) candidates.push_back(i);
  }
  return candidates;
}

// Looks the candidates up in the own resident heap. Empty: none is there.
std::vector<Offer> OwnOffers(const LocalView& view, const Batch& batch, const std::vector<size_t>& candidates) {
  std::vector<Offer> offers;
  for (size_t k = 0; k < candidates.size(); ++k) {
    const Tensor& t = batch.tensors[candidates[k]];
    const size_t bytes = t.elems * SizeOf(batch.dtype);
    const auto in = view.ResidentOffset(t.input, bytes);
    const auto out = t.output == t.input ? in : view.ResidentOffset(t.output, bytes);
    if (!in || !out) continue;
    offers.resize(candidates.size());
    offers[k] = {*in + 1, *out + 1};
  }
  return offers;
}

struct Partition {
  std::vector<ResidentTensor> resident;
  Ranges streamed;
  size_t resident_bytes = 0;
};

// Reads everybody's offers; comes to the same partition on all members.
Partition Divide(Steps& steps, const Batch& batch, const std::vector<size_t>& candidates, int which) {
  LocalView& view = steps.view();
  Partition result;
  size_t k = 0;
  for (size_t i = 0; i < batch.tensors.size(); ++i) {
    const Tensor& t = batch.tensors[i];
    ResidentTensor r;
    r.bytes = t.elems * SizeOf(batch.dtype);
    const bool candidate = k < candidates.size() && candidates[k] == i;
    for (int m = 0; candidate && m < steps.n(); ++m) {
      OfferHeader header;
      Offer offer;
      std::memcpy(&header, view.small(m, which), sizeof header);
      if (!header.staged) std::memcpy(&offer, view.small(m, which) + sizeof header + k * sizeof offer, sizeof offer);
      if (offer.input == 0 || offer.output == 0) break;
      std::byte* in = view.Resident(m, offer.input - 1, r.bytes);
      std::byte* out = view.Resident(m, offer.output - 1, r.bytes);
      if (in == nullptr || out == nullptr) break;
      r.inputs.push_back(in);
      r.outputs.push_back(out);
    }
    if (candidate) ++k;
    if (static_cast<int>(r.outputs.size()) == steps.n()) {
      result.resident_bytes += r.bytes;
      result.resident.push_back(std::move(r));
    } else {
      result.streamed.Add(t.input, t.output, r.bytes);
    }
  }
  return result;
}

bool AllStaged(Steps& steps, int which) {
  for (int m = 0; m < steps.n(); ++m) {
    OfferHeader header;
    std::memcpy(&header, steps.view().small(m, which), sizeof header);
    if (!header.staged) return false;
  }
  return true;
}

// What has no resident way. The results are measured here, because only here their mode has an effect.
Task StreamMeasured(const Group& group, Steps& steps, const Reduction& what, const Ranges& ranges, bool staged,
                    StoreMode shared, Flow* flow) {
  StoreTrial results(group, StoreChooser::Use::kAllreduceResults, ranges.apart());
  results.Start();
  HVD_CO_TRY(co_await StreamReduce(steps, what, ranges, staged, {shared, results.mode()}, flow));
  results.Stop();
  co_return Status();
}

// Step 1: the offers, and from a rank that offers nothing its first chunk too: if nobody offers anything, that chunk is
// already announced. Then the resident part (1 step), then the stream.
Task LargeAllreduce(const Group& group, Batch& batch, size_t total) {
  Steps steps(group, batch.seq);
  LocalView& view = steps.view();
  const Reduction what{batch.dtype, batch.op, {batch.prescale, batch.postscale}};
  const std::vector<size_t> candidates = Candidates(batch);
  const std::vector<Offer> offers = OwnOffers(view, batch, candidates);
  const OfferHeader header{offers.empty() ? 1u : 0u};
  Ranges all;
  for (const Tensor& t : batch.tensors) all.Add(t.input, t.output, t.elems * SizeOf(batch.dtype));

  const int which = steps.small_buffer(0);
  co_await view.Acquire(LocalView::Buffer::kSmall, which);
  std::memcpy(view.small(steps.me(), which), &header, sizeof header);
  if (!offers.empty())
    std::memcpy(view.small(steps.me(), which) + sizeof header, offers.data(), offers.size() * sizeof(Offer));
  HVD_CO_TRY(co_await AcquireStages(steps));
  StoreTrial trial(group, header.staged ? StoreChooser::Use::kAllreduce : StoreChooser::Use::kResident, total);
  trial.Start();
  if (header.staged) StageChunk(steps, all, StreamPlan(total, steps.n()), 0, trial.mode());
  trial.Pause();
  steps.Take(1);
  view.Publish(steps.taken());
  HVD_CO_TRY(co_await view.AllReached(steps.taken()));

  trial.Start();
  if (AllStaged(steps, which)) {
    LogWay(batch, "streamed through shared memory");
    HVD_CO_TRY(co_await StreamMeasured(group, steps, what, all, true, trial.mode(), batch.flow));
  } else {
    const Partition parts = Divide(steps, batch, candidates, which);
    LogWay(batch, parts.streamed.total() > 0 ? "in place where it lies in shared memory, the rest streamed through it"
                                             : "in place, in shared memory");
    if (!parts.resident.empty()) HVD_CO_TRY(co_await ResidentReduce(steps, what, parts.resident, trial.mode()));
    if (parts.streamed.total() > 0) {
      HVD_CO_TRY(co_await StreamMeasured(group, steps, what, parts.streamed, false, trial.mode(), batch.flow));
    }
    // The others have stored their shares into this rank's resident tensors.
    HVD_CO_TRY(co_await view.AllReached(steps.taken()));
  }
  trial.Stop();
  view.Finish();
  co_return Status();
}

Task BySize(const Group& group, Batch& batch, size_t total) {
  if (total > kFlatBytes) return LargeAllreduce(group, batch, total);
  LogWay(batch, "flat: everybody combines everything");
  return FlatAllreduce(group, batch, total);
}

// What either way reads first. A task of its own: in theirs it would cost those that have no flow.
Task OnceItArrives(const Group& group, Batch& batch, size_t total) {
  HVD_CO_TRY(co_await batch.flow->Arrived(total > kFlatBytes ? StreamPlan(total, group.size()).chunk_bytes : total));
  co_return co_await BySize(group, batch, total);
}

}  // namespace

Task Allreduce(const Group& group, Batch& batch) {
  const size_t total = TotalBytes(batch);
  return batch.flow == nullptr ? BySize(group, batch, total) : OnceItArrives(group, batch, total);
}

}  // namespace hvd::collective::shm
