// Allreduce and reducescatter by MPI; see collectives.h.
#include "backend/mpi/call.h"
#include "collective/kernels/kernels.h"
#include "collective/shm/collectives.h"

namespace hvd::backend::mpi {
namespace {

namespace kernels = collective::kernels;
using collective::Tensor;
using collective::shm::BlockOfMember;
using collective::shm::RowBlock;

constexpr size_t kFlatBytes = 256 << 10;  // of all members

void Scaled(DType dtype, const void* from, void* to, size_t elems, double factor) {
  kernels::Reduce({dtype, ReduceOp::kSum, {factor, 1.0}, &from, 1, &to, 1, elems});
}

size_t ElementsOf(const collective::Batch& batch) {
  size_t elems = 0;
  for (const Tensor& t : batch.tensors) elems += t.elems;
  return elems;
}

// fn(tensor, first element in it, elements, elements of the range before them), for a range of a batch's elements.
template <class Fn>
void VisitElements(const collective::Batch& batch, size_t begin, size_t count, Fn fn) {
  size_t at = 0, done = 0;
  for (const Tensor& t : batch.tensors) {
    const size_t first = std::max(begin, at), last = std::min(begin + count, at + t.elems);
    if (first < last) {
      fn(t, first - at, last - first, done);
      done += last - first;
    }
    at += t.elems;
  }
}

void TakeInputs(const Call& call, size_t begin, size_t count, std::byte* to, double factor) {
  const size_t size = call.elem_bytes();
  VisitElements(call.batch, begin, count, [&](const Tensor& t, size_t first, size_t elems, size_t before) {
    Scaled(call.batch.dtype, t.input + first * size, to + before * size, elems, factor);
  });
}

void GiveOutputs(const Call& call, size_t begin, size_t count, const std::byte* from, double factor) {
  const size_t size = call.elem_bytes();
  VisitElements(call.batch, begin, count, [&](const Tensor& t, size_t first, size_t elems, size_t before) {
    Scaled(call.batch.dtype, from + before * size, t.output + first * size, elems, factor);
  });
}

// *to = the parts of all members, which lie `stride` bytes apart, in the order of the ranks.
void ReduceParts(const Call& call, const std::byte* parts, size_t stride, void* to, size_t elems) {
  std::vector<const void*> from(call.n());
  for (int m = 0; m < call.n(); ++m) from[m] = parts + m * stride;
  const collective::Batch& b = call.batch;
  kernels::Reduce({b.dtype, b.op, {b.prescale, b.postscale}, from.data(), call.n(), &to, 1, elems});
}

Task ByLibrary(const Call& call, Handle op) {
  const size_t total = ElementsOf(call.batch), most = kPieceBytes / call.elem_bytes();
  const size_t bytes = std::min(total, most) * call.elem_bytes();
  Result<Sides> sides = Prepare(call, bytes, bytes);
  HVD_CO_TRY(sides.status());
  const Handle type = call.library().handles().Type(call.batch.dtype);
  for (size_t at = 0; at < total; at += most) {
    const size_t count = std::min(most, total - at);
    TakeInputs(call, at, count, sides->send, call.batch.prescale);
    HVD_CO_TRY(co_await Finished(call.job,
                                 call.library().StartAllreduce(sides->send, sides->receive, static_cast<int>(count),
                                                               type, op, call.comm, call.request()),
                                 count * call.elem_bytes()));
    GiveOutputs(call, at, count, sides->receive, call.batch.postscale);
  }
  co_return Status();
}

Task Flat(const Call& call) {
  const size_t count = ElementsOf(call.batch), bytes = count * call.elem_bytes();
  Result<Sides> sides = Prepare(call, bytes, bytes * call.n());
  HVD_CO_TRY(sides.status());
  TakeInputs(call, 0, count, sides->send, 1.0);
  HVD_CO_TRY(co_await Finished(
      call.job,
      call.library().StartAllgather(sides->send, sides->receive, static_cast<int>(bytes), call.comm, call.request()),
      bytes * call.n()));
  VisitElements(call.batch, 0, count, [&](const Tensor& t, size_t, size_t elems, size_t before) {
    ReduceParts(call, sides->receive + before * call.elem_bytes(), bytes, t.output, elems);
  });
  co_return Status();
}

// A piece of `count` elements, which lies on the sending side, by blocks: of all members to this one; what is made of
// them, to all.
Task ReduceByBlocks(const Call& call, const Sides& sides, size_t count) {
  Workspace& work = call.work();
  const int n = call.n();
  const size_t size = call.elem_bytes();
  const RowBlock mine = BlockOfMember(count, n, call.group.index);
  const size_t own = mine.count * size;
  for (int m = 0; m < n; ++m) {
    const RowBlock block = BlockOfMember(count, n, m);
    work.sent[m] = static_cast<int>(block.count * size);
    work.sent_at[m] = static_cast<int>(block.first * size);
    work.received[m] = static_cast<int>(own);
    work.received_at[m] = static_cast<int>(m * own);
  }
  HVD_CO_TRY(co_await Finished(
      call.job,
      call.library().StartAlltoall(sides.send, {work.sent.data(), work.sent_at.data()}, sides.receive,
                                   {work.received.data(), work.received_at.data()}, call.comm, call.request()),
      count * size));
  ReduceParts(call, sides.receive, own, sides.send, mine.count);
  HVD_CO_TRY(
      co_await Finished(call.job,
                        call.library().StartAllgather(sides.send, static_cast<int>(own), sides.receive,
                                                      work.sent.data(), work.sent_at.data(), call.comm, call.request()),
                        count * size));
  co_return Status();
}

Task ByBlocks(const Call& call) {
  const size_t total = ElementsOf(call.batch), most = kPieceBytes / call.elem_bytes();
  const size_t bytes = std::min(total, most) * call.elem_bytes();
  Result<Sides> sides = Prepare(call, bytes, bytes + call.n() * call.elem_bytes());
  HVD_CO_TRY(sides.status());
  for (size_t at = 0; at < total; at += most) {
    const size_t count = std::min(most, total - at);
    TakeInputs(call, at, count, sides->send, 1.0);
    HVD_CO_TRY(co_await ReduceByBlocks(call, *sides, count));
    GiveOutputs(call, at, count, sides->receive, 1.0);
  }
  co_return Status();
}

// What goes to each member, in the order of the tensors.
std::vector<Pieces> BlocksOf(const Call& call) {
  std::vector<Pieces> blocks(call.n());
  for (const Tensor& t : call.batch.tensors) {
    const size_t rows = t.shape.empty() ? 1 : static_cast<size_t>(t.shape[0]), row = t.row_elems * call.elem_bytes();
    for (int m = 0; m < call.n(); ++m) {
      const RowBlock block = BlockOfMember(rows, call.n(), m);
      blocks[m].Add(t.input + block.first * row, block.count * row);
    }
  }
  return blocks;
}

Status PlaceBlocks(const Call& call, Pieces* results) {
  for (Tensor& t : call.batch.tensors) {
    const size_t rows = t.shape.empty() ? 1 : static_cast<size_t>(t.shape[0]);
    const size_t bytes = BlockOfMember(rows, call.n(), call.group.index).count * t.row_elems * call.elem_bytes();
    HVD_TRY(t.PlaceResult(bytes));
    results->Add(t.output, bytes);
  }
  return Status();
}

}  // namespace

Task Allreduce(const Call& call) {
  const Handle op = call.library().handles().Reduction(call.batch.dtype, call.batch.op);
  if (op != 0 && !call.group.deterministic) return ByLibrary(call, op);
  const bool little = ElementsOf(call.batch) * call.elem_bytes() * call.n() <= kFlatBytes;
  return little ? Flat(call) : ByBlocks(call);
}

Task Reducescatter(const Call& call) {
  const std::vector<Pieces> blocks = BlocksOf(call);
  Pieces results;
  HVD_CO_TRY(PlaceBlocks(call, &results));
  const Lanes lanes(call.n());
  const size_t longest = blocks[0].bytes();  // no later member has more rows
  const size_t lane = std::min(lanes.bytes(), longest);
  Result<Sides> sides = Prepare(call, lane * call.n(), lane * call.n());
  HVD_CO_TRY(sides.status());
  Workspace& work = call.work();
  for (size_t k = 0; k < lanes.rounds(longest); ++k) {
    const int own = lanes.count(results.bytes(), k);
    for (int m = 0; m < call.n(); ++m) {
      work.sent[m] = lanes.count(blocks[m].bytes(), k);
      work.sent_at[m] = static_cast<int>(m * lane);
      work.received[m] = own;
      work.received_at[m] = static_cast<int>(m * lane);
      std::byte* to = sides->send + m * lane;
      blocks[m].Visit(lanes.begin(k), work.sent[m], [&](const std::byte* from, size_t bytes) {
        kernels::Copy(to, from, bytes);
        to += bytes;
      });
    }
    HVD_CO_TRY(co_await Finished(
        call.job,
        call.library().StartAlltoall(sides->send, {work.sent.data(), work.sent_at.data()}, sides->receive,
                                     {work.received.data(), work.received_at.data()}, call.comm, call.request()),
        lane * call.n()));
    const std::byte* parts = sides->receive;
    results.Visit(lanes.begin(k), own, [&](std::byte* to, size_t bytes) {
      ReduceParts(call, parts, lane, to, bytes / call.elem_bytes());
      parts += bytes;
    });
  }
  co_return Status();
}

}  // namespace hvd::backend::mpi
