// Library: the functions of an NCCL (or RCCL) that is opened at run time, with failures as Status. It knows no job.
#pragma once

#include <memory>
#include <string>
#include <type_traits>
#include <utility>

#include "backend/nccl/operation.h"
#include "backend/nccl/types.h"
#include "base/symbols.h"

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
  Status StartGroup() const { return Call(nullptr, group_start_); }
  Status EndGroup(Communicator of) const { return Call(of, group_end_); }
  Status Put(const Operation& operation, Communicator of, Stream stream) const;

 private:
  Library(std::string path, const Maker& maker, void* opened)
      : path_(std::move(path)), maker_(maker), symbols_(opened) {}
  template <class... Arguments>
  Status Call(Communicator of, const Imported<int(Arguments...)>& function,
              std::type_identity_t<Arguments>... arguments) const {
    const int code = function(arguments...);
    return code == kSuccess || code == kInProgress ? Status() : Failed(function.name(), code, of);
  }

  const std::string path_;
  const Maker& maker_;  // a constant
  int version_ = 0;
  Symbols symbols_;
  const Imported<int(int*)> get_version_{symbols_, "ncclGetVersion"};
  const Imported<int(UniqueId*)> get_unique_id_{symbols_, "ncclGetUniqueId"};
  const Imported<int(Communicator*, int, UniqueId, int, const Config*)> comm_init_rank_config_{
      symbols_, "ncclCommInitRankConfig"};
  const Imported<int(Communicator, int, int, Communicator*, const Config*)> comm_split_{symbols_, "ncclCommSplit"};
  const Imported<int(Communicator, int*)> comm_get_async_error_{symbols_, "ncclCommGetAsyncError"};
  const Imported<int(Communicator)> comm_abort_{symbols_, "ncclCommAbort"};
  const Imported<int(Communicator)> comm_destroy_{symbols_, "ncclCommDestroy"};
  const Imported<const char*(int)> get_error_string_{symbols_, "ncclGetErrorString"};
  const Imported<const char*(Communicator)> get_last_error_{symbols_, "ncclGetLastError"};
  const Imported<int(int*, const void*, int, int, Communicator)> red_op_create_{symbols_, "ncclRedOpCreatePreMulSum"};
  const Imported<int(int, Communicator)> red_op_destroy_{symbols_, "ncclRedOpDestroy"};
  const Imported<int()> group_start_{symbols_, "ncclGroupStart"};
  const Imported<int()> group_end_{symbols_, "ncclGroupEnd"};
  const Imported<int(const void*, void*, size_t, int, int, Communicator, Stream)> all_reduce_{symbols_,
                                                                                              "ncclAllReduce"};
  const Imported<int(const void*, void*, size_t, int, int, int, Communicator, Stream)> reduce_{symbols_, "ncclReduce"};
  const Imported<int(const void*, void*, size_t, int, int, Communicator, Stream)> reduce_scatter_{symbols_,
                                                                                                  "ncclReduceScatter"};
  const Imported<int(const void*, void*, size_t, int, int, Communicator, Stream)> broadcast_{symbols_, "ncclBroadcast"};
  const Imported<int(const void*, void*, size_t, int, Communicator, Stream)> all_gather_{symbols_, "ncclAllGather"};
  const Imported<int(const void*, size_t, int, int, Communicator, Stream)> send_{symbols_, "ncclSend"};
  const Imported<int(void*, size_t, int, int, Communicator, Stream)> recv_{symbols_, "ncclRecv"};
};

}  // namespace hvd::backend::nccl
