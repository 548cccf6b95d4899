// Express: a small allreduce that all ranks of a one-host job want at the same moment, without the negotiation
// (docs/design/0005-express.md).
//
// Every rank stores its data, with a fingerprint of the whole request, into a buffer of its own and then adds itself to
// one word that all share. The word decides: once it holds everybody, the operation happens on all ranks; until then a
// rank can take itself out again and go the long way, and so must the others. Nobody waits longer than kPatienceS.
// Used by the holder of the driver role only.
#pragma once

#include <cstdint>

#include "base/dtype.h"
#include "transport/neighbours.h"

namespace hvd {

class Express {
 public:
  struct Request {
    uint64_t fingerprint = 0;  // of everything that the members must agree on
    DType dtype = DType::kFloat32;
    ReduceOp op = ReduceOp::kSum;  // not Average, not Adasum
    double prescale = 1, postscale = 1;
    const void* input = nullptr;
    void* output = nullptr;
    size_t elems = 0;
  };
  static constexpr size_t kMostBytes = kArenaExpressBytes - 64;
  static constexpr int kMostRanks = 8;

  // The ranks of the job are the neighbours. crowded: they share cores, so who waits gives its core away.
  Express(Neighbours* neighbours, bool crowded) : n_(neighbours), crowded_(crowded) {}

  // True: done, on every rank. False: on none; the request has to go the long way.
  // Cost: one atomic operation of each rank on one cache line, one line read from each other rank; so the time grows
  // with the number of ranks, and a tree is better beyond a handful.
  bool Run(const Request& request);
  // A request that had to go the long way is done: who comes next must not take the mark of this rank for a new one.
  void Forget();

 private:
  struct Word;
  bool Come(uint32_t ident);
  bool Await();
  bool Leave();
  bool Combine(const Request& request);
  std::atomic<uint64_t>& word() const { return n_->arena(0).words().express; }
  std::byte* buffer(int local) const { return n_->arena(local).express(static_cast<int>(round_ % 2)); }

  Neighbours* n_;
  bool crowded_;
  uint16_t round_ = 1;   // of the operation to come; equal on all ranks
  bool marked_ = false;  // this rank has left a request, and may still be in the word as one who has
};

}  // namespace hvd
