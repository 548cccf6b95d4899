#include "backend/talk.h"

namespace hvd::backend {
namespace {

// One operation on bytes; `splits`: of an alltoall.
Task OnBytes(Backend& host, const Group& group, uint64_t seq, OpType type, std::span<const std::byte> mine,
             std::vector<int64_t> splits, std::vector<std::byte>* got) {
  Batch batch;
  batch.seq = seq;
  batch.type = type;
  batch.dtype = DType::kUint8;
  batch.tensors.emplace_back();
  collective::Tensor& t = batch.tensors.back();
  t.input = mine.data();
  t.shape = {static_cast<int64_t>(mine.size())};
  t.elems = mine.size();
  t.splits = std::move(splits);
  HVD_CO_TRY(co_await host.Execute(group, batch));
  got->assign(t.output, t.output + t.result->bytes);
  co_return Status();
}

}  // namespace

Task TellAll(Backend& host, const Group& group, uint64_t seq, std::span<const std::byte> mine,
             std::vector<std::byte>* all) {
  co_return co_await OnBytes(host, group, seq, OpType::kAllgather, mine, {}, all);
}

Task TellEach(Backend& host, const Group& group, uint64_t seq, std::span<const std::byte> mine,
              std::vector<std::byte>* theirs) {
  std::vector<int64_t> equal(group.size(), static_cast<int64_t>(mine.size()) / group.size());
  co_return co_await OnBytes(host, group, seq, OpType::kAlltoall, mine, std::move(equal), theirs);
}

}  // namespace hvd::backend
