#include "backend/nccl/library.h"

#include <dlfcn.h>

namespace hvd::backend::nccl {

Result<std::shared_ptr<Library>> Library::Open(const std::string& path, const Maker& maker) {
  const Result<void*> opened = OpenLibrary(path, RTLD_LOCAL);
  if (!opened.ok()) return Status(opened.status().code(), path + " cannot be opened: " + opened.status().message());
  std::shared_ptr<Library> library(new Library(path, maker, *opened));
  if (const std::string& missing = library->symbols_.missing(); !missing.empty()) {
    return Status(Code::kBackendUnavailable, path + " has no " + missing + ", which " + maker.name + " has since " +
                                                 VersionText(kOldest) + " at the latest.");
  }
  HVD_TRY(library->Call(nullptr, library->get_version_, &library->version_));
  if (library->version_ < kOldest) {
    return Status(Code::kBackendUnavailable, path + " is " + maker.name + " " + VersionText(library->version_) + "; " +
                                                 VersionText(kOldest) + " or later is needed (" + maker.remedy + ").");
  }
  return library;
}

std::string Library::VersionText(int version) {
  return std::to_string(version / 10000) + "." + std::to_string(version / 100 % 100) + "." +
         std::to_string(version % 100);
}

Result<UniqueId> Library::NewId() const {
  UniqueId id;
  HVD_TRY(Call(nullptr, get_unique_id_, &id));
  return id;
}

Status Library::Begin(Communicator* made, int size, const UniqueId& id, int rank, const Config& config) const {
  return Call(*made, comm_init_rank_config_, made, size, id, rank, &config);
}

Status Library::Duplicate(Communicator* made, Communicator of, int rank, const Config& config) const {
  return Call(of, comm_split_, of, /*color=*/0, /*key=*/rank, made, &config);
}

int Library::State(Communicator of) const {
  int state = kSuccess;
  const int code = comm_get_async_error_(of, &state);
  return code != kSuccess ? code : state;
}

Status Library::NewScaledSum(int* op, const void* factor, int type, Communicator of) const {
  return Call(of, red_op_create_, op, factor, type, kHostImmediate, of);
}

Status Library::Put(const Operation& o, Communicator of, Stream stream) const {
  switch (o.kind) {
    case Operation::kAllreduce:
      return Call(of, all_reduce_, o.from, o.to, o.count, o.type, o.op, of, stream);
    case Operation::kReduce:
      return Call(of, reduce_, o.from, o.to, o.count, o.type, o.op, o.peer, of, stream);
    case Operation::kReduceScatter:
      return Call(of, reduce_scatter_, o.from, o.to, o.count, o.type, o.op, of, stream);
    case Operation::kBroadcast:
      return Call(of, broadcast_, o.from, o.to, o.count, o.type, o.peer, of, stream);
    case Operation::kAllgather:
      return Call(of, all_gather_, o.from, o.to, o.count, o.type, of, stream);
    case Operation::kSend:
      return Call(of, send_, o.from, o.count, o.type, o.peer, of, stream);
    case Operation::kReceive:
      return Call(of, recv_, o.to, o.count, o.type, o.peer, of, stream);
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
