#include "backend/mpi/library.h"

#include <dlfcn.h>

#include <cstdio>
#include <utility>

namespace hvd::backend::mpi {
namespace {

constexpr int kTag = 31'338;          // of making communicators, which is no message of anybody's
constexpr int kErrorBytes = 512 + 1;  // the most that any library writes

}  // namespace

Result<std::unique_ptr<Library>> Library::Open(const std::string& path, Style style) {
  // Open MPI's plug-ins take its functions from what is loaded globally.
  void* const opened = dlopen(path.c_str(), RTLD_NOW | RTLD_GLOBAL);
  if (opened == nullptr) {
    const char* const why = dlerror();
    return Status(Code::kBackendUnavailable, path + " cannot be opened: " + (why != nullptr ? why : "no reason given"));
  }
  const Result<Handles> handles = HandlesOf(style, opened);
  HVD_TRY(handles.status());
  std::unique_ptr<Library> library(new Library(path, *handles));
  HVD_TRY(library->Bind(opened));
  return library;
}

Status Library::Bind(void* library) {
  Status missing;
  const auto bind = [&](const char* name, auto* function) {
    *reinterpret_cast<void**>(function) = dlsym(library, name);
    if (*function != nullptr || !missing.ok()) return;
    missing = Status(Code::kBackendUnavailable,
                     path_ + " has no " + std::string(name) + ", which MPI has since version 3.0.");
  };
  bind("MPI_Error_string", &error_string_);
  bind("MPI_Comm_group", &comm_group_);
  bind("MPI_Group_incl", &group_incl_);
  bind("MPI_Comm_create_group", &comm_create_group_);
  bind("MPI_Comm_set_errhandler", &comm_set_errhandler_);
  bind("MPI_Group_free", &group_free_);
  bind("MPI_Iallreduce", &iallreduce_);
  bind("MPI_Iallgather", &iallgather_);
  bind("MPI_Iallgatherv", &iallgatherv_);
  bind("MPI_Ialltoall", &ialltoall_);
  bind("MPI_Ialltoallv", &ialltoallv_);
  bind("MPI_Ibcast", &ibcast_);
  bind("MPI_Ibarrier", &ibarrier_);
  bind("MPI_Test", &test_);
  return missing;
}

Status Library::MakeCommunicator(Handle base, const std::vector<int>& ranks, Handle* made) const {
  Handle all = 0, some = 0;
  HVD_TRY(Check("MPI_Comm_group", comm_group_(base, &all)));
  HVD_TRY(Check("MPI_Group_incl", group_incl_(all, static_cast<int>(ranks.size()), ranks.data(), &some)));
  HVD_TRY(Check("MPI_Comm_create_group", comm_create_group_(base, some, kTag, made)));
  HVD_TRY(Check("MPI_Group_free", group_free_(&some)));
  HVD_TRY(Check("MPI_Group_free", group_free_(&all)));
  return Check("MPI_Comm_set_errhandler", comm_set_errhandler_(*made, handles_.errors_return));
}

Status Library::Failed(const char* function, int code) const {
  char text[kErrorBytes] = {};
  int length = 0;
  if (error_string_(code, text, &length) != 0 || text[0] == '\0') std::snprintf(text, sizeof text, "error %d", code);
  return Status(Code::kInternal, std::string(function) + " of " + path_ + " failed: " + text);
}

}  // namespace hvd::backend::mpi
