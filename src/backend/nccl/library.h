// Library: the functions of an NCCL (or RCCL) that is opened at run time, with failures as Status. It knows no job.
#pragma once

#include <memory>
#include <string>

#include "backend/nccl/operation.h"
#include "backend/nccl/types.h"
#include "base/status.h"

namespace hvd::backend::nccl {

// Whose: NVIDIA's for CUDA, AMD's for HIP. Their functions, and the numbers of their versions, are the same.
struct Maker {
  const char* name;
  const char* file;    // where the system's loader finds it
  const char* remedy;  // where it is too old
};
inline constexpr Maker kNccl{"NCCL", "libnccl.so.2",
                             "pip install nvidia-nccl-cu12, or nvidia-nccl-cu13 for a driver of CUDA 13"};
inline constexpr Maker kRccl{"RCCL", "librccl.so.1", "ROCm has it since 6.2"};

class Library {
 public:
  // Older ones give up a communicator that is still being made only by the thread that asked for it.
  static constexpr int kOldest = 22000;

  // `path`: a file or a name. Stays open for good. kBackendUnavailable: it cannot be opened, or is too old.
  static Result<std::shared_ptr<Library>> Open(const std::string& path, const Maker& maker = kNccl);

  const std::string& path() const { return path_; }
  const Maker& maker() const { return maker_; }
  // As NCCL gives it: 22809 is 2.28.9.
  int version() const { return version_; }
  static std::string VersionText(int version);

  Result<UniqueId> NewId() const;
  // The communicator comes at once; State tells when it can be used. Of the device that is current.
  Status Begin(Communicator* made, int size, const UniqueId& id, int rank, const Config& config) const;
  // A second communicator of the same members, in the same order. NCCL stores it in *made at any time until State(of)
  // is no longer kInProgress.
  Status Duplicate(Communicator* made, Communicator of, int rank, const Config& config) const;
  // kSuccess, kInProgress, or what has gone wrong.
  int State(Communicator of) const;
  Status Failed(const char* function, int code, Communicator of) const;
  // Blocks for up to a second.
  void Abort(Communicator of) const { (void)comm_abort_(of); }
  void Destroy(Communicator of) const { (void)comm_destroy_(of); }
  // Multiplies by *factor, an element of `type`, and adds up.
  Status NewScaledSum(int* op, const void* factor, int type, Communicator of) const;
  // Once the last call with it has ended.
  void DestroyScaledSum(int op, Communicator of) const { (void)red_op_destroy_(op, of); }

  // ---- each may put work on the stream. kInProgress is not a failure: State tells when the call has ended.
  Status StartGroup() const { return Check("ncclGroupStart", group_start_(), nullptr); }
  Status EndGroup(Communicator of) const { return Check("ncclGroupEnd", group_end_(), of); }
  Status Put(const Operation& operation, Communicator of, Stream stream) const;

 private:
  Library(std::string path, const Maker& maker) : path_(std::move(path)), maker_(maker) {}
  Status Bind(void* library);
  Status Check(const char* function, int code, Communicator of) const {
    return code == kSuccess || code == kInProgress ? Status() : Failed(function, code, of);
  }

  const std::string path_;
  const Maker& maker_;  // a constant
  int version_ = 0;
  int (*get_version_)(int*) = nullptr;
  int (*get_unique_id_)(UniqueId*) = nullptr;
  int (*comm_init_rank_config_)(Communicator*, int, UniqueId, int, const Config*) = nullptr;
  int (*comm_split_)(Communicator, int, int, Communicator*, const Config*) = nullptr;
  int (*comm_get_async_error_)(Communicator, int*) = nullptr;
  int (*comm_abort_)(Communicator) = nullptr;
  int (*comm_destroy_)(Communicator) = nullptr;
  const char* (*get_error_string_)(int) = nullptr;
  const char* (*get_last_error_)(Communicator) = nullptr;
  int (*red_op_create_)(int*, const void*, int, int, Communicator) = nullptr;
  int (*red_op_destroy_)(int, Communicator) = nullptr;
  int (*group_start_)() = nullptr;
  int (*group_end_)() = nullptr;
  int (*all_reduce_)(const void*, void*, size_t, int, int, Communicator, Stream) = nullptr;
  int (*reduce_)(const void*, void*, size_t, int, int, int, Communicator, Stream) = nullptr;
  int (*reduce_scatter_)(const void*, void*, size_t, int, int, Communicator, Stream) = nullptr;
  int (*broadcast_)(const void*, void*, size_t, int, int, Communicator, Stream) = nullptr;
  int (*all_gather_)(const void*, void*, size_t, int, Communicator, Stream) = nullptr;
  int (*send_)(const void*, size_t, int, int, Communicator, Stream) = nullptr;
  int (*recv_)(void*, size_t, int, int, Communicator, Stream) = nullptr;
};

}  // namespace hvd::backend::nccl
