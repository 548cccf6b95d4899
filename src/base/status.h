// Status and Result: how every layer reports failure. No exceptions cross a layer; no layer prints.
// A Status is one pointer; OK is null and costs nothing.
#pragma once

#include <memory>
#include <string>
#include <utility>
#include <variant>

#include "horovod/horovod.h"

namespace hvd {

enum class Code : int32_t {
  kOk = HVD_OK,
  kInvalidArgument = HVD_INVALID_ARGUMENT,
  kUnsupported = HVD_UNSUPPORTED,
  kBackendUnavailable = HVD_BACKEND_UNAVAILABLE,
  kInternal = HVD_INTERNAL,
  kNotInitialized = HVD_NOT_INITIALIZED,
  kShutdown = HVD_SHUTDOWN,
  kPeerLost = HVD_PEER_LOST,
  kTimeout = HVD_TIMEOUT,
  kMismatch = HVD_MISMATCH,
  kInProgress = HVD_IN_PROGRESS,
  kUnknownHandle = HVD_UNKNOWN_HANDLE,
  kResource = HVD_RESOURCE,
};

class [[nodiscard]] Status {
 public:
  Status() = default;
  Status(Code code, std::string message) : failure_(std::make_shared<Failure>(Failure{code, std::move(message)})) {}

  bool ok() const { return failure_ == nullptr; }
  Code code() const { return failure_ ? failure_->code : Code::kOk; }
  const std::string& message() const {
    static const std::string* const kEmpty = new std::string;
    return failure_ ? failure_->message : *kEmpty;
  }
  // The same failure, with one more sentence of context in front.
  Status Because(const std::string& context) const { return ok() ? *this : Status(code(), context + ": " + message()); }

 private:
  struct Failure {
    Code code;
    std::string message;
  };
  std::shared_ptr<const Failure> failure_;
};

template <class T>
class [[nodiscard]] Result {
 public:
  Result(T value) : value_(std::move(value)) {}                    // NOLINT: implicit on purpose
  Result(Status status) : value_(), status_(std::move(status)) {}  // NOLINT
  bool ok() const { return status_.ok(); }
  const Status& status() const { return status_; }
  T& operator*() { return value_; }
  const T& operator*() const { return value_; }
  T* operator->() { return &value_; }

 private:
  T value_;
  Status status_;
};

// Whether the code says that an operation failed: such codes can be sent to other ranks.
inline bool IsFailure(int code) { return (code > HVD_OK && code < HVD_IN_PROGRESS) || code == HVD_RESOURCE; }

// Made before it is needed: there may be no memory to make it with.
inline const Status& OutOfMemory() {
  static const auto* const kStatus = new Status(Code::kResource, "out of memory.");
  return *kStatus;
}

// Likewise: a waiter must not take missing memory for the end of an operation.
inline const Status& NotDoneYet() {
  static const auto* const kStatus = new Status(Code::kInProgress, "not done yet.");
  return *kStatus;
}

}  // namespace hvd

// Returns the failure of `expr` from the enclosing function.
#define HVD_TRY(expr)                                                              \
  do {                                                                             \
    if (::hvd::Status hvd_status_ = (expr); !hvd_status_.ok()) return hvd_status_; \
  } while (0)
// The same inside a coroutine (Task); `expr` may contain co_await.
#define HVD_CO_TRY(expr)                                                              \
  do {                                                                                \
    if (::hvd::Status hvd_status_ = (expr); !hvd_status_.ok()) co_return hvd_status_; \
  } while (0)
