// The texts of failures in the user's words.
#pragma once

#include <string>

#include "horovod/horovod.h"

namespace hvd::frameworks {

// "allreduce 'allreduce.w'" is the tensor that they called 'w'; and whose failure it is must be seen, because
// the frameworks' classes of errors are everybody's.
inline std::string InUsersWords(const std::string& failure, const std::string& whose = "Horovod") {
  std::string message = whose + ": " + failure;
  for (const char* operation : {"allreduce", "allgather", "broadcast", "alltoall", "reducescatter"}) {
    const std::string own = std::string(operation) + ".";
    for (size_t at = 0; (at = message.find(" '" + own, at)) != std::string::npos; at += 2) {
      message.erase(at + 2, own.size());
    }
  }
  return message;
}

// What a failure is called in Python, and XLA's code for it.
struct Failure {
  hvd_status status;
  const char* name;
  int xla;
};
inline constexpr Failure kFailures[] = {
    {HVD_INVALID_ARGUMENT, "InvalidArgumentError", 3},
    {HVD_UNSUPPORTED, "UnsupportedError", 12},
    {HVD_BACKEND_UNAVAILABLE, "BackendUnavailableError", 14},
    {HVD_NOT_INITIALIZED, "NotInitializedError", 9},
    {HVD_SHUTDOWN, "ShutdownError", 10},
    {HVD_PEER_LOST, "PeerLostError", 10},
    {HVD_TIMEOUT, "CollectiveTimeoutError", 4},
    {HVD_MISMATCH, "MismatchError", 9},
    {HVD_RESOURCE, "ResourceError", 8},
};

inline Failure FailureFor(hvd_status status) {
  for (const Failure& failure : kFailures) {
    if (failure.status == status) return failure;
  }
  return {status, "HorovodInternalError", 13};
}

// Not every XLA passes its code on, so the text says what has failed: python/horovod/_core/operations/described_call.py
// reads it.
inline std::string InXlasWords(const Failure& failure, const std::string& message) {
  return InUsersWords(message, std::string("Horovod ") + failure.name);
}

}  // namespace hvd::frameworks
