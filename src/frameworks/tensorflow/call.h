// One execution of a collective operator: takes its inputs from TensorFlow, submits them to the engine, and on the
// engine's word hands the results back and tells TensorFlow that it is done. Used by the kernels.
//
// A call owns itself from Start until it is done.
#pragma once

#include <string>
#include <vector>

#include "frameworks/tensorflow/c_api.h"
#include "frameworks/tensorflow/done_callback.h"
#include "horovod/horovod.h"

namespace hvd::frameworks::tensorflow {

// What a kernel knows of its operator: the attributes of the node.
struct Attributes {
  hvd_op_type type = HVD_ALLREDUCE;
  std::string name;  // what the members negotiate; of a group: the base of its tensors' names
  int process_set = 0;
  int reduce_op = 0;
  int root_rank = 0;
  double prescale = 1.0, postscale = 1.0;
  bool blocking = false;  // the calling thread waits for this, and drives the engine
};

class Call {
 public:
  // `done` belongs to TensorFlow and ends with the kernel's compute function: what it refers to is copied.
  static void Start(const Attributes& attributes, TF_OpKernelContext* context, TF_AsyncOpKernelDoneCallback* done);

 private:
  Call(const Attributes& attributes, TF_OpKernelContext* context, TF_AsyncOpKernelDoneCallback* done);

  bool TakeTensors();  // false: an error stands in status_
  bool TakeSplits();
  void Name();
  void Refuse(bool out_of_order);
  void Submit(bool may_wait);
  void Wait(hvd_status begun);
  void Finish(hvd_status code, const char* message);
  void SetResults();
  void SetResult(int i);
  void SetReceivedSplits();
  void Fail(hvd_status code, const std::string& message);
  void End();
  int Tensors() const {
    return attributes_.type == HVD_ALLTOALL || attributes_.type == HVD_JOIN ? 1 : tf.TF_NumInputs(context_);
  }
  bool CallerGivesOutput() const { return attributes_.type == HVD_ALLREDUCE || attributes_.type == HVD_BROADCAST; }

  const Attributes attributes_;
  TF_OpKernelContext* const context_;
  DoneCallback done_;
  StatusPtr status_ = NewStatus();
  std::vector<TensorPtr> inputs_, outputs_;
  std::vector<std::vector<int64_t>> shapes_;
  std::vector<std::string> names_;  // by tensor
  std::vector<std::string> turns_;  // what is taken while this runs: the names, of this process set
  std::vector<int32_t> splits_;
  std::vector<hvd_op> ops_;
  hvd_handle handle_ = 0;
};

}  // namespace hvd::frameworks::tensorflow
