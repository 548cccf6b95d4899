// Operation: a call of NCCL that moves data, as a value, so that another thread can make it.
#pragma once

#include <cstddef>

#include "backend/nccl/types.h"

namespace hvd::backend::nccl {

struct Operation {
  enum Kind { kAllreduce, kReduce, kReduceScatter, kBroadcast, kAllgather, kSend, kReceive };
  Kind kind;
  const void* from;
  void* to;
  size_t count;  // elements of `type`; of what each member gives or gets, as NCCL counts
  int type = kUint8;
  int op = kSum;
  int peer = 0;  // the root of kReduce and kBroadcast, the other end of kSend and kReceive
};

}  // namespace hvd::backend::nccl
