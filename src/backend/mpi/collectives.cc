#include "backend/mpi/collectives.h"

#include "backend/mpi/call.h"

namespace hvd::backend::mpi {

Result<Sides> Prepare(const Call& call, size_t send_bytes, size_t receive_bytes) {
  Workspace& work = call.work();
  for (std::vector<int>* numbers : {&work.sent, &work.sent_at, &work.received, &work.received_at})
    numbers->resize(call.n());
  const Sides sides{work.Send(send_bytes), work.Receive(receive_bytes)};
  if (sides.send != nullptr && sides.receive != nullptr) return sides;
  return Status(Code::kResource, "no memory for the " + std::to_string(send_bytes + receive_bytes) +
                                     " bytes through which MPI moves tensors.");
}

Task Collective(Job& job, const collective::Group& group, collective::Batch& batch) {
  Call call{job, group, batch};
  HVD_CO_TRY(co_await CommunicatorOf(job, group.ranks, &call.comm));
  switch (batch.type) {
    case OpType::kAllreduce:
      co_return co_await Allreduce(call);
    case OpType::kReducescatter:
      co_return co_await Reducescatter(call);
    case OpType::kAllgather:
      co_return co_await Allgather(call);
    case OpType::kAlltoall:
      co_return co_await Alltoall(call);
    case OpType::kBroadcast:
      co_return co_await Broadcast(call);
    case OpType::kBarrier:
    case OpType::kJoin:
    case OpType::kSend:
    case OpType::kRecv:
      break;
  }
  co_return co_await Finished(job, job.library().StartBarrier(call.comm, call.request()), 0);
}

}  // namespace hvd::backend::mpi
