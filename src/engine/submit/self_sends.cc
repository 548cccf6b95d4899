#include "engine/submit/self_sends.h"

#include <string>
#include <utility>

#include "collective/kernels/kernels.h"
#include "negotiation/values/op_text.h"

namespace hvd::engine {
namespace {

size_t BytesOf(const Submitted& s) { return s.tensor.elems * SizeOf(s.dtype); }

std::string TensorText(const Submitted& s) {
  return std::string(NameOf(s.dtype)) + " " + negotiation::ShapeText(s.tensor.shape);
}

std::string SubjectOf(const Submitted& s) { return negotiation::Subject(s.type, s.name, s.process_set); }

Status Compare(const Submitted& send, const Submitted& recv) {
  if (send.dtype == recv.dtype && send.tensor.shape == recv.tensor.shape) return Status();
  return Status(Code::kMismatch, SubjectOf(recv) + ": it sent " + TensorText(send) + " and receives " +
                                     TensorText(recv) + "; both must have the same dtype and shape.");
}

uint64_t TakeFirst(std::deque<uint64_t>* tickets) {
  const uint64_t first = tickets->front();
  tickets->pop_front();
  return first;
}

}  // namespace

void SelfSends::Add(uint64_t ticket, bool waits) {
  const Submitted& own = *Submitted::Of(ticket);
  Waiting& waiting = waiting_[own.process_set];
  if (own.type == OpType::kSend) {
    if (!waiting.recvs.empty()) return Meet(ticket, TakeFirst(&waiting.recvs));
    waiting.sends.push_back(ticket);
  } else {
    if (!waiting.sends.empty()) return Meet(TakeFirst(&waiting.sends), ticket);
    if (waits) {
      return End(ticket, Status(Code::kInvalidArgument,
                                SubjectOf(own) + ": this rank has sent itself nothing, and cannot while it waits. Send "
                                                 "first, or start the recv asynchronously."));
    }
    waiting.recvs.push_back(ticket);
  }
}

void SelfSends::Meet(uint64_t send, uint64_t recv) {
  const Submitted &from = *Submitted::Of(send), &to = *Submitted::Of(recv);
  const Status status = Compare(from, to);
  if (status.ok()) collective::kernels::Copy(to.tensor.output, from.tensor.input, BytesOf(from));
  End(send, status);
  End(recv, status);
}

void SelfSends::End(uint64_t ticket, const Status& status) {
  const Submitted& own = *Submitted::Of(ticket);
  tools_.counters->Note(own.type, own.process_set, own.name, static_cast<int64_t>(BytesOf(own)));
  tools_.arrivals->ArriveTaken(tools_.submissions->Take(ticket)->completion, status);
}

void SelfSends::DropSet(int process_set) {
  const auto found = waiting_.find(process_set);
  if (found == waiting_.end()) return;
  const Waiting waiting = std::move(found->second);
  waiting_.erase(found);
  const Status why(Code::kInvalidArgument,
                   "process set " + std::to_string(process_set) + " was removed while it was waiting");
  for (const auto* tickets : {&waiting.sends, &waiting.recvs}) {
    for (const uint64_t ticket : *tickets) End(ticket, why.Because(SubjectOf(*Submitted::Of(ticket))));
  }
}

}  // namespace hvd::engine
