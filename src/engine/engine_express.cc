// The short way of small blocking calls: which requests may take it, and their fingerprints.
#include <algorithm>
#include <cstring>

#include "engine/engine.h"
#include "engine/small_collective.h"

namespace hvd {
namespace {

uint64_t Mix(uint64_t hash, uint64_t word) {
  // Multiplication spreads upward, the shift brings it back down (as in MurmurHash3's finaliser). Names are not
  // adversarial: a rank that wants to harm the job can do so with its data.
  hash = (hash ^ word) * 0x9ddfea08eb382d69ull;
  return hash ^ (hash >> 29);
}

uint64_t Bits(double value) {
  uint64_t bits;
  std::memcpy(&bits, &value, sizeof bits);
  return bits;
}

// Of all that the members must agree on. Allgather and alltoall: rows may differ.
uint64_t Fingerprint(const hvd_op& op, const char* name, size_t name_bytes) {
  uint64_t hash = Mix(0x8b72e3c9d5a1f04dull, (static_cast<uint64_t>(op.dtype) << 32) | static_cast<uint32_t>(op.ndim));
  hash = Mix(hash, (static_cast<uint64_t>(op.type) << 32) | static_cast<uint32_t>(op.reduce_op));
  hash = Mix(hash, static_cast<uint32_t>(op.root_rank));
  hash = Mix(hash, Bits(op.prescale));
  hash = Mix(hash, Bits(op.postscale));
  const bool rows_differ = op.type == HVD_ALLGATHER || op.type == HVD_ALLTOALL;
  for (int i = rows_differ ? 1 : 0; i < op.ndim; ++i) hash = Mix(hash, static_cast<uint64_t>(op.shape[i]));
  hash = Mix(hash, name_bytes);
  for (size_t at = 0; at < name_bytes; at += sizeof(uint64_t)) {
    uint64_t word = 0;
    std::memcpy(&word, name + at, std::min(sizeof word, name_bytes - at));
    hash = Mix(hash, word);
  }
  return hash;
}

// A tensor for a result of another shape than the input.
Tensor Unplaced(const hvd_op& op) {
  Tensor t;
  t.shape.assign(op.shape, op.shape + op.ndim);
  t.output = static_cast<std::byte*>(op.output);
  t.room = static_cast<size_t>(op.output_bytes);
  return t;
}

}  // namespace

Status Engine::Run(const hvd_op* ops, int n, double timeout_s, std::shared_ptr<Completion>* out) {
  std::string counted;
  if (n == 1 && RunAtOnce(*ops, &counted, out)) return Status();
  if (Status refused = Submit(ops, n, HVD_SUBMIT_WILL_WAIT, out, counted); !refused.ok()) {
    Poll();  // the role may have been put down with something left to read
    return refused;
  }
  Wait(**out, timeout_s);
  return Status();
}

// True: done, on all ranks; what the core has to say about it, if anything, is in *out. False: nothing has happened,
// but that an unnamed operation may have got its *counted name.
// Requests in flight (on this rank) take the long way all together: their order is the log's, and their names must not
// be used twice. What is refused here is refused there with the reason.
bool Engine::RunAtOnce(const hvd_op& op, std::string* counted, std::shared_ptr<Completion>* out) {
  if (!express_ || op.process_set != 0 || op.type < HVD_ALLREDUCE || op.type > HVD_BARRIER) return false;
  if (failed_ || timeline_.active() || submissions_.any_in_flight()) return false;
  if (!Check(op, everybody_->group).ok()) return false;
  const SmallCollective small(op, rank_, size_);
  if (!small.Fits(Crowded())) return false;
  const char* name = op.name;
  if (name == nullptr || name[0] == '\0') {
    *counted = submissions_.NextName(0, static_cast<OpType>(op.type));
    name = counted->c_str();
  } else if (submissions_.EverRefused(name)) {
    return false;
  }
  if (!TryTakeRole()) return false;
  small.Bring(express_->mine());
  if (!express_->Meet(Fingerprint(op, name, std::strlen(name)), small.bytes())) {
    // Not LeaveRole: the caller is back at once, and a look of the background thread in between would make this rank
    // late for the next operation too.
    SetBell(BellState::kIdle);
    PutDownRole();
    return false;
  }
  Tensor result;
  if (small.has_result()) result = Unplaced(op);
  Status status = small.Take(*express_, &result);
  if (!status.ok() || result.result != nullptr) {
    *out = std::make_shared<Completion>(1);
    (*out)->results[0] = {static_cast<DType>(op.dtype), std::move(result)};
    Arrive(**out, std::move(status));
  }
  ++batches_;
  ++tensors_;
  LeaveRole(Leaving::kWaiter);
  return true;
}

}  // namespace hvd
