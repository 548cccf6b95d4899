// One execution of a collective operator: takes its inputs from TensorFlow, submits them to the engine, and on the
// engine's word hands the results back and tells TensorFlow that it is done. Used by the kernels.
//
// A call owns itself from Start until it is done.
#pragma once

#include <atomic>
#include <string>
#include <vector>

#include "frameworks/tensorflow/c_api.h"
#include "frameworks/tensorflow/done_callback.h"
#include "frameworks/tensorflow/failure.h"
#include "frameworks/tensorflow/turns.h"
#include "horovod/horovod.h"

namespace hvd::frameworks::tensorflow {

// What a kernel knows of its operator: the attributes of the node.
struct Attributes {
  hvd_op_type type = HVD_ALLREDUCE;
  std::string name;                // what the members negotiate; of a group: the base of its tensors' names
  std::vector<std::string> names;  // not empty: each tensor is an operation of its own, called so
  int process_set = 0;
  int reduce_op = 0;
  int root_rank = 0;
  double prescale = 1.0, postscale = 1.0;
  bool blocking = false;                         // the calling thread waits for this, and drives the engine
  bool waits = false;                            // it does so for a moment, for operations that have names each
  hvd_tensorflow_stream_fn stream_of = nullptr;  // the tensors lie on the GPU; null: in the host's memory
};

// Nothing that is thrown inside leaves it: a call fails with a status, and is done. A kernel outlives its calls.
class Call {
 public:
  // `done` belongs to TensorFlow and ends with the kernel's compute function: what it refers to is taken.
  static void Start(const Attributes& attributes, TF_OpKernelContext* context, TF_AsyncOpKernelDoneCallback* done);

 private:
  Call(const Attributes& attributes, TF_OpKernelContext* context, TF_AsyncOpKernelDoneCallback* done);

  void TakeTurn() noexcept;
  void Refuse(bool out_of_order);
  void Submit(bool may_wait) noexcept;
  bool TakeTensors();  // false: an error stands in status_
  bool TakeSplits();
  bool FindPlace();
  void SubmitEach(bool waits) noexcept;
  void AskForEach() noexcept;
  void FinishOne(hvd_status code, const char* message) noexcept;
  void Wait(hvd_status begun) noexcept;
  void Finish(hvd_status code, const char* message) noexcept;
  void SetResults();
  void SetResult(int i);
  void SetReceivedSplits();
  void Fail(hvd_status code, const char* message) noexcept { status_ = StatusFor(code, message); }
  void End() noexcept;
  int Tensors() const;
  bool CallerGivesOutput() const { return attributes_.type == HVD_ALLREDUCE || attributes_.type == HVD_BROADCAST; }
  bool HasNameEach() const { return attributes_.names.size() == static_cast<size_t>(Tensors()); }
  const std::string& FirstName() const { return names_.empty() ? attributes_.name : names_[0]; }
  std::vector<std::string> Names() const;
  Turns::Names NamesOfTurns() const;

  const Attributes& attributes_;
  TF_OpKernelContext* const context_;
  StatusPtr status_ = NewStatus();
  std::vector<TensorPtr> inputs_, outputs_;
  std::vector<std::vector<int64_t>> shapes_;
  const std::vector<std::string> names_;  // by tensor; empty: the attributes have them
  Turns::Names turns_;                    // what is taken while this runs: the names, of this process set
  std::vector<int32_t> splits_;
  std::vector<hvd_op> ops_;
  hvd_handle handle_ = 0;
  std::vector<hvd_handle> handles_;  // of operations that have names each
  std::atomic<size_t> left_ = 0;     // of these, which are not done
  std::atomic<bool> failed_ = false;
  DoneCallback done_;  // the last: taken when nothing can be thrown any more
};

}  // namespace hvd::frameworks::tensorflow
