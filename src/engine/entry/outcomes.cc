#include "engine/entry/outcomes.h"

#include <algorithm>
#include <string>
#include <utility>

namespace hvd::engine {
namespace {

Status Nothing() {
  return Status(Code::kInvalidArgument, "this operation has no result of its own, or it was taken already.");
}

// Of the core's memory, or in what its owner gave.
bool HasResult(const collective::Tensor& t) { return t.result != nullptr || (t.room > 0 && t.output != nullptr); }

// Null: the host's memory, or the operation has failed.
const DeviceEvent* EndOf(const Outcome& outcome) {
  return outcome.tensor.device != nullptr ? outcome.tensor.device->ready.get() : nullptr;
}

void Describe(const Outcome& outcome, hvd_result* out) {
  const collective::Tensor& t = outcome.tensor;
  out->data = out->owner = nullptr;
  out->bytes = static_cast<int64_t>(t.result != nullptr ? t.result->bytes : t.room);
  out->dtype = static_cast<int32_t>(outcome.dtype);
  out->ndim = static_cast<int32_t>(t.shape.size());
  std::copy(t.shape.begin(), t.shape.end(), out->shape);
}

}  // namespace

Status StateOf(const Completion& completion) {
  if (!completion.done()) return NotDoneYet();
  return completion.status();
}

Status OutcomeOf(Completion& completion, int index, Outcome** out) {
  HVD_TRY(StateOf(completion));
  auto& results = completion.results;
  if (index < 0 || index >= static_cast<int>(results.size())) {
    return Status(Code::kInvalidArgument, "result " + std::to_string(index) + " of a submission with " +
                                              std::to_string(results.size()) + " tensors.");
  }
  *out = &results[index];
  return Status();
}

bool MustBeKept(const Completion& completion) {
  return std::any_of(completion.results.begin(), completion.results.end(), [](const Outcome& outcome) {
    return outcome.tensor.result != nullptr || EndOf(outcome) != nullptr;
  });
}

Status TakeResult(Completion& completion, int index, hvd_result* out) {
  Outcome* outcome = nullptr;
  HVD_TRY(OutcomeOf(completion, index, &outcome));
  collective::Tensor* t = &outcome->tensor;
  if (!HasResult(*t)) return Nothing();
  if (t->result && t->device != nullptr) {
    return Status(Code::kInvalidArgument,
                  "this result lies on a GPU, in memory of the core's; copy it to your own with hvd_copy_result.");
  }
  Describe(*outcome, out);
  out->data = t->output;
  if (t->result && t->result->owner) t->result->owner->HandOver(t->result->data);
  out->owner = t->result.release();
  t->room = 0;
  return Status();
}

Status DescribeResult(Completion& completion, int index, hvd_result* out) {
  Outcome* outcome = nullptr;
  HVD_TRY(OutcomeOf(completion, index, &outcome));
  if (!HasResult(outcome->tensor)) return Nothing();
  Describe(*outcome, out);
  return Status();
}

Status Order(const Completion& completion, void* stream) {
  HVD_TRY(StateOf(completion));
  const std::vector<Outcome>& results = completion.results;
  const DeviceEvent* last = nullptr;
  for (size_t i = 0; i < results.size(); ++i) {
    const DeviceEvent* const ready = EndOf(results[i]);
    if (ready == nullptr || ready == last) continue;
    last = ready;
    // Tensors of one batch have one event, and mostly lie side by side.
    const auto same = [ready](const Outcome& before) { return EndOf(before) == ready; };
    if (std::any_of(results.begin(), results.begin() + static_cast<std::ptrdiff_t>(i), same)) continue;
    HVD_TRY(ready->HoldBackProgram(stream));
  }
  return Status();
}

Status LetGo(const Completion& completion) {
  if (!completion.done() || !completion.status().ok()) return Status();
  const collective::OnDevice* before = nullptr;
  for (const Outcome& outcome : completion.results) {
    if (EndOf(outcome) == nullptr) continue;
    const collective::OnDevice& here = *outcome.tensor.device;
    if (before != nullptr && before->ready == here.ready && before->stream == here.stream) continue;
    before = &here;
    HVD_TRY(here.ready->HoldBackProgram(here.stream));
  }
  return Status();
}

Status CopyResult(Completion& completion, int index, backend::Devices* devices, void* to, int64_t bytes, void* stream) {
  Outcome* outcome = nullptr;
  HVD_TRY(OutcomeOf(completion, index, &outcome));
  collective::Tensor* t = &outcome->tensor;
  if (!t->result) return Nothing();
  if (t->device == nullptr || devices == nullptr)
    return Status(Code::kInvalidArgument, "this result lies in host memory; take it with hvd_take_result.");
  const size_t there = t->result->bytes;
  if (bytes < 0 || static_cast<size_t>(bytes) != there) {
    return Status(Code::kInvalidArgument,
                  "room for " + std::to_string(bytes) + " bytes; the result has " + std::to_string(there) + ".");
  }
  std::unique_ptr<collective::Block> block = std::move(t->result);
  if (there == 0) return Status();
  const std::byte* const from = block->data;
  return devices->Copy(to, from, there, t->device->ready, stream, std::move(block));
}

}  // namespace hvd::engine
