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
  const Result<void*> opened = OpenLibrary(path, RTLD_GLOBAL);
  if (!opened.ok()) return Status(opened.status().code(), path + " cannot be opened: " + opened.status().message());
  const Result<Handles> handles = HandlesOf(style, *opened);
  HVD_TRY(handles.status());
  std::unique_ptr<Library> library(new Library(path, *handles, *opened));
  if (const std::string& missing = library->symbols_.missing(); !missing.empty())
    return Status(Code::kBackendUnavailable, path + " has no " + missing + ", which MPI has since version 3.0.");
  return library;
}

Status Library::MakeCommunicator(Handle base, const std::vector<int>& ranks, Handle* made) const {
  Handle all = 0, some = 0;
  HVD_TRY(Call(comm_group_, base, &all));
  HVD_TRY(Call(group_incl_, all, static_cast<int>(ranks.size()), ranks.data(), &some));
  HVD_TRY(Call(comm_create_group_, base, some, kTag, made));
  HVD_TRY(Call(group_free_, &some));
  HVD_TRY(Call(group_free_, &all));
  return Call(comm_set_errhandler_, *made, handles_.errors_return);
}

Status Library::Failed(const char* function, int code) const {
  char text[kErrorBytes] = {};
  int length = 0;
  if (error_string_(code, text, &length) != 0 || text[0] == '\0') std::snprintf(text, sizeof text, "error %d", code);
  return Status(Code::kInternal, std::string(function) + " of " + path_ + " failed: " + text);
}

}  // namespace hvd::backend::mpi
