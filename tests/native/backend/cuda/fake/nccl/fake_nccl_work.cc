// What a communicator does on a stream. Inputs are read when a launch begins and looked at again when it ends; in
// between, outputs hold poison.
#include <algorithm>
#include <cstring>
#include <functional>
#include <thread>
#include <utility>

#include "native/backend/cuda/fake/errands.h"
#include "native/backend/cuda/fake/nccl/fake_nccl_comm.h"
#include "native/backend/cuda/fake/raw_memory.h"

namespace fake {
namespace {

struct Part {
  Request request;
  Bytes in, out;
  // Of a send or receive:
  size_t done = 0, whole = 0;  // bytes
  bool begun = false;
};
struct Work {
  std::shared_ptr<Comm> comm;
  uint64_t number = 0;
  std::string what;
  std::vector<Part> parts;
};

bool Sends(const Comm& comm, const Request& r) {
  if (r.kind == kReceive) return false;
  return r.kind != kBroadcast || comm.rank == r.root;
}
bool Receives(const Comm& comm, const Request& r) {
  if (r.kind == kSend) return false;
  return r.kind != kReduce || comm.rank == r.root;
}
size_t BytesSent(const Comm& comm, const Request& r) {
  const size_t bytes = r.count * SizeOf(r.type);
  if (!Sends(comm, r)) return 0;
  return r.kind == kReduceScatter ? bytes * comm.size : bytes;
}
size_t BytesReceived(const Comm& comm, const Request& r) {
  const size_t bytes = r.count * SizeOf(r.type);
  if (!Receives(comm, r)) return 0;
  return r.kind == kAllGather ? bytes * comm.size : bytes;
}
bool Overlap(const void* a, size_t a_bytes, const void* b, size_t b_bytes) {
  const auto first = reinterpret_cast<uintptr_t>(a), second = reinterpret_cast<uintptr_t>(b);
  return first < second + b_bytes && second < first + a_bytes;
}

bool MayAccess(const Work& work) {
  const Comm& comm = *work.comm;
  for (const Part& part : work.parts) {
    const Request& r = part.request;
    if (!TheDriver()->may_access(r.from, BytesSent(comm, r), comm.device, (work.what + " reads").c_str()) ||
        !TheDriver()->may_access(r.to, BytesReceived(comm, r), comm.device, (work.what + " writes").c_str()))
      return false;
  }
  return true;
}

void ReadInputs(Work& work) {
  for (Part& part : work.parts) {
    const Request& r = part.request;
    part.in.resize(BytesSent(*work.comm, r));
    part.out.resize(BytesReceived(*work.comm, r));
    RawCopy(part.in.data(), r.from, part.in.size());
  }
  for (Part& part : work.parts) RawPoison(part.request.to, part.out.size());
}

void WriteOutputs(Work& work) {
  for (const Part& part : work.parts) {
    if (!RawIsPoison(part.request.to, part.out.size())) Fault(work.what + ": its output was written by somebody else");
    bool written = false;
    for (const Part& other : work.parts)
      written |= Overlap(part.request.from, part.in.size(), other.request.to, other.out.size());
    if (!written && !RawEqual(part.request.from, part.in.data(), part.in.size()))
      Fault(work.what + ": its input has changed meanwhile");
  }
  for (const Part& part : work.parts) RawCopy(part.request.to, part.out.data(), part.out.size());
}

// ---- collectives: all members show a piece, then all look at all of them

// Puts what all show of their bytes from `at` where it belongs.
void UsePieces(const Comm& comm, const Request& r, size_t at, Bytes& out) {
  const auto shown = [&](int m) -> const Showcase& { return comm.meeting->members[m]; };
  if (!Receives(comm, r)) return;
  if (r.kind == kBroadcast) {
    std::memcpy(out.data() + at, shown(r.root).piece, shown(r.root).bytes);
  } else if (r.kind == kAllGather) {
    for (int m = 0; m < comm.size; ++m)
      std::memcpy(out.data() + m * r.count * SizeOf(r.type) + at, shown(m).piece, shown(m).bytes);
  } else {
    // Of a scattered sum only a part is this member's.
    const size_t offset = r.kind == kReduceScatter ? comm.rank * out.size() : 0;
    const size_t begin = std::max(at, offset), end = std::min<size_t>(at + shown(0).bytes, offset + out.size());
    if (begin >= end) return;
    unsigned char* to = out.data() + (begin - offset);
    std::memcpy(to, shown(0).piece + (begin - at), end - begin);
    for (int m = 1; m < comm.size; ++m) Combine(r.type, r.op, to, shown(m).piece + (begin - at), end - begin);
    if (r.op == kAverage) Divide(r.type, to, end - begin, comm.size);
  }
}

bool AllMembers(Comm& comm, const std::function<bool(const Showcase&)>& come) {
  for (int m = 0; m < comm.size; ++m) {
    const Showcase& member = comm.meeting->members[m];
    if (!Await(*comm.meeting, [&] { return come(member); }, [&] { return comm.Leaves(); })) return false;
  }
  return true;
}

// Whether it was done, and not aborted or called differently by another member.
bool RunCollective(Comm& comm, Part& part, const std::string& what) {
  const Request& r = part.request;
  Bytes sent = part.in;  // what was read stays as it was, to be compared with the input at the end
  if (r.op == kScaledSum) {
    if (r.device_scalar != nullptr) RawCopy(part.request.scalar, r.device_scalar, SizeOf(r.type));
    Multiply(r.type, sent.data(), sent.size(), r.scalar);
  }
  Showcase& mine = comm.meeting->members[comm.rank];
  const size_t all = r.count * SizeOf(r.type) * (r.kind == kReduceScatter ? comm.size : 1);
  for (size_t at = 0; at < all; at += kPieceBytes) {
    const uint64_t step = comm.step++;
    if (!AllMembers(comm, [step](const Showcase& m) { return m.seen >= step; })) return false;
    mine.call = {r.kind, r.type, r.op, r.root, r.count};
    mine.bytes = at < sent.size() ? std::min(kPieceBytes, sent.size() - at) : 0;
    if (mine.bytes > 0) std::memcpy(mine.piece, sent.data() + at, mine.bytes);
    mine.shown = step + 1;
    Ring(*comm.meeting);
    if (!AllMembers(comm, [step](const Showcase& m) { return m.shown > step; })) return false;
    for (int m = 0; m < comm.size; ++m) comm.broken |= !(comm.meeting->members[m].call == mine.call);
    if (!comm.broken) UsePieces(comm, r, at, part.out);
    mine.seen = step + 1;
    Ring(*comm.meeting);
    if (comm.broken) return Fault(what + ": another member has called something else"), false;
  }
  return true;
}

// ---- sends and receives: all of a launch at once, those of a pair one after another

// Whether something has moved.
bool MoveLetter(Comm& comm, Part& part, const std::string& what) {
  const bool sends = part.request.kind == kSend;
  Letterbox& box =
      sends ? comm.meeting->letters[comm.rank][part.request.root] : comm.meeting->letters[part.request.root][comm.rank];
  if ((box.sent > box.taken) == sends) return false;
  if (sends) {
    box.message_bytes = part.whole = part.in.size();
    box.bytes = std::min(kLetterBytes, part.in.size() - part.done);
    if (box.bytes > 0) std::memcpy(box.letter, part.in.data() + part.done, box.bytes);
    part.done += box.bytes;
    ++box.sent;
  } else {
    part.whole = box.message_bytes;
    if (part.whole != part.out.size() && !part.begun)
      Fault(what + ": receives " + std::to_string(part.out.size()) + " bytes of " + std::to_string(part.whole));
    const size_t fits = part.done < part.out.size() ? std::min<size_t>(box.bytes, part.out.size() - part.done) : 0;
    if (fits > 0) std::memcpy(part.out.data() + part.done, box.letter, fits);
    part.done += box.bytes;
    ++box.taken;
  }
  part.begun = true;
  Ring(*comm.meeting);
  return true;
}

bool RunExchange(Comm& comm, const std::vector<Part*>& parts, const std::string& what) {
  // The parts with each peer, in order: sends, receives.
  std::vector<std::vector<Part*>> lanes(2 * comm.size);
  for (Part* part : parts) lanes[2 * part->request.root + (part->request.kind == kSend)].push_back(part);
  std::vector<size_t> next(lanes.size());
  size_t left = parts.size();
  const auto step = [&] {
    bool moved = false;
    for (size_t lane = 0; lane < lanes.size(); ++lane) {
      if (next[lane] == lanes[lane].size()) continue;
      Part& part = *lanes[lane][next[lane]];
      if (!MoveLetter(comm, part, what)) continue;
      moved = true;
      if (part.done < part.whole) continue;
      ++next[lane];
      --left;
    }
    return moved || left == 0;
  };
  while (left > 0) {
    if (!Await(*comm.meeting, step, [&] { return comm.Leaves(); })) return false;
  }
  return true;
}

bool RunParts(Work& work) {
  Comm& comm = *work.comm;
  std::vector<Part*> letters;
  for (Part& part : work.parts) {
    if (part.request.kind == kSend || part.request.kind == kReceive) {
      letters.push_back(&part);
    } else if (!RunCollective(comm, part, work.what)) {
      return false;
    }
  }
  return RunExchange(comm, letters, work.what);
}

// On the stream's thread.
void Run(void* argument, int unordered) {
  const std::unique_ptr<Work> work(static_cast<Work*>(argument));
  Comm& comm = *work->comm;
  const auto leaves = [&] { return comm.Leaves(); };
  if (Await(*comm.meeting, [&] { return comm.turn == work->number; }, leaves)) {
    if (MayAccess(*work)) {
      ReadInputs(*work);
      const bool goes_on = Await(*comm.meeting, [] { return !Hanging(); }, leaves);
      if (goes_on && !comm.broken && RunParts(*work) && MayAccess(*work) && unordered == 0) WriteOutputs(*work);
    }
    ++comm.turn;
  }
  --comm.operations;
  Ring(*comm.meeting);
}

std::string Describe(const std::vector<Request>& requests) {
  static const char* const kNames[] = {"allreduce",     "broadcast", "reduce", "allgather",
                                       "reducescatter", "send",      "receive"};
  std::string text;
  for (const Request& r : requests) {
    text += text.empty() ? "" : ", ";
    text += std::string(kNames[r.kind]) + " " + std::to_string(r.count) + " " + NameOf(r.type);
    if (r.kind == kSend || r.kind == kReceive) text += (r.kind == kSend ? " to " : " from ") + std::to_string(r.root);
  }
  return text;
}

int Enqueue(const std::shared_ptr<Comm>& comm, void* stream, const std::vector<Request>& requests) {
  auto work = std::make_unique<Work>();
  work->comm = comm;
  work->what = Describe(requests);
  std::vector<fake_cuda_access> accesses;
  for (const Request& r : requests) {
    work->parts.push_back({r, {}, {}});
    accesses.push_back({r.from, BytesSent(*comm, r), 0});
    accesses.push_back({r.to, BytesReceived(*comm, r), 1});
  }
  std::lock_guard<std::mutex> lock(comm->mutex);
  work->number = comm->launches;
  ++comm->operations;
  const std::string what = work->what;
  const int count = static_cast<int>(accesses.size());
  if (TheDriver()->enqueue(stream, &Run, work.get(), what.c_str(), accesses.data(), count) != 0) {
    --comm->operations;
    return Error(kUnhandledCudaError, "the driver did not take the launch");
  }
  (void)work.release();  // Run has it
  ++comm->launches;
  return kSuccess;
}

// Whether a communicator must connect first: for a collective of a kind, type, operation and size that it has not made
// yet, for a first message to or from a peer. One that does not block does so beside the caller.
bool Connects(Comm& comm, const std::vector<Request>& requests) {
  std::lock_guard<std::mutex> lock(comm.mutex);
  bool news = false;
  for (const Request& r : requests) {
    const bool to_one = r.kind == kSend || r.kind == kReceive;
    const std::tuple<int, size_t, int, int, int> way(r.kind, r.count, r.type, r.op, r.root),
        peer(r.kind, 0, 0, 0, r.root);
    news |= comm.connected.insert(to_one ? peer : way).second;
  }
  return news && comm.size > 1;
}

// For one that blocks it is done in the call, which waits until the others make theirs. All members come to new
// collectives in one order; messages are connected at once.
bool ConnectInCall(Comm& comm, const std::vector<Request>& requests) {
  const bool waits = std::any_of(requests.begin(), requests.end(),
                                 [](const Request& r) { return r.kind != kSend && r.kind != kReceive; });
  if (!waits) return true;
  const uint32_t mine = ++comm.meeting->members[comm.rank].connections;
  Ring(*comm.meeting);
  for (int m = 0; m < comm.size; ++m) {
    const Showcase& other = comm.meeting->members[m];
    if (!Await(*comm.meeting, [&] { return other.connections >= mine; }, [&] { return comm.aborted.load(); }))
      return false;
  }
  return true;
}

}  // namespace

bool IsReduction(Kind kind) { return kind == kAllReduce || kind == kReduce || kind == kReduceScatter; }

int Launch(const std::shared_ptr<Comm>& comm, void* stream, std::vector<Request> requests) {
  if (TheDriver()->device_of(stream) != comm->device) {
    Fault(Describe(requests) + " on a stream of another device");
    return Error(kUnhandledCudaError, "invalid resource handle");
  }
  const bool connects = Connects(*comm, requests);
  if (connects && comm->blocking && !ConnectInCall(*comm, requests)) return Error(kInternalError, "aborted");
  if (!connects || comm->blocking) return Enqueue(comm, stream, requests);
  comm->state = kInProgress;
  TheErrands().Begin([comm, stream, requests = std::move(requests)] {
    TheDriver()->set_device(comm->device);
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
    comm->state = comm->aborted ? kInvalidUsage : Enqueue(comm, stream, requests);
  });
  return kInProgress;
}

}  // namespace fake
