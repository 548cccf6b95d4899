#include "backend/nccl/library.h"

#include <dlfcn.h>

namespace hvd::backend::nccl {

Result<std::shared_ptr<Library>> Library::Open(const std::string& path, const Maker& maker) {
  void* const opened = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (opened == nullptr) {
    const char* const why = dlerror();
    return Status(Code::kBackendUnavailable, path + " cannot be opened: " + (why != nullptr ? why : "no reason given"));
  }
  std::shared_ptr<Library> library(new Library(path, maker));
  HVD_TRY(library->Bind(opened));
  HVD_TRY(library->Check("ncclGetVersion", library->get_version_(&library->version_), nullptr));
  if (library->version_ < kOldest) {
    return Status(Code::kBackendUnavailable, path + " is " + maker.name + " " + VersionText(library->version_) + "; " +
                                                 VersionText(kOldest) + " or later is needed (" + maker.remedy + ").");
  }
  return library;
}

Status Library::Bind(void* library) {
  Status missing;
  const auto bind = [&](const char* name, auto* function) {
    *reinterpret_cast<void**>(function) = dlsym(library, name);
    if (*function != nullptr || !missing.ok()) return;
    missing = Status(Code::kBackendUnavailable, path_ + " has no " + std::string(name) + ", which " + maker_.name +
                                                    " has since " + VersionText(kOldest) + " at the latest.");
  };
  bind("ncclGetVersion", &get_version_);
  bind("ncclGetUniqueId", &get_unique_id_);
  bind("ncclCommInitRankConfig", &comm_init_rank_config_);
  bind("ncclCommSplit", &comm_split_);
  bind("ncclCommGetAsyncError", &comm_get_async_error_);
  bind("ncclCommAbort", &comm_abort_);
  bind("ncclCommDestroy", &comm_destroy_);
  bind("ncclGetErrorString", &get_error_string_);
  bind("ncclGetLastError", &get_last_error_);
  bind("ncclRedOpCreatePreMulSum", &red_op_create_);
  bind("ncclRedOpDestroy", &red_op_destroy_);
  bind("ncclGroupStart", &group_start_);
  bind("ncclGroupEnd", &group_end_);
  bind("ncclAllReduce", &all_reduce_);
  bind("ncclReduce", &reduce_);
  bind("ncclReduceScatter", &reduce_scatter_);
  bind("ncclBroadcast", &broadcast_);
  bind("ncclAllGather", &all_gather_);
  bind("ncclSend", &send_);
  bind("ncclRecv", &recv_);
  return missing;
}

std::string Library::VersionText(int version) {
  return std::to_string(version / 10000) + "." + std::to_string(version / 100 % 100) + "." +
         std::to_string(version % 100);
}

Result<UniqueId> Library::NewId() const {
  UniqueId id;
  HVD_TRY(Check("ncclGetUniqueId", get_unique_id_(&id), nullptr));
  return id;
}

Status Library::Begin(Communicator* made, int size, const UniqueId& id, int rank, const Config& config) const {
  return Check("ncclCommInitRankConfig", comm_init_rank_config_(made, size, id, rank, &config), *made);
}

Status Library::Duplicate(Communicator* made, Communicator of, int rank, const Config& config) const {
  return Check("ncclCommSplit", comm_split_(of, /*color=*/0, /*key=*/rank, made, &config), of);
}

int Library::State(Communicator of) const {
  int state = kSuccess;
  const int code = comm_get_async_error_(of, &state);
  return code != kSuccess ? code : state;
}

Status Library::NewScaledSum(int* op, const void* factor, int type, Communicator of) const {
  return Check("ncclRedOpCreatePreMulSum", red_op_create_(op, factor, type, kHostImmediate, of), of);
}

Status Library::Put(const Operation& o, Communicator of, Stream stream) const {
  switch (o.kind) {
    case Operation::kAllreduce:
      return Check("ncclAllReduce", all_reduce_(o.from, o.to, o.count, o.type, o.op, of, stream), of);
    case Operation::kReduce:
      return Check("ncclReduce", reduce_(o.from, o.to, o.count, o.type, o.op, o.peer, of, stream), of);
    case Operation::kReduceScatter:
      return Check("ncclReduceScatter", reduce_scatter_(o.from, o.to, o.count, o.type, o.op, of, stream), of);
    case Operation::kBroadcast:
      return Check("ncclBroadcast", broadcast_(o.from, o.to, o.count, o.type, o.peer, of, stream), of);
    case Operation::kAllgather:
      return Check("ncclAllGather", all_gather_(o.from, o.to, o.count, o.type, of, stream), of);
    case Operation::kSend:
      return Check("ncclSend", send_(o.from, o.count, o.type, o.peer, of, stream), of);
    case Operation::kReceive:
      return Check("ncclRecv", recv_(o.to, o.count, o.type, o.peer, of, stream), of);
  }
  return Status();
}

Status Library::Failed(const char* function, int code, Communicator of) const {
  const char* const words = get_error_string_(code);
  const char* const more = get_last_error_(of);
  std::string text = std::string(function) + " of " + maker_.name + " " + VersionText(version_) +
                     " failed: " + (words != nullptr ? words : "error " + std::to_string(code));
  if (more != nullptr && more[0] != '\0') text += " (" + std::string(more) + ")";
  return Status(Code::kInternal, text + ". Set NCCL_DEBUG=WARN for details.");
}

}  // namespace hvd::backend::nccl
