// Allgather, alltoall and broadcast by MPI; see collectives.h.
#include <cstring>

#include "backend/mpi/call.h"
#include "collective/kernels/kernels.h"

namespace hvd::backend::mpi {
namespace {

using collective::Tensor;
using collective::kernels::Copy;

void Gather(const Pieces& from, size_t begin, size_t bytes, std::byte* to) {
  from.Visit(begin, bytes, [&](const std::byte* data, size_t size) {
    Copy(to, data, size);
    to += size;
  });
}

void Scatter(const std::byte* from, const Pieces& to, size_t begin, size_t bytes) {
  to.Visit(begin, bytes, [&](std::byte* data, size_t size) {
    Copy(data, from, size);
    from += size;
  });
}

size_t Longest(const std::vector<Pieces>& parts) {
  size_t longest = 0;
  for (const Pieces& part : parts) longest = std::max(longest, part.bytes());
  return longest;
}

size_t RowBytes(const Call& call, const Tensor& t) { return t.row_elems * call.elem_bytes(); }

int64_t NumberAt(const std::byte* numbers, size_t i) {
  int64_t number;
  std::memcpy(&number, numbers + i * sizeof number, sizeof number);
  return number;
}

// rows: per member, for each tensor in turn. The results have their places, and *parts what comes from each member.
Status PlaceResults(const Call& call, const std::byte* rows, std::vector<Pieces>* parts) {
  const size_t count = call.batch.tensors.size();
  parts->resize(call.n());
  for (size_t i = 0; i < count; ++i) {
    Tensor& t = call.batch.tensors[i];
    size_t bytes = 0;
    t.received_rows.clear();
    for (int m = 0; m < call.n(); ++m) {
      t.received_rows.push_back(NumberAt(rows, m * count + i));
      bytes += static_cast<size_t>(t.received_rows.back()) * RowBytes(call, t);
    }
    HVD_TRY(t.PlaceResult(bytes));
    std::byte* to = t.output;
    for (int m = 0; m < call.n(); ++m) {
      const size_t part = static_cast<size_t>(t.received_rows[m]) * RowBytes(call, t);
      (*parts)[m].Add(to, part);
      to += part;
    }
  }
  return Status();
}

Task GatherRows(const Call& call, std::vector<Pieces>* parts) {
  const size_t count = call.batch.tensors.size(), bytes = count * sizeof(int64_t);
  Result<Sides> sides = Prepare(call, bytes, bytes * call.n());
  HVD_CO_TRY(sides.status());
  for (size_t i = 0; i < count; ++i) {
    const std::vector<int64_t>& shape = call.batch.tensors[i].shape;
    const int64_t rows = shape.empty() ? 1 : shape[0];
    std::memcpy(sides->send + i * sizeof rows, &rows, sizeof rows);
  }
  HVD_CO_TRY(co_await Finished(
      call.job,
      call.library().StartAllgather(sides->send, sides->receive, static_cast<int>(bytes), call.comm, call.request()),
      0));
  co_return PlaceResults(call, sides->receive, parts);
}

Task ExchangeRows(const Call& call, std::vector<Pieces>* parts) {
  const size_t count = call.batch.tensors.size(), bytes = count * sizeof(int64_t);
  Result<Sides> sides = Prepare(call, bytes * call.n(), bytes * call.n());
  HVD_CO_TRY(sides.status());
  for (int m = 0; m < call.n(); ++m) {
    for (size_t i = 0; i < count; ++i) {
      const int64_t rows = call.batch.tensors[i].splits[m];
      std::memcpy(sides->send + m * bytes + i * sizeof rows, &rows, sizeof rows);
    }
  }
  HVD_CO_TRY(co_await Finished(
      call.job,
      call.library().StartAlltoall(sides->send, sides->receive, static_cast<int>(bytes), call.comm, call.request()),
      0));
  co_return PlaceResults(call, sides->receive, parts);
}

// The longest part that any member sends to any.
Task AgreeOnLongest(const Call& call, size_t own, size_t* longest) {
  const int64_t mine = static_cast<int64_t>(own);
  Result<Sides> sides = Prepare(call, sizeof mine, sizeof mine * call.n());
  HVD_CO_TRY(sides.status());
  std::memcpy(sides->send, &mine, sizeof mine);
  HVD_CO_TRY(co_await Finished(
      call.job, call.library().StartAllgather(sides->send, sides->receive, sizeof mine, call.comm, call.request()), 0));
  *longest = 0;
  for (int m = 0; m < call.n(); ++m) *longest = std::max(*longest, static_cast<size_t>(NumberAt(sides->receive, m)));
  co_return Status();
}

}  // namespace

Task Allgather(const Call& call) {
  std::vector<Pieces> parts;
  HVD_CO_TRY(co_await GatherRows(call, &parts));
  Pieces own;
  for (const Tensor& t : call.batch.tensors) own.Add(t.input, t.elems * call.elem_bytes());
  const Lanes lanes(call.n());
  const size_t longest = Longest(parts), lane = std::min(lanes.bytes(), longest);
  Result<Sides> sides = Prepare(call, lane, lane * call.n());
  HVD_CO_TRY(sides.status());
  Workspace& work = call.work();
  for (size_t k = 0; k < lanes.rounds(longest); ++k) {
    for (int m = 0; m < call.n(); ++m) {
      work.received[m] = lanes.count(parts[m].bytes(), k);
      work.received_at[m] = static_cast<int>(m * lane);
    }
    const int sent = work.received[call.group.index];
    Gather(own, lanes.begin(k), sent, sides->send);
    HVD_CO_TRY(co_await Finished(call.job,
                                 call.library().StartAllgather(sides->send, sent, sides->receive, work.received.data(),
                                                               work.received_at.data(), call.comm, call.request()),
                                 lane * call.n()));
    for (int m = 0; m < call.n(); ++m) Scatter(sides->receive + m * lane, parts[m], lanes.begin(k), work.received[m]);
  }
  co_return Status();
}

Task Alltoall(const Call& call) {
  std::vector<Pieces> from(call.n()), to(call.n());
  HVD_CO_TRY(co_await ExchangeRows(call, &from));
  for (const Tensor& t : call.batch.tensors) {
    const std::byte* data = t.input;
    for (int m = 0; m < call.n(); ++m) {
      const size_t bytes = static_cast<size_t>(t.splits[m]) * RowBytes(call, t);
      to[m].Add(data, bytes);
      data += bytes;
    }
  }
  const Lanes lanes(call.n());
  size_t longest = 0;
  HVD_CO_TRY(co_await AgreeOnLongest(call, Longest(to), &longest));
  const size_t lane = std::min(lanes.bytes(), longest);
  Result<Sides> sides = Prepare(call, lane * call.n(), lane * call.n());
  HVD_CO_TRY(sides.status());
  Workspace& work = call.work();
  for (size_t k = 0; k < lanes.rounds(longest); ++k) {
    for (int m = 0; m < call.n(); ++m) {
      work.sent[m] = lanes.count(to[m].bytes(), k);
      work.received[m] = lanes.count(from[m].bytes(), k);
      work.sent_at[m] = work.received_at[m] = static_cast<int>(m * lane);
      Gather(to[m], lanes.begin(k), work.sent[m], sides->send + m * lane);
    }
    HVD_CO_TRY(co_await Finished(
        call.job,
        call.library().StartAlltoall(sides->send, {work.sent.data(), work.sent_at.data()}, sides->receive,
                                     {work.received.data(), work.received_at.data()}, call.comm, call.request()),
        lane * call.n()));
    for (int m = 0; m < call.n(); ++m) Scatter(sides->receive + m * lane, from[m], lanes.begin(k), work.received[m]);
  }
  co_return Status();
}

Task Broadcast(const Call& call) {
  const bool is_root = call.group.index == call.batch.root;
  Pieces from, to;
  for (const Tensor& t : call.batch.tensors) {
    const size_t bytes = t.elems * call.elem_bytes();
    if (is_root) from.Add(t.input, bytes);
    to.Add(t.output, bytes);
  }
  const size_t piece = std::min(kPieceBytes, to.bytes());
  Result<Sides> sides = Prepare(call, piece, 0);
  HVD_CO_TRY(sides.status());
  for (size_t at = 0; at < to.bytes(); at += piece) {
    const size_t bytes = std::min(piece, to.bytes() - at);
    if (is_root) Gather(from, at, bytes, sides->send);
    HVD_CO_TRY(co_await Finished(
        call.job,
        call.library().StartBroadcast(sides->send, static_cast<int>(bytes), call.batch.root, call.comm, call.request()),
        bytes));
    if (!is_root) Scatter(sides->send, to, at, bytes);
  }
  for (const Tensor& t : call.batch.tensors) {
    if (is_root && t.output != t.input) Copy(t.output, t.input, t.elems * call.elem_bytes());
  }
  co_return Status();
}

}  // namespace hvd::backend::mpi
