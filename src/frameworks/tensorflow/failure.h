// How a failure is reported to TensorFlow: a code of its own and a text, also when there is no memory for one.
#pragma once

#include <utility>

#include "border/border.h"
#include "frameworks/tensorflow/c_api.h"
#include "frameworks/wording.h"
#include "horovod/horovod.h"

namespace hvd::frameworks::tensorflow {

inline int CodeFor(hvd_status code) {
  switch (code) {
    case HVD_INVALID_ARGUMENT:
    case HVD_UNSUPPORTED:
      return kInvalidArgument;
    case HVD_MISMATCH:
    case HVD_NOT_INITIALIZED:
      return kFailedPrecondition;
    case HVD_SHUTDOWN:
    case HVD_PEER_LOST:
    case HVD_TIMEOUT:
      return kAborted;
    case HVD_RESOURCE:
      return kResourceExhausted;
    default:
      return kUnknown;
  }
}

inline StatusPtr StatusFor(hvd_status code, const char* message) noexcept {
  StatusPtr status(no_memory);
  (void)border::Succeeds([&] {
    StatusPtr made = NewStatus();
    tf.TF_SetStatus(made.get(), CodeFor(code), frameworks::InUsersWords(message).c_str());
    status = std::move(made);
  });
  return status;
}

}  // namespace hvd::frameworks::tensorflow
