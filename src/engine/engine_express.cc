// The short way of small blocking calls: which requests may take it, and their fingerprints.
#include <algorithm>
#include <cstring>

#include "engine/engine.h"

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

// Of all that the members must agree on.
uint64_t Fingerprint(const hvd_op& op, size_t name_bytes) {
  uint64_t hash = Mix(0x8b72e3c9d5a1f04dull, (static_cast<uint64_t>(op.dtype) << 32) | static_cast<uint32_t>(op.ndim));
  hash = Mix(hash, static_cast<uint32_t>(op.reduce_op));
  hash = Mix(hash, Bits(op.prescale));
  hash = Mix(hash, Bits(op.postscale));
  for (int i = 0; i < op.ndim; ++i) hash = Mix(hash, static_cast<uint64_t>(op.shape[i]));
  hash = Mix(hash, name_bytes);
  for (size_t at = 0; at < name_bytes; at += sizeof(uint64_t)) {
    uint64_t word = 0;
    std::memcpy(&word, op.name + at, std::min(sizeof word, name_bytes - at));
    hash = Mix(hash, word);
  }
  return hash;
}

}  // namespace

Status Engine::Run(const hvd_op* ops, int n, double timeout_s, std::shared_ptr<Completion>* out) {
  if (n == 1 && RunAtOnce(*ops)) return Status();
  if (Status refused = Submit(ops, n, HVD_SUBMIT_WILL_WAIT, out); !refused.ok()) {
    Poll();  // the role may have been put down with something left to read
    return refused;
  }
  Wait(**out, timeout_s);
  return Status();
}

// True: done, on all ranks. False: nothing has happened.
// Requests in flight (on this rank) take the long way all together: their order is the log's, and their names must not
// be used twice. What is refused here is refused there with the reason.
bool Engine::RunAtOnce(const hvd_op& op) {
  if (!express_ || op.type != HVD_ALLREDUCE || op.process_set != 0 || op.reduce_op == HVD_ADASUM) return false;
  const size_t name_bytes = op.name == nullptr ? 0 : std::strlen(op.name);
  if (name_bytes == 0 || failed_ || timeline_.active() || submissions_.any_in_flight()) return false;
  if (submissions_.EverRefused(op.name) || !Check(op, everybody_->group).ok()) return false;
  size_t elems = 1;
  for (int i = 0; i < op.ndim; ++i) elems *= static_cast<size_t>(op.shape[i]);
  Express::Request request;
  request.dtype = static_cast<DType>(op.dtype);
  if (elems == 0 || elems > Express::kMostBytes / SizeOf(request.dtype)) return false;
  request.fingerprint = Fingerprint(op, name_bytes);
  request.op = op.reduce_op == HVD_AVERAGE ? ReduceOp::kSum : static_cast<ReduceOp>(op.reduce_op);
  request.prescale = op.prescale;
  request.postscale = op.postscale;
  if (op.reduce_op == HVD_AVERAGE) request.postscale *= AverageFactor(request.dtype, size_);
  request.input = op.input;
  request.output = op.output;
  request.elems = elems;
  if (!TryTakeRole()) return false;
  if (!express_->Run(request)) {
    // Not LeaveRole: the caller is back at once, and a look of the background thread in between would make this rank
    // late for the next operation too.
    SetBell(BellState::kIdle);
    PutDownRole();
    return false;
  }
  ++batches_;
  ++tensors_;
  LeaveRole(Leaving::kWaiter);
  return true;
}

}  // namespace hvd
