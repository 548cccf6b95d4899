#include "frameworks/tensorflow/call.h"

#include <algorithm>
#include <cstring>
#include <thread>
#include <utility>

#include "border/border.h"
#include "frameworks/tensorflow/dtypes.h"

namespace hvd::frameworks::tensorflow {
namespace {

// Leaked on purpose: operators may still be under way while static destructors run.
Turns& TurnsOfNames() {
  static auto* const kTurns = new Turns;
  return *kTurns;
}

constexpr double kSliceS = 1.0;  // of a blocking wait, which has no end of its own: the engine's deadlines apply
// Of a wait for a moment: for the other ranks, and a few times the cost of a copy.
constexpr double kMomentS = 1e-3, kMomentSPerByte = 0.25e-9, kMostMomentS = 20e-3;

void FreeResult(void*, size_t, void* owner) { hvd_result_free(owner); }

// The name of the i-th of n tensors.
std::string NameOf(const std::string& base, int i, int n) {
  return n == 1 ? base : base + "_" + std::to_string(i + 1) + "of" + std::to_string(n);
}

int TensorsOf(hvd_op_type type, TF_OpKernelContext* context) {
  return type == HVD_ALLTOALL || type == HVD_JOIN ? 1 : tf.TF_NumInputs(context);
}

// This rank cannot submit an operation: the other members fail with the reason, instead of waiting for it. A group
// fails as a whole with its first tensor.
void TellOthers(const Attributes& attributes, const std::string& first, const char* why) noexcept {
  constexpr const char* kOurs = "Horovod: ";  // their message begins with it already
  if (std::strncmp(why, kOurs, std::strlen(kOurs)) == 0) why += std::strlen(kOurs);
  const auto refuse = [&](const std::string& name) {
    (void)hvd_refuse(attributes.type, attributes.process_set, name.c_str(), why);
  };
  if (attributes.names.empty()) return refuse(first);
  for (const std::string& name : attributes.names) refuse(name);
}

}  // namespace

Call::Call(const Attributes& attributes, TF_OpKernelContext* context, TF_AsyncOpKernelDoneCallback* done)
    : attributes_(attributes),
      context_(context),
      names_(Names()),
      turns_(NamesOfTurns()),
      // TensorFlow passes the address of its std::function<void()>, an argument of the caller's.
      done_(done) {}

void Call::Start(const Attributes& attributes, TF_OpKernelContext* context, TF_AsyncOpKernelDoneCallback* done) {
  Call* call = nullptr;
  border::Guarded([&] { call = new Call(attributes, context, done); },
                  [&](hvd_status code, const char* why) {
                    tf.TF_OpKernelContext_Failure(context, StatusFor(code, why).get());
                    (void)border::Succeeds([&] {
                      TellOthers(attributes, NameOf(attributes.name, 0, TensorsOf(attributes.type, context)), why);
                    });
                    DoneCallback{done}();
                  });
  if (call != nullptr) call->TakeTurn();
}

void Call::TakeTurn() noexcept {
  border::Guarded(
      [&] {
        const Turns::Run run = {tf.TF_GetStepId(context_), tf.TF_GetFrameId(context_), tf.TF_GetIterId(context_)};
        const Turns::Answer answer = TurnsOfNames().Take(
            turns_, run, [this](Turns::Where where) { Submit(/*may_wait=*/where == Turns::Where::kHere); });
        if (answer != Turns::Answer::kGranted) Refuse(answer == Turns::Answer::kOutOfOrder);
      },
      [&](hvd_status code, const char* why) {
        Fail(code, why);
        TellOthers(attributes_, FirstName(), why);
        turns_.clear();
        End();
      });
}

void Call::Refuse(bool out_of_order) {
  const std::string& name = attributes_.name;
  const std::string what = name.substr(0, name.find('.')) + " '" + name + "'";
  const std::string message =
      what + (out_of_order ? ": a later iteration of its loop has begun before this one, so that the ranks could pair "
                             "different ones; run them one after the other (parallel_iterations=1)."
                           : " runs twice at once in this process, so that the ranks could pair different runs; give "
                             "each a name of its own, or run one after the other (num_parallel_calls=1 of a map).");
  Fail(HVD_INVALID_ARGUMENT, message.c_str());
  turns_.clear();
  End();
}

int Call::Tensors() const { return TensorsOf(attributes_.type, context_); }

std::vector<std::string> Call::Names() const {
  if (HasNameEach()) return {};
  const int n = Tensors();
  std::vector<std::string> names;
  names.reserve(static_cast<size_t>(n));
  for (int i = 0; i < n; ++i) names.push_back(NameOf(attributes_.name, i, n));
  return names;
}

Turns::Names Call::NamesOfTurns() const {
  Turns::Names turns;
  if (HasNameEach()) {  // they come to one operator together
    turns.push_back(attributes_.name + "@" + std::to_string(attributes_.process_set));
    return turns;
  }
  turns.reserve(names_.size());
  for (const std::string& name : names_) turns.push_back(name + "@" + std::to_string(attributes_.process_set));
  return turns;
}

bool Call::TakeTensors() {
  if (attributes_.type == HVD_JOIN) {
    ops_.resize(1);
    ops_[0].type = HVD_JOIN;
    return true;
  }
  const int n = Tensors();
  ops_.resize(n);
  shapes_.resize(n);
  inputs_.resize(n);
  outputs_.resize(n);
  for (int i = 0; i < n; ++i) {
    TF_Tensor* tensor = nullptr;
    tf.TF_GetInput(context_, i, &tensor, status_.get());
    if (!Ok(status_)) return false;
    inputs_[i].reset(tensor);
    const int own = OwnType(tf.TF_TensorType(tensor));
    hvd_op& op = ops_[i];
    op = {};
    op.type = attributes_.type;
    op.dtype = own;
    op.reduce_op = attributes_.reduce_op;
    op.root_rank = attributes_.root_rank;
    op.process_set = attributes_.process_set;
    op.prescale = attributes_.prescale;
    op.postscale = attributes_.postscale;
    op.name = (HasNameEach() ? attributes_.names : names_)[i].c_str();
    op.ndim = tf.TF_NumDims(tensor);
    shapes_[i].reserve(static_cast<size_t>(op.ndim));
    for (int d = 0; d < op.ndim; ++d) shapes_[i].push_back(tf.TF_Dim(tensor, d));
    op.shape = shapes_[i].data();
    if (CallerGivesOutput()) {
      // TensorFlow gives the input's memory as output if nobody else holds it; so it must not be held here either.
      inputs_[i].reset();
      int forwarded = -1;
      outputs_[i].reset(
          tf.TF_ForwardInputOrAllocateOutput(context_, &i, 1, i, op.shape, op.ndim, &forwarded, status_.get()));
      if (!Ok(status_)) return false;
      op.output = tf.TF_TensorData(outputs_[i].get());
      if (forwarded < 0) {
        tf.TF_GetInput(context_, i, &tensor, status_.get());
        if (!Ok(status_)) return false;
        inputs_[i].reset(tensor);
      }
    }
    op.input = inputs_[i] ? tf.TF_TensorData(inputs_[i].get()) : op.output;
  }
  if (attributes_.stream_of != nullptr) return FindPlace();
  return attributes_.type != HVD_ALLTOALL || TakeSplits();
}

// After the outputs have their memory, which may hold back what TensorFlow has freed there: the stream orders both.
bool Call::FindPlace() {
  int32_t place = 0;
  (void)hvd_gpu_place(&place);
  void* stream = nullptr;
  attributes_.stream_of(context_, &stream);
  if (stream == nullptr) {
    Fail(HVD_UNSUPPORTED,
         (attributes_.name + " is placed on a device that has no CUDA stream; place it on a CPU").c_str());
    return false;
  }
  for (hvd_op& op : ops_) {
    op.place = std::max(place, 1);  // with no GPU in use, the core refuses the tensors and tells the other ranks
    op.stream = stream;
  }
  return true;
}

// The second input: rows for each member; empty = equal parts.
bool Call::TakeSplits() {
  TF_Tensor* tensor = nullptr;
  tf.TF_GetInput(context_, 1, &tensor, status_.get());
  if (!Ok(status_)) return false;
  const TensorPtr held(tensor);
  const size_t n = tf.TF_TensorByteSize(tensor) / sizeof(int32_t);
  splits_.resize(n);
  if (n == 0) return true;
  std::memcpy(splits_.data(), tf.TF_TensorData(tensor), n * sizeof(int32_t));
  ops_[0].splits = splits_.data();
  ops_[0].n_splits = static_cast<int32_t>(n);
  return true;
}

void Call::Submit(bool may_wait) noexcept {
  bool taken = false;
  border::Guarded([&] { taken = TakeTensors(); }, [&](hvd_status code, const char* why) { Fail(code, why); });
  if (!taken) {
    TellOthers(attributes_, FirstName(), tf.TF_Message(status_.get()));
    return End();
  }
  if (HasNameEach()) return SubmitEach(attributes_.waits && may_wait);
  const auto n = static_cast<int32_t>(ops_.size());
  const bool waits = attributes_.blocking && may_wait;
  if (waits && CallerGivesOutput()) return Wait(hvd_run(ops_.data(), n, kSliceS, &handle_));
  const uint32_t flags = waits ? HVD_SUBMIT_WILL_WAIT : HVD_SUBMIT_AT_ONCE;
  const hvd_status submitted = hvd_submit(ops_.data(), n, flags, &handle_);
  if (submitted != HVD_OK) {
    Fail(submitted, hvd_last_error());
    return End();
  }
  if (waits) return Wait(HVD_IN_PROGRESS);
  const auto finish = [](void* self, hvd_status code, const char* message) {
    static_cast<Call*>(self)->Finish(code, message);
  };
  if (const hvd_status asked = hvd_on_done(handle_, finish, this); asked != HVD_OK) {
    // Without memory for the callback: the engine uses the tensors until this is done. Or shut down in between: it has
    // let go of them.
    hvd_status status = hvd_poll(handle_);
    for (; status == HVD_IN_PROGRESS; status = hvd_poll(handle_)) std::this_thread::yield();
    Finish(status, status == HVD_OK ? "" : hvd_last_error());
  }
}

// To the other ranks each is an operation by itself: it does not matter which of them go together on this rank. A wait
// that is over soon, whatever the other ranks run first, may hold a thread of TensorFlow's.
void Call::SubmitEach(bool waits) noexcept {
  if (!border::Succeeds([&] { handles_.reserve(ops_.size()); })) {
    Fail(HVD_RESOURCE, border::kNoMemory);
    TellOthers(attributes_, attributes_.name, border::kNoMemory);
    return End();
  }
  double moment = kMomentS;
  for (size_t i = 0; i < ops_.size(); ++i) {
    hvd_handle handle = 0;
    // The last one's submission passes on all.
    const bool passes_on = !waits && i + 1 == ops_.size();
    const hvd_status code = hvd_submit(&ops_[i], 1, passes_on ? HVD_SUBMIT_AT_ONCE : HVD_SUBMIT_WILL_WAIT, &handle);
    if (code == HVD_OK) {
      handles_.push_back(handle);
      moment += kMomentSPerByte * static_cast<double>(tf.TF_TensorByteSize(outputs_[i].get()));
    } else if (!failed_.exchange(true)) {
      Fail(code, hvd_last_error());
    }
  }
  if (handles_.empty()) return End();
  const bool whole = handles_.size() == ops_.size();
  const auto n = static_cast<int32_t>(handles_.size());
  if ((waits || !whole) && hvd_finish_all(handles_.data(), n, whole ? std::min(moment, kMostMomentS) : 0) == HVD_OK)
    return End();
  AskForEach();
}

void Call::AskForEach() noexcept {
  const auto finish = [](void* self, hvd_status code, const char* message) {
    static_cast<Call*>(self)->FinishOne(code, message);
  };
  left_ = handles_.size() + 1;  // and this function
  for (const hvd_handle handle : handles_) {
    if (hvd_on_done(handle, finish, this) == HVD_OK) continue;
    // As in Submit.
    hvd_status status = hvd_poll(handle);
    for (; status == HVD_IN_PROGRESS; status = hvd_poll(handle)) std::this_thread::yield();
    FinishOne(status, status == HVD_OK ? "" : hvd_last_error());
  }
  FinishOne(HVD_OK, "");
}

// On any thread, also on several at once.
void Call::FinishOne(hvd_status code, const char* message) noexcept {
  if (code != HVD_OK && !failed_.exchange(true)) Fail(code, message);
  if (left_.fetch_sub(1) > 1) return;
  for (const hvd_handle handle : handles_) {
    const hvd_status released = hvd_release(handle);
    if (attributes_.stream_of != nullptr && released != HVD_OK && !failed_.exchange(true))
      Fail(released, hvd_last_error());
  }
  End();
}

void Call::Wait(hvd_status begun) noexcept {
  hvd_status status = begun;
  while (status == HVD_IN_PROGRESS) status = hvd_wait(handle_, kSliceS);
  Finish(status, status == HVD_OK ? "" : hvd_last_error());
}

void Call::Finish(hvd_status code, const char* message) noexcept {
  if (code == HVD_OK) {
    border::Guarded([&] { SetResults(); }, [&](hvd_status failure, const char* why) { Fail(failure, why); });
  } else {
    Fail(code, message);
  }
  const hvd_status released = handle_ != 0 ? hvd_release(handle_) : HVD_OK;
  // If that failed, TensorFlow's stream does not wait for the operation: the result must not be used.
  if (attributes_.stream_of != nullptr && released != HVD_OK && Ok(status_)) Fail(released, hvd_last_error());
  End();
}

void Call::SetResults() {
  if (attributes_.type == HVD_JOIN) {
    int64_t last = -1;
    hvd_result_value(handle_, &last);
    const TensorPtr out(tf.TF_AllocateOutput(context_, 0, kInt32, nullptr, 0, sizeof(int32_t), status_.get()));
    if (Ok(status_)) *static_cast<int32_t*>(tf.TF_TensorData(out.get())) = static_cast<int32_t>(last);
    return;
  }
  if (CallerGivesOutput()) return;  // they are TensorFlow's already
  const int n = Tensors();
  for (int i = 0; i < n && Ok(status_); ++i) SetResult(i);
  if (attributes_.type == HVD_ALLTOALL && Ok(status_)) SetReceivedSplits();
}

// A result in the core's memory becomes TensorFlow's without a copy.
void Call::SetResult(int i) {
  hvd_result result = {};
  if (const hvd_status taken = hvd_take_result(handle_, i, &result); taken != HVD_OK) {
    return Fail(taken, hvd_last_error());
  }
  const int type = TensorflowType(result.dtype);
  if (result.bytes == 0) {
    hvd_result_free(result.owner);
    outputs_[i].reset(tf.TF_AllocateOutput(context_, i, type, result.shape, result.ndim, 0, status_.get()));
    return;
  }
  std::unique_ptr<void, void (*)(void*)> owner(result.owner, hvd_result_free);
  outputs_[i].reset(tf.TF_NewTensor(type, result.shape, result.ndim, result.data, static_cast<size_t>(result.bytes),
                                    &FreeResult, owner.get()));
  [[maybe_unused]] void* const theirs = owner.release();
  tf.TF_SetOutput(context_, i, outputs_[i].get(), status_.get());
}

void Call::SetReceivedSplits() {
  int32_t n = 0;
  // There is no room for them, which is a refusal that tells their number.
  const hvd_status asked = hvd_process_set_ranks(attributes_.process_set, nullptr, &n);
  if (asked == HVD_RESOURCE) return Fail(asked, hvd_last_error());
  const int64_t extent = n;
  const TensorPtr out(tf.TF_AllocateOutput(context_, 1, kInt32, &extent, 1, sizeof(int32_t) * n, status_.get()));
  if (!Ok(status_)) return;
  const hvd_status got = hvd_received_splits(handle_, 0, static_cast<int32_t*>(tf.TF_TensorData(out.get())), n);
  if (got != HVD_OK) Fail(got, hvd_last_error());
}

void Call::End() noexcept {
  inputs_.clear();
  outputs_.clear();
  if (!Ok(status_)) tf.TF_OpKernelContext_Failure(context_, status_.get());
  const Turns::Names turns = std::move(turns_);
  const DoneCallback done = std::move(done_);
  delete this;
  // Before TensorFlow goes on, which may be with the next operator of this name.
  TurnsOfNames().GiveBack(turns);
  done();
}

}  // namespace hvd::frameworks::tensorflow
